/* Random models whose operations lie in random groups: sets of devices that overlap or not, all five
 * ways in one model, equal and unequal parts, ops that no group has, backward ops in a group of their
 * own, stages of one width or several. The step is the unsharded one, or is refused with a reason.
 *
 * With DISTSIM_TEST_ALL=1 the test draws until 300 models are equal, without until 60 are. */
#include "ir/lang/lang.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_model.h"
#include "tests/support/prove.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS  (FEW_CASES ? 60u : 300u)
#define PARTS   2u /* tests that run side by side */
#define DEVICES 8
#define GROUPS  5u /* a way each */

static uint32_t draw(uint64_t seed, uint32_t what, uint32_t i, uint32_t n) {
    return (uint32_t)(ds_rng_at(seed, 100 + what, i, 0) % n);
}

/* Every fourth has stages, of several widths every eighth. A model whose batch every set of at most
 * four devices divides. */
static random_model model_of(uint64_t seed) {
    bool stages = seed % 8 >= 6;
    random_model m = random_model_of(3 * seed + !stages);
    int *at = m.plan.at;
    if (stages) { /* without W items, and with one copy of the weights */
        at[KNOB_SCHEDULE] = (int)draw(seed, 6, 0, 3);
        at[KNOB_VIRTUAL] = m.plan.n_layers = 0;
        m.plan.widths = seed % 8 == 7 ? 1 + (int)draw(seed, 7, 0, WIDTHS_COUNT - 1) : 0;
        at[KNOB_BALANCE] = 1;
        at[KNOB_PP] = 2 + (int)draw(seed, 8, 0, 2);
    }
    if (at[KNOB_DP] > 4) at[KNOB_DP] = 4;
    if (m.plan.widths) at[KNOB_CP] = 1;
    if (m.plan.widths && m.plan.widths != NARROW_TP) m.plan.uneven = 0;
    at[KNOB_EP] = at[KNOB_SHARDS] = 1;
    if (at[KNOB_DP] == 1 || at[KNOB_DP] == 3) m.plan.uneven = 0; /* 5 parts of 12 */
    while (plan_world(&m.plan) > DEVICES) at[KNOB_TP] = at[KNOB_CP] = 1, at[KNOB_DP] = 2;
    if (seed / 2 % 4) { /* few samples beside large weights, whose factors are smaller */
        at[KNOB_TP] = at[KNOB_CP] = m.size[SIZE_SEQ] = 1;
        if (at[KNOB_DP] == 4) at[KNOB_DP] = 2;
        m.size[SIZE_HIDDEN] = m.size[SIZE_FFN] = 24;
        at[KNOB_MICROBATCHES] = 1 + stages;
    }
    m.size[SIZE_BATCH] = (seed / 2 % 4 ? 6 : 12) * at[KNOB_MICROBATCHES];
    return m;
}

/* The last digits of operations' names, "  %v12, %v13 = topk(…)" has 2; first those of operations that
 * read a weight. Returns their number. */
static uint32_t last_digits(const char *model, uint32_t *digits) {
    uint32_t n = 0, seen = 0;
    for (int weights = 1; weights >= 0; weights--)
        for (const char *line = model; line; line = strchr(line, '\n')) {
            line += strspn(line, "\n ");
            const char *is = strstr(line, " = "), *end = strchr(line, '\n');
            const char *weight = strstr(line, ", %w");
            if (strncmp(line, "%v", 2) != 0 || !is || is > end) continue;
            if (strncmp(is, " = for", 6) == 0 || strncmp(is, " = call", 7) == 0) continue;
            uint32_t digit = (uint32_t)strtoul(line + 2, NULL, 10) % 10;
            if (seen >> digit & 1 || (weights && (!weight || weight > end))) continue;
            seen |= 1u << digit;
            digits[n++] = digit;
        }
    return n;
}

typedef enum way { ALL_REDUCE, SFB, PS, DUPLICATE, SPLIT } way;

/* The ways in another order for each model. */
static way way_of(uint64_t seed, uint32_t group) {
    return (way)((group + draw(seed, 1, 0, GROUPS)) % GROUPS);
}

static bool is_small(const random_model *m) {
    return m->size[SIZE_BATCH] == 6 * m->plan.at[KNOB_MICROBATCHES];
}

/* Up to four, which divide twelve samples, or up to three. Factors take two. */
static uint32_t devices_of(const random_model *m, uint32_t group) {
    uint32_t least = way_of(m->seed, group) == SFB ? 2 : 1;
    return least + draw(m->seed, 2, group, 5 - least - is_small(m));
}

/* Unequal parts of twelve or six samples, for every other group that shares them. */
static void put_shares(const random_model *m, uint32_t group, ds_buf *out) {
    static const char *const shares[] = {"[1]", "[1, 2]", "[3, 1, 2]", "[1, 2, 2, 1]"};
    if (draw(m->seed, 5, group, 2))
        ds_buf_printf(out, ", shares = %s", shares[devices_of(m, group) - 1]);
}

/* Each digit goes to one group, the first two to that with factors; the seventh to none. A group of copies
 * has the input gradients of all others too. */
