#include "tests/support/import_topo.h"

#include "ir/base/file.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <string.h>

static void check_text(const ds_buf *text) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "imported.dir", text->text, text->n);
    ds_error err = {0};
    ds_diags diags;
    ds_binding binding;
    ds_buf again = {0};
    ds_diags_init(&diags);
    cr_assert_eq(ds_parse(module, &err), DS_OK, "%s\n%s", err.message, text->text);
    ds_print_module(module, &again);
    cr_assert_str_eq(again.text, text->text, "not canonical");
    cr_assert_eq(ds_verify(unit, &diags), DS_OK, "%s\n%s", diags.all.at[0].message, text->text);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify_bound(unit, &binding, &diags), DS_OK, "%s", text->text);
    ds_buf_deinit(&again);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
}

topo_text import_topo(ds_importer *importer, const char *input, const ds_import_options *options,
                      ds_buf *text) {
    ds_import_options none = {0};
    ds_buf own = {0};
    ds_error err = {0};
    ds_status status = importer(input, strlen(input), options ? options : &none, &own, &err);
    cr_assert_eq(status, DS_OK, "%u:%u: %s", err.loc.line, err.loc.col, err.message);
    check_text(&own);
    topo_text t = topo_text_build(own.text + strlen("dir 1\n"));
    if (text) ds_buf_put(text, own.text);
    ds_buf_deinit(&own);
    return t;
}

topo_text import_topo_file(ds_importer *importer, const char *name,
                           const ds_import_options *options, ds_buf *text) {
    ds_buf path = {0}, input = {0};
    ds_error err = {0};
    ds_buf_printf(&path, "%s/data/topo/%s", DS_TEST_DIR, name);
    cr_assert_eq(ds_file_read(path.text, DS_NOWHERE, 1 << 22, &input, &err), DS_OK, "%s",
                 err.message);
    topo_text t = import_topo(importer, input.text, options, text);
    ds_buf_deinit(&path);
    ds_buf_deinit(&input);
    return t;
}

double route_rate(const ds_topo *topo, const ds_route *route) {
    double least = 0;
    for (uint32_t i = 0; i < route->n_links; i++) {
        double rate = (double)ds_topo_link_at(topo, route->links[i])->bytes_per_s * 0x1p32 /
                      (double)route->share_q32[i];
        if (i == 0 || rate < least) least = rate;
    }
    return least;
}

const ds_route *device_route(ds_topo *topo, uint32_t from, uint32_t to) {
    const ds_route *route;
    ds_error err = {0};
    cr_assert_eq(ds_topo_route(topo, from, to, &route, &err), DS_OK, "%s", err.message);
    return route;
}
