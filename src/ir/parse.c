/* parse.c -- text to graph: one pass, no tree in between.
 *
 * Invariant: a function of the parser that is entered with a failure does nothing.
 * Two users: whole programs (eider_parse), whose unknown names are inputs and whose calls of
 * activations stay calls, and bodies of activations (eider_parse_body), whose names are all
 * known and whose calls are replaced by their bodies.
 */
#include "parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "functions.h"
#include "lex.h"
#include "ops.h"
#include "programs.h"
#include "syntax.h"

/* Bodies within bodies: the table of activations needs 2. */
#define BODY_DEPTH_MAX 8

/* ---- Names ---------------------------------------------------------------- */

static void copy_name(char *buffer, const char *name, size_t length)
{
    memcpy(buffer, name, length);
    buffer[length] = '\0';
}

/* Whether the token can name a value; fails when it cannot. */
static int check_name(struct eider_parser *p, const char *expected)
{
    const struct eider_token *t = &p->token;
    if (t->kind != EIDER_TOKEN_NAME || eider_syntax_reserved(t->at, t->length))
        eider_lex_fail(p, expected);
    else if (t->length >= EIDER_NAME_BYTES)
        eider_lex_fail(p, "a name of at most 63 bytes");
    return !eider_lex_failed(p);
}

static eider_node declare_leaf(struct eider_parser *p, struct eider_symbol *s)
{
    char name[EIDER_NAME_BYTES];
    copy_name(name, s->at, s->length);
    s->node = s->kind == EIDER_SYMBOL_SCALAR ? eider_graph_scalar(p->g, name, s->type)
                                             : eider_graph_input_of(p->g, name, s->type, s->extent);
    return s->node;
}

/* The value of the name that is the token. */
static eider_node read_name(struct eider_parser *p)
{
    if (!check_name(p, "an operand")) return 0;
    struct eider_symbol *s = eider_scope_find(p, p->token.at, p->token.length);
    if (!s) {
        if (p->body) return eider_lex_fail(p, "a name of this body");
        s = eider_scope_add(p, p->token.at, p->token.length, EIDER_SYMBOL_INPUT);
        if (!s || !declare_leaf(p, s)) return 0;
    }
    if (!s->node) return eider_lex_fail(p, "an operand: this output is not assigned yet");
    s->read = 1;
    eider_node node = s->node;
    eider_lex_advance(p);
    return node;
}

/* ---- Calls ---------------------------------------------------------------- */

static eider_node expression(struct eider_parser *p);

/* What a call names: a primitive, or a row of the activations. */
struct callee {
    struct eider_function is;
    const char *at; /* the name in the text */
    char name[EIDER_NAME_BYTES];
};

static void fail_unknown(struct eider_parser *p, const char *name)
{
    char expected[160];
    const char *near = eider_functions_nearest(name);
    if (near)
        snprintf(expected, sizeof expected, "a function; did you mean '%s'?", near);
    else
        snprintf(expected, sizeof expected, "a function");
    eider_lex_fail(p, expected);
}

/* Reads the name of a function, which is the token. */
static int read_callee(struct eider_parser *p, struct callee *out)
{
    const struct eider_token *t = &p->token;
    size_t length = t->length < EIDER_NAME_BYTES ? t->length : EIDER_NAME_BYTES - 1;
    *out = (struct callee){.at = t->at};
    copy_name(out->name, t->at, length);
    if (length < t->length || !eider_functions_find(out->name, &out->is))
        fail_unknown(p, out->name);
    else
        eider_lex_advance(p);
    return !eider_lex_failed(p);
}

static int32_t type_name(struct eider_parser *p)
{
    for (int type = 0; eider_dtype_name((eider_dtype)type); type++)
        if (eider_lex_accept(p, eider_dtype_name((eider_dtype)type))) return type;
    eider_lex_fail(p, "a type such as f32, f16, bf16, f64, e4m3, e5m2, i32, i64 or bool");
    return -1;
}

