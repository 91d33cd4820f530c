/* The sibling, its plan, the schedule of the whole step, and what comes out. */
#include "search/compose/compose.h"

#include "ir/strategy/scenario.h"
#include "search/compose/fold.h"

#include <stdlib.h>
#include <string.h>

struct ds_composer {
    const ds_profiles *profiles;
    ds_fold fold;
};

/* ---- what is known ---- */

static bool refuse(const char **why, const char *text) {
    *why = text;
    return false;
}

bool ds_compose_can(const ds_binding *binding, const ds_sim_options *options, const char **why) {
    const ds_unit *unit = binding->unit;
    *why = NULL;
    if (!ds_unit_scenario(unit) || ds_scenario_n_jobs(unit)) return refuse(why, "jobs");
    if (!ds_scenario_model(unit) || ds_scenario_is_program(unit)) return refuse(why, "a program");
    if (options->unfold || options->stepwise) return refuse(why, "an unfolded network");
    if (options->mem_mode != DS_MEM_EXACT) return refuse(why, "memory other than exact");
    if (ds_simulate_finds(binding)) return refuse(why, "what is found by simulations");
    return true;
}

/* The form that the sibling's schedule has: the same chunks on the same stages, items of the same
 * kinds, each chunk's microbatches in order, but any number of them. */
static const char *sibling_form(const char *name) {
    return strcmp(name, "interleaved") == 0 ? "breadth-first" : name;
}

static const char *reason(const ds_knob *knob) {
    return knob->unknown ? knob->unknown : knob->name;
}

static const char *find_unknown(const ds_binding *binding, const ds_train *train,
                                const ds_strategy *strategy) {
    if (!train->on) return "no training";
    const ds_knob *knob = ds_knobs_unknown(binding, train, strategy, DS_WAY_SIBLING);
    return knob ? reason(knob) : NULL;
}

/* Has the step no more microbatches than its sibling, in the same order? */
static bool is_whole(const ds_strategy *s) {
    if (s->microbatches > DS_SIBLING) return false;
    return s->pp == 1 || strcmp(sibling_form(s->schedule), s->schedule) == 0;
}

/* ---- the schedule of the whole step ---- */

static uint32_t kind_of(char kind) {
    return kind == 'F' ? 0 : kind == 'B' ? 1 : 2;
}

/* Each chunk's items of one kind come in the order of microbatches, or all in the reverse order, as
 * the sibling's do. */
static bool list_items(const ds_schedule_index *index, ds_items *out) {
    bool reverse = strcmp(index->schedule->name, "gpipe") == 0;
    uint32_t n_groups = 3 * index->n_chunks, *seen = ds_xcalloc(n_groups, sizeof *seen);
    bool fine = index->n_copies == 1;
    out->at = ds_xcalloc(index->n_items, sizeof *out->at);
    out->rank_of = ds_xcalloc(n_groups, sizeof *out->rank_of);
    out->n_chunks = index->n_chunks;
    for (uint32_t r = 0; r < index->n_ranks; r++) {
        const ds_schedule_rank *rank = &index->schedule->ranks[index->list[r]];
        for (uint32_t i = 0; i < rank->n_items && fine; i++) {
            const ds_schedule_item *item = &rank->items[i];
            uint32_t group = kind_of(item->kind) * index->n_chunks + (uint32_t)item->chunk;
            int64_t turn = seen[group]++, m = index->n_microbatches;
            bool in_order = item->microbatch == turn;
            if (item->kind == 'B' && reverse) in_order = item->microbatch == m - 1 - turn;
            fine = item->kind != 'R' && !item->with_next && in_order;
            out->at[out->n++] = (ds_order){group, (uint32_t)item->microbatch};
            out->rank_of[group] = r;
        }
    }
    free(seen);
    return fine;
}

#define MOST_MICROBATCHES (1 << 24)

