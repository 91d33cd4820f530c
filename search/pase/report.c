/* Tables of strategies. Operations of one loop that are split alike share a line, which names the
 * turns: "encoder[0-3,5].ff.fc1"; "encoder[*].ff.fc1" are all of them. */
#include "search/pase/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ds_pase_put_split(const ds_pase_node *node, const uint16_t *split, ds_buf *out) {
    bool any = false;
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (split[a] == 1) continue;
        ds_buf_printf(out, "%s%s %u", any ? " x " : "", node->axis_name[a], split[a]);
        any = true;
    }
    if (!any) ds_buf_putc(out, '-');
}

static void put_space(const ds_pase_node *node, ds_buf *out) {
    for (uint32_t a = 0; a < node->n_axes; a++)
        ds_buf_printf(out, "%s%s %" PRId64, a ? ", " : "", node->axis_name[a], node->size[a]);
}

static bool same_line(const ds_pase_graph *graph, const ds_pase_splits *strategy, uint32_t a,
                      uint32_t b) {
    const ds_pase_node *x = &graph->nodes.at[a], *y = &graph->nodes.at[b];
    return strcmp(x->pattern, y->pattern) == 0 && x->n_axes == y->n_axes &&
           memcmp(x->size, y->size, sizeof x->size) == 0 &&
           memcmp(strategy[a].of, strategy[b].of, x->n_axes * sizeof *strategy[a].of) == 0;
}

/* ---- turns of loops ---- */

#define MOST_LOOPS 4u

/* The turns of one loop that are on a line, in order. */
typedef struct turns {
    DS_VEC(uint32_t) at;
} turns;

static void add_turn(turns *t, uint32_t turn) {
    uint32_t i = t->at.n;
    while (i > 0 && t->at.at[i - 1] > turn) i--;
    if (i > 0 && t->at.at[i - 1] == turn) return;
    DS_HPUSH(&t->at, turn);
    memmove(&t->at.at[i + 1], &t->at.at[i], (t->at.n - 1 - i) * sizeof *t->at.at);
    t->at.at[i] = turn;
}

/* "0-3,7" */
static void put_turns(const turns *t, ds_buf *out) {
    for (uint32_t i = 0; i < t->at.n;) {
        uint32_t last = i;
        while (last + 1 < t->at.n && t->at.at[last + 1] == t->at.at[last] + 1) last++;
        ds_buf_printf(out, "%s%u", i ? "," : "", t->at.at[i]);
        if (last > i) ds_buf_printf(out, "-%u", t->at.at[last]);
        i = last + 1;
    }
}

/* What stands for [*] in the node's pattern, loop by loop. Returns the number of loops. */
static uint32_t add_path(const ds_pase_node *node, turns *of) {
    uint32_t n = 0;
    for (const char *p = node->path; (p = strchr(p, '[')) && n < MOST_LOOPS; p++)
        add_turn(&of[n++], (uint32_t)strtoul(p + 1, NULL, 10));
    return n;
}

/* One row of the table: the node that is told, and those that are split as it is. */
typedef struct row {
    uint32_t first, n;
    uint32_t *node; /* [n] */
} row;

/* "l[0-3,7].z"; where the turns are no product of the loops', the first and an ellipsis. */
static void put_some(const ds_pase_graph *graph, const row *r, ds_buf *out) {
    turns of[MOST_LOOPS] = {0};
    uint32_t loops = 0, product = 1, loop = 0;
    for (uint32_t i = 0; i < r->n; i++) loops = add_path(&graph->nodes.at[r->node[i]], of);
    for (uint32_t l = 0; l < loops; l++) product *= of[l].at.n;
    if (product == r->n) {
        for (const char *p = graph->nodes.at[r->first].pattern; *p; p++) {
            bool star = *p == '*' && p[1] == ']' && loop < loops;
            if (star)
                put_turns(&of[loop++], out);
            else
                ds_buf_putc(out, *p);
        }
    } else {
        ds_buf_printf(out, "%s ...", graph->nodes.at[r->first].path);
    }
    for (uint32_t l = 0; l < loops; l++) free(of[l].at.at);
}

/* How many operations have the node's pattern? */
static uint32_t count_of(const ds_pase_graph *graph, const char *pattern) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        n += strcmp(graph->nodes.at[v].pattern, pattern) == 0;
    return n;
}

/* The path; or the pattern and how many, which turns if not all. */
static void put_name(const ds_pase_graph *graph, const row *r, ds_buf *out) {
    const ds_pase_node *node = &graph->nodes.at[r->first];
    uint32_t count = r->n * (uint32_t)node->times;
    if (count == 1)
        ds_buf_put(out, node->path);
    else if (node->times > 1 || count_of(graph, node->pattern) == r->n)
        ds_buf_put(out, node->pattern);
    else
        put_some(graph, r, out);
    if (count > 1) ds_buf_printf(out, " (%u)", count);
}

