/* test_tuner_records.c -- timings in files: damaged, merged, shared by processes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "records.h"
#include "support_runtime.h"
#include "support_tuner.h"

static struct workbench b;
static char running[256];
static double factor_of_vec_8 = 0.5;

static void note(void *user, const char *config, const eider_tensor *args, size_t n)
{
    (void)user, (void)args, (void)n;
    snprintf(running, sizeof running, "%s", config);
}

static eider_status pretend(void *user, eider_tune_run run, void *arg, double *out_ns)
{
    (void)user;
    *out_ns = strstr(running, "vec=8") ? 2000 * factor_of_vec_8 : 2000;
    return run(arg);
}

static int open_bench(void **state)
{
    (void)state;
    workbench_open(&b);
    workbench_remember(&b);
    b.request.space = "vec=4|8";
    b.request.hooks = (eider_tune_hooks){.before_run = note, .timer = pretend};
    factor_of_vec_8 = 0.5;
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    workbench_close(&b);
    return 0;
}

static const char *path_of(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", b.folder, name);
    return path;
}

static char *text_of(const char *path)
{
    static char texts[2][1 << 16];
    static int next;
    char *text = texts[next++ % 2];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof texts[0] - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void write_text(const char *path, const char *mode, const char *text)
{
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int lines_in(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static size_t n_timed(void)
{
    eider_tune_summary s;
    must(workbench_tune(&b, &s));
    return s.n_timed;
}

/* ---- Lines ------------------------------------------------------------------------ */

