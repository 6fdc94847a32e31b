/* cmd_tune.c -- `eider tune`: finds the fastest config of a program and remembers it; and
 * moves remembered timings between machines.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "tune_report.h"

#define DEFAULT_ROWS 4096
#define COPY_RUNS 30
#define BAR 30 /* characters */
#define ROWS_SHOWN 10
#define TUNINGS_MAX 64

/* What the library's results point into, kept until everything is printed. */
struct run {
    const struct cli_options *options;
    char *space, *triggers;
    size_t n;
    struct cli_tuning tunings[TUNINGS_MAX];
    eider_tuning *kept[TUNINGS_MAX];
};

/* ---- Progress ---------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static int32_t show_progress(void *user, const eider_tune_progress *p)
{
    char bar[BAR + 1];
    size_t full = p->total ? p->done * BAR / p->total : 0;
    (void)user;
    for (size_t i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    if (p->best_ns > 0)
        cli_progress("%-7s [%s] %zu/%zu  %.1f s  best %.2f us  %.60s", p->stage, bar, p->done,
                     p->total, p->elapsed_s, 1e-3 * p->best_ns, p->config);
    else
        cli_progress("%-7s [%s] %zu/%zu  %.1f s  %.60s", p->stage, bar, p->done, p->total,
                     p->elapsed_s, p->config);
    return interrupted;
}

/* ---- Options -------------------------------------------------------------------------- */

/* The values of an option, joined by commas; NULL where it was not given. */
static int join(const struct cli_options *options, enum cli_option id, char **out)
{
    const struct cli_values *values = &options->given[id];
    size_t bytes = 1;
    *out = NULL;
    if (values->n == 0) return CLI_OK;
    for (int i = 0; i < values->n; i++) bytes += strlen(values->at[i]) + 1;
    char *text = malloc(bytes), *at = text;
    if (!text) return cli_fail_memory(bytes);
    for (int i = 0; i < values->n; i++) {
        if (i) *at++ = ',';
        at = stpcpy(at, values->at[i]);
    }
    *at = '\0';
    *out = text;
    return CLI_OK;
}

static int read_budget(const struct cli_options *options, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}};
    const char *text = cli_options_get(options, CLI_BUDGET);
    char *end;
    *out = 0;
    if (!text) return CLI_OK;
    double value = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].unit) != 0 || !(value > 0)) continue;
        *out = value * units[i].seconds;
        if (isinf(*out)) break;
        return CLI_OK;
    }
    return cli_fail(CLI_USAGE, "--budget: '%s' is no time; such as 10s, 500ms or 2m", text);
}

static eider_search read_search(const struct cli_options *options)
{
    static const char *const names[] = {"auto", "exhaustive", "random", "directed"};
    const char *text = cli_options_get(options, CLI_SEARCH);
    for (int i = 0; text && i < 4; i++)
        if (strcmp(text, names[i]) == 0) return (eider_search)i;
    return EIDER_SEARCH_AUTO;
}

static int read_request(const struct run *r, eider_tune_request *out)
{
    const struct cli_options *options = r->options;
    double limit, seed, tolerance, rounds;
    int code = cli_options_number(options, CLI_LIMIT, 1, 0, &limit);
    if (!code) code = cli_options_number(options, CLI_SEED, 0, 0, &seed);
    if (!code) code = cli_options_number(options, CLI_ROUNDS, 1, 0, &rounds);
    if (!code) code = cli_options_number(options, CLI_TOLERANCE, 0, 0, &tolerance);
    if (code) return code;
    *out = (eider_tune_request){.space = r->space,
                                .triggers = r->triggers,
                                .condition = cli_options_get(options, CLI_CONDITION),
                                .search = read_search(options),
                                .seed = (uint64_t)fmin(seed, 0x1p63),
                                .limit = (int32_t)fmin(limit, INT32_MAX),
                                .rounds = (int32_t)fmin(rounds, INT32_MAX),
                                .tolerance = tolerance,
                                .hot = cli_options_has(options, CLI_HOT),
                                .check_program = cli_options_has(options, CLI_CHECK_PROGRAM),
                                .records = cli_options_get(options, CLI_RECORDS),
                                .force = cli_options_has(options, CLI_FORCE),
                                .pinned = cli_options_has(options, CLI_PINNED),
                                .hooks = {.progress = show_progress}};
    return read_budget(options, &out->budget_s);
}

