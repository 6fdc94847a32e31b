/* operands.h -- the operands of a program, bound to --in, --scalar and --out.
 *
 * Invariant: after cli_operands_bind every operand has a type and a shape: an input its
 * source's, a scalar rank 0, an output the shape into which all inputs broadcast.
 */
#ifndef EIDER_TOOLS_OPERANDS_H
#define EIDER_TOOLS_OPERANDS_H

#include "array.h"
#include "session.h"

struct cli_operand {
    eider_operand info;
    struct cli_array host;
    void *device;           /* an input's or output's memory there; NULL until uploaded */
    const char *file;       /* an output's file, or NULL; options own it */
    unsigned char value[8]; /* a scalar's */
};

#define CLI_COLUMNS 4096

struct cli_operands {
    size_t n;
    struct cli_operand *at;
    eider_tensor *tensors; /* one per operand, for the library */
};

/* What an input without a source means.  It has the shape of the largest input with one, and
 * its type where that is a float; where it is declared so, one value for each row or column of
 * that. */
struct cli_operands_rule {
    int fill;             /* read and generate data, not only shapes */
    int64_t default_rows; /* of CLI_COLUMNS elements, where no input has a source; 0: an error */
    eider_dtype default_type;
    void (*generate)(size_t input, struct cli_array *array); /* NULL: normally distributed */
};

int cli_operands_bind(const struct cli_session *s, struct cli_operands_rule rule,
                      struct cli_operands *out);
void cli_operands_release(const struct cli_session *s, struct cli_operands *operands);

/* Allocates every input and output on the device, copies the inputs there and makes the
 * tensors point to them. */
int cli_operands_upload(const struct cli_session *s, struct cli_operands *operands);

/* Copies the outputs back into host memory, which it allocates. */
int cli_operands_download(const struct cli_session *s, struct cli_operands *operands);

/* Writes the outputs that have a file. */
int cli_operands_write(const struct cli_operands *operands);

#endif
