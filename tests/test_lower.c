/* test_lower.c -- graphs become IR that means what eval.c says, on both machines. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "parse.h"
#include "passes.h"
#include "support_ll.h"
#include "support_lower.h"

#define N_POINTS 1024

/* ---- A program of all operations --------------------------------------------------- */

static const struct {
    const char *name;
    eider_dtype type;
} number_types[] = {{"f32", EIDER_F32}, {"f64", EIDER_F64}, {"i32", EIDER_I32}, {"i64", EIDER_I64}};

/* Inputs a, b, c of `type` and p, q of bool; one output per operation that takes them. */
static struct eider_graph *all_operations(eider_dtype type, eider_dtype *dtypes)
{
    struct eider_graph *g;
    eider_node v[5];
    static const char *const names[] = {"a", "b", "c", "p", "q"};
    assert_int_equal(eider_graph_create(&ll_allocator, &g), EIDER_OK);
    for (int i = 0; i < 5; i++) {
        v[i] = eider_graph_input(g, names[i], -1);
        dtypes[i] = i < 3 ? type : EIDER_BOOL;
    }
    for (int op = 0; op < EIDER_OP_COUNT; op++) {
        const struct eider_op_row *row = &eider_ops[op];
        eider_node select[3] = {v[3], v[0], v[1]};
        const eider_node *args = row->rule == EIDER_RULE_LOGIC    ? v + 3
                                 : row->rule == EIDER_RULE_SELECT ? select
                                                                  : v;
        if (row->arity < 1 || eider_ops_over_rows((enum eider_op)op)) continue;
        int is_bool = row->rule == EIDER_RULE_BOOL || row->rule == EIDER_RULE_LOGIC;
        int is_float = type == EIDER_F64 || type == EIDER_F32;
        dtypes[g->n_operands] = is_bool                                      ? EIDER_BOOL
                                : row->rule == EIDER_RULE_FLOAT && !is_float ? EIDER_F32
                                                                             : type;
        char name[EIDER_NAME_BYTES]; /* "and" by itself is a word of the language */
        snprintf(name, sizeof name, "of_%s", row->name);
        eider_graph_output(
            g, name, eider_graph_put(g, (enum eider_op)op, args, (uint32_t)row->arity, 0), -1);
    }
    if (g->status != EIDER_OK) fail_msg("%s", eider_error());
    return g;
}

/* ---- Values -------------------------------------------------------------------------- */

static const double specials[] = {0.0,  -0.0,     1,         -1,   INFINITY, -INFINITY, NAN, 0.5,
                                  -2.5, 0x1p-130, -0x1p-149, 1e30, -1e30,    3,         7,   100};

#define N_SPECIALS (sizeof specials / sizeof *specials)

/* Point i of operand k: all pairs of specials first, then numbers of many sizes. */
static double point(eider_dtype type, size_t i, int k)
{
    size_t n = N_SPECIALS;
    size_t pick[3] = {i % n, i / n % n, (i / n + 3 * i) % n};
    double u = (double)((i * 2654435761u + (size_t)k * 40503u * 97u) % 65537) / 65537 - 0.5;
    if (type == EIDER_BOOL) return (double)(i >> k & 1);
    if (type == EIDER_I32 || type == EIDER_I64) return floor(u * (i % 3 ? 2e5 : 20));
    return i < n * n ? specials[pick[k]] : u * exp2((double)(i % 12) - 4);
}

static size_t size_of(eider_dtype type)
{
    enum eider_vtype v = eider_vtype_of(type);
    return v == EIDER_V_BOOL ? 1 : v == EIDER_V_F32 || v == EIDER_V_I32 ? 4 : 8;
}

static void set(void *array, eider_dtype type, size_t i, double v)
{
    switch (eider_vtype_of(type)) {
    case EIDER_V_BOOL:
        ((uint8_t *)array)[i] = v != 0;
        break;
    case EIDER_V_I32:
        ((int32_t *)array)[i] = (int32_t)v;
        break;
    case EIDER_V_I64:
        ((int64_t *)array)[i] = (int64_t)v;
        break;
    case EIDER_V_F64:
        ((double *)array)[i] = v;
        break;
    default:
        ((float *)array)[i] = (float)v;
        break;
    }
}

