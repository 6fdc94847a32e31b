/* tables.c -- what the library knows, as rows of text for people. */
#include "activations.h"
#include "config.h"
#include "ops.h"
#include "programs.h"
#include "template.h"

/* ---- Activations ---------------------------------------------------------- */

static int row_of_activation(size_t i, eider_row *out)
{
    const struct eider_activation *row = eider_activation_row(i);
    if (!row) return 0;
    *out = (eider_row){row->name, eider_activation_signature(i), row->body, row->doc};
    return 1;
}

/* ---- Primitives ----------------------------------------------------------- */

/* Every way to write a call; the row's arity and rule say which one it is. */
enum form { NONE, ONE, TWO, THREE, INFIX, CAST, FORM_COUNT };

static const char *const op_forms[EIDER_OP_COUNT][FORM_COUNT] = {
#define EIDER_OP(name, arity, text, rule, doc) \
    {text "()", text "(a)", text "(a, b)", text "(a, b, c)", "a " text " b", text "(a, type)"},
#include "ops.def"
};

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static enum form form_of(const struct eider_op_row *op)
{
    if (op->rule == EIDER_RULE_CAST) return CAST;
    if (op->arity == 2 && (!is_letter(op->text[0]) || op->rule == EIDER_RULE_LOGIC)) return INFIX;
    return (enum form)op->arity;
}

static int row_of_op(size_t i, eider_row *out)
{
    for (int op = 0; op < EIDER_OP_COUNT; op++) {
        const struct eider_op_row *row = &eider_ops[op];
        if (row->arity < 0 && row->rule != EIDER_RULE_CAST) continue;
        if (i-- > 0) continue;
        *out = (eider_row){row->name, op_forms[op][form_of(row)], "", row->doc};
        return 1;
    }
    return 0;
}

/* ---- Tuning parameters and kernels ---------------------------------------- */

static const char *const param_signatures[] = {
#define EIDER_PARAM(name, values, doc) #name " = " values,
#include "params.def"
};

static int row_of_param(size_t i, eider_row *out)
{
    const char *name, *values, *doc;
    if (!eider_config_row(i, &name, &values, &doc)) return 0;
    *out = (eider_row){name, param_signatures[i], "", doc};
    return 1;
}

static int row_of_kernel(size_t i, eider_row *out)
{
    size_t n = 0;
    for (const struct eider_template *row; (row = eider_template_at(n)); n++)
        if (n == i) {
            *out = (eider_row){row->name, "template", "", row->doc};
            return 1;
        }
    const struct eider_named_program *program = eider_programs_row(i - n);
    if (!program) return 0;
    *out = (eider_row){program->name, "program", program->text, program->doc};
    return 1;
}

int32_t eider_table_row(eider_table table, size_t i, eider_row *out)
{
    static int (*const tables[])(size_t i, eider_row * out) = {
        [EIDER_TABLE_ACTIVATIONS] = row_of_activation,
        [EIDER_TABLE_OPS] = row_of_op,
        [EIDER_TABLE_PARAMS] = row_of_param,
        [EIDER_TABLE_KERNELS] = row_of_kernel,
    };
    if (!out || (size_t)table >= sizeof tables / sizeof *tables) return 0;
    return tables[table](i, out);
}
