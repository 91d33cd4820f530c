/* The interval of steps by a generic profile: parts of 0.3 and 0.4 add up to 0.5, so nine in ten
 * measurements lie from e^-0.5 = 0.60653 to e^0.5 = 1.64872 times the prediction. */
#include "ir/strategy/terms.h"
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
                                 "attention,-0.3,0,2,by hand,s\nexperts,0,1.2,2,by hand,s\n"
                                 "host,0,0,2,by hand,s\nlent,0,0.9,0,by hand,s\n";

Test(cost_interval, parts_add_as_squares) {
    load(parts, "1");
    double share[DS_PART_COUNT] = {[DS_PART_STEP] = 1,
                                   [DS_PART_COMPUTE] = 0.5,
                                   [DS_PART_HOST] = 1,
                                   [DS_PART_LENT] = 0.5}; /* of no relative here */
    ds_cost_spread s = ds_profile_step_spread(p, profile, share);
    cr_expect_float_eq(s.low, 0.60653066, 1e-6);
    cr_expect_float_eq(s.high, 1.64872127, 1e-6);
    /* Without the factor of operations, half of the step lies e^(0.1 + 0.2) too low. */
    ds_arena arena;
    ds_arena_init(&arena);
    s = ds_profile_step_spread(ds_profiles_without(p, DS_TERM_STEP, &arena), profile, share);
    cr_expect_float_eq(s.low, exp(0.15 - 0.5), 1e-6);
    cr_expect_float_eq(s.high, exp(0.15 + 0.5), 1e-6);
    ds_arena_deinit(&arena);
}

static double seconds_of(const ds_profiles *of, ds_work work, int64_t n_devices) {
    ds_cost cost;
    ds_cost_query query = {.profiles = of,
                           .kind = ds_profile_kind(p, profile),
                           .profile = profile,
                           .op = "relu",
                           .work = &work,
                           .n_devices = n_devices};
    double compute_s, memory_s;
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, NULL), DS_OK);
    ds_cost_sides(&query, &compute_s, &memory_s);
    if (work.kind == DS_WORK_MEMORY)
        cr_expect_float_eq(fmax(compute_s, memory_s), (double)cost.ps * 1e-12, 1e-12);
    return (double)cost.ps * 1e-12;
}

Test(cost_interval, operations_take_longer_in_steps) {
    ds_work work = {
        .kind = DS_WORK_MEMORY, .dtype = DS_F16, .flop = 1000, .bytes_read = 1000000000};
    ds_arena arena;
    ds_arena_init(&arena);
    load(parts, "1");
    const ds_profiles *without = ds_profiles_without(p, DS_TERM_STEP, &arena);
    double alone = seconds_of(p, work, 0);
    cr_expect_float_eq(seconds_of(p, work, 1) / alone, exp(0.3), 1e-6);
    cr_expect_float_eq(seconds_of(p, work, 64) / alone, exp(0.3), 1e-6);
    cr_expect_eq(seconds_of(without, work, 64), alone);
    tear_down();
    load(parts, "0");
    cr_expect_eq(seconds_of(p, work, 64), alone);
    ds_arena_deinit(&arena);
}

/* Products of experts are operations: the factor is in the prediction once, and the part `experts` only
 * widens the interval, by 0.5 of 1.2. */
Test(cost_interval, products_of_experts_have_the_bias_of_operations_once) {
    ds_work work = {.kind = DS_WORK_GEMM,
                    .dtype = DS_F16,
                    .flop = 2 * 4 * 4096ll * 4096 * 4096,
                    .batch = 4,
                    .m = 4096,
                    .n = 4096,
                    .k = 4096};
    double share[DS_PART_COUNT] = {
        [DS_PART_STEP] = 1, [DS_PART_COMPUTE] = 0.5, [DS_PART_EXPERTS] = 0.5};
    ds_arena arena;
    ds_arena_init(&arena);
    load(parts, "1");
    const ds_profiles *without = ds_profiles_without(p, DS_TERM_STEP, &arena);
    cr_expect_float_eq(seconds_of(p, work, 8) / seconds_of(without, work, 8), exp(0.3), 1e-6);
    ds_cost_spread s = ds_profile_step_spread(p, profile, share);
    cr_expect_float_eq(s.low * s.high, 1, 1e-6);
    cr_expect_float_eq(s.high, exp(sqrt(0.3 * 0.3 + 0.4 * 0.4 + 0.6 * 0.6)), 1e-6);
    /* Attention: e^(0.1 - 0.3), and the middle of an interval without the factor says the same. */
    share[DS_PART_COMPUTE] = share[DS_PART_EXPERTS] = 0;
    share[DS_PART_ATTENTION] = 0.5;
    s = ds_profile_step_spread(without, profile, share);
    cr_expect_float_eq(s.low * s.high, exp(2 * 0.5 * (0.1 - 0.3)), 1e-6);
    ds_arena_deinit(&arena);
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
