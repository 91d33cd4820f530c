/* Ring, trees, direct: what every member sends to whom. */
#include "ir/base/units.h"
#include "sim/coll/internal.h"

/* ---- rings ---- */

/* Once or twice around every ring, each with its part of all shards. */
static ds_status ring_passes(ds_coll_builder *b, bool reduce, bool gather) {
    const ds_layout *l = ds_coll__layout(b);
    const ds_coll_request *q = b->request;
    int64_t *shard = DS_NEW_N(b->arena, int64_t, q->n);
    for (uint32_t r = 0; r < l->n_rings; r++) {
        for (uint32_t i = 0; i < q->n; i++)
            shard[i] = ds_coll__part(ds_coll__shard(q, l->rings[r][i]), r, l->n_rings);
        ds_team team = {l->rings[r], q->n, shard};
        DS_TRY(ds_coll__ring(b, &team, reduce, gather));
    }
    ds_coll__end_phase(b, (int64_t)(q->n - 1) * (reduce + gather), 1);
    return DS_OK;
}

/* Pipelined chains from the root around the rings (broadcast) or towards it (reduce). */
static ds_status chains(ds_coll_builder *b, bool up) {
    const ds_layout *l = ds_coll__layout(b);
    const ds_coll_request *q = b->request;
    uint32_t *member = DS_NEW_N(b->arena, uint32_t, q->n);
    uint32_t *parent = DS_NEW_N(b->arena, uint32_t, q->n);
    for (uint32_t i = 0; i < q->n; i++) parent[i] = i ? i - 1 : q->n;
    for (uint32_t r = 0; r < l->n_rings; r++) {
        uint32_t root = 0;
        while (l->rings[r][root] != q->root) root++;
        for (uint32_t i = 0; i < q->n; i++) member[i] = l->rings[r][(root + i) % q->n];
        ds_tree chain = {.member = member, .parent = parent, .n = q->n, .depth = q->n - 1};
        chain.bytes = ds_coll__part(q->bytes, r, l->n_rings);
        chain.up = up;
        chain.down = !up;
        DS_TRY(ds_coll__tree(b, &chain));
    }
    ds_coll__end_phase(b, q->n - 1, 1);
    return DS_OK;
}

ds_status ds_coll__ring_algorithm(ds_coll_builder *b) {
    switch (b->request->op) {
    case DS_OP_ALL_REDUCE:
        return ring_passes(b, true, true);
    case DS_OP_ALL_GATHER:
        return ring_passes(b, false, true);
    case DS_OP_REDUCE_SCATTER:
        return ring_passes(b, true, false);
    default:
        return chains(b, b->request->op == DS_OP_REDUCE);
    }
}

/* ---- trees ---- */

static uint32_t ceil_log2(uint32_t n) {
    uint32_t log = 0;
    while (((uint64_t)1 << log) < n) log++;
    return log;
}

/* Edges from the root to the deepest member of that tree (tree_parent). */
static uint32_t tree_depth(uint32_t n) {
    uint32_t log = 0;
    while (n > 2 && ((uint64_t)2 << log) <= n - 1) log++;
    return log ? log : n > 1;
}

/* Parent of `i` in the in-order binary tree over 1 … n−1, or n for the root; 0 hangs below the
 * root. Odd members are leaves; the lowest set bit tells the height, and moving it up one place
 * leads to the parent. A parent beyond the end is replaced by the nearest ancestor inside. */
static uint32_t tree_parent(uint32_t i, uint32_t n) {
    if (i == 0) { /* the root is the highest power of two below n */
        uint32_t top = 1;
        while (top * 2 < n) top *= 2;
        return n > 1 ? top : n;
    }
    uint32_t bit = i & (~i + 1);
    uint32_t up = (i ^ bit) | (bit << 1);
    if (up >= n) up = i ^ bit;
    return up ? up : n; /* 0 is not inside the tree: i is its root */
}

/* One of the two trees between islands, and chains inside: the heads are members number r, the
 * others hang below them in a row. Adds `half` of a rail's bytes. */
static ds_status tree_of_rail(ds_coll_builder *b, uint32_t r, uint32_t t, int64_t bytes) {
    const ds_layout *l = &b->layout;
    uint32_t n = b->request->n, at = l->n_islands;
    uint32_t *member = DS_NEW_N(b->arena, uint32_t, n), *parent = DS_NEW_N(b->arena, uint32_t, n);
    ds_chains chains = {member + at, b->turn ? b->request->period / l->most : 0, l->most};
    for (uint32_t m = 0; m < l->n_islands; m++) {
        uint32_t island = (m + t) % l->n_islands, c = l->count[island];
        uint32_t up = tree_parent(m, l->n_islands);
        member[m] = l->member[island][r % c];
        parent[m] = up == l->n_islands ? n : up;
        for (uint32_t i = 1; i < c && !b->turn; i++) {
            member[at] = l->member[island][(r + i) % c];
            parent[at] = i > 1 ? at - 1 : m;
            at++;
        }
    }
    for (uint32_t i = 0; i < chains.n_chains * l->most; i++)
        member[at + i] = l->member[i / l->most][(r + i) % l->most];
    ds_tree tree = {.member = member, .parent = parent, .n = n, .bytes = bytes};
    if (b->turn) {
        tree.n = l->n_islands;
        tree.chains = &chains;
        for (uint32_t m = 0; m < tree.n; m++)
            if (parent[m] == n) parent[m] = tree.n;
    }
    tree.depth = tree_depth(l->n_islands) + l->most - 1;
    tree.up = tree.down = true;
    return ds_coll__tree(b, &tree);
}

