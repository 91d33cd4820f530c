/* Halving and doubling, algorithms in levels, and reduction inside switches. */
#include "ir/base/units.h"
#include "sim/coll/internal.h"

/* ---- recursive halving and doubling ---- */

/* What the members with the same lowest bits hold together: of[t][x], the shards of all members
 * that are x modulo 2^t. Members beyond the largest power of two belong to those 2^log before. */
typedef struct residues {
    uint32_t log, n; /* n = 2^log */
    int64_t **of;
} residues;

static residues residues_of(ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    residues r = {.n = 1};
    while (r.n <= q->n / 2) r.n *= 2, r.log++;
    r.of = DS_NEW_N(b->arena, int64_t *, r.log + 1);
    for (uint32_t t = r.log + 1; t-- > 0;) {
        uint32_t width = (uint32_t)1 << t;
        r.of[t] = DS_NEW_N(b->arena, int64_t, width);
        for (uint32_t x = 0; x < width; x++) {
            if (t < r.log) {
                r.of[t][x] = r.of[t + 1][x] + r.of[t + 1][x + width];
                continue;
            }
            if (q->op == DS_OP_ALL_REDUCE) { /* nobody owns anything in the end */
                r.of[t][x] = ds_coll__part(q->bytes, x, r.n);
                continue;
            }
            r.of[t][x] = ds_coll__shard(q, x);
            if (x + r.n < q->n) r.of[t][x] += ds_coll__shard(q, x + r.n);
        }
    }
    return r;
}

/* Partners stand 1, 2, 4 … apart, so that the largest pieces go to the nearest. */
static ds_status exchange(ds_coll_builder *b, const residues *r, uint32_t t, bool halve) {
    uint32_t mask = ((uint32_t)2 << t) - 1;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t partner = i ^ ((uint32_t)1 << t);
        int64_t bytes = r->of[t + 1][(halve ? partner : i) & mask];
        DS_TRY(ds_coll__post(b, i, partner, bytes));
    }
    ds_coll__end_phase(b, 1, 1);
    return DS_OK;
}

/* Members beyond the power of two give all (or their shard) to their partner, or get it back. */
static ds_status fold(ds_coll_builder *b, const residues *r, bool back, int whole) {
    const ds_coll_request *q = b->request;
    if (r->n == q->n) return DS_OK;
    for (uint32_t i = r->n; i < q->n; i++) {
        int64_t own = ds_coll__shard(q, i);
        int64_t bytes = whole == 2 ? q->bytes : whole == 1 ? q->bytes - own : own;
        DS_TRY(ds_coll__post(b, back ? i - r->n : i, back ? i : i - r->n, bytes));
    }
    ds_coll__end_phase(b, 1, 1);
    return DS_OK;
}

ds_status ds_coll__halving_algorithm(ds_coll_builder *b) {
    ds_opcode op = b->request->op;
    bool scatter = op != DS_OP_ALL_GATHER, gather = op != DS_OP_REDUCE_SCATTER;
    residues r = residues_of(b);
    DS_TRY(fold(b, &r, false, scatter ? 2 : 0));
    for (uint32_t t = 0; t < r.log && scatter; t++) DS_TRY(exchange(b, &r, t, true));
    for (uint32_t t = r.log; t-- > 0 && gather;) DS_TRY(exchange(b, &r, t, false));
    return fold(b, &r, true, !gather ? 0 : !scatter ? 1 : 2);
}

/* ---- levels: inside islands, and between members of the same rank of each ---- */

static ds_status needs_levels(ds_coll_builder *b, const char *name) {
    const ds_layout *l = ds_coll__layout(b);
    if (l->n_islands > 1 && l->most > 1 && l->even) return DS_OK;
    return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc,
                        "algorithm \"%s\" needs several islands (nodes) with the same number of "
                        "members, two or more; this group of %u is in %u island%s, of at most %u",
                        name, b->request->n, l->n_islands, l->n_islands == 1 ? "" : "s", l->most);
}

