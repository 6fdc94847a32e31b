/* row_memory.c -- the IR of loads and stores of elements of a row.
 *
 * Invariant: no address outside a row is read or written, whatever the launch.  What is not in
 * the row reads some element that is, and whoever uses it looks at `valid`.
 * Where vectors cannot be taken, because of alignment or because they are partly outside of the
 * row, the same elements are loaded one by one: two ways that meet again, so that everything else
 * exists once.
 */
#include "row.h"

#include <string.h>

/* Elements of a thread, of all inputs, that stay as computed: so few that what is computed from
 * them fits beside the rest in the 64 registers with which short rows run best
 * (bench/RESULTS.md). */
#define COMPUTED_MAX 32

/* Ways to load that meet; each gives the same number of values. */
struct ways {
    LLVMBasicBlockRef after, end[3];
    LLVMValueRef *values[3];
    unsigned n;
};

static const struct eider_layout_operand *operand_at(const struct eider_row_build *b, uint32_t i)
{
    return &b->layout->operands[i];
}

static int64_t size_at(const struct eider_row_build *b, uint32_t i)
{
    return (int64_t)eider_dtype_size(operand_at(b, i)->type);
}

static int class_in_row(const struct eider_row_build *b, uint32_t i)
{
    return operand_at(b, i)->stride_class[b->layout->rank - 1];
}

static int differs_in_row(const struct eider_row_build *b, uint32_t i, eider_operand_kind kind)
{
    return operand_at(b, i)->kind == kind && class_in_row(b, i) != 0;
}

static LLVMValueRef advance(struct eider_row_build *b, LLVMValueRef ptr, LLVMValueRef bytes)
{
    return LLVMBuildGEP2(b->e->builder, b->i8, ptr, &bytes, 1, "");
}

/* The address of place `col`, an i32, of the row. */
static LLVMValueRef address(struct eider_row_build *b, uint32_t i, LLVMValueRef col)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef wide = LLVMBuildZExt(ir, col, b->i64, "");
    LLVMValueRef stride = class_in_row(b, i) == 1
                              ? eider_row_number(b->i64, size_at(b, i))
                              : b->machine->param(b->e, b->slots.stride[i][b->layout->rank - 1]);
    return advance(b, b->base[i], LLVMBuildMul(ir, wide, stride, ""));
}

static LLVMValueRef lane_of(struct eider_row_build *b, LLVMValueRef v, int lane)
{
    if (LLVMGetTypeKind(LLVMTypeOf(v)) != LLVMVectorTypeKind) return v;
    return LLVMBuildExtractElement(b->e->builder, v, eider_row_number(b->i32, lane), "");
}

/* The address of element `k` of a vector: all of a thread's are at distances, which are constant
 * where the vector stays in registers, from one address. */
static LLVMValueRef address_in(struct eider_row_build *b, uint32_t i,
                               const struct eider_row_vector *vector, int k)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef step = eider_row_number(b->i32, k);
    if (class_in_row(b, i) != 1) return address(b, i, LLVMBuildAdd(ir, vector->col, step, ""));
    LLVMValueRef size = eider_row_number(b->i64, size_at(b, i));
    LLVMValueRef first = advance(b, b->mine[i], LLVMBuildMul(ir, vector->at, size, ""));
    return k ? advance(b, first, eider_row_number(b->i64, k * size_at(b, i))) : first;
}

/* The address of a vector, or of the first that is in the row where this one is not. */
LLVMValueRef eider_row_address(struct eider_row_build *b, uint32_t i,
                               const struct eider_row_vector *vector)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef ptr = address_in(b, i, vector, 0), other = b->base[i];
    if (!vector->whole) return ptr;
    if (b->shift) {
        LLVMValueRef mask = eider_row_number(b->i32, b->c.vec - 1);
        other = address(b, i, LLVMBuildAnd(ir, LLVMBuildNeg(ir, b->shift, ""), mask, ""));
    }
    return LLVMBuildSelect(ir, vector->whole, ptr, other, "");
}

