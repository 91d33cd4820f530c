/* fit-profiles dispatch: how tokens go to experts and back, from tests/data/ops/dispatch.csv; the
 * formula is in sim/cost/exchange.h.
 *
 * A fit a kernel and direction of a device, whose constants are up to five rows of efficiency.csv:
 *
 *     send_KERNEL_OP_link   e_max = e_link, floor_us = launch
 *     send_KERNEL_OP_copy   e_max = the rate of a multiprocessor in GB/s, w_half = copy times the rate
 *     send_KERNEL_OP_own    the same for `own` copies
 *     send_KERNEL_OP_relay  the same for `relay` copies; where rows cross nodes
 *     send_KERNEL_OP_net    e_max = e_net, floor_us = node; where rows cross nodes
 *
 * Errors and percentiles are of rows predicted without all rows of their hidden size. */
#include "tools/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEYOND 1e3 /* the loss outside the range of a constant */

/* Rows of 8 nodes are not fitted: of a network of 50 GB/s their cluster's kernels get 15, and those
 * of DeepEP's README 44 (row deepep-readme), as the rows of 4 nodes do. */
enum { MOST_NODES = 4 };

enum { LAUNCH, E_LINK, COPY, RATE, OWN, N_INSIDE, NODE = N_INSIDE, E_NET, RELAY, N_VARIABLES };

static const char *const kernels[] = {"deepep", "two_sided", "one_sided"};
static const char *const directions[] = {"dispatch", "combine"};

typedef struct sample {
    ds_sending sending;
    double seconds;
    uint32_t family;
} sample;

typedef struct fitting {
    const sample *samples;
    uint32_t n, n_families, left_out, n_variables;
    ds_sending_fit at;
} fitting;

typedef struct job {
    fit_measured in;
    measured_machines *machines;
    ds_error *err;
    ds_buf lines;
} job;

/* ---- one fit ---- */

static void to_variables(const ds_sending_fit *f, double *x) {
    const double values[] = {f->launch_s, f->e_link, f->copy_s, f->copy_bytes_per_s,
                             f->own,      f->node_s, f->e_net,  f->relay};
    for (int i = 0; i < N_VARIABLES; i++) x[i] = log(values[i]);
}

static void from_variables(const double *x, uint32_t n, ds_sending_fit *f) {
    double *const to[] = {&f->launch_s, &f->e_link, &f->copy_s, &f->copy_bytes_per_s,
                          &f->own,      &f->node_s, &f->e_net,  &f->relay};
    for (uint32_t i = 0; i < n; i++) *to[i] = exp(x[i]);
}

static ds_status loss_of(void *context, const double *x, double *value, ds_error *err) {
    fitting *f = context;
    uint32_t n = 0;
    (void)err;
    from_variables(x, f->n_variables, &f->at);
    bool valid = f->at.e_link <= 1 && f->at.e_net <= 1 && f->at.launch_s < 1 && f->at.node_s < 1 &&
                 f->at.copy_s < 1e-3 && f->at.own < 100 && f->at.relay < 100 &&
                 f->at.copy_bytes_per_s < 1e13;
    *value = valid ? 0 : BEYOND;
    for (uint32_t i = 0; i < f->n && valid; i++) {
        if (f->samples[i].family == f->left_out) continue;
        *value +=
            ds_fit_loss(ds_sending_seconds(&f->at, &f->samples[i].sending), f->samples[i].seconds);
        n++;
    }
    *value /= n && valid ? n : 1;
    return DS_OK;
}

static ds_status search(fitting *f, const double *starts, uint32_t n_starts, double step,
                        uint32_t iterations, ds_error *err) {
    double best[N_VARIABLES], loss, packed[2 * N_VARIABLES];
    for (uint32_t s = 0; s < n_starts; s++)
        memcpy(packed + s * f->n_variables, starts + s * N_VARIABLES,
               f->n_variables * sizeof *packed);
    ds_fit_search how = {.n = f->n_variables,
                         .starts = packed,
                         .n_starts = n_starts,
                         .step = step,
                         .tolerance = 1e-3,
                         .max_iterations = iterations};
    DS_TRY(ds_fit_minimize(&how, loss_of, f, best, &loss, err));
    from_variables(best, f->n_variables, &f->at);
    return DS_OK;
}

