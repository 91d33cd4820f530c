/* A launch as a scenario file, and the launch that a scenario is. */
#include "ir/strategy/scenario.h"
#include "ir/launch/internal.h"
#include "ir/schedule/schedule.h"
#include "ir/strategy/preset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- a launch as a scenario ---- */

enum { WIDTH = 100 };

/* A comment whose lines have at most WIDTH columns. */
static void put_comment(const char *text, ds_buf *out) {
    size_t column = 0;
    for (const char *at = text; *at;) {
        at += strspn(at, " \n/");
        size_t n = strcspn(at, " \n");
        if (column && column + 1 + n > WIDTH) {
            ds_buf_putc(out, '\n');
            column = 0;
        }
        if (n) ds_buf_put(out, column ? " " : "// ");
        ds_buf_put_n(out, at, n);
        column += n + (column ? 1 : 3);
        at += n;
    }
    ds_buf_putc(out, '\n');
}

static void put_head(const ds_launch *l, const char *note, ds_buf *out) {
    ds_buf text = {0};
    ds_buf_printf(&text, "Imported%s%s (%s).", l->source ? " from " : "",
                  l->source ? l->source : "", ds_launch_framework_version(l->framework));
    ds_buf_put(out, "dir 1\n\n");
    put_comment(text.text, out);
    if (note) put_comment(note, out);
    if (l->notes.n) put_comment(l->notes.text, out);
    if (l->ignored.n) {
        text.n = 0;
        ds_buf_printf(&text, "No step depends on, and left out: %s.", l->ignored.text);
        put_comment(text.text, out);
    }
    ds_buf_deinit(&text);
}

static void put_real(double x, ds_buf *out) {
    ds_arena arena;
    ds_arena_init(&arena);
    const char *text = ds_launch__real(&arena, x);
    ds_buf_printf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
    ds_arena_deinit(&arena);
}

static void put_train(const ds_launch *l, ds_buf *out) {
    bool narrow = strcmp(l->dtype, "f32") != 0;
    ds_buf_printf(out, "  train {\n    loss = none\n    optimizer = %s\n    dtype = %s\n",
                  l->optimizer, l->dtype);
    if (narrow) ds_buf_put(out, "    master_dtype = f32\n");
    ds_buf_printf(out, "    grad_dtype = %s\n", l->grad_dtype ? l->grad_dtype : l->dtype);
    if (l->product_dtype) ds_buf_printf(out, "    product_dtype = %s\n", l->product_dtype);
    ds_buf_put(out, "    clip_norm = ");
    put_real(l->clip_norm, out);
    ds_buf_put(out, "\n  }\n");
}

static void put_stages(const ds_launch *l, ds_buf *out) {
    ds_buf_printf(out, "    schedule = \"%s\"\n", l->schedule);
    if (l->virtual_stages > 1)
        ds_buf_printf(out, "    virtual_stages = %" PRId64 "\n", l->virtual_stages);
    for (uint32_t i = 0; i < l->n_stage_layers; i++)
        ds_buf_printf(out, "%s%" PRId64 "%s", i ? ", " : "    stage_layers = [", l->stage_layers[i],
                      i + 1 < l->n_stage_layers ? "" : "]\n");
    bool counts = l->framework == DS_LAUNCH_TORCHTITAN || l->first_less || l->last_less;
    if (counts && !l->n_stage_layers)
        ds_buf_printf(out,
                      "    first_stage_less = %" PRId64 "\n    last_stage_less = %" PRId64 "\n",
                      l->first_less, l->last_less);
    if (l->tp > 1 && !l->scatter_gather && l->framework == DS_LAUNCH_MEGATRON)
        ds_buf_put(out, "    scatter_gather = false\n");
}

