/* row.h -- what the files of the template `row` share.
 *
 *   row.c           the row of the template: which programs, checks, text
 *   row_space.c     shapes and strides of a call to rows
 *   row_bind.c      a call to the parameters of a launch
 *   row_shift.c     where the vectors of a row begin
 *   row_defaults.c  the config that nobody tuned
 *   row_long.c      the same, of long rows
 *   row_candidates.c  the configs worth timing
 *   row_traits.c    what these three go by
 *   row_plan.c      the stages of a program
 *   row_build.c     the IR: the kernel
 *   row_rows.c      the IR: the rows of a block, and where they are
 *   row_pass.c      the IR: the stages of a row
 *   row_split.c     the IR: rows that are cut into parts
 *   row_node.c      the IR: values of nodes
 *   row_memory.c    the IR: loads and stores of elements
 *   row_ahead.c     the IR: what all rows share, loaded ahead of its use
 *   row_shared.c    the IR: what stays in shared memory
 *   row_flow.c      the IR: branches, and loops that carry totals
 *   row_reduce.c    the IR: from the values of a row to one
 *   row_online.c    the IR: sums that need another reduction's result, in its pass: of powers
 *   row_moments.c   the IR: the same, of differences from the mean
 *   row_fault.c     the IR: places outside of the row are recorded
 *   column.c, column_build.c   another template, of sums down the rows, made of these parts
 *
 * The kernel.  `row` threads share a row, so a block of `block` threads has block / row rows at a
 * time; or so many threads of each of `cluster` blocks do.  A row is cut into vectors of `vec`
 * elements; vector number v belongs to thread v % (row * cluster) of the row: in a short row, some
 * have none.  The first `keep` vectors of each thread are loaded once and stay in registers as
 * memory has them, with what is costly to compute from them; the rest is computed anew in each
 * stage, but for short rows, which stay as computed; and of a longer row the next `shared` vectors
 * stay in shared memory and the rest is read again, `unroll` vectors at a time; with `load=last`
 * from caches that are told to hold it until then.  What all rows share, such as weights, is loaded
 * for every use: it is in a cache; with `ahead`, some vectors before its turn.
 *
 * With `resident` blocks for each multiprocessor, blocks go through all rows, every so many rows
 * one.  What all rows share then stays in shared memory, too, and while a thread stores the last
 * of a row, the same vectors of its next row are on their way.
 *
 * With `split`, that many blocks anywhere on the GPU share a row, and meet in memory: the kernel is
 * launched in *rounds*, one for each stage and one for the outputs.  A block combines what the
 * parts of its row have left in earlier rounds, reads its own part again and leaves its totals.
 *
 * Where a launch may be one that allows no vectors (alignment), the kernel exists twice: by
 * vectors, and by single elements with nothing kept, which is slower and short.
 *
 * Rows that do not begin at a multiple of a vector's size, or are no whole number of vectors, have
 * vectors all the same.  They are counted from the last aligned address that is not behind the
 * row's first element, *shift* elements before it, so vector v has the places v * vec - shift and
 * following.  Only the first and the last may lie partly in the row; their elements are loaded and
 * stored one by one.  Only the first and the last step over a row ask for that; the loop between
 * them is that of an aligned row.  This needs the same shift, row by row, in all operands that
 * differ between rows; what all rows share is loaded by elements then.  Which thread has which
 * element, and so the order in which a row is added, depends on its shift: where vectors are
 * shifted, a row's result depends on the row and on the address of its first element modulo 16
 * bytes, in the operand that leads (row_shift.c).  With vec=1 it depends on the row alone.
 *
 * A *stage* is one pass over the row that ends in reductions.  A reduction combines what each
 * thread has, then the threads of a warp by exchanges, then the warps of a row through shared
 * memory, of all blocks of a cluster (which meet at a barrier or, with `mbarrier`, where what they
 * send is counted), always in the same order, so that a row's result does not depend on other rows.
 * The last pass stores the outputs.
 */
#ifndef EIDER_KERNELS_ROW_H
#define EIDER_KERNELS_ROW_H

#include "map.h"

/* A config as numbers. */
struct eider_row_config {
    int vec, unroll, block, row, keep, cluster, shared, async, resident, registers, online, split,
        mbarrier, ahead;
    enum eider_load_policy load;
    enum eider_store_policy store;
};

#define EIDER_ROW_WARP 32          /* threads */
#define EIDER_ROW_SINGLES 2        /* elements in flight, where there are no vectors */
#define EIDER_ROW_STATIC_MAX 49152 /* bytes of a block's shared memory that need no asking */
#define EIDER_ROW_SHARED_FOR_REDUCTIONS 8192 /* bytes of it that default rules leave to them */