static ds_status order_items(const ds_binding *binding, const ds_strategy *s, ds_arena *arena,
                             ds_items *out, const char **why, ds_error *err) {
    if (s->microbatches > MOST_MICROBATCHES) { /* the passes refuse them, or the plan */
        *why = "more microbatches than any step has";
        return DS_OK;
    }
    if (s->pp == 1) {
        out->n =
            s->microbatches > 1 ? (uint32_t)s->microbatches : 0; /* one is no call of its own */
        out->at = ds_xcalloc(out->n, sizeof *out->at);
        out->rank_of = ds_xcalloc(1, sizeof *out->rank_of);
        for (uint32_t i = 0; i < out->n; i++) out->at[i] = (ds_order){0, i};
        return DS_OK;
    }
    ds_schedule_options options = {.name = s->schedule,
                                   .stages = s->pp,
                                   .microbatches = s->microbatches,
                                   .virtual_stages = s->virtual_stages};
    const ds_schedule *schedule;
    ds_schedule_index index;
    DS_TRY(ds_schedule_make(binding->unit, &options, &schedule, err));
    DS_TRY(ds_schedule_check(schedule, arena, &index, err));
    if (!list_items(&index, out)) *why = "a schedule of another order";
    return DS_OK;
}

/* ---- the run ---- */

static void find_fullest(const ds_plan *plan, ds_composed *out) {
    out->metrics.fits = true;
    for (uint32_t c = 0; c < plan->n_classes; c++)
        if (ds_metrics_add_peak(&out->metrics, c == 0, out->classes[c].peak_bytes,
                                ds_class_capacity(plan, c)))
            out->fullest = c;
    ds_buf path = {0};
    ds_buf_put(&path, ds_topo_device_path(plan->topo, plan->classes[out->fullest].device));
    strncpy(out->fullest_path, path.text, sizeof out->fullest_path - 1);
    ds_buf_deinit(&path);
}

static bool find_timeline(ds_sibling *s, const ds_items *items, ds_timeline *out) {
    s->why = NULL;
    if (ds_compose__timeline(s, items->at, items->n, items->rank_of, out)) return true;
    ds_compose__timeline_deinit(out);
    *out = (ds_timeline){0};
    return false;
}

/* In good faith first. Then, if items were not alone on their links, these items unit by unit. Then
 * all items: an item that is timed as a whole is known only when the last of its operands is, and
 * its sends may begin before. */
static bool find_times(ds_sibling *s, const ds_items *items, ds_timeline *out) {
    ds_compose__opaque(s);
    if (find_timeline(s, items, out)) {
        if (ds_compose__apart(out)) return true;
        ds_compose__timeline_deinit(out);
        *out = (ds_timeline){0};
    }
    s->cautious = true;
    if (find_timeline(s, items, out)) return true;
    s->followed = true;
    return !ds_stop_due(ds_compose__stop(s)) && find_timeline(s, items, out);
}

/* Do all times and bytes that a step may add up to, in doubles, stay far from the ends of int64?
 * Else the engine simulates the step, and says what is too long or too large. */
#define MOST_PS    0x1p60 /* 13 days; a flow that others slow takes longer than alone */
#define MOST_BYTES 0x1p62

static bool is_in_range(ds_sibling *s) {
    double ps = (double)s->plan->overhead_ps, bytes = 0, repeats = (double)(s->m / DS_SIBLING + 1);
    for (uint32_t p = 0; p < s->n_parts; p++) {
        const ds_body *body = s->parts[p].body;
        for (uint32_t u = 0; body && u < body->units.n; u++) {
            const ds_unit_task *unit = &body->units.at[u];
            bool moves = unit->transfer != DS_NONE;
            ps += (double)unit->ps;
            if (moves) ps += (double)ds_compose__activity(s, &s->parts[p], unit)->ps;
        }
        for (uint32_t a = 0; body && a < body->allocs.n; a++)
            bytes += (double)body->allocs.at[a].bytes;
    }
    for (uint32_t c = 0; c < s->plan->n_classes; c++)
        bytes += (double)s->input_bytes[c] + (double)s->each_bytes[c];
    if (ps * repeats < MOST_PS && bytes * repeats < MOST_BYTES) return true;
    return ds_compose__unknown(s, "times or bytes near the end of int64");
}

