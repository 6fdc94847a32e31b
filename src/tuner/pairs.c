/* pairs.c -- see pairs.h. */
#include "pairs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

size_t eider_pairs_word(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_' || text[n] == '.') n++;
    return n;
}

static struct eider_pair *find(const struct eider_pairs *pairs, const char *name)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->at[i].name, name) == 0) return (struct eider_pair *)&pairs->at[i];
    return NULL;
}

eider_status eider_pairs_set(struct eider_pairs *pairs, const char *name, const char *value)
{
    struct eider_pair *pair = find(pairs, name);
    if (!pair) {
        if (pairs->n == EIDER_PAIRS_MAX)
            return eider_fail(EIDER_TOO_LARGE, "a config of more than %d parameters",
                              EIDER_PAIRS_MAX);
        pair = &pairs->at[pairs->n++];
        snprintf(pair->name, sizeof pair->name, "%s", name);
    }
    snprintf(pair->value, sizeof pair->value, "%s", value);
    return EIDER_OK;
}

const char *eider_pairs_get(const struct eider_pairs *pairs, const char *name)
{
    const struct eider_pair *pair = find(pairs, name);
    return pair ? pair->value : NULL;
}

void eider_pairs_remove(struct eider_pairs *pairs, const char *name)
{
    struct eider_pair *pair = find(pairs, name);
    if (!pair) return;
    size_t i = (size_t)(pair - pairs->at);
    memmove(pair, pair + 1, (pairs->n - i - 1) * sizeof *pair);
    pairs->n--;
}

static eider_status parse_word(const char *what, const char *text, const char **at,
                               char out[EIDER_PAIR_BYTES])
{
    size_t n = eider_pairs_word(*at);
    if (n == 0 || n >= EIDER_PAIR_BYTES)
        return eider_fail(EIDER_PARSE, "%s: %zu: expected a name or value of 1 to %d characters",
                          what, (size_t)(*at - text) + 1, EIDER_PAIR_BYTES - 1);
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
    return EIDER_OK;
}

eider_status eider_pairs_parse(const char *what, const char *text, struct eider_pairs *out)
{
    const char *at = text ? text : "";
    out->n = 0;
    while (*at) {
        char name[EIDER_PAIR_BYTES], value[EIDER_PAIR_BYTES];
        EIDER_TRY(parse_word(what, text, &at, name));
        if (*at != '=')
            return eider_fail(EIDER_PARSE, "%s: %zu: expected '=' after %s", what,
                              (size_t)(at - text) + 1, name);
        at++;
        EIDER_TRY(parse_word(what, text, &at, value));
        EIDER_TRY(eider_pairs_set(out, name, value));
        if (*at && *at != ',')
            return eider_fail(EIDER_PARSE, "%s: %zu: expected ',', found '%c'", what,
                              (size_t)(at - text) + 1, *at);
        if (*at) at++;
    }
    return EIDER_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct eider_pair *)a)->name, ((const struct eider_pair *)b)->name);
}

void eider_pairs_sort(struct eider_pairs *pairs)
{
    qsort(pairs->at, pairs->n, sizeof pairs->at[0], by_name);
}

void eider_pairs_print(const struct eider_pairs *pairs, char *buffer)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < pairs->n; i++)
        length += (size_t)snprintf(buffer + length, EIDER_PAIRS_TEXT_BYTES - length, "%s%s=%s",
                                   i ? "," : "", pairs->at[i].name, pairs->at[i].value);
}

/* ---- Order --------------------------------------------------------------- */

/* The position of `value` in the row of params.def; -1 when there is none. */
static int listed(const char *name, const char *value)
{
    const char *row, *values, *doc;
    for (size_t i = 0; eider_config_row(i, &row, &values, &doc); i++) {
        if (strcmp(row, name) != 0) continue;
        int position = 0;
        for (const char *at = values; *at; position++) {
            size_t n = strcspn(at, "|");
            if (n == strlen(value) && memcmp(at, value, n) == 0) return position;
            at += n + (at[n] == '|');
        }
    }
    return -1;
}

int eider_pairs_compare_values(const char *name, const char *a, const char *b)
{
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    if (!*end_a && !*end_b) return x < y ? -1 : x > y;
    int i = listed(name, a), j = listed(name, b);
    if (i >= 0 && j >= 0) return i < j ? -1 : i > j;
    return strcmp(a, b);
}

/* Copies "name=value" apart and steps over it. */
static int next(const char **at, struct eider_pair *out)
{
    size_t n = strcspn(*at, "=,"), total = strcspn(*at, ",");
    if (!**at) return 0;
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, *at);
    snprintf(out->value, sizeof out->value, "%.*s", (int)(total - n) - (n < total),
             *at + n + (n < total));
    *at += total + ((*at)[total] == ',');
    return 1;
}

int eider_pairs_compare(const char *a, const char *b)
{
    struct eider_pair x, y;
    for (;;) {
        int more_a = next(&a, &x), more_b = next(&b, &y);
        if (!more_a || !more_b) return more_a - more_b;
        int order = strcmp(x.name, y.name);
        if (!order) order = eider_pairs_compare_values(x.name, x.value, y.value);
        if (order) return order;
    }
}
