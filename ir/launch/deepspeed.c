/* DeepSpeed: ds_config.json, read and written. The model is beside the file: a config.json.
 *
 * deepspeed.def says which key is which field; this file derives what several keys say together, as
 * deepspeed/runtime/config.py does: train_batch_size = micro batch * turns * replicas. Activations are
 * computed again by the program, which has activation_checkpointing.number_checkpoints of them. */
#define TABLE_LINES "ir/launch/deepspeed.def"
#include "ir/launch/table_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
#define ARG(id, ...) A_##id,
#include "ir/launch/deepspeed.def"
    A_COUNT
};

const ds_arg_table ds_deepspeed__table = TABLE("DeepSpeed", true);

enum { MAX_DEPTH = 16 };

/* ---- keys ---- */

/* A value as a text: "3", "true", "fused"; a list's items with commas between. */
static void put_value(const json_t *value, ds_buf *out) {
    size_t i;
    json_t *item;
    ds_buf_put(out, "");
    if (json_is_string(value)) ds_buf_put(out, json_string_value(value));
    if (json_is_integer(value)) ds_buf_put_int(out, json_integer_value(value));
    if (json_is_real(value)) ds_buf_printf(out, "%.17g", json_real_value(value));
    if (json_is_boolean(value)) ds_buf_put(out, json_is_true(value) ? "true" : "false");
    if (json_is_null(value)) ds_buf_put(out, "None");
    json_array_foreach(value, i, item) {
        if (i) ds_buf_putc(out, ',');
        if (!json_is_array(item) && !json_is_object(item)) put_value(item, out);
    }
}

static ds_status say(ds_args *a, const char *name, const json_t *value, ds_error *err) {
    ds_buf text = {0};
    put_value(value, &text);
    ds_status status = DS_OK;
    if (strcmp(text.text, "auto") != 0)
        status = ds_args__say(a, name, ds_arena_strdup(a->launch->arena, text.text), 0, err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status read_object(ds_args *a, const char *prefix, json_t *object, uint32_t depth,
                             ds_error *err) {
    const char *key;
    json_t *value;
    if (depth > MAX_DEPTH)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "objects more than %d deep", MAX_DEPTH);
    json_object_foreach(object, key, value) {
        const char *name = ds_arena_join(a->launch->arena, prefix, key);
        if (json_is_object(value))
            DS_TRY(
                read_object(a, ds_arena_join(a->launch->arena, name, "."), value, depth + 1, err));
        else
            DS_TRY(say(a, name, value, err));
    }
    return DS_OK;
}

/* ---- the way in ---- */

/* Two of the batch, the micro batch and the turns give the third; the replicas are known, or follow
 * from all three. */
static ds_status read_batch(ds_args *a, const ds_launch_given *given, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t turns, inner;
    DS_TRY(ds_args__int(a, A_BATCH, &l->batch, err));
    DS_TRY(ds_args__int(a, A_MICRO_BATCH, &l->microbatch, err));
    DS_TRY(ds_args__int(a, A_TURNS, &turns, err));
    if (given->batch) l->batch = given->batch;
    if (given->batch && l->microbatch) turns = 0;
    if (l->tp < 1 || l->ep < 1) return ds_launch__value(err, "a parallel size is 0");
    if (given->nodes) l->world = given->nodes * given->node;
    inner = l->microbatch * (turns ? turns : 1);
    if (!l->world && l->batch && l->microbatch && turns && l->batch % inner == 0)
        l->world = l->batch / inner * l->tp;
    DS_TRY(ds_launch__check_world(l, err));
    if (l->world % l->tp)
        return ds_launch__value(err, "%" PRId64 " devices are no multiple of tp = %" PRId64,
                                l->world, l->tp);
    l->dp = l->world / l->tp;
    if (!l->microbatch && l->batch) l->microbatch = l->batch / (l->dp * (turns ? turns : 1));
    if (!l->microbatch)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "'train_micro_batch_size_per_gpu' is not said: give --set batch=N");
    inner = l->microbatch * l->dp;
    if (!l->batch) l->batch = inner * (turns ? turns : 1);
    if (l->batch % inner || (turns && l->batch / inner != turns))
        return ds_launch__value(err,
                                "'train_batch_size' %" PRId64 " is not %" PRId64 " * %" PRId64
                                " turns * %" PRId64 " replicas",
                                l->batch, l->microbatch, turns ? turns : 1, l->dp);
    return DS_OK;
}

