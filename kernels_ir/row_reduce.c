/* row_reduce.c -- from the values of a row to one.
 *
 * Invariant: the order in which values are combined depends on the config and on the row's
 * length alone.  Combining commutes, bit for bit, so after an exchange both threads have the
 * same value.  Neutral elements stand for what is not in the row, and never change a value.
 */
#include <math.h>

#include "ops.h"
#include "pack.h"
#include "row.h"

/* Products that are added one after the other: three of four additions are fused, and a thread's
 * chain of them stays short. */
#define FUSED 4

static enum eider_op op_of(const struct eider_row_build *b, const struct eider_row_total *t)
{
    return (enum eider_op)b->program->graph->cells[t->node].op;
}

static int is_float(enum eider_vtype type)
{
    return type == EIDER_V_F32 || type == EIDER_V_F64;
}

static int finds_place(enum eider_op op)
{
    return op == EIDER_OP_argmax || op == EIDER_OP_argmin;
}

static int seeks_largest(enum eider_op op)
{
    return op == EIDER_OP_rmax || op == EIDER_OP_amax || op == EIDER_OP_argmax;
}

/* The least value of the type, or the largest. */
static LLVMValueRef extreme(LLVMTypeRef type, enum eider_vtype v, int least)
{
    if (is_float(v)) return p_number(type, least ? -INFINITY : INFINITY);
    if (v == EIDER_V_I32) return p_integer(type, least ? INT32_MIN : INT32_MAX);
    return p_integer(type, least ? INT64_MIN : INT64_MAX);
}

static LLVMValueRef neutral(struct eider_row_build *b, const struct eider_row_total *t)
{
    LLVMTypeRef type = eider_emit_type(b->e, t->type);
    enum eider_op op = op_of(b, t);
    switch (op) {
    case EIDER_OP_sum:
    case EIDER_OP_colsum:
    case EIDER_OP_any:
        return LLVMConstNull(type);
    case EIDER_OP_prod:
        return is_float(t->type) ? p_number(type, 1) : p_integer(type, 1);
    case EIDER_OP_all:
        return p_integer(type, 1);
    default:
        return extreme(type, t->type, seeks_largest(op));
    }
}

/* Beyond every place. */
static LLVMValueRef no_place(struct eider_row_build *b)
{
    return p_integer(eider_emit_type(b->e, EIDER_V_I32), INT32_MAX);
}

/* ---- Two values ------------------------------------------------------------ */

/* Whether (v, at) comes before (w, other): a NaN before a number, the larger (or smaller) before
 * the other, the first of equal ones. */
static LLVMValueRef comes_before(struct eider_row_build *b, const struct eider_row_total *t,
                                 LLVMValueRef v, LLVMValueRef at, LLVMValueRef w,
                                 LLVMValueRef other)
{
    LLVMBuilderRef ir = b->e->builder;
    int largest = seeks_largest(op_of(b, t));
    LLVMValueRef first = LLVMBuildICmp(ir, LLVMIntSLT, at, other, "");
    if (!is_float(t->type)) {
        LLVMValueRef better = LLVMBuildICmp(ir, largest ? LLVMIntSGT : LLVMIntSLT, v, w, "");
        LLVMValueRef equal = LLVMBuildICmp(ir, LLVMIntEQ, v, w, "");
        return LLVMBuildOr(ir, better, LLVMBuildAnd(ir, equal, first, ""), "");
    }
    LLVMValueRef better = p_compare(b->e, largest ? LLVMRealOGT : LLVMRealOLT, v, w);
    LLVMValueRef nan = p_compare(b->e, LLVMRealUNO, v, v);
    LLVMValueRef other_nan = p_compare(b->e, LLVMRealUNO, w, w);
    LLVMValueRef only = LLVMBuildAnd(ir, nan, LLVMBuildNot(ir, other_nan, ""), "");
    LLVMValueRef equal = LLVMBuildOr(ir, p_compare(b->e, LLVMRealOEQ, v, w),
                                     LLVMBuildAnd(ir, nan, other_nan, ""), "");
    better = LLVMBuildOr(ir, better, only, "");
    return LLVMBuildOr(ir, better, LLVMBuildAnd(ir, equal, first, ""), "");
}

