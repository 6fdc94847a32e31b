/* test_cache_key.c -- a key changes with every ingredient, and with nothing else.
 *
 * Keys are asked for without compiling.  A process that only prints a key runs this program
 * again, at other addresses, with another number, in another folder and at another home.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"
#include "disk_cache.h"
#include "fake_cuda.h"
#include "kernel.h"
#include "support_cache.h"
#include "support_runtime.h"

#define PROGRAM "out = silu(gate) * up"
#define ROWS "out = gate / sum(gate) * up"

static eider_context *ctx;
static _Alignas(64) char memory[256];

struct identity {
    char key[33];
    struct eider_hash identity;
    char manifest[4096];
};

static struct identity identify_for(eider_device *device, const eider_request *request)
{
    struct identity out = {0};
    struct eider_plan plan;
    struct eider_kernel *kernel;
    int any_assembler;
    must(eider_prepare_plan(ctx, device, request, &plan));
    must(eider_kernel_identify(&plan, &kernel, &any_assembler));
    snprintf(out.key, sizeof out.key, "%s", kernel->info.key);
    snprintf(out.manifest, sizeof out.manifest, "%s", kernel->info.manifest);
    out.identity = kernel->identity;
    eider_kernel_release(kernel);
    return out;
}

static void check_same(const struct identity *a, const struct identity *b, const char *what,
                       int want)
{
    int keys = strcmp(a->key, b->key) == 0;
    int identities = memcmp(&a->identity, &b->identity, sizeof a->identity) == 0;
    if (keys != want || identities != want)
        fail_msg("%s: the keys are %s, the identities %s\n%s%s", what, keys ? "equal" : "different",
                 identities ? "equal" : "different", a->manifest, b->manifest);
}

/* ---- Requests for a program --------------------------------------------------------- */

/* What may be asked for; zero is the base of all comparisons. */
struct wish {
    const char *program, *config, *target, *assembler;
    eider_numerics numerics;
    int32_t line_info, any_layout;
    eider_dtype types[3];
    int64_t shape[2], strides[2]; /* strides of the first operand; 0, 0: contiguous */
    int32_t rank;
    size_t offset; /* bytes, of the first operand's address */
    const char *what;
};

static struct identity identify(const struct wish *wish)
{
    eider_program *program;
    eider_tensor args[3];
    int64_t shape[] = {wish->shape[0] ? wish->shape[0] : 64, wish->shape[1] ? wish->shape[1] : 64};
    for (int i = 0; i < 3; i++)
        args[i] = (eider_tensor){.type = wish->types[i], .rank = wish->rank, .shape = shape};
    if (!wish->rank)
        for (int i = 0; i < 3; i++) args[i].rank = 2;
    args[0].data = memory + wish->offset;
    if (wish->strides[0] || wish->strides[1]) args[0].strides = wish->strides;
    must(eider_program_parse(ctx, wish->program ? wish->program : PROGRAM, &program));
    eider_request request = {.program = program,
                             .args = args,
                             .n_args = 3,
                             .numerics = wish->numerics,
                             .config = wish->config,
                             .target = wish->target ? wish->target : "sm_90",
                             .assembler = wish->assembler,
                             .line_info = wish->line_info,
                             .any_layout = wish->any_layout};
    struct identity out = identify_for(NULL, &request);
    eider_program_release(program);
    return out;
}

