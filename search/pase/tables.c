/* Makes each table once: what is equal is found by hashing what it depends on. */
#include "search/pase/tables.h"

#include "ir/base/map.h"

#include <stdlib.h>
#include <string.h>

typedef struct builder {
    const ds_pase_graph *graph;
    ds_pase_model *model;
    const uint32_t *goes;
    double max_bytes;
    ds_pase_tables *tables;
    ds_map sets, edges; /* hash of the key → first node or edge that has it */
} builder;

/* ---- nodes ---- */

static void put_shape(const ds_shape *shape, const int8_t *axis, ds_buf *key) {
    ds_buf_put_n(key, (const char *)&shape->dtype, sizeof shape->dtype);
    ds_buf_put_n(key, (const char *)&shape->rank, sizeof shape->rank);
    ds_buf_put_n(key, (const char *)shape->dims, sizeof shape->dims);
    ds_buf_put_n(key, (const char *)axis, DS_MAX_RANK);
}

/* All that costs look at, in one string of bytes: no padding, no paths. */
static void node_key(const ds_pase_node *node, bool memory, ds_buf *key) {
#define PUT(field) ds_buf_put_n(key, (const char *)&node->field, sizeof node->field)
    key->n = 0;
    PUT(kind), PUT(times), PUT(first), PUT(n_axes), PUT(size), PUT(whole), PUT(rule_size),
        PUT(data);
    PUT(batch), PUT(m), PUT(n), PUT(k), PUT(along), PUT(pointwise), PUT(light);
    PUT(casts), PUT(cast_from), PUT(cast_to);
    for (uint32_t i = 0; memory && i < DS_PASE_HELD; i++) PUT(held[i].axes), PUT(held[i].bytes);
    if (memory) PUT(data_bytes), PUT(argument_bytes), PUT(before), PUT(behind);
    PUT(in_size), PUT(window), PUT(group), PUT(flop), PUT(n_in), PUT(n_out);
    for (uint32_t i = 0; i < node->n_in; i++) {
        put_shape(&node->in[i], node->in_axis[i], key);
        PUT(in_weight[i]), PUT(in_made[i]), PUT(in_reread[i]), PUT(in_tied[i]);
        PUT(made[i]), PUT(in_data[i]);
    }
    for (uint32_t i = 0; i < node->n_out; i++) put_shape(&node->out[i], node->out_axis[i], key);
    ds_opcode code = node->op ? node->op->code : 0;
    ds_buf_put_n(key, (const char *)&code, sizeof code);
#undef PUT
}

/* Numbers, words and lists of them; all else counts as different. */
static bool same_attr(const ds_attr *x, const ds_attr *y) {
    bool plain = x->kind == DS_ATTR_EXPR || x->kind == DS_ATTR_BOOL || x->kind == DS_ATTR_WORD ||
                 x->kind == DS_ATTR_LIST;
    if (!plain || x->kind != y->kind || x->name != y->name || x->expr.i != y->expr.i ||
        x->flag != y->flag || x->word != y->word || x->n_items != y->n_items)
        return false;
    for (uint32_t i = 0; i < x->n_items; i++)
        if (!same_attr(&x->items[i], &y->items[i])) return false;
    return true;
}

static bool same_op(const ds_pase_node *a, const ds_pase_node *b) {
    if (a->op == b->op) return true;
    if (!a->op || !b->op || a->op->n_attrs != b->op->n_attrs) return false;
    for (uint32_t i = 0; i < a->op->n_attrs; i++) {
        const ds_attr *x = &a->op->attrs[i], *y = &b->op->attrs[i];
        bool named = strcmp(x->name, "name") == 0 && x->name == y->name;
        if (!named && !same_attr(x, y)) return false;
    }
    return true;
}

