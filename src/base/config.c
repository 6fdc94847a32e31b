/* config.c -- see config.h.  Everything here is driven by params.def. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 12

static const struct param_row {
    const char *name, *values, *doc;
} param_table[EIDER_PARAM_COUNT] = {
#define EIDER_PARAM(name, values, doc) {#name, values, doc},
#include "params.def"
};

/* Copies value `i` of a '|' list into `out`; 0 when there is none. */
static int value_at(const char *values, int i, char out[VALUE_BYTES])
{
    const char *at = values;
    for (; i > 0; i--) {
        at = strchr(at, '|');
        if (!at) return 0;
        at++;
    }
    size_t length = strcspn(at, "|");
    if (length >= VALUE_BYTES) return 0;
    memcpy(out, at, length);
    out[length] = '\0';
    return 1;
}

struct eider_config eider_config_unset(void)
{
    struct eider_config config;
    memset(config.choice, EIDER_PARAM_UNSET, sizeof config.choice);
    return config;
}

eider_status eider_config_set(struct eider_config *config, enum eider_param param,
                              const char *value)
{
    char text[VALUE_BYTES];
    for (int i = 0; value_at(param_table[param].values, i, text); i++) {
        if (strcmp(text, value) == 0) {
            config->choice[param] = (int8_t)i;
            return EIDER_OK;
        }
    }
    return eider_fail(EIDER_CONFIG, "config: %s=%.40s is not one of %s", param_table[param].name,
                      value, param_table[param].values);
}

eider_status eider_config_set_number(struct eider_config *config, enum eider_param param, int value)
{
    char text[VALUE_BYTES];
    snprintf(text, sizeof text, "%d", value);
    return eider_config_set(config, param, text);
}

int eider_config_choose(struct eider_config *config, enum eider_param param, int rule)
{
    if (config->choice[param] < 0) eider_config_set_number(config, param, rule);
    return eider_config_number(config, param);
}

void eider_config_choose_word(struct eider_config *config, enum eider_param param, const char *rule)
{
    if (config->choice[param] < 0) eider_config_set(config, param, rule);
}

static eider_status set_named(struct eider_config *config, const char *name, const char *value)
{
    for (int p = 0; p < EIDER_PARAM_COUNT; p++)
        if (strcmp(name, param_table[p].name) == 0)
            return eider_config_set(config, (enum eider_param)p, value);
    return eider_fail(EIDER_CONFIG,
                      "config: unknown parameter '%.40s'; `eider list params` "
                      "names them",
                      name);
}

eider_status eider_config_parse(const char *text, struct eider_config *config)
{
    struct eider_config read = *config;
    const char *at = text ? text : "";
    while (*at) {
        char name[32], value[32];
        size_t n = strcspn(at, "=,");
        if (at[n] != '=' || n == 0 || n >= sizeof name)
            return eider_fail(EIDER_CONFIG, "config: expected name=value, found '%.40s'", at);
        memcpy(name, at, n);
        name[n] = '\0';
        at += n + 1;
        n = strcspn(at, ",");
        if (n == 0 || n >= sizeof value)
            return eider_fail(EIDER_CONFIG, "config: %s has no value", name);
        memcpy(value, at, n);
        value[n] = '\0';
        at += n;
        if (*at == ',') at++;
        EIDER_TRY(set_named(&read, name, value));
    }
    *config = read;
    return EIDER_OK;
}

size_t eider_config_print(const struct eider_config *config, char *buffer)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (int p = 0; p < EIDER_PARAM_COUNT; p++) {
        char value[VALUE_BYTES];
        if (config->choice[p] < 0 || !value_at(param_table[p].values, config->choice[p], value))
            continue;
        int n = snprintf(buffer + length, EIDER_CONFIG_TEXT_BYTES - length, "%s%s=%s",
                         length ? "," : "", param_table[p].name, value);
        if (n > 0) length += (size_t)n;
    }
    return length;
}

const char *eider_config_text(const struct eider_config *config, enum eider_param param)
{
    static _Thread_local char text[VALUE_BYTES];
    if (config->choice[param] < 0) return "auto";
    return value_at(param_table[param].values, config->choice[param], text) ? text : "auto";
}

/* Walks the text instead of copying it: every launch asks. */
int eider_config_number(const struct eider_config *config, enum eider_param param)
{
    const char *at = param_table[param].values;
    int number = 0;
    for (int i = config->choice[param]; i > 0 && *at; at++)
        if (*at == '|') i--;
    if (config->choice[param] < 0 || *at < '0' || *at > '9') return config->choice[param];
    for (; *at >= '0' && *at <= '9'; at++) number = 10 * number + *at - '0';
    return number;
}

int eider_config_row(size_t i, const char **name, const char **values, const char **doc)
{
    if (i >= EIDER_PARAM_COUNT) return 0;
    *name = param_table[i].name;
    *values = param_table[i].values;
    *doc = param_table[i].doc;
    return 1;
}
