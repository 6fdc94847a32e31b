/* test_launch.c -- prepare and launch on the CPU: values, statuses, keys, what is free. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"

#define ROOM 100100

static struct counting_allocator memory;
static eider_context *ctx;
static eider_device *cpu;
static float gate[ROOM], up[ROOM], out[ROOM];

static int set_up(void **state)
{
    (void)state;
    memory = (struct counting_allocator){0};
    eider_context_options options = {.allocator = counting_allocator(&memory), .cpu_threads = 3};
    must(eider_context_create(&options, &ctx));
    must(eider_device_open(ctx, "cpu", &cpu));
    for (int i = 0; i < ROOM; i++) {
        gate[i] = (float)(i % 211 - 105) / 16;
        up[i] = (float)(i % 97 - 48) / 8;
        out[i] = -77;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    assert_int_equal(memory.n_alive, 0);
    return 0;
}

static eider_program *parse(const char *text)
{
    eider_program *program;
    must(eider_program_parse(ctx, text, &program));
    return program;
}

static eider_kernel *prepare(eider_program *program, const eider_tensor *args, size_t n)
{
    eider_kernel *kernel;
    eider_request request = {.program = program, .args = args, .n_args = n};
    must(eider_prepare(cpu, &request, &kernel));
    return kernel;
}

static eider_counters counters(void)
{
    eider_counters now;
    eider_context_counters(ctx, &now);
    return now;
}

/* ---- Values ------------------------------------------------------------ */

static void check_values(const eider_program *program, const float *x, const float *y,
                         const float *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double in[] = {(double)x[i], (double)y[i]}, expected;
        must(eider_program_eval(program, in, &expected));
        if (fabs((double)z[i] - expected) > 1e-5 * (1 + fabs(expected)))
            fail_msg("element %d is %g, expected %g", (int)i, (double)z[i], expected);
    }
}

static void swiglu_is_right_at_every_length_and_stays_inside(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 8, 15, 31, 64, 65, 1000, 4097, 100003};
    eider_program *program = parse("out = silu(gate) * up");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int64_t n = lengths[i];
        eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                               tensor_of(out, EIDER_F32, 1, &n)};
        eider_kernel *kernel = prepare(program, args, 3);
        must(eider_launch(kernel, NULL, args, 3));
        check_values(program, gate, up, out, n);
        assert_true(out[n] == -77);
        for (int64_t j = 0; j < n; j++) out[j] = -77;
        eider_kernel_release(kernel);
    }
    eider_program_release(program);
}

static void one_kernel_serves_every_length_and_misalignment(void **state)
{
    (void)state;
    int64_t n = 4096;
    eider_program *program = parse("out = silu(gate) * up");
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n),
                           tensor_of(NULL, EIDER_F32, 1, &n)};
    eider_kernel *kernel = prepare(program, args, 3);
    for (n = 1; n < 5000; n += 611) {
        for (int shift = 0; shift < 4; shift++) {
            args[0].data = gate + shift;
            args[1].data = up + (shift + 1) % 4;
            args[2].data = out + (shift + 2) % 4;
            must(eider_launch(kernel, NULL, args, 3));
            check_values(program, args[0].data, args[1].data, args[2].data, n);
        }
    }
    assert_int_equal(counters().compiles, 1);
    eider_kernel_release(kernel);
    eider_program_release(program);
}

static void an_extent_of_zero_launches_nothing_and_succeeds(void **state)
{
    (void)state;
    int64_t shape[] = {3, 0, 5};
    eider_program *program = parse("out = x + 1");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 3, shape),
                           tensor_of(out, EIDER_F32, 3, shape)};
    eider_kernel *kernel = prepare(program, args, 2);
    must(eider_launch(kernel, NULL, args, 2));
    double ns = -1;
    must(eider_time(kernel, NULL, args, 2, 1, 0, &ns));
    assert_true(ns == 0);
    assert_true(out[0] == -77);
    assert_int_equal(counters().empty_launches, 1);
    assert_int_equal(counters().launches, 0);
    eider_kernel_release(kernel);
    eider_program_release(program);
}

