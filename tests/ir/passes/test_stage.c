/* The stage pass on models of the catalogue: which chunk has which weights, what they are called,
 * and what the loops become. Cuts are done by hand. */
#include "tests/support/stage.h"

#include "ir/passes/build/path.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char gpt[] = "layers=5 hidden=8 heads=2 seq=4 vocab=11 batch=4";
static const char llama[] = "layers=4 hidden=8 heads=4 kv_heads=2 ffn=6 vocab=11 seq=4 batch=2";
static const char t5[] =
    "layers=3 hidden=8 heads=2 head_dim=4 ffn=6 seq=4 target_seq=3 vocab=11 batch=4";

static int64_t number(const step_case *c, ds_expr e) {
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    int64_t value = 0;
    cr_assert_eq(ds_expr_eval_int(&env, e, DS_NOWHERE, &value, NULL), DS_OK);
    return value;
}

/* The weight `base`.c`chunk`: its entry, its argument, and the elements lo … hi − 1 of a family; hi
 * = 0: a single one. `tied`: the weight that is the same one of the model. */
static void expect_weight(const step_case *c, const char *name, const char *base, uint32_t chunk,
                          int64_t lo, int64_t hi, const char *tied) {
    const ds_step_weight *w = stage_weight(c, name);
    cr_assert_not_null(w, "there is no %s", name);
    const ds_value_info *info = ds_value_at(c->step->func, w->arg);
    const ds_attr *input = ds_attr_find(info->attrs, info->n_attrs, "input");
    cr_expect_str_eq(info->name, name);
    cr_expect_str_eq(w->base, base);
    cr_expect_eq(w->chunk, chunk, "%s is in chunk %u", name, w->chunk);
    cr_expect_str_eq(c->step->weights.at[w->tied].name, tied, "%s is %s", name,
                     c->step->weights.at[w->tied].name);
    cr_assert_not_null(input, "%s has no input", name);
    cr_expect_str_eq(ds_attr_text(&c->step->unit->exprs, input), base);
    cr_assert_eq(info->n_binders, hi > 0, "%s: %u indices", name, info->n_binders);
    if (!hi) return;
    cr_expect_eq(number(c, info->binders[0].lo), lo, "%s", name);
    cr_expect_eq(number(c, info->binders[0].hi), hi, "%s", name);
}

static void expect_turns(const char *model, const char *settings, const char *strategy,
                         const char *turns) {
    step_case c;
    stage_make(&c, model, settings, strategy);
    cr_assert_eq(c.status, DS_OK, "%s: %s", strategy, c.err.message);
    char *got = stage_turns(&c);
    cr_expect_str_eq(got, turns, "%s, %s: %s, not %s", model, strategy, got, turns);
    free(got);
    free(step_text(&c));
    step_free(&c);
}

/* 5 layers over 2 chunks: 3 and 2. The embedding's table is the head's too. */
Test(stage, gpt) {
    step_case c;
    stage_make(&c, "gpt", gpt, "pp = 2");
    expect_weight(&c, "wte.c0", "wte", 0, 0, 0, "wte.c0");
    expect_weight(&c, "wte.c1", "wte", 1, 0, 0, "wte.c0");
    expect_weight(&c, "wpe.c0", "wpe", 0, 0, 0, "wpe.c0");
    expect_weight(&c, "lnf_g.c1", "lnf_g", 1, 0, 0, "lnf_g.c1");
    expect_weight(&c, "lnf_b.c1", "lnf_b", 1, 0, 0, "lnf_b.c1");
    expect_weight(&c, "w_fc1.c0", "w_fc1", 0, 0, 3, "w_fc1.c0");
    expect_weight(&c, "w_fc1.c1", "w_fc1", 1, 3, 5, "w_fc1.c1");
    cr_expect_eq(c.step->weights.n, 2 + 3 + 2 * 12, "%u weights", c.step->weights.n);
    cr_expect_eq(c.step->func->n_args, c.step->weights.n + 2);
    cr_expect_eq(c.step->schedule.n_chunks, 2);
    cr_expect_eq(c.step->schedule.n_ranks, 2);
    step_free(&c);
}

