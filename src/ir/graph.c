/* graph.c -- see graph.h.
 *
 * Adding is transactional: a node is either in the arrays and the index, or the graph
 * is as before and `status` says why.
 */
#include "graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "activations.h"
#include "ops.h"
#include "syntax.h"

#define INDEX_SIZE_FIRST 256u

eider_status eider_graph_create(const eider_allocator *a, struct eider_graph **out)
{
    struct eider_graph *g = eider_mem_zero(a, sizeof *g);
    if (!g) return EIDER_OOM;
    g->allocator = *a;
    eider_graph_put(g, EIDER_OP_poison, NULL, 0, 0);
    if (g->status != EIDER_OK) {
        eider_graph_destroy(g);
        return EIDER_OOM;
    }
    *out = g;
    return EIDER_OK;
}

void eider_graph_destroy(struct eider_graph *g)
{
    if (!g) return;
    eider_allocator a = g->allocator;
    eider_mem_free(&a, g->cells);
    eider_mem_free(&a, g->args);
    eider_mem_free(&a, g->index);
    eider_mem_free(&a, g->origins);
    eider_mem_free(&a, g);
}

eider_node eider_graph_fail(struct eider_graph *g, eider_status status, const char *format, ...)
{
    if (g->status != EIDER_OK) return 0;
    char message[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    g->status = eider_fail_text(status, message);
    return 0;
}

/* ---- The index ---------------------------------------------------------- */

static uint64_t hash_node(const struct eider_cell *cell, const eider_node *args)
{
    uint64_t head[2] = {((uint64_t)cell->op << 32) | cell->n_args, cell->payload};
    uint64_t seed = XXH3_64bits(head, sizeof head);
    return XXH3_64bits_withSeed(args, cell->n_args * sizeof *args, seed);
}

static uint32_t *slot_of(const struct eider_graph *g, const struct eider_cell *cell,
                         const eider_node *args)
{
    uint32_t mask = g->index_size - 1;
    uint32_t at = (uint32_t)hash_node(cell, args) & mask;
    for (;; at = (at + 1) & mask) {
        uint32_t id = g->index[at];
        if (id == 0) return &g->index[at];
        const struct eider_cell *have = &g->cells[id];
        if (have->op == cell->op && have->n_args == cell->n_args &&
            have->payload == cell->payload &&
            memcmp(g->args + have->first_arg, args, cell->n_args * sizeof *args) == 0)
            return &g->index[at];
    }
}

static int grow(struct eider_graph *g, void **array, uint32_t *room, uint32_t need, size_t bytes)
{
    if (need <= *room) return 1;
    uint32_t more = *room ? *room * 2 : 64;
    while (more < need) more *= 2;
    void *grown = eider_mem_resize(&g->allocator, *array, more * bytes);
    if (!grown) {
        g->status = EIDER_OOM;
        return 0;
    }
    *array = grown;
    *room = more;
    return 1;
}

static int grow_index(struct eider_graph *g)
{
    if (g->index_size && g->n_cells * 2 < g->index_size) return 1;
    uint32_t size = g->index_size ? g->index_size * 2 : INDEX_SIZE_FIRST;
    uint32_t *index = eider_mem_zero(&g->allocator, size * sizeof *index);
    if (!index) {
        g->status = EIDER_OOM;
        return 0;
    }
    eider_mem_free(&g->allocator, g->index);
    g->index = index;
    g->index_size = size;
    for (uint32_t id = 1; id < g->n_cells; id++)
        *slot_of(g, &g->cells[id], g->args + g->cells[id].first_arg) = id;
    return 1;
}

static int has_poison(const eider_node *args, uint32_t n_args)
{
    for (uint32_t i = 0; i < n_args; i++)
        if (args[i] == 0) return 1;
    return 0;
}

eider_node eider_graph_put(struct eider_graph *g, enum eider_op op, const eider_node *args,
                           uint32_t n_args, uint64_t payload)
{
    static const eider_node none[1];
    if (g->status != EIDER_OK || has_poison(args, n_args)) return 0;
    if (g->n_cells >= EIDER_NODES_MAX)
        return eider_graph_fail(g, EIDER_TOO_LARGE, "the program needs more than %u nodes",
                                EIDER_NODES_MAX);
    if (!grow(g, (void **)&g->cells, &g->room_cells, g->n_cells + 1, sizeof *g->cells) ||
        !grow(g, (void **)&g->args, &g->room_args, g->n_args + n_args + 1, sizeof *g->args) ||
        !grow(g, (void **)&g->origins, &g->room_origins, g->n_cells + 1, sizeof *g->origins) ||
        !grow_index(g))
        return 0;
    struct eider_cell cell = {(uint16_t)op, (uint16_t)n_args, g->n_args, payload};
    uint32_t *slot = slot_of(g, &cell, n_args ? args : none);
    if (*slot) return *slot;
    if (n_args) memcpy(g->args + g->n_args, args, n_args * sizeof *args);
    g->n_args += n_args;
    g->cells[g->n_cells] = cell;
    g->origins[g->n_cells] = g->origin;
    if (op != EIDER_OP_poison) *slot = g->n_cells;
    return g->n_cells++;
}

eider_node eider_graph_number(struct eider_graph *g, double value)
{
    if (isnan(value)) value = NAN; /* one NaN, so that text keeps it */
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return eider_graph_put(g, EIDER_OP_number, NULL, 0, bits);
}

eider_node eider_graph_integer(struct eider_graph *g, int64_t value)
{
    return eider_graph_put(g, EIDER_OP_integer, NULL, 0, (uint64_t)value);
}

eider_node eider_graph_unary(struct eider_graph *g, enum eider_op op, eider_node a)
{
    return eider_graph_put(g, op, &a, 1, 0);
}

eider_node eider_graph_binary(struct eider_graph *g, enum eider_op op, eider_node a, eider_node b)
{
    eider_node args[2] = {a, b};
    return eider_graph_put(g, op, args, 2, 0);
}

eider_node eider_graph_ternary(struct eider_graph *g, enum eider_op op, eider_node a, eider_node b,
                               eider_node c)
{
    eider_node args[3] = {a, b, c};
    return eider_graph_put(g, op, args, 3, 0);
}

/* ---- Operands ----------------------------------------------------------- */

static int is_name(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return *name && strchr(first, *name) && name[strspn(name, rest)] == '\0';
}

const struct eider_graph_operand *eider_graph_find(const struct eider_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_operands; i++)
        if (strcmp(g->operands[i].name, name) == 0) return &g->operands[i];
    return NULL;
}