static bool time_and_weigh(ds_sibling *s, const ds_items *items, double model_flop,
                           ds_composed *out) {
    ds_timeline timeline = {0};
    bool fine = !s->why && is_in_range(s) && find_times(s, items, &timeline);
    if (fine) {
        ds_visits visits;
        ds_compose__visits_init(&timeline, &visits);
        int64_t *peaks = ds_xcalloc(s->plan->n_classes, sizeof *peaks);
        out->metrics.step_ps = timeline.step_ps += out->overhead_ps;
        out->n_items = items->n;
        out->n_timed = timeline.n_timed;
        out->n_repeated = timeline.n_repeated;
        out->n_classes = s->plan->n_classes;
        out->classes = ds_xcalloc(out->n_classes, sizeof *out->classes);
        fine = ds_compose__weigh(&timeline, &visits, peaks);
        for (uint32_t c = 0; c < out->n_classes; c++) out->classes[c].peak_bytes = peaks[c];
        free(peaks);
        if (fine) ds_compose__account(&timeline, &visits, model_flop, out);
        ds_compose__visits_deinit(&visits);
        if (fine) find_fullest(s->plan, out);
    }
    ds_compose__timeline_deinit(&timeline);
    return fine;
}

/* Once more without periods, if buffers turn out to be freed late. */
static bool put_together(ds_sibling *s, const ds_items *items, double model_flop,
                         ds_composed *out) {
    if (time_and_weigh(s, items, model_flop, out)) return true;
    if (!s->uncut) return false;
    s->why = NULL;
    free(out->classes);
    out->classes = NULL;
    return time_and_weigh(s, items, model_flop, out);
}

/* ---- from the step of four microbatches ---- */

static ds_status make_sibling(const ds_binding *binding, ds_model_step **out, ds_error *err) {
    DS_TRY(ds_model_step_new(binding, out, err));
    ds_strategy *s = &(*out)->strategy;
    if (s->microbatches > DS_SIBLING) s->microbatches = DS_SIBLING;
    if (s->pp > 1) s->schedule = sibling_form(s->schedule);
    (*out)->brief = (*out)->trusted = true;
    return ds_model_step_run_to(*out, DS_PASS_OVERLAP, NULL, NULL, err);
}

/* All its parts are the whole step's but the tail, which may have to have more. */
static bool repeat(ds_template *t, int64_t m) {
    bool any = false;
    for (uint32_t i = 0; i < t->plan->insts.n; i++) any = any || t->s.is_each[i];
    t->s.m = m;
    if (any && m > DS_SIBLING) ds_template__each(t);
    if (t->why) t->s.why = t->why;
    return !t->s.why;
}

static ds_status from_sibling(const ds_fold_step *step, double model_flop, ds_composed *out,
                              const char **why, ds_error *err) {
    const ds_sim_options *options = step->options;
    ds_template t = {0};
    ds_plan_options plan_options = {.max_instances = options->max_instances,
                                    .cost_mode = options->cost_mode,
                                    .ground = options->ground,
                                    .keeps_products = ds_strategy_keeps_products(step->strategy)};
    ds_status status = make_sibling(step->binding, &t.step, err);
    if (status == DS_OK)
        status = ds_plan_build(&t.step->binding, step->profiles, &plan_options, &t.plan, err);
    if (status == DS_OK) {
        out->metrics.samples = t.plan->samples;
        out->overhead_ps = t.step->train.iteration_overhead_ps;
        int64_t m = step->strategy->microbatches;
        t.s.whole = is_whole(step->strategy);
        if (ds_compose__parts(&t.s, t.plan, m < DS_SIBLING ? m : DS_SIBLING,
                              step->items->n_chunks) &&
            ds_compose__buffers(&t.s, options->keep_masks) && repeat(&t, m))
            put_together(&t.s, step->items, model_flop, out);
        *why = t.s.why;
    }
    ds_template__shape_deinit(&t);
    ds_compose__parts_deinit(&t.s);
    ds_plan_free(t.plan);
    ds_model_step_free(t.step);
    return status;
}

/* ---- from a template ---- */

