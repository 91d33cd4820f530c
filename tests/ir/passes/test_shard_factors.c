/* Overrides of backward ops. The gradient of a weight, computed whole by every replica from gathered
 * operands, needs no reduction: sufficient factors. Whatever backward op lies however, the step
 * stays the same. */
#include "ir/passes/build/path.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_model.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- two products, by hand ---- */

/* @all is the mesh of the strategy. */
static void two_products(char *text, size_t size, const char *ops, const char *strategy) {
    snprintf(text, size,
             "dir 1\nparam batch = 4\n"
             "topology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n"
             "  link gpu[0] -- gpu[1] : 300 GB/s, 1 us\n}\n"
             "mesh @all = [dp = 2] on @box\n"
             "func @net(%%x: f32[batch@dp, 6]) -> f32[batch, 10] {\n"
             "  weight %%w : f32[6, 8]\n  weight %%u : f32[8, 10]\n"
             "  %%a = matmul(%%x, %%w)\n  %%r = relu(%%a)\n  %%z = matmul(%%r, %%u)\n"
             "  return %%z\n}\n"
             "scenario {\n  model = @net\n  on = @box\n"
             "  train { loss = mse, optimizer = adam, keep_gradients = true }\n"
             "  strategy { dp = 2, %s, ops { %s } }\n}\n",
             strategy, ops);
}

static char *program_of(const char *ops) {
    char text[2048];
    step_case c;
    two_products(text, sizeof text, ops, "zero = 0");
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s: %s", ops, c.err.message);
    char *program = step_text(&c);
    step_free(&c);
    return program;
}

static uint32_t count(const char *text, const char *what) {
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void expect_has(const char *program, const char *what, uint32_t n) {
    cr_expect_eq(count(program, what), n, "%s: %u, not %u:\n%s", what, count(program, what), n,
                 program);
}

/* Both operands are gathered, the gradient of %w has no all_reduce, that of %u still has. */
Test(shard_factors, a_whole_gradient_needs_no_reduction) {
    char *program = program_of("\"a.dw\" = on @all []");
    expect_has(program, "all_gather(%x) over dp dim 0", 1);
    expect_has(program, "all_gather(%r.dx) over dp dim 0", 1);
    expect_has(program, "all_gather", 2);
    expect_has(program, "all_reduce(%w.grad", 0);
    expect_has(program, "all_reduce(%u.grad) over dp", 1);
    free(program);
}

/* The rule of a.dw is "_0 k, _0 n -> k n": each device computes some rows of the gradient. */
Test(shard_factors, letters_are_those_of_the_backward_op) {
    char *program = program_of("\"a.dw\" = on @all [k: dp]");
    expect_has(program, "%w.grad = einsum(%x.", 1);
    expect_has(program, "name = \"a.dw\"} : f32[6@dp, 8]", 1);
    expect_has(program, "all_reduce(%w.grad", 0);
    free(program);
}

/* The forward op's override reaches a.dx and a.dw, but for the op that has an override itself,
 * whichever comes first. The weight lies as the forward op wants it. */
Test(shard_factors, the_backward_ops_own_override_goes_first) {
    static const char *const both[] = {"\"z\" = on @all [n: dp]\n\"z.dx\" = on @all []",
                                       "\"z.dx\" = on @all []\n\"z\" = on @all [n: dp]"};
    for (int i = 0; i < 2; i++) {
        char *program = program_of(both[i]);
        expect_has(program, "%u: f32[8, 10@dp]", 1);
        expect_has(program, "%z.dx = einsum(%loss.dx.whole, %u.whole", 1);
        expect_has(program, "name = \"z.dw\"} : f32[8, 10@dp]", 1);
        free(program);
    }
}

Test(shard_factors, a_backward_op_leaves_the_weight_where_it_is) {
    char *program = program_of("\"z.dx\" = on @all [k: dp]");
    expect_has(program, "%u: f32[8, 10]", 1);
    expect_has(program, "rule = \"_0 n, k n -> _0 k\"} : f32[batch, 8@dp]", 1);
    free(program);
}

Test(shard_factors, the_step_stays_the_same) {
    static const char *const ops[] = {"\"a.dw\" = on @all []",
                                      "\"a.dw\" = on @all [k: dp]",
                                      "\"z.dx\" = on @all []",
                                      "\"z\" = on @all [n: dp]\n\"z.dx\" = on @all [k: dp]",
                                      "\"r.dx\" = on @all [_1: dp]\n\"loss.dx\" = on @all []",
                                      "\"?.dw\" = on @all []"};
    static const char *const strategies[] = {"zero = 0", "zero = 1", "zero = 2", "zero = 3",
                                             "microbatches = 2"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
            char text[2048];
            proof_options options = {.seed = 1, .texts = true, .ranks = true};
            proof p;
            two_products(text, sizeof text, ops[i], strategies[k]);
            prove(text, &options, &p);
            cr_expect_eq(p.verdict, PROOF_EQUAL, "%s, %s: %s: %s", ops[i], strategies[k],
                         proof_verdict_name(p.verdict), p.what);
        }
}

Test(shard_factors, backward_ops_that_are_not_there) {
    static const struct {
        const char *ops, *strategy, *message;
    } cases[] = {
        {"\"b.dw\" = on @all []", "zero = 0", "\"b.dw\" is the path of no operation of @net"},
        {"\"a.dz\" = on @all []", "zero = 0", "\"a.dz\" is the path of no operation of @net"},
        {"\"a.dx\" = on @all []", "zero = 0", "the override \"a.dx\" matches no op of the model"},
        {"\"a.dw\" = on @all [m: dp]", "zero = 0", "einsum has no factor 'm'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        step_case c;
        two_products(text, sizeof text, cases[i].ops, cases[i].strategy);
        step_make(&c, text, NULL, DS_PASS_SHARD);
        cr_expect_neq(c.status, DS_OK, "%s", cases[i].ops);
        cr_expect(strstr(c.err.message, cases[i].message) != NULL, "%s", c.err.message);
        step_free(&c);
    }
}

/* ---- random models ---- */

typedef DS_VEC(const char *) names;

static void find_backward(const ds_func *func, const ds_block *block, ds_arena *arena, names *out) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) find_backward(func, op->body, arena, out);
        if (op->code < DS_OP_FIRST_TABLE_OP) continue;
        const char *name = ds_path_op_name(func, op), *dot = strrchr(name, '.');
        bool of_model = !strstr(name, ".cast."); /* casts that lower adds have no path */
        if (dot && of_model && ds_path_is_gradient(dot + 1))
            DS_PUSH(arena, out, ds_arena_strdup(arena, name));
    }
}

