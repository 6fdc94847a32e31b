/* test_fake_cuda.c -- every call of the CUDA driver may fail, and what a success hands over.
 *
 * The driver is fake_cuda.c, made from the same table as the loader, so a new driver
 * call is covered by being in the table.  PTX is given to the driver, which takes it
 * unread: nothing here needs an assembler.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "eider/eider.h"
#include "fake_cuda.h"
#include "support_cache.h"

static const struct fake_cuda *fake;
static char fake_path[4096];

static const eider_operand ptx_operands[] = {{"x", EIDER_INPUT, EIDER_F32},
                                             {"n", EIDER_SCALAR, EIDER_I32},
                                             {"out", EIDER_OUTPUT, EIDER_F32}};

static const eider_source ptx_source = {
    .kind = EIDER_SOURCE_PTX,
    .data = ".version 7.8\n.target sm_80\n"
            ".entry copy(.param .u64 x, .param .u32 n, .param .u64 out) { ret; }\n",
    .entry = "copy",
    .block = {64, 2, 0},
    .shared_bytes = 1024,
    .n_operands = 3,
    .operands = ptx_operands,
};

static eider_context *create_context(void)
{
    eider_context *ctx;
    eider_context_options options = {.cuda_library = fake_path};
    assert_int_equal(eider_context_create(&options, &ctx), EIDER_OK);
    return ctx;
}

static int reset(void **state)
{
    (void)state;
    fake->reset();
    return 0;
}

/* ---- Everything that calls the driver, once ---------------------------- */

struct story {
    eider_device *device, *mine;
    eider_program *program, *rows;
    eider_kernel *copy, *scale, *split;
    void *stream, *x, *out;
};

static eider_status prepare_all(eider_context *ctx, struct story *s)
{
    int64_t shape[] = {1000};
    eider_tensor args[] = {{.type = EIDER_F32, .rank = 1, .shape = shape},
                           {.type = EIDER_F32, .rank = 1, .shape = shape}};
    eider_request request = {.source = &ptx_source, .assembler = "driver"};
    eider_status status = eider_prepare(s->device, &request, &s->copy);
    if (status != EIDER_OK) return status;
    status = eider_program_parse(ctx, "out = 2 * max(x, 0) - pick(x, 0)", &s->program);
    if (status != EIDER_OK) return status;
    request = (eider_request){
        .program = s->program, .args = args, .n_args = 2, .assembler = "driver", .checked = 1};
    status = eider_prepare(s->device, &request, &s->scale);
    if (status != EIDER_OK) return status;
    status = eider_program_parse(ctx, "out = exp(x - max(x))", &s->rows);
    if (status != EIDER_OK) return status;
    request = (eider_request){
        .program = s->rows, .args = args, .n_args = 2, .assembler = "driver", .config = "split=4"};
    return eider_prepare(s->device, &request, &s->split);
}

static eider_status run_all(struct story *s)
{
    int64_t shape[] = {1000};
    int32_t n = 1000;
    static float host[1000];
    double ns[3];
    const uint32_t grid[] = {4, 3, 1};
    eider_tensor args[] = {{.data = s->x, .type = EIDER_F32, .rank = 1, .shape = shape},
                           {.data = s->out, .type = EIDER_F32, .rank = 1, .shape = shape}};
    eider_tensor copy_args[] = {args[0], {.data = &n, .type = EIDER_I32}, args[1]};
    eider_status status;
    if ((status = eider_memory_copy(s->device, s->stream, s->x, host, sizeof host,
                                    EIDER_HOST_TO_DEVICE)) ||
        (status = eider_memory_copy(s->device, s->stream, s->out, s->x, sizeof host,
                                    EIDER_DEVICE_TO_DEVICE)) ||
        (status = eider_launch_grid(s->copy, s->stream, grid, copy_args, 3)) ||
        (status = eider_launch(s->scale, s->stream, args, 2)) ||
        (status = eider_time(s->scale, s->stream, args, 2, 3, 1, ns)) ||
        (status = eider_kernel_check(s->scale, s->stream)) ||
        (status = eider_launch(s->split, s->stream, args, 2)) ||
        (status = eider_time(s->split, s->stream, args, 2, 2, 0, ns)) ||
        (status = eider_stream_wait(s->device, s->stream)))
        return status;
    return eider_memory_copy(s->device, s->stream, host, s->out, sizeof host, EIDER_DEVICE_TO_HOST);
}

