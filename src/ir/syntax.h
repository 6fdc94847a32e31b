/* syntax.h -- what the parser and the printer must agree on: operators, words, numbers.
 *
 * Invariant: a number that is written reads back to the same bits, whatever the locale.
 */
#ifndef EIDER_IR_SYNTAX_H
#define EIDER_IR_SYNTAX_H

#include "graph.h"

/* How tightly an expression binds; an operand that binds less is put in parentheses. */
enum eider_level {
    EIDER_LEVEL_OR = 1,
    EIDER_LEVEL_AND,
    EIDER_LEVEL_NOT,
    EIDER_LEVEL_COMPARE, /* does not chain */
    EIDER_LEVEL_SUM,
    EIDER_LEVEL_PRODUCT,
    EIDER_LEVEL_UNARY,
    EIDER_LEVEL_POWER, /* groups from the right; its exponent is a UNARY */
    EIDER_LEVEL_PRIMARY
};

/* The level of a binary operator; 0 when `op` is none. */
enum eider_level eider_syntax_level(enum eider_op op);
/* Its spelling, "+" or "and"; NULL when `op` is none. */
const char *eider_syntax_operator(enum eider_op op);
/* The binary operator spelt so, or EIDER_OP_poison. */
enum eider_op eider_syntax_find(const char *text, size_t length);

/* Whether the word means something of its own, so that no operand can have its name. */
int eider_syntax_reserved(const char *text, size_t length);

/* Deepest nesting of an expression that the parser accepts. */
#define EIDER_DEPTH_MAX 256
/* Longest text that the parser accepts. */
#define EIDER_PARSE_BYTES_MAX (1u << 20)

#define EIDER_NUMBER_BYTES 32
/* The shortest of 9 and 17 digits that reads back to the same bits; "inf", "-inf", "nan". */
void eider_syntax_write(double value, char buffer[EIDER_NUMBER_BYTES]);
/* Reads a decimal or hexadecimal C number of exactly `length` bytes; 0 when it is none or
 * too large for a double. */
int eider_syntax_read(const char *text, size_t length, double *out);

#endif
