/* test_home.c -- where things are remembered, by the environment; what counts as off. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "home.h"

static int clear(void **state)
{
    (void)state;
    unsetenv("EIDER_HOME");
    unsetenv("EIDER_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    return 0;
}

static void check(enum eider_home want, const char *path)
{
    char got[EIDER_HOME_BYTES];
    assert_int_equal(eider_home_find("EIDER_CACHE_DIR", "kernels", got), want);
    assert_string_equal(got, path);
}

static void the_more_special_variable_decides(void **state)
{
    (void)state;
    check(EIDER_HOME_NONE, "");
    setenv("HOME", "/a", 1);
    check(EIDER_HOME_FOUND, "/a/.cache/eider/kernels");
    setenv("XDG_CACHE_HOME", "/b", 1);
    check(EIDER_HOME_FOUND, "/b/eider/kernels");
    setenv("EIDER_HOME", "/c", 1);
    check(EIDER_HOME_FOUND, "/c/kernels");
    setenv("EIDER_CACHE_DIR", "/d", 1);
    check(EIDER_HOME_FOUND, "/d");
}

static void relative_and_empty_places_are_passed_over(void **state)
{
    (void)state;
    setenv("HOME", "/a", 1);
    setenv("XDG_CACHE_HOME", "", 1);
    check(EIDER_HOME_FOUND, "/a/.cache/eider/kernels");
    setenv("XDG_CACHE_HOME", "cache", 1);
    check(EIDER_HOME_FOUND, "/a/.cache/eider/kernels");
    setenv("HOME", "a", 1);
    check(EIDER_HOME_NONE, "");
}

static void what_the_user_names_may_be_relative(void **state)
{
    (void)state;
    assert_int_equal(chdir("/usr"), 0);
    setenv("EIDER_HOME", "here", 1);
    check(EIDER_HOME_FOUND, "/usr/here/kernels");
    setenv("EIDER_CACHE_DIR", "there/a", 1);
    check(EIDER_HOME_FOUND, "/usr/there/a");
}

static void off_is_empty_zero_or_false(void **state)
{
    (void)state;
    static const char *const off[] = {"", "0", "false"};
    setenv("HOME", "/a", 1);
    for (size_t i = 0; i < 3; i++) {
        setenv("EIDER_CACHE_DIR", off[i], 1);
        check(EIDER_HOME_OFF, "");
        assert_int_equal(eider_home_switch("EIDER_CACHE_DIR"), 0);
        assert_null(eider_home_setting("EIDER_CACHE_DIR"));
    }
    setenv("EIDER_CACHE_DIR", "1", 1);
    assert_int_equal(eider_home_switch("EIDER_CACHE_DIR"), 1);
    assert_int_equal(eider_home_switch("EIDER_HOME"), 0);
}

static void limits_have_units_and_zero_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int ok;
        unsigned long long value;
    } rows[] = {
        {"12", 1, 12},
        {"64K", 1, 65536},
        {"2G", 1, 2ull << 30},
        {"0", 1, UINT64_MAX},
        {"", 1, UINT64_MAX},
        {"1x", 0, 7},
        {"-1", 0, 7},
        {"K", 0, 7},
        {"1KB", 0, 7},
        {"99999999T", 0, 7},
        {"999999999999999999999", 0, 7},
    };
    unsigned long long got;
    assert_int_equal(eider_home_limit("EIDER_HOME", 7, &got), 1);
    assert_int_equal(got, 7);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("EIDER_HOME", rows[i].text, 1);
        assert_int_equal(eider_home_limit("EIDER_HOME", 7, &got), rows[i].ok);
        assert_int_equal(got, rows[i].value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_more_special_variable_decides, clear),
        cmocka_unit_test_setup(relative_and_empty_places_are_passed_over, clear),
        cmocka_unit_test_setup(what_the_user_names_may_be_relative, clear),
        cmocka_unit_test_setup(off_is_empty_zero_or_false, clear),
        cmocka_unit_test_setup(limits_have_units_and_zero_is_none, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
