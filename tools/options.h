/* options.h -- the command line, taken apart by the table in options.def.
 *
 * Invariant: after cli_options_parse succeeded, only options that the command takes were
 * given, each with a value of its choices, and the number of words is one it accepts.
 */
#ifndef EIDER_TOOLS_OPTIONS_H
#define EIDER_TOOLS_OPTIONS_H

#include "cli.h"

enum cli_option {
#define OPTION(id, name, argument, choices, help) CLI_##id,
#include "options.def"
    CLI_OPTION_COUNT
};

#define CLI_USES(id) (UINT64_C(1) << CLI_##id)
#define CLI_USES_COMMON (CLI_USES(HELP) | CLI_USES(JSON))
#define CLI_USES_KERNEL                                                                       \
    (CLI_USES(DEVICE) | CLI_USES(MATH) | CLI_USES(FTZ) | CLI_USES(CONTRACT) | CLI_USES(SET) | \
     CLI_USES(CHECKED) | CLI_USES(ASSEMBLER) | CLI_USES(GRAD) | CLI_USES(FORWARD) |           \
     CLI_USES(PROGRAM_PART))
#define CLI_USES_OPERANDS (CLI_USES(IN) | CLI_USES(SCALAR) | CLI_USES(OUT))

struct cli_values {
    const char **at;
    int n;
};

struct cli_options {
    const struct cli_command *command;
    struct cli_values words;                   /* what is no option, in order */
    struct cli_values given[CLI_OPTION_COUNT]; /* "" for a flag */
};

/* Reads the arguments after the command's name.  Strings are borrowed from argv. */
int cli_options_parse(const struct cli_command *command, int argc, char **argv,
                      struct cli_options *out);
void cli_options_release(struct cli_options *options);

int cli_options_has(const struct cli_options *options, enum cli_option id);
/* The last value given, or NULL. */
const char *cli_options_get(const struct cli_options *options, enum cli_option id);
/* The last value as a number of at least `min`; `otherwise` where there is none. */
int cli_options_number(const struct cli_options *options, enum cli_option id, double min,
                       double otherwise, double *out);

/* The help of one command, on standard output. */
void cli_options_help(const struct cli_command *command);

#endif
