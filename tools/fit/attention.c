/* The constants of attention by blocks and waves: attention_fits.csv from a table of measured
 * kernels (tests/data/ops/attention.csv). */
#include "sim/cost/fit/attention.h"
#include "ir/core/ir.h"
#include "tools/fit/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tables {
    ds_csv ops, fits; /* the measured table, attention_fits.csv */
    fit_mode mode;
    uint32_t n_off;
    ds_error *err;
} tables;

#define OFF 0.01 /* by which other constants may fit better */

/* ---- a row of attention_fits.csv ---- */

typedef struct wanted {
    const char *kernel, *rows_device, *rows_kernel;
    ds_dtype dtype;
    bool backward;
    double dim_least, dim_most, n;
    ds_attention_model model;
} wanted;

static ds_status read_model(tables *t, uint32_t row, ds_attention_model *m) {
    double skips;
    const fit_number_to numbers[] = {{"processors", .count = &m->processors},
                                     {"flop_giga_per_s", .to = &m->flop_per_s, .unit = 1e9},
                                     {"memory_gb_per_s", .to = &m->bytes_per_s, .unit = 1e9},
                                     {"block_rows", .count = &m->block_rows},
                                     {"head_step", .count = &m->head_step},
                                     {"skips_window", .to = &skips},
                                     {"e_max", .to = &m->e_max},
                                     {"score", .to = &m->score},
                                     {"prologue", .to = &m->prologue},
                                     {"tail", .to = &m->tail},
                                     {"e_memory", .to = &m->e_memory},
                                     {"overlap", .to = &m->overlap},
                                     {"launch_us", .to = &m->launch_s, .unit = 1e-6},
                                     {"token_ns", .to = &m->token_s, .unit = 1e-9}};
    DS_TRY(fit_numbers(&t->fits, row, numbers, sizeof numbers / sizeof *numbers, t->err));
    m->skips_window = skips > 0;
    return DS_OK;
}

static ds_status read_wanted(tables *t, uint32_t row, wanted *w) {
    const char *direction, *dtype;
    DS_TRY(fit_cell(&t->fits, row, "kernel", &w->kernel, t->err));
    DS_TRY(fit_cell(&t->fits, row, "rows_device", &w->rows_device, t->err));
    DS_TRY(fit_cell(&t->fits, row, "rows_kernel", &w->rows_kernel, t->err));
    DS_TRY(fit_cell(&t->fits, row, "direction", &direction, t->err));
    DS_TRY(fit_cell(&t->fits, row, "dtype", &dtype, t->err));
    DS_TRY(fit_number(&t->fits, row, "dim_least", &w->dim_least, t->err));
    DS_TRY(fit_number(&t->fits, row, "dim_most", &w->dim_most, t->err));
    DS_TRY(fit_number(&t->fits, row, "n", &w->n, t->err));
    w->backward = strcmp(direction, "bwd") == 0;
    if (!ds_dtype_parse(dtype, &w->dtype))
        return ds_error_set(t->err, DS_ERR_DATA, DS_NOWHERE, "%s: unknown dtype '%s'", t->fits.file,
                            dtype);
    return read_model(t, row, &w->model);
}

/* The forward model of the same kernel, for rows that were measured forward and backward. */
static ds_status forward_of(tables *t, const wanted *backward, ds_attention_model *m) {
    for (uint32_t i = 0; i < t->fits.rows.n; i++) {
        wanted w;
        DS_TRY(read_wanted(t, i, &w));
        *m = w.model;
        if (!w.backward && w.dtype == backward->dtype && strcmp(w.kernel, backward->kernel) == 0)
            return DS_OK;
    }
    return ds_error_set(t->err, DS_ERR_DATA, DS_NOWHERE,
                        "%s: no forward row of kernel %s, which rows of both passes need",
                        t->fits.file, backward->kernel);
}

/* ---- measured rows ---- */

typedef struct sample {
    ds_attention_row *rows;
    uint32_t n;
    fit_groups families, sizes;
} sample;

static ds_status dim(tables *t, uint32_t row, const char *column, int64_t *out) {
    double value;
    DS_TRY(fit_number(&t->ops, row, column, &value, t->err));
    *out = (int64_t)value;
    return DS_OK;
}

/* Is the table one of latent attention (mla.csv)? Its rows name no kernel, and their operation
 * stands in its place. */
static bool is_latent(const tables *t) {
    return ds_csv_find(&t->ops, "qk_nope") != DS_CSV_NO_COLUMN;
}

/* As many heads of keys as of queries, each with a part that is turned. */
static ds_status read_latent(tables *t, uint32_t row, ds_attention_shape *s) {
    int64_t turned;
    DS_TRY(dim(t, row, "batch", &s->batch));
    DS_TRY(dim(t, row, "heads", &s->heads));
    DS_TRY(dim(t, row, "qk_nope", &s->head_dim));
    DS_TRY(dim(t, row, "qk_rope", &turned));
    DS_TRY(dim(t, row, "v_head", &s->value_dim));
    DS_TRY(dim(t, row, "seq_q", &s->seq_q));
    DS_TRY(dim(t, row, "seq_kv", &s->seq_kv));
    s->kv_heads = s->heads;
    s->head_dim += turned;
    s->causal = true;
    return DS_OK;
}

