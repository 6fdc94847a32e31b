/* programs.h -- programs that have names. */
#ifndef EIDER_IR_PROGRAMS_H
#define EIDER_IR_PROGRAMS_H

#include <stddef.h>

struct eider_named_program {
    const char *name, *text, *doc;
};

/* Row `i`, or NULL. */
const struct eider_named_program *eider_programs_row(size_t i);

/* What `text` stands for: the program that it names, blanks around the name aside, else `text`
 * itself. */
const char *eider_programs_resolve(const char *text);

#endif
