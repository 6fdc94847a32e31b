/* test_sass.c -- machine code taken apart: cubins, lines, control bits, counts, bounds.
 * timeout: 600
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
#include <time.h>

#include "kernel.h"
#include "sass.h"
#include "support_sass.h"
#include "tools.h"

static eider_context *ctx;

static int set_up(void **state)
{
    (void)state;
    eider_context_options options = {.cache_dir = "", .cache_path = ""};
    return eider_context_create(&options, &ctx) != EIDER_OK;
}

static int tear_down(void **state)
{
    (void)state;
    eider_context_destroy(ctx);
    return 0;
}

static const struct support_sass plain = {
    .target = "sm_90", .math = EIDER_MATH_APPROX, .type = EIDER_F32, .config = "vec=4,unroll=2"};

#define NEED_TOOLS() \
    if (!support_sass_has_tools()) skip()

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) < 1e-9)) fail_msg("got %.9g, want %.9g", got, want);
}

/* ---- Opcodes and bits ------------------------------------------------------ */

static void control_bits_are_those_that_nvidia_documents_nowhere(void **state)
{
    (void)state;
    /* From a kernel of ptxas 13.0 for sm_90; what each must be follows from the code around. */
    static const struct {
        uint64_t high;
        int stall, yield, write, read, wait;
    } rows[] = {
        {0x000e2e0000002500, 7, 0, 0, -1, 0},       /* S2R sets barrier 0 ... */
        {0x001fc800078e00ff, 4, 1, -1, -1, 1},      /* ... for which its user waits */
        {0x000ea4000c1e1b00, 2, 0, 2, -1, 0},       /* LDG sets 2 ... */
        {0x004fca00078e00ff, 5, 1, -1, -1, 1 << 2}, /* ... for which its user waits */
        {0x000fea0003800000, 5, 0, -1, -1, 0},      /* EXIT */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        eider_sass_instruction code = {.words = {0, rows[i].high}};
        eider_sass_control_decode(&code);
        assert_int_equal(code.stall, rows[i].stall);
        assert_int_equal(code.yield, rows[i].yield);
        assert_int_equal(code.write_barrier, rows[i].write);
        assert_int_equal(code.read_barrier, rows[i].read);
        assert_int_equal(code.wait, rows[i].wait);
    }
    eider_sass_instruction reuses = {.words = {0, 0x040fe40000000000}};
    eider_sass_control_decode(&reuses);
    assert_int_equal(reuses.reuse, 1);
}