/* The address of an element, or of the row's first where the condition does not hold. */
static LLVMValueRef address_if(struct eider_row_build *b, LLVMValueRef condition, uint32_t i,
                               const struct eider_row_vector *vector, int k)
{
    LLVMValueRef ptr = address_in(b, i, vector, k);
    return condition ? LLVMBuildSelect(b->e->builder, condition, ptr, b->base[i], "") : ptr;
}

/* A pack from places that are in the row. */
static LLVMValueRef load_places(struct eider_row_build *b, uint32_t i, LLVMValueRef cols)
{
    LLVMValueRef ptrs[64];
    for (int lane = 0; lane < b->e->width; lane++)
        ptrs[lane] = address(b, i, lane_of(b, cols, lane));
    return b->machine->load_each(b->e, operand_at(b, i)->type, ptrs);
}

/* A vector's words, element by element; those that are not in the row are the row's first. */
static void fetch_elements(struct eider_row_build *b, uint32_t i, struct eider_row_vector *vector,
                           LLVMValueRef *words)
{
    LLVMValueRef ptrs[EIDER_VECTOR_MAX];
    eider_lines_set(b->e, EIDER_LINE_LOAD, i);
    for (int k = 0; k < b->c.vec; k++) {
        LLVMValueRef valid = vector->packs[k / b->width].valid;
        ptrs[k] = address_if(b, valid ? lane_of(b, valid, k % b->width) : NULL, i, vector, k);
    }
    vector->n_words[i] =
        b->machine->fetch_each(b->e, operand_at(b, i)->type, ptrs, b->c.vec, words);
}

/* ---- Ways that meet ---------------------------------------------------------- */

static void begin_ways(struct eider_row_build *b, struct ways *w, int n_values)
{
    *w = (struct ways){.after = eider_row_block(b, "loaded")};
    for (int i = 0; i < 3; i++)
        w->values[i] = eider_row_alloc(b, (size_t)n_values + 1, sizeof(LLVMValueRef));
}

static void end_way(struct eider_row_build *b, struct ways *w)
{
    w->end[w->n++] = LLVMGetInsertBlock(b->e->builder);
    LLVMBuildBr(b->e->builder, w->after);
}

/* Value `i` of whichever way was taken; the builder is after them. */
static LLVMValueRef met(struct eider_row_build *b, const struct ways *w, int i)
{
    LLVMValueRef values[3];
    if (w->n == 1) return w->values[0][i];
    for (unsigned k = 0; k < w->n; k++) values[k] = w->values[k][i];
    LLVMValueRef phi = LLVMBuildPhi(b->e->builder, LLVMTypeOf(values[0]), "");
    LLVMAddIncoming(phi, values, (LLVMBasicBlockRef *)w->end, w->n);
    return phi;
}

/* Goes to a new block where `condition` holds; the builder goes on in another otherwise. */
static LLVMBasicBlockRef branch_if(struct eider_row_build *b, LLVMValueRef condition,
                                   const char *name)
{
    LLVMBasicBlockRef then = eider_row_block(b, name), otherwise = eider_row_block(b, "otherwise");
    LLVMBuildCondBr(b->e->builder, condition, then, otherwise);
    LLVMPositionBuilderAtEnd(b->e->builder, then);
    return otherwise;
}

/* ---- Elements ---------------------------------------------------------------- */

/* Whether vectors of operand `i` are loaded as such where that can be done. */
int eider_row_in_vectors(const struct eider_row_build *b, uint32_t i)
{
    return class_in_row(b, i) == 1 && (b->leader < 0 || !eider_row_shares(b->layout, i));
}

/* What all rows share is read by others soon, and what a later pass reads, by this one. */
static enum eider_load_policy load_policy(const struct eider_row_build *b, uint32_t i)
{
    enum eider_load_policy policy = b->c.load;
    if (eider_row_shares(b->layout, i))
        return policy == EIDER_LOAD_LAST || policy == EIDER_LOAD_NC ? policy : EIDER_LOAD_CA;
    return policy == EIDER_LOAD_LAST && !(b->later >> i & 1) ? EIDER_LOAD_FIRST : policy;
}