static void a_record_says_what_was_measured_and_where(void **state)
{
    (void)state;
    assert_int_equal(n_timed(), 2);
    const char *text = text_of(path_of("timings.jsonl"));
    assert_int_equal(lines_in(text), 4); /* a key, two timings, a done */
    assert_non_null(strstr(text, "\"schema\":1"));
    assert_non_null(strstr(text, "\"samples_ns\":[1000,1000,"));
    assert_non_null(strstr(text, "\"outcome\":\"timed\""));
    assert_non_null(strstr(text, "\"program: out = silu(x) * y\""));
    assert_non_null(strstr(text, "\"device: "));
    assert_non_null(strstr(text, "driver 0"));
    assert_non_null(strstr(text, "\"assembler: "));
    assert_null(strstr(text, b.folder));
    struct stat info;
    assert_int_equal(stat(path_of("timings.jsonl"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void clocks_stay_beside_their_samples(void **state)
{
    (void)state;
    eider_tune_summary s;
    eider_tune_entry e;
    eider_tuning *tuning;
    char line[512], path[128];
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    must(eider_tune_entry_get(tuning, 0, &e));
    snprintf(line, sizeof line,
             "{\"schema\":1,\"key\":\"%s\",\"epoch\":9,\"kind\":\"timing\",\"config\":\"%s\","
             "\"outcome\":\"timed\",\"samples_ns\":[30,10,20],\"clock_khz\":[1,2,3]}\n",
             s.key, e.config);
    eider_tune_release(tuning);
    snprintf(path, sizeof path, "%s", path_of("other.jsonl"));
    write_text(path, "w", line);
    must(eider_tune_import(b.ctx, b.folder, path));
    workbench_reopen(&b);
    b.request.pinned = 1;
    must(eider_tune(b.device, &b.request, &tuning));
    must(eider_tune_entry_get(tuning, 0, &e));
    assert_int_equal(e.n_samples, 3);
    for (int i = 0; i < 3; i++) {
        static const int32_t clocks[] = {2, 3, 1};
        assert_true(e.samples_ns[i] == 10 * (i + 1));
        assert_int_equal(e.clock_khz[i], clocks[i]);
    }
    assert_true(e.median_ns == 20 && e.p20_ns == 14 && e.p80_ns == 26);
    eider_tune_release(tuning);
}

static void damaged_lines_cost_one_warning_and_nothing_else(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{",
        "null",
        "[1,2]",
        "{\"schema\":2,\"kind\":\"timing\"}",
        "{\"schema\":1,\"key\":\"xyz\",\"epoch\":0,\"kind\":\"key\"}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":-1,\"kind\":\"key\"}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"other\"}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"timing\"}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"timing\",\"config\":\"vec=4\","
        "\"outcome\":\"splendid\",\"samples_ns\":[1]}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"timing\",\"config\":\"vec=4\","
        "\"outcome\":\"timed\",\"samples_ns\":[]}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"timing\",\"config\":\"vec=4\","
        "\"outcome\":\"timed\",\"samples_ns\":[-5]}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"timing\",\"config\":\"vec=4\","
        "\"outcome\":\"timed\",\"samples_ns\":\"many\"}",
        "{\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"done\",\"config\":\"vec=4\"}",
        "{\"schema\":1,\"schema\":1,\"key\":\"%s\",\"epoch\":0,\"kind\":\"key\"}",
    };
    eider_tune_summary s;
    eider_tuning *tuning;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(line, sizeof line, bad[i], s.key);
#pragma GCC diagnostic pop
        write_text(path_of("timings.jsonl"), "a", line);
        write_text(path_of("timings.jsonl"), "a", "\n");
    }
    eider_tune_release(tuning);
    workbench_reopen(&b);
    assert_int_equal(n_timed(), 0);
    assert_non_null(strstr(workbench_choice(&b), "vec=8"));
    /* Those of this key. */
    const char *told = strstr(b.log, "1 skipped: 9 lines of ");
    assert_non_null(told);
    assert_null(strstr(told + 1, "1 skipped"));
}

static void a_line_cut_short_does_not_swallow_the_next(void **state)
{
    (void)state;
    const char *path = path_of("timings.jsonl");
    write_text(path, "w", "{\"schema\":1,\"key\":\"0123");
    assert_int_equal(n_timed(), 2);
    workbench_reopen(&b);
    assert_int_equal(n_timed(), 0);
}

static void every_truncation_of_a_file_is_survived(void **state)
{
    (void)state;
    static char whole[1 << 16];
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("timings.jsonl"));
    assert_int_equal(n_timed(), 2);
    snprintf(whole, sizeof whole, "%s", text_of(path));
    size_t size = strlen(whole);
    for (size_t n = 0; n < size; n += 1 + size / 40) {
        char kept = whole[n];
        struct eider_records records;
        eider_allocator a = eider_memory_default((eider_allocator){0});
        whole[n] = '\0';
        write_text(path, "w", whole);
        whole[n] = kept;
        eider_records_init(&records, &a);
        must(eider_records_read(&records, path, NULL));
        assert_true(records.n_bad <= 1);
        eider_records_release(&records);
    }
}

/* ---- Files that cannot be ------------------------------------------------------------ */

static void a_folder_that_cannot_be_used_costs_one_warning(void **state)
{
    (void)state;
    char below[160];
    write_text(path_of("file"), "w", "no folder");
    snprintf(below, sizeof below, "%s/deeper", path_of("file"));
    b.request.records = below;
    assert_int_equal(n_timed(), 2);
    assert_int_equal(n_timed(), 0); /* in memory */
    const char *told = strstr(b.log, "1 timings are not remembered: ");
    assert_non_null(told);
    assert_null(strstr(told + 1, "1 timings"));
}

static void files_that_are_no_tables_are_refused(void **state)
{
    (void)state;
    assert_int_equal(eider_tune_import(b.ctx, b.folder, path_of("absent")), EIDER_IO);
    assert_non_null(strstr(eider_error(), "absent: No such file"));
    assert_int_equal(eider_tune_import(b.ctx, b.folder, b.folder), EIDER_IO);
    assert_int_equal(eider_tune_export(b.ctx, b.folder, NULL, path_of("out")), EIDER_IO);
    assert_int_equal(n_timed(), 2);
    assert_int_equal(eider_tune_export(b.ctx, b.folder, NULL, "/dev/null/out"), EIDER_IO);
    assert_int_equal(
        eider_tune_export(b.ctx, b.folder, "ffffffffffffffffffffffffffffffff", path_of("out")),
        EIDER_IO);
    assert_int_equal(eider_tune_merge(b.ctx, NULL, NULL, NULL), EIDER_BAD_ARG);
}

/* Nobody writes to the pipe, and it would be gone after an export. */
static void pipes_and_links_are_neither_waited_for_nor_replaced(void **state)
{
    (void)state;
    char pipe_path[128], link_path[128];
    struct stat st;
    snprintf(pipe_path, sizeof pipe_path, "%s", path_of("pipe"));
    snprintf(link_path, sizeof link_path, "%s", path_of("link"));
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(symlink(pipe_path, link_path), 0);
    assert_int_equal(n_timed(), 2);
    assert_int_equal(eider_tune_import(b.ctx, b.folder, pipe_path), EIDER_IO);
    assert_non_null(strstr(eider_error(), "pipe is not a file"));
    assert_int_equal(eider_tune_export(b.ctx, b.folder, NULL, pipe_path), EIDER_IO);
    assert_non_null(strstr(eider_error(), "pipe is no file, and the timings would replace it"));
    assert_int_equal(eider_tune_export(b.ctx, b.folder, NULL, link_path), EIDER_IO);
    assert_true(lstat(pipe_path, &st) == 0 && S_ISFIFO(st.st_mode));
    assert_true(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode));
}

/* ---- Tables --------------------------------------------------------------------------- */

/* Tunes over `space` in a folder of its own and exports to `file`. */
static void make_table(const char *folder, const char *space, const char *file)
{
    char records[128];
    snprintf(records, sizeof records, "%s", path_of(folder));
    workbench_reopen(&b);
    b.request.records = records;
    b.request.space = space;
    eider_tune_summary s;
    must(workbench_tune(&b, &s));
    must(eider_tune_export(b.ctx, records, NULL, file));
    b.request.records = b.folder;
}

static void merging_is_idempotent_and_commutative(void **state)
{
    (void)state;
    char a[128], c[128], ac[128], ca[128], aa[128], twice[128];
    snprintf(a, sizeof a, "%s", path_of("a"));
    snprintf(c, sizeof c, "%s", path_of("c"));
    snprintf(ac, sizeof ac, "%s", path_of("ac"));
    snprintf(ca, sizeof ca, "%s", path_of("ca"));
    snprintf(aa, sizeof aa, "%s", path_of("aa"));
    snprintf(twice, sizeof twice, "%s", path_of("twice"));
    make_table("one", "vec=4|8", a);
    factor_of_vec_8 = 0.7;
    make_table("two", "vec=2|8", c);
    must(eider_tune_merge(b.ctx, a, c, ac));
    must(eider_tune_merge(b.ctx, c, a, ca));
    must(eider_tune_merge(b.ctx, a, a, aa));
    must(eider_tune_merge(b.ctx, ac, c, twice));
    assert_string_equal(text_of(ac), text_of(ca));
    assert_string_equal(text_of(aa), text_of(a));
    assert_string_equal(text_of(twice), text_of(ac));
    /* The key's line is the same in both. */
    assert_int_equal(lines_in(text_of(ac)), 7);
}

static void importing_twice_adds_nothing(void **state)
{
    (void)state;
    char a[128];
    snprintf(a, sizeof a, "%s", path_of("a"));
    make_table("one", "vec=4|8", a);
    must(eider_tune_import(b.ctx, b.folder, a));
    int n = lines_in(text_of(path_of("timings.jsonl")));
    must(eider_tune_import(b.ctx, b.folder, a));
    assert_int_equal(lines_in(text_of(path_of("timings.jsonl"))), n);
    workbench_reopen(&b);
    assert_int_equal(n_timed(), 0);
}

static void all_who_import_a_table_choose_alike(void **state)
{
    (void)state;
    char a[128], c[128], ac[128];
    snprintf(a, sizeof a, "%s", path_of("a"));
    snprintf(c, sizeof c, "%s", path_of("c"));
    snprintf(ac, sizeof ac, "%s", path_of("ac"));
    make_table("one", "vec=4|8", a);
    factor_of_vec_8 = 2;
    make_table("two", "vec=4|8", c); /* another winner for the same key */
    must(eider_tune_merge(b.ctx, a, c, ac));
    b.request.pinned = 1;
    char choices[3][256];
    static const char *const folders[] = {"x", "y", "z"};
    for (int i = 0; i < 3; i++) {
        char records[128];
        snprintf(records, sizeof records, "%s", path_of(folders[i]));
        workbench_reopen(&b);
        b.request.records = records;
        b.request.space = "vec=4|8";
        must(eider_tune_import(b.ctx, records, ac));
        snprintf(choices[i], sizeof choices[i], "%s", workbench_choice(&b));
    }
    assert_string_equal(choices[0], choices[1]);
    assert_string_equal(choices[0], choices[2]);
}

static void one_key_can_be_exported(void **state)
{
    (void)state;
    eider_tune_summary s;
    eider_tuning *tuning;
    must(eider_tune(b.device, &b.request, &tuning));
    eider_tune_describe(tuning, &s);
    must(eider_tune_export(b.ctx, b.folder, s.key, path_of("one")));
    eider_tune_release(tuning);
    b.shape[0] = 8;
    assert_int_equal(n_timed(), 2);
    must(eider_tune_export(b.ctx, b.folder, NULL, path_of("all")));
    assert_int_equal(lines_in(text_of(path_of("one"))), 4);
    assert_int_equal(lines_in(text_of(path_of("all"))), 8);
}

/* ---- Processes ---------------------------------------------------------------------------- */

enum { CHILDREN = 5 };

/* What a child reports: how many configs it timed, and which vec won. */
static int child(int i)
{
    struct workbench mine;
    eider_tune_summary s;
    eider_tuning *tuning;
    char records[64];
    snprintf(records, sizeof records, "%s", b.folder);
    /* Left to themselves they would disagree. */
    factor_of_vec_8 = i % 2 ? 0.5 : 2;
    workbench_open(&mine);
    mine.request.no_records = 0;
    mine.request.records = records;
    mine.request.space = "vec=4|8";
    mine.request.hooks = b.request.hooks;
    if (eider_tune(mine.device, &mine.request, &tuning) != EIDER_OK) return 99;
    eider_tune_describe(tuning, &s);
    int result = (int)s.n_timed * 10 + (strstr(s.config, "vec=8") ? 8 : 4);
    eider_tune_release(tuning);
    workbench_close(&mine);
    return result;
}

static void race(int *n_timed_by, int *choice_of)
{
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] == 0) _exit(child(i));
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        n_timed_by[i] = WEXITSTATUS(status) / 10;
        choice_of[i] = WEXITSTATUS(status) % 10;
    }
}