static double get(const void *array, eider_dtype type, size_t i)
{
    switch (eider_vtype_of(type)) {
    case EIDER_V_BOOL:
        return ((const uint8_t *)array)[i];
    case EIDER_V_I32:
        return ((const int32_t *)array)[i];
    case EIDER_V_I64:
        return (double)((const int64_t *)array)[i];
    case EIDER_V_F64:
        return ((const double *)array)[i];
    default:
        return (double)((const float *)array)[i];
    }
}

/* ---- Running, next to eval.c ------------------------------------------------------------ */

struct comparison {
    const struct eider_graph *program;
    const eider_dtype *dtypes;
    int is_gpu;
    void *arrays[EIDER_OPERANDS_MAX];
};

static void make_arrays(struct comparison *c)
{
    for (uint32_t k = 0; k < c->program->n_operands; k++) {
        c->arrays[k] = calloc(N_POINTS, size_of(c->dtypes[k]));
        assert_non_null(c->arrays[k]);
        for (size_t i = 0; i < N_POINTS; i++)
            if (c->program->operands[k].kind != EIDER_OUTPUT)
                set(c->arrays[k], c->dtypes[k], i, point(c->dtypes[k], i, (int)k % 3));
    }
}

/* What eval.c computes in double may not fit the type, where integers wrap. */
static int is_comparable(eider_dtype type, double want)
{
    double limit = type == EIDER_I32 ? 0x1p31 : 0x1p53;
    return (type != EIDER_I32 && type != EIDER_I64) || fabs(want) < limit;
}

/* Sine and cosine of large numbers have no meaning on a GPU (docs/NUMERICS.md). */
static int is_defined(const struct comparison *c, const char *name, double x)
{
    int is_circular = strcmp(name, "of_sin") == 0 || strcmp(name, "of_cos") == 0;
    return !(c->is_gpu && is_circular && fabs(x) > 0x1p20 && isfinite(x));
}

static void compare(const struct comparison *c, double bound)
{
    const struct eider_graph *g = c->program;
    for (size_t i = 0; i < N_POINTS; i++) {
        double in[EIDER_OPERANDS_MAX], out[EIDER_OPERANDS_MAX];
        uint32_t n_in = 0;
        for (uint32_t k = 0; k < g->n_operands; k++)
            if (g->operands[k].kind != EIDER_OUTPUT)
                in[n_in++] = get(c->arrays[k], c->dtypes[k], i);
        assert_int_equal(eider_eval(g, in, out), EIDER_OK);
        for (uint32_t k = n_in; k < g->n_operands; k++) {
            double got = get(c->arrays[k], c->dtypes[k], i), want = out[k - n_in];
            int is_float = c->dtypes[k] == EIDER_F32 || c->dtypes[k] == EIDER_F64;
            if (!is_comparable(c->dtypes[k], want)) continue;
            if (!is_defined(c, g->operands[k].name, in[0])) continue;
            double ulps =
                is_float ? lowered_ulps(got, want, c->dtypes[k] == EIDER_F64) : fabs(got - want);
            if (!(ulps <= (is_float ? bound : 0)))
                fail_msg("%s of %a, %a, %a: got %a, want %a, %g ulp", g->operands[k].name, in[0],
                         in[1], in[2], got, want, ulps);
        }
    }
}

static void check_program(const struct eider_graph *g, const eider_dtype *dtypes, eider_math math,
                          const struct lowered_options *options, double bound)
{
    struct eider_lowered l;
    struct lowered_code code;
    struct comparison c = {.program = g, .dtypes = dtypes, .is_gpu = options->gpu_math};
    if (eider_lower_plan(g, dtypes, math, &l) != EIDER_OK ||
        lowered_build(&l, options, &code) != EIDER_OK)
        fail_msg("%s", eider_error());
    make_arrays(&c);
    lowered_run(&code, c.arrays, N_POINTS);
    compare(&c, bound);
    for (uint32_t k = 0; k < g->n_operands; k++) free(c.arrays[k]);
    lowered_release(&code);
    eider_lower_release(&l);
}