static struct eider_graph_operand *declare(struct eider_graph *g, const char *name,
                                           eider_operand_kind kind, int32_t type)
{
    if (g->status != EIDER_OK) return NULL;
    if (!name || !is_name(name) || strlen(name) >= EIDER_NAME_BYTES) {
        eider_graph_fail(g, EIDER_BAD_ARG,
                         "'%.80s' is not a name of 1 to %d letters, digits "
                         "and '_'",
                         name ? name : "", EIDER_NAME_BYTES - 1);
        return NULL;
    }
    if (eider_syntax_reserved(name, strlen(name))) {
        eider_graph_fail(g, EIDER_BAD_ARG, "'%s' is a word of the language, not a name", name);
        return NULL;
    }
    if (type != -1 && !eider_dtype_name((eider_dtype)type)) {
        eider_graph_fail(g, EIDER_BAD_ARG, "%s: %d is not an element type", name, (int)type);
        return NULL;
    }
    if (eider_graph_find(g, name)) {
        eider_graph_fail(g, EIDER_BAD_ARG, "the operand '%s' is declared twice", name);
        return NULL;
    }
    if (g->n_operands == EIDER_OPERANDS_MAX) {
        eider_graph_fail(g, EIDER_TOO_LARGE, "the program has more than %d operands",
                         EIDER_OPERANDS_MAX);
        return NULL;
    }
    struct eider_graph_operand *operand = &g->operands[g->n_operands];
    *operand = (struct eider_graph_operand){.kind = kind, .type = type};
    memcpy(operand->name, name, strlen(name) + 1);
    return operand;
}

static eider_node declare_leaf(struct eider_graph *g, const char *name, eider_operand_kind kind,
                               int32_t type, enum eider_op op)
{
    if (g->n_operands && g->operands[g->n_operands - 1].kind == EIDER_OUTPUT)
        return eider_graph_fail(g, EIDER_BAD_ARG,
                                "'%.80s': inputs and scalars are declared before outputs", name);
    struct eider_graph_operand *operand = declare(g, name, kind, type);
    if (!operand) return 0;
    operand->node = eider_graph_put(g, op, NULL, 0, g->n_operands);
    if (operand->node) g->n_operands++;
    return operand->node;
}

