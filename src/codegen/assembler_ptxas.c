/* assembler_ptxas.c -- whole-program assembly by a ptxas process.
 *
 * PTX goes in through stdin; the cubin comes out through a file in a folder that only
 * this user can look into and that is gone on return.
 */
#include "assembler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512
#define SIGNAL_MAX 31 /* ptxas itself exits with 255 */

static eider_status make_folder(char *folder)
{
    const char *root = getenv("TMPDIR");
    if (!root || !*root || strlen(root) > PATH_BYTES - 64) root = "/tmp";
    snprintf(folder, PATH_BYTES, "%s/eider-XXXXXX", root);
    if (mkdtemp(folder)) return EIDER_OK; /* with mode 0700 */
    return eider_fail(EIDER_IO, "no folder could be made in %s: %s", root, strerror(errno));
}

static eider_status read_file(const eider_allocator *a, const char *path, struct eider_blob *out,
                              struct eider_text *log)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size <= 0) {
        if (fd >= 0) close(fd);
        eider_text_add(log, "no cubin was written\n");
        return EIDER_ASSEMBLER;
    }
    size_t size = (size_t)st.st_size, done = 0;
    char *data = eider_mem_alloc(a, size);
    while (data && done < size) {
        ssize_t n = read(fd, data + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    close(fd);
    if (!data) return EIDER_OOM;
    if (done < size) {
        eider_mem_free(a, data);
        return eider_fail(EIDER_IO, "ptxas's cubin could not be read: %s", strerror(errno));
    }
    *out = (struct eider_blob){data, size};
    return EIDER_OK;
}

eider_status eider_assembler_ptxas(const eider_allocator *a, const struct eider_tool_found *tool,
                                   const struct eider_blob *ptx,
                                   const struct eider_assembler_options *options,
                                   struct eider_blob *cubin, struct eider_text *log)
{
    char folder[PATH_BYTES], file[PATH_BYTES + 16], arch[32];
    EIDER_TRY(make_folder(folder));
    snprintf(file, sizeof file, "%s/k.cubin", folder);
    snprintf(arch, sizeof arch, "-arch=%s", options->arch);
    const char *argv[10] = {tool->info.path, "-v", arch, "-o", file};
    size_t n = 5;
    if (!options->contract) argv[n++] = "-fmad=false";
    if (options->line_info) argv[n++] = "-lineinfo";
    argv[n++] = "/dev/stdin";

    struct eider_text output;
    int code = 0;
    eider_status status = eider_spawn(a, argv, ptx, options->deadline_ms, &output, &code);
    if (status == EIDER_OK) {
        if (output.data) eider_text_add(log, "%s", output.data);
        if (code > 128 && code <= 128 + SIGNAL_MAX)
            eider_text_add(log, "ptxas died of signal %d", code - 128);
        /* -1: another part of this process reaped ptxas; its output tells. */
        status = code == 0 || code == -1 ? read_file(a, file, cubin, log) : EIDER_ASSEMBLER;
        eider_text_release(&output);
    }
    unlink(file);
    rmdir(folder);
    return status;
}
