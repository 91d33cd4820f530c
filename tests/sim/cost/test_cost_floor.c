/* The least time of an op, curves for products off the grid, and protocols that hold compute,
 * against numbers worked out by hand: 20 TFLOP/s at e = 0.5 are 10 FLOP a picosecond. */
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>

static cost_tree tree;
static ds_profiles *p;
static uint32_t box, profile;

static void set_up(void) {
    cost_tree_init(&tree);
    cost_tree_put(
        &tree, "p/efficiency.csv",
        "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,floor_us,n,"
        "kernels,row_ns,"
        "median_error,p90_error,basis,source\n"
        "gemm,f16,flop,20000,0.5,0,1,1000000000000000,3,0,,,,,assumed: a test,s\n"
        "gemm_ragged,f16,flop,20000,0.25,0,1,1000000000000000,,0,,,,,assumed: a test,s\n"
        "gemm_unaligned,f16,flop,20000,0.05,0,1,1000000000000000,,0,,,,,assumed: a test,s\n"
        "gemm_unaligned_batch,f16,flop,20000,0.01,0,1,1000000000000000,,0,,,,,assumed: a test,s\n"
        "memory,*,bytes,100,1,0,1,1000000000000000,2,0,,,,,assumed: a test,s\n"
        "relu,*,bytes,100,1,0,1,1000000000000000,,0,,,,,assumed: a test,s\n"
        "rms_norm,*,bytes,100,0.25,0,1,1000000000000000,,0,eager,7.5,,,assumed: a test,s\n"
        "rms_norm,*,bytes,100,0.8,0,1,1000000000000000,,0,fused,,,,assumed: a test,s\n"
        "gelu,*,bytes,100,0.5,0,1,1000000000000000,,0,fused,,,,assumed: a test,s\n"
        "gelu,*,bytes,100,0.1,0,1,1000000000000000,,0,,,,,assumed: a test,s\n");
    cost_tree_put(&tree, "p/collective_fits.csv",
                  "collective,group_size,capacity_gb_per_s,alpha_us,launch_us,step_us,e_max,s_half,"
                  "holds_compute,n,median_error,p90_error,basis,source\n"
                  "all_reduce,2,300,0,1,0,1,0,1,0,,,assumed: a test,s\n");
    cost_tree_put(&tree, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,least_bytes,"
                  "most_bytes,n,median_error,p90_error,basis,source\n"
                  "all_reduce,25,x,5,0,0,0.5,0,0,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &box, NULL), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, NULL), DS_OK);
}
static void tear_down(void) {
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
TestSuite(cost_floor, .init = set_up, .fini = tear_down);

static int64_t product(int64_t batch, int64_t m, int64_t n, int64_t k) {
    ds_work work = {.kind = DS_WORK_GEMM,
                    .dtype = DS_F16,
                    .batch = batch,
                    .m = m,
                    .n = n,
                    .k = k,
                    .flop = 2 * batch * m * n * k};
    ds_cost cost;
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){
                .profiles = p, .kind = box, .profile = profile, .op = "matmul", .work = &work},
            DS_COST_FITTED, &cost, NULL, NULL),
        DS_OK);
    return cost.ps;
}

static int64_t pass(const char *op, int64_t bytes) {
    ds_work work = {.kind = DS_WORK_MEMORY, .dtype = DS_F16, .tokens = 1, .bytes_read = bytes};
    ds_cost cost;
    cr_assert_eq(ds_cost_op(
                     &(ds_cost_query){
                         .profiles = p, .kind = box, .profile = profile, .op = op, .work = &work},
                     DS_COST_FITTED, &cost, NULL, NULL),
                 DS_OK);
    return cost.ps;
}

Test(cost_floor, no_op_takes_less) {
    cr_assert_eq(product(1, 64, 64, 64), 3000000); /* 52 ns without */
    cr_assert_eq(product(1, 1024, 1024, 1024), 214748365);
    cr_assert_eq(pass("add", 1000), 2000000); /* 10 ns without */
    cr_assert_eq(pass("add", 1000000), 10000000);
    cr_assert_eq(pass("relu", 1000), 10000); /* a curve of its own, without one */
}

/* 10^6 bytes at 100 GB/s are 10 us at e = 1. */
static int64_t by_kernels(const char *op, ds_kernel_stack kernels, int64_t tokens) {
    ds_work work = {
        .kind = DS_WORK_MEMORY, .dtype = DS_F16, .tokens = tokens, .bytes_read = 1000000};
    ds_cost cost;
    cr_assert_eq(ds_cost_op(&(ds_cost_query){.profiles = p,
                                             .kind = box,
                                             .profile = profile,
                                             .op = op,
                                             .work = &work,
                                             .kernels = kernels},
                            DS_COST_FITTED, &cost, NULL, NULL),
                 DS_OK);
    return cost.ps;
}

Test(cost_floor, kernels_have_curves_of_their_own) {
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_EAGER, 1), 40000000);
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_FUSED, 1), 12500000);
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_OPS, 1), 40000000);      /* eager for unknown */
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_COMPILED, 1), 10000000); /* memory's */
    cr_assert_eq(by_kernels("gelu", DS_KERNELS_FUSED, 1), 20000000);
    cr_assert_eq(by_kernels("gelu", DS_KERNELS_EAGER, 1), 100000000); /* of any kernels */
    cr_assert_eq(by_kernels("gelu", DS_KERNELS_OPS, 1), 100000000);
}

Test(cost_floor, rows_take_a_time_each) {
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_EAGER, 5333), 40000000); /* 39.9975 us */
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_EAGER, 10000), 75000000);
    cr_assert_eq(by_kernels("rms_norm", DS_KERNELS_FUSED, 10000), 12500000);
}

Test(cost_floor, products_off_the_grid) {
    /* 2 1024³ FLOP and their neighbours, at 10, 5 and 1 FLOP a picosecond, and batches off the
     * grid at 0.2 */
    cr_assert_eq(product(1, 1024, 1024, 1024), 214748365);
    cr_assert_eq(product(1, 1024, 1000, 1024), 419430400);  /* 1000 = 125 · 8: no whole lines */
    cr_assert_eq(product(1, 1024, 1001, 1024), 2099249152); /* no whole vectors */
    cr_assert_eq(product(2, 1024, 1000, 1024), 419430400);  /* batches: vectors alone count */
    cr_assert_eq(product(2, 1024, 1001, 1024), 20992491520);
}

Test(cost_floor, compute_is_held_on_the_links_of_the_fit) {
    ds_coll_cost cost;
    ds_coll_links own = {.slowest_bytes_per_s = 300000000000},
                  other = {.slowest_bytes_per_s = 25000000000};
    cr_assert_eq(ds_cost_collective(p, profile, &(ds_coll_demand){"all_reduce", 8, 1 << 20, own},
                                    &cost, NULL, NULL),
                 DS_OK);
    cr_assert(cost.holds_compute);
    cr_assert_eq(ds_cost_collective(p, profile, &(ds_coll_demand){"all_reduce", 8, 1 << 20, other},
                                    &cost, NULL, NULL),
                 DS_OK);
    cr_assert_not(cost.holds_compute);
    cr_assert_eq(cost.launch_ps, 5000000);
    cr_assert(ds_profile_holds_compute(p, profile));
    cr_assert_not(ds_profile_holds_compute(p, 0));
}
