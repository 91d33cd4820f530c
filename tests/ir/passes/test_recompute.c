/* What the backward pass computes again, and what is kept in its place: the sets of kept values,
 * their bytes against the published formulas, FLOPs, communication.
 *
 * Korthikanti et al. (arXiv:2205.05198, section 4.1 and 5) count what a layer keeps in 16-bit
 * numbers: 34 s b h + 5 a s^2 b bytes; without the core of attention 34 s b h; its input alone
 * 2 s b h. There 2 s b h and a s^2 b are masks of dropout, one byte an element: here masks are
 * drawn again, so 32 s b h + 4 a s^2 b. */
#include "tests/support/launches.h"

#include "ir/passes/build/count.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { S = 16, B = 4, H = 32, A = 8, LAYERS = 4 };
#define SBH (S * B * H)
#define ASS (A * S * S * B)

static const char BOX[] = "topology @box {\n  device gpu[4]\n  switch hub\n"
                          "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..4\n}\n";

static const char *gpt(const char *recompute, const char *strategy) {
    static char text[2048];
    snprintf(text, sizeof text,
             "dir 1\nparam layers = %d\nimport \"models/gpt.dir\" as g with layers = layers, "
             "hidden = %d, heads = %d, seq = %d, vocab = 64, batch = %d\n%s"
             "scenario { model = @g.gpt, on = @box, train { optimizer = sgd, dtype = f16 }, "
             "strategy { recompute = %s%s } }\n",
             LAYERS, H, A, S, B, BOX, recompute, strategy);
    return text;
}

/* A layer of Megatron's GPT with its attention written out. */
static const char *written_out(const char *recompute) {
    static char text[4096];
    snprintf(
        text, sizeof text,
        "dir 1\nparam layers = %d, s = %d, b = %d, h = %d, a = %d, d = %d\n%s"
        "func @model(%%x: f32[b@dp, s, h]) -> f32[b@dp, s, h] {\n"
        "  %%y = for l in 0..layers carry (%%h: f32[b@dp, s, h] = %%x) {\n"
        "    weight %%g1 : f32[h]\n    weight %%c1 : f32[h]\n"
        "    weight %%wq : f32[h, a@tp, d]\n    weight %%wk : f32[h, a@tp, d]\n"
        "    weight %%wv : f32[h, a@tp, d]\n    weight %%wo : f32[a@tp, d, h]\n"
        "    weight %%g2 : f32[h]\n    weight %%c2 : f32[h]\n"
        "    weight %%w1 : f32[h, 4 * h@tp]\n    weight %%w2 : f32[4 * h@tp, h]\n"
        "    %%ln1 = layer_norm(%%h, %%g1, %%c1)\n"
        "    %%q = einsum(%%ln1, %%wq) {rule = \"b s h, h n d -> b s n d\"}\n"
        "    %%k = einsum(%%ln1, %%wk) {rule = \"b s h, h n d -> b s n d\"}\n"
        "    %%v = einsum(%%ln1, %%wv) {rule = \"b s h, h n d -> b s n d\"}\n"
        "    %%score = einsum(%%q, %%k) {rule = \"b s n d, b t n d -> b n s t\"}\n"
        "    %%scaled = scale(%%score) {factor = 0.5}\n"
        "    %%prob = softmax(%%scaled)\n"
        "    %%prob_d = dropout(%%prob) {p = 0.1}\n"
        "    %%core = einsum(%%prob_d, %%v) {rule = \"b n s t, b t n d -> b s n d\"}\n"
        "    %%proj = einsum(%%core, %%wo) {rule = \"b s n d, n d h -> b s h\"}\n"
        "    %%proj_d = dropout(%%proj) {p = 0.1}\n"
        "    %%mid = add(%%h, %%proj_d)\n"
        "    %%ln2 = layer_norm(%%mid, %%g2, %%c2)\n"
        "    %%fc1 = matmul(%%ln2, %%w1)\n"
        "    %%act = gelu(%%fc1)\n"
        "    %%fc2 = matmul(%%act, %%w2)\n"
        "    %%fc2_d = dropout(%%fc2) {p = 0.1}\n"
        "    %%out = add(%%mid, %%fc2_d)\n"
        "    yield %%out\n  }\n  return %%y\n}\n"
        "scenario { model = @model, on = @box, train { loss = mse, optimizer = sgd, dtype = f16 }, "
        "strategy { recompute = %s } }\n",
        LAYERS, S, B, H, A, H / A, BOX, recompute);
    return text;
}

