/* The call graph: recursion, and which functions belong to models.
 *
 * A function belongs to a model if it holds a weight, or calls (transitively) a function that holds
 * a weight, or a model's function calls it, or the scenario names it as a model. In a model
 * annotations are hints; elsewhere annotations are types. One walk over the graph, depth first,
 * gives an order with callees before callers; facts pass up and down in this order. */
#include "ir/verify/internal.h"

#include <stdlib.h>

typedef struct graph_edge {
    const ds_op *call;
    uint32_t to;
} graph_edge;

typedef struct graph_node {
    ds_func *func;
    DS_VEC(graph_edge) edges;
    uint32_t next; /* edge to follow */
    enum { NEW, OPEN, DONE } state;
    bool holds_weight;     /* the function or a callee holds a weight */
    bool annotated;        /* the function or a callee has splits, partials or places */
    const ds_func *caller; /* a model's function that calls this function */
} graph_node;

typedef struct call_graph {
    DS_VEC(graph_node) nodes;
    ds_map index;           /* ds_func → node */
    DS_VEC(uint32_t) order; /* nodes, callees before their callers */
} call_graph;

/* ---- building ---- */

static void add_calls(call_graph *graph, uint32_t from, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (op->body) add_calls(graph, from, op->body);
        if (op->code == DS_OP_WEIGHT) graph->nodes.at[from].holds_weight = true;
        if (op->code != DS_OP_CALL) continue;
        op->callee = ds_find_func(graph->nodes.at[from].func->module, op->callee_name);
        const uint64_t *to = op->callee ? ds_map_find(&graph->index, DS_KEY(op->callee)) : NULL;
        if (to) {
            graph_edge edge = {op, (uint32_t)*to};
            DS_HPUSH(&graph->nodes.at[from].edges, edge);
        }
    }
}

static void add_func(call_graph *graph, ds_func *func) {
    graph_node node = {.func = func};
    ds_map_put(&graph->index, DS_KEY(func), graph->nodes.n);
    DS_HPUSH(&graph->nodes, node);
}

/* ---- recursion ---- */

static void report_recursion(ds_checker *ck, const call_graph *graph, const uint32_t *path,
                             uint32_t n, const graph_edge *closing) {
    uint32_t start = 0;
    while (path[start] != closing->to) start++;
    ds_buf chain = {0};
    for (uint32_t i = start; i < n; i++)
        ds_buf_printf(&chain, "@%s -> ", graph->nodes.at[path[i]].func->name);
    ds_buf_printf(&chain, "@%s", graph->nodes.at[closing->to].func->name);
    ds_verify__error(ck, DS_ERR_NAME, closing->call->loc, NULL,
                     "functions may not call themselves: %s", chain.text);
    ds_buf_deinit(&chain);
}

/* Depth first, with an explicit stack: a chain of calls may be long. */
static void find_cycles(ds_checker *ck, call_graph *graph, uint32_t root) {
    DS_VEC(uint32_t) path = {0};
    DS_HPUSH(&path, root);
    graph->nodes.at[root].state = OPEN;
    while (path.n) {
        graph_node *node = &graph->nodes.at[path.at[path.n - 1]];
        if (node->next == node->edges.n) {
            node->state = DONE;
            DS_HPUSH(&graph->order, path.at[path.n - 1]);
            path.n--;
            continue;
        }
        const graph_edge *edge = &node->edges.at[node->next++];
        graph_node *to = &graph->nodes.at[edge->to];
        if (to->state == OPEN) report_recursion(ck, graph, path.at, path.n, edge);
        if (to->state != NEW) continue;
        to->state = OPEN;
        DS_HPUSH(&path, edge->to);
    }
    free(path.at);
}

/* ---- models ---- */

/* The first written type with an annotation, or NULL. */
static const ds_type *annotation_of(const ds_func *func) {
    for (uint32_t i = 0; i < func->values.n; i++) {
        const ds_value_info *info = &func->values.at[i];
        if (info->type_written && !ds_type_is_plain(info->type)) return info->type;
    }
    for (uint32_t i = 0; i < func->n_results; i++)
        if (!ds_type_is_plain(func->results[i])) return func->results[i];
    return NULL;
}

/* Callees first: passes the facts of callees on to their callers. */
static void look_up(call_graph *graph) {
    for (uint32_t i = 0; i < graph->order.n; i++) {
        graph_node *node = &graph->nodes.at[graph->order.at[i]];
        node->annotated = annotation_of(node->func) != NULL;
        for (uint32_t e = 0; e < node->edges.n; e++) {
            const graph_node *callee = &graph->nodes.at[node->edges.at[e].to];
            node->holds_weight = node->holds_weight || callee->holds_weight;
            node->annotated = node->annotated || callee->annotated;
        }
    }
}

