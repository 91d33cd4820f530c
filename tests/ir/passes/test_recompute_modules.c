/* What a layer keeps when modules run again (Megatron-LM --recompute-modules, torchtitan "op"):
 * DeepSeek-V3's layers, dense ones in the first loop and experts in the second, and Llama's. The
 * sets are what the frameworks' documentation says of each module. */
#include "tests/support/launches.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *scenario(const char *model, const char *recompute) {
    static char text[2048];
    snprintf(
        text, sizeof text,
        "dir 1\nimport \"models/moe.dir\" as moe with layers = 3, dense = 1, hidden = 16, heads "
        "= 4, kv_heads = 2, head_dim = 4, ffn = 8, experts = 4, top = 2, seq = 8, vocab = 64, "
        "batch = 2, dense_ffn = 24, shared_ffn = 8, q_rank = 8, kv_rank = 8, nope_dim = 4, "
        "rope_dim = 2, v_dim = 4\n"
        "import \"models/llama.dir\" as llama with layers = 2, hidden = 16, heads = 4, kv_heads "
        "= 2, ffn = 32, seq = 8, vocab = 64, batch = 2\n"
        "topology @box {\n  device gpu[1]\n}\n"
        "scenario { model = @%s, on = @box, train { optimizer = sgd, dtype = f16 }, strategy { "
        "recompute = %s } }\n",
        model, recompute);
    return text;
}

/* Does the loop of that number keep the value? */
static bool keeps(const step_case *c, int number, const char *name) {
    const ds_func *func = c->step->func;
    const ds_op *loop = NULL;
    char want[64];
    snprintf(want, sizeof want, "%s.kept", name);
    for (uint32_t i = 0; number >= 0; i++)
        if (func->body.ops[i]->code == DS_OP_FOR && number-- == 0) loop = func->body.ops[i];
    for (uint32_t i = loop->n_args; i < loop->n_out; i++) {
        const char *is = ds_value_at(func, loop->out[i])->name;
        size_t n = strlen(want);
        if (strncmp(is, want, n) == 0) return true;
        snprintf(want, sizeof want, "%s_2.kept", name);
        if (strcmp(is, want) == 0) return true;
        snprintf(want, sizeof want, "%s.kept", name);
    }
    return false;
}

/* A loop runs the modules of `recompute` again. `names` lists values that the loop keeps without
 * `recompute`: the loop keeps a value after a "+", and does not keep a value after a "-". */
static void expect(const char *model, const char *recompute, int loop, const char *names) {
    step_case c;
    char room[512], *word;
    step_make(&c, scenario(model, recompute), NULL, DS_PASS_RECOMPUTE);
    cr_assert_eq(c.status, DS_OK, "%s: %s", recompute, c.err.message);
    free(step_text(&c)); /* it parses, and prints as itself */
    snprintf(room, sizeof room, "%s", names);
    for (char *at = room; (word = strtok(at, " ")); at = NULL)
        cr_expect_eq(keeps(&c, loop, word + 1), word[0] == '+', "%s, loop %d: %s", recompute, loop,
                     word);
    step_free(&c);
}

static const char deepseek[] = "moe.deepseek_v3";

Test(recompute_modules, norms) {
    expect(deepseek, "none", 1, "+out.n1 +out.n2 +out.proj.q_n +h");
    expect(deepseek, "layernorm", 1, "-out.n1 -out.n2 +out.proj.q_n +out.proj.kv_n +h");
    expect("llama.llama", "[\"layernorm\"]", 0, "-n1 -n2 +mid +h +gate");
    expect("moe.qwen3_moe", "layernorm", 0, "-n1 -n2 -moe.tokens +proj.q.q +mid +h");
}

Test(recompute_modules, latent_attention) {
    expect(deepseek, "none", 1, "+out.proj.q_all +out.proj.k_all +out.proj.v");
    expect(deepseek, "mla_up_proj", 1,
           "-out.proj.q_all -out.proj.k_all -out.proj.v +out.proj.q_n +out.proj.kv_n "
           "+out.proj.core +out.n1");
}

Test(recompute_modules, experts) {
    expect(deepseek, "moe_act", 1,
           "-out.moe.glu -out.moe.act +out.moe.sent +out.moe.fc2 +out.shared.glu");
    expect(deepseek, "moe_act", 0, "+out.mlp.glu");
    expect(deepseek, "shared_experts", 1,
           "-out.shared.glu -out.shared.act -out.shared.gate +out.moe.glu +out.n2");
    expect(deepseek, "moe", 1,
           "-out.moe.glu -out.moe.sent -out.moe.fc2 -out.moe.choice -out.shared.glu +out.n2");
    expect(deepseek, "moe", 0, "+out.mlp.glu");
}

Test(recompute_modules, dense_block) {
    expect(deepseek, "mlp", 0, "-out.mlp.glu -out.mlp.act -out.mlp.gate +out.n2");
    expect(deepseek, "mlp", 1, "+out.shared.glu +out.moe.glu");
    expect("llama.llama", "mlp", 0, "-glu -act -gate -up +n2 +n1");
}

/* Of q, k, v, o, gate, up and down the first, third, fifth and seventh are kept. */
Test(recompute_modules, every_second_product) {
    expect("llama.llama", "selective_op", 0,
           "+q +v +core +gate +h -k -q_rot -k_rot -proj -mid -up -act -glu -n1 -n2");
}

/* A layer behind the loops reads what a loop returns. */
Test(recompute_modules, behind_a_loop) {
    expect("moe.deepseek_v3_mtp", "mla_up_proj", 1, "-out.proj.q_all +out.proj.q_n");
}

Test(recompute_modules, beside_paths) {
    expect("llama.llama", "[\"layernorm\", \"layer[*].act\"]", 0, "-n1 -act +glu +gate");
}

Test(recompute_modules, a_module_that_the_model_lacks_is_refused) {
    step_case c;
    step_make(&c, scenario("llama.llama", "moe_act"), NULL, DS_PASS_RECOMPUTE);
    cr_expect_eq(c.status, DS_ERR_UNSUPPORTED);
    cr_expect(strstr(c.err.message, "none of the modules"), "%s", c.err.message);
    step_free(&c);
}
