/* home.c -- see home.h. */
#include "home.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_off(const char *value)
{
    return !*value || strcmp(value, "0") == 0 || strcmp(value, "false") == 0;
}

const char *eider_home_setting(const char *variable)
{
    const char *value = getenv(variable);
    return value && !is_off(value) ? value : NULL;
}

int eider_home_switch(const char *variable)
{
    return eider_home_setting(variable) != NULL;
}

int eider_home_limit(const char *variable, unsigned long long otherwise, unsigned long long *out)
{
    static const char units[] = "KMGT";
    const char *text = getenv(variable);
    *out = otherwise;
    if (!text) return 1;
    *out = ULLONG_MAX;
    if (is_off(text)) return 1;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (text[0] < '0' || text[0] > '9' || errno || (*end && (!unit || end[1])) ||
        n > ULLONG_MAX >> shift) {
        *out = otherwise;
        return 0;
    }
    *out = n << shift;
    return 1;
}

/* 1 when it fits.  A relative path would be another place in every folder. */
static int join(const char *root, const char *middle, const char *below, char *out)
{
    if (root[0] != '/') return 0;
    int n = snprintf(out, EIDER_HOME_BYTES, "%s%s%s%s", root, middle, *below ? "/" : "", below);
    return n > 0 && n < EIDER_HOME_BYTES;
}

/* What the user named by a relative path stays the place that it is now. */
static int join_given(const char *given, const char *below, char *out)
{
    char folder[EIDER_HOME_BYTES];
    if (given[0] == '/') return join(given, "", below, out);
    if (!getcwd(folder, sizeof folder)) return 0;
    size_t n = strlen(folder);
    if (snprintf(folder + n, sizeof folder - n, "/%s", given) >= (int)(sizeof folder - n)) return 0;
    return join(folder, "", below, out);
}

enum eider_home eider_home_find(const char *variable, const char *below, char *out)
{
    static const struct {
        const char *variable, *middle;
    } places[] = {{"XDG_CACHE_HOME", "/eider"}, {"HOME", "/.cache/eider"}};
    const char *given = variable ? getenv(variable) : NULL;
    const char *home = getenv("EIDER_HOME");
    out[0] = '\0';
    if (given) below = "";
    if (!given) given = home;
    if (given && is_off(given)) return EIDER_HOME_OFF;
    if (given) return join_given(given, below, out) ? EIDER_HOME_FOUND : EIDER_HOME_NONE;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *root = getenv(places[i].variable);
        if (root && *root && join(root, places[i].middle, below, out)) return EIDER_HOME_FOUND;
    }
    return EIDER_HOME_NONE;
}
