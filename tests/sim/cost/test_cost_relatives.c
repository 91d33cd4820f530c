/* Generic profiles that a relative lends: a device with twice the peak and half the bandwidth. */
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <stdio.h>

static cost_tree tree;
static ds_profiles *p;
static uint32_t near;

static void set_up(void) {
    cost_tree_init(&tree);
    cost_tree_put(&tree, "catalogue/devices.csv",
                  "name,aliases,memory_gib,memory_gb_per_s,f32_tflops,f16_tflops,source\n"
                  "Near,,1,50,,40,s\n"
                  "Box-1,,1,100,10,20,s\n"
                  "Far,,1,50,,40,s\n"
                  "Own,,1,50,20,40,s\n"
                  "After,,1,50,20,40,s\n");
    cost_tree_put(&tree, "catalogue/relatives.csv",
                  "device,relative,basis,source\nNear,Box-1,a test,s\nFar,Near,a test,s\n"
                  "Own,Box-1,a test,s\nAfter,Own,a test,s\n");
    cost_tree_put(&tree, "p/profile.csv",
                  "name,device,issue_us,generic,software,source\nP,Box-1,2.5,1,by hand,s\n");
    cost_tree_put(&tree, "p/efficiency.csv",
                  "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
                  "p90_error,ratio_p05,ratio_p95,basis,source\n"
                  "gemm,f16,flop,20000,0.5,1000000,1,1000000000000000,9,,,0.9,1.2,rows,s\n"
                  "gemm,f32,flop,10000,0.5,0,1,1000000000000000,0,,,,,assumed: a test,s\n"
                  "memory,*,bytes,100,0.8,8000,1,1000000000000000,0,,,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_kind(p, "Near", DS_NOWHERE, &near, NULL), DS_OK);
}
static void tear_down(void) {
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
TestSuite(cost_relatives, .init = set_up, .fini = tear_down);

static ds_status price(const ds_work *work, const char *op, ds_cost *cost, ds_error *err) {
    ds_cost_query query = {.profiles = p,
                           .kind = near,
                           .profile = ds_profiles_generic(p, near),
                           .op = op,
                           .work = work};
    return ds_cost_op(&query, DS_COST_FITTED, cost, NULL, err);
}

Test(cost_relatives, shares_and_times_stay) {
    ds_work product = {.kind = DS_WORK_GEMM,
                       .dtype = DS_F16,
                       .batch = 1,
                       .m = 64,
                       .n = 64,
                       .k = 64,
                       .flop = 524288};
    ds_work pass = {.kind = DS_WORK_MEMORY, .dtype = DS_F16, .tokens = 1, .bytes_read = 1000000};
    ds_cost cost;
    uint32_t lent = ds_profiles_generic(p, near);
    cr_assert_neq(lent, 0);
    cr_expect_str_eq(ds_profile_name(p, lent), "Near-generic");
    cr_expect_eq(ds_profile_kind(p, lent), near);
    cr_expect_eq(ds_profile_issue_ps(p, lent), 2500000);
    cr_expect_eq(ds_profile_kernels_issue_ps(p, lent, DS_KERNELS_EAGER), 2500000);
    cr_expect_eq(ds_profile_kernels_issue_ps(p, lent, DS_KERNELS_FUSED),
                 6825000); /* 90.5 us of 33.2 */
    cr_expect_eq(ds_profile_kernels_issue_ps(p, lent, DS_KERNELS_COMPILED),
                 700000); /* 3.8 of 13.5 */
    /* 0.1 us a kernel, and 2^19 FLOP at 20 a picosecond */
    cr_assert_eq(price(&product, "matmul", &cost, NULL), DS_OK);
    cr_expect_eq(cost.ps, 100000 + 26215);
    cr_expect_float_eq(cost.spread.low, 0.9 / 1.35, 1e-9);
    cr_expect_float_eq(cost.spread.high, 1.2 * 1.35, 1e-9);
    /* 0.1 us a kernel, and a megabyte at 40 GB/s */
    cr_assert_eq(price(&pass, "add", &cost, NULL), DS_OK);
    cr_expect_eq(cost.ps, 100000 + 25000000);
    cr_expect_float_eq(cost.spread.high, 1.35, 1e-9);
}

/* Box-1's own profile: the fit of f16 has nine rows and their residuals; memory-bound operations have no
 * row, and are as far off as a transfer. */
Test(cost_relatives, a_fit_without_rows_is_as_far_off_as_a_transfer) {
    ds_work pass = {.kind = DS_WORK_MEMORY, .dtype = DS_F16, .tokens = 1, .bytes_read = 1000000};
    ds_work product = {.kind = DS_WORK_GEMM,
                       .dtype = DS_F16,
                       .batch = 1,
                       .m = 64,
                       .n = 64,
                       .k = 64,
                       .flop = 524288};
    ds_cost cost;
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &near, NULL), DS_OK);
    cr_assert_eq(price(&product, "matmul", &cost, NULL), DS_OK);
    cr_expect_float_eq(cost.spread.low, 0.9, 1e-9);
    cr_assert_eq(price(&pass, "add", &cost, NULL), DS_OK);
    cr_expect_float_eq(cost.spread.low, 1 / 1.35, 1e-9, "%g", cost.spread.low);
    cr_expect_float_eq(cost.spread.high, 1.35, 1e-9);
}

