/* test_graph.c -- graphs of nodes: sharing, sticking failures, operands, comparison. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "ops.h"

static struct eider_graph *create(void)
{
    eider_allocator heap = eider_memory_default((eider_allocator){0});
    struct eider_graph *g = NULL;
    assert_int_equal(eider_graph_create(&heap, &g), EIDER_OK);
    return g;
}

static void equal_nodes_have_equal_ids(void **state)
{
    (void)state;
    struct eider_graph *g = create();
    eider_node x = eider_graph_input(g, "x", -1), y = eider_graph_input(g, "y", -1);
    eider_node sum = eider_graph_binary(g, EIDER_OP_add, x, y);
    assert_int_equal(eider_graph_binary(g, EIDER_OP_add, x, y), sum);
    assert_int_not_equal(eider_graph_binary(g, EIDER_OP_add, y, x), sum);
    assert_int_not_equal(eider_graph_binary(g, EIDER_OP_sub, x, y), sum);
    assert_int_not_equal(eider_graph_number(g, 0.0), eider_graph_number(g, -0.0));
    assert_int_not_equal(eider_graph_number(g, 1.0), eider_graph_integer(g, 1));
    assert_int_equal(eider_graph_number(g, NAN), eider_graph_number(g, -NAN));
    for (int i = 0; i < 5000; i++) eider_graph_integer(g, i);
    assert_int_equal(eider_graph_binary(g, EIDER_OP_add, x, y), sum);
    for (eider_node id = 1; id < g->n_cells; id++)
        for (uint32_t k = 0; k < g->cells[id].n_args; k++)
            assert_true(eider_graph_args(g, id)[k] < id);
    eider_graph_destroy(g);
}

static void the_first_failure_sticks(void **state)
{
    (void)state;
    struct eider_graph *g = create();
    eider_node x = eider_graph_input(g, "x", -1);
    assert_int_equal(eider_graph_input(g, "x", -1), 0);
    assert_string_equal(eider_error(), "the operand 'x' is declared twice");
    assert_int_equal(eider_graph_fail(g, EIDER_TYPE, "a consequence"), 0);
    assert_int_equal(g->status, EIDER_BAD_ARG);
    assert_string_equal(eider_error(), "the operand 'x' is declared twice");
    assert_int_equal(eider_graph_unary(g, EIDER_OP_exp, x), 0);
    assert_int_equal(eider_graph_output(g, "o", x, -1), 0);
    eider_graph_destroy(g);

    g = create();
    assert_int_equal(eider_graph_unary(g, EIDER_OP_exp, 0), 0);
    assert_int_equal(g->status, EIDER_OK);
    eider_graph_destroy(g);
}

static void bad_operands_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "1x", "a b", "x-y", "\xc3\xa4", "nan", "not", "_"};
    char longest[EIDER_NAME_BYTES + 1];
    memset(longest, 'x', sizeof longest);
    longest[EIDER_NAME_BYTES] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct eider_graph *g = create();
        assert_int_equal(eider_graph_input(g, names[i], -1), 0);
        assert_int_equal(g->status, EIDER_BAD_ARG);
        eider_graph_destroy(g);
    }
    struct eider_graph *g = create();
    assert_int_equal(eider_graph_input(g, longest, -1), 0);
    eider_graph_destroy(g);
    g = create();
    assert_int_not_equal(eider_graph_input(g, longest + 1, -1), 0);
    assert_int_equal(eider_graph_scalar(g, "s", 77), 0);
    assert_string_equal(eider_error(), "s: 77 is not an element type");
    eider_graph_destroy(g);
    g = create();
    eider_graph_output(g, "o", eider_graph_number(g, 1), -1);
    assert_int_equal(eider_graph_input(g, "x", -1), 0);
    assert_int_equal(g->status, EIDER_BAD_ARG);
    eider_graph_destroy(g);
}

static void limits_are_reported(void **state)
{
    (void)state;
    struct eider_graph *g = create();
    for (int i = 0; i < EIDER_OPERANDS_MAX; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        assert_int_not_equal(eider_graph_input(g, name, -1), 0);
    }
    assert_int_equal(eider_graph_input(g, "more", -1), 0);
    assert_int_equal(g->status, EIDER_TOO_LARGE);
    eider_graph_destroy(g);
    g = create();
    for (int64_t i = 0; g->status == EIDER_OK && i < 100000; i++) eider_graph_integer(g, i);
    assert_int_equal(g->status, EIDER_TOO_LARGE);
    assert_int_equal(g->n_cells, EIDER_NODES_MAX);
    assert_string_equal(eider_error(), "the program needs more than 65536 nodes");
    eider_graph_destroy(g);
}

static void copies_drop_dead_nodes(void **state)
{
    (void)state;
    struct eider_graph *g = create(), *copy = NULL;
    eider_node x = eider_graph_input(g, "x", EIDER_BF16), unused = eider_graph_input(g, "u", -1);
    eider_node dead = eider_graph_unary(g, EIDER_OP_exp, x);
    eider_node live = eider_graph_unary(g, EIDER_OP_neg, x);
    eider_graph_output(g, "o", live, -1);
    uint8_t flags[16];
    eider_graph_live(g, flags);
    assert_true(flags[x] && flags[unused] && flags[live] && !flags[dead]);
    assert_int_equal(eider_graph_copy(g, &copy), EIDER_OK);
    assert_int_equal(copy->n_cells, g->n_cells - 1);
    assert_int_equal(copy->n_operands, 3);
    assert_int_equal(copy->operands[0].type, EIDER_BF16);
    assert_int_equal(copy->cells[copy->operands[2].node].op, EIDER_OP_neg);
    assert_true(eider_graph_equal(g, copy) && eider_graph_equal(copy, g));
    eider_graph_destroy(copy);
    eider_graph_destroy(g);
}

/* o = exp(x) * y, with its nodes in one order or the other and something changed. */
static struct eider_graph *example(int reversed, int change)
{
    struct eider_graph *g = create();
    eider_node x = eider_graph_input(g, change == 1 ? "z" : "x", -1);
    eider_node y = change == 2 ? eider_graph_scalar(g, "y", -1) : eider_graph_input(g, "y", -1);
    if (reversed) eider_graph_number(g, 7);
    eider_node tail = reversed ? eider_graph_unary(g, EIDER_OP_neg, y) : 0;
    eider_node e = eider_graph_unary(g, change == 3 ? EIDER_OP_exp2 : EIDER_OP_exp, x);
    if (!tail) tail = eider_graph_unary(g, EIDER_OP_neg, y);
    eider_node o = change == 4 ? eider_graph_binary(g, EIDER_OP_mul, tail, e)
                               : eider_graph_binary(g, EIDER_OP_mul, e, tail);
    if (change == 5) o = eider_graph_put(g, EIDER_OP_cast, &o, 1, EIDER_F16);
    if (change == 6) o = eider_graph_put(g, EIDER_OP_cast, &o, 1, EIDER_BF16);
    eider_graph_output(g, change == 7 ? "p" : "o", o, change == 8 ? EIDER_F16 : -1);
    if (change == 9) eider_graph_output(g, "p", o, -1);
    return g;
}

