/* sass_key.c -- the kernel of a key: what the cache keeps on disk; see sass_report.h.
 *
 * What is kept was compiled without line information, so its terms are unknown.  A manifest
 * says what a kernel was made of: it is made again, of tensors that have the layout in the
 * manifest, and stands for the kept one where it has the same key, or where other settings
 * are asked for.  Kernels of other makers are shown as they are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "sass_report.h"

#define KEY_DIGITS 32
#define KEY_DIGITS_MIN 8 /* of the beginning of one; `eider cache ls` shows 12 */
#define RANK_1_EXTENT ((int64_t)1 << 20)
#define WIDE_EXTENT ((int64_t)1 << 34)
#define INNER_EXTENT 4096
#define OUTER_EXTENT 16
#define PLACE_BITS 44 /* operands are that far apart */

int cli_sass_is_key(const char *word)
{
    size_t n = strlen(word);
    return n >= KEY_DIGITS_MIN && n <= KEY_DIGITS && strspn(word, "0123456789abcdef") == n;
}

/* ---- What is kept ------------------------------------------------------ */

struct kept {
    int found;
    char key[KEY_DIGITS + 1];
    char *manifest, *entry, *code;
    size_t code_size;
};

static int32_t keep(void *user, const eider_cache_entry *entry)
{
    struct kept *k = user;
    if (entry->problem) return 0;
    k->found = 1;
    snprintf(k->key, sizeof k->key, "%s", entry->key);
    k->manifest = strdup(entry->manifest);
    k->entry = strdup(entry->entry);
    k->code = malloc(entry->code_size + 1);
    k->code_size = entry->code_size;
    if (k->code) memcpy(k->code, entry->code, entry->code_size);
    return 1;
}

/* The value of a line "name: value" of a manifest; NULL where there is none.  Caller owns:
 * free. */
static char *field(const char *manifest, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = manifest; at && *at; at = strchr(at, '\n'), at += at != NULL)
        if (strncmp(at, name, n) == 0 && strncmp(at + n, ": ", 2) == 0)
            return strndup(at + n + 2, strcspn(at + n + 2, "\n"));
    return NULL;
}

/* ---- Tensors of a layout ----------------------------------------------- */

struct tensors {
    int is_wide;    /* byte offsets need 64 bits */
    int64_t length; /* of rows; 0 where there are none */
    size_t n;
    eider_tensor *at;
    int64_t (*shapes)[EIDER_RANK_MAX], (*strides)[EIDER_RANK_MAX];
};

static void set_extents(const struct tensors *t, int64_t *shape, int rank)
{
    for (int d = 0; d < rank; d++) shape[d] = d == rank - 1 ? INNER_EXTENT : OUTER_EXTENT;
    if (rank == 1) shape[0] = RANK_1_EXTENT;
    if (t->is_wide) shape[0] = WIDE_EXTENT;
    if (t->length) shape[rank - 1] = t->length;
}

/* Strides of classes such as "2,1": 0 repeats, 1 is contiguous, and those of 2 leave gaps, so
 * that no two dimensions make one. */
static int set_strides(const char *classes, const int64_t *shape, int rank, int64_t *strides)
{
    uint64_t elements = 1; /* may wrap: a layout that no kernel has is refused later */
    for (int d = rank - 1; d >= 0; d--) {
        char class = classes[2 * d];
        if (class < '0' || class > '2') return 0;
        strides[d] = class == '2' ? (int64_t)(elements << (rank - d)) : class - '0';
        elements *= (uint64_t)shape[d];
    }
    return 1;
}

/* "gate:bf16[2,1]@16", "mean:f32[2,1]r" of one value per row, or "scale:f32" of a scalar. */
static int set_tensor(struct tensors *t, size_t i, const char *word)
{
    char type[16];
    const char *colon = strchr(word, ':'), *classes = strchr(word, '['), *end = strchr(word, ']');
    snprintf(type, sizeof type, "%.*s", (int)strcspn(colon + 1, "["), colon + 1);
    if (eider_dtype_parse(type, &t->at[i].type) != EIDER_OK) return 0;
    if (!classes || !end) return 1;
    if (end < classes + 2 || end > classes + 2 * EIDER_RANK_MAX) return 0;
    int rank = (int)(end - classes) / 2;
    set_extents(t, t->shapes[i], rank);
    if (end[1] == 'r') t->shapes[i][rank - 1] = 1;
    t->at[i].rank = rank;
    t->at[i].shape = t->shapes[i];
    t->at[i].strides = t->strides[i];
    if (end[1] == '@') { /* never read: only its alignment counts */
        uintptr_t place = (uintptr_t)(i + 1) << PLACE_BITS | ((uintptr_t)atoi(end + 2) & 15);
        t->at[i].data = (void *)place;
    }
    return set_strides(classes + 1, t->shapes[i], rank, t->strides[i]);
}

