#include "tests/support/plan.h"

#include "ir/base/arena.h"
#include "ir/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

static const char *const cp_types[] = {"ring", "ulysses", "all_gather"};
static const char *const optimizers[] = {"none", "sgd", "momentum", "adam", "adamw"};
static const char *const recomputes[] = {"none", "selective", "full"};
static const char *const orders[] = {"pp dp cp tp", "tp cp dp pp", "cp tp pp dp"};
static const char *const width_orders[] = {"pp dp cp tp", "pp tp cp dp", "pp cp tp dp"};

test_plan plan_of_one(void) {
    test_plan plan = {.n_layers = 0};
    const test_knob ones[] = {KNOB_DP,        KNOB_TP,       KNOB_CP,
                              KNOB_EP,        KNOB_SHARDS,   KNOB_MICROBATCHES,
                              KNOB_OPTIMIZER, KNOB_PREFETCH, KNOB_PP};
    for (uint32_t i = 0; i < sizeof ones / sizeof *ones; i++) plan.at[ones[i]] = 1;
    return plan;
}

int plan_width(const test_plan *plan, test_knob knob, int stage) {
    bool odd = stage % 2, tp = knob == KNOB_TP, one = false;
    if (plan->widths == DP_THEN_TP) one = odd != tp;
    if (plan->widths == NARROW_DP) one = odd && !tp;
    if (plan->widths == NARROW_TP) one = odd && tp;
    if (plan->widths == ONE_THEN_ALL) one = !odd;
    return one ? 1 : plan->at[knob];
}

int plan_world(const test_plan *plan) {
    int n = 0;
    for (int i = 0; i < plan->at[KNOB_PP] && plan->widths; i++)
        n += plan_width(plan, KNOB_DP, i) * plan_width(plan, KNOB_TP, i);
    if (plan->widths) return n;
    return plan->at[KNOB_PP] * plan->at[KNOB_DP] * plan->at[KNOB_TP] * plan->at[KNOB_CP];
}

static int share_of(const test_plan *plan, int replica) {
    return 1 + (replica + plan->uneven) % 2;
}

int plan_parts(const test_plan *plan) {
    int sum = 0;
    for (int i = 0; i < plan->at[KNOB_DP]; i++) sum += plan->uneven ? share_of(plan, i) : 1;
    return sum;
}

void plan_name(const test_plan *plan, ds_buf *out) {
    static const char *const names[KNOB_COUNT] = {
        "dp",       "tp",        "cp",           "sp",       "cp_type",   "ep",
        "zero",     "shards",    "microbatches", "order",    "optimizer", "bucket",
        "prefetch", "recompute", "pp",           "schedule", "virtual",   "balance"};
    test_plan one = plan_of_one();
    for (uint32_t k = 0; k < KNOB_COUNT; k++)
        if (plan->at[k] != one.at[k])
            ds_buf_printf(out, "%s%s=%d", out->n ? " " : "", names[k], plan->at[k]);
    if (plan->n_layers) ds_buf_printf(out, " stage_layers=%d", plan->n_layers);
    if (plan->widths) ds_buf_printf(out, " widths=%d", plan->widths);
    if (plan->uneven) ds_buf_printf(out, " uneven=%d", plan->uneven);
}

static void put_width(const test_plan *plan, const char *name, test_knob knob, ds_buf *out) {
    ds_buf_printf(out, "%s = [", name);
    for (int i = 0; i < plan->at[KNOB_PP]; i++)
        ds_buf_printf(out, "%s%d", i ? ", " : "", plan_width(plan, knob, i));
    ds_buf_put(out, "], ");
}

