/* Attention by blocks and waves: closed forms by hand, the fit on rows made from known constants,
 * the kernel that a look-up takes, and the committed constants against measured rows. */
#include "sim/cost/fit/attention.h"
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>

/* Four processors of 1 GFLOP/s each, blocks of 128 rows, memory out of the way, full waves. */
static ds_attention_model plain(void) {
    return (ds_attention_model){.processors = 4,
                                .block_rows = 128,
                                .head_step = 64,
                                .flop_per_s = 4e9,
                                .bytes_per_s = 1e30,
                                .skips_window = true,
                                .e_max = 1,
                                .tail = 1,
                                .e_memory = 1};
}

static ds_attention_shape square(int64_t heads, int64_t seq) {
    return (ds_attention_shape){.batch = 1,
                                .heads = heads,
                                .kv_heads = heads,
                                .seq_q = seq,
                                .seq_kv = seq,
                                .head_dim = 64,
                                .value_dim = 64,
                                .bytes = 1};
}

static double seconds(const ds_attention_model *m, ds_attention_shape s) {
    return ds_attention_seconds(m, &s, NULL);
}

static void near(double got, double wanted, const char *what) {
    cr_expect_leq(fabs(got / wanted - 1), 1e-12, "%s: %.12g, not %.12g", what, got, wanted);
}

/* 128 queries and 128 keys of a head of 64 + 64 dims. */
#define BLOCK (2.0 * 128 * 128 * 128 / 1e9)

Test(attention, one_block_as_many_as_processors_and_one_more) {
    ds_attention_model m = plain();
    near(seconds(&m, square(1, 128)), BLOCK, "one block");
    near(seconds(&m, square(4, 128)), BLOCK, "a block a processor");
    near(seconds(&m, square(5, 128)), 2 * BLOCK, "one block more: two waves");
    near(seconds(&m, square(8, 128)), 2 * BLOCK, "two a processor");
    m.tail = 0.5;
    near(seconds(&m, square(5, 128)), (1.25 + 0.5 * 0.75) * BLOCK, "half a tail");
    near(seconds(&m, square(1, 1)), 128 * 2.0 * 16 / 1e9 / 4,
         "one query, packed into 16 rows, its keys over four processors");
}

/* Four blocks of rows see 1, 2, 3 and 4 blocks of keys. */
Test(attention, causal_blocks_take_the_diagonal_whole) {
    ds_attention_model m = plain();
    ds_attention_shape s = square(1, 512);
    s.causal = true;
    near(seconds(&m, s), 4 * BLOCK, "a processor each: the last block counts");
    s.batch = 2;
    near(seconds(&m, s), (20.0 / 4 + 4) * BLOCK, "eight blocks: the mean, and one longest block");
    m.tail = 0;
    near(seconds(&m, s), 20.0 / 4 * BLOCK, "no tail: 20 blocks of keys on four processors");
    m.processors = 1;
    m.flop_per_s = 1e9;
    s.batch = 1;
    near(seconds(&m, s), 10 * BLOCK, "one processor: 1 + 2 + 3 + 4");
    s.seq_kv = 512 + 256; /* 256 keys before the first query */
    near(seconds(&m, s), (3 + 4 + 5 + 6) * BLOCK, "a chunk");
    s.seq_kv = 512;
    s.window = 128; /* the window and the block's own rows */
    near(seconds(&m, s), (1 + 2 + 2 + 2) * BLOCK, "a window");
    m.skips_window = false;
    near(seconds(&m, s), 10 * BLOCK, "a window that the kernel computes whole");
}

