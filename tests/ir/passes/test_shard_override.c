/* Overrides of single ops, on the strategy's mesh and on views of it: the step stays the same. */
#include "ir/ops/ops.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tied weight read in a loop and behind it, a weight a turn, a call. */
static const char model[] = "dir 1\nparam width = 12, batch = 12, layers = 2\n"
                            "topology @box {\n"
                            "  device gpu[6] : \"A100-SXM4-80GB\"\n"
                            "  switch sw\n"
                            "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..6\n"
                            "}\n"
                            "mesh @base = [dp = 2, tp = 3] on @box\n"
                            "mesh @v = view @base [cp = 6]\n"
                            "func @half(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                            "  weight %w : f32[width, width@tp]\n"
                            "  weight %c : f32[width@tp]\n"
                            "  %z = matmul(%x, %w)\n"
                            "  %b = bias(%z, %c)\n"
                            "  return %b\n"
                            "}\n"
                            "func @net(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                            "  weight %tied : f32[width, width@tp]\n"
                            "  %y = for l in 0..layers carry (%h = %x) {\n"
                            "    %p = call @half(%h)\n"
                            "    %a = tanh(%p)\n"
                            "    %q = matmul(%a, %tied)\n"
                            "    %n = rms_norm(%q)\n"
                            "    yield %n\n"
                            "  }\n"
                            "  %t = matmul(%y, %tied)\n"
                            "  return %t\n"
                            "}\n";

static void expect_equal(const char *ops, int zero, int microbatches) {
    char text[4096];
    proof_options options = {.seed = 1, .texts = true};
    proof p;
    snprintf(text, sizeof text,
             "%sscenario {\n  model = @net\n  on = @box\n"
             "  train { loss = mse, optimizer = adam, dtype = bf16, keep_gradients = true }\n"
             "  strategy { dp = 2, tp = 3, zero = %d, microbatches = %d, ops {\n%s\n} }\n}\n",
             model, zero, microbatches, ops);
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "zero = %d, %d microbatches, %s: %s: %s", zero,
                 microbatches, ops, proof_verdict_name(p.verdict), p.what);
}

static const char *const overrides[] = {
    "\"t\" = on @v [k: cp]",                                /* a tied weight lies on the view */
    "\"l[*].q\" = on @v [n: cp]",                           /* the same, from inside the loop */
    "\"net/l[*]/p/z\" = on @base [k: tp]",                  /* the whole path */
    "\"l[1].p.z\" = on @v [k: cp]\n\"n\" = on @v [_0: cp]", /* one turn */
    "\"p.b\" = on @v [b: cp]\n\"a\" = on @base [_0: [dp, tp]]",
};

Test(shard_override, the_step_stays_the_same) {
    for (int zero = 0; zero <= 3; zero++)
        for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
            expect_equal(overrides[i], zero, 1);
}

Test(shard_override, in_microbatches_too) {
    for (int zero = 0; zero <= 3; zero++)
        for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
            expect_equal(overrides[i], zero, 2);
}

/* "t.dense" and "t.d" are ops of the model, no backward ops of "t". */
Test(shard_override, names_that_begin_like_a_gradient) {
    static const char text[] = "dir 1\n"
                               "topology @box {\n"
                               "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                               "  link gpu[0] -- gpu[1] : 300 GB/s, 1 us\n"
                               "}\n"
                               "mesh @base = [dp = 2] on @box\n"
                               "func @net(%x: f32[4@dp, 8]) -> f32[4, 8] {\n"
                               "  weight %w : f32[8, 8]\n"
                               "  weight %u : f32[8, 8]\n"
                               "  weight %v : f32[8, 8]\n"
                               "  %t = matmul(%x, %w)\n"
                               "  %a = matmul(%t, %u) {name = \"t.dense\"}\n"
                               "  %b = matmul(%a, %v) {name = \"t.d\"}\n"
                               "  return %b\n"
                               "}\n"
                               "scenario {\n  model = @net\n  on = @box\n"
                               "  strategy { dp = 2, ops { \"t\" = on @base [k: dp] } }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    const char *sum = strstr(program, "all_reduce(%t)");
    sum = sum ? sum : strstr(program, "reduce_scatter(%t)");
    cr_expect_not_null(sum, "%s", program);
    cr_expect_null(strstr(program, "(%a)"), "%s", program);
    cr_expect_null(strstr(program, "(%b)"), "%s", program);
    free(program);
    step_free(&c);
}

