/* fit-profiles ops: efficiency.csv from ops.csv.
 *
 * A row of efficiency.csv with n > 0 is fitted to the rows of ops.csv of its op or class, and of
 * its dtype; a flop and a bytes row of one op together, as the roofline takes the longer of the
 * two. A flop row with n = 0 is assumed to follow the fitted gemm curve: the same e_max and the
 * same fixed time an op, so w_half goes with the reference rate. What was measured more than once
 * counts as often. */
#include "ir/base/str.h"
#include "ir/core/ir.h"
#include "sim/cost/fit/fit.h"
#include "tools/fit/fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tables {
    ds_csv ops, curves; /* ops.csv, efficiency.csv */
    uint32_t n_off;     /* constants in the file that are not the fitted ones */
    bool started;       /* the curves are new */
    ds_error *err;
} tables;

/* Further off than the fifth digit that is rounded away, and than what another mathematics library
 * makes of the last digits. */
#define OFF 0.01

/* ---- measured rows ---- */

/* Tensors that a memory-bound op reads and writes, each tokens × width: operands and result of the
 * op table; scales of a norm and rotary's angles, a row of their own at most, are left out. */
static double tensors_of(const char *op) {
    static const char *const three[] = {"add",       "silu_mul", "relu_grad",
                                        "gelu_grad", "mse_grad", "sgd"};
    for (size_t i = 0; i < sizeof three / sizeof *three; i++)
        if (strcmp(op, three[i]) == 0) return 3;
    return 2;
}

static ds_status gemm_work(tables *t, uint32_t row, double element_bytes, ds_fit_row *out) {
    double batch, m, n, k;
    DS_TRY(fit_number(&t->ops, row, "batch", &batch, t->err));
    DS_TRY(fit_number(&t->ops, row, "m", &m, t->err));
    DS_TRY(fit_number(&t->ops, row, "n", &n, t->err));
    DS_TRY(fit_number(&t->ops, row, "k", &k, t->err));
    out->flop = 2 * batch * m * n * k;
    out->bytes = element_bytes * batch * (m * k + k * n + m * n);
    return DS_OK;
}

/* 4 b h s t d FLOPs, half of them if causal, as the op table counts; q, k, v and the result once.
 */
static ds_status attention_work(tables *t, uint32_t row, double element_bytes, ds_fit_row *out) {
    double batch, heads, kv_heads, q, kv, dim;
    const char *causal;
    DS_TRY(fit_number(&t->ops, row, "batch", &batch, t->err));
    DS_TRY(fit_number(&t->ops, row, "heads", &heads, t->err));
    DS_TRY(fit_number(&t->ops, row, "kv_heads", &kv_heads, t->err));
    DS_TRY(fit_number(&t->ops, row, "seq_q", &q, t->err));
    DS_TRY(fit_number(&t->ops, row, "seq_kv", &kv, t->err));
    DS_TRY(fit_number(&t->ops, row, "head_dim", &dim, t->err));
    DS_TRY(fit_cell(&t->ops, row, "causal", &causal, t->err));
    out->flop = (strcmp(causal, "1") == 0 ? 2 : 4) * batch * heads * q * kv * dim;
    out->bytes = element_bytes * batch * dim * 2 * (heads * q + kv_heads * kv);
    return DS_OK;
}

static ds_status memory_work(tables *t, uint32_t row, const char *op, double element_bytes,
                             ds_fit_row *out) {
    double tokens, width;
    DS_TRY(fit_number(&t->ops, row, "tokens", &tokens, t->err));
    DS_TRY(fit_number(&t->ops, row, "width", &width, t->err));
    out->bytes = tensors_of(op) * element_bytes * tokens * width;
    return DS_OK;
}

static ds_status read_row(tables *t, uint32_t row, ds_fit_row *out) {
    const char *class, *op, *name;
    ds_dtype dtype;
    DS_TRY(fit_cell(&t->ops, row, "class", &class, t->err));
    DS_TRY(fit_cell(&t->ops, row, "op", &op, t->err));
    DS_TRY(fit_cell(&t->ops, row, "dtype", &name, t->err));
    DS_TRY(fit_number(&t->ops, row, "time_us", &out->seconds, t->err));
    out->seconds *= 1e-6;
    if (!ds_dtype_parse(name, &dtype))
        return ds_csv_error(&t->ops, &t->ops.rows.at[row], t->err, "unknown dtype '%s'", name);
    double element_bytes = ds_dtype_bits(dtype) / 8.0;
    if (strcmp(class, "gemm") == 0) return gemm_work(t, row, element_bytes, out);
    if (strcmp(class, "attention") == 0) return attention_work(t, row, element_bytes, out);
    if (strcmp(class, "memory") == 0) return memory_work(t, row, op, element_bytes, out);
    return ds_csv_error(&t->ops, &t->ops.rows.at[row], t->err,
                        "class '%s': only gemm, attention and memory can be fitted", class);
}

