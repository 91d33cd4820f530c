/* fit-profiles experts: the products of experts, and what the kernels of their layer take besides,
 * from published layers (tests/data/ops/moe.csv).
 *
 *     t = products(E, m, 2i, h) + products(E, m, h, i) + t0 + bytes/(B e)
 *
 * E experts of m tokens each, by tiles and waves in one launch (sim/cost/gemm.h, without `resident`;
 * the launches are a part of t0), and the passes around the products (tools/measured/experts.c).
 * The constants of the products go to gemm_fits.csv as the format "grouped SCALES", t0 and e to
 * efficiency.csv. One fit a dtype and format of scales. Errors and percentiles are of rows predicted
 * without all rows of their hidden size, which stands for a model. */
#include "sim/cost/gemm.h"
#include "tools/fit/products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEYOND 1e3 /* the loss outside the range of a constant */

/* With few rows the first ones alone are fitted. */
enum { E_MAX, E_MEMORY, T0, E_PASSES, N_FEW, TAIL = N_FEW, PROLOGUE, PORT, OVERLAP, N_VARIABLES };

typedef struct constants {
    ds_gemm_model products;
    double t0_s, e_passes;
} constants;

typedef struct layer {
    ds_gemm_shape products[2];
    double bytes, flop, seconds;
    uint32_t family;
} layer;

typedef struct fitting {
    const layer *layers;
    uint32_t n, left_out; /* a family; UINT32_MAX: none */
    uint32_t n_variables;
    constants at;
} fitting;

typedef struct job {
    fit_measured in;
    ds_csv fits; /* gemm_fits.csv */
    ds_error *err;
    ds_buf products, curves; /* lines of gemm_fits.csv and of efficiency.csv */
} job;

/* ---- one fit ---- */

static double seconds_of(const constants *c, const layer *l) {
    return ds_gemm_seconds(&c->products, &l->products[0], NULL) +
           ds_gemm_seconds(&c->products, &l->products[1], NULL) + c->t0_s +
           l->bytes / (c->products.bytes_per_s * c->e_passes);
}

static void to_variables(const constants *c, double *x) {
    const ds_gemm_model *m = &c->products;
    x[E_MAX] = log(m->e_max);
    x[TAIL] = log(m->tail / (1 - m->tail));
    x[PROLOGUE] = log(m->prologue);
    x[PORT] = log(m->port);
    x[E_MEMORY] = log(m->e_memory);
    x[OVERLAP] = log(m->overlap / (1 - m->overlap));
    x[T0] = log(c->t0_s);
    x[E_PASSES] = log(c->e_passes);
}

static void from_variables(const double *x, uint32_t n, constants *c) {
    ds_gemm_model *m = &c->products;
    m->e_max = exp(x[E_MAX]);
    m->e_memory = exp(x[E_MEMORY]);
    c->t0_s = exp(x[T0]);
    c->e_passes = exp(x[E_PASSES]);
    if (n == N_FEW) return;
    m->tail = 1 / (1 + exp(-x[TAIL]));
    m->prologue = exp(x[PROLOGUE]);
    m->port = exp(x[PORT]);
    m->overlap = 1 / (1 + exp(-x[OVERLAP]));
}

static ds_status loss_of(void *context, const double *x, double *value, ds_error *err) {
    fitting *f = context;
    uint32_t n = 0;
    (void)err;
    from_variables(x, f->n_variables, &f->at);
    const ds_gemm_model *m = &f->at.products;
    bool valid = ds_gemm_model_is_valid(m) && m->e_max <= 1 && m->e_memory <= 1 &&
                 f->at.e_passes <= 1 && f->at.t0_s < 1 && m->prologue < 1e4 && m->port < 10;
    *value = valid ? 0 : BEYOND;
    for (uint32_t i = 0; i < f->n && valid; i++) {
        if (f->layers[i].family == f->left_out) continue;
        *value += ds_fit_loss(seconds_of(&f->at, &f->layers[i]), f->layers[i].seconds);
        n++;
    }
    *value /= n && valid ? n : 1;
    return DS_OK;
}