static void make(step_case *c, const char *text, const char *settings) {
    step_make(c, text, settings, DS_PASS_RECOMPUTE);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text);
    free(step_text(c)); /* it parses, and prints as itself */
}

/* ---- what is kept ---- */

static double bytes_of(const step_case *c, const ds_type *type) {
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    double bytes = (double)ds_dtype_bits(type->dtype) / 8;
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t size;
        cr_assert_eq(ds_expr_eval_int(&env, type->dims[d].size, DS_NOWHERE, &size, NULL), DS_OK);
        bytes *= (double)size;
    }
    return bytes;
}

/* Names and bytes a turn of what the step's first loop, the forward one, keeps. */
static double kept(const step_case *c, char *names, size_t n) {
    const ds_func *func = c->step->func;
    const ds_op *loop = func->body.ops[0];
    double bytes = 0;
    for (uint32_t i = 0; loop->code != DS_OP_FOR; i++) loop = func->body.ops[i];
    names[0] = '\0';
    for (uint32_t i = loop->n_args; i < loop->n_out; i++) {
        const ds_value_info *info = ds_value_at(func, loop->out[i]);
        snprintf(names + strlen(names), n - strlen(names), " %s", info->name);
        bytes += bytes_of(c, info->type);
    }
    return bytes;
}

static void expect_kept(const char *text, const char *names, double bytes) {
    char found[512];
    step_case c;
    make(&c, text, NULL);
    double is = kept(&c, found, sizeof found);
    cr_expect_str_eq(found, names);
    cr_expect_float_eq(is, bytes, 0, "%g bytes a layer, not %g:%s", is, bytes, found);
    step_free(&c);
}

static double lse_bytes(const char *text) {
    step_case c;
    make(&c, text, NULL);
    const ds_op *loop = step_find(&c, "core.lse.kept");
    double bytes = 0;
    for (uint32_t i = 0; loop && i < loop->n_out; i++) {
        const ds_value_info *info = ds_value_at(c.step->func, loop->out[i]);
        if (strcmp(info->name, "core.lse.kept") == 0) bytes = bytes_of(&c, info->type);
    }
    step_free(&c);
    return bytes;
}

/* The published formulas but for the masks. */
Test(recompute, written_out_attention_keeps_what_the_formulas_say) {
    expect_kept(written_out("[\"fc2\"]"), /* nobody reads it again: all is kept, as without */
                " act.kept fc1.kept ln2.kept mid.kept core.kept v.kept prob_d.kept prob.kept "
                "k.kept q.kept ln1.kept h.kept",
                32 * SBH + 4 * ASS);
    expect_kept(written_out("selective"),
                " act.kept fc1.kept ln2.kept mid.kept core.kept v.kept q.kept k.kept ln1.kept "
                "h.kept",
                32 * SBH);
    expect_kept(written_out("full"), " h.kept", 2 * SBH);
    expect_kept(written_out("\"every:1\""), " h.kept", 2 * SBH);
}

Test(recompute, fused_attention_keeps_no_scores) {
    double lse = lse_bytes(gpt("[\"fc2\"]", ""));
    cr_expect_float_eq(lse, 4 * A * S * B, 0, "a number in f32 a row and head: %g", lse);
    expect_kept(gpt("[\"fc2\"]", ""),
                " act.kept fc1_b.kept ln2.kept mid.kept core.kept q.kept k.kept v.kept "
                "core.lse.kept ln1.kept h.kept",
                32 * SBH + lse);
    expect_kept(gpt("selective", ""),
                " act.kept fc1_b.kept ln2.kept mid.kept q.kept k.kept v.kept ln1.kept h.kept",
                30 * SBH);
    expect_kept(gpt("full", ""), " h.kept", 2 * SBH);
    expect_kept(gpt("[\"layer[*].act\", \"ln1\"]", ""),
                " fc1_b.kept ln2.kept mid.kept core.kept q.kept k.kept v.kept core.lse.kept h.kept",
                22 * SBH + lse);
}