static void every_ingredient_changes_the_key(void **state)
{
    (void)state;
    static const struct wish wishes[] = {
        {.what = "base"},
        {.what = "operation", .program = "out = silu(gate) + up"},
        {.what = "literal", .program = "out = silu(gate) * up * 2"},
        {.what = "names", .program = "out = silu(x) * y"},
        {.what = "cast", .program = "out = cast(silu(gate), bf16) * up"},
        {.what = "math approx", .numerics = {.math = EIDER_MATH_APPROX}},
        {.what = "math exact", .numerics = {.math = EIDER_MATH_EXACT}},
        {.what = "ftz", .numerics = {.ftz = EIDER_ON}},
        {.what = "contract", .numerics = {.contract = EIDER_OFF}},
        {.what = "target", .target = "sm_80"},
        {.what = "suffix", .target = "sm_90a"},
        {.what = "newer target", .target = "sm_120"},
        {.what = "its neighbour", .target = "sm_121"},
        {.what = "newer suffix", .target = "sm_120a"},
        {.what = "family suffix", .target = "sm_120f"},
        {.what = "host", .target = "cpu"},
        {.what = "line info", .line_info = 1},
        {.what = "any layout", .any_layout = 1},
        {.what = "an input's type", .types = {EIDER_BF16}},
        {.what = "another type", .types = {EIDER_F16}},
        {.what = "the other input's type", .types = {EIDER_F32, EIDER_BF16}},
        {.what = "the output's type", .types = {EIDER_F32, EIDER_F32, EIDER_BF16}},
        {.what = "alignment 8", .offset = 8},
        {.what = "alignment 4", .offset = 4},
        {.what = "stride", .strides = {65, 1}},
        {.what = "transposed", .strides = {1, 64}},
        {.what = "repeated rows", .strides = {0, 1}},
        {.what = "repeated columns", .strides = {1, 0}},
        {.what = "wide offsets", .shape = {1 << 20, 1 << 12}},
        {.what = "rows", .program = ROWS},
        {.what = "longer rows", .program = ROWS, .shape = {64, 65}},
        {.what = "another reduction", .program = "out = gate / mean(gate) * up"},
        {.what = "rows, another type", .program = ROWS, .types = {EIDER_BF16}},
        {.what = "rows at odd places", .program = ROWS, .strides = {65, 1}},
    };
    enum { N = sizeof wishes / sizeof wishes[0] };
    static struct identity ids[N];
    for (int i = 0; i < N; i++) ids[i] = identify(&wishes[i]);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < i; j++) {
            char what[128];
            snprintf(what, sizeof what, "%s against %s", wishes[i].what, wishes[j].what);
            check_same(&ids[i], &ids[j], what, 0);
        }
    }
}

/* 0 where the template does not take the config for 64 rows of 64. */
static int try_config(const char *text, const char *config, struct identity *out)
{
    struct eider_plan plan;
    int64_t shape[] = {64, 64};
    eider_program *program;
    eider_tensor args[3];
    for (int k = 0; k < 3; k++) args[k] = tensor_of(memory, EIDER_F32, 2, shape);
    must(eider_program_parse(ctx, text, &program));
    eider_request request = {
        .program = program, .args = args, .n_args = 3, .config = config, .target = "sm_90"};
    int takes = eider_prepare_plan(ctx, NULL, &request, &plan) == EIDER_OK;
    if (takes) *out = identify_for(NULL, &request);
    eider_program_release(program);
    return takes;
}

/* What a template does not use is not in its configs. */
static int has_parameter(const struct identity *id, const char *name)
{
    char text[40];
    const char *config = strstr(id->manifest, "\nconfig: ");
    snprintf(text, sizeof text, "%s=", name);
    const char *found = strstr(config, text);
    return found && found < config + 1 + strcspn(config + 1, "\n");
}

/* Every value of every parameter that the program's template uses and takes for this layout,
 * beside `others`; there are at least `least`. */
static void change_every_parameter(const char *program, const char *others, int least)
{
    static struct identity ids[256];
    static char configs[256][96];
    const char *name, *values, *doc;
    int n = 0;
    for (size_t i = 0; eider_config_row(i, &name, &values, &doc); i++) {
        for (const char *at = values; *at;) {
            size_t length = strcspn(at, "|");
            snprintf(configs[n], sizeof configs[n], "%s,%s=%.*s", others, name, (int)length, at);
            at += length + (at[length] == '|');
            int takes = try_config(program, configs[n], &ids[n]);
            if (takes && has_parameter(&ids[n], name)) n++;
            assert_true(n < 256);
        }
    }
    int n_same = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            /* Two spellings of one config, such as the defaults named. */
            const char *a = strstr(ids[i].manifest, "\nconfig: ");
            const char *b = strstr(ids[j].manifest, "\nconfig: ");
            int is_one = strncmp(a, b, strcspn(a + 1, "\n") + 2) == 0;
            check_same(&ids[i], &ids[j], configs[i], is_one);
            n_same += is_one;
        }
    }
    if (n < least) fail_msg("%s: %d configs", program, n);
    assert_true(n_same < n * 4);
}

static void every_parameter_changes_the_key(void **state)
{
    (void)state;
    change_every_parameter(PROGRAM, "vec=2,unroll=1,block=64", 26);
    change_every_parameter(ROWS, "vec=2,unroll=1,block=64", 70);
}

