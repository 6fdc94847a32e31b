/* test_row_shift.c -- rows that begin anywhere and are no whole number of vectors, on the CPU:
 * values, memory around the rows, and what a row's bits depend on.
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
#include <sys/mman.h>
#include <unistd.h>

#include "parse.h"
#include "row.h"
#include "support_row.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Types of different sizes among what is in the row. */
static const char mixed[] = "in x: bf16, r: f32, w: column\n"
                            "out y: f32, t: bf16, b: bool, n\n"
                            "h = x + r; y = h * rsqrt(mean(h * h) + 0.1) * w\n"
                            "t = h; b = x > r; n = sum(abs(h))\n";

/* A schedule, but for the vector. */
static const char *const schedules[] = {"row=1,block=1,keep=0,unroll=1",
                                        "row=1,block=1,keep=3,unroll=2",
                                        "row=4,block=32,keep=1,unroll=1",
                                        "row=32,block=32,keep=0,unroll=2",
                                        "row=32,block=64,keep=2,unroll=1",
                                        "row=64,block=64,keep=1,unroll=1",
                                        "row=128,block=128,keep=0,unroll=1",
                                        "row=4,block=32,keep=0,shared=2,unroll=2",
                                        "row=32,block=32,keep=1,shared=3,unroll=1,resident=1",
                                        "cluster=2,row=32,block=32,keep=0,shared=1,unroll=1"};

static int allows(int64_t length, int vec)
{
    return length % vec == 0 || length >= 2 * vec - 1;
}

static const char *config_of(size_t schedule, int vec, char *text, size_t size)
{
    snprintf(text, size, "vec=%d,%s", vec, schedules[schedule]);
    return text;
}

/* ---- Values ----------------------------------------------------------------------- */

static void every_length_at_every_shift(void **state)
{
    static const int vecs[] = {8, 2, 4, 16, 32, 64};
    static const eider_dtype types[] = {EIDER_F32, EIDER_BF16, EIDER_F16, EIDER_F64};
    static const double tolerances[] = {2e-6, 1e-2, 2e-3, 1e-13};
    char config[64];
    (void)state;
    for (int64_t k = 0; k < 18; k++) {
        int64_t length = k * 8 - k * k % 5 + 1;
        int vec = vecs[k % (int)COUNT(vecs)];
        size_t t = (size_t)k % COUNT(types), s = (size_t)k % COUNT(schedules);
        while (!allows(length, vec)) vec /= 2;
        for (size_t misalign = (size_t)k % 3; misalign < 8; misalign += 4)
            row_check((struct row_call){.text = row_everything,
                                        .config = config_of(s, vec, config, sizeof config),
                                        .type = types[t],
                                        .math = EIDER_MATH_FAST,
                                        .rows = 5,
                                        .cols = length,
                                        .misalign = misalign,
                                        .gap = (int64_t)misalign % 2 * 3,
                                        .fill = row_wave},
                      tolerances[t], 1);
    }
}

static void types_of_different_sizes_share_a_shift(void **state)
{
    static const int vecs[] = {2, 4, 8, 16};
    char config[64];
    (void)state;
    for (size_t k = 0; k < 16; k++)
        row_check((struct row_call){.text = mixed,
                                    .config = config_of(k % COUNT(schedules), vecs[k % COUNT(vecs)],
                                                        config, sizeof config),
                                    .rows = 4,
                                    .cols = 33 + (int64_t)k * 9,
                                    .misalign = k % 8,
                                    .apart = k / 12, /* and where they do not */
                                    .fill = row_wave},
                  1e-2, 1);
}

static void rows_longer_than_what_is_kept(void **state)
{
    char config[64];
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++)
        row_check((struct row_call){.text = row_everything,
                                    .config = config_of(s, 8, config, sizeof config),
                                    .type = s % 2 ? EIDER_BF16 : EIDER_F32,
                                    .math = EIDER_MATH_FAST,
                                    .rows = 3,
                                    .cols = 2051 + 1000 * (int64_t)s,
                                    .misalign = s,
                                    .fill = row_wave},
                  s % 2 ? 1e-2 : 2e-6, 1);
}