static void put_strategy(const ds_launch *l, ds_buf *out) {
    ds_buf_printf(out,
                  "  strategy {\n    dp = %" PRId64 "\n    tp = %" PRId64 "\n    pp = %" PRId64
                  "\n    cp = %" PRId64 "\n    ep = %" PRId64 "\n    microbatches = %" PRId64 "\n",
                  l->dp, l->tp, l->pp, l->cp, l->ep, l->batch / (l->dp * l->microbatch));
    if (l->tp > 1) ds_buf_printf(out, "    sp = %s\n", l->sp ? "true" : "false");
    if (l->sp && strcmp(l->tp_overlap, "none") != 0)
        ds_buf_printf(out, "    tp_overlap = %s\n", l->tp_overlap);
    if (l->ep > 1 && strcmp(l->ep_dispatch, "all_to_all") != 0)
        ds_buf_printf(out, "    ep_dispatch = %s\n", l->ep_dispatch);
    if (l->ep > 1 && l->ep_overlap) ds_buf_put(out, "    ep_overlap = true\n");
    if (l->cp > 1) ds_buf_printf(out, "    cp_type = %s\n", l->cp_type);
    if (l->pp > 1) put_stages(l, out);
    ds_buf_printf(out, "    zero = %" PRId64 "\n", l->zero);
    if (l->zero && l->zero_group && l->zero_group != l->dp)
        ds_buf_printf(out, "    zero_group = %" PRId64 "\n", l->zero_group);
    if (l->zero == 3 && l->reshard)
        ds_buf_printf(out, "    reshard_after_forward = %s\n", l->reshard);
    if (l->zero < 2 && l->dp * l->cp > 1)
        ds_buf_printf(out, "    late_reduce = %s\n", l->late_reduce ? "true" : "false");
    bool plain = strchr(l->recompute, ':') == NULL;
    ds_buf_printf(out, "    recompute = %s%s%s\n", plain ? "" : "\"", l->recompute,
                  plain ? "" : "\"");
    if (strcmp(l->recompute_layers, "all") != 0)
        ds_buf_printf(out, "    recompute_layers = \"%s\"\n", l->recompute_layers);
    if (l->offload) ds_buf_printf(out, "    offload = %s\n", l->offload);
    if (l->offload && l->offload_fraction < 1)
        ds_buf_printf(out, "    offload_fraction = %s\n",
                      ds_launch__real(l->arena, l->offload_fraction));
    if (l->bucket_bytes) ds_buf_printf(out, "    bucket_size = %" PRId64 " B\n", l->bucket_bytes);
    ds_buf_put(out, "  }\n");
}

ds_status ds_launch_put_scenario(const ds_launch *l, const ds_launch_place *place, ds_buf *out,
                                 ds_error *err) {
    ds_model model = l->model;
    if (!model.family) DS_TRY(ds_model_find_family(&model, err));
    put_head(l, ds_model_note(&model), out);
    ds_buf_put(out, "import ");
    ds_buf_put_quoted(out, place->file);
    ds_buf_printf(out, "%s%s\n", place->with ? " with " : "", place->with ? place->with : "");
    ds_buf_printf(out, "param batch = %" PRId64 ", seq = %" PRId64 "\n", l->batch, l->seq);
    ds_model_put_import(&model, "model", NULL, out);
    ds_buf_printf(out, "\nscenario {\n  model = @model.%s\n  on = @%s\n", ds_model_function(&model),
                  place->name);
    put_train(l, out);
    put_strategy(l, out);
    ds_buf_printf(out, "  framework = %s\n  memory = allocator\n",
                  ds_launch_framework_name(l->framework));
    bool overlaps = l->framework == DS_LAUNCH_TORCHTITAN && l->sp && l->tp > 1 &&
                    strcmp(l->tp_overlap, "ring") == 0; /* a pass of the compiler's */
    if (l->compiled || overlaps) ds_buf_put(out, "  kernels = compiled\n");
    if (l->loss_kernels) ds_buf_printf(out, "  loss_kernels = %s\n", l->loss_kernels);
    if (place->profile) {
        ds_buf_put(out, "  profile = ");
        if (strcmp(place->profile, "ideal") == 0)
            ds_buf_put(out, place->profile);
        else
            ds_buf_put_quoted(out, place->profile);
        ds_buf_putc(out, '\n');
    }
    ds_buf_put(out, "  batch = batch\n}\n");
    return DS_OK;
}

