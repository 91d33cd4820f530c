/* The nest of loops: components, fusion, shifts (steps 1 to 6 of temporal.h). */
#include "ir/temporal/internal.h"

#include <stdlib.h>

#define NOWHERE UINT32_MAX

typedef struct ids {
    uint32_t *at, n, cap;
} ids;

typedef struct nests {
    ds_temporal_nest *at;
    uint32_t n, cap;
} nests;

/* A loop in the making, or one statement that needs no loop. */
typedef struct cluster {
    bool loop;
    uint32_t dim;
    int direction;
    ids nodes;
    ids after; /* frees that come after the loop */
} cluster;

/* The statements and frees inside of some loops, and the edges that these loops do not carry. */
typedef struct level {
    const ds_temporal__graph *graph;
    const ds_temporal_program *program;
    ds_arena *arena;
    ids nodes;
    ds_temporal__edges edges;
    uint32_t used; /* dims of the loops around */

    uint32_t *component; /* [2n]: of statements */
    ids *members;        /* [n_components], in topological order */
    uint32_t n_components;
    bool *cyclic;    /* [n_components] */
    int *turned;     /* [statements x dims]: direction in which parts of a statement recur */
    uint32_t *place; /* [2n]: cluster of a statement; NOWHERE: none yet */
    uint32_t *local; /* [2n]: scratch, NOWHERE outside of the set at hand */
    struct {
        cluster *at;
        uint32_t n, cap;
    } clusters;
    ids before; /* frees that wait for nothing at this level */
} level;

static bool build(level *l, nests *out);

static bool is_statement(const level *l, uint32_t node) {
    return node < l->program->n;
}

static int64_t extent(const level *l, uint32_t dim) {
    return l->program->dims[dim].hi - l->program->dims[dim].lo;
}

/* ---- components ---- */

typedef struct tarjan {
    level *l;
    uint32_t *first, *to; /* edges by source */
    uint32_t *index, *low, *at, *stack, *path;
    uint32_t n_stack, n_path, next;
} tarjan;

static uint32_t *filled(ds_arena *arena, uint32_t n, uint32_t value) {
    uint32_t *at = DS_NEW_N(arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) at[i] = value;
    return at;
}

/* Without fusion, is a loop shared because a store would pad the value? A reader without the
 * value's outermost loop shares none. */
static bool is_tied(const level *l, const ds_temporal__edge *edge) {
    const ds_temporal_statement *s = l->program->statements;
    uint32_t from = s[edge->from].dims, to = s[edge->to].dims;
    return l->program->apart && s[edge->from].unstored && !(from & ~to & l->program->outer) &&
           from & to & ~l->used;
}

/* An edge that ties goes both ways: one component. */
static void sort_edges(tarjan *t) {
    level *l = t->l;
    uint32_t n = l->program->n;
    t->first = DS_NEW_N(l->arena, uint32_t, n + 2);
    t->to = DS_NEW_N(l->arena, uint32_t, 2 * l->edges.n + 1);
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (!is_statement(l, edge->to)) continue;
        t->first[edge->from + 1]++;
        t->first[edge->to + 1] += is_tied(l, edge);
    }
    for (uint32_t i = 0; i < n; i++) t->first[i + 1] += t->first[i];
    uint32_t *fill = DS_NEW_N(l->arena, uint32_t, n + 1);
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (!is_statement(l, edge->to)) continue;
        t->to[t->first[edge->from] + fill[edge->from]++] = edge->to;
        if (is_tied(l, edge)) t->to[t->first[edge->to] + fill[edge->to]++] = edge->from;
    }
}

static void open_node(tarjan *t, uint32_t node) {
    t->index[node] = t->low[node] = t->next++;
    t->at[node] = t->first[node];
    t->stack[t->n_stack++] = node;
    t->path[t->n_path++] = node;
}

