/* test_infer.c -- types of nodes from types of operands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "activations.h"
#include "infer.h"
#include "parse.h"

static const char *const vtypes[] = {"none", "bool", "i32", "i64", "f32", "f64"};

/* Infers with operand types given as text, "bf16 f32 bool". */
static eider_status infer(const char *text, const char *types, int wide, char *out)
{
    eider_allocator heap = eider_memory_default((eider_allocator){0});
    struct eider_graph *g = NULL, *expanded = NULL;
    eider_dtype dtypes[EIDER_OPERANDS_MAX];
    uint8_t inferred[1024];
    uint32_t n = 0;
    if (eider_parse(&heap, text, &g) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    assert_int_equal(eider_activation_expand(g, &expanded), EIDER_OK);
    while (*types) {
        char name[8] = "";
        size_t length = strcspn(types, " ");
        memcpy(name, types, length);
        assert_int_equal(eider_dtype_parse(name, &dtypes[n++]), EIDER_OK);
        types += length + (types[length] == ' ');
    }
    assert_int_equal(n, expanded->n_operands);
    eider_status status = eider_infer(expanded, dtypes, wide, inferred);
    if (status == EIDER_OK) {
        *out = '\0';
        for (eider_node id = 1; id < expanded->n_cells; id++) {
            assert_in_range(inferred[id], EIDER_V_BOOL, EIDER_V_F64);
            strcat(out, id > 1 ? " " : "");
            strcat(out, vtypes[inferred[id]]);
        }
    }
    eider_graph_destroy(g);
    eider_graph_destroy(expanded);
    return status;
}

static void assert_types(const char *text, const char *types, int wide, const char *want)
{
    char got[4096] = "";
    if (infer(text, types, wide, got) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    if (strcmp(got, want) != 0) fail_msg("%s of %s: %s, not %s", text, types, got, want);
}

static void assert_rejected(const char *text, const char *types, const char *message)
{
    char got[4096] = "";
    assert_int_equal(infer(text, types, 0, got), EIDER_TYPE);
    assert_string_equal(eider_error(), message);
}

/* The types are those of the nodes in the order in which the text makes them. */
static void arithmetic_is_in_the_wider_type(void **state)
{
    (void)state;
    assert_types("o = x * y", "bf16 f16 bf16", 0, "f32 f32 f32");
    assert_types("o = x * y", "bf16 f64 bf16", 0, "f32 f64 f64");
    assert_types("o = x * y", "i32 i64 i64", 0, "i32 i64 i64");
    assert_types("o = x * y", "i64 e4m3 f32", 0, "i64 f32 f32");
    assert_types("o = x / y", "i32 i32 f32", 0, "i32 i32 f32");
    assert_types("o = exp(x)", "i64 f32", 0, "i64 f32");
    assert_types("o = abs(x)", "i64 i64", 0, "i64 i64");
    assert_types("o = select(x < y, x, y)", "i32 f64 f64", 0, "i32 f64 bool f64");
    assert_types("o = not (x < y)", "i32 f64 bool", 0, "i32 f64 bool bool");
    assert_types("o = select(x, x, y)", "bool bool bool", 0, "bool bool bool");
    assert_types("scalar a; o = x * a", "f64 bf16 f16", 0, "f64 f32 f64");
    assert_types("o = isnan(x)", "e5m2 bool", 0, "f32 bool");
}

static void literals_take_the_type_of_what_they_meet(void **state)
{
    (void)state;
    assert_types("o = x * 2", "i64 i64", 0, "i64 i64 i64");
    assert_types("o = x * 2", "bf16 bf16", 0, "f32 f32 f32");
    assert_types("o = x * 2.0", "i32 f32", 0, "i32 f32 f32");
    assert_types("o = x * 0.1", "f64 f64", 0, "f64 f64 f64");
    assert_types("o = 1.0 / 3.0 * x", "f64 f64", 0, "f64 f64 f64 f64 f64");
    assert_types("o = 2 + 3 < x", "i64 bool", 0, "i64 i64 i64 i64 bool");
    assert_types("o = 1.5", "f64", 0, "f64");
    assert_types("o = 1", "f16", 0, "f32");
    assert_types("o = 7", "i64", 0, "i64");
    assert_types("o = 1 / 2", "i32", 0, "f32 f32 f32");
    assert_types("o = select(true, x, 0)", "bf16 bf16", 0, "f32 bool f32 f32");
    assert_types("o = x * 0.1; p = y * 0.1", "f32 f64 f32 f64", 0, "f32 f64 f32 f64 f64");
}

static void casts_name_the_type(void **state)
{
    (void)state;
    assert_types("o = cast(x, bf16) + 1", "f64 f32", 0, "f64 f32 f32 f32");
    assert_types("o = cast(x, f64)", "f32 f64", 0, "f32 f64");
    assert_types("o = cast(x, i32)", "f32 i32", 0, "f32 i32");
    assert_types("o = cast(x, bool) or x > 0", "f32 bool", 0, "f32 bool f32 bool bool");
    assert_types("o = cast(0.1, f64)", "f64", 0, "f64 f64");
}

static void wide_means_f64_wherever_f32_would_be(void **state)
{
    (void)state;
    assert_types("o = exp(x) * 2 + y", "bf16 i32 bf16", 1, "f64 f64 f64 f64 i32 f64");
    assert_types("o = cast(x, bf16)", "f32 f32", 1, "f64 f64");
    assert_types("o = silu(x)", "f16 f16", 1, "f64 f64 f64 f64 f64");
}

static void misfits_name_the_operation_and_its_types(void **state)
{
    (void)state;
    assert_rejected("o = (x < y) * 2", "f32 f32 f32",
                    "mul of bool, an integer: a bool becomes a number by select only");
    assert_rejected("o = x + y", "bool bf16 f32",
                    "add of bool, f32: a bool becomes a number by select only");
    assert_rejected("o = exp(x)", "bool f32",
                    "exp of bool: a bool becomes a number by select only");
    assert_rejected("o = x and y", "f32 bool bool",
                    "and of f32, bool: its operands are bools, such as comparisons");
    assert_rejected("o = select(x, x, y)", "f32 f32 f32",
                    "select of f32, f32, f32: its condition is a bool, such as a comparison");
    assert_rejected("o = select(x < y, x < y, y)", "f32 f32 f32",
                    "select of bool, bool, f32: both values are bools, or none is");
    assert_rejected("o = cast(x < y, f32)", "f32 f32 f32",
                    "cast of bool: a bool becomes a number by select only");
    assert_rejected("o = x < y", "f32 f32 f32",
                    "output o: a bool cannot be stored as f32; a bool becomes a number by select "
                    "only");
}

static void calls_must_be_expanded_first(void **state)
{
    (void)state;
    eider_allocator heap = eider_memory_default((eider_allocator){0});
    struct eider_graph *g = NULL;
    eider_dtype dtypes[2] = {EIDER_F32, EIDER_F32};
    uint8_t types[16];
    assert_int_equal(eider_parse(&heap, "o = silu(x)", &g), EIDER_OK);
    assert_int_equal(eider_infer(g, dtypes, 0, types), EIDER_BAD_ARG);
    eider_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_is_in_the_wider_type),
        cmocka_unit_test(literals_take_the_type_of_what_they_meet),
        cmocka_unit_test(casts_name_the_type),
        cmocka_unit_test(wide_means_f64_wherever_f32_would_be),
        cmocka_unit_test(misfits_name_the_operation_and_its_types),
        cmocka_unit_test(calls_must_be_expanded_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
