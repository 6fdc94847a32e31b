/* file.c -- reading and writing whole files.
 */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "say.h"

/* A program is never larger. */
#define TEXT_BYTES_MAX ((size_t)64 << 20)

int cli_file_open(const char *path, FILE **out, uint64_t *out_size)
{
    struct stat info;
    if (stat(path, &info) != 0) return cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
    /* Before it is opened: opening a pipe waits for its other end. */
    if (!S_ISREG(info.st_mode)) return cli_fail(CLI_IO, "%s: not a regular file", path);
    FILE *file = fopen(path, "rb");
    if (!file) return cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
    *out = file;
    *out_size = (uint64_t)info.st_size;
    return CLI_OK;
}

int cli_file_read(const char *path, FILE *file, void *data, size_t size)
{
    if (fread(data, 1, size, file) == size) return CLI_OK;
    if (ferror(file)) return cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
    return cli_fail(CLI_IO, "%s: the file is truncated: %zu more bytes were expected", path, size);
}

/* Appends what `file` holds to *text, which grows. */
static int read_text(const char *path, FILE *file, char **text, size_t *size)
{
    for (size_t room = 4096;; room *= 2) {
        char *grown = realloc(*text, room + 1);
        if (!grown) return cli_fail_memory(room + 1);
        *text = grown;
        *size += fread(*text + *size, 1, room - *size, file);
        if (ferror(file)) return cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
        if (*size < room) break;
        if (room >= TEXT_BYTES_MAX) return cli_fail(CLI_IO, "%s: larger than 64 MiB", path);
    }
    (*text)[*size] = '\0';
    if (!memchr(*text, '\0', *size)) return CLI_OK;
    return cli_fail(CLI_IO, "%s: not a text file: it contains a zero byte", path);
}

int cli_file_text(const char *path, char **out)
{
    FILE *file = fopen(path, "rb");
    if (!file) return cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
    char *text = NULL;
    size_t size = 0;
    int code = read_text(path, file, &text, &size);
    fclose(file);
    if (code)
        free(text);
    else
        *out = text;
    return code;
}

static int write_pieces(FILE *file, const struct cli_piece *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].size && fwrite(pieces[i].data, 1, pieces[i].size, file) != pieces[i].size) {
            return -1;
        }
    }
    return 0;
}

int cli_file_write(const char *path, const struct cli_piece *pieces, size_t n)
{
    if (strcmp(path, "-") == 0) {
        write_pieces(stdout, pieces, n); /* main reports what cannot be written */
        return CLI_OK;
    }
    FILE *file = fopen(path, "wb");
    if (!file) return cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    int regular = fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode);
    int failed = write_pieces(file, pieces, n);
    int why = errno;
    if (fclose(file) != 0 && !failed) {
        failed = -1;
        why = errno;
    }
    if (!failed) return CLI_OK;
    if (regular) remove(path);
    return cli_fail(CLI_IO, "%s: %s", path, strerror(why));
}
