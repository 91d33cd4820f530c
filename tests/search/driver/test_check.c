/* Rows simulated again by themselves (search/driver/check.h). Of random sweeps every row comes out
 * the same, device by device: what candidates share changes none. And a row that is wrong is told.
 */
#include "search/driver/check.h"
#include "tests/support/cases.h"
#include "tests/support/generate/spaces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random sweeps ---- */

/* Every row of a sample of each of n sweeps. */
static void check_many(bool wide, uint64_t n) {
    enum { ROWS = 24 };
    const char *wanted = getenv("DISTSIM_TEST_CHECKS");
    uint64_t unfolded = 0;
    if (wanted) n = strtoull(wanted, NULL, 10);
    for (uint64_t seed = 1; seed <= n; seed++) {
        sweep_case c;
        ds_sweep_result r;
        if (wide)
            random_wide_space(seed, &c);
        else
            random_space(seed, 4, 2000, &c);
        cr_assert_eq(c.status, DS_OK, "seed %llu: %s", (unsigned long long)seed, c.err.message);
        printf("seed %llu\n", (unsigned long long)seed);
        sweep_run(&c,
                  &(ds_sweep_options){.path = "/dev/null",
                                      .method = "random",
                                      .max_rows = ROWS,
                                      .check = 1,
                                      .n_workers = 2},
                  &r, DS_OK);
        cr_expect_eq(r.checked, r.rows);
        cr_expect_eq(r.beyond, 0);
        unfolded += r.unfolded;
        ds_sweep_result_deinit(&r);
        sweep_close(&c);
    }
    cr_expect_gt(unfolded, n * ROWS / 2);
}

#define N_SWEEPS (FEW_CASES ? 3 : 60)

Test(check, random_sweeps) {
    check_many(false, N_SWEEPS);
}

Test(check, random_wide_sweeps) {
    check_many(true, N_SWEEPS);
}

/* ---- which rows ---- */

static const char small[] =
    "dir 1\nparam dp = 1, tp = 1, mb = 1, layers = 4\n"
    "import \"models/mlp.dir\" as mlp with layers = layers, batch = 64 * mb, width = 64\n"
    "topology @box { device gpu[8] : \"A100-SXM4-80GB\"\n"
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..8 }\n"
    "scenario { model = @mlp.mlp, on = @box, train { loss = mse, optimizer = adam }\n"
    "  strategy { dp = dp, tp = tp, microbatches = mb } }\n"
    "sweep { layers in 3..13, dp in [1, 2, 4], tp in [1, 2], mb in [1, 8], zero in [0, 2]\n"
    "  where tp < 3\n  minimize step_time }\n";

static void run_text(const char *text, const char *path, const ds_sweep_options *options,
                     ds_sweep_result *r) {
    ds_sweep_options own = *options;
    sweep_case c;
    own.path = path;
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    sweep_run(&c, &own, r, DS_OK);
    ds_sweep_result_deinit(r);
    sweep_close(&c);
}

static void run(const char *path, const ds_sweep_options *options, ds_sweep_result *r) {
    run_text(small, path, options, r);
}

/* What judges find (prices), and what is not known (samples of a program), is no difference. */
Test(check, prices_and_unknown_sizes) {
    static const char box[] = "dir 1\nparam speed = 100\n"
                              "topology @box { device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"
                              "  link gpu[i] -- s : speed GB/s, 1 us for i in 0..4 }\n"
                              "mesh @m = [dp = 4] on @box\n"
                              "func @f(%x: f32[64@dp, 64] on @m) -> f32[64@dp, 64] on @m {\n"
                              "  %y = relu(%x)\n  return %y\n}\n"
                              "scenario { program = @f }\n"
                              "sweep { speed in [100, 200]\n  price 2\n  minimize cost }\n";
    for (uint64_t every = 0; every < 2; every++) {
        ds_sweep_result r;
        run_text(box, "/dev/null", &(ds_sweep_options){.check = every}, &r);
        cr_expect_eq(r.rows, 2);
        cr_expect_eq(r.checked, every ? 2 : 1);
    }
}

/* Of 240 rows a quarter, give or take; the same ones for threads and shards, and no other table. */
Test(check, rows_are_drawn_by_their_hash) {
    char folder[64], path[100];
    ds_sweep_result whole, other;
    uint64_t sum = 0;
    size_t n, m;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    run(path, &(ds_sweep_options){.check = DS_CHECK_NONE}, &whole);
    cr_expect_eq(whole.rows, 240);
    cr_expect_eq(whole.checked, 0);
    char *unchecked = sweep_read(path, &n);
    run(path, &(ds_sweep_options){.check = 4, .n_workers = 3, .overwrite = true}, &whole);
    cr_expect(whole.checked > 30 && whole.checked < 90, "%llu", (unsigned long long)whole.checked);
    char *checked = sweep_read(path, &m);
    cr_expect(n == m && memcmp(unchecked, checked, n) == 0);
    for (uint32_t i = 0; i < 3; i++) {
        run("/dev/null", &(ds_sweep_options){.check = 4, .shard = i, .n_shards = 3, .n_workers = 1},
            &other);
        sum += other.checked;
    }
    cr_expect_eq(sum, whole.checked);
    free(unchecked);
    free(checked);
    sweep_remove_folder(folder);
}