void ds_pase__find_alike(const ds_pase_graph *graph, const ds_pase_model *model, uint32_t *alike) {
    ds_map known; /* hash of the key → first node that has it */
    ds_buf key = {0}, other = {0};
    ds_map_init(&known);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        node_key(node, model->memory != NULL, &key);
        uint64_t hash = ds_hash_bytes(key.text, key.n);
        alike[v] = v;
        for (;; hash = ds_hash_mix(hash, 1)) {
            const uint64_t *found = ds_map_find(&known, hash);
            if (!found) break;
            const ds_pase_node *old = &graph->nodes.at[*found];
            node_key(old, model->memory != NULL, &other);
            bool same = other.n == key.n && memcmp(other.text, key.text, key.n) == 0;
            if (!same || !same_op(node, old)) continue;
            alike[v] = (uint32_t)*found;
            break;
        }
        if (alike[v] == v) ds_map_put(&known, hash, v);
    }
    ds_buf_deinit(&key);
    ds_buf_deinit(&other);
    ds_map_deinit(&known);
}

static ds_status add_bytes(builder *b, double bytes, ds_error *err) {
    b->tables->bytes += bytes;
    if (b->tables->bytes <= b->max_bytes) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                        "the tables of costs take more than %.0f MB; a larger cutoff or fewer "
                        "devices make fewer configurations",
                        b->max_bytes / 1e6);
}

/* Different layers often have the same configurations. */
static const ds_pase_configs *known_set(builder *b, uint32_t v, const ds_pase_configs *set) {
    size_t bytes = (size_t)set->n * set->n_axes * sizeof *set->split;
    uint64_t hash = ds_hash_mix(ds_hash_bytes(set->split, bytes), set->n_axes);
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&b->sets, hash);
        if (!found) break;
        const ds_pase_configs *old = b->tables->set[*found];
        if (old->n == set->n && old->n_axes == set->n_axes &&
            memcmp(old->split, set->split, bytes) == 0)
            return old;
    }
    ds_map_put(&b->sets, hash, v);
    return set;
}

static ds_status make_memory(builder *b, uint32_t v,
                             ds_status (*of)(ds_pase_model *, const ds_pase_node *,
                                             const ds_pase_configs *, double *, ds_error *),
                             const double **out, ds_error *err) {
    const ds_pase_node *node = &b->graph->nodes.at[v];
    const ds_pase_configs *set = b->tables->set[v];
    double *bytes = DS_NEW_N(&b->tables->arena, double, set->n);
    DS_TRY(of(b->model, node, set, bytes, err));
    for (uint32_t c = 0; c < set->n; c++) bytes[c] *= node->times;
    *out = bytes;
    return DS_OK;
}

static ds_status make_set(builder *b, uint32_t v, ds_error *err) {
    ds_pase_tables *t = b->tables;
    ds_pase_configs *made = DS_NEW(&t->arena, ds_pase_configs);
    DS_TRY(ds_pase_enumerate(&b->graph->nodes.at[v], &b->model->limits, &t->arena, made, err));
    t->set[v] = known_set(b, v, made);
    return add_bytes(b, 8.0 * t->set[v]->n, err);
}

/* Configurations alone are soon made, and say already how large all else gets. */
static ds_status make_sets(builder *b, const uint32_t *alike, ds_error *err) {
    for (uint32_t v = 0; v < b->graph->nodes.n; v++) {
        if (alike[v] == v)
            DS_TRY(make_set(b, v, err));
        else
            b->tables->set[v] = b->tables->set[alike[v]];
    }
    return ds_pase__check_sizes(b->graph, b->model, b->tables->set, b->goes, b->max_bytes, err);
}

static ds_status make_node(builder *b, uint32_t v, ds_error *err) {
    ds_pase_tables *t = b->tables;
    const ds_pase_node *node = &b->graph->nodes.at[v];
    const ds_pase_configs *set = t->set[v];
    double *cost = DS_NEW_N(&t->arena, double, set->n);
    DS_TRY(b->model->node(b->model, node, set, cost, err));
    for (uint32_t c = 0; c < set->n; c++) cost[c] *= node->times;
    t->cost[v] = cost;
    if (t->memory) DS_TRY(make_memory(b, v, b->model->memory, &t->memory[v], err));
    return t->late ? make_memory(b, v, b->model->late_memory, &t->late[v], err) : DS_OK;
}

