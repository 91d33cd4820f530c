/* Terms of a step beside its layers: the fixed cost of an iteration, the clock under load. Closed
 * forms, and steps put together from templates against simulated ones. */
#include "search/compose/compose.h"
#include "sim/report/analysis.h"
#include "tests/support/composed.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000000)

/* A pipeline of two stages, of two replicas each, on devices without a profile. */
static const char text[] =
    "dir 1\n"
    "param dp = 2, tp = 1, pp = 2, micro = 6, layers = 4, clock = 1.0, zero = 0\n"
    "import \"models/gpt.dir\" as model with layers = layers, hidden = 256, heads = 8, seq = 128,"
    " vocab = 1024, batch = dp * micro\n"
    "topology @box {\n"
    "  device gpu[8] : \"A100-SXM4-80GB\" {sustained_clock = clock}\n  switch s\n"
    "  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..8\n}\n"
    "scenario {\n  model = @model.gpt\n  on = @box\n  %s\n"
    "  train { loss = none, optimizer = adam, dtype = bf16%s }\n"
    "  strategy { dp = dp, tp = tp, pp = pp, microbatches = micro, zero = zero }\n}\n";

static void run(sim_case *c, const char *more, const char *train, const char *settings) {
    char whole[4096];
    snprintf(whole, sizeof whole, text, more, train);
    sim_run_text(c, whole, settings, false);
}

