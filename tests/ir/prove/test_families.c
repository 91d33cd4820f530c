/* The models of scenarios/models, made small, under every kind of strategy: the sharded step has
 * the loss, the gradients and the updated weights and states of the unsharded one. What does not
 * divide is refused, never wrong.
 *
 * The knobs are those of tests/support/plan.h. Each family runs a list in which every two values of
 * two knobs meet (zero = 3 with ulysses, a 6-way tp with microbatches, …), mlp and gpt all
 * combinations of dp, tp, sp, cp, cp_type, ep, zero, zero_group and microbatches. Runs that take
 * few cases (tests/support/cases.h) run every eleventh, of all combinations every 77th, and leave out
 * three of the convolutional networks. */
#include "tests/support/cases.h"
#include "tests/support/plan.h"
#include "tests/support/prove.h"

#include "ir/base/arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define STRIDE (FEW_CASES ? 11u : 1u)

typedef struct family {
    const char *model, *with; /* function and file; params */
    const char *train;        /* what else its block says, or NULL */
    int batch;
    int tp;        /* what tp must divide */
    int seq;       /* what cp must divide; 0: no sequence is split */
    int heads;     /* what tp·cp must divide for ulysses; 0: no such attention */
    int experts;   /* what ep must divide; 0: none */
    uint32_t most; /* plans, 0: all of the list */
} family;

static int divides(int a, int b) {
    return b % a == 0;
}

/* ep is made of replicas, or of all of them and a part of cp. */
static bool ep_fits(const int *at) {
    int ep = at[KNOB_EP], dp = at[KNOB_DP];
    return divides(ep, dp) || (divides(dp, ep) && divides(ep / dp, at[KNOB_CP]));
}

/* Must the strategy be taken? */
static bool fits(const void *context, const test_plan *plan) {
    const family *f = context;
    const int *at = plan->at;
    int tp = at[KNOB_TP], cp = at[KNOB_CP];
    if (!divides(at[KNOB_DP] * at[KNOB_MICROBATCHES], f->batch) || !divides(tp, f->tp))
        return false;
    if (f->seq && !divides(cp, f->seq)) return false;
    if (f->heads && cp > 1 && at[KNOB_CP_TYPE] == 1 && !divides(tp * cp, f->heads)) return false;
    if (f->experts && !divides(at[KNOB_EP], f->experts)) return false;
    return ep_fits(at) && (at[KNOB_EP] == 1 || at[KNOB_SHARDS] == 1 || at[KNOB_ZERO] == 0);
}

static bool does_not_fit(const void *context, const test_plan *plan) {
    return !fits(context, plan);
}

static void write_scenario(const family *f, const test_plan *plan, ds_buf *out) {
    char model[64];
    ds_buf_printf(out, "dir 1\nimport \"models/%s.dir\" as m with %s\n", f->model, f->with);
    snprintf(model, sizeof model, "m.%s", f->model);
    plan_scenario(plan, model, f->train, out);
}

typedef struct tally {
    uint32_t equal, refused;
} tally;

static void check(const family *f, const test_plan *plan, bool texts, tally *t) {
    ds_buf text = {0}, name = {0};
    proof_options options = {.seed = 1, .texts = texts};
    proof found;
    bool legal = fits(f, plan);
    write_scenario(f, plan, &text);
    plan_name(plan, &name);
    prove(text.text, &options, &found);
    cr_expect(found.verdict == PROOF_EQUAL || (!legal && found.verdict == PROOF_REFUSED),
              "%s, %s: %s: %s\n%s", f->model, name.text, proof_verdict_name(found.verdict),
              found.what, text.text);
    if (found.verdict == PROOF_EQUAL) { /* of something, and not for nothing */
        cr_expect(found.devices == (uint32_t)plan_world(plan), "%s, %s: ran on %u devices",
                  f->model, name.text, found.devices);
        cr_expect(found.zeros * 4 < found.compared, "%s, %s: %u of %u results are zeros", f->model,
                  name.text, found.zeros, found.compared);
        cr_expect(plan->at[KNOB_DP] == 1 || found.communications, "%s, %s: no communication",
                  f->model, name.text);
    }
    t->equal += found.verdict == PROOF_EQUAL;
    t->refused += found.verdict == PROOF_REFUSED;
    ds_buf_deinit(&text);
    ds_buf_deinit(&name);
}

/* Every STRIDE-th of the first `most` (0: of all); texts of every fourth of these. */
static void check_list(const family *f, const test_plan *plans, uint32_t n, uint32_t most,
                       tally *t) {
    for (uint32_t i = 0; i < n && (!most || i < most); i += STRIDE)
        check(f, &plans[i], i % (4 * STRIDE) == 0, t);
}