static eider_status tell(eider_context *ctx, struct story *s)
{
    int32_t n_devices;
    eider_status status;
    if ((status = eider_device_count(ctx, "cuda", &n_devices)) ||
        (status = eider_device_from_cuda(ctx, fake->context(), &s->mine)) ||
        (status = eider_device_open(ctx, "cuda:1", &s->device)) ||
        (status = eider_stream_create(s->device, &s->stream)) ||
        (status = eider_memory_alloc(s->device, 4000, &s->x)) ||
        (status = eider_memory_alloc(s->device, 4000, &s->out)) || (status = prepare_all(ctx, s)))
        return status;
    return run_all(s);
}

static void clean_up(eider_context *ctx, struct story *s)
{
    eider_kernel_release(s->copy);
    eider_kernel_release(s->scale);
    eider_kernel_release(s->split);
    eider_program_release(s->program);
    eider_program_release(s->rows);
    eider_memory_free(s->device, s->x);
    eider_memory_free(s->device, s->out);
    eider_stream_destroy(s->device, s->stream);
    eider_device_release(s->device);
    eider_device_release(s->mine);
    eider_context_destroy(ctx);
}

/* Releases at the end of a call: nobody can do anything about their failure. */
static int may_be_ignored(const char *member)
{
    return strcmp(member, "cuMemFree") == 0 || strcmp(member, "cuEventDestroy") == 0;
}

/* Breaks one call; 0 when the story has no such call. */
static int tell_with_fault(const char *member, int nth)
{
    struct story s = {0};
    fake->reset();
    eider_context *ctx = create_context();
    fake->break_call(member, nth, 999);
    eider_status status = tell(ctx, &s);
    int was_hit = fake->has_failed();
    if (!was_hit) assert_int_equal(status, EIDER_OK);
    if (was_hit && status == EIDER_OK && !may_be_ignored(member))
        fail_msg("call %d of %s failed and nobody said so", nth, member);
    if (status != EIDER_OK) {
        assert_true(status == EIDER_DRIVER || status == EIDER_NO_DRIVER);
        assert_non_null(strstr(eider_error(), member));
    }
    clean_up(ctx, &s);
    assert_int_equal(fake->depth(), 0);
    /* Where the fault is in the cleaning up, what it hit may stay behind. */
    if (was_hit && fake->alive() != 0)
        fail_msg("call %d of %s failed and %d objects were lost", nth, member, fake->alive());
    return fake->has_failed();
}

/* ---- Failures ---------------------------------------------------------- */

static void every_driver_call_may_fail_and_nothing_is_lost(void **state)
{
    (void)state;
    int n_faults = 0;
    for (int row = 0; fake->member(row); row++) {
        int before = n_faults;
        for (int nth = 1; tell_with_fault(fake->member(row), nth); nth++) n_faults++;
        int only_after_another = strstr(fake->member(row), "cuGetError") != NULL;
        if (n_faults == before && !only_after_another)
            fail_msg("%s is never called, so its failure is not seen", fake->member(row));
    }
    assert_true(n_faults > 60);
}

static void a_missing_driver_is_named_with_every_path_tried(void **state)
{
    (void)state;
    int32_t n;
    eider_context *ctx;
    eider_context_options options = {.cuda_library = "/nowhere/libcuda.so.1"};
    assert_int_equal(eider_context_create(&options, &ctx), EIDER_OK);
    assert_int_equal(eider_device_count(ctx, "cuda", &n), EIDER_NO_DRIVER);
    assert_non_null(strstr(eider_error(), "/nowhere/libcuda.so.1: "));
    eider_tool tool = {0};
    size_t i = 0;
    while (eider_tool_find(ctx, i, &tool) && strcmp(tool.name, "cuda driver") != 0) i++;
    assert_string_equal(tool.name, "cuda driver");
    assert_false(tool.found);
    assert_non_null(strstr(tool.tried, "/nowhere/libcuda.so.1: "));
    assert_false(eider_tool_find(ctx, i + 1, &tool));
    eider_context_destroy(ctx);
}