/* Of a block its first input is kept, and then, one block at a time, all of its turns. */
Test(recompute, blocks_keep_their_first_input) {
    char names[512];
    for (int k = 2; k <= LAYERS; k += 2) {
        char knob[24];
        step_case c;
        snprintf(knob, sizeof knob, "\"every:%d\"", k);
        make(&c, gpt(knob, ""), NULL);
        cr_expect_float_eq(kept(&c, names, sizeof names), 2 * SBH, 0);
        cr_expect_str_eq(names, " h.block.kept");
        const ds_op *again = step_find(&c, "act.again.kept");
        cr_assert_not_null(again);
        int64_t turns;
        ds_env env = ds_binding_env(&c.step->binding, NULL);
        cr_assert_eq(ds_expr_eval_int(&env, again->hi, DS_NOWHERE, &turns, NULL), DS_OK);
        cr_expect_eq(turns, k);
        step_free(&c);
    }
}

/* Results stay in their places, and weights are the arguments that they were. */
Test(recompute, the_step_is_the_same_from_outside) {
    step_case none, full;
    make(&full, gpt("full", ""), NULL);
    step_make(&none, gpt("none", ""), NULL, DS_PASS_OPTIMIZER);
    cr_assert_eq(full.step->weights.n, none.step->weights.n);
    cr_assert_eq(full.step->func->n_results, none.step->func->n_results);
    for (uint32_t i = 0; i < none.step->weights.n; i++) {
        const ds_step_weight *a = &none.step->weights.at[i], *b = &full.step->weights.at[i];
        cr_expect_str_eq(ds_value_at(full.step->func, b->arg)->name, a->name);
        cr_expect_eq(a->new_result, b->new_result);
        cr_expect_str_eq(ds_value_at(full.step->func, b->master)->name,
                         ds_value_at(none.step->func, a->master)->name);
    }
    step_free(&none);
    step_free(&full);
}

/* ---- how much is done again ---- */

static ds_model_counts counts(const char *text, const char *settings, ds_pass_id last) {
    step_case c;
    ds_model_counts n;
    ds_error err = {0};
    step_make(&c, text, settings, last);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_assert_eq(ds_model_count(&c.step->binding, c.step->func, &n, &err), DS_OK, "%s",
                 err.message);
    step_free(&c);
    return n;
}

static int64_t flop_again(const char *text) {
    return (int64_t)(counts(text, NULL, DS_PASS_RECOMPUTE).flop -
                     counts(text, NULL, DS_PASS_OPTIMIZER).flop);
}

Test(recompute, a_layer_runs_once_more) {
    const char *const knobs[] = {"full", "\"every:1\"", "\"every:2\"", "\"every:4\""};
    int64_t layer = (int64_t)counts(gpt("none", ""), "layers=3", DS_PASS_LOWER).flop -
                    (int64_t)counts(gpt("none", ""), "layers=2", DS_PASS_LOWER).flop;
    for (uint32_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        cr_expect_eq(flop_again(gpt(knobs[i], "")), LAYERS * layer, "%s", knobs[i]);
        int64_t products = (int64_t)counts(gpt(knobs[i], ""), NULL, DS_PASS_RECOMPUTE).matmul_flop -
                           (int64_t)counts(gpt(knobs[i], ""), NULL, DS_PASS_OPTIMIZER).matmul_flop;
        /* Megatron's 24 b s h^2 + 4 b s^2 h, of which causal attention does half */
        cr_expect_eq(products, LAYERS * (24ll * SBH * H + 2ll * SBH * S), "%s", knobs[i]);
    }
}

Test(recompute, the_core_alone_runs_once_more) {
    const char *text = gpt("selective", "");
    int64_t products = (int64_t)counts(text, NULL, DS_PASS_RECOMPUTE).matmul_flop -
                       (int64_t)counts(text, NULL, DS_PASS_OPTIMIZER).matmul_flop;
    cr_expect_eq(products, LAYERS * 2ll * SBH * S);
    text = written_out("selective");
    products = (int64_t)counts(text, NULL, DS_PASS_RECOMPUTE).matmul_flop -
               (int64_t)counts(text, NULL, DS_PASS_OPTIMIZER).matmul_flop;
    cr_expect_eq(products, LAYERS * 2ll * SBH * S, "the scores; nobody needs their product with v");
}

