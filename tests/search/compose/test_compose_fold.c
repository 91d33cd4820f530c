/* One composer for many strategies of one model, as a worker of a sweep has: what it keeps from one
 * (templates, skeletons, timings) must be right for the next. Each is held to the simulation of the
 * whole step. */
#include "ir/base/rng.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "search/compose/compose.h"
#include "tests/support/cases.h"
#include "tests/support/composed.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char form[] =
    "dir 1\n"
    "import \"../tests/data/pod-4x8.dir\" as machine\n"
    "param dp = 1, tp = 1, pp = 1, microbatches = 5, mbs = 1, layers = 4\n"
    "param schedule = \"1f1b\", virtual_stages = 1, recompute = \"none\", zero = 0\n"
    "param order = \"pp dp cp tp\", profile = \"A100-SXM4-80GB\"\n"
    "import \"models/megatron.dir\" as model with layers = layers, hidden = 256, heads = 16,"
    " seq = 128, vocab = 1024, batch = dp * mbs * microbatches\n"
    "scenario { model = @model.gpt, on = @machine.pod, profile = profile, masks = kept\n"
    "  train { loss = none, optimizer = adam, dtype = f16, grad_dtype = f32 }\n"
    "  strategy { dp = dp, tp = tp, pp = pp, microbatches = microbatches, order = order,\n"
    "    schedule = schedule, virtual_stages = virtual_stages, recompute = recompute,\n"
    "    zero = zero, sp = %s } }\n";

enum { N_SETTINGS = 12 };

typedef struct candidate {
    char text[N_SETTINGS][24];
    ds_setting settings[N_SETTINGS];
    uint32_t n;
    char all[480];
} candidate;

static void draw(ds_rng *rng, candidate *c) {
    static const char *const names[N_SETTINGS] = {
        "dp",        "tp",   "pp",    "microbatches", "mbs", "layers", "schedule", "virtual_stages",
        "recompute", "zero", "order", "profile"};
    static const char *const profiles[] = {"A100-SXM4-80GB", "A100-Vidur-DGX", "A100-Galvatron"};
    static const char *const schedules[] = {"1f1b", "interleaved", "gpipe", "breadth-first",
                                            "zb-h1"};
    static const char *const recomputes[] = {"none", "selective", "full"};
    static const char *const orders[] = {"pp dp cp tp", "dp pp cp tp", "tp dp cp pp"};
    int pp = 1 << ds_rng_below(rng, 4), tp = 1 << ds_rng_below(rng, 5), dp = 1, v = 1;
    if (pp * tp > 32) tp = 32 / pp;
    while (pp * tp * dp < 32 && ds_rng_below(rng, 3)) dp *= 2;
    const char *schedule = schedules[pp > 1 ? ds_rng_below(rng, 5) : 0];
    int m = 1 + (int)ds_rng_below(rng, 20);
    if (strcmp(schedule, "interleaved") == 0) m = (m + pp - 1) / pp * pp;
    if (strcmp(schedule, "interleaved") == 0 || strcmp(schedule, "breadth-first") == 0)
        v = 1 + (int)ds_rng_below(rng, 4);
    int layers = pp * v + (int)ds_rng_below(rng, 40);
    if (ds_rng_below(rng, 2)) layers = pp * v * (1 + (int)ds_rng_below(rng, 9));
    const int numbers[] = {dp, tp, pp, m, 1 + (int)ds_rng_below(rng, 2), layers};
    for (int i = 0; i < 6; i++) snprintf(c->text[i], sizeof c->text[i], "%d", numbers[i]);
    snprintf(c->text[6], sizeof c->text[6], "%s", schedule);
    snprintf(c->text[7], sizeof c->text[7], "%d", v);
    snprintf(c->text[8], sizeof c->text[8], "%s", recomputes[ds_rng_below(rng, 3)]);
    snprintf(c->text[9], sizeof c->text[9], "%d", dp > 1 ? (int)ds_rng_below(rng, 3) : 0);
    snprintf(c->text[10], sizeof c->text[10], "%s", orders[ds_rng_below(rng, 3)]);
    uint64_t other = ds_rng_below(rng, 8); /* rarely another: what is kept is thrown away then */
    snprintf(c->text[11], sizeof c->text[11], "%s", profiles[other < 3 ? other : 0]);
    c->n = N_SETTINGS;
    c->all[0] = '\0';
    for (int i = 0; i < N_SETTINGS; i++) {
        c->settings[i] = (ds_setting){names[i], c->text[i]};
        size_t n = strlen(c->all);
        snprintf(c->all + n, sizeof c->all - n, "%s=%s ", names[i], c->text[i]);
    }
}

static void compare(const ds_composed *x, const ds_result *r, const char *what) {
    composed_compare_metrics(&x->metrics, &r->metrics, what);
    cr_assert_str_eq(x->fullest_path,
                     ds_topo_device_path(r->plan->topo, r->plan->classes[r->fullest].device), "%s",
                     what);
    cr_assert_eq(x->classes[x->critical].compute_ps, r->accounts[r->critical].compute_ps, "%s",
                 what);
}

typedef struct worker {
    ds_unit *unit;
    ds_profiles *profiles;
    ds_plan_ground *ground;
    ds_composer *composer;
} worker;

