/* tune_report.c -- see tune_report.h. */
#include "tune_report.h"

#include <stdio.h>
#include <string.h>

#include "say.h"

static const char *const outcomes[] = {"untried", "timed", "stopped early", "wrong", "failed"};
static const char *const ends[] = {"complete", "budget", "single", "recorded"};
static const char *const maths[] = {"auto", "approx", "fast", "exact"};

double cli_tune_rate(const struct cli_tuning *t, double ns)
{
    return ns > 0 ? (double)t->bytes / ns : 0;
}

/* ---- Configs ---------------------------------------------------------------------- */

/* Whether a config has the pair that begins at `pair` and is `n` bytes long. */
static int has_pair(const char *config, const char *pair, size_t n)
{
    for (const char *at = config; *at;) {
        size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, pair, n) == 0) return 1;
        at += length + (at[length] == ',');
    }
    return 0;
}

static void append_pair(char out[CLI_CONFIG_BYTES], const char *pair, size_t n)
{
    size_t used = strlen(out);
    snprintf(out + used, CLI_CONFIG_BYTES - used, "%s%.*s", used ? "," : "", (int)n, pair);
}

void cli_tune_shared(const struct cli_tuning *t, char out[CLI_CONFIG_BYTES])
{
    out[0] = '\0';
    for (const char *at = t->choice; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < t->n && has_pair(t->entries[i].config, at, n)) i++;
        if (i == t->n) append_pair(out, at, n);
        at += n + (at[n] == ',');
    }
}

void cli_tune_rest(const char *config, const char *shared, char out[CLI_CONFIG_BYTES])
{
    out[0] = '\0';
    for (const char *at = config; *at;) {
        size_t n = strcspn(at, ",");
        if (!has_pair(shared, at, n)) append_pair(out, at, n);
        at += n + (at[n] == ',');
    }
}

/* ---- A table ------------------------------------------------------------------------ */

static void print_row(const struct cli_tuning *t, const eider_tune_entry *e, const char *shared,
                      int width)
{
    char config[CLI_CONFIG_BYTES];
    cli_tune_rest(e->config, shared, config);
    printf("%c %-*s ", e->config == t->choice ? '*' : ' ', width, config);
    if (e->n_samples == 0) {
        printf(" %s%s%s\n", outcomes[e->outcome], e->reason[0] ? ": " : "", e->reason);
        return;
    }
    double rate = cli_tune_rate(t, e->median_ns);
    printf("%10.2f us %6.1f %%", 1e-3 * e->median_ns, 100 * (e->p80_ns - e->p20_ns) / e->median_ns);
    if (t->bytes) printf(" %9.1f", rate);
    if (t->bytes && t->copy_gb_per_s > 0) printf("   %6.3f", rate / t->copy_gb_per_s);
    printf("%s%s\n", e->outcome == EIDER_TUNE_STOPPED ? "  stopped early" : "",
           e->recorded ? "  recorded" : "");
}

static void print_head(const struct cli_tuning *t)
{
    const eider_tune_summary *s = &t->summary;
    printf("%.*s\n  %s; %s; L2 %s\n", (int)strcspn(t->program, "\n"), t->program, t->shapes,
           t->device, t->is_hot ? "hot" : "cold");
    printf("  %zu config%s: %zu timed, %zu recorded before, %zu wrong, %zu failed; %s after %.2f s",
           s->n_entries, s->n_entries == 1 ? "" : "s", s->n_timed, s->n_recorded, s->n_wrong,
           s->n_failed, ends[s->end], s->total_s);
    if (s->n_timed)
        printf(" (compile %.2f, check %.2f, time %.2f)", s->compile_s, s->check_s, s->time_s);
    printf("\n");
}

static void print_table(const struct cli_tuning *t, size_t rows)
{
    char shared[CLI_CONFIG_BYTES], config[CLI_CONFIG_BYTES];
    int width = 6;
    size_t shown = rows < t->n ? rows : t->n;
    cli_tune_shared(t, shared);
    for (size_t i = 0; i < shown; i++) {
        cli_tune_rest(t->entries[i].config, shared, config);
        if ((int)strlen(config) > width) width = (int)strlen(config);
    }
    if (shared[0]) printf("  all with %s\n", shared);
    printf("  %-*s        median   spread%s%s\n", width, "config", t->bytes ? "      GB/s" : "",
           t->bytes && t->copy_gb_per_s > 0 ? "  of copy" : "");
    for (size_t i = 0; i < shown; i++) print_row(t, &t->entries[i], shared, width);
    if (shown < t->n) printf("  ... and %zu more (--top %zu)\n", t->n - shown, t->n);
}

void cli_tune_print(const struct cli_tuning *t, size_t rows)
{
    const eider_tune_summary *s = &t->summary;
    print_head(t);
    if (s->end != EIDER_TUNE_SINGLE) print_table(t, rows);
    printf("choice  %s", s->config);
    if (s->math != EIDER_MATH_AUTO) printf("; math=%s", maths[s->math]);
    printf("\n");
    if (s->noisy) printf("        its times spread by more than 20 %%: is the device shared?\n");
}

/* ---- JSON ------------------------------------------------------------------------------ */

static json_t *entry_json(const struct cli_tuning *t, const eider_tune_entry *e)
{
    json_t *samples = json_array(), *clocks = json_array();
    for (size_t i = 0; i < e->n_samples; i++) {
        json_array_append_new(samples, json_real(e->samples_ns[i]));
        json_array_append_new(clocks, json_integer(e->clock_khz[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:o, s:o}", "config", e->config,
                     "outcome", outcomes[e->outcome], "reason", e->reason, "recorded", e->recorded,
                     "median_ns", e->median_ns, "p20_ns", e->p20_ns, "p80_ns", e->p80_ns,
                     "gb_per_s", cli_tune_rate(t, e->median_ns), "samples_ns", samples, "clock_khz",
                     clocks);
}

json_t *cli_tune_json(const struct cli_tuning *t)
{
    const eider_tune_summary *s = &t->summary;
    json_t *entries = json_array(), *key = json_array();
    for (size_t i = 0; i < t->n; i++) json_array_append_new(entries, entry_json(t, &t->entries[i]));
    for (const char *at = s->key_text; *at;) {
        size_t n = strcspn(at, "\n");
        json_array_append_new(key, json_stringn(at, n));
        at += n + (at[n] == '\n');
    }
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:f, s:b, s:I, s:f, s:f, s:f, s:f, s:f, s:o}",
        "program", t->program, "shapes", t->shapes, "device", t->device, "config", s->config,
        "math", maths[s->math], "key", s->key, "key_text", key, "end", ends[s->end], "median_ns",
        s->median_ns, "noisy", s->noisy, "bytes", (json_int_t)t->bytes, "copy_gb_per_s",
        t->copy_gb_per_s, "compile_s", s->compile_s, "check_s", s->check_s, "time_s", s->time_s,
        "total_s", s->total_s, "entries", entries);
}
