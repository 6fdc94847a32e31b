/* test_map.c -- the elementwise template on the CPU: every shape of call gives the same
 * numbers as a loop in C, and touches nothing but its outputs.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "passes.h"
#include "support_map.h"

#define TENSOR(data, type, n)         \
    {                                 \
        (data), (type), 1, &(n), NULL \
    }

/* A config whose tile has 16 elements, to reach every kind of tail soon. */
#define SMALL_TILE "vec=4,unroll=2,block=1,tiles=2"

/* ---- Views --------------------------------------------------------------- */

/* A tensor in guarded memory of its own, with room for its strides. */
struct view {
    eider_tensor t;
    int64_t shape[EIDER_RANK_MAX], strides[EIDER_RANK_MAX];
    char *memory;
    size_t bytes;
};

static uint32_t seed = 12345;

static int dice(int sides)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)sides);
}

/* Lays the dimensions out in the order `order`, innermost last, each stride `gaps` elements
 * wider than needed; dimensions in `backwards` run the other way, those in `repeated` have
 * stride 0.  Fills with small integers. */
static void view_make(struct view *v, eider_dtype type, int rank, const int64_t *shape,
                      const int *order, int gaps, unsigned backwards, unsigned repeated,
                      size_t misalign)
{
    int64_t size = (int64_t)eider_dtype_size(type), step = 1, origin = 0, end = 1;
    for (int k = rank - 1; k >= 0; k--) {
        int d = order ? order[k] : k;
        v->shape[d] = shape[d];
        v->strides[d] = repeated >> d & 1 ? 0 : backwards >> d & 1 ? -step : step;
        if (repeated >> d & 1) continue;
        int64_t reach = step * (shape[d] > 0 ? shape[d] - 1 : 0);
        if (backwards >> d & 1) origin += reach;
        end += reach;
        step = step * (shape[d] > 0 ? shape[d] : 1) + gaps;
    }
    v->bytes = (size_t)(end * size);
    v->memory = map_alloc(v->bytes, misalign * (size_t)size);
    for (int64_t i = 0; i < end; i++) map_put(type, v->memory, i, (double)(i * 7 % 5));
    v->t = (eider_tensor){v->memory + origin * size, type, rank, v->shape, v->strides};
}

static void view_row_major(struct view *v, eider_dtype type, int rank, const int64_t *shape)
{
    view_make(v, type, rank, shape, NULL, 0, 0, 0, 0);
}

static int64_t view_offset(const eider_tensor *t, const int64_t *at, int rank)
{
    int64_t offset = 0;
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] != 1) offset += at[rank - t->rank + d] * t->strides[d];
    return offset;
}

/* out = a + 2 * b, by an odometer over the output's shape; returns 0 at the first element
 * that differs. */
static int is_a_plus_2b(const eider_tensor *args)
{
    const eider_tensor *out = &args[2];
    int64_t at[EIDER_RANK_MAX] = {0};
    for (;;) {
        double a = map_get(args[0].type, args[0].data, view_offset(&args[0], at, out->rank));
        double b = map_get(args[1].type, args[1].data, view_offset(&args[1], at, out->rank));
        double got = map_get(out->type, out->data, view_offset(out, at, out->rank));
        if (got != a + 2 * b) {
            fprintf(stderr, "%g + 2 * %g gave %g at", a, b, got);
            for (int d = 0; d < out->rank; d++) fprintf(stderr, " %ld", (long)at[d]);
            fprintf(stderr, "\n");
            return 0;
        }
        int d = out->rank - 1;
        for (; d >= 0 && ++at[d] == out->shape[d]; d--) at[d] = 0;
        if (d < 0) return 1;
    }
}

#define A_PLUS_2B "out = a + 2 * b"

/* Elements of the output that the kernel wrote must be all that changed. */
static size_t count_untouched(const struct view *out, unsigned char pattern)
{
    size_t n = 0;
    for (size_t i = 0; i < out->bytes; i++) n += (unsigned char)out->memory[i] == pattern;
    return n;
}

static void free_views(struct view *v, int n)
{
    for (int i = 0; i < n; i++) map_free(v[i].memory);
}

/* ---- Lengths, alignment, types ------------------------------------------- */

static void run_length(struct map_kernel *k, int64_t n, size_t misalign)
{
    struct view v[3];
    for (int i = 0; i < 3; i++)
        view_make(&v[i], EIDER_F32, 1, &n, NULL, 0, 0, 0, i == 1 ? misalign : 0);
    memset(v[2].memory, 0x77, v[2].bytes);
    eider_tensor args[3] = {v[0].t, v[1].t, v[2].t};
    assert_int_equal(map_run(k, args), EIDER_OK);
    if (n > 0) assert_true(is_a_plus_2b(args));
    free_views(v, 3);
}

static void every_length_around_tiles_and_blocks(void **state)
{
    (void)state;
    static const char *const configs[] = {SMALL_TILE, "vec=4,unroll=2,block=32,tiles=1",
                                          "vec=1,unroll=1,block=1,tiles=1",
                                          "vec=16,unroll=1,block=32,tiles=2"};
    int64_t n = 16;
    eider_tensor args[3] = {TENSOR(NULL, EIDER_F32, n), TENSOR(NULL, EIDER_F32, n),
                            TENSOR(NULL, EIDER_F32, n)};
    for (size_t c = 0; c < 4; c++) {
        struct map_kernel k;
        struct map_request r = {.text = A_PLUS_2B, .args = args, .config = configs[c]};
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        struct eider_map_config numbers = eider_map_config_of(&k.config);
        int64_t last = 3 * eider_map_tile(&numbers) + 1;
        for (int64_t i = 0; i <= last; i += last > 800 && i > 40 && i < last - 40 ? 37 : 1)
            run_length(&k, i, 0);
        map_release(&k);
    }
}

