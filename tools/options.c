/* options.c -- parses options and prints the help of a command, both from options.def.
 *
 * Not here: what the values mean; whoever uses one reads it.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

static const struct row {
    const char *name, *argument, *choices, *help;
} rows[CLI_OPTION_COUNT] = {
#define OPTION(id, name, argument, choices, help) [CLI_##id] = {name, argument, choices, help},
#include "options.def"
};

_Static_assert(CLI_OPTION_COUNT <= 64, "a command's options are the bits of a uint64_t");

static int add(struct cli_values *values, const char *text)
{
    const char **at = realloc(values->at, ((size_t)values->n + 1) * sizeof *at);
    if (!at) return cli_fail_memory(sizeof *at);
    values->at = at;
    at[values->n++] = text;
    return CLI_OK;
}

static int takes(const struct cli_command *command, int id)
{
    return (command->options >> id & 1) != 0;
}

/* The option spelled in the first `length` bytes of `text`, or -1. */
static int find(const char *text, size_t length)
{
    if (strcmp(text, "-h") == 0) return CLI_HELP;
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, text, length) == 0) return i;
    }
    return -1;
}

static int fail_unknown(const struct cli_command *command, const char *text, size_t length,
                        int exists)
{
    struct cli_suggestion near = cli_suggestion_start(text, length);
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        if (takes(command, i)) cli_suggestion_offer(&near, rows[i].name);
    }
    return cli_fail(CLI_USAGE, "%s '%.*s' for eider %s%s", exists ? "no option" : "unknown option",
                    (int)length, text, command->name, cli_suggestion_text(&near));
}

/* Whether `value` is one of "a|b|c". */
static int is_choice(const char *choices, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = choices; *at;) {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, value, n) == 0) return 1;
        at += n + (at[n] == '|');
    }
    return 0;
}

static int check_choice(const struct row *row, const char *value)
{
    if (!row->choices[0] || is_choice(row->choices, value)) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s: '%s' is not one of %s", row->name, value, row->choices);
}

/* Reads the option at argv[*i], and its value. */
static int parse_option(struct cli_options *out, int argc, char **argv, int *i)
{
    const char *text = argv[*i];
    const char *equals = strncmp(text, "--", 2) == 0 ? strchr(text, '=') : NULL;
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    int id = find(text, length);
    if (id < 0 || !takes(out->command, id)) {
        return fail_unknown(out->command, text, length, id >= 0);
    }
    const struct row *row = &rows[id];
    const char *value = "";
    if (!row->argument[0]) {
        if (equals) return cli_fail(CLI_USAGE, "%s takes no value", row->name);
    } else if (equals) {
        value = equals + 1;
    } else if (*i + 1 < argc) {
        value = argv[++*i];
    } else {
        return cli_fail(CLI_USAGE, "%s needs a value: %s %s", row->name, row->name, row->argument);
    }
    int code = check_choice(row, value);
    return code ? code : add(&out->given[id], value);
}

static int parse_all(struct cli_options *out, int argc, char **argv)
{
    int only_words = 0;
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i];
        int code;
        if (!only_words && strcmp(text, "--") == 0) {
            only_words = 1;
            continue;
        }
        if (only_words || text[0] != '-' || !text[1])
            code = add(&out->words, text);
        else
            code = parse_option(out, argc, argv, &i);
        if (code) return code;
    }
    if (cli_options_has(out, CLI_HELP)) return CLI_OK;
    const struct cli_command *command = out->command;
    if (out->words.n > command->max_words) {
        return cli_fail(CLI_USAGE, "unexpected '%s': the usage is eider %s %s",
                        out->words.at[command->max_words], command->name, command->usage);
    }
    if (out->words.n < command->min_words) {
        return cli_fail(CLI_USAGE, "something is missing: the usage is eider %s %s", command->name,
                        command->usage);
    }
    return CLI_OK;
}

int cli_options_parse(const struct cli_command *command, int argc, char **argv,
                      struct cli_options *out)
{
    memset(out, 0, sizeof *out);
    out->command = command;
    int code = parse_all(out, argc, argv);
    if (code) cli_options_release(out);
    return code;
}

void cli_options_release(struct cli_options *options)
{
    free(options->words.at);
    for (int i = 0; i < CLI_OPTION_COUNT; i++) free(options->given[i].at);
    memset(options, 0, sizeof *options);
}

int cli_options_has(const struct cli_options *options, enum cli_option id)
{
    return options->given[id].n > 0;
}

const char *cli_options_get(const struct cli_options *options, enum cli_option id)
{
    const struct cli_values *values = &options->given[id];
    return values->n ? values->at[values->n - 1] : NULL;
}

int cli_options_number(const struct cli_options *options, enum cli_option id, double min,
                       double otherwise, double *out)
{
    const char *text = cli_options_get(options, id);
    *out = otherwise;
    if (!text) return CLI_OK;
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= min)) {
        return cli_fail(CLI_USAGE, "%s: '%s' is not a number of at least %g", rows[id].name, text,
                        min);
    }
    *out = value;
    return CLI_OK;
}

void cli_options_help(const struct cli_command *command)
{
    printf("eider %s %s\n\n%s.\n", command->name, command->usage, command->summary);
    if (command->about[0]) printf("\n%s", command->about);
    printf("\nOptions:\n");
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        if (!takes(command, i)) continue;
        int width = printf("  %s %s", rows[i].name, rows[i].argument);
        printf("%*s%s\n", width < 30 ? 30 - width : 1, "", rows[i].help);
    }
    printf("\nExamples:\n%s", command->examples);
}
