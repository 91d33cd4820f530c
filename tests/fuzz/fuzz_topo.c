/* Any bytes through the importers of topologies: no crash, no leak, no hang; and what they write
 * parses, verifies, is canonical and builds, and comes back from GraphML with as many vertices and
 * links. A first byte of '<' is XML: GraphML if it says so, else NCCL's; all else is a table. */
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/lang/verify.h"
#include "sim/topo/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, const char *message, const ds_buf *text) {
    fprintf(stderr, "%s: %s\n%s", what, message, text->text);
    abort();
}

static void import_again(const ds_topo *topo, uint32_t *n_vertices, uint32_t *n_links);

/* Checks what was written; the numbers of vertices and links of its topology. */
static void check(const ds_buf *text, bool again, uint32_t *n_vertices, uint32_t *n_links) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "imported.dir", text->text, text->n);
    ds_error err = {0};
    ds_diags diags;
    ds_binding binding;
    ds_topo *topo = NULL;
    ds_buf printed = {0};
    ds_diags_init(&diags);
    if (ds_parse(module, &err) != DS_OK) fail("does not parse", err.message, text);
    ds_print_module(module, &printed);
    if (printed.n != text->n || memcmp(printed.text, text->text, text->n) != 0)
        fail("is not canonical", printed.text, text);
    if (ds_verify(unit, &diags) != DS_OK) fail("does not verify", diags.all.at[0].message, text);
    if (ds_bind(unit, NULL, 0, &binding, &err) != DS_OK) fail("does not bind", err.message, text);
    if (ds_topo_build(&binding, module->topologies.at[0], &topo, &err) != DS_OK)
        fail("does not build", err.message, text);
    *n_vertices = ds_topo_n_vertices(topo);
    *n_links = ds_topo_n_links(topo);
    if (!again) {
        uint32_t vertices, links;
        import_again(topo, &vertices, &links);
        if (vertices != *n_vertices || links != *n_links) fail("is not the same", "GraphML", text);
    }
    ds_topo_free(topo);
    ds_buf_deinit(&printed);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
}

static void import_again(const ds_topo *topo, uint32_t *n_vertices, uint32_t *n_links) {
    ds_buf graphml = {0}, text = {0};
    ds_import_options none = {0};
    ds_error err = {0};
    ds_topo_print_graphml(topo, &graphml, &err);
    if (ds_import_graphml(graphml.text, graphml.n, &none, &text, &err) != DS_OK)
        fail("does not come back", err.message, &graphml);
    check(&text, true, n_vertices, n_links);
    ds_buf_deinit(&graphml);
    ds_buf_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    ds_import_options options = {.source = "fuzz", .device = size % 2 ? "A100-SXM4-80GB" : NULL};
    ds_buf text = {0};
    ds_error err = {0};
    ds_status status;
    uint32_t n_vertices, n_links;
    bool graphml = false;
    for (size_t i = 0; i + 8 <= size && i < 200; i++)
        graphml |= memcmp(bytes + i, "<graphml", 8) == 0;
    if (graphml)
        status = ds_import_graphml(bytes, size, &options, &text, &err);
    else if (size && data[0] == '<')
        status = ds_import_nccl_topo(bytes, size, &options, &text, &err);
    else
        status = ds_import_nvidia_smi(bytes, size, &options, &text, &err);
    if (status == DS_OK) check(&text, false, &n_vertices, &n_links);
    ds_buf_deinit(&text);
    return 0;
}
