/* Look-ups against numbers worked out by hand, and against the committed rows themselves. */
#include "ir/base/csv.h"
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cost_tree tree;
static ds_profiles *p;
static uint32_t box, profile;

static void set_up(void) {
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/ops.csv",
                  "class,op,dtype,batch,m,n,k,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tokens,"
                  "width,time_us,source\n"
                  "gemm,gemm,f16,1,64,32,16,,,,,,,,,20,s\n"
                  "gemm,gemm,f16,1,64,32,16,,,,,,,,,10,s\n"
                  "gemm,gemm,f16,1,64,32,16,,,,,,,,,12,s\n"
                  "gemm,gemm,f16,1,128,32,16,,,,,,,,,20,s\n"
                  "gemm,gemm,f16,1,300,32,16,,,,,,,,,50,s\n"
                  "gemm,gemm,f16,2,64,32,16,,,,,,,,,99,s\n"
                  "memory,relu,f32,,,,,,,,,,,10,8,3,s\n"
                  "memory,relu,f32,,,,,,,,,,,10,8,3.000001,s\n"
                  "memory,relu,f32,,,,,,,,,,,20,8,5,s\n"
                  "attention,attention,f16,2,,,,8,8,128,128,64,1,,,7,s\n"
                  "attention,attention,f16,4,,,,8,8,128,128,64,1,,,13,s\n"
                  "attention,attention_grad,f16,2,,,,8,8,128,128,64,1,,,18,s\n");
    cost_tree_put(&tree, "p/efficiency.csv",
                  "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
                  "p90_error,basis,source\n"
                  "gemm,f16,flop,20000,0.5,1e6,1e6,1e9,0,,,assumed: a test,s\n"
                  "gemm,i8,flop,40000,0.5,0,1,1e12,0,,,assumed: a test,s\n"
                  "memory,*,bytes,100,0.5,1e6,1,1e12,0,,,assumed: a test,s\n"
                  "gelu,*,bytes,100,0.25,0,1,1e12,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_kind(p, "Box-1", DS_NOWHERE, &box, NULL), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, NULL), DS_OK);
}
static void tear_down(void) {
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
TestSuite(cost_lookup, .init = set_up, .fini = tear_down);

static ds_work gemm(ds_dtype dtype, int64_t m, int64_t n, int64_t k) {
    int64_t size = dtype == DS_F32 ? 4 : 2;
    return (ds_work){.kind = DS_WORK_GEMM,
                     .dtype = dtype,
                     .batch = 1,
                     .m = m,
                     .n = n,
                     .k = k,
                     .flop = 2 * m * n * k,
                     .bytes_read = size * (m * k + k * n),
                     .bytes_written = size * m * n};
}

static ds_work memory(ds_dtype dtype, int64_t tokens, int64_t width, int64_t bytes) {
    return (ds_work){.kind = DS_WORK_MEMORY,
                     .dtype = dtype,
                     .tokens = tokens,
                     .width = width,
                     .bytes_read = bytes / 2,
                     .bytes_written = bytes - bytes / 2};
}

static ds_cost cost_of(uint32_t of_profile, ds_cost_mode mode, const char *op, ds_work work) {
    ds_cost cost;
    ds_error err = {0};
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){
                .profiles = p, .kind = box, .profile = of_profile, .op = op, .work = &work},
            mode, &cost, NULL, &err),
        DS_OK, "%s", err.message);
    return cost;
}

#define EXPECT(cost, time_ps, from, outside)                                                       \
    do {                                                                                           \
        ds_cost got_ = (cost);                                                                     \
        cr_assert_eq(got_.ps, (time_ps), "%lld ps", (long long)got_.ps);                           \
        cr_assert_eq(got_.origin, (from), "%s", ds_cost_origin_name(got_.origin));                 \
        cr_assert_eq(got_.extrapolated, (outside));                                                \
    } while (0)