struct eider_row_config eider_row_config_of(const struct eider_config *config);
/* Threads that share a row. */
int eider_row_threads(const struct eider_row_config *c);

/* What bind found out about a launch; vectors are taken where all that is needed is set. */
#define EIDER_ROW_EVEN 1u      /* rows are whole numbers of vectors */
#define EIDER_ROW_ALIGNED 2u   /* every vector access is aligned to its size */
#define EIDER_ROW_APART 4u     /* no output shares memory with an input */
#define EIDER_ROW_ALIKE 8u     /* every row has the same shift in all operands that have one */
#define EIDER_ROW_NEVER 65536u /* from this bit on never set */

/* ---- Where vectors begin ---------------------------------------------------- */

/* The operand that says where the vectors of a row begin: of those that differ between rows and
 * lie side by side in them the first whose accesses have the most elements; -1: there is none. */
int eider_row_leader(const struct eider_layout *layout, int vec);

/* Elements of one access to operand `i`. */
int eider_row_access(const struct eider_layout *layout, uint32_t i, int vec);

/* Whether all rows read the same elements of operand `i`. */
int eider_row_shares(const struct eider_layout *layout, uint32_t i);

/* Sets layout->aligned and layout->alike, of a call. */
void eider_row_shift_of(const struct eider_map_space *space, struct eider_layout *layout);

/* Whether every row has the same shift in all operands that have one. */
int eider_row_alike(const struct eider_layout *layout, int vec,
                    const struct eider_map_space *space);

/* Whether a kernel of this layout shifts its vectors. */
int eider_row_shifts(const struct eider_layout *layout, int vec);

/* Where a row ends at most, counted from its first vector's first place; its length is known. */
int64_t eider_row_reach(const struct eider_layout *layout, int vec);

/* Into how many vectors a row is cut at most; its length is known. */
int64_t eider_row_cut(const struct eider_layout *layout, int vec);

/* Whether operand `i` is an output with an element for every place of every row. */
static inline int eider_row_is_full_output(const struct eider_layout *layout, uint32_t i)
{
    return layout->operands[i].kind == EIDER_OUTPUT && layout->operands[i].extent == EIDER_FULL;
}

/* ---- Shapes --------------------------------------------------------------- */

/* Normalises a call: the last dimension is the row, of any extent; those before it, at least
 * one, number the rows, and adjacent ones that could be one are.  The strides of what has one
 * value per row are 0 in the last dimension, those of what has one per column in all others.
 * count is the number of rows.  Fails as eider_map_space_of does. */
eider_status eider_row_space_of(const struct eider_layout_operand *operands, uint32_t n_operands,
                                const struct eider_graph *program, const eider_tensor *args,
                                struct eider_map_space *out);

/* As eider_map_overlap_check. */
eider_status eider_row_overlap_check(const struct eider_map_space *space,
                                     const struct eider_layout_operand *operands,
                                     uint32_t n_operands, const struct eider_graph *program,
                                     int *apart);

/* ---- The kernel's parameters --------------------------------------------- */

/* Where each parameter is: the operands, then rows, cols, flags and how many parts of the rows are
 * in flight, then the extents of the
 * dimensions that number rows but the first, then the strides that the layout leaves open. */
struct eider_row_slots {
    uint32_t n;
    uint16_t rows, cols, flags, in_flight;
    uint16_t round, memory; /* where a row is split: which launch this is, and what they share */
    uint16_t extent[EIDER_RANK_MAX];
    uint16_t stride[EIDER_OPERANDS_MAX][EIDER_RANK_MAX];
};

void eider_row_slots_of(const struct eider_layout *layout, int split, struct eider_row_slots *out);

/* ---- The stages of a program ---------------------------------------------- */

struct eider_row_plan {
    uint32_t n_stages;
    uint8_t *varies; /* of each node: it differs within a row */
    uint8_t *live;
    uint8_t *costly; /* better kept for a later stage than computed again */
    uint16_t *level; /* stages that have to be done before it is known */
    int picks;       /* there is a pick */
    int gathers;     /* there is one whose place differs within the row */
};

/* Sets in_row[] for the inputs that differ within the row. */
void eider_row_differing(const struct eider_layout *layout, uint8_t *in_row);

/* For operands of which in_row[] says whether they differ within a row; sums of the kinds `online`
 * are in the stage of what they need.  Fails with EIDER_OOM.  Caller: eider_row_plan_release. */
