/* From one sharding to another on the same devices: the shortest sequence of collectives.
 *
 * A state is a *layout*: for each dim the splits over axes larger than one, from major to minor,
 * and which partials are left. Steps go towards the layout that is wanted: all_reduce      all
 * partials that it lacks become sums reduce_scatter  partials become the next splits of a dim that
 * is right so far all_gather      the minor-most splits of a dim that are wrong go away all_to_all
 * they become the next splits of another dim that is right so far cut             an axis that
 * splits nothing becomes the next split of such a dim; moves nothing Dijkstra over layouts, by
 * (collectives, bytes moved). Gathering all that is wrong and cutting is always a way, so there is
 * a sequence unless there are more than MOST_LAYOUTS of them. */
#include "sim/plan/comm.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SPLITS  6 /* of a dim */
#define MOST_TOKENS  32
#define MOST_LAYOUTS 1024
#define UNIT         (UINT64_C(1) << 40) /* the whole value, in the count of what is moved */

/* A way of splitting: an axis, evenly or in sizes. */
typedef struct token {
    const ds_split *split;
    int64_t n; /* parts */
} token;

typedef struct layout {
    uint8_t n[DS_MAX_RANK], at[DS_MAX_RANK][MOST_SPLITS]; /* tokens */
    uint32_t partials;                                    /* bits: of the operand's */
} layout;

typedef struct node {
    layout l;
    uint32_t n_collectives, before; /* the node that it was reached from */
    uint64_t moved;
    ds_opcode op; /* how */
    uint8_t axes[MOST_TOKENS];
    uint32_t n_axes;
    bool is_done;
} node;

typedef struct walker {
    ds_builder *b;
    const ds_placement *p;
    const ds_type *from;
    uint32_t rank;
    token tokens[MOST_TOKENS]; /* the axes of partials come last */
    uint32_t n_tokens;
    uint8_t partial_token[MOST_TOKENS];
    layout goal;
    DS_VEC(node) nodes;
    bool too_many;
} walker;

static bool same_split(const ds_split *a, const ds_split *b) {
    if (a->axis != b->axis || a->n_sizes != b->n_sizes) return false;
    for (uint32_t i = 0; i < a->n_sizes; i++)
        if (a->sizes[i].i != b->sizes[i].i) return false;
    return true;
}

static uint8_t token_of(walker *w, const ds_split *split) {
    for (uint32_t i = 0; i < w->n_tokens; i++)
        if (same_split(w->tokens[i].split, split)) return (uint8_t)i;
    if (w->n_tokens == MOST_TOKENS) {
        w->too_many = true;
        return 0;
    }
    w->tokens[w->n_tokens] = (token){split, ds_plan__axis_size(w->p, split->axis)};
    return (uint8_t)w->n_tokens++;
}

static layout layout_of(walker *w, const ds_type *type) {
    layout l;
    memset(&l, 0, sizeof l);
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++) {
            const ds_split *split = &type->dims[d].splits[s];
            if (ds_plan__axis_size(w->p, split->axis) == 1) continue;
            if (l.n[d] == MOST_SPLITS) {
                w->too_many = true;
                return l;
            }
            l.at[d][l.n[d]++] = token_of(w, split);
        }
    for (uint32_t i = 0; i < w->from->n_partials; i++) {
        if (ds_plan__axis_size(w->p, w->from->partials[i].axis) == 1) continue;
        for (uint32_t k = 0; k < type->n_partials; k++)
            if (type->partials[k].axis == w->from->partials[i].axis) l.partials |= 1u << i;
    }
    return l;
}

/* How many of the dim's splits are those that are wanted. */
static uint32_t right_so_far(const walker *w, const layout *l, uint32_t d) {
    uint32_t n = 0;
    while (n < l->n[d] && n < w->goal.n[d] && l->at[d][n] == w->goal.at[d][n]) n++;
    return n;
}

/* All splits of the dim are right, and more are wanted. */
static bool takes_more(const walker *w, const layout *l, uint32_t d) {
    return l->n[d] < w->goal.n[d] && right_so_far(w, l, d) == l->n[d];
}

static bool is_axis_used(const walker *w, const layout *l, const char *axis) {
    for (uint32_t d = 0; d < w->rank; d++)
        for (uint32_t s = 0; s < l->n[d]; s++)
            if (w->tokens[l->at[d][s]].split->axis == axis) return true;
    for (uint32_t i = 0; i < w->from->n_partials; i++)
        if (l->partials >> i & 1 && w->from->partials[i].axis == axis) return true;
    return false;
}

