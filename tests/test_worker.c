/* test_worker.c -- whatever foreign IR does to LLVM, this process lives and goes on. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support_ll.h"

#define DEADLINE_MS 60000
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static const struct eider_target sm_90 = {90, 0};

static eider_status compile(const eider_source *source, int deadline_ms,
                            struct eider_codegen_result *out)
{
    struct eider_codegen_job job = {.target = sm_90, .entry = source->entry};
    return eider_worker_compile(&ll_allocator, source, "vec=4", &job, deadline_ms, out);
}

static eider_status compile_text(const char *text, struct eider_codegen_result *out)
{
    eider_source source = {.kind = EIDER_SOURCE_LL, .data = text, .entry = "k"};
    return compile(&source, DEADLINE_MS, out);
}

static void assert_error_has(const char *part)
{
    if (!strstr(eider_error(), part)) fail_msg("'%s' is not in: %s", part, eider_error());
}

/* The next compile works, in a worker and in this process. */
static void assert_alive(void)
{
    struct eider_codegen_result result;
    eider_source source = {.kind = EIDER_SOURCE_LL, .data = ll_swiglu, .entry = "swiglu"};
    if (compile(&source, DEADLINE_MS, &result) != EIDER_OK) fail_msg("%s", eider_error());
    assert_non_null(strstr(result.code.data, ".entry swiglu("));
    eider_blob_release(&ll_allocator, &result.code);
    struct eider_codegen_job job = {.target = sm_90, .entry = "swiglu"};
    assert_int_equal(ll_emit(ll_swiglu, &job, &result), EIDER_OK);
    eider_blob_release(&ll_allocator, &result.code);
}

static void text_compiles(void **state)
{
    (void)state;
    struct eider_codegen_job job = {
        .target = sm_90, .entry = "swiglu", .block_threads = 128, .keep_opt = 1};
    struct eider_codegen_result result;
    eider_source source = {.kind = EIDER_SOURCE_LL, .data = ll_swiglu, .entry = "swiglu"};
    if (eider_worker_compile(&ll_allocator, &source, NULL, &job, 0, &result) != EIDER_OK)
        fail_msg("%s", eider_error());
    assert_int_equal(strlen(result.code.data), result.code.size);
    assert_non_null(strstr(result.code.data, ".version 7.8\n.target sm_90\n"));
    assert_non_null(strstr(result.code.data, ")\n.maxntid 128, 1, 1\n{"));
    assert_int_equal(result.ptx_version, 78);
    assert_true(result.opt_ns > 0 && result.emit_ns > 0);
    assert_non_null(strstr(result.opt_ir.data, "tanh.approx"));
    eider_blob_release(&ll_allocator, &result.code);
    eider_blob_release(&ll_allocator, &result.opt_ir);
}

/* Foreign IR may be careless, so it gets every pass. */
static void foreign_ir_is_optimised(void **state)
{
    (void)state;
    static const char text[] = "define ptx_kernel void @k(ptr addrspace(1) %p) {\n"
                               "  %a = alloca i32\n"
                               "  store i32 41, ptr %a\n"
                               "  %x = load i32, ptr %a\n"
                               "  %y = add i32 %x, 1\n"
                               "  store i32 %y, ptr addrspace(1) %p\n"
                               "  ret void\n"
                               "}\n";
    struct eider_codegen_result result;
    assert_int_equal(compile_text(text, &result), EIDER_OK);
    assert_null(strstr(result.code.data, ".local"));
    assert_non_null(strstr(result.code.data, "42;"));
    eider_blob_release(&ll_allocator, &result.code);
}

#define KERNEL(body) "define ptx_kernel void @k(ptr %p) {\n" body "  ret void\n}\n"

static const char *const aborting[][2] = {
    {KERNEL("  fence seq_cst\n"), "Cannot select"},
    {KERNEL("  %x = load float, ptr %p\n"
            "  %y = call afn float @llvm.pow.f32(float %x, float %x)\n"
            "  store float %y, ptr %p\n") "declare float @llvm.pow.f32(float, float)\n",
     ""},
    {KERNEL("  %x = load double, ptr %p\n"
            "  %y = call double @llvm.pow.f64(double %x, double %x)\n"
            "  store double %y, ptr %p\n") "declare double @llvm.pow.f64(double, double)\n",
     ""},
    {KERNEL("  call void asm sideeffect \"mov.b32 $7, 1;\", \"\"()\n"), "$"},
    {KERNEL("  %x = load fp128, ptr %p\n"
            "  %y = fmul fp128 %x, %x\n"
            "  store fp128 %y, ptr %p\n"),
     ""},
    {"@a = alias void (ptr), ptr @k\n" KERNEL(""), ""},
};