/* What all members of one rank own. */
static int64_t rank_bytes(const ds_coll_builder *b, uint32_t rank) {
    const ds_layout *l = &b->layout;
    int64_t sum = 0;
    for (uint32_t m = 0; m < l->n_islands; m++)
        sum += ds_coll__shard(b->request, l->member[m][rank]);
    return sum;
}

static ds_status inside(ds_coll_builder *b, bool reduce, bool gather) {
    const ds_layout *l = &b->layout;
    int64_t *shard = DS_NEW_N(b->arena, int64_t, l->most);
    for (uint32_t i = 0; i < l->most; i++) shard[i] = rank_bytes(b, i);
    for (uint32_t m = 0; m < l->n_islands; m++)
        DS_TRY(ds_coll__ring(b, &(ds_team){l->member[m], l->most, shard}, reduce, gather));
    ds_coll__end_phase(b, l->most - 1, 1);
    return DS_OK;
}

static ds_status between(ds_coll_builder *b, bool reduce, bool gather) {
    const ds_layout *l = &b->layout;
    uint32_t *member = DS_NEW_N(b->arena, uint32_t, l->n_islands);
    int64_t *shard = DS_NEW_N(b->arena, int64_t, l->n_islands);
    for (uint32_t i = 0; i < l->most; i++) {
        for (uint32_t m = 0; m < l->n_islands; m++) {
            member[m] = l->member[m][i];
            shard[m] = ds_coll__shard(b->request, member[m]);
        }
        DS_TRY(ds_coll__ring(b, &(ds_team){member, l->n_islands, shard}, reduce, gather));
    }
    ds_coll__end_phase(b, (int64_t)(l->n_islands - 1) * (reduce + gather), 1);
    return DS_OK;
}

ds_status ds_coll__hierarchical_algorithm(ds_coll_builder *b) {
    DS_TRY(needs_levels(b, "hierarchical"));
    ds_opcode op = b->request->op;
    bool reduce = op != DS_OP_ALL_GATHER, gather = op != DS_OP_REDUCE_SCATTER;
    if (reduce) DS_TRY(inside(b, true, false));
    DS_TRY(between(b, reduce, gather));
    return gather ? inside(b, false, true) : DS_OK;
}

/* All_to_all by way of the member of one's own island that has the receiver's rank, so that
 * messages between islands stay on their rail and are as few and as large as can be (PXN, NCCL
 * 2.12). */
ds_status ds_coll__pxn_algorithm(ds_coll_builder *b) {
    DS_TRY(needs_levels(b, "pxn"));
    const ds_layout *l = &b->layout;
    for (uint32_t m = 0; m < l->n_islands; m++)
        for (uint32_t i = 0; i < l->most; i++)
            for (uint32_t k = 1; k < l->most; k++) {
                uint32_t j = (i + k) % l->most;
                DS_TRY(ds_coll__post(b, l->member[m][i], l->member[m][j], rank_bytes(b, j)));
            }
    ds_coll__end_phase(b, 1, l->most - 1);
    for (uint32_t m = 0; m < l->n_islands; m++)
        for (uint32_t k = 1; k < l->n_islands; k++) {
            uint32_t to = (m + k) % l->n_islands;
            for (uint32_t i = 0; i < l->most; i++) {
                uint32_t target = l->member[to][i];
                int64_t bytes;
                if (!ds_mul_i64(ds_coll__shard(b->request, target), l->most, &bytes))
                    return ds_coll__too_large(b);
                DS_TRY(ds_coll__post(b, l->member[m][i], target, bytes));
            }
        }
    ds_coll__end_phase(b, 1, l->n_islands - 1);
    return DS_OK;
}

/* ---- reduction and multicast inside switches ---- */

/* Between each member and one switch that all reach. Where members' data are summed on the way up,
 * or all get the same on the way down, the links out of a reducing switch, or into one on the way
 * down, carry them once. */
