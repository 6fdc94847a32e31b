/* support_f32.h -- programs evaluated in single precision, operation by operation.
 *
 * What a kernel without approximations computes, so that overflow, underflow and NaN show
 * where they would on a device.  Not a reference for values: that is eider_eval.
 */
#ifndef EIDER_TESTS_SUPPORT_F32_H
#define EIDER_TESTS_SUPPORT_F32_H

#include "passes.h"

/* As eider_eval, each operation rounded to f32; `flush` also makes subnormal results 0. */
eider_status support_eval_f32(const struct eider_graph *g, int flush, const float *in, float *out);

#endif