/* One element before the rest, or behind it, decides. */
static double ends(size_t i, int64_t row, int64_t col)
{
    (void)i;
    return col == (row % 2 ? 0 : 76) ? 5 + (double)row : -INFINITY;
}

static void the_first_and_the_last_element_count(void **state)
{
    char config[64];
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++)
        for (size_t misalign = 0; misalign < 4; misalign += 1 + s % 3)
            row_check((struct row_call){.text = row_softmax,
                                        .config = config_of(s, 4, config, sizeof config),
                                        .rows = 6,
                                        .cols = 77,
                                        .misalign = misalign,
                                        .fill = ends},
                      2e-6, 1e-30);
}

/* Only elements of the row are looked at by a kernel that checks: its first vector has some before
 * the row, its last some behind. */
static void places_beyond_a_row_are_no_faults(void **state)
{
    (void)state;
    for (size_t misalign = 0; misalign < 4; misalign++) {
        eider_kernel *kernel;
        struct row_call c = {.text = "y = pick(x, col()) / sum(x)",
                             .rows = 4,
                             .cols = 77,
                             .misalign = misalign,
                             .fill = row_wave};
        row_make(&c);
        eider_request request = {.program = c.program,
                                 .args = c.args,
                                 .n_args = c.n,
                                 .config = "vec=8,row=4,block=32,keep=1,unroll=1",
                                 .checked = 1};
        must(eider_prepare(row_cpu, &request, &kernel));
        must(eider_launch(kernel, NULL, c.args, c.n));
        must(eider_kernel_check(kernel, NULL));
        row_compare(&c, 2e-6, 1);
        eider_kernel_release(kernel);
        row_release(&c);
    }
}

/* ---- Memory -------------------------------------------------------------------------- */

/* Memory of which the first byte, or the last, is at the border of what can be read. */
static void *fenced(size_t bytes, int at_end, void **map, size_t *size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    *size = inner + 2 * page;
    *map = mmap(NULL, *size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(*map != MAP_FAILED);
    char *first = (char *)*map + page;
    assert_int_equal(mprotect(first, inner, PROT_READ | PROT_WRITE), 0);
    return at_end ? first + inner - bytes : first;
}

/* By the machine, or as anybody does it. */
static void run_call(struct row_call *c, const struct eider_machine *machine)
{
    struct map_kernel kernel;
    struct map_request request = {
        .text = c->text, .args = c->args, .machine = machine, .config = c->config, .math = c->math};
    if (!machine) {
        row_run(c);
        return;
    }
    must(map_make(&request, &kernel));
    must(map_run(&kernel, c->args));
    map_release(&kernel);
}

static void run_fenced(struct row_call c, const struct eider_machine *machine, int at_end,
                       double tolerance)
{
    void *maps[ROW_OPERANDS_MAX], *own[ROW_OPERANDS_MAX];
    size_t sizes[ROW_OPERANDS_MAX];
    row_make(&c);
    for (size_t i = 0; i < c.n; i++) {
        size_t bytes = row_span(&c, i);
        void *data = fenced(bytes, at_end, &maps[i], &sizes[i]);
        own[i] = c.args[i].data;
        memcpy(data, own[i], bytes);
        c.args[i].data = data;
    }
    run_call(&c, machine);
    row_compare(&c, tolerance, 1);
    for (size_t i = 0; i < c.n; i++) {
        c.args[i].data = own[i];
        munmap(maps[i], sizes[i]);
    }
    row_release(&c);
}

static void nothing_outside_of_the_memory_is_touched(void **state)
{
    static const int64_t lengths[] = {15, 77, 130, 259};
    char config[64];
    (void)state;
    for (size_t k = 0; k < 4 * COUNT(lengths); k++) {
        int64_t length = lengths[k / 4];
        struct row_call c = {
            .text = row_everything,
            .config = config_of((k * 5 + k / 4) % COUNT(schedules), 8, config, sizeof config),
            .type = k & 2 ? EIDER_BF16 : EIDER_F32,
            .math = EIDER_MATH_FAST,
            .rows = 3,
            .cols = length,
            .fill = row_wave};
        run_fenced(c, NULL, k & 1, k & 2 ? 1e-2 : 2e-6);
    }
}

/* ---- Alignment ------------------------------------------------------------------------- */

/* `ptr`, or what nobody can read where an access of `n` elements there is not aligned. */
static LLVMValueRef checked(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n)
{
    size_t bytes = eider_dtype_size(type) * (size_t)n;
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context), i8 = LLVMInt8TypeInContext(e->context);
    LLVMValueRef mask = LLVMConstInt(i64, (bytes < 16 ? bytes : 16) - 1, 0);
    LLVMValueRef bad = LLVMBuildPtrToInt(e->builder, ptr, i64, "");
    bad = LLVMBuildAnd(e->builder, bad, mask, "");
    bad = LLVMBuildShl(e->builder, bad, LLVMConstInt(i64, 52, 0), "");
    return LLVMBuildGEP2(e->builder, i8, ptr, &bad, 1, "");
}

