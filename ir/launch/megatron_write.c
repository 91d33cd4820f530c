/* A launch as a command of Megatron-LM: every argument of the model and of the parallelism. */
#include "ir/launch/megatron_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void flag(ds_args_out *o, uint32_t id, bool on) {
    ds_args_out__set(o, id, on ? "" : NULL);
}

/* ---- the model ---- */

static void put_attention(ds_args_out *o, const ds_model *m) {
    const int64_t *size = m->size;
    if (m->features & DS_MODEL_LATENT) {
        flag(o, A_QK_NORM, true);
        ds_args_out__set_int(o, A_KV_RANK, size[DS_MODEL_KV_RANK]);
        ds_args_out__set_int(o, A_NOPE_DIM, size[DS_MODEL_NOPE_DIM]);
        ds_args_out__set_int(o, A_ROPE_DIM, size[DS_MODEL_ROPE_DIM]);
        ds_args_out__set_int(o, A_V_DIM, size[DS_MODEL_V_DIM]);
        return;
    }
    flag(o, A_QK_NORM, m->features & DS_MODEL_QK_NORM);
    if (size[DS_MODEL_KV_HEADS] != size[DS_MODEL_HEADS]) {
        flag(o, A_GROUP_QUERY, true);
        ds_args_out__set_int(o, A_GROUPS, size[DS_MODEL_KV_HEADS]);
    }
    ds_args_out__set_int(o, A_KV_CHANNELS, size[DS_MODEL_HEAD_DIM]);
}

static void put_experts(ds_args_out *o, const ds_launch *l) {
    const int64_t *size = l->model.size;
    if (!size[DS_MODEL_EXPERTS]) return;
    if (!size[DS_MODEL_FFN]) ds_args_out__set_int(o, A_FFN, size[DS_MODEL_EXPERT_FFN]);
    ds_args_out__set_int(o, A_TOP, size[DS_MODEL_TOP]);
    bool deepep = strcmp(l->ep_dispatch, "deepep") == 0;
    ds_args_out__set(o, A_DISPATCHER, deepep ? "flex" : "alltoall");
    flag(o, A_DEEPEP, deepep);
    if (size[DS_MODEL_DENSE])
        ds_args_out__set(o, A_MOE_FREQ,
                         ds_arena_printf(o->arena, "'([0]*%" PRId64 "+[1]*%" PRId64 ")'",
                                         size[DS_MODEL_DENSE],
                                         size[DS_MODEL_LAYERS] - size[DS_MODEL_DENSE]));
}

/* NullTokenizer adds a word; the rest pads to a multiple of tp and a power of two. */
static ds_status put_vocab(ds_args_out *o, const ds_launch *l, ds_error *err) {
    int64_t vocab = l->model.size[DS_MODEL_VOCAB], multiple = 128;
    if (vocab % l->tp)
        return ds_launch__lacks(l, err, "vocab",
                                "its tables are padded to a multiple of tp, and %" PRId64
                                " is none of %" PRId64,
                                vocab, l->tp);
    while (vocab % (multiple * l->tp)) multiple /= 2;
    ds_args_out__set(o, A_TOKENIZER, "NullTokenizer");
    ds_args_out__set_int(o, A_VOCAB, vocab - 1);
    if (multiple != 128) ds_args_out__set_int(o, A_VOCAB_MULTIPLE, multiple);
    return DS_OK;
}

/* Decoders of transformer layers that are all alike, but for dense ones before those with experts. */
static bool is_sayable(const ds_model *m) {
    const unsigned features = DS_MODEL_RMS_NORM | DS_MODEL_ROTARY | DS_MODEL_GATED | DS_MODEL_SILU |
                              DS_MODEL_LINEAR_BIAS | DS_MODEL_QKV_BIAS | DS_MODEL_QK_NORM |
                              DS_MODEL_LATENT;
    if (m->features & ~features || !m->size[DS_MODEL_HEADS]) return false;
    if (m->size[DS_MODEL_WINDOW] || m->size[DS_MODEL_PERIOD]) return false;
    if (m->size[DS_MODEL_ROPE_DIM] && !(m->features & DS_MODEL_LATENT)) return false;
    return !(m->features & DS_MODEL_SILU) || m->features & DS_MODEL_GATED;
}

