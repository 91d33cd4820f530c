/* Megatron-LM: command lines, launch scripts and logs, read.
 *
 * megatron.def says which argument is which field; this file derives what several arguments say
 * together, as validate_args of megatron/training/arguments.py does. megatron_write.c goes the other
 * way. */
#define TABLE_LINES "ir/launch/megatron.def"
#include "ir/launch/megatron_internal.h"
#include "ir/launch/table_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ds_arg_table ds_megatron__table = TABLE("Megatron-LM", false);

enum { MAX_LAYERS = 1 << 16 }; /* assumed: no model has more */

/* ---- the model ---- */

static bool is_text(const ds_args *a, uint32_t id, const char *text) {
    const char *said = ds_args__text(a, id);
    return said && strcmp(said, text) == 0;
}

static ds_status read_features(ds_args *a, ds_error *err) {
    ds_model *m = &a->launch->model;
    const char *position = ds_args__text(a, A_POSITION);
    if (ds_args__has(a, A_OLD_ROTARY)) position = "rope";
    if (is_text(a, A_NORMALIZATION, "RMSNorm")) m->features |= DS_MODEL_RMS_NORM;
    if (strcmp(position, "rope") == 0)
        m->features |= DS_MODEL_ROTARY;
    else if (strcmp(position, "learned_absolute") != 0)
        ds_args__refuse(a, "--position-embedding-type", "positions of the kind %.20s", position);
    if (ds_args__has(a, A_SWIGLU)) m->features |= DS_MODEL_GATED | DS_MODEL_SILU;
    if (ds_args__has(a, A_QUICK_GEGLU)) m->features |= DS_MODEL_GATED;
    if (ds_args__has(a, A_QKV_BIAS) && !(m->features & DS_MODEL_LINEAR_BIAS))
        m->features |= DS_MODEL_QKV_BIAS;
    if (ds_args__has(a, A_QK_NORM) && !(m->features & DS_MODEL_LATENT))
        m->features |= DS_MODEL_QK_NORM;
    m->tied = !ds_args__has(a, A_UNTIED);
    if (m->features & DS_MODEL_ROTARY) DS_TRY(ds_args__real(a, A_ROTARY_BASE, &m->rope_base, err));
    return DS_OK;
}

static ds_status read_attention(ds_args *a, ds_error *err) {
    int64_t *size = a->launch->model.size, groups, channels;
    if (a->launch->model.features & DS_MODEL_LATENT) {
        size[DS_MODEL_KV_HEADS] = size[DS_MODEL_HEADS];
        DS_TRY(ds_args__int(a, A_KV_RANK, &size[DS_MODEL_KV_RANK], err));
        DS_TRY(ds_args__int(a, A_NOPE_DIM, &size[DS_MODEL_NOPE_DIM], err));
        DS_TRY(ds_args__int(a, A_ROPE_DIM, &size[DS_MODEL_ROPE_DIM], err));
        return ds_args__int(a, A_V_DIM, &size[DS_MODEL_V_DIM], err);
    }
    size[DS_MODEL_Q_RANK] = 0;
    DS_TRY(ds_args__int(a, A_GROUPS, &groups, err));
    DS_TRY(ds_args__int(a, A_KV_CHANNELS, &channels, err));
    if (!groups) groups = 1;
    size[DS_MODEL_KV_HEADS] = ds_args__has(a, A_GROUP_QUERY) ? groups : size[DS_MODEL_HEADS];
    if (!channels && size[DS_MODEL_HIDDEN] % size[DS_MODEL_HEADS])
        return ds_launch__value(err,
                                "--hidden-size %" PRId64 " is no multiple of %" PRId64 " heads",
                                size[DS_MODEL_HIDDEN], size[DS_MODEL_HEADS]);
    size[DS_MODEL_HEAD_DIM] = channels ? channels : size[DS_MODEL_HIDDEN] / size[DS_MODEL_HEADS];
    if (size[DS_MODEL_HEADS] % size[DS_MODEL_KV_HEADS])
        return ds_launch__value(err,
                                "--num-query-groups %" PRId64 " does not divide %" PRId64 " heads",
                                size[DS_MODEL_KV_HEADS], size[DS_MODEL_HEADS]);
    return DS_OK;
}

