/* A step whose microbatches have their size as a param is that of any size (search/bounds_small.c):
 * its plan is the one of a step that was made for that size. */
#include "ir/passes/passes.h"
#include "sim/plan/plan.h"
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* %s: recomputation; %s: sequence parallelism. The batch of 16 comes from another param. */
static const char model[] =
    "dir 1\n"
    "param mb = 16, samples = 8, batch = 2 * samples\n"
    "import \"models/gpt.dir\" as gpt with layers = 3, hidden = 64, heads = 4, seq = 32, vocab = "
    "128, batch = batch\n"
    "topology @box { device gpu[2] : \"A100-SXM4-80GB\"\n"
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..2 }\n"
    "scenario { model = @gpt.gpt, on = @box, cost = fitted, train { optimizer = adam, dtype = bf16 "
    "}\n  strategy { tp = 2, microbatches = mb, recompute = %s, sp = %s } }\n"
    "sweep { mb in divisors(16) }\n";

static ds_model_step *make_step(const sweep_case *c, const char *mb) {
    const ds_setting setting = {"mb", mb};
    ds_binding binding;
    ds_model_step *step;
    ds_error err;
    cr_assert_eq(ds_bind(c->unit, &setting, 1, &binding, &err), DS_OK);
    cr_assert_eq(ds_model_step_new(&binding, &step, &err), DS_OK, "%s", err.message);
    step->strategy.microbatches = 2;
    step->brief = step->trusted = true;
    cr_assert_eq(ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, &err), DS_OK, "%s",
                 err.message);
    return step;
}

static ds_plan *make_plan(const sweep_case *c, const ds_model_step *step) {
    const ds_plan_options options = {.cost_mode = DS_COST_FITTED};
    ds_plan *plan;
    ds_error err;
    cr_assert_eq(ds_plan_build(&step->binding, c->profiles, &options, &plan, &err), DS_OK, "%s",
                 err.message);
    return plan;
}

static void compare(const ds_plan *a, const ds_plan *b) {
    cr_assert_eq(a->insts.n, b->insts.n);
    for (uint32_t i = 0; i < a->insts.n; i++) {
        const ds_record *x = a->records.at[a->insts.at[i].record];
        const ds_record *y = b->records.at[b->insts.at[i].record];
        cr_assert(x->kind == y->kind && x->n_variants == y->n_variants && x->n_out == y->n_out);
        cr_assert_eq(x->n_groups, y->n_groups);
        for (uint32_t v = 0; v < x->n_variants; v++) {
            cr_expect_eq(x->variants[v].ps, y->variants[v].ps, "%s", x->label);
            for (uint32_t k = 0; k < x->n_out; k++)
                cr_expect_eq(x->variants[v].out_bytes[k], y->variants[v].out_bytes[k], "%s",
                             x->label);
        }
        for (uint32_t g = 0; g < x->n_groups; g++)
            cr_expect_eq(x->groups[g].bytes, y->groups[g].bytes, "%s", x->label);
    }
}

static void check(const char *recompute, const char *sp) {
    char text[1500];
    sweep_case c;
    snprintf(text, sizeof text, model, recompute, sp);
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_model_step *open = make_step(&c, "16");
    cr_assert_not_null(open->microbatch);
    cr_expect_eq(open->batch, 16);
    static const struct {
        const char *parts, *size;
    } sizes[] = {{"8", "2"}, {"4", "4"}, {"2", "8"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ds_setting size = {open->microbatch, sizes[i].size};
        cr_assert_eq(ds_bind(open->unit, &size, 1, &open->binding, NULL), DS_OK);
        ds_model_step *other = make_step(&c, sizes[i].parts);
        ds_plan *a = make_plan(&c, open), *b = make_plan(&c, other);
        compare(a, b);
        ds_plan_free(a);
        ds_plan_free(b);
        ds_model_step_free(other);
    }
    ds_model_step_free(open);
    sweep_close(&c);
}

Test(bounds_small, of_one_size_is_of_any) {
    check("none", "true");
    check("selective", "false");
    check("full", "false");
}
