/* What the scenario's `train` and `strategy` blocks say, as numbers.
 *
 * Fields are filled by the lines of knobs.def, in whose order of words the enumerators are. Texts
 * are interned in the unit. */
#ifndef DS_STRATEGY_STRATEGY_H
#define DS_STRATEGY_STRATEGY_H

#include "ir/core/ir.h"

typedef enum ds_loss { DS_LOSS_MSE, DS_LOSS_CROSS_ENTROPY, DS_LOSS_NONE } ds_loss;
typedef enum ds_optimizer {
    DS_OPTIMIZER_NONE,
    DS_OPTIMIZER_SGD,
    DS_OPTIMIZER_MOMENTUM,
    DS_OPTIMIZER_ADAM,
    DS_OPTIMIZER_ADAMW
} ds_optimizer;

typedef enum ds_cp_type { DS_CP_RING, DS_CP_ULYSSES, DS_CP_ALL_GATHER } ds_cp_type;

/* What is computed again in the backward pass (Chen et al. arXiv:1604.06174; Korthikanti et al.
 * arXiv:2205.05198, section 5). */
typedef enum ds_recompute {
    DS_RECOMPUTE_NONE,
    DS_RECOMPUTE_SELECTIVE, /* the core of attention: scores, softmax, its dropout */
    DS_RECOMPUTE_FULL,      /* turns of loops, and calls outside of loops */
    DS_RECOMPUTE_EVERY,     /* blocks of recompute_every turns of loops at once */
    DS_RECOMPUTE_OPS        /* the operations of recompute_ops and of recompute_modules */
} ds_recompute;

/* The layers of a chunk that run again (recompute_layers). With n and of, a fraction n / of: turn t
 * from 0 runs again if t < n; if `of` divides t + 1; if round(t n / of) grows with t. */
typedef enum ds_recompute_layers {
    DS_RECOMPUTE_LAYERS_ALL,
    DS_RECOMPUTE_LAYERS_FIRST,  /* Megatron-LM: --recompute-method block */
    DS_RECOMPUTE_LAYERS_ONE_IN, /* torchtitan: selective_ac_option = "K" */
    DS_RECOMPUTE_LAYERS_SHARE   /* fms-fsdp: selective_checkpointing = "P" */
} ds_recompute_layers;

/* Modules of a layer that a list of `recompute` names: bits of ds_strategy.recompute_modules. The
 * words are Megatron-LM's (--recompute-modules); selective_op is torchtitan's "op". */
#define DS_RECOMPUTE_MODULE_MAP(X)                                                                 \
    X(CORE_ATTN, "core_attn", 1)                                                                   \
    X(LAYERNORM, "layernorm", 2)                                                                   \
    X(MLA_UP_PROJ, "mla_up_proj", 4)                                                               \
    X(MOE_ACT, "moe_act", 8)                                                                       \
    X(MLP, "mlp", 16)                                                                              \
    X(SHARED_EXPERTS, "shared_experts", 32)                                                        \
    X(MOE, "moe", 64)                                                                              \
    X(SELECTIVE_OP, "selective_op", 128)
enum {
#define DS_X(name, word, bit) DS_RECOMPUTE_##name = bit,
    DS_RECOMPUTE_MODULE_MAP(DS_X)
#undef DS_X
};

/* What is kept in the memory of hosts: bits of ds_strategy.offload. */
enum { DS_OFFLOAD_ACTIVATIONS = 1, DS_OFFLOAD_OPTIMIZER = 2, DS_OFFLOAD_WEIGHTS = 4 };

/* What the pipeline's chunks are to have alike. */
typedef enum ds_balance {
    DS_BALANCE_LAYERS, /* turns of the loops outside of others */
    DS_BALANCE_FLOPS,  /* of the forward pass */
    DS_BALANCE_TIME    /* simulated, by who runs the passes: sim/run/balance.h */
} ds_balance;

