/* worker.c -- foreign IR, compiled in a process of its own; see codegen.h.
 *
 * The worker is a fork: it needs no program on disk, and callbacks of the caller run in
 * it.  Between fork and _exit it runs only LLVM, the C library and the callback, with
 * default signals, no descriptors of the caller and the C library's own memory.
 * Invariant: nothing that IR can do to LLVM (abort, crash, endless loops, memory) reaches
 * the calling process.
 */
#include <errno.h>
#include <fcntl.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/IRReader.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "codegen.h"
#include "emit.h"
#include "foreign_lines.h"
#include "llvm_error.h"
#include "process.h"
#include "target_machine.h"

#define DEADLINE_MS 60000              /* where the caller has none */
#define MEMORY_BYTES ((rlim_t)4 << 30) /* what a compile may add to the process */
#define RESULT_BYTES_MAX ((size_t)256 << 20)
#define WORDS_BYTES_MAX ((size_t)4096)
#define WORDS_BYTES_QUOTED ((size_t)1000)
#define REASON_BYTES 1024
#define RESULT_FD 3
#define FATAL_EXIT 70
/* A lock that another thread of the caller held at the fork stays locked in the worker:
 * one of IR being built elsewhere, or of an allocator that does not prepare for forks.  A
 * worker that uses no processor for so long waits for such a lock, and another is tried;
 * the last attempt may wait, since a callback may have its reasons. */
#define STALL_MS 1500
#define ATTEMPTS 3

/* What the worker writes: this, the message, the code, the optimised IR. */
struct result_header {
    uint64_t magic;
    int32_t status, ptx_version;
    uint64_t opt_ns, emit_ns;
    uint64_t message_size, code_size, opt_size;
};

#define RESULT_MAGIC UINT64_C(0x7265646965656b72)

/* ---- In the worker: the module ------------------------------------------------- */

static eider_status parse(LLVMContextRef context, const void *data, size_t size, LLVMModuleRef *out)
{
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(data, size, "ir");
    char *message = NULL;
    if (!LLVMParseIRInContext(context, buffer, out, &message)) return EIDER_OK;
    return eider_fail(EIDER_PARSE, "%.4000s", message ? message : "the IR cannot be read");
}

static eider_status parse_bitcode(LLVMContextRef context, const struct eider_source *source,
                                  LLVMModuleRef *out)
{
    const unsigned char *bytes = source->data;
    int is_raw = source->size >= 4 && memcmp(bytes, "BC\xc0\xde", 4) == 0;
    int is_wrapped = source->size >= 4 && memcmp(bytes, "\xde\xc0\x17\x0b", 4) == 0;
    if (!is_raw && !is_wrapped)
        return eider_fail(EIDER_PARSE, "%zu bytes of bitcode do not begin like bitcode",
                          source->size);
    return parse(context, source->data, source->size, out);
}

static eider_status call_back(LLVMContextRef context, const struct eider_source *source,
                              const char *config, const char *triple, LLVMModuleRef *out)
{
    char reason[REASON_BYTES] = "";
    *out = source->build(source->build_user, context, triple, config ? config : "", reason,
                         sizeof reason);
    reason[sizeof reason - 1] = '\0';
    if (!*out)
        return eider_fail(EIDER_CODEGEN, "the callback built no module: %s",
                          *reason ? reason : "it gave no reason");
    if (LLVMGetModuleContext(*out) != context)
        return eider_fail(EIDER_CODEGEN, "the callback built its module in another context");
    return EIDER_OK;
}

/* LLVM does not check the constraints of inline assembly that was not read from text. */
static eider_status reread(LLVMContextRef context, LLVMModuleRef *module)
{
    char *message = NULL;
    if (LLVMVerifyModule(*module, LLVMReturnStatusAction, &message))
        return eider_llvm_error_message(message, "the module is not valid");
    LLVMDisposeMessage(message);
    char *text = LLVMPrintModuleToString(*module);
    LLVMModuleRef again = NULL;
    eider_status status = parse(context, text, strlen(text), &again);
    LLVMDisposeMessage(text);
    if (status != EIDER_OK) return status;
    LLVMDisposeModule(*module);
    *module = again;
    return EIDER_OK;
}

