/* When everything happens.
 *
 * A part of which no transfer shares links is *opaque*: within it everything has a known duration,
 * so that what it does follows from when its streams are free and what it reads is there. All times
 * are kept relative to the earliest of its streams; the same relative state has the same outcome,
 * which is looked up. Other parts (sends, the last backward items with their reductions, the tail)
 * are followed unit by unit, transfers over shared links through their flows in the network, as the
 * engine does.
 *
 * Nodes (opaque executions, chains of units) wait for others: for those before them on their
 * streams, and for what they read. What has a known duration is settled as soon as all it waits for
 * is, in any order, with ends that may lie in the future; only flows are events in time. An opaque
 * execution is settled late, when the last thing is known that it waits for: a transfer that
 * something in it would have started before that was missed, and the answer is that nothing is
 * known.
 *
 * Nodes are made for an item when few of its rank before it are not over yet, and for all that is
 * left once a rank has come to its last item, or to one that a transfer of the tail waits for. What
 * starts before it was made shows as a transfer that starts in the past; then all nodes are made
 * beforehand. So a period of the schedule that goes as the one before has gone needs no nodes
 * (period.c). */
#include "sim/compose/solver.h"

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
        bool opaque = part->opaque && !(part->flows && (s->cautious || open_rank == rank));
        if (!opaque) open_rank = rank;
        t->of_mb[group * m + order[i].mb] = t->of_turn[group * m + turn] = t->n_execs;
        ds_exec exec = {
            .part = item, .mb = order[i].mb, .turn = turn, .opaque = opaque, .node = DS_NONE};
        t->execs[t->n_execs++] = exec;
        exec.opaque = false;
        for (uint32_t q = 0; q < s->n_posts[item]; q++) {
            exec.part = s->first_post[item] + q;
            t->execs[t->n_execs++] = exec;
        }
    }
    t->execs[t->n_execs++] = (ds_exec){.part = s->n_parts - 1, .node = DS_NONE};
    free(seen);
}

static uint32_t new_edge(ds_solver *x, ds_solver_edge edge) {
    uint32_t at = x->spare_edge;
    if (at == DS_NONE) {
        DS_HPUSH(&x->edges, edge);
        return x->edges.n - 1;
    }
    x->spare_edge = x->edges.at[at].next;
    x->edges.at[at] = edge;
    return at;
}

static void add_edge(ds_solver *x, uint32_t from, uint32_t to, uint32_t ext, uint32_t unit) {
    const ds_solver_node *n = &x->nodes.at[from];
    if (ext == DS_IN_ORDER && n->edges != DS_NONE && x->edges.at[n->edges].to == to &&
        x->edges.at[n->edges].ext == DS_IN_ORDER)
        return;
    uint32_t edge = new_edge(x, (ds_solver_edge){to, ext, unit, n->edges});
    x->nodes.at[from].edges = edge;
    x->nodes.at[to].pending++;
}

static void put_on_stream(ds_solver *x, uint32_t stream, uint32_t id) {
    uint32_t last = x->last[stream];
    if (last != DS_NONE && !x->nodes.at[last].settled) add_edge(x, last, id, DS_IN_ORDER, 0);
    x->last[stream] = id;
}

/* With a key, for the body to keep, or in the timeline's arena. */
static ds_timing *new_timing(const ds_body *body, ds_arena *arena) {
    uint32_t n = body->n_chains, n_streams = body->stream_cls.n;
    size_t n_times = (size_t)n * 2 + 1;
    if (arena) {
        ds_timing *timing = DS_NEW(arena, ds_timing);
        timing->arena = arena;
        timing->start = DS_NEW_N(arena, int64_t, n_times);
        timing->end = timing->start + n;
        return timing;
    }
    ds_timing *timing = ds_xcalloc(1, sizeof *timing);
    n_times += 2 * (size_t)n_streams + body->exts.n;
    timing->start = ds_xcalloc(n_times, sizeof *timing->start);
    timing->end = timing->start + n;
    timing->free_ps = timing->end + n;
    timing->key = timing->free_ps + n_streams;
    return timing;
}

static void keep_timing(ds_body *body, ds_timing *timing, uint64_t hash) {
    const uint64_t *found = ds_map_find(&body->timings, hash);
    timing->hash = hash;
    timing->next = found ? (ds_timing *)(uintptr_t)*found : NULL;
    ds_map_put(&body->timings, hash, DS_KEY(timing));
}