/* How the pipeline's stages send. */
typedef enum ds_p2p {
    DS_P2P_OVERLAPPED, /* beside compute */
    DS_P2P_BATCHED,    /* a send and a receive as one */
    DS_P2P_BLOCKING,   /* in the order of compute, behind the item that made the value */
    DS_P2P_PAIRED,     /* the same, before the next item of either stage */
    DS_P2P_BUFFERED    /* in that order beside compute: no sender waits */
} ds_p2p;

/* What tensor parallelism's communication runs under, with sequence parallelism (overlap/tp.c). */
typedef enum ds_tp_overlap {
    DS_TP_OVERLAP_NONE,
    DS_TP_OVERLAP_BULK, /* whole collectives under products that have nothing to do with them */
    DS_TP_OVERLAP_RING, /* beside that, gathers and scatters of products in tp chunks */
    DS_TP_OVERLAP_PIPE  /* gathers so, scatters in DS_TP_PIPE_CHUNKS chunks */
} ds_tp_overlap;

/* How tokens go to their experts and back (overlap/ep.c). */
typedef enum ds_ep_dispatch {
    DS_EP_ALL_TO_ALL, /* a copy for each expert */
    DS_EP_DEEPEP      /* one to each node, and on to each device there */
} ds_ep_dispatch;

/* What the loops of a rec keep of a value that is read over several turns (lower/rec_store.c). */
typedef enum ds_rec_stores {
    DS_REC_RINGS, /* as many points as are read later */
    DS_REC_WHOLE, /* the points of all turns */
    DS_REC_POINT, /* the points of all turns, whose memory comes with the first write of a point */
    DS_REC_BLOCK, /* the same for rec_tile points together */
    DS_REC_PAGED, /* the same, by default for fewer points */
    DS_REC_CIRCULAR,   /* as rings, however many points a ring then has */
    DS_REC_RING,       /* each point once: a window lies in two pieces, which are copied */
    DS_REC_FUNCTIONAL, /* a new tensor of the points of all turns in each turn */
    DS_REC_HOST        /* at the hosts, what is read by single points */
} ds_rec_stores;
#define DS_REC_BLOCK_POINTS 512 /* Tempo, arXiv 2501.05408 */
#define DS_REC_PREFETCH     2   /* points on the device each way: one moves, one is used; assumed */
#define DS_REC_PAGE_POINTS  16  /* vLLM, arXiv 2309.06180 */

/* How the turns of a prompt run (lower/rec_prompt.c). */
typedef enum ds_prefill {
    DS_PREFILL_TURNS, /* one by one, as those after the prompt */
    DS_PREFILL_VECTOR /* at once, in chunks */
} ds_prefill;

/* Loops of a rec that could be one loop (ir/temporal/nest.c). */
typedef enum ds_rec_fuse {
    DS_REC_LAG,  /* are one, some equations turns after others */
    DS_REC_APART /* stay apart */
} ds_rec_fuse;

/* Attention of a rec to ranges of turns (lower/rec_tile.c). */
typedef enum ds_rec_attention {
    DS_REC_ONCE, /* one op */
    DS_REC_TILES /* one a tile of rec_tile points */
} ds_rec_attention;

/* Ranges of a rec's values (ir/passes/lower/rec_static.c). */
typedef enum ds_rec_shapes {
    DS_REC_TURN,  /* have the points of the turn */
    DS_REC_STATIC /* have as many places at every turn */
} ds_rec_shapes;

#define DS_TP_PIPE_CHUNKS 4 /* Transformer Engine's num_splits, module/base.py */

/* When weights that are shared out (zero = 3) leave a device's memory. */
typedef enum ds_reshard_after {
    DS_RESHARD_ALWAYS, /* after each unit's forward pass and after its backward pass */
    DS_RESHARD_LAYERS, /* the same of units in loops; others stay until the backward pass */
    DS_RESHARD_ROOT, /* the same, and the others are one unit, gathered first; with pp > 1 LAYERS */
    DS_RESHARD_NEVER,  /* after the backward pass alone */
    DS_RESHARD_DEFAULT /* as torchtitan says it; ds_strategy_read leaves NEVER or LAYERS */
} ds_reshard_after;

