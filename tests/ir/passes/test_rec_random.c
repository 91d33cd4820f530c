/* Random recs as the loops that `lower` makes, against a naive recursion
 * (tests/support/generate/random_rec.h): the values of a rec do not depend on the schedule. */
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
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

/* Executes the step that `lower` makes of a verified model with the recursion's inputs. */
static ds_status run_loops(exec_case *model, random_rec *p) {
    ds_exec_options options = {
        .seed = 1, .inputs = random_rec_inputs(p), .n_inputs = RANDOM_REC_INPUTS};
    ds_model_step *step;
    ds_error err = {0};
    ds_status status = ds_model_step_new(&model->binding, &step, &err);
    if (status == DS_ERR_UNSUPPORTED) return status;
    cr_assert_eq(status, DS_OK, "%s\n%s", err.message, random_rec_text(p));
    ds_buf loops = {0};
    exec_case c;
    ds_print_module(step->unit->modules.at[0], &loops);
    exec_text(&c, loops.text, NULL, &options);
    cr_assert_eq(c.status, DS_OK, "%s\n%s\n%s", c.err.message, random_rec_text(p), loops.text);
    compare(&c, model, p, loops.text);
    exec_free(&c);
    ds_buf_deinit(&loops);
    ds_model_step_free(step);
    return DS_OK;
}

/* False: the values have loops, and are equal. */
static bool run_text(random_rec *p, const char *strategy) {
    ds_buf text = {0};
    ds_buf_printf(&text, "%sscenario { model = @f%s }\n", random_rec_text(p), strategy);
    exec_case model;
    exec_text(&model, text.text, NULL, NULL);
    cr_assert_eq(model.status, DS_OK, "%s\n%s", model.err.message, text.text);
    bool unstored = run_loops(&model, p) == DS_ERR_UNSUPPORTED;
    exec_free(&model);
    ds_buf_deinit(&text);
    return unstored;
}

#define N_PROGRAMS 10000

Test(rec_random, loops_equal_the_recursion) {
    int fine = 0, unstored = 0;
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed++) {
        random_rec *p = random_rec_new(seed);
        if (random_rec_evaluate(p)) {
            unstored += run_text(p, "");
            if (seed % 4 == 0) run_text(p, ", strategy { rec_fuse = off }");
            fine++;
        }
        random_rec_free(p);
    }
    printf("%d equal, %d of them not stored yet\n", fine, unstored);
    cr_expect_gt(fine, N_PROGRAMS / 3);
    cr_expect_lt(unstored, fine / 10);
}