static ds_status make_nodes(builder *b, const uint32_t *alike, ds_error *err) {
    ds_pase_tables *t = b->tables;
    DS_TRY(make_sets(b, alike, err));
    for (uint32_t v = 0; v < b->graph->nodes.n; v++) {
        if (alike[v] == v) {
            DS_TRY(make_node(b, v, err));
            continue;
        }
        t->cost[v] = t->cost[alike[v]];
        if (t->memory) t->memory[v] = t->memory[alike[v]];
        if (t->late) t->late[v] = t->late[alike[v]];
    }
    return DS_OK;
}

static ds_status hash_and_make_nodes(builder *b, ds_error *err) {
    uint32_t *alike = ds_xcalloc((size_t)b->graph->nodes.n + 1, sizeof *alike);
    ds_pase__find_alike(b->graph, b->model, alike);
    ds_status status = make_nodes(b, alike, err);
    free(alike);
    return status;
}

/* ---- edges ---- */

static bool is_flipped(const builder *b, const ds_pase_edge *edge) {
    return b->goes[edge->from] < b->goes[edge->to];
}

bool ds_pase__same_tensor(const ds_pase_edge *a, const ds_pase_edge *b) {
    return a->dtype == b->dtype && a->rank == b->rank && a->times == b->times &&
           a->tied == b->tied && a->ties == b->ties && a->again == b->again &&
           memcmp(a->size, b->size, a->rank * sizeof *a->size) == 0 &&
           memcmp(a->from_axis, b->from_axis, a->rank) == 0 &&
           memcmp(a->to_axis, b->to_axis, a->rank) == 0;
}

/* Ends by their sets: nodes that differ in costs alone need no other tables. */
static bool same_table(const builder *b, const ds_pase_edge *x, const ds_pase_edge *y) {
    const ds_pase_configs *const *sets = b->tables->set;
    return sets[x->from] == sets[y->from] && sets[x->to] == sets[y->to] &&
           is_flipped(b, x) == is_flipped(b, y) && ds_pase__same_tensor(x, y);
}

static uint64_t edge_hash(const builder *b, const ds_pase_edge *e) {
    uint64_t hash = ds_hash_bytes(e->size, e->rank * sizeof *e->size);
    hash = ds_hash_mix(hash, ds_hash_bytes(e->from_axis, e->rank));
    hash = ds_hash_mix(hash, ds_hash_bytes(e->to_axis, e->rank));
    hash = ds_hash_mix(hash, DS_KEY(b->tables->set[e->from]));
    hash = ds_hash_mix(hash, DS_KEY(b->tables->set[e->to]));
    return ds_hash_mix(hash, is_flipped(b, e));
}

static const double *known_table(builder *b, uint32_t e) {
    const ds_pase_edge *edge = &b->graph->edges.at[e];
    uint64_t hash = edge_hash(b, edge);
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&b->edges, hash);
        if (!found) break;
        if (same_table(b, edge, &b->graph->edges.at[*found])) return b->tables->edge[*found];
    }
    ds_map_put(&b->edges, hash, e);
    return NULL;
}

static void flip(const double *in, uint32_t rows, uint32_t columns, double *out) {
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            out[(size_t)j * rows + i] = in[(size_t)i * columns + j];
}

static ds_status fill_edge(builder *b, const ds_pase_edge *edge, double *table, ds_error *err) {
    const ds_pase_configs *from = b->tables->set[edge->from], *to = b->tables->set[edge->to];
    size_t n = (size_t)from->n * to->n;
    DS_TRY(b->model->edge(b->model, edge, from, to, table, err));
    for (size_t i = 0; edge->times != 1 && i < n; i++) table[i] *= edge->times;
    return DS_OK;
}

