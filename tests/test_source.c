/* test_source.c -- kernels that eider did not write, through the public interface: LLVM IR
 * as text and from a callback, PTX; on the CPU, and compiled for a GPU.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support_runtime.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static eider_context *ctx;
static eider_device *cpu;

static int set_up(void **state)
{
    (void)state;
    eider_context_options options = {.worker_deadline_ms = 20000, .cuda_library = "/nowhere"};
    must(eider_context_create(&options, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    return 0;
}

#define HEAD                                                              \
    "target triple = \"nvptx64-nvidia-cuda\"\n"                           \
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"                      \
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()\n"                      \
    "declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()\n"                     \
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"                    \
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()\n"                    \
    "declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n"                   \
    "declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)\n" \
    "declare void @llvm.nvvm.barrier0()\n"

#define KERNEL "!nvvm.annotations = !{!0}\n!0 = !{ptr @k, !\"kernel\", i32 1}\n"

/* Every thread gets the sum of its warp. */
static const char sum_in_warps[] =
    HEAD "define void @k(ptr %x, float %bias, ptr %out) {\n"
         "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
         "  %px = getelementptr float, ptr %x, i32 %t\n"
         "  %v0 = load float, ptr %px\n"
         "  %o0 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %v0, i32 16, i32 31)\n"
         "  %v1 = fadd float %v0, %o0\n"
         "  %o1 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %v1, i32 8, i32 31)\n"
         "  %v2 = fadd float %v1, %o1\n"
         "  %o2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %v2, i32 4, i32 31)\n"
         "  %v3 = fadd float %v2, %o2\n"
         "  %o3 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %v3, i32 2, i32 31)\n"
         "  %v4 = fadd float %v3, %o3\n"
         "  %o4 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %v4, i32 1, i32 31)\n"
         "  %v5 = fadd float %v4, %o4\n"
         "  %v6 = fadd float %v5, %bias\n"
         "  %po = getelementptr float, ptr %out, i32 %t\n"
         "  store float %v6, ptr %po\n"
         "  ret void\n"
         "}\n" KERNEL;

/* Transposes tiles of 8 x 8 through dynamic shared memory: blocks and grid of two
 * dimensions, a matrix of 16 x 24 to one of 24 x 16. */
static const char transpose[] =
    HEAD "@tile = external addrspace(3) global [0 x float], align 16\n"
         "define void @k(ptr %x, float %bias, ptr %out) {\n"
         "  %tx = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
         "  %ty = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()\n"
         "  %bx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
         "  %by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()\n"
         "  %bx8 = mul i32 %bx, 8\n"
         "  %by8 = mul i32 %by, 8\n"
         "  %col = add i32 %bx8, %tx\n"
         "  %row = add i32 %by8, %ty\n"
         "  %row24 = mul i32 %row, 24\n"
         "  %i = add i32 %row24, %col\n"
         "  %px = getelementptr float, ptr %x, i32 %i\n"
         "  %v = load float, ptr %px\n"
         "  %ty8 = mul i32 %ty, 8\n"
         "  %at = add i32 %ty8, %tx\n"
         "  %pt = getelementptr [0 x float], ptr addrspace(3) @tile, i32 0, i32 %at\n"
         "  store float %v, ptr addrspace(3) %pt\n"
         "  call void @llvm.nvvm.barrier0()\n"
         "  %tx8 = mul i32 %tx, 8\n"
         "  %from = add i32 %tx8, %ty\n"
         "  %pf = getelementptr [0 x float], ptr addrspace(3) @tile, i32 0, i32 %from\n"
         "  %w = load float, ptr addrspace(3) %pf\n"
         "  %ocol = add i32 %by8, %tx\n"
         "  %orow = add i32 %bx8, %ty\n"
         "  %orow16 = mul i32 %orow, 16\n"
         "  %o = add i32 %orow16, %ocol\n"
         "  %po = getelementptr float, ptr %out, i32 %o\n"
         "  store float %w, ptr %po\n"
         "  ret void\n"
         "}\n" KERNEL;

