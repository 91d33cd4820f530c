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
#include "ir/lang/lang.h"

/* Tokens of a step by default. Touvron et al. 2023, arXiv:2307.09288, table 1 (Llama 2), and
 * Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.1 (Llama 3 405B, first phase): 4M. */
#define DS_IMPORT_TOKENS ((int64_t)1 << 22)

typedef struct ds_import_options {
    const char *source; /* the file's name, for the comment on top; NULL: none */
    const char
        *on_file; /* import this file and run on its topology on_name, one device at first; */
    const char *on_name; /* NULL: the scenario block only names the model */
    /* values for params that the written file has (batch = 32), and the scenario's profile
     * (scenario.profile) */
    const ds_setting *settings;
    uint32_t n_settings;
    /* Models over the library, whose parameters are counted: where the written file will be, and
     * how its imports are found. */
    const char *path;            /* NULL: the current folder */
    const ds_load_options *load; /* NULL: without -I */
    /* Of the machine, whose file has the param; of a model 0: the file is imported as it is; of
     * launch arguments 0: as many as the arguments say. */
    int64_t nodes;
    bool decode;           /* of a model: the decoding form */
    int64_t devices, node; /* of the machine and of its nodes, if the machine has a name; else 0 */
    /* Launch arguments only: */
    const char *model; /* the text of a Hugging Face config.json beside the arguments; NULL: none */
    size_t model_n;
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
    DS_IMPORT_LAUNCH, /* of ir/launch; the scenario runs on on_name */
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
