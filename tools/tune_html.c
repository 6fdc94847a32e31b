/* tune_html.c -- a tuning as one page that needs nothing else: for every tuning a bar per
 * config, and a heatmap over the two parameters that matter most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "say.h"
#include "tune_report.h"

#define PARAMS_MAX 16
#define VALUES_MAX 32
#define NAME_BYTES 32
#define BARS_MAX 200

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>eider tune</title>\n"
    "<style>\n"
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;"
    "color:#222;background:#fff}\n"
    "h1{font-size:1.3em}h2{font-size:1.05em;margin-top:2em}code,td,th{font:12px/1.4 "
    "ui-monospace,monospace}\n"
    "table{border-collapse:collapse}td,th{padding:2px 8px;text-align:right;white-space:nowrap}\n"
    "td:first-child,th:first-child{text-align:left}\n"
    ".bar{width:20em;text-align:left}.bar i{display:block;height:11px;background:#5b8db8}\n"
    ".best .bar i{background:#2e8b57}.best td{font-weight:bold}.gone{color:#999}\n"
    ".heat td{text-align:center;min-width:5em}\n"
    "@media(prefers-color-scheme:dark){body{background:#16181b;color:#ddd}}\n"
    "</style>\n<h1>eider tune</h1>\n";

/* ---- Text -------------------------------------------------------------------------- */

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
    }
}

/* ---- Bars ----------------------------------------------------------------------------- */

static void write_bar(FILE *out, const struct cli_tuning *t, size_t i, const char *shared,
                      double slowest)
{
    char config[CLI_CONFIG_BYTES];
    const eider_tune_entry *e = &t->entries[i];
    int is_best = e->config == t->choice;
    fprintf(out, "<tr%s><td>", is_best ? " class=best" : e->n_samples ? "" : " class=gone");
    cli_tune_rest(e->config, shared, config);
    put_escaped(out, config);
    if (e->n_samples == 0) {
        fputs("<td colspan=4 style=\"text-align:left\">", out);
        put_escaped(out, e->reason[0] ? e->reason : "untried");
        fputs("\n", out);
        return;
    }
    double rate = cli_tune_rate(t, e->median_ns);
    fprintf(out, "<td>%.2f us<td>%.1f %%<td>%.1f", 1e-3 * e->median_ns,
            100 * (e->p80_ns - e->p20_ns) / e->median_ns, rate);
    fprintf(out, "<td class=bar><i style=\"width:%.1f%%\"></i>\n", 100 * e->median_ns / slowest);
}

static void write_bars(FILE *out, const struct cli_tuning *t)
{
    char shared[CLI_CONFIG_BYTES];
    double slowest = 1;
    size_t n = t->n < BARS_MAX ? t->n : BARS_MAX;
    for (size_t i = 0; i < n; i++)
        if (t->entries[i].median_ns > slowest) slowest = t->entries[i].median_ns;
    cli_tune_shared(t, shared);
    if (shared[0]) {
        fputs("<p>all with <code>", out);
        put_escaped(out, shared);
        fputs("</code>\n", out);
    }
    fputs("<table><tr><th>config<th>median<th>spread<th>GB/s<th>\n", out);
    for (size_t i = 0; i < n; i++) write_bar(out, t, i, shared, slowest);
    fputs("</table>\n", out);
    if (n < t->n) fprintf(out, "<p>and %zu more\n", t->n - n);
}

/* ---- Heatmap ---------------------------------------------------------------------------- */

struct param {
    char name[NAME_BYTES];
    size_t n;
    char values[VALUES_MAX][NAME_BYTES];
    double best[VALUES_MAX]; /* median of the best config with the value */
};

struct params {
    size_t n;
    struct param at[PARAMS_MAX];
};

/* The value of `name` in a config; 0 when it has none. */
static int value_of(const char *config, const char *name, char out[NAME_BYTES])
{
    size_t length = strlen(name);
    for (const char *at = config; *at;) {
        size_t n = strcspn(at, ",");
        if (n > length && n - length - 1 < NAME_BYTES && at[length] == '=' &&
            memcmp(at, name, length) == 0) {
            snprintf(out, NAME_BYTES, "%.*s", (int)(n - length - 1), at + length + 1);
            return 1;
        }
        at += n + (at[n] == ',');
    }
    return 0;
}

static void note_value(struct params *p, const char *name, size_t length, const char *config,
                       double ns)
{
    struct param *param = NULL;
    char value[NAME_BYTES];
    for (size_t i = 0; i < p->n && !param; i++)
        if (strlen(p->at[i].name) == length && memcmp(p->at[i].name, name, length) == 0)
            param = &p->at[i];
    if (!param && (p->n == PARAMS_MAX || length >= NAME_BYTES)) return;
    if (!param) {
        param = &p->at[p->n++];
        memcpy(param->name, name, length);
    }
    if (!value_of(config, param->name, value)) return;
    size_t v = 0;
    while (v < param->n && strcmp(param->values[v], value) != 0) v++;
    if (v == VALUES_MAX) return;
    if (v == param->n) {
        memcpy(param->values[param->n++], value, sizeof value);
        param->best[v] = ns;
    }
    if (ns < param->best[v]) param->best[v] = ns;
}