/* As many nodes in a row: those of an execution that has ended, or new ones. */
static uint32_t new_nodes(ds_solver *x, uint32_t exec, uint32_t n) {
    const ds_solver_node node = {.exec = exec, .unit = DS_NONE, .edges = DS_NONE, .flow = DS_NONE};
    uint32_t first = x->spare[n];
    x->n_nodes += n;
    if (first != DS_NONE) x->spare[n] = x->nodes.at[first].edges;
    if (first == DS_NONE) first = x->nodes.n;
    for (uint32_t i = first; i < first + n; i++) {
        if (i < x->nodes.n)
            x->nodes.at[i] = node;
        else
            DS_HPUSH(&x->nodes, node);
    }
    return first;
}

static uint32_t count_nodes(const ds_solver *x, uint32_t exec) {
    return x->t->execs[exec].opaque ? 1 : ds_solver__part(x, exec)->body->n_chains;
}

/* All of them are settled. */
static void release_nodes(ds_solver *x, uint32_t exec) {
    ds_exec *e = &x->t->execs[exec];
    const ds_part *part = ds_solver__part(x, exec);
    uint32_t n = count_nodes(x, exec);
    for (uint32_t i = 0; i < part->streams.n; i++) {
        uint32_t *last = &x->last[part->streams.at[i]];
        if (*last != DS_NONE && *last >= e->node && *last < e->node + n) *last = DS_NONE;
    }
    x->nodes.at[e->node].edges = x->spare[n];
    x->spare[n] = e->node;
    e->node = DS_NONE;
}

static void add_nodes(ds_solver *x, uint32_t exec) {
    ds_exec *e = &x->t->execs[exec];
    const ds_part *part = ds_solver__part(x, exec);
    const ds_body *body = part->body;
    e->node = new_nodes(x, exec, count_nodes(x, exec));
    if (e->opaque) {
        e->ext = x->exts.n;
        for (uint32_t i = 0; i < body->exts.n; i++) DS_HPUSH(&x->exts, 0);
        for (uint32_t i = 0; i < part->streams.n; i++)
            put_on_stream(x, part->streams.at[i], e->node);
        return;
    }
    e->timing = new_timing(body, &x->t->arena);
    for (uint32_t r = 0; r < body->n_chains; r++) {
        const ds_unit_task *unit = &body->units.at[body->chains[r].first];
        x->nodes.at[e->node + r].unit = body->chains[r].first;
        for (uint32_t i = 0; i < unit->n_slots; i++)
            put_on_stream(x, part->streams.at[body->slots.at[unit->slot + i]], e->node + r);
    }
}

static uint32_t node_of(const ds_solver *x, uint32_t exec, uint32_t unit) {
    const ds_exec *e = &x->t->execs[exec];
    return e->node + (e->opaque ? 0 : ds_solver__part(x, exec)->body->chain_of[unit]);
}

/* What a node waits for has ended. */
static void take_end(ds_solver *x, uint32_t id, uint32_t ext, int64_t end_ps) {
    ds_solver_node *n = &x->nodes.at[id];
    if (n->unit == DS_NONE)
        x->exts.at[x->t->execs[n->exec].ext + ext] = end_ps;
    else if (end_ps > n->ready_ps)
        n->ready_ps = end_ps;
}

static void add_value(ds_solver *x, uint32_t exec, uint32_t unit, uint32_t id, uint32_t ext) {
    const ds_exec *from = &x->t->execs[exec];
    bool made = from->node != DS_NONE, known = !made && from->timing;
    if (made && !x->nodes.at[node_of(x, exec, unit)].settled) {
        add_edge(x, node_of(x, exec, unit), id, ext, unit);
    } else if (made || known) {
        const ds_body *body = ds_solver__part(x, exec)->body;
        take_end(x, id, ext, from->base_ps + ds_compose__end(body, from->timing, unit));
    } else {
        x->waiting[exec] = new_edge(x, (ds_solver_edge){id, ext, unit, x->waiting[exec]});
        x->nodes.at[id].pending++;
    }
}