static test_space space_of(const family *f) {
    test_space space = {.values = {[KNOB_DP] = {1, 2, 3, 4, 6, -1},
                                   [KNOB_TP] = {1, 2, 3, 4, 6, -1},
                                   [KNOB_CP] = {1, 2, 3, 4, -1},
                                   [KNOB_SP] = {0, 1, -1},
                                   [KNOB_CP_TYPE] = {0, 1, 2, -1},
                                   [KNOB_EP] = {1, 2, 3, 4, 6, -1},
                                   [KNOB_ZERO] = {0, 1, 2, 3, -1},
                                   [KNOB_SHARDS] = {1, 2, 3, -1},
                                   [KNOB_MICROBATCHES] = {1, 2, -1},
                                   [KNOB_ORDER] = {0, 1, 2, -1},
                                   [KNOB_OPTIMIZER] = {3, 0, 1, 2, 4, -1},
                                   [KNOB_BUCKET] = {0, 500, -1},
                                   [KNOB_PREFETCH] = {1, 0, 2, -1},
                                   [KNOB_RECOMPUTE] = {0, 1, 2, -1},
                                   [KNOB_PP] = {1, -1},
                                   [KNOB_SCHEDULE] = {0, -1},
                                   [KNOB_VIRTUAL] = {0, -1},
                                   [KNOB_BALANCE] = {0, -1}},
                        .max_world = 16,
                        .legal = fits,
                        .context = f};
    if (!f->seq) space.values[KNOB_CP][1] = space.values[KNOB_CP_TYPE][1] = -1;
    if (!f->seq) space.values[KNOB_SP][1] = -1;
    if (!f->heads) /* selective is of attention */
        space.values[KNOB_RECOMPUTE][1] = 2, space.values[KNOB_RECOMPUTE][2] = -1;
    if (!f->experts) space.values[KNOB_EP][2] = -1;
    return space;
}

static void report(const family *f, uint32_t n, const char *list, const tally *t) {
    fprintf(stderr, "%s: %u of %u plans%s: %u equal, %u refused\n", f->model, t->equal + t->refused,
            n, list, t->equal, t->refused);
}

/* Pairs of knob values that fit, then some that do not. */
static void check_pairs(const family *f) {
    test_space space = space_of(f);
    test_plan *plans;
    tally t = {0};
    uint32_t n = plan_pairs(&space, &plans);
    check_list(f, plans, n, f->most, &t);
    cr_expect(t.refused == 0);
    free(plans);
    report(f, n, " that fit", &t);

    tally others = {0};
    space.legal = does_not_fit;
    n = plan_pairs(&space, &plans);
    check_list(f, plans, n, f->most ? 6 : 16, &others);
    free(plans);
    report(f, n, " that do not", &others);
}

/* Every combination of the axes and of what is split over them. */
static void check_product(const family *f) {
    test_space space = space_of(f);
    const test_knob fixed[] = {KNOB_ORDER, KNOB_OPTIMIZER, KNOB_BUCKET, KNOB_PREFETCH,
                               KNOB_RECOMPUTE};
    for (uint32_t i = 0; i < sizeof fixed / sizeof *fixed; i++) space.values[fixed[i]][1] = -1;
    space.values[KNOB_OPTIMIZER][0] = 1; /* sgd: the pairs have the others */
    test_plan *plans;
    tally t = {0};
    uint32_t n = plan_product(&space, &plans);
    for (uint32_t i = 0; i < n; i += STRIDE * (FEW_CASES ? 7 : 1)) check(f, &plans[i], false, &t);
    free(plans);
    cr_expect(t.equal > 0 && t.refused == 0);
    report(f, n, " of the product", &t);
}

/* Without dropout and statistics of a batch the mean over microbatches is the mean over the batch.
 */
static void check_microbatches(const family *f) {
    test_plan plan = plan_of_one();
    for (int m = 2; m <= 6; m++) {
        ds_buf text = {0};
        proof_options options = {.seed = 1, .whole_batch = true};
        proof found;
        if (!divides(m, f->batch)) continue;
        plan.at[KNOB_MICROBATCHES] = m;
        plan.at[KNOB_DP] = 1 + (m == 2);
        plan.at[KNOB_OPTIMIZER] = m % 5;
        write_scenario(f, &plan, &text);
        prove(text.text, &options, &found);
        cr_expect(found.verdict == PROOF_EQUAL, "%s, %d microbatches: %s: %s", f->model, m,
                  proof_verdict_name(found.verdict), found.what);
        ds_buf_deinit(&text);
    }
}