static void put_degrees(const test_plan *plan, ds_buf *out) {
    const int *at = plan->at;
    ds_buf_put(out, "  strategy {\n    ");
    if (plan->widths) {
        put_width(plan, "stage_dp", KNOB_DP, out);
        put_width(plan, "stage_tp", KNOB_TP, out);
    } else {
        ds_buf_printf(out, "dp = %d, tp = %d, zero_group = %d, ", at[KNOB_DP], at[KNOB_TP],
                      at[KNOB_DP] / at[KNOB_SHARDS]);
    }
    for (int i = 0; i < at[KNOB_DP] && plan->uneven; i++)
        ds_buf_printf(out, "%s%d%s", i ? ", " : "dp_shares = [", share_of(plan, i),
                      i + 1 == at[KNOB_DP] ? "], " : "");
    ds_buf_printf(out, "cp = %d, ep = %d, sp = %s\n", at[KNOB_CP], at[KNOB_EP],
                  at[KNOB_SP] ? "true" : "false");
}

static void put_pipeline(const test_plan *plan, ds_buf *out) {
    const int *at = plan->at;
    if (at[KNOB_PP] == 1) return;
    const ds_schedule_form *form = ds_schedule_form_at((uint32_t)at[KNOB_SCHEDULE]);
    ds_buf_printf(out, "\n    pp = %d, schedule = \"%s\", balance = %s", at[KNOB_PP], form->name,
                  at[KNOB_BALANCE] ? "flops" : "layers");
    if (at[KNOB_VIRTUAL]) ds_buf_printf(out, ", virtual_stages = %d", at[KNOB_VIRTUAL]);
    for (int i = 0; i < plan->n_layers; i++)
        ds_buf_printf(out, "%s%d", i ? ", " : "\n    stage_layers = [", plan->layers[i]);
    if (plan->n_layers) ds_buf_put(out, "]");
}

void plan_scenario(const test_plan *plan, const char *model, const char *train, ds_buf *out) {
    const int *at = plan->at;
    ds_buf_printf(out, "param microbatches = %d\n", at[KNOB_MICROBATCHES]);
    ds_buf_printf(out, "topology @box {\n  device gpu[%d]\n", plan_world(plan));
    ds_buf_printf(out, "  switch hub\n  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..%d\n}\n",
                  plan_world(plan));
    ds_buf_printf(out, "scenario {\n  model = @%s\n  on = @box\n  train {", model);
    if (train) ds_buf_printf(out, " %s,", train);
    ds_buf_printf(out, " optimizer = %s, keep_gradients = true }\n",
                  optimizers[at[KNOB_OPTIMIZER]]);
    put_degrees(plan, out);
    ds_buf_printf(out, "    cp_type = %s, order = \"%s\", microbatches = microbatches\n",
                  cp_types[at[KNOB_CP_TYPE]],
                  (plan->widths ? width_orders : orders)[at[KNOB_ORDER]]);
    ds_buf_printf(out, "    zero = %d, prefetch = %d", at[KNOB_ZERO], at[KNOB_PREFETCH]);
    if (at[KNOB_BUCKET]) ds_buf_printf(out, ", bucket_size = %d B", at[KNOB_BUCKET]);
    if (at[KNOB_RECOMPUTE]) ds_buf_printf(out, ", recompute = %s", recomputes[at[KNOB_RECOMPUTE]]);
    put_pipeline(plan, out);
    ds_buf_put(out, "\n  }\n}\n");
}

/* ---- spaces ---- */