static void find_params(const struct cli_tuning *t, struct params *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < t->n; i++) {
        const eider_tune_entry *e = &t->entries[i];
        for (const char *at = e->config; *at && e->n_samples;) {
            size_t n = strcspn(at, ","), name = strcspn(at, "=");
            note_value(out, at, name, e->config, e->median_ns);
            at += n + (at[n] == ',');
        }
    }
}

/* How much it costs to choose a parameter's value badly. */
static double weight(const struct param *p)
{
    double low = p->best[0], high = low;
    for (size_t v = 1; v < p->n; v++) {
        if (p->best[v] < low) low = p->best[v];
        if (p->best[v] > high) high = p->best[v];
    }
    return p->n > 1 ? high / low : 0;
}

/* By number, else as text. */
static int by_value(const void *a, const void *b)
{
    double x = strtod(a, NULL), y = strtod(b, NULL);
    if (x != y) return x < y ? -1 : 1;
    return strcmp(a, b);
}

static double best_of(const struct cli_tuning *t, const struct param *x, size_t vx,
                      const struct param *y, size_t vy)
{
    for (size_t i = 0; i < t->n; i++) { /* fastest first */
        char value[NAME_BYTES];
        const eider_tune_entry *e = &t->entries[i];
        if (e->n_samples && value_of(e->config, x->name, value) &&
            strcmp(value, x->values[vx]) == 0 && value_of(e->config, y->name, value) &&
            strcmp(value, y->values[vy]) == 0)
            return e->median_ns;
    }
    return 0;
}

static void write_cell(FILE *out, double ns, double best)
{
    if (ns == 0) {
        fputs("<td>", out);
        return;
    }
    double worse = (ns / best - 1) / 0.5; /* half as slow again is as bad as it gets */
    if (worse > 1) worse = 1;
    fprintf(out, "<td style=\"color:#000;background:hsl(%.0f 60%% %.0f%%)\">%.2f",
            140 - 130 * worse, 70 + 8 * worse, 1e-3 * ns);
}

static void write_heatmap(FILE *out, const struct cli_tuning *t)
{
    struct params *p = malloc(sizeof *p);
    struct param *x = NULL, *y = NULL;
    if (!p) return;
    find_params(t, p);
    for (size_t i = 0; i < p->n; i++) {
        struct param *param = &p->at[i];
        if (param->n < 2) continue;
        if (!y || weight(param) > weight(y)) {
            x = y;
            y = param;
        } else if (!x || weight(param) > weight(x)) {
            x = param;
        }
    }
    if (x && y) {
        qsort(x->values, x->n, sizeof x->values[0], by_value);
        qsort(y->values, y->n, sizeof y->values[0], by_value);
        fprintf(out,
                "<p>Best median in us by %s (down) and %s (across):\n<table class=heat><tr><th>",
                y->name, x->name);
        for (size_t i = 0; i < x->n; i++) fprintf(out, "<th>%s=%s", x->name, x->values[i]);
        for (size_t k = 0; k < y->n; k++) {
            fprintf(out, "\n<tr><th>%s=%s", y->name, y->values[k]);
            for (size_t i = 0; i < x->n; i++)
                write_cell(out, best_of(t, x, i, y, k), t->entries[0].median_ns);
        }
        fputs("\n</table>\n", out);
    }
    free(p);
}

/* ---- The page ------------------------------------------------------------------------------ */

static void write_tuning(FILE *out, const struct cli_tuning *t)
{
    const eider_tune_summary *s = &t->summary;
    fputs("<h2><code>", out);
    put_escaped(out, t->program);
    fputs("</code></h2>\n<p>", out);
    put_escaped(out, t->shapes);
    fprintf(out, "; %s; L2 %s; %zu configs in %.2f s", t->device, t->is_hot ? "hot" : "cold",
            s->n_entries, s->total_s);
    if (t->copy_gb_per_s > 0) fprintf(out, "; copy %.1f GB/s", t->copy_gb_per_s);
    fputs("\n<p>choice: <code>", out);
    put_escaped(out, t->choice);
    fputs("</code>", out);
    if (s->median_ns > 0) fprintf(out, ", %.2f us", 1e-3 * s->median_ns);
    if (t->bytes) fprintf(out, ", %.1f GB/s", cli_tune_rate(t, s->median_ns));
    fputs("\n", out);
    write_heatmap(out, t);
    write_bars(out, t);
}

int cli_tune_write_page(const struct cli_tuning *t, size_t n, const char *path)
{
    char *page = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&page, &size);
    if (!out) return cli_fail_memory(sizeof head);
    fputs(head, out);
    for (size_t i = 0; i < n; i++) write_tuning(out, &t[i]);
    fputs("</html>\n", out);
    int failed = fclose(out) != 0;
    struct cli_piece piece = {page, size};
    int code = failed ? cli_fail_memory(size) : cli_file_write(path, &piece, 1);
    free(page);
    return code;
}