/* ---- groups of the cross-validation ---- */

/* All but the tokens of a shape. Or the tokens alone. */
static ds_status put_shape(tables *t, uint32_t row, bool by_tokens, ds_buf *out) {
    static const char *const shape[] = {"op", "n", "k", "width", "heads", "seq_kv", NULL};
    static const char *const tokens[] = {"m", "tokens", "seq_q", NULL};
    for (const char *const *c = by_tokens ? tokens : shape; *c; c++) {
        const char *text;
        if (ds_csv_find(&t->ops, *c) == DS_CSV_NO_COLUMN) continue; /* no attention there */
        DS_TRY(fit_cell(&t->ops, row, *c, &text, t->err));
        ds_buf_printf(out, "%s/", text);
    }
    return DS_OK;
}

static ds_status group(tables *t, const uint32_t *index, ds_fit_row *rows, uint32_t n,
                       bool by_tokens, uint32_t *n_groups) {
    fit_groups g = {0};
    ds_buf name = {0};
    ds_strtab_init(&g.names);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        name.n = 0;
        status = put_shape(t, index[i], by_tokens, &name);
        if (status == DS_OK) rows[i].group = fit_group(&g, name.text);
    }
    *n_groups = g.seen.n;
    ds_buf_deinit(&name);
    fit_groups_deinit(&g);
    return status;
}

/* ---- one op ---- */

/* The rows of efficiency.csv of one op that are fitted together. */
typedef struct curves {
    const char *op;
    uint32_t row[2];   /* of flop and bytes in efficiency.csv, UINT32_MAX: none */
    double rate[2];    /* reference, per s; 0: none */
    const char *dtype; /* that measured rows must have, or "*" */
} curves;

static ds_status is_of(tables *t, uint32_t row, const curves *c, bool *out) {
    const char *op, *class, *dtype;
    DS_TRY(fit_cell(&t->ops, row, "op", &op, t->err));
    DS_TRY(fit_cell(&t->ops, row, "class", &class, t->err));
    DS_TRY(fit_cell(&t->ops, row, "dtype", &dtype, t->err));
    *out = (strcmp(op, c->op) == 0 || strcmp(class, c->op) == 0) &&
           (strcmp(c->dtype, "*") == 0 || strcmp(c->dtype, dtype) == 0);
    return DS_OK;
}

/* rows[] and index[] have room for all rows of ops.csv. */
static ds_status rows_of_curves(tables *t, const curves *c, ds_fit_row *rows, uint32_t *index,
                                uint32_t *n) {
    *n = 0;
    for (uint32_t i = 0; i < t->ops.rows.n; i++) {
        bool mine;
        DS_TRY(is_of(t, i, c, &mine));
        if (!mine) continue;
        index[*n] = i;
        DS_TRY(read_row(t, i, &rows[(*n)++]));
    }
    uint32_t n_groups;
    DS_TRY(group(t, index, rows, *n, false, &n_groups));
    return n_groups < DS_FIT_FOLDS ? group(t, index, rows, *n, true, &n_groups) : DS_OK;
}

static ds_status fit_curves(tables *t, const curves *c, ds_fit_roofline *out) {
    ds_fit_row *rows = ds_xcalloc(t->ops.rows.n, sizeof *rows);
    uint32_t *index = ds_xcalloc(t->ops.rows.n, sizeof *index), n;
    ds_status status = rows_of_curves(t, c, rows, index, &n);
    if (status == DS_OK) status = ds_fit_efficiency(rows, n, c->rate[0], c->rate[1], out, t->err);
    free(index);
    free(rows);
    return status;
}

/* ---- efficiency.csv ---- */

/* Into the table in memory, 4 significant digits. */
static ds_status set_row(tables *t, uint32_t row, const ds_fit_curve *curve,
                         const ds_fit_roofline *fit) {
    const fit_value constants[] = {{"e_max", curve->e_max},
                                   {"w_half", curve->w_half},
                                   {"w_min", curve->w_min},
                                   {"w_max", curve->w_max}};
    DS_TRY(fit_set_values(&t->curves, row, constants, 4, t->err));
    if (!fit) return DS_OK;
    return fit_set_errors(&t->curves, row, fit->n_rows, &fit->seen, fit->ratios, t->err);
}

