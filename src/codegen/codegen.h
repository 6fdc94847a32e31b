/* codegen.h -- an LLVM module to PTX, a cubin or host code.
 *
 * Invariants: nothing here touches a device; every function may be called from any
 * number of threads, each with its own LLVMContext and target machine; LLVM's messages
 * and diagnostics all pass through llvm_error.c.
 * Modules that eider's own templates built are compiled in this process.  Foreign IR is
 * compiled in a worker process (worker.h), since LLVM can abort on it.
 */
#ifndef EIDER_CODEGEN_CODEGEN_H
#define EIDER_CODEGEN_CODEGEN_H

#include <llvm-c/Types.h>

#include "cpu_abi.h"
#include "memory.h"
#include "target.h"

/* Registers the NVPTX and host targets, once per process.  Cheap afterwards.  Every
 * function that compiles or links does it itself. */
eider_status eider_codegen_init(void);

/* "19.1.7", of the LLVM that is linked. */
const char *eider_codegen_llvm_version(void);

/* "19.1.7 build 45a73837...": the same with the build id of the file that LLVM is in, for
 * keys; distributions patch LLVM without changing its version. */
const char *eider_codegen_llvm_build(void);

/* A hash of eider's own sources of generated code (cmake/code_digest.cmake), for keys. */
extern const char eider_code_digest[];

/* ---- Module to PTX or object -------------------------------------------- */

/* What a kernel's module needs beyond its IR. */
struct eider_codegen_job {
    struct eider_target target;
    const char *entry;
    uint32_t block_threads; /* .maxntid; 0: not stated */
    uint32_t registers;     /* .maxnreg; 0: not stated */
    uint32_t cluster;       /* blocks that run together, along x, from sm_90 on; 0: one by one */
    int ptx_version;        /* 78 is 7.8; 0: lowest that the target and the text need */
    int contract;
    int keep_opt;     /* fill opt_ir */
    int thread_style; /* CPU: foreign IR; see cpu_abi.h */
    int line_info;    /* foreign IR as text: instructions carry their lines (foreign_lines.h) */
    /* CPU, foreign IR: what its object will be linked with.  The worker tries that first,
     * since the linker, too, can abort; NULL: it does not. */
    const struct eider_cpu_hooks *hooks;
};

struct eider_codegen_result {
    struct eider_blob code;   /* PTX text, or an object file */
    struct eider_blob opt_ir; /* text after the pass pipeline, on request */
    int ptx_version;          /* as emitted; 0 for the CPU */
    uint64_t opt_ns, emit_ns;
};

/* Verifies, optimises and emits `module`, which is consumed in every case.  Fails with
 * EIDER_CODEGEN; any error diagnostic of LLVM counts as a failure.
 * Caller owns the blobs of *out. */
eider_status eider_codegen_emit(const eider_allocator *a, LLVMModuleRef module,
                                const struct eider_codegen_job *job,
                                struct eider_codegen_result *out);

/* The same, but code is the host's assembly text.  Fails with EIDER_UNSUPPORTED for a GPU. */
eider_status eider_codegen_assembly(const eider_allocator *a, LLVMModuleRef module,
                                    const struct eider_codegen_job *job,
                                    struct eider_codegen_result *out);

/* The pass pipeline's text, for keys. */
const char *eider_codegen_pipeline(void);

/* The newest PTX version that a driver of this version (13000 is 13.0) loads. */
int eider_ptx_version_of_driver(int driver);

/* What the kernel `entry` of `ptx` takes.  Fails with EIDER_CODEGEN when there is no such
 * kernel, naming those there are. */
eider_status eider_ptx_params(const char *ptx, const char *entry, struct eider_entry_params *out);

/* ---- PTX to cubin -------------------------------------------------------- */

/* An assembler that is present. */
struct eider_assembler_info {
    char name[32]; /* "nvptxcompiler", "ptxas", "nvjitlink" */
    char version[64];
    char path[512];
};