static void close_node(tarjan *t, uint32_t node) {
    t->n_path--;
    if (t->n_path > 0) {
        uint32_t parent = t->path[t->n_path - 1];
        if (t->low[node] < t->low[parent]) t->low[parent] = t->low[node];
    }
    if (t->low[node] != t->index[node]) return;
    uint32_t member;
    do {
        member = t->stack[--t->n_stack];
        t->l->component[member] = t->l->n_components;
    } while (member != node);
    t->l->n_components++;
}

static void search_from(tarjan *t, uint32_t root) {
    open_node(t, root);
    while (t->n_path > 0) {
        uint32_t node = t->path[t->n_path - 1];
        if (t->at[node] == t->first[node + 1]) {
            close_node(t, node);
            continue;
        }
        uint32_t to = t->to[t->at[node]++];
        if (t->index[to] == NOWHERE)
            open_node(t, to);
        else if (t->l->component[to] == NOWHERE && t->index[to] < t->low[node])
            t->low[node] = t->index[to];
    }
}

/* Renames components to a topological order in which the earliest in the text comes first. */
static void order_components(level *l) {
    uint32_t n = l->n_components;
    uint32_t *waits = DS_NEW_N(l->arena, uint32_t, n + 1);
    uint32_t *key = filled(l->arena, n, NOWHERE), *name = filled(l->arena, n, NOWHERE);
    for (uint32_t i = 0; i < l->nodes.n; i++) {
        uint32_t node = l->nodes.at[i];
        if (is_statement(l, node) && node < key[l->component[node]]) key[l->component[node]] = node;
    }
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (is_statement(l, edge->to) && l->component[edge->from] != l->component[edge->to])
            waits[l->component[edge->to]]++;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = NOWHERE;
        for (uint32_t c = 0; c < n; c++)
            if (name[c] == NOWHERE && waits[c] == 0 && (best == NOWHERE || key[c] < key[best]))
                best = c;
        name[best] = k;
        for (uint32_t e = 0; e < l->edges.n; e++) {
            const ds_temporal__edge *edge = &l->edges.at[e];
            if (is_statement(l, edge->to) && l->component[edge->from] == best &&
                l->component[edge->to] != best)
                waits[l->component[edge->to]]--;
        }
    }
    for (uint32_t i = 0; i < l->nodes.n; i++)
        if (is_statement(l, l->nodes.at[i]))
            l->component[l->nodes.at[i]] = name[l->component[l->nodes.at[i]]];
}

static void find_components(level *l) {
    uint32_t n = l->program->n;
    tarjan t = {.l = l,
                .index = filled(l->arena, n, NOWHERE),
                .low = filled(l->arena, n, 0),
                .at = filled(l->arena, n, 0),
                .stack = filled(l->arena, n, 0),
                .path = filled(l->arena, n, 0)};
    l->component = filled(l->arena, 2 * n, NOWHERE);
    sort_edges(&t);
    for (uint32_t i = 0; i < l->nodes.n; i++)
        if (is_statement(l, l->nodes.at[i]) && t.index[l->nodes.at[i]] == NOWHERE)
            search_from(&t, l->nodes.at[i]);
    order_components(l);
    l->members = DS_NEW_N(l->arena, ids, l->n_components + 1);
    l->cyclic = DS_NEW_N(l->arena, bool, l->n_components + 1);
    for (uint32_t i = 0; i < l->nodes.n; i++) {
        uint32_t node = l->nodes.at[i];
        if (is_statement(l, node)) DS_PUSH(l->arena, &l->members[l->component[node]], node);
    }
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (is_statement(l, edge->to) && l->component[edge->from] == l->component[edge->to])
            l->cyclic[l->component[edge->to]] = true;
    }
}

/* ---- loops that are legal ---- */

static void set_local(level *l, const ids *nodes, uint32_t from) {
    for (uint32_t i = 0; i < nodes->n; i++) l->local[nodes->at[i]] = from + i;
}

static void clear_local(level *l, const ids *nodes) {
    for (uint32_t i = 0; i < nodes->n; i++) l->local[nodes->at[i]] = NOWHERE;
}

