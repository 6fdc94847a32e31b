/* support_tuner.h -- what tests of the tuner share: a CPU with an operand or three, requests
 * that are quick, and folders that go away.
 */
#ifndef EIDER_TESTS_SUPPORT_TUNER_H
#define EIDER_TESTS_SUPPORT_TUNER_H

#include "eider/eider.h"

#define BENCH_ROWS 64
#define BENCH_COLUMNS 256

/* A context with the CPU, the program "out = silu(x) * y" and its operands. */
struct workbench {
    eider_context *ctx;
    eider_device *device;
    eider_program *program;
    float *x, *y, *out;
    int64_t shape[2];
    eider_tensor args[3];
    eider_request kernel;
    eider_tune_request request; /* of a small space; hot, no warm-up, 3 rounds, no files */
    char folder[64];            /* empty, made for the test */
    char log[4096];             /* what the library said */
};

void workbench_open(struct workbench *b);
void workbench_close(struct workbench *b);

/* Another context over the same folder, as another process would have. */
void workbench_reopen(struct workbench *b);

/* Makes the request keep its timings in the bench's folder. */
void workbench_remember(struct workbench *b);

/* Tunes and describes; the tuning is released. */
eider_status workbench_tune(struct workbench *b, eider_tune_summary *out);

/* The config of the choice, which must be. */
const char *workbench_choice(struct workbench *b);

#endif
