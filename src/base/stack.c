/* stack.c -- see stack.h.
 *
 * Where a thread's stack lies is asked once: for the first thread, the system reads a file.
 */
#include "stack.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "arithmetic.h"

#define OWN_BYTES ((size_t)8 << 20) /* only what is used takes memory */

static _Thread_local struct {
    uintptr_t low, high;
} known;

static void find_stack(void)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
        known.low = (uintptr_t)low;
        known.high = known.low + size;
    }
    pthread_attr_destroy(&attributes);
}

static int has_room(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (known.high == 0) find_stack();
    return here > known.low && here < known.high && here - known.low >= EIDER_STACK_LEAST;
}

struct call {
    const eider_allocator *a;
    eider_status (*body)(void *arg);
    void *arg;
    eider_status status;
    char *message;
};

static void *run(void *arg)
{
    struct call *call = arg;
    struct eider_arithmetic unused; /* the locale is not inherited */
    eider_arithmetic_enter(&unused);
    call->status = call->body(call->arg);
    if (call->status != EIDER_OK) call->message = eider_mem_strdup(call->a, eider_error());
    return NULL;
}

/* The thread takes no signals: those are the host's business. */
static int start(struct call *call, pthread_t *thread)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    pthread_attr_setstacksize(&attributes, OWN_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, run, call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

eider_status eider_stack_run(const eider_allocator *a, eider_status (*body)(void *arg), void *arg)
{
    struct call call = {.a = a, .body = body, .arg = arg};
    pthread_t thread;
    if (has_room()) return body(arg);
    int error = start(&call, &thread);
    if (error)
        return eider_fail(EIDER_OOM,
                          "this thread has less than %zu bytes of stack, and another one could not "
                          "be started: %s",
                          EIDER_STACK_LEAST, strerror(error));
    pthread_join(thread, NULL);
    if (call.status == EIDER_OK) return EIDER_OK;
    eider_fail_text(call.status, call.message ? call.message : eider_status_text(call.status));
    eider_mem_free(a, call.message);
    return call.status;
}
