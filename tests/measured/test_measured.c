/* Rows of published tables as work, against formulas of their sources worked out by hand; and the
 * statistics of errors. */
#include "tools/measured/measured.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct table {
    ds_csv csv;
    ds_profiles *profiles;
    ds_arena arena;
    measured_rows rows;
} table;

static ds_status read_table(const char *text, table *t, ds_error *err) {
    *t = (table){0};
    ds_arena_init(&t->arena);
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &t->profiles, err), DS_OK, "%s", err->message);
    cr_assert_eq(ds_csv_parse("t.csv", text, strlen(text), &t->csv, err), DS_OK, "%s",
                 err->message);
    return measured_read(&t->csv, t->profiles, &t->arena, &t->rows, err);
}

static void drop(table *t) {
    ds_csv_deinit(&t->csv);
    ds_profiles_free(t->profiles);
    ds_arena_deinit(&t->arena);
}

static const ds_work *only(const table *t, const char *op) {
    cr_assert_eq(t->rows.n, 1);
    cr_assert_eq(t->rows.at[0].n_parts, 1);
    cr_expect_str_eq(t->rows.at[0].parts[0].op, op);
    return &t->rows.at[0].parts[0].work;
}

Test(measured, a_product_and_its_conversion) {
    table t;
    ds_error err;
    cr_assert_eq(read_table("device,dtype,m,n,k,time_us,kernel,operands,source,split\n"
                            "H100-SXM-80GB,fp8_block,128,256.0,512,1.5e+01,trtllm,random,s,calib\n",
                            &t, &err),
                 DS_OK, "%s", err.message);
    const ds_work *w = only(&t, "matmul");
    cr_expect_eq(w->flop, 2 * 128 * 256 * 512);
    cr_expect_eq(w->bytes_read, 128 * 512 + 256 * 512);
    cr_expect_eq(w->bytes_written, 2 * 128 * 256);
    cr_expect_eq(w->bytes_converted, 4 * 128 * 512); /* 2 read, 1 written and read */
    cr_expect_eq(w->dtype, DS_F8E4M3);
    cr_expect_str_eq(t.rows.at[0].format, "block");
    cr_expect_eq(t.rows.at[0].us, 15);
    drop(&t);
}

