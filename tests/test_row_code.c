/* test_row_code.c -- what the code of kernels over rows has for GPUs, and the defaults of it that
 * lengths decide.  No GPU is needed; what the code does is tested in test_row.c, on the CPU, and in
 * test_row_gpu.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "row.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void kernels_assemble_for_gpus(void **state)
{
    enum { N_CLUSTERS = 5 }; /* the last configs */
    static const char *const targets[] = {"sm_80", "sm_90"};
    static const char *const configs[] = {NULL,
                                          "block=128,row=8",
                                          "block=512,row=512,keep=1",
                                          "block=32,row=32,keep=0,load=nc,store=cs",
                                          "cluster=2,block=256,row=256,keep=1",
                                          "cluster=16,block=1024,row=1024,keep=0",
                                          "cluster=8,load=nc",
                                          "cluster=8,block=256,row=256,mbarrier=1",
                                          "cluster=16,block=1024,row=1024,load=last,mbarrier=1"};
    int64_t shape[2] = {64, 4096}, column[2] = {1, 4096}, row[2] = {64, 1};
    eider_program *program;
    eider_tensor args[9];
    (void)state;
    must(eider_program_parse(row_context, row_everything, &program));
    row_everything_args(args, shape, column, row);
    for (size_t t = 0; t < COUNT(targets); t++)
        for (size_t k = 0; k < COUNT(configs) - (t ? 0 : N_CLUSTERS); k++) {
            eider_kernel *kernel;
            eider_request request = {.program = program,
                                     .args = args,
                                     .n_args = 9,
                                     .config = configs[k],
                                     .target = targets[t]};
            if (eider_compile(row_context, &request, &kernel) != EIDER_OK)
                fail_msg("%s [%s]: %s", targets[t], configs[k], eider_error());
            const char *ptx;
            size_t size;
            must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, (const void **)&ptx, &size));
            assert_non_null(strstr(ptx, "shfl.sync.bfly.b32"));
            eider_kernel_release(kernel);
        }
    eider_program_release(program);
}

static void registers_are_limited_for_the_assembler(void **state)
{
    static const struct {
        const char *config;
        int least, most;
    } cases[] = {{"row=128,keep=8,registers=0", 65, 255},
                 {"row=128,keep=8,registers=64", 33, 64},
                 {"row=128,keep=8,registers=40", 24, 40}};
    int64_t shape[2] = {4, 4096}, column[1] = {4096}, row[2] = {4, 1};
    eider_program *program;
    (void)state;
    must(eider_program_parse(row_context, "rmsnorm_backward", &program));
    eider_tensor args[5] = {
        tensor_of(NULL, EIDER_F32, 2, shape), tensor_of(NULL, EIDER_F32, 1, column),
        tensor_of(NULL, EIDER_F32, 2, row), tensor_of(NULL, EIDER_F32, 2, shape),
        tensor_of(NULL, EIDER_F32, 2, shape)};
    for (size_t i = 0; i < COUNT(cases); i++) {
        eider_request request = {.program = program,
                                 .args = args,
                                 .n_args = 5,
                                 .config = cases[i].config,
                                 .target = "sm_90"};
        eider_kernel *kernel;
        eider_kernel_info info;
        const void *ptx;
        size_t size;
        must(eider_compile(row_context, &request, &kernel));
        must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &ptx, &size));
        assert_int_equal(strstr(ptx, ".maxnreg") != NULL, i > 0);
        eider_kernel_describe(kernel, &info);
        if (info.registers >= 0) assert_in_range(info.registers, cases[i].least, cases[i].most);
        eider_kernel_release(kernel);
    }
    eider_program_release(program);
}

static eider_status compile_clusters(const char *target, const char *config, eider_kernel **out)
{
    int64_t shape[2] = {4, 65536}, row[2] = {4, 1};
    eider_program *program;
    must(eider_program_parse(row_context, "y = exp(x - max(x)); s = sum(x)", &program));
    eider_tensor args[3] = {tensor_of(NULL, EIDER_F32, 2, shape),
                            tensor_of(NULL, EIDER_F32, 2, shape),
                            tensor_of(NULL, EIDER_F32, 2, row)};
    eider_request request = {
        .program = program, .args = args, .n_args = 3, .config = config, .target = target};
    eider_status status = eider_compile(row_context, &request, out);
    eider_program_release(program);
    return status;
}

static void clusters_are_in_the_code_from_sm_90_on(void **state)
{
    static const char *const words[] = {".explicitcluster\n.reqnctapercluster 4, 1, 1\n",
                                        "barrier.cluster.arrive.relaxed.aligned",
                                        "barrier.cluster.arrive.aligned",
                                        "barrier.cluster.wait.aligned",
                                        "mapa.u64",
                                        "%cluster_ctarank",
                                        ".version 8.0"};
    static const char *const targets[] = {"sm_90", "sm_90a", "sm_100", "sm_120"};
    const void *data;
    size_t size;
    eider_kernel *kernel;
    (void)state;
    for (size_t t = 0; t < COUNT(targets); t++) {
        must(compile_clusters(targets[t], "cluster=4", &kernel));
        eider_kernel_info info;
        eider_kernel_describe(kernel, &info);
        assert_non_null(strstr(info.config, "block=512"));
        assert_non_null(strstr(info.config, "row=512"));
        must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &data, &size));
        for (size_t i = 0; i < COUNT(words); i++)
            if (!strstr(data, words[i]))
                fail_msg("%s: no %s\n%s", targets[t], words[i], (char *)data);
        eider_kernel_release(kernel);
    }
    must(compile_clusters("sm_90", "cluster=1", &kernel));
    must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, &data, &size));
    assert_null(strstr(data, "cluster"));
    eider_kernel_release(kernel);
    assert_int_equal(compile_clusters("sm_89", "cluster=2", &kernel), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "cluster=2: sm_89 has no clusters of blocks"));
}