LLVMValueRef eider_row_total_two(struct eider_row_build *b, const struct eider_row_total *t,
                                 LLVMValueRef v, LLVMValueRef w)
{
    LLVMBuilderRef ir = b->e->builder;
    enum eider_op op = op_of(b, t);
    int floats = is_float(t->type);
    switch (op) {
    case EIDER_OP_sum:
    case EIDER_OP_colsum:
        return floats ? p_add(b->e, v, w) : LLVMBuildAdd(ir, v, w, "");
    case EIDER_OP_prod:
        return floats ? p_mul(b->e, v, w) : LLVMBuildMul(ir, v, w, "");
    case EIDER_OP_any:
        return LLVMBuildOr(ir, v, w, "");
    case EIDER_OP_all:
        return LLVMBuildAnd(ir, v, w, "");
    default:
        break;
    }
    if (seeks_largest(op)) return p_binary(b->e, floats ? "llvm.maximum" : "llvm.smax", v, w);
    return p_binary(b->e, floats ? "llvm.minimum" : "llvm.smin", v, w);
}

/* *v and *at become those of both. */
static void combine(struct eider_row_build *b, const struct eider_row_total *t, LLVMValueRef *v,
                    LLVMValueRef *at, LLVMValueRef w, LLVMValueRef other)
{
    if (!finds_place(op_of(b, t))) {
        *v = eider_row_total_two(b, t, *v, w);
        return;
    }
    LLVMValueRef keeps = comes_before(b, t, *v, *at, w, other);
    *v = p_select(b->e, keeps, *v, w);
    *at = p_select(b->e, keeps, *at, other);
}

/* v[0] and at[0] become those of all `n`, by pairs of neighbours. */
static void combine_all(struct eider_row_build *b, const struct eider_row_total *t, LLVMValueRef *v,
                        LLVMValueRef *at, int n)
{
    for (int step = 1; step < n; step *= 2)
        for (int i = 0; i + step < n; i += 2 * step)
            combine(b, t, &v[i], &at[i], v[i + step], at[i + step]);
}

/* Whether products are added, of elements that are all in the row: with one rounding each, where
 * nothing else needs the product. */
static int fuses(const struct eider_row_build *b, const struct eider_row_total *t,
                 struct eider_row_context *const *contexts, int n)
{
    const struct eider_lowered *l = b->program;
    eider_node term = eider_row_arg(l, t->node, 0);
    int is_product = op_of(b, t) == EIDER_OP_sum && eider_row_cell(l, term)->op == EIDER_OP_mul;
    for (int i = 0; i < n; i++) is_product = is_product && !contexts[i]->valid;
    return b->e->contract && is_product && is_float(t->type);
}

/* v[0] and what follows become sums of up to FUSED neighbours, one after the other; their number.
 */
static int add_fused(struct eider_row_build *b, LLVMValueRef *v, int n)
{
    int groups = 0;
    for (int i = 0; i < n; i += FUSED) {
        LLVMValueRef sum = v[i];
        for (int k = i + 1; k < n && k < i + FUSED; k++)
            sum = eider_lower_contract(b->e, p_add(b->e, sum, v[k]));
        v[groups++] = sum;
    }
    return groups;
}

/* ---- One thread -------------------------------------------------------------- */

struct eider_row_total eider_row_total_begin(struct eider_row_build *b, eider_node node)
{
    const struct eider_graph *g = b->program->graph;
    eider_node arg = eider_graph_args(g, node)[0];
    struct eider_row_total t = {.node = node};
    int of_arg = finds_place((enum eider_op)g->cells[node].op);
    t.type = (enum eider_vtype)b->program->types[of_arg ? arg : node];
    return t;
}