/* Bytes that one device holds. */
static uint64_t local(const walker *w, const layout *l) {
    uint64_t bytes = UNIT;
    for (uint32_t d = 0; d < w->rank; d++)
        for (uint32_t s = 0; s < l->n[d]; s++) bytes /= (uint64_t)w->tokens[l->at[d][s]].n;
    return bytes;
}

/* A way to a layout: a new node, or a better way to a known one. */
static void reach(walker *w, uint32_t before, const layout *l, ds_opcode op, const uint8_t *axes,
                  uint32_t n_axes) {
    const node *from = &w->nodes.at[before];
    node fresh = {.l = *l, .before = before, .op = op, .n_axes = n_axes};
    uint64_t k = 1, bytes = local(w, &from->l);
    for (uint32_t i = 0; i < n_axes; i++) k *= (uint64_t)w->tokens[axes[i]].n;
    if (n_axes) memcpy(fresh.axes, axes, n_axes);
    uint64_t each = op == DS_OP_ALL_GATHER ? bytes * (k - 1) : bytes / k * (k - 1);
    fresh.n_collectives = from->n_collectives + (op != DS_OP_INVALID);
    fresh.moved = from->moved;
    if (op != DS_OP_INVALID) fresh.moved += op == DS_OP_ALL_REDUCE ? 2 * each : each;
    for (uint32_t i = 0; i < w->nodes.n; i++) {
        node *known = &w->nodes.at[i];
        if (memcmp(&known->l, l, sizeof *l) != 0) continue;
        bool better = fresh.n_collectives != known->n_collectives
                          ? fresh.n_collectives < known->n_collectives
                          : fresh.moved < known->moved;
        if (!known->is_done && better) *known = fresh;
        return;
    }
    if (w->nodes.n == MOST_LAYOUTS)
        w->too_many = true;
    else
        DS_HPUSH(&w->nodes, fresh);
}

static void try_reduce(walker *w, uint32_t at) {
    layout l = w->nodes.at[at].l;
    uint32_t lacks = l.partials & ~w->goal.partials, n = 0;
    uint8_t axes[MOST_TOKENS];
    if (!lacks) return;
    for (uint32_t i = 0; i < w->from->n_partials; i++)
        if (lacks >> i & 1) axes[n++] = w->partial_token[i];
    layout next = l;
    next.partials &= ~lacks;
    reach(w, at, &next, DS_OP_ALL_REDUCE, axes, n);
}

static void try_reduce_scatter(walker *w, uint32_t at, uint32_t d) {
    layout next = w->nodes.at[at].l;
    uint8_t axes[MOST_TOKENS];
    uint32_t n = 0;
    while (takes_more(w, &next, d)) {
        uint8_t t = w->goal.at[d][next.n[d]];
        uint32_t i = 0;
        while (i < w->from->n_partials &&
               !(next.partials >> i & 1 && w->from->partials[i].axis == w->tokens[t].split->axis))
            i++;
        if (i == w->from->n_partials) return;
        next.partials &= ~(1u << i);
        next.at[d][next.n[d]++] = t;
        axes[n++] = t;
        reach(w, at, &next, DS_OP_REDUCE_SCATTER, axes, n);
    }
}

static void try_cut(walker *w, uint32_t at, uint32_t d) {
    layout next = w->nodes.at[at].l;
    if (!takes_more(w, &next, d)) return;
    uint8_t t = w->goal.at[d][next.n[d]];
    if (is_axis_used(w, &next, w->tokens[t].split->axis)) return;
    next.at[d][next.n[d]++] = t;
    reach(w, at, &next, DS_OP_INVALID, NULL, 0);
}

/* The last k splits of dim d, which are wrong, go to dim e if they are what it wants next. */
static void try_move(walker *w, uint32_t at, uint32_t d, uint32_t k, uint32_t e) {
    layout next = w->nodes.at[at].l;
    if (d == e || !takes_more(w, &next, e) || next.n[e] + k > w->goal.n[e]) return;
    const uint8_t *axes = &w->nodes.at[at].l.at[d][next.n[d] - k];
    for (uint32_t i = 0; i < k; i++) {
        if (w->goal.at[e][next.n[e] + i] != axes[i] || w->tokens[axes[i]].split->n_sizes) return;
        next.at[e][next.n[e] + i] = axes[i];
    }
    uint8_t moved[MOST_SPLITS];
    memcpy(moved, axes, k);
    next.n[e] = (uint8_t)(next.n[e] + k);
    next.n[d] = (uint8_t)(next.n[d] - k);
    memset(&next.at[d][next.n[d]], 0, k);
    reach(w, at, &next, DS_OP_ALL_TO_ALL, moved, k);
}

