/* sass_diff.c -- two kernels side by side, as the longest common sequence.
 *
 * Instructions are compared without what a rescheduling or another allocation of registers
 * changes: numbers of registers, predicates and barriers, addresses, the names of kernels.
 * Invariant: memory is bounded; kernels too long for a table are compared by position.
 */
#include <stdio.h>
#include <string.h>

#include "sass.h"

#define CELLS_MAX ((size_t)64 << 20)
#define LINE_BYTES 320

struct eider_sass_diff {
    eider_allocator allocator;
    struct eider_arena arena;
    eider_sass_change *changes;
    size_t n;
};

/* ---- One instruction without its names --------------------------------- */

static int is_word(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Registers lose their numbers: R12 -> R, UR4 -> UR, !P0 -> !P; RZ, PT and SR_TID.X stay. */
static size_t copy_token(const char *at, char *out)
{
    static const char *const kinds[] = {"UR", "UP", "R", "P", "B", "SB"};
    size_t n = 0;
    while (is_word(at[n])) n++;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        size_t m = strlen(kinds[k]);
        if (n <= m || strncmp(at, kinds[k], m) != 0) continue;
        if (strspn(at + m, "0123456789") != n - m) continue;
        memcpy(out, kinds[k], m + 1);
        return n;
    }
    memcpy(out, at, n);
    out[n] = '\0';
    return n;
}

static void normalise(const eider_sass_instruction *i, char *out)
{
    const char *parts[] = {i->predicate, i->opcode, i->operands};
    size_t length = 0;
    for (int k = 0; k < 3; k++) {
        const char *at = parts[k];
        if (k == 2 && i->branches_to >= 0) at = "";
        if (length && *at) out[length++] = ' ';
        while (*at && length + 64 < LINE_BYTES) {
            char token[512];
            size_t n = k == 1 ? 0 : is_word(*at) ? copy_token(at, token) : 0;
            if (n == 0) {
                out[length++] = *at++;
                continue;
            }
            size_t m = strnlen(token, 48);
            if (at[n] == '.' && strncmp(at + n, ".reuse", 6) == 0) n += 6;
            memcpy(out + length, token, m);
            length += m;
            at += n;
        }
    }
    out[length] = '\0';
}

static const char **normalise_all(struct eider_sass_diff *d, const struct eider_sass *s)
{
    const char **lines = eider_arena_alloc(&d->arena, (s->n_code + 1) * sizeof *lines);
    for (size_t i = 0; lines && i < s->n_code; i++) {
        char line[LINE_BYTES];
        normalise(&s->code[i], line);
        lines[i] = eider_arena_text(&d->arena, line, strlen(line));
        if (!lines[i]) return NULL;
    }
    return lines;
}

/* ---- The longest common sequence --------------------------------------- */

struct side {
    const char **lines;
    size_t n;
};

static void put(struct eider_sass_diff *d, char sign, size_t before, size_t after, const char *text)
{
    d->changes[d->n++] = (eider_sass_change){.sign = sign,
                                             .before = sign == '+' ? -1 : (int32_t)before,
                                             .after = sign == '-' ? -1 : (int32_t)after,
                                             .text = text};
}

/* lengths[i][j]: of the longest common sequence of what follows a[i] and b[j]. */
static eider_status align(struct eider_sass_diff *d, const struct side *a, const struct side *b,
                          size_t start, size_t a_end, size_t b_end)
{
    size_t n = a_end - start, m = b_end - start;
    uint32_t *lengths = NULL;
    if ((n + 1) * (m + 1) <= CELLS_MAX) {
        lengths = eider_mem_zero(&d->allocator, (n + 1) * (m + 1) * sizeof *lengths);
        if (!lengths) return EIDER_OOM;
    }
#define LENGTH(i, j) lengths[(i) * (m + 1) + (j)]
    for (size_t i = n; lengths && i-- > 0;)
        for (size_t j = m; j-- > 0;) {
            uint32_t down = LENGTH(i + 1, j), right = LENGTH(i, j + 1);
            int same = strcmp(a->lines[start + i], b->lines[start + j]) == 0;
            LENGTH(i, j) = same ? LENGTH(i + 1, j + 1) + 1 : down > right ? down : right;
        }
    size_t i = 0, j = 0;
    while (i < n || j < m) {
        int same = i < n && j < m && strcmp(a->lines[start + i], b->lines[start + j]) == 0;
        int drop = j == m || (i < n && (!lengths || LENGTH(i + 1, j) >= LENGTH(i, j + 1)));
        if (same) {
            put(d, ' ', start + i, start + j, a->lines[start + i]);
            i++, j++;
        } else if (drop) {
            put(d, '-', start + i, 0, a->lines[start + i]);
            i++;
        } else {
            put(d, '+', 0, start + j, b->lines[start + j]);
            j++;
        }
    }
#undef LENGTH
    eider_mem_free(&d->allocator, lengths);
    return EIDER_OK;
}

static eider_status compare(struct eider_sass_diff *d, const struct side *a, const struct side *b)
{
    size_t start = 0, a_end = a->n, b_end = b->n;
    while (start < a_end && start < b_end && strcmp(a->lines[start], b->lines[start]) == 0) start++;
    while (a_end > start && b_end > start &&
           strcmp(a->lines[a_end - 1], b->lines[b_end - 1]) == 0) {
        a_end--;
        b_end--;
    }
    for (size_t i = 0; i < start; i++) put(d, ' ', i, i, a->lines[i]);
    EIDER_TRY(align(d, a, b, start, a_end, b_end));
    for (size_t i = a_end; i < a->n; i++) put(d, ' ', i, i - a_end + b_end, a->lines[i]);
    return EIDER_OK;
}

/* ---- Public ------------------------------------------------------------ */

eider_status eider_sass_compare(const eider_sass *before, const eider_sass *after,
                                eider_sass_diff **out)
{
    if (!before || !after || !out)
        return eider_fail(EIDER_BAD_ARG, "eider_sass_compare: an argument is NULL");
    struct eider_sass_diff *d = eider_mem_zero(&before->allocator, sizeof *d);
    if (!d) return EIDER_OOM;
    d->allocator = before->allocator;
    eider_arena_init(&d->arena, &d->allocator, (size_t)256 << 20);
    struct side a = {normalise_all(d, before), before->n_code};
    struct side b = {normalise_all(d, after), after->n_code};
    d->changes = eider_arena_alloc(&d->arena, (a.n + b.n + 1) * sizeof *d->changes);
    eider_status status = EIDER_OOM;
    if (a.lines && b.lines && d->changes) status = compare(d, &a, &b);
    if (status != EIDER_OK) {
        eider_sass_diff_release(d);
        return status;
    }
    *out = d;
    return EIDER_OK;
}

void eider_sass_diff_release(eider_sass_diff *diff)
{
    if (!diff) return;
    eider_allocator a = diff->allocator;
    eider_arena_release(&diff->arena);
    eider_mem_free(&a, diff);
}

int32_t eider_sass_changes(const eider_sass_diff *diff, size_t i, eider_sass_change *out)
{
    if (!diff || !out || i >= diff->n) return 0;
    *out = diff->changes[i];
    return 1;
}
