/* sass_json.c -- a report on machine code as JSON; docs/SASS.md has the schema. */
#include <stdio.h>
#include <string.h>

#include "sass_report.h"
#include "say.h"

static const char *const kind_names[] = {"term",    "step",  "address", "load",
                                         "convert", "store", "line",    "unknown"};

static json_t *json_summary(const struct cli_sass_input *in)
{
    const eider_sass_summary *m = &in->summary;
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:i, s:i, s:i, s:i, s:i, s:i}", "entry",
        m->entry, "target", m->target, "hash", m->hash, "disassembler", m->disassembler,
        "attribution", m->attribution, "assumptions", m->assumptions, "instructions",
        (int)m->n_instructions, "pass_instructions", (int)m->n_pass, "elements", m->elements,
        "bytes", m->bytes, "registers", m->registers, "barriers", m->barriers, "local_bytes",
        m->local_bytes, "spill_bytes", m->spill_bytes, "shared_bytes", m->shared_bytes,
        "pass_cycles", m->pass_cycles);
    json_t *occupancy = json_pack("{s:i, s:i, s:i, s:i, s:s}", "block_threads", m->block_threads,
                                  "blocks", m->blocks, "warps", m->warps, "warps_max", m->warps_max,
                                  "limited_by", m->occupancy_limit);
    json_t *bound =
        json_pack("{s:s, s:o, s:o}", "name", m->bound, "elements_per_s",
                  cli_json_number(m->elements_per_s), "gb_per_s", cli_json_number(m->gbytes_per_s));
    json_object_set_new(o, "occupancy", occupancy);
    json_object_set_new(o, "bound", bound);
    if (in->measured_gbytes_per_s > 0)
        json_object_set_new(o, "measured_gb_per_s", json_real(in->measured_gbytes_per_s));
    if (in->info.key)
        json_object_update_new(o, json_pack("{s:s, s:s, s:s, s:s}", "key", in->info.key, "config",
                                            in->info.config, "numerics", in->info.numerics,
                                            "assembler", in->info.assembler));
    return o;
}

static json_t *json_opcodes(const eider_sass *sass)
{
    json_t *list = json_array();
    eider_sass_opcode r;
    for (size_t i = 0; eider_sass_opcodes(sass, i, &r); i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:f, s:f}", "opcode", r.opcode,
                                              "unit", r.unit, "n", (int)r.n, "per_element",
                                              r.per_element, "in_terms", r.in_terms));
    return list;
}

static json_t *json_accesses(const eider_sass *sass)
{
    json_t *list = json_array();
    eider_sass_access r;
    for (size_t i = 0; eider_sass_accesses(sass, i, &r); i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:i, s:s, s:i}", "space", r.space,
                                              "store", r.is_store, "width", r.width, "policy",
                                              r.policy, "n", (int)r.n));
    return list;
}

static json_t *json_terms(const eider_sass *sass)
{
    json_t *list = json_array();
    eider_sass_term r;
    for (size_t i = 0; eider_sass_terms(sass, i, &r); i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:i, s:i, s:f, s:s, s:s}", "kind", kind_names[r.kind],
                            "text", r.text, "parent", r.parent, "line", (int)r.line, "per_element",
                            r.per_element, "opcodes", r.opcodes, "units", r.units));
    return list;
}

static json_t *json_limits(const eider_sass *sass)
{
    json_t *list = json_array();
    eider_sass_limit r;
    for (size_t i = 0; eider_sass_limits(sass, i, &r); i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:o, s:o, s:s}", "name", r.name,
                                              "per_element", r.per_element, "rate", r.rate,
                                              "elements_per_s", cli_json_number(r.elements_per_s),
                                              "gb_per_s", cli_json_number(r.gbytes_per_s), "source",
                                              r.source));
    return list;
}

static json_t *json_warnings(const eider_sass *sass)
{
    json_t *list = json_array();
    eider_sass_warning r;
    for (size_t i = 0; eider_sass_warnings(sass, i, &r); i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i}", "name", r.name, "text",
                                              r.text, "instruction", r.instruction, "n", (int)r.n));
    return list;
}