static void add_values(ds_solver *x, uint32_t exec) {
    const ds_exec *e = &x->t->execs[exec];
    const ds_body *part = ds_solver__part(x, exec)->body;
    if (e->opaque) {
        for (uint32_t i = 0; i < part->exts.n; i++) {
            const ds_external *ext = &part->exts.at[i];
            add_value(x, ds_compose__exec(x->t, &ext->source, e), ext->unit, e->node, i);
        }
        return;
    }
    for (uint32_t r = 0; r < part->n_chains; r++) {
        const ds_unit_task *unit = &part->units.at[part->chains[r].first];
        for (uint32_t k = unit->pred; k < unit->pred + unit->n_preds; k++) {
            uint32_t pred = part->preds.at[k];
            if (!(pred & DS_EXT)) {
                add_edge(x, e->node + part->chain_of[pred], e->node + r, 0, pred);
                continue;
            }
            const ds_external *ext = &part->exts.at[pred & ~DS_EXT];
            add_value(x, ds_compose__exec(x->t, &ext->source, e), ext->unit, e->node + r, 0);
        }
    }
}

/* What has waited for the execution's nodes. */
static void meet_waiting(ds_solver *x, uint32_t exec) {
    for (uint32_t i = x->waiting[exec], next; i != DS_NONE; i = next) {
        ds_solver_edge *edge = &x->edges.at[i];
        ds_solver_node *from = &x->nodes.at[node_of(x, exec, edge->unit)];
        next = edge->next;
        edge->next = from->edges;
        from->edges = i;
    }
}

static void make_nodes(ds_solver *x, uint32_t exec) {
    const ds_part *part = ds_solver__part(x, exec);
    uint32_t n = count_nodes(x, exec);
    x->t->execs[exec].late_ps = x->t->cut_ps;
    if (!n) {
        x->t->execs[exec].timing = new_timing(part->body, &x->t->arena);
        return;
    }
    add_nodes(x, exec);
    add_values(x, exec);
    meet_waiting(x, exec);
    x->n_left[exec] = n;
    if (!part->tail && part->post < 0) x->ranks[ds_solver__rank(x, exec)].n_open++;
    uint32_t first = x->t->execs[exec].node;
    for (uint32_t i = first; i < first + n; i++)
        if (!x->nodes.at[i].pending) DS_HPUSH(&x->ready, i);
}

/* The rank's next item with what it sends. */
static void make_item(ds_solver *x, ds_solver_rank *rank) {
    do make_nodes(x, rank->made++);
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
    make_nodes(x, x->t->n_execs - 1);
    x->complete = true;
}

/* How many items of a rank have nodes and are not over. */
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
    for (uint32_t i = 0; i + 1 < x->t->n_execs && fine; i++) {
        const ds_part *part = ds_solver__part(x, i);
        uint32_t own = 2 * rank_of[part->group] + (part->post >= 0) + 1;
        for (uint32_t k = 0; k < part->streams.n && fine; k++) {
            uint32_t *of = &user[part->streams.at[k]];
            fine = !*of || *of == own;
            *of = own;
        }
    }
    free(user);
    return fine || ds_compose__unknown(x->s, "a stream of several stages");
}

/* ---- settling ---- */

/* An event that is no node: an item of the rank, which was timed as a whole, is over. */
#define WAKE 0x80000000u

static void wake(ds_solver *x, uint32_t rank) {
    x->ranks[rank].n_open--;
    if (!x->complete) DS_HPUSH(&x->hungry, rank);
}

static void pass_on(ds_solver *x, uint32_t id, const ds_exec *e) {
    uint32_t exec = x->nodes.at[id].exec, last = DS_NONE;
    const ds_body *body = ds_solver__part(x, exec)->body;
    x->nodes.at[id].settled = true;
    x->n_settled++;
    for (uint32_t i = x->nodes.at[id].edges; i != DS_NONE; last = i, i = x->edges.at[i].next) {
        const ds_solver_edge *to = &x->edges.at[i];
        if (to->ext != DS_IN_ORDER)
            take_end(x, to->to, to->ext, e->base_ps + ds_compose__end(body, e->timing, to->unit));
        if (!--x->nodes.at[to->to].pending) DS_HPUSH(&x->ready, to->to);
    }
    if (last != DS_NONE) {
        x->edges.at[last].next = x->spare_edge;
        x->spare_edge = x->nodes.at[id].edges;
    }
    if (--x->n_left[exec]) return;
    release_nodes(x, exec);
    const ds_part *part = ds_solver__part(x, exec);
    if (part->tail || part->post >= 0) return;
    uint32_t rank = ds_solver__rank(x, exec);
    if (rank == x->first_rank) x->n_items++;
    if (x->complete) return;
    int64_t end_ps = e->base_ps + e->timing->all_end;
    if (e->opaque && end_ps > x->now_ps)
        ds_heap_push(&x->heap, end_ps, WAKE | rank);
    else
        wake(x, rank);
}

