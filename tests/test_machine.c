/* test_machine.c -- the machines' IR: what it looks like as PTX, and that every target's
 * assembler takes it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_map.h"

static const struct eider_target sm_80 = {80, 0}, sm_90 = {90, 0};

static const struct eider_target targets[] = {{80, 0}, {86, 0}, {89, 0}, {90, 0}, {90, 'a'}};

#define N_TARGETS (sizeof targets / sizeof targets[0])

/* Compiles `text` for operands of n elements; the last type is the output's. */
static void make(struct map_kernel *k, struct eider_target target, const char *text,
                 const eider_dtype *types, int n_operands, const char *config)
{
    int64_t n = 1 << 20;
    eider_tensor args[EIDER_OPERANDS_MAX];
    for (int i = 0; i < n_operands; i++) args[i] = (eider_tensor){NULL, types[i], 1, &n, NULL};
    struct map_request r = {.text = text, .args = args, .target = target, .config = config};
    eider_status status = map_make(&r, k);
    if (status != EIDER_OK) fail_msg("%s [%s]: %s", text, config, eider_error());
}

static int count(const struct map_kernel *k, const char *part)
{
    int n = 0;
    for (const char *at = k->code.code.data; (at = strstr(at, part)); at++) n++;
    return n;
}

#define EXPECT(k, part, times)                                                     \
    do {                                                                           \
        if (count(k, part) != (times))                                             \
            fail_msg("'%s' %d times, not %d, in\n%s", part, count(k, part), times, \
                     (const char *)(k)->code.code.data);                           \
    } while (0)

static const eider_dtype bf16x3[] = {EIDER_BF16, EIDER_BF16, EIDER_BF16};
static const eider_dtype f32x2[] = {EIDER_F32, EIDER_F32};

static void accesses_are_as_wide_as_the_config_says(void **state)
{
    (void)state;
    static const struct {
        const char *config, *load, *store;
        eider_dtype type;
        int times;
    } rows[] = {
        {"vec=8,unroll=2,load=ca,store=wb", "ld.global.v4.u32", "st.global.v4.", EIDER_BF16, 2},
        {"vec=4,unroll=1,load=ca,store=wb", "ld.global.v2.u32", "st.global.v2.", EIDER_BF16, 1},
        {"vec=2,unroll=1,load=cs,store=cs", "ld.global.cs.b32 ", "st.global.cs.b32 ", EIDER_BF16,
         1},
        {"vec=4,unroll=4,load=cs,store=cs", "ld.global.cs.v4.b32", "st.global.cs.v4.b32", EIDER_F32,
         4},
        {"vec=8,unroll=1,load=cg,store=cg", "ld.global.cg.v4.b32", "st.global.cg.v4.b32", EIDER_F32,
         2},
        {"vec=4,unroll=1,load=nc,store=wt", "ld.global.nc.v4.b32", "st.global.wt.v4.b32", EIDER_I32,
         1},
        {"vec=2,unroll=1,load=noalloc,store=wb", "ld.global.L1::no_allocate.v2.b64",
         "st.global.v2.", EIDER_F64, 1},
        {"vec=8,unroll=1,load=first,store=first", "ld.global.L1::evict_first.L2::cache_hint.v4.b32",
         "st.global.L2::cache_hint.v4.b32", EIDER_F16, 1},
        {"vec=8,unroll=1,load=last,store=wb", "ld.global.L1::evict_first.L2::cache_hint.v4.b32",
         "st.global.v4.", EIDER_F16, 1}, /* it is read once */
        {"vec=16,unroll=1,load=noalloc,store=cs", "ld.global.L1::no_allocate.v4.b32",
         "st.global.cs.v4.b32", EIDER_E4M3, 1},
        {"vec=64,unroll=1,load=cs,store=cs", "ld.global.cs.v4.b32", "st.global.cs.v4.b32",
         EIDER_E5M2, 4},
        {"vec=2,unroll=1,load=cs,store=cs", "ld.global.cs.b16 ", "st.global.cs.b16 ", EIDER_E5M2,
         1},
        {"vec=1,unroll=1,load=cs,store=cs", "ld.global.cs.b8 ", "st.global.cs.b8 ", EIDER_E4M3, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct map_kernel k;
        eider_dtype types[2] = {rows[i].type, rows[i].type};
        make(&k, sm_90, "out = x + x", types, 2, rows[i].config);
        EXPECT(&k, rows[i].load, rows[i].times);
        EXPECT(&k, rows[i].store, rows[i].times);
        EXPECT(&k, ".local", 0);
        map_release(&k);
    }
}

static void loads_come_before_stores_whatever_the_policy(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "load=ca,store=wb,vec=8,unroll=4", "load=cs,store=wb,vec=8,unroll=4",
        "load=ca,store=cs,vec=8,unroll=4", "load=first,store=first,vec=8,unroll=4"};
    for (int i = 0; i < 4; i++) {
        struct map_kernel k;
        make(&k, sm_90, "out = x * y", bf16x3, 3, configs[i]);
        const char *text = k.code.code.data, *first_store = text, *last_load = text, *at = text;
        while ((first_store = strstr(first_store, "st.global")) && !strstr(first_store, ".v4"))
            first_store++;
        /* The stores of vectors, and not those of single elements. */
        for (first_store = text; (first_store = strstr(first_store, "st.global")); first_store++)
            if (strstr(first_store, ".v4") && strstr(first_store, ".v4") < first_store + 40) break;
        assert_non_null(first_store);
        while ((at = strstr(at, "ld.global"))) {
            const char *wide = strstr(at, ".v4");
            if (wide && wide < at + 40) last_load = at;
            at++;
        }
        if (first_store < last_load) fail_msg("%s: a store before a load\n%s", configs[i], text);
        map_release(&k);
    }
}

