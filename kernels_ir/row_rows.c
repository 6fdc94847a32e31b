/* row_rows.c -- the IR of which rows a block has, and where they are.
 *
 * Invariant: every thread of a block takes part in every exchange and barrier, whether its row
 * exists or not: rows that do not are read as the last one, and not stored.  Where there is no
 * barrier, threads of rows that do not exist may end at once instead.
 */
#include "row.h"

#include <string.h>

/* ---- Where a row is ------------------------------------------------------------------- */

/* The row's first vector begins `shift` elements before the row. */
static void shift_row(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    uint32_t i = (uint32_t)b->leader;
    int size = (int)eider_dtype_size(b->layout->operands[i].type);
    int mask = eider_row_access(b->layout, i, b->c.vec) - 1;
    LLVMValueRef at = LLVMBuildPtrToInt(ir, b->base[i], b->i64, "");
    at = LLVMBuildLShr(ir, at, eider_row_number(b->i64, __builtin_ctz((unsigned)size)), "");
    at = LLVMBuildTrunc(ir, at, b->i32, "");
    b->shift = LLVMBuildAnd(ir, at, eider_row_number(b->i32, mask), "");
    b->first = LLVMBuildSub(ir, b->first, b->shift, "");
    b->end = LLVMBuildAdd(ir, b->cols, b->shift, "");
}

/* Sets where the thread's first place is in each operand. */
static void locate_first(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef first = b->shift ? LLVMBuildSExt(ir, b->first, b->i64, "")
                                  : LLVMBuildZExt(ir, b->first, b->i64, "");
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        int64_t size = (int64_t)eider_dtype_size(b->layout->operands[i].type);
        if (b->layout->operands[i].kind == EIDER_SCALAR) continue;
        LLVMValueRef offset = LLVMBuildMul(ir, first, eider_row_number(b->i64, size), "");
        b->mine[i] = LLVMBuildGEP2(ir, b->i8, b->base[i], &offset, 1, "");
    }
}

void eider_row_locate(struct eider_row_build *b, LLVMValueRef row)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef at[EIDER_RANK_MAX];
    int last = b->layout->rank - 1;
    b->row_number = row;
    for (int d = last - 1; d > 0; d--) {
        LLVMValueRef extent = eider_row_param(b, b->slots.extent[d]);
        at[d] = LLVMBuildURem(ir, row, extent, "");
        row = LLVMBuildUDiv(ir, row, extent, "");
    }
    at[0] = row;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (b->layout->operands[i].kind == EIDER_SCALAR) continue;
        b->base[i] = eider_row_param(b, i);
        for (int d = 0; d < last; d++) {
            if (b->slots.stride[i][d] == EIDER_MAP_NO_SLOT) continue;
            LLVMValueRef bytes =
                LLVMBuildMul(ir, at[d], eider_row_param(b, b->slots.stride[i][d]), "");
            b->base[i] = LLVMBuildGEP2(ir, b->i8, b->base[i], &bytes, 1, "");
        }
    }
    if (b->leader >= 0) shift_row(b);
    locate_first(b);
}

void eider_row_swap(struct eider_row_build *b, struct eider_row_position *p)
{
    struct eider_row_position old = {.first = b->first,
                                     .shift = b->shift,
                                     .end = b->end,
                                     .row_number = b->row_number,
                                     .row_exists = b->row_exists};
    memcpy(old.base, b->base, sizeof old.base);
    memcpy(old.mine, b->mine, sizeof old.mine);
    memcpy(b->base, p->base, sizeof p->base);
    memcpy(b->mine, p->mine, sizeof p->mine);
    b->first = p->first;
    b->shift = p->shift;
    b->end = p->end;
    b->row_number = p->row_number;
    b->row_exists = p->row_exists;
    *p = old;
}

void eider_row_barrier(struct eider_row_build *b)
{
    if (!b->rank) {
        b->machine->barrier(b->e);
        return;
    }
    eider_emit_cluster_arrive(b->e, 0);
    eider_emit_cluster_wait(b->e);
}

/* ---- The rows of a block ------------------------------------------------------------- */

void eider_row_number_threads(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef thread = b->machine->thread_index(b->e);
    b->thread = LLVMBuildAnd(ir, thread, eider_row_number(b->i32, b->c.row - 1), "");
    b->own = b->machine->block_index(b->e);
    if (b->c.split > 1) {
        eider_row_number_parts(b);
        LLVMValueRef before = LLVMBuildMul(ir, b->part, eider_row_number(b->i32, b->c.row), "");
        b->thread = LLVMBuildAdd(ir, b->thread, before, "");
    }
    if (b->c.cluster == 1) return;
    b->own = LLVMBuildUDiv(ir, b->own, eider_row_number(b->i64, b->c.cluster), "");
    b->rank = eider_emit_cluster_rank(b->e);
    LLVMValueRef before = LLVMBuildMul(ir, b->rank, eider_row_number(b->i32, b->c.row), "");
    b->thread = LLVMBuildAdd(ir, b->thread, before, "");
    /* The first reduction waits for it. */
    if (b->plan.n_stages) eider_row_mbarriers_open(b);
}

