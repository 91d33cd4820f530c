/* config.json files: published parameter counts come out of the imported models, and what the model
 * library is not is refused by the key that says so. */
#include "ir/base/file.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY DS_SOURCE_DIR "/scenarios/x.dir"

static const ds_import_options on_dgx = {.source = "config.json",
                                         .on_file = "topologies/dgx-a100.dir",
                                         .on_name = "dgx_a100",
                                         .path = LIBRARY};

static void import_file(const char *name, const ds_import_options *options, ds_buf *text) {
    char path[512];
    ds_buf json = {0};
    ds_error err = {0};
    snprintf(path, sizeof path, DS_TEST_DIR "/data/hf/%s", name);
    cr_assert_eq(ds_file_read(path, DS_NOWHERE, 1 << 20, &json, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_import_hf(json.text, json.n, options, text, &err), DS_OK, "%s: %s", name,
                 err.message);
    ds_buf_deinit(&json);
}

/* The layer that predicts the token after the next (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2):
 * norms of its two inputs and of its result, the product that joins the inputs, and an expert layer
 * as the others: two norms, latent attention (two norms), router, 256 experts and the shared one.
 * Embedding and head are the model's. */
#define DEEPSEEK_V3_H INT64_C(7168)
#define DEEPSEEK_V3_MTP                                                                            \
    (3 * DEEPSEEK_V3_H + 2 * DEEPSEEK_V3_H * DEEPSEEK_V3_H + 2 * DEEPSEEK_V3_H +                   \
     DEEPSEEK_V3_H * 1536 + 1536 + 1536 * 128 * 192 + DEEPSEEK_V3_H * (512 + 64) + 512 +           \
     512 * 128 * 256 + 128 * 128 * DEEPSEEK_V3_H + 256 * DEEPSEEK_V3_H +                           \
     257 * 3 * 2048 * DEEPSEEK_V3_H)

/* Sources of the figures: tests/data/hf/README.md. */
static const struct {
    const char *file;
    int64_t parameters;
    const char *text; /* as the comment says it */
} published[] = {
    {"gpt2.json", 124439808, ": 124,439,808 parameters."},
    {"llama-2-7b.json", 6738415616, ": 6,738,415,616 parameters."},
    {"llama-3-8b.json", 8030261248, ": 8,030,261,248 parameters."},
    {"llama-3-70b.json", 70553706496, ": 70,553,706,496 parameters."},
    {"llama-3-405b.json", 405853388800, ": 405,853,388,800 parameters."},
    {"llama-3.2-1b.json", 1235814400, ": 1,235,814,400 parameters."},
    {"mistral-7b-v0.1.json", 7241732096, ": 7,241,732,096 parameters."},
    {"phi-3-mini.json", 3821079552, ": 3,821,079,552 parameters."},
    {"gemma-2-9b.json", 9241705984, ": 9,241,705,984 parameters."},
    {"gemma-3-1b.json", 999885952, ": 999,885,952 parameters."},
    {"gpt-neox-20b.json", 20554567680, ": 20,554,567,680 parameters."},
    {"falcon-7b.json", 6921720704, ": 6,921,720,704 parameters."},
    {"opt-6.7b.json", 6658473984, ": 6,658,473,984 parameters."},
    {"bloom.json", 176247271424, ": 176,247,271,424 parameters."},
    {"mixtral-8x7b.json", 46702792704, ": 46,702,792,704 parameters."},
    {"qwen2-0.5b.json", 494032768, ": 494,032,768 parameters."},
    {"qwen2-7b.json", 7615616512, ": 7,615,616,512 parameters."},
    {"qwen3-0.6b.json", 596049920, ": 596,049,920 parameters."},
    {"qwen3-8b.json", 8190735360, ": 8,190,735,360 parameters."},
    {"qwen3-30b-a3b.json", 30532122624, ": 30,532,122,624 parameters."},
    {"llama-4-scout.json", 107769861120, ": 107,769,861,120 parameters."},
    {"llama-4-maverick.json", 400711848960, ": 400,711,848,960 parameters."},
    {"gpt-oss-20b.json", 20914757184 - 24 * 64, ": 20,914,755,648 parameters."},
    {"deepseek-v2.json", 235741434880, ": 235,741,434,880 parameters."},
    {"deepseek-v2-lite.json", 15706484224, ": 15,706,484,224 parameters."},
    {"bert-base.json", 109514298, ": 109,514,298 parameters."},
    {"t5-base.json", 222903552, ": 222,903,552 parameters."},
    {"vit-base.json", 86567656, ": 86,567,656 parameters."},
    {"mamba-codestral-7b.json", 7285403648, ": 7,285,403,648 parameters."},
    {"nemotron-h-8b.json", 8100852736, ": 8,100,852,736 parameters."},
    {"nemotron-3-nano.json", 31577937344, ": 31,577,937,344 parameters."},
    {"deepseek-v3.json", 671026404352 + DEEPSEEK_V3_MTP, ": 682,636,472,320 parameters."},
};

Test(import_hf, published_parameter_counts) {
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        ds_buf text = {0}, again = {0};
        ds_unit *unit;
        ds_error err = {0};
        ds_diags diags;
        ds_binding binding;
        ds_model_counts counts = {0};
        import_file(published[i].file, &on_dgx, &text);
        cr_expect(strstr(text.text, published[i].text), "%s", text.text);
        ds_diags_init(&diags);
        cr_assert_eq(ds_load_text(LIBRARY, text.text, text.n, NULL, &unit, &err), DS_OK, "%s",
                     err.message);
        cr_assert_eq(ds_verify(unit, &diags), DS_OK, "%s", published[i].file);
        cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_verify_bound(unit, &binding, &diags), DS_OK, "%s", published[i].file);
        ds_func *model = ds_scenario_model(unit);
        cr_assert_eq(ds_model_count(&binding, model, &counts, &err), DS_OK, "%s", err.message);
        cr_expect_eq(counts.parameters, published[i].parameters, "%s has %lld", published[i].file,
                     (long long)counts.parameters);
        ds_print_module(unit->modules.at[0], &again);
        cr_expect_str_eq(again.text, text.text, "%s is not canonical", published[i].file);
        ds_diags_deinit(&diags);
        ds_unit_free(unit);
        ds_buf_deinit(&text);
        ds_buf_deinit(&again);
    }
}

