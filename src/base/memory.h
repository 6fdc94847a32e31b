/* memory.h -- host memory through the caller's allocator, arenas and growing text.
 *
 * Invariant: every block carries its size, so the allocator is always told the exact
 * old size.  All functions return NULL or EIDER_OOM when memory is exhausted, with the
 * error recorded; none aborts.
 */
#ifndef EIDER_BASE_MEMORY_H
#define EIDER_BASE_MEMORY_H

#include <stdarg.h>

#include "fail.h"

/* The allocator that a zeroed eider_allocator stands for. */
eider_allocator eider_memory_default(eider_allocator given);

/* Uninitialised memory, aligned for any type; NULL (recorded as EIDER_OOM) on failure. */
void *eider_mem_alloc(const eider_allocator *a, size_t bytes);
/* The same, all bytes 0. */
void *eider_mem_zero(const eider_allocator *a, size_t bytes);
/* Grows or shrinks; ptr may be NULL; on failure NULL and `ptr` is untouched. */
void *eider_mem_resize(const eider_allocator *a, void *ptr, size_t bytes);
void eider_mem_free(const eider_allocator *a, void *ptr);
char *eider_mem_strdup(const eider_allocator *a, const char *text);

/* Memory with one lifetime: many allocations, one release.  Blocks never move. */
struct eider_arena {
    eider_allocator allocator;
    struct eider_arena_chunk *chunks; /* newest first */
    size_t used_bytes;
    size_t limit_bytes; /* then EIDER_TOO_LARGE */
};

void eider_arena_init(struct eider_arena *arena, const eider_allocator *a, size_t limit_bytes);
/* Zeroed; NULL with the error recorded. */
void *eider_arena_alloc(struct eider_arena *arena, size_t bytes);
/* Copies `length` bytes and adds a NUL. */
char *eider_arena_text(struct eider_arena *arena, const char *text, size_t length);
void eider_arena_release(struct eider_arena *arena);

/* Text that grows.  The first failure sticks in `status`; later calls do nothing. */
struct eider_text {
    eider_allocator allocator;
    char *data; /* NUL-terminated once anything was added; else NULL */
    size_t size;
    size_t room;
    eider_status status;
};

void eider_text_init(struct eider_text *text, const eider_allocator *a);
void eider_text_add(struct eider_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void eider_text_bytes(struct eider_text *text, const void *bytes, size_t size);
/* Moves the text out; the caller frees it with eider_mem_free.  "" when empty. */
eider_status eider_text_take(struct eider_text *text, char **out, size_t *out_size);
void eider_text_release(struct eider_text *text);

/* Bytes with an owner, such as PTX (NUL-terminated beyond `size`) or a cubin. */
struct eider_blob {
    void *data;
    size_t size;
};

eider_status eider_blob_copy(const eider_allocator *a, const void *data, size_t size,
                             struct eider_blob *out);
void eider_blob_release(const eider_allocator *a, struct eider_blob *blob);

#endif
