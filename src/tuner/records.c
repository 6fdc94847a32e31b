/* records.c -- see records.h.
 *
 * jansson reads and writes the JSON; its memory is its own, for the time of one line.
 */
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"

#define ARENA_BYTES_MAX ((size_t)1 << 30)
#define SAMPLES_MAX 100000

static const char *const outcomes[] = {
    [EIDER_TUNE_UNTRIED] = "untried", [EIDER_TUNE_TIMED] = "timed",
    [EIDER_TUNE_STOPPED] = "stopped", [EIDER_TUNE_WRONG] = "wrong",
    [EIDER_TUNE_FAILED] = "failed",
};

void eider_records_init(struct eider_records *records, const eider_allocator *a)
{
    *records = (struct eider_records){0};
    eider_arena_init(&records->arena, a, ARENA_BYTES_MAX);
}

void eider_records_release(struct eider_records *records)
{
    eider_mem_free(&records->arena.allocator, records->at);
    eider_arena_release(&records->arena);
    records->at = NULL;
    records->n = records->room = 0;
}

/* ---- Reading a line ------------------------------------------------------------ */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int is_key(const char *text)
{
    return strlen(text) == EIDER_KEY_BYTES - 1 && strspn(text, "0123456789abcdef") == strlen(text);
}

static const char *keep(struct eider_records *records, const char *text)
{
    return eider_arena_text(&records->arena, text, strlen(text));
}

/* Whether `object` is a timing; fills all but texts. */
static int read_timing(struct eider_records *records, const json_t *object,
                       struct eider_record *out, eider_status *status)
{
    const json_t *samples = json_object_get(object, "samples_ns");
    const json_t *clocks = json_object_get(object, "clock_khz");
    const char *outcome = text_of(object, "outcome");
    size_t n = json_array_size(samples), k = 0;
    while (k < sizeof outcomes / sizeof outcomes[0] && strcmp(outcomes[k], outcome) != 0) k++;
    if (k == sizeof outcomes / sizeof outcomes[0] || n > SAMPLES_MAX) return 0;
    out->kind = EIDER_RECORD_TIMING;
    out->outcome = (eider_tune_outcome)k;
    if ((out->outcome == EIDER_TUNE_TIMED || out->outcome == EIDER_TUNE_STOPPED) && n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!(json_number_value(json_array_get(samples, i)) > 0)) return 0;
    out->samples = eider_arena_alloc(&records->arena, (n + 1) * sizeof *out->samples);
    out->clocks = eider_arena_alloc(&records->arena, (n + 1) * sizeof *out->clocks);
    if (!out->samples || !out->clocks) *status = EIDER_OOM;
    if (*status != EIDER_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        out->samples[i] = json_number_value(json_array_get(samples, i));
        out->clocks[i] = (int32_t)json_integer_value(json_array_get(clocks, i));
    }
    out->n_samples = n;
    return 1;
}

static int read_done(const json_t *object, struct eider_record *out)
{
    out->kind = EIDER_RECORD_DONE;
    out->is_cut = strcmp(text_of(object, "end"), "budget") == 0;
    out->budget_s = json_number_value(json_object_get(object, "budget_s"));
    out->n_timed = (size_t)json_integer_value(json_object_get(object, "n"));
    return text_of(object, "space")[0] != '\0';
}

/* Whether `object` is a record; fills `out` but for its line. */
static int read_record(struct eider_records *records, const json_t *object,
                       struct eider_record *out, eider_status *status)
{
    const char *kind = text_of(object, "kind"), *key = text_of(object, "key");
    const json_t *epoch = json_object_get(object, "epoch");
    if (json_integer_value(json_object_get(object, "schema")) != EIDER_RECORDS_SCHEMA ||
        !is_key(key) || !json_is_integer(epoch) || json_integer_value(epoch) < 0)
        return 0;
    int is_timing = strcmp(kind, "timing") == 0, is_done = strcmp(kind, "done") == 0;
    if (!is_timing && !is_done && strcmp(kind, "key") != 0) return 0;
    if ((is_timing || is_done) && !text_of(object, "config")[0]) return 0;
    if (is_timing && !read_timing(records, object, out, status)) return 0;
    if (is_done && !read_done(object, out)) return 0;
    out->epoch = json_integer_value(epoch);
    out->key = keep(records, key);
    out->config = keep(records, text_of(object, "config"));
    out->reason = keep(records, text_of(object, "reason"));
    out->space = keep(records, text_of(object, "space"));
    if (!out->key || !out->config || !out->reason || !out->space) *status = EIDER_OOM;
    return *status == EIDER_OK;
}

/* The line as we would write it. */
static const char *keep_line(struct eider_records *records, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) {
        eider_fail(EIDER_OOM, "out of memory: jansson could not print a record");
        return NULL;
    }
    const char *kept = keep(records, text);
    free(text);
    return kept;
}

