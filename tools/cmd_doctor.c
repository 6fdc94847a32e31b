/* cmd_doctor.c -- `eider doctor`: what is there, and why the rest is not.
 */
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "say.h"
#include "session.h"

/* Where the second column begins. */
#define INDENT 16

/* Prints the lines of `text` indented. */
static void print_lines(const char *text)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");
        if (n) printf("%*s%.*s\n", INDENT, "", n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_tool(const eider_tool *tool)
{
    if (tool->found) {
        printf("%-*s %s%s%s\n", INDENT - 1, tool->name, tool->version[0] ? tool->version : "found",
               tool->path[0] ? "  " : "", tool->path);
    } else {
        printf("%-*s not found\n", INDENT - 1, tool->name);
        print_lines(tool->tried);
    }
}

static void print_device(struct cli_session *s, const char *name)
{
    eider_device *device;
    eider_device_info info;
    printf("%-*s ", INDENT - 1, name);
    if (eider_device_open(s->ctx, name, &device) != EIDER_OK) {
        printf("cannot be opened\n");
        print_lines(eider_error());
        return;
    }
    eider_device_describe(device, &info);
    eider_device_release(device);
    printf("%s, %s, %d %s, %.1f GiB\n", info.name, info.target, info.units,
           strcmp(info.backend, "cpu") == 0 ? "threads" : "multiprocessors",
           (double)info.memory_bytes / 0x1p30);
}

static void print_devices(struct cli_session *s, int has_driver)
{
    int32_t n = 0;
    eider_status status = eider_device_count(s->ctx, "cuda", &n);
    if (status != EIDER_OK || n == 0) {
        printf("%-*s no GPU can be used%s\n", INDENT - 1, "cuda",
               has_driver ? "" : " without the driver");
        if (has_driver) print_lines(status == EIDER_OK ? "there is none" : eider_error());
        n = 0;
    }
    for (int32_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", i);
        print_device(s, name);
    }
    print_device(s, "cpu");
}

/* Tools, then devices. */
static void print_text(struct cli_session *s)
{
    eider_tool tool;
    int has_driver = 1;
    printf("%-*s %s\n", INDENT - 1, "eider", eider_version());
    for (size_t i = 0; eider_tool_find(s->ctx, i, &tool); i++) {
        print_tool(&tool);
        if (strcmp(tool.name, "cuda driver") == 0) has_driver = tool.found;
    }
    print_devices(s, has_driver);
}

static int print_json(struct cli_session *s)
{
    json_t *tools = json_array();
    eider_tool tool;
    for (size_t i = 0; eider_tool_find(s->ctx, i, &tool); i++) {
        json_array_append_new(tools, json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", tool.name,
                                               "found", tool.found, "version", tool.version, "path",
                                               tool.path, "tried", tool.tried));
    }
    int32_t n = 0;
    const char *why = eider_device_count(s->ctx, "cuda", &n) == EIDER_OK ? "" : eider_error();
    return cli_print_json(json_pack("{s:s, s:o, s:i, s:s}", "version", eider_version(), "tools",
                                    tools, "gpus", n, "no_gpu_because", why));
}

static int run(const struct cli_options *options)
{
    struct cli_session session;
    int code = cli_session_open(options, &session);
    if (!code && cli_options_has(options, CLI_JSON))
        code = print_json(&session);
    else if (!code)
        print_text(&session);
    cli_session_close(&session);
    return code;
}

const struct cli_command cli_cmd_doctor = {
    .name = "doctor",
    .summary = "Shows what was found (LLVM, driver, GPUs, assemblers) and why the rest was not",
    .usage = "[--json]",
    .about = "",
    .examples = "  eider doctor\n  eider doctor --json\n",
    .options = CLI_USES_COMMON,
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
