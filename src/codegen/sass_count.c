/* sass_count.c -- the pass in numbers: opcodes, accesses, terms.
 *
 * Invariant: all numbers per element are counts of the pass divided by its elements; every
 * instruction of the pass is counted once in the opcodes and once in the terms.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sass.h"

/* ---- Opcodes ----------------------------------------------------------- */

static int computes(const struct eider_sass *s, const eider_sass_instruction *i)
{
    if (!s->has_program || i->term < 0) return 0;
    return s->terms[i->term].kind == EIDER_SASS_STEP || s->terms[i->term].kind == EIDER_SASS_TERM;
}

static void count_opcode(struct eider_sass *s, const eider_sass_instruction *i)
{
    size_t k = 0;
    while (k < s->n_opcodes && strcmp(s->opcodes[k].opcode, i->opcode) != 0) k++;
    if (k == s->n_opcodes)
        s->opcodes[s->n_opcodes++] = (eider_sass_opcode){.opcode = i->opcode, .unit = i->unit};
    s->opcodes[k].n++;
    s->opcodes[k].in_terms += computes(s, i);
}

static int by_frequency(const void *a, const void *b)
{
    const eider_sass_opcode *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return strcmp(x->opcode, y->opcode);
}

static void finish_opcodes(struct eider_sass *s)
{
    for (size_t k = 0; k < s->n_opcodes; k++) {
        s->opcodes[k].per_element = s->opcodes[k].n / s->summary.elements;
        s->opcodes[k].in_terms /= s->summary.elements;
    }
    qsort(s->opcodes, s->n_opcodes, sizeof *s->opcodes, by_frequency);
}

/* ---- Accesses ---------------------------------------------------------- */

static void count_access(struct eider_sass *s, const eider_sass_instruction *i)
{
    struct eider_sass_memory m;
    char policy[64];
    if (!eider_sass_memory_of(i->opcode, &m)) return;
    eider_sass_policy_of(i->opcode, policy, sizeof policy);
    for (size_t k = 0; k < s->n_accesses; k++) {
        eider_sass_access *a = &s->accesses[k];
        if (strcmp(a->space, m.space) != 0 || a->is_store != m.is_store || a->width != m.width ||
            strcmp(a->policy, policy) != 0)
            continue;
        a->n++;
        return;
    }
    s->accesses[s->n_accesses++] = (eider_sass_access){.space = m.space,
                                                       .policy = eider_sass_text(s, "%s", policy),
                                                       .is_store = m.is_store,
                                                       .width = m.width,
                                                       .n = 1};
}

/* ---- Terms ------------------------------------------------------------- */

static int belongs(const struct eider_sass *s, const eider_sass_instruction *i, size_t term)
{
    if (!i->in_pass || i->term < 0) return 0;
    return (size_t)i->term == term || s->terms[i->term].parent == (int32_t)term;
}

/* A name with its count, in a list that is kept by count. */
struct tally {
    const char *name;
    uint32_t n;
};

static size_t add(struct tally *list, size_t n, size_t room, const char *name)
{
    size_t k = 0;
    while (k < n && strcmp(list[k].name, name) != 0) k++;
    if (k == room) return n;
    if (k == n) list[n++] = (struct tally){name, 0};
    list[k].n++;
    for (; k > 0 && list[k - 1].n < list[k].n; k--) {
        struct tally other = list[k];
        list[k] = list[k - 1];
        list[k - 1] = other;
    }
    return n;
}

static char *print_tally(struct eider_sass *s, const struct tally *list, size_t n)
{
    char text[1024] = "", number[32];
    size_t length = 0;
    for (size_t k = 0; k < n && length + 100 < sizeof text; k++) {
        eider_sass_number(list[k].n / s->summary.elements, number, sizeof number);
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s %s", k ? ", " : "",
                                   number, list[k].name);
    }
    return eider_sass_text(s, "%s", text);
}

static void count_term(struct eider_sass *s, size_t term)
{
    enum { KINDS_MAX = 64 };
    struct tally opcodes[KINDS_MAX], units[EIDER_UNIT_COUNT];
    size_t n_opcodes = 0, n_units = 0;
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_code; i++) {
        if (!belongs(s, &s->code[i], term)) continue;
        n_opcodes = add(opcodes, n_opcodes, KINDS_MAX, s->code[i].opcode);
        n_units = add(units, n_units, EIDER_UNIT_COUNT, s->code[i].unit);
        n++;
    }
    s->terms[term].per_element = n / s->summary.elements;
    s->terms[term].opcodes = print_tally(s, opcodes, n_opcodes);
    s->terms[term].units = print_tally(s, units, n_units);
}

eider_status eider_sass_count_all(struct eider_sass *s)
{
    size_t n = s->summary.n_pass + 1;
    s->opcodes = eider_arena_alloc(&s->arena, n * sizeof *s->opcodes);
    s->accesses = eider_arena_alloc(&s->arena, n * sizeof *s->accesses);
    if (!s->opcodes || !s->accesses) return EIDER_OOM;
    int32_t cycles = 0;
    for (size_t i = 0; i < s->n_code; i++) {
        if (!s->code[i].in_pass) continue;
        count_opcode(s, &s->code[i]);
        count_access(s, &s->code[i]);
        cycles += s->code[i].stall;
    }
    finish_opcodes(s);
    s->summary.pass_cycles = cycles;
    for (size_t k = 0; k < s->n_terms; k++) count_term(s, k);
    return s->status;
}