/* The products that have adapters (lora_targets). */
typedef enum ds_lora_targets { DS_LORA_TARGETS_ALL, DS_LORA_TARGETS_NAMES } ds_lora_targets;

/* Documents of these lengths are packed into sequences (lengths). */
typedef enum ds_lengths { DS_LENGTHS_NONE, DS_LENGTHS_LIST } ds_lengths;
typedef struct ds_length {
    int64_t tokens;
    double share; /* of the documents; the shares of a list have the sum 1 */
} ds_length;

/* The fields of a record: one a line of knobs.def, of a type that follows from the kind. A TEXT is
 * an enumeration with the field's name. */
#define DS_FIELD_INT(field)      int64_t field;
#define DS_FIELD_QUANTITY(field) int64_t field;
#define DS_FIELD_REAL(field)     double field;
#define DS_FIELD_BOOL(field)     bool field;
#define DS_FIELD_TEXT(field)     ds_##field field;
#define DS_FIELD_TEXTS(field)    ds_##field field;
#define DS_FIELD_DTYPE(field)    ds_dtype field;
#define DS_FIELD_FLAGS(field)    uint32_t field;
#define DS_FIELD_INTS(field)     const int64_t *field;
#define DS_FIELD_SCHEDULE(field) const char *field;
#define DS_FIELD_AXES(field)     const char *field[4]; /* outer → inner */
#define DS_FIELD_SECTION(field)  const ds_attr *field;

/* lr … weight_decay: NAN is the op table's default. Dtypes: DS_DTYPE_COUNT is not given. dtype: if
 * it is narrower than the model's f32, the optimizer keeps a master copy in master_dtype (default:
 * f32). lora_rank 0: every weight is trained. grad_dtype: default dtype. state_dtype: default master's. product_dtype: of products of an
 * activation and a weight inside of loops. clip_norm 0: any norm. */
typedef struct ds_train {
    bool on; /* false: the forward pass alone (`train = off`, or no train block) */
#define DS_IN_train(fields) fields
#define DS_IN_strategy(fields)
#define KNOB(section, name, kind, field, ...) DS_IN_##section(DS_FIELD_##kind(field))
#include "ir/strategy/knobs.def"
#undef DS_IN_train
#undef DS_IN_strategy
    const char **lora_names; /* of lora_targets */
    uint32_t n_lora_names;
    const ds_length *documents; /* of lengths */
    uint32_t n_documents;
} ds_train;

/* tied_dtype DS_DTYPE_COUNT: train.grad_dtype. virtual_stages 0: as many as the schedule usually has. bucket_bytes: 25 MB are PyTorch
 * DistributedDataParallel's bucket_cap_mb. stage_layers: turns of loops in each chunk. dp_shares:
 * unequal parts of a batch, one a replica, without a common divisor; NULL: equal parts. stage_dp, stage_tp:
 * replicas and shards of each stage, [pp]; then dp = tp = 1. NULL: all stages have dp and tp.
 * groups: the items are the blocks of the groups (group.h); NULL: no group. */
typedef struct ds_strategy {
#define DS_IN_train(fields)
#define DS_IN_strategy(fields)                fields
#define KNOB(section, name, kind, field, ...) DS_IN_##section(DS_FIELD_##kind(field))
#include "ir/strategy/knobs.def"
#undef DS_IN_train
#undef DS_IN_strategy
    uint32_t n_stage_layers;    /* 0: not given */
    int64_t dp_shares_sum;      /* dp without dp_shares */
    bool dp_shares_by_time;     /* to be found by simulation, by who runs the passes */
    int64_t recompute_every;    /* ≥ 1 */
    const char **recompute_ops; /* paths (path.h) */
    uint32_t n_recompute_ops;
    uint32_t recompute_modules;
    int64_t recompute_n, recompute_of; /* of recompute_layers: N, 1; 1, K; P as a fraction */
    const bool
        *sfb_idle; /* by group: a simulation found that by = sfb gains nothing; NULL: no sfb */
} ds_strategy;

