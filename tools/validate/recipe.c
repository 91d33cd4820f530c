/* Megatron-Bridge's recipes: recompute_modules of scripts/performance/configs, by model, GPU and
 * precision (WorkloadBaseConfig; a model or GPU without a line recomputes nothing there). Facts of
 * the recipes' text; none was chosen by a measurement. */
#include "tools/validate/recipe.h"

#include <string.h>
#include <strings.h>

typedef struct recipe {
    const char *model, *gpu; /* the cells begin with these words */
    const char *precision;   /* the cell mentions the word; NULL: any */
    int64_t pp;              /* variants of a recipe differ in their stages; 0: any */
    int64_t since;           /* the container's release from which the line counts; 0: any */
    const char *modules;     /* NULL: none */
} recipe;

/* The first line that holds counts. */
static const recipe recipes[] = {
    /* configs/deepseek/deepseek_workload_base_configs.py, deepseek_llm_pretrain.py */
    {"DeepSeekV3", "GB300", "fp8", 0, 2606, NULL}, /* pull request 3983 */
    {"DeepSeekV3", "GB300", "bf16", 0, 0, "\"moe_act\""},
    {"DeepSeekV3", "B200", NULL, 8, 0, "\"mla_up_proj\", \"mlp\""},
    {"DeepSeekV3", "H100", NULL, 0, 0, "\"mla_up_proj\", \"mlp\""},
    {"DeepSeekV3", "", NULL, 0, 0, "\"mla_up_proj\""},
    /* configs/gpt_oss/gpt_oss_workload_base_configs.py */
    {"GPT OSS 120B", "GB200", NULL, 0, 0, "\"layernorm\", \"moe_act\""},
    {"GPT OSS 120B", "B200", NULL, 0, 0, "\"layernorm\", \"moe_act\""},
    {"GPT OSS 120B", "H100", NULL, 0, 0, "\"layernorm\", \"moe_act\""},
    /* configs/nemotronh/nemotron_3_workload_base_configs.py */
    {"Nemotron_3_Nano", "H100", "bf16", 0, 0, "\"moe\", \"layernorm\""},
    {"Nemotron_3_Nano", "H100", NULL, 0, 0, "\"moe\", \"layernorm\", \"core_attn\", \"moe_act\""},
    /* The version whose layouts are the tables' (GB200 tp 2, B300 ep 8), @f601ba97. */
    {"Nemotron_3_Super", "B300", "fp8", 0, 0, NULL},
    {"Nemotron_3_Super", "B300", NULL, 0, 0, "\"layernorm\", \"moe_act\""},
    {"Nemotron_3_Super", "B200", NULL, 0, 0, "\"layernorm\", \"moe_act\""},
};

static bool begins(const char *text, const char *word) {
    return strncasecmp(text, word, strlen(word)) == 0;
}

static bool mentions(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

const char *val_recipe_modules(const val_row *row) {
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const recipe *r = &recipes[i];
        bool holds = begins(row->model, r->model) && begins(row->gpu, r->gpu);
        if (r->precision && !mentions(row->precision, r->precision)) continue;
        if (row->release < r->since) continue;
        if (holds && (!r->pp || r->pp == row->pp)) return r->modules;
    }
    return NULL;
}

typedef struct offloaded {
    const char *model, *gpu, *precision; /* as of a recipe */
    int64_t layers;
} offloaded;

/* configs/llama/llama3_workload_base_configs.py, with use_megatron_fsdp */
static const offloaded offloads[] = {
    {"LLAMA3_70B", "GB300", "bf16", 30}, {"LLAMA3_70B", "GB300", "fp8", 20},
    {"LLAMA3_70B", "GB200", "bf16", 20}, {"LLAMA3_70B", "GB200", "fp8", 40},
    {"LLAMA3_70B", "B200", "fp8", 5},
};

double val_recipe_offloaded(const val_row *row) {
    for (size_t i = 0; row->zero == 3 && i < sizeof offloads / sizeof *offloads; i++) {
        const offloaded *o = &offloads[i];
        if (begins(row->model, o->model) && begins(row->gpu, o->gpu) &&
            mentions(row->precision, o->precision))
            return (double)o->layers / (double)row->layers;
    }
    return 0;
}

/* moe_a2a_overlap of NVIDIA-NeMo/Megatron-Bridge: pull requests 3983 (DeepSeek-V3 on GB300), 4226
 * (GB200), 4249 (Qwen3 on racks), all of them for container 26.06, and
 * configs/gpt_oss/gpt_oss_workload_base_configs.py; on H100 configs/qwen/qwen3_workload_base_configs.py
 * (235B) and configs/deepseek/deepseek_v3_llm_pretrain.py of 25.09 (A2A_1F1B), and on B200
 * configs/deepseek/deepseek_workload_base_configs.py. */
static const recipe overlaps[] = {
    {"DeepSeekV3", "GB300", "fp8", 0, 2606, NULL},
    {"DeepSeekV3", "GB200", "fp8", 0, 2606, NULL},
    {"Qwen3", "GB300", "fp8", 0, 2606, NULL},
    {"Qwen3", "GB200", "fp8", 0, 2606, NULL},
    {"GPT OSS 120B", "GB300", "fp8", 0, 2606, NULL},
    {"GPT OSS 120B", "GB200", "fp8", 0, 2606, NULL},
    {"Qwen3_235B", "H100", NULL, 0, 0, NULL},
    {"DeepSeekV3", "H100", NULL, 0, 0, NULL},
    {"DeepSeekV3", "B200", "mxfp8", 8, 0, NULL},
};

/* The same files: moe_flex_dispatcher_backend = "deepep", enable_deepep. Qwen3-235B on H100 has
 * moe_token_dispatcher_type = "alltoall", and gpt-oss the default, which is the same. */
static const recipe dispatches[] = {
    {"DeepSeekV3", "H100", NULL, 0, 0, NULL},
    {"DeepSeekV3", "B200", "mxfp8", 8, 0, NULL},
};

static bool is_among(const recipe *lines, size_t n, const val_row *row) {
    for (size_t i = 0; i < n; i++) {
        const recipe *r = &lines[i];
        if (begins(row->model, r->model) && begins(row->gpu, r->gpu) &&
            (!r->precision || mentions(row->precision, r->precision)) &&
            (!r->pp || r->pp == row->pp) && row->release >= r->since)
            return true;
    }
    return false;
}

bool val_recipe_overlaps(const val_row *row) {
    return is_among(overlaps, sizeof overlaps / sizeof *overlaps, row);
}

bool val_recipe_has_deepep(const val_row *row) {
    return is_among(dispatches, sizeof dispatches / sizeof *dispatches, row);
}
