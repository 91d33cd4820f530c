/* The interval of steps by a generic profile: parts of 0.3 and 0.4 add up to 0.5 around the bias, so
 * nine in ten measurements lie from e^(0.1 - 0.5) = 0.67032 to e^(0.1 + 0.5) = 1.82212 times the
 * prediction. */
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#define HEAD "part,bias,error,n,basis,source\n"

static cost_tree tree;
static ds_profiles *p;
static uint32_t profile;

static void load(const char *parts, const char *generic) {
    char text[200];
    cost_tree_init(&tree);
    if (parts) cost_tree_put(&tree, "catalogue/intervals.csv", parts);
    snprintf(text, sizeof text,
             "name,device,issue_us,generic,software,source\nP,Box-1,0,%s,by hand,s\n", generic);
    cost_tree_put(&tree, "p/profile.csv", text);
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, NULL), DS_OK);
}

static void tear_down(void) {
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
TestSuite(cost_interval, .fini = tear_down);

static const char parts[] = HEAD "step,0.1,0.3,2,by hand,s\ncompute,0.2,0.8,2,by hand,s\n"
                                 "host,-0.1,0,2,by hand,s\nlent,0,0.9,0,by hand,s\n";

Test(cost_interval, parts_add_as_squares_around_their_biases) {
    load(parts, "1");
    double share[DS_PART_COUNT] = {[DS_PART_STEP] = 1,
                                   [DS_PART_COMPUTE] = 0.5,
                                   [DS_PART_HOST] = 1,
                                   [DS_PART_LENT] = 0.5}; /* of no relative here */
    ds_cost_spread s = ds_profile_step_spread(p, profile, share);
    cr_expect_float_eq(s.low, exp(-0.4), 1e-6);
    cr_expect_float_eq(s.high, exp(0.6), 1e-6);
}

Test(cost_interval, other_profiles_have_none) {
    load(parts, "0");
    const double share[DS_PART_COUNT] = {[DS_PART_STEP] = 1};
    ds_cost_spread s = ds_profile_step_spread(p, profile, share);
    cr_expect_eq(s.low, 0);
    cr_expect_eq(s.high, 0);
}

Test(cost_interval, a_catalogue_without_the_table_has_none) {
    load(NULL, "1");
    const double share[DS_PART_COUNT] = {[DS_PART_STEP] = 1};
    cr_expect_eq(ds_profile_step_spread(p, profile, share).high, 0);
}
