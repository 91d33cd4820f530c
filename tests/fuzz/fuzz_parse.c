/* Any bytes through the parser, and what parses through print and back and through the verifier.
 *
 * Imports are not followed: the input is the whole program. What must hold: no crash, no leak, no
 * hang, print is stable, and what was printed parses; after the verifier too, which adds types. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const ds_unit *unit, const ds_error *err, const char *what, const char *text) {
    ds_buf report = {0};
    ds_error_print(unit, err, &report);
    fprintf(stderr, "%s\n%s\n%s", what, report.text, text);
    ds_buf_deinit(&report);
    abort();
}

/* Parses what was printed and prints it again: the text must be the same. */
static void check_print(const ds_module *module) {
    ds_buf once = {0}, twice = {0};
    ds_error err = {0};
    ds_print_module(module, &once);
    ds_unit *unit = ds_unit_new();
    ds_module *again = ds_unit_add_module(unit, "printed.dir", once.text, once.n);
    if (ds_parse(again, &err)) fail(unit, &err, "printed text does not parse", once.text);
    ds_print_module(again, &twice);
    if (strcmp(once.text, twice.text) != 0) fail(unit, &err, "print is not stable", once.text);
    ds_unit_free(unit);
    ds_buf_deinit(&once);
    ds_buf_deinit(&twice);
}

static void verify(ds_unit *unit) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_binding binding;
    ds_buf report = {0};
    if (ds_verify(unit, &diags) == DS_OK && ds_bind(unit, NULL, 0, &binding, NULL) == DS_OK)
        ds_verify_bound(unit, &binding, &diags);
    for (uint32_t k = 0; k < diags.all.n && k < 8; k++)
        ds_diag_print(unit, &diags.all.at[k], &report);
    ds_buf_deinit(&report);
    ds_diags_deinit(&diags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "fuzz.dir", (const char *)data, size);
    ds_error err = {0};
    if (ds_parse(module, &err) == DS_OK) {
        check_print(module);
        if (module->imports.n == 0) {
            verify(unit);
            check_print(module);
        }
    } else {
        ds_buf report = {0};
        ds_error_print(unit, &err, &report);
        ds_buf_deinit(&report);
    }
    ds_unit_free(unit);
    return 0;
}
