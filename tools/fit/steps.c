/* fit-profiles steps: constants of a profile from measured training steps.
 *
 * Where no single op was measured, constants are found by simulating the measured steps: the real
 * simulator, on the real program, with the constants altered in memory. What is made small is the
 * mean of |simulated/measured − 1| over the rows marked calib. Rows marked val are simulated once,
 * at the end, and have no part in the search. All variables are positive and enter as logarithms;
 * the search is a simplex one from fixed starts, so the same files give the same constants. */
#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/cost/constant.h"
#include "sim/cost/fit/fit.h"
#include "sim/run/run.h"
#include "tools/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is fitted ---- */

typedef struct variable {
    const char *label;
    double unit;  /* of one printed, in the unit of the constant */
    double start; /* printed unit; a guess of the right order */
    double most;  /* no more than this; 0: no limit */
    ds_constant which;
} variable;

#define PS_PER_US 1e6

/* A data-parallel step of GEMMs in f32. Not fitted: the memory curve, of which these rows say too
 * little (its e_max trades against gemm's, its fixed time against the issue time), and the launch
 * over 2, which they do not tell from 0. See cost_profiles/V100-PCIE-16GB/SOURCE.md. */
static const variable variables[] = {
    {"issue_us", PS_PER_US, 20, 0, {.name = DS_CONSTANT_ISSUE_PS}},
    {"gemm e_max", 1, 0.8, 1, {DS_CONSTANT_E_MAX, "gemm", "f32", true, 0, NULL, 0}},
    {"gemm w_half", 1, 2e8, 0, {DS_CONSTANT_W_HALF, "gemm", "f32", true, 0, NULL, 0}},
    {"all_reduce 2 e_max",
     1,
     0.2,
     1,
     {DS_CONSTANT_COLL_E_MAX, "all_reduce", "", false, 2, NULL, 0}},
    {"all_reduce 4 e_max",
     1,
     0.2,
     1,
     {DS_CONSTANT_COLL_E_MAX, "all_reduce", "", false, 4, NULL, 0}},
    {"all_reduce 4 launch_us",
     PS_PER_US,
     50,
     0,
     {DS_CONSTANT_COLL_LAUNCH_PS, "all_reduce", "", false, 4, NULL, 0}},
};
#define N_VARIABLES ((uint32_t)(sizeof variables / sizeof *variables))

/* The guesses as they are, and three times each halved or doubled, no two of those alike in more
 * than half of the variables. */
static const signed char signs[][N_VARIABLES] = {
    {0, 0, 0, 0, 0, 0}, {1, -1, 1, -1, 1, -1}, {-1, -1, 1, 1, -1, 1}, {1, -1, -1, 1, 1, 1}};
#define N_STARTS ((uint32_t)(sizeof signs / sizeof *signs))

/* A column of the data and the param of the scenario that it sets. */
static const struct {
    const char *column, *param;
} params[] = {{"world_size", "world"},
              {"num_layers", "layers"},
              {"batch_size", "batch"},
              {"hidden_dim", "width"}};
#define N_PARAMS ((uint32_t)(sizeof params / sizeof *params))

/* ---- measured steps ---- */

typedef struct step {
    ds_binding binding;
    double seconds;
    bool calib;
    uint32_t world;
    double layers, width;
    uint32_t shape; /* number of its (layers, width) */
} step;

typedef struct fitting {
    ds_unit *unit;
    ds_profiles *profiles;
    uint32_t profile;
    step *steps;
    uint32_t n;
    double *predicted, *measured; /* scratch, n each */
    uint32_t n_shapes, most_world;
    uint32_t left_out; /* shape that the search does not see; UINT32_MAX: none */
    uint32_t world;    /* that is being reported */
} fitting;

static ds_status first_problem(const ds_diags *diags, ds_error *err) {
    for (uint32_t i = 0; i < diags->all.n; i++) {
        const ds_diag *d = &diags->all.at[i];
        if (d->severity == DS_SEV_ERROR)
            return ds_error_set(err, d->code, d->loc, "%s", d->message);
    }
    return ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE, "a verifier without a diagnostic");
}

/* The number of the first step of the same shape, or a new one. */
static void set_shape(fitting *f, uint32_t row) {
    step *s = &f->steps[row];
    if (s->world > f->most_world) f->most_world = s->world;
    s->shape = f->n_shapes;
    for (uint32_t i = 0; i < row && s->shape == f->n_shapes; i++)
        if (f->steps[i].layers == s->layers && f->steps[i].width == s->width)
            s->shape = f->steps[i].shape;
    if (s->shape == f->n_shapes) f->n_shapes++;
}

