/* eider.h -- the public interface of eider, all of it.
 *
 * eider compiles a fusion program, such as "out = silu(gate) * up", into one
 * kernel at run time and launches it on a GPU or on the CPU.
 *
 * Conventions, valid for every function unless its comment says otherwise:
 *
 *   Errors     A function that can fail returns an eider_status.  When it is not
 *              EIDER_OK, eider_error() holds one sentence that names what was
 *              wrong, which value, and the limit; outputs are left untouched.
 *              No call aborts, exits or prints.
 *   Ownership  *caller owns*: release it with the function named there.
 *              *X owns*: valid until X is released; never release it yourself.
 *              *borrowed*: used during the call only.
 *              Release functions accept NULL.  Every object keeps its context
 *              alive only by the caller's discipline: destroy the context last.
 *   Threads    A context, program, device and kernel may be used by any number
 *              of threads at once.  A builder belongs to one thread at a time.
 *              Releasing an object while another thread uses it is an error of
 *              the caller.
 *   Units      Sizes are bytes, extents and strides are elements, times are
 *              nanoseconds; a name ends in its unit where that is not obvious.
 */
#ifndef EIDER_EIDER_H
#define EIDER_EIDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EIDER_VERSION_MAJOR 0
#define EIDER_VERSION_MINOR 1
#define EIDER_VERSION_PATCH 0

#if defined(__GNUC__)
#define EIDER_API __attribute__((visibility("default")))
#define EIDER_CHECKED __attribute__((warn_unused_result))
#else
#define EIDER_API
#define EIDER_CHECKED
#endif

/* ---- Status ------------------------------------------------------------- */

typedef enum eider_status {
#define EIDER_STATUS(name, value, text) EIDER_##name = value,
#include "eider/status.def"
} eider_status;

/* "EIDER_BAD_ARG"; "unknown status" for a value that is none.  Static. */
EIDER_API const char *eider_status_name(eider_status status);

/* "invalid argument".  Static. */
EIDER_API const char *eider_status_text(eider_status status);

/* The detail of the calling thread's last failed call: one sentence, then, where
 * a tool produced one, its log on further lines.  Never NULL; "" before the first
 * failure.  Valid until the same thread's next failing call. */
EIDER_API const char *eider_error(void);

/* "0.1.0" of the library that is running.  Static. */
EIDER_API const char *eider_version(void);

/* ---- Element types and tensors ------------------------------------------ */

typedef enum eider_dtype {
#define EIDER_DTYPE(name, value, text, bytes) EIDER_##name = value,
#include "eider/types.def"
} eider_dtype;

/* "bf16"; NULL for a value that is none.  Static. */
EIDER_API const char *eider_dtype_name(eider_dtype type);

/* Bytes of one element; 0 for a value that is none. */
EIDER_API size_t eider_dtype_size(eider_dtype type);

/* Reads "bf16" and the like.  Fails with EIDER_BAD_ARG. */
EIDER_API EIDER_CHECKED eider_status eider_dtype_parse(const char *text, eider_dtype *out);

#define EIDER_RANK_MAX 8

/* One operand of a launch: a view of memory that the caller owns.
 *
 * For an input or output, `data` points to memory of the device that runs the
 * kernel; it is the address of the element with all indices 0.  `shape` and
 * `strides` have `rank` entries and are read during the call only.  A stride is
 * in elements; 0 repeats, negative walks back.  `strides` NULL means row-major
 * contiguous.  `shape` may be NULL when `rank` is 0.
 * For a scalar parameter `rank` is 0 and `data` points to one value of `type` in
 * host memory, read during the call.
 * eider_prepare and eider_compile accept `data` NULL (then: 16-byte aligned). */
typedef struct eider_tensor {
    void *data;
    eider_dtype type;
    int32_t rank;
    const int64_t *shape;
    const int64_t *strides;
} eider_tensor;

/* ---- Context ------------------------------------------------------------ */

typedef struct eider_context eider_context;
typedef struct eider_program eider_program;
typedef struct eider_builder eider_builder;
typedef struct eider_device eider_device;
typedef struct eider_kernel eider_kernel;

/* All host memory of a context goes through one function (LLVM's own, that of
 * spawned tools, and that of single lines of JSON excepted).
 * `resize(user, ptr, old_size, new_size)` works like
 * realloc: ptr NULL allocates, new_size 0 frees and returns NULL; NULL otherwise
 * means out of memory.  Memory is aligned for any type.  Called from any thread,
 * never with a lock of eider held that a callback could want. */
typedef struct eider_allocator {
    void *(*resize)(void *user, void *ptr, size_t old_size, size_t new_size);
    void *user;
} eider_allocator;

/* Runs body(arg, i) for every i in [0, n), on any threads and in any order, and
 * returns when all have returned.  Called from the thread that launches. */
typedef void (*eider_parallel_for)(void *user, size_t n, void (*body)(void *arg, size_t i),
                                   void *arg);

/* Receives one line without a newline; `level` is 0 error, 1 warning, 2 info. */
typedef void (*eider_log)(void *user, int level, const char *line);

/* Zero-initialise, then set what matters. */
typedef struct eider_context_options {
    eider_allocator allocator; /* resize NULL: malloc */
    eider_log log;             /* NULL: silent */
    void *log_user;
    eider_parallel_for parallel_for; /* NULL: the context's own thread pool */
    void *parallel_user;
    int32_t cpu_threads;        /* 0: one per core the process may use */
    int32_t worker_deadline_ms; /* 0: 60000; for compiling foreign IR and for tools */
    const char *cuda_library;   /* NULL: EIDER_LIBCUDA, then libcuda.so.1 */
    /* The cache on disk (docs/CACHE.md). */
    const char *cache_dir;    /* NULL: by the environment; "": none */
    const char *cache_path;   /* read-only layers, "a:b"; NULL: EIDER_CACHE_PATH; "": none */
    uint64_t cache_max_bytes; /* 0: EIDER_CACHE_MAX_BYTES, then 1 GiB; UINT64_MAX: any */
    uint64_t cache_max_files; /* 0: EIDER_CACHE_MAX_FILES, then 65536 */
} eider_context_options;

/* Creates a context.  Touches no device and starts no thread.  `options` NULL
 * means all defaults.  Caller owns *out: eider_context_destroy. */
EIDER_API EIDER_CHECKED eider_status eider_context_create(const eider_context_options *options,
                                                          eider_context **out);

/* Releases the context and every compiled kernel in its cache.  Programs, devices
 * and kernels of the context must have been released.  Never calling it is
 * harmless: nothing runs at process exit. */
EIDER_API void eider_context_destroy(eider_context *ctx);