/* Two chunks on each of two stages: chunk 3, the last, is on the second one. */
Test(stage, virtual_stages) {
    step_case c;
    stage_make(&c, "gpt", gpt,
               "pp = 2, virtual_stages = 2, microbatches = 2, schedule = \"interleaved\"");
    char *turns = stage_turns(&c);
    cr_expect_str_eq(turns, "0 1 1 2 3", "%s", turns);
    expect_weight(&c, "wte.c3", "wte", 3, 0, 0, "wte.c0");
    cr_expect_eq(c.step->schedule.n_chunks, 4);
    cr_expect_eq(c.step->schedule.stage[3], 1);
    free(turns);
    step_free(&c);
}

/* Without virtual_stages a schedule has the chunks that it usually has. */
Test(stage, usual_chunks) {
    expect_turns("gpt", gpt, "pp = 2, microbatches = 2, schedule = \"interleaved\"", "0 1 1 2 3");
    expect_turns("gpt", gpt,
                 "pp = 2, microbatches = 2, schedule = \"interleaved\", virtual_stages = 1",
                 "0 0 0 1 1");
    expect_turns("gpt", gpt, "pp = 2, microbatches = 2, schedule = \"zb-v\"", "0 1 1 2 3");
    expect_turns("gpt", gpt, "pp = 2, microbatches = 4, schedule = \"chimera\"", "0 0 0 1 1");
}

/* A head of its own: nothing is tied. */
Test(stage, llama) {
    step_case c;
    stage_make(&c, "llama", llama, "pp = 4");
    expect_weight(&c, "w_embed.c0", "w_embed", 0, 0, 0, "w_embed.c0");
    expect_weight(&c, "w_head.c3", "w_head", 3, 0, 0, "w_head.c3");
    expect_weight(&c, "norm.c3", "norm", 3, 0, 0, "norm.c3");
    for (uint32_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "w_up.c%u", i);
        expect_weight(&c, name, "w_up", i, i, i + 1, name);
    }
    cr_expect_eq(c.step->weights.n, 3 + 4 * 9, "%u weights", c.step->weights.n);
    step_free(&c);
}

Test(stage, mlp) {
    step_case c;
    stage_make(&c, "mlp", "layers=6 width=4 batch=2", "pp = 3");
    expect_weight(&c, "w.c0", "w", 0, 0, 2, "w.c0");
    expect_weight(&c, "w.c1", "w", 1, 2, 4, "w.c1");
    expect_weight(&c, "w.c2", "w", 2, 4, 6, "w.c2");
    cr_expect_eq(c.step->weights.n, 3);
    step_free(&c);
}

/* The encoder's three turns and the decoder's over four chunks: 1 2 | 2 1 with the middle ones
 * larger. The decoder's embedding stands before its loop, so in chunk 2; the table is read there,
 * in chunk 0 and by the head. */
Test(stage, t5) {
    step_case c;
    stage_make(&c, "t5", t5, "pp = 4");
    char *turns = stage_turns(&c);
    cr_expect_str_eq(turns, "0 1 1 2 2 3", "%s", turns);
    expect_weight(&c, "w_embed.c0", "w_embed", 0, 0, 0, "w_embed.c0");
    expect_weight(&c, "w_embed.c2", "w_embed", 2, 0, 0, "w_embed.c0");
    expect_weight(&c, "w_embed.c3", "w_embed", 3, 0, 0, "w_embed.c0");
    cr_expect_null(stage_weight(&c, "w_embed.c1"));
    expect_weight(&c, "w_distance.c0", "w_distance", 0, 0, 0, "w_distance.c0");
    expect_weight(&c, "norm.c2", "norm", 2, 0, 0, "norm.c2");
    expect_weight(&c, "target_norm.c3", "target_norm", 3, 0, 0, "target_norm.c3");
    free(turns);
    step_free(&c);
}

