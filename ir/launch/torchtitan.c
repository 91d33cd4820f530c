/* torchtitan: TOML files and flags, read and written.
 *
 * torchtitan.def says which field is which; this file derives what several fields say together, as
 * torchtitan/distributed/parallel_dims.py and torchtitan/train.py do. Replicas are those of DDP times
 * the shards of FSDP2 (zero = 3); weights are gathered again for the backward pass or stay gathered. */
#define TABLE_LINES "ir/launch/torchtitan.def"
#include "ir/launch/table_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
#define ARG(id, ...) A_##id,
#include "ir/launch/torchtitan.def"
    A_COUNT
};

static const struct {
    const char *name, *flavor;
    unsigned features;
    bool tied;
    double rope_base;
    int64_t size[DS_MODEL_N_SIZES];
} flavors[] = {
#define FLAVOR(name, flavor, features, tied, rope_base, ...)                                       \
    {name, flavor, features, tied, rope_base, {__VA_ARGS__}},
#include "ir/launch/torchtitan.def"
};
#define N_FLAVORS (sizeof flavors / sizeof *flavors)

const ds_arg_table ds_torchtitan__table = TABLE("torchtitan", true);

static const struct {
    const char *theirs, *ours;
} schedules[] = {{"1F1B", "1f1b"},
                 {"GPipe", "gpipe"},
                 {"Interleaved1F1B", "interleaved"},
                 {"LoopedBFS", "breadth-first"},
                 {"ZBVZeroBubble", "zb-v"},
                 {"DualPipeV", "dualpipev"}};
#define N_SCHEDULES (sizeof schedules / sizeof *schedules)

/* ---- the way in ---- */

/* A number, or 0 of a -1, which leaves it to torchtitan. */
static ds_status read_or_rest(const ds_args *a, uint32_t id, int64_t *out, ds_error *err) {
    const char *text = ds_args__text(a, id);
    *out = 0;
    if (!text || strcmp(text, "-1") == 0) return DS_OK;
    return ds_args__int(a, id, out, err);
}

/* "llama3_8b" of --config and "8B" are one flavor. */
static bool is_flavor(const char *text, const char *flavor) {
    for (; *text || *flavor; text++, flavor++)
        if (strncasecmp(text, flavor, 1) != 0 && !(*text == '_' && *flavor == '-')) return false;
    return true;
}

static ds_status read_model(ds_args *a, const ds_launch_given *given, ds_error *err) {
    ds_model *m = &a->launch->model;
    const char *name = ds_args__text(a, A_NAME), *flavor = ds_args__text(a, A_FLAVOR),
               *module = ds_args__text(a, A_MODULE), *config = ds_args__text(a, A_CONFIG);
    if (module) name = module;
    size_t n = strlen(name);
    if (config)
        flavor = strncmp(config, name, n) == 0 && config[n] == '_' ? config + n + 1 : config;
    for (size_t i = 0; i < N_FLAVORS; i++) {
        if (strcmp(flavors[i].name, name) != 0 || !is_flavor(flavor, flavors[i].flavor)) continue;
        memcpy(m->size, flavors[i].size, sizeof m->size);
        m->features = flavors[i].features;
        m->tied = flavors[i].tied;
        m->rope_base = flavors[i].rope_base;
        if (given->vocab) m->size[DS_MODEL_VOCAB] = given->vocab;
        return DS_OK;
    }
    ds_buf list = {0};
    for (size_t i = 0; i < N_FLAVORS; i++)
        ds_buf_printf(&list, "%s%s %s", i ? ", " : "", flavors[i].name, flavors[i].flavor);
    ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                 "the model %.30s %.30s is none of those that distsim knows: %s", name, flavor,
                 list.text);
    ds_buf_deinit(&list);
    return DS_ERR_UNSUPPORTED;
}

