/* safetensors.c -- reads and writes .safetensors files; jansson reads the header.
 */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "say.h"

/* The limit of the reference implementation. */
#define HEADER_BYTES_MAX 100000000u

static const char *const type_names[] = {
    [EIDER_F32] = "F32", [EIDER_F16] = "F16",      [EIDER_BF16] = "BF16",
    [EIDER_F64] = "F64", [EIDER_E4M3] = "F8_E4M3", [EIDER_E5M2] = "F8_E5M2",
    [EIDER_I32] = "I32", [EIDER_I64] = "I64",      [EIDER_BOOL] = "BOOL",
};

#define N_TYPES (sizeof type_names / sizeof type_names[0])

struct span {
    uint64_t begin, end;
    const char *name;
};

static int get_span(const char *path, const char *name, json_t *entry, struct span *out)
{
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_integer(begin) || !json_is_integer(end) || json_array_size(offsets) != 2 ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return cli_fail(CLI_IO, "%s: tensor '%s' has malformed data_offsets", path, name);
    }
    *out =
        (struct span){(uint64_t)json_integer_value(begin), (uint64_t)json_integer_value(end), name};
    return CLI_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors fill the data part, each byte once. */
static int check_spans(const char *path, struct span *spans, size_t n, uint64_t data_bytes)
{
    uint64_t at = 0;
    qsort(spans, n, sizeof *spans, by_begin);
    for (size_t i = 0; i < n; at = spans[i++].end) {
        if (spans[i].begin == at) continue;
        return cli_fail(CLI_IO, "%s: tensor '%s' begins at byte %llu, where %s", path,
                        spans[i].name, (unsigned long long)spans[i].begin,
                        spans[i].begin < at ? "another one still lasts" : "a gap precedes it");
    }
    if (at == data_bytes) return CLI_OK;
    return cli_fail(CLI_IO, "%s: the tensors take %llu bytes, the file holds %llu", path,
                    (unsigned long long)at, (unsigned long long)data_bytes);
}

static int check_offsets(const char *path, json_t *root, uint64_t data_bytes)
{
    size_t n = 0, room = json_object_size(root);
    struct span *spans = calloc(room ? room : 1, sizeof *spans);
    if (!spans) return cli_fail_memory(room * sizeof *spans);
    const char *name;
    json_t *entry;
    int code = CLI_OK;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        code = get_span(path, name, entry, &spans[n++]);
        if (code) break;
    }
    if (!code) code = check_spans(path, spans, n, data_bytes);
    free(spans);
    return code;
}

static int find_entry(const char *path, json_t *root, const char *wanted, json_t **out,
                      const char **out_name)
{
    struct cli_suggestion near = cli_suggestion_start(wanted, strlen(wanted));
    const char *name, *only = NULL;
    json_t *entry;
    size_t n = 0;
    *out = NULL;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        n++;
        only = name;
        if (strcmp(name, wanted) == 0) *out = entry;
        cli_suggestion_offer(&near, name);
    }
    *out_name = wanted;
    if (!wanted[0] && n == 1) {
        *out = json_object_get(root, only);
        *out_name = only;
    }
    if (*out) return CLI_OK;
    if (!wanted[0]) {
        return cli_fail(CLI_IO, "%s: holds %zu tensors; %s:NAME says which", path, n, path);
    }
    return cli_fail(CLI_IO, "%s: no tensor '%s'%s", path, wanted, cli_suggestion_text(&near));
}

/* Type and shape of an entry. */
static int describe(const char *path, const char *name, json_t *entry, int type,
                    struct cli_array *out)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape");
    size_t t = 0;
    while (t < N_TYPES && text && strcmp(text, type_names[t]) != 0) t++;
    if (!text || t == N_TYPES) {
        return cli_fail(CLI_IO, "%s: tensor '%s' has type '%s', which is not supported", path, name,
                        text ? text : "(none)");
    }
    out->type = (eider_dtype)t;
    if (type >= 0 && out->type != (eider_dtype)type) {
        return cli_fail(CLI_IO, "%s: tensor '%s' is %s, not %s", path, name,
                        eider_dtype_name(out->type), eider_dtype_name((eider_dtype)type));
    }
    if (!json_is_array(shape) || json_array_size(shape) > EIDER_RANK_MAX) {
        return cli_fail(CLI_IO,
                        "%s: tensor '%s' has a malformed shape, or more than %d "
                        "dimensions",
                        path, name, EIDER_RANK_MAX);
    }
    out->rank = (int32_t)json_array_size(shape);
    for (int32_t d = 0; d < out->rank; d++) {
        json_t *extent = json_array_get(shape, (size_t)d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0) {
            return cli_fail(CLI_IO, "%s: tensor '%s' has a malformed shape", path, name);
        }
        out->shape[d] = json_integer_value(extent);
    }
    return cli_array_size(out, name) ? CLI_IO : CLI_OK;
}

