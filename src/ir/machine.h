/* machine.h -- what differs between targets inside the IR.
 *
 * Invariant: no file outside the machines asks which target it builds for; it calls the
 * machine.  A machine has no state: everything lives in struct eider_emit.
 *
 * Values are *packs*: `width` elements side by side, as one LLVM scalar (width 1, the
 * GPU) or one LLVM vector (the CPU).  Every compute type uses the same width.  LLVM's
 * own arithmetic works on both, so most of lower.c does not see the difference.
 */
#ifndef EIDER_IR_MACHINE_H
#define EIDER_IR_MACHINE_H

#include <llvm-c/Core.h>

#include "config.h"
#include "infer.h"
#include "lines.h"
#include "target.h"

struct eider_emit {
    const eider_allocator *allocator;
    LLVMContextRef context; /* caller owns */
    LLVMModuleRef module;   /* being filled */
    LLVMBuilderRef builder;
    LLVMValueRef function; /* the kernel; set by kernel_begin */
    const struct eider_machine *machine;
    struct eider_target target;
    int width;         /* elements of a pack; chosen by the template */
    int ftz, contract; /* numerics, resolved */
    eider_math math;   /* AUTO is FAST to the machine */
    int line_info;
    struct eider_lines lines; /* lines.h */
    uint32_t block_threads;   /* threads of a block; set by kernel_begin */
    int waits;   /* threads of a block wait for one another; set by the template before that */
    void *state; /* the machine's, between kernel_begin and kernel_end */
    uint32_t n_instructions; /* of the nodes lowered so far; see eider_emit_count */
    eider_status status;     /* first failure; LLVM values may be NULL after it */
};

/* How a parameter of the kernel is passed. */
struct eider_kernel_param {
    const char *name;
    LLVMTypeRef type; /* a pointer, or a scalar that is passed by value */
    int is_read;      /* pointer: only read (may use the read-only path when also ... */
    int is_alone;     /* ... no output aliases it) */
    uint32_t align;   /* pointer: bytes */
};

/* Cache policies, indices of the values of params `load` and `store`. */
enum eider_load_policy {
    EIDER_LOAD_CA,
    EIDER_LOAD_CG,
    EIDER_LOAD_CS,
    EIDER_LOAD_NC,
    EIDER_LOAD_NOALLOC,
    EIDER_LOAD_FIRST,
    EIDER_LOAD_LAST
};
enum eider_store_policy {
    EIDER_STORE_WB,
    EIDER_STORE_CG,
    EIDER_STORE_CS,
    EIDER_STORE_WT,
    EIDER_STORE_FIRST
};

#define EIDER_VECTOR_MAX 64   /* elements of a vector, the most that params.def allows */
#define EIDER_STREAM_ALIGN 64 /* bytes: a cache line, and the widest vector register */

struct eider_machine {
    const char *name;    /* "nvptx", "cpu" */
    int needs_alignment; /* a vector access faults unless aligned to its size */
    int streams_aligned; /* a store that streams (cs, first) faults unless its address is a
                          * multiple of EIDER_STREAM_ALIGN */

    int unpacks_again; /* registers are scarcer than conversions of 16-bit values */

    /* Packs that suit the target: 1 on the GPU; on the CPU the native f32 vector. */
    int (*width)(const struct eider_emit *e);

    /* Creates e->module, the function and e->builder, and positions the builder where the
     * code of one thread of one block begins.  On the CPU this opens the loops over blocks asked
     * for and over the threads of a block; where e->waits is set and a block has many, it is a
     * kernel as on a GPU instead, whose threads are fibers (cpu_abi.h, thread style). */
    void (*kernel_begin)(struct eider_emit *e, const char *name,
                         const struct eider_kernel_param *params, uint32_t n_params,
                         uint32_t block_threads);
    /* Ends the function and disposes of the builder; to be called after a failure, too. */
    void (*kernel_end)(struct eider_emit *e);
    LLVMValueRef (*param)(struct eider_emit *e, uint32_t i);
    LLVMValueRef (*thread_index)(struct eider_emit *e); /* i32, x */
    LLVMValueRef (*block_index)(struct eider_emit *e);  /* i64, x */

