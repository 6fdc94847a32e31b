/* test_tuner_gate.c -- candidates that compute something else, or write where they must not,
 * and what the tuner keeps its hands off: the caller's memory.
 *
 * The kernels are IR with named parameters, which a program's template could not get wrong.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>

#include "element.h"
#include "support_runtime.h"
#include "support_tuner.h"

#define N 1024

/* o[i] = x[i] + add for i in [from, to), by one thread. */
static const char add_ll[] = "define void @k(ptr %x, ptr %o) {\n"
                             "entry:\n"
                             "  br label %loop\n"
                             "loop:\n"
                             "  %i = phi i64 [ ${from}, %entry ], [ %n, %loop ]\n"
                             "  %px = getelementptr float, ptr %x, i64 %i\n"
                             "  %v = load float, ptr %px\n"
                             "  %w = fadd float %v, ${add}\n"
                             "  %po = getelementptr float, ptr %o, i64 %i\n"
                             "  store float %w, ptr %po\n"
                             "  %n = add i64 %i, 1\n"
                             "  %c = icmp ult i64 %n, ${to}\n"
                             "  br i1 %c, label %loop, label %done\n"
                             "done:\n"
                             "  ret void\n"
                             "}\n";

/* o[i] += x[i], and x[poke] = 7 where that is in range. */
static const char accumulate_ll[] = "define void @k(ptr %x, ptr %o) {\n"
                                    "entry:\n"
                                    "  br label %loop\n"
                                    "loop:\n"
                                    "  %i = phi i64 [ 0, %entry ], [ %n, %loop ]\n"
                                    "  %px = getelementptr float, ptr %x, i64 %i\n"
                                    "  %v = load float, ptr %px\n"
                                    "  %po = getelementptr float, ptr %o, i64 %i\n"
                                    "  %u = load float, ptr %po\n"
                                    "  %w = fadd float %u, %v\n"
                                    "  store float %w, ptr %po\n"
                                    "  %n = add i64 %i, 1\n"
                                    "  %c = icmp ult i64 %n, 1024\n"
                                    "  br i1 %c, label %loop, label %after\n"
                                    "after:\n"
                                    "  %bad = icmp ult i64 ${poke}, 1024\n"
                                    "  br i1 %bad, label %poke, label %done\n"
                                    "poke:\n"
                                    "  %pp = getelementptr float, ptr %x, i64 ${poke}\n"
                                    "  store float 7.0, ptr %pp\n"
                                    "  br label %done\n"
                                    "done:\n"
                                    "  ret void\n"
                                    "}\n";

static struct workbench b;
static const eider_operand operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                         {"o", EIDER_OUTPUT, EIDER_F32}};
static eider_source source;
static eider_tensor args[2];
static const int64_t extent[] = {N};
static eider_request kernel;
static eider_tune_request *request;
static char running[256];
static float seen_first; /* o[0] as a run finds it */

static int open_bench(void **state)
{
    (void)state;
    workbench_open(&b);
    source = (eider_source){.kind = EIDER_SOURCE_LL,
                            .data = add_ll,
                            .entry = "k",
                            .n_operands = 2,
                            .operands = operands};
    args[0] = tensor_of(b.x, EIDER_F32, 1, extent);
    args[1] = tensor_of(b.out, EIDER_F32, 1, extent);
    kernel = (eider_request){.source = &source, .args = args, .n_args = 2};
    request = &b.request;
    request->kernel = &kernel;
    request->space = NULL;
    request->grid = "1";
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    workbench_close(&b);
    return 0;
}

static void note(void *user, const char *config, const eider_tensor *tensors, size_t n)
{
    (void)user;
    assert_int_equal(n, 2);
    snprintf(running, sizeof running, "%s", config);
    memcpy(&seen_first, tensors[1].data, sizeof seen_first);
}

static eider_status cost(void *user, eider_tune_run run, void *arg, double *out_ns)
{
    const char *fast = user;
    *out_ns = strstr(running, fast) ? 1000 : 2000;
    return run(arg);
}

/* The configs that contain `fast` are. */
static void set_clock(char *fast)
{
    request->hooks = (eider_tune_hooks){.user = fast, .before_run = note, .timer = cost};
}

static void list(const char *const *configs, size_t n)
{
    request->configs = configs;
    request->n_configs = n;
    request->reference = configs[0];
}

