/* target_machine.c -- see target_machine.h. */
#include "target_machine.h"

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "codegen.h"
#include "llvm_error.h"
#include "ptx.h"

#define NVPTX_TRIPLE "nvptx64-nvidia-cuda"

static struct eider_host host;
static char host_text[8192];
static char version_text[24];

static void init_once(void)
{
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
    LLVMInitializeNativeAsmParser();
    unsigned major, minor, patch;
    LLVMGetVersion(&major, &minor, &patch);
    snprintf(version_text, sizeof version_text, "%u.%u.%u", major, minor, patch);
    host.cpu = LLVMGetHostCPUName(); /* kept until the process ends */
    host.features = LLVMGetHostCPUFeatures();
    host.triple = LLVMGetDefaultTargetTriple();

    /* What the host lacks is left out of the text. */
    size_t length = (size_t)snprintf(host_text, sizeof host_text, "%.64s ", host.cpu);
    for (const char *at = host.features; *at;) {
        size_t n = strcspn(at, ",");
        if (*at == '+' && length + n + 2 < sizeof host_text) {
            memcpy(host_text + length, at, n);
            length += n;
            host_text[length++] = ',';
        }
        at += n + (at[n] == ',');
    }
    host_text[length - 1] = '\0';
}

eider_status eider_codegen_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pthread_once(&once, init_once) != 0)
        return eider_fail(EIDER_CODEGEN, "LLVM's targets could not be registered");
    return EIDER_OK;
}

const char *eider_codegen_llvm_version(void)
{
    return eider_codegen_init() == EIDER_OK ? version_text : "";
}

const char *eider_codegen_host(void)
{
    return eider_codegen_init() == EIDER_OK ? host_text : "";
}

const struct eider_host *eider_target_host(void)
{
    return eider_codegen_init() == EIDER_OK ? &host : NULL;
}

const char *eider_target_triple(struct eider_target target)
{
    if (target.sm != 0) return NVPTX_TRIPLE;
    return eider_codegen_init() == EIDER_OK ? host.triple : "";
}

struct eider_target eider_target_generated(struct eider_target target)
{
    static const int known[] = {90, 89, 87, 86, 80}; /* NVPTX.td of LLVM 19, from sm_80 */
    if (target.sm == 0) return target;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (target.sm == known[i] && target.sm == 90 && target.suffix == 'a') return target;
        if (target.sm >= known[i]) return (struct eider_target){known[i], 0};
    }
    return (struct eider_target){80, 0};
}

static eider_status create(const char *triple, const char *cpu, const char *features,
                           LLVMRelocMode reloc, LLVMTargetMachineRef *out)
{
    LLVMTargetRef target = NULL;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &message))
        return eider_llvm_error_message(message, "looking for LLVM's target");
    *out = LLVMCreateTargetMachine(target, triple, cpu, features, LLVMCodeGenLevelDefault, reloc,
                                   LLVMCodeModelDefault);
    if (!*out)
        return eider_fail(EIDER_CODEGEN, "LLVM has no target machine for %s, %s", triple, cpu);
    return EIDER_OK;
}

eider_status eider_target_machine_create(struct eider_target target, int ptx_version,
                                         LLVMTargetMachineRef *out)
{
    EIDER_TRY(eider_codegen_init());
    if (target.sm == 0) return create(host.triple, host.cpu, host.features, LLVMRelocPIC, out);
    char cpu[EIDER_TARGET_TEXT_BYTES], features[16];
    eider_target_print(eider_target_generated(target), cpu);
    snprintf(features, sizeof features, "+ptx%d",
             ptx_version < EIDER_PTX_OF_LLVM ? ptx_version : EIDER_PTX_OF_LLVM);
    return create(NVPTX_TRIPLE, cpu, features, LLVMRelocDefault, out);
}