/* 16 x 64 results of k = 64 are one tile, of 131072 FLOP, on one of P processors. Own's products of
 * f16 stay, of whichever format: 2 processors of 3 GFLOP/s together. Box-1 lends f32, at twice the
 * peak: 2 GFLOP/s. */
Test(cost_relatives, products_of_missing_dtypes_are_lent) {
    static const char columns[] =
        "dtype,processors,flop_giga_per_s,memory_gb_per_s,e_max,tail,prologue,port,e_memory,"
        "overlap,launch_us,format,w_min,w_max,n,ratio_p05,ratio_p95,basis,source\n";
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s", columns,
             "f16,4,1,1000000,1,1,0,0,1,0,1,tensor,1,1e15,9,0.9,1.2,rows,s\n",
             "f32,4,1,1000000,1,1,0,0,1,0,1,tensor,1,1e15,9,0.9,1.2,rows,s\n");
    cost_tree_put(&tree, "p/gemm_fits.csv", text);
    cost_tree_put(&tree, "q/profile.csv",
                  "name,device,issue_us,generic,software,source\nQ,Own,2.5,1,by hand,s\n");
    snprintf(text, sizeof text, "%s%s", columns,
             "f16,2,3,1000000,1,1,0,0,1,0,1,block,1,1e15,9,0.8,1.1,rows,s\n");
    cost_tree_put(&tree, "q/gemm_fits.csv", text);
    ds_profiles *q = cost_tree_load(&tree);
    uint32_t kind;
    cr_assert_eq(ds_profiles_find_kind(q, "Own", DS_NOWHERE, &kind, NULL), DS_OK);
    ds_work work = {.kind = DS_WORK_GEMM,
                    .batch = 1,
                    .m = 16,
                    .n = 64,
                    .k = 64,
                    .flop = 131072,
                    .format = "tensor"};
    ds_cost_query query = {.profiles = q,
                           .kind = kind,
                           .profile = ds_profiles_generic(q, kind),
                           .op = "matmul",
                           .work = &work};
    ds_cost cost;
    cr_expect_str_eq(ds_profile_name(q, query.profile), "Q");
    work.dtype = DS_F16;
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, NULL), DS_OK);
    cr_expect_eq(cost.ps, 1000000 + 87381334);
    cr_expect_float_eq(cost.spread.high, 1.1, 1e-9);
    work.dtype = DS_F32;
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, NULL), DS_OK);
    cr_expect_eq(cost.ps, 1000000 + 131072000);
    cr_expect_float_eq(cost.spread.high, 1.2 * 1.35, 1e-9);
    uint32_t after;
    /* of the same peaks, After takes Own's profile with the loan, which is twice as far from rows */
    cr_assert_eq(ds_profiles_find_kind(q, "After", DS_NOWHERE, &after, NULL), DS_OK);
    query.kind = after;
    query.profile = ds_profiles_generic(q, after);
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, NULL), DS_OK);
    cr_expect_eq(cost.ps, 1000000 + 131072000);
    cr_expect_float_eq(cost.spread.high, 1.2 * 1.35 * 1.35, 1e-9);
    /* As if Own had no products: Box-1's of f16, at twice the peak, on Own's two processors. */
    uint32_t box;
    query.kind = kind;
    cr_assert_eq(ds_profiles_find_kind(q, "Box-1", DS_NOWHERE, &box, NULL), DS_OK);
    work.dtype = DS_F16;
    query.profile = ds_profiles_lend(q, kind, box);
    cr_assert_neq(query.profile, 0);
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, NULL), DS_OK);
    cr_expect_eq(cost.ps, 1000000 + 131072000);
    cr_expect_eq(ds_profiles_lend(q, kind, kind), 0);
    cr_expect_eq(ds_profiles_lend(q, box, near), 0);
    ds_profiles_free(q);
}

Test(cost_relatives, no_curve_without_a_peak) {
    ds_work product = {.kind = DS_WORK_GEMM,
                       .dtype = DS_F32,
                       .batch = 1,
                       .m = 64,
                       .n = 64,
                       .k = 64,
                       .flop = 524288};
    ds_cost cost;
    ds_error err = {0};
    cr_expect_eq(price(&product, "matmul", &cost, &err), DS_ERR_COST);
}

Test(cost_relatives, a_loan_is_not_lent) {
    uint32_t far, found;
    cr_assert_eq(ds_profiles_find_kind(p, "Far", DS_NOWHERE, &far, NULL), DS_OK);
    cr_expect_eq(ds_profiles_generic(p, far), 0);
    cr_expect_eq(ds_profiles_find_profile(p, "near-generic", DS_NOWHERE, &found, NULL), DS_OK);
}