static ds_status trees_of_rails(ds_coll_builder *b) {
    const ds_layout *l = &b->layout;
    for (uint32_t r = 0; r < l->most; r++)
        for (uint32_t t = 0; t < 2; t++) {
            int64_t rail = ds_coll__part(b->request->bytes, r, l->most);
            DS_TRY(tree_of_rail(b, r, t, t ? rail - rail / 2 : rail / 2));
        }
    return DS_OK;
}

/* Does the request's turn take islands to islands, member by member? Then chains inside a period of
 * them tell of all, unless trees between islands load the same links. */
static bool islands_repeat(const ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    const ds_layout *l = &b->layout;
    bool repeat = q->turn && !b->messages && l->even && q->period % l->most == 0;
    for (uint32_t i = 0; i < q->n && repeat; i++) repeat = l->member[i / l->most][i % l->most] == i;
    return repeat;
}

/* Up and down a chain of direct links. */
static ds_status chain_tree(ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    uint32_t *parent = DS_NEW_N(b->arena, uint32_t, q->n);
    for (uint32_t i = 0; i < q->n; i++) parent[i] = i ? i - 1 : q->n;
    ds_tree chain = {.member = b->layout.chain, .parent = parent, .n = q->n, .depth = q->n - 1};
    chain.bytes = q->bytes;
    chain.up = chain.down = true;
    DS_TRY(ds_coll__tree(b, &chain));
    ds_coll__end_phase(b, 2 * (int64_t)(q->n - 1), 1);
    return DS_OK;
}

/* Double binary trees: tree 1 over the islands, tree 2 over the islands shifted by one, each with
 * half of the bytes; as many pairs as an island has members (rails). In one island, and where each
 * has one member, the members are the trees' nodes. */
static ds_status double_trees(ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    const ds_layout *l = ds_coll__layout(b);
    if (l->chain) return chain_tree(b);
    if (l->n_islands == 1 || l->most == 1) {
        uint32_t *member = DS_NEW_N(b->arena, uint32_t, q->n);
        uint32_t *parent = DS_NEW_N(b->arena, uint32_t, q->n);
        uint32_t depth = tree_depth(q->n);
        for (uint32_t t = 0; t < 2; t++) {
            for (uint32_t i = 0; i < q->n; i++) {
                member[i] = (i + t) % q->n;
                parent[i] = tree_parent(i, q->n);
            }
            int64_t half = t ? q->bytes - q->bytes / 2 : q->bytes / 2;
            ds_tree tree = {.member = member,
                            .parent = parent,
                            .n = q->n,
                            .depth = depth,
                            .bytes = half,
                            .up = true,
                            .down = true};
            DS_TRY(ds_coll__tree(b, &tree));
        }
        ds_coll__end_phase(b, 2 * (int64_t)depth, 1);
        return DS_OK;
    }
    uint64_t n_messages = b->n_messages;
    b->turn = islands_repeat(b) ? q->turn : NULL;
    DS_TRY(trees_of_rails(b));
    if (b->turn && ds_coll__clash(b)) {
        ds_coll__drop_phase(b);
        b->n_messages = n_messages;
        DS_TRY(trees_of_rails(b));
    }
    ds_coll__end_phase(b, 2 * (int64_t)(tree_depth(l->n_islands) + l->most - 1), 1);
    return DS_OK;
}

/* One binary tree rooted at `root`, all bytes on each edge (pipelined). */
static ds_status rooted_tree(ds_coll_builder *b, bool up) {
    const ds_coll_request *q = b->request;
    uint32_t *member = DS_NEW_N(b->arena, uint32_t, q->n);
    uint32_t *parent = DS_NEW_N(b->arena, uint32_t, q->n);
    for (uint32_t i = 0; i < q->n; i++) { /* heap order: parent of i is (i − 1) / 2 */
        member[i] = (q->root + i) % q->n;
        parent[i] = i ? (i - 1) / 2 : q->n;
    }
    uint32_t depth = ceil_log2(q->n + 1) - 1; /* edges from the root to the deepest leaf */
    ds_tree tree = {.member = member,
                    .parent = parent,
                    .n = q->n,
                    .depth = depth,
                    .bytes = q->bytes,
                    .up = up,
                    .down = !up};
    DS_TRY(ds_coll__tree(b, &tree));
    ds_coll__end_phase(b, depth, 1);
    return DS_OK;
}

/* Binomial tree: in step t, those 2^t behind a multiple of 2^(t+1) members from the root send all
 * that they have to it (gather); backwards, the root's halves go out (scatter). */