static void backward_ops(const char *text, ds_arena *arena, names *out) {
    step_case c;
    step_make(&c, text, NULL, DS_PASS_GRAD);
    if (c.status == DS_OK) find_backward(c.step->func, &c.step->func->body, arena, out);
    step_free(&c);
}

/* A third of the backward ops is whole. The mesh has the axes of the strategy, or one of its own. */
static bool add_overrides(const random_model *m, const char *text, ds_rng *rng, ds_buf *out) {
    ds_arena arena;
    names ops = {0};
    const char *at = strstr(text, "  strategy {");
    ds_arena_init(&arena);
    backward_ops(text, &arena, &ops);
    if (ops.n) {
        bool own = m->plan.at[KNOB_TP] * m->plan.at[KNOB_CP] == 1 && ds_rng_below(rng, 3) > 0;
        ds_buf_printf(out, "%.*s", (int)(at - text), text);
        ds_buf_put(out, "  strategy {\n    ops {\n");
        for (uint32_t i = 0; i < ops.n; i++)
            if (i == 0 || ds_rng_below(rng, 3) == 0)
                ds_buf_printf(out, "      \"%s\" = on @every []\n", ops.at[i]);
        ds_buf_printf(out, "    }\n%s", at + strlen("  strategy {\n"));
        ds_buf_printf(out, "%smesh @every = [%s = %d] on @box\n", own ? "" : "axis every\n",
                      own ? "dp" : "every", plan_world(&m->plan));
    }
    ds_arena_deinit(&arena);
    return ops.n > 0;
}

Test(shard_factors, whole_backward_ops_of_random_models) {
    uint32_t equal = 0, refused = 0, wanted = FEW_CASES ? 60 : 300;
    for (uint64_t seed = 0; equal < wanted; seed++) {
        random_model m = random_model_of(seed);
        ds_rng rng = {seed};
        ds_buf text = {0}, overridden = {0};
        proof found = {0};
        m.plan.uneven = 0;
        random_model_print(&m, &text);
        if (plan_world(&m.plan) > 1 && m.plan.at[KNOB_PP] == 1 &&
            add_overrides(&m, text.text, &rng, &overridden)) {
            prove(overridden.text, &(proof_options){.seed = seed + 1}, &found);
            equal += found.verdict == PROOF_EQUAL;
            refused += found.verdict == PROOF_REFUSED;
            cr_expect_neq(found.verdict, PROOF_WRONG, "seed %llu: %s\n%s", (unsigned long long)seed,
                          found.what, overridden.text);
        }
        ds_buf_deinit(&text);
        ds_buf_deinit(&overridden);
        if (found.verdict == PROOF_WRONG) break;
    }
    cr_expect(refused < 2 * equal, "%u refused, %u equal", refused, equal);
}
