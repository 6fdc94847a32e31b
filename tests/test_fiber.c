/* test_fiber.c -- blocks of many threads on the CPU behave as on a GPU, or fail.
 *
 * The kernels here are C functions written like kernels; test_foreign.c runs the same
 * machinery from LLVM IR.
 * labels: tsan
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "cpu_fiber.h"

#define WARP 32u
#define FULL 0xffffffffu
#define MAX_THREADS EIDER_FIBER_THREADS_MAX

static const struct eider_cpu_hooks *const gpu = &eider_cpu_fiber_hooks;
static uint32_t results[2 * MAX_THREADS];
static struct eider_cpu_stacks *stacks;

static int set_up(void **state)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    (void)state;
    return eider_cpu_stacks_create(&a, &stacks) != EIDER_OK;
}

static int tear_down(void **state)
{
    (void)state;
    eider_cpu_stacks_release(stacks);
    return 0;
}

static uint32_t tid(void)
{
    return gpu->sreg(EIDER_SREG_TID_X) +
           gpu->sreg(EIDER_SREG_NTID_X) *
               (gpu->sreg(EIDER_SREG_TID_Y) +
                gpu->sreg(EIDER_SREG_NTID_Y) * gpu->sreg(EIDER_SREG_TID_Z));
}

static eider_status run_clusters(eider_cpu_thread_entry entry, uint32_t n_blocks,
                                 const uint32_t grid[3], const uint32_t block[3])
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_cpu_fibers *fibers;
    uint32_t n = block[0] * block[1] * block[2];
    assert_int_equal(eider_cpu_fiber_create(&a, stacks, n, n_blocks, 4 * MAX_THREADS, &fibers),
                     EIDER_OK);
    eider_status status = eider_cpu_fiber_run(fibers, entry, NULL, grid, block);
    eider_cpu_fiber_release(fibers);
    return status;
}

static eider_status run(eider_cpu_thread_entry entry, const uint32_t grid[3],
                        const uint32_t block[3])
{
    return run_clusters(entry, 1, grid, block);
}

static eider_status run_line(eider_cpu_thread_entry entry, uint32_t n_threads)
{
    memset(results, 0xff, sizeof results);
    return run(entry, (uint32_t[]){1, 1, 1}, (uint32_t[]){n_threads, 1, 1});
}

/* ---- Barriers ---------------------------------------------------------- */

/* Block b, in shared memory: the sum of b * 1000 + t over its threads t. */
static void sum_by_halves(void *const *params)
{
    (void)params;
    uint32_t *shared = gpu->shared();
    uint32_t t = tid(), b = gpu->sreg(EIDER_SREG_CTAID_X), n = gpu->sreg(EIDER_SREG_NTID_X);
    shared[t] = 1000 * b + t;
    for (uint32_t half = n / 2; half > 0; half /= 2) {
        gpu->barrier();
        if (t < half) shared[t] += shared[t + half];
    }
    if (t == 0) results[b] = shared[0];
}

static void barriers_order_a_reduction_over_all_threads_of_a_block(void **state)
{
    (void)state;
    memset(results, 0xff, sizeof results);
    uint32_t grid[] = {3, 1, 1}, block[] = {256, 1, 1};
    assert_int_equal(run(sum_by_halves, grid, block), EIDER_OK);
    for (uint32_t b = 0; b < 3; b++) assert_int_equal(results[b], 256000 * b + 255 * 128);
}

static void leave_early_then_sync(void *const *params)
{
    (void)params;
    uint32_t *shared = gpu->shared();
    uint32_t t = tid();
    shared[t] = t;
    if (t % 3 == 0) return;
    gpu->barrier();
    results[t] = shared[(t + 1) % 96];
}

static void a_barrier_does_not_wait_for_threads_that_have_returned(void **state)
{
    (void)state;
    assert_int_equal(run_line(leave_early_then_sync, 96), EIDER_OK);
    for (uint32_t t = 0; t < 96; t++)
        assert_int_equal(results[t], t % 3 == 0 ? FULL : (t + 1) % 96);
}

