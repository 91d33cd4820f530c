/* The decoding forms of scenarios/models: a token at a time with a cache, they give the logits of
 * the training model's forward pass over the whole sequence, at every token; and the tokens that
 * they choose are the likeliest by the training model's logits. Programs, weights and inputs are
 * those of the files; only what a function returns is edited. */
#include "ir/base/file.h"
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct form {
    const char *file, *func, *settings; /* of both forms */
    const char *training;               /* settings of the training form alone */
    const char *decoding;               /* and of the other */
} form;

#define TRUNK "layers=2 hidden=16 heads=4 vocab=64 batch=2"
#define GROUP TRUNK " kv_heads=2 ffn=32"
#define GEMMA GROUP " head_dim=8 window=3"
#define LLAMA4                                                                                     \
    "hidden=16 heads=4 kv_heads=2 head_dim=4 vocab=64 batch=2 ffn=8 dense_ffn=24 shared_ffn=8 "    \
    "experts=4 top=1"
#define MOE TRUNK " kv_heads=2 head_dim=4 ffn=8 experts=4 top=2 window=4"
#define LATENT                                                                                     \
    "layers=3 hidden=16 heads=4 vocab=64 batch=2 ffn=8 experts=4 top=2 dense_ffn=24 shared_ffn=8 " \
    "q_rank=8 kv_rank=8 nope_dim=4 rope_dim=2 v_dim=4"
#define SCALE "score_scale=0.408248290463863" /* 1 / sqrt(4 + 2) */
/* An expert with a place for each token drops none. */
#define DROPS_NONE "capacity_percent=200"

static const form forms[] = {
    {"gpt", "gpt", TRUNK, "dropout=0.0", ""},
    {"gpt", "gpt", TRUNK " layers=3", "dropout=0.0", ""},
    {"llama", "llama", GROUP, "", ""},
    {"llama", "llama", GROUP " kv_heads=4 rope_base=500000.0", "", ""},
    {"llama", "llama", GROUP " layers=1", "", ""},
    {"mistral", "mistral", GROUP " window=4", "", ""},
    {"mistral", "mistral", GROUP " window=1", "", ""},
    {"mistral", "phi3", GROUP " window=5", "", ""},
    {"qwen", "llama_tied", GROUP, "", ""},
    {"qwen", "qwen2", GROUP, "", ""},
    {"qwen", "qwen2_tied", GROUP, "", ""},
    {"qwen", "qwen3", GROUP " head_dim=8", "", ""},
    {"qwen", "qwen3_tied", GROUP " head_dim=8", "", ""},
    {"gemma", "gemma2", GEMMA " layers=5 period=2", "", ""},
    {"gemma", "gemma2", GEMMA " layers=6 period=3", "", ""},
    {"gemma", "gemma3", GEMMA " layers=7 period=3", "", ""},
    {"gemma", "gemma3", GEMMA " layers=2 period=1", "", ""},
    {"llama4", "llama4", LLAMA4 " layers=4 period=2", "capacity_percent=400", ""},
    {"llama4", "llama4", LLAMA4 " layers=2 period=1", "capacity_percent=400", "groups=1"},
    {"mixtral", "mixtral", GROUP " experts=4", DROPS_NONE, ""},
    {"mixtral", "mixtral", GROUP " experts=4 top=1", "capacity_percent=400 chunks=2", "groups=1"},
    {"moe", "qwen3_moe", MOE, DROPS_NONE, ""},
    {"moe", "qwen3_moe", MOE, DROPS_NONE, "groups=1"},
    {"moe", "gpt_oss", MOE " layers=4", DROPS_NONE, ""},
    {"moe", "gpt_oss_biased", MOE, DROPS_NONE, "groups=1"},
    {"moe", "deepseek_v3", LATENT " dense=1", DROPS_NONE, SCALE},
    {"moe", "deepseek_v3", LATENT " dense=0", DROPS_NONE, SCALE},
    {"moe", "deepseek_v2_lite", LATENT " dense=2", DROPS_NONE, SCALE},
};

enum {
    N_FORMS = sizeof forms / sizeof forms[0],
    SEQ = 10,
    PROMPT = 3,
    BATCH = 2,
    VOCAB = 64,
    MAX_GIVEN = SEQ + 64
};

/* ---- the files' text, edited ---- */

static char *read_model(const char *file, const char *ending) {
    char path[1024];
    ds_buf text = {0};
    ds_error err = {0};
    snprintf(path, sizeof path, "%s/scenarios/models/%s%s.dir", DS_SOURCE_DIR, file, ending);
    cr_assert_eq(ds_file_read(path, DS_NOWHERE, 1 << 20, &text, &err), DS_OK, "%s", err.message);
    return text.text;
}

/* Replaces the first `from` at or after `start`, which must exist. */
static void put_replaced(ds_buf *text, const char *start, const char *from, const char *to) {
    const char *at = strstr(text->text, start);
    cr_assert(at && (at = strstr(at, from)), "no '%s' after '%s'", from, start);
    ds_buf out = {0};
    ds_buf_printf(&out, "%.*s%s%s", (int)(at - text->text), text->text, to, at + strlen(from));
    ds_buf_deinit(text);
    *text = out;
}

