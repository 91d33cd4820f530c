/* distsim plan on clusters of several kinds: the search, and what is said about the plans. */
#include "tools/cli/plan/mixed.h"

#include "ir/base/json.h"
#include "ir/base/units.h"
#include "tools/report/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_RUNS = 28, MOST_RUNS = 100000 };
static const ds_mixed_faults default_faults = {60, 300};

static const struct {
    const char *word, *unit;
} goals[DS_MIXED_GOALS] = {
    [DS_MIXED_STEP_TIME] = {"step_time", "s"},
    [DS_MIXED_COST] = {"cost", "$/M"},
    [DS_MIXED_ENERGY] = {"energy", "J"},
    [DS_MIXED_EXPECTED] = {"expected", "$/M"},
};

ds_mixed_goal cli_mixed_goal(const char *word) {
    for (int i = 0; i < DS_MIXED_GOALS; i++)
        if (strcmp(goals[i].word, word) == 0) return (ds_mixed_goal)i;
    return DS_MIXED_GOALS;
}

/* ---- what is shown ---- */

static void put_head(const cli_mixed *mixed, ds_buf *out) {
    const cli_plan *plan = mixed->plan;
    const ds_mixed_problem *problem = &mixed->problem;
    ds_buf_printf(out, "  model        %s: @%s of %s\n  machines     ", plan->source,
                  plan->model_func, plan->model.path);
    for (uint32_t k = 0; k < problem->n_kinds; k++)
        ds_buf_printf(out, "%s%" PRIu32 " x %s (%" PRIu32 " a machine)", k ? " + " : "",
                      problem->kinds[k].n_devices, problem->kinds[k].name,
                      problem->kinds[k].per_machine);
    if (plan->n_parts > 1 && !(plan->between_gb_per_s > 0))
        ds_buf_put(out, ", one network without blocking (--between)");
    if (plan->between_gb_per_s > 0)
        ds_buf_printf(out, ", %g GB/s between kinds", plan->between_gb_per_s);
    ds_buf_printf(out, "\n  batch        %" PRId64 " samples, %s\n", plan->batch, plan->batch_why);
    if (plan->seq)
        ds_buf_printf(out, "  sequence     %" PRId64 " tokens, %s\n", plan->seq, plan->seq_why);
    ds_buf_printf(out, "  training     %s, %s, no framework's rules\n", plan->dtype,
                  plan->optimizer);
    for (uint32_t k = 0; k < problem->n_kinds; k++) {
        ds_buf_printf(out, "  %-12s ", k ? "" : "prices");
        if (problem->kinds[k].usd_per_hour > 0)
            ds_buf_printf(out, "%s %g $ an hour", problem->kinds[k].name,
                          problem->kinds[k].usd_per_hour);
        else
            ds_buf_printf(out, "%s: no price is known (--price)", problem->kinds[k].name);
        if (problem->kinds[k].watts > 0)
            ds_buf_printf(out, ", %g W at most", problem->kinds[k].watts);
        if (problem->kinds[k].failures_per_hour > 0)
            ds_buf_printf(out, ", preempted %g times an hour", problem->kinds[k].failures_per_hour);
        ds_buf_put(out, "\n");
    }
    ds_buf_printf(out,
                  "%" PRIu64 " structures estimated from %" PRIu32 " simulated pieces, %" PRIu32
                  " plans simulated whole, of which %" PRIu32 " fit%s\n",
                  mixed->result.n_estimated, mixed->n_pieces, mixed->result.n_simulated,
                  mixed->result.n_plans, mixed->args->within_s > 0 ? " and are fast enough" : "");
}

static bool knows(const cli_mixed *mixed, ds_mixed_goal goal) {
    for (uint32_t k = 0; k < mixed->problem.n_kinds; k++) {
        const ds_mixed_kind *kind = &mixed->problem.kinds[k];
        if ((goal == DS_MIXED_COST || goal == DS_MIXED_EXPECTED) && !(kind->usd_per_hour > 0))
            return false;
        if (goal == DS_MIXED_ENERGY && !(kind->watts > 0)) return false;
    }
    return true;
}