Test(cost_lookup, rows_and_medians) {
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", gemm(DS_F16, 64, 32, 16)), 12000000,
           DS_COST_EXACT, false); /* median of 10, 12, 20 us */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "relu", memory(DS_F32, 10, 8, 640)), 3000001,
           DS_COST_EXACT, false); /* mean of 3,000,000 and 3,000,001 ps, rounded up */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", gemm(DS_BF16, 128, 32, 16)), 20000000,
           DS_COST_EXACT, false); /* equal peaks: f16's row stands for bf16 */
}

Test(cost_lookup, interpolation) {
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", gemm(DS_F16, 96, 32, 16)), 16000000,
           DS_COST_INTERPOLATED, false); /* 12 + (20 - 12) 32/64 us */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", gemm(DS_F16, 65, 32, 16)), 12125000,
           DS_COST_INTERPOLATED, false); /* 12 + 8/64 us */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "relu", memory(DS_F32, 13, 8, 832)), 3600001,
           DS_COST_INTERPOLATED, false); /* 3,000,001 + 0.3 · 1,999,999 = 3,600,000.7, rounded up */
    ds_work attention = {.kind = DS_WORK_ATTENTION,
                         .dtype = DS_F16,
                         .batch = 3,
                         .heads = 8,
                         .kv_heads = 8,
                         .seq_q = 128,
                         .seq_kv = 128,
                         .head_dim = 64,
                         .causal = true,
                         .flop = 1000};
    EXPECT(cost_of(profile, DS_COST_MEASURED, "attention", attention), 10000000,
           DS_COST_INTERPOLATED, false);
    attention.causal = false; /* another kernel: no row; 1000 FLOP at 20 TFLOP/s */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "attention", attention), 50, DS_COST_ROOFLINE, false);
    attention.causal = true;
    EXPECT(cost_of(profile, DS_COST_MEASURED, "attention_grad", attention), 50, DS_COST_ROOFLINE,
           false);
    attention.batch = 2;
    EXPECT(cost_of(profile, DS_COST_MEASURED, "attention_grad", attention), 18000000, DS_COST_EXACT,
           false);
}

Test(cost_lookup, no_interpolation_where_rows_are_far_or_differ) {
    /* 128 and 300 are more than 2× apart; 2·200·32·16 = 204,800 FLOP is below the fitted range, so
     * e = e(1e6) = 0.25: 204800/(20e12 · 0.25) s = 40.96 ns; 2(200·16 + 16·32 + 200·32) = 20,224
     * bytes at 100 GB/s take longer. */
    ds_cost far = cost_of(profile, DS_COST_MEASURED, "matmul", gemm(DS_F16, 200, 32, 16));
    EXPECT(far, 202240, DS_COST_ROOFLINE, false);
    cr_assert_eq(cost_of(profile, DS_COST_MEASURED, "matmul", gemm(DS_F16, 96, 32, 17)).origin,
                 DS_COST_ROOFLINE);
    cr_assert_eq(cost_of(profile, DS_COST_MEASURED, "relu", memory(DS_F32, 40, 8, 64)).origin,
                 DS_COST_ROOFLINE, "beyond the last row");
    cr_assert_eq(cost_of(profile, DS_COST_MEASURED, "gelu", memory(DS_F32, 10, 8, 64)).origin,
                 DS_COST_ROOFLINE, "rows of relu are relu's");
}

static ds_work flops(ds_dtype dtype, int64_t flop) {
    return (ds_work){
        .kind = DS_WORK_GEMM, .dtype = dtype, .batch = 1, .m = 1, .n = 1, .flop = flop};
}