/* A value is made once for all that read it in a turn: four read fc1_b, act or ln2. */
Test(recompute, copies_are_shared) {
    const char *text = written_out("[\"ln2\", \"fc1\", \"act\"]");
    int64_t products = (int64_t)counts(text, NULL, DS_PASS_RECOMPUTE).matmul_flop -
                       (int64_t)counts(text, NULL, DS_PASS_OPTIMIZER).matmul_flop;
    cr_expect_eq(products, LAYERS * 8ll * SBH * H);
    step_case c;
    make(&c, text, NULL);
    char *printed = step_text(&c);
    uint32_t n = 0;
    for (const char *at = printed; (at = strstr(at, ".again = ")); at++) n++;
    cr_expect_eq(n, 3);
    free(printed);
    step_free(&c);
}

/* ---- communication ---- */

/* The two all_reduces of a layer's forward pass are repeated, as Megatron does. */
Test(recompute, all_reduces_are_repeated) {
    const char *const knobs[] = {"none", "selective", "full", "\"every:1\""};
    const int64_t n[] = {4, 4, 6, 6};
    for (uint32_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        launches layer = launches_a_layer(gpt(knobs[i], ", tp = 4"), "", "tp");
        cr_expect_eq(layer.all_reduce, n[i], "%s: %lld", knobs[i], (long long)layer.all_reduce);
        cr_expect_eq(layer.all_gather + layer.reduce_scatter + layer.other, 0);
    }
    launches two = launches_in(gpt("\"every:2\"", ", tp = 4"), "layers=4", "tp");
    launches one = launches_in(gpt("\"every:2\"", ", tp = 4"), "layers=2", "tp");
    cr_expect_eq(two.all_reduce - one.all_reduce, 2 * 6);
}

/* With sequence parallelism the forward pairs are repeated; what they gather serves the backward
 * pass of the turn, which gathers it anew without recomputation. */
Test(recompute, sequence_parallel_pairs_are_repeated) {
    launches none = launches_a_layer(gpt("none", ", tp = 4, sp = true"), "", "tp");
    launches full = launches_a_layer(gpt("full", ", tp = 4, sp = true"), "", "tp");
    cr_expect_eq(none.all_gather, 2 + 2 + 2);
    cr_expect_eq(none.reduce_scatter, 2 + 2);
    cr_expect_eq(full.all_gather, 2 + 2 + 2);
    cr_expect_eq(full.reduce_scatter, 2 + 2 + 2);
    cr_expect_eq(full.all_reduce, none.all_reduce);
}

/* A turn of the backward pass gathers each weight once, for what runs again and for the gradients:
 * all twelve, also the biases, which gradients alone have no need of. */
Test(recompute, zero_3_gathers_a_weight_once_a_turn) {
    launches none = launches_a_layer(gpt("none", ", dp = 4, zero = 3"), "", "dp");
    launches full = launches_a_layer(gpt("full", ", dp = 4, zero = 3"), "", "dp");
    cr_expect_leq(none.all_gather, 12 + 8);
    cr_expect_eq(full.all_gather, 12 + 12);
    cr_expect_eq(full.reduce_scatter, none.reduce_scatter);
}

/* ---- outside of loops ---- */

static const char CALLS[] =
    "dir 1\n"
    "func @block(%%x: f32[8@dp, 16]) -> f32[8@dp, 16] {\n"
    "  weight %%w : f32[16, 16]\n  weight %%v : f32[16, 16]\n"
    "  %%a = matmul(%%x, %%w)\n  %%b = tanh(%%a)\n  %%c = matmul(%%b, %%v)\n  %%d = tanh(%%c)\n"
    "  return %%d\n}\n"
    "func @net(%%x: f32[8@dp, 16]) -> f32[8@dp, 16] {\n"
    "  %%one = call @block(%%x)\n  %%two = call @block(%%one)\n  %%three = tanh(%%two)\n"
    "  return %%three\n}\n"
    "topology @box { device gpu[4] switch hub link gpu[i] -- hub : 1 GB/s, 1 us for i in 0..4 }\n"
    "scenario { model = @net, on = @box, train { loss = mse, optimizer = sgd }, "
    "strategy { recompute = %s } }\n";

static const char *calls(const char *recompute) {
    static char text[1400];
    snprintf(text, sizeof text, CALLS, recompute);
    return text;
}

/* Of one tensor of 8 by 16. */
static int64_t flop_of_tanh(void) {
    return flop_again(calls("[\"one.b\"]"));
}

