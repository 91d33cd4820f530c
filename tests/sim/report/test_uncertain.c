/* The interval around a step, by hand: a program of a few ops whose fits have known residuals. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/report.h"
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* On Box-1: one adds 1 ms for each 10^8 bytes (100 GB/s), a product 1 ms for each 10^10 FLOP. */
#define CURVES                                                                                     \
    "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,p90_error,"    \
    "ratio_p05,ratio_p95,basis,source\n"                                                           \
    "relu,*,bytes,100,1,0,1,1e12,9,0.1,0.2,0.8,1.5,by hand,s\n"                                    \
    "gelu,*,bytes,100,1,0,1,1e12,9,0.1,0.2,,,by hand,s\n"

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @t {\n  device gpu[1] : \"Box-1\"\n}\n"                                              \
    "mesh @m = [dp = 1] on @t\n"

static const char *const program_head =
    HEAD "func @f(%x: f32[1000, 12500] on @m) -> (f32[1000, 12500] on @m) {\n";
static const char *const program_tail = "}\n"
                                        "scenario {\n  program = @f\n  profile = \"P\"\n}\n";

static const char *steps = ",,";               /* ratio_p05 and _p95 of the profile */
static const char *issue = "0", *generic = ""; /* of it */

static ds_uncertainty run(const char *body, int64_t *step_ps) {
    cost_tree tree;
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/efficiency.csv", CURVES);
    char profile[160];
    snprintf(profile, sizeof profile,
             "name,device,issue_us,generic,software,source,ratio_p05,ratio_p95\n"
             "P,Box-1,%s,%s,by hand,s%s\n",
             issue, generic, steps);
    cost_tree_put(&tree, "catalogue/intervals.csv",
                  "part,bias,error,n,basis,source\nstep,0.1,0.03,1,by hand,s\n"
                  "compute,0,0.04,1,by hand,s\nhost,0,0.5,1,by hand,s\n");
    cost_tree_put(&tree, "p/profile.csv", profile);
    ds_profiles *profiles = cost_tree_load(&tree);
    ds_buf text = {0};
    ds_buf_printf(&text, "%s%s%s", program_head, body, program_tail);
    ds_unit *unit;
    ds_binding binding;
    ds_error err = {0};
    cr_assert_eq(ds_load_text("test.dir", text.text, text.n, NULL, &unit, &err), DS_OK, "%s",
                 err.message);
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(ds_verify(unit, &diags), DS_OK, "%s", text.text);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify_bound(unit, &binding, &diags), DS_OK, "%s", text.text);
    ds_diags_deinit(&diags);
    ds_sim_options options = {0};
    ds_result *result;
    cr_assert_eq(ds_simulate(&binding, profiles, &options, &result, &err), DS_OK, "%s",
                 err.message);
    ds_uncertainty u = ds_result_uncertainty(result);
    *step_ps = result->run.step_ps;
    ds_result_free(result);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
    ds_profiles_free(profiles);
    cost_tree_deinit(&tree);
    return u;
}

#define MS INT64_C(1000000000)

/* The profile's own quantiles, of whole steps, count in place of its ops'. */
Test(uncertain, a_profile_fitted_to_steps) {
    int64_t step;
    steps = ",0.9,1.25";
    ds_uncertainty u = run("  %y = relu(%x)\n  %z = gelu(%y)\n  return %z\n", &step);
    cr_expect_eq(step, 2 * MS);
    cr_expect_float_eq((double)u.low_ps, 1.8 * MS, 2);
    cr_expect_float_eq((double)u.high_ps, 2.5 * MS, 2);
    cr_expect_eq(u.covered_ps, step);
}

/* A generic profile has the errors of other steps: 2 ms of operations alone take 2 e^0.1 in a step,
 * and are off by sqrt(0.03² + 0.04²). With the host at 600 us an op the first op waits, and the last
 * is issued after 1.2 ms. */
Test(uncertain, a_generic_profile_errs_by_parts) {
    static const char two[] = "  %y = relu(%x)\n  %z = gelu(%y)\n  return %z\n";
    int64_t step;
    generic = "1";
    ds_uncertainty u = run(two, &step);
    double ops = 2 * MS * exp(0.1), all = 0.6 * MS + ops;
    cr_expect_float_eq((double)step, ops, 1e4);
    cr_expect_float_eq((double)u.low_ps, 2 * MS * exp(0.05), 1e4);
    cr_expect_float_eq((double)u.high_ps, 2 * MS * exp(0.15), 1e4);
    cr_expect_eq(u.covered_ps, step);
    cr_expect(u.by_parts);

    issue = "600";
    u = run(two, &step);
    cr_expect_float_eq((double)step, all, 1e4);
    double host = 0.5 * 1.2 * MS / all, compute = 0.04 * ops / all;
    double error = sqrt(host * host + 0.03 * 0.03 + compute * compute);
    cr_expect_float_eq((double)u.high_ps, all * exp(error), 1e5);
}

/* 50 MB read and written: 1 ms; from 0.8 to 1.5 of that. */
Test(uncertain, one_op_is_as_far_off_as_its_fit) {
    int64_t step;
    ds_uncertainty u = run("  %y = relu(%x)\n  return %y\n", &step);
    cr_expect_eq(step, MS);
    cr_expect_float_eq((double)u.low_ps, 0.8 * MS, 2);
    cr_expect_float_eq((double)u.high_ps, 1.5 * MS, 2);
    cr_expect_eq(u.covered_ps, MS);
    cr_expect_eq(u.unknown_ps, 0);
}

/* The same shape twice is off by the same factor: twice as far. */
Test(uncertain, equal_work_is_off_alike) {
    int64_t step;
    ds_uncertainty u = run("  %y = relu(%x)\n  %z = relu(%y)\n  return %z\n", &step);
    cr_expect_eq(step, 2 * MS);
    cr_expect_float_eq((double)u.low_ps, 1.6 * MS, 2);
    cr_expect_float_eq((double)u.high_ps, 3.0 * MS, 2);
}

/* Other work is off by itself: as squares, 1/(1 - 0.2) = 1.25 and 1/1.2 for the one that has its
 * 90th percentile alone. */
Test(uncertain, other_work_is_off_by_itself) {
    int64_t step;
    ds_uncertainty u = run("  %y = relu(%x)\n  %z = gelu(%y)\n  return %z\n", &step);
    cr_expect_eq(step, 2 * MS);
    double less = sqrt(0.2 * 0.2 + (1 - 1 / 1.2) * (1 - 1 / 1.2));
    double more = sqrt(0.5 * 0.5 + 0.25 * 0.25);
    cr_expect_float_eq((double)u.low_ps, (2 - less) * MS, 2);
    cr_expect_float_eq((double)u.high_ps, (2 + more) * MS, 2);
}

/* Peaks of the catalogue have no residuals, a given cost needs none. */
Test(uncertain, what_nobody_knows_is_said) {
    int64_t step;
    ds_uncertainty u = run("  %y = tanh(%x)\n  %z = relu(%y) {cost = 3 ms}\n  return %z\n", &step);
    cr_expect_eq(step, 4 * MS);
    cr_expect_eq(u.low_ps, step);
    cr_expect_eq(u.high_ps, step);
    cr_expect_eq(u.covered_ps, 0);
    cr_expect_eq(u.unknown_ps, MS);
}