Test(cost_lookup, efficiency_curves_and_their_ends) {
    /* e(3e6) = 0.5 · 3/4 = 0.375: 3e6/(20e12 · 0.375) s */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", flops(DS_F16, 3000000)), 400000,
           DS_COST_ROOFLINE, false);
    /* clamped below: e(1e6) = 0.25: 1e5/(20e12 · 0.25) s */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", flops(DS_F16, 100000)), 20000,
           DS_COST_ROOFLINE, true);
    /* clamped above: e(1e9) = 0.5/1.001: 4e9 · 1.001/(20e12 · 0.5) s */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", flops(DS_F16, 4000000000)), 400400000,
           DS_COST_ROOFLINE, true);
    /* a fit carries its own reference rate: i8 has no peak in the catalogue */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "matmul", flops(DS_I8, 2000000)), 100000,
           DS_COST_ROOFLINE, false);
    /* (1e6 + 1e6)/(100e9 · 0.5) s; gelu's own curve: 1e6/(100e9 · 0.25) s */
    EXPECT(cost_of(profile, DS_COST_MEASURED, "tanh", memory(DS_F32, 1, 1, 1000000)), 40000000,
           DS_COST_ROOFLINE, false);
    EXPECT(cost_of(profile, DS_COST_MEASURED, "gelu", memory(DS_F32, 1, 1, 1000000)), 40000000,
           DS_COST_ROOFLINE, false);
    EXPECT(cost_of(profile, DS_COST_MEASURED, "gelu", memory(DS_F32, 1, 1, 4000000)), 160000000,
           DS_COST_ROOFLINE, false);
}

Test(cost_lookup, without_a_profile_the_catalogue_counts) {
    ds_work w = {.kind = DS_WORK_GEMM, .dtype = DS_F32, .batch = 1, .flop = 10000000000};
    EXPECT(cost_of(0, DS_COST_MEASURED, "matmul", w), 1000000000, DS_COST_ROOFLINE, false);
    w.bytes_read = 200000000; /* 2 ms at 100 GB/s beat 1 ms at 10 TFLOP/s */
    EXPECT(cost_of(0, DS_COST_MEASURED, "matmul", w), 2000000000, DS_COST_ROOFLINE, false);
    EXPECT(cost_of(0, DS_COST_MEASURED, "reshape", (ds_work){.kind = DS_WORK_NONE}), 0,
           DS_COST_ROOFLINE, false);
    /* 1 byte at 100 GB/s is 10 ps; 1 FLOP at 10 TFLOP/s is 0.1 ps: up to 1 */
    EXPECT(cost_of(0, DS_COST_MEASURED, "relu", memory(DS_F64, 1, 1, 1)), 10, DS_COST_ROOFLINE,
           false);
    EXPECT(cost_of(0, DS_COST_MEASURED, "matmul", flops(DS_F32, 1)), 1, DS_COST_ROOFLINE, false);
}

Test(cost_lookup, fitted_mode_takes_no_rows) {
    ds_work w = gemm(DS_F16, 64, 32, 16);
    ds_cost fitted = cost_of(profile, DS_COST_FITTED, "matmul", w);
    cr_assert_eq(fitted.origin, DS_COST_ROOFLINE);
    cr_assert_neq(fitted.ps, 12000000);
}

Test(cost_lookup, a_profile_of_another_device_counts_as_none) {
    uint32_t bare;
    ds_cost cost;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_find_kind(p, "bare", DS_NOWHERE, &bare, &err), DS_OK);
    ds_work w = gemm(DS_F16, 64, 32, 16);
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){
                .profiles = p, .kind = bare, .profile = profile, .op = "matmul", .work = &w},
            DS_COST_MEASURED, &cost, NULL, &err),
        DS_ERR_COST);
}

Test(cost_lookup, missing_costs_are_errors_with_names) {
    ds_cost cost;
    ds_error err = {0};
    ds_work w = gemm(DS_F64, 64, 32, 16);
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){
                .profiles = p, .kind = box, .profile = profile, .op = "matmul", .work = &w},
            DS_COST_MEASURED, &cost, NULL, &err),
        DS_ERR_COST);
    cr_assert_str_eq(err.message, "no cost for matmul in f64 on Box-1: the catalogue has no peak "
                                  "and profile P no fit");
    uint32_t bare;
    cr_assert_eq(ds_profiles_find_kind(p, "bare", DS_NOWHERE, &bare, &err), DS_OK);
    w = memory(DS_F32, 10, 8, 640);
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){.profiles = p, .kind = bare, .profile = 0, .op = "relu", .work = &w},
            DS_COST_MEASURED, &cost, NULL, &err),
        DS_ERR_COST);
    cr_assert_str_eq(err.message, "no cost for relu in f32 on Bare: the catalogue has no memory "
                                  "bandwidth and profile ideal no fit");
}

