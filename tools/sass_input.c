/* sass_input.c -- a word of the command line to a report on machine code; see sass_report.h.
 *
 * On a GPU the kernel of a program is prepared as for a launch, and timed, so that the report
 * is on the bytes that ran.
 */
#include "sass_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "operands.h"
#include "say.h"

#define COMPILE_ROWS 16384 /* of inputs nobody describes: a large tensor */
#define TIMES 21

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* ---- "+math=fast,vec=4" -------------------------------------------------- */

static int set_switch(const char *name, const char *value, eider_switch *out)
{
    *out = strcmp(value, "on") == 0 ? EIDER_ON : EIDER_OFF;
    if (*out == EIDER_ON || strcmp(value, "off") == 0) return CLI_OK;
    return cli_fail(CLI_USAGE, "+%s: '%s' is neither on nor off", name, value);
}

static int set_math(const char *value, eider_math *out)
{
    static const char *const names[] = {"auto", "approx", "fast", "exact"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *out = (eider_math)i;
        if (strcmp(value, names[i]) == 0) return CLI_OK;
    }
    return cli_fail(CLI_USAGE, "+math: '%s' is not one of auto, approx, fast, exact", value);
}

static int keep(char **out, const char *value)
{
    free(*out);
    *out = strdup(value);
    return *out ? CLI_OK : cli_fail_memory(strlen(value) + 1);
}

/* A tuning parameter goes behind those that are there: the last one counts. */
static int add_parameter(struct cli_session *s, const char *name, const char *value)
{
    char *config = NULL;
    if (asprintf(&config, "%s%s%s=%s", s->config, s->config[0] ? "," : "", name, value) < 0)
        return cli_fail_memory(strlen(name) + strlen(value));
    free(s->config);
    s->config = config;
    return CLI_OK;
}

static int set(struct cli_sass_input *in, const char *name, const char *value)
{
    struct cli_session *s = &in->session;
    if (strcmp(name, "math") == 0) return set_math(value, &s->numerics.math);
    if (strcmp(name, "ftz") == 0) return set_switch(name, value, &s->numerics.ftz);
    if (strcmp(name, "contract") == 0) return set_switch(name, value, &s->numerics.contract);
    if (strcmp(name, "target") == 0) return keep(&in->target, value);
    if (strcmp(name, "assembler") == 0) {
        int code = keep(&in->assembler, value);
        s->assembler = in->assembler;
        return code;
    }
    return add_parameter(s, name, value);
}

int cli_sass_set(struct cli_sass_input *in, const char *text)
{
    char *settings = strdup(text), *rest = settings;
    int code = settings ? CLI_OK : cli_fail_memory(strlen(text) + 1);
    for (char *word; !code && (word = strsep(&rest, ","));) {
        char *value = strchr(word, '=');
        if (!value)
            code = cli_fail(CLI_USAGE, "+%s: expected settings, such as +math=fast,vec=4", word);
        else
            *value++ = '\0', code = set(in, word, value);
    }
    free(settings);
    return code;
}

static const char *target_of(struct cli_sass_input *in)
{
    return in->target ? in->target : cli_session_target(&in->session);
}

/* ---- Files ------------------------------------------------------------- */

static int read_bytes(const char *path, char **out, size_t *out_size)
{
    FILE *file;
    uint64_t size;
    int code = cli_file_open(path, &file, &size);
    if (code) return code;
    char *data = malloc((size_t)size + 1);
    code = data ? cli_file_read(path, file, data, (size_t)size) : cli_fail_memory((size_t)size);
    fclose(file);
    if (code) {
        free(data);
        return code;
    }
    data[size] = '\0';
    *out = data;
    *out_size = (size_t)size;
    return CLI_OK;
}

static char *copy_name(const char *at)
{
    size_t n = strcspn(at, "( ,{\n\t");
    return strndup(at, n);
}

/* The first kernel of a text: ".entry NAME(" of PTX, "ptx_kernel ... @NAME(" or an annotation
 * of IR.  Caller owns: free. */
static char *find_entry(const char *text, eider_source_kind kind)
{
    const char *at = strstr(text, kind == EIDER_SOURCE_PTX ? ".entry " : "ptx_kernel ");
    if (at && kind == EIDER_SOURCE_PTX) return copy_name(at + strlen(".entry "));
    if (at) {
        at = strchr(at, '@');
        return at ? copy_name(at + 1) : NULL;
    }
    at = kind == EIDER_SOURCE_LL ? strstr(text, ", !\"kernel\"") : NULL;
    while (at && at > text && *at != '@') at--;
    return at && *at == '@' ? copy_name(at + 1) : NULL;
}

/* "sm_90" of ".target sm_90", or NULL.  Caller owns: free. */
static char *find_target(const char *ptx)
{
    const char *at = strstr(ptx, ".target ");
    return at ? copy_name(at + strlen(".target ")) : NULL;
}

static int compile_source(struct cli_sass_input *in, eider_source_kind kind, size_t size)
{
    const struct cli_options *options = in->session.options;
    const char *entry = cli_options_get(options, CLI_ENTRY);
    const char *target = in->target ? in->target : cli_options_get(options, CLI_TARGET);
    char *found = entry || kind == EIDER_SOURCE_BITCODE ? NULL : find_entry(in->file, kind);
    char *stated = !target && kind == EIDER_SOURCE_PTX ? find_target(in->file) : NULL;
    eider_source source = {
        .kind = kind, .data = in->file, .size = size, .entry = entry ? entry : found};
    eider_request request = cli_session_request(&in->session, NULL, 0);
    request.program = NULL;
    request.source = &source;
    request.line_info = 1;
    request.target = target ? target : stated ? stated : cli_session_target(&in->session);
    int code = CLI_LIBRARY;
    if (!source.entry) {
        code = cli_fail(CLI_USAGE, "%s: no kernel is found in it: --entry NAME", in->word);
    } else if (request.target) {
        eider_status status = eider_compile(in->session.ctx, &request, &in->kernel);
        code = status == EIDER_OK ? CLI_OK : cli_fail_library(status);
    }
    free(found);
    free(stated);
    return code;
}

