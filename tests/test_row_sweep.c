/* test_row_sweep.c -- rows of every length from 1 to 4097, on the CPU, between guard bands and
 * against the reference evaluation: a thread, a part of a warp, a warp, a block, a cluster of
 * blocks, shared memory and parts per row at each; elements of all sizes, and masked, infinite and
 * NaN.
 *
 * EIDER_TEST_LENGTHS=FIRST-LAST tests these only.
 *
 * labels: sweep
 * timeout: 3600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define LAST 4097
#define PARTS_MAX 16
#define KEPT 128 /* lengths: a context keeps its kernels, and a process has 65530 mappings */

/* Lengths are shared out to processes, one per core. */
static int64_t part, n_parts = 1;

/* The kinds, each in variants that take turns from length to length: elements that stay in
 * registers or shared memory, all of them, some or none; one or several vectors in flight; several
 * rows per block; blocks that go through all rows.
 * The widest vector that the length allows goes with each. */
static const char *const kinds[][4] = {
    {"", "block=1,row=1,keep=4,unroll=2", "block=32,row=1,keep=1,unroll=1",
     "block=1,row=1,keep=0,unroll=1,online=1"},
    {"block=64,row=4,keep=0,unroll=1,online=1", "block=32,row=16,keep=2,unroll=1",
     "block=32,row=8,keep=1,unroll=2", "block=32,row=2,keep=4,unroll=1"},
    {"block=32,row=32,keep=1,unroll=1", "block=128,row=32,keep=3,unroll=1",
     "block=32,row=32,keep=0,unroll=2,online=1", "block=64,row=32,keep=4,unroll=1"},
    {"block=64,row=64,keep=2,unroll=2", "block=128,row=64,keep=1,unroll=1",
     "block=256,row=256,keep=1,unroll=1", "block=128,row=128,keep=0,unroll=2,online=1"},
    {"cluster=2,block=32,row=32,keep=1,unroll=1", "cluster=4,block=32,row=32,keep=0,unroll=2",
     "cluster=8,block=32,row=32,keep=2,unroll=1",
     "cluster=2,block=64,row=64,keep=1,unroll=2,online=1"},
    {"block=64,row=64,keep=0,shared=2,unroll=1,async=1",
     "block=32,row=16,keep=1,shared=1,unroll=2,resident=1",
     "cluster=2,block=32,row=32,keep=0,shared=2,unroll=1,async=1,online=1",
     "block=128,row=128,keep=1,shared=3,unroll=1,async=1,resident=1"},
    {"split=2,block=32,row=32,unroll=1", "split=16,block=1,row=1,unroll=2,online=1",
     "split=4,block=64,row=64,unroll=1,online=1", "split=64,block=32,row=32,unroll=1"},
};

/* Reductions of all kinds in several stages, outputs of a row and of its elements; one program has
 * the odd lengths of a kind and the other the even ones. */
static const char *const texts[] = {
    "in x, w: column\n"
    "m = max(x); e = exp(x - m); y = e / sum(e) * w; a = argmax(x); l = logsumexp(x)",
    "in x, s: row\n"
    "z = (x - mean(x)) * s + pick(x, argmin(x)) + row(); p = pick(x * x, cols() - 1)\n"
    "q = select(any(x > 1.99) or all(x < 1), amin(x), 7)"};

/* Vectors of at most 8 elements, so that a thread's registers hold what it keeps: rows that are no
 * whole number of them have some that are partly in the row. */
static const char *with_vector(const char *config, int64_t length, char out[128])
{
    int vec = length % 8 == 0 || length > 14 ? 8 : length % 4 == 0 ? 4 : length % 2 == 0 ? 2 : 1;
    if (!*config) return NULL; /* the default rule */
    snprintf(out, 128, "%s,vec=%d", config, vec);
    return out;
}

/* One element in 64 is -inf, in row 2 nearly all; row 1 has NaN where it is long enough. */
static double special(size_t i, int64_t row, int64_t col)
{
    double v = row_wave(i, row, col);
    if (i == 0 && row == 1 && col % 61 == 60) return NAN;
    return i == 0 && (v < -1.94 || (row == 2 && col % 97)) ? -INFINITY : v;
}

static void lengths(int64_t *first, int64_t *last)
{
    const char *given = getenv("EIDER_TEST_LENGTHS");
    char *end;
    *first = 1;
    *last = LAST;
    if (!given) return;
    *first = strtoll(given, &end, 10);
    *last = *end == '-' ? strtoll(end + 1, NULL, 10) : *first;
}

static void every_length_in_every_kind_of_schedule(void **state)
{
    int64_t first, last;
    char config[128];
    lengths(&first, &last);
    for (int64_t length = first + part, n = 1; length <= last; length += n_parts, n++) {
        for (size_t k = 0; k < COUNT(kinds); k++) {
            struct row_call c = {
                .text = texts[(length + (int64_t)k) % 2],
                .config = with_vector(kinds[k][(length / 3 + (int64_t)k) % 4], length, config),
                .math = EIDER_MATH_FAST,
                .rows = 3,
                .cols = length,
                .fill = row_wave};
            row_check(c, 2e-6, 1);
            c.fill = special;
            row_check(c, 2e-6, 1);
        }
        if (n % KEPT) continue;
        row_tear_down(state);
        row_set_up(state);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_in_every_kind_of_schedule),
    };
    return cmocka_run_group_tests_name("row sweep", tests, row_set_up, row_tear_down);
}

/* Nobody has a thread yet. */
int main(void)
{
    pid_t children[PARTS_MAX];
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n_failed = 0, n_children = 0, status;
    n_parts = n_cores < 1 ? 1 : n_cores > PARTS_MAX ? PARTS_MAX : n_cores;
    for (part = n_parts - 1; part > 0; part--) {
        pid_t child = fork();
        if (child == 0) _exit(run() != 0);
        if (child < 0) return 1;
        children[n_children++] = child;
    }
    n_failed = run();
    for (int i = 0; i < n_children; i++)
        n_failed += waitpid(children[i], &status, 0) < 0 || status != 0;
    return n_failed != 0;
}
