/* The staged step is the lowered one: to the bit, since nothing but names and loops has changed;
 * with its gradients and updates it is the sequential step. */
#include "tests/support/stage.h"

#include "ir/lang/lang.h"
#include "ir/prove/check.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *model, *settings, *strategy;
} cases[] = {
    {"gpt", "layers=5 hidden=8 heads=2 seq=4 vocab=11 batch=2", "pp = 2"},
    {"gpt", "layers=4 hidden=8 heads=2 seq=4 vocab=11 batch=4",
     "pp = 3, microbatches = 2, stage_layers = [0, 4, 0]"},
    {"llama", "layers=4 hidden=8 heads=4 kv_heads=2 ffn=6 vocab=11 seq=4 batch=2", "pp = 4"},
    {"mlp", "layers=6 width=4 batch=3", "pp = 3, balance = flops"},
    {"t5", "layers=3 hidden=8 heads=2 head_dim=4 ffn=6 seq=4 target_seq=3 vocab=11 batch=2",
     "pp = 4"},
    {"rnnlm", "batch=2 seq=3 vocab=7 hidden=4 layers=3", "pp = 3"},
    {"mixtral", "layers=2 hidden=8 heads=2 kv_heads=1 ffn=4 experts=4 top=2 vocab=11 seq=4 batch=2",
     "pp = 2"},
    {"transformer", "layers=2 hidden=8 heads=2 ffn=6 vocab=11 seq=4 target_seq=3 batch=2",
     "pp = 4"},
    {"resnet", "batch=2 image=32 classes=5 width=2", "pp = 5"},
    {"resnet", "batch=2 image=32 classes=5 width=2 blocks1=1 blocks2=1 blocks3=1 blocks4=1",
     "pp = 3"},
    {"alexnet", "batch=1 image=63 classes=4 width=1 hidden=6", "pp = 4"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void expect_same(const ds_exec_result *a, const ds_exec_result *b, const char *what) {
    cr_assert_eq(a->outputs.n, b->outputs.n, "%s", what);
    for (uint32_t i = 0; i < a->outputs.n; i++) {
        const ds_exec_tensor *x = &a->outputs.at[i], *y = &b->outputs.at[i];
        cr_assert_eq(x->n, y->n, "%s: %s", what, x->name);
        cr_expect_str_eq(x->name, y->name);
        cr_expect_eq(memcmp(x->at, y->at, (size_t)x->n * sizeof *x->at), 0, "%s: %s", what,
                     x->name);
    }
}

Test(stage_exec, computes_what_it_did) {
    for (int i = 0; i < N_CASES; i++) {
        step_case whole, cut;
        stage_make(&cut, cases[i].model, cases[i].settings, cases[i].strategy);
        cr_assert_eq(cut.status, DS_OK, "%s: %s", cases[i].model, cut.err.message);
        char *text = stage_text(cases[i].model, strcmp(cases[i].model, "mlp") ? "none" : "mse",
                                cases[i].strategy);
        step_make(&whole, text, cases[i].settings, DS_PASS_LOWER);
        ds_exec_result *a = step_run(&whole, 3, NULL, 0), *b = step_run(&cut, 3, NULL, 0);
        expect_same(a, b, cases[i].model);
        ds_exec_result_free(a);
        ds_exec_result_free(b);
        free(text);
        step_free(&whole);
        step_free(&cut);
    }
}

/* What is printed parses, verifies, prints the same and executes the same. */
Test(stage_exec, text_is_the_step) {
    for (int i = 0; i < N_CASES; i++) {
        step_case c;
        stage_make(&c, cases[i].model, cases[i].settings, cases[i].strategy);
        char *text = step_text(&c);
        ds_unit *unit;
        ds_binding binding;
        ds_diags diags;
        ds_diags_init(&diags);
        cr_assert_eq(ds_load_text("step.dir", text, strlen(text), NULL, &unit, NULL), DS_OK);
        cr_assert_eq(ds_verify(unit, &diags), DS_OK);
        cr_assert_eq(ds_bind(unit, NULL, 0, &binding, NULL), DS_OK);
        cr_assert_eq(ds_verify_bound(unit, &binding, &diags), DS_OK);
        ds_exec_result *a = step_run(&c, 5, NULL, 0), *b = NULL;
        cr_assert_eq(ds_exec_run(&binding, &(ds_exec_options){.seed = 5}, &b, NULL), DS_OK);
        expect_same(a, b, cases[i].model);
        ds_exec_result_free(a);
        ds_exec_result_free(b);
        ds_diags_deinit(&diags);
        ds_unit_free(unit);
        free(text);
        step_free(&c);
    }
}

/* exec --verify=stage: one row a result of the model. */
Test(stage_exec, is_verified) {
    for (int i = 0; i < N_CASES; i++) {
        step_case c;
        ds_step_check check;
        ds_error err = {0};
        stage_make(&c, cases[i].model, cases[i].settings, cases[i].strategy);
        ds_step_check_options options = {.seed = 1, .passes = 1u << DS_PASS_STAGE};
        ds_status status = ds_model_step_check(&c.binding, &options, &check, &err);
        cr_assert_eq(status, DS_OK, "%s: %s", cases[i].model, err.message);
        cr_expect(check.equal, "%s", cases[i].model);
        cr_assert_eq(check.rows.n, 1, "%s", cases[i].model);
        cr_expect_eq(check.rows.at[0].pass, DS_PASS_STAGE);
        cr_expect_str_eq(check.rows.at[0].name, "loss");
        cr_expect_gt(check.rows.at[0].max_a, 0);
        ds_step_check_deinit(&check);
        step_free(&c);
    }
}