/* ---- Shuffles and ballots ---------------------------------------------- */

static void sum_warp(void *const *params)
{
    (void)params;
    uint32_t t = tid(), value = t;
    for (uint32_t step = 16; step > 0; step /= 2) value += gpu->shuffle(3, FULL, value, step, 31);
    results[t] = value;
}

static void butterfly_shuffles_sum_each_warp(void **state)
{
    (void)state;
    assert_int_equal(run_line(sum_warp, 96), EIDER_OK);
    for (uint32_t t = 0; t < 96; t++) assert_int_equal(results[t], 32 * 32 * (t / 32) + 31 * 16);
}

static uint32_t shuffle_mode, shuffle_lane, shuffle_clamp;

static void shuffle_once(void *const *params)
{
    (void)params;
    uint32_t t = tid();
    results[t] = gpu->shuffle(shuffle_mode, FULL, 100 + t, shuffle_lane, shuffle_clamp);
}

static uint32_t shuffled(uint32_t mode, uint32_t lane, uint32_t clamp, uint32_t reader)
{
    shuffle_mode = mode;
    shuffle_lane = lane;
    shuffle_clamp = clamp;
    assert_int_equal(run_line(shuffle_once, WARP), EIDER_OK);
    return results[reader] - 100;
}

/* Expected lanes follow the pseudo-code of shfl.sync in the PTX manual. */
static void each_mode_of_shuffle_reads_the_lane_that_ptx_says(void **state)
{
    (void)state;
    uint32_t width_8 = (32 - 8) << 8;
    assert_int_equal(shuffled(0, 5, 31, 17), 5);
    assert_int_equal(shuffled(0, 5, width_8 | 7, 17), 21);
    assert_int_equal(shuffled(1, 3, 0, 10), 7);
    assert_int_equal(shuffled(1, 3, 0, 2), 2);
    assert_int_equal(shuffled(1, 3, width_8, 9), 9);
    assert_int_equal(shuffled(1, 3, width_8, 12), 9);
    assert_int_equal(shuffled(2, 3, 31, 10), 13);
    assert_int_equal(shuffled(2, 3, 31, 30), 30);
    assert_int_equal(shuffled(2, 3, width_8 | 7, 14), 14);
    assert_int_equal(shuffled(3, 6, 31, 9), 15);
    assert_int_equal(shuffled(3, 16, width_8 | 7, 9), 9);
}

static void vote_in_halves(void *const *params)
{
    (void)params;
    uint32_t t = tid();
    uint32_t mask = t < 16 ? 0x0000ffffu : 0xffff0000u;
    if (t == 20) return;
    results[t] = gpu->ballot(mask, t % 5 == 0);
    gpu->warp_barrier(mask);
    results[WARP + t] = gpu->ballot(mask, 1);
}

static void ballots_count_the_threads_of_their_mask_that_are_alive(void **state)
{
    (void)state;
    assert_int_equal(run_line(vote_in_halves, WARP), EIDER_OK);
    assert_int_equal(results[3], 1u << 0 | 1u << 5 | 1u << 10 | 1u << 15);
    assert_int_equal(results[31], 1u << 25 | 1u << 30);
    assert_int_equal(results[WARP + 3], 0x0000ffffu);
    assert_int_equal(results[WARP + 31], 0xffff0000u & ~(1u << 20));
}

static void shuffle_in_part_of_a_warp(void *const *params)
{
    (void)params;
    uint32_t t = tid(), mask = 0xffu;
    if (t < 8) results[t] = gpu->shuffle(3, mask, t, 1, 31);
    gpu->barrier();
    results[MAX_THREADS + t] = results[t % 8];
}

static void part_of_a_warp_shuffles_while_the_rest_waits_in_a_barrier(void **state)
{
    (void)state;
    assert_int_equal(run_line(shuffle_in_part_of_a_warp, 40), EIDER_OK);
    for (uint32_t t = 0; t < 40; t++) assert_int_equal(results[MAX_THREADS + t], (t % 8) ^ 1);
}