static int read_tensor(const char *path, FILE *file, uint64_t data_at, json_t *root,
                       const char *wanted, int type, struct cli_array *out)
{
    json_t *entry;
    const char *name;
    struct span span;
    int code = find_entry(path, root, wanted, &entry, &name);
    if (!code) code = describe(path, name, entry, type, out);
    if (!code) code = get_span(path, name, entry, &span);
    if (code) return code;
    if (span.end - span.begin != out->bytes) {
        char shape[CLI_SHAPE_BYTES];
        return cli_fail(CLI_IO, "%s: tensor '%s' is %s, %zu bytes, but has %llu", path, name,
                        cli_array_shape(out, shape), out->bytes,
                        (unsigned long long)(span.end - span.begin));
    }
    code = cli_array_allocate(out, name);
    if (code) return code;
    if (fseeko(file, (off_t)(data_at + span.begin), SEEK_SET) != 0) {
        code = cli_fail(CLI_IO, "%s: cannot seek", path);
    }
    if (!code) code = cli_file_read(path, file, out->data, out->bytes);
    if (code) cli_array_release(out);
    return code;
}

/* The header as JSON, checked against the size of the file. */
static int read_header(const char *path, FILE *file, uint64_t file_size, json_t **out_root,
                       uint64_t *out_data_at)
{
    unsigned char start[8];
    int code = cli_file_read(path, file, start, sizeof start);
    if (code) return code;
    uint64_t size = 0;
    for (int i = 7; i >= 0; i--) size = size << 8 | start[i];
    if (size > HEADER_BYTES_MAX || size > file_size - sizeof start) {
        return cli_fail(CLI_IO, "%s: not a .safetensors file: its header would have %llu bytes",
                        path, (unsigned long long)size);
    }
    char *text = malloc((size_t)size + 1);
    if (!text) return cli_fail_memory((size_t)size + 1);
    code = cli_file_read(path, file, text, (size_t)size);
    json_error_t error;
    json_t *root = code ? NULL : json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (code) return code;
    *out_data_at = sizeof start + size;
    if (!json_is_object(root)) {
        code =
            cli_fail(CLI_IO, "%s: malformed header: %s", path, root ? "not an object" : error.text);
        json_decref(root);
        return code;
    }
    code = check_offsets(path, root, file_size - *out_data_at);
    if (code)
        json_decref(root);
    else
        *out_root = root;
    return code;
}

int cli_safetensors_read(const char *path, const char *name, int type, struct cli_array *out)
{
    FILE *file;
    uint64_t size, data_at = 0;
    json_t *root = NULL;
    memset(out, 0, sizeof *out);
    int code = cli_file_open(path, &file, &size);
    if (code) return code;
    code = read_header(path, file, size, &root, &data_at);
    if (!code) code = read_tensor(path, file, data_at, root, name, type, out);
    json_decref(root);
    fclose(file);
    return code;
}

static json_t *make_entry(const struct cli_array *array, uint64_t begin)
{
    json_t *shape = json_array();
    for (int32_t d = 0; d < array->rank; d++) {
        json_array_append_new(shape, json_integer(array->shape[d]));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_names[array->type], "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + array->bytes));
}

/* The header's text, padded to a multiple of 8 as the format's writers do. */
static char *make_header(const char *const *names, const struct cli_array *const *arrays, size_t n)
{
    json_t *root = json_object();
    uint64_t at = 0;
    int failed = !root;
    for (size_t i = 0; i < n; i++) {
        failed |= json_object_set_new(root, names[i], make_entry(arrays[i], at)) != 0;
        at += arrays[i]->bytes;
    }
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text) return NULL;
    size_t size = strlen(text), padded = (size + 7) / 8 * 8;
    char *header = realloc(text, padded + 1);
    if (!header) {
        free(text);
        return NULL;
    }
    memset(header + size, ' ', padded - size);
    header[padded] = '\0';
    return header;
}

int cli_safetensors_write(const char *path, const char *const *names,
                          const struct cli_array *const *arrays, size_t n)
{
    unsigned char start[8];
    struct cli_piece *pieces = calloc(n + 2, sizeof *pieces);
    char *header = pieces ? make_header(names, arrays, n) : NULL;
    if (!header) {
        free(pieces);
        return cli_fail_memory((n + 2) * sizeof *pieces);
    }
    size_t size = strlen(header);
    for (int i = 0; i < 8; i++) start[i] = (unsigned char)((uint64_t)size >> (8 * i));
    pieces[0] = (struct cli_piece){start, sizeof start};
    pieces[1] = (struct cli_piece){header, size};
    for (size_t i = 0; i < n; i++) {
        pieces[i + 2] = (struct cli_piece){arrays[i]->data, arrays[i]->bytes};
    }
    int code = cli_file_write(path, pieces, n + 2);
    free(header);
    free(pieces);
    return code;
}
