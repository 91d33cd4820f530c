#include "ir/base/diag.h"

#include <stdarg.h>
#include <stdio.h>

void ds_diags_init(ds_diags *diags) {
    *diags = (ds_diags){0};
    ds_arena_init(&diags->arena);
}

void ds_diags_deinit(ds_diags *diags) {
    ds_arena_deinit(&diags->arena);
    *diags = (ds_diags){0};
}

static void push_diag(ds_diags *diags, ds_diag diag) {
    if (diag.loc.file) diag.loc.file = ds_arena_strdup(&diags->arena, diag.loc.file);
    DS_PUSH(&diags->arena, &diags->all, diag);
    if (diag.severity == DS_SEV_ERROR) diags->n_errors++;
}

void ds_diags_add(ds_diags *diags, ds_severity severity, ds_status code, ds_loc loc,
                  const char *hint, const char *format, ...) {
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    size_t size = n > 0 ? (size_t)n + 1 : 1;
    char *message = ds_arena_alloc(&diags->arena, size);
    vsnprintf(message, size, format, again);
    va_end(again);
    push_diag(diags, (ds_diag){.severity = severity,
                               .code = code,
                               .loc = loc,
                               .message = message,
                               .hint = hint ? ds_arena_strdup(&diags->arena, hint) : NULL});
}

void ds_diags_add_error(ds_diags *diags, const ds_error *err) {
    push_diag(diags, (ds_diag){.severity = DS_SEV_ERROR,
                               .code = err->code,
                               .loc = ds_error_loc(err),
                               .message = ds_arena_strdup(&diags->arena, err->message)});
}

void ds_diags_put_json(const ds_diags *diags, ds_json *json) {
    ds_json_key(json, "warnings");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < diags->all.n; i++) {
        const ds_diag *diag = &diags->all.at[i];
        ds_buf place = {0};
        if (diag->severity != DS_SEV_WARNING) continue;
        ds_buf_printf(&place, "%s:%u:%u", diag->loc.file ? diag->loc.file : "", diag->loc.line,
                      diag->loc.col);
        ds_json_begin_object(json);
        ds_json_key_string(json, "place", place.text);
        ds_json_key_string(json, "message", diag->message);
        ds_json_end_object(json);
        ds_buf_deinit(&place);
    }
    ds_json_end_array(json);
}
