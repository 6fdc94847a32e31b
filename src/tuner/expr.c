/* expr.c -- see expr.h.
 *
 * A parser by recursive descent that computes as it reads.  `dead` counts the operands of
 * && and || whose value does not matter: they are read, and cannot fail but for their form.
 */
#include "expr.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "element.h"

#define DEPTH_MAX 32
#define ARGS_MAX 2

struct reader {
    const char *what, *text, *at;
    const struct eider_expr_scope *scope;
    struct eider_text *canonical;
    int dead, depth;
    eider_status status; /* the first failure; then nothing moves */
};

typedef struct eider_expr_value value;

static value number(double x)
{
    value v = {.kind = EIDER_EXPR_NUMBER, .number = x, .operand = -1};
    snprintf(v.text, sizeof v.text, "%.17g", x);
    return v;
}

static value word(const char *text, size_t length)
{
    value v = {.kind = EIDER_EXPR_TEXT, .operand = -1};
    snprintf(v.text, sizeof v.text, "%.*s", (int)length, text);
    return v;
}

/* ---- Reading ------------------------------------------------------------- */

static void fail_at(struct reader *r, const char *where, const char *message)
{
    if (r->status == EIDER_OK)
        r->status = eider_fail(EIDER_PARSE, "%s: %zu: %s in '%s'", r->what,
                               (size_t)(where - r->text) + 1, message, r->text);
}

static void expected(struct reader *r, const char *wanted)
{
    char message[160];
    if (*r->at)
        snprintf(message, sizeof message, "expected %s, found '%c'", wanted, *r->at);
    else
        snprintf(message, sizeof message, "expected %s, found the end", wanted);
    fail_at(r, r->at, message);
}

static void skip(struct reader *r)
{
    while (isspace((unsigned char)*r->at)) r->at++;
}

static void emit(struct reader *r, const char *text, size_t length)
{
    if (r->canonical && r->status == EIDER_OK) eider_text_bytes(r->canonical, text, length);
}

static int accept(struct reader *r, const char *token)
{
    skip(r);
    size_t n = strlen(token);
    if (r->status != EIDER_OK || strncmp(r->at, token, n) != 0) return 0;
    r->at += n;
    return 1;
}

static void expect(struct reader *r, const char *token)
{
    char quoted[16];
    snprintf(quoted, sizeof quoted, "'%s'", token);
    if (r->status == EIDER_OK && !accept(r, token)) expected(r, quoted);
}

static size_t name_length(const char *at)
{
    size_t n = 0;
    if (!isalpha((unsigned char)*at) && *at != '_') return 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n;
}

static int is_name(const char *name, size_t length, const char *wanted)
{
    return strlen(wanted) == length && memcmp(name, wanted, length) == 0;
}

/* ---- Operands ------------------------------------------------------------ */

static int find_operand(const struct eider_expr_scope *scope, const char *name, size_t length)
{
    for (size_t i = 0; i < scope->n_operands; i++)
        if (is_name(name, length, scope->names[i])) return (int)i;
    return -1;
}

static int64_t stride_of(const eider_tensor *t, int d)
{
    int64_t stride = 1;
    if (t->strides) return t->strides[d];
    for (int i = t->rank - 1; i > d; i--) stride *= t->shape[i];
    return stride;
}

static value list_of(const eider_tensor *t, int64_t (*at)(const eider_tensor *, int))
{
    value v = word("", 0);
    size_t length = 0;
    for (int d = 0; d < t->rank && length < sizeof v.text; d++)
        length += (size_t)snprintf(v.text + length, sizeof v.text - length, "%s%lld", d ? "," : "",
                                   (long long)at(t, d));
    return v;
}

static int64_t extent_of(const eider_tensor *t, int d)
{
    return t->shape[d];
}

