/* print.c -- graph to text.
 *
 * Invariant: the text parses to an equal graph; the same graph gives the same text.
 * A node has a name when it is an output, is used more than once, is a result of a call of
 * several, or lies so deep that its expression would near the parser's limit.  Names that
 * are no output's are t1, t2, ...  What the parser would infer by itself is not declared.
 */
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "parse.h"
#include "syntax.h"

/* Height of an expression at which it gets a name; each level may add a parenthesis. */
#define HEIGHT_MAX 48

_Static_assert(HEIGHT_MAX * 3 < EIDER_DEPTH_MAX, "a call, a parenthesis and a sign per level");

struct mark {
    uint32_t uses;   /* by other nodes, `result` nodes not counted */
    uint32_t height; /* of the expression that would be written in its place */
    int32_t name;    /* 0 none; above 0: t<name>; below: operand -name - 1 */
};

struct printer {
    const struct eider_graph *g;
    struct eider_text body;
    struct mark *marks;
    uint8_t *live;
    uint32_t order[EIDER_OPERANDS_MAX]; /* operands as the body first names them */
    uint32_t n_order;
    uint8_t seen[EIDER_OPERANDS_MAX];
    int32_t temporaries;
    int declare_outputs;
};

static void show(struct printer *p, eider_node id, int level);

/* ---- Names ---------------------------------------------------------------- */

static int is_leaf(const struct printer *p, eider_node id)
{
    return p->g->cells[id].n_args == 0;
}

/* true and false, which are comparisons of a literal with itself. */
static const char *truth(const struct printer *p, eider_node id)
{
    const struct eider_cell *cell = &p->g->cells[id];
    if (cell->op != EIDER_OP_eq && cell->op != EIDER_OP_ne) return NULL;
    const eider_node *args = eider_graph_args(p->g, id);
    const struct eider_cell *zero = &p->g->cells[args[0]];
    if (args[0] != args[1] || zero->op != EIDER_OP_integer || zero->payload != 0) return NULL;
    return cell->op == EIDER_OP_eq ? "true" : "false";
}

static int n_results(const struct printer *p, eider_node id)
{
    const struct eider_cell *cell = &p->g->cells[id];
    return cell->op == EIDER_OP_call ? eider_activation_n_results(cell->payload) : 1;
}

static void count_uses(struct printer *p)
{
    for (eider_node id = 1; id < p->g->n_cells; id++) {
        const struct eider_cell *cell = &p->g->cells[id];
        const eider_node *args = eider_graph_args(p->g, id);
        if (!p->live[id] || cell->op == EIDER_OP_result) continue;
        for (uint32_t k = 0; k < cell->n_args; k++) p->marks[args[k]].uses++;
    }
}

static int32_t next_temporary(struct printer *p)
{
    char name[16];
    do snprintf(name, sizeof name, "t%d", ++p->temporaries);
    while (eider_graph_find(p->g, name));
    return p->temporaries;
}

/* Names the nodes of outputs; an output whose node has a name already, or is a leaf, is
 * assigned at the end. */
static void name_outputs(struct printer *p)
{
    for (uint32_t i = 0; i < p->g->n_operands; i++) {
        const struct eider_graph_operand *o = &p->g->operands[i];
        if (o->kind != EIDER_OUTPUT || is_leaf(p, o->node)) continue;
        if (p->marks[o->node].name == 0) p->marks[o->node].name = -(int32_t)i - 1;
    }
}

static int needs_name(const struct printer *p, eider_node id)
{
    const struct mark *m = &p->marks[id];
    if (p->g->cells[id].op == EIDER_OP_result) return 1;
    if (n_results(p, id) > 1) return m->uses > 0; /* else '_' */
    return (m->uses > 1 && !truth(p, id)) || m->height >= HEIGHT_MAX;
}

static void name_others(struct printer *p)
{
    for (eider_node id = 1; id < p->g->n_cells; id++) {
        const struct eider_cell *cell = &p->g->cells[id];
        struct mark *m = &p->marks[id];
        if (!p->live[id] || is_leaf(p, id)) continue;
        for (uint32_t k = 0; k < cell->n_args; k++) {
            const struct mark *arg = &p->marks[eider_graph_args(p->g, id)[k]];
            if (arg->name == 0 && arg->height >= m->height) m->height = arg->height + 1;
        }
        if (m->name == 0 && needs_name(p, id)) m->name = next_temporary(p);
    }
}

