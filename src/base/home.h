/* home.h -- what the environment says: switches, and where eider may remember things.
 *
 * One rule for every variable: "", "0" and "false" are off.  Variables are read when a
 * context is created, so that a program may set them before.
 * Not here: creating or checking folders; see disk.h.
 */
#ifndef EIDER_BASE_HOME_H
#define EIDER_BASE_HOME_H

#include <stddef.h>

#define EIDER_HOME_BYTES 4096

enum eider_home {
    EIDER_HOME_FOUND,
    EIDER_HOME_OFF, /* switched off by a variable */
    EIDER_HOME_NONE /* no variable names a place */
};

/* Nonzero when the variable is set and not off. */
int eider_home_switch(const char *variable);

/* The variable's value; NULL when it is not set or off. */
const char *eider_home_setting(const char *variable);

/* A number of bytes or things, with K, M, G or T for powers of 1024; UINT64_MAX, no limit,
 * when off; `otherwise` when the variable is not set.  Returns 0 when it is no number. */
int eider_home_limit(const char *variable, unsigned long long otherwise, unsigned long long *out);

/* Writes the place of `below` into `out` of EIDER_HOME_BYTES bytes: $EIDER_HOME/below, else
 * $XDG_CACHE_HOME/eider/below, else $HOME/.cache/eider/below.  When `variable` (may be
 * NULL) is set it decides alone, and names the place itself.  A relative EIDER_HOME or
 * `variable` counts from the current folder; XDG_CACHE_HOME and HOME must be absolute. */
enum eider_home eider_home_find(const char *variable, const char *below, char *out);

#endif