static void every_misalignment_of_every_size(void **state)
{
    (void)state;
    static const eider_dtype types[] = {EIDER_E5M2, EIDER_BF16, EIDER_F32, EIDER_F64};
    int64_t n = 100;
    for (size_t t = 0; t < 4; t++) {
        eider_tensor args[3] = {TENSOR(NULL, types[t], n), TENSOR(NULL, types[t], n),
                                TENSOR(NULL, types[t], n)};
        struct map_kernel k;
        struct map_request r = {
            .text = A_PLUS_2B, .args = args, .config = t % 2 ? "vec=16" : "vec=16,store=cs"};
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        size_t steps = 16 / eider_dtype_size(types[t]);
        for (size_t m = 0; m < 3 * steps; m++) {
            struct view v[3];
            for (size_t i = 0; i < 3; i++)
                view_make(&v[i], types[t], 1, &n, NULL, 0, 0, 0, m / steps == i ? m % steps : 0);
            /* 8-bit sums are exact up to 16 and 8. */
            for (int64_t i = 0; i < n; i++) map_put(types[t], v[1].memory, i, (double)(i % 3));
            eider_tensor run[3] = {v[0].t, v[1].t, v[2].t};
            assert_int_equal(map_run(&k, run), EIDER_OK);
            assert_true(is_a_plus_2b(run));
            /* The flag that tells a GPU to take the narrow way. */
            unsigned flags = (unsigned)k.bound.slots[4];
            assert_int_equal(flags & EIDER_MAP_ALIGNED, m % steps ? 0 : EIDER_MAP_ALIGNED);
            free_views(v, 3);
        }
        map_release(&k);
    }
}