/* Operands of `type` with 4 rows; those with one value for each row are f32 where the program does
 * not say.  Returns how many there are. */
static size_t operands_of(eider_program *program, eider_dtype type, int64_t cols,
                          eider_tensor args[ROW_OPERANDS_MAX])
{
    static int64_t full[2] = {4}, row[2] = {4, 1}, column[1];
    size_t n = eider_program_operands(program);
    full[1] = column[0] = cols;
    for (size_t i = 0; i < n; i++) {
        eider_operand info;
        eider_extent extent = eider_program_extent(program, i);
        must(eider_program_operand(program, i, &info));
        eider_dtype own = info.type >= 0            ? (eider_dtype)info.type
                          : extent == EIDER_PER_ROW ? EIDER_F32
                                                    : type;
        args[i] = info.kind == EIDER_SCALAR    ? tensor_of(NULL, own, 0, NULL)
                  : extent == EIDER_PER_COLUMN ? tensor_of(NULL, own, 1, column)
                  : extent == EIDER_PER_ROW    ? tensor_of(NULL, own, 2, row)
                                               : tensor_of(NULL, own, 2, full);
    }
    return n;
}

/* The PTX for sm_90 of a program of rows of `type`, with what `request` has besides; the caller
 * releases the kernel. */
static const char *ptx_of_request(const char *text, eider_dtype type, int64_t cols,
                                  eider_request request, eider_kernel **kernel)
{
    eider_tensor args[ROW_OPERANDS_MAX];
    eider_program *program;
    const void *ptx;
    size_t size;
    must(eider_program_parse(row_context, text, &program));
    request.program = program;
    request.args = args;
    request.n_args = operands_of(program, type, cols, args);
    request.target = "sm_90";
    must(eider_compile(row_context, &request, kernel));
    must(eider_kernel_stage(*kernel, EIDER_STAGE_PTX, &ptx, &size));
    eider_program_release(program);
    return ptx;
}

static const char *ptx_of_type(const char *text, eider_dtype type, const char *config, int64_t cols,
                               eider_kernel **kernel)
{
    eider_request request = {.config = config};
    return ptx_of_request(text, type, cols, request, kernel);
}

static const char *ptx_of(const char *text, const char *config, int64_t cols, eider_kernel **kernel)
{
    return ptx_of_type(text, EIDER_F32, config, cols, kernel);
}

/* The plan for `target` of a program of rows of `type` where a caller sets `set`; the caller
 * releases the program, which the plan is of. */
static eider_program *plan_of(const char *text, eider_dtype type, int64_t cols, const char *target,
                              const char *set, struct eider_plan *plan)
{
    eider_tensor args[ROW_OPERANDS_MAX];
    eider_program *program;
    must(eider_program_parse(row_context, text, &program));
    size_t n = operands_of(program, type, cols, args);
    eider_request request = {
        .program = program, .args = args, .n_args = n, .config = set, .target = target};
    if (eider_prepare_plan(row_context, NULL, &request, plan) != EIDER_OK)
        fail_msg("%s [%s] %d, %s: %s", text, set, (int)cols, target, eider_error());
    plan->request = NULL; /* it ends here */
    return program;
}

/* Once by vectors and once by elements; every warp of the cluster sends to every block. */
static void clusters_meet_at_mbarriers(void **state)
{
    static const struct {
        const char *text, *config;
        int sends, expected; /* instructions; bytes */
    } cases[] = {
        {"y = x * sum(x)", "cluster=4,block=64,row=64,mbarrier=1", 1, 4 * 8},
        {"y = exp(x - max(x)); s = sum(x)", "cluster=4,block=512,row=512,mbarrier=1", 2, 8 * 64},
        {"a = argmax(x)", "cluster=2,block=64,row=64,mbarrier=1", 2, 8 * 4},
        {"in x: f64; a = argmax(x)", "cluster=2,block=64,row=64,mbarrier=1", 2, 12 * 4},
        {"out s: bool; s = any(x > 1)", "cluster=2,block=64,row=64,mbarrier=1", 1, 4 * 4},
        {"y = x * sum(x)", "cluster=16,block=512,row=512,mbarrier=1", 1, 4 * 16},
        {"y = x * sum(x)", "cluster=4,block=128,row=32,mbarrier=1", 1, 4 * 16},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        eider_kernel *kernel;
        const char *ptx = ptx_of(cases[i].text, cases[i].config, 65536, &kernel);
        char expected[64];
        int ways = row_count(ptx, "mbarrier.try_wait.parity.shared::cta.b64");
        const char *at = strstr(ptx, "mbarrier.arrive.expect_tx.shared.b64 _, [");
        snprintf(expected, sizeof expected, "], %d;", cases[i].expected);
        assert_in_range(ways, 1, 2);
        assert_int_equal(row_count(ptx, "mbarrier.init.shared.b64"), 1);
        assert_non_null(strstr(ptx, "fence.mbarrier_init.release.cluster;"));
        assert_int_equal(row_count(ptx, "st.async.shared::cluster"), ways * cases[i].sends);
        assert_int_equal(row_count(ptx, "barrier.cluster.arrive.aligned"), 0);
        assert_int_equal(row_count(ptx, "barrier.cluster.arrive.relaxed.aligned"), 1);
        assert_non_null(at);
        if (strncmp(strchr(at, ']'), expected, strlen(expected)) != 0)
            fail_msg("%s: not %s but %.50s", cases[i].text, expected, at);
        eider_kernel_release(kernel);
    }
}