eider_status eider_row_plan_create(const struct eider_lowered *program, const uint8_t *in_row,
                                   unsigned online, struct eider_row_plan *out);
void eider_row_plan_release(const struct eider_allocator *a, struct eider_row_plan *plan);

/* Sets need[] for the nodes that differ within a row and are computed for an element in order to
 * know the nodes that are set already. */
void eider_row_plan_need(const struct eider_graph *g, const struct eider_row_plan *plan,
                         uint8_t *need);

/* ---- Building ------------------------------------------------------------- */

#define EIDER_ROW_CLUSTER_MAX 16 /* blocks; of parameter `cluster` */
#define EIDER_ROW_ASYNC_SM 80    /* first with asynchronous copies */
#define EIDER_ROW_CLUSTER_SM 90  /* the first target with clusters */

/* Most packs of elements that are added at once. */
#define EIDER_ROW_PACKS_MAX 512

_Static_assert(EIDER_OPERANDS_MAX <= 64, "a set of operands is 64 bits");

/* Values of one pack of elements, or of a row. */
struct eider_row_context {
    LLVMValueRef *values; /* of each node; NULL: not computed */
    LLVMValueRef *in;     /* the packs of the operands */
    LLVMValueRef col;     /* places, a pack of i32, ... */
    LLVMValueRef first;   /* ... which are the first one of the pack's vector, ... */
    LLVMValueRef step;    /* ... and constants; NULL: not in a vector */
    LLVMValueRef valid;   /* which of them are in the row, a pack of i1; NULL: all */
    int width;
};

/* A vector of elements: `packs` contexts side by side. */
struct eider_row_vector {
    LLVMValueRef col;     /* i32, the first place; negative where that is before the row */
    LLVMValueRef at;      /* i64, the same, counted from the thread's first place in the row */
    LLVMValueRef begins;  /* i1, the first place is not behind the row; NULL: it is not */
    LLVMValueRef whole;   /* i1, all places are in the row; NULL: they are */
    LLVMValueRef partial; /* i1, some are and some are not; NULL: this cannot be */
    struct eider_row_context *packs;
    /* What memory has of each operand, as the machine's fetch gives it; NULL: not loaded. */
    LLVMValueRef *words[EIDER_OPERANDS_MAX];
    int n_words[EIDER_OPERANDS_MAX];
};

/* Vectors whose inputs that all rows share are loaded together: those in `which`. */
struct eider_row_batch {
    struct eider_row_vector *kept; /* in registers; NULL: elsewhere, at the place `at` */
    int64_t at;
    int n; /* 0: none */
    uint64_t which;
};

struct eider_row_build {
    struct eider_emit *e;
    const struct eider_machine *machine;
    const struct eider_lowered *program;
    const struct eider_layout *layout;
    struct eider_row_config c;
    struct eider_row_slots slots;
    struct eider_row_plan plan;
    unsigned online; /* kinds of sums that do not wait for what they need */
    struct eider_arena arena;
    struct eider_lowering lowering;
    LLVMTypeRef i1, i8, i32, i64;
    int width, n_packs;      /* of a pack of elements; of a vector */
    LLVMValueRef thread;     /* i32, in the row */
    LLVMValueRef first;      /* i32, its first place in the row */
    LLVMValueRef row_number; /* i64 */
    LLVMValueRef row_exists; /* i1; NULL: always */
    LLVMValueRef cols;       /* i32 */
    LLVMValueRef vectors_ok; /* i1; NULL: always */
    int vectors, elements;   /* there is code for whole vectors; for single elements */
    int ragged;              /* vectors may be partly in the row */
    int edges_apart;         /* at the moment those count as not in the row: copies are whole */
    int leader;              /* the operand that shifts the vectors; -1: none does */
    LLVMValueRef shift;      /* i32; NULL: 0 */
    LLVMValueRef end;        /* i32, the row's end, counted from its first vector's first place */
    LLVMValueRef base[EIDER_OPERANDS_MAX]; /* where the row begins, ... */
    LLVMValueRef mine[EIDER_OPERANDS_MAX]; /* ... and this thread's first place in it, where places
                                            * lie side by side */
    struct eider_row_context one;          /* what is the same for the whole row */
    LLVMValueRef shared;
    LLVMValueRef rows_memory; /* where vectors stay, in shared memory */
    uint32_t shared_used;
    LLVMValueRef own;    /* i64, the row that this block has first, or rows that it has at once */
    LLVMValueRef part;   /* i32, of the row, that this block has; NULL: it has all */
    LLVMValueRef memory; /* what the parts of a row leave for one another */
    LLVMValueRef rank;   /* i32, of the block in its cluster; NULL: there are none */
    int peers_begun;     /* the cluster's other blocks are known to have begun */
    uint32_t n_met;      /* how often the cluster's blocks have met */
    LLVMValueRef faults; /* struct eider_fault, one after the other; NULL: nothing is recorded */
    uint64_t loaded;     /* inputs of which the vectors that stay have been loaded */
    uint64_t columns;    /* those that all rows share, which stay in shared memory */
    LLVMValueRef more;   /* i1, where blocks go through all rows: there is a next one */
    int passes;          /* that have gone over them */
    uint64_t later;      /* inputs that passes after this one read */
    int depth;           /* of picks within picks */
    struct eider_row_vector *ahead; /* the next ones, as far as they are loaded; NULL: never */
    struct eider_row_batch waiting; /* to be loaded when threads wait for totals */
};

