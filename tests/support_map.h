/* support_map.h -- kernels of a template on the CPU, without the runtime, and memory with
 * guard bands, for tests. */
#ifndef EIDER_TESTS_SUPPORT_MAP_H
#define EIDER_TESTS_SUPPORT_MAP_H

#include "codegen.h"
#include "machine.h"
#include "map.h"

extern const eider_allocator map_allocator;

/* What to build.  Zeroed: automatic config, for the CPU, math fast. */
struct map_request {
    const char *text; /* the program */
    const eider_tensor *args;
    struct eider_target target;
    const struct eider_machine *machine; /* NULL: the target's */
    const char *config;
    eider_math math;
    int any_layout, ftz, no_contract;
    int units;         /* of the device, for the default rule, ... */
    uint64_t l2_bytes; /* ... and its last cache */
};

struct map_kernel {
    struct eider_graph *graph;
    struct eider_layout layout;
    struct eider_config config;
    struct eider_codegen_result code; /* PTX, or an object */
    struct eider_cpu_image *image;    /* CPU only */
    eider_cpu_block_entry entry;
    uint32_t threads; /* of a block that run as fibers, by ... */
    eider_cpu_thread_entry thread_entry;
    struct eider_bound bound; /* of the last map_run */
};

/* Program to machine code, as eider_prepare does it. */
eider_status map_make(const struct map_request *request, struct map_kernel *out);
void map_release(struct map_kernel *k);

/* Binds and runs all blocks, last block first; those of which each thread is a fiber in order. */
eider_status map_run(struct map_kernel *k, const eider_tensor *args);

/* map_make, map_run, map_release; fails the test when anything fails. */
void map_once(const struct map_request *request);

#define MAP_FRESH 0x5C /* what memory is filled with */

/* `bytes` bytes whose address is a multiple of 64, plus `misalign`, between guard bands;
 * filled with MAP_FRESH.  map_free fails the test when a guard byte has changed. */
void *map_alloc(size_t bytes, size_t misalign);
void map_free(void *data);

/* One element as a double, and back (by the library's reference rounding). */
double map_get(eider_dtype type, const void *data, int64_t i);
void map_put(eider_dtype type, void *data, int64_t i, double value);

#endif
