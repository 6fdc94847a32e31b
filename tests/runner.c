/* runner.c -- every test program in one executable, for machines that cannot build.
 *
 *     eider-tests             runs all suites
 *     eider-tests NAME...     runs those
 *     eider-tests -l          lists them
 *
 * EIDER_TEST_ONLY=PATTERN runs the tests of those suites whose names match, with * and ?.
 * A suite is the main() of a test_*.c, renamed when it is compiled.  Each runs in a process of
 * its own, so that one that dies does not take the rest along and none sees another's CUDA state.
 * The exit status is 0 when every suite passed.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SUITE(name) int eider_test_main_##name(void);
#include "suites.def"
#undef SUITE

static const struct suite {
    const char *name;
    int (*run)(void);
} suites[] = {
#define SUITE(name) {#name, eider_test_main_##name},
#include "suites.def"
#undef SUITE
    {NULL, NULL},
};

extern char **environ;

static const struct suite *find(const char *name)
{
    for (const struct suite *s = suites; s->name; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}

/* Cuts the last component off a path; the rest of an absolute path always remains. */
static void cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
}

static void set_place(const char *variable, const char *root, const char *below)
{
    char place[PATH_MAX + 32];
    snprintf(place, sizeof place, "%s/%s", root, below);
    setenv(variable, place, 0);
}

/* Tells the tests where their files are, unless the caller did. */
static void set_places(void)
{
    char root[PATH_MAX];
    setenv("EIDER_CACHE_DIR", "0", 0); /* a test that wants to be remembered says where */
    setenv("EIDER_HOME", "0", 0);
    ssize_t n = readlink("/proc/self/exe", root, sizeof root - 1);
    if (n <= 0) return;
    root[n] = '\0';
    cut(root);
    if (n < 5 || strcmp(root + strlen(root) - 4, "/bin") != 0) { /* a build folder */
        set_place("EIDER_TEST_BIN", root, ".");
        set_place("EIDER_TEST_LIB", root, ".");
        return;
    }
    cut(root);
    set_place("EIDER_TEST_BIN", root, "bin");
    set_place("EIDER_TEST_LIB", root, "lib");
    set_place("EIDER_TEST_DATA", root, "share/eider/tests");
}

/* Copies the suite's output and returns how many tests its closing lines call skipped. */
static int relay(int fd)
{
    char line[4096];
    int skipped = 0;
    FILE *in = fdopen(fd, "r");
    if (!in) return 0;
    while (fgets(line, sizeof line, in)) {
        int n;
        fputs(line, stdout);
        if (sscanf(line, "[  SKIPPED ] %d test(s)", &n) == 1) skipped += n;
    }
    fclose(in);
    return skipped;
}

/* Runs one suite in a new process; false when it failed, died or could not start. */
static bool run_apart(const char *name, int *skipped)
{
    int ends[2];
    if (pipe(ends) != 0) return false;
    char *const args[] = {(char *)"eider-tests", (char *)"-x", (char *)name, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child;
    int rc = posix_spawn(&child, "/proc/self/exe", &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return false;
    }
    *skipped += relay(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status)) printf("%s: killed by signal %d\n", name, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void list(void)
{
    for (const struct suite *s = suites; s->name; s++) puts(s->name);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "-x") == 0 && find(argv[2])) {
        if (getenv("EIDER_TEST_ONLY")) cmocka_set_test_filter(getenv("EIDER_TEST_ONLY"));
        return find(argv[2])->run() != 0;
    }
    if (argc == 2 && strcmp(argv[1], "-l") == 0) {
        list();
        return 0;
    }
    for (int i = 1; i < argc; i++)
        if (!find(argv[i])) {
            fprintf(stderr, "eider-tests: no suite is called %s; -l lists them\n", argv[i]);
            return 2;
        }

    set_places();
    setvbuf(stdout, NULL, _IOLBF, 0);
    int passed = 0, failed = 0, skipped = 0;
    char failures[4096] = "";
    for (const struct suite *s = suites; s->name; s++) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++) wanted |= strcmp(argv[i], s->name) == 0;
        if (!wanted) continue;
        printf("==== %s\n", s->name);
        bool ok = run_apart(s->name, &skipped);
        printf("==== %s: %s\n", s->name, ok ? "passed" : "FAILED");
        *(ok ? &passed : &failed) += 1;
        if (!ok && strlen(failures) + strlen(s->name) + 2 < sizeof failures)
            strcat(strcat(failures, " "), s->name);
    }
    if (failed) printf("Failed suites:%s\n", failures);
    printf("%d tests inside the suites were skipped.\n", skipped);
    printf("suites: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
