/* From a lowered model to its graph: the program is walked as it runs, loops turn by turn. What a
 * value was when it was last made is what its readers get, since a name is made once a turn. */
#include "search/pase/internal.h"

#include "ir/base/map.h"
#include "ir/core/devices.h"
#include "ir/passes/build/build.h"
#include "ir/passes/build/path.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const ds_model_step *step;
    ds_pase_graph *graph;
    ds_pase_tensor *values; /* per value of the step's function */
    ds_pase_buffers buffers;
    ds_map counted; /* arguments that a node has read */
    bool widened;   /* `lower` has cast what the loss reads */
} reader;

static ds_status read_block(reader *r, const ds_block *block, const ds_index *indices,
                            const ds_path_loop *loops, ds_error *err);

ds_pase_graph *ds_pase_graph_new(void) {
    ds_pase_graph *graph = ds_xcalloc(1, sizeof *graph);
    ds_arena_init(&graph->arena);
    return graph;
}

void ds_pase_graph_free(ds_pase_graph *graph) {
    if (!graph) return;
    ds_arena_deinit(&graph->arena);
    free(graph);
}

/* ---- an op's numbers ---- */

static ds_status shape_of(const ds_env *env, const ds_type *type, ds_loc loc, ds_shape *out,
                          ds_error *err) {
    if (!type) return ds_error_set(err, DS_ERR_INTERNAL, loc, "a value has no type");
    *out = (ds_shape){.dtype = type->dtype, .rank = type->rank};
    for (uint32_t d = 0; d < type->rank; d++)
        DS_TRY(ds_expr_eval_int(env, type->dims[d].size, loc, &out->dims[d], err));
    return DS_OK;
}

static ds_status instance_of(reader *r, const ds_op *op, const ds_index *indices, ds_arena *arena,
                             ds_pase_instance *out, ds_error *err) {
    const ds_func *func = r->step->func;
    *out = (ds_pase_instance){.unit = r->step->unit,
                              .func = func,
                              .op = op,
                              .env = ds_binding_env(&r->step->binding, indices),
                              .in_type = DS_NEW_N(arena, const ds_type *, op->n_in + 1),
                              .in = DS_NEW_N(arena, ds_shape, op->n_in + 1),
                              .out = DS_NEW_N(arena, ds_shape, op->n_out + 1)};
    for (uint32_t i = 0; i < op->n_in; i++) {
        out->in_type[i] = ds_use_type(r->step->unit, func, &op->in[i]);
        DS_TRY(shape_of(&out->env, out->in_type[i], op->loc, &out->in[i], err));
    }
    for (uint32_t i = 0; i < op->n_out; i++)
        DS_TRY(
            shape_of(&out->env, ds_value_at(func, op->out[i])->type, op->loc, &out->out[i], err));
    return DS_OK;
}

/* "encoder[2].self.fc1" and "encoder[*].self.fc1" */
static void put_loops(ds_buf *path, ds_buf *pattern, const ds_path_loop *loops) {
    if (!loops) return;
    put_loops(path, pattern, loops->up);
    ds_buf_printf(path, "%s[%lld].", loops->name, (long long)loops->turn);
    ds_buf_printf(pattern, "%s[*].", loops->name);
}

static void set_paths(reader *r, const ds_op *op, const ds_path_loop *loops, ds_pase_node *node) {
    ds_buf path = {0}, pattern = {0};
    const char *name = ds_path_op_name(r->step->func, op);
    put_loops(&path, &pattern, loops);
    ds_buf_put(&path, name);
    ds_buf_put(&pattern, name);
    node->path = ds_arena_strdup(&r->graph->arena, path.text);
    node->pattern = ds_arena_strdup(&r->graph->arena, pattern.text);
    ds_buf_deinit(&path);
    ds_buf_deinit(&pattern);
}

/* ---- what is no node ---- */

static ds_pase_tensor *tensor_of(reader *r, ds_value value) {
    return &r->values[value.i];
}

/* Does the op only touch each element of its operand? */
static bool is_plain(const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    return strcmp(desc->family, "elementwise") == 0 && op->n_out == 1 &&
           (op->n_in == 1 || op->code == DS_OP_BIAS);
}

