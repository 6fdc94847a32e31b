/* tuner.h -- what the tunings of a context share: timings in memory, and turns.
 *
 * Invariants: `lock` is held for a whole tuning, so that timing is alone in this process and
 * two threads that want the same tune it once; `known` has what this process measured and
 * what it read for keys that it was asked for.
 */
#ifndef EIDER_TUNER_TUNER_H
#define EIDER_TUNER_TUNER_H

#include <pthread.h>

#include "call.h"
#include "records.h"

struct eider_tuner {
    eider_context *ctx;
    pthread_mutex_t lock;
    struct eider_records known;
    /* What the environment says. */
    int uses_files;        /* EIDER_CACHE_AUTOTUNING is not off */
    int forces;            /* EIDER_FORCE_CACHE_UPDATE */
    int tells;             /* EIDER_PRINT_AUTOTUNING: a note to the log for every config */
    char place[4096];      /* the default folder; "" where there is none */
    int told_io, told_bad; /* one warning for each cause */
};

/* The context's tuner, made when it is first asked for. */
eider_status eider_tuner_get(eider_context *ctx, struct eider_tuner **out);

/* The file of timings in `records`, or in the default folder; NULL where no files are used.
 * `buffer` has 4096 bytes. */
const char *eider_tuner_file(struct eider_tuner *tuner, const char *records, char *buffer);

/* Adds the lines of a file about `key` to `known`.  An unreadable file and malformed lines
 * cost a warning. */
eider_status eider_tuner_read(struct eider_tuner *tuner, const char *file, const char *key);

/* Adds lines to the file or, without one and where it cannot be written, which costs a
 * warning, to `known`. */
eider_status eider_tuner_publish(struct eider_tuner *tuner, const char *file, const char *lines,
                                 size_t size);

#endif
