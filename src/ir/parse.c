/* parse.c -- text to graph: one pass, no tree in between.
 *
 * Invariant: the first failure sticks in the graph and turns every further token into the
 * end of the text, so that no function checks more than its own step.
 * Two users: whole programs (eider_parse), whose unknown names are inputs and whose calls of
 * activations stay calls, and bodies of activations (eider_parse_body), whose names are all
 * known and whose calls are replaced by their bodies.
 */
#include "parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "activations.h"
#include "ops.h"
#include "syntax.h"

/* Bodies within bodies: the table of activations needs 2. */
#define BODY_DEPTH_MAX 8

enum token_kind { END, SEPARATOR, NAME, INTEGER, NUMBER, PUNCTUATION };

struct token {
    enum token_kind kind;
    const char *at;
    size_t length;
    uint64_t integer; /* magnitude; up to 2^63 */
    double number;
};

enum symbol_kind { INPUT, SCALAR, OUTPUT, LOCAL };

struct symbol {
    const char *at; /* where the name first appears */
    size_t length;
    eider_node node; /* 0: an OUTPUT that is not assigned yet */
    int32_t type;
    enum symbol_kind kind;
    int read;
};

/* The result list of the call that is the whole right side of an assignment. */
struct multi {
    const char *at; /* where that right side begins */
    int n;          /* 0: no such call */
    eider_node nodes[EIDER_RESULTS_MAX];
};

struct parser {
    struct eider_graph *g;
    const char *text, *cursor;
    struct token token;
    int parentheses; /* open ones; a newline inside them separates nothing */
    int depth;
    int body; /* 0: a program; else how many bodies deep */
    struct multi multi;
    struct symbol *symbols;
    uint32_t n_symbols, room_symbols;
    uint32_t *index; /* open addressing; symbol number + 1 */
    uint32_t index_size;
};

/* ---- Failures ------------------------------------------------------------- */

static int failed(const struct parser *p)
{
    return p->g->status != EIDER_OK;
}

/* Fails at `at`; `found` and `expected` are phrases. */
static eider_node fail_at(struct parser *p, const char *at, const char *found, const char *expected)
{
    size_t line = 1;
    const char *start = p->text;
    for (const char *c = p->text; c < at; c++) {
        if (*c != '\n') continue;
        line++;
        start = c + 1;
    }
    p->token = (struct token){.kind = END, .at = at};
    return eider_graph_fail(p->g, EIDER_PARSE, "%zu:%zu: found %s, expected %s", line,
                            (size_t)(at - start) + 1, found, expected);
}

/* 'text' of a token, shortened and with nothing that a terminal would obey. */
static void quote(const struct token *t, char *buffer, size_t size)
{
    if (t->kind == END || (t->kind == SEPARATOR && *t->at == '\n')) {
        snprintf(buffer, size, "the end of the %s", t->kind == END ? "text" : "line");
        return;
    }
    size_t shown = t->length < 40 ? t->length : 40, n = 0;
    buffer[n++] = '\'';
    for (size_t i = 0; i < shown && n + 8 < size; i++) {
        unsigned char c = (unsigned char)t->at[i];
        if (c >= ' ' && c < 0x7f)
            buffer[n++] = (char)c;
        else
            n += (size_t)snprintf(buffer + n, 5, "\\x%02x", c);
    }
    snprintf(buffer + n, size - n, shown < t->length ? "...'" : "'");
}

static eider_node fail_token(struct parser *p, const char *expected)
{
    char found[256];
    if (failed(p)) return 0;
    quote(&p->token, found, sizeof found);
    return fail_at(p, p->token.at, found, expected);
}

/* ---- Tokens --------------------------------------------------------------- */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Everything that could belong to a number, so that "1x" is one wrong token, not two. */
static size_t number_length(const char *c)
{
    int hexadecimal = c[0] == '0' && (c[1] == 'x' || c[1] == 'X');
    size_t n = 0;
    while (is_letter(c[n]) || is_digit(c[n]) || c[n] == '.') {
        char lower = (char)(c[n] | 0x20);
        int exponent = lower == (hexadecimal ? 'p' : 'e');
        n++;
        if (exponent && (c[n] == '+' || c[n] == '-')) n++;
    }
    return n;
}

