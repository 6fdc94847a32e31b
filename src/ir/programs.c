/* programs.c -- see programs.h. */
#include "programs.h"

#include <string.h>

static const struct eider_named_program rows[] = {
#define EIDER_PROGRAM(name, text, doc) {#name, text, doc},
#include "programs.def"
};

#define N_ROWS (sizeof rows / sizeof *rows)

const struct eider_named_program *eider_programs_row(size_t i)
{
    return i < N_ROWS ? &rows[i] : NULL;
}

const char *eider_programs_resolve(const char *text)
{
    static const char blanks[] = " \t\r\n";
    const char *at = text + strspn(text, blanks);
    size_t length = strcspn(at, blanks);
    if (at[length + strspn(at + length, blanks)]) return text;
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, at, length) == 0)
            return rows[i].text;
    return text;
}