/* Counters since the context was created. */
typedef struct eider_counters {
    uint64_t compiles;    /* kernels compiled from IR */
    uint64_t memory_hits; /* prepares answered by a kernel already in memory */
    uint64_t waits;       /* prepares that waited for another thread's compile of their key */
    uint64_t launches;
    uint64_t empty_launches;  /* launches of an extent of 0 */
    uint64_t disk_hits;       /* kernels loaded from the cache on disk instead of compiled */
    uint64_t disk_absent;     /* kernels not found there, by reason: there is no such entry, */
    uint64_t disk_damaged;    /* the entry is not what was written, */
    uint64_t disk_unreadable; /* the file could not be read, */
    uint64_t disk_refused;    /* the entry is good but could not be loaded, */
    uint64_t disk_forced;     /* EIDER_FORCE_CACHE_UPDATE */
    uint64_t disk_read_bytes;
    uint64_t disk_writes; /* entries written, and their bytes */
    uint64_t disk_written_bytes;
    uint64_t disk_evictions; /* entries removed to keep the budgets */
    uint64_t disk_ns;        /* time spent reading entries that were hits */
    uint64_t ir_ns, opt_ns, ptx_ns, assemble_ns, load_ns; /* time spent in the stages */
} eider_counters;

EIDER_API void eider_context_counters(eider_context *ctx, eider_counters *out);

/* ---- Programs ----------------------------------------------------------- */

/* Parses a fusion program (docs/LANGUAGE.md).  Fails with EIDER_PARSE; the message
 * is "line:column: found X, expected Y".  Caller owns *out: eider_program_release. */
EIDER_API EIDER_CHECKED eider_status eider_program_parse(eider_context *ctx, const char *text,
                                                         eider_program **out);

/* Which gradients eider_program_grad produces. */
typedef struct eider_grad_options {
    const char *const *wrt; /* names of inputs; NULL: every floating input */
    size_t n_wrt;
    int32_t with_forward; /* nonzero: the forward outputs are outputs as well */
} eider_grad_options;

/* Derives the backward program.  Its operands are the inputs and scalars of
 * `program`, then for every output `o` an input `do` with the cotangent; its
 * outputs are `dx` for every input `x` asked for, in that order, then, on
 * request, the forward outputs.  An input that is declared to have one value per row
 * or column gets a gradient of that extent; another one that broadcasts gets the
 * gradient of the full iteration space: reduce it afterwards.  Fails with EIDER_BAD_ARG for a
 * name that is no floating-point input, and where two operands would have the
 * same name, with EIDER_UNSUPPORTED where pick takes elements from places whose inverse is
 * not known (docs/LANGUAGE.md).  Caller owns *out: eider_program_release. */
EIDER_API EIDER_CHECKED eider_status eider_program_grad(const eider_program *program,
                                                        const eider_grad_options *options,
                                                        eider_program **out);

/* Splits a program that no kernel computes at once because it has sums down the rows (colsum)
 * beside other outputs, or of what takes a reduction along the row; gradients of weights are such
 * sums.  `*columns` has the sums, `*rows` all other outputs and, as row1, row2, ..., what the sums
 * need of each row: outputs to launch first, which `*columns` has as inputs of these names (f32, or
 * f64 where the program computes so, keeps their digits).  Before these, both have all inputs and
 * scalars of the program.  Either is NULL where it would have no output.  EIDER_UNSUPPORTED where
 * the sums ask what equals such a value and rounding it would lose that, as the gradient of
 * amax(x * w) by a weight does.
 * Caller owns both: eider_program_release. */
EIDER_API EIDER_CHECKED eider_status eider_program_split(const eider_program *program,
                                                         eider_program **rows,
                                                         eider_program **columns);

EIDER_API void eider_program_release(eider_program *program);

/* The program as text; parsing it gives the same program.  Program owns. */
EIDER_API const char *eider_program_text(const eider_program *program);

typedef enum eider_operand_kind {
    EIDER_INPUT = 0,
    EIDER_SCALAR = 1,
    EIDER_OUTPUT = 2
} eider_operand_kind;

/* What a value differs for. */
typedef enum eider_extent {
    EIDER_FULL = 0, /* every element */
    EIDER_PER_ROW = 1,
    EIDER_PER_COLUMN = 2
} eider_extent;

typedef struct eider_operand {
    const char *name; /* program owns */
    eider_operand_kind kind;
    int32_t type; /* an eider_dtype where the text declares one, else -1 */
} eider_operand;

/* Operands in launch order: inputs and scalars as they first appear, then outputs. */
EIDER_API size_t eider_program_operands(const eider_program *program);

/* Operand `i`.  Fails with EIDER_BAD_ARG when there is none. */
EIDER_API EIDER_CHECKED eider_status eider_program_operand(const eider_program *program, size_t i,
                                                           eider_operand *out);

/* Whether it looks beyond single elements: reductions, pick, places, inputs per row or column. */
EIDER_API int32_t eider_program_over_rows(const eider_program *program);

/* What operand `i` has one value for: as an input is declared, as an output follows from the
 * text.  EIDER_FULL for scalars and where there is no operand `i`. */
EIDER_API eider_extent eider_program_extent(const eider_program *program, size_t i);

/* The shape of output `i` for the inputs' shapes: `args` has one tensor per operand, of which
 * rank and shape of inputs are read.  Inputs broadcast by NumPy's rules; an output of one value
 * per row has 1 as its last extent, one of a value per column has the last extent only.
 * `shape` has EIDER_RANK_MAX elements.  Fails with EIDER_SHAPE, EIDER_BAD_ARG. */
EIDER_API EIDER_CHECKED eider_status eider_program_shape(const eider_program *program,
                                                         const eider_tensor *args, size_t n_args,
                                                         size_t i, int32_t *rank, int64_t *shape);

/* Evaluates the program once, in double precision and independently of every
 * compiler: `in` has one value per input and scalar, `out` one per output, in
 * operand order.  Values of integer and bool operands are passed as doubles.
 * A program over rows has one row of one element here; see eider_program_eval_rows. */
EIDER_API EIDER_CHECKED eider_status eider_program_eval(const eider_program *program,
                                                        const double *in, double *out);

/* Doubles of one operand: element (row, col) is data[row * row_stride + col * col_stride]. */
typedef struct eider_doubles {
    double *data;
    int64_t row_stride, col_stride;
} eider_doubles;

/* The same for n_rows rows of n_cols elements: `operands` has one entry per operand; those of
 * outputs are written, the others are read. */
EIDER_API EIDER_CHECKED eider_status eider_program_eval_rows(const eider_program *program,
                                                             int64_t n_rows, int64_t n_cols,
                                                             const eider_doubles *operands);

/* ---- Builder ------------------------------------------------------------ */