struct eider_assemble_job {
    struct eider_target target;
    const char *assembler; /* NULL or "auto": first of the order that is present */
    int contract;          /* 0: -fmad=false */
    int line_info;
    int deadline_ms; /* for spawned tools */
};

struct eider_assemble_result {
    struct eider_blob cubin;
    struct eider_assembler_info by;
    int registers, spill_bytes, shared_bytes; /* -1 where the log does not say */
    uint64_t ns;
};

/* Fails with EIDER_ASSEMBLER; the message holds the assembler's log and, when none is
 * present, every path tried.  "driver" is not an assembler here: the runtime loads PTX.
 * Caller owns out->cubin. */
eider_status eider_assemble(const eider_allocator *a, const struct eider_blob *ptx,
                            const struct eider_assemble_job *job,
                            struct eider_assemble_result *out);

/* Tools of eider_tool_find: 0 llvm, 1 nvptxcompiler, 2 ptxas, 3 nvjitlink, 4 nvdisasm;
 * 0 when there is none. */
int eider_codegen_tool(size_t i, eider_tool *out);

/* Which assembler `name` ("auto" or NULL: the first present) stands for.  Fails with
 * EIDER_ASSEMBLER. */
eider_status eider_assembler_find(const char *name, struct eider_assembler_info *out);

/* The same without a message; 0 when it is not there. */
int eider_assembler_look(const char *name, struct eider_assembler_info *out);

/* ---- Object to running host code ----------------------------------------- */

/* Linked host code, with its memory.  Caller owns: eider_cpu_image_release. */
struct eider_cpu_image;

/* Links `object` and finds `entry` (block style) or `<entry>.thread` (thread style).
 * `hooks` must outlive the image. */
eider_status eider_cpu_image_create(const eider_allocator *a, const struct eider_blob *object,
                                    const char *entry, int thread_style,
                                    const struct eider_cpu_hooks *hooks,
                                    struct eider_cpu_image **out, void **out_entry);
void eider_cpu_image_release(struct eider_cpu_image *image);

/* Thread style: bytes of the kernel's own shared variables.  A block's memory, what
 * hooks->shared gives, begins with them; dynamic shared memory follows.  It is aligned to
 * 128 bytes, and this is a multiple of 128. */
uint32_t eider_cpu_image_shared(const struct eider_cpu_image *image);

/* Thread style: what the kernel takes. */
const struct eider_entry_params *eider_cpu_image_params(const struct eider_cpu_image *image);

/* Where the image has a variable. */
eider_status eider_cpu_image_find(struct eider_cpu_image *image, const char *name, void **out);

/* "znver3 +avx2,...": name and features of the host, for keys. */
const char *eider_codegen_host(void);

/* ---- Foreign IR ----------------------------------------------------------- */

/* Compiles a source of kind LL, BITCODE or CALLBACK in a worker process: parse or build,
 * verify, optimise, emit.  `config` is handed to a callback.  EIDER_WORKER when the
 * worker dies (the message has its last words), EIDER_TIMEOUT after deadline_ms. */
eider_status eider_worker_compile(const eider_allocator *a, const eider_source *source,
                                  const char *config, const struct eider_codegen_job *job,
                                  int deadline_ms, struct eider_codegen_result *out);

/* ---- Processes ------------------------------------------------------------ */

/* Runs argv[0] with a clean environment (no LD_PRELOAD), `input` on stdin (may be NULL),
 * stdout and stderr collected together, killed at the deadline.  Fails with EIDER_IO
 * (cannot start), EIDER_TIMEOUT.  *exit_code is 128 + n for signal n. */
eider_status eider_spawn(const eider_allocator *a, const char *const *argv,
                         const struct eider_blob *input, int deadline_ms, struct eider_text *output,
                         int *exit_code);

/* The same for a tool with more to say than 1 MiB: at most `output_max` bytes are kept. */
eider_status eider_spawn_long(const eider_allocator *a, const char *const *argv,
                              const struct eider_blob *input, int deadline_ms, size_t output_max,
                              struct eider_text *output, int *exit_code);

#endif