    /* Loads `n` consecutive elements at `ptr`, aligned to n * size, as `n / width` packs
     * of the compute type (f32 for bf16 and fp8, i1 for bool), into out[].  One access
     * of at most 16 bytes each on the GPU. */
    void (*load)(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                 enum eider_load_policy policy, int read_only, LLVMValueRef *out);
    /* The same in two steps.  First what memory has, as at most `n` words that registers hold, the
     * same number for one type and `n`, which is returned; unpack makes the packs.  A word of
     * 32 bits has two bf16. */
    int (*fetch)(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                 enum eider_load_policy policy, int read_only, LLVMValueRef *words);
    /* The words of elements that lie at ptrs[0 .. n), each by a load of its own. */
    int (*fetch_each)(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs, int n,
                      LLVMValueRef *words);
    void (*unpack)(struct eider_emit *e, eider_dtype type, int n, const LLVMValueRef *words,
                   LLVMValueRef *out);
    /* Words of a vector into shared memory, aligned to its size up to 16 bytes, from where fetch
     * takes them. */
    void (*put)(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                const LLVMValueRef *words);
    /* The same straight from memory, asynchronously: they are there for this thread after
     * copies_wait.  The bytes are 4, 8 or a multiple of 16; where `exists`, an i1 or NULL, does not
     * hold, nothing is copied.  NULL where there is no such thing. */
    void (*copy)(struct eider_emit *e, LLVMValueRef to, LLVMValueRef from, int bytes,
                 LLVMValueRef exists);
    void (*copies_wait)(struct eider_emit *e);
    /* The reverse of load; rounds to nearest even, once.  `saturate` is for fp8 overflow. */
    void (*store)(struct eider_emit *e, eider_dtype type, LLVMValueRef ptr, int n,
                  enum eider_store_policy policy, int saturate, const LLVMValueRef *in);
    /* One pack whose elements lie at ptrs[0 .. width). */
    LLVMValueRef (*load_each)(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs);
    void (*store_each)(struct eider_emit *e, eider_dtype type, const LLVMValueRef *ptrs,
                       int saturate, LLVMValueRef value);
    /* One element at `ptr`, stored where `exists` (i1) holds, without a branch.  NULL where the
     * target has no such store. */
    void (*store_if)(struct eider_emit *e, eider_dtype type, LLVMValueRef exists, LLVMValueRef ptr,
                     int saturate, LLVMValueRef value);

    /* One scalar of storage type `type` (as passed by value) as a pack of its compute type. */
    LLVMValueRef (*splat)(struct eider_emit *e, eider_dtype type, LLVMValueRef scalar);

    /* Rounds a pack of f32 or f64 to a storage type and back to its own type. */
    LLVMValueRef (*round)(struct eider_emit *e, eider_dtype type, int saturate, LLVMValueRef v);

    /* A transcendental of f32 or f64 packs, or a machine form (EIDER_OP_m_*) of f32 packs.
     * Called for the ops that LLVM's own instructions do not cover. */
    LLVMValueRef (*math)(struct eider_emit *e, enum eider_op op, enum eider_vtype type,
                         const LLVMValueRef *args);

    /* add, sub, mul, neg, abs, max, min, fmax or fmin on words (i32) of two f16 or bf16
     * values, rounded to their type.  NULL where the target has no such arithmetic. */
    LLVMValueRef (*pair)(struct eider_emit *e, enum eider_op op, eider_dtype type,
                         LLVMValueRef *args);

    void (*barrier)(struct eider_emit *e);
    /* Threads for which `stays`, an i1, does not hold end here; exchanges of others go on without
     * them, barriers do not.  NULL where no thread can. */
    void (*leave_unless)(struct eider_emit *e, LLVMValueRef stays);

    /* A cluster's blocks meet without a barrier of all threads; NULL where there is no such thing.
     * Each block has an *mbarrier*, EIDER_MBARRIER_BYTES of its shared memory, aligned to that,
     * which counts bytes and serves once.  One thread opens it before the cluster's first barrier,
     * and one says later how many bytes the block is sent.  `send` stores 4 or 8 bytes at `to` in
     * block number `rank`, an i32, which are counted there; `wait` goes on when all have come. */
    void (*mbarrier_open)(struct eider_emit *e, LLVMValueRef mbarrier);
    void (*mbarrier_expect)(struct eider_emit *e, LLVMValueRef mbarrier, uint32_t bytes);
    void (*mbarrier_send)(struct eider_emit *e, LLVMValueRef to, LLVMValueRef value,
                          LLVMValueRef mbarrier, LLVMValueRef rank);
    void (*mbarrier_wait)(struct eider_emit *e, LLVMValueRef mbarrier);
};

