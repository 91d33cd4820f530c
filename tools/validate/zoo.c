/* The models, from their published configs. */
#include "tools/validate/zoo.h"

#include <string.h>
#include <strings.h>

#define DEEPSEEK_DIMS                                                                              \
    .layers = 61, .hidden = 7168, .heads = 128, .kv_heads = 128, .head_dim = 192, .ffn = 2048,     \
    .experts = 256, .top = 8, .vocab = 129280, .with = ", dense = 3",                              \
    .shared_params = 7168.0 * (1536 + 512 + 64) + 1536.0 * 128 * 192 + 512.0 * 128 * 256 +         \
                     128.0 * 128 * 7168 + 3.0 * 7168 * 2048,                                       \
    .source = "huggingface.co/deepseek-ai/DeepSeek-V3 config.json, as in AMD-AGI/Primus "          \
              "deepseek_v3.yaml: moe_layer_freq [0]*3+[1]*58, mtp_num_layers 1"
#define QWEN3_SOURCE                                                                               \
    "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/models/qwen/qwen_provider.py: "               \
    "Qwen3MoEModelProvider30B_A3B and 235B_A22B"
/* Query, key, value and output projections. */
#define GQA(hidden, heads, kv_heads, head_dim)                                                     \
    ((double)(hidden) * (double)(head_dim)*2 * ((heads) + (kv_heads)))

/* Nemotron 3's layers: Mamba's two products (gate, x, B, C and time steps with 8 groups of 128
 * states; out), attention, the shared expert with the router, latent projections and experts. */
#define MAMBA(hidden, ssm_heads)                                                                   \
    ((double)(hidden) * (3.0 * (ssm_heads)*64 + 2 * 8 * 128 + (ssm_heads)))
#define RELU_EXPERTS(hidden, latent, ffn, shared_ffn, experts, top)                                \
    ((double)(hidden) * (2.0 * (shared_ffn) + (experts)) +                                         \
     2.0 * ((latent) == (hidden) ? 0 : (hidden)) * (latent) + 2.0 * (latent) * (ffn) * (top))
/* Two tokens further on: each a join, attention, experts and a product with the vocabulary. */
#define FURTHER(hidden, vocab, attention, experts)                                                 \
    (2 * (2.0 * (hidden) * (hidden) + (attention) + (experts) + (double)(hidden) * (vocab)))
#define NANO_EXPERTS  RELU_EXPERTS(2688, 2688, 1856, 3712, 128, 6)
#define SUPER_EXPERTS RELU_EXPERTS(4096, 1024, 2688, 5376, 512, 22)
#define ULTRA_EXPERTS RELU_EXPERTS(8192, 2048, 5120, 10240, 512, 22)

