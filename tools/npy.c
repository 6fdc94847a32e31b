/* npy.c -- reads and writes .npy files.
 *
 * A header is a Python dictionary on one line; only the form that NumPy writes is
 * understood: three keys in any order, a tuple of integers for the shape.
 */
#include "npy.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "say.h"

/* What NumPy itself accepts by default. */
#define HEADER_BYTES_MAX 10000u
#define ALIGNMENT 64

/* Spellings of a type without its byte order; the first row of a type is written. */
static const struct spelling {
    const char *descr;
    eider_dtype type;
    char order; /* what is written before it */
    int opaque; /* bytes whose type the caller may name */
} spellings[] = {
    {"f4", EIDER_F32, '<', 0},  {"f2", EIDER_F16, '<', 0},  {"V2", EIDER_BF16, '<', 1},
    {"f8", EIDER_F64, '<', 0},  {"V1", EIDER_E4M3, '|', 1}, {"f1", EIDER_E5M2, '<', 0},
    {"i4", EIDER_I32, '<', 0},  {"i8", EIDER_I64, '<', 0},  {"b1", EIDER_BOOL, '|', 0},
    {"u2", EIDER_BF16, '<', 2}, {"u1", EIDER_E4M3, '|', 2},
};

#define N_SPELLINGS (sizeof spellings / sizeof spellings[0])

struct header {
    char order;
    const struct spelling *spelling;
    int fortran;
    int seen; /* bits of the keys */
};

struct cursor {
    const char *at;
};

static int eat(struct cursor *c, const char *token)
{
    while (*c->at == ' ' || *c->at == '\n') c->at++;
    size_t n = strlen(token);
    if (strncmp(c->at, token, n) != 0) return 0;
    c->at += n;
    return 1;
}

/* A quoted word of at most `room` - 1 bytes. */
static int eat_word(struct cursor *c, char *word, size_t room)
{
    char quote[2] = {'\'', 0};
    if (!eat(c, quote)) {
        quote[0] = '"';
        if (!eat(c, quote)) return 0;
    }
    const char *end = strchr(c->at, quote[0]);
    if (!end || (size_t)(end - c->at) >= room) return 0;
    memcpy(word, c->at, (size_t)(end - c->at));
    word[end - c->at] = '\0';
    c->at = end + 1;
    return 1;
}

static int parse_descr(const char *path, struct cursor *c, struct header *h)
{
    char word[32];
    if (!eat_word(c, word, sizeof word)) {
        return cli_fail(CLI_IO, "%s: the type of the elements is malformed or structured", path);
    }
    for (size_t i = 0; i < N_SPELLINGS; i++) {
        if (strchr("<>|=", word[0]) && word[0] && strcmp(word + 1, spellings[i].descr) == 0) {
            h->order = word[0];
            h->spelling = &spellings[i];
            h->seen |= 1;
            return CLI_OK;
        }
    }
    return cli_fail(CLI_IO, "%s: elements of type '%s' are not supported", path, word);
}

static int parse_shape(const char *path, struct cursor *c, struct cli_array *out)
{
    out->rank = 0;
    if (!eat(c, "(")) return cli_fail(CLI_IO, "%s: the header's shape is no tuple", path);
    while (!eat(c, ")")) {
        char *end;
        long long extent = strtoll(c->at, &end, 10);
        if (end == c->at || extent < 0) {
            return cli_fail(CLI_IO, "%s: the header's shape is malformed", path);
        }
        if (out->rank == EIDER_RANK_MAX) {
            return cli_fail(CLI_IO, "%s: more than %d dimensions", path, EIDER_RANK_MAX);
        }
        out->shape[out->rank++] = extent;
        c->at = end;
        if (*c->at == 'L') c->at++; /* Python 2 */
        if (!eat(c, ",") && *c->at != ')') {
            return cli_fail(CLI_IO, "%s: the header's shape is malformed", path);
        }
    }
    return CLI_OK;
}

static int parse_header(const char *path, const char *text, struct header *h, struct cli_array *out)
{
    struct cursor c = {text};
    int good = eat(&c, "{"), code = CLI_OK;
    while (good && !eat(&c, "}")) {
        char key[32];
        if (!eat_word(&c, key, sizeof key) || !eat(&c, ":")) break;
        if (strcmp(key, "descr") == 0) {
            code = parse_descr(path, &c, h);
        } else if (strcmp(key, "fortran_order") == 0) {
            h->fortran = eat(&c, "True");
            if (!h->fortran && !eat(&c, "False")) break;
            h->seen |= 2;
        } else if (strcmp(key, "shape") == 0) {
            while (*c.at == ' ') c.at++;
            code = parse_shape(path, &c, out);
            h->seen |= 4;
        } else {
            break;
        }
        if (code) return code;
        eat(&c, ",");
    }
    if (h->seen == 7) return CLI_OK;
    return cli_fail(CLI_IO, "%s: the .npy header is malformed", path);
}

/* The type of the elements, given what the caller expects. */
static int choose_type(const char *path, const struct spelling *s, int type, eider_dtype *out)
{
    *out = s->type;
    if (type < 0 && s->opaque == 2) {
        return cli_fail(CLI_IO,
                        "%s: elements are integers of %zu bits; NAME:TYPE= says what "
                        "they hold",
                        path, 8 * eider_dtype_size(s->type));
    }
    if (type < 0 || (eider_dtype)type == s->type) return CLI_OK;
    if (s->opaque && eider_dtype_size((eider_dtype)type) == eider_dtype_size(s->type)) {
        *out = (eider_dtype)type;
        return CLI_OK;
    }
    return cli_fail(CLI_IO, "%s: elements are %s, not %s", path, eider_dtype_name(s->type),
                    eider_dtype_name((eider_dtype)type));
}

