/* What needs a gradient, and where.
 *
 * A value is live if it depends on a weight and the loss depends on it, through floating-point
 * values alone. Both are least fixpoints: carries make circles. */
#include "ir/passes/grad/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct scan {
    ds_grad *g;
    bool *active, *needed;
    bool backward; /* which of the two is being found */
    bool changed;
} scan;

ds_grad_loop *ds_grad__loop(const ds_grad *g, const ds_op *loop) {
    uint64_t *slot = ds_map_find(&g->loops, DS_KEY(loop));
    return slot ? (ds_grad_loop *)(uintptr_t)*slot : NULL;
}

uint32_t ds_grad__weight(const ds_grad *g, ds_value old) {
    const uint64_t *found = ds_map_find(&g->weight_of, old.i);
    return found ? (uint32_t)*found : g->n_weights;
}

bool ds_grad__inside(const ds_grad *g, ds_value value, const ds_grad_loop *loop) {
    const ds_grad_loop *at = g->home[value.i];
    while (at && at != loop) at = at->up;
    return at == loop;
}

bool ds_grad__op_is_live(const ds_grad *g, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_out; i++)
        if (g->live[op->out[i].i]) return true;
    return false;
}

/* ---- homes ---- */

static void find_homes(ds_grad *g, const ds_block *block, ds_grad_loop *loop) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_out; k++) g->home[op->out[k].i] = loop;
        if (op->code != DS_OP_FOR) continue;
        ds_grad_loop *inner = DS_NEW(&g->unit->arena, ds_grad_loop);
        *inner = (ds_grad_loop){.op = op, .up = loop};
        ds_map_put(&g->loops, DS_KEY(op), DS_KEY(inner));
        for (uint32_t k = 0; k < op->n_args; k++) g->home[op->args[k].i] = inner;
        find_homes(g, op->body, inner);
    }
}

/* ---- liveness ---- */

static bool is_float(const scan *s, ds_value v) {
    const ds_type *type = ds_value_at(s->g->old, v)->type;
    return type && ds_dtype_is_float(type->dtype);
}

static void set(scan *s, bool *flags, ds_value v) {
    if (flags[v.i] || !is_float(s, v)) return;
    flags[v.i] = true;
    s->changed = true;
}

static void set_if(scan *s, bool *flags, ds_value to, ds_value from) {
    if (flags[from.i]) set(s, flags, to);
}

/* What flows from `from` to `to`: values forward, the need of gradients backward. */
static void link(scan *s, ds_value from, ds_value to) {
    if (s->backward)
        set_if(s, s->needed, from, to);
    else
        set_if(s, s->active, to, from);
}

static void flow_block(scan *s, const ds_block *block);

/* The links of a loop, what it carries from turn to turn included. */
static void link_loop(scan *s, const ds_op *loop) {
    const ds_op *yield = ds_block_end(loop->body);
    for (uint32_t k = 0; k < loop->n_args; k++) {
        link(s, loop->in[k].value, loop->args[k]);
        link(s, yield->in[k].value, loop->args[k]);
        link(s, loop->in[k].value, loop->out[k]);
    }
    for (uint32_t k = 0; k < loop->n_out; k++) link(s, yield->in[k].value, loop->out[k]);
}

static void flow_op(scan *s, const ds_op *op) {
    if (op->code == DS_OP_FOR) {
        link_loop(s, op);
        flow_block(s, op->body);
        link_loop(s, op);
        return;
    }
    if (op->code < DS_OP_FIRST_TABLE_OP) return;
    for (uint32_t k = 0; k < op->n_in; k++)
        for (uint32_t r = 0; r < op->n_out; r++) link(s, op->in[k].value, op->out[r]);
}

/* In the order in which it flows: without loops one walk finds all. */
static void flow_block(scan *s, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        flow_op(s, block->ops[s->backward ? block->n_ops - 1 - i : i]);
}

static void flow(scan *s, bool backward) {
    s->backward = backward;
    do {
        s->changed = false;
        flow_block(s, &s->g->old->body);
    } while (s->changed);
}

static ds_status check_block(const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_CALL || op->code == DS_OP_LOCAL || op->code == DS_OP_WEIGHT)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                "grad: a model with a %s in it must be lowered first",
                                ds_op_name(op->code));
        if (op->code != DS_OP_FOR) continue;
        const ds_op *end = ds_block_end(op->body);
        if (op->n_out && (!end || end->code != DS_OP_YIELD || end->n_in != op->n_out))
            return ds_error_set(err, DS_ERR_INTERNAL, op->loc, "a loop without its yield");
        DS_TRY(check_block(op->body, err));
    }
    return DS_OK;
}

/* ---- weights ---- */

typedef struct use_site {
    const ds_use *use;
    const ds_grad_loop *loop; /* innermost around the reading op */
    const ds_op *op;
} use_site;

/* Where one weight is read, in the order of the text. */
typedef struct sites {
    DS_VEC(use_site) all;
} sites;

