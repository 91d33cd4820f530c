/* fit-profiles bench: curves of convolutions and recurrent layers from DeepBench
 * (tests/data/ops/deepbench.csv), as FLOP over a time: (w + w_half)/(F e_max).
 *
 * Filters of 3 x 3 at stride 1 may go by Winograd's algorithm, which multiplies up to 2.25 times
 * less, and filters of 1 x 1 are plain products; both have a curve beside the others
 * (tools/measured/deepbench.c), and "conv2d" stands for all. Errors and percentiles are of the
 * fitted rows; five folds of rows left out are printed. */
#include "tools/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    fit_measured in;
    ds_csv curves; /* efficiency.csv */
    fit_mode mode;
    ds_error *err;
    ds_buf lines;
} job;

static const char *const ops[] = {
    "conv2d",        "conv2d_3x3",        "conv2d_1x1",        "conv2d_wide",
    "conv2d_grad_x", "conv2d_grad_x_3x3", "conv2d_grad_x_1x1", "conv2d_grad_x_wide",
    "conv2d_grad_w", "conv2d_grad_w_3x3", "conv2d_grad_w_1x1", "conv2d_grad_w_wide",
    "lstm"};
enum { N_OPS = sizeof ops / sizeof *ops };

/* An op's curve is of the rows with the op, or with the op and a kind of filter. */
static bool is_of(const char *op, const char *row_op) {
    size_t n = strlen(op);
    if (strncmp(op, row_op, n) != 0) return false;
    const char *rest = row_op + n;
    return !*rest || strcmp(rest, "_3x3") == 0 || strcmp(rest, "_1x1") == 0 ||
           strcmp(rest, "_wide") == 0;
}

static uint32_t collect(const job *j, const char *op, ds_dtype dtype, ds_fit_row *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->in.rows.n; i++) {
        const measured_row *row = &j->in.rows.at[i];
        const ds_work *w = &row->parts[0].work;
        if (row->kind != j->in.of.kind || row->refused || w->dtype != dtype ||
            w->kind == DS_WORK_GEMM || strcmp(row->split, "calib") != 0 ||
            !is_of(op, row->parts[0].op))
            continue;
        out[n] = (ds_fit_row){.flop = (double)w->flop, .seconds = row->us * 1e-6, .group = n};
        n++;
    }
    return n;
}

static double seconds_of(const ds_fit_curve *c, double flop) {
    return (flop + c->w_half) / (c->reference_per_s * c->e_max);
}

static ds_fit_errors errors_of(const ds_fit_curve *c, const ds_fit_row *rows, uint32_t n) {
    double *seen = ds_xcalloc(2 * (size_t)n + 1, sizeof *seen), *measured = seen + n;
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = seconds_of(c, rows[i].flop);
        measured[i] = rows[i].seconds;
    }
    ds_fit_errors e = ds_fit_errors_of(seen, measured, n);
    free(seen);
    return e;
}

static ds_status fit_op(job *j, const char *op, ds_dtype dtype, const ds_fit_row *rows,
                        uint32_t n) {
    const ds_device_kind *kind = ds_profiles_kind(j->in.profiles, j->in.of.kind);
    ds_fit_roofline r;
    DS_TRY(ds_fit_efficiency(rows, n, kind->peak_flop_per_s[dtype], 0, &r, j->err));
    const ds_fit_curve *c = &r.flop;
    printf("%-20s %s %3u rows: e %.3f, median %.1f %%, p90 %.1f %%; left out %.1f %%, %.1f %%\n",
           op, ds_dtype_name(dtype), n, c->e_max, 100 * r.seen.median, 100 * r.seen.p90,
           100 * r.unseen.median, 100 * r.unseen.p90);
    ds_buf_printf(&j->lines, "%s,%s,flop,,%.15g,%.4g,%.4g,%.4g,%.4g,,,%u,%.4g,%.4g", op,
                  ds_dtype_name(dtype), c->reference_per_s / 1e9, c->e_max, c->w_half, c->w_min,
                  c->w_max, n, r.seen.median, r.seen.p90);
    for (int i = 0; i < 5; i++) ds_buf_printf(&j->lines, ",%.4g", r.ratios[i]);
    ds_buf_printf(&j->lines, ",%s of tests/data/ops/deepbench.csv,%s\n", op, j->in.of.source);
    return DS_OK;
}

static ds_status check_op(job *j, const char *op, ds_dtype dtype, const ds_fit_row *rows,
                          uint32_t n) {
    ds_fit_curve c = {0};
    const fit_number_to numbers[] = {
        {"reference_giga_per_s", .to = &c.reference_per_s, .unit = 1e9},
        {"e_max", .to = &c.e_max},
        {"w_half", .to = &c.w_half}};
    uint32_t row;
    DS_TRY(fit_find_row(&j->curves, "op", op, ds_dtype_name(dtype), &row, j->err));
    if (row != UINT32_MAX) DS_TRY(fit_numbers(&j->curves, row, numbers, 3, j->err));
    ds_fit_errors e = errors_of(&c, rows, n);
    return fit_check_errors(&j->curves, row, &e, j->err);
}

static ds_status each_op(job *j) {
    static const ds_dtype dtypes[] = {DS_F32, DS_F16};
    ds_fit_row *rows = ds_xcalloc(j->in.rows.n + 1, sizeof *rows);
    ds_status status = DS_OK;
    for (int d = 0; d < 2; d++)
        for (int o = 0; o < N_OPS && status == DS_OK; o++) {
            uint32_t n = collect(j, ops[o], dtypes[d], rows);
            if (n < 2 * DS_FIT_ROWS_PER_CONSTANT) continue;
            status = j->mode == FIT_CHECK ? check_op(j, ops[o], dtypes[d], rows, n)
                                          : fit_op(j, ops[o], dtypes[d], rows, n);
        }
    free(rows);
    return status;
}

/* The lines of all ops. */
static ds_status write_lines(job *j) {
    const ds_buf none = {0};
    DS_TRY(fit_replace_lines(j->in.of.path, "efficiency.csv", "conv2d", &none, j->err));
    return fit_replace_lines(j->in.of.path, "efficiency.csv", "lstm,", &j->lines, j->err);
}

ds_status fit_bench(const char *tables, const char *folder, fit_mode mode, ds_error *err) {
    job j = {.mode = mode, .err = err};
    ds_status status = fit_measured_read(folder, tables, "deepbench.csv", &j.in, err);
    if (status == DS_OK) status = fit_read_in(folder, "efficiency.csv", &j.curves, err);
    if (status == DS_OK) status = each_op(&j);
    if (status == DS_OK && mode == FIT_WRITE) status = write_lines(&j);
    ds_csv_deinit(&j.curves);
    fit_measured_deinit(&j.in);
    ds_buf_deinit(&j.lines);
    return status;
}