static void show_name(struct printer *p, int32_t name)
{
    if (name > 0)
        eider_text_add(&p->body, "t%d", name);
    else
        eider_text_add(&p->body, "%s", p->g->operands[-name - 1].name);
}

/* ---- Expressions ---------------------------------------------------------- */

static void show_operand(struct printer *p, eider_node id)
{
    uint32_t i = (uint32_t)p->g->cells[id].payload;
    if (!p->seen[i]) p->order[p->n_order++] = i;
    p->seen[i] = 1;
    eider_text_add(&p->body, "%s", p->g->operands[i].name);
}

static int is_negative(const struct eider_cell *cell)
{
    if (cell->op == EIDER_OP_integer) return (int64_t)cell->payload < 0;
    char text[EIDER_NUMBER_BYTES];
    eider_syntax_write(eider_cell_number(cell), text);
    return text[0] == '-';
}

static void show_literal(struct printer *p, eider_node id, int level)
{
    const struct eider_cell *cell = &p->g->cells[id];
    char text[EIDER_NUMBER_BYTES];
    if (cell->op == EIDER_OP_integer)
        snprintf(text, sizeof text, "%lld", (long long)cell->payload);
    else
        eider_syntax_write(eider_cell_number(cell), text);
    int closed = is_negative(cell) && level > EIDER_LEVEL_UNARY;
    eider_text_add(&p->body, closed ? "(%s)" : "%s", text);
}

static void show_list(struct printer *p, const eider_node *args, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        if (k) eider_text_add(&p->body, ", ");
        show(p, args[k], EIDER_LEVEL_OR);
    }
}

/* Leaves out what equals its default; what has one is given by keyword. */
static void show_call(struct printer *p, eider_node id)
{
    const struct eider_cell *cell = &p->g->cells[id];
    const struct eider_activation *row = eider_activation_row(cell->payload);
    const eider_node *args = eider_graph_args(p->g, id);
    struct eider_activation_item item;
    eider_text_add(&p->body, "%s(", row->name);
    for (int k = 0; eider_activation_item(row->params, k, &item); k++) {
        const struct eider_cell *arg = &p->g->cells[args[k]];
        double value = eider_cell_number(arg);
        if (item.has_default && arg->op == EIDER_OP_number &&
            memcmp(&value, &item.value, sizeof value) == 0)
            continue;
        if (k) eider_text_add(&p->body, ", ");
        if (item.has_default) eider_text_add(&p->body, "%.*s=", (int)item.length, item.name);
        show(p, args[k], EIDER_LEVEL_OR);
    }
    eider_text_add(&p->body, ")");
}

/* An operand that would be a literal is written neg(1): -1 is another node. */
static void show_neg(struct printer *p, eider_node id, int level)
{
    eider_node arg = eider_graph_args(p->g, id)[0];
    enum eider_op op = (enum eider_op)p->g->cells[arg].op;
    int literal = op == EIDER_OP_number || op == EIDER_OP_integer;
    int closed = !literal && level > EIDER_LEVEL_UNARY;
    eider_text_add(&p->body, literal ? "neg(" : closed ? "(-" : "-");
    show(p, arg, EIDER_LEVEL_UNARY);
    if (literal || closed) eider_text_add(&p->body, ")");
}

static void show_not(struct printer *p, eider_node id, int level)
{
    int closed = level > EIDER_LEVEL_NOT;
    eider_text_add(&p->body, closed ? "(not " : "not ");
    show(p, eider_graph_args(p->g, id)[0], EIDER_LEVEL_NOT);
    if (closed) eider_text_add(&p->body, ")");
}

static void show_binary(struct printer *p, eider_node id, int level)
{
    const eider_node *args = eider_graph_args(p->g, id);
    enum eider_op op = (enum eider_op)p->g->cells[id].op;
    int binds = (int)eider_syntax_level(op);
    int left = binds == EIDER_LEVEL_COMPARE || binds == EIDER_LEVEL_POWER ? binds + 1 : binds;
    int right = binds == EIDER_LEVEL_POWER ? EIDER_LEVEL_UNARY : binds + 1;
    if (binds < level) eider_text_add(&p->body, "(");
    show(p, args[0], left);
    eider_text_add(&p->body, " %s ", eider_syntax_operator(op));
    show(p, args[1], right);
    if (binds < level) eider_text_add(&p->body, ")");
}

