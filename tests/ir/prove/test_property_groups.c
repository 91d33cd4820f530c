/* Random models whose operations lie in random groups: sets of devices that overlap or not, every
 * way, equal and unequal parts, ops that no group has. The step is the unsharded one, or is refused with a reason.
 *
 * With DISTSIM_TEST_ALL=1 the test draws until 300 pairs are equal, without until 60 are. */
#include "tests/support/cases.h"
#include "tests/support/generate/random_model.h"
#include "tests/support/prove.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS   (FEW_CASES ? 60u : 300u)
#define PARTS   2u /* tests that run side by side */
#define DEVICES 8
#define GROUPS  3u

static uint32_t draw(uint64_t seed, uint32_t what, uint32_t i, uint32_t n) {
    return (uint32_t)(ds_rng_at(seed, 100 + what, i, 0) % n);
}

/* Every fourth has stages. A model whose batch every set of at most four devices divides. */
static random_model model_of(uint64_t seed) {
    bool stages = seed % 8 >= 6;
    random_model m = random_model_of(3 * seed + !stages);
    int *at = m.plan.at;
    if (stages) { /* of one width, without W items */
        at[KNOB_SCHEDULE] = at[KNOB_VIRTUAL] = m.plan.widths = m.plan.n_layers = 0;
        at[KNOB_BALANCE] = 1;
        at[KNOB_PP] = 2;
    }
    if (at[KNOB_DP] > 4) at[KNOB_DP] = 4;
    at[KNOB_EP] = at[KNOB_SHARDS] = 1;
    if (at[KNOB_DP] == 1 || at[KNOB_DP] == 3) m.plan.uneven = 0; /* 5 parts of 12 */
    while (plan_world(&m.plan) > DEVICES) at[KNOB_TP] = at[KNOB_CP] = 1, at[KNOB_DP] = 2;
    m.size[SIZE_BATCH] = 12 * at[KNOB_MICROBATCHES];
    return m;
}

/* Bits of the last digits of operations' names: "  %v12, %v13 = topk(…)" is 2. */
static uint32_t last_digits(const char *model) {
    uint32_t digits = 0;
    for (const char *line = model; line; line = strchr(line, '\n')) {
        line += strspn(line, "\n ");
        const char *is = strstr(line, " = "), *end = strchr(line, '\n');
        if (strncmp(line, "%v", 2) != 0 || !is || is > end) continue;
        if (strncmp(is, " = for", 6) == 0 || strncmp(is, " = call", 7) == 0) continue;
        digits |= 1u << strtoul(line + 2, NULL, 10) % 10;
    }
    return digits;
}

static uint32_t devices_of(uint64_t seed, uint32_t group) {
    return 1 + draw(seed, 2, group, 4);
}

/* Unequal parts of twelve samples, for every other group that shares them. */
static void put_shares(uint64_t seed, uint32_t group, ds_buf *out) {
    static const char *const shares[] = {"[1]", "[1, 3]", "[3, 1, 2]", "[1, 2, 2, 1]"};
    if (draw(seed, 5, group, 2))
        ds_buf_printf(out, ", shares = %s", shares[devices_of(seed, group) - 1]);
}

/* Each group has the operations of some digits. Servers go with zero = 0. */
static void put_group(uint32_t digits, const random_model *m, uint32_t group, ds_buf *out) {
    static const char *const ways[] = {"all_reduce", "ps",         "ps, ps_sends = gradients",
                                       "duplicate",  "all_reduce", "split"};
    uint64_t seed = m->seed;
    uint32_t n = 0, way = draw(seed, 1, group, 6);
    if (m->plan.at[KNOB_ZERO] && way < 3) way = 0;
    for (uint32_t digit = 0; digit < 10; digit++)
        if (digits >> digit & 1 && draw(seed, 0, digit, GROUPS + 1) == group) {
            if (!n) ds_buf_printf(out, "    group \"g%u\" { ops = [", group);
            ds_buf_printf(out, "%s\"v*%u\"", n++ ? ", " : "", digit);
        }
    if (!n) return;
    ds_buf_printf(out, "], on = @g%u, by = %s", group, ways[way]);
    if (way < 3 || way == 4) put_shares(seed, group, out);
    ds_buf_put(out, " }\n");
}

/* Up to four of the devices in any order. */
static void put_meshes(uint64_t seed, ds_buf *out) {
    ds_buf_put(out, "mesh @every = [dp = 8] on @box order (3, 1, 4, 0, 5, 2, 6, 7)\n");
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t n = 1 + draw(seed, 2, g, 4), lo = draw(seed, 3, g, DEVICES + 1 - n);
        ds_buf_printf(out, "mesh @g%u = pick %u..%u of @every [%s]\n", g, lo, lo + n,
                      n == 4 && draw(seed, 4, g, 2) ? "dp = 2, tp = 2"
                      : n == 1                      ? "dp = 1"
                      : n == 2                      ? "dp = 2"
                      : n == 3                      ? "cp = 3"
                                                    : "dp = 4");
    }
}

/* The model on eight devices, with groups. */
static void print(const random_model *m, ds_buf *out) {
    ds_buf text = {0};
    random_model_print(m, &text);
    char *box = strstr(text.text, "topology @box"), *scenario = strstr(text.text, "scenario {");
    char *end = text.text + text.n - strlen("  }\n}\n");
    ds_buf_put_n(out, text.text, (size_t)(box - text.text));
    ds_buf_printf(out,
                  "topology @box {\n  device gpu[%d]\n  switch hub\n"
                  "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..%d\n}\n",
                  DEVICES, DEVICES);
    put_meshes(m->seed, out);
    ds_buf_put_n(out, scenario, (size_t)(end - scenario));
    for (uint32_t g = 0; g < GROUPS; g++) put_group(last_digits(text.text), m, g, out);
    ds_buf_put(out, "  }\n}\n");
    ds_buf_deinit(&text);
}

static proof_verdict prove_model(const random_model *m) {
    ds_buf text = {0};
    proof found;
    proof_options options = {.seed = m->seed + 1, .texts = m->seed % 4 == 0};
    print(m, &text);
    prove(text.text, &options, &found);
    if (found.verdict == PROOF_REFUSED && getenv("DISTSIM_TEST_SHOW"))
        fprintf(stderr, "seed %llu refused: %s\n", (unsigned long long)m->seed, found.what);
    cr_expect_neq(found.verdict, PROOF_WRONG, "seed %llu: %s\n%s", (unsigned long long)m->seed,
                  found.what, text.text);
    ds_buf_deinit(&text);
    return found.verdict;
}

static void check_pairs(uint32_t part) {
    uint32_t count[4] = {0};
    for (uint64_t seed = part; count[PROOF_EQUAL] < PAIRS / PARTS && count[PROOF_WRONG] < 3;
         seed += PARTS) {
        random_model m = model_of(seed);
        count[prove_model(&m)]++;
    }
    fprintf(stderr, "property_groups: %u equal, %u refused, %u undecided, %u wrong\n",
            count[PROOF_EQUAL], count[PROOF_REFUSED], count[PROOF_UNDECIDED], count[PROOF_WRONG]);
    cr_expect(count[PROOF_REFUSED] < count[PROOF_EQUAL]);
    cr_expect(count[PROOF_UNDECIDED] * 5 < count[PROOF_EQUAL]);
}

Test(property_groups, random_pairs_0) {
    check_pairs(0);
}

Test(property_groups, random_pairs_1) {
    check_pairs(1);
}