/* Half of a warp waits in the barrier, the other half in a shuffle of all. */
static const char deadlock[] =
    HEAD "define void @k(ptr %x, float %bias, ptr %out) {\n"
         "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
         "  %low = icmp ult i32 %t, 16\n"
         "  br i1 %low, label %wait, label %swap\n"
         "wait:\n"
         "  call void @llvm.nvvm.barrier0()\n"
         "  ret void\n"
         "swap:\n"
         "  %v = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %bias, i32 1, i32 31)\n"
         "  store float %v, ptr %out\n"
         "  ret void\n"
         "}\n" KERNEL;

static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                         {"bias", EIDER_SCALAR, EIDER_F32},
                                         {"out", EIDER_OUTPUT, EIDER_F32}};

static float x[1024], bias = 0.5f, out[1024];
static const int64_t shape[] = {1024};

static eider_source source_of(const char *text, uint32_t block_x, uint32_t block_y)
{
    for (int i = 0; i < 1024; i++) {
        x[i] = (float)i;
        out[i] = -7;
    }
    return (eider_source){.kind = EIDER_SOURCE_LL,
                          .data = text,
                          .entry = "k",
                          .block = {block_x, block_y, 0},
                          .n_operands = COUNT(operands),
                          .operands = operands};
}

static eider_status launch(const eider_source *source, uint32_t grid_x, uint32_t grid_y)
{
    eider_kernel *kernel;
    const uint32_t grid[] = {grid_x, grid_y, 1};
    eider_request request = {.source = source};
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, shape), tensor_of(&bias, EIDER_F32, 0, NULL),
                           tensor_of(out, EIDER_F32, 1, shape)};
    must(eider_prepare(cpu, &request, &kernel));
    eider_status status = eider_launch_grid(kernel, NULL, grid, args, 3);
    eider_kernel_release(kernel);
    return status;
}

/* ---- Text ---------------------------------------------------------------------------- */

static void a_block_reduction_in_shared_memory_is_right(void **state)
{
    (void)state;
    eider_source source = source_of(sum_of_blocks_ll, 256, 1);
    must(launch(&source, 4, 1));
    for (int b = 0; b < 4; b++) assert_true(out[b] == (float)(256 * 256 * b + 255 * 128) + 0.5f);
    assert_true(out[4] == -7);
}

static void a_warp_reduction_by_shuffles_is_right(void **state)
{
    (void)state;
    eider_source source = source_of(sum_in_warps, 96, 1);
    must(launch(&source, 1, 1));
    for (int t = 0; t < 96; t++)
        assert_true(out[t] == (float)(32 * 32 * (t / 32) + 31 * 16) + 0.5f);
    assert_true(out[96] == -7);
}

static void blocks_and_grids_of_two_dimensions_transpose(void **state)
{
    (void)state;
    eider_source source = source_of(transpose, 8, 8);
    source.shared_bytes = 8 * 8 * sizeof(float);
    must(launch(&source, 3, 2));
    for (int row = 0; row < 24; row++)
        for (int col = 0; col < 16; col++) assert_true(out[row * 16 + col] == x[col * 24 + row]);
    assert_true(out[24 * 16] == -7);
}

static void a_deadlock_is_a_status_and_the_kernel_may_run_again(void **state)
{
    (void)state;
    eider_source source = source_of(deadlock, 32, 1);
    assert_int_equal(launch(&source, 2, 1), EIDER_UNSUPPORTED);
    assert_non_null(strstr(eider_error(), "block (0, 0, 0) cannot finish"));
    assert_int_equal(launch(&source, 2, 1), EIDER_UNSUPPORTED);
}