static const val_known_model models[] = {
    {.name = "Qwen3_30B_a3B",
     .entry = "qwen3_moe",
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 768,
     .experts = 128,
     .top = 8,
     .vocab = 151936,
     .shared_params = GQA(2048, 32, 4, 128),
     .source = QWEN3_SOURCE},
    {.name = "Qwen3_235B_a22B",
     .entry = "qwen3_moe",
     .layers = 94,
     .hidden = 4096,
     .heads = 64,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 1536,
     .experts = 128,
     .top = 8,
     .vocab = 151936,
     .shared_params = GQA(4096, 64, 4, 128),
     .source = QWEN3_SOURCE},
    {.name = "GPT OSS 120B",
     .entry = "gpt_oss",
     .entry_generic = "gpt_oss_biased",
     .layers = 36,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .ffn = 2880,
     .experts = 128,
     .top = 4,
     .vocab = 201088,
     .layers_a_turn = 2,
     .shared_params = GQA(2880, 64, 8, 64),
     .source = "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/models/gpt_oss/"
               "gpt_oss_provider.py: GPTOSSProvider120B, window_size 128, every second layer"},
    {.name = "GPT OSS 20B",
     .entry = "gpt_oss",
     .entry_generic = "gpt_oss_biased",
     .layers = 24,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .ffn = 2880,
     .experts = 32,
     .top = 4,
     .vocab = 201088,
     .layers_a_turn = 2,
     .shared_params = GQA(2880, 64, 8, 64),
     .source = "the same file, GPTOSSProvider20B"},
    {.name = "Mixtral 8x7B",
     .file = "mixtral",
     .entry = "mixtral",
     .with = ", capacity_percent = 100",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .experts = 8,
     .top = 2,
     .vocab = 32000,
     .shared_params = GQA(4096, 32, 8, 128),
     .source = "huggingface.co/mistralai/Mixtral-8x7B-v0.1 config.json; tokens spread evenly"},
    {.name = "Mixtral 8x22B",
     .file = "mixtral",
     .entry = "mixtral",
     .with = ", capacity_percent = 100",
     .layers = 56,
     .hidden = 6144,
     .heads = 48,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 16384,
     .experts = 8,
     .top = 2,
     .vocab = 32768,
     .shared_params = GQA(6144, 48, 8, 128),
     .source = "huggingface.co/mistralai/Mixtral-8x22B-v0.1 config.json; tokens spread evenly"},
    /* 2.60e11 FLOP a token by its TFLOP/s and tokens/s, those "w/o MTP" 2.50e11 */
    {.name = "DeepSeekV3", .entry = "deepseek_v3_mtp", .more_turns = 1, DEEPSEEK_DIMS},
    {.name = "DeepSeekV3 (w/o MTP)", .entry = "deepseek_v3", DEEPSEEK_DIMS},
    {.name = "DeepSeekV4", .refused = "DeepSeek-V4: its sparse attention is no model here"},
    {.name = "Nemotron_3_Nano",
     .file = "nemotron",
     .entry = "nemotron",
     .layers = 52,
     .hidden = 2688,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 1856,
     .experts = 128,
     .top = 6,
     .vocab = 131072,
     .attention_layers = 6,
     .active_params = 23 * MAMBA(2688, 64) + 6 * GQA(2688, 32, 2, 128) + 23 * NANO_EXPERTS,
     .source = "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/models/nemotronh/"
               "nemotron_h_provider.py: Nemotron3NanoProvider"},
    {.name = "Nemotron_3_Super",
     .file = "nemotron",
     .entry = "nemotron_latent_mtp",
     .with = ", runs_1 = 3, pairs_1 = 3, runs_2 = 4, pairs_2 = 4, runs_3 = 1, pairs_3 = 3, "
             "ssm_heads = 128, latent = 1024, shared_ffn = 5376, route_scale = 5.0",
     .entry_4_bits = "nemotron_mixed_mtp",
     .with_4_bits = ", runs_1 = 3, pairs_1 = 3, runs_2 = 4, pairs_2 = 4, runs_3 = 1, pairs_3 = 2, "
                    "ssm_heads = 128, latent = 1024, shared_ffn = 5376, route_scale = 5.0",
     .layers = 88,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 2688,
     .experts = 512,
     .top = 22,
     .vocab = 131072,
     .attention_layers = 10,
     .active_params = 40 * MAMBA(4096, 128) + 8 * GQA(4096, 32, 2, 128) + 40 * SUPER_EXPERTS +
                      FURTHER(4096, 131072, GQA(4096, 32, 2, 128), SUPER_EXPERTS),
     .source = "the same file, Nemotron3SuperProvider, mtp_num_layers 2"},
    {.name = "Nemotron_3_Ultra",
     .refused =
         "Nemotron 3 Ultra: its recipe shards weights within racks, beside experts (HSDP), and "
         "offloads their activations"},
};

/* Letters and digits of the word are the first ones of the name: "GPT-OSS-20B", "gpt_oss 20b". */
static bool is_called(const char *name, const char *word) {
    for (;; name++, word++) {
        name += strspn(name, " _-");
        word += strspn(word, " _-");
        if (!*word || strncasecmp(name, word, 1) != 0) return !*word;
    }
}

const val_known_model *val_known_model_of(const char *name) {
    const val_known_model *best = NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        size_t n = strlen(models[i].name);
        if (!is_called(name, models[i].name)) continue;
        if (!best || n > strlen(best->name)) best = &models[i];
    }
    return best;
}

double val_known_active_params(const val_known_model *m) {
    if (m->active_params > 0) return m->active_params;
    double routed = 3.0 * (double)m->top * (double)m->hidden * (double)m->ffn;
    return (double)m->layers * (m->shared_params + routed);
}