/* A value under construction.  0 is poison: it is what a failed call returns, and
 * every call on it returns it again, so only eider_builder_finish needs a check. */
typedef uint32_t eider_value;

/* Caller owns *out: eider_builder_finish or eider_builder_discard. */
EIDER_API EIDER_CHECKED eider_status eider_builder_create(eider_context *ctx, eider_builder **out);

/* Declares an input tensor.  `type` is an eider_dtype or -1 for any. */
EIDER_API eider_value eider_builder_input(eider_builder *b, const char *name, int32_t type);

/* Declares an input that has one value per row or per column. */
EIDER_API eider_value eider_builder_input_of(eider_builder *b, const char *name, int32_t type,
                                             eider_extent extent);

/* Declares a run-time scalar. */
EIDER_API eider_value eider_builder_scalar(eider_builder *b, const char *name, int32_t type);

/* A literal.  Compiled into the kernel. */
EIDER_API eider_value eider_builder_number(eider_builder *b, double value);
EIDER_API eider_value eider_builder_integer(eider_builder *b, int64_t value);

/* Applies a primitive or an activation by name, such as "mul", "select" or "silu";
 * trailing arguments with defaults may be left out.  For a function of several
 * results this is the first; see eider_builder_result. */
EIDER_API eider_value eider_builder_call(eider_builder *b, const char *function,
                                         const eider_value *args, size_t n_args);

/* Result `i` of a call to a function of several results. */
EIDER_API eider_value eider_builder_result(eider_builder *b, eider_value call, uint32_t i);

/* Rounds to a storage type (round to nearest even; e4m3 and e5m2 saturate). */
EIDER_API eider_value eider_builder_cast(eider_builder *b, eider_value value, eider_dtype type);

/* Makes `value` the output `name`.  `type` is an eider_dtype or -1 for any. */
EIDER_API void eider_builder_output(eider_builder *b, const char *name, eider_value value,
                                    int32_t type);

/* Finishes the program and releases the builder, also on failure; the first
 * failure of any earlier call is what it returns.
 * Caller owns *out: eider_program_release. */
EIDER_API EIDER_CHECKED eider_status eider_builder_finish(eider_builder *b, eider_program **out);

EIDER_API void eider_builder_discard(eider_builder *b);

/* ---- Devices ------------------------------------------------------------ */

typedef struct eider_device_info {
    char name[64];   /* "NVIDIA H200", or the processor's name */
    char backend[8]; /* "cuda" or "cpu" */
    char target[16]; /* "sm_90", or LLVM's name of the host processor */
    int32_t ordinal;
    int32_t driver;    /* as cuDriverGetVersion gives it; 0 for the CPU */
    int32_t units;     /* multiprocessors, or threads of the pool */
    int32_t clock_khz; /* 0 where unknown */
    uint64_t memory_bytes;
    uint64_t l2_bytes; /* last-level cache for the CPU */
} eider_device_info;

/* How many devices `backend` ("cuda" or "cpu") has.  For "cuda" it fails with
 * EIDER_NO_DRIVER, naming every path tried, when there is no usable driver. */
EIDER_API EIDER_CHECKED eider_status eider_device_count(eider_context *ctx, const char *backend,
                                                        int32_t *out);

/* Opens "cpu", "cuda" or "cuda:N".  For a GPU this retains the device's primary
 * context.  Caller owns *out: eider_device_release. */
EIDER_API EIDER_CHECKED eider_status eider_device_open(eider_context *ctx, const char *name,
                                                       eider_device **out);

/* Uses a CUcontext of the caller, which must outlive the device. */
EIDER_API EIDER_CHECKED eider_status eider_device_from_cuda(eider_context *ctx, void *cu_context,
                                                            eider_device **out);

EIDER_API void eider_device_release(eider_device *device);

EIDER_API void eider_device_describe(const eider_device *device, eider_device_info *out);

/* Device memory for tools and tests; a framework brings its own.  The CPU's is
 * 64-byte aligned host memory.  Fails with EIDER_OOM. */
EIDER_API EIDER_CHECKED eider_status eider_memory_alloc(eider_device *device, size_t bytes,
                                                        void **out);
EIDER_API void eider_memory_free(eider_device *device, void *ptr);

typedef enum eider_copy_kind {
    EIDER_HOST_TO_DEVICE = 0,
    EIDER_DEVICE_TO_HOST = 1,
    EIDER_DEVICE_TO_DEVICE = 2
} eider_copy_kind;

/* Copies on `stream`; host copies have completed on return. */
EIDER_API EIDER_CHECKED eider_status eider_memory_copy(eider_device *device, void *stream, void *to,
                                                       const void *from, size_t bytes,
                                                       eider_copy_kind kind);

/* Waits for everything queued on `stream` (a CUstream; NULL is the legacy default
 * stream).  The CPU ignores streams and is always done. */
EIDER_API EIDER_CHECKED eider_status eider_stream_wait(eider_device *device, void *stream);

/* A non-blocking stream of our own; the CPU's is NULL. */
EIDER_API EIDER_CHECKED eider_status eider_stream_create(eider_device *device, void **out);
EIDER_API void eider_stream_destroy(eider_device *device, void *stream);

/* ---- Kernels ------------------------------------------------------------ */

typedef enum eider_math {
    EIDER_MATH_AUTO = 0, /* by the outputs: approx for 16 bits or fewer, else fast */
    EIDER_MATH_APPROX = 1,
    EIDER_MATH_FAST = 2,
    EIDER_MATH_EXACT = 3
} eider_math;

typedef enum eider_switch { EIDER_DEFAULT = 0, EIDER_OFF = 1, EIDER_ON = 2 } eider_switch;

/* What the numbers mean; part of every key and printed with every kernel. */
typedef struct eider_numerics {
    eider_math math;
    eider_switch ftz;      /* flush f32 subnormals; default off */
    eider_switch contract; /* a*b+c as one rounding, in LLVM and in the assembler; default on */
} eider_numerics;

typedef enum eider_source_kind {
    EIDER_SOURCE_LL = 0,      /* LLVM IR as text */
    EIDER_SOURCE_BITCODE = 1, /* LLVM 19 bitcode */
    EIDER_SOURCE_PTX = 2,     /* PTX text; GPU only */
    EIDER_SOURCE_CALLBACK = 3 /* a function that builds the module */
} eider_source_kind;

/* Builds a module in `llvm_context` (an LLVMContextRef) for a target triple, from
 * the canonical text of a config; returns an LLVMModuleRef, or NULL after writing
 * a reason into `reason`.  Runs in the worker process: see eider_source. */
typedef void *(*eider_build_module)(void *user, void *llvm_context, const char *triple,
                                    const char *config, char *reason, size_t reason_size);

