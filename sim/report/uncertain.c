/* From the residuals of fits to an interval around the step time.
 *
 * Along the critical path every piece of time is some op's or collective's duration, predicted by a
 * fit with known residuals (ds_cost_spread). Pieces of the same work are off by the same factor: a
 * product of one shape that is 5 % slower than predicted is slower in every layer. Pieces of
 * different work are off independently, so deviations add as squares, upwards and downwards apart.
 *
 * A profile whose constants were fitted to whole steps has the residuals of these steps. Then these
 * residuals alone give the interval, since steps have deviations that no op has. For the same reason a
 * generic profile has the errors of its predictions of other steps, by part (sim/cost/interval.c). */
#include "ir/base/map.h"
#include "ir/base/units.h"
#include "sim/report/analysis.h"
#include "sim/report/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The time that one fit gives to one kind of work on the critical path. */
typedef struct share {
    double ps, low, high;
} share;

typedef struct shares {
    DS_VEC(share) at; /* heap */
    ds_map known;     /* hash of the work -> index */
} shares;

static void add(shares *s, uint64_t key, int64_t ps, ds_cost_spread spread) {
    uint64_t *found = ds_map_find(&s->known, key);
    if (!found) {
        ds_map_put(&s->known, key, s->at.n);
        share fresh = {.low = spread.low, .high = spread.high};
        DS_HPUSH(&s->at, fresh);
        found = ds_map_find(&s->known, key);
    }
    s->at.at[*found].ps += (double)ps;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    return ds_hash_mix(hash, ds_hash_bytes(text, strlen(text)));
}

/* Mnemonic and all keys of the work: rows of ops.csv that agree in these are one measurement. */
static uint64_t key_of_work(const char *label, const ds_work *w) {
    const int64_t fields[] = {w->kind,     w->dtype,  w->batch,    w->m,     w->n,
                              w->k,        w->heads,  w->kv_heads, w->seq_q, w->seq_kv,
                              w->head_dim, w->causal, w->tokens,   w->width};
    return hash_text(ds_hash_bytes(fields, sizeof fields), label);
}

static uint64_t key_of_group(const char *label, const ds_group *g) {
    const int64_t fields[] = {g->n_devices, g->bytes, g->ps};
    return hash_text(ds_hash_bytes(fields, sizeof fields), label);
}

/* The spread of a task's duration, and the key of its work; false: the spread is not known, or the
 * duration is exact. */
static bool spread_of(const ds_result *r, uint32_t task, ds_cost_spread *spread, uint64_t *key) {
    const ds_record *record = ds_plan_task_record(r->plan, task);
    if (r->plan->task_activity[task] == DS_NONE) {
        const ds_variant *v = ds_plan_task_variant(r->plan, task);
        *spread = v->cost.spread;
        *key = key_of_work(record->label, &v->work);
    } else {
        const ds_group *g = r->plan->activities[r->plan->task_activity[task]].group;
        *spread = g->terms.spread;
        *key = key_of_group(record->label, g);
    }
    return spread->low > 0 && spread->high > 0;
}

/* Time that is exact by nature counts as known: measured rows, given costs, the host's issue. */
static bool is_known(const ds_result *r, uint32_t task) {
    if (r->plan->task_activity[task] != DS_NONE) {
        const ds_group *g = r->plan->activities[r->plan->task_activity[task]].group;
        return !g->request || g->terms.from_profile;
    }
    return ds_plan_task_variant(r->plan, task)->cost.origin != DS_COST_ROOFLINE;
}

static void collect(const ds_result *r, const ds_critical_path *path, shares *s,
                    int64_t *unknown_ps) {
    for (uint32_t i = 0; i < path->n; i++) {
        const ds_segment *segment = &path->at[i];
        int64_t ps = ds_segment_ps(segment);
        ds_cost_spread spread;
        uint64_t key;
        if (segment->kind != DS_TIME_COMPUTE && segment->kind != DS_TIME_COMM) continue;
        if (spread_of(r, segment->task, &spread, &key))
            add(s, key, ps, spread);
        else if (!is_known(r, segment->task))
            *unknown_ps += ps;
    }
}

/* The spread of whole steps, if all devices have the same profile and that profile has one, or is a
 * generic one, whose spread is that of the step's parts. */
static bool spread_of_steps(const ds_result *r, const ds_critical_path *path, ds_cost_spread *out,
                            bool *by_parts) {
    const ds_plan *plan = r->plan;
    double parts[DS_PART_COUNT];
    for (uint32_t d = 1; d < plan->n_devices; d++)
        if (plan->profile_of[d] != plan->profile_of[0]) return false;
    if (!plan->n_devices) return false;
    *out = ds_profile_spread(plan->profiles, plan->profile_of[0]);
    *by_parts = !(out->low > 0 && out->high > 0);
    if (!*by_parts) return true;
    ds_step_shares(r, path, parts);
    *out = ds_profile_step_spread(plan->profiles, plan->profile_of[0], parts);
    return out->low > 0 && out->high > 0;
}

/* False: the end is beyond int64, so no interval is given. */
static bool to_ps(double ps, int64_t *out) {
    if (!(ps < 0x1p63)) return false;
    *out = (int64_t)ps;
    return true;
}

ds_uncertainty ds_result_uncertainty(const ds_result *result) {
    ds_cost_spread whole;
    int64_t step = result->run.step_ps;
    ds_uncertainty of_steps = {.covered_ps = step}, none = {.low_ps = step, .high_ps = step};
    shares s = {0};
    ds_critical_path path;
    ds_critical_path_find(result, &path);
    if (spread_of_steps(result, &path, &whole, &of_steps.by_parts)) {
        bool told = to_ps((double)step * whole.low, &of_steps.low_ps) &&
                    to_ps((double)step * whole.high, &of_steps.high_ps);
        ds_critical_path_deinit(&path);
        return told ? of_steps : none;
    }
    ds_map_init(&s.known);
    ds_uncertainty u = none;
    collect(result, &path, &s, &u.unknown_ps);
    double less = 0, more = 0, covered = 0;
    for (uint32_t i = 0; i < s.at.n; i++) {
        const share *part = &s.at.at[i];
        double down = part->low < 1 ? part->ps * (1 - part->low) : 0;
        double up = part->high > 1 ? part->ps * (part->high - 1) : 0;
        less += down * down;
        more += up * up;
        covered += floor(part->ps);
    }
    int64_t below_ps, above_ps;
    bool told = to_ps(sqrt(less), &below_ps) && to_ps(sqrt(more), &above_ps) &&
                to_ps(covered, &u.covered_ps) && ds_add_i64(step, above_ps, &u.high_ps);
    if (told)
        u.low_ps -= below_ps;
    else
        u = none;
    ds_critical_path_deinit(&path);
    ds_map_deinit(&s.known);
    free(s.at.at);
    return u;
}
