/* say.h -- everything the program says about itself: errors, warnings, progress, JSON.
 *
 * Invariant: an error is one line "eider: error: <what>" on standard error, then detail
 * lines, and is printed where it is discovered, exactly once.
 */
#ifndef EIDER_TOOLS_SAY_H
#define EIDER_TOOLS_SAY_H

#include <jansson.h>

#include "cli.h"

/* Reports an error and returns `code`. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reports a failed call of the library, with its detail.  Returns CLI_LIBRARY. */
int cli_fail_library(eider_status status);
/* The same for a call about a file of the command line.  Returns CLI_IO where it is to blame. */
int cli_fail_file(eider_status status);

/* Reports that `bytes` of memory could not be had.  Returns CLI_LIBRARY. */
int cli_fail_memory(size_t bytes);

/* An eider_log: prints errors and warnings of the library, and notes on tunings. */
void cli_log(void *user, int level, const char *line);

/* A line that the next one replaces; only when standard error is a terminal. */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_progress_end(void);

/* Prints and releases `value`; NULL is out of memory. */
int cli_print_json(json_t *value);

/* A number; infinities and NaN, which JSON lacks, become text. */
json_t *cli_json_number(double value);

/* Flushes standard output.  A reader that went away is no error; a full disk is. */
int cli_finish_stdout(void);
/* Nonzero once standard output cannot be written, so that long work can stop. */
int cli_stdout_broken(void);

/* "did you mean": offer every known name, then take the text. */
struct cli_suggestion {
    const char *wanted;
    size_t length;
    size_t distance;
    const char *best;
    char text[96];
};

struct cli_suggestion cli_suggestion_start(const char *wanted, size_t length);
void cli_suggestion_offer(struct cli_suggestion *s, const char *name);
/* "; did you mean 'x'?" or "". */
const char *cli_suggestion_text(struct cli_suggestion *s);

#endif