/* ---- Results ----------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const eider_tune_entry *x = a, *y = b;
    if (!x->n_samples || !y->n_samples) return !x->n_samples - !y->n_samples;
    return x->median_ns < y->median_ns ? -1 : x->median_ns > y->median_ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The rate of the kernel `out = x` over as many bytes, timed like the candidates. */
static eider_status measure_copy(struct cli_session *s, struct cli_tuning *t)
{
    eider_program *program = NULL;
    eider_kernel *kernel = NULL;
    int64_t extent = (int64_t)(t->bytes / 8);
    eider_tensor args[] = {{.type = EIDER_F32, .rank = 1, .shape = &extent},
                           {.type = EIDER_F32, .rank = 1, .shape = &extent}};
    double ns[COPY_RUNS];
    eider_status status = EIDER_OK;
    if (extent == 0) return EIDER_OK;
    for (int i = 0; i < 2 && status == EIDER_OK; i++)
        status = eider_memory_alloc(s->device, (size_t)extent * 4, &args[i].data);
    eider_request request = {.args = args, .n_args = 2};
    if (status == EIDER_OK) status = eider_program_parse(s->ctx, "out = x", &program);
    request.program = program;
    if (status == EIDER_OK) status = eider_prepare(s->device, &request, &kernel);
    for (int i = 0; i < 2 && status == EIDER_OK; i++) /* the first brings the pages in */
        status = eider_time(kernel, NULL, args, 2, COPY_RUNS, !t->is_hot, ns);
    if (status == EIDER_OK) {
        qsort(ns, COPY_RUNS, sizeof ns[0], by_value);
        t->copy_gb_per_s = cli_tune_rate(t, ns[COPY_RUNS / 2]);
    }
    eider_kernel_release(kernel);
    eider_program_release(program);
    for (int i = 0; i < 2; i++)
        if (args[i].data) eider_memory_free(s->device, args[i].data);
    return status;
}

/* What a launch moves; the winner's kernel is in memory. */
static eider_status measure_bytes(struct cli_session *s, struct cli_operands *operands,
                                  struct cli_tuning *t)
{
    eider_kernel *kernel;
    eider_request request = cli_session_request(s, operands->tensors, operands->n);
    request.config = t->summary.config;
    request.numerics.math = t->summary.math;
    eider_status status = eider_prepare(s->device, &request, &kernel);
    if (status != EIDER_OK) return status;
    status = eider_kernel_bytes(kernel, operands->tensors, operands->n, &t->bytes);
    eider_kernel_release(kernel);
    return status;
}

static void describe_shapes(const struct cli_operands *operands, struct cli_tuning *t)
{
    size_t used = 0;
    for (size_t i = 0; i < operands->n && used < sizeof t->shapes; i++) {
        char shape[CLI_SHAPE_BYTES];
        const struct cli_operand *operand = &operands->at[i];
        if (operand->info.kind == EIDER_SCALAR) continue;
        int n = snprintf(t->shapes + used, sizeof t->shapes - used, "%s%s %s", used ? ", " : "",
                         operand->info.name, cli_array_shape(&operand->host, shape));
        if (n > 0) used += (size_t)n;
    }
}

static int collect(struct run *r, struct cli_session *s, struct cli_operands *operands,
                   eider_tuning *tuning)
{
    struct cli_tuning *t = &r->tunings[r->n];
    *t = (struct cli_tuning){.program = eider_program_text(s->program),
                             .device = s->device_info.name,
                             .is_hot = cli_options_has(r->options, CLI_HOT)};
    r->kept[r->n++] = tuning;
    eider_tune_describe(tuning, &t->summary);
    describe_shapes(operands, t);
    t->n = t->summary.n_entries;
    t->entries = calloc(t->n, sizeof *t->entries);
    if (!t->entries) return cli_fail_memory(t->n * sizeof *t->entries);
    for (size_t i = 0; i < t->n; i++) {
        eider_status status = eider_tune_entry_get(tuning, i, &t->entries[i]);
        if (status != EIDER_OK) return cli_fail_library(status);
    }
    t->choice = t->entries[t->summary.choice].config;
    qsort(t->entries, t->n, sizeof t->entries[0], by_time);
    if (cli_options_has(r->options, CLI_PINNED)) return CLI_OK; /* it compiles nothing */
    eider_status status = measure_bytes(s, operands, t);
    if (status == EIDER_OK && t->summary.median_ns > 0) status = measure_copy(s, t);
    return status == EIDER_OK ? CLI_OK : cli_fail_library(status);
}