/* ---- Shapes ------------------------------------------------------------ */

static void write_place(void *const *params)
{
    (void)params;
    uint32_t x =
        gpu->sreg(EIDER_SREG_CTAID_X) * gpu->sreg(EIDER_SREG_NTID_X) + gpu->sreg(EIDER_SREG_TID_X);
    uint32_t y =
        gpu->sreg(EIDER_SREG_CTAID_Y) * gpu->sreg(EIDER_SREG_NTID_Y) + gpu->sreg(EIDER_SREG_TID_Y);
    uint32_t z = gpu->sreg(EIDER_SREG_CTAID_Z);
    uint32_t width = gpu->sreg(EIDER_SREG_NCTAID_X) * gpu->sreg(EIDER_SREG_NTID_X);
    uint32_t height = gpu->sreg(EIDER_SREG_NCTAID_Y) * gpu->sreg(EIDER_SREG_NTID_Y);
    results[(z * height + y) * width + x] = 100 * y + 10 * z + x;
}

static void blocks_of_two_dimensions_see_their_places_in_a_grid_of_three(void **state)
{
    (void)state;
    memset(results, 0xff, sizeof results);
    uint32_t grid[] = {2, 3, 2}, block[] = {4, 2, 1};
    assert_int_equal(run(write_place, grid, block), EIDER_OK);
    for (uint32_t z = 0; z < 2; z++)
        for (uint32_t y = 0; y < 6; y++)
            for (uint32_t x = 0; x < 8; x++)
                assert_int_equal(results[(z * 6 + y) * 8 + x], 100 * y + 10 * z + x);
}

static void write_lane(void *const *params)
{
    (void)params;
    results[tid()] = 64 * gpu->sreg(EIDER_SREG_WARPSIZE) + gpu->sreg(EIDER_SREG_LANEID);
}

static void lanes_count_along_x_then_y(void **state)
{
    (void)state;
    uint32_t grid[] = {1, 1, 1}, block[] = {24, 3, 1};
    assert_int_equal(run(write_lane, grid, block), EIDER_OK);
    for (uint32_t t = 0; t < 72; t++) assert_int_equal(results[t], 64 * 32 + t % 32);
}

static void barrier_often(void *const *params)
{
    (void)params;
    uint32_t *shared = gpu->shared();
    uint32_t t = tid(), n = gpu->sreg(EIDER_SREG_NTID_X);
    shared[t] = t;
    for (int i = 0; i < 10; i++) {
        gpu->barrier();
        uint32_t value = shared[(t + 1) % n];
        gpu->barrier();
        shared[t] = value;
    }
    results[t] = shared[t];
}

static void a_block_may_have_1024_threads_and_not_more(void **state)
{
    (void)state;
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_cpu_fibers *fibers;
    assert_int_equal(run_line(barrier_often, MAX_THREADS), EIDER_OK);
    for (uint32_t t = 0; t < MAX_THREADS; t++) assert_int_equal(results[t], (t + 10) % MAX_THREADS);
    assert_int_equal(eider_cpu_fiber_create(&a, stacks, MAX_THREADS + 1, 1, 0, &fibers),
                     EIDER_BAD_ARG);
}

/* ---- Clusters ----------------------------------------------------------- */

static uint32_t rank(void)
{
    return gpu->sreg(EIDER_SREG_CLUSTER_RANK);
}

static void sync_cluster(void)
{
    gpu->cluster_arrive();
    gpu->cluster_wait();
}

/* What a kernel of clusters leaves out, to see that the fibers find it. */
static enum { NOTHING, THE_FIRST, THE_SECOND, THE_LAST } left_out;

/* Thread 0 of every block writes to all blocks of its cluster what number it has; every block's
 * sum is a result. */
