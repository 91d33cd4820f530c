/* fit-profiles bench: curves of convolutions and recurrent layers from DeepBench
 * (tests/data/ops/deepbench.csv), as FLOP over a time: (w + w_half)/(F e_max).
 *
 * Filters of 3 x 3 at stride 1 may go by Winograd's algorithm, which multiplies up to 2.25 times
 * less, and filters of 1 x 1 are plain products; both have a curve beside the others
 * (tools/measured/deepbench.c), and "conv2d" stands for all. Errors and percentiles are of the
 * fitted rows; five folds of rows left out are printed. */
#include "sim/cost/fit/fit.h"
#include "tools/fit/fit.h"
#include "tools/measured/measured.h"

#include "ir/base/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OFF 0.001 /* of an error */

typedef struct job {
    ds_profiles *profiles;
    ds_arena arena;
    measured_rows rows;
    uint32_t kind;
    const char *folder, *source;
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
    for (uint32_t i = 0; i < j->rows.n; i++) {
        const measured_row *row = &j->rows.at[i];
        const ds_work *w = &row->parts[0].work;
        if (row->kind != j->kind || row->refused || w->dtype != dtype || w->kind == DS_WORK_GEMM ||
            strcmp(row->split, "calib") != 0 || !is_of(op, row->parts[0].op))
            continue;
        out[n] = (ds_fit_row){.flop = (double)w->flop, .seconds = row->us * 1e-6, .group = n};
        n++;
    }
    return n;
}

static double seconds_of(const ds_fit_curve *c, double flop) {
    return (flop + c->w_half) / (c->reference_per_s * c->e_max);
}

static ds_fit_errors errors_of(const ds_fit_curve *c, const ds_fit_row *rows, uint32_t n,
                               double ratios[5]) {
    double *seen = ds_xcalloc(2 * (size_t)n + 1, sizeof *seen), *measured = seen + n;
    for (uint32_t i = 0; i < n; i++) {
        seen[i] = seconds_of(c, rows[i].flop);
        measured[i] = rows[i].seconds;
    }
    ds_fit_errors e = ds_fit_errors_of(seen, measured, n);
    ds_fit_ratios(seen, measured, n, ratios);
    free(seen);
    return e;
}

static ds_status fit_op(job *j, const char *op, ds_dtype dtype, const ds_fit_row *rows,
                        uint32_t n) {
    const ds_device_kind *kind = ds_profiles_kind(j->profiles, j->kind);
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
    ds_buf_printf(&j->lines, ",%s of tests/data/ops/deepbench.csv,%s\n", op, j->source);
    return DS_OK;
}

static ds_status check_op(job *j, const char *op, ds_dtype dtype, const ds_fit_row *rows,
                          uint32_t n) {
    for (uint32_t i = 0; i < j->curves.rows.n; i++) {
        const char *name, *type;
        double v[5], ratios[5];
        static const char *const columns[] = {"reference_giga_per_s", "e_max", "w_half",
                                              "median_error", "p90_error"};
        DS_TRY(fit_cell(&j->curves, i, "op", &name, j->err));
        DS_TRY(fit_cell(&j->curves, i, "dtype", &type, j->err));
        if (strcmp(name, op) != 0 || strcmp(type, ds_dtype_name(dtype)) != 0) continue;
        for (int k = 0; k < 5; k++) DS_TRY(fit_number(&j->curves, i, columns[k], &v[k], j->err));
        ds_fit_curve c = {.reference_per_s = v[0] * 1e9, .e_max = v[1], .w_half = v[2]};
        ds_fit_errors e = errors_of(&c, rows, n, ratios);
        if (fabs(e.median - v[3]) < OFF * (1 + v[3]) && fabs(e.p90 - v[4]) < OFF * (1 + v[4]))
            return DS_OK;
        return ds_csv_error(&j->curves, &j->curves.rows.at[i], j->err,
                            "median_error and p90_error would be %.4g and %.4g", e.median, e.p90);
    }
    return ds_error_set(j->err, DS_ERR_DATA, DS_NOWHERE, "%s: no curve of %s in %s", j->curves.file,
                        op, ds_dtype_name(dtype));
}

static ds_status each_op(job *j) {
    static const ds_dtype dtypes[] = {DS_F32, DS_F16};
    ds_fit_row *rows = ds_xcalloc(j->rows.n + 1, sizeof *rows);
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

static ds_status read_table(const char *folder, const char *name, ds_csv *csv, ds_error *err) {
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/%s", folder, name);
    ds_status status = ds_csv_read(path.text, csv, err);
    ds_buf_deinit(&path);
    return status;
}

static ds_status read_job(job *j, const char *tables) {
    ds_csv csv;
    const char *device, *source;
    DS_TRY(ds_profiles_load(NULL, &j->profiles, j->err));
    DS_TRY(read_table(j->folder, "profile.csv", &csv, j->err));
    ds_status status = fit_cell(&csv, 0, "device", &device, j->err);
    if (status == DS_OK) status = fit_cell(&csv, 0, "source", &source, j->err);
    if (status == DS_OK)
        status = ds_profiles_find_kind(j->profiles, device, DS_NOWHERE, &j->kind, j->err);
    if (status == DS_OK) j->source = ds_arena_strdup(&j->arena, source);
    ds_csv_deinit(&csv);
    DS_TRY(status);
    DS_TRY(read_table(tables, "deepbench.csv", &csv, j->err));
    status = measured_read(&csv, j->profiles, &j->arena, &j->rows, j->err);
    ds_csv_deinit(&csv);
    DS_TRY(status);
    return read_table(j->folder, "efficiency.csv", &j->curves, j->err);
}

/* The file's other lines, then the curves. */
static ds_status write_lines(job *j) {
    ds_buf path = {0}, part = {0}, all = {0};
    ds_buf_printf(&path, "%s/efficiency.csv", j->folder);
    ds_status status = fit_put_lines(path.text, "conv2d", false, &part, j->err);
    for (char *at = part.text, *end; status == DS_OK && at && *at; at = end) {
        end = strchr(at, '\n') + 1;
        if (strncmp(at, "lstm,", 5) != 0) ds_buf_printf(&all, "%.*s", (int)(end - at), at);
    }
    if (status == DS_OK && j->lines.n) ds_buf_put(&all, j->lines.text);
    if (status == DS_OK)
        status = ds_output_write(path.text, DS_OUTPUT_OVERWRITE, all.text, all.n, j->err);
    ds_buf_deinit(&part);
    ds_buf_deinit(&all);
    ds_buf_deinit(&path);
    return status;
}

ds_status fit_bench(const char *tables, const char *folder, fit_mode mode, ds_error *err) {
    job j = {.folder = folder, .mode = mode, .err = err};
    ds_arena_init(&j.arena);
    ds_status status = read_job(&j, tables);
    if (status == DS_OK) status = each_op(&j);
    if (status == DS_OK && mode == FIT_WRITE) status = write_lines(&j);
    ds_csv_deinit(&j.curves);
    ds_profiles_free(j.profiles);
    ds_arena_deinit(&j.arena);
    ds_buf_deinit(&j.lines);
    return status;
}
