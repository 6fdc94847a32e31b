/* scope.c -- the names of a text, found by hashing; see lex.h.
 *
 * Invariant: a symbol never moves in number, only in memory: pointers to symbols are good
 * until the next one is added.
 */
#include "lex.h"

#include <string.h>

static uint32_t hash_name(const char *name, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash;
}

static uint32_t *slot_of(struct eider_parser *p, const char *name, size_t length)
{
    uint32_t mask = p->index_size - 1, at = hash_name(name, length) & mask;
    for (;; at = (at + 1) & mask) {
        if (p->index[at] == 0) return &p->index[at];
        const struct eider_symbol *s = &p->symbols[p->index[at] - 1];
        if (s->length == length && memcmp(s->at, name, length) == 0) return &p->index[at];
    }
}

struct eider_symbol *eider_scope_find(struct eider_parser *p, const char *name, size_t length)
{
    if (!p->index_size) return NULL;
    uint32_t number = *slot_of(p, name, length);
    return number ? &p->symbols[number - 1] : NULL;
}

static int grow_symbols(struct eider_parser *p)
{
    const eider_allocator *a = &p->g->allocator;
    if (p->n_symbols < p->room_symbols) return 1;
    uint32_t room = p->room_symbols ? p->room_symbols * 2 : 16;
    struct eider_symbol *symbols = eider_mem_resize(a, p->symbols, room * sizeof *symbols);
    if (symbols) p->symbols = symbols;
    uint32_t *index = eider_mem_zero(a, (size_t)room * 2 * sizeof *index);
    if (!symbols || !index) {
        eider_mem_free(a, index);
        p->g->status = EIDER_OOM;
        return 0;
    }
    eider_mem_free(a, p->index);
    p->index = index;
    p->index_size = room * 2;
    p->room_symbols = room;
    for (uint32_t i = 0; i < p->n_symbols; i++)
        *slot_of(p, p->symbols[i].at, p->symbols[i].length) = i + 1;
    return 1;
}

struct eider_symbol *eider_scope_add(struct eider_parser *p, const char *name, size_t length,
                                     enum eider_symbol_kind kind)
{
    if (!grow_symbols(p)) return NULL;
    struct eider_symbol *s = &p->symbols[p->n_symbols];
    *s = (struct eider_symbol){.at = name, .length = length, .type = -1, .kind = kind};
    *slot_of(p, name, length) = ++p->n_symbols;
    return s;
}

void eider_scope_release(struct eider_parser *p)
{
    eider_mem_free(&p->g->allocator, p->symbols);
    eider_mem_free(&p->g->allocator, p->index);
}