static void try_gather(walker *w, uint32_t at, uint32_t d) {
    const layout l = w->nodes.at[at].l;
    uint32_t wrong = l.n[d] - right_so_far(w, &l, d);
    for (uint32_t k = 1; k <= wrong; k++) {
        layout next = l;
        next.n[d] = (uint8_t)(l.n[d] - k);
        memset(&next.at[d][next.n[d]], 0, k);
        reach(w, at, &next, DS_OP_ALL_GATHER, &l.at[d][next.n[d]], k);
        for (uint32_t e = 0; e < w->rank; e++) try_move(w, at, d, k, e);
    }
}

static uint32_t nearest(const walker *w) {
    uint32_t best = DS_NONE;
    for (uint32_t i = 0; i < w->nodes.n; i++) {
        const node *one = &w->nodes.at[i];
        if (one->is_done) continue;
        const node *than = best == DS_NONE ? NULL : &w->nodes.at[best];
        if (!than || one->n_collectives < than->n_collectives ||
            (one->n_collectives == than->n_collectives && one->moved < than->moved))
            best = i;
    }
    return best;
}

/* The type of a layout. */
static const ds_type *type_of(walker *w, const layout *l) {
    ds_arena *arena = &w->b->plan->arena;
    ds_type *type = ds_type_copy(arena, w->from);
    for (uint32_t d = 0; d < w->rank; d++) {
        type->dims[d].splits = DS_NEW_N(arena, ds_split, l->n[d]);
        type->dims[d].n_splits = l->n[d];
        for (uint32_t s = 0; s < l->n[d]; s++)
            type->dims[d].splits[s] = *w->tokens[l->at[d][s]].split;
    }
    type->n_partials = 0;
    for (uint32_t i = 0; i < w->from->n_partials; i++)
        if (l->partials >> i & 1) type->partials[type->n_partials++] = w->from->partials[i];
    return type;
}

static void write_steps(walker *w, uint32_t end, ds_relayout *out) {
    ds_arena *arena = &w->b->plan->arena;
    out->found = true;
    out->n_steps = w->nodes.at[end].n_collectives;
    out->steps = DS_NEW_N(arena, ds_relayout_step, out->n_steps);
    uint32_t at = out->n_steps;
    for (uint32_t i = end; i; i = w->nodes.at[i].before) {
        const node *n = &w->nodes.at[i];
        out->cuts = out->cuts || n->op == DS_OP_INVALID;
        if (n->op == DS_OP_INVALID) continue;
        ds_relayout_step *s = &out->steps[--at];
        s->op = n->op;
        s->from = type_of(w, &w->nodes.at[n->before].l);
        s->to = type_of(w, &n->l);
        s->n_axes = n->n_axes;
        s->axes = DS_NEW_N(arena, const char *, n->n_axes);
        for (uint32_t k = 0; k < n->n_axes; k++) s->axes[k] = w->tokens[n->axes[k]].split->axis;
    }
}

void ds_plan__relayout(ds_builder *b, const ds_placement *p, const ds_type *from, const ds_type *to,
                       ds_relayout *out) {
    walker *w = DS_NEW(&b->plan->arena, walker);
    *w = (walker){.b = b, .p = p, .from = from, .rank = from->rank};
    *out = (ds_relayout){0};
    if (from->n_partials > MOST_TOKENS) return;
    node start = {.l = layout_of(w, from)};
    w->goal = layout_of(w, to);
    for (uint32_t i = 0; i < from->n_partials; i++) {
        ds_split *axis = DS_NEW(&b->plan->arena, ds_split);
        axis->axis = from->partials[i].axis;
        w->partial_token[i] = token_of(w, axis);
    }
    if (w->too_many) return;
    DS_HPUSH(&w->nodes, start);
    for (uint32_t at; !w->too_many && (at = nearest(w)) != DS_NONE;) {
        w->nodes.at[at].is_done = true;
        if (memcmp(&w->nodes.at[at].l, &w->goal, sizeof w->goal) == 0) {
            write_steps(w, at, out);
            break;
        }
        try_reduce(w, at);
        for (uint32_t d = 0; d < w->rank; d++) {
            try_cut(w, at, d);
            try_reduce_scatter(w, at, d);
            try_gather(w, at, d);
        }
    }
    free(w->nodes.at);
}