/* Error-free: the sum and what its rounding loses (Knuth).  No flag lets LLVM reorder it. */
static void add_carefully(struct eider_row_build *b, struct eider_row_total *t, LLVMValueRef x)
{
    struct eider_emit *e = b->e;
    LLVMValueRef sum = p_add(e, t->value, x);
    LLVMValueRef part = p_sub(e, sum, t->value);
    LLVMValueRef lost = p_add(e, p_sub(e, t->value, p_sub(e, sum, part)), p_sub(e, x, part));
    t->lost = p_add(e, t->lost, lost);
    t->value = sum;
}

void eider_row_total_more(struct eider_row_build *b, struct eider_row_total *t, LLVMValueRef v)
{
    if (t->lost)
        add_carefully(b, t, v);
    else
        t->value = eider_row_total_two(b, t, t->value, v);
}

void eider_row_total_loop(struct eider_row_build *b, struct eider_row_total *t)
{
    int finds = finds_place(op_of(b, t));
    if (!t->value) t->value = neutral(b, t);
    if (finds && !t->place) t->place = no_place(b);
    int sums = op_of(b, t) == EIDER_OP_sum || op_of(b, t) == EIDER_OP_colsum;
    if (sums && is_float(t->type) && !t->lost) t->lost = LLVMConstNull(LLVMTypeOf(t->value));
}

static void add_up(struct eider_row_build *b, struct eider_row_total *t, LLVMValueRef v,
                   LLVMValueRef at)
{
    if (!t->value) {
        t->value = v;
        t->place = at;
    } else if (t->lost) {
        add_carefully(b, t, v);
    } else {
        combine(b, t, &t->value, &t->place, v, at);
    }
}

void eider_row_total_add(struct eider_row_build *b, struct eider_row_total *t,
                         struct eider_row_context *const *contexts, int n)
{
    eider_node arg = eider_graph_args(b->program->graph, t->node)[0];
    int finds = finds_place(op_of(b, t));
    LLVMValueRef v[EIDER_ROW_PACKS_MAX], at[EIDER_ROW_PACKS_MAX] = {NULL};
    for (int i = 0; i < n; i++) {
        struct eider_row_context *c = contexts[i];
        v[i] = eider_row_value(b, c, arg, t->type);
        if (finds) at[i] = c->col;
        if (!c->valid) continue;
        v[i] = p_select(b->e, c->valid, v[i], neutral(b, t));
        if (finds) at[i] = p_select(b->e, c->valid, at[i], no_place(b));
    }
    eider_lines_set(b->e, EIDER_LINE_NODE, t->node);
    if (fuses(b, t, contexts, n)) n = add_fused(b, v, n);
    combine_all(b, t, v, at, n);
    t->latest = v[0];
    if (!t->follows) add_up(b, t, v[0], at[0]);
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* Adds what was lost; an infinite sum has lost NaN. */
void eider_row_total_close(struct eider_row_build *b, struct eider_row_total *t)
{
    if (!t->lost) return;
    LLVMValueRef is_none = p_compare(b->e, LLVMRealUNO, t->lost, t->lost);
    LLVMValueRef sum = p_add(b->e, t->value, t->lost);
    t->value = p_select(b->e, is_none, t->value, sum);
    t->lost = NULL;
}

static LLVMValueRef lane_of(struct eider_row_build *b, LLVMValueRef v, int lane)
{
    return LLVMBuildExtractElement(b->e->builder, v, eider_row_number(b->i32, lane), "");
}

/* The lanes of a pack. */
static void fold_pack(struct eider_row_build *b, struct eider_row_total *t)
{
    LLVMValueRef v[64], at[64] = {NULL};
    if (LLVMGetTypeKind(LLVMTypeOf(t->value)) != LLVMVectorTypeKind) return;
    for (int i = 0; i < b->width; i++) {
        v[i] = lane_of(b, t->value, i);
        if (t->place) at[i] = lane_of(b, t->place, i);
    }
    combine_all(b, t, v, at, b->width);
    t->value = v[0];
    t->place = at[0];
}

/* ---- The threads of a row ------------------------------------------------------ */

/* The value that a thread of the same warp has. */
static LLVMValueRef exchange(struct eider_row_build *b, LLVMValueRef v, uint32_t mask)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMTypeRef type = LLVMTypeOf(v);
    unsigned bits = LLVMGetTypeKind(type) == LLVMFloatTypeKind    ? 32
                    : LLVMGetTypeKind(type) == LLVMDoubleTypeKind ? 64
                                                                  : LLVMGetIntTypeWidth(type);
    if (bits == 1) {
        LLVMValueRef word = LLVMBuildZExt(ir, v, b->i32, "");
        return LLVMBuildTrunc(ir, eider_emit_exchange(b->e, word, mask), b->i1, "");
    }
    LLVMValueRef word = LLVMBuildBitCast(ir, v, bits == 64 ? b->i64 : b->i32, "");
    if (bits == 32) return LLVMBuildBitCast(ir, eider_emit_exchange(b->e, word, mask), type, "");
    LLVMValueRef by = eider_row_number(b->i64, 32);
    LLVMValueRef high = LLVMBuildTrunc(ir, LLVMBuildLShr(ir, word, by, ""), b->i32, "");
    LLVMValueRef low = LLVMBuildTrunc(ir, word, b->i32, "");
    high = LLVMBuildZExt(ir, eider_emit_exchange(b->e, high, mask), b->i64, "");
    low = LLVMBuildZExt(ir, eider_emit_exchange(b->e, low, mask), b->i64, "");
    word = LLVMBuildOr(ir, LLVMBuildShl(ir, high, by, ""), low, "");
    return LLVMBuildBitCast(ir, word, type, "");
}