eider_node eider_graph_input(struct eider_graph *g, const char *name, int32_t type)
{
    return declare_leaf(g, name, EIDER_INPUT, type, EIDER_OP_input);
}

eider_node eider_graph_input_of(struct eider_graph *g, const char *name, int32_t type,
                                eider_extent extent)
{
    eider_node leaf = eider_graph_input(g, name, type);
    if (leaf) g->operands[g->n_operands - 1].extent = extent;
    return leaf;
}

eider_node eider_graph_scalar(struct eider_graph *g, const char *name, int32_t type)
{
    return declare_leaf(g, name, EIDER_SCALAR, type, EIDER_OP_scalar);
}

eider_node eider_graph_output(struct eider_graph *g, const char *name, eider_node value,
                              int32_t type)
{
    if (value == 0) return 0;
    struct eider_graph_operand *operand = declare(g, name, EIDER_OUTPUT, type);
    if (!operand) return 0;
    operand->node = value;
    g->n_operands++;
    return value;
}

/* ---- Whole graphs ------------------------------------------------------- */

/* Whether node `id` asks if `value`, or its absolute value, is infinite. */
static int asks_infinity(const struct eider_graph *g, eider_node id, eider_node value)
{
    if (g->cells[id].op != EIDER_OP_eq) return 0;
    for (uint32_t k = 0; k < 2; k++) {
        eider_node a = eider_graph_args(g, id)[k], other = eider_graph_args(g, id)[1 - k];
        double literal;
        if (g->cells[a].op == EIDER_OP_abs) a = eider_graph_args(g, a)[0];
        if (a == value && eider_cell_literal(&g->cells[other], &literal) && isinf(literal))
            return 1;
    }
    return 0;
}

eider_node eider_graph_largest_in(const struct eider_graph *g, eider_node reference, eider_node a)
{
    const eider_node *args = eider_graph_args(g, reference);
    eider_node most = reference;
    double number;
    if (g->cells[reference].op == EIDER_OP_select) {
        most = args[2];
        if (!eider_cell_literal(&g->cells[args[1]], &number) || !asks_infinity(g, args[0], most))
            return 0;
    }
    int is = g->cells[most].op == EIDER_OP_rmax || g->cells[most].op == EIDER_OP_amax;
    return is && eider_graph_args(g, most)[0] == a ? most : 0;
}

void eider_graph_live(const struct eider_graph *g, uint8_t *live)
{
    memset(live, 0, g->n_cells);
    for (uint32_t i = 0; i < g->n_operands; i++) live[g->operands[i].node] = 1;
    for (uint32_t id = g->n_cells; id-- > 1;) {
        if (!live[id]) continue;
        const eider_node *args = eider_graph_args(g, id);
        for (uint32_t k = 0; k < g->cells[id].n_args; k++) live[args[k]] = 1;
    }
}

static eider_status copy_cells(const struct eider_graph *from, struct eider_graph *to,
                               const uint8_t *live, eider_node *map)
{
    for (uint32_t id = 1; id < from->n_cells; id++) {
        if (!live[id]) continue;
        const struct eider_cell *cell = &from->cells[id];
        const eider_node *args = eider_graph_args(from, id);
        eider_node mapped[EIDER_CALL_ARGS_MAX];
        for (uint32_t k = 0; k < cell->n_args; k++) mapped[k] = map[args[k]];
        to->origin = from->origins[id];
        map[id] = eider_graph_put(to, (enum eider_op)cell->op, mapped, cell->n_args, cell->payload);
    }
    memcpy(to->operands, from->operands, sizeof to->operands);
    to->n_operands = from->n_operands;
    for (uint32_t i = 0; i < to->n_operands; i++)
        to->operands[i].node = map[from->operands[i].node];
    return to->status;
}

