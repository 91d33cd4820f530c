/* Branch and bound: the grid's optimum, and certificates that are checked. */
#include "search/driver/certify.h"
#include "search/methods/bound.h"
#include "tests/support/cases.h"
#include "tests/support/generate/spaces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRID DS_SOURCE_DIR "/scenarios/distir-grid.dir"

/* Runs a method; the number of candidates that it simulated, the best value, and the rows. */
typedef struct run {
    uint64_t rows;
    double best; /* of the objective; -1: none counts */
    char *csv, *certificate;
} run;

static run run_method(sweep_case *c, const char *method, uint32_t workers) {
    char folder[64], path[100], proof[100];
    ds_sweep_result r;
    run out = {.best = -1};
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    snprintf(proof, sizeof proof, "%s/proof", folder);
    bool bound = strcmp(method, "bound") == 0;
    sweep_run(c,
              &(ds_sweep_options){.path = path,
                                  .method = method,
                                  .n_workers = workers,
                                  .certificate = bound ? proof : NULL},
              &r, DS_OK);
    cr_assert(r.complete);
    out.rows = r.rows;
    if (r.best.top.n)
        out.best = ds_metric_measure(&r.best.top.at[0].metrics, r.best.objectives[0].what);
    out.csv = sweep_read(path, NULL);
    if (bound) out.certificate = sweep_read(proof, NULL);
    ds_sweep_result_deinit(&r);
    sweep_remove_folder(folder);
    return out;
}

static void free_run(run *r) {
    free(r->csv);
    free(r->certificate);
}

static ds_status certify(sweep_case *c, const char *text, ds_certified *out, ds_error *err) {
    ds_eval_source source = {.path = c->path,
                             .text = c->text,
                             .text_n = c->text ? strlen(c->text) : 0,
                             .profiles = c->profiles};
    return ds_certify(text, &c->binding, c->settings, c->n_settings, &source, out, err);
}

/* ---- the optimum ---- */

/* The best value is the grid's, to the last bit, and the certificate is right. */
static double compare(uint64_t seed, uint64_t least, uint64_t most) {
    sweep_case c;
    ds_certified certified;
    ds_error err;
    random_space(seed, least, most, &c);
    run grid = run_method(&c, "grid", 2), bound = run_method(&c, "bound", 2);
    cr_expect(!(grid.best < bound.best) && !(grid.best > bound.best), "space %d: %.17g, not %.17g",
              (int)seed, bound.best, grid.best);
    ds_status status = certify(&c, bound.certificate, &certified, &err);
    cr_expect_eq(status, DS_OK, "space %d: %s", (int)seed, err.message);
    if (status == DS_OK) {
        cr_expect_eq(certified.candidates, grid.rows);
        cr_expect_eq(certified.simulated, bound.rows);
    }
    double share = (double)bound.rows / (double)grid.rows;
    printf("space %d: %d of %d candidates simulated (%.0f %%)\n", (int)seed, (int)bound.rows,
           (int)grid.rows, 100 * share);
    free_run(&grid);
    free_run(&bound);
    sweep_close(&c);
    return share;
}

/* DISTSIM_TEST_SPACES=200 takes as many spaces of 200 to 2,000 candidates; by itself
 * one small one, with DISTSIM_TEST_ALL=1 eight. */
Test(bound, finds_the_grids_optimum) {
    const char *many = getenv("DISTSIM_TEST_SPACES");
    int n = many ? atoi(many) : FEW_CASES ? 1 : 8;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += compare((uint64_t)i, many ? 200 : 40, many ? 2000 : 160);
    printf("on the average %.1f %% are simulated\n", 100 * sum / n);
    if (!FEW_CASES) cr_expect_lt(sum / n, 0.3);
}

/* ---- when it ends ---- */

/* The method by itself: the test says what candidates take. */
typedef struct told {
    sweep_case c;
    ds_space *space, *every;
    ds_bounds *bounds;
    ds_method *method;
    ds_eval_source source;
    ds_arena arena;
    ds_candidate candidate;
    ds_error err;
    uint64_t hashes[16];
    uint32_t n; /* of the first round */
} told;