static eider_node cast(struct eider_parser *p, enum eider_op op)
{
    eider_node value = expression(p);
    eider_lex_expect(p, ",", "',' and a type");
    int32_t type = type_name(p);
    eider_lex_expect(p, ")", "')'");
    return eider_lex_failed(p) ? 0 : eider_graph_put(p->g, op, &value, 1, (uint64_t)type);
}

/* The parameter that a keyword names, or -1. */
static int keyword(struct eider_parser *p, const struct callee *f)
{
    struct eider_activation_item item;
    const char *params = f->is.op ? "" : eider_activation_row(f->is.row)->params;
    for (int i = 0; eider_activation_item(params, i, &item); i++)
        if (item.length == p->token.length && memcmp(item.name, p->token.at, item.length) == 0)
            return i;
    char expected[160];
    if (f->is.op)
        snprintf(expected, sizeof expected, "an operand: %s has no keywords", f->name);
    else
        snprintf(expected, sizeof expected, "a keyword of %s",
                 eider_activation_signature(f->is.row));
    eider_lex_fail(p, expected);
    return -1;
}

static int at_keyword(struct eider_parser *p)
{
    const char *next = eider_lex_following(p);
    return p->token.kind == EIDER_TOKEN_NAME && next[0] == '=' && next[1] != '=';
}

/* Reads the arguments up to ')'; missing ones are 0.  Returns how many lead without a gap. */
static uint32_t arguments(struct eider_parser *p, const struct callee *f, uint32_t n_max,
                          eider_node *args)
{
    uint32_t n = 0, leading = 0;
    int keywords = 0;
    while (!eider_lex_failed(p) && !eider_lex_is(p, ")")) {
        uint32_t to = n;
        if (at_keyword(p)) {
            int named = keyword(p, f);
            if (named < 0) return 0;
            to = (uint32_t)named;
            if (args[to]) eider_lex_fail(p, "an argument that is not given yet");
            keywords = 1;
            eider_lex_advance(p);
            eider_lex_advance(p);
        } else if (keywords) {
            eider_lex_fail(p, "a keyword, as before");
        }
        if (to >= n_max) {
            char expected[160];
            snprintf(expected, sizeof expected, "')': %s takes %u argument%s", f->name, n_max,
                     n_max == 1 ? "" : "s");
            eider_lex_fail(p, expected);
            return 0;
        }
        args[to] = expression(p);
        n++;
        if (eider_lex_accept(p, ",")) {
            if (eider_lex_is(p, ")")) eider_lex_fail(p, "an operand");
        } else if (!eider_lex_is(p, ")")) {
            eider_lex_fail(p, "',' or ')'");
        }
    }
    while (leading < n_max && args[leading]) leading++;
    return leading;
}

static eider_node call_op(struct eider_parser *p, const struct callee *f)
{
    eider_node args[EIDER_CALL_ARGS_MAX] = {0};
    uint32_t arity = (uint32_t)eider_ops[f->is.op].arity;
    uint32_t n = arguments(p, f, arity, args);
    enum eider_op op = eider_functions_of(f->is.op, n);
    if (eider_lex_failed(p)) return 0;
    if (op == f->is.op && n < arity) {
        char expected[160];
        snprintf(expected, sizeof expected, "',': %s takes %u argument%s", f->name, arity,
                 arity == 1 ? "" : "s");
        return eider_lex_fail(p, expected);
    }
    eider_lex_expect(p, ")", "')'");
    return eider_graph_put(p->g, op, args, n, 0);
}

/* Gives the results of a call node, adding the `result` nodes that it needs. */
static void list_results(struct eider_graph *g, eider_node call, int n, eider_node *results)
{
    results[0] = call;
    for (int i = 1; i < n; i++)
        results[i] = eider_graph_put(g, EIDER_OP_result, &call, 1, (uint64_t)i);
}

