/* orc.c -- an object file to running host code, through LLVM's ORC.
 *
 * Invariants: one LLJIT per image, so that releasing an image frees all that it had; no
 * dependence on what the process exports: names are looked up in a table first, then in
 * the vector math library, then in what this library itself is linked with.
 */
#include <dlfcn.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "codegen.h"
#include "emit.h"
#include "jit_memory.h"
#include "llvm_error.h"
#include "target_machine.h"

#define VECTOR_MATH "libsleef.so.3"
#define NAME_BYTES 512

struct eider_cpu_image {
    eider_allocator allocator;
    const struct eider_cpu_hooks *hooks;
    LLVMOrcLLJITRef jit;
    struct eider_jit_memory memory;
    uint32_t shared_bytes;
    struct eider_entry_params params;
    char reported[NAME_BYTES]; /* what ORC reported first */
};

/* ---- Functions of the compiler's run-time library ----------------------------- */

/* f32 to bf16 bits, to nearest even.  Returned in the low half of a vector register, as
 * the calling convention of bfloat wants it; GCC 12 has no such function. */
static uint32_t round_bf16(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
}

static float truncate_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = round_bf16(bits);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds to odd on the way, so that the second rounding sees what the first dropped. */
static float truncate_f64(double x)
{
    float near = (float)x;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    int is_inexact = isfinite(near) && (double)near != x;
    if (is_inexact && !(bits & 1)) bits += fabs((double)near) < fabs(x) ? 1u : UINT32_MAX;
    memcpy(&near, &bits, sizeof near);
    return truncate_f32(near);
}

/* ---- Resolving names ----------------------------------------------------------- */

typedef void (*any_function)(void);

static any_function hook(const struct eider_cpu_hooks *hooks, const char *name)
{
    const struct {
        const char *name;
        any_function function;
    } table[] = {
        {"eider_cpu_sreg", (any_function)hooks->sreg},
        {"eider_cpu_barrier", (any_function)hooks->barrier},
        {"eider_cpu_warp_barrier", (any_function)hooks->warp_barrier},
        {"eider_cpu_shuffle", (any_function)hooks->shuffle},
        {"eider_cpu_ballot", (any_function)hooks->ballot},
        {"eider_cpu_shared", (any_function)hooks->shared},
        {"eider_cpu_cluster_arrive", (any_function)hooks->cluster_arrive},
        {"eider_cpu_cluster_wait", (any_function)hooks->cluster_wait},
        {"eider_cpu_peer", (any_function)hooks->peer},
        {"__truncsfbf2", (any_function)truncate_f32},
        {"__truncdfbf2", (any_function)truncate_f64},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(name, table[i].name) == 0) return table[i].function;
    return NULL;
}

static void *vector_math;

/* Already in the process, since this library is linked with it. */
static void open_vector_math(void)
{
    vector_math = dlopen(VECTOR_MATH, RTLD_NOW | RTLD_LOCAL);
}

static LLVMOrcJITTargetAddress resolve(const struct eider_cpu_image *image, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    any_function function = image->hooks ? hook(image->hooks, name) : NULL;
    if (function) return (LLVMOrcJITTargetAddress)(uintptr_t)function;
    pthread_once(&once, open_vector_math);
    void *symbol = vector_math ? dlsym(vector_math, name) : NULL;
    if (!symbol) symbol = dlsym(RTLD_DEFAULT, name);
    return (LLVMOrcJITTargetAddress)(uintptr_t)symbol;
}

/* ORC asks for names that the object does not define; those left out fail by name. */
static LLVMErrorRef generate(LLVMOrcDefinitionGeneratorRef generator, void *user,
                             LLVMOrcLookupStateRef *state, LLVMOrcLookupKind kind,
                             LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags,
                             LLVMOrcCLookupSet names, size_t n_names)
{
    (void)generator, (void)state, (void)kind, (void)flags;
    const struct eider_cpu_image *image = user;
    for (size_t i = 0; i < n_names; i++) {
        LLVMOrcJITTargetAddress address =
            resolve(image, LLVMOrcSymbolStringPoolEntryStr(names[i].Name));
        if (!address) continue;
        LLVMOrcRetainSymbolStringPoolEntry(names[i].Name); /* the pair owns it */
        LLVMOrcCSymbolMapPair pair = {
            names[i].Name,
            {address, {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0}}};
        LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(&pair, 1);
        LLVMErrorRef error = LLVMOrcJITDylibDefine(dylib, unit);
        if (error) {
            LLVMOrcDisposeMaterializationUnit(unit);
            return error;
        }
    }
    return LLVMErrorSuccess;
}

/* ---- Images --------------------------------------------------------------------- */

/* ORC reports a failed materialisation here; the lookup then only says that it failed. */
static void on_session_error(void *user, LLVMErrorRef error)
{
    struct eider_cpu_image *image = user;
    char *message = LLVMGetErrorMessage(error);
    if (!*image->reported) snprintf(image->reported, NAME_BYTES, "%s", message);
    LLVMDisposeErrorMessage(message);
}