Test(attention, dims_scores_prologue_and_passes) {
    ds_attention_model m = plain();
    ds_attention_shape s = square(4, 128);
    s.head_dim = 192;
    s.value_dim = 128;
    near(seconds(&m, s), 2.0 * 128 * 128 * 320 / 1e9, "192 and 128 dims");
    s.head_dim = 65;
    near(seconds(&m, s), 2.0 * 128 * 128 * 256 / 1e9, "65 dims in two steps of 64");
    s = square(4, 128);
    s.backward = true;
    near(seconds(&m, s), 2.5 * BLOCK, "five products");
    s.backward = false;
    m.score = 32;
    near(seconds(&m, s), 1.25 * BLOCK, "a score costs 32 of 128 dims more");
    m.score = 0;
    m.prologue = 64;
    near(seconds(&m, s), 2 * BLOCK, "64 keys of 256 dims more");
    m.prologue = 0;
    m.launch_s = 1e-3;
    m.token_s = 1e-6;
    near(seconds(&m, s), BLOCK + 1e-3 + 128e-6, "a launch, and what each key costs");
}

Test(attention, memory_beside_compute) {
    ds_attention_model m = plain();
    ds_attention_shape s = square(4, 128);
    m.bytes_per_s = 1e9;
    m.e_memory = 0.5;
    m.overlap = 0.25;
    s.bytes = 1e6; /* 2 ms */
    near(seconds(&m, s), BLOCK + 0.25 * 2e-3, "compute is longer");
    s.bytes = 1e7; /* 20 ms */
    near(seconds(&m, s), 20e-3 + 0.25 * BLOCK, "memory is longer");
    s.kv_heads = 2;
    near(ds_attention_bytes(&s, 2), 2 * 128.0 * (4 + 2) * 128, "q, k, v and the result");
    s.backward = true;
    near(ds_attention_bytes(&s, 2), 4 * 128.0 * (4 + 2) * 128, "and their gradients");
}

/* 32 query heads of 8 key heads: four rows of 16 a key head, on keys cut over the processors. */
Test(attention, one_query_is_bound_by_the_reading_of_keys) {
    ds_attention_model m = plain();
    ds_attention_shape s = square(32, 1024);
    s.kv_heads = 8;
    s.seq_q = 1;
    near(seconds(&m, s), 8.0 / 4 * 2 * 16 * 1024 * 128 / 1e9, "decoding");
}

/* ---- the fit ---- */

#define N_ROWS 160

Test(attention, the_fit_finds_what_the_rows_were_made_with) {
    ds_attention_model known = {.processors = 132,
                                .block_rows = 128,
                                .head_step = 64,
                                .flop_per_s = 1e15,
                                .bytes_per_s = 3e12,
                                .skips_window = true,
                                .e_max = 0.8,
                                .score = 50,
                                .prologue = 250,
                                .tail = 0.5,
                                .e_memory = 0.5,
                                .overlap = 0.5,
                                .launch_s = 8e-6};
    ds_attention_row rows[N_ROWS];
    for (uint32_t i = 0; i < N_ROWS; i++) {
        uint32_t size = i % 8, family = i / 8 % 10;
        ds_attention_shape s = square(8 << family % 4, 256 << size);
        s.batch = 1 + i / 80;
        s.head_dim = s.value_dim = family % 3 ? 128 : 64;
        s.causal = i % 2;
        s.bytes = ds_attention_bytes(&s, 2);
        rows[i] = (ds_attention_row){.shape = s, .family = family, .size = size};
        rows[i].seconds = seconds(&known, s);
    }
    ds_attention_model start = known;
    start.e_max = 0.6;
    start.score = 100;
    start.tail = 0.8;
    start.launch_s = 3e-6;
    ds_attention_fit_result r;
    ds_error err;
    cr_assert_eq(ds_fit_attention(rows, N_ROWS, &start, true, &r, &err), DS_OK, "%s", err.message);
    cr_expect_lt(r.seen.p90, 0.02, "p90 %g", r.seen.p90);
    cr_expect_lt(r.family.p90, 0.04, "p90 of families left out %g", r.family.p90);
    cr_expect_lt(r.size.p90, 0.04, "p90 of sizes left out %g", r.size.p90);
    cr_expect_float_eq(r.model.e_max, 0.8, 0.02, "e_max %g", r.model.e_max);
    cr_expect_float_eq(r.model.launch_s * 1e6, 8, 0.4, "launch %g", r.model.launch_s);
    cr_expect_eq(r.model.token_s, 0);
    cr_expect_lt(r.ratios[0], r.ratios[4]);
    cr_expect_eq(ds_fit_attention(rows, 5, &start, false, &r, &err), DS_ERR_VALUE);
    rows[3].seconds = 0;
    cr_expect_eq(ds_fit_attention(rows, N_ROWS, &start, false, &r, &err), DS_ERR_VALUE);
}