static void what_does_not_matter_does_not_change_the_key(void **state)
{
    (void)state;
    static const struct wish wishes[] = {
        {.what = "spaces", .program = "out =   silu( gate )*up"},
        {.what = "the default math, named", .numerics = {.math = EIDER_MATH_FAST}},
        {.what = "ftz off, named", .numerics = {.ftz = EIDER_OFF}},
        {.what = "contract on, named", .numerics = {.contract = EIDER_ON}},
        {.what = "assembler auto, named", .assembler = "auto"},
        {.what = "strides, named", .strides = {64, 1}},
        {.what = "another address", .offset = 32},
        {.what = "rank of what collapses", .rank = 1, .shape = {4096}},
    };
    struct identity base = identify(&(struct wish){0});
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        struct identity other = identify(&wishes[i]);
        check_same(&base, &other, wishes[i].what, 1);
    }
    struct identity a = identify(&(struct wish){.config = "vec=2,block=256"});
    struct identity b = identify(&(struct wish){.config = "block=256,vec=2"});
    check_same(&a, &b, "the order of parameters", 1);
    a = identify(&(struct wish){.program = ROWS, .shape = {64, 96}});
    b = identify(&(struct wish){.program = ROWS, .shape = {7, 96}});
    check_same(&a, &b, "the number of rows", 1);
    a = identify(&(struct wish){.program = ROWS});
    b = identify(&(struct wish){.program = ROWS, .strides = {68, 1}});
    check_same(&a, &b, "rows further apart", 1);
}

static void assemblers_and_their_versions_are_ingredients(void **state)
{
    (void)state;
    static const char *const names[] = {"nvptxcompiler", "ptxas", "nvjitlink"};
    struct eider_assembler_info info;
    struct identity ids[3];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        char line[128];
        if (eider_assembler_find(names[i], &info) != EIDER_OK) continue;
        ids[n] = identify(&(struct wish){.assembler = names[i]});
        snprintf(line, sizeof line, "\nassembler: %s %s\n", info.name, info.version);
        assert_non_null(strstr(ids[n].manifest, line));
        assert_true(strpbrk(info.version, "0123456789") != NULL);
        n++;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) check_same(&ids[i], &ids[j], "assembler", 0);
    if (n < 2) {
        fprintf(stderr, "SKIPPED (fewer than two assemblers): comparing them\n");
        skip();
    }
}

/* ---- The driver, by the fake one ------------------------------------------------------ */

static void the_driver_is_an_ingredient_when_it_assembles(void **state)
{
    (void)state;
    static const struct {
        int driver, capability;
    } rows[] = {{13000, 90}, {12020, 90}, {13000, 120}, {13000, 121}};
    enum { N = sizeof rows / sizeof rows[0] };
    struct identity by_driver[N];
    const char *folder = getenv("EIDER_TEST_LIB");
    char path[4096];
    snprintf(path, sizeof path, "%s/fake/libcuda.so.1", folder ? folder : EIDER_TEST_LIB);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    const struct fake_cuda *fake = dlsym(library, "fake_cuda");
    eider_context *kept = ctx;
    for (int i = 0; i < N; i++) {
        int64_t n = 64;
        eider_device *device;
        eider_program *program;
        eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n),
                               tensor_of(NULL, EIDER_F32, 1, &n)};
        eider_context_options options = {.cuda_library = path, .cache_dir = ""};
        fake->reset();
        fake->set_driver(rows[i].driver, rows[i].capability);
        must(eider_context_create(&options, &ctx));
        must(eider_device_open(ctx, "cuda:0", &device));
        must(eider_program_parse(ctx, "out = x + 1", &program));
        eider_request request = {
            .program = program, .args = args, .n_args = 2, .assembler = "driver"};
        by_driver[i] = identify_for(device, &request);
        eider_program_release(program);
        eider_device_release(device);
        eider_context_destroy(ctx);
    }
    ctx = kept;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(by_driver[i].key, by_driver[j].key) == 0)
                fail_msg("%s%s", by_driver[i].manifest, by_driver[j].manifest);
    assert_non_null(strstr(by_driver[1].manifest, "\nassembler: driver 12.2\n"));
    assert_non_null(strstr(by_driver[3].manifest, "\ntarget: sm_121\n"));
}

