/* From one layout to another, as a list of single collectives.
 *
 * Partial sums come first: scattered straight into the wanted split if the axis is the next axis of
 * its dim, else reduced. Then, while a dim has a minor-most axis that it should not have, the axis
 * moves by an all_to_all if it is the next axis of another dim, else goes by an all_gather. Splits
 * that are still missing are cut out of each device's part, without communication. Each step
 * removes an axis from a wrong dim, so the list ends.
 *
 * A parameter server is one device of a mesh of one axis. A sum over the axis goes there by a reduce,
 * and a value comes back by a broadcast.
 *
 * Prices are bytes that one device sends in a ring: an all_gather of parts of S bytes over n
 * (n−1)·S, a reduce_scatter of S (n−1)/n·S, an all_reduce twice that, an all_to_all (n−1)/n·S. */
#include "ir/passes/shard/internal.h"

#include <string.h>

/* One step: its collective, axes and dims. */
typedef struct step {
    ds_opcode code;
    uint8_t axes[DS_SHARD_AXES], n_axes;
    uint8_t dim, dim_to;
    ds_layout after;
} step;

#define MAX_STEPS (DS_SHARD_AXES * 3)

typedef struct steps {
    step at[MAX_STEPS];
    uint32_t n;
} steps;

/* Are the axes of the dim a prefix of its axes in `to`? */
static bool is_prefix(const ds_layout *layout, const ds_layout *to, uint32_t d) {
    if (layout->n[d] && (layout->shares ^ to->shares) >> d & 1) return false;
    return layout->n[d] <= to->n[d] && memcmp(layout->axis[d], to->axis[d], layout->n[d]) == 0;
}

/* The dim whose next axis in `to` is this axis; -1: none. */
static int next_home(const ds_layout *layout, const ds_layout *to, uint32_t axis) {
    for (uint32_t d = 0; d < to->rank; d++)
        if (is_prefix(layout, to, d) && layout->n[d] < to->n[d] &&
            to->axis[d][layout->n[d]] == axis)
            return (int)d;
    return -1;
}

static step *add_step(steps *list, ds_opcode code, uint32_t dim) {
    step *st = &list->at[list->n++];
    *st = (step){.code = code, .dim = (uint8_t)dim};
    return st;
}

/* Lets an unsplit dim be split as in `to`, by shares or evenly. */
static void take_shares(ds_layout *now, const ds_layout *to, uint32_t d) {
    uint8_t bit = (uint8_t)(1u << d);
    now->shares = (uint8_t)((now->shares & ~bit) | (to->shares & bit));
}

/* Scatters each axis that can go straight to its dim, major axes first; then one all_reduce of the
 * rest. */
static void reduce(const ds_layout *to, ds_layout *now, steps *list) {
    uint8_t todo = (uint8_t)((now->sum | now->max) & ~(to->sum | to->max));
    for (bool again = true; again;) {
        again = false;
        for (uint32_t a = 0; a < DS_SHARD_AXES; a++) {
            int d = todo & (1u << a) ? next_home(now, to, a) : -1;
            if (d < 0) continue;
            step *st = add_step(list, DS_OP_REDUCE_SCATTER, (uint32_t)d);
            st->axes[st->n_axes++] = (uint8_t)a;
            if (!now->n[d]) take_shares(now, to, (uint32_t)d);
            now->axis[d][now->n[d]++] = (uint8_t)a;
            now->sum &= (uint8_t) ~(1u << a);
            now->max &= (uint8_t) ~(1u << a);
            todo &= (uint8_t) ~(1u << a);
            st->after = *now;
            again = true;
        }
    }
    for (int max = 0; max < 2; max++) { /* sums and maxima do not mix in one collective */
        uint8_t *bits = max ? &now->max : &now->sum;
        if (!(*bits & todo)) continue;
        step *st = add_step(list, DS_OP_ALL_REDUCE, 0);
        for (uint32_t a = 0; a < DS_SHARD_AXES; a++)
            if (*bits & todo & (1u << a)) st->axes[st->n_axes++] = (uint8_t)a;
        *bits &= (uint8_t)~todo;
        st->after = *now;
    }
}

/* Adds a gather; a gather right after a gather of the same dim becomes one collective over both
 * axes. */
static void gather(ds_layout *now, uint32_t d, steps *list) {
    uint8_t axis = now->axis[d][--now->n[d]];
    step *last = list->n ? &list->at[list->n - 1] : NULL;
    if (!last || last->code != DS_OP_ALL_GATHER || last->dim != d)
        last = add_step(list, DS_OP_ALL_GATHER, d);
    memmove(last->axes + 1, last->axes, last->n_axes);
    last->axes[0] = axis;
    last->n_axes++;
    last->after = *now;
}