#define EIDER_MBARRIER_BYTES 8

/* 4 or 8, of a value that an mbarrier counts. */
uint32_t eider_emit_sent_bytes(const struct eider_emit *e, LLVMValueRef value);

extern const struct eider_machine eider_machine_nvptx;
extern const struct eider_machine eider_machine_cpu;

/* The machine of a target. */
const struct eider_machine *eider_machine_of(struct eider_target target);

/* A pack of `type`. */
LLVMTypeRef eider_emit_type(struct eider_emit *e, enum eider_vtype type);
/* One element in memory or as a parameter: i8 for fp8 and bool, i16 for f16 and bf16. */
LLVMTypeRef eider_emit_storage(struct eider_emit *e, eider_dtype type);
/* A pack whose elements have the LLVM type `scalar`. */
LLVMTypeRef eider_emit_pack(const struct eider_emit *e, LLVMTypeRef scalar);
/* `value` in every element of `type`, a scalar or vector type. */
LLVMValueRef eider_emit_int(LLVMTypeRef type, uint64_t value);
LLVMValueRef eider_emit_real(LLVMTypeRef type, double value);
/* A call of an LLVM intrinsic that is overloaded on `types`. */
LLVMValueRef eider_emit_intrinsic(struct eider_emit *e, const char *name, LLVMTypeRef *types,
                                  uint32_t n_types, LLVMValueRef *args, uint32_t n_args);
/* A call of inline assembly.  `pure`: it reads no memory and may be moved, merged and
 * dropped; otherwise it keeps its place among all memory accesses. */
LLVMValueRef eider_emit_asm(struct eider_emit *e, LLVMTypeRef type, const char *text,
                            const char *constraints, int pure, LLVMValueRef *args, uint32_t n_args);

/* For blocks whose threads wait for one another (e->waits), on every machine alike: codegen gives
 * the CPU functions in place of the intrinsics.
 * The i32 of the thread whose number differs in the bits `mask`, below 32.  All threads of the
 * warp take part. */
LLVMValueRef eider_emit_exchange(struct eider_emit *e, LLVMValueRef value, uint32_t mask);
/* `bytes` of memory of the block, aligned to 16, as an array of i8. */
LLVMValueRef eider_emit_shared(struct eider_emit *e, uint32_t bytes);
/* The module's own array of `n` words (i64), 0 when it is loaded, which the host finds by its
 * name. */
LLVMValueRef eider_emit_words(struct eider_emit *e, const char *name, uint32_t n);
/* The block's memory whose size is said at launch, aligned to 16. */
LLVMValueRef eider_emit_shared_at_launch(struct eider_emit *e);

/* For clusters: blocks that run together and reach each other's shared memory, from sm_90 on.
 * Which of its cluster's blocks this one is, an i32. */
LLVMValueRef eider_emit_cluster_rank(struct eider_emit *e);
/* A barrier of all threads of the cluster, in two parts, which alternate in every thread: `wait`
 * goes on when all have arrived, and sees what was written before that.  `relaxed`: what this
 * thread has written may stay unseen.  All threads of the warp take part. */
void eider_emit_cluster_arrive(struct eider_emit *e, int relaxed);
void eider_emit_cluster_wait(struct eider_emit *e);
/* Where `address` of shared memory (of eider_emit_shared) is in the cluster's block number `rank`,
 * as a generic pointer.  That block must have begun, and must not have ended. */
LLVMValueRef eider_emit_peer(struct eider_emit *e, LLVMValueRef address, LLVMValueRef rank);

/* Keeps LLVM from unrolling or vectorising the loop that this branch closes: how often a
 * kernel repeats its code is decided by its config. */
void eider_emit_keep_loop(struct eider_emit *e, LLVMValueRef branch);

/* LLVM's time and ptxas's grow with the square of a block's length: seconds here. */
#define EIDER_INSTRUCTIONS_MAX 16384u

/* Where the builder is, for eider_emit_count. */
LLVMValueRef eider_emit_mark(const struct eider_emit *e);
/* Counts the instructions behind `mark`; fails with EIDER_TOO_LARGE beyond the limit. */
void eider_emit_count(struct eider_emit *e, LLVMValueRef mark);

/* Records a failure; only the first sticks.  Returns NULL. */
LLVMValueRef eider_emit_fail(struct eider_emit *e, eider_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