/* IR that eider did not write.  Such IR can make LLVM abort, so it is compiled in a
 * worker process with a deadline (EIDER_WORKER, EIDER_TIMEOUT).  A callback runs in a
 * fork of the calling process.  What it built is kept on disk by `identity` and config, so
 * the identity must change whenever the callback builds something else.  The kernel
 * receives, in launch order, one pointer per input and output and one value per scalar.
 * Its parameters must be as many and as large (EIDER_BAD_ARG); who only compiles may name
 * no operands. */
typedef struct eider_source {
    eider_source_kind kind;
    const void *data;  /* text or bytes; NULL for a callback */
    size_t size;       /* 0: strlen(data) for LL and PTX */
    const char *entry; /* name of the kernel function */
    eider_build_module build;
    void *build_user;
    const char *identity;  /* callback: what names it in keys, such as "mykernel-v3" */
    uint32_t block[3];     /* threads; 0 counts as 1 */
    uint32_t shared_bytes; /* dynamic shared memory */
    size_t n_operands;
    const eider_operand *operands;
} eider_source;

/* What to compile.  Zero-initialise, then set `program` or `source`. */
typedef struct eider_request {
    const eider_program *program;
    const eider_source *source;
    const eider_tensor *args; /* one per operand: what the kernel is specialised for */
    size_t n_args;
    eider_numerics numerics;
    const char *config;    /* "vec=8,block=256"; what is not named follows the default rule */
    const char *target;    /* eider_compile only: "sm_90", "sm_90a", "cpu", ... */
    const char *assembler; /* NULL, "auto", "nvptxcompiler", "ptxas", "nvjitlink", "driver" */
    int32_t line_info;     /* nonzero: map machine code to IR lines; same code */
    int32_t any_layout;    /* nonzero: accept any strides up to the rank of `args` */
    int32_t checked;       /* nonzero: record places outside of a row, see eider_kernel_check;
                            * a tuning times kernels without */
} eider_request;

/* Finds what `request` describes for `device` in memory or on disk, or builds it.  May
 * compile, allocate, load and use files; takes tens of milliseconds when it compiles.
 * While a stream is being captured it loads in the driver's relaxed capture mode, and the
 * capture stays valid; EIDER_CAPTURING is what a driver gives that refuses even that.
 * Caller owns *out: eider_kernel_release. */
EIDER_API EIDER_CHECKED eider_status eider_prepare(eider_device *device,
                                                   const eider_request *request,
                                                   eider_kernel **out);

/* The same for `request->target`, without a device: the kernel can be looked at but
 * not launched.  Caller owns *out: eider_kernel_release. */
EIDER_API EIDER_CHECKED eider_status eider_compile(eider_context *ctx, const eider_request *request,
                                                   eider_kernel **out);

/* Launches on `stream` (a CUstream; NULL is the legacy default stream), asynchronously
 * on a GPU and synchronously on the CPU.  `args` has one entry per operand, in operand
 * order.  Compiles nothing, never waits for another thread, and allocates nothing but, where the
 * config says split, memory on the stream, which it gives back there.
 *   EIDER_NOT_PREPARED  types, rank or strides are not those of the kernel, or offsets
 *                       need 64 bits where it has 32; a stream under capture stays valid
 *   EIDER_SHAPE         shapes do not broadcast to those of the outputs
 *   EIDER_OVERLAP       an output overlaps itself or, other than exactly, an input
 *   EIDER_OOM           with split only
 * A pointer with less alignment than the kernel was prepared for is not an error.
 * An extent of 0 launches nothing and succeeds. */
EIDER_API EIDER_CHECKED eider_status eider_launch(const eider_kernel *kernel, void *stream,
                                                  const eider_tensor *args, size_t n_args);

/* Launches a kernel of an eider_source with a grid given by the caller. */
EIDER_API EIDER_CHECKED eider_status eider_launch_grid(const eider_kernel *kernel, void *stream,
                                                       const uint32_t grid[3],
                                                       const eider_tensor *args, size_t n_args);

/* Runs the launch `n` times and gives the time of each in nanoseconds: by events on a
 * GPU, by the clock on the CPU.  `flush` nonzero: the L2 cache is overwritten before
 * each.  Waits for the stream. */
EIDER_API EIDER_CHECKED eider_status eider_time(const eider_kernel *kernel, void *stream,
                                                const eider_tensor *args, size_t n_args, int32_t n,
                                                int32_t flush, double *out_ns);

/* What launches of a kernel that was prepared `checked` have found since it was last asked.
 * Waits for `stream`; fails with EIDER_OUTSIDE, naming the first row in which a place that
 * `pick` was given lies outside, the place and the row's length.  A launch itself never fails for
 * that, and never reads there.  Every place counts, also where the program drops what it picks.
 * A kernel that was not prepared so, or picks nothing, has found nothing. */
EIDER_API EIDER_CHECKED eider_status eider_kernel_check(const eider_kernel *kernel, void *stream);

EIDER_API void eider_kernel_release(eider_kernel *kernel);

typedef struct eider_kernel_info {
    const char *entry;     /* kernel owns, as all strings here */
    const char *target;    /* "sm_90" */
    const char *config;    /* the complete canonical config */
    const char *numerics;  /* "math=approx,ftz=off,contract=on" */
    const char *assembler; /* "nvptxcompiler 13.0.88"; "" for the CPU */
    const char *manifest;  /* the ingredients of the key, one per line */
    const char *key;       /* 32 hexadecimal digits */
    int32_t registers;     /* per thread; -1 where unknown, as below */
    int32_t spill_bytes;
    int32_t shared_bytes;
    int32_t index_bits;                                   /* 32 or 64 */
    uint64_t ir_ns, opt_ns, ptx_ns, assemble_ns, load_ns; /* 0: the stage did not run */
    uint64_t disk_ns; /* reading it from the cache on disk; 0: it was compiled */
} eider_kernel_info;

EIDER_API void eider_kernel_describe(const eider_kernel *kernel, eider_kernel_info *out);

typedef enum eider_stage {
    EIDER_STAGE_PROGRAM = 0, /* the program's text */
    EIDER_STAGE_IR = 1,      /* LLVM IR as built */
    EIDER_STAGE_OPT = 2,     /* after the pass pipeline */
    EIDER_STAGE_PTX = 3,     /* PTX, or assembly of the CPU */
    EIDER_STAGE_CUBIN = 4    /* the bytes that are loaded: a cubin, or an object file */
} eider_stage;

/* The kernel at a stage.  IR and OPT are rebuilt on demand.  Kernel owns *out; text is
 * NUL-terminated beyond *size.  Fails with EIDER_UNSUPPORTED where a stage does not
 * exist, as PROGRAM does not for a kernel of an eider_source. */