static void begin_told(told *t) {
    const char *why;
    *t = (told){0};
    sweep_open_file(&t->c, GRID, "gbit=25");
    ds_space **spaces[] = {&t->space, &t->every};
    for (int i = 0; i < 2; i++)
        cr_assert_eq(
            ds_space_new(&t->c.binding, t->c.settings, t->c.n_settings, spaces[i], &t->err), DS_OK);
    t->source = (ds_eval_source){.path = t->c.path, .space = t->space, .profiles = t->c.profiles};
    cr_assert_eq(ds_bounds_new(&t->source, t->every, &t->bounds, &why, &t->err), DS_OK);
    cr_assert_eq(ds_bound_new(&t->source, t->space, &t->method, &t->err), DS_OK, "%s",
                 t->err.message);
    ds_arena_init(&t->arena);
    t->candidate = ds_candidate_new(t->space, &t->arena);
}

static void end_told(told *t) {
    t->method->free(t->method);
    ds_bounds_free(t->bounds);
    ds_space_free(t->space);
    ds_space_free(t->every);
    ds_arena_deinit(&t->arena);
    sweep_close(&t->c);
}

static bool next_told(told *t) {
    bool found;
    cr_assert_eq(t->method->next(t->method, &t->candidate, &found, &t->err), DS_OK);
    return found;
}

/* The largest bound of the regions that the candidate is in; INT64_MAX: it is not run. */
static int64_t bound_of(told *t, const ds_candidate *candidate) {
    int64_t most = 0;
    for (uint32_t d = 1; d <= ds_space_n_dims(t->every); d++) {
        ds_bound_region region;
        cr_assert_eq(ds_bounds_region(t->bounds, candidate->at, d, &region, &t->err), DS_OK);
        if (ds_bound_is_illegal(&region) || ds_bound_peak_bytes(&region) > region.capacity_bytes)
            return INT64_MAX;
        if (ds_bound_step_ps(&region) > most) most = ds_bound_step_ps(&region);
    }
    return most;
}

/* The least bound of those that the first round has not asked for. */
static int64_t least_waiting(told *t) {
    ds_candidate candidate = ds_candidate_new(t->every, &t->arena);
    int64_t least = INT64_MAX;
    for (bool found;;) {
        cr_assert_eq(ds_space_next(t->every, &candidate, &found, &t->err), DS_OK);
        if (!found) return least;
        bool asked = false;
        for (uint32_t i = 0; i < t->n; i++)
            asked = asked || t->hashes[i] == ds_candidate_hash(t->every, &candidate);
        int64_t bound = asked ? INT64_MAX : bound_of(t, &candidate);
        if (bound < least) least = bound;
    }
}

/* The first candidates all take `more` than the least bound of those that wait. A candidate that
 * may be better by one picosecond is asked for; one that cannot be better is not. */
static void expect_next(int64_t more, bool goes_on) {
    told t;
    begin_told(&t);
    while (next_told(&t)) {
        cr_assert_lt(t.n, 16);
        t.hashes[t.n++] = ds_candidate_hash(t.space, &t.candidate);
    }
    int64_t least = least_waiting(&t);
    cr_assert(t.n > 0 && least > 0 && least < INT64_MAX);
    ds_outcome outcome = {.verdict = DS_VERDICT_OK, .metrics = {.step_ps = least + more}};
    for (uint32_t i = 0; i < t.n; i++) t.method->tell(t.method, &t.candidate, &outcome, true);
    cr_expect_eq(next_told(&t), goes_on);
    cr_expect_eq(ds_bound_is_proved(t.method), !goes_on);
    if (goes_on) cr_expect_eq(bound_of(&t, &t.candidate), least);
    end_told(&t);
}

Test(bound, ends_when_nothing_can_be_better) {
    expect_next(1, true);
    expect_next(0, false);
}

Test(bound, distirs_grid) {
    sweep_case c;
    sweep_open_file(&c, GRID, "gbit=25");
    run grid = run_method(&c, "grid", 2), bound = run_method(&c, "bound", 2);
    cr_expect(!(grid.best < bound.best) && !(grid.best > bound.best));
    cr_expect_leq(bound.rows, 30); /* of 75 */
    free_run(&grid);
    free_run(&bound);
    sweep_close(&c);
}

