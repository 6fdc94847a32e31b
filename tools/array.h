/* array.h -- a row-major tensor in host memory, and work on many elements by threads.
 *
 * Invariant: n is the product of the extents and bytes is n times the element's size;
 * both are checked against overflow and the machine's memory before anything is
 * allocated.  `data` is NULL for an array that is only described.
 */
#ifndef EIDER_TOOLS_ARRAY_H
#define EIDER_TOOLS_ARRAY_H

#include "cli.h"

struct cli_array {
    eider_dtype type;
    int32_t rank;
    int64_t shape[EIDER_RANK_MAX];
    size_t n, bytes;
    void *data;
};

/* Sets n and bytes from type, rank and shape; `what` names the array in the error. */
int cli_array_size(struct cli_array *array, const char *what);
/* The same, then allocates `data`, uninitialised. */
int cli_array_allocate(struct cli_array *array, const char *what);
void cli_array_release(struct cli_array *array);

/* Writes "bf16[4096,14336]". */
#define CLI_SHAPE_BYTES 256
const char *cli_array_shape(const struct cli_array *array, char text[CLI_SHAPE_BYTES]);

/* Calls body(arg, begin, end) for parts of [0, n) from many threads; the parts are the
 * same whatever the number of threads. */
#define CLI_PART ((size_t)1 << 16)
void cli_array_parallel(size_t n, void (*body)(void *arg, size_t begin, size_t end), void *arg);

#endif