static void a_driver_that_does_not_start_is_as_good_as_none(void **state)
{
    (void)state;
    int32_t n;
    eider_context *ctx = create_context();
    fake->break_call("cuInit", 1, 803);
    assert_int_equal(eider_device_count(ctx, "cuda", &n), EIDER_NO_DRIVER);
    assert_non_null(strstr(eider_error(), "cuInit failed: CUDA_ERROR_FAKE (803)"));
    fake->break_call("cuInit", 1, CUDA_ERROR_NO_DEVICE);
    assert_int_equal(eider_device_count(ctx, "cuda", &n), EIDER_OK);
    assert_int_equal(n, 0);
    eider_device *device;
    assert_int_equal(eider_device_open(ctx, "cuda", &device), EIDER_NO_DEVICE);
    eider_context_destroy(ctx);
}

static void errors_of_the_driver_keep_their_meaning(void **state)
{
    (void)state;
    static const struct {
        CUresult result;
        eider_status status;
    } rows[] = {
        {CUDA_ERROR_OUT_OF_MEMORY, EIDER_OOM},
        {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, EIDER_NO_DRIVER},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, EIDER_TARGET},
        {CUDA_ERROR_INVALID_PTX, EIDER_ASSEMBLER},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, EIDER_CAPTURING},
        {718, EIDER_DRIVER},
    };
    eider_context *ctx = create_context();
    eider_device *device;
    eider_kernel *kernel;
    eider_request request = {.source = &ptx_source, .assembler = "driver"};
    assert_int_equal(eider_device_open(ctx, "cuda", &device), EIDER_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fake->break_call("cuModuleLoadDataEx", 1, rows[i].result);
        assert_int_equal(eider_prepare(device, &request, &kernel), rows[i].status);
    }
    fake->break_call("cuInit", 1, 0);
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_OK);
    eider_kernel_release(kernel);
    void *memory;
    assert_int_equal(eider_memory_alloc(device, (size_t)2 << 30, &memory), EIDER_OOM);
    assert_non_null(strstr(eider_error(), "2147483648 bytes of GPU memory"));
    eider_device_release(device);
    eider_context_destroy(ctx);
    assert_int_equal(fake->alive(), 0);
}

static void a_refused_module_comes_with_the_drivers_log(void **state)
{
    (void)state;
    eider_context *ctx = create_context();
    eider_device *device;
    eider_kernel *kernel;
    eider_source source = ptx_source;
    source.data = ".version 7.8 BROKEN";
    eider_request request = {.source = &source, .assembler = "driver"};
    assert_int_equal(eider_device_open(ctx, "cuda", &device), EIDER_OK);
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_ASSEMBLER);
    assert_non_null(strstr(eider_error(), "\nline 1: it is BROKEN"));
    source = ptx_source;
    source.entry = "missing";
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), "no kernel 'missing'"));
    eider_device_release(device);
    eider_context_destroy(ctx);
    assert_int_equal(fake->alive(), 0);
}

static void a_driver_that_shut_down_first_is_no_trouble(void **state)
{
    (void)state;
    struct story s = {0};
    eider_context *ctx = create_context();
    assert_int_equal(tell(ctx, &s), EIDER_OK);
    fake->deinitialise();
    clean_up(ctx, &s);
}

/* ---- Success ----------------------------------------------------------- */