Test(import_hf, the_whole_file) {
    ds_buf text = {0};
    ds_setting set[] = {{"batch", "32"}, {"seq", "1024"}};
    ds_import_options options = on_dgx;
    options.settings = set;
    options.n_settings = 2;
    import_file("llama-3.2-1b.json", &options, &text);
    cr_expect_str_eq(
        text.text,
        "dir 1\n\n"
        "// Imported from config.json (Hugging Face, model_type llama): 1,235,814,400 parameters.\n"
        "// The config allows sequences of up to 131072.\n"
        "// rope_scaling is left out: it changes angles, neither shapes nor work.\n"
        "import \"topologies/dgx-a100.dir\"\n"
        "param seq = 1024, batch = 32\n"
        "import \"models/qwen.dir\" as m with layers = 16, hidden = 2048, heads = 32, kv_heads = "
        "8, "
        "ffn = 8192, vocab = 128256, rope_base = 500000.0, seq = seq, batch = batch\n\n"
        "scenario {\n"
        "  model = @m.llama_tied\n"
        "  on = @dgx_a100\n"
        "  train { loss = none, optimizer = adamw, dtype = bf16, master_dtype = f32 }\n"
        "  strategy { dp = 1, tp = 1, pp = 1, cp = 1, ep = 1 }\n"
        "  batch = batch\n"
        "}\n");
    ds_buf_deinit(&text);
}

/* Every function of models/qwen.dir on real numbers, small: the loss of random logits is near
 * log(vocab). With qwen3's heads wider than hidden / heads. */
