/* When everything happens.
 *
 * A part of which no transfer shares links is *opaque*: within it everything has a known duration,
 * so that what it does follows from when its streams are free and what it reads is there. All times
 * are kept relative to the earliest of its streams; the same relative state has the same outcome,
 * which is looked up. Other parts (sends, the last backward items with their reductions, the tail)
 * are followed unit by unit, transfers over shared links through their flows in the network, as the
 * engine does.
 *
 * Opaque executions and chains of units wait for those before them on their streams, and for what
 * they read. A body lists these needs once (chains.c). A chain looks at them when it is next on its
 * streams, and then waits for the first that is not there: most find all of them there. What has a
 * known duration is settled as soon as all it waits for is, in any order, with ends that may lie in
 * the future; only flows are events in time. An opaque execution is settled late, when the last
 * thing is known that it waits for: a transfer that something in it would have started before that
 * was missed, and the answer is that nothing is known.
 *
 * An item is made when few of its rank before it are not over yet, and all that is left once a rank
 * has come to its last item, or to one that a transfer of the tail waits for. What starts before it
 * was made shows as a transfer that starts in the past; then all is made beforehand. So a period of
 * the schedule that goes as the one before has gone is never made (period.c). */
#include "search/compose/solver.h"

#include <stdlib.h>
#include <string.h>

uint32_t ds_compose__exec(const ds_timeline *t, const ds_source *source, const ds_exec *from) {
    const ds_sibling *s = t->s;
    uint32_t m = (uint32_t)s->m, turn = source->turn, item, n_chunks = s->n_chunks;
    uint32_t chunk = (uint32_t)source->chunk;
    if (source->is_relative)
        chunk += s->parts[from->part].group % n_chunks;
    else if (source->chunk < 0)
        chunk += n_chunks;
    uint32_t group = source->kind * n_chunks + chunk;
    if (source->when == DS_SAME) {
        item = t->of_mb[group * m + from->mb];
    } else {
        if (source->when == DS_PREV)
            turn = from->turn - turn;
        else if (turn >= DS_MIDDLE)
            turn += m - s->n_turns;
        item = t->of_turn[group * m + turn];
    }
    return item + (uint32_t)(source->post + 1);
}

/* ---- executions ---- */

static uint32_t variant(const ds_sibling *s, uint32_t turn) {
    if (s->m <= DS_SIBLING) return turn;
    return turn == s->m - 1 ? DS_SIBLING - 1 : turn < DS_MIDDLE ? turn : DS_MIDDLE;
}

/* From the first item of a rank on that is followed unit by unit, all of the rank whose links may
 * be loaded by what that one has left behind are, too. */
static void list_execs(ds_timeline *t, const ds_order *order, uint32_t n, const uint32_t *rank_of) {
    ds_sibling *s = t->s;
    uint32_t open_rank = DS_NONE, m = (uint32_t)s->m, most = 0;
    uint32_t *seen = ds_xcalloc(s->n_groups, sizeof *seen);
    for (uint32_t i = 0; i < s->n_groups * DS_SIBLING; i++)
        if (s->n_posts[i] > most) most = s->n_posts[i];
    t->execs = ds_xcalloc((size_t)n * (1 + most) + 1, sizeof *t->execs);
    t->of_mb = ds_xcalloc((size_t)s->n_groups * m * 2, sizeof *t->of_mb);
    t->of_turn = t->of_mb + (size_t)s->n_groups * m;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t group = order[i].group, turn = seen[group]++, rank = rank_of[group];
        uint32_t item = group * DS_SIBLING + variant(s, turn);
        const ds_part *part = &s->parts[item];
        bool trusted = !part->flows || !(s->cautious || open_rank == rank);
        bool opaque = part->opaque && trusted && !s->followed;
        if (!opaque) open_rank = rank;
        t->of_mb[group * m + order[i].mb] = t->of_turn[group * m + turn] = t->n_execs;
        ds_exec exec = {
            .part = item, .mb = order[i].mb, .turn = turn, .opaque = opaque, .live = DS_NONE};
        t->execs[t->n_execs++] = exec;
        exec.opaque = false;
        for (uint32_t q = 0; q < s->n_posts[item]; q++) {
            exec.part = s->first_post[item] + q;
            t->execs[t->n_execs++] = exec;
        }
    }
    t->execs[t->n_execs++] = (ds_exec){.part = s->n_parts - 1, .live = DS_NONE};
    free(seen);
}

