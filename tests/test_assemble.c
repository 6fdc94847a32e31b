/* test_assemble.c -- PTX becomes cubins, by every assembler that is here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support_ll.h"

static const char *const names[] = {"nvptxcompiler", "ptxas", "nvjitlink"};
static const char *const targets[] = {"sm_80",  "sm_86",  "sm_89", "sm_90",
                                      "sm_90a", "sm_100", "sm_120"};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static struct eider_blob ptx_for(struct eider_target target)
{
    struct eider_codegen_job job = {.target = target, .entry = "swiglu", .block_threads = 256};
    struct eider_codegen_result result;
    assert_int_equal(ll_emit(ll_swiglu, &job, &result), EIDER_OK);
    return result.code;
}

static void every_assembler_makes_cubins_for_every_target(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(names); n++) {
        struct eider_assembler_info info;
        if (eider_assembler_find(names[n], &info) != EIDER_OK) {
            fprintf(stderr, "SKIPPED (no %s): %s\n", names[n], eider_error());
            continue;
        }
        for (size_t t = 0; t < COUNT(targets); t++) {
            struct eider_assemble_job job = {.assembler = names[n], .contract = 1};
            assert_int_equal(eider_target_parse(targets[t], &job.target), EIDER_OK);
            struct eider_blob ptx = ptx_for(job.target);
            struct eider_assemble_result result;
            if (eider_assemble(&ll_allocator, &ptx, &job, &result) != EIDER_OK)
                fail_msg("%s %s: %s", names[n], targets[t], eider_error());
            assert_memory_equal(result.cubin.data, "\177ELF", 4);
            assert_string_equal(result.by.name, names[n]);
            assert_in_range(result.registers, 8, 64);
            assert_int_equal(result.spill_bytes, 0);
            assert_int_equal(result.shared_bytes, 0);
            assert_true(result.ns > 0);
            eider_blob_release(&ll_allocator, &result.cubin);
            eider_blob_release(&ll_allocator, &ptx);
        }
    }
}

static const struct eider_target sm_90 = {90, 0};

static void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static struct eider_blob blob_of(const char *text)
{
    return (struct eider_blob){(void *)(uintptr_t)text, strlen(text)};
}

static int is_here(const char *name)
{
    struct eider_assembler_info info;
    return eider_assembler_find(name, &info) == EIDER_OK;
}

static const char bad_ptx[] = ".version 7.8\n"
                              ".target sm_90\n"
                              ".address_size 64\n"
                              ".visible .entry k()\n"
                              "{\n"
                              "    fly.to.the.moon;\n"
                              "    ret;\n"
                              "}\n";

static void a_refusal_quotes_log_and_line(void **state)
{
    (void)state;
    struct eider_blob ptx = blob_of(bad_ptx);
    for (size_t n = 0; n < COUNT(names); n++) {
        if (!is_here(names[n])) continue;
        struct eider_assemble_job job = {.target = sm_90, .assembler = names[n]};
        struct eider_assemble_result result;
        assert_int_equal(eider_assemble(&ll_allocator, &ptx, &job, &result), EIDER_ASSEMBLER);
        assert_null(result.cubin.data);
        assert_in(eider_error(), names[n]);
        assert_in(eider_error(), "refused the PTX for sm_90: ");
        assert_in(eider_error(), "line 6 is: fly.to.the.moon;");
    }
}

static void a_target_that_the_assembler_lacks_is_refused(void **state)
{
    (void)state;
    struct eider_blob ptx = blob_of(bad_ptx);
    for (size_t n = 0; n < COUNT(names); n++) {
        if (!is_here(names[n])) continue;
        struct eider_assemble_job job = {.target = {129, 0}, .assembler = names[n]};
        struct eider_assemble_result result;
        assert_int_equal(eider_assemble(&ll_allocator, &ptx, &job, &result), EIDER_ASSEMBLER);
        assert_in(eider_error(), "sm_129");
    }
}

#define BODY(lines)                                                                     \
    ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n" \
    "{\n.reg .f32 %f<5>;\n.reg .b64 %rd<3>;\n.shared .b32 s[64];\n"                     \
    "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"                         \
    "ld.global.f32 %f1, [%rd2];\nld.global.f32 %f2, [%rd2+4];\n" lines                  \
    "st.global.f32 [%rd2], %f4;\nret;\n}\n"

/* Assembles and gives a cubin that the caller frees. */
static struct eider_blob cubin_of(const char *name, const char *text, int contract, int line_info)
{
    struct eider_blob ptx = blob_of(text);
    struct eider_assemble_job job = {
        .target = sm_90, .assembler = name, .contract = contract, .line_info = line_info};
    struct eider_assemble_result result;
    if (eider_assemble(&ll_allocator, &ptx, &job, &result) != EIDER_OK)
        fail_msg("%s: %s", name, eider_error());
    return result.cubin;
}

