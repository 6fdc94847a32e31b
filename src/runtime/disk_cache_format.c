/* disk_cache_format.c -- an entry as bytes, and its name.
 *
 *     offset  size
 *          0     8  magic, 89 'E' 'I' 'D' 'E' 'R' 0D 0A
 *          8     4  schema
 *         12     4  registers          -1 where unknown, as the next two
 *         16     4  spill bytes
 *         20     4  shared bytes
 *         24     4  number of sections
 *         28     4  0
 *         32   5*8  size of each section
 *         72        the sections, each followed by one NUL
 *    size-16    16  XXH3-128, of another seed than the key's, of all bytes before
 *
 * Numbers are little-endian; hashes are in xxHash's canonical form.  Nothing in it depends
 * on when or where it was made, so equal kernels are equal files.
 */
#include "disk_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const unsigned char magic[8] = {0x89, 'E', 'I', 'D', 'E', 'R', '\r', '\n'};

#define SCHEMA 1
#define SIZES_AT 32

/* Other than the key's (0), so that no accident that keeps one hash keeps both. */
#define CHECK_SEED UINT64_C(0x656964657263686b)

_Static_assert(SIZES_AT + 8 * EIDER_SECTION_COUNT == EIDER_ENTRY_HEADER_BYTES,
               "the header ends with the sizes");

/* ---- Numbers ------------------------------------------------------------------- */

static void put(unsigned char *at, uint64_t number, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) at[i] = (unsigned char)(number >> 8 * i);
}

static uint64_t get(const unsigned char *at, int n_bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < n_bytes; i++) number |= (uint64_t)at[i] << 8 * i;
    return number;
}

static int32_t get_signed(const unsigned char *at)
{
    uint32_t bits = (uint32_t)get(at, 4);
    int32_t number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* ---- Entries ------------------------------------------------------------------- */

static void check_sum(const unsigned char *bytes, size_t size, XXH128_canonical_t *out)
{
    XXH128_canonicalFromHash(out, XXH3_128bits_withSeed(bytes, size, CHECK_SEED));
}

eider_status eider_disk_entry_write(const eider_allocator *a, const struct eider_disk_entry *entry,
                                    struct eider_blob *out)
{
    size_t size = EIDER_ENTRY_HEADER_BYTES + EIDER_ENTRY_TRAILER_BYTES;
    for (int i = 0; i < EIDER_SECTION_COUNT; i++) size += entry->section[i].size + 1;
    unsigned char *bytes = eider_mem_zero(a, size);
    if (!bytes) return EIDER_OOM;
    memcpy(bytes, magic, sizeof magic);
    put(bytes + 8, SCHEMA, 4);
    put(bytes + 12, (uint32_t)entry->registers, 4);
    put(bytes + 16, (uint32_t)entry->spill_bytes, 4);
    put(bytes + 20, (uint32_t)entry->shared_bytes, 4);
    put(bytes + 24, EIDER_SECTION_COUNT, 4);
    unsigned char *at = bytes + EIDER_ENTRY_HEADER_BYTES;
    for (int i = 0; i < EIDER_SECTION_COUNT; i++) {
        const struct eider_blob *section = &entry->section[i];
        put(bytes + SIZES_AT + 8 * i, section->size, 8);
        if (section->size) memcpy(at, section->data, section->size);
        at += section->size + 1;
    }
    XXH128_canonical_t sum;
    check_sum(bytes, size - sizeof sum, &sum);
    memcpy(at, &sum, sizeof sum);
    *out = (struct eider_blob){bytes, size};
    return EIDER_OK;
}

const char *eider_disk_entry_read(const struct eider_blob *file, struct eider_disk_entry *out)
{
    unsigned char *bytes = file->data;
    if (file->size < EIDER_ENTRY_HEADER_BYTES + EIDER_ENTRY_TRAILER_BYTES) return "it is cut off";
    if (memcmp(bytes, magic, sizeof magic) != 0) return "it does not begin like an entry";
    if (get(bytes + 8, 4) != SCHEMA || get(bytes + 24, 4) != EIDER_SECTION_COUNT)
        return "it has another version of the format";
    size_t body = file->size - EIDER_ENTRY_TRAILER_BYTES, at = EIDER_ENTRY_HEADER_BYTES;
    struct eider_disk_entry entry = {.registers = get_signed(bytes + 12),
                                     .spill_bytes = get_signed(bytes + 16),
                                     .shared_bytes = get_signed(bytes + 20)};
    for (int i = 0; i < EIDER_SECTION_COUNT; i++) {
        uint64_t size = get(bytes + SIZES_AT + 8 * i, 8);
        if (size >= body - at) return "it is cut off, or its sizes are wrong";
        entry.section[i] = (struct eider_blob){bytes + at, (size_t)size};
        at += (size_t)size + 1;
        if (bytes[at - 1] != 0) return "its sections are not where they should be";
        if (at == body && i + 1 < EIDER_SECTION_COUNT) return "it is cut off";
    }
    if (at != body) return "its sizes do not add up";
    XXH128_canonical_t sum;
    check_sum(bytes, body, &sum);
    if (memcmp(&sum, bytes + body, sizeof sum) != 0) return "its checksum is wrong";
    *out = entry;
    return NULL;
}

/* ---- Names --------------------------------------------------------------------- */

/* Of all lines but the assembler's. */
static uint64_t hash_rest(const char *manifest)
{
    static const char line[] = "\nassembler: ";
    const char *at = strstr(manifest, line);
    size_t before = at ? (size_t)(at - manifest) : strlen(manifest);
    const char *after = at ? at + 1 + strcspn(at + 1, "\n") : "";
    return XXH3_64bits_withSeed(after, strlen(after), XXH3_64bits(manifest, before));
}

void eider_disk_entry_name(const char *manifest, char out[EIDER_DISK_NAME_BYTES])
{
    XXH128_hash_t key = XXH3_128bits(manifest, strlen(manifest));
    snprintf(out, EIDER_DISK_NAME_BYTES, "%016" PRIx64 "-%016" PRIx64 "%016" PRIx64,
             hash_rest(manifest), key.high64, key.low64);
}

int eider_disk_entry_is_name(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    return strlen(name) == EIDER_DISK_NAME_BYTES - 1 &&
           strspn(name, digits) == EIDER_DISK_PREFIX - 1 && name[EIDER_DISK_PREFIX - 1] == '-' &&
           strspn(name + EIDER_DISK_PREFIX, digits) == 32;
}
