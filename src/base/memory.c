/* memory.c -- see memory.h.
 *
 * Layout of a block: a 16-byte header with its size, then the caller's bytes.
 */
#include "memory.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 16
#define CHUNK_BYTES 8192

_Static_assert(HEADER_BYTES >= sizeof(size_t) && HEADER_BYTES % alignof(max_align_t) == 0,
               "the caller's bytes stay aligned behind the header");

static void *resize_malloc(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_size);
}

eider_allocator eider_memory_default(eider_allocator given)
{
    return given.resize ? given : (eider_allocator){resize_malloc, NULL};
}

static size_t size_of(const void *ptr)
{
    size_t size;
    memcpy(&size, (const char *)ptr - HEADER_BYTES, sizeof size);
    return size;
}

void *eider_mem_resize(const eider_allocator *a, void *ptr, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        eider_fail(EIDER_OOM, "out of memory: %zu bytes asked for", bytes);
        return NULL;
    }
    char *old = ptr ? (char *)ptr - HEADER_BYTES : NULL;
    size_t old_bytes = ptr ? size_of(ptr) + HEADER_BYTES : 0;
    char *block = a->resize(a->user, old, old_bytes, bytes + HEADER_BYTES);
    if (!block) {
        eider_fail(EIDER_OOM, "out of memory: %zu bytes asked for", bytes);
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    return block + HEADER_BYTES;
}

void *eider_mem_alloc(const eider_allocator *a, size_t bytes)
{
    return eider_mem_resize(a, NULL, bytes);
}

void *eider_mem_zero(const eider_allocator *a, size_t bytes)
{
    void *ptr = eider_mem_alloc(a, bytes);
    if (ptr) memset(ptr, 0, bytes);
    return ptr;
}

void eider_mem_free(const eider_allocator *a, void *ptr)
{
    if (ptr) a->resize(a->user, (char *)ptr - HEADER_BYTES, size_of(ptr) + HEADER_BYTES, 0);
}

char *eider_mem_strdup(const eider_allocator *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = eider_mem_alloc(a, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

/* ---- Arena -------------------------------------------------------------- */

struct eider_arena_chunk {
    struct eider_arena_chunk *next;
    size_t used, room;
    alignas(max_align_t) char bytes[];
};

void eider_arena_init(struct eider_arena *arena, const eider_allocator *a, size_t limit_bytes)
{
    *arena = (struct eider_arena){.allocator = *a, .limit_bytes = limit_bytes};
}

void *eider_arena_alloc(struct eider_arena *arena, size_t bytes)
{
    size_t size = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (size < bytes || size > arena->limit_bytes - arena->used_bytes) {
        eider_fail(EIDER_TOO_LARGE, "more than %zu bytes needed in one compilation",
                   arena->limit_bytes);
        return NULL;
    }
    struct eider_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->room - chunk->used < size) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        chunk = eider_mem_alloc(&arena->allocator, sizeof *chunk + room);
        if (!chunk) return NULL;
        *chunk = (struct eider_arena_chunk){.next = arena->chunks, .room = room};
        arena->chunks = chunk;
    }
    void *ptr = chunk->bytes + chunk->used;
    chunk->used += size;
    arena->used_bytes += size;
    memset(ptr, 0, size);
    return ptr;
}

char *eider_arena_text(struct eider_arena *arena, const char *text, size_t length)
{
    char *copy = eider_arena_alloc(arena, length + 1);
    if (copy) memcpy(copy, text, length);
    return copy;
}

void eider_arena_release(struct eider_arena *arena)
{
    while (arena->chunks) {
        struct eider_arena_chunk *next = arena->chunks->next;
        eider_mem_free(&arena->allocator, arena->chunks);
        arena->chunks = next;
    }
    arena->used_bytes = 0;
}

/* ---- Growing text ------------------------------------------------------- */

void eider_text_init(struct eider_text *text, const eider_allocator *a)
{
    *text = (struct eider_text){.allocator = *a};
}

static int make_room(struct eider_text *text, size_t more)
{
    if (text->status != EIDER_OK) return 0;
    size_t need = text->size + more + 1;
    if (need <= text->room) return 1;
    size_t room = need > 2 * text->room ? need : 2 * text->room;
    if (room < 256) room = 256;
    char *data = eider_mem_resize(&text->allocator, text->data, room);
    if (!data) {
        text->status = EIDER_OOM;
        return 0;
    }
    text->data = data;
    text->room = room;
    return 1;
}

void eider_text_bytes(struct eider_text *text, const void *bytes, size_t size)
{
    if (!make_room(text, size)) return;
    if (size) memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = '\0';
}

void eider_text_add(struct eider_text *text, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length >= 0 && make_room(text, (size_t)length)) {
        vsnprintf(text->data + text->size, (size_t)length + 1, format, again);
        text->size += (size_t)length;
    }
    va_end(again);
}

eider_status eider_text_take(struct eider_text *text, char **out, size_t *out_size)
{
    if (!text->data) eider_text_bytes(text, "", 0);
    if (text->status != EIDER_OK) {
        eider_text_release(text);
        return EIDER_OOM;
    }
    *out = text->data;
    if (out_size) *out_size = text->size;
    text->data = NULL;
    text->size = text->room = 0;
    return EIDER_OK;
}

void eider_text_release(struct eider_text *text)
{
    eider_mem_free(&text->allocator, text->data);
    text->data = NULL;
    text->size = text->room = 0;
}

/* ---- Blob --------------------------------------------------------------- */

eider_status eider_blob_copy(const eider_allocator *a, const void *data, size_t size,
                             struct eider_blob *out)
{
    char *copy = eider_mem_alloc(a, size + 1);
    if (!copy) return EIDER_OOM;
    if (size) memcpy(copy, data, size);
    copy[size] = '\0';
    *out = (struct eider_blob){copy, size};
    return EIDER_OK;
}

void eider_blob_release(const eider_allocator *a, struct eider_blob *blob)
{
    eider_mem_free(a, blob->data);
    *blob = (struct eider_blob){0};
}