EIDER_API EIDER_CHECKED eider_status eider_kernel_stage(eider_kernel *kernel, eider_stage stage,
                                                        const void **out, size_t *size);

/* Bytes that a launch must move at least: each input read once, each output written. */
EIDER_API EIDER_CHECKED eider_status eider_kernel_bytes(const eider_kernel *kernel,
                                                        const eider_tensor *args, size_t n_args,
                                                        uint64_t *out);

/* ---- The cache on disk --------------------------------------------------- */

/* Where kernels are kept: a directory of the user's and, before it, layers that are only
 * read (docs/CACHE.md).  Context owns the strings. */
typedef struct eider_cache_info {
    const char *directory; /* "" where there is none */
    size_t n_layers;
    uint64_t max_bytes, max_files; /* the budgets; UINT64_MAX: no limit */
    uint64_t bytes, files;         /* in the directory now */
} eider_cache_info;

EIDER_API EIDER_CHECKED eider_status eider_cache_describe(eider_context *ctx,
                                                          eider_cache_info *out);

/* Path of layer `i`, a directory or an archive; NULL when there is none.  Context owns. */
EIDER_API const char *eider_cache_layer(eider_context *ctx, size_t i);

/* One kernel on disk.  All pointers are valid during the visit only. */
typedef struct eider_cache_entry {
    const char *key;
    const char *path; /* of its file, or of the archive that it is in */
    size_t layer;     /* which layer; their number for the user's directory */
    uint64_t bytes;
    int64_t used_s;      /* last use in seconds since 1970, to a day; of an archive, its own */
    const char *problem; /* NULL, or why it cannot be used; then what follows is empty */
    const char *manifest, *entry;
    const char *ptx; /* NUL-terminated, as is opt_ir; "" where there is none */
    const void *code;
    const char *opt_ir;
    size_t ptx_size, code_size, opt_ir_size;
    int32_t registers, spill_bytes, shared_bytes; /* -1 where unknown */
} eider_cache_entry;

/* Returns nonzero to end the walk. */
typedef int32_t (*eider_cache_visit)(void *user, const eider_cache_entry *entry);

/* Reads and checks every entry whose key begins with `key` (NULL: all), of the layers, then
 * of the directory.  Compiles, changes and warns of nothing. */
EIDER_API EIDER_CHECKED eider_status eider_cache_each(eider_context *ctx, const char *key,
                                                      eider_cache_visit visit, void *user);

/* An ingredient that differs between a request and an entry; "" where one has none. */
typedef struct eider_cache_difference {
    const char *name, *wanted, *kept;
} eider_cache_difference;

/* Why a request is found on disk, or not. */
typedef struct eider_cache_explanation {
    const char *key, *manifest; /* of the request */
    int32_t is_hit;
    const char *nearest;  /* key of the entry, or of the most similar one; "" for none at all */
    size_t n_differences; /* between the request and that entry */
    const eider_cache_difference *differences;
} eider_cache_explanation;

/* `device` may be NULL: then the request names the target.  Compiles nothing.
 * Caller owns *out: eider_cache_explanation_release. */
EIDER_API EIDER_CHECKED eider_status eider_cache_explain(eider_context *ctx, eider_device *device,
                                                         const eider_request *request,
                                                         eider_cache_explanation **out);
EIDER_API void eider_cache_explanation_release(eider_cache_explanation *explanation);

/* Removes the entries of the directory that were used longest ago until at most so many
 * bytes and files remain, and what killed processes left behind. */
EIDER_API EIDER_CHECKED eider_status eider_cache_prune(eider_context *ctx, uint64_t max_bytes,
                                                       uint64_t max_files, uint64_t *out_files);

/* Writes every good entry whose key begins with `key` (NULL: all), of all layers and the
 * directory, to one file: an archive, to be imported elsewhere or named as a layer.
 * Fails with EIDER_IO. */
EIDER_API EIDER_CHECKED eider_status eider_cache_export(eider_context *ctx, const char *key,
                                                        const char *path, uint64_t *out_files);

/* Copies every entry of an archive into the directory.  Fails with EIDER_IO when the archive or
 * one of its entries is damaged, or nothing can be written; what was good is there then. */
EIDER_API EIDER_CHECKED eider_status eider_cache_import(eider_context *ctx, const char *path,
                                                        uint64_t *out_files);
/* ---- Tuning ------------------------------------------------------------- */

/* docs/TUNING.md explains spaces, conditions, triggers and records. */

typedef enum eider_search {
    EIDER_SEARCH_AUTO = 0, /* exhaustive up to 128 configs, else directed */
    EIDER_SEARCH_EXHAUSTIVE = 1,
    EIDER_SEARCH_RANDOM = 2,  /* `limit` configs, by `seed` */
    EIDER_SEARCH_DIRECTED = 3 /* `limit` configs: the default rule's, those that often win and some
                               * by `seed`, then by a model of what they gave so far */
} eider_search;

/* A functional trigger: `name = value` becomes part of the key. */
typedef struct eider_tune_function {
    const char *name;
    int64_t (*call)(void *user, const eider_tensor *args, size_t n_args);
    void *user;
} eider_tune_function;

/* How a kernel of an eider_source is launched. */
typedef struct eider_geometry {
    uint32_t grid[3];
    uint32_t block[3]; /* 0 counts as 1 */
    uint32_t shared_bytes;
} eider_geometry;

/* Where a tuning stands. */
typedef struct eider_tune_progress {
    const char *stage;  /* "compile", "check", "time"; static */
    const char *config; /* what is being worked on, or the best so far */
    size_t done, total; /* of this stage */
    size_t n_candidates;
    double best_ns; /* 0: nothing was timed yet */
    double elapsed_s;
} eider_tune_progress;

/* One launch, for a timer of the caller. */
typedef eider_status (*eider_tune_run)(void *run);

/* What the caller may do during a tuning.  All may be NULL; all get `user`, are called from
 * the thread that tunes, and may not tune themselves. */
