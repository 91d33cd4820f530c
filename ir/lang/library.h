/* Where named files are found: imports, and the models and machines of the library.
 *
 * The library is the folder scenarios/ that comes with the program: `share/distsim` beside the
 * folder of an installed program, `scenarios` beside a program of the build tree (a link that CMake
 * makes), else the share folder of the configured prefix. The first of these that exists. */
#ifndef DS_LANG_LIBRARY_H
#define DS_LANG_LIBRARY_H

#include "ir/lang/lang.h"

/* The library's folder, appended. */
void ds_library_folder(ds_buf *out);

/* Calls `visit` with each folder in which the library's files are looked for (the n bytes from
 * `folder` on): those of -I, of $DISTSIM_PATH, the library; until it returns true. */
void ds_library_folders(const ds_load_options *options,
                        bool (*visit)(void *context, const char *folder, size_t n), void *context);

/* The path, on the heap, of a file by its path inside the library ("machines/dgx-h100.dir",
 * "models/llama.dir"): in the folders of -I, of $DISTSIM_PATH and in the library, in this order.
 * NULL if no folder has the file. `options` may be NULL. */
char *ds_library_path(const char *wanted, const ds_load_options *options);

/* The same for an import: first the importing file's folder and its parents up to the project's
 * root (the folder that holds .git). DS_ERR_IO with the folders and the library's nearest name. */
ds_status ds_library_import(const char *importer, const ds_import *import,
                            const ds_load_options *options, char **out, ds_error *err);

/* A declaration of the library: `topology @dgx_h100` of topologies/dgx-h100.dir. */
typedef struct ds_library_item {
    ds_item_kind kind; /* DS_ITEM_FUNC or DS_ITEM_TOPOLOGY */
    const char *name;  /* without '@' */
    const char *file;  /* inside the library */
} ds_library_item;

typedef struct ds_library_items {
    ds_arena arena; /* the texts and the list */
    DS_VEC(ds_library_item) all;
} ds_library_items;

/* The functions and topologies that the files of models/, topologies/ and machines/ declare, file
 * by file in the order of their names; for suggestions. Reads the files' lines without parsing
 * them; a file that cannot be read is left out. O(bytes of the library). */
void ds_library_scan(ds_library_items *out);
void ds_library_items_deinit(ds_library_items *items);

#endif
