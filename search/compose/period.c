/* Periods of the schedule that go as the one before has gone.
 *
 * Whenever an item of the first rank has been settled, the state of all ranks is hashed: of all
 * executions that have not ended, which chains are settled, with start and end, until when
 * transfers wait, and how far flows are, all relative to the present. Where the state has been the
 * same before, each rank has since run some executions. If those that follow are again of the same
 * parts, and read what those read, as many executions later, then they will happen as those did, so
 * much later; and so will the next ones. What has ended by then matters to nobody any more, so that
 * a source may as well be any other one of that time.
 *
 * All of these are cut out: what is under way is now of the executions that it will be of then, and
 * time stays where it is. What is left is a step of fewer microbatches, the contracted timeline,
 * with a note of which stretch comes how many times more. Executions that are cut out have the
 * timings of those that they repeat, and the times at which they would have to be for those behind
 * them.
 *
 * States are told apart by 128 bits of hashes. */
#include "search/compose/solver.h"

#include <stdlib.h>
#include <string.h>

/* Where the ranks were in a state. */
typedef struct mark {
    uint64_t second;
    int64_t now_ps;
    uint32_t places; /* per rank two: past, made */
} mark;

struct ds_period {
    ds_map found; /* hash → mark */
    DS_VEC(mark) marks;
    DS_VEC(uint32_t) places;
    ds_map sources_of; /* body → where its sources begin */
    DS_VEC(ds_source) sources;
};

void ds_period_free(ds_period *p) {
    if (!p) return;
    ds_map_deinit(&p->found);
    ds_map_deinit(&p->sources_of);
    free(p->marks.at);
    free(p->places.at);
    free(p->sources.at);
    free(p);
}

/* ---- the state ---- */

typedef struct state {
    uint64_t a, b;
} state;