static void release_tensors(struct tensors *t)
{
    free(t->at);
    free(t->shapes);
    free(t->strides);
}

/* Of "gate:bf16[1]@16 out:bf16[1]@16 index=32"; 0 where that is not understood. */
static int make_tensors(char *layout, size_t n, struct tensors *out)
{
    const char *length = strstr(layout, "length=");
    size_t i = 0;
    *out = (struct tensors){.is_wide = strstr(layout, "index=64") != NULL,
                            .length = length ? atoll(length + strlen("length=")) : 0,
                            .n = n,
                            .at = calloc(n + 1, sizeof *out->at),
                            .shapes = calloc(n + 1, sizeof *out->shapes),
                            .strides = calloc(n + 1, sizeof *out->strides)};
    if (!out->at || !out->shapes || !out->strides) return 0;
    for (char *word; (word = strsep(&layout, " "));) {
        if (!strchr(word, ':')) continue;
        if (i == n || !set_tensor(out, i++, word)) return 0;
    }
    return i == n;
}

/* ---- Making it again --------------------------------------------------- */

/* What the manifest says, as settings. */
static int set_all(struct cli_sass_input *in, const char *manifest)
{
    static const struct {
        const char *field, *prefix;
    } rows[] = {
        {"numerics", ""}, {"config", ""}, {"target", "target="}, {"assembler", "assembler="}};
    int code = CLI_OK;
    for (size_t i = 0; !code && i < sizeof rows / sizeof rows[0]; i++) {
        char settings[512], *value = field(manifest, rows[i].field);
        if (!value) return CLI_FAILED;
        int length = (int)strcspn(value, " "); /* an assembler's version is not asked for */
        snprintf(settings, sizeof settings, "%s%.*s", rows[i].prefix, length, value);
        code = cli_sass_set(in, settings);
        free(value);
    }
    return code;
}

/* 0 where the manifest is of no program, or says something that is not understood. */
static int compile(struct cli_sass_input *in, const char *manifest, const char *settings)
{
    struct tensors tensors = {0};
    struct cli_session *s = &in->session;
    char *program = field(manifest, "program"), *layout = field(manifest, "layout");
    int ok = program && layout && eider_program_parse(s->ctx, program, &s->program) == EIDER_OK &&
             make_tensors(layout, eider_program_operands(s->program), &tensors) &&
             set_all(in, manifest) == CLI_OK && (!settings || cli_sass_set(in, settings) == CLI_OK);
    if (ok) {
        eider_request request = cli_session_request(s, tensors.at, tensors.n);
        request.target = in->target;
        ok = eider_compile(s->ctx, &request, &in->kernel) == EIDER_OK;
    }
    release_tensors(&tensors);
    free(program);
    free(layout);
    return ok;
}

/* As it is, without its terms. */
static int read_code(struct cli_sass_input *in, const struct kept *kept)
{
    eider_sass_options options;
    int code = cli_sass_options(in, &options);
    if (code) return code;
    options.entry = kept->entry;
    eider_status status =
        eider_sass_read(in->session.ctx, kept->code, kept->code_size, &options, &in->sass);
    return status == EIDER_OK ? CLI_OK : cli_fail_library(status);
}

static int open_kept(struct cli_sass_input *in, const char *key, const char *settings,
                     const struct kept *kept)
{
    eider_kernel_info info;
    if (!kept->found) return cli_fail(CLI_LIBRARY, "no kernel on disk has the key %s", key);
    if (!kept->manifest || !kept->entry || !kept->code) return cli_fail_memory(kept->code_size);
    int is_made = compile(in, kept->manifest, settings);
    if (is_made) eider_kernel_describe(in->kernel, &info);
    if (is_made && (settings || strcmp(info.key, kept->key) == 0)) return CLI_OK;
    if (settings)
        return cli_fail(CLI_LIBRARY, "the kernel of key %s cannot be made with +%s", key, settings);
    eider_kernel_release(in->kernel);
    in->kernel = NULL;
    return read_code(in, kept);
}

int cli_sass_open_key(struct cli_sass_input *in, const char *key, const char *settings)
{
    struct kept kept = {0};
    eider_status status = eider_cache_each(in->session.ctx, key, keep, &kept);
    int code = status == EIDER_OK ? open_kept(in, key, settings, &kept) : cli_fail_library(status);
    free(kept.manifest);
    free(kept.entry);
    free(kept.code);
    return code;
}