static int read_integer(struct token *t)
{
    t->integer = 0;
    for (size_t i = 0; i < t->length; i++) {
        if (!is_digit(t->at[i])) return 0;
        if (t->integer > (UINT64_C(1) << 63) / 10) return 0;
        t->integer = t->integer * 10 + (uint64_t)(t->at[i] - '0');
    }
    return t->integer <= UINT64_C(1) << 63;
}

static void read_number(struct parser *p, struct token *t)
{
    t->length = number_length(t->at);
    t->kind = INTEGER;
    if (read_integer(t)) return;
    t->kind = NUMBER;
    if (strspn(t->at, "0123456789") >= t->length)
        fail_token(p, "an integer of at most 64 bits, or a number with '.'");
    else if (!eider_syntax_read(t->at, t->length, &t->number))
        fail_token(p, "a number");
}

static size_t punctuation_length(const char *c)
{
    static const char *const pairs[] = {"**", "==", "!=", "<=", ">="};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (c[0] == pairs[i][0] && c[1] == pairs[i][1]) return 2;
    return 1;
}

static const char *skip_blanks(struct parser *p)
{
    const char *c = p->cursor;
    for (;; c++) {
        if (*c == '#')
            while (*c && *c != '\n') c++;
        if (*c == ' ' || *c == '\t' || *c == '\r' || (*c == '\n' && p->parentheses)) continue;
        return c;
    }
}

static void advance(struct parser *p)
{
    if (failed(p)) return;
    struct token *t = &p->token;
    *t = (struct token){.at = skip_blanks(p), .length = 1};
    if (*t->at == '\0') {
        t->kind = END;
        t->length = 0;
    } else if (*t->at == ';' || *t->at == '\n') {
        t->kind = SEPARATOR;
    } else if (is_letter(*t->at)) {
        t->kind = NAME;
        while (is_letter(t->at[t->length]) || is_digit(t->at[t->length])) t->length++;
    } else if (is_digit(*t->at) || (*t->at == '.' && is_digit(t->at[1]))) {
        read_number(p, t);
    } else {
        t->kind = PUNCTUATION;
        t->length = punctuation_length(t->at);
        p->parentheses += (*t->at == '(') - (*t->at == ')' && p->parentheses > 0);
    }
    if (!failed(p)) p->cursor = t->at + t->length;
}

/* Whether the token is this word or punctuation. */
static int is(const struct parser *p, const char *text)
{
    return p->token.length == strlen(text) && memcmp(p->token.at, text, p->token.length) == 0 &&
           p->token.kind != END;
}

static int accept(struct parser *p, const char *text)
{
    if (failed(p) || !is(p, text)) return 0;
    advance(p);
    return 1;
}

static void expect(struct parser *p, const char *text, const char *phrase)
{
    if (!accept(p, text)) fail_token(p, phrase);
}

/* The character that follows the token, blanks aside. */
static char following(struct parser *p)
{
    return *skip_blanks(p);
}

/* ---- Names ---------------------------------------------------------------- */

static uint32_t hash_name(const char *name, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash;
}

static uint32_t *slot_of(struct parser *p, const char *name, size_t length)
{
    uint32_t mask = p->index_size - 1, at = hash_name(name, length) & mask;
    for (;; at = (at + 1) & mask) {
        if (p->index[at] == 0) return &p->index[at];
        const struct symbol *s = &p->symbols[p->index[at] - 1];
        if (s->length == length && memcmp(s->at, name, length) == 0) return &p->index[at];
    }
}

static struct symbol *find(struct parser *p, const char *name, size_t length)
{
    if (!p->index_size) return NULL;
    uint32_t number = *slot_of(p, name, length);
    return number ? &p->symbols[number - 1] : NULL;
}

static int grow_symbols(struct parser *p)
{
    const eider_allocator *a = &p->g->allocator;
    if (p->n_symbols < p->room_symbols) return 1;
    uint32_t room = p->room_symbols ? p->room_symbols * 2 : 16;
    struct symbol *symbols = eider_mem_resize(a, p->symbols, room * sizeof *symbols);
    if (symbols) p->symbols = symbols;
    uint32_t *index = eider_mem_zero(a, (size_t)room * 2 * sizeof *index);
    if (!symbols || !index) {
        eider_mem_free(a, index);
        p->g->status = EIDER_OOM;
        return 0;
    }
    eider_mem_free(a, p->index);
    p->index = index;
    p->index_size = room * 2;
    p->room_symbols = room;
    for (uint32_t i = 0; i < p->n_symbols; i++)
        *slot_of(p, p->symbols[i].at, p->symbols[i].length) = i + 1;
    return 1;
}