Test(cost_lookup, names) {
    uint32_t kind, found;
    ds_error err = {0};
    const char *spellings[] = {"box-1", "BOX-1", "b1", "Box-One"};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(ds_profiles_find_kind(p, spellings[i], DS_NOWHERE, &kind, &err), DS_OK);
        cr_assert_eq(kind, box);
    }
    const ds_device_kind *k = ds_profiles_kind(p, box);
    cr_assert_str_eq(k->name, "Box-1");
    cr_assert_eq(k->memory_bytes, 1610612736); /* 1.5 GiB */
    cr_assert_eq(k->memory_bytes_per_s, 100000000000);
    cr_assert_eq(k->peak_flop_per_s[DS_F16], 20e12);
    cr_assert_eq(k->peak_flop_per_s[DS_F64], 0);
    cr_assert_str_eq(k->source, "s: somewhere @r1");
    cr_assert_eq(ds_profiles_find_kind(p, "Bix-1", DS_NOWHERE, &kind, &err), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "unknown device \"Bix-1\"; did you mean \"Box-1\"?");
    cr_assert_eq(ds_profiles_find_kind(p, "something else", DS_NOWHERE, &kind, &err), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "unknown device \"something else\"");
    cr_assert_eq(ds_profiles_find_profile(p, "p", DS_NOWHERE, &found, &err), DS_OK);
    cr_assert_eq(found, profile);
    cr_assert_eq(ds_profiles_find_profile(p, "Ideal", DS_NOWHERE, &found, &err), DS_OK);
    cr_assert_eq(found, 0);
    cr_assert_eq(ds_profiles_find_profile(p, "Q", DS_NOWHERE, &found, &err), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "unknown profile \"Q\"; did you mean \"P\"?");
    cr_assert_eq(ds_profiles_find_profile(p, "B1", DS_NOWHERE, &found, &err), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "unknown profile \"B1\"; did you mean \"P\"?", "%s", err.message);
    cr_assert_eq(ds_profiles_find_profile(p, "elsewhere", DS_NOWHERE, &found, &err), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "unknown profile \"elsewhere\"; there are \"P\"", "%s",
                     err.message);
    cr_assert_eq(ds_profile_issue_ps(p, profile), 2500000);
    cr_assert_eq(ds_profile_issue_ps(p, 0), 0);
    cr_assert_eq(ds_profile_kind(p, profile), box);
    cr_assert_eq(ds_profile_kind(p, 0), UINT32_MAX);
}

Test(cost_lookup, the_explanation_names_sources) {
    ds_buf text = {0};
    ds_cost cost;
    ds_work w = gemm(DS_F16, 96, 32, 16);
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){
                .profiles = p, .kind = box, .profile = profile, .op = "matmul", .work = &w},
            DS_COST_MEASURED, &cost, &text, NULL),
        DS_OK);
    cr_assert_not_null(strstr(text.text, "m=64 in f16, median of 3 [s: somewhere @r1]"), "%s",
                       text.text);
    cr_assert_not_null(strstr(text.text, "16000000 ps), interpolated"), "%s", text.text);
    text.n = 0;
    w = flops(DS_F16, 100000);
    cr_assert_eq(
        ds_cost_op(
            &(ds_cost_query){
                .profiles = p, .kind = box, .profile = profile, .op = "matmul", .work = &w},
            DS_COST_MEASURED, &cost, &text, NULL),
        DS_OK);
    cr_assert_not_null(strstr(text.text, "clamped to the fitted range; assumed: a test"), "%s",
                       text.text);
    ds_buf_deinit(&text);
}