Test(import_hf, qwen_runs) {
    static const char *const functions[] = {"llama_tied", "qwen2", "qwen2_tied", "qwen3",
                                            "qwen3_tied"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        exec_case c;
        ds_buf text = {0};
        ds_buf_printf(&text,
                      "dir 1\nimport \"models/qwen.dir\" as m with layers = 2, hidden = 8, heads = "
                      "4, kv_heads = 2, head_dim = 4, ffn = 12, vocab = 16, seq = 6, batch = 2\n"
                      "func @f(%%ids: i32[2, 6] {range = 16}, %%labels: i32[2, 6] {range = 16}) -> "
                      "f32[] {\n%%loss = call @m.%s(%%ids, %%labels)\nreturn %%loss\n}\n"
                      "scenario { model = @f\n }\n",
                      functions[i]);
        exec_text(&c, text.text, NULL, NULL);
        double loss = *exec_out(&c, "loss");
        cr_expect(isfinite(loss) && fabs(loss - log(16)) < 2, "@%s: %g", functions[i], loss);
        exec_free(&c);
        ds_buf_deinit(&text);
    }
}

/* ---- refusals ---- */

#define LLAMA                                                                                      \
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "                   \
    "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100"
#define GPT2                                                                                       \
    "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, \"vocab_size\": 100"

