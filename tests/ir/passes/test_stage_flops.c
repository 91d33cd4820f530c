/* balance = flops against brute force: every way to cut, FLOPs of products in closed form or by the
 * op table. */
#include "tests/support/stage.h"

#include "ir/base/rng.h"
#include "ir/base/str.h"
#include "ir/ops/ops.h"
#include "ir/passes/build/build.h"
#include "ir/passes/build/count.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_UNITS = 400, MAX_CHUNKS = 6 };

/* What is not cut, and what it costs. */
typedef struct units {
    int64_t flop[MAX_UNITS];
    bool reads[MAX_UNITS]; /* a weight */
    int n;
} units;

/* ---- brute force ---- */

typedef struct search {
    const units *u;
    int n_chunks;
    int cut[MAX_CHUNKS], best[MAX_CHUNKS]; /* cut[c]: the first unit of chunk c */
    int64_t least;
} search;

static int64_t sum(const units *u, int from, int to) {
    int64_t total = 0;
    for (int i = from; i < to; i++) total += u->flop[i];
    return total;
}

/* All cuts, the earliest first, so that of equal ones the first found stays. A chunk begins with a
 * unit that reads a weight: others follow what makes their operands, wherever the cut is; chunk 0
 * has what stands before its first weight. */
static void try_cuts(search *s, int chunk, int64_t largest) {
    int from = s->cut[chunk - 1];
    bool has = false;
    if (chunk == s->n_chunks) {
        for (int i = from; i < s->u->n; i++) has = has || s->u->reads[i];
        int64_t last = sum(s->u, from, s->u->n);
        if (last > largest) largest = last;
        if (!has || largest >= s->least) return;
        s->least = largest;
        memcpy(s->best, s->cut, sizeof s->best);
        return;
    }
    int64_t mine = 0;
    for (int i = from; i < s->u->n; i++) {
        if (has && s->u->reads[i]) {
            s->cut[chunk] = i;
            try_cuts(s, chunk + 1, mine > largest ? mine : largest);
        }
        has = has || s->u->reads[i];
        mine += s->u->flop[i];
    }
}

static void brute_force(search *s, const units *u, int n_chunks) {
    *s = (search){.u = u, .n_chunks = n_chunks, .least = INT64_MAX};
    try_cuts(s, 1, 0);
}

/* "0 0 - 1": what stage_units says of such a cut. */
static char *expected(const search *s) {
    ds_buf out = {0};
    int chunk = 0;
    for (int i = 0; i < s->u->n; i++) {
        while (chunk + 1 < s->n_chunks && s->best[chunk + 1] <= i) chunk++;
        if (i) ds_buf_putc(&out, ' ');
        if (s->u->reads[i])
            ds_buf_printf(&out, "%d", chunk);
        else
            ds_buf_putc(&out, '-');
    }
    return out.text;
}

static void expect_best(const step_case *c, const units *u, int n_chunks, const char *what) {
    search s;
    brute_force(&s, u, n_chunks);
    char *want = expected(&s), *got = stage_units(c);
    cr_expect_str_eq(got, want, "%s\n%s\nbut the best cut is\n%s", what, got, want);
    free(want);
    free(got);
}

/* ---- chains of products ---- */

/* %h1 = matmul(%x, %w0), …: layer i costs 2 b d(i) d(i+1). */
static void random_chain(ds_rng *rng, int n, ds_buf *text, units *u) {
    int64_t batch = 2, d[MAX_UNITS + 1];
    for (int i = 0; i <= n; i++) d[i] = 1 + (int64_t)ds_rng_below(rng, 6);
    *u = (units){.n = n + 1};
    ds_buf_printf(text, "dir 1\nfunc @net(%%h0: f32[%lld@dp, %lld]) -> f32[] {\n", (long long)batch,
                  (long long)d[0]);
    for (int i = 0; i < n; i++) {
        ds_buf_printf(text, "  weight %%w%d : f32[%lld, %lld]\n  %%h%d = matmul(%%h%d, %%w%d)\n", i,
                      (long long)d[i], (long long)d[i + 1], i + 1, i, i);
        u->flop[i] = 2 * batch * d[i] * d[i + 1];
        u->reads[i] = true;
    }
    ds_buf_printf(text, "  %%loss = reduce_sum(%%h%d) {dims = [0, 1]}\n  return %%loss\n}\n", n);
    u->flop[n] = batch * d[n]; /* held to the op table below */
}

static void check_chain(ds_rng *rng, int n_chunks, int n) {
    ds_buf text = {0};
    units u;
    step_case c;
    ds_model_counts counts;
    random_chain(rng, n, &text, &u);
    ds_buf_printf(&text,
                  "scenario { model = @net, train { optimizer = sgd }\n"
                  "  strategy { pp = %d, balance = flops } }\n",
                  n_chunks);
    step_make(&c, text.text, NULL, DS_PASS_STAGE);
    cr_assert_eq(c.status, DS_OK, "%s", text.text);
    cr_assert_eq(ds_model_count(&c.step->binding, c.step->func, &counts, NULL), DS_OK);
    u.flop[n] = (int64_t)counts.flop - sum(&u, 0, n); /* the loss; all else is products */
    expect_best(&c, &u, n_chunks, text.text);
    ds_buf_deinit(&text);
    step_free(&c);
}

