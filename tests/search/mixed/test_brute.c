/* The planner against all plans of a small cluster, each simulated whole: two A100 and two V100, a GPT of six
 * layers. The usual run simulates every twentieth plan, which the planner's must not lose to; DISTSIM_TEST_ALL=1
 * simulates all, and the planner's must be the best. */
#include "tests/support/cases.h"
#include "tools/cli/plan/mixed.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { BATCH = 4, MOST = 16384 };

typedef struct space {
    cli_mixed mixed;
    cli_plan plan;
    cli_mixed_arguments args;
    ds_arena arena;
    ds_profiles *profiles;
    ds_mixed_plan *plans;
    uint32_t n;
} space;

static void open_space(space *s, const char *cluster) {
    static const char *dirs[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_setting sizes[] = {
        {"layers", "6"}, {"hidden", "256"}, {"heads", "4"}, {"vocab", "1024"}};
    ds_error err;
    ds_arena_init(&s->arena);
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &s->profiles, &err), DS_OK, "%s", err.message);
    s->plan = (cli_plan){.arena = &s->arena,
                         .source = "gpt2",
                         .cluster = cluster,
                         .batch = BATCH,
                         .seq = 128,
                         .objective = "step_time",
                         .optimizer = "adam",
                         .framework = cli_plan_framework(NULL),
                         .load = {.include_dirs = dirs, .n_include_dirs = 1}};
    cr_assert_eq(cli_plan_find_model(&s->plan, NULL, 0), 0);
    cr_assert_eq(cli_plan_find_cluster(&s->plan, s->profiles), 0);
    cr_assert_eq(cli_plan_look(&s->plan, sizes, 4), 0);
    cli_plan_choose_dtype(&s->plan, s->profiles);
    s->mixed =
        (cli_mixed){.plan = &s->plan, .args = &s->args, .profiles = s->profiles, .n_workers = 1};
    s->mixed.grounds[0] = ds_plan_ground_new();
    cr_assert_eq(cli_mixed_measure(&s->mixed, &err), DS_OK, "%s", err.message);
    s->plans = calloc(MOST, sizeof *s->plans);
}

static void close_space(space *s) {
    ds_plan_ground_free(s->mixed.grounds[0]);
    ds_profiles_free(s->profiles);
    ds_arena_deinit(&s->arena);
    free(s->plans);
}

/* ---- all plans ---- */

static void add(space *s, const ds_mixed_plan *plan) {
    cr_assert_lt(s->n, MOST);
    s->plans[s->n++] = *plan;
}

static void add_knobs(space *s, ds_mixed_plan plan) {
    for (int64_t m = 1; m <= BATCH; m *= 2)
        for (uint8_t zero = 0; zero < 2; zero++)
            for (int eager = 0; eager < 2; eager++) {
                bool may = true;
                plan.microbatches = m;
                plan.zero = zero;
                plan.eager = eager && plan.n_stages > 1;
                for (uint32_t i = 0; i < plan.n_stages && !plan.side_by_side; i++)
                    may = may && BATCH / m % plan.stages[i].dp == 0;
                if (may) add(s, &plan);
            }
}

static void add_cuts(space *s, ds_mixed_plan *plan, uint32_t stage, uint32_t left) {
    if (stage + 1 == plan->n_stages) {
        plan->stages[stage].layers = (uint16_t)left;
        add_knobs(s, *plan);
        return;
    }
    for (uint32_t l = 1; l + plan->n_stages - stage - 1 <= left; l++) {
        plan->stages[stage].layers = (uint16_t)l;
        add_cuts(s, plan, stage + 1, left - l);
    }
}

/* Each kind's stages come together: the devices that are left of the two of each kind. */
static void add_stages(space *s, ds_mixed_plan plan, const uint32_t left[2]) {
    static const uint16_t widths[][2] = {{1, 1}, {2, 1}, {1, 2}};
    uint8_t at = plan.n_stages;
    if (at > 1) add_cuts(s, &plan, 0, s->mixed.problem.layers);
    for (uint8_t k = 0; k < 2; k++) {
        if (at > 1 && plan.stages[at - 1].kind != k && plan.stages[0].kind == k) continue;
        for (uint32_t w = 0; w < 3; w++) {
            uint32_t need = widths[w][0] * widths[w][1], now[2] = {left[0], left[1]};
            if (need > left[k]) continue;
            now[k] -= need;
            plan.stages[at] = (ds_mixed_stage){k, widths[w][0], widths[w][1], 0};
            plan.n_stages = (uint8_t)(at + 1);
            add_stages(s, plan, now);
            plan.n_stages = at;
        }
    }
}