static int n_vectors, n_elements; /* what kernels were built of */

static int checked_fetch(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                         enum eider_load_policy policy, int read_only, LLVMValueRef *words)
{
    n_vectors++;
    ptr = checked(e, type, ptr, n);
    return eider_machine_cpu.fetch(e, type, ptr, n, policy, read_only, words);
}

static int counted_fetch_each(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs,
                              int n, LLVMValueRef *words)
{
    n_elements++;
    return eider_machine_cpu.fetch_each(e, type, ptrs, n, words);
}

static void checked_store(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                          enum eider_store_policy policy, int saturate, const LLVMValueRef *in)
{
    eider_machine_cpu.store(e, type, checked(e, type, ptr, n), n, policy, saturate, in);
}

/* On a processor that faults where a GPU does. */
static void run_aligned(struct row_call c, double tolerance)
{
    struct eider_machine machine = eider_machine_cpu;
    machine.needs_alignment = 1;
    machine.fetch = checked_fetch;
    machine.fetch_each = counted_fetch_each;
    machine.store = checked_store;
    row_make(&c);
    run_call(&c, &machine);
    row_compare(&c, tolerance, 1);
    row_release(&c);
}

static void vectors_are_aligned(void **state)
{
    static const int vecs[] = {2, 4, 8, 16};
    char config[64];
    (void)state;
    for (size_t k = 0; k < 30; k++) {
        struct row_call c = {.text = mixed,
                             .config = config,
                             .math = EIDER_MATH_FAST,
                             .rows = 5,
                             .cols = 31 + (int64_t)(k * k) % 91,
                             .misalign = k % 8,
                             .gap = (int64_t)k % 3 * 4,
                             .apart = k % 5 == 4, /* single elements, then */
                             .fill = row_wave};
        snprintf(config, sizeof config, "row=1,block=%d,keep=%d,unroll=%d,vec=%d", k % 2 ? 32 : 1,
                 (int)k % 3, 1 + (int)k % 2, vecs[k / 2 % 4]);
        run_aligned(c, 1e-2);
        c.text = row_everything;
        c.type = k % 3 ? EIDER_F32 : EIDER_F64;
        run_aligned(c, 2e-6);
    }
    assert_true(n_vectors > 0 && n_elements > 0);
}

/* ---- Copies ------------------------------------------------------------------------------ */

/* What copies are at worst: until a thread waits, there is nothing where they will be; or at best:
 * they are there at once. */
static struct {
    void *to;
    const void *from;
    size_t bytes;
} copies[4096];
static size_t n_copies, n_copied, n_misplaced;
static int is_late;

static void copy_now_or_later(void *to, const void *from, int64_t bytes, int64_t exists)
{
    uintptr_t mask = (bytes < 16 ? (uintptr_t)bytes : 16) - 1;
    if (!exists) return;
    n_misplaced += ((uintptr_t)to | (uintptr_t)from) & mask || n_copies == COUNT(copies);
    if (n_misplaced) return;
    n_copied++;
    if (!is_late) memcpy(to, from, (size_t)bytes);
    if (!is_late) return;
    memset(to, 0xFF, (size_t)bytes);
    copies[n_copies].to = to;
    copies[n_copies].from = from;
    copies[n_copies++].bytes = (size_t)bytes;
}

static void copies_end(void)
{
    for (size_t i = 0; i < n_copies; i++) memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    n_copies = 0;
}