/* `n` neighbours, a power of two up to a warp. */
static void fold_threads(struct eider_row_build *b, struct eider_row_total *t, int n)
{
    for (int mask = n / 2; mask > 0; mask /= 2) {
        LLVMValueRef v = exchange(b, t->value, (uint32_t)mask), at = NULL;
        if (t->place) at = exchange(b, t->place, (uint32_t)mask);
        combine(b, t, &t->value, &t->place, v, at);
    }
}

/* ---- Through shared memory ------------------------------------------------------ */

static LLVMValueRef below(struct eider_row_build *b, LLVMValueRef v, int n)
{
    return LLVMBuildICmp(b->e->builder, LLVMIntULT, v, eider_row_number(b->i32, n), "");
}

static LLVMValueRef bits_of(struct eider_row_build *b, LLVMValueRef v, int mask)
{
    return LLVMBuildAnd(b->e->builder, v, eider_row_number(b->i32, mask), "");
}

/* Some threads leave their values in slots with numbers; then every thread takes `each` of them,
 * and what `n` neighbours have taken is combined. */
struct exchange {
    LLVMValueRef leaves;   /* i1, this thread does, ... */
    LLVMValueRef number;   /* i32, ... in the slot of this number ... */
    LLVMValueRef peer;     /* i32, ... of this block of the cluster; NULL: of its own */
    LLVMValueRef takes;    /* i32, the number of the slot whose value this thread takes, ... */
    int each;              /* ... and every n-th one from there, as many in all */
    LLVMValueRef mbarrier; /* that counts what comes; NULL: they wait at a barrier */
    int goes_on;           /* with another exchange, of what these make */
    int slots, n;          /* slots of a block, for each value */
};

/* Address of slot `number` of those that shared memory begins with. */
static LLVMValueRef slot(struct eider_row_build *b, LLVMValueRef number)
{
    LLVMValueRef size = eider_row_number(b->i32, EIDER_ROW_SLOT_BYTES);
    LLVMValueRef offset = LLVMBuildMul(b->e->builder, number, size, "");
    return LLVMBuildInBoundsGEP2(b->e->builder, b->i8, b->shared, &offset, 1, "");
}