/* Bounds in ulp.  In f64, eval.c itself is a few ulp away in some functions, and the GPU's
 * pow is good to 2^-40. */
#define F64_BOUND 4096

static void check_all_operations(eider_math math, const struct lowered_options *options,
                                 double f32_bound, double f64_bound)
{
    for (size_t t = 0; t < sizeof number_types / sizeof *number_types; t++) {
        eider_dtype dtypes[EIDER_OPERANDS_MAX];
        struct eider_graph *g = all_operations(number_types[t].type, dtypes);
        int is_f64 = number_types[t].type == EIDER_F64;
        check_program(g, dtypes, math, options, is_f64 ? f64_bound : f32_bound);
        eider_graph_destroy(g);
    }
}

static void every_operation_on_the_cpu_means_what_eval_says(void **state)
{
    (void)state;
    struct lowered_options options = {.contract = 1};
    check_all_operations(EIDER_MATH_FAST, &options, 4, F64_BOUND);
    options.width = 1;
    check_all_operations(EIDER_MATH_FAST, &options, 4, F64_BOUND);
}

static void every_operation_in_exact_is_the_nearest_f32(void **state)
{
    (void)state;
    struct lowered_options options = {.contract = 1};
    check_all_operations(EIDER_MATH_EXACT, &options, 0.501, F64_BOUND);
    options.gpu_math = 1;
    check_all_operations(EIDER_MATH_EXACT, &options, 0.501, F64_BOUND);
}

static void every_operation_with_gpu_math_means_what_eval_says(void **state)
{
    (void)state;
    struct lowered_options options = {.gpu_math = 1, .contract = 1};
    check_all_operations(EIDER_MATH_FAST, &options, 6, F64_BOUND);
}

/* ---- PTX ------------------------------------------------------------------------------------ */

static int has_assembler(void)
{
    struct eider_assembler_info info;
    if (eider_assembler_find("auto", &info) == EIDER_OK) return 1;
    fprintf(stderr, "SKIPPED (no assembler): the PTX is not assembled\n");
    return 0;
}

static void assemble(const struct eider_blob *ptx)
{
    struct eider_assemble_job job = {.target = {.sm = 80}, .contract = 1, .deadline_ms = 60000};
    struct eider_assemble_result result;
    if (eider_assemble(&ll_allocator, ptx, &job, &result) != EIDER_OK)
        fail_msg("%s", eider_error());
    eider_blob_release(&ll_allocator, &result.cubin);
}

static void every_operation_lowers_to_ptx_that_assembles(void **state)
{
    (void)state;
    static const eider_math modes[] = {EIDER_MATH_APPROX, EIDER_MATH_FAST, EIDER_MATH_EXACT};
    int can_assemble = has_assembler();
    for (size_t t = 0; t < sizeof number_types / sizeof *number_types; t++)
        for (size_t m = 0; m < 3; m++) {
            eider_dtype dtypes[EIDER_OPERANDS_MAX];
            struct eider_graph *g = all_operations(number_types[t].type, dtypes);
            struct eider_lowered l;
            struct lowered_options options = {.ftz = m == 1, .contract = m != 1};
            struct eider_blob ptx;
            if (eider_lower_plan(g, dtypes, modes[m], &l) != EIDER_OK ||
                lowered_ptx(&l, &options, &ptx) != EIDER_OK)
                fail_msg("%s: %s", number_types[t].name, eider_error());
            assert_null(strstr(ptx.data, ".extern"));
            if (can_assemble) assemble(&ptx);
            eider_blob_release(&ll_allocator, &ptx);
            eider_lower_release(&l);
            eider_graph_destroy(g);
        }
    if (!can_assemble) skip();
}

