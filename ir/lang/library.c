/* The search for files and the library's table of contents; see library.h.
 *
 * Candidate paths are built textually from the importing file's path, so that diagnostics show
 * paths relative to where distsim was started, as the user wrote them. */
#include "ir/lang/library.h"

#include "ir/base/file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef DS_SHARE_DIR
#define DS_SHARE_DIR "."
#endif

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

void ds_library_folder(ds_buf *out) {
    static const char *const near[] = {"../share/distsim", "scenarios", "../scenarios"};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        ds_buf path = {0};
        char *real = ds_file_near_program(near[i], &path) ? ds_file_real_path(path.text) : NULL;
        ds_buf_deinit(&path);
        if (real) ds_buf_put(out, real);
        free(real);
        if (real) return;
    }
    ds_buf_put(out, DS_SHARE_DIR);
}

/* ---- search ---- */

/* The folders in which a file is looked for, tried in order. */
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
    if (is_file(path.text))
        s->found = path.text;
    else
        ds_buf_deinit(&path);
    return s->found != NULL;
}

static bool try_listed(search *s, const char *folder, size_t n) {
    ds_buf_printf(&s->tried, "%s%.*s", s->tried.n ? ", " : "", (int)n, folder);
    return try_folder(s, folder, n);
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
    bool found = try_listed(s, folder.text, folder.n), parents = false;
    while (!found && !is_root(folder.text)) {
        go_up(&folder);
        parents = true;
        found = try_folder(s, folder.text, folder.n);
    }
    if (parents) ds_buf_put(&s->tried, " and its parents");
    ds_buf_deinit(&folder);
}

void ds_library_folders(const ds_load_options *options,
                        bool (*visit)(void *context, const char *folder, size_t n), void *context) {
    bool ended = false;
    for (uint32_t k = 0; options && k < options->n_include_dirs && !ended; k++)
        ended = visit(context, options->include_dirs[k], strlen(options->include_dirs[k]));
    const char *list = getenv("DISTSIM_PATH");
    while (list && *list && !ended) {
        size_t n = strcspn(list, ":");
        ended = n && visit(context, list, n);
        list += n + (list[n] == ':');
    }
    ds_buf library = {0};
    ds_library_folder(&library);
    if (!ended) visit(context, library.text, library.n);
    ds_buf_deinit(&library);
}

static bool visit_listed(void *context, const char *folder, size_t n) {
    return try_listed(context, folder, n);
}

static void search_library(search *s, const ds_load_options *options) {
    if (!s->found) ds_library_folders(options, visit_listed, s);
}

char *ds_library_path(const char *wanted, const ds_load_options *options) {
    search s = {.wanted = wanted};
    if (wanted[0] == '/')
        try_folder(&s, "", 0);
    else
        search_library(&s, options);
    ds_buf_deinit(&s.tried);
    return s.found;
}

/* ---- table of contents ---- */

static const char *const folders[] = {"machines", "models", "topologies"};

enum { N_FOLDERS = sizeof folders / sizeof folders[0] };

static int is_dir_file(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".dir") == 0;
}

/* Calls `visit` with each .dir file of the library, as "models/llama.dir". */
static void each_file(void *data, void (*visit)(void *data, const char *root, const char *file)) {
    ds_buf root = {0};
    ds_library_folder(&root);
    for (uint32_t k = 0; k < N_FOLDERS; k++) {
        ds_buf folder = {0}, file = {0};
        struct dirent **entries;
        ds_buf_printf(&folder, "%s/%s", root.text, folders[k]);
        int n = scandir(folder.text, &entries, is_dir_file, alphasort);
        for (int i = 0; i < n; i++) {
            file.n = 0;
            ds_buf_printf(&file, "%s/%s", folders[k], entries[i]->d_name);
            visit(data, root.text, file.text);
            free(entries[i]);
        }
        if (n >= 0) free(entries);
        ds_buf_deinit(&folder);
        ds_buf_deinit(&file);
    }
    ds_buf_deinit(&root);
}