static bool is_free(ds_opcode code) {
    return code == DS_OP_BIAS || code == DS_OP_SCALE || code == DS_OP_CAST || code == DS_OP_NEG;
}

/* A cast that `lower` has added, to compute a loss in f32: overrides do not know it. */
static bool is_added(const reader *r, const ds_op *op) {
    const ds_func *func = r->step->func;
    const char *from = ds_value_at(func, op->in[0].value)->name;
    const char *to = ds_value_at(func, op->out[0])->name;
    size_t n = strlen(from);
    return op->code == DS_OP_CAST && strncmp(from, to, n) == 0 && to[n] == '.';
}

/* The op's result lies as `out` says. */
static ds_status add_fused(reader *r, const ds_pase_instance *at, const ds_path_loop *loops,
                           const ds_pase_tensor *out, ds_error *err) {
    ds_pase_graph *graph = r->graph;
    ds_pase_node path;
    if (is_added(r, at->op)) return DS_OK;
    ds_pase_fused fused = {.node = out->node, .rank = at->out[0].rank};
    set_paths(r, at->op, loops, &path);
    fused.pattern = path.pattern;
    memcpy(fused.axis, out->axis, sizeof fused.axis);
    DS_TRY(ds_pase__factors(at, fused.factor, err));
    DS_PUSH(&graph->arena, &graph->fused, fused);
    return DS_OK;
}

/* The op's reads, and its result as a buffer of its own, or as a view of the first operand. */
static void use_operands(reader *r, const ds_pase_instance *at, bool view, ds_arena *arena) {
    const ds_op *op = at->op;
    const ds_pase_tensor **in = DS_NEW_N(arena, const ds_pase_tensor *, op->n_in + 1);
    for (uint32_t i = 0; i < op->n_in; i++) in[i] = tensor_of(r, op->in[i].value);
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_pase_tensor *out = tensor_of(r, op->out[i]);
        if (view && in[0]->is_made)
            out->buffer = in[0]->buffer;
        else
            out->buffer = ds_pase__new_buffer(&r->buffers, out->node, &at->out[i], out->axis);
    }
    ds_pase__use_operands(&r->buffers, op->code, in, op->n_in,
                          view || !op->n_out ? NULL : tensor_of(r, op->out[0]));
}

/* A loss in f32 of narrower logits: when its gradient is cast back, both are there. */
static void widen(reader *r, const ds_pase_instance *at, const ds_pase_tensor *in) {
    uint32_t wide = ds_pase__new_buffer(&r->buffers, in->node, &at->in[0], in->axis);
    r->buffers.all.at[wide].kept = true;
    r->widened = true;
}

static void count_fused(ds_pase_node *node, const ds_pase_instance *at) {
    if (at->op->code == DS_OP_CAST) {
        node->casts++;
        node->cast_from = at->in[0].dtype;
        node->cast_to = at->out[0].dtype;
    } else if (is_free(at->op->code)) {
        node->light++;
    } else {
        node->pointwise++;
    }
}

/* *done: it is part of the node that makes its operand, or a view. */
static ds_status fold_away(reader *r, const ds_pase_instance *at, const ds_path_loop *loops,
                           ds_arena *arena, bool *done, ds_error *err) {
    const ds_op *op = at->op;
    int8_t from[DS_MAX_RANK];
    *done = false;
    if (op->n_in == 0 || op->n_out == 0) return DS_OK;
    const ds_pase_tensor *in = tensor_of(r, op->in[0].value);
    ds_pase_tensor *out = tensor_of(r, op->out[0]);
    if (is_plain(op) && (in->is_made || in->is_weight)) {
        *done = true;
        *out = *in;
        if (!in->is_made) return DS_OK; /* a weight in another dtype is a weight */
        use_operands(r, at, false, arena);
        if (is_added(r, op)) widen(r, at, in);
        count_fused(&r->graph->nodes.at[in->node], at);
        return add_fused(r, at, loops, out, err);
    }
    if (op->code != DS_OP_RESHAPE || !ds_pase__is_unit_reshape(&at->in[0], &at->out[0], from))
        return DS_OK;
    *done = true;
    *out = *in;
    for (uint32_t d = 0; d < at->out[0].rank; d++)
        out->axis[d] = from[d] < 0 ? DS_PASE_NO_AXIS : in->axis[from[d]];
    if (!in->is_made) return DS_OK;
    use_operands(r, at, true, arena);
    return add_fused(r, at, loops, out, err);
}

