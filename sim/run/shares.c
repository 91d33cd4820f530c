/* The search for dp_shares = time and a group's shares = time. To simulate parts, the search writes
 * the parts into the unit's scenario, as balance.c does with a cut. */
#include "sim/run/shares.h"

#include "ir/core/devices.h"
#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"
#include "sim/run/balance.h"
#include "sim/run/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The parts and times of a replica in the last two simulations. */
typedef struct replica {
    int64_t part, part_before;
    double time, time_before;
} replica;

/* The replicas of the strategy, or the devices of a group. */
typedef struct sharers {
    const char *group; /* NULL: dp_shares */
    ds_loc loc;
    uint32_t n;
    uint32_t *device; /* of a group, [n] */
} sharers;

typedef struct searcher {
    const ds_binding *source;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    ds_arena arena;
    const sharers *of;
    uint32_t n; /* of->n */
    int64_t samples;
    replica *replicas;
    double *fixed, *each; /* [n]: a replica's line, time = fixed + each · part */
    int64_t *seen[DS_SHARES_MAX_RUNS];
    double step[DS_SHARES_MAX_RUNS]; /* ps; results that do not fit come after all that do */
    uint32_t n_seen;
    int64_t *best_parts;
    ds_result *best;
} searcher;

/* ---- who shares ---- */

/* The devices of a mesh, by their places in the topology. */
static ds_status find_devices(const ds_binding *source, const ds_op_group *group, ds_arena *arena,
                              sharers *out, ds_error *err) {
    const ds_mesh *mesh = ds_find_mesh(source->unit->modules.at[0], group->on);
    int64_t n;
    DS_TRY(ds_mesh_count_devices(source, mesh, &n, err));
    *out = (sharers){.group = group->name, .loc = group->shares_loc, .n = (uint32_t)n};
    out->device = DS_NEW_N(arena, uint32_t, out->n);
    for (uint32_t i = 0; i < out->n; i++) {
        int64_t device;
        DS_TRY(ds_mesh_device_at(source, mesh, i, &device, err));
        out->device[i] = (uint32_t)device;
    }
    return DS_OK;
}

/* All whose parts are to be found, in the arena. */
static ds_status find_sharers(const ds_binding *source, ds_arena *arena, sharers **out, uint32_t *n,
                              ds_error *err) {
    ds_strategy s;
    DS_TRY(ds_strategy_read(source, &s, err));
    const ds_attr *dp = ds_scenario_find(source->unit, "strategy", "dp_shares");
    uint32_t n_groups = s.groups ? s.groups->n_items : 0;
    *out = DS_NEW_N(arena, sharers, n_groups + 1);
    *n = 0;
    if (dp && s.dp > 1 && s.dp_shares_by_time)
        (*out)[(*n)++] = (sharers){.loc = dp->loc, .n = (uint32_t)s.dp};
    for (uint32_t i = 0; i < n_groups; i++) {
        ds_op_group group;
        DS_TRY(ds_group_read(source, &s.groups->items[i], &group, err));
        if (group.shares_by_time) DS_TRY(find_devices(source, &group, arena, &(*out)[(*n)++], err));
    }
    return DS_OK;
}

bool ds_shares_wanted(const ds_binding *source) {
    ds_arena arena;
    sharers *all;
    uint32_t n = 0;
    if (!ds_scenario_model(source->unit) || ds_scenario_is_program(source->unit)) return false;
    ds_arena_init(&arena);
    bool known = find_sharers(source, &arena, &all, &n, NULL) == DS_OK; /* passes report errors */
    ds_arena_deinit(&arena);
    return known && n > 0;
}

/* ---- parts ---- */

static double time_of(const double *fixed, const double *each, uint32_t i, int64_t part) {
    return fixed[i] + each[i] * (double)part;
}

/* The most samples that a replica does within `time`, at least 1. */
static int64_t most_within(double fixed, double each, double time, int64_t most) {
    double n = (time - fixed) / each;
    return n < 1 ? 1 : n > (double)most ? most : (int64_t)n;
}

static int64_t sum_within(const double *fixed, const double *each, uint32_t n, double time,
                          int64_t most) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += most_within(fixed[i], each[i], time, most);
    return sum;
}

/* Bisection for the time deals out all but a few samples. Each of the rest goes to the replica that
 * ends first with one sample more. */
void ds_shares_choose(const double *fixed, const double *each, uint32_t n, int64_t n_samples,
                      int64_t *parts) {
    double low = 0, high = 0;
    for (uint32_t i = 0; i < n; i++) {
        double time = time_of(fixed, each, i, n_samples);
        if (time > high) high = time;
    }
    for (int k = 0; k < 64; k++) {
        double middle = (low + high) / 2;
        if (sum_within(fixed, each, n, middle, n_samples) > n_samples)
            high = middle;
        else
            low = middle;
    }
    int64_t left = n_samples;
    for (uint32_t i = 0; i < n; i++)
        left -= parts[i] = most_within(fixed[i], each[i], low, n_samples);
    while (left-- > 0) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            if (time_of(fixed, each, i, parts[i] + 1) < time_of(fixed, each, best, parts[best] + 1))
                best = i;
        parts[best]++;
    }
}