/* A read that waits for the whole dim, or nearly so, gains nothing from one loop. */
static bool splits(const level *l, uint32_t dim, int64_t lag) {
    return lag > 0 && lag >= extent(l, dim) - 1;
}

/* Can the statements of a and b share a loop over dim? */
static bool legal(level *l, const ids *a, const ids *b, uint32_t dim, int direction) {
    set_local(l, a, 0);
    set_local(l, b, a->n);
    ds_temporal__arcs arcs = {0};
    bool fits = true;
    for (uint32_t e = 0; e < l->edges.n && fits; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        uint32_t from = l->local[edge->from], to = l->local[edge->to];
        if (from == NOWHERE || to == NOWHERE || !is_statement(l, edge->to)) continue;
        int64_t lag = ds_temporal__lag(l->program, edge, dim, direction);
        if (l->component[edge->from] != l->component[edge->to] && splits(l, dim, lag)) fits = false;
        ds_temporal__arc arc = {from, to, lag};
        DS_HPUSH(&arcs, arc);
    }
    if (fits) {
        int64_t *c = ds_xcalloc(a->n + b->n + 1, sizeof *c);
        fits = ds_temporal__earliest(&arcs, a->n + b->n, c);
        free(c);
    }
    free(arcs.at);
    clear_local(l, a);
    clear_local(l, b);
    return fits;
}

static uint32_t dims_left(const level *l, const ids *nodes) {
    uint32_t dims = 0;
    for (uint32_t i = 0; i < nodes->n; i++) dims |= ds_temporal__dims_of(l->program, nodes->at[i]);
    return dims & ~l->used;
}

/* Parts of one statement that recur do so in one direction. */
static bool turns_alike(level *l, const ids *nodes, uint32_t dim, int direction, bool keep) {
    const ds_temporal__parts *parts = l->graph->parts;
    for (uint32_t i = 0; parts && i < nodes->n; i++) {
        int *turned = &l->turned[parts->origin[nodes->at[i]] * DS_TEMPORAL_DIMS + dim];
        if (*turned == -direction) return false;
        if (keep) *turned = direction;
    }
    return true;
}

/* ---- fusion ---- */

static void put_in(level *l, uint32_t k, const ids *nodes) {
    for (uint32_t i = 0; i < nodes->n; i++) {
        DS_PUSH(l->arena, &l->clusters.at[k].nodes, nodes->at[i]);
        l->place[nodes->at[i]] = k;
    }
}

static bool join_cluster(level *l, const ids *nodes, uint32_t k, bool cyclic) {
    cluster *c = &l->clusters.at[k];
    if (!c->loop || !(dims_left(l, nodes) >> c->dim & 1)) return false;
    int direction = c->direction;
    if (!legal(l, &c->nodes, nodes, c->dim, direction)) {
        direction = -direction;
        if (l->graph->parts || !legal(l, &c->nodes, nodes, c->dim, direction)) return false;
    }
    if (cyclic && !turns_alike(l, nodes, c->dim, direction, false)) return false;
    if (cyclic) turns_alike(l, nodes, c->dim, direction, true);
    c->direction = direction;
    put_in(l, k, nodes);
    return true;
}

/* A loop or place of its own; false if the component has a cycle that no loop carries. */
static bool start_cluster(level *l, const ids *nodes, bool cyclic) {
    static const ids none;
    uint32_t dims = dims_left(l, nodes);
    cluster c = {.loop = dims != 0};
    bool fits = !c.loop && !cyclic;
    for (uint32_t i = 0; i < 2 * l->program->n_dims && !fits; i++) {
        uint32_t d = i % l->program->n_dims;
        bool wanted = (l->program->outer >> d & 1) == (i < l->program->n_dims);
        for (c.direction = 1; wanted && (dims >> d & 1) && c.direction >= -1; c.direction -= 2) {
            c.dim = d;
            fits = legal(l, nodes, &none, d, c.direction);
            if (fits && cyclic && !turns_alike(l, nodes, d, c.direction, false)) {
                *l->graph->both_ways = true;
                fits = false;
            }
            if (fits) break;
        }
    }
    if (!fits) return false;
    if (cyclic && c.loop) turns_alike(l, nodes, c.dim, c.direction, true);
    DS_PUSH(l->arena, &l->clusters, c);
    put_in(l, l->clusters.n - 1, nodes);
    return true;
}