static ds_status read_degrees(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t replicas, shards, inner, etp;
    const char *reshard = ds_args__text(a, A_RESHARD);
    DS_TRY(ds_args__int(a, A_REPLICATE, &replicas, err));
    DS_TRY(read_or_rest(a, A_SHARD, &shards, err));
    DS_TRY(ds_args__int(a, A_ETP, &etp, err));
    if (l->tp < 1 || l->pp < 1 || l->cp < 1 || l->ep < 1 || replicas < 1)
        return ds_launch__value(err, "a parallel degree is 0");
    bool over = __builtin_mul_overflow(l->tp, l->pp, &inner) ||
                __builtin_mul_overflow(inner, l->cp, &inner) ||
                __builtin_mul_overflow(inner, replicas, &inner);
    if (!over && shards && !l->world) over = __builtin_mul_overflow(inner, shards, &l->world);
    if (over) return ds_launch__value(err, "parallel degrees beyond 2^63");
    DS_TRY(ds_launch__check_world(l, err));
    if (l->world % inner || (shards && l->world / inner != shards))
        return ds_launch__value(err, "%" PRId64 " devices are not replicas * shards * tp * pp * cp",
                                l->world);
    if (!shards) shards = l->world / inner;
    l->dp = replicas * shards;
    if (strcmp(reshard, "always") != 0 && strcmp(reshard, "never") != 0 &&
        strcmp(reshard, "default") != 0)
        return ds_args__wrong(a, A_RESHARD, err, "is '%.20s'; default, always and never are known",
                              reshard);
    bool gathers =
        strcmp(reshard, "always") == 0 || (strcmp(reshard, "default") == 0 && l->pp == 1);
    l->zero = shards * l->cp > 1 ? 3 : 0;
    l->reshard = l->zero ? reshard : NULL;
    if (l->zero && !gathers && ds_args__has(a, A_OFFLOAD))
        ds_args__refuse(a, lines[A_OFFLOAD].name,
                        "with weights that stay gathered (fsdp_reshard_after_forward)");
    l->zero_group = l->zero && replicas > 1 ? shards : 0;
    if (l->dp * l->cp % l->ep && l->ep != l->dp * l->cp * l->tp)
        return ds_launch__value(err, "an expert degree of %" PRId64 " of %" PRId64 " replicas",
                                l->ep, l->dp * l->cp);
    if (l->ep > 1 && l->tp > 1 && etp != l->tp && (etp != 1 || l->ep != l->dp * l->cp * l->tp))
        ds_args__refuse(a, lines[A_ETP].name,
                        "experts are split by tp, or ep is all of dp, cp and tp");
    return DS_OK;
}

/* What torch.compile has: the layers ("model"), "loss", or both. */
static ds_status read_compile(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    const char *at = ds_args__text(a, A_COMPONENTS);
    bool model = false, loss = false;
    for (size_t n; at += strspn(at, ", "), (n = strcspn(at, ", ")) > 0; at += n) {
        bool is_model = n == 5 && strncmp(at, "model", n) == 0,
             is_loss = n == 4 && strncmp(at, "loss", n) == 0;
        if (!is_model && !is_loss)
            return ds_args__wrong(a, A_COMPONENTS, err, "has '%.*s'; model and loss are known",
                                  n < 30 ? (int)n : 30, at);
        model = model || is_model;
        loss = loss || is_loss;
    }
    if (!ds_args__has(a, A_COMPILE)) return DS_OK;
    l->compiled = model;
    if (model != loss) l->loss_kernels = loss ? "compiled" : "eager";
    return DS_OK;
}

static ds_status read_tensor(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    const char *rotate = ds_args__text(a, A_ROTATE);
    bool overlaps = ds_args__has(a, A_ASYNC_TP) || ds_args__has(a, A_ASYNC_TP_2026);
    l->sp = l->tp > 1 && strcasecmp(ds_args__text(a, A_SP), "false") != 0;
    l->tp_overlap = overlaps && l->sp ? "ring" : "none";
    l->cp_type = strcmp(rotate, "alltoall") == 0 ? "ring" : "all_gather";
    return read_compile(a, err);
}

/* Stages get alike many layers, embedding and head counted as layers of the first and the last
 * (generate_llm_fqn_per_model_part of pipeline_parallel.py). */
static ds_status read_chunks(ds_launch *l, int64_t first_less, int64_t last_less, ds_error *err) {
    int64_t layers = l->model.size[DS_MODEL_LAYERS], n = l->pp * l->virtual_stages,
            all = layers + first_less + last_less;
    if (n < 2 || all / n < first_less || all / n < last_less)
        return ds_launch__value(err, "%" PRId64 " layers for %" PRId64 " stages", layers, n);
    l->first_less = first_less;
    l->last_less = last_less;
    return DS_OK;
}