/* ---- in a look-up ---- */

#define FITS                                                                                       \
    "kernel,direction,dtype,dim_least,dim_most,default,processors,flop_giga_per_s,"                \
    "memory_gb_per_s,block_rows,head_step,skips_window,e_max,score,prologue,tail,e_memory,"        \
    "overlap,launch_us,token_ns,w_min,w_max,n,ratio_p05,ratio_p95,rows_device,rows_kernel,basis,"  \
    "source\n"
#define REST ",4,4,1000000,128,64,1,1,0,0,1,1,0,"

static int64_t ps_of(const ds_profiles *p, const char *op, const char *kernel, ds_work w) {
    uint32_t kind, profile;
    ds_error err;
    ds_cost cost;
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &kind, &err), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, &err), DS_OK);
    ds_cost_query query = {
        .profiles = p, .kind = kind, .profile = profile, .op = op, .work = &w, .kernel = kernel};
    cr_assert_eq(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, &err), DS_OK, "%s", err.message);
    double compute, memory;
    ds_cost_sides(&query, &compute, &memory);
    cr_expect_leq(fmax(compute, memory) * 1e12 * (1 - 1e-12), (double)cost.ps);
    return cost.ps;
}

/* BLOCK is 4.194304 ms, and each kernel has its own launch. */
Test(attention, a_look_up_takes_the_kernel_that_is_named_or_the_default) {
    cost_tree tree;
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/attention_fits.csv",
                  FITS "one,fwd,f16,1,128,0" REST "1,0,1,1e12,9,0.9,1.2,d,k,by hand,s\n"
                       "two,fwd,f16,1,64,1" REST "2,0,1,1e12,9,0.9,1.2,d,k,by hand,s\n"
                       "two,fwd,f16,65,128,1" REST "3,0,1,1e12,9,0.9,1.2,d,k,by hand,s\n"
                       "two:det,fwd,f16,1,64,0" REST "4,0,1,1e12,9,0.9,1.2,d,k,by hand,s\n"
                       "two,bwd,f16,1,64,1" REST "5,0,1,1e12,9,0.9,1.2,d,k,by hand,s\n");
    ds_profiles *p = cost_tree_load(&tree);
    ds_work w = {.kind = DS_WORK_ATTENTION,
                 .dtype = DS_BF16,
                 .batch = 1,
                 .heads = 4,
                 .kv_heads = 4,
                 .seq_q = 128,
                 .seq_kv = 128,
                 .head_dim = 64,
                 .value_dim = 64,
                 .flop = 16777216};
    int64_t block = INT64_C(4194304000), us = 1000000;
    cr_expect_eq(ps_of(p, "attention", NULL, w), block + 2 * us);
    cr_expect_eq(ps_of(p, "attention", "one", w), block + 1 * us);
    cr_expect_eq(ps_of(p, "attention", "two:det", w), block + 4 * us);
    cr_expect_eq(ps_of(p, "attention", "two:other", w), block + 2 * us);
    cr_expect_eq(ps_of(p, "attention", "onerous", w), block + 2 * us, "a longer word");
    cr_expect_eq(ps_of(p, "attention", "absent", w), block + 2 * us);
    cr_expect_eq(ps_of(p, "attention_grad", "one", w), 5 * block / 2 + 5 * us);
    w.head_dim = w.value_dim = 128;
    cr_expect_eq(ps_of(p, "attention", NULL, w), 2 * block + 3 * us);
    w.stores_scores = true; /* no fused kernel: the catalogue's 20 TFLOP/s */
    cr_expect_lt(ps_of(p, "attention", NULL, w), us);
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