/* Rows and certificate are the same bytes for any number of workers. */
Test(bound, workers_do_not_matter) {
    sweep_case c;
    random_space(3, 60, 300, &c);
    run one = run_method(&c, "bound", 1);
    for (uint32_t n = 2; n <= (FEW_CASES ? 2 : 8); n *= 2) {
        run other = run_method(&c, "bound", n);
        cr_expect_str_eq(one.csv, other.csv);
        cr_expect_str_eq(one.certificate, other.certificate);
        free_run(&other);
    }
    free_run(&one);
    sweep_close(&c);
}

/* ---- tampered certificates ---- */

/* A copy in which the `nth` line that begins with `start` is `line` instead; NULL: is gone. */
static char *replace_line(const char *text, const char *start, int nth, const char *line) {
    ds_buf out = {0};
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n") + 1;
        bool hit = strncmp(at, start, strlen(start)) == 0 && nth-- == 0;
        if (!hit)
            ds_buf_printf(&out, "%.*s", (int)n, at);
        else if (line)
            ds_buf_printf(&out, "%s\n", line);
        at += n;
    }
    cr_assert_lt(nth, 0);
    return out.text;
}

static char *line_of(const char *text, const char *start, int nth) {
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        if (strncmp(at, start, strlen(start)) == 0 && nth-- == 0) {
            char *copy = ds_xcalloc(n + 1, 1);
            memcpy(copy, at, n);
            return copy;
        }
        at += n + 1;
    }
    cr_assert_fail();
    return NULL;
}

/* The line with another second cell. */
static char *with_cell(const char *line, const char *kind, const char *cell) {
    ds_buf out = {0};
    const char *rest = strchr(strchr(line, '\t') + 1, '\t');
    ds_buf_printf(&out, "%s\t%s%s", kind, cell, rest);
    return out.text;
}

static void refuse(sweep_case *c, char *text, const char *message) {
    ds_certified certified;
    ds_error err = {0};
    ds_status status = certify(c, text, &certified, &err);
    cr_expect_eq(status, DS_ERR_DATA, "%s", message);
    cr_expect_not_null(strstr(err.message, message), "'%s' is not '%s'", err.message, message);
    free(text);
}

Test(bound, tampered_certificates_are_rejected) {
    sweep_case c;
    ds_certified certified;
    ds_error err;
    sweep_open_file(&c, GRID, "gbit=25");
    run bound = run_method(&c, "bound", 1);
    const char *text = bound.certificate;
    cr_assert_eq(certify(&c, text, &certified, &err), DS_OK, "%s", err.message);
    cr_expect_eq(certified.candidates, 75);

    char *a_bound = line_of(text, "bound\t", 1), *a_run = line_of(text, "run\t", 0);
    char *best = line_of(text, "incumbent\t", 0), *line;
    /* 1: a region is missing */
    refuse(&c, replace_line(text, "bound\t", 1, NULL), "a candidate is in no region");
    /* 2: a region stands twice */
    ds_buf twice = {0};
    ds_buf_printf(&twice, "%s\n%s", a_bound, a_bound);
    refuse(&c, replace_line(text, "bound\t", 1, twice.text), "a candidate is in no region");
    ds_buf_deinit(&twice);
    /* 3: a bound is said to be higher than it is */
    line = with_cell(a_bound, "bound", "999999999999999");
    refuse(&c, replace_line(text, "bound\t", 1, line), "the region's bound is less than that");
    free(line);
    /* 4: a bound that excludes nothing */
    line = with_cell(a_bound, "bound", "1");
    refuse(&c, replace_line(text, "bound\t", 1, line), "less than the incumbent's value");
    free(line);
    /* 5: a run is passed off as a region with a bound */
    line = with_cell(a_run, "bound", "999999999999999");
    refuse(&c, replace_line(text, "run\t", 0, line), "the region's bound is less than that");
    free(line);
    /* 6: a run has another value */
    line = with_cell(a_run, "run", "999999999999999");
    refuse(&c, replace_line(text, "run\t", 0, line), "the candidate's value is another one");
    free(line);
    /* 7: a run is said not to count */
    line = with_cell(a_run, "rejected", "-1");
    refuse(&c, replace_line(text, "run\t", 0, line), "the candidate counts");
    free(line);
    /* 8: a run is said to lack memory */
    line = with_cell(a_run, "lacks_memory", "-");
    refuse(&c, replace_line(text, "run\t", 0, line), "some candidates of the region may fit");
    free(line);
    /* … or to be illegal */
    line = with_cell(a_run, "illegal", "-");
    refuse(&c, replace_line(text, "run\t", 0, line), "some candidates of the region may be legal");
    free(line);
    /* 9: an incumbent that is better than it is */
    line = with_cell(best, "incumbent", "1");
    refuse(&c, replace_line(text, "incumbent\t", 0, line), "the incumbent is none of the runs");
    free(line);
    /* 10: an incumbent that is worse, so that more is excluded: the best run gives it away */
    line = with_cell(best, "incumbent", "390494242491");
    refuse(&c, replace_line(text, "incumbent\t", 0, line), "better than the incumbent");
    free(line);
    /* 11: another hash */
    line = with_cell("x\ty\t0000000000000000\t1\t1\t16\t128", "incumbent", "390494242490");
    refuse(&c, replace_line(text, "incumbent\t", 0, line), "the incumbent is none of the runs");
    free(line);
    /* 12: of another program */
    refuse(&c, replace_line(text, "content\t", 0, "content\t0123456789abcdef"),
           "program or profiles have changed since");
    /* 13: of another objective */
    refuse(&c, replace_line(text, "objective\t", 0, "objective\tpeak_memory"),
           "the sweep has another objective");
    /* 14: cut off */
    refuse(&c, replace_line(text, "end", 0, NULL), "the end should stand here");
    /* 15: an unknown kind */
    line = with_cell(a_bound, "trust", "999999999999999");
    refuse(&c, replace_line(text, "bound\t", 1, line), "a region is bound, lacks_memory");
    free(line);
    /* 16: the whole space as one region */
    refuse(&c, replace_line(text, "bound\t", 1, "bound\t999999999999999"),
           "the region's bound is less than that");
    /* 17: not a certificate at all */
    ds_buf other = {0};
    ds_buf_put(&other, "distsim certificate 2\n");
    refuse(&c, other.text, "this is no certificate");

    free(a_bound);
    free(a_run);
    free(best);
    free_run(&bound);
    sweep_close(&c);
}