/* The last cluster that the nodes wait for; NOWHERE: none. */
static uint32_t waits_for(const level *l, uint32_t component) {
    uint32_t last = NOWHERE;
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (!is_statement(l, edge->to) || l->component[edge->to] != component) continue;
        uint32_t k = l->place[edge->from];
        if (k != NOWHERE && (last == NOWHERE || k > last)) last = k;
    }
    return last;
}

static bool fuse(level *l) {
    for (uint32_t c = 0; c < l->n_components; c++) {
        const ids *nodes = &l->members[c];
        uint32_t first = waits_for(l, c);
        bool joined = false, fuses = !l->program->apart;
        for (uint32_t k = first == NOWHERE ? 0 : first; k < l->clusters.n && fuses && !joined; k++)
            joined = join_cluster(l, nodes, k, l->cyclic[c]);
        if (!joined && !start_cluster(l, nodes, l->cyclic[c])) return false;
    }
    return true;
}

/* ---- sinking: what only a later loop reads moves there, unless more bytes would wait ---- */

static int64_t bytes_left(const level *l, uint32_t statement) {
    const ds_temporal_statement *s = &l->program->statements[statement];
    int64_t bytes = s->bytes > 0 ? s->bytes : 0;
    for (uint32_t d = 0; d < l->program->n_dims; d++)
        if ((s->dims & ~l->used) >> d & 1) {
            int64_t size = extent(l, d);
            if (size > 0 && bytes > (INT64_C(1) << 45) / size) return INT64_C(1) << 45;
            bytes *= size;
        }
    return bytes;
}

/* Do readers other than `reader` keep the value until cluster k or longer? */
static bool lives_until(const level *l, uint32_t value, uint32_t reader, uint32_t k) {
    if (l->program->statements[value].kept) return true;
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (edge->from == value && is_statement(l, edge->to) && edge->to != reader &&
            l->place[edge->to] >= k)
            return true;
    }
    return false;
}

/* The cluster of the earliest reader of a value that may move: made in a loop, in no cycle,
 * freed. */
static uint32_t earliest_reader(const level *l, uint32_t node, uint32_t but) {
    uint32_t k = NOWHERE;
    if (l->program->statements[node].kept || l->cyclic[l->component[node]] ||
        !l->clusters.at[l->place[node]].loop)
        return l->place[node];
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (edge->from == node && is_statement(l, edge->to) && edge->to != but &&
            l->place[edge->to] < k)
            k = l->place[edge->to];
    }
    return k;
}

#define DEEPEST 8u /* values that move together: enough for the factors of a gradient */

/* Bytes that live less if `node` moves into cluster k: the bytes of the operands that cluster k no
 * longer keeps for `node`, less the bytes of results that cluster k then keeps. A value that `node`
 * alone reads moves with `node` if the sum is larger. */
static int64_t gain_of(const level *l, uint32_t node, uint32_t k, uint32_t depth) {
    int64_t gain = bytes_left(l, node);
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        uint32_t from = edge->from;
        if (edge->to != node || l->place[from] >= k || lives_until(l, from, node, k)) continue;
        int64_t cost = bytes_left(l, from);
        if (depth < DEEPEST && earliest_reader(l, from, node) >= k) {
            int64_t along = cost - gain_of(l, from, k, depth + 1);
            if (along < cost) cost = along;
        }
        gain -= cost;
    }
    return gain;
}

static void sink(level *l, uint32_t node) {
    uint32_t k = earliest_reader(l, node, NOWHERE), from = l->place[node];
    ids one = {.at = &node, .n = 1, .cap = 1};
    if (k == NOWHERE || k <= from || gain_of(l, node, k, 0) <= 0 ||
        !join_cluster(l, &one, k, false))
        return;
    ids *old = &l->clusters.at[from].nodes;
    uint32_t n = 0;
    for (uint32_t i = 0; i < old->n; i++)
        if (old->at[i] != node) old->at[n++] = old->at[i];
    old->n = n;
}

