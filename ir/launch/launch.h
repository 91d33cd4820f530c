/* How a framework is told to train a model: read from command lines, scripts, logs and configuration
 * files, and written as such.
 *
 *     arguments  →  ds_launch  →  scenario (.dir)
 *     scenario, or a row of a plan  →  ds_launch  →  arguments
 *
 * Both ways use one table of arguments a framework (megatron.def, torchtitan.def, deepspeed.def), so
 * that a command that is written and read again is the same record. Nothing is executed. */
#ifndef DS_LAUNCH_LAUNCH_H
#define DS_LAUNCH_LAUNCH_H

#include "ir/import/model.h"

typedef enum ds_launch_framework {
    DS_LAUNCH_MEGATRON,
    DS_LAUNCH_TORCHTITAN,
    DS_LAUNCH_DEEPSPEED,
    DS_LAUNCH_FSDP
} ds_launch_framework;

typedef struct ds_launch {
    ds_launch_framework framework;
    ds_model model;
    int64_t world, node; /* devices; devices a node, 0: not known */
    int64_t batch, seq,
        microbatch; /* sequences a step; tokens a sequence; sequences a microbatch */
    int64_t dp, tp, pp, cp, ep;
    int64_t virtual_stages;      /* chunks a stage, 1: none */
    const int64_t *stage_layers; /* layers of each chunk; NULL: equally many */
    uint32_t n_stage_layers;
    int64_t first_less, last_less; /* layers that embedding and loss count as */
    int64_t zero, zero_group;      /* 0..3; replicas that share, 0: all */
    bool sp, late_reduce;          /* sequence parallelism; gradients reduced at the end */
    const char *reshard;           /* with zero = 3: as `strategy` says it; NULL: "always" */
    bool compiled;                 /* layers run as torch.compile's kernels (torchtitan) */
    const char *loss_kernels;      /* the loss's stack as the scenario says it; NULL: the layers' */
    bool scatter_gather;           /* stages send each other a part a tp shard */
    const char *schedule;          /* as `strategy` says it, "1f1b" */
    const char *recompute;         /* as `strategy` says it: "none", "full", "every:K", "[a, b]" */
    const char *recompute_layers;  /* "all", "first:4" */
    const char *cp_type, *tp_overlap; /* as `strategy` says them, "ring", "none" */
    const char *ep_dispatch;          /* as `strategy` says it, "all_to_all" */
    bool ep_overlap;                  /* tokens travel under another microbatch's compute */
    const char *dtype, *optimizer;    /* "bf16", "adam" */
    const char *grad_dtype;           /* NULL: as dtype */
    const char *product_dtype;        /* of products with weights; NULL: as dtype */
    const char *offload;     /* as `strategy` says it, "[optimizer, weights]"; NULL: none */
    double offload_fraction; /* of the optimizer's states, where these are offloaded */
    double clip_norm;        /* 0: none */
    int64_t bucket_bytes;    /* 0: the framework's default */
    const char *source;      /* the file's name; NULL: none */
    ds_arena *arena;         /* of the texts */
    ds_buf ignored;          /* arguments that do not change a step, with ", " between */
    ds_buf notes;            /* comment lines */
} ds_launch;

/* What a file of arguments leaves open. */
typedef struct ds_launch_given {
    const char *source;        /* the file's name, for the comment on top; NULL: none */
    int64_t nodes, node;       /* nodes, devices a node; 0: as the file says */
    int64_t batch, seq, vocab; /* in place of the file's; 0: as the file says */
    const ds_model *model;     /* the model beside the file (DeepSpeed); NULL: none */
} ds_launch_given;

void ds_launch_init(ds_launch *launch, ds_launch_framework framework, ds_arena *arena);
void ds_launch_deinit(ds_launch *launch);
/* "megatron": as `import` and `framework =` say it. */
const char *ds_launch_framework_name(ds_launch_framework framework);
bool ds_launch_framework_by_name(const char *name, ds_launch_framework *out);
/* "Megatron-LM" */
const char *ds_launch_framework_title(ds_launch_framework framework);
/* "Megatron-LM, arguments of 2025-09 and 2026-08": whose names are read and written. */
const char *ds_launch_framework_version(ds_launch_framework framework);

/* Reads a file's text into an initialized launch: which of the forms the text is, is seen from the
 * text. Errors: DS_ERR_UNSUPPORTED by the names of arguments that change a step and are not
 * simulated; DS_ERR_NAME, DS_ERR_SYNTAX, DS_ERR_DATA, with the line (loc, without a file);
 * DS_ERR_VALUE for degrees that do not divide each other; DS_ERR_LIMIT. O(n). */
ds_status ds_launch_read(ds_launch *launch, const ds_launch_given *given, const char *text,
                         size_t n, ds_error *err);
/* Appends the complete command or file: every argument of the model and of the parallelism. Errors:
 * DS_ERR_UNSUPPORTED by the name of the knob that the framework lacks. */
ds_status ds_launch_write(const ds_launch *launch, ds_buf *out, ds_error *err);
/* Where a scenario runs. */
typedef struct ds_launch_place {
    const char *file, *with,
        *name;           /* the imported file, its settings ("nodes = 16"; NULL: none), the
                                       topology */
    const char *profile; /* NULL: the scenario says none */
} ds_launch_place;

/* A whole scenario file, canonical. Errors: those of ds_model_find_family. */
ds_status ds_launch_put_scenario(const ds_launch *launch, const ds_launch_place *place, ds_buf *out,
                                 ds_error *err);
/* The launch that a scenario is, into an initialized launch. Knobs that change the numbers of a step
 * alone (learning rates, decay) are left out. Errors: DS_ERR_UNSUPPORTED by the name of a knob that no
 * argument says, or of the function that is no model of the library; evaluation. */
ds_status ds_launch_of_scenario(ds_launch *launch, const ds_binding *binding, ds_error *err);

#endif
