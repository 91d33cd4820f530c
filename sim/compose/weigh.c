/* Peaks of memory.
 *
 * In every timing of a part the buffers that it takes and frees make a curve for each of its
 * classes: the level, relative to that before the part, after each instant at which it changes. The
 * level of a class is the sum of the curves of all executions, each moved to its base. Executions
 * overlap a little (a send beside an item, the last collective of an item beside the next), so the
 * curves are merged, but by leaps: as long as no other curve has anything to say, the most of the
 * leading one up to there is looked up in blocks.
 *
 * A stretch that comes again is looked at once. If less memory is taken after it than before, its
 * first time is the one with the peak, else its last: by what its repetitions take, the level leaps
 * at its end, or at its beginning. */
#include "sim/compose/internal.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 32u

/* ---- curves ---- */

/* The last end among users, but for one. */
static int64_t last_end(const ds_body *part, const ds_timing *t, const ds_free *f,
                        uint32_t without) {
    int64_t at = 0;
    for (uint32_t k = f->first; k < f->first + f->n; k++)
        if (part->users.at[k] != without && ds_compose__end(part, t, part->users.at[k]) > at)
            at = ds_compose__end(part, t, part->users.at[k]);
    return at;
}

static bool is_idle(const ds_body *part, const ds_timing *t, const ds_free *f) {
    return last_end(part, t, f, f->taker) <= ds_compose__start(part, t, f->taker);
}

static void find_freed(const ds_body *part, ds_timing *t) {
    t->freed_ps = ds_compose__room(t, (size_t)part->frees.n + 1, sizeof *t->freed_ps);
    for (uint32_t i = 0, end; i < part->frees.n; i = end) {
        const ds_free *f = &part->frees.at[i];
        const ds_leave *leave = &part->leave[i];
        end = i + 1;
        if (leave->unit != DS_NONE) {
            t->freed_ps[i] = leave->at_start ? ds_compose__start(part, t, leave->unit)
                                             : ds_compose__end(part, t, leave->unit);
            continue;
        }
        bool taken = f->taker != DS_NONE;
        for (end = i + 1; end < part->frees.n && f[end - i].taker != DS_NONE && taken &&
                          f[end - i].value == f->value;)
            end++;
        for (uint32_t k = i; k < end && taken; k++) taken = is_idle(part, t, &part->frees.at[k]);
        for (uint32_t k = i; k < end; k++, f++)
            t->freed_ps[k] =
                taken ? ds_compose__start(part, t, f->taker) : last_end(part, t, f, DS_NONE);
    }
}

/* The changes of all classes, one class after the other: bytes at times. first[c] is where those of
 * class c begin; one more. */
static void list_changes(const ds_body *part, const ds_timing *t, uint32_t *first, ds_visit *out) {
    uint32_t *at = first + 1; /* until they are filled in */
    for (uint32_t i = 0; i < part->allocs.n; i++) first[part->allocs.at[i].cls + 2]++;
    for (uint32_t i = 0; i < part->frees.n; i++) first[part->frees.at[i].cls + 2]++;
    for (uint32_t c = 2; c < part->n_classes + 2; c++) first[c] += first[c - 1];
    for (uint32_t i = 0; i < part->allocs.n; i++) {
        const ds_alloc *alloc = &part->allocs.at[i];
        out[at[alloc->cls]++] = (ds_visit){.start_ps = ds_compose__start(part, t, alloc->unit),
                                           .base_ps = alloc->bytes};
    }
    for (uint32_t i = 0; i < part->frees.n; i++) {
        const ds_free *f = &part->frees.at[i];
        out[at[f->cls]++] = (ds_visit){.start_ps = t->freed_ps[i], .base_ps = -f->bytes};
    }
}