/* Memory of the build, zeroed; NULL after a failure. */
void *eider_row_alloc(struct eider_row_build *b, size_t n, size_t size);
LLVMBasicBlockRef eider_row_block(struct eider_row_build *b, const char *name);
/* A constant of the type. */
LLVMValueRef eider_row_number(LLVMTypeRef type, int64_t value);

/* Loads the words and elements of vectors, of the inputs in `which`: they differ within the row. */
void eider_row_load(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                    uint64_t which);
/* Makes the elements of a vector anew from its words, and forgets what else was computed but for
 * what is `costly`; unless the row is so short that all of it stays as computed. */
void eider_row_again(struct eider_row_build *b, struct eider_row_vector *vector);
/* Stores the outputs of every element of a vector, which its packs have. */
void eider_row_store(struct eider_row_build *b, struct eider_row_vector *vector);
/* What is the same for the whole row, of inputs and scalars. */
void eider_row_load_row(struct eider_row_build *b);
/* Stores the outputs of which the row has one value. */
void eider_row_store_row(struct eider_row_build *b);
/* The elements at c->col, which are inside the row, of the inputs in `which`. */
void eider_row_load_at(struct eider_row_build *b, struct eider_row_context *c, uint64_t which);

/* Makes room for the words of the inputs in `which`. */
void eider_row_make_room(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                         uint64_t which);
/* The elements of an input from a vector's words; and of all in `which`. */
void eider_row_unpack(struct eider_row_build *b, uint32_t i, struct eider_row_vector *vector);
void eider_row_unpack_all(struct eider_row_build *b, struct eider_row_vector *vector,
                          uint64_t which);
/* Whether vectors of operand `i` are loaded as such where they are whole. */
int eider_row_in_vectors(const struct eider_row_build *b, uint32_t i);
/* The address of a vector, or of one that is in the row where this one is not. */
LLVMValueRef eider_row_address(struct eider_row_build *b, uint32_t i,
                               const struct eider_row_vector *vector);

/* ---- What all rows share, ahead of its use (row_ahead.c) ---------------------- */

/* The inputs that a pass in which `need` is computed may load ahead. */
uint64_t eider_row_ahead_inputs(const struct eider_row_build *b, const uint8_t *need);
/* Loads the batch now; and b->waiting, once. */
void eider_row_ahead_load(struct eider_row_build *b, const struct eider_row_batch *batch);
void eider_row_ahead_now(struct eider_row_build *b);
/* Gives the words and elements in b->ahead to `n` vectors. */
void eider_row_ahead_take(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                          uint64_t which);

/* Shared memory, in bytes, that a block has for its part of rows. */
int64_t eider_row_launch_bytes(const struct eider_layout *layout, const struct eider_row_config *c);
/* Whether all rows have the elements of operand `i`, and they stay in shared memory. */
int eider_row_is_column(const struct eider_layout *layout, const struct eider_row_config *c,
                        uint32_t i);
/* Takes the inputs in `which` of `n` vectors, the first at `at`, into shared memory; they are there
 * after the wait.  Where `exists`, an i1 or NULL, does not hold, what they are does not matter. */
void eider_row_fill_shared(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                           uint64_t which, LLVMValueRef at, LLVMValueRef exists);
void eider_row_wait_shared(struct eider_row_build *b);
/* Loads words and elements of the inputs in `which` from there. */
void eider_row_load_shared(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                           uint64_t which, LLVMValueRef at);