static void the_driver_gets_grid_block_and_parameters(void **state)
{
    (void)state;
    struct story s = {0};
    eider_context *ctx = create_context();
    assert_int_equal(tell(ctx, &s), EIDER_OK);
    int64_t shape[] = {1000};
    int32_t n[2] = {77, 0}; /* the fake reads 8 bytes of each parameter */
    eider_tensor args[] = {{.data = s.x, .type = EIDER_F32, .rank = 1, .shape = shape},
                           {.data = n, .type = EIDER_I32},
                           {.data = s.out, .type = EIDER_F32, .rank = 1, .shape = shape}};
    fake->set_params(3);
    const uint32_t grid[] = {5, 6, 7};
    assert_int_equal(eider_launch_grid(s.copy, s.stream, grid, args, 3), EIDER_OK);
    const struct fake_cuda_launch *launch = fake->last_launch();
    assert_memory_equal(launch->grid, grid, sizeof grid);
    assert_int_equal(launch->block[0], 64);
    assert_int_equal(launch->block[1], 2);
    assert_int_equal(launch->block[2], 1);
    assert_int_equal(launch->shared_bytes, 1024);
    assert_ptr_equal(launch->stream, s.stream);
    assert_int_equal(launch->params[0], (uintptr_t)s.x);
    assert_int_equal(launch->params[1], 77);
    assert_int_equal(launch->params[2], (uintptr_t)s.out);
    fake->set_params(0);

    eider_tensor scale_args[] = {args[0], args[2]};
    assert_int_equal(eider_launch(s.scale, NULL, scale_args, 2), EIDER_OK);
    assert_int_equal(launch->grid[1], 1);
    assert_true(launch->block[0] >= 32);
    assert_null(launch->stream);

    eider_kernel_info info;
    eider_kernel_describe(s.scale, &info);
    assert_string_equal(info.assembler, "driver 13.0");
    assert_string_equal(info.target, "sm_90");
    assert_int_equal(info.registers, 24);
    clean_up(ctx, &s);
    assert_int_equal(fake->alive(), 0);
}

/* Sums of 5 rows, with a config in which `parameter` is n; from `directory`, if it has it. */
static eider_status launch_rows(const char *directory, const char *parameter, int n, int result,
                                uint64_t *disk_hits)
{
    eider_context_options options = {.cuda_library = fake_path, .cache_dir = directory};
    eider_context *ctx;
    eider_device *device;
    eider_program *program;
    eider_kernel *kernel;
    eider_counters counters;
    int64_t shape[] = {5, 4096}, row[] = {5, 1};
    char config[48];
    static float memory[5 * 4096 + 5];
    eider_tensor args[] = {{.data = memory, .type = EIDER_F32, .rank = 2, .shape = shape},
                           {.data = memory + 5 * 4096, .type = EIDER_F32, .rank = 2, .shape = row}};
    snprintf(config, sizeof config, "%s=%d,row=64,block=64", parameter, n);
    assert_int_equal(eider_context_create(&options, &ctx), EIDER_OK);
    assert_int_equal(eider_device_open(ctx, "cuda:0", &device), EIDER_OK);
    assert_int_equal(eider_program_parse(ctx, "y = sum(x)", &program), EIDER_OK);
    eider_request request = {
        .program = program, .args = args, .n_args = 2, .assembler = "driver", .config = config};
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_OK);
    if (result) fake->break_call("cuLaunchKernel", 1, result);
    eider_status status = eider_launch(kernel, NULL, args, 2);
    eider_context_counters(ctx, &counters);
    *disk_hits = counters.disk_hits;
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(ctx);
    return status;
}

static void large_clusters_are_allowed_and_refused_by_name(void **state)
{
    char directory[CACHE_PATH_BYTES];
    uint64_t disk_hits;
    (void)state;
    cache_directory(directory);
    for (int n = 1; n <= 16; n *= 2)
        for (int again = 0; again < 2; again++) {
            fake->reset();
            assert_int_equal(launch_rows(directory, "cluster", n, 0, &disk_hits), EIDER_OK);
            assert_int_equal(disk_hits, again);
            assert_int_equal(fake->last_launch()->grid[0], 5 * n);
            assert_int_equal(fake->last_launch()->block[0], 64);
            assert_int_equal(fake->attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
                             n > 8);
        }
    assert_int_equal(launch_rows("", "cluster", 16, CUDA_ERROR_INVALID_CLUSTER_SIZE, &disk_hits),
                     EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "this GPU cannot run clusters of 16 blocks of 64 threads "
                                          "together: cuLaunchKernel failed"));
    cache_remove(directory);
    assert_int_equal(fake->alive(), 0);
}

