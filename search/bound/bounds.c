/* The formulas of bounds.h.
 *
 * Doubles are good for 15 digits; a billionth is taken off before a time is rounded down. */
#include "search/bound/bounds.h"

#include "ir/strategy/strategy.h"

/* Simulated durations are rounded up to picoseconds; sums of doubles err by far less. */
static int64_t round_down(double seconds) {
    double ps = seconds * 1e12 * (1 - 1e-9);
    return ps >= 9e18 ? INT64_MAX : ps > 1 ? (int64_t)ps - 1 : 0;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- time ---- */

/* The time on the stages before a stage, until the first microbatch comes to the stage, and after
 * the last microbatch has left the stage. */
typedef struct around {
    int64_t before_ps, after_ps;
} around;

static double stage_seconds(const ds_bound_region *r, const ds_bound_stage *stage,
                            const ds_bound_stage *first, const around *a) {
    int64_t until = a->before_ps + stage->there_ps - stage->early_ps + stage->items_ps;
    int64_t left = until - stage->late_ps, sent = a->before_ps + stage->sent_ps + stage->return_ps;
    int64_t home = most(left, sent) + a->after_ps + stage->back_ps;
    double bound =
        larger((double)until * 1e-12 + stage->end_s, (double)home * 1e-12 + first->end_s);
    bound = larger(bound, larger(stage->shards_s, stage->reload_s + stage->end_s));
    bound = larger(bound, (double)stage->chain_ps * 1e-12 + stage->end_s);
    if (r->chunks > 1 || r->zero > 1) return bound;
    return larger(bound, (double)(until - stage->last_ps) * 1e-12 + stage->reduce_s);
}

static double step_seconds(const ds_bound_region *r) {
    double bound = (double)ds_bound_computation_ps(r) * 1e-12 / (double)r->pp;
    ds_bound_stage first;
    around a = {0};
    for (int64_t s = 0; s < r->pp && ds_bound_is_placed(r); s++) {
        ds_bound_stage stage;
        ds_bound_stage_of(r, s, &stage);
        if (s == 0) first = stage;
        bound = larger(bound, stage_seconds(r, &stage, &first, &a));
        a.before_ps += stage.forward_ps;
        a.after_ps += stage.backward_ps;
    }
    return bound;
}

/* Do all sums and products of a bound stay within int64? A stage's work is at most all turns and
 * all passages from chunk to chunk, of all microbatches. If not, the bound is 0. */
static bool is_in_range(const ds_bound_region *r) {
    double most = 0, turns = (double)r->layers->turns + (double)(r->pp * r->chunks) + 2;
    for (int i = 0; i < DS_BOUND_PLACES; i++) {
        const ds_bound_part *p = &r->layers->part[i];
        double ps = (double)p->forward.span_ps + (double)p->forward.compute_ps;
        for (int k = 0; k < 2; k++)
            ps += (double)p->backward[k].span_ps + (double)p->backward[k].compute_ps +
                  (double)p->update_ps[k];
        double bytes = (double)p->weight_bytes + (double)p->state_bytes + (double)p->saved_bytes +
                       (double)p->work_bytes + (double)p->gradient_bytes;
        most = larger(most, larger(ps, bytes));
    }
    return most * turns * (double)r->microbatches < 0x1p60;
}

int64_t ds_bound_step_ps(const ds_bound_region *r) {
    return r->layers && is_in_range(r) ? round_down(step_seconds(r)) : 0;
}

/* ---- legality ---- */

bool ds_bound_is_illegal(const ds_bound_region *r) {
    if (!r->layers) return false;
    bool few = r->even && r->named && r->layers->all_turns > 0 && r->pp > 1 &&
               r->layers->all_turns < r->pp * r->chunks;
    bool rest = r->form == DS_BOUND_DEPTH_FIRST && r->microbatches % r->pp != 0;
    bool nothing = r->offloads && r->offload & DS_OFFLOAD_OPTIMIZER && !r->layers->has_states;
    return few || rest || nothing;
}

/* ---- memory ---- */

/* The number of forward items of a stage before its first backward item. */
static int64_t lead_of(const ds_bound_region *r, int64_t stage) {
    int64_t all = r->microbatches * r->chunks, left = r->pp - stage;
    if (r->pp == 1) return 1;
    switch (r->form) {
    case DS_BOUND_ANY:
        return 1;
    case DS_BOUND_1F1B:
    case DS_BOUND_ZB_H1:
        return least(all, left);
    case DS_BOUND_EAGER:
    case DS_BOUND_ZB_H2:
        return least(all, 2 * left - 1);
    case DS_BOUND_DEPTH_FIRST:
        return least(all, 2 * (left - 1) + (r->chunks - 1) * r->pp + 1);
    case DS_BOUND_GPIPE:
    case DS_BOUND_BREADTH_FIRST:
        return all;
    }
    return 1;
}

/* The peak of saved values, work bytes and gradients of a stage, as far as known. */
static int64_t live_bytes(const ds_bound_region *r, int64_t s, const ds_bound_stage *stage) {
    int64_t m = r->microbatches, lead = lead_of(r, s), all = m * r->chunks;
    int64_t saved = stage->saved_bytes, gradients = stage->gradient_bytes;
    int64_t work = stage->work_bytes, held = lead * saved + work;
    held = most(held, stage->summed_bytes);
    int64_t delay = ds_bound_delay(r, s);
    if (m < 2 || m <= delay + 1) return held;
    if (delay >= 0) return most(held, (least(m, lead + delay + 1) - delay - 1) * saved + gradients);
    held = most(held, saved + gradients + work);
    if (r->pp == 1 || r->form == DS_BOUND_ANY || r->form == DS_BOUND_BREADTH_FIRST) return held;
    if (r->chunks == 1) return most(held, (least(m, lead + 1) - 1) * saved + gradients + work);
    return all >= lead + r->chunks * r->pp ? most(held, lead * saved + gradients + work) : held;
}

int64_t ds_bound_peak_bytes(const ds_bound_region *r) {
    int64_t peak = 0;
    if (!r->layers || !is_in_range(r)) return 0;
    for (int64_t s = 0; s < r->pp; s++) {
        ds_bound_stage stage;
        ds_bound_stage_bytes(r, s, &stage);
        peak = most(peak, stage.held_bytes + live_bytes(r, s, &stage));
    }
    return peak;
}
