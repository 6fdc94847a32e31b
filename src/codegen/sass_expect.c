/* sass_expect.c -- budgets: "MUFU.TANH=1, FMUL<=5, FFMA<=3".
 *
 * A name is an opcode, or the beginning of one up to a dot, or a unit.  Of a program's kernel
 * only what computes its terms counts, since loads, addresses and conversions belong to the
 * template and the types; of other kernels everything in the pass does.
 */
#include <stdlib.h>
#include <string.h>

#include "sass.h"

#define WHITE " \t\n"
#define TOLERANCE 1e-9

static double count(const struct eider_sass *s, const char *name)
{
    double n = 0;
    for (size_t k = 0; k < s->n_opcodes; k++) {
        const eider_sass_opcode *o = &s->opcodes[k];
        if (!eider_sass_opcode_is(o->opcode, name) && strcmp(o->unit, name) != 0) continue;
        n += s->has_program ? o->in_terms : o->per_element;
    }
    return n;
}

static int holds(const char *relation, double got, double want)
{
    if (strcmp(relation, "<") == 0) return got < want - TOLERANCE;
    if (strcmp(relation, ">") == 0) return got > want + TOLERANCE;
    if (strcmp(relation, "<=") == 0) return got <= want + TOLERANCE;
    if (strcmp(relation, ">=") == 0) return got >= want - TOLERANCE;
    return got >= want - TOLERANCE && got <= want + TOLERANCE;
}

static eider_status fail(const char *budget, const char *at)
{
    return eider_fail(EIDER_PARSE,
                      "budget, column %d: found '%.20s', expected claims such as "
                      "MUFU.TANH=1, FMUL<=5",
                      (int)(at - budget) + 1, at);
}

eider_status eider_sass_expect(const eider_sass *s, const char *budget, size_t i,
                               eider_sass_claim *out)
{
    if (!s || !budget || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_sass_expect: an argument is NULL");
    const char *at = budget + strspn(budget, WHITE ",");
    for (;; i--) {
        *out = (eider_sass_claim){0};
        if (!*at) return EIDER_OK;
        size_t n = strcspn(at, "<>=," WHITE);
        if (n == 0 || n >= sizeof out->name) return fail(budget, at);
        memcpy(out->name, at, n);
        at += n;
        at += strspn(at, WHITE);
        n = strspn(at, "<>=");
        if (n == 0 || n > 2 || (n == 2 && at[1] != '=')) return fail(budget, at);
        memcpy(out->relation, at, n);
        if (strcmp(out->relation, "==") == 0) out->relation[1] = '\0';
        at += n;
        char *end;
        out->want = strtod(at, &end);
        if (end == at || !(out->want >= 0)) return fail(budget, at);
        at = end + strspn(end, WHITE);
        if (*at && *at != ',') return fail(budget, at);
        at += strspn(at, WHITE ",");
        if (i == 0) break;
    }
    out->got = count(s, out->name);
    out->holds = holds(out->relation, out->got, out->want);
    return EIDER_OK;
}