/* The ops of a call run again before the first that reads one of them; its result is kept. */
Test(recompute, calls_are_segments) {
    step_case c;
    make(&c, calls("full"), NULL);
    const ds_func *func = c.step->func;
    const ds_op *b = step_find(&c, "one.b.again"), *again = step_find(&c, "two.b.again");
    cr_assert(b && again && step_find(&c, "one.a.again") && step_find(&c, "two.c.again"));
    cr_expect_null(step_find(&c, "three.again"));
    const ds_op *first = step_find(&c, "two.a.again");
    cr_expect_str_eq(ds_value_at(func, first->in[0].value)->name, "one.d", "a call's result");
    uint32_t at_one = 0, at_two = 0, last_of_two = 0;
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        const ds_op *op = func->body.ops[i];
        if (op == b) at_one = i;
        if (op == again) at_two = i;
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k].value.i == again->out[0].i) last_of_two = i;
    }
    cr_expect(at_two < last_of_two && last_of_two < at_one, "one call after the other");
    step_free(&c);
    int64_t forward = (int64_t)counts(calls("none"), NULL, DS_PASS_LOWER).flop;
    int64_t block = 2 * (2 * 8 * 16 * 16) + 2 * flop_of_tanh();
    cr_expect_eq(flop_again(calls("full")), 2 * block);
    cr_expect_lt(2 * block, forward, "the last tanh and the loss run once");
}

Test(recompute, single_calls_by_path) {
    step_case c;
    make(&c, calls("[\"one.*\"]"), NULL);
    cr_expect_not_null(step_find(&c, "one.b.again"));
    cr_expect_null(step_find(&c, "two.b.again"));
    step_free(&c);
}

/* A turn that is named is written out, and runs again alone. */
Test(recompute, one_turn_by_path) {
    step_case c;
    make(&c, gpt("[\"layer[1].act\"]", ""), NULL);
    char *text = step_text(&c);
    cr_expect_not_null(strstr(text, "layer[1].act.again"));
    cr_expect_null(strstr(text, "layer[0].act.again"));
    free(text);
    step_free(&c);
}

/* ---- what is refused ---- */

static void expect_refused(const char *text, ds_status code, const char *message) {
    step_case c;
    step_make(&c, text, NULL, DS_PASS_RECOMPUTE);
    cr_expect_eq(c.status, code, "%s: %s", ds_status_name(c.status), c.err.message);
    cr_expect(strstr(c.err.message, message), "'%s' is not in: %s", message, c.err.message);
    step_free(&c);
}

Test(recompute, refusals) {
    expect_refused(calls("selective"), DS_ERR_UNSUPPORTED, "no attention");
    expect_refused(gpt("\"every:3\"", ""), DS_ERR_UNSUPPORTED, "4 turns, which 3 does not divide");
    expect_refused(gpt("\"every:0\"", ""), DS_ERR_VALUE, "every:K");
    expect_refused(gpt("\"every:2x\"", ""), DS_ERR_VALUE, "every:K");
    expect_refused(gpt("\"every:99999999999999999999\"", ""), DS_ERR_VALUE, "every:K");
    expect_refused(gpt("selectve", ""), DS_ERR_VALUE, "selective");
    expect_refused(gpt("[\"fc9\"]", ""), DS_ERR_NAME, "path of no operation");
    expect_refused("dir 1\nfunc @f(%x: f32[4]) -> f32[4] {\n  weight %w : f32[4]\n"
                   "  %y = mul(%x, %w)\n  return %y\n}\ntopology @box { device d }\n"
                   "scenario { model = @f, on = @box, train { loss = mse, optimizer = sgd }, "
                   "strategy { recompute = full } }\n",
                   DS_ERR_UNSUPPORTED, "neither loops nor calls");
}

/* The router's softmax is none of attention's. */
Test(recompute, a_router_is_no_attention) {
    step_case c;
    make(&c,
         "dir 1\nimport \"models/mixtral.dir\" as m with layers = 2, hidden = 16, heads = 4, "
         "kv_heads = 2, ffn = 32, experts = 4, chunks = 2, seq = 8, vocab = 64, batch = 2\n"
         "topology @box { device d }\nscenario { model = @m.mixtral, on = @box, "
         "train { optimizer = sgd }, strategy { recompute = selective } }\n",
         NULL);
    char *text = step_text(&c);
    cr_expect_not_null(strstr(text, ".again = attention("));
    cr_expect_null(strstr(text, ".again = softmax("));
    free(text);
    step_free(&c);
}