/* ---- Tuning --------------------------------------------------------------------------------- */

static int tune(struct run *r, struct cli_session *s, struct cli_operands *operands)
{
    eider_tune_request request;
    eider_tuning *tuning = NULL;
    int code = read_request(r, &request);
    if (!code) code = cli_operands_upload(s, operands);
    if (code) return code;
    eider_request kernel = cli_session_request(s, operands->tensors, operands->n);
    request.kernel = &kernel;
    signal(SIGINT, interrupt);
    eider_status status = eider_tune(s->device, &request, &tuning);
    signal(SIGINT, SIG_DFL);
    cli_progress_end();
    return status == EIDER_OK ? collect(r, s, operands, tuning) : cli_fail_library(status);
}

/* Whether --in names an input. */
static int has_source(const struct cli_options *options, const char *name)
{
    const struct cli_values *in = &options->given[CLI_IN];
    size_t length = strlen(name);
    for (int i = 0; i < in->n; i++)
        if (strncmp(in->at[i], name, length) == 0 && strchr("=:", in->at[i][length])) return 1;
    return 0;
}

/* One of --shapes for every input without --in, as more --in. */
static int tune_shape(struct run *r, struct cli_session *s, const char *shape)
{
    struct cli_options options = *r->options;
    struct cli_operands operands = {0};
    struct cli_values *in = &options.given[CLI_IN];
    struct cli_operands_rule rule = {
        .fill = 1, .default_rows = DEFAULT_ROWS, .default_type = EIDER_BF16};
    size_t n = eider_program_operands(s->program);
    char(*texts)[256] = calloc(n + 1, sizeof *texts);
    const char **all = calloc(n + (size_t)in->n + 1, sizeof *all);
    int code = texts && all ? CLI_OK : cli_fail_memory(n * sizeof *texts);
    for (int i = 0; !code && i < in->n; i++) all[i] = in->at[i];
    for (size_t i = 0; !code && shape && i < n; i++) {
        eider_operand operand;
        eider_status status = eider_program_operand(s->program, i, &operand);
        if (status != EIDER_OK) code = cli_fail_library(status);
        if (code || operand.kind != EIDER_INPUT || has_source(r->options, operand.name)) continue;
        if (eider_program_extent(s->program, i) != EIDER_FULL) continue; /* follows from the rest */
        snprintf(texts[i], sizeof texts[i], "%s=%.180s", operand.name, shape);
        all[in->n++] = texts[i];
    }
    in->at = all;
    s->options = &options;
    if (!code) code = cli_operands_bind(s, rule, &operands);
    if (!code) code = tune(r, s, &operands);
    cli_operands_release(s, &operands);
    s->options = r->options;
    free(texts);
    free(all);
    return code;
}

static int report(const struct run *r)
{
    json_t *list = cli_options_has(r->options, CLI_JSON) ? json_array() : NULL;
    const char *page = cli_options_get(r->options, CLI_HTML);
    double rows;
    if (cli_options_number(r->options, CLI_TOP, 1, ROWS_SHOWN, &rows)) return CLI_USAGE;
    for (size_t i = 0; i < r->n; i++) {
        if (list)
            json_array_append_new(list, cli_tune_json(&r->tunings[i]));
        else
            cli_tune_print(&r->tunings[i], (size_t)fmin(rows, 0x1p31));
    }
    int code = list ? cli_print_json(list) : CLI_OK;
    return page && !code ? cli_tune_write_page(r->tunings, r->n, page) : code;
}

static int tune_all(struct run *r, struct cli_session *s)
{
    const struct cli_values *shapes = &r->options->given[CLI_SHAPES];
    int code = cli_session_program(s, r->options->words.at[0]);
    if (!code) code = cli_session_device(s);
    if (!code && shapes->n > TUNINGS_MAX)
        code = cli_fail(CLI_USAGE, "--shapes: more than %d", TUNINGS_MAX);
    if (!code && shapes->n == 0) code = tune_shape(r, s, NULL);
    for (int i = 0; !code && i < shapes->n; i++) code = tune_shape(r, s, shapes->at[i]);
    /* What was tuned before a failure is worth showing. */
    int shown = r->n ? report(r) : CLI_OK;
    return code ? code : shown;
}

/* ---- The command ----------------------------------------------------------------------------- */

