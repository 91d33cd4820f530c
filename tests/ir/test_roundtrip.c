/* parse(print(m)) == m and fmt(fmt(x)) == fmt(x), for 10,000 generated modules. */
#include "ir/lang/lang.h"
#include "tests/support/gen_module.h"
#include "tests/support/module_equal.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SEEDS = 10000, PER_TEST = 2500 };

static ds_unit *parse(uint64_t seed, const ds_buf *text) {
    ds_unit *unit = ds_unit_new();
    ds_error err = {0};
    ds_module *module = ds_unit_add_module(unit, "generated.dir", text->text, text->n);
    if (ds_parse(module, &err)) {
        ds_buf report = {0};
        ds_error_print(unit, &err, &report);
        cr_assert_fail("seed %llu: %s\n%s", (unsigned long long)seed, report.text, text->text);
    }
    return unit;
}

static void check(uint64_t seed) {
    ds_buf text = {0}, once = {0}, twice = {0};
    ds_test_gen_module(seed, &text);
    ds_unit *a = parse(seed, &text);
    ds_print_module(a->modules.at[0], &once);
    ds_unit *b = parse(seed, &once);
    ds_print_module(b->modules.at[0], &twice);
    const char *difference = ds_test_module_difference(a->modules.at[0], b->modules.at[0]);
    cr_assert_null(difference, "seed %llu: not the same: %s\n%s", (unsigned long long)seed,
                   difference, once.text);
    cr_assert_str_eq(once.text, twice.text, "seed %llu: print is not stable",
                     (unsigned long long)seed);
    ds_unit_free(a);
    ds_unit_free(b);
    ds_buf_deinit(&text);
    ds_buf_deinit(&once);
    ds_buf_deinit(&twice);
}

static void check_part(uint64_t part) {
    for (uint64_t seed = part * PER_TEST; seed < (part + 1) * PER_TEST; seed++) check(seed);
}

Test(roundtrip, seeds_0) {
    check_part(0);
}
Test(roundtrip, seeds_1) {
    check_part(1);
}
Test(roundtrip, seeds_2) {
    check_part(2);
}
Test(roundtrip, seeds_3) {
    check_part(3);
}
_Static_assert(SEEDS == 4 * PER_TEST, "every seed is in a part");