static void sink_all(level *l) {
    for (uint32_t c = l->n_components; c-- > 0 && !l->program->apart;) {
        if (l->members[c].n == 1) sink(l, l->members[c].at[0]);
    }
}

/* ---- frees ---- */

static void place_free(level *l, uint32_t node) {
    uint32_t k = NOWHERE;
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (edge->to == node && (k == NOWHERE || l->place[edge->from] > k))
            k = l->place[edge->from];
    }
    if (k == NOWHERE) {
        DS_PUSH(l->arena, &l->before, node);
        return;
    }
    cluster *c = &l->clusters.at[k];
    bool joins = c->loop && (ds_temporal__dims_of(l->program, node) >> c->dim & 1);
    for (uint32_t e = 0; e < l->edges.n && joins; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (edge->to == node && l->place[edge->from] == k)
            joins = !splits(l, c->dim, ds_temporal__lag(l->program, edge, c->dim, c->direction));
    }
    DS_PUSH(l->arena, joins ? &c->nodes : &c->after, node);
    if (joins) l->place[node] = k;
}

/* ---- shifts and the inside of a loop ---- */

/* The difference constraints of a cluster, and the bytes that wait for each turn between a value
 * and its last reader. */
typedef struct shifts {
    ds_temporal__arcs arcs;
    int64_t
        *weight; /* of the cluster's nodes, then of the last readers of values that outlive it */
    uint32_t *reader; /* [n]: the node of such a last reader; NOWHERE */
    uint32_t n;
} shifts;

static void add_arc(const level *l, const cluster *c, shifts *s, uint32_t to,
                    const ds_temporal__edge *edge) {
    ds_temporal__arc arc = {l->local[edge->from], to,
                            ds_temporal__lag(l->program, edge, c->dim, c->direction)};
    DS_PUSH(l->arena, &s->arcs, arc);
}

static void weigh(const level *l, const cluster *c, shifts *s, uint32_t statement, uint32_t last) {
    int64_t bytes = bytes_left(l, statement);
    if (extent(l, c->dim) > 0) bytes /= extent(l, c->dim);
    s->weight[l->local[statement]] -= bytes;
    s->weight[last] += bytes;
}

/* A value that outlives the loop is not freed by the loop, but the turns until its last reader in
 * the loop count as if: a value that is read in the turn that makes it is at hand. */
static void read_on(const level *l, const cluster *c, shifts *s, const ds_temporal__edge *edge) {
    if (s->reader[edge->from] == NOWHERE) {
        s->reader[edge->from] = s->n++;
        ds_temporal__arc arc = {l->local[edge->from], s->reader[edge->from], 0};
        DS_PUSH(l->arena, &s->arcs, arc);
        weigh(l, c, s, edge->from, s->reader[edge->from]);
    }
    ds_temporal__edge back = *edge;
    back.from = edge->to;
    back.to = l->program->n + edge->from;
    add_arc(l, c, s, s->reader[edge->from], &back);
}

/* c of all nodes of the cluster, into shift[2n]. */
static void solve_shifts(level *l, const cluster *c, int64_t *shift) {
    uint32_t most = c->nodes.n * 2;
    shifts s = {.weight = DS_NEW_N(l->arena, int64_t, most + 1),
                .reader = filled(l->arena, l->program->n, NOWHERE),
                .n = c->nodes.n};
    set_local(l, &c->nodes, 0);
    for (uint32_t e = 0; e < l->edges.n; e++) {
        const ds_temporal__edge *edge = &l->edges.at[e];
        if (l->local[edge->from] == NOWHERE || l->local[edge->to] == NOWHERE) continue;
        add_arc(l, c, &s, l->local[edge->to], edge);
        if (!edge->read) weigh(l, c, &s, edge->from, l->local[edge->to]);
        if (is_statement(l, edge->to) && l->local[l->program->n + edge->from] == NOWHERE)
            read_on(l, c, &s, edge);
    }
    int64_t *turn = DS_NEW_N(l->arena, int64_t, most + 1);
    ds_temporal__least(&s.arcs, s.n, s.weight, l->arena, turn);
    for (uint32_t i = 0; i < c->nodes.n; i++) shift[c->nodes.at[i]] = turn[i];
    clear_local(l, &c->nodes);
}