static int check_words(const struct cli_options *options)
{
    int merges = cli_options_has(options, CLI_MERGE);
    int moves = cli_options_has(options, CLI_EXPORT) || cli_options_has(options, CLI_IMPORT);
    if (merges && (options->words.n != 2 || !cli_options_has(options, CLI_EXPORT)))
        return cli_fail(CLI_USAGE, "--merge: expected two files and --export FILE");
    if (!merges && options->words.n > 1)
        return cli_fail(CLI_USAGE, "unexpected '%s': one program is tuned", options->words.at[1]);
    if (!merges && !moves && options->words.n == 0)
        return cli_fail(CLI_USAGE, "a program is missing, or --export, --import or --merge");
    return CLI_OK;
}

static int work(struct run *r, struct cli_session *s)
{
    const struct cli_options *options = r->options;
    const char *from = cli_options_get(options, CLI_IMPORT);
    const char *to = cli_options_get(options, CLI_EXPORT);
    const char *records = cli_options_get(options, CLI_RECORDS);
    eider_status status = EIDER_OK;
    if (cli_options_has(options, CLI_MERGE)) {
        status = eider_tune_merge(s->ctx, options->words.at[0], options->words.at[1], to);
        return status == EIDER_OK ? CLI_OK : cli_fail_file(status);
    }
    if (from) status = eider_tune_import(s->ctx, records, from);
    if (status != EIDER_OK) return cli_fail_file(status);
    int code = join(options, CLI_SPACE, &r->space);
    if (!code) code = join(options, CLI_TRIGGER, &r->triggers);
    if (!code && options->words.n) code = tune_all(r, s);
    if (code || !to) return code;
    status = eider_tune_export(s->ctx, records, NULL, to);
    return status == EIDER_OK ? CLI_OK : cli_fail_file(status);
}

static int run(const struct cli_options *options)
{
    struct cli_session session = {0};
    struct run *r = calloc(1, sizeof *r);
    if (!r) return cli_fail_memory(sizeof *r);
    r->options = options;
    int code = check_words(options);
    if (!code) code = cli_session_open(options, &session);
    if (!code) code = work(r, &session);
    for (size_t i = 0; i < r->n; i++) {
        eider_tune_release(r->kept[i]);
        free(r->tunings[i].entries);
    }
    cli_session_close(&session);
    free(r->space);
    free(r->triggers);
    free(r);
    return code;
}

const struct cli_command cli_cmd_tune = {
    .name = "tune",
    .summary = "Finds the fastest config of a program, checks it and remembers it",
    .usage = "[PROGRAM] [--in NAME=SOURCE ... | --shapes TYPE[N,...]]",
    .about =
        "Every config is compiled, compared with the reference config on scratch memory and\n"
        "timed in turns with the others; what was timed before is not timed again. An input\n"
        "without --in or --shapes is a normally distributed bf16[4096,4096]. --set fixes\n"
        "parameters. The table is sorted by time; * is the choice, the simplest of those within\n"
        "1 % of the fastest. Interrupting keeps what was measured. docs/TUNING.md explains\n"
        "spaces, conditions and triggers.\n",
    .examples =
        "  eider tune 'out = silu(gate) * up' --shapes bf16[4096,14336]\n"
        "  eider tune 'out = gelu_tanh(x)' --space 'vec=4|8,unroll=1|2|4' --set block=256 --html "
        "tune.html\n"
        "  eider tune 'out = silu(x)' --trigger 'x.dtype,pow2(x.size(0))' --budget 10s --export "
        "timings.jsonl\n"
        "  eider tune --import timings.jsonl\n"
        "  eider tune --merge a.jsonl b.jsonl --export all.jsonl\n",
    .options = CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES_OPERANDS | CLI_USES(SHAPES) |
               CLI_USES(TRIGGER) | CLI_USES(BUDGET) | CLI_USES(SEARCH) | CLI_USES(SPACE) |
               CLI_USES(CONDITION) | CLI_USES(LIMIT) | CLI_USES(SEED) | CLI_USES(TOLERANCE) |
               CLI_USES(CHECK_PROGRAM) | CLI_USES(PINNED) | CLI_USES(FORCE) | CLI_USES(RECORDS) |
               CLI_USES(EXPORT) | CLI_USES(IMPORT) | CLI_USES(MERGE) | CLI_USES(ROUNDS) |
               CLI_USES(HOT) | CLI_USES(HTML) | CLI_USES(TOP),
    .min_words = 0,
    .max_words = 2,
    .run = run,
};
