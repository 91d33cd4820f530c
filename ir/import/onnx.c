/* ONNX graphs as model functions: what is read, in which order, and what is written.
 *
 *   1. The bytes are unpacked under guard (onnx_read.c).
 *   2. Every name is entered once: initializers, inputs, results of nodes, which must stand below
 *      what they read, as ONNX demands. Dims without a number become params.
 *   3. Walking backwards from the outputs tells the nodes that are needed.
 *   4. Those are translated one after the other (onnx_math.c, onnx_nn.c, onnx_layout.c) into ops of
 *      the function; the op table infers every shape. A node that cannot be translated ends it.
 *   5. The function is set into a file that was parsed from text: comment, params, scenario. */
#include "ir/import/onnx_internal.h"

#include "ir/lang/lang.h"

#include <onnx.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUTS   1024u /* of the graph, of a node */
#define MAX_NODES    1000000u
#define OLDEST_OPSET 7

static const char *const reserved[] = {"and",     "or",         "not",  "min",  "max",
                                       "ceildiv", "axis_index", "true", "false"};

/* A name of the language from any text; NULL if nothing is left of it. */
static const char *identifier(ds_onnx *g, const char *text) {
    size_t n = strnlen(text, 60), k = 0;
    char *out = ds_arena_alloc(&g->unit->arena, n + 3);
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool digit = c >= '0' && c <= '9';
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (k == 0 && digit) out[k++] = 'n';
        if (letter || digit)
            out[k++] = c;
        else if (k && out[k - 1] != '_')
            out[k++] = '_';
    }
    while (k && out[k - 1] == '_') k--;
    out[k] = '\0';
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(out, reserved[i]) == 0) strcat(out, "_");
    return k ? out : NULL;
}

/* ---- params: the dims that the graph leaves open ---- */

/* The param of that name; sizes of 1 until --set says more. */
static void open_dim(ds_onnx *g, const char *name) {
    for (uint32_t i = 0; i < g->params.n; i++)
        if (strcmp(g->params.at[i].name, name) == 0) return;
    DS_HPUSH(&g->params, ((ds_import_param){name, 1}));
}

static const char *dim_name(ds_onnx *g, const char *input, uint32_t d,
                            const Onnx__TensorShapeProto__Dimension *dim) {
    bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    const char *name = named ? identifier(g, dim->dim_param) : NULL;
    if (name) return name;
    if (d == 0) return "batch";
    name = identifier(g, input);
    return ds_arena_printf(&g->unit->arena, "%s_dim%u", name ? name : "x", d);
}

static ds_expr param_expr(ds_onnx *g, const char *name) {
    uint32_t i = 0;
    while (strcmp(g->module->params.at[i].name, name) != 0) i++;
    return ds_expr_make(g->exprs, (ds_expr_node){.kind = DS_EXPR_PARAM,
                                                 .name = g->module->params.at[i].name,
                                                 .i = (int64_t)g->module->id << 32 | i});
}

/* ---- inputs ---- */

static ds_status input_type(ds_onnx *g, const Onnx__ValueInfoProto *info,
                            const Onnx__TypeProto__Tensor **out, ds_error *err) {
    const char *name = ds_import__plain(&g->unit->arena, info->name);
    if (!info->type || info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return ds_onnx__refuse(err, "input '%s' is no tensor", name);
    *out = info->type->tensor_type;
    ds_dtype dtype;
    if (!ds_onnx__dtype((*out)->elem_type, &dtype))
        return ds_onnx__refuse(err, "input '%s' has ONNX data type %d, which distsim lacks", name,
                               (*out)->elem_type);
    if (!(*out)->shape)
        return ds_onnx__refuse(err, "input '%s' has no shape; distsim needs its number of dims",
                               name);
    if ((*out)->shape->n_dim > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "input '%s' has %zu dims; at most %d",
                            name, (*out)->shape->n_dim, DS_MAX_RANK);
    for (size_t d = 0; d < (*out)->shape->n_dim; d++) {
        const Onnx__TensorShapeProto__Dimension *dim = (*out)->shape->dim[d];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            dim->dim_value < 1)
            return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "dim %zu of input '%s' is %lld", d,
                                name, (long long)dim->dim_value);
    }
    return DS_OK;
}

