/* cmd_cache.c -- `eider cache`: what is kept on disk, why something is not, and moving it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "operands.h"
#include "say.h"

#define KEY_COLUMNS 12
#define PROGRAM_COLUMNS 56
#define DEFAULT_ROWS 256 /* as for `eider emit` */

/* ---- Texts ------------------------------------------------------------------------ */

/* The line `name: ...` of a manifest; its length goes to *size. */
static const char *line_of(const char *manifest, const char *name, int *size)
{
    size_t length = strlen(name);
    for (const char *at = manifest; *at;) {
        size_t n = strcspn(at, "\n");
        if (n > length + 1 && memcmp(at, name, length) == 0 && at[length] == ':') {
            *size = (int)(n - length - 2);
            return at + length + 2;
        }
        at += n + (at[n] == '\n');
    }
    *size = 0;
    return "";
}

/* What a manifest is about: the program, else the kind of source. */
static const char *subject_of(const char *manifest, int *size)
{
    const char *text = line_of(manifest, "program", size);
    if (!*size) text = line_of(manifest, "entry", size);
    return text;
}

static void format_day(int64_t seconds, char out[16])
{
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || !strftime(out, 16, "%Y-%m-%d", &parts)) strcpy(out, "?");
}

/* ---- ls, verify --------------------------------------------------------------------- */

struct listing {
    json_t *rows; /* NULL: text */
    int only_bad;
    uint64_t n, n_bad;
};

static json_t *describe(const eider_cache_entry *e)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i}", "key",
                     e->key, "path", e->path, "layer", (json_int_t)e->layer, "bytes",
                     (json_int_t)e->bytes, "used", (json_int_t)e->used_s, "problem",
                     e->problem ? e->problem : "", "entry", e->entry, "manifest", e->manifest,
                     "ptx_bytes", (json_int_t)e->ptx_size, "code_bytes", (json_int_t)e->code_size,
                     "registers", e->registers, "spill_bytes", e->spill_bytes, "shared_bytes",
                     e->shared_bytes);
}

static int32_t list_entry(void *user, const eider_cache_entry *e)
{
    struct listing *list = user;
    char day[16];
    int target_size, size;
    list->n++;
    list->n_bad += e->problem != NULL;
    if (list->only_bad && !e->problem) return 0;
    if (list->rows) {
        json_array_append_new(list->rows, describe(e));
        return 0;
    }
    if (e->problem) {
        printf("%.*s  damaged: %s (%s)\n", KEY_COLUMNS, e->key, e->problem, e->path);
        return cli_stdout_broken();
    }
    const char *target = line_of(e->manifest, "target", &target_size);
    const char *subject = subject_of(e->manifest, &size);
    format_day(e->used_s, day);
    printf("%.*s  %-7.*s %8llu  %s  %.*s%s\n", KEY_COLUMNS, e->key, target_size, target,
           (unsigned long long)e->bytes, day, size < PROGRAM_COLUMNS ? size : PROGRAM_COLUMNS,
           subject, size > PROGRAM_COLUMNS ? "..." : "");
    return cli_stdout_broken();
}

static int list(struct cli_session *s, const char *key, struct listing *out)
{
    out->rows = cli_options_has(s->options, CLI_JSON) ? json_array() : NULL;
    eider_status status = eider_cache_each(s->ctx, key, list_entry, out);
    if (status == EIDER_OK) return out->rows ? cli_print_json(out->rows) : CLI_OK;
    json_decref(out->rows);
    return cli_fail_library(status);
}

static int run_ls(struct cli_session *s, const char *key)
{
    struct listing listing = {0};
    return list(s, key, &listing);
}

static int run_verify(struct cli_session *s, const char *key)
{
    struct listing listing = {.only_bad = 1};
    int code = list(s, key, &listing);
    if (code) return code;
    if (!cli_options_has(s->options, CLI_JSON))
        printf("%llu entries, %llu damaged\n", (unsigned long long)listing.n,
               (unsigned long long)listing.n_bad);
    return listing.n_bad ? CLI_FAILED : CLI_OK;
}

