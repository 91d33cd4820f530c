/* Limits on time and on rejections: a sweep ends there, what is not done is no row, and `resume`
 * goes on. Stops that are due from the start stand for those that come due, so that no test looks
 * at the clock: whatever asks them ends, whatever does not ask runs to its end. */
#include "search/compose/compose.h"
#include "tests/support/sim.h"
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box { device gpu[8] : \"A100-SXM4-80GB\"\n"                                         \
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..8 }\n"

/* No candidate: a million million values, all rejected. */
static const char rejecting[] =
    "dir 1\nparam q = 1\n" BOX "mesh @m = [dp = 8] on @box\n"
    "func @f(%x: f32[64, 64] on @m) -> f32[64, 64] on @m {\n"
    "  %y = relu(%x)\n  return %y\n}\n"
    "scenario { program = @f }\n"
    "sweep { q in 0..1000000000000 where q == -1, minimize step_time }\n";

/* Few candidates. */
#define MODEL(params, more, sweep)                                                                 \
    "dir 1\nparam " params                                                                         \
    "\nimport \"models/mlp.dir\" as mlp with layers = layers, batch = batch, "                     \
    "width = 64\n" BOX "scenario { model = @mlp.mlp, on = @box, train { loss = mse, "              \
    "optimizer = adam }\n  " more " }\nsweep { " sweep ", minimize step_time }\n"
static const char small[] = MODEL("dp = 1, tp = 1, layers = 4, batch = 64",
                                  "strategy { dp = dp, tp = tp }", "dp in [1, 2, 4], tp in [1, 2]");

static char *run(const char *text, ds_sweep_options options, ds_sweep_result *out, size_t *n) {
    char folder[64], path[100];
    sweep_case c;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    options.path = path;
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    sweep_run(&c, &options, out, DS_OK);
    ds_sweep_result_deinit(out);
    cr_expect_null(c.unit->stop);
    sweep_close(&c);
    char *rows = sweep_read(path, n);
    sweep_remove_folder(folder);
    return rows;
}

static int lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* ---- the clock ---- */

Test(stop, is_due_when_it_is) {
    ds_stop stop = {0};
    cr_expect_not(ds_stop_due(NULL));
    cr_expect_not(ds_stop_due(&stop));
    ds_stop_set(&stop, 0, 1e-9); /* a nanosecond after the machine's start */
    cr_expect(ds_stop_due(&stop));
    ds_error err;
    cr_expect_eq(ds_stop_check(&stop, &err), DS_ERR_STOPPED);
    const double never[] = {0, -1, 1e9, 1e18, 1e300};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        ds_stop_set(&stop, ds_clock_ns(), never[i]);
        cr_expect_not(ds_stop_due(&stop), "%g", never[i]);
    }
    int64_t before = ds_clock_ns();
    cr_expect_geq(ds_clock_ns(), before);
}

/* ---- sweeps ---- */

/* Without a limit that reaches into the walk these never end. */
Test(stop, time_ends_rejections) {
    const char *const methods[] = {"grid", "random", "beam", "anneal", "mcmc"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        ds_sweep_result r;
        ds_sweep_options options = {.method = methods[i], .max_seconds = 0.02};
        char *rows = run(rejecting, options, &r, NULL);
        cr_expect_eq(r.rows, 0);
        cr_expect_not(r.complete, "%s", methods[i]);
        cr_expect_eq(r.end, DS_SWEEP_END_TIME, "%s", methods[i]);
        cr_expect_eq(lines(rows), 1);
        free(rows);
    }
}

Test(stop, rows_end_rejections) {
    ds_sweep_result r;
    free(run(rejecting, (ds_sweep_options){.max_rows = 1}, &r, NULL));
    cr_expect_eq(r.rows, 0);
    cr_expect_not(r.complete);
    cr_expect_eq(r.end, DS_SWEEP_END_REJECTED);
}