/* Adds a name that is not there yet; NULL when memory is exhausted. */
static struct symbol *add(struct parser *p, const char *name, size_t length, enum symbol_kind kind)
{
    if (!grow_symbols(p)) return NULL;
    struct symbol *s = &p->symbols[p->n_symbols];
    *s = (struct symbol){.at = name, .length = length, .type = -1, .kind = kind};
    *slot_of(p, name, length) = ++p->n_symbols;
    return s;
}

static void copy_name(char *buffer, const char *name, size_t length)
{
    memcpy(buffer, name, length);
    buffer[length] = '\0';
}

/* Whether the token can name a value; fails when it cannot. */
static int check_name(struct parser *p, const char *expected)
{
    const struct token *t = &p->token;
    if (t->kind != NAME || eider_syntax_reserved(t->at, t->length))
        fail_token(p, expected);
    else if (t->length >= EIDER_NAME_BYTES)
        fail_token(p, "a name of at most 63 bytes");
    return !failed(p);
}

static eider_node declare_leaf(struct parser *p, struct symbol *s)
{
    char name[EIDER_NAME_BYTES];
    copy_name(name, s->at, s->length);
    s->node = s->kind == SCALAR ? eider_graph_scalar(p->g, name, s->type)
                                : eider_graph_input(p->g, name, s->type);
    return s->node;
}

/* The value of the name that is the token. */
static eider_node read_name(struct parser *p)
{
    if (!check_name(p, "an operand")) return 0;
    struct symbol *s = find(p, p->token.at, p->token.length);
    if (!s) {
        if (p->body) return fail_token(p, "a name of this body");
        s = add(p, p->token.at, p->token.length, INPUT);
        if (!s || !declare_leaf(p, s)) return 0;
    }
    if (!s->node) return fail_token(p, "an operand: this output is not assigned yet");
    s->read = 1;
    eider_node node = s->node;
    advance(p);
    return node;
}

/* ---- Calls ---------------------------------------------------------------- */

static eider_node expression(struct parser *p);

/* What a call names: a primitive, or a row of the activations. */
struct callee {
    enum eider_op op; /* 0: an activation */
    size_t row;
    const char *at; /* the name in the text */
    char name[EIDER_NAME_BYTES];
};

static const struct {
    const char *name, *what;
} reserved_functions[] = {
    {"sum", "reductions"},  {"mean", "reductions"},   {"amax", "reductions"},
    {"prod", "reductions"}, {"argmax", "reductions"}, {"logsumexp", "reductions"},
    {"pick", "gathers"},    {"row", "index values"},  {"col", "index values"},
};

static int distance(const char *a, const char *b)
{
    int line[EIDER_NAME_BYTES + 1];
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++) line[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = line[0];
        line[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = line[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (line[j - 1] + 1 < best) best = line[j - 1] + 1;
            diagonal = above;
            line[j] = best;
        }
    }
    return line[n];
}

static void consider(const char *name, const char *candidate, const char **best, int *least)
{
    int d = distance(name, candidate);
    if (d >= *least || d >= (int)strlen(name)) return;
    *least = d;
    *best = candidate;
}

/* The function whose name is at most two edits away, or NULL. */
static const char *nearest_function(const char *name)
{
    const char *best = NULL;
    int least = 3;
    for (int op = 0; op < EIDER_OP_COUNT; op++)
        if (eider_ops[op].arity >= 0) consider(name, eider_ops[op].name, &best, &least);
    for (size_t i = 0; eider_activation_row(i); i++)
        consider(name, eider_activation_row(i)->name, &best, &least);
    for (size_t i = 0; eider_activation_alias(i); i++)
        consider(name, eider_activation_alias(i), &best, &least);
    consider(name, "where", &best, &least);
    consider(name, "cast", &best, &least);
    consider(name, "cast_nan", &best, &least);
    return best;
}

static void fail_unknown(struct parser *p, const char *name)
{
    char expected[160];
    for (size_t i = 0; i < sizeof reserved_functions / sizeof *reserved_functions; i++) {
        if (strcmp(reserved_functions[i].name, name) != 0) continue;
        snprintf(expected, sizeof expected, "another function; %s: %s are not supported yet", name,
                 reserved_functions[i].what);
        fail_token(p, expected);
        return;
    }
    const char *near = nearest_function(name);
    snprintf(expected, sizeof expected, "a function%s%s%s", near ? "; did you mean '" : "",
             near ? near : "", near ? "'?" : "");
    fail_token(p, expected);
}

