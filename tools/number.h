/* number.h -- elements of every type of the language as doubles, and their ulp.
 *
 * Invariant: cli_number_get is exact for every type but i64 beyond 2^53, and
 * cli_number_put rounds once, to nearest even; a finite number beyond the range becomes
 * an infinity, in e4m3 and e5m2 the largest finite number (as `cast` does).
 */
#ifndef EIDER_TOOLS_NUMBER_H
#define EIDER_TOOLS_NUMBER_H

#include "cli.h"

double cli_number_get(eider_dtype type, const void *data, size_t i);
void cli_number_put(eider_dtype type, void *data, size_t i, double value);

/* NaN without a sign, so that it prints as "nan". */
double cli_number_plain(double value);

int cli_number_is_float(eider_dtype type);

/* Distance of neighbouring values of a floating type at `value`, which is finite. */
double cli_number_ulp(eider_dtype type, double value);
/* The largest finite value; what rounds beyond it is an infinity. */
double cli_number_max(eider_dtype type);
/* The least normal value. */
double cli_number_min_normal(eider_dtype type);

/* The type that holds values of both: equal types stay, 16-bit and 8-bit floats that
 * differ become f32, f64 wins over f32, floats over integers, i64 over i32 over bool. */
eider_dtype cli_number_promote(eider_dtype a, eider_dtype b);

#endif