static double value(const cli_mixed *mixed, const ds_mixed_plan *plan, ds_mixed_goal goal) {
    return ds_mixed_value(&mixed->problem, plan, goal, &mixed->faults,
                          (double)plan->step_ps * 1e-12);
}

static void put_value(const cli_mixed *mixed, const ds_mixed_plan *plan, ds_mixed_goal goal,
                      ds_buf *out) {
    if (knows(mixed, goal))
        ds_buf_printf(out, "%11.4g", value(mixed, plan, goal));
    else
        ds_buf_printf(out, "%11s", "-");
}

static void put_time(int64_t ps, ds_buf *out) {
    ds_buf text = {0};
    ds_print_ps(ps, &text);
    ds_buf_printf(out, "%11s", text.text);
    ds_buf_deinit(&text);
}

static void put_row(const cli_mixed *mixed, const ds_mixed_plan *plan, ds_buf *out) {
    ds_buf text = {0};
    put_time(plan->step_ps, out);
    put_value(mixed, plan, DS_MIXED_COST, out);
    put_value(mixed, plan, DS_MIXED_ENERGY, out);
    put_value(mixed, plan, DS_MIXED_EXPECTED, out);
    ds_print_bytes(plan->peak_bytes, &text);
    ds_buf_printf(out, "%11s  ", text.text);
    ds_buf_deinit(&text);
    ds_mixed_put_words(&mixed->problem, plan, out);
    ds_buf_put(out, "\n");
}

static void put_heading(const cli_mixed *mixed, const char *first, ds_buf *out) {
    const char *unit = mixed->plan->seq ? "token" : "sample";
    char cost[16], joule[16];
    snprintf(cost, sizeof cost, "$/M%.6s", mixed->plan->seq ? "tokens" : "samples");
    snprintf(joule, sizeof joule, "J/%s<=", unit);
    ds_buf_printf(out, "\n%s%11s%11s%11s%11s%11s  plan\n", first, "step time", cost, joule,
                  "expected", "memory");
}

static void put_plans(const cli_mixed *mixed, ds_buf *out) {
    put_heading(mixed, "   ", out);
    for (uint32_t i = 0; i < mixed->result.n_plans && i < mixed->args->top; i++) {
        ds_buf_printf(out, "%3" PRIu32, i + 1);
        put_row(mixed, &mixed->result.plans[i], out);
    }
}

/* Of two plans of one price the faster; equal ones once. */
static bool is_on_front(const cli_mixed *mixed, uint32_t i) {
    const ds_mixed_plan *plans = mixed->result.plans;
    double cost = value(mixed, &plans[i], DS_MIXED_COST);
    for (uint32_t k = 0; k < mixed->result.n_plans; k++) {
        double other = value(mixed, &plans[k], DS_MIXED_COST);
        bool as_good = plans[k].step_ps <= plans[i].step_ps && other <= cost;
        bool better = plans[k].step_ps < plans[i].step_ps || other < cost;
        if (k != i && as_good && (better || k < i)) return false;
    }
    return true;
}

static int by_time(const void *a, const void *b) {
    const ds_mixed_plan *x = *(const ds_mixed_plan *const *)a,
                        *y = *(const ds_mixed_plan *const *)b;
    return (x->step_ps > y->step_ps) - (x->step_ps < y->step_ps);
}

static uint32_t find_front(const cli_mixed *mixed, const ds_mixed_plan **out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < mixed->result.n_plans; i++)
        if (is_on_front(mixed, i)) out[n++] = &mixed->result.plans[i];
    qsort(out, n, sizeof *out, by_time);
    return n;
}

static void put_front(const cli_mixed *mixed, ds_buf *out) {
    const ds_mixed_plan **front = calloc(mixed->result.n_plans + 1, sizeof *front);
    uint32_t n = find_front(mixed, front);
    ds_buf_put(out, "\nPareto front of time and $ among the simulated plans");
    put_heading(mixed, "   ", out);
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_put(out, "   ");
        put_row(mixed, front[i], out);
    }
    free(front);
}

