/* test_second_llvm.c -- another libLLVM in the process, loaded first or last with all its
 * symbols global, does not get mixed up with ours.
 *
 * Loading it first takes a process that begins with it: this program starts itself again
 * with LD_PRELOAD.  Skipped, and says so, where no other libLLVM is installed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_runtime.h"

#define CHILD "EIDER_TEST_SECOND_LLVM"
#define N 1000

static const char *const others[] = {"libLLVM-14.so.1", "libLLVM-15.so.1", "libLLVM-16.so.1",
                                     "libLLVM-17.so.1", "libLLVM.so.18.1", "libLLVM.so.20.1"};

/* Compiles for the CPU and for a GPU, and runs; 0 when all of it is right. */
static int use_eider(void)
{
    static float x[N], out[N];
    int64_t n = N;
    eider_context *ctx;
    eider_device *cpu;
    eider_program *program;
    eider_kernel *kernel, *compiled;
    const void *ptx;
    size_t size;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    eider_tensor args[] = {tensor_of(x, EIDER_F32, 1, &n), tensor_of(out, EIDER_F32, 1, &n)};
    if (eider_context_create(NULL, &ctx) || eider_device_open(ctx, "cpu", &cpu) ||
        eider_program_parse(ctx, "out = x * sigmoid(0 * x) + 3", &program))
        return 1;
    eider_request request = {.program = program, .args = args, .n_args = 2};
    if (eider_prepare(cpu, &request, &kernel) || eider_launch(kernel, NULL, args, 2)) return 2;
    request.target = "sm_90";
    if (eider_compile(ctx, &request, &compiled) ||
        eider_kernel_stage(compiled, EIDER_STAGE_PTX, &ptx, &size))
        return 3;
    int is_right = strstr(ptx, ".entry") != NULL;
    for (int i = 0; i < N; i++) {
        float expected = x[i] / 2 + 3, off = out[i] - expected;
        if (off > 1e-3f || off < -1e-3f) is_right = 0;
    }
    eider_kernel_release(compiled);
    eider_kernel_release(kernel);
    eider_program_release(program);
    eider_device_release(cpu);
    eider_context_destroy(ctx);
    return is_right ? 0 : 4;
}

/* This program again, with its arguments, in the child's role. */
static void run_again(const char *preload)
{
    char line[4096], *argv[16];
    int argc = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t size = file ? fread(line, 1, sizeof line - 1, file) : 0;
    line[size] = '\0';
    for (char *at = line; at < line + size && argc < 15; at += strlen(at) + 1) argv[argc++] = at;
    argv[argc] = NULL;
    setenv(CHILD, preload, 1);
    setenv("LD_PRELOAD", preload, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* What is installed of `others`, asked in a child so that nothing gets loaded here. */
static int is_installed(const char *name)
{
    pid_t pid = fork();
    if (pid == 0) _exit(dlopen(name, RTLD_LAZY | RTLD_LOCAL) ? 0 : 1);
    int status = 1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char *find_other(void)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (is_installed(others[i])) return others[i];
    fprintf(stderr, "SKIPPED (no second LLVM): none of libLLVM 14 to 20 is installed\n");
    return NULL;
}

static void an_llvm_that_was_there_first_is_no_trouble(void **state)
{
    (void)state;
    const char *other = find_other();
    if (!other) skip();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) run_again(other);
    int status = 1;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("behind %s the child ended with status 0x%x", other, (unsigned)status);
}

static void an_llvm_that_comes_later_is_no_trouble(void **state)
{
    (void)state;
    const char *other = find_other();
    if (!other) skip();
    assert_int_equal(use_eider(), 0);
    assert_non_null(dlopen(other, RTLD_NOW | RTLD_GLOBAL));
    assert_int_equal(use_eider(), 0);
}

int main(void)
{
    const char *first = getenv(CHILD);
    if (first) return dlopen(first, RTLD_NOLOAD | RTLD_LAZY) ? use_eider() : 5;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_llvm_that_was_there_first_is_no_trouble),
        cmocka_unit_test(an_llvm_that_comes_later_is_no_trouble),
    };
    return cmocka_run_group_tests_name("second_llvm", tests, NULL, NULL);
}