/* ---- those that are followed ---- */

static const ds_spot no_spot = {DS_NONE, DS_NONE};

static ds_live *new_live(ds_solver *x, uint32_t part, uint32_t *id) {
    const ds_body *body = x->s->parts[part].body;
    size_t n = body->n_chains ? body->n_chains : 1, n_exts = body->exts.n;
    size_t n_places = body->stream_cls.n;
    ds_live *live = ds_xmalloc(sizeof *live + (2 * n + n_exts) * sizeof *live->start +
                               2 * n * sizeof *live->waiters + n * sizeof *live->met +
                               n_places * sizeof *live->places);
    live->part = part;
    live->exts = (int64_t *)(live + 1);
    live->start = live->exts + n_exts;
    live->end = live->start + n;
    live->waiters = (ds_spot *)(live->end + n);
    live->next = live->waiters + n;
    live->places = (ds_live_stream *)(live->next + n);
    *id = x->lives.n;
    DS_HPUSH(&x->lives, live);
    live->met = (uint32_t *)(live->places + n_places);
    return live;
}

/* One that has ended, or a new one; nothing in it is known. */
static ds_live *take_live(ds_solver *x, uint32_t exec) {
    ds_exec *e = &x->t->execs[exec];
    const ds_body *body = x->s->parts[e->part].body;
    uint32_t id = x->spare[e->part], n = e->opaque ? 1 : body->n_chains;
    ds_live *live = id == DS_NONE ? new_live(x, e->part, &id) : x->lives.at[id];
    if (id == x->spare[e->part]) x->spare[e->part] = live->next_spare;
    live->exec = exec;
    live->n_left = n;
    live->since_ps = DS_UNKNOWN;
    live->sum_a = live->sum_b = 0;
    memset(live->exts, 0xff, body->exts.n * sizeof *live->exts); /* DS_UNKNOWN */
    memset(live->waiters, 0xff, n * sizeof *live->waiters);      /* DS_NONE */
    if (!e->opaque) {
        memset(live->start, 0xff, n * sizeof *live->start);
        memset(live->end, 0xff, n * sizeof *live->end);
        memset(live->met, 0, n * sizeof *live->met);
    }
    e->live = id;
    x->n_lives++;
    return live;
}

static void be_ready(ds_solver *x, uint32_t live, uint32_t chain) {
    DS_HPUSH(&x->ready, ((ds_spot){live, chain}));
}

/* Is nothing left before the chain on its streams? */
static bool is_next(const ds_body *body, ds_live *live, uint32_t chain) {
    const ds_chain *c = &body->chains[chain];
    for (uint32_t i = c->need + live->met[chain]; i < c[1].need; i++) {
        const ds_need *need = &body->needs[i];
        bool met = true;
        if (need->kind == DS_NEED_ORDER)
            met = live->end[need->at] != DS_UNKNOWN;
        else if (need->kind == DS_NEED_STREAM)
            met = !live->places[need->at].blocked;
        else
            return true;
        if (met) continue;
        live->met[chain] = i - c->need;
        return false;
    }
    return true;
}

/* An execution that is timed as a whole, of which all streams are free. */
static bool is_free(const ds_body *body, const ds_live *live) {
    for (uint32_t i = 0; i < body->stream_cls.n; i++)
        if (live->places[i].blocked) return false;
    return true;
}

/* Those before an execution have ended on one of its streams. */
static void unblock(ds_solver *x, uint32_t id, uint32_t place) {
    ds_live *live = x->lives.at[id];
    const ds_body *body = x->s->parts[live->part].body;
    live->places[place].blocked = false;
    if (x->t->execs[live->exec].opaque) {
        if (is_free(body, live)) be_ready(x, id, 0);
        return;
    }
    uint32_t first = body->first_on[place];
    if (is_next(body, live, first)) be_ready(x, id, first);
}

