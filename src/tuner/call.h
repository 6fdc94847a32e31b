/* call.h -- the call that is tuned for: its kernel, operands and what is fixed.
 *
 * Invariant: borrows from the request for as long as the call of eider_tune.
 */
#ifndef EIDER_TUNER_CALL_H
#define EIDER_TUNER_CALL_H

#include "expr.h"
#include "kernel.h"

struct eider_call {
    eider_context *ctx;
    eider_device *device;
    const eider_tune_request *request;
    const eider_request *kernel;
    const struct eider_graph *graph; /* NULL for a source */
    size_t n;                        /* operands */
    char name_of_unnamed[EIDER_OPERANDS_MAX][8];
    const char *names[EIDER_OPERANDS_MAX];
    eider_operand_kind kinds[EIDER_OPERANDS_MAX];
    struct eider_pairs fixed; /* the kernel request's config */
    struct eider_plan plan;   /* with the default rule, and what is fixed */
};

/* Checks the request.  Fails as eider_tune and eider_prepare say. */
eider_status eider_call_open(eider_device *device, const eider_tune_request *request,
                             struct eider_call *out);

/* Names for expressions; `config` may be NULL. */
struct eider_expr_scope eider_call_scope(const struct eider_call *call,
                                         const struct eider_pairs *config);

/* Which operands "x,y" names, as bits.  `what` is the member that says so. */
eider_status eider_call_operands(const struct eider_call *call, const char *what, const char *text,
                                 uint64_t *out);

/* The kernel request for a config: what prepare takes.  `texts` keeps what it points to;
 * eider_call_request_release frees it. */
struct eider_call_request {
    eider_request request;
    eider_source source;
    char config[EIDER_PAIRS_TEXT_BYTES];
    char *text; /* of a source, with its names replaced */
    eider_geometry geometry;
};
eider_status eider_call_request(const struct eider_call *call, const char *config,
                                struct eider_call_request *out);
void eider_call_request_release(const struct eider_call *call, struct eider_call_request *r);

/* The complete canonical config of a candidate: every parameter that a program's template
 * uses, and no other; the names of a source in alphabetical order.  Fails with EIDER_CONFIG when
 * it cannot work.
 * `buffer` has EIDER_PAIRS_TEXT_BYTES bytes. */
eider_status eider_call_complete(const struct eider_call *call, const struct eider_pairs *config,
                                 char *buffer);

/* The value of `math=` in a candidate of a program, or the request's. */
eider_math eider_call_math(const struct eider_call *call, const char *config);

#endif