static ds_status search(fitting *f, const double *starts, uint32_t n_starts, double step,
                        uint32_t iterations, ds_error *err) {
    double best[N_VARIABLES], loss;
    ds_fit_search how = {.n = f->n_variables,
                         .starts = starts,
                         .n_starts = n_starts,
                         .step = step,
                         .tolerance = 1e-3,
                         .max_iterations = iterations};
    DS_TRY(ds_fit_minimize(&how, loss_of, f, best, &loss, err));
    from_variables(best, f->n_variables, &f->at);
    return DS_OK;
}

/* From two starts of the right order for any GPU; then, without each family, from what was found.
 */
static ds_status find(job *j, const fit_product_format *format, fitting *f, uint32_t n_families,
                      double *left) {
    const ds_device_kind *kind = ds_profiles_kind(j->in.profiles, j->in.of.kind);
    ds_error *err = j->err;
    double starts[2 * N_VARIABLES];
    constants start = {.products = {.processors = fit_processors_of(kind),
                                    .flop_per_s = kind->peak_flop_per_s[format->dtype],
                                    .bytes_per_s = (double)kind->memory_bytes_per_s,
                                    .e_max = 0.7,
                                    .tail = 0.5,
                                    .prologue = 64,
                                    .port = 0.1,
                                    .e_memory = 0.85,
                                    .overlap = 0.2},
                       .t0_s = 20e-6,
                       .e_passes = 0.6};
    to_variables(&start, starts);
    constants other = start;
    other.products.prologue = 500;
    other.products.e_max = 0.9;
    other.t0_s = 30e-6;
    other.e_passes = 0.8;
    to_variables(&other, starts + N_VARIABLES);
    bool few = f->n < DS_FIT_ROWS_PER_CONSTANT * N_VARIABLES;
    f->n_variables = few ? N_FEW : N_VARIABLES;
    f->at = start;
    f->left_out = UINT32_MAX;
    DS_TRY(search(f, starts, few ? 1 : 2, 0.3, 1500, err));
    constants found = f->at;
    to_variables(&found, starts);
    for (f->left_out = 0; f->left_out < n_families; f->left_out++) {
        f->at = found;
        DS_TRY(search(f, starts, 1, 0.1, 150, err));
        for (uint32_t i = 0; i < f->n; i++)
            if (f->layers[i].family == f->left_out) left[i] = seconds_of(&f->at, &f->layers[i]);
    }
    f->at = found;
    return DS_OK;
}

/* ---- rows ---- */

static bool is_layer(const job *j, const measured_row *row, const fit_product_format *format) {
    return row->kind == j->in.of.kind && !row->refused && row->n_parts == 3 &&
           strcmp(row->dtype, format->name) == 0 && strcmp(row->split, "calib") == 0;
}

static uint32_t collect(const job *j, const fit_product_format *format, layer *layers,
                        uint32_t *n_families) {
    int64_t hidden[64];
    uint32_t n = 0;
    *n_families = 0;
    for (uint32_t i = 0; i < j->in.rows.n; i++) {
        const measured_row *row = &j->in.rows.at[i];
        if (!is_layer(j, row, format)) continue;
        layer *l = &layers[n++];
        *l = (layer){.seconds = row->us * 1e-6};
        for (int p = 0; p < 2; p++) {
            const ds_work *w = &row->parts[p].work;
            double bytes = format->element_bytes;
            l->products[p] = (ds_gemm_shape){w->batch, w->m, w->n, w->k, bytes, fmax(bytes, 2)};
            l->flop += (double)w->flop;
        }
        const ds_work *passes = &row->parts[2].work;
        l->bytes = (double)passes->bytes_read + (double)passes->bytes_written;
        while (l->family < *n_families && hidden[l->family] != passes->width) l->family++;
        if (l->family == *n_families && *n_families < 64) hidden[(*n_families)++] = passes->width;
    }
    return n;
}

/* ---- the files ---- */

/* "experts", "experts_block": the curve of the passes; "grouped", "grouped block": the format. */
static void name_of(const char *word, char between, const fit_product_format *format,
                    char out[32]) {
    if (*format->format)
        snprintf(out, 32, "%s%c%s", word, between, format->format);
    else
        snprintf(out, 32, "%s", word);
}