static void print_constant(tables *t, double fitted, double in_file) {
    double change = fitted / in_file - 1;
    if (t->started) {
        printf("  %9.4g  %9s  %6s", fitted, "none", "");
        return;
    }
    if (!(fabs(change) <= OFF)) t->n_off++;
    printf("  %9.4g  %9.4g  %+6.1f", fitted, in_file, 100 * change);
}

static void print_errors(const ds_fit_errors *e) {
    printf("  %5.1f %5.1f %5.1f", 100 * e->mean, 100 * e->median, 100 * e->p90);
}

/* `fit` is NULL for a row that follows another. */
static ds_status print_row(tables *t, uint32_t row, const ds_fit_curve *curve,
                           const ds_fit_roofline *fit) {
    const char *op, *dtype, *resource;
    double e_max, w_half;
    DS_TRY(fit_cell(&t->curves, row, "op", &op, t->err));
    DS_TRY(fit_cell(&t->curves, row, "dtype", &dtype, t->err));
    DS_TRY(fit_cell(&t->curves, row, "resource", &resource, t->err));
    DS_TRY(fit_number(&t->curves, row, "e_max", &e_max, t->err));
    DS_TRY(fit_number(&t->curves, row, "w_half", &w_half, t->err));
    printf("%-10s %-4s %-5s", op, dtype, resource);
    print_constant(t, curve->e_max, e_max);
    print_constant(t, curve->w_half, w_half);
    printf(fit ? "  %5u" : "  as gemm", fit ? fit->n_rows : 0);
    if (fit) print_errors(&fit->seen);
    if (fit) print_errors(&fit->unseen);
    puts("");
    return DS_OK;
}

static ds_status is_fitted(tables *t, uint32_t row, bool *fitted) {
    double n;
    DS_TRY(fit_number(&t->curves, row, "n", &n, t->err));
    *fitted = n > 0;
    return DS_OK;
}

/* The curves of the op of `row`; *first is false if an earlier row has that op. */
static ds_status collect_curves(tables *t, uint32_t row, curves *c, bool *first) {
    *c = (curves){.row = {UINT32_MAX, UINT32_MAX}, .dtype = "*"};
    DS_TRY(fit_cell(&t->curves, row, "op", &c->op, t->err));
    *first = true;
    for (uint32_t i = 0; i < t->curves.rows.n; i++) {
        const char *op, *dtype, *resource;
        bool fitted;
        DS_TRY(fit_cell(&t->curves, i, "op", &op, t->err));
        DS_TRY(is_fitted(t, i, &fitted));
        if (!fitted || strcmp(op, c->op) != 0) continue;
        if (i < row) *first = false;
        DS_TRY(fit_cell(&t->curves, i, "dtype", &dtype, t->err));
        DS_TRY(fit_cell(&t->curves, i, "resource", &resource, t->err));
        int side = strcmp(resource, "flop") == 0 ? 0 : 1;
        if (c->row[side] != UINT32_MAX)
            return ds_csv_error(&t->curves, &t->curves.rows.at[i], t->err,
                                "a second fitted %s row of %s", resource, op);
        c->row[side] = i;
        DS_TRY(fit_number(&t->curves, i, "reference_giga_per_s", &c->rate[side], t->err));
        c->rate[side] *= 1e9;
        if (strcmp(dtype, "*") != 0) c->dtype = dtype;
    }
    return DS_OK;
}

/* Whether an assumed row says that it is gemm's curve; others are assumptions of their own. */
static ds_status is_as_gemm(tables *t, uint32_t row, bool *out) {
    static const char *const texts[] = {"assumed: the gemm curve", "assumed: the f16 curve"};
    const char *resource, *basis;
    bool fitted;
    DS_TRY(is_fitted(t, row, &fitted));
    DS_TRY(fit_cell(&t->curves, row, "resource", &resource, t->err));
    DS_TRY(fit_cell(&t->curves, row, "basis", &basis, t->err));
    *out = false;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strncmp(basis, texts[i], strlen(texts[i])) == 0) *out = true;
    *out = *out && !fitted && strcmp(resource, "flop") == 0;
    return DS_OK;
}