static void unsplit(const ds_layout *to, ds_layout *now, steps *list) {
    for (uint32_t d = 0; d < now->rank;) {
        if (is_prefix(now, to, d)) {
            d++;
            continue;
        }
        uint8_t axis = now->axis[d][now->n[d] - 1];
        int e = next_home(now, to, axis);
        bool equal = !((now->shares >> d | (e >= 0 ? to->shares >> e : 0)) & 1);
        if (e >= 0 && (uint32_t)e != d && equal) {
            step *st = add_step(list, DS_OP_ALL_TO_ALL, d);
            st->axes[st->n_axes++] = axis;
            st->dim_to = (uint8_t)e;
            now->n[d]--;
            now->axis[e][now->n[e]++] = axis;
            st->after = *now;
        } else {
            gather(now, d, list);
        }
        d = 0;
    }
}

/* A reduce to a server or a broadcast from one. */
static void serve(ds_layout *now, ds_opcode code, const ds_layout *server, steps *list) {
    step *st = add_step(list, code, 0);
    st->axes[st->n_axes++] = 0;
    now->sum &= (uint8_t)~1u;
    now->server = code == DS_OP_REDUCE ? server->server : 0;
    st->after = *now;
}

static void plan(const ds_layout *from, const ds_layout *to, steps *list) {
    ds_layout now = *from, target = *to;
    uint8_t pushed = to->server ? now.sum & 1u : 0;
    list->n = 0;
    target.sum |= pushed;
    if (from->mesh != to->mesh) { /* sum on the old mesh, then reshard once */
        ds_layout summed = now;
        summed.sum = summed.max = 0;
        reduce(&summed, &now, list);
    } else {
        if (now.server && !to->server) serve(&now, DS_OP_BROADCAST, from, list);
        reduce(&target, &now, list);
        unsplit(&target, &now, list);
        if (pushed) serve(&now, DS_OP_REDUCE, to, list);
    }
    if (!ds_shard__same_layout(&now, to)) add_step(list, DS_OP_RESHARD, 0)->after = *to;
}

/* ---- prices ---- */

double ds_shard__move_cost(const ds_sharder *s, const ds_type *type, const ds_layout *from,
                           const ds_layout *to) {
    steps list;
    ds_layout now = *from;
    double cost = 0;
    plan(from, to, &list);
    for (uint32_t i = 0; i < list.n; i++) {
        const step *st = &list.at[i];
        double n = 1, local = ds_shard__local_bytes(s, type, &now);
        for (uint32_t a = 0; a < st->n_axes; a++)
            n *= (double)ds_shard__axis_size(s, now.mesh, st->axes[a]);
        if (st->code == DS_OP_ALL_GATHER)
            cost += (n - 1) * local;
        else if (st->code == DS_OP_ALL_REDUCE)
            cost += 2 * (n - 1) / n * local;
        else if (st->code == DS_OP_RESHARD && now.mesh != st->after.mesh)
            cost += local;
        else if (st->code != DS_OP_RESHARD)
            cost += (n - 1) / n * local;
        now = st->after;
    }
    return cost;
}

/* ---- emission ---- */

static ds_use *find_moved(ds_sharder *s, const ds_use *use, const ds_layout *layout, ds_use *room) {
    for (uint32_t i = s->f.moved.n; i-- > 0;) {
        const ds_shard_moved *m = &s->f.moved.at[i];
        if (!ds_use_same(&m->from, use)) continue;
        bool fits =
            layout ? ds_shard__same_layout(&m->layout, layout) : !m->layout.sum && !m->layout.max;
        if (!fits) continue;
        *room = ds_use_of(m->to);
        return room;
    }
    return NULL;
}

ds_use ds_shard__resolved(ds_sharder *s, ds_use use) {
    ds_use room;
    ds_layout layout = ds_shard__layout(s, ds_shard__type_of(s, &use));
    if (!layout.sum && !layout.max) return use;
    return find_moved(s, &use, NULL, &room) ? room : use;
}

static const char *suffix_of(ds_opcode code) {
    switch (code) {
    case DS_OP_ALL_REDUCE:
    case DS_OP_REDUCE:
        return ".sum";
    case DS_OP_BROADCAST:
        return ".pulled";
    case DS_OP_REDUCE_SCATTER:
        return ".part";
    case DS_OP_ALL_GATHER:
        return ".whole";
    case DS_OP_ALL_TO_ALL:
        return ".moved";
    default:
        return ".cut";
    }
}

