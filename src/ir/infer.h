/* infer.h -- the type of every node, once the operands' types are known.
 *
 * Compute types are f32, f64, i32, i64 and bool: 16-bit and 8-bit floats are widened to
 * f32 when loaded.  A literal takes the type of what it meets.  With `wide`
 * (math=exact) f32 arithmetic is done in f64, and rounding happens only at casts and
 * outputs.
 */
#ifndef EIDER_IR_INFER_H
#define EIDER_IR_INFER_H

#include "graph.h"

enum eider_vtype { EIDER_V_NONE, EIDER_V_BOOL, EIDER_V_I32, EIDER_V_I64, EIDER_V_F32, EIDER_V_F64 };

/* The compute type that a storage type loads as (f32 for bf16 and so on). */
enum eider_vtype eider_vtype_of(eider_dtype type);

/* Fills types[n_cells] for an expanded graph.  `dtypes` has one storage type per
 * operand.  A literal, and what is computed from literals alone, gets the widest type that
 * a user computes in; lower.c converts for the others.
 * Fails with EIDER_TYPE, naming the operation and its operands' types. */
eider_status eider_infer(const struct eider_graph *g, const eider_dtype *dtypes, int wide,
                         uint8_t *types);

#endif