static void tell_everybody(void *const *params)
{
    (void)params;
    uint32_t *shared = gpu->shared(), n = gpu->sreg(EIDER_SREG_CLUSTER_SIZE);
    uint32_t block = gpu->sreg(EIDER_SREG_CTAID_X), sum = 0;
    assert_int_equal(block % n, rank());
    if (left_out != THE_FIRST) sync_cluster();
    for (uint32_t peer = 0; peer < n && tid() == 0; peer++)
        *(uint32_t *)gpu->peer(&shared[rank()], peer) = 100 + block;
    if (left_out == THE_SECOND)
        gpu->barrier();
    else
        sync_cluster();
    for (uint32_t i = 0; i < n; i++) sum += shared[i];
    if (tid() == gpu->sreg(EIDER_SREG_NTID_X) - 1) results[block] = sum;
}

static eider_status run_tell(int without)
{
    uint32_t grid[] = {8, 1, 1}, block[] = {40, 1, 1};
    memset(results, 0xff, sizeof results);
    left_out = without;
    return run_clusters(tell_everybody, 4, grid, block);
}

static void blocks_of_a_cluster_reach_one_anothers_memory(void **state)
{
    (void)state;
    assert_int_equal(run_tell(NOTHING), EIDER_OK);
    for (uint32_t b = 0; b < 8; b++) assert_int_equal(results[b], 4 * 100 + 4 * (b / 4 * 4) + 6);
}

/* A block's own barrier does not wait for the others, and none begins because another has. */
static void a_missing_barrier_of_the_cluster_is_found(void **state)
{
    (void)state;
    assert_int_equal(run_tell(THE_FIRST), EIDER_UNSUPPORTED);
    assert_non_null(strstr(eider_error(), "block (1, 0, 0) had not begun when another block of its "
                                          "cluster wrote to byte 0 of its shared memory"));
    assert_int_equal(run_tell(THE_SECOND), EIDER_UNSUPPORTED);
    assert_non_null(strstr(eider_error(), "block (0, 0, 0) had ended when another"));
}

/* Every block reads from the one beside it. */
static void read_beside(void *const *params)
{
    (void)params;
    uint32_t *shared = gpu->shared(), n = gpu->sreg(EIDER_SREG_CLUSTER_SIZE);
    uint32_t block = gpu->sreg(EIDER_SREG_CTAID_X), t = tid();
    shared[t] = 1000 * block + t;
    if (left_out == THE_FIRST)
        gpu->barrier();
    else
        sync_cluster();
    uint32_t *beside = gpu->peer(&shared[t], (rank() + 1) % n);
    results[16 * block + t] = *beside;
    if (left_out != THE_LAST) sync_cluster();
}

static void the_memory_of_a_block_is_gone_when_it_ends(void **state)
{
    uint32_t grid[] = {6, 1, 1}, block[] = {16, 1, 1};
    (void)state;
    for (int without = NOTHING; without <= THE_LAST; without++) {
        int wrong = 0;
        left_out = without;
        memset(results, 0xff, sizeof results);
        assert_int_equal(run_clusters(read_beside, 2, grid, block), EIDER_OK);
        for (uint32_t i = 0; i < 6 * 16; i++) wrong += results[i] != 1000 * (i / 16 ^ 1) + i % 16;
        assert_true((wrong > 0) == (without == THE_FIRST || without == THE_LAST));
    }
}

/* What is done between the two parts of the barrier is not waited for. */
static void arrive_early(void *const *params)
{
    (void)params;
    uint32_t *shared = gpu->shared();
    for (uint32_t round = 0; round < 5; round++) {
        shared[tid()] = 10 * round + rank();
        gpu->cluster_arrive();
        gpu->barrier();
        results[0] += 1;
        gpu->cluster_wait();
        uint32_t *beside = gpu->peer(&shared[tid()], 1 - rank());
        assert_int_equal(*beside, 10 * round + 1 - rank());
        sync_cluster();
    }
}

static void arriving_and_waiting_alternate(void **state)
{
    uint32_t grid[] = {2, 1, 1}, block[] = {33, 1, 1};
    (void)state;
    results[0] = 0;
    assert_int_equal(run_clusters(arrive_early, 2, grid, block), EIDER_OK);
    assert_int_equal(results[0], 5 * 66);
}