/* a and b replicas on the kinds, each a pipeline of `stages`, with all parts of a microbatch. */
static void add_shares(space *s, const ds_mixed_plan *pipeline, uint16_t a, uint16_t b) {
    for (int64_t m = 1; m <= BATCH; m *= 2)
        for (int64_t part = a; part <= BATCH / m - b; part++)
            for (int way = 0; way < 4; way++) {
                ds_mixed_plan plan = *pipeline;
                plan.microbatches = m;
                plan.zero = (uint8_t)(way % 2);
                plan.eager = way / 2;
                if (a) plan.groups[plan.n_groups++] = (ds_mixed_group){0, a, part};
                if (b) plan.groups[plan.n_groups++] = (ds_mixed_group){1, b, BATCH / m - part};
                if (plan.eager && plan.n_stages == 1) continue;
                if (a && !b && part < BATCH / m) continue;
                if (plan.zero && a + b < 2) continue;
                add(s, &plan);
            }
}

static void add_replicas(space *s) {
    for (uint16_t a = 0; a <= 2; a++)
        for (uint16_t b = 0; b <= 2; b++) {
            ds_mixed_plan plan = {.side_by_side = true, .n_stages = 1};
            for (uint16_t tp = 1; tp <= 2 && a + b > 0; tp++) {
                plan.stages[0] = (ds_mixed_stage){0, 0, tp, 6};
                if (a * tp <= 2 && b * tp <= 2) add_shares(s, &plan, a, b);
            }
            plan.n_stages = 2;
            plan.stages[0].tp = plan.stages[1].tp = 1;
            for (uint16_t l = 1; l < 6 && a <= 1 && b <= 1 && a + b > 0; l++) {
                plan.stages[0].layers = l;
                plan.stages[1].layers = (uint16_t)(6 - l);
                add_shares(s, &plan, a, b);
            }
        }
}

static uint32_t keep_every(space *s, uint32_t nth) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i += nth) s->plans[n++] = s->plans[i];
    return n;
}

Test(mixed, planner_equals_enumeration, .timeout = 280) {
    space s = {0};
    ds_error err;
    open_space(&s, "A100-40GB:1x2,V100:1x2");
    add_stages(&s, (ds_mixed_plan){0}, (uint32_t[]){2, 2});
    add_replicas(&s);
    s.n = keep_every(&s, FEW_CASES ? 20 : 1);
    cr_assert_eq(cli_mixed_simulate(&s.mixed, s.plans, s.n, &err), DS_OK);
    const ds_mixed_plan *least = NULL;
    for (uint32_t i = 0; i < s.n; i++)
        if (s.plans[i].fits && (!least || s.plans[i].step_ps < least->step_ps)) least = &s.plans[i];
    const ds_mixed_options options = {
        .max_runs = 32, .simulate = cli_mixed_simulate, .context = &s.mixed};
    ds_mixed_result result;
    cr_assert_eq(ds_mixed_search(&s.mixed.problem, &options, &result, &err), DS_OK);
    ds_buf words = {0};
    ds_mixed_put_words(&s.mixed.problem, least, &words);
    ds_buf_put(&words, "; ours: ");
    ds_mixed_put_words(&s.mixed.problem, &result.plans[0], &words);
    cr_assert_leq(result.plans[0].step_ps, least->step_ps,
                  "%u plans, the best %lld ps: %s; ours %lld", s.n, (long long)least->step_ps,
                  words.text, (long long)result.plans[0].step_ps);
    if (!FEW_CASES)
        cr_assert_eq(result.plans[0].step_ps, least->step_ps, "%u plans: %s", s.n, words.text);
    ds_buf_deinit(&words);
    ds_mixed_result_deinit(&result);
    close_space(&s);
}
