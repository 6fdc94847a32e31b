/* lower.h -- a graph to LLVM values at the builder's position.
 *
 * Invariant: one evaluation of the graph for one pack; operands in, results out, no
 * memory access and no control flow that the caller could see.
 */
#ifndef EIDER_IR_LOWER_H
#define EIDER_IR_LOWER_H

#include "machine.h"

/* A graph ready to be lowered: expanded, rewritten for the math mode, typed. */
struct eider_lowered {
    struct eider_graph *graph;              /* owned */
    uint8_t *types;                         /* enum eider_vtype per node; owned */
    eider_math math;                        /* resolved */
    eider_dtype dtypes[EIDER_OPERANDS_MAX]; /* storage type per operand */
};

/* Runs the passes of passes.h.  `dtypes` has one storage type per operand. */
eider_status eider_lower_plan(const struct eider_graph *program, const eider_dtype *dtypes,
                              eider_math math, struct eider_lowered *out);
void eider_lower_release(struct eider_lowered *l);

/* `in[i]` is the pack of operand i (inputs and scalars); `out[i]` receives the pack of
 * operand i (outputs) in the compute type that machine->store expects for its storage
 * type: f32 or f64 for floats (store takes both), i32, i64, bool.  Failures stick in e. */
void eider_lower(struct eider_emit *e, const struct eider_lowered *l, const LLVMValueRef *in,
                 LLVMValueRef *out);

/* Lets an addition or multiplication of floats round with another one, once for both, if the
 * kernel's numerics allow it.  Returns `v`, which may be no instruction. */
LLVMValueRef eider_lower_contract(const struct eider_emit *e, LLVMValueRef v);

/* ---- Node by node, for templates that do more around the elements -------- */

struct eider_lowering {
    struct eider_emit *e;
    const struct eider_lowered *l;
    const LLVMValueRef *in; /* as for eider_lower */
    LLVMValueRef *values;   /* of the nodes done so far */
    uint32_t *uses;         /* of each live node, outputs included; 0: not needed */
};

/* Sets e, l and uses; `in` and `values` are the caller's.  Fails with EIDER_OOM. */
eider_status eider_lowering_begin(struct eider_lowering *w, struct eider_emit *e,
                                  const struct eider_lowered *l);
void eider_lowering_end(struct eider_lowering *w);

/* The value of a node that is no operation over rows; those of its operands are in values. */
LLVMValueRef eider_lowering_node(const struct eider_lowering *w, eider_node id);
/* The value of a node, which is there, in another type. */
LLVMValueRef eider_lowering_as(const struct eider_lowering *w, eider_node id,
                               enum eider_vtype type);
/* The value of output `i` as machine->store expects it. */
LLVMValueRef eider_lowering_output(const struct eider_lowering *w, uint32_t i);

#endif
