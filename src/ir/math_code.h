/* math_code.h -- transcendental functions as IR: what the machines' `math` member is made of.
 *
 * Invariants: straight-line code, no calls except to SLEEF on the CPU; NaN gives NaN and
 * the limits at infinities, zeros and overflow are C99's.  docs/NUMERICS.md has the
 * accuracy of each mode.
 * Not here: identities between functions (mathmode.c), what LLVM does by itself (lower.c).
 */
#ifndef EIDER_IR_MATH_CODE_H
#define EIDER_IR_MATH_CODE_H

#include "machine.h"

/* machine->math of each target: `op` of f32 or f64 packs, or a machine form (EIDER_OP_m_*)
 * of f32 packs.  Besides the transcendentals these are div, rcp, sqrt, rsqrt, copysign, fmax
 * and fmin.  On a GPU, f32 packs are for the modes fast and approx; exact computes in f64. */
LLVMValueRef eider_math_nvptx(struct eider_emit *e, enum eider_op op, enum eider_vtype type,
                              const LLVMValueRef *args);
LLVMValueRef eider_math_cpu(struct eider_emit *e, enum eider_op op, enum eider_vtype type,
                            const LLVMValueRef *args);

#endif