/* Callers first: a callee of a model's function belongs to the model. A rank's body never does. */
static void mark_models(const ds_checker *ck, call_graph *graph) {
    for (uint32_t i = graph->order.n; i-- > 0;) {
        graph_node *node = &graph->nodes.at[graph->order.at[i]];
        node->func->is_model =
            node->func->rank < 0 &&
            (node->holds_weight || node->caller || ds_scenario_has_model(ck->unit, node->func));
        for (uint32_t e = 0; e < node->edges.n && node->func->is_model; e++)
            graph->nodes.at[node->edges.at[e].to].caller = node->func;
    }
}

static const char *annotation_text(ds_checker *ck, const ds_func *func) {
    const ds_type *type = annotation_of(func);
    return type
               ? ds_arena_printf(&ck->diags->arena, " (such as %s)", ds_verify__type_text(ck, type))
               : "";
}

/* Refuses a program's call of an annotated model function: annotations are types in a program, but
 * hints in a model. */
static void check_call_of_model(ds_checker *ck, const graph_node *from, const graph_node *to,
                                const ds_op *call) {
    if (from->func->is_model || !to->func->is_model) return;
    if (to->holds_weight)
        ds_verify__error(ck, DS_ERR_TYPE, call->loc, NULL,
                         "@%s holds weights, so it is part of a model: a program takes its weights "
                         "as arguments",
                         call->callee_name);
    else if (!to->annotated)
        return;
    else if (to->caller)
        ds_verify__error(ck, DS_ERR_TYPE, call->loc, NULL,
                         "@%s belongs to a model, since @%s calls it: there its annotations%s are "
                         "hints, but here, in a program, they would be types; write a function of "
                         "its own for the program",
                         call->callee_name, to->caller->name, annotation_text(ck, to->func));
    else
        ds_verify__error(ck, DS_ERR_TYPE, call->loc, NULL,
                         "@%s is a model, in which annotations%s are hints; a program cannot call "
                         "it",
                         call->callee_name, annotation_text(ck, to->func));
}

/* Refuses a program that belongs to a model. An entry that holds a weight is refused elsewhere. */
static void check_program_entry(ds_checker *ck, const call_graph *graph) {
    const ds_func *entry = ds_scenario_program_func(ck->unit);
    const uint64_t *at = entry ? ds_map_find(&graph->index, DS_KEY(entry)) : NULL;
    const graph_node *node = at ? &graph->nodes.at[*at] : NULL;
    if (!node || !node->caller || node->holds_weight || !node->annotated) return;
    ds_verify__error(ck, DS_ERR_TYPE, ds_scenario_find(ck->unit, "", "program")->loc, NULL,
                     "@%s belongs to a model, since @%s calls it: its annotations%s are hints, so "
                     "it cannot be a program too; write a function of its own for the program",
                     entry->name, node->caller->name, annotation_text(ck, entry));
}

static void check_models(ds_checker *ck, call_graph *graph) {
    look_up(graph);
    mark_models(ck, graph);
    for (uint32_t i = 0; i < graph->nodes.n; i++) {
        const graph_node *node = &graph->nodes.at[i];
        for (uint32_t e = 0; e < node->edges.n; e++)
            check_call_of_model(ck, node, &graph->nodes.at[node->edges.at[e].to],
                                node->edges.at[e].call);
    }
    check_program_entry(ck, graph);
}

/* ---- the whole graph ---- */

static void free_graph(call_graph *graph) {
    for (uint32_t i = 0; i < graph->nodes.n; i++) free(graph->nodes.at[i].edges.at);
    free(graph->nodes.at);
    free(graph->order.at);
    ds_map_deinit(&graph->index);
}

void ds_verify__calls(ds_checker *ck) {
    call_graph graph = {0};
    ds_map_init(&graph.index);
    for (uint32_t m = 0; m < ck->unit->modules.n; m++) {
        const ds_module *module = ck->unit->modules.at[m];
        for (uint32_t i = 0; i < module->funcs.n; i++) add_func(&graph, module->funcs.at[i]);
        for (uint32_t i = 0; i < module->programs.n; i++)
            for (uint32_t r = 0; r < module->programs.at[i]->n_ranks; r++)
                add_func(&graph, module->programs.at[i]->ranks[r]);
    }
    for (uint32_t i = 0; i < graph.nodes.n; i++)
        add_calls(&graph, i, &graph.nodes.at[i].func->body);
    for (uint32_t i = 0; i < graph.nodes.n; i++)
        if (graph.nodes.at[i].state == NEW) find_cycles(ck, &graph, i);
    check_models(ck, &graph);
    free_graph(&graph);
}