static ds_status read_stages(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t per_stage, first, last, layers = l->model.size[DS_MODEL_LAYERS];
    const char *word = ds_args__text(a, A_SCHEDULE);
    DS_TRY(ds_args__int(a, A_STAGE_LAYERS, &per_stage, err));
    DS_TRY(ds_args__int(a, A_FIRST_LESS, &first, err));
    DS_TRY(ds_args__int(a, A_LAST_LESS, &last, err));
    if (l->pp == 1) return DS_OK;
    l->schedule = NULL;
    for (size_t i = 0; i < N_SCHEDULES; i++)
        if (strcasecmp(word, schedules[i].theirs) == 0) l->schedule = schedules[i].ours;
    if (!l->schedule) {
        l->schedule = "1f1b";
        ds_args__refuse(a, lines[A_SCHEDULE].name, "the schedule %.30s", word);
        return DS_OK;
    }
    bool several = strcmp(l->schedule, "1f1b") != 0 && strcmp(l->schedule, "gpipe") != 0;
    int64_t chunks = several ? 2 * l->pp : l->pp;
    if (per_stage) chunks = (layers + first + last + per_stage - 1) / per_stage;
    if (chunks % l->pp || chunks / l->pp > 64 || (!several && chunks != l->pp))
        return ds_launch__value(
            err, "%" PRId64 " stages of %" PRId64 " layers do not divide over %" PRId64 " devices",
            chunks, per_stage, l->pp);
    l->virtual_stages = chunks / l->pp;
    return read_chunks(l, first, last, err);
}

/* 2026: tokens a microbatch and a step; before: sequences a device's turn and a step. */
static ds_status read_batch(ds_args *a, const ds_launch_given *given, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t local, old, tokens, step, context, pp_size, pp_count;
    DS_TRY(ds_args__int(a, A_LOCAL_BATCH, &local, err));
    DS_TRY(ds_args__int(a, A_OLD_BATCH, &old, err));
    DS_TRY(ds_args__int(a, A_SEQ, &l->seq, err));
    DS_TRY(ds_args__int(a, A_CONTEXT, &context, err));
    DS_TRY(ds_args__int(a, A_MICRO_TOKENS, &tokens, err));
    DS_TRY(read_or_rest(a, A_STEP_TOKENS, &step, err));
    DS_TRY(read_or_rest(a, A_GLOBAL_BATCH, &l->batch, err));
    DS_TRY(ds_args__int(a, A_MICRO_BATCH, &pp_size, err));
    DS_TRY(ds_args__int(a, A_MICRO_BATCHES, &pp_count, err));
    if (old) local = old;
    l->microbatch = l->pp > 1 ? pp_size : local;
    if (tokens || context) {
        l->seq = context ? context : 2048;
        tokens = tokens ? tokens : 16384;
        if (tokens % l->seq || step % l->seq)
            return ds_launch__value(err,
                                    "%" PRId64 " tokens are no multiple of sequences of %" PRId64,
                                    tokens % l->seq ? tokens : step, l->seq);
        l->microbatch = tokens / l->seq;
        l->batch = step / l->seq;
        local = l->microbatch * (l->pp > 1 ? pp_count : 1);
    }
    if (given->seq) l->seq = given->seq;
    if (!l->batch && local > INT64_MAX / l->dp) return ds_launch__value(err, "a batch beyond 2^63");
    if (!l->batch) l->batch = local * l->dp;
    if (given->batch) l->batch = given->batch;
    if (!l->microbatch || !l->seq || l->microbatch > INT64_MAX / l->dp ||
        l->batch % (l->microbatch * l->dp))
        return ds_launch__value(err,
                                "a batch of %" PRId64 " is no multiple of %" PRId64
                                " replicas with microbatches of %" PRId64,
                                l->batch, l->dp, l->microbatch);
    return DS_OK;
}

/* "op": all but every second product runs again; a number K: whole layers, one in K. */
static ds_status read_selective(ds_args *a, const char *option, ds_error *err) {
    ds_launch *l = a->launch;
    char *end;
    long k = strtol(option, &end, 10);
    bool is_op = strcmp(option, "op") == 0;
    l->recompute = is_op ? "selective_op" : "full";
    if (!is_op && (end == option || *end || k < 1 || k > 1000000))
        return ds_args__wrong(a, A_SELECTIVE, err,
                              "is '%.20s'; 'op' and numbers of layers from 1 are known", option);
    if (!is_op && k > 1) l->recompute_layers = ds_arena_printf(l->arena, "one_in:%ld", k);
    return DS_OK;
}