static ds_status emit(ds_sharder *s, ds_use from, const step *st, ds_use *out, ds_error *err) {
    ds_builder *b = &s->f.b;
    ds_op *op = ds_build_op(b, st->code);
    const ds_type *type = ds_shard__type_of(s, &from);
    ds_layout now = ds_shard__layout(s, type);
    ds_shard_value like = *ds_shard__value(s, from.value);
    ds_build_in(b, op, from);
    op->over = DS_NEW_N(&s->unit->arena, const char *, st->n_axes + 1u);
    for (uint32_t a = 0; a < st->n_axes; a++)
        op->over[op->n_over++] = s->meshes.at[now.mesh].axes[st->axes[a]].name;
    ds_exprs *exprs = &s->unit->exprs;
    if (st->code == DS_OP_ALL_GATHER || st->code == DS_OP_REDUCE_SCATTER ||
        st->code == DS_OP_ALL_TO_ALL)
        op->dim = ds_expr_int(exprs, st->dim);
    if (st->code == DS_OP_ALL_TO_ALL) op->dim_to = ds_expr_int(exprs, st->dim_to);
    if (st->code == DS_OP_REDUCE) ds_build_attr_int(b, op, "root", st->after.server - 1);
    if (st->code == DS_OP_REDUCE ||
        st->code == DS_OP_BROADCAST) { /* servers work beside each other */
        int server = (now.server ? now.server : st->after.server) - 1;
        ds_build_attr_text(b, op, "stream", ds_arena_printf(&s->unit->arena, "server%d", server));
    }
    bool writes =
        st->code == DS_OP_RESHARD ||
        (st->code == DS_OP_REDUCE_SCATTER && (s->step->strategy.zero_uneven || st->after.shares));
    const ds_type *written = writes ? ds_shard__type(s, type, &st->after) : NULL;
    const ds_type *parts = st->code == DS_OP_ALL_GATHER ? type : written;
    bool moves = st->code == DS_OP_ALL_GATHER || st->code == DS_OP_REDUCE_SCATTER;
    if (moves && s->step->strategy.zero_uneven && parts && ds_shard__is_cut_unequally(parts))
        ds_build_attr_bool(b, op, "padded", true);
    const char *base = ds_value_at(b->func, from.value)->name;
    ds_build_out(b, op, ds_arena_join(&s->unit->arena, base, suffix_of(st->code)), written);
    DS_TRY(ds_shard__put(s, op, &like, err));
    *out = ds_use_of(op->out[0]);
    return DS_OK;
}

void ds_shard__remember(ds_sharder *s, ds_use from, ds_value twin, bool both) {
    if (s->f.backward || from.n_index || !ds_build_is_inner(&s->f.b, from.value)) return;
    ds_shard_value *value = ds_shard__value(s, from.value);
    value->twin = twin.i + 1;
    value->keep_both = both;
}

ds_status ds_shard__move(ds_sharder *s, ds_use use, const ds_layout *to, ds_use *out,
                         ds_error *err) {
    const ds_type *type = ds_shard__type_of(s, &use);
    ds_layout from = ds_shard__layout(s, type);
    *out = use;
    if (ds_shard__same_layout(&from, to) || find_moved(s, &use, to, out)) return DS_OK;
    /* Sums are made once: a value that was summed for another reader is moved from there. */
    ds_use start = !to->sum && !to->max ? ds_shard__resolved(s, use) : use;
    from = ds_shard__layout(s, ds_shard__type_of(s, &start));
    steps list;
    plan(&from, to, &list);
    *out = start;
    bool exchanged = true; /* only all_to_alls so far: the same bytes */
    for (uint32_t i = 0; i < list.n; i++) {
        DS_TRY(emit(s, *out, &list.at[i], out, err));
        DS_HPUSH(&s->f.moved, ((ds_shard_moved){use, list.at[i].after, out->value}));
        exchanged = exchanged && list.at[i].code == DS_OP_ALL_TO_ALL;
        if (exchanged) ds_shard__remember(s, start, out->value, false);
    }
    return DS_OK;
}

ds_layout ds_shard__resolve_layout(const ds_sharder *s, const ds_layout *from, uint8_t seq,
                                   const ds_type *type) {
    ds_layout to = *from;
    const ds_logical_axis *tp = &s->logical[DS_L_TP];
    to.sum = to.max = 0;
    if (!s->step->strategy.sp || tp->n != 1 || ds_shard__is_view(s, from->mesh)) return to;
    uint8_t axis = tp->axis[0];
    if (!(from->sum & (1u << axis))) return to;
    for (uint32_t d = 0; d < from->rank; d++) {
        int64_t size = ds_shard__size(s, type->dims[d].size);
        int64_t parts = ds_shard__parts(s, from, d) * ds_shard__axis_size(s, from->mesh, axis);
        if (!(seq & (1u << d)) || size == 0 || size % parts) continue;
        to.axis[d][to.n[d]++] = axis;
        break;
    }
    return to;
}
