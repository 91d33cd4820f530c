/* The search for balance = time, and the advice to use balance = time.
 *
 * To simulate a cut, the search writes the cut into the unit's scenario (ds_scenario_set) and
 * restores the old scenario afterwards, as sim/report/advice.c does with other changes. */
#include "sim/run/balance.h"

#include "ir/strategy/scenario.h"
#include "sim/run/balance_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXCESS 0.1 /* of the busiest stage over the average; above, advice looks for a cut */

typedef struct searcher {
    const ds_binding *source;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    ds_arena arena;
    int64_t *seen[DS_BALANCE_MAX_RUNS + 1]; /* cuts that were simulated */
    uint32_t n_seen, n_chunks;
    int64_t least; /* turns that the first and the last chunk need */
    ds_result *best;
} searcher;

/* ---- the scenario ---- */

bool ds_balance_wanted(const ds_binding *source) {
    ds_strategy s;
    const ds_unit *unit = source->unit;
    if (!ds_scenario_find(unit, "strategy", "balance") || !ds_scenario_model(unit)) return false;
    if (ds_scenario_is_program(unit)) return false;
    if (ds_strategy_read(source, &s, NULL) != DS_OK) return false; /* passes report the error */
    return s.pp > 1 && s.balance == DS_BALANCE_TIME && !s.n_stage_layers;
}

static void set_balance(ds_unit *unit, const char *word) {
    ds_attr attr = {.kind = DS_ATTR_WORD, .word = ds_intern(&unit->strings, word)};
    ds_scenario_set(unit, "strategy", "balance", attr);
}

static void set_layers(ds_unit *unit, const int64_t *turns, uint32_t n) {
    ds_attr list = {.kind = DS_ATTR_LIST, .n_items = n};
    list.items = DS_NEW_N(&unit->arena, ds_attr, n + 1);
    for (uint32_t i = 0; i < n; i++)
        list.items[i] =
            (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, turns[i])};
    ds_scenario_set(unit, "strategy", "stage_layers", list);
}

/* Removes stage_layers, since a scenario's list must not be empty. */
static void drop_layers(ds_unit *unit) {
    ds_attr block = *ds_scenario_find(unit, "", "strategy"), *items;
    uint32_t n = 0;
    items = DS_NEW_N(&unit->arena, ds_attr, block.n_items + 1);
    for (uint32_t i = 0; i < block.n_items; i++)
        if (strcmp(block.items[i].name, "stage_layers") != 0) items[n++] = block.items[i];
    block.items = items;
    block.n_items = n;
    ds_scenario_set(unit, "", "strategy", block);
}

/* ---- the search ---- */

static bool is_better(const ds_result *a, const ds_result *b) {
    if (a->metrics.fits != b->metrics.fits) return a->metrics.fits;
    return a->run.step_ps < b->run.step_ps;
}

static void keep_better(searcher *s, ds_result *result) {
    if (s->best && !is_better(result, s->best)) {
        ds_result_free(result);
        return;
    }
    ds_result_free(s->best);
    s->best = result;
}

static bool is_seen(const searcher *s, const int64_t *turns) {
    for (uint32_t i = 0; i < s->n_seen; i++)
        if (memcmp(s->seen[i], turns, s->n_chunks * sizeof *turns) == 0) return true;
    return false;
}

/* The best cut for the times of `result`. */
static ds_status choose(searcher *s, const ds_result *result, int64_t **turns, ds_error *err) {
    ds_cut_times times;
    ds_cut__measure(result, &s->arena, &times);
    *turns = DS_NEW_N(&s->arena, int64_t, s->n_chunks);
    return ds_cut__choose(&times, s->least, &s->arena, *turns, err);
}

/* Simulates and measures until a cut comes again. Passes refuse a chunk without weights: after a
 * refusal the first and the last chunk need a turn, too. */
static ds_status search(searcher *s, ds_error *err) {
    int64_t *turns;
    DS_TRY(choose(s, s->best, &turns, err));
    while (s->n_seen < DS_BALANCE_MAX_RUNS && !is_seen(s, turns)) {
        ds_result *result = NULL;
        s->seen[s->n_seen++] = turns;
        set_layers(s->source->unit, turns, s->n_chunks);
        ds_status status = ds_simulate(s->source, s->profiles, s->options, &result, NULL);
        if (status != DS_OK && s->least) break;
        if (status != DS_OK) s->least = 1;
        status = choose(s, result ? result : s->best, &turns, err);
        if (result) keep_better(s, result);
        DS_TRY(status);
    }
    return DS_OK;
}

