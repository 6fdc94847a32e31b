/* spawn.c -- running a tool.
 *
 * Invariants: the parent's threads, handlers and descriptors do not matter to the child:
 * it starts through posix_spawn, which shares no lock with them, with default signals and
 * nothing open but the three standard descriptors; input is a file in memory, so that a
 * tool which does not read it raises no SIGPIPE here.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen.h"
#include "disk.h"
#include "process.h"

#define OUTPUT_BYTES_MAX ((size_t)1 << 20)
#define VARIABLE_BYTES 4096

/* Exactly what a tool sees of the environment. */
struct clean_environment {
    char text[3][VARIABLE_BYTES];
    char *list[5];
};

static void make_environment(struct clean_environment *env)
{
    static const char *const kept[] = {"PATH", "HOME", "TMPDIR"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const char *value = getenv(kept[i]);
        if (!value) continue;
        int length = snprintf(env->text[n], VARIABLE_BYTES, "%s=%s", kept[i], value);
        if (length < VARIABLE_BYTES) env->list[n] = env->text[n], n++;
    }
    static char language[] = "LANG=C";
    env->list[n++] = language;
    env->list[n] = NULL;
}

/* The input as a descriptor at offset 0. */
static eider_status open_input(const struct eider_blob *input, int *out)
{
    *out = eider_process_lift(input ? memfd_create("eider-input", MFD_CLOEXEC)
                                    : open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (*out < 0)
        return eider_fail(EIDER_IO, "no input could be made for a tool: %s", strerror(errno));
    if (input && !eider_disk_write(*out, input->data, input->size)) {
        eider_fail(EIDER_IO, "the input of a tool could not be written: %s", strerror(errno));
        close(*out);
        return EIDER_IO;
    }
    lseek(*out, 0, SEEK_SET);
    return EIDER_OK;
}

/* posix_spawn with everything set; gives an errno. */
static int start(const char *const *argv, int input, int output, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = posix_spawnattr_init(&attributes);
    if (error) {
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    if (!error) error = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (!error) {
        struct clean_environment env;
        make_environment(&env);
        char *const *arguments = (char *const *)(uintptr_t)argv;
        error = posix_spawn(pid, argv[0], &actions, &attributes, arguments, env.list);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

eider_status eider_spawn(const eider_allocator *a, const char *const *argv,
                         const struct eider_blob *input, int deadline_ms, struct eider_text *output,
                         int *exit_code)
{
    return eider_spawn_long(a, argv, input, deadline_ms, OUTPUT_BYTES_MAX, output, exit_code);
}

eider_status eider_spawn_long(const eider_allocator *a, const char *const *argv,
                              const struct eider_blob *input, int deadline_ms, size_t output_max,
                              struct eider_text *output, int *exit_code)
{
    int ends[2], in;
    eider_text_init(output, a);
    EIDER_TRY(open_input(input, &in));
    eider_status status = eider_process_pipe(ends);
    if (status != EIDER_OK) {
        close(in);
        return status;
    }
    struct eider_process process = {
        .streams = {{.fd = ends[0], .limit = output_max, .text = output}}, .n_streams = 1};
    int error = start(argv, in, ends[1], &process.pid);
    close(in);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return eider_fail(EIDER_IO, "%.400s could not be started: %s", argv[0], strerror(error));
    }
    status = eider_process_collect(&process, deadline_ms, exit_code);
    if (status == EIDER_TIMEOUT)
        status = eider_fail(EIDER_TIMEOUT,
                            "%.400s ran longer than %d ms and was killed; its "
                            "last words: %.1000s",
                            argv[0], deadline_ms, output->data ? output->data : "none");
    if (status != EIDER_OK) eider_text_release(output);
    return status;
}
