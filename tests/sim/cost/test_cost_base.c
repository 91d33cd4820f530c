/* A profile on a base takes the base's rows and fits times its factors: a product of 2 x 1024^3 FLOP
 * at 10 FLOP a picosecond is 214,748,364.8 ps, three halves of it 322,122,547.2; a collective by a
 * protocol of 4 us, 1 us a step and half of the bandwidth is, doubled, one of 8 us, 2 us and a
 * quarter; an issue of 3 us is 1.5 us at a half. */
#include "tests/support/generate/cost_tree.h"

#include "sim/cost/constant.h"

#include <criterion/criterion.h>
#include <stdio.h>

static cost_tree tree;

static const char curves[] =
    "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
    "p90_error,basis,source\n"
    "gemm,f16,flop,20000,0.5,0,1,1000000000000000,0,,,assumed: a test,s\n"
    "memory,*,bytes,100,1,0,1,1000000000000000,0,,,assumed: a test,s\n";

static void put_tree(const char *base, const char *device) {
    char text[400];
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/profile.csv",
                  "name,device,issue_us,interference,software,source\nP,Box-1,3,0.25,by hand,s\n");
    cost_tree_put(&tree, "p/efficiency.csv", curves);
    cost_tree_put(&tree, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,"
                  "least_bytes,most_bytes,n,median_error,p90_error,basis,source\n"
                  "all_reduce,10,one,4,1,0,0.5,0,0,0,,,assumed: a test,s\n");
    snprintf(text, sizeof text,
             "name,device,issue_us,base,compute_factor,communication_factor,host_factor,software,"
             "source\nmine,%s,0,%s,1.5,2,0.5,calibrated,s\n",
             device, base);
    cost_tree_put(&tree, "q/profile.csv", text);
}

static int64_t product(const ds_profiles *p, uint32_t kind, uint32_t profile) {
    ds_work work = {.kind = DS_WORK_GEMM,
                    .dtype = DS_F16,
                    .batch = 1,
                    .m = 1024,
                    .n = 1024,
                    .k = 1024,
                    .flop = 2 * INT64_C(1024) * 1024 * 1024};
    ds_cost_query query = {
        .profiles = p, .kind = kind, .profile = profile, .op = "matmul", .work = &work};
    ds_cost cost;
    double compute_s, memory_s;
    cr_assert_eq(ds_cost_op(&query, DS_COST_MEASURED, &cost, NULL, NULL), DS_OK);
    ds_cost_sides(&query, &compute_s, &memory_s);
    cr_assert_float_eq(compute_s * 1e12, (double)cost.ps, 1.5);
    return cost.ps;
}

Test(cost_base, factors_multiply_the_times_of_the_base) {
    put_tree("p", "Box-1");
    ds_profiles *p = cost_tree_load(&tree);
    uint32_t kind, own, mine;
    ds_error err;
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &kind, &err), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &own, &err), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "mine", DS_NOWHERE, &mine, &err), DS_OK);
    cr_expect_eq(product(p, kind, own), 214748365);
    cr_expect_eq(product(p, kind, mine), 322122548);
    cr_expect_eq(ds_profile_issue_ps(p, mine), 1500000);
    cr_expect_eq(ds_profile_slow_q32(p, mine), ds_profile_slow_q32(p, own));

    ds_coll_demand demand = {.collective = "all_reduce",
                             .group = 4,
                             .bytes = 1 << 20,
                             .links = {.slowest_bytes_per_s = 10000000000, .n_nodes = 1}};
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(p, mine, &demand, &cost, NULL, &err), DS_OK);
    cr_expect_eq(cost.launch_ps, 8000000);
    cr_expect_eq(cost.step_ps, 2000000);
    cr_expect_eq(cost.efficiency_q32, UINT64_C(1) << 30);
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}

static void is_refused(const char *base, const char *device, const char *message) {
    put_tree(base, device);
    cost_tree_refused(&tree, message);
    cost_tree_deinit(&tree);
}

Test(cost_base, a_base_is_another_profile_of_the_device) {
    is_refused("nobody", "Box-1", "profile 'mine': base = 'nobody': no such profile");
    is_refused("mine", "Box-1", "profile 'mine': base = 'mine': no such profile");
    is_refused("P", "Bare", "profile 'mine': base = 'P' is a profile of Box-1, not of Bare");
}

Test(cost_base, rows_beside_a_base_are_refused) {
    put_tree("P", "Box-1");
    cost_tree_put(&tree, "q/efficiency.csv", curves);
    cost_tree_refused(
        &tree, "DIR/q: efficiency.csv beside a profile with a base, whose rows count instead");
    cost_tree_deinit(&tree);
}