/* clang-format off */
#define ATTENTION "hidden = 24, heads = 12, seq = 12, vocab = 24, batch = 12, layers = 2"
static const family mlp = {.model = "mlp", .with = "layers = 3, width = 12, batch = 12", .train = "loss = mse", .batch = 12, .tp = 12, .seq = 0};
static const family gpt = {.model = "gpt", .with = ATTENTION, .batch = 12, .tp = 12, .seq = 12, .heads = 12};
static const family tiny = {.model = "gpt", .with = "hidden = 12, heads = 12, seq = 12, vocab = 12, batch = 12, layers = 1", .batch = 12, .tp = 12, .seq = 12, .heads = 12};
static const family llama = {.model = "llama", .with = ATTENTION ", kv_heads = 6, ffn = 24", .batch = 12, .tp = 6, .seq = 12, .heads = 6};
static const family mixtral = {.model = "mixtral", .with = "hidden = 24, heads = 12, kv_heads = 12, seq = 24, vocab = 24, batch = 12, layers = 2, ffn = 24, experts = 12, chunks = 12", .batch = 12, .tp = 12, .seq = 12, .heads = 12, .experts = 12};
static const family bert = {.model = "bert", .with = ATTENTION, .batch = 12, .tp = 12, .seq = 12, .heads = 12};
static const family t5 = {.model = "t5", .with = "hidden = 12, heads = 12, head_dim = 2, ffn = 24, seq = 12, target_seq = 12, vocab = 24, batch = 12, layers = 1, head_scale = 0.25", .batch = 12, .tp = 12, .seq = 12, .heads = 12};
static const family transformer = {.model = "transformer", .with = "hidden = 12, heads = 12, ffn = 24, seq = 12, target_seq = 24, vocab = 24, batch = 12, layers = 1, embed_scale = 3.5", .batch = 12, .tp = 12, .seq = 12, .heads = 12};
static const family rnnlm = {.model = "rnnlm", .with = "batch = 12, seq = 5, vocab = 24, hidden = 12", .batch = 12, .tp = 12};
static const family alexnet = {.model = "alexnet", .with = "batch = 12, image = 63, width = 2, c1 = 6, c2 = 6, c3 = 6, c4 = 6, c5 = 6, hidden = 12, classes = 12", .batch = 12, .tp = 6, .most = 30};
static const family vgg19 = {.model = "vgg19", .with = "batch = 12, image = 32, width = 6, hidden = 12, classes = 12, convs1 = 1, convs2 = 1, convs3 = 1, convs4 = 2, convs5 = 1", .batch = 12, .tp = 6, .most = 16};
static const family resnet50 = {.model = "resnet50", .with = "batch = 12, image = 32, width = 6, classes = 12, blocks1 = 1, blocks2 = 1, blocks3 = 2, blocks4 = 1", .batch = 12, .tp = 6, .most = 24};
static const family resnet101 = {.model = "resnet101", .with = "batch = 12, image = 32, width = 6, classes = 12, blocks1 = 1, blocks2 = 1, blocks3 = 3, blocks4 = 1", .batch = 12, .tp = 6, .most = 12};
static const family inception_v3 = {.model = "inception_v3", .with = "batch = 6, image = 75, unit = 1, classes = 12", .batch = 6, .tp = 1, .most = 10};
/* clang-format on */

Test(families, mlp) {
    check_pairs(&mlp);
}
Test(families, gpt) {
    check_pairs(&gpt);
}
Test(families, llama) {
    check_pairs(&llama);
}
Test(families, mixtral) {
    check_pairs(&mixtral);
}
Test(families, bert) {
    check_pairs(&bert);
}
Test(families, t5) {
    check_pairs(&t5);
}
Test(families, transformer) {
    check_pairs(&transformer);
}
Test(families, rnnlm) {
    check_pairs(&rnnlm);
}
Test(families, alexnet) {
    check_pairs(&alexnet);
}
Test(families, vgg19) {
    if (FEW_CASES) cr_skip_test("a convolutional network: alexnet");
    check_pairs(&vgg19);
}
Test(families, resnet50) {
    check_pairs(&resnet50);
}
Test(families, resnet101) {
    if (FEW_CASES) cr_skip_test("as resnet50");
    check_pairs(&resnet101);
}
Test(families, inception_v3) {
    if (FEW_CASES) cr_skip_test("a convolutional network: resnet50");
    check_pairs(&inception_v3);
}

/* clang-format off */
#define WITHOUT_DROPOUT ", dropout = 0"
static const family whole[] = {
    {.model = "mlp", .with = "layers = 3, width = 6, batch = 12", .train = "loss = mse", .batch = 12},
    {.model = "gpt", .with = ATTENTION WITHOUT_DROPOUT, .batch = 12},
    {.model = "mixtral", .with = "hidden = 24, heads = 12, kv_heads = 12, seq = 24, vocab = 24, batch = 12, layers = 2, ffn = 24, experts = 12, chunks = 12", .batch = 12},
    {.model = "t5", .with = "hidden = 12, heads = 2, head_dim = 2, ffn = 24, seq = 6, target_seq = 4, vocab = 24, batch = 12, layers = 2, head_scale = 0.25" WITHOUT_DROPOUT, .batch = 12},
    {.model = "rnnlm", .with = "batch = 12, seq = 5, vocab = 24, hidden = 12", .batch = 12},
    {.model = "vgg19", .with = "batch = 12, image = 32, width = 2, hidden = 12, classes = 12, convs1 = 1, convs2 = 1, convs3 = 1, convs4 = 1, convs5 = 1" WITHOUT_DROPOUT, .batch = 12},
};
/* clang-format on */

Test(families, microbatches_are_the_whole_batch) {
    for (uint32_t i = 0; i < sizeof whole / sizeof *whole; i++) check_microbatches(&whole[i]);
}

Test(families, mlp_product) {
    check_product(&mlp);
}
Test(families, gpt_product) {
    check_product(&tiny);
}
