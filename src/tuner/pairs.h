/* pairs.h -- a config of any kernel as names and values.
 *
 * Invariant: names are unique and have 1 to EIDER_PAIR_BYTES - 1 characters of
 * [A-Za-z0-9_.], as values have; the order is that in which they were put.
 * Not here: what a name means.  For a program's parameters that is config.h.
 */
#ifndef EIDER_TUNER_PAIRS_H
#define EIDER_TUNER_PAIRS_H

#include "memory.h"

#define EIDER_PAIR_BYTES 32
#define EIDER_PAIRS_MAX 16
#define EIDER_PAIRS_TEXT_BYTES (EIDER_PAIRS_MAX * 2 * EIDER_PAIR_BYTES)

struct eider_pair {
    char name[EIDER_PAIR_BYTES], value[EIDER_PAIR_BYTES];
};

struct eider_pairs {
    size_t n;
    struct eider_pair at[EIDER_PAIRS_MAX];
};

/* Reads "vec=8,block=256"; NULL and "" are empty.  Fails with EIDER_PARSE: "what: 5:
 * expected '='", where 5 is the column. */
eider_status eider_pairs_parse(const char *what, const char *text, struct eider_pairs *out);

/* The length of the word at `text`. */
size_t eider_pairs_word(const char *text);

/* Fails with EIDER_TOO_LARGE. */
eider_status eider_pairs_set(struct eider_pairs *pairs, const char *name, const char *value);
/* NULL when there is none. */
const char *eider_pairs_get(const struct eider_pairs *pairs, const char *name);
void eider_pairs_remove(struct eider_pairs *pairs, const char *name);
/* By name. */
void eider_pairs_sort(struct eider_pairs *pairs);
/* `buffer` has EIDER_PAIRS_TEXT_BYTES bytes. */
void eider_pairs_print(const struct eider_pairs *pairs, char *buffer);

/* Which of two values is the simpler: the smaller number; of the words of a parameter of
 * params.def the one that is listed first; else the first in the alphabet. */
int eider_pairs_compare_values(const char *name, const char *a, const char *b);

/* The order of configs, the simplest first: by the first parameter that differs. */
int eider_pairs_compare(const char *a, const char *b);

#endif
