/* All meshes dp x tp, one search each. */
#include "search/tap/tap.h"

#include <stdlib.h>

static ds_pase_graph *marked(const ds_pase_graph *graph) {
    ds_pase_graph *copy = ds_pase_graph_new();
    copy->all_devices = graph->all_devices;
    int8_t *batch = ds_pase_batch_axes(graph);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        ds_pase_node node = graph->nodes.at[v];
        node.data = batch[v] < 0 ? 0 : 1u << batch[v];
        DS_PUSH(&copy->arena, &copy->nodes, node);
    }
    for (uint32_t e = 0; e < graph->edges.n; e++)
        DS_PUSH(&copy->arena, &copy->edges, graph->edges.at[e]);
    free(batch);
    return copy;
}

static bool is_better(const ds_tap_mesh *a, const ds_tap_mesh *b) {
    if (a->fits != b->fits) return a->fits;
    return a->fits ? a->cost < b->cost : a->memory_bytes < b->memory_bytes;
}

/* One mesh; what it finds is kept if it is the best so far. */
static ds_status try_mesh(ds_pase_model *model, int64_t tp, const ds_pase_options *options,
                          ds_tap_meshes *all, ds_error *err) {
    ds_tap_fold *fold = NULL;
    ds_pase_result *r = NULL;
    ds_tap_mesh mesh = {.dp = model->limits.devices / tp, .tp = tp};
    model->limits.mesh[0] = mesh.dp;
    model->limits.mesh[1] = mesh.tp;
    DS_TRY(ds_tap_fold_new(all->graph, model, &fold, err));
    ds_status status = ds_tap_search(fold, model, options, &r, err);
    if (status) {
        ds_tap_fold_free(fold);
        return status;
    }
    mesh.cost = r->cost;
    mesh.memory_bytes = r->memory_bytes;
    mesh.fits = r->fits;
    DS_PUSH(&all->arena, &all->meshes, mesh);
    if (!all->result || is_better(&mesh, &all->meshes.at[all->best])) {
        ds_pase_result *old = all->result;
        ds_tap_fold *old_fold = all->fold;
        all->best = all->meshes.n - 1;
        all->result = r;
        all->fold = fold;
        r = old;
        fold = old_fold;
    }
    ds_pase_result_free(r);
    ds_tap_fold_free(fold);
    return DS_OK;
}

ds_status ds_tap_search_meshes(const ds_pase_graph *graph, ds_pase_model *model, int64_t tp,
                               const ds_pase_options *options, ds_tap_meshes **out, ds_error *err) {
    ds_tap_meshes *all = ds_xcalloc(1, sizeof *all);
    ds_pase_limits limits = model->limits;
    ds_status status = DS_OK;
    ds_arena_init(&all->arena);
    all->graph = marked(graph);
    int64_t first = tp > 0 ? tp : 1, last = tp > 0 ? tp : limits.devices;
    for (int64_t t = first; t <= last && !status; t++)
        if (limits.devices % t == 0) status = try_mesh(model, t, options, all, err);
    model->limits = limits;
    *out = NULL;
    if (status)
        ds_tap_meshes_free(all);
    else
        *out = all;
    return status;
}

void ds_tap_meshes_free(ds_tap_meshes *meshes) {
    if (!meshes) return;
    ds_pase_result_free(meshes->result);
    ds_tap_fold_free(meshes->fold);
    ds_pase_graph_free(meshes->graph);
    ds_arena_deinit(&meshes->arena);
    free(meshes);
}
