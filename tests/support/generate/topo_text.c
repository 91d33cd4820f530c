#include "tests/support/generate/topo_text.h"

#include "ir/lang/lang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ds_status build_last(topo_text *out, const ds_setting *settings, uint32_t n_settings,
                            ds_error *err) {
    DS_TRY(ds_bind(out->unit, settings, n_settings, &out->binding, err));
    const ds_module *module = out->unit->modules.at[0];
    const ds_topology *last = module->topologies.at[module->topologies.n - 1];
    return ds_topo_build(&out->binding, last, &out->topo, err);
}

ds_status topo_text_try(const char *text, topo_text *out, ds_error *err) {
    memset(out, 0, sizeof *out);
    ds_buf whole = {0};
    ds_buf_printf(&whole, "dir 1\n%s", text);
    out->unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(out->unit, "test.dir", whole.text, whole.n);
    ds_buf_deinit(&whole);
    DS_TRY(ds_parse(module, err));
    return build_last(out, NULL, 0, err);
}

static void must(ds_status status, const ds_error *err, const char *what) {
    if (!status) return;
    fprintf(stderr, "%s:%u:%u: %s\n", what, err->loc.line, err->loc.col, err->message);
    abort();
}

topo_text topo_text_build(const char *text) {
    topo_text t;
    ds_error err = {0};
    must(topo_text_try(text, &t, &err), &err, text);
    return t;
}

topo_text topo_text_load(const char *path, const ds_setting *settings, uint32_t n_settings) {
    topo_text t = {0};
    ds_error err = {0};
    ds_buf full = {0};
    ds_buf_printf(&full, "%s/%s", DS_SOURCE_DIR, path);
    must(ds_load_file(full.text, NULL, &t.unit, &err), &err, path);
    must(build_last(&t, settings, n_settings, &err), &err, path);
    ds_buf_deinit(&full);
    return t;
}

void topo_text_free(topo_text *t) {
    ds_topo_free(t->topo);
    ds_unit_free(t->unit);
    memset(t, 0, sizeof *t);
}

uint32_t topo_text_vertex(const topo_text *t, const char *path) {
    uint32_t vertex = ds_topo_find_vertex(t->topo, path);
    if (vertex == UINT32_MAX) {
        fprintf(stderr, "no vertex %s\n", path);
        abort();
    }
    return vertex;
}

const ds_route *topo_text_route(const topo_text *t, const char *from, const char *to) {
    const ds_route *route = NULL;
    ds_error err;
    ds_status status = ds_topo_route_vertices(t->topo, topo_text_vertex(t, from),
                                              topo_text_vertex(t, to), &route, &err);
    return status ? NULL : route;
}