eider_status eider_graph_copy(const struct eider_graph *from, struct eider_graph **out)
{
    struct eider_graph *to = NULL;
    uint8_t *live = eider_mem_alloc(&from->allocator, from->n_cells);
    eider_node *map = eider_mem_zero(&from->allocator, from->n_cells * sizeof *map);
    eider_status status = live && map ? eider_graph_create(&from->allocator, &to) : EIDER_OOM;
    if (status == EIDER_OK) {
        eider_graph_live(from, live);
        status = copy_cells(from, to, live, map);
    }
    eider_mem_free(&from->allocator, live);
    eider_mem_free(&from->allocator, map);
    if (status != EIDER_OK) {
        eider_graph_destroy(to);
        return status;
    }
    *out = to;
    return EIDER_OK;
}

/* ---- Comparison --------------------------------------------------------- */

/* Names, not numbers: a row added to a table changes no hash. */
static uint64_t hash_meaning(const struct eider_cell *cell)
{
    const char *op = eider_ops[cell->op].name;
    uint64_t seed = XXH3_64bits(op, strlen(op));
    if (cell->op != EIDER_OP_call) return XXH3_64bits_withSeed(&cell->payload, 8, seed);
    const char *name = eider_activation_row(cell->payload)->name;
    return XXH3_64bits_withSeed(name, strlen(name), seed);
}

/* Hashes of nodes come from hashes of their operands, so ids do not matter. */
static XXH128_hash_t hash_tree(const struct eider_graph *g, eider_node id,
                               const XXH128_hash_t *known)
{
    const struct eider_cell *cell = &g->cells[id];
    const eider_node *args = eider_graph_args(g, id);
    XXH128_hash_t parts[EIDER_CALL_ARGS_MAX];
    for (uint32_t k = 0; k < cell->n_args; k++) parts[k] = known[args[k]];
    return XXH3_128bits_withSeed(parts, cell->n_args * sizeof *parts, hash_meaning(cell));
}

struct eider_hash eider_graph_hash(const struct eider_graph *g)
{
    struct eider_hash hash = {0, 0};
    XXH128_hash_t *known = eider_mem_alloc(&g->allocator, g->n_cells * sizeof *known);
    if (!known) return hash;
    for (eider_node id = 1; id < g->n_cells; id++) known[id] = hash_tree(g, id, known);
    for (uint32_t i = 0; i < g->n_operands; i++) {
        const struct eider_graph_operand *operand = &g->operands[i];
        XXH128_hash_t name = XXH3_128bits(operand->name, strlen(operand->name));
        XXH128_hash_t node = known[operand->node];
        uint64_t kind = (uint64_t)operand->kind | (uint64_t)operand->extent << 8 |
                        (uint64_t)operand->is_full << 16;
        uint64_t parts[] = {hash.low,    hash.high,  name.low64,
                            name.high64, kind,       (uint64_t)operand->type,
                            node.low64,  node.high64};
        XXH128_hash_t next = XXH3_128bits(parts, sizeof parts);
        hash = (struct eider_hash){next.low64, next.high64};
    }
    eider_mem_free(&g->allocator, known);
    return hash;
}

/* The node of `b` that node `id` of `a` stands for, or 0. */
static eider_node counterpart(const struct eider_graph *a, eider_node id,
                              const struct eider_graph *b, const eider_node *map)
{
    const struct eider_cell *cell = &a->cells[id];
    const eider_node *args = eider_graph_args(a, id);
    eider_node mapped[EIDER_CALL_ARGS_MAX];
    for (uint32_t k = 0; k < cell->n_args; k++) {
        mapped[k] = map[args[k]];
        if (!mapped[k]) return 0;
    }
    return *slot_of(b, cell, mapped);
}

static int same_operands(const struct eider_graph *a, const struct eider_graph *b,
                         const eider_node *map)
{
    if (a->n_operands != b->n_operands) return 0;
    for (uint32_t i = 0; i < a->n_operands; i++) {
        const struct eider_graph_operand *x = &a->operands[i], *y = &b->operands[i];
        if (x->kind != y->kind || x->type != y->type || x->extent != y->extent ||
            x->is_full != y->is_full || strcmp(x->name, y->name) != 0 || map[x->node] != y->node)
            return 0;
    }
    return 1;
}

int eider_graph_equal(const struct eider_graph *a, const struct eider_graph *b)
{
    eider_node *map = eider_mem_zero(&a->allocator, a->n_cells * sizeof *map);
    if (!map) return 0;
    for (eider_node id = 1; id < a->n_cells; id++) map[id] = counterpart(a, id, b, map);
    int equal = same_operands(a, b, map);
    eider_mem_free(&a->allocator, map);
    return equal;
}