/* An execution has ended on one of its streams. */
static void leave_stream(ds_solver *x, ds_live *live, uint32_t place, int64_t end_ps) {
    uint32_t stream = x->s->parts[live->part].streams.at[place];
    const ds_live_stream *p = &live->places[place];
    x->free_ps[stream] = end_ps;
    if (p->after == DS_NONE)
        x->last[stream] = no_spot;
    else
        unblock(x, p->after, p->after_place);
}

static void put_on_stream(ds_solver *x, uint32_t id, uint32_t place) {
    ds_live *live = x->lives.at[id];
    ds_spot *last = &x->last[x->s->parts[live->part].streams.at[place]];
    live->places[place] = (ds_live_stream){DS_NONE, DS_NONE, last->live != DS_NONE};
    if (last->live != DS_NONE) {
        ds_live_stream *before = &x->lives.at[last->live]->places[last->chain];
        before->after = id;
        before->after_place = place;
    }
    *last = (ds_spot){id, place};
}

/* When what an external stands for is there; or DS_UNKNOWN, and who knows of those that wait. */
static int64_t read_ext(ds_solver *x, const ds_live *live, uint32_t ext, ds_spot **waiters) {
    const ds_external *of = &x->s->parts[live->part].body->exts.at[ext];
    uint32_t exec = ds_compose__exec(x->t, &of->source, &x->t->execs[live->exec]), unit = of->unit;
    const ds_exec *from = &x->t->execs[exec];
    const ds_body *body = x->s->parts[from->part].body;
    if (from->live == DS_NONE && from->timing)
        return from->base_ps + ds_compose__end(body, from->timing, unit);
    *waiters = &x->waiting[exec];
    if (from->live == DS_NONE) return DS_UNKNOWN;
    uint32_t chain = from->opaque ? 0 : body->chain_of[unit];
    const ds_live *other = x->lives.at[from->live];
    *waiters = &other->waiters[chain];
    if (from->opaque || other->end[chain] == DS_UNKNOWN) return DS_UNKNOWN;
    int64_t before_ps = body->after_ps[unit] + body->units.at[unit].ps;
    return other->end[chain] - (body->chains[chain].ps - before_ps);
}

static void wait_for(ds_solver *x, ds_spot *waiters, uint32_t id, uint32_t chain) {
    x->lives.at[id]->next[chain] = *waiters;
    *waiters = (ds_spot){id, chain};
}

/* All that waited may look again. */
static void wake_waiters(ds_solver *x, ds_spot *waiters) {
    for (ds_spot at = *waiters; at.live != DS_NONE; at = x->lives.at[at.live]->next[at.chain])
        be_ready(x, at.live, at.chain);
    *waiters = no_spot;
}

static void make_exec(ds_solver *x, uint32_t exec) {
    ds_exec *e = &x->t->execs[exec];
    const ds_part *part = ds_solver__part(x, exec);
    const ds_body *body = part->body;
    e->late_ps = x->t->cut_ps;
    if (!body->n_chains && !e->opaque) {
        const int64_t none = 0;
        e->timing = ds_solver__own_timing(x, body, &none);
        return;
    }
    ds_live *live = take_live(x, exec);
    for (uint32_t i = 0; i < part->streams.n; i++)
        if (e->opaque || body->first_on[i] != DS_NONE) put_on_stream(x, e->live, i);
    if (!part->tail && part->post < 0) x->ranks[ds_solver__rank(x, exec)].n_open++;
    if (e->opaque && is_free(body, live)) be_ready(x, e->live, 0);
    for (uint32_t i = 0; i < body->n_heads && !e->opaque; i++)
        if (is_next(body, live, body->heads[i])) be_ready(x, e->live, body->heads[i]);
    wake_waiters(x, &x->waiting[exec]);
}

void ds_solver__read_exts(ds_solver *x) {
    ds_spot *unused;
    for (uint32_t id = 0; id < x->lives.n; id++) {
        ds_live *live = x->lives.at[id];
        if (x->t->execs[live->exec].live != id) continue;
        for (uint32_t i = 0; i < x->s->parts[live->part].body->exts.n; i++)
            if (live->exts[i] == DS_UNKNOWN) live->exts[i] = read_ext(x, live, i, &unused);
    }
}

/* The rank's next item with what it sends. */
static void make_item(ds_solver *x, ds_solver_rank *rank) {
    do make_exec(x, rank->made++);
    while (rank->made < rank->end && ds_solver__part(x, rank->made)->post >= 0);
}

