/* sass_source.c -- the IR and the PTX line by line, each with its term.
 *
 * In PTX a .loc holds for the instructions behind it; in IR an instruction names its location,
 * which the text has further down.  Texts that eider did not write are their own line
 * information: the number of a line is what instructions refer to.
 * Invariant: what is line information is not shown.
 */
#include <stdlib.h>
#include <string.h>

#include "sass.h"

#define DEBUG_MARK ", !dbg !"

/* A text, and what its lines mean. */
struct source {
    struct eider_sass *s;
    const struct eider_sass_names *names;
    const char *text;
    size_t size;
    int is_numbered; /* a line's number is what instructions refer to */
};

static size_t count_lines(const struct source *t)
{
    size_t n = 1;
    for (size_t i = 0; i < t->size; i++) n += t->text[i] == '\n' || t->text[i] == '\0';
    return n;
}

/* Length of the line at `at`; embedded PTX ends lines with NUL. */
static size_t line_length(const struct source *t, size_t at)
{
    size_t n = 0;
    while (at + n < t->size && t->text[at + n] && t->text[at + n] != '\n') n++;
    return n;
}

static int begins(const char *at, size_t n, const char *word)
{
    size_t m = strlen(word);
    return n >= m && memcmp(at, word, m) == 0;
}

static void put(struct source *t, eider_sass_line *line, const char *at, size_t n, uint32_t number)
{
    int is_tail;
    char *text = eider_arena_text(&t->s->arena, at, n);
    line->text = text ? text : "";
    if (!text) t->s->status = EIDER_OOM;
    line->term = eider_sass_term_of(t->s, t->names, number, &is_tail);
    line->in_tail = (int8_t)is_tail;
}

/* ---- PTX ------------------------------------------------------------------ */

static int is_debug(const char *at, size_t n)
{
    return begins(at, n, ".loc") || begins(at, n, ".file") || begins(at, n, "$L__tmp") ||
           begins(at, n, "$L__func_") || begins(at, n, ".section") || begins(at, n, "//");
}

static void read_ptx(struct source *t, eider_sass_line *out, size_t *n_out)
{
    uint32_t number = 0, loc = 0;
    int8_t tail = 0;
    for (size_t at = 0; at < t->size; at += line_length(t, at) + 1) {
        const char *text = t->text + at, *first = text;
        size_t n = line_length(t, at), left = n;
        number++;
        while (left && (*first == ' ' || *first == '\t')) first++, left--;
        if (begins(first, left, ".loc")) {
            char *end;
            strtoul(first + 4, &end, 10);
            loc = (uint32_t)strtoul(end, NULL, 10);
        }
        if (is_debug(first, left) && !t->is_numbered) continue;
        const char *comment = memmem(text, n, "// -- ", 6);
        if (comment && !t->is_numbered) n = (size_t)(comment - text);
        while (n && (text[n - 1] == ' ' || text[n - 1] == '\t')) n--;
        int is_instruction = left && *first != '.' && memchr(first, ';', left);
        eider_sass_line *line = &out[(*n_out)++];
        put(t, line, text, n, t->is_numbered ? number : is_instruction ? loc : 0);
        if (line->term < 0) line->in_tail = tail; /* what LLVM moved has no line */
        tail = line->in_tail;
    }
}

/* ---- IR -------------------------------------------------------------------- */

/* The line of "!12 = !DILocation(line: 34, ...", or 0. */
static uint32_t location(const struct source *t, unsigned long id)
{
    for (size_t at = 0; at < t->size; at += line_length(t, at) + 1) {
        const char *text = t->text + at;
        char *end;
        if (text[0] != '!' || strtoul(text + 1, &end, 10) != id || end == text + 1) continue;
        if (strncmp(end, " = !DILocation(line: ", 21) != 0) continue;
        return (uint32_t)strtoul(end + 21, NULL, 10);
    }
    return 0;
}

/* Lines of locations by their number, so that none is sought twice. */
struct locations {
    uint32_t *lines;
    size_t n;
};

static uint32_t line_of(struct source *t, struct locations *known, unsigned long id)
{
    if (id >= known->n) return location(t, id);
    if (!known->lines[id]) known->lines[id] = location(t, id) + 1;
    return known->lines[id] - 1;
}

static void read_ir(struct source *t, eider_sass_line *out, size_t *n_out)
{
    enum { KNOWN = 4096 };
    uint32_t number = 0;
    struct locations known = {eider_arena_alloc(&t->s->arena, KNOWN * sizeof(uint32_t)), KNOWN};
    if (!known.lines) known.n = 0;
    for (size_t at = 0; at < t->size; at += line_length(t, at) + 1) {
        const char *text = t->text + at;
        size_t n = line_length(t, at);
        uint32_t line = ++number;
        if (!t->is_numbered) {
            const char *mark = memmem(text, n, DEBUG_MARK, strlen(DEBUG_MARK));
            line = mark ? line_of(t, &known, strtoul(mark + strlen(DEBUG_MARK), NULL, 10)) : 0;
            if (n && text[0] == '!') continue;
            if (begins(text, n, "define ")) { /* ... !dbg !4 { */
                mark = memmem(text, n, " !dbg ", 6);
                if (mark) {
                    put(t, &out[(*n_out)++], text, (size_t)(mark - text), 0);
                    continue;
                }
            }
            if (mark) n = (size_t)(mark - text);
        }
        put(t, &out[(*n_out)++], text, n, line);
    }
    while (*n_out && !out[*n_out - 1].text[0]) --*n_out;
}

/* ---- Both ------------------------------------------------------------------ */

static eider_sass_line *read_lines(struct source *t,
                                   void (*reader)(struct source *, eider_sass_line *, size_t *),
                                   size_t *n)
{
    if (!t->text) return NULL;
    eider_sass_line *lines = eider_arena_alloc(&t->s->arena, (count_lines(t) + 1) * sizeof *lines);
    if (lines)
        reader(t, lines, n);
    else
        t->s->status = EIDER_OOM;
    return lines;
}

eider_status eider_sass_source_all(struct eider_sass *s, const struct eider_sass_job *job)
{
    struct source ir = {.s = s, .names = job->names, .text = job->ir ? job->ir : job->text};
    struct source ptx = {.s = s, .names = job->names, .text = job->ptx ? job->ptx : s->cubin.ptx};
    if (ir.text) ir.size = strlen(ir.text);
    ir.is_numbered = !job->ir;
    ptx.size = job->ptx ? strlen(job->ptx) : s->cubin.ptx_size;
    ptx.is_numbered = !job->names && !job->text;
    s->ir = read_lines(&ir, read_ir, &s->n_ir);
    s->ptx = read_lines(&ptx, read_ptx, &s->n_ptx);
    return s->status;
}