static void time_units(const ds_body *part, const int64_t *key, ds_timing *out) {
    const int64_t *exts = key + part->stream_cls.n;
    out->flows_from = INT64_MAX;
    for (uint32_t i = 0; i < part->stream_cls.n; i++) out->free_ps[i] = key[i];
    for (uint32_t c = 0; c < part->n_chains; c++) {
        uint32_t last = part->chains[c].last;
        const ds_unit_task *unit = &part->units.at[part->chains[c].first];
        const uint32_t *slots = &part->slots.at[unit->slot];
        int64_t start = 0;
        for (uint32_t i = 0; i < unit->n_slots; i++)
            if (out->free_ps[slots[i]] > start) start = out->free_ps[slots[i]];
        for (uint32_t i = unit->pred; i < unit->pred + unit->n_preds; i++) {
            uint32_t pred = part->preds.at[i];
            int64_t at = pred & DS_EXT ? exts[pred & ~DS_EXT] : ds_compose__end(part, out, pred);
            if (at > start) start = at;
        }
        int64_t end = start + part->after_ps[last] + part->units.at[last].ps;
        out->start[c] = start;
        out->end[c] = end;
        if (end > out->all_end) out->all_end = end;
        if (unit->transfer != DS_NONE) {
            if (start < out->flows_from) out->flows_from = start;
            if (end > out->flows_to) out->flows_to = end;
        }
        for (uint32_t i = 0; i < unit->n_slots; i++) out->free_ps[slots[i]] = end;
    }
}

static ds_timing *timing_of(ds_solver *x, ds_body *part, const int64_t *key) {
    uint32_t n = part->stream_cls.n + part->exts.n;
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)key[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ (hash >> 29);
    const uint64_t *found = ds_map_find(&part->timings, hash);
    for (ds_timing *t = found ? (ds_timing *)(uintptr_t)*found : NULL; t; t = t->next)
        if (memcmp(t->key, key, n * sizeof *key) == 0) return t;
    ds_timing *timing = new_timing(part, NULL);
    memcpy(timing->key, key, n * sizeof *key);
    time_units(part, key, timing);
    keep_timing(part, timing, hash);
    x->t->n_timed++;
    x->s->timed += part->n_chains;
    return timing;
}

static void settle_whole(ds_solver *x, uint32_t id) {
    ds_exec *e = &x->t->execs[x->nodes.at[id].exec];
    ds_part *part = ds_solver__part(x, x->nodes.at[id].exec);
    ds_body *body = part->body;
    int64_t base = INT64_MAX;
    for (uint32_t i = 0; i < part->streams.n; i++)
        if (x->free_ps[part->streams.at[i]] < base) base = x->free_ps[part->streams.at[i]];
    if (!part->streams.n) base = 0; /* an item without tasks: at no time */
    for (uint32_t i = 0; i < part->streams.n; i++)
        x->key[i] = x->free_ps[part->streams.at[i]] - base;
    for (uint32_t i = 0; i < body->exts.n; i++) {
        int64_t at = x->exts.at[e->ext + i];
        x->key[part->streams.n + i] = at > base ? at - base : 0;
    }
    e->base_ps = base;
    e->timing = timing_of(x, body, x->key);
    for (uint32_t i = 0; i < part->streams.n; i++)
        x->free_ps[part->streams.at[i]] = base + e->timing->free_ps[i];
    pass_on(x, id, e);
}

/* Of a chain from its start on, `end_ps` is the end of its first unit. */
static void finish_chain(ds_solver *x, uint32_t id, int64_t end_ps) {
    const ds_solver_node *n = &x->nodes.at[id];
    ds_exec *e = &x->t->execs[n->exec];
    const ds_part *part = ds_solver__part(x, n->exec);
    const ds_body *body = part->body;
    const ds_unit_task *unit = &body->units.at[n->unit];
    uint32_t chain = body->chain_of[n->unit], last = body->chains[chain].last;
    if (last != n->unit) end_ps += body->after_ps[last] + body->units.at[last].ps - unit->ps;
    e->timing->end[chain] = end_ps - e->base_ps;
    if (e->timing->end[chain] > e->timing->all_end) e->timing->all_end = e->timing->end[chain];
    for (uint32_t i = 0; i < unit->n_slots; i++)
        x->free_ps[part->streams.at[body->slots.at[unit->slot + i]]] = end_ps;
    pass_on(x, id, e);
}