static eider_status push(struct eider_records *records, const struct eider_record *record)
{
    if (records->n == records->room) {
        size_t room = records->room ? 2 * records->room : 64;
        struct eider_record *grown =
            eider_mem_resize(&records->arena.allocator, records->at, room * sizeof *grown);
        if (!grown) return EIDER_OOM;
        records->at = grown;
        records->room = room;
    }
    records->at[records->n] = *record;
    records->at[records->n].order = records->n_added++;
    records->n++;
    return EIDER_OK;
}

static eider_status add_line(struct eider_records *records, const char *line, size_t size)
{
    struct eider_record record = {0};
    eider_status status = EIDER_OK;
    json_t *object = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
    if (object && read_record(records, object, &record, &status)) {
        record.line = keep_line(records, object);
        status = record.line ? push(records, &record) : EIDER_OOM;
    } else {
        records->n_bad++;
    }
    json_decref(object);
    return status;
}

/* Whether a line is there already, as it is. */
static int is_known(const struct eider_records *records, const char *line, size_t size)
{
    for (size_t i = 0; i < records->n; i++) {
        const char *have = records->at[i].line;
        if (strncmp(have, line, size) == 0 && have[size] == '\0') return 1;
    }
    return 0;
}

eider_status eider_records_add(struct eider_records *records, const char *text, size_t size,
                               const char *key)
{
    const char *end = text + size;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = newline ? (size_t)(newline - text) : (size_t)(end - text);
        /* Lines of other keys need no parsing. */
        if (n && (!key || (memmem(text, n, key, strlen(key)) && !is_known(records, text, n))))
            EIDER_TRY(add_line(records, text, n));
        text += n + (newline != NULL);
    }
    return EIDER_OK;
}

/* ---- Files -------------------------------------------------------------------------- */

static eider_status fail_io(const char *doing, const char *path)
{
    return eider_fail(EIDER_IO, "%s %s: %s", doing, path, strerror(errno));
}

static eider_status read_all(const eider_allocator *a, int fd, const char *path, char **out,
                             size_t *out_size)
{
    struct stat info;
    size_t got = 0;
    if (fstat(fd, &info) != 0) return fail_io("reading", path);
    if (!S_ISREG(info.st_mode)) return eider_fail(EIDER_IO, "%s is not a file", path);
    size_t size = (size_t)info.st_size;
    char *text = eider_mem_alloc(a, size + 1);
    if (!text) return EIDER_OOM;
    while (got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            eider_mem_free(a, text);
            return fail_io("reading", path);
        }
        if (n == 0) break;
        got += (size_t)n;
    }
    *out = text;
    *out_size = got;
    return EIDER_OK;
}

eider_status eider_records_read(struct eider_records *records, const char *path, const char *key)
{
    const eider_allocator *a = &records->arena.allocator;
    char *text = NULL;
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe waits for nobody */
    if (fd < 0) return errno == ENOENT ? EIDER_OK : fail_io("opening", path);
    eider_status status = read_all(a, fd, path, &text, &size);
    close(fd);
    if (status == EIDER_OK) status = eider_records_add(records, text, size, key);
    eider_mem_free(a, text);
    return status;
}

static eider_status write_all(int fd, const char *text, size_t size, const char *path)
{
    return eider_disk_write(fd, text, size) ? EIDER_OK : fail_io("writing", path);
}

eider_status eider_records_make_folder(const char *path)
{
    char folder[4096];
    size_t n = strlen(path);
    if (n >= sizeof folder) return eider_fail(EIDER_IO, "the path of %zu bytes is too long", n);
    memcpy(folder, path, n + 1);
    for (char *at = folder + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) return fail_io("making", folder);
        *at = '/';
    }
    return EIDER_OK;
}

/* A line that a crash cut short must not swallow the next one. */
static int ends_in_line(int fd)
{
    struct stat info;
    char last = '\n';
    if (fstat(fd, &info) != 0 || info.st_size == 0) return 1;
    return pread(fd, &last, 1, info.st_size - 1) != 1 || last == '\n';
}

eider_status eider_records_append(const char *path, const char *lines, size_t size)
{
    EIDER_TRY(eider_records_make_folder(path));
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return fail_io("opening", path);
    eider_status status = EIDER_OK;
    if (!ends_in_line(fd)) status = write_all(fd, "\n", 1, path);
    if (status == EIDER_OK) status = write_all(fd, lines, size, path);
    if (close(fd) != 0 && status == EIDER_OK) status = fail_io("writing", path);
    return status;
}