static void data_between_elements_is_refused(void **state)
{
    (void)state;
    int64_t n = 8;
    float in[9], out[8];
    eider_tensor args[2] = {TENSOR(in, EIDER_F32, n), TENSOR(out, EIDER_F32, n)};
    struct map_request r = {.text = "out = a", .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    args[0].data = (char *)in + 2;
    assert_int_equal(map_run(&k, args), EIDER_BAD_ARG);
    assert_non_null(strstr(eider_error(), "4-byte"));
    args[0].data = NULL;
    assert_int_equal(map_run(&k, args), EIDER_BAD_ARG);
    map_release(&k);
}

static void every_pair_of_float_types(void **state)
{
    (void)state;
    static const eider_dtype types[] = {EIDER_F32, EIDER_F16,  EIDER_BF16,
                                        EIDER_F64, EIDER_E4M3, EIDER_E5M2};
    int64_t n = 77;
    for (size_t t = 0; t < 6; t++) {
        struct view v[7];
        eider_tensor args[7];
        view_row_major(&v[0], types[t], 1, &n);
        for (int64_t i = 0; i < n; i++)
            map_put(types[t], v[0].memory, i, (double)(i % 11) * 0.375 - 1.5);
        for (size_t o = 0; o < 6; o++) view_row_major(&v[o + 1], types[o], 1, &n);
        for (size_t o = 0; o < 7; o++) args[o] = v[o].t;
        struct map_request r = {.text = "p = a; q = a; r = a; s = a; t = a; u = a",
                                .args = args,
                                .config = t % 2 ? SMALL_TILE : "vec=16"};
        map_once(&r);
        for (size_t o = 0; o < 6; o++)
            for (int64_t i = 0; i < n; i++) {
                double want = eider_round_to(map_get(types[t], v[0].memory, i), types[o], 1);
                assert_true(map_get(types[o], v[o + 1].memory, i) == want);
            }
        free_views(v, 7);
    }
}

static void integers_and_bools_keep_their_values(void **state)
{
    (void)state;
    int64_t n = 50;
    struct view v[6];
    static const eider_dtype types[] = {EIDER_I32, EIDER_I64,  EIDER_BOOL,
                                        EIDER_I64, EIDER_BOOL, EIDER_I32};
    eider_tensor args[6];
    for (int i = 0; i < 6; i++) {
        view_row_major(&v[i], types[i], 1, &n);
        args[i] = v[i].t;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t wide = (i - 25) * INT64_C(0x123456789AB);
        memcpy(v[1].memory + 8 * i, &wide, 8);
        v[2].memory[i] = (char)(i % 3 * 100); /* any value but 0 is true */
    }
    struct map_request r = {
        .text = "p = i + j; q = not b; s = select(b, i, 7)", .args = args, .config = SMALL_TILE};
    map_once(&r);
    for (int64_t i = 0; i < n; i++) {
        double small = map_get(EIDER_I32, v[0].memory, i);
        int64_t wide, sum;
        memcpy(&wide, v[1].memory + 8 * i, 8);
        memcpy(&sum, v[3].memory + 8 * i, 8);
        assert_true(sum == wide + (int64_t)small);
        assert_int_equal(v[4].memory[i], i % 3 == 0);
        assert_true(map_get(EIDER_I32, v[5].memory, i) == (i % 3 ? small : 7));
    }
    free_views(v, 6);
}

static void scalars_are_passed_by_value(void **state)
{
    (void)state;
    int64_t n = 19;
    struct view v[2];
    uint16_t half = 0x4200; /* 3 in f16 */
    uint8_t eighth = 0x20;  /* 0.125 in e4m3 */
    double wide = 1024;
    view_row_major(&v[0], EIDER_F32, 1, &n);
    view_row_major(&v[1], EIDER_F64, 1, &n);
    eider_tensor args[5] = {v[0].t,
                            {&half, EIDER_F16, 0, NULL, NULL},
                            {&eighth, EIDER_E4M3, 0, NULL, NULL},
                            {&wide, EIDER_F64, 0, NULL, NULL},
                            v[1].t};
    struct map_request r = {.text = "in x; scalar s, t, u; out = x * s + t + u", .args = args};
    map_once(&r);
    for (int64_t i = 0; i < n; i++)
        assert_true(map_get(EIDER_F64, v[1].memory, i) ==
                    map_get(EIDER_F32, v[0].memory, i) * 3 + 0.125 + 1024);
    free_views(v, 2);
}

/* ---- Shapes and strides -------------------------------------------------- */

static void shuffle(int *order, int n)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = dice(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* A random input of `shape`: some dimensions of extent 1, or left out in front. */
static void random_input(struct view *v, eider_dtype type, int rank, const int64_t *shape)
{
    int64_t own[EIDER_RANK_MAX];
    int order[EIDER_RANK_MAX], skip = dice(3) ? 0 : dice(rank + 1);
    for (int d = skip; d < rank; d++) own[d - skip] = dice(4) ? shape[d] : 1;
    shuffle(order, rank - skip);
    unsigned repeated = 0;
    for (int d = 0; d < rank - skip; d++)
        if (dice(5) == 0) repeated |= 1u << d;
    view_make(v, type, rank - skip, own, dice(2) ? order : NULL, dice(2) ? dice(3) : 0,
              dice(3) ? 0 : (unsigned)dice(256), repeated, (size_t)dice(4));
}

static void random_views(struct view *v, int rank)
{
    static const eider_dtype types[] = {EIDER_F32, EIDER_BF16, EIDER_F64, EIDER_F16};
    int64_t shape[EIDER_RANK_MAX], room = 3000;
    int order[EIDER_RANK_MAX];
    for (int d = 0; d < rank; d++) {
        int64_t most = room < 40 ? room : 40;
        shape[d] = rank > 5 ? 1 + dice(3) : 1 + dice((int)most);
        if (dice(3) == 0 && rank <= 5) shape[d] = (shape[d] + 7) & ~INT64_C(7);
        room = room / shape[d] > 1 ? room / shape[d] : 1;
    }
    random_input(&v[0], types[dice(4)], rank, shape);
    random_input(&v[1], types[dice(4)], rank, shape);
    /* The inputs' shape need not reach all of the output's: broadcast them up. */
    int rank_in = v[0].t.rank > v[1].t.rank ? v[0].t.rank : v[1].t.rank;
    for (int d = 0; d < rank_in; d++) {
        int a = d - (rank_in - v[0].t.rank), b = d - (rank_in - v[1].t.rank);
        int64_t x = a >= 0 ? v[0].shape[a] : 1, y = b >= 0 ? v[1].shape[b] : 1;
        shape[d] = x > y ? x : y;
    }
    shuffle(order, rank_in);
    view_make(&v[2], EIDER_F32, rank_in, shape, dice(2) ? order : NULL, dice(2) ? dice(3) : 0,
              dice(3) ? 0 : (unsigned)dice(256), 0, (size_t)dice(4));
}

static void random_layouts_match_a_loop(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "", "vec=1", "unroll=1", "block=32,tiles=1", "index=64", "vec=2,unroll=1"};
    for (int trial = 0; trial < 70; trial++) {
        struct view v[3];
        random_views(v, dice(9));
        eider_tensor args[3] = {v[0].t, v[1].t, v[2].t};
        memset(v[2].memory, 0xEE, v[2].bytes);
        struct map_request r = {.text = A_PLUS_2B,
                                .args = args,
                                .config = configs[dice(6)],
                                .any_layout = dice(4) == 0};
        struct map_kernel k;
        eider_status status = map_make(&r, &k);
        if (status == EIDER_CONFIG) { /* a vector wider than the rows */
            r.config = "";
            status = map_make(&r, &k);
        }
        if (status != EIDER_OK) fail_msg("trial %d: %s", trial, eider_error());
        status = map_run(&k, args);
        if (status != EIDER_OK) fail_msg("trial %d: %s", trial, eider_error());
        if (!is_a_plus_2b(args)) fail_msg("trial %d, %s", trial, r.config);
        size_t written = 4;
        for (int d = 0; d < v[2].t.rank; d++) written *= (size_t)v[2].shape[d];
        assert_true(count_untouched(&v[2], 0xEE) >= v[2].bytes - written);
        map_release(&k);
        free_views(v, 3);
    }
}

static struct eider_layout layout_of(const char *text, const eider_tensor *args)
{
    struct map_kernel k;
    struct map_request r = {.text = text, .args = args};
    eider_status status = map_make(&r, &k);
    if (status != EIDER_OK) fail_msg("%s", eider_error());
    struct eider_layout layout = k.layout;
    map_release(&k);
    return layout;
}

static void dense_tensors_become_one_line(void **state)
{
    (void)state;
    static const int transposed[3] = {2, 0, 1};
    int64_t shape[3] = {4, 6, 10};
    for (unsigned backwards = 0; backwards < 8; backwards++) {
        struct view v[3];
        for (int i = 0; i < 3; i++)
            view_make(&v[i], EIDER_F32, 3, shape, transposed, 0, backwards, 0, 0);
        eider_tensor args[3] = {v[0].t, v[1].t, v[2].t};
        struct eider_layout l = layout_of(A_PLUS_2B, args);
        assert_int_equal(l.rank, 1);
        for (int i = 0; i < 3; i++) assert_int_equal(l.operands[i].stride_class[0], 1);
        assert_int_equal(l.vec_max, 64);
        free_views(v, 3);
    }
}

static void layout_tells_what_repeats_and_what_is_strided(void **state)
{
    (void)state;
    static const int transposed[2] = {1, 0};
    int64_t shape[2] = {8, 12}, row[1] = {12}, column[2] = {8, 1};
    struct view v[3];
    view_row_major(&v[0], EIDER_F32, 1, row);
    view_row_major(&v[1], EIDER_BF16, 2, column);
    view_row_major(&v[2], EIDER_F32, 2, shape);
    eider_tensor args[3] = {v[0].t, v[1].t, v[2].t};
    struct eider_layout l = layout_of(A_PLUS_2B, args);
    assert_int_equal(l.rank, 2);
    assert_int_equal(l.vec_max, 4);
    assert_int_equal(l.count, 96);
    static const int want[3][2] = {{0, 1}, {2, 0}, {2, 1}};
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < 2; d++) assert_int_equal(l.operands[i].stride_class[d], want[i][d]);
    map_free(v[0].memory);
    view_make(&v[0], EIDER_F32, 2, shape, transposed, 0, 0, 0, 1);
    args[0] = v[0].t;
    l = layout_of(A_PLUS_2B, args);
    assert_int_equal(l.operands[0].stride_class[1], 2);
    assert_int_equal(l.operands[0].align, 4);
    free_views(v, 3);
}