/* The text without the file's other functions, which may call the function. */
static char *only(char *text, const char *start) {
    ds_buf out = {0};
    const char *first = strstr(text, "\nfunc @"), *at = strstr(text, start), *end;
    cr_assert(first && at && (end = strstr(at, "\n}\n")), "no '%s'", start);
    ds_buf_printf(&out, "%.*s\n%.*s\n}\n", (int)(first - text), text, (int)(end - at), at);
    free(text);
    return out.text;
}

/* The text as a file of scenarios/, with a scenario whose model is the function; `start`:
 * with this function alone. */
static ds_buf opened(const form *f, const char *start, const char *ending) {
    static const char import[] = "\nimport \"";
    ds_buf text = {0};
    char *read = read_model(f->file, ending);
    if (start) read = only(read, start);
    char *rest = read;
    for (char *at; (at = strstr(rest, import)); rest = at + strlen(import))
        ds_buf_printf(&text, "%.*s%smodels/", (int)(at - rest), rest, import);
    ds_buf_printf(&text, "%s\nscenario { model = @%s%s }\n", rest, f->func, ending);
    free(read);
    return text;
}

static exec_case run(ds_buf *text, const char *settings, const ds_exec_tensor *inputs, uint32_t n) {
    exec_case c;
    ds_exec_options options = {.seed = 1, .inputs = inputs, .n_inputs = n};
    exec_text(&c, text->text, settings, &options);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text->text);
    ds_buf_deinit(text);
    return c;
}

/* The function returns what its loss reads. */
static void put_logits(ds_buf *text, const char *start) {
    static const char loss[] = "cross_entropy(";
    char line[64];
    const char *at = strstr(strstr(text->text, start), loss);
    cr_assert(at);
    at += strlen(loss);
    snprintf(line, sizeof line, "return %.*s", (int)strcspn(at, ","), at);
    put_replaced(text, start, "return %loss", line);
}

/* The forward pass of training over `ids` [BATCH, SEQ]: logits [BATCH, SEQ, VOCAB]. */
static exec_case run_training(const form *f, double *ids) {
    char start[128], settings[512];
    snprintf(start, sizeof start, "func @%s(", f->func);
    ds_buf text = opened(f, NULL, "");
    put_replaced(&text, start, "-> f32[] {", "-> f32[batch@dp, seq@cp, vocab] {");
    put_logits(&text, start);
    snprintf(settings, sizeof settings, "%s seq=%d%s%s", f->settings, SEQ, *f->training ? " " : "",
             f->training);
    ds_exec_tensor given = {.name = "ids",
                            .dtype = DS_I32,
                            .rank = 2,
                            .dims = {BATCH, SEQ},
                            .n = BATCH * SEQ,
                            .at = ids};
    return run(&text, settings, &given, 1);
}

/* The name in training of a weight of the decoding form: the layers of DeepSeek before the layers
 * with experts have a name of their own there. */
static const char *trained_name(const char *name, char *text, size_t n) {
    if (strncmp(name, "first.", 6) != 0) return name;
    snprintf(text, n, "out.%s", name + 6);
    return text;
}

static const ds_exec_tensor *find_input(const exec_case *c, const char *name) {
    for (uint32_t i = 0; i < c->result->inputs.n; i++)
        if (strcmp(c->result->inputs.at[i].name, name) == 0) return &c->result->inputs.at[i];
    return NULL;
}

/* Gives the decoding form the weights of training that have another name there. */
static uint32_t add_renamed(const form *f, const exec_case *training, char (*names)[64],
                            ds_exec_tensor *given) {
    int dense = 0;
    uint32_t n = 0;
    const char *dense_text = strstr(f->settings, "dense=");
    if (dense_text) dense = atoi(dense_text + strlen("dense="));
    for (uint32_t i = 0; i < training->result->inputs.n; i++) {
        const ds_exec_tensor *w = &training->result->inputs.at[i];
        const char *turn = strchr(w->name, '{');
        if (strncmp(w->name, "out.", 4) != 0 || !turn || atoi(turn + 1) >= dense) continue;
        cr_assert_lt(n, MAX_GIVEN - SEQ);
        snprintf(names[n], sizeof names[n], "first.%s", w->name + 4);
        given[n] = *w;
        given[n].name = names[n];
        n++;
    }
    return n;
}

/* Decodes with `prompt` tokens given and the weights of `training`; `logits`: returns these in
 * place of the tokens. */
