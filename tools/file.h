/* file.h -- whole files, with errors that name them.
 *
 * Invariant: a file that was not written completely is removed again, unless it is
 * something other than a regular file.
 */
#ifndef EIDER_TOOLS_FILE_H
#define EIDER_TOOLS_FILE_H

#include <stdio.h>

#include "cli.h"

/* Opens for reading; *out_size is the size of the file. */
int cli_file_open(const char *path, FILE **out, uint64_t *out_size);
/* Reads exactly `size` bytes from where the file stands. */
int cli_file_read(const char *path, FILE *file, void *data, size_t size);

/* The text of a file with a NUL behind it.  Caller owns *out: free. */
int cli_file_text(const char *path, char **out);

/* Pieces that are written one after the other. */
struct cli_piece {
    const void *data;
    size_t size;
};

/* Writes the pieces to `path`, or to standard output when it is "-". */
int cli_file_write(const char *path, const struct cli_piece *pieces, size_t n);

#endif