/* Two starts of the right order; then, without each family, from what was found. */
static ds_status find(fitting *f, double *left, ds_error *err) {
    ds_sending_fit first = {30e-6, 10e-6, 0.6, 0.8, 100e-9, 50e9, 3, 3};
    ds_sending_fit second = {15e-6, 20e-6, 0.5, 0.7, 30e-9, 30e9, 1, 1};
    double starts[2 * N_VARIABLES];
    to_variables(&first, starts);
    to_variables(&second, starts + N_VARIABLES);
    f->at = first;
    f->left_out = UINT32_MAX;
    DS_TRY(search(f, starts, 2, 0.3, 1500, err));
    ds_sending_fit found = f->at;
    to_variables(&found, starts);
    for (f->left_out = 0; f->left_out < f->n_families; f->left_out++) {
        f->at = found;
        DS_TRY(search(f, starts, 1, 0.1, 200, err));
        for (uint32_t i = 0; i < f->n; i++)
            if (f->samples[i].family == f->left_out)
                left[i] = ds_sending_seconds(&f->at, &f->samples[i].sending);
    }
    f->at = found;
    return DS_OK;
}

/* ---- rows ---- */

static bool is_of(const job *j, const measured_row *row, const char *kernel, const char *op) {
    const char *own = measured_sending_kernel(row);
    return row->kind == j->in.of.kind && !row->refused && own && strcmp(own, kernel) == 0 &&
           strcmp(row->op, op) == 0 && strcmp(row->split, "calib") == 0;
}

static ds_status collect(job *j, const char *kernel, const char *op, sample *samples, fitting *f) {
    int64_t hidden[64];
    *f = (fitting){.samples = samples, .n_variables = N_INSIDE};
    for (uint32_t i = 0; i < j->in.rows.n; i++) {
        measured_row *row = &j->in.rows.at[i];
        sample s = {.seconds = row->us * 1e-6};
        if (!is_of(j, row, kernel, op)) continue;
        DS_TRY(measured_sending_on(j->machines, NULL, row, &s.sending, j->err));
        if (row->refused || s.sending.n_nodes > MOST_NODES) continue;
        if (s.sending.n_nodes > 0) f->n_variables = N_VARIABLES;
        while (s.family < f->n_families && hidden[s.family] != row->exchange.hidden) s.family++;
        if (s.family == f->n_families && f->n_families < 64)
            hidden[f->n_families++] = row->exchange.hidden;
        samples[f->n++] = s;
    }
    return DS_OK;
}

/* ---- the file ---- */

typedef struct curve_line {
    const char *kernel, *op, *what;
    double reference_gb, e_max, w_half, floor_s;
} curve_line;

static void put_line(job *j, const curve_line *c, uint32_t n, const ds_fit_errors *errors,
                     const double ratios[5]) {
    ds_buf_printf(&j->lines, "send_%s_%s_%s,*,bytes,,%.15g,%.4g,%.4g,1,1e+12,", c->kernel, c->op,
                  c->what, c->reference_gb, c->e_max, c->w_half);
    if (c->floor_s > 0) ds_buf_printf(&j->lines, "%.3f", c->floor_s * 1e6);
    ds_buf_printf(&j->lines, ",,%u,%.4g,%.4g", n, errors->median, errors->p90);
    for (int i = 0; i < 5; i++) ds_buf_printf(&j->lines, ",%.4g", ratios[i]);
    ds_buf_printf(&j->lines, ",\"%s by %s of tests/data/ops/dispatch.csv\",%s\n", c->op, c->kernel,
                  j->in.of.source);
}

static void put_fit(job *j, const char *kernel, const char *op, const fitting *f,
                    const ds_fit_errors *errors, const double ratios[5]) {
    const ds_sending_fit *c = &f->at;
    double rate = c->copy_bytes_per_s;
    double link = f->samples[0].sending.link_bytes_per_s / 1e9, net = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (f->samples[i].sending.n_nodes > 0) net = f->samples[i].sending.net_bytes_per_s / 1e9;
    const curve_line lines[] = {
        {kernel, op, "link", link, c->e_link, 0, c->launch_s},
        {kernel, op, "copy", 1, rate / 1e9, c->copy_s * rate, 0},
        {kernel, op, "own", 1, rate / 1e9 / c->own, c->copy_s * rate, 0},
        {kernel, op, "relay", 1, rate / 1e9 / c->relay, c->copy_s * rate, 0},
        {kernel, op, "net", net, c->e_net, 0, c->node_s},
    };
    for (int i = 0; i < (net > 0 ? 5 : 3); i++) put_line(j, &lines[i], f->n, errors, ratios);
}