/* Where the calls of `what`, in IR, have their mbarriers in shared memory, in bytes: as many as
 * there are, at most 8. */
static int places_of(const char *ir, const char *what, long *at)
{
    int n = 0;
    for (const char *call = ir; n < 8 && (call = strstr(call, what)); call++) {
        const char *end = strchr(call, '\n'), *place = strstr(call, "@eider_shared, i32 ");
        assert_true(place && place < end);
        at[n++] = strtol(place + strlen("@eider_shared, i32 "), NULL, 10);
    }
    return n;
}

/* Behind the slots, one for each stage, which every way through the kernel uses once. */
static void each_stage_has_an_mbarrier_of_its_own(void **state)
{
    static const char *const calls[] = {"\"mbarrier.init.", "\"mbarrier.arrive.",
                                        "mbarrier.try_wait."};
    const long slots = 2 * 8 * 8; /* two values of 8 warps */
    eider_kernel *kernel;
    const void *ir;
    size_t size;
    (void)state;
    ptx_of("y = exp(x - max(x)) / sum(exp(x - max(x)))",
           "cluster=4,block=64,row=64,online=0,mbarrier=1", 65536, &kernel);
    must(eider_kernel_stage(kernel, EIDER_STAGE_OPT, &ir, &size));
    assert_non_null(strstr(ir, "@eider_shared = internal addrspace(3) global [144 x i8]"));
    for (size_t i = 0; i < COUNT(calls); i++) {
        long at[8];
        int n = places_of(ir, calls[i], at);
        assert_int_equal(n, i ? 4 : 2);
        for (int k = 0; k < n; k++) assert_int_equal(at[k], slots + k % 2 * 8);
    }
    eider_kernel_release(kernel);
}

/* What the caller fixes is completed to something that the template takes. */
static void fixed_parameters_have_defaults_that_fit(void **state)
{
    static const struct {
        const char *text, *config;
        int64_t cols;
    } cases[] = {
        {"y = x * row()", "resident=1", 65536},
        {"in x, z, w: column; y = (x + z) * rsqrt(mean(x * x)) * w", "resident=1", 1000000},
        {"in x, z, w: column; y = (x + z) * rsqrt(mean(x * x)) * w", "resident=1", 20000},
        {"in x, z, w: column; y = (x + z) * rsqrt(mean(x * x)) * w", "mbarrier=1", 12288},
        {"y = x * sum(x)", "mbarrier=1", 1000},
        {"y = x * sum(x)", "mbarrier=1", 1 << 20},
        {"y = x * sum(x)", "block=96", 1000},
        {"y = x * sum(x)", "block=768", 20000},
        {"y = colsum(x)", "vec=1,block=96", 4096},
    };
    static const char *const targets[] = {"sm_80", "sm_90", "sm_120"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases) * COUNT(targets); i++) {
        size_t k = i / COUNT(targets);
        struct eider_plan plan;
        eider_program_release(plan_of(cases[k].text, EIDER_F32, cases[k].cols,
                                      targets[i % COUNT(targets)], cases[k].config, &plan));
    }
}

static void mbarriers_serve_for_one_row_of_a_cluster(void **state)
{
    eider_kernel *kernel;
    (void)state;
    assert_int_equal(compile_clusters("sm_90", "cluster=2,resident=1,mbarrier=1", &kernel),
                     EIDER_CONFIG);
    assert_non_null(
        strstr(eider_error(), "mbarrier=1, resident=1: an mbarrier serves for one row"));
    const char *ptx = ptx_of("y = x * sum(x)", "cluster=1,mbarrier=1", 4096, &kernel);
    assert_int_equal(row_count(ptx, "mbarrier."), 0);
    eider_kernel_release(kernel);
}