static const struct {
    const char *start; /* of a line */
    ds_item_kind kind;
} declarations[] = {{"topology @", DS_ITEM_TOPOLOGY}, {"func @", DS_ITEM_FUNC}};

static void scan_line(ds_library_items *items, const char *file, const char *line) {
    for (size_t k = 0; k < sizeof declarations / sizeof declarations[0]; k++) {
        size_t n = strlen(declarations[k].start);
        if (strncmp(line, declarations[k].start, n) != 0) continue;
        const char *name = ds_arena_strndup(&items->arena, line + n, strcspn(line + n, " ({\n"));
        DS_PUSH(&items->arena, &items->all, ((ds_library_item){declarations[k].kind, name, file}));
    }
}

static void scan_file(void *data, const char *root, const char *file) {
    ds_library_items *items = data;
    ds_buf path = {0}, text = {0};
    ds_error err = {0};
    ds_buf_printf(&path, "%s/%s", root, file);
    const char *kept = ds_arena_strdup(&items->arena, file);
    if (ds_file_read(path.text, DS_NOWHERE, DS_LOAD_MAX_BYTES, &text, &err) == DS_OK)
        for (const char *line = text.text; line; line = strchr(line, '\n')) {
            line += line != text.text;
            scan_line(items, kept, line);
        }
    ds_buf_deinit(&path);
    ds_buf_deinit(&text);
}

void ds_library_scan(ds_library_items *out) {
    *out = (ds_library_items){0};
    ds_arena_init(&out->arena);
    each_file(out, scan_file);
}

void ds_library_items_deinit(ds_library_items *items) {
    ds_arena_deinit(&items->arena);
    *items = (ds_library_items){0};
}

/* ---- imports ---- */

typedef struct file_names {
    ds_arena arena;
    DS_VEC(const char *) files, stems; /* "models/llama.dir" and "llama" */
} file_names;

static const char *stem_of(ds_arena *arena, const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    return ds_arena_strndup(arena, base, dot ? (size_t)(dot - base) : strlen(base));
}

static void keep_name(void *data, const char *root, const char *file) {
    (void)root;
    file_names *names = data;
    DS_PUSH(&names->arena, &names->files, ds_arena_strdup(&names->arena, file));
    DS_PUSH(&names->arena, &names->stems, stem_of(&names->arena, file));
}

/* Appends the library's file that a wrong path may mean. */
static void suggest_file(const char *wanted, ds_buf *out) {
    file_names names = {0};
    ds_arena_init(&names.arena);
    each_file(&names, keep_name);
    const char *stem = stem_of(&names.arena, wanted);
    const char *meant = ds_suggest(stem, names.stems.at, names.stems.n), *file = NULL;
    for (uint32_t i = 0; i < names.stems.n; i++)
        if (strcmp(names.stems.at[i], stem) == 0) meant = stem;
    for (uint32_t i = 0; i < names.stems.n && meant; i++) {
        size_t folder = strcspn(names.files.at[i], "/") + 1;
        if (strcmp(names.stems.at[i], meant) != 0) continue;
        if (!file || strncmp(names.files.at[i], wanted, folder) == 0) file = names.files.at[i];
    }
    if (file) ds_buf_printf(out, "did you mean \"%s\"?", file);
    ds_arena_deinit(&names.arena);
}

ds_status ds_library_import(const char *importer, const ds_import *import,
                            const ds_load_options *options, char **out, ds_error *err) {
    search s = {.wanted = import->path};
    if (import->path[0] == '/') {
        try_folder(&s, "", 0);
    } else {
        search_upwards(&s, importer);
        search_library(&s, options);
    }
    ds_status status = DS_OK;
    if (!s.found) {
        ds_buf fix = {0};
        suggest_file(import->path, &fix);
        status = ds_error_set(err, DS_ERR_IO, import->loc, "cannot find \"%s\"; looked in %s; %s",
                              import->path, s.tried.n ? s.tried.text : "/",
                              fix.n ? fix.text : "-I FOLDER adds a folder");
        ds_buf_deinit(&fix);
    }
    ds_buf_deinit(&s.tried);
    *out = s.found;
    return status;
}