/* Whether the threads of a row that does not exist need not be there for others: all of a row are
 * in one warp, where exchanges wait for threads that have not ended (PTX ISA, shfl.sync), and there
 * is no barrier. */
static int may_leave(const struct eider_row_build *b)
{
    int meets = b->rank || b->part || b->c.resident || b->rows_memory || eider_row_may_wait(b);
    return b->machine->leave_unless && b->c.row <= EIDER_ROW_WARP && !meets;
}

/* Goes to the row that this thread has in a part of the rows: as many as a block has at once. */
static void go_to(struct eider_row_build *b, LLVMValueRef part)
{
    LLVMBuilderRef ir = b->e->builder;
    int per_block = b->c.block / b->c.row;
    LLVMValueRef row = part;
    b->shift = NULL;
    b->end = b->cols;
    b->first = LLVMBuildMul(ir, b->thread, eider_row_number(b->i32, b->c.vec), "");
    if (per_block > 1) {
        LLVMValueRef rows = eider_row_param(b, b->slots.rows),
                     thread = b->machine->thread_index(b->e);
        LLVMValueRef in_block = LLVMBuildUDiv(ir, thread, eider_row_number(b->i32, b->c.row), "");
        row = LLVMBuildMul(ir, row, eider_row_number(b->i64, per_block), "");
        row = LLVMBuildAdd(ir, row, LLVMBuildZExt(ir, in_block, b->i64, ""), "");
        b->row_exists = LLVMBuildICmp(ir, LLVMIntULT, row, rows, "");
        if (may_leave(b)) {
            b->machine->leave_unless(b->e, b->row_exists);
            b->row_exists = NULL;
        } else {
            LLVMValueRef end = LLVMBuildSub(ir, rows, eider_row_number(b->i64, 1), "");
            row = LLVMBuildSelect(ir, b->row_exists, row, end, "");
        }
    }
    eider_row_locate(b, row);
}

static uint64_t columns_of(const struct eider_row_build *b)
{
    uint64_t which = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        if (eider_row_is_column(b->layout, &b->c, i)) which |= (uint64_t)1 << i;
    return which & eider_row_inputs(b, b->plan.live);
}

/* Threads of a row may still read what they were left when the next row's leave theirs, where no
 * other reduction is in between. */
static void wait_for_slots(struct eider_row_build *b)
{
    int has_slots = b->rank || b->c.row > EIDER_ROW_WARP;
    if (b->plan.n_stages == 1 && has_slots) eider_row_barrier(b);
}

/* Every so many parts of the rows one, from the block's own on. */
static void go_through_parts(struct eider_row_build *b, struct eider_row_vector *kept,
                             struct eider_row_vector *rest)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t per_block = b->c.block / b->c.row;
    LLVMValueRef rows = eider_row_param(b, b->slots.rows),
                 each = eider_row_param(b, b->slots.in_flight);
    LLVMValueRef more = LLVMBuildAdd(ir, rows, eider_row_number(b->i64, per_block - 1), "");
    LLVMValueRef all = LLVMBuildUDiv(ir, more, eider_row_number(b->i64, per_block), "");
    struct eider_row_loop l;
    if (b->rank && b->plan.n_stages) eider_emit_cluster_wait(b->e);
    b->peers_begun = 1;
    eider_row_loop_begin(b, &l, NULL, 0, b->own, NULL);
    LLVMValueRef next = LLVMBuildAdd(ir, l.at, each, "");
    b->more = LLVMBuildICmp(ir, LLVMIntULT, next, all, "");
    go_to(b, LLVMBuildSelect(ir, b->more, next, l.at, ""));
    struct eider_row_position *place = eider_row_alloc(b, 1, sizeof *place);
    if (b->e->status != EIDER_OK) return;
    eider_row_swap(b, place);
    go_to(b, l.at);
    eider_row_do(b, kept, rest, place);
    wait_for_slots(b);
    if (b->e->status == EIDER_OK) eider_row_loop_end(b, &l, next, b->more);
}

void eider_row_do_all(struct eider_row_build *b)
{
    struct eider_row_vector *kept = eider_row_vectors(b, b->c.keep);
    struct eider_row_vector *rest = eider_row_vectors(b, b->c.unroll);
    b->ahead = b->c.ahead && !b->part ? eider_row_vectors(b, b->c.unroll) : NULL;
    if (b->e->status != EIDER_OK) return;
    b->loaded = eider_row_inputs(b, b->plan.live) & ~eider_row_shared_inputs(b);
    b->columns = b->rows_memory && b->leader < 0 ? columns_of(b) : 0;
    go_to(b, b->own);
    eider_row_fill(b, rest);
    if (b->part)
        eider_row_do_split(b, rest);
    else if (b->c.resident)
        go_through_parts(b, kept, rest);
    else
        eider_row_do(b, kept, rest, NULL);
}