static exec_case run_decoding(const form *f, const exec_case *training, const double *ids,
                              int prompt, bool logits) {
    char start[128], settings[512], names[MAX_GIVEN][64];
    double token[SEQ][BATCH];
    ds_exec_tensor given[MAX_GIVEN];
    snprintf(start, sizeof start, "func @%s_decode(", f->func);
    ds_buf text = opened(f, start, "_decode");
    if (logits) {
        put_replaced(&text, start, "} i32[batch@dp, 1] {", "} f32[batch@dp, 1, vocab] {");
        put_replaced(&text, start, "yield %in\n  } : i32[batch, 1]", "yield %logits\n  }");
    }
    for (int t = 0; t < prompt; t++) {
        snprintf(names[t], sizeof names[t], "ids{%d}", t);
        for (int b = 0; b < BATCH; b++) token[t][b] = ids[b * SEQ + t];
        given[t] = (ds_exec_tensor){.name = names[t],
                                    .dtype = DS_I32,
                                    .rank = 2,
                                    .dims = {BATCH, 1},
                                    .n = BATCH,
                                    .at = token[t]};
    }
    snprintf(settings, sizeof settings, "%s seq=%d prompt=%d%s%s", f->settings, SEQ, prompt,
             *f->decoding ? " " : "", f->decoding);
    uint32_t n = (uint32_t)prompt;
    n += add_renamed(f, training, names + prompt, given + prompt);
    return run(&text, settings, given, n);
}

static const double *at_token(const exec_case *decoded, const char *of, int t) {
    char name[32];
    snprintf(name, sizeof name, "%s{%d}", of, t);
    return exec_out(decoded, name);
}

static uint32_t count_weights(const exec_case *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->result->inputs.n; i++)
        n += strncmp(c->result->inputs.at[i].name, "ids", 3) != 0 &&
             strcmp(c->result->inputs.at[i].name, "labels") != 0;
    return n;
}

/* Each weight of the decoding form is a weight of training, of one shape. */
static void expect_same_weights(const exec_case *training, const exec_case *decoded,
                                const char *who) {
    char text[64];
    cr_expect_eq(count_weights(training), count_weights(decoded), "%s: %u weights and %u", who,
                 count_weights(training), count_weights(decoded));
    for (uint32_t i = 0; i < decoded->result->inputs.n; i++) {
        const ds_exec_tensor *w = &decoded->result->inputs.at[i];
        if (strncmp(w->name, "ids{", 4) == 0) continue;
        const ds_exec_tensor *found =
            find_input(training, trained_name(w->name, text, sizeof text));
        cr_expect(found && found->n == w->n, "%s: training has no weight %s", who, w->name);
    }
}

static void some_ids(double *ids, int seed) {
    for (int i = 0; i < BATCH * SEQ; i++) ids[i] = (i * 29 + seed * 17 + i * i * 5) % VOCAB;
}

/* ---- the tests ---- */

Test(models_decode, logits_are_those_of_the_forward_pass_token_by_token) {
    for (int k = 0; k < N_FORMS; k++) {
        double ids[BATCH * SEQ], most = 0, off = 0;
        some_ids(ids, k);
        exec_case training = run_training(&forms[k], ids);
        exec_case decoded = run_decoding(&forms[k], &training, ids, SEQ, true);
        expect_same_weights(&training, &decoded, forms[k].func);
        const double *whole = training.result->outputs.at[0].at;
        for (int t = 0; t < SEQ; t++) {
            const double *one = at_token(&decoded, "tokens", t);
            for (int b = 0; b < BATCH; b++)
                for (int v = 0; v < VOCAB; v++) {
                    double want = whole[(b * SEQ + t) * VOCAB + v];
                    most = fmax(most, fabs(want));
                    off = fmax(off, fabs(one[b * VOCAB + v] - want));
                }
        }
        cr_expect_gt(most, 0.1);
        cr_expect(off <= DS_EXEC_BOUND * most, "%s %s: off by %g of %g", forms[k].func,
                  forms[k].settings, off, most);
        exec_free(&training);
        exec_free(&decoded);
    }
}

/* The likeliest token after (b, t), by the training model. */
static int likeliest(const double *whole, int b, int t) {
    const double *row = whole + (b * SEQ + t) * VOCAB;
    int best = 0;
    for (int v = 1; v < VOCAB; v++)
        if (row[v] > row[best]) best = v;
    return best;
}

Test(models_decode, chosen_tokens_are_the_likeliest_of_the_forward_pass) {
    for (int k = 0; k < N_FORMS; k++) {
        double ids[BATCH * SEQ];
        some_ids(ids, k);
        exec_case weights = run_training(&forms[k], ids);
        exec_case decoded = run_decoding(&forms[k], &weights, ids, PROMPT, false);
        for (int t = 0; t < SEQ; t++)
            for (int b = 0; b < BATCH; b++) {
                double token = at_token(&decoded, "tokens", t)[b];
                if (t < PROMPT) cr_expect_eq(token, ids[b * SEQ + t]);
                ids[b * SEQ + t] = token;
            }
        exec_case training = run_training(&forms[k], ids);
        const double *whole = training.result->outputs.at[0].at;
        for (int t = PROMPT; t < SEQ; t++)
            for (int b = 0; b < BATCH; b++)
                cr_expect_eq((int)ids[b * SEQ + t], likeliest(whole, b, t - 1),
                             "%s: token %d of sequence %d is %d, not %d", forms[k].func, t, b,
                             (int)ids[b * SEQ + t], likeliest(whole, b, t - 1));
        exec_free(&weights);
        exec_free(&training);
        exec_free(&decoded);
    }
}
