/* say.c -- errors, warnings, progress and JSON in one form each.
 *
 * Not here: results, which commands print themselves.
 */
#include "say.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int progress_shown;

/* Names from files and command lines may hold what a terminal would obey. */
static void put_plain(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        int is_control = (c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
        if (is_control)
            fprintf(stderr, "\\x%02x", c);
        else
            fputc(c, stderr);
    }
}

int cli_fail(int code, const char *format, ...)
{
    char text[16384]; /* the library's longest message, twice */
    cli_progress_end();
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fputs("eider: error: ", stderr);
    put_plain(text);
    fputc('\n', stderr);
    return code;
}

int cli_fail_library(eider_status status)
{
    const char *detail = eider_error();
    return cli_fail(CLI_LIBRARY, "%s", detail[0] ? detail : eider_status_text(status));
}

int cli_fail_file(eider_status status)
{
    int code = cli_fail_library(status);
    return status == EIDER_IO ? CLI_IO : code;
}

int cli_fail_memory(size_t bytes)
{
    return cli_fail(CLI_LIBRARY, "out of memory: %zu bytes were needed", bytes);
}

void cli_log(void *user, int level, const char *line)
{
    static const char *const names[] = {"error", "warning", "note"};
    (void)user;
    /* Of the notes those on tunings, which EIDER_PRINT_AUTOTUNING asks for. */
    if (level < 0 || level > 2 || (level == 2 && strncmp(line, "tune ", 5) != 0)) return;
    cli_progress_end();
    fprintf(stderr, "eider: %s: ", names[level]);
    put_plain(line);
    fputc('\n', stderr);
}

void cli_progress(const char *format, ...)
{
    if (!isatty(STDERR_FILENO)) return;
    va_list list;
    va_start(list, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, list);
    fflush(stderr);
    va_end(list);
    progress_shown = 1;
}

void cli_progress_end(void)
{
    if (progress_shown) fputs("\r\033[K", stderr);
    progress_shown = 0;
}

int cli_print_json(json_t *value)
{
    cli_progress_end();
    if (!value) return cli_fail(CLI_LIBRARY, "out of memory while making JSON");
    int failed = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0;
    if (!failed) putchar('\n');
    json_decref(value);
    return failed && !cli_stdout_broken() ? cli_fail(CLI_LIBRARY, "the JSON cannot be printed")
                                          : CLI_OK;
}

json_t *cli_json_number(double value)
{
    if (isnan(value)) return json_string("nan");
    if (isinf(value)) return json_string(value < 0 ? "-inf" : "inf");
    return json_real(value);
}

int cli_finish_stdout(void)
{
    struct stat info;
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    int is_pipe =
        fstat(STDOUT_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
    return is_pipe ? CLI_OK : cli_fail(CLI_IO, "standard output cannot be written");
}

int cli_stdout_broken(void)
{
    return ferror(stdout) != 0;
}

/* Insertions, deletions, substitutions and swaps of neighbours between two short names. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    enum { LONGEST = 32 };
    size_t d[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}

struct cli_suggestion cli_suggestion_start(const char *wanted, size_t length)
{
    /* Two slips in a long name, one in a short one. */
    return (struct cli_suggestion){
        .wanted = wanted, .length = length, .distance = length > 4 ? 3 : 2};
}

void cli_suggestion_offer(struct cli_suggestion *s, const char *name)
{
    size_t length = strlen(name);
    size_t distance = edit_distance(s->wanted, s->length, name, length);
    int prefix = s->length >= 2 && length > s->length && memcmp(s->wanted, name, s->length) == 0;
    if (prefix && distance > 1) distance = 1;
    if (distance < s->distance) {
        s->distance = distance;
        s->best = name;
    }
}

const char *cli_suggestion_text(struct cli_suggestion *s)
{
    s->text[0] = '\0';
    if (s->best) snprintf(s->text, sizeof s->text, "; did you mean '%.64s'?", s->best);
    return s->text;
}