static void put_line(const ds_pase_graph *graph, const ds_pase_splits *strategy, const row *r,
                     ds_buf *out) {
    const ds_pase_node *node = &graph->nodes.at[r->first];
    ds_buf name = {0}, split = {0}, space = {0};
    put_name(graph, r, &name);
    ds_pase_put_split(node, strategy[r->first].of, &split);
    put_space(node, &space);
    const char *op = node->op ? ds_op_name(node->op->code) : ds_pase_kind_text(node->kind);
    ds_buf_printf(out, "%-34s %-13s %-24s %s\n", name.text, op, split.text,
                  space.n ? space.text : "a scalar");
    ds_buf_deinit(&name);
    ds_buf_deinit(&split);
    ds_buf_deinit(&space);
}

void ds_pase_print_strategy(const ds_pase_graph *graph, const ds_pase_splits *strategy,
                            ds_buf *out) {
    uint32_t n = graph->nodes.n;
    bool *told = ds_xcalloc((size_t)n + 1, sizeof *told);
    row r = {.node = ds_xcalloc((size_t)n + 1, sizeof *r.node)};
    ds_buf_printf(out, "%-34s %-13s %-24s %s\n", "operation", "op", "split", "of");
    for (r.first = 0; r.first < n; r.first++) {
        if (told[r.first]) continue;
        r.n = 0;
        for (uint32_t w = r.first; w < n; w++) {
            if (told[w] || !same_line(graph, strategy, r.first, w)) continue;
            told[w] = true;
            r.node[r.n++] = w;
        }
        put_line(graph, strategy, &r, out);
    }
    free(r.node);
    free(told);
}

static void put_rival(const ds_pase_model *model, const ds_pase_rival *rival, double least,
                      ds_buf *out) {
    ds_buf_printf(out, "%-34s %.2f %s", rival->name, rival->cost, model->unit);
    if (least > 0) ds_buf_printf(out, ", %.3f x", rival->cost / least);
    if (model->memory_limit > 0 && rival->memory_bytes > model->memory_limit)
        ds_buf_printf(out, ", takes %.3f GB and does not fit", rival->memory_bytes / 1e9);
    ds_buf_putc(out, '\n');
}

/* What an edge costs in the result; the search has asked for this cost before. */
static double edge_cost(const ds_pase_result *result, ds_pase_model *model,
                        const ds_pase_edge *edge) {
    ds_pase_splits split[2] = {result->strategy[edge->from], result->strategy[edge->to]};
    ds_pase_configs from = {1, result->graph->nodes.at[edge->from].n_axes, split[0].of};
    ds_pase_configs to = {1, result->graph->nodes.at[edge->to].n_axes, split[1].of};
    double one = 0;
    ds_error err;
    if (!ds_pase_counts(model, edge) || model->edge(model, edge, &from, &to, &one, &err) != DS_OK)
        return 0;
    return one * edge->times;
}

/* What of the costs of edges is of weights that several operations read: less than nothing where
 * their gradients are reduced together, which costs of operations have one by one. */
static double tied_cost(const ds_pase_result *result, ds_pase_model *model) {
    const ds_pase_graph *graph = result->graph;
    double sum = 0;
    for (uint32_t e = 0; e < graph->edges.n; e++)
        if (graph->edges.at[e].tied) sum += edge_cost(result, model, &graph->edges.at[e]);
    return sum;
}

void ds_pase_print_summary(const ds_pase_result *result, ds_pase_model *model,
                           const ds_pase_rival *rivals, uint32_t n_rivals, ds_buf *out) {
    const ds_pase_sizes *s = &result->sizes;
    double tied = tied_cost(result, model), moved = result->edge_cost - tied;
    ds_pase_rival found = {result->fits ? "least cost" : "cost of the least memory", result->cost,
                           0};
    put_rival(model, &found, 0, out);
    ds_buf_printf(out, "%-34s %.2f and %.2f\n", "  of operations, of tensors", result->node_cost,
                  moved > -0.005 && moved < 0 ? 0 : moved);
    if (tied != 0)
        ds_buf_printf(out, "%-34s %.2f: gradients of weights that several operations read are %s\n",
                      "  of tied weights", tied, tied < 0 ? "reduced once" : "moved");
    for (uint32_t i = 0; i < n_rivals; i++) put_rival(model, &rivals[i], result->cost, out);
    if (model->memory) {
        ds_buf_printf(out, "%-34s %.3f GB", "memory of a device", result->memory_bytes / 1e9);
        if (model->memory_limit > 0)
            ds_buf_printf(out, " of %.3f GB%s", model->memory_limit / 1e9,
                          result->fits ? "" : ": nothing found that fits");
        ds_buf_putc(out, '\n');
        if (result->bound < result->cost)
            ds_buf_printf(out, "%-34s %.2f %s, gap %.2f %%\n", "bound under the limit",
                          result->bound, model->unit,
                          100 * (result->cost - result->bound) / result->cost);
    }
    ds_buf_printf(out,
                  "%u operations, %u edges; at most %u configurations (K), %u dependent (M); "
                  "%.0f combinations, %.0f at most for one; %u tables of edges, %.1f MB in all\n",
                  result->graph->nodes.n, s->edges, s->most_configs, s->most_dependent,
                  s->combinations, s->most_combinations, s->edge_tables, s->table_bytes / 1e6);
}