/* A dimension up to `close`: an integer, negative from the end.  -1 after a failure. */
static int read_dimension(struct reader *r, const eider_tensor *t, const char *name,
                          const char *close)
{
    skip(r);
    char *end;
    const char *start = r->at;
    long d = strtol(start, &end, 10);
    if (r->status != EIDER_OK) return -1;
    if (end == start) {
        expected(r, "a dimension");
        return -1;
    }
    r->at = end;
    expect(r, close);
    char text[24];
    emit(r, text, (size_t)snprintf(text, sizeof text, "%ld)", d));
    if (d < -t->rank || d >= t->rank) {
        char message[128];
        snprintf(message, sizeof message, "%.40s has rank %d, there is no dimension %ld", name,
                 t->rank, d);
        if (!r->dead) fail_at(r, start, message);
        return -1;
    }
    return (int)(d < 0 ? d + t->rank : d);
}

/* What follows size, shape or stride: a list, or one number. */
static value read_dimensions(struct reader *r, const eider_tensor *t, const char *name, int is_list,
                             const char *spelling, int64_t (*at)(const eider_tensor *, int))
{
    emit(r, spelling, strlen(spelling));
    emit(r, "(", 1);
    const char *close = ")";
    if (is_list && accept(r, "["))
        close = "]";
    else if (is_list && !accept(r, "(")) {
        emit(r, ")", 1);
        return list_of(t, at);
    } else if (!is_list) {
        expect(r, "(");
        if (r->status == EIDER_OK && accept(r, ")")) {
            emit(r, ")", 1);
            return list_of(t, at);
        }
    }
    int d = read_dimension(r, t, name, close);
    return number(d < 0 ? 0 : (double)at(t, d));
}

static value read_property(struct reader *r, int i)
{
    const eider_tensor *t = &r->scope->args[i];
    const char *name = r->scope->names[i], *at = r->at;
    size_t n = name_length(at);
    r->at += n;
    emit(r, ".", 1);
    if (is_name(at, n, "size")) return read_dimensions(r, t, name, 0, "size", extent_of);
    if (is_name(at, n, "shape")) return read_dimensions(r, t, name, 1, "size", extent_of);
    if (is_name(at, n, "stride")) return read_dimensions(r, t, name, 0, "stride", stride_of);
    emit(r, at, n);
    if (is_name(at, n, "dtype")) {
        const char *type = eider_dtype_name(t->type);
        return word(type ? type : "none", type ? strlen(type) : 4);
    }
    if (is_name(at, n, "rank")) return number(t->rank);
    if (is_name(at, n, "align")) return number(eider_element_align(t->data));
    if (is_name(at, n, "count")) {
        double count = 1;
        for (int d = 0; d < t->rank; d++) count *= (double)t->shape[d];
        return number(count);
    }
    char message[160];
    snprintf(message, sizeof message,
             "%.40s has no '%.*s': expected dtype, shape, size(), stride(), rank, count or align",
             name, (int)(n < 40 ? n : 40), at);
    fail_at(r, at, message);
    return number(0);
}

/* A scalar is its value; a tensor alone is everything about it. */
static value read_operand(struct reader *r, int i)
{
    const struct eider_expr_scope *scope = r->scope;
    const eider_tensor *t = &scope->args[i];
    emit(r, scope->names[i], strlen(scope->names[i]));
    if (accept(r, ".")) return read_property(r, i);
    value v = word("", 0);
    if (scope->kinds[i] == EIDER_SCALAR && t->data) {
        v = number(eider_element_get(t->type, t->data, 0));
        if (t->type == EIDER_I64) {
            int64_t whole;
            memcpy(&whole, t->data, sizeof whole);
            snprintf(v.text, sizeof v.text, "%lld", (long long)whole);
        }
    } else if (scope->kinds[i] != EIDER_SCALAR) {
        const char *type = eider_dtype_name(t->type);
        value shape = list_of(t, extent_of), strides = list_of(t, stride_of);
        snprintf(v.text, sizeof v.text, "%s[%.170s]{%.170s}", type ? type : "none", shape.text,
                 strides.text);
    } else {
        v = word("none", 4);
    }
    v.operand = i;
    return v;
}

/* ---- Functions ----------------------------------------------------------- */

static double pow2(double a, double b)
{
    double p = 1;
    (void)b;
    while (p < a && p < 0x1p62) p *= 2;
    return p;
}

static double log2_floor(double a, double b)
{
    (void)b;
    return a < 1 ? 0 : floor(log2(a));
}

static double minimum(double a, double b)
{
    return a < b ? a : b;
}

static double maximum(double a, double b)
{
    return a > b ? a : b;
}