static void show_function(struct printer *p, eider_node id)
{
    const struct eider_cell *cell = &p->g->cells[id];
    int casts = cell->op == EIDER_OP_cast || cell->op == EIDER_OP_cast_nan;
    eider_text_add(&p->body, "%s(", eider_ops[cell->op].text);
    show_list(p, eider_graph_args(p->g, id), cell->n_args);
    if (casts) eider_text_add(&p->body, ", %s", eider_dtype_name((eider_dtype)cell->payload));
    eider_text_add(&p->body, ")");
}

/* The expression of a node, whether or not it has a name. */
static void show_value(struct printer *p, eider_node id, int level)
{
    const char *word = truth(p, id);
    if (word) {
        eider_text_add(&p->body, "%s", word);
        return;
    }
    switch (p->g->cells[id].op) {
    case EIDER_OP_input:
    case EIDER_OP_scalar:
        show_operand(p, id);
        return;
    case EIDER_OP_number:
    case EIDER_OP_integer:
        show_literal(p, id, level);
        return;
    case EIDER_OP_call:
        show_call(p, id);
        return;
    case EIDER_OP_neg:
        show_neg(p, id, level);
        return;
    case EIDER_OP_not:
        show_not(p, id, level);
        return;
    default:
        break;
    }
    if (eider_syntax_level((enum eider_op)p->g->cells[id].op))
        show_binary(p, id, level);
    else
        show_function(p, id);
}

/* A node as an operand of something that binds at `level`.  Recursion ends at names. */
static void show(struct printer *p, eider_node id, int level)
{
    int32_t name = p->marks[id].name;
    if (name == 0) {
        show_value(p, id, level);
        return;
    }
    if (name < 0) p->declare_outputs = 1; /* it is read, and an output all the same */
    show_name(p, name);
}

/* ---- Statements ----------------------------------------------------------- */

/* Records that an output is assigned; out of order, outputs need declarations. */
static void note_output(struct printer *p, uint32_t i, uint32_t *next)
{
    const struct eider_graph *g = p->g;
    while (*next < g->n_operands && g->operands[*next].kind != EIDER_OUTPUT) ++*next;
    if (*next != i || g->operands[i].type != -1 || g->operands[i].is_full) p->declare_outputs = 1;
    ++*next;
}

static eider_node find_result(const struct printer *p, eider_node call, int which)
{
    for (eider_node id = call + 1; id < p->g->n_cells; id++)
        if (p->live[id] && p->g->cells[id].op == EIDER_OP_result &&
            eider_graph_args(p->g, id)[0] == call && p->g->cells[id].payload == (uint64_t)which)
            return id;
    return 0;
}

static void show_targets(struct printer *p, eider_node id, uint32_t *next)
{
    for (int i = 0; i < n_results(p, id); i++) {
        eider_node target = i == 0 ? id : find_result(p, id, i);
        int32_t name = target ? p->marks[target].name : 0;
        if (i) eider_text_add(&p->body, ", ");
        if (name == 0) {
            eider_text_add(&p->body, "_");
            continue;
        }
        if (name < 0) note_output(p, (uint32_t)(-name - 1), next);
        show_name(p, name);
    }
}

static void show_statements(struct printer *p)
{
    uint32_t next = 0;
    for (eider_node id = 1; id < p->g->n_cells; id++) {
        int named = p->marks[id].name != 0 || n_results(p, id) > 1;
        if (!p->live[id] || !named || p->g->cells[id].op == EIDER_OP_result) continue;
        show_targets(p, id, &next);
        eider_text_add(&p->body, " = ");
        show_value(p, id, EIDER_LEVEL_OR);
        eider_text_add(&p->body, "\n");
    }
    for (uint32_t i = 0; i < p->g->n_operands; i++) {
        const struct eider_graph_operand *o = &p->g->operands[i];
        if (o->kind != EIDER_OUTPUT || p->marks[o->node].name == -(int32_t)i - 1) continue;
        note_output(p, i, &next);
        eider_text_add(&p->body, "%s = ", o->name);
        show(p, o->node, EIDER_LEVEL_OR);
        eider_text_add(&p->body, "\n");
    }
}