static ds_status read_model(ds_launch *l, const ds_launch_given *given, ds_error *err) {
    if (!given->model)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "the model is not in this file: give --model config.json");
    l->model = *given->model;
    if (given->vocab) l->model.size[DS_MODEL_VOCAB] = given->vocab;
    l->seq = given->seq ? given->seq : l->model.size[DS_MODEL_POSITIONS];
    if (!l->seq) l->seq = 4096; /* as import hf has it */
    if (l->dp * l->cp % l->ep)
        return ds_launch__value(
            err, "'expert_parallel.autoep_size' %" PRId64 " of %" PRId64 " replicas", l->ep, l->dp);
    return DS_OK;
}

static const char *dtype_of(const char *text) {
    static const char *const names[][2] = {{"fp32", "f32"}, {"fp16", "f16"}, {"bf16", "bf16"}};
    for (size_t i = 0; text && i < 3; i++)
        if (strcmp(text, names[i][0]) == 0) return names[i][1];
    return text ? "" : NULL;
}

static ds_status read_numbers(ds_args *a, ds_error *err) {
    static const char *const optimizers[][2] = {{"Adam", "adam"},
                                                {"AdamW", "adamw"},
                                                {"FusedAdam", "adamw"},
                                                {"DeepSpeedCPUAdam", "adamw"},
                                                {"SGD", "momentum"}};
    ds_launch *l = a->launch;
    const char *type = ds_args__text(a, A_OPTIMIZER), *grads = dtype_of(ds_args__text(a, A_GRADS)),
               *sent = dtype_of(ds_args__text(a, A_COMMUNICATION));
    double momentum;
    bool bf16 = ds_args__has(a, A_BF16) || ds_args__has(a, A_OLD_BF16),
         f16 = ds_args__has(a, A_FP16);
    if (bf16 && f16) return ds_args__wrong(a, A_FP16, err, "and 'bf16.enabled' exclude each other");
    l->dtype = bf16 ? "bf16" : f16 ? "f16" : "f32";
    l->grad_dtype = grads ? grads : l->dtype;
    if (!*l->grad_dtype) return ds_args__wrong(a, A_GRADS, err, "is none of fp32, fp16 and bf16");
    if (sent && strcmp(sent, l->grad_dtype) != 0)
        ds_args__refuse(a, lines[A_COMMUNICATION].name, "gradients are summed in %s",
                        l->grad_dtype);
    DS_TRY(ds_args__real(a, A_MOMENTUM, &momentum, err));
    l->optimizer = type ? NULL : "adamw";
    for (size_t i = 0; type && i < sizeof optimizers / sizeof *optimizers; i++)
        if (strcmp(type, optimizers[i][0]) == 0) l->optimizer = optimizers[i][1];
    if (!l->optimizer) {
        l->optimizer = "adamw";
        ds_args__refuse(a, lines[A_OPTIMIZER].name, "the optimizer %.20s", type);
    }
    if (strcmp(l->optimizer, "momentum") == 0 && momentum == 0) l->optimizer = "sgd";
    return DS_OK;
}

