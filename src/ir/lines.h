/* lines.h -- line information: what each instruction is for.
 *
 * A compiler's line numbers are all that survives the way from IR to machine code.  Where
 * e->line_info is set, the IR's instructions carry numbers that say which node of the lowered
 * graph they compute, or which operand they load, convert or store; kernels without such
 * information have the same machine code.
 * Invariant: a number is made and read here only.
 */
#ifndef EIDER_IR_LINES_H
#define EIDER_IR_LINES_H

#include <llvm-c/Types.h>
#include <stdint.h>

enum eider_line_kind {
    EIDER_LINE_ADDRESS, /* and everything else around the program */
    EIDER_LINE_LOAD,    /* id: an operand */
    EIDER_LINE_CONVERT, /* id: an operand */
    EIDER_LINE_STORE,   /* id: an operand */
    EIDER_LINE_NODE,    /* id: a node of the lowered graph */
    EIDER_LINE_KINDS
};

struct eider_line {
    enum eider_line_kind kind;
    uint32_t id;
    int is_tail; /* the code for single elements */
};

/* The state between eider_lines_begin and eider_lines_end; zero without line information. */
struct eider_lines {
    LLVMMetadataRef scope;
    struct eider_line now;
};

/* A number from 1 on, different for every line. */
uint32_t eider_lines_number(struct eider_line line);
/* The reverse; 0 when `number` is none. */
int eider_lines_read(uint32_t number, struct eider_line *out);

struct eider_emit;

/* Gives e->function a scope.  Nothing without e->line_info, and then nothing below either. */
void eider_lines_begin(struct eider_emit *e);

/* What is built from now on is for `id`; or, for the same id, of another kind; or in the code
 * for single elements or not. */
void eider_lines_set(struct eider_emit *e, enum eider_line_kind kind, uint32_t id);
void eider_lines_turn(struct eider_emit *e, enum eider_line_kind kind);
void eider_lines_tail(struct eider_emit *e, int is_tail);

#endif