/* An axis of a view is the view's own, whatever the strategy's mesh has: the product is split over
 * all six devices, and so is its weight. */
Test(shard_override, axes_of_views_are_their_own) {
    static const char text[] =
        "dir 1\nparam width = 12, batch = 12\n"
        "topology @box {\n  device gpu[6] : \"A100-SXM4-80GB\"\n  switch sw\n"
        "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..6\n}\n"
        "mesh @base = [dp = 2, tp = 3] on @box\nmesh @v = view @base [cp = 6]\n"
        "func @net(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
        "  weight %w : f32[width, width]\n  weight %u : f32[width, width]\n"
        "  %t = matmul(%x, %w)\n  %b = matmul(%t, %u)\n  return %b\n}\n"
        "scenario {\n  model = @net\n  on = @box\n"
        "  strategy { dp = 2, tp = 3, ops { \"t\" = on @v [k: cp] } }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    cr_expect_not_null(strstr(program, "%w: f32[width@cp, width] on @v"), "%s", program);
    cr_expect_not_null(strstr(program, "%t = matmul(%x.cut, %w) : f32[batch, width] partial(cp)"),
                       "%s", program);
    cr_expect_not_null(strstr(program, "all_reduce(%t) over cp"), "%s", program);
    free(program);
    step_free(&c);
}

/* ---- batches split by overrides are data parallelism, forward and backward ---- */

/* An op behind a product, in a model whose result is %z, and the overrides by its batch. */
typedef struct batch_case {
    const char *body, *result, *ops;
} batch_case;