/* ---- Programs ---------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int time_kernel(struct cli_sass_input *in, const struct cli_operands *operands)
{
    double ns[TIMES];
    uint64_t bytes = 0;
    eider_status status = eider_kernel_bytes(in->kernel, operands->tensors, operands->n, &bytes);
    for (int round = 0; round < 2 && status == EIDER_OK; round++) /* the first warms up */
        status = eider_time(in->kernel, NULL, operands->tensors, operands->n, TIMES, 1, ns);
    if (status != EIDER_OK) return cli_fail_library(status);
    qsort(ns, TIMES, sizeof *ns, by_value);
    if (ns[TIMES / 2] > 0) in->measured_gbytes_per_s = (double)bytes / ns[TIMES / 2];
    return CLI_OK;
}

static int compile_program(struct cli_sass_input *in)
{
    struct cli_session *s = &in->session;
    struct cli_operands operands = {0};
    struct cli_operands_rule rule = {
        .fill = 0, .default_rows = COMPILE_ROWS, .default_type = EIDER_BF16};
    const char *target = target_of(in);
    if (!target) return CLI_LIBRARY;
    /* A GPU that is here times what it runs. */
    int runs = s->device && strcmp(s->device_info.backend, "cuda") == 0 &&
               strcmp(target, s->device_info.target) == 0;
    rule.fill = runs;
    int code = cli_operands_bind(s, rule, &operands);
    if (!code && runs) code = cli_operands_upload(s, &operands);
    if (!code) {
        eider_request request = cli_session_request(s, operands.tensors, operands.n);
        request.target = target;
        eider_status status = runs ? eider_prepare(s->device, &request, &in->kernel)
                                   : eider_compile(s->ctx, &request, &in->kernel);
        if (status != EIDER_OK) code = cli_fail_library(status);
    }
    if (!code && runs) code = time_kernel(in, &operands);
    cli_operands_release(s, &operands);
    return code;
}

/* ---- Opening ----------------------------------------------------------- */

int cli_sass_options(const struct cli_sass_input *in, eider_sass_options *out)
{
    const struct cli_options *options = in->session.options;
    *out = (eider_sass_options){.entry = cli_options_get(options, CLI_ENTRY)};
    int code = cli_options_number(options, CLI_ELEMENTS, 0, 0, &out->elements);
    if (!code) code = cli_options_number(options, CLI_BYTES, 0, 0, &out->bytes);
    return code;
}

static int open_file(struct cli_sass_input *in, const char *path)
{
    static const struct {
        const char *suffix;
        eider_source_kind kind;
    } kinds[] = {
        {".ll", EIDER_SOURCE_LL}, {".bc", EIDER_SOURCE_BITCODE}, {".ptx", EIDER_SOURCE_PTX}};
    size_t size = 0;
    int code = read_bytes(path, &in->file, &size);
    for (size_t i = 0; !code && i < sizeof kinds / sizeof kinds[0]; i++)
        if (ends_with(path, kinds[i].suffix)) return compile_source(in, kinds[i].kind, size);
    if (code) return code;
    eider_sass_options options;
    code = cli_sass_options(in, &options);
    if (code) return code;
    eider_status status = eider_sass_read(in->session.ctx, in->file, size, &options, &in->sass);
    return status == EIDER_OK ? CLI_OK : cli_fail_library(status);
}

static int is_file(const char *word)
{
    return word[0] != '@' && !strpbrk(word, "=\n") &&
           (ends_with(word, ".ll") || ends_with(word, ".bc") || ends_with(word, ".ptx") ||
            ends_with(word, ".cubin"));
}

static int open_kernel(struct cli_sass_input *in)
{
    eider_sass_options options;
    int code = cli_sass_options(in, &options);
    if (code || in->sass) return code;
    eider_status status = eider_kernel_sass(in->kernel, &options, &in->sass);
    return status == EIDER_OK ? CLI_OK : cli_fail_library(status);
}

static int open_input(struct cli_sass_input *in, const char *base)
{
    int is_settings = in->word[0] == '+';
    const char *input = is_settings ? base : in->word;
    if (!input)
        return cli_fail(CLI_USAGE, "%s: settings of what? They go behind an input", in->word);
    const char *settings = is_settings ? in->word + 1 : NULL;
    if (cli_sass_is_key(input)) return cli_sass_open_key(in, input, settings);
    int code = settings ? cli_sass_set(in, settings) : CLI_OK;
    if (code) return code;
    if (is_file(input)) return open_file(in, input);
    code = cli_session_program(&in->session, input);
    return code ? code : compile_program(in);
}

int cli_sass_open(const struct cli_options *options, const char *word, const char *base,
                  struct cli_sass_input *out)
{
    memset(out, 0, sizeof *out);
    out->word = word;
    int code = cli_session_open(options, &out->session);
    if (!code) code = open_input(out, base);
    if (!code) code = open_kernel(out);
    if (!code && out->kernel) eider_kernel_describe(out->kernel, &out->info);
    if (!code) eider_sass_describe(out->sass, &out->summary);
    return code;
}

void cli_sass_close(struct cli_sass_input *input)
{
    eider_sass_release(input->sass);
    eider_kernel_release(input->kernel);
    cli_session_close(&input->session);
    free(input->file);
    free(input->target);
    free(input->assembler);
    memset(input, 0, sizeof *input);
}
