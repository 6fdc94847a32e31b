/* disk_cache_kernel.c -- between a kernel and its entry on disk.
 *
 * Invariant: a kernel that came from disk looks like one that was compiled, but for the
 * times of its stages, which are 0.
 */
#include <string.h>
#include <time.h>

#include "disk_cache.h"
#include "kernel.h"

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- From disk ----------------------------------------------------------------- */

static void count_miss(eider_context *ctx, enum eider_disk_miss miss)
{
    static const int counters[] = {
        [EIDER_MISS_NONE] = -1,
        [EIDER_MISS_OFF] = -1,
        [EIDER_MISS_ABSENT] = EIDER_COUNT_DISK_ABSENT,
        [EIDER_MISS_DAMAGED] = EIDER_COUNT_DISK_DAMAGED,
        [EIDER_MISS_UNREADABLE] = EIDER_COUNT_DISK_UNREADABLE,
        [EIDER_MISS_FORCED] = EIDER_COUNT_DISK_FORCED,
    };
    if (counters[miss] >= 0) eider_context_add(ctx, (enum eider_counter)counters[miss], 1);
}

static char *keep_text(struct eider_kernel *kernel, const struct eider_blob *section)
{
    return eider_arena_text(&kernel->texts, section->data, section->size);
}

static eider_status copy_stage(struct eider_kernel *kernel, const struct eider_blob *section,
                               eider_stage stage)
{
    if (!section->size) return EIDER_OK;
    return eider_blob_copy(&kernel->ctx->allocator, section->data, section->size,
                           &kernel->stages[stage]);
}

/* The value of `name` in a manifest, as the kernel's own text. */
static char *line_of(struct eider_kernel *kernel, const char *name)
{
    const char *at = strstr(kernel->info.manifest, name);
    if (!at) return NULL;
    at += strlen(name);
    return eider_arena_text(&kernel->texts, at, strcspn(at, "\n"));
}

/* The entry may be of another assembler than the plan's, and then has another key. */
static eider_status take_texts(struct eider_kernel *kernel, const struct eider_disk_entry *entry)
{
    char name[EIDER_DISK_NAME_BYTES];
    const struct eider_blob *manifest = &entry->section[EIDER_SECTION_MANIFEST];
    if (strcmp(kernel->info.manifest, manifest->data) != 0) {
        eider_disk_entry_name(manifest->data, name);
        kernel->info.manifest = keep_text(kernel, manifest);
        kernel->info.key = eider_arena_text(&kernel->texts, name + EIDER_DISK_PREFIX, 32);
        if (!kernel->info.manifest || !kernel->info.key) return EIDER_OOM;
        kernel->info.assembler = line_of(kernel, "\nassembler: ");
        if (!kernel->info.assembler) return EIDER_OOM;
    }
    kernel->info.entry = keep_text(kernel, &entry->section[EIDER_SECTION_ENTRY]);
    return kernel->info.entry ? EIDER_OK : EIDER_OOM;
}

static eider_status take(struct eider_kernel *kernel, const struct eider_plan *plan,
                         const struct eider_disk_entry *entry)
{
    const eider_source *source = plan->request->source;
    EIDER_TRY(take_texts(kernel, entry));
    EIDER_TRY(copy_stage(kernel, &entry->section[EIDER_SECTION_PTX], EIDER_STAGE_PTX));
    EIDER_TRY(copy_stage(kernel, &entry->section[EIDER_SECTION_CODE], EIDER_STAGE_CUBIN));
    EIDER_TRY(copy_stage(kernel, &entry->section[EIDER_SECTION_OPT], EIDER_STAGE_OPT));
    if (source && source->kind == EIDER_SOURCE_LL)
        EIDER_TRY(eider_blob_copy(&kernel->ctx->allocator, source->data,
                                  source->size ? source->size : strlen(source->data),
                                  &kernel->stages[EIDER_STAGE_IR]));
    kernel->info.registers = entry->registers;
    kernel->info.spill_bytes = entry->spill_bytes;
    kernel->info.shared_bytes = entry->shared_bytes;
    return EIDER_OK;
}