/* What is read again is held until the last pass; what all rows share, always. */
static void rows_that_are_read_again_stay_in_the_caches_until_then(void **state)
{
    static const char last[] = "ld.global.L1::evict_last.L2::cache_hint.v4.b32",
                      first[] = "ld.global.L1::evict_first.L2::cache_hint.v4.b32";
    static const struct {
        const char *text, *config;
        int n_last, n_first;
    } cases[] = {
        {"y = x * sum(x)", "keep=0,unroll=2,load=last,split=1", 2, 2},
        {"in x, w: column; y = x * sum(x) * w", "keep=0,unroll=2,load=last,split=1", 4, 2},
        {"in x, w: column; y = x * sum(x) * w", "keep=0,unroll=2,load=first,split=1", 0, 4},
        {"y = x * sum(x)", "keep=8,unroll=1,load=last,split=1", 0, 8},
        {"s = sum(x)", "keep=0,unroll=4,load=last,split=1", 0, 4},
        {"s = sum(exp(x - max(x)))", "keep=0,unroll=4,load=last,online=0,split=1", 4, 4},
        {"y = x * 2 + col()", "keep=0,unroll=4,load=last,split=1", 0, 4},
        {"in x, z; y = z * sum(x)", "keep=0,unroll=2,load=last,split=1", 0, 4},
        {"in x; s = max(x - sum(x))", "keep=0,unroll=2,load=last,split=2", 2, 2},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        eider_kernel *kernel;
        char config[128];
        snprintf(config, sizeof config, "vec=4,row=128,block=128,cluster=1,%s", cases[i].config);
        const char *ptx = ptx_of(cases[i].text, config, 4096, &kernel);
        int n_last = row_count(ptx, last), n_first = row_count(ptx, first);
        if (n_last != cases[i].n_last || n_first != cases[i].n_first)
            fail_msg("%s [%s]: %d last, %d first", cases[i].text, config, n_last, n_first);
        eider_kernel_release(kernel);
    }
}

/* The config of a call, as numbers. */
static struct eider_row_config config_of(const char *target, const char *config, int64_t cols)
{
    struct eider_plan plan;
    eider_program_release(plan_of("y = x - max(x)", EIDER_BF16, cols, target, config, &plan));
    return eider_row_config_of(&plan.config);
}

/* Threads of a block that is no power of two are a whole number of times those of a row. */
static void sums_down_the_rows_take_any_block(void **state)
{
    static const char *const vecs[] = {"vec=1", "vec=2", "vec=4"}, *const blocks[] = {"32",  "96",
                                                                                      "192", "256",
                                                                                      "384", "768"};
    int64_t shape[2] = {4096, 4096}, column[1] = {4096};
    eider_program *program;
    (void)state;
    must(eider_program_parse(row_context, "y = colsum(x)", &program));
    for (size_t k = 0; k < COUNT(vecs) * COUNT(blocks); k++) {
        char config[64];
        struct eider_plan plan;
        eider_tensor args[2] = {tensor_of(NULL, k % 2 ? EIDER_BF16 : EIDER_E4M3, 2, shape),
                                tensor_of(NULL, EIDER_F32, 1, column)};
        snprintf(config, sizeof config, "%s,block=%s", vecs[k % COUNT(vecs)],
                 blocks[k / COUNT(vecs)]);
        eider_request request = {
            .program = program, .args = args, .n_args = 2, .config = config, .target = "sm_90"};
        if (eider_prepare_plan(row_context, NULL, &request, &plan) != EIDER_OK)
            fail_msg("%s: %s", config, eider_error());
    }
    eider_program_release(program);
}

static void elements_in_flight_are_limited(void **state)
{
    int64_t shape[2] = {4, 256};
    eider_program *program;
    eider_kernel *kernel;
    (void)state;
    must(eider_program_parse(row_context, "y = x - max(x)", &program));
    eider_tensor args[2] = {tensor_of(NULL, EIDER_F64, 2, shape),
                            tensor_of(NULL, EIDER_F64, 2, shape)};
    eider_request request = {.program = program,
                             .args = args,
                             .n_args = 2,
                             .config = "vec=64,unroll=4",
                             .target = "sm_90"};
    assert_int_equal(eider_compile(row_context, &request, &kernel), EIDER_CONFIG);
    assert_string_equal(eider_error(),
                        "vec=64, unroll=4: a thread has at most 128 elements in flight");
    eider_program_release(program);
}

/* Vectors of 16 bytes that are loaded between the last arrival at a barrier and what follows. */
static int loads_between(const char *ptx, const char *arrive, const char *wait)
{
    const char *from = ptx, *at;
    while ((at = strstr(from + 1, arrive)) && strstr(at, "ld.global.v4")) from = at;
    const char *to = strstr(from, wait);
    assert_non_null(to);
    char *part = strndup(from, (size_t)(to - from));
    int n = row_count(part, "ld.global.v4");
    free(part);
    return n;
}

/* Weights of the first vectors are on their way while threads wait for totals; those of the next
 * ones are loaded before anything of the ones before is stored. */
