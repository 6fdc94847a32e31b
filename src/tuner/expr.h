/* expr.h -- small expressions over a call's operands and a config's parameters.
 *
 *     vec * unroll <= 16 && x.size(-1) % vec == 0
 *     ceil_div(x.count, 256 * vec)
 *
 * Numbers are doubles; what is whole stays whole: `/` of whole numbers rounds down.  There
 * are no side effects, no loops and no time: an expression is read and computed in one go.
 * Operands have properties: dtype, shape, size(), size(d), shape[d], stride(), stride(d),
 * rank, count (elements) and align (bytes, up to 16); negative d counts from the end.
 * docs/TUNING.md has the whole language.
 */
#ifndef EIDER_TUNER_EXPR_H
#define EIDER_TUNER_EXPR_H

#include "pairs.h"

/* What names mean. */
struct eider_expr_scope {
    size_t n_operands;
    const char *const *names; /* of operands, in order */
    const eider_operand_kind *kinds;
    const eider_tensor *args;
    const struct eider_pairs *config; /* NULL: parameters have no value here */
};

enum eider_expr_kind { EIDER_EXPR_NUMBER, EIDER_EXPR_TEXT };

#define EIDER_EXPR_TEXT_BYTES 400
struct eider_expr_value {
    enum eider_expr_kind kind;
    double number;
    char text[EIDER_EXPR_TEXT_BYTES]; /* a word, a list "4096,14336", or a number's digits */
    int operand;                      /* the value is this whole operand; else -1 */
};

/* Reads one expression at *at, which moves to what follows it: the end, or a ','.  `what`
 * names the text in errors, which say at which column of `text` they are.  With `canonical`,
 * the expression is added there in one spelling.
 * Fails with EIDER_PARSE. */
eider_status eider_expr_eval(const char *what, const char *text, const char **at,
                             const struct eider_expr_scope *scope, struct eider_text *canonical,
                             struct eider_expr_value *out);

#endif
