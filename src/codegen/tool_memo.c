/* tool_memo.c -- see tool_memo.h. */
#include "tool_memo.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "disk.h"
#include "home.h"

#define FILE_BYTES_MAX 65536 /* then it is begun anew */
#define LINE_BYTES 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* "<file> <name> ", the beginning of a line, where <file> is this very file. */
static int identify(const char *name, const char *path, char out[LINE_BYTES])
{
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    snprintf(out, LINE_BYTES, "%llx.%llx.%llx.%llx.%lx.%llx.%lx %.32s ",
             (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
             (unsigned long long)st.st_size, (unsigned long long)st.st_mtim.tv_sec,
             (unsigned long)st.st_mtim.tv_nsec, (unsigned long long)st.st_ctim.tv_sec,
             (unsigned long)st.st_ctim.tv_nsec, name);
    return 1;
}

/* The memo's text and place; 0 when there is none.  Caller owns out->data. */
static int read_memo(const eider_allocator *a, char place[EIDER_HOME_BYTES], struct eider_blob *out)
{
    struct eider_disk_error error;
    char home[EIDER_HOME_BYTES];
    if (eider_home_find(NULL, "", home) != EIDER_HOME_FOUND ||
        eider_home_find(NULL, "tools", place) != EIDER_HOME_FOUND ||
        eider_disk_look(home, &error) != EIDER_DISK_FOLDER)
        return 0;
    return eider_disk_read(a, place, FILE_BYTES_MAX, out, &error) == EIDER_OK;
}

int eider_tool_memo_find(const char *name, const char *path, char version[EIDER_TOOL_VERSION_BYTES])
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    char place[EIDER_HOME_BYTES], start[LINE_BYTES];
    struct eider_blob memo = {0};
    int found = 0;
    if (!identify(name, path, start) || !read_memo(&a, place, &memo)) return 0;
    size_t n = strlen(start);
    for (const char *at = memo.data; !found && (at = strstr(at, start)); at += n) {
        size_t length = strcspn(at + n, "\n");
        int is_line = (at == memo.data || at[-1] == '\n') && at[n + length] == '\n';
        if (!is_line || length == 0 || length >= EIDER_TOOL_VERSION_BYTES) continue;
        snprintf(version, EIDER_TOOL_VERSION_BYTES, "%.*s", (int)length, at + n);
        found = 1;
    }
    eider_blob_release(&a, &memo);
    return found;
}

void eider_tool_memo_keep(const char *name, const char *path, const char *version)
{
    eider_allocator a = eider_memory_default((eider_allocator){0});
    struct eider_disk_error error;
    struct eider_blob memo = {0};
    char home[EIDER_HOME_BYTES], place[EIDER_HOME_BYTES], start[LINE_BYTES];
    if (!identify(name, path, start) || eider_home_find(NULL, "", home) != EIDER_HOME_FOUND ||
        !eider_disk_make(home, &error) || eider_disk_look(home, &error) != EIDER_DISK_FOLDER)
        return;
    pthread_mutex_lock(&lock);
    int has_old = read_memo(&a, place, &memo), is_there = has_old && strstr(memo.data, start);
    struct eider_text text;
    eider_text_init(&text, &a);
    if (has_old && memo.size + 2 * LINE_BYTES < FILE_BYTES_MAX)
        eider_text_bytes(&text, memo.data, memo.size);
    eider_text_add(&text, "%s%s\n", start, version);
    /* Of two processes the later wins, and the other asks again next time. */
    if (!is_there && text.status == EIDER_OK &&
        eider_home_find(NULL, "tools", place) == EIDER_HOME_FOUND)
        (void)!eider_disk_publish(home, place, text.data, text.size, &error);
    eider_text_release(&text);
    eider_blob_release(&a, &memo);
    pthread_mutex_unlock(&lock);
}
