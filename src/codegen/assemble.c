/* assemble.c -- PTX to a cubin by the first assembler that is present; see codegen.h. */
#include "assembler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"

#define LOG_BYTES 2048
#define LINE_BYTES 200
#define DEADLINE_MS 60000 /* where the job has none */

/* In the order of preference: whole programs before relocatable code. */
static const struct {
    enum eider_tool_id tool;
    eider_assembler_run run;
} assembler_table[] = {
    {EIDER_TOOL_NVPTXCOMPILER, eider_assembler_nvptxcompiler},
    {EIDER_TOOL_PTXAS, eider_assembler_ptxas},
    {EIDER_TOOL_NVJITLINK, eider_assembler_nvjitlink},
};

#define N_ASSEMBLERS (sizeof assembler_table / sizeof assembler_table[0])

static int is_auto(const char *name)
{
    return !name || !*name || strcmp(name, "auto") == 0;
}

static eider_status fail_absent(const char *name)
{
    char text[7000] = "";
    size_t length = 0;
    int is_known = 0;
    for (size_t i = 0; i < N_ASSEMBLERS; i++) {
        const char *known = eider_tools_name(assembler_table[i].tool);
        if (!is_auto(name) && strcmp(name, known) != 0) continue;
        is_known = 1;
        eider_tool tool;
        eider_codegen_tool(assembler_table[i].tool, &tool);
        int n = snprintf(text + length, sizeof text - length, "\n%s:\n%s", known, tool.tried);
        if (n > 0 && (size_t)n < sizeof text - length) length += (size_t)n;
    }
    if (!is_known)
        return eider_fail(EIDER_ASSEMBLER,
                          "there is no assembler '%.40s': one of auto, "
                          "nvptxcompiler, ptxas, nvjitlink",
                          name);
    return eider_fail(EIDER_ASSEMBLER, "%s was not found; tried:%s",
                      is_auto(name) ? "an assembler" : name, text);
}

static eider_status find(const char *name, size_t *row, struct eider_tool_found *found)
{
    for (size_t i = 0; i < N_ASSEMBLERS; i++) {
        enum eider_tool_id id = assembler_table[i].tool;
        if (!is_auto(name) && strcmp(name, eider_tools_name(id)) != 0) continue;
        if (!eider_tools_get(id, found)) continue;
        *row = i;
        return EIDER_OK;
    }
    return fail_absent(name);
}

int eider_assembler_look(const char *name, struct eider_assembler_info *out)
{
    for (size_t i = 0; i < N_ASSEMBLERS; i++) {
        enum eider_tool_id id = assembler_table[i].tool;
        if (!is_auto(name) && strcmp(name, eider_tools_name(id)) != 0) continue;
        if (eider_tools_identify(id, out)) return 1;
    }
    return 0;
}

eider_status eider_assembler_find(const char *name, struct eider_assembler_info *out)
{
    return eider_assembler_look(name, out) ? EIDER_OK : fail_absent(name);
}

/* ---- The log ---------------------------------------------------------------- */

/* The number before `unit`, as in "Used 32 registers"; -1 when it is not there. */
static int number_before(const char *log, const char *unit)
{
    const char *at = strstr(log, unit);
    if (!at) return -1;
    const char *start = at;
    while (start > log && start[-1] >= '0' && start[-1] <= '9') start--;
    return start == at ? -1 : (int)strtol(start, NULL, 10);
}

static void read_log(const char *log, struct eider_assemble_result *out)
{
    out->registers = number_before(log, " registers");
    out->spill_bytes = number_before(log, " bytes spill stores");
    int shared = number_before(log, " bytes smem");
    out->shared_bytes = shared < 0 && out->registers >= 0 ? 0 : shared;
}

/* Line `number` of the PTX, without its indent. */
static void copy_line(const struct eider_blob *ptx, long number, char out[LINE_BYTES])
{
    const char *at = ptx->data;
    for (long i = 1; at && i < number; i++) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    out[0] = '\0';
    if (!at) return;
    at += strspn(at, " \t");
    snprintf(out, LINE_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
}

static eider_status fail_log(const struct eider_assembler_info *by, const struct eider_blob *ptx,
                             const char *log, const char *arch)
{
    const char *named = strstr(log, "line ");
    long number = named ? strtol(named + strlen("line "), NULL, 10) : 0;
    char line[LINE_BYTES] = "";
    if (number > 0) copy_line(ptx, number, line);
    int length = (int)strnlen(log, LOG_BYTES);
    while (length && log[length - 1] == '\n') length--;
    if (!*line)
        return eider_fail(EIDER_ASSEMBLER, "%s %s refused the PTX for %s: %.*s", by->name,
                          by->version, arch, length, length ? log : "without a reason");
    return eider_fail(EIDER_ASSEMBLER, "%s %s refused the PTX for %s: %.*s\nline %ld is: %s",
                      by->name, by->version, arch, length, log, number, line);
}

/* ---- Assembling --------------------------------------------------------------- */

/* A cubin is an ELF file; an empty one is what a crashed assembler leaves. */
static int is_elf(const struct eider_blob *cubin)
{
    return cubin->size > 64 && memcmp(cubin->data, "\177ELF", 4) == 0;
}

eider_status eider_assemble(const eider_allocator *a, const struct eider_blob *ptx,
                            const struct eider_assemble_job *job, struct eider_assemble_result *out)
{
    size_t row = 0;
    struct eider_tool_found found;
    *out = (struct eider_assemble_result){.registers = -1, .spill_bytes = -1, .shared_bytes = -1};
    EIDER_TRY(find(job->assembler, &row, &found));
    struct eider_assembler_options options = {
        .contract = job->contract,
        .line_info = job->line_info,
        .deadline_ms = job->deadline_ms > 0 ? job->deadline_ms : DEADLINE_MS,
    };
    eider_target_print(job->target, options.arch);

    struct eider_text log;
    eider_text_init(&log, a);
    uint64_t start = eider_emit_clock();
    eider_status status = assembler_table[row].run(a, &found, ptx, &options, &out->cubin, &log);
    out->ns = eider_emit_clock() - start;
    out->by = found.info;
    const char *said = log.data ? log.data : "";
    if (status == EIDER_OK && !is_elf(&out->cubin)) status = EIDER_ASSEMBLER;
    if (status == EIDER_OK && log.status != EIDER_OK) status = log.status;
    if (status == EIDER_OK) read_log(said, out);
    if (status == EIDER_ASSEMBLER) status = fail_log(&found.info, ptx, said, options.arch);
    if (status != EIDER_OK) eider_blob_release(a, &out->cubin);
    eider_text_release(&log);
    return status;
}
