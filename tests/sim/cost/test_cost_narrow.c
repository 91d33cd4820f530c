/* Products in a dtype of their own, conversions before them, heads narrower than 128 and copies
 * of less than 4 KB: costs against numbers worked out by hand. */
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>

static cost_tree tree;
static ds_profiles *p;
static uint32_t box, profile;

static void set_up(void) {
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/ops.csv",
                  "class,op,dtype,batch,m,n,k,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tokens,"
                  "width,time_us,source\n"
                  "attention,attention,f16,2,,,,8,8,128,128,64,1,,,7,s\n");
    cost_tree_put(&tree, "p/efficiency.csv",
                  "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
                  "p90_error,basis,source\n"
                  "gemm,f8e4m3,flop,40000,0.5,0,1,1e12,0,,,assumed: a test,s\n"
                  "attention,f16,flop,20000,0.5,0,1,1e12,0,,,assumed: a test,s\n"
                  "attention_narrow,f16,flop,20000,0.25,0,1,1e12,0,,,assumed: a test,s\n"
                  "attention_grad_narrow,f16,flop,20000,0.125,0,1,1e12,0,,,assumed: a test,s\n"
                  "memory,*,bytes,100,0.5,0,1,1e12,0,,,assumed: a test,s\n"
                  "dispatch_narrow,*,bytes,100,0.25,0,1,1e12,0,,,assumed: a test,s\n"
                  "combine_narrow,*,bytes,100,0.125,0,1,1e12,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &box, NULL), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, NULL), DS_OK);
}
static void tear_down(void) {
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
TestSuite(cost_narrow, .init = set_up, .fini = tear_down);

static int64_t ps_of(const char *op, ds_cost_mode mode, ds_work work) {
    ds_cost cost;
    ds_error err = {0};
    cr_assert_eq(ds_cost_op(
                     &(ds_cost_query){
                         .profiles = p, .kind = box, .profile = profile, .op = op, .work = &work},
                     mode, &cost, NULL, &err),
                 DS_OK, "%s", err.message);
    return cost.ps;
}

/* 2e9 FLOP at 40e12·0.5 a second are 100 us, and 5e5 bytes at 100e9·0.5 another 10 us: one after
 * the other, not the longer of the two. */
Test(cost_narrow, conversions_come_before_the_product) {
    ds_work w = {.kind = DS_WORK_GEMM,
                 .dtype = DS_F8E4M3,
                 .batch = 1,
                 .m = 1000,
                 .n = 1000,
                 .k = 1000,
                 .flop = 2000000000};
    cr_expect_eq(ps_of("matmul", DS_COST_MEASURED, w), 100000000);
    w.bytes_converted = 500000;
    cr_expect_eq(ps_of("matmul", DS_COST_MEASURED, w), 110000000);
    cr_expect_eq(ps_of("einsum", DS_COST_FITTED, w), 110000000);
}

/* 1e9 FLOP: 100 us at 20e12·0.5, and at half and a quarter of it. */
Test(cost_narrow, heads_have_a_curve_by_their_width) {
    ds_work w = {.kind = DS_WORK_ATTENTION, .dtype = DS_F16, .head_dim = 128, .flop = 1000000000};
    cr_expect_eq(ps_of("attention", DS_COST_FITTED, w), 100000000);
    cr_expect_eq(ps_of("attention_grad", DS_COST_FITTED, w), 100000000);
    w.head_dim = 64;
    cr_expect_eq(ps_of("attention", DS_COST_FITTED, w), 200000000);
    cr_expect_eq(ps_of("attention_grad", DS_COST_FITTED, w), 400000000);
}

/* 5e6 bytes: 100 us at 100e9·0.5, and at half and a quarter of it. 2,048 elements of 16 bits are
 * 4 KB, of 8 bits 2. */
Test(cost_narrow, copies_of_tokens_have_a_curve_by_their_bytes) {
    ds_work w = {.kind = DS_WORK_MEMORY,
                 .dtype = DS_F16,
                 .tokens = 1000,
                 .width = 2048,
                 .bytes_read = 2500000,
                 .bytes_written = 2500000};
    cr_expect_eq(ps_of("dispatch", DS_COST_FITTED, w), 100000000);
    cr_expect_eq(ps_of("combine", DS_COST_FITTED, w), 100000000);
    w.width = 2047;
    cr_expect_eq(ps_of("dispatch", DS_COST_FITTED, w), 200000000);
    cr_expect_eq(ps_of("combine", DS_COST_FITTED, w), 400000000);
    cr_expect_eq(ps_of("combine_grad", DS_COST_FITTED, w), 100000000);
    w.width = INT64_C(1) << 60; /* 2^64 bits */
    cr_expect_eq(ps_of("dispatch", DS_COST_FITTED, w), 100000000);
    w.width = 2048;
    w.dtype = DS_F8E4M3;
    cr_expect_eq(ps_of("dispatch", DS_COST_FITTED, w), 200000000);
}

/* A row was measured over all keys. */
Test(cost_narrow, a_window_takes_no_measured_row) {
    ds_work w = {.kind = DS_WORK_ATTENTION,
                 .dtype = DS_F16,
                 .batch = 2,
                 .heads = 8,
                 .kv_heads = 8,
                 .seq_q = 128,
                 .seq_kv = 128,
                 .head_dim = 64,
                 .causal = true,
                 .flop = 1000000000};
    cr_expect_eq(ps_of("attention", DS_COST_MEASURED, w), 7000000);
    w.window = 64;
    cr_expect_eq(ps_of("attention", DS_COST_MEASURED, w), 200000000);
}
