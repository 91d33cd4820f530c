/* A published model as sizes and features: what a Hugging Face config, the launch arguments of a
 * framework and a file of the model library say alike.
 *
 *     config.json, arguments  →  ds_model  →  `import "models/llama.dir" as model with layers = 32, …`
 *     a function of the library with its params  →  ds_model  →  arguments
 *
 * models.def has a line a family: the file and function of scenarios/models, the features, and the
 * param of each size. A model that no line has is refused by the name of the feature or size. */
#ifndef DS_IMPORT_MODEL_H
#define DS_IMPORT_MODEL_H

#include "ir/core/ir.h"
#include "ir/lang/lang.h"

/* Sizes of a model; 0: the model has no such part. */
typedef enum ds_model_size {
    DS_MODEL_LAYERS, /* all decoder layers, dense ones included, MTP layers not */
    DS_MODEL_HIDDEN,
    DS_MODEL_HEADS,
    DS_MODEL_KV_HEADS,
    DS_MODEL_HEAD_DIM,
    DS_MODEL_FFN, /* of a dense feed-forward block */
    DS_MODEL_VOCAB,
    DS_MODEL_POSITIONS, /* the longest sequence */
    DS_MODEL_EXPERTS,
    DS_MODEL_TOP,        /* experts a token */
    DS_MODEL_EXPERT_FFN, /* of one expert */
    DS_MODEL_SHARED_FFN, /* of all shared experts together */
    DS_MODEL_DENSE,      /* first layers without experts */
    DS_MODEL_Q_RANK,     /* of latent attention, and the four below */
    DS_MODEL_KV_RANK,
    DS_MODEL_NOPE_DIM,
    DS_MODEL_ROPE_DIM, /* also where rotary positions are in a part of each head */
    DS_MODEL_V_DIM,
    DS_MODEL_MTP,    /* layers that predict later tokens */
    DS_MODEL_WINDOW, /* of attention, in the layers that have one */
    DS_MODEL_PERIOD, /* of so many layers the last sees all keys, or has experts */
    DS_MODEL_N_SIZES
} ds_model_size;

typedef enum ds_model_feature {
    DS_MODEL_RMS_NORM = 1,     /* else layer norm */
    DS_MODEL_ROTARY = 2,       /* else a table of positions, or ALIBI */
    DS_MODEL_GATED = 4,        /* SwiGLU, GeGLU: two products before the activation */
    DS_MODEL_SILU = 8,         /* else gelu, unless RELU */
    DS_MODEL_LINEAR_BIAS = 16, /* of every product */
    DS_MODEL_QKV_BIAS = 32,    /* of q, k and v alone */
    DS_MODEL_QK_NORM = 64,
    DS_MODEL_LATENT = 128,  /* latent attention (MLA) */
    DS_MODEL_ENCODER = 256, /* attention to both sides (BERT, ViT) */
    DS_MODEL_RELU = 512,
    DS_MODEL_ALIBI = 1024,
    DS_MODEL_PARALLEL = 2048,  /* attention and feed-forward side by side */
    DS_MODEL_POST_NORM = 4096, /* norms after attention and feed-forward too (Gemma) */
    DS_MODEL_TWO_NORMS = 8192  /* PARALLEL: a norm for each of the two */
} ds_model_feature;

typedef struct ds_model_family ds_model_family; /* a line of models.def */

typedef struct ds_model {
    const ds_model_family *family; /* NULL: not looked for yet */
    int64_t size[DS_MODEL_N_SIZES];
    unsigned features; /* ds_model_feature */
    bool tied;         /* the head is the embedding's table */
    double rope_base, dropout;
    const char *name; /* for titles; NULL: none. The caller's */
    const char *with; /* more params of the family's file, "segments = 2, "; NULL: none. Likewise */
    bool decodes;     /* ds_model_put_import imports the file of the decoding form */
} ds_model;

/* The family whose features and sizes the model has; sizes that such a family computes, and that
 * the model leaves at 0 (kv_heads, head_dim, ffn), are filled in. Errors: DS_ERR_UNSUPPORTED with
 * the nearest family and the feature or size that the library lacks. O(families). */
ds_status ds_model_find_family(ds_model *model, ds_error *err);
/* The same among the families of a Hugging Face model_type, which give the model its features;
 * features that the model has already are asked for.
 * `keys`: the names of sizes in messages, NULL entries by the names of model.c. */
ds_status ds_model_find_typed(ds_model *model, const char *model_type,
                              const char *const keys[DS_MODEL_N_SIZES], ds_error *err);
/* The model_types that families have, in the order of models.def, each once; their number. */
uint32_t ds_model_types(ds_arena *arena, const char *const **out);

/* The five below: of a model with a family. */
const char *ds_model_file(const ds_model *model);     /* "models/llama.dir" */
const char *ds_model_function(const ds_model *model); /* "llama" */
const char *ds_model_note(const ds_model *model);     /* for a comment; NULL: none */
/* Is there a decoding form, "models/llama_decode.dir" with "llama_decode"? Its file has the params
 * seq, prompt and batch. Errors: DS_ERR_UNSUPPORTED with the families that have one. */
ds_status ds_model_check_decodes(const ds_model *model, ds_error *err);
/* `import "models/llama.dir" as ALIAS with layers = 32, …, seq = seq, batch = batch\n`: the
 * importing file has params seq and batch. `at` names the param that stands for each size in the
 * importing file, NULL entries (or NULL) are written as numbers. */
void ds_model_put_import(const ds_model *model, const char *alias, const char *const *at,
                         ds_buf *out);

/* The model that a function of the library is, with the params of `binding`; false: the function is
 * of no family. */
bool ds_model_of_function(const ds_binding *binding, const ds_func *func, ds_model *out);
/* The model's weights as the library's file declares them, with `seq` rows in a table of positions:
 * ds_model_count (ir/passes/build/count.h) of a text at `path` that imports the model. Errors: of
 * loading, DS_ERR_OVERFLOW. */
ds_status ds_model_parameters(const ds_model *model, int64_t seq, const char *path,
                              const ds_load_options *load, int64_t *out, ds_error *err);

#endif
