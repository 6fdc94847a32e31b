/* syntax.c -- see syntax.h. */
#include "syntax.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

static const enum eider_level levels[EIDER_OP_COUNT] = {
    [EIDER_OP_or] = EIDER_LEVEL_OR,       [EIDER_OP_and] = EIDER_LEVEL_AND,
    [EIDER_OP_eq] = EIDER_LEVEL_COMPARE,  [EIDER_OP_ne] = EIDER_LEVEL_COMPARE,
    [EIDER_OP_lt] = EIDER_LEVEL_COMPARE,  [EIDER_OP_le] = EIDER_LEVEL_COMPARE,
    [EIDER_OP_gt] = EIDER_LEVEL_COMPARE,  [EIDER_OP_ge] = EIDER_LEVEL_COMPARE,
    [EIDER_OP_add] = EIDER_LEVEL_SUM,     [EIDER_OP_sub] = EIDER_LEVEL_SUM,
    [EIDER_OP_mul] = EIDER_LEVEL_PRODUCT, [EIDER_OP_div] = EIDER_LEVEL_PRODUCT,
    [EIDER_OP_pow] = EIDER_LEVEL_POWER,
};

enum eider_level eider_syntax_level(enum eider_op op)
{
    return levels[op];
}

const char *eider_syntax_operator(enum eider_op op)
{
    if (!levels[op]) return NULL;
    return op == EIDER_OP_pow ? "**" : eider_ops[op].text;
}

enum eider_op eider_syntax_find(const char *text, size_t length)
{
    for (int op = 0; op < EIDER_OP_COUNT; op++) {
        const char *spelling = eider_syntax_operator((enum eider_op)op);
        if (spelling && strlen(spelling) == length && memcmp(spelling, text, length) == 0)
            return (enum eider_op)op;
    }
    return EIDER_OP_poison;
}

int eider_syntax_reserved(const char *text, size_t length)
{
    static const char *const words[] = {"and", "or", "not", "inf", "nan", "true", "false", "_"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0) return 1;
    return 0;
}

/* ---- Numbers ------------------------------------------------------------ */

/* glibc hands out one static object for "C": nothing is allocated, nothing is to free. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static int same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

void eider_syntax_write(double value, char buffer[EIDER_NUMBER_BYTES])
{
    locale_t before = uselocale(c_locale());
    if (isnan(value)) {
        snprintf(buffer, EIDER_NUMBER_BYTES, "nan");
    } else {
        snprintf(buffer, EIDER_NUMBER_BYTES, "%.9g", value);
        if (!same_bits(strtod(buffer, NULL), value))
            snprintf(buffer, EIDER_NUMBER_BYTES, "%.17g", value);
        size_t length = strlen(buffer);
        if (!strpbrk(buffer, ".einf")) memcpy(buffer + length, ".0", 3); /* not an integer */
    }
    uselocale(before);
}

int eider_syntax_read(const char *text, size_t length, double *out)
{
    char copy[512]; /* longer than any number that a double needs */
    if (length == 0 || length >= sizeof copy) return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *end;
    *out = strtod_l(copy, &end, c_locale());
    return end == copy + length && isfinite(*out);
}