static ds_status put_model(ds_args_out *o, const ds_launch *l, ds_error *err) {
    const ds_model *m = &l->model;
    unsigned f = m->features;
    if (!is_sayable(m))
        return ds_launch__lacks(
            l, err, "model",
            "@%s has a part that its arguments do not say, or that distsim does "
            "not read back",
            ds_model_function(m));
    flag(o, A_SWIGLU, (f & DS_MODEL_GATED) && (f & DS_MODEL_SILU));
    flag(o, A_QUICK_GEGLU, (f & DS_MODEL_GATED) && !(f & DS_MODEL_SILU));
    ds_args_out__set(o, A_NORMALIZATION, f & DS_MODEL_RMS_NORM ? "RMSNorm" : NULL);
    ds_args_out__set(o, A_POSITION, f & DS_MODEL_ROTARY ? "rope" : NULL);
    if (f & DS_MODEL_ROTARY) {
        const char *base = ds_launch__real(o->arena, m->rope_base);
        if (strspn(base, "0123456789") != strlen(base))
            return ds_launch__lacks(l, err, "rope_base", "--rotary-base is an integer, not %s",
                                    base);
        ds_args_out__set(o, A_ROTARY_BASE, base);
    }
    int64_t positions = m->size[DS_MODEL_POSITIONS];
    ds_args_out__set_int(o, A_POSITIONS, positions > l->seq ? positions : l->seq);
    flag(o, A_UNTIED, !m->tied);
    flag(o, A_QKV_BIAS, f & DS_MODEL_QKV_BIAS);
    ds_args_out__set(o, A_HIDDEN_DROPOUT, ds_launch__real(o->arena, m->dropout));
    ds_args_out__set(o, A_ATTENTION_DROPOUT, ds_launch__real(o->arena, m->dropout));
    put_attention(o, m);
    put_experts(o, l);
    return put_vocab(o, l, err);
}

/* ---- the step ---- */

static ds_status put_numbers(ds_args_out *o, const ds_launch *l, ds_error *err) {
    bool bf16 = strcmp(l->dtype, "bf16") == 0, f16 = strcmp(l->dtype, "f16") == 0;
    const char *grads = l->grad_dtype ? l->grad_dtype : l->dtype;
    if (!bf16 && !f16 && strcmp(l->dtype, "f32") != 0)
        return ds_launch__lacks(l, err, "dtype", "a step in %s", l->dtype);
    flag(o, A_BF16, bf16);
    flag(o, A_FP16, f16);
    flag(o, A_GRADS_BF16, bf16 && strcmp(grads, "bf16") == 0);
    flag(o, A_GRADS_F32, f16 && strcmp(grads, "f32") == 0);
    if (strcmp(grads, "f32") != 0 && strcmp(grads, l->dtype) != 0)
        return ds_launch__lacks(l, err, "grad_dtype", "gradients in %s", grads);
    if (l->product_dtype && strcmp(l->product_dtype, "f8e4m3") != 0)
        return ds_launch__lacks(l, err, "product_dtype", "products in %s", l->product_dtype);
    if (l->product_dtype) ds_args_out__set(o, A_FP8, "hybrid");
    if (strncmp(l->optimizer, "adam", 4) == 0) {
        ds_args_out__set(o, A_WEIGHT_DECAY, strcmp(l->optimizer, "adam") == 0 ? "0" : NULL);
    } else if (strcmp(l->optimizer, "sgd") == 0 || strcmp(l->optimizer, "momentum") == 0) {
        ds_args_out__set(o, A_OPTIMIZER, "sgd");
        ds_args_out__set(o, A_MOMENTUM, strcmp(l->optimizer, "sgd") == 0 ? "0" : NULL);
    } else {
        return ds_launch__lacks(l, err, "optimizer", "the optimizer %s", l->optimizer);
    }
    if (l->offload && strcmp(l->offload, "optimizer") != 0)
        return ds_launch__lacks(l, err, "offload", "%s in the memory of hosts", l->offload);
    flag(o, A_OFFLOAD, l->offload);
    return DS_OK;
}

/* "[layernorm, moe_act]" as words of an argument. */
static const char *module_words(ds_args_out *o, const char *list) {
    char *words = ds_arena_strdup(o->arena, list + (*list == '['));
    char *to = words;
    for (const char *at = words; *at; at++)
        if (*at != ',' && *at != ']') *to++ = *at;
    *to = 0;
    return words;
}