Test(stage_flops, random_chains) {
    ds_rng rng = {7};

    for (int i = 0; i < 120; i++) {
        int n_chunks = 2 + (int)ds_rng_below(&rng, 4);
        check_chain(&rng, n_chunks, n_chunks + (int)ds_rng_below(&rng, 8));
    }
}

/* ---- models ---- */

static int64_t flop_of(const ds_model_step *step, const ds_op *op, const ds_index *indices) {
    ds_env env = ds_binding_env(&step->binding, indices);
    ds_shape shapes[32] = {0};
    ds_work work;
    cr_assert_leq(op->n_in + op->n_out, 32);
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
        const ds_type *type = i < op->n_in ? ds_use_type(step->unit, step->func, &op->in[i])
                                           : ds_value_at(step->func, op->out[i - op->n_in])->type;
        shapes[i].dtype = type->dtype;
        shapes[i].rank = type->rank;
        for (uint32_t d = 0; d < type->rank; d++)
            cr_assert_eq(
                ds_expr_eval_int(&env, type->dims[d].size, DS_NOWHERE, &shapes[i].dims[d], NULL),
                DS_OK);
    }
    cr_assert_eq(ds_op_work(op, &env, shapes, shapes + op->n_in, &work, NULL), DS_OK);
    return work.flop;
}

static bool reads_weight(const ds_model_step *step, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++)
        for (uint32_t w = 0; w < step->weights.n; w++)
            if (step->weights.at[w].arg.i == op->in[i].value.i) return true;
    return false;
}

/* An op, or a turn of a loop without loops inside. */
static void add_unit(units *u, const ds_model_step *step, ds_op *const *ops, uint32_t n,
                     const ds_index *indices) {
    cr_assert_lt(u->n, MAX_UNITS);
    for (uint32_t i = 0; i < n; i++) {
        if (ops[i]->code == DS_OP_YIELD) continue;
        u->flop[u->n] += flop_of(step, ops[i], indices);
        u->reads[u->n] |= reads_weight(step, ops[i]);
    }
    u->n++;
}

static void find_units(const ds_model_step *step, units *u) {
    const ds_block *body = &step->func->body;
    ds_env env = ds_binding_env(&step->binding, NULL);
    *u = (units){0};
    for (uint32_t i = 0; i + 1 < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        if (op->code != DS_OP_FOR) {
            add_unit(u, step, &body->ops[i], 1, NULL);
            continue;
        }
        int64_t lo = 0, hi = 0;
        ds_expr_eval_int(&env, op->lo, DS_NOWHERE, &lo, NULL);
        ds_expr_eval_int(&env, op->hi, DS_NOWHERE, &hi, NULL);
        for (int64_t at = lo; at < hi; at++) {
            ds_index turn = {op->index, at, NULL};
            add_unit(u, step, op->body->ops, op->body->n_ops, &turn);
        }
    }
}

static void check_model(const char *model, const char *settings, int n_chunks,
                        const char *strategy) {
    char text[64];
    step_case c;
    units u;
    snprintf(text, sizeof text, "pp = %d%s", n_chunks, strategy);
    stage_make(&c, model, settings, text);
    cr_assert_eq(c.status, DS_OK, "%s, %s: %s", model, text, c.err.message);
    step_case whole;
    stage_make(&whole, model, settings, "pp = 1");
    find_units(whole.step, &u);
    expect_best(&c, &u, n_chunks, model);
    step_free(&whole);
    step_free(&c);
}

/* Without turns it is cut by its FLOPs, said or not. */
Test(stage_flops, resnet_without_loops) {
    static const char small[] =
        "batch=2 image=32 classes=5 width=2 blocks1=1 blocks2=1 blocks3=1 blocks4=1";
    for (int n = 2; n <= 5; n++) check_model("resnet", small, n, "");
    check_model("resnet", small, 3, ", balance = flops");
}

Test(stage_flops, resnet_with_loops) {
    for (int n = 2; n <= 3; n++)
        check_model("resnet", "batch=2 image=32 classes=5 width=2", n, ", balance = flops");
}

/* The head of a large vocabulary is as much as several layers. */
Test(stage_flops, gpt) {
    static const char large[] = "layers=9 hidden=4 heads=1 seq=4 vocab=200 batch=2";
    for (int n = 2; n <= 4; n++) check_model("gpt", large, n, ", balance = flops");
    step_case c;
    stage_make(&c, "gpt", large, "pp = 3, balance = flops");
    char *turns = stage_turns(&c);
    cr_expect_str_neq(turns, "0 0 0 1 1 1 2 2 2", "%s", turns);
    free(turns);
    step_free(&c);
}

/* More chunks than turns, and turns of two kinds. */
Test(stage_flops, t5) {
    static const char small[] =
        "layers=2 hidden=4 heads=1 head_dim=4 ffn=4 seq=4 target_seq=2 vocab=5 batch=2";
    for (int n = 2; n <= 6; n++) check_model("t5", small, n, ", balance = flops");
}

Test(stage_flops, fewer_weights_than_chunks) {
    step_case c;
    stage_make(&c, "mlp", "layers=3 width=2 batch=2", "pp = 4, balance = flops");
    cr_expect_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "only 3 operations and turns of @step read weights"), "%s",
              c.err.message);
    step_free(&c);
}