static ds_status read_zero(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    const char *optimizer = ds_args__text(a, A_OFFLOAD_OPTIMIZER),
               *weights = ds_args__text(a, A_OFFLOAD_WEIGHTS);
    double bucket;
    if (!(l->offload_fraction >= 0 && l->offload_fraction <= 1))
        return ds_args__wrong(a, A_OFFLOAD_RATIO, err, "is %g; a part from 0 to 1 is needed",
                              l->offload_fraction);
    bool asked = ds_args__has(a, A_OLD_OFFLOAD) || strcmp(optimizer, "cpu") == 0,
         optimizer_out = asked && l->offload_fraction > 0,
         weights_out = strcmp(weights, "cpu") == 0;
    if (!optimizer_out) l->offload_fraction = 1;
    if (l->zero > 3) return ds_args__wrong(a, A_STAGE, err, "is one of 0, 1, 2 and 3");
    if (strcmp(optimizer, "nvme") == 0)
        ds_args__refuse(a, lines[A_OFFLOAD_OPTIMIZER].name, "the memory of hosts alone");
    if (strcmp(weights, "nvme") == 0)
        ds_args__refuse(a, lines[A_OFFLOAD_WEIGHTS].name, "the memory of hosts alone");
    l->offload = optimizer_out && weights_out ? "[optimizer, weights]"
                 : optimizer_out              ? "optimizer"
                 : weights_out                ? "weights"
                                              : NULL;
    DS_TRY(ds_args__int(a, A_GROUP, &l->zero_group, err));
    if (l->zero_group && l->dp % l->zero_group)
        return ds_args__wrong(a, A_GROUP, err, "= %" PRId64 " does not divide %" PRId64 " replicas",
                              l->zero_group, l->dp);
    DS_TRY(ds_args__real(a, A_BUCKET, &bucket, err));
    if (bucket < 0 || bucket > 1e15) return ds_args__wrong(a, A_BUCKET, err, "is out of range");
    l->bucket_bytes = (int64_t)bucket * (strcmp(l->grad_dtype, "f32") == 0 ? 4 : 2);
    if (l->dp == 1) l->zero = 0;
    if (!l->zero) l->zero_group = 0;
    /* Without ZeRO the engine reduces when the last backward pass has ended. Hooks of ZeRO 1 reduce
     * beside the backward pass with overlap_comm alone (runtime/zero/stage_1_and_2.py). */
    l->late_reduce = l->zero == 0 || (l->zero == 1 && !ds_args__has(a, A_OVERLAP));
    return DS_OK;
}

static ds_status read_recompute(ds_args *a, ds_error *err) {
    ds_launch *l = a->launch;
    int64_t checkpoints, layers = l->model.size[DS_MODEL_LAYERS];
    DS_TRY(ds_args__int(a, A_CHECKPOINTS, &checkpoints, err));
    if (!checkpoints) return DS_OK;
    if (checkpoints > layers || layers % checkpoints)
        return ds_args__wrong(a, A_CHECKPOINTS, err,
                              "= %" PRId64 " does not divide %" PRId64 " layers", checkpoints,
                              layers);
    l->recompute = checkpoints == layers
                       ? "full"
                       : ds_arena_printf(l->arena, "every:%" PRId64, layers / checkpoints);
    return DS_OK;
}

static ds_status derive(ds_args *a, const ds_launch_given *given, ds_error *err) {
    DS_TRY(ds_args__fill(a, err));
    DS_TRY(read_batch(a, given, err));
    DS_TRY(read_model(a->launch, given, err));
    DS_TRY(read_numbers(a, err));
    DS_TRY(read_zero(a, err));
    DS_TRY(read_recompute(a, err));
    return ds_args__check(a, err);
}

static ds_status load(const char *text, size_t n, json_t **out, ds_error *err) {
    json_error_t at;
    errno = 0; /* jansson tells a lack of memory and a wrong text apart by nothing else */
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (!*out && errno == ENOMEM) ds_out_of_memory(0);
    if (!*out)
        return ds_error_set(err, DS_ERR_SYNTAX,
                            (ds_loc){.line = at.line > 0 ? (uint32_t)at.line : 1,
                                     .col = at.column > 0 ? (uint32_t)at.column : 1,
                                     .len = 1},
                            "%s", at.text);
    if (json_is_object(*out)) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "a DeepSpeed configuration is an object");
}

