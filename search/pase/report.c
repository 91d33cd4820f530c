/* Tables of strategies. Operations of one loop that are split alike share a line, which names the
 * turns: "encoder[0..5].ff.fc1". */
#include "search/pase/report.h"

#include "ir/base/json.h"

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

/* The path, or the pattern and how many. */
static void put_name(const ds_pase_node *node, uint32_t count, ds_buf *out) {
    ds_buf_put(out, count == 1 ? node->path : node->pattern);
    if (count > 1) ds_buf_printf(out, " (%u)", count);
}

static void put_line(const ds_pase_graph *graph, const ds_pase_splits *strategy, uint32_t v,
                     uint32_t count, ds_buf *out) {
    const ds_pase_node *node = &graph->nodes.at[v];
    count *= (uint32_t)node->times;
    ds_buf name = {0}, split = {0}, space = {0};
    put_name(node, count, &name);
    ds_pase_put_split(node, strategy[v].of, &split);
    put_space(node, &space);
    const char *op = node->op ? ds_op_name(node->op->code) : ds_pase_kind_text(node->kind);
    ds_buf_printf(out, "%-34s %-13s %-24s %s\n", name.text, op, split.text, space.text);
    ds_buf_deinit(&name);
    ds_buf_deinit(&split);
    ds_buf_deinit(&space);
}

void ds_pase_print_strategy(const ds_pase_graph *graph, const ds_pase_splits *strategy,
                            ds_buf *out) {
    uint32_t n = graph->nodes.n;
    bool *told = ds_xcalloc((size_t)n + 1, sizeof *told);
    ds_buf_printf(out, "%-34s %-13s %-24s %s\n", "operation", "op", "split", "of");
    for (uint32_t v = 0; v < n; v++) {
        if (told[v]) continue;
        uint32_t count = 1;
        for (uint32_t w = v + 1; w < n; w++) {
            if (told[w] || !same_line(graph, strategy, v, w)) continue;
            told[w] = true;
            count++;
        }
        put_line(graph, strategy, v, count, out);
    }
    free(told);
}

static void put_rival(const ds_pase_model *model, const char *name, double cost, double least,
                      ds_buf *out) {
    ds_buf_printf(out, "%-34s %.2f %s", name, cost, model->unit);
    if (least > 0) ds_buf_printf(out, ", %.3f x", cost / least);
    ds_buf_putc(out, '\n');
}

void ds_pase_print_summary(const ds_pase_result *result, const ds_pase_model *model,
                           const ds_pase_rival *rivals, uint32_t n_rivals, ds_buf *out) {
    const ds_pase_sizes *s = &result->sizes;
    put_rival(model, "least cost", result->cost, 0, out);
    ds_buf_printf(out, "%-34s %.2f and %.2f\n", "  of operations, of tensors", result->node_cost,
                  result->edge_cost);
    for (uint32_t i = 0; i < n_rivals; i++)
        put_rival(model, rivals[i].name, rivals[i].cost, result->cost, out);
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

static void put_node(ds_json *json, const ds_pase_node *node, const uint16_t *split) {
    ds_json_begin_object(json);
    ds_json_key_string(json, "path", node->path);
    ds_json_key_string(json, "op",
                       node->op ? ds_op_name(node->op->code) : ds_pase_kind_text(node->kind));
    ds_json_key(json, "split");
    ds_json_begin_object(json);
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (split[a] == 1) continue;
        ds_json_key_int(json, node->axis_name[a], split[a]);
    }
    ds_json_end_object(json);
    ds_json_end_object(json);
}

void ds_pase_print_json(const ds_pase_result *result, const ds_pase_model *model,
                        const ds_pase_rival *rivals, uint32_t n_rivals, ds_buf *out) {
    const ds_pase_sizes *s = &result->sizes;
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"cost", result->cost},
                   {"node_cost", result->node_cost},
                   {"edge_cost", result->edge_cost},
                   {"bound", result->bound},
                   {"memory_bytes", result->memory_bytes},
                   {"nodes", result->graph->nodes.n},
                   {"edges", s->edges},
                   {"most_configs", s->most_configs},
                   {"most_dependent", s->most_dependent},
                   {"combinations", s->combinations},
                   {"most_combinations", s->most_combinations},
                   {"edge_tables", s->edge_tables},
                   {"table_bytes", s->table_bytes}};
    ds_json json;
    ds_json_init(&json, out, 0);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "cost_model", model->name);
    ds_json_key_string(&json, "unit", model->unit);
    ds_json_key_bool(&json, "fits", result->fits);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ds_json_key_double(&json, numbers[i].name, numbers[i].value);
    }
    ds_json_key(&json, "rivals");
    ds_json_begin_object(&json);
    for (uint32_t i = 0; i < n_rivals; i++) {
        ds_json_key_double(&json, rivals[i].name, rivals[i].cost);
    }
    ds_json_end_object(&json);
    ds_json_key(&json, "strategy");
    ds_json_begin_array(&json);
    for (uint32_t v = 0; v < result->graph->nodes.n; v++)
        put_node(&json, &result->graph->nodes.at[v], result->strategy[v].of);
    ds_json_end_array(&json);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}