static void an_abort_of_llvm_is_a_status(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(aborting); i++) {
        struct eider_codegen_result result;
        eider_status status = compile_text(aborting[i][0], &result);
        if (status != EIDER_WORKER && status != EIDER_CODEGEN)
            fail_msg("%zu: %s: %s", i, eider_status_name(status), eider_error());
        assert_error_has("compiling k for sm_90: ");
        assert_error_has(aborting[i][1]);
    }
    struct eider_codegen_result result;
    assert_int_equal(compile_text(aborting[0][0], &result), EIDER_WORKER);
    assert_null(result.code.data);
    assert_alive();
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        eider_status status;
        const char *part;
    } rows[] = {
        {"define void @k( {", EIDER_PARSE, "ir:1:18: error"},
        {"", EIDER_CODEGEN, "no kernel 'k'"},
        {"define ptx_kernel void @other() { ret void }\n", EIDER_CODEGEN, "its kernels: other"},
        {"define void @k() { ret void }\n", EIDER_CODEGEN, "has no kernels"},
        {KERNEL("  %x = call float asm \"mov.f32 $0, $1;\", \"=f\"(float 1.0)\n"), EIDER_PARSE,
         "number of input constraints"},
        {KERNEL("  %x = call float asm \"mov.f32 $0, 1.0;\", \"=x\"()\n"
                "  store float %x, ptr %p\n"),
         EIDER_CODEGEN, "constraint 'x'"},
        {KERNEL("  %x = load float, ptr %p\n"
                "  %y = call float @llvm.exp.f32(float %x)\n"
                "  store float %y, ptr %p\n") "declare float @llvm.exp.f32(float)\n",
         EIDER_CODEGEN, "no libcall"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct eider_codegen_result result;
        eider_status status = compile_text(rows[i].text, &result);
        if (status != rows[i].status)
            fail_msg("%zu: %s: %s", i, eider_status_name(status), eider_error());
        assert_error_has(rows[i].part);
    }
}

static void bitcode_compiles_and_garbage_is_refused(void **state)
{
    (void)state;
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0);
    LLVMValueRef f = LLVMAddFunction(module, "k", type);
    LLVMSetFunctionCallConv(f, LLVMPTXKernelCallConv);
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, ""));
    LLVMBuildRetVoid(builder);
    LLVMDisposeBuilder(builder);
    LLVMMemoryBufferRef buffer = LLVMWriteBitcodeToMemoryBuffer(module);
    size_t size = LLVMGetBufferSize(buffer);
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, LLVMGetBufferStart(buffer), size);
    LLVMDisposeMemoryBuffer(buffer);
    LLVMDisposeModule(module);
    LLVMContextDispose(context);

    eider_source source = {.kind = EIDER_SOURCE_BITCODE, .data = bytes, .size = size, .entry = "k"};
    struct eider_codegen_result result;
    assert_int_equal(compile(&source, DEADLINE_MS, &result), EIDER_OK);
    assert_non_null(strstr(result.code.data, ".entry k("));
    eider_blob_release(&ll_allocator, &result.code);
    for (size_t cut = 4; cut < size; cut += size / 7) {
        source.size = cut;
        assert_int_not_equal(compile(&source, DEADLINE_MS, &result), EIDER_OK);
    }
    source.size = size;
    for (size_t i = 8; i < size; i += 3) bytes[i] = (char)(bytes[i] ^ 0x55);
    assert_int_not_equal(compile(&source, DEADLINE_MS, &result), EIDER_OK);
    source.data = "this is no bitcode at all";
    source.size = 25;
    assert_int_equal(compile(&source, DEADLINE_MS, &result), EIDER_PARSE);
    assert_error_has("do not begin like bitcode");
    free(bytes);
    assert_alive();
}

/* ---- Callbacks ------------------------------------------------------------------- */