/* Fills in defaults and gives the results, as a call or, in a body, as its own body. */
static void apply(struct eider_parser *p, const struct callee *f, eider_node *args, uint32_t n,
                  int n_results, eider_node *results)
{
    struct eider_activation_item item;
    const char *params = eider_activation_row(f->is.row)->params;
    for (uint32_t i = n; eider_activation_item(params, (int)i, &item); i++)
        if (!args[i]) args[i] = eider_graph_number(p->g, item.value);
    if (p->body) {
        eider_parse_body(p->g, f->is.row, args, p->body, results);
        return;
    }
    eider_node call = eider_activation_call(p->g, f->is.row, args,
                                            (uint32_t)eider_activation_n_params(f->is.row));
    list_results(p->g, call, n_results, results);
}

static eider_node call_activation(struct eider_parser *p, const struct callee *f)
{
    eider_node args[EIDER_CALL_ARGS_MAX] = {0}, results[EIDER_RESULTS_MAX] = {0};
    char expected[200];
    int n_results = eider_activation_n_results(f->is.row);
    uint32_t n = arguments(p, f, (uint32_t)eider_activation_n_params(f->is.row), args);
    if (eider_lex_failed(p)) return 0;
    if (n < (uint32_t)eider_activation_n_required(f->is.row)) {
        snprintf(expected, sizeof expected, "all arguments of %s",
                 eider_activation_signature(f->is.row));
        return eider_lex_fail(p, expected);
    }
    eider_lex_expect(p, ")", "')'");
    if (n_results > 1 && p->right_side != f->at) {
        snprintf(expected, sizeof expected, "one value; write %s",
                 eider_activation_signature(f->is.row));
        char found[96];
        snprintf(found, sizeof found, "%s with %d results", f->name, n_results);
        return eider_lex_failed(p) ? 0 : eider_lex_fail_at(p, f->at, found, expected);
    }
    if (n_results > 1 && p->token.kind != EIDER_TOKEN_END && p->token.kind != EIDER_TOKEN_SEPARATOR)
        return eider_lex_fail(p, "the end of the statement: this call has several results");
    apply(p, f, args, n, n_results, results);
    if (n_results > 1) {
        p->n_results = n_results;
        memcpy(p->results, results, sizeof results);
    }
    return results[0];
}

static eider_node call(struct eider_parser *p)
{
    struct callee f;
    if (!read_callee(p, &f)) return 0;
    eider_lex_expect(p, "(", "'('");
    if (f.is.op == EIDER_OP_cast || f.is.op == EIDER_OP_cast_nan) return cast(p, f.is.op);
    return f.is.op ? call_op(p, &f) : call_activation(p, &f);
}

/* ---- Expressions ---------------------------------------------------------- */

static int at_literal(const struct eider_parser *p)
{
    return p->token.kind == EIDER_TOKEN_INTEGER || p->token.kind == EIDER_TOKEN_NUMBER ||
           eider_lex_is(p, "inf") || eider_lex_is(p, "nan");
}

static eider_node literal(struct eider_parser *p, const struct eider_token *t, int negative)
{
    if (t->kind == EIDER_TOKEN_INTEGER) {
        if (t->integer >> 63 && !negative)
            return eider_lex_fail_at(p, t->at, "'9223372036854775808'", "an integer below 2^63");
        uint64_t value = negative ? 0 - t->integer : t->integer;
        return eider_graph_integer(p->g, (int64_t)value);
    }
    double value = t->kind == EIDER_TOKEN_NUMBER ? t->number : *t->at == 'i' ? INFINITY : NAN;
    return eider_graph_number(p->g, negative ? -value : value);
}

/* A bool is a comparison: true is 0 == 0. */
static eider_node truth(struct eider_parser *p, enum eider_op op)
{
    eider_node zero = eider_graph_integer(p->g, 0);
    return eider_graph_binary(p->g, op, zero, zero);
}

static eider_node primary(struct eider_parser *p)
{
    struct eider_token t = p->token;
    if (eider_lex_accept(p, "(")) {
        eider_node inner = expression(p);
        eider_lex_expect(p, ")", "')' or an operator");
        return inner;
    }
    if (at_literal(p)) {
        eider_lex_advance(p);
        return literal(p, &t, 0);
    }
    if (eider_lex_accept(p, "true")) return truth(p, EIDER_OP_eq);
    if (eider_lex_accept(p, "false")) return truth(p, EIDER_OP_ne);
    if (t.kind == EIDER_TOKEN_NAME && *eider_lex_following(p) == '(' &&
        !eider_syntax_reserved(t.at, t.length))
        return call(p);
    return read_name(p);
}

