/* disk_cache_archive.c -- many entries in one file, to ship.
 *
 *     offset  size
 *          0     8  magic, 89 'E' 'I' 'D' 'A' 'R' 0D 0A
 *          8     8  schema
 *         16     8  n, the number of entries
 *         24     8  offset of the index
 *         32        the entries, each as its own file would be
 *      index  n*80  per entry, in the order of names: its name (49 bytes, then NULs up to
 *                   64), its offset, its size
 *                16  XXH3-128 of the index, its seed the XXH3-64 of the header
 *
 * Only header and index are read when an archive is opened; an entry has its own checksum.
 */
#include "disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const unsigned char magic[8] = {0x89, 'E', 'I', 'D', 'A', 'R', '\r', '\n'};

#define SCHEMA 1
#define HEADER_BYTES 32
#define ROW_BYTES 80
#define NAME_FIELD 64
#define SUM_BYTES 16
#define N_MAX ((uint64_t)1 << 24)

struct eider_disk_archive {
    eider_allocator allocator;
    int fd;
    size_t n;
    unsigned char *index; /* header, rows, sum; as if nothing lay between */
};

static void put(unsigned char *at, uint64_t number)
{
    for (int i = 0; i < 8; i++) at[i] = (unsigned char)(number >> 8 * i);
}

static uint64_t get(const unsigned char *at)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) number |= (uint64_t)at[i] << 8 * i;
    return number;
}

static const unsigned char *row(const struct eider_disk_archive *archive, size_t i)
{
    return archive->index + HEADER_BYTES + ROW_BYTES * i;
}

static void sum_index(const unsigned char *header, const unsigned char *rows, size_t size,
                      XXH128_canonical_t *out)
{
    uint64_t seed = XXH3_64bits(header, HEADER_BYTES);
    XXH128_canonicalFromHash(out, XXH3_128bits_withSeed(rows, size, seed));
}

/* ---- Reading ------------------------------------------------------------------- */

/* NULL, or why the index is none. */
static const char *check_index(const struct eider_disk_archive *archive, uint64_t file_size)
{
    size_t size = ROW_BYTES * archive->n;
    const unsigned char *rows = archive->index + HEADER_BYTES;
    XXH128_canonical_t sum;
    sum_index(archive->index, rows, size, &sum);
    if (memcmp(&sum, rows + size, SUM_BYTES) != 0) return "its index is damaged";
    for (size_t i = 0; i < archive->n; i++) {
        const unsigned char *at = row(archive, i);
        uint64_t offset = get(at + NAME_FIELD), bytes = get(at + NAME_FIELD + 8);
        if (at[NAME_FIELD - 1] != 0 || !eider_disk_entry_is_name((const char *)at) ||
            (i && strcmp((const char *)row(archive, i - 1), (const char *)at) >= 0))
            return "its index is not in order";
        if (offset > file_size || bytes > file_size - offset || bytes > EIDER_ENTRY_BYTES_MAX)
            return "it is cut off";
    }
    return NULL;
}

/* Reads rows and sum behind the header that is in archive->index. */
static const char *read_rows(struct eider_disk_archive *archive, uint64_t file_size)
{
    struct eider_disk_error error;
    uint64_t at = get(archive->index + 24);
    size_t size = ROW_BYTES * archive->n + SUM_BYTES;
    if (at > file_size || size > file_size - at) return "it is cut off";
    if (!eider_disk_read_at(archive->fd, archive->index + HEADER_BYTES, size, at, &error))
        return "it cannot be read";
    return check_index(archive, file_size);
}