/* The executions that transfers of the tail wait for: with the first of them it may begin. */
static void find_last(ds_solver *x) {
    const ds_exec *tail = &x->t->execs[x->t->n_execs - 1];
    const ds_body *body = ds_solver__part(x, x->t->n_execs - 1)->body;
    for (uint32_t u = 0; u < body->units.n; u++) {
        const ds_unit_task *unit = &body->units.at[u];
        for (uint32_t k = 0; unit->transfer != DS_NONE && k < unit->n_preds; k++) {
            uint32_t pred = body->preds.at[unit->pred + k];
            if (!(pred & DS_EXT)) continue;
            const ds_external *ext = &body->exts.at[pred & ~DS_EXT];
            x->is_last[ds_compose__exec(x->t, &ext->source, tail)] = true;
        }
    }
}

static void make_rest(ds_solver *x) {
    for (uint32_t r = 0; r < x->n_ranks; r++)
        while (x->ranks[r].made < x->ranks[r].end) make_item(x, &x->ranks[r]);
    make_exec(x, x->t->n_execs - 1);
    x->complete = true;
}

/* How many items of a rank are made and not over. */
enum { AHEAD = 3 };

static void make_more(ds_solver *x, uint32_t rank) {
    ds_solver_rank *r = &x->ranks[rank];
    while (!x->complete && r->n_open < AHEAD) {
        uint32_t item = r->made;
        if (item < r->end) make_item(x, r);
        if (r->made == r->end || x->is_last[item]) make_rest(x);
    }
}

/* Every stream is used by the items of one rank alone, or by what one rank sends. */
static bool check_streams(ds_solver *x, const uint32_t *rank_of) {
    bool fine = true;
    uint32_t *user = ds_xcalloc(x->plan->n_streams, sizeof *user);
    for (uint32_t p = 0; p + 1 < x->s->n_parts && fine; p++) {
        const ds_part *part = &x->s->parts[p];
        uint32_t own = 2 * rank_of[part->group] + (part->post >= 0) + 1;
        for (uint32_t k = 0; k < part->streams.n && fine && x->is_run[p]; k++) {
            uint32_t *of = &user[part->streams.at[k]];
            fine = !*of || *of == own;
            *of = own;
        }
    }
    free(user);
    return fine || ds_compose__unknown(x->s, "a stream of several stages");
}

/* ---- settling ---- */

/* An event of no stream: an item of the rank, which was timed as a whole, is over. */
#define WAKE 0x80000000u

static void wake(ds_solver *x, uint32_t rank) {
    x->ranks[rank].n_open--;
    if (!x->complete) DS_HPUSH(&x->hungry, rank);
}

/* All of an execution is settled. */
static void release(ds_solver *x, ds_live *live) {
    uint32_t exec = live->exec;
    ds_exec *e = &x->t->execs[exec];
    live->next_spare = x->spare[live->part];
    x->spare[live->part] = e->live;
    e->live = DS_NONE;
    x->n_lives--;
    int64_t end_ps = e->base_ps + e->timing->all_end;
    if (end_ps + e->late_ps > x->t->step_ps) x->t->step_ps = end_ps + e->late_ps;
    const ds_part *part = ds_solver__part(x, exec);
    if (part->tail || part->post >= 0) return;
    uint32_t rank = ds_solver__rank(x, exec);
    if (rank == x->first_rank) x->n_items++;
    if (x->complete) return;
    if (e->opaque && end_ps > x->now_ps)
        ds_heap_push(&x->heap, end_ps, WAKE | rank);
    else
        wake(x, rank);
}

/* `end` follows `start`. */
static void note_times(ds_solver *x, ds_live *live) {
    const ds_body *body = x->s->parts[live->part].body;
    ds_exec *e = &x->t->execs[live->exec];
    int64_t base_ps = INT64_MAX;
    for (uint32_t r = 0; r < body->n_chains; r++)
        if (live->start[r] < base_ps) base_ps = live->start[r];
    for (uint32_t i = 0; i < 2 * body->n_chains; i++) live->start[i] -= base_ps;
    e->base_ps = base_ps;
    e->timing = ds_solver__own_timing(x, body, live->start);
    e->timing->n_uses++;
}