static void scalars_are_read_at_each_launch(void **state)
{
    (void)state;
    int64_t n = 100;
    float factor = 3;
    eider_program *program = parse("scalar s; out = x * s");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n),
                           tensor_of(&factor, EIDER_F32, 0, NULL),
                           tensor_of(out, EIDER_F32, 1, &n)};
    eider_operand first;
    must(eider_program_operand(program, 0, &first));
    if (first.kind == EIDER_SCALAR) {
        eider_tensor swap = args[0];
        args[0] = args[1];
        args[1] = swap;
    }
    eider_kernel *kernel = prepare(program, args, 3);
    for (factor = 3; factor < 6; factor++) {
        must(eider_launch(kernel, NULL, args, 3));
        for (int i = 0; i < n; i++) assert_true(out[i] == gate[i] * factor);
    }
    eider_kernel_release(kernel);
    eider_program_release(program);
}

/* ---- Who runs it ------------------------------------------------------- */

static size_t n_for;

static void serial_for(void *user, size_t n, void (*body)(void *arg, size_t i), void *arg)
{
    assert_ptr_equal(user, &n_for);
    n_for += n;
    for (size_t i = n; i-- > 0;) body(arg, i);
}

static void an_embedders_parallel_for_gets_the_chunks(void **state)
{
    (void)state;
    eider_context *mine;
    eider_device *device;
    eider_kernel *kernel;
    eider_program *program;
    int64_t n = 100003;
    eider_context_options options = {
        .parallel_for = serial_for, .parallel_user = &n_for, .cpu_threads = 4};
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                           tensor_of(out, EIDER_F32, 1, &n)};
    must(eider_context_create(&options, &mine));
    must(eider_device_open(mine, "cpu", &device));
    must(eider_program_parse(mine, "out = silu(gate) * up", &program));
    eider_request request = {.program = program, .args = args, .n_args = 3};
    must(eider_prepare(device, &request, &kernel));
    n_for = 0;
    must(eider_launch(kernel, NULL, args, 3));
    assert_true(n_for > 1);
    check_values(program, gate, up, out, n);
    n_for = 0;
    n = 10;
    must(eider_launch(kernel, NULL, args, 3));
    assert_int_equal(n_for, 0);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(mine);
}

static void keep_line(void *user, int level, const char *line)
{
    if (level == 2) snprintf(user, 256, "%s", line);
}

static void a_compile_is_logged_and_a_hit_is_not(void **state)
{
    (void)state;
    char line[256] = "";
    eider_context *mine;
    eider_kernel *kernel, *again;
    eider_program *program;
    int64_t n = 64;
    eider_context_options options = {.log = keep_line, .log_user = line};
    eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n), tensor_of(NULL, EIDER_F32, 1, &n)};
    must(eider_context_create(&options, &mine));
    must(eider_program_parse(mine, "out = x + 1", &program));
    eider_request request = {.program = program, .args = args, .n_args = 2, .target = "cpu"};
    must(eider_compile(mine, &request, &kernel));
    assert_non_null(strstr(line, " for cpu in "));
    line[0] = '\0';
    must(eider_compile(mine, &request, &again));
    assert_string_equal(line, "");
    eider_kernel_release(again);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_context_destroy(mine);
}

static void a_launch_and_a_hit_cost_little(void **state)
{
    (void)state;
    int64_t n = 100003;
    eider_program *program = parse("out = silu(gate) * up");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                           tensor_of(out, EIDER_F32, 1, &n)};
    eider_kernel *kernel = prepare(program, args, 3), *again;
    long before = memory.n_calls;
    must(eider_launch(kernel, NULL, args, 3));
    assert_int_equal(memory.n_calls, before);
    again = prepare(program, args, 3);
    assert_ptr_equal(again, kernel);
    assert_int_equal(memory.n_calls, before);
    assert_int_equal(counters().memory_hits, 1);
    assert_int_equal(counters().launches, 1);
    double ns[5];
    must(eider_time(kernel, NULL, args, 3, 5, 1, ns));
    for (int i = 0; i < 5; i++) assert_true(ns[i] > 1000 && ns[i] < 1e9);
    eider_kernel_release(again);
    eider_kernel_release(kernel);
    eider_program_release(program);
}