/* One of the `[0]*3`, `[0,0,1]` between pluses: appends to zeros as long as no one came. False: not
 * understood, or a zero after a one. */
static bool freq_term(const char **at, int64_t *zeros, int64_t *ones) {
    int64_t z = 0, o = 0, times = 1;
    char *end;
    for ((*at)++; **at && **at != ']'; (*at)++) {
        if (**at == '1')
            o++;
        else if (**at == '0' && !o && !*ones)
            z++;
        else if (**at != ',' && **at != ' ')
            return false;
    }
    if (!**at) return false;
    ++*at;
    while (**at == ' ') ++*at;
    if (**at == '*') {
        times = strtoll(*at + 1, &end, 10);
        if (end == *at + 1 || times < 0 || times > 1 << 20 || (times > 1 && z && o)) return false;
        *at = end;
    }
    *zeros += z * times;
    *ones += o * times;
    return true;
}

/* "1", "([0]*3+[1]*58)", "[0, 1, 1]": how many layers come before the layers with experts. */
static bool read_freq(const char *text, int64_t layers, int64_t *dense) {
    int64_t zeros = 0, ones = 0;
    if (strcmp(text, "1") == 0) {
        *dense = 0;
        return true;
    }
    for (const char *at = text; *at;) {
        if (*at == '[') {
            if (!freq_term(&at, &zeros, &ones)) return false;
        } else if (strchr(" ()+'\"", *at)) {
            at++;
        } else {
            return false;
        }
    }
    *dense = zeros;
    return zeros + ones == layers && ones > 0;
}

static ds_status read_experts(ds_args *a, ds_error *err) {
    int64_t *size = a->launch->model.size;
    const char *freq = ds_args__text(a, A_MOE_FREQ);
    if (!size[DS_MODEL_EXPERTS]) {
        size[DS_MODEL_EXPERT_FFN] = size[DS_MODEL_SHARED_FFN] = 0;
        return DS_OK;
    }
    DS_TRY(ds_args__int(a, A_TOP, &size[DS_MODEL_TOP], err));
    if (!size[DS_MODEL_EXPERT_FFN]) size[DS_MODEL_EXPERT_FFN] = size[DS_MODEL_FFN];
    if (!read_freq(freq, size[DS_MODEL_LAYERS], &size[DS_MODEL_DENSE]))
        ds_args__refuse(a, "--moe-layer-freq", "layers with experts follow layers without; %.60s",
                        freq);
    if (!size[DS_MODEL_DENSE] && !(a->launch->model.features & DS_MODEL_LATENT))
        size[DS_MODEL_FFN] = 0; /* no layer has it */
    if (size[DS_MODEL_TOP] > size[DS_MODEL_EXPERTS])
        return ds_launch__value(err, "--moe-router-topk %" PRId64 " of %" PRId64 " experts",
                                size[DS_MODEL_TOP], size[DS_MODEL_EXPERTS]);
    bool deepep = is_text(a, A_DISPATCHER, "flex") || ds_args__has(a, A_DEEPEP);
    a->launch->ep_dispatch = deepep ? "deepep" : "all_to_all";
    if (deepep && a->launch->dp % a->launch->ep)
        ds_args__refuse(a, "--moe-token-dispatcher-type",
                        "flex sends tokens in one exchange over replicas: ep must divide dp");
    if (is_text(a, A_DISPATCHER, "allgather") && a->launch->ep > 1)
        ds_args__refuse(a, "--moe-token-dispatcher-type",
                        "tokens go to experts all to all; absent, it is allgather");
    return DS_OK;
}

/* Tokenizers whose vocabulary does not come from a file of one's own. */
static int64_t tokenizer_words(const char *type, int64_t vocab) {
    if (type && strcmp(type, "NullTokenizer") == 0) return vocab ? vocab + 1 : 0;
    if (vocab || !type) return vocab;
    if (strcmp(type, "GPT2BPETokenizer") == 0) return 50257;
    if (strcmp(type, "Llama2Tokenizer") == 0) return 32000;
    return 0;
}

