/* ptx.c -- see ptx.h. */
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below: the lowest PTX version that ptxas 13.0 accepted for each, found by trial. */

static const struct {
    int sm;
    char suffix;
    int version;
} target_table[] = {
    {80, 0, 70}, {86, 0, 71}, {87, 0, 74}, {89, 0, 78}, {90, 0, 78}, {90, 'a', 80},
};

static const struct {
    const char *text;
    int version;
} instruction_table[] = {
    {"cvt.f32.bf16", 71},
    {"alloca.", 73},
    {"L1::no_allocate", 74},
    {"L1::evict_", 74},
    {"L2::evict_", 74},
    {"L2::64B", 74},
    {"L2::128B", 74},
    {"L2::256B", 74},
    {"L2::cache_hint", 74},
    {"createpolicy.", 74},
    {"applypriority.", 74},
    {"discard.global", 74},
    {"e4m3x2", 81},
    {"e5m2x2", 81},
    {"barrier.cluster.arrive.relaxed", 80},
    {"elect.sync", 80},
    {"cp.async.bulk", 80},
    {"setmaxnreg.", 80},
    {"wgmma.", 80},
    {"fence.proxy.async", 80},
    {"st.async.", 81},
    {"multimem.", 81},
    {"red.global.add.v", 81},
    {"red.global.v", 81},
    {".satfinite.tf32", 81},
    {"tensormap.", 83},
    {".b128", 83},
    {"cp.async.bulk.shared::cta", 86},
};

/* fp8 conversions came to sm_90 with its first PTX, to sm_89 later. */
#define FP8_VERSION 81
#define FP8_VERSION_SM_90 78

static const struct {
    int driver, version;
} driver_table[] = {
    {13010, 91}, {13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84},
    {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {11070, 77}, {11060, 76},
    {11050, 75}, {11040, 74}, {11030, 73}, {11020, 72}, {11010, 71}, {11000, 70},
};

#define N_ROWS(table) (sizeof(table) / sizeof(table)[0])

int eider_ptx_version_of_driver(int driver)
{
    for (size_t i = 0; i < N_ROWS(driver_table); i++)
        if (driver >= driver_table[i].driver) return driver_table[i].version;
    return 0;
}

static int version_of_target(struct eider_target target)
{
    for (size_t i = 0; i < N_ROWS(target_table); i++)
        if (target.sm == target_table[i].sm && target.suffix == target_table[i].suffix)
            return target_table[i].version;
    return target_table[0].version;
}

int eider_ptx_version_needed(const char *ptx, struct eider_target target, const char **why)
{
    struct eider_target generated = eider_target_generated(target);
    int version = version_of_target(generated);
    *why = NULL;
    for (size_t i = 0; i < N_ROWS(instruction_table); i++) {
        int needed = instruction_table[i].version;
        const char *text = instruction_table[i].text;
        int is_fp8 = text[0] == 'e' && text[2] == 'm';
        if (is_fp8 && generated.sm >= 90) needed = FP8_VERSION_SM_90;
        if (needed > version && strstr(ptx, text)) {
            version = needed;
            *why = text;
        }
    }
    return version;
}

/* ---- The header ---------------------------------------------------------- */

static int is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%';
}

/* The name of the next entry after `*at`, or NULL. */
static const char *next_entry(const char **at)
{
    const char *found = strstr(*at, ".entry");
    if (!found) return NULL;
    *at = found + strlen(".entry");
    return *at + strspn(*at, " \t\r\n");
}

/* What follows the name of entry `name`, or NULL. */
static const char *after_entry(const char *ptx, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = ptx, *found; (found = next_entry(&at));)
        if (strncmp(found, name, length) == 0 && !is_name_char(found[length]))
            return found + length;
    return NULL;
}

static eider_status fail_entry(const char *ptx, const char *name)
{
    char names[512] = "";
    size_t length = 0;
    for (const char *at = ptx, *found; (found = next_entry(&at));) {
        size_t n = 0;
        while (is_name_char(found[n])) n++;
        if (length + n + 3 > sizeof names) break;
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%.*s",
                                   length ? ", " : "", (int)n, found);
    }
    if (length == 0)
        return eider_fail(EIDER_CODEGEN,
                          "no kernel '%.200s': the module has no kernels (in IR a kernel "
                          "has the calling convention ptx_kernel)",
                          name);
    return eider_fail(EIDER_CODEGEN, "no kernel '%.200s' in the module; its kernels: %s", name,
                      names);
}