static void find_sites(const ds_grad *g, sites *by_weight, const ds_block *block,
                       const ds_grad_loop *loop) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        bool reads = op->code == DS_OP_YIELD || op->code == DS_OP_FOR || ds_grad__op_is_live(g, op);
        for (uint32_t k = 0; reads && k < op->n_in; k++) {
            uint32_t w = ds_grad__weight(g, op->in[k].value);
            const use_site site = {&op->in[k], loop, op};
            if (w < g->n_weights) DS_HPUSH(&by_weight[w].all, site);
        }
        if (op->code == DS_OP_FOR) find_sites(g, by_weight, op->body, ds_grad__loop(g, op));
    }
}

/* The loop around `site` at that depth, counted from the outermost; NULL: there is none. */
static const ds_grad_loop *loop_at(const ds_grad_loop *loop, uint32_t depth) {
    uint32_t n = 0;
    for (const ds_grad_loop *at = loop; at; at = at->up) n++;
    for (; loop && n > depth + 1; n--) loop = loop->up;
    return n == depth + 1 ? loop : NULL;
}

/* Does %w{l, m} stand in for l { for m { over exactly the range of the family? */
static bool in_turn(const ds_grad *g, const use_site *site, const ds_value_info *info) {
    if (site->use->n_index != info->n_binders || site->use->index_hi) return false;
    for (uint32_t k = 0; k < info->n_binders; k++) {
        const ds_grad_loop *loop = loop_at(site->loop, k);
        if (!loop) return false;
        const ds_expr_node *node = ds_expr_at(&g->unit->exprs, site->use->index[k]);
        if (node->kind != DS_EXPR_INDEX || node->name != loop->op->index) return false;
        ds_binder binder = info->binders[k];
        for (uint32_t p = 0; p < k; p++) { /* bounds may mention earlier binders */
            binder.lo = ds_expr_subst(&g->unit->exprs, binder.lo, info->binders[p].name,
                                      site->use->index[p]);
            binder.hi = ds_expr_subst(&g->unit->exprs, binder.hi, info->binders[p].name,
                                      site->use->index[p]);
        }
        if (ds_expr_equal(&g->unit->exprs, binder.lo, loop->op->lo) != DS_YES ||
            ds_expr_equal(&g->unit->exprs, binder.hi, loop->op->hi) != DS_YES)
            return false;
    }
    return true;
}

/* The op of `block` that is, or holds, the reading op. */
static const ds_op *in_block(const use_site *site, const ds_grad_loop *block) {
    const ds_op *op = site->op;
    for (const ds_grad_loop *at = site->loop; at != block; at = at->up) op = at->op;
    return op;
}

static void place_weight(ds_grad *g, ds_grad_weight *w, const use_site *site, uint32_t n_sites) {
    const ds_value_info *info = ds_value_at(g->old, w->old);
    uint32_t n = info->n_binders;
    const ds_grad_loop *home = n && n_sites ? loop_at(site[0].loop, n - 1) : NULL;
    w->assembled = n > 0;
    bool same = n > 0 && n_sites > 0;
    for (uint32_t i = 0; i < n_sites && same; i++)
        same = in_turn(g, &site[i], info) && loop_at(site[i].loop, n - 1) == home;
    if (same) w->home = (ds_grad_loop *)home;
    if (n_sites && (same || !n)) w->first = in_block(&site[0], w->home);
}

/* From the last to the first, so that the weights of an op are a list in their order. */
static void place_weights(ds_grad *g) {
    sites *by_weight = ds_xcalloc(g->n_weights + 1, sizeof *by_weight);
    find_sites(g, by_weight, &g->old->body, NULL);
    for (uint32_t i = g->n_weights; i-- > 0;) {
        ds_grad_weight *w = &g->weights[i];
        place_weight(g, w, by_weight[i].all.at, by_weight[i].all.n);
        free(by_weight[i].all.at);
        if (!w->first) continue;
        const uint64_t *next = ds_map_find(&g->firsts, DS_KEY(w->first));
        w->next = next ? (ds_grad_weight *)(uintptr_t)*next : NULL;
        ds_map_put(&g->firsts, DS_KEY(w->first), DS_KEY(w));
    }
    free(by_weight);
}

ds_status ds_grad__scan(ds_grad *g, ds_error *err) {
    DS_TRY(check_block(&g->old->body, err));
    find_homes(g, &g->old->body, NULL);
    ds_grad__find_stores(g);
    const ds_op *end = ds_block_end(&g->old->body);
    const ds_type *loss = g->old->n_results ? g->old->results[0] : NULL;
    if (!end || !loss || loss->rank || !ds_dtype_is_float(loss->dtype))
        return ds_error_set(err, DS_ERR_TYPE, end ? end->loc : g->old->loc,
                            "the first result of a model that is trained is its loss, a scalar "
                            "such as f32[]; say `train { loss = mse }` (or cross_entropy) where "
                            "the model gives predictions");
    scan s = {.g = g};
    s.active = ds_xcalloc(g->n_values + 1, sizeof *s.active);
    s.needed = ds_xcalloc(g->n_values + 1, sizeof *s.needed);
    for (uint32_t i = 0; i < g->n_weights; i++) set(&s, s.active, g->weights[i].old);
    set(&s, s.needed, end->in[0].value);
    flow(&s, false);
    flow(&s, true);
    for (uint32_t i = 0; i < g->n_values; i++) g->live[i] = s.active[i] && s.needed[i];
    free(s.active);
    free(s.needed);
    place_weights(g);
    return DS_OK;
}