static const batch_case batch_cases[] = {
    /* elementwise */
    {"%b = matmul(%x, %u)\n%z = sub(%a, %b)", "8, 4, 6", "\"b\" = on @base [_0: dp]\n[a: dp]"},
    {"weight %v : f32[6]\n%z = sub(%a, %v)", "8, 4, 6", "[a: dp]"},
    {"weight %v : f32[1, 6]\n%z = sub(%a, %v)", "8, 4, 6", "[a: dp]"},
    {"%b = matmul(%x, %u)\n%z = add(%a, %b)", "8, 4, 6", "\"b\" = on @base [_0: dp]\n[a: dp]"},
    {"weight %v : f32[1, 6]\n%z = add(%a, %v)", "8, 4, 6", "[a: dp]"},
    {"%b = matmul(%x, %u)\n%z = mul(%a, %b)", "8, 4, 6", "\"b\" = on @base [_0: dp]\n[a: dp]"},
    {"weight %v : f32[1, 6]\n%z = mul(%a, %v)", "8, 4, 6", "[a: dp]"},
    {"%b = matmul(%x, %u)\n%z = div(%a, %b)", "8, 4, 6", "\"b\" = on @base [_0: dp]\n[a: dp]"},
    {"weight %v : f32[6]\n%z = div(%a, %v)", "8, 4, 6", "[a: dp]"},
    {"weight %v : f32[6]\n%z = bias(%a, %v)", "8, 4, 6", "[a: dp]"},
    {"%z = scale(%a) {factor = 2}", "8, 4, 6", "[_0: dp]"},
    {"%z = relu(%a)", "8, 4, 6", "[_0: dp]"},
    {"%z = gelu(%a)", "8, 4, 6", "[_0: dp]"},
    {"%z = silu(%a)", "8, 4, 6", "[_0: dp]"},
    {"%z = tanh(%a)", "8, 4, 6", "[_0: dp]"},
    {"%z = sigmoid(%a)", "8, 4, 6", "[_0: dp]"},
    {"%z = exp(%a)", "8, 4, 6", "[_0: dp]"},
    {"%b = exp(%a)\n%z = log(%b)", "8, 4, 6", "\"b\" = on @base [_0: dp]\n[_0: dp]"},
    {"%b = exp(%a)\n%z = sqrt(%b)", "8, 4, 6", "\"b\" = on @base [_0: dp]\n[_0: dp]"},
    {"%z = neg(%a)", "8, 4, 6", "[_0: dp]"},
    {"%z = dropout(%a)", "8, 4, 6", "[_0: dp]"},
    {"%b = cast(%a) {dtype = f64}\n%z = cast(%b) {dtype = f32}", "8, 4, 6",
     "\"b\" = on @base [a: dp]\n[a: dp]"},
    /* layout: the batch moves */
    {"%z = transpose(%a) {perm = [0, 2, 1]}", "8, 6, 4", "[a: dp]"},
    {"%z = transpose(%a) {perm = [1, 0, 2]}", "4, 8, 6", "[a: dp]"},
    {"%z = transpose(%a) {perm = [2, 0, 1]}", "6, 8, 4", "[a: dp]"},
    {"%z = reshape(%a) {shape = [8, 24]}", "8, 24", "[fa: dp]"},
    {"%z = reshape(%a) {shape = [8, 2, 2, 6]}", "8, 2, 2, 6", "[fa: dp]"},
    {"%t = transpose(%a) {perm = [1, 2, 0]}\n%z = reshape(%t) {shape = [3, 2, 4, 8]}", "3, 2, 4, 8",
     "\"t\" = on @base [a: dp]\n[fd: dp]"},
    {"%b = matmul(%x, %u)\n%z = concat(%a, %b) {dim = 1}", "8, 8, 6",
     "\"b\" = on @base [_0: dp]\n[a: dp]"},
    {"%b, %c = split(%a) {dim = 1}\n%z = mul(%b, %c)", "8, 2, 6",
     "\"b\" = on @base [a: dp]\n[a: dp]"},
    {"%z = slice(%a) {dim = 1, lo = 1, hi = 3}", "8, 2, 6", "[a: dp]"},
    {"%z = pad(%a) {dim = 1, lo = 1, hi = 3}", "8, 8, 6", "[a: dp]"},
    {"%z = expand(%a) {dims = [0, 2], sizes = [2, 3]}", "2, 8, 3, 4, 6", "[b: dp]"},
    /* reductions */
    {"%z = reduce_sum(%a) {dims = 1}", "8, 6", "[a: dp]"},
    {"%z = reduce_sum(%a) {dims = 1, keep = true}", "8, 1, 6", "[a: dp]"},
    {"%z = reduce_mean(%a) {dims = [1, 2]}", "8", "[a: dp]"},
    {"%z = reduce_max(%a) {dims = 1}", "8, 6", "[a: dp]"},
    /* products */
    {"%z = matmul(%a, %u)", "8, 4, 6", "[_0: dp]"},
    {"%z = einsum(%a, %u) {rule = \"c b a, a d -> b c d\"}", "4, 8, 6", "[c: dp]"},
    {"%z = einsum(%a) {rule = \"c b a -> a c\"}", "6, 8", "[c: dp]"},
    {"%b = einsum(%a, %u, %u) {rule = \"c b a, a d, a d -> b c d\"}\n%z = tanh(%b)", "4, 8, 6",
     "\"b\" = on @base [c: dp]\n[_1: dp]"},
    /* normalisation, losses, look-up */
    {"%z = softmax(%a)", "8, 4, 6", "[a: dp]"},
    {"%z = softmax(%a) {dim = 1}", "8, 4, 6", "[a: dp]"},
    {"weight %v : f32[6]\n%z = layer_norm(%a, %v)", "8, 4, 6", "[_0: dp]"},
    {"weight %v : f32[6]\n%z = rms_norm(%a, %v)", "8, 4, 6", "[_0: dp]"},
    {"%z = cross_entropy(%a, %i) {reduction = none}", "8, 4", "[_0: dp]"},
    {"%b = matmul(%x, %u)\n%z = mse(%a, %b) {reduction = none}", "8, 4, 6",
     "\"b\" = on @base [_0: dp]\n[_0: dp]"},
    {"%z = pick(%a, %i)", "8, 4", "[_0: dp]"},
    {"weight %v : f32[6, 6]\n%e = embedding(%i, %v)\n%z = mul(%a, %e)", "8, 4, 6",
     "\"e\" = on @base [_0: dp]\n[a: dp]"},
    /* windows, attention, recurrence, experts */
    {"%r = reshape(%a) {shape = [8, 1, 4, 6]}\nweight %v : f32[2, 1, 3, 3]\n"
     "%z = conv2d(%r, %v) {pad = 1}",
     "8, 2, 4, 6", "\"r\" = on @base [fa: dp]\n[n: dp]"},
    {"%r = reshape(%a) {shape = [8, 1, 4, 6]}\n%z = max_pool(%r) {window = 2}", "8, 1, 2, 3",
     "\"r\" = on @base [fa: dp]\n[n: dp]"},
    {"%r = reshape(%a) {shape = [8, 1, 4, 6]}\n%z = avg_pool(%r) {window = 2}", "8, 1, 2, 3",
     "\"r\" = on @base [fa: dp]\n[n: dp]"},
    {"%r = reshape(%a) {shape = [8, 4, 1, 6]}\nweight %v : f32[1]\n"
     "%q = transpose(%r) {perm = [0, 2, 1, 3]}\n%z = batch_norm(%q, %v) {groups = 2}",
     "8, 1, 4, 6", "\"r\" = on @base [fa: dp]\n\"q\" = on @base [a: dp]\n[u: dp]"},
    {"%r = reshape(%a) {shape = [8, 4, 3, 2]}\n%z = rotary(%r)", "8, 4, 3, 2",
     "\"r\" = on @base [fa: dp]\n[b: dp]"},
    {"%r = reshape(%a) {shape = [8, 4, 3, 2]}\n%z = attention(%r, %r, %r)", "8, 4, 3, 2",
     "\"r\" = on @base [fa: dp]\n[b: dp]"},
    {"weight %v : f32[6, 24]\n%y, %h = lstm(%a, %v, %v)\n%s = reduce_mean(%y) {dims = 1}\n"
     "%z = mul(%s, %h)",
     "8, 6", "\"y\" = on @base [b: dp]\n\"s\" = on @base [a: dp]\n[a: dp]"},
    {"%v, %k = topk(%a) {k = 2}\n%z = tanh(%v)", "8, 4, 2", "\"v\" = on @base [_0: dp]\n[_0: dp]"},
    {"%g = matmul(%x, %u)\n%v, %k = topk(%g) {k = 2}\n"
     "%d = dispatch(%a, %k) {experts = 6, capacity = 4}\n%z = combine(%d, %k, %v)",
     "8, 4, 6",
     "\"g\" = on @base [_0: dp]\n\"v\" = on @base [_0: dp]\n\"d\" = on @base [_0: dp]\n[_0: dp]"},
};

