/* sass.c -- a report on machine code, made step by step, and its public rows; see sass.h. */
#include "sass.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define REPORT_BYTES_MAX ((size_t)1 << 30)
#define LINE_TEXT_MAX 160 /* of a line of a file, as a term */

/* ---- Small things ------------------------------------------------------ */

char *eider_sass_text(struct eider_sass *s, const char *format, ...)
{
    static char empty[1];
    char text[4096];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (n < 0) n = 0;
    if ((size_t)n >= sizeof text) n = sizeof text - 1;
    char *copy = eider_arena_text(&s->arena, text, (size_t)n);
    if (!copy && s->status == EIDER_OK) s->status = EIDER_OOM;
    return copy ? copy : empty;
}

void eider_sass_number(double value, char *out, size_t size)
{
    int n = snprintf(out, size, "%.2f", value);
    while (n > 0 && out[n - 1] == '0') n--;
    if (n > 0 && out[n - 1] == '.') n--;
    out[n] = '\0';
}

/* ---- Steps ------------------------------------------------------------- */

static void read_words(struct eider_sass *s)
{
    for (size_t i = 0; i < s->n_code; i++) {
        eider_sass_instruction *code = &s->code[i];
        code->offset = (uint32_t)(i * EIDER_SASS_WORD);
        memcpy(code->words, s->cubin.code + i * EIDER_SASS_WORD, EIDER_SASS_WORD);
        code->term = -1;
        eider_sass_control_decode(code);
    }
}

static void classify(struct eider_sass *s)
{
    for (size_t i = 0; i < s->n_code; i++) {
        const struct eider_sass_opcode_row *row = eider_sass_opcode_find(s->code[i].opcode);
        s->code[i].unit = eider_sass_unit_name(row->unit);
        s->rates[i] = (uint8_t)row->rate;
    }
}

static eider_status load(struct eider_sass *s, const struct eider_sass_job *job)
{
    struct eider_blob copy = {eider_arena_alloc(&s->arena, job->cubin.size + 1), job->cubin.size};
    if (!copy.data) return EIDER_OOM;
    memcpy(copy.data, job->cubin.data, copy.size);
    EIDER_TRY(eider_sass_cubin_read(&copy, job->options->entry, &s->cubin));
    s->target = s->cubin.target;
    s->n_code = s->cubin.code_size / EIDER_SASS_WORD;
    s->code = eider_arena_alloc(&s->arena, (s->n_code + 1) * sizeof *s->code);
    s->rates = eider_arena_alloc(&s->arena, s->n_code + 1);
    if (!s->code || !s->rates) return EIDER_OOM;
    read_words(s);
    EIDER_TRY(eider_sass_disasm(s));
    classify(s);
    return s->status;
}

static void describe(struct eider_sass *s, const struct eider_sass_job *job)
{
    const struct eider_cubin *c = &s->cubin;
    eider_sass_summary *m = &s->summary;
    XXH128_hash_t hash = XXH3_128bits(c->code, c->code_size);
    char target[EIDER_TARGET_TEXT_BYTES];
    eider_target_print(c->target, target);
    m->entry = c->entry;
    m->target = eider_sass_text(s, "%s", target);
    m->hash = eider_sass_text(s, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
    m->n_instructions = (uint32_t)s->n_code;
    m->registers = c->registers;
    m->barriers = c->barriers;
    m->local_bytes = c->frame_bytes;
    m->spill_bytes = job->spill_bytes;
    m->shared_bytes = job->shared_bytes > c->shared_bytes ? job->shared_bytes : c->shared_bytes;
    m->block_threads = job->block_threads > 0 ? job->block_threads : c->block_threads;
    double elements = job->options->elements > 0 ? job->options->elements : job->elements;
    m->elements = elements > 0 ? elements : 1;
}

/* ---- Attribution ------------------------------------------------------- */

static const struct eider_sass_name *find_name(const struct eider_sass_names *names, uint32_t line)
{
    size_t low = 0, high = names->n_names;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (names->names[middle].line < line)
            low = middle + 1;
        else
            high = middle;
    }
    int found = low < names->n_names && names->names[low].line == line;
    return found ? &names->names[low] : NULL;
}

int32_t eider_sass_term_of(const struct eider_sass *s, const struct eider_sass_names *names,
                           uint32_t line, int *is_tail)
{
    *is_tail = 0;
    if (names) {
        const struct eider_sass_name *name = find_name(names, line);
        if (name) *is_tail = name->is_tail;
        return name ? name->term : -1;
    }
    for (size_t k = 0; line && k < s->n_terms; k++)
        if (s->terms[k].line == line) return (int32_t)k;
    return -1;
}