static void ptx_of(const char *text, const char *types, eider_math math,
                   const struct lowered_options *options, struct eider_blob *ptx)
{
    struct eider_lowered l;
    if (lowered_plan(text, types, math, &l) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    if (lowered_ptx(&l, options, ptx) != EIDER_OK) fail_msg("%s: %s", text, eider_error());
    eider_lower_release(&l);
}

/* At most so many instructions in math=approx.  Limits at infinities (max.NaN, min.NaN) are
 * not counted. */
static const struct budget {
    const char *text, *types;
    int tanh, mul, fma, add;
} budgets[] = {
    {"out = silu(x)", "bf16 bf16", 1, 1, 1, 0},
    {"out = swiglu(x, y)", "bf16 bf16 bf16", 1, 2, 1, 0},
    {"out = swiglu_oai(x, y)", "bf16 bf16 bf16", 1, 2, 2, 0},
    {"out = swiglu_oai(x, y, 1.702, 7.0)", "bf16 bf16 bf16", 1, 2, 2, 0},
    {"out = glu(x, y)", "bf16 bf16 bf16", 1, 2, 1, 0},
    {"out = gelu_tanh(x)", "bf16 bf16", 1, 3, 2, 0},
    {"out = geglu(x, y)", "bf16 bf16 bf16", 1, 4, 2, 0},
    {"out = gelu_erf(x)", "bf16 bf16", 1, 3, 4, 0},
    {"out = quick_gelu(x)", "bf16 bf16", 1, 2, 1, 0},
    {"dx, out = dtanh(x, dout)", "bf16 bf16 bf16 bf16", 1, 1, 1, 0},
    {"dx, out = dsilu(x, dout)", "bf16 bf16 bf16 bf16", 1, 3, 3, 0},
    {"dx, out = dquick_gelu(x, dout)", "bf16 bf16 bf16 bf16", 1, 3, 3, 0},
    {"dx, out = dgelu_tanh(x, dout)", "bf16 bf16 bf16 bf16", 1, 5, 5, 0},
    {"dx, dy, out = dswiglu(x, y, d)", "bf16 bf16 bf16 bf16 bf16 bf16", 1, 5, 3, 0},
    {"dx, dy, out = dswiglu_oai(x, y, d)", "bf16 bf16 bf16 bf16 bf16 bf16", 1, 4, 5, 0},
    {"dx, dy, out = dglu(x, y, d)", "bf16 bf16 bf16 bf16 bf16 bf16", 1, 4, 1, 1},
    {"dx, dy, out = dgeglu(x, y, d)", "bf16 bf16 bf16 bf16 bf16 bf16", 1, 8, 5, 0},
};

static void approx_keeps_its_budgets(void **state)
{
    (void)state;
    struct lowered_options options = {.contract = 1};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        const struct budget *b = &budgets[i];
        struct eider_blob ptx;
        ptx_of(b->text, b->types, EIDER_MATH_AUTO, &options, &ptx);
        const char *text = ptx.data;
        int tanh = lowered_count(text, "tanh.approx.f32 "),
            mul = lowered_count(text, "mul.rn.f32 ");
        int fma = lowered_count(text, "fma.rn.f32 ");
        int add = lowered_count(text, "add.rn.f32 ") + lowered_count(text, "sub.rn.f32 ");
        if (tanh > b->tanh || mul > b->mul || fma > b->fma || add > b->add)
            fail_msg("%s: %d tanh, %d mul, %d fma, %d add; allowed are %d, %d, %d, %d", b->text,
                     tanh, mul, fma, add, b->tanh, b->mul, b->fma, b->add);
        assert_null(strstr(text, "ex2."));
        eider_blob_release(&ll_allocator, &ptx);
    }
}