/* Does the strategy place operations one by one (`ops`) or in groups? */
static inline bool ds_strategy_places(const ds_strategy *s) {
    return (s->ops && s->ops->n_items) || s->groups;
}

/* Does turn `turn` of a chunk's loops run again? O(1). */
bool ds_strategy_runs_again(const ds_strategy *strategy, int64_t turn);
/* The value of recompute_layers, as a scenario writes it: "all", "first:4". */
void ds_strategy_put_recompute_layers(const ds_strategy *strategy, ds_buf *out);

/* Are experts split over tp's devices too (sp, ep = dp cp tp), and so not themselves by tp? */
bool ds_strategy_ep_has_tp(const ds_strategy *strategy);
/* Errors: evaluation, values out of range, combinations that contradict each other (ep does not
 * divide dp·cp, zero_group does not divide dp, …), with the values. O(knobs). */
ds_status ds_train_read(const ds_binding *binding, ds_train *out, ds_error *err);
ds_status ds_strategy_read(const ds_binding *binding, ds_strategy *out, ds_error *err);
/* Is there a pass for everything that the strategy asks for? DS_ERR_UNSUPPORTED, at the knob: a
 * step that leaves something out would be the step of another strategy. */
ds_status ds_strategy_check(const ds_binding *binding, const ds_strategy *strategy, ds_error *err);

/* Is a shared-out weight gathered once a step (reshard_after_forward = never, with no_sync or one
 * microbatch)? */
static inline bool ds_strategy_gathers_once(const ds_strategy *s) {
    return s->zero == 3 && s->reshard_after == DS_RESHARD_NEVER &&
           (s->no_sync || s->microbatches == 1);
}

/* Turns of chunk c of `chunks`, as balance = layers shares `turns` out: a rest goes to the chunks in
 * the middle. With first_stage_less = a and last_stage_less = b, turns + a + b are shared out, a rest
 * goes to the first chunks, and the first and the last chunk have a and b fewer; may be negative.
 * Source: torchtitan/distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part; Megatron-LM,
 * megatron/core/transformer/transformer_block.py, get_num_layers_to_build, where no rest is legal. */
int64_t ds_strategy_chunk_turns(const ds_strategy *strategy, int64_t turns, int64_t chunks,
                                int64_t c);
/* The place of a knob of `strategy`; of pp if the knob is not stated. */
ds_loc ds_strategy_knob(const ds_unit *unit, const char *name);
/* The turns of each of `chunks` chunks, as stage_layers or balance = layers say. Errors:
 * DS_ERR_VALUE at the knob of `unit`'s scenario if the knob does not fit n turns. */
ds_status ds_strategy_share_turns(const ds_unit *unit, const ds_strategy *strategy, int64_t n,
                                  uint32_t chunks, int64_t *turns, ds_error *err);

/* Replicas; where stages differ in width, of the first stage. */
static inline int64_t ds_strategy_replicas(const ds_strategy *s) {
    return s->stage_dp ? s->stage_dp[0] : s->dp;
}

/* Are two stages equally wide? */
static inline bool ds_strategy_same_width(const ds_strategy *s, uint32_t a, uint32_t b) {
    return !s->stage_dp || (s->stage_dp[a] == s->stage_dp[b] && s->stage_tp[a] == s->stage_tp[b]);
}

/* Are results of every second product of a layer checkpointed (recompute = selective_op)? */
static inline bool ds_strategy_keeps_products(const ds_strategy *s) {
    return (s->recompute_modules & DS_RECOMPUTE_SELECTIVE_OP) != 0;
}

/* Layers that may be gathered ahead: each has a value that every loop carries. */
#define DS_MAX_PREFETCH 255

#endif
