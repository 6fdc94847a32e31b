/* lex.c -- see lex.h. */
#include "lex.h"

#include <stdio.h>
#include <string.h>

#include "syntax.h"

/* ---- Failures ------------------------------------------------------------- */

int eider_lex_failed(const struct eider_parser *p)
{
    return p->g->status != EIDER_OK;
}

eider_node eider_lex_fail_at(struct eider_parser *p, const char *at, const char *found,
                             const char *expected)
{
    size_t line = 1;
    const char *start = p->text;
    for (const char *c = p->text; c < at; c++) {
        if (*c != '\n') continue;
        line++;
        start = c + 1;
    }
    p->token = (struct eider_token){.kind = EIDER_TOKEN_END, .at = at};
    return eider_graph_fail(p->g, EIDER_PARSE, "%zu:%zu: found %s, expected %s", line,
                            (size_t)(at - start) + 1, found, expected);
}

/* 'text' of a token, shortened and with nothing that a terminal would obey. */
static void quote(const struct eider_token *t, char *buffer, size_t size)
{
    if (t->kind == EIDER_TOKEN_END || (t->kind == EIDER_TOKEN_SEPARATOR && *t->at == '\n')) {
        snprintf(buffer, size, "the end of the %s", t->kind == EIDER_TOKEN_END ? "text" : "line");
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

eider_node eider_lex_fail(struct eider_parser *p, const char *expected)
{
    char found[256];
    if (eider_lex_failed(p)) return 0;
    quote(&p->token, found, sizeof found);
    return eider_lex_fail_at(p, p->token.at, found, expected);
}

/* ---- Tokens --------------------------------------------------------------- */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int eider_lex_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Everything that could belong to a number, so that "1x" is one wrong token, not two. */
static size_t number_length(const char *c)
{
    int hexadecimal = c[0] == '0' && (c[1] == 'x' || c[1] == 'X');
    size_t n = 0;
    while (eider_lex_is_letter(c[n]) || is_digit(c[n]) || c[n] == '.') {
        char lower = (char)(c[n] | 0x20);
        int exponent = lower == (hexadecimal ? 'p' : 'e');
        n++;
        if (exponent && (c[n] == '+' || c[n] == '-')) n++;
    }
    return n;
}

static int read_integer(struct eider_token *t)
{
    t->integer = 0;
    for (size_t i = 0; i < t->length; i++) {
        if (!is_digit(t->at[i])) return 0;
        if (t->integer > (UINT64_C(1) << 63) / 10) return 0;
        t->integer = t->integer * 10 + (uint64_t)(t->at[i] - '0');
    }
    return t->integer <= UINT64_C(1) << 63;
}

static void read_number(struct eider_parser *p, struct eider_token *t)
{
    t->length = number_length(t->at);
    t->kind = EIDER_TOKEN_INTEGER;
    if (read_integer(t)) return;
    t->kind = EIDER_TOKEN_NUMBER;
    if (strspn(t->at, "0123456789") >= t->length)
        eider_lex_fail(p, "an integer of at most 64 bits, or a number with '.'");
    else if (!eider_syntax_read(t->at, t->length, &t->number))
        eider_lex_fail(p, "a number");
}

static size_t punctuation_length(const char *c)
{
    static const char *const pairs[] = {"**", "==", "!=", "<=", ">="};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (c[0] == pairs[i][0] && c[1] == pairs[i][1]) return 2;
    return 1;
}

const char *eider_lex_following(const struct eider_parser *p)
{
    const char *c = p->cursor;
    for (;; c++) {
        if (*c == '#')
            while (*c && *c != '\n') c++;
        if (*c == ' ' || *c == '\t' || *c == '\r' || (*c == '\n' && p->parentheses)) continue;
        return c;
    }
}

void eider_lex_advance(struct eider_parser *p)
{
    if (eider_lex_failed(p)) return;
    struct eider_token *t = &p->token;
    *t = (struct eider_token){.at = eider_lex_following(p), .length = 1};
    if (*t->at == '\0') {
        t->kind = EIDER_TOKEN_END;
        t->length = 0;
    } else if (*t->at == ';' || *t->at == '\n') {
        t->kind = EIDER_TOKEN_SEPARATOR;
    } else if (eider_lex_is_letter(*t->at)) {
        t->kind = EIDER_TOKEN_NAME;
        while (eider_lex_is_letter(t->at[t->length]) || is_digit(t->at[t->length])) t->length++;
    } else if (is_digit(*t->at) || (*t->at == '.' && is_digit(t->at[1]))) {
        read_number(p, t);
    } else {
        t->kind = EIDER_TOKEN_PUNCTUATION;
        t->length = punctuation_length(t->at);
        p->parentheses += (*t->at == '(') - (*t->at == ')' && p->parentheses > 0);
    }
    if (!eider_lex_failed(p)) p->cursor = t->at + t->length;
}

int eider_lex_is(const struct eider_parser *p, const char *text)
{
    return p->token.length == strlen(text) && memcmp(p->token.at, text, p->token.length) == 0 &&
           p->token.kind != EIDER_TOKEN_END;
}

int eider_lex_accept(struct eider_parser *p, const char *text)
{
    if (eider_lex_failed(p) || !eider_lex_is(p, text)) return 0;
    eider_lex_advance(p);
    return 1;
}

void eider_lex_expect(struct eider_parser *p, const char *text, const char *phrase)
{
    if (!eider_lex_accept(p, text)) eider_lex_fail(p, phrase);
}