static ds_status simulate_even(searcher *s, ds_error *err) {
    ds_unit *unit = s->source->unit;
    ds_scenario old = *ds_unit_scenario(unit);
    set_balance(unit, "layers");
    ds_status status = ds_simulate(s->source, s->profiles, s->options, &s->best, err);
    ds_scenario_restore(unit, &old);
    DS_TRY(status);
    const ds_model_step *step = s->best->step;
    s->n_chunks = step->schedule.n_chunks;
    int64_t n_turns = 0;
    for (uint32_t c = 0; c < s->n_chunks; c++) n_turns += step->cut.chunk_turns[c];
    if (!n_turns && !step->train.on)
        return ds_error_set(err, DS_ERR_UNSUPPORTED,
                            ds_scenario_find(unit, "strategy", "balance")->loc,
                            "without training a pipeline is cut by layers: balance = layers, or "
                            "stage_layers");
    if (!n_turns)
        return ds_error_set(err, DS_ERR_UNSUPPORTED,
                            ds_scenario_find(unit, "strategy", "balance")->loc,
                            "balance = time gives turns of loops to the pipeline's chunks, and @%s "
                            "has no loops: say balance = flops",
                            ds_scenario_model(unit)->name);
    s->seen[s->n_seen] = DS_NEW_N(&s->arena, int64_t, s->n_chunks);
    memcpy(s->seen[s->n_seen++], step->cut.chunk_turns, s->n_chunks * sizeof(int64_t));
    return DS_OK;
}

/* Scenario and result both name the cut, as if the scenario's text had given the cut. */
static void write_cut(searcher *s) {
    ds_model_step *step = s->best->step;
    set_layers(s->source->unit, step->cut.chunk_turns, s->n_chunks);
    step->strategy.balance = DS_BALANCE_TIME;
    step->strategy.stage_layers = step->cut.chunk_turns;
    step->strategy.n_stage_layers = s->n_chunks;
}

ds_status ds_run__balance(const ds_binding *source, const ds_profiles *profiles,
                          const ds_sim_options *options, ds_result **out, ds_error *err) {
    searcher s = {.source = source, .profiles = profiles, .options = options};
    ds_scenario old = *ds_unit_scenario(source->unit);
    ds_arena_init(&s.arena);
    ds_status status = simulate_even(&s, err);
    if (status == DS_OK) status = search(&s, err);
    ds_scenario_restore(source->unit, &old);
    if (status == DS_OK) {
        write_cut(&s);
        *out = s.best;
    } else {
        ds_result_free(s.best);
    }
    ds_arena_deinit(&s.arena);
    return status;
}

/* ---- advice ---- */

/* Sets *stage to the busiest stage; returns the share by which that stage exceeds the average. */
static double excess_of(const ds_result *r, uint32_t *stage) {
    const ds_schedule_index *schedule = &r->step->schedule;
    ds_arena arena;
    ds_cut_times times;
    ds_arena_init(&arena);
    int64_t *loads = DS_NEW_N(&arena, int64_t, schedule->n_ranks);
    ds_cut__measure(r, &arena, &times);
    ds_cut__loads(&times, loads);
    double sum = 0, most = 0;
    for (uint32_t s = 0; s < schedule->n_ranks; s++) {
        sum += (double)loads[s];
        if ((double)loads[s] <= most) continue;
        most = (double)loads[s];
        *stage = s;
    }
    ds_arena_deinit(&arena);
    return sum > 0 ? most * schedule->n_ranks / sum - 1 : 0;
}

static void keep_cut(ds_result *r, const ds_result *faster, uint32_t stage, double excess) {
    const ds_model_step *step = faster->step;
    ds_faster_cut *cut = ds_xcalloc(1, sizeof *cut);
    *cut = (ds_faster_cut){.stage = stage,
                           .excess = excess,
                           .n_turns = step->schedule.n_chunks,
                           .step_ps = faster->run.step_ps,
                           .fits = faster->metrics.fits};
    cut->turns = ds_xcalloc(cut->n_turns, sizeof *cut->turns);
    memcpy(cut->turns, step->cut.chunk_turns, cut->n_turns * sizeof *cut->turns);
    r->cut = cut;
}

static bool has_turns(const ds_model_step *step) {
    for (uint32_t l = 0; l < step->cut.n_loops; l++)
        if (step->cut.loop_turns[l]) return true;
    return false;
}

void ds_balance_advise(ds_result *r, const ds_profiles *profiles, const ds_sim_options *options) {
    if (r->cut || !r->step || r->step->strategy.pp < 2 || !has_turns(r->step)) return;
    if (r->step->strategy.balance == DS_BALANCE_TIME) return;
    ds_sim_options quiet = *options;
    quiet.progress = NULL;
    uint32_t stage = 0;
    double excess = excess_of(r, &stage);
    if (excess <= MAX_EXCESS) return;
    ds_unit *unit = r->source->unit;
    ds_scenario old = *ds_unit_scenario(unit);
    ds_result *other = NULL;
    set_balance(unit, "time");
    drop_layers(unit);
    ds_status status = ds_simulate(r->source, profiles, &quiet, &other, NULL);
    ds_scenario_restore(unit, &old);
    if (status == DS_OK && is_better(other, r) && other->run.step_ps < r->run.step_ps)
        keep_cut(r, other, stage, excess);
    ds_result_free(other);
}
