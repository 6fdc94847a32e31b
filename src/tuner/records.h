/* records.h -- timings as lines of JSON.
 *
 * A record is one line, an object with the members below, printed compactly with its names
 * in alphabetical order, so that equal records are equal bytes:
 *   schema 1, key (32 digits), epoch, and kind, which is one of
 *   "key"     ingredients: the lines of the key's text
 *   "timing"  config, outcome, reason, samples_ns, clock_khz
 *   "done"    space (hash of what was searched), config (the choice), end, budget_s, n
 * Invariant: a collection is a set of lines; the union of two does not depend on their order
 * and adding a line twice changes nothing.  Of a key, only the lines of its highest epoch
 * count: that is how a forced update replaces what was there before.
 * Lines that are malformed or of another schema are skipped and counted.
 */
#ifndef EIDER_TUNER_RECORDS_H
#define EIDER_TUNER_RECORDS_H

#include "space.h"
#include "trigger.h"

#define EIDER_RECORDS_SCHEMA 1

enum eider_record_kind { EIDER_RECORD_KEY, EIDER_RECORD_TIMING, EIDER_RECORD_DONE };

struct eider_record {
    enum eider_record_kind kind;
    const char *line; /* without its newline */
    const char *key;
    int64_t epoch;
    size_t order; /* of its arrival: its place in the file */
    const char *config;
    /* of a timing */
    eider_tune_outcome outcome;
    const char *reason;
    size_t n_samples;
    double *samples;
    int32_t *clocks;
    /* of a done */
    const char *space;
    int is_cut; /* the budget ended it */
    double budget_s;
    size_t n_timed;
};

struct eider_records {
    struct eider_arena arena;
    struct eider_record *at; /* sorted by key, then line, each once, after eider_records_sort */
    size_t n, room;
    size_t n_added; /* ever */
    size_t n_bad;   /* lines that were skipped */
};

void eider_records_init(struct eider_records *records, const eider_allocator *a);
void eider_records_release(struct eider_records *records);

/* Adds the lines of a text; with `key`, those of that key alone. */
eider_status eider_records_add(struct eider_records *records, const char *text, size_t size,
                               const char *key);
/* The lines of a file; a file that is not there is empty.  Fails with EIDER_IO. */
eider_status eider_records_read(struct eider_records *records, const char *path, const char *key);
void eider_records_sort(struct eider_records *records);

/* The records of a key at its highest epoch, as a range; *out_epoch is -1 when there are none.
 * Needs: sorted. */
void eider_records_find(const struct eider_records *records, const char *key, int64_t *out_epoch,
                        size_t *out_from, size_t *out_to);

/* Writes all, sorted, through a temporary file that is renamed.  Fails with EIDER_IO. */
eider_status eider_records_write(const struct eider_records *records, const char *path);

/* Makes the folder of a file, and those above it.  Fails with EIDER_IO. */
eider_status eider_records_make_folder(const char *path);

/* Adds lines to a file with one write, so that lines of two processes never mix; makes the
 * file and its folder.  Fails with EIDER_IO. */
eider_status eider_records_append(const char *path, const char *lines, size_t size);

/* ---- Lines ------------------------------------------------------------------ */

void eider_records_key_line(struct eider_text *out, const struct eider_key *key, int64_t epoch);
/* What was measured of a candidate in this call. */
void eider_records_timing_line(struct eider_text *out, const struct eider_key *key, int64_t epoch,
                               const struct eider_candidate *c);
void eider_records_done_line(struct eider_text *out, const struct eider_key *key, int64_t epoch,
                             const char *space, const char *config, int is_cut, double budget_s,
                             size_t n_timed);

#endif
