/* source.h -- where an operand's values come from, in one word.
 *
 *   FILE.npy
 *   FILE.safetensors[:NAME]
 *   TYPE[EXTENT,...][:GENERATOR[@SEED]]   a generator is randn, uniform, arange or zeros
 *
 * Invariant: a generated value depends on the seed and its position alone.
 */
#ifndef EIDER_TOOLS_SOURCE_H
#define EIDER_TOOLS_SOURCE_H

#include "array.h"

/* Reads the file or shape.  `name` is the operand, for messages and, hashed, the default
 * seed.  `type` is the eider_dtype that is expected, or -1.  With `fill` 0 a generated
 * array gets no data.  Caller owns out->data: cli_array_release. */
int cli_source_read(const char *name, const char *text, int type, int fill, struct cli_array *out);

/* Fills an allocated array from the named generator, such as "randn@7". */
int cli_source_generate(const char *name, const char *generator, struct cli_array *array);

/* 64 random bits that depend on the two numbers alone. */
uint64_t cli_source_random(uint64_t seed, uint64_t position);
/* A standard normal number, likewise. */
double cli_source_normal(uint64_t seed, uint64_t position);

#endif