static void settle_chain(ds_solver *x, uint32_t id) {
    ds_solver_node *n = &x->nodes.at[id];
    const ds_part *part = ds_solver__part(x, n->exec);
    const ds_unit_task *unit = &part->body->units.at[n->unit];
    int64_t start = n->ready_ps;
    for (uint32_t i = 0; i < unit->n_slots; i++) {
        int64_t at = x->free_ps[part->streams.at[part->body->slots.at[unit->slot + i]]];
        if (at > start) start = at;
    }
    ds_exec *e = &x->t->execs[n->exec];
    e->timing->start[part->body->chain_of[n->unit]] = start - e->base_ps;
    if (unit->transfer == DS_NONE || !ds_compose__activity(x->s, part, unit)->n_flows) {
        finish_chain(x, id, start + unit->ps);
        return;
    }
    n->activity = part->transfers.at[unit->transfer].activity;
    n->stream = part->streams.at[part->body->slots.at[unit->slot]];
    if (start < x->now_ps) x->late = true;
    n->next_ps = start;
    ds_heap_push(&x->heap, start, id);
}

static void settle_ready(ds_solver *x) {
    do {
        while (x->hungry.n) make_more(x, x->hungry.at[--x->hungry.n]);
        while (x->ready.n) {
            uint32_t id = x->ready.at[--x->ready.n];
            if (x->nodes.at[id].unit == DS_NONE)
                settle_whole(x, id);
            else
                settle_chain(x, id);
        }
    } while (x->hungry.n);
}

/* ---- transfers over shared links (engine.c) ---- */

static const ds_activity *activity_of(const ds_solver *x, uint32_t id) {
    return &x->plan->activities[x->nodes.at[id].activity];
}

/* The network knows a transfer by its stream, where it is alone. */
static uint32_t stream_of(ds_solver *x, uint32_t id) {
    uint32_t stream = x->nodes.at[id].stream;
    x->on_stream[stream] = id;
    return stream;
}

static void wait_for_flow(ds_solver *x, uint32_t id, uint32_t next, int64_t wait_ps) {
    const ds_activity *a = activity_of(x, id);
    const ds_flow *flows = x->plan->flows;
    for (uint32_t f = next; f < a->first_flow + a->n_flows; f++) {
        wait_ps += flows[f].wait_ps;
        if (!flows[f].share.n_uses) {
            wait_ps += flows[f].alone_ps;
            continue;
        }
        x->nodes.at[id].flow = f;
        x->nodes.at[id].next_ps = x->now_ps + wait_ps;
        ds_heap_push(&x->heap, x->now_ps + wait_ps, id);
        return;
    }
    x->nodes.at[id].flow = DS_NONE;
    x->nodes.at[id].next_ps = x->now_ps + wait_ps;
    ds_net_wait(x->net, stream_of(x, id), id, x->now_ps + wait_ps);
}

static void go_on(ds_solver *x, uint32_t id) {
    ds_solver_node *n = &x->nodes.at[id];
    if (n->started) {
        n->next_ps = DS_FLOWING;
        ds_net_flow(x->net, stream_of(x, id), id, n->flow, x->now_ps);
        return;
    }
    const ds_activity *a = activity_of(x, id);
    int64_t more_ps = a->ps;
    for (uint32_t i = 0; i < a->n_flows; i++)
        more_ps -=
            x->plan->flows[a->first_flow + i].wait_ps + x->plan->flows[a->first_flow + i].alone_ps;
    n->started = true;
    wait_for_flow(x, id, a->first_flow, more_ps);
}

static void end_flow(ds_solver *x, uint32_t id) {
    const ds_activity *a = activity_of(x, id);
    uint32_t flow = x->nodes.at[id].flow;
    if (flow != DS_NONE && flow + 1 < a->first_flow + a->n_flows) {
        wait_for_flow(x, id, flow + 1, 0);
        return;
    }
    finish_chain(x, id, x->now_ps);
    settle_ready(x);
}

