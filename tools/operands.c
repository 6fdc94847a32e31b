/* operands.c -- binds names of the command line to operands, and moves their data.
 *
 * Not here: what a SOURCE is (source.h), file formats.
 */
#include "operands.h"

#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "number.h"
#include "safetensors.h"
#include "say.h"
#include "source.h"

/* One value of --in, --scalar or --out: NAME[:TYPE][=REST]. */
struct binding {
    const char *option;
    const char *name;
    size_t length;
    int type;         /* an eider_dtype, or -1 */
    const char *rest; /* NULL without '=' */
};

static int parse_binding(const char *option, const char *text, struct binding *out)
{
    size_t name = strcspn(text, ":=");
    *out = (struct binding){option, text, name, -1, NULL};
    const char *at = text + name;
    if (*at == ':') {
        char type[8];
        size_t n = strcspn(++at, "=");
        if (n >= sizeof type) n = sizeof type - 1;
        memcpy(type, at, n);
        type[n] = '\0';
        eider_dtype found;
        if (eider_dtype_parse(type, &found) != EIDER_OK) {
            return cli_fail(CLI_USAGE, "%s %s: %s", option, text, eider_error());
        }
        out->type = (int)found;
        at += strcspn(at, "=");
    }
    if (*at == '=') out->rest = at + 1;
    if (name == 0 || (out->rest && !out->rest[0])) {
        return cli_fail(CLI_USAGE, "%s %s: expected NAME[:TYPE]=...", option, text);
    }
    return CLI_OK;
}

static const char *const kind_names[] = {"input", "scalar", "output"};

static int fail_no_operand(const struct cli_operands *o, const struct binding *b,
                           eider_operand_kind kind)
{
    char names[512] = "";
    struct cli_suggestion near = cli_suggestion_start(b->name, b->length);
    for (size_t i = 0, used = 0; i < o->n; i++) {
        if (o->at[i].info.kind != kind) continue;
        cli_suggestion_offer(&near, o->at[i].info.name);
        int n = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                         o->at[i].info.name);
        if (n > 0 && (size_t)n < sizeof names - used) used += (size_t)n;
    }
    return cli_fail(CLI_USAGE, "%s: the program has no %s '%.*s'%s%s%s", b->option,
                    kind_names[kind], (int)b->length, b->name, names[0] ? "; it has " : "", names,
                    cli_suggestion_text(&near));
}

/* The operand that a binding names; its declared type and the binding's must agree. */
static int find(struct cli_operands *o, const struct binding *b, eider_operand_kind kind,
                struct cli_operand **out)
{
    for (size_t i = 0; i < o->n; i++) {
        const eider_operand *info = &o->at[i].info;
        if (info->kind != kind || strlen(info->name) != b->length ||
            memcmp(info->name, b->name, b->length) != 0) {
            continue;
        }
        if (b->type >= 0 && info->type >= 0 && b->type != info->type) {
            return cli_fail(CLI_USAGE, "%s: the program declares %s as %s, not %s", b->option,
                            info->name, eider_dtype_name((eider_dtype)info->type),
                            eider_dtype_name((eider_dtype)b->type));
        }
        *out = &o->at[i];
        return CLI_OK;
    }
    return fail_no_operand(o, b, kind);
}

static int bind_input(struct cli_operands *o, struct cli_operands_rule rule, const char *text)
{
    struct binding b;
    struct cli_operand *operand;
    int code = parse_binding("--in", text, &b);
    if (!code && !b.rest) code = cli_fail(CLI_USAGE, "--in %s: expected NAME=SOURCE", text);
    if (!code) code = find(o, &b, EIDER_INPUT, &operand);
    if (code) return code;
    if (operand->host.rank || operand->host.n) {
        return cli_fail(CLI_USAGE, "--in: %s is given twice", operand->info.name);
    }
    int type = b.type >= 0 ? b.type : operand->info.type;
    if (rule.fill) cli_progress("reading %s", text);
    return cli_source_read(operand->info.name, b.rest, type, rule.fill, &operand->host);
}

