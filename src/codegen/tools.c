/* tools.c -- see tools.h.
 *
 * Where a tool may lie is a list of patterns, tried in order:
 *     $NAME/rest    the value of an environment variable, then rest
 *     @/rest        the folder of this library, and that of the program
 *     ~/name        each folder of PATH
 *     anything else a path, which may have glob characters; a bare name of a library is
 *                   looked up by the dynamic linker
 */
#include "tools.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <llvm-c/Core.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "nvptxcompiler_plugin.h"
#include "tool_memo.h"

#define VERSION_DEADLINE_MS 10000
#define PLACES_MAX 16

struct search;
typedef int (*check_fn)(struct search *search, const char *path);

static int check_llvm(struct search *search, const char *path);
static int check_plugin(struct search *search, const char *path);
static int check_program(struct search *search, const char *path);
static int check_jitlink(struct search *search, const char *path);

#define PLUGIN "eider_nvptxcompiler.so"
#define WHEELS "lib/python3*/site-packages/nvidia/*/"
#define PROGRAM_PLACES(name)                                                         \
    "$EIDER_CUDA_HOME/bin/" name, "$CUDA_HOME/bin/" name, "$CUDA_PATH/bin/" name,    \
        "/usr/local/cuda/bin/" name, "~/" name, "@/../../.venv/" WHEELS "bin/" name, \
        "@/../../nvidia/*/bin/" name

#ifdef EIDER_TOOLS_DIR
#define TOOLS_PLACE(name) EIDER_TOOLS_DIR "/" name
#else
#define TOOLS_PLACE(name) NULL
#endif
#ifdef EIDER_BUILD_DIR
#define BUILD_PLACE EIDER_BUILD_DIR "/" PLUGIN
#else
#define BUILD_PLACE NULL
#endif

static const struct tool_row {
    const char *name;
    const char *variable;
    check_fn check;
    const char *places[PLACES_MAX];
} tool_table[EIDER_TOOL_COUNT] = {
    [EIDER_TOOL_LLVM] = {"llvm", NULL, check_llvm, {"linked"}},
    [EIDER_TOOL_NVPTXCOMPILER] = {"nvptxcompiler",
                                  "EIDER_NVPTXCOMPILER",
                                  check_plugin,
                                  {"@/eider/" PLUGIN, "@/" PLUGIN, "@/../lib/eider/" PLUGIN,
                                   "@/../" PLUGIN, BUILD_PLACE}},
    [EIDER_TOOL_PTXAS] = {"ptxas",
                          "EIDER_PTXAS",
                          check_program,
                          {PROGRAM_PLACES("ptxas"), TOOLS_PLACE("ptxas")}},
    [EIDER_TOOL_NVJITLINK] = {"nvjitlink",
                              "EIDER_NVJITLINK",
                              check_jitlink,
                              {"$EIDER_CUDA_HOME/lib64/libnvJitLink.so.1[0-9]",
                               "$CUDA_HOME/lib64/libnvJitLink.so.1[0-9]",
                               "$CUDA_PATH/lib64/libnvJitLink.so.1[0-9]",
                               "/usr/local/cuda/lib64/libnvJitLink.so.1[0-9]", "libnvJitLink.so.13",
                               "libnvJitLink.so.12",
                               "@/../../.venv/" WHEELS "lib/libnvJitLink.so.1[0-9]",
                               "@/../../nvidia/*/lib/libnvJitLink.so.1[0-9]"}},
    [EIDER_TOOL_NVDISASM] = {"nvdisasm",
                             "EIDER_NVDISASM",
                             check_program,
                             {PROGRAM_PLACES("nvdisasm"), TOOLS_PLACE("nvdisasm")}},
};

struct search {
    const struct tool_row *row;
    eider_tool *tool;
    void *library;
    int may_recall; /* a version told to an earlier process will do */
};

const char *eider_tools_name(enum eider_tool_id id)
{
    return tool_table[id].name;
}

/* ---- Checks: 1 when the tool is at `path`, else the reason is noted -------- */

/* Whether `line` is one of the lines of `text`. */
static int has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at += n)
        if ((at == text || at[-1] == '\n') && (!at[n] || at[n] == '\n')) return 1;
    return 0;
}

static void note(struct search *search, const char *place, const char *reason)
{
    eider_tool *tool = search->tool;
    size_t length = strlen(tool->tried);
    char line[512];
    snprintf(line, sizeof line, "%.300s: %.200s", place, reason);
    if (has_line(tool->tried, line)) return; /* two patterns may lead to one place */
    int n = snprintf(tool->tried + length, sizeof tool->tried - length, "%s%s", length ? "\n" : "",
                     line);
    if (n < 0 || (size_t)n >= sizeof tool->tried - length) tool->tried[length] = '\0';
}