/* Sums that need the result of another reduction of the same pass. */
enum {
    EIDER_ROW_POWERS = 1,        /* of differences from the largest value, maybe made finite */
    EIDER_ROW_FIRST_MOMENT = 2,  /* of differences from the mean, ... */
    EIDER_ROW_SECOND_MOMENT = 4, /* ... of their squares */
    EIDER_ROW_MOMENTS = EIDER_ROW_FIRST_MOMENT | EIDER_ROW_SECOND_MOMENT
};

/* Such a sum is of `term`, which takes `reference` off `value`; the reference is made of what
 * `source` finds. */
struct eider_row_online {
    int kind;
    eider_node term, value, reference, source;
};

/* The kinds that kernels of a config have. */
unsigned eider_row_online_kinds(const struct eider_layout *layout,
                                const struct eider_row_config *c);
/* Whether node `sum` is one of these kinds, which *out then is; live[] of each node: the program
 * needs it.  The value of `source` is known in the stage that it ends, and it is no such sum. */
int eider_row_online_of(const struct eider_lowered *program, const uint8_t *live, eider_node sum,
                        unsigned kinds, struct eider_row_online *out);

#define EIDER_ROW_TAKEN_MAX 4 /* values of other threads that one combines by itself */

/* One reduction on its way: a value, and what goes with it. */
struct eider_row_total {
    eider_node node;
    enum eider_vtype type; /* of the values that it takes */
    LLVMValueRef value;    /* a pack, later of one element */
    LLVMValueRef place;    /* argmax: where the value is; a pack of i32 */
    LLVMValueRef lost;     /* a sum in a loop: what rounding has lost; or NULL */
    /* What other threads had, of those whose values are combined. */
    LLVMValueRef taken[EIDER_ROW_TAKEN_MAX];
    LLVMValueRef latest;                   /* what was added last, without what there was before */
    const struct eider_row_total *follows; /* a sum: the first moment of its elements, which says
                                            * what it is; NULL: it is added up */
    /* A sum that does not know what it needs yet: */
    struct eider_row_online online;
    const struct eider_row_total *top; /* the largest value, or the sum; NULL: this is none */
    LLVMValueRef reference;            /* what has been taken off, like `value` */
    /* A moment: */
    const struct eider_row_total *pair;      /* the first one, of a second; NULL: this is a first */
    double count;                            /* elements of each value */
    int begun;                               /* in the code so far there is a reference */
    LLVMValueRef unmoved, unmoved_reference; /* before threads met */
};

/* Those that end one stage. */
#define EIDER_ROW_TOTALS_MAX 64
#define EIDER_ROW_TOTAL_MEMBERS 4 /* of each, that a loop carries */
#define EIDER_ROW_CARRIED_MAX (EIDER_ROW_TOTAL_MEMBERS * EIDER_ROW_TOTALS_MAX)
struct eider_row_stage {
    struct eider_row_total totals[EIDER_ROW_TOTALS_MAX];
    int n;
    uint64_t later; /* inputs that passes after it read */
    uint8_t *need;  /* nodes that differ within the row */
};

/* Nothing yet. */
struct eider_row_total eider_row_total_begin(struct eider_row_build *b, eider_node node);
/* A loop begins in which values are added: all members have values from now on. */
void eider_row_total_loop(struct eider_row_build *b, struct eider_row_total *t);

/* A loop through places that are added to totals. */
struct eider_row_loop {
    LLVMValueRef at; /* the place */
    /* row_flow.c's own: */
    LLVMBasicBlockRef entry, body, after;
    LLVMValueRef first;
    int may_be_none, n;
    LLVMValueRef *carried[EIDER_ROW_CARRIED_MAX], before[EIDER_ROW_CARRIED_MAX],
        phis[EIDER_ROW_CARRIED_MAX];
};

/* It begins at `first`, where `any`, an i1, holds; NULL: always.  All members that totals will have
 * have values. */
void eider_row_loop_begin(struct eider_row_build *b, struct eider_row_loop *loop,
                          struct eider_row_total *totals, int n_totals, LLVMValueRef first,
                          LLVMValueRef any);
/* And goes on at `next` where `again`, an i1, holds. */
void eider_row_loop_end(struct eider_row_build *b, struct eider_row_loop *loop, LLVMValueRef next,
                        LLVMValueRef again);
/* What follows is done where `condition` holds, until the end with the block that this returns. */
LLVMBasicBlockRef eider_row_where(struct eider_row_build *b, LLVMValueRef condition);
void eider_row_end_where(struct eider_row_build *b, LLVMBasicBlockRef after);

