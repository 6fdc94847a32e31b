/* array.c -- host tensors, and threads over their elements.
 *
 * Not here: what elements mean (number.h), files (npy.h, safetensors.h).
 */
#include "array.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "say.h"

int cli_array_size(struct cli_array *array, const char *what)
{
    size_t n = 1, bytes, width = eider_dtype_size(array->type);
    int overflow = 0, empty = 0;
    for (int32_t d = 0; d < array->rank; d++) {
        if (array->shape[d] < 0) {
            return cli_fail(CLI_USAGE, "%s: extent %lld is negative", what,
                            (long long)array->shape[d]);
        }
        if (array->shape[d] == 0) empty = 1;
        overflow |= __builtin_mul_overflow(n, (size_t)array->shape[d], &n);
    }
    if (empty)
        n = 0;
    else if (overflow)
        n = SIZE_MAX;
    if (__builtin_mul_overflow(n, width, &bytes) || bytes > INT64_MAX) {
        char shape[CLI_SHAPE_BYTES];
        return cli_fail(CLI_USAGE, "%s: %s has more than 2^63 bytes", what,
                        cli_array_shape(array, shape));
    }
    array->n = n;
    array->bytes = bytes;
    return CLI_OK;
}

int cli_array_allocate(struct cli_array *array, const char *what)
{
    int code = cli_array_size(array, what);
    if (code) return code;
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    array->data = array->bytes <= memory ? malloc(array->bytes ? array->bytes : 1) : NULL;
    if (array->data) return CLI_OK;
    char shape[CLI_SHAPE_BYTES];
    return cli_fail(CLI_LIBRARY, "%s: %s needs %.1f GiB of host memory, there are %.1f", what,
                    cli_array_shape(array, shape), (double)array->bytes / 0x1p30,
                    (double)memory / 0x1p30);
}

void cli_array_release(struct cli_array *array)
{
    free(array->data);
    array->data = NULL;
}

const char *cli_array_shape(const struct cli_array *array, char text[CLI_SHAPE_BYTES])
{
    int at = snprintf(text, CLI_SHAPE_BYTES, "%s[", eider_dtype_name(array->type));
    for (int32_t d = 0; d < array->rank; d++) {
        at += snprintf(text + at, CLI_SHAPE_BYTES - (size_t)at, d ? ",%lld" : "%lld",
                       (long long)array->shape[d]);
    }
    snprintf(text + at, CLI_SHAPE_BYTES - (size_t)at, "]");
    return text;
}

struct parts {
    void (*body)(void *arg, size_t begin, size_t end);
    void *arg;
    size_t n;
    atomic_size_t next;
};

static void *work(void *opaque)
{
    struct parts *parts = opaque;
    for (;;) {
        size_t begin = atomic_fetch_add(&parts->next, CLI_PART);
        if (begin >= parts->n) return NULL;
        size_t left = parts->n - begin;
        parts->body(parts->arg, begin, begin + (left < CLI_PART ? left : CLI_PART));
    }
}

void cli_array_parallel(size_t n, void (*body)(void *arg, size_t begin, size_t end), void *arg)
{
    enum { THREADS_MAX = 64 };
    pthread_t threads[THREADS_MAX];
    struct parts parts = {body, arg, n, 0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = (n + CLI_PART - 1) / CLI_PART, started = 0;
    if (cores > 0 && wanted > (size_t)cores) wanted = (size_t)cores;
    if (wanted > THREADS_MAX) wanted = THREADS_MAX;
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, &parts) == 0) {
        started++;
    }
    work(&parts);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
