/* Convolution and pooling over NCHW images, by their definition. */
#include "ir/exec/internal.h"

#include <math.h>

/* Along h and w. */
typedef struct window {
    int64_t size[2], stride[2], pad[2], dilation[2];
} window;

static ds_status read_window(const ds_eval *e, bool pool, window *w, ds_error *err) {
    for (uint32_t i = 0; i < 2; i++) {
        w->stride[i] = w->pad[i] = 0;
        w->dilation[i] = 1;
        w->size[i] = pool ? 0 : e->in[1]->t.dims[2 + i];
        if (pool) {
            DS_TRY(ds_eval_item(e, "window", i, &w->size[i], err));
            w->stride[i] = w->size[i];
        } else {
            DS_TRY(ds_eval_item(e, "dilation", i, &w->dilation[i], err));
        }
        DS_TRY(ds_eval_item(e, "stride", i, &w->stride[i], err));
        DS_TRY(ds_eval_item(e, "pad", i, &w->pad[i], err));
    }
    return DS_OK;
}

/* The input row (or column) under tap r of output p; outside the image it is padding. */
static int64_t tap(const window *w, int axis, int64_t p, int64_t r) {
    return p * w->stride[axis] - w->pad[axis] + r * w->dilation[axis];
}

typedef struct image {
    const double *at;
    int64_t h, w;
} image;

static image channel_of(const ds_tensor *x, int64_t n, int64_t c) {
    int64_t size = x->dims[2] * x->dims[3];
    return (image){x->at + (n * x->dims[1] + c) * size, x->dims[2], x->dims[3]};
}

static bool inside(const image *x, int64_t h, int64_t w) {
    return h >= 0 && h < x->h && w >= 0 && w < x->w;
}

/* sum over r, s of x[p stride + r, q stride + s] f[r, s], for one channel of one output element */
static double correlate(const image *x, const double *filter, const window *w, int64_t p,
                        int64_t q) {
    double sum = 0;
    for (int64_t r = 0; r < w->size[0]; r++)
        for (int64_t s = 0; s < w->size[1]; s++) {
            int64_t h = tap(w, 0, p, r), v = tap(w, 1, q, s);
            if (inside(x, h, v)) sum += x->at[h * x->w + v] * filter[r * w->size[1] + s];
        }
    return sum;
}

ds_status ds_exec__eval_conv2d(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *f = &e->in[1]->t;
    ds_tensor *y = &e->out[0]->t;
    window w;
    int64_t groups = 1;
    DS_TRY(read_window(e, false, &w, err));
    DS_TRY(ds_eval_int(e, "groups", &groups, err));
    /* A split of the channels splits the groups, or (one group) what is summed. */
    int64_t per_group = f->dims[1], taps = f->dims[2] * f->dims[3];
    if (groups > 1 && x->dims[1] % per_group == 0) groups = x->dims[1] / per_group;
    if (groups < 1 || y->dims[1] % groups || x->dims[1] != groups * per_group)
        return ds_eval_fail(e, err, DS_ERR_SHAPE,
                            "%lld channels and %lld filters of %lld channels do not make %lld "
                            "groups",
                            (long long)x->dims[1], (long long)y->dims[1], (long long)per_group,
                            (long long)groups);
    int64_t filters = y->dims[1] / groups, at = 0;
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t k = 0; k < y->dims[1]; k++)
            for (int64_t p = 0; p < y->dims[2]; p++)
                for (int64_t q = 0; q < y->dims[3]; q++, at++)
                    for (int64_t c = 0; c < per_group; c++) {
                        image in = channel_of(x, n, k / filters * per_group + c);
                        y->at[at] += correlate(&in, f->at + (k * per_group + c) * taps, &w, p, q);
                    }
    return DS_OK;
}

/* Padding is -infinity to a maximum, and 0 to a mean over the whole window. */
static double pooled(const image *x, const window *w, int64_t p, int64_t q, bool max) {
    double most = -INFINITY, sum = 0;
    for (int64_t r = 0; r < w->size[0]; r++)
        for (int64_t s = 0; s < w->size[1]; s++) {
            int64_t h = tap(w, 0, p, r), v = tap(w, 1, q, s);
            if (!inside(x, h, v)) continue;
            most = fmax(most, x->at[h * x->w + v]);
            sum += x->at[h * x->w + v];
        }
    return max ? most : sum / (double)(w->size[0] * w->size[1]);
}

ds_status ds_exec__eval_pool(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    ds_tensor *y = &e->out[0]->t;
    window w;
    DS_TRY(read_window(e, true, &w, err));
    int64_t at = 0;
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t c = 0; c < y->dims[1]; c++) {
            image in = channel_of(x, n, c);
            for (int64_t p = 0; p < y->dims[2]; p++)
                for (int64_t q = 0; q < y->dims[3]; q++)
                    y->at[at++] = pooled(&in, &w, p, q, e->op->code == DS_OP_MAX_POOL);
        }
    return DS_OK;
}
