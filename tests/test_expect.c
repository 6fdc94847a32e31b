/* test_expect.c -- budgets in machine code of every activation, forward and backward.
 *
 * Without a GPU: the rows of expect.def, compiled for sm_90.  test_budget.c has the same for
 * graphs, for machines without NVIDIA's tools.
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "support_sass.h"

static const struct {
    const char *program, *forward, *budget;
} rows[] = {
#define EXPECT(program, forward, budget) {program, forward, budget},
#include "expect.def"
};

#define N_ROWS (sizeof rows / sizeof rows[0])

/* nvdisasm takes most of a second, so threads share the rows.  Nothing that threads call may
 * fail a test: they only count. */
struct work {
    eider_context *ctx;
    atomic_size_t next;
    atomic_int broken;
};

static void check_claims(struct work *w, const eider_sass *sass, const char *name, size_t row)
{
    eider_sass_claim claim;
    for (size_t i = 0;; i++) {
        if (eider_sass_expect(sass, rows[row].budget, i, &claim) != EIDER_OK) {
            print_error("%s\n", eider_error());
            w->broken++;
            return;
        }
        if (!claim.name[0]) return;
        if (claim.holds) continue;
        print_error("%s: %s is %g, not %s %g\n", name, claim.name, claim.got, claim.relation,
                    claim.want);
        w->broken++;
    }
}

static void check(struct work *w, const char *program, int with_gradient, size_t row)
{
    struct support_sass how = {.target = "sm_90",
                               .math = EIDER_MATH_APPROX,
                               .type = EIDER_F32,
                               .with_gradient = with_gradient};
    char name[160];
    eider_sass *sass = NULL;
    snprintf(name, sizeof name, "%s%s", with_gradient ? "gradient of " : "", program);
    if (support_sass_try(w->ctx, program, &how, &sass) == EIDER_OK) {
        check_claims(w, sass, name, row);
    } else {
        print_error("%s: %s\n", name, eider_error());
        w->broken++;
    }
    eider_sass_release(sass);
}

static void *run(void *arg)
{
    struct work *w = arg;
    for (size_t i = w->next++; i < 2 * N_ROWS; i = w->next++) {
        size_t row = i / 2;
        if (i % 2 == 0)
            check(w, rows[row].program, 0, row);
        else if (rows[row].forward[0])
            check(w, rows[row].forward, 1, row);
    }
    return NULL;
}

static void activations_and_derived_gradients_keep_their_budgets(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct work w = {0};
    if (!support_sass_has_tools()) skip();
    eider_context_options options = {.cache_dir = "", .cache_path = ""};
    assert_int_equal(eider_context_create(&options, &w.ctx), EIDER_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &w), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    eider_context_destroy(w.ctx);
    assert_int_equal(w.broken, 0);
}

static void every_activation_has_a_budget(void **state)
{
    (void)state;
    char call[EIDER_NAME_BYTES + 2];
    for (size_t i = 0; eider_activation_row(i); i++) {
        int found = 0;
        snprintf(call, sizeof call, " %s(", eider_activation_row(i)->name);
        for (size_t k = 0; k < N_ROWS; k++) found |= strstr(rows[k].program, call) != NULL;
        if (!found) fail_msg("%s has no row in expect.def", eider_activation_row(i)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation_has_a_budget),
        cmocka_unit_test(activations_and_derived_gradients_keep_their_budgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