static eider_status pick_version(const char *ptx, const struct eider_codegen_job *job, int *out)
{
    const char *why;
    int needed = eider_ptx_version_needed(ptx, job->target, &why);
    if (job->ptx_version && job->ptx_version < needed) {
        char target[EIDER_TARGET_TEXT_BYTES];
        eider_target_print(job->target, target);
        return eider_fail(EIDER_CODEGEN,
                          "kernel '%.200s' needs PTX %d.%d for %s, but at most "
                          "%d.%d is allowed",
                          job->entry, needed / 10, needed % 10, why ? why : target,
                          job->ptx_version / 10, job->ptx_version % 10);
    }
    *out = job->ptx_version ? job->ptx_version : needed;
    return EIDER_OK;
}

eider_status eider_ptx_finish(const eider_allocator *a, const char *ptx, size_t size,
                              const struct eider_codegen_job *job, struct eider_blob *out,
                              int *out_version)
{
    const char *version = strstr(ptx, ".version ");
    if (!version) return eider_fail(EIDER_CODEGEN, "LLVM wrote PTX without a version");
    const char *after = version + strcspn(version, "\n");
    const char *entry = after_entry(after, job->entry);
    if (!entry) return fail_entry(after, job->entry);
    EIDER_TRY(pick_version(ptx, job, out_version));

    size_t length = strcspn(entry, "{;");
    const char *header = entry + length;
    int is_stated = memmem(entry, length, ".maxntid", 8) || memmem(entry, length, ".reqntid", 8);

    struct eider_text text;
    eider_text_init(&text, a);
    eider_text_bytes(&text, ptx, (size_t)(version - ptx));
    eider_text_add(&text, ".version %d.%d", *out_version / 10, *out_version % 10);
    eider_text_bytes(&text, after, (size_t)(header - after));
    if (job->block_threads && !is_stated)
        eider_text_add(&text, ".maxntid %u, 1, 1\n", job->block_threads);
    if (job->registers) eider_text_add(&text, ".maxnreg %u\n", job->registers);
    /* LLVM 19 has no word for it.  Every launch then has clusters, without being told. */
    if (job->cluster)
        eider_text_add(&text, ".explicitcluster\n.reqnctapercluster %u, 1, 1\n", job->cluster);
    eider_text_bytes(&text, header, size - (size_t)(header - ptx));
    char *data;
    EIDER_TRY(eider_text_take(&text, &data, &size));
    *out = (struct eider_blob){data, size};
    return EIDER_OK;
}

/* ---- Parameters ------------------------------------------------------------ */

/* White space and comments. */
static const char *skip_blank(const char *at)
{
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (strncmp(at, "//", 2) == 0) {
            at += strcspn(at, "\n");
        } else if (strncmp(at, "/*", 2) == 0) {
            const char *end = strstr(at, "*/");
            at = end ? end + 2 : at + strlen(at);
        } else {
            return at;
        }
    }
}

/* Bytes of ".u64" and the like; 0 for words that are no such type. */
static uint32_t type_bytes(const char *word)
{
    if (!strchr("bsuf", word[1])) return 0;
    unsigned long bits = strtoul(word + 2, NULL, 10);
    return bits >= 8 && bits <= 128 && bits % 8 == 0 ? (uint32_t)bits / 8 : 0;
}

/* One parameter, ".param .align 8 .b8 name[16]"; *at moves to the ',' or ')' behind it. */
static uint32_t read_param(const char **at)
{
    const char *p = *at;
    uint64_t bytes = 0;
    for (;;) {
        p = skip_blank(p);
        if (*p == '\0' || *p == ',' || *p == ')' || *p == '{') break;
        if (*p == '[') {
            bytes *= strtoull(p + 1, NULL, 10);
        } else if (*p == '.' && bytes == 0) {
            bytes = type_bytes(p);
        }
        p += 1 + strcspn(p + 1, " \t\r\n.,)[{/");
    }
    *at = p;
    return bytes <= UINT32_MAX ? (uint32_t)bytes : 0;
}

eider_status eider_ptx_params(const char *ptx, const char *entry, struct eider_entry_params *out)
{
    const char *at = after_entry(ptx, entry);
    *out = (struct eider_entry_params){0};
    if (!at) return fail_entry(ptx, entry);
    at = skip_blank(at);
    if (*at != '(') return EIDER_OK;
    at = skip_blank(at + 1);
    while (*at && *at != ')' && *at != '{') {
        uint32_t bytes = read_param(&at);
        if (out->n < EIDER_ENTRY_PARAMS_MAX) out->bytes[out->n] = bytes;
        out->n++;
        if (*at == ',') at = skip_blank(at + 1);
    }
    return EIDER_OK;
}