static void release_stages(struct eider_kernel *kernel)
{
    for (int i = 0; i < EIDER_STAGES; i++)
        eider_blob_release(&kernel->ctx->allocator, &kernel->stages[i]);
}

eider_status eider_disk_cache_recall(struct eider_kernel *kernel, const struct eider_plan *plan,
                                     int any_assembler, int *found)
{
    eider_context *ctx = kernel->ctx;
    struct eider_disk_found entry;
    uint64_t start = now_ns();
    *found = 0;
    EIDER_TRY(eider_disk_cache_find(ctx->disk, kernel->info.manifest, any_assembler, &entry));
    if (any_assembler && entry.miss != EIDER_MISS_NONE)
        EIDER_TRY(eider_disk_cache_find(ctx->disk, kernel->info.manifest, 0, &entry));
    if (entry.miss != EIDER_MISS_NONE) {
        count_miss(ctx, entry.miss);
        return EIDER_OK;
    }
    eider_status status = take(kernel, plan, &entry.entry);
    eider_context_add(ctx, EIDER_COUNT_DISK_READ_BYTES, entry.file.size);
    eider_blob_release(&ctx->allocator, &entry.file);
    if (status != EIDER_OK) return status;
    kernel->info.disk_ns = now_ns() - start;
    eider_context_add(ctx, EIDER_COUNT_DISK_NS, kernel->info.disk_ns);
    *found = 1;
    return EIDER_OK;
}

eider_status eider_disk_cache_reject(struct eider_kernel *kernel, const struct eider_plan *plan,
                                     const char *assembler)
{
    eider_context_log(kernel->ctx, 1, "cache: %s was refused (%.200s); it is compiled again",
                      kernel->info.key, eider_error());
    eider_context_add(kernel->ctx, EIDER_COUNT_DISK_REFUSED, 1);
    release_stages(kernel);
    kernel->info.registers = kernel->info.spill_bytes = kernel->info.shared_bytes = -1;
    kernel->info.disk_ns = 0;
    return eider_manifest_write(plan, assembler, kernel);
}

/* ---- To disk ------------------------------------------------------------------- */

void eider_disk_cache_keep(struct eider_kernel *kernel)
{
    const struct eider_blob *stages = kernel->stages;
    const eider_kernel_info *info = &kernel->info;
    struct eider_disk_entry entry = {.registers = info->registers,
                                     .spill_bytes = info->spill_bytes,
                                     .shared_bytes = info->shared_bytes};
    struct eider_blob file;
    /* Without an assembler there is nothing that would be faster next time. */
    if (!kernel->ctx->disk->root || (!stages[EIDER_STAGE_CUBIN].data && !info->assembler[0]))
        return;
    entry.section[EIDER_SECTION_MANIFEST] =
        (struct eider_blob){(void *)(uintptr_t)info->manifest, strlen(info->manifest)};
    entry.section[EIDER_SECTION_ENTRY] =
        (struct eider_blob){(void *)(uintptr_t)info->entry, strlen(info->entry)};
    entry.section[EIDER_SECTION_PTX] = stages[EIDER_STAGE_PTX];
    entry.section[EIDER_SECTION_CODE] = stages[EIDER_STAGE_CUBIN];
    if (!kernel->graph) entry.section[EIDER_SECTION_OPT] = stages[EIDER_STAGE_OPT];
    /* Out of memory, it is only not kept. */
    if (eider_disk_entry_write(&kernel->ctx->allocator, &entry, &file) != EIDER_OK) return;
    eider_disk_cache_put(kernel->ctx->disk, info->manifest, &file);
    eider_blob_release(&kernel->ctx->allocator, &file);
}
