/* sass_cubin.c -- reading a cubin: an ELF file of NVIDIA's.
 *
 * What is read: the code of one kernel (".text.NAME"), its symbol, registers, stack, shared
 * memory and largest block (".nv.info", ".nv.info.NAME", ".nv.shared.NAME"), and embedded PTX.
 * Invariant: every offset of the file is checked against its size before it is followed.
 */
#include <elf.h>
#include <string.h>

#include "sass.h"

#define MACHINE_CUDA 190
#define ABI_NEW 8 /* from CUDA 13 on: another place for the target */

/* Attributes of .nv.info, as cuobjdump names them (EIATTR_). */
#define ATTRIBUTE_MAX_THREADS 0x05
#define ATTRIBUTE_REQNTID 0x10
#define ATTRIBUTE_FRAME_SIZE 0x11
#define ATTRIBUTE_REGCOUNT 0x2f
#define ATTRIBUTE_NUM_BARRIERS 0x4c /* older cubins say it in the flags of the code's section */
#define FORMAT_SIZED 4 /* 16 bits of size, then so many bytes; in others 16 bits are all */

static eider_status fail(const char *what)
{
    return eider_fail(EIDER_BAD_ARG, "this is no cubin: %s", what);
}

/* `n` items of `bytes` at `offset`, or NULL where the file ends before. */
static const void *part(const struct eider_cubin *c, uint64_t offset, uint64_t n, uint64_t bytes)
{
    if (offset > c->size || (n && bytes > (c->size - offset) / n)) return NULL;
    return c->bytes + offset;
}

static int header_of(const struct eider_cubin *c, Elf64_Ehdr *out)
{
    const void *at = part(c, 0, 1, sizeof *out);
    if (at) memcpy(out, at, sizeof *out);
    return at != NULL;
}

static int section_at(const struct eider_cubin *c, uint32_t i, Elf64_Shdr *out)
{
    Elf64_Ehdr header;
    if (!header_of(c, &header) || i >= header.e_shnum || header.e_shentsize != sizeof *out)
        return 0;
    const unsigned char *at = part(c, header.e_shoff, header.e_shnum, sizeof *out);
    if (at) memcpy(out, at + i * sizeof *out, sizeof *out);
    return at != NULL;
}

/* A text that ends inside the file. */
static const char *text_at(const struct eider_cubin *c, const Elf64_Shdr *strings, uint64_t offset)
{
    if (offset >= strings->sh_size) return "";
    const char *at = part(c, strings->sh_offset, 1, strings->sh_size);
    if (!at || !memchr(at + offset, 0, strings->sh_size - offset)) return "";
    return at + offset;
}

static const char *section_name(const struct eider_cubin *c, const Elf64_Shdr *section)
{
    Elf64_Ehdr header;
    Elf64_Shdr names;
    if (!header_of(c, &header) || !section_at(c, header.e_shstrndx, &names)) return "";
    return text_at(c, &names, section->sh_name);
}

static int find_section(const struct eider_cubin *c, const char *prefix, const char *name,
                        uint32_t *index, Elf64_Shdr *out)
{
    size_t n = strlen(prefix);
    for (uint32_t i = 1; section_at(c, i, out); i++) {
        const char *have = section_name(c, out);
        if (strncmp(have, prefix, n) != 0 || strcmp(have + n, name) != 0) continue;
        *index = i;
        return 1;
    }
    return 0;
}

int eider_sass_cubin_section(const struct eider_cubin *c, const char *name, uint32_t *index,
                             const unsigned char **data, size_t *size)
{
    Elf64_Shdr section;
    if (!find_section(c, name, "", index, &section) || section.sh_type == SHT_NOBITS) return 0;
    *data = part(c, section.sh_offset, 1, section.sh_size);
    *size = section.sh_size;
    return *data != NULL;
}

uint32_t eider_sass_cubin_symbol_at(const struct eider_cubin *c, uint32_t index, size_t at)
{
    Elf64_Shdr section;
    for (uint32_t i = 1; section_at(c, i, &section); i++) {
        size_t bytes = section.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
        if ((section.sh_type != SHT_RELA && section.sh_type != SHT_REL) || section.sh_info != index)
            continue;
        const unsigned char *rows = part(c, section.sh_offset, 1, section.sh_size);
        for (size_t k = 0; rows && k + bytes <= section.sh_size; k += bytes) {
            Elf64_Rel row; /* the beginning of an Elf64_Rela */
            memcpy(&row, rows + k, sizeof row);
            if (row.r_offset == at) return (uint32_t)ELF64_R_SYM(row.r_info);
        }
    }
    return 0;
}

/* ---- The kernel -------------------------------------------------------- */

static int symbol_at(const struct eider_cubin *c, uint32_t i, Elf64_Sym *out, const char **name)
{
    Elf64_Shdr symbols, strings;
    uint32_t at;
    if (!find_section(c, ".symtab", "", &at, &symbols)) return 0;
    const unsigned char *rows = part(c, symbols.sh_offset, 1, symbols.sh_size);
    if (!rows || i >= symbols.sh_size / sizeof *out || !section_at(c, symbols.sh_link, &strings))
        return 0;
    memcpy(out, rows + i * sizeof *out, sizeof *out);
    *name = text_at(c, &strings, out->st_name);
    return 1;
}

/* Kernels have a section of attributes of their own. */
static int is_kernel(const struct eider_cubin *c, const char *name)
{
    Elf64_Shdr section;
    uint32_t at;
    return find_section(c, ".nv.info.", name, &at, &section);
}