Test(import_hf, refusals_name_the_key) {
    static const struct {
        const char *json;
        ds_status status;
        const char *message;
    } all[] = {
        {"{" LLAMA, DS_ERR_DATA, "line 1"},
        {"[1]", DS_ERR_DATA, "a config is an object; this is a list"},
        {"{}", DS_ERR_DATA, "the key 'model_type' is missing"},
        {"{\"model_type\": 3}", DS_ERR_DATA, "'model_type' must be a string, and is an integer"},
        {"{\"model_type\": \"bart\"}", DS_ERR_UNSUPPORTED, "imports: gpt2, llama, mistral, "},
        {"{\"model_type\": \"lama\"}", DS_ERR_UNSUPPORTED, "did you mean 'llama'?"},
        {"{\"model_type\": \"llama\"}", DS_ERR_DATA, "the key 'num_hidden_layers' is missing"},
        {"{" LLAMA ", \"num_key_value_heads\": 3}", DS_ERR_VALUE, "does not divide"},
        {"{" LLAMA ", \"num_key_value_heads\": \"2\"}", DS_ERR_DATA, "and is a string"},
        {"{" LLAMA ", \"num_key_value_heads\": 0}", DS_ERR_VALUE, "'num_key_value_heads' is 0"},
        {"{" LLAMA ", \"head_dim\": 15}", DS_ERR_VALUE, "heads of 15 elements"},
        {"{" LLAMA ", \"hidden_act\": \"gelu\"}", DS_ERR_UNSUPPORTED, "'hidden_act' is 'gelu'"},
        {"{" LLAMA ", \"attention_bias\": true}", DS_ERR_UNSUPPORTED, "'attention_bias'"},
        {"{" LLAMA ", \"mlp_bias\": 1}", DS_ERR_DATA, "'mlp_bias' must be true or false"},
        {"{" LLAMA ", \"sliding_window\": 512}", DS_ERR_UNSUPPORTED, "try --set seq=512"},
        {"{" LLAMA ", \"rope_theta\": -1}", DS_ERR_VALUE, "'rope_theta' is -1"},
        {"{" LLAMA ", \"torch_dtype\": \"int8\"}", DS_ERR_UNSUPPORTED, "'torch_dtype' is 'int8'"},
        {"{" LLAMA ", \"model_type\": \"llama\"}", DS_ERR_DATA, "duplicate"},
        {"{" GPT2 ", \"n_inner\": 100}", DS_ERR_UNSUPPORTED, "lacks n_inner = 100"},
        {"{" GPT2 ", \"tie_word_embeddings\": false}", DS_ERR_UNSUPPORTED,
         "@gpt of models/gpt.dir, lacks a head of its own"},
        {"{" GPT2 ", \"activation_function\": \"relu\"}", DS_ERR_UNSUPPORTED, "gelu_new"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2147483648, \"hidden_size\": "
         "2147483648, \"num_attention_heads\": 2, \"intermediate_size\": 2147483648, "
         "\"vocab_size\": 2147483648}",
         DS_ERR_OVERFLOW, "2^63"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ds_buf text = {0};
        ds_error err = {0};
        cr_expect_eq(ds_import_hf(all[i].json, strlen(all[i].json), &on_dgx, &text, &err),
                     all[i].status, "%s: %s", all[i].json, err.message);
        cr_expect(strstr(err.message, all[i].message), "%s: %s", all[i].json, err.message);
        cr_expect_eq(text.n, 0);
        ds_buf_deinit(&text);
    }
}

#define SIZES                                                                                      \
    "\"num_hidden_layers\": 4, \"hidden_size\": 64, \"num_attention_heads\": 4, "                  \
    "\"intermediate_size\": 128, \"vocab_size\": 100, "
#define OF(type) "{\"model_type\": \"" type "\", " SIZES

/* Keys that change the work of a family and that the model library has no function for. */
Test(import_hf, refusals_of_each_family) {
    static const char *const all[][2] = {
        {OF("qwen2") "\"use_sliding_window\": true, \"sliding_window\": 512}", "try --set seq=512"},
        {OF("phi3") "\"partial_rotary_factor\": 0.75}", "'partial_rotary_factor'"},
        {OF("phi3") "\"tie_word_embeddings\": true}", "lacks a head that shares"},
        {OF("qwen3_moe") "\"decoder_sparse_step\": 2}", "'decoder_sparse_step'"},
        {OF("qwen3_moe") "\"mlp_only_layers\": [1]}", "'mlp_only_layers'"},
        {OF("deepseek_v3") "\"moe_layer_freq\": 2}", "'moe_layer_freq'"},
        {OF("deepseek_v3") "\"n_shared_experts\": 1, \"q_lora_rank\": 8, "
                           "\"num_nextn_predict_layers\": 2}",
         "lacks num_nextn_predict_layers = 2"},
        {OF("gemma2") "\"layer_types\": [\"sliding_attention\", \"sliding_attention\"]}",
         "layer 1 is 'sliding_attention'"},
        {OF("gpt_neox") "\"use_parallel_residual\": false}", "'use_parallel_residual'"},
        {OF("gpt_neox") "\"rotary_pct\": 1.0}", "'rotary_pct'"},
        {OF("falcon") "\"alibi\": true}", "'alibi'"},
        {OF("falcon") "\"new_decoder_architecture\": true, \"num_ln_in_parallel_attn\": 1}",
         "'num_ln_in_parallel_attn'"},
        {OF("opt") "\"ffn_dim\": 8, \"word_embed_proj_dim\": 32}", "'word_embed_proj_dim'"},
        {OF("opt") "\"ffn_dim\": 8, \"activation_function\": \"gelu\"}", "has relu there"},
        {OF("bert") "\"position_embedding_type\": \"relative_key\"}", "'position_embedding_type'"},
        {OF("t5") "\"num_layers\": 4, \"d_model\": 64, \"num_heads\": 4, \"d_ff\": 8, "
                  "\"feed_forward_proj\": \"gated-gelu\"}",
         "'feed_forward_proj'"},
        {OF("t5") "\"num_layers\": 4, \"d_model\": 64, \"num_heads\": 4, \"d_ff\": 8, "
                  "\"num_decoder_layers\": 2}",
         "'num_decoder_layers'"},
        {OF("vit") "\"patch_size\": 512}", "'patch_size'"},
        {OF("mamba2") "\"use_bias\": true}", "'use_bias'"},
        {OF("llama4") "\"interleave_moe_layer_step\": 3}", "'interleave_moe_layer_step'"},
        {OF("llama4") "\"attention_chunk_size\": 1024}", "try --set seq=1024"},
        {OF("llama4") "\"text_config\": 3}", "'text_config' must be an object"},
        {OF("nemotron_h") "\"n_groups\": 8}", "'hybrid_override_pattern' is missing"},
        {OF("nemotron_h") "\"hybrid_override_pattern\": \"M-M-MM-\"}", "letter 5 is another"},
        {OF("nemotron_h") "\"hybrid_override_pattern\": \"M*-M-M*-M-M-M*-M-M-M-M*-\"}",
         "letter 22 is another"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ds_buf text = {0};
        ds_error err = {0};
        cr_expect_neq(ds_import_hf(all[i][0], strlen(all[i][0]), &on_dgx, &text, &err), DS_OK, "%s",
                      all[i][0]);
        cr_expect(strstr(err.message, all[i][1]), "%s: %s", all[i][0], err.message);
        cr_expect_eq(text.n, 0);
        ds_buf_deinit(&text);
    }
}

/* A window as long as the sequence is no window; null is absent; seq is bounded by the config. */
Test(import_hf, what_changes_nothing_is_fine) {
    static const char *const fine[] = {
        "{" LLAMA ", \"sliding_window\": 4096}", "{" LLAMA ", \"sliding_window\": null}",
        "{" LLAMA ", \"rope_parameters\": {\"rope_theta\": 5e5}}",
        "{" LLAMA ", \"tie_word_embeddings\": true}", "{" GPT2 ", \"n_inner\": null}"};
    ds_error err = {0};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        ds_buf text = {0};
        cr_expect_eq(ds_import_hf(fine[i], strlen(fine[i]), &on_dgx, &text, &err), DS_OK, "%s: %s",
                     fine[i], err.message);
        ds_buf_deinit(&text);
    }
    ds_setting set = {"seq", "2048"};
    ds_import_options options = {.settings = &set, .n_settings = 1, .path = LIBRARY};
    ds_buf text = {0};
    cr_expect_eq(ds_import_hf("{" GPT2 "}", strlen("{" GPT2 "}"), &options, &text, &err),
                 DS_ERR_VALUE);
    cr_expect(strstr(err.message, "1024 positions"), "%s", err.message);
    ds_buf_deinit(&text);
}

/* One model_type, several functions: the sizes and switches of a config decide. */
Test(import_hf, function_of_each_variant) {
    static const char *const all[][2] = {
        {OF("mistral") "\"sliding_window\": null}", "@m.llama\n"},
        {OF("mistral") "\"sliding_window\": 512}", "@m.mistral\n"},
        {OF("phi3") "\"sliding_window\": null}", "@m.phi3\n"},
        {OF("llama") "\"tie_word_embeddings\": true}", "@m.llama_tied\n"},
        {OF("falcon") "\"multi_query\": true}", "@m.falcon\n"},
        {OF("falcon") "\"new_decoder_architecture\": true, \"num_kv_heads\": 2}",
         "@m.falcon_new\n"},
        {OF("mamba2") "\"tie_word_embeddings\": true}", "@m.mamba2_tied\n"},
        {OF("deepseek_v3") "\"n_shared_experts\": 1, \"q_lora_rank\": 8}", "@m.deepseek_v3\n"},
        {OF("deepseek_v3") "\"n_shared_experts\": 1, \"q_lora_rank\": 8, "
                           "\"num_nextn_predict_layers\": 1}",
         "@m.deepseek_v3_mtp\n"},
        {"{\"model_type\": \"gemma3\", \"text_config\": " OF("gemma3_text") "\"head_dim\": 16}}",
         "@m.gemma3\n"},
        {OF("nemotron_h") "\"hybrid_override_pattern\": \"M-M*-M-M*-M-\"}", "@m.nemotron_h\n"},
        {OF("nemotron_h") "\"hybrid_override_pattern\": \"ME\", \"n_routed_experts\": 4, "
                          "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "
                          "\"moe_shared_expert_intermediate_size\": 8}",
         "@m.nemotron\n"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ds_buf text = {0};
        ds_error err = {0};
        cr_expect_eq(ds_import_hf(all[i][0], strlen(all[i][0]), &on_dgx, &text, &err), DS_OK,
                     "%s: %s", all[i][0], err.message);
        cr_expect(text.n && strstr(text.text, all[i][1]), "%s", text.text);
        ds_buf_deinit(&text);
    }
}
