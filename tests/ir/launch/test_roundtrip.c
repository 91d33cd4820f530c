/* A scenario written as a command and imported again is the same scenario, byte for byte: 200 random
 * plans a framework, over families of models, degrees and knobs. */
#include "ir/base/rng.h"
#include "ir/lang/lang.h"
#include "ir/launch/launch.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { N_PLANS = 200 };

#define LLAMA (DS_MODEL_RMS_NORM | DS_MODEL_ROTARY | DS_MODEL_GATED | DS_MODEL_SILU)

/* ---- random plans ---- */

typedef struct draw {
    ds_rng rng;
} draw;

static int64_t one_of(draw *d, const int64_t *values, uint32_t n) {
    return values[ds_rng_below(&d->rng, n)];
}
#define ONE_OF(d, ...)                                                                             \
    one_of(d, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / 8)

static const char *text_of(draw *d, const char *const *values, uint32_t n) {
    return values[ds_rng_below(&d->rng, n)];
}
#define TEXT_OF(d, ...)                                                                            \
    text_of(d, (const char *const[]){__VA_ARGS__},                                                 \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void draw_experts(draw *d, int64_t *size, int64_t ep) {
    size[DS_MODEL_EXPERTS] = ep * ONE_OF(d, 1, 2, 4);
    if (size[DS_MODEL_EXPERTS] < 4) size[DS_MODEL_EXPERTS] = 4 * ep;
    size[DS_MODEL_TOP] = ONE_OF(d, 1, 2, 4);
    size[DS_MODEL_EXPERT_FFN] = 128 * ONE_OF(d, 1, 6, 16);
}

static void draw_model(draw *d, ds_launch *l) {
    ds_model *m = &l->model;
    int64_t *size = m->size, kind = ONE_OF(d, 0, 1, 2, 3, 4, 5, 6);
    m->features = LLAMA;
    size[DS_MODEL_HEADS] = l->tp * ONE_OF(d, 2, 4, 8);
    size[DS_MODEL_HIDDEN] = size[DS_MODEL_HEADS] * ONE_OF(d, 64, 128);
    size[DS_MODEL_KV_HEADS] = l->tp * ONE_OF(d, 1, 2);
    size[DS_MODEL_HEAD_DIM] = ONE_OF(d, 64, 128);
    size[DS_MODEL_FFN] = 256 * ONE_OF(d, 3, 7, 43);
    size[DS_MODEL_LAYERS] = l->pp * l->virtual_stages * ONE_OF(d, 1, 2, 5);
    size[DS_MODEL_VOCAB] = ONE_OF(d, 32000, 50304, 128256, 151936, 1000);
    m->rope_base = (double)ONE_OF(d, 10000, 500000, 1000000);
    if (kind == 0) { /* gpt */
        m->features = DS_MODEL_LINEAR_BIAS;
        m->tied = true;
        m->dropout = ds_rng_below(&d->rng, 2) ? 0.1 : 0;
        m->rope_base = 0;
        size[DS_MODEL_KV_HEADS] = size[DS_MODEL_HEADS];
        size[DS_MODEL_HEAD_DIM] = size[DS_MODEL_HIDDEN] / size[DS_MODEL_HEADS];
        size[DS_MODEL_FFN] = 4 * size[DS_MODEL_HIDDEN];
    } else if (kind <= 3) { /* llama, qwen2, qwen3 */
        m->tied = ds_rng_below(&d->rng, 2);
        m->features |= kind == 2 ? DS_MODEL_QKV_BIAS : kind == 3 ? DS_MODEL_QK_NORM : 0;
    } else if (kind <= 5) { /* mixtral, qwen3_moe */
        m->features |= kind == 5 ? DS_MODEL_QK_NORM : 0;
        size[DS_MODEL_FFN] = 0;
        draw_experts(d, size, l->ep);
    } else { /* deepseek_v3 */
        m->features |= DS_MODEL_LATENT;
        draw_experts(d, size, l->ep);
        size[DS_MODEL_KV_HEADS] = size[DS_MODEL_HEADS];
        size[DS_MODEL_HEAD_DIM] = 0;
        size[DS_MODEL_SHARED_FFN] = 2048;
        size[DS_MODEL_DENSE] = size[DS_MODEL_LAYERS] > 3 ? ONE_OF(d, 0, 1, 3) : 0;
        size[DS_MODEL_Q_RANK] = 1536;
        size[DS_MODEL_KV_RANK] = 512;
        size[DS_MODEL_NOPE_DIM] = 128;
        size[DS_MODEL_ROPE_DIM] = ONE_OF(d, 32, 64);
        size[DS_MODEL_V_DIM] = ONE_OF(d, 64, 128);
        size[DS_MODEL_MTP] = ONE_OF(d, 0, 1);
    }
    if (!size[DS_MODEL_EXPERTS]) l->ep = 1;
}

/* What every framework has, and what Megatron-LM has besides. */
static void draw_strategy(draw *d, ds_launch *l) {
    bool all = l->framework == DS_LAUNCH_MEGATRON;
    l->tp = ONE_OF(d, 1, 2, 4, 8);
    l->pp = ONE_OF(d, 1, 1, 2, 4, 8);
    l->cp = ONE_OF(d, 1, 1, 2);
    l->dp = ONE_OF(d, 1, 2, 4, 8, 16);
    l->ep = ONE_OF(d, 1, 1, 2, 4);
    if (l->dp * l->cp % l->ep) l->ep = 1;
    l->node = 8;
    l->world = l->dp * l->tp * l->pp * l->cp;
    l->sp = l->tp > 1 && ds_rng_below(&d->rng, 4) > 0;
    l->virtual_stages = l->pp > 1 ? ONE_OF(d, 1, 1, 2, 3) : 1;
    l->schedule = l->virtual_stages > 1 ? "interleaved" : "1f1b";
    l->microbatch = ONE_OF(d, 1, 2, 4);
    l->batch = l->dp * l->microbatch * l->pp * ONE_OF(d, 1, 2, 8);
    l->seq = 1024 * ONE_OF(d, 1, 4, 8);
    l->zero = l->dp * l->cp > 1 ? (l->pp > 1 ? ONE_OF(d, 0, 1) : ONE_OF(d, 0, 1, 2, 3)) : 0;
    if (l->zero && l->dp >= 4 && all) l->zero_group = ONE_OF(d, 0, l->dp / 2);
    l->late_reduce = l->zero < 2 && l->dp * l->cp > 1 && ds_rng_below(&d->rng, 2);
    l->recompute =
        TEXT_OF(d, "none", "selective", "full", "every:2", "[layernorm, moe_act]", "mlp");
    l->recompute_layers = strcmp(l->recompute, "full") ? "all" : TEXT_OF(d, "all", "first:1");
    l->cp_type = l->cp > 1 ? TEXT_OF(d, "ring", "ulysses", "all_gather") : "ring";
    l->tp_overlap = l->sp ? TEXT_OF(d, "none", "none", "bulk", "pipe") : "none";
    bool whole = all && l->ep > 1 && l->dp % l->ep == 0;
    l->ep_dispatch = whole ? TEXT_OF(d, "all_to_all", "deepep") : "all_to_all";
    l->ep_overlap = all && l->ep > 1 && ds_rng_below(&d->rng, 2);
    l->dtype = TEXT_OF(d, "bf16", "bf16", "f16", "f32");
    l->grad_dtype = TEXT_OF(d, l->dtype, "f32");
    l->optimizer = TEXT_OF(d, "adam", "adamw", "sgd", "momentum");
    l->clip_norm = (double)ONE_OF(d, 0, 1, 1, 2);
    l->bucket_bytes = ONE_OF(d, 0, 0, 40000000);
    l->offload = l->zero == 1 && ds_rng_below(&d->rng, 8) == 0 ? "optimizer" : NULL;
    if (l->offload && ds_rng_below(&d->rng, 2)) l->offload_fraction = 0.25;
}

/* Three layers a stage, two in the last one. */
static void draw_unequal(ds_launch *l) {
    int64_t *layers = DS_NEW_N(l->arena, int64_t, l->pp);
    for (int64_t i = 0; i < l->pp; i++) layers[i] = i + 1 < l->pp ? 3 : 2;
    l->model.size[DS_MODEL_LAYERS] = 3 * l->pp - 1;
    l->stage_layers = layers;
    l->n_stage_layers = (uint32_t)l->pp;
}

/* Published models (tests/data/hf) that torchtitan has flavors of. */
static void draw_flavor(draw *d, ds_launch *l) {
    static const struct {
        int64_t layers, hidden, heads, kv_heads, ffn, vocab, experts, top, expert_ffn;
        bool tied;
        unsigned features;
        double rope_base;
    } models[] = {
        {32, 4096, 32, 8, 14336, 128256, 0, 0, 0, false, LLAMA, 500000},
        {80, 8192, 64, 8, 28672, 128256, 0, 0, 0, false, LLAMA, 500000},
        {126, 16384, 128, 8, 53248, 128256, 0, 0, 0, false, LLAMA, 500000},
        {28, 1024, 16, 8, 3072, 151936, 0, 0, 0, true, LLAMA | DS_MODEL_QK_NORM, 1000000},
        {48, 2048, 32, 4, 0, 151936, 128, 8, 768, false, LLAMA | DS_MODEL_QK_NORM, 1000000},
    };
    size_t i = ds_rng_below(&d->rng, sizeof models / sizeof *models);
    int64_t *size = l->model.size;
    l->model.features = models[i].features;
    l->model.tied = models[i].tied;
    l->model.rope_base = models[i].rope_base;
    size[DS_MODEL_LAYERS] = models[i].layers;
    size[DS_MODEL_HIDDEN] = models[i].hidden;
    size[DS_MODEL_HEADS] = models[i].heads;
    size[DS_MODEL_KV_HEADS] = models[i].kv_heads;
    size[DS_MODEL_HEAD_DIM] = 128;
    size[DS_MODEL_FFN] = models[i].ffn;
    size[DS_MODEL_VOCAB] = models[i].vocab;
    size[DS_MODEL_EXPERTS] = models[i].experts;
    size[DS_MODEL_TOP] = models[i].top;
    size[DS_MODEL_EXPERT_FFN] = models[i].expert_ffn;
    if (!models[i].experts) l->ep = 1;
    if (models[i].layers % (l->pp * l->virtual_stages)) {
        l->pp = 1;
        l->virtual_stages = 1;
        l->schedule = "1f1b";
    }
    l->world = l->dp * l->tp * l->pp * l->cp;
}

/* What torchtitan has of the strategies above. */
static void draw_titan(draw *d, ds_launch *l) {
    draw_flavor(d, l);
    l->sp = l->tp > 1;
    l->late_reduce = false;
    l->zero = l->dp * l->cp > 1 ? 3 : 0;
    if (l->cp == 1 && ds_rng_below(&d->rng, 4) == 0) l->zero = 0;
    l->zero_group = l->zero && l->dp >= 4 ? ONE_OF(d, 0, l->dp / 2) : 0;
    l->recompute = TEXT_OF(d, "none", "selective_op", "full");
    l->recompute_layers = strcmp(l->recompute, "full") ? "all" : TEXT_OF(d, "all", "one_in:2");
    l->cp_type = l->cp > 1 ? TEXT_OF(d, "ring", "all_gather") : "ring";
    l->tp_overlap = l->sp ? TEXT_OF(d, "none", "ring") : "none";
    l->dtype = TEXT_OF(d, "bf16", "f32");
    l->grad_dtype = "f32";
    l->product_dtype = TEXT_OF(d, NULL, "f8e4m3");
    l->optimizer = TEXT_OF(d, "adam", "adamw");
    l->reshard = l->zero ? TEXT_OF(d, "always", "never", "default") : NULL;
    bool stays = l->zero && (strcmp(l->reshard, "never") == 0 ||
                             (strcmp(l->reshard, "default") == 0 && l->pp > 1));
    l->offload = l->zero && !stays && ds_rng_below(&d->rng, 8) == 0 ? "[optimizer, weights]" : NULL;
    l->offload_fraction = 1;
    l->bucket_bytes = 0;
    l->compiled = (l->sp && strcmp(l->tp_overlap, "ring") == 0) || ds_rng_below(&d->rng, 2) == 0;
    bool alike = ds_rng_below(&d->rng, 2) == 0;
    l->loss_kernels = alike ? NULL : l->compiled ? "eager" : "compiled";
    int64_t all = l->model.size[DS_MODEL_LAYERS] + 2, chunks = l->pp * l->virtual_stages;
    if (l->pp > 1 &&
        (all + (all + chunks - 1) / chunks - 1) / ((all + chunks - 1) / chunks) == chunks)
        l->first_less = l->last_less = ONE_OF(d, 0, 1);
    if (l->virtual_stages == 1 && l->pp > 1) l->schedule = TEXT_OF(d, "1f1b", "gpipe");
    if (l->virtual_stages == 3) l->schedule = TEXT_OF(d, "interleaved", "breadth-first");
}

static void draw_deepspeed(draw *d, ds_launch *l) {
    l->pp = l->cp = l->virtual_stages = 1;
    l->schedule = "1f1b";
    l->cp_type = "ring";
    l->tp_overlap = "none";
    l->sp = false;
    l->ep = l->dp % 4 ? 1 : ONE_OF(d, 1, 2, 4);
    l->world = l->dp * l->tp;
    l->zero = l->dp > 1 ? ONE_OF(d, 0, 1, 2, 3) : 0;
    l->zero_group = l->zero == 3 && l->dp >= 4 ? ONE_OF(d, 0, l->dp / 2) : 0;
    l->late_reduce = l->zero == 0 || (l->zero == 1 && ds_rng_below(&d->rng, 2));
    l->recompute = TEXT_OF(d, "none", "full");
    l->recompute_layers = "all";
    l->offload = l->zero ? TEXT_OF(d, NULL, NULL, "optimizer", "[optimizer, weights]") : NULL;
    l->offload_fraction = l->offload && ds_rng_below(&d->rng, 2) ? 0.5 : 1;
}

static void draw_plan(uint64_t seed, ds_launch *l) {
    draw d = {{seed}};
    draw_strategy(&d, l);
    if (l->framework == DS_LAUNCH_TORCHTITAN) {
        draw_titan(&d, l);
        return;
    }
    if (l->framework == DS_LAUNCH_DEEPSPEED) draw_deepspeed(&d, l);
    draw_model(&d, l);
    if (l->pp > 2 && l->virtual_stages == 1 && ds_rng_below(&d.rng, 4) == 0) draw_unequal(l);
    if (l->model.size[DS_MODEL_LAYERS] == l->pp * l->virtual_stages && !l->stage_layers)
        l->recompute_layers = "all"; /* one layer a chunk: the first is all */
}

/* ---- the way out and back ---- */

static void strip_comments(ds_buf *text) {
    char *to = text->text;
    for (char *line = text->text; *line;) {
        char *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) + 1 : strlen(line);
        if (strncmp(line, "//", 2) != 0) {
            memmove(to, line, n);
            to += n;
        }
        line += n;
    }
    *to = 0;
    text->n = (size_t)(to - text->text);
}