static ds_status through_switch(ds_coll_builder *b, uint32_t hub, const int64_t *bytes, bool down) {
    const ds_coll_request *q = b->request;
    bool gathers = q->op == DS_OP_ALL_GATHER || q->op == DS_OP_BROADCAST;
    bool sums = q->op == DS_OP_REDUCE_SCATTER || q->op == DS_OP_REDUCE;
    bool merges = down ? !sums : !gathers;
    for (uint32_t i = 0; i < q->n; i++) {
        uint32_t vertex = ds_topo_device_vertex(b->topo, q->devices[i]);
        const ds_route *route;
        DS_TRY(ds_coll__at_request(b, ds_topo_route_vertices(b->topo, down ? hub : vertex,
                                                             down ? vertex : hub, &route, b->err)));
        for (uint32_t k = 0; k < route->n_links; k++) {
            const ds_topo_link *link = ds_topo_link_at(b->topo, route->links[k]);
            bool once = merges && ds_topo_reduces(b->topo, down ? link->to : link->from);
            ds_route one = {.n_links = 1,
                            .links = &route->links[k],
                            .share_q32 = &route->share_q32[k],
                            .latency_ps = route->latency_ps};
            DS_TRY(ds_coll__load(b, &one, bytes[i], once));
        }
    }
    return DS_OK;
}

/* The reducing switches that are nearest to the member farthest from them. */
static uint32_t nearest_hubs(ds_coll_builder *b, uint32_t *hubs, uint32_t most) {
    const ds_coll_request *q = b->request;
    uint32_t n = 0, n_switches;
    const uint32_t *switches = ds_topo_reducing_switches(b->topo, &n_switches);
    int64_t least = INT64_MAX;
    for (uint32_t s = 0; s < n_switches; s++) {
        int64_t farthest = 0;
        for (uint32_t i = 0; i < q->n && farthest <= least; i++) {
            const ds_route *route;
            ds_error none;
            uint32_t vertex = ds_topo_device_vertex(b->topo, q->devices[i]);
            bool there =
                ds_topo_route_vertices(b->topo, vertex, switches[s], &route, &none) == DS_OK;
            if (!there || route->latency_ps > farthest)
                farthest = there ? route->latency_ps : INT64_MAX;
        }
        if (farthest == INT64_MAX || farthest > least) continue;
        if (farthest < least) n = 0;
        least = farthest;
        if (n < most) hubs[n++] = switches[s];
    }
    return n;
}

#define MOST_HUBS 64

/* What a member sends up and gets down: all, or its shard. */
static void up_and_down(const ds_coll_request *q, uint32_t i, int64_t *up, int64_t *down) {
    bool root = i == q->root;
    *up = *down = q->bytes;
    if (q->op == DS_OP_ALL_GATHER) *up = ds_coll__shard(q, i);
    if (q->op == DS_OP_REDUCE_SCATTER) *down = ds_coll__shard(q, i);
    if (q->op == DS_OP_BROADCAST) *(root ? down : up) = 0;
    if (q->op == DS_OP_REDUCE) *(root ? up : down) = 0;
}

ds_status ds_coll__switch_algorithm(ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    uint32_t hubs[MOST_HUBS], n = nearest_hubs(b, hubs, MOST_HUBS);
    if (!n)
        return ds_error_set(b->err, DS_ERR_UNSUPPORTED, q->loc,
                            "algorithm \"switch\" needs a switch with {reduce = true} that all "
                            "members reach");
    int64_t *up = DS_NEW_N(b->arena, int64_t, q->n), *down = DS_NEW_N(b->arena, int64_t, q->n);
    int64_t alpha_ps = 0;
    for (uint32_t h = 0; h < n; h++) {
        for (uint32_t i = 0; i < q->n; i++) {
            up_and_down(q, i, &up[i], &down[i]);
            up[i] = ds_coll__part(up[i], h, n);
            down[i] = ds_coll__part(down[i], h, n);
        }
        b->alpha_ps = 0;
        DS_TRY(through_switch(b, hubs[h], up, false));
        int64_t up_ps = b->alpha_ps;
        b->alpha_ps = 0;
        DS_TRY(through_switch(b, hubs[h], down, true));
        int64_t both_ps = ds_ps_sum(up_ps, b->alpha_ps);
        if (both_ps > alpha_ps) alpha_ps = both_ps;
    }
    b->alpha_ps = alpha_ps;
    ds_coll__end_phase(b, 1, 1);
    return DS_OK;
}