static void opcodes_have_units_by_their_first_part(void **state)
{
    (void)state;
    static const struct {
        const char *opcode;
        enum eider_sass_unit unit;
    } rows[] = {
        {"FFMA.FTZ", EIDER_UNIT_FMA},        {"IMAD.MOV.U32", EIDER_UNIT_IMAD},
        {"FMNMX.NAN", EIDER_UNIT_ALU},       {"MUFU.TANH", EIDER_UNIT_MUFU},
        {"LDG.E.128", EIDER_UNIT_LSU},       {"F2FP.BF16.F32.PACK_AB", EIDER_UNIT_CONVERT},
        {"ULDC.64", EIDER_UNIT_UNIFORM},     {"EXIT", EIDER_UNIT_CONTROL},
        {"FFMAX", EIDER_UNIT_OTHER},         {"HFMA2.MMA", EIDER_UNIT_FMA},
        {"UNHEARDOF.X", EIDER_UNIT_UNIFORM}, {"NEWTHING", EIDER_UNIT_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(eider_sass_opcode_find(rows[i].opcode)->unit, rows[i].unit);
}

static void memory_opcodes_say_space_width_and_policy(void **state)
{
    (void)state;
    static const struct {
        const char *opcode, *space, *policy;
        int is_store, width;
    } rows[] = {
        {"LDG.E.128", "global", "", 0, 16},
        {"LDG.E.EF.64", "global", "EF", 0, 8},
        {"LDG.E.U16.CONSTANT", "global", "CONSTANT", 0, 2},
        {"LDG.E.ENL2.256", "global", "", 0, 32},
        {"STG.E", "global", "", 1, 4},
        {"STG.E.STRONG.GPU", "global", "STRONG.GPU", 1, 4},
        {"LDL.64", "local", "", 0, 8},
        {"STS.U8", "shared", "", 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct eider_sass_memory m;
        char policy[64];
        assert_true(eider_sass_memory_of(rows[i].opcode, &m));
        eider_sass_policy_of(rows[i].opcode, policy, sizeof policy);
        assert_string_equal(m.space, rows[i].space);
        assert_string_equal(policy, rows[i].policy);
        assert_int_equal(m.is_store, rows[i].is_store);
        assert_int_equal(m.width, rows[i].width);
    }
    struct eider_sass_memory none;
    assert_false(eider_sass_memory_of("LDGSTS.E", &none));
}

static void line_numbers_are_read_as_they_were_made(void **state)
{
    (void)state;
    uint32_t before = 0;
    for (uint32_t id = 0; id < 70000; id += 137)
        for (int kind = 0; kind < EIDER_LINE_KINDS; kind++)
            for (int tail = 0; tail < 2; tail++) {
                struct eider_line line = {(enum eider_line_kind)kind, id, tail}, read;
                uint32_t number = eider_lines_number(line);
                assert_true(number > before);
                before = number;
                assert_true(eider_lines_read(number, &read));
                assert_true(read.kind == line.kind && read.id == id && read.is_tail == tail);
            }
    struct eider_line none;
    assert_false(eider_lines_read(0, &none));
}

/* ---- The pass, on listings --------------------------------------------------- */

/* A report with the instructions of a listing, one opcode and operands per line. */
static struct eider_sass *listed(const char *const *lines, size_t n)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_sass *s = eider_mem_zero(&a, sizeof *s);
    assert_non_null(s);
    s->allocator = a;
    eider_arena_init(&s->arena, &a, (size_t)1 << 26);
    s->n_code = n;
    s->code = eider_arena_alloc(&s->arena, n * sizeof *s->code);
    s->rates = eider_arena_alloc(&s->arena, n);
    for (size_t i = 0; i < n; i++) {
        const char *at = lines[i];
        const char *predicate = "";
        if (*at == '@') {
            predicate = eider_sass_text(s, "%.*s", (int)strcspn(at, " "), at);
            at = strchr(at, ' ') + 1;
        }
        size_t length = strcspn(at, " ");
        s->code[i] = (eider_sass_instruction){
            .offset = (uint32_t)(16 * i),
            .predicate = predicate,
            .opcode = eider_sass_text(s, "%.*s", (int)length, at),
            .operands = eider_sass_text(s, "%s", at[length] ? at + length + 1 : ""),
            .unit = "",
            .term = -1,
        };
    }
    s->summary.elements = 1;
    return s;
}

/* Which instructions are the pass, as "0110". */
static void assert_pass(const char *const *lines, size_t n, const char *want)
{
    struct eider_sass *s = listed(lines, n);
    char got[64] = "";
    assert_int_equal(eider_sass_path_find(s), EIDER_OK);
    for (size_t i = 0; i < n; i++) got[i] = s->code[i].in_pass ? '1' : '0';
    assert_string_equal(got, want);
    eider_sass_release(s);
}

#define PASS(want, ...)                                              \
    do {                                                             \
        static const char *const lines_[] = {__VA_ARGS__};           \
        assert_pass(lines_, sizeof lines_ / sizeof lines_[0], want); \
    } while (0)

static void without_loops_the_pass_is_the_way_that_moves_most(void **state)
{
    (void)state;
    PASS("111", "LDG.E R0, [R2]", "STG.E [R2], R0", "EXIT");
    /* A guard that leaves, a narrow way, a wide way. */
    PASS("1111000111", "S2R R0, SR_TID.X", "@P1 EXIT", "ISETP P0, R0, 1", "@P0 BRA 0x70",
         "LDG.E.U8 R0, [R2]", "STG.E.U8 [R2], R0", "EXIT", "LDG.E.128 R4, [R2]",
         "STG.E.128 [R2], R4", "EXIT");
    /* A slow path of the same bytes is longer, and left out. */
    PASS("11100111", "LDG.E R0, [R2]", "FCHK P0, R0", "@!P0 BRA 0x50", "CALL 0x100", "MOV R1, R0",
         "FMUL R1, R0, R0", "STG.E [R2], R1", "EXIT");
}

static void the_pass_of_a_loop_is_its_body(void **state)
{
    (void)state;
    PASS("0111100", "S2R R0, SR_TID.X", "LDG.E R1, [R2]", "FADD R4, R4, R1", "ISETP P0, R0, 9",
         "@P0 BRA 0x10", "STG.E [R2], R4", "EXIT");
    /* The inner of two loops moves as much as the outer, in fewer instructions. */
    PASS("00111000", "MOV R0, RZ", "MOV R1, RZ", "LDG.E R1, [R2]", "FADD R4, R4, R1",
         "@P0 BRA 0x20", "IADD3 R0, R0, 1", "@P1 BRA 0x10", "EXIT");
    /* Code behind the end is not reached, and a trap there is no loop. */
    PASS("1100", "LDG.E R0, [R2]", "EXIT", "BRA 0x20", "NOP");
    /* Nothing moves: the loop that computes most. */
    PASS("0111000", "MOV R0, RZ", "FFMA R1, R1, R1, R1", "FFMA R1, R1, R1, R1", "@P0 BRA 0x10",
         "FADD R1, R1, R1", "@P1 BRA 0x40", "EXIT");
}

/* Every block a loop of its own, over all before: work by the square, not the cube. */
static void thousands_of_loops_take_no_minutes(void **state)
{
    (void)state;
    enum { LOOPS = 1500 };
    static const char *lines[2 * LOOPS + 1];
    for (size_t i = 0; i < LOOPS; i++) {
        lines[2 * i] = "LDG.E R0, [R2]";
        lines[2 * i + 1] = "@P0 BRA 0x0";
    }
    lines[2 * LOOPS] = "EXIT";
    struct eider_sass *s = listed(lines, 2 * LOOPS + 1);
    clock_t start = clock();
    assert_int_equal(eider_sass_path_find(s), EIDER_OK);
    assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
    assert_int_equal(s->summary.n_pass, 2 * LOOPS);
    eider_sass_release(s);
}

/* ---- Kernels ------------------------------------------------------------------ */

static void a_report_tells_what_ptxas_tells(void **state)
{
    (void)state;
    NEED_TOOLS();
    eider_kernel_info info;
    eider_sass_summary m;
    eider_sass *sass;
    eider_kernel *kernel = support_sass_compile(ctx, "out = silu(x) * y", &plain);
    eider_kernel_describe(kernel, &info);
    assert_int_equal(eider_kernel_sass(kernel, NULL, &sass), EIDER_OK);
    eider_kernel_release(kernel); /* the report outlives it */
    eider_sass_describe(sass, &m);
    assert_int_equal(m.registers, info.registers);
    assert_int_equal(m.spill_bytes, 0);
    assert_int_equal(m.local_bytes, 0);
    assert_int_equal(m.barriers, 0);
    assert_string_equal(m.target, "sm_90");
    assert_string_equal(m.attribution, "terms");
    assert_near(m.elements, 8);
    assert_near(m.bytes, 12);
    assert_int_equal(strlen(m.hash), 32);
    assert_non_null(strstr(m.disassembler, "nvdisasm 1"));
    assert_string_equal(m.bound, "memory");
    assert_int_equal(m.warps_max, 64);
    eider_sass_release(sass);
    sass = support_sass_report(ctx, "y = x - max(x)", &plain);
    eider_sass_describe(sass, &m);
    assert_int_equal(m.barriers, 1);
    eider_sass_release(sass);
}

static void counts_are_per_element_and_add_up(void **state)
{
    (void)state;
    NEED_TOOLS();
    eider_sass *sass = support_sass_report(ctx, "out = silu(x) * y", &plain);
    eider_sass_summary m;
    eider_sass_opcode o;
    eider_sass_term t;
    eider_sass_instruction c;
    eider_sass_access a;
    double opcodes = 0, terms = 0;
    uint32_t in_pass = 0, moved = 0;
    eider_sass_describe(sass, &m);
    for (size_t i = 0; eider_sass_opcodes(sass, i, &o); i++) opcodes += o.n;
    for (size_t i = 0; eider_sass_terms(sass, i, &t); i++)
        if (t.kind != EIDER_SASS_STEP) terms += t.per_element * m.elements;
    for (size_t i = 0; eider_sass_code(sass, i, &c); i++) in_pass += c.in_pass != 0;
    for (size_t i = 0; eider_sass_accesses(sass, i, &a); i++)
        if (strcmp(a.space, "global") == 0) moved += a.n * (uint32_t)a.width;
    assert_int_equal(in_pass, m.n_pass);
    assert_near(opcodes, m.n_pass);
    assert_near(terms, m.n_pass);
    assert_int_equal(moved, 8 * 12);
    assert_near(support_sass_count(sass, "MUFU.TANH"), 1);
    assert_near(support_sass_count(sass, "FMUL"), 2);
    assert_near(support_sass_count(sass, "FFMA"), 1);
    assert_near(support_sass_count(sass, "LDG"), 0.5);
    eider_sass_release(sass);
}

static const eider_sass_term *term_with(const eider_sass *sass, const char *text)
{
    static eider_sass_term t;
    for (size_t i = 0; eider_sass_terms(sass, i, &t); i++)
        if (strcmp(t.text, text) == 0) return &t;
    fail_msg("no term '%s'", text);
    return NULL;
}

static void instructions_belong_to_terms_as_written(void **state)
{
    (void)state;
    NEED_TOOLS();
    struct support_sass bf16 = plain;
    bf16.type = EIDER_BF16;
    eider_sass *sass = support_sass_report(ctx, "s = tanh(x) * 3; out = s * y + x", &bf16);
    const eider_sass_term *t = term_with(sass, "tanh(x)");
    assert_int_equal(t->kind, EIDER_SASS_TERM);
    assert_string_equal(t->opcodes, "1 MUFU.TANH");
    assert_string_equal(t->units, "1 MUFU");
    assert_near(term_with(sass, "load x")->per_element, 0.25); /* 8 bytes of 4 elements each */
    assert_near(term_with(sass, "load y")->per_element, 0.25);
    assert_near(term_with(sass, "convert out")->per_element, 0.5);
    t = term_with(sass, "t1 = tanh.approx(x)");
    assert_int_equal(t->kind, EIDER_SASS_STEP);
    assert_true(t->parent >= 0);
    assert_true(term_with(sass, "addresses, bounds")->per_element > 0);
    assert_near(term_with(sass, "without a line")->per_element, 0);
    eider_sass_release(sass);
}

/* LLVM drops the lines of what it moves behind a branch; single elements have none. */
static void all_code_is_attributed_outside_the_pass_as_well(void **state)
{
    (void)state;
    NEED_TOOLS();
    static const struct {
        const char *opcode, *text;
        eider_sass_kind kind;
    } rows[] = {
        {"LDG", "load ", EIDER_SASS_LOAD},
        {"STG", "store out", EIDER_SASS_STORE},
        {"MUFU", "t3 = tanh.approx", EIDER_SASS_STEP},
        {"FMNMX", "t1 = max", EIDER_SASS_STEP},
        {"FMUL", "", EIDER_SASS_STEP},
        {"FFMA", "t4 = fma", EIDER_SASS_STEP},
    };
    struct support_sass how = plain;
    how.type = EIDER_BF16;
    eider_sass *sass = support_sass_report(ctx, "out = silu(x) * y", &how);
    eider_sass_instruction c;
    eider_sass_term t;
    int in_tail[sizeof rows / sizeof rows[0]] = {0};
    for (size_t i = 0; eider_sass_code(sass, i, &c); i++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            if (!eider_sass_opcode_is(c.opcode, rows[r].opcode)) continue;
            assert_true(eider_sass_terms(sass, (size_t)c.term, &t));
            if (t.kind != rows[r].kind || !strstr(t.text, rows[r].text))
                fail_msg("%04x %s is '%s'", c.offset, c.opcode, t.text);
            in_tail[r] += c.in_tail;
        }
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) assert_true(in_tail[r] > 0);
    eider_sass_release(sass);
}

static void line_information_changes_no_byte(void **state)
{
    (void)state;
    static const char *const programs[] = {
        "out = x + 1",
        "dx, dy, out = dswiglu(x, y, dout)",
        "out = gelu_erf(x) / exp(y)",
    };
    static const struct support_sass how[] = {
        {"sm_90", "vec=4,unroll=2", EIDER_MATH_APPROX, EIDER_BF16, 0},
        {"sm_80", "vec=2,unroll=1,tiles=4", EIDER_MATH_FAST, EIDER_F32, 0},
        {"sm_100", "vec=8,load=cs,store=first", EIDER_MATH_APPROX, EIDER_F16, 0},
        {"sm_89", "vec=8", EIDER_MATH_FAST, EIDER_E4M3, 0},
        {"sm_90", "vec=4", EIDER_MATH_EXACT, EIDER_F32, 0},
    };
    struct eider_assembler_info found;
    if (eider_assembler_find(NULL, &found) != EIDER_OK) skip();
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        for (size_t k = 0; k < sizeof how / sizeof how[0]; k++) {
            eider_kernel *kernel = support_sass_compile(ctx, programs[i], &how[k]);
            uint32_t threads;
            LLVMContextRef context;
            LLVMModuleRef module;
            struct eider_codegen_job job = {
                .target = kernel->target, .entry = kernel->info.entry, .contract = 1};
            struct eider_codegen_result code;
            struct eider_assemble_job assemble = {
                .target = kernel->target, .contract = 1, .line_info = 1};
            struct eider_assemble_result twin;
            assert_int_equal(eider_kernel_module(kernel, 1, &context, &module, &threads), EIDER_OK);
            job.block_threads = threads;
            assert_int_equal(eider_codegen_emit(&ctx->allocator, module, &job, &code), EIDER_OK);
            LLVMContextDispose(context);
            assert_non_null(strstr(code.code.data, ".loc"));
            assert_null(strstr(code.code.data, ", debug"));
            assert_int_equal(eider_assemble(&ctx->allocator, &code.code, &assemble, &twin),
                             EIDER_OK);
            if (!eider_sass_same_code(&kernel->stages[EIDER_STAGE_CUBIN], &twin.cubin,
                                      kernel->info.entry))
                fail_msg("%s for %s differs", programs[i], how[k].target);
            eider_blob_release(&ctx->allocator, &code.code);
            eider_blob_release(&ctx->allocator, &twin.cubin);
            eider_kernel_release(kernel);
        }
}

static void loops_over_tiles_are_the_pass(void **state)
{
    (void)state;
    NEED_TOOLS();
    struct support_sass how = plain;
    how.config = "vec=4,unroll=1,tiles=8";
    eider_sass *sass = support_sass_report(ctx, "out = tanh(x)", &how);
    eider_sass_summary m;
    eider_sass_describe(sass, &m);
    assert_near(m.elements, 4);
    assert_near(support_sass_count(sass, "MUFU.TANH"), 1);
    assert_near(support_sass_count(sass, "LDG"), 0.25);
    assert_near(support_sass_count(sass, "S2R"), 0); /* before the loop */
    assert_near(support_sass_count(sass, "BRA"), m.n_pass ? support_sass_count(sass, "BRA") : -1);
    eider_sass_release(sass);
}

static void slow_paths_are_flagged(void **state)
{
    (void)state;
    NEED_TOOLS();
    struct support_sass how = plain;
    eider_sass_warning w;
    eider_sass *sass = support_sass_report(ctx, "out = tanh(x)", &how);
    assert_int_equal(eider_sass_warnings(sass, 0, &w), 0);
    eider_sass_release(sass);

    how.type = EIDER_F64; /* f64 divides by a subroutine */
    sass = support_sass_report(ctx, "out = x / y", &how);
    assert_int_equal(eider_sass_warnings(sass, 0, &w), 1);
    assert_string_equal(w.name, "call");
    assert_true(w.instruction >= 0 && w.n >= 1);
    eider_sass_release(sass);

    how.type = EIDER_BF16;
    how.config = "vec=1,unroll=1";
    sass = support_sass_report(ctx, "out = tanh(x)", &how);
    int narrow = 0, unpacked = 0;
    for (size_t i = 0; eider_sass_warnings(sass, i, &w); i++) {
        narrow |= strcmp(w.name, "narrow-access") == 0 && w.n == 2;
        unpacked |= strcmp(w.name, "unpacked-conversion") == 0;
    }
    assert_true(narrow);
    assert_true(unpacked);
    eider_sass_release(sass);
}

/* A kernel around a few lines of PTX: %f1 and %f2 are loaded before, %f3 is stored behind. */
static eider_sass *report_on_ptx(const char *body)
{
    char text[2048];
    eider_kernel *kernel;
    eider_sass *sass;
    snprintf(text, sizeof text,
             ".version 8.0\n.target sm_90\n.address_size 64\n"
             ".visible .entry k(.param .u64 p)\n{\n"
             ".reg .pred %%p<3>; .reg .f32 %%f<5>; .reg .b32 %%r<9>; .reg .b64 %%rd<5>;\n"
             ".local .align 16 .b8 array[256];\n"
             "ld.param.u64 %%rd1, [p];\ncvta.to.global.u64 %%rd1, %%rd1;\n"
             "mov.u32 %%r1, %%tid.x;\nmad.wide.u32 %%rd2, %%r1, 64, %%rd1;\n"
             "ld.global.f32 %%f1, [%%rd2];\nld.global.f32 %%f2, [%%rd2+32];\n"
             "%s\nst.global.f32 [%%rd2+48], %%f3;\nret;\n}\n",
             body);
    eider_source source = {.kind = EIDER_SOURCE_PTX, .data = text, .entry = "k"};
    eider_request request = {.source = &source, .target = "sm_90", .line_info = 1};
    if (eider_compile(ctx, &request, &kernel) != EIDER_OK) fail_msg("%s", eider_error());
    assert_int_equal(eider_kernel_sass(kernel, NULL, &sass), EIDER_OK);
    eider_kernel_release(kernel);
    return sass;
}

static void every_slow_path_has_its_flag_and_plain_code_none(void **state)
{
    (void)state;
    NEED_TOOLS();
    static const struct {
        const char *flag, *opcode, *body;
    } rows[] = {
        {"", "FADD", "add.rn.f32 %f3, %f1, %f2;"},
        {"call", "CALL", "div.rn.f32 %f3, %f1, %f2;"},
        {"division-check", "FCHK", "div.rn.f32 %f3, %f1, %f2;"},
        {"local-memory", "STL",
         "mov.u64 %rd3, array;\nand.b32 %r2, %r1, 15;\nmad.wide.u32 %rd3, %r2, 4, %rd3;\n"
         "st.local.f32 [%rd3], %f1;\nst.local.f32 [array+8], %f2;\nld.local.f32 %f3, [%rd3];"},
        {"barrier", "BAR", "bar.sync 0;\nadd.rn.f32 %f3, %f1, %f2;"},
        {"narrow-access", "LDG", "ld.global.u8 %r3, [%rd2+12];\ncvt.rn.f32.u32 %f3, %r3;"},
        {"unmerged-access", "LDG", "ld.global.f32 %f4, [%rd2+4];\nfma.rn.f32 %f3, %f1, %f4, %f2;"},
        {"unpacked-conversion", "F2FP",
         "{ .reg .b16 %h;\ncvt.rn.bf16.f32 %h, %f1;\nmov.b32 %r3, {%h, %h};\n"
         "xor.b32 %r3, %r3, %r1;\nmov.b32 %f3, %r3; }"},
        {"predicated", "STG",
         "setp.gt.f32 %p1, %f1, %f2;\nadd.rn.f32 %f3, %f1, %f2;\n"
         "@%p1 st.global.f32 [%rd2+16], %f3;"},
        {"unpacked-arithmetic", "MUFU",
         "mov.b32 %r3, %f1;\ntanh.approx.f16x2 %r4, %r3;\nmov.b32 %f3, %r4;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        eider_sass *sass = report_on_ptx(rows[i].body);
        eider_sass_warning w, seen = {.name = ""};
        eider_sass_instruction code = {.opcode = ""};
        for (size_t k = 0; eider_sass_warnings(sass, k, &w); k++)
            if (!rows[i].flag[0] || strcmp(w.name, rows[i].flag) == 0) seen = w;
        if (strcmp(seen.name, rows[i].flag) != 0) fail_msg("%s: got '%s'", rows[i].flag, seen.name);
        if (rows[i].flag[0]) {
            assert_true(seen.n > 0);
            assert_true(eider_sass_code(sass, (size_t)seen.instruction, &code));
            if (!eider_sass_opcode_is(code.opcode, rows[i].opcode))
                fail_msg("%s: at %s", rows[i].flag, code.opcode);
        }
        eider_sass_release(sass);
    }
}

static void limits_follow_counts_and_rates(void **state)
{
    (void)state;
    NEED_TOOLS();
    static const eider_device_info half = {.name = "half", .units = 66, .clock_khz = 1000000};
    eider_sass_options options = {.device = &half, .gbytes_per_s = 1000, .bytes = 2};
    eider_kernel *kernel = support_sass_compile(
        ctx, "t = tanh(tanh(tanh(tanh(x)))); out = tanh(tanh(tanh(tanh(t))))", &plain);
    eider_sass *sass;
    eider_sass_summary m;
    eider_sass_limit l;
    assert_int_equal(eider_kernel_sass(kernel, &options, &sass), EIDER_OK);
    eider_kernel_release(kernel);
    eider_sass_describe(sass, &m);
    assert_int_equal(eider_sass_limits(sass, 0, &l), 1);
    assert_string_equal(l.name, "memory");
    assert_near(l.elements_per_s / 1e9, 500);
    int found = 0;
    for (size_t i = 0; eider_sass_limits(sass, i, &l); i++) {
        if (strcmp(l.name, "MUFU") != 0) continue;
        found = 1;
        assert_near(l.per_element, 8);
        assert_near(l.rate, 16);
        assert_near(l.elements_per_s / 1e9, 66 * 16 / 8.0);
        assert_near(l.gbytes_per_s, 2 * 66 * 16 / 8.0);
    }
    assert_true(found);
    assert_string_equal(m.bound, "MUFU");
    eider_sass_release(sass);
}

static void occupancy_is_that_of_the_occupancy_calculator(void **state)
{
    (void)state;
    static const char *const code[] = {"EXIT"};
    static const struct {
        const char *target;
        int registers, threads, shared, blocks, warps;
        const char *limit;
    } rows[] = {
        {"sm_90", 32, 128, 0, 16, 64, "warps"},
        {"sm_90", 40, 128, 0, 12, 48, "registers"},
        {"sm_90", 48, 128, 0, 10, 40, "registers"},
        {"sm_90", 255, 128, 0, 2, 8, "registers"},
        {"sm_90", 128, 1024, 0, 0, 0, "registers"}, /* cannot be launched */
        {"sm_90", 16, 32, 0, 32, 32, "blocks"},
        {"sm_90", 32, 128, 100 * 1024, 2, 8, "shared memory"},
        {"sm_86", 32, 128, 0, 12, 48, "warps"},
        {"sm_86", 16, 32, 0, 16, 16, "blocks"},
        {"sm_80", 64, 256, 0, 4, 32, "registers"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct eider_sass *s = listed(code, 1);
        const eider_sass_options options = {0};
        struct eider_sass_job job = {.options = &options};
        assert_int_equal(eider_target_parse(rows[i].target, &s->target), EIDER_OK);
        s->summary.registers = rows[i].registers;
        s->summary.block_threads = rows[i].threads;
        s->summary.shared_bytes = rows[i].shared;
        assert_int_equal(eider_sass_bound_all(s, &job), EIDER_OK);
        if (s->summary.blocks != rows[i].blocks || s->summary.warps != rows[i].warps)
            fail_msg("row %zu: %d blocks, %d warps", i, s->summary.blocks, s->summary.warps);
        assert_string_equal(s->summary.occupancy_limit, rows[i].limit);
        eider_sass_release(s);
    }
}

/* ---- Budgets and differences ------------------------------------------------------ */

static void budgets_are_checked_claim_by_claim(void **state)
{
    (void)state;
    NEED_TOOLS();
    eider_sass *sass = support_sass_report(ctx, "out = silu(x) * y", &plain);
    eider_sass_claim c;
    static const struct {
        const char *budget;
        int holds;
    } rows[] = {
        {"MUFU.TANH=1", 1},
        {"MUFU=1", 1},
        {"FMUL<=2", 1},
        {"FMUL<2", 0},
        {" FMUL >= 2 ", 1},
        {"FMUL > 1", 1},
        {"FFMA==1", 1},
        {"FFMA=2", 0},
        {"FMA=3", 1},
        {"LDG=0", 1},
        {"NOTHING=0", 1},
        {"FM=0", 1},
        {"MUFU.TANH=1,FMUL<=1", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(eider_sass_expect(sass, rows[i].budget, 0, &c), EIDER_OK);
        if (c.holds != rows[i].holds) fail_msg("%s: got %g", rows[i].budget, c.got);
    }
    assert_int_equal(eider_sass_expect(sass, "MUFU.TANH=1,FMUL<=1", 1, &c), EIDER_OK);
    assert_string_equal(c.name, "FMUL");
    assert_false(c.holds);
    assert_near(c.got, 2);
    assert_int_equal(eider_sass_expect(sass, "MUFU.TANH=1,FMUL<=1", 2, &c), EIDER_OK);
    assert_string_equal(c.name, "");
    static const char *const wrong[] = {"FMUL",   "FMUL=",    "=1",      "FMUL<>1",
                                        "FMUL=x", "FMUL=1 2", "FMUL=-1", "FMUL=nan"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(eider_sass_expect(sass, wrong[i], 0, &c), EIDER_PARSE);
    eider_sass_release(sass);
}

static size_t changed(const eider_sass_diff *diff, size_t *same)
{
    eider_sass_change c;
    size_t n = 0;
    *same = 0;
    for (size_t i = 0; eider_sass_changes(diff, i, &c); i++) {
        if (c.sign == ' ')
            ++*same;
        else
            n++;
        assert_true((c.before < 0) == (c.sign == '+') && (c.after < 0) == (c.sign == '-'));
    }
    return n;
}

static void differences_ignore_names_and_see_the_rest(void **state)
{
    (void)state;
    static const char *const a[] = {"LDG.E R0, desc[UR4][R2.64]", "FMUL R1, R0.reuse, 0.5",
                                    "@P0 BRA 0x40", "STG.E [R2], R1", "EXIT"};
    static const char *const b[] = {"LDG.E R7, desc[UR6][R8.64]", "FMUL R9, R7, 0.5",
                                    "@P3 BRA 0x30", "STG.E [R8], R9", "EXIT"};
    static const char *const c[] = {"LDG.E R7, desc[UR6][R8.64]",
                                    "FMUL R9, R7, 0.25",
                                    "@P3 BRA 0x50",
                                    "MUFU.EX2 R9, R9",
                                    "STG.E [R8], R9",
                                    "EXIT"};
    struct eider_sass *x = listed(a, 5), *y = listed(b, 5), *z = listed(c, 6);
    assert_int_equal(eider_sass_path_find(x), EIDER_OK);
    assert_int_equal(eider_sass_path_find(y), EIDER_OK);
    assert_int_equal(eider_sass_path_find(z), EIDER_OK);
    eider_sass_diff *diff;
    size_t same;
    assert_int_equal(eider_sass_compare(x, y, &diff), EIDER_OK);
    assert_int_equal(changed(diff, &same), 0);
    assert_int_equal(same, 5);
    eider_sass_diff_release(diff);
    assert_int_equal(eider_sass_compare(y, z, &diff), EIDER_OK);
    assert_int_equal(changed(diff, &same), 3); /* another factor, one more instruction */
    assert_int_equal(same, 4);
    eider_sass_diff_release(diff);
    eider_sass_release(x);
    eider_sass_release(y);
    eider_sass_release(z);
}

/* ---- Files ------------------------------------------------------------------------- */

static void a_listing_says_what_json_says(void **state)
{
    (void)state;
    NEED_TOOLS();
    struct eider_tool_found tool;
    struct eider_text output;
    int code = 0;
    eider_sass_options options = {0};
    eider_kernel *kernel = support_sass_compile(ctx, "out = x / y + softplus(x)", &plain);
    const struct eider_blob *cubin = &kernel->stages[EIDER_STAGE_CUBIN];
    struct eider_sass_job job = {.options = &options, .cubin = *cubin};
    eider_sass *json, *text;
    assert_int_equal(eider_sass_make(&ctx->allocator, &job, &json), EIDER_OK);
    assert_int_equal(eider_sass_make(&ctx->allocator, &job, &text), EIDER_OK);
    assert_true(eider_tools_get(EIDER_TOOL_NVDISASM, &tool));
    const char *const argv[] = {tool.info.path, "-c", "/dev/stdin", NULL};
    assert_int_equal(eider_spawn(&ctx->allocator, argv, cubin, 60000, &output, &code), EIDER_OK);
    assert_int_equal(code, 0);
    for (size_t i = 0; i < text->n_code; i++) text->code[i].opcode = NULL;
    assert_int_equal(eider_sass_disasm_text(text, output.data), EIDER_OK);
    for (size_t i = 0; i < json->n_code; i++) {
        assert_string_equal(json->code[i].opcode, text->code[i].opcode);
        assert_string_equal(json->code[i].predicate, text->code[i].predicate);
        if (json->code[i].branches_to >= 0)
            assert_string_equal(json->code[i].operands, text->code[i].operands);
    }
    eider_text_release(&output);
    eider_sass_release(json);
    eider_sass_release(text);
    eider_kernel_release(kernel);
}

static void damaged_cubins_are_refused_or_read_without_harm(void **state)
{
    (void)state;
    struct eider_assembler_info found;
    if (eider_assembler_find(NULL, &found) != EIDER_OK) skip();
    eider_kernel *kernel = support_sass_compile(ctx, "out = tanh(x)", &plain);
    const struct eider_blob *cubin = &kernel->stages[EIDER_STAGE_CUBIN];
    struct eider_cubin out;
    uint32_t lines[256];
    assert_int_equal(eider_sass_cubin_read(cubin, NULL, &out), EIDER_OK);
    assert_int_equal(out.target.sm, 90);
    assert_int_equal(eider_sass_cubin_read(cubin, "other", &out), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), kernel->info.entry));
    for (size_t size = 0; size < cubin->size; size += 13) {
        struct eider_blob cut = {malloc(size + 1), size};
        memcpy(cut.data, cubin->data, size);
        if (eider_sass_cubin_read(&cut, NULL, &out) == EIDER_OK)
            eider_sass_lines_read(&out, EIDER_LINES_SOURCE, lines, 256);
        free(cut.data);
    }
    srand(1);
    for (int round = 0; round < 3000; round++) {
        struct eider_blob copy = {malloc(cubin->size), cubin->size};
        memcpy(copy.data, cubin->data, cubin->size);
        for (int k = 0; k < 8; k++)
            ((unsigned char *)copy.data)[(size_t)rand() % cubin->size] = (unsigned char)rand();
        if (eider_sass_cubin_read(&copy, NULL, &out) == EIDER_OK) {
            eider_sass_lines_read(&out, EIDER_LINES_SOURCE, lines, 256);
            eider_sass_lines_read(&out, EIDER_LINES_PTX, lines, 256);
        }
        free(copy.data);
    }
    eider_kernel_release(kernel);
}

static const char *const axpy =
    "; two lines of comment\n"
    "; before the code\n"
    "define ptx_kernel void @axpy(ptr addrspace(1) %x, ptr addrspace(1) %y, float %a) {\n"
    "entry:\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  switch i32 %t, label %go [\n"
    "    i32 77, label %done\n"
    "    i32 78, label %done\n"
    "  ]\n"
    "\n"
    "go:                                               ; a label\n"
    "  %i = zext i32 %t to i64\n"
    "  %p = getelementptr float, ptr addrspace(1) %x, i64 %i\n"
    "  %q = getelementptr float, ptr addrspace(1) %y, i64 %i\n"
    "  %u = load float, ptr addrspace(1) %p, align 4\n"
    "  %v = load float, ptr addrspace(1) %q, align 4\n"
    "  %w = call float @llvm.fma.f32(float %u, float %a, float %v)\n"
    "  store float %w, ptr addrspace(1) %q, align 4\n"
    "  br label %done\n"
    "\n"
    "done:\n"
    "  ret void\n"
    "}\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare float @llvm.fma.f32(float, float, float)\n";

static void ir_and_ptx_of_others_are_attributed_to_their_lines(void **state)
{
    (void)state;
    NEED_TOOLS();
    eider_source source = {.kind = EIDER_SOURCE_LL, .data = axpy, .entry = "axpy"};
    eider_request request = {.source = &source, .target = "sm_90", .line_info = 1};
    eider_kernel *kernel, *without;
    eider_sass *sass;
    eider_sass_summary m;
    eider_sass_term t;
    eider_sass_line line;
    assert_int_equal(eider_compile(ctx, &request, &kernel), EIDER_OK);
    request.line_info = 0;
    assert_int_equal(eider_compile(ctx, &request, &without), EIDER_OK);
    assert_true(eider_sass_same_code(&kernel->stages[EIDER_STAGE_CUBIN],
                                     &without->stages[EIDER_STAGE_CUBIN], "axpy"));
    assert_int_equal(eider_kernel_sass(kernel, NULL, &sass), EIDER_OK);
    eider_sass_describe(sass, &m);
    assert_string_equal(m.attribution, "lines");
    int found = 0;
    for (size_t i = 0; eider_sass_terms(sass, i, &t); i++) {
        assert_int_equal(t.kind, EIDER_SASS_LINE);
        if (t.line != 17) continue;
        found = 1;
        assert_non_null(strstr(t.text, "@llvm.fma.f32(float %u"));
        assert_non_null(strstr(t.opcodes, "1 FFMA"));
    }
    assert_true(found);
    assert_int_equal(eider_sass_source(sass, EIDER_STAGE_IR, 16, &line), 1);
    assert_non_null(strstr(line.text, "llvm.fma"));
    assert_true(line.term >= 0);
    eider_sass_release(sass);

    const void *ptx;
    size_t size;
    assert_int_equal(eider_kernel_stage(without, EIDER_STAGE_PTX, &ptx, &size), EIDER_OK);
    source = (eider_source){.kind = EIDER_SOURCE_PTX, .data = ptx, .entry = "axpy"};
    request.line_info = 1;
    eider_kernel_release(kernel);
    assert_int_equal(eider_compile(ctx, &request, &kernel), EIDER_OK);
    assert_int_equal(eider_kernel_sass(kernel, NULL, &sass), EIDER_OK);
    found = 0;
    for (size_t i = 0; eider_sass_terms(sass, i, &t); i++)
        found |= strncmp(t.text, "fma.rn.f32", 10) == 0 && strstr(t.opcodes, "1 FFMA");
    assert_true(found);
    eider_sass_release(sass);
    eider_kernel_release(kernel);
    eider_kernel_release(without);
}

static void the_texts_carry_terms_and_no_line_information(void **state)
{
    (void)state;
    NEED_TOOLS();
    eider_sass *sass = support_sass_report(ctx, "out = silu(x) * y", &plain);
    eider_sass_line line;
    int32_t tanh_ir = -1, tanh_ptx = -2;
    for (size_t i = 0; eider_sass_source(sass, EIDER_STAGE_IR, i, &line); i++) {
        assert_null(strstr(line.text, "!dbg"));
        assert_null(strstr(line.text, "DILocation"));
        if (tanh_ir < 0 && strstr(line.text, "asm \"tanh.approx")) tanh_ir = line.term;
    }
    for (size_t i = 0; eider_sass_source(sass, EIDER_STAGE_PTX, i, &line); i++) {
        assert_null(strstr(line.text, ".loc"));
        if (tanh_ptx < 0 && strstr(line.text, "tanh.approx")) tanh_ptx = line.term;
    }
    assert_true(tanh_ir >= 0);
    assert_int_equal(tanh_ir, tanh_ptx);
    eider_sass_release(sass);
}

static void what_cannot_be_taken_apart_is_refused(void **state)
{
    (void)state;
    eider_sass *sass;
    eider_kernel *kernel;
    struct support_sass how = plain;
    assert_int_equal(eider_sass_read(ctx, "not a cubin", 11, NULL, &sass), EIDER_BAD_ARG);
    static const double beyond[] = {(double)INFINITY, (double)NAN, -1, 1e-320, 1e300};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        eider_sass_options options = {.bytes = beyond[i]};
        assert_int_equal(eider_sass_read(ctx, "not a cubin", 11, &options, &sass), EIDER_BAD_ARG);
        assert_non_null(strstr(eider_error(), "a report with bytes = "));
    }
    assert_int_equal(eider_kernel_sass(NULL, NULL, &sass), EIDER_BAD_ARG);
    how.target = "cpu";
    kernel = support_sass_compile(ctx, "out = x", &how);
    assert_int_equal(eider_kernel_sass(kernel, NULL, &sass), EIDER_UNSUPPORTED);
    eider_kernel_release(kernel);
}

static void a_missing_nvdisasm_is_one_error_with_every_path(void **state)
{
    (void)state;
    struct eider_assembler_info found;
    if (eider_assembler_find(NULL, &found) != EIDER_OK) skip();
    eider_sass *sass;
    eider_kernel *kernel = support_sass_compile(ctx, "out = x", &plain);
    setenv("EIDER_NVDISASM", "/nowhere/nvdisasm", 1);
    assert_int_equal(eider_kernel_sass(kernel, NULL, &sass), EIDER_IO);
    assert_non_null(strstr(eider_error(), "nvdisasm was not found"));
    assert_non_null(strstr(eider_error(), "/nowhere/nvdisasm"));
    unsetenv("EIDER_NVDISASM");
    eider_kernel_release(kernel);

    eider_tool tool;
    static const char *const variables[] = {"EIDER_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"};
    for (size_t i = 0; i < 3; i++) unsetenv(variables[i]);
    for (size_t i = 0; eider_tool_find(ctx, i, &tool); i++)
        if (strcmp(tool.name, "nvdisasm") == 0)
            assert_ptr_equal(strstr(tool.tried, "EIDER_CUDA_HOME: not set\nCUDA_HOME: not set\n"),
                             tool.tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_bits_are_those_that_nvidia_documents_nowhere),
        cmocka_unit_test(opcodes_have_units_by_their_first_part),
        cmocka_unit_test(memory_opcodes_say_space_width_and_policy),
        cmocka_unit_test(line_numbers_are_read_as_they_were_made),
        cmocka_unit_test(without_loops_the_pass_is_the_way_that_moves_most),
        cmocka_unit_test(the_pass_of_a_loop_is_its_body),
        cmocka_unit_test(thousands_of_loops_take_no_minutes),
        cmocka_unit_test(a_report_tells_what_ptxas_tells),
        cmocka_unit_test(counts_are_per_element_and_add_up),
        cmocka_unit_test(instructions_belong_to_terms_as_written),
        cmocka_unit_test(all_code_is_attributed_outside_the_pass_as_well),
        cmocka_unit_test(line_information_changes_no_byte),
        cmocka_unit_test(loops_over_tiles_are_the_pass),
        cmocka_unit_test(slow_paths_are_flagged),
        cmocka_unit_test(every_slow_path_has_its_flag_and_plain_code_none),
        cmocka_unit_test(limits_follow_counts_and_rates),
        cmocka_unit_test(occupancy_is_that_of_the_occupancy_calculator),
        cmocka_unit_test(budgets_are_checked_claim_by_claim),
        cmocka_unit_test(differences_ignore_names_and_see_the_rest),
        cmocka_unit_test(a_listing_says_what_json_says),
        cmocka_unit_test(damaged_cubins_are_refused_or_read_without_harm),
        cmocka_unit_test(ir_and_ptx_of_others_are_attributed_to_their_lines),
        cmocka_unit_test(the_texts_carry_terms_and_no_line_information),
        cmocka_unit_test(what_cannot_be_taken_apart_is_refused),
        cmocka_unit_test(a_missing_nvdisasm_is_one_error_with_every_path),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
