/* row_shared.c -- the IR of the part of a row that stays in shared memory.
 *
 * Invariant: every thread reads what it has put there itself, so nobody waits for anybody.
 * An operand has block * vec elements side by side for each of the `shared` vectors that a thread
 * has; neighbouring threads have neighbouring vectors, as in memory.
 */
#include "row.h"

static int64_t vector_bytes(const struct eider_layout *layout, const struct eider_row_config *c,
                            uint32_t i)
{
    return (int64_t)eider_dtype_size(layout->operands[i].type) * c->vec;
}

/* Inputs of which every row has its own elements. */
static int is_own(const struct eider_layout *layout, uint32_t i)
{
    const struct eider_layout_operand *operand = &layout->operands[i];
    return operand->kind == EIDER_INPUT && operand->stride_class[layout->rank - 1] &&
           !eider_row_shares(layout, i);
}

int eider_row_is_column(const struct eider_layout *layout, const struct eider_row_config *c,
                        uint32_t i)
{
    const struct eider_layout_operand *operand = &layout->operands[i];
    return c->resident && c->block >= EIDER_ROW_WARP && operand->kind == EIDER_INPUT &&
           operand->stride_class[layout->rank - 1] && eider_row_shares(layout, i);
}

/* The bytes of operand `i`. */
static int64_t bytes_of(const struct eider_layout *layout, const struct eider_row_config *c,
                        uint32_t i)
{
    int vectors = is_own(layout, i)                   ? c->shared
                  : eider_row_is_column(layout, c, i) ? c->keep + c->shared
                                                      : 0;
    return vector_bytes(layout, c, i) * c->block * vectors;
}

/* Where operand `i` begins. */
static int64_t begin_of(const struct eider_layout *layout, const struct eider_row_config *c,
                        uint32_t i)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < i; k++) bytes += bytes_of(layout, c, k);
    return bytes;
}

int64_t eider_row_launch_bytes(const struct eider_layout *layout, const struct eider_row_config *c)
{
    return begin_of(layout, c, layout->n_operands);
}

/* Where this thread has its vector of operand `i` at place `at` of the row, `v` vectors further.
 * A row's own elements begin behind what registers keep. */
static LLVMValueRef place_of(struct eider_row_build *b, uint32_t i, LLVMValueRef at, int v)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t bytes = vector_bytes(b->layout, &b->c, i), step = bytes * b->c.block;
    int64_t size = bytes / b->c.vec, begin = begin_of(b->layout, &b->c, i) + v * step;
    if (is_own(b->layout, i)) begin -= b->c.keep * step;
    at = LLVMBuildUDiv(ir, at, eider_row_number(b->i32, b->c.cluster), "");
    at = LLVMBuildMul(ir, at, eider_row_number(b->i32, b->c.block / b->c.row * size), "");
    LLVMValueRef mine = b->machine->thread_index(b->e);
    mine = LLVMBuildMul(ir, mine, eider_row_number(b->i32, bytes), "");
    at = LLVMBuildAdd(ir, LLVMBuildAdd(ir, at, mine, ""), eider_row_number(b->i32, begin), "");
    return LLVMBuildGEP2(ir, b->i8, b->rows_memory, &at, 1, "");
}

void eider_row_load_shared(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                           uint64_t which, LLVMValueRef at)
{
    eider_row_make_room(b, vectors, n, which);
    for (int v = 0; v < n && b->e->status == EIDER_OK; v++)
        for (uint32_t i = 0; i < b->layout->n_operands; i++) {
            if (!(which >> i & 1)) continue;
            eider_lines_set(b->e, EIDER_LINE_LOAD, i);
            vectors[v].n_words[i] =
                b->machine->fetch(b->e, b->layout->operands[i].type, place_of(b, i, at, v),
                                  b->c.vec, EIDER_LOAD_CA, 0, vectors[v].words[i]);
            eider_row_unpack(b, i, &vectors[v]);
        }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* Copies take whole vectors of places side by side. */
static int is_copied(const struct eider_row_build *b, uint32_t i)
{
    return b->c.async && b->machine->copy && b->vectors && !b->elements &&
           eider_row_in_vectors(b, i) && vector_bytes(b->layout, &b->c, i) >= 4;
}

/* Where a copy would come to lie that is not in the row, a vector that is partly in it may. */
static LLVMValueRef copy_if(struct eider_row_build *b, const struct eider_row_vector *vector,
                            LLVMValueRef exists)
{
    if (!b->ragged || !vector->whole) return exists;
    return exists ? LLVMBuildAnd(b->e->builder, vector->whole, exists, "") : vector->whole;
}

static void fill_vector(struct eider_row_build *b, struct eider_row_vector *vector, int v,
                        uint64_t which, LLVMValueRef at, LLVMValueRef exists)
{
    uint64_t by_words = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (!(which >> i & 1)) continue;
        eider_lines_set(b->e, EIDER_LINE_LOAD, i);
        if (is_copied(b, i))
            b->machine->copy(b->e, place_of(b, i, at, v), eider_row_address(b, i, vector),
                             (int)vector_bytes(b->layout, &b->c, i), copy_if(b, vector, exists));
        else
            by_words |= (uint64_t)1 << i;
    }
    eider_row_load(b, vector, 1, by_words);
    for (uint32_t i = 0; i < b->layout->n_operands && b->e->status == EIDER_OK; i++)
        if (by_words >> i & 1)
            b->machine->put(b->e, b->layout->operands[i].type, place_of(b, i, at, v), b->c.vec,
                            vector->words[i]);
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

void eider_row_fill_shared(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                           uint64_t which, LLVMValueRef at, LLVMValueRef exists)
{
    for (int v = 0; v < n && b->e->status == EIDER_OK; v++)
        fill_vector(b, &vectors[v], v, which, at, exists);
}

void eider_row_wait_shared(struct eider_row_build *b)
{
    if (b->c.async && b->machine->copies_wait) b->machine->copies_wait(b->e);
}