static eider_status make_module(LLVMContextRef context, const struct eider_source *source,
                                const char *config, const struct eider_codegen_job *job,
                                LLVMModuleRef *out)
{
    switch (source->kind) {
    case EIDER_SOURCE_LL: {
        size_t size = source->size ? source->size : strlen(source->data);
        EIDER_TRY(parse(context, source->data, size, out));
        if (job->line_info && job->target.sm) eider_foreign_lines_add(*out, source->data, size);
        return EIDER_OK;
    }
    case EIDER_SOURCE_BITCODE:
        EIDER_TRY(parse_bitcode(context, source, out));
        return reread(context, out);
    case EIDER_SOURCE_CALLBACK:
        EIDER_TRY(call_back(context, source, config, eider_target_triple(job->target), out));
        return reread(context, out);
    case EIDER_SOURCE_PTX:
        break;
    }
    return eider_fail(EIDER_BAD_ARG, "PTX is not compiled, only assembled");
}

/* ---- In the worker: the process ------------------------------------------------- */

static void write_all(const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t n = write(RESULT_FD, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1);
        at += n;
        size -= (size_t)n;
    }
}

static void write_result(eider_status status, const struct eider_codegen_result *result)
{
    const char *message = status == EIDER_OK ? "" : eider_error();
    struct result_header header = {
        .magic = RESULT_MAGIC,
        .status = (int32_t)status,
        .ptx_version = result->ptx_version,
        .opt_ns = result->opt_ns,
        .emit_ns = result->emit_ns,
        .message_size = strlen(message),
        .code_size = result->code.size,
        .opt_size = result->opt_ir.size,
    };
    write_all(&header, sizeof header);
    write_all(message, header.message_size);
    write_all(result->code.data, header.code_size);
    write_all(result->opt_ir.data, header.opt_size);
}

static void on_fatal(const char *reason)
{
    dprintf(STDERR_FILENO, "LLVM ERROR: %s\n", reason);
    _exit(FATAL_EXIT);
}

/* LLVM's memory is bounded where the address space is this process's own to bound. */
static void limit_resources(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    int is_known = file && fscanf(file, "%lu", &pages) == 1;
    if (file) fclose(file);
    rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MEMORY_BYTES;
    struct rlimit memory = {most, most};
    if (is_known) setrlimit(RLIMIT_AS, &memory);
#endif
}

static void leave_caller_behind(int result_fd, int words_fd)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the calling thread waits, so it outlives us */
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int silence = open("/dev/null", O_RDONLY);
    dup2(silence, STDIN_FILENO);
    dup2(words_fd, STDOUT_FILENO);
    dup2(words_fd, STDERR_FILENO);
    dup2(result_fd, RESULT_FD);
    closefrom(RESULT_FD + 1);
    limit_resources();
    LLVMInstallFatalErrorHandler(on_fatal);
}

/* Links the code as the caller will: what makes the linker abort does so here. */
static eider_status try_linking(const eider_allocator *a, const struct eider_codegen_job *job,
                                const struct eider_blob *code)
{
    struct eider_cpu_image *image;
    void *entry;
    if (job->target.sm != 0 || !job->hooks) return EIDER_OK;
    return eider_cpu_image_create(a, code, job->entry, job->thread_style, job->hooks, &image,
                                  &entry);
}

static _Noreturn void run_worker(const eider_source *source, const char *config,
                                 const struct eider_codegen_job *job)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_codegen_result result = {0};
    struct eider_llvm_watch watch;
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = NULL;
    eider_llvm_error_watch(&watch, context);
    eider_status status = make_module(context, source, config, job, &module);
    if (status == EIDER_OK)
        status = eider_emit_module(&a, module, job, EIDER_EMIT_FOREIGN, &result);
    if (status == EIDER_OK) status = try_linking(&a, job, &result.code);
    write_result(status, &result);
    _exit(0);
}

/* ---- In the caller ----------------------------------------------------------------- */

/* A callback can write to the worker's descriptors, too: nothing in the header is believed. */
static int is_whole(const struct result_header *header, size_t size)
{
    uint64_t sizes[] = {header->message_size, header->code_size, header->opt_size};
    if (header->magic != RESULT_MAGIC || size < sizeof *header) return 0;
    size -= sizeof *header;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] > size) return 0;
        size -= (size_t)sizes[i];
    }
    return size == 0 && header->status >= EIDER_OK && header->status <= EIDER_UNSUPPORTED;
}

static eider_status read_result(const eider_allocator *a, const struct eider_text *text,
                                struct eider_codegen_result *out, int *is_complete)
{
    struct result_header header = {0};
    if (text->size >= sizeof header) memcpy(&header, text->data, sizeof header);
    *is_complete = is_whole(&header, text->size);
    if (!*is_complete) return EIDER_WORKER;
    const char *message = text->data + sizeof header;
    const char *code = message + header.message_size;
    const char *opt_ir = code + header.code_size;
    if (header.status != EIDER_OK)
        return eider_fail((eider_status)header.status, "%.*s", (int)header.message_size, message);
    out->ptx_version = header.ptx_version;
    out->opt_ns = header.opt_ns;
    out->emit_ns = header.emit_ns;
    EIDER_TRY(eider_blob_copy(a, code, header.code_size, &out->code));
    if (header.opt_size == 0) return EIDER_OK;
    eider_status status = eider_blob_copy(a, opt_ir, header.opt_size, &out->opt_ir);
    if (status != EIDER_OK) eider_blob_release(a, &out->code);
    return status;
}