static void ir_that_makes_llvm_abort_leaves_the_host_alive(void **state)
{
    (void)state;
    eider_kernel *kernel = NULL;
    eider_source bad = source_of("define void @k(ptr %x, float %b, ptr %o) {\n"
                                 "  fence seq_cst\n  ret void\n}\n" KERNEL,
                                 32, 1);
    eider_request request = {.source = &bad, .target = "sm_90"};
    assert_int_equal(eider_compile(ctx, &request, &kernel), EIDER_WORKER);
    assert_null(kernel);
    eider_source good = source_of(sum_in_warps, 32, 1);
    must(launch(&good, 1, 1));
    assert_true(out[0] == 31 * 16 + 0.5f);
}

static void text_compiles_for_a_gpu_as_well(void **state)
{
    (void)state;
    eider_kernel *kernel;
    const void *data;
    size_t size;
    eider_source source = source_of(sum_of_blocks_ll, 256, 1);
    eider_request request = {.source = &source, .target = "sm_90"};
    must(eider_compile(ctx, &request, &kernel));
    must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &data, &size));
    assert_non_null(strstr(data, ".entry k"));
    must(eider_kernel_stage(kernel, EIDER_STAGE_IR, &data, &size));
    assert_string_equal(data, sum_of_blocks_ll);
    must(eider_kernel_stage(kernel, EIDER_STAGE_OPT, &data, &size));
    assert_non_null(strstr(data, "@k"));
    assert_int_equal(eider_kernel_stage(kernel, EIDER_STAGE_PROGRAM, &data, &size),
                     EIDER_UNSUPPORTED);
    uint64_t bytes;
    assert_int_equal(eider_kernel_bytes(kernel, NULL, 0, &bytes), EIDER_UNSUPPORTED);
    eider_kernel_release(kernel);
}

/* ---- Callbacks -------------------------------------------------------------------------- */

static void *build_from_config(void *user, void *llvm_context, const char *triple,
                               const char *config, char *reason, size_t reason_size)
{
    const char *text = user;
    (void)triple;
    if (strcmp(config, "fail=1") == 0) {
        snprintf(reason, reason_size, "the config asks for it");
        return NULL;
    }
    LLVMMemoryBufferRef buffer =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "text");
    LLVMModuleRef module = NULL;
    char *message = NULL;
    LLVMParseIRInContext(llvm_context, buffer, &module, &message);
    return module;
}

static void a_callback_builds_a_kernel_per_config(void **state)
{
    (void)state;
    eider_kernel *kernels[3], *none = NULL;
    eider_source source = source_of(NULL, 96, 1);
    source.kind = EIDER_SOURCE_CALLBACK;
    source.build = build_from_config;
    source.build_user = (void *)(uintptr_t)sum_in_warps;
    eider_request request = {.source = &source, .config = "a=1"};
    assert_int_equal(eider_prepare(cpu, &request, &none), EIDER_BAD_ARG);
    source.identity = "sum-v1";
    must(launch(&source, 1, 1));
    assert_true(out[40] == 32 * 32 + 31 * 16 + 0.5f);
    must(eider_prepare(cpu, &request, &kernels[0]));
    must(eider_prepare(cpu, &request, &kernels[1]));
    request.config = "a=2";
    must(eider_prepare(cpu, &request, &kernels[2]));
    assert_ptr_equal(kernels[0], kernels[1]);
    assert_ptr_not_equal(kernels[0], kernels[2]);
    eider_kernel_info info;
    eider_kernel_describe(kernels[2], &info);
    assert_string_equal(info.config, "a=2");
    assert_non_null(strstr(info.manifest, "identity: sum-v1\n"));
    for (int i = 0; i < 3; i++) eider_kernel_release(kernels[i]);
    request.config = "fail=1";
    assert_int_equal(eider_prepare(cpu, &request, &none), EIDER_CODEGEN);
    assert_non_null(strstr(eider_error(), "the config asks for it"));
}

/* ---- While another thread compiles ---------------------------------------------------------- */

/* Of the process and its workers: whether the slow compile has begun, and may end. */
struct gate {
    atomic_int has_begun, may_end;
};