static json_t *json_instruction(const eider_sass_instruction *c)
{
    char control[CLI_SASS_CONTROL_BYTES], words[40];
    snprintf(words, sizeof words, "%016llx%016llx", (unsigned long long)c->words[1],
             (unsigned long long)c->words[0]);
    json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s}", "offset", (int)c->offset, "words",
                          words, "predicate", c->predicate, "opcode", c->opcode, "operands",
                          c->operands, "unit", c->unit, "control", cli_sass_control(c, control));
    json_object_update_new(o, json_pack("{s:i, s:b, s:i, s:i, s:i, s:i}", "stall", c->stall,
                                        "yield", c->yield, "write_barrier", c->write_barrier,
                                        "read_barrier", c->read_barrier, "wait", (int)c->wait,
                                        "reuse", (int)c->reuse));
    json_object_update_new(o,
                           json_pack("{s:b, s:b, s:i, s:i, s:i, s:i}", "in_pass", c->in_pass,
                                     "in_tail", c->in_tail, "term", c->term, "line", (int)c->line,
                                     "ptx_line", (int)c->ptx_line, "branches_to", c->branches_to));
    return o;
}

static json_t *json_code(const eider_sass *sass)
{
    json_t *list = json_array();
    eider_sass_instruction c;
    for (size_t i = 0; eider_sass_code(sass, i, &c); i++)
        json_array_append_new(list, json_instruction(&c));
    return list;
}

static json_t *json_source(const eider_sass *sass, eider_stage stage)
{
    json_t *list = json_array();
    eider_sass_line line;
    for (size_t i = 0; eider_sass_source(sass, stage, i, &line); i++)
        json_array_append_new(list, json_pack("{s:s, s:i, s:b}", "text", line.text, "term",
                                              line.term, "in_tail", line.in_tail));
    return list;
}

/* Of every --expect that is a budget. */
static json_t *json_claims(const struct cli_sass_input *in)
{
    const struct cli_values *budgets = &in->session.options->given[CLI_EXPECT];
    json_t *list = json_array();
    eider_sass_claim c;
    for (int k = 0; k < budgets->n; k++)
        for (size_t i = 0;; i++) {
            if (eider_sass_expect(in->sass, budgets->at[k], i, &c) != EIDER_OK || !c.name[0]) break;
            json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:b}", "name", c.name,
                                                  "relation", c.relation, "want", c.want, "got",
                                                  c.got, "holds", c.holds));
        }
    return list;
}

json_t *cli_sass_json(const struct cli_sass_input *in)
{
    json_t *o = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "summary",
                          json_summary(in), "opcodes", json_opcodes(in->sass), "accesses",
                          json_accesses(in->sass), "terms", json_terms(in->sass), "limits",
                          json_limits(in->sass), "warnings", json_warnings(in->sass), "code",
                          json_code(in->sass));
    json_object_update_new(
        o, json_pack("{s:o, s:o, s:o}", "ir", json_source(in->sass, EIDER_STAGE_IR), "ptx",
                     json_source(in->sass, EIDER_STAGE_PTX), "claims", json_claims(in)));
    return o;
}

json_t *cli_sass_json_diff(const struct cli_sass_input *before, const struct cli_sass_input *after)
{
    eider_sass_diff *diff;
    eider_sass_change c;
    if (eider_sass_compare(before->sass, after->sass, &diff) != EIDER_OK) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; eider_sass_changes(diff, i, &c); i++) {
        char sign[2] = {c.sign, '\0'};
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:s}", "sign", sign, "before",
                                              c.before, "after", c.after, "text", c.text));
    }
    eider_sass_diff_release(diff);
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "before", json_summary(before),
                     "after", json_summary(after), "before_opcodes", json_opcodes(before->sass),
                     "after_opcodes", json_opcodes(after->sass), "changes", list);
}