/* The launch's flags that a kernel asks for before it takes vectors; see map.h. */
static void read_only_loads_ask_whether_an_output_is_an_input(void **state)
{
    (void)state;
    struct map_kernel k;
    make(&k, sm_90, "out = x + 1", f32x2, 2, "load=nc,vec=4,unroll=2,block=256");
    EXPECT(&k, ", 7;", 2); /* masked, compared */
    map_release(&k);
    make(&k, sm_90, "out = x + 1", f32x2, 2, "load=ca,vec=4,unroll=2,block=256");
    EXPECT(&k, ", 7;", 0);
    EXPECT(&k, ", 3;", 2);
    map_release(&k);
}

static void block_size_is_stated_once_and_right(void **state)
{
    (void)state;
    struct map_kernel k;
    make(&k, sm_90, "out = x", f32x2, 2, "block=96");
    EXPECT(&k, ".maxntid 96", 1);
    EXPECT(&k, ".entry kernel", 1);
    map_release(&k);
}

static void one_contiguous_operand_costs_one_address(void **state)
{
    (void)state;
    struct map_kernel k;
    make(&k, sm_90, "out = x * y", bf16x3, 3, "vec=8,unroll=4,block=256,tiles=1");
    /* Three operands, twelve accesses: constant offsets from three addresses. */
    EXPECT(&k, "+4096]", 3);
    EXPECT(&k, "+12288]", 3);
    map_release(&k);
}

static void conversions_use_the_instructions_of_the_target(void **state)
{
    (void)state;
    struct map_kernel k;
    static const eider_dtype to_e4m3[] = {EIDER_F32, EIDER_E4M3},
                             from_e5m2[] = {EIDER_E5M2, EIDER_F32};
    make(&k, sm_90, "out = x * y", bf16x3, 3, "vec=8,unroll=1,packed=0");
    EXPECT(&k, "cvt.rn.bf16x2.f32", 4);
    EXPECT(&k, ", -65536;", 2 * 4); /* the upper halves of two operands */
    map_release(&k);
    make(&k, sm_90, "out = x", to_e4m3, 2, "vec=4,unroll=1");
    EXPECT(&k, "cvt.rn.satfinite.e4m3x2.f32", 2 + 2); /* of a vector, and of single elements */
    map_release(&k);
    make(&k, sm_80, "out = x", to_e4m3, 2, "vec=4,unroll=1");
    EXPECT(&k, "e4m3", 0);
    map_release(&k);
    make(&k, (struct eider_target){89, 0}, "out = x", from_e5m2, 2, "vec=4,unroll=1");
    EXPECT(&k, "cvt.rn.f16x2.e5m2x2", 2 + 2);
    map_release(&k);
    make(&k, sm_90, "out = cast_nan(x, e4m3)", to_e4m3, 2, "vec=4,unroll=1");
    EXPECT(&k, "satfinite", 0);
    map_release(&k);
}

static int is_packed(const char *text, eider_dtype type, const char *instruction)
{
    struct map_kernel k;
    eider_dtype types[3] = {type, type, type};
    make(&k, sm_80, text, types, 3, "vec=4,unroll=1");
    int packed = eider_config_number(&k.config, EIDER_PARAM_packed);
    EXPECT(&k, instruction, packed ? 2 : 0);
    EXPECT(&k, ".local", 0);
    map_release(&k);
    return packed;
}