static void *build_slowly(void *user, void *llvm_context, const char *triple, const char *config,
                          char *reason, size_t reason_size)
{
    struct gate *gate = user;
    (void)llvm_context, (void)triple, (void)config;
    gate->has_begun = 1;
    while (!gate->may_end) usleep(1000);
    snprintf(reason, reason_size, "slow");
    return NULL;
}

static void *prepare_slowly(void *arg)
{
    eider_kernel *kernel;
    eider_source source = source_of(NULL, 32, 1);
    source.kind = EIDER_SOURCE_CALLBACK;
    source.build = build_slowly;
    source.build_user = arg;
    source.identity = "slow";
    eider_request request = {.source = &source};
    return (void *)(uintptr_t)eider_prepare(cpu, &request, &kernel);
}

static void neither_a_hit_nor_another_key_waits_for_a_compile(void **state)
{
    (void)state;
    pthread_t thread;
    void *status;
    eider_kernel *kernel;
    eider_counters before, after;
    eider_source source = source_of(sum_in_warps, 96, 1);
    eider_request request = {.source = &source, .config = "n=1"};
    struct gate *gate =
        mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(gate != MAP_FAILED);
    must(eider_prepare(cpu, &request, &kernel));
    eider_kernel_release(kernel);
    assert_int_equal(pthread_create(&thread, NULL, prepare_slowly, gate), 0);
    while (!gate->has_begun) usleep(1000);
    eider_context_counters(ctx, &before);
    must(eider_prepare(cpu, &request, &kernel));
    eider_kernel_release(kernel);
    request.config = "n=2";
    must(eider_prepare(cpu, &request, &kernel));
    eider_kernel_release(kernel);
    eider_context_counters(ctx, &after);
    assert_int_equal(after.memory_hits - before.memory_hits, 1);
    assert_int_equal(after.compiles - before.compiles, 1);
    gate->may_end = 1;
    pthread_join(thread, &status);
    assert_int_equal((uintptr_t)status, EIDER_CODEGEN);
    munmap(gate, sizeof *gate);
}

/* ---- Kernels of eider's own, as text and back ---------------------------------------------- */

/* A kernel of a program, for a GPU that need not be here; `stage` of it as text. */
static eider_kernel *compile_program(const char *text, eider_stage stage, const void **data,
                                     size_t *size)
{
    eider_program *program;
    eider_kernel *kernel;
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, shape),
                           tensor_of(NULL, EIDER_F32, 1, shape)};
    must(eider_program_parse(ctx, text, &program));
    eider_request request = {.program = program,
                             .args = args,
                             .n_args = 2,
                             .numerics = {.math = EIDER_MATH_FAST},
                             .config = "vec=4,unroll=1,block=128,tiles=1,load=ca,store=wb",
                             .target = "sm_90"};
    must(eider_compile(ctx, &request, &kernel));
    must(eider_kernel_stage(kernel, stage, data, size));
    eider_program_release(program);
    return kernel;
}

/* The text after its first line, which names the module. */
static const char *body_of(const char *text)
{
    const char *end = strchr(text, '\n');
    return end ? end : text;
}

static void printed_ir_parses_to_the_same_module(void **state)
{
    (void)state;
    for (int stage = EIDER_STAGE_IR; stage <= EIDER_STAGE_OPT; stage++) {
        const void *text;
        size_t size;
        eider_kernel *kernel = compile_program("out = silu(x)", (eider_stage)stage, &text, &size);
        LLVMContextRef context = LLVMContextCreate();
        LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, size, "again");
        LLVMModuleRef module = NULL;
        char *message = NULL;
        if (LLVMParseIRInContext(context, buffer, &module, &message)) fail_msg("%s", message);
        char *again = LLVMPrintModuleToString(module);
        assert_string_equal(body_of(again), body_of(text));
        LLVMDisposeMessage(again);
        LLVMDisposeModule(module);
        LLVMContextDispose(context);
        eider_kernel_release(kernel);
    }
}

