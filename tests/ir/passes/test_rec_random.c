/* Random recs as the loops that `lower` makes, against a naive recursion
 * (tests/support/generate/random_rec.h): the values of a rec depend neither on the schedule nor on
 * knobs. */
#include "ir/base/rng.h"
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "tests/support/cases.h"
#include "tests/support/exec.h"
#include "tests/support/generate/random_rec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Results have the model's order; their names may be longer. */
static void compare(const exec_case *c, const exec_case *model, const random_rec *p,
                    const char *loops) {
    cr_assert_eq(c->result->outputs.n, model->result->outputs.n);
    for (uint32_t i = 0; i < c->result->outputs.n; i++) {
        const ds_exec_tensor *t = &c->result->outputs.at[i];
        double want = random_rec_value(p, model->result->outputs.at[i].name);
        cr_assert(fabs(t->at[0] - want) <= 1e-9 * (1 + fabs(want)),
                  "%s is %.17g, not %.17g in\n%s\n%s", t->name, t->at[0], want, random_rec_text(p),
                  loops);
    }
}

static uint32_t n_padded; /* programs that store shapes which depend on a dim */

/* Executes the step that `lower` makes of a verified model with the recursion's inputs. */
static ds_status run_loops(exec_case *model, random_rec *p, const char *scenario) {
    ds_exec_options options = {
        .seed = 1, .inputs = random_rec_inputs(p), .n_inputs = RANDOM_REC_INPUTS};
    ds_model_step *step;
    ds_error err = {0};
    ds_status status = ds_model_step_new(&model->binding, &step, &err);
    if (status == DS_ERR_UNSUPPORTED || status == DS_ERR_VALUE) {
        cr_assert(strstr(scenario, err.message[0] == 'p' ? "prefill" : "rec_stores"), "%s\n%s%s",
                  err.message, random_rec_text(p), scenario);
        return status;
    }
    cr_assert_eq(status, DS_OK, "%s\n%s%s", err.message, random_rec_text(p), scenario);
    ds_buf loops = {0};
    exec_case c;
    ds_print_module(step->unit->modules.at[0], &loops);
    n_padded += strstr(loops.text, ".wide") != NULL;
    exec_text(&c, loops.text, NULL, &options);
    cr_assert_eq(c.status, DS_OK, "%s\n%s%s\n%s", c.err.message, random_rec_text(p), scenario,
                 loops.text);
    compare(&c, model, p, loops.text);
    exec_free(&c);
    ds_buf_deinit(&loops);
    ds_model_step_free(step);
    return DS_OK;
}

/* DS_OK: the values of the loops are equal; else the knobs are refused. */
static ds_status run_text(random_rec *p, const char *keys) {
    ds_buf text = {0}, scenario = {0};
    ds_buf_printf(&scenario, "scenario { model = @f%s }\n", keys);
    ds_buf_printf(&text, "%s%s", random_rec_text(p), scenario.text);
    exec_case model;
    exec_text(&model, text.text, NULL, NULL);
    cr_assert_eq(model.status, DS_OK, "%s\n%s", model.err.message, text.text);
    ds_status status = run_loops(&model, p, scenario.text);
    exec_free(&model);
    ds_buf_deinit(&text);
    ds_buf_deinit(&scenario);
    return status;
}

/* All of them with DISTSIM_TEST_ALL=1. */
#define N_PROGRAMS 10000u
#define EACH       (FEW_CASES ? 40u : 1u)

Test(rec_random, loops_equal_the_recursion) {
    uint32_t fine = 0, n = 0;
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed += EACH, n++) {
        random_rec *p = random_rec_new(seed);
        if (random_rec_evaluate(p)) {
            cr_expect_eq(run_text(p, ""), DS_OK);
            fine++;
        }
        random_rec_free(p);
    }
    printf("%u of %u programs equal, %u store shapes that vary\n", fine, n, n_padded);
    cr_expect_gt(fine, n / 3);
    cr_expect(FEW_CASES || n_padded > n / 100);
}

/* Any knobs of a rec. */
static void put_keys(ds_rng *rng, const random_rec *p, bool prompt, ds_buf *out) {
    static const char *const stores[] = {"rings", "whole",    "point",      "block", "paged",
                                         "ring",  "circular", "functional", "host"};
    int kind = (int)ds_rng_below(rng, 9), dim = (int)ds_rng_below(rng, 3);
    int points = 1 + (int)ds_rng_below(rng, 4);
    ds_buf_printf(out, ", strategy { rec_stores = %s", stores[kind]);
    if (kind == 3 || kind == 4) ds_buf_printf(out, ", rec_tile = %d", points);
    if (kind == 8) ds_buf_printf(out, ", rec_prefetch = %d", points);
    if (ds_rng_below(rng, 3) == 0) ds_buf_put(out, ", rec_fuse = off");
    if (ds_rng_below(rng, 3) == 0) ds_buf_put(out, ", rec_shapes = static");
    int bound = random_rec_bound(p, dim), chunk = 1 + (int)ds_rng_below(rng, 3);
    int turns = chunk * (1 + (int)ds_rng_below(rng, 3));
    bool chunks = prompt && turns <= bound;
    if (chunks) ds_buf_printf(out, ", prefill = vector, prefill_chunk = %d", chunk);
    ds_buf_put(out, " }");
    if (chunks)
        ds_buf_printf(out, ", tokens { dim = %s, prompt = %d, batch = 1 }", random_rec_dim(dim),
                      turns);
}

static void run_knobs(bool prompt, uint32_t share) {
    uint32_t fine = 0, n = 0;
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed += EACH) {
        random_rec *p = random_rec_new(seed);
        ds_rng rng = {seed};
        ds_buf keys = {0};
        put_keys(&rng, p, prompt, &keys);
        bool tried = !prompt || strstr(keys.text, "prefill");
        if (tried && random_rec_evaluate(p)) {
            fine += run_text(p, keys.text) == DS_OK;
            n++;
        }
        ds_buf_deinit(&keys);
        random_rec_free(p);
    }
    printf("%u of %u programs equal\n", fine, n);
    cr_expect_gt(fine, n / share);
}

Test(rec_random, knobs_change_no_value) {
    run_knobs(false, 2);
}

Test(rec_random, a_prompt_at_once_changes_no_value) {
    run_knobs(true, 10);
}
