/* row_fault.c -- the IR of a row kernel that records places outside of the row.
 *
 * Invariant: a launch leaves the same record whatever the order of its threads: the least row and
 * place, by an atomic maximum of complements.  The length goes with it because all threads of a
 * launch have the same.  Nothing is stored where all places are inside.
 */
#include "ops.h"
#include "row.h"

#define WORDS (sizeof(struct eider_fault) / sizeof(uint64_t))

_Static_assert(WORDS == 2, "first and length");

void eider_row_fault_begin(struct eider_row_build *b)
{
    uint32_t n = b->layout->n_operands + 1;
    b->faults = eider_emit_words(b->e, EIDER_FAULTS, n * (uint32_t)WORDS);
}

/* The first input of which `node` is computed; the number of operands where there is none. */
static uint32_t source_of(struct eider_row_build *b, eider_node node)
{
    const struct eider_graph *g = b->program->graph;
    uint8_t *reached = eider_row_alloc(b, g->n_cells, 1);
    uint32_t first = b->layout->n_operands;
    if (!reached) return first;
    reached[node] = 1;
    for (eider_node id = node; id > 0; id--) {
        const struct eider_cell *cell = &g->cells[id];
        if (!reached[id]) continue;
        if (cell->op == EIDER_OP_input && cell->payload < first) first = (uint32_t)cell->payload;
        for (uint32_t k = 0; k < cell->n_args; k++) reached[eider_graph_args(g, id)[k]] = 1;
    }
    return first;
}

static LLVMValueRef limited(struct eider_row_build *b, const char *intrinsic, LLVMValueRef v,
                            int64_t limit)
{
    LLVMTypeRef type = LLVMTypeOf(v);
    LLVMValueRef args[2] = {v, eider_emit_int(type, (uint64_t)limit)};
    return eider_emit_intrinsic(b->e, intrinsic, &type, 1, args, 2);
}

/* As eider_fault.first says, of each that is bad, and 0 of the others; the largest of a pack. */
static LLVMValueRef first_of(struct eider_row_build *b, int width, LLVMValueRef place,
                             LLVMValueRef bad)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMTypeRef type = LLVMTypeOf(place);
    LLVMValueRef row = limited(b, "llvm.umin", b->row_number, UINT32_MAX - 1);
    row = LLVMBuildShl(ir, row, eider_row_number(b->i64, 32), "");
    place = limited(b, "llvm.smax", limited(b, "llvm.smin", place, INT32_MAX), INT32_MIN);
    place = LLVMBuildAnd(ir, place, eider_emit_int(type, UINT32_MAX), "");
    LLVMValueRef both = LLVMBuildOr(ir, eider_row_spread(b, row, width), place, "");
    both = LLVMBuildSelect(ir, bad, LLVMBuildNot(ir, both, ""), LLVMConstNull(type), "");
    return width == 1 ? both
                      : eider_emit_intrinsic(b->e, "llvm.vector.reduce.umax", &type, 1, &both, 1);
}

static LLVMValueRef word(struct eider_row_build *b, uint32_t i)
{
    LLVMValueRef at = eider_row_number(b->i32, i);
    return LLVMBuildInBoundsGEP2(b->e->builder, b->i64, b->faults, &at, 1, "");
}

static void begin_where(struct eider_row_build *b, LLVMValueRef condition, LLVMBasicBlockRef after)
{
    LLVMBasicBlockRef then = eider_row_block(b, "outside");
    LLVMBuildCondBr(b->e->builder, condition, then, after);
    LLVMPositionBuilderAtEnd(b->e->builder, then);
}

void eider_row_fault(struct eider_row_build *b, const struct eider_row_context *c, eider_node id,
                     LLVMValueRef place, LLVMValueRef inside)
{
    LLVMBuilderRef ir = b->e->builder;
    if (b->e->status != EIDER_OK) return;
    uint32_t at = source_of(b, eider_graph_args(b->program->graph, id)[1]) * (uint32_t)WORDS;
    LLVMValueRef bad = LLVMBuildNot(ir, inside, "");
    if (c->valid) bad = LLVMBuildAnd(ir, bad, c->valid, "");
    LLVMValueRef first = first_of(b, c->width, place, bad);
    LLVMBasicBlockRef after = eider_row_block(b, "places");
    LLVMValueRef none = LLVMConstNull(b->i64);
    begin_where(b, LLVMBuildICmp(ir, LLVMIntNE, first, none, ""), after);
    LLVMValueRef old = LLVMBuildAtomicRMW(ir, LLVMAtomicRMWBinOpUMax, word(b, at), first,
                                          LLVMAtomicOrderingMonotonic, 0);
    begin_where(b, LLVMBuildICmp(ir, LLVMIntUGT, first, old, ""), after);
    LLVMBuildStore(ir, LLVMBuildZExt(ir, b->cols, b->i64, ""), word(b, at + 1));
    LLVMBuildBr(ir, after);
    LLVMPositionBuilderAtEnd(ir, after);
}
