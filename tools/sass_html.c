/* sass_html.c -- a report on machine code as one page that needs nothing else; see
 * sass_report.h.
 *
 * Four columns: the program's terms, IR, PTX and machine code.  A row carries the number of its
 * term, and a step that of the term it belongs to; pointing at one lights the others.
 * Invariant: all text from the report is escaped.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "sass_report.h"
#include "say.h"

enum part {
#define PAGE(id, text) PART_##id,
#include "sass_page.def"
    PARTS
};

static const char *const parts[PARTS] = {
#define PAGE(id, text) [PART_##id] = text,
#include "sass_page.def"
};

#define CHART_UNITS 16

static void put_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

/* "1 FFMA, 0.25 IMAD", which breaks only behind commas. */
static void put_opcodes(FILE *out, const char *text)
{
    for (char before = ','; *text; before = *text++) {
        if (*text == ' ' && before != ',')
            fputs("&nbsp;", out);
        else
            put_text(out, (char[]){*text, '\0'});
    }
}

/* A term and its meaning. */
static void put_fact(FILE *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put_fact(FILE *out, const char *name, const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(out, "<dt>%s</dt><dd>", name);
    put_text(out, text);
    fputs("</dd>\n", out);
}

static void put_rate(FILE *out, double gbytes_per_s, double elements_per_s)
{
    if (isinf(elements_per_s))
        fputs("no limit", out);
    else if (gbytes_per_s > 0)
        fprintf(out, "%.2f TB/s", gbytes_per_s / 1e3);
    else
        fprintf(out, "%.3g G/s", elements_per_s / 1e9);
}

/* ---- The head ----------------------------------------------------------------- */

static void put_head(FILE *out, const struct cli_sass_input *in)
{
    const eider_sass_summary *m = &in->summary;
    char number[CLI_SASS_NUMBER_BYTES];
    fputs("<header><h1>", out);
    put_text(out, in->word);
    fputs("</h1>\n<dl>\n", out);
    put_fact(out, "kernel", "%s, %s", m->entry, m->target);
    if (in->info.config && in->info.config[0])
        put_fact(out, "config", "%s; %s", in->info.config, in->info.numerics);
    put_fact(out, "pass", "%u of %u instructions for %s elements, %d cycles of issue", m->n_pass,
             m->n_instructions, cli_sass_number(m->elements, number), m->pass_cycles);
    put_fact(out, "resources", "%d registers, %d bytes of local memory, %d of shared memory",
             m->registers, m->local_bytes, m->shared_bytes);
    if (m->block_threads > 0)
        put_fact(out, "occupancy", "%d of %d warps, limited by %s", m->warps, m->warps_max,
                 m->occupancy_limit);
    put_fact(out, "bound", "%s allows %.2f TB/s (%s)", m->bound, m->gbytes_per_s / 1e3,
             m->assumptions);
    if (in->measured_gbytes_per_s > 0)
        put_fact(out, "measured", "%.2f TB/s, %.0f %% of that", in->measured_gbytes_per_s / 1e3,
                 100 * in->measured_gbytes_per_s / m->gbytes_per_s);
    put_fact(out, "tools", "%s%s%s; code %s", in->info.assembler ? in->info.assembler : "",
             in->info.assembler ? "; " : "", m->disassembler, m->hash);
    fputs("</dl>\n", out);
    eider_sass_warning w;
    for (size_t i = 0; eider_sass_warnings(in->sass, i, &w); i++) {
        fputs(i ? "<li>" : "<ul class=\"warn\"><li>", out);
        put_text(out, w.text);
        fprintf(out, ": %u</li>\n", w.n);
    }
    fputs(eider_sass_warnings(in->sass, 0, &w) ? "</ul></header>\n" : "</header>\n", out);
}

/* ---- Charts ---------------------------------------------------------------------- */

struct unit_count {
    const char *unit;
    double in_terms, others;
};

static size_t count_units(const eider_sass *sass, struct unit_count *units)
{
    eider_sass_opcode o;
    size_t n = 0;
    for (size_t i = 0; eider_sass_opcodes(sass, i, &o); i++) {
        size_t k = 0;
        while (k < n && strcmp(units[k].unit, o.unit) != 0) k++;
        if (k == CHART_UNITS) continue;
        if (k == n) units[n++] = (struct unit_count){o.unit, 0, 0};
        units[k].in_terms += o.in_terms;
        units[k].others += o.per_element - o.in_terms;
    }
    return n;
}

static void put_counts(FILE *out, const eider_sass *sass)
{
    struct unit_count units[CHART_UNITS];
    char a[CLI_SASS_NUMBER_BYTES], b[CLI_SASS_NUMBER_BYTES];
    size_t n = count_units(sass, units);
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, units[i].in_terms + units[i].others);
    fputs("<section class=\"panel\"><h2>Instructions per element</h2><table id=\"counts\">"
          "<tr><th>unit</th><th>in terms</th><th>others</th><th></th></tr>\n",
          out);
    for (size_t i = 0; i < n; i++)
        fprintf(out,
                "<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"bar\">"
                "<div class=\"b\"><i style=\"width:%.1f%%\"></i><i style=\"width:%.1f%%\"></i>"
                "</div></td></tr>\n",
                units[i].unit, cli_sass_number(units[i].in_terms, a),
                cli_sass_number(units[i].others, b), 100 * units[i].in_terms / most,
                100 * units[i].others / most);
    fputs("</table></section>\n", out);
}