/* Which of equal devices, whose memory, how many threads, which places. */
static void the_device_and_the_contexts_options_do_not_change_the_key(void **state)
{
    (void)state;
    const char *folder = getenv("EIDER_TEST_LIB");
    char path[4096];
    snprintf(path, sizeof path, "%s/fake/libcuda.so.1", folder ? folder : EIDER_TEST_LIB);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    const struct fake_cuda *fake = dlsym(library, "fake_cuda");
    const eider_context_options options[] = {
        {.cuda_library = path, .cache_dir = ""},
        {.cuda_library = path, .cache_dir = "/nowhere", .cache_path = "/nowhere/either"},
        {.cuda_library = path, .cpu_threads = 7, .worker_deadline_ms = 5, .cache_max_files = 9},
    };
    enum { N = sizeof options / sizeof options[0] };
    struct identity gpu[N], cpu[N];
    eider_context *kept = ctx;
    fake->reset();
    for (int i = 0; i < N; i++) {
        int64_t n = 64;
        eider_device *device, *host;
        eider_program *program;
        eider_tensor args[] = {tensor_of(NULL, EIDER_F32, 1, &n),
                               tensor_of(NULL, EIDER_F32, 1, &n)};
        must(eider_context_create(&options[i], &ctx));
        must(eider_device_open(ctx, i ? "cuda:1" : "cuda:0", &device));
        must(eider_device_open(ctx, "cpu", &host));
        must(eider_program_parse(ctx, "out = x + 1", &program));
        eider_request request = {
            .program = program, .args = args, .n_args = 2, .assembler = "driver"};
        gpu[i] = identify_for(device, &request);
        request.assembler = NULL;
        cpu[i] = identify_for(host, &request);
        eider_program_release(program);
        eider_device_release(host);
        eider_device_release(device);
        eider_context_destroy(ctx);
    }
    ctx = kept;
    for (int i = 1; i < N; i++) {
        check_same(&gpu[0], &gpu[i], "options and device", 1);
        check_same(&cpu[0], &cpu[i], "options and host", 1);
    }
}

/* ---- Sources ---------------------------------------------------------------------------- */

static struct identity identify_source(eider_source source, const char *config)
{
    eider_request request = {.source = &source, .config = config, .target = "sm_90"};
    return identify_for(NULL, &request);
}

static void *build_nothing(void *user, void *context, const char *triple, const char *config,
                           char *reason, size_t reason_size)
{
    (void)user, (void)context, (void)triple, (void)config, (void)reason, (void)reason_size;
    return NULL;
}

static void every_ingredient_of_a_source_changes_the_key(void **state)
{
    (void)state;
    static const eider_operand one[] = {{"x", EIDER_INPUT, EIDER_F32}};
    static const eider_operand output[] = {{"x", EIDER_OUTPUT, EIDER_F32}};
    static const eider_operand typed[] = {{"x", EIDER_INPUT, EIDER_BF16}};
    static const eider_operand renamed[] = {{"y", EIDER_INPUT, EIDER_F32}};
    const eider_source base = {
        .data = "text", .entry = "k", .block = {64}, .n_operands = 1, .operands = one};
    eider_source sources[10];
    for (int i = 0; i < 10; i++) sources[i] = base;
    sources[1].data = "texts";
    sources[2].kind = EIDER_SOURCE_PTX;
    sources[3].entry = "l";
    sources[4].block[0] = 128;
    sources[5].shared_bytes = 16;
    sources[6].operands = output;
    sources[7].operands = typed;
    sources[8].n_operands = 0;
    sources[9].block[1] = 2;
    struct identity ids[13];
    for (int i = 0; i < 10; i++) ids[i] = identify_source(sources[i], NULL);
    ids[10] = identify_source(base, "a=1");
    eider_source callback = base;
    callback.kind = EIDER_SOURCE_CALLBACK;
    callback.data = NULL;
    callback.build = build_nothing;
    callback.identity = "mine-v1";
    ids[11] = identify_source(callback, NULL);
    callback.identity = "mine-v2";
    ids[12] = identify_source(callback, NULL);
    for (int i = 0; i < 13; i++)
        for (int j = 0; j < i; j++) check_same(&ids[i], &ids[j], "sources", 0);

    char copy[] = "text";
    eider_source same = base;
    same.data = copy;
    same.size = 4;
    same.block[1] = 1;
    same.operands = renamed;
    struct identity other = identify_source(same, "");
    check_same(&ids[0], &other, "another address, a size, a 1, a name", 1);
    callback.build_user = copy;
    other = identify_source(callback, NULL);
    check_same(&ids[12], &other, "a callback's user pointer", 1);
}

