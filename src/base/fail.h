/* fail.h -- how an error is born and passed on.
 *
 * Invariant: every failure of the library is recorded by eider_fail, in the calling
 * thread's record, exactly once, where it is discovered; callers pass the status on.
 * Code that cleans up after a failure does not call eider_fail.
 * Not here: printing, aborting, jumping.
 */
#ifndef EIDER_BASE_FAIL_H
#define EIDER_BASE_FAIL_H

#include "eider/eider.h"

/* Records `status` and a message in the thread's error record, and returns `status`.
 * The message says what, which and the limit; it is cut at 8191 bytes. */
eider_status eider_fail(eider_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts a prefix, such as "compiling k for sm_90: ", before the message of the record. */
void eider_fail_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Records a message made elsewhere, such as in a worker process. */
eider_status eider_fail_text(eider_status status, const char *text);

/* For functions with nothing to release on the way out. */
#define EIDER_TRY(call)                    \
    do {                                   \
        eider_status try_ = (call);        \
        if (try_ != EIDER_OK) return try_; \
    } while (0)

#endif
