/* scratch.h -- the operands on which candidates run.
 *
 * Invariant: nothing that a candidate writes is the caller's.  Every operand that may be
 * written is a block of our own, with guard bands around it; an input of a program that no
 * output shares is the caller's memory, since a template only reads its inputs.  Blocks lie
 * at addresses with the caller's alignment.
 */
#ifndef EIDER_TUNER_SCRATCH_H
#define EIDER_TUNER_SCRATCH_H

#include "call.h"
#include "rounding.h"

#define EIDER_GUARD_BYTES 4096

/* What happens to an operand before a run. */
enum eider_scratch_role {
    EIDER_SCRATCH_READ,    /* nothing: nobody writes it */
    EIDER_SCRATCH_OUTPUT,  /* poison before a check */
    EIDER_SCRATCH_RESTORE, /* put back before every run */
    EIDER_SCRATCH_RESET    /* zeroed before every run, or put back where `resets` says no */
};

struct eider_scratch_operand {
    enum eider_scratch_role role;
    int is_source_input; /* must not change, unless it is restored or zeroed */
    char *block;         /* guard, span, guard; NULL: the caller's memory, or a scalar */
    char *low;           /* of the span */
    size_t span;
    char *guard;                    /* what its guard bands must hold */
    const char *image;              /* what is put back; the caller's memory, or `made` */
    void *made;                     /* values that were made up, or NULL */
    void *wanted;                   /* what the reference left in the span */
    struct eider_rounding rounding; /* how far others may be from it */
};

struct eider_scratch {
    const struct eider_call *call;
    void *stream;
    size_t n;
    eider_tensor args[EIDER_OPERANDS_MAX];
    struct eider_scratch_operand at[EIDER_OPERANDS_MAX];
    void *guards;
    void *flush;
    size_t flush_bytes;
    unsigned char n_flushes; /* so that each one writes something else */
};

/* Fails with EIDER_OOM where the device has no room for it. */
eider_status eider_scratch_open(const struct eider_call *call, struct eider_scratch *out);
void eider_scratch_close(struct eider_scratch *s);

/* Puts operands in the state in which a run finds them, and sets every byte of the outputs to
 * `poison`, if that is not negative. */
eider_status eider_scratch_reset(struct eider_scratch *s, const char *config, int poison);

/* Overwrites the L2 cache. */
eider_status eider_scratch_flush(struct eider_scratch *s);

/* Where the first and last byte of a tensor lie, from the element with all indices 0: bytes
 * before it, and bytes from there to the end. */
void eider_scratch_span(const eider_tensor *t, size_t *out_before, size_t *out_span);

#endif