static void put_lines(job *j, const fit_product_format *format, const fitting *f,
                      const ds_fit_errors *seen, const ds_fit_errors *left,
                      const double ratios[5]) {
    const constants *c = &f->at;
    const ds_gemm_model *m = &c->products;
    char name[32];
    double least[2] = {HUGE_VAL, HUGE_VAL}, most[2] = {0, 0};
    for (uint32_t i = 0; i < f->n; i++) {
        const double w[2] = {f->layers[i].flop / 3, f->layers[i].bytes};
        for (int k = 0; k < 2; k++) {
            least[k] = fmin(least[k], w[k]);
            most[k] = fmax(most[k], w[k] * (2 - k)); /* the first product is twice the second */
        }
    }
    name_of("grouped", ' ', format, name);
    ds_buf_printf(&j->products,
                  "%s,%s,%lld,%.15g,%.15g,%.4g,%.4g,%.4g,%.4g,%.4g,%.4g,0,,,,,,,,%.4g,%.4g,%u,",
                  ds_dtype_name(format->dtype), name, (long long)m->processors, m->flop_per_s / 1e9,
                  m->bytes_per_s / 1e9, m->e_max, m->tail, m->prologue, m->port, m->e_memory,
                  m->overlap, least[0], most[0], f->n);
    ds_buf_printf(&j->products, "%.4g,%.4g,,,%.4g,%.4g,,", seen->median, seen->p90, left->median,
                  left->p90);
    for (int i = 0; i < 5; i++) ds_buf_printf(&j->products, ",%.4g", ratios[i]);
    ds_buf_printf(&j->products, ",%s layers of tests/data/ops/moe.csv,%s\n", format->name,
                  j->in.of.source);
    name_of("experts", '_', format, name);
    double rate = m->bytes_per_s * c->e_passes;
    ds_buf_printf(&j->curves, "%s,%s,bytes,,%.15g,%.4g,%.4g,%.4g,%.4g,,,%u,", name,
                  ds_dtype_name(format->dtype), m->bytes_per_s / 1e9, c->e_passes, c->t0_s * rate,
                  least[1], most[1], f->n);
    ds_buf_printf(&j->curves, "%.4g,%.4g", left->median, left->p90);
    for (int i = 0; i < 5; i++) ds_buf_printf(&j->curves, ",%.4g", ratios[i]);
    ds_buf_printf(&j->curves, ",%s layers of tests/data/ops/moe.csv with their products,%s\n",
                  format->name, j->in.of.source);
}

static ds_status fit_format(job *j, const fit_product_format *format) {
    layer *layers = ds_xcalloc(j->in.rows.n + 1, sizeof *layers);
    double *numbers = ds_xcalloc(3 * (size_t)j->in.rows.n + 1, sizeof *numbers), ratios[5];
    double *left = numbers, *seen = numbers + j->in.rows.n, *measured = seen + j->in.rows.n;
    uint32_t n_families;
    fitting f = {.layers = layers, .n = collect(j, format, layers, &n_families)};
    const ds_device_kind *kind = ds_profiles_kind(j->in.profiles, j->in.of.kind);
    ds_status status = DS_OK;
    if (f.n >= DS_FIT_ROWS_PER_CONSTANT * N_FEW) {
        status = find(j, format, &f, n_families, left);
        for (uint32_t i = 0; i < f.n; i++) {
            seen[i] = seconds_of(&f.at, &layers[i]);
            measured[i] = layers[i].seconds;
        }
        if (status == DS_OK) {
            ds_fit_errors e = ds_fit_errors_of(seen, measured, f.n);
            ds_fit_errors unseen = ds_fit_errors_of(left, measured, f.n);
            ds_fit_ratios(left, measured, f.n, ratios);
            printf("%s, layers of experts in %s: %u rows, median %.1f %%, p90 %.1f %%; without "
                   "their hidden size median %.1f %%, p90 %.1f %%\n",
                   kind->name, format->name, f.n, 100 * e.median, 100 * e.p90, 100 * unseen.median,
                   100 * unseen.p90);
            put_lines(j, format, &f, &e, &unseen, ratios);
        }
    }
    free(numbers);
    free(layers);
    return status;
}

