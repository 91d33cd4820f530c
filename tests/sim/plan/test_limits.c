/* Times and bytes at the ends of int64: exact up to there, and an error that names the op beyond.
 * Numbers of a database: each in its range, or no database. */
#include "tests/support/generate/cost_tree.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define S INT64_C(1000000000000)

/* The step; -1 and the error in *c, which is to be freed either way. */
static int64_t run(sim_case *c, const char *text) {
    sim_run_text(c, text, NULL, false);
    return c->status == DS_OK ? c->result->run.step_ps : -1;
}

static int64_t step(const char *text) {
    sim_case c;
    int64_t ps = run(&c, text);
    sim_free(&c);
    return ps;
}

static void refused(const char *text, uint32_t line, const char *message) {
    sim_case c;
    cr_expect_eq(run(&c, text), -1, "%s", text);
    cr_expect_eq(c.status, DS_ERR_OVERFLOW, "%s", text);
    cr_expect_eq(c.err.loc.line, line, "%s: line %u", c.err.message, c.err.loc.line);
    cr_expect_not_null(strstr(c.err.message, message), "%s", c.err.message);
    sim_free(&c);
}

/* ---- the step ---- */

#define BOX                                                                                        \
    "dir 1\ntopology @box {\n  device gpu[1] : \"A100-SXM4-80GB\"\n}\nmesh @m = [dp = 1] on "      \
    "@box\n"
#define ONE(ops) BOX "func @f(%x: f32[8] on @m) {\n" ops "  return\n}\nscenario { program = @f }\n"

/* 2^63 - 1 ps are 9223372.036854775807 s. */
Test(limits, a_step_ends_before_2_63_ps_or_names_the_op_that_does_not) {
    cr_expect_eq(step(ONE("  %a = relu(%x) {cost = 9223372 s}\n")), 9223372 * S);
    cr_expect_eq(step(ONE("  %a = relu(%x) {cost = 9223372036854775806 ps}\n")), INT64_MAX - 1);
    refused(ONE("  %a = relu(%x) {cost = 9223372036854775807 ps}\n"), 7, "gpu[0] relu f/a");
    refused(ONE("  %a = relu(%x) {cost = 5000000 s}\n  %b = gelu(%a) {cost = 5000000 s}\n"), 8,
            "106 days, the range of int64 picoseconds; the first task to end too late is gpu[0] "
            "gelu f/b");
}

/* The host issues task k at k · 10^18 ps: the ninth starts in time, the tenth does not. */
#define RELU(out, in) "  %" #out " = relu(%" #in ") {cost = 1 s}\n"
#define FOUR          RELU(a, x) RELU(b, a) RELU(c, b) RELU(d, c)
#define NINE          FOUR RELU(e, d) RELU(g, e) RELU(h, g) RELU(i, h) RELU(j, i)
#define ISSUED(ops)                                                                                \
    "dir 1\ntopology @box {\n  device gpu[1] : \"Box-1\"\n}\nmesh @m = [dp = 1] on @box\n"         \
    "func @f(%x: f32[8] on @m) {\n" ops                                                            \
    "  return\n}\nscenario { program = @f, profile = \"P\" }\n"

Test(limits, issue_of_many_tasks) {
    cost_tree tree;
    sim_case c;
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/profile.csv",
                  "name,device,issue_us,software,source\nP,Box-1,1000000000000,by hand,s\n");
    ds_profiles_free(cost_tree_load(&tree));
    sim_run_with(&c, ISSUED(NINE), tree.db);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(c.result->run.step_ps, 9000001 * S);
    sim_free(&c);
    sim_run_with(&c, ISSUED(NINE RELU(k, j)), tree.db);
    cr_expect_eq(c.status, DS_ERR_OVERFLOW);
    cr_expect_not_null(strstr(c.err.message, "the first task to end too late is gpu[0] relu f/k"),
                       "%s", c.err.message);
    sim_free(&c);
    cost_tree_deinit(&tree);
}

/* Degrees whose product wraps to 8 are not the 8 devices that there are. */
#define MODEL(strategy)                                                                            \
    "dir 1\ntopology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n}\n"                            \
    "func @f(%x: f32[8@dp, 8]) -> f32[8, 8] {\n  weight %w : f32[8, 8@tp]\n"                       \
    "  %y = matmul(%x, %w)\n  return %y\n}\n"                                                      \
    "scenario { model = @f, on = @box, strategy { " strategy " } }\n"