/* In fast, a sigmoid and its mirror image share their exponential. */
static void opposite_sigmoids_share_their_work(void **state)
{
    (void)state;
    static const char *const texts[] = {"out = sigmoid(x) * sigmoid(-x)",
                                        "out = sigmoid(2.0 * x) * sigmoid(-2.0 * x)"};
    struct lowered_options options = {.contract = 1};
    for (size_t i = 0; i < 2; i++) {
        struct eider_blob ptx;
        ptx_of(texts[i], "f32 f32", EIDER_MATH_FAST, &options, &ptx);
        assert_int_equal(lowered_count(ptx.data, "ex2.approx"), 1);
        assert_int_equal(lowered_count(ptx.data, "rcp.approx"), 1);
        eider_blob_release(&ll_allocator, &ptx);
    }
}

static void contraction_is_a_choice(void **state)
{
    (void)state;
    for (int contract = 0; contract < 2; contract++) {
        struct lowered_options options = {.contract = contract};
        struct eider_blob ptx;
        ptx_of("out = x * y + 1.5", "f32 f32 f32", EIDER_MATH_FAST, &options, &ptx);
        assert_int_equal(lowered_count(ptx.data, "fma.rn.f32"), contract);
        assert_int_equal(lowered_count(ptx.data, "mul.rn.f32"), !contract);
        eider_blob_release(&ll_allocator, &ptx);
    }
}

static void ftz_reaches_every_instruction(void **state)
{
    (void)state;
    struct lowered_options options = {.ftz = 1, .contract = 1};
    struct eider_blob ptx;
    ptx_of("out = exp2(x) / y + rsqrt(x * y)", "f32 f32 f32", EIDER_MATH_FAST, &options, &ptx);
    static const char *const forms[] = {"ex2.approx.ftz.f32", "div.full.ftz.f32",
                                        "rsqrt.approx.ftz.f32", "add.rn.ftz.f32"};
    for (size_t i = 0; i < 4; i++) assert_non_null(strstr(ptx.data, forms[i]));
    eider_blob_release(&ll_allocator, &ptx);
}

static void max_propagates_nan_in_one_instruction(void **state)
{
    (void)state;
    struct lowered_options options = {.contract = 1};
    struct eider_blob ptx;
    ptx_of("out = max(x, y)", "f32 f32 f32", EIDER_MATH_FAST, &options, &ptx);
    assert_int_equal(lowered_count(ptx.data, "max.NaN.f32"), 1);
    assert_int_equal(lowered_count(ptx.data, "setp"), 0);
    eider_blob_release(&ll_allocator, &ptx);
}

/* ---- Types meeting ---------------------------------------------------------------------- */

static const struct meeting {
    const char *text, *types;
    double in[3], want;
} meetings[] = {
    {"out = x + 1", "i32 i32", {41}, 42},
    {"out = x + 0.5", "i32 f32", {41}, 41.5},
    {"out = x / 2", "i32 f32", {7}, 3.5},
    {"out = x * y", "i32 i64 i64", {3, 0x1p40}, 3 * 0x1p40},
    {"out = x * y", "f32 f64 f64", {3, 0.1}, 3 * 0.1},
    {"out = x * 0.1", "f64 f64", {3}, 3 * 0.1},
    {"out = select(x < 3, 1.0, 2.0)", "i32 f32", {2}, 1},
    {"out = select(x < 2.5, 1.0, 2.0)", "i32 f32", {3}, 2},
    {"out = select(x == y, 1, 0)", "i64 i64 i32", {0x1p52 + 1, 0x1p52}, 0},
    {"out = cast(x, i32)", "f32 i32", {-2.75}, -2},
    {"out = cast(x, i32)", "f32 i32", {1e30}, INT32_MAX},
    {"out = cast(x, i32)", "f32 i32", {NAN}, 0},
    {"out = cast(x, i32)", "i64 i32", {-0x1p40}, INT32_MIN},
    {"out = cast(x, bf16)", "f32 f32", {1.005859375}, 1.0078125},
    {"out = cast(x, bf16) + 0.25", "i32 f32", {257}, 256.25},
    {"out = x", "f32 i32", {3.99}, 3},
    {"out = x", "i64 f32", {0x1p40}, 0x1p40},
    {"out = x > 1 and not (x > y)", "f32 f32 bool", {2, 3}, 1},
    {"out = max(x, 7)", "i64 i64", {-5}, 7},
    {"out = abs(x) + sign(x)", "i32 i32", {-5}, 4},
};

