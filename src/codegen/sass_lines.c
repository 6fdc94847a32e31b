/* sass_lines.c -- the line tables of a cubin: DWARF 2 line programs.
 *
 * .debug_line says from which line of the source (a .loc of the PTX) an instruction came,
 * .nv_debug_line_sass from which line of the PTX.
 * Invariant: a table that is cut off or not understood gives the lines before the damage.
 * Not here: names of files; eider's own code has one.
 */
#include <string.h>

#include "sass.h"

struct reader {
    const unsigned char *at, *end;
};

struct state {
    uint64_t address;
    uint32_t line;
    int is_ours; /* addresses are those of the entry */
};

struct table {
    const struct eider_cubin *cubin;
    uint32_t section;
    const unsigned char *start; /* of the section */
    uint32_t *lines;
    size_t n;
    /* From the header of a unit. */
    uint8_t step, range, first_special;
    int8_t base;
    uint8_t operands[256];
    /* The row before, which reaches up to the next one. */
    struct state row;
    int has_row;
};

static uint64_t take(struct reader *r, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < bytes) {
        r->at = r->end;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)r->at[i] << 8 * i;
    r->at += bytes;
    return value;
}

/* A LEB128 number. */
static uint64_t take_number(struct reader *r, int is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    while (r->at < r->end) {
        unsigned char byte = *r->at++;
        if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (byte & 0x80) continue;
        if (is_signed && byte & 0x40 && shift < 64) value |= ~UINT64_C(0) << shift;
        break;
    }
    return value;
}

/* A row of the table: instructions from the row before up to here have that row's line. */
static void put_row(struct table *t, const struct state *s, int is_end)
{
    if (t->has_row && t->row.is_ours) {
        size_t first = (size_t)(t->row.address / EIDER_SASS_WORD);
        size_t last = (size_t)(s->address / EIDER_SASS_WORD);
        for (size_t i = first; i < last && i < t->n; i++) t->lines[i] = t->row.line;
    }
    t->row = *s;
    t->has_row = !is_end;
}

static void run_extended(struct table *t, struct reader *r, struct state *s)
{
    enum { END = 1, SET_ADDRESS = 2 };
    uint64_t length = take_number(r, 0);
    if (length == 0 || length > (uint64_t)(r->end - r->at)) {
        r->at = r->end;
        return;
    }
    const unsigned char *next = r->at + length;
    unsigned op = *r->at++;
    if (op == SET_ADDRESS) {
        size_t where = (size_t)(r->at - t->start);
        s->address = take(r, 8);
        s->is_ours =
            eider_sass_cubin_symbol_at(t->cubin, t->section, where) == t->cubin->entry_symbol;
    } else if (op == END) {
        put_row(t, s, 1);
        *s = (struct state){.line = 1};
    }
    r->at = next;
}

static void run_standard(struct table *t, struct reader *r, struct state *s, unsigned op)
{
    enum { COPY = 1, ADVANCE_PC, ADVANCE_LINE, CONST_ADD_PC = 8, FIXED_ADVANCE_PC };
    switch (op) {
    case COPY:
        put_row(t, s, 0);
        return;
    case ADVANCE_PC:
        s->address += take_number(r, 0) * t->step;
        return;
    case ADVANCE_LINE:
        s->line += (uint32_t)take_number(r, 1);
        return;
    case CONST_ADD_PC:
        s->address += (uint64_t)((255 - t->first_special) / t->range) * t->step;
        return;
    case FIXED_ADVANCE_PC:
        s->address += take(r, 2);
        return;
    default:
        for (unsigned i = 0; i < t->operands[op]; i++) take_number(r, 0);
    }
}

static void run(struct table *t, struct reader *r)
{
    struct state s = {.line = 1};
    t->has_row = 0;
    while (r->at < r->end) {
        unsigned op = *r->at++;
        if (op == 0) {
            run_extended(t, r, &s);
        } else if (op < t->first_special) {
            run_standard(t, r, &s, op);
        } else {
            unsigned special = op - t->first_special;
            s.address += (uint64_t)(special / t->range) * t->step;
            s.line += (uint32_t)(t->base + (int)(special % t->range));
            put_row(t, &s, 0);
        }
    }
}

/* One unit: header and program. */
static void read_unit(struct table *t, struct reader *r)
{
    uint64_t length = take(r, 4);
    if (length > (uint64_t)(r->end - r->at)) length = (uint64_t)(r->end - r->at);
    struct reader unit = {r->at, r->at + length};
    r->at = unit.end;
    uint64_t version = take(&unit, 2), header = take(&unit, 4);
    const unsigned char *program = unit.at + header;
    if (version < 2 || version > 4 || header > (uint64_t)(unit.end - unit.at)) return;
    t->step = (uint8_t)take(&unit, 1);
    if (version == 4) take(&unit, 1);
    take(&unit, 1); /* is_stmt */
    t->base = (int8_t)take(&unit, 1);
    t->range = (uint8_t)take(&unit, 1);
    t->first_special = (uint8_t)take(&unit, 1);
    if (t->range == 0 || t->first_special == 0) return;
    memset(t->operands, 0, sizeof t->operands);
    for (unsigned i = 1; i < t->first_special; i++) t->operands[i] = (uint8_t)take(&unit, 1);
    unit.at = program;
    run(t, &unit);
}

void eider_sass_lines_read(const struct eider_cubin *cubin, enum eider_cubin_lines which,
                           uint32_t *lines, size_t n)
{
    static const char *const sections[] = {".debug_line", ".nv_debug_line_sass"};
    struct table t = {.cubin = cubin, .lines = lines, .n = n};
    size_t size;
    if (!eider_sass_cubin_section(cubin, sections[which], &t.section, &t.start, &size)) return;
    struct reader r = {t.start, t.start + size};
    while (r.end - r.at > 4) read_unit(&t, &r);
}