/* The inputs that are no initializers (before IR version 4 those are listed too). */
static bool is_fed(ds_onnx *g, const Onnx__ValueInfoProto *info) {
    return !ds_onnx__name(g, info->name)->tensor;
}

static ds_status collect_params(ds_onnx *g, ds_error *err) {
    const Onnx__GraphProto *graph = g->graph;
    if (graph->n_input > MAX_INPUTS + graph->n_initializer)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%zu inputs; at most %u", graph->n_input,
                            MAX_INPUTS);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = graph->input[i];
        const Onnx__TypeProto__Tensor *type;
        if (!info->name || !*info->name)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "input %zu has no name", i);
        if (!is_fed(g, info)) continue;
        DS_TRY(input_type(g, info, &type, err));
        for (uint32_t d = 0; d < type->shape->n_dim; d++) {
            const Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[d];
            if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
                open_dim(g, dim_name(g, info->name, d, dim));
        }
    }
    return DS_OK;
}

static ds_status add_input(ds_onnx *g, const Onnx__ValueInfoProto *info, ds_error *err) {
    const Onnx__TypeProto__Tensor *from;
    ds_dtype dtype;
    ds_expr dims[DS_MAX_RANK];
    bool open_batch = false;
    DS_TRY(input_type(g, info, &from, err));
    ds_onnx__dtype(from->elem_type, &dtype);
    for (uint32_t d = 0; d < from->shape->n_dim; d++) {
        const Onnx__TensorShapeProto__Dimension *dim = from->shape->dim[d];
        bool given = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        dims[d] = given ? ds_expr_int(g->exprs, dim->dim_value)
                        : param_expr(g, dim_name(g, info->name, d, dim));
        if (d == 0) open_batch = !given;
    }
    ds_onnx_name *name = ds_onnx__name(g, info->name);
    if (name->is_defined)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "input '%s' is there twice",
                            ds_import__plain(&g->unit->arena, info->name));
    name->is_defined = true;
    ds_type *type = ds_type_make(&g->unit->arena, dtype, dims, (uint32_t)from->shape->n_dim);
    if (open_batch) {
        type->dims[0].splits = DS_NEW(&g->unit->arena, ds_split);
        type->dims[0].splits->axis = ds_intern(&g->unit->strings, "dp");
        type->dims[0].n_splits = 1;
    }
    const char *wanted = identifier(g, info->name);
    name->value = ds_build_arg(&g->b, wanted ? wanted : "x", type, NULL, 0, NULL, 0);
    name->has_value = true;
    return DS_OK;
}

/* ---- names and the nodes that are needed ---- */

static ds_status enter_initializers(ds_onnx *g, ds_error *err) {
    for (size_t i = 0; i < g->graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = g->graph->initializer[i];
        if (!tensor->name || !*tensor->name)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "initializer %zu has no name", i);
        ds_onnx_name *name = ds_onnx__name(g, tensor->name);
        if (name->tensor)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "initializer '%s' is there twice",
                                ds_import__plain(&g->unit->arena, tensor->name));
        name->tensor = tensor;
        name->is_defined = true;
    }
    return DS_OK;
}

static const char *node_text(ds_onnx *g, const Onnx__NodeProto *node, size_t i) {
    const char *name = node->name && *node->name            ? node->name
                       : node->n_output && *node->output[0] ? node->output[0]
                                                            : "";
    return ds_arena_printf(&g->unit->arena, "node %zu%s%s%s (%s)", i, *name ? " '" : "",
                           ds_import__plain(&g->unit->arena, name), *name ? "'" : "",
                           ds_import__plain(&g->unit->arena, node->op_type ? node->op_type : "?"));
}

static ds_status check_reads(ds_onnx *g, const Onnx__NodeProto *node, size_t i, ds_error *err) {
    if (node->n_input > MAX_INPUTS || node->n_output > MAX_INPUTS)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%s has %zu inputs and %zu outputs; at "
                            "most %u",
                            node_text(g, node, i), node->n_input, node->n_output, MAX_INPUTS);
    for (size_t k = 0; k < node->n_input; k++)
        if (*node->input[k] && !ds_onnx__name(g, node->input[k])->is_defined)
            return ds_error_set(
                err, DS_ERR_DATA, DS_NOWHERE, "%s reads '%s', which nothing above it defines",
                node_text(g, node, i), ds_import__plain(&g->unit->arena, node->input[k]));
    return DS_OK;
}