static int same_hash(const struct eider_graph *a, const struct eider_graph *b)
{
    struct eider_hash x = eider_graph_hash(a), y = eider_graph_hash(b);
    return x.low == y.low && x.high == y.high;
}

static void comparison_and_hash_see_meaning_not_ids(void **state)
{
    (void)state;
    struct eider_graph *a = example(0, 0), *b = example(1, 0);
    assert_true(eider_graph_equal(a, b) && eider_graph_equal(b, a) && same_hash(a, b));
    for (int change = 1; change <= 9; change++) {
        struct eider_graph *c = example(0, change), *d = example(1, change);
        assert_true(eider_graph_equal(c, d) && same_hash(c, d));
        assert_false(eider_graph_equal(a, c) || eider_graph_equal(c, a) || same_hash(a, c));
        eider_graph_destroy(c);
        eider_graph_destroy(d);
    }
    /* Keys on disk outlive the process: this value changes only on purpose. */
    struct eider_hash hash = eider_graph_hash(a);
    assert_true(hash.low == UINT64_C(0x163540f992dede2d));
    eider_graph_destroy(a);
    eider_graph_destroy(b);
}

static int calls_left;

static void *resize_failing(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return calls_left-- > 0 ? realloc(ptr, new_size) : NULL;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    eider_allocator a = {resize_failing, NULL};
    for (int n = 0;; n++) {
        struct eider_graph *g = NULL, *copy = NULL;
        calls_left = n;
        eider_status status = eider_graph_create(&a, &g);
        if (status == EIDER_OK) {
            eider_node x = eider_graph_input(g, "x", -1);
            for (int i = 0; i < 500; i++) x = eider_graph_unary(g, EIDER_OP_exp, x);
            eider_graph_output(g, "o", x, -1);
            status = g->status;
        }
        if (status == EIDER_OK) status = eider_graph_copy(g, &copy);
        eider_graph_destroy(copy);
        eider_graph_destroy(g);
        if (status == EIDER_OK) break;
        assert_int_equal(status, EIDER_OOM);
        assert_true(n < 1000);
    }
}

static void primitives_are_found_by_name(void **state)
{
    (void)state;
    assert_int_equal(eider_ops_find("mul"), EIDER_OP_mul);
    assert_int_equal(eider_ops_find("where"), EIDER_OP_select);
    assert_int_equal(eider_ops_find("input"), EIDER_OP_poison);
    assert_int_equal(eider_ops_find("m_tanh"), EIDER_OP_poison);
    assert_int_equal(eider_ops_find("silu"), EIDER_OP_poison);
    for (int op = 0; op < EIDER_OP_COUNT; op++)
        if (eider_ops[op].arity > 0) assert_int_equal(eider_ops_find(eider_ops[op].name), op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_nodes_have_equal_ids),
        cmocka_unit_test(the_first_failure_sticks),
        cmocka_unit_test(bad_operands_are_refused),
        cmocka_unit_test(limits_are_reported),
        cmocka_unit_test(copies_drop_dead_nodes),
        cmocka_unit_test(comparison_and_hash_see_meaning_not_ids),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(primitives_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