static ds_status read_numbers(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    const char *dtype = ds_args__text(a, A_PARAM_DTYPE), *optimizer = ds_args__text(a, A_OPTIMIZER),
               *mode = ds_args__text(a, A_RECOMPUTE), *option = ds_args__text(a, A_SELECTIVE),
               *converters = ds_args__text(a, A_CONVERTERS);
    if (strcmp(dtype, "bfloat16") != 0 && strcmp(dtype, "float32") != 0)
        return ds_args__wrong(a, A_PARAM_DTYPE, err, "is '%.20s'; bfloat16 and float32 are known",
                              dtype);
    l->dtype = strcmp(dtype, "float32") == 0 ? "f32" : "bf16";
    l->grad_dtype = "f32";
    if (strcmp(optimizer, "AdamW") != 0 && strcmp(optimizer, "Adam") != 0)
        ds_args__refuse(a, lines[A_OPTIMIZER].name, "the optimizer %.20s", optimizer);
    l->optimizer = strcmp(optimizer, "Adam") == 0 ? "adam" : "adamw";
    if (strstr(converters, "float8"))
        l->product_dtype = "f8e4m3";
    else if (*converters && strcmp(converters, "None") != 0)
        ds_args__refuse(a, lines[A_CONVERTERS].name, "the converter %.40s", converters);
    if (ds_args__has(a, A_OFFLOAD)) l->offload = "[optimizer, weights]";
    l->recompute = mode;
    if (strcmp(mode, "selective") == 0)
        return read_selective(a, option, err);
    else if (strcmp(mode, "none") != 0 && strcmp(mode, "full") != 0)
        ds_args__refuse(a, lines[A_RECOMPUTE].name, "the mode %.20s", mode);
    return DS_OK;
}

/* A configuration begins with a table or a key, a command with a word. */
static bool is_toml(const char *text) {
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, " \t\r\n");
        if (*line == '[') return true;
        if (*line && *line != '#') return false;
    }
    return false;
}

static ds_status read_text(ds_args *a, const char *text, size_t n, ds_error *err) {
    const ds_command *command;
    uint32_t first;
    if (is_toml(text)) return ds_launch__toml(a, text, err);
    DS_TRY(ds_launch__find_command(a, text, n, &command, &first, err));
    return ds_args__say_words(a, command->words + first, command->n - first, err);
}

static ds_status derive(ds_args *a, const ds_launch_given *given, ds_error *err) {
    ds_launch *l = a->launch;
    if (given->nodes) l->world = given->nodes * (given->node ? given->node : l->node);
    if (given->node) l->node = given->node;
    DS_TRY(ds_args__fill(a, err));
    DS_TRY(read_model(a, given, err));
    DS_TRY(read_degrees(a, err));
    DS_TRY(read_tensor(a, err));
    DS_TRY(read_stages(a, err));
    DS_TRY(read_batch(a, given, err));
    DS_TRY(read_numbers(a, err));
    return ds_args__check(a, err);
}

ds_status ds_torchtitan__read(ds_launch *launch, const ds_launch_given *given, const char *text,
                              size_t n, ds_error *err) {
    ds_args a;
    ds_args__init(&a, &ds_torchtitan__table, launch);
    ds_status status = read_text(&a, text, n, err);
    if (status == DS_OK) status = derive(&a, given, err);
    ds_args__deinit(&a);
    return status;
}

/* ---- the way out ---- */

static void flag(ds_args_out *o, uint32_t id, bool on) {
    ds_args_out__set(o, id, on ? "true" : NULL);
}

static ds_status put_model(ds_args_out *o, const ds_launch *l, ds_error *err) {
    for (size_t i = 0; i < N_FLAVORS; i++) {
        if (flavors[i].features != l->model.features || flavors[i].tied != l->model.tied ||
            flavors[i].rope_base != l->model.rope_base)
            continue;
        bool same = true;
        for (int k = 0; k < DS_MODEL_N_SIZES; k++)
            if (k != DS_MODEL_POSITIONS && flavors[i].size[k] != l->model.size[k]) same = false;
        if (!same) continue;
        ds_args_out__set(o, A_NAME, flavors[i].name);
        ds_args_out__set(o, A_FLAVOR, flavors[i].flavor);
        return DS_OK;
    }
    return ds_launch__lacks(l, err, "model", "no flavor has the sizes of this @%s",
                            ds_model_function(&l->model));
}