/* ---- Refusals ---------------------------------------------------------- */

static void a_launch_of_other_arguments_is_refused(void **state)
{
    (void)state;
    int64_t n = 64, other = 63, square[] = {8, 8}, turned[] = {1, 8};
    eider_program *program = parse("out = gate + up");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                           tensor_of(out, EIDER_F32, 1, &n)};
    eider_kernel *kernel = prepare(program, args, 3);
    eider_tensor changed[3];

    memcpy(changed, args, sizeof args);
    changed[1].type = EIDER_F16;
    assert_int_equal(eider_launch(kernel, NULL, changed, 3), EIDER_NOT_PREPARED);

    memcpy(changed, args, sizeof args);
    changed[1].shape = &other;
    assert_int_equal(eider_launch(kernel, NULL, changed, 3), EIDER_SHAPE);

    memcpy(changed, args, sizeof args);
    changed[0].rank = changed[1].rank = changed[2].rank = 2;
    changed[0].shape = changed[1].shape = changed[2].shape = square;
    changed[0].strides = turned;
    assert_int_equal(eider_launch(kernel, NULL, changed, 3), EIDER_NOT_PREPARED);

    memcpy(changed, args, sizeof args);
    changed[2].data = gate + 1;
    assert_int_equal(eider_launch(kernel, NULL, changed, 3), EIDER_OVERLAP);
    changed[2].data = gate;
    must(eider_launch(kernel, NULL, changed, 3));

    assert_int_equal(eider_launch(kernel, NULL, args, 2), EIDER_BAD_ARG);
    assert_int_equal(eider_launch(kernel, NULL, NULL, 3), EIDER_BAD_ARG);
    const uint32_t grid[] = {1, 1, 1};
    assert_int_equal(eider_launch_grid(kernel, NULL, grid, args, 3), EIDER_BAD_ARG);
    eider_kernel_release(kernel);
    eider_program_release(program);
}

static void requests_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    int64_t n = 64;
    eider_kernel *kernel = NULL;
    eider_program *program = parse("out = gate + up");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                           tensor_of(out, EIDER_F32, 1, &n)};
    const eider_request good = {.program = program, .args = args, .n_args = 3};
    eider_request r = {0};
    assert_int_equal(eider_prepare(cpu, &r, &kernel), EIDER_BAD_ARG);
    r = good;
    r.n_args = 2;
    assert_int_equal(eider_prepare(cpu, &r, &kernel), EIDER_BAD_ARG);
    r = good;
    r.numerics.math = (eider_math)9;
    assert_int_equal(eider_prepare(cpu, &r, &kernel), EIDER_BAD_ARG);
    r = good;
    r.numerics.ftz = (eider_switch)3;
    assert_int_equal(eider_prepare(cpu, &r, &kernel), EIDER_BAD_ARG);
    r = good;
    r.config = "vec=3";
    assert_int_equal(eider_prepare(cpu, &r, &kernel), EIDER_CONFIG);
    r = good;
    r.target = "sm_90";
    assert_int_equal(eider_prepare(cpu, &r, &kernel), EIDER_TARGET);
    assert_int_equal(eider_compile(ctx, &good, &kernel), EIDER_BAD_ARG);
    r.target = "sm_20";
    assert_int_equal(eider_compile(ctx, &r, &kernel), EIDER_TARGET);
    r.target = "sm_90";
    r.assembler = "driver";
    assert_int_equal(eider_compile(ctx, &r, &kernel), EIDER_ASSEMBLER);
    r.assembler = "masm";
    assert_int_equal(eider_compile(ctx, &r, &kernel), EIDER_ASSEMBLER);
    assert_null(kernel);
    assert_int_equal(counters().memory_hits, 0);
    eider_program_release(program);
}