ds_status ds_deepspeed__read(ds_launch *launch, const ds_launch_given *given, const char *text,
                             size_t n, ds_error *err) {
    json_t *json = NULL;
    ds_args a;
    ds_args__init(&a, &ds_deepspeed__table, launch);
    ds_status status = load(text, n, &json, err);
    if (status == DS_OK) status = read_object(&a, "", json, 0, err);
    if (status == DS_OK) status = derive(&a, given, err);
    json_decref(json);
    ds_args__deinit(&a);
    return status;
}

/* ---- the way out ---- */

static ds_status check(const ds_launch *l, ds_error *err) {
    const int64_t degrees[] = {l->pp, l->cp};
    static const char *const names[] = {"pp", "cp"};
    for (int i = 0; i < 2; i++)
        if (degrees[i] > 1) return ds_launch__lacks(l, err, names[i], "the program splits that");
    if (l->tp > 1 && l->sp) return ds_launch__lacks(l, err, "sp", "tp comes without sp");
    if (l->zero == 0 && l->dp > 1 && !l->late_reduce)
        return ds_launch__lacks(l, err, "late_reduce = false", "gradients are reduced at the end");
    if (l->zero_group && l->zero_group != l->dp && l->zero != 3)
        return ds_launch__lacks(l, err, "zero_group", "MiCS is ZeRO 3");
    if (l->product_dtype) return ds_launch__lacks(l, err, "product_dtype", "%s", l->product_dtype);
    return DS_OK;
}

static ds_status put_numbers(ds_args_out *o, const ds_launch *l, ds_error *err) {
    static const char *const dtypes[][2] = {{"f32", "fp32"}, {"f16", "fp16"}, {"bf16", "bf16"}},
                             *const optimizers[][2] = {{"adam", "Adam"},
                                                       {"adamw", "AdamW"},
                                                       {"sgd", "SGD"},
                                                       {"momentum", "SGD"}};
    const char *grads = l->grad_dtype ? l->grad_dtype : l->dtype;
    ds_args_out__set(o, A_BF16, strcmp(l->dtype, "bf16") == 0 ? "" : NULL);
    ds_args_out__set(o, A_FP16, strcmp(l->dtype, "f16") == 0 ? "" : NULL);
    if (!dtype_of(l->dtype)) return ds_launch__lacks(l, err, "dtype", "%s", l->dtype);
    for (int i = 0; i < 3; i++)
        if (strcmp(grads, l->dtype) != 0 && strcmp(grads, dtypes[i][0]) == 0)
            ds_args_out__set(o, A_GRADS, dtypes[i][1]);
    for (int i = 0; i < 4; i++)
        if (strcmp(l->optimizer, optimizers[i][0]) == 0)
            ds_args_out__set(o, A_OPTIMIZER, optimizers[i][1]);
    if (!o->is_set[A_OPTIMIZER]) return ds_launch__lacks(l, err, "optimizer", "%s", l->optimizer);
    if (strcmp(l->optimizer, "momentum") == 0) ds_args_out__set(o, A_MOMENTUM, "0.9");
    return DS_OK;
}