/* ---- nodes and edges ---- */

/* Products and norms, attention, poolings and losses have gradients that read what they read. */
static bool reads_again(ds_pase_kind kind) {
    return kind == DS_PASE_GEMM || kind == DS_PASE_NORM || kind == DS_PASE_POOL ||
           kind == DS_PASE_LOSS || kind == DS_PASE_LSTM || kind == DS_PASE_OTHER;
}

static void add_edge(reader *r, const ds_pase_tensor *from, uint32_t to, const ds_shape *shape,
                     const int8_t *to_axis) {
    ds_pase_graph *graph = r->graph;
    for (uint32_t e = graph->edges.n; e-- > 0 && graph->edges.at[e].to == to;)
        if (graph->edges.at[e].from == from->node && !graph->edges.at[e].tied)
            graph->edges.at[e].shadowed = true;
    ds_pase_edge edge = {
        .from = from->node, .to = to, .times = 1, .dtype = shape->dtype, .rank = shape->rank};
    edge.again = reads_again(graph->nodes.at[to].kind);
    memcpy(edge.size, shape->dims, sizeof edge.size);
    memcpy(edge.from_axis, from->axis, sizeof edge.from_axis);
    memcpy(edge.to_axis, to_axis, sizeof edge.to_axis);
    DS_PUSH(&graph->arena, &graph->edges, edge);
}

/* A weight lives where its first reader wants it. */
static void read_weight(reader *r, ds_pase_tensor *weight, uint32_t reader_node, uint32_t operand,
                        const ds_shape *shape, const int8_t *axis) {
    if (weight->is_read) {
        ds_pase_node *last = &r->graph->nodes.at[weight->last_node];
        last->in_reread[weight->last_operand] = last->in_tied[weight->last_operand] = true;
        r->graph->nodes.at[reader_node].in_tied[operand] = true;
    }
    weight->last_node = reader_node;
    weight->last_operand = operand;
    if (weight->is_read) {
        ds_pase_edge edge = {.from = weight->node,
                             .to = reader_node,
                             .times = 1,
                             .dtype = shape->dtype,
                             .rank = shape->rank,
                             .tied = true,
                             .weight = (uint32_t)(weight - r->values)};
        memcpy(edge.size, shape->dims, sizeof edge.size);
        memcpy(edge.from_axis, weight->axis, sizeof edge.from_axis);
        memcpy(edge.to_axis, axis, sizeof edge.to_axis);
        DS_PUSH(&r->graph->arena, &r->graph->edges, edge);
        return;
    }
    weight->is_read = true;
    weight->node = reader_node;
    memcpy(weight->axis, axis, sizeof weight->axis);
}

/* Which dim of an argument the model splits over dp. */
static int8_t data_dim(reader *r, const ds_use *use) {
    const ds_pase_tensor *tensor = tensor_of(r, use->value);
    const ds_type *type = tensor->argument ? tensor->argument->type : NULL;
    if (tensor->is_made || tensor->is_weight || !type) return DS_PASE_NO_AXIS;
    for (uint32_t d = 0; d < type->rank; d++)
        if (ds_type_is_over(type, d, "dp")) return (int8_t)d;
    return DS_PASE_NO_AXIS;
}

/* Arguments are there from the start to the end of a step. */
static void count_argument(reader *r, ds_pase_node *node, uint32_t i, const ds_pase_tensor *in) {
    if (!in->argument || in->is_made || in->is_weight) return;
    if (ds_map_find(&r->counted, DS_KEY(in->argument))) return;
    ds_map_put(&r->counted, DS_KEY(in->argument), 1);
    double bytes = ds_dtype_bits(node->in[i].dtype) / 8.0;
    for (uint32_t d = 0; d < node->in[i].rank; d++) bytes *= (double)node->in[i].dims[d];
    *(node->in_data[i] < 0 ? &node->argument_bytes : &node->data_bytes) += bytes;
}

