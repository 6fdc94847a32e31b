/* support_row.h -- calls of programs over rows on the CPU, between guard bands, and what the
 * reference evaluation says about them; for tests. */
#ifndef EIDER_TESTS_SUPPORT_ROW_H
#define EIDER_TESTS_SUPPORT_ROW_H

#include "support_map.h"
#include "support_runtime.h"

#define ROW_OPERANDS_MAX 12

/* Element (row, col) of input or scalar `i`. */
typedef double (*row_filler)(size_t i, int64_t row, int64_t col);

/* What to call; the rest of a zeroed one is f32, automatic, contiguous. */
struct row_call {
    const char *text, *config;
    eider_dtype type; /* of what declares none */
    eider_math math;
    int64_t rows, cols;
    row_filler fill;
    size_t misalign; /* elements, of every operand */
    size_t apart;    /* elements more, of each operand than of the one before it */
    int64_t gap;     /* elements between rows, of every operand that is full */
    int any;
    eider_device *device; /* NULL: the CPU */

    eider_program *program;
    size_t n;
    eider_operand info[ROW_OPERANDS_MAX];
    eider_extent extent[ROW_OPERANDS_MAX];
    eider_tensor args[ROW_OPERANDS_MAX];
    int64_t shape[ROW_OPERANDS_MAX][2], strides[ROW_OPERANDS_MAX][2];
    eider_doubles want[ROW_OPERANDS_MAX];
};

/* cmocka's functions of a group. */
int row_set_up(void **state);
int row_tear_down(void **state);
/* Made by row_set_up. */
extern eider_context *row_context;
extern eider_device *row_cpu;

/* Memory, inputs and the reference's outputs; a kernel; guard bands are looked at in the end. */
void row_make(struct row_call *c);
/* What row_run asks for. */
eider_request row_request(const struct row_call *c);
void row_run(struct row_call *c);
void row_release(struct row_call *c);

int64_t row_rows_of(const struct row_call *c, size_t i);
int64_t row_cols_of(const struct row_call *c, size_t i);
/* Bytes from the first element of an operand to its last. */
size_t row_span(const struct row_call *c, size_t i);
double row_got(const struct row_call *c, size_t i, int64_t row, int64_t col);
double row_want(const struct row_call *c, size_t i, int64_t row, int64_t col);
/* Element of the output of that name. */
double row_output(const struct row_call *c, const char *name, int64_t row, int64_t col);

/* Errors are relative to the value, or to `least` where that is larger. */
void row_compare(const struct row_call *c, double tolerance, double least);
/* All of it. */
void row_check(struct row_call c, double tolerance, double least);
/* A row has the same bits whatever surrounds it, and however many others there are. */
void row_check_alone(const char *config, int64_t cols);
/* Outputs that are inputs of which a row picks elements, or has one value that all its threads
 * read.  On the CPU where `device` is NULL. */
void row_check_in_place(const char *config, int64_t cols, eider_device *device);

/* How often `what` is in `text`. */
int row_count(const char *text, const char *what);

/* Spread over [-2, 2], different everywhere. */
double row_wave(size_t i, int64_t row, int64_t col);

/* Rows whose only finite element is that of their own number, which are masked from there on, and
 * with one NaN there; and what looks at them in every way. */
double row_only_one(size_t i, int64_t row, int64_t col);
double row_masked(size_t i, int64_t row, int64_t col);
double row_one_nan(size_t i, int64_t row, int64_t col);
extern const char row_softmax[];

/* Several stages, all kinds of reductions, operands of every extent, places, full and other
 * outputs. */
extern const char row_everything[];
/* Its nine operands in bf16, for compiling only: which have which of the three shapes. */
void row_everything_args(eider_tensor args[9], int64_t *full, int64_t *column, int64_t *row);
/* Every value many times; a row of NaN and others of -inf. */
double row_ties(size_t i, int64_t row, int64_t col);
double row_all_equal(size_t i, int64_t row, int64_t col);
/* 1, and what a sum in f32 loses next to it; values near one another and far from 0. */
double row_tiny_after_large(size_t i, int64_t row, int64_t col);
double row_large_mean(size_t i, int64_t row, int64_t col);
/* Rows 1, 4, ... are the same, whatever surrounds them. */
double row_same(size_t i, int64_t row, int64_t col);

/* A number below `n`, by chance that begins anew where row_random_state is set (splitmix64). */
extern uint64_t row_random_state;
uint32_t row_below(uint32_t n);

#endif