/* ---- show ---------------------------------------------------------------------------- */

struct showing {
    const struct cli_options *options;
    char first[33]; /* the key that is shown */
    int n, code;
};

static int write_stage(const struct cli_options *options, const eider_cache_entry *e,
                       const char *stage)
{
    const char *path = cli_options_get(options, CLI_OUTPUT);
    struct cli_piece piece = {e->ptx, e->ptx_size};
    if (!path) path = "-";
    if (strcmp(stage, "cubin") == 0) piece = (struct cli_piece){e->code, e->code_size};
    if (strcmp(stage, "opt") == 0) piece = (struct cli_piece){e->opt_ir, e->opt_ir_size};
    if (!piece.size) return cli_fail(CLI_USAGE, "%s holds no %s", e->key, stage);
    if (strcmp(stage, "cubin") == 0 && strcmp(path, "-") == 0 && isatty(STDOUT_FILENO))
        return cli_fail(CLI_USAGE, "machine code is not for a terminal: -o FILE");
    return cli_file_write(path, &piece, 1);
}

static void print_entry(const eider_cache_entry *e)
{
    char day[16];
    format_day(e->used_s, day);
    printf("key: %s\nfile: %s\nused: %s\nbytes: %llu (ptx %zu, code %zu)\n", e->key, e->path, day,
           (unsigned long long)e->bytes, e->ptx_size, e->code_size);
    if (e->problem) {
        printf("damaged: %s\n", e->problem);
        return;
    }
    printf("function: %s\n", e->entry);
    if (e->registers >= 0)
        printf("registers: %d\nspill bytes: %d\nshared bytes: %d\n", e->registers, e->spill_bytes,
               e->shared_bytes);
    fputs(e->manifest, stdout);
}

static int32_t show_entry(void *user, const eider_cache_entry *e)
{
    struct showing *showing = user;
    const char *stage = cli_options_get(showing->options, CLI_STAGE);
    if (showing->n && strcmp(showing->first, e->key) == 0) return 0; /* in a later layer, too */
    if (showing->n++) return 1;
    snprintf(showing->first, sizeof showing->first, "%s", e->key);
    if (stage)
        showing->code = write_stage(showing->options, e, stage);
    else if (cli_options_has(showing->options, CLI_JSON))
        showing->code = cli_print_json(describe(e));
    else
        print_entry(e);
    return 0;
}

static int32_t count_keys(void *user, const eider_cache_entry *e)
{
    struct showing *showing = user;
    if (!showing->n || strcmp(showing->first, e->key) != 0) showing->n++;
    snprintf(showing->first, sizeof showing->first, "%s", e->key);
    return 0;
}

static int run_show(struct cli_session *s, const char *key)
{
    struct showing showing = {.options = s->options};
    if (!key) return cli_fail(CLI_USAGE, "eider cache show KEY");
    eider_status status = eider_cache_each(s->ctx, key, count_keys, &showing);
    if (status != EIDER_OK) return cli_fail_library(status);
    if (showing.n == 0) return cli_fail(CLI_FAILED, "no entry's key begins with '%s'", key);
    if (showing.n > 1 && strncmp(showing.first, key, strlen(key)) == 0 && strlen(key) < 32)
        return cli_fail(CLI_USAGE, "'%s' begins %d keys: give more digits", key, showing.n);
    showing = (struct showing){.options = s->options};
    status = eider_cache_each(s->ctx, key, show_entry, &showing);
    return status == EIDER_OK ? showing.code : cli_fail_library(status);
}

/* ---- explain ------------------------------------------------------------------------- */

static int explain_json(const eider_cache_explanation *e)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < e->n_differences; i++)
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:s}", "name", e->differences[i].name, "wanted",
                                        e->differences[i].wanted, "kept", e->differences[i].kept));
    return cli_print_json(json_pack("{s:s, s:b, s:s, s:s, s:o}", "key", e->key, "hit", e->is_hit,
                                    "manifest", e->manifest, "nearest", e->nearest, "differences",
                                    rows));
}