/* A call of the test's own code. */
static void call(struct eider_emit *e, uintptr_t function, LLVMValueRef *args, unsigned n)
{
    LLVMTypeRef types[4], ptr = LLVMPointerTypeInContext(e->context, 0);
    for (unsigned i = 0; i < n; i++) types[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, n, 0);
    LLVMValueRef at = LLVMConstInt(LLVMInt64TypeInContext(e->context), function, 0);
    LLVMBuildCall2(e->builder, type, LLVMConstIntToPtr(at, ptr), args, n, "");
}

static void called_copy(struct eider_emit *e, LLVMValueRef to, LLVMValueRef from, int bytes,
                        LLVMValueRef exists)
{
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
    LLVMValueRef args[4] = {LLVMBuildAddrSpaceCast(e->builder, to, ptr, ""), from,
                            LLVMConstInt(i64, (unsigned)bytes, 0),
                            exists ? LLVMBuildZExt(e->builder, exists, i64, "")
                                   : LLVMConstInt(i64, 1, 0)};
    call(e, (uintptr_t)copy_now_or_later, args, 4);
}

static void called_wait(struct eider_emit *e)
{
    call(e, (uintptr_t)copies_end, NULL, 0);
}

/* A row in shared memory, all of it or parts. */
static const char *const copied[] = {
    "vec=8,row=32,block=32,keep=0,shared=2,unroll=1,async=1",
    "vec=8,row=8,block=32,keep=0,shared=6,unroll=2,async=1",
    "vec=4,row=32,block=64,keep=1,shared=3,unroll=1,async=1",
    "vec=4,row=1,block=32,keep=0,shared=4,unroll=2,async=1",
    "vec=16,row=4,block=32,keep=0,shared=2,unroll=1,async=1,resident=1",
    "vec=8,row=16,block=32,keep=0,shared=4,unroll=2,async=1,resident=1",
    "vec=2,row=32,block=32,keep=2,shared=1,unroll=1,async=1,resident=1",
    "vec=4,cluster=2,row=32,block=32,keep=0,shared=2,unroll=1,async=1",
    "vec=8,cluster=2,row=32,block=32,keep=1,shared=1,unroll=1,async=1,resident=1",
};

static void copies_take_whole_vectors_of_the_row_alone(void **state)
{
    static const eider_dtype types[] = {EIDER_F32, EIDER_BF16, EIDER_F64};
    static const double tolerances[] = {2e-6, 1e-2, 1e-13};
    struct eider_machine machine = eider_machine_cpu;
    (void)state;
    machine.needs_alignment = 1;
    machine.fetch = checked_fetch;
    machine.store = checked_store;
    machine.copy = called_copy;
    machine.copies_wait = called_wait;
    n_copied = n_misplaced = 0;
    for (size_t k = 0; k < 4 * COUNT(copied); k++) {
        size_t t = k / 2 % COUNT(types);
        struct row_call c = {.text = k / COUNT(copied) % 2 ? mixed : row_everything,
                             .config = copied[k % COUNT(copied)],
                             .type = types[t],
                             .math = EIDER_MATH_FAST,
                             .rows = 5,
                             .cols = 31 + (int64_t)(k * 37) % 301,
                             .gap = (int64_t)k % 5 == 4 ? 3 : 0,
                             .fill = row_wave};
        is_late = k % 3 != 2;
        run_fenced(c, &machine, k & 1,
                   tolerances[t] < 1e-2 && c.text == mixed ? 1e-2 : tolerances[t]);
    }
    assert_true(n_copied > 0);
    assert_true(n_misplaced == 0);
}

/* ---- Bits -------------------------------------------------------------------------------- */

static double same(size_t i, int64_t row, int64_t col)
{
    (void)row;
    return row_wave(i, 0, col);
}

static int same_bits(const struct row_call *c, int64_t row, int64_t other)
{
    for (size_t i = 0; i < c->n; i++)
        for (int64_t col = 0; col < row_cols_of(c, i) && row_rows_of(c, i) > 1; col++)
            if (row_got(c, i, row, col) != row_got(c, i, other, col)) return 0;
    return 1;
}

