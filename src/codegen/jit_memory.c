/* jit_memory.c -- see jit_memory.h.
 *
 * The mapping begins with a record for each of its pages, of which a section takes one at
 * least.  A section that finds no room, such as a large array of zeros that takes none in the
 * file, gets a mapping of its own, whose first page is its record.  That is as LLVM would do
 * it, but for the check of the distance.
 */
#include "jit_memory.h"

#include <llvm-c/OrcEE.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail.h"

#define PER_OBJECT_BYTE 4          /* sections, stubs and their alignment */
#define PAGES 64                   /* each section begins with one of its own */
#define REACH ((size_t)0x7fff0000) /* of a signed 32-bit offset, less a little */

struct eider_jit_section {
    struct eider_jit_section *next;
    unsigned char *start;
    size_t bytes; /* whole pages */
    int protection;
    size_t mapped; /* of a mapping of its own, which begins with this record; else 0 */
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void *map(void *near, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(near, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

eider_status eider_jit_memory_reserve(struct eider_jit_memory *m, size_t object_bytes)
{
    size_t page = page_bytes();
    size_t pages = round_up(PER_OBJECT_BYTE * object_bytes, page) / page + PAGES;
    m->used = m->first = round_up(pages * sizeof(struct eider_jit_section), page);
    m->bytes = m->used + pages * page;
    m->start = map(NULL, m->bytes);
    if (!m->start) return eider_fail(EIDER_OOM, "no %zu bytes for host code", m->bytes);
    return EIDER_OK;
}

void eider_jit_memory_release(struct eider_jit_memory *m)
{
    for (struct eider_jit_section *s = m->sections, *next; s; s = next) {
        next = s->next;
        if (s->mapped) munmap(s, s->mapped);
    }
    if (m->start) munmap(m->start, m->bytes);
    memset(m, 0, sizeof *m);
}

/* A section in the mapping, or NULL. */
static struct eider_jit_section *carve(struct eider_jit_memory *m, size_t bytes, size_t alignment)
{
    size_t page = page_bytes();
    uintptr_t base = (uintptr_t)m->start;
    size_t at = round_up(base + m->used, alignment) - base;
    if (at > m->bytes || bytes > m->bytes - at) return NULL;
    struct eider_jit_section *records = (struct eider_jit_section *)(void *)m->start;
    struct eider_jit_section *s = &records[(at - m->first) / page];
    *s = (struct eider_jit_section){.start = m->start + at, .bytes = bytes};
    m->used = at + bytes;
    return s;
}

/* NULL, on which LLVM aborts, only where there is no memory. */
static struct eider_jit_section *map_apart(struct eider_jit_memory *m, size_t bytes,
                                           size_t alignment)
{
    size_t mapped = bytes + page_bytes() + alignment;
    struct eider_jit_section *s = map(m->start + m->bytes, mapped);
    if (!s) return NULL;
    size_t skipped = round_up((uintptr_t)s + page_bytes(), alignment) - (uintptr_t)s;
    *s = (struct eider_jit_section){
        .start = (unsigned char *)s + skipped, .bytes = bytes, .mapped = mapped};
    uintptr_t a = (uintptr_t)m->start, b = (uintptr_t)s->start;
    uintptr_t span = a < b ? b + bytes - a : a + m->bytes - b;
    if (span > REACH) m->trouble = "the sections of the host code are too far apart";
    return s;
}

static unsigned char *allocate(struct eider_jit_memory *m, size_t bytes, size_t alignment,
                               int protection)
{
    size_t page = page_bytes();
    bytes = round_up(bytes ? bytes : 1, page);
    if (alignment < page) alignment = page;
    struct eider_jit_section *s = carve(m, bytes, alignment);
    if (!s) s = map_apart(m, bytes, alignment);
    if (!s) return NULL;
    s->protection = protection;
    s->next = m->sections;
    m->sections = s;
    return s->start;
}

/* ---- What LLVM calls ------------------------------------------------------------------- */

static void *create_context(void *memory)
{
    return memory;
}

static void ignore(void *memory)
{
    (void)memory;
}

static uint8_t *allocate_code(void *memory, uintptr_t bytes, unsigned alignment, unsigned id,
                              const char *name)
{
    (void)id, (void)name;
    return allocate(memory, bytes, alignment, PROT_READ | PROT_EXEC);
}

static uint8_t *allocate_data(void *memory, uintptr_t bytes, unsigned alignment, unsigned id,
                              const char *name, LLVMBool is_read_only)
{
    (void)id, (void)name;
    int protection = is_read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    return allocate(memory, bytes, alignment, protection);
}

/* Returns 1 with a message, which LLVM frees, where the code cannot be run. */
static LLVMBool finish(void *memory, char **message)
{
    struct eider_jit_memory *m = memory;
    for (const struct eider_jit_section *s = m->sections; s && !m->trouble; s = s->next) {
        if (mprotect(s->start, s->bytes, s->protection) != 0)
            m->trouble = "the system does not let host code be executed";
        if (s->protection & PROT_EXEC)
            __builtin___clear_cache((char *)s->start, (char *)s->start + s->bytes);
    }
    if (!m->trouble) return 0;
    *message = strdup(m->trouble);
    return 1;
}

LLVMOrcObjectLayerRef eider_jit_memory_layer(struct eider_jit_memory *m,
                                             LLVMOrcExecutionSessionRef session)
{
    return LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(
        session, m, create_context, ignore, allocate_code, allocate_data, finish, ignore);
}