/* More work never costs less, over the ends of the fitted range too. */
Test(cost_lookup, the_roofline_is_monotone) {
    int64_t last = 0;
    for (int64_t flop = 1; flop < INT64_C(1) << 50; flop += 1 + flop / 7) {
        ds_cost cost = cost_of(profile, DS_COST_FITTED, "matmul", flops(DS_F16, flop));
        cr_assert_geq(cost.ps, last);
        cr_assert_eq(cost.extrapolated, flop < 1000000 || flop > 1000000000);
        last = cost.ps;
    }
}

/* ---- the committed profiles ---- */

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every row of a profile's ops.csv comes back as the median over the rows of its shape, computed
 * here by the quadratic method. */
static void check_rows(const char *name, const char *file) {
    ds_csv csv;
    ds_error err = {0};
    cr_assert_eq(ds_csv_read(file, &csv, &err), DS_OK, "%s", err.message);
    uint32_t time_at = ds_csv_find(&csv, "time_us"), n_keys = time_at, id;
    cr_assert_eq(ds_profiles_find_profile(p, name, DS_NOWHERE, &id, &err), DS_OK);
    double times[256];
    for (uint32_t i = 0; i < csv.rows.n; i += 7) {
        const char **row = csv.rows.at[i].cells;
        uint32_t n = 0;
        for (uint32_t j = 0; j < csv.rows.n; j++) {
            bool same = true;
            for (uint32_t c = 0; c < n_keys && same; c++)
                same = strcmp(row[c], csv.rows.at[j].cells[c]) == 0;
            if (same && n < 256) times[n++] = atof(csv.rows.at[j].cells[time_at]);
        }
        qsort(times, n, sizeof *times, by_time);
        double median = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
        bool is_gemm = strcmp(row[0], "gemm") == 0;
        ds_work w =
            is_gemm ? gemm(DS_F16, atoll(row[ds_csv_find(&csv, "m")]),
                           atoll(row[ds_csv_find(&csv, "n")]), atoll(row[ds_csv_find(&csv, "k")]))
                    : memory(DS_F16, atoll(row[ds_csv_find(&csv, "tokens")]),
                             atoll(row[ds_csv_find(&csv, "width")]), 1);
        ds_cost cost;
        cr_assert_eq(ds_cost_op(&(ds_cost_query){.profiles = p,
                                                 .kind = ds_profile_kind(p, id),
                                                 .profile = id,
                                                 .op = is_gemm ? "matmul" : row[1],
                                                 .work = &w},
                                DS_COST_MEASURED, &cost, NULL, &err),
                     DS_OK);
        cr_assert_eq(cost.origin, DS_COST_EXACT);
        cr_assert_eq(cost.ps, (int64_t)llround(median * 1e6), "%s:%u", file, csv.rows.at[i].line);
    }
    ds_csv_deinit(&csv);
}

Test(cost_committed, rows_come_back_exactly) {
    p = cost_tree_load_committed();
    check_rows("A100-SXM4-80GB", DS_SOURCE_DIR "/cost_profiles/A100-SXM4-80GB/ops.csv");
    check_rows("H100-SXM5-80GB", DS_SOURCE_DIR "/cost_profiles/H100-SXM5-80GB/ops.csv");
    check_rows("A40", DS_SOURCE_DIR "/cost_profiles/A40/ops.csv");
    ds_profiles_free(p);
}

/* Names what may be meant, in quotes; others may stand among them as profiles are added, but none
 * of another device. */