static void auto_is_by_the_width_of_outputs(void **state)
{
    (void)state;
    static const struct {
        eider_dtype outs[2];
        const char *numerics;
    } rows[] = {
        {{EIDER_BF16, EIDER_F16}, "math=approx,ftz=off,contract=on"},
        {{EIDER_E4M3, EIDER_E5M2}, "math=approx,ftz=off,contract=on"},
        {{EIDER_BF16, EIDER_F32}, "math=auto,ftz=off,contract=on"}, /* each its own */
        {{EIDER_F32, EIDER_F64}, "math=fast,ftz=off,contract=on"},
    };
    int64_t n = 64;
    eider_program *program = parse("a = tanh(x); b = sigmoid(x)");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        eider_kernel *kernel;
        eider_kernel_info info;
        eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n),
                               tensor_of(NULL, rows[i].outs[0], 1, &n),
                               tensor_of(NULL, rows[i].outs[1], 1, &n)};
        eider_request r = {.program = program, .args = args, .n_args = 3, .target = "cpu"};
        must(eider_compile(ctx, &r, &kernel));
        eider_kernel_describe(kernel, &info);
        assert_string_equal(info.numerics, rows[i].numerics);
        eider_kernel_release(kernel);
    }
    eider_program_release(program);
}

/* ---- Keys and stages --------------------------------------------------- */

static void each_ingredient_of_the_key_changes_it(void **state)
{
    (void)state;
    int64_t n = 64, square[] = {8, 8}, strides[] = {16, 1};
    eider_program *program = parse("out = silu(gate) * up"), *other = parse("out = gate * up");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                           tensor_of(out, EIDER_F32, 1, &n)};
    eider_tensor half[3], pitched[3], shifted[3];
    memcpy(half, args, sizeof args);
    memcpy(pitched, args, sizeof args);
    memcpy(shifted, args, sizeof args);
    half[0].type = EIDER_F16;
    for (int i = 0; i < 3; i++) {
        pitched[i].rank = 2;
        pitched[i].shape = square;
    }
    pitched[0].strides = strides;
    shifted[0].data = gate + 1;

    const eider_request good = {
        .program = program, .args = args, .n_args = 3, .target = "sm_90", .assembler = "auto"};
    eider_request r[12];
    for (int i = 0; i < 12; i++) r[i] = good;
    r[1].program = other;
    r[2].args = half;
    r[3].args = pitched;
    r[4].args = shifted;
    r[5].numerics.math = EIDER_MATH_EXACT;
    r[6].numerics.ftz = EIDER_ON;
    r[7].numerics.contract = EIDER_OFF;
    r[8].config = "block=64";
    r[9].target = "sm_80";
    r[10].line_info = 1;
    r[11].any_layout = 1;
    eider_kernel *kernels[12];
    eider_kernel_info info[12];
    for (int i = 0; i < 12; i++) {
        must(eider_compile(ctx, &r[i], &kernels[i]));
        eider_kernel_describe(kernels[i], &info[i]);
        assert_int_equal(strlen(info[i].key), 32);
        for (int j = 0; j < i; j++)
            if (strcmp(info[i].key, info[j].key) == 0)
                fail_msg("requests %d and %d have one key:\n%s", i, j, info[i].manifest);
    }
    assert_int_equal(counters().compiles, 12);
    assert_non_null(strstr(info[0].manifest, "\nprogram: out = silu(gate) * up"));
    assert_non_null(strstr(info[0].manifest, "\ntarget: sm_90\n"));
    assert_non_null(strstr(info[6].numerics, "ftz=on,contract=on"));
    assert_non_null(strstr(info[8].config, "block=64"));
    assert_null(strstr(info[0].manifest, "/"));
    for (int i = 0; i < 12; i++) eider_kernel_release(kernels[i]);
    eider_program_release(program);
    eider_program_release(other);
}

static const char *stage_text(eider_kernel *kernel, eider_stage stage, size_t *size)
{
    const void *data;
    must(eider_kernel_stage(kernel, stage, &data, size));
    return data;
}