static void equal_rows_at_equal_shifts_have_equal_bits(void **state)
{
    char config[64];
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = row_softmax,
                             .config = config_of(s, 8, config, sizeof config),
                             .rows = 13,
                             .cols = 1001,
                             .misalign = s,
                             .fill = same};
        row_make(&c);
        row_run(&c);
        for (int64_t r = 4; r < c.rows; r++) assert_true(same_bits(&c, r, r % 4));
        double fourth = row_got(&c, 1, 3, 500);
        c.rows = 4;
        for (size_t i = 0; i < c.n; i++) c.shape[i][0] = row_rows_of(&c, i);
        row_run(&c);
        assert_true(row_got(&c, 1, 3, 500) == fourth);
        c.rows = 13;
        row_release(&c);
    }
}

static void single_elements_give_equal_rows_equal_bits(void **state)
{
    char config[64];
    (void)state;
    for (size_t s = 0; s < COUNT(schedules); s++) {
        struct row_call c = {.text = row_softmax,
                             .config = config_of(s, 1, config, sizeof config),
                             .rows = 5,
                             .cols = 1001,
                             .misalign = 1,
                             .fill = same};
        row_make(&c);
        row_run(&c);
        for (int64_t r = 1; r < c.rows; r++) assert_true(same_bits(&c, r, 0));
        row_release(&c);
    }
}

/* ---- Failures ------------------------------------------------------------------------------ */

static eider_status compile_with(struct counting_allocator *memory)
{
    static float data[2][32];
    static int64_t shape[2] = {2, 15};
    eider_context_options options = {.allocator = counting_allocator(memory), .cpu_threads = 1};
    eider_tensor args[2] = {tensor_of(data[0], EIDER_F32, 2, shape),
                            tensor_of(data[1], EIDER_F32, 2, shape)};
    eider_context *context = NULL;
    eider_device *device = NULL;
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    memory->n_calls = 0;
    eider_status status = eider_context_create(&options, &context);
    if (status == EIDER_OK) status = eider_device_open(context, "cpu", &device);
    if (status == EIDER_OK) status = eider_program_parse(context, "y = x / sum(x)", &program);
    eider_request request = {.program = program,
                             .args = args,
                             .n_args = 2,
                             .config = "vec=8,row=1,block=1,keep=1,unroll=1"};
    if (status == EIDER_OK) status = eider_prepare(device, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, args, 2);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(context);
    return status;
}

static void a_failed_allocation_is_survived(void **state)
{
    struct counting_allocator memory = {0};
    (void)state;
    assert_int_equal(compile_with(&memory), EIDER_OK);
    long total = memory.n_calls;
    for (long at = 1; at <= total; at += 1 + at / 12) {
        memory.fail_at = at;
        eider_status status = compile_with(&memory);
        if (status != EIDER_OOM && status != EIDER_OK)
            fail_msg("allocation %ld: %s", at, eider_error());
        if (memory.n_alive) fail_msg("allocation %ld: lost blocks", at);
    }
}

/* ---- What decides ---------------------------------------------------------------------------- */

struct rows {
    eider_tensor args[4];
    int64_t shape[4][2], strides[4][2];
};

static const struct eider_layout *layout_of(struct rows *r, const char *text, size_t n,
                                            struct eider_layout *out)
{
    struct eider_graph *graph;
    for (size_t i = 0; i < n; i++) {
        r->args[i].rank = 2;
        r->args[i].shape = r->shape[i];
        r->args[i].strides = r->strides[i];
        r->strides[i][1] = 1;
    }
    must(eider_parse(&map_allocator, text, &graph));
    must(eider_row_layout(graph, r->args, 0, out));
    eider_graph_destroy(graph);
    return out;
}