/* Padded such that tp divides the table: _vocab_size_with_padding of tokenizer.py. */
static ds_status read_vocab(ds_args *a, const ds_launch_given *given, ds_error *err) {
    int64_t vocab, padded, multiple, *out = &a->launch->model.size[DS_MODEL_VOCAB];
    const char *type = ds_args__text(a, A_TOKENIZER);
    DS_TRY(ds_args__int(a, A_VOCAB, &vocab, err));
    DS_TRY(ds_args__int(a, A_PADDED_VOCAB, &padded, err));
    DS_TRY(ds_args__int(a, A_VOCAB_MULTIPLE, &multiple, err));
    *out = given->vocab ? 0 : padded;
    if (*out) return DS_OK;
    vocab = given->vocab ? given->vocab : tokenizer_words(type, vocab);
    if (!vocab)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "the vocabulary is not said: it comes from the tokenizer%s%.40s; say "
                            "--set vocab=N",
                            type ? " " : "", type ? type : "");
    multiple *= a->launch->tp;
    if (multiple < 1) multiple = 1;
    *out = (vocab + multiple - 1) / multiple * multiple;
    return DS_OK;
}

static ds_status read_model(ds_args *a, const ds_launch_given *given, ds_error *err) {
    int64_t *size = a->launch->model.size;
    static const uint32_t needed[] = {A_LAYERS, A_HIDDEN, A_HEADS, A_SEQ, A_MICRO_BATCH};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const void *field = (char *)a->launch + lines[needed[i]].field;
        if (!*(const int64_t *)field)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the argument '%s' is missing",
                                lines[needed[i]].name);
    }
    if (size[DS_MODEL_LAYERS] > MAX_LAYERS)
        return ds_launch__value(err, "more than %d layers", MAX_LAYERS);
    DS_TRY(read_features(a, err));
    if (!size[DS_MODEL_FFN])
        size[DS_MODEL_FFN] = ds_args__has(a, A_SWIGLU) ? size[DS_MODEL_HIDDEN] * 8 / 3 / 64 * 64
                                                       : 4 * size[DS_MODEL_HIDDEN];
    DS_TRY(read_attention(a, err));
    DS_TRY(read_experts(a, err));
    return read_vocab(a, given, err);
}

/* ---- the step ---- */

static ds_status read_numbers(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    const char *optimizer = ds_args__text(a, A_OPTIMIZER), *fp8 = ds_args__text(a, A_FP8);
    double decay, momentum;
    bool bf16 = ds_args__has(a, A_BF16), fp16 = ds_args__has(a, A_FP16);
    if (bf16 && fp16) return ds_args__wrong(a, A_FP16, err, "and '--bf16' exclude each other");
    l->dtype = bf16 ? "bf16" : fp16 ? "f16" : "f32";
    l->grad_dtype = bf16 && !ds_args__has(a, A_GRADS_BF16) ? "f32" : l->dtype;
    if (ds_args__has(a, A_GRADS_F32) && !ds_args__has(a, A_GRADS_BF16)) l->grad_dtype = "f32";
    if (fp8 && strcmp(fp8, "hybrid") != 0 && strcmp(fp8, "e4m3") != 0)
        ds_args__refuse(a, "--fp8-format", "a format %.20s", fp8);
    l->product_dtype = fp8 ? "f8e4m3" : NULL;
    DS_TRY(ds_args__real(a, A_WEIGHT_DECAY, &decay, err));
    DS_TRY(ds_args__real(a, A_MOMENTUM, &momentum, err));
    if (strcmp(optimizer, "adam") == 0)
        l->optimizer = decay == 0 ? "adam" : "adamw";
    else if (strcmp(optimizer, "sgd") == 0)
        l->optimizer = momentum == 0 ? "sgd" : "momentum";
    else
        ds_args__refuse(a, "--optimizer", "the optimizer %.20s", optimizer);
    if (!(l->offload_fraction >= 0 && l->offload_fraction <= 1))
        return ds_args__wrong(a, A_OFFLOAD_FRACTION, err, "is %g; a part from 0 to 1 is needed",
                              l->offload_fraction);
    if (ds_args__has(a, A_OFFLOAD) && l->offload_fraction > 0) l->offload = "optimizer";
    if (!l->offload) l->offload_fraction = 1;
    return DS_OK;
}

/* "layernorm moe_act", of a log "['layernorm', 'moe_act']": modules by the names that `recompute` has
 * too. The core of attention alone is `selective`. */