/* ---- the launch that a scenario is ---- */

/* Knobs that a launch has, and knobs that change numbers and no time. */
static const char carried[] =
    " optimizer dtype master_dtype grad_dtype product_dtype clip_norm loss "
    "dp tp pp cp ep ep_dispatch ep_overlap cp_type sp tp_overlap microbatches schedule "
    "virtual_stages stage_layers first_stage_less last_stage_less scatter_gather zero zero_group "
    "late_reduce "
    "reshard_after_forward no_sync "
    "recompute recompute_layers offload offload_fraction bucket_size ",
                  numbers[] = " lr momentum beta1 beta2 eps weight_decay ";

static bool is_word_of(const char *word, const char *words) {
    char padded[40];
    snprintf(padded, sizeof padded, " %s ", word);
    return strstr(words, padded) != NULL;
}

static ds_status lacks(ds_error *err, const char *knob, const char *why) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "'%s' is said by no argument of a framework%s%s", knob, *why ? ": " : "",
                        why);
}

/* A knob that the scenario states, with another value than the default. */
static ds_status check_knobs(const ds_binding *binding, const ds_train *train,
                             const ds_strategy *strategy, ds_error *err) {
    ds_train no_train = {0};
    ds_strategy no_strategy = {0};
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        bool trains = strcmp(knobs[i].section, "train") == 0;
        if (!knobs[i].bytes || (!trains && strcmp(knobs[i].section, "strategy") != 0)) continue;
        if (is_word_of(knobs[i].name, carried) || is_word_of(knobs[i].name, numbers)) continue;
        if (!ds_scenario_find(binding->unit, knobs[i].section, knobs[i].name)) continue;
        void *initial = trains ? (void *)&no_train : (void *)&no_strategy;
        const void *has = trains ? (const void *)train : (const void *)strategy;
        ds_knob_set(&knobs[i], initial, knobs[i].initial);
        if (memcmp((const char *)has + knobs[i].offset, (char *)initial + knobs[i].offset,
                   knobs[i].bytes) != 0)
            return lacks(err, knobs[i].name, "");
    }
    static const char *const keys[] = {"program", "mesh", "jobs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (ds_scenario_find(binding->unit, "", keys[i])) return lacks(err, keys[i], "");
    return DS_OK;
}

static const char *dtype_name(ds_dtype dtype) {
    return dtype == DS_DTYPE_COUNT ? NULL : ds_dtype_name(dtype);
}

static ds_status take_train(ds_launch *l, const ds_train *t, ds_error *err) {
    static const char *const optimizers[] = {"none", "sgd", "momentum", "adam", "adamw"};
    if (!t->on) return lacks(err, "train", "a forward pass alone");
    if (t->loss != DS_LOSS_NONE) return lacks(err, "loss", "the model returns its loss");
    l->optimizer = optimizers[t->optimizer];
    l->dtype = t->dtype == DS_DTYPE_COUNT ? "f32" : dtype_name(t->dtype);
    l->grad_dtype = dtype_name(t->grad_dtype);
    l->product_dtype = dtype_name(t->product_dtype);
    l->clip_norm = t->clip_norm;
    if (t->master_dtype != DS_DTYPE_COUNT && t->master_dtype != DS_F32)
        return lacks(err, "master_dtype", "weights of the optimizer are in f32");
    return DS_OK;
}

static void take_offload(ds_launch *l, uint32_t flags) {
    static const char *const names[] = {"activations", "optimizer", "weights"};
    for (uint32_t i = 0; i < 3; i++) {
        if (!(flags >> i & 1)) continue;
        bool several = flags & (flags - 1), last = !(flags >> (i + 1));
        l->offload = ds_arena_printf(l->arena, "%s%s%s%s", l->offload ? l->offload : "",
                                     l->offload ? ", "
                                     : several  ? "["
                                                : "",
                                     names[i], several && last ? "]" : "");
    }
}

