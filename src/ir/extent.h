/* extent.h -- which coordinates each value of a program depends on.
 *
 * The iteration space of a program over rows has two coordinates: the row, and the place in
 * it.  A reduction makes a value that is the same for a whole row, colsum one that is the
 * same for a whole column; everything else depends on whatever its operands depend on.
 * Not here: shapes of tensors, which launches have; see kernels_ir.
 */
#ifndef EIDER_IR_EXTENT_H
#define EIDER_IR_EXTENT_H

#include "graph.h"

/* A set of coordinates. */
#define EIDER_BY_ROW 1u /* differs between rows */
#define EIDER_BY_COL 2u /* differs within a row */

/* Of a value declared so. */
uint8_t eider_extent_bits(eider_extent extent);

/* Of node `id`, given those of its operands. */
uint8_t eider_extent_of_node(const struct eider_graph *g, eider_node id, const uint8_t *bits);

/* Of all nodes, inputs as declared.  `bits` has n_cells entries. */
void eider_extent_infer(const struct eider_graph *g, uint8_t *bits);

/* What output `i` stores one value for. */
eider_extent eider_extent_of_output(const struct eider_graph *g, uint32_t i, const uint8_t *bits);

/* Fails with EIDER_UNSUPPORTED where a colsum is computed with, which would need every row to
 * be done. */
eider_status eider_extent_check(const struct eider_graph *g);

/* Whether the program has operations over rows, or inputs declared per row or column. */
int eider_extent_over_rows(const struct eider_graph *g);

#endif