/* Rows of a program on the fake GPU, which has 132 multiprocessors; one kernel for any number. */
struct rows_story {
    eider_context *ctx;
    eider_device *device;
    eider_program *program;
    eider_kernel *kernel;
    int64_t shape[2], row[2];
    eider_tensor args[2];
};

/* Far more than is there: nobody reads it. */
static void prepare_rows(struct rows_story *s, const char *config)
{
    static float memory[8];
    eider_context_options options = {.cuda_library = fake_path, .cache_dir = ""};
    fake->reset();
    s->shape[0] = 5, s->shape[1] = 4096, s->row[0] = 5, s->row[1] = 1;
    s->args[0] = (eider_tensor){.data = memory, .type = EIDER_F32, .rank = 2, .shape = s->shape};
    s->args[1] = (eider_tensor){
        .data = (void *)((uintptr_t)memory + ((uintptr_t)1 << 40)), /* far from the input */
        .type = EIDER_F32,
        .rank = 2,
        .shape = s->row};
    assert_int_equal(eider_context_create(&options, &s->ctx), EIDER_OK);
    assert_int_equal(eider_device_open(s->ctx, "cuda:0", &s->device), EIDER_OK);
    assert_int_equal(eider_program_parse(s->ctx, "y = sum(x)", &s->program), EIDER_OK);
    eider_request request = {.program = s->program,
                             .args = s->args,
                             .n_args = 2,
                             .assembler = "driver",
                             .config = config};
    if (eider_prepare(s->device, &request, &s->kernel) != EIDER_OK)
        fail_msg("%s: %s", config, eider_error());
}

static void release_rows(struct rows_story *s)
{
    eider_kernel_release(s->kernel);
    eider_program_release(s->program);
    eider_device_release(s->device);
    eider_context_destroy(s->ctx);
}