static ds_fit_errors errors_of(const fitting *f, const ds_sending_fit *c) {
    double *seen = ds_xcalloc(2 * (size_t)f->n + 1, sizeof *seen), *measured = seen + f->n;
    for (uint32_t i = 0; i < f->n; i++) {
        seen[i] = ds_sending_seconds(c, &f->samples[i].sending);
        measured[i] = f->samples[i].seconds;
    }
    ds_fit_errors e = ds_fit_errors_of(seen, measured, f->n);
    free(seen);
    return e;
}

static ds_status fit_kernel(job *j, const char *kernel, const char *op, sample *samples) {
    fitting f;
    DS_TRY(collect(j, kernel, op, samples, &f));
    if (f.n < DS_FIT_ROWS_PER_CONSTANT * f.n_variables) return DS_OK;
    double *left = ds_xcalloc(2 * (size_t)f.n, sizeof *left), *measured = left + f.n, ratios[5];
    ds_status status = find(&f, left, j->err);
    for (uint32_t i = 0; i < f.n; i++) measured[i] = samples[i].seconds;
    if (status == DS_OK) {
        ds_fit_errors e = errors_of(&f, &f.at), unseen = ds_fit_errors_of(left, measured, f.n);
        ds_fit_ratios(left, measured, f.n, ratios);
        printf("%s, %s by %s: %u rows, median %.1f %%, p90 %.1f %%; without their hidden size "
               "median %.1f %%, p90 %.1f %%\n",
               ds_profiles_kind(j->in.profiles, j->in.of.kind)->name, op, kernel, f.n,
               100 * e.median, 100 * e.p90, 100 * unseen.median, 100 * unseen.p90);
        put_fit(j, kernel, op, &f, &e, ratios);
    }
    free(left);
    return status;
}

/* The constants of the database, which the build made of the file. */
static ds_status check_kernel(job *j, const char *kernel, const char *op, sample *samples) {
    fitting f;
    char name[64];
    ds_sending_fit c;
    DS_TRY(collect(j, kernel, op, samples, &f));
    bool enough = f.n >= DS_FIT_ROWS_PER_CONSTANT * f.n_variables;
    const measured_row *row = NULL;
    for (uint32_t i = 0; i < j->in.rows.n && !row; i++)
        if (is_of(j, &j->in.rows.at[i], kernel, op)) row = &j->in.rows.at[i];
    bool nodes = f.n_variables == N_VARIABLES;
    uint32_t profile = ds_profiles_generic(j->in.profiles, j->in.of.kind);
    bool there = row && measured_sending_fit_of(j->in.profiles, profile, row, nodes, &c);
    if (there != enough)
        return ds_error_set(j->err, DS_ERR_DATA, DS_NOWHERE, "%s: %u rows of %s by %s, a fit is %s",
                            j->in.of.path, f.n, op, kernel, enough ? "missing" : "there");
    if (!enough) return DS_OK;
    ds_csv csv;
    uint32_t line;
    snprintf(name, sizeof name, "send_%s_%s_link", kernel, op);
    DS_TRY(fit_read_in(j->in.of.path, "efficiency.csv", &csv, j->err));
    ds_status status = fit_find_row(&csv, "op", name, "*", &line, j->err);
    ds_fit_errors e = errors_of(&f, &c);
    if (status == DS_OK) status = fit_check_errors(&csv, line, &e, j->err);
    ds_csv_deinit(&csv);
    return status;
}

ds_status fit_dispatch(const char *tables, const char *folder, fit_mode mode, ds_error *err) {
    job j = {.err = err};
    ds_status status = fit_measured_read(folder, tables, "dispatch.csv", &j.in, err);
    if (status == DS_OK) j.machines = measured_machines_new(j.in.profiles);
    sample *samples = ds_xcalloc(j.in.rows.n + 1, sizeof *samples);
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels && status == DS_OK; k++)
        for (int d = 0; d < 2 && status == DS_OK; d++)
            status = mode == FIT_CHECK ? check_kernel(&j, kernels[k], directions[d], samples)
                                       : fit_kernel(&j, kernels[k], directions[d], samples);
    if (status == DS_OK && mode == FIT_WRITE)
        status = fit_replace_lines(folder, "efficiency.csv", "send_", &j.lines, err);
    free(samples);
    measured_machines_free(j.machines);
    fit_measured_deinit(&j.in);
    ds_buf_deinit(&j.lines);
    return status;
}