static const char *read_modules(ds_args *a, const char *text) {
    static const char gaps[] = " [],'\"";
    static const char known[] = " core_attn moe_act layernorm mla_up_proj mlp moe shared_experts ";
    ds_buf list = {0};
    uint32_t n = 0;
    for (const char *at = text + strspn(text, gaps); *at; at += strspn(at, gaps)) {
        char word[40];
        int length = (int)strcspn(at, gaps);
        snprintf(word, sizeof word, " %.*s ", length, at);
        if (!strstr(known, word))
            ds_args__refuse(a, "--recompute-modules", "the module %.*s", length > 30 ? 30 : length,
                            at);
        ds_buf_printf(&list, "%s%.*s", n++ ? ", " : "", length, at);
        at += length;
    }
    const char *out = "none";
    if (n) out = ds_arena_printf(a->launch->arena, n == 1 ? "%s" : "[%s]", list.text);
    if (strcmp(out, "core_attn") == 0) out = "selective";
    ds_buf_deinit(&list);
    return out;
}

/* Of whole layers `uniform` runs blocks of N layers again, `block` the first N of each chunk. */
static ds_status read_recompute(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    const char *granularity = ds_args__text(a, A_RECOMPUTE),
               *method = ds_args__text(a, A_RECOMPUTE_METHOD),
               *modules = ds_args__text(a, A_RECOMPUTE_MODULES);
    int64_t n;
    DS_TRY(ds_args__int(a, A_RECOMPUTE_LAYERS, &n, err));
    if (ds_args__has(a, A_RECOMPUTE_ATTENTION)) granularity = "selective";
    l->recompute = "none";
    if (!granularity) return DS_OK;
    if (strcmp(granularity, "selective") == 0) {
        l->recompute = read_modules(a, modules);
        return DS_OK;
    }
    if (strcmp(granularity, "full") != 0)
        return ds_args__wrong(a, A_RECOMPUTE, err, "is '%.20s'; full and selective are known",
                              granularity);
    if (n < 1 && ds_args__has(a, A_RECOMPUTE_LAYERS))
        return ds_args__wrong(a, A_RECOMPUTE_LAYERS, err,
                              "is 0; Megatron-LM takes from 1 to the layers of a stage");
    if (n < 1) n = 1;
    bool is_block = method && strcmp(method, "block") == 0;
    bool all = n >= l->model.size[DS_MODEL_LAYERS] / (l->pp * l->virtual_stages);
    l->recompute = is_block || n == 1 ? "full" : ds_arena_printf(l->arena, "every:%" PRId64, n);
    if (is_block && (!all || l->stage_layers))
        l->recompute_layers = ds_arena_printf(l->arena, "first:%" PRId64, n);
    return DS_OK;
}

/* ---- parallelism ---- */

/* Stages of `middle` layers between a first and a last one. */
static void set_stage_layers(ds_launch *l, int64_t first, int64_t middle, int64_t last) {
    int64_t *layers = DS_NEW_N(l->arena, int64_t, l->pp);
    for (int64_t i = 0; i < l->pp; i++) layers[i] = middle;
    if (first) layers[0] = first;
    if (last) layers[l->pp - 1] = last;
    l->stage_layers = layers;
    l->n_stage_layers = (uint32_t)l->pp;
}

/* Embedding and loss count as a layer each (get_num_layers_to_build of transformer_block.py). */
static ds_status read_counted(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t layers = l->model.size[DS_MODEL_LAYERS], chunks = l->pp * l->virtual_stages;
    if (l->pp == 1) return DS_OK;
    l->first_less = ds_args__has(a, A_COUNT_EMBEDDING);
    l->last_less = ds_args__has(a, A_COUNT_LOSS);
    int64_t all = layers + l->first_less + l->last_less;
    if (l->first_less + l->last_less == 0) return DS_OK;
    if (l->n_stage_layers)
        ds_args__refuse(a, lines[l->first_less ? A_COUNT_EMBEDDING : A_COUNT_LOSS].name,
                        "with stages of given layers");
    if (all % chunks)
        return ds_launch__value(err,
                                "%" PRId64 " layers, with embedding and loss as said, do not "
                                "divide over %" PRId64 " chunks",
                                all, chunks);
    return DS_OK;
}