static int find_callee(struct parser *p, struct callee *out)
{
    if (p->token.length >= EIDER_NAME_BYTES) {
        fail_token(p, "a function");
        return 0;
    }
    out->at = p->token.at;
    copy_name(out->name, p->token.at, p->token.length);
    out->op = eider_ops_find(out->name);
    if (strcmp(out->name, "cast") == 0) out->op = EIDER_OP_cast;
    if (strcmp(out->name, "cast_nan") == 0) out->op = EIDER_OP_cast_nan;
    if (out->op) return 1;
    int row = eider_activation_find(out->name);
    if (row < 0) {
        fail_unknown(p, out->name);
        return 0;
    }
    out->row = (size_t)row;
    return 1;
}

static int32_t type_name(struct parser *p)
{
    for (int type = 0; eider_dtype_name((eider_dtype)type); type++)
        if (accept(p, eider_dtype_name((eider_dtype)type))) return type;
    fail_token(p, "a type such as f32, f16, bf16, f64, e4m3, e5m2, i32, i64 or bool");
    return -1;
}

static eider_node cast(struct parser *p, enum eider_op op)
{
    eider_node value = expression(p);
    expect(p, ",", "',' and a type");
    int32_t type = type_name(p);
    expect(p, ")", "')'");
    return failed(p) ? 0 : eider_graph_put(p->g, op, &value, 1, (uint64_t)type);
}

/* The parameter that a keyword names, or -1. */
static int keyword(struct parser *p, const struct callee *f)
{
    struct eider_activation_item item;
    const char *params = f->op ? "" : eider_activation_row(f->row)->params;
    for (int i = 0; eider_activation_item(params, i, &item); i++)
        if (item.length == p->token.length && memcmp(item.name, p->token.at, item.length) == 0)
            return i;
    char expected[160];
    if (f->op)
        snprintf(expected, sizeof expected, "an operand: %s has no keywords", f->name);
    else
        snprintf(expected, sizeof expected, "a keyword of %s", eider_activation_signature(f->row));
    fail_token(p, expected);
    return -1;
}

static int at_keyword(struct parser *p)
{
    const char *next = skip_blanks(p);
    return p->token.kind == NAME && next[0] == '=' && next[1] != '=';
}

/* Reads the arguments up to ')'; missing ones are 0.  Returns how many lead without a gap. */
static uint32_t arguments(struct parser *p, const struct callee *f, uint32_t n_max,
                          eider_node *args)
{
    uint32_t n = 0, leading = 0;
    int keywords = 0;
    while (!failed(p) && !is(p, ")")) {
        uint32_t to = n;
        if (at_keyword(p)) {
            int named = keyword(p, f);
            if (named < 0) return 0;
            to = (uint32_t)named;
            if (args[to]) fail_token(p, "an argument that is not given yet");
            keywords = 1;
            advance(p);
            advance(p);
        } else if (keywords) {
            fail_token(p, "a keyword, as before");
        }
        if (to >= n_max) {
            char expected[160];
            snprintf(expected, sizeof expected, "')': %s takes %u argument%s", f->name, n_max,
                     n_max == 1 ? "" : "s");
            fail_token(p, expected);
            return 0;
        }
        args[to] = expression(p);
        n++;
        if (accept(p, ",")) {
            if (is(p, ")")) fail_token(p, "an operand");
        } else if (!is(p, ")")) {
            fail_token(p, "',' or ')'");
        }
    }
    while (leading < n_max && args[leading]) leading++;
    return leading;
}

static eider_node call_op(struct parser *p, const struct callee *f)
{
    eider_node args[EIDER_CALL_ARGS_MAX] = {0};
    uint32_t arity = (uint32_t)eider_ops[f->op].arity;
    uint32_t n = arguments(p, f, arity, args);
    if (failed(p)) return 0;
    if (n < arity) {
        char expected[160];
        int reduces = n == 1 && (f->op == EIDER_OP_max || f->op == EIDER_OP_min);
        snprintf(expected, sizeof expected, "',': %s takes %u argument%s%s", f->name, arity,
                 arity == 1 ? "" : "s", reduces ? "; reductions are not supported yet" : "");
        return fail_token(p, expected);
    }
    expect(p, ")", "')'");
    return eider_graph_put(p->g, f->op, args, arity, 0);
}

