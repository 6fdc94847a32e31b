/* row_ahead.c -- the IR of loads of what all rows share, such as weights, ahead of their use.
 *
 * They come from the L2 cache, every time, and a load does not move above a store or a barrier.  So
 * those of the next `unroll` vectors are made before the vectors before them are done, and the
 * first ones of a pass while the threads of a row wait for one another's totals.
 *
 * Not what is read again, nor more in shared memory than row_pass.c does step by step: those loops
 * load weights when they use them.
 *
 * Invariant: of the vectors that are next, b->ahead or those that registers keep have the words of
 * all inputs in the pass's `ahead`.  Only where vectors are whole and a row's length is known.
 */
#include "row.h"

uint64_t eider_row_ahead_inputs(const struct eider_row_build *b, const uint8_t *need)
{
    uint64_t which = eider_row_inputs(b, need) & eider_row_shared_inputs(b) & ~b->columns;
    int whole = b->layout->length && !b->ragged && !b->elements && !b->vectors_ok;
    return b->ahead && whole ? which : 0;
}

void eider_row_ahead_load(struct eider_row_build *b, const struct eider_row_batch *batch)
{
    if (!batch->n || !batch->which || b->e->status != EIDER_OK) return;
    if (!batch->kept)
        eider_row_place(b, b->ahead, batch->n, eider_row_number(b->i32, batch->at), batch->at);
    eider_row_load(b, batch->kept ? batch->kept : b->ahead, batch->n, batch->which);
}

void eider_row_ahead_now(struct eider_row_build *b)
{
    int width = b->e->width;
    b->e->width = b->width;
    eider_row_ahead_load(b, &b->waiting);
    b->e->width = width;
    b->waiting.n = 0;
}

static void exchange(struct eider_row_vector *v, struct eider_row_vector *w, uint32_t i)
{
    LLVMValueRef *words = v->words[i];
    int n = v->n_words[i];
    v->words[i] = w->words[i];
    v->n_words[i] = w->n_words[i];
    w->words[i] = words;
    w->n_words[i] = n;
}

void eider_row_ahead_take(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                          uint64_t which)
{
    for (int v = 0; v < n; v++) {
        for (uint32_t i = 0; i < b->layout->n_operands; i++)
            if (which >> i & 1) exchange(&vectors[v], &b->ahead[v], i);
        eider_row_unpack_all(b, &vectors[v], which);
    }
}