/* `changes` are the class's; `room` is for as many. */
static void make_curve(const ds_timing *t, uint32_t cls, ds_visit *changes, uint32_t n,
                       ds_visit *room, ds_curve *out) {
    uint32_t kept = 0;
    ds_compose__sort(changes, n, room);
    uint32_t n_blocks = n / BLOCK + 1;
    *out = (ds_curve){.cls = cls};
    out->at_ps = ds_compose__room(t, (size_t)n * 2 + n_blocks, sizeof *out->at_ps);
    out->level = out->at_ps + n;
    out->most = out->level + n;
    int64_t level = 0;
    for (uint32_t i = 0; i < n; i++) {
        level += changes[i].base_ps; /* bytes */
        if (!kept || out->at_ps[kept - 1] != changes[i].start_ps) kept++;
        out->at_ps[kept - 1] = changes[i].start_ps;
        out->level[kept - 1] = level;
    }
    out->n = kept;
    for (uint32_t i = 0; i < kept; i++) {
        int64_t *most = &out->most[i / BLOCK];
        if (i % BLOCK == 0 || out->level[i] > *most) *most = out->level[i];
    }
}

static int64_t until_of(const ds_body *part, const ds_timing *t, const ds_before *c) {
    return c->until < part->units.n ? ds_compose__start(part, t, c->until)
                                    : t->freed_ps[c->until - part->units.n];
}

/* Does the sibling's use of buffers hold within such an execution? */
static bool holds(const ds_body *part, const ds_timing *t) {
    for (uint32_t i = 0; i < part->checks.n; i++) {
        const ds_before *c = &part->checks.at[i];
        if (!c->local) continue;
        if (ds_compose__end(part, t, c->unit) > until_of(part, t, c)) return false;
    }
    return true;
}

static bool weigh_timing(ds_sibling *s, const ds_body *part, ds_timing *t) {
    find_freed(part, t);
    if (!holds(part, t)) return ds_compose__unknown(s, "a buffer that is busy");
    size_t most = (size_t)part->allocs.n + part->frees.n;
    ds_visit *changes = ds_xmalloc((2 * most + 1) * sizeof *changes);
    uint32_t *first = ds_xcalloc((size_t)part->n_classes + 2, sizeof *first);
    list_changes(part, t, first, changes);
    t->n_curves = part->n_classes;
    t->curves = ds_compose__room(t, t->n_curves, sizeof *t->curves);
    for (uint32_t i = 0; i < t->n_curves; i++)
        make_curve(t, i, changes + first[i], first[i + 1] - first[i], changes + most,
                   &t->curves[i]);
    free(changes);
    free(first);
    return true;
}

/* What must have ended elsewhere. */
static bool check_exec(const ds_timeline *t, const ds_exec *e) {
    const ds_body *part = t->s->parts[e->part].body;
    for (uint32_t i = 0; i < part->checks.n; i++) {
        const ds_before *c = &part->checks.at[i];
        if (c->local) continue;
        const ds_exec *other = &t->execs[ds_compose__exec(t, &c->source, e)];
        const ds_body *body = t->s->parts[other->part].body;
        if (other->base_ps + other->late_ps + ds_compose__end(body, other->timing, c->unit) >
            e->base_ps + e->late_ps + until_of(part, e->timing, c))
            return ds_compose__unknown(t->s, "a buffer that is used on");
    }
    return true;
}

/* ---- merging ---- */

typedef struct cursor {
    const ds_curve *curve;
    int64_t base_ps;
    uint32_t next; /* events before it have happened */
} cursor;

static int64_t due(const cursor *c) {
    return c->base_ps + c->curve->at_ps[c->next];
}

static int64_t level_of(const cursor *c) {
    return c->next ? c->curve->level[c->next - 1] : 0;
}

/* The most of level[from … to). */
static int64_t most(const ds_curve *c, uint32_t from, uint32_t to) {
    int64_t best = INT64_MIN;
    for (uint32_t i = from; i < to;) {
        bool whole = i % BLOCK == 0 && i + BLOCK <= to;
        int64_t value = whole ? c->most[i / BLOCK] : c->level[i];
        if (value > best) best = value;
        i += whole ? BLOCK : 1;
    }
    return best;
}