/* ---- JSON ---- */

/* Costs of all its turns, whose sums over the nodes are those of the result: of the node, and of the
 * tensors that it reads. */
static void put_costs(const ds_pase_result *result, ds_pase_model *model, uint32_t v, double moved,
                      ds_json *json) {
    const ds_pase_node *node = &result->graph->nodes.at[v];
    ds_pase_splits split = result->strategy[v];
    ds_pase_configs set = {1, node->n_axes, split.of};
    double one = 0;
    ds_error err; /* the search has asked for this cost before */
    if (model->node(model, node, &set, &one, &err) == DS_OK)
        ds_json_key_double(json, "cost", one * node->times);
    ds_json_key_double(json, "moved", moved);
}

static void put_node(ds_json *json, const ds_pase_node *node, const uint16_t *split) {
    ds_json_key_string(json, "path", node->times > 1 ? node->pattern : node->path);
    ds_json_key_string(json, "op",
                       node->op ? ds_op_name(node->op->code) : ds_pase_kind_text(node->kind));
    if (node->times > 1) ds_json_key_int(json, "times", (int64_t)node->times);
    ds_json_key(json, "split");
    ds_json_begin_object(json);
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (split[a] == 1) continue;
        ds_json_key_int(json, node->axis_name[a], split[a]);
    }
    ds_json_end_object(json);
}

static void put_strategy(const ds_pase_result *result, ds_pase_model *model, ds_json *json) {
    const ds_pase_graph *graph = result->graph;
    double *moved = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *moved);
    for (uint32_t e = 0; e < graph->edges.n; e++)
        moved[graph->edges.at[e].to] += edge_cost(result, model, &graph->edges.at[e]);
    ds_json_key(json, "strategy");
    ds_json_begin_array(json);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        ds_json_begin_object(json);
        put_node(json, &graph->nodes.at[v], result->strategy[v].of);
        put_costs(result, model, v, moved[v], json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    free(moved);
}

/* A count that is too large for an integer is told as a number all the same. */
static void put_count(ds_json *json, const char *name, double value) {
    if (value < 9e15)
        ds_json_key_int(json, name, (int64_t)value);
    else
        ds_json_key_double(json, name, value);
}

static void put_sizes(ds_json *json, const ds_pase_result *result) {
    const ds_pase_sizes *s = &result->sizes;
    ds_json_key_int(json, "nodes", result->graph->nodes.n);
    ds_json_key_int(json, "edges", s->edges);
    ds_json_key_int(json, "most_configs", s->most_configs);
    ds_json_key_int(json, "most_dependent", s->most_dependent);
    put_count(json, "combinations", s->combinations);
    put_count(json, "most_combinations", s->most_combinations);
    ds_json_key_int(json, "edge_tables", s->edge_tables);
    put_count(json, "table_bytes", s->table_bytes);
}

void ds_pase_put_json(const ds_pase_result *result, ds_pase_model *model,
                      const ds_pase_rival *rivals, uint32_t n_rivals, ds_json *json) {
    ds_json_key_string(json, "cost_model", model->name);
    ds_json_key_string(json, "unit", model->unit);
    ds_json_key_int(json, "devices", model->limits.devices);
    ds_json_key_double(json, "cost", result->cost);
    ds_json_key_double(json, "node_cost", result->node_cost);
    ds_json_key_double(json, "edge_cost", result->edge_cost);
    ds_json_key_double(json, "bound", result->bound);
    ds_json_key_bool(json, "fits", result->fits);
    if (model->memory) {
        put_count(json, "memory_bytes", result->memory_bytes);
        put_count(json, "memory_capacity_bytes", model->memory_limit);
    }
    put_sizes(json, result);
    ds_json_key(json, "rivals");
    ds_json_begin_object(json);
    for (uint32_t i = 0; i < n_rivals; i++)
        ds_json_key_double(json, rivals[i].name, rivals[i].cost);
    ds_json_end_object(json);
    if (model->memory) {
        ds_json_key(json, "rivals_memory_bytes");
        ds_json_begin_object(json);
        for (uint32_t i = 0; i < n_rivals; i++)
            put_count(json, rivals[i].name, rivals[i].memory_bytes);
        ds_json_end_object(json);
    }
    put_strategy(result, model, json);
}