static void explain_text(const eider_cache_explanation *e)
{
    printf("%s of %s\n", e->is_hit ? "hit" : "miss", e->key);
    if (!e->nearest[0]) {
        puts("nothing is kept");
    } else if (!e->n_differences) {
        puts(e->is_hit ? "as this machine would compile it"
                       : "its entry exists but is not used: see the warnings, or verify");
    } else {
        printf("%s is %s; different:\n", e->nearest, e->is_hit ? "the entry" : "nearest");
        for (size_t i = 0; i < e->n_differences; i++) {
            const eider_cache_difference *d = &e->differences[i];
            printf("  %s\n    wanted  %s\n    kept    %s\n", d->name,
                   d->wanted[0] ? d->wanted : "(nothing)", d->kept[0] ? d->kept : "(nothing)");
        }
    }
    fputs(e->manifest, stdout);
}

/* Prepares s->program with its operands, or only explains where it would come from. */
static int with_request(struct cli_session *s, const char *text,
                        int (*use)(struct cli_session *s, const eider_request *request))
{
    struct cli_operands operands;
    struct cli_operands_rule rule = {.default_rows = DEFAULT_ROWS, .default_type = EIDER_BF16};
    int code = cli_session_program(s, text);
    if (code) return code;
    code = cli_operands_bind(s, rule, &operands);
    if (!code) {
        eider_request request = cli_session_request(s, operands.tensors, operands.n);
        request.target = cli_options_get(s->options, CLI_TARGET);
        code = use(s, &request);
    }
    cli_operands_release(s, &operands);
    return code;
}

static int explain(struct cli_session *s, const eider_request *request)
{
    eider_cache_explanation *e;
    if (!request->target && !s->device) {
        int code = cli_session_device(s);
        if (code) return code;
    }
    eider_status status =
        eider_cache_explain(s->ctx, request->target ? NULL : s->device, request, &e);
    if (status != EIDER_OK) return cli_fail_library(status);
    int code = CLI_OK;
    if (cli_options_has(s->options, CLI_JSON))
        code = explain_json(e);
    else
        explain_text(e);
    if (!code && !e->is_hit) code = CLI_FAILED;
    eider_cache_explanation_release(e);
    return code;
}

static int run_explain(struct cli_session *s, const char *text)
{
    if (!text) return cli_fail(CLI_USAGE, "eider cache explain PROGRAM");
    return with_request(s, text, explain);
}