/* *done: it was possible. */
static ds_status from_template(ds_composer *composer, ds_fold_step *step, double model_flop,
                               ds_composed *out, bool *done, const char **why, ds_error *err) {
    const ds_strategy *strategy = step->strategy;
    ds_template *t;
    ds_sibling s = {0};
    *done = false;
    ds_status status = ds_fold_template(&composer->fold, step, &t, err);
    const ds_knob *unknown = ds_knobs_unknown(step->binding, step->train, strategy, DS_WAY_EXACT);
    bool exact = !t && is_whole(strategy) && !unknown;
    if (unknown && (strategy->offload || strategy->zero_uneven)) *why = reason(unknown);
    if (status == DS_OK && exact) status = ds_fold_exact(&composer->fold, step, &t, why, err);
    if (status == DS_OK && t) {
        status = ds_fold_assemble(&composer->fold, step, t, &s, err);
        *done = status == DS_OK && put_together(&s, step->items, model_flop, out);
        out->folded = *done && !exact;
        *why = s.why;
        ds_fold_note_timed(&composer->fold, s.timed);
        if (!*done) ds_composed_deinit(out);
    }
    ds_compose__parts_deinit(&s);
    return status;
}

/* ---- the run ---- */

ds_composer *ds_composer_new(const ds_profiles *profiles) {
    ds_composer *composer = ds_xcalloc(1, sizeof *composer);
    composer->profiles = profiles;
    return composer;
}

void ds_composer_free(ds_composer *composer) {
    if (!composer) return;
    ds_fold_deinit(&composer->fold);
    free(composer);
}

static ds_status run(ds_composer *composer, ds_fold_step *step, ds_composed *out, const char **why,
                     ds_error *err) {
    const ds_strategy *strategy = step->strategy;
    bool done;
    double model_flop, padding;
    DS_TRY(ds_model_flop(step->binding, true, &model_flop, &padding, err));
    DS_TRY(from_template(composer, step, model_flop, out, &done, why, err));
    if (*why && (strategy->offload || strategy->zero_uneven)) return DS_OK; /* as much as a plan */
    *why = NULL;
    if (!done)
        DS_TRY(from_sibling(step, model_flop, out, why, err));
    else
        DS_TRY(ds_scenario_int(step->binding, "", "batch", &out->metrics.samples, err));
    if (*why) return DS_OK;
    DS_TRY(ds_model_samples(step->binding, &out->metrics.samples, err));
    ds_metrics_derive(&out->metrics);
    return DS_OK;
}

ds_status ds_composer_run(ds_composer *composer, const ds_binding *binding,
                          const ds_sim_options *options, ds_composed *out, const char **why,
                          ds_error *err) {
    ds_strategy strategy;
    ds_train train;
    ds_arena arena;
    ds_items items = {0};
    *out = (ds_composed){0};
    if (!ds_compose_can(binding, options, why)) return DS_OK;
    DS_TRY(ds_train_read(binding, &train, err));
    DS_TRY(ds_strategy_read(binding, &strategy, err));
    DS_TRY(ds_strategy_check(binding, &strategy, err));
    *why = find_unknown(binding, &train, &strategy);
    if (*why) return DS_OK;
    out->overhead_ps = train.iteration_overhead_ps;
    ds_arena_init(&arena);
    ds_status status = order_items(binding, &strategy, &arena, &items, why, err);
    ds_fold_step step = {.binding = binding,
                         .profiles = composer->profiles,
                         .options = options,
                         .train = &train,
                         .strategy = &strategy,
                         .items = &items,
                         .n_chunks = items.n_chunks ? items.n_chunks : 1};
    if (status == DS_OK && !*why) status = run(composer, &step, out, why, err);
    if (status != DS_OK || *why) ds_composed_deinit(out);
    free(step.turns);
    free(items.at);
    free(items.rank_of);
    ds_arena_deinit(&arena);
    return status;
}

ds_status ds_compose(const ds_binding *binding, const ds_profiles *profiles,
                     const ds_sim_options *options, ds_composed *out, const char **why,
                     ds_error *err) {
    ds_composer *composer = ds_composer_new(profiles);
    ds_status status = ds_composer_run(composer, binding, options, out, why, err);
    ds_composer_free(composer);
    return status;
}

void ds_composed_deinit(ds_composed *composed) {
    free(composed->classes);
    *composed = (ds_composed){0};
}