static void swap_bytes(unsigned char *data, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++, data += width) {
        for (size_t b = 0; b < width / 2; b++) {
            unsigned char kept = data[b];
            data[b] = data[width - 1 - b];
            data[width - 1 - b] = kept;
        }
    }
}

/* Makes column-major data row-major. */
static int reorder(struct cli_array *array)
{
    size_t width = eider_dtype_size(array->type);
    int64_t index[EIDER_RANK_MAX] = {0};
    unsigned char *to = malloc(array->bytes ? array->bytes : 1);
    if (!to) return cli_fail_memory(array->bytes);
    size_t strides[EIDER_RANK_MAX], stride = 1;
    for (int32_t d = 0; d < array->rank; d++) {
        strides[d] = stride;
        stride *= (size_t)array->shape[d];
    }
    for (size_t i = 0; i < array->n; i++) {
        size_t from = 0;
        for (int32_t d = 0; d < array->rank; d++) from += (size_t)index[d] * strides[d];
        memcpy(to + i * width, (unsigned char *)array->data + from * width, width);
        for (int32_t d = array->rank - 1; d >= 0; d--) {
            if (++index[d] < array->shape[d]) break;
            index[d] = 0;
        }
    }
    free(array->data);
    array->data = to;
    return CLI_OK;
}

/* Reads magic, version and header text into `text`; *out_size is where the data start. */
static int read_header(const char *path, FILE *file, char text[HEADER_BYTES_MAX + 1],
                       uint64_t *out_offset)
{
    unsigned char start[12];
    int code = cli_file_read(path, file, start, 10);
    if (code) return code;
    if (memcmp(start, "\x93NUMPY", 6) != 0) {
        return cli_fail(CLI_IO, "%s: not a .npy file", path);
    }
    if (start[6] < 1 || start[6] > 3) {
        return cli_fail(CLI_IO, "%s: .npy version %d is not supported", path, start[6]);
    }
    uint32_t size = start[8] | (uint32_t)start[9] << 8;
    *out_offset = 10;
    if (start[6] > 1) {
        code = cli_file_read(path, file, start + 10, 2);
        if (code) return code;
        size |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
        *out_offset = 12;
    }
    if (size > HEADER_BYTES_MAX) {
        return cli_fail(CLI_IO, "%s: a header of %u bytes is more than %u", path, size,
                        HEADER_BYTES_MAX);
    }
    *out_offset += size;
    text[size] = '\0';
    return cli_file_read(path, file, text, size);
}

static int read_body(const char *path, FILE *file, uint64_t file_size, int type,
                     struct cli_array *out)
{
    char text[HEADER_BYTES_MAX + 1];
    struct header h = {0};
    uint64_t offset = 0;
    int code = read_header(path, file, text, &offset);
    if (!code) code = parse_header(path, text, &h, out);
    if (!code) code = choose_type(path, h.spelling, type, &out->type);
    if (!code && cli_array_size(out, path)) code = CLI_IO;
    if (code) return code;
    if (file_size - offset != out->bytes) {
        char shape[CLI_SHAPE_BYTES];
        return cli_fail(CLI_IO, "%s: %s takes %zu bytes, the file holds %llu", path,
                        cli_array_shape(out, shape), out->bytes,
                        (unsigned long long)(file_size - offset));
    }
    code = cli_array_allocate(out, path);
    if (!code) code = cli_file_read(path, file, out->data, out->bytes);
    if (!code && h.order == '>') swap_bytes(out->data, out->n, eider_dtype_size(out->type));
    if (!code && h.fortran) code = reorder(out);
    if (code) cli_array_release(out);
    return code;
}

int cli_npy_read(const char *path, int type, struct cli_array *out)
{
    FILE *file;
    uint64_t size;
    memset(out, 0, sizeof *out);
    int code = cli_file_open(path, &file, &size);
    if (code) return code;
    code = read_body(path, file, size, type, out);
    fclose(file);
    return code;
}

int cli_npy_write(const char *path, const struct cli_array *array)
{
    const struct spelling *s = spellings;
    eider_dtype stored = array->type == EIDER_E5M2 ? EIDER_E4M3 : array->type; /* '|V1' */
    while (s->type != stored) s++;
    char header[ALIGNMENT * 8] = "\x93NUMPY\x01";
    int at = 10;
    at += snprintf(header + at, sizeof header - (size_t)at,
                   "{'descr': '%c%s', 'fortran_order': False, 'shape': (", s->order, s->descr);
    for (int32_t d = 0; d < array->rank; d++) {
        at += snprintf(header + at, sizeof header - (size_t)at, "%lld%s",
                       (long long)array->shape[d], d + 1 < array->rank ? ", " : "");
    }
    at += snprintf(header + at, sizeof header - (size_t)at, "%s), }", array->rank == 1 ? "," : "");
    while ((at + 1) % ALIGNMENT) header[at++] = ' ';
    header[at++] = '\n';
    header[8] = (char)((at - 10) & 0xff);
    header[9] = (char)((at - 10) >> 8);
    struct cli_piece pieces[] = {{header, (size_t)at}, {array->data, array->bytes}};
    return cli_file_write(path, pieces, 2);
}
