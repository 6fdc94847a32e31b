/* map_build.c -- the IR of a map kernel; map.h describes its shape.
 *
 *   entry     parameters, what repeats everywhere, where the block begins
 *   tile      one tile: to `vectors` or to `elements`  <--+
 *   vectors   straight line: loads, computation, stores   |
 *   elements  a loop over single elements, with bounds    |
 *   next      the following tile of this block  ----------+
 *
 * Invariant: no load of an address outside an operand, whatever the launch; within a tile
 * every load that belongs to a thread comes before the stores that it does.
 * Not here: what the program computes (lower.c), how an access looks (the machines).
 */
#include "map.h"

#define ELEMENTS_IN_FLIGHT 2 /* in the loop over single elements: more cost compile time */

struct build {
    struct eider_emit *e;
    const struct eider_machine *machine;
    const struct eider_lowered *program;
    const struct eider_layout *layout;
    struct eider_map_config c;
    struct eider_map_slots slots;
    LLVMTypeRef i8, i32, i64, index; /* index: element numbers and byte offsets */
    LLVMValueRef thread, count, vectors_ok, stream_ok;
    /* What is the same everywhere, as packs of vectors and of single elements. */
    LLVMValueRef fixed[EIDER_OPERANDS_MAX], fixed_one[EIDER_OPERANDS_MAX];
    int width;           /* of a pack of vectors */
    LLVMValueRef *packs; /* n_operands packs for each pack in flight */
    uint8_t *states;     /* of nodes, see map_packed.c; NULL where elements are not paired */
    LLVMValueRef *nodes;
};

/* Where one element of the iteration space lies. */
struct place {
    LLVMValueRef element;            /* its number */
    LLVMValueRef at[EIDER_RANK_MAX]; /* its coordinates */
};

static LLVMValueRef number(LLVMTypeRef type, int64_t value)
{
    return LLVMConstInt(type, (unsigned long long)value, 1);
}

static LLVMValueRef plus(struct build *b, LLVMValueRef x, LLVMValueRef y)
{
    return LLVMBuildAdd(b->e->builder, x, y, "");
}

static LLVMValueRef times(struct build *b, LLVMValueRef x, int64_t y)
{
    return LLVMBuildMul(b->e->builder, x, number(LLVMTypeOf(x), y), "");
}

static LLVMValueRef less(struct build *b, LLVMValueRef x, LLVMValueRef y)
{
    return LLVMBuildICmp(b->e->builder, LLVMIntULT, x, y, "");
}

static LLVMValueRef param(struct build *b, unsigned slot)
{
    return b->machine->param(b->e, slot);
}

static LLVMBasicBlockRef new_block(struct build *b, const char *name)
{
    return LLVMAppendBasicBlockInContext(b->e->context, b->e->function, name);
}

static const struct eider_layout_operand *operand_at(struct build *b, uint32_t i)
{
    return &b->layout->operands[i];
}

static int64_t size_at(struct build *b, uint32_t i)
{
    return (int64_t)eider_dtype_size(operand_at(b, i)->type);
}

/* Elements of a vector along the innermost dimension: 0 the same, 1 side by side, 2 apart. */
static int inner_class(struct build *b, uint32_t i)
{
    return operand_at(b, i)->stride_class[b->layout->rank - 1];
}

/* ---- Addresses ----------------------------------------------------------- */

/* element / extent of dimension d; see put_divisor in map_bind.c. */
static LLVMValueRef divide(struct build *b, LLVMValueRef element, int d)
{
    LLVMBuilderRef ir = b->e->builder;
    if (b->c.index_bits == 64) return LLVMBuildUDiv(ir, element, param(b, b->slots.extent[d]), "");
    LLVMValueRef twice = LLVMBuildShl(ir, element, number(b->i32, 1), "");
    LLVMValueRef magic = LLVMBuildZExt(ir, param(b, b->slots.magic[d]), b->i64, "");
    LLVMValueRef product = LLVMBuildMul(ir, LLVMBuildZExt(ir, twice, b->i64, ""), magic, "");
    LLVMValueRef high = LLVMBuildLShr(ir, product, number(b->i64, 32), "");
    high = LLVMBuildTrunc(ir, high, b->i32, "");
    return LLVMBuildLShr(ir, high, param(b, b->slots.shift[d]), "");
}

