/* trigger.h -- what names a choice: the key of a tuning.
 *
 * Invariant: the key's text has one ingredient per line; lines of triggers are sorted and
 * each is there once, so neither the order nor the spelling of triggers changes a key.  It
 * has everything that the machine code depends on but the config (the kernel's manifest with
 * the config left open), the device, how it is timed, and what the triggers give; never an
 * address, a path, a time or a process.
 */
#ifndef EIDER_TUNER_TRIGGER_H
#define EIDER_TUNER_TRIGGER_H

#include "call.h"

#define EIDER_KEY_BYTES 33

struct eider_key {
    char *text; /* eider_trigger_release frees it */
    char digits[EIDER_KEY_BYTES];
};

/* Fails with EIDER_PARSE for malformed triggers. */
eider_status eider_trigger_key(const struct eider_call *call, struct eider_key *out);
void eider_trigger_release(const struct eider_call *call, struct eider_key *key);

/* The lines of the triggers alone, sorted.  Caller frees *out with eider_mem_free. */
eider_status eider_trigger_lines(const struct eider_call *call, char **out);

#endif
