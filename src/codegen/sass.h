/* sass.h -- machine code taken apart: what the files sass_*.c share.
 *
 *   sass_cubin.c      the ELF file: code, resources, embedded PTX
 *   sass_lines.c      its maps from code to lines
 *   sass_disasm.c     nvdisasm: words to text
 *   sass_control.c    control bits of a word
 *   sass_opcodes.c    what is known of an opcode (sass_opcodes.def)
 *   sass_path.c       which instructions are the pass
 *   sass_count.c      the rows made from the pass: opcodes, accesses, terms
 *   sass_bound.c      occupancy and limits (sass_rates.def)
 *   sass_warn.c       what makes kernels slow
 *   sass_source.c     IR and PTX line by line
 *   sass_expect.c     budgets
 *   sass_diff.c       two kernels side by side
 *   sass.c            all of it, in order, and the public rows
 *
 * Invariant: a report is complete once eider_sass_make has returned it, lies in one arena and
 * does not change any more.
 * Not here: programs; whoever knows what a line means says so (struct eider_sass_names).
 */
#ifndef EIDER_CODEGEN_SASS_H
#define EIDER_CODEGEN_SASS_H

#include "codegen.h"

#define EIDER_SASS_WORD 16 /* bytes of an instruction, from sm_70 on */

/* ---- What an opcode is (sass_opcodes.c) -------------------------------- */

enum eider_sass_unit {
#define SASS_UNIT(id, name, doc) EIDER_UNIT_##id,
#include "sass_units.def"
    EIDER_UNIT_COUNT
};

enum eider_sass_rate {
#define SASS_RATE(id, sm80, sm86, sm89, sm90, sm100, source) EIDER_RATE_##id,
#define SASS_DEVICE(sm, name, units, mhz, gbs, reach, warps, blocks, shared, source)
#include "sass_rates.def"
    EIDER_RATE_COUNT
};

struct eider_sass_opcode_row {
    const char *name; /* "FFMA": the opcode up to its first dot */
    enum eider_sass_unit unit;
    enum eider_sass_rate rate;
};

/* The row of an opcode such as "FFMA.FTZ"; one of unit `other` for an unknown one. */
const struct eider_sass_opcode_row *eider_sass_opcode_find(const char *opcode);
const char *eider_sass_unit_name(enum eider_sass_unit unit);

/* Whether `opcode` is `name` or continues it after a dot. */
int eider_sass_opcode_is(const char *opcode, const char *name);
/* Whether `part` is one of the parts between the dots of `opcode`, the first included. */
int eider_sass_opcode_has(const char *opcode, const char *part);

/* How an opcode accesses memory; 0 when it does not. */
struct eider_sass_memory {
    const char *space;
    int is_store, width;
};
int eider_sass_memory_of(const char *opcode, struct eider_sass_memory *out);
/* Parts of a memory opcode that say neither space nor width: "EF" of LDG.E.EF.64. */
void eider_sass_policy_of(const char *opcode, char *out, size_t size);

/* ---- What lines mean --------------------------------------------------- */

/* What the instructions of one line belong to. */
struct eider_sass_name {
    uint32_t line;
    int32_t term; /* index into `terms` */
    int32_t is_tail;
};

/* Made by whoever wrote the lines.  `names` ascend by line. */
struct eider_sass_names {
    const struct eider_sass_name *names;
    size_t n_names;
    const eider_sass_term *terms; /* kind, text, parent and line; strings are copied */
    size_t n_terms;
    int has_program; /* terms and steps are of a program: budgets count them alone */
};

/* ---- The report -------------------------------------------------------- */

/* A cubin, as far as one of its kernels needs.  Pointers into the cubin's bytes. */
struct eider_cubin {
    const unsigned char *bytes;
    size_t size;
    struct eider_target target;
    const char *entry;
    uint32_t text_section, entry_symbol;
    const unsigned char *code;
    size_t code_size;
    const char *ptx; /* embedded, or NULL: NUL between lines */
    size_t ptx_size;
    int32_t registers, frame_bytes, shared_bytes, barriers, block_threads;
};

/* Line tables of the ELF file. */
enum eider_cubin_lines { EIDER_LINES_SOURCE, EIDER_LINES_PTX };