static ds_status read_unequal(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t first, last, layers = l->model.size[DS_MODEL_LAYERS];
    DS_TRY(ds_args__int(a, A_FIRST_LAYERS, &first, err));
    DS_TRY(ds_args__int(a, A_LAST_LAYERS, &last, err));
    int64_t middle = layers - first - last, stages = l->pp - (first > 0) - (last > 0);
    if (stages < 0 || (stages ? middle % stages || middle < stages : middle != 0))
        return ds_launch__value(err, "%" PRId64 " layers do not divide over %" PRId64 " stages",
                                layers, l->pp);
    if ((first || last) && l->pp > 1)
        set_stage_layers(l, first, stages ? middle / stages : 0, last);
    if (l->n_stage_layers && l->virtual_stages > 1)
        ds_args__refuse(a, "--decoder-first-pipeline-num-layers",
                        "stages of unequal layers in several chunks");
    return DS_OK;
}

static ds_status read_stages(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t layers = l->model.size[DS_MODEL_LAYERS], per_chunk, chunks, group;
    DS_TRY(ds_args__int(a, A_CHUNK_LAYERS, &per_chunk, err));
    DS_TRY(ds_args__int(a, A_CHUNKS, &chunks, err));
    DS_TRY(ds_args__int(a, A_CHUNK_GROUP, &group, err));
    if (per_chunk && l->pp > 1) {
        if (layers / l->pp % per_chunk)
            return ds_args__wrong(a, A_CHUNK_LAYERS, err,
                                  "= %" PRId64 " does not divide the %" PRId64 " layers of a stage",
                                  per_chunk, layers / l->pp);
        chunks = layers / l->pp / per_chunk;
    }
    l->virtual_stages = chunks > 1 && l->pp > 1 ? chunks : 1;
    bool has_layout = ds_args__has(a, A_LAYOUT) && l->pp > 1;
    if (has_layout && !ds_launch__read_layout(l, ds_args__text(a, A_LAYOUT)))
        ds_args__refuse(a, lines[A_LAYOUT].name,
                        "chunks of layers over the stages, embedding first, loss last");
    if (group && l->virtual_stages > 1 && group != l->pp)
        ds_args__refuse(a, lines[A_CHUNK_GROUP].name, "groups of pp microbatches are simulated");
    if (l->virtual_stages > 1 && ds_args__has(a, A_NO_OVERLAP_SENDS))
        ds_args__refuse(a, lines[A_NO_OVERLAP_SENDS].name,
                        "sends between chunks overlap with computation");
    l->schedule = l->virtual_stages > 1 ? "interleaved" : "1f1b";
    if (!has_layout) DS_TRY(read_unequal(a, err));
    return read_counted(a, err);
}

static ds_status read_tensor(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t etp;
    DS_TRY(ds_args__int(a, A_ETP, &etp, err));
    l->sp = ds_args__has(a, A_SP) && l->tp > 1;
    bool gathers = !ds_args__has(a, A_NO_OVERLAP_AG), scatters = !ds_args__has(a, A_NO_OVERLAP_RS);
    l->tp_overlap = "none";
    if (ds_args__has(a, A_TP_OVERLAP) && l->sp) l->tp_overlap = gathers ? "pipe" : "bulk";
    if (ds_args__has(a, A_TP_OVERLAP) && gathers != scatters)
        ds_args__refuse(a, "--disable-tp-comm-overlap-ag",
                        "gathers and scatters overlap, or neither");
    if (!l->model.size[DS_MODEL_EXPERTS] || !etp || etp == l->tp) return DS_OK;
    if (etp != 1 || !l->sp || l->ep != l->dp * l->cp * l->tp)
        ds_args__refuse(
            a, "--expert-tensor-parallel-size",
            "experts are split by tp; or by none where ep is all of dp, cp and tp, with "
            "--sequence-parallel");
    return DS_OK;
}

static void read_context(ds_args *a) {
    static const char *const names[][2] = {{"p2p", "ring"},
                                           {"['p2p']", "ring"},
                                           {"a2a", "ulysses"},
                                           {"['a2a']", "ulysses"},
                                           {"all_gather", "all_gather"},
                                           {"allgather", "all_gather"},
                                           {"['all_gather']", "all_gather"}};
    const char *type = ds_args__text(a, A_CP_TYPE);
    a->launch->cp_type = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(type, names[i][0]) == 0) a->launch->cp_type = names[i][1];
    if (!a->launch->cp_type) {
        a->launch->cp_type = "ring";
        if (a->launch->cp > 1)
            ds_args__refuse(a, "--cp-comm-type", "p2p, a2a and all_gather are simulated, not %.20s",
                            type);
    }
}