static ds_status make_edge(builder *b, uint32_t e, ds_error *err) {
    ds_pase_tables *t = b->tables;
    const ds_pase_edge *edge = &b->graph->edges.at[e];
    const ds_pase_configs *from = t->set[edge->from], *to = t->set[edge->to];
    size_t n = (size_t)from->n * to->n;
    DS_TRY(add_bytes(b, 8.0 * (double)n, err));
    double *table = DS_NEW_N(&t->arena, double, n);
    t->edge[e] = table;
    t->n_edge_tables++;
    if (!is_flipped(b, edge)) return fill_edge(b, edge, table, err);
    double *forward = ds_xcalloc(n, sizeof *forward);
    ds_status status = fill_edge(b, edge, forward, err);
    if (!status) flip(forward, from->n, to->n, table);
    free(forward);
    return status;
}

/* From one turn of a loop to the next: both ends are split alike, so it is a cost of the node. */
static ds_status add_to_node(builder *b, const ds_pase_edge *edge, ds_error *err) {
    ds_pase_tables *t = b->tables;
    uint32_t n = t->set[edge->from]->n;
    double *cost = DS_NEW_N(&t->arena, double, n);
    double *table = ds_xcalloc((size_t)n * n, sizeof *table);
    ds_status status = fill_edge(b, edge, table, err);
    for (uint32_t c = 0; c < n; c++) cost[c] = t->cost[edge->from][c] + table[(size_t)c * n + c];
    t->cost[edge->from] = cost;
    free(table);
    return status;
}

static ds_status make_edges(builder *b, ds_error *err) {
    for (uint32_t e = 0; e < b->graph->edges.n; e++) {
        if (!ds_pase_counts(b->model, &b->graph->edges.at[e])) continue;
        if (b->graph->edges.at[e].from == b->graph->edges.at[e].to) {
            DS_TRY(add_to_node(b, &b->graph->edges.at[e], err));
            continue;
        }
        b->tables->edge[e] = known_table(b, e);
        if (!b->tables->edge[e]) DS_TRY(make_edge(b, e, err));
    }
    return DS_OK;
}

/* ---- all ---- */

ds_status ds_pase__tables_new(const ds_pase_graph *graph, ds_pase_model *model,
                              const uint32_t *goes, const uint32_t *alike, double max_bytes,
                              ds_pase_tables **out, ds_error *err) {
    ds_pase_tables *t = ds_xcalloc(1, sizeof *t);
    ds_arena_init(&t->arena);
    uint32_t n = graph->nodes.n;
    t->set = DS_NEW_N(&t->arena, const ds_pase_configs *, n + 1);
    t->cost = DS_NEW_N(&t->arena, const double *, n + 1);
    t->edge = DS_NEW_N(&t->arena, const double *, graph->edges.n + 1);
    if (model->memory) t->memory = DS_NEW_N(&t->arena, const double *, n + 1);
    if (model->late_memory) t->late = DS_NEW_N(&t->arena, const double *, n + 1);
    builder b = {.graph = graph, .model = model, .goes = goes, .max_bytes = max_bytes, .tables = t};
    ds_map_init(&b.sets);
    ds_map_init(&b.edges);
    ds_status status = alike ? make_nodes(&b, alike, err) : hash_and_make_nodes(&b, err);
    if (!status) status = make_edges(&b, err);
    ds_map_deinit(&b.sets);
    ds_map_deinit(&b.edges);
    *out = NULL;
    if (status)
        ds_pase__tables_free(t);
    else
        *out = t;
    return status;
}

void ds_pase__tables_free(ds_pase_tables *tables) {
    if (!tables) return;
    ds_arena_deinit(&tables->arena);
    free(tables);
}
