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

/* A config.json of Hugging Face transformers: gpt2, llama, mistral, qwen2, qwen3, mixtral. Appends
 * a file that imports the model library's file for the family (scenarios/models) with the params
 * that the config gives; its own params are batch and seq. Errors: DS_ERR_DATA (no JSON, a key that
 * is missing or of the wrong type), DS_ERR_VALUE, DS_ERR_UNSUPPORTED (another model_type, a feature
 * that changes shapes or costs), DS_ERR_NAME (a setting of no param). O(n). */
ds_status ds_import_hf(const char *text, size_t n, const ds_import_options *options, ds_buf *out,
                       ds_error *err);

/* An ONNX model (ModelProto, opset 7 or newer), as one model function: inputs are arguments,
 * initializers weights, nodes ops of the table; dims without a number are params. Results that only
 * depend on shapes are folded, nodes that no output needs left out. Errors: DS_ERR_DATA (no
 * ModelProto, an undefined name …), DS_ERR_LIMIT, DS_ERR_SHAPE, DS_ERR_UNSUPPORTED (a node that
 * distsim has no op for), DS_ERR_NAME. O(n + nodes · operands). */
ds_status ds_import_onnx(const uint8_t *bytes, size_t n, const ds_import_options *options,
                         ds_buf *out, ds_error *err);

/* A topology as NCCL writes it (NCCL_TOPO_DUMP_FILE) or reads it (NCCL_TOPO_FILE): PCI tree,
 * NVLinks, network ports. Bandwidths as in the file where they are, else from the catalogue or
 * assumed; the text's comment says which. Errors: DS_ERR_DATA (not well-formed, a value out of its
 * range, links that lead nowhere), DS_ERR_VALUE (a GPU that nothing names), DS_ERR_UNSUPPORTED,
 * DS_ERR_LIMIT, DS_ERR_NAME (a setting). O(n + NUMA nodes²). */
ds_status ds_import_nccl_topo(const char *text, size_t n, const ds_import_options *options,
                              ds_buf *out, ds_error *err);

/* What `nvidia-smi topo -m` prints, with or without what surrounds it in a terminal. A PCI tree is
 * built that gives every pair the distance it has in the table (PIX one switch, PXB several, PHB
 * and NODE the NUMA node, SYS another one); NV# is a direct link or NVSwitch, whichever a GPU has
 * enough NVLinks for. The table has no bandwidths: these are the catalogue's, or assumed. Errors:
 * as above; DS_ERR_DATA also for a table that no tree gives. O(n + devices²). */
ds_status ds_import_nvidia_smi(const char *text, size_t n, const ds_import_options *options,
                               ds_buf *out, ds_error *err);

/* GraphML with the data that `distsim topo --graphml` writes: of nodes kind, type, forward, reduce,
 * name; of edges bytes_per_s, latency_ps, cap_bytes_per_s. The topology is flat; devices and links
 * keep their order. Errors: as above. O(n). */
ds_status ds_import_graphml(const char *text, size_t n, const ds_import_options *options,
                            ds_buf *out, ds_error *err);

/* Largest files read: a config is small; a protobuf message has at most 2 GiB. */
#define DS_IMPORT_HF_MAX_BYTES      ((size_t)1 << 20)
#define DS_IMPORT_ONNX_MAX_BYTES    (((size_t)1 << 31) - 1)
#define DS_IMPORT_NCCL_MAX_BYTES    ((size_t)1 << 22)
#define DS_IMPORT_SMI_MAX_BYTES     ((size_t)1 << 20)
#define DS_IMPORT_GRAPHML_MAX_BYTES ((size_t)1 << 26)

#endif