static void put_limits(FILE *out, const struct cli_sass_input *in)
{
    eider_sass_limit l;
    fputs("<section class=\"panel\"><h2>What each unit would allow, and how busy it is at the "
          "bound</h2><table id=\"limits\"><tr><th>unit</th><th>would allow</th><th>busy</th>"
          "<th></th></tr>\n",
          out);
    for (size_t i = 0; eider_sass_limits(in->sass, i, &l); i++) {
        if (!(l.rate > 0)) continue;
        double busy = 100 * in->summary.elements_per_s / l.elements_per_s;
        fprintf(out, "<tr%s><td>%s</td><td class=\"n\">",
                strcmp(l.name, in->summary.bound) == 0 ? " class=\"bound\"" : "", l.name);
        put_rate(out, l.gbytes_per_s, l.elements_per_s);
        fprintf(out,
                "</td><td class=\"n\">%.0f %%</td><td class=\"bar\"><div class=\"b\">"
                "<i style=\"width:%.1f%%\"></i></div></td></tr>\n",
                busy, busy);
    }
    fputs("</table></section>\n", out);
}

/* ---- Columns ------------------------------------------------------------------------ */

static void open_column(FILE *out, const char *id, const char *title)
{
    fprintf(out, "<section class=\"panel\"><h2>%s</h2><div class=\"rows\" id=\"%s\">\n", title, id);
}

static void close_column(FILE *out)
{
    fputs("</div></section>\n", out);
}

/* The beginning of a row's element, up to its text. */
static void open_row(FILE *out, const eider_sass *sass, int32_t term, const char *classes)
{
    eider_sass_term t;
    fputs("<div", out);
    if (term >= 0 && eider_sass_terms(sass, (size_t)term, &t)) {
        fprintf(out, " data-t=\"%d\"", term);
        if (t.parent >= 0) fprintf(out, " data-p=\"%d\"", t.parent);
    }
    if (classes[0]) fprintf(out, " class=\"%s\"", classes);
    fputc('>', out);
}

static void put_terms(FILE *out, const eider_sass *sass)
{
    eider_sass_term t;
    char number[CLI_SASS_NUMBER_BYTES];
    open_column(out, "terms", "Terms, per element");
    for (size_t i = 0; eider_sass_terms(sass, i, &t); i++) {
        if (t.per_element == 0 && t.kind != EIDER_SASS_STEP) continue;
        fprintf(out, "<div tabindex=\"0\" data-t=\"%zu\"", i);
        if (t.parent >= 0) fprintf(out, " data-p=\"%d\" class=\"step\"", t.parent);
        fputc('>', out);
        fprintf(out, "<span class=\"c\">%6s</span>  ", cli_sass_number(t.per_element, number));
        fputs(t.kind == EIDER_SASS_TERM ? "<b>" : "<span>", out);
        if (t.line) fprintf(out, "%u: ", t.line);
        put_text(out, t.text);
        fputs(t.kind == EIDER_SASS_TERM ? "</b>" : "</span>", out);
        if (t.kind != EIDER_SASS_TERM) {
            fputs("  <span class=\"c\">", out);
            put_opcodes(out, t.opcodes);
            fputs("</span>", out);
        }
        fputs("</div>\n", out);
    }
    close_column(out);
}

static void put_source(FILE *out, const eider_sass *sass, eider_stage stage, const char *id,
                       const char *title)
{
    eider_sass_line line;
    open_column(out, id, title);
    for (size_t i = 0; eider_sass_source(sass, stage, i, &line); i++) {
        open_row(out, sass, line.term, line.in_tail ? "out" : "");
        for (const char *at = line.text; *at == '\t'; at++) fputs("  ", out);
        put_text(out, line.text + strspn(line.text, "\t"));
        fputs("</div>\n", out);
    }
    if (!eider_sass_source(sass, stage, 0, &line))
        fputs("<div class=\"c\">not known for this input</div>\n", out);
    close_column(out);
}

static void put_code(FILE *out, const eider_sass *sass)
{
    eider_sass_instruction c;
    char control[CLI_SASS_CONTROL_BYTES];
    open_column(out, "sass", "Machine code; outside the pass it is pale");
    for (size_t i = 0; eider_sass_code(sass, i, &c); i++) {
        open_row(out, sass, c.term, c.in_pass ? "" : "out");
        fprintf(out, "<span class=\"c\">%04x %s</span> ", c.offset, cli_sass_control(&c, control));
        put_text(out, c.predicate);
        if (c.predicate[0]) fputc(' ', out);
        put_text(out, c.opcode);
        fputc(' ', out);
        put_text(out, c.operands);
        fputs("</div>\n", out);
    }
    close_column(out);
}

static void put_page(FILE *out, const struct cli_sass_input *in)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          out);
    put_text(out, in->word);
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body>\n", parts[PART_STYLE]);
    put_head(out, in);
    fputs("<main><div class=\"charts\">\n", out);
    put_counts(out, in->sass);
    put_limits(out, in);
    fputs("</div>\n<div class=\"code\">\n", out);
    put_terms(out, in->sass);
    put_source(out, in->sass, EIDER_STAGE_IR, "ir", "LLVM IR");
    put_source(out, in->sass, EIDER_STAGE_PTX, "ptx", "PTX");
    put_code(out, in->sass);
    fprintf(out,
            "</div></main>\n<footer>eider %s. Point at a line to light what belongs to it; click "
            "to keep it lit.</footer>\n<script>\n%s</script>\n</body></html>\n",
            eider_version(), parts[PART_SCRIPT]);
}

int cli_sass_write_page(const struct cli_sass_input *in, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return cli_fail_memory(sizeof *out);
    put_page(out, in);
    int failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    struct cli_piece piece = {text, size};
    int code = failed ? cli_fail_memory(size) : cli_file_write(path, &piece, 1);
    free(text);
    return code;
}