/* Adds one more value, as those of t->value are. */
void eider_row_total_more(struct eider_row_build *b, struct eider_row_total *t, LLVMValueRef v);
/* Adds the values of `n` contexts. */
void eider_row_total_add(struct eider_row_build *b, struct eider_row_total *t,
                         struct eider_row_context *const *contexts, int n);
/* Adds what rounding has lost. */
void eider_row_total_close(struct eider_row_build *b, struct eider_row_total *t);
/* What two values make, where no places are sought. */
LLVMValueRef eider_row_total_two(struct eider_row_build *b, const struct eider_row_total *t,
                                 LLVMValueRef v, LLVMValueRef w);
/* Combines all threads of the row; afterwards b->one has the nodes' values. */
void eider_row_total_end(struct eider_row_build *b, struct eider_row_total *totals, int n);
/* The same but for the last: of a part of the row, every thread has what is to be left. */
void eider_row_total_fold(struct eider_row_build *b, struct eider_row_total *totals, int n);
/* How many values a total of this node has in memory. */
int eider_row_total_members(const struct eider_row_build *b, eider_node node);
/* Leaves them in slots with these addresses. */
void eider_row_total_leave(struct eider_row_build *b, const struct eider_row_total *t,
                           const LLVMValueRef *to);
/* Adds what was left there, to values of one element; where `exists`, an i1 or NULL, does not hold,
 * nothing.  Of a sum of powers, from[1] is where the largest value was left. */
void eider_row_total_join(struct eider_row_build *b, struct eider_row_total *t,
                          const LLVMValueRef *from, LLVMValueRef exists);
/* One value in a slot of memory. */
#define EIDER_ROW_SLOT_BYTES 8
void eider_row_value_put(struct eider_row_build *b, LLVMValueRef to, LLVMValueRef v);
LLVMValueRef eider_row_value_get(struct eider_row_build *b, LLVMValueRef from, LLVMTypeRef type);

/* Of sums that need another reduction's result, and nothing otherwise: nothing has been seen. */
void eider_row_online_begin(struct eider_row_build *b, struct eider_row_total *t);
/* Adds the terms of `n` contexts, which that reduction has taken already. */
void eider_row_online_add(struct eider_row_build *b, struct eider_row_total *t,
                          struct eider_row_context *const *contexts, int n);
/* That reduction has what several lanes and threads had; brings their sums to the same reference,
 * to be added. */
void eider_row_online_meet(struct eider_row_build *b, struct eider_row_total *t);
/* `members` sums are to be added, and what that reduction has is of all of them. */
void eider_row_online_start(struct eider_row_build *b, struct eider_row_total *t, int members);
/* The k-th of those that were taken, brought to the reference of all. */
LLVMValueRef eider_row_online_taken(struct eider_row_build *b, const struct eider_row_total *t,
                                    int k);
/* A sum of powers that was left with the largest value `most`, as one with the reference of `t`. */
LLVMValueRef eider_row_online_moved(struct eider_row_build *b, const struct eider_row_total *t,
                                    LLVMValueRef sum, LLVMValueRef most);
/* The sum as the program means it: that reduction's result is that of the row. */
LLVMValueRef eider_row_online_end(struct eider_row_build *b, const struct eider_row_total *t);

/* ---- Moments (row_moments.c) --------------------------------------------------- */

/* Whether node `sum` is a moment, types aside. */
int eider_row_moment_of(const struct eider_lowered *program, const uint8_t *live, eider_node sum,
                        struct eider_row_online *out);
/* Whether all lanes have equally many elements, and not too many for moments. */
int eider_row_lanes_are_even(const struct eider_layout *layout, const struct eider_row_config *c);
/* Whether a program shows nothing of the sum, or of the mean, that a first moment takes off, but
 * what is NaN wherever that is infinite: the sum may follow from the moment then. */
int eider_row_moment_hides(const struct eider_lowered *program, const uint8_t *live,
                           const struct eider_row_online *first);
/* The sum of each lane's elements, of a total that follows from a moment. */
LLVMValueRef eider_row_moment_sum(struct eider_row_build *b, const struct eider_row_total *sum);
/* As those of row_online.c. */
void eider_row_moment_begin(struct eider_row_build *b, struct eider_row_total *t);
void eider_row_moment_meet(struct eider_row_build *b, struct eider_row_total *t);
void eider_row_moment_start(struct eider_row_build *b, struct eider_row_total *t, int members);
LLVMValueRef eider_row_moment_taken(struct eider_row_build *b, const struct eider_row_total *t,
                                    int k);