/* Of such a slot, the one `at` bytes further on. */
static LLVMValueRef further(struct eider_row_build *b, LLVMValueRef slot, uint32_t at)
{
    LLVMValueRef offset = eider_row_number(b->i32, at);
    return LLVMBuildInBoundsGEP2(b->e->builder, b->i8, slot, &offset, 1, "");
}

/* A value as slots have it, of 4 or 8 bytes. */
static LLVMValueRef stored(struct eider_row_build *b, LLVMValueRef v)
{
    return LLVMTypeOf(v) == b->i1 ? LLVMBuildZExt(b->e->builder, v, b->i32, "") : v;
}

void eider_row_value_put(struct eider_row_build *b, LLVMValueRef to, LLVMValueRef v)
{
    LLVMSetAlignment(LLVMBuildStore(b->e->builder, stored(b, v), to), EIDER_ROW_SLOT_BYTES);
}

LLVMValueRef eider_row_value_get(struct eider_row_build *b, LLVMValueRef from, LLVMTypeRef type)
{
    LLVMTypeRef stored = type == b->i1 ? b->i32 : type;
    LLVMValueRef v = LLVMBuildLoad2(b->e->builder, stored, from, "");
    LLVMSetAlignment(v, EIDER_ROW_SLOT_BYTES);
    return type == b->i1 ? LLVMBuildTrunc(b->e->builder, v, b->i1, "") : v;
}

/* In the slot at `to`, which is another block's where values are sent. */
static void leave_value(struct eider_row_build *b, const struct exchange *x, LLVMValueRef to,
                        LLVMValueRef v)
{
    if (x->mbarrier)
        b->machine->mbarrier_send(b->e, to, stored(b, v), x->mbarrier, x->peer);
    else
        eider_row_value_put(b, to, v);
}

static void leave_values(struct eider_row_build *b, const struct eider_row_total *totals, int n,
                         const struct exchange *x)
{
    LLVMBasicBlockRef after = eider_row_where(b, x->leaves);
    uint32_t at = b->shared_used, bytes = (uint32_t)x->slots * EIDER_ROW_SLOT_BYTES;
    LLVMValueRef to = slot(b, x->number);
    if (x->peer && !x->mbarrier) to = eider_emit_peer(b->e, to, x->peer);
    for (int i = 0; i < n; i++) {
        eider_lines_set(b->e, EIDER_LINE_NODE, totals[i].node);
        leave_value(b, x, further(b, to, at), totals[i].value);
        at += bytes;
        if (!totals[i].place) continue;
        leave_value(b, x, further(b, to, at), totals[i].place);
        at += bytes;
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
    eider_row_end_where(b, after);
}

/* One thread of the block says how many bytes it is sent. */
static void expect_values(struct eider_row_build *b, const struct eider_row_total *totals, int n,
                          const struct exchange *x)
{
    uint32_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += eider_emit_sent_bytes(b->e, stored(b, totals[i].value));
        if (totals[i].place) bytes += eider_emit_sent_bytes(b->e, totals[i].place);
    }
    LLVMBasicBlockRef after = eider_row_where(b, below(b, b->machine->thread_index(b->e), 1));
    b->machine->mbarrier_expect(b->e, x->mbarrier, bytes * (uint32_t)x->slots);
    eider_row_end_where(b, after);
}

/* Meanwhile what the next pass needs is on its way: no fence waits for it. */
static void wait_for_values(struct eider_row_build *b, const struct exchange *x)
{
    if (x->peer && !x->mbarrier) eider_emit_cluster_arrive(b->e, 0);
    if (!x->goes_on) eider_row_ahead_now(b);
    if (x->mbarrier)
        b->machine->mbarrier_wait(b->e, x->mbarrier);
    else if (x->peer)
        eider_emit_cluster_wait(b->e);
    else
        b->machine->barrier(b->e);
}

/* What was left in slot `number`, `at` bytes into each. */
static LLVMValueRef taken(struct eider_row_build *b, LLVMValueRef number, uint32_t at,
                          LLVMTypeRef type)
{
    return eider_row_value_get(b, further(b, slot(b, number), at), type);
}