/* Knobs that say nothing here are not varied: the plan would be another one's twin. */
static bool says_something(const test_plan *plan, const test_space *space) {
    const int *at = plan->at;
    const struct {
        test_knob knob;
        bool matters;
    } idle[] = {
        {KNOB_CP_TYPE, at[KNOB_CP] > 1},     {KNOB_SP, at[KNOB_TP] > 1},
        {KNOB_ZERO, at[KNOB_DP] > 1},        {KNOB_SHARDS, at[KNOB_ZERO] > 0 && at[KNOB_DP] > 1},
        {KNOB_PREFETCH, at[KNOB_ZERO] == 3}, {KNOB_ORDER, plan_world(plan) > 1},
        {KNOB_BUCKET, plan_world(plan) > 1}, {KNOB_SCHEDULE, at[KNOB_PP] > 1},
        {KNOB_VIRTUAL, at[KNOB_PP] > 1},     {KNOB_BALANCE, at[KNOB_PP] > 1}};
    for (uint32_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (!idle[i].matters && at[idle[i].knob] != space->values[idle[i].knob][0]) return false;
    return true;
}

static bool is_plan(const test_plan *plan, const test_space *space) {
    const int *at = plan->at;
    if (plan_world(plan) > space->max_world) return false;
    if (at[KNOB_DP] * at[KNOB_CP] % at[KNOB_EP] || at[KNOB_DP] % at[KNOB_SHARDS]) return false;
    if (!says_something(plan, space)) return false;
    return !space->legal || space->legal(space->context, plan);
}

static uint32_t n_values(const test_space *space, uint32_t knob) {
    uint32_t n = 0;
    while (space->values[knob][n] >= 0) n++;
    return n;
}

/* The next combination of positions; false after the last. */
static bool step(const test_space *space, uint32_t *position) {
    for (uint32_t k = KNOB_COUNT; k-- > 0;) {
        if (++position[k] < n_values(space, k)) return true;
        position[k] = 0;
    }
    return false;
}

uint32_t plan_product(const test_space *space, test_plan **out) {
    uint32_t position[KNOB_COUNT] = {0};
    DS_VEC(test_plan) all = {0};
    do {
        test_plan plan = {.n_layers = 0};
        for (uint32_t k = 0; k < KNOB_COUNT; k++) plan.at[k] = space->values[k][position[k]];
        if (is_plan(&plan, space)) DS_HPUSH(&all, plan);
    } while (step(space, position));
    *out = all.at;
    return all.n;
}

/* ---- pairs ---- */

#define VALUES 8u
#define SLOTS  (KNOB_COUNT * VALUES) /* of (knob, position of its value) */
#define DRAWS  200u

static uint32_t slot_of(const test_space *space, const test_plan *plan, uint32_t knob) {
    uint32_t i = 0;
    while (space->values[knob][i] != plan->at[knob]) i++;
    return knob * VALUES + i;
}

/* How many pairs of the plan are not covered yet; covers them. */
static uint32_t visit(const test_space *space, const test_plan *plan, bool *covered, bool cover) {
    uint32_t n = 0, slot[KNOB_COUNT];
    for (uint32_t k = 0; k < KNOB_COUNT; k++) slot[k] = slot_of(space, plan, k);
    for (uint32_t a = 0; a < KNOB_COUNT; a++)
        for (uint32_t b = a + 1; b < KNOB_COUNT; b++) {
            bool *pair = &covered[slot[a] * SLOTS + slot[b]];
            n += !*pair;
            *pair = *pair || cover;
        }
    return n;
}

/* The best of some that are drawn; if they cover nothing new, the next of all that does: what
 * covers nothing new now never will, so the cursor only moves on. */
static bool next_best(const test_space *space, const test_plan *all, uint32_t n, bool *covered,
                      ds_rng *rng, uint32_t *cursor, uint32_t *best) {
    uint32_t best_gain = 0;
    for (uint32_t i = 0; i < DRAWS && n; i++) {
        uint32_t at = (uint32_t)ds_rng_below(rng, n), gain = visit(space, &all[at], covered, false);
        if (gain > best_gain) *best = at, best_gain = gain;
    }
    for (; !best_gain && *cursor < n; ++*cursor) {
        best_gain = visit(space, &all[*cursor], covered, false);
        *best = *cursor;
    }
    return best_gain > 0;
}

uint32_t plan_pairs(const test_space *space, test_plan **out) {
    test_plan *all;
    uint32_t n = plan_product(space, &all), cursor = 0, best = 0;
    bool *covered = calloc(SLOTS * SLOTS, sizeof *covered);
    ds_rng rng = {1};
    DS_VEC(test_plan) some = {0};
    while (next_best(space, all, n, covered, &rng, &cursor, &best)) {
        visit(space, &all[best], covered, true);
        DS_HPUSH(&some, all[best]);
    }
    free(covered);
    free(all);
    *out = some.at;
    return some.n;
}