static void *build_empty(void *user, void *llvm_context, const char *triple, const char *config,
                         char *reason, size_t reason_size)
{
    (void)reason, (void)reason_size;
    if (strcmp(triple, "nvptx64-nvidia-cuda") != 0 || strcmp(config, "vec=4") != 0) return NULL;
    LLVMContextRef context = llvm_context;
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0);
    LLVMValueRef f = LLVMAddFunction(module, "k", type);
    LLVMSetFunctionCallConv(f, LLVMPTXKernelCallConv);
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, ""));
    if (user) { /* an assembly whose constraints do not fit its type */
        LLVMTypeRef f32 = LLVMFloatTypeInContext(context);
        LLVMTypeRef unary = LLVMFunctionType(f32, &f32, 1, 0);
        char text[] = "mov.f32 $0, $1;", constraints[] = "=f";
        LLVMValueRef assembly =
            LLVMGetInlineAsm(unary, text, strlen(text), constraints, strlen(constraints), 1, 0,
                             LLVMInlineAsmDialectATT, 0);
        LLVMValueRef one = LLVMConstReal(f32, 1);
        LLVMBuildCall2(builder, unary, assembly, &one, 1, "");
    }
    LLVMBuildRetVoid(builder);
    LLVMDisposeBuilder(builder);
    return module;
}

static void *give_up(void *user, void *llvm_context, const char *triple, const char *config,
                     char *reason, size_t reason_size)
{
    (void)user, (void)llvm_context, (void)triple, (void)config;
    snprintf(reason, reason_size, "the moon is in the wrong phase");
    return NULL;
}

static void *never_return(void *user, void *llvm_context, const char *triple, const char *config,
                          char *reason, size_t reason_size)
{
    (void)user, (void)llvm_context, (void)triple, (void)config, (void)reason, (void)reason_size;
    for (;;) pause();
    return NULL;
}

static void *leave(void *user, void *llvm_context, const char *triple, const char *config,
                   char *reason, size_t reason_size)
{
    (void)user, (void)llvm_context, (void)triple, (void)config, (void)reason, (void)reason_size;
    fprintf(stderr, "bye\n");
    _exit(3);
    return NULL;
}

static void *crash(void *user, void *llvm_context, const char *triple, const char *config,
                   char *reason, size_t reason_size)
{
    (void)user, (void)llvm_context, (void)triple, (void)config, (void)reason, (void)reason_size;
    raise(SIGSEGV);
    return NULL;
}

/* Reports whether descriptor 77 of the caller is open here. */
static void *look_around(void *user, void *llvm_context, const char *triple, const char *config,
                         char *reason, size_t reason_size)
{
    (void)user, (void)llvm_context, (void)triple, (void)config;
    snprintf(reason, reason_size, "77 is %s", fcntl(77, F_GETFD) < 0 ? "closed" : "open");
    return NULL;
}

static eider_status compile_callback(eider_build_module build, void *user, int deadline_ms,
                                     struct eider_codegen_result *result)
{
    eider_source source = {
        .kind = EIDER_SOURCE_CALLBACK, .build = build, .build_user = user, .entry = "k"};
    return compile(&source, deadline_ms, result);
}

static void a_callback_builds_a_module(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    if (compile_callback(build_empty, NULL, DEADLINE_MS, &result) != EIDER_OK)
        fail_msg("%s", eider_error());
    assert_non_null(strstr(result.code.data, ".entry k("));
    eider_blob_release(&ll_allocator, &result.code);
}

static void constraints_of_a_callbacks_assembly_are_checked(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    int user = 1;
    assert_int_equal(compile_callback(build_empty, &user, DEADLINE_MS, &result), EIDER_PARSE);
    assert_error_has("number of input constraints");
}

static void a_callbacks_reason_is_passed_on(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    assert_int_equal(compile_callback(give_up, NULL, DEADLINE_MS, &result), EIDER_CODEGEN);
    assert_error_has("the moon is in the wrong phase");
}

static void a_worker_holds_no_descriptor_of_the_caller(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    assert_int_equal(dup2(0, 77), 77);
    eider_status status = compile_callback(look_around, NULL, DEADLINE_MS, &result);
    close(77);
    assert_int_equal(status, EIDER_CODEGEN);
    assert_error_has("77 is closed");
}

static void a_callback_that_exits_is_reported(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    assert_int_equal(compile_callback(leave, NULL, DEADLINE_MS, &result), EIDER_WORKER);
    assert_error_has("bye");
}

