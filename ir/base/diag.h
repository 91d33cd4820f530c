/* A list of diagnostics: what the verifier finds, all of it, in source order. The list owns all of
 * its text, names of files included. */
#ifndef DS_BASE_DIAG_H
#define DS_BASE_DIAG_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/json.h"

typedef enum ds_severity { DS_SEV_ERROR, DS_SEV_WARNING } ds_severity;

typedef struct ds_diag {
    ds_severity severity;
    ds_status code;
    ds_loc loc;
    const char *message;
    const char *hint; /* "did you mean …", or NULL */
} ds_diag;

typedef struct ds_diags {
    ds_arena arena;
    DS_VEC(ds_diag) all;
    uint32_t n_errors;
} ds_diags;

void ds_diags_init(ds_diags *diags);
void ds_diags_deinit(ds_diags *diags);
void ds_diags_add(ds_diags *diags, ds_severity severity, ds_status code, ds_loc loc,
                  const char *hint, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Adds a ds_error as an error. */
void ds_diags_add_error(ds_diags *diags, const ds_error *err);
/* The warnings as the member "warnings" of an object: places and messages. */
void ds_diags_put_json(const ds_diags *diags, ds_json *json);

#endif