/* The checker computes bounds in a way of its own, and comes to the same ones: a bound that is
 * stated a millionth too high is refused, of every few regions of random spaces and of distir's
 * grid. */
static int refuse_higher(sweep_case *c, int every) {
    run bound = run_method(c, "bound", 1);
    int n = 0, refused = 0;
    for (const char *at = bound.certificate; (at = strstr(at, "\nbound\t")); at++) n++;
    for (int i = 0; i < n; i += every) {
        char *line = line_of(bound.certificate, "bound\t", i), cell[32];
        long long stated = strtoll(strchr(line, '\t') + 1, NULL, 10);
        snprintf(cell, sizeof cell, "%lld", stated + stated / 1000000 + 2);
        char *higher = with_cell(line, "bound", cell);
        refuse(c, replace_line(bound.certificate, "bound\t", i, higher),
               "the region's bound is less than that");
        free(higher);
        free(line);
        refused++;
    }
    free_run(&bound);
    sweep_close(c);
    return refused;
}

Test(bound, no_bound_is_higher_than_the_checkers) {
    sweep_case c;
    int n = 0;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 1 : 8); seed++) {
        random_space(seed, 40, 160, &c);
        n += refuse_higher(&c, 7);
    }
    sweep_open_file(&c, GRID, "gbit=25");
    n += refuse_higher(&c, 7);
    for (int memory = 0; memory < (FEW_CASES ? 0 : 2); memory++) {
        char text[1500];
        snprintf(text, sizeof text,
                 "dir 1\nparam dp = 1, pp = 1, mb = 1, chunks = 1\n"
                 "import \"models/mlp.dir\" as m with layers = 8, width = 1024, batch = 1024\n"
                 "topology @a { device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"
                 "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..8 }\n"
                 "scenario { model = @m.mlp, on = @a, train { loss = mse, optimizer = adam },\n"
                 "  strategy { dp = dp, pp = pp, microbatches = mb, virtual_stages = chunks } }\n"
                 "sweep { pp in [2, 4], chunks in [1, 2]\n"
                 "  schedule in [\"1f1b\", gpipe, \"eager-1f1b\", interleaved, \"breadth-first\",\n"
                 "    \"zb-h1\", \"zb-h2\"], mb in [2, 4, 8], zero in [0, 1], minimize %s }\n",
                 memory ? "peak_memory" : "step_time");
        sweep_open_text(&c, text, NULL);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        n += refuse_higher(&c, memory ? 1 : 7);
    }
    printf("%d bounds stated too high\n", n);
    cr_expect_gt(n, FEW_CASES ? 3 : 80);
}