static void literals_and_types_meet_as_documented(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof meetings / sizeof *meetings; m++)
        for (int math = EIDER_MATH_FAST; math <= EIDER_MATH_EXACT; math++) {
            struct eider_lowered l;
            struct lowered_code code;
            struct lowered_options options = {.width = 1, .contract = 1};
            double slots[EIDER_OPERANDS_MAX] = {0};
            void *arrays[EIDER_OPERANDS_MAX] = {NULL};
            if (lowered_plan(meetings[m].text, meetings[m].types, (eider_math)math, &l) ||
                lowered_build(&l, &options, &code))
                fail_msg("%s: %s", meetings[m].text, eider_error());
            uint32_t n = l.graph->n_operands;
            for (uint32_t k = 0; k < n; k++) {
                arrays[k] = &slots[k];
                if (k + 1 < n) set(arrays[k], l.dtypes[k], 0, meetings[m].in[k]);
            }
            lowered_run(&code, arrays, 1);
            double got = get(arrays[n - 1], l.dtypes[n - 1], 0);
            if (got != meetings[m].want)
                fail_msg("%s [%s]: got %.17g, want %.17g", meetings[m].text, meetings[m].types, got,
                         meetings[m].want);
            lowered_release(&code);
            eider_lower_release(&l);
        }
}

/* ---- Memory ------------------------------------------------------------------------------- */

static int allocations_left;

static void *resize_failing(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size && allocations_left-- <= 0) return NULL;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

/* Plans with an allocator whose n-th allocation fails; 1 when it was not reached. */
static int plan_with(const struct eider_graph *g, const eider_dtype *dtypes, int n, eider_math math)
{
    struct eider_graph copy = *g;
    struct eider_lowered l;
    copy.allocator = (eider_allocator){resize_failing, NULL};
    allocations_left = n;
    eider_status status = eider_lower_plan(&copy, dtypes, math, &l);
    if (status == EIDER_OK)
        eider_lower_release(&l);
    else
        assert_int_equal(status, EIDER_OOM);
    return status == EIDER_OK;
}

static void running_out_of_memory_is_a_status(void **state)
{
    (void)state;
    static const eider_dtype dtypes[EIDER_OPERANDS_MAX] = {EIDER_BF16, EIDER_BF16, EIDER_BF16,
                                                           EIDER_BF16, EIDER_BF16, EIDER_BF16};
    struct eider_graph *g;
    assert_int_equal(eider_parse(&ll_allocator, "dx, dy, out = dswiglu(x, y, dout)", &g), EIDER_OK);
    for (int math = EIDER_MATH_APPROX; math <= EIDER_MATH_EXACT; math++) {
        int n = 0;
        while (!plan_with(g, dtypes, n, (eider_math)math)) n++;
        assert_true(n > 10);
    }
    eider_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_on_the_cpu_means_what_eval_says),
        cmocka_unit_test(every_operation_in_exact_is_the_nearest_f32),
        cmocka_unit_test(every_operation_with_gpu_math_means_what_eval_says),
        cmocka_unit_test(every_operation_lowers_to_ptx_that_assembles),
        cmocka_unit_test(approx_keeps_its_budgets),
        cmocka_unit_test(opposite_sigmoids_share_their_work),
        cmocka_unit_test(contraction_is_a_choice),
        cmocka_unit_test(ftz_reaches_every_instruction),
        cmocka_unit_test(max_propagates_nan_in_one_instruction),
        cmocka_unit_test(literals_and_types_meet_as_documented),
        cmocka_unit_test(running_out_of_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