static ds_status put_recompute(ds_args_out *o, const ds_launch *l, ds_error *err) {
    bool full = strcmp(l->recompute, "full") == 0, every = strncmp(l->recompute, "every:", 6) == 0,
         all = strcmp(l->recompute_layers, "all") == 0,
         block = strncmp(l->recompute_layers, "first:", 6) == 0;
    if (strcmp(l->recompute, "none") == 0) return DS_OK;
    if (strstr(l->recompute, "selective_op"))
        return ds_launch__lacks(l, err, "recompute", "results of every second product alone kept");
    if (!all && !(block && full))
        return ds_launch__lacks(l, err, "recompute_layers", "%s of %s", l->recompute,
                                l->recompute_layers);
    ds_args_out__set(o, A_RECOMPUTE, full || every ? "full" : "selective");
    if (!full && !every && strcmp(l->recompute, "selective") != 0)
        ds_args_out__set(o, A_RECOMPUTE_MODULES, module_words(o, l->recompute));
    if (!full && !every) return DS_OK;
    ds_args_out__set(o, A_RECOMPUTE_METHOD, block ? "block" : "uniform");
    ds_args_out__set(o, A_RECOMPUTE_LAYERS,
                     block   ? l->recompute_layers + 6
                     : every ? l->recompute + 6
                             : "1");
    return DS_OK;
}

/* ---- parallelism ---- */

/* Stages that have the same number of layers, but the first and the last. */
static ds_status put_unequal(ds_args_out *o, const ds_launch *l, ds_error *err) {
    uint32_t n = l->n_stage_layers;
    const int64_t *layers = l->stage_layers;
    if (!n) return DS_OK;
    for (uint32_t i = 2; i + 1 < n; i++)
        if (layers[i] != layers[1])
            return ds_launch__lacks(l, err, "stage_layers",
                                    "the first and the last stage alone may differ");
    if (n != l->pp || n < 2)
        return ds_launch__lacks(l, err, "stage_layers", "of several chunks a stage");
    int64_t middle = n > 2 ? layers[1] : layers[0];
    if (layers[0] != middle) ds_args_out__set_int(o, A_FIRST_LAYERS, layers[0]);
    if (layers[n - 1] != middle) ds_args_out__set_int(o, A_LAST_LAYERS, layers[n - 1]);
    return DS_OK;
}

static ds_status put_stages(ds_args_out *o, const ds_launch *l, ds_error *err) {
    int64_t layers = l->model.size[DS_MODEL_LAYERS], chunks = l->pp * l->virtual_stages;
    bool interleaves = strcmp(l->schedule, "interleaved") == 0;
    flag(o, A_NO_SCATTER, false);
    if (l->pp == 1) return DS_OK;
    if (!interleaves && strcmp(l->schedule, "1f1b") != 0)
        return ds_launch__lacks(l, err, "schedule", "it has 1f1b and interleaved, not %s",
                                l->schedule);
    int64_t all = layers + l->first_less + l->last_less;
    bool counts = all != layers, divides = all % chunks == 0 && !l->model.size[DS_MODEL_MTP];
    if (l->first_less > 1 || l->last_less > 1 || (counts && !divides))
        return ds_launch__lacks(
            l, err, l->first_less > l->last_less ? "first_stage_less" : "last_stage_less",
            "embedding and loss count as one layer each, and the sum divides");
    flag(o, A_COUNT_EMBEDDING, l->first_less);
    flag(o, A_COUNT_LOSS, l->last_less);
    if (!l->n_stage_layers && !divides) {
        ds_buf layout = {0};
        ds_launch__put_layout(l, &layout);
        ds_args_out__set(o, A_LAYOUT, ds_arena_strdup(l->arena, layout.text));
        ds_buf_deinit(&layout);
    } else if (interleaves && l->virtual_stages > 1) {
        ds_args_out__set_int(o, counts ? A_CHUNKS : A_CHUNK_LAYERS,
                             counts ? l->virtual_stages : layers / chunks);
    }
    if (l->tp > 1 && !l->scatter_gather)
        return ds_launch__lacks(l, err, "scatter_gather", "since 2026 it is always on");
    return put_unequal(o, l, err);
}

