/* inspect.c -- what each term of a program costs on a GPU, and what bounds it; needs no GPU.
 *
 *   cc inspect.c -leider
 */
#include <stdio.h>
#include <stdlib.h>

#include "eider/eider.h"

static void check(eider_status status)
{
    if (status == EIDER_OK) return;
    fprintf(stderr, "%s: %s\n", eider_status_name(status), eider_error());
    exit(status == EIDER_IO || status == EIDER_UNSUPPORTED ? 77 : 1); /* 77: a tool is missing */
}

static eider_kernel *compile(eider_context *ctx, const char *text)
{
    const int64_t shape[] = {1 << 26};
    const eider_tensor tensor = {.type = EIDER_BF16, .rank = 1, .shape = shape};
    const eider_tensor args[] = {tensor, tensor, tensor};
    eider_program *program;
    eider_kernel *kernel;
    check(eider_program_parse(ctx, text, &program));
    eider_request request = {.program = program, .args = args, .n_args = 3, .target = "sm_90"};
    check(eider_compile(ctx, &request, &kernel));
    eider_program_release(program);
    return kernel;
}

int main(void)
{
    eider_context *ctx;
    eider_sass *sass;
    check(eider_context_create(NULL, &ctx));
    eider_kernel *kernel = compile(ctx, "out = silu(gate) * up");
    check(eider_kernel_sass(kernel, NULL, &sass));

    eider_sass_summary summary;
    eider_sass_describe(sass, &summary);
    printf("%u instructions for %g elements, %d registers\n", summary.n_pass, summary.elements,
           summary.registers);
    printf("%s allows %.2f TB/s on %s\n", summary.bound, summary.gbytes_per_s / 1e3,
           summary.assumptions);

    /* Rows are read by number until there are no more. */
    eider_sass_term term;
    for (size_t i = 0; eider_sass_terms(sass, i, &term); i++)
        printf("%6.2f  %-32s %s\n", term.per_element, term.text, term.opcodes);

    /* A budget of one element's arithmetic, claim by claim. */
    eider_sass_claim claim;
    int broken = 0;
    for (size_t i = 0;; i++) {
        check(eider_sass_expect(sass, "MUFU.TANH=1, FMUL<=2, FFMA<=1", i, &claim));
        if (!claim.name[0]) break;
        if (!claim.holds) printf("%s is %g\n", claim.name, claim.got);
        broken |= !claim.holds;
    }

    eider_sass_release(sass);
    eider_kernel_release(kernel);
    eider_context_destroy(ctx);
    return broken;
}
