/* test_foreign.c -- kernels written for a GPU run on the CPU, one thread per thread. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_ll.h"

/* One block of N_THREADS threads, each a thread of the system; the runtime has fibers. */
#define N_THREADS 64
#define WARP 32
#define SHARED_BYTES 4096

static _Thread_local uint32_t thread_id;
static uint32_t block_id;
static pthread_barrier_t barrier;
static uint32_t exchanged[N_THREADS];
static _Alignas(128) unsigned char shared_memory[SHARED_BYTES];

static uint32_t hook_sreg(uint32_t which)
{
    switch ((enum eider_cpu_sreg)which) {
    case EIDER_SREG_TID_X:
        return thread_id;
    case EIDER_SREG_NTID_X:
        return N_THREADS;
    case EIDER_SREG_CTAID_X:
        return block_id;
    case EIDER_SREG_LANEID:
        return thread_id % WARP;
    case EIDER_SREG_WARPSIZE:
        return WARP;
    default:
        return 1000 + which;
    }
}

static void hook_barrier(void)
{
    pthread_barrier_wait(&barrier);
}

static void hook_warp_barrier(uint32_t mask)
{
    (void)mask;
    pthread_barrier_wait(&barrier);
}

static uint32_t hook_shuffle(uint32_t mode, uint32_t mask, uint32_t value, uint32_t lane,
                             uint32_t clamp)
{
    (void)mask, (void)clamp;
    exchanged[thread_id] = value;
    pthread_barrier_wait(&barrier);
    uint32_t base = thread_id / WARP * WARP, own = thread_id % WARP;
    const uint32_t from[] = {lane % WARP, own >= lane ? own - lane : own,
                             own + lane < WARP ? own + lane : own, own ^ lane};
    uint32_t got = exchanged[base + from[mode]];
    pthread_barrier_wait(&barrier);
    return got;
}

static uint32_t hook_ballot(uint32_t mask, uint32_t predicate)
{
    (void)mask;
    uint32_t bits = 0;
    exchanged[thread_id] = predicate;
    pthread_barrier_wait(&barrier);
    for (uint32_t i = 0; i < WARP; i++) bits |= exchanged[thread_id / WARP * WARP + i] << i;
    pthread_barrier_wait(&barrier);
    return bits;
}

static void *hook_shared(void)
{
    return shared_memory;
}

/* A block is a cluster of its own. */
static void hook_cluster_arrive(void)
{
}

static void *hook_peer(void *address, uint32_t rank)
{
    return rank == 0 ? address : NULL;
}

static const struct eider_cpu_hooks hooks = {hook_sreg,           hook_barrier, hook_warp_barrier,
                                             hook_shuffle,        hook_ballot,  hook_shared,
                                             hook_cluster_arrive, hook_barrier, hook_peer};

struct launch {
    eider_cpu_thread_entry entry;
    void *const *params;
    uint32_t id;
};

static void *run_thread(void *arg)
{
    struct launch *launch = arg;
    thread_id = launch->id;
    launch->entry(launch->params);
    return NULL;
}