/* With preemptions: the pace, by the formula. */
static void put_faults(const cli_mixed *mixed, const ds_mixed_plan *plan, ds_buf *out) {
    double per_s = 0, interval;
    for (uint32_t k = 0; k < mixed->problem.n_kinds; k++)
        per_s += ds_mixed_used(&mixed->problem, plan, k) *
                 mixed->problem.kinds[k].failures_per_hour / 3600;
    if (!(per_s > 0)) return;
    double stretch = ds_mixed_stretch(per_s, &mixed->faults, 0, &interval);
    ds_buf_printf(out,
                  "\nPlan 1 with preemptions: one in %.4g s, a checkpoint of %g s every %.4g s of "
                  "work, restarts of %g s: %.4g times the time\n",
                  1 / per_s, mixed->faults.checkpoint_s, interval, mixed->faults.restart_s,
                  stretch);
}

/* ---- other planners ---- */

/* Of a planner's best plans the fastest as simulated. */
static ds_status run_peers(cli_mixed *mixed, ds_error *err) {
    uint32_t n;
    const ds_mixed_peer *peers = ds_mixed_peers(&n);
    mixed->peers = calloc(n, sizeof *mixed->peers);
    for (mixed->n_peers = 0; mixed->n_peers < n; mixed->n_peers++) {
        ds_mixed_peer_plans plans = {0};
        cli_mixed_peer *to = &mixed->peers[mixed->n_peers];
        peers[mixed->n_peers].plan(&mixed->problem, &plans);
        to->peer = &peers[mixed->n_peers];
        if (plans.n) DS_TRY(cli_mixed_simulate(mixed, plans.plans, plans.n, err));
        for (uint32_t i = 0; i < plans.n; i++)
            if (plans.plans[i].fits &&
                (!to->best.fits || plans.plans[i].step_ps < to->best.step_ps))
                to->best = plans.plans[i];
    }
    return DS_OK;
}

static void put_peers(const cli_mixed *mixed, ds_buf *out) {
    int64_t ours = mixed->result.plans[0].step_ps;
    ds_buf_printf(
        out,
        "\nOther planners' methods, the fastest of each method's %d best plans as simulated\n"
        "  method       step time     ours is  plan\n",
        DS_MIXED_PEER_PLANS);
    for (uint32_t i = 0; i < mixed->n_peers; i++) {
        const cli_mixed_peer *peer = &mixed->peers[i];
        ds_buf_printf(out, "  %-11s", peer->peer->name);
        if (!peer->best.fits) {
            ds_buf_put(out, "no plan that fits\n");
            continue;
        }
        put_time(peer->best.step_ps, out);
        ds_buf_printf(out, "  %7.3fx  ", (double)peer->best.step_ps / (double)ours);
        ds_mixed_put_words(&mixed->problem, &peer->best, out);
        ds_buf_put(out, "\n");
    }
}

/* ---- JSON ---- */

static void put_plan_json(const cli_mixed *mixed, const ds_mixed_plan *plan, ds_json *json) {
    ds_buf text = {0};
    ds_json_begin_object(json);
    ds_json_key_int(json, "step_time_ps", plan->step_ps);
    for (int g = DS_MIXED_COST; g < DS_MIXED_GOALS; g++)
        if (knows(mixed, (ds_mixed_goal)g)) {
            ds_json_key(json, goals[g].word);
            ds_json_double(json, value(mixed, plan, (ds_mixed_goal)g));
        }
    ds_json_key_int(json, "peak_memory_bytes", plan->peak_bytes);
    ds_json_key(json, "devices");
    ds_json_begin_object(json);
    for (uint32_t k = 0; k < mixed->problem.n_kinds; k++)
        ds_json_key_int(json, mixed->problem.kinds[k].name,
                        ds_mixed_used(&mixed->problem, plan, k));
    ds_json_end_object(json);
    ds_mixed_put_words(&mixed->problem, plan, &text);
    ds_json_key_string(json, "plan", text.text);
    text.n = 0;
    ds_mixed_put_strategy(&mixed->problem, plan, &text);
    ds_json_key_string(json, "strategy", text.text);
    ds_json_end_object(json);
    ds_buf_deinit(&text);
}