static eider_node unary(struct eider_parser *p);

static eider_node power(struct eider_parser *p, eider_node base)
{
    if (!eider_lex_accept(p, "**")) return base;
    return eider_graph_binary(p->g, EIDER_OP_pow, base, unary(p));
}

/* A minus before a literal belongs to it, unless a power comes first: -2**2 is -4. */
static eider_node negative(struct eider_parser *p)
{
    if (!at_literal(p)) return eider_graph_unary(p->g, EIDER_OP_neg, unary(p));
    struct eider_token t = p->token;
    eider_lex_advance(p);
    if (!eider_lex_is(p, "**")) return literal(p, &t, 1);
    return eider_graph_unary(p->g, EIDER_OP_neg, power(p, literal(p, &t, 0)));
}

static int enter(struct eider_parser *p)
{
    if (++p->depth <= EIDER_DEPTH_MAX) return 1;
    eider_lex_fail(p, "at most 256 levels of nesting");
    return 0;
}

static eider_node unary(struct eider_parser *p)
{
    eider_node node = 0;
    if (enter(p)) node = eider_lex_accept(p, "-") ? negative(p) : power(p, primary(p));
    p->depth--;
    return node;
}

static eider_node binary(struct eider_parser *p, int level);

static eider_node first_operand(struct eider_parser *p, int level)
{
    if (level > EIDER_LEVEL_NOT || !eider_lex_is(p, "not")) return unary(p);
    eider_node node = 0;
    if (enter(p)) {
        eider_lex_advance(p);
        node = eider_graph_unary(p->g, EIDER_OP_not, binary(p, EIDER_LEVEL_NOT));
    }
    p->depth--;
    return node;
}

/* Operands joined by operators that bind at `level` or tighter; powers are in unary. */
static eider_node binary(struct eider_parser *p, int level)
{
    int before = 0;
    eider_node left = first_operand(p, level);
    while (!eider_lex_failed(p)) {
        enum eider_op op = eider_syntax_find(p->token.at, p->token.length);
        int binds = (int)eider_syntax_level(op);
        if (!op || binds < level || binds > EIDER_LEVEL_PRODUCT) break;
        if (binds == EIDER_LEVEL_COMPARE && before == EIDER_LEVEL_COMPARE)
            return eider_lex_fail(p, "'and', 'or' or the end: comparisons do not chain");
        before = binds;
        eider_lex_advance(p);
        left = eider_graph_binary(p->g, op, left, binary(p, binds + 1));
    }
    return left;
}

static eider_node expression(struct eider_parser *p)
{
    return binary(p, EIDER_LEVEL_OR);
}

/* ---- Statements ----------------------------------------------------------- */

/* An input has one value per row or column where it says so, an output every element. */
static int extent(struct eider_parser *p, struct eider_symbol *s)
{
    static const char *const words[] = {"full", "row", "column"};
    int word = 0;
    while (word < 3 && !eider_lex_is(p, words[word])) word++;
    if (word == 3) return 0;
    if (s->kind != (word ? EIDER_SYMBOL_INPUT : EIDER_SYMBOL_OUTPUT))
        eider_lex_fail(p, word ? "',' or the end: only inputs are declared row or column"
                               : "',' or the end: only outputs are declared full");
    else
        eider_lex_advance(p);
    s->extent = (eider_extent)word;
    s->is_full = !word;
    return 1;
}

/* in gate: bf16, up, weight: f32 column */
static void declaration(struct eider_parser *p, enum eider_symbol_kind kind)
{
    do {
        eider_lex_advance(p); /* the word, or a comma */
        if (!check_name(p, "a name")) return;
        if (eider_scope_find(p, p->token.at, p->token.length)) {
            eider_lex_fail(p, "a name that is not in use yet");
            return;
        }
        struct eider_symbol *s = eider_scope_add(p, p->token.at, p->token.length, kind);
        if (!s) return;
        eider_lex_advance(p);
        if (eider_lex_accept(p, ":") && !extent(p, s)) {
            s->type = type_name(p);
            extent(p, s);
        }
        if (!eider_lex_failed(p) && kind != EIDER_SYMBOL_OUTPUT) declare_leaf(p, s);
    } while (!eider_lex_failed(p) && eider_lex_is(p, ","));
}

