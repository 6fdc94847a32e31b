/* element.h -- elements of every storage type as doubles, on the host.
 *
 * Invariant: reading is exact for every type but i64 beyond 2^53.
 */
#ifndef EIDER_TUNER_ELEMENT_H
#define EIDER_TUNER_ELEMENT_H

#include "memory.h"

double eider_element_get(eider_dtype type, const void *data, size_t i);

/* Fills `n` elements with made-up values: floats between -4 and 4, integers between -100 and
 * 100, 0 and 1 for bool.  The same for the same `seed`.  With `is_wide` one float in 16 is up
 * to 128, beyond which exp overflows in f32. */
void eider_element_make(eider_dtype type, void *data, size_t n, uint64_t seed, int is_wide);

/* What divides the address: a power of two up to 16; 16 for NULL. */
int eider_element_align(const void *data);

#endif