/* Between its loops nothing of a loop changes: neither names nor bounds. */
Test(stage, whole_loops_stay) {
    step_case c;
    stage_make(&c, "t5", t5, "pp = 2");
    char *text = step_text(&c);
    cr_expect(strstr(text, "%enc = for encoder in 0..layers carry (%h:"));
    cr_expect(strstr(text, "%dec = for decoder in 0..layers carry (%h_2:"));
    cr_expect(strstr(text, "%layer.w_fc1.c0{encoder: 0..layers}: f32[hidden, ffn@tp] {role"));
    cr_expect_null(strstr(text, "%enc.c"));
    expect_weight(&c, "layer.w_fc1.c0", "layer.w_fc1", 0, 0, 3, "layer.w_fc1.c0");
    free(text);
    step_free(&c);
}

/* Blocks 1 … of ResNet's four stages are turns: 2 + 3 + 5 + 2. The first blocks stand between the
 * loops, and so with the one behind them. */
Test(stage, resnet_by_layers) {
    expect_turns("resnet", "batch=2 image=32 classes=5 width=2", "pp = 4, schedule = \"gpipe\"",
                 "0 0 0 1 1 1 2 2 2 3 3 3");
    step_case c;
    stage_make(&c, "resnet", "batch=2 image=32 classes=5 width=2", "pp = 2, stage_layers = [5, 7]");
    cr_expect_not_null(stage_weight(&c, "stage3.block0.short.w.c1"));
    cr_expect_not_null(stage_weight(&c, "stage2.block0.short.w.c0"));
    step_free(&c);
}

/* ---- what a cut loop becomes ---- */

static const char loops[] = "dir 1\n"
                            "param n = 5, width = 4, batch = 2\n"
                            "func @net(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                            "  weight %shared : f32[width]\n"
                            "  %y = for l in 1..n carry (%h = %x) {\n"
                            "    weight %w : f32[width, width]\n"
                            "    %z = matmul(%h, %w)\n"
                            "    %d = dropout(%z) {p = 0.5}\n"
                            "    %b = mul(%d, %shared)\n"
                            "    %c = scale(%b) {factor = 1.0 + l}\n"
                            "    yield %c\n"
                            "  }\n"
                            "  return %y\n"
                            "}\n"
                            "scenario { model = @net, train { loss = mse, optimizer = sgd }\n"
                            "  strategy { pp = 2 } }\n";

