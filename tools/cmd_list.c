/* cmd_list.c -- `eider list`: the library's tables, and the devices.
 */
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "say.h"
#include "session.h"

static const struct table {
    const char *name;
    int id; /* an eider_table, or -1: devices */
} tables[] = {
    {"activations", EIDER_TABLE_ACTIVATIONS},
    {"ops", EIDER_TABLE_OPS},
    {"params", EIDER_TABLE_PARAMS},
    {"kernels", EIDER_TABLE_KERNELS},
    {"devices", -1},
};

#define N_TABLES (sizeof tables / sizeof tables[0])

static int list_json(eider_table table)
{
    json_t *rows = json_array();
    eider_row row;
    for (size_t i = 0; eider_table_row(table, i, &row); i++) {
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s}", "name", row.name, "signature",
                                              row.signature, "text", row.text, "doc", row.doc));
    }
    return cli_print_json(rows);
}

/* `text` as one cell: '|' would end it, and '*' outside of quotes mean emphasis. */
static void print_cell(const char *text, const char *quote)
{
    if (!text[0]) quote = "";
    printf(" %s", quote);
    for (; *text; text++) {
        if (*text == '|' || (*text == '*' && !quote[0]))
            printf("\\%c", *text);
        else
            putchar(*text == '\n' ? ' ' : *text);
    }
    printf("%s |", quote);
}

static int list_markdown(eider_table table)
{
    eider_row row;
    printf("| signature | meaning |\n|---|---|\n");
    for (size_t i = 0; eider_table_row(table, i, &row); i++) {
        putchar('|');
        /* What kernels have there is a kind, not how they are called. */
        print_cell(table == EIDER_TABLE_KERNELS ? row.name : row.signature, "`");
        print_cell(row.doc, "");
        putchar('\n');
    }
    return CLI_OK;
}

static int list_text(eider_table table)
{
    eider_row row;
    int width = 0;
    for (size_t i = 0; eider_table_row(table, i, &row); i++) {
        int length = (int)strlen(row.name);
        if (length > width) width = length;
    }
    for (size_t i = 0; eider_table_row(table, i, &row); i++) {
        printf("%-*s  %s\n", width, row.name, row.signature);
        for (const char *line = row.text; *line; line += strspn(line, "\n")) {
            size_t length = strcspn(line, "\n");
            printf("%*s    %.*s\n", width, "", (int)length, line);
            line += length;
        }
        if (row.doc[0]) printf("%*s    %s\n", width, "", row.doc);
    }
    return CLI_OK;
}

static json_t *describe(const char *name, const eider_device_info *info)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I}", "device", name, "name", info->name,
                     "target", info->target, "driver", info->driver, "units", info->units,
                     "clock_khz", info->clock_khz, "memory_bytes", (json_int_t)info->memory_bytes,
                     "l2_bytes", (json_int_t)info->l2_bytes);
}

static void print_device(const char *name, const eider_device_info *info)
{
    printf("%-8s %s: %s, %d %s, %.1f GiB, last-level cache %.1f MiB\n", name, info->name,
           info->target, info->units,
           strcmp(info->backend, "cpu") == 0 ? "threads" : "multiprocessors",
           (double)info->memory_bytes / 0x1p30, (double)info->l2_bytes / 0x1p20);
}

/* Adds the device to `rows`, or prints it when `rows` is NULL. */
static int list_device(struct cli_session *s, const char *name, json_t *rows)
{
    eider_device *device;
    eider_device_info info;
    eider_status status = eider_device_open(s->ctx, name, &device);
    if (status != EIDER_OK) return cli_fail_library(status);
    eider_device_describe(device, &info);
    eider_device_release(device);
    if (rows)
        json_array_append_new(rows, describe(name, &info));
    else
        print_device(name, &info);
    return CLI_OK;
}

static int list_devices(struct cli_session *s)
{
    int32_t n = 0;
    json_t *rows = cli_options_has(s->options, CLI_JSON) ? json_array() : NULL;
    if (eider_device_count(s->ctx, "cuda", &n) != EIDER_OK) n = 0; /* doctor says why */
    int code = CLI_OK;
    for (int32_t i = 0; !code && i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", i);
        code = list_device(s, name, rows);
    }
    if (!code) code = list_device(s, "cpu", rows);
    if (code)
        json_decref(rows);
    else if (rows)
        code = cli_print_json(rows);
    return code;
}

static int run(const struct cli_options *options)
{
    const char *word = options->words.at[0];
    struct cli_suggestion near = cli_suggestion_start(word, strlen(word));
    const struct table *table = NULL;
    for (size_t i = 0; i < N_TABLES; i++) {
        cli_suggestion_offer(&near, tables[i].name);
        if (strcmp(word, tables[i].name) == 0) table = &tables[i];
    }
    if (!table) {
        return cli_fail(CLI_USAGE,
                        "unknown list '%s': activations, ops, params, kernels or "
                        "devices%s",
                        word, cli_suggestion_text(&near));
    }
    if (table->id >= 0) {
        if (cli_options_has(options, CLI_JSON)) return list_json((eider_table)table->id);
        if (cli_options_has(options, CLI_MARKDOWN)) return list_markdown((eider_table)table->id);
        return list_text((eider_table)table->id);
    }
    struct cli_session session;
    int code = cli_session_open(options, &session);
    if (!code) code = list_devices(&session);
    cli_session_close(&session);
    return code;
}

const struct cli_command cli_cmd_list = {
    .name = "list",
    .summary = "Lists activations, primitives, parameters, kernels or devices",
    .usage = "activations|ops|params|kernels|devices",
    .about =
        "Kernels are the templates, which programs become, and programs that have a name, such\n"
        "as softmax: the name stands for the program wherever one is expected.\n",
    .examples = "  eider list activations\n"
                "  eider list kernels\n"
                "  eider list params --markdown\n"
                "  eider list devices --json\n",
    .options = CLI_USES_COMMON | CLI_USES(MARKDOWN),
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