static void put_json(const cli_mixed *mixed, const char *scenario, ds_buf *out) {
    ds_json json;
    const ds_mixed_plan **front = calloc(mixed->result.n_plans + 1, sizeof *front);
    uint32_t n_front = mixed->args->front ? find_front(mixed, front) : 0;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    ds_json_key_string(&json, "model", mixed->plan->source);
    ds_json_key_string(&json, "objective", goals[mixed->goal].word);
    ds_json_key_int(&json, "batch", mixed->plan->batch);
    ds_json_key_int(&json, "structures", (int64_t)mixed->result.n_estimated);
    ds_json_key_int(&json, "simulated", mixed->result.n_simulated);
    ds_json_key(&json, "plans");
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < mixed->result.n_plans && i < mixed->args->top; i++)
        put_plan_json(mixed, &mixed->result.plans[i], &json);
    ds_json_end_array(&json);
    if (mixed->args->front) {
        ds_json_key(&json, "front");
        ds_json_begin_array(&json);
        for (uint32_t i = 0; i < n_front; i++) put_plan_json(mixed, front[i], &json);
        ds_json_end_array(&json);
    }
    if (mixed->n_peers) {
        ds_json_key(&json, "peers");
        ds_json_begin_object(&json);
        for (uint32_t i = 0; i < mixed->n_peers; i++) {
            if (!mixed->peers[i].best.fits) continue;
            ds_json_key(&json, mixed->peers[i].peer->name);
            put_plan_json(mixed, &mixed->peers[i].best, &json);
        }
        ds_json_end_object(&json);
    }
    if (scenario) ds_json_key_string(&json, "scenario", scenario);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
    free(front);
}

/* ---- all of it ---- */

static ds_status write_plan(const cli_mixed *mixed, const ds_mixed_plan *best, ds_error *err) {
    ds_buf text = {0};
    cli_plan plan = *mixed->plan;
    cli_plan_see_from(&plan, mixed->args->write);
    cli_mixed_put_program(mixed, &plan, best, &text);
    ds_status status = cli_plan_fix(&plan, mixed->args->write, &text, err);
    if (status == DS_OK)
        status = cli_write(mixed->common, mixed->args->write, text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status write_page(const cli_mixed *mixed, const char *scenario, ds_error *err) {
    ds_buf json = {0}, page = {0};
    put_json(mixed, scenario, &json);
    report_kinds_page(json.text, &page);
    ds_status status = cli_write(mixed->common, mixed->args->html, page.text, page.n, err);
    ds_buf_deinit(&json);
    ds_buf_deinit(&page);
    return status;
}

static void put_nothing(const cli_mixed *mixed, ds_buf *out) {
    if (mixed->args->within_s > 0)
        ds_buf_printf(out, "\nno simulated plan fits and takes %g s at most\n",
                      mixed->args->within_s);
    else if (mixed->result.n_simulated && mixed->first.code)
        ds_buf_printf(out, "\nno plan fits; the first that was refused: %s\n",
                      mixed->first.message);
    else
        ds_buf_put(out, "\nnothing fits: more devices, a smaller batch or a smaller model\n");
}

static ds_status show(const cli_mixed *mixed, ds_error *err) {
    const ds_mixed_result *result = &mixed->result;
    const ds_mixed_plan *best = result->n_plans ? &result->plans[0] : NULL;
    ds_buf out = {0}, scenario = {0};
    if (best) cli_mixed_put_program(mixed, mixed->plan, best, &scenario);
    if (mixed->args->json) {
        put_json(mixed, scenario.text, &out);
    } else {
        put_head(mixed, &out);
        if (best) put_plans(mixed, &out);
        if (best && mixed->args->front) put_front(mixed, &out);
        if (best && mixed->args->peers) put_peers(mixed, &out);
        if (best) put_faults(mixed, best, &out);
        if (!best) put_nothing(mixed, &out);
    }
    ds_status status = best && mixed->args->write ? write_plan(mixed, best, err) : DS_OK;
    if (status == DS_OK && mixed->args->html) status = write_page(mixed, scenario.text, err);
    bool writes = mixed->args->write && strcmp(mixed->args->write, "-") == 0;
    if (status == DS_OK) fputs(out.text, writes ? stderr : stdout);
    fprintf(stderr, "%.1f s\n", mixed->seconds);
    ds_buf_deinit(&out);
    ds_buf_deinit(&scenario);
    return status;
}

static ds_status check(const cli_mixed *mixed, ds_error *err) {
    bool prices =
        mixed->args->front || mixed->goal == DS_MIXED_COST || mixed->goal == DS_MIXED_EXPECTED;
    for (uint32_t k = 0; k < mixed->problem.n_kinds; k++) {
        const ds_mixed_kind *kind = &mixed->problem.kinds[k];
        if (prices && !(kind->usd_per_hour > 0))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "no price of %s is known: say --price %s=USD_PER_HOUR", kind->name,
                                kind->name);
        if (mixed->goal == DS_MIXED_ENERGY && !(kind->watts > 0))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE, "the power limit of %s is not known",
                                kind->name);
    }
    return DS_OK;
}