static LLVMOrcObjectLayerRef make_object_layer(void *user, LLVMOrcExecutionSessionRef session,
                                               const char *triple)
{
    (void)triple;
    return eider_jit_memory_layer(user, session);
}

/* Nothing is compiled here: a machine without features spares ORC to ask for the host's, which
 * takes a third of its start. */
static LLVMOrcJITTargetMachineBuilderRef plain_machine(void)
{
    const char *triple = eider_target_host()->triple;
    LLVMTargetRef target;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
        LLVMDisposeMessage(message);
        return NULL;
    }
    LLVMTargetMachineRef machine = LLVMCreateTargetMachine(
        target, triple, "", "", LLVMCodeGenLevelNone, LLVMRelocDefault, LLVMCodeModelDefault);
    return machine ? LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine) : NULL;
}

static eider_status create_jit(struct eider_cpu_image *image)
{
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcJITTargetMachineBuilderRef machine = plain_machine();
    if (machine) LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder, machine);
    LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, make_object_layer, &image->memory);
    LLVMErrorRef error = LLVMOrcCreateLLJIT(&image->jit, builder);
    if (error) {
        image->jit = NULL;
        return eider_llvm_error_fail(error, "creating LLVM's ORC");
    }
    LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(image->jit),
                                            on_session_error, image);
    LLVMOrcDefinitionGeneratorRef generator =
        LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, image, NULL);
    LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(image->jit), generator);
    return EIDER_OK;
}

static eider_status look_up(struct eider_cpu_image *image, const char *name, void **out)
{
    LLVMOrcExecutorAddress address = 0;
    LLVMErrorRef error = LLVMOrcLLJITLookup(image->jit, &address, name);
    eider_status status = eider_llvm_error_fail(error, "linking host code");
    if (status != EIDER_OK && *image->reported) eider_fail_prefix("%s; ", image->reported);
    *out = (void *)(uintptr_t)address;
    return status;
}

static eider_status link_object(struct eider_cpu_image *image, const struct eider_blob *object)
{
    LLVMMemoryBufferRef buffer =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(object->data, object->size, "eider object");
    LLVMErrorRef error =
        LLVMOrcLLJITAddObjectFile(image->jit, LLVMOrcLLJITGetMainJITDylib(image->jit), buffer);
    return eider_llvm_error_fail(error, "linking host code");
}

/* Copies the constant `<entry><suffix>`, which foreign.c wrote. */
static eider_status read_constant(struct eider_cpu_image *image, const char *entry,
                                  const char *suffix, void *out, size_t size)
{
    char name[NAME_BYTES];
    void *bytes = NULL;
    snprintf(name, sizeof name, "%s%s", entry, suffix);
    EIDER_TRY(look_up(image, name, &bytes));
    memcpy(out, bytes, size);
    return EIDER_OK;
}

static eider_status read_constants(struct eider_cpu_image *image, const char *entry)
{
    EIDER_TRY(
        read_constant(image, entry, ".shared", &image->shared_bytes, sizeof image->shared_bytes));
    return read_constant(image, entry, ".params", &image->params, sizeof image->params);
}

eider_status eider_cpu_image_create(const eider_allocator *a, const struct eider_blob *object,
                                    const char *entry, int thread_style,
                                    const struct eider_cpu_hooks *hooks,
                                    struct eider_cpu_image **out, void **out_entry)
{
    char name[NAME_BYTES];
    EIDER_TRY(eider_codegen_init());
    if (snprintf(name, sizeof name, "%s%s", entry, thread_style ? ".thread" : "") >=
        (int)sizeof name)
        return eider_fail(EIDER_TOO_LARGE, "a kernel's name has more than %zu bytes", sizeof name);
    struct eider_cpu_image *image = eider_mem_zero(a, sizeof *image);
    if (!image) return EIDER_OOM;
    image->allocator = *a;
    image->hooks = hooks;
    eider_emit_enter();
    eider_status status = eider_jit_memory_reserve(&image->memory, object->size);
    if (status == EIDER_OK) status = create_jit(image);
    if (status == EIDER_OK) status = link_object(image, object);
    if (status == EIDER_OK) status = look_up(image, name, out_entry);
    if (status == EIDER_OK && thread_style) status = read_constants(image, entry);
    eider_emit_leave();
    if (status != EIDER_OK) {
        eider_cpu_image_release(image);
        return status;
    }
    *out = image;
    return EIDER_OK;
}

eider_status eider_cpu_image_find(struct eider_cpu_image *image, const char *name, void **out)
{
    eider_emit_enter();
    eider_status status = look_up(image, name, out);
    eider_emit_leave();
    return status;
}

uint32_t eider_cpu_image_shared(const struct eider_cpu_image *image)
{
    return image->shared_bytes;
}

const struct eider_entry_params *eider_cpu_image_params(const struct eider_cpu_image *image)
{
    return &image->params;
}

void eider_cpu_image_release(struct eider_cpu_image *image)
{
    if (!image) return;
    if (image->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(image->jit));
    eider_jit_memory_release(&image->memory);
    eider_allocator a = image->allocator;
    eider_mem_free(&a, image);
}