static void what_all_rows_share_is_loaded_ahead(void **state)
{
    static const char text[] = "in x, w: column; y = x * rsqrt(mean(x * x)) * w";
    static const struct {
        const char *config, *arrive, *wait;
        int ahead;
    } cases[] = {
        {"cluster=4,row=128,block=128,keep=4,unroll=2", "barrier.cluster.arrive.aligned",
         "barrier.cluster.wait", 2},
        {"cluster=4,row=128,block=128,keep=0,shared=4,async=1,unroll=4",
         "barrier.cluster.arrive.aligned", "barrier.cluster.wait", 4},
        {"cluster=4,row=128,block=128,keep=4,unroll=2,mbarrier=1", "st.async", "mbarrier.try_wait",
         2},
        {"cluster=1,row=512,block=512,keep=4,unroll=1", "st.shared", "bar.sync", 1},
    };
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        char config[160];
        eider_kernel *kernel;
        int ahead = i % 2 ? cases[i / 2].ahead : 0;
        snprintf(config, sizeof config, "vec=4,%s,ahead=%d", cases[i / 2].config, (int)(i % 2));
        const char *ptx = ptx_of(text, config, 8192, &kernel);
        int got = loads_between(ptx, cases[i / 2].arrive, cases[i / 2].wait);
        if (got != ahead) fail_msg("%s: %d vectors, not %d", config, got, ahead);
        const char *store = strstr(ptx, "st.global.v4");
        char *before = strndup(ptx, (size_t)(store - ptx));
        int n = row_count(before, "ld.global.v4"), own = strstr(config, "keep=0") ? 0 : 4;
        int together = strstr(config, "unroll=1") ? 1 : strstr(config, "unroll=2") ? 2 : 4;
        int more = ahead && own ? together : 0; /* those of the next vectors */
        if (n != own + together + more) fail_msg("%s: %d loads before a store", config, n);
        free(before);
        eider_kernel_release(kernel);
    }
    /* Rows of any length, and those that begin anywhere, have none. */
    eider_kernel *kernel;
    const char *ptx =
        ptx_of(text, "cluster=4,row=128,block=128,keep=4,unroll=2,ahead=1,vec=4", 8191, &kernel);
    assert_int_equal(loads_between(ptx, "barrier.cluster.arrive.aligned", "barrier.cluster.wait"),
                     0);
    eider_kernel_release(kernel);
}

/* A power that is summed for an f32 result and multiplied for a bf16 one is a short one; for an
 * f32 one it is not. */
static void a_power_is_as_good_as_its_results_need(void **state)
{
    static const char text[] = "in x; out l: f32, y; m = max(x); e = exp(x - m)\n"
                               "s = sum(e); l = log(s) + m; y = e / s";
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        eider_kernel *kernel;
        const char *ptx =
            ptx_of_type(text, wide ? EIDER_F32 : EIDER_BF16,
                        "vec=4,row=32,block=128,keep=8,unroll=1,online=0", 1024, &kernel);
        int short_powers = row_count(ptx, "ex2.approx"), fits = row_count(ptx, "fma.rn.f32");
        assert_in_range(short_powers, 32, 32 + 4); /* and those of the elements' way */
        if (wide)
            assert_true(fits >= 32);
        else
            assert_true(fits < 32);
        eider_kernel_release(kernel);
    }
}

/* Products are added with one rounding, three of four neighbours at least, unless a caller forbids
 * it. */
static void sums_of_products_are_fused(void **state)
{
    static const char text[] = "in x; y = x * rsqrt(mean(x * x))";
    static const char config[] = "vec=4,row=32,block=32,keep=4,unroll=1";
    (void)state;
    for (int on = 0; on < 2; on++) {
        eider_kernel *kernel;
        eider_request request = {.config = config};
        request.numerics.contract = on ? EIDER_ON : EIDER_OFF;
        const char *ptx = ptx_of_request(text, EIDER_F32, 512, request, &kernel);
        int fused = row_count(ptx, "fma.rn.f32");
        if (on)
            assert_in_range(fused, 12, 16);
        else
            assert_int_equal(fused, 0);
        eider_kernel_release(kernel);
    }
}

/* With mean and variance in one pass, the sum of all vectors but the first follows from that of the
 * differences: one addition less for each element. */
static void a_sum_follows_from_its_moment(void **state)
{
    static const char *const texts[] = {
        "in x; out s; d = x - mean(x); e = mean(d); s = mean(d * d) - e * e",
        "in x; out s, t; d = x - mean(x); e = mean(d); s = mean(d * d) - e * e\n"
        "t = sum(abs(x))"};
    int added[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        eider_kernel *kernel;
        const char *ptx =
            ptx_of(texts[i], "vec=4,row=32,block=32,keep=8,unroll=1,online=1", 1024, &kernel);
        const char *slow = strstr(ptx, "ld.global.f32"); /* the elements' way */
        assert_non_null(slow);
        char *fast = strndup(ptx, (size_t)(slow - ptx));
        added[i] = row_count(fast, "add.rn.f32");
        free(fast);
        eider_kernel_release(kernel);
    }
    /* One for each of 32 differences, 7 for the reference, 5 for 32 threads of three sums, and what
     * brings those to the mean and makes the variance of them. */
    assert_in_range(added[0], 32, 32 + 7 + 3 * 5 + 12);
    assert_in_range(added[1] - added[0], 32 + 5 - 4, 32 + 5 + 4);
}

/* What a thread has of a short row stays as it was computed; what it has of a longer one is made
 * anew from what memory has, which are fewer registers. */
static void short_rows_stay_as_computed(void **state)
{
    static const char text[] = "in x; y = x * rsqrt(mean(x * x))";
    (void)state;
    for (int keep = 4; keep <= 8; keep *= 2) {
        char config[80];
        eider_kernel *kernel;
        snprintf(config, sizeof config, "vec=8,row=%d,block=32,keep=%d,unroll=1", 128 / keep, keep);
        const char *ptx = ptx_of_type(text, EIDER_BF16, config, 1024, &kernel);
        assert_int_equal(row_count(ptx, "xor.b32"), keep == 4 ? 0 : 4 * keep);
        eider_kernel_release(kernel);
    }
}

