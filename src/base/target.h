/* target.h -- what code is generated for.
 *
 * Invariant: a target is a number and a suffix, or the CPU; it is never kept as text,
 * so that "sm_90" and "sm_90a" cannot be mixed up.
 */
#ifndef EIDER_BASE_TARGET_H
#define EIDER_BASE_TARGET_H

#include "fail.h"

#define EIDER_TARGET_TEXT_BYTES 16

struct eider_target {
    int32_t sm;  /* 80 ... 121; 0 is the CPU this process runs on */
    char suffix; /* 'a', 'f' or 0 */
};

/* Reads "sm_90", "sm_90a", "cpu".  Fails with EIDER_TARGET, naming the range. */
eider_status eider_target_parse(const char *text, struct eider_target *out);

/* Writes "sm_90a" or "cpu"; `buffer` has EIDER_TARGET_TEXT_BYTES bytes. */
void eider_target_print(struct eider_target target, char *buffer);

#endif
