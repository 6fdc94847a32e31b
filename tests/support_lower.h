/* support_lower.h -- a lowered program as a loop over arrays of its compute types, for tests.
 *
 * No conversions, no templates: operand i is an array of what its storage type computes in
 * (float for bf16, uint8_t for bool).
 */
#ifndef EIDER_TESTS_SUPPORT_LOWER_H
#define EIDER_TESTS_SUPPORT_LOWER_H

#include "codegen.h"
#include "lower.h"

struct lowered_options {
    int on_gpu;   /* NVPTX; else the host */
    int gpu_math; /* host: the GPU's math, with IR for its instructions; width 1 */
    int width;    /* host: 0 is the machine's */
    int ftz, contract;
};

/* Code that runs here. */
struct lowered_code {
    struct eider_cpu_image *image;
    eider_cpu_block_entry run;
    int width;
};

/* Plans `text` with one storage type per operand, "bf16 f32 bool". */
eider_status lowered_plan(const char *text, const char *types, eider_math math,
                          struct eider_lowered *out);
/* A program of one operation, "out = op(a, b, c)", every operand of `type`, without passes. */
eider_status lowered_operation(enum eider_op op, uint32_t n_args, eider_dtype type, eider_math math,
                               struct eider_lowered *out);

eider_status lowered_build(const struct eider_lowered *l, const struct lowered_options *options,
                           struct lowered_code *out);
/* Runs over n elements, a multiple of the width; arrays[i] is that of operand i. */
void lowered_run(const struct lowered_code *code, void *const *arrays, size_t n);
void lowered_release(struct lowered_code *code);

/* PTX for sm_80; the caller frees it with eider_blob_release. */
eider_status lowered_ptx(const struct eider_lowered *l, const struct lowered_options *options,
                         struct eider_blob *out);

/* Distance from `want` in units of the last place of `want` in f32 or f64.  0 for equal
 * classes where there is no distance: both NaN, the same infinity, zeros of one sign;
 * infinite where the classes differ. */
double lowered_ulps(double got, long double want, int is_double);

/* How often `word` is in `text`. */
int lowered_count(const char *text, const char *word);

#endif
