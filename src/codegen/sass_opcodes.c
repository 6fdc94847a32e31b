/* sass_opcodes.c -- what is known of an opcode by its name.
 *
 * Invariant: names that no row has are of unit `other`, and their counts are shown all the
 * same; those beginning with U are uniform, as NVIDIA names them.
 */
#include <stdio.h>
#include <string.h>

#include "sass.h"

static const struct eider_sass_opcode_row rows[] = {
#define SASS_OPCODE(name, unit, rate) {#name, EIDER_UNIT_##unit, EIDER_RATE_##rate},
#include "sass_opcodes.def"
};

static const struct eider_sass_opcode_row unknown = {"", EIDER_UNIT_OTHER, EIDER_RATE_NONE};
static const struct eider_sass_opcode_row uniform = {"U", EIDER_UNIT_UNIFORM, EIDER_RATE_NONE};

static const char *const unit_names[] = {
#define SASS_UNIT(id, name, doc) name,
#include "sass_units.def"
};

const char *eider_sass_unit_name(enum eider_sass_unit unit)
{
    return unit_names[unit];
}

int eider_sass_opcode_is(const char *opcode, const char *name)
{
    size_t n = strlen(name);
    return n && strncmp(opcode, name, n) == 0 && (opcode[n] == '\0' || opcode[n] == '.');
}

int eider_sass_opcode_has(const char *opcode, const char *part)
{
    size_t n = strlen(part);
    for (const char *at = opcode; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (strcspn(at, ".") == n && memcmp(at, part, n) == 0) return 1;
    }
    return 0;
}

const struct eider_sass_opcode_row *eider_sass_opcode_find(const char *opcode)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (eider_sass_opcode_is(opcode, rows[i].name)) return &rows[i];
    return opcode[0] == 'U' ? &uniform : &unknown;
}

/* ---- Memory ------------------------------------------------------------ */

static const struct {
    const char *name, *space;
    int is_store;
} spaces[] = {
    {"LDG", "global", 0},   {"STG", "global", 1}, {"LDS", "shared", 0},
    {"STS", "shared", 1},   {"LDL", "local", 0},  {"STL", "local", 1},
    {"LDC", "constant", 0}, {"LD", "generic", 0}, {"ST", "generic", 1},
};

static const struct {
    const char *part;
    int bytes;
} widths[] = {
    {"U8", 1}, {"S8", 1}, {"U16", 2}, {"S16", 2}, {"64", 8}, {"128", 16}, {"256", 32}, {"ENL2", 0},
};

static int width_of(const char *opcode)
{
    int bytes = 4; /* where the opcode says nothing */
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        if (widths[i].bytes && eider_sass_opcode_has(opcode, widths[i].part))
            bytes = widths[i].bytes;
    return bytes;
}

int eider_sass_memory_of(const char *opcode, struct eider_sass_memory *out)
{
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        if (!eider_sass_opcode_is(opcode, spaces[i].name)) continue;
        *out = (struct eider_sass_memory){spaces[i].space, spaces[i].is_store, width_of(opcode)};
        return 1;
    }
    return 0;
}

static int says_width(const char *part, size_t n)
{
    if (n == 1 && *part == 'E') return 1; /* 64-bit addresses */
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        if (strlen(widths[i].part) == n && memcmp(widths[i].part, part, n) == 0) return 1;
    return 0;
}

void eider_sass_policy_of(const char *opcode, char *out, size_t size)
{
    size_t length = 0;
    out[0] = '\0';
    for (const char *at = strchr(opcode, '.'); at; at = strchr(at, '.')) {
        size_t n = strcspn(++at, ".");
        if (says_width(at, n) || length + n + 2 > size) continue;
        length +=
            (size_t)snprintf(out + length, size - length, "%s%.*s", length ? "." : "", (int)n, at);
    }
}
