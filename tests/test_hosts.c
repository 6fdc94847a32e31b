/* test_hosts.c -- hosts whose process is set up in ways that eider would not choose.
 *
 * Every scene runs in a process of its own, so that what it changes ends with it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_runtime.h"

#define N 64

/* The stack of a small thread; the address sanitizer's frames are several times as large. */
#if defined(__SANITIZE_ADDRESS__)
#define SMALL_BYTES ((size_t)256 << 10)
#else
#define SMALL_BYTES ((size_t)64 << 10)
#endif

/* ---- Scenes ----------------------------------------------------------------- */

static eider_context *ctx;
static eider_device *cpu;

/* What a scene says when it ends early: its line and eider's error. */
#define check(condition) check_at((condition) != 0, #condition, __LINE__)
static void check_at(int holds, const char *condition, int line)
{
    if (holds) return;
    dprintf(STDERR_FILENO, "test_hosts.c:%d: %s; the last error: %s\n", line, condition,
            eider_error());
    _exit(1);
}

/* Runs `scene` in a child with a context of its own. */
static void play(void (*scene)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        check(eider_context_create(&(eider_context_options){.cpu_threads = 3}, &ctx) == EIDER_OK);
        check(eider_device_open(ctx, "cpu", &cpu) == EIDER_OK);
        scene();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("the scene died of signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- What every scene tries -------------------------------------------------- */

static const eider_operand pointers[] = {{"x", EIDER_INPUT, EIDER_F32},
                                         {"y", EIDER_OUTPUT, EIDER_F32}};

static const char double_ll[] = "define void @k(ptr %x, ptr %y) {\n"
                                " %v = load float, ptr %x\n %w = fadd float %v, %v\n"
                                " store float %w, ptr %y\n ret void\n}\n";

static float x[N], y[N];
static const int64_t extent = N;

static void set_args(eider_tensor args[2])
{
    for (int i = 0; i < N; i++) x[i] = 0.5f * (float)i, y[i] = -1;
    args[0] = tensor_of(x, EIDER_F32, 1, &extent);
    args[1] = tensor_of(y, EIDER_F32, 1, &extent);
}

/* A program on the CPU, under a name of its own, so that nothing is remembered. */
static eider_status run_program(void)
{
    static int count;
    char text[64];
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    eider_tensor args[2];
    set_args(args);
    snprintf(text, sizeof text, "y = x * 2.0 + %d.5", ++count);
    eider_status status = eider_program_parse(ctx, text, &program);
    eider_request request = {.program = program, .args = args, .n_args = 2};
    if (status == EIDER_OK) status = eider_prepare(cpu, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch(kernel, NULL, args, 2);
    for (int i = 0; status == EIDER_OK && i < N; i++) check(y[i] == (float)i + (float)count + 0.5f);
    eider_kernel_release(kernel);
    eider_program_release(program);
    return status;
}

/* Foreign IR, which needs a worker. */
static eider_status run_foreign(void)
{
    static int count;
    char text[sizeof double_ll + 32];
    const uint32_t grid[] = {1, 1, 1};
    eider_kernel *kernel = NULL;
    eider_tensor args[2];
    set_args(args);
    x[0] = 21;
    snprintf(text, sizeof text, "%s; %d\n", double_ll, ++count);
    eider_source source = {
        .kind = EIDER_SOURCE_LL, .data = text, .entry = "k", .n_operands = 2, .operands = pointers};
    eider_request request = {.source = &source};
    eider_status status = eider_prepare(cpu, &request, &kernel);
    if (status == EIDER_OK) status = eider_launch_grid(kernel, NULL, grid, args, 2);
    if (status == EIDER_OK) check(y[0] == 42);
    eider_kernel_release(kernel);
    return status;
}

/* A cubin by a ptxas process; EIDER_OK, too, where there is none. */
static eider_status run_ptxas(void)
{
    static int count;
    char text[64];
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    eider_tensor args[2];
    set_args(args);
    snprintf(text, sizeof text, "y = x * 3.0 + %d.5", ++count);
    eider_status status = eider_program_parse(ctx, text, &program);
    eider_request request = {
        .program = program, .args = args, .n_args = 2, .target = "sm_90", .assembler = "ptxas"};
    if (status == EIDER_OK) status = eider_compile(ctx, &request, &kernel);
    if (status == EIDER_ASSEMBLER && strstr(eider_error(), "was not found")) status = EIDER_OK;
    eider_kernel_release(kernel);
    eider_program_release(program);
    return status;
}

static void all_works(void)
{
    check(run_program() == EIDER_OK);
    check(run_foreign() == EIDER_OK);
    check(run_ptxas() == EIDER_OK);
}

/* ---- Children of the host ---------------------------------------------------- */

static void ignore_children(void)
{
    signal(SIGCHLD, SIG_IGN);
    all_works();
}

static void keep_no_zombies(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    sigaction(SIGCHLD, &action, NULL);
    all_works();
}

static void *reap_all(void *arg)
{
    (void)arg;
    for (;;)
        if (waitpid(-1, NULL, 0) < 0) usleep(100);
    return NULL;
}

static void reap_everything(void)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, reap_all, NULL) == 0);
    for (int i = 0; i < 3; i++) all_works();
}