/* Gives the results of a call node, adding the `result` nodes that it needs. */
static void list_results(struct eider_graph *g, eider_node call, int n, eider_node *results)
{
    results[0] = call;
    for (int i = 1; i < n; i++)
        results[i] = eider_graph_put(g, EIDER_OP_result, &call, 1, (uint64_t)i);
}

/* Fills in defaults and gives the results, as a call or, in a body, as its own body. */
static void apply(struct parser *p, const struct callee *f, eider_node *args, uint32_t n,
                  int n_results, eider_node *results)
{
    struct eider_activation_item item;
    const char *params = eider_activation_row(f->row)->params;
    for (uint32_t i = n; eider_activation_item(params, (int)i, &item); i++)
        if (!args[i]) args[i] = eider_graph_number(p->g, item.value);
    if (p->body) {
        eider_parse_body(p->g, f->row, args, p->body, results);
        return;
    }
    eider_node call =
        eider_activation_call(p->g, f->row, args, (uint32_t)eider_activation_n_params(f->row));
    list_results(p->g, call, n_results, results);
}

static eider_node call_activation(struct parser *p, const struct callee *f)
{
    eider_node args[EIDER_CALL_ARGS_MAX] = {0}, results[EIDER_RESULTS_MAX] = {0};
    char expected[200];
    int n_results = eider_activation_n_results(f->row);
    uint32_t n = arguments(p, f, (uint32_t)eider_activation_n_params(f->row), args);
    if (failed(p)) return 0;
    if (n < (uint32_t)eider_activation_n_required(f->row)) {
        snprintf(expected, sizeof expected, "all arguments of %s",
                 eider_activation_signature(f->row));
        return fail_token(p, expected);
    }
    expect(p, ")", "')'");
    if (n_results > 1 && p->multi.at != f->at) {
        snprintf(expected, sizeof expected, "one value; write %s",
                 eider_activation_signature(f->row));
        char found[96];
        snprintf(found, sizeof found, "%s with %d results", f->name, n_results);
        return failed(p) ? 0 : fail_at(p, f->at, found, expected);
    }
    if (n_results > 1 && p->token.kind != END && p->token.kind != SEPARATOR)
        return fail_token(p, "the end of the statement: this call has several results");
    apply(p, f, args, n, n_results, results);
    if (n_results > 1) {
        p->multi.n = n_results;
        memcpy(p->multi.nodes, results, sizeof results);
    }
    return results[0];
}

static eider_node call(struct parser *p)
{
    struct callee f = {0};
    if (!find_callee(p, &f)) return 0;
    advance(p);
    expect(p, "(", "'('");
    if (f.op == EIDER_OP_cast || f.op == EIDER_OP_cast_nan) return cast(p, f.op);
    return f.op ? call_op(p, &f) : call_activation(p, &f);
}

/* ---- Expressions ---------------------------------------------------------- */

static int at_literal(const struct parser *p)
{
    return p->token.kind == INTEGER || p->token.kind == NUMBER || is(p, "inf") || is(p, "nan");
}

static eider_node literal(struct parser *p, const struct token *t, int negative)
{
    if (t->kind == INTEGER) {
        if (t->integer >> 63 && !negative)
            return fail_at(p, t->at, "'9223372036854775808'", "an integer below 2^63");
        uint64_t value = negative ? 0 - t->integer : t->integer;
        return eider_graph_integer(p->g, (int64_t)value);
    }
    double value = t->kind == NUMBER ? t->number : *t->at == 'i' ? INFINITY : NAN;
    return eider_graph_number(p->g, negative ? -value : value);
}

/* A bool is a comparison: true is 0 == 0. */
static eider_node truth(struct parser *p, enum eider_op op)
{
    eider_node zero = eider_graph_integer(p->g, 0);
    return eider_graph_binary(p->g, op, zero, zero);
}

static eider_node primary(struct parser *p)
{
    struct token t = p->token;
    if (accept(p, "(")) {
        eider_node inner = expression(p);
        expect(p, ")", "')' or an operator");
        return inner;
    }
    if (at_literal(p)) {
        advance(p);
        return literal(p, &t, 0);
    }
    if (accept(p, "true")) return truth(p, EIDER_OP_eq);
    if (accept(p, "false")) return truth(p, EIDER_OP_ne);
    if (t.kind == NAME && following(p) == '(' && !eider_syntax_reserved(t.at, t.length))
        return call(p);
    return read_name(p);
}