static double ceil_div(double a, double b)
{
    return ceil(a / b);
}

static const struct function {
    const char *name;
    int arity;
    int divides;
    double (*call)(double a, double b);
} functions[] = {
    {"pow2", 1, 0, pow2},   {"log2", 1, 0, log2_floor},   {"min", 2, 0, minimum},
    {"max", 2, 0, maximum}, {"ceil_div", 2, 1, ceil_div},
};

static value read_or(struct reader *r);

static double need_number(struct reader *r, const char *where, const value *v)
{
    if (v->kind != EIDER_EXPR_NUMBER && !r->dead) fail_at(r, where, "expected a number here");
    return v->kind == EIDER_EXPR_NUMBER ? v->number : 0;
}

static value call(struct reader *r, const struct function *f)
{
    double args[ARGS_MAX] = {0, 1};
    const char *last = r->at;
    emit(r, f->name, strlen(f->name));
    emit(r, "(", 1);
    for (int i = 0; i < f->arity; i++) {
        if (i) {
            expect(r, ",");
            emit(r, ",", 1);
        }
        skip(r);
        last = r->at;
        value v = read_or(r);
        args[i] = need_number(r, last, &v);
    }
    expect(r, ")");
    emit(r, ")", 1);
    if (f->divides && args[1] == 0 && !r->dead) fail_at(r, last, "division by 0");
    return number(f->call(args[0], args[1] != 0 ? args[1] : 1));
}

/* ---- Primaries ----------------------------------------------------------- */

static value fail_unknown(struct reader *r, const char *name, size_t n)
{
    char message[160];
    int is_param = 0;
    const char *row, *values, *doc;
    for (size_t i = 0; eider_config_row(i, &row, &values, &doc); i++)
        is_param |= is_name(name, n, row);
    snprintf(message, sizeof message,
             is_param ? "'%.*s' is a tuning parameter, which has no value here"
                      : "unknown name '%.*s'",
             (int)(n < 40 ? n : 40), name);
    fail_at(r, name, message);
    return number(0);
}

static value read_name(struct reader *r)
{
    const char *name = r->at;
    size_t n = name_length(name);
    eider_dtype type;
    r->at += n;
    if (accept(r, "(")) {
        for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
            if (is_name(name, n, functions[i].name)) return call(r, &functions[i]);
        fail_at(r, name, "unknown function: expected pow2, log2, min, max or ceil_div");
        return number(0);
    }
    int i = find_operand(r->scope, name, n);
    if (i >= 0) return read_operand(r, i);
    value v = word(name, n);
    const char *set = r->scope->config ? eider_pairs_get(r->scope->config, v.text) : NULL;
    emit(r, name, n);
    if (set) {
        char *end;
        double x = strtod(set, &end);
        return *end ? word(set, strlen(set)) : number(x);
    }
    if (eider_dtype_parse(v.text, &type) == EIDER_OK) return v;
    return fail_unknown(r, name, n);
}

static value read_quoted(struct reader *r)
{
    size_t n = strcspn(r->at, "'");
    value v = word(r->at, n);
    emit(r, "'", 1);
    emit(r, r->at, n);
    emit(r, "'", 1);
    r->at += n;
    expect(r, "'");
    return v;
}

static value read_primary(struct reader *r)
{
    skip(r);
    if (r->status != EIDER_OK) return number(0);
    if (accept(r, "(")) {
        emit(r, "(", 1);
        value v = read_or(r);
        expect(r, ")");
        emit(r, ")", 1);
        return v;
    }
    if (accept(r, "'")) return read_quoted(r);
    if (isdigit((unsigned char)*r->at)) {
        char *end;
        const char *start = r->at;
        double x = strtod(start, &end);
        r->at = end;
        emit(r, start, (size_t)(end - start));
        return number(x);
    }
    if (name_length(r->at)) return read_name(r);
    expected(r, "an operand, a parameter or a number");
    return number(0);
}

