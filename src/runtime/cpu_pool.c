/* cpu_pool.c -- see cpu_pool.h.
 *
 * A job lies on the stack of the thread that runs it.  It is in the pool's list while it
 * has indices left; a worker holds it (`n_inside`) while it works on it, and the owner
 * returns when nobody holds it any more.
 */
#include "cpu_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

struct job {
    void (*body)(void *arg, size_t i);
    void *arg;
    size_t n;
    atomic_size_t next; /* index to take */
    int n_inside;       /* workers; pool->lock */
    struct job *link;   /* pool->lock */
};

struct eider_cpu_pool {
    eider_allocator allocator;
    pthread_mutex_t lock;
    pthread_cond_t work; /* the list has grown, or `stop` */
    pthread_cond_t done; /* some n_inside has become 0 */
    struct job *jobs;
    int stop;
    int32_t n_workers;
    pthread_t workers[];
};

int32_t eider_cpu_pool_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
    return n > 0 ? (int32_t)n : 1;
}

static void work_on(struct job *job)
{
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (i >= job->n) return;
        job->body(job->arg, i);
    }
}

static void unlist(struct eider_cpu_pool *pool, const struct job *job)
{
    for (struct job **at = &pool->jobs; *at; at = &(*at)->link) {
        if (*at == job) {
            *at = job->link;
            return;
        }
    }
}

static void *run_worker(void *arg)
{
    struct eider_cpu_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->jobs && !pool->stop) pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop) break;
        struct job *job = pool->jobs;
        job->n_inside++;
        pthread_mutex_unlock(&pool->lock);
        work_on(job);
        pthread_mutex_lock(&pool->lock);
        unlist(pool, job);
        if (--job->n_inside == 0) pthread_cond_broadcast(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Workers take no signals: those are the host's business. */
static void start_workers(struct eider_cpu_pool *pool, int32_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->n_workers < n &&
           pthread_create(&pool->workers[pool->n_workers], NULL, run_worker, pool) == 0)
        pool->n_workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

eider_status eider_cpu_pool_create(const eider_allocator *a, int32_t n_threads,
                                   struct eider_cpu_pool **out)
{
    size_t n = n_threads > 1 ? (size_t)n_threads - 1 : 0;
    struct eider_cpu_pool *pool = eider_mem_zero(a, sizeof *pool + n * sizeof pool->workers[0]);
    if (!pool) return EIDER_OOM;
    pool->allocator = *a;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    start_workers(pool, (int32_t)n);
    *out = pool;
    return EIDER_OK;
}

void eider_cpu_pool_destroy(struct eider_cpu_pool *pool, int forked)
{
    if (!pool) return;
    if (!forked) {
        pthread_mutex_lock(&pool->lock);
        pool->stop = 1;
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->lock);
        for (int32_t i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i], NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->work);
        pthread_mutex_destroy(&pool->lock);
    }
    eider_allocator a = pool->allocator;
    eider_mem_free(&a, pool);
}

void eider_cpu_pool_run(struct eider_cpu_pool *pool, size_t n, void (*body)(void *arg, size_t i),
                        void *arg)
{
    struct job job = {.body = body, .arg = arg, .n = n};
    if (n <= 1 || pool->n_workers == 0) {
        work_on(&job);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    job.link = pool->jobs;
    pool->jobs = &job;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    work_on(&job);
    pthread_mutex_lock(&pool->lock);
    unlist(pool, &job);
    while (job.n_inside > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