/* Tunes and returns the entry with this config. */
static eider_tuning *tuning;
static eider_tune_entry entry_of(const char *config)
{
    eider_tune_summary s;
    eider_tune_entry e = {0};
    eider_tune_describe(tuning, &s);
    for (size_t i = 0; i < s.n_entries; i++) {
        must(eider_tune_entry_get(tuning, i, &e));
        if (strstr(e.config, config)) return e;
    }
    fail_msg("no entry %s", config);
    return e;
}

static const char *choice(void)
{
    eider_tune_summary s;
    eider_tune_describe(tuning, &s);
    return s.config;
}

/* ---- Wrong numbers -------------------------------------------------------------- */

static void a_wrong_but_fastest_candidate_is_rejected(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=1024,add=1.0", "from=0,to=1024,add=2.0",
                                          "from=1,to=1024,add=1.0"};
    set_clock("add=2.0");
    list(configs, 3);
    must(eider_tune(b.device, request, &tuning));
    assert_string_equal(choice(), "add=1.0,from=0,to=1024");
    eider_tune_entry e = entry_of("add=2.0");
    assert_int_equal(e.outcome, EIDER_TUNE_WRONG);
    assert_int_equal(e.n_samples, 0);
    assert_string_equal(e.reason, "o: element 0 is -6, the reference gives -7");
    /* What another candidate wrote does not hide what this one leaves out. */
    e = entry_of("from=1");
    assert_int_equal(e.outcome, EIDER_TUNE_WRONG);
    assert_string_equal(e.reason, "o: element 0 is nan, the reference gives -7");
    eider_tune_release(tuning);
}

static void candidates_that_write_halves_do_not_complete_each_other(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=512,add=1.0", "from=512,to=1024,add=1.0"};
    set_clock("from=512");
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    assert_non_null(strstr(choice(), "from=0"));
    assert_int_equal(entry_of("from=512").outcome, EIDER_TUNE_WRONG);
    eider_tune_release(tuning);
}

static void writing_behind_an_output_is_seen(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=1024,add=1.0", "from=0,to=1025,add=1.0"};
    set_clock("to=1025");
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    assert_non_null(strstr(choice(), "to=1024"));
    assert_string_equal(entry_of("to=1025").reason, "o: writes behind it");
    eider_tune_release(tuning);
}

static void writing_an_input_is_seen_and_is_not_the_callers(void **state)
{
    (void)state;
    static const char *const configs[] = {"poke=4096", "poke=0"};
    float x0 = b.x[0];
    source.data = accumulate_ll;
    request->reset_to_zero = "o";
    set_clock("poke=0");
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    assert_string_equal(choice(), "poke=4096");
    assert_string_equal(entry_of("poke=0").reason, "x: is an input, and is written");
    assert_true(b.x[0] == x0);
    eider_tune_release(tuning);
}

static void a_tolerance_lets_small_differences_pass(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=1024,add=1.0",
                                          "from=0,to=1024,add=1.0009765625"};
    set_clock("add=1.0009765625");
    list(configs, 2);
    request->tolerance = 0.00005;
    must(eider_tune(b.device, request, &tuning));
    assert_non_null(strstr(choice(), "add=1.0,"));
    eider_tune_release(tuning);
    request->tolerance = 0.002;
    must(eider_tune(b.device, request, &tuning));
    assert_non_null(strstr(choice(), "add=1.0009765625"));
    eider_tune_release(tuning);
}

/* o[i] = x[i] * by / by by way of what may overflow: the same numbers for small ones. */
static const char scaled_ll[] = "define void @k(ptr %x, ptr %o) {\n"
                                "entry:\n"
                                "  br label %loop\n"
                                "loop:\n"
                                "  %i = phi i64 [ 0, %entry ], [ %n, %loop ]\n"
                                "  %px = getelementptr float, ptr %x, i64 %i\n"
                                "  %v = load float, ptr %px\n"
                                "  %m = fmul float %v, ${by}\n"
                                "  %w = fdiv float %m, ${by}\n"
                                "  %po = getelementptr float, ptr %o, i64 %i\n"
                                "  store float %w, ptr %po\n"
                                "  %n = add i64 %i, 1\n"
                                "  %c = icmp ult i64 %n, 1024\n"
                                "  br i1 %c, label %loop, label %done\n"
                                "done:\n"
                                "  ret void\n"
                                "}\n";