static bool build_loop(level *l, const cluster *c, nests *out) {
    ds_temporal_nest nest = {.loop = true, .dim = c->dim, .direction = c->direction};
    int64_t *shift = DS_NEW_N(l->arena, int64_t, 2 * l->program->n + 1);
    solve_shifts(l, c, shift);
    level inner = {.graph = l->graph,
                   .program = l->program,
                   .arena = l->arena,
                   .nodes = c->nodes,
                   .local = l->local,
                   .turned = l->turned,
                   .used = l->used | 1u << c->dim};
    set_local(l, &c->nodes, 0);
    for (uint32_t e = 0; e < l->edges.n; e++) {
        ds_temporal__edge edge = l->edges.at[e];
        if (l->local[edge.from] == NOWHERE || l->local[edge.to] == NOWHERE) continue;
        int64_t lag = ds_temporal__lag(l->program, &edge, c->dim, c->direction);
        if (shift[edge.to] - shift[edge.from] > lag) continue;
        ds_temporal__narrow(l->graph, &edge, c->dim, c->direction, lag);
        if (!edge.read || edge.where.n > 0) DS_PUSH(l->arena, &inner.edges, edge);
    }
    clear_local(l, &c->nodes);
    nests body = {0};
    if (!build(&inner, &body)) return false;
    nest.body = body.at;
    nest.n_body = body.n;
    nest.shift = shift;
    DS_PUSH(l->arena, out, nest);
    return true;
}

static void put_leaf(const level *l, uint32_t node, nests *out) {
    uint32_t n = l->program->n;
    ds_temporal_nest leaf = {.free = node >= n, .statement = node < n ? node : node - n};
    DS_PUSH(l->arena, out, leaf);
}

static bool build(level *l, nests *out) {
    find_components(l);
    l->place = filled(l->arena, 2 * l->program->n, NOWHERE);
    if (!fuse(l)) return false;
    sink_all(l);
    for (uint32_t i = 0; i < l->nodes.n; i++)
        if (!is_statement(l, l->nodes.at[i])) place_free(l, l->nodes.at[i]);
    for (uint32_t i = 0; i < l->before.n; i++) put_leaf(l, l->before.at[i], out);
    for (uint32_t k = 0; k < l->clusters.n; k++) {
        const cluster *c = &l->clusters.at[k];
        if (c->loop && c->nodes.n > 0 && !build_loop(l, c, out)) return false;
        if (!c->loop) put_leaf(l, c->nodes.at[0], out);
        for (uint32_t i = 0; i < c->after.n; i++) put_leaf(l, c->after.at[i], out);
    }
    return true;
}

bool ds_temporal__nest_make(const ds_temporal__graph *graph, ds_temporal_schedule *out) {
    const ds_temporal_program *program = graph->program;
    level top = {.graph = graph,
                 .program = program,
                 .arena = graph->arena,
                 .edges = graph->edges,
                 .local = filled(graph->arena, 2 * program->n, NOWHERE),
                 .turned = DS_NEW_N(graph->arena, int, program->n *DS_TEMPORAL_DIMS + 1)};
    for (uint32_t s = 0; s < program->n; s++) DS_PUSH(top.arena, &top.nodes, s);
    for (uint32_t s = 0; s < program->n; s++)
        if (!program->statements[s].kept) DS_PUSH(top.arena, &top.nodes, program->n + s);
    nests body = {0};
    if (!build(&top, &body)) return false;
    out->nest = body.at;
    out->n_nest = body.n;
    return true;
}
