/* sass_text.c -- a report on machine code for a terminal; see sass_report.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sass_report.h"
#include "say.h"

#define OPCODE_COLUMNS 28
#define TEXT_COLUMNS 52

const char *cli_sass_number(double value, char text[CLI_SASS_NUMBER_BYTES])
{
    snprintf(text, CLI_SASS_NUMBER_BYTES, "%.4g", value);
    return text;
}

const char *cli_sass_control(const eider_sass_instruction *i, char text[CLI_SASS_CONTROL_BYTES])
{
    char wait[7] = "------", read[4] = "-", write[4] = "-";
    for (int b = 0; b < 6; b++)
        if (i->wait >> b & 1) wait[b] = (char)('0' + b);
    if (i->read_barrier >= 0) snprintf(read, sizeof read, "%d", i->read_barrier % 10);
    if (i->write_barrier >= 0) snprintf(write, sizeof write, "%d", i->write_barrier % 10);
    snprintf(text, CLI_SASS_CONTROL_BYTES, "[B%s:R%s:W%s:%c:S%02d]", wait, read, write,
             i->yield ? 'Y' : '-', i->stall);
    return text;
}

/* ---- The summary ------------------------------------------------------- */

static void print_rate(double gbytes_per_s, double elements_per_s)
{
    if (isinf(elements_per_s))
        printf("no limit");
    else if (gbytes_per_s > 0)
        printf("%.2f TB/s", gbytes_per_s / 1e3);
    else
        printf("%.3g G/s", elements_per_s / 1e9);
}

static void print_head(const struct cli_sass_input *in)
{
    const eider_sass_summary *m = &in->summary;
    char number[CLI_SASS_NUMBER_BYTES];
    printf("%s  %s", m->entry, m->target);
    if (in->info.numerics) printf("  %s", in->info.numerics);
    printf("\n");
    if (in->info.config && in->info.config[0]) printf("  config     %s\n", in->info.config);
    printf("  code       %u instructions, %u of them in the pass, which yields %s element%s\n",
           m->n_instructions, m->n_pass, cli_sass_number(m->elements, number),
           m->elements == 1 ? "" : "s");
    printf("  hash       %s\n", m->hash);
    printf("  tools      %s%s%s\n", in->info.assembler ? in->info.assembler : "",
           in->info.assembler ? "; " : "", m->disassembler);
    printf("  resources  %d registers, %d bytes of local memory", m->registers, m->local_bytes);
    if (m->spill_bytes >= 0) printf(" (%d spilled)", m->spill_bytes);
    printf(", %d of shared memory, %d barriers\n", m->shared_bytes, m->barriers);
    if (m->block_threads > 0)
        printf("  occupancy  %d of %d warps: %d blocks of %d threads, limited by %s\n", m->warps,
               m->warps_max, m->blocks, m->block_threads, m->occupancy_limit);
    else
        printf("  occupancy  the size of a block is not stated\n");
    printf("  pass       %d cycles of issue for a warp alone\n", m->pass_cycles);
}

static void print_opcodes(const eider_sass *sass)
{
    eider_sass_opcode o;
    char number[CLI_SASS_NUMBER_BYTES];
    printf("\nper element  in terms  opcode%*sunit\n", OPCODE_COLUMNS - 6, "");
    for (size_t i = 0; eider_sass_opcodes(sass, i, &o); i++) {
        printf("%11s", cli_sass_number(o.per_element, number));
        printf("  %8s", o.in_terms > 0 ? cli_sass_number(o.in_terms, number) : "");
        printf("  %-*s%s\n", OPCODE_COLUMNS, o.opcode, o.unit);
    }
}

static void print_accesses(const eider_sass *sass)
{
    eider_sass_access a;
    for (size_t i = 0; eider_sass_accesses(sass, i, &a); i++)
        printf("%s%u x %s %s of %d byte%s%s%s", i ? ", " : "\naccesses   ", a.n, a.space,
               a.is_store ? "store" : "load", a.width, a.width == 1 ? "" : "s",
               a.policy[0] ? " " : "", a.policy);
    printf("\n");
}

static void print_terms(const struct cli_sass_input *in)
{
    eider_sass_term t;
    char number[CLI_SASS_NUMBER_BYTES];
    printf("\nper element  %-*sinstructions (%s)\n", TEXT_COLUMNS, "term", in->summary.attribution);
    for (size_t i = 0; eider_sass_terms(in->sass, i, &t); i++) {
        if (t.per_element == 0 && t.kind != EIDER_SASS_STEP) continue;
        int is_step = t.kind == EIDER_SASS_STEP;
        printf("%11s  ", cli_sass_number(t.per_element, number));
        int width = 0;
        if (t.line) width = printf("%u: ", t.line);
        printf("%s%-*s", is_step ? "  " : "", TEXT_COLUMNS - (is_step ? 2 : 0) - width, t.text);
        printf("%s\n", t.kind == EIDER_SASS_TERM ? t.units : t.opcodes);
    }
}