static ds_status put_replicas(ds_args_out *o, const ds_launch *l, ds_error *err) {
    int64_t group = l->zero_group ? l->zero_group : l->dp,
            bytes = l->grad_dtype && strcmp(l->grad_dtype, "f32") == 0 ? 4 : 2;
    bool reduces = l->dp * l->cp > 1;
    if (l->zero == 3 && l->reshard && strcmp(l->reshard, "always") != 0)
        return ds_launch__lacks(l, err, "reshard_after_forward",
                                "Megatron-FSDP gathers weights again");
    if (l->zero > 1) {
        flag(o, A_MEGATRON_FSDP, true);
        ds_args_out__set(o, A_SHARDING, l->zero == 2 ? "optim_grads" : "optim_grads_params");
        flag(o, A_NO_FUSED_SUM, true);
        ds_args_out__set(o, A_CKPT_FORMAT, "fsdp_dtensor");
    }
    flag(o, A_DISTRIBUTED_OPTIMIZER, l->zero > 0);
    flag(o, A_OVERLAP_GRADS, reduces && l->zero < 2 && !l->late_reduce);
    flag(o, A_OVERLAP_GATHER, l->zero == 1 && !l->late_reduce); /* wants A_OVERLAP_GRADS */
    if (l->zero && group != l->dp) ds_args_out__set_int(o, A_INSTANCES, l->dp / group);
    if (l->bucket_bytes % bytes)
        return ds_launch__lacks(l, err, "bucket_size",
                                "--ddp-bucket-size counts elements, of %" PRId64 " bytes", bytes);
    if (l->bucket_bytes) ds_args_out__set_int(o, A_BUCKET, l->bucket_bytes / bytes);
    return DS_OK;
}

static ds_status put_tensor(ds_args_out *o, const ds_launch *l, ds_error *err) {
    flag(o, A_SP, l->sp && l->tp > 1);
    bool overlaps = l->sp && l->tp > 1 && strcmp(l->tp_overlap, "none") != 0;
    flag(o, A_TP_OVERLAP, overlaps);
    bool bulk = strcmp(l->tp_overlap, "bulk") == 0;
    if (overlaps && !bulk && strcmp(l->tp_overlap, "pipe") != 0)
        return ds_launch__lacks(l, err, "tp_overlap", "it has bulk and pipe, not %s",
                                l->tp_overlap);
    flag(o, A_NO_OVERLAP_AG, overlaps && bulk);
    flag(o, A_NO_OVERLAP_RS, overlaps && bulk);
    if (l->ep > 1 && l->tp > 1 && l->ep == l->dp * l->cp * l->tp) ds_args_out__set(o, A_ETP, "1");
    if (l->cp > 1)
        ds_args_out__set(o, A_CP_TYPE,
                         strcmp(l->cp_type, "ulysses") == 0 ? "a2a"
                         : strcmp(l->cp_type, "ring") == 0  ? NULL
                                                            : l->cp_type);
    return DS_OK;
}

/* ---- the text ---- */

static void put_command(const ds_args_out *o, ds_buf *out) {
    const ds_launch *l = o->launch;
    size_t column = 1000; /* a new line first */
    ds_launch__put_torchrun(l, out);
    ds_buf_put(out, " pretrain_gpt.py");
    for (uint32_t id = 0; id < A_COUNT; id++) {
        const char *value = ds_args_out__value(o, id);
        if (value) ds_launch__put_word(out, &column, o->table->args[id].name, value);
    }
    /* the script needs some data, a number of steps and a learning rate: these are no part of a plan */
    ds_launch__put_word(out, &column, "--mock-data", "");
    ds_launch__put_word(out, &column, "--train-iters", "20");
    ds_launch__put_word(out, &column, "--lr", "1e-4");
    ds_buf_putc(out, '\n');
}

ds_status ds_megatron__write(const ds_launch *launch, ds_buf *out, ds_error *err) {
    ds_arena arena;
    ds_args_out o;
    ds_arena_init(&arena);
    ds_args_out__init(&o, &ds_megatron__table, launch, &arena);
    ds_status status = put_model(&o, launch, err);
    if (status == DS_OK) status = put_numbers(&o, launch, err);
    if (status == DS_OK) status = put_recompute(&o, launch, err);
    if (status == DS_OK) status = put_stages(&o, launch, err);
    if (status == DS_OK) status = put_tensor(&o, launch, err);
    if (status == DS_OK) status = put_replicas(&o, launch, err);
    if (status == DS_OK) put_command(&o, out);
    ds_arena_deinit(&arena);
    return status;
}