typedef struct eider_tune_hooks {
    void *user;
    /* Nonzero keeps the config. */
    int32_t (*accepts)(void *user, const char *config, const eider_tensor *args, size_t n_args);
    /* A guess of the config's time, in any unit; NaN is the worst. */
    double (*predict)(void *user, const char *config, const eider_tensor *args, size_t n_args);
    /* Nonzero zeroes operand `i`, one of `reset_to_zero`, before each run of the config. */
    int32_t (*resets)(void *user, size_t i, const char *config);
    /* Around every run, never in the time; `args` are the tuner's scratch operands. */
    void (*before_run)(void *user, const char *config, const eider_tensor *args, size_t n_args);
    void (*after_run)(void *user, const char *config, const eider_tensor *args, size_t n_args);
    /* Calls run(arg) once and gives its time, instead of the backend's clock. */
    eider_status (*timer)(void *user, eider_tune_run run, void *arg, double *out_ns);
    /* The geometry of a source, instead of the expressions. */
    eider_status (*geometry)(void *user, const char *config, const eider_tensor *args,
                             size_t n_args, eider_geometry *out);
    /* Called now and then; nonzero cancels (EIDER_CANCELLED). */
    int32_t (*progress)(void *user, const eider_tune_progress *progress);
} eider_tune_hooks;

/* What to tune and how.  Zero-initialise, then set `kernel` and what matters. */
typedef struct eider_tune_request {
    /* The kernel.  Its `config` fixes parameters; its `args` are what is tuned for.  Inputs
     * with `data` are read, never written; without, they are made up.  Outputs are never
     * touched.  Text of a source may hold ${name}, replaced by the config's value. */
    const eider_request *kernel;

    /* The candidates: every combination of `space`, and `configs`.  Neither: a space of the
     * template's parameters, and the default rule's. */
    const char *space; /* "vec=4|8,unroll=1|2|4" */
    const char *const *configs;
    size_t n_configs;
    const char *condition; /* "vec * unroll <= 16 && x.size(-1) % vec == 0" */
    int32_t keep;          /* those of which hooks.predict expects most; 0: all */

    /* What retunes, in any order: "x.dtype, x.size(1), pow2(x.size(0))".  NULL: the next
     * power of two of every output's elements.  Always in the key: the kernel (program or
     * source, layout, numerics, assembler), alignment, device, driver and `hot`. */
    const char *triggers;
    const eider_tune_function *functions;
    size_t n_functions;

    eider_search search;
    uint64_t seed;
    int32_t limit;        /* configs that are timed at most; 0: 60 when not exhaustive */
    double budget_s;      /* 0: 60; the best so far is taken when it ends */
    int32_t hot;          /* nonzero: the L2 cache keeps what the last run left */
    int32_t warm_up_ms;   /* of the device, before timing; 0: 50; negative: none */
    int32_t warm_up_runs; /* of each config, before its first time, on top of the checked one */
    int32_t rounds;       /* times of a config that stays in the race; 0: 10 */
    double repeat_ms;     /* instead: as many as take the fastest this long; 0: `rounds` */
    double tie;           /* configs this much slower count as equal; 0: 0.01 */

    /* Numbers.  A candidate whose outputs differ from those of the reference config, or that
     * writes beyond them, is rejected. */
    const char *reference;     /* NULL: the default rule; of a source the first candidate */
    int32_t check_program;     /* nonzero: compare the reference with eider_program_eval */
    double tolerance;          /* 0: bits must be equal, but for how sums are rounded.  Else
                                     * |difference| may be this times max(1, |value|), and math
                                     * modes are candidates */
    const char *restore;       /* operands that are put back before every run: "x,y" */
    const char *reset_to_zero; /* operands that are zeroed before every run */

    /* Of a source: expressions over operands and parameters, one to three, with commas. */
    const char *grid;   /* "ceil_div(x.count, 256 * vec)" */
    const char *block;  /* NULL: the source's */
    const char *shared; /* NULL: the source's */

    const char *records;     /* folder of timings; NULL: EIDER_HOME's */
    int32_t no_records;      /* nonzero: neither read nor write files */
    int32_t force;           /* nonzero: forget earlier timings of this key */
    int32_t pinned;          /* nonzero: never time, never compile */
    int32_t job_deadline_ms; /* how long to wait for another that tunes it; 0: 120000 */

    void *stream; /* where the inputs come from; is waited for */
    eider_tune_hooks hooks;
} eider_tune_request;

typedef enum eider_tune_outcome {
    EIDER_TUNE_UNTRIED = 0,
    EIDER_TUNE_TIMED = 1,
    EIDER_TUNE_STOPPED = 2, /* timed, and dropped early: far behind */
    EIDER_TUNE_WRONG = 3,   /* the gate rejected it */
    EIDER_TUNE_FAILED = 4   /* it could not be built or run */
} eider_tune_outcome;

/* What one candidate gave. */
typedef struct eider_tune_entry {
    const char *config;
    eider_tune_outcome outcome;
    const char *reason;       /* of WRONG and FAILED; else "" */
    const double *samples_ns; /* ascending */
    const int32_t *clock_khz; /* when the sample beside it was taken; 0: unknown */
    size_t n_samples;
    double median_ns, p20_ns, p80_ns;
    int32_t recorded; /* nonzero: nothing of it was measured in this call */
} eider_tune_entry;

typedef enum eider_tune_end {
    EIDER_TUNE_COMPLETE = 0, /* the search ended by itself */
    EIDER_TUNE_BUDGET = 1,   /* the time was over */
    EIDER_TUNE_SINGLE = 2,   /* one candidate: nothing to choose */
    EIDER_TUNE_RECORDED = 3  /* the choice was known */
} eider_tune_end;

typedef struct eider_tune_summary {
    const char *config;   /* the choice: for eider_request.config */
    eider_math math;      /* for eider_request.numerics */
    const char *key;      /* 32 hexadecimal digits */
    const char *key_text; /* its ingredients, one per line */
    eider_tune_end end;
    double median_ns; /* of the choice; 0: not timed */
    int32_t noisy;    /* nonzero: the middle 60 % of the choice's times spread over 20 % */
    size_t n_entries, n_timed, n_recorded, n_wrong, n_failed;
    size_t choice;           /* its entry */
    eider_geometry geometry; /* of a source */
    double compile_s, check_s, time_s, total_s;
} eider_tune_summary;

typedef struct eider_tuning eider_tuning;

/* Finds the fastest config that gives the right numbers.  Timings of earlier calls, of this
 * and other processes, are used; what is missing is compiled on all cores, checked and timed
 * in turns; then everything is recorded.  One candidate is taken without any of that.
 * Fails with
 *   EIDER_PARSE         a space, condition, trigger or geometry is malformed; says where
 *   EIDER_CONFIG        no candidate is valid, or a fixed parameter is not in the space
 *   EIDER_NOT_PREPARED  `pinned`, and nothing is recorded for the key, which it names
 *   EIDER_CAPTURING     `stream` is being captured; it stays valid
 *   EIDER_CANCELLED     `progress` said so; what was measured is recorded
 *   EIDER_TIMEOUT       another process tunes the same and did not end; or the budget ended
 *                       before anything was timed, and the reference is no candidate
 * and, when no candidate works, with the first one's failure.
 * Calls on one context take turns.  Caller owns *out: eider_tune_release. */
