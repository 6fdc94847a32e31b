/* sass_report.h -- machine code as `eider sass` shows it.
 *
 *   sass_input.c  a word of the command line to a report
 *   sass_key.c    the kernel of a key
 *   sass_text.c   the report for a terminal
 *   sass_json.c   the report as JSON (docs/SASS.md has the schema)
 *   sass_html.c   the report as a page
 *
 * Invariant: an input owns what it opened until cli_sass_close.
 */
#ifndef EIDER_TOOLS_SASS_H
#define EIDER_TOOLS_SASS_H

#include <jansson.h>

#include "session.h"

struct cli_sass_input {
    const char *word; /* as given */
    struct cli_session session;
    eider_kernel *kernel; /* NULL for a cubin */
    eider_kernel_info info;
    char *file;               /* the text of a file */
    char *target, *assembler; /* of "+SETTINGS"; NULL: the options' */
    eider_sass *sass;
    eider_sass_summary summary;
    double measured_gbytes_per_s; /* 0: not measured */
};

/* Opens `word`: a program, @FILE, a .ll, .bc, .ptx or .cubin file, or the key of a kernel on
 * disk.  "+math=fast,vec=4" is `base` with other settings; NULL where that is no input. */
int cli_sass_open(const struct cli_options *options, const char *word, const char *base,
                  struct cli_sass_input *out);
void cli_sass_close(struct cli_sass_input *input);

/* For these two files: settings such as "math=fast,vec=4", and the options of a report. */
int cli_sass_set(struct cli_sass_input *in, const char *settings);
int cli_sass_options(const struct cli_sass_input *in, eider_sass_options *out);

/* Opens the kernel of a key; with `settings` one that differs from it in these. */
int cli_sass_is_key(const char *word);
int cli_sass_open_key(struct cli_sass_input *in, const char *key, const char *settings);

/* "1", "0.25", "1.5e-05". */
#define CLI_SASS_NUMBER_BYTES 32
const char *cli_sass_number(double value, char text[CLI_SASS_NUMBER_BYTES]);

/* "[B--2---:R-:W1:Y:S04]", as is usual: wait mask, read and write barrier, yield, stall. */
#define CLI_SASS_CONTROL_BYTES 32
const char *cli_sass_control(const eider_sass_instruction *i, char text[CLI_SASS_CONTROL_BYTES]);

int cli_sass_print(const struct cli_sass_input *input, const char *listing);
int cli_sass_print_diff(const struct cli_sass_input *before, const struct cli_sass_input *after);

/* New references; NULL when memory is exhausted. */
json_t *cli_sass_json(const struct cli_sass_input *input);
json_t *cli_sass_json_diff(const struct cli_sass_input *before, const struct cli_sass_input *after);

int cli_sass_write_page(const struct cli_sass_input *input, const char *path);

#endif
