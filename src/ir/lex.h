/* lex.h -- what the parser stands on: the text as tokens, the names met so far, failures.
 *
 * Invariant: the first failure sticks in the graph and turns every further token into the
 * end of the text, so that no function of the parser checks more than its own step.
 */
#ifndef EIDER_IR_LEX_H
#define EIDER_IR_LEX_H

#include "parse.h"

enum eider_token_kind {
    EIDER_TOKEN_END,
    EIDER_TOKEN_SEPARATOR, /* ';' or a newline outside parentheses */
    EIDER_TOKEN_NAME,
    EIDER_TOKEN_INTEGER,
    EIDER_TOKEN_NUMBER,
    EIDER_TOKEN_PUNCTUATION
};

struct eider_token {
    enum eider_token_kind kind;
    const char *at;
    size_t length;
    uint64_t integer; /* magnitude; up to 2^63 */
    double number;
};

enum eider_symbol_kind {
    EIDER_SYMBOL_INPUT,
    EIDER_SYMBOL_SCALAR,
    EIDER_SYMBOL_OUTPUT, /* declared so */
    EIDER_SYMBOL_LOCAL
};

struct eider_symbol {
    const char *at; /* where the name first appears */
    size_t length;
    eider_node node; /* 0: a declared output that is not assigned yet */
    int32_t type;
    eider_extent extent; /* of an input */
    int is_full;         /* an output */
    enum eider_symbol_kind kind;
    int read;
};

struct eider_parser {
    struct eider_graph *g;
    const char *text, *cursor;
    struct eider_token token;
    int parentheses; /* open ones; a newline inside them separates nothing */
    int depth;       /* of expressions */
    int body;        /* 0: a program; else how many bodies deep */

    /* The results of a call of several; it must be the whole right side of an assignment,
     * which begins at `right_side`. */
    const char *right_side;
    int n_results; /* 0: there is no such call */
    eider_node results[EIDER_RESULTS_MAX];

    struct eider_symbol *symbols; /* in the order of their first appearance */
    uint32_t n_symbols, room_symbols;
    uint32_t *index; /* open addressing; number of a symbol + 1 */
    uint32_t index_size;
};

/* ---- Failures and tokens (lex.c) ------------------------------------------ */

int eider_lex_failed(const struct eider_parser *p);
/* "line:column: found X, expected Y" at `at`, or about the token.  Returns 0. */
eider_node eider_lex_fail_at(struct eider_parser *p, const char *at, const char *found,
                             const char *expected);
eider_node eider_lex_fail(struct eider_parser *p, const char *expected);

/* Reads the next token. */
void eider_lex_advance(struct eider_parser *p);
/* Whether the token is this word or punctuation. */
int eider_lex_is(const struct eider_parser *p, const char *text);
/* The same, and then reads the next one. */
int eider_lex_accept(struct eider_parser *p, const char *text);
/* Fails when the token is another; `phrase` says what is expected. */
void eider_lex_expect(struct eider_parser *p, const char *text, const char *phrase);
/* What follows the token, blanks aside. */
const char *eider_lex_following(const struct eider_parser *p);
/* Whether a name can begin with `c`. */
int eider_lex_is_letter(char c);

/* ---- Names (scope.c) ------------------------------------------------------ */

/* The symbol of that name, or NULL.  Good until the next one is added. */
struct eider_symbol *eider_scope_find(struct eider_parser *p, const char *name, size_t length);
/* Adds a name that is not there; NULL when memory is exhausted. */
struct eider_symbol *eider_scope_add(struct eider_parser *p, const char *name, size_t length,
                                     enum eider_symbol_kind kind);
void eider_scope_release(struct eider_parser *p);

#endif
