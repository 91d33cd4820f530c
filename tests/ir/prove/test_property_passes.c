/* Random models under random strategies: the sharded step is the unsharded one, the pipelined step
 * (every third strategy has stages) the sequential one, or it is refused with a reason; and the
 * text after every pass parses, verifies, prints as itself and executes to the same bits; of every
 * fourth pair the program of each rank too.
 *
 * With DISTSIM_TEST_ALL=1 the test draws until the passes have taken 1,000 pairs, without until they
 * have taken 120 of the same pairs. A pair that fails is made as small as it can be, and printed
 * with its seed. */
#include "tests/support/cases.h"
#include "tests/support/generate/random_model.h"
#include "tests/support/prove.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS (FEW_CASES ? 120u : 1000u)
#define PARTS 4u /* tests that run side by side */

static void prove_model(const random_model *m, proof *out) {
    ds_buf text = {0};
    proof_options options = {.seed = m->seed + 1, .texts = true, .ranks = m->seed / PARTS % 4 == 0};
    random_model_print(m, &text);
    prove(text.text, &options, out);
    ds_buf_deinit(&text);
}

/* What is wrong stays wrong while it is made smaller; that it is a scenario at all is asked first.
 */
static bool is_wrong(void *context, const random_model *m) {
    proof found;
    (void)context;
    prove_model(m, &found);
    return found.verdict == PROOF_WRONG && !strstr(found.what, "the scenario");
}

static void report(const random_model *failing, const proof *first) {
    random_model small = *failing;
    ds_buf text = {0}, name = {0};
    proof found;
    uint32_t tried = random_model_shrink(&small, is_wrong, NULL);
    random_model_print(&small, &text);
    plan_name(&small.plan, &name);
    prove_model(&small, &found);
    cr_expect(false, "seed %llu: %s\nafter %u attempts to make it smaller, %s: %s\n%s",
              (unsigned long long)failing->seed, first->what, tried, name.text ? name.text : "",
              found.what, text.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(&name);
}

/* Seeds part, part + PARTS, …: until enough pairs are equal, or three have failed. */
static void check_pairs(uint32_t part) {
    uint32_t count[4] = {0}, rounded = 0, compared = 0, ranks = 0;
    for (uint64_t seed = part; count[PROOF_EQUAL] < PAIRS / PARTS; seed += PARTS) {
        random_model m = random_model_of(seed);
        proof found;
        prove_model(&m, &found);
        count[found.verdict]++;
        rounded += found.rounded;
        compared += found.compared;
        ranks += found.ranks;
        cr_expect(!strstr(found.what, "the scenario"), "seed %llu is no model: %s",
                  (unsigned long long)seed, found.what);
        if (found.verdict == PROOF_WRONG) report(&m, &found);
        if (count[PROOF_WRONG] == 3) break;
    }
    fprintf(stderr,
            "property_passes: %u random pairs equal, %u refused, %u undecided, %u wrong; "
            "%u of %u tensors are roundings; %u as one body per rank too\n",
            count[PROOF_EQUAL], count[PROOF_REFUSED], count[PROOF_UNDECIDED], count[PROOF_WRONG],
            rounded, compared, ranks);
    cr_expect(count[PROOF_UNDECIDED] * 5 < count[PROOF_EQUAL]);
    cr_expect(rounded * 200 <= compared);
}

Test(property_passes, random_pairs_0) {
    check_pairs(0);
}

Test(property_passes, random_pairs_1) {
    check_pairs(1);
}

Test(property_passes, random_pairs_2) {
    check_pairs(2);
}

Test(property_passes, random_pairs_3) {
    check_pairs(3);
}

/* ---- shrinking, on properties that do not hold ---- */

/* "No sharded step communicates." */
static bool communicates(void *context, const random_model *m) {
    proof found;
    (void)context;
    prove_model(m, &found);
    return found.verdict == PROOF_EQUAL && found.communications > 0;
}

/* "No model has attention under ulysses and a loop." */
static bool has_loop_and_ulysses(void *context, const random_model *m) {
    ds_buf text = {0};
    (void)context;
    random_model_print(m, &text);
    bool found = strstr(text.text, "attention(") && strstr(text.text, "= for ") &&
                 strstr(text.text, "cp_type = ulysses") && m->plan.at[KNOB_CP] > 2;
    ds_buf_deinit(&text);
    return found;
}

static random_model first_that(model_fails fails) {
    random_model m;
    for (uint64_t seed = 0;; seed++) {
        m = random_model_of(seed);
        if (fails(NULL, &m) && random_model_blocks(&m) > 4) return m;
    }
}

Test(property_passes, shrinking_leaves_what_communicates) {
    random_model m = first_that(communicates), again = m;
    random_model_shrink(&m, communicates, NULL);
    cr_expect(communicates(NULL, &m));
    cr_expect(random_model_blocks(&m) <= 1);
    cr_expect_eq(plan_world(&m.plan), 2);
    cr_expect_eq(m.plan.at[KNOB_ZERO], 0);
    cr_expect_eq(m.size[SIZE_HIDDEN], 1);
    random_model_shrink(&again, communicates, NULL);
    cr_expect(memcmp(&m, &again, sizeof m) == 0, "the same failure shrinks to the same model");
}

Test(property_passes, shrinking_keeps_what_it_takes) {
    random_model m = first_that(has_loop_and_ulysses);
    random_model_shrink(&m, has_loop_and_ulysses, NULL);
    cr_expect(has_loop_and_ulysses(NULL, &m));
    cr_expect_eq(random_model_blocks(&m), 1);
    cr_expect_eq(m.n_parts, 1);
    cr_expect_eq(m.parts[0].form, PART_LOOP);
    cr_expect_eq(m.parts[0].turns, 1);
    cr_expect_eq(m.parts[0].blocks[0].kind, BLOCK_ATTENTION);
    cr_expect_eq(m.plan.at[KNOB_CP], 3);
    cr_expect_eq(plan_world(&m.plan), 3);
    cr_expect_eq(m.size[SIZE_SEQ], 1);
}