static void put(const ds_launch *l, ds_buf *out) {
    ds_error err = {0};
    const ds_launch_place place = {"machines/dgx-h100.dir", "nodes = 1024", "cluster", NULL};
    cr_assert_eq(ds_launch_put_scenario(l, &place, out, &err), DS_OK, "%s", err.message);
}

static void load(const ds_buf *text, ds_unit **unit, ds_binding *binding) {
    ds_error err = {0};
    ds_diags diags;
    ds_load_options options = {0};
    cr_assert_eq(
        ds_load_text(DS_SOURCE_DIR "/scenarios/x.dir", text->text, text->n, &options, unit, &err),
        DS_OK, "%s\n%s", err.message, text->text);
    ds_diags_init(&diags);
    ds_status status = ds_verify(*unit, &diags);
    cr_assert_eq(status, DS_OK, "%s\n%s", diags.all.n ? diags.all.at[0].message : "", text->text);
    ds_diags_deinit(&diags);
    cr_assert_eq(ds_bind(*unit, NULL, 0, binding, &err), DS_OK, "%s", err.message);
}

static void check_canonical(const ds_unit *unit, const ds_buf *text) {
    ds_buf printed = {0};
    ds_print_module(unit->modules.at[0], &printed);
    cr_assert_str_eq(printed.text, text->text);
    ds_buf_deinit(&printed);
}

