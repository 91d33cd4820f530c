/* Peaks of memory.
 *
 * In every timing of a part the buffers that it takes and frees make a curve for each of its
 * classes: the level, relative to that before the part, after each instant at which it changes. The
 * level of a class is the sum of the curves of all executions, each moved to its base. Executions
 * overlap a little (a send beside an item, the last collective of an item beside the next), so the
 * curves are merged, but by leaps: as long as no other curve has anything to say, the most of the
 * leading one up to there is looked up in blocks.
 *
 * A buffer that parts share is freed by the part that uses the buffer last in the template. In the
 * step another part may use the buffer longer, as at the turn of a V: the buffer then counts once
 * more from its part's free until the end of that use (`late`).
 *
 * A stretch that comes again is looked at once. If less memory is taken after it than before, its
 * first time is the one with the peak, else its last: by what its repetitions take, the level leaps
 * at its end, or at its beginning. */
#include "search/compose/internal.h"

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

/* Has the buffer been left by all others when its taker starts? */
static bool is_idle(const ds_body *part, const ds_timing *t, const ds_free *f) {
    return last_end(part, t, f, f->taker) <= ds_compose__start(part, t, f->taker);
}

/* The op takes all buffers of a value, or none. */
static bool is_taken(const ds_body *part, const ds_timing *t, uint32_t i) {
    const ds_free *all = part->frees.at;
    uint32_t value = all[i].value;
    if (all[i].taker == DS_NONE) return false;
    while (i && all[i - 1].taker != DS_NONE && all[i - 1].value == value) i--;
    for (; i < part->frees.n && all[i].taker != DS_NONE && all[i].value == value; i++)
        if (!is_idle(part, t, &all[i])) return false;
    return true;
}

static int64_t freed_ps(const ds_body *part, const ds_timing *t, uint32_t i) {
    const ds_leave *leave = &part->leave[i];
    if (leave->unit != DS_NONE)
        return leave->at_start ? ds_compose__start(part, t, leave->unit)
                               : ds_compose__end(part, t, leave->unit);
    const ds_free *f = &part->frees.at[i];
    return is_taken(part, t, i) ? ds_compose__start(part, t, f->taker)
                                : last_end(part, t, f, DS_NONE);
}

static ds_visit change(const ds_body *part, const ds_timing *t, const uint32_t *id) {
    if (*id < part->allocs.n) {
        const ds_alloc *alloc = &part->allocs.at[*id];
        return (ds_visit){ds_compose__start(part, t, alloc->unit), 0, alloc->bytes, id};
    }
    uint32_t i = *id - part->allocs.n;
    return (ds_visit){freed_ps(part, t, i), 0, -part->frees.at[i].bytes, id};
}

/* The changes of a class, bytes at times. They are kept in the order in which they come, which is
 * nearly that of the next execution. */
static void list_changes(ds_body *part, const ds_timing *t, uint32_t k, ds_visit *out) {
    uint32_t *ids = part->changes + part->first_change[k];
    uint32_t n = part->first_change[k + 1] - part->first_change[k], n_sorted = n ? 1 : 0;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = change(part, t, &ids[i]);
        if (n_sorted == i && out[i - 1].start_ps <= out[i].start_ps) n_sorted++;
    }
    if (n_sorted == n) return;
    ds_compose__sort(out, n, out + n);
    uint32_t *order = (uint32_t *)(out + n);
    for (uint32_t i = 0; i < n; i++) order[i] = *(const uint32_t *)out[i].of;
    memcpy(ids, order, n * sizeof *ids);
}

static uint32_t n_changes(const ds_body *part, uint32_t k) {
    return part->first_change[k + 1] - part->first_change[k];
}

/* How many numbers a curve takes. */
static size_t size_of(const ds_body *part, uint32_t k) {
    uint32_t n = n_changes(part, k);
    return (size_t)n * 2 + n / BLOCK + 1;
}