static void a_crash_is_reported(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    assert_int_equal(compile_callback(crash, NULL, DEADLINE_MS, &result), EIDER_WORKER);
    assert_error_has("signal 11");
    assert_alive();
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void an_endless_callback_meets_the_deadline(void **state)
{
    (void)state;
    struct eider_codegen_result result;
    double start = now();
    assert_int_equal(compile_callback(never_return, NULL, 200, &result), EIDER_TIMEOUT);
    assert_true(now() - start >= 0.19 && now() - start < 10);
    assert_error_has("200 ms");
    assert_alive();
}

/* ---- Threads ----------------------------------------------------------------------- */

#define N_THREADS 8

static void *break_and_compile(void *arg)
{
    int *n_wrong = arg;
    int is_breaker = *n_wrong;
    *n_wrong = 0;
    for (int round = 0; round < 3; round++) {
        struct eider_codegen_result result;
        struct eider_codegen_job job = {.target = sm_90, .entry = "swiglu"};
        if (is_breaker) {
            *n_wrong += compile_text(aborting[0][0], &result) != EIDER_WORKER;
            *n_wrong += strstr(eider_error(), "Cannot select") == NULL;
        } else {
            *n_wrong += ll_emit(ll_swiglu, &job, &result) != EIDER_OK;
            eider_blob_release(&ll_allocator, &result.code);
        }
    }
    return NULL;
}

static void workers_die_while_other_threads_compile(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    int n_wrong[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        n_wrong[i] = i & 1;
        assert_int_equal(pthread_create(&threads[i], NULL, break_and_compile, &n_wrong[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(n_wrong[i], 0);
}

static void nothing_is_left_of_a_worker(void **state)
{
    (void)state;
    int fd_before = dup(0);
    close(fd_before);
    struct eider_codegen_result result;
    assert_int_equal(compile_text(aborting[0][0], &result), EIDER_WORKER);
    assert_int_equal(compile_callback(never_return, NULL, 50, &result), EIDER_TIMEOUT);
    int fd_after = dup(0);
    close(fd_after);
    assert_int_equal(fd_before, fd_after);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, not even a dead one */
}

/* In a child of ours, whose descriptors do not matter. */
static void closed_standard_descriptors_do_not_matter(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct eider_codegen_result result;
        for (int fd = 0; fd < 3; fd++) close(fd);
        int is_right = compile_text(KERNEL(""), &result) == EIDER_OK;
        is_right &= compile_text(aborting[0][0], &result) == EIDER_WORKER;
        is_right &= strstr(eider_error(), "Cannot select") != NULL;
        _exit(is_right ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    eider_source source = {.kind = EIDER_SOURCE_LL, .data = ll_swiglu, .entry = "swiglu"};
    struct eider_codegen_job job = {.target = sm_90, .entry = "swiglu", .keep_opt = 1};
    struct eider_codegen_result result;
    eider_status status = EIDER_OOM;
    int left = 0;
    for (; status == EIDER_OOM; left++) {
        struct ll_failing failing = {.left = left};
        eider_allocator a = ll_failing_allocator(&failing);
        status = eider_worker_compile(&a, &source, NULL, &job, DEADLINE_MS, &result);
        if (status != EIDER_OK) assert_null(result.code.data);
    }
    assert_int_equal(status, EIDER_OK);
    assert_true(left >= 3);
    eider_blob_release(&ll_allocator, &result.code);
    eider_blob_release(&ll_allocator, &result.opt_ir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_compiles),
        cmocka_unit_test(foreign_ir_is_optimised),
        cmocka_unit_test(an_abort_of_llvm_is_a_status),
        cmocka_unit_test(a_crash_is_reported),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(bitcode_compiles_and_garbage_is_refused),
        cmocka_unit_test(a_callback_builds_a_module),
        cmocka_unit_test(constraints_of_a_callbacks_assembly_are_checked),
        cmocka_unit_test(a_callbacks_reason_is_passed_on),
        cmocka_unit_test(a_worker_holds_no_descriptor_of_the_caller),
        cmocka_unit_test(a_callback_that_exits_is_reported),
        cmocka_unit_test(an_endless_callback_meets_the_deadline),
        cmocka_unit_test(workers_die_while_other_threads_compile),
        cmocka_unit_test(nothing_is_left_of_a_worker),
        cmocka_unit_test(closed_standard_descriptors_do_not_matter),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