/* The first event at or after a time. */
static uint32_t seek(const cursor *c, int64_t until_ps) {
    uint32_t lo = c->next, hi = c->curve->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (c->base_ps + c->curve->at_ps[mid] < until_ps)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static cursor begin(const ds_visit *visit) {
    return (cursor){visit->of, visit->base_ps, 0};
}

static int64_t leap_ps(const ds_cut *cut, uint32_t cls) {
    return cut->growth_bytes[cls] > 0 ? cut->from_ps : cut->to_ps;
}

/* Peak of a class over all curves, that are in order of their first events, above `level`. */
static int64_t merge(const ds_timeline *t, uint32_t cls, const ds_visit *all, uint32_t n,
                     int64_t level) {
    cursor *active = ds_xmalloc(((size_t)n + 1) * sizeof *active);
    const ds_cut *cut = t->cuts.at, *cuts_end = cut + t->cuts.n;
    uint32_t n_active = 0, next = 0;
    int64_t peak = level;
    while (n_active || next < n) {
        if (!n_active) active[n_active++] = begin(&all[next++]);
        int64_t first = INT64_MAX, second = INT64_MAX;
        uint32_t leader = 0;
        for (uint32_t i = 0; i < n_active; i++) {
            int64_t at = due(&active[i]);
            if (at < first) {
                second = first;
                first = at;
                leader = i;
            } else if (at < second) {
                second = at;
            }
        }
        if (next < n && all[next].start_ps <= second) {
            if (all[next].start_ps <= first) {
                active[n_active++] = begin(&all[next++]);
                continue;
            }
            second = all[next].start_ps;
        }
        for (; cut < cuts_end && leap_ps(cut, cls) <= first; cut++)
            level += cut->times * cut->growth_bytes[cls];
        if (cut < cuts_end && leap_ps(cut, cls) < second) second = leap_ps(cut, cls);
        if (first < second) {
            cursor *c = &active[leader];
            uint32_t end = seek(c, second);
            int64_t before = level - level_of(c), high = before + most(c->curve, c->next, end);
            if (high > peak) peak = high;
            c->next = end;
            level = before + level_of(c);
        } else { /* all that happens at one instant */
            for (uint32_t i = 0; i < n_active; i++) {
                if (due(&active[i]) != first) continue;
                level -= level_of(&active[i]);
                active[i].next++;
                level += level_of(&active[i]);
            }
            if (level > peak) peak = level;
        }
        for (uint32_t i = 0; i < n_active;) {
            if (active[i].next == active[i].curve->n)
                active[i] = active[--n_active];
            else
                i++;
        }
    }
    free(active);
    return peak;
}

static bool look_at_curve(const ds_exec *e, uint32_t k, ds_visit *out) {
    const ds_curve *curve = &e->timing->curves[k];
    if (!curve->n) return false;
    *out = (ds_visit){e->base_ps + curve->at_ps[0], 0, e->base_ps, curve};
    return true;
}

bool ds_compose__weigh(const ds_timeline *t, int64_t *peak_bytes) {
    ds_sibling *s = t->s;
    bool fine = true;
    for (uint32_t i = 0; i < t->n_execs && fine; i++) {
        const ds_part *part = &s->parts[t->execs[i].part];
        if (!t->execs[i].is_cut && !t->execs[i].timing->curves)
            fine = weigh_timing(s, part->body, t->execs[i].timing);
    }
    for (uint32_t i = 0; i < t->n_execs && fine; i++) fine = check_exec(t, &t->execs[i]);
    if (!fine) return false;
    ds_visits visits;
    ds_compose__visits(t, look_at_curve, &visits);
    for (uint32_t c = 0; c < s->plan->n_classes; c++) {
        int64_t inputs = s->input_bytes[c] + ds_compose__n_each(s) * s->each_bytes[c];
        peak_bytes[c] =
            merge(t, c, visits.at + visits.first[c], visits.first[c + 1] - visits.first[c], inputs);
    }
    ds_compose__visits_deinit(&visits);
    return true;
}
