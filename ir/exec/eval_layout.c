/* Ops that move elements: reshape, transpose, concat, split, slice, pad, expand, after; and
 * reductions. */
#include "ir/exec/internal.h"

#include <math.h>
#include <string.h>

/* A split dim keeps its outermost factor, so shards are reshaped like the whole. */
ds_status ds_exec__eval_reshape(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    ds_tensor *y = &e->out[0]->t;
    char from[DS_DIMS_TEXT], to[DS_DIMS_TEXT];
    if (x->n != y->n)
        return ds_eval_fail(e, err, DS_ERR_SHAPE, "a shard of %s cannot become one of %s",
                            ds_dims_text(x->rank, x->dims, from),
                            ds_dims_text(y->rank, y->dims, to));
    memcpy(y->at, x->at, (size_t)x->n * sizeof(double));
    return DS_OK;
}

ds_status ds_exec__eval_transpose(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    ds_tensor *y = &e->out[0]->t;
    int64_t stride[DS_MAX_RANK], at[DS_MAX_RANK] = {0}, from = 0;
    bool given = ds_attr_find(e->op->attrs, e->op->n_attrs, "perm") != NULL;
    for (uint32_t d = 0; d < x->rank; d++) {
        int64_t p = d;
        if (!given && d + 2 >= x->rank) p = d + 2 == x->rank ? d + 1 : d - 1;
        if (given) DS_TRY(ds_eval_item(e, "perm", d, &p, err));
        if (p < 0) p += x->rank;
        if (p < 0 || p >= x->rank)
            return ds_eval_fail(e, err, DS_ERR_VALUE, "there is no dim %lld", (long long)p);
        stride[d] = ds_tensor_inner(x, (uint32_t)p);
    }
    for (int64_t i = 0; i < y->n; i++) {
        y->at[i] = x->at[from];
        for (uint32_t d = y->rank; d-- > 0;) {
            from += stride[d];
            if (++at[d] < y->dims[d]) break;
            from -= stride[d] * y->dims[d];
            at[d] = 0;
        }
    }
    return DS_OK;
}

/* [n, a.., b..] becomes [a.., n, b..], the dims a being those before `dim`. */
ds_status ds_exec__eval_stack(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    ds_tensor *y = &e->out[0]->t;
    uint32_t dim;
    DS_TRY(ds_eval_dim(e, "dim", x->rank, &dim, err));
    int64_t n = x->dims[0], inner = ds_tensor_inner(y, dim), outer = ds_tensor_outer(y, dim);
    for (int64_t a = 0; a < outer; a++)
        for (int64_t i = 0; i < n; i++)
            memcpy(y->at + (a * n + i) * inner, x->at + (i * outer + a) * inner,
                   (size_t)inner * sizeof(double));
    return DS_OK;
}

/* Elements from .. from + n of a dim, which become to .. to + n. */
typedef struct span {
    uint32_t dim;
    int64_t n, from, to;
} span;

static ds_status copy_span(const ds_eval *e, ds_tensor *dst, const ds_tensor *src, span part,
                           ds_error *err) {
    int64_t to[DS_MAX_RANK] = {0}, from[DS_MAX_RANK] = {0}, extent[DS_MAX_RANK];
    for (uint32_t d = 0; d < src->rank; d++) extent[d] = src->dims[d];
    to[part.dim] = part.to;
    from[part.dim] = part.from;
    extent[part.dim] = part.n;
    if (part.to < 0 || part.from < 0 || part.n < 0 || part.from + part.n > src->dims[part.dim] ||
        part.to + part.n > dst->dims[part.dim])
        return ds_eval_fail(e, err, DS_ERR_SHAPE,
                            "indices %lld to %lld of dim %u, which has %lld elements here, do not "
                            "fit at %lld of %lld",
                            (long long)part.from, (long long)(part.from + part.n), part.dim,
                            (long long)src->dims[part.dim], (long long)part.to,
                            (long long)dst->dims[part.dim]);
    ds_tensor_copy_box(dst, to, src, from, extent, NULL);
    return DS_OK;
}

