/* row_flow.c -- the IR of branches and of loops that carry totals.
 *
 * Invariant: after a loop, or a branch, the builder is where all ways meet, and totals have the
 * values that they have there.  What a loop does belongs to its callers.
 */
#include "row.h"

/* The members of totals that a loop carries: at most EIDER_ROW_CARRIED_MAX. */
static int list_carried(struct eider_row_total *totals, int n_totals, LLVMValueRef **out)
{
    int n = 0;
    for (int i = 0; i < n_totals; i++) {
        struct eider_row_total *t = &totals[i];
        LLVMValueRef *members[EIDER_ROW_TOTAL_MEMBERS] = {&t->value, &t->place, &t->lost,
                                                          &t->reference};
        for (int k = 0; k < EIDER_ROW_TOTAL_MEMBERS; k++)
            if (*members[k]) out[n++] = members[k];
    }
    return n;
}

void eider_row_loop_begin(struct eider_row_build *b, struct eider_row_loop *l,
                          struct eider_row_total *totals, int n_totals, LLVMValueRef first,
                          LLVMValueRef any)
{
    LLVMBuilderRef ir = b->e->builder;
    l->n = list_carried(totals, n_totals, l->carried);
    l->entry = LLVMGetInsertBlock(ir);
    l->body = eider_row_block(b, "loop");
    l->after = eider_row_block(b, "looped");
    l->first = first;
    l->may_be_none = any != NULL;
    if (any)
        LLVMBuildCondBr(ir, any, l->body, l->after);
    else
        LLVMBuildBr(ir, l->body);
    LLVMPositionBuilderAtEnd(ir, l->body);
    l->at = LLVMBuildPhi(ir, LLVMTypeOf(first), "");
    for (int i = 0; i < l->n; i++) {
        l->before[i] = *l->carried[i];
        *l->carried[i] = l->phis[i] = LLVMBuildPhi(ir, LLVMTypeOf(l->before[i]), "");
    }
}

void eider_row_loop_end(struct eider_row_build *b, struct eider_row_loop *l, LLVMValueRef next,
                        LLVMValueRef again)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMBasicBlockRef from[2] = {l->entry, LLVMGetInsertBlock(ir)};
    LLVMValueRef places[2] = {l->first, next};
    eider_emit_keep_loop(b->e, LLVMBuildCondBr(ir, again, l->body, l->after));
    LLVMAddIncoming(l->at, places, from, 2);
    LLVMPositionBuilderAtEnd(ir, l->after);
    for (int i = 0; i < l->n; i++) {
        LLVMValueRef ends[2] = {l->before[i], *l->carried[i]};
        LLVMAddIncoming(l->phis[i], ends, from, 2);
        if (!l->may_be_none) continue;
        *l->carried[i] = LLVMBuildPhi(ir, LLVMTypeOf(ends[1]), "");
        LLVMAddIncoming(*l->carried[i], ends, from, 2);
    }
}

LLVMBasicBlockRef eider_row_where(struct eider_row_build *b, LLVMValueRef condition)
{
    LLVMBasicBlockRef then = eider_row_block(b, "where"), after = eider_row_block(b, "after");
    LLVMBuildCondBr(b->e->builder, condition, then, after);
    LLVMPositionBuilderAtEnd(b->e->builder, then);
    return after;
}

void eider_row_end_where(struct eider_row_build *b, LLVMBasicBlockRef after)
{
    LLVMBuildBr(b->e->builder, after);
    LLVMPositionBuilderAtEnd(b->e->builder, after);
}
