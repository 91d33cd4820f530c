/* Models as sizes and features: the family of each, and the way back from a function. */
#include "ir/import/model.h"

#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <string.h>

#define LLAMA (DS_MODEL_RMS_NORM | DS_MODEL_ROTARY | DS_MODEL_GATED | DS_MODEL_SILU)

static const ds_model llama3_8b = {.features = LLAMA,
                                   .rope_base = 5e5,
                                   .size = {[DS_MODEL_LAYERS] = 32,
                                            [DS_MODEL_HIDDEN] = 4096,
                                            [DS_MODEL_HEADS] = 32,
                                            [DS_MODEL_KV_HEADS] = 8,
                                            [DS_MODEL_FFN] = 14336,
                                            [DS_MODEL_VOCAB] = 128256}};

static const ds_model gpt2 = {.features = DS_MODEL_LINEAR_BIAS,
                              .tied = true,
                              .dropout = 0.1,
                              .size = {[DS_MODEL_LAYERS] = 12,
                                       [DS_MODEL_HIDDEN] = 768,
                                       [DS_MODEL_HEADS] = 12,
                                       [DS_MODEL_VOCAB] = 50257,
                                       [DS_MODEL_POSITIONS] = 1024}};

static const ds_model deepseek_v3 = {.features = LLAMA | DS_MODEL_LATENT,
                                     .rope_base = 1e4,
                                     .size = {[DS_MODEL_LAYERS] = 61,
                                              [DS_MODEL_HIDDEN] = 7168,
                                              [DS_MODEL_HEADS] = 128,
                                              [DS_MODEL_FFN] = 18432,
                                              [DS_MODEL_VOCAB] = 129280,
                                              [DS_MODEL_EXPERTS] = 256,
                                              [DS_MODEL_TOP] = 8,
                                              [DS_MODEL_EXPERT_FFN] = 2048,
                                              [DS_MODEL_SHARED_FFN] = 2048,
                                              [DS_MODEL_DENSE] = 3,
                                              [DS_MODEL_Q_RANK] = 1536,
                                              [DS_MODEL_KV_RANK] = 512,
                                              [DS_MODEL_NOPE_DIM] = 128,
                                              [DS_MODEL_ROPE_DIM] = 64,
                                              [DS_MODEL_V_DIM] = 128}};

static void expect_function(ds_model model, const char *file, const char *function) {
    ds_error err = {0};
    cr_assert_eq(ds_model_find_family(&model, &err), DS_OK, "%s", err.message);
    cr_expect_str_eq(ds_model_file(&model), file);
    cr_expect_str_eq(ds_model_function(&model), function);
}

Test(model, families_by_features_and_sizes) {
    ds_model m = llama3_8b;
    expect_function(m, "models/llama.dir", "llama");
    m.tied = true;
    expect_function(m, "models/qwen.dir", "llama_tied");
    m.features |= DS_MODEL_QK_NORM;
    expect_function(m, "models/qwen.dir", "qwen3_tied");
    expect_function(gpt2, "models/gpt.dir", "gpt");
    expect_function(deepseek_v3, "models/moe.dir", "deepseek_v3");
    m = deepseek_v3;
    m.size[DS_MODEL_MTP] = 1;
    expect_function(m, "models/moe.dir", "deepseek_v3_mtp");
}

Test(model, what_no_family_has_is_named) {
    static const struct {
        unsigned features; /* changed */
        ds_model_size size;
        int64_t value;
        const char *message;
    } all[] = {
        {DS_MODEL_ALIBI, DS_MODEL_LAYERS, 32, "@llama of models/llama.dir, lacks alibi"},
        {DS_MODEL_SILU, DS_MODEL_LAYERS, 32, "@llama of models/llama.dir, always has silu"},
        {0, DS_MODEL_MTP, 2,
         "@llama of models/llama.dir, lacks layers that predict later tokens = 2"},
        {0, DS_MODEL_VOCAB, 0, "cannot have vocabulary = 0"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ds_model m = llama3_8b;
        ds_error err = {0};
        m.features ^= all[i].features;
        m.size[all[i].size] = all[i].value;
        cr_expect_eq(ds_model_find_family(&m, &err), DS_ERR_UNSUPPORTED);
        cr_expect(strstr(err.message, all[i].message), "%s", err.message);
        cr_expect_null(m.family);
    }
}

/* The import line of a model, loaded, is the model again. */
static void expect_back(ds_model model) {
    ds_error err = {0};
    ds_buf text = {0};
    ds_unit *unit;
    ds_binding binding;
    ds_diags diags;
    ds_model back;
    const char *const at[DS_MODEL_N_SIZES] = {[DS_MODEL_LAYERS] = "depth"};
    ds_diags_init(&diags);
    cr_assert_eq(ds_model_find_family(&model, &err), DS_OK, "%s", err.message);
    ds_buf_printf(&text, "dir 1\nparam seq = 16, batch = 2, depth = %d\n",
                  (int)model.size[DS_MODEL_LAYERS]);
    ds_model_put_import(&model, "m", at, &text);
    ds_buf_printf(&text, "scenario { model = @m.%s\n }\n", ds_model_function(&model));
    cr_expect(strstr(text.text, "with layers = depth, hidden = "), "%s", text.text);
    cr_assert_eq(
        ds_load_text(DS_SOURCE_DIR "/scenarios/x.dir", text.text, text.n, NULL, &unit, &err), DS_OK,
        "%s", err.message);
    cr_assert_eq(ds_verify(unit, &diags), DS_OK, "%s", text.text);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
    cr_assert(ds_model_of_function(&binding, ds_scenario_model(unit), &back));
    model.size[DS_MODEL_POSITIONS] = 0; /* no param */
    for (int i = 0; i < DS_MODEL_N_SIZES; i++) cr_expect_eq(back.size[i], model.size[i], "%d", i);
    cr_expect_eq(back.features, model.features);
    cr_expect_eq(back.family, model.family);
    cr_expect_eq(back.tied, model.tied);
    cr_expect_eq(back.rope_base, model.rope_base);
    cr_expect_eq(back.dropout, model.dropout);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
}

Test(model, the_way_back) {
    expect_back(llama3_8b);
    expect_back(gpt2);
    expect_back(deepseek_v3);
}