/* As a softmax that does not subtract the maximum beside one that does. */
static void a_candidate_that_overflows_where_the_reference_does_not_is_rejected(void **state)
{
    (void)state;
    static const char *const configs[] = {"by=1.0", "by=0x47A0000000000000"}; /* 2^123 */
    source.data = scaled_ll;
    set_clock("by=0x");
    list(configs, 2);
    b.x[100] = 88;
    must(eider_tune(b.device, request, &tuning));
    assert_string_equal(choice(), "by=1.0");
    assert_string_equal(entry_of("by=0x").reason, "o: element 100 is inf, the reference gives 88");
    eider_tune_release(tuning);
    /* Made-up values show it as well. */
    args[0].data = NULL;
    request->force = 1;
    must(eider_tune(b.device, request, &tuning));
    assert_int_equal(entry_of("by=0x").outcome, EIDER_TUNE_WRONG);
    eider_tune_release(tuning);
}

static void a_reference_that_is_not_the_program_fails_the_call(void **state)
{
    (void)state;
    request->kernel = &b.kernel;
    request->space = "vec=4|8";
    request->check_program = 1;
    request->tolerance = 1e-12; /* no f32 is so near to a double */
    assert_int_equal(eider_tune(b.device, request, &tuning), EIDER_CODEGEN);
    assert_non_null(strstr(eider_error(), "the reference config is wrong: out is "));
}

/* ---- Failures ---------------------------------------------------------------------- */

static void a_candidate_that_does_not_compile_is_skipped_with_its_reason(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=1024,add=1.0", "from=0,to=1024,add=oops"};
    set_clock("add=oops");
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    assert_non_null(strstr(choice(), "add=1.0"));
    eider_tune_entry e = entry_of("add=oops");
    assert_int_equal(e.outcome, EIDER_TUNE_FAILED);
    assert_true(strlen(e.reason) > 10);
    eider_tune_release(tuning);
}

static void where_none_works_the_call_fails_with_the_reference(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=1024,add=oops", "from=0,to=1024,add=worse"};
    list(configs, 2);
    assert_int_equal(eider_tune(b.device, request, &tuning), EIDER_PARSE);
    assert_non_null(strstr(eider_error(), "the reference config add=oops,from=0,to=1024: "));
}

static void a_name_without_a_value_is_an_error_that_names_it(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,add=1.0", "from=1,add=1.0"};
    list(configs, 2);
    assert_int_equal(eider_tune(b.device, request, &tuning), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "k: the text has ${to}, the config has no to"));
}

static void a_geometry_must_be_numbers(void **state)
{
    (void)state;
    static const char *const configs[] = {"from=0,to=1024,add=1.0", "from=0,to=1024,add=2.0"};
    static const struct {
        const char *grid;
        eider_status status;
        const char *message;
    } rows[] = {
        {NULL, EIDER_BAD_ARG, "a source needs a grid"},
        {"1,1,1,1", EIDER_PARSE, "grid: more than 3 expressions"},
        {"x.dtype", EIDER_CONFIG, "grid: 'x.dtype' gives f32, which is no whole number"},
        {"1 / 0", EIDER_PARSE, "grid: 3: division by 0"},
        {"-1", EIDER_CONFIG, "gives -1"},
    };
    list(configs, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        request->grid = rows[i].grid;
        assert_int_equal(eider_tune(b.device, request, &tuning), rows[i].status);
        if (!strstr(eider_error(), rows[i].message)) fail_msg("%s", eider_error());
    }
}

/* ---- Operands before a run ------------------------------------------------------------ */

static int n_dirty;
static float expected_first;

static void check_first(void *user, const char *config, const eider_tensor *tensors, size_t n)
{
    note(user, config, tensors, n);
    n_dirty += seen_first != expected_first;
}

static void accumulators_are_zero_before_every_run(void **state)
{
    (void)state;
    static const char *const configs[] = {"poke=4096", "poke=5000"};
    source.data = accumulate_ll;
    request->reset_to_zero = "o";
    request->hooks.before_run = check_first;
    request->warm_up_ms = 1;
    b.out[0] = 99;
    n_dirty = 0;
    expected_first = 0;
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    assert_int_equal(n_dirty, 0);
    assert_true(b.out[0] == 99); /* the caller's is left as it was */
    eider_tune_release(tuning);
}

static int32_t only_for_4096(void *user, size_t i, const char *config)
{
    (void)user;
    assert_int_equal(i, 1);
    return strstr(config, "4096") != NULL;
}

static void a_predicate_says_for_which_configs(void **state)
{
    (void)state;
    static const char *const configs[] = {"poke=4096", "poke=5000"};
    source.data = accumulate_ll;
    request->reset_to_zero = "o";
    request->hooks.resets = only_for_4096;
    b.out[0] = 99;
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    /* Without zeroing, the sum is another one. */
    assert_int_equal(entry_of("5000").outcome, EIDER_TUNE_WRONG);
    eider_tune_release(tuning);
}