static eider_status write_new(const struct eider_records *records, int fd, const char *path)
{
    struct eider_text text;
    char *joined;
    size_t size;
    eider_text_init(&text, &records->arena.allocator);
    for (size_t i = 0; i < records->n; i++) eider_text_add(&text, "%s\n", records->at[i].line);
    EIDER_TRY(eider_text_take(&text, &joined, &size));
    eider_status status = write_all(fd, joined, size, path);
    if (status == EIDER_OK && fsync(fd) != 0) status = fail_io("writing", path);
    eider_mem_free(&records->arena.allocator, joined);
    return status;
}

eider_status eider_records_write(const struct eider_records *records, const char *path)
{
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return eider_fail(EIDER_IO, "the path %.100s... is too long", path);
    if (!eider_disk_may_replace(path))
        return eider_fail(EIDER_IO, "%s is no file, and the timings would replace it", path);
    EIDER_TRY(eider_records_make_folder(path));
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return fail_io("making", temporary);
    eider_status status = write_new(records, fd, path);
    if (close(fd) != 0 && status == EIDER_OK) status = fail_io("writing", path);
    if (status == EIDER_OK && rename(temporary, path) != 0) status = fail_io("renaming to", path);
    if (status != EIDER_OK) unlink(temporary);
    return status;
}

/* ---- Order ------------------------------------------------------------------------------ */

static int by_line(const void *a, const void *b)
{
    const struct eider_record *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    if (order == 0) order = strcmp(x->line, y->line);
    return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

void eider_records_sort(struct eider_records *records)
{
    size_t n = 0;
    if (records->n) qsort(records->at, records->n, sizeof records->at[0], by_line);
    for (size_t i = 0; i < records->n; i++)
        if (n == 0 || strcmp(records->at[n - 1].line, records->at[i].line) != 0)
            records->at[n++] = records->at[i];
    records->n = n;
}

void eider_records_find(const struct eider_records *records, const char *key, int64_t *out_epoch,
                        size_t *out_from, size_t *out_to)
{
    size_t from = 0, to;
    *out_epoch = -1;
    while (from < records->n && strcmp(records->at[from].key, key) != 0) from++;
    for (to = from; to < records->n && strcmp(records->at[to].key, key) == 0; to++)
        if (records->at[to].epoch > *out_epoch) *out_epoch = records->at[to].epoch;
    *out_from = from;
    *out_to = to;
}

/* ---- Lines ---------------------------------------------------------------------------- */

/* Prints and releases `object`; NULL is out of memory. */
static void add_object(struct eider_text *out, json_t *object, const struct eider_key *key,
                       int64_t epoch, const char *kind)
{
    char *text = NULL;
    if (object && json_object_set_new(object, "schema", json_integer(EIDER_RECORDS_SCHEMA)) == 0 &&
        json_object_set_new(object, "key", json_string(key->digits)) == 0 &&
        json_object_set_new(object, "epoch", json_integer(epoch)) == 0 &&
        json_object_set_new(object, "kind", json_string(kind)) == 0)
        text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    if (!text && out->status == EIDER_OK)
        out->status = eider_fail(EIDER_OOM, "out of memory: jansson could not make a record");
    if (text) eider_text_add(out, "%s\n", text);
    free(text);
}

void eider_records_key_line(struct eider_text *out, const struct eider_key *key, int64_t epoch)
{
    json_t *lines = json_array();
    for (const char *at = key->text; *at;) {
        size_t n = strcspn(at, "\n");
        json_array_append_new(lines, json_stringn(at, n));
        at += n + (at[n] == '\n');
    }
    add_object(out, json_pack("{s:o}", "ingredients", lines), key, epoch, "key");
}

void eider_records_timing_line(struct eider_text *out, const struct eider_key *key, int64_t epoch,
                               const struct eider_candidate *c)
{
    json_t *samples = json_array(), *clocks = json_array();
    for (size_t i = c->n_old; i < c->n_samples; i++) {
        /* Whole nanoseconds: finer than any clock, and equal in every printing. */
        json_int_t ns = (json_int_t)(c->samples[i] + 0.5);
        json_array_append_new(samples, json_integer(ns > 0 ? ns : 1));
        json_array_append_new(clocks, json_integer(c->clocks[i]));
    }
    add_object(out,
               json_pack("{s:s, s:s, s:s, s:o, s:o}", "config", c->config, "outcome",
                         outcomes[c->outcome], "reason", c->reason, "samples_ns", samples,
                         "clock_khz", clocks),
               key, epoch, "timing");
}

void eider_records_done_line(struct eider_text *out, const struct eider_key *key, int64_t epoch,
                             const char *space, const char *config, int is_cut, double budget_s,
                             size_t n_timed)
{
    add_object(out,
               json_pack("{s:s, s:s, s:s, s:f, s:I}", "space", space, "config", config, "end",
                         is_cut ? "budget" : "complete", "budget_s", budget_s, "n",
                         (json_int_t)n_timed),
               key, epoch, "done");
}