static ds_status add_node(reader *r, const ds_pase_instance *at, const ds_path_loop *loops,
                          ds_arena *arena, ds_error *err) {
    const ds_op *op = at->op;
    ds_pase_graph *graph = r->graph;
    if (graph->nodes.n == DS_PASE_MAX_NODES)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "more than %u ops are too many to search",
                            DS_PASE_MAX_NODES);
    ds_pase_node node = {.times = 1, .first = 1};
    int8_t(*maps)[DS_MAX_RANK] = ds_arena_calloc(arena, op->n_in + op->n_out + 1, sizeof *maps);
    DS_TRY(ds_pase__node_of(at, &node, maps, err));
    set_paths(r, op, loops, &node);
    for (uint32_t i = 0; i < node.n_in; i++) {
        node.in_weight[i] = tensor_of(r, op->in[i].value)->is_weight;
        node.in_made[i] = tensor_of(r, op->in[i].value)->is_made;
        node.made[i] = node.in_made[i];
        node.in_data[i] = data_dim(r, &op->in[i]);
        if (node.in_made[i]) node.first = 0;
        count_argument(r, &node, i, tensor_of(r, op->in[i].value));
    }
    uint32_t n = graph->nodes.n;
    DS_PUSH(&graph->arena, &graph->nodes, node);
    for (uint32_t i = 0; i < op->n_in; i++) {
        ds_pase_tensor *in = tensor_of(r, op->in[i].value);
        bool one = op->in[i].n_index == 0; /* not one of each turn */
        if (in->is_made) add_edge(r, in, n, &at->in[i], maps[i]);
        if (in->is_weight && one && i < DS_MAX_OPERANDS)
            read_weight(r, in, n, i, &at->in[i], maps[i]);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_pase_tensor *out = tensor_of(r, op->out[i]);
        *out = (ds_pase_tensor){.is_made = true, .node = n};
        memcpy(out->axis, maps[op->n_in + i], sizeof out->axis);
    }
    use_operands(r, at, (ds_op_desc_of(op->code)->flags & DS_OPF_VIEW) != 0, arena);
    if (op->code == DS_OP_RESHAPE) return add_fused(r, at, loops, tensor_of(r, op->out[0]), err);
    return DS_OK;
}

/* ---- loops ---- */

/* for l in … carry (%h = …) { %y = lstm(%h, …)  yield %y } */
static const ds_op *lstm_stack(const ds_op *loop) {
    const ds_block *body = loop->body;
    if (loop->n_args != 1 || body->n_ops != 2 || body->ops[0]->code != DS_OP_LSTM) return NULL;
    const ds_op *lstm = body->ops[0], *yield = body->ops[1];
    bool plain = lstm->in[0].value.i == loop->args[0].i && yield->n_in == 1 &&
                 yield->in[0].value.i == lstm->out[0].i;
    return plain ? lstm : NULL;
}

static ds_status read_stack(reader *r, const ds_op *loop, const ds_op *lstm, int64_t layers,
                            const ds_index *turn, const ds_path_loop *loops, ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_pase_instance at;
    *tensor_of(r, loop->args[0]) = *tensor_of(r, loop->in[0].value);
    ds_status status = instance_of(r, lstm, turn, &arena, &at, err);
    if (!status) status = add_node(r, &at, loops, &arena, err);
    if (!status) {
        ds_pase__lstm_layers(&r->graph->nodes.at[r->graph->nodes.n - 1], layers);
        *tensor_of(r, loop->out[0]) = *tensor_of(r, lstm->out[0]);
    }
    ds_arena_deinit(&arena);
    return status;
}