static void layouts_know_where_rows_begin(void **state)
{
    static const struct {
        int64_t rows, cols, stride;
        size_t off; /* elements */
        eider_dtype x, y;
        int aligned, alike, vec_max;
    } cases[] = {
        {8, 50257, 50257, 0, EIDER_BF16, EIDER_BF16, 1, 1, 64},
        {8, 50257, 50304, 0, EIDER_BF16, EIDER_BF16, 64, 1, 64},
        {8, 50257, 50304, 4, EIDER_BF16, EIDER_BF16, 4, 1, 64},
        {1, 50257, 50257, 0, EIDER_BF16, EIDER_BF16, 1, 1, 64},
        {8, 4096, 4096, 0, EIDER_BF16, EIDER_BF16, 64, 1, 64},
        {8, 4096, 4097, 1, EIDER_F32, EIDER_F32, 1, 1, 64},
        {8, 4098, 4098, 0, EIDER_BF16, EIDER_F32, 2, 1, 64},
        {8, 50257, 50257, 1, EIDER_BF16, EIDER_F32, 1, 1, 64},
        {8, 14, 14, 0, EIDER_F32, EIDER_F32, 2, 1, 4},
        {8, 15, 15, 0, EIDER_F32, EIDER_F32, 1, 1, 8},
        {8, 16, 16, 0, EIDER_F32, EIDER_F32, 64, 1, 16},
    };
    static _Alignas(64) char memory[64];
    struct eider_layout l;
    (void)state;
    for (size_t k = 0; k < COUNT(cases); k++) {
        struct rows r = {.shape = {{cases[k].rows, cases[k].cols}, {cases[k].rows, cases[k].cols}},
                         .strides = {{cases[k].stride}, {cases[k].stride}}};
        eider_dtype types[2] = {cases[k].x, cases[k].y};
        for (int i = 0; i < 2; i++) {
            r.args[i].type = types[i];
            r.args[i].data = memory + cases[k].off * eider_dtype_size(types[i]);
        }
        r.args[1].data = (char *)r.args[1].data + ((size_t)1 << 40); /* never read */
        layout_of(&r, "y = x / sum(x)", 2, &l);
        if (l.aligned != cases[k].aligned || l.alike != cases[k].alike ||
            l.vec_max != cases[k].vec_max)
            fail_msg("case %zu: aligned %d, alike %d, vec_max %d", k, (int)l.aligned, (int)l.alike,
                     (int)l.vec_max);
    }
}

static void the_default_moves_sixteen_bytes_at_once(void **state)
{
    int64_t shape[2] = {8, 50257}, slice[2] = {50258, 1};
    eider_program *program;
    (void)state;
    must(eider_program_parse(row_context, "y = x / sum(x)", &program));
    for (int k = 0; k < 2; k++) {
        eider_kernel *kernel;
        eider_tensor args[2];
        const char *ptx;
        size_t size;
        for (int i = 0; i < 2; i++)
            args[i] = (eider_tensor){
                .type = EIDER_BF16, .rank = 2, .shape = shape, .strides = k && !i ? slice : NULL};
        eider_request request = {.program = program, .args = args, .n_args = 2, .target = "sm_90"};
        must(eider_compile(row_context, &request, &kernel));
        must(eider_kernel_stage(kernel, EIDER_STAGE_PTX, (const void **)&ptx, &size));
        /* Rows of x and y begin at different places where their strides differ. */
        assert_int_equal(strstr(ptx, "cp.async.cg.shared.global") != NULL, k == 0);
        assert_int_equal(strstr(ptx, "st.global.v4.") != NULL, k == 0);
        eider_kernel_release(kernel);
    }
    eider_program_release(program);
}

/* On sm_90, of rows that follow one another. */
static struct eider_config default_of(const char *text, size_t n, eider_dtype type, int64_t length)
{
    static _Alignas(64) char memory[64];
    struct eider_device_facts facts = {.target = {.sm = 90}, .units = 132};
    struct eider_config config = eider_config_unset();
    struct rows r = {.args = {{0}}};
    struct eider_layout l;
    for (size_t i = 0; i < n; i++) {
        r.args[i].type = type;
        r.args[i].data = memory + ((size_t)i << 40); /* never read */
        r.shape[i][0] = 8;
        r.shape[i][1] = r.strides[i][0] = length;
    }
    layout_of(&r, text, n, &l);
    eider_row_defaults(&l, &facts, &config);
    must(eider_row_check(&l, facts.target, &config));
    return config;
}