/* What was emitted for a GPU runs here as a source: its arguments are the pointers, the number
 * of elements, and a bit for each pointer that is aligned. */
static void printed_ir_runs_as_a_source(void **state)
{
    (void)state;
    enum { N = 1001 };
    int32_t count = N, aligned = 3;
    static const eider_operand map_operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                                 {"out", EIDER_OUTPUT, EIDER_F32},
                                                 {"count", EIDER_SCALAR, EIDER_I32},
                                                 {"aligned", EIDER_SCALAR, EIDER_I32}};
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, shape), tensor_of(out, EIDER_F32, 1, shape),
                           tensor_of(&count, EIDER_I32, 0, NULL),
                           tensor_of(&aligned, EIDER_I32, 0, NULL)};
    const uint32_t grid[] = {(N + 511) / 512, 1, 1};
    const void *text;
    size_t size;
    eider_kernel_info info;
    eider_kernel *again,
        *kernel = compile_program("out = x * 2.0 + max(x, 3.0)", EIDER_STAGE_IR, &text, &size);
    eider_kernel_describe(kernel, &info);
    eider_source source = source_of(text, 128, 1);
    source.entry = info.entry;
    source.operands = map_operands;
    source.n_operands = COUNT(map_operands);
    eider_request request = {.source = &source};
    must(eider_prepare(cpu, &request, &again));
    must(eider_launch_grid(again, NULL, grid, args, 4));
    for (int i = 0; i < N; i++) assert_true(out[i] == x[i] * 2 + (x[i] > 3 ? x[i] : 3));
    assert_true(out[N] == -7);
    eider_kernel_release(again);
    eider_kernel_release(kernel);
}

static void printed_ptx_assembles_to_the_same_cubin(void **state)
{
    (void)state;
    const void *ptx, *cubin, *cubin_again;
    size_t size, size_again;
    eider_kernel_info info;
    eider_kernel *again, *kernel = compile_program("out = silu(x)", EIDER_STAGE_PTX, &ptx, &size);
    must(eider_kernel_stage(kernel, EIDER_STAGE_CUBIN, &cubin, &size));
    eider_kernel_describe(kernel, &info);
    eider_source source = source_of(ptx, 128, 1);
    source.kind = EIDER_SOURCE_PTX;
    source.entry = info.entry;
    source.n_operands = 0; /* what eider's own kernel takes is not the caller's business */
    eider_request request = {.source = &source, .target = "sm_90"};
    must(eider_compile(ctx, &request, &again));
    must(eider_kernel_stage(again, EIDER_STAGE_CUBIN, &cubin_again, &size_again));
    assert_int_equal(size_again, size);
    assert_memory_equal(cubin_again, cubin, size);
    eider_kernel_release(again);
    eider_kernel_release(kernel);
}

static void bitcode_runs_and_compiles_like_text(void **state)
{
    (void)state;
    LLVMContextRef context = LLVMContextCreate();
    LLVMMemoryBufferRef text =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(sum_in_warps, strlen(sum_in_warps), "text");
    LLVMModuleRef module = NULL;
    char *message = NULL;
    if (LLVMParseIRInContext(context, text, &module, &message)) fail_msg("%s", message);
    LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(module);
    eider_source source = source_of(NULL, 96, 1);
    source.kind = EIDER_SOURCE_BITCODE;
    source.data = LLVMGetBufferStart(bitcode);
    source.size = LLVMGetBufferSize(bitcode);
    must(launch(&source, 1, 1));
    for (int t = 0; t < 96; t++)
        assert_true(out[t] == (float)(32 * 32 * (t / 32) + 31 * 16) + 0.5f);

    eider_kernel *kernel;
    const void *ptx;
    size_t size;
    eider_request request = {.source = &source, .target = "sm_90a"};
    must(eider_compile(ctx, &request, &kernel));
    must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &ptx, &size));
    assert_non_null(strstr(ptx, ".target sm_90a"));
    assert_non_null(strstr(ptx, "shfl.sync.bfly"));
    eider_kernel_release(kernel);
    LLVMDisposeMemoryBuffer(bitcode);
    LLVMDisposeModule(module);
    LLVMContextDispose(context);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

