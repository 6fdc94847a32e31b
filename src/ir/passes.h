/* passes.h -- graph to graph.
 *
 * Every pass takes a graph, leaves it alone and makes a new one with the same operands.
 * Order in a compilation: expand (activations.h), reduce, simplify, mathmode, simplify, infer,
 * lower.
 */
#ifndef EIDER_IR_PASSES_H
#define EIDER_IR_PASSES_H

#include "graph.h"

/* Local identities that hold for every input, NaN, infinities and signed zeros included, in
 * f32, f64 and integers alike.  Operations on literals alone are done in double, which is
 * what math=exact does and never less accurate than f32.  Of types it knows what the operands
 * declare: it does more where every operand has a type. */
eider_status eider_simplify(const struct eider_graph *from, struct eider_graph **out);

/* Replaces reductions that others make up: mean and logsumexp. */
eider_status eider_reduce(const struct eider_graph *from, struct eider_graph **out);

/* Replaces transcendental primitives by machine forms: `math` is APPROX, FAST or EXACT
 * (not AUTO).  EXACT returns a copy.  Applies only where the operand computes in f32:
 * `dtypes` as for eider_infer. */
eider_status eider_mathmode(const struct eider_graph *from, eider_math math,
                            const eider_dtype *dtypes, struct eider_graph **out);

/* The backward program, simplified; see eider_program_grad.  Its results are in the order of
 * `wrt` (NULL: every input that is not declared to be of integers or bool).  Fails with
 * EIDER_BAD_ARG for a name that cannot be differentiated by and for names that clash, with
 * EIDER_UNSUPPORTED where pick would scatter (scatter.h).
 *
 * What has a kink has the slope of one side there: max(a, b) and min(a, b) that of a, abs and
 * copysign 0.  Comparisons and roundings have slope 0, casts to floats slope 1.  A cotangent
 * that has become 0 stays 0, whatever it is multiplied by: no slope that vanishes at infinity
 * and no branch that is not taken makes it NaN. */
eider_status eider_grad(const struct eider_graph *from, const char *const *wrt, size_t n_wrt,
                        int with_forward, struct eider_graph **out);

/* The two parts of eider_program_split, either NULL where it has no outputs. */
eider_status eider_split(const struct eider_graph *from, struct eider_graph **rows,
                         struct eider_graph **columns);

/* Evaluates in double: `in` one value per input and scalar, `out` one per output.
 * cast rounds as the storage type would (from double, once).  Works on calls, too. */
eider_status eider_eval(const struct eider_graph *g, const double *in, double *out);

/* The same for rows, in an expanded graph: operands as eider_program_eval_rows takes them. */
eider_status eider_eval_rows(const struct eider_graph *g, int64_t n_rows, int64_t n_cols,
                             const struct eider_doubles *operands);

/* Rounds a double to a storage type and back: nearest even; `saturate` for fp8 overflow. */
double eider_round_to(double value, eider_dtype type, int saturate);

extern const char *const eider_math_names[EIDER_MATH_EXACT + 1];

/* auto becomes approx where every output has 16 bits or fewer and fast where none has; otherwise
 * it stays, and each exp is what the outputs that depend on it allow.  Others are unchanged. */
eider_math eider_math_resolve(const struct eider_graph *g, const eider_dtype *dtypes,
                              eider_math math);

#endif