/* "[layernorm, moe_act]"; "selective_op" of one module. */
static const char *modules_of(ds_launch *l, uint32_t modules) {
    ds_buf list = {0};
#define DS_X(name, word, bit)                                                                      \
    if (modules & bit) ds_buf_printf(&list, "%s%s", list.n ? ", " : "", word);
    DS_RECOMPUTE_MODULE_MAP(DS_X)
#undef DS_X
    bool one = !(modules & (modules - 1));
    const char *text = ds_arena_printf(l->arena, one ? "%s" : "[%s]", list.text);
    ds_buf_deinit(&list);
    return text;
}

static void take_layers(ds_launch *l, const ds_strategy *s) {
    ds_buf text = {0};
    ds_strategy_put_recompute_layers(s, &text);
    l->recompute_layers = ds_arena_strdup(l->arena, text.text);
    ds_buf_deinit(&text);
}

static ds_status take_recompute(ds_launch *l, const ds_strategy *s, ds_error *err) {
    static const char *const names[] = {"none", "selective", "full"};
    if (s->n_recompute_ops) return lacks(err, "recompute", "a list of operations");
    if (s->recompute == DS_RECOMPUTE_OPS)
        l->recompute = modules_of(l, s->recompute_modules);
    else if (s->recompute == DS_RECOMPUTE_EVERY && s->recompute_every > 1)
        l->recompute = ds_arena_printf(l->arena, "every:%" PRId64, s->recompute_every);
    else
        l->recompute = names[s->recompute == DS_RECOMPUTE_EVERY ? DS_RECOMPUTE_FULL : s->recompute];
    take_layers(l, s);
    take_offload(l, s->offload);
    if (s->offload & DS_OFFLOAD_OPTIMIZER) l->offload_fraction = s->offload_fraction;
    return DS_OK;
}

static void take_stages(ds_launch *l, const ds_strategy *s) {
    l->schedule = l->pp > 1 && s->schedule ? s->schedule : "1f1b";
    if (l->pp == 1) return;
    l->virtual_stages = ds_schedule_virtual_stages(l->schedule, s->virtual_stages);
    if (l->virtual_stages < 1) l->virtual_stages = 1;
    l->stage_layers = s->stage_layers;
    l->n_stage_layers = s->n_stage_layers;
    l->first_less = s->n_stage_layers ? 0 : s->first_stage_less;
    l->last_less = s->n_stage_layers ? 0 : s->last_stage_less;
}

/* The word, which the strategy has carried out. */
static ds_status take_reshard(ds_launch *l, const ds_binding *binding, ds_error *err) {
    static const char name[] = "reshard_after_forward";
    const ds_preset *preset = ds_preset_of(binding, "strategy", name);
    if (preset) l->reshard = preset->value;
    return ds_scenario_text(binding, "strategy", name, &l->reshard, err);
}

static ds_status take_strategy(ds_launch *l, const ds_binding *binding, const ds_strategy *s,
                               ds_error *err) {
    static const char *const cp_types[] = {"ring", "ulysses", "all_gather"}, *const overlaps[] = {
                                                                                 "none", "bulk",
                                                                                 "ring", "pipe"};
    l->dp = s->dp;
    l->tp = s->tp;
    l->pp = s->pp;
    l->cp = s->cp;
    l->ep = s->ep;
    l->world = s->dp * s->tp * s->pp * s->cp;
    l->sp = s->sp && s->tp > 1;
    l->cp_type = cp_types[s->cp_type];
    l->tp_overlap = overlaps[s->tp_overlap];
    l->ep_dispatch = s->ep > 1 && s->ep_dispatch == DS_EP_DEEPEP ? "deepep" : "all_to_all";
    l->ep_overlap = s->ep > 1 && s->ep_overlap;
    l->zero = s->dp * s->cp > 1 ? s->zero : 0;
    l->zero_group = l->zero && s->zero_group != s->dp ? s->zero_group : 0;
    l->late_reduce = s->late_reduce;
    if (l->zero == 3) DS_TRY(take_reshard(l, binding, err));
    bool together = l->framework == DS_LAUNCH_TORCHTITAN || l->framework == DS_LAUNCH_FSDP;
    if (l->zero >= 2 && s->microbatches > 1 && s->no_sync != (together && s->pp > 1))
        return lacks(err, "no_sync", "pipelines of PyTorch scatter once a step, and no others");
    if (ds_scenario_find(binding->unit, "strategy", "scatter_gather"))
        l->scatter_gather = s->scatter_gather;
    if (!s->dp || !s->microbatches || l->batch % (s->dp * s->microbatches))
        return lacks(err, "microbatches", "they do not divide the batch");
    l->microbatch = l->batch / (s->dp * s->microbatches);
    take_stages(l, s);
    return DS_OK;
}