static eider_status read_index(struct eider_disk_archive *archive, const char *path)
{
    unsigned char header[HEADER_BYTES];
    struct eider_disk_error error;
    struct stat st;
    if (fstat(archive->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return eider_fail(EIDER_IO, "%s is not a file", path);
    if (!eider_disk_read_at(archive->fd, header, sizeof header, 0, &error) ||
        memcmp(header, magic, sizeof magic) != 0)
        return eider_fail(EIDER_IO, "%s is no archive of kernels", path);
    if (get(header + 8) != SCHEMA)
        return eider_fail(EIDER_IO, "%s has another version of the format", path);
    if (get(header + 16) > N_MAX)
        return eider_fail(EIDER_IO, "%s cannot be used: its header is damaged", path);
    archive->n = (size_t)get(header + 16);
    if (ROW_BYTES * archive->n + SUM_BYTES > (uint64_t)st.st_size)
        return eider_fail(EIDER_IO, "%s cannot be used: it is cut off", path);
    archive->index =
        eider_mem_alloc(&archive->allocator, HEADER_BYTES + ROW_BYTES * archive->n + SUM_BYTES);
    if (!archive->index) return EIDER_OOM;
    memcpy(archive->index, header, sizeof header);
    const char *problem = read_rows(archive, (uint64_t)st.st_size);
    return problem ? eider_fail(EIDER_IO, "%s cannot be used: %s", path, problem) : EIDER_OK;
}

eider_status eider_disk_archive_open(const eider_allocator *a, const char *path,
                                     struct eider_disk_archive **out)
{
    struct eider_disk_archive *archive = eider_mem_zero(a, sizeof *archive);
    if (!archive) return EIDER_OOM;
    archive->allocator = *a;
    archive->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    eider_status status = archive->fd < 0 ? eider_fail(EIDER_IO, "%s: %s", path, strerror(errno))
                                          : read_index(archive, path);
    if (status == EIDER_OK)
        *out = archive;
    else
        eider_disk_archive_close(archive);
    return status;
}

void eider_disk_archive_close(struct eider_disk_archive *archive)
{
    if (!archive) return;
    eider_allocator a = archive->allocator;
    if (archive->fd >= 0) close(archive->fd);
    eider_mem_free(&a, archive->index);
    eider_mem_free(&a, archive);
}

size_t eider_disk_archive_size(const struct eider_disk_archive *archive)
{
    return archive->n;
}

const char *eider_disk_archive_name(const struct eider_disk_archive *archive, size_t i)
{
    return (const char *)row(archive, i);
}

size_t eider_disk_archive_find(const struct eider_disk_archive *archive, const char *name, size_t n)
{
    size_t low = 0, high = archive->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strncmp(eider_disk_archive_name(archive, middle), name, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    int hits = low < archive->n && strncmp(eider_disk_archive_name(archive, low), name, n) == 0;
    return hits ? low : archive->n;
}

eider_status eider_disk_archive_read(const struct eider_disk_archive *archive, size_t i,
                                     struct eider_blob *out, struct eider_disk_error *error)
{
    uint64_t offset = get(row(archive, i) + NAME_FIELD);
    size_t size = (size_t)get(row(archive, i) + NAME_FIELD + 8);
    char *data = eider_mem_alloc(&archive->allocator, size + 1);
    if (!data) return EIDER_OOM;
    if (!eider_disk_read_at(archive->fd, data, size, offset, error)) {
        eider_mem_free(&archive->allocator, data);
        return EIDER_IO;
    }
    data[size] = '\0';
    *out = (struct eider_blob){data, size};
    return EIDER_OK;
}

/* ---- Writing ------------------------------------------------------------------- */

static eider_status fail_write(const struct eider_disk_error *error)
{
    return eider_fail(EIDER_IO, "the archive cannot be written: %s", error->why);
}

eider_status eider_disk_archive_start(struct eider_disk_archive_writer *writer, const char *path)
{
    static const unsigned char nothing[HEADER_BYTES];
    struct eider_disk_error error;
    char folder[EIDER_DISK_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path)
                  : snprintf(folder, sizeof folder, ".");
    if (n >= (int)sizeof folder) return eider_fail(EIDER_IO, "the archive's path is too long");
    if (!eider_disk_may_replace(path))
        return eider_fail(EIDER_IO, "%s is no file, and an archive would replace it", path);
    if (!eider_disk_draft(folder, &writer->draft, &error)) return fail_write(&error);
    if (eider_disk_draft_add(&writer->draft, nothing, sizeof nothing, &error)) return EIDER_OK;
    eider_disk_archive_discard(writer);
    return fail_write(&error);
}

eider_status eider_disk_archive_add(struct eider_disk_archive_writer *writer, const char *name,
                                    const struct eider_blob *file)
{
    struct eider_disk_error error;
    if (writer->n == writer->room) {
        size_t room = writer->room ? 2 * writer->room : 64;
        unsigned char *rows =
            eider_mem_resize(&writer->allocator, writer->rows, ROW_BYTES * room + SUM_BYTES);
        if (!rows) return EIDER_OOM;
        writer->rows = rows;
        writer->room = room;
    }
    unsigned char *at = writer->rows + ROW_BYTES * writer->n++;
    memset(at, 0, ROW_BYTES);
    memcpy(at, name, strlen(name));
    put(at + NAME_FIELD, writer->draft.size);
    put(at + NAME_FIELD + 8, file->size);
    if (eider_disk_draft_add(&writer->draft, file->data, file->size, &error)) return EIDER_OK;
    return fail_write(&error);
}

/* By name; of one name the first that was added comes first. */
static int compare_rows(const void *a, const void *b)
{
    int order = memcmp(a, b, NAME_FIELD);
    uint64_t first = get((const unsigned char *)a + NAME_FIELD);
    uint64_t second = get((const unsigned char *)b + NAME_FIELD);
    return order ? order : (first > second) - (first < second);
}

static size_t sort_rows(unsigned char *rows, size_t n)
{
    size_t kept = 0;
    if (n) qsort(rows, n, ROW_BYTES, compare_rows);
    for (size_t i = 0; i < n; i++) {
        unsigned char *last = kept ? rows + ROW_BYTES * (kept - 1) : NULL;
        if (last && memcmp(last, rows + ROW_BYTES * i, NAME_FIELD) == 0) continue;
        memmove(rows + ROW_BYTES * kept++, rows + ROW_BYTES * i, ROW_BYTES);
    }
    return kept;
}

/* Header, rows and sum; the header's place was left free. */
static int write_index(struct eider_disk_archive_writer *writer, struct eider_disk_error *error)
{
    unsigned char header[HEADER_BYTES] = {0};
    XXH128_canonical_t sum;
    size_t size = ROW_BYTES * writer->n;
    memcpy(header, magic, sizeof magic);
    put(header + 8, SCHEMA);
    put(header + 16, writer->n);
    put(header + 24, writer->draft.size);
    sum_index(header, writer->rows, size, &sum);
    if (!eider_disk_draft_add(&writer->draft, writer->rows, size, error) ||
        !eider_disk_draft_add(&writer->draft, &sum, sizeof sum, error))
        return 0;
    if (pwrite(writer->draft.fd, header, sizeof header, 0) == (ssize_t)sizeof header) return 1;
    *error = (struct eider_disk_error){.code = errno};
    snprintf(error->why, sizeof error->why, "%s", strerror(errno));
    return 0;
}

eider_status eider_disk_archive_finish(struct eider_disk_archive_writer *writer, const char *path,
                                       uint64_t *out_n)
{
    struct eider_disk_error error;
    writer->n = sort_rows(writer->rows, writer->n);
    int ok = write_index(writer, &error);
    if (ok) ok = eider_disk_draft_publish(&writer->draft, path, &error);
    *out_n = writer->n;
    if (ok) {
        eider_mem_free(&writer->allocator, writer->rows);
        return EIDER_OK;
    }
    eider_disk_archive_discard(writer);
    return fail_write(&error);
}

void eider_disk_archive_discard(struct eider_disk_archive_writer *writer)
{
    eider_disk_draft_discard(&writer->draft);
    eider_mem_free(&writer->allocator, writer->rows);
    writer->rows = NULL;
}
