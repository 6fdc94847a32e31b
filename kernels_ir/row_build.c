/* row_build.c -- the IR of a row kernel; row.h describes its shape.
 *
 * Invariant: the kernel holds the template's code once, or twice where a launch may be one that
 * allows no vectors: by vectors, and by single elements with nothing kept.
 */
#include "row.h"

LLVMValueRef eider_row_number(LLVMTypeRef type, int64_t value)
{
    return LLVMConstInt(type, (unsigned long long)value, 1);
}

LLVMBasicBlockRef eider_row_block(struct eider_row_build *b, const char *name)
{
    return LLVMAppendBasicBlockInContext(b->e->context, b->e->function, name);
}

void *eider_row_alloc(struct eider_row_build *b, size_t n, size_t size)
{
    void *memory = b->e->status == EIDER_OK ? eider_arena_alloc(&b->arena, n * size + 1) : NULL;
    if (!memory && b->e->status == EIDER_OK) b->e->status = EIDER_OOM;
    return memory;
}

static void declare(struct eider_row_build *b, struct eider_kernel_param *params)
{
    const struct eider_layout *l = b->layout;
    LLVMTypeRef ptr = LLVMPointerTypeInContext(b->e->context, 0);
    for (uint32_t s = 0; s < b->slots.n; s++)
        params[s] = (struct eider_kernel_param){.name = "", .type = b->i64};
    for (uint32_t i = 0; i < l->n_operands; i++) {
        const struct eider_layout_operand *o = &l->operands[i];
        params[i].name = eider_row_graph(b)->operands[i].name;
        params[i].type = o->kind == EIDER_SCALAR ? eider_emit_storage(b->e, o->type) : ptr;
        params[i].is_read = o->kind == EIDER_INPUT;
        params[i].align = (uint32_t)eider_dtype_size(o->type);
    }
    params[b->slots.rows].name = "rows";
    params[b->slots.cols] = (struct eider_kernel_param){.name = "cols", .type = b->i32};
    params[b->slots.flags] = (struct eider_kernel_param){.name = "flags", .type = b->i32};
    if (b->c.split == 1) return;
    params[b->slots.round] = (struct eider_kernel_param){.name = "round", .type = b->i32};
    params[b->slots.memory] =
        (struct eider_kernel_param){.name = "memory", .type = ptr, .align = EIDER_ROW_SLOT_BYTES};
}

LLVMValueRef eider_row_flags_have(struct eider_row_build *b, unsigned needed)
{
    LLVMValueRef mask = eider_row_number(b->i32, needed);
    LLVMValueRef set = LLVMBuildAnd(b->e->builder, eider_row_param(b, b->slots.flags), mask, "");
    return LLVMBuildICmp(b->e->builder, LLVMIntEQ, set, mask, "");
}

/* Which ways of loading there are, and what decides between them. */
void eider_row_read_flags(struct eider_row_build *b)
{
    unsigned needed = 0;
    int64_t length = b->layout->length;
    b->vectors = !length || length % b->c.vec == 0 || b->ragged;
    if (!length && b->c.vec > 1) needed |= EIDER_ROW_EVEN;
    if (b->machine->needs_alignment && b->c.vec > 1)
        needed |= b->leader < 0 ? EIDER_ROW_ALIGNED : EIDER_ROW_ALIKE;
    /* The read-only path does not see what the kernel itself stores. */
    if (b->c.load == EIDER_LOAD_NC) needed |= EIDER_ROW_APART;
    b->elements = !b->vectors || needed;
    if (b->vectors && needed) b->vectors_ok = eider_row_flags_have(b, needed);
}

int eider_row_begin(struct eider_row_build *b, const char *name, uint32_t shared)
{
    struct eider_kernel_param *params = eider_row_alloc(b, b->slots.n, sizeof *params);
    if (b->e->status != EIDER_OK) return 0;
    declare(b, params);
    b->machine->kernel_begin(b->e, name, params, b->slots.n, (uint32_t)b->c.block);
    if (b->e->status != EIDER_OK) return 1;
    if (shared) b->shared = eider_emit_shared(b->e, shared);
    if (b->layout->checks) eider_row_fault_begin(b);
    b->cols = b->layout->length ? eider_row_number(b->i32, b->layout->length)
                                : eider_row_param(b, b->slots.cols);
    b->end = b->cols;
    return 1;
}

/* Sets how many elements a pack has, and how many packs a vector. */
static void set_width(struct eider_row_build *b)
{
    b->e->width = b->machine->width(b->e);
    if (b->e->width > b->c.vec) b->e->width = b->c.vec;
    b->width = b->e->width;
    b->n_packs = b->c.vec / b->width;
}