static eider_node unary(struct parser *p);

static eider_node power(struct parser *p, eider_node base)
{
    if (!accept(p, "**")) return base;
    return eider_graph_binary(p->g, EIDER_OP_pow, base, unary(p));
}

/* A minus before a literal belongs to it, unless a power comes first: -2**2 is -4. */
static eider_node negative(struct parser *p)
{
    if (!at_literal(p)) return eider_graph_unary(p->g, EIDER_OP_neg, unary(p));
    struct token t = p->token;
    advance(p);
    if (!is(p, "**")) return literal(p, &t, 1);
    return eider_graph_unary(p->g, EIDER_OP_neg, power(p, literal(p, &t, 0)));
}

static int enter(struct parser *p)
{
    if (++p->depth <= EIDER_DEPTH_MAX) return 1;
    fail_token(p, "at most 256 levels of nesting");
    return 0;
}

static eider_node unary(struct parser *p)
{
    eider_node node = 0;
    if (enter(p)) node = accept(p, "-") ? negative(p) : power(p, primary(p));
    p->depth--;
    return node;
}

static eider_node binary(struct parser *p, int level);

static eider_node first_operand(struct parser *p, int level)
{
    if (level > EIDER_LEVEL_NOT || !is(p, "not")) return unary(p);
    eider_node node = 0;
    if (enter(p)) {
        advance(p);
        node = eider_graph_unary(p->g, EIDER_OP_not, binary(p, EIDER_LEVEL_NOT));
    }
    p->depth--;
    return node;
}

/* Operands joined by operators that bind at `level` or tighter; powers are in unary. */
static eider_node binary(struct parser *p, int level)
{
    int before = 0;
    eider_node left = first_operand(p, level);
    while (!failed(p)) {
        enum eider_op op = eider_syntax_find(p->token.at, p->token.length);
        int binds = (int)eider_syntax_level(op);
        if (!op || binds < level || binds > EIDER_LEVEL_PRODUCT) break;
        if (binds == EIDER_LEVEL_COMPARE && before == EIDER_LEVEL_COMPARE)
            return fail_token(p, "'and', 'or' or the end: comparisons do not chain");
        before = binds;
        advance(p);
        left = eider_graph_binary(p->g, op, left, binary(p, binds + 1));
    }
    return left;
}

static eider_node expression(struct parser *p)
{
    return binary(p, EIDER_LEVEL_OR);
}

/* ---- Statements ----------------------------------------------------------- */

/* in gate: bf16, up */
static void declaration(struct parser *p, enum symbol_kind kind)
{
    do {
        advance(p); /* the word, or a comma */
        if (!check_name(p, "a name")) return;
        if (find(p, p->token.at, p->token.length)) {
            fail_token(p, "a name that is not in use yet");
            return;
        }
        struct symbol *s = add(p, p->token.at, p->token.length, kind);
        if (!s) return;
        advance(p);
        if (accept(p, ":")) s->type = type_name(p);
        if (!failed(p) && kind != OUTPUT) declare_leaf(p, s);
    } while (!failed(p) && is(p, ","));
}

/* Binds a name, which is a token of the left side, to a value. */
static void bind(struct parser *p, const struct token *name, eider_node value)
{
    if (failed(p) || (name->length == 1 && *name->at == '_')) return;
    struct symbol *s = find(p, name->at, name->length);
    if (!s) s = add(p, name->at, name->length, LOCAL);
    if (s) s->node = value;
}

/* Fails when the name on the left side, which is the token, cannot be assigned. */
static void check_target(struct parser *p, const struct token *before, int n)
{
    if (is(p, "_")) return;
    if (!check_name(p, "a name to assign")) return;
    const struct symbol *s = find(p, p->token.at, p->token.length);
    if (s && (s->kind == INPUT || s->kind == SCALAR))
        fail_token(p, "a new name: this one is an input");
    else if (s && s->node)
        fail_token(p, "a new name: this one is assigned already");
    for (int i = 0; i < n && !failed(p); i++)
        if (before[i].length == p->token.length &&
            memcmp(before[i].at, p->token.at, p->token.length) == 0)
            fail_token(p, "different names");
}

