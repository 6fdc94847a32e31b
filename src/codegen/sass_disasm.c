/* sass_disasm.c -- the text of instructions, from nvdisasm.
 *
 * nvdisasm prints JSON from CUDA 12.8 or so on; older ones refuse the option, and their
 * listing is read instead.  The words themselves come from the cubin in both cases.
 * Invariant: an instruction is one word of EIDER_SASS_WORD bytes; padding behind the code is
 * dropped.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sass.h"
#include "tools.h"

#define DEADLINE_MS 60000
#define LISTING_BYTES_MAX ((size_t)256 << 20)
#define SCHEMA_MAJOR_MAX 13 /* the newest that was tried */

static eider_status fail_absent(void)
{
    eider_tool tool;
    eider_codegen_tool(EIDER_TOOL_NVDISASM, &tool);
    return eider_fail(EIDER_IO, "nvdisasm was not found; tried:\n%s", tool.tried);
}

/* ---- One instruction --------------------------------------------------- */

static void set_text(struct eider_sass *s, size_t i, const char *predicate, const char *opcode,
                     const char *operands)
{
    if (i >= s->n_code) return;
    s->code[i].predicate = eider_sass_text(s, "%s", predicate);
    s->code[i].opcode = eider_sass_text(s, "%s", opcode);
    s->code[i].operands = eider_sass_text(s, "%s", operands);
}

/* "R1,c[0x0][0x28]" with a space behind each comma. */
static void set_spaced(struct eider_sass *s, size_t i, const char *predicate, const char *opcode,
                       const char *operands)
{
    char spaced[512];
    size_t n = 0;
    for (; *operands && n + 3 < sizeof spaced; operands++) {
        spaced[n++] = *operands;
        if (operands[0] == ',' && operands[1] != ' ') spaced[n++] = ' ';
    }
    spaced[n] = '\0';
    set_text(s, i, predicate, opcode, spaced);
}

/* ---- JSON -------------------------------------------------------------- */

