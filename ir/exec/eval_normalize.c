/* Softmax and the normalisations. A row (or a group of images) is whole on a device. */
#include "ir/exec/internal.h"

#include <math.h>

static void softmax_row(const double *x, double *y, int64_t n, int64_t step) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, x[i * step]);
    for (int64_t i = 0; i < n; i++) sum += y[i * step] = exp(x[i * step] - most);
    for (int64_t i = 0; i < n; i++) y[i * step] /= sum;
}

static void softmax_grad_row(const double *dy, const double *y, double *dx, int64_t n,
                             int64_t step) {
    double dot = 0;
    for (int64_t i = 0; i < n; i++) dot += dy[i * step] * y[i * step];
    for (int64_t i = 0; i < n; i++) dx[i * step] = y[i * step] * (dy[i * step] - dot);
}

ds_status ds_exec__eval_softmax(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    double *out = e->out[0]->t.at;
    uint32_t dim;
    DS_TRY(ds_eval_dim(e, "dim", x->rank, &dim, err));
    int64_t n = x->dims[dim], inner = ds_tensor_inner(x, dim), outer = ds_tensor_outer(x, dim);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t at = o * n * inner + i;
            if (e->op->code == DS_OP_SOFTMAX)
                softmax_row(x->at + at, out + at, n, inner);
            else
                softmax_grad_row(x->at + at, e->in[1]->t.at + at, out + at, n, inner);
        }
    return DS_OK;
}

/* layer_norm and rms_norm: rows of the last dim; scales of rank 2 repeat every so many rows. */
ds_status ds_exec__eval_norm(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    bool centred = e->op->code == DS_OP_LAYER_NORM;
    double eps = 0;
    DS_TRY(ds_eval_real(e, "eps", &eps, err));
    int64_t n = x->dims[x->rank - 1], scales = e->op->n_in > 1 ? e->in[1]->t.n : n;
    for (int64_t row = 0; row < x->n / n; row++) {
        const double *in = x->at + row * n;
        double *out = e->out[0]->t.at + row * n, mean = 0, square = 0;
        for (int64_t i = 0; i < n && centred; i++) mean += in[i] / (double)n;
        for (int64_t i = 0; i < n; i++) square += (in[i] - mean) * (in[i] - mean);
        double scale = 1 / sqrt(square / (double)n + eps);
        for (int64_t i = 0; i < n; i++) {
            out[i] = (in[i] - mean) * scale;
            if (e->op->n_in > 1) out[i] *= e->in[1]->t.at[(row * n + i) % scales];
            if (e->op->n_in > 2) out[i] += e->in[2]->t.at[i];
        }
    }
    return DS_OK;
}

/* One channel of one group of images: `images` of them, n_spatial elements each. */
static void normalize_channel(const ds_eval *e, int64_t first, int64_t images, int64_t channel,
                              double eps) {
    const ds_tensor *x = &e->in[0]->t;
    int64_t channels = x->dims[1], spatial = ds_tensor_inner(x, 1);
    double count = (double)(images * spatial), mean = 0, square = 0;
    for (int64_t b = first; b < first + images; b++)
        for (int64_t i = 0; i < spatial; i++)
            mean += x->at[(b * channels + channel) * spatial + i] / count;
    for (int64_t b = first; b < first + images; b++)
        for (int64_t i = 0; i < spatial; i++) {
            double centred = x->at[(b * channels + channel) * spatial + i] - mean;
            square += centred * centred;
        }
    double scale = 1 / sqrt(square / count + eps), shift = 0;
    if (e->op->n_in > 1) scale *= e->in[1]->t.at[channel];
    if (e->op->n_in > 2) shift = e->in[2]->t.at[channel];
    for (int64_t b = first; b < first + images; b++)
        for (int64_t i = 0; i < spatial; i++) {
            int64_t at = (b * channels + channel) * spatial + i;
            e->out[0]->t.at[at] = (x->at[at] - mean) * scale + shift;
        }
}

ds_status ds_exec__batch_norm_images(const ds_eval *e, const ds_exec_part *x, int64_t *images,
                                     ds_error *err) {
    int64_t groups = 1;
    DS_TRY(ds_eval_int(e, "groups", &groups, err));
    *images = groups > 0 ? x->full[0] / groups : 0;
    if (*images >= 1 && x->t.dims[0] % *images == 0) return DS_OK;
    return ds_eval_fail(e, err, DS_ERR_SHAPE,
                        "a shard of %lld images does not hold whole groups of %lld",
                        (long long)x->t.dims[0], (long long)*images);
}

ds_status ds_exec__eval_batch_norm(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    int64_t images;
    double eps = 0;
    DS_TRY(ds_eval_real(e, "eps", &eps, err));
    DS_TRY(ds_exec__batch_norm_images(e, e->in[0], &images, err));
    for (int64_t first = 0; first < x->dims[0]; first += images)
        for (int64_t c = 0; c < x->dims[1]; c++) normalize_channel(e, first, images, c, eps);
    return DS_OK;
}