static void bind_all(struct parser *p, const struct token *names, int n, eider_node value)
{
    const struct multi *m = &p->multi;
    char found[64], expected[64];
    int wanted = m->n ? m->n : 1;
    if (failed(p)) return;
    if (n != wanted) {
        snprintf(found, sizeof found, "%d name%s", n, n == 1 ? "" : "s");
        snprintf(expected, sizeof expected, "%d: one for each result, '_' for none", wanted);
        fail_at(p, names[0].at, found, wanted > 1 ? expected : "1: the value is a single one");
        return;
    }
    if (n == 1 && names[0].length == 1 && *names[0].at == '_')
        fail_at(p, names[0].at, "'_'", "a name to assign");
    for (int i = 0; i < n; i++) bind(p, &names[i], m->n ? m->nodes[i] : value);
}

/* a, b = expression */
static void assignment(struct parser *p)
{
    struct token names[EIDER_RESULTS_MAX];
    int n = 0;
    do {
        if (n) advance(p);
        if (n == EIDER_RESULTS_MAX) fail_token(p, "'=': no function has as many results");
        if (!failed(p)) check_target(p, names, n);
        if (failed(p)) return;
        names[n++] = p->token;
        advance(p);
    } while (is(p, ","));
    expect(p, "=", n == 1 ? "'=' or ','" : "'='");
    p->multi = (struct multi){.at = p->token.at};
    eider_node value = expression(p);
    bind_all(p, names, n, value);
}

/* in, scalar and out are words only where a name follows: "out = x" assigns. */
static void statement(struct parser *p)
{
    static const char *const words[] = {[INPUT] = "in", [SCALAR] = "scalar", [OUTPUT] = "out"};
    if (!p->body && p->token.kind == NAME && is_letter(following(p)))
        for (int kind = INPUT; kind <= OUTPUT; kind++)
            if (is(p, words[kind])) {
                declaration(p, (enum symbol_kind)kind);
                return;
            }
    assignment(p);
}

static void statements(struct parser *p)
{
    advance(p);
    while (!failed(p) && p->token.kind != END) {
        if (p->token.kind == SEPARATOR) {
            advance(p);
            continue;
        }
        statement(p);
        if (!failed(p) && p->token.kind != SEPARATOR && p->token.kind != END)
            fail_token(p, "an operator or the end of the statement");
    }
}

/* ---- The two users -------------------------------------------------------- */

static void release(struct parser *p)
{
    eider_mem_free(&p->g->allocator, p->symbols);
    eider_mem_free(&p->g->allocator, p->index);
}

/* Outputs are what is declared so and what nobody reads, as their names first appear. */
static void add_outputs(struct parser *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_symbols && !failed(p); i++) {
        const struct symbol *s = &p->symbols[i];
        char name[EIDER_NAME_BYTES];
        if (s->kind != OUTPUT && (s->kind != LOCAL || s->read)) continue;
        if (!s->node) {
            fail_at(p, s->at, "an output that is never assigned", "an assignment of it");
            return;
        }
        copy_name(name, s->at, s->length);
        eider_graph_output(p->g, name, s->node, s->type);
        n++;
    }
    if (n == 0) fail_token(p, "an assignment");
}

eider_status eider_parse(const eider_allocator *a, const char *text, struct eider_graph **out)
{
    struct eider_graph *g;
    if (strnlen(text, EIDER_PARSE_BYTES_MAX + 1) > EIDER_PARSE_BYTES_MAX)
        return eider_fail(EIDER_TOO_LARGE, "the program is longer than %u bytes",
                          EIDER_PARSE_BYTES_MAX);
    EIDER_TRY(eider_graph_create(a, &g));
    struct parser p = {.g = g, .text = text, .cursor = text};
    statements(&p);
    if (!failed(&p)) add_outputs(&p);
    release(&p);
    eider_status status = g->status;
    if (status == EIDER_OK)
        *out = g;
    else
        eider_graph_destroy(g);
    return status;
}

static void bind_params(struct parser *p, const char *params, const eider_node *args)
{
    struct eider_activation_item item;
    for (int i = 0; eider_activation_item(params, i, &item); i++) {
        struct symbol *s = add(p, item.name, item.length, INPUT);
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
    struct parser p = {
        .g = g, .text = activation->body, .cursor = activation->body, .body = depth + 1};
    bind_params(&p, activation->params, args);
    statements(&p);
    for (int i = 0; !failed(&p) && eider_activation_item(activation->results, i, &item); i++) {
        const struct symbol *s = find(&p, item.name, item.length);
        if (s)
            results[i] = s->node;
        else
            fail_token(&p, "an assignment of every result");
    }
    release(&p);
}