/* Threads of rows that do not exist end where no other row waits for them. */
static void threads_without_a_row_end(void **state)
{
    static const struct {
        const char *text, *config;
        int ends;
    } cases[] = {
        {"in x; y = x - max(x)", "row=32,block=128,vec=1,keep=1", 1},
        {"in x; y = x - max(x)", "row=32,block=32,vec=1,keep=1", 0},
        {"in x; y = x - max(x)", "row=64,block=128,vec=1,keep=1", 0},
        {"in x; y = x - max(x)", "row=4,block=32,vec=1,keep=8", 1},
        {"in x; y = x - max(x)", "row=1,block=32,vec=1,keep=0", 1},
        {"in x; y = x - max(x)", "row=32,block=128,vec=1,keep=1,resident=1", 0},
        {"in x; y = x - max(x)", "row=32,block=128,vec=1,keep=0,shared=1", 0},
        {"in x; y = x - max(x)", "row=32,block=128,vec=1,keep=1,cluster=2", 0},
        {"in x, k: row; out y, s; s = max(x) + k; y = x - s",
         "row=32,block=128,vec=1,keep=1,mbarrier=1", 1},
        {"in x; y = x - pick(x, argmax(x))", "row=32,block=128,vec=1,keep=1", 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        eider_kernel *kernel;
        const char *ptx = ptx_of(cases[i].text, cases[i].config, 32, &kernel);
        if ((strstr(ptx, "exit;") != NULL) != cases[i].ends ||
            (cases[i].ends && strstr(ptx, "bar.sync")))
            fail_msg("%s [%s]", cases[i].text, cases[i].config);
        eider_kernel_release(kernel);
    }
}

/* Places are compared with what is constant for a thread's vector: one instruction for each. */
static void a_place_costs_one_comparison(void **state)
{
    eider_kernel *kernel;
    (void)state;
    const char *ptx = ptx_of("in x, k: i64 row; y = x - select(col() == k, 1, 0)",
                             "vec=4,row=64,block=64,keep=4,unroll=1", 1024, &kernel);
    int n = 0;
    for (const char *at = ptx; (at = strstr(at, "setp.eq.s32")); at++) {
        const char *last = strchr(at, ';') - 1;
        while (last[-1] != ' ') last--;
        n += *last != '%';
    }
    assert_true(n >= 16);
    /* Few additions besides: none for each place. */
    assert_true(row_count(ptx, "add.s32") + row_count(ptx, "sub.s32") < 16);
    eider_kernel_release(kernel);
}

/* A sum that is online needs no other one that is. */
static void sums_that_need_one_another_have_defaults(void **state)
{
    static const char *const texts[] = {
        "d = x - mean(x); f = d - mean(d); y = f * rsqrt(mean(f * f) + 1e-5) + mean(f)",
        "e = exp(x - max(x)); q = e - mean(e); y = e * mean(q) + mean(q * q)",
        "d = x - mean(x); m = max(d); e = exp(d - m); q = e - mean(e); y = e * mean(q)",
        "d = x - mean(x); e = mean(d); q = d * d; v = mean(q); u = q - mean(q); y = u * mean(u)",
    };
    static const int64_t lengths[] = {256, 4096, 32768, 131072};
    (void)state;
    for (size_t i = 0; i < COUNT(texts) * COUNT(lengths); i++) {
        eider_kernel *kernel;
        ptx_of(texts[i / COUNT(lengths)], NULL, lengths[i % COUNT(lengths)], &kernel);
        eider_kernel_release(kernel);
    }
}

/* The config of a program on sm_90 where a caller sets `set`, as text. */
static void default_for(const char *text, eider_dtype type, int64_t cols, const char *set,
                        char config[EIDER_CONFIG_TEXT_BYTES])
{
    struct eider_plan plan;
    eider_program_release(plan_of(text, type, cols, "sm_90", set, &plan));
    eider_config_print(&plan.config, config);
}

/* What bench/RESULTS.md found best. */
static void defaults_are_those_that_were_measured(void **state)
{
    static const struct {
        const char *text;
        eider_dtype type;
        int64_t cols;
        const char *words[4];
    } cases[] = {
        {"cross_entropy", EIDER_BF16, 256, {"row=8,keep=4", "registers=64", "load=cs"}},
        {"cross_entropy", EIDER_BF16, 1024, {"row=32,keep=4", "online=0", "load=cs"}},
        {"cross_entropy_train", EIDER_BF16, 256, {"vec=4", "block=64", "row=8,keep=8"}},
        {"cross_entropy_train", EIDER_BF16, 1024, {"vec=4", "block=64", "row=64,keep=4"}},
        {"cross_entropy_train", EIDER_BF16, 65536, {"row=128,keep=8,cluster=4,shared=8"}},
        {"cross_entropy_train", EIDER_F32, 256, {"row=16,keep=4"}},
        {"softmax", EIDER_F32, 256, {"row=16,keep=4", "load=ca,store=wb"}},
        {"softmax", EIDER_BF16, 1024, {"vec=8", "row=64,keep=2"}},
        {"rmsnorm", EIDER_F32, 256, {"row=64,keep=1", "ahead=1"}},
        {"rmsnorm_backward", EIDER_BF16, 1024, {"row=128,keep=1", "ahead=0"}},
        {"layernorm_backward", EIDER_F32, 1024, {"row=256,keep=1", "ahead=0"}},
        {"layernorm", EIDER_F32, 1024, {"row=128,keep=2", "online=0", "ahead=1"}},
        {"layernorm", EIDER_BF16, 256, {"block=64", "row=16,keep=4", "registers=48", "online=0"}},
        {"layernorm", EIDER_BF16, 1024, {"vec=4,unroll=1,block=64", "row=64,keep=4", "online=0"}},
        {"rmsnorm_backward", EIDER_F32, 4096, {"row=1024,keep=1", "store=cs"}},
        {"layernorm_backward", EIDER_F32, 4096, {"row=512,keep=2", "store=wb"}},
        {"softmax_backward", EIDER_BF16, 4096, {"unroll=1", "row=512,keep=0", "load=last"}},
        {"softmax", EIDER_BF16, 8192, {"unroll=4", "row=512,keep=0", "load=last,store=first"}},
        {"rmsnorm", EIDER_BF16, 16384, {"unroll=2", "row=512,keep=0", "load=last,store=wb"}},
        {"layernorm", EIDER_BF16, 16384, {"unroll=4", "row=256,keep=0,cluster=1,shared=8"}},
        {"cross_entropy_train", EIDER_BF16, 16384, {"row=512,keep=1,cluster=1,shared=3"}},
        {"cross_entropy_train", EIDER_F32, 16384, {"unroll=4", "row=512,keep=0", "load=last"}},
        {"softmax", EIDER_F32, 32768, {"unroll=8", "row=1024,keep=2,cluster=1", "load=last"}},
        {"softmax", EIDER_F32, 65536, {"row=512,keep=8,cluster=4,shared=0", "mbarrier=1"}},
        {"rmsnorm", EIDER_BF16, 65536, {"unroll=8", "row=1024,keep=2,cluster=1", "store=first"}},
        {"layernorm", EIDER_F32, 131072, {"row=512,keep=16,cluster=2,shared=16", "mbarrier=0"}},
        {"layernorm_backward", EIDER_BF16, 131072, {"row=256,keep=4,cluster=4,shared=12"}},
        {"rmsnorm", EIDER_F32, 32768, {"unroll=8", "row=1024,keep=0,cluster=1", "store=first"}},
        {"layernorm", EIDER_BF16, 32768, {"unroll=4", "row=512,keep=0,cluster=1,shared=8"}},
        {"layernorm", EIDER_BF16, 65536, {"unroll=2", "row=1024,keep=4,cluster=1,shared=4"}},
        {"softmax_backward", EIDER_F32, 8192, {"unroll=1", "row=1024,keep=0", "load=last"}},
        {"cross_entropy_train", EIDER_BF16, 2048, {"vec=4", "row=64,keep=8"}},
        {"softmax", EIDER_BF16, 50257, {"row=256,keep=3,cluster=2,shared=10", "mbarrier=1"}},
        {"softmax", EIDER_BF16, 50264, {"row=256,keep=3,cluster=2,shared=10", "mbarrier=1"}},
        {"softmax", EIDER_BF16, 57344, {"row=128,keep=4,cluster=8,shared=3", "mbarrier=1"}},
        {"rmsnorm_backward", EIDER_BF16, 131072, {"row=512,keep=2,cluster=4", "registers=64"}},
        {"rmsnorm_backward", EIDER_F32, 131072, {"unroll=4", "row=512,keep=4,cluster=8"}},
        {"layernorm_backward", EIDER_F32, 131072, {"unroll=2", "row=512,keep=4,cluster=8"}},
        {"cross_entropy_train", EIDER_BF16, 128257, {"row=256,keep=2,cluster=8,shared=6"}},
        {"cross_entropy_backward", EIDER_BF16, 50257, {"vec=4,unroll=4", "row=512", "split=4"}},
        {"softmax_backward", EIDER_F32, 131072, {"row=512,keep=8,cluster=8,shared=0"}},
        {"softmax_backward", EIDER_F32, 262144, {"row=1024,keep=4,cluster=8,shared=4"}},
        {"cross_entropy_backward", EIDER_F32, 16384, {"vec=4,unroll=2", "row=256", "split=8"}},
        {"cross_entropy_backward", EIDER_BF16, 131072, {"vec=4,unroll=4", "row=256", "split=32"}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[EIDER_CONFIG_TEXT_BYTES];
        default_for(cases[i].text, cases[i].type, cases[i].cols, NULL, config);
        for (int w = 0; w < 4 && cases[i].words[w]; w++)
            if (!strstr(config, cases[i].words[w]))
                fail_msg("%s, %d: no %s in %s", cases[i].text, (int)cases[i].cols,
                         cases[i].words[w], config);
    }
}

/* Where a caller has cut the row otherwise, a rule's registers and steps are not for it; and what
 * is not kept is read in as few passes as can be. */
static void rules_are_for_rows_that_they_cut(void **state)
{
    static const struct {
        const char *text, *config, *word;
    } cases[] = {{"layernorm", NULL, "registers=48"},
                 {"layernorm", "row=16", "registers=0"},
                 {"in x, w: column, b: column; z = (x * w + b) * x * 2 + x * x * w - x * b\n"
                  "y = z / max(z)",
                  NULL, "registers=0"},
                 {"layernorm", "block=256", "registers=0"},
                 {"softmax", NULL, "online=0"},
                 {"softmax", "keep=0", "online=1"},
                 {"layernorm", "keep=1", "online=1"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[EIDER_CONFIG_TEXT_BYTES];
        default_for(cases[i].text, EIDER_BF16, 1024, cases[i].config, config);
        if (!strstr(config, cases[i].word))
            fail_msg("%s [%s]: %s", cases[i].text, cases[i].config, config);
    }
}

/* Where the rule has clusters of all that every GPU takes, a tuner asks early for more blocks. */
static void larger_clusters_are_likely_candidates(void **state)
{
    static const struct {
        const char *text;
        eider_dtype type;
        int64_t cols;
        const char *line;
    } cases[] = {
        {"softmax", EIDER_BF16, 262144, "\n*vec=8,row=128,block=128,cluster=16,keep=8,shared=8,"},
        {"softmax", EIDER_F32, 262144, "\n*vec=4,row=512,block=512,cluster=16,keep=4,shared=4,"},
        {"cross_entropy_train", EIDER_BF16, 262144,
         "\n*vec=8,row=128,block=128,cluster=16,keep=4,shared=12,"},
        {"softmax", EIDER_BF16, 4096, NULL},
        {"layernorm", EIDER_F32, 262144, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct eider_plan plan;
        struct eider_text text;
        char *lines;
        size_t size;
        eider_program *program =
            plan_of(cases[i].text, cases[i].type, cases[i].cols, "sm_90", NULL, &plan);
        eider_text_init(&text, &row_context->allocator);
        eider_row_space(&plan.layout, plan.target, &plan.config, &text);
        must(eider_text_take(&text, &lines, &size));
        if (cases[i].line ? !strstr(lines, cases[i].line) : strchr(lines, '*') != NULL)
            fail_msg("%s, %d: %s", cases[i].text, (int)cases[i].cols, lines);
        eider_mem_free(&row_context->allocator, lines);
        eider_text_release(&text);
        eider_program_release(program);
    }
}

static void rows_that_one_block_cannot_keep_have_clusters_by_default(void **state)
{
    static const struct {
        const char *target, *config;
        int64_t cols;
        int cluster;
    } cases[] = {
        {"sm_90", NULL, 64, 1},
        {"sm_90", NULL, 32768, 1},
        {"sm_90", NULL, 32776, 2},
        {"sm_90", NULL, 40960, 8},
        {"sm_90", NULL, 65536, 8},
        {"sm_100a", NULL, 131072, 8},
        {"sm_90", NULL, 262144, 8},
        {"sm_90", NULL, 1000000, 8},
        {"sm_90", "block=512", 65536, 1},
        {"sm_90", "cluster=1", 65536, 1},
        {"sm_90", "cluster=16", 100, 16},
        {"sm_90", "cluster=2,row=64", 100, 2},
        {"sm_90", "cluster=2,block=32", 100, 2},
        {"sm_89", NULL, 65536, 1},
        {"cpu", NULL, 65536, 1},
        {"cpu", "cluster=4", 65536, 4},
        {"cpu", "cluster=4,block=64", 65536, 4},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct eider_row_config c = config_of(cases[i].target, cases[i].config, cases[i].cols);
        if (c.cluster != cases[i].cluster)
            fail_msg("%s [%s] %d: cluster=%d", cases[i].target, cases[i].config, (int)cases[i].cols,
                     c.cluster);
        if (c.cluster > 1) assert_int_equal(c.row, c.block);
        int64_t held = (int64_t)(c.keep + c.shared) * c.vec * eider_row_threads(&c);
        if (cases[i].cols <= 262144 && c.cluster > 1 && !cases[i].config)
            assert_true(held >= cases[i].cols);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_assemble_for_gpus),
        cmocka_unit_test(registers_are_limited_for_the_assembler),
        cmocka_unit_test(clusters_are_in_the_code_from_sm_90_on),
        cmocka_unit_test(clusters_meet_at_mbarriers),
        cmocka_unit_test(each_stage_has_an_mbarrier_of_its_own),
        cmocka_unit_test(mbarriers_serve_for_one_row_of_a_cluster),
        cmocka_unit_test(rows_that_are_read_again_stay_in_the_caches_until_then),
        cmocka_unit_test(sums_down_the_rows_take_any_block),
        cmocka_unit_test(fixed_parameters_have_defaults_that_fit),
        cmocka_unit_test(elements_in_flight_are_limited),
        cmocka_unit_test(what_all_rows_share_is_loaded_ahead),
        cmocka_unit_test(a_power_is_as_good_as_its_results_need),
        cmocka_unit_test(sums_of_products_are_fused),
        cmocka_unit_test(a_sum_follows_from_its_moment),
        cmocka_unit_test(short_rows_stay_as_computed),
        cmocka_unit_test(threads_without_a_row_end),
        cmocka_unit_test(a_place_costs_one_comparison),
        cmocka_unit_test(sums_that_need_one_another_have_defaults),
        cmocka_unit_test(defaults_are_those_that_were_measured),
        cmocka_unit_test(rules_are_for_rows_that_they_cut),
        cmocka_unit_test(larger_clusters_are_likely_candidates),
        cmocka_unit_test(rows_that_one_block_cannot_keep_have_clusters_by_default),
    };
    return cmocka_run_group_tests_name("code of rows", tests, row_set_up, row_tear_down);
}