static void description_names_every_ingredient(void **state)
{
    (void)state;
    int64_t shape[2] = {8, 12};
    struct view v[2];
    float alpha = 2;
    view_make(&v[0], EIDER_BF16, 2, shape, NULL, 4, 0, 0, 1);
    view_row_major(&v[1], EIDER_F32, 2, shape);
    eider_tensor args[3] = {v[0].t, {&alpha, EIDER_F32, 0, NULL, NULL}, v[1].t};
    struct map_request r = {.text = "in x; scalar alpha; out = x * alpha", .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    struct eider_text text;
    char *data;
    eider_text_init(&text, &map_allocator);
    eider_template_for(k.graph)->describe(k.graph, &k.layout, &text);
    assert_int_equal(eider_text_take(&text, &data, NULL), EIDER_OK);
    assert_string_equal(data, "x:bf16[2,1]@2 alpha:f32 out:f32[2,1]@16 index=32");
    eider_mem_free(&map_allocator, data);
    map_release(&k);
    free_views(v, 2);
}

static void empty_tensors_launch_nothing(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{0, 5, 3}, {5, 0, 3}, {3, 5, 0}, {0, 0, 0}};
    for (int s = 0; s < 4; s++) {
        eider_tensor t = {NULL, EIDER_F32, 3, shapes[s], NULL}, args[3] = {t, t, t};
        struct map_request r = {.text = A_PLUS_2B, .args = args};
        struct map_kernel k;
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        assert_int_equal(map_run(&k, args), EIDER_OK);
        assert_int_equal(k.bound.grid, 0);
        /* The same kernel takes tensors that are not empty. */
        int64_t shape[3] = {3, 5, 3};
        struct view v[3];
        for (int i = 0; i < 3; i++) view_row_major(&v[i], EIDER_F32, 3, shape);
        eider_tensor run[3] = {v[0].t, v[1].t, v[2].t};
        assert_int_equal(map_run(&k, run), EIDER_OK);
        assert_true(is_a_plus_2b(run));
        free_views(v, 3);
        map_release(&k);
    }
}

/* ---- What a prepared kernel accepts -------------------------------------- */

static eider_status run_row_bias(struct map_kernel *k, int64_t rows, int64_t columns, int gaps)
{
    int64_t shape[2] = {rows, columns};
    struct view v[3];
    view_make(&v[0], EIDER_F32, 2, shape, NULL, gaps, 0, 0, 0);
    view_row_major(&v[1], EIDER_F32, 1, &columns);
    view_row_major(&v[2], EIDER_F32, 2, shape);
    eider_tensor args[3] = {v[0].t, v[1].t, v[2].t};
    eider_status status = map_run(k, args);
    if (status == EIDER_OK && rows * columns > 0) assert_true(is_a_plus_2b(args));
    free_views(v, 3);
    return status;
}

static void one_kernel_serves_every_shape_of_its_layout(void **state)
{
    (void)state;
    int64_t shape[2] = {4, 64}, columns = 64;
    eider_tensor full = {NULL, EIDER_F32, 2, shape, NULL};
    eider_tensor row = TENSOR(NULL, EIDER_F32, columns), args[3] = {full, row, full};
    struct map_request r = {.text = A_PLUS_2B, .args = args, .config = "vec=8,unroll=2"};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 16, 33, 64, 100};
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 9; j++)
            assert_int_equal(run_row_bias(&k, sizes[i], sizes[j], i % 3), EIDER_OK);
    assert_int_equal(run_row_bias(&k, 0, 64, 0), EIDER_OK);
    map_release(&k);
}