/* ---- stats --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
    int is_ns;
} counters[] = {
#define COUNTER(name, is_ns)                         \
    {                                                \
#name, offsetof(eider_counters, name), is_ns \
    }
    COUNTER(compiles, 0),
    COUNTER(memory_hits, 0),
    COUNTER(disk_hits, 0),
    COUNTER(disk_absent, 0),
    COUNTER(disk_damaged, 0),
    COUNTER(disk_unreadable, 0),
    COUNTER(disk_refused, 0),
    COUNTER(disk_forced, 0),
    COUNTER(disk_read_bytes, 0),
    COUNTER(disk_writes, 0),
    COUNTER(disk_written_bytes, 0),
    COUNTER(disk_evictions, 0),
    COUNTER(disk_ns, 1),
    COUNTER(ir_ns, 1),
    COUNTER(opt_ns, 1),
    COUNTER(ptx_ns, 1),
    COUNTER(assemble_ns, 1),
    COUNTER(load_ns, 1),
#undef COUNTER
};

#define N_COUNTERS (sizeof counters / sizeof counters[0])

static uint64_t value_of(const eider_counters *from, size_t i)
{
    uint64_t value;
    memcpy(&value, (const char *)from + counters[i].offset, sizeof value);
    return value;
}

static int prepare(struct cli_session *s, const eider_request *request)
{
    eider_kernel *kernel;
    eider_status status;
    if (!request->target && !s->device) {
        int code = cli_session_device(s);
        if (code) return code;
    }
    status = request->target ? eider_compile(s->ctx, request, &kernel)
                             : eider_prepare(s->device, request, &kernel);
    if (status != EIDER_OK) return cli_fail_library(status);
    eider_kernel_release(kernel);
    return CLI_OK;
}

static void print_limit(uint64_t limit)
{
    if (limit == UINT64_MAX)
        puts("any");
    else
        printf("%llu\n", (unsigned long long)limit);
}

static void stats_text(struct cli_session *s, const eider_cache_info *info, int with_counters)
{
    eider_counters c;
    printf("directory       %s\n", info->directory[0] ? info->directory : "none");
    for (size_t i = 0; i < info->n_layers; i++)
        printf("layer           %s\n", eider_cache_layer(s->ctx, i));
    printf("files           %llu of ", (unsigned long long)info->files);
    print_limit(info->max_files);
    printf("bytes           %llu of ", (unsigned long long)info->bytes);
    print_limit(info->max_bytes);
    if (!with_counters) return;
    eider_context_counters(s->ctx, &c);
    for (size_t i = 0; i < N_COUNTERS; i++) {
        uint64_t value = value_of(&c, i);
        int width = (int)strlen(counters[i].name);
        if (counters[i].is_ns)
            printf("%.*s%*s %.3f ms\n", width - 3, counters[i].name, 18 - width, "",
                   1e-6 * (double)value);
        else
            printf("%s%*s %llu\n", counters[i].name, width < 15 ? 15 - width : 0, "",
                   (unsigned long long)value);
    }
}

static int stats_json(struct cli_session *s, const eider_cache_info *info)
{
    eider_counters c;
    json_t *counts = json_object(), *layers = json_array();
    eider_context_counters(s->ctx, &c);
    for (size_t i = 0; i < N_COUNTERS; i++)
        json_object_set_new(counts, counters[i].name, json_integer((json_int_t)value_of(&c, i)));
    for (size_t i = 0; i < info->n_layers; i++)
        json_array_append_new(layers, json_string(eider_cache_layer(s->ctx, i)));
    return cli_print_json(json_pack(
        "{s:s, s:o, s:I, s:I, s:f, s:f, s:o}", "directory", info->directory, "layers", layers,
        "files", (json_int_t)info->files, "bytes", (json_int_t)info->bytes, "max_files",
        (double)info->max_files, "max_bytes", (double)info->max_bytes, "counters", counts));
}

static int run_stats(struct cli_session *s, const char *text)
{
    eider_cache_info info;
    int code = text ? with_request(s, text, prepare) : CLI_OK;
    if (code) return code;
    eider_status status = eider_cache_describe(s->ctx, &info);
    if (status != EIDER_OK) return cli_fail_library(status);
    if (cli_options_has(s->options, CLI_JSON)) return stats_json(s, &info);
    stats_text(s, &info, text != NULL);
    return CLI_OK;
}

/* ---- prune, export, import ------------------------------------------------------------ */

static int say_files(const struct cli_session *s, const char *what, uint64_t n)
{
    if (cli_options_has(s->options, CLI_JSON))
        return cli_print_json(json_pack("{s:I}", what, (json_int_t)n));
    printf("%llu %s\n", (unsigned long long)n, what);
    return CLI_OK;
}

static int get_limit(const struct cli_options *options, enum cli_option id, uint64_t otherwise,
                     uint64_t *out)
{
    double value;
    *out = otherwise;
    if (!cli_options_has(options, id)) return CLI_OK;
    int code = cli_options_number(options, id, 0, 0, &value);
    if (!code) *out = value < 0x1p63 ? (uint64_t)value : UINT64_MAX;
    return code;
}

static int run_prune(struct cli_session *s, const char *word)
{
    eider_cache_info info;
    uint64_t max_bytes, max_files, n;
    if (word) return cli_fail(CLI_USAGE, "unexpected '%s' after prune", word);
    eider_status status = eider_cache_describe(s->ctx, &info);
    if (status != EIDER_OK) return cli_fail_library(status);
    int code = get_limit(s->options, CLI_MAX_BYTES, info.max_bytes, &max_bytes);
    if (!code) code = get_limit(s->options, CLI_MAX_FILES, info.max_files, &max_files);
    if (code) return code;
    status = eider_cache_prune(s->ctx, max_bytes, max_files, &n);
    return status == EIDER_OK ? say_files(s, "removed", n) : cli_fail_library(status);
}