static int has(const struct eider_blob *cubin, const char *text)
{
    return memmem(cubin->data, cubin->size, text, strlen(text)) != NULL;
}

/* The machine code of kernel k. */
static struct eider_blob code_of(const struct eider_blob *cubin)
{
    const char *bytes = cubin->data;
    Elf64_Ehdr header;
    memcpy(&header, bytes, sizeof header);
    Elf64_Shdr strings, section;
    memcpy(&strings, bytes + header.e_shoff + header.e_shstrndx * sizeof strings, sizeof strings);
    for (int i = 0; i < header.e_shnum; i++) {
        memcpy(&section, bytes + header.e_shoff + (size_t)i * sizeof section, sizeof section);
        if (strcmp(bytes + strings.sh_offset + section.sh_name, ".text.k") == 0)
            return (struct eider_blob){(void *)(uintptr_t)(bytes + section.sh_offset),
                                       section.sh_size};
    }
    fail_msg("no .text.k");
    return (struct eider_blob){0};
}

static int is_same_code(const struct eider_blob *a, const struct eider_blob *b)
{
    struct eider_blob x = code_of(a), y = code_of(b);
    return x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
}

static void contract_and_line_info_reach_the_assembler(void **state)
{
    (void)state;
    static const char text[] = BODY("mul.f32 %f3, %f1, %f2;\nadd.f32 %f4, %f3, %f1;\n");
    static const char same[] = BODY("mul.rn.f32 %f3, %f1, %f2;\nadd.rn.f32 %f4, %f3, %f1;\n");
    for (size_t n = 0; n < COUNT(names); n++) {
        if (!is_here(names[n])) continue;
        struct eider_blob fused = cubin_of(names[n], text, 1, 0);
        struct eider_blob apart = cubin_of(names[n], text, 0, 0);
        struct eider_blob never = cubin_of(names[n], same, 1, 0);
        struct eider_blob lines = cubin_of(names[n], text, 1, 1);
        assert_false(is_same_code(&fused, &apart));
        assert_true(is_same_code(&apart, &never));
        assert_true(is_same_code(&fused, &lines));
        assert_false(has(&fused, ".nv_debug_line_sass"));
        assert_true(has(&lines, ".nv_debug_line_sass"));
        eider_blob_release(&ll_allocator, &fused);
        eider_blob_release(&ll_allocator, &apart);
        eider_blob_release(&ll_allocator, &never);
        eider_blob_release(&ll_allocator, &lines);
    }
}

static void shared_memory_is_counted(void **state)
{
    (void)state;
    static const char text[] = BODY("st.shared.f32 [s+8], %f1;\nbar.sync 0;\n"
                                    "ld.shared.f32 %f4, [s+12];\n");
    struct eider_blob ptx = blob_of(text);
    for (size_t n = 0; n < COUNT(names); n++) {
        if (!is_here(names[n])) continue;
        struct eider_assemble_job job = {.target = sm_90, .assembler = names[n]};
        struct eider_assemble_result result;
        assert_int_equal(eider_assemble(&ll_allocator, &ptx, &job, &result), EIDER_OK);
        assert_int_equal(result.shared_bytes, 256);
        eider_blob_release(&ll_allocator, &result.cubin);
    }
}

/* ---- Finding --------------------------------------------------------------------- */

static void an_unknown_assembler_is_refused_by_name(void **state)
{
    (void)state;
    struct eider_assembler_info info;
    assert_int_equal(eider_assembler_find("masm", &info), EIDER_ASSEMBLER);
    assert_in(eider_error(), "there is no assembler 'masm': one of auto, nvptxcompiler, ptxas");
}

