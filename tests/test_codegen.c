/* test_codegen.c -- LLVM modules become PTX and objects; failures are messages.
 *
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <llvm-c/Core.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"
#include "support_ll.h"

/* Compiles for `target`; the PTX is the caller's. */
static char *ptx_of(const char *text, const char *entry, const char *target, uint32_t block)
{
    struct eider_codegen_job job = {.entry = entry, .block_threads = block};
    struct eider_codegen_result result;
    assert_int_equal(eider_target_parse(target, &job.target), EIDER_OK);
    if (ll_emit(text, &job, &result) != EIDER_OK) fail_msg("%s: %s", target, eider_error());
    assert_int_equal(strlen(result.code.data), result.code.size);
    return result.code.data;
}

static void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static void headers_fit_the_target(void **state)
{
    (void)state;
    static const struct {
        const char *target, *version, *written;
    } rows[] = {
        {"sm_80", ".version 7.1\n", ".target sm_80\n"},
        {"sm_86", ".version 7.1\n", ".target sm_86\n"},
        {"sm_89", ".version 7.8\n", ".target sm_89\n"},
        {"sm_90", ".version 7.8\n", ".target sm_90\n"},
        {"sm_90a", ".version 8.0\n", ".target sm_90a\n"},
        {"sm_100", ".version 7.8\n", ".target sm_90\n"},
        {"sm_120a", ".version 7.8\n", ".target sm_90\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *ptx = ptx_of(ll_swiglu, "swiglu", rows[i].target, 256);
        assert_in(ptx, rows[i].version);
        assert_in(ptx, rows[i].written);
        assert_in(ptx, "tanh.approx.f32");
        eider_mem_free(&ll_allocator, ptx);
    }
}

static void the_block_is_stated_between_parameters_and_body(void **state)
{
    (void)state;
    char *ptx = ptx_of(ll_swiglu, "swiglu", "sm_90", 256);
    assert_in(ptx, ")\n.maxntid 256, 1, 1\n{");
    eider_mem_free(&ll_allocator, ptx);
    ptx = ptx_of(ll_swiglu, "swiglu", "sm_90", 0);
    assert_null(strstr(ptx, ".maxntid"));
    eider_mem_free(&ll_allocator, ptx);
}

#define N(list) (sizeof(list) / sizeof(list)[0])
#define KERNEL(body) "define ptx_kernel void @k(ptr %p) {\n" body "  ret void\n}\n"

static void a_block_that_the_ir_states_is_kept(void **state)
{
    (void)state;
    static const char text[] = KERNEL("") "!nvvm.annotations = !{!0}\n"
                                          "!0 = !{ptr @k, !\"maxntidx\", i32 64}\n";
    char *ptx = ptx_of(text, "k", "sm_90", 256);
    assert_in(ptx, ".maxntid 64");
    assert_null(strstr(ptx, "256"));
    eider_mem_free(&ll_allocator, ptx);
}

static void only_the_entry_gets_the_block(void **state)
{
    (void)state;
    static const char text[] = "define ptx_kernel void @k1(ptr %p) {\n  ret void\n}\n"
                               "define ptx_kernel void @k() {\n  ret void\n}\n";
    char *ptx = ptx_of(text, "k", "sm_90", 32);
    const char *first = strstr(ptx, ".maxntid");
    assert_non_null(first);
    assert_true(first > strstr(ptx, ".entry k("));
    assert_null(strstr(first + 1, ".maxntid"));
    eider_mem_free(&ll_allocator, ptx);
}

/* ---- PTX versions ------------------------------------------------------------- */

#define ASM(text, target) \
    {                     \
        KERNEL("  call void asm sideeffect \"" text "\", \"\"()\n"), target

static void the_version_is_what_the_text_needs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *target;
        int version;
    } rows[] = {ASM("ld.global.L1::no_allocate.f32", "sm_80"), 74},
      ASM("ld.global.L1::no_allocate.f32", "sm_90"), 78
}
, ASM("cvt.rn.f16x2.e4m3x2", "sm_89"), 81
}
, ASM("cvt.rn.f16x2.e4m3x2", "sm_90"), 78
}
, ASM("cvt.rn.satfinite.e5m2x2.f32", "sm_89"), 81
}
, ASM("cvt.rn.satfinite.e5m2x2.f32", "sm_120"), 78
}
, ASM("elect.sync", "sm_90"), 80
}
, ASM("mov.b128", "sm_90"), 83
}
, ASM("nothing special", "sm_87"), 74
}
, ASM("nothing special", "sm_88"), 74
}
, ASM("nothing special", "sm_90a"), 80
}
,
}
;
for (size_t i = 0; i < N(rows); i++) {
    struct eider_codegen_job job = {.entry = "k"};
    struct eider_codegen_result result;
    assert_int_equal(eider_target_parse(rows[i].target, &job.target), EIDER_OK);
    assert_int_equal(ll_emit(rows[i].text, &job, &result), EIDER_OK);
    if (result.ptx_version != rows[i].version)
        fail_msg("%s %s: %d", rows[i].target, rows[i].text, result.ptx_version);
    eider_blob_release(&ll_allocator, &result.code);
}
}

