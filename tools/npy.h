/* npy.h -- NumPy's .npy files, versions 1 to 3.
 *
 * bf16 is stored as ml_dtypes stores it, '<V2'; e4m3 and e5m2, which have no spelling
 * that NumPy reads back, as '|V1'.  A reader takes '<V2' as bf16 and '<V1' as e4m3 unless
 * it is told the type.  Big-endian numbers and Fortran order are converted.
 */
#ifndef EIDER_TOOLS_NPY_H
#define EIDER_TOOLS_NPY_H

#include "array.h"

/* Reads `path`; `type` is an eider_dtype for files that do not tell theirs, or -1.
 * Caller owns out->data: cli_array_release. */
int cli_npy_read(const char *path, int type, struct cli_array *out);

int cli_npy_write(const char *path, const struct cli_array *array);

#endif
