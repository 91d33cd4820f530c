/* A step whose microbatches have their size as a param is that of any size (search/bound/small.c):
 * its plan is the one of a step that was made for that size. And where the bytes of all values grow
 * evenly, those of any size that follow from two plans (bound/bytes.c) are those of its own. */
#include "ir/passes/passes.h"
#include "search/bound/layers.h"
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

/* ---- bytes ---- */

static void same_bytes(const ds_bound_layers *a, const ds_bound_layers *b) {
    for (int p = 0; p < DS_BOUND_PLACES; p++) {
        const ds_bound_part *x = &a->part[p], *y = &b->part[p];
        cr_expect_eq(x->weight_bytes, y->weight_bytes);
        cr_expect_eq(x->state_bytes, y->state_bytes);
        cr_expect_eq(x->saved_bytes, y->saved_bytes);
        cr_expect_eq(x->work_bytes, y->work_bytes);
        cr_expect_eq(x->gradient_bytes, y->gradient_bytes);
    }
    cr_expect_eq(a->tied_bytes, b->tied_bytes);
    cr_expect_eq(a->carried_bytes, b->carried_bytes);
    cr_expect_eq(a->has_states, b->has_states);
}

/* Layers of all sizes, with times and without; `evenly`: without a plan for each. */
static void check_bytes(const char *text, const char *recompute, bool sp, int64_t tp, bool evenly) {
    sweep_case c;
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_bound_sibling s = {.tp = tp,
                          .cp = 1,
                          .ep = 1,
                          .device = "A100-SXM4-80GB",
                          .sp = sp,
                          .recompute = recompute,
                          .cp_type = "ring",
                          .tp_overlap = "none",
                          .parts = 16};
    ds_plan_ground *ground = ds_plan_ground_new();
    ds_bound_small *small = ds_bound_small_new(c.unit, NULL, 0, &s);
    cr_assert_not_null(small);
    cr_assert_not_null(small->microbatch);
    cr_expect_eq(small->grows_evenly, evenly);
    for (s.parts = 1; s.parts <= 16; s.parts *= 2) {
        ds_bound_layers quick, whole;
        s.bytes = true;
        cr_assert(ds_bound_layers_make(small, c.profiles, ground, &s, &quick));
        s.bytes = false;
        cr_assert(ds_bound_layers_make(small, c.profiles, ground, &s, &whole));
        same_bytes(&quick, &whole);
        cr_expect(whole.part[DS_BOUND_TURN].saved_bytes > 0);
    }
    cr_expect_eq(small->buffers != NULL, evenly);
    s.parts = 3;
    cr_expect_not(ds_bound_layers_make(small, c.profiles, ground, &s, &(ds_bound_layers){0}));
    ds_bound_small_free(small);
    ds_plan_ground_free(ground);
    sweep_close(&c);
}

static const char gpt[] =
    "dir 1\n"
    "param mb = 16\n"
    "import \"models/gpt.dir\" as gpt with layers = 3, hidden = 1024, heads = 4, seq = 512, vocab "
    "= "
    "8192, batch = 16\n"
    "topology @box { device gpu[2] : \"A100-SXM4-80GB\"\n"
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..2 }\n"
    "scenario { model = @gpt.gpt, on = @box, cost = fitted, train { optimizer = adam, dtype = bf16 "
    "}\n  strategy { tp = 2, microbatches = mb } }\n"
    "sweep { mb in divisors(16) }\n";

Test(bounds_small, bytes_of_all_sizes_follow_from_two) {
    check_bytes(gpt, "none", false, 1, true);
    check_bytes(gpt, "none", true, 2, true);
    check_bytes(gpt, "selective", false, 2, true);
    check_bytes(gpt, "full", true, 2, true);
}

/* %q has as many rows as columns, one a sample. */
static const char square[] =
    "dir 1\nparam mb = 16, batch = 16, layers = 4\n"
    "func @f(%x: f32[batch@dp, 64]) -> f32[batch@dp, 64] {\n"
    "  %y = for l in 0..layers carry (%h = %x) {\n"
    "    weight %w : f32[64, 64]\n"
    "    %a = matmul(%h, %w)\n"
    "    %t = transpose(%a) {perm = [1, 0]}\n"
    "    %q = matmul(%a, %t)\n"
    "    %r = relu(%q)\n"
    "    %z = matmul(%r, %a)\n"
    "    yield %z\n  }\n  return %y\n}\n"
    "topology @box { device gpu[2] : \"A100-SXM4-80GB\"\n"
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..2 }\n"
    "scenario { model = @f, on = @box, cost = fitted, train { loss = mse, optimizer = adam }\n"
    "  strategy { microbatches = mb } }\n"
    "sweep { mb in divisors(16) }\n";

Test(bounds_small, squares_of_sizes_do_not) {
    check_bytes(square, "none", false, 1, false);
}
