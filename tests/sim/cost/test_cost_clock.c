/* The clock that a power limit allows, against numbers worked out by hand: products of 20 TFLOP/s
 * at e = 0.5 are 10 FLOP a picosecond. The device is sold with 100 W, of which it draws 20 at rest,
 * and products at half the peak keep 0.9 of their clock. */
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static cost_tree tree;
static ds_profiles *p;
static ds_arena arena;
static uint32_t box, profile;

static void load(const char *generic) {
    char text[200];
    cost_tree_init(&tree);
    ds_arena_init(&arena);
    cost_tree_put(
        &tree, "catalogue/clocks.csv",
        "device,power_w,sustained,busy,basis,source\nBox-1,100,0.9,0.5,assumed: a test,s\n");
    snprintf(text, sizeof text,
             "name,device,issue_us,generic,software,source\nP,Box-1,0,%s,by hand,s\n", generic);
    cost_tree_put(&tree, "p/profile.csv", text);
    cost_tree_put(
        &tree, "p/efficiency.csv",
        "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
        "p90_error,basis,source\n"
        "gemm,f16,flop,20000,0.5,0,1,1000000000000000,0,,,assumed: a test,s\n"
        "gemm_unaligned,f16,flop,20000,0.0625,0,1,1000000000000000,0,,,assumed: a test,s\n"
        "memory,*,bytes,100,1,0,1,1000000000000000,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &box, NULL), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, NULL), DS_OK);
}

static void tear_down(void) {
    ds_profiles_free(p);
    ds_arena_deinit(&arena);
    cost_tree_deinit(&tree);
}
TestSuite(cost_clock, .fini = tear_down);

#define WHOLE INT64_C(1000000000)

static int64_t n_devices;

static int64_t time_of(const ds_profiles *of, uint32_t by, int64_t n, int64_t clock_ppb,
                       int64_t watts) {
    ds_work work = {.kind = DS_WORK_GEMM,
                    .dtype = DS_F16,
                    .batch = 1,
                    .m = 1024,
                    .n = n,
                    .k = 1024,
                    .flop = 2 * 1024 * n * 1024};
    ds_cost_query query = {.profiles = of,
                           .kind = box,
                           .profile = by,
                           .op = "matmul",
                           .work = &work,
                           .n_devices = n_devices};
    ds_cost cost;
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, NULL), DS_OK);
    cr_assert_eq(ds_cost_clock(&query, clock_ppb, 1000 * watts, &cost, NULL, NULL), DS_OK);
    return cost.ps;
}

Test(cost_clock, fits_of_short_measurements_slow_down) {
    load("1");
    int64_t shortly = 214748365;                                  /* 2^31 FLOP at 10 a picosecond */
    cr_expect_eq(time_of(p, profile, 1024, WHOLE, 0), 238609295); /* at 0.9 */
    cr_expect_eq(time_of(p, profile, 1024, WHOLE, 30), 477218589);     /* (10 W of 80)^(1/3) */
    cr_expect_eq(time_of(p, profile, 1024, WHOLE, 1000), shortly);     /* and never faster */
    cr_expect_eq(time_of(p, profile, 1024, 800000000, 30), 268435457); /* the topology's word */
    /* An eighth of the switching leaves twice the clock, so all of it. */
    cr_expect_eq(time_of(p, profile, 1001, WHOLE, 0), 1679399322); /* 2^21 1001 / 1.25 */
    const ds_profiles *without = ds_profiles_without(p, DS_TERM_CLOCKS, &arena);
    cr_expect_eq(time_of(without, profile, 1024, WHOLE, 30), shortly);
}

/* Constants of a testbed were found at the device's own limit: half the clock of that limit. */
Test(cost_clock, fits_of_a_testbed_slow_down_under_a_cap_alone) {
    load("");
    cr_expect_eq(time_of(p, profile, 1024, WHOLE, 0), 214748365);
    cr_expect_eq(time_of(p, profile, 1024, 500000000, 0), 214748365);
    cr_expect_eq(time_of(p, profile, 1024, WHOLE, 100), 214748365);
    cr_expect_eq(time_of(p, profile, 1024, WHOLE, 30), 429496730);
}