/* Sets a variable and gives its former value back. */
static char *replace_variable(const char *name, const char *value)
{
    const char *old = getenv(name);
    char *kept = old ? strdup(old) : NULL;
    setenv(name, value, 1);
    return kept;
}

static void restore_variable(const char *name, char *kept)
{
    if (kept)
        setenv(name, kept, 1);
    else
        unsetenv(name);
    free(kept);
}

static const char *const variables[] = {"EIDER_NVPTXCOMPILER", "EIDER_PTXAS", "EIDER_NVJITLINK"};

static void without_any_assembler_every_path_tried_is_listed(void **state)
{
    (void)state;
    char *kept[COUNT(variables)];
    for (size_t i = 0; i < COUNT(variables); i++)
        kept[i] = replace_variable(variables[i], "/nowhere/at/all");
    struct eider_assembler_info info;
    eider_status status = eider_assembler_find("auto", &info);
    char message[4096];
    snprintf(message, sizeof message, "%s", eider_error());
    for (size_t i = 0; i < COUNT(variables); i++) restore_variable(variables[i], kept[i]);
    assert_int_equal(status, EIDER_ASSEMBLER);
    for (size_t i = 0; i < COUNT(variables); i++) {
        assert_in(message, names[i]);
        assert_in(message, variables[i]);
    }
    assert_in(message, "/nowhere/at/all: No such file or directory");
}

static void auto_takes_the_first_that_is_there(void **state)
{
    (void)state;
    struct eider_assembler_info info;
    if (!is_here("ptxas")) skip();
    char *kept = replace_variable("EIDER_NVPTXCOMPILER", "/nowhere");
    assert_int_equal(eider_assembler_find(NULL, &info), EIDER_OK);
    restore_variable("EIDER_NVPTXCOMPILER", kept);
    assert_string_equal(info.name, "ptxas");
    assert_true(info.version[0] >= '1' && info.version[0] <= '9' && strchr(info.version, '.'));
    assert_int_equal(info.path[0], '/');
}

static void tools_are_listed_for_the_doctor(void **state)
{
    (void)state;
    static const char *const all[] = {"llvm", "nvptxcompiler", "ptxas", "nvjitlink", "nvdisasm"};
    eider_tool tool;
    for (size_t i = 0; i < COUNT(all); i++) {
        assert_int_equal(eider_codegen_tool(i, &tool), 1);
        assert_string_equal(tool.name, all[i]);
        assert_true(tool.found ? *tool.path && *tool.version : *tool.tried);
    }
    assert_int_equal(eider_codegen_tool(COUNT(all), &tool), 0);
    eider_codegen_tool(0, &tool);
    assert_true(tool.found);
    assert_string_equal(tool.version, eider_codegen_llvm_version());
}

/* ---- A ptxas that misbehaves -------------------------------------------------------- */

static char script_path[64];

/* A ptxas that knows its version and otherwise does what `body` says. */
static char *install_script(const char *body)
{
    snprintf(script_path, sizeof script_path, "/tmp/eider-test-%d-ptxas", (int)getpid());
    FILE *file = fopen(script_path, "w");
    assert_non_null(file);
    fprintf(file,
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'tools, release 1.2, V1.2.3' && "
            "exit 0\n%s\n",
            body);
    fclose(file);
    assert_int_equal(chmod(script_path, 0700), 0);
    return replace_variable("EIDER_PTXAS", script_path);
}

static eider_status assemble_by_script(const char *body, int deadline_ms)
{
    char *kept = install_script(body);
    struct eider_blob ptx = blob_of(bad_ptx);
    struct eider_assemble_job job = {
        .target = sm_90, .assembler = "ptxas", .deadline_ms = deadline_ms};
    struct eider_assemble_result result;
    eider_status status = eider_assemble(&ll_allocator, &ptx, &job, &result);
    assert_null(result.cubin.data);
    assert_string_equal(result.by.version, "1.2.3");
    restore_variable("EIDER_PTXAS", kept);
    unlink(script_path);
    return status;
}

static void a_ptxas_that_hangs_meets_the_deadline(void **state)
{
    (void)state;
    assert_int_equal(assemble_by_script("echo hmm; sleep 60", 200), EIDER_TIMEOUT);
    assert_in(eider_error(), "200 ms");
    assert_in(eider_error(), "hmm");
}