static void put_group(const char *text, const random_model *m, uint32_t group, ds_buf *out) {
    static const char *const ways[2][GROUPS] = {
        {"all_reduce", "sfb", "ps", "duplicate", "split"},
        {"all_reduce", "sfb, sfb_cost = serial", "ps, ps_sends = gradients", "duplicate", "split"}};
    uint32_t digits[10], n = 0, n_digits = last_digits(text, digits);
    way by = way_of(m->seed, group);
    for (uint32_t k = 0; k < n_digits; k++)
        if (((k ? k - 1 : 0) + SFB) % (GROUPS + 1) == by) {
            if (!n) ds_buf_printf(out, "    group \"g%u\" { ops = [", group);
            ds_buf_printf(out, "%s\"v*%u\"", n++ ? ", " : "", digits[k]);
        }
    if (!n) return;
    if (by == DUPLICATE && draw(m->seed, 9, 0, 2)) ds_buf_put(out, ", \"v*.dx\"");
    ds_buf_printf(out, "], on = @g%u, by = %s", group, ways[draw(m->seed, 10, group, 2)][by]);
    if (by < DUPLICATE) put_shares(m, group, out);
    ds_buf_put(out, " }\n");
}

/* Some of the devices in any order. */
static void put_meshes(const random_model *m, ds_buf *out) {
    static const char *const axes[] = {"dp = 1", "dp = 2", "cp = 3", "dp = 4", "dp = 2, tp = 2"};
    ds_buf_put(out, "mesh @every = [dp = 8] on @box order (3, 1, 4, 0, 5, 2, 6, 7)\n");
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t n = devices_of(m, g), lo = draw(m->seed, 3, g, DEVICES + 1 - n);
        bool two = n == 4 && draw(m->seed, 4, g, 2);
        ds_buf_printf(out, "mesh @g%u = pick %u..%u of @every [%s]\n", g, lo, lo + n,
                      axes[n - 1 + two]);
    }
}

/* The model on eight devices, with groups. On slow links factors pay. */
static void print(const random_model *m, ds_buf *out) {
    ds_buf text = {0};
    random_model_print(m, &text);
    char *box = strstr(text.text, "topology @box"), *scenario = strstr(text.text, "scenario {");
    char *end = text.text + text.n - strlen("  }\n}\n");
    ds_buf_put_n(out, text.text, (size_t)(box - text.text));
    ds_buf_printf(out,
                  "topology @box {\n  device gpu[%d] : \"A100-SXM4-80GB\"\n  switch hub\n"
                  "  link gpu[i] -- hub : 100 KB/s, 1 us for i in 0..%d\n}\n",
                  DEVICES, DEVICES);
    put_meshes(m, out);
    ds_buf_put_n(out, scenario, (size_t)(end - scenario));
    for (uint32_t g = 0; g < GROUPS; g++) put_group(text.text, m, g, out);
    ds_buf_put(out, "  }\n}\n");
    ds_buf_deinit(&text);
}

/* ---- factors ---- */

/* Writes the factors that simulation chooses into the scenario. One that does not run is left for the
 * passes to refuse, as replicas. */
static void choose_factors(ds_buf *text) {
    char *by = strstr(text->text, "by = sfb");
    sim_case c;
    if (!by) return;
    sim_run_text(&c, text->text, NULL, false);
    if (c.status == DS_OK) {
        text->n = 0;
        ds_print_module(c.unit->modules.at[0], text);
    } else {
        for (char *end = by; *end && *end != '}'; end++)
            if (strncmp(end, ", sfb_cost = serial", 19) == 0) memset(end, ' ', 19);
        memcpy(by, "by = ps ", strlen("by = ps "));
    }
    sim_free(&c);
}

static bool has_all_ways(const char *text) {
    static const char *const words[] = {" factors\"", "by = ps", "by = duplicate", "by = split"};
    bool all = true;
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) all = all && strstr(text, words[i]);
    return all;
}

/* ---- proof ---- */

typedef struct counts {
    uint32_t of[4], factors, all_ways;
} counts;

static void prove_model(const random_model *m, counts *n) {
    ds_buf text = {0};
    proof found;
    proof_options options = {.seed = m->seed + 1, .texts = m->seed % 4 == 0};
    print(m, &text);
    choose_factors(&text);
    prove(text.text, &options, &found);
    if (found.verdict == PROOF_REFUSED && getenv("DISTSIM_TEST_SHOW"))
        fprintf(stderr, "seed %llu refused: %s\n", (unsigned long long)m->seed, found.what);
    cr_expect_neq(found.verdict, PROOF_WRONG, "seed %llu: %s\n%s", (unsigned long long)m->seed,
                  found.what, text.text);
    n->of[found.verdict]++;
    bool equal = found.verdict == PROOF_EQUAL;
    n->factors += equal && strstr(text.text, " factors\"");
    n->all_ways += equal && has_all_ways(text.text);
    ds_buf_deinit(&text);
}

static void check_models(uint32_t part) {
    counts n = {0};
    for (uint64_t seed = part; n.of[PROOF_EQUAL] < MODELS / PARTS && n.of[PROOF_WRONG] < 3;
         seed += PARTS) {
        random_model m = model_of(seed);
        prove_model(&m, &n);
    }
    fprintf(stderr,
            "property_groups: %u equal, %u refused, %u undecided, %u wrong; %u of the equal with "
            "factors, %u with all ways\n",
            n.of[PROOF_EQUAL], n.of[PROOF_REFUSED], n.of[PROOF_UNDECIDED], n.of[PROOF_WRONG],
            n.factors, n.all_ways);
    cr_expect(n.of[PROOF_REFUSED] < n.of[PROOF_EQUAL]);
    cr_expect(n.of[PROOF_UNDECIDED] * 5 < n.of[PROOF_EQUAL]);
    cr_expect(n.all_ways * 5 > n.of[PROOF_EQUAL]);
}

Test(property_groups, random_models_0) {
    check_models(0);
}

Test(property_groups, random_models_1) {
    check_models(1);
}
