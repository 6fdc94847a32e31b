/* support_tuner.c -- see support_tuner.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support_runtime.h"
#include "support_tuner.h"

static void keep_log(void *user, int level, const char *line)
{
    struct workbench *b = user;
    size_t n = strlen(b->log);
    snprintf(b->log + n, sizeof b->log - n, "%d %s\n", level, line);
}

static void open_context(struct workbench *b)
{
    eider_context_options options = {.cpu_threads = 2, .log = keep_log, .log_user = b};
    must(eider_context_create(&options, &b->ctx));
    must(eider_device_open(b->ctx, "cpu", &b->device));
    must(eider_program_parse(b->ctx, "out = silu(x) * y", &b->program));
}

static void close_context(struct workbench *b)
{
    eider_program_release(b->program);
    eider_device_release(b->device);
    eider_context_destroy(b->ctx);
}

static void *buffer(struct workbench *b, size_t bytes)
{
    void *out;
    must(eider_memory_alloc(b->device, bytes, &out));
    return out;
}

void workbench_open(struct workbench *b)
{
    enum { N = BENCH_ROWS * BENCH_COLUMNS };
    memset(b, 0, sizeof *b);
    snprintf(b->folder, sizeof b->folder, "/tmp/eider-tuner-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    setenv("EIDER_HOME", b->folder, 1);
    open_context(b);
    b->shape[0] = BENCH_ROWS;
    b->shape[1] = BENCH_COLUMNS;
    float **buffers[] = {&b->x, &b->y, &b->out};
    for (int i = 0; i < 3; i++) {
        *buffers[i] = buffer(b, N * sizeof(float));
        b->args[i] = tensor_of(*buffers[i], EIDER_F32, 2, b->shape);
    }
    for (int i = 0; i < N; i++) {
        b->x[i] = (float)(i % 17) - 8;
        b->y[i] = (float)(i % 5) / 2;
        b->out[i] = -1;
    }
    b->kernel = (eider_request){.program = b->program, .args = b->args, .n_args = 3};
    b->request = (eider_tune_request){.kernel = &b->kernel,
                                      .space = "vec=4|8,unroll=1|2",
                                      .hot = 1,
                                      .warm_up_ms = -1,
                                      .rounds = 3,
                                      .no_records = 1};
}

void workbench_reopen(struct workbench *b)
{
    float *old[] = {b->x, b->y, b->out};
    float **buffers[] = {&b->x, &b->y, &b->out};
    size_t bytes = BENCH_ROWS * BENCH_COLUMNS * sizeof(float);
    eider_context *ctx = b->ctx;
    eider_device *device = b->device;
    eider_program *program = b->program;
    open_context(b);
    for (int i = 0; i < 3; i++) {
        *buffers[i] = buffer(b, bytes);
        memcpy(*buffers[i], old[i], bytes);
        b->args[i].data = *buffers[i];
        eider_memory_free(device, old[i]);
    }
    b->kernel.program = b->program;
    eider_program_release(program);
    eider_device_release(device);
    eider_context_destroy(ctx);
    b->log[0] = '\0';
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char below[512];
        if (entry->d_name[0] == '.') continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (unlink(below) != 0) remove_folder(below);
    }
    if (folder) closedir(folder);
    rmdir(path);
}

void workbench_close(struct workbench *b)
{
    eider_memory_free(b->device, b->x);
    eider_memory_free(b->device, b->y);
    eider_memory_free(b->device, b->out);
    close_context(b);
    remove_folder(b->folder);
    unsetenv("EIDER_HOME");
}

void workbench_remember(struct workbench *b)
{
    b->request.no_records = 0;
    b->request.records = b->folder;
}

eider_status workbench_tune(struct workbench *b, eider_tune_summary *out)
{
    eider_tuning *tuning = NULL;
    eider_status status = eider_tune(b->device, &b->request, &tuning);
    eider_tune_describe(tuning, out);
    eider_tune_release(tuning);
    return status;
}

const char *workbench_choice(struct workbench *b)
{
    static char config[256];
    eider_tuning *tuning;
    eider_tune_summary summary;
    must(eider_tune(b->device, &b->request, &tuning));
    eider_tune_describe(tuning, &summary);
    snprintf(config, sizeof config, "%s", summary.config);
    eider_tune_release(tuning);
    return config;
}