static void other_layouts_are_not_prepared(void **state)
{
    (void)state;
    static const int transposed[2] = {1, 0};
    int64_t shape[2] = {8, 8}, n = 64;
    struct view v[3];
    view_make(&v[0], EIDER_F32, 2, shape, transposed, 0, 0, 0, 0);
    view_row_major(&v[1], EIDER_F32, 2, shape);
    view_row_major(&v[2], EIDER_F32, 2, shape);
    eider_tensor line = TENSOR(v[1].memory, EIDER_F32, n);
    eider_tensor args[3] = {line, line, TENSOR(v[2].memory, EIDER_F32, n)};
    struct map_request r = {.text = A_PLUS_2B, .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    eider_tensor run[3] = {v[0].t, v[1].t, v[2].t};
    assert_int_equal(map_run(&k, run), EIDER_NOT_PREPARED);
    assert_non_null(
        strstr(eider_error(), "operand 0 has a stride of 32 bytes in dimension 1 of 2"));
    int64_t one = 1, short_shape[2] = {8, 1};
    run[0] = (eider_tensor)TENSOR(v[0].memory, EIDER_F32, one);
    assert_int_equal(map_run(&k, run), EIDER_NOT_PREPARED);
    assert_non_null(strstr(eider_error(), "operand 0 has a stride of 0 bytes"));
    run[0] = v[1].t;
    run[0].type = EIDER_BF16;
    assert_int_equal(map_run(&k, run), EIDER_NOT_PREPARED);
    assert_non_null(strstr(eider_error(), "operand 0 is bf16"));
    run[0] = (eider_tensor){v[0].memory, EIDER_F32, 2, short_shape, NULL};
    assert_int_equal(map_run(&k, run), EIDER_NOT_PREPARED);
    map_release(&k);
    free_views(v, 3);
}

static void shapes_that_do_not_broadcast_are_refused(void **state)
{
    (void)state;
    int64_t a[2] = {8, 8}, b[2] = {8, 4}, c[1] = {8}, negative[2] = {8, -8};
    char room[512];
    eider_tensor good = {room, EIDER_F32, 2, a, NULL}, args[3] = {good, good, good};
    struct map_request r = {.text = A_PLUS_2B, .args = args};
    struct map_kernel k;
    args[1] = (eider_tensor){room, EIDER_F32, 2, b, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_SHAPE);
    assert_non_null(strstr(eider_error(), "input 'b' has extent 4 in dimension 1"));
    args[1] = good;
    args[2] = (eider_tensor){room, EIDER_F32, 1, c, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_SHAPE);
    assert_non_null(strstr(eider_error(), "output 'out' has rank 1"));
    args[2] = (eider_tensor){room, EIDER_F32, 2, negative, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_SHAPE);
    args[2] = (eider_tensor){room, EIDER_F32, 9, a, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_SHAPE);
    args[2] = (eider_tensor){room, EIDER_F32, 2, NULL, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_BAD_ARG);
    args[2] = (eider_tensor){room, (eider_dtype)99, 2, a, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_TYPE);
    args[2] = good;
    int64_t huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    args[0] = args[1] = args[2] = (eider_tensor){NULL, EIDER_F32, 2, huge, NULL};
    assert_int_equal(map_make(&r, &k), EIDER_TOO_LARGE);
    int64_t edge[2] = {INT64_MIN, INT64_MAX};
    args[0] = args[1] = args[2] = (eider_tensor){NULL, EIDER_F32, 2, a, edge};
    assert_int_equal(map_make(&r, &k), EIDER_TOO_LARGE);
}

static void declared_types_are_checked(void **state)
{
    (void)state;
    int64_t n = 4;
    eider_tensor args[2] = {TENSOR(NULL, EIDER_F32, n), TENSOR(NULL, EIDER_F32, n)};
    struct map_request r = {.text = "out y: bf16; y = x", .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_TYPE);
    assert_non_null(strstr(eider_error(), "output 'y' is f32, the program declares bf16"));
}

static void any_layout_accepts_every_stride(void **state)
{
    (void)state;
    int64_t shape[3] = {4, 5, 6};
    eider_tensor t = {NULL, EIDER_F32, 3, shape, NULL}, args[3] = {t, t, t};
    struct map_request r = {.text = A_PLUS_2B, .args = args, .any_layout = 1};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    for (int trial = 0; trial < 60; trial++) {
        struct view v[3];
        random_views(v, 1 + dice(3));
        for (int i = 0; i < 3; i++) {
            struct view w;
            static const int order[3] = {1, 0, 2};
            int use = v[i].t.rank == 3 && dice(2);
            view_make(&w, EIDER_F32, v[i].t.rank, v[i].shape, use ? order : NULL, dice(3),
                      (unsigned)dice(8), 0, 0);
            map_free(v[i].memory);
            v[i] = w;
            v[i].t.shape = v[i].shape;
            v[i].t.strides = v[i].strides;
        }
        eider_tensor run[3] = {v[0].t, v[1].t, v[2].t};
        for (int i = 0; i < 3; i++) {
            run[i].shape = v[i].shape;
            run[i].strides = v[i].strides;
        }
        assert_int_equal(map_run(&k, run), EIDER_OK);
        assert_true(is_a_plus_2b(run));
        free_views(v, 3);
    }
    map_release(&k);
}

/* ---- Shared memory ------------------------------------------------------- */

static void in_place_gives_the_same_numbers(void **state)
{
    (void)state;
    static const char *const configs[] = {SMALL_TILE, "load=nc,vec=8", "vec=1"};
    for (int c = 0; c < 3; c++) {
        int64_t n = 101;
        struct view v[2];
        view_row_major(&v[0], EIDER_F32, 1, &n);
        view_row_major(&v[1], EIDER_F32, 1, &n);
        eider_tensor args[4] = {v[0].t, v[1].t, v[0].t, v[1].t};
        struct map_request r = {.text = "s = a + b; d = a - b", .args = args, .config = configs[c]};
        struct map_kernel k;
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        assert_int_equal(map_run(&k, args), EIDER_OK);
        assert_int_equal(k.bound.slots[5] & EIDER_MAP_APART, 0);
        for (int64_t i = 0; i < n; i++) {
            double was = (double)(i * 7 % 5);
            assert_true(map_get(EIDER_F32, v[0].memory, i) == 2 * was);
            assert_true(map_get(EIDER_F32, v[1].memory, i) == 0);
        }
        map_release(&k);
        free_views(v, 2);
    }
}

static eider_status run_copy(void *in, const int64_t *in_strides, void *out,
                             const int64_t *out_strides, const int64_t *shape, int any)
{
    eider_tensor args[2] = {{NULL, EIDER_F32, 2, shape, in_strides},
                            {NULL, EIDER_F32, 2, shape, out_strides}};
    struct map_request r = {.text = "out = x", .args = args, .any_layout = any};
    struct map_kernel k;
    EIDER_TRY(map_make(&r, &k));
    args[0].data = in;
    args[1].data = out;
    eider_status status = map_run(&k, args);
    map_release(&k);
    return status;
}

static void overlap_is_refused_and_interleaving_is_not(void **state)
{
    (void)state;
    float *m = map_alloc(4096, 0);
    memset(m, 0, 4096);
    int64_t shape[2] = {8, 8}, dense[2] = {8, 1}, transposed[2] = {1, 8}, even[2] = {16, 2};
    int64_t half[2] = {16, 1}, zero[2] = {0, 1}, near[2] = {7, 1}, back[2] = {-8, 1};
    assert_int_equal(run_copy(m, dense, m, dense, shape, 0), EIDER_OK);
    assert_int_equal(run_copy(m, dense, m + 64, dense, shape, 0), EIDER_OK);
    assert_int_equal(run_copy(m, dense, m + 63, dense, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m + 1, dense, m, dense, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m, transposed, m, dense, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m + 56, back, m, dense, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m + 56, back, m + 56, back, shape, 0), EIDER_OK);
    assert_int_equal(run_copy(m, even, m + 1, even, shape, 0), EIDER_OK);
    assert_int_equal(run_copy(m, half, m + 8, half, shape, 0), EIDER_OK);
    assert_int_equal(run_copy(m, half, m + 7, half, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m, zero, m, dense, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m + 512, dense, m, zero, shape, 0), EIDER_OVERLAP);
    assert_non_null(strstr(eider_error(), "overlaps itself"));
    assert_int_equal(run_copy(m + 512, dense, m, near, shape, 0), EIDER_OVERLAP);
    assert_int_equal(run_copy(m + 512, dense, m, half, shape, 1), EIDER_OK);
    map_free(m);
}

static void outputs_must_be_apart(void **state)
{
    (void)state;
    float *m = map_alloc(1024, 0);
    int64_t n = 64, rows[2] = {8, 8}, even[2] = {16, 2};
    eider_tensor args[3] = {TENSOR(m, EIDER_F32, n), TENSOR(m + 64, EIDER_F32, n),
                            TENSOR(m + 64, EIDER_F32, n)};
    memset(m, 0, 1024);
    struct map_request r = {.text = "p = x; q = x + 1", .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OVERLAP);
    assert_non_null(strstr(eider_error(), "output 'p' overlaps output 'q'"));
    float in[64] = {0};
    eider_tensor columns[3] = {{in, EIDER_F32, 2, rows, NULL},
                               {m, EIDER_F32, 2, rows, even},
                               {m + 1, EIDER_F32, 2, rows, even}};
    r.args = columns;
    map_once(&r);
    for (int i = 0; i < 128; i++) assert_true(m[i] == (float)(i % 2));
    map_free(m);
}

/* ---- Offsets ------------------------------------------------------------- */

static void offsets_beyond_32_bits_reach_their_elements(void **state)
{
    (void)state;
    size_t room = (size_t)9 << 30;
    char *far = mmap(NULL, room, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED) skip();
    int64_t shape[2] = {5, 3}, strides[2] = {INT64_C(1) << 29, 1}; /* 2 GiB apart */
    int64_t down[2] = {-(INT64_C(1) << 29), 1};
    for (int way = 0; way < 2; way++) {
        float *origin = (float *)(far + (way ? (size_t)8 << 30 : 0));
        for (int64_t i = 0; i < 5; i++)
            for (int64_t j = 0; j < 3; j++)
                origin[i * (way ? down : strides)[0] + j] = (float)(10 * i + j);
        float out[15];
        eider_tensor args[2] = {{origin, EIDER_F32, 2, shape, way ? down : strides},
                                {out, EIDER_F32, 2, shape, NULL}};
        struct map_request r = {.text = "out = x", .args = args};
        struct map_kernel k;
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        assert_int_equal(k.layout.index_bits, 64);
        assert_int_equal(map_run(&k, args), EIDER_OK);
        for (int i = 0; i < 15; i++) assert_true(out[i] == (float)(i / 3 * 10 + i % 3));
        map_release(&k);
        int64_t close[2] = {8, 1};
        args[0].strides = close;
        args[0].data = far;
        r.config = "index=32";
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        assert_int_equal(k.layout.index_bits, 32);
        args[0].strides = way ? down : strides;
        args[0].data = origin;
        assert_int_equal(map_run(&k, args), EIDER_NOT_PREPARED);
        assert_non_null(strstr(eider_error(), "64-bit"));
        map_release(&k);
        assert_int_equal(map_make(&r, &k), EIDER_CONFIG);
    }
    munmap(far, room);
}

static void index_width_follows_the_largest_byte_offset(void **state)
{
    (void)state;
    int64_t most = INT32_MAX / 4, more = most + 1;
    eider_tensor args[2] = {TENSOR(NULL, EIDER_F32, most), TENSOR(NULL, EIDER_F32, most)};
    assert_int_equal(layout_of("out = x", args).index_bits, 32);
    args[0].shape = args[1].shape = &more;
    assert_int_equal(layout_of("out = x", args).index_bits, 64);
    /* bf16 of the same count is half as far. */
    args[0].type = args[1].type = EIDER_BF16;
    assert_int_equal(layout_of("out = x", args).index_bits, 32);
}

/* Binds without running: addresses far apart that are never touched. */
static eider_status bind_only(struct map_kernel *k, const int64_t *shape, int rank,
                              const int64_t *in_strides)
{
    eider_tensor args[2] = {
        {(void *)(UINT64_C(1) << 44), EIDER_E4M3, rank, shape, in_strides},
        {(void *)(UINT64_C(1) << 45), EIDER_E4M3, rank, shape, NULL},
    };
    return eider_template_map.bind(&k->layout, &k->config, args, &k->bound);
}

static void a_32_bit_kernel_refuses_a_longer_line(void **state)
{
    (void)state;
    int64_t n = 16, most = INT32_MAX, more = INT64_C(1) << 31;
    eider_tensor args[2] = {TENSOR(NULL, EIDER_E4M3, n), TENSOR(NULL, EIDER_E4M3, n)};
    struct map_request r = {.text = "out = x", .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    assert_int_equal(bind_only(&k, &most, 1, NULL), EIDER_OK);
    assert_int_equal(bind_only(&k, &more, 1, NULL), EIDER_NOT_PREPARED);
    map_release(&k);
    r.config = "index=64";
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    assert_int_equal(bind_only(&k, &more, 1, NULL), EIDER_OK);
    map_release(&k);
}

static void check_division(const struct map_kernel *k, uint64_t extent, uint64_t n)
{
    /* Operands, count, flags, then extent, multiplier and shift of dimension 1. */
    uint64_t magic = k->bound.slots[5], shift = k->bound.slots[6];
    if (n > INT32_MAX) return;
    assert_int_equal(k->bound.slots[4], extent);
    assert_true(magic <= UINT32_MAX);
    uint64_t quotient = (2 * n * magic >> 32) >> shift;
    if (quotient != n / extent)
        fail_msg("%llu / %llu gave %llu", (unsigned long long)n, (unsigned long long)extent,
                 (unsigned long long)quotient);
}

static void rows_are_found_by_exact_division(void **state)
{
    (void)state;
    int64_t shape[2] = {4, 4}, strides[2] = {8, 1};
    eider_tensor in = {NULL, EIDER_E4M3, 2, shape, strides},
                 out = {NULL, EIDER_E4M3, 2, shape, NULL};
    eider_tensor args[2] = {in, out};
    struct map_request r = {.text = "out = x", .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    for (uint64_t extent = 2; extent < UINT64_C(1) << 29; extent += extent / 3 + 1) {
        shape[1] = (int64_t)extent;
        shape[0] = 2 + (int64_t)((INT32_MAX - 4 * extent) / (extent + 1) / 2);
        strides[0] = shape[1] + 1;
        assert_int_equal(bind_only(&k, shape, 2, strides), EIDER_OK);
        for (uint64_t q = 1; q * extent <= INT32_MAX; q += q / 5 + 1)
            for (uint64_t n = q * extent - 1; n <= q * extent + 1; n++)
                check_division(&k, extent, n);
        check_division(&k, extent, INT32_MAX);
        check_division(&k, extent, INT32_MAX / extent * extent);
        check_division(&k, extent, INT32_MAX / extent * extent - 1);
    }
    map_release(&k);
}

/* ---- Configs ------------------------------------------------------------- */

/* Every value of every parameter, the others at their defaults, and some combinations. */
static void every_config_gives_the_same_bits(void **state)
{
    (void)state;
    int64_t shape[2] = {37, 64}, row[1] = {64};
    struct view v[4];
    view_make(&v[0], EIDER_BF16, 2, shape, NULL, 0, 0, 0, 0);
    view_row_major(&v[1], EIDER_F32, 1, row);
    view_make(&v[2], EIDER_F32, 2, shape, NULL, 0, 0, 0, 0);
    view_row_major(&v[3], EIDER_F32, 2, shape);
    eider_tensor args[3] = {v[0].t, v[1].t, v[2].t};
    for (int64_t i = 0; i < 37 * 64; i++)
        map_put(EIDER_BF16, v[0].memory, i, (double)((i * 37) % 101) / 16 - 3);
    /* Which of several additions LLVM fuses with a multiplication depends on the code around. */
    struct map_request r = {.text = "out = tanh(a) * b + a / 3", .args = args, .no_contract = 1};
    map_once(&r);
    memcpy(v[3].memory, v[2].memory, v[2].bytes);
    const char *name, *values, *doc;
    for (size_t p = 0; eider_config_row(p, &name, &values, &doc); p++) {
        for (const char *at = values; *at;) {
            char config[64];
            int length = (int)strcspn(at, "|");
            snprintf(config, sizeof config, "%s=%.*s", name, length, at);
            at += length + (at[length] == '|');
            struct map_kernel k;
            r.config = config;
            memset(v[2].memory, 0, v[2].bytes);
            eider_status status = map_make(&r, &k);
            if (status == EIDER_CONFIG && strcmp(config, "packed=1") == 0) continue;
            if (status != EIDER_OK) fail_msg("%s: %s", config, eider_error());
            assert_int_equal(map_run(&k, args), EIDER_OK);
            map_release(&k);
            if (memcmp(v[3].memory, v[2].memory, v[2].bytes)) fail_msg("%s differs", config);
        }
    }
    free_views(v, 4);
}

static void configs_that_cannot_work_are_named(void **state)
{
    (void)state;
    int64_t shape[2] = {8, 6}, strides[2] = {16, 1};
    eider_tensor t = {NULL, EIDER_F32, 2, shape, strides}, args[2] = {t, t};
    struct map_request r = {.text = "out = x", .args = args, .config = "vec=4"};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "vec=4"));
    r.config = "vec=2";
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    map_release(&k);
    r.target = (struct eider_target){90, 0};
    r.config = "block=1";
    assert_int_equal(map_make(&r, &k), EIDER_CONFIG);
    int64_t n = 1 << 20;
    eider_tensor line = TENSOR(NULL, EIDER_F64, n), lines[2] = {line, line};
    r.args = lines;
    r.config = "vec=64,unroll=8,block=1024";
    assert_int_equal(map_make(&r, &k), EIDER_CONFIG);
    assert_non_null(strstr(eider_error(), "words in flight"));
}

static void what_the_caller_sets_stays_and_the_rest_follows(void **state)
{
    (void)state;
    int64_t n = 1 << 24;
    eider_tensor half = TENSOR(NULL, EIDER_BF16, n), args[3] = {half, half, half};
    static const struct {
        const char *set, *all;
        int sm;
        uint64_t l2_bytes;
    } rows[] = {
        {"", "vec=4,unroll=2,block=128,tiles=1,load=ca,store=wb,index=32,packed=0", 90, 0},
        {"vec=2", "vec=2,unroll=2,block=128,tiles=1,load=ca,store=wb,index=32,packed=0", 90, 0},
        {"block=1024,load=cs",
         "vec=4,unroll=2,block=1024,tiles=1,load=cs,store=wb,index=32,packed=0", 90, 0},
        {"", "vec=4,unroll=2,block=128,tiles=1,load=ca,store=wb,index=32,packed=0", 90, 50 << 20},
        {"", "vec=16,unroll=2,block=1,tiles=256,load=ca,store=wb,index=32,packed=0", 0, 0},
        {"block=32", "vec=16,unroll=2,block=32,tiles=16,load=ca,store=wb,index=32,packed=0", 0, 0},
        {"load=nc", "vec=16,unroll=2,block=1,tiles=256,load=nc,store=cs,index=32,packed=0", 0,
         50 << 20},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct map_request r = {.text = A_PLUS_2B,
                                .args = args,
                                .config = rows[i].set,
                                .target = {rows[i].sm, 0},
                                .l2_bytes = rows[i].l2_bytes};
        struct map_kernel k;
        char text[EIDER_CONFIG_TEXT_BYTES];
        assert_int_equal(map_make(&r, &k), EIDER_OK);
        eider_config_print(&k.config, text);
        assert_string_equal(text, rows[i].all);
        map_release(&k);
    }
}

static void bytes_count_what_repeats_once(void **state)
{
    (void)state;
    int64_t shape[2] = {16, 32}, row[1] = {32};
    uint64_t bytes;
    eider_tensor args[3] = {{NULL, EIDER_BF16, 2, shape, NULL},
                            {NULL, EIDER_F32, 1, row, NULL},
                            {NULL, EIDER_F32, 2, shape, NULL}};
    struct map_request r = {.text = A_PLUS_2B, .args = args};
    struct map_kernel k;
    assert_int_equal(map_make(&r, &k), EIDER_OK);
    assert_int_equal(eider_template_map.bytes(&k.layout, args, &bytes), EIDER_OK);
    assert_int_equal(bytes, 16 * 32 * 2 + 32 * 4 + 16 * 32 * 4);
    map_release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_around_tiles_and_blocks),
        cmocka_unit_test(every_misalignment_of_every_size),
        cmocka_unit_test(data_between_elements_is_refused),
        cmocka_unit_test(every_pair_of_float_types),
        cmocka_unit_test(integers_and_bools_keep_their_values),
        cmocka_unit_test(scalars_are_passed_by_value),
        cmocka_unit_test(random_layouts_match_a_loop),
        cmocka_unit_test(dense_tensors_become_one_line),
        cmocka_unit_test(layout_tells_what_repeats_and_what_is_strided),
        cmocka_unit_test(description_names_every_ingredient),
        cmocka_unit_test(empty_tensors_launch_nothing),
        cmocka_unit_test(one_kernel_serves_every_shape_of_its_layout),
        cmocka_unit_test(other_layouts_are_not_prepared),
        cmocka_unit_test(shapes_that_do_not_broadcast_are_refused),
        cmocka_unit_test(declared_types_are_checked),
        cmocka_unit_test(any_layout_accepts_every_stride),
        cmocka_unit_test(in_place_gives_the_same_numbers),
        cmocka_unit_test(overlap_is_refused_and_interleaving_is_not),
        cmocka_unit_test(outputs_must_be_apart),
        cmocka_unit_test(offsets_beyond_32_bits_reach_their_elements),
        cmocka_unit_test(index_width_follows_the_largest_byte_offset),
        cmocka_unit_test(a_32_bit_kernel_refuses_a_longer_line),
        cmocka_unit_test(rows_are_found_by_exact_division),
        cmocka_unit_test(every_config_gives_the_same_bits),
        cmocka_unit_test(configs_that_cannot_work_are_named),
        cmocka_unit_test(what_the_caller_sets_stays_and_the_rest_follows),
        cmocka_unit_test(bytes_count_what_repeats_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