/* ---- measuring ---- */

/* The mesh of the step, and its axis dp. */
static const ds_placement *find_mesh(const ds_result *r, uint32_t *axis) {
    const ds_strategy *s = &r->step->strategy;
    int64_t world = s->pp * s->dp * s->cp * s->tp;
    for (uint32_t i = 0; i < r->plan->placements.n; i++) {
        const ds_placement *p = r->plan->placements.at[i];
        for (uint32_t a = 0; a < p->n_axes && p->n_devices == world; a++) {
            *axis = a;
            if (strcmp(p->axes[a], "dp") == 0 && p->sizes[a] == s->dp) return p;
        }
    }
    return NULL;
}

static void note_time(replica *x, const ds_result *r, uint32_t device) {
    uint32_t cls = r->plan->class_of[device];
    double time = cls == DS_NONE ? 0 : (double)r->accounts[cls].compute_ps;
    if (time > x->time) x->time = time;
}

/* The compute time of the busiest device of each replica. */
static void measure(searcher *s, const ds_result *r, const int64_t *parts) {
    uint32_t axis = 0, inner = 1;
    const ds_placement *mesh = s->of->group ? NULL : find_mesh(r, &axis);
    for (uint32_t i = 0; i < s->n; i++) {
        replica *x = &s->replicas[i];
        x->part_before = x->part;
        x->time_before = x->time;
        x->part = parts[i];
        x->time = 0;
    }
    for (uint32_t i = 0; i < s->n && s->of->group; i++)
        note_time(&s->replicas[i], r, s->of->device[i]);
    if (!mesh) return;
    for (uint32_t a = axis + 1; a < mesh->n_axes; a++) inner *= (uint32_t)mesh->sizes[a];
    for (uint32_t k = 0; k < mesh->n_devices; k++)
        note_time(&s->replicas[k / inner % s->n], r, mesh->devices[k]);
}

static void find_lines(searcher *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        const replica *x = &s->replicas[i];
        double slope = x->part_before && x->part_before != x->part
                           ? (x->time - x->time_before) / (double)(x->part - x->part_before)
                           : 0;
        s->each[i] = slope > 0 ? slope : x->time / (double)x->part;
        if (!(s->each[i] > 0)) s->each[i] = 1;
        s->fixed[i] = x->time - s->each[i] * (double)x->part;
    }
}

/* The best parts if this share of the lines' constants counts: all where replicas meet once at the
 * end of the step, none where the constant work follows the meeting, as an optimizer does. */
static int64_t *choose(searcher *s, double share) {
    double *fixed = DS_NEW_N(&s->arena, double, s->n);
    int64_t *parts = DS_NEW_N(&s->arena, int64_t, s->n);
    for (uint32_t i = 0; i < s->n; i++) fixed[i] = share * s->fixed[i];
    ds_shares_choose(fixed, s->each, s->n, s->samples, parts);
    return parts;
}

/* ---- the search ---- */

static void set_shares(ds_unit *unit, const sharers *of, const int64_t *parts) {
    uint32_t n = of->n;
    if (of->group) {
        ds_group_set_shares(unit, of->group, parts, n);
        return;
    }
    ds_attr list = {.kind = DS_ATTR_LIST, .n_items = n};
    list.items = DS_NEW_N(&unit->arena, ds_attr, n + 1);
    for (uint32_t i = 0; i < n; i++)
        list.items[i] =
            (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, parts[i])};
    ds_scenario_set(unit, "strategy", "dp_shares", list);
}

/* The simulation that had these parts; n_seen: none. */
static uint32_t find_seen(const searcher *s, const int64_t *parts) {
    uint32_t i = 0;
    while (i < s->n_seen && memcmp(s->seen[i], parts, s->n * sizeof *parts) != 0) i++;
    return i;
}

static bool is_better(const ds_result *a, const ds_result *b) {
    if (!b || a->metrics.fits != b->metrics.fits) return !b || a->metrics.fits;
    return a->run.step_ps < b->run.step_ps;
}

/* Simulates these parts; s->best keeps the better of two results. */
static ds_status try_parts(searcher *s, int64_t *parts, ds_error *err) {
    ds_result *result;
    s->seen[s->n_seen] = parts;
    s->step[s->n_seen++] = HUGE_VAL;
    set_shares(s->source->unit, s->of, parts);
    DS_TRY(ds_simulate(s->source, s->profiles, s->options, &result, err));
    measure(s, result, parts);
    s->step[s->n_seen - 1] = (double)result->run.step_ps * (result->metrics.fits ? 1 : 0x1p64);
    if (!is_better(result, s->best)) {
        ds_result_free(result);
        return DS_OK;
    }
    ds_result_free(s->best);
    s->best = result;
    s->best_parts = parts;
    return DS_OK;
}