/* From here on vectors have one element, and nothing stays. */
static void take_elements(struct eider_row_build *b)
{
    b->c.vec = 1;
    b->c.keep = b->c.shared = 0;
    b->c.unroll = EIDER_ROW_SINGLES;
    b->rows_memory = NULL;
    b->leader = -1;
    b->ragged = 0;
    set_width(b);
}

static void begin_way(struct eider_row_build *b, int by_vector)
{
    b->vectors = by_vector;
    b->elements = !by_vector;
    b->vectors_ok = NULL;
    b->peers_begun = 0;
    b->n_met = 0;
    eider_lines_tail(b->e, !by_vector);
    if (!by_vector) take_elements(b);
}

/* The kernel by vectors, and once more, in few instructions, for launches that do not allow
 * them. */
static void build_ways(struct eider_row_build *b)
{
    LLVMBuilderRef ir = b->e->builder;
    LLVMValueRef ok = b->vectors_ok;
    if (!ok) {
        eider_row_do_all(b);
        return;
    }
    LLVMBasicBlockRef fast = eider_row_block(b, "vectors"), slow = eider_row_block(b, "elements");
    LLVMBasicBlockRef end = eider_row_block(b, "done");
    LLVMBuildCondBr(ir, ok, fast, slow);
    for (int by_vector = 1; by_vector >= 0; by_vector--) {
        LLVMPositionBuilderAtEnd(ir, by_vector ? fast : slow);
        begin_way(b, by_vector);
        eider_row_do_all(b);
        if (b->e->status == EIDER_OK) LLVMBuildBr(ir, end);
    }
    eider_lines_tail(b->e, 0);
    LLVMPositionBuilderAtEnd(ir, end);
}

/* Reductions' and rows' shared memory. */
static int shared_fits(struct eider_row_build *b)
{
    int64_t own = eider_row_shared_bytes(b), rows = eider_row_launch_bytes(b->layout, &b->c);
    int64_t most = eider_row_shared_limit(b->e->target);
    if (own <= EIDER_ROW_STATIC_MAX && own + rows <= most) return 1;
    eider_emit_fail(b->e, EIDER_CONFIG,
                    "block=%d, cluster=%d, shared=%d: reductions need %lld bytes of shared memory, "
                    "of at most %d, and rows %lld; together %lld are possible",
                    b->c.block, b->c.cluster, b->c.shared, (long long)own, EIDER_ROW_STATIC_MAX,
                    (long long)rows, (long long)most);
    return 0;
}

static void build_kernel(struct eider_row_build *b, const char *name)
{
    if (!shared_fits(b)) return;
    if (!eider_row_begin(b, name, eider_row_shared_bytes(b))) return;
    if (b->e->status == EIDER_OK) {
        if (eider_row_launch_bytes(b->layout, &b->c))
            b->rows_memory = eider_emit_shared_at_launch(b->e);
        eider_row_number_threads(b);
        eider_row_read_flags(b);
        build_ways(b);
    }
    b->machine->kernel_end(b->e);
}

static void set_types(struct eider_row_build *b)
{
    LLVMContextRef context = b->e->context;
    b->i1 = LLVMInt1TypeInContext(context);
    b->i8 = LLVMInt8TypeInContext(context);
    b->i32 = LLVMInt32TypeInContext(context);
    b->i64 = LLVMInt64TypeInContext(context);
    set_width(b);
}

eider_status eider_row_open(struct eider_row_build *b)
{
    uint8_t in_row[EIDER_OPERANDS_MAX];
    eider_arena_init(&b->arena, b->e->allocator, SIZE_MAX);
    set_types(b);
    eider_row_slots_of(b->layout, b->c.split, &b->slots);
    b->leader = -1;
    if (eider_row_shifts(b->layout, b->c.vec)) b->leader = eider_row_leader(b->layout, b->c.vec);
    b->ragged = b->leader >= 0 || b->layout->length % b->c.vec;
    eider_row_differing(b->layout, in_row);
    b->online = eider_row_online_kinds(b->layout, &b->c);
    EIDER_TRY(eider_row_plan_create(b->program, in_row, b->online, &b->plan));
    return eider_lowering_begin(&b->lowering, b->e, b->program);
}

void eider_row_close(struct eider_row_build *b)
{
    eider_lowering_end(&b->lowering);
    eider_row_plan_release(b->e->allocator, &b->plan);
    eider_arena_release(&b->arena);
}

void eider_row_build(struct eider_emit *e, const struct eider_lowered *program,
                     const struct eider_layout *layout, const struct eider_config *config,
                     const char *name)
{
    struct eider_row_build b = {.e = e,
                                .machine = e->machine,
                                .program = program,
                                .layout = layout,
                                .c = eider_row_config_of(config),
                                .lowering = {.e = e}};
    e->status = eider_row_open(&b);
    if (e->status == EIDER_OK) build_kernel(&b, name);
    eider_row_close(&b);
}