/* The data sheet's peak, busy all the time: 0.9 (1/8 1/2)^(1/3) = 0.357165 of the clock. */
Test(cost_clock, peaks_slow_down_where_the_topology_says_so) {
    load("1");
    cr_expect_eq(time_of(p, 0, 1024, WHOLE, 0), 107374183);
    cr_expect_eq(time_of(p, 0, 1024, 500000000, 0), 214748366);
    int64_t capped = time_of(p, 0, 1024, WHOLE, 30);
    cr_expect_float_eq((double)capped / 107374183, 1 / 0.357165237, 1e-6);
}

Test(cost_clock, parts) {
    load("1");
    ds_device_clock h100 = {700000, 0.87, 0.77}, unknown = {0};
    cr_expect_eq(ds_clock_part(&h100, 0, 0.77), 870000000);
    cr_expect_eq(ds_clock_part(&h100, 500000, 0.77), 750857305); /* 0.87 (360/560)^(1/3) */
    cr_expect_eq(ds_clock_part(&h100, 0, 0.5), WHOLE);           /* 0.87 1.54^(1/3) = 1.0046 */
    cr_expect_eq(ds_clock_part(&h100, 1000, 0.77), 87000000);    /* below what it draws at rest */
    cr_expect_eq(ds_clock_part(&unknown, 500000, 0.77), WHOLE);
    cr_expect_eq(ds_clock_part(&h100, 0, 0), WHOLE); /* nothing is computed */
}

/* The largest of n normal variables lies at the integral of x n F(x)^(n-1) f(x), here by Simpson. */
static double largest_of(int64_t n) {
    const int steps = 4000;
    double sum = 0, least = -10, h = 20.0 / steps;
    for (int i = 0; i <= steps; i++) {
        double x = least + h * i, below = 0.5 * erfc(-x / sqrt(2));
        double density = exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846);
        double weight = i == 0 || i == steps ? 1 : i % 2 ? 4 : 2;
        sum += weight * x * (double)n * pow(below, (double)(n - 1)) * density;
    }
    return sum * h / 3;
}

Test(cost_clock, the_slowest_of_many) {
    cr_expect_eq(ds_clock_slowest(0), 1);
    cr_expect_eq(ds_clock_slowest(1), 1);
    for (int64_t n = 2; n <= 1 << 20; n *= 2)
        cr_expect_float_eq(ds_clock_slowest(n), 1 + 0.015 * largest_of(n), 1e-6, "%ld", (long)n);
    for (int64_t n = 3; n < 3000; n += 31) /* in a line between powers of 2 */
        cr_expect_float_eq(ds_clock_slowest(n), 1 + 0.015 * largest_of(n), 0.0008, "%ld", (long)n);
    cr_expect_eq(ds_clock_slowest(INT64_MAX), ds_clock_slowest(1 << 20));
}

Test(cost_clock, a_step_waits_for_the_slowest_device) {
    load("1");
    int64_t alone = time_of(p, profile, 1024, WHOLE, 0);
    n_devices = 64;
    double factor = 1 + 0.015 * largest_of(64);
    cr_expect_float_eq((double)time_of(p, profile, 1024, WHOLE, 0), (double)alone * factor, 5000);
    cr_expect_eq(time_of(p, profile, 1024, 800000000, 0), 268435457); /* the topology's word */
    cr_expect_eq(time_of(p, 0, 1024, WHOLE, 0), 107374183);           /* the data sheet's peak */
    const ds_profiles *without = ds_profiles_without(p, DS_TERM_VARIATION, &arena);
    cr_expect_eq(time_of(without, profile, 1024, WHOLE, 0), alone);
    without = ds_profiles_without(p, DS_TERM_CLOCKS, &arena);
    cr_expect_float_eq((double)time_of(without, profile, 1024, WHOLE, 0), 214748365 * factor, 5000);
    n_devices = 0;
}
