/* Files and their imports.
 *
 * An import without `as` and `with` is loaded once a unit, by its real path; with one of them it is
 * an instance of its own, since its params may differ. The files being loaded form a chain, in
 * which a real path that occurs twice is a cycle. */
#include "ir/lang/library.h"

#include "ir/base/file.h"
#include "ir/lang/parse.h"

#include <stdlib.h>
#include <string.h>

/* Aliased imports are instances: without a limit a chain of files that import the next one twice
 * would double at each step. */
#define MAX_MODULES 1024u

typedef struct file {
    char *real; /* heap: realpath, or NULL for a text in memory */
    const char *shown;
    ds_loc import_loc;
    const struct file *up; /* the file that imports it */
} file;

typedef struct loaded {
    const char *real; /* interned */
    ds_module *module;
} loaded;

typedef struct loader {
    ds_unit *unit;
    const ds_load_options *options;
    DS_VEC(loaded) shared; /* heap */
    ds_error *err;
} loader;

/* ---- loading ---- */

static ds_status load_imports(loader *l, ds_module *module, const file *self);

static ds_status refuse_cycle(loader *l, const file *self) {
    for (const file *at = self->up; at; at = at->up) {
        if (!at->real || !self->real || strcmp(at->real, self->real) != 0) continue;
        ds_buf chain = {0};
        ds_buf_put(&chain, self->shown);
        for (const file *link = self->up; link != at->up; link = link->up)
            ds_buf_printf(&chain, " <- %s", link->shown);
        ds_status status = ds_error_set(l->err, DS_ERR_NAME, self->import_loc,
                                        "imports go in a circle: %s", chain.text);
        ds_buf_deinit(&chain);
        return status;
    }
    return DS_OK;
}

static ds_status load_module(loader *l, const file *self, const char *text, size_t n,
                             ds_module **out) {
    if (l->unit->modules.n == MAX_MODULES)
        return ds_error_set(l->err, DS_ERR_LIMIT, self->import_loc,
                            "more than %u imported modules in one program", MAX_MODULES);
    ds_module *module = ds_unit_add_module(l->unit, self->shown, text, n);
    *out = module;
    DS_TRY(ds_parse(module, l->err));
    return load_imports(l, module, self);
}

static ds_module *find_shared(const loader *l, const char *real) {
    for (uint32_t k = 0; k < l->shared.n; k++)
        if (strcmp(l->shared.at[k].real, real) == 0) return l->shared.at[k].module;
    return NULL;
}

static ds_status read_and_load(loader *l, const file *self, ds_module **out) {
    ds_buf text = {0};
    ds_status status =
        ds_file_read(self->shown, self->import_loc, DS_LOAD_MAX_BYTES, &text, l->err);
    if (!status) status = load_module(l, self, text.text, text.n, out);
    ds_buf_deinit(&text);
    return status;
}

static ds_status load_import(loader *l, ds_import *import, file *self) {
    bool own = import->alias || import->n_with;
    DS_TRY(refuse_cycle(l, self));
    if (!own && self->real) import->module = find_shared(l, self->real);
    if (import->module) return DS_OK;
    DS_TRY(read_and_load(l, self, &import->module));
    if (!own && self->real) {
        const char *real = ds_intern(&l->unit->strings, self->real);
        DS_HPUSH(&l->shared, ((loaded){real, import->module}));
    }
    return DS_OK;
}

static ds_status load_imports(loader *l, ds_module *module, const file *self) {
    for (uint32_t k = 0; k < module->imports.n; k++) {
        ds_import *import = &module->imports.at[k];
        char *path = NULL;
        DS_TRY(ds_library_import(module->path, import, l->options, &path, l->err));
        file next = {ds_file_real_path(path), path, import->loc, self};
        ds_status status = load_import(l, import, &next);
        free(next.real);
        free(path);
        if (status) return status;
    }
    return DS_OK;
}

ds_status ds_load_say(ds_unit *unit, const ds_setting *setting, ds_error *err) {
    return ds_lang__say(unit, setting, &(ds_load_options){0}, err);
}

ds_status ds_load_text(const char *path, const char *text, size_t n, const ds_load_options *options,
                       ds_unit **out, ds_error *err) {
    *out = ds_unit_new();
    loader l = {.unit = *out, .options = options, .err = err};
    file root = {.real = ds_file_real_path(path), .shown = path, .import_loc = DS_NOWHERE};
    ds_module *module;
    ds_status status = load_module(&l, &root, text, n, &module);
    free(root.real);
    free(l.shared.at);
    for (uint32_t i = 0; options && i < options->n_settings && status == DS_OK; i++)
        status = ds_lang__say(*out, &options->settings[i], options, err);
    return status;
}

ds_status ds_load_file(const char *path, const ds_load_options *options, ds_unit **out,
                       ds_error *err) {
    ds_buf text = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, DS_LOAD_MAX_BYTES, &text, err);
    if (!status)
        status = ds_load_text(path, text.text ? text.text : "", text.n, options, out, err);
    else
        *out = ds_unit_new();
    ds_buf_deinit(&text);
    return status;
}