static void operands_are_put_back_before_every_run(void **state)
{
    (void)state;
    static const char *const configs[] = {"poke=4096", "poke=5000"};
    source.data = accumulate_ll;
    request->restore = "o";
    request->hooks.before_run = check_first;
    request->warm_up_ms = 1;
    b.out[0] = expected_first = 42;
    n_dirty = 0;
    list(configs, 2);
    must(eider_tune(b.device, request, &tuning));
    assert_int_equal(n_dirty, 0);
    assert_true(b.out[0] == 42);
    eider_tune_release(tuning);
}

/* out == x: the first call and every later one see the same input, and tuning none of it. */
static void a_program_in_place_runs_on_scratch(void **state)
{
    (void)state;
    enum { ALL = BENCH_ROWS * BENCH_COLUMNS };
    static float before[ALL], once[ALL];
    eider_kernel *k;
    memcpy(before, b.x, sizeof before);
    for (int i = 0; i < ALL; i++) once[i] = 0;
    request->kernel = &b.kernel;
    request->space = "vec=4|8,unroll=1|2";
    request->hooks.before_run = NULL;
    b.args[2].data = b.x;
    must(eider_tune(b.device, request, &tuning));
    eider_tune_summary s;
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_timed, 4);
    assert_int_equal(s.n_wrong, 0);
    assert_memory_equal(b.x, before, sizeof before);
    b.kernel.config = s.config;
    must(eider_prepare(b.device, &b.kernel, &k));
    must(eider_launch(k, NULL, b.args, 3));
    memcpy(once, b.x, sizeof once);
    eider_tune_release(tuning);
    memcpy(b.x, before, sizeof before);
    request->force = 1;
    b.kernel.config = NULL;
    must(eider_tune(b.device, request, &tuning));
    must(eider_launch(k, NULL, b.args, 3));
    assert_memory_equal(b.x, once, sizeof once);
    eider_tune_release(tuning);
    eider_kernel_release(k);
}

static void the_callers_outputs_are_never_touched(void **state)
{
    (void)state;
    request->kernel = &b.kernel;
    request->space = "vec=4|8";
    request->check_program = 1;
    must(eider_tune(b.device, request, &tuning));
    for (int i = 0; i < BENCH_ROWS * BENCH_COLUMNS; i++) assert_true(b.out[i] == -1);
    eider_tune_release(tuning);
}

static void operands_without_memory_are_made_up(void **state)
{
    (void)state;
    request->kernel = &b.kernel;
    request->space = "vec=4|8";
    request->check_program = 1;
    for (int i = 0; i < 3; i++) b.args[i].data = NULL;
    must(eider_tune(b.device, request, &tuning));
    eider_tune_summary s;
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_timed, 2);
    eider_tune_release(tuning);
}

static void strided_and_broadcast_operands_are_compared_in_place(void **state)
{
    (void)state;
    static const int64_t shape[] = {16, 60}, strides[] = {64, 1}, row[] = {60}, back[] = {-64, 1};
    request->kernel = &b.kernel;
    request->space = "vec=1|2|4";
    request->check_program = 1;
    b.args[0] = (eider_tensor){b.x + 15 * 64, EIDER_F32, 2, shape, back};
    b.args[1] = (eider_tensor){b.y, EIDER_F32, 1, row, NULL};
    b.args[2] = (eider_tensor){b.out, EIDER_F32, 2, shape, strides};
    must(eider_tune(b.device, request, &tuning));
    eider_tune_summary s;
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_timed, 3);
    eider_tune_release(tuning);
}

/* ---- Programs over rows ------------------------------------------------------------------ */