static void end_early(void *const *params)
{
    (void)params;
    if (rank() == 1 && tid() > 0) return;
    sync_cluster();
    results[32 * rank() + tid()] = 7;
}

static void clusters_do_not_wait_for_threads_that_have_returned(void **state)
{
    uint32_t grid[] = {2, 1, 1}, block[] = {32, 1, 1};
    (void)state;
    memset(results, 0xff, sizeof results);
    assert_int_equal(run_clusters(end_early, 2, grid, block), EIDER_OK);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(results[i], i <= 32 ? 7 : FULL);
}

static void clusters_have_limits(void **state)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_cpu_fibers *fibers;
    uint32_t grid[] = {3, 1, 1}, block[] = {32, 1, 1};
    (void)state;
    assert_int_equal(eider_cpu_fiber_create(&a, stacks, 32, 17, 0, &fibers), EIDER_BAD_ARG);
    assert_int_equal(eider_cpu_fiber_create(&a, stacks, 512, 16, 0, &fibers), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), "a cluster of 16 blocks of 512 threads"));
    assert_int_equal(run_clusters(end_early, 2, grid, block), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), "a grid of 3 blocks in x is not clusters of 2"));
}

/* ---- What cannot finish ------------------------------------------------ */

static void wait_for_different_things(void *const *params)
{
    (void)params;
    if (tid() < 7)
        gpu->barrier();
    else
        gpu->warp_barrier(FULL);
}

static void warp_masks_that_differ(void *const *params)
{
    (void)params;
    gpu->ballot(tid() == 0 ? 3u : FULL, 1);
}

static void wait_for_one_another(void *const *params)
{
    (void)params;
    if (rank() == 1 && tid() < 5)
        gpu->barrier();
    else
        sync_cluster();
}

static void wait_without_arriving(void *const *params)
{
    (void)params;
    if (tid() > 0) gpu->cluster_arrive();
    gpu->cluster_wait();
}

static void arrive_twice(void *const *params)
{
    (void)params;
    gpu->cluster_arrive();
    if (tid() == 0) gpu->cluster_arrive();
    gpu->cluster_wait();
}

static void a_deadlock_of_a_cluster_names_the_block_that_others_wait_for(void **state)
{
    static const eider_cpu_thread_entry stuck[] = {wait_without_arriving, arrive_twice};
    uint32_t grid[] = {2, 1, 1}, block[] = {32, 1, 1};
    (void)state;
    assert_int_equal(run_clusters(wait_for_one_another, 2, grid, block), EIDER_UNSUPPORTED);
    assert_non_null(strstr(eider_error(), "block (1, 0, 0) cannot finish: of its 32 threads 5 wait "
                                          "in the block's barrier, 27 in that of its cluster of 2, "
                                          "0 in a warp operation"));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(run_clusters(stuck[i], 2, grid, block), EIDER_UNSUPPORTED);
        assert_non_null(strstr(eider_error(), "in that of its cluster of 2"));
    }
}

static void a_deadlock_is_an_error_that_says_who_waits_where(void **state)
{
    (void)state;
    assert_int_equal(run_line(wait_for_different_things, WARP), EIDER_UNSUPPORTED);
    assert_non_null(strstr(eider_error(), "of its 32 threads 7 wait in the block's barrier, 25 in "
                                          "a warp operation"));
    assert_int_equal(run_line(warp_masks_that_differ, WARP), EIDER_UNSUPPORTED);
    assert_int_equal(run_line(sum_warp, WARP), EIDER_OK);
    assert_int_equal(results[0], 31 * 16);
}

/* ---- Stacks ------------------------------------------------------------- */