/* The kernel's parameters are x, y, rows, cols, flags, in_flight. */
static void resident_blocks_are_as_many_as_the_gpu_has_room_for(void **state)
{
    static const struct {
        const char *config;
        int64_t rows;
        uint32_t grid, in_flight;
    } cases[] = {
        {"row=64,block=64", 100000, 100000, 100000},
        {"row=64,block=64,resident=1", 100000, 132, 132},
        {"row=64,block=64,resident=3", 100000, 396, 396},
        {"row=64,block=64,resident=3", 396, 396, 396},
        {"row=64,block=64,resident=3", 395, 395, 395},
        {"row=32,block=128,resident=2", 100000, 264, 264},
        {"row=32,block=128,resident=2", 9, 3, 3},
        {"cluster=8,row=64,block=64,resident=1", 100000, 128, 16},
        {"cluster=16,row=64,block=64,resident=1", 100000, 128, 8},
        {"cluster=8,row=64,block=64,resident=1", 2, 16, 2},
        {"cluster=2,row=64,block=64", 1000, 2000, 1000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rows_story s = {0};
        double ns;
        prepare_rows(&s, cases[i].config);
        s.shape[0] = s.row[0] = cases[i].rows;
        fake->set_params(6);
        for (int timed = 0; timed < 2; timed++) {
            eider_status status = timed ? eider_time(s.kernel, NULL, s.args, 2, 1, 0, &ns)
                                        : eider_launch(s.kernel, NULL, s.args, 2);
            assert_int_equal(status, EIDER_OK);
            const struct fake_cuda_launch *launch = fake->last_launch();
            if (launch->grid[0] != cases[i].grid || launch->params[5] != cases[i].in_flight)
                fail_msg("%s: %u blocks, %d in flight", cases[i].config, launch->grid[0],
                         (int)launch->params[5]);
            assert_int_equal(launch->params[2], cases[i].rows);
        }
        fake->set_params(0);
        release_rows(&s);
    }
    assert_int_equal(fake->alive(), 0);
}

/* That of rows; what reductions need is in the module. */
static void launches_have_the_shared_memory_of_their_rows(void **state)
{
    static const struct {
        const char *config;
        uint32_t bytes;
    } cases[] = {
        {"vec=4,row=64,block=64,keep=1", 0},
        {"vec=4,row=64,block=64,keep=1,shared=3", 3 * 64 * 16},
        {"vec=4,row=64,block=128,keep=0,shared=2,async=1", 2 * 128 * 16},
        {"vec=4,row=1024,block=1024,keep=0,shared=8", 8 * 1024 * 16},
        {"vec=4,cluster=2,row=64,block=64,keep=0,shared=8,resident=1", 8 * 64 * 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rows_story s = {0};
        prepare_rows(&s, cases[i].config);
        assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_OK);
        assert_int_equal(fake->last_launch()->shared_bytes, cases[i].bytes);
        /* More than a block has unless the driver is asked. */
        int asked = fake->attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        assert_true(cases[i].bytes <= 48 << 10 || asked == (int)cases[i].bytes);
        release_rows(&s);
    }
}

/* Of y = sum(x): x, y, rows, cols, flags, in_flight, round, memory. */
static void parts_of_a_row_have_memory_between_their_launches(void **state)
{
    struct rows_story s = {0};
    double ns[2];
    (void)state;
    prepare_rows(&s, "split=16,row=64,block=64");
    int alive = fake->alive();
    fake->set_params(8);
    assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_OK);
    assert_string_equal(fake->order(), "akkf");
    const struct fake_cuda_launch *launch = fake->last_launch();
    assert_int_equal(launch->grid[0], 5); /* one block for each sum */
    assert_int_equal(launch->params[6], 1);
    assert_int_not_equal(launch->params[7], 0);
    assert_int_equal(eider_time(s.kernel, NULL, s.args, 2, 2, 0, ns), EIDER_OK);
    assert_string_equal(fake->order(), "akkfakkfakkf");

    fake->break_call("cuLaunchKernel", 2, 999);
    assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_DRIVER);
    assert_int_equal(launch->grid[0], 5 * 16);
    assert_int_equal(launch->params[6], 0);
    assert_string_equal(fake->order(), "akf");
    fake->break_call("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_OOM);
    assert_non_null(strstr(eider_error(), "640 bytes of GPU memory: cuMemAllocFromPoolAsync"));
    assert_string_equal(fake->order(), "");
    fake->break_call("cuMemFreeAsync", 1, 999);
    assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_DRIVER);
    fake->break_call("cuInit", 1, 0);

    s.shape[0] = s.row[0] = 0;
    assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_OK);
    assert_string_equal(fake->order(), "");
    assert_int_equal(fake->alive(), alive);
    fake->set_params(0);
    release_rows(&s);
    assert_int_equal(fake->alive(), 0);
}

static void a_kernel_from_disk_knows_its_rounds(void **state)
{
    char directory[CACHE_PATH_BYTES];
    uint64_t disk_hits;
    (void)state;
    cache_directory(directory);
    for (int again = 0; again < 2; again++) {
        fake->reset();
        assert_int_equal(launch_rows(directory, "split", 8, 0, &disk_hits), EIDER_OK);
        assert_int_equal(disk_hits, again);
        assert_string_equal(fake->order(), "akkf");
    }
    cache_remove(directory);
    assert_int_equal(fake->alive(), 0);
}

static void other_launches_have_no_memory(void **state)
{
    struct rows_story s = {0};
    (void)state;
    prepare_rows(&s, "split=1");
    assert_int_equal(fake->calls("cuMemPoolCreate"), 0);
    assert_int_equal(eider_launch(s.kernel, NULL, s.args, 2), EIDER_OK);
    assert_string_equal(fake->order(), "k");
    release_rows(&s);
}

static void a_gpu_without_memory_pools_refuses_to_split_rows(void **state)
{
    eider_context *ctx = create_context();
    eider_device *device;
    eider_program *program;
    eider_kernel *kernel;
    int64_t shape[] = {2, 4096}, row[] = {2, 1};
    eider_tensor args[] = {{.type = EIDER_F32, .rank = 2, .shape = shape},
                           {.type = EIDER_F32, .rank = 2, .shape = row}};
    eider_request request = {.args = args, .n_args = 2, .assembler = "driver", .config = "split=8"};
    (void)state;
    fake->take_pools_away();
    assert_int_equal(eider_device_open(ctx, "cuda:0", &device), EIDER_OK);
    assert_int_equal(eider_program_parse(ctx, "y = sum(x)", &program), EIDER_OK);
    request.program = program;
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_CONFIG);
    assert_non_null(
        strstr(eider_error(), "this driver (CUDA 13.0) has none for this GPU; split=1"));
    request.config = "split=1";
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_OK);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(ctx);
    assert_int_equal(fake->alive(), 0);
}