Test(stage, loops_are_cut) {
    step_case c;
    step_make(&c, loops, NULL, DS_PASS_STAGE);
    char *text = step_text(&c);
    static const char *const lines[] = {
        "  %shared.c0: f32[width] {role = weight, input = \"shared\"},\n"
        "  %shared.c1: f32[width] {role = weight, input = \"shared\"},\n"
        "  %w.c0{l: 1..3}: f32[width, width] {role = weight, input = \"w\"},\n"
        "  %w.c1{l: 3..5}: f32[width, width] {role = weight, input = \"w\"},\n",
        "  %y.c0 = for l in 1..3 carry (%h: f32[batch, width] = %x) {\n"
        "    %z = matmul(%h, %w.c0{l}) : f32[batch, width]\n"
        "    %d = dropout(%z) {p = 0.5, key = \"l.d\", turn = [l]} : f32[batch, width]\n"
        "    %b = mul(%d, %shared.c0) : f32[batch, width]\n"
        "    %c = scale(%b) {factor = 1.0 + l} : f32[batch, width]\n"
        "    yield %c\n"
        "  } : f32[batch, width]\n"
        "  %y = for l in 3..5 carry (%h.c1: f32[batch, width] = %y.c0) {\n"
        "    %z.c1 = matmul(%h.c1, %w.c1{l}) {name = \"z\"} : f32[batch, width]\n"
        "    %d.c1 = dropout(%z.c1) {p = 0.5, key = \"l.d\", turn = [l], name = \"d\"} : "
        "f32[batch, width]\n"
        "    %b.c1 = mul(%d.c1, %shared.c1) {name = \"b\"} : f32[batch, width]\n"
        "    %c.c1 = scale(%b.c1) {factor = 1.0 + l, name = \"c\"} : f32[batch, width]\n"
        "    yield %c.c1\n"
        "  } : f32[batch, width]\n"
        "  %loss = mse(%y, %target) : f32[]\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(strstr(text, lines[i]), "%s\nis not in\n%s", lines[i], text);
    free(text);
    step_free(&c);
}

/* Paths are those of the uncut model. */
Test(stage, paths_stay) {
    step_case c;
    step_make(&c, loops, NULL, DS_PASS_STAGE);
    const ds_op *op = step_find(&c, "z.c1"), *loop = step_find(&c, "y");
    cr_assert_not_null(op);
    cr_expect_str_eq(ds_path_op_name(c.step->func, op), "z");
    cr_expect_str_eq(ds_path_loop_name(c.step->func, loop), "l");
    step_free(&c);
}

/* Weights of one name in two loops, and a family of two indices of which the outer one is cut. */
Test(stage, nested_loops) {
    static const char text[] = "dir 1\n"
                               "func @net(%x: f32[2@dp, 3]) -> f32[2, 3] {\n"
                               "  %y = for l in 0..2 carry (%h = %x) {\n"
                               "    weight %w : f32[3, 3]\n"
                               "    %z = matmul(%h, %w)\n"
                               "    yield %z\n"
                               "  }\n"
                               "  %v = for l in 0..4 carry (%h = %y) {\n"
                               "    %i = for k in 0..l + 1 carry (%g = %h) {\n"
                               "      weight %w : f32[3, 3]\n"
                               "      %z = matmul(%g, %w)\n"
                               "      yield %z\n"
                               "    }\n"
                               "    yield %i\n"
                               "  }\n"
                               "  return %v\n"
                               "}\n"
                               "scenario { model = @net, train { loss = mse, optimizer = sgd }\n"
                               "  strategy { pp = 3 } }\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_STAGE);
    cr_assert_eq(c.status, DS_OK);
    char *turns = stage_turns(&c);
    cr_expect_str_eq(turns, "0 0 1 1 2 2");
    const ds_step_weight *w = stage_weight(&c, "w_2.c2");
    cr_assert_not_null(w);
    const ds_value_info *info = ds_value_at(c.step->func, w->arg);
    const ds_attr *input = ds_attr_find(info->attrs, info->n_attrs, "input");
    cr_expect_str_eq(w->base, "w_2", "as the results of the uncut step are called");
    cr_expect_str_eq(ds_attr_text(&c.step->unit->exprs, input), "w", "as the model calls it");
    cr_assert_eq(info->n_binders, 2);
    cr_expect_eq(number(&c, info->binders[0].lo), 2);
    cr_expect_eq(number(&c, info->binders[0].hi), 4);
    free(turns);
    free(step_text(&c));
    step_free(&c);
}

/* A carry that grows from turn to turn: what a part leaves is as large as its own last turn makes
 * it. */
Test(stage, carries_that_grow) {
    static const char text[] = "dir 1\nparam n = 4\n"
                               "func @net(%x: f32[2@dp, 3]) -> f32[2, 3 + n] {\n"
                               "  %y = for l in 0..n carry (%h: f32[2@dp, 3 + l] = %x) {\n"
                               "    weight %w : f32[3 + l, 4 + l]\n"
                               "    %z = matmul(%h, %w)\n"
                               "    yield %z\n"
                               "  } : f32[2, 3 + n]\n"
                               "  return %y\n"
                               "}\n"
                               "scenario { model = @net, train { loss = mse, optimizer = sgd }\n"
                               "  strategy { pp = 2 } }\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_STAGE);
    cr_assert_eq(c.status, DS_OK);
    const ds_op *part = step_find(&c, "y.c0");
    const ds_type *type = ds_value_at(c.step->func, part->out[0])->type;
    cr_expect_eq(number(&c, type->dims[1].size), 5);
    free(step_text(&c));
    ds_exec_result *result = step_run(&c, 1, NULL, 0);
    cr_expect_eq(result->outputs.n, 1);
    ds_exec_result_free(result);
    step_free(&c);
}

/* A model's weight that nobody reads goes with chunk 0; one that is a result stays one. */
Test(stage, weights_that_no_op_reads) {
    static const char text[] = "dir 1\n"
                               "func @net(%x: f32[2@dp, 3]) -> (f32[], f32[3]) {\n"
                               "  weight %idle : f32[3]\n"
                               "  weight %bias : f32[3]\n"
                               "  %y = for l in 0..2 carry (%h = %x) {\n"
                               "    weight %w : f32[3, 3]\n"
                               "    %z = matmul(%h, %w)\n"
                               "    yield %z\n"
                               "  }\n"
                               "  %b = bias(%y, %bias)\n"
                               "  %loss = reduce_mean(%b) {dims = [0, 1]}\n"
                               "  return %loss, %bias\n"
                               "}\n"
                               "scenario { model = @net, train { optimizer = sgd }\n"
                               "  strategy { pp = 2 } }\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_STAGE);
    cr_assert_eq(c.status, DS_OK);
    expect_weight(&c, "idle.c0", "idle", 0, 0, 0, "idle.c0");
    expect_weight(&c, "bias.c1", "bias", 1, 0, 0, "bias.c1");
    free(step_text(&c));
    step_free(&c);
}

/* ---- indices that are not the turn's ---- */

/* Makes the loop's matmul read %w{index} of the family over 0..n. */
static ds_status read_other(step_case *c, ds_expr (*index)(ds_exprs *, ds_expr l), int64_t n,
                            const char *strategy) {
    char *text = stage_text("mlp", "mse", strategy), settings[64];
    snprintf(settings, sizeof settings, "layers=%lld width=2 batch=2", (long long)n);
    step_make(c, text, settings, DS_PASS_LOWER);
    free(text);
    const ds_op *op = step_find(c, "z");
    cr_assert_eq(op->in[1].n_index, 1);
    op->in[1].index[0] = index(&c->step->unit->exprs, op->in[1].index[0]);
    return ds_model_step_run(c->step, DS_PASS_STAGE, &c->err);
}

static ds_expr backwards(ds_exprs *exprs, ds_expr l) {
    return ds_expr_binary(exprs, DS_EXPR_SUB, ds_expr_int(exprs, 4), l);
}

static ds_expr always_3(ds_exprs *exprs, ds_expr l) {
    (void)l;
    return ds_expr_int(exprs, 3);
}

/* 0 2 4 1 3 */
static ds_expr doubled(ds_exprs *exprs, ds_expr l) {
    ds_expr twice = ds_expr_binary(exprs, DS_EXPR_MUL, ds_expr_int(exprs, 2), l);
    return ds_expr_binary(exprs, DS_EXPR_MOD, twice, ds_expr_int(exprs, 5));
}

/* Turn l reads element 4 - l: chunk 0, with turns 0 … 2, has the elements 2 … 4. */
Test(stage, families_that_are_read_backwards) {
    step_case c;
    cr_assert_eq(read_other(&c, backwards, 5, "pp = 2"), DS_OK, "%s", c.err.message);
    expect_weight(&c, "w.c0", "w", 0, 2, 5, "w.c0");
    expect_weight(&c, "w.c1", "w", 1, 0, 2, "w.c1");
    step_free(&c);
}

Test(stage, elements_that_two_chunks_read_are_refused) {
    step_case c;
    cr_assert_eq(read_other(&c, always_3, 5, "pp = 2"), DS_ERR_UNSUPPORTED);
    cr_expect(strstr(c.err.message, "chunks 0 and 1 of the pipeline both read %w{3}"), "%s",
              c.err.message);
    step_free(&c);
}

Test(stage, elements_that_are_no_neighbours_are_refused) {
    step_case c;
    cr_assert_eq(read_other(&c, doubled, 5, "pp = 2"), DS_ERR_UNSUPPORTED);
    cr_expect(strstr(c.err.message, "no neighbours"), "%s", c.err.message);
    step_free(&c);
}