static ds_status enter_nodes(ds_onnx *g, ds_error *err) {
    const Onnx__GraphProto *graph = g->graph;
    if (graph->n_node > MAX_NODES)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%zu nodes; at most %u", graph->n_node,
                            MAX_NODES);
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        DS_TRY(check_reads(g, node, i, err));
        for (size_t k = 0; k < node->n_output; k++) {
            if (!*node->output[k]) continue;
            ds_onnx_name *name = ds_onnx__name(g, node->output[k]);
            if (name->is_defined)
                return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s defines '%s' a second time",
                                    node_text(g, node, i),
                                    ds_import__plain(&g->unit->arena, node->output[k]));
            name->is_defined = true;
        }
    }
    return DS_OK;
}

static ds_status enter_outputs(ds_onnx *g, ds_error *err) {
    const Onnx__GraphProto *graph = g->graph;
    if (!graph->n_output || graph->n_output > MAX_INPUTS)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the graph has %zu outputs",
                            graph->n_output);
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *text = graph->output[i]->name ? graph->output[i]->name : "";
        ds_onnx_name *name = ds_onnx__name(g, text);
        if (!name->is_defined)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "nothing defines the output '%s'",
                                ds_import__plain(&g->unit->arena, text));
        name->is_needed = true;
    }
    return DS_OK;
}

static bool is_needed(ds_onnx *g, const Onnx__NodeProto *node) {
    for (size_t k = 0; k < node->n_output; k++)
        if (*node->output[k] && ds_onnx__name(g, node->output[k])->is_needed) return true;
    return false;
}

static void mark_needed(ds_onnx *g) {
    for (size_t i = g->graph->n_node; i-- > 0;) {
        const Onnx__NodeProto *node = g->graph->node[i];
        if (!is_needed(g, node)) continue;
        for (size_t k = 0; k < node->n_input; k++)
            if (*node->input[k]) ds_onnx__name(g, node->input[k])->is_needed = true;
    }
}

/* What is known of the initializers that are read. */
static ds_status learn_initializers(ds_onnx *g, ds_error *err) {
    for (size_t i = 0; i < g->graph->n_initializer; i++) {
        ds_onnx_name *name = ds_onnx__name(g, g->graph->initializer[i]->name);
        if (name->is_needed) DS_TRY(ds_onnx__learn(g, name, name->tensor, err));
    }
    return DS_OK;
}

/* ---- nodes ---- */

static const ds_onnx_rule *find_rule(const char *op_type) {
    const ds_onnx_rule *const tables[] = {ds_onnx__math_rules, ds_onnx__nn_rules,
                                          ds_onnx__layout_rules};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const ds_onnx_rule *rule = tables[t]; rule->op_type; rule++)
            if (strcmp(rule->op_type, op_type) == 0) return rule;
    return NULL;
}

static ds_status check_node(const ds_onnx_rule *rule, const Onnx__NodeProto *node, ds_error *err) {
    const char *domain = node->domain ? node->domain : "";
    if (*domain && strcmp(domain, "ai.onnx") != 0)
        return ds_onnx__refuse(err, "an op of the domain '%.60s'; distsim knows ONNX's own",
                               domain);
    if (!rule) return ds_onnx__refuse(err, "distsim's import does not know this op");
    if (node->n_input < rule->min_in || node->n_input > rule->max_in)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "it has %zu inputs", node->n_input);
    for (uint32_t k = 0; k < rule->min_in; k++)
        if (!*node->input[k])
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "its input %u is missing", k);
    if (node->n_output < 1 || node->n_output > rule->max_out)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "it has %zu outputs", node->n_output);
    return DS_OK;
}