static int accept(struct search *search, const char *path)
{
    search->tool->found = 1;
    snprintf(search->tool->path, sizeof search->tool->path, "%s", path);
    return 1;
}

/* Whether the file is there and told its version before. */
static int recall(const struct search *search, const char *path)
{
    return search->may_recall && strchr(path, '/') &&
           eider_tool_memo_find(search->row->name, path, search->tool->version);
}

static int check_llvm(struct search *search, const char *path)
{
    Dl_info info;
    void *symbol;
    void (*function)(unsigned *, unsigned *, unsigned *) = LLVMGetVersion;
    memcpy(&symbol, &function, sizeof symbol);
    if (dladdr(symbol, &info) && info.dli_fname) path = info.dli_fname;
    snprintf(search->tool->version, sizeof search->tool->version, "%s",
             eider_codegen_llvm_version());
    return accept(search, path);
}

/* Runs `path --version` and takes the number after ", V". */
static int check_program(struct search *search, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || (S_ISREG(st.st_mode) && access(path, X_OK) != 0)) {
        note(search, path, strerror(errno));
        return 0;
    }
    if (!S_ISREG(st.st_mode)) {
        note(search, path, "not a file");
        return 0;
    }
    if (recall(search, path)) return accept(search, path);
    eider_allocator a = eider_memory_default((eider_allocator){0});
    const char *const argv[] = {path, "--version", NULL};
    struct eider_text output;
    int code = 0;
    if (eider_spawn(&a, argv, NULL, VERSION_DEADLINE_MS, &output, &code) != EIDER_OK) {
        note(search, path, eider_error());
        return 0;
    }
    const char *version = output.data ? strstr(output.data, ", V") : NULL;
    if (version)
        snprintf(search->tool->version, sizeof search->tool->version, "%.*s",
                 (int)strspn(version + 3, "0123456789."), version + 3);
    else
        note(search, path, "--version does not tell a version");
    eider_text_release(&output);
    return version ? accept(search, path) : 0;
}

static void *open_library(struct search *search, const char *path, const char *symbol_name,
                          void **symbol)
{
    if (strchr(path, '/') && access(path, R_OK) != 0) {
        note(search, path, strerror(errno));
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        note(search, path, reason ? reason : "cannot be opened");
        return NULL;
    }
    *symbol = dlsym(library, symbol_name);
    if (*symbol) return library;
    dlclose(library);
    note(search, path, "it is another library");
    return NULL;
}

static int check_plugin(struct search *search, const char *path)
{
    void *symbol;
    if (recall(search, path)) return accept(search, path);
    void *library = open_library(search, path, "eider_ptxc_api", &symbol);
    if (!library) return 0;
    eider_ptxc_api_fn get;
    memcpy(&get, &symbol, sizeof get);
    const struct eider_ptxc_api *api = get();
    if (api->abi != EIDER_PTXC_ABI) {
        dlclose(library);
        note(search, path, "it belongs to another version of eider");
        return 0;
    }
    snprintf(search->tool->version, sizeof search->tool->version, "%u.%u", api->major, api->minor);
    search->library = library;
    return accept(search, path);
}

static int check_jitlink(struct search *search, const char *path)
{
    void *symbol;
    if (recall(search, path)) return accept(search, path);
    void *library = open_library(search, path, "nvJitLinkVersion", &symbol);
    if (!library) return 0;
    int (*get)(unsigned *, unsigned *);
    memcpy(&get, &symbol, sizeof get);
    unsigned major = 0, minor = 0;
    get(&major, &minor);
    snprintf(search->tool->version, sizeof search->tool->version, "%u.%u", major, minor);
    search->library = library;
    return accept(search, path);
}

/* ---- Places ---------------------------------------------------------------- */

static int try_glob(struct search *search, const char *path)
{
    if (!strpbrk(path, "*[")) return search->row->check(search, path);
    glob_t found;
    int hit = 0;
    if (glob(path, 0, NULL, &found) != 0) {
        note(search, path, "no such file");
        return 0;
    }
    for (size_t i = found.gl_pathc; i > 0 && !hit; i--) /* the newest version sorts last */
        hit = search->row->check(search, found.gl_pathv[i - 1]);
    globfree(&found);
    return hit;
}

/* The folder of this library (which = 0) or of the program; 0 when it is unknown or the
 * same again. */
