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

static const ds_import_options on_dgx = {
    .source = "config.json", .on_file = "topologies/dgx-a100.dir", .on_name = "dgx_a100"};

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

/* Sources of the figures: tests/data/hf/README.md. */
static const struct {
    const char *file;
    int64_t parameters;
    const char *text; /* as the comment says it */
} published[] = {
    {"gpt2.json", 124439808, ": 124,439,808 parameters."},
    {"llama-2-7b.json", 6738415616, ": 6,738,415,616 parameters."},
    {"llama-3.2-1b.json", 1235814400, ": 1,235,814,400 parameters."},
    {"mistral-7b-v0.1.json", 7241732096, ": 7,241,732,096 parameters."},
    {"mixtral-8x7b.json", 46702792704, ": 46,702,792,704 parameters."},
    {"qwen2-0.5b.json", 494032768, ": 494,032,768 parameters."},
    {"qwen2-7b.json", 7615616512, ": 7,615,616,512 parameters."},
    {"qwen3-0.6b.json", 596049920, ": 596,049,920 parameters."},
    {"qwen3-8b.json", 8190735360, ": 8,190,735,360 parameters."},
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
        cr_assert_eq(
            ds_load_text(DS_SOURCE_DIR "/scenarios/x.dir", text.text, text.n, NULL, &unit, &err),
            DS_OK, "%s", err.message);
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
        {"{\"model_type\": \"bert\"}", DS_ERR_UNSUPPORTED,
         "gpt2, llama, mistral, qwen2, qwen3, mixtral"},
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
        {"{" GPT2 ", \"n_inner\": 100}", DS_ERR_UNSUPPORTED, "'n_inner'"},
        {"{" GPT2 ", \"tie_word_embeddings\": false}", DS_ERR_UNSUPPORTED, "shares"},
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
    ds_import_options options = {.settings = &set, .n_settings = 1};
    ds_buf text = {0};
    cr_expect_eq(ds_import_hf("{" GPT2 "}", strlen("{" GPT2 "}"), &options, &text, &err),
                 DS_ERR_VALUE);
    cr_expect(strstr(err.message, "1024 positions"), "%s", err.message);
    ds_buf_deinit(&text);
}