/* Names of all kernels, for a message. */
static void list_kernels(const struct eider_cubin *c, char *out, size_t size)
{
    Elf64_Shdr section;
    size_t length = 0;
    out[0] = '\0';
    for (uint32_t i = 1; section_at(c, i, &section); i++) {
        const char *name = section_name(c, &section);
        if (strncmp(name, ".text.", 6) != 0 || !is_kernel(c, name + 6)) continue;
        size_t n = strlen(name + 6);
        if (length + n + 3 > size) return;
        memcpy(out + length, ", ", 2);
        length += length ? 2 : 0;
        memcpy(out + length, name + 6, n + 1);
        length += n;
    }
}

static eider_status find_kernel(struct eider_cubin *c, const char *entry)
{
    Elf64_Shdr section;
    uint32_t n = 0;
    char names[1024];
    for (uint32_t i = 1; section_at(c, i, &section); i++) {
        const char *name = section_name(c, &section);
        if (strncmp(name, ".text.", 6) != 0 || !is_kernel(c, name + 6)) continue;
        if (entry && strcmp(entry, name + 6) != 0) continue;
        c->text_section = i;
        c->entry = name + 6;
        c->code = part(c, section.sh_offset, 1, section.sh_size);
        c->code_size = section.sh_size / EIDER_SASS_WORD * EIDER_SASS_WORD;
        c->registers = (int32_t)(section.sh_info >> 24); /* as older cubins say it */
        c->barriers = (int32_t)(section.sh_flags >> 20 & 0x7f);
        n++;
    }
    if (n == 1 && c->code) return EIDER_OK;
    list_kernels(c, names, sizeof names);
    if (n == 0 && entry)
        return eider_fail(EIDER_BAD_ARG, "no kernel '%.200s' in the cubin; its kernels: %s", entry,
                          names);
    if (n == 0) return eider_fail(EIDER_BAD_ARG, "the cubin has no kernel");
    return eider_fail(EIDER_BAD_ARG, "which kernel of the cubin? It has %s", names);
}

static void find_symbol(struct eider_cubin *c)
{
    Elf64_Sym symbol;
    const char *name;
    for (uint32_t i = 0; symbol_at(c, i, &symbol, &name); i++)
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx == c->text_section &&
            strcmp(name, c->entry) == 0)
            c->entry_symbol = i;
}

/* ---- Attributes -------------------------------------------------------- */

static uint32_t word(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void read_attribute(struct eider_cubin *c, int id, const unsigned char *at, size_t size)
{
    int is_ours = size >= 8 && word(at) == c->entry_symbol;
    if (id == ATTRIBUTE_REGCOUNT && is_ours) c->registers = (int32_t)word(at + 4);
    if (id == ATTRIBUTE_FRAME_SIZE && is_ours) c->frame_bytes = (int32_t)word(at + 4);
    if ((id == ATTRIBUTE_MAX_THREADS || id == ATTRIBUTE_REQNTID) && size >= 12)
        c->block_threads = (int32_t)(word(at) * word(at + 4) * word(at + 8));
}

static void read_attributes(struct eider_cubin *c, const char *prefix, const char *name)
{
    Elf64_Shdr section;
    uint32_t index;
    if (!find_section(c, prefix, name, &index, &section)) return;
    const unsigned char *at = part(c, section.sh_offset, 1, section.sh_size);
    for (size_t k = 0; at && k + 4 <= section.sh_size;) {
        int value = at[k + 2] | at[k + 3] << 8;
        size_t size = at[k] == FORMAT_SIZED ? (size_t)value : 0;
        if (size > section.sh_size - k - 4) return;
        if (!size && at[k + 1] == ATTRIBUTE_NUM_BARRIERS) c->barriers = value;
        if (size) read_attribute(c, at[k + 1], at + k + 4, size);
        k += 4 + size;
    }
}

static void read_target(struct eider_cubin *c, const Elf64_Ehdr *header)
{
    uint32_t flags = header->e_flags;
    int is_new = header->e_ident[EI_ABIVERSION] >= ABI_NEW;
    c->target.sm = (int32_t)(is_new ? flags >> 8 & 0xff : flags & 0xff);
}

eider_status eider_sass_cubin_read(const struct eider_blob *cubin, const char *entry,
                                   struct eider_cubin *out)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    uint32_t index;
    *out = (struct eider_cubin){.bytes = cubin->data, .size = cubin->size};
    if (!header_of(out, &header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return fail("it does not begin as an ELF file does");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != MACHINE_CUDA)
        return fail("the ELF file is not for NVIDIA's GPUs");
    if (!section_at(out, header.e_shstrndx, &section)) return fail("it is cut off");
    read_target(out, &header);
    EIDER_TRY(find_kernel(out, entry));
    find_symbol(out);
    read_attributes(out, ".nv.info", "");
    read_attributes(out, ".nv.info.", out->entry);
    if (find_section(out, ".nv.shared.", out->entry, &index, &section))
        out->shared_bytes = (int32_t)section.sh_size;
    const unsigned char *ptx;
    size_t size;
    if (eider_sass_cubin_section(out, ".nv_debug_ptx_txt", &index, &ptx, &size)) {
        out->ptx = (const char *)ptx;
        out->ptx_size = size;
    }
    return EIDER_OK;
}

int eider_sass_same_code(const struct eider_blob *a, const struct eider_blob *b, const char *entry)
{
    struct eider_cubin x, y;
    if (eider_sass_cubin_read(a, entry, &x) != EIDER_OK) return 0;
    if (eider_sass_cubin_read(b, entry, &y) != EIDER_OK) return 0;
    return x.code_size == y.code_size && memcmp(x.code, y.code, x.code_size) == 0;
}