static void check_plan(ds_launch_framework framework, uint64_t seed) {
    ds_arena arena;
    ds_launch drawn, told, back;
    ds_buf a = {0}, b = {0}, c = {0}, command = {0};
    ds_unit *unit;
    ds_binding binding;
    ds_error err = {0};
    ds_arena_init(&arena);
    ds_launch_init(&drawn, framework, &arena);
    ds_launch_init(&told, framework, &arena);
    ds_launch_init(&back, framework, &arena);
    draw_plan(seed, &drawn);
    put(&drawn, &a);
    load(&a, &unit, &binding);
    check_canonical(unit, &a);
    cr_assert_eq(ds_launch_of_scenario(&told, &binding, &err), DS_OK, "%s\n%s", err.message,
                 a.text);
    told.node = 8;
    put(&told, &b);
    cr_assert_str_eq(b.text, a.text);
    cr_assert_eq(ds_launch_write(&told, &command, &err), DS_OK, "%s\n%s", err.message, a.text);
    ds_launch_given given = {0};
    if (framework == DS_LAUNCH_DEEPSPEED)
        given = (ds_launch_given){.model = &told.model, .seq = told.seq};
    cr_assert_eq(ds_launch_read(&back, &given, command.text, command.n, &err), DS_OK, "%s\n%s",
                 err.message, command.text);
    put(&back, &c);
    strip_comments(&a);
    strip_comments(&c);
    cr_assert_str_eq(c.text, a.text, "%s\n%s\n%s", command.text, a.text, c.text);
    ds_unit_free(unit);
    ds_launch_deinit(&drawn);
    ds_launch_deinit(&told);
    ds_launch_deinit(&back);
    ds_buf_deinit(&a);
    ds_buf_deinit(&b);
    ds_buf_deinit(&c);
    ds_buf_deinit(&command);
    ds_arena_deinit(&arena);
}

Test(launch_roundtrip, megatron) {
    for (uint64_t i = 0; i < N_PLANS; i++) check_plan(DS_LAUNCH_MEGATRON, 1000 + i);
}

Test(launch_roundtrip, torchtitan) {
    for (uint64_t i = 0; i < N_PLANS; i++) check_plan(DS_LAUNCH_TORCHTITAN, 2000 + i);
}

Test(launch_roundtrip, deepspeed) {
    for (uint64_t i = 0; i < N_PLANS; i++) check_plan(DS_LAUNCH_DEEPSPEED, 3000 + i);
}