static void settle_whole(ds_solver *x, uint32_t id) {
    ds_live *live = x->lives.at[id];
    ds_exec *e = &x->t->execs[live->exec];
    ds_part *part = &x->s->parts[live->part];
    ds_body *body = part->body;
    int64_t base = INT64_MAX;
    for (uint32_t i = 0; i < body->exts.n; i++) {
        ds_spot *waiters;
        if (live->exts[i] != DS_UNKNOWN) continue;
        live->exts[i] = read_ext(x, live, i, &waiters);
        if (live->exts[i] != DS_UNKNOWN) continue;
        wait_for(x, waiters, id, 0);
        return;
    }
    for (uint32_t i = 0; i < part->streams.n; i++)
        if (x->free_ps[part->streams.at[i]] < base) base = x->free_ps[part->streams.at[i]];
    if (!part->streams.n) base = 0; /* an item without tasks: at no time */
    for (uint32_t i = 0; i < part->streams.n; i++)
        x->key[i] = x->free_ps[part->streams.at[i]] - base;
    for (uint32_t i = 0; i < body->exts.n; i++)
        x->key[part->streams.n + i] = live->exts[i] > base ? live->exts[i] - base : 0;
    e->base_ps = base;
    e->timing = ds_solver__timing_of(x, body, x->key);
    for (uint32_t i = 0; i < part->streams.n; i++)
        leave_stream(x, live, i, base + e->timing->free_ps[i]);
    wake_waiters(x, &live->waiters[0]);
    release(x, live);
}

static void finish_chain(ds_solver *x, uint32_t id, uint32_t r, int64_t end_ps) {
    ds_live *live = x->lives.at[id];
    const ds_body *body = x->s->parts[live->part].body;
    const ds_chain *chain = &body->chains[r];
    live->end[r] = end_ps;
    if (!x->complete) ds_period_note(live, r);
    for (uint32_t i = chain->slot; i < chain->slot + chain->n_slots; i++) {
        uint32_t next = body->follow[i];
        if (next == DS_NONE) continue;
        if (next & DS_EXT)
            leave_stream(x, live, next & ~DS_EXT, end_ps);
        else if (is_next(body, live, next))
            be_ready(x, id, next);
    }
    wake_waiters(x, &live->waiters[r]);
    if (--live->n_left) return;
    note_times(x, live);
    release(x, live);
}

/* The stream's transfer waits for its next flow; behind the last one its end is known. */
static void wait_for_flow(ds_solver *x, uint32_t stream, uint32_t next, int64_t at_ps) {
    ds_flight *f = &x->flights[stream];
    for (; next < f->end_flow; next++) {
        const ds_flow *flow = &x->plan->flows[next];
        at_ps += flow->wait_ps;
        if (flow->share.n_uses) {
            f->flow = next;
            f->next_ps = at_ps;
            ds_heap_push(&x->heap, at_ps, stream);
            return;
        }
        at_ps += flow->alone_ps;
    }
    finish_chain(x, f->spot.live, f->spot.chain, at_ps);
}

static void start_transfer(ds_solver *x, uint32_t id, uint32_t chain, uint32_t stream,
                           const ds_activity *a, int64_t start_ps) {
    int64_t at_ps = start_ps + a->ps;
    for (uint32_t i = a->first_flow; i < a->first_flow + a->n_flows; i++)
        at_ps -= x->plan->flows[i].wait_ps + x->plan->flows[i].alone_ps;
    if (start_ps < x->now_ps) x->late = true;
    x->flights[stream] = (ds_flight){.spot = {id, chain}, .end_flow = a->first_flow + a->n_flows};
    wait_for_flow(x, stream, a->first_flow, at_ps);
}