static void pairs_are_used_where_they_round_alike(void **state)
{
    (void)state;
    assert_true(is_packed("out = x + y", EIDER_F16, "add.rn.f16x2"));
    assert_true(is_packed("out = x - y", EIDER_BF16, "fma.rn.bf16x2"));
    assert_true(is_packed("out = max(-(x * y), 0.5)", EIDER_BF16, "max.NaN.bf16x2"));
    assert_true(is_packed("out = cast(x * 3, f16) - y", EIDER_F16, "sub.rn.f16x2"));
    assert_true(is_packed("out = relu(x) * y", EIDER_F16, "mul.rn.f16x2"));
    /* Two roundings in f32 would become three, a literal would be rounded, f32 is no pair. */
    assert_false(is_packed("out = x * y + x", EIDER_F16, "f16x2 "));
    assert_false(is_packed("out = x * 0.1 + y * 0", EIDER_F16, "mul.rn.f16x2"));
    assert_false(is_packed("out = x + cast(y * 3, bf16)", EIDER_F16, "add.rn.f16x2"));
    assert_false(is_packed("out = x * y", EIDER_F32, "x2"));
    assert_false(is_packed("out = exp(x) * y", EIDER_F16, "mul.rn.f16x2"));
}

static void flushing_is_in_every_instruction_or_in_none(void **state)
{
    (void)state;
    int64_t n = 1024;
    eider_tensor t = {NULL, EIDER_F32, 1, &n, NULL}, args[3] = {t, t, t};
    struct map_request r = {.text = "out = x * y + x", .args = args, .target = sm_90, .ftz = 1};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    assert_int_equal(count(&k, "fma.rn.f32"), 0);
    assert_true(count(&k, "fma.rn.ftz.f32") > 0);
    map_release(&k);
    r.ftz = 0;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    assert_true(count(&k, "fma.rn.f32") > 0);
    assert_int_equal(count(&k, ".ftz"), 0);
    map_release(&k);
}

static void the_cpu_flushes_inside_the_kernel_only(void **state)
{
    (void)state;
    int64_t n = 40;
    float in[40], out[40];
    volatile float tiny = 0x1p-140f;
    for (int i = 0; i < 40; i++) in[i] = tiny;
    eider_tensor args[2] = {{in, EIDER_F32, 1, &n, NULL}, {out, EIDER_F32, 1, &n, NULL}};
    for (int ftz = 0; ftz < 2; ftz++) {
        struct map_request r = {.text = "out = x * 4", .args = args, .ftz = ftz};
        map_once(&r);
        for (int i = 0; i < 40; i++) assert_true(out[i] == (ftz ? 0 : 0x1p-138f));
        assert_true(tiny * 4 > 0);
    }
}

/* ---- The assembler ------------------------------------------------------- */

static void assemble(struct map_kernel *k, struct eider_target target, const char *what)
{
    struct eider_assemble_job job = {.target = target, .contract = 1, .deadline_ms = 60000};
    struct eider_assemble_result result;
    eider_status status = eider_assemble(&map_allocator, &k->code.code, &job, &result);
    if (status != EIDER_OK) fail_msg("%s: %s", what, eider_error());
    if (result.spill_bytes > 0) fail_msg("%s: %d bytes spilled", what, result.spill_bytes);
    eider_blob_release(&map_allocator, &result.cubin);
}

static int no_assembler(void)
{
    struct eider_assembler_info info;
    if (eider_assembler_find("auto", &info) == EIDER_OK) return 0;
    fprintf(stderr, "SKIPPED (no assembler): %s\n", eider_error());
    return 1;
}

static void every_target_assembles_every_type(void **state)
{
    (void)state;
    static const eider_dtype types[] = {EIDER_F32,  EIDER_F16,  EIDER_BF16, EIDER_F64,
                                        EIDER_E4M3, EIDER_E5M2, EIDER_BF16, EIDER_E4M3,
                                        EIDER_F64,  EIDER_F16,  EIDER_E5M2, EIDER_F32};
    if (no_assembler()) skip();
    for (size_t t = 0; t < N_TARGETS; t++) {
        struct map_kernel k;
        make(&k, targets[t], "s = a + b + c + d + e + f; p = s; q = s; r = s; u = s; v = s; w = s",
             types, 12, "vec=4,unroll=1,load=noalloc,store=first");
        assemble(&k, targets[t], "every type");
        map_release(&k);
    }
}