/* ---- The process ------------------------------------------------------------------------- */

static void every_line_of_the_manifest_is_in_the_key(void **state)
{
    (void)state;
    static const char *const lines[] = {"eider", "program",   "template", "config", "layout",
                                        "host",  "numerics",  "target",   "llvm",   "pipeline",
                                        "ptx",   "line_info", "assembler"};
    struct identity base = identify(&(struct wish){0});
    char name[EIDER_DISK_NAME_BYTES], other[EIDER_DISK_NAME_BYTES], text[4096];
    eider_disk_entry_name(base.manifest, name);
    assert_string_equal(name + EIDER_DISK_PREFIX, base.key);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char start[32];
        snprintf(start, sizeof start, "%s: ", lines[i]);
        snprintf(text, sizeof text, "%s", base.manifest);
        char *at = strstr(text, start);
        if (!at) fail_msg("no line %s in\n%s", lines[i], base.manifest);
        at += strlen(start);
        memmove(at + 1, at, strlen(at) + 1);
        *at = '~';
        eider_disk_entry_name(text, other);
        assert_string_not_equal(name + EIDER_DISK_PREFIX, other + EIDER_DISK_PREFIX);
        /* The assembler alone does not change the first part. */
        int same = memcmp(name, other, EIDER_DISK_PREFIX) == 0;
        assert_int_equal(same, strcmp(lines[i], "assembler") == 0);
    }
    struct identity cpu = identify(&(struct wish){.target = "cpu"});
    assert_non_null(strstr(cpu.manifest, eider_codegen_host()));
    assert_non_null(strstr(base.manifest, eider_codegen_llvm_build()));
    assert_non_null(strstr(base.manifest, eider_code_digest));
    assert_int_equal(strlen(eider_code_digest), 16);
}

static int print_key(const char *path)
{
    if (eider_context_create(NULL, &ctx) != EIDER_OK) return 1;
    struct identity gpu = identify(&(struct wish){0});
    struct identity cpu = identify(&(struct wish){.target = "cpu"});
    eider_context_destroy(ctx);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int ok = write(fd, gpu.key, 32) == 32 && write(fd, cpu.key, 32) == 32;
    close(fd);
    return !ok;
}

static void folder_home_time_process_and_addresses_do_not_change_the_key(void **state)
{
    (void)state;
    char directory[CACHE_PATH_BYTES], task[CACHE_PATH_BYTES + 16];
    struct identity gpu = identify(&(struct wish){0});
    struct identity cpu = identify(&(struct wish){.target = "cpu"});
    cache_directory(directory);
    snprintf(task, sizeof task, "key %s/key", directory);
    const char *home = getenv("HOME");
    char *kept = home ? strdup(home) : NULL, *folder = getcwd(NULL, 0);
    setenv("HOME", directory, 1);
    setenv("TZ", "Pacific/Auckland", 1);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    assert_int_equal(chdir(directory), 0);
    int status, child = cache_spawn(task);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(status, 0);
    if (kept) setenv("HOME", kept, 1);
    size_t size;
    char *keys = cache_read(task + 4, &size);
    assert_int_equal(size, 64);
    assert_memory_equal(keys, gpu.key, 32);
    assert_memory_equal(keys + 32, cpu.key, 32);
    free(keys);
    free(kept);
    free(folder);
    cache_remove(directory);
}

static int set_up(void **state)
{
    (void)state;
    must(eider_context_create(NULL, &ctx));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eider_context_destroy(ctx);
    return 0;
}

int main(void)
{
    const char *task = cache_task();
    if (task) return print_key(task + 4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ingredient_changes_the_key),
        cmocka_unit_test(every_parameter_changes_the_key),
        cmocka_unit_test(what_does_not_matter_does_not_change_the_key),
        cmocka_unit_test(assemblers_and_their_versions_are_ingredients),
        cmocka_unit_test(the_driver_is_an_ingredient_when_it_assembles),
        cmocka_unit_test(the_device_and_the_contexts_options_do_not_change_the_key),
        cmocka_unit_test(every_ingredient_of_a_source_changes_the_key),
        cmocka_unit_test(every_line_of_the_manifest_is_in_the_key),
        cmocka_unit_test(folder_home_time_process_and_addresses_do_not_change_the_key),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