static void expect_meant(const char *name, const char *const *meant, const char *never) {
    uint32_t found;
    ds_error err = {0};
    char quoted[64];
    cr_assert_eq(ds_profiles_find_profile(p, name, DS_NOWHERE, &found, &err), DS_ERR_NAME);
    snprintf(quoted, sizeof quoted, "unknown profile \"%s\"; did you mean ", name);
    cr_expect_eq(strncmp(err.message, quoted, strlen(quoted)), 0, "%s", err.message);
    for (; *meant; meant++) {
        snprintf(quoted, sizeof quoted, "\"%s\"", *meant);
        cr_expect(strstr(err.message, quoted) != NULL, "%s", err.message);
    }
    cr_expect(strstr(err.message, never) == NULL, "%s", err.message);
}

Test(cost_committed, an_unknown_profile_brings_what_may_be_meant) {
    p = cost_tree_load_committed();
    expect_meant("A100",
                 (const char *const[]){"A100-Galvatron", "A100-SXM4-80GB", "A100-Vidur-DGX",
                                       "A100-Vidur-pairs", NULL},
                 "H100");
    expect_meant("h100-sxm-80gb", (const char *const[]){"H100-SXM5-80GB", "H100-Vidur-DGX", NULL},
                 "A100");
    expect_meant("V100", (const char *const[]){"V100-SXM2-16GB", "V100-DeepBench", NULL},
                 "V100-PCIE-16GB");
    expect_meant("SXM",
                 (const char *const[]){"A100-SXM4-80GB", "B200-SXM-180GB", "H100-SXM5-80GB",
                                       "H200-SXM-141GB", "V100-SXM2-16GB", NULL},
                 "Vidur");
    ds_profiles_free(p);
}

Test(cost_committed, the_catalogue_knows_the_published_figures) {
    p = cost_tree_load_committed();
    static const struct {
        const char *name;
        int64_t gib;
        double f32, f16;
    } known[] = {
        {"A100-SXM-80GB", 80, 19.5e12, 312e12},     {"a100-sxm4-40gb", 40, 19.5e12, 312e12},
        {"V100-PCIE-16GB", 16, 14.13e12, 112.7e12}, {"V100-SXM3-32GB", 32, 15.67e12, 125e12},
        {"H100-SXM-80GB", 80, 67e12, 989e12},       {"1080Ti", 11, 11.34e12, 0.18e12},
        {"P100-SXM2-16GB", 16, 10.6e12, 21.2e12}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t kind;
        ds_error err = {0};
        cr_assert_eq(ds_profiles_find_kind(p, known[i].name, DS_NOWHERE, &kind, &err), DS_OK, "%s",
                     err.message);
        const ds_device_kind *k = ds_profiles_kind(p, kind);
        cr_assert_eq(k->memory_bytes, known[i].gib << 30);
        cr_assert_eq(k->peak_flop_per_s[DS_F32], known[i].f32);
        cr_assert_eq(k->peak_flop_per_s[DS_F16], known[i].f16);
    }
    ds_profiles_free(p);
}

/* Without a capacity whatever is simulated fits. One entry has none: a core of the host that reads
 * the database, which nobody knows. What the driver keeps leaves most of the memory. */
Test(cost_committed, devices_have_capacities) {
    ds_csv csv;
    ds_error err = {0};
    cr_assert_eq(ds_csv_read(DS_SOURCE_DIR "/cost_profiles/catalogue/devices.csv", &csv, &err),
                 DS_OK, "%s", err.message);
    p = cost_tree_load_committed();
    uint32_t name = ds_csv_find(&csv, "name");
    cr_assert_gt(csv.rows.n, 30u);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char *device = csv.rows.at[i].cells[name];
        uint32_t kind;
        cr_assert_eq(ds_profiles_find_kind(p, device, DS_NOWHERE, &kind, &err), DS_OK, "%s",
                     err.message);
        const ds_device_kind *k = ds_profiles_kind(p, kind);
        bool host = strcmp(device, "localhost-core") == 0;
        cr_expect_eq(k->memory_bytes > 0, !host, "%s", device);
        cr_expect_leq(20 * k->reserved.driver_bytes, k->memory_bytes, "%s", device);
    }
    ds_csv_deinit(&csv);
    ds_profiles_free(p);
}