/* The flop rows with n = 0 that are gemm's, after the fitted gemm curve. */
static ds_status follow(tables *t, const ds_fit_curve *gemm) {
    for (uint32_t i = 0; i < t->curves.rows.n; i++) {
        bool follows;
        double rate;
        DS_TRY(is_as_gemm(t, i, &follows));
        if (!follows) continue;
        DS_TRY(fit_number(&t->curves, i, "reference_giga_per_s", &rate, t->err));
        ds_fit_curve curve = *gemm;
        curve.w_half *= rate * 1e9 / gemm->reference_per_s;
        DS_TRY(print_row(t, i, &curve, NULL));
        DS_TRY(set_row(t, i, &curve, NULL));
    }
    return DS_OK;
}

/* Puts in front of an error which curve could not be fitted. */
static ds_status name_curve(tables *t, const curves *c, ds_status status) {
    ds_error why = *t->err;
    return ds_error_set(t->err, status, DS_NOWHERE, "%s: %s %s: %s", t->curves.file, c->op,
                        c->dtype, why.message);
}

static ds_status fit_table(tables *t) {
    puts("                       ------ e_max, change in % ----  ----- w_half, change in % ----"
         "        -- rows seen, % -  -- left out, % -\n"
         "op         dtype           fitted    in file             fitted    in file          "
         "  rows   mean   med   p90   mean   med   p90");
    for (uint32_t i = 0; i < t->curves.rows.n; i++) {
        curves c;
        bool fitted, first;
        ds_fit_roofline fit;
        DS_TRY(is_fitted(t, i, &fitted));
        DS_TRY(collect_curves(t, i, &c, &first));
        if (!fitted || !first) continue;
        ds_status status = fit_curves(t, &c, &fit);
        if (status != DS_OK && t->started) {
            printf("%-10s %-4s left out: %s\n", c.op, c.dtype, t->err->message);
            continue;
        }
        if (status != DS_OK) return name_curve(t, &c, status);
        const ds_fit_curve *sides[] = {&fit.flop, &fit.bytes};
        for (int s = 0; s < 2; s++) {
            if (c.row[s] == UINT32_MAX) continue;
            DS_TRY(print_row(t, c.row[s], sides[s], &fit));
            DS_TRY(set_row(t, c.row[s], sides[s], &fit));
        }
        if (strcmp(c.op, "gemm") == 0 && fit.flop.reference_per_s > 0) DS_TRY(follow(t, &fit.flop));
    }
    return DS_OK;
}

static ds_status write_or_check(const tables *t, fit_mode mode) {
    return fit_write_or_check(&t->curves, t->started, mode, t->n_off, t->err);
}

static ds_status read_curves(tables *t, const char *folder) {
    ds_buf path = {0}, text = {0};
    ds_buf_printf(&path, "%s/efficiency.csv", folder);
    ds_status status = DS_OK;
    t->started = access(path.text, F_OK) != 0;
    if (!t->started) {
        status = ds_csv_read(path.text, &t->curves, t->err);
        t->started = status == DS_OK && !t->curves.rows.n;
        if (t->started) ds_csv_deinit(&t->curves);
    }
    if (t->started) {
        fit_start_curves(&t->ops, folder, &text);
        status = ds_csv_parse(path.text, text.text, text.n, &t->curves, t->err);
    }
    ds_buf_deinit(&text);
    ds_buf_deinit(&path);
    return status;
}

static ds_status fit_folder(tables *t, const char *folder, fit_mode mode) {
    DS_TRY(read_curves(t, folder));
    fit_add_ratios(&t->curves);
    ds_status status = fit_table(t);
    if (t->started) fit_drop_unfitted(&t->curves);
    if (status == DS_OK) status = write_or_check(t, mode);
    ds_csv_deinit(&t->curves);
    return status;
}

ds_status fit_ops(const char *folder, fit_mode mode, ds_error *err) {
    tables t = {.err = err};
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/ops.csv", folder);
    bool none = access(path.text, F_OK) != 0 && access(folder, F_OK) == 0;
    ds_status status = none ? DS_OK : ds_csv_read(path.text, &t.ops, err);
    if (none)
        printf("%s has no ops.csv: nothing to fit; measured collectives count as they are\n",
               folder);
    else if (status == DS_OK) {
        status = fit_folder(&t, folder, mode);
        ds_csv_deinit(&t.ops);
    }
    ds_buf_deinit(&path);
    return status;
}