/* Runs one block of kernel "k" of `text` with `params`; gives the static shared bytes. */
static uint32_t run_block(const char *text, void *const *params)
{
    struct eider_codegen_job job = {.entry = "k", .thread_style = 1};
    struct eider_codegen_result result;
    if (ll_emit(text, &job, &result) != EIDER_OK) fail_msg("%s", eider_error());
    struct eider_cpu_image *image;
    void *entry;
    if (eider_cpu_image_create(&ll_allocator, &result.code, "k", 1, &hooks, &image, &entry) !=
        EIDER_OK)
        fail_msg("%s", eider_error());
    eider_blob_release(&ll_allocator, &result.code);

    pthread_t threads[N_THREADS];
    struct launch launches[N_THREADS];
    pthread_barrier_init(&barrier, NULL, N_THREADS);
    memset(shared_memory, 0xee, sizeof shared_memory);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        launches[i] = (struct launch){.params = params, .id = i};
        memcpy(&launches[i].entry, &entry, sizeof entry);
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &launches[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    uint32_t shared = eider_cpu_image_shared(image);
    eider_cpu_image_release(image);
    return shared;
}

static const char sum_text[] =
    "target triple = \"nvptx64-nvidia-cuda\"\n"
    "target datalayout = \"e-i64:64-i128:128-v16:16-v32:32-n16:32:64\"\n"
    "@partial = internal addrspace(3) global [2 x float] undef, align 4\n"
    "@odd = internal addrspace(3) global i8 undef\n"
    "@dynamic = external addrspace(3) global [0 x float], align 16\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "declare void @llvm.nvvm.barrier0()\n"
    "declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)\n"
    "declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)\n"
    "define ptx_device float @warp_sum(float %v) \"target-cpu\"=\"sm_90\" {\n"
    "entry:\n"
    "  br label %loop\n"
    "loop:\n"
    "  %d = phi i32 [ 16, %entry ], [ %h, %loop ]\n"
    "  %a = phi float [ %v, %entry ], [ %s, %loop ]\n"
    "  %o = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a, i32 %d, i32 31)\n"
    "  %s = fadd float %a, %o\n"
    "  %h = lshr i32 %d, 1\n"
    "  %more = icmp ne i32 %h, 0\n"
    "  br i1 %more, label %loop, label %done\n"
    "done:\n"
    "  ret float %s\n"
    "}\n"
    "define ptx_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out, float %scale) {\n"
    "entry:\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "  %p = getelementptr float, ptr addrspace(1) %in, i32 %t\n"
    "  %x = load float, ptr addrspace(1) %p\n"
    "  %y = fmul float %x, %scale\n"
    "  %d = getelementptr [0 x float], ptr addrspace(3) @dynamic, i32 0, i32 %t\n"
    "  store float %x, ptr addrspace(3) %d\n"
    "  %sum = call ptx_device float @warp_sum(float %y)\n"
    "  %w = lshr i32 %t, 5\n"
    "  %lane = and i32 %t, 31\n"
    "  %first = icmp eq i32 %lane, 0\n"
    "  br i1 %first, label %write, label %join\n"
    "write:\n"
    "  %q = getelementptr [2 x float], ptr addrspace(3) @partial, i32 0, i32 %w\n"
    "  store float %sum, ptr addrspace(3) %q\n"
    "  br label %join\n"
    "join:\n"
    "  store i8 7, ptr addrspace(3) @odd\n"
    "  call void @llvm.nvvm.barrier0()\n"
    "  %p0 = load float, ptr addrspace(3) @partial\n"
    "  %p1 = load float, ptr addrspacecast (ptr addrspace(3) getelementptr ([2 x float],"
    " ptr addrspace(3) @partial, i32 0, i32 1) to ptr)\n"
    "  %all = fadd float %p0, %p1\n"
    "  %r = sub i32 63, %t\n"
    "  %e = getelementptr [0 x float], ptr addrspace(3) @dynamic, i32 0, i32 %r\n"
    "  %back = load float, ptr addrspace(3) %e\n"
    "  %res = fadd float %all, %back\n"
    "  %third = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %t, i32 3, i32 31)\n"
    "  %thirdf = sitofp i32 %third to float\n"
    "  %bf = sitofp i32 %b to float\n"
    "  %res1 = fadd float %res, %thirdf\n"
    "  %res2 = fadd float %res1, %bf\n"
    "  %o = getelementptr float, ptr addrspace(1) %out, i32 %t\n"
    "  store float %res2, ptr addrspace(1) %o\n"
    "  ret void\n"
    "}\n";

static void a_reduction_runs(void **state)
{
    (void)state;
    float in[N_THREADS], out[N_THREADS] = {0}, scale = 0.5f, sum = 0;
    for (int i = 0; i < N_THREADS; i++) in[i] = (float)i * 2;
    for (int i = 0; i < N_THREADS; i++) sum += in[i] * scale;
    float *in_at = in, *out_at = out;
    void *params[] = {&in_at, &out_at, &scale};
    block_id = 100;
    assert_int_equal(run_block(sum_text, params), 128);
    for (int i = 0; i < N_THREADS; i++) {
        float want = sum + in[N_THREADS - 1 - i] + (float)(i / WARP * WARP + 3) + 100;
        assert_true(out[i] == want);
    }
    float kept;
    memcpy(&kept, shared_memory + 128 + 63 * sizeof kept, sizeof kept);
    assert_true(kept == 126); /* dynamic memory lies behind the variables */
}

static const char votes_text[] =
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)\n"
    "declare i1 @llvm.nvvm.vote.any.sync(i32, i1)\n"
    "declare i1 @llvm.nvvm.vote.all.sync(i32, i1)\n"
    "declare i32 @llvm.nvvm.shfl.sync.up.i32(i32, i32, i32, i32)\n"
    "declare i32 @llvm.nvvm.shfl.sync.down.i32(i32, i32, i32, i32)\n"
    "declare void @llvm.nvvm.bar.warp.sync(i32)\n"
    "declare void @llvm.nvvm.membar.gl()\n"
    "declare float @llvm.nvvm.ex2.approx.ftz.f(float)\n"
    "declare float @llvm.nvvm.rcp.approx.ftz.f(float)\n"
    "declare float @llvm.nvvm.rsqrt.approx.f(float)\n"
    "declare float @llvm.nvvm.fmax.f(float, float)\n"
    "%S = type { i32, i32 }\n"
    "define ptx_kernel void @k(ptr %out, ptr byval(%S) align 4 %s) {\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  %small = icmp ult i32 %t, 3\n"
    "  %b = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %small)\n"
    "  %any = call i1 @llvm.nvvm.vote.any.sync(i32 -1, i1 %small)\n"
    "  %all = call i1 @llvm.nvvm.vote.all.sync(i32 -1, i1 %small)\n"
    "  call void @llvm.nvvm.bar.warp.sync(i32 -1)\n"
    "  %u = call i32 @llvm.nvvm.shfl.sync.up.i32(i32 -1, i32 %t, i32 1, i32 0)\n"
    "  %d = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %t, i32 1, i32 31)\n"
    "  call void @llvm.nvvm.membar.gl()\n"
    "  %f = sitofp i32 %t to float\n"
    "  %x = call float @llvm.nvvm.ex2.approx.ftz.f(float 3.0)\n"
    "  %r = call float @llvm.nvvm.rcp.approx.ftz.f(float %x)\n"
    "  %q = call float @llvm.nvvm.rsqrt.approx.f(float 16.0)\n"
    "  %m = call float @llvm.nvvm.fmax.f(float %r, float %q)\n"
    "  %m8 = fmul float %m, 8.0\n"
    "  %mi = fptosi float %m8 to i32\n"
    "  %p1 = getelementptr %S, ptr %s, i32 0, i32 1\n"
    "  %v = load i32, ptr %p1\n"
    "  store i32 0, ptr %p1\n"
    "  %anyi = zext i1 %any to i32\n"
    "  %alli = zext i1 %all to i32\n"
    "  %a0 = getelementptr [8 x i32], ptr %out, i32 %t, i32 0\n"
    "  %a1 = getelementptr [8 x i32], ptr %out, i32 %t, i32 1\n"
    "  %a2 = getelementptr [8 x i32], ptr %out, i32 %t, i32 2\n"
    "  %a3 = getelementptr [8 x i32], ptr %out, i32 %t, i32 3\n"
    "  %a4 = getelementptr [8 x i32], ptr %out, i32 %t, i32 4\n"
    "  %a5 = getelementptr [8 x i32], ptr %out, i32 %t, i32 5\n"
    "  %a6 = getelementptr [8 x i32], ptr %out, i32 %t, i32 6\n"
    "  store i32 %b, ptr %a0\n"
    "  store i32 %anyi, ptr %a1\n"
    "  store i32 %alli, ptr %a2\n"
    "  store i32 %u, ptr %a3\n"
    "  store i32 %d, ptr %a4\n"
    "  store i32 %mi, ptr %a5\n"
    "  store i32 %v, ptr %a6\n"
    "  ret void\n"
    "}\n";

