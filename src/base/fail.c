/* fail.c -- the thread's error record, and the tables of statuses and element types.
 *
 * Invariant: the record is a fixed buffer of the thread, so recording never allocates.
 */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RECORD_BYTES 8192

static _Thread_local char record[RECORD_BYTES];

eider_status eider_fail(eider_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(record, sizeof record, format, list);
    va_end(list);
    for (char *at = record; *at; at++) /* names come from anywhere, messages go to terminals */
        if (((unsigned char)*at < ' ' && *at != '\n' && *at != '\t') || *at == 0x7f) *at = '?';
    return status;
}

eider_status eider_fail_text(eider_status status, const char *text)
{
    return eider_fail(status, "%s", text);
}

void eider_fail_prefix(const char *format, ...)
{
    char prefix[512];
    va_list list;
    va_start(list, format);
    vsnprintf(prefix, sizeof prefix, format, list);
    va_end(list);
    size_t room = strlen(prefix);
    size_t kept = strnlen(record, RECORD_BYTES - 1 - room);
    memmove(record + room, record, kept);
    memcpy(record, prefix, room);
    record[room + kept] = '\0';
}

const char *eider_error(void)
{
    return record;
}

const char *eider_status_name(eider_status status)
{
    switch (status) {
#define EIDER_STATUS(name, value, text) \
    case EIDER_##name:                  \
        return "EIDER_" #name;
#include "eider/status.def"
    }
    return "unknown status";
}

const char *eider_status_text(eider_status status)
{
    switch (status) {
#define EIDER_STATUS(name, value, text) \
    case EIDER_##name:                  \
        return text;
#include "eider/status.def"
    }
    return "unknown status";
}

#define VERSION_TEXT_(a, b, c) #a "." #b "." #c
#define VERSION_TEXT(a, b, c) VERSION_TEXT_(a, b, c)

const char *eider_version(void)
{
    return VERSION_TEXT(EIDER_VERSION_MAJOR, EIDER_VERSION_MINOR, EIDER_VERSION_PATCH);
}

static const struct {
    const char *text;
    size_t bytes;
} dtype_table[] = {
#define EIDER_DTYPE(name, value, text, bytes) [EIDER_##name] = {text, bytes},
#include "eider/types.def"
};

#define N_DTYPES (sizeof dtype_table / sizeof dtype_table[0])

const char *eider_dtype_name(eider_dtype type)
{
    return (size_t)type < N_DTYPES ? dtype_table[type].text : NULL;
}

size_t eider_dtype_size(eider_dtype type)
{
    return (size_t)type < N_DTYPES ? dtype_table[type].bytes : 0;
}

eider_status eider_dtype_parse(const char *text, eider_dtype *out)
{
    if (!text || !out) return eider_fail(EIDER_BAD_ARG, "eider_dtype_parse: NULL argument");
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(text, dtype_table[i].text) == 0) {
            *out = (eider_dtype)i;
            return EIDER_OK;
        }
    }
    return eider_fail(EIDER_BAD_ARG,
                      "unknown element type '%s': one of f32, f16, bf16, f64, "
                      "e4m3, e5m2, i32, i64, bool",
                      text);
}