/* What nobody reads any more is no number: whoever reads that shows. */
static ds_status forget(const ds_eval *e, span part, ds_error *err) {
    ds_tensor *y = &e->out[0]->t;
    int64_t n = y->dims[part.dim], row = n, window = 0;
    int64_t inner = ds_tensor_inner(y, part.dim), outer = ds_tensor_outer(y, part.dim);
    if (!ds_attr_find(e->op->attrs, e->op->n_attrs, "window")) return DS_OK;
    DS_TRY(ds_eval_int(e, "window", &window, err));
    if (ds_attr_find(e->op->attrs, e->op->n_attrs, "row")) DS_TRY(ds_eval_int(e, "row", &row, err));
    int64_t lo = window < 0 ? part.to : part.to + part.n - window;
    int64_t hi = window < 0 ? part.to - window : part.to + part.n;
    int64_t first = part.to / row * row, end = first + row < n ? first + row : n;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = first; i < end; i++)
            for (int64_t k = 0; (i < lo || i >= hi) && k < inner; k++)
                y->at[(o * n + i) * inner + k] = NAN;
    return DS_OK;
}

/* concat, split, slice, put, pad: boxes along one dim, which no device shares. */
ds_status ds_exec__eval_boxes(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    span part = {0};
    DS_TRY(ds_eval_dim(e, "dim", x->rank, &part.dim, err));
    switch (e->op->code) {
    case DS_OP_CONCAT:
        for (uint32_t i = 0; i < e->op->n_in; i++) {
            part.n = e->in[i]->t.dims[part.dim];
            DS_TRY(copy_span(e, &e->out[0]->t, &e->in[i]->t, part, err));
            part.to += part.n;
        }
        return DS_OK;
    case DS_OP_SPLIT:
        for (uint32_t i = 0; i < e->op->n_out; i++) {
            part.n = e->out[i]->t.dims[part.dim];
            DS_TRY(copy_span(e, &e->out[i]->t, x, part, err));
            part.from += part.n;
        }
        return DS_OK;
    case DS_OP_SLICE:
        DS_TRY(ds_eval_int(e, "lo", &part.from, err));
        part.n = e->out[0]->t.dims[part.dim];
        return copy_span(e, &e->out[0]->t, x, part, err);
    case DS_OP_PUT:
        memcpy(e->out[0]->t.at, x->at, (size_t)x->n * sizeof(double));
        DS_TRY(ds_eval_int(e, "at", &part.to, err));
        part.n = e->in[1]->t.dims[part.dim];
        DS_TRY(forget(e, part, err));
        return copy_span(e, &e->out[0]->t, &e->in[1]->t, part, err);
    default: /* pad */
        DS_TRY(ds_eval_int(e, "lo", &part.to, err));
        part.n = x->dims[part.dim];
        return copy_span(e, &e->out[0]->t, x, part, err);
    }
}

/* The elements of the first operand; for `after` the others only had to be there. */
ds_status ds_exec__eval_after(const ds_eval *e, ds_error *err) {
    (void)err;
    const ds_tensor *x = &e->in[0]->t;
    memcpy(e->out[0]->t.at, x->at, (size_t)x->n * sizeof(double));
    return DS_OK;
}

/* ---- dims that one side lacks: reductions and expand ---- */

/* Walks the elements of t in order, and beside them a tensor that lacks some of its dims. */
typedef struct beside {
    const ds_tensor *t;
    int64_t stride[DS_MAX_RANK], at[DS_MAX_RANK];
    int64_t other; /* the element there */
} beside;

static beside beside_of(const ds_tensor *t, const bool lacks[DS_MAX_RANK]) {
    beside b = {.t = t};
    int64_t step = 1;
    for (uint32_t d = t->rank; d-- > 0;) {
        b.stride[d] = lacks[d] ? 0 : step;
        if (!lacks[d]) step *= t->dims[d];
    }
    return b;
}

static void advance(beside *b) {
    for (uint32_t d = b->t->rank; d-- > 0;) {
        b->other += b->stride[d];
        if (++b->at[d] < b->t->dims[d]) return;
        b->other -= b->stride[d] * b->t->dims[d];
        b->at[d] = 0;
    }
}