static struct place locate(struct build *b, LLVMValueRef element)
{
    struct place p = {.element = element};
    for (int d = b->layout->rank - 1; d > 0; d--) {
        LLVMValueRef quotient = divide(b, element, d);
        LLVMValueRef whole =
            LLVMBuildMul(b->e->builder, quotient, param(b, b->slots.extent[d]), "");
        p.at[d] = LLVMBuildSub(b->e->builder, element, whole, "");
        element = quotient;
    }
    p.at[0] = element;
    return p;
}

/* Offsets are signed: strides may be negative. */
static LLVMValueRef advance(struct build *b, LLVMValueRef ptr, LLVMValueRef bytes)
{
    if (LLVMTypeOf(bytes) != b->i64) bytes = LLVMBuildSExt(b->e->builder, bytes, b->i64, "");
    return LLVMBuildGEP2(b->e->builder, b->i8, ptr, &bytes, 1, "");
}

static LLVMValueRef advance_by(struct build *b, LLVMValueRef ptr, int64_t bytes)
{
    return bytes ? advance(b, ptr, number(b->i64, bytes)) : ptr;
}

/* The address of element `p` of operand `i`. */
static LLVMValueRef address(struct build *b, uint32_t i, const struct place *p)
{
    LLVMValueRef offset = NULL;
    for (int d = 0; d < b->layout->rank; d++) {
        int stride_class = operand_at(b, i)->stride_class[d];
        if (stride_class == 0) continue;
        LLVMValueRef part = stride_class == 1 ? times(b, p->at[d], size_at(b, i))
                                              : LLVMBuildMul(b->e->builder, p->at[d],
                                                             param(b, b->slots.stride[i][d]), "");
        offset = offset ? plus(b, offset, part) : part;
    }
    return offset ? advance(b, param(b, i), offset) : param(b, i);
}

/* The addresses of a pack whose elements lie `apart`, a byte stride, from `first` on. */
static void spread(struct build *b, LLVMValueRef first, LLVMValueRef apart, LLVMValueRef *out)
{
    out[0] = first;
    for (int k = 1; k < b->e->width; k++) out[k] = advance(b, out[k - 1], apart);
}

/* ---- Packs of one evaluation --------------------------------------------- */

static LLVMValueRef *packs_of(struct build *b, int in_flight)
{
    return b->packs + (size_t)in_flight * b->layout->n_operands;
}

/* The same over words of two elements. */
static void compute_pairs(struct build *b, int k)
{
    eider_map_packed_lower(b->e, b->program->graph, operand_at(b, 0)->type, b->states, b->nodes,
                           packs_of(b, k));
}

/* Replaces the inputs of evaluation `k` by the outputs. */
static void compute(struct build *b, int k)
{
    LLVMValueRef out[EIDER_OPERANDS_MAX];
    LLVMValueRef *packs = packs_of(b, k);
    if (b->e->status != EIDER_OK) return;
    eider_lower(b->e, b->program, packs, out);
    if (b->e->status != EIDER_OK) return;
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        if (operand_at(b, i)->kind == EIDER_OUTPUT) packs[i] = out[i];
}

/* An output rounded by cast_nan to its own type keeps what that does with overflow. */
static int saturates(struct build *b, uint32_t i)
{
    const struct eider_graph *g = b->program->graph;
    const struct eider_cell *cell = &g->cells[g->operands[i].node];
    return cell->op != EIDER_OP_cast_nan || cell->payload != (uint64_t)operand_at(b, i)->type;
}

/* ---- Whole tiles: vectors ------------------------------------------------ */

static int packs_per_vector(struct build *b)
{
    return b->c.vec / (b->states ? 2 : b->e->width);
}

/* What a vector moves: its elements, or words of two. */
static eider_dtype moved_type(struct build *b, uint32_t i)
{
    return b->states ? EIDER_I32 : operand_at(b, i)->type;
}

static int n_moved(struct build *b)
{
    return b->states ? b->c.vec / 2 : b->c.vec;
}

