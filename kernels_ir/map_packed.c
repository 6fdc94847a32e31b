/* map_packed.c -- programs that pairs of 16-bit values compute with the same bits.
 *
 * One addition, subtraction or multiplication of f16 or bf16 values in f32, rounded to
 * their type, is what the paired instruction gives: f32 has more than twice their
 * precision, so that rounding twice rounds once.  Two operations without a rounding
 * between them are not, and so are not taken.
 * Invariant: with and without packed=1 a kernel gives the same bits, but for those of NaN.
 */
#include "map.h"

#include "activations.h"

/* What is known of a node's value. */
enum state {
    OTHER, /* not taken */
    RAW,   /* one operation on exact values */
    EXACT  /* a value of the 16-bit type */
};

/* Primitives: ROUNDS takes exact values and gives a raw one; KEEPS commutes with rounding,
 * since rounding is monotonic and odd, and gives what it takes.  The others are not taken. */
enum { ROUNDS = 1, KEEPS };

static const uint8_t kinds[EIDER_OP_COUNT] = {
    [EIDER_OP_add] = ROUNDS, [EIDER_OP_sub] = ROUNDS, [EIDER_OP_mul] = ROUNDS,
    [EIDER_OP_neg] = KEEPS,  [EIDER_OP_abs] = KEEPS,  [EIDER_OP_max] = KEEPS,
    [EIDER_OP_min] = KEEPS,  [EIDER_OP_fmax] = KEEPS, [EIDER_OP_fmin] = KEEPS,
};

static int is_half(eider_dtype type)
{
    return type == EIDER_F16 || type == EIDER_BF16;
}

/* Whether a literal is a value of the type: 11 or 8 bits of precision, in a range that both
 * types have as normal numbers. */
static int is_value(double v, eider_dtype type)
{
    double scale = type == EIDER_F16 ? 1024 : 128, magnitude = v < 0 ? -v : v;
    if (v == 0) return 1;
    if (!(magnitude >= 1.0 / 8192 && magnitude <= 32768)) return 0;
    while (magnitude >= 2) magnitude /= 2;
    while (magnitude < 1) magnitude *= 2;
    return magnitude * scale == (double)(int)(magnitude * scale);
}

static enum state state_of(const struct eider_graph *g, eider_node id, eider_dtype type,
                           const uint8_t *states)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    switch (cell->op) {
    case EIDER_OP_input:
        return EXACT;
    case EIDER_OP_number:
        return is_value(eider_cell_number(cell), type) ? EXACT : OTHER;
    case EIDER_OP_integer:
        return is_value((double)(int64_t)cell->payload, type) ? EXACT : OTHER;
    case EIDER_OP_cast:
    case EIDER_OP_cast_nan:
        return cell->payload == (uint64_t)type && states[args[0]] != OTHER ? EXACT : OTHER;
    default:
        break;
    }
    if (!kinds[cell->op]) return OTHER;
    enum state worst = EXACT;
    for (uint32_t k = 0; k < cell->n_args; k++)
        if (states[args[k]] < worst) worst = (enum state)states[args[k]];
    if (kinds[cell->op] == KEEPS) return worst;
    return worst == EXACT ? RAW : OTHER;
}

int eider_map_packed_fits(const struct eider_graph *g, eider_dtype type, uint8_t *states)
{
    states[0] = OTHER;
    for (eider_node id = 1; id < g->n_cells; id++)
        states[id] = (uint8_t)state_of(g, id, type, states);
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_OUTPUT && states[g->operands[i].node] == OTHER) return 0;
    return 1;
}

eider_status eider_map_packed_takes(const struct eider_graph *program,
                                    const struct eider_layout *layout, int *out)
{
    struct eider_graph *g;
    *out = 0;
    for (uint32_t i = 0; i < layout->n_operands; i++) {
        const struct eider_layout_operand *o = &layout->operands[i];
        int inner = o->stride_class[layout->rank - 1];
        if (o->kind == EIDER_SCALAR || inner != 1 || !is_half(o->type)) return EIDER_OK;
        if (o->type != layout->operands[0].type) return EIDER_OK;
    }
    EIDER_TRY(eider_activation_expand(program, &g));
    uint8_t *states = eider_mem_alloc(&program->allocator, g->n_cells);
    if (states) *out = eider_map_packed_fits(g, layout->operands[0].type, states);
    eider_status status = states ? EIDER_OK : EIDER_OOM;
    eider_mem_free(&program->allocator, states);
    eider_graph_destroy(g);
    return status;
}

/* ---- IR ------------------------------------------------------------------ */

/* Two copies of a literal as a word. */
static LLVMValueRef literal(struct eider_emit *e, eider_dtype type, double value)
{
    LLVMTypeRef one =
        type == EIDER_F16 ? LLVMHalfTypeInContext(e->context) : LLVMBFloatTypeInContext(e->context);
    LLVMValueRef pair = eider_emit_real(LLVMVectorType(one, 2), value);
    return LLVMConstBitCast(pair, LLVMInt32TypeInContext(e->context));
}

static LLVMValueRef lower_node(struct eider_emit *e, const struct eider_graph *g, eider_node id,
                               eider_dtype type, const LLVMValueRef *nodes,
                               const LLVMValueRef *packs)
{
    const struct eider_cell *cell = &g->cells[id];
    LLVMValueRef args[2] = {NULL, NULL};
    for (uint32_t k = 0; k < cell->n_args && k < 2; k++)
        args[k] = nodes[eider_graph_args(g, id)[k]];
    switch (cell->op) {
    case EIDER_OP_input:
        return packs[cell->payload];
    case EIDER_OP_number:
        return literal(e, type, eider_cell_number(cell));
    case EIDER_OP_integer:
        return literal(e, type, (double)(int64_t)cell->payload);
    case EIDER_OP_cast:
    case EIDER_OP_cast_nan:
        return args[0];
    default:
        return e->machine->pair(e, (enum eider_op)cell->op, type, args);
    }
}

void eider_map_packed_lower(struct eider_emit *e, const struct eider_graph *g, eider_dtype type,
                            const uint8_t *states, LLVMValueRef *nodes, LLVMValueRef *packs)
{
    for (eider_node id = 1; id < g->n_cells && e->status == EIDER_OK; id++)
        if (states[id] != OTHER) {
            eider_lines_set(e, EIDER_LINE_NODE, id);
            LLVMValueRef mark = eider_emit_mark(e);
            nodes[id] = lower_node(e, g, id, type, nodes, packs);
            eider_emit_count(e, mark);
        }
    eider_lines_set(e, EIDER_LINE_ADDRESS, 0);
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (g->operands[i].kind == EIDER_OUTPUT) packs[i] = nodes[g->operands[i].node];
}