static eider_status fail_dead(int exit_code, const struct eider_text *words)
{
    const char *said = words->data && *words->data ? words->data : "none";
    int length = (int)strnlen(said, WORDS_BYTES_QUOTED);
    while (length > 0 && said[length - 1] == '\n') length--;
    if (exit_code > 128 && exit_code < 128 + NSIG)
        return eider_fail(EIDER_WORKER,
                          "the compile worker died of signal %d (%s); last words: "
                          "%.*s",
                          exit_code - 128, strsignal(exit_code - 128), length, said);
    return eider_fail(EIDER_WORKER, "the compile worker gave up; last words: %.*s", length, said);
}

static eider_status start(const eider_source *source, const char *config,
                          const struct eider_codegen_job *job, struct eider_process *process)
{
    int result[2], words[2];
    EIDER_TRY(eider_process_pipe(result));
    eider_status status = eider_process_pipe(words);
    if (status != EIDER_OK) {
        close(result[0]);
        close(result[1]);
        return status;
    }
    process->pid = eider_emit_fork();
    if (process->pid == 0) {
        leave_caller_behind(result[1], words[1]);
        run_worker(source, config, job);
    }
    int error = errno;
    close(result[1]);
    close(words[1]);
    if (process->pid < 0) {
        close(result[0]);
        close(words[0]);
        return eider_fail(EIDER_WORKER, "no compile worker could be started: %s", strerror(error));
    }
    setpgid(process->pid, process->pid); /* whoever of the two comes first */
    process->streams[0].fd = result[0];
    process->streams[1].fd = words[0];
    return EIDER_OK;
}

/* One worker, from its start to its end. */
static eider_status run_once(const eider_allocator *a, const eider_source *source,
                             const char *config, const struct eider_codegen_job *job,
                             int deadline_ms, int may_stall, int *is_stalled,
                             struct eider_codegen_result *out)
{
    struct eider_text result, words;
    eider_text_init(&result, a);
    eider_text_init(&words, a);
    struct eider_process process = {
        .streams = {{.limit = RESULT_BYTES_MAX, .text = &result},
                    {.limit = WORDS_BYTES_MAX, .text = &words}},
        .n_streams = 2,
        .stall_ms = may_stall ? 0 : STALL_MS,
    };
    int exit_code = 0, is_complete = 0;
    eider_status status = start(source, config, job, &process);
    if (status == EIDER_OK) {
        status = eider_process_collect(&process, deadline_ms, &exit_code);
        if (status == EIDER_OK) status = read_result(a, &result, out, &is_complete);
        if (status == EIDER_WORKER && !is_complete) status = fail_dead(exit_code, &words);
    }
    *is_stalled = process.is_stalled;
    eider_text_release(&result);
    eider_text_release(&words);
    return status;
}

eider_status eider_worker_compile(const eider_allocator *a, const eider_source *source,
                                  const char *config, const struct eider_codegen_job *job,
                                  int deadline_ms, struct eider_codegen_result *out)
{
    *out = (struct eider_codegen_result){0};
    EIDER_TRY(eider_codegen_init());
    if (deadline_ms <= 0) deadline_ms = DEADLINE_MS;
    uint64_t end = eider_emit_clock() + (uint64_t)deadline_ms * 1000000;
    eider_status status = EIDER_TIMEOUT;
    for (int attempt = 1; status == EIDER_TIMEOUT; attempt++) {
        uint64_t now = eider_emit_clock();
        int left_ms = now < end ? (int)((end - now) / 1000000) : 0;
        int is_stalled = 0;
        status = run_once(a, source, config, job, left_ms, attempt == ATTEMPTS, &is_stalled, out);
        if (!is_stalled) break;
    }
    if (status == EIDER_TIMEOUT)
        eider_fail(EIDER_TIMEOUT, "not compiled after %d ms, the worker was killed", deadline_ms);
    if (status != EIDER_OK && status != EIDER_OOM) {
        char target[EIDER_TARGET_TEXT_BYTES];
        eider_target_print(job->target, target);
        eider_fail_prefix("compiling %.200s for %s: ", job->entry, target);
    }
    return status;
}
