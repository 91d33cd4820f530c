/* DeepBench's table of training kernels of 2016 to 2019: products, convolutions, recurrent layers.
 */
#include "tools/measured/internal.h"

#include <stdlib.h>
#include <string.h>

/* The number after "NAME=" in the column of extras; a fraction is cut. */
static ds_status extra(const measured_reader *r, const char *name, int64_t *out) {
    const char *text = measured_cell(r, "extra"), *at = text;
    size_t n = strlen(name);
    for (; (at = strstr(at, name)) != NULL; at += n) {
        char *end;
        if ((at != text && at[-1] != ' ') || at[n] != '=') continue;
        double value = strtod(at + n + 1, &end);
        if (end == at + n + 1 || !(value >= 0) || value > 0x1p40) break;
        *out = (int64_t)value;
        return DS_OK;
    }
    return ds_csv_error(r->csv, r->record, r->err, "extra = '%s': no number for %s", text, name);
}

/* C = A B by columns: its m and n are the rows and columns of the transposed product by rows. */
static ds_status read_product(const measured_reader *r, ds_dtype dtype, measured_row *row) {
    int64_t bmnk[4] = {1};
    DS_TRY(measured_int(r, "n", 1, &bmnk[1]));
    DS_TRY(measured_int(r, "m", 1, &bmnk[2]));
    DS_TRY(measured_int(r, "k", 1, &bmnk[3]));
    measured_part_product(row, dtype, bmnk);
    return DS_OK;
}

/* What algorithms tell apart: Winograd's is for filters of 3 x 3 at stride 1. */
static const char *filter_of(int64_t rows, int64_t columns, int64_t high, int64_t result) {
    if (rows == 1 && columns == 1) return "1x1";
    return rows == 3 && columns == 3 && result + 2 >= high ? "3x3" : "wide";
}

static ds_status read_conv(const measured_reader *r, ds_dtype dtype, measured_row *row) {
    static const char *const names[] = {"W", "H", "C", "N", "K", "R", "S", "P", "Q"};
    enum { W, H, C, N, K, R, S, P, Q, COUNT };
    int64_t v[COUNT], size = (int64_t)ds_dtype_bits(dtype) / 8;
    for (int i = 0; i < COUNT; i++) {
        DS_TRY(extra(r, names[i], &v[i]));
        if (v[i] < 1 || v[i] > (1 << 20))
            return ds_csv_error(r->csv, r->record, r->err, "extra: %s must be from 1 to 2^20",
                                names[i]);
    }
    bool data = strcmp(row->direction, "bwd_data") == 0;
    bool weight = strcmp(row->direction, "bwd_weight") == 0;
    const char *op = data ? "conv2d_grad_x" : weight ? "conv2d_grad_w" : "conv2d";
    op = ds_arena_printf(r->arena, "%s_%s", op, filter_of(v[R], v[S], v[H], v[P]));
    int64_t image = TIMES(v[N], v[C], v[H], v[W]), result = TIMES(v[N], v[K], v[P], v[Q]);
    int64_t filter = TIMES(v[K], v[C], v[R], v[S]), all = image + result + filter;
    int64_t written = data ? image : weight ? filter : result;
    ds_work *w = measured_part_add(row, op, DS_WORK_CONV, dtype);
    w->batch = 1;
    w->m = TIMES(v[N], v[P], v[Q]);
    w->n = v[K];
    w->k = TIMES(v[C], v[R], v[S]);
    w->flop = TIMES(2, w->m, w->n, w->k);
    w->bytes_read = TIMES(all - written, size);
    w->bytes_written = TIMES(written, size);
    return DS_OK;
}

/* "Hidden Units=512 N=16 Timesteps=25"; the input is as wide as the state. */
static ds_status read_lstm(const measured_reader *r, ds_dtype dtype, measured_row *row) {
    int64_t hidden, batch, steps, size = (int64_t)ds_dtype_bits(dtype) / 8;
    if (strcmp(row->direction, "fwd") != 0) {
        row->refused = "a part of the gradient of a recurrent layer";
        return DS_OK;
    }
    DS_TRY(extra(r, strstr(measured_cell(r, "extra"), "Units") ? "Units" : "units", &hidden));
    DS_TRY(extra(r, "N", &batch));
    DS_TRY(extra(r, "Timesteps", &steps));
    if (hidden < 1 || hidden > (1 << 20) || batch < 1 || batch > (1 << 20) || steps < 1 ||
        steps > (1 << 20))
        return ds_csv_error(r->csv, r->record, r->err, "extra: numbers must be from 1 to 2^20");
    ds_work *w = measured_part_add(row, "lstm", DS_WORK_RECURRENT, dtype);
    w->batch = steps;
    w->m = batch;
    w->n = 4 * hidden;
    w->k = 2 * hidden;
    w->flop = TIMES(2, w->batch, w->m, w->n, w->k);
    w->bytes_read = TIMES(w->n, w->k, size) + TIMES(steps, batch, hidden, size);
    w->bytes_written = TIMES(steps, batch, hidden, size);
    return DS_OK;
}

ds_status measured_read_deepbench(const measured_reader *r, measured_row *row) {
    const char *precision = measured_cell(r, "precision");
    DS_TRY(measured_real(r, "time_us", &row->us));
    ds_dtype dtype = DS_F32;
    row->dtype = "fp32";
    if (strncmp(precision, "16 bit", 6) == 0) {
        dtype = DS_F16;
        row->dtype = "fp16";
    } else if (strcmp(precision, "Float") != 0) {
        return ds_csv_error(r->csv, r->record, r->err, "precision = '%s': neither Float nor 16 bit",
                            precision);
    }
    if (strcmp(row->op, "gemm") == 0) return read_product(r, dtype, row);
    if (strcmp(row->op, "conv2d") == 0) return read_conv(r, dtype, row);
    if (strcmp(row->op, "rnn LSTM") == 0) return read_lstm(r, dtype, row);
    row->refused = "a recurrent layer that the language does not have";
    return DS_OK;
}