static void programs_over_rows_are_compared_with_their_own_evaluation(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "in x, w: column, m: row\nout y, n\ny = x * w - m + row(); n = sum(x) * m",
        "in x, w: row, m: column\nout a, n: i32\na = x - max(x) * w + m; n = argmax(x)",
    };
    static const int64_t full[] = {4, 15, 60}, rows[] = {4, 15}, cols[] = {60}, back[] = {-15, 1};
    for (int k = 0; k < 2; k++) {
        eider_tensor row = {b.x + 45, EIDER_F32, 2, rows, back};
        eider_tensor col = {b.y, EIDER_F32, 1, cols, NULL};
        eider_tensor tensors[] = {{b.x, EIDER_F32, 3, full, NULL},
                                  k ? row : col,
                                  k ? col : row,
                                  {b.out, EIDER_F32, 3, full, NULL},
                                  {NULL, k ? EIDER_I32 : EIDER_F32, 2, rows, NULL}};
        eider_program *program;
        eider_tune_summary s;
        must(eider_program_parse(b.ctx, texts[k], &program));
        eider_request over_rows = {.program = program, .args = tensors, .n_args = 5};
        request->kernel = &over_rows;
        request->space = "vec=1|4";
        request->check_program = 1;
        must(eider_tune(b.device, request, &tuning));
        eider_tune_describe(tuning, &s);
        assert_int_equal(s.n_timed, 2);
        eider_tune_release(tuning);
        eider_program_release(program);
    }
}

/* ---- Math modes -------------------------------------------------------------------------- */