static void every_policy_assembles(void **state)
{
    (void)state;
    static const char *const loads[] = {"ca", "cg", "cs", "nc", "noalloc", "first"};
    static const char *const stores[] = {"wb", "cg", "cs", "wt", "first", "wb"};
    static const eider_dtype types[] = {EIDER_BF16, EIDER_E4M3, EIDER_F64, EIDER_BOOL, EIDER_F32};
    if (no_assembler()) skip();
    for (int i = 0; i < 6; i++) {
        struct map_kernel k;
        char config[64];
        snprintf(config, sizeof config, "vec=%d,unroll=2,load=%s,store=%s", 1 << i % 5, loads[i],
                 stores[i]);
        struct eider_target target = targets[i % 2 ? 0 : 3];
        make(&k, target, "out = select(m, x + y, z)",
             (const eider_dtype[]){types[3], types[0], types[1], types[2], types[4]}, 5, config);
        assemble(&k, target, config);
        map_release(&k);
    }
}

static void strided_and_broadcast_kernels_assemble(void **state)
{
    (void)state;
    static const char *const configs[] = {"index=32", "index=64", "vec=1,tiles=4",
                                          "vec=8,unroll=2"};
    int64_t shape[3] = {64, 32, 128}, gaps[3] = {8192, 256, 1}, back[3] = {-1, 64, 2048};
    int64_t row[1] = {128}, column[2] = {32, 1};
    float alpha = 1;
    eider_tensor args[6] = {{NULL, EIDER_BF16, 3, shape, gaps}, {NULL, EIDER_F32, 3, shape, back},
                            {NULL, EIDER_F32, 1, row, NULL},    {NULL, EIDER_BF16, 2, column, NULL},
                            {&alpha, EIDER_F32, 0, NULL, NULL}, {NULL, EIDER_BF16, 3, shape, NULL}};
    if (no_assembler()) skip();
    for (int i = 0; i < 4; i++) {
        struct map_request r = {.text = "in a, b, c, d; scalar s; out = a * s + b * c + d",
                                .args = args,
                                .target = targets[i],
                                .config = configs[i]};
        struct map_kernel k;
        eider_status status = map_make(&r, &k);
        if (status != EIDER_OK) fail_msg("%s: %s", configs[i], eider_error());
        EXPECT(&k, ".local", 0);
        assemble(&k, targets[i], configs[i]);
        map_release(&k);
    }
}

/* ---- Memory -------------------------------------------------------------- */

static int countdown;

static void *failing_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size && --countdown == 0) return NULL;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

static void build_survives_every_failed_allocation(void **state)
{
    (void)state;
    static const eider_allocator failing = {failing_resize, NULL};
    for (int t = 0; t < 2; t++) {
        struct map_kernel k;
        struct eider_target target = t ? sm_90 : (struct eider_target){0};
        make(&k, target, "out = tanh(x)", f32x2, 2, "");
        struct eider_lowered lowered;
        assert_int_equal(eider_lower_plan(k.graph, f32x2, EIDER_MATH_FAST, &lowered), EIDER_OK);
        eider_status status = EIDER_OOM;
        int n = 1;
        for (; status == EIDER_OOM && n < 50; n++) {
            struct eider_emit e = {.allocator = &failing,
                                   .context = LLVMContextCreate(),
                                   .machine = eider_machine_of(target),
                                   .target = target,
                                   .math = EIDER_MATH_FAST};
            countdown = n;
            eider_template_map.build(&e, &lowered, &k.layout, &k.config, "kernel");
            status = e.status;
            if (e.module) LLVMDisposeModule(e.module);
            LLVMContextDispose(e.context);
        }
        assert_int_equal(status, EIDER_OK);
        assert_true(n > 3);
        eider_lower_release(&lowered);
        map_release(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accesses_are_as_wide_as_the_config_says),
        cmocka_unit_test(loads_come_before_stores_whatever_the_policy),
        cmocka_unit_test(read_only_loads_ask_whether_an_output_is_an_input),
        cmocka_unit_test(block_size_is_stated_once_and_right),
        cmocka_unit_test(one_contiguous_operand_costs_one_address),
        cmocka_unit_test(conversions_use_the_instructions_of_the_target),
        cmocka_unit_test(pairs_are_used_where_they_round_alike),
        cmocka_unit_test(flushing_is_in_every_instruction_or_in_none),
        cmocka_unit_test(the_cpu_flushes_inside_the_kernel_only),
        cmocka_unit_test(every_target_assembles_every_type),
        cmocka_unit_test(every_policy_assembles),
        cmocka_unit_test(strided_and_broadcast_kernels_assemble),
        cmocka_unit_test(build_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