static void votes_shuffles_and_arithmetic_run(void **state)
{
    (void)state;
    static uint32_t out[N_THREADS][8];
    uint32_t *at = &out[0][0], by_value[2] = {5, 77};
    void *params[] = {&at, by_value};
    assert_int_equal(run_block(votes_text, params), 0);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(out[i][0], i < WARP ? 7 : 0);
        assert_int_equal(out[i][1], i < WARP);
        assert_int_equal(out[i][2], 0);
        assert_int_equal(out[i][3], i % WARP ? i - 1 : i);
        assert_int_equal(out[i][4], i % WARP == WARP - 1 ? i : i + 1);
        assert_int_equal(out[i][5], 2);
        assert_int_equal(out[i][6], 77);
    }
    assert_int_equal(by_value[1], 77); /* a parameter by value is the thread's own copy */
}

static const char cluster_text[] =
    "target triple = \"nvptx64-nvidia-cuda\"\n"
    "@mine = internal addrspace(3) global [64 x i32] undef, align 4\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.cluster.nctarank()\n"
    "declare void @llvm.nvvm.barrier.cluster.arrive()\n"
    "declare void @llvm.nvvm.barrier.cluster.wait()\n"
    "declare ptr @llvm.nvvm.mapa(ptr, i32)\n"
    "define ptx_kernel void @k(ptr addrspace(1) %out) {\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  %rank = call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()\n"
    "  %size = call i32 @llvm.nvvm.read.ptx.sreg.cluster.nctarank()\n"
    "  %a = getelementptr [64 x i32], ptr addrspace(3) @mine, i32 0, i32 %t\n"
    "  %g = addrspacecast ptr addrspace(3) %a to ptr\n"
    "  %p = call ptr @llvm.nvvm.mapa(ptr %g, i32 0)\n"
    "  store i32 %t, ptr %p\n"
    "  call void @llvm.nvvm.barrier.cluster.arrive()\n"
    "  call void @llvm.nvvm.barrier.cluster.wait()\n"
    "  %other = sub i32 63, %t\n"
    "  %b = getelementptr [64 x i32], ptr addrspace(3) @mine, i32 0, i32 %other\n"
    "  %v = load i32, ptr addrspace(3) %b\n"
    "  %r = mul i32 %rank, 10000\n"
    "  %s = sub i32 %size, 1000\n"
    "  %x = add i32 %r, %s\n"
    "  %y = mul i32 %v, 100\n"
    "  %z = add i32 %x, %y\n"
    "  %q = getelementptr i32, ptr addrspace(1) %out, i32 %t\n"
    "  store i32 %z, ptr addrspace(1) %q\n"
    "  ret void\n"
    "}\n";

