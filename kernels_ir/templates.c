/* templates.c -- the table of templates, from kernels.def. */
#include "template.h"

#define EIDER_KERNEL(name) extern const struct eider_template eider_template_##name;
#include "kernels.def"

static const struct eider_template *const template_table[] = {
#define EIDER_KERNEL(name) &eider_template_##name,
#include "kernels.def"
};

#define N_TEMPLATES (sizeof template_table / sizeof template_table[0])

const struct eider_template *eider_template_at(size_t i)
{
    return i < N_TEMPLATES ? template_table[i] : NULL;
}

const struct eider_template *eider_template_for(const struct eider_graph *program)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (template_table[i]->takes(program)) return template_table[i];
    return NULL;
}