static ds_status translate(ds_onnx *g, const Onnx__NodeProto *node, ds_error *err) {
    const ds_onnx_rule *rule = node->op_type ? find_rule(node->op_type) : NULL;
    DS_TRY(check_node(rule, node, err));
    g->node = node;
    g->note = NULL;
    g->first_value = g->b.func->values.n;
    g->n_in = (uint32_t)node->n_input;
    g->in = DS_NEW_N(&g->unit->arena, ds_onnx_name *, g->n_in + 1);
    for (uint32_t k = 0; k < g->n_in; k++)
        g->in[k] = *node->input[k] ? ds_onnx__name(g, node->input[k]) : NULL;
    return rule->translate(g, err);
}

/* Says which node an error is about; most come from the op table, which knows no ONNX. */
static ds_status blame(ds_onnx *g, const Onnx__NodeProto *node, size_t i, ds_error *err) {
    if (!err) return DS_ERR_UNSUPPORTED;
    const char *what = ds_arena_strdup(&g->unit->arena, err->message);
    return ds_error_set(err, err->code, DS_NOWHERE, "%s: %s", node_text(g, node, i), what);
}

static ds_status translate_all(ds_onnx *g, ds_error *err) {
    ds_error own;
    if (!err) err = &own;
    for (size_t i = 0; i < g->graph->n_node; i++) {
        const Onnx__NodeProto *node = g->graph->node[i];
        if (is_needed(g, node) && translate(g, node, err) != DS_OK) return blame(g, node, i, err);
    }
    return DS_OK;
}

/* An output that is an argument, a weight or a constant is legal, if odd. */
static ds_status return_outputs(ds_onnx *g, ds_error *err) {
    const Onnx__GraphProto *graph = g->graph;
    ds_use *uses = DS_NEW_N(&g->unit->arena, ds_use, graph->n_output);
    ds_onnx_name **in = DS_NEW_N(&g->unit->arena, ds_onnx_name *, graph->n_output);
    for (uint32_t i = 0; i < graph->n_output; i++) in[i] = ds_onnx__name(g, graph->output[i]->name);
    g->in = in;
    g->n_in = (uint32_t)graph->n_output;
    for (uint32_t i = 0; i < g->n_in; i++) DS_TRY(ds_onnx__use(g, i, &uses[i], err));
    return ds_build_return(&g->b, uses, g->n_in, err);
}

/* ---- the file ---- */

static const char *function_name(ds_onnx *g) {
    const char *name = g->graph->name ? identifier(g, g->graph->name) : NULL;
    return name ? name : "model";
}

/* The param of the first input's dim 0, for throughput. */
static const char *batch_name(ds_onnx *g) {
    for (size_t i = 0; i < g->graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = g->graph->input[i];
        if (!is_fed(g, info)) continue;
        const Onnx__TensorShapeProto *shape = info->type->tensor_type->shape;
        if (!shape->n_dim) return NULL;
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[0];
        bool given = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        return given ? NULL : dim_name(g, info->name, 0, dim);
    }
    return NULL;
}

/* Everything around the function, as text. */
static void put_frame(ds_onnx *g, const ds_import_options *options, const Onnx__ModelProto *model,
                      ds_buf *out) {
    ds_arena *arena = &g->unit->arena;
    ds_buf_put(out, "dir 1\n\n// Imported");
    if (options->source) ds_buf_printf(out, " from %s", ds_import__plain(arena, options->source));
    ds_buf_printf(out, " (ONNX, opset %lld", (long long)g->opset);
    if (model->producer_name && *model->producer_name)
        ds_buf_printf(out, ", made by %s", ds_import__plain(arena, model->producer_name));
    ds_buf_put(out, "). Shapes only: weights have no values here.\n");
    if (g->params.n) ds_buf_put(out, "// The params are the sizes that the graph leaves open.\n");
    ds_import__put_on(options, out);
    ds_import__put_params(g->params.at, g->params.n, out);
    ds_import__put_scenario(options, NULL, function_name(g), "train = off", DS_IMPORT_ALONE,
                            batch_name(g), out);
}

static bool is_read(const ds_op *op, const bool *read) {
    bool any = op->code == DS_OP_RETURN;
    for (uint32_t i = 0; i < op->n_out; i++) any = any || read[op->out[i].i];
    return any;
}