/* The values of one total in this thread's slots, `bytes` from one member's slots to the next. */
static void take_total(struct eider_row_build *b, struct eider_row_total *t,
                       const struct exchange *x, uint32_t bytes)
{
    LLVMTypeRef type = LLVMTypeOf(t->value);
    uint32_t at = b->shared_used;
    eider_row_online_start(b, t, x->each * x->n);
    for (int k = 0; k < x->each; k++) {
        LLVMValueRef more = eider_row_number(b->i32, (int64_t)k * x->n);
        LLVMValueRef number = LLVMBuildAdd(b->e->builder, x->takes, more, "");
        LLVMValueRef place = t->place ? taken(b, number, at + bytes, b->i32) : NULL;
        t->taken[k] = taken(b, number, at, type);
        LLVMValueRef v = eider_row_online_taken(b, t, k);
        if (b->e->status != EIDER_OK) return;
        if (k) {
            combine(b, t, &t->value, &t->place, v, place);
            continue;
        }
        t->value = v;
        t->place = place;
    }
    b->shared_used += bytes * (t->place ? 2 : 1);
    t->count *= x->each * x->n;
    fold_threads(b, t, x->n);
}

static void take_values(struct eider_row_build *b, struct eider_row_total *totals, int n,
                        const struct exchange *x)
{
    for (int i = 0; i < n && b->e->status == EIDER_OK; i++) {
        eider_lines_set(b->e, EIDER_LINE_NODE, totals[i].node);
        take_total(b, &totals[i], x, (uint32_t)x->slots * EIDER_ROW_SLOT_BYTES);
    }
}

/* Slots are written once in a kernel.
 * Blocks that have not begun have no shared memory yet, and those that have ended none any more.
 * So the first exchange of a cluster waits until all have begun; and no thread ends too early,
 * because none goes beyond an exchange before all have left their values there, and after the
 * last one nobody writes to others. */
static void do_exchange(struct eider_row_build *b, struct eider_row_total *totals, int n,
                        const struct exchange *x)
{
    if (x->peer && !b->peers_begun) {
        eider_emit_cluster_wait(b->e);
        b->peers_begun = 1;
    }
    if (x->mbarrier) expect_values(b, totals, n, x);
    leave_values(b, totals, n, x);
    wait_for_values(b, x);
    take_values(b, totals, n, x);
}

/* Values of all totals of the program. */
static int n_values(const struct eider_row_build *b)
{
    const struct eider_graph *g = b->program->graph;
    int n = 0;
    for (eider_node id = 1; id < g->n_cells; id++)
        if (b->plan.live[id] && eider_ops_reduces((enum eider_op)g->cells[id].op))
            n += eider_row_total_members(b, id);
    return n;
}

static int rows_of_block(const struct eider_row_build *b)
{
    return b->c.block / b->c.row;
}

/* The warps of a row in a cluster have one exchange as long as each thread of a warp takes but a
 * few, and the slots take no more memory than rows leave to them. */
static int is_direct(const struct eider_row_build *b)
{
    int warps = b->c.row / EIDER_ROW_WARP * b->c.cluster, slots = warps * rows_of_block(b);
    return warps <= EIDER_ROW_TAKEN_MAX * EIDER_ROW_WARP &&
           n_values(b) * slots * EIDER_ROW_SLOT_BYTES <= EIDER_ROW_SHARED_FOR_REDUCTIONS;
}

static int slots_of(const struct eider_row_build *b)
{
    int warps = b->c.block / EIDER_ROW_WARP;
    if (b->c.cluster == 1) return warps;
    return is_direct(b) ? warps * b->c.cluster : warps + rows_of_block(b) * b->c.cluster;
}

static uint32_t slot_bytes(const struct eider_row_build *b)
{
    if (b->c.row * b->c.cluster <= EIDER_ROW_WARP) return 0;
    return (uint32_t)(n_values(b) * slots_of(b) * EIDER_ROW_SLOT_BYTES);
}

