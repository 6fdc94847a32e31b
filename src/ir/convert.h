/* convert.h -- storage formats to f32 and back, in integer arithmetic.
 *
 * Invariant: works on packs of any width, on every target, with subnormals flushed or
 * not; one rounding, to nearest even.  Machines with instructions for a format use those.
 */
#ifndef EIDER_IR_CONVERT_H
#define EIDER_IR_CONVERT_H

#include "machine.h"

/* f32 from the bits of f16, bf16, e4m3 or e5m2, zero-extended in a pack of i32. */
LLVMValueRef eider_convert_widen(struct eider_emit *e, eider_dtype type, LLVMValueRef bits);

/* The bits of f16, bf16, e4m3 or e5m2, in a pack of i32, nearest to a pack of f32.
 * fp8 beyond the largest finite value: that value with `saturate`, else infinity (e5m2)
 * or NaN (e4m3).  NaN stays NaN. */
LLVMValueRef eider_convert_narrow(struct eider_emit *e, eider_dtype type, int saturate,
                                  LLVMValueRef value);

/* f64 to f32, rounded to odd: rounding the result to a format of at most 22 bits of
 * precision gives what one rounding from f64 would. */
LLVMValueRef eider_convert_odd(struct eider_emit *e, LLVMValueRef value);

#endif
