/* support_sass.c -- see support_sass.h. */
#include "support_sass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tools.h"

int support_sass_has_tools(void)
{
    struct eider_tool_found tool;
    struct eider_assembler_info assembler;
    int has = eider_tools_get(EIDER_TOOL_NVDISASM, &tool) &&
              eider_assembler_find(NULL, &assembler) == EIDER_OK;
    if (!has) fprintf(stderr, "SKIPPED: no nvdisasm or no assembler (./dev setup installs both)\n");
    return has;
}

static eider_status parse(eider_context *ctx, const char *text, int with_gradient,
                          eider_program **out)
{
    eider_program *program;
    eider_status status = eider_program_parse(ctx, text, &program);
    if (status != EIDER_OK || !with_gradient) {
        *out = program;
        return status;
    }
    eider_grad_options options = {.with_forward = 1};
    status = eider_program_grad(program, &options, out);
    eider_program_release(program);
    return status;
}

static eider_status compile(eider_context *ctx, const char *text, const struct support_sass *how,
                            eider_kernel **out)
{
    enum { OPERANDS_MAX = 16 };
    static const int64_t shape[] = {(int64_t)1 << 26};
    eider_tensor args[OPERANDS_MAX];
    eider_program *program = NULL;
    eider_status status = parse(ctx, text, how->with_gradient, &program);
    if (status != EIDER_OK) return status;
    size_t n = eider_program_operands(program);
    for (size_t i = 0; i < n && i < OPERANDS_MAX; i++)
        args[i] = (eider_tensor){.type = how->type, .rank = 1, .shape = shape};
    eider_request request = {.program = program,
                             .args = args,
                             .n_args = n,
                             .numerics = {.math = how->math},
                             .config = how->config,
                             .target = how->target};
    status = eider_compile(ctx, &request, out);
    eider_program_release(program);
    return status;
}

eider_status support_sass_try(eider_context *ctx, const char *text, const struct support_sass *how,
                              eider_sass **out)
{
    eider_kernel *kernel = NULL;
    eider_status status = compile(ctx, text, how, &kernel);
    if (status == EIDER_OK) status = eider_kernel_sass(kernel, NULL, out);
    eider_kernel_release(kernel);
    return status;
}

static void must(eider_status status, const char *what)
{
    if (status != EIDER_OK) fail_msg("%s: %s", what, eider_error());
}

eider_kernel *support_sass_compile(eider_context *ctx, const char *text,
                                   const struct support_sass *how)
{
    eider_kernel *kernel = NULL;
    must(compile(ctx, text, how, &kernel), text);
    return kernel;
}

eider_sass *support_sass_report(eider_context *ctx, const char *text,
                                const struct support_sass *how)
{
    eider_sass *sass = NULL;
    must(support_sass_try(ctx, text, how, &sass), text);
    return sass;
}

double support_sass_count(const eider_sass *sass, const char *name)
{
    eider_sass_opcode o;
    size_t n = strlen(name);
    double sum = 0;
    for (size_t i = 0; eider_sass_opcodes(sass, i, &o); i++)
        if (strncmp(o.opcode, name, n) == 0 && (!o.opcode[n] || o.opcode[n] == '.'))
            sum += o.per_element;
    return sum;
}