Test(limits, degrees_have_31_bits) {
    static const struct {
        const char *text, *message;
    } all[] = {
        {MODEL("dp = 4611686018427387904"), "it must be at most 2147483647"},
        {MODEL("microbatches = 4611686018427387904"), "it must be at most 2147483647"},
        {MODEL("dp = 1073741824, tp = 1073741824, pp = 8, cp = 2"), "at most 2^31 - 1"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sim_case c;
        cr_expect_eq(run(&c, all[i].text), -1);
        cr_expect_not_null(strstr(c.err.message, all[i].message), "%s", c.err.message);
        sim_free(&c);
    }
}

/* A step of 10^18 ps may take a thousand times as long: such an interval has no end. */
Test(limits, an_interval_beyond_2_63_ps_is_none) {
    cost_tree tree;
    sim_case c;
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/profile.csv",
                  "name,device,issue_us,ratio_p05,ratio_p95,software,source\n"
                  "P,Box-1,1000000000000,0.9,1000,by hand,s\n");
    ds_profiles_free(cost_tree_load(&tree));
    sim_run_with(&c, ISSUED(RELU(a, x)), tree.db);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_uncertainty u = ds_result_uncertainty(c.result);
    cr_expect_eq(u.covered_ps, 0);
    cr_expect_eq(u.low_ps, 1000001 * S);
    cr_expect_eq(u.high_ps, 1000001 * S);
    sim_free(&c);
    cost_tree_deinit(&tree);
}

/* ---- collectives ---- */

#define STAR(rate, latency, in, op)                                                                \
    "dir 1\ntopology @star {\n  device d[8] : \"A100-SXM4-80GB\"\n  switch s\n"                    \
    "  link d[i] -- s : " rate ", " latency " for i in 0..8\n}\n"                                  \
    "mesh @m = [dp = 8] on @star\nfunc @f(%x: " in ") {\n  %y = " op                               \
    "\n  return\n}\nscenario { program = @f }\n"
#define ROOT "f32[288230376151711744] on @m{dp=0}" /* 2^60 bytes */

/* 2^60 bytes at 10^12 B/s are 2^60 ps; 7 hops of 2 us around the ring, and 3 levels of a tree whose
 * members have two children. */
Test(limits, broadcast_of_2_60_bytes) {
    int64_t bytes_ps = INT64_C(1) << 60;
    cr_expect_eq(
        step(STAR("1000 GB/s", "1 us", ROOT, "broadcast(%x) over dp {algorithm = \"ring\"}")),
        bytes_ps + 14000000);
    cr_expect_eq(
        step(STAR("1000 GB/s", "1 us", ROOT, "broadcast(%x) over dp {algorithm = \"tree\"}")),
        2 * bytes_ps + 6000000);
    refused(STAR("100 GB/s", "1 us", ROOT, "broadcast(%x) over dp"), 9, "106 days");
}

/* A ring of 8 carries 14/8 of them: 2^62.8 · 14/8 bytes are more than 2^63. */
Test(limits, more_than_2_63_bytes_are_refused) {
    refused(STAR("1000 GB/s", "1 us", "f32[2000000000000000000] partial(dp) on @m",
                 "all_reduce(%x) over dp {algorithm = \"ring\"}"),
            9, "more than 2^63 bytes");
    refused(STAR("9000000 GB/s", "1 us", "f32[576460752303423488] on @m{dp=0}",
                 "broadcast(%x) over dp {algorithm = \"direct\"}"),
            9, "more than 2^63 bytes on one link");
}

Test(limits, latencies_of_weeks) {
    cr_expect_eq(step(STAR("1000 GB/s", "300000 s", "f32[8] partial(dp) on @m",
                           "all_reduce(%x) over dp {algorithm = \"ring\"}")),
                 14 * 600000 * S + 14 * 4);
    refused(STAR("1000 GB/s", "400000 s", "f32[8] partial(dp) on @m",
                 "all_reduce(%x) over dp {algorithm = \"ring\"}"),
            9, "106 days");
}

