/* Gradients of the normalisations. With u the normalised x, r = 1 / sqrt(var + eps), g = dy scale
 * and means over a group of elements that share statistics:
 *
 *   dx = r (g - mean(g) - u mean(g u))          layer_norm, batch_norm
 *   dx = r (g - u mean(g u))                    rms_norm, where u is x r
 *   dscale = sum(dy u),  dshift = sum(dy)       over all groups
 *
 * Derivation: Ioffe and Szegedy 2015, "Batch normalization", section 3; the others alike. */
#include "ir/exec/internal.h"

#include <math.h>

/* Elements that share statistics: `n_outer` runs of n_inner elements, `step` apart. The scale of
 * element i of a run is number param + i * param_step. */
typedef struct group {
    int64_t first, n_outer, step, n_inner;
    int64_t param, param_step;
} group;

typedef struct norm_grad {
    const double *dy, *x, *scale; /* scale may be NULL */
    double *dx, *dscale, *dshift; /* the last two may be NULL */
    bool centred;
    double eps;
} norm_grad;

static ds_status norm_grad_of(const ds_eval *e, norm_grad *out, ds_error *err) {
    *out = (norm_grad){.dy = e->in[0]->t.at,
                       .x = e->in[1]->t.at,
                       .scale = e->op->n_in > 2 ? e->in[2]->t.at : NULL,
                       .dx = e->out[0]->t.at,
                       .dscale = e->op->n_out > 1 ? e->out[1]->t.at : NULL,
                       .dshift = e->op->n_out > 2 ? e->out[2]->t.at : NULL,
                       .centred = e->op->code != DS_OP_RMS_NORM_GRAD};
    return ds_eval_real(e, "eps", &out->eps, err);
}

#define EACH(g, o, i, at)                                                                          \
    for (int64_t o = 0; o < (g)->n_outer; o++)                                                     \
        for (int64_t i = 0, at = (g)->first + o * (g)->step; i < (g)->n_inner; i++, at++)

static void group_grad(const norm_grad *t, const group *g) {
    double n = (double)(g->n_outer * g->n_inner), mean = 0, square = 0, sum = 0, dot = 0;
    if (t->centred) EACH(g, o, i, at) mean += t->x[at] / n;
    EACH(g, o, i, at) square += (t->x[at] - mean) * (t->x[at] - mean);
    double r = 1 / sqrt(square / n + t->eps);
    EACH(g, o, i, at) {
        int64_t param = g->param + i * g->param_step;
        double u = (t->x[at] - mean) * r;
        /* dy scale; what the mean and the variance give is taken off below. */
        t->dx[at] = t->dy[at] * (t->scale ? t->scale[param] : 1);
        sum += t->dx[at];
        dot += t->dx[at] * u;
        if (t->dscale) t->dscale[param] += t->dy[at] * u;
        if (t->dshift) t->dshift[param] += t->dy[at];
    }
    double mean_g = t->centred ? sum / n : 0;
    EACH(g, o, i, at) {
        t->dx[at] = r * (t->dx[at] - mean_g - (t->x[at] - mean) * r * dot / n);
    }
}

/* layer_norm and rms_norm: rows of the last dim, a scale for each element of a row, or of as many
 * rows as scales of rank 2 have. */
ds_status ds_exec__eval_norm_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[1]->t;
    int64_t n = x->dims[x->rank - 1], scales = e->op->n_in > 2 ? e->in[2]->t.n : n;
    norm_grad t;
    DS_TRY(norm_grad_of(e, &t, err));
    for (int64_t first = 0; first < x->n; first += n)
        group_grad(&t, &(group){.first = first,
                                .n_outer = 1,
                                .n_inner = n,
                                .param = first % scales,
                                .param_step = 1});
    return DS_OK;
}

/* A channel of a group of images: `groups` is the number in the whole batch. */
ds_status ds_exec__eval_batch_norm_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[1]->t;
    int64_t images, spatial = ds_tensor_inner(x, 1), image = x->dims[1] * spatial;
    norm_grad t;
    DS_TRY(norm_grad_of(e, &t, err));
    DS_TRY(ds_exec__batch_norm_images(e, e->in[1], &images, err));
    for (int64_t b = 0; b < x->dims[0]; b += images)
        for (int64_t c = 0; c < x->dims[1]; c++)
            group_grad(&t, &(group){.first = b * image + c * spatial,
                                    .n_outer = images,
                                    .step = image,
                                    .n_inner = spatial,
                                    .param = c});
    return DS_OK;
}
