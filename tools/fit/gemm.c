/* The constants of products by tiles and waves: gemm_fits.csv from ops.csv. */
#include "sim/cost/fit/gemm.h"
#include "ir/core/ir.h"
#include "tools/fit/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tables {
    ds_csv ops, fits; /* ops.csv, gemm_fits.csv */
    fit_mode mode;
    bool started; /* the table is new */
    uint32_t n_off;
    ds_error *err;
} tables;

#define OFF 0.01 /* by which other constants may fit better */

/* ---- measured rows ---- */

typedef struct sample {
    ds_gemm_row *rows;
    uint32_t n;
    fit_groups shapes, families, sizes;
} sample;

static ds_status take_sample(tables *t, uint32_t row, double element_bytes, sample *s) {
    ds_gemm_row r = {.shape = {.element_bytes = element_bytes, .result_bytes = element_bytes}};
    const char *m, *n, *k, *source;
    char name[128];
    const fit_number_to numbers[] = {{"batch", .count = &r.shape.batch},
                                     {"m", .count = &r.shape.m},
                                     {"n", .count = &r.shape.n},
                                     {"k", .count = &r.shape.k},
                                     {"time_us", .to = &r.seconds, .unit = 1e-6}};
    DS_TRY(fit_numbers(&t->ops, row, numbers, 5, t->err));
    DS_TRY(fit_cell(&t->ops, row, "m", &m, t->err));
    DS_TRY(fit_cell(&t->ops, row, "n", &n, t->err));
    DS_TRY(fit_cell(&t->ops, row, "k", &k, t->err));
    DS_TRY(fit_cell(&t->ops, row, "source", &source, t->err));
    snprintf(name, sizeof name, "%s/%s", n, k);
    r.shape_group = fit_group(&s->shapes, name);
    r.family = fit_group(&s->families, source);
    r.size = fit_group(&s->sizes, m);
    s->rows[s->n++] = r;
    return DS_OK;
}

static ds_status collect_products(tables *t, const char *dtype, sample *s) {
    ds_dtype type;
    if (!ds_dtype_parse(dtype, &type))
        return ds_error_set(t->err, DS_ERR_DATA, DS_NOWHERE, "%s: unknown dtype '%s'", t->fits.file,
                            dtype);
    s->rows = ds_xcalloc(t->ops.rows.n + 1, sizeof *s->rows);
    for (uint32_t i = 0; i < t->ops.rows.n; i++) {
        const char *class, *of;
        DS_TRY(fit_cell(&t->ops, i, "class", &class, t->err));
        DS_TRY(fit_cell(&t->ops, i, "dtype", &of, t->err));
        if (strcmp(class, "gemm") == 0 && strcmp(of, dtype) == 0)
            DS_TRY(take_sample(t, i, ds_dtype_bits(type) / 8.0, s));
    }
    return DS_OK;
}

/* ---- gemm_fits.csv ---- */

static ds_status write_row(tables *t, uint32_t row, const ds_gemm_fit_result *r, uint32_t n) {
    const fit_value cells[] = {{"e_max", r->model.e_max},
                               {"tail", r->model.tail},
                               {"prologue", r->model.prologue},
                               {"port", r->model.port},
                               {"e_memory", r->model.e_memory},
                               {"overlap", r->model.overlap},
                               {"launch_us", r->model.launch_s * 1e6},
                               {"w_min", r->w_min},
                               {"w_max", r->w_max},
                               {"shape_median_error", r->shape.median},
                               {"shape_p90_error", r->shape.p90},
                               {"family_median_error", r->family.median},
                               {"family_p90_error", r->family.p90},
                               {"size_median_error", r->size.median},
                               {"size_p90_error", r->size.p90}};
    DS_TRY(fit_set_values(&t->fits, row, cells, sizeof cells / sizeof *cells, t->err));
    return fit_set_errors(&t->fits, row, n, &r->seen, r->ratios, t->err);
}

