/* session.c -- opens what the common options describe.
 */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "say.h"

/* Without a GPU and without --target: the oldest target with every feature we emit. */
#define DEFAULT_TARGET "sm_90"

static eider_switch get_switch(const struct cli_options *options, enum cli_option id)
{
    const char *text = cli_options_get(options, id);
    if (!text) return EIDER_DEFAULT;
    return strcmp(text, "on") == 0 ? EIDER_ON : EIDER_OFF;
}

static eider_math get_math(const struct cli_options *options)
{
    static const char *const names[] = {"auto", "approx", "fast", "exact"};
    const char *text = cli_options_get(options, CLI_MATH);
    for (size_t i = 0; text && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) return (eider_math)i;
    }
    return EIDER_MATH_AUTO;
}

/* The values of a repeatable option, joined by commas.  Caller owns *out: free. */
static int join(const struct cli_values *values, char **out)
{
    size_t bytes = 1;
    for (int i = 0; i < values->n; i++) bytes += strlen(values->at[i]) + 1;
    char *text = malloc(bytes), *at = text;
    if (!text) return cli_fail_memory(bytes);
    for (int i = 0; i < values->n; i++) {
        if (at > text) *at++ = ',';
        at = stpcpy(at, values->at[i]);
    }
    *at = '\0';
    *out = text;
    return CLI_OK;
}

int cli_session_open(const struct cli_options *options, struct cli_session *out)
{
    memset(out, 0, sizeof *out);
    out->options = options;
    out->numerics = (eider_numerics){.math = get_math(options),
                                     .ftz = get_switch(options, CLI_FTZ),
                                     .contract = get_switch(options, CLI_CONTRACT)};
    out->assembler = cli_options_get(options, CLI_ASSEMBLER);
    int code = join(&options->given[CLI_SET], &out->config);
    if (code) return code;
    eider_context_options context = {.log = cli_log};
    eider_status status = eider_context_create(&context, &out->ctx);
    return status == EIDER_OK ? CLI_OK : cli_fail_library(status);
}

void cli_session_close(struct cli_session *s)
{
    eider_device_release(s->device);
    eider_program_release(s->program);
    if (s->ctx) eider_context_destroy(s->ctx);
    free(s->config);
    memset(s, 0, sizeof *s);
}

/* Checks the names after --grad and derives.  `names` is cut into words. */
static int derive(struct cli_session *s, char *names)
{
    enum { NAMES_MAX = 64 };
    const char *wrt[NAMES_MAX];
    eider_grad_options grad = {.with_forward = cli_options_has(s->options, CLI_FORWARD)};
    if (strcmp(names, "all") != 0) {
        char *rest = names;
        for (char *name; (name = strsep(&rest, ","));) {
            if (!name[0] || grad.n_wrt == NAMES_MAX) {
                return cli_fail(CLI_USAGE, "--grad: expected names of inputs, such as x,y, or all");
            }
            wrt[grad.n_wrt++] = name;
        }
        grad.wrt = wrt;
    }
    eider_program *backward;
    eider_status status = eider_program_grad(s->program, &grad, &backward);
    if (status != EIDER_OK) return cli_fail_library(status);
    eider_program_release(s->program);
    s->program = backward;
    return CLI_OK;
}

static int apply_grad(struct cli_session *s)
{
    const char *names = cli_options_get(s->options, CLI_GRAD);
    if (!names && cli_options_has(s->options, CLI_FORWARD)) {
        return cli_fail(CLI_USAGE, "--with-forward needs --grad");
    }
    if (!names) return CLI_OK;
    char *copy = strdup(names);
    if (!copy) return cli_fail_memory(strlen(names) + 1);
    int code = derive(s, copy);
    free(copy);
    return code;
}

static int apply_part(struct cli_session *s)
{
    const char *part = cli_options_get(s->options, CLI_PROGRAM_PART);
    eider_program *rows, *columns;
    if (!part) return CLI_OK;
    eider_status status = eider_program_split(s->program, &rows, &columns);
    if (status != EIDER_OK) return cli_fail_library(status);
    int is_rows = strcmp(part, "rows") == 0;
    eider_program_release(s->program);
    eider_program_release(is_rows ? columns : rows);
    s->program = is_rows ? rows : columns;
    if (s->program) return CLI_OK;
    return cli_fail(CLI_USAGE, is_rows ? "--part rows: there is nothing but colsums, which need "
                                         "no reduction along the row: use --part columns"
                                       : "--part columns: the program has no colsum");
}

/* A word that cannot be a program: a name that no program has, or a file without its '@'. */
static int fail_no_program(const char *word)
{
    eider_row row;
    struct cli_suggestion near = cli_suggestion_start(word, strlen(word));
    for (size_t i = 0; eider_table_row(EIDER_TABLE_KERNELS, i, &row); i++)
        if (row.text[0]) cli_suggestion_offer(&near, row.name); /* templates have no text */
    int is_file = access(word, R_OK) == 0;
    return cli_fail(CLI_USAGE,
                    "'%.64s' is no program, which is statements such as 'out = silu(x)', @FILE or "
                    "a name of `eider list kernels`%s%s%s",
                    word, is_file ? "; did you mean '@" : cli_suggestion_text(&near),
                    is_file ? word : "", is_file ? "'?" : "");
}

int cli_session_program(struct cli_session *s, const char *text)
{
    char *file = NULL;
    if (text[0] == '@') {
        int code = cli_file_text(text + 1, &file);
        if (code) return code;
    }
    eider_program_release(s->program);
    s->program = NULL;
    eider_status status = eider_program_parse(s->ctx, file ? file : text, &s->program);
    free(file);
    if (status == EIDER_OK) {
        int code = apply_grad(s);
        return code ? code : apply_part(s);
    }
    return status == EIDER_PARSE && text[0] != '@' && !strpbrk(text, "=\n")
               ? fail_no_program(text)
               : cli_fail_library(status);
}

int cli_session_device(struct cli_session *s)
{
    const char *name = cli_options_get(s->options, CLI_DEVICE);
    int32_t n = 0;
    if (!name) {
        int has_gpu = eider_device_count(s->ctx, "cuda", &n) == EIDER_OK && n > 0;
        name = has_gpu ? "cuda:0" : "cpu";
    }
    eider_status status = eider_device_open(s->ctx, name, &s->device);
    if (status != EIDER_OK) return cli_fail_library(status);
    eider_device_describe(s->device, &s->device_info);
    return CLI_OK;
}

const char *cli_session_target(struct cli_session *s)
{
    const char *target = cli_options_get(s->options, CLI_TARGET);
    const char *device = cli_options_get(s->options, CLI_DEVICE);
    if (target) return target;
    if (device && strcmp(device, "cpu") == 0) return "cpu";
    if (!s->device) {
        eider_status status = eider_device_open(s->ctx, device ? device : "cuda:0", &s->device);
        if (status != EIDER_OK && device) {
            cli_fail_library(status);
            return NULL;
        }
        if (status != EIDER_OK) return DEFAULT_TARGET;
        eider_device_describe(s->device, &s->device_info);
    }
    return s->device_info.target;
}

eider_request cli_session_request(const struct cli_session *s, const eider_tensor *args,
                                  size_t n_args)
{
    return (eider_request){.program = s->program,
                           .args = args,
                           .n_args = n_args,
                           .numerics = s->numerics,
                           .config = s->config,
                           .assembler = s->assembler,
                           .checked = cli_options_has(s->options, CLI_CHECKED)};
}