/* `last` holds what is read more than once. */
static enum eider_load_policy load_policy(struct build *b, uint32_t i)
{
    int repeats = 0;
    for (int d = 0; d < b->layout->rank; d++) repeats |= operand_at(b, i)->stride_class[d] == 0;
    return b->c.load == EIDER_LOAD_LAST && !repeats ? EIDER_LOAD_FIRST : b->c.load;
}

/* Loads operand `i`'s elements of the vector at `ptr` into evaluations `first` and on. */
static void load_vector(struct build *b, uint32_t i, LLVMValueRef ptr, int first)
{
    LLVMValueRef out[64], lanes[64];
    eider_dtype type = operand_at(b, i)->type;
    int n = packs_per_vector(b), inner = inner_class(b, i);
    eider_lines_set(b->e, EIDER_LINE_LOAD, i);
    if (inner == 1) {
        b->machine->load(b->e, moved_type(b, i), ptr, n_moved(b), load_policy(b, i), 1, out);
    } else if (inner == 0) {
        LLVMValueRef one = LLVMBuildLoad2(b->e->builder, eider_emit_storage(b->e, type), ptr, "");
        LLVMSetAlignment(one, (unsigned)size_at(b, i));
        out[0] = b->machine->splat(b->e, type, one);
        for (int k = 1; k < n; k++) out[k] = out[0];
    } else {
        LLVMValueRef apart = param(b, b->slots.stride[i][b->layout->rank - 1]);
        for (int k = 0; k < n; k++) {
            spread(b, ptr, apart, lanes);
            out[k] = b->machine->load_each(b->e, type, lanes);
            ptr = advance(b, lanes[b->e->width - 1], apart);
        }
    }
    for (int k = 0; k < n; k++) packs_of(b, first + k)[i] = out[k];
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

static void store_vector(struct build *b, uint32_t i, LLVMValueRef ptr, int first,
                         enum eider_store_policy policy)
{
    LLVMValueRef in[64], lanes[64];
    eider_dtype type = operand_at(b, i)->type;
    int n = packs_per_vector(b);
    for (int k = 0; k < n; k++) in[k] = packs_of(b, first + k)[i];
    eider_lines_set(b->e, EIDER_LINE_STORE, i);
    int inner = inner_class(b, i);
    if (inner == 1)
        b->machine->store(b->e, moved_type(b, i), ptr, n_moved(b), policy, saturates(b, i), in);
    for (int k = 0; inner != 1 && k < n; k++) {
        LLVMValueRef apart = param(b, b->slots.stride[i][b->layout->rank - 1]);
        spread(b, ptr, apart, lanes);
        b->machine->store_each(b->e, type, lanes, saturates(b, i), in[k]);
        ptr = advance(b, lanes[b->e->width - 1], apart);
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* Addresses of vector `u` of the tile that begins at `tile`.  In one dimension all of a
 * thread's accesses are at constant distances from one address per operand. */
static void vector_addresses(struct build *b, LLVMValueRef tile, LLVMValueRef *first, int u,
                             LLVMValueRef *out)
{
    int64_t step = (int64_t)u * b->c.block * b->c.vec;
    struct place p;
    if (b->layout->rank > 1 || u == 0) {
        LLVMValueRef in_tile = times(b, b->thread, b->c.vec);
        if (LLVMTypeOf(in_tile) != b->index)
            in_tile = LLVMBuildZExt(b->e->builder, in_tile, b->index, "");
        if (b->layout->rank > 1) in_tile = plus(b, in_tile, number(b->index, step));
        LLVMValueRef element = plus(b, tile, in_tile);
        p = b->layout->rank > 1 ? locate(b, element) : (struct place){element, {element}};
    }
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (operand_at(b, i)->kind == EIDER_SCALAR || b->fixed[i]) continue;
        if (b->layout->rank > 1) {
            out[i] = address(b, i, &p);
        } else if (inner_class(b, i) == 1) {
            if (u == 0) {
                LLVMValueRef wide = LLVMBuildZExt(b->e->builder, p.element, b->i64, "");
                first[i] = advance(b, param(b, i), times(b, wide, size_at(b, i)));
            }
            out[i] = advance_by(b, first[i], step * size_at(b, i));
        } else {
            LLVMValueRef stride = param(b, b->slots.stride[i][0]);
            if (u == 0) first[i] = address(b, i, &p);
            out[i] = u ? advance(b, first[i], times(b, stride, step)) : first[i];
        }
    }
}

static void build_vectors(struct build *b, LLVMValueRef tile, enum eider_store_policy policy)
{
    LLVMValueRef first[EIDER_OPERANDS_MAX], at[8][EIDER_OPERANDS_MAX];
    uint32_t n = b->layout->n_operands;
    int per_vector = packs_per_vector(b);
    for (int u = 0; u < b->c.unroll; u++) vector_addresses(b, tile, first, u, at[u]);
    for (int u = 0; u < b->c.unroll; u++)
        for (uint32_t i = 0; i < n; i++) {
            if (operand_at(b, i)->kind == EIDER_INPUT && !b->fixed[i])
                load_vector(b, i, at[u][i], u * per_vector);
            for (int k = 0; k < per_vector && b->fixed[i]; k++)
                packs_of(b, u * per_vector + k)[i] = b->fixed[i];
        }
    for (int u = 0; u < b->c.unroll; u++) {
        for (int k = 0; k < per_vector; k++)
            (b->states ? compute_pairs : compute)(b, u * per_vector + k);
        for (uint32_t i = 0; i < n && b->e->status == EIDER_OK; i++)
            if (operand_at(b, i)->kind == EIDER_OUTPUT)
                store_vector(b, i, at[u][i], u * per_vector, policy);
    }
}

/* ---- Any tile: single elements, with bounds ------------------------------ */

/* One element of the loop. */
struct bounded {
    LLVMValueRef exists; /* i1 */
    LLVMValueRef ptrs[EIDER_OPERANDS_MAX];
};

/* An element beyond the end reads the last one instead, so that loads need no branch; it
 * stores nothing. */
static void place_element(struct build *b, LLVMValueRef element, struct bounded *out)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef last = LLVMBuildSub(ir, b->count, number(b->index, 1), "");
    out->exists = less(b, element, b->count);
    struct place p = locate(b, LLVMBuildSelect(ir, out->exists, element, last, ""));
    for (uint32_t i = 0; i < b->layout->n_operands; i++)
        if (operand_at(b, i)->kind != EIDER_SCALAR && !b->fixed[i])
            out->ptrs[i] = address(b, i, &p);
}

/* Stores the outputs of an element that exists. */
static void store_element(struct build *b, const struct bounded *at, int k)
{
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        if (operand_at(b, i)->kind != EIDER_OUTPUT) continue;
        eider_dtype type = operand_at(b, i)->type;
        LLVMValueRef value = packs_of(b, k)[i];
        eider_lines_set(b->e, EIDER_LINE_STORE, i);
        if (b->machine->store_if)
            b->machine->store_if(b->e, type, at->exists, at->ptrs[i], saturates(b, i), value);
        else
            b->machine->store_each(b->e, type, &at->ptrs[i], saturates(b, i), value);
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

static void branch_and_store(struct build *b, const struct bounded *at, int k)
{
    LLVMBasicBlockRef store = new_block(b, "store"), after = new_block(b, "after");
    LLVMBuildCondBr(b->e->builder, at->exists, store, after);
    LLVMPositionBuilderAtEnd(b->e->builder, store);
    store_element(b, at, k);
    LLVMBuildBr(b->e->builder, after);
    LLVMPositionBuilderAtEnd(b->e->builder, after);
}

/* `n` elements per thread, one block-width apart, from `begin` of the first thread on. */
static void build_group(struct build *b, LLVMValueRef begin, int n)
{
    struct bounded at[ELEMENTS_IN_FLIGHT];
    LLVMValueRef mine = LLVMBuildIntCast2(b->e->builder, b->thread, b->index, 0, "");
    mine = plus(b, begin, mine);
    for (int k = 0; k < n; k++) {
        int64_t step = (int64_t)k * b->c.block;
        place_element(b, k ? plus(b, mine, number(b->index, step)) : mine, &at[k]);
        for (uint32_t i = 0; i < b->layout->n_operands; i++) {
            if (operand_at(b, i)->kind == EIDER_INPUT && !b->fixed[i]) {
                eider_lines_set(b->e, EIDER_LINE_LOAD, i);
                packs_of(b, k)[i] =
                    b->machine->load_each(b->e, operand_at(b, i)->type, &at[k].ptrs[i]);
                eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
            }
            if (b->fixed[i]) packs_of(b, k)[i] = b->fixed_one[i];
        }
    }
    for (int k = 0; k < n; k++) compute(b, k);
    for (int k = 0; k < n && b->e->status == EIDER_OK; k++)
        (b->machine->store_if ? store_element : branch_and_store)(b, &at[k], k);
}

static void build_elements(struct build *b, LLVMValueRef tile)
{
    LLVMBuilderRef ir = b->e->builder;
    int total = b->c.unroll * b->c.vec;
    /* Where vectors are native, single elements are the exception: keep their code small. */
    int group = b->width > 1 ? 1 : total < ELEMENTS_IN_FLIGHT ? total : ELEMENTS_IN_FLIGHT;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(ir), loop = new_block(b, "elements");
    LLVMBasicBlockRef done = new_block(b, "elements_done");
    LLVMValueRef end = plus(b, tile, number(b->index, eider_map_tile(&b->c)));
    LLVMValueRef stop = LLVMBuildSelect(ir, less(b, end, b->count), end, b->count, "");
    b->e->width = 1;
    LLVMBuildBr(ir, loop);
    LLVMPositionBuilderAtEnd(ir, loop);
    LLVMValueRef begin = LLVMBuildPhi(ir, b->index, "");
    build_group(b, begin, group);
    LLVMValueRef next = plus(b, begin, number(b->index, (int64_t)group * b->c.block));
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(ir);
    LLVMValueRef again = LLVMBuildCondBr(ir, less(b, next, stop), loop, done);
    eider_emit_keep_loop(b->e, again);
    LLVMAddIncoming(begin, &tile, &before, 1);
    LLVMAddIncoming(begin, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(ir, done);
    b->e->width = b->width;
}

/* ---- The kernel ---------------------------------------------------------- */

static void declare_params(struct build *b, struct eider_kernel_param *params)
{
    LLVMTypeRef ptr = LLVMPointerTypeInContext(b->e->context, 0);
    const struct eider_layout *l = b->layout;
    for (uint32_t s = 0; s < b->slots.n; s++)
        params[s] = (struct eider_kernel_param){.name = "", .type = b->index};
    for (uint32_t i = 0; i < l->n_operands; i++) {
        const struct eider_layout_operand *o = &l->operands[i];
        params[i].name = b->program->graph->operands[i].name;
        params[i].type = o->kind == EIDER_SCALAR ? eider_emit_storage(b->e, o->type) : ptr;
        params[i].is_read = o->kind == EIDER_INPUT;
        params[i].align = (uint32_t)eider_dtype_size(o->type);
    }
    params[b->slots.count].name = "count";
    params[b->slots.flags] = (struct eider_kernel_param){.name = "flags", .type = b->i32};
    for (int d = 1; d < l->rank; d++) params[b->slots.extent[d]].name = "extent";
    for (int d = 1; d < l->rank && b->c.index_bits == 32; d++) {
        params[b->slots.magic[d]].name = "magic";
        params[b->slots.shift[d]].name = "shift";
    }
    for (uint32_t i = 0; i < l->n_operands; i++)
        for (int d = 0; d < l->rank; d++)
            if (b->slots.stride[i][d] != EIDER_MAP_NO_SLOT)
                params[b->slots.stride[i][d]].name = "stride";
}

/* Decides whether vectors are computed in pairs.  Rewriting may have made another program
 * of it since the layout said yes; and f32 that flushes would flush bf16 results. */
static void choose_pairs(struct build *b, uint8_t *states, LLVMValueRef *nodes)
{
    eider_dtype type = operand_at(b, 0)->type;
    if (!b->c.packed || b->c.vec < 2 || (b->e->ftz && type == EIDER_BF16)) return;
    if (!eider_map_packed_fits(b->program->graph, type, states)) return;
    b->states = states;
    b->nodes = nodes;
}

/* Scalars, and inputs that repeat along every dimension: read once, before all stores.
 * No output can share memory with such an input (map_overlap.c). */
static void load_fixed(struct build *b)
{
    for (uint32_t i = 0; i < b->layout->n_operands; i++) {
        const struct eider_layout_operand *o = operand_at(b, i);
        int repeats = o->kind == EIDER_INPUT;
        for (int d = 0; d < b->layout->rank; d++)
            if (o->stride_class[d]) repeats = 0;
        LLVMValueRef value = param(b, i);
        eider_lines_set(b->e, EIDER_LINE_LOAD, i);
        if (repeats) {
            value = LLVMBuildLoad2(b->e->builder, eider_emit_storage(b->e, o->type), value, "");
            LLVMSetAlignment(value, (unsigned)size_at(b, i));
        }
        if (!repeats && o->kind != EIDER_SCALAR) continue;
        eider_lines_turn(b->e, EIDER_LINE_CONVERT);
        b->fixed[i] = b->machine->splat(b->e, o->type, value);
        b->e->width = 1;
        b->fixed_one[i] = b->machine->splat(b->e, o->type, value);
        b->e->width = b->width;
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* Whether all of `needed` is set in the launch's flags. */
static LLVMValueRef flags_have(struct build *b, unsigned needed)
{
    LLVMValueRef mask = number(b->i32, needed);
    LLVMValueRef set = LLVMBuildAnd(b->e->builder, param(b, b->slots.flags), mask, "");
    return LLVMBuildICmp(b->e->builder, LLVMIntEQ, set, mask, "");
}

/* Stores that stream come with a second body for outputs that are not aligned for them. */
static int has_stream_body(struct build *b)
{
    int streams = b->c.store == EIDER_STORE_CS || b->c.store == EIDER_STORE_FIRST;
    return streams && b->machine->streams_aligned;
}

static void read_flags(struct build *b)
{
    unsigned needed = EIDER_MAP_EVEN;
    if (b->machine->needs_alignment) needed |= EIDER_MAP_ALIGNED;
    /* The read-only path does not see what the kernel itself stores. */
    if (b->c.load == EIDER_LOAD_NC) needed |= EIDER_MAP_APART;
    b->vectors_ok = flags_have(b, needed);
    if (has_stream_body(b)) b->stream_ok = flags_have(b, needed | EIDER_MAP_STREAM);
}

/* Takes the tile as vectors and goes to `next`, if `condition`; else the builder goes on. */
static void build_vectors_if(struct build *b, LLVMValueRef condition, LLVMValueRef tile,
                             enum eider_store_policy policy, LLVMBasicBlockRef next)
{
    LLVMBasicBlockRef vectors = new_block(b, "vectors"), otherwise = new_block(b, "otherwise");
    LLVMBuildCondBr(b->e->builder, condition, vectors, otherwise);
    LLVMPositionBuilderAtEnd(b->e->builder, vectors);
    build_vectors(b, tile, policy);
    LLVMBuildBr(b->e->builder, next);
    LLVMPositionBuilderAtEnd(b->e->builder, otherwise);
}

static void build_tile(struct build *b, LLVMValueRef tile)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMBasicBlockRef next = new_block(b, "next");
    LLVMValueRef left = LLVMBuildSub(ir, b->count, tile, "");
    LLVMValueRef size = number(b->index, eider_map_tile(&b->c));
    LLVMValueRef whole = LLVMBuildICmp(ir, LLVMIntUGE, left, size, "");
    enum eider_store_policy policy = b->c.store;
    if (has_stream_body(b)) {
        build_vectors_if(b, LLVMBuildAnd(ir, whole, b->stream_ok, ""), tile, policy, next);
        policy = EIDER_STORE_WB;
        eider_lines_tail(b->e, 1);
    }
    build_vectors_if(b, LLVMBuildAnd(ir, whole, b->vectors_ok, ""), tile, policy, next);
    eider_lines_tail(b->e, 1);
    if (b->e->status == EIDER_OK) build_elements(b, tile);
    LLVMBuildBr(ir, next);
    eider_lines_tail(b->e, 0);
    LLVMPositionBuilderAtEnd(ir, next);
}

static void build_tiles(struct build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    int64_t tile = eider_map_tile(&b->c);
    LLVMValueRef begin = times(b, b->machine->block_index(b->e), tile * b->c.tiles);
    begin = LLVMBuildIntCast2(ir, begin, b->index, 0, "");
    if (b->c.tiles == 1) {
        build_tile(b, begin);
        return;
    }
    LLVMValueRef end = plus(b, begin, number(b->index, tile * b->c.tiles));
    LLVMValueRef stop = LLVMBuildSelect(ir, less(b, end, b->count), end, b->count, "");
    LLVMBasicBlockRef before = LLVMGetInsertBlock(ir);
    LLVMBasicBlockRef loop = new_block(b, "tile"), done = new_block(b, "done");
    LLVMBuildBr(ir, loop);
    LLVMPositionBuilderAtEnd(ir, loop);
    LLVMValueRef here = LLVMBuildPhi(ir, b->index, "");
    build_tile(b, here);
    LLVMValueRef next = plus(b, here, number(b->index, tile));
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(ir);
    eider_emit_keep_loop(b->e, LLVMBuildCondBr(ir, less(b, next, stop), loop, done));
    LLVMAddIncoming(here, &begin, &before, 1);
    LLVMAddIncoming(here, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(ir, done);
}

static void build_kernel(struct build *b, struct eider_kernel_param *params, const char *name)
{
    declare_params(b, params);
    b->machine->kernel_begin(b->e, name, params, b->slots.n, (uint32_t)b->c.block);
    if (b->e->status == EIDER_OK) {
        b->thread = b->machine->thread_index(b->e);
        b->count = param(b, b->slots.count);
        load_fixed(b);
        read_flags(b);
        build_tiles(b);
    }
    b->machine->kernel_end(b->e);
}

/* Memory that a build needs. */
struct scratch {
    struct eider_kernel_param *params;
    LLVMValueRef *packs, *nodes;
    uint8_t *states;
};

static int get_scratch(struct build *b, struct scratch *out)
{
    const eider_allocator *a = b->e->allocator;
    size_t in_flight = (size_t)(b->c.vec / b->width * b->c.unroll);
    size_t n_cells = b->program->graph->n_cells;
    if (in_flight < ELEMENTS_IN_FLIGHT) in_flight = ELEMENTS_IN_FLIGHT;
    size_t n_packs = in_flight * b->layout->n_operands;
    out->params = eider_mem_zero(a, b->slots.n * sizeof *out->params);
    out->packs = eider_mem_zero(a, n_packs * sizeof *out->packs);
    out->nodes = eider_mem_zero(a, n_cells * sizeof *out->nodes);
    out->states = eider_mem_zero(a, n_cells);
    return out->params && out->packs && out->nodes && out->states;
}

void eider_map_build(struct eider_emit *e, const struct eider_lowered *program,
                     const struct eider_layout *layout, const struct eider_config *config,
                     const char *name)
{
    struct build b = {.e = e,
                      .machine = e->machine,
                      .program = program,
                      .layout = layout,
                      .c = eider_map_config_of(config)};
    struct scratch scratch;
    e->width = e->machine->width(e);
    if (e->width > b.c.vec) e->width = b.c.vec;
    b.width = e->width;
    b.i8 = LLVMInt8TypeInContext(e->context);
    b.i32 = LLVMInt32TypeInContext(e->context);
    b.i64 = LLVMInt64TypeInContext(e->context);
    b.index = b.c.index_bits == 64 ? b.i64 : b.i32;
    eider_map_slots_of(layout, b.c.index_bits, &b.slots);
    if (get_scratch(&b, &scratch)) {
        b.packs = scratch.packs;
        choose_pairs(&b, scratch.states, scratch.nodes);
        build_kernel(&b, scratch.params, name);
    } else {
        e->status = EIDER_OOM;
    }
    eider_mem_free(e->allocator, scratch.states);
    eider_mem_free(e->allocator, scratch.nodes);
    eider_mem_free(e->allocator, scratch.packs);
    eider_mem_free(e->allocator, scratch.params);
}