static ds_status read_shape(tables *t, uint32_t row, ds_attention_shape *s) {
    const char *window;
    int64_t causal;
    if (is_latent(t)) return read_latent(t, row, s);
    DS_TRY(dim(t, row, "batch", &s->batch));
    DS_TRY(dim(t, row, "heads", &s->heads));
    DS_TRY(dim(t, row, "kv_heads", &s->kv_heads));
    DS_TRY(dim(t, row, "head_dim", &s->head_dim));
    DS_TRY(dim(t, row, "head_dim_v", &s->value_dim));
    DS_TRY(dim(t, row, "seq_q", &s->seq_q));
    DS_TRY(dim(t, row, "seq_kv", &s->seq_kv));
    DS_TRY(dim(t, row, "causal", &causal));
    DS_TRY(fit_cell(&t->ops, row, "window", &window, t->err));
    s->window = *window ? strtoll(window, NULL, 10) : 0;
    s->causal = causal == 1;
    return DS_OK;
}

/* The type of the table's word, and whether the word says more ("mxfp8": a kernel of its own). */
static bool is_dtype(const char *word, ds_dtype dtype) {
    bool half = strcmp(word, "bf16") == 0 || strcmp(word, "fp16") == 0;
    bool narrow = strcmp(word, "fp8") == 0 || strcmp(word, "mxfp8") == 0;
    return dtype == DS_BF16 ? half : dtype == DS_F8E4M3 && narrow;
}

static ds_status is_wanted(tables *t, uint32_t row, const wanted *w, bool *both, bool *yes) {
    const char *device, *kernel, *dtype, *direction, *split;
    char full[128];
    DS_TRY(fit_cell(&t->ops, row, "device", &device, t->err));
    DS_TRY(fit_cell(&t->ops, row, is_latent(t) ? "op" : "kernel", &kernel, t->err));
    DS_TRY(fit_cell(&t->ops, row, "dtype", &dtype, t->err));
    DS_TRY(fit_cell(&t->ops, row, "direction", &direction, t->err));
    DS_TRY(fit_cell(&t->ops, row, "split", &split, t->err));
    bool blocks = strcmp(dtype, "mxfp8") == 0;
    snprintf(full, sizeof full, "%s%s", kernel, blocks ? ":mxfp8" : "");
    *both = w->backward && strcmp(direction, "fwd+bwd") == 0;
    *yes = strcmp(device, w->rows_device) == 0 && strcmp(full, w->rows_kernel) == 0 &&
           is_dtype(dtype, w->dtype) && strcmp(split, "calib") == 0 &&
           (*both || strcmp(direction, w->backward ? "bwd" : "fwd") == 0);
    return DS_OK;
}

static ds_status take_row(tables *t, uint32_t row, const wanted *w, bool both, sample *s) {
    ds_attention_row r = {0};
    char name[64];
    DS_TRY(read_shape(t, row, &r.shape));
    if ((double)r.shape.head_dim < w->dim_least || (double)r.shape.head_dim > w->dim_most)
        return DS_OK;
    DS_TRY(fit_number(&t->ops, row, "time_us", &r.seconds, t->err));
    r.seconds *= 1e-6;
    double element = ds_dtype_bits(w->dtype) / 8.0;
    r.shape.bytes = ds_attention_bytes(&r.shape, element);
    if (both) {
        ds_attention_model forward;
        DS_TRY(forward_of(t, w, &forward));
        r.other_s = ds_attention_seconds(&forward, &r.shape, NULL);
    }
    r.shape.backward = w->backward;
    r.shape.bytes = ds_attention_bytes(&r.shape, element);
    snprintf(name, sizeof name, "%lld/%lld", (long long)r.shape.heads, (long long)r.shape.head_dim);
    r.family = fit_group(&s->families, name);
    snprintf(name, sizeof name, "%lld", (long long)r.shape.seq_q);
    r.size = fit_group(&s->sizes, name);
    s->rows[s->n++] = r;
    return DS_OK;
}

static ds_status collect(tables *t, const wanted *w, sample *s) {
    s->rows = ds_xcalloc(t->ops.rows.n + 1, sizeof *s->rows);
    for (uint32_t i = 0; i < t->ops.rows.n; i++) {
        bool both, yes;
        DS_TRY(is_wanted(t, i, w, &both, &yes));
        if (yes) DS_TRY(take_row(t, i, w, both, s));
    }
    return DS_OK;
}

/* ---- attention_fits.csv ---- */