static void on_child(int number)
{
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

static void reap_in_a_handler(void)
{
    signal(SIGCHLD, on_child);
    for (int i = 0; i < 3; i++) all_works();
}

static void children_of_eider_are_found_however_the_host_waits(void **state)
{
    (void)state;
    play(ignore_children);
    play(keep_no_zombies);
    play(reap_everything);
    play(reap_in_a_handler);
}

/* ---- Descriptors, processes, folders ------------------------------------------- */

static void close_standard_descriptors(void)
{
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
    close(STDERR_FILENO);
    all_works();
    for (int fd = 0; fd < 3; fd++) check(fcntl(fd, F_GETFD) < 0);
    dup2(kept, STDERR_FILENO);
}

static int n_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 300; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void use_up_descriptors(void)
{
    struct rlimit limit = {256, 256};
    int opened[256], n = 0;
    all_works(); /* what is looked for once is found */
    int before = n_descriptors();
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) opened[n++] = fd;
    check(run_program() == EIDER_OK); /* needs none */
    check(run_foreign() == EIDER_IO && strstr(eider_error(), "oo many open files"));
    eider_status status = run_ptxas();
    check(status == EIDER_OK ||
          (status == EIDER_IO && strstr(eider_error(), "oo many open files")));
    while (n > 0) close(opened[--n]);
    check(n_descriptors() == before);
    all_works();
    check(n_descriptors() == before);
}

static void forbid_processes(void)
{
    struct rlimit none = {0, 0};
    if (geteuid() == 0 && setuid(65534) != 0) _exit(77); /* limits do not bind root */
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(77);
    check(run_program() == EIDER_OK); /* on this thread alone */
    check(run_foreign() == EIDER_WORKER && strstr(eider_error(), "no compile worker could be"));
    eider_status status = run_ptxas();
    check(status == EIDER_OK ||
          (status == EIDER_IO && strstr(eider_error(), "could not be started")));
}

static void have_no_folder(void)
{
    setenv("TMPDIR", "/no/such/folder", 1);
    eider_status status = run_ptxas();
    check(status == EIDER_OK || (status == EIDER_IO && strstr(eider_error(), "/no/such/folder")));
    setenv("TMPDIR", "/dev/null", 1);
    status = run_ptxas();
    check(status == EIDER_OK || (status == EIDER_IO && strstr(eider_error(), "/dev/null")));
    unsetenv("TMPDIR");
    all_works();
}

static void a_lack_of_what_the_system_gives_is_an_error_and_passes(void **state)
{
    (void)state;
    play(close_standard_descriptors);
    play(use_up_descriptors);
    play(have_no_folder);
    play(forbid_processes);
}

/* ---- Variables ------------------------------------------------------------------- */

static void set_nonsense(void)
{
    static char length[70000];
    static const char *const names[] = {"EIDER_PTXAS",
                                        "EIDER_NVPTXCOMPILER",
                                        "EIDER_NVJITLINK",
                                        "EIDER_NVDISASM",
                                        "EIDER_CUDA_HOME",
                                        "EIDER_LIBCUDA",
                                        "EIDER_CACHE_DIR",
                                        "EIDER_HOME",
                                        "EIDER_DUMP",
                                        "CUDA_HOME",
                                        "PATH",
                                        "TMPDIR",
                                        "HOME"};
    memset(length, 'x', sizeof length - 1);
    const char *const values[] = {"",           "/",        "/dev/full",   "/dev/zero",
                                  "\n\033[31m", "relative", "/etc/passwd", length};
    int32_t n;
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) setenv(names[i], values[v], 1);
        eider_context *mine;
        check(eider_context_create(NULL, &mine) == EIDER_OK);
        if (eider_device_count(mine, "cuda", &n) != EIDER_OK) n = 0;
        eider_tool tool;
        for (size_t i = 0; eider_tool_find(mine, i, &tool); i++) check(strlen(tool.tried) < 2048);
        eider_context_destroy(mine);
        check(run_program() == EIDER_OK);
        check(run_foreign() == EIDER_OK);
        if (run_ptxas() != EIDER_OK) check(*eider_error() != '\0');
    }
}