static ds_status binomial(ds_coll_builder *b, bool gather) {
    const ds_coll_request *q = b->request;
    int64_t *sum = DS_NEW_N(b->arena, int64_t, q->n + 1); /* of the shards before, from the root */
    for (uint32_t i = 0; i < q->n; i++)
        sum[i + 1] = sum[i] + ds_coll__shard(q, (q->root + i) % q->n);
    uint32_t log = ceil_log2(q->n);
    for (uint32_t s = 0; s < log; s++) {
        uint32_t width = (uint32_t)1 << (gather ? s : log - 1 - s);
        for (uint64_t i = width; i < q->n; i += 2 * (uint64_t)width) {
            uint64_t end = i + width < q->n ? i + width : q->n;
            uint32_t far = (uint32_t)((q->root + i) % q->n);
            uint32_t near = (uint32_t)((q->root + i - width) % q->n);
            int64_t bytes = sum[end] - sum[i];
            DS_TRY(ds_coll__post(b, gather ? far : near, gather ? near : far, bytes));
        }
        ds_coll__end_phase(b, 1, 1);
    }
    return DS_OK;
}

ds_status ds_coll__tree_algorithm(ds_coll_builder *b) {
    switch (b->request->op) {
    case DS_OP_ALL_REDUCE:
        return double_trees(b);
    case DS_OP_GATHER:
    case DS_OP_SCATTER:
        return binomial(b, b->request->op == DS_OP_GATHER);
    default:
        return rooted_tree(b, b->request->op == DS_OP_REDUCE);
    }
}

/* ---- direct ---- */

/* Every member sends to every other; bytes by what the receiver or the sender owns. Where a turn
 * takes members to members with equal shards, what those of one period send tells all. */
static ds_status all_pairs(ds_coll_builder *b, bool senders_shard) {
    const ds_coll_request *q = b->request;
    b->turns = q->turn && !b->messages && !q->chunks && !q->shard_bytes && q->bytes % q->n == 0;
    b->turn = b->turns ? q->turn : NULL;
    for (uint32_t i = 0; i < (b->turns ? q->period : q->n); i++)
        for (uint32_t k = 1; k < q->n; k++) {
            uint32_t j = (i + k) % q->n;
            DS_TRY(ds_coll__post(b, i, j, ds_coll__shard(q, senders_shard ? i : j)));
        }
    ds_coll__end_phase(b, 1, q->n - 1);
    return DS_OK;
}

/* All shards, or all bytes, between the root and each other member. */
static ds_status star(ds_coll_builder *b, bool towards_root, bool shards) {
    const ds_coll_request *q = b->request;
    for (uint32_t i = 0; i < q->n; i++) {
        if (i == q->root) continue;
        int64_t bytes = shards ? ds_coll__shard(q, i) : q->bytes;
        DS_TRY(ds_coll__post(b, towards_root ? i : q->root, towards_root ? q->root : i, bytes));
    }
    ds_coll__end_phase(b, 1, shards ? 1 : q->n - 1);
    return DS_OK;
}

static ds_status shifted(ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    for (uint32_t i = 0; i < q->n; i++) {
        uint32_t to = (uint32_t)((i + (uint64_t)ds_floormod(q->shift, q->n)) % q->n);
        if (to != i) DS_TRY(ds_coll__post(b, i, to, q->bytes));
    }
    ds_coll__end_phase(b, 1, 1);
    return DS_OK;
}

/* A message from the one device to its host, or back. */
static ds_status host_hop(ds_coll_builder *b, bool back) {
    const ds_coll_request *q = b->request;
    const ds_route *route;
    uint32_t device = ds_topo_device_vertex(b->topo, q->devices[0]);
    uint32_t from = back ? q->host : device, to = back ? device : q->host;
    DS_TRY(ds_coll__at_request(b, ds_topo_route_vertices(b->topo, from, to, &route, b->err)));
    DS_TRY(ds_coll__load(b, route, q->bytes, false));
    ds_coll__end_phase(b, 1, 1);
    return DS_OK;
}

ds_status ds_coll__direct_algorithm(ds_coll_builder *b) {
    ds_opcode op = b->request->op;
    switch (op) {
    case DS_OP_ALL_REDUCE:
        DS_TRY(all_pairs(b, false));
        return all_pairs(b, true);
    case DS_OP_ALL_GATHER:
        return all_pairs(b, true);
    case DS_OP_REDUCE_SCATTER:
    case DS_OP_ALL_TO_ALL:
        return all_pairs(b, false);
    case DS_OP_BROADCAST:
    case DS_OP_REDUCE:
        return star(b, op == DS_OP_REDUCE, false);
    case DS_OP_SCATTER:
    case DS_OP_GATHER:
        return star(b, op == DS_OP_GATHER, true);
    case DS_OP_PERMUTE:
        return shifted(b);
    case DS_OP_OFFLOAD:
    case DS_OP_RELOAD:
        return host_hop(b, op == DS_OP_RELOAD);
    default:
        DS_TRY(ds_coll__post(b, 0, 1, b->request->bytes));
        ds_coll__end_phase(b, 1, 1);
        return DS_OK;
    }
}
