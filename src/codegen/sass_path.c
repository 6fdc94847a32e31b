/* sass_path.c -- which instructions are the pass: what a thread does again and again.
 *
 *   1. Cut the code into blocks; find what can be reached, and the edges that close loops.
 *   2. A block that belongs to a program's loop over single elements is left out.
 *   3. Of the ways from the entry to an end, take the one that moves the most bytes of global
 *      memory, and of those the shortest: slow paths are longer.
 *   4. Where that way runs through loops, the pass is the body of the one that moves the most
 *      bytes (the way through it, chosen likewise), else the whole way.
 *
 * Invariant: no recursion; every instruction belongs to one block.
 * Not here: subroutines; a call is an instruction that goes on behind itself.
 */
#include <stdlib.h>
#include <string.h>

#include "sass.h"

#define NONE UINT32_MAX

struct score {
    int ends; /* the way reaches its end */
    uint64_t bytes, instructions;
};

struct block {
    uint32_t first, last; /* instructions, last included */
    uint32_t next[2];     /* blocks, or NONE */
    uint64_t bytes;
    uint8_t ends; /* leaves the kernel */
    uint8_t seen, on_stack, excluded;
    uint8_t closes[2]; /* next[k] closes a loop */
    uint8_t inside;    /* of the loop being looked at */
    uint32_t best;     /* block that goes on from here, or NONE */
    struct score score;
};

struct paths {
    struct eider_sass *s;
    struct block *blocks;
    uint32_t n;
    uint32_t *block_of; /* of each instruction */
    uint32_t *order;    /* reachable blocks, users before what they lead to ... */
    uint32_t n_order;   /* ... from the end of the array on */
    uint32_t *stack;
};

/* ---- Instructions ------------------------------------------------------ */

static int is_conditional(const eider_sass_instruction *i)
{
    const char *first = i->operands + strspn(i->operands, "!U");
    return i->predicate[0] || eider_sass_opcode_has(i->opcode, "DIV") ||
           eider_sass_opcode_has(i->opcode, "CONV") ||
           (first[0] == 'P' && first[1] >= '0' && first[1] <= '9');
}

static int is_branch(const char *opcode)
{
    return eider_sass_opcode_is(opcode, "BRA") || eider_sass_opcode_is(opcode, "JMP");
}

static int is_end(const char *opcode)
{
    return eider_sass_opcode_is(opcode, "EXIT") || eider_sass_opcode_is(opcode, "RET") ||
           eider_sass_opcode_is(opcode, "KILL") || eider_sass_opcode_is(opcode, "BRX") ||
           eider_sass_opcode_is(opcode, "JMX");
}

static int has_target(const char *opcode)
{
    return is_branch(opcode) || eider_sass_opcode_is(opcode, "CALL") ||
           eider_sass_opcode_is(opcode, "BSSY");
}

static void set_targets(struct eider_sass *s)
{
    for (size_t i = 0; i < s->n_code; i++) {
        s->code[i].branches_to = -1;
        if (!has_target(s->code[i].opcode)) continue;
        const char *at = strrchr(s->code[i].operands, ' ');
        at = at ? at + 1 : s->code[i].operands;
        unsigned long offset = strncmp(at, "0x", 2) == 0 ? strtoul(at, NULL, 16) : ~0UL;
        if (offset / EIDER_SASS_WORD < s->n_code)
            s->code[i].branches_to = (int32_t)(offset / EIDER_SASS_WORD);
    }
}

/* ---- Blocks ------------------------------------------------------------ */

static void mark_starts(const struct eider_sass *s, uint8_t *starts)
{
    starts[0] = 1;
    for (size_t i = 0; i < s->n_code; i++) {
        const eider_sass_instruction *code = &s->code[i];
        if (!is_branch(code->opcode) && !is_end(code->opcode)) continue;
        if (is_branch(code->opcode) && code->branches_to >= 0) starts[code->branches_to] = 1;
        if (i + 1 < s->n_code) starts[i + 1] = 1;
    }
}

static uint64_t global_bytes(const char *opcode)
{
    struct eider_sass_memory m;
    int is = eider_sass_memory_of(opcode, &m) &&
             (strcmp(m.space, "global") == 0 || strcmp(m.space, "generic") == 0);
    return is ? (uint64_t)m.width : 0;
}

static void end_block(struct paths *p, struct block *b)
{
    const eider_sass_instruction *last = &p->s->code[b->last];
    int goes_on = 1;
    b->next[0] = b->next[1] = NONE;
    if (is_end(last->opcode)) {
        goes_on = is_conditional(last);
        b->ends = 1;
    } else if (is_branch(last->opcode)) {
        goes_on = is_conditional(last);
        if (last->branches_to >= 0) b->next[0] = p->block_of[last->branches_to];
    }
    if (goes_on && b->last + 1 < p->s->n_code) b->next[1] = p->block_of[b->last + 1];
    int tail = 0;
    for (uint32_t i = b->first; i <= b->last; i++) {
        const eider_sass_instruction *code = &p->s->code[i];
        b->bytes += global_bytes(code->opcode);
        int meets = eider_sass_opcode_is(code->opcode, "BSYNC"); /* ways that are left out, too */
        if (code->line && !meets) tail += code->in_tail ? 1 : -1;
    }
    b->excluded = tail > 0;
    /* A way that leaves half-way has not done the pass. */
    if (b->ends && goes_on) b->ends = 0;
}

static void make_blocks(struct paths *p, const uint8_t *starts)
{
    for (uint32_t i = 0; i < p->s->n_code; i++) {
        if (starts[i]) p->blocks[p->n++].first = i;
        p->blocks[p->n - 1].last = i;
        p->block_of[i] = p->n - 1;
    }
    for (uint32_t b = 0; b < p->n; b++) end_block(p, &p->blocks[b]);
}