static value read_unary(struct reader *r)
{
    skip(r);
    const char *where = r->at;
    int negate = accept(r, "-"), invert = !negate && r->at[0] == '!' && r->at[1] != '=';
    if (!negate && !invert) return read_primary(r);
    if (invert) r->at++;
    emit(r, negate ? "-" : "!", 1);
    if (++r->depth > DEPTH_MAX) fail_at(r, where, "too deep");
    value v = r->status == EIDER_OK ? read_unary(r) : number(0);
    r->depth--;
    double x = need_number(r, where, &v);
    return number(negate ? -x : x == 0);
}

/* ---- Operators ----------------------------------------------------------- */

static double divide(struct reader *r, const char *where, char op, double a, double b)
{
    if (b == 0) {
        if (!r->dead) fail_at(r, where, "division by 0");
        return 0;
    }
    if (op == '%') return a - b * floor(a / b);
    return floor(a) == a && floor(b) == b ? floor(a / b) : a / b;
}

static value read_product(struct reader *r)
{
    value v = read_unary(r);
    for (;;) {
        skip(r);
        const char *where = r->at;
        char op = *where;
        if (r->status != EIDER_OK || (op != '*' && op != '/' && op != '%')) return v;
        r->at++;
        emit(r, &op, 1);
        value right = read_unary(r);
        double a = need_number(r, where, &v), b = need_number(r, where, &right);
        v = number(op == '*' ? a * b : divide(r, where, op, a, b));
    }
}

static value read_sum(struct reader *r)
{
    value v = read_product(r);
    for (;;) {
        skip(r);
        const char *where = r->at;
        char op = *where;
        if (r->status != EIDER_OK || (op != '+' && op != '-')) return v;
        r->at++;
        emit(r, &op, 1);
        value right = read_product(r);
        double a = need_number(r, where, &v), b = need_number(r, where, &right);
        v = number(op == '+' ? a + b : a - b);
    }
}

static int compare(struct reader *r, const char *where, const value *a, const value *b)
{
    if (a->kind != b->kind) {
        if (!r->dead) fail_at(r, where, "a number and a word cannot be compared");
        return 0;
    }
    if (a->kind == EIDER_EXPR_TEXT) return strcmp(a->text, b->text);
    return a->number < b->number ? -1 : a->number > b->number;
}

static value read_comparison(struct reader *r)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    value v = read_sum(r);
    skip(r);
    const char *where = r->at;
    size_t op = 0;
    while (op < 6 && !accept(r, ops[op])) op++;
    if (op == 6) return v;
    emit(r, ops[op], strlen(ops[op]));
    value right = read_sum(r);
    int c = compare(r, where, &v, &right);
    const int results[] = {c == 0, c != 0, c <= 0, c >= 0, c<0, c> 0};
    return number(results[op]);
}

static value read_and(struct reader *r)
{
    value v = read_comparison(r);
    for (;;) {
        skip(r);
        const char *where = r->at;
        if (!accept(r, "&&")) return v;
        emit(r, "&&", 2);
        int is_true = need_number(r, where, &v) != 0;
        r->dead += !is_true;
        value right = read_comparison(r);
        double b = need_number(r, where, &right);
        r->dead -= !is_true;
        v = number(is_true && b != 0);
    }
}

static value read_or(struct reader *r)
{
    if (++r->depth > DEPTH_MAX) fail_at(r, r->at, "too deep");
    value v = r->status == EIDER_OK ? read_and(r) : number(0);
    for (;;) {
        skip(r);
        const char *where = r->at;
        if (!accept(r, "||")) break;
        emit(r, "||", 2);
        int is_true = need_number(r, where, &v) != 0;
        r->dead += is_true;
        value right = read_and(r);
        double b = need_number(r, where, &right);
        r->dead -= is_true;
        v = number(is_true || b != 0);
    }
    r->depth--;
    return v;
}

eider_status eider_expr_eval(const char *what, const char *text, const char **at,
                             const struct eider_expr_scope *scope, struct eider_text *canonical,
                             struct eider_expr_value *out)
{
    struct reader r = {
        .what = what, .text = text, .at = *at, .scope = scope, .canonical = canonical};
    value v = read_or(&r);
    skip(&r);
    if (r.status == EIDER_OK && *r.at && *r.at != ',') expected(&r, "an operator or ','");
    if (r.status != EIDER_OK) return r.status;
    *at = r.at;
    *out = v;
    return canonical ? canonical->status : EIDER_OK;
}
