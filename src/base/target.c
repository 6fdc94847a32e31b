/* target.c -- see target.h. */
#include "target.h"

#include <stdio.h>
#include <string.h>

#define SM_MIN 80
#define SM_MAX 129

eider_status eider_target_parse(const char *text, struct eider_target *out)
{
    if (strcmp(text, "cpu") == 0) {
        *out = (struct eider_target){0};
        return EIDER_OK;
    }
    int sm = 0, length = 0;
    if (sscanf(text, "sm_%3d%n", &sm, &length) != 1 || sm < SM_MIN || sm > SM_MAX)
        return eider_fail(EIDER_TARGET, "unknown target '%.40s': expected cpu or sm_%d to sm_%d",
                          text, SM_MIN, SM_MAX);
    char suffix = text[length];
    if ((suffix && suffix != 'a' && suffix != 'f') || (suffix && text[length + 1]))
        return eider_fail(EIDER_TARGET, "unknown target '%.40s': the suffix may be 'a' or 'f'",
                          text);
    if (suffix && sm < 90)
        return eider_fail(EIDER_TARGET, "unknown target '%.40s': suffixes begin with sm_90a", text);
    *out = (struct eider_target){sm, suffix};
    return EIDER_OK;
}

void eider_target_print(struct eider_target target, char *buffer)
{
    if (target.sm == 0)
        snprintf(buffer, EIDER_TARGET_TEXT_BYTES, "cpu");
    else if (target.suffix)
        snprintf(buffer, EIDER_TARGET_TEXT_BYTES, "sm_%d%c", target.sm, target.suffix);
    else
        snprintf(buffer, EIDER_TARGET_TEXT_BYTES, "sm_%d", target.sm);
}