EIDER_API EIDER_CHECKED eider_status eider_tune(eider_device *device,
                                                const eider_tune_request *request,
                                                eider_tuning **out);

/* The recorded choice for a call, or EIDER_NOT_PREPARED: as with `pinned`.  eider_prepare
 * itself never looks: pass the choice's config and math in its request.
 * Caller owns *out: eider_tune_release. */
EIDER_API EIDER_CHECKED eider_status eider_tune_lookup(eider_device *device,
                                                       const eider_tune_request *request,
                                                       eider_tuning **out);

EIDER_API void eider_tune_release(eider_tuning *tuning);

/* Strings and samples are the tuning's. */
EIDER_API void eider_tune_describe(const eider_tuning *tuning, eider_tune_summary *out);

/* Entry `i`, in the order of configs.  Fails with EIDER_BAD_ARG when there is none. */
EIDER_API EIDER_CHECKED eider_status eider_tune_entry_get(const eider_tuning *tuning, size_t i,
                                                          eider_tune_entry *out);

/* Quantile `q` in [0, 1] of an entry's samples, interpolated; 0 without samples. */
EIDER_API double eider_tune_quantile(const eider_tune_entry *entry, double q);

/* Timings as files of JSON lines.  `records` names the folder, NULL that of EIDER_HOME.
 * Writes all timings, or those of one key (32 digits), sorted.  Fails with EIDER_IO. */
EIDER_API EIDER_CHECKED eider_status eider_tune_export(eider_context *ctx, const char *records,
                                                       const char *key, const char *file);

/* Adds the timings of a file to the records.  What is there already is not added twice. */
EIDER_API EIDER_CHECKED eider_status eider_tune_import(eider_context *ctx, const char *records,
                                                       const char *file);

/* Writes the timings of both files, each once and sorted, so that the order of the two does
 * not matter. */
EIDER_API EIDER_CHECKED eider_status eider_tune_merge(eider_context *ctx, const char *a,
                                                      const char *b, const char *file);

/* ---- Machine code of GPUs (SASS) ------------------------------------------ */

/* What machine code is and costs; docs/SASS.md explains every number.  Immutable, so any
 * number of threads may read it.  Owns all strings below, and outlives the kernel. */
typedef struct eider_sass eider_sass;

/* Numbers are 0 or from 2^-30 to 2^40. */
typedef struct eider_sass_options {
    const char *entry;   /* which kernel of a cubin; NULL: its only one */
    double elements;     /* that one pass of a thread yields; 0: the program's, else 1 */
    double bytes;        /* that an element moves to and from memory; 0: the program's, else
                         * what the accesses of the pass move */
    double gbytes_per_s; /* memory's rate; 0: that of the table of devices */
    const eider_device_info *device; /* 0 units or clock, or NULL: the table's */
} eider_sass_options;

/* Takes the machine code of a kernel apart: the bytes that are loaded.  Spawns nvdisasm,
 * and compiles the program once more, with line information, to attribute instructions to
 * its terms; that attribution is used only where it gives the same bytes.  `options` may
 * be NULL.  Fails with EIDER_UNSUPPORTED for the CPU and where the driver has assembled the
 * kernel, and with EIDER_IO, naming every path tried, where there is no nvdisasm.
 * Caller owns *out: eider_sass_release. */
EIDER_API EIDER_CHECKED eider_status eider_kernel_sass(eider_kernel *kernel,
                                                       const eider_sass_options *options,
                                                       eider_sass **out);

/* The same for a cubin of any origin.  Fails with EIDER_BAD_ARG, naming its kernels, where
 * `entry` does not name one. */
EIDER_API EIDER_CHECKED eider_status eider_sass_read(eider_context *ctx, const void *cubin,
                                                     size_t size, const eider_sass_options *options,
                                                     eider_sass **out);

EIDER_API void eider_sass_release(eider_sass *sass);

/* The *pass* is what a thread does again and again: the body of the kernel's loop over its
 * data, or the whole straight way through where it has none; of a program's kernel that of
 * whole tiles. */
typedef struct eider_sass_summary {
    const char *entry, *target; /* "sm_90" */
    const char *hash;           /* XXH3-128 of the instructions, 32 hexadecimal digits */
    const char *disassembler;   /* "nvdisasm 13.2.86, JSON 13.2.0" */
    const char *attribution;    /* "terms", "lines", or why there is none */
    const char *assumptions;    /* what the rates are those of: "NVIDIA H200, 132 x 1980 MHz" */
    uint32_t n_instructions;    /* of the whole kernel, without padding */
    uint32_t n_pass;            /* of the pass */
    double elements;            /* that a thread yields in a pass */
    double bytes;               /* that an element moves */
    int32_t registers, barriers;
    int32_t local_bytes;              /* per thread: stack, spills */
    int32_t spill_bytes;              /* -1 unknown */
    int32_t shared_bytes;             /* per block, static and, of a kernel, dynamic */
    int32_t block_threads;            /* the most that a block may have */
    int32_t blocks, warps, warps_max; /* resident on a multiprocessor */
    const char *occupancy_limit;      /* "registers", "warps", "blocks", "shared memory" */
    int32_t pass_cycles;              /* sum of the stall counts of the pass: a warp alone */
    const char *bound;                /* name of the limit below that allows the least */
    double elements_per_s;            /* that it allows */
    double gbytes_per_s;
} eider_sass_summary;

EIDER_API void eider_sass_describe(const eider_sass *sass, eider_sass_summary *out);

/* The rows below: each function gives row `i` and returns 1, or 0 when there is none. */

typedef struct eider_sass_instruction {
    uint32_t offset;
    uint64_t words[2];
    const char *predicate; /* "@!P0" or "" */
    const char *opcode;    /* "MUFU.TANH" */
    const char *operands;  /* "R7, R6" */
    const char *unit;      /* name of an eider_sass_limit */
    int8_t stall;          /* cycles until the next instruction of the warp may issue */
    int8_t yield;          /* nonzero: the scheduler may change the warp */
    int8_t write_barrier;  /* released when the result is there; -1 none */
    int8_t read_barrier;   /* released when the operands have been read; -1 none */
    uint8_t wait;          /* bit b: waits for barrier b */
    uint8_t reuse;         /* bit k: operand k is kept in the reuse cache */
    int8_t in_pass;
    int8_t in_tail;          /* of a program: belongs to the loop over single elements */
    int32_t term;            /* an eider_sass_term, or -1 */
    uint32_t line, ptx_line; /* of the source (line information) and of the PTX; 0 unknown */
    int32_t branches_to;     /* an instruction, or -1 */
} eider_sass_instruction;