/* The step of a case; `by_overrides`: nothing else says that the batch is split. */
static void make_batch_case(const batch_case *b, bool by_overrides, char *text, size_t size) {
    const char *last = strrchr(b->ops, '[');
    char loss[8] = "_0";
    for (const char *p = b->result; strtol(p, NULL, 10) != 8; p = strchr(p, ',') + 1) loss[1]++;
    int n = snprintf(text, size,
                     "dir 1\n"
                     "topology @box {\n"
                     "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                     "  link gpu[0] -- gpu[1] : 300 GB/s, 1 us\n"
                     "}\n"
                     "mesh @base = [dp = 2] on @box\n"
                     "func @net(%%x: f32[8@dp, 4, 6], %%i: i32[8@dp, 4]) -> f32[%s] {\n"
                     "  weight %%w : f32[6, 6]\n  weight %%u : f32[6, 6]\n"
                     "  %%a = matmul(%%x, %%w)\n%s\n  return %%z\n}\n"
                     "scenario {\n  model = @net\n  on = @box\n"
                     "  train { loss = mse, optimizer = sgd }\n  strategy { dp = 2",
                     b->result, b->body);
    if (by_overrides)
        n += snprintf(text + n, size - (size_t)n,
                      ", ops {\n\"a\" = on @base [_0: dp]\n%.*s\"z\" = on @base %s\n"
                      "\"loss\" = on @base [%s: dp]\n}",
                      (int)(last - b->ops), b->ops, last, loss);
    snprintf(text + n, size - (size_t)n, " }\n}\n");
}

/* What a block's ops send: collectives, and the elements of what they read. */
typedef struct traffic {
    int collectives;
    int64_t elements;
} traffic;