static void sources_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    eider_kernel *kernel = NULL;
    const eider_source good = source_of(sum_in_warps, 32, 1);
    eider_source s = good;
    eider_request request = {.source = &s};
    s.kind = EIDER_SOURCE_PTX;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_UNSUPPORTED);
    s.kind = (eider_source_kind)9;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_BAD_ARG);
    s = good;
    s.entry = "";
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_BAD_ARG);
    s = good;
    s.data = NULL;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_BAD_ARG);
    s = good;
    s.kind = EIDER_SOURCE_BITCODE;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_BAD_ARG);
    s = good;
    s.block[1] = 33;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_TOO_LARGE);
    s = good;
    s.shared_bytes = 2u << 20;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_TOO_LARGE);
    s = good;
    s.n_operands = 1000;
    assert_int_equal(eider_prepare(cpu, &request, &kernel), EIDER_TOO_LARGE);
    assert_null(kernel);
}

static void launches_that_do_not_fit_a_source_are_refused(void **state)
{
    (void)state;
    eider_kernel *kernel;
    double ns;
    const uint32_t grid[] = {1, 1, 1}, empty[] = {1, 0, 1};
    eider_source source = source_of(sum_in_warps, 32, 1);
    eider_request request = {.source = &source};
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, shape), tensor_of(&bias, EIDER_F32, 0, NULL),
                           tensor_of(out, EIDER_F32, 1, shape)};
    must(eider_prepare(cpu, &request, &kernel));
    assert_int_equal(eider_launch(kernel, NULL, args, 3), EIDER_BAD_ARG);
    assert_int_equal(eider_time(kernel, NULL, args, 3, 1, 0, &ns), EIDER_BAD_ARG);
    assert_int_equal(eider_launch_grid(kernel, NULL, NULL, args, 3), EIDER_BAD_ARG);
    assert_int_equal(eider_launch_grid(kernel, NULL, grid, args, 2), EIDER_BAD_ARG);
    args[1].data = NULL;
    assert_int_equal(eider_launch_grid(kernel, NULL, grid, args, 3), EIDER_BAD_ARG);
    args[1].data = &bias;
    args[2].type = EIDER_F64;
    assert_int_equal(eider_launch_grid(kernel, NULL, grid, args, 3), EIDER_NOT_PREPARED);
    args[2].type = EIDER_F32;
    must(eider_launch_grid(kernel, NULL, empty, args, 3));
    assert_true(out[0] == -7);
    eider_kernel_release(kernel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_reduction_in_shared_memory_is_right),
        cmocka_unit_test(a_warp_reduction_by_shuffles_is_right),
        cmocka_unit_test(blocks_and_grids_of_two_dimensions_transpose),
        cmocka_unit_test(a_deadlock_is_a_status_and_the_kernel_may_run_again),
        cmocka_unit_test(ir_that_makes_llvm_abort_leaves_the_host_alive),
        cmocka_unit_test(text_compiles_for_a_gpu_as_well),
        cmocka_unit_test(a_callback_builds_a_kernel_per_config),
        cmocka_unit_test(neither_a_hit_nor_another_key_waits_for_a_compile),
        cmocka_unit_test(printed_ir_parses_to_the_same_module),
        cmocka_unit_test(printed_ir_runs_as_a_source),
        cmocka_unit_test(printed_ptx_assembles_to_the_same_cubin),
        cmocka_unit_test(bitcode_runs_and_compiles_like_text),
        cmocka_unit_test(sources_that_make_no_sense_are_refused),
        cmocka_unit_test(launches_that_do_not_fit_a_source_are_refused),
    };
    return cmocka_run_group_tests_name("source", tests, set_up, tear_down);
}