static void a_version_asked_for_is_used_or_refused(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "k", .target = {90, 0}, .ptx_version = 90};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(KERNEL(""), &job, &result), EIDER_OK);
    assert_in(result.code.data, ".version 9.0\n");
    eider_blob_release(&ll_allocator, &result.code);
    job.ptx_version = 78;
    static const char bulk[] = KERNEL("  call void asm \"cp.async.bulk.wait_all;\", \"\"()\n");
    assert_int_equal(ll_emit(bulk, &job, &result), EIDER_CODEGEN);
    assert_in(eider_error(), "kernel 'k' needs PTX 8.0 for cp.async.bulk, but at most 7.8");
    job.ptx_version = 70;
    assert_int_equal(ll_emit(KERNEL(""), &job, &result), EIDER_CODEGEN);
    assert_in(eider_error(), "kernel 'k' needs PTX 7.8 for sm_90, but at most 7.0");
}

static void drivers_load_what_their_release_came_with(void **state)
{
    (void)state;
    static const int rows[][2] = {{10020, 0},  {11000, 70}, {11080, 78}, {11090, 78},
                                  {12000, 80}, {12050, 85}, {12060, 85}, {12080, 87},
                                  {12090, 88}, {13000, 90}, {99000, 91}};
    for (size_t i = 0; i < N(rows); i++)
        assert_int_equal(eider_ptx_version_of_driver(rows[i][0]), rows[i][1]);
}

/* ---- Failures ------------------------------------------------------------------ */

static void failures_are_messages(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {KERNEL("  %x = call float asm \"mov.f32 $0, 1.0;\", \"=x\"()\n"
                "  store float %x, ptr %p\n"),
         "couldn't allocate output register for constraint 'x'"},
        {KERNEL("  %x = load float, ptr %p\n"
                "  %y = call float @llvm.exp.f32(float %x)\n"
                "  store float %y, ptr %p\n") "declare float @llvm.exp.f32(float)\n",
         "no libcall available for fexp"},
        {"define ptx_kernel void @other() {\n  ret void\n}\n"
         "define ptx_kernel void @another() {\n  ret void\n}\n",
         "no kernel 'k' in the module; its kernels: other, another"},
        {"define void @k() {\n  ret void\n}\n", "the module has no kernels"},
    };
    for (size_t i = 0; i < N(rows); i++) {
        struct eider_codegen_job job = {.entry = "k", .target = {90, 0}, .keep_opt = 1};
        struct eider_codegen_result result;
        assert_int_equal(ll_emit(rows[i].text, &job, &result), EIDER_CODEGEN);
        assert_in(eider_error(), "compiling k for sm_90: ");
        assert_in(eider_error(), rows[i].part);
        assert_null(result.code.data);
        assert_null(result.opt_ir.data);
    }
}

static void an_invalid_module_is_refused_and_consumed(void **state)
{
    (void)state;
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0);
    LLVMValueRef f = LLVMAddFunction(module, "k", type);
    LLVMAppendBasicBlockInContext(context, f, "no terminator");
    struct eider_codegen_job job = {.entry = "k", .target = {90, 0}};
    struct eider_codegen_result result;
    assert_int_equal(eider_codegen_emit(&ll_allocator, module, &job, &result), EIDER_CODEGEN);
    assert_in(eider_error(), "the module is not valid: Basic Block in function 'k' does not have");
    LLVMContextDispose(context); /* would find a module that was left */
}

static void the_callers_diagnostics_are_given_back(void **state)
{
    (void)state;
    LLVMContextRef context = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(context, (LLVMDiagnosticHandler)abort, context);
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
    struct eider_codegen_job job = {.entry = "k", .target = {90, 0}};
    struct eider_codegen_result result;
    assert_int_equal(eider_codegen_emit(&ll_allocator, module, &job, &result), EIDER_CODEGEN);
    assert_ptr_equal(LLVMContextGetDiagnosticContext(context), context);
    LLVMContextDispose(context);
}