static int run_export(struct cli_session *s, const char *path)
{
    uint64_t n;
    if (!path) return cli_fail(CLI_USAGE, "eider cache export FILE [KEY]");
    const char *key = s->options->words.n > 2 ? s->options->words.at[2] : NULL;
    eider_status status = eider_cache_export(s->ctx, key, path, &n);
    return status == EIDER_OK ? say_files(s, "exported", n) : cli_fail_file(status);
}

static int run_import(struct cli_session *s, const char *path)
{
    uint64_t n = 0;
    if (!path) return cli_fail(CLI_USAGE, "eider cache import FILE");
    eider_status status = eider_cache_import(s->ctx, path, &n);
    return status == EIDER_OK ? say_files(s, "imported", n) : cli_fail_file(status);
}

/* ---- The command ---------------------------------------------------------------------- */

static const struct verb {
    const char *name;
    int max_words; /* after the verb */
    int (*run)(struct cli_session *s, const char *word);
} verbs[] = {
    {"ls", 1, run_ls},         {"show", 1, run_show},     {"explain", 1, run_explain},
    {"verify", 1, run_verify}, {"stats", 1, run_stats},   {"prune", 0, run_prune},
    {"export", 2, run_export}, {"import", 1, run_import},
};

#define N_VERBS (sizeof verbs / sizeof verbs[0])

static int run(const struct cli_options *options)
{
    const char *name = options->words.at[0];
    struct cli_suggestion near = cli_suggestion_start(name, strlen(name));
    for (size_t i = 0; i < N_VERBS; i++) {
        cli_suggestion_offer(&near, verbs[i].name);
        if (strcmp(verbs[i].name, name) != 0) continue;
        if (options->words.n > 1 + verbs[i].max_words)
            return cli_fail(CLI_USAGE, "unexpected '%s' after %s",
                            options->words.at[1 + verbs[i].max_words], name);
        struct cli_session session;
        int code = cli_session_open(options, &session);
        if (!code)
            code = verbs[i].run(&session, options->words.n > 1 ? options->words.at[1] : NULL);
        cli_session_close(&session);
        return code;
    }
    return cli_fail(CLI_USAGE, "unknown word '%s' for eider cache%s", name,
                    cli_suggestion_text(&near));
}

const struct cli_command cli_cmd_cache = {
    .name = "cache",
    .summary = "Shows, explains, checks and moves the kernels that are kept on disk",
    .usage = "ls|show|explain|verify|stats|prune|export|import ...",
    .about =
        "  ls [KEY]              the entries (whose keys begin with KEY)\n"
        "  show KEY              one entry: its files, resources and manifest; with --stage, its\n"
        "                        PTX, machine code (cubin) or optimised IR\n"
        "  explain PROGRAM       whether it would be found, else the nearest entry and what\n"
        "                        differs; exit code 1 for a miss\n"
        "  verify [KEY]          checks every entry; exit code 1 when one is damaged\n"
        "  stats [PROGRAM]       place, size and budgets; with a program, what preparing it\n"
        "                        hit, missed and took\n"
        "  prune                 keeps the budgets, or --max-files and --max-bytes\n"
        "  export FILE [KEY]     writes the entries into one file, an archive\n"
        "  import FILE           takes the entries of an archive over\n\n"
        "An archive may also be used where it is, read-only: EIDER_CACHE_PATH=FILE.\n",
    .examples = "  eider cache ls\n"
                "  eider cache explain 'out = silu(gate) * up' --target sm_90\n"
                "  eider cache prune --max-files 0\n"
                "  eider cache export kernels.eider && EIDER_CACHE_PATH=$PWD/kernels.eider ./app\n",
    .options = CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES_OPERANDS | CLI_USES(TARGET) |
               CLI_USES(STAGE) | CLI_USES(OUTPUT) | CLI_USES(MAX_BYTES) | CLI_USES(MAX_FILES),
    .min_words = 1,
    .max_words = 3,
    .run = run,
};