static void intrinsics_of_clusters_have_counterparts(void **state)
{
    int out[N_THREADS], *out_ptr = out;
    void *params[] = {&out_ptr};
    (void)state;
    run_block(cluster_text, params);
    for (int t = 0; t < N_THREADS; t++)
        assert_int_equal(out[t], 10000 * (1000 + EIDER_SREG_CLUSTER_RANK) + 100 * (63 - t) +
                                     EIDER_SREG_CLUSTER_SIZE);
}

static void what_cannot_run_is_named(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"declare i64 @llvm.nvvm.read.ptx.sreg.clock64()\n"
         "define ptx_kernel void @k(ptr %p) {\n"
         "  %c = call i64 @llvm.nvvm.read.ptx.sreg.clock64()\n"
         "  store i64 %c, ptr %p\n  ret void\n}\n",
         "llvm.nvvm.read.ptx.sreg.clock64 has no counterpart"},
        {"define ptx_kernel void @k(ptr %p) {\n"
         "  call void asm sideeffect \"bar.sync 0;\", \"\"()\n  ret void\n}\n",
         "'bar.sync 0;' cannot run on the CPU"},
        {"module asm \".extern .func f\"\ndefine void @k() {\n  ret void\n}\n",
         "the module's inline assembly"},
        {"@s = internal addrspace(3) global i32 undef\n"
         "@g = global ptr addrspace(3) @s\n"
         "define void @k() {\n  ret void\n}\n",
         "initial value of g"},
        {"define i32 @k() {\n  ret i32 1\n}\n", "returns a value"},
        {"define void @other() {\n  ret void\n}\n", "defines no function 'k'"},
        {"declare void @nowhere_to_be_found()\n"
         "define void @k() {\n  call void @nowhere_to_be_found()\n  ret void\n}\n",
         "nowhere_to_be_found"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct eider_codegen_job job = {.entry = "k", .thread_style = 1};
        struct eider_codegen_result result;
        eider_status status = ll_emit(rows[i][0], &job, &result);
        if (status == EIDER_OK) {
            struct eider_cpu_image *image;
            void *entry;
            status =
                eider_cpu_image_create(&ll_allocator, &result.code, "k", 1, &hooks, &image, &entry);
            eider_blob_release(&ll_allocator, &result.code);
        }
        assert_int_equal(status, EIDER_CODEGEN);
        if (!strstr(eider_error(), rows[i][1])) fail_msg("%s: %s", rows[i][1], eider_error());
    }
}

static void the_worker_compiles_it_too(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "k", .thread_style = 1};
    eider_source source = {.kind = EIDER_SOURCE_LL, .data = sum_text, .entry = "k"};
    struct eider_codegen_result here, there;
    assert_int_equal(ll_emit(sum_text, &job, &here), EIDER_OK);
    if (eider_worker_compile(&ll_allocator, &source, NULL, &job, 0, &there) != EIDER_OK)
        fail_msg("%s", eider_error());
    struct eider_cpu_image *image;
    void *entry;
    assert_int_equal(
        eider_cpu_image_create(&ll_allocator, &there.code, "k", 1, &hooks, &image, &entry),
        EIDER_OK);
    assert_int_equal(eider_cpu_image_shared(image), 128);
    eider_cpu_image_release(image);
    eider_blob_release(&ll_allocator, &here.code);
    eider_blob_release(&ll_allocator, &there.code);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct eider_codegen_job job = {.entry = "k", .thread_style = 1};
    struct eider_codegen_result result;
    eider_status status = EIDER_OOM;
    int left = 0;
    for (; status == EIDER_OOM; left++) {
        struct ll_failing failing = {.left = left};
        eider_allocator a = ll_failing_allocator(&failing);
        status = ll_emit_with(&a, sum_text, &job, &result);
    }
    assert_int_equal(status, EIDER_OK);
    assert_true(left >= 3);
    eider_blob_release(&ll_allocator, &result.code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reduction_runs),
        cmocka_unit_test(votes_shuffles_and_arithmetic_run),
        cmocka_unit_test(intrinsics_of_clusters_have_counterparts),
        cmocka_unit_test(what_cannot_run_is_named),
        cmocka_unit_test(the_worker_compiles_it_too),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
