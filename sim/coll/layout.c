/* Which members share an island, and which way rings go.
 *
 * A ring goes through all members of an island before it leaves it, so it crosses every NIC border
 * once a node. There are as many rings as the largest island has members: ring r enters an island
 * at member r and leaves it from the one before, the next island it goes through backwards, so that
 * it crosses between members of the same rank (rails) and every NIC carries one ring each way. NCCL
 * searches its rings to the same end (NVIDIA/nccl src/graph/search.cc, NCCL_CROSS_NIC).
 *
 * Where links join devices without a switch between, the order inside an island is searched: as
 * many directed cycles of direct links as there are, each with the bandwidth of the slowest direct
 * link (a DGX-1 has six); where there is none, the cycle whose slowest hop is fastest. A chain of
 * direct links, if there is one, is kept then for a tree along it: five GPUs of a DGX-1 close no
 * ring, the fifth hangs on the first alone. NCCL gives trees no more channels than rings, which is
 * one there, over PCIe (NVIDIA/nccl src/init.cc: the smaller of the two numbers), and a channel
 * uses one link of a pair; so of several chains one is taken with a hop of just one. The group's
 * own order stays where its hops are direct links as fast as any, and in islands of more than
 * MOST_SEARCHED members. */
#include "sim/coll/internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SEARCHED 16
#define MOST_RINGS    16
#define MOST_TRIES    200000

static int by_rate(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* What every pair of an island gets, and how many rings its direct links may carry. */
typedef struct pairs {
    uint32_t n;
    int64_t rate[MOST_SEARCHED][MOST_SEARCHED]; /* 0: unreachable */
    uint32_t left[MOST_SEARCHED][MOST_SEARCHED];
    uint32_t path[MOST_SEARCHED], best[MOST_RINGS][MOST_SEARCHED], found[MOST_RINGS][MOST_SEARCHED];
    uint32_t n_best, n_found, most; /* rings; no more than `most` are possible */
    uint32_t tries;
    bool closed; /* rings over direct links were found */
} pairs;

static int64_t rate_of(ds_coll_builder *b, uint32_t from, uint32_t to, bool *direct) {
    ds_error none;
    const ds_route *route;
    const uint32_t *devices = b->request->devices;
    *direct = false;
    if (ds_topo_route(b->topo, devices[from], devices[to], &route, &none) != DS_OK) return 0;
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < route->n_links; i++) {
        double capacity = (double)ds_topo_link_at(b->topo, route->links[i])->bytes_per_s;
        double whole = capacity * 4294967296.0 / (double)route->share_q32[i];
        int64_t rate = whole < 0x1p63 ? (int64_t)whole : INT64_MAX; /* rates are compared alone */
        if (rate < least) least = rate;
    }
    *direct = route->hops == 1;
    return least;
}

/* Fills the rates; true if the group's order is as good as any. */
static bool look_at_pairs(ds_coll_builder *b, const uint32_t *member, pairs *p) {
    int64_t fastest = 0, slowest_direct = INT64_MAX;
    bool kept = true, direct[MOST_SEARCHED][MOST_SEARCHED] = {{false}};
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t j = 0; j < p->n; j++) {
            if (i == j) continue;
            int64_t rate = rate_of(b, member[i], member[j], &direct[i][j]);
            p->rate[i][j] = rate;
            if (rate > fastest) fastest = rate;
            if (direct[i][j] && rate < slowest_direct) slowest_direct = rate;
        }
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t next = (i + 1) % p->n;
        kept = kept && p->rate[i][next] == fastest;
        uint32_t ways = 0;
        for (uint32_t j = 0; j < p->n; j++) {
            int64_t fit = direct[i][j] && slowest_direct ? p->rate[i][j] / slowest_direct : 0;
            p->left[i][j] = fit < MOST_RINGS ? (uint32_t)fit : MOST_RINGS;
            ways += p->left[i][j];
        }
        if (ways < p->most) p->most = ways;
    }
    return kept;
}

static void search_rings(pairs *p, uint32_t at);