/* Which dims of this rank the attribute names; all if there is none. */
static ds_status named_dims(const ds_eval *e, uint32_t rank, bool reduced[DS_MAX_RANK],
                            ds_error *err) {
    const ds_attr *attr = ds_attr_find(e->op->attrs, e->op->n_attrs, "dims");
    uint32_t n = !attr ? 0 : attr->kind == DS_ATTR_LIST ? attr->n_items : 1;
    for (uint32_t d = 0; d < rank; d++) reduced[d] = !attr;
    for (uint32_t i = 0; i < n; i++) {
        int64_t dim = 0;
        DS_TRY(ds_eval_item(e, "dims", i, &dim, err));
        if (dim < 0) dim += rank;
        if (dim < 0 || dim >= rank)
            return ds_eval_fail(e, err, DS_ERR_VALUE, "there is no dim %lld", (long long)dim);
        reduced[dim] = true;
    }
    return DS_OK;
}

ds_status ds_exec__eval_reduce(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    ds_tensor *y = &e->out[0]->t;
    bool reduced[DS_MAX_RANK], max = e->op->code == DS_OP_REDUCE_MAX;
    double count = 1; /* of the whole tensor, for the mean */
    DS_TRY(named_dims(e, x->rank, reduced, err));
    for (uint32_t d = 0; d < x->rank; d++)
        if (reduced[d]) count *= (double)e->in[0]->full[d];
    if (count == 0 && y->n && e->op->code != DS_OP_REDUCE_SUM)
        return ds_eval_fail(e, err, DS_ERR_VALUE,
                            "there is no element to reduce: the range is empty");
    if (e->op->code == DS_OP_REDUCE_MEAN) DS_TRY(ds_eval_count(e, &count, err));
    for (int64_t i = 0; i < y->n && max; i++) y->at[i] = -INFINITY;
    beside b = beside_of(x, reduced);
    for (int64_t i = 0; i < x->n; i++, advance(&b)) {
        double v = x->at[i], *to = &y->at[b.other];
        if (max)
            *to = isnan(v) || v > *to ? v : *to;
        else
            *to += v;
    }
    for (int64_t i = 0; i < y->n && e->op->code == DS_OP_REDUCE_MEAN; i++) y->at[i] /= count;
    return DS_OK;
}

ds_status ds_exec__eval_expand(const ds_eval *e, ds_error *err) {
    const ds_tensor *y = &e->out[0]->t;
    bool fresh[DS_MAX_RANK];
    DS_TRY(named_dims(e, y->rank, fresh, err));
    beside b = beside_of(y, fresh);
    for (int64_t i = 0; i < y->n; i++, advance(&b)) y->at[i] = e->in[0]->t.at[b.other];
    return DS_OK;
}

/* How near the second largest of a reduced group came to the largest, against the largest size. */
static void note_margin(const ds_eval *e, const ds_tensor *x, const bool reduced[DS_MAX_RANK],
                        const ds_tensor *first) {
    double most = 0;
    for (int64_t i = 0; i < x->n; i++) most = fmax(most, fabs(x->at[i]));
    beside b = beside_of(x, reduced);
    for (int64_t i = 0; i < x->n && most > 0; i++, advance(&b)) {
        int64_t best = (int64_t)first->at[b.other];
        if (i != best) ds_eval_margin(e, (x->at[best] - x->at[i]) / most);
    }
}

/* dy at the first of the largest elements of each reduced group. */
ds_status ds_exec__eval_reduce_max_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *dy = &e->in[0]->t, *x = &e->in[1]->t;
    ds_tensor first; /* of each group: the element that is its maximum */
    bool reduced[DS_MAX_RANK];
    DS_TRY(named_dims(e, x->rank, reduced, err));
    DS_TRY(ds_tensor_new(&e->run->memory, dy->rank, dy->dims, e->op->loc, &first, err));
    for (int64_t i = 0; i < first.n; i++) first.at[i] = -1;
    beside b = beside_of(x, reduced);
    for (int64_t i = 0; i < x->n; i++, advance(&b)) {
        double *best = &first.at[b.other];
        if (*best < 0 || x->at[i] > x->at[(int64_t)*best]) *best = (double)i;
    }
    note_margin(e, x, reduced, &first);
    for (int64_t i = 0; i < first.n; i++)
        if (first.at[i] >= 0) e->out[0]->t.at[(int64_t)first.at[i]] = dy->at[i];
    ds_tensor_drop(&first);
    return DS_OK;
}
