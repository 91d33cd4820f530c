/* Any bytes through the importers, Hugging Face and ONNX: no crash, no leak, no hang; and what they
 * write parses, verifies and is canonical. A first byte of '{' is a config, all else a model. */
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/lang/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, const char *message, const ds_buf *text) {
    fprintf(stderr, "%s: %s\n%s", what, message, text->text);
    abort();
}

static void check(const ds_buf *text, bool has_imports) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "imported.dir", text->text, text->n);
    ds_error err = {0};
    ds_diags diags;
    ds_buf again = {0};
    ds_diags_init(&diags);
    if (ds_parse(module, &err) != DS_OK) fail("does not parse", err.message, text);
    ds_print_module(module, &again);
    if (again.n != text->n || memcmp(again.text, text->text, text->n) != 0)
        fail("is not canonical", again.text, text);
    if (!has_imports && ds_verify(unit, &diags) != DS_OK)
        fail("does not verify", diags.all.at[0].message, text);
    ds_buf_deinit(&again);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool is_hf = size && data[0] == '{';
    ds_import_options hf = {
        .source = "fuzz.json", .on_file = "topologies/dgx-a100.dir", .on_name = "dgx_a100"};
    ds_import_options onnx = {.source = "fuzz.onnx"};
    ds_buf text = {0};
    ds_error err;
    ds_status status = is_hf ? ds_import_hf((const char *)data, size, &hf, &text, &err)
                             : ds_import_onnx(data, size, &onnx, &text, &err);
    if (status == DS_OK) check(&text, is_hf);
    ds_buf_deinit(&text);
    return 0;
}