/* A ring is closed: keeps it, and looks for one more in what is left. */
static void close_ring(pairs *p) {
    memcpy(p->found[p->n_found++], p->path, p->n * sizeof *p->path);
    if (p->n_found > p->n_best) {
        p->n_best = p->n_found;
        memcpy(p->best, p->found, sizeof p->best);
    }
    if (p->n_best < p->most) {
        uint32_t path[MOST_SEARCHED];
        memcpy(path, p->path, sizeof path);
        search_rings(p, 1);
        memcpy(p->path, path, sizeof path);
    }
    p->n_found--;
}

static bool on_path(const pairs *p, uint32_t at, uint32_t v) {
    for (uint32_t i = 0; i < at; i++)
        if (p->path[i] == v) return true;
    return false;
}

/* All directed cycles over what is left, depth first; path[0] is member 0. */
static void search_rings(pairs *p, uint32_t at) {
    uint32_t from = p->path[at - 1];
    if (at == p->n) {
        if (!p->left[from][0]) return;
        p->left[from][0]--;
        close_ring(p);
        p->left[from][0]++;
        return;
    }
    for (uint32_t v = 1; v < p->n && p->n_best < p->most; v++) {
        if (!p->left[from][v] || on_path(p, at, v)) continue;
        if (++p->tries > MOST_TRIES) return;
        p->left[from][v]--;
        p->path[at] = v;
        search_rings(p, at + 1);
        p->left[from][v]++;
    }
}

/* One cycle, over hops of at least `rate`. */
static bool search_widest(pairs *p, uint32_t at, int64_t rate) {
    uint32_t from = p->path[at - 1];
    if (at == p->n) return p->rate[from][0] >= rate;
    for (uint32_t v = 1; v < p->n; v++) {
        if (p->rate[from][v] < rate || on_path(p, at, v)) continue;
        if (++p->tries > MOST_TRIES) return false;
        p->path[at] = v;
        if (search_widest(p, at + 1, rate)) return true;
    }
    return false;
}

static void search_one(pairs *p) {
    int64_t rates[MOST_SEARCHED * MOST_SEARCHED];
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t j = 0; j < p->n; j++)
            if (i != j) rates[n++] = p->rate[i][j];
    qsort(rates, n, sizeof *rates, by_rate);
    for (uint32_t i = 0; i < n; i++) {
        if (i && rates[i] == rates[i - 1]) continue;
        p->tries = 0;
        if (!search_widest(p, 1, rates[i])) continue;
        memcpy(p->best[0], p->path, p->n * sizeof *p->path);
        p->n_best = 1;
        return;
    }
}

/* A path over direct links through all: the first one, or the first with a hop of a single link. */
static bool search_chain(pairs *p, uint32_t at, bool narrow, uint32_t *found) {
    if (at == p->n) {
        if (narrow || !found[p->n]) memcpy(found, p->path, p->n * sizeof *found);
        found[p->n] = 1;
        return narrow;
    }
    uint32_t from = p->path[at - 1];
    for (uint32_t v = 0; v < p->n; v++) {
        if (!p->left[from][v] || on_path(p, at, v)) continue;
        if (++p->tries > MOST_TRIES) return true;
        p->path[at] = v;
        if (search_chain(p, at + 1, narrow || p->left[from][v] == 1, found)) return true;
    }
    return false;
}

/* Indices of the members along a chain, or NULL. */
static uint32_t *find_chain(ds_coll_builder *b, pairs *p) {
    uint32_t *found = DS_NEW_N(b->arena, uint32_t, p->n + 1); /* the last: is there one? */
    p->tries = 0;
    for (uint32_t start = 0; start < p->n; start++) {
        p->path[0] = start;
        if (search_chain(p, 1, false, found)) break;
    }
    return found[p->n] ? found : NULL;
}

/* Orders of the members of an island; 0: as they are. */
static uint32_t find_rings(ds_coll_builder *b, const uint32_t *member, uint32_t n, pairs *p) {
    bool peers = false;
    for (uint32_t i = 0; i < n; i++)
        peers = peers || ds_topo_has_peer_links(b->topo, b->request->devices[member[i]]);
    if (!peers || n < 3 || n > MOST_SEARCHED) return 0;
    *p = (pairs){.n = n, .most = MOST_RINGS};
    if (look_at_pairs(b, member, p)) return 0;
    if (p->most) search_rings(p, 1);
    p->closed = p->n_best > 0;
    if (!p->n_best) search_one(p);
    return p->n_best;
}

