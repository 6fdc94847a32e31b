/* safetensors.h -- named tensors in one .safetensors file.
 *
 * Reading checks what the format demands: a header of at most 100 MB, offsets that lie
 * one after the other without gap or overlap and end where the file ends, sizes that fit
 * shapes.
 */
#ifndef EIDER_TOOLS_SAFETENSORS_H
#define EIDER_TOOLS_SAFETENSORS_H

#include "array.h"

/* Reads the tensor `name`; "" is the only one there is.  `type` is the eider_dtype that
 * it must have, or -1.  Caller owns out->data: cli_array_release. */
int cli_safetensors_read(const char *path, const char *name, int type, struct cli_array *out);

/* Writes `n` tensors.  Names differ. */
int cli_safetensors_write(const char *path, const char *const *names,
                          const struct cli_array *const *arrays, size_t n);

#endif
