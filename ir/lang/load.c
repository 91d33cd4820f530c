/* Files and their imports.
 *
 * An import without `as` and `with` is loaded once a unit, by its real path; with one of them it is
 * an instance of its own, since its params may differ. The files being loaded form a chain, in
 * which a real path that occurs twice is a cycle.
 *
 * Candidate paths are built textually from the importing file's path, so that diagnostics show
 * paths relative to where distsim was started, as the user wrote them. */
#include "ir/lang/lang.h"

#include "ir/base/file.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- files ---- */

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

/* ---- search ---- */

/* The folders in which an import is looked for, tried in order. */
typedef struct search {
    const char *wanted;
    char *found; /* heap */
    ds_buf tried;
} search;

static bool try_folder(search *s, const char *folder, size_t n) {
    if (s->found) return true;
    ds_buf path = {0};
    if (n == 0 || (n == 1 && folder[0] == '.'))
        ds_buf_put(&path, s->wanted);
    else
        ds_buf_printf(&path, "%.*s%s%s", (int)n, folder, n && folder[n - 1] == '/' ? "" : "/",
                      s->wanted);
    ds_buf_printf(&s->tried, "%s%.*s", s->tried.n ? ", " : "", (int)n, folder);
    if (is_file(path.text))
        s->found = path.text;
    else
        ds_buf_deinit(&path);
    return s->found != NULL;
}

/* Is the folder the last to look in: the file system's root, or a project's (it holds .git)? */
static bool is_root(const char *folder) {
    char *real = ds_file_real_path(folder);
    bool root = !real || strcmp(real, "/") == 0;
    free(real);
    ds_buf git = {0};
    ds_buf_printf(&git, "%s/.git", folder);
    struct stat info;
    root = root || stat(git.text, &info) == 0;
    ds_buf_deinit(&git);
    return root;
}

/* Makes `folder` its own parent: a/b → a → . → .. → ../.. */
static void go_up(ds_buf *folder) {
    const char *last = strrchr(folder->text, '/');
    const char *name = last ? last + 1 : folder->text;
    bool dots = strcmp(name, "..") == 0;
    if (!dots && strcmp(name, ".") == 0 && !last) {
        folder->n = 0;
        ds_buf_put(folder, "..");
    } else if (dots || strcmp(name, ".") == 0 || *name == '\0') {
        ds_buf_put(folder, "/..");
    } else {
        folder->n = last ? (size_t)(last - folder->text) + (last == folder->text) : 0;
        ds_buf_put(folder, last ? "" : ".");
    }
}

static void search_upwards(search *s, const char *importer) {
    ds_buf folder = {0};
    const char *slash = strrchr(importer, '/');
    if (slash)
        ds_buf_put_n(&folder, importer, slash == importer ? 1 : (size_t)(slash - importer));
    else
        ds_buf_put(&folder, ".");
    while (!try_folder(s, folder.text, folder.n) && !is_root(folder.text)) go_up(&folder);
    ds_buf_deinit(&folder);
}

static void search_list(search *s, const char *list) {
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n && try_folder(s, list, n)) return;
        list += n + (list[n] == ':');
    }
}

#ifndef DS_SHARE_DIR
#define DS_SHARE_DIR "."
#endif

/* The share folder of the program's own installation, then the one that was configured. */
static void search_share(search *s) {
    ds_buf own = {0};
    bool known = ds_file_near_program("../share/distsim", &own) && access(own.text, F_OK) == 0;
    if (known) try_folder(s, own.text, own.n);
    if (!known || strcmp(own.text, DS_SHARE_DIR) != 0)
        try_folder(s, DS_SHARE_DIR, strlen(DS_SHARE_DIR));
    ds_buf_deinit(&own);
}

/* The path of an import, on the heap; an error that lists where it was looked for. */
static ds_status find_import(loader *l, const char *importer, const ds_import *import, char **out) {
    search s = {.wanted = import->path};
    if (import->path[0] == '/') {
        try_folder(&s, "", 0);
    } else {
        search_upwards(&s, importer);
        for (uint32_t k = 0; l->options && k < l->options->n_include_dirs; k++)
            try_folder(&s, l->options->include_dirs[k], strlen(l->options->include_dirs[k]));
        search_list(&s, getenv("DISTSIM_PATH"));
        search_share(&s);
    }
    ds_status status = DS_OK;
    if (!s.found)
        status = ds_error_set(l->err, DS_ERR_IO, import->loc,
                              "cannot find \"%s\"; looked in %s; -I FOLDER adds a folder",
                              import->path, s.tried.n ? s.tried.text : "/");
    ds_buf_deinit(&s.tried);
    *out = s.found;
    return status;
}

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
        DS_TRY(find_import(l, module->path, import, &path));
        file next = {ds_file_real_path(path), path, import->loc, self};
        ds_status status = load_import(l, import, &next);
        free(next.real);
        free(path);
        if (status) return status;
    }
    return DS_OK;
}

/* ---- settings of keys ---- */

static ds_status unknown_key(const ds_setting *setting, const char *section, ds_error *err) {
    DS_VEC(const char *) names = {0};
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(knobs[i].section, section) == 0) DS_HPUSH(&names, knobs[i].name);
    const char *name = strchr(setting->path, '.') + 1, *near = ds_suggest(name, names.at, names.n);
    ds_status status =
        ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "--set %s=%s: unknown key '%s' in '%s'%s%s%s",
                     setting->path, setting->text, name, section, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
    free(names.at);
    return status;
}

/* Puts strategy.KEY or train.KEY into the scenario; any other setting is a param's. */
static ds_status say(ds_unit *unit, const ds_setting *setting, bool is_there, ds_error *err) {
    static const char *const sections[] = {"strategy", "train"};
    const char *dot = strchr(setting->path, '.'), *section = NULL;
    const ds_module *module;
    uint32_t param;
    for (size_t i = 0; dot && i < sizeof sections / sizeof *sections; i++)
        if (strlen(sections[i]) == (size_t)(dot - setting->path) &&
            strncmp(setting->path, sections[i], strlen(sections[i])) == 0)
            section = sections[i];
    if (!section || !ds_unit_scenario(unit) || ds_find_param(unit, setting->path, &module, &param))
        return DS_OK;
    const ds_knob *knob = ds_scenario_knob(section, dot + 1);
    ds_attr attr;
    if (!knob) return unknown_key(setting, section, err);
    if (!is_there) {
        DS_TRY(ds_parse_setting(unit->modules.at[0], knob, setting, &attr, err));
        ds_scenario_say(unit, section, knob->name, attr);
    }
    DS_PUSH(&unit->arena, &unit->said, ds_intern(&unit->strings, setting->path));
    return DS_OK;
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
        status = say(*out, &options->settings[i], options->has_settings, err);
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