static ds_status bind_step(fitting *f, const ds_csv *csv, uint32_t row, ds_diags *diags,
                           ds_error *err) {
    ds_setting settings[N_PARAMS];
    step *s = &f->steps[row];
    double ms, world;
    const char *split;
    for (uint32_t i = 0; i < N_PARAMS; i++) {
        settings[i].path = params[i].param;
        DS_TRY(fit_cell(csv, row, params[i].column, &settings[i].text, err));
    }
    DS_TRY(fit_number(csv, row, "measured_ms", &ms, err));
    DS_TRY(fit_number(csv, row, "world_size", &world, err));
    DS_TRY(fit_cell(csv, row, "split", &split, err));
    DS_TRY(fit_number(csv, row, "num_layers", &s->layers, err));
    DS_TRY(fit_number(csv, row, "hidden_dim", &s->width, err));
    if (!(ms > 0) || !(world >= 1) || world > 1e6)
        return ds_csv_error(csv, &csv->rows.at[row], err, "%g ms over %g devices", ms, world);
    s->seconds = ms * 1e-3;
    s->world = (uint32_t)world;
    s->calib = strcmp(split, "calib") == 0;
    set_shape(f, row);
    DS_TRY(ds_bind(f->unit, settings, N_PARAMS, &s->binding, err));
    return ds_verify_bound(f->unit, &s->binding, diags) == DS_OK ? DS_OK
                                                                 : first_problem(diags, err);
}

static ds_status read_steps(fitting *f, const ds_csv *csv, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(f->unit, &diags) == DS_OK ? DS_OK : first_problem(&diags, err);
    f->n = csv->rows.n;
    f->steps = ds_xcalloc(f->n, sizeof *f->steps);
    f->predicted = ds_xcalloc(f->n, sizeof *f->predicted);
    f->measured = ds_xcalloc(f->n, sizeof *f->measured);
    for (uint32_t i = 0; i < f->n && status == DS_OK; i++)
        status = bind_step(f, csv, i, &diags, err);
    ds_diags_deinit(&diags);
    return status;
}

/* ---- simulation ---- */

static ds_status simulate_step(fitting *f, const step *s, double *seconds, ds_error *err) {
    ds_sim_options options = {0};
    ds_result *result;
    DS_TRY(ds_sim_options_read(&s->binding, &options, err));
    DS_TRY(ds_simulate(&s->binding, f->profiles, &options, &result, err));
    *seconds = (double)result->run.step_ps / (double)DS_PS_PER_S;
    f->profile = result->plan->profile_of[0];
    ds_result_free(result);
    return DS_OK;
}

static ds_status set_variable(fitting *f, uint32_t v, double value, ds_error *err) {
    return ds_constant_set(f->profiles, f->profile, &variables[v].which, value * variables[v].unit,
                           err);
}

/* Simulates the steps for which `wanted` says so, into predicted and measured. */
static ds_status simulate_some(fitting *f, bool (*wanted)(const fitting *, const step *),
                               uint32_t *n, ds_error *err) {
    *n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const step *s = &f->steps[i];
        if (!wanted(f, s)) continue;
        f->measured[*n] = s->seconds;
        DS_TRY(simulate_step(f, s, &f->predicted[(*n)++], err));
    }
    return DS_OK;
}

static bool is_seen(const fitting *f, const step *s) {
    return s->calib && s->shape != f->left_out;
}
static bool is_left_out(const fitting *f, const step *s) {
    return s->calib && s->shape == f->left_out;
}
static bool is_val(const fitting *f, const step *s) {
    (void)f;
    return !s->calib;
}
static bool is_of_world(const fitting *f, const step *s) {
    return s->calib && s->world == f->world;
}

#define BEYOND 1e3 /* instead of an error, for a point outside the limits */

static ds_status mean_loss(void *context, const double *x, double *value, ds_error *err) {
    fitting *f = context;
    *value = BEYOND;
    for (uint32_t v = 0; v < N_VARIABLES; v++) {
        double constant = exp(x[v]);
        if (variables[v].most > 0 && constant > variables[v].most) return DS_OK;
        DS_TRY(set_variable(f, v, constant, err));
    }
    uint32_t n;
    DS_TRY(simulate_some(f, is_seen, &n, err));
    *value = 0;
    for (uint32_t i = 0; i < n; i++) *value += ds_fit_loss(f->predicted[i], f->measured[i]) / n;
    return DS_OK;
}

static ds_status search_constants(fitting *f, uint32_t n_starts, double *x, ds_error *err) {
    double starts[N_STARTS * N_VARIABLES], value;
    for (uint32_t s = 0; s < n_starts; s++)
        for (uint32_t v = 0; v < N_VARIABLES; v++)
            starts[s * N_VARIABLES + v] = log(variables[v].start) + signs[s][v] * log(2);
    ds_fit_search how = {.n = N_VARIABLES,
                         .starts = starts,
                         .n_starts = n_starts,
                         .step = 0.2,
                         .tolerance = 1e-5,
                         .max_iterations = 2000};
    return ds_fit_minimize(&how, mean_loss, f, x, &value, err);
}