static void fetch_vector(struct eider_row_build *b, uint32_t i, struct eider_row_vector *vector,
                         LLVMValueRef *words)
{
    eider_lines_set(b->e, EIDER_LINE_LOAD, i);
    if (!eider_row_in_vectors(b, i))
        fetch_elements(b, i, vector, words);
    else
        vector->n_words[i] =
            b->machine->fetch(b->e, operand_at(b, i)->type, eider_row_address(b, i, vector),
                              b->c.vec, load_policy(b, i), 1, words);
}

/* The words of all operands in `which`, of all vectors, one after the other; their number. */
static int fetch_all(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                     uint64_t which, int by_vector, LLVMValueRef *words)
{
    int at = 0;
    for (int v = 0; v < n; v++)
        for (uint32_t i = 0; i < b->layout->n_operands; i++) {
            if (!(which >> i & 1)) continue;
            if (by_vector)
                fetch_vector(b, i, &vectors[v], words + at);
            else
                fetch_elements(b, i, &vectors[v], words + at);
            at += vectors[v].n_words[i];
        }
    return at;
}

/* Whether one of the vectors is partly in the row; NULL: none can be. */
static LLVMValueRef is_edge(struct eider_row_build *b, const struct eider_row_vector *vectors,
                            int n)
{
    LLVMValueRef any = NULL;
    for (int v = 0; v < n; v++) {
        LLVMValueRef partial = vectors[v].partial;
        if (partial) any = any ? LLVMBuildOr(b->e->builder, any, partial, "") : partial;
    }
    return any;
}

/* Replaces `words`, of vectors, by those of elements in vectors that are partly in the row. */
static void fetch_edges(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                        uint64_t which, int n_words, LLVMValueRef *words)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef any = is_edge(b, vectors, n);
    struct ways w;
    int at = 0;
    if (!any) return;
    begin_ways(b, &w, n_words);
    if (b->e->status != EIDER_OK) return;
    for (int k = 0; k < 2; k++) memcpy(w.values[k], words, (size_t)n_words * sizeof *words);
    w.end[w.n++] = LLVMGetInsertBlock(ir);
    LLVMBasicBlockRef edge = eider_row_block(b, "edge");
    LLVMBuildCondBr(ir, any, edge, w.after);
    LLVMPositionBuilderAtEnd(ir, edge);
    for (int v = 0; v < n; v++)
        for (uint32_t i = 0; i < b->layout->n_operands; i++) {
            if (!(which >> i & 1)) continue;
            if (vectors[v].partial && eider_row_in_vectors(b, i))
                fetch_elements(b, i, &vectors[v], w.values[1] + at);
            at += vectors[v].n_words[i];
        }
    end_way(b, &w);
    LLVMPositionBuilderAtEnd(ir, w.after);
    for (int i = 0; i < n_words; i++)
        if (w.values[0][i] != w.values[1][i]) words[i] = met(b, &w, i);
}

/* What a row without elements has. */
static void load_nothing(int n_values, LLVMValueRef *values, const struct ways *w)
{
    for (int i = 0; i < n_values; i++) values[i] = LLVMConstNull(LLVMTypeOf(w->values[0][i]));
}

static int count(uint64_t which)
{
    return __builtin_popcountll(which);
}

/* Whether the row may have no elements. */
static int may_be_empty(const struct eider_row_build *b)
{
    return b->layout->length == 0;
}

static LLVMValueRef is_empty(struct eider_row_build *b)
{
    return LLVMBuildICmp(b->e->builder, LLVMIntEQ, b->cols, eider_row_number(b->i32, 0), "");
}

void eider_row_unpack(struct eider_row_build *b, uint32_t i, struct eider_row_vector *vector)
{
    LLVMValueRef packs[EIDER_VECTOR_MAX];
    eider_lines_set(b->e, EIDER_LINE_LOAD, i);
    b->machine->unpack(b->e, operand_at(b, i)->type, b->c.vec, vector->words[i], packs);
    for (int p = 0; p < b->n_packs; p++) vector->packs[p].in[i] = packs[p];
}