static void rings_of_one_island(ds_coll_builder *b, ds_layout *l) {
    pairs p;
    uint32_t n = l->count[0], found = find_rings(b, l->member[0], n, &p);
    if (found && !p.closed) l->chain = find_chain(b, &p);
    for (uint32_t i = 0; l->chain && i < n; i++) l->chain[i] = l->member[0][l->chain[i]];
    l->n_rings = found ? found : 1;
    l->rings = DS_NEW_N(b->arena, uint32_t *, l->n_rings);
    for (uint32_t r = 0; r < l->n_rings; r++) {
        l->rings[r] = DS_NEW_N(b->arena, uint32_t, n);
        for (uint32_t i = 0; i < n; i++) l->rings[r][i] = l->member[0][found ? p.best[r][i] : i];
    }
}

/* Ring r through all islands, every second one backwards. */
static void ring_through(const ds_layout *l, uint32_t r, uint32_t *ring) {
    uint32_t at = r, n = 0;
    for (uint32_t m = 0; m < l->n_islands; m++) {
        uint32_t c = l->count[m];
        at %= c;
        for (uint32_t i = 0; i < c; i++) {
            ring[n++] = l->member[m][at];
            if (i + 1 < c) at = (m % 2 ? at + c - 1 : at + 1) % c;
        }
    }
}

static void rings_between(ds_coll_builder *b, ds_layout *l) {
    for (uint32_t m = 0; m < l->n_islands && l->most > 1; m++) {
        pairs p;
        if (!find_rings(b, l->member[m], l->count[m], &p)) continue;
        uint32_t *order = DS_NEW_N(b->arena, uint32_t, l->count[m]);
        for (uint32_t i = 0; i < l->count[m]; i++) order[i] = l->member[m][p.best[0][i]];
        l->member[m] = order;
    }
    l->n_rings = l->most;
    l->rings = DS_NEW_N(b->arena, uint32_t *, l->n_rings);
    for (uint32_t r = 0; r < l->n_rings; r++) {
        l->rings[r] = DS_NEW_N(b->arena, uint32_t, b->request->n);
        ring_through(l, r, l->rings[r]);
    }
}

/* Islands in the order of their first members, members in that of the group. */
static void find_islands(ds_coll_builder *b, ds_layout *l) {
    const ds_coll_request *q = b->request;
    uint32_t *of = DS_NEW_N(b->arena, uint32_t, q->n);
    ds_map index;
    ds_map_init(&index);
    for (uint32_t i = 0; i < q->n; i++) {
        uint64_t key = (uint64_t)ds_topo_island(b->topo, q->devices[i]) + 1;
        const uint64_t *found = ds_map_find(&index, key);
        of[i] = found ? (uint32_t)*found : index.n;
        if (!found) ds_map_put(&index, key, of[i]);
    }
    l->n_islands = index.n;
    ds_map_deinit(&index);
    uint32_t **member = DS_NEW_N(b->arena, uint32_t *, l->n_islands);
    l->count = DS_NEW_N(b->arena, uint32_t, l->n_islands);
    for (uint32_t i = 0; i < q->n; i++) l->count[of[i]]++;
    l->even = true;
    for (uint32_t m = 1; m < l->n_islands; m++) l->even = l->even && l->count[m] == l->count[0];
    for (uint32_t m = 0; m < l->n_islands; m++) {
        member[m] = DS_NEW_N(b->arena, uint32_t, l->count[m]);
        if (l->count[m] > l->most) l->most = l->count[m];
        l->count[m] = 0;
    }
    for (uint32_t i = 0; i < q->n; i++) member[of[i]][l->count[of[i]]++] = i;
    l->member = (const uint32_t **)member;
}

const ds_layout *ds_coll__layout(ds_coll_builder *b) {
    if (b->has_layout) return &b->layout;
    b->has_layout = true;
    find_islands(b, &b->layout);
    if (b->layout.n_islands == 1)
        rings_of_one_island(b, &b->layout);
    else
        rings_between(b, &b->layout);
    return &b->layout;
}