static int bind_scalar(struct cli_operands *o, const char *text)
{
    struct binding b;
    struct cli_operand *operand;
    int code = parse_binding("--scalar", text, &b);
    if (!code) code = find(o, &b, EIDER_SCALAR, &operand);
    if (code) return code;
    char *end = NULL;
    double value = b.rest ? strtod(b.rest, &end) : 0;
    if (!b.rest || end == b.rest || *end) {
        return cli_fail(CLI_USAGE, "--scalar %s: expected NAME=NUMBER", text);
    }
    if (b.type >= 0) operand->host.type = (eider_dtype)b.type;
    cli_number_put(operand->host.type, operand->value, 0, value);
    operand->host.data = operand->value;
    return CLI_OK;
}

/* The length of the path in FILE.safetensors[:NAME], or 0 for another kind of file. */
static size_t safetensors_path(const char *file)
{
    static const char end[] = ".safetensors";
    size_t length = strlen(file), n = sizeof end - 1;
    if (length > n && strcmp(file + length - n, end) == 0) return length;
    const char *colon = strrchr(file, ':');
    size_t before = colon ? (size_t)(colon - file) : 0;
    return before > n && memcmp(colon - n, end, n) == 0 ? before : 0;
}

static int is_npy(const char *file)
{
    size_t length = strlen(file);
    return length > 4 && strcmp(file + length - 4, ".npy") == 0;
}

static int bind_output(struct cli_operands *o, const char *text)
{
    struct binding b;
    struct cli_operand *operand;
    int code = parse_binding("--out", text, &b);
    if (!code) code = find(o, &b, EIDER_OUTPUT, &operand);
    if (code) return code;
    if (b.rest && !is_npy(b.rest) && !safetensors_path(b.rest)) {
        return cli_fail(CLI_USAGE, "--out %s: expected FILE.npy or FILE.safetensors[:NAME]", text);
    }
    if (b.type >= 0) operand->info.type = b.type;
    operand->file = b.rest;
    return CLI_OK;
}

static int bind_all(const struct cli_options *options, struct cli_operands_rule rule,
                    struct cli_operands *o)
{
    int code = CLI_OK;
    const struct cli_values *in = &options->given[CLI_IN];
    const struct cli_values *scalar = &options->given[CLI_SCALAR];
    const struct cli_values *out = &options->given[CLI_OUT];
    for (int i = 0; !code && i < scalar->n; i++) code = bind_scalar(o, scalar->at[i]);
    for (int i = 0; !code && i < out->n; i++) code = bind_output(o, out->at[i]);
    for (int i = 0; !code && i < in->n; i++) code = bind_input(o, rule, in->at[i]);
    return code;
}

/* An input with one value for each row or column says how many there are. */
static void take_extent(struct cli_array *rows, eider_extent extent, const struct cli_array *host)
{
    if (extent == EIDER_PER_COLUMN && host->rank) rows->shape[1] = host->shape[host->rank - 1];
    if (extent == EIDER_PER_ROW) rows->shape[0] = (int64_t)host->n;
}

/* The shape of which inputs without a source are. */
static void find_rows(const struct cli_session *s, const struct cli_operands *o,
                      struct cli_operands_rule rule, struct cli_array *rows)
{
    *rows = (struct cli_array){
        .type = rule.default_type, .rank = 2, .shape = {rule.default_rows, CLI_COLUMNS}};
    const struct cli_array *largest = NULL;
    for (size_t i = 0; i < o->n; i++) {
        const struct cli_array *host = &o->at[i].host;
        if (o->at[i].info.kind != EIDER_INPUT || (!host->rank && !host->n)) continue;
        eider_extent extent = eider_program_extent(s->program, i);
        take_extent(rows, extent, host);
        if (extent == EIDER_FULL && (!largest || host->n > largest->n)) largest = host;
    }
    if (!largest) return;
    rows->rank = largest->rank;
    memcpy(rows->shape, largest->shape, sizeof rows->shape);
    if (cli_number_is_float(largest->type)) rows->type = largest->type;
}

static void set_shape(struct cli_array *host, const struct cli_array *rows, eider_extent extent)
{
    host->rank = rows->rank;
    memcpy(host->shape, rows->shape, sizeof host->shape);
    if (!host->rank || extent == EIDER_FULL) return;
    if (extent == EIDER_PER_COLUMN) {
        host->shape[0] = host->shape[host->rank - 1];
        host->rank = 1;
    } else {
        host->shape[host->rank - 1] = 1;
    }
}

