/* Convolution and pooling over NCHW images, by their definition.
 *
 * A convolution is trilinear in images, filters and results: a sum over all (result element, tap)
 * pairs of x f y. Forward, it goes to y for given x and f; the gradients are the same walk with the
 * sum going to x or to f. */
#include "ir/exec/internal.h"

#include <math.h>

/* Along h and w. */
typedef struct window {
    int64_t size[2], stride[2], pad[2], dilation[2];
} window;

/* `size`: of the windows along both dims; NULL for pooling, where it is an attribute. */
static ds_status read_window(const ds_eval *e, const int64_t *size, window *w, ds_error *err) {
    for (uint32_t i = 0; i < 2; i++) {
        w->stride[i] = w->pad[i] = 0;
        w->dilation[i] = 1;
        w->size[i] = size ? size[i] : 0;
        if (size) {
            DS_TRY(ds_eval_item(e, "dilation", i, &w->dilation[i], err));
        } else {
            DS_TRY(ds_eval_item(e, "window", i, &w->size[i], err));
            w->stride[i] = w->size[i];
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

/* One channel of one image. */
typedef struct image {
    double *at;
    int64_t h, w;
} image;

static image channel_of(const ds_tensor *x, int64_t n, int64_t c) {
    int64_t size = x->dims[2] * x->dims[3];
    return (image){x->at + (n * x->dims[1] + c) * size, x->dims[2], x->dims[3]};
}

static bool inside(const image *x, int64_t h, int64_t w) {
    return h >= 0 && h < x->h && w >= 0 && w < x->w;
}

/* ---- convolution ---- */

/* x f y for one channel of one result element: added to what the op computes. */
static void correlate(ds_opcode code, const image *x, double *filter, double *y, const window *w,
                      int64_t p, int64_t q) {
    for (int64_t r = 0; r < w->size[0]; r++)
        for (int64_t s = 0; s < w->size[1]; s++) {
            int64_t h = tap(w, 0, p, r), v = tap(w, 1, q, s);
            if (!inside(x, h, v)) continue;
            double *pixel = &x->at[h * x->w + v], *f = &filter[r * w->size[1] + s];
            if (code == DS_OP_CONV2D)
                *y += *pixel * *f;
            else if (code == DS_OP_CONV2D_GRAD_X)
                *pixel += *y * *f;
            else
                *f += *pixel * *y;
        }
}

/* Images, filters and results of the three ops; one of them is the op's result. */
typedef struct roles {
    const ds_tensor *x, *f, *y;
} roles;

static roles roles_of(const ds_eval *e) {
    const ds_tensor *a = &e->in[0]->t, *b = &e->in[1]->t, *out = &e->out[0]->t;
    if (e->op->code == DS_OP_CONV2D) return (roles){.x = a, .f = b, .y = out};
    if (e->op->code == DS_OP_CONV2D_GRAD_X) return (roles){.x = out, .f = b, .y = a};
    return (roles){.x = a, .f = out, .y = b};
}

ds_status ds_exec__eval_conv2d(const ds_eval *e, ds_error *err) {
    roles t = roles_of(e);
    const ds_tensor *x = t.x, *f = t.f, *y = t.y;
    window w;
    int64_t groups = 1;
    DS_TRY(read_window(e, &f->dims[2], &w, err));
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
    int64_t filters = y->dims[1] / groups;
    double *result = y->at;
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t k = 0; k < y->dims[1]; k++)
            for (int64_t p = 0; p < y->dims[2]; p++)
                for (int64_t q = 0; q < y->dims[3]; q++, result++)
                    for (int64_t c = 0; c < per_group; c++) {
                        image in = channel_of(x, n, k / filters * per_group + c);
                        correlate(e->op->code, &in, f->at + (k * per_group + c) * taps, result, &w,
                                  p, q);
                    }
    return DS_OK;
}

/* ---- pooling ---- */

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
    DS_TRY(read_window(e, NULL, &w, err));
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

/* Where dx has the pixel that is the maximum of a window of x, the first of equal ones; NULL if all
 * of it is padding. */
static double *maximum_of(const ds_eval *e, const image *x, const image *dx, const window *w,
                          int64_t p, int64_t q) {
    double *to = NULL, most = -INFINITY, next = -INFINITY, size = 0;
    for (int64_t r = 0; r < w->size[0]; r++)
        for (int64_t s = 0; s < w->size[1]; s++) {
            int64_t h = tap(w, 0, p, r), v = tap(w, 1, q, s);
            if (!inside(x, h, v)) continue;
            double pixel = x->at[h * x->w + v];
            size = fmax(size, fabs(pixel));
            if (!to || pixel > most) {
                next = most;
                most = pixel;
                to = &dx->at[h * x->w + v];
            } else {
                next = fmax(next, pixel);
            }
        }
    if (size > 0) ds_eval_margin(e, (most - next) / size);
    return to;
}

static void share_out(const image *dx, const window *w, int64_t p, int64_t q, double dy) {
    for (int64_t r = 0; r < w->size[0]; r++)
        for (int64_t s = 0; s < w->size[1]; s++) {
            int64_t h = tap(w, 0, p, r), v = tap(w, 1, q, s);
            if (inside(dx, h, v)) dx->at[h * dx->w + v] += dy / (double)(w->size[0] * w->size[1]);
        }
}

ds_status ds_exec__eval_pool_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *dy = &e->in[0]->t;
    window w;
    DS_TRY(read_window(e, NULL, &w, err));
    int64_t at = 0;
    for (int64_t n = 0; n < dy->dims[0]; n++)
        for (int64_t c = 0; c < dy->dims[1]; c++) {
            image dx = channel_of(&e->out[0]->t, n, c), x = {0};
            bool max = e->op->code == DS_OP_MAX_POOL_GRAD;
            if (max) x = channel_of(&e->in[1]->t, n, c);
            for (int64_t p = 0; p < dy->dims[2]; p++)
                for (int64_t q = 0; q < dy->dims[3]; q++, at++) {
                    double *to = max ? maximum_of(e, &x, &dx, &w, p, q) : NULL;
                    if (to) *to += dy->at[at];
                    if (!max) share_out(&dx, &w, p, q, dy->at[at]);
                }
        }
    return DS_OK;
}