static ds_status put_rest(ds_args_out *o, const ds_launch *l, ds_error *err) {
    int64_t bytes = strcmp(l->grad_dtype ? l->grad_dtype : l->dtype, "f32") == 0 ? 4 : 2,
            layers = l->model.size[DS_MODEL_LAYERS], every = 0;
    bool out = l->offload;
    if (l->zero == 1 && !l->late_reduce) ds_args_out__set(o, A_OVERLAP, "");
    if (l->zero_group && l->zero_group != l->dp) ds_args_out__set_int(o, A_GROUP, l->zero_group);
    if (l->bucket_bytes % bytes)
        return ds_launch__lacks(l, err, "bucket_size", "it counts elements of %" PRId64 " bytes",
                                bytes);
    if (l->bucket_bytes) ds_args_out__set_int(o, A_BUCKET, l->bucket_bytes / bytes);
    if (l->zero == 3 && l->reshard && strcmp(l->reshard, "always") != 0)
        return ds_launch__lacks(l, err, "reshard_after_forward",
                                "stage 3 gathers weights again in the backward pass");
    if (out && strstr(l->offload, "activations"))
        return ds_launch__lacks(l, err, "offload", "activations stay on the device");
    if (out && strstr(l->offload, "optimizer")) ds_args_out__set(o, A_OFFLOAD_OPTIMIZER, "cpu");
    if (out && strstr(l->offload, "weights")) ds_args_out__set(o, A_OFFLOAD_WEIGHTS, "cpu");
    if (l->ep > 1) ds_args_out__set(o, A_EP_ON, "");
    if (strcmp(l->recompute, "full") == 0) every = 1;
    if (strncmp(l->recompute, "every:", 6) == 0) every = strtoll(l->recompute + 6, NULL, 10);
    if (!every && strcmp(l->recompute, "none") != 0)
        return ds_launch__lacks(l, err, "recompute", "whole layers are computed again, or none");
    if (strcmp(l->recompute_layers, "all") != 0)
        return ds_launch__lacks(l, err, "recompute_layers", "all layers are computed again");
    if (every && layers % every)
        return ds_launch__lacks(l, err, "recompute", "blocks of %" PRId64 " of %" PRId64 " layers",
                                every, layers);
    if (every) ds_args_out__set_int(o, A_CHECKPOINTS, layers / every);
    return DS_OK;
}

/* The object that a name with points is in; *name: what follows the last point. */
static json_t *object_of(json_t *root, const char **name) {
    for (const char *dot; (dot = strchr(*name, '.')) != NULL; *name = dot + 1) {
        json_t *next = json_object_getn(root, *name, (size_t)(dot - *name));
        if (!next) {
            next = json_object();
            json_object_setn_new(root, *name, (size_t)(dot - *name), next);
        }
        root = next;
    }
    return root;
}

static json_t *as_json(const ds_arg *arg, const char *text) {
    if (arg->kind == DS_ARG_ON) return json_true();
    if (arg->kind == DS_ARG_TEXT) return json_string(text);
    double value = strtod(text, NULL);
    if (strspn(text, "-0123456789") == strlen(text)) return json_integer(strtoll(text, NULL, 10));
    return json_real(value);
}

static void put_json(const ds_args_out *o, ds_buf *out) {
    json_t *root = json_object();
    for (uint32_t id = 0; id < A_COUNT; id++) {
        const char *text = ds_args_out__value(o, id), *name = lines[id].name;
        if (!text) continue;
        json_t *object = object_of(root, &name);
        json_object_set_new(object, name, as_json(&lines[id], text));
    }
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) ds_out_of_memory(0);
    ds_buf_put(out, text);
    ds_buf_putc(out, '\n');
    free(text);
    json_decref(root);
}

ds_status ds_deepspeed__write(const ds_launch *launch, ds_buf *out, ds_error *err) {
    ds_arena arena;
    ds_args_out o;
    ds_arena_init(&arena);
    ds_args_out__init(&o, &ds_deepspeed__table, launch, &arena);
    ds_status status = check(launch, err);
    if (status == DS_OK) status = put_numbers(&o, launch, err);
    if (status == DS_OK) status = put_rest(&o, launch, err);
    if (status == DS_OK) {
        ds_args_out__set_int(&o, A_BATCH, launch->batch);
        ds_args_out__set_int(&o, A_MICRO_BATCH, launch->microbatch);
        ds_args_out__set_int(&o, A_TURNS, launch->batch / (launch->dp * launch->microbatch));
        put_json(&o, out);
    }
    ds_arena_deinit(&arena);
    return status;
}