/* Binds a name, which is a token of the left side, to a value. */
static void bind(struct eider_parser *p, const struct eider_token *name, eider_node value)
{
    if (eider_lex_failed(p) || (name->length == 1 && *name->at == '_')) return;
    struct eider_symbol *s = eider_scope_find(p, name->at, name->length);
    if (s && s->kind != EIDER_SYMBOL_OUTPUT) {
        char found[EIDER_NAME_BYTES + 2];
        snprintf(found, sizeof found, "'%.*s'", (int)name->length, name->at);
        eider_lex_fail_at(p, name->at, found, "a new name: its value reads it as an input");
        return;
    }
    if (!s) s = eider_scope_add(p, name->at, name->length, EIDER_SYMBOL_LOCAL);
    if (s) s->node = value;
}

/* Fails when the name on the left side, which is the token, cannot be assigned. */
static void check_target(struct eider_parser *p, const struct eider_token *before, int n)
{
    if (eider_lex_is(p, "_")) return;
    if (!check_name(p, "a name to assign")) return;
    const struct eider_symbol *s = eider_scope_find(p, p->token.at, p->token.length);
    if (s && (s->kind == EIDER_SYMBOL_INPUT || s->kind == EIDER_SYMBOL_SCALAR))
        eider_lex_fail(p, "a new name: this one is an input");
    else if (s && s->node)
        eider_lex_fail(p, "a new name: this one is assigned already");
    for (int i = 0; i < n && !eider_lex_failed(p); i++)
        if (before[i].length == p->token.length &&
            memcmp(before[i].at, p->token.at, p->token.length) == 0)
            eider_lex_fail(p, "different names");
}

static void bind_all(struct eider_parser *p, const struct eider_token *names, int n,
                     eider_node value)
{
    char found[64], expected[64];
    int wanted = p->n_results ? p->n_results : 1;
    if (eider_lex_failed(p)) return;
    if (n != wanted) {
        snprintf(found, sizeof found, "%d name%s", n, n == 1 ? "" : "s");
        snprintf(expected, sizeof expected, "%d: one for each result, '_' for none", wanted);
        eider_lex_fail_at(p, names[0].at, found,
                          wanted > 1 ? expected : "1: the value is a single one");
        return;
    }
    if (n == 1 && names[0].length == 1 && *names[0].at == '_')
        eider_lex_fail_at(p, names[0].at, "'_'", "a name to assign");
    for (int i = 0; i < n; i++) bind(p, &names[i], p->n_results ? p->results[i] : value);
}

/* a, b = expression */
static void assignment(struct eider_parser *p)
{
    struct eider_token names[EIDER_RESULTS_MAX];
    int n = 0;
    do {
        if (n) eider_lex_advance(p);
        if (n == EIDER_RESULTS_MAX) eider_lex_fail(p, "'=': no function has as many results");
        if (!eider_lex_failed(p)) check_target(p, names, n);
        if (eider_lex_failed(p)) return;
        names[n++] = p->token;
        eider_lex_advance(p);
    } while (eider_lex_is(p, ","));
    eider_lex_expect(p, "=", n == 1 ? "'=' or ','" : "'='");
    p->right_side = p->token.at;
    p->n_results = 0;
    eider_node value = expression(p);
    bind_all(p, names, n, value);
}

/* in, scalar and out are words only where a name follows: "out = x" assigns. */
static void statement(struct eider_parser *p)
{
    static const char *const words[] = {[EIDER_SYMBOL_INPUT] = "in",
                                        [EIDER_SYMBOL_SCALAR] = "scalar",
                                        [EIDER_SYMBOL_OUTPUT] = "out"};
    if (!p->body && p->token.kind == EIDER_TOKEN_NAME &&
        eider_lex_is_letter(*eider_lex_following(p)))
        for (int kind = EIDER_SYMBOL_INPUT; kind <= EIDER_SYMBOL_OUTPUT; kind++)
            if (eider_lex_is(p, words[kind])) {
                declaration(p, (enum eider_symbol_kind)kind);
                return;
            }
    assignment(p);
}