/* ---- Order ------------------------------------------------------------- */

/* Depth first from the entry: marks the edges that close loops, orders the rest. */
static void visit_all(struct paths *p)
{
    uint32_t depth = 0;
    p->n_order = p->n;
    p->stack[depth++] = 0;
    p->blocks[0].seen = p->blocks[0].on_stack = 1;
    while (depth) {
        struct block *b = &p->blocks[p->stack[depth - 1]];
        uint32_t next = NONE;
        for (int k = 0; k < 2 && next == NONE; k++) {
            uint32_t to = b->next[k];
            if (to == NONE || p->blocks[to].excluded) continue;
            if (p->blocks[to].on_stack) b->closes[k] = 1;
            if (!p->blocks[to].seen) next = to;
        }
        if (next != NONE) {
            p->blocks[next].seen = p->blocks[next].on_stack = 1;
            p->stack[depth++] = next;
        } else {
            b->on_stack = 0;
            p->order[--p->n_order] = p->stack[--depth];
        }
    }
}

/* ---- Ways -------------------------------------------------------------- */

static int is_better(const struct score *a, const struct score *b)
{
    if (a->ends != b->ends) return a->ends > b->ends;
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    return a->instructions < b->instructions;
}

/* The best way from each block: to block `last`, or to an end where that is NONE. */
static void find_ways(struct paths *p, uint32_t last)
{
    for (uint32_t k = p->n; k-- > p->n_order;) {
        struct block *b = &p->blocks[p->order[k]];
        struct score best = {.ends = last == NONE ? b->ends : p->order[k] == last};
        b->best = NONE;
        if (last != NONE && !b->inside) continue;
        for (int e = 0; e < 2 && p->order[k] != last; e++) {
            uint32_t to = b->next[e];
            if (to == NONE || b->closes[e] || p->blocks[to].excluded) continue;
            if (last != NONE && !p->blocks[to].inside) continue;
            if (b->best != NONE && !is_better(&p->blocks[to].score, &best)) continue;
            if (b->best == NONE && best.ends && !p->blocks[to].score.ends) continue;
            best = p->blocks[to].score;
            b->best = to;
        }
        best.bytes += b->bytes;
        best.instructions += b->last - b->first + 1;
        b->score = best;
    }
}

/* Marks what reaches `last` without leaving the loop of `header`. */
static void mark_loop(struct paths *p, uint32_t header, uint32_t last)
{
    for (uint32_t b = 0; b < p->n; b++) p->blocks[b].inside = b == header || b == last;
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t k = p->n; k-- > p->n_order;) { /* one sweep where no loop is inside */
            struct block *block = &p->blocks[p->order[k]];
            if (block->inside || block->excluded) continue;
            for (int e = 0; e < 2; e++) {
                uint32_t to = block->next[e];
                if (to != NONE && to != header && p->blocks[to].inside) block->inside = 1;
            }
            changed |= block->inside;
        }
    }
}

struct loop {
    uint32_t header, last;
    struct score score;
};

/* The loop on the marked way that moves most, or one with header NONE. */
static struct loop best_loop(struct paths *p, const uint8_t *on_way, uint64_t bytes)
{
    struct loop best = {.header = NONE};
    for (uint32_t b = 0; b < p->n; b++)
        for (int e = 0; e < 2; e++) {
            uint32_t header = p->blocks[b].next[e];
            if (!p->blocks[b].closes[e] || !on_way[header]) continue;
            mark_loop(p, header, b);
            find_ways(p, b);
            struct score score = p->blocks[header].score;
            if (!score.ends || (bytes && !score.bytes)) continue;
            int better = best.header == NONE || is_better(&score, &best.score);
            if (!bytes && best.header != NONE) /* nothing moves: the one that computes most */
                better = score.instructions > best.score.instructions;
            if (better) best = (struct loop){header, b, score};
        }
    return best;
}

static void mark_way(struct paths *p, uint32_t from, uint8_t *on_way)
{
    memset(on_way, 0, p->n);
    for (uint32_t b = from; b != NONE; b = p->blocks[b].best) on_way[b] = 1;
}

static void choose(struct paths *p, uint8_t *on_way)
{
    find_ways(p, NONE);
    mark_way(p, 0, on_way);
    struct loop loop = best_loop(p, on_way, p->blocks[0].score.bytes);
    if (loop.header != NONE) {
        mark_loop(p, loop.header, loop.last);
        find_ways(p, loop.last);
        mark_way(p, loop.header, on_way);
    }
    for (size_t i = 0; i < p->s->n_code; i++) {
        p->s->code[i].in_pass = (int8_t)on_way[p->block_of[i]];
        p->s->summary.n_pass += on_way[p->block_of[i]];
    }
}

eider_status eider_sass_path_find(struct eider_sass *s)
{
    size_t n = s->n_code;
    struct paths p = {.s = s};
    set_targets(s);
    uint8_t *starts = eider_arena_alloc(&s->arena, n);
    uint8_t *on_way = eider_arena_alloc(&s->arena, n);
    p.blocks = eider_arena_alloc(&s->arena, n * sizeof *p.blocks);
    p.block_of = eider_arena_alloc(&s->arena, n * sizeof *p.block_of);
    p.order = eider_arena_alloc(&s->arena, n * sizeof *p.order);
    p.stack = eider_arena_alloc(&s->arena, n * sizeof *p.stack);
    if (!starts || !on_way || !p.blocks || !p.block_of || !p.order || !p.stack) return EIDER_OOM;
    mark_starts(s, starts);
    make_blocks(&p, starts);
    visit_all(&p);
    choose(&p, on_way);
    return EIDER_OK;
}
