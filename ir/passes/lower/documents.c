/* Documents of several lengths, packed into sequences (train.lengths).
 *
 * A sequence of s tokens is filled with documents, one after another; the last one is cut. Attention
 * stays inside of a document, so a sequence with pieces of l_i tokens costs sum l_i^2 / 2 pairs of a
 * query and a key, not s^2 / 2: as much as documents that all have the *span*
 *
 *     sum l_i^2 / sum l_i          -> E[l^2] / E[l] of the lengths, for long sequences
 *
 * tokens. Each of dp replicas draws the documents of its own sequences of a step (by the scenario's
 * seed, replica and number of the draw, so that results are the same everywhere), and has a span of
 * its own. Replicas wait for each other at the end of a step; the one with the largest span is the
 * last, and its span is that of the step: the attribute `document` of attention. Microbatches of a
 * replica are alike: a pipeline does not see that they differ. */
#include "ir/base/rng.h"
#include "ir/base/units.h"
#include "ir/passes/lower/internal.h"
#include "ir/strategy/scenario.h"

#include <math.h>

enum {
    MOST_SEQUENCES = 1 << 22,
    MOST_DOCUMENTS = 1 << 24, /* a second of draws */
    LENGTHS = 1               /* of the draws under a seed, those of lengths */
};

/* A length as drawn. */
static int64_t draw(const ds_train *train, uint64_t seed, uint64_t replica, uint64_t number) {
    double u = ds_rng_uniform_at(seed, LENGTHS, replica, number), sum = 0;
    for (uint32_t i = 0; i + 1 < train->n_documents; i++) {
        sum += train->documents[i].share;
        if (u < sum) return train->documents[i].tokens;
    }
    return train->documents[train->n_documents - 1].tokens;
}

double ds_lower__span(const ds_train *train, uint64_t seed, uint64_t replica, int64_t seq,
                      int64_t sequences) {
    double squares = 0;
    uint64_t number = 0;
    for (int64_t i = 0; i < sequences; i++)
        for (int64_t left = seq; left > 0;) {
            int64_t tokens = draw(train, seed, replica, number++);
            if (tokens > left) tokens = left;
            squares += (double)tokens * (double)tokens;
            left -= tokens;
        }
    return squares / ((double)seq * (double)sequences);
}

/* Documents that fill the tokens, as many as are expected. */
static double expected_documents(const ds_train *train, int64_t seq, double tokens) {
    double mean = 0;
    for (uint32_t i = 0; i < train->n_documents; i++)
        mean += train->documents[i].share * fmin((double)train->documents[i].tokens, (double)seq);
    return tokens / mean;
}

/* The span of the slowest replica, for a microbatch of `batch` sequences of all replicas. */
static ds_status find_span(const ds_lowering *l, int64_t seq, int64_t batch, ds_loc loc,
                           int64_t *out, ds_error *err) {
    const ds_strategy *s = &l->step->strategy;
    int64_t seed = 0, all;
    double most = 0;
    DS_TRY(ds_scenario_int(l->source, "", "seed", &seed, err));
    if (!ds_mul_i64(batch, s->microbatches, &all) || all > MOST_SEQUENCES || seq > INT64_C(1) << 40)
        return ds_error_set(err, DS_ERR_LIMIT, loc, "lengths: a step of more than %d sequences",
                            (int)MOST_SEQUENCES);
    int64_t sequences = all > s->dp ? all / s->dp : 1, replicas = s->dp;
    if (l->step->train.n_documents == 1) sequences = replicas = 1; /* all are alike */
    double tokens = (double)seq * (double)sequences * (double)replicas;
    if (expected_documents(&l->step->train, seq, tokens) > MOST_DOCUMENTS)
        return ds_error_set(err, DS_ERR_LIMIT, loc,
                            "lengths: a step of %.3g tokens has more than %d documents; say longer "
                            "documents, or the mean length alone",
                            tokens, (int)MOST_DOCUMENTS);
    for (int64_t r = 0; r < replicas; r++)
        most = fmax(most,
                    ds_lower__span(&l->step->train, (uint64_t)seed, (uint64_t)r, seq, sequences));
    *out = llround(most);
    return DS_OK;
}

static ds_status size_of(const ds_lowering *l, const ds_env *env, const ds_op *op, uint32_t operand,
                         uint32_t dim, int64_t *out, ds_error *err) {
    const ds_type *type = ds_use_type(l->c.unit, l->b.func, &op->in[operand]);
    return ds_expr_eval_int(env, type->dims[dim].size, op->loc, out, err);
}

ds_status ds_lower__pack(ds_lowering *l, ds_op *op, ds_error *err) {
    ds_binding binding;
    int64_t batch, queries, keys;
    if (!l->step->train.on || !l->step->train.n_documents || op->code != DS_OP_ATTENTION ||
        ds_attr_find(op->attrs, op->n_attrs, "document"))
        return DS_OK;
    if (l->step->strategy.cp > 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "lengths: documents are for sequences that cp does not split");
    DS_TRY(ds_bind(l->c.unit, NULL, 0, &binding, err));
    ds_env env = ds_binding_env(&binding, NULL);
    DS_TRY(size_of(l, &env, op, 0, 0, &batch, err));
    DS_TRY(size_of(l, &env, op, 0, 1, &queries, err));
    DS_TRY(size_of(l, &env, op, 1, 1, &keys, err));
    if (queries != keys) return DS_OK; /* across sequences */
    if (l->packed_seq != keys) DS_TRY(find_span(l, keys, batch, op->loc, &l->span, err));
    l->packed_seq = keys;
    if (l->span < keys) ds_build_attr_int(&l->b, op, "document", l->span);
    return DS_OK;
}

ds_status ds_lower__check_packed(const ds_lowering *l, ds_error *err) {
    if (!l->step->train.on || !l->step->train.n_documents || l->packed_seq) return DS_OK;
    const ds_attr *attr = ds_scenario_find(l->source->unit, "train", "lengths");
    return ds_error_set(err, DS_ERR_UNSUPPORTED, attr ? attr->loc : DS_NOWHERE,
                        "lengths: @%s has no `attention` over a sequence whose documents could be "
                        "packed",
                        l->model->name);
}