struct eider_sass {
    eider_allocator allocator;
    struct eider_arena arena;
    eider_status status; /* first failure of eider_sass_text */
    struct eider_cubin cubin;
    struct eider_target target;
    eider_sass_options options; /* strings and device not kept */
    eider_sass_summary summary;
    eider_sass_instruction *code;
    size_t n_code;
    uint8_t *rates; /* enum eider_sass_rate of each instruction */
    int has_program;
    eider_sass_opcode *opcodes;
    size_t n_opcodes;
    eider_sass_access *accesses;
    size_t n_accesses;
    eider_sass_term *terms;
    size_t n_terms;
    eider_sass_limit *limits;
    size_t n_limits;
    eider_sass_warning *warnings;
    size_t n_warnings;
    eider_sass_line *ir, *ptx;
    size_t n_ir, n_ptx;
};

/* How a report is made. */
struct eider_sass_job {
    const eider_sass_options *options;    /* not NULL */
    struct eider_blob cubin;              /* what is inspected */
    struct eider_blob twin;               /* the same code with lines, or the cubin again */
    const struct eider_sass_names *names; /* NULL: lines are of a file ... */
    const char *text;                     /* ... with this text, or NULL */
    const char *ir;                       /* IR with locations, or NULL */
    const char *ptx;                      /* PTX text, or NULL: what the cubin embeds */
    eider_device_info device;             /* units 0: the table's */
    const char *attribution;              /* of the summary, when there are no lines */
    double elements, bytes;               /* of the program; options go before */
    int32_t spill_bytes, block_threads, shared_bytes; /* -1 and 0: what the cubin says */
};

eider_status eider_sass_make(const eider_allocator *a, const struct eider_sass_job *job,
                             eider_sass **out);

/* Whether two cubins have the same instructions for the same entry. */
int eider_sass_same_code(const struct eider_blob *a, const struct eider_blob *b, const char *entry);

/* ---- The steps of eider_sass_make, in order ---------------------------- */

/* Reads a cubin.  `entry` NULL: its only kernel.  Fails with EIDER_BAD_ARG. */
eider_status eider_sass_cubin_read(const struct eider_blob *cubin, const char *entry,
                                   struct eider_cubin *out);
/* Section `name`; 0 when there is none. */
int eider_sass_cubin_section(const struct eider_cubin *cubin, const char *name, uint32_t *index,
                             const unsigned char **data, size_t *size);
/* Symbol that relocates offset `at` of section `index`; 0 when there is none. */
uint32_t eider_sass_cubin_symbol_at(const struct eider_cubin *cubin, uint32_t index, size_t at);

/* Sets lines[k] for the k-th instruction of the entry.  Nothing where there is no table. */
void eider_sass_lines_read(const struct eider_cubin *cubin, enum eider_cubin_lines which,
                           uint32_t *lines, size_t n);

eider_status eider_sass_disasm(struct eider_sass *sass);
/* One way each, for tests. */
eider_status eider_sass_disasm_json(struct eider_sass *sass, const char *text);
eider_status eider_sass_disasm_text(struct eider_sass *sass, const char *text);

void eider_sass_control_decode(eider_sass_instruction *instruction);

eider_status eider_sass_path_find(struct eider_sass *sass);
eider_status eider_sass_count_all(struct eider_sass *sass);
eider_status eider_sass_bound_all(struct eider_sass *sass, const struct eider_sass_job *job);
eider_status eider_sass_warn_all(struct eider_sass *sass, const char *ptx, size_t ptx_size);

eider_status eider_sass_source_all(struct eider_sass *sass, const struct eider_sass_job *job);

/* The term of a line number, with `names` or without; -1 when it has none. */
int32_t eider_sass_term_of(const struct eider_sass *sass, const struct eider_sass_names *names,
                           uint32_t line, int *is_tail);

/* ---- Small things ------------------------------------------------------ */

/* Text in the arena; "" and the status set after a failure. */
char *eider_sass_text(struct eider_sass *sass, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "0.5", "12": at most two decimals, none that are zero. */
void eider_sass_number(double value, char *out, size_t size);

#endif