static void of_the_ranks_of_a_job_one_tunes_and_all_agree(void **state)
{
    (void)state;
    int n[CHILDREN], choice[CHILDREN], total = 0;
    race(n, choice);
    for (int i = 0; i < CHILDREN; i++) {
        assert_int_equal(choice[i], choice[0]);
        total += n[i];
    }
    assert_int_equal(total, 2);
}

static void without_locks_the_first_record_counts_for_all(void **state)
{
    (void)state;
    int n[CHILDREN], choice[CHILDREN];
    for (int i = 0; i < 16; i++) {
        char name[64];
        snprintf(name, sizeof name, "timings.jsonl.lock%x", (unsigned)i);
        assert_int_equal(mkdir(path_of(name), 0700), 0);
    }
    race(n, choice);
    for (int i = 0; i < CHILDREN; i++) assert_int_equal(choice[i], choice[0]);
}

static void lock_all(int *fds)
{
    for (int i = 0; i < 16; i++) {
        char name[64];
        snprintf(name, sizeof name, "timings.jsonl.lock%x", (unsigned)i);
        fds[i] = open(path_of(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(flock(fds[i], LOCK_EX), 0);
    }
}

static void waiting_for_another_process_has_a_deadline(void **state)
{
    (void)state;
    eider_tune_summary s;
    int fds[16];
    lock_all(fds);
    b.request.job_deadline_ms = 30;
    assert_int_equal(workbench_tune(&b, &s), EIDER_TIMEOUT);
    assert_non_null(strstr(eider_error(), "another process has tuned the same for 30 ms"));
    for (int i = 0; i < 16; i++) close(fds[i]);
    must(workbench_tune(&b, &s));
}

static void a_process_that_was_killed_holds_nothing_up(void **state)
{
    (void)state;
    eider_tune_summary s;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fds[16];
        lock_all(fds);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    b.request.job_deadline_ms = 1000;
    must(workbench_tune(&b, &s));
    assert_int_equal(s.n_timed, 2);
    close(ready[0]);
    close(ready[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_bench, close_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_record_says_what_was_measured_and_where),
        TEST(clocks_stay_beside_their_samples),
        TEST(damaged_lines_cost_one_warning_and_nothing_else),
        TEST(a_line_cut_short_does_not_swallow_the_next),
        TEST(every_truncation_of_a_file_is_survived),
        TEST(a_folder_that_cannot_be_used_costs_one_warning),
        TEST(files_that_are_no_tables_are_refused),
        TEST(pipes_and_links_are_neither_waited_for_nor_replaced),
        TEST(merging_is_idempotent_and_commutative),
        TEST(importing_twice_adds_nothing),
        TEST(all_who_import_a_table_choose_alike),
        TEST(one_key_can_be_exported),
        TEST(of_the_ranks_of_a_job_one_tunes_and_all_agree),
        TEST(without_locks_the_first_record_counts_for_all),
        TEST(waiting_for_another_process_has_a_deadline),
        TEST(a_process_that_was_killed_holds_nothing_up),
    };
    return cmocka_run_group_tests_name("tuner_records", tests, NULL, NULL);
}