static void statements(struct eider_parser *p)
{
    eider_lex_advance(p);
    while (!eider_lex_failed(p) && p->token.kind != EIDER_TOKEN_END) {
        if (p->token.kind == EIDER_TOKEN_SEPARATOR) {
            eider_lex_advance(p);
            continue;
        }
        statement(p);
        if (!eider_lex_failed(p) && p->token.kind != EIDER_TOKEN_SEPARATOR &&
            p->token.kind != EIDER_TOKEN_END)
            eider_lex_fail(p, "an operator or the end of the statement");
    }
}

/* ---- The two users -------------------------------------------------------- */

/* Outputs are what is declared so and what nobody reads, as their names first appear. */
static void add_outputs(struct eider_parser *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_symbols && !eider_lex_failed(p); i++) {
        const struct eider_symbol *s = &p->symbols[i];
        char name[EIDER_NAME_BYTES];
        if (s->kind != EIDER_SYMBOL_OUTPUT && (s->kind != EIDER_SYMBOL_LOCAL || s->read)) continue;
        if (!s->node) {
            eider_lex_fail_at(p, s->at, "an output that is never assigned", "an assignment of it");
            return;
        }
        copy_name(name, s->at, s->length);
        eider_graph_output(p->g, name, s->node, s->type);
        if (!eider_lex_failed(p)) p->g->operands[p->g->n_operands - 1].is_full = s->is_full;
        n++;
    }
    if (n == 0) eider_lex_fail(p, "an assignment");
}

eider_status eider_parse(const eider_allocator *a, const char *text, struct eider_graph **out)
{
    struct eider_graph *g;
    if (strnlen(text, EIDER_PARSE_BYTES_MAX + 1) > EIDER_PARSE_BYTES_MAX)
        return eider_fail(EIDER_TOO_LARGE, "the program is longer than %u bytes",
                          EIDER_PARSE_BYTES_MAX);
    text = eider_programs_resolve(text);
    EIDER_TRY(eider_graph_create(a, &g));
    struct eider_parser p = {.g = g, .text = text, .cursor = text};
    statements(&p);
    if (!eider_lex_failed(&p)) add_outputs(&p);
    eider_scope_release(&p);
    eider_status status = g->status;
    if (status == EIDER_OK)
        *out = g;
    else
        eider_graph_destroy(g);
    return status;
}

static void bind_params(struct eider_parser *p, const char *params, const eider_node *args)
{
    struct eider_activation_item item;
    for (int i = 0; eider_activation_item(params, i, &item); i++) {
        struct eider_symbol *s = eider_scope_add(p, item.name, item.length, EIDER_SYMBOL_INPUT);
        if (!s) return;
        s->node = args[i];
    }
}

void eider_parse_body(struct eider_graph *g, size_t row, const eider_node *args, int depth,
                      eider_node *results)
{
    const struct eider_activation *activation = eider_activation_row(row);
    struct eider_activation_item item;
    memset(results, 0, EIDER_RESULTS_MAX * sizeof *results);
    if (g->status != EIDER_OK) return;
    if (depth >= BODY_DEPTH_MAX) {
        eider_graph_fail(g, EIDER_PARSE, "%s: its body calls itself", activation->name);
        return;
    }
    struct eider_parser p = {
        .g = g, .text = activation->body, .cursor = activation->body, .body = depth + 1};
    bind_params(&p, activation->params, args);
    statements(&p);
    for (int i = 0; !eider_lex_failed(&p) && eider_activation_item(activation->results, i, &item);
         i++) {
        const struct eider_symbol *s = eider_scope_find(&p, item.name, item.length);
        if (s)
            results[i] = s->node;
        else
            eider_lex_fail(&p, "an assignment of every result");
    }
    eider_scope_release(&p);
}