static void long_rows_have_the_config_of_whole_vectors_or_their_own(void **state)
{
    static const int64_t lengths[] = {16385, 32003, 32767, 50257, 65535, 100012, 128001, 300001};
    static const char *const texts[] = {"y = x / sum(x)", "s = sum(x * z); y = x * s"};
    (void)state;
    for (size_t k = 0; k < 4 * COUNT(lengths); k++) {
        eider_dtype type = k & 1 ? EIDER_F32 : EIDER_BF16;
        size_t n = k & 2 ? 3 : 2;
        int64_t most = k & 1 ? 4 : 8, length = lengths[k / 4];
        int64_t whole = (length + most - 1) / most * most;
        if (k & 1 && length * (int64_t)(n - 1) < 32 << 10) continue; /* not long */
        struct eider_config odd = default_of(texts[n - 2], n, type, length);
        struct eider_config even = default_of(texts[n - 2], n, type, whole);
        /* 64 to 256 KiB, and the others are a whole number of 16 KiB. */
        int has_own = !(k & 3) && length > 32 << 10 && length < 128 << 10 && whole % (8 << 10) == 0;
        if (has_own)
            assert_memory_not_equal(&odd, &even, sizeof odd);
        else
            assert_memory_equal(&odd, &even, sizeof odd);
    }
}

static void vectors_are_as_many_as_shifts_make(void **state)
{
    struct eider_layout l = {.rank = 2, .n_operands = 1, .length = 50257, .aligned = 1};
    (void)state;
    l.operands[0] = (struct eider_layout_operand){
        .kind = EIDER_INPUT, .type = EIDER_BF16, .stride_class = {2, 1}};
    assert_int_equal(eider_row_leader(&l, 8), 0);
    assert_true(eider_row_cut(&l, 8) == 6283); /* 50257 + 7 of them, by 8 */
    l.length = 50250;
    assert_true(eider_row_cut(&l, 8) == 6283); /* 6282 without a shift */
    l.aligned = 64;
    assert_true(eider_row_cut(&l, 8) == 6282);
    l.length = 14;
    l.aligned = 1;
    assert_false(eider_row_shifts(&l, 8)); /* there may be no whole vector */
    assert_true(eider_row_shifts(&l, 4));
}

/* Rows are as long as the threads' vectors together, so that a shifted one has a vector more. */
static void a_shifted_row_after_one_that_is_not_has_all_its_vectors(void **state)
{
    static const char *const schedules_of_shared[] = {
        "vec=4,row=32,block=32,keep=0,shared=2,unroll=1,resident=1",
        "vec=4,row=32,block=32,keep=0,shared=2,unroll=2,resident=1,async=1",
        "vec=2,row=64,block=64,keep=1,shared=1,unroll=1,resident=1",
        "vec=4,row=8,block=32,keep=3,shared=3,unroll=1,resident=1",
        "cluster=2,vec=2,row=32,block=32,keep=0,shared=3,unroll=1,resident=1"};
    (void)state;
    for (size_t k = 0; k < COUNT(schedules_of_shared); k++)
        for (int64_t gap = 0; gap < 4; gap++)
            row_check((struct row_call){.text = row_everything,
                                        .config = schedules_of_shared[k],
                                        .rows = 23,
                                        .cols = 128,
                                        .gap = gap,
                                        .fill = row_wave},
                      2e-6, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shifted_row_after_one_that_is_not_has_all_its_vectors),
        cmocka_unit_test(every_length_at_every_shift),
        cmocka_unit_test(types_of_different_sizes_share_a_shift),
        cmocka_unit_test(rows_longer_than_what_is_kept),
        cmocka_unit_test(the_first_and_the_last_element_count),
        cmocka_unit_test(places_beyond_a_row_are_no_faults),
        cmocka_unit_test(nothing_outside_of_the_memory_is_touched),
        cmocka_unit_test(vectors_are_aligned),
        cmocka_unit_test(copies_take_whole_vectors_of_the_row_alone),
        cmocka_unit_test(equal_rows_at_equal_shifts_have_equal_bits),
        cmocka_unit_test(single_elements_give_equal_rows_equal_bits),
        cmocka_unit_test(a_failed_allocation_is_survived),
        cmocka_unit_test(layouts_know_where_rows_begin),
        cmocka_unit_test(the_default_moves_sixteen_bytes_at_once),
        cmocka_unit_test(long_rows_have_the_config_of_whole_vectors_or_their_own),
        cmocka_unit_test(vectors_are_as_many_as_shifts_make),
    };
    return cmocka_run_group_tests_name("row shift", tests, row_set_up, row_tear_down);
}