/* Whether the blocks of a cluster meet at mbarriers, each of which serves once. */
static int meets(const struct eider_row_build *b)
{
    return b->c.mbarrier && b->c.cluster > 1 && b->machine->mbarrier_open;
}

uint32_t eider_row_shared_bytes(const struct eider_row_build *b)
{
    uint32_t mbarriers = meets(b) ? b->plan.n_stages * EIDER_MBARRIER_BYTES : 0;
    return slot_bytes(b) + mbarriers;
}

/* ---- Mbarriers -------------------------------------------------------------- */

/* That of a stage, behind the slots. */
static LLVMValueRef mbarrier_of(struct eider_row_build *b, uint32_t stage)
{
    uint32_t at = slot_bytes(b) + stage * EIDER_MBARRIER_BYTES;
    return further(b, b->shared, at);
}

void eider_row_mbarriers_open(struct eider_row_build *b)
{
    if (meets(b)) {
        LLVMBasicBlockRef after = eider_row_where(b, below(b, b->machine->thread_index(b->e), 1));
        for (uint32_t stage = 0; stage < b->plan.n_stages; stage++)
            b->machine->mbarrier_open(b->e, mbarrier_of(b, stage));
        eider_row_end_where(b, after);
    }
    eider_emit_cluster_arrive(b->e, 1);
}

/* The warps of a row that are in this block. */
static void exchange_in_block(struct eider_row_build *b, struct eider_row_total *totals, int n,
                              LLVMValueRef thread)
{
    LLVMBuilderRef ir = b->e->builder;
    int warps = b->c.row / EIDER_ROW_WARP;
    LLVMValueRef warp = LLVMBuildLShr(ir, thread, eider_row_number(b->i32, 5), "");
    LLVMValueRef takes =
        LLVMBuildOr(ir, bits_of(b, warp, -warps), bits_of(b, thread, warps - 1), "");
    struct exchange x = {.leaves = below(b, bits_of(b, thread, EIDER_ROW_WARP - 1), 1),
                         .number = warp,
                         .takes = takes,
                         .each = 1,
                         .goes_on = b->c.cluster > 1,
                         .slots = b->c.block / EIDER_ROW_WARP,
                         .n = warps};
    do_exchange(b, totals, n, &x);
}

/* Each leaves its value in all blocks: warps, or blocks whose warps have the same value.  Slots of
 * a row lie side by side. */
static void exchange_in_cluster(struct eider_row_build *b, struct eider_row_total *totals, int n,
                                LLVMValueRef thread)
{
    LLVMBuilderRef ir = b->e->builder;
    int warps = is_direct(b) ? b->c.row / EIDER_ROW_WARP : 1, all = warps * b->c.cluster;
    int takers = all < EIDER_ROW_WARP ? all : EIDER_ROW_WARP, rows = rows_of_block(b);
    LLVMValueRef in_row = bits_of(b, thread, b->c.row - 1);
    struct exchange x = {
        .number = b->rank, .peer = in_row, .each = all / takers, .slots = rows * all, .n = takers};
    if (warps > 1) {
        LLVMValueRef warp = LLVMBuildLShr(ir, in_row, eider_row_number(b->i32, 5), "");
        x.number = LLVMBuildMul(ir, b->rank, eider_row_number(b->i32, warps), "");
        x.number = LLVMBuildAdd(ir, x.number, warp, "");
        x.peer = bits_of(b, thread, EIDER_ROW_WARP - 1);
    }
    x.leaves = below(b, x.peer, b->c.cluster);
    x.takes = bits_of(b, thread, takers - 1);
    if (rows > 1) {
        LLVMValueRef row = LLVMBuildUDiv(ir, thread, eider_row_number(b->i32, b->c.row), "");
        LLVMValueRef first = LLVMBuildMul(ir, row, eider_row_number(b->i32, all), "");
        x.number = LLVMBuildAdd(ir, x.number, first, "");
        x.takes = LLVMBuildAdd(ir, x.takes, first, "");
    }
    if (meets(b)) x.mbarrier = mbarrier_of(b, b->n_met++);
    do_exchange(b, totals, n, &x);
}