static void variables_that_name_nonsense_harm_nothing(void **state)
{
    (void)state;
    play(set_nonsense);
}

/* ---- Numbers ---------------------------------------------------------------------- */

/* A locale with a decimal comma, made here where the system has none. */
static int set_comma(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "pt_BR.UTF-8"};
    char folder[] = "/tmp/eider-locale-XXXXXX", command[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_ALL, names[i])) return 1;
    if (!mkdtemp(folder)) return 0;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1",
             folder, folder);
    int made = system(command) == 0;
    setenv("LOCPATH", folder, 1);
    made = made && setlocale(LC_ALL, "de_DE.UTF-8");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 && made;
}

static void speak_german(void)
{
    char number[16];
    if (!set_comma()) {
        dprintf(STDERR_FILENO, "SKIPPED: no locale with a decimal comma, and none can be made\n");
        _exit(77);
    }
    snprintf(number, sizeof number, "%.1f", 0.5);
    check(strcmp(number, "0,5") == 0);
    eider_program *program;
    check(eider_program_parse(ctx, "y = x * 0.25 + 1e-3", &program) == EIDER_OK);
    check(strcmp(eider_program_text(program), "y = x * 0.25 + 0.001\n") == 0);
    eider_program_release(program);
    check(eider_program_parse(ctx, "y = x * 0,25", &program) == EIDER_PARSE);
    check(eider_program_parse(ctx, "y = leaky_relu(x) + gelu_tanh(x)", &program) == EIDER_OK);
    double in = -1, out;
    check(eider_program_eval(program, &in, &out) == EIDER_OK);
    check(out > -0.17 && out < -0.16);
    eider_program_release(program);
    all_works();
    check(strcmp(setlocale(LC_ALL, NULL), "C") != 0);
}

static void a_decimal_comma_changes_no_number(void **state)
{
    (void)state;
    play(speak_german);
}

/* ---- Small stacks ------------------------------------------------------------------- */

static void nest(char *text, int depth)
{
    char *at = stpcpy(text, "y = ");
    for (int i = 0; i < depth; i++) at = stpcpy(at, "leaky_relu(");
    at = stpcpy(at, "x");
    for (int i = 0; i < depth; i++) *at++ = ')';
    *at = '\0';
}

static void *work_on_little(void *arg)
{
    static char text[8192];
    eider_program *program, *backward;
    (void)arg;
    nest(text, 200);
    check(eider_program_parse(ctx, text, &program) == EIDER_OK);
    check(eider_program_grad(program, NULL, &backward) == EIDER_OK);
    eider_program_release(backward);
    eider_program_release(program);
    nest(text, 300);
    check(eider_program_parse(ctx, text, &program) == EIDER_PARSE);
    check(strstr(eider_error(), "256 levels of nesting") != NULL);
    all_works();
    return NULL;
}

static void have_small_threads(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    check(pthread_attr_setstacksize(&attributes, SMALL_BYTES) == 0);
    for (int i = 0; i < 2; i++) {
        check(pthread_create(&thread, &attributes, work_on_little, NULL) == 0);
        pthread_join(thread, NULL);
    }
}

static void on_signal(int number)
{
    (void)number;
    work_on_little(NULL);
}

/* Not what signal handlers are for; but so do coroutines. */
static void have_a_stack_of_its_own(void)
{
    stack_t stack = {.ss_size = SMALL_BYTES};
    stack.ss_sp =
        mmap(NULL, SMALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(stack.ss_sp != MAP_FAILED);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    check(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
}

static void small_stacks_do(void **state)
{
    (void)state;
    play(have_small_threads);
    play(have_a_stack_of_its_own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_of_eider_are_found_however_the_host_waits),
        cmocka_unit_test(a_lack_of_what_the_system_gives_is_an_error_and_passes),
        cmocka_unit_test(variables_that_name_nonsense_harm_nothing),
        cmocka_unit_test(a_decimal_comma_changes_no_number),
        cmocka_unit_test(small_stacks_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