/* The step's time with `share`; infinite once DS_SHARES_MAX_RUNS simulations are made. */
static double step_with(searcher *s, double share) {
    int64_t *parts = choose(s, share);
    uint32_t i = find_seen(s, parts);
    if (i == s->n_seen && (i == DS_SHARES_MAX_RUNS || try_parts(s, parts, NULL) != DS_OK))
        return HUGE_VAL;
    return s->step[i];
}

/* Golden section for the share of the lines' constants that counts. */
static void search_share(searcher *s) {
    const double golden = 0.6180339887498949;
    double low = 0, high = 1, left = 1 - golden, right = golden;
    if (memcmp(choose(s, low), choose(s, high), s->n * sizeof(int64_t)) == 0) return;
    double at_left = step_with(s, left), at_right = step_with(s, right);
    while (s->n_seen < DS_SHARES_MAX_RUNS && high - low > 1e-3) {
        if (at_left <= at_right) {
            high = right;
            right = left;
            at_right = at_left;
            left = high - golden * (high - low);
            at_left = step_with(s, left);
        } else {
            low = left;
            left = right;
            at_left = at_right;
            right = low + golden * (high - low);
            at_right = step_with(s, right);
        }
    }
}

/* Parts as equal as possible. */
static int64_t *equal_parts(ds_arena *arena, uint32_t n, int64_t samples) {
    int64_t *parts = DS_NEW_N(arena, int64_t, n);
    for (uint32_t i = 0; i < n; i++) parts[i] = samples / n + (i < samples % n);
    return parts;
}

static ds_status search(searcher *s, ds_error *err) {
    DS_TRY(try_parts(s, equal_parts(&s->arena, s->n, s->samples), err));
    while (s->n_seen < DS_SHARES_MAX_RUNS / 2) {
        find_lines(s);
        int64_t *parts = choose(s, 1);
        if (find_seen(s, parts) < s->n_seen) break;
        if (try_parts(s, parts, NULL) != DS_OK) return DS_OK;
    }
    search_share(s);
    return DS_OK;
}

/* The samples of a microbatch. */
static ds_status count_samples(const ds_binding *source, const sharers *all, uint32_t n,
                               int64_t *out, ds_error *err) {
    ds_strategy strategy;
    DS_TRY(ds_strategy_read(source, &strategy, err));
    DS_TRY(ds_model_samples(source, out, err));
    *out /= strategy.microbatches;
    for (uint32_t i = 0; i < n; i++)
        if (*out < all[i].n)
            return ds_error_set(err, DS_ERR_VALUE, all[i].loc,
                                "%s = time: a microbatch has %lld samples for %u %s",
                                all[i].group ? "shares" : "dp_shares", (long long)*out, all[i].n,
                                all[i].group ? "devices" : "replicas");
    return DS_OK;
}

/* Finds the parts of one while the others keep theirs, and leaves them in the scenario. *best gets
 * the result. */
static ds_status search_one(searcher *s, const sharers *of, ds_result **best, ds_error *err) {
    const ds_scenario old = *ds_unit_scenario(s->source->unit);
    s->of = of;
    s->n = of->n;
    s->n_seen = 0;
    s->best = NULL;
    s->replicas = DS_NEW_N(&s->arena, replica, s->n);
    s->fixed = DS_NEW_N(&s->arena, double, s->n);
    s->each = DS_NEW_N(&s->arena, double, s->n);
    ds_status status = search(s, err);
    ds_scenario_restore(s->source->unit, &old);
    if (status != DS_OK) {
        ds_result_free(s->best);
        return status;
    }
    ds_result_free(*best);
    *best = s->best;
    set_shares(s->source->unit, of, s->best_parts);
    return DS_OK;
}

static ds_status search_all(searcher *s, ds_result **best, bool *dp, ds_error *err) {
    sharers *all;
    uint32_t n;
    DS_TRY(find_sharers(s->source, &s->arena, &all, &n, err));
    DS_TRY(count_samples(s->source, all, n, &s->samples, err));
    for (uint32_t i = 0; i < n; i++)
        set_shares(s->source->unit, &all[i], equal_parts(&s->arena, all[i].n, s->samples));
    for (uint32_t i = 0; i < n; i++) DS_TRY(search_one(s, &all[i], best, err));
    *dp = n && !all[0].group;
    return DS_OK;
}

ds_status ds_run__shares(const ds_binding *source, const ds_profiles *profiles,
                         const ds_sim_options *options, ds_result **out, ds_error *err) {
    searcher s = {.source = source, .profiles = profiles, .options = options};
    const ds_scenario old = *ds_unit_scenario(source->unit);
    ds_result *best = NULL;
    bool dp = false;
    ds_arena_init(&s.arena);
    ds_status status = search_all(&s, &best, &dp, err);
    if (status == DS_OK) {
        best->step->strategy.dp_shares_by_time = dp;
        *out = best;
        /* ds_scenario_restore dropped the cut by time: find the cut for these parts again */
        if (ds_balance_wanted(source)) {
            ds_result_free(best);
            status = ds_simulate(source, profiles, options, out, err);
        }
    } else {
        ds_scenario_restore(source->unit, &old);
        ds_result_free(best);
    }
    ds_arena_deinit(&s.arena);
    return status;
}