static int own_folder(int which, char *out)
{
    static const char here;
    char program[PATH_MAX] = "";
    Dl_info info;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n > 0) program[n] = '\0';
    const char *library = dladdr(&here, &info) && info.dli_fname ? info.dli_fname : "";
    if (!strchr(library, '/')) library = program;
    char full[PATH_MAX];
    if (!realpath(library, full)) full[0] = '\0';
    if (which == 1 && strcmp(full, program) == 0) return 0;
    snprintf(out, PATH_MAX, "%s", which ? program : full);
    char *slash = strrchr(out, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

static int try_own(struct search *search, const char *rest)
{
    char folder[PATH_MAX], path[PATH_MAX + 128];
    for (int which = 0; which < 2; which++) {
        if (!own_folder(which, folder)) continue;
        snprintf(path, sizeof path, "%s%s", folder, rest);
        if (try_glob(search, path)) return 1;
    }
    return 0;
}

static int try_search_path(struct search *search, const char *name)
{
    char path[PATH_MAX];
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t n = strcspn(at, ":");
        int length = snprintf(path, sizeof path, "%.*s%s", (int)n, at, name);
        int is_there = n > 0 && length < (int)sizeof path && access(path, F_OK) == 0;
        if (is_there && search->row->check(search, path)) return 1;
        at += n + (at[n] == ':');
    }
    note(search, "PATH", "has no such program");
    return 0;
}

static int try_variable(struct search *search, const char *place)
{
    char name[64], path[PATH_MAX];
    size_t n = strcspn(place, "/");
    snprintf(name, sizeof name, "%.*s", (int)n - 1, place + 1);
    const char *value = getenv(name);
    if (!value || !*value) {
        note(search, name, "not set");
        return 0;
    }
    if (snprintf(path, sizeof path, "%s%s", value, place + n) >= (int)sizeof path) return 0;
    return try_glob(search, path);
}

static int try_place(struct search *search, const char *place)
{
    switch (place[0]) {
    case '$':
        return try_variable(search, place);
    case '@':
        return try_own(search, place + 1);
    case '~':
        return try_search_path(search, place + 1);
    default:
        return try_glob(search, place);
    }
}

static void look_for(enum eider_tool_id id, struct search *search)
{
    const struct tool_row *row = &tool_table[id];
    search->row = row;
    *search->tool = (eider_tool){.name = row->name};
    const char *named = row->variable ? getenv(row->variable) : NULL;
    if (named) {
        char variable[80];
        snprintf(variable, sizeof variable, "%s=%.40s", row->variable, named);
        note(search, variable, "decides alone");
        row->check(search, named);
        return;
    }
    for (size_t i = 0; i < PLACES_MAX; i++)
        if (row->places[i] && try_place(search, row->places[i])) return;
}

int eider_codegen_tool(size_t i, eider_tool *out)
{
    if (i >= EIDER_TOOL_COUNT) return 0;
    struct search search = {.tool = out};
    look_for((enum eider_tool_id)i, &search);
    return 1; /* a library stays open: NVIDIA's leak, when closed, what they began with */
}

/* ---- What was found once ---------------------------------------------------- */

/* A tool as it was found, and under which variables. */
struct finding {
    int is_known, is_found;
    uint64_t variables;
    struct eider_tool_found found;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct finding opened[EIDER_TOOL_COUNT], identified[EIDER_TOOL_COUNT]; /* lock */

/* Of the variables that say where to look. */
static uint64_t hash_variables(const struct tool_row *row)
{
    const char *const names[] = {row->variable ? row->variable : "", "EIDER_CUDA_HOME", "CUDA_HOME",
                                 "CUDA_PATH", "PATH"};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        hash = value ? XXH3_64bits_withSeed(value, strlen(value), hash + 1) : hash + 1;
    }
    return hash;
}

static int get(enum eider_tool_id id, struct finding *table, int may_recall,
               struct eider_tool_found *out)
{
    struct finding *finding = &table[id];
    uint64_t variables = hash_variables(&tool_table[id]);
    eider_tool tool;
    struct search search = {.tool = &tool, .may_recall = may_recall};
    pthread_mutex_lock(&lock);
    if (!finding->is_known || finding->variables != variables) {
        look_for(id, &search);
        struct eider_assembler_info *info = &finding->found.info;
        finding->is_known = 1;
        finding->variables = variables;
        finding->is_found = tool.found;
        finding->found.library = search.library;
        snprintf(info->name, sizeof info->name, "%s", tool.name);
        memcpy(info->version, tool.version, sizeof info->version);
        memcpy(info->path, tool.path, sizeof info->path);
        if (tool.found && !may_recall && strchr(tool.path, '/'))
            eider_tool_memo_keep(tool.name, tool.path, tool.version);
    }
    int is_found = finding->is_found;
    if (is_found) *out = finding->found;
    pthread_mutex_unlock(&lock);
    return is_found;
}

int eider_tools_get(enum eider_tool_id id, struct eider_tool_found *out)
{
    return get(id, opened, 0, out);
}

int eider_tools_identify(enum eider_tool_id id, struct eider_assembler_info *out)
{
    struct eider_tool_found found;
    if (!get(id, identified, 1, &found)) return 0;
    *out = found.info;
    return 1;
}