/* `changes` is room for twice as many as there are, `at` for the curve. */
static void make_curve(ds_body *part, const ds_timing *t, uint32_t k, ds_visit *changes,
                       int64_t *at, ds_curve *out) {
    uint32_t n = n_changes(part, k), kept = 0;
    list_changes(part, t, k, changes);
    *out = (ds_curve){.at_ps = at, .level = at + n, .most = at + 2 * (size_t)n};
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
                                    : freed_ps(part, t, c->until - part->units.n);
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

/* A buffer that is used elsewhere after its part has freed the buffer. */
typedef struct late {
    uint32_t exec, until, cls; /* until: as in ds_before; the class of the plan */
    int64_t from_ps, ps;       /* since the part's free, for so long */
    int64_t curve[5];          /* ds_curve's arrays: at_ps[2], level[2], most[1] */
} late;

typedef DS_VEC(late) lates;

static void keep_late(lates *all, const late *found, int64_t bytes) {
    late *last = all->n ? &all->at[all->n - 1] : NULL;
    if (last && last->exec == found->exec && last->until == found->until) {
        if (found->ps > last->ps) last->ps = last->curve[1] = found->ps;
        return;
    }
    DS_HPUSH(all, *found);
    int64_t curve[] = {0, found->ps, bytes, 0, bytes};
    memcpy(all->at[all->n - 1].curve, curve, sizeof curve);
}

/* What must have ended elsewhere: before an op takes the buffer, else no part's curve is right;
 * before the buffer is freed, else that is late. */
static bool check_exec(const ds_timeline *t, uint32_t exec, lates *all) {
    const ds_exec *e = &t->execs[exec];
    const ds_part *own = &t->s->parts[e->part];
    const ds_body *part = own->body;
    for (uint32_t i = 0; i < part->checks.n; i++) {
        const ds_before *c = &part->checks.at[i];
        if (c->local) continue;
        const ds_exec *other = &t->execs[ds_compose__exec(t, &c->source, e)];
        const ds_body *body = t->s->parts[other->part].body;
        int64_t until_ps = until_of(part, e->timing, c), from_ps = e->base_ps + until_ps;
        int64_t ps = other->base_ps + other->late_ps +
                     ds_compose__end(body, other->timing, c->unit) - e->late_ps - from_ps;
        if (ps <= 0) continue;
        if (c->until < part->units.n)
            return ds_compose__unknown(t->s, "a buffer that is used on by another part");
        t->s->uncut = true;
        if (t->cuts.n) return ds_compose__unknown(t->s, "buffers that are freed late, in periods");
        const ds_free *f = &part->frees.at[c->until - part->units.n];
        late found = {exec, c->until, own->classes.at[f->cls], from_ps, ps, {0}};
        keep_late(all, &found, f->bytes);
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

static cursor begin_visit(const ds_visit *visit) {
    return (cursor){visit->of, visit->base_ps, 0};
}

static int64_t leap_ps(const ds_cut *cut, uint32_t cls) {
    return cut->growth_bytes[cls] > 0 ? cut->from_ps : cut->to_ps;
}

/* Peak of a class over all curves, that are in order of their first events, above `level`. */
static int64_t peak_of_all(const ds_timeline *t, uint32_t cls, const ds_visit *all, uint32_t n,
                           int64_t level) {
    cursor *active = ds_xmalloc(((size_t)n + 1) * sizeof *active);
    const ds_cut *cut = t->cuts.at, *cuts_end = t->cuts.n ? cut + t->cuts.n : cut;
    uint32_t n_active = 0, next = 0;
    int64_t peak = level;
    while (n_active || next < n) {
        if (!n_active) active[n_active++] = begin_visit(&all[next++]);
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
                active[n_active++] = begin_visit(&all[next++]);
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

/* ---- a class ---- */

typedef struct weigher {
    const ds_timeline *t;
    ds_visit *changes; /* room for those of one curve, twice */
    ds_curve *curves;  /* of the class at hand … */
    int64_t *room;     /* … and where they are */
    uint32_t n_curves;
    size_t n_room;
    lates late;
} weigher;

/* Curves of timings that others have, too, are kept. */
static void keep_curves(weigher *w, ds_body *part, ds_timing *t) {
    t->n_curves = part->n_classes;
    t->curves = ds_compose__room(t, (size_t)t->n_curves + 1, sizeof *t->curves);
    for (uint32_t k = 0; k < t->n_curves; k++) {
        int64_t *at = ds_compose__room(t, size_of(part, k), sizeof *at);
        make_curve(part, t, k, w->changes, at, &t->curves[k]);
    }
}

static bool look_at_curve(void *context, const ds_exec *e, uint32_t k, ds_visit *out) {
    weigher *w = context;
    ds_timing *t = e->timing;
    ds_body *part = w->t->s->parts[e->part].body;
    const ds_curve *curve;
    if (!n_changes(part, k)) return false;
    if (ds_compose__shares(t)) {
        if (!t->curves) keep_curves(w, part, t);
        curve = &t->curves[k];
    } else {
        curve = &w->curves[w->n_curves];
        make_curve(part, t, k, w->changes, w->room + w->n_room, &w->curves[w->n_curves++]);
        w->n_room += size_of(part, k);
    }
    *out = (ds_visit){e->base_ps + curve->at_ps[0], 0, e->base_ps, curve};
    return true;
}

/* Room for the curves of any class. */
static void make_room(weigher *w, const ds_visits *visits) {
    const ds_sibling *s = w->t->s;
    size_t most = 0, most_changes = 0;
    for (uint32_t c = 0; c < s->plan->n_classes; c++) {
        size_t n = 0;
        for (uint32_t i = visits->first[c]; i < visits->first[c + 1]; i++) {
            const ds_exec *e = &w->t->execs[visits->from[i].exec];
            if (!ds_compose__shares(e->timing))
                n += size_of(s->parts[e->part].body, visits->from[i].k);
        }
        if (n > most) most = n;
    }
    for (uint32_t p = 0; p < s->n_parts; p++) {
        size_t n = (size_t)s->parts[p].body->allocs.n + s->parts[p].body->frees.n;
        if (n > most_changes) most_changes = n;
    }
    w->room = ds_xmalloc((most + 1) * sizeof *w->room);
    w->curves = ds_xmalloc(((size_t)visits->most + 1) * sizeof *w->curves);
    w->changes = ds_xmalloc((2 * most_changes + 1) * sizeof *w->changes);
}

/* Per part: must anything have ended elsewhere? */
static bool *find_far(const ds_sibling *s) {
    bool *far = ds_xcalloc(s->n_parts, sizeof *far);
    for (uint32_t p = 0; p < s->n_parts; p++) {
        const ds_body *body = s->parts[p].body;
        for (uint32_t i = 0; body && i < body->checks.n; i++)
            if (!body->checks.at[i].local) far[p] = true;
    }
    return far;
}

static bool check_timeline(const ds_timeline *t, lates *all) {
    for (uint32_t i = 0; i < t->n_execs; i++) {
        const ds_exec *e = &t->execs[i];
        const ds_body *part = t->s->parts[e->part].body;
        if (!e->is_cut && !e->timing->held && !holds(part, e->timing))
            return ds_compose__unknown(t->s, "a buffer that is busy");
        e->timing->held = true;
    }
    bool fine = true, *far = find_far(t->s);
    for (uint32_t i = 0; i < t->n_execs && fine; i++)
        if (far[t->execs[i].part]) fine = check_exec(t, i, all);
    free(far);
    return fine;
}

/* Peak of a class whose visits are looked at, with the buffers that are freed late on the class. */
static int64_t peak_of_class(const weigher *w, uint32_t cls, const ds_visits *visits, uint32_t n,
                             int64_t level) {
    uint32_t n_late = 0, n_all = n;
    for (uint32_t i = 0; i < w->late.n; i++) n_late += w->late.at[i].cls == cls;
    if (!n_late) return peak_of_all(w->t, cls, visits->at, n, level);
    ds_visit *all = ds_xmalloc(2 * ((size_t)n + n_late) * sizeof *all);
    ds_curve *curves = ds_xmalloc(n_late * sizeof *curves);
    memcpy(all, visits->at, n * sizeof *all);
    for (uint32_t i = 0; i < w->late.n; i++) {
        late *l = &w->late.at[i];
        if (l->cls != cls) continue;
        ds_curve *curve = &curves[n_all - n];
        *curve = (ds_curve){2, l->curve, l->curve + 2, l->curve + 4};
        all[n_all++] = (ds_visit){l->from_ps, 0, l->from_ps, curve};
    }
    ds_compose__sort(all, n_all, all + n_all);
    int64_t peak = peak_of_all(w->t, cls, all, n_all, level);
    free(all);
    free(curves);
    return peak;
}

bool ds_compose__weigh(const ds_timeline *t, const ds_visits *visits, int64_t *peak_bytes) {
    ds_sibling *s = t->s;
    weigher w = {.t = t};
    bool fine = check_timeline(t, &w.late);
    if (fine) make_room(&w, visits);
    for (uint32_t c = 0; fine && c < s->plan->n_classes && !ds_stop_due(ds_compose__stop(s)); c++) {
        int64_t inputs = s->input_bytes[c] + ds_compose__n_each(s) * s->each_bytes[c];
        w.n_curves = 0;
        w.n_room = 0;
        uint32_t n = ds_compose__visits(t, visits, c, look_at_curve, &w);
        peak_bytes[c] = peak_of_class(&w, c, visits, n, inputs);
    }
    free(w.room);
    free(w.curves);
    free(w.changes);
    free(w.late.at);
    if (!fine) return false;
    return !ds_stop_due(ds_compose__stop(s)) || ds_compose__unknown(s, DS_COMPOSE_OVER);
}
