/* `total` of scalars of several layouts: the sums of squares of gradients, some of which are terms
 * over tp, some over dp too, and some whole on every device.
 *
 * Each device adds up its terms of one kind. The kind over most axes is then reduced over the axes
 * that the next kind lacks, and joins the next kind, until the sum is whole. Whole values are added
 * last, so they count once. Megatron-LM likewise leaves duplicates of tp out of the norm, but uses
 * one all_reduce over all of these groups (core/optimizer/clip_grads.py).
 *
 * Scalars of another mesh (an override's, a group's) are added up there, and one sum is moved; those on
 * parameter servers on each server first. */
#include "ir/passes/shard/internal.h"

typedef struct kind {
    ds_use sum;
    uint8_t over;    /* bits: terms over these axes */
    uint16_t server; /* as in ds_layout */
} kind;

typedef struct totals {
    kind *at;
    uint32_t n;
} totals;

static ds_layout layout_of(ds_sharder *s, ds_use use) {
    return ds_shard__layout(s, ds_shard__type_of(s, &use));
}

static ds_status add_to_kind(ds_sharder *s, totals *t, ds_use use, const char *name,
                             ds_error *err) {
    const ds_layout now = layout_of(s, use);
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->at[i].over != now.sum || t->at[i].server != now.server) continue;
        ds_op *op = ds_build_op(&s->f.b, DS_OP_ADD);
        ds_build_in(&s->f.b, op, t->at[i].sum);
        ds_build_in(&s->f.b, op, use);
        ds_build_out(&s->f.b, op, name, NULL);
        DS_TRY(ds_shard__put(s, op, &(ds_shard_value){0}, err));
        t->at[i].sum = ds_use_of(op->out[0]);
        return DS_OK;
    }
    t->at[t->n++] = (kind){use, now.sum, now.server};
    return DS_OK;
}

/* Moves the kind over most axes to the end. Returns its axes that the most similar other kind
 * lacks. */
static uint8_t next_axes(totals *t) {
    uint32_t most = 0;
    uint8_t rest = 0;
    for (uint32_t i = 1; i < t->n; i++)
        if (__builtin_popcount(t->at[i].over) > __builtin_popcount(t->at[most].over)) most = i;
    kind last = t->at[most];
    t->at[most] = t->at[t->n - 1];
    t->at[t->n - 1] = last;
    for (uint32_t i = 0; i + 1 < t->n; i++)
        if (__builtin_popcount(t->at[i].over & last.over) > __builtin_popcount(rest))
            rest = t->at[i].over & last.over;
    return last.over == rest ? last.over : (uint8_t)(last.over & ~rest);
}

static ds_status reduce(ds_sharder *s, ds_use use, uint8_t axes, const char *name, ds_use *out,
                        ds_error *err) {
    const ds_shard_mesh *mesh = &s->meshes.at[layout_of(s, use).mesh];
    ds_op *op = ds_build_op(&s->f.b, DS_OP_ALL_REDUCE);
    op->over = DS_NEW_N(&s->unit->arena, const char *, DS_SHARD_AXES);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) op->over[op->n_over++] = mesh->axes[a].name;
    ds_build_in(&s->f.b, op, use);
    *out = ds_use_of(ds_build_out(&s->f.b, op, name, NULL));
    return ds_shard__put(s, op, &(ds_shard_value){0}, err);
}

/* Brings the sums of servers to all devices of the mesh. */
static ds_status leave_servers(ds_sharder *s, totals *t, const char *name, ds_error *err) {
    for (uint32_t i = 0; i < t->n;) {
        const kind served = t->at[i];
        ds_layout to = layout_of(s, served.sum);
        ds_use sum;
        if (!served.server) {
            i++;
            continue;
        }
        to.server = 0;
        DS_TRY(ds_shard__move(s, served.sum, &to, &sum, err));
        t->at[i] = t->at[--t->n];
        DS_TRY(add_to_kind(s, t, sum, name, err));
    }
    return DS_OK;
}

/* Brings the kinds of one mesh to one whole kind. */
static ds_status join(ds_sharder *s, totals *t, const char *name, ds_error *err) {
    DS_TRY(leave_servers(s, t, name, err));
    while (t->n > 1 || t->at[0].over) {
        uint8_t axes = next_axes(t);
        ds_use sum;
        DS_TRY(reduce(s, t->at[--t->n].sum, axes, name, &sum, err));
        DS_TRY(add_to_kind(s, t, sum, name, err));
    }
    return DS_OK;
}

ds_status ds_shard__total(ds_sharder *s, const ds_op *old, const ds_use *in, const ds_value **made,
                          ds_error *err) {
    const char *name = ds_value_at(s->f.from, old->out[0])->name;
    const ds_layout whole = ds_shard__whole(s, 0);
    totals all = {DS_NEW_N(&s->unit->arena, kind, s->meshes.n + 1), 0};
    for (uint32_t m = 0; m < s->meshes.n; m++) {
        totals t = {DS_NEW_N(&s->unit->arena, kind, old->n_in), 0};
        for (uint32_t i = 0; i < old->n_in; i++)
            if (layout_of(s, in[i]).mesh == m) DS_TRY(add_to_kind(s, &t, in[i], name, err));
        if (!t.n) continue;
        DS_TRY(join(s, &t, name, err));
        DS_TRY(ds_shard__move(s, t.at[0].sum, &whole, &t.at[0].sum, err));
        DS_TRY(add_to_kind(s, &all, t.at[0].sum, name, err));
    }
    ds_value *out = DS_NEW(&s->unit->arena, ds_value);
    *out = all.at[0].sum.value;
    *made = out;
    return DS_OK;
}