static uint32_t args_runs(const cli_mixed_arguments *args) {
    if (!args->max_runs) return DEFAULT_RUNS;
    return args->max_runs < MOST_RUNS ? (uint32_t)args->max_runs : MOST_RUNS;
}

static ds_status search(cli_mixed *mixed, ds_error *err) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    DS_TRY(cli_mixed_measure(mixed, err));
    DS_TRY(check(mixed, err));
    ds_mixed_options options = {.goal = mixed->goal,
                                .faults = mixed->faults,
                                .front = mixed->args->front,
                                .within_s = mixed->args->within_s,
                                .simulate = cli_mixed_simulate,
                                .context = mixed};
    options.max_runs = args_runs(mixed->args);
    DS_TRY(ds_mixed_search(&mixed->problem, &options, &mixed->result, err));
    clock_gettime(CLOCK_MONOTONIC, &end);
    mixed->seconds =
        (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    return DS_OK;
}

/* A key of the strategy that plans say themselves; NULL: none is fixed. */
static const char *fixed_key(const cli_plan *plan) {
    static const char *const own[] = {"dp",           "tp",           "pp",        "stage_dp",
                                      "stage_tp",     "stage_layers", "dp_shares", "order",
                                      "microbatches", "schedule",     "sp",        "zero",
                                      "recompute",    "balance",      "cp",        "ep"};
    for (uint32_t i = 0; i < plan->n_fixed; i++)
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (strncmp(plan->fixed[i].path, "strategy.", 9) == 0 &&
                strcmp(plan->fixed[i].path + 9, own[k]) == 0)
                return plan->fixed[i].path;
    return NULL;
}

int cli_plan_mixed(cli_plan *plan, const cli_mixed_arguments *args, const cli_options *common,
                   const ds_profiles *profiles) {
    cli_mixed mixed = {.plan = plan, .args = args, .common = common, .profiles = profiles};
    ds_error err;
    mixed.goal = cli_mixed_goal(plan->objective);
    mixed.faults = default_faults;
    if (args->checkpoint_s > 0) mixed.faults.checkpoint_s = args->checkpoint_s;
    if (args->restart_s > 0) mixed.faults.restart_s = args->restart_s;
    if (mixed.goal == DS_MIXED_GOALS) {
        fprintf(stderr,
                "distsim: error: --objective %s: on several kinds of machines step_time, cost, "
                "energy or expected\n",
                plan->objective);
        return 2;
    }
    if (fixed_key(plan)) {
        fprintf(stderr,
                "distsim: error: --set %s: plans on several kinds of machines say the key\n",
                fixed_key(plan));
        return 2;
    }
    mixed.n_workers = args->n_workers ? args->n_workers : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (mixed.n_workers > CLI_MIXED_WORKERS) mixed.n_workers = CLI_MIXED_WORKERS;
    for (uint32_t i = 0; i < mixed.n_workers; i++) mixed.grounds[i] = ds_plan_ground_new();
    ds_status status = search(&mixed, &err);
    if (status == DS_OK && args->peers) status = run_peers(&mixed, &err);
    if (status == DS_OK) status = show(&mixed, &err);
    int exit_code = status != DS_OK ? cli_fail(NULL, &err) : mixed.result.n_plans ? 0 : 1;
    for (uint32_t i = 0; i < mixed.n_workers; i++) ds_plan_ground_free(mixed.grounds[i]);
    ds_mixed_result_deinit(&mixed.result);
    free(mixed.peers);
    return exit_code;
}
