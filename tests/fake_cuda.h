/* fake_cuda.h -- how a test steers the fake CUDA driver and asks what it saw.
 *
 * The driver is a library of its own, fake/libcuda.so.1; a test opens it and finds
 * `fake_cuda`.  All counts are of the whole process unless they say "thread".
 */
#ifndef EIDER_TESTS_FAKE_CUDA_H
#define EIDER_TESTS_FAKE_CUDA_H

#include <stdint.h>

#define FAKE_CUDA_PARAMS 8

/* What the last cuLaunchKernel was given. */
struct fake_cuda_launch {
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    uint64_t params[FAKE_CUDA_PARAMS]; /* 8 bytes of each of the first n_params */
};

struct fake_cuda {
    /* Forgets faults, counts and captures; two devices, driver 13.0, sm_90. */
    void (*reset)(void);
    /* The nth call of `member` (as in cuda_api.def; NULL: of any) fails with `result`. */
    void (*break_call)(const char *member, int nth, int result);
    /* Whether that call has happened. */
    int (*has_failed)(void);
    int (*calls)(const char *member);
    /* Of memory for a launch, kernels, and memory given back, since the last reset or break_call:
     * "akkf". */
    const char *(*order)(void);
    /* The devices have no memory pools. */
    void (*take_pools_away)(void);
    /* Name of row `i`, or NULL. */
    const char *(*member)(int i);
    /* Modules, streams, events, memory and retained contexts that were not given back. */
    int (*alive)(void);
    /* Contexts on this thread's stack, and its capture mode. */
    int (*depth)(void);
    int (*mode)(void);
    const struct fake_cuda_launch *(*last_launch)(void);
    void (*set_params)(int n); /* how many parameters launches have */
    /* What attribute `which`, below 32, was set to last, of any function; 0: it was not. */
    int (*attribute)(int which);

    /* A capture of `stream` in global mode; `end` gives whether it stayed valid. */
    void (*begin_capture)(void *stream);
    int (*end_capture)(void);
    /* From now on every call fails with CUDA_ERROR_DEINITIALIZED. */
    void (*deinitialise)(void);
    /* A CUcontext of the caller on device 1, and making it current on this thread. */
    void *(*context)(void);
    void (*set_current)(void *context);
    void (*set_driver)(int version, int compute_capability);
};

#endif