LLVMValueRef eider_row_moment_end(struct eider_row_build *b, const struct eider_row_total *t,
                                  LLVMValueRef reference);
/* What is taken off the next `n` elements of each lane, whose sum is t->top->latest. */
LLVMValueRef eider_row_moment_reference(struct eider_row_build *b, struct eider_row_total *t,
                                        int n);

/* Arrives for the first time in a cluster's barrier, ready for what its blocks send. */
void eider_row_mbarriers_open(struct eider_row_build *b);
/* Bytes of shared memory that all reductions of the program need. */
uint32_t eider_row_shared_bytes(const struct eider_row_build *b);

/* The value of a node in a context, where it is known: what is the same for the whole row is
 * spread out. */
LLVMValueRef eider_row_value(struct eider_row_build *b, struct eider_row_context *c,
                             eider_node node, enum eider_vtype type);
/* Computes the nodes that are set in `need`, in a context of elements. */
void eider_row_compute(struct eider_row_build *b, struct eider_row_context *c, const uint8_t *need);
/* `scalar` in every element of a pack of `width`. */
LLVMValueRef eider_row_spread(struct eider_row_build *b, LLVMValueRef scalar, int width);

/* Where places are recorded, b->faults. */
void eider_row_fault_begin(struct eider_row_build *b);
/* Records the places (i64) of pick `id` that are not `inside` of the row, where the context's
 * elements are.  Begins another block. */
void eider_row_fault(struct eider_row_build *b, const struct eider_row_context *c, eider_node id,
                     LLVMValueRef place, LLVMValueRef inside);

static inline const struct eider_graph *eider_row_graph(const struct eider_row_build *b)
{
    return b->program->graph;
}

static inline LLVMValueRef eider_row_param(struct eider_row_build *b, unsigned slot)
{
    return b->machine->param(b->e, slot);
}

static inline const struct eider_cell *eider_row_cell(const struct eider_lowered *l, eider_node id)
{
    return &l->graph->cells[id];
}

static inline eider_node eider_row_arg(const struct eider_lowered *l, eider_node id, uint32_t k)
{
    return eider_graph_args(l->graph, id)[k];
}

/* Sees to it that the context has the value of a node that is known. */
void eider_row_bring(struct eider_row_build *b, struct eider_row_context *c, eider_node node);
/* A set of operands: those of which every row reads the same elements. */
uint64_t eider_row_shared_inputs(const struct eider_row_build *b);

/* Where a row is, of what the build knows. */
struct eider_row_position {
    LLVMValueRef base[EIDER_OPERANDS_MAX], mine[EIDER_OPERANDS_MAX];
    LLVMValueRef first, shift, end, row_number, row_exists;
};

/* Goes to where `p` says; *p is where the build was. */
void eider_row_swap(struct eider_row_build *b, struct eider_row_position *p);
/* Waits for all threads of the row, in whichever blocks: what they have stored is seen. */
void eider_row_barrier(struct eider_row_build *b);
/* Sets which thread of its row this one is. */
void eider_row_number_threads(struct eider_row_build *b);
/* All rows of this block. */
void eider_row_do_all(struct eider_row_build *b);
/* Gives shared memory what it keeps of the row, and of what all rows share.  `vectors` are as many
 * as there are in flight. */
void eider_row_fill(struct eider_row_build *b, struct eider_row_vector *vectors);
/* One row, of which shared memory has been given its part.  `kept` are the vectors that stay in
 * registers.  Where `next` is given, shared memory gets the next row's part meanwhile. */
void eider_row_do(struct eider_row_build *b, struct eider_row_vector *kept,
                  struct eider_row_vector *rest, struct eider_row_position *next);

/* A row is begun: nothing of it is known but what is loaded once. */
void eider_row_enter(struct eider_row_build *b);
/* The reductions that end a stage, with nothing in them; and the pass that adds this thread's
 * elements to them. */
void eider_row_stage_open(struct eider_row_build *b, uint32_t stage, struct eider_row_stage *out);
void eider_row_stage_pass(struct eider_row_build *b, struct eider_row_stage *stage,
                          struct eider_row_vector *kept, struct eider_row_vector *rest,
                          struct eider_row_position *next);
/* Whether the threads of a row meet once more before outputs are stored, in some launches. */
int eider_row_may_wait(const struct eider_row_build *b);
/* The last pass: all outputs are stored. */
void eider_row_outputs(struct eider_row_build *b, struct eider_row_vector *kept,
                       struct eider_row_vector *rest, struct eider_row_position *next);

