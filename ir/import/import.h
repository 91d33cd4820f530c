/* Models and topologies of other tools as .dir text.
 *
 * All importers write a whole file, canonical as `distsim fmt` prints it, that verifies. Those of
 * models read shapes, not weights: distsim asks how long a step takes, not what comes out.
 *
 * No input crashes them: what is malformed, too large or not known to distsim is an error that
 * names the key, or the node and its op, or for topologies the line and column (loc, without a
 * file). */
#ifndef DS_IMPORT_IMPORT_H
#define DS_IMPORT_IMPORT_H

#include "ir/core/ir.h"

typedef struct ds_import_options {
    const char *source; /* the file's name, for the comment on top; NULL: none */
    const char
        *on_file; /* import this file and run on its topology on_name, one device at first; */
    const char *on_name;        /* NULL: the scenario block only names the model */
    const ds_setting *settings; /* values for params that the written file has: --set batch=32 */
    uint32_t n_settings;
    /* Topologies only: */
    const char *topology; /* its name; NULL: as the file says, else "imported" */
    const char *device;   /* catalogue name of the GPUs; NULL: as the file says or suggests */
} ds_import_options;

/* Reads the n `bytes` of a file and appends the .dir text to `out`. */
typedef ds_status ds_importer(const char *bytes, size_t n, const ds_import_options *options,
                              ds_buf *out, ds_error *err);

/* ds_import_hf, ds_import_onnx …: importers.def says what each reads and refuses. */
#define IMPORTER(function, ...) ds_importer ds_import_##function;
#include "ir/import/importers.def"
#undef IMPORTER

/* Importers of a NAMED_TOPOLOGY take the topology's name from the file; any other topology is
 * called as `options->topology` says. */
typedef enum ds_import_kind {
    DS_IMPORT_MODEL,
    DS_IMPORT_TOPOLOGY,
    DS_IMPORT_NAMED_TOPOLOGY
} ds_import_kind;

typedef struct ds_import_format {
    const char *name;
    ds_import_kind kind;
    size_t most_bytes; /* of a file that is read */
    ds_importer *import;
} ds_import_format;

/* The line of importers.def with that name, or NULL. */
const ds_import_format *ds_import_format_by_name(const char *name);

#endif