/* ---- constants of the file ---- */

static ds_status read_constants(const ds_csv *products, uint32_t p, const ds_csv *curves,
                                uint32_t c, constants *out, ds_error *err) {
    double w_half;
    DS_TRY(fit_read_gemm(products, p, &out->products, err));
    DS_TRY(fit_number(curves, c, "e_max", &out->e_passes, err));
    DS_TRY(fit_number(curves, c, "w_half", &w_half, err));
    out->t0_s = w_half / (out->products.bytes_per_s * out->e_passes);
    return DS_OK;
}

static ds_status check_format(job *j, const fit_product_format *format, const ds_csv *curves) {
    const ds_csv *products = &j->fits;
    char name[32];
    uint32_t p, c, n_families;
    constants found;
    name_of("grouped", ' ', format, name);
    DS_TRY(fit_find_row(products, "format", name, ds_dtype_name(format->dtype), &p, j->err));
    name_of("experts", '_', format, name);
    DS_TRY(fit_find_row(curves, "op", name, ds_dtype_name(format->dtype), &c, j->err));
    layer *layers = ds_xcalloc(j->in.rows.n + 1, sizeof *layers);
    double *seen = ds_xcalloc(2 * (size_t)j->in.rows.n + 1, sizeof *seen),
           *measured = seen + j->in.rows.n;
    uint32_t n = collect(j, format, layers, &n_families);
    bool enough = n >= DS_FIT_ROWS_PER_CONSTANT * N_FEW;
    ds_status status = DS_OK;
    if (enough != (p != UINT32_MAX && c != UINT32_MAX))
        status = ds_error_set(j->err, DS_ERR_DATA, DS_NOWHERE,
                              "%s: %u layers of experts in %s, and a fit is %s", j->in.of.path, n,
                              format->name, enough ? "missing" : "there");
    if (status == DS_OK && enough) status = read_constants(products, p, curves, c, &found, j->err);
    if (status == DS_OK && enough) {
        for (uint32_t i = 0; i < n; i++) {
            seen[i] = seconds_of(&found, &layers[i]);
            measured[i] = layers[i].seconds;
        }
        ds_fit_errors e = ds_fit_errors_of(seen, measured, n);
        status = fit_check_errors(products, p, &e, j->err);
    }
    free(seen);
    free(layers);
    return status;
}

/* ---- a folder ---- */

static ds_status fit_all(job *j, bool write) {
    for (int i = 0; i < FIT_N_PRODUCT_FORMATS; i++) DS_TRY(fit_format(j, &fit_product_formats[i]));
    if (!write) return DS_OK;
    DS_TRY(fit_replace_lines(j->in.of.path, "gemm_fits.csv", "grouped", &j->products, j->err));
    return fit_replace_lines(j->in.of.path, "efficiency.csv", "experts", &j->curves, j->err);
}

static ds_status check_all(job *j) {
    ds_csv curves;
    DS_TRY(fit_read_in(j->in.of.path, "efficiency.csv", &curves, j->err));
    ds_status status = DS_OK;
    for (int i = 0; i < FIT_N_PRODUCT_FORMATS && status == DS_OK; i++)
        status = check_format(j, &fit_product_formats[i], &curves);
    ds_csv_deinit(&curves);
    return status;
}

ds_status fit_experts(const char *tables, const char *folder, fit_mode mode, ds_error *err) {
    job j = {.err = err};
    ds_status status = fit_measured_read(folder, tables, "moe.csv", &j.in, err);
    if (status == DS_OK) status = fit_read_in(folder, "gemm_fits.csv", &j.fits, err);
    if (status == DS_OK)
        status = mode == FIT_CHECK ? check_all(&j) : fit_all(&j, mode == FIT_WRITE);
    ds_csv_deinit(&j.fits);
    fit_measured_deinit(&j.in);
    ds_buf_deinit(&j.products);
    ds_buf_deinit(&j.curves);
    return status;
}
