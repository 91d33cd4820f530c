/* The models of published configs, made small, under one strategy of each kind: the sharded step
 * has the loss, the gradients and the updated weights of the unsharded one, and an untrained model
 * knows nothing of its words. test_families.c varies all knobs for a few models. */
#include "tests/support/exec.h"
#include "tests/support/prove.h"

#include "ir/base/str.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TINY    "layers = 2, hidden = 16, heads = 4, seq = 8, vocab = 64, batch = 2"
#define GROUPED TINY ", kv_heads = 2, ffn = 32"
#define MIXTURE                                                                                    \
    TINY ", kv_heads = 2, head_dim = 4, ffn = 8, experts = 4, top = 2, capacity_percent = 200"
#define LATENT                                                                                     \
    MIXTURE ", dense = 1, dense_ffn = 24, shared_ffn = 8, kv_rank = 8, nope_dim = 4, rope_dim = 2" \
            ", v_dim = 4"
#define STATES                                                                                     \
    "hidden = 16, ssm_heads = 4, ssm_groups = 2, ssm_dim = 4, ssm_state = 4, ssm_chunk = 4, "      \
    "seq = 8, vocab = 64, batch = 2"

enum { CP = 1, EP = 2 };

typedef struct published {
    const char *file, *function, *with;
    int can; /* beyond dp, tp and pp */
} published;

static const published models[] = {
    {"mistral", "mistral", GROUPED ", window = 4", CP},
    {"mistral", "phi3", GROUPED ", window = 4", CP},
    {"gemma", "gemma2", GROUPED ", layers = 5, period = 2, head_dim = 8, window = 4", CP},
    {"gemma", "gemma3", GROUPED ", layers = 5, period = 3, head_dim = 8, window = 4", CP},
    {"decoder", "gpt_neox", TINY ", rope_dim = 2", CP},
    {"decoder", "falcon", GROUPED, CP},
    {"decoder", "falcon_new", GROUPED, CP},
    {"decoder", "opt", TINY ", ffn = 32, positions = 12", CP},
    {"decoder", "bloom", TINY, CP},
    {"moe", "gpt_oss_biased", MIXTURE ", layers = 4, window = 4", EP},
    {"moe", "deepseek_v2_lite", LATENT ", layers = 3", EP},
    {"llama4", "llama4", MIXTURE ", layers = 4, period = 2, dense_ffn = 24, shared_ffn = 8", EP},
    {"vit", "vit", TINY ", ffn = 32, patch_dim = 12, seq = 7, batch = 32", CP},
    {"mamba", "mamba2", STATES ", layers = 2", 0},
    {"mamba", "mamba2_tied", STATES ", layers = 2", 0},
    {"nemotron", "nemotron_h",
     STATES ", heads = 4, kv_heads = 2, head_dim = 4, dense_ffn = 24, runs_1 = 1, pairs_1 = 1, "
            "runs_2 = 0, runs_3 = 0, tail = 1",
     0},
};

/* Of a param that is said twice the last holds. */
static void put_import(const published *m, ds_buf *out) {
    ds_buf_printf(out, "dir 1\nimport \"models/%s.dir\" as m with ", m->file);
    const char *comma = "";
    for (const char *at = m->with; *at;) {
        size_t n = strcspn(at, ","), name = strcspn(at, " =");
        bool again = false;
        for (const char *more = at + n; *more && !again;) {
            more += strspn(more, ", ");
            again = strncmp(more, at, name) == 0 && strchr(" =", more[name]);
            more += strcspn(more, ",");
        }
        if (!again) ds_buf_printf(out, "%s%.*s", comma, (int)n, at);
        if (!again) comma = ", ";
        at += n + strspn(at + n, ", ");
    }
    ds_buf_put(out, "\n");
}

static void check(const published *m, const char *strategy) {
    ds_buf text = {0};
    proof found;
    const proof_options options = {.seed = 1, .texts = true};
    put_import(m, &text);
    ds_buf_printf(&text,
                  "topology @box {\n  device gpu[2]\n  switch hub\n"
                  "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..2\n}\n"
                  "scenario {\n  model = @m.%s\n  on = @box\n"
                  "  train { optimizer = sgd, keep_gradients = true }\n  strategy { %s }\n}\n",
                  m->function, strategy);
    prove(text.text, &options, &found);
    cr_expect_eq(found.verdict, PROOF_EQUAL, "@%s, %s: %s: %s", m->function, strategy,
                 proof_verdict_name(found.verdict), found.what);
    cr_expect_eq(found.devices, 2);
    if (!strstr(strategy, "pp")) cr_expect_gt(found.communications, 0); /* transfers are none */
    cr_expect_lt(found.zeros * 4, found.compared, "@%s, %s: %u of %u results are zeros",
                 m->function, strategy, found.zeros, found.compared);
    ds_buf_deinit(&text);
}

static void check_all(const char *strategy, int needs) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if ((models[i].can & needs) == needs) check(&models[i], strategy);
}

Test(models_published, dp) {
    check_all("dp = 2, zero = 3", 0);
}
Test(models_published, tp) {
    check_all("tp = 2", 0);
}
Test(models_published, pp) {
    check_all("pp = 2, microbatches = 2", 0);
}
Test(models_published, cp) {
    check_all("cp = 2", CP);
}
Test(models_published, ep) {
    check_all("dp = 2, ep = 2", EP);
}

Test(models_published, untrained_loss_is_log_vocabulary) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        exec_case c;
        ds_buf text = {0};
        put_import(&models[i], &text);
        ds_buf_printf(&text, "scenario { model = @m.%s }\n", models[i].function);
        exec_text(&c, text.text, NULL, NULL);
        cr_assert_eq(c.status, DS_OK, "%s", text.text);
        double loss = *exec_out(&c, "loss");
        cr_expect_lt(fabs(loss - log(64)), 0.6, "@%s: loss %g", models[i].function, loss);
        exec_free(&c);
        ds_buf_deinit(&text);
    }
}
