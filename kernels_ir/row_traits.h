/* row_traits.h -- what the rules for configs of rows go by, and the sizes that they share.
 *
 * Invariant: traits are those of a layout, whatever a config says.
 */
#ifndef EIDER_KERNELS_ROW_TRAITS_H
#define EIDER_KERNELS_ROW_TRAITS_H

#include "row.h"

#define EIDER_ROW_ELEMENTS_KEPT 64 /* of all inputs, per thread: so many registers or half */
#define EIDER_ROW_VECTORS_KEPT 4   /* in flight per thread, where the row has as many */
#define EIDER_ROW_GPU_BLOCK 128    /* threads at least; rows that are shorter share a block */
#define EIDER_ROW_GPU_BLOCK_MAX 1024
#define EIDER_ROW_CLUSTER_PORTABLE 8 /* blocks, that every GPU with clusters takes */
#define EIDER_ROW_SPLIT_LENGTH 32768 /* elements of a part of a row at least */

/* What rules ask for: elements of 16 bits or fewer, or more; ... */
enum { NARROW = 1, WIDE = 2 };
/* ... one pass does all, with elements stored or without; more, over one input or over more; ... */
enum { MAP = 1, ONCE = 2, ONE = 4, MANY = 8 };
/* ... all rows share no input, with few operations or many; one; more. */
enum { PLAIN = 1, HEAVY = 2, COLUMN = 4, COLUMNS = 8, ANY = 15 };

struct eider_row_traits {
    int width, kind, class; /* of those above */
    int widest;             /* bytes of an element */
    int n_inputs;           /* that differ within the row and between rows */
    int align;              /* elements that the worst pointer allows in one access */
    int columns;            /* inputs that all rows share */
    int stores;             /* there are outputs that differ within the row */
    int heavy;              /* many operations for each element */
    int once;               /* one pass does all */
};

struct eider_row_traits eider_row_traits_of(const struct eider_layout *layout);
/* Whether a rule is for these traits, of which it names sets; one that is `light` only where there
 * are few operations for each element. */
static inline int eider_row_rule_fits(const struct eider_row_traits *t, int width, int kind,
                                      int class, int light)
{
    return width & t->width && kind & t->kind && class & t->class && !(light && t->heavy);
}

/* Elements of a rule's vectors of `access` bytes; 0: EIDER_MAP_ACCESS_BYTES. */
int eider_row_rule_vec(const struct eider_row_traits *t, int access);
/* A rule's limit of registers, which is for elements of up to 32 bits; 0: none. */
static inline int eider_row_rule_registers(const struct eider_row_traits *t, int registers)
{
    return t->widest <= (int)sizeof(float) ? registers : 0;
}
/* Whether rows may have vectors that are partly in them. */
int eider_row_has_edges(const struct eider_layout *layout, int vec);
/* Whether every alignment, or shift, allows vectors of `vec` elements, the length aside. */
int eider_row_vectors_fit(const struct eider_layout *layout, int vec, int align);
/* Vectors of a row; a guess where its length is not known. */
int64_t eider_row_vectors_of(const struct eider_layout *layout, int vec);
/* The smallest allowed number of vectors that is not below `n`, or the largest. */
int eider_row_kept(int64_t n);
/* As many vectors of a thread as shared memory has room for, of `row` threads. */
int eider_row_fitting(const struct eider_row_traits *t, struct eider_target target, int row,
                      int64_t wanted);

/* By a rule for long rows, if one applies, which it returns, where a config leaves open what those
 * are cut by. */
int eider_row_choose_long(const struct eider_layout *layout, struct eider_target target,
                          struct eider_config *config);

#endif
