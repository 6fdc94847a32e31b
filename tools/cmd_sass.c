/* cmd_sass.c -- `eider sass`: what machine code really does, and what each term costs. */
#include <stdio.h>
#include <string.h>

#include "sass_report.h"
#include "say.h"

static const char *get_listing(const struct cli_options *options)
{
    const char *listing = cli_options_get(options, CLI_LISTING);
    return listing ? listing : "pass";
}

/* ---- Budgets ----------------------------------------------------------- */

static int check_budget(const struct cli_sass_input *in, const char *budget, int *broken)
{
    eider_sass_claim c;
    for (size_t i = 0;; i++) {
        eider_status status = eider_sass_expect(in->sass, budget, i, &c);
        if (status != EIDER_OK) return cli_fail(CLI_USAGE, "--expect: %s", eider_error());
        if (!c.name[0]) return CLI_OK;
        if (c.holds) continue;
        if (!*broken) fprintf(stderr, "eider: error: the budget does not hold, per element:\n");
        fprintf(stderr, "- %s %s %g\n+ %s = %g\n", c.name, c.relation, c.want, c.name, c.got);
        *broken = 1;
    }
}

static int check_budgets(const struct cli_sass_input *in)
{
    const struct cli_values *budgets = &in->session.options->given[CLI_EXPECT];
    int broken = 0;
    for (int i = 0; i < budgets->n; i++) {
        int code = check_budget(in, budgets->at[i], &broken);
        if (code) return code;
    }
    return broken ? CLI_FAILED : CLI_OK;
}

/* ---- The command ------------------------------------------------------- */

static int show(const struct cli_sass_input *in)
{
    const struct cli_options *options = in->session.options;
    const char *page = cli_options_get(options, CLI_HTML);
    int code = page ? cli_sass_write_page(in, page) : CLI_OK;
    if (code) return code;
    if (cli_options_has(options, CLI_JSON)) return cli_print_json(cli_sass_json(in));
    /* A budget or a page is asked for by those who do not want to read. */
    int quiet =
        (page || cli_options_has(options, CLI_EXPECT)) && !cli_options_has(options, CLI_LISTING);
    return quiet ? CLI_OK : cli_sass_print(in, get_listing(options));
}

static int compare(const struct cli_options *options)
{
    struct cli_sass_input before = {0}, after = {0};
    if (options->words.n != 2) return cli_fail(CLI_USAGE, "--diff needs two inputs");
    if (cli_options_has(options, CLI_EXPECT) || cli_options_has(options, CLI_HTML))
        return cli_fail(CLI_USAGE, "--diff goes with neither --expect nor --html");
    int code = cli_sass_open(options, options->words.at[0], NULL, &before);
    if (!code) code = cli_sass_open(options, options->words.at[1], options->words.at[0], &after);
    if (!code)
        code = cli_options_has(options, CLI_JSON)
                   ? cli_print_json(cli_sass_json_diff(&before, &after))
                   : cli_sass_print_diff(&before, &after);
    cli_sass_close(&before);
    cli_sass_close(&after);
    return code;
}

static int run(const struct cli_options *options)
{
    struct cli_sass_input in = {0};
    if (cli_options_has(options, CLI_DIFF)) return compare(options);
    if (options->words.n != 1)
        return cli_fail(CLI_USAGE, "two inputs are compared with --diff, not shown");
    int code = cli_sass_open(options, options->words.at[0], NULL, &in);
    if (!code) code = show(&in);
    if (!code) code = check_budgets(&in);
    cli_sass_close(&in);
    return code;
}

const struct cli_command cli_cmd_sass = {
    .name = "sass",
    .summary = "Shows what machine code does: instructions per term, units, bounds, schedules",
    .usage = "INPUT | --diff INPUT INPUT",
    .about =
        "INPUT is a program, @FILE, a .ll, .bc, .ptx or .cubin file, or the key of a kernel in\n"
        "the cache. No GPU is needed; where there is one, the kernel that it runs is shown,\n"
        "with its measured rate. Counts are those of the pass, what a thread does for its\n"
        "elements when tiles are whole; a budget counts only what computes the program's terms.\n"
        "With --diff the second INPUT may be +SETTINGS, the first one with others:\n"
        "+math=fast,target=sm_80,vec=4.\n",
    .examples = "  eider sass 'out = silu(gate) * up'\n"
                "  eider sass 'out = silu(x)' --math approx --expect 'MUFU.TANH=1,FMUL<=1,FFMA=1'\n"
                "  eider sass --diff 'out = gelu_tanh(x)' '+math=exact'\n"
                "  eider sass 'out = swiglu(x, y)' --grad all --target sm_100 --html swiglu.html\n"
                "  eider sass kernel.ptx --elements 8 --listing all\n",
    .options = CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES_OPERANDS | CLI_USES(TARGET) |
               CLI_USES(ENTRY) | CLI_USES(ELEMENTS) | CLI_USES(BYTES) | CLI_USES(LISTING) |
               CLI_USES(EXPECT) | CLI_USES(DIFF) | CLI_USES(HTML),
    .min_words = 1,
    .max_words = 2,
    .run = run,
};