static ds_status read_loop(reader *r, const ds_op *loop, const ds_index *indices,
                           const ds_path_loop *loops, ds_error *err) {
    ds_env env = ds_binding_env(&r->step->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, loop->hi, loop->loc, &hi, err));
    const ds_op *yield = loop->body->ops[loop->body->n_ops - 1];
    if (yield->n_keep)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loop->loc,
                            "the search takes no loop that keeps values of its turns");
    ds_path_loop inside = {ds_path_loop_name(r->step->func, loop), lo, loops};
    ds_index turn = {loop->index, lo, indices};
    const ds_op *lstm = lstm_stack(loop);
    if (lstm && hi > lo) return read_stack(r, loop, lstm, hi - lo, &turn, &inside, err);
    ds_pase_tensor *carried = ds_xcalloc(loop->n_args + 1, sizeof *carried);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < loop->n_args; i++) carried[i] = *tensor_of(r, loop->in[i].value);
    for (int64_t at = lo; at < hi && !status; at++) {
        for (uint32_t i = 0; i < loop->n_args; i++) *tensor_of(r, loop->args[i]) = carried[i];
        turn.value = inside.turn = at;
        status = read_block(r, loop->body, &turn, &inside, err);
        for (uint32_t i = 0; i < loop->n_args && !status; i++)
            carried[i] = *tensor_of(r, yield->in[i].value);
    }
    for (uint32_t i = 0; i < loop->n_args; i++) *tensor_of(r, loop->out[i]) = carried[i];
    free(carried);
    return status;
}

static ds_status read_op(reader *r, const ds_op *op, const ds_index *indices,
                         const ds_path_loop *loops, ds_error *err) {
    if (op->code == DS_OP_FOR) return read_loop(r, op, indices, loops, err);
    if (op->code == DS_OP_YIELD || op->code == DS_OP_RETURN) return DS_OK;
    if (op->code < DS_OP_FIRST_TABLE_OP)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc, "the search takes no '%s' here",
                            ds_op_name(op->code));
    ds_arena arena;
    ds_arena_init(&arena);
    ds_pase_instance at;
    ds_status status = instance_of(r, op, indices, &arena, &at, err);
    bool done = false;
    if (!status) status = fold_away(r, &at, loops, &arena, &done, err);
    if (!status && !done) status = add_node(r, &at, loops, &arena, err);
    ds_arena_deinit(&arena);
    return status;
}

static ds_status read_block(reader *r, const ds_block *block, const ds_index *indices,
                            const ds_path_loop *loops, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        DS_TRY(read_op(r, block->ops[i], indices, loops, err));
    return DS_OK;
}

static ds_status count_devices(reader *r, ds_error *err) {
    const ds_topology *topology = ds_scenario_topology(r->step->unit);
    if (!topology) return DS_OK;
    return ds_topology_count_devices(&r->step->binding, topology, &r->graph->all_devices, err);
}

static void count_ties(reader *r) {
    uint32_t *ties = ds_xcalloc((size_t)r->step->func->values.n + 1, sizeof *ties);
    for (uint32_t e = 0; e < r->graph->edges.n; e++)
        if (r->graph->edges.at[e].tied) ties[r->graph->edges.at[e].weight]++;
    for (uint32_t e = 0; e < r->graph->edges.n; e++)
        if (r->graph->edges.at[e].tied)
            r->graph->edges.at[e].ties = ties[r->graph->edges.at[e].weight];
    free(ties);
}

/* Costs and memory of the search are those of a step that trains every weight. */
static ds_status check_train(const ds_model_step *step, ds_error *err) {
    if (!step->train.on || step->train.lora_rank < 1) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "pase and tap count gradients and states of every weight, and "
                        "train.lora_rank freezes the model's weights; sweep simulates such steps");
}

ds_status ds_pase_graph_read(const ds_model_step *step, ds_pase_graph **out, ds_error *err) {
    reader r = {.step = step,
                .graph = ds_pase_graph_new(),
                .values = ds_xcalloc(step->func->values.n + 1, sizeof *r.values)};
    for (uint32_t i = 0; i < step->func->n_args; i++)
        r.values[step->func->args[i].i].argument = ds_value_at(step->func, step->func->args[i]);
    for (uint32_t w = 0; w < step->weights.n; w++)
        r.values[step->weights.at[w].arg.i].is_weight = true;
    ds_status status = check_train(step, err);
    if (!status) status = count_devices(&r, err);
    ds_map_init(&r.counted);
    if (!status) status = read_block(&r, &step->func->body, NULL, NULL, err);
    if (!status) count_ties(&r);
    if (!status) ds_pase__hold_buffers(r.graph, &r.buffers, &step->train, r.widened);
    ds_map_deinit(&r.counted);
    free(r.buffers.all.at);
    free(r.values);
    *out = NULL;
    if (status)
        ds_pase_graph_free(r.graph);
    else
        *out = r.graph;
    return status;
}
