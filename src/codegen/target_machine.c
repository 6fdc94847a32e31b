/* target_machine.c -- see target_machine.h. */
#include "target_machine.h"

#include <link.h>
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "codegen.h"
#include "llvm_error.h"
#include "ptx.h"

#define NVPTX_TRIPLE "nvptx64-nvidia-cuda"

static struct eider_host host;
static char host_text[8192];
static char version_text[24];
static char build_text[80];

/* ---- The host and LLVM itself: known without registering anything ------------- */

/* Adds the build id in one segment of notes, if it is there. */
static int add_build_id(const char *notes, size_t size, char *out, size_t room)
{
    ElfW(Nhdr) note;
    for (size_t at = 0; at + sizeof note <= size;) {
        memcpy(&note, notes + at, sizeof note);
        const char *name = notes + at + sizeof note;
        const char *id = name + ((note.n_namesz + 3u) & ~3u);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            int n = snprintf(out, room, " build ");
            for (size_t i = 0; i < note.n_descsz && (size_t)n + 2 < room; i++)
                n += snprintf(out + n, room - (size_t)n, "%02x", (unsigned char)id[i]);
            return 1;
        }
        at += sizeof note + ((note.n_namesz + 3u) & ~3u) + ((note.n_descsz + 3u) & ~3u);
    }
    return 0;
}

/* Stops at the loaded file that LLVM's code is in. */
static int find_build(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    void (*function)(unsigned *, unsigned *, unsigned *) = LLVMGetVersion;
    uintptr_t wanted = 0;
    memcpy(&wanted, &function, sizeof wanted);
    int is_here = 0;
    for (size_t i = 0; i < info->dlpi_phnum && !is_here; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        is_here = p->p_type == PT_LOAD && wanted - info->dlpi_addr - p->p_vaddr < p->p_memsz;
    }
    if (!is_here) return 0;
    size_t length = strlen(build_text);
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *notes = (const char *)(uintptr_t)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_NOTE &&
            add_build_id(notes, p->p_memsz, build_text + length, sizeof build_text - length))
            break;
    }
    return 1;
}

static void learn_version(void)
{
    unsigned major, minor, patch;
    LLVMGetVersion(&major, &minor, &patch);
    snprintf(version_text, sizeof version_text, "%u.%u.%u", major, minor, patch);
    snprintf(build_text, sizeof build_text, "%s", version_text);
    dl_iterate_phdr(find_build, NULL);
}

static void learn_host(void)
{
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

static pthread_once_t version_once = PTHREAD_ONCE_INIT, host_once = PTHREAD_ONCE_INIT;

const char *eider_codegen_llvm_version(void)
{
    pthread_once(&version_once, learn_version);
    return version_text;
}

const char *eider_codegen_llvm_build(void)
{
    pthread_once(&version_once, learn_version);
    return build_text;
}

const char *eider_codegen_host(void)
{
    pthread_once(&host_once, learn_host);
    return host_text;
}

/* ---- Targets ------------------------------------------------------------------- */

static void register_once(void)
{
    pthread_once(&host_once, learn_host);
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
    LLVMInitializeNativeAsmParser();
}

eider_status eider_codegen_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pthread_once(&once, register_once) != 0)
        return eider_fail(EIDER_CODEGEN, "LLVM's targets could not be registered");
    return EIDER_OK;
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
                           LLVMRelocMode reloc, LLVMCodeGenOptLevel level,
                           LLVMTargetMachineRef *out)
{
    LLVMTargetRef target = NULL;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &message))
        return eider_llvm_error_message(message, "looking for LLVM's target");
    *out =
        LLVMCreateTargetMachine(target, triple, cpu, features, level, reloc, LLVMCodeModelDefault);
    if (!*out)
        return eider_fail(EIDER_CODEGEN, "LLVM has no target machine for %s, %s", triple, cpu);
    return EIDER_OK;
}

eider_status eider_target_machine_create(struct eider_target target, int ptx_version,
                                         LLVMTargetMachineRef *out)
{
    EIDER_TRY(eider_codegen_init());
    if (target.sm == 0)
        return create(host.triple, host.cpu, host.features, LLVMRelocPIC, LLVMCodeGenLevelDefault,
                      out);
    char cpu[EIDER_TARGET_TEXT_BYTES], features[16];
    eider_target_print(eider_target_generated(target), cpu);
    snprintf(features, sizeof features, "+ptx%d",
             ptx_version < EIDER_PTX_OF_LLVM ? ptx_version : EIDER_PTX_OF_LLVM);
    /* The assembler schedules and allocates again: higher levels give the same machine code. */
    return create(NVPTX_TRIPLE, cpu, features, LLVMRelocDefault, LLVMCodeGenLevelLess, out);
}