/* FLOPs of the tables' README: 2 B H (d + dv) pairs, a causal square of S: S Skv - S²/2. */
Test(measured, attention_counts_what_its_mask_lets_through) {
    static const char head[] = "device,dtype,kernel,direction,causal,window,batch,heads,kv_heads,"
                               "head_dim,head_dim_v,seq_q,seq_kv,time_us,source,split\n";
    const struct {
        const char *cells;
        int64_t flop;
    } cases[] = {
        {"A100,bf16,k,fwd,1,,2,4,2,128,128,1024,1024,9,s,calib",
         2L * 2 * 4 * 256 * 1024 * 1024 / 2},
        {"A100,bf16,k,fwd,0,,2,4,2,128,128,1024,1024,9,s,calib", 2L * 2 * 4 * 256 * 1024 * 1024},
        {"A100,bf16,k,fwd,1,,1,1,1,192,128,512,1024,9,s,calib",
         2L * 320 * (512 * 512 + 512 * 512 / 2)},
        {"A100,bf16,k,bwd,1,,2,4,2,128,128,1024,1024,9,s,calib",
         5 * 2L * 2 * 4 * 128 * 1024 * 1024 / 2},
        /* A window of 3 over 5 keys sees 1 + 2 + 3 + 3 + 3 keys less the half of each diagonal. */
        {"A100,bf16,k,fwd,1,3,1,1,1,64,64,5,5,9,s,calib", 2 * 128 * 21 / 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        table t;
        ds_error err;
        char text[512];
        snprintf(text, sizeof text, "%s%s\n", head, cases[i].cells);
        cr_assert_eq(read_table(text, &t, &err), DS_OK, "%s", err.message);
        bool back = strstr(cases[i].cells, "bwd") != NULL;
        const ds_work *w = only(&t, back ? "attention_grad" : "attention");
        cr_expect_eq(w->value_dim, i == 4 ? 64 : 128); /* the third case has queries of 192 */
        cr_expect_eq(w->flop, cases[i].flop, "case %zu: %lld, not %lld", i, (long long)w->flop,
                     (long long)cases[i].flop);
        drop(&t);
    }
}

/* A rank of 4 has 1024 · 2 / 4 = 512 pairs over 8 / 4 = 2 experts, 14336 / 2 wide. */
Test(measured, experts_share_the_pairs_of_a_rank) {
    table t;
    ds_error err;
    cr_assert_eq(read_table("device,dtype,kernel,model,num_tokens,hidden,inter,experts,topk,moe_tp,"
                            "moe_ep,distribution,time_us,source,split\n"
                            "B200-SXM,bf16,trtllm_cutlass,m,1024,4096,14336,8,2,2,4,balanced,9,s,"
                            "calib\n"
                            "B200-SXM,bf16,trtllm_cutlass,m,1024,4096,14336,8,2,2,4,power_law_1.2,"
                            "9,s,calib\n",
                            &t, &err),
                 DS_OK, "%s", err.message);
    const measured_row *row = &t.rows.at[0];
    int64_t flop = 0;
    for (uint32_t i = 0; i < row->n_parts; i++) flop += row->parts[i].work.flop;
    cr_expect_eq(flop, 6L * 512 * 4096 * (14336 / 2));
    cr_expect(row->parts[0].work.grouped && row->parts[1].work.grouped);
    /* 16 bits each: a pair's token is read, written and, as a result, read; two halves of the first
     * product become one operand; all tokens of the group are read and written. */
    const ds_work *passes = &row->parts[2].work;
    cr_expect_eq(passes->bytes_read + passes->bytes_written,
                 2L * (512 * 3 * 4096 + 512 * 3 * 7168 + 1024 * 2 * 4096));
    cr_expect_null(row->refused);
    cr_expect_not_null(t.rows.at[1].refused);
    drop(&t);
}

Test(measured, deepbench_multiplies_by_columns) {
    table t;
    ds_error err;
    cr_assert_eq(read_table("source,device,precision,op,variant,m,n,k,transA,transB,extra,"
                            "direction,time_us,tflops,notes\n"
                            "x,1080Ti,Float,gemm,,1760,16,2048,N,N,,,58.00,1.7,\n"
                            "x,TitanXp,Float,conv2d,,,,,,,W=700 H=161 C=1 N=4 K=32 R=5 S=20 P=78.5 "
                            "Q=340.5,fwd,122.0,5.5,\n"
                            "x,V100,Float,rnn GRU,,,,,,,Hidden units=2816 N=32 Timesteps=1500,fwd,"
                            "5,,\n",
                            &t, &err),
                 DS_OK, "%s", err.message);
    cr_assert_eq(t.rows.n, 3);
    const ds_work *gemm = &t.rows.at[0].parts[0].work, *conv = &t.rows.at[1].parts[0].work;
    cr_expect_eq(gemm->m, 16);
    cr_expect_eq(gemm->n, 1760);
    cr_expect_eq(conv->flop, 2L * 4 * 32 * 1 * 5 * 20 * 78 * 340); /* 2 N K C R S P Q */
    cr_expect_not_null(t.rows.at[2].refused);
    drop(&t);
}

static void expect_refused(const char *text, const char *says) {
    table t;
    ds_error err;
    cr_assert_eq(read_table(text, &t, &err), DS_ERR_DATA);
    cr_expect_not_null(strstr(err.message, says), "%s", err.message);
    drop(&t);
}

Test(measured, wrong_cells_have_line_and_value) {
#define GEMM "device,dtype,m,n,k,time_us,kernel\n"
    expect_refused(GEMM "A100,bf16,1,1,1,9,k\nA100,bf16,1,1,1,0,k\n", "t.csv:3: time_us = '0'");
    expect_refused(GEMM "A100,bf16,-4,1,1,9,k\n", "t.csv:2: m = '-4'");
    expect_refused(GEMM "A100,bf16,1.5,1,1,9,k\n", "m = '1.5'");
    expect_refused(GEMM "A100,bf16,nan,1,1,9,k\n", "m = 'nan'");
    expect_refused(GEMM "A100,bf16,1e12,1e12,1e12,9,k\n", "more than 2^59");
    expect_refused(GEMM "A100,int7,1,1,1,9,k\n", "dtype = 'int7'");
    expect_refused(GEMM "Z9000,bf16,1,1,1,9,k\n", "t.csv:2: device = 'Z9000'");
    expect_refused("device,colour\nA100,red\n", "t.csv:1: these are the columns of no table");
}

/* 1, 2, 3, 4, 10 per cent: the middle is 3; 90 % of four gaps is 3.6, 4 + 0.6 · 6 = 7.6. */
Test(measured, errors_by_hand) {
    const double errors[] = {-0.10, 0.01, -0.03, 0.02, 0.04};
    measured_errors e = measured_errors_of(errors, 5);
    cr_expect_float_eq(e.median, 0.03, 1e-12);
    cr_expect_float_eq(e.p90, 0.076, 1e-12);
    cr_expect_float_eq(e.bias, -0.012, 1e-12);
    e = measured_errors_of(errors, 2); /* 0.01, 0.10 */
    cr_expect_float_eq(e.median, 0.055, 1e-12);
    cr_expect_float_eq(e.p90, 0.091, 1e-12);
    cr_expect_float_eq(measured_errors_of(errors, 0).median, 0, 0);
}

/* 4096 tokens, two experts of four among 2 devices: none of the two on the other device with
 * (2/4)(1/3), so 2 (1 - 1/6) copies. 8 bits and a scale of 4 bytes for 128 elements. */
Test(measured, a_token_goes_once_to_a_device) {
    table t;
    ds_error err;
    cr_assert_eq(read_table("device,library,op,nodes,ep,tokens_per_rank,hidden,topk,experts,dtype,"
                            "sms,time_us,source,split\n"
                            "H100-SXM-80GB,DeepEP normal (1),dispatch,1,2,4096,1280,2,4,fp8,"
                            "16 (best),9,s,calib\n"
                            "H100-SXM-80GB,DeepEP normal (1),combine,4,32,4096,1280,1,,fp8,,9,s,"
                            "calib\n"
                            "H100-SXM-80GB,DeepEP low-latency (1),combine,1,8,8,1280,8,,bf16,,9,s,"
                            "calib\n",
                            &t, &err),
                 DS_OK, "%s", err.message);
    ds_sending s;
    measured_sending_of(&t.rows.at[0], 1, &s);
    cr_expect_float_eq(s.bytes, 1280 + 40, 1e-9);
    cr_expect_float_eq(s.copies, 5.0 / 3, 1e-9);
    cr_expect_float_eq(s.wired, 5.0 / 6, 1e-9);
    cr_expect_eq(s.n_nodes, 0);
    /* Links of 100 GB/s, half used: 22 ns a token; 16 multiprocessors, each with 8/3 passes of
     * 66 ns: 11 ns. */
    ds_sending_fit f = {5e-6, 1e-6, 0.5, 0.5, 0, 20e9, 1, 1};
    s.link_bytes_per_s = 100e9;
    s.net_bytes_per_s = 10e9;
    cr_expect_float_eq(ds_sending_seconds(&f, &s), 5e-6 + 4096 * 22e-9, 1e-15);
    s.blocks = 4;
    cr_expect_float_eq(ds_sending_seconds(&f, &s), 5e-6 + 4096 * 44e-9, 1e-15);
    /* One expert is on another of 4 nodes in 3 of 4 cases: 2560 bytes at 5 GB/s. */
    measured_sending_of(&t.rows.at[1], 4, &s);
    s.link_bytes_per_s = 100e9;
    s.net_bytes_per_s = 10e9;
    cr_expect_float_eq(s.crossed, 0.75, 1e-9);
    cr_expect_eq(s.blocks, 20);
    cr_expect_float_eq(ds_sending_seconds(&f, &s), 9e-6 + 4096 * 384e-9, 1e-15);
    cr_expect_not_null(t.rows.at[2].refused);
    drop(&t);
}