static void mix(state *s, uint64_t word) {
    s->a = (s->a ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    s->a ^= s->a >> 32;
    s->b = (s->b + word) * UINT64_C(0xd6e8feb86659fd93);
    s->b ^= s->b >> 29;
}

/* A transfer that waits for nothing any more: when it has started, and how far it is. */
static void mix_started(const ds_solver *x, const ds_live *live, uint32_t chain, state *s) {
    const ds_part *part = &x->s->parts[live->part];
    uint32_t slot = part->body->chains[chain].slot;
    const ds_flight *f = &x->flights[part->streams.at[part->body->slots.at[slot]]];
    mix(s, (uint64_t)chain << 32 | f->flow);
    mix(s, (uint64_t)(live->start[chain] - x->now_ps));
    if (f->next_ps == DS_FLOWING)
        mix(s, ds_net_state(x->net, f->flow, x->now_ps));
    else
        mix(s, (uint64_t)(f->next_ps - x->now_ps));
}

void ds_period_note(ds_live *live, uint32_t chain) {
    if (live->since_ps == DS_UNKNOWN) live->since_ps = live->start[chain];
    state s = {chain, 1};
    mix(&s, (uint64_t)(live->start[chain] - live->since_ps));
    mix(&s, (uint64_t)(live->end[chain] - live->since_ps));
    live->sum_a += s.a;
    live->sum_b += s.b;
}

/* An execution that is followed chain by chain, from its beginning: what repeats it will have its
 * past, too. */
static void mix_chains(const ds_solver *x, uint32_t id, state *s) {
    const ds_live *live = x->lives.at[id];
    const ds_part *part = &x->s->parts[live->part];
    mix(s, live->n_left);
    mix(s, (uint64_t)(live->since_ps - (live->since_ps == DS_UNKNOWN ? 0 : x->now_ps)));
    mix(s, live->sum_a);
    mix(s, live->sum_b);
    for (uint32_t i = 0; i < part->streams.n; i++) {
        ds_spot spot = x->flights[part->streams.at[i]].spot;
        if (spot.live == id && live->start[spot.chain] != DS_UNKNOWN &&
            live->end[spot.chain] == DS_UNKNOWN)
            mix_started(x, live, spot.chain, s);
    }
}

static void mix_rank(const ds_solver *x, ds_solver_rank *r, state *s) {
    for (; r->past < r->made; r->past++) {
        const ds_exec *e = &x->t->execs[r->past];
        if (e->live != DS_NONE || e->base_ps + e->timing->all_end > x->now_ps) break;
    }
    mix(s, r->made - r->past);
    for (uint32_t i = r->past; i < r->made; i++) {
        const ds_exec *e = &x->t->execs[i];
        mix(s, (uint64_t)e->part << 1 | e->opaque);
        if (e->live == DS_NONE) {
            mix(s, (uint64_t)(e->base_ps - x->now_ps));
            mix(s, DS_KEY(e->timing));
        } else if (!e->opaque) {
            mix_chains(x, e->live, s);
        }
    }
}

/* ---- what is to come ---- */

static bool is_source(const ds_period *p, uint32_t from, const ds_source *source) {
    for (uint32_t i = from; i < p->sources.n; i++)
        if (memcmp(&p->sources.at[i], source, sizeof *source) == 0) return true;
    return false;
}

/* What a body reads, each once; as many as the first of them says. */
static const ds_source *sources_of(ds_period *p, const ds_body *body, uint32_t *n) {
    const uint64_t *found = ds_map_find(&p->sources_of, DS_KEY(body));
    if (!found) {
        uint32_t first = p->sources.n;
        for (uint32_t i = 0; i < body->exts.n; i++)
            if (!is_source(p, first, &body->exts.at[i].source))
                DS_HPUSH(&p->sources, body->exts.at[i].source);
        ds_map_put(&p->sources_of, DS_KEY(body), (uint64_t)first << 32 | (p->sources.n - first));
        found = ds_map_find(&p->sources_of, DS_KEY(body));
    }
    *n = (uint32_t)*found;
    return *n ? p->sources.at + (*found >> 32) : NULL;
}

typedef struct period {
    ds_solver *x;
    const uint32_t *places; /* of the mark */
    int64_t ps;
    uint32_t times;
} period;

static uint32_t past_of(const period *p, uint32_t rank) {
    return p->places[2 * rank];
}

/* How many executions of a rank make a period. */
static uint32_t n_of(const period *p, uint32_t rank) {
    return p->x->ranks[rank].past - past_of(p, rank);
}

static bool repeats(const period *p, uint32_t exec, uint32_t later) {
    const ds_solver *x = p->x;
    const ds_exec *a = &x->t->execs[exec], *b = &x->t->execs[later];
    if (a->part != b->part || a->opaque != b->opaque || x->is_last[later]) return false;
    uint32_t n;
    const ds_source *sources = sources_of(x->period, ds_solver__part(x, exec)->body, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = ds_compose__exec(x->t, &sources[i], a);
        uint32_t other = ds_compose__exec(x->t, &sources[i], b);
        uint32_t rank = ds_solver__rank(x, from);
        if (other == from + n_of(p, rank)) continue;
        bool past = from < past_of(p, rank) && other < x->ranks[rank].past &&
                    ds_solver__rank(x, other) == rank;
        if (!past) return false;
    }
    return true;
}

/* How many more times the period comes, with something left behind it. */
static uint32_t count_times(const period *p) {
    const ds_solver *x = p->x;
    uint32_t times = UINT32_MAX;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        uint32_t n = n_of(p, r), most = n ? (x->ranks[r].end - 1 - x->ranks[r].made) / n : times;
        if (most < times) times = most;
    }
    for (uint32_t r = 0; r < x->n_ranks && times; r++) {
        uint32_t n = n_of(p, r), at = past_of(p, r);
        if (!n) continue;
        while (at + n < x->ranks[r].made + times * n && repeats(p, at, at + n)) at++;
        uint32_t most = at + n < x->ranks[r].made ? 0 : (at + n - x->ranks[r].made) / n;
        if (most < times) times = most;
    }
    return times == UINT32_MAX ? 0 : times;
}

/* ---- passing over them ---- */

