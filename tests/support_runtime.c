/* support_runtime.c -- see support_runtime.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"

struct header {
    size_t size;
    _Alignas(max_align_t) char bytes[];
};

static void *resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    struct counting_allocator *state = user;
    struct header *old = ptr ? (struct header *)((char *)ptr - sizeof *old) : NULL;
    if (old && old->size != old_size) {
        fprintf(stderr, "a block of %zu bytes was said to have %zu\n", old->size, old_size);
        abort();
    }
    if (new_size == 0) {
        if (old) state->n_alive--;
        free(old);
        return NULL;
    }
    long call = atomic_fetch_add(&state->n_calls, 1) + 1;
    if (state->fail_at &&
        (call == state->fail_at || (state->fail_ever_after && call > state->fail_at)))
        return NULL;
    struct header *block = malloc(sizeof *block + new_size);
    if (!block) return NULL;
    block->size = new_size;
    if (old) memcpy(block->bytes, old->bytes, old_size < new_size ? old_size : new_size);
    if (!old) state->n_alive++;
    free(old);
    return block->bytes;
}

eider_allocator counting_allocator(struct counting_allocator *state)
{
    return (eider_allocator){resize, state};
}

eider_tensor tensor_of(void *data, eider_dtype type, int32_t rank, const int64_t *shape)
{
    return (eider_tensor){.data = data, .type = type, .rank = rank, .shape = shape};
}

void must_at(eider_status status, const char *call, const char *file, int line)
{
    if (status == EIDER_OK) return;
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, call, eider_status_name(status),
            eider_error());
    _fail(file, line);
}
