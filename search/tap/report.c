#include "search/tap/tap.h"

#include <inttypes.h>
#include <stdio.h>

static const char *path_of(const ds_tap_fold *fold, uint32_t v) {
    const char *path = fold->graph->nodes.at[v].path;
    return path ? path : "?";
}

static void put_run(const ds_tap_fold *fold, const ds_tap_run *run, ds_buf *out) {
    uint32_t last = run->start + run->copies * run->period - 1;
    ds_buf_printf(out, "%u x %u operations, %s to %s; between two:", run->copies, run->period,
                  path_of(fold, run->start), path_of(fold, last));
    for (uint32_t i = 0; i < run->n_state; i++)
        ds_buf_printf(out, " %s", path_of(fold, run->start + run->state[i]));
    if (run->n_state == 0) ds_buf_printf(out, " nothing");
    for (uint32_t i = 0; i < run->n_global; i++)
        ds_buf_printf(out, "%s %s", i ? "," : "; all of them and", path_of(fold, run->global[i]));
    ds_buf_putc(out, '\n');
}

void ds_tap_print_fold(const ds_tap_fold *fold, ds_buf *out) {
    for (uint32_t r = 0; r < fold->runs.n; r++) put_run(fold, &fold->runs.at[r], out);
    ds_buf_printf(out, "folded: %u operations of %u are searched\n", fold->n_unique,
                  fold->graph->nodes.n);
}

void ds_tap_print_meshes(const ds_tap_meshes *meshes, const ds_pase_model *model, ds_buf *out) {
    for (uint32_t i = 0; i < meshes->meshes.n; i++) {
        const ds_tap_mesh *m = &meshes->meshes.at[i];
        char name[64];
        snprintf(name, sizeof name, "mesh dp %" PRId64 " x tp %" PRId64, m->dp, m->tp);
        ds_buf_printf(out, "%-34s %.2f %s", name, m->cost, model->unit);
        if (model->memory)
            ds_buf_printf(out, ", %.3f GB%s", m->memory_bytes / 1e9,
                          m->fits ? "" : ": does not fit");
        ds_buf_printf(out, "%s\n", i == meshes->best ? ", the best" : "");
    }
}

static void put_paths(const ds_tap_fold *fold, const char *key, const uint32_t *at, uint32_t n,
                      uint32_t start, ds_json *json) {
    ds_json_key(json, key);
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) ds_json_string(json, path_of(fold, start + at[i]));
    ds_json_end_array(json);
}

void ds_tap_put_json(const ds_tap_fold *fold, const ds_tap_meshes *meshes, ds_json *json) {
    ds_json_key_int(json, "searched_nodes", fold->n_unique);
    ds_json_key(json, "blocks");
    ds_json_begin_array(json);
    for (uint32_t r = 0; r < fold->runs.n; r++) {
        const ds_tap_run *run = &fold->runs.at[r];
        ds_json_begin_object(json);
        ds_json_key_int(json, "copies", run->copies);
        ds_json_key_int(json, "nodes", run->period);
        ds_json_key_string(json, "first", path_of(fold, run->start));
        put_paths(fold, "between", run->state, run->n_state, run->start, json);
        put_paths(fold, "with_all", run->global, run->n_global, 0, json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    if (!meshes) return;
    ds_json_key(json, "meshes");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < meshes->meshes.n; i++) {
        const ds_tap_mesh *m = &meshes->meshes.at[i];
        ds_json_begin_object(json);
        ds_json_key_int(json, "dp", m->dp);
        ds_json_key_int(json, "tp", m->tp);
        ds_json_key_double(json, "cost", m->cost);
        ds_json_key_double(json, "memory_bytes", m->memory_bytes);
        ds_json_key_bool(json, "fits", m->fits);
        ds_json_key_bool(json, "best", i == meshes->best);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}