/* What is under way of an execution is of a later one. */
static void move(ds_solver *x, uint32_t exec, uint32_t by) {
    const ds_exec *from = &x->t->execs[exec];
    ds_exec *to = &x->t->execs[exec + by];
    if (from->live != DS_NONE) x->lives.at[from->live]->exec = exec + by;
    to->live = from->live;
    to->timing = from->timing;
    to->base_ps = from->base_ps;
    to->late_ps = x->t->cut_ps;
}

static void pass_over(const period *p, uint32_t rank) {
    ds_solver *x = p->x;
    ds_solver_rank *r = &x->ranks[rank];
    uint32_t n = n_of(p, rank), by = n * p->times, first = past_of(p, rank);
    x->t->n_repeated += by;
    for (uint32_t i = r->made; i-- > r->past;) move(x, i, by);
    for (uint32_t i = r->past; i < r->past + by; i++) {
        const ds_exec *like = &x->t->execs[first + (i - first) % n];
        ds_exec *e = &x->t->execs[i];
        e->timing = like->timing;
        e->base_ps = like->base_ps - (p->times - (i - first) / n) * p->ps;
        e->late_ps = x->t->cut_ps;
        e->is_cut = true;
        e->live = DS_NONE;
    }
    if (!by) return;
    for (uint32_t i = r->end - by; i-- > r->made;) x->waiting[i + by] = x->waiting[i];
    for (uint32_t i = r->made; i < r->made + by; i++) x->waiting[i].live = DS_NONE;
}

/* What the executions of a period take and do not give back. */
static int64_t *growth(const period *p) {
    const ds_solver *x = p->x;
    int64_t *bytes = DS_NEW_N(&x->t->arena, int64_t, x->plan->n_classes + 1);
    for (uint32_t r = 0; r < x->n_ranks; r++)
        for (uint32_t i = past_of(p, r); i < x->ranks[r].past; i++) {
            const ds_part *part = ds_solver__part(x, i);
            for (uint32_t k = 0; k < part->body->allocs.n; k++)
                bytes[part->classes.at[part->body->allocs.at[k].cls]] +=
                    part->body->allocs.at[k].bytes;
            for (uint32_t k = 0; k < part->body->frees.n; k++)
                bytes[part->classes.at[part->body->frees.at[k].cls]] -=
                    part->body->frees.at[k].bytes;
        }
    return bytes;
}

static void skip(const period *p) {
    ds_solver *x = p->x;
    ds_solver__read_exts(x);
    ds_cut cut = {x->now_ps - p->ps, x->now_ps, p->times, growth(p)};
    DS_HPUSH(&x->t->cuts, cut);
    x->t->cut_ps += p->times * p->ps;
    for (uint32_t r = 0; r < x->n_ranks; r++) pass_over(p, r);
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        uint32_t by = n_of(p, r) * p->times;
        x->ranks[r].made += by;
        x->ranks[r].past += by;
    }
}

static void forget_states(ds_period *p) {
    ds_map_clear(&p->found);
    p->marks.n = p->places.n = 0;
}

static void note(ds_solver *x, const state *s) {
    ds_period *p = x->period;
    ds_map_put(&p->found, s->a, p->marks.n);
    DS_HPUSH(&p->marks, ((mark){s->b, x->now_ps, p->places.n}));
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        DS_HPUSH(&p->places, x->ranks[r].past);
        DS_HPUSH(&p->places, x->ranks[r].made);
    }
}

void ds_period_skip(ds_solver *x) {
    if (x->s->uncut) return;
    if (!x->period) x->period = ds_xcalloc(1, sizeof *x->period);
    ds_period *p = x->period;
    state s = {x->n_ranks, 1};
    for (uint32_t r = 0; r < x->n_ranks; r++) mix_rank(x, &x->ranks[r], &s);
    const uint64_t *found = ds_map_find(&p->found, s.a);
    if (found && p->marks.at[*found].second == s.b) {
        const mark *m = &p->marks.at[*found];
        period again = {x, p->places.at + m->places, x->now_ps - m->now_ps, 0};
        if (again.ps > 0) again.times = count_times(&again);
        if (again.times) {
            skip(&again);
            forget_states(p);
            return;
        }
    }
    note(x, &s);
}