static ds_status read_replicas(ds_args *a, ds_error *err) {
    static const char *const sharding[] = {"no_shard", "optim", "optim_grads",
                                           "optim_grads_params"};
    ds_launch *l = a->launch;
    int64_t instances, bucket;
    bool reshards = !ds_args__has(a, A_NO_RESHARD);
    l->zero = ds_args__has(a, A_DISTRIBUTED_OPTIMIZER);
    if (ds_args__has(a, A_MEGATRON_FSDP))
        for (int i = 0; i < 4; i++)
            if (is_text(a, A_SHARDING, sharding[i])) l->zero = i;
    if (ds_args__has(a, A_TORCH_FSDP2)) l->zero = 3;
    if (l->dp * l->cp == 1) l->zero = 0;
    if (l->zero && ds_args__has(a, A_TORCH_FSDP2)) l->reshard = reshards ? "layers" : "never";
    DS_TRY(ds_args__int(a, A_INSTANCES, &instances, err));
    if (instances < 1 || l->dp % instances)
        return ds_args__wrong(a, A_INSTANCES, err,
                              "= %" PRId64 " does not divide %" PRId64 " replicas", instances,
                              l->dp);
    l->zero_group = l->zero && instances > 1 ? l->dp / instances : 0;
    l->late_reduce = l->zero <= 1 && !ds_args__has(a, A_OVERLAP_GRADS);
    DS_TRY(ds_args__int(a, A_BUCKET, &bucket, err));
    l->bucket_bytes = bucket * (strcmp(l->grad_dtype, "f32") == 0 ? 4 : 2);
    return DS_OK;
}

static ds_status read_degrees(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t inner;
    if (l->tp < 1 || l->pp < 1 || l->cp < 1 || l->ep < 1)
        return ds_launch__value(err, "a parallel size is 0");
    if (__builtin_mul_overflow(l->tp, l->pp, &inner) ||
        __builtin_mul_overflow(inner, l->cp, &inner))
        return ds_launch__value(err, "parallel sizes beyond 2^63");
    DS_TRY(ds_launch__check_world(l, err));
    if (l->world % inner)
        return ds_launch__value(
            err, "%" PRId64 " devices are no multiple of tp * pp * cp = %" PRId64, l->world, inner);
    l->dp = l->world / inner;
    bool is_whole = l->ep == l->dp * l->cp * l->tp && ds_args__has(a, A_SP);
    if (l->dp * l->cp % l->ep && !is_whole)
        return ds_launch__value(err,
                                "--expert-model-parallel-size %" PRId64
                                " does not divide dp * cp = "
                                "%" PRId64,
                                l->ep, l->dp * l->cp);
    if (l->ep > 1 && !l->model.size[DS_MODEL_EXPERTS])
        return ds_launch__value(err, "--expert-model-parallel-size without --num-experts");
    return DS_OK;
}

static ds_status read_batch(ds_launch *l, const ds_launch_given *given, ds_error *err) {
    if (given->batch) l->batch = given->batch;
    if (given->seq) l->seq = given->seq;
    if (!l->batch) l->batch = l->microbatch * l->dp;
    if (l->batch % (l->microbatch * l->dp))
        return ds_launch__value(err,
                                "a batch of %" PRId64 " is no multiple of %" PRId64
                                " replicas with microbatches of %" PRId64,
                                l->batch, l->dp, l->microbatch);
    return DS_OK;
}

/* ---- forms of a text ---- */

static ds_status derive(ds_args *a, const ds_launch_given *given, ds_error *err) {
    ds_launch *l = a->launch;
    DS_TRY(ds_args__fill(a, err));
    if (given->nodes) l->world = given->nodes * (given->node ? given->node : l->node);
    if (given->node) l->node = given->node;
    DS_TRY(read_degrees(a, err));
    DS_TRY(read_model(a, given, err));
    DS_TRY(read_numbers(a, err));
    DS_TRY(read_stages(a, err));
    DS_TRY(read_recompute(a, err));
    DS_TRY(read_tensor(a, err));
    read_context(a);
    DS_TRY(read_replicas(a, err));
    DS_TRY(read_batch(l, given, err));
    return ds_args__check(a, err);
}