/* Terms of a program, and one for what has no line. */
static eider_status attribute_names(struct eider_sass *s, const struct eider_sass_names *names)
{
    s->terms = eider_arena_alloc(&s->arena, (names->n_terms + 1) * sizeof *s->terms);
    if (!s->terms) return EIDER_OOM;
    for (size_t k = 0; k < names->n_terms; k++) {
        s->terms[k] = names->terms[k];
        s->terms[k].text = eider_sass_text(s, "%s", names->terms[k].text);
    }
    s->n_terms = names->n_terms;
    s->terms[s->n_terms++] =
        (eider_sass_term){.kind = EIDER_SASS_UNKNOWN, .text = "without a line", .parent = -1};
    for (size_t i = 0; i < s->n_code; i++) {
        const struct eider_sass_name *name = find_name(names, s->code[i].line);
        s->code[i].term = name ? name->term : (int32_t)names->n_terms;
        s->code[i].in_tail = name && name->is_tail;
    }
    s->has_program = names->has_program;
    s->summary.attribution = "terms";
    return EIDER_OK;
}

/* Line `number` of a text whose lines end with a newline or a NUL. */
static char *line_of(struct eider_sass *s, const char *text, size_t size, uint32_t number)
{
    size_t at = 0;
    for (uint32_t line = 1; at < size && line < number; at++) line += !text[at] || text[at] == '\n';
    while (at < size && (text[at] == ' ' || text[at] == '\t')) at++;
    size_t n = 0;
    while (at + n < size && text[at + n] && text[at + n] != '\n' && n < LINE_TEXT_MAX) n++;
    return eider_sass_text(s, "%.*s", (int)n, text + at);
}

/* What LLVM moved has ".loc 1 0 0" in the PTX, which the assembler takes for the line before:
 * such instructions have no line.  Whether they are of the loop over single elements is that
 * line's word nevertheless, since what is moved goes along with what is there. */
static void drop_moved(struct eider_sass *s, const char *ptx)
{
    int32_t unknown = (int32_t)s->n_terms - 1;
    uint32_t number = 0;
    int is_moved = 0;
    for (const char *at = ptx; at; at = strchr(at, '\n'), at += at != NULL) {
        const char *first = at + strspn(at, " \t");
        unsigned line;
        number++;
        if (sscanf(first, ".loc %*u %u", &line) == 1) is_moved = line == 0;
        for (size_t i = 0; is_moved && i < s->n_code; i++) {
            if (s->code[i].ptx_line != number) continue;
            s->code[i].term = unknown;
            s->code[i].line = 0;
        }
    }
}

/* One term for each line that instructions come from, in the order of the lines. */
static eider_status attribute_lines(struct eider_sass *s, const char *text, size_t size, int is_ptx)
{
    s->terms = eider_arena_alloc(&s->arena, (s->n_code + 1) * sizeof *s->terms);
    if (!s->terms) return EIDER_OOM;
    for (uint32_t after = 0, found = 1; found; after = found) {
        found = 0;
        for (size_t i = 0; i < s->n_code; i++) {
            uint32_t line = is_ptx ? s->code[i].ptx_line : s->code[i].line;
            if (line > after && (!found || line < found)) found = line;
        }
        for (size_t i = 0; found && i < s->n_code; i++)
            if ((is_ptx ? s->code[i].ptx_line : s->code[i].line) == found)
                s->code[i].term = (int32_t)s->n_terms;
        if (found)
            s->terms[s->n_terms++] =
                (eider_sass_term){.kind = EIDER_SASS_LINE,
                                  .text = text ? line_of(s, text, size, found) : "",
                                  .parent = -1,
                                  .line = found};
    }
    s->summary.attribution = "lines";
    return s->status;
}

static int has_lines(const struct eider_sass *s, int is_ptx)
{
    for (size_t i = 0; i < s->n_code; i++)
        if (is_ptx ? s->code[i].ptx_line : s->code[i].line) return 1;
    return 0;
}