static bool next_event(ds_solver *x) {
    int64_t heap_ps = x->heap.n ? x->heap.at[0].time_ps : INT64_MAX;
    int64_t net_ps =
        x->heap.n && heap_ps == x->now_ps ? INT64_MAX : ds_net_next_ps(x->net, x->now_ps);
    if (x->heap.n && heap_ps <= net_ps) {
        x->now_ps = heap_ps;
        uint32_t id = ds_heap_pop(&x->heap);
        if (!(id & WAKE)) {
            go_on(x, id);
            return true;
        }
        wake(x, id & ~WAKE);
        settle_ready(x);
        return true;
    }
    if (net_ps == INT64_MAX) return false;
    x->now_ps = net_ps;
    end_flow(x, x->on_stream[ds_net_pop(x->net)]);
    return true;
}

static bool solve(ds_solver *x) {
    uint32_t n_items = 0;
    for (uint32_t r = 0; r < x->n_ranks; r++) DS_HPUSH(&x->hungry, r);
    if (!x->ahead || !x->n_ranks) make_rest(x); /* all of a step may be its tail */
    settle_ready(x);
    while (!x->late && next_event(x)) {
        if (x->complete || x->n_items == n_items) continue;
        n_items = x->n_items;
        ds_period_skip(x);
    }
    if (x->late) return ds_compose__unknown(x->s, "a transfer that starts within an item");
    if (x->n_settled < x->n_nodes || !x->complete)
        return ds_compose__unknown(x->s, "a step that stops half-way");
    for (uint32_t i = 0; i < x->t->n_execs; i++) {
        const ds_exec *e = &x->t->execs[i];
        int64_t end_ps = e->base_ps + e->late_ps + e->timing->all_end;
        if (end_ps > x->t->step_ps) x->t->step_ps = end_ps;
    }
    return true;
}

/* Executions stand rank by rank; the tail is no rank's. */
static void list_ranks(ds_solver *x) {
    uint32_t n = x->t->n_execs - 1, *most = &x->n_ranks;
    for (uint32_t i = 0; i < n; i++)
        if (ds_solver__rank(x, i) >= *most) *most = ds_solver__rank(x, i) + 1;
    x->ranks = ds_xcalloc(x->n_ranks, sizeof *x->ranks);
    if (n) x->first_rank = ds_solver__rank(x, 0);
    for (uint32_t i = 0; i < n; i++) {
        ds_solver_rank *r = &x->ranks[ds_solver__rank(x, i)];
        if (!r->end) r->made = r->past = i;
        r->end = i + 1;
    }
}

static uint32_t *nones(uint32_t n) {
    uint32_t *out = ds_xmalloc(((size_t)n + 1) * sizeof *out);
    memset(out, 0xff, n * sizeof *out); /* DS_NONE */
    return out;
}

static void solver_init(ds_solver *x) {
    const ds_plan *plan = x->plan;
    uint32_t most = 1, most_chains = 1;
    for (uint32_t i = 0; i < x->t->n_execs; i++) {
        ds_body *body = ds_solver__part(x, i)->body;
        ds_compose__chains(body);
        if (body->n_chains > most_chains) most_chains = body->n_chains;
        if (body->stream_cls.n + body->exts.n > most) most = body->stream_cls.n + body->exts.n;
    }
    x->key = ds_xcalloc(most, sizeof *x->key);
    x->spare = nones(most_chains + 1);
    x->spare_edge = DS_NONE;
    x->last = nones(plan->n_streams);
    x->on_stream = nones(plan->n_streams);
    x->waiting = nones(x->t->n_execs);
    x->n_left = ds_xcalloc(x->t->n_execs, sizeof *x->n_left);
    x->free_ps = ds_xcalloc(plan->n_streams, sizeof *x->free_ps);
    x->net = ds_net_new(plan->link_capacity_q20, plan->n_links, plan->flows, plan->n_flows,
                        plan->n_streams);
    x->is_last = ds_xcalloc(x->t->n_execs, sizeof *x->is_last);
    find_last(x);
    list_ranks(x);
}

static void solver_deinit(ds_solver *x) {
    ds_period_free(x->period);
    ds_net_free(x->net);
    ds_heap_deinit(&x->heap);
    free(x->nodes.at);
    free(x->edges.at);
    free(x->ready.at);
    free(x->hungry.at);
    free(x->exts.at);
    free(x->ranks);
    free(x->waiting);
    free(x->is_last);
    free(x->spare);
    free(x->n_left);
    free(x->last);
    free(x->on_stream);
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
    bool fine = check_streams(&x, rank_of) && solve(&x);
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