static void print_limits(const struct cli_sass_input *in)
{
    eider_sass_limit l;
    char number[CLI_SASS_NUMBER_BYTES];
    printf("\nlimit       per element        rate  would allow   (%s)\n", in->summary.assumptions);
    for (size_t i = 0; eider_sass_limits(in->sass, i, &l); i++) {
        int is_memory = strcmp(l.name, "memory") == 0;
        printf("%-11s %11s", l.name, cli_sass_number(l.per_element, number));
        if (l.rate > 0)
            printf(" %6s %s", cli_sass_number(l.rate, number), is_memory ? "GB/s" : "/clk");
        else
            printf("            ");
        printf("  ");
        if (l.rate > 0)
            print_rate(l.gbytes_per_s, l.elements_per_s);
        else
            printf("not known");
        printf("%s\n", strcmp(l.name, in->summary.bound) == 0 ? "   <- the bound" : "");
    }
    printf("bound       %s: ", in->summary.bound);
    print_rate(in->summary.gbytes_per_s, in->summary.elements_per_s);
    if (in->measured_gbytes_per_s > 0)
        printf("; measured: %.2f TB/s, %.0f %% of it", in->measured_gbytes_per_s / 1e3,
               100 * in->measured_gbytes_per_s / in->summary.gbytes_per_s);
    printf("\n");
}

static void print_warnings(const eider_sass *sass)
{
    eider_sass_warning w;
    eider_sass_instruction code;
    for (size_t i = 0; eider_sass_warnings(sass, i, &w); i++) {
        printf("%s%-20s %s: %u", i ? "" : "\n", w.name, w.text, w.n);
        if (eider_sass_code(sass, (size_t)w.instruction, &code))
            printf(", first at %04x", code.offset);
        printf("\n");
    }
}

/* ---- The listing ------------------------------------------------------- */

static void print_code(const eider_sass *sass, int all)
{
    eider_sass_instruction c;
    eider_sass_term t;
    char control[CLI_SASS_CONTROL_BYTES], line[256];
    int32_t before = -1;
    size_t left = 0;
    printf("\noffset  control               instruction%*sterm\n", 47, "");
    for (size_t i = 0; eider_sass_code(sass, i, &c); i++) {
        if (!all && !c.in_pass) {
            left++;
            continue;
        }
        int n = snprintf(line, sizeof line, "%s%s%s %s", c.predicate, c.predicate[0] ? " " : "",
                         c.opcode, c.operands);
        printf("  %04x%c %s %-57s", c.offset, all && c.in_pass ? '*' : ' ',
               cli_sass_control(&c, control), n > 0 ? line : "");
        int is_new = c.term >= 0 && c.term != before && eider_sass_terms(sass, (size_t)c.term, &t);
        printf(" %s\n", is_new ? t.text : "");
        before = c.term;
    }
    if (left) printf("%zu more instructions outside the pass: --listing all\n", left);
}

int cli_sass_print(const struct cli_sass_input *in, const char *listing)
{
    print_head(in);
    print_opcodes(in->sass);
    print_accesses(in->sass);
    print_terms(in);
    print_limits(in);
    print_warnings(in->sass);
    if (strcmp(listing, "none") != 0) print_code(in->sass, strcmp(listing, "all") == 0);
    return CLI_OK;
}

/* ---- Differences ------------------------------------------------------- */

static double count_of(const eider_sass *sass, const char *opcode)
{
    eider_sass_opcode o;
    for (size_t i = 0; eider_sass_opcodes(sass, i, &o); i++)
        if (strcmp(o.opcode, opcode) == 0) return o.per_element;
    return 0;
}

static int print_count(const char *opcode, double before, double after)
{
    char a[CLI_SASS_NUMBER_BYTES], b[CLI_SASS_NUMBER_BYTES];
    if (before == after) return 0;
    printf("  %-*s %8s -> %s\n", OPCODE_COLUMNS, opcode, cli_sass_number(before, a),
           cli_sass_number(after, b));
    return 1;
}

static void print_counts(const struct cli_sass_input *before, const struct cli_sass_input *after)
{
    eider_sass_opcode o;
    const eider_sass_summary *a = &before->summary, *b = &after->summary;
    int n = 0;
    printf("per element of the pass:\n");
    for (size_t i = 0; eider_sass_opcodes(before->sass, i, &o); i++)
        n += print_count(o.opcode, o.per_element, count_of(after->sass, o.opcode));
    for (size_t i = 0; eider_sass_opcodes(after->sass, i, &o); i++)
        if (count_of(before->sass, o.opcode) == 0) n += print_count(o.opcode, 0, o.per_element);
    n += print_count("all instructions", a->n_pass / a->elements, b->n_pass / b->elements);
    n += print_count("registers", a->registers, b->registers);
    n += print_count("bytes spilled", a->spill_bytes, b->spill_bytes);
    n += print_count("warps resident", a->warps, b->warps);
    if (n == 0) printf("  the same counts, registers and occupancy\n");
}

int cli_sass_print_diff(const struct cli_sass_input *before, const struct cli_sass_input *after)
{
    eider_sass_diff *diff;
    eider_sass_change c;
    size_t changed = 0;
    eider_status status = eider_sass_compare(before->sass, after->sass, &diff);
    if (status != EIDER_OK) return cli_fail_library(status);
    printf("--- %s  %s  %s\n+++ %s  %s  %s\n", before->word, before->summary.target,
           before->info.config ? before->info.config : "", after->word, after->summary.target,
           after->info.config ? after->info.config : "");
    for (size_t i = 0; eider_sass_changes(diff, i, &c); i++) {
        printf("%c %s\n", c.sign, c.text);
        changed += c.sign != ' ';
    }
    if (!changed)
        printf("%s\n", strcmp(before->summary.hash, after->summary.hash) == 0
                           ? "the same machine code"
                           : "the same instructions: registers or addresses differ");
    print_counts(before, after);
    eider_sass_diff_release(diff);
    return CLI_OK;
}