void eider_row_unpack_all(struct eider_row_build *b, struct eider_row_vector *vector,
                          uint64_t which)
{
    for (uint32_t i = 0; i < b->layout->n_operands && b->e->status == EIDER_OK; i++)
        if (which >> i & 1) eider_row_unpack(b, i, vector);
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* Whichever way was taken, the vectors have their words. */
static void take_words(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                       uint64_t which, const struct ways *w)
{
    int at = 0;
    for (int v = 0; v < n; v++)
        for (uint32_t i = 0; i < b->layout->n_operands; i++) {
            if (!(which >> i & 1)) continue;
            for (int k = 0; k < vectors[v].n_words[i]; k++)
                vectors[v].words[i][k] = met(b, w, at++);
        }
    for (int v = 0; v < n; v++) eider_row_unpack_all(b, &vectors[v], which);
}

void eider_row_make_room(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                         uint64_t which)
{
    for (int v = 0; v < n; v++)
        for (uint32_t i = 0; i < b->layout->n_operands; i++)
            if (which >> i & 1 && !vectors[v].words[i])
                vectors[v].words[i] = eider_row_alloc(b, (size_t)b->c.vec, sizeof(LLVMValueRef));
}

void eider_row_load(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                    uint64_t which)
{
    struct ways w;
    int n_words = 0;
    if (count(which) * n == 0 || b->e->status != EIDER_OK) return;
    begin_ways(b, &w, count(which) * n * b->c.vec);
    eider_row_make_room(b, vectors, n, which);
    if (b->e->status != EIDER_OK) return;
    if (b->vectors) {
        LLVMValueRef ok = b->vectors_ok;
        if (ok && may_be_empty(b))
            ok = LLVMBuildAnd(b->e->builder, ok, LLVMBuildNot(b->e->builder, is_empty(b), ""), "");
        else if (may_be_empty(b))
            ok = LLVMBuildNot(b->e->builder, is_empty(b), "");
        LLVMBasicBlockRef otherwise = ok ? branch_if(b, ok, "vectors") : NULL;
        n_words = fetch_all(b, vectors, n, which, 1, w.values[w.n]);
        fetch_edges(b, vectors, n, which, n_words, w.values[w.n]);
        if (b->e->status != EIDER_OK) return;
        end_way(b, &w);
        if (otherwise) LLVMPositionBuilderAtEnd(b->e->builder, otherwise);
    }
    if (b->elements) {
        LLVMBasicBlockRef otherwise = NULL;
        if (may_be_empty(b))
            otherwise = branch_if(b, LLVMBuildNot(b->e->builder, is_empty(b), ""), "elements");
        n_words = fetch_all(b, vectors, n, which, 0, w.values[w.n]);
        end_way(b, &w);
        if (otherwise) LLVMPositionBuilderAtEnd(b->e->builder, otherwise);
    }
    if (may_be_empty(b)) {
        load_nothing(n_words, w.values[w.n], &w);
        end_way(b, &w);
    }
    LLVMPositionBuilderAtEnd(b->e->builder, w.after);
    take_words(b, vectors, n, which, &w);
}

/* Flags that bind never sets: zeros that no compiler knows to be zeros. */
static LLVMValueRef unknown_zero(struct eider_row_build *b)
{
    LLVMValueRef bit = eider_row_number(b->i32, (int64_t)EIDER_ROW_NEVER << b->passes % 16);
    return LLVMBuildAnd(b->e->builder, b->machine->param(b->e, b->slots.flags), bit, "");
}

static void again(struct eider_row_build *b, uint32_t i, struct eider_row_vector *vector,
                  LLVMValueRef zero)
{
    if (!vector->words[i] || eider_dtype_size(operand_at(b, i)->type) >= sizeof(float)) return;
    for (int k = 0; k < vector->n_words[i]; k++) {
        LLVMValueRef *word = &vector->words[i][k];
        LLVMValueRef fitting = LLVMBuildIntCast2(b->e->builder, zero, LLVMTypeOf(*word), 0, "");
        *word = LLVMBuildXor(b->e->builder, *word, fitting, "");
    }
    eider_row_unpack(b, i, vector);
}

/* Whether a thread has all of its part of a row, and so little that it stays as computed. */
static int stays_computed(const struct eider_row_build *b)
{
    int64_t all = (int64_t)eider_row_threads(&b->c) * b->c.keep * b->c.vec;
    return b->layout->length && b->layout->length <= all &&
           b->c.keep * b->c.vec * count(b->loaded) <= COMPUTED_MAX;
}

void eider_row_again(struct eider_row_build *b, struct eider_row_vector *vector)
{
    const struct eider_graph *g = b->program->graph;
    if (!b->machine->unpacks_again || stays_computed(b)) return;
    for (int p = 0; p < b->n_packs; p++)
        for (eider_node id = 1; id < g->n_cells; id++)
            if (!b->plan.costly[id]) vector->packs[p].values[id] = NULL;
    LLVMValueRef zero = unknown_zero(b);
    for (uint32_t i = 0; i < b->layout->n_operands && b->e->status == EIDER_OK; i++)
        again(b, i, vector, zero);
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

void eider_row_load_at(struct eider_row_build *b, struct eider_row_context *c, uint64_t which)
{
    struct ways w;
    int n = count(which), k = 0;
    LLVMBasicBlockRef otherwise = NULL;
    if (n == 0) return;
    begin_ways(b, &w, n);
    if (b->e->status != EIDER_OK) return;
    if (may_be_empty(b))
        otherwise = branch_if(b, LLVMBuildNot(b->e->builder, is_empty(b), ""), "pick");
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        if (which >> i & 1) w.values[0][k++] = load_places(b, i, c->col);
    end_way(b, &w);
    if (otherwise) {
        LLVMPositionBuilderAtEnd(b->e->builder, otherwise);
        load_nothing(n, w.values[1], &w);
        end_way(b, &w);
    }
    LLVMPositionBuilderAtEnd(b->e->builder, w.after);
    k = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        if (which >> i & 1) c->in[i] = met(b, &w, k++);
}

/* ---- Stores -------------------------------------------------------------------- */

/* An output rounded by cast_nan to its own type keeps what that does with overflow. */
static int saturates(const struct eider_row_build *b, uint32_t i)
{
    const struct eider_graph *g = b->program->graph;
    const struct eider_cell *cell = &g->cells[g->operands[i].node];
    return cell->op != EIDER_OP_cast_nan || cell->payload != (uint64_t)operand_at(b, i)->type;
}

/* An output that has an element for every place in the row. */
static int is_full_output(const struct eider_row_build *b, uint32_t i)
{
    return differs_in_row(b, i, EIDER_OUTPUT);
}

/* Streaming stores of some machines need an alignment that is not asked for here. */
static enum eider_store_policy policy_of(const struct eider_row_build *b)
{
    return b->machine->streams_aligned ? EIDER_STORE_WB : b->c.store;
}

static void store_lane(struct eider_row_build *b, uint32_t i, struct eider_row_vector *vector,
                       int k, LLVMValueRef exists)
{
    eider_dtype type = operand_at(b, i)->type;
    LLVMBasicBlockRef after = NULL;
    int by_predicate = exists && b->machine->store_if;
    if (exists && !by_predicate) after = branch_if(b, exists, "element");
    LLVMValueRef ptr = address_in(b, i, vector, k);
    LLVMValueRef value = lane_of(b, vector->packs[k / b->width].in[i], k % b->width);
    b->e->width = 1;
    if (by_predicate)
        b->machine->store_if(b->e, type, exists, ptr, saturates(b, i), value);
    else
        b->machine->store_each(b->e, type, &ptr, saturates(b, i), value);
    b->e->width = b->width;
    if (!after) return;
    LLVMBuildBr(b->e->builder, after);
    LLVMPositionBuilderAtEnd(b->e->builder, after);
}

/* Elements one by one, where they are in the row. */
static void store_elements(struct eider_row_build *b, struct eider_row_vector *vector)
{
    for (int k = 0; k < b->c.vec; k++) {
        LLVMValueRef valid = vector->packs[k / b->width].valid;
        LLVMValueRef exists = valid ? lane_of(b, valid, k % b->width) : NULL;
        for (uint32_t i = 0; i < b->layout->n_operands; i++) {
            if (!is_full_output(b, i)) continue;
            eider_lines_set(b->e, EIDER_LINE_STORE, i);
            store_lane(b, i, vector, k, exists);
        }
    }
}

/* A vector that is in the row, or not at all. */
static void store_vector(struct eider_row_build *b, struct eider_row_vector *vector)
{
    LLVMBasicBlockRef after = vector->begins ? branch_if(b, vector->begins, "store") : NULL;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        LLVMValueRef in[64];
        if (!is_full_output(b, i)) continue;
        for (int p = 0; p < b->n_packs; p++) in[p] = vector->packs[p].in[i];
        eider_lines_set(b->e, EIDER_LINE_STORE, i);
        if (class_in_row(b, i) == 1)
            b->machine->store(b->e, operand_at(b, i)->type, address_in(b, i, vector, 0), b->c.vec,
                              policy_of(b), saturates(b, i), in);
        for (int k = 0; k < b->c.vec && class_in_row(b, i) != 1; k++)
            store_lane(b, i, vector, k, NULL);
    }
    if (!after) return;
    LLVMBuildBr(b->e->builder, after);
    LLVMPositionBuilderAtEnd(b->e->builder, after);
}

void eider_row_store(struct eider_row_build *b, struct eider_row_vector *vector)
{
    LLVMBasicBlockRef done = b->row_exists ? branch_if(b, b->row_exists, "row") : NULL;
    LLVMBasicBlockRef after = eider_row_block(b, "stored"), otherwise = NULL;
    if (b->vectors) {
        LLVMValueRef ok = b->vectors_ok;
        if (vector->partial) {
            LLVMValueRef no = LLVMBuildNot(b->e->builder, vector->partial, "");
            ok = ok ? LLVMBuildAnd(b->e->builder, ok, no, "") : no;
        }
        if (ok) otherwise = branch_if(b, ok, "vectors");
        store_vector(b, vector);
        LLVMBuildBr(b->e->builder, after);
    }
    if (otherwise) LLVMPositionBuilderAtEnd(b->e->builder, otherwise);
    if (otherwise || !b->vectors) {
        store_elements(b, vector);
        LLVMBuildBr(b->e->builder, after);
    }
    LLVMPositionBuilderAtEnd(b->e->builder, after);
    if (done) {
        LLVMBuildBr(b->e->builder, done);
        LLVMPositionBuilderAtEnd(b->e->builder, done);
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* ---- What the row has one of --------------------------------------------------- */

void eider_row_load_row(struct eider_row_build *b)
{
    b->e->width = 1;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        const struct eider_layout_operand *o = operand_at(b, i);
        LLVMValueRef ptr = b->base[i];
        if (o->kind == EIDER_OUTPUT || differs_in_row(b, i, EIDER_INPUT)) continue;
        eider_lines_set(b->e, EIDER_LINE_LOAD, i);
        if (o->kind == EIDER_SCALAR)
            b->one.in[i] = b->machine->splat(b->e, o->type, b->machine->param(b->e, i));
        else
            b->one.in[i] = b->machine->load_each(b->e, o->type, &ptr);
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
    b->e->width = b->width;
}

void eider_row_store_row(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    int any = 0;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        any |= operand_at(b, i)->kind == EIDER_OUTPUT && !is_full_output(b, i);
    if (!any || b->e->status != EIDER_OK) return;
    LLVMBasicBlockRef after = eider_row_block(b, "end");
    LLVMValueRef first = LLVMBuildICmp(ir, LLVMIntEQ, b->thread, eider_row_number(b->i32, 0), "");
    if (b->row_exists) first = LLVMBuildAnd(ir, first, b->row_exists, "");
    LLVMBasicBlockRef store = eider_row_block(b, "results");
    LLVMBuildCondBr(ir, first, store, after);
    LLVMPositionBuilderAtEnd(ir, store);
    b->e->width = 1;
    b->lowering.values = b->one.values;
    b->lowering.in = b->one.in;
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (operand_at(b, i)->kind != EIDER_OUTPUT || is_full_output(b, i)) continue;
        LLVMValueRef ptr = b->base[i];
        eider_lines_set(b->e, EIDER_LINE_STORE, i);
        LLVMValueRef value = eider_lowering_output(&b->lowering, i);
        b->machine->store_each(b->e, operand_at(b, i)->type, &ptr, saturates(b, i), value);
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
    LLVMBuildBr(ir, after);
    LLVMPositionBuilderAtEnd(ir, after);
    b->e->width = b->width;
}