/* Gives an input or scalar without a source its default, or fails. */
static int complete(const struct cli_session *s, struct cli_operands *o,
                    struct cli_operands_rule rule, const struct cli_array *rows, size_t i,
                    size_t input)
{
    struct cli_operand *operand = &o->at[i];
    const char *name = operand->info.name;
    struct cli_array *host = &operand->host;
    if (operand->info.kind == EIDER_SCALAR) {
        if (host->data || !rule.fill) return CLI_OK;
        return cli_fail(CLI_USAGE, "scalar '%s' has no value: --scalar %s=NUMBER", name, name);
    }
    if (operand->info.kind == EIDER_OUTPUT || host->rank || host->n) return CLI_OK;
    if (!rule.default_rows) {
        return cli_fail(CLI_USAGE,
                        "input '%s' has no source: --in %s=SOURCE, such as "
                        "%s=bf16[4096]:randn",
                        name, name, name);
    }
    host->type = operand->info.type >= 0 ? (eider_dtype)operand->info.type : rows->type;
    set_shape(host, rows, eider_program_extent(s->program, i));
    if (!rule.fill) return cli_array_size(host, name);
    cli_progress("generating %s", name);
    int code = cli_array_allocate(host, name);
    if (code || !rule.generate) return code ? code : cli_source_generate(name, "randn", host);
    rule.generate(input, host);
    return CLI_OK;
}

static int complete_all(const struct cli_session *s, struct cli_operands_rule rule,
                        struct cli_operands *o)
{
    struct cli_array rows;
    int code = CLI_OK;
    find_rows(s, o, rule, &rows);
    for (size_t i = 0, input = 0; !code && i < o->n; i++) {
        code = complete(s, o, rule, &rows, i, input);
        input += o->at[i].info.kind == EIDER_INPUT;
    }
    return code;
}

/* Gives the outputs their shape and, where nobody says, the promoted type of the inputs. */
static int shape_outputs(const struct cli_session *s, struct cli_operands *o)
{
    eider_dtype type = EIDER_F32;
    int typed = 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct cli_array *host = &o->at[i].host;
        o->tensors[i] = (eider_tensor){.rank = host->rank, .shape = host->shape};
        if (o->at[i].info.kind != EIDER_INPUT) continue;
        type = typed ? cli_number_promote(type, host->type) : host->type;
        typed = 1;
    }
    for (size_t i = 0; i < o->n; i++) {
        struct cli_operand *operand = &o->at[i];
        if (operand->info.kind != EIDER_OUTPUT) continue;
        struct cli_array *host = &operand->host;
        eider_status status =
            eider_program_shape(s->program, o->tensors, o->n, i, &host->rank, host->shape);
        if (status == EIDER_SHAPE) return cli_fail(CLI_USAGE, "%s", eider_error());
        if (status != EIDER_OK) return cli_fail_library(status);
        host->type = operand->info.type >= 0 ? (eider_dtype)operand->info.type : type;
        int code = cli_array_size(host, operand->info.name);
        if (code) return code;
    }
    return CLI_OK;
}

static int create(const struct cli_session *s, struct cli_operands *out)
{
    out->n = eider_program_operands(s->program);
    out->at = calloc(out->n ? out->n : 1, sizeof *out->at);
    out->tensors = calloc(out->n ? out->n : 1, sizeof *out->tensors);
    if (!out->at || !out->tensors) return cli_fail_memory(out->n * sizeof *out->at);
    for (size_t i = 0; i < out->n; i++) {
        struct cli_operand *operand = &out->at[i];
        eider_status status = eider_program_operand(s->program, i, &operand->info);
        if (status != EIDER_OK) return cli_fail_library(status);
        if (operand->info.type >= 0) operand->host.type = (eider_dtype)operand->info.type;
    }
    return CLI_OK;
}

int cli_operands_bind(const struct cli_session *s, struct cli_operands_rule rule,
                      struct cli_operands *out)
{
    memset(out, 0, sizeof *out);
    int code = create(s, out);
    if (!code) code = bind_all(s->options, rule, out);
    if (!code) code = complete_all(s, rule, out);
    if (!code) code = shape_outputs(s, out);
    for (size_t i = 0; !code && i < out->n; i++) {
        const struct cli_array *host = &out->at[i].host;
        out->tensors[i] =
            (eider_tensor){.type = host->type, .rank = host->rank, .shape = host->shape};
        if (out->at[i].info.kind == EIDER_SCALAR) out->tensors[i].data = host->data;
    }
    return code;
}