/* A shift of any size is one modulo the group. */
Test(limits, shifts_are_taken_modulo_the_group) {
    const char *const shifts[] = {"1", "9223372036854775801", "-9223372036854775807"};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        sim_case c;
        char text[1024], setting[40];
        const char *body = STAR("1000 GB/s", "1 us", "f32[8000000@dp] on @m",
                                "permute(%x) over dp {shift = 0 + by}");
        snprintf(text, sizeof text, "dir 1\nparam by = 1\n%s", strchr(body, '\n') + 1);
        snprintf(setting, sizeof setting, "by=%s", shifts[i]);
        sim_run_text(&c, text, setting, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        cr_expect_eq(c.result->run.step_ps, 2000000 + 4000000, "%s", shifts[i]);
        sim_free(&c);
    }
}

/* ---- the database ---- */

static cost_tree tree;
/* The file, to go back to. */
static char image[1 << 18];
static size_t image_n;

static void read_image(void) {
    FILE *f = fopen(tree.db, "rb");
    image_n = fread(image, 1, sizeof image, f);
    fclose(f);
    cr_assert_lt(image_n, sizeof image);
}

static void write_image(void) {
    FILE *f = fopen(tree.db, "wb");
    cr_assert_eq(fwrite(image, 1, image_n, f), image_n);
    fclose(f);
}

static void set_up(void) {
    cost_tree_init(&tree);
    cost_tree_put(
        &tree, "catalogue/clocks.csv",
        "device,power_w,sustained,busy,basis,source\nBox-1,100,0.9,0.5,assumed: a test,s\n");
    cost_tree_put(&tree, "catalogue/memory.csv",
                  "device,what,mib,basis,source\nb1,context,1.5,measured: here,s\n");
    cost_tree_put(&tree, "p/ops.csv",
                  "class,op,dtype,m,n,k,tokens,width,time_us,source\n"
                  "gemm,gemm,f16,1,2,3,,,5,s\n");
    cost_tree_put(&tree, "p/efficiency.csv",
                  "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
                  "p90_error,basis,source\n"
                  "gemm,f16,flop,40000,0.5,0,1,1e12,0,,,assumed: a test,s\n");
    cost_tree_put(
        &tree, "p/gemm_fits.csv",
        "dtype,processors,flop_giga_per_s,memory_gb_per_s,e_max,tail,prologue,port,e_memory,"
        "overlap,launch_us,w_min,w_max,n,basis,source\n"
        "f16,100,20000,100,0.8,1,100,0.1,0.9,0.2,3,1,1e12,0,assumed: a test,s\n");
    cost_tree_put(&tree, "p/collectives.csv",
                  "collective,group_size,size_bytes,time_us,source\nall_reduce,2,1000000,32,s\n");
    cost_tree_put(&tree, "p/collective_fits.csv",
                  "collective,group_size,capacity_gb_per_s,alpha_us,launch_us,step_us,e_max,s_half,"
                  "holds_compute,n,median_error,p90_error,basis,source\n"
                  "all_reduce,2,100,1,10,0,1,0,1,3,,,rows,s\n"
                  "all_gather,2,100,0,0,0,1,100000000000000000,0,3,,,assumed: a test,s\n");
    cost_tree_put(&tree, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,least_bytes,"
                  "most_bytes,n,median_error,p90_error,basis,source\n"
                  "all_to_all,50,ll,5,1,0,0.25,0,0,0,,,assumed: a test,s\n");
    ds_profiles_free(cost_tree_load(&tree));
    read_image();
}
static void tear_down(void) {
    cost_tree_deinit(&tree);
}
TestSuite(limits_db, .init = set_up, .fini = tear_down);