static void the_callers_current_context_stays(void **state)
{
    (void)state;
    struct story s = {0};
    fake->set_current(fake->context());
    eider_context *ctx = create_context();
    assert_int_equal(tell(ctx, &s), EIDER_OK);
    clean_up(ctx, &s);
    assert_int_equal(fake->depth(), 1);
    assert_int_equal(fake->mode(), 0);
    fake->set_current(NULL);
}

static void a_callers_context_is_used_and_not_released(void **state)
{
    (void)state;
    eider_context *ctx = create_context();
    eider_device *device, *again;
    eider_kernel *kernel;
    eider_device_info info;
    eider_request request = {.source = &ptx_source, .assembler = "driver"};
    void *mine = fake->context();
    assert_int_equal(eider_device_from_cuda(ctx, mine, &device), EIDER_OK);
    assert_int_equal(eider_device_from_cuda(ctx, mine, &again), EIDER_OK);
    assert_ptr_equal(device, again);
    eider_device_describe(device, &info);
    assert_int_equal(info.ordinal, 1);
    assert_string_equal(info.name, "Fake GPU 1");
    assert_int_equal(eider_prepare(device, &request, &kernel), EIDER_OK);
    assert_int_equal(fake->alive(), 1); /* the module, no retained context */
    eider_device_release(again);
    assert_int_equal(fake->alive(), 1);
    eider_device_release(device);
    assert_int_equal(fake->alive(), 0); /* the caller may destroy the context now */
    const uint32_t grid[] = {1, 1, 1};
    eider_tensor args[3] = {{0}};
    assert_int_equal(eider_launch_grid(kernel, NULL, grid, args, 3), EIDER_NOT_PREPARED);
    eider_kernel_release(kernel);
    eider_context_destroy(ctx);
}

static void kernels_are_loaded_once_per_device(void **state)
{
    (void)state;
    eider_context *ctx = create_context();
    eider_device *devices[3];
    eider_kernel *kernels[6];
    eider_request request = {.source = &ptx_source, .assembler = "driver"};
    assert_int_equal(eider_device_open(ctx, "cuda:0", &devices[0]), EIDER_OK);
    assert_int_equal(eider_device_open(ctx, "cuda:1", &devices[1]), EIDER_OK);
    assert_int_equal(eider_device_open(ctx, "cuda:1", &devices[2]), EIDER_OK);
    assert_int_equal(fake->calls("cuDevicePrimaryCtxRetain"), 2);
    for (int i = 0; i < 6; i++)
        assert_int_equal(eider_prepare(devices[i % 3], &request, &kernels[i]), EIDER_OK);
    assert_int_equal(fake->calls("cuModuleLoadDataEx"), 2);
    assert_ptr_equal(kernels[1], kernels[5]);
    assert_ptr_not_equal(kernels[0], kernels[1]);
    for (int i = 0; i < 6; i++) eider_kernel_release(kernels[i]);
    assert_int_equal(fake->calls("cuModuleUnload"), 0);
    for (int i = 0; i < 3; i++) eider_device_release(devices[i]);
    assert_int_equal(eider_device_open(ctx, "cuda:2", &devices[0]), EIDER_NO_DEVICE);
    eider_context_destroy(ctx);
    assert_int_equal(fake->calls("cuModuleUnload"), 2);
    assert_int_equal(fake->alive(), 0);
}

/* ---- Capture ----------------------------------------------------------- */

