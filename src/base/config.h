/* config.h -- one value per tuning parameter.
 *
 * Invariant: a value is an index into the parameter's allowed values, or
 * EIDER_PARAM_UNSET.  The canonical text lists the set parameters in table order,
 * "vec=8,unroll=2,block=256", and parsing it gives the same config.
 */
#ifndef EIDER_BASE_CONFIG_H
#define EIDER_BASE_CONFIG_H

#include "memory.h"

enum eider_param {
#define EIDER_PARAM(name, values, doc) EIDER_PARAM_##name,
#include "params.def"
    EIDER_PARAM_COUNT
};

#define EIDER_PARAM_UNSET (-1)
#define EIDER_CONFIG_TEXT_BYTES 256

struct eider_config {
    int8_t choice[EIDER_PARAM_COUNT];
};

struct eider_config eider_config_unset(void);

/* Reads "vec=8,block=256" over `config`; "" and NULL change nothing.  Fails with
 * EIDER_CONFIG, naming the parameter and its allowed values. */
eider_status eider_config_parse(const char *text, struct eider_config *config);

/* Canonical text; returns its length.  `buffer` has EIDER_CONFIG_TEXT_BYTES bytes. */
size_t eider_config_print(const struct eider_config *config, char *buffer);

/* The value as text ("cs"), or "auto" when unset. */
const char *eider_config_text(const struct eider_config *config, enum eider_param param);

/* The value as a number; parameters whose values are words give their index. */
int eider_config_number(const struct eider_config *config, enum eider_param param);

/* Sets by number or word.  Fails with EIDER_CONFIG. */
eider_status eider_config_set(struct eider_config *config, enum eider_param param,
                              const char *value);
eider_status eider_config_set_number(struct eider_config *config, enum eider_param param,
                                     int value);

/* What is set stays, else `rule` is set; the value that holds. */
int eider_config_choose(struct eider_config *config, enum eider_param param, int rule);
void eider_config_choose_word(struct eider_config *config, enum eider_param param,
                              const char *rule);

/* Row `i` of the table; 0 when there is none. */
int eider_config_row(size_t i, const char **name, const char **values, const char **doc);

#endif