static bool take_param(const ds_binding *binding, const ds_module *module, const char *name,
                       int64_t *out) {
    for (uint32_t i = 0; i < module->params.n; i++) {
        const ds_num *x = &binding->params[module->id][i];
        if (strcmp(module->params.at[i].name, name) != 0 || x->kind != DS_NUM_INT) continue;
        *out = x->i;
        return true;
    }
    return false;
}

/* Each framework has kernels of one kind, and torchtitan those of a compiler beside. */
static ds_status take_kernels(ds_launch *l, const ds_binding *binding, ds_error *err) {
    const char *word = NULL;
    DS_TRY(ds_scenario_text(binding, "", "kernels", &word, err));
    const ds_preset *own = ds_preset_find(ds_launch_framework_name(l->framework), "", "kernels");
    if (!word || (own && strcmp(own->value, word) == 0)) return DS_OK;
    l->compiled = l->framework == DS_LAUNCH_TORCHTITAN && strcmp(word, "compiled") == 0;
    return l->compiled ? DS_OK : lacks(err, "kernels", word);
}

/* torchtitan compiles layers, loss, or both. */
static ds_status take_loss_kernels(ds_launch *l, const ds_binding *binding, ds_error *err) {
    const char *word = NULL, *layers = l->compiled ? "compiled" : "eager";
    if (l->framework != DS_LAUNCH_TORCHTITAN) return DS_OK;
    DS_TRY(ds_scenario_text(binding, "", "loss_kernels", &word, err));
    if (!word || strcmp(word, layers) == 0) return DS_OK;
    if (strcmp(word, "eager") != 0 && strcmp(word, "compiled") != 0)
        return lacks(err, "loss_kernels", word);
    l->loss_kernels = word;
    return DS_OK;
}

ds_status ds_launch_of_scenario(ds_launch *l, const ds_binding *binding, ds_error *err) {
    ds_train train;
    ds_strategy strategy;
    const ds_func *func = ds_scenario_model(binding->unit);
    if (!func) return lacks(err, "program", "a scenario with 'model =' is needed");
    if (!ds_model_of_function(binding, func, &l->model) ||
        !take_param(binding, func->module, "batch", &l->batch) ||
        !take_param(binding, func->module, "seq", &l->seq))
        return lacks(err, "model",
                     ds_arena_printf(l->arena, "@%s is no model of the library", func->name));
    DS_TRY(ds_train_read(binding, &train, err));
    DS_TRY(ds_strategy_read(binding, &strategy, err));
    DS_TRY(check_knobs(binding, &train, &strategy, err));
    DS_TRY(take_train(l, &train, err));
    DS_TRY(take_kernels(l, binding, err));
    DS_TRY(take_loss_kernels(l, binding, err));
    DS_TRY(take_recompute(l, &strategy, err));
    if (ds_scenario_find(binding->unit, "strategy", "bucket_size"))
        l->bucket_bytes = strategy.bucket_bytes;
    return take_strategy(l, binding, &strategy, err);
}