static void a_ptxas_that_writes_nothing_or_garbage_is_not_believed(void **state)
{
    (void)state;
    assert_int_equal(assemble_by_script("exit 0", 10000), EIDER_ASSEMBLER);
    assert_in(eider_error(), "no cubin was written");
    assert_int_equal(assemble_by_script("echo rubbish > \"$4\"", 10000), EIDER_ASSEMBLER);
    assert_int_equal(assemble_by_script("kill -SEGV $$", 10000), EIDER_ASSEMBLER);
    assert_in(eider_error(), "signal 11");
}

static void nothing_is_left_in_the_temporary_folder(void **state)
{
    (void)state;
    if (!is_here("ptxas")) skip();
    char folder[] = "/tmp/eider-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *kept = replace_variable("TMPDIR", folder);
    static const char text[] = BODY("mov.f32 %f4, %f1;\n");
    struct eider_blob cubin = cubin_of("ptxas", text, 1, 0);
    eider_blob_release(&ll_allocator, &cubin);
    a_refusal_quotes_log_and_line(state);
    restore_variable("TMPDIR", kept);
    assert_int_equal(rmdir(folder), 0); /* fails when it is not empty */
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    static const char text[] = BODY("mov.f32 %f4, %f1;\n");
    struct eider_blob ptx = blob_of(text);
    for (size_t n = 0; n < COUNT(names); n++) {
        if (!is_here(names[n])) continue;
        struct eider_assemble_job job = {.target = sm_90, .assembler = names[n]};
        struct eider_assemble_result result;
        eider_status status = EIDER_OOM;
        for (int left = 0; left < 50 && status != EIDER_OK; left++) {
            struct ll_failing failing = {.left = left};
            eider_allocator a = ll_failing_allocator(&failing);
            status = eider_assemble(&a, &ptx, &job, &result);
            if (status != EIDER_OK) assert_int_equal(status, EIDER_OOM);
        }
        assert_int_equal(status, EIDER_OK);
        eider_blob_release(&ll_allocator, &result.cubin);
    }
}

/* ---- Threads -------------------------------------------------------------------------- */

#define N_THREADS 8

static void *assemble_all(void *arg)
{
    int *n_wrong = arg;
    static const char text[] = BODY("mov.f32 %f4, %f1;\n");
    struct eider_blob good = blob_of(text), bad = blob_of(bad_ptx);
    for (size_t n = 0; n < COUNT(names); n++) {
        struct eider_assembler_info info;
        if (eider_assembler_find(names[n], &info) != EIDER_OK) continue;
        struct eider_assemble_job job = {.target = sm_90, .assembler = names[n]};
        struct eider_assemble_result result;
        *n_wrong += eider_assemble(&ll_allocator, &good, &job, &result) != EIDER_OK;
        eider_blob_release(&ll_allocator, &result.cubin);
        *n_wrong += eider_assemble(&ll_allocator, &bad, &job, &result) != EIDER_ASSEMBLER;
        *n_wrong += strstr(eider_error(), "line 6 is") == NULL;
    }
    return NULL;
}

static void threads_assemble_at_once(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    int n_wrong[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, assemble_all, &n_wrong[i]), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(n_wrong[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_assembler_makes_cubins_for_every_target),
        cmocka_unit_test(a_refusal_quotes_log_and_line),
        cmocka_unit_test(a_target_that_the_assembler_lacks_is_refused),
        cmocka_unit_test(contract_and_line_info_reach_the_assembler),
        cmocka_unit_test(shared_memory_is_counted),
        cmocka_unit_test(an_unknown_assembler_is_refused_by_name),
        cmocka_unit_test(without_any_assembler_every_path_tried_is_listed),
        cmocka_unit_test(auto_takes_the_first_that_is_there),
        cmocka_unit_test(tools_are_listed_for_the_doctor),
        cmocka_unit_test(a_ptxas_that_hangs_meets_the_deadline),
        cmocka_unit_test(a_ptxas_that_writes_nothing_or_garbage_is_not_believed),
        cmocka_unit_test(nothing_is_left_in_the_temporary_folder),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(threads_assemble_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