static ds_status put_replicas(ds_args_out *o, const ds_launch *l, ds_error *err) {
    int64_t group = l->zero_group ? l->zero_group : l->dp;
    if (l->zero == 1 || l->zero == 2)
        return ds_launch__lacks(l, err, l->zero == 1 ? "zero = 1" : "zero = 2",
                                "FSDP2 shares weights out too");
    if (l->zero == 0 && l->cp > 1)
        return ds_launch__lacks(l, err, "zero = 0", "with cp there are shards");
    if (l->late_reduce && l->dp > 1)
        return ds_launch__lacks(l, err, "late_reduce", "gradients are reduced as they come");
    ds_args_out__set_int(o, A_REPLICATE, l->zero ? l->dp / group : l->dp);
    ds_args_out__set_int(o, A_SHARD, l->zero ? group : 1);
    if (l->zero && l->reshard && strcmp(l->reshard, "layers") == 0 && l->pp > 1)
        return ds_launch__lacks(l, err, "reshard_after_forward", "it has always and never");
    if (l->zero)
        ds_args_out__set(o, A_RESHARD,
                         !l->reshard                         ? "always"
                         : strcmp(l->reshard, "layers") == 0 ? "default"
                                                             : l->reshard);
    if (l->bucket_bytes)
        return ds_launch__lacks(l, err, "bucket_size", "a unit of FSDP is a layer");
    if (l->tp > 1 && !l->sp) return ds_launch__lacks(l, err, "sp = false", "tp comes with sp");
    bool ring = strcmp(l->tp_overlap, "ring") == 0;
    if (l->sp && !ring && strcmp(l->tp_overlap, "none") != 0)
        return ds_launch__lacks(l, err, "tp_overlap", "it has ring, not %s", l->tp_overlap);
    flag(o, A_ASYNC_TP, l->sp && ring);
    flag(o, A_COMPILE, l->compiled || l->loss_kernels || (l->sp && ring));
    if (l->loss_kernels)
        ds_args_out__set(o, A_COMPONENTS, strcmp(l->loss_kernels, "eager") == 0 ? "model" : "loss");
    if (l->cp > 1 && strcmp(l->cp_type, "ulysses") == 0)
        return ds_launch__lacks(l, err, "cp_type", "it has ring and all_gather");
    if (l->cp > 1 && strcmp(l->cp_type, "ring") == 0) ds_args_out__set(o, A_ROTATE, "alltoall");
    bool whole = l->ep == l->dp * l->cp * l->tp;
    if (l->ep > 1 && l->tp > 1 && !whole) ds_args_out__set_int(o, A_ETP, l->tp);
    return DS_OK;
}

static ds_status put_stages(ds_args_out *o, const ds_launch *l, ds_error *err) {
    int64_t layers = l->model.size[DS_MODEL_LAYERS], chunks = l->pp * l->virtual_stages;
    if (l->pp == 1) return DS_OK;
    for (size_t i = 0; i < N_SCHEDULES; i++)
        if (strcmp(l->schedule, schedules[i].ours) == 0)
            ds_args_out__set(o, A_SCHEDULE, schedules[i].theirs);
    if (!o->is_set[A_SCHEDULE]) return ds_launch__lacks(l, err, "schedule", "%s", l->schedule);
    int64_t all = layers + l->first_less + l->last_less, each = (all + chunks - 1) / chunks;
    if (l->n_stage_layers || (all + each - 1) / each != chunks)
        return ds_launch__lacks(l, err, "stage_layers", "%" PRId64 " layers on %" PRId64 " stages",
                                layers, chunks);
    ds_args_out__set_int(o, A_STAGE_LAYERS, each);
    ds_args_out__set_int(o, A_FIRST_LESS, l->first_less);
    ds_args_out__set_int(o, A_LAST_LESS, l->last_less);
    if (l->microbatch != 1) ds_args_out__set_int(o, A_MICRO_BATCH, l->microbatch);
    return DS_OK;
}