/* A candidate of minutes that is under way when the time is over is no row. */
Test(stop, time_ends_a_candidate) {
    const char *const texts[] = {
        /* 65,536 microbatches, simulated one by one */
        MODEL("m = 65536, layers = 8, batch = 524288",
              "memory = \"allocator\", strategy { pp = 8, microbatches = m }", "m in [65536]"),
        /* half a million layers: counting them alone */
        MODEL("m = 1, layers = 500000, batch = 64", "strategy { dp = 8 }", "m in [1]"),
        /* an order of 5 · 10^8 looks */
        MODEL("m = 8, layers = 4096, batch = 64",
              "strategy { pp = 8, microbatches = m, schedule = \"hanayo\", virtual_stages = 512 }",
              "m in [8]"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ds_sweep_result r;
        char *rows =
            run(texts[i], (ds_sweep_options){.max_seconds = 0.02, .n_workers = 1}, &r, NULL);
        cr_expect_eq(r.rows, 0, "case %zu", i);
        cr_expect_eq(r.end, DS_SWEEP_END_TIME, "case %zu", i);
        cr_expect_eq(lines(rows), 1, "case %zu", i);
        free(rows);
    }
}

/* What is there when the time is over is a beginning of the whole, and is completed. */
Test(stop, resume_goes_on) {
    char folder[64], path[100];
    size_t n, left;
    ds_sweep_result r;
    char *whole = run(small, (ds_sweep_options){.n_workers = 2}, &r, &n);
    cr_expect_eq(r.rows, 6);
    cr_expect(r.complete && r.end == DS_SWEEP_END_SPACE);
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    for (double seconds = 1e-9; seconds < 0.2; seconds *= 10) {
        remove(path);
        sweep_case c;
        sweep_open_text(&c, small, NULL);
        sweep_run(&c, &(ds_sweep_options){.path = path, .max_seconds = seconds}, &r, DS_OK);
        char *part = sweep_read(path, &left);
        cr_expect(part && left <= n && memcmp(part, whole, left) == 0, "%g s", seconds);
        cr_expect_eq((uint64_t)lines(part), r.rows + 1);
        cr_expect_eq(r.complete, r.end == DS_SWEEP_END_SPACE);
        if (seconds < 1e-8) cr_expect_eq(r.rows, 0);
        ds_sweep_result_deinit(&r);
        free(part);
        sweep_run(&c, &(ds_sweep_options){.path = path, .resume = true}, &r, DS_OK);
        part = sweep_read(path, &left);
        cr_expect(part && left == n && memcmp(part, whole, n) == 0, "%g s", seconds);
        ds_sweep_result_deinit(&r);
        sweep_close(&c);
        free(part);
    }
    free(whole);
    sweep_remove_folder(folder);
}

Test(stop, all_values_at_once_have_a_limit) {
    char text[1000];
    const char *const methods[] = {"beam", "anneal"};
    snprintf(text, sizeof text, "%s", rejecting);
    memcpy(strstr(text, "== -1"), ">= 0 ", 5);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        sweep_case c;
        ds_sweep_result r;
        sweep_open_text(&c, text, NULL);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        sweep_run(&c, &(ds_sweep_options){.path = "/dev/null", .method = methods[i]}, &r,
                  DS_ERR_LIMIT);
        ds_sweep_result_deinit(&r);
        sweep_close(&c);
    }
}

/* ---- who asks ---- */

static const ds_stop due = {.is_set = true, .at_ns = 0};

Test(stop, passes_and_composer_ask) {
    sweep_case c;
    ds_error err;
    ds_model_step *step;
    ds_composed composed;
    const char *why = NULL;
    sweep_open_text(&c, small, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    c.unit->stop = &due;
    cr_expect_eq(ds_model_step_new(&c.binding, &step, &err), DS_ERR_STOPPED);
    ds_sim_options options = {.cost_mode = DS_COST_FITTED};
    ds_status status = ds_compose(&c.binding, c.profiles, &options, &composed, &why, &err);
    cr_expect(status == DS_ERR_STOPPED || why, "put together");
    c.unit->stop = NULL;
    for (ds_pass_id pass = DS_PASS_GRAD; pass <= DS_PASS_SHARD; pass++) {
        cr_assert_eq(ds_model_step_new(&c.binding, &step, &err), DS_OK);
        if (pass > DS_PASS_GRAD)
            cr_assert_eq(ds_model_step_run_to(step, (ds_pass_id)(pass - 1), NULL, NULL, &err),
                         DS_OK);
        step->unit->stop = &due;
        if (ds_model_step_wants(step, pass))
            cr_expect_eq(ds_model_step_run(step, pass, &err), DS_ERR_STOPPED, "%s",
                         ds_pass_name(pass));
        ds_model_step_free(step);
    }
    sweep_close(&c);
}

/* A thousand tasks, one behind the other. */
Test(stop, plan_and_engine_ask) {
    static const char chain[] =
        "dir 1\n" BOX "mesh @m = [dp = 8] on @box\n"
        "func @f(%x: f32[64, 64] on @m) -> f32[64, 64] on @m {\n"
        "  %y = for l in 0..1000 carry (%h = %x) {\n    %z = relu(%h)\n    yield %z\n  }\n"
        "  return %y\n}\nscenario { program = @f }\n";
    sweep_case c;
    ds_error err;
    ds_plan *plan;
    ds_run result;
    sweep_open_text(&c, chain, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_assert_eq(ds_plan_build(&c.binding, c.profiles, &(ds_plan_options){0}, &plan, &err), DS_OK);
    c.unit->stop = &due;
    cr_expect_eq(ds_engine_run(plan, NULL, NULL, &result, &err), DS_ERR_STOPPED);
    ds_plan_free(plan);
    cr_expect_eq(ds_plan_build(&c.binding, c.profiles, &(ds_plan_options){0}, &plan, &err),
                 DS_ERR_STOPPED);
    c.unit->stop = NULL;
    sweep_close(&c);
}