/* Drops what nothing reads, as x/√2 where a gelu took its place. No op here has other effects. */
static void drop_unread(ds_func *func) {
    bool *read = ds_xcalloc(func->values.n + 1, sizeof *read);
    ds_block *body = &func->body;
    uint32_t kept = body->n_ops;
    for (uint32_t i = body->n_ops; i-- > 0;) {
        ds_op *op = body->ops[i];
        if (!is_read(op, read)) continue;
        for (uint32_t k = 0; k < op->n_in; k++) read[op->in[k].value.i] = true;
        body->ops[--kept] = op;
    }
    body->n_ops -= kept;
    memmove(body->ops, body->ops + kept, body->n_ops * sizeof(ds_op *));
    free(read);
}

/* Sets the function into the module, before the scenario. */
static void set_function(ds_onnx *g, ds_func *func) {
    ds_module *module = g->module;
    func->trivia.blank_before = true;
    DS_PUSH(&g->unit->arena, &module->funcs, func);
    ds_item item = {DS_ITEM_FUNC, module->funcs.n - 1};
    DS_PUSH(&g->unit->arena, &module->items, item);
    for (uint32_t k = module->items.n - 1;
         k > 0 && module->items.at[k - 1].kind == DS_ITEM_SCENARIO; k--) {
        module->items.at[k] = module->items.at[k - 1];
        module->items.at[k - 1] = item;
    }
}

static ds_status build_model(ds_onnx *g, ds_error *err) {
    for (size_t i = 0; i < g->graph->n_input; i++)
        if (is_fed(g, g->graph->input[i])) DS_TRY(add_input(g, g->graph->input[i], err));
    DS_TRY(enter_nodes(g, err));
    DS_TRY(enter_outputs(g, err));
    mark_needed(g);
    DS_TRY(learn_initializers(g, err));
    DS_TRY(translate_all(g, err));
    return return_outputs(g, err);
}

static ds_status find_opset(ds_onnx *g, const Onnx__ModelProto *model, ds_error *err) {
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;
        if (!domain || !*domain || strcmp(domain, "ai.onnx") == 0)
            g->opset = model->opset_import[i]->version;
    }
    if (g->opset < OLDEST_OPSET)
        return ds_onnx__refuse(err, "opset %lld; %d is the oldest that distsim reads",
                               (long long)g->opset, OLDEST_OPSET);
    return DS_OK;
}

static ds_status import(ds_onnx *g, const Onnx__ModelProto *model, const ds_import_options *options,
                        ds_buf *out, ds_error *err) {
    if (!model->graph)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "this is no ONNX model: it has no graph");
    g->graph = model->graph;
    DS_TRY(find_opset(g, model, err));
    DS_TRY(enter_initializers(g, err));
    DS_TRY(collect_params(g, err));
    DS_TRY(ds_import__set(options, g->params.at, g->params.n, err));
    ds_buf frame = {0};
    put_frame(g, options, model, &frame);
    g->module = ds_unit_add_module(g->unit, "imported.dir", frame.text, frame.n);
    ds_buf_deinit(&frame);
    DS_TRY(ds_parse(g->module, err));
    ds_build_func(&g->b, g->module, function_name(g), true);
    ds_status status = build_model(g, err);
    ds_func *func = ds_build_end(&g->b);
    if (status != DS_OK) return status;
    drop_unread(func);
    set_function(g, func);
    ds_print_module(g->module, out);
    return DS_OK;
}

ds_status ds_import_onnx(const char *bytes, size_t n, const ds_import_options *options, ds_buf *out,
                         ds_error *err) {
    Onnx__ModelProto *model;
    DS_TRY(ds_onnx__read((const uint8_t *)bytes, n, &model, err));
    ds_onnx g = {.unit = ds_unit_new()};
    g.exprs = &g.unit->exprs;
    ds_map_init(&g.ids);
    ds_status status = import(&g, model, options, out, err);
    ds_map_deinit(&g.ids);
    free(g.names.at);
    free(g.params.at);
    ds_unit_free(g.unit);
    ds_onnx__free(model);
    if (status != DS_OK)
        ds_error_move(err, DS_NOWHERE); /* a place in the unit is none in the file */
    return status;
}