static void a_tolerance_opens_the_math_modes_that_keep_it(void **state)
{
    (void)state;
    eider_tune_summary s;
    eider_tune_entry e;
    request->kernel = &b.kernel;
    request->space = "vec=8";
    request->check_program = 1;
    request->tolerance = 0.05;
    must(eider_tune(b.device, request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.n_entries, 3);
    assert_int_equal(s.n_wrong, 0);
    assert_null(strstr(s.config, "math")); /* it is in `math` */
    assert_in_range(s.math, EIDER_MATH_APPROX, EIDER_MATH_EXACT);
    eider_tune_release(tuning);
    /* Nothing but the exact mode itself is this near. */
    request->tolerance = 1e-12;
    request->check_program = 0;
    must(eider_tune(b.device, request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.math, EIDER_MATH_EXACT);
    assert_true(s.n_wrong >= 1);
    for (size_t i = 0; i < 3; i++) {
        must(eider_tune_entry_get(tuning, i, &e));
        if (e.outcome == EIDER_TUNE_WRONG) assert_non_null(strstr(e.reason, "the reference gives"));
    }
    eider_tune_release(tuning);
    /* The default rule's config is one of the space's, in the mode that `auto` is. */
    request->space = NULL;
    request->tolerance = 0.05;
    request->budget_s = 0.1;
    must(eider_tune(b.device, request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_true(s.n_entries > 3);
    for (size_t i = 0; i < s.n_entries; i++) {
        must(eider_tune_entry_get(tuning, i, &e));
        assert_int_equal(strncmp(e.config, "math=", 5), 0);
    }
    eider_tune_release(tuning);
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

/* IR from a config, in a fork: o[i] = x[i] + N of "add=N". */
static void *build(void *user, void *llvm_context, const char *triple, const char *config,
                   char *reason, size_t reason_size)
{
    (void)user, (void)triple;
    char text[sizeof add_ll + 64], *message = NULL;
    const char *add = strstr(config, "add=");
    LLVMModuleRef module = NULL;
    if (!add) {
        snprintf(reason, reason_size, "no add in '%s'", config);
        return NULL;
    }
    snprintf(text, sizeof text,
             "define void @k(ptr %%x, ptr %%o) {\n  %%v = load float, ptr %%x\n"
             "  %%w = fadd float %%v, %.*s\n  store float %%w, ptr %%o\n  ret void\n}\n",
             (int)strcspn(add + 4, ","), add + 4);
    LLVMMemoryBufferRef buffer =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "callback");
    if (LLVMParseIRInContext(llvm_context, buffer, &module, &message)) {
        snprintf(reason, reason_size, "%s", message);
        return NULL;
    }
    return module;
}

static eider_status geometry(void *user, const char *config, const eider_tensor *tensors, size_t n,
                             eider_geometry *out)
{
    (void)user;
    assert_non_null(strstr(config, "add="));
    assert_int_equal(n, 2);
    assert_int_equal(tensors[0].shape[0], N);
    *out = (eider_geometry){.grid = {2, 1, 1}, .block = {3, 0, 0}};
    return EIDER_OK;
}

static void callbacks_that_build_ir_are_tuned(void **state)
{
    (void)state;
    eider_tune_summary s;
    source.kind = EIDER_SOURCE_CALLBACK;
    source.data = NULL;
    source.build = build;
    source.identity = "add-v1";
    request->space = "add=1.0|2.0";
    request->grid = NULL;
    request->hooks.geometry = geometry;
    must(eider_tune(b.device, request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_string_equal(s.config, "add=1.0");
    assert_int_equal(s.n_wrong, 1);
    assert_int_equal(s.geometry.grid[0], 2);
    assert_int_equal(s.geometry.block[0], 3);
    eider_tune_release(tuning);
}

static void expressions_give_grid_block_and_shared_memory(void **state)
{
    (void)state;
    eider_tune_summary s;
    request->space = "from=0,to=1024,add=1.0";
    request->grid = "ceil_div(x.count, 256), to / 512";
    request->block = "2 * 4";
    request->shared = "to * 4";
    must(eider_tune(b.device, request, &tuning));
    eider_tune_describe(tuning, &s);
    assert_int_equal(s.geometry.grid[0], 4);
    assert_int_equal(s.geometry.grid[1], 2);
    assert_int_equal(s.geometry.grid[2], 1);
    assert_int_equal(s.geometry.block[0], 8);
    assert_int_equal(s.geometry.shared_bytes, 4096);
    eider_tune_release(tuning);
}

/* ---- Elements --------------------------------------------------------------------------- */

static void elements_of_every_type_are_read(void **state)
{
    (void)state;
    static const struct {
        eider_dtype type;
        uint64_t bits;
        double value;
    } rows[] = {
        {EIDER_F32, 0xc0200000, -2.5},
        {EIDER_F64, 0x4004000000000000, 2.5},
        {EIDER_F16, 0x4100, 2.5},
        {EIDER_F16, 0x8001, -0x1p-24},
        {EIDER_F16, 0x7c00, (double)INFINITY},
        {EIDER_BF16, 0x4020, 2.5},
        {EIDER_E4M3, 0x42, 2.5},
        {EIDER_E4M3, 0x01, 0x1p-9},
        {EIDER_E4M3, 0x7e, 448},
        {EIDER_E5M2, 0x41, 2.5},
        {EIDER_E5M2, 0x01, 0x1p-16},
        {EIDER_E5M2, 0x7b, 57344},
        {EIDER_I32, 0xfffffffe, -2},
        {EIDER_I64, 0xfffffffffffffffe, -2},
        {EIDER_BOOL, 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(eider_element_get(rows[i].type, &rows[i].bits, 0) == rows[i].value);
    uint64_t nan = 0x7f;
    double x = eider_element_get(EIDER_E4M3, &nan, 0);
    assert_true(x != x);
    for (int type = EIDER_F32; type <= EIDER_BOOL; type++) {
        uint64_t made[64];
        double sum = 0;
        int is_float = type < EIDER_I32;
        for (int is_wide = 0; is_wide < 2; is_wide++) {
            int n_large = 0;
            eider_element_make((eider_dtype)type, made, 64, 5, is_wide);
            for (size_t i = 0; i < 64; i++) {
                x = eider_element_get((eider_dtype)type, made, i);
                assert_true(fabs(x) <= (is_float ? is_wide ? 128 : 4 : 100));
                n_large += fabs(x) > 88;
                sum += x * x;
            }
            if (is_float) assert_int_equal(n_large > 0, is_wide);
        }
        assert_true(sum > 1);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_bench, close_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_wrong_but_fastest_candidate_is_rejected),
        TEST(candidates_that_write_halves_do_not_complete_each_other),
        TEST(writing_behind_an_output_is_seen),
        TEST(writing_an_input_is_seen_and_is_not_the_callers),
        TEST(a_tolerance_lets_small_differences_pass),
        TEST(a_candidate_that_overflows_where_the_reference_does_not_is_rejected),
        TEST(a_reference_that_is_not_the_program_fails_the_call),
        TEST(a_candidate_that_does_not_compile_is_skipped_with_its_reason),
        TEST(where_none_works_the_call_fails_with_the_reference),
        TEST(a_name_without_a_value_is_an_error_that_names_it),
        TEST(a_geometry_must_be_numbers),
        TEST(accumulators_are_zero_before_every_run),
        TEST(a_predicate_says_for_which_configs),
        TEST(operands_are_put_back_before_every_run),
        TEST(a_program_in_place_runs_on_scratch),
        TEST(the_callers_outputs_are_never_touched),
        TEST(operands_without_memory_are_made_up),
        TEST(strided_and_broadcast_operands_are_compared_in_place),
        TEST(programs_over_rows_are_compared_with_their_own_evaluation),
        TEST(a_tolerance_opens_the_math_modes_that_keep_it),
        TEST(callbacks_that_build_ir_are_tuned),
        TEST(expressions_give_grid_block_and_shared_memory),
        cmocka_unit_test(elements_of_every_type_are_read),
    };
    return cmocka_run_group_tests_name("tuner_gate", tests, NULL, NULL);
}
