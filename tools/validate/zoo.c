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
    /* 2.60e11 FLOP a token by its TFLOP/s and tokens/s, those "w/o MTP" 2.50e11 */
    {.name = "DeepSeekV3", .entry = "deepseek_v3_mtp", .more_turns = 1, DEEPSEEK_DIMS},
    {.name = "DeepSeekV3 (w/o MTP)", .entry = "deepseek_v3", DEEPSEEK_DIMS},
    {.name = "DeepSeekV4", .refused = "DeepSeek-V4: its sparse attention is no model here"},
    {.name = "Nemotron_3", .refused = "Nemotron 3: Mamba layers are no model here"},
};

const val_known_model *val_known_model_of(const char *name) {
    const val_known_model *best = NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        size_t n = strlen(models[i].name);
        if (strncasecmp(name, models[i].name, n) != 0) continue;
        if (!best || n > strlen(best->name)) best = &models[i];
    }
    return best;
}

double val_known_active_params(const val_known_model *m) {
    return m->shared_params + 3.0 * (double)m->top * (double)m->hidden * (double)m->ffn;
}