/* ---- Declarations --------------------------------------------------------- */

/* Whether the parser would find the inputs by itself: all untyped, all read, in order. */
static int needs_inputs(const struct printer *p)
{
    uint32_t i = 0;
    for (; i < p->g->n_operands && p->g->operands[i].kind != EIDER_OUTPUT; i++) {
        const struct eider_graph_operand *o = &p->g->operands[i];
        if (o->kind == EIDER_SCALAR || o->type != -1 || o->extent != EIDER_FULL) return 1;
        if (i >= p->n_order || p->order[i] != i) return 1;
    }
    return 0;
}

static void declare(const struct printer *p, struct eider_text *out)
{
    static const char *const words[] = {"in", "scalar", "out"};
    static const char *const extents[] = {"", " row", " column"};
    int inputs = needs_inputs(p), before = -1;
    for (uint32_t i = 0; i < p->g->n_operands; i++) {
        const struct eider_graph_operand *o = &p->g->operands[i];
        if (!(o->kind == EIDER_OUTPUT ? p->declare_outputs : inputs)) continue;
        int kind = (int)o->kind;
        if (kind == before)
            eider_text_add(out, ", ");
        else
            eider_text_add(out, "%s%s ", before < 0 ? "" : "\n", words[kind]);
        before = kind;
        eider_text_add(out, "%s", o->name);
        if (o->type != -1 || o->extent || o->is_full) eider_text_add(out, ":");
        if (o->type != -1) eider_text_add(out, " %s", eider_dtype_name((eider_dtype)o->type));
        eider_text_add(out, "%s", o->is_full ? " full" : extents[o->extent]);
    }
    if (before >= 0) eider_text_add(out, "\n");
}

/* Everything but the text of statements. */
static eider_status prepare(struct printer *p)
{
    eider_text_init(&p->body, &p->g->allocator);
    p->marks = eider_mem_zero(&p->g->allocator, p->g->n_cells * sizeof *p->marks);
    p->live = eider_mem_zero(&p->g->allocator, p->g->n_cells);
    if (!p->marks || !p->live) return EIDER_OOM;
    eider_graph_live(p->g, p->live);
    count_uses(p);
    name_outputs(p);
    return EIDER_OK;
}

static void finish(struct printer *p)
{
    eider_text_release(&p->body);
    eider_mem_free(&p->g->allocator, p->marks);
    eider_mem_free(&p->g->allocator, p->live);
}

eider_status eider_print(const struct eider_graph *g, char **out)
{
    struct printer p = {.g = g};
    struct eider_text text;
    size_t size;
    eider_text_init(&text, &g->allocator);
    eider_status status = prepare(&p);
    if (status == EIDER_OK) {
        name_others(&p);
        show_statements(&p);
        declare(&p, &text);
        eider_text_bytes(&text, p.body.data, p.body.size);
        status = p.body.status;
    }
    if (status == EIDER_OK) status = eider_text_take(&text, out, &size);
    eider_text_release(&text);
    finish(&p);
    return status;
}

/* ---- Nodes ---------------------------------------------------------------- */

static void name_all(struct printer *p)
{
    for (eider_node id = 1; id < p->g->n_cells; id++)
        if (p->live[id] && !is_leaf(p, id) && p->marks[id].name == 0 && !truth(p, id))
            p->marks[id].name = next_temporary(p);
}

static void show_node(struct printer *p, eider_node id)
{
    uint32_t next = 0;
    int is_result = p->g->cells[id].op == EIDER_OP_result;
    if (!p->live[id] || is_leaf(p, id) || is_result) return;
    if (p->marks[id].name != 0 || n_results(p, id) > 1) {
        show_targets(p, id, &next);
        eider_text_add(&p->body, " = ");
    }
    show_value(p, id, EIDER_LEVEL_OR);
}

eider_status eider_print_nodes(const struct eider_graph *g, int all_named, char **out)
{
    struct printer p = {.g = g};
    size_t size;
    eider_status status = prepare(&p);
    if (status == EIDER_OK) {
        (all_named ? name_all : name_others)(&p);
        for (eider_node id = 0; id < g->n_cells; id++) {
            if (id) show_node(&p, id);
            eider_text_add(&p.body, "\n");
        }
        status = eider_text_take(&p.body, out, &size);
    }
    finish(&p);
    return status;
}