/* By default one at least, also of a table that is complete, but none when time is over. No row is
 * drawn by its hash (one in 1024 is): a row that was drawn and read again counts as checked. */
Test(check, at_least_one_row) {
    char folder[64], path[100];
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    run(path, &(ds_sweep_options){.max_rows = 5}, &r);
    cr_expect_eq(r.checked, 1);
    cr_expect_eq(r.unfolded, 1);
    run(path, &(ds_sweep_options){.max_rows = 5, .resume = true}, &r);
    cr_expect_eq(r.here, 0);
    cr_expect_eq(r.checked, 1);
    run(path, &(ds_sweep_options){.check = 1, .resume = true, .max_seconds = 1e-9}, &r);
    cr_expect_eq(r.rows, 5);
    cr_expect_eq(r.checked, 0);
    sweep_remove_folder(folder);
}

/* ---- wrong rows ---- */

typedef struct liar {
    ds_eval eval, *behind;
    void (*lie)(ds_outcome *outcome);
} liar;

static void tell_lies(ds_eval *eval, const ds_candidate *candidate, ds_outcome *outcome) {
    liar *l = (liar *)eval;
    l->behind->run(l->behind, candidate, outcome);
    l->lie(outcome);
}

static void free_liar(ds_eval *eval) {
    liar *l = (liar *)eval;
    l->behind->free(l->behind);
}

static void later(ds_outcome *o) {
    o->metrics.step_ps++;
}
static void larger(ds_outcome *o) {
    o->metrics.peak_bytes++;
}
static void longer_bubble(ds_outcome *o) {
    o->metrics.bubble_fraction += 1e-6;
}
static void last_bit(ds_outcome *o) {
    o->metrics.mfu *= 1 + 1e-15;
}
static void refused(ds_outcome *o) {
    o->verdict = DS_VERDICT_ILLEGAL;
    ds_buf_put(&o->reason, "no");
}

static void expect(void (*lie)(ds_outcome *outcome), const char *what) {
    sweep_case c;
    ds_space *space;
    ds_arena arena;
    ds_error err;
    bool found;
    liar l = {{tell_lies, free_liar}, NULL, lie};
    ds_outcome outcome = {0};
    const ds_check check = ds_check_of(1);
    sweep_open_text(&c, small, NULL);
    cr_assert_eq(ds_space_new(&c.binding, c.settings, c.n_settings, &space, &err), DS_OK);
    ds_eval_source source = {.path = c.path,
                             .text = c.text,
                             .text_n = strlen(c.text),
                             .space = space,
                             .profiles = c.profiles,
                             .content = ds_eval_content(c.unit, c.profiles)};
    ds_arena_init(&arena);
    ds_candidate candidate = ds_candidate_new(space, &arena);
    cr_assert_eq(ds_space_next(space, &candidate, &found, &err), DS_OK);
    cr_assert_eq(ds_eval_new_simulation(&source, &l.behind, &err), DS_OK);
    ds_eval *eval = ds_eval_new_checked(&check, &source, &l.eval);
    eval->run(eval, &candidate, &outcome);
    cr_expect_eq(outcome.checked, DS_CHECKED_UNFOLDED);
    cr_expect_eq(outcome.is_wrong, what != NULL, "%s", outcome.reason.text);
    if (what) {
        cr_expect_eq(ds_check_fail(&source, &candidate, &outcome, &err), DS_ERR_INTERNAL);
        cr_expect_eq(ds_status_exit_code(err.code), 3);
        cr_expect_not_null(strstr(err.message, what), "%s", err.message);
        cr_expect_not_null(
            strstr(err.message,
                   "test.dir --unfold --cost fitted --set 'layers=3' "
                   "--set 'dp=1' --set 'tp=1' --set 'mb=1' --set 'strategy.zero=0'` says"),
            "%s", err.message);
    }
    eval->free(eval);
    ds_outcome_deinit(&outcome);
    ds_arena_deinit(&arena);
    ds_space_free(space);
    sweep_close(&c);
}

Test(check, tells_what_is_wrong) {
    expect(later, "candidate 0 is wrong: step_time_ps is ");
    expect(larger, "candidate 0 is wrong: peak_memory is ");
    expect(longer_bubble, "candidate 0 is wrong: bubble is ");
    expect(refused, "candidate 0 is wrong: status is illegal in the row and ok now; reason is no");
    expect(last_bit, NULL);
}