static void a_compiled_kernel_shows_its_stages_and_cannot_run(void **state)
{
    (void)state;
    int64_t n = 64;
    size_t size;
    eider_kernel *kernel;
    eider_program *program = parse("out = silu(gate) * up");
    eider_tensor args[] = {tensor_of(NULL, EIDER_BF16, 1, &n), tensor_of(NULL, EIDER_BF16, 1, &n),
                           tensor_of(NULL, EIDER_BF16, 1, &n)};
    eider_request request = {.program = program, .args = args, .n_args = 3, .target = "sm_90"};
    must(eider_compile(ctx, &request, &kernel));
    eider_program_release(program);
    eider_kernel_info info;
    eider_kernel_describe(kernel, &info);
    assert_non_null(strstr(info.numerics, "math=approx"));
    assert_non_null(strstr(stage_text(kernel, EIDER_STAGE_PROGRAM, &size), "silu(gate) * up"));
    const char *ir = stage_text(kernel, EIDER_STAGE_IR, &size);
    assert_non_null(strstr(ir, info.entry));
    assert_int_equal(strlen(ir), size);
    assert_ptr_equal(stage_text(kernel, EIDER_STAGE_IR, &size), ir);
    assert_non_null(strstr(stage_text(kernel, EIDER_STAGE_OPT, &size), info.entry));
    assert_non_null(strstr(stage_text(kernel, EIDER_STAGE_PTX, &size), ".entry"));
    assert_true(info.ir_ns > 0 && info.ptx_ns > 0);
    const void *data;
    if (info.assembler[0]) {
        assert_memory_equal(stage_text(kernel, EIDER_STAGE_CUBIN, &size), "\177ELF", 4);
        assert_true(info.registers > 0 && info.assemble_ns > 0);
    } else {
        assert_int_equal(eider_kernel_stage(kernel, EIDER_STAGE_CUBIN, &data, &size),
                         EIDER_UNSUPPORTED);
    }
    assert_int_equal(eider_kernel_stage(kernel, (eider_stage)5, &data, &size), EIDER_BAD_ARG);
    uint64_t bytes;
    must(eider_kernel_bytes(kernel, args, 3, &bytes));
    assert_int_equal(bytes, 3 * 64 * 2);
    assert_int_equal(eider_launch(kernel, NULL, args, 3), EIDER_NOT_PREPARED);
    eider_kernel_release(kernel);
}

static void a_kernel_of_the_cpu_shows_assembly_and_an_object(void **state)
{
    (void)state;
    int64_t n = 64;
    size_t size;
    eider_program *program = parse("out = gate + up");
    eider_tensor args[] = {tensor_of(gate, EIDER_F32, 1, &n), tensor_of(up, EIDER_F32, 1, &n),
                           tensor_of(out, EIDER_F32, 1, &n)};
    eider_kernel *kernel = prepare(program, args, 3);
    eider_kernel_info info;
    eider_kernel_describe(kernel, &info);
    assert_string_equal(info.target, "cpu");
    assert_string_equal(info.assembler, "");
    assert_int_equal(info.registers, -1);
    assert_true(info.load_ns > 0);
    assert_memory_equal(stage_text(kernel, EIDER_STAGE_CUBIN, &size), "\177ELF", 4);
    assert_non_null(strstr(stage_text(kernel, EIDER_STAGE_PTX, &size), "retq"));
    eider_kernel_release(kernel);
    eider_program_release(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(swiglu_is_right_at_every_length_and_stays_inside, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_kernel_serves_every_length_and_misalignment, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_extent_of_zero_launches_nothing_and_succeeds, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(scalars_are_read_at_each_launch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_embedders_parallel_for_gets_the_chunks, set_up,
                                        tear_down),
        cmocka_unit_test(a_compile_is_logged_and_a_hit_is_not),
        cmocka_unit_test_setup_teardown(a_launch_and_a_hit_cost_little, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_launch_of_other_arguments_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_that_make_no_sense_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(auto_is_by_the_width_of_outputs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_ingredient_of_the_key_changes_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_compiled_kernel_shows_its_stages_and_cannot_run, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_kernel_of_the_cpu_shows_assembly_and_an_object, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