/* Every allocation fails once; the last round has enough. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "swiglu", .target = {90, 0}, .keep_opt = 1};
    struct eider_codegen_result result;
    eider_status status = EIDER_OOM;
    int left = 0;
    for (; left < 50; left++) {
        struct ll_failing failing = {.left = left};
        eider_allocator a = ll_failing_allocator(&failing);
        status = ll_emit_with(&a, ll_swiglu, &job, &result);
        if (status == EIDER_OK) break;
        assert_int_equal(status, EIDER_OOM);
        assert_null(result.code.data);
        assert_null(result.opt_ir.data);
    }
    assert_int_equal(status, EIDER_OK);
    assert_true(left >= 2);
    eider_blob_release(&ll_allocator, &result.code);
    eider_blob_release(&ll_allocator, &result.opt_ir);
}

/* ---- The CPU --------------------------------------------------------------------- */

static eider_status assembly_of(struct eider_target target, struct eider_codegen_result *result)
{
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0);
    LLVMValueRef f = LLVMAddFunction(module, "k", type);
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, ""));
    LLVMBuildRetVoid(builder);
    LLVMDisposeBuilder(builder);
    struct eider_codegen_job job = {.entry = "k", .target = target};
    eider_status status = eider_codegen_assembly(&ll_allocator, module, &job, result);
    LLVMContextDispose(context);
    return status;
}

static void the_cpu_gets_objects_and_assembly(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "twice", .keep_opt = 1};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(ll_twice, &job, &result), EIDER_OK);
    assert_memory_equal(result.code.data, "\177ELF", 4);
    assert_int_equal(result.ptx_version, 0);
    assert_in(result.opt_ir.data, "define void @twice(");
    eider_blob_release(&ll_allocator, &result.code);
    eider_blob_release(&ll_allocator, &result.opt_ir);

    assert_int_equal(assembly_of((struct eider_target){0}, &result), EIDER_OK);
    assert_in(result.code.data, "k:");
    assert_in(result.code.data, "ret");
    eider_blob_release(&ll_allocator, &result.code);
    assert_int_equal(assembly_of((struct eider_target){90, 0}, &result), EIDER_UNSUPPORTED);
}

static void texts_for_keys_are_there(void **state)
{
    (void)state;
    assert_int_equal(strncmp(eider_codegen_llvm_version(), "19.", 3), 0);
    assert_in(eider_codegen_host(), " +");
    assert_null(strstr(eider_codegen_host(), ",-"));
    assert_true(strlen(eider_codegen_pipeline()) > 0);
}

/* ---- Threads ------------------------------------------------------------------------ */

#define N_THREADS 24

struct storm {
    const char *want;
    int n_wrong;
};

static void *compile_again(void *arg)
{
    struct storm *storm = arg;
    for (int round = 0; round < 4; round++) {
        struct eider_codegen_job job = {.entry = "swiglu", .target = {90, 0}, .block_threads = 256};
        struct eider_codegen_result result;
        if (ll_emit(ll_swiglu, &job, &result) != EIDER_OK) {
            storm->n_wrong++;
            continue;
        }
        storm->n_wrong += strcmp(result.code.data, storm->want) != 0;
        eider_blob_release(&ll_allocator, &result.code);
    }
    return NULL;
}

static void threads_get_the_same_text(void **state)
{
    (void)state;
    char *want = ptx_of(ll_swiglu, "swiglu", "sm_90", 256);
    pthread_t threads[N_THREADS];
    struct storm storms[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        storms[i] = (struct storm){.want = want};
        assert_int_equal(pthread_create(&threads[i], NULL, compile_again, &storms[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(storms[i].n_wrong, 0);
    eider_mem_free(&ll_allocator, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_fit_the_target),
        cmocka_unit_test(the_block_is_stated_between_parameters_and_body),
        cmocka_unit_test(a_block_that_the_ir_states_is_kept),
        cmocka_unit_test(only_the_entry_gets_the_block),
        cmocka_unit_test(the_version_is_what_the_text_needs),
        cmocka_unit_test(a_version_asked_for_is_used_or_refused),
        cmocka_unit_test(drivers_load_what_their_release_came_with),
        cmocka_unit_test(failures_are_messages),
        cmocka_unit_test(an_invalid_module_is_refused_and_consumed),
        cmocka_unit_test(the_callers_diagnostics_are_given_back),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(the_cpu_gets_objects_and_assembly),
        cmocka_unit_test(texts_for_keys_are_there),
        cmocka_unit_test(threads_get_the_same_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