static eider_status attribute(struct eider_sass *s, const struct eider_sass_job *job)
{
    struct eider_cubin twin;
    uint32_t *lines = eider_arena_alloc(&s->arena, (s->n_code + 1) * sizeof *lines);
    s->summary.attribution = job->attribution ? job->attribution : "no line information";
    if (!lines) return EIDER_OOM;
    if (!job->twin.data) return EIDER_OK;
    EIDER_TRY(eider_sass_cubin_read(&job->twin, s->cubin.entry, &twin));
    eider_sass_lines_read(&twin, EIDER_LINES_SOURCE, lines, s->n_code);
    for (size_t i = 0; i < s->n_code; i++) s->code[i].line = lines[i];
    memset(lines, 0, s->n_code * sizeof *lines);
    eider_sass_lines_read(&twin, EIDER_LINES_PTX, lines, s->n_code);
    for (size_t i = 0; i < s->n_code; i++) s->code[i].ptx_line = lines[i];
    if (has_lines(s, 0)) {
        if (!job->names) return attribute_lines(s, job->text, job->text ? strlen(job->text) : 0, 0);
        EIDER_TRY(attribute_names(s, job->names));
        if (job->ptx) drop_moved(s, job->ptx);
        return EIDER_OK;
    }
    if (!has_lines(s, 1)) return EIDER_OK;
    const char *ptx = job->ptx ? job->ptx : twin.ptx;
    return attribute_lines(s, ptx, job->ptx ? strlen(job->ptx) : twin.ptx_size, 1);
}

/* ---- Making ------------------------------------------------------------ */

/* Far beyond what kernels have, and near enough that every quotient is finite. */
static eider_status check_options(const eider_sass_options *o)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {{"elements", o->elements}, {"bytes", o->bytes}, {"gbytes_per_s", o->gbytes_per_s}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value != 0 && !(rows[i].value >= 0x1p-30 && rows[i].value <= 0x1p40))
            return eider_fail(EIDER_BAD_ARG,
                              "a report with %s = %g; 0 or 2^-30 to 2^40 is possible", rows[i].name,
                              rows[i].value);
    return EIDER_OK;
}

static eider_status make(struct eider_sass *s, const struct eider_sass_job *job)
{
    EIDER_TRY(load(s, job));
    describe(s, job);
    EIDER_TRY(attribute(s, job));
    EIDER_TRY(eider_sass_path_find(s));
    EIDER_TRY(eider_sass_count_all(s));
    EIDER_TRY(eider_sass_bound_all(s, job));
    const char *ptx = job->ptx ? job->ptx : s->cubin.ptx;
    EIDER_TRY(eider_sass_warn_all(s, ptx, job->ptx ? strlen(job->ptx) : s->cubin.ptx_size));
    return eider_sass_source_all(s, job);
}

eider_status eider_sass_make(const eider_allocator *a, const struct eider_sass_job *job,
                             eider_sass **out)
{
    EIDER_TRY(check_options(job->options));
    struct eider_sass *s = eider_mem_zero(a, sizeof *s);
    if (!s) return EIDER_OOM;
    s->allocator = *a;
    s->options = *job->options;
    eider_arena_init(&s->arena, a, REPORT_BYTES_MAX);
    eider_status status = make(s, job);
    s->options.entry = NULL;
    s->options.device = NULL;
    if (status != EIDER_OK) {
        eider_sass_release(s);
        return status;
    }
    *out = s;
    return EIDER_OK;
}

void eider_sass_release(eider_sass *sass)
{
    if (!sass) return;
    eider_allocator a = sass->allocator;
    eider_arena_release(&sass->arena);
    eider_mem_free(&a, sass);
}

/* ---- Rows -------------------------------------------------------------- */

void eider_sass_describe(const eider_sass *sass, eider_sass_summary *out)
{
    if (sass && out) *out = sass->summary;
}

#define ROWS(function, type, rows, count)                         \
    int32_t function(const eider_sass *sass, size_t i, type *out) \
    {                                                             \
        if (!sass || !out || i >= sass->count) return 0;          \
        *out = sass->rows[i];                                     \
        return 1;                                                 \
    }

ROWS(eider_sass_code, eider_sass_instruction, code, n_code)
ROWS(eider_sass_opcodes, eider_sass_opcode, opcodes, n_opcodes)
ROWS(eider_sass_accesses, eider_sass_access, accesses, n_accesses)
ROWS(eider_sass_terms, eider_sass_term, terms, n_terms)
ROWS(eider_sass_limits, eider_sass_limit, limits, n_limits)
ROWS(eider_sass_warnings, eider_sass_warning, warnings, n_warnings)

int32_t eider_sass_source(const eider_sass *sass, eider_stage stage, size_t i, eider_sass_line *out)
{
    int is_ir = stage == EIDER_STAGE_IR;
    if (!sass || !out || (!is_ir && stage != EIDER_STAGE_PTX)) return 0;
    if (i >= (is_ir ? sass->n_ir : sass->n_ptx)) return 0;
    *out = is_ir ? sass->ir[i] : sass->ptx[i];
    return 1;
}