static worker start(const char *text) {
    worker w;
    ds_error err;
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(
        ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL, &w.unit, &err),
        DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify(w.unit, &diags), DS_OK);
    ds_diags_deinit(&diags);
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &w.profiles, &err), DS_OK);
    w.ground = ds_plan_ground_new();
    w.composer = ds_composer_new(w.profiles);
    return w;
}

static void end(worker *w) {
    ds_composer_free(w->composer);
    ds_plan_ground_free(w->ground);
    ds_profiles_free(w->profiles);
    ds_unit_free(w->unit);
}

/* Returns 0 if it was not put together, 1 if it was, 2 if it was folded, -1 if it is illegal. */
static int check(worker *w, const candidate *c) {
    ds_binding binding;
    ds_composed composed;
    ds_result *result;
    ds_error err, unsaid;
    const char *why;
    cr_assert_eq(ds_bind(w->unit, c->settings, c->n, &binding, &err), DS_OK, "%s", err.message);
    ds_sim_options options = {.cost_mode = DS_COST_FITTED, .trust_passes = true};
    cr_assert_eq(ds_sim_options_read(&binding, &options, &err), DS_OK);
    ds_status status = ds_simulate(&binding, w->profiles, &options, &result, &err);
    options.ground = w->ground;
    ds_status own = ds_composer_run(w->composer, &binding, &options, &composed, &why, &unsaid);
    if (status != DS_OK) {
        cr_assert(own != DS_OK || why, "%s: put together, but %s", c->all, err.message);
        return -1;
    }
    cr_assert_eq(own, DS_OK, "%s: %s", c->all, unsaid.message);
    int known = why ? 0 : composed.folded ? 2 : 1;
    if (why && getenv("DS_COMPOSE_WHY")) printf("%s: %s\n", c->all, why);
    if (!why) compare(&composed, result, c->all);
    if (!why) ds_composed_deinit(&composed);
    ds_result_free(result);
    return known;
}

static void draw_many(uint64_t seed, int n, bool sp) {
    char text[2048];
    snprintf(text, sizeof text, form, sp ? "on" : "off");
    worker w = start(text);
    ds_rng rng = {seed};
    int n_of[4] = {0};
    for (int i = 0; i < n; i++) {
        candidate c;
        draw(&rng, &c);
        n_of[1 + check(&w, &c)]++;
    }
    if (getenv("DS_COMPOSE_WHY"))
        printf("illegal %d, simulated %d, put together %d, folded %d\n", n_of[0], n_of[1], n_of[2],
               n_of[3]);
    cr_expect(n_of[3] * 2 >= n, "%d of %d were folded", n_of[3], n);
    end(&w);
}

/* The loss is summed over tp and dp, in their order in the mesh: on two leaves of PCIe switches a
 * ring takes some picoseconds more one way than the other, off the critical path. */
Test(compose_fold, orders_of_the_mesh) {
    static const char text[] =
        "dir 1\nimport \"topologies/pcie-8x1080ti-x4.dir\" as machine\n"
        "param order = \"dp pp cp tp\", microbatches = 4\n"
        "import \"models/mlp.dir\" as model with layers = 13, width = 768, batch = 240\n"
        "scenario { model = @model.mlp, on = @machine.four\n"
        "  train { loss = mse, optimizer = adam }\n"
        "  strategy { dp = 2, tp = 4, pp = 4, microbatches = microbatches, order = order, sp = "
        "on,\n"
        "    zero = 1, schedule = \"breadth-first\", virtual_stages = 3,\n"
        "    recompute = \"every:2\" } }\n";
    static const char *const orders[] = {"dp pp cp tp", "pp tp cp dp", "tp pp cp dp",
                                         "pp dp cp tp"};
    static const char *const microbatches[] = {"4", "12"};
    worker w = start(text);
    for (int i = 0; i < 8; i++) {
        candidate c = {.n = 2};
        c.settings[0] = (ds_setting){"order", orders[i % 4]};
        c.settings[1] = (ds_setting){"microbatches", microbatches[i / 4]};
        snprintf(c.all, sizeof c.all, "order %s, %s microbatches", orders[i % 4],
                 microbatches[i / 4]);
        cr_expect_gt(check(&w, &c), 0, "%s", c.all);
    }
    end(&w);
}

/* The first and the last candidate's devices are all alike, the others' are not. */
Test(compose_fold, a_degrade_that_varies) {
    static const char text[] =
        "dir 1\nimport \"../tests/data/pod-4x8.dir\" as machine\nparam left = 1.0\n"
        "import \"models/gpt.dir\" as model with layers = 4, hidden = 128, heads = 4, seq = 64,"
        " vocab = 512, batch = 32\n"
        "degrade n[0].gpu[0] compute = left\n"
        "scenario { model = @model.gpt, on = @machine.pod\n  train { optimizer = adam }\n"
        "  strategy { dp = 2, tp = 2, pp = 4, microbatches = 8 } }\n";
    static const char *const left[] = {"1.0", "0.5", "0.25", "1.0"};
    worker w = start(text);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        candidate c = {.settings = {{"left", left[i]}}, .n = 1};
        snprintf(c.all, sizeof c.all, "left=%s", left[i]);
        cr_expect_geq(check(&w, &c), 0);
    }
    end(&w);
}

Test(compose_fold, many) {
    const char *n = getenv("DISTSIM_TEST_FOLDS");
    draw_many(1, n ? atoi(n) : FEW_CASES ? 20 : 60, true);
}

Test(compose_fold, without_sp) {
    draw_many(2, FEW_CASES ? 10 : 40, false);
}