static void print_fit(const char *dtype, const sample *s, const ds_gemm_fit_result *r) {
    const ds_gemm_model *m = &r->model;
    printf("products in %s by tiles and waves, %u rows, %u shapes, %u families, %u sizes\n", dtype,
           s->n, s->shapes.seen.n, s->families.seen.n, s->sizes.seen.n);
    printf("  e_max %.4g, tail %.4g, prologue %.4g, port %.4g, e_memory %.4g, overlap %.4g, launch "
           "%.4g us\n",
           m->e_max, m->tail, m->prologue, m->port, m->e_memory, m->overlap, 1e6 * m->launch_s);
    fit_print_errors("rows seen", &r->seen);
    fit_print_errors("shapes left out", &r->shape);
    fit_print_errors("families left out", &r->family);
    fit_print_errors("sizes left out", &r->size);
    printf("  measured/predicted: 5 %% below %.3f, half below %.3f, 95 %% below %.3f\n",
           r->ratios[0], r->ratios[2], r->ratios[4]);
}

static void check_row(tables *t, const char *dtype, const sample *s, const ds_gemm_model *in_file,
                      const ds_gemm_fit_result *r) {
    double loss = ds_gemm_loss(s->rows, s->n, in_file, &(ds_gemm_conversion){0});
    printf("products in %s: loss %.6g with the constants in the file, %.6g with the best\n", dtype,
           loss, r->loss);
    if (loss > r->loss * (1 + OFF)) t->n_off++;
}

static ds_status fit_row(tables *t, uint32_t row) {
    const char *dtype;
    double n;
    ds_gemm_fit_start start = {.validate = t->mode != FIT_CHECK};
    ds_gemm_fit_result r;
    sample s = {0};
    DS_TRY(fit_number(&t->fits, row, "n", &n, t->err));
    if (!(n > 0)) return DS_OK;
    DS_TRY(fit_cell(&t->fits, row, "dtype", &dtype, t->err));
    DS_TRY(fit_read_gemm(&t->fits, row, &start.model, t->err));
    ds_strtab_init(&s.shapes.names);
    ds_strtab_init(&s.families.names);
    ds_strtab_init(&s.sizes.names);
    ds_status status = collect_products(t, dtype, &s);
    if (status == DS_OK) status = ds_fit_gemm(s.rows, s.n, &start, &r, t->err);
    if (status == DS_OK && t->mode == FIT_CHECK) check_row(t, dtype, &s, &start.model, &r);
    if (status == DS_OK && t->mode != FIT_CHECK) print_fit(dtype, &s, &r);
    if (status == DS_OK && t->mode == FIT_WRITE) status = write_row(t, row, &r, s.n);
    fit_groups_deinit(&s.shapes);
    fit_groups_deinit(&s.families);
    fit_groups_deinit(&s.sizes);
    free(s.rows);
    return status;
}

static ds_status fit_rows(tables *t) {
    for (uint32_t i = 0; i < t->fits.rows.n; i++) {
        ds_status status = fit_row(t, i);
        if (status != DS_OK && !t->started) return status;
        if (status == DS_OK) continue;
        printf("products by tiles and waves left out: %s\n", t->err->message);
        return DS_OK;
    }
    return fit_write_or_check(&t->fits, t->started, t->mode, t->n_off, t->err);
}

/* gemm_fits.csv as it is, or one for the rows; *any: there is something to fit. */
static ds_status read_fits(tables *t, const char *folder, bool *any) {
    ds_buf path = {0}, text = {0};
    ds_buf_printf(&path, "%s/gemm_fits.csv", folder);
    t->started = access(path.text, F_OK) != 0;
    *any = !t->started || (t->mode != FIT_CHECK && fit_start_gemms(&t->ops, folder, &text));
    ds_status status = DS_OK;
    if (!t->started)
        status = ds_csv_read(path.text, &t->fits, t->err);
    else if (*any)
        status = ds_csv_parse(path.text, text.text, text.n, &t->fits, t->err);
    ds_buf_deinit(&text);
    ds_buf_deinit(&path);
    return status;
}

static ds_status fit_folder(tables *t, const char *folder) {
    bool any;
    DS_TRY(read_fits(t, folder, &any));
    if (!any) return DS_OK;
    ds_status status = fit_rows(t);
    ds_csv_deinit(&t->fits);
    return status;
}

ds_status fit_gemms(const char *folder, fit_mode mode, ds_error *err) {
    tables t = {.mode = mode, .err = err};
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/ops.csv", folder);
    ds_status status = DS_OK;
    if (access(path.text, F_OK) == 0) {
        status = ds_csv_read(path.text, &t.ops, err);
        if (status == DS_OK) {
            status = fit_folder(&t, folder);
            ds_csv_deinit(&t.ops);
        }
    }
    ds_buf_deinit(&path);
    return status;
}
