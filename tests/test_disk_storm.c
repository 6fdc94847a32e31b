/* test_disk_storm.c -- twenty rounds of processes on one directory, half of them killed.
 *
 * labels: sweep
 * timeout: 1800
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#include "support_cache.h"
#include "support_runtime.h"

static void fifty_kernels_survive_twenty_rounds(void **state)
{
    (void)state;
    char directory[CACHE_PATH_BYTES];
    static struct cache_files files;
    struct cache_session s;
    uint64_t removed;
    for (unsigned round = 0; round < 20; round++) {
        cache_directory(directory);
        cache_storm(directory, 16, 50, 1, round);
        cache_open(&s, directory, NULL);
        must(eider_cache_prune(s.ctx, UINT64_MAX - 1, UINT64_MAX, &removed));
        for (int k = 0; k < 50; k++) cache_expect(&s, k, 1);
        assert_int_equal(s.log.n, 0);
        cache_close(&s);
        assert_int_equal(cache_list(directory, &files), 50);
        assert_int_equal(cache_temporaries(directory), 0);
        cache_remove(directory);
        fprintf(stderr, "round %u of 20\n", round + 1);
    }
}

int main(void)
{
    if (cache_task()) return cache_storm_task(cache_task());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_kernels_survive_twenty_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