static void check_script(ds_args *a, const char *word) {
    static const char *const others[] = {"t5",  "vlm",    "mamba",     "retro",
                                         "ict", "vision", "biencoder", "hybrid"};
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    if (strstr(name, "bert")) a->launch->model.features |= DS_MODEL_ENCODER;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i])) ds_args__refuse(a, name, "a model of another kind");
}

static ds_status read_script(ds_args *a, const char *text, size_t n, ds_error *err) {
    const ds_command *command;
    uint32_t first;
    DS_TRY(ds_launch__find_command(a, text, n, &command, &first, err));
    if (first) check_script(a, command->words[first - 1].text);
    return ds_args__say_words(a, command->words + first, command->n - first, err);
}

#define LOG_BEGIN "- arguments -" /* between dashes */

/* A log prints `  num_layers ...................................... 32`, after any prefix. */
static ds_status read_log_line(ds_args *a, char *text, uint32_t number, ds_error *err) {
    char *dots = strstr(text, " ...");
    if (!dots) return DS_OK;
    char *name = dots, *value = dots + 1;
    while (name > text && name[-1] != ' ' && name[-1] != ':' && name[-1] != '\t') name--;
    while (*value == '.') value++;
    while (*value == ' ') value++;
    *dots = 0;
    for (size_t k = strlen(value); k && (value[k - 1] == ' ' || value[k - 1] == '\r'); k--)
        value[k - 1] = 0;
    if (strcmp(name, "world_size") == 0) {
        a->launch->world = strtol(value, NULL, 10);
        return DS_OK;
    }
    for (uint32_t id = 0; id < A_COUNT; id++)
        if (lines[id].key && strcmp(lines[id].key, name) == 0) {
            a->said[id] = (ds_arg_said){value, number};
            return DS_OK;
        }
    char *dashed = ds_arena_join(a->launch->arena, "--", name);
    for (char *c = dashed; *c; c++)
        if (*c == '_') *c = '-';
    return ds_args__say(a, dashed, value, number, err);
}

/* `--disable-bias-linear` is `add_bias_linear ... False` in a log. */
static void turn_flags(ds_args *a) {
    for (uint32_t id = 0; id < A_COUNT; id++)
        if (lines[id].kind == DS_ARG_OFF && a->said[id].text)
            a->said[id].text = ds_args__has(a, id) ? "False" : "True";
}

/* `> padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)`, after the arguments. */
static void read_vocab_line(ds_args *a, char *text, uint32_t number) {
    char *size = strstr(text, "padded vocab ") ? strstr(text, "(new size: ") : NULL, *end;
    if (!size) return;
    size += strlen("(new size: ");
    end = strchr(size, ')');
    if (end) *end = 0;
    a->said[A_PADDED_VOCAB] = (ds_arg_said){size, number};
}

static ds_status read_log(ds_args *a, char *text, ds_error *err) {
    enum { BEFORE, INSIDE, AFTER } part = BEFORE;
    a->is_log = true;
    for (uint32_t number = 1; text; number++) {
        char *end = strchr(text, '\n');
        if (end) *end = 0;
        if (part == BEFORE && strstr(text, LOG_BEGIN))
            part = INSIDE;
        else if (part == INSIDE && strstr(text, "end of arguments"))
            part = AFTER;
        else if (part == INSIDE)
            DS_TRY(read_log_line(a, text, number, err));
        else if (part == AFTER)
            read_vocab_line(a, text, number);
        text = end ? end + 1 : NULL;
    }
    turn_flags(a);
    a->is_log = false;
    return DS_OK;
}

ds_status ds_megatron__read(ds_launch *launch, const ds_launch_given *given, const char *text,
                            size_t n, ds_error *err) {
    ds_args a;
    char *copy = ds_arena_strndup(launch->arena, text, n); /* lines of a log are cut in place */
    ds_args__init(&a, &ds_megatron__table, launch);
    ds_status status =
        strstr(copy, LOG_BEGIN) ? read_log(&a, copy, err) : read_script(&a, copy, n, err);
    if (status == DS_OK) status = derive(&a, given, err);
    ds_args__deinit(&a);
    return status;
}