/* ---- the report ---- */

/* The value as committed: four significant digits. */
static double rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return strtod(text, NULL);
}

/* Prints the constants next to those of the profile, and leaves the new ones set, rounded. */
static ds_status print_constants(fitting *f, const double *committed, const double *x,
                                 ds_error *err) {
    puts("constant                  fitted     in file     change");
    for (uint32_t v = 0; v < N_VARIABLES; v++) {
        double value = rounded(exp(x[v]));
        printf("%-24s  %-9.4g  %-9.4g  %+5.1f %%\n", variables[v].label, value, committed[v],
               100 * (value / committed[v] - 1));
        DS_TRY(set_variable(f, v, value, err));
    }
    return DS_OK;
}

static ds_status print_errors(fitting *f, const char *label,
                              bool (*wanted)(const fitting *, const step *), ds_error *err) {
    uint32_t n;
    DS_TRY(simulate_some(f, wanted, &n, err));
    if (!n) return DS_OK;
    ds_fit_errors e = ds_fit_errors_of(f->predicted, f->measured, n);
    printf("%-24s  %4u  %7.4f  %7.4f  %7.4f\n", label, n, e.mean, e.median, e.p90);
    return DS_OK;
}

static ds_status print_all_errors(fitting *f, ds_error *err) {
    puts("rows                         n     mean   median      p90");
    DS_TRY(print_errors(f, "calib", is_seen, err));
    for (f->world = 1; f->world <= f->most_world; f->world++) {
        char label[32];
        snprintf(label, sizeof label, "calib, world %u", f->world);
        DS_TRY(print_errors(f, label, is_of_world, err));
    }
    return print_errors(f, "val", is_val, err);
}

/* Each shape of model predicted by constants fitted without it, from the first start. */
static ds_status cross_validate(fitting *f, ds_error *err) {
    double *predicted = ds_xcalloc(f->n, sizeof *predicted), x[N_VARIABLES];
    double *measured = ds_xcalloc(f->n, sizeof *measured);
    uint32_t total = 0, n = 0;
    ds_status status = DS_OK;
    for (f->left_out = 0; f->left_out < f->n_shapes && status == DS_OK; f->left_out++) {
        status = search_constants(f, 1, x, err);
        for (uint32_t v = 0; v < N_VARIABLES && status == DS_OK; v++)
            status = set_variable(f, v, exp(x[v]), err);
        if (status == DS_OK) status = simulate_some(f, is_left_out, &n, err);
        if (status != DS_OK) break;
        memcpy(predicted + total, f->predicted, n * sizeof *predicted);
        memcpy(measured + total, f->measured, n * sizeof *measured);
        total += n;
    }
    if (status == DS_OK) {
        ds_fit_errors e = ds_fit_errors_of(predicted, measured, total);
        printf("%-24s  %4u  %7.4f  %7.4f  %7.4f\n", "calib, shape left out", total, e.mean,
               e.median, e.p90);
    }
    free(measured);
    free(predicted);
    return status;
}

static ds_status fit(fitting *f, ds_error *err) {
    double committed[N_VARIABLES], x[N_VARIABLES], seconds;
    if (!f->n) return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "no measured steps");
    DS_TRY(simulate_step(f, &f->steps[0], &seconds, err)); /* says which profile */
    for (uint32_t v = 0; v < N_VARIABLES; v++) {
        DS_TRY(ds_constant_get(f->profiles, f->profile, &variables[v].which, &committed[v], err));
        committed[v] /= variables[v].unit;
    }
    printf("profile %s, as committed\n", ds_profile_name(f->profiles, f->profile));
    DS_TRY(print_all_errors(f, err));
    DS_TRY(search_constants(f, N_STARTS, x, err));
    puts("\nfitted to the calib rows");
    DS_TRY(print_constants(f, committed, x, err));
    DS_TRY(print_all_errors(f, err));
    return cross_validate(f, err);
}

ds_status fit_steps(const char *scenario, const char *data, ds_error *err) {
    fitting f = {.left_out = UINT32_MAX};
    ds_csv csv;
    DS_TRY(ds_csv_read(data, &csv, err));
    ds_status status = ds_load_file(scenario, NULL, &f.unit, err);
    if (status == DS_OK) status = read_steps(&f, &csv, err);
    if (status == DS_OK) status = ds_profiles_load(NULL, &f.profiles, err);
    if (status == DS_OK) status = fit(&f, err);
    free(f.measured);
    free(f.predicted);
    free(f.steps);
    ds_profiles_free(f.profiles);
    ds_unit_free(f.unit);
    ds_csv_deinit(&csv);
    return status;
}