/* Nothing is left before it on its streams. */
static void settle_chain(ds_solver *x, uint32_t id, uint32_t r) {
    ds_live *live = x->lives.at[id];
    const ds_part *part = &x->s->parts[live->part];
    const ds_body *body = part->body;
    const ds_chain *chain = &body->chains[r];
    int64_t start = 0;
    for (uint32_t i = chain->need; i < chain[1].need; i++) {
        const ds_need *need = &body->needs[i];
        ds_spot *waiters = NULL;
        int64_t at;
        if (need->kind == DS_NEED_STREAM) {
            at = x->free_ps[part->streams.at[need->at]];
        } else if (need->kind == DS_NEED_EXT) {
            at = live->exts[need->at];
            if (at == DS_UNKNOWN) at = live->exts[need->at] = read_ext(x, live, need->at, &waiters);
        } else {
            at = live->end[need->at];
            if (at == DS_UNKNOWN)
                waiters = &live->waiters[need->at];
            else
                at -= need->less_ps;
        }
        if (at == DS_UNKNOWN) {
            wait_for(x, waiters, id, r);
            return;
        }
        if (at > start) start = at;
    }
    live->start[r] = start;
    if (chain->transfer != DS_NONE) {
        const ds_activity *a = &x->plan->activities[part->transfers.at[chain->transfer].activity];
        if (a->n_flows) {
            uint32_t stream = part->streams.at[body->slots.at[chain->slot]];
            start_transfer(x, id, r, stream, a, start);
            return;
        }
    }
    finish_chain(x, id, r, start + chain->ps);
}

static bool is_over(ds_solver *x) {
    uint32_t *n = &x->polls;
    x->over = x->over || ds_stop_check_often(ds_compose__stop(x->s), n, NULL) != DS_OK;
    return x->over;
}

static void settle_ready(ds_solver *x) {
    do {
        while (x->hungry.n && !x->over) make_more(x, x->hungry.at[--x->hungry.n]);
        while (x->ready.n) {
            if (is_over(x)) return;
            ds_spot at = x->ready.at[--x->ready.n];
            if (x->t->execs[x->lives.at[at.live]->exec].opaque)
                settle_whole(x, at.live);
            else
                settle_chain(x, at.live, at.chain);
        }
    } while (x->hungry.n);
}

/* ---- transfers over shared links (engine.c) ---- */

static bool next_event(ds_solver *x) {
    int64_t heap_ps = x->heap.n ? x->heap.at[0].time_ps : INT64_MAX;
    int64_t net_ps =
        x->heap.n && heap_ps == x->now_ps ? INT64_MAX : ds_net_next_ps(x->net, x->now_ps);
    if (x->heap.n && heap_ps <= net_ps) {
        x->now_ps = heap_ps;
        uint32_t id = ds_heap_pop(&x->heap);
        if (id & WAKE) {
            wake(x, id & ~WAKE);
            settle_ready(x);
            return true;
        }
        x->flights[id].next_ps = DS_FLOWING;
        ds_net_flow(x->net, id, id, x->flights[id].flow, x->now_ps);
        return true;
    }
    if (net_ps == INT64_MAX) return false;
    x->now_ps = net_ps;
    uint32_t stream = ds_net_pop(x->net);
    wait_for_flow(x, stream, x->flights[stream].flow + 1, x->now_ps);
    settle_ready(x);
    return true;
}

static bool run_items(ds_solver *x) {
    uint32_t n_items = 0;
    for (uint32_t r = 0; r < x->n_ranks; r++) DS_HPUSH(&x->hungry, r);
    if (!x->ahead || !x->n_ranks) make_rest(x); /* all of a step may be its tail */
    settle_ready(x);
    while (!x->late && !is_over(x) && next_event(x)) {
        if (x->complete || x->n_items == n_items) continue;
        n_items = x->n_items;
        ds_period_skip(x);
    }
    if (x->late) return ds_compose__unknown(x->s, "a transfer that starts within an item");
    if (x->over) return ds_compose__unknown(x->s, DS_COMPOSE_OVER);
    if (x->n_lives || !x->complete) return ds_compose__unknown(x->s, "a step that stops half-way");
    for (uint32_t i = 0; i < x->t->n_execs; i++) {
        const ds_exec *e = &x->t->execs[i];
        int64_t end_ps = e->base_ps + e->late_ps + e->timing->all_end;
        if (end_ps > x->t->step_ps) x->t->step_ps = end_ps;
    }
    return true;
}