static void run_well(sim_case *c, const char *train, const char *settings) {
    run(c, "", train, settings);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

static void compare_composed(const sim_case *c, const char *what) {
    ds_error err;
    ds_composed composed;
    const char *why;
    ds_sim_options options = {.cost_mode = DS_COST_MEASURED};
    cr_assert_eq(ds_compose(&c->binding, c->profiles, &options, &composed, &why, &err), DS_OK,
                 "%s: %s", what, err.message);
    cr_assert_null(why, "%s: %s", what, why);
    composed_compare(c, &composed, what);
    ds_composed_deinit(&composed);
}

/* ---- iteration_overhead ---- */

/* The step is longer by it, to the picosecond; everything else happens when it did before. */
Test(overhead, is_added_to_the_step) {
    sim_case plain, more;
    run_well(&plain, "", NULL);
    run_well(&more, ", iteration_overhead = 3 ms", NULL);
    const ds_result *a = plain.result, *b = more.result;
    cr_expect_eq(b->run.step_ps, a->run.step_ps + 3 * MS);
    cr_assert_eq(a->plan->n_classes, b->plan->n_classes);
    for (uint32_t c = 0; c < a->plan->n_classes; c++) {
        cr_expect_eq(b->accounts[c].compute_ps, a->accounts[c].compute_ps);
        cr_expect_eq(b->accounts[c].exposed_comm_ps, a->accounts[c].exposed_comm_ps);
        cr_expect_eq(b->accounts[c].idle_ps, a->accounts[c].idle_ps + 3 * MS);
        cr_expect_eq(b->accounts[c].end_ps, a->accounts[c].end_ps);
    }
    cr_expect_eq(b->metrics.peak_bytes, a->metrics.peak_bytes);
    cr_expect_float_eq(b->metrics.throughput_per_s, 12 / ((double)b->run.step_ps * 1e-12), 1e-6);
    sim_free(&plain);
    sim_free(&more);
}

/* By name on the critical path, which adds up to the step, and among the causes of every device. */
Test(overhead, has_its_name_in_reports) {
    sim_case c;
    run_well(&c, ", iteration_overhead = 250 us", NULL);
    ds_critical_path path;
    ds_critical_path_find(c.result, &path);
    int64_t sum = 0;
    for (int k = 0; k < DS_TIME_KIND_COUNT; k++) sum += path.total_ps[k];
    cr_expect_eq(sum, c.result->run.step_ps);
    cr_expect_eq(path.total_ps[DS_TIME_OVERHEAD], MS / 4);
    cr_expect_eq(path.at[path.n - 1].kind, DS_TIME_OVERHEAD);
    ds_critical_path_deinit(&path);
    for (uint32_t k = 0; k < c.result->plan->n_classes; k++) {
        ds_causes causes;
        int64_t overhead_ps = 0, all_ps = 0;
        ds_causes_of_class(c.result, k, &causes);
        for (uint32_t i = 0; i < causes.rows.n; i++) {
            all_ps += causes.rows.at[i].ps;
            if (causes.rows.at[i].kind == DS_TIME_OVERHEAD) overhead_ps += causes.rows.at[i].ps;
        }
        cr_expect_eq(overhead_ps, MS / 4);
        cr_expect_eq(all_ps, c.result->run.step_ps);
        ds_causes_deinit(&causes);
    }
    ds_buf out = {0};
    ds_report_summary(c.result, &out);
    cr_expect(strstr(out.text, "iteration overhead"), "%s", out.text);
    out.n = 0;
    ds_report_json(c.result, &out);
    cr_expect(strstr(out.text, "\"iteration_overhead_ps\": 250000000"));
    ds_buf_deinit(&out);
    sim_free(&c);
}

Test(overhead, what_it_cannot_be) {
    static const char *const cases[][2] = {
        {", iteration_overhead = 3", "must be a time"},
        {", iteration_overhead = 3 GB", "cannot be given in 'GB'"},
        {", iteration_overhead = -1 ms", "-1 ms is negative"},
        {", iteration_overhead = 100000000 s", "is beyond"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_case c;
        run(&c, "", cases[i][0], NULL);
        cr_expect_neq(c.status, DS_OK, "%s", cases[i][0]);
        cr_expect(strstr(c.err.message, cases[i][1]), "%s", c.err.message);
        sim_free(&c);
    }
}

/* ---- steps put together ---- */

Test(terms, composed_steps_are_the_simulated_ones) {
    static const char *const trains[] = {"", ", iteration_overhead = 1.5 ms"};
    static const char *const settings[] = {"micro=6", "micro=6 clock=0.8", "pp=4 clock=0.8",
                                           "pp=1 micro=2", "tp=2 zero=1"};
    for (size_t t = 0; t < sizeof trains / sizeof *trains; t++)
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            sim_case c;
            run_well(&c, trains[t], settings[i]);
            compare_composed(&c, settings[i]);
            sim_free(&c);
        }
}

/* ---- clip_norm ---- */

/* One weight of n elements on one device: the gradient is read once for its squares, read and
 * written once more to be scaled. A100: 2.039 bytes/ps. */
static const char one_weight[] =
    "dir 1\nparam n = 4096\n"
    "topology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n}\n"
    "func @f(%%x: f32[64, n]) -> f32[64, n] {\n  weight %%w : f32[n, n]\n"
    "  %%y = matmul(%%x, %%w)\n  return %%y\n}\n"
    "scenario {\n  model = @f\n  on = @box\n  train { loss = mse, optimizer = sgd%s }\n"
    "  strategy { dp = 1 }\n}\n";

static int64_t step_of(const char *train) {
    char whole[1024];
    sim_case c;
    snprintf(whole, sizeof whole, one_weight, train);
    sim_run_text(&c, whole, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    int64_t ps = c.result->run.step_ps;
    sim_free(&c);
    return ps;
}

static int64_t memory_ps(double bytes) {
    return (int64_t)ceil(bytes / 2.039);
}

Test(clip, takes_what_its_operations_take) {
    double gradient = 4.0 * 4096 * 4096;
    int64_t squares = memory_ps(gradient + 4), factor = memory_ps(8);
    int64_t scaled = memory_ps(2 * gradient + 4);
    int64_t more = step_of(", clip_norm = 1.0") - step_of("");
    cr_expect_eq(more, squares + factor + scaled, "%lld, not %lld + %lld + %lld", (long long)more,
                 (long long)squares, (long long)factor, (long long)scaled);
    cr_expect_eq(step_of(", clip_norm = 0"), step_of(""));
}

/* No weight of any stage is updated before the last stage has its squares; steps with a norm are
 * not put together, but simulated. */
Test(clip, all_stages_wait_for_it) {
    sim_case c;
    run_well(&c, ", clip_norm = 1.0", "pp=4 micro=6 zero=1 tp=1 dp=2");
    const ds_plan *plan = c.result->plan;
    int64_t last_square = 0, first_update = INT64_MAX;
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        const char *label = plan->records.at[plan->insts.at[plan->task_inst[t]].record]->label;
        if (strcmp(label, "sum_squares") == 0 && c.result->run.end_ps[t] > last_square)
            last_square = c.result->run.end_ps[t];
        if (strcmp(label, "adam") == 0 && c.result->run.start_ps[t] < first_update)
            first_update = c.result->run.start_ps[t];
    }
    cr_expect_gt(last_square, 0);
    cr_expect_gt(first_update, last_square);
    sim_free(&c);
}
