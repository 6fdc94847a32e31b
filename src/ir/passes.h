/* passes.h -- graph to graph.
 *
 * Every pass takes a graph, leaves it alone and makes a new one with the same operands.
 * Order in a compilation: expand (activations.h), simplify, mathmode, simplify, infer,
 * lower.
 */
#ifndef EIDER_IR_PASSES_H
#define EIDER_IR_PASSES_H

#include "graph.h"

/* Local identities that hold for every input, NaN, infinities and signed zeros
 * included, in f32, f64 and integers alike; constant folding in double where the result
 * is exact in f32. */
eider_status eider_simplify(const struct eider_graph *from, struct eider_graph **out);

/* Replaces transcendental primitives by machine forms: `math` is APPROX, FAST or EXACT
 * (not AUTO).  EXACT returns a copy.  Applies only where the operand computes in f32:
 * `dtypes` as for eider_infer. */
eider_status eider_mathmode(const struct eider_graph *from, eider_math math,
                            const eider_dtype *dtypes, struct eider_graph **out);

/* The backward program; see eider_program_grad. */
eider_status eider_grad(const struct eider_graph *from, const char *const *wrt, size_t n_wrt,
                        int with_forward, struct eider_graph **out);

/* Evaluates in double: `in` one value per input and scalar, `out` one per output.
 * cast rounds as the storage type would (from double, once).  Works on calls, too. */
eider_status eider_eval(const struct eider_graph *g, const double *in, double *out);

/* Rounds a double to a storage type and back: nearest even; `saturate` for fp8 overflow. */
double eider_round_to(double value, eider_dtype type, int saturate);

/* approx where every output has 16 bits or fewer, else fast; others unchanged. */
eider_math eider_math_resolve(const struct eider_graph *g, const eider_dtype *dtypes,
                              eider_math math);

#endif