/* Executions stand rank by rank; the tail is no rank's. */
static void list_ranks(ds_solver *x) {
    uint32_t n = x->t->n_execs - 1, n_groups = x->s->n_groups;
    for (uint32_t g = 0; g < n_groups && n; g++)
        if (x->rank_of[g] >= x->n_ranks) x->n_ranks = x->rank_of[g] + 1;
    x->ranks = ds_xcalloc(x->n_ranks, sizeof *x->ranks);
    if (n) x->first_rank = ds_solver__rank(x, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = x->t->execs[i].part;
        x->is_run[part] = true;
        ds_solver_rank *r = &x->ranks[x->rank_of[x->s->parts[part].group]];
        if (!r->end) r->made = r->past = i;
        r->end = i + 1;
    }
}

static uint32_t *nones(uint32_t n) {
    uint32_t *out = ds_xmalloc(((size_t)n + 1) * sizeof *out);
    memset(out, 0xff, n * sizeof *out); /* DS_NONE */
    return out;
}

static ds_spot *no_spots(uint32_t n) {
    ds_spot *out = ds_xmalloc(((size_t)n + 1) * sizeof *out);
    memset(out, 0xff, n * sizeof *out); /* DS_NONE */
    return out;
}

static void solver_init(ds_solver *x) {
    const ds_plan *plan = x->plan;
    uint32_t most = 1;
    for (uint32_t i = 0; i < x->s->n_parts; i++) {
        ds_body *body = x->s->parts[i].body;
        if (!body) continue;
        ds_compose__chains(body);
        if (body->stream_cls.n + body->exts.n > most) most = body->stream_cls.n + body->exts.n;
    }
    x->key = ds_xcalloc(most, sizeof *x->key);
    x->spare = nones(x->s->n_parts);
    x->last = no_spots(plan->n_streams);
    x->waiting = no_spots(x->t->n_execs);
    x->flights = ds_xcalloc(plan->n_streams, sizeof *x->flights);
    for (uint32_t i = 0; i < plan->n_streams; i++) x->flights[i].spot = no_spot;
    x->free_ps = ds_xcalloc(plan->n_streams, sizeof *x->free_ps);
    x->net = ds_net_new(plan->link_capacity_q20, plan->n_links, plan->flows, plan->n_flows,
                        plan->n_streams);
    x->is_last = ds_xcalloc(x->t->n_execs, sizeof *x->is_last);
    x->is_run = ds_xcalloc(x->s->n_parts, sizeof *x->is_run);
    find_last(x);
    list_ranks(x);
}

static void solver_deinit(ds_solver *x) {
    ds_period_free(x->period);
    ds_net_free(x->net);
    ds_heap_deinit(&x->heap);
    ds_map_deinit(&x->timings);
    for (uint32_t i = 0; i < x->lives.n; i++) free(x->lives.at[i]);
    free(x->lives.at);
    free(x->ready.at);
    free(x->hungry.at);
    free(x->ranks);
    free(x->waiting);
    free(x->is_last);
    free(x->is_run);
    free(x->spare);
    free(x->last);
    free(x->flights);
    free(x->free_ps);
    free(x->key);
}

static bool find_timeline(ds_sibling *s, const ds_order *order, uint32_t n_order,
                          const uint32_t *rank_of, bool ahead, bool *late, ds_timeline *out) {
    *out = (ds_timeline){.s = s};
    ds_arena_init(&out->arena);
    ds_solver x = {.s = s, .t = out, .plan = s->plan, .rank_of = rank_of, .ahead = ahead};
    list_execs(out, order, n_order, rank_of);
    solver_init(&x);
    bool fine = check_streams(&x, rank_of) && run_items(&x);
    *late = x.late;
    solver_deinit(&x);
    return fine;
}

bool ds_compose__timeline(ds_sibling *s, const ds_order *order, uint32_t n_order,
                          const uint32_t *rank_of, ds_timeline *out) {
    bool late;
    if (find_timeline(s, order, n_order, rank_of, true, &late, out)) return true;
    if (!late) return false;
    ds_compose__timeline_deinit(out);
    s->why = NULL;
    return find_timeline(s, order, n_order, rank_of, false, &late, out);
}

void ds_compose__timeline_deinit(ds_timeline *t) {
    ds_arena_deinit(&t->arena);
    free(t->cuts.at);
    free(t->execs);
    free(t->of_mb);
}