/* No candidate fits into any device: there is no incumbent, and none may be made up. */
Test(bound, certificates_without_an_incumbent) {
    sweep_case c;
    ds_certified certified;
    ds_error err;
    sweep_open_text(&c,
                    "dir 1\nparam dp = 1\n"
                    "import \"models/mlp.dir\" as m with layers = 8, width = 65536, batch = 64\n"
                    "topology @a { device gpu[4] : \"V100-SXM2-16GB\"\n  switch s\n"
                    "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..4 }\n"
                    "scenario { model = @m.mlp, on = @a, train { loss = mse, optimizer = sgd },\n"
                    "  strategy { dp = dp } }\n"
                    "sweep { dp in [1, 2, 4], minimize step_time subject to fits }\n",
                    NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    run bound = run_method(&c, "bound", 1);
    const char *text = bound.certificate;
    cr_expect_eq(bound.rows, 0);
    cr_expect_not_null(strstr(text, "\nincumbent\t-\t-\n"), "%s", text);
    cr_expect_eq(certify(&c, text, &certified, &err), DS_OK, "%s", err.message);
    cr_expect_eq(certified.candidates, 3);
    cr_expect_eq(certified.simulated, 0);
    cr_expect_eq(certified.value, INT64_MAX);
    refuse(&c, replace_line(text, "incumbent\t", 0, "incumbent\t7\t-"),
           "an incumbent has a value, a hash");
    refuse(&c, replace_line(text, "incumbent\t", 0, "incumbent\t7\t0\t1"),
           "the incumbent is none of the runs");
    refuse(&c, replace_line(text, "incumbent\t", 0, "incumbent\t7"),
           "the incumbent should stand here");
    refuse(&c, replace_line(text, "lacks_memory\t", 0, NULL), "a candidate is in no region");
    refuse(&c, replace_line(text, "lacks_memory\t", 0, "lacks_memory\t-\t1\t1"),
           "a candidate is in no region");
    refuse(&c, replace_line(text, "lacks_memory\t", 0, "illegal\t-\t1"),
           "some candidates of the region may be legal");
    refuse(&c, replace_line(text, "regions\t", 0, "regions\t7"),
           "the number of regions is another one");
    free_run(&bound);
    sweep_close(&c);
}

/* Candidates that are simulated and hold a condition, or do not: the certificate says which. */
Test(bound, certificates_with_conditions) {
    static const char *const conditions[] = {"where peak_memory > 200 MB",
                                             "subject to peak_memory > 200 MB"};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        char text[1000];
        sweep_case c;
        ds_certified certified;
        ds_error err;
        snprintf(text, sizeof text,
                 "dir 1\nparam dp = 1, tp = 1\n"
                 "import \"models/mlp.dir\" as m with layers = 4, width = 4096, batch = 64\n"
                 "topology @a { device gpu[4] : \"V100-SXM2-16GB\"\n  switch s\n"
                 "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..4 }\n"
                 "scenario { model = @m.mlp, on = @a, train { loss = mse, optimizer = sgd },\n"
                 "  strategy { dp = dp, tp = tp } }\n"
                 "sweep { dp in [1, 2, 4], tp in [1, 2, 4] where dp * tp <= 4\n  %s\n"
                 "  minimize step_time }\n",
                 conditions[i]);
        sweep_open_text(&c, text, NULL);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        run bound = run_method(&c, "bound", 1), grid = run_method(&c, "grid", 1);
        cr_expect_float_eq(bound.best, grid.best, 0, "%s", bound.certificate);
        cr_expect_not_null(strstr(bound.certificate, "\nrejected\t-1\t"), "%s", bound.certificate);
        cr_expect_not_null(strstr(bound.certificate, "\nrun\t"), "%s", bound.certificate);
        cr_expect_eq(certify(&c, bound.certificate, &certified, &err), DS_OK, "%s", err.message);
        char *line = line_of(bound.certificate, "rejected\t", 0);
        char *counts = with_cell(line, "run", "999999999999999");
        refuse(&c, replace_line(bound.certificate, "rejected\t", 0, counts),
               "the candidate does not count");
        free(counts);
        free(line);
        free_run(&bound);
        free_run(&grid);
        sweep_close(&c);
    }
}