/* ---- Parts of a row (row_split.c) ------------------------------------------- */

/* Sets b->own and b->part.  Neighbours have parts of one row, but for a last round without outputs
 * of every place, which has one block for each row. */
void eider_row_number_parts(struct eider_row_build *b);
/* The row of which this block has a part, of all launches. */
void eider_row_do_split(struct eider_row_build *b, struct eider_row_vector *rest);
/* How often a kernel is launched; as eider_template.rounds. */
eider_status eider_row_rounds(const struct eider_lowered *program,
                              const struct eider_layout *layout, const struct eider_config *config,
                              struct eider_rounds *out);

#define EIDER_COLUMN_SUMS_MAX 32 /* packs of sums that a thread carries, of all outputs */
#define EIDER_ROW_SPLIT_MAX 1024 /* parts; of parameter `split` */

/* The kernel of the template `column`. */
void eider_column_build(struct eider_emit *e, const struct eider_lowered *program,
                        const struct eider_layout *layout, const struct eider_config *config,
                        const char *name);

/* ---- The parts of a kernel, also for the template `column` ------------------ */

/* Sets everything that follows from e, machine, program, layout and c.  To be closed, also after a
 * failure; lowering.e is set already. */
eider_status eider_row_open(struct eider_row_build *b);
void eider_row_close(struct eider_row_build *b);
/* Begins the kernel, with `shared` bytes of shared memory, and sets b->shared and b->cols.
 * Returns 0 where there is nothing to end; the emitter's status says whether it went well. */
int eider_row_begin(struct eider_row_build *b, const char *name, uint32_t shared);
/* Which ways of loading there are, and what decides between them. */
void eider_row_read_flags(struct eider_row_build *b);
/* Whether a launch has all of these EIDER_ROW_ flags, an i1. */
LLVMValueRef eider_row_flags_have(struct eider_row_build *b, unsigned needed);
/* Sets where row number `row`, an i64, begins in each operand, and b->first in it. */
void eider_row_locate(struct eider_row_build *b, LLVMValueRef row);
struct eider_row_context eider_row_context(struct eider_row_build *b, int width);
struct eider_row_vector *eider_row_vectors(struct eider_row_build *b, int n);

#define EIDER_ROW_INSIDE (-1)   /* all elements are in the row */
#define EIDER_ROW_ANYWHERE (-2) /* nothing is known */
#define EIDER_ROW_EDGE (-3)     /* some element is in the row and some is not */

/* The places of `n` vectors of this thread, the first `from` elements after b->first.  `known` is
 * `from` where that is a constant, or one of the above. */
void eider_row_place(struct eider_row_build *b, struct eider_row_vector *vectors, int n,
                     LLVMValueRef from, int64_t known);
/* Forgets what was computed for the elements. */
void eider_row_forget(struct eider_row_build *b, struct eider_row_vector *vectors, int n);
/* The inputs that differ within the row, of the nodes that are set. */
uint64_t eider_row_inputs(const struct eider_row_build *b, const uint8_t *nodes);
/* Computes what is the same for the whole row and known once `level` stages are done. */
void eider_row_compute_row(struct eider_row_build *b, uint32_t level);

/* ---- Members of the template --------------------------------------------- */

eider_status eider_row_check(const struct eider_layout *layout, struct eider_target target,
                             const struct eider_config *config);
/* Bytes of shared memory that a block of the target may have. */
int64_t eider_row_shared_limit(struct eider_target target);
eider_status eider_row_layout(const struct eider_graph *program, const eider_tensor *args,
                              int any_layout, struct eider_layout *out);
void eider_row_describe(const struct eider_graph *program, const struct eider_layout *layout,
                        struct eider_text *out);
eider_status eider_row_bytes(const struct eider_layout *layout, const eider_tensor *args,
                             uint64_t *out);
eider_status eider_column_bind(const struct eider_layout *layout, const struct eider_config *config,
                               const eider_tensor *args, struct eider_bound *out);
eider_status eider_row_bind(const struct eider_layout *layout, const struct eider_config *config,
                            const eider_tensor *args, struct eider_bound *out);
void eider_row_build(struct eider_emit *e, const struct eider_lowered *program,
                     const struct eider_layout *layout, const struct eider_config *config,
                     const char *name);
extern const struct eider_template eider_template_row;
void eider_row_defaults(const struct eider_layout *layout, const struct eider_device_facts *facts,
                        struct eider_config *config);
void eider_row_space(const struct eider_layout *layout, struct eider_target target,
                     const struct eider_config *rule, struct eider_text *out);

#endif