static void a_capture_survives_prepare_launch_and_release(void **state)
{
    (void)state;
    struct story s = {0};
    eider_context *ctx = create_context();
    assert_int_equal(tell(ctx, &s), EIDER_OK);
    int64_t shape[] = {1000};
    eider_tensor args[] = {{.data = s.x, .type = EIDER_F32, .rank = 1, .shape = shape},
                           {.data = s.out, .type = EIDER_F32, .rank = 1, .shape = shape}};
    eider_source other = ptx_source;
    eider_kernel *kernel;
    double ns;
    float host;
    other.shared_bytes = 2048;
    eider_request request = {.source = &other, .assembler = "driver"};

    fake->begin_capture(s.stream);
    assert_int_equal(eider_prepare(s.device, &request, &kernel), EIDER_OK);
    assert_int_equal(eider_launch(s.scale, s.stream, args, 2), EIDER_OK);
    assert_int_equal(eider_launch(s.split, s.stream, args, 2), EIDER_OK);
    args[0].type = EIDER_F16;
    assert_int_equal(eider_launch(s.scale, s.stream, args, 2), EIDER_NOT_PREPARED);
    args[0].type = EIDER_F32;
    assert_int_equal(eider_stream_wait(s.device, s.stream), EIDER_CAPTURING);
    assert_int_equal(eider_time(s.scale, s.stream, args, 2, 1, 1, &ns), EIDER_CAPTURING);
    assert_int_equal(
        eider_memory_copy(s.device, s.stream, &host, s.x, sizeof host, EIDER_DEVICE_TO_HOST),
        EIDER_CAPTURING);
    eider_kernel_release(kernel);
    eider_kernel_release(s.copy);
    eider_memory_free(s.device, s.x);
    assert_int_equal(fake->calls("cuModuleUnload"), 0);
    assert_true(fake->end_capture());

    eider_kernel_release(s.scale);
    eider_kernel_release(s.split);
    eider_program_release(s.program);
    eider_program_release(s.rows);
    eider_memory_free(s.device, s.out);
    eider_stream_destroy(s.device, s.stream);
    eider_device_release(s.device);
    eider_context_destroy(ctx);
    assert_int_equal(fake->alive(), 0);
}

int main(void)
{
    const char *folder = getenv("EIDER_TEST_LIB");
#ifdef EIDER_TEST_LIB
    if (!folder) folder = EIDER_TEST_LIB;
#endif
    snprintf(fake_path, sizeof fake_path, "%s/fake/libcuda.so.1", folder ? folder : ".");
    void *library = dlopen(fake_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    fake = dlsym(library, "fake_cuda");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_driver_call_may_fail_and_nothing_is_lost, reset),
        cmocka_unit_test_setup(a_missing_driver_is_named_with_every_path_tried, reset),
        cmocka_unit_test_setup(a_driver_that_does_not_start_is_as_good_as_none, reset),
        cmocka_unit_test_setup(errors_of_the_driver_keep_their_meaning, reset),
        cmocka_unit_test_setup(a_refused_module_comes_with_the_drivers_log, reset),
        cmocka_unit_test_setup(a_driver_that_shut_down_first_is_no_trouble, reset),
        cmocka_unit_test_setup(the_driver_gets_grid_block_and_parameters, reset),
        cmocka_unit_test_setup(large_clusters_are_allowed_and_refused_by_name, reset),
        cmocka_unit_test_setup(resident_blocks_are_as_many_as_the_gpu_has_room_for, reset),
        cmocka_unit_test_setup(parts_of_a_row_have_memory_between_their_launches, reset),
        cmocka_unit_test_setup(a_kernel_from_disk_knows_its_rounds, reset),
        cmocka_unit_test_setup(other_launches_have_no_memory, reset),
        cmocka_unit_test_setup(a_gpu_without_memory_pools_refuses_to_split_rows, reset),
        cmocka_unit_test_setup(launches_have_the_shared_memory_of_their_rows, reset),
        cmocka_unit_test_setup(the_callers_current_context_stays, reset),
        cmocka_unit_test_setup(a_callers_context_is_used_and_not_released, reset),
        cmocka_unit_test_setup(kernels_are_loaded_once_per_device, reset),
        cmocka_unit_test_setup(a_capture_survives_prepare_launch_and_release, reset),
    };
    return cmocka_run_group_tests_name("fake_cuda", tests, NULL, NULL);
}