/* Changes the database, as nothing but another program's hands would. */
static void set(const char *table, const char *column, const char *value) {
    char sql[256];
    sqlite3 *db;
    snprintf(sql, sizeof sql,
             "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints "
             "= ON; UPDATE %s SET %s = %s",
             table, column, value);
    cr_assert_eq(sqlite3_open(tree.db, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s: %s", sql,
                 sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void expect_refused(const char *table, const char *column, const char *value) {
    ds_profiles *profiles;
    ds_error err = {0};
    char want[128];
    set(table, column, value);
    snprintf(want, sizeof want, "table %s, row 1: %s is ", table, column);
    cr_expect_eq(ds_profiles_load(tree.db, &profiles, &err), DS_ERR_DATA, "%s = %s of %s", column,
                 value, table);
    cr_expect_not_null(strstr(err.message, want), "%s = %s of %s: %s", column, value, table,
                       err.message);
    ds_profiles_free(profiles);
    write_image();
}

/* Not read by a run, or no number: ids and references are checked as such. */
static bool is_left_out(const char *table, const char *column) {
    static const char *const names[] = {"id",        "source",       "profile",   "device",
                                        "n",         "median_error", "ratio_p25", "ratio_p50",
                                        "ratio_p75", "latency_ps"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], column) == 0 && !(*column == 'n' && strcmp(table, "op_profile") == 0))
            return true;
    return strcmp(table, "link_kind") == 0 || strstr(column, "_median_error") ||
           strstr(column, "_p90_error");
}

/* Every column of the schema that holds a number. */
Test(limits_db, every_number_is_in_its_range) {
    static const char *const tables[] = {"device",
                                         "device_peak",
                                         "device_memory",
                                         "profile",
                                         "device_clock",
                                         "op_profile",
                                         "efficiency_fit",
                                         "gemm_fit",
                                         "collective_profile",
                                         "collective_fit",
                                         "collective_protocol",
                                         "link_kind"};
    char columns[256][2][40];
    uint32_t n = 0, table_of[256];
    sqlite3 *db;
    cr_assert_eq(sqlite3_open(tree.db, &db), SQLITE_OK);
    for (uint32_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        sqlite3_stmt *stmt;
        char sql[80];
        snprintf(sql, sizeof sql, "PRAGMA table_info(%s)", tables[t]);
        cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
        for (; sqlite3_step(stmt) == SQLITE_ROW; n++) {
            cr_assert_lt(n, 256);
            table_of[n] = t;
            for (int k = 0; k < 2; k++)
                snprintf(columns[n][k], sizeof *columns[n], "%s", sqlite3_column_text(stmt, k + 1));
        }
        sqlite3_finalize(stmt);
    }
    sqlite3_close(db);
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *table = tables[table_of[i]], *column = columns[i][0];
        if (strcmp(columns[i][1], "TEXT") == 0 || is_left_out(table, column)) continue;
        n_checked++;
        expect_refused(table, column, "-1");
        if (strcmp(columns[i][1], "INTEGER") == 0) {
            expect_refused(table, column, "4611686018427387904");
            expect_refused(table, column, "-9223372036854775807 - 1");
        } else {
            expect_refused(table, column, "9e999");
            expect_refused(table, column, "-1e-300");
        }
    }
    cr_expect_eq(n_checked, 93, "%u", n_checked);
}

/* An infinite fit made a time of "-nan s". */
Test(limits_db, what_is_tiny_is_no_efficiency) {
    expect_refused("efficiency_fit", "e_max", "1e-320");
    expect_refused("gemm_fit", "e_max", "1e-320");
    expect_refused("gemm_fit", "e_memory", "1e-320");
    expect_refused("collective_fit", "e_max", "1e-320");
    expect_refused("collective_protocol", "e", "1e-320");
}

Test(limits_db, a_cell_of_a_table_of_csv) {
    cost_tree_put(&tree, "p/ops.csv",
                  "class,op,dtype,m,n,k,time_us,source\ngemm,gemm,f16,1,2,3,1000000000001,s\n");
    ds_error err = {0};
    cr_expect_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_ERR_DATA);
    cr_expect_not_null(strstr(err.message, "/p/ops.csv:2: time_us = '1000000000001': time_ps would "
                                           "be 1e+18: it must be from 1 to 1e+18"),
                       "%s", err.message);
}

/* 8 bytes: e = 8/(8 + 10^17) = 8e-17 of 100 GB/s. A ring over 2 puts half of them on its links:
 * 4 bytes/(100 GB/s · e) = 5e5 s, whatever part of it is called latency. */
Test(limits_db, a_tiny_efficiency_takes_its_time) {
    ds_profiles *profiles;
    uint32_t profile;
    ds_coll_cost cost;
    cr_assert_eq(ds_profiles_load(tree.db, &profiles, NULL), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(profiles, "P", DS_NOWHERE, &profile, NULL), DS_OK);
    cr_assert_eq(ds_cost_collective(profiles, profile,
                                    &(ds_coll_demand){"all_gather", 2, 8, (ds_coll_links){0}},
                                    &cost, NULL, NULL),
                 DS_OK);
    double flow_s = 4 / (1e11 * ((double)cost.efficiency_q32 * 0x1p-32));
    cr_expect_float_eq((double)cost.launch_ps * 1e-12 + flow_s, 5e5, 1e-3);
    ds_profiles_free(profiles);
}