static const char *string_in(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Whether the function lies in the entry's section: it is the entry or, like a division that
 * the assembler wrote out, is called "$__internal_...". */
static int is_ours(const struct eider_sass *s, const json_t *function)
{
    const char *name = string_in(function, "function-name");
    return strcmp(name, s->cubin.entry) == 0 || strncmp(name, "$__internal_", 12) == 0;
}

static size_t read_function(struct eider_sass *s, const json_t *function)
{
    json_t *list = json_object_get(function, "sass-instructions"), *item;
    json_int_t start = json_integer_value(json_object_get(function, "start"));
    size_t k, first = (size_t)start / EIDER_SASS_WORD;
    json_array_foreach(list, k, item)
    {
        set_spaced(s, first + k, string_in(item, "predicate"), string_in(item, "opcode"),
                   string_in(item, "operands"));
    }
    return json_array_size(list);
}

/* Functions of a section follow each other; another kernel's begin at 0 again. */
static size_t read_functions(struct eider_sass *s, const json_t *functions)
{
    const json_t *item;
    size_t i, n = 0;
    int inside = 0;
    json_array_foreach(functions, i, item)
    {
        json_int_t start = json_integer_value(json_object_get(item, "start"));
        if (start == 0) inside = strcmp(string_in(item, "function-name"), s->cubin.entry) == 0;
        if (inside && is_ours(s, item)) n += read_function(s, item);
    }
    return n;
}

eider_status eider_sass_disasm_json(struct eider_sass *s, const char *text)
{
    json_error_t error;
    const char *start = strstr(text, "[{");
    json_t *root = start ? json_loads(start, JSON_DISABLE_EOF_CHECK, &error) : NULL;
    if (!root) return EIDER_UNSUPPORTED;
    json_t *head = json_array_get(root, 0);
    json_t *schema = json_object_get(head, "SchemaVersion");
    json_int_t major = json_integer_value(json_object_get(schema, "major"));
    json_int_t minor = json_integer_value(json_object_get(schema, "minor"));
    json_int_t revision = json_integer_value(json_object_get(schema, "revision"));
    size_t n = read_functions(s, json_array_get(root, 1));
    json_decref(root);
    if (n == 0 || major > SCHEMA_MAJOR_MAX) return EIDER_UNSUPPORTED;
    s->summary.disassembler = eider_sass_text(s, "%s, JSON %d.%d.%d", s->summary.disassembler,
                                              (int)major, (int)minor, (int)revision);
    return EIDER_OK;
}

/* ---- The listing ------------------------------------------------------- */

/* Where `.L_x_1:` stands, for operands `(.L_x_1). */
static long label_offset(const char *text, const char *label, size_t length)
{
    for (const char *at = text; (at = strstr(at, "\n.L")); at++) {
        if (strncmp(at + 1, label, length) != 0 || at[1 + length] != ':') continue;
        const char *next = strstr(at, "/*");
        return next ? strtol(next + 2, NULL, 16) : -1;
    }
    return -1;
}

/* Copies operands, labels as the addresses that JSON has. */
static void copy_operands(const char *text, const char *at, const char *end, char *out, size_t size)
{
    size_t n = 0;
    while (at < end && n + 24 < size) {
        if (at[0] == '`' && at[1] == '(') {
            size_t length = strcspn(at + 2, ")");
            long offset = label_offset(text, at + 2, length);
            n += (size_t)snprintf(out + n, size - n, "0x%lx", offset < 0 ? 0 : offset);
            at += length + 3;
        } else {
            out[n++] = *at++;
        }
    }
    while (n && out[n - 1] == ' ') n--;
    out[n] = '\0';
}

/* A line: the offset as a comment, then "@P0 BRA `(.L_x_0) ;". */
static int read_line(struct eider_sass *s, const char *text, const char *line)
{
    char predicate[16] = "", opcode[96] = "", operands[512] = "";
    const char *comment = line + strspn(line, " \t");
    if (strncmp(comment, "/*", 2) != 0) return 0;
    char *rest;
    unsigned long offset = strtoul(comment + 2, &rest, 16);
    if (strncmp(rest, "*/", 2) != 0) return 0;
    const char *at = rest + 2, *end = at + strcspn(at, ";\n");
    at += strspn(at, " \t{}");
    if (*at == '@') {
        snprintf(predicate, sizeof predicate, "%.*s", (int)strcspn(at, " "), at);
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    snprintf(opcode, sizeof opcode, "%.*s", (int)strcspn(at, " ;\n"), at);
    at += strcspn(at, " ;\n");
    at += strspn(at, " ");
    if (at < end) copy_operands(text, at, end, operands, sizeof operands);
    if (!opcode[0]) return 0;
    set_text(s, offset / EIDER_SASS_WORD, predicate, opcode, operands);
    return 1;
}

eider_status eider_sass_disasm_text(struct eider_sass *s, const char *text)
{
    char heading[300];
    snprintf(heading, sizeof heading, "\n.text.%.256s:\n", s->cubin.entry);
    const char *at = strstr(text, heading);
    size_t n = 0;
    while (at && (at = strchr(at, '\n'))) {
        at++;
        if (strncmp(at, "//-----", 7) == 0) break; /* the next section */
        n += (size_t)read_line(s, text, at);
    }
    if (n == 0)
        return eider_fail(EIDER_IO, "%s: its output is not understood: %.400s",
                          s->summary.disassembler, text);
    s->summary.disassembler = eider_sass_text(s, "%s, text", s->summary.disassembler);
    return EIDER_OK;
}

/* ---- Both -------------------------------------------------------------- */

static eider_status spawn(struct eider_sass *s, const char *path, const char *option,
                          struct eider_text *output, int *code)
{
    const char *const argv[] = {path, option, "/dev/stdin", NULL};
    struct eider_blob cubin = {(void *)(uintptr_t)s->cubin.bytes, s->cubin.size};
    return eider_spawn_long(&s->allocator, argv, &cubin, DEADLINE_MS, LISTING_BYTES_MAX, output,
                            code);
}

/* Padding: NOPs, and the endless loop before them, behind the last instruction that can be
 * reached.  What is left without text was not disassembled. */
static eider_status finish(struct eider_sass *s)
{
    while (s->n_code && s->code[s->n_code - 1].opcode &&
           strcmp(s->code[s->n_code - 1].opcode, "NOP") == 0)
        s->n_code--;
    for (size_t i = 0; i < s->n_code; i++)
        if (!s->code[i].opcode) set_text(s, i, "", "?", "");
    return s->n_code ? EIDER_OK : eider_fail(EIDER_BAD_ARG, "the kernel has no instructions");
}

eider_status eider_sass_disasm(struct eider_sass *s)
{
    struct eider_tool_found tool;
    struct eider_text output;
    int code = 0;
    if (!eider_tools_get(EIDER_TOOL_NVDISASM, &tool)) return fail_absent();
    s->summary.disassembler = eider_sass_text(s, "nvdisasm %s", tool.info.version);
    EIDER_TRY(spawn(s, tool.info.path, "-json", &output, &code));
    eider_status status = EIDER_UNSUPPORTED;
    if (code == 0 && output.data) status = eider_sass_disasm_json(s, output.data);
    eider_text_release(&output);
    if (status == EIDER_UNSUPPORTED) {
        EIDER_TRY(spawn(s, tool.info.path, "-c", &output, &code));
        const char *said = output.data ? output.data : "nothing";
        status = code == 0 ? eider_sass_disasm_text(s, said)
                           : eider_fail(EIDER_IO, "%s refused the cubin (exit code %d): %.1000s",
                                        tool.info.path, code, said);
        eider_text_release(&output);
    }
    return status == EIDER_OK ? finish(s) : status;
}