void cli_operands_release(const struct cli_session *s, struct cli_operands *o)
{
    for (size_t i = 0; o->at && i < o->n; i++) {
        if (o->at[i].device) eider_memory_free(s->device, o->at[i].device);
        if (o->at[i].info.kind != EIDER_SCALAR) cli_array_release(&o->at[i].host);
    }
    free(o->at);
    free(o->tensors);
    memset(o, 0, sizeof *o);
}

int cli_operands_upload(const struct cli_session *s, struct cli_operands *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct cli_operand *operand = &o->at[i];
        if (operand->info.kind == EIDER_SCALAR) continue;
        struct cli_array *host = &operand->host;
        eider_status status =
            eider_memory_alloc(s->device, host->bytes ? host->bytes : 1, &operand->device);
        if (status == EIDER_OK && operand->info.kind == EIDER_INPUT && host->bytes) {
            status = eider_memory_copy(s->device, NULL, operand->device, host->data, host->bytes,
                                       EIDER_HOST_TO_DEVICE);
        }
        if (status != EIDER_OK) return cli_fail_library(status);
        o->tensors[i].data = operand->device;
    }
    return CLI_OK;
}

int cli_operands_download(const struct cli_session *s, struct cli_operands *o)
{
    for (size_t i = 0; i < o->n; i++) {
        struct cli_operand *operand = &o->at[i];
        if (operand->info.kind != EIDER_OUTPUT) continue;
        int code = cli_array_allocate(&operand->host, operand->info.name);
        if (code) return code;
        if (!operand->host.bytes) continue;
        eider_status status =
            eider_memory_copy(s->device, NULL, operand->host.data, operand->device,
                              operand->host.bytes, EIDER_DEVICE_TO_HOST);
        if (status != EIDER_OK) return cli_fail_library(status);
    }
    return CLI_OK;
}

/* Writes every output from `first` on that goes to the same .safetensors file. */
static int write_shared(const struct cli_operands *o, size_t first)
{
    size_t length = safetensors_path(o->at[first].file), n = 0;
    const char **names = calloc(o->n, sizeof *names);
    const struct cli_array **arrays = calloc(o->n, sizeof *arrays);
    char *path = strndup(o->at[first].file, length);
    int code = names && arrays && path ? CLI_OK : cli_fail_memory(length);
    for (size_t i = first; !code && i < o->n; i++) {
        const struct cli_operand *operand = &o->at[i];
        if (!operand->file || safetensors_path(operand->file) != length ||
            memcmp(operand->file, path, length) != 0) {
            continue;
        }
        names[n] = operand->file[length] ? operand->file + length + 1 : operand->info.name;
        arrays[n++] = &operand->host;
        for (size_t k = 0; k + 1 < n; k++) {
            if (strcmp(names[k], names[n - 1]) != 0) continue;
            code = cli_fail(CLI_USAGE, "--out: two outputs are named '%s' in %s", names[k], path);
        }
    }
    if (!code) code = cli_safetensors_write(path, names, arrays, n);
    free(names);
    free(arrays);
    free(path);
    return code;
}

/* Whether an earlier output goes to the same .safetensors file, and took this one along. */
static int is_written(const struct cli_operands *o, size_t i)
{
    size_t length = safetensors_path(o->at[i].file);
    for (size_t k = 0; k < i; k++) {
        if (o->at[k].file && safetensors_path(o->at[k].file) == length &&
            memcmp(o->at[k].file, o->at[i].file, length) == 0) {
            return 1;
        }
    }
    return 0;
}

int cli_operands_write(const struct cli_operands *o)
{
    int code = CLI_OK;
    for (size_t i = 0; !code && i < o->n; i++) {
        const char *file = o->at[i].file;
        if (!file) continue;
        if (!safetensors_path(file))
            code = cli_npy_write(file, &o->at[i].host);
        else if (!is_written(o, i))
            code = write_shared(o, i);
    }
    return code;
}
