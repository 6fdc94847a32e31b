/* sass_warn.c -- what makes kernels slow and is easily overlooked.
 *
 * Each check is a function over one instruction of the pass, or over the whole report; a
 * warning names its first instruction and how many there are.
 * Invariant: no warning without an instruction or a number that proves it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sass.h"

#define WIDEST 16 /* bytes of an access that every target has */

static int is_memory(const eider_sass_instruction *i, const char *space,
                     struct eider_sass_memory *m)
{
    return eider_sass_memory_of(i->opcode, m) && strcmp(m->space, space) == 0;
}

/* ---- Checks of one instruction ----------------------------------------- */

static int is_call(const struct eider_sass *s, size_t i)
{
    return eider_sass_opcode_is(s->code[i].opcode, "CALL");
}

static int is_division_check(const struct eider_sass *s, size_t i)
{
    return eider_sass_opcode_is(s->code[i].opcode, "FCHK");
}

static int is_local(const struct eider_sass *s, size_t i)
{
    struct eider_sass_memory m;
    return is_memory(&s->code[i], "local", &m);
}

static int is_barrier(const struct eider_sass *s, size_t i)
{
    return s->code[i].in_pass && eider_sass_opcode_is(s->code[i].opcode, "BAR");
}

/* One value where the instruction converts two: the other operand is the zero register. */
static int is_half_conversion(const struct eider_sass *s, size_t i)
{
    const eider_sass_instruction *code = &s->code[i];
    if (!code->in_pass) return 0;
    if (eider_sass_opcode_is(code->opcode, "F2F"))
        return eider_sass_opcode_has(code->opcode, "F16") ||
               eider_sass_opcode_has(code->opcode, "BF16");
    return eider_sass_opcode_is(code->opcode, "F2FP") && strstr(code->operands, "RZ") != NULL;
}

static int is_predicated(const struct eider_sass *s, size_t i)
{
    const eider_sass_instruction *code = &s->code[i];
    int leaves = strcmp(code->unit, eider_sass_unit_name(EIDER_UNIT_CONTROL)) == 0;
    return code->in_pass && code->predicate[0] && !leaves;
}

static int is_narrow(const struct eider_sass *s, size_t i)
{
    struct eider_sass_memory m;
    return s->code[i].in_pass && is_memory(&s->code[i], "global", &m) && m.width < 4;
}

/* The address of an access: "[R2.64+0x10]" gives the part before the offset, and the offset. */
static size_t split_address(const char *operands, const char **base, long *offset)
{
    const char *at = strrchr(operands, '[');
    if (!at) return 0;
    size_t n = strcspn(at, "+]");
    *base = at;
    *offset = at[n] == '+' ? strtol(at + n + 1, NULL, 16) : 0;
    if (at[n] == '+' && at[n + 1] == '-') *offset = -strtol(at + n + 2, NULL, 16);
    return n;
}

/* Another access of the pass continues this one, and both would fit one. */
static int is_mergeable(const struct eider_sass *s, size_t i)
{
    struct eider_sass_memory m, other;
    const char *base, *other_base;
    long at, other_at;
    const eider_sass_instruction *code = &s->code[i];
    if (!code->in_pass || !is_memory(code, "global", &m) || m.width * 2 > WIDEST) return 0;
    size_t n = split_address(code->operands, &base, &at);
    for (size_t k = 0; n && k < s->n_code; k++) {
        const eider_sass_instruction *next = &s->code[k];
        if (!next->in_pass || k == i || strcmp(next->opcode, code->opcode) != 0) continue;
        if (!is_memory(next, "global", &other)) continue;
        if (split_address(next->operands, &other_base, &other_at) != n) continue;
        int adjacent = other_at == at + m.width && at % (2 * m.width) == 0;
        if (adjacent && memcmp(base, other_base, n) == 0) return 1;
    }
    return 0;
}

static const struct {
    const char *name, *text;
    int (*is)(const struct eider_sass *s, size_t i);
} checks[] = {
    {"call", "a call of a subroutine: a division or another operation written out", is_call},
    {"division-check", "a division checks for a slow path", is_division_check},
    {"local-memory", "local memory: spilled registers or an array indexed at run time", is_local},
    {"barrier", "a barrier in the pass: warps wait for each other", is_barrier},
    {"narrow-access", "global accesses of less than 4 bytes", is_narrow},
    {"unmerged-access", "neighbouring accesses that one wider access could do: alignment?",
     is_mergeable},
    {"unpacked-conversion", "conversions of one value where the instruction does two",
     is_half_conversion},
    {"predicated", "instructions that are skipped where their predicate says so", is_predicated},
};

/* ---- Packed PTX -------------------------------------------------------- */

static int is_packed_arithmetic(const char *line, size_t n)
{
    static const char *const types[] = {".f16x2", ".bf16x2", ".f32x2"};
    const char *at = line;
    while (n && (*at == ' ' || *at == '\t')) at++, n--;
    if (n > 3 && strncmp(at, "cvt", 3) == 0) return 0;
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        if (memmem(at, n, types[k], strlen(types[k]))) return 1;
    return 0;
}

/* Instructions of the pass that do the work of PTX line `line`, other than moving registers. */
static uint32_t count_work(const struct eider_sass *s, uint32_t line, int32_t *first)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_code; i++) {
        const eider_sass_instruction *code = &s->code[i];
        int works = strcmp(code->unit, "FMA") == 0 || strcmp(code->unit, "MUFU") == 0;
        if (!code->in_pass || code->ptx_line != line || !works) continue;
        if (n++ == 0) *first = (int32_t)i;
    }
    return n;
}

static void check_packed(struct eider_sass *s, const char *ptx, size_t size)
{
    uint32_t line = 1, found = 0;
    int32_t first = -1;
    for (size_t at = 0; ptx && at < size; line++) {
        size_t n = 0;
        while (at + n < size && ptx[at + n] && ptx[at + n] != '\n') n++;
        int32_t here = -1;
        if (is_packed_arithmetic(ptx + at, n) && count_work(s, line, &here) > 1) {
            if (found++ == 0) first = here;
        }
        at += n + 1;
    }
    if (found)
        s->warnings[s->n_warnings++] = (eider_sass_warning){
            "unpacked-arithmetic", "packed PTX that is one instruction per half on this target",
            first, found};
}

static void check_all(struct eider_sass *s, size_t which)
{
    eider_sass_warning w = {checks[which].name, checks[which].text, -1, 0};
    for (size_t i = 0; i < s->n_code; i++) {
        if (s->code[i].in_tail || !checks[which].is(s, i)) continue;
        if (w.n++ == 0) w.instruction = (int32_t)i;
    }
    if (w.n) s->warnings[s->n_warnings++] = w;
}

eider_status eider_sass_warn_all(struct eider_sass *s, const char *ptx, size_t ptx_size)
{
    size_t n = sizeof checks / sizeof checks[0];
    s->warnings = eider_arena_alloc(&s->arena, (n + 1) * sizeof *s->warnings);
    if (!s->warnings) return EIDER_OOM;
    for (size_t k = 0; k < n; k++) check_all(s, k);
    check_packed(s, ptx, ptx_size);
    return EIDER_OK;
}