EIDER_API int32_t eider_sass_code(const eider_sass *sass, size_t i, eider_sass_instruction *out);

/* How often an opcode occurs in the pass, most frequent first. */
typedef struct eider_sass_opcode {
    const char *opcode, *unit;
    uint32_t n;
    double per_element;
    double in_terms; /* per element; of that, what computes the program's terms */
} eider_sass_opcode;

EIDER_API int32_t eider_sass_opcodes(const eider_sass *sass, size_t i, eider_sass_opcode *out);

/* Accesses of the pass to memory. */
typedef struct eider_sass_access {
    const char *space;  /* "global", "shared", "local", "constant" */
    const char *policy; /* what the opcode says besides the width: "EF", "CONSTANT"; "" plain */
    int32_t is_store;
    int32_t width; /* bytes per thread */
    uint32_t n;
} eider_sass_access;

EIDER_API int32_t eider_sass_accesses(const eider_sass *sass, size_t i, eider_sass_access *out);

typedef enum eider_sass_kind {
    EIDER_SASS_TERM = 0,    /* of the program, as written */
    EIDER_SASS_STEP = 1,    /* an operation that a term became */
    EIDER_SASS_ADDRESS = 2, /* finding out where elements lie, and which there are */
    EIDER_SASS_LOAD = 3,
    EIDER_SASS_CONVERT = 4, /* between an operand's type and that of arithmetic */
    EIDER_SASS_STORE = 5,
    EIDER_SASS_LINE = 6,   /* of IR or PTX that eider did not write */
    EIDER_SASS_UNKNOWN = 7 /* without line information */
} eider_sass_kind;

/* What instructions are for. */
typedef struct eider_sass_term {
    eider_sass_kind kind;
    const char *text;    /* "silu(gate)", "t2 = tanh(t1)", "load gate" */
    int32_t parent;      /* of a step: its term; else -1 */
    uint32_t line;       /* in the text it is a line of; 0 for terms and steps */
    double per_element;  /* instructions of the pass; of a term, those of its steps */
    const char *opcodes; /* "1 MUFU.TANH, 0.5 F2FP.BF16.F32.PACK_AB", per element */
    const char *units;   /* "1 MUFU, 0.5 conversion" */
} eider_sass_term;

EIDER_API int32_t eider_sass_terms(const eider_sass *sass, size_t i, eider_sass_term *out);

/* How fast a unit, the schedulers ("issue") or the memory would let the kernel be alone. */
typedef struct eider_sass_limit {
    const char *name;
    double per_element;    /* instructions, or bytes of memory */
    double rate;           /* per clock and multiprocessor; GB/s of memory; 0: not known */
    double elements_per_s; /* infinite where it has nothing to do */
    double gbytes_per_s;   /* the same as bytes of memory */
    const char *source;    /* of the rate */
} eider_sass_limit;

EIDER_API int32_t eider_sass_limits(const eider_sass *sass, size_t i, eider_sass_limit *out);

/* A line of the IR or the PTX that the machine code came from. */
typedef struct eider_sass_line {
    const char *text;
    int32_t term; /* an eider_sass_term, or -1 */
    int8_t in_tail;
} eider_sass_line;

/* Line `i` of `stage`, EIDER_STAGE_IR or EIDER_STAGE_PTX, without line information itself. */
EIDER_API int32_t eider_sass_source(const eider_sass *sass, eider_stage stage, size_t i,
                                    eider_sass_line *out);

/* What makes kernels slow and is easily overlooked. */
typedef struct eider_sass_warning {
    const char *name; /* "call", "local-memory", ...: docs/SASS.md */
    const char *text;
    int32_t instruction; /* the first one, or -1 */
    uint32_t n;
} eider_sass_warning;

EIDER_API int32_t eider_sass_warnings(const eider_sass *sass, size_t i, eider_sass_warning *out);

/* One claim of a budget, such as "FMUL<=5" of "MUFU.TANH=1, FMUL<=5, FFMA<=3".  A name
 * stands for every opcode that continues it after a dot, or for a unit; only arithmetic
 * of the program's terms counts, where those are known. */
typedef struct eider_sass_claim {
    char name[48];
    char relation[3]; /* "=", "<", "<=", ">", ">=" */
    double want, got; /* per element */
    int32_t holds;
} eider_sass_claim;

/* Claim `i` of `budget`; out->name is "" when there is none.  Fails with EIDER_PARSE. */
EIDER_API EIDER_CHECKED eider_status eider_sass_expect(const eider_sass *sass, const char *budget,
                                                       size_t i, eider_sass_claim *out);

/* Two kernels side by side, whatever their registers and addresses are called. */
typedef struct eider_sass_diff eider_sass_diff;

/* Caller owns *out: eider_sass_diff_release. */
EIDER_API EIDER_CHECKED eider_status eider_sass_compare(const eider_sass *before,
                                                        const eider_sass *after,
                                                        eider_sass_diff **out);
EIDER_API void eider_sass_diff_release(eider_sass_diff *diff);

/* A line: " " both, "-" only before, "+" only after. */
typedef struct eider_sass_change {
    char sign;
    int32_t before, after; /* instructions, or -1 */
    const char *text;      /* registers and addresses without their numbers */
} eider_sass_change;

EIDER_API int32_t eider_sass_changes(const eider_sass_diff *diff, size_t i, eider_sass_change *out);

/* ---- Tables ------------------------------------------------------------- */

typedef enum eider_table {
    EIDER_TABLE_ACTIVATIONS = 0,
    EIDER_TABLE_OPS = 1,
    EIDER_TABLE_PARAMS = 2,
    EIDER_TABLE_KERNELS = 3
} eider_table;

/* One row of what the library knows.  All strings are static. */
typedef struct eider_row {
    const char *name;
    const char *signature; /* "dx, dy, out = dswiglu(x, y, dout)"; "vec = 1|2|4|8|16" */
    const char *text;      /* definition of an activation; "" where there is none */
    const char *doc;
} eider_row;

/* Row `i` of a table.  Returns 0 when there is none, else 1. */
EIDER_API int32_t eider_table_row(eider_table table, size_t i, eider_row *out);

/* Something looked for at run time: the driver, an assembler, a disassembler. */
typedef struct eider_tool {
    const char *name; /* "ptxas"; static */
    int32_t found;
    char version[64];
    char path[512];   /* what is used; "" when not found */
    char tried[2048]; /* every path tried and why it was not taken, one per line */
} eider_tool;

/* Tool `i`, looked for anew.  Returns 0 when there is none, else 1.  May spawn
 * processes. */
EIDER_API int32_t eider_tool_find(eider_context *ctx, size_t i, eider_tool *out);

#ifdef __cplusplus
}
#endif

#endif