static ds_status put_recompute(ds_args_out *o, const ds_launch *l, ds_error *err) {
    bool all = strcmp(l->recompute_layers, "all") == 0,
         one_in = strncmp(l->recompute_layers, "one_in:", 7) == 0,
         full = strcmp(l->recompute, "full") == 0, none = strcmp(l->recompute, "none") == 0,
         op = strncmp(l->recompute, "selective", 9) == 0;
    if (!all && !(full && one_in))
        return ds_launch__lacks(l, err, "recompute_layers", "%s of %s", l->recompute,
                                l->recompute_layers);
    if (!full && !none && !op)
        return ds_launch__lacks(l, err, "recompute", "recomputation of %s", l->recompute);
    ds_args_out__set(o, A_RECOMPUTE, op || one_in ? "selective" : l->recompute);
    if (op) ds_args_out__set(o, A_SELECTIVE, "op");
    if (one_in) ds_args_out__set(o, A_SELECTIVE, l->recompute_layers + 7);
    return DS_OK;
}

static ds_status put_numbers(ds_args_out *o, const ds_launch *l, ds_error *err) {
    bool bf16 = strcmp(l->dtype, "bf16") == 0, f32 = strcmp(l->dtype, "f32") == 0;
    if (!bf16 && !f32) return ds_launch__lacks(l, err, "dtype", "a step in %s", l->dtype);
    if (f32) ds_args_out__set(o, A_PARAM_DTYPE, "float32");
    if (strcmp(l->grad_dtype ? l->grad_dtype : l->dtype, "f32") != 0)
        return ds_launch__lacks(l, err, "grad_dtype", "gradients are reduced in f32");
    if (l->product_dtype && strcmp(l->product_dtype, "f8e4m3") != 0)
        return ds_launch__lacks(l, err, "product_dtype", "products in %s", l->product_dtype);
    if (l->product_dtype) ds_args_out__set(o, A_CONVERTERS, "quantize.linear.float8");
    if (strncmp(l->optimizer, "adam", 4) != 0)
        return ds_launch__lacks(l, err, "optimizer", "the optimizer %s", l->optimizer);
    if (strcmp(l->optimizer, "adam") == 0) ds_args_out__set(o, A_OPTIMIZER, "Adam");
    if (l->offload && strcmp(l->offload, "[optimizer, weights]") != 0)
        return ds_launch__lacks(l, err, "offload", "all in the memory of hosts, or nothing");
    if (l->offload && l->offload_fraction < 1)
        return ds_launch__lacks(l, err, "offload_fraction",
                                "all of the state at hosts, or nothing");
    flag(o, A_OFFLOAD, l->offload);
    return put_recompute(o, l, err);
}

static ds_status put_all(ds_args_out *o, const ds_launch *l, ds_error *err) {
    DS_TRY(put_model(o, l, err));
    DS_TRY(put_replicas(o, l, err));
    DS_TRY(put_stages(o, l, err));
    DS_TRY(put_numbers(o, l, err));
    /* with a pipeline the local batch is a replica's whole step, else the rest is accumulated */
    ds_args_out__set_int(o, A_LOCAL_BATCH, l->pp > 1 ? l->batch / l->dp : l->microbatch);
    ds_args_out__set_int(o, A_GLOBAL_BATCH, l->batch);
    ds_args_out__set_int(o, A_SEQ, l->seq);
    return DS_OK;
}

ds_status ds_torchtitan__write(const ds_launch *launch, ds_buf *out, ds_error *err) {
    ds_arena arena;
    ds_args_out o;
    size_t column = 1000; /* a new line first */
    ds_arena_init(&arena);
    ds_args_out__init(&o, &ds_torchtitan__table, launch, &arena);
    ds_status status = put_all(&o, launch, err);
    if (status == DS_OK) {
        ds_launch__put_torchrun(launch, out);
        ds_buf_put(out, " -m torchtitan.train");
        for (uint32_t id = 0; id < A_COUNT; id++) {
            const char *value = ds_args_out__value(&o, id);
            if (!value) continue;
            ds_launch__put_word(out, &column,
                                ds_arena_printf(&arena, "--%s=%s", lines[id].name, value), "");
        }
        ds_buf_putc(out, '\n');
    }
    ds_arena_deinit(&arena);
    return status;
}