static ds_status write_row(tables *t, uint32_t row, const ds_attention_fit_result *r, uint32_t n) {
    const fit_value cells[] = {{"block_rows", (double)r->model.block_rows},
                               {"e_max", r->model.e_max},
                               {"score", r->model.score},
                               {"prologue", r->model.prologue},
                               {"tail", r->model.tail},
                               {"e_memory", r->model.e_memory},
                               {"overlap", r->model.overlap},
                               {"launch_us", r->model.launch_s * 1e6},
                               {"token_ns", r->model.token_s * 1e9},
                               {"w_min", r->w_min},
                               {"w_max", r->w_max},
                               {"family_median_error", r->family.median},
                               {"family_p90_error", r->family.p90},
                               {"size_median_error", r->size.median},
                               {"size_p90_error", r->size.p90}};
    DS_TRY(fit_set_values(&t->fits, row, cells, sizeof cells / sizeof *cells, t->err));
    return fit_set_errors(&t->fits, row, n, &r->seen, r->ratios, t->err);
}

static void print_title(const wanted *w, uint32_t n) {
    printf("attention by %s, %s %s, heads of %g to %g, %u rows", w->kernel,
           w->backward ? "backward" : "forward", ds_dtype_name(w->dtype), w->dim_least, w->dim_most,
           n);
}

static void print_fit(const wanted *w, const sample *s, const ds_attention_fit_result *r) {
    const ds_attention_model *m = &r->model;
    print_title(w, s->n);
    printf(", %u families, %u sizes\n", s->families.seen.n, s->sizes.seen.n);
    printf("  blocks of %lld, e_max %.4g, score %.4g, prologue %.4g, tail %.4g, e_memory %.4g, "
           "overlap %.4g, launch %.4g us, token %.4g ns\n",
           (long long)m->block_rows, m->e_max, m->score, m->prologue, m->tail, m->e_memory,
           m->overlap, 1e6 * m->launch_s, 1e9 * m->token_s);
    fit_print_errors("rows seen", &r->seen);
    fit_print_errors("families left out", &r->family);
    fit_print_errors("sizes left out", &r->size);
    printf("  measured/predicted, left out: 5 %% below %.3f, half below %.3f, 95 %% below %.3f\n",
           r->ratios[0], r->ratios[2], r->ratios[4]);
}

/* The usual numbers of rows a block; the loss says which a kernel has. */
static ds_status fit_blocks(const sample *s, const wanted *w, ds_attention_fit_result *out,
                            ds_error *err) {
    static const int64_t rows[] = {64, 128, 256};
    ds_attention_model best = w->model;
    double least = 0;
    for (int i = 0; i < 3; i++) {
        ds_attention_model start = w->model;
        start.block_rows = rows[i];
        DS_TRY(ds_fit_attention(s->rows, s->n, &start, false, out, err));
        if (i > 0 && !(out->loss < least)) continue;
        least = out->loss;
        best = out->model;
    }
    return ds_fit_attention(s->rows, s->n, &best, true, out, err);
}

static ds_status check_row(tables *t, const wanted *w, const sample *s) {
    ds_attention_fit_result r;
    DS_TRY(ds_fit_attention(s->rows, s->n, &w->model, false, &r, t->err));
    double loss = ds_attention_loss(s->rows, s->n, &w->model);
    print_title(w, s->n);
    printf(": loss %.6g with the constants in the file, %.6g with the best\n", loss, r.loss);
    if (loss > r.loss * (1 + OFF)) t->n_off++;
    return DS_OK;
}

static ds_status fit_sample(tables *t, uint32_t row, const wanted *w, sample *s) {
    ds_attention_fit_result r;
    DS_TRY(collect(t, w, s));
    if (t->mode == FIT_CHECK) return check_row(t, w, s);
    DS_TRY(fit_blocks(s, w, &r, t->err));
    print_fit(w, s, &r);
    return write_row(t, row, &r, s->n); /* in memory: later rows may need the forward pass */
}

static ds_status fit_row(tables *t, uint32_t row) {
    wanted w;
    sample s = {0};
    DS_TRY(read_wanted(t, row, &w));
    bool latent = strcmp(w.rows_kernel, "context_mla") == 0;
    if (!(w.n > 0) || latent != is_latent(t)) return DS_OK;
    ds_strtab_init(&s.families.names);
    ds_strtab_init(&s.sizes.names);
    ds_status status = fit_sample(t, row, &w, &s);
    fit_groups_deinit(&s.families);
    fit_groups_deinit(&s.sizes);
    free(s.rows);
    return status;
}

static ds_status fit_rows(tables *t) {
    for (uint32_t i = 0; i < t->fits.rows.n; i++) DS_TRY(fit_row(t, i));
    return fit_write_or_check(&t->fits, false, t->mode, t->n_off, t->err);
}

ds_status fit_attention(const char *folder, const char *table, fit_mode mode, ds_error *err) {
    tables t = {.mode = mode, .err = err};
    ds_status status = ds_csv_read(table, &t.ops, err);
    if (status == DS_OK) status = fit_read_in(folder, "attention_fits.csv", &t.fits, err);
    if (status == DS_OK) status = fit_rows(&t);
    ds_csv_deinit(&t.fits);
    ds_csv_deinit(&t.ops);
    return status;
}
