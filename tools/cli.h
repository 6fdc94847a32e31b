/* cli.h -- what a command is, and how the program ends.
 *
 * Invariant: every function that can fail returns one of enum cli_exit and has reported
 * the failure (say.h) before it returns; CLI_OK is 0, so `if (code) return code;` passes
 * it on.  The tools see eider.h and nothing else of the library.
 */
#ifndef EIDER_TOOLS_CLI_H
#define EIDER_TOOLS_CLI_H

#include "eider/eider.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,  /* a check or expectation failed */
    CLI_USAGE = 2,   /* the command line is wrong */
    CLI_LIBRARY = 3, /* the library reported an error */
    CLI_IO = 4       /* a file could not be read or written, or is malformed */
};

struct cli_options;

/* A row of the command table in eider.c. */
struct cli_command {
    const char *name;
    const char *summary;  /* one line */
    const char *usage;    /* what follows the name */
    const char *about;    /* paragraphs for --help; may be "" */
    const char *examples; /* lines for --help */
    uint64_t options;     /* CLI_USES(...) of every option it takes */
    int min_words, max_words;
    int (*run)(const struct cli_options *options);
};

extern const struct cli_command cli_cmd_list, cli_cmd_emit, cli_cmd_run, cli_cmd_check,
    cli_cmd_bench, cli_cmd_sass, cli_cmd_tune, cli_cmd_cache, cli_cmd_doctor;

#endif
