/* A program outside the tree: reads, verifies and binds a text through the installed library. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <stdio.h>
#include <string.h>

static const char text[] = "dir 1\n"
                           "param n = 2\n"
                           "func @f(%x: f32[2 * n, 3]) -> f32[2 * n, 3] {\n"
                           "  %y = relu(%x)\n"
                           "  return %y\n"
                           "}\n";

int main(void) {
    ds_unit *unit = NULL;
    ds_error err;
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_load_text("embed.dir", text, strlen(text), NULL, &unit, &err);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    ds_binding binding;
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, &err);
    int64_t n = status == DS_OK ? binding.params[0][0].i : -1;
    printf("%s, n = %d\n", ds_status_name(status), (int)n);
    ds_diags_deinit(&diags);
    if (unit) ds_unit_free(unit);
    return status == DS_OK && n == 2 ? 0 : 1;
}