static void add_traffic(const step_case *c, const ds_block *block, traffic *sum) {
    const ds_func *func = c->step->func;
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code < DS_OP_FIRST_TABLE_OP ||
            !(ds_op_desc_of(op->code)->flags & DS_OPF_COLLECTIVE))
            continue;
        sum->collectives++;
        for (uint32_t k = 0; k < op->n_in; k++) {
            const ds_type *type = ds_value_at(func, op->in[k].value)->type;
            int64_t elements = 1;
            for (uint32_t d = 0; d < type->rank; d++) {
                int64_t dim = 0;
                cr_assert_eq(ds_expr_eval_int(&env, type->dims[d].size, op->loc, &dim, NULL),
                             DS_OK);
                elements *= dim;
            }
            sum->elements += elements;
        }
    }
}

static traffic traffic_of(const batch_case *b, bool by_overrides) {
    char text[4096];
    step_case c;
    traffic sum = {0};
    make_batch_case(b, by_overrides, text, sizeof text);
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s: %s", b->body, c.err.message);
    add_traffic(&c, &c.step->func->body, &sum);
    step_free(&c);
    return sum;
}

Test(shard_override, batches_split_by_overrides_are_data_parallelism) {
    for (size_t i = 0; i < sizeof batch_cases / sizeof *batch_cases; i++) {
        const batch_case *b = &batch_cases[i];
        traffic plain = traffic_of(b, false), overridden = traffic_of(b, true);
        cr_expect_eq(overridden.collectives, plain.collectives, "%s: %d collectives, not %d",
                     b->body, overridden.collectives, plain.collectives);
        cr_expect_eq(overridden.elements, plain.elements, "%s: %lld elements, not %lld", b->body,
                     (long long)overridden.elements, (long long)plain.elements);
    }
}

Test(shard_override, batches_split_by_overrides_keep_the_step) {
    for (size_t i = 0; i < sizeof batch_cases / sizeof *batch_cases; i++) {
        char text[4096];
        proof_options options = {.seed = 1};
        proof p;
        make_batch_case(&batch_cases[i], true, text, sizeof text);
        prove(text, &options, &p);
        cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s: %s", batch_cases[i].body,
                     proof_verdict_name(p.verdict), p.what);
    }
}

/* A batch is split by the groups that its statistics are of; the letter b is the batch of the lstm,
 * another dim in what its backward pass adds up. */
static const char grouped[] =
    "dir 1\nparam batch = 12\n"
    "topology @box {\n"
    "  device gpu[6] : \"A100-SXM4-80GB\"\n"
    "  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..6\n"
    "}\n"
    "mesh @base = [dp = 2, tp = 3] on @box\n"
    "mesh @v = view @base [cp = 6]\n"
    "func @net(%x: f32[batch@dp, 4, 6]) -> f32[batch, 6] {\n"
    "  weight %g : f32[4]\n"
    "  weight %wx : f32[6, 24]\n"
    "  weight %wh : f32[6, 24]\n"
    "  %n = batch_norm(%x, %g) {groups = 6}\n"
    "  %y, %h = lstm(%n, %wx, %wh)\n"
    "  %s = reduce_mean(%y) {dims = 1}\n"
    "  %z = mul(%s, %h)\n"
    "  return %z\n"
    "}\n"
    "scenario {\n  model = @net\n  on = @box\n  train { loss = mse, optimizer = sgd }\n"
    "  strategy { dp = 2, tp = 3";

Test(shard_override, letters_of_the_backward_pass) {
    char text[4096];
    proof_options options = {.seed = 1, .texts = true};
    proof p;
    snprintf(text, sizeof text, "%s%s }\n}\n", grouped,
             ", ops { \"y\" = on @v [b: cp]\n\"n\" = on @v [u: cp] }");
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s", proof_verdict_name(p.verdict), p.what);
}

Test(shard_override, groups_of_batch_norm_keep_the_batch_split) {
    char text[4096];
    step_case c;
    snprintf(text, sizeof text, "%s }\n}\n", grouped);
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    cr_expect_null(strstr(program, "all_gather"), "%s", program);
    free(program);
    step_free(&c);
}