/* params[0]: where the sum of 0, ..., n - 1 goes, a step of n barriers. */
static void sum_in_turns(void *const *params)
{
    uint32_t *shared = gpu->shared(), n = gpu->sreg(EIDER_SREG_NTID_X), own[64];
    for (uint32_t i = 0; i < 64; i++) own[i] = tid();
    if (tid() == 0) *shared = 0;
    for (uint32_t turn = 0; turn < n; turn++) {
        gpu->barrier();
        if (turn == tid()) *shared += own[turn % 64];
    }
    gpu->barrier();
    if (tid() == 0) *(uint32_t *)params[0] = *shared;
}

struct summing {
    struct eider_cpu_fibers *fibers;
    uint32_t n, sum;
    eider_status status;
};

static void *sum_often(void *arg)
{
    struct summing *s = arg;
    void *params[1] = {&s->sum};
    for (int i = 0; i < 5 && s->status == EIDER_OK; i++) {
        s->sum = 0;
        s->status = eider_cpu_fiber_run(s->fibers, sum_in_turns, params, (uint32_t[]){1, 1, 1},
                                        (uint32_t[]){s->n, 1, 1});
        if (s->sum != s->n * (s->n - 1) / 2) s->status = EIDER_CODEGEN;
    }
    return NULL;
}

static void kernels_that_share_stacks_run_one_after_the_other(void **state)
{
    enum { N = 4 };
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct summing all[N] = {{.n = 0}};
    pthread_t threads[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        all[i].n = 16u << i;
        assert_int_equal(eider_cpu_fiber_create(&a, stacks, all[i].n, 1, 4, &all[i].fibers),
                         EIDER_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, sum_often, &all[i]), 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].status, EIDER_OK);
        eider_cpu_fiber_release(all[i].fibers);
    }
}

/* Two mappings for each stack: a process has 65530. */
static void any_number_of_kernels_has_the_largest_block(void **state)
{
    enum { N = 100 };
    eider_allocator a = eider_memory_default((eider_allocator){0});
    static struct eider_cpu_fibers *fibers[N];
    (void)state;
    for (size_t i = 0; i < N; i++)
        assert_int_equal(eider_cpu_fiber_create(&a, stacks, MAX_THREADS, 1, 4, &fibers[i]),
                         EIDER_OK);
    for (size_t i = 0; i < N; i += N - 1) {
        struct summing s = {.fibers = fibers[i], .n = 64};
        sum_often(&s);
        assert_int_equal(s.status, EIDER_OK);
    }
    for (size_t i = 0; i < N; i++) eider_cpu_fiber_release(fibers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_order_a_reduction_over_all_threads_of_a_block),
        cmocka_unit_test(a_barrier_does_not_wait_for_threads_that_have_returned),
        cmocka_unit_test(butterfly_shuffles_sum_each_warp),
        cmocka_unit_test(each_mode_of_shuffle_reads_the_lane_that_ptx_says),
        cmocka_unit_test(ballots_count_the_threads_of_their_mask_that_are_alive),
        cmocka_unit_test(part_of_a_warp_shuffles_while_the_rest_waits_in_a_barrier),
        cmocka_unit_test(blocks_of_two_dimensions_see_their_places_in_a_grid_of_three),
        cmocka_unit_test(lanes_count_along_x_then_y),
        cmocka_unit_test(a_block_may_have_1024_threads_and_not_more),
        cmocka_unit_test(blocks_of_a_cluster_reach_one_anothers_memory),
        cmocka_unit_test(a_missing_barrier_of_the_cluster_is_found),
        cmocka_unit_test(the_memory_of_a_block_is_gone_when_it_ends),
        cmocka_unit_test(arriving_and_waiting_alternate),
        cmocka_unit_test(clusters_do_not_wait_for_threads_that_have_returned),
        cmocka_unit_test(clusters_have_limits),
        cmocka_unit_test(a_deadlock_of_a_cluster_names_the_block_that_others_wait_for),
        cmocka_unit_test(a_deadlock_is_an_error_that_says_who_waits_where),
        cmocka_unit_test(kernels_that_share_stacks_run_one_after_the_other),
        cmocka_unit_test(any_number_of_kernels_has_the_largest_block),
    };
    return cmocka_run_group_tests_name("fiber", tests, set_up, tear_down);
}