static void finish(struct eider_row_build *b, const struct eider_row_total *t)
{
    LLVMValueRef value = t->top ? eider_row_online_end(b, t) : t->value;
    if (t->place) { /* an empty row has no place: 0 */
        LLVMValueRef none = LLVMBuildICmp(b->e->builder, LLVMIntEQ, t->place, no_place(b), "");
        value = p_select(b->e, none, eider_row_number(b->i32, 0), t->place);
    }
    b->one.values[t->node] = value;
}

void eider_row_total_fold(struct eider_row_build *b, struct eider_row_total *totals, int n)
{
    LLVMValueRef thread = b->machine->thread_index(b->e);
    for (int i = 0; i < n; i++) {
        if (!totals[i].value) eider_row_total_loop(b, &totals[i]);
        eider_lines_set(b->e, EIDER_LINE_NODE, totals[i].node);
        eider_row_total_close(b, &totals[i]);
    }
    for (int i = 0; i < n; i++) {
        if (!totals[i].follows) continue;
        eider_lines_set(b->e, EIDER_LINE_NODE, totals[i].node);
        totals[i].value = eider_row_moment_sum(b, &totals[i]);
    }
    if (b->c.row * b->c.cluster <= EIDER_ROW_WARP) eider_row_ahead_now(b);
    b->e->width = 1;
    for (int i = 0; i < n; i++) {
        eider_lines_set(b->e, EIDER_LINE_NODE, totals[i].node);
        eider_row_online_meet(b, &totals[i]);
        fold_pack(b, &totals[i]);
        fold_threads(b, &totals[i], b->c.row < EIDER_ROW_WARP ? b->c.row : EIDER_ROW_WARP);
    }
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
    int has_cluster = b->c.cluster > 1;
    if (b->c.row > EIDER_ROW_WARP && !(has_cluster && is_direct(b)))
        exchange_in_block(b, totals, n, thread);
    if (has_cluster) exchange_in_cluster(b, totals, n, thread);
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

void eider_row_total_end(struct eider_row_build *b, struct eider_row_total *totals, int n)
{
    eider_row_total_fold(b, totals, n);
    for (int i = 0; i < n; i++) finish(b, &totals[i]);
    eider_lines_set(b->e, EIDER_LINE_ADDRESS, 0);
}

/* ---- Parts of a row -------------------------------------------------------------- */

int eider_row_total_members(const struct eider_row_build *b, eider_node node)
{
    return finds_place((enum eider_op)b->program->graph->cells[node].op) ? 2 : 1;
}

void eider_row_total_leave(struct eider_row_build *b, const struct eider_row_total *t,
                           const LLVMValueRef *to)
{
    eider_row_value_put(b, to[0], t->value);
    if (t->place) eider_row_value_put(b, to[1], t->place);
}

void eider_row_total_join(struct eider_row_build *b, struct eider_row_total *t,
                          const LLVMValueRef *from, LLVMValueRef exists)
{
    LLVMValueRef v = eider_row_value_get(b, from[0], LLVMTypeOf(t->value));
    LLVMValueRef at = t->place ? eider_row_value_get(b, from[1], b->i32) : NULL;
    LLVMValueRef most = t->top ? eider_row_value_get(b, from[1], LLVMTypeOf(t->value)) : NULL;
    if (exists) {
        v = p_select(b->e, exists, v, neutral(b, t));
        if (at) at = p_select(b->e, exists, at, no_place(b));
        if (most) most = p_select(b->e, exists, most, neutral(b, t->top));
    }
    if (most) v = eider_row_online_moved(b, t, v, most);
    if (t->lost)
        add_carefully(b, t, v);
    else
        combine(b, t, &t->value, &t->place, v, at);
}