/* ---- what there are no bounds of ---- */

static void refuse_sweep(const char *scenario, const char *sweep, const char *message) {
    char text[1500];
    sweep_case c;
    ds_sweep_result r;
    snprintf(text, sizeof text,
             "dir 1\nparam dp = 1\nimport \"models/mlp.dir\" as m with layers = 2, batch = 64\n"
             "topology @a { device gpu[4] : \"V100-SXM2-16GB\"\n  switch s\n"
             "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..4 }\n"
             "scenario { model = @m.mlp, on = @a, train { loss = mse, optimizer = sgd }, %s }\n"
             "sweep { %s }\n",
             scenario, sweep);
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    sweep_run(&c, &(ds_sweep_options){.path = "/dev/null", .method = "bound", .overwrite = true},
              &r, DS_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(c.err.message, message), "%s", c.err.message);
    ds_sweep_result_deinit(&r);
    sweep_close(&c);
}

Test(bound, says_what_it_has_no_bounds_of) {
    refuse_sweep("strategy { dp = dp }", "dp in [1, 2], price 2, minimize cost",
                 "minimize step_time and minimize peak_memory only");
    refuse_sweep("strategy { dp = dp }", "dp in [1, 2], maximize throughput",
                 "minimize step_time and minimize peak_memory only");
    refuse_sweep("strategy { dp = dp }", "dp in [1, 2], minimize step_time, minimize peak_memory",
                 "several objectives");
    refuse_sweep("strategy { dp = dp }, cost = measured", "dp in [1, 2]", "measured costs");
    refuse_sweep("strategy { dp = dp, dp_shares = [3, 1] }", "dp in [2]", "unequal replicas");
    refuse_sweep("strategy { pp = 2, stage_dp = [1, 2], microbatches = dp }", "dp in [2]",
                 "stages of several widths");
    refuse_sweep("strategy { pp = 2, stage_tp = [1, 2], microbatches = dp }", "dp in [2]",
                 "stages of several widths");
    refuse_sweep("strategy { dp = dp }", "dp in [1, 2], cost in [fitted, measured]",
                 "the kind of costs varies");
}

/* Bounds look at microbatches of one sample, of which the param `k` has no value: nothing is known
 * of layers then, and the best candidate is found all the same. */
Test(bound, params_without_a_value_for_one_sample) {
    static const char text[] =
        "dir 1\nparam dp = 1, tp = 1, batch = 64, k = 126 / (batch - 1), width = 64\n"
        "func @net(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
        "  weight %w1 : f32[width, k * width@tp]\n  weight %w2 : f32[k * width@tp, width]\n"
        "  %a = matmul(%x, %w1)\n  %b = relu(%a)\n  %y = matmul(%b, %w2)\n  return %y\n}\n"
        "topology @box { device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..4 }\n"
        "scenario { model = @net, on = @box, train { loss = mse, optimizer = sgd },\n"
        "  strategy { dp = dp, tp = tp } }\n"
        "sweep { dp in [1, 2, 4], tp in [1, 2, 4] where dp * tp <= 4, minimize step_time }\n";
    sweep_case c;
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    run grid = run_method(&c, "grid", 1), bound = run_method(&c, "bound", 1);
    cr_expect_eq(grid.rows, 6);
    cr_expect_float_eq(grid.best, bound.best, 0);
    free_run(&grid);
    free_run(&bound);
    sweep_close(&c);
}

/* Half of the rows are read again, and the sweep goes on as if nothing had been. */
Test(bound, resumes) {
    sweep_case c;
    char folder[64], path[100];
    ds_sweep_result r;
    random_space(6, 60, 300, &c);
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    run whole = run_method(&c, "bound", 2);
    for (int part = 1; part < 4; part++) {
        FILE *file = fopen(path, "wb");
        fwrite(whole.csv, 1, strlen(whole.csv) * (size_t)part / 4, file);
        fclose(file);
        sweep_run(&c, &(ds_sweep_options){.path = path, .method = "bound", .resume = true}, &r,
                  DS_OK);
        char *csv = sweep_read(path, NULL);
        cr_expect_str_eq(csv, whole.csv);
        free(csv);
        ds_sweep_result_deinit(&r);
    }
    sweep_remove_folder(folder);
    free_run(&whole);
    sweep_close(&c);
}
