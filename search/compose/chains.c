/* Units of a body that follow each other without a gap, whenever the first of them starts; what is
 * known of its frees whatever the times; and both by class.
 *
 * A compute unit that waits for nothing but the one before it on its stream, or for what an earlier
 * one there has waited for already, starts when that one ends. So a chain needs one node of the
 * timeline, one start and end in a timing, one span of the accounts. A transfer is a chain by
 * itself.
 *
 * Of a buffer's users some end before others in any case: earlier ones on the same stream, and
 * transfers that a user's chain, or one before it on the stream, has waited for. Mostly one is
 * left. */
#include "search/compose/internal.h"

#include <stdlib.h>

typedef struct finder {
    ds_body *body;
    uint32_t *chain_on;   /* per stream: the chain of compute that stands last on it; DS_NONE */
    uint32_t *waited_by;  /* per unit: the stream that has waited for it last; DS_NONE … */
    uint32_t *waited_in;  /* … and the first chain there that has */
    uint32_t *ext_waited; /* per external: the stream */
    uint32_t *slot_on;    /* per stream: the slot of the chain that stands last on it; DS_NONE */
    uint32_t *last_on;    /* … and that chain */
    uint32_t *followed;   /* per chain: by this one last … */
    uint32_t *need_on;    /* per stream: the last need of a unit there */
    DS_VEC(ds_need) needs;
} finder;

static uint32_t stream_of(const ds_body *body, uint32_t u) {
    return body->slots.at[body->units.at[u].slot];
}

static bool is_compute(const ds_body *body, uint32_t u) {
    return body->units.at[u].transfer == DS_NONE && body->units.at[u].n_slots == 1;
}

/* Has an earlier unit of the stream waited for it? */
static bool is_waited_for(const finder *x, uint32_t pred, uint32_t stream) {
    return (pred & DS_EXT ? x->ext_waited[pred & ~DS_EXT] : x->waited_by[pred]) == stream;
}

/* … for all that the unit waits for? */
static bool is_known(const finder *x, const ds_unit_task *unit, uint32_t stream) {
    for (uint32_t i = unit->pred; i < unit->pred + unit->n_preds; i++)
        if (!is_waited_for(x, x->body->preds.at[i], stream)) return false;
    return true;
}

static void note_waits(finder *x, const ds_unit_task *unit, uint32_t stream, uint32_t chain) {
    for (uint32_t i = unit->pred; i < unit->pred + unit->n_preds; i++) {
        uint32_t pred = x->body->preds.at[i];
        if (pred & DS_EXT) {
            x->ext_waited[pred & ~DS_EXT] = stream;
        } else if (x->waited_by[pred] != stream) {
            x->waited_by[pred] = stream;
            x->waited_in[pred] = chain;
        }
    }
}

static uint32_t add_need(finder *x, ds_need_kind kind, uint32_t at) {
    DS_HPUSH(&x->needs, ((ds_need){kind, at, 0}));
    return x->needs.n - 1;
}

/* Is it behind any other? */
static bool need_streams(finder *x, const ds_unit_task *unit, uint32_t chain) {
    ds_body *body = x->body;
    bool any = false;
    for (uint32_t i = unit->slot; i < unit->slot + unit->n_slots; i++) {
        uint32_t place = body->slots.at[i], before = x->slot_on[place];
        any = any || before != DS_NONE;
        if (before == DS_NONE) {
            add_need(x, DS_NEED_STREAM, place);
            body->first_on[place] = chain;
        } else if (x->followed[x->last_on[place]] == chain) {
            body->follow[before] = DS_NONE;
        } else {
            x->followed[x->last_on[place]] = chain;
            body->follow[before] = chain;
            add_need(x, DS_NEED_ORDER, x->last_on[place]);
        }
        body->follow[i] = DS_EXT | place;
        x->slot_on[place] = i;
        x->last_on[place] = chain;
    }
    return any;
}

/* Units that share a stream end in order: of those that stand on one, the last is enough, and none
 * where the chain stands, too. Which unit a need is for is known by its less_ps until all chains
 * are complete. */
static void need_values(finder *x, const ds_unit_task *unit, uint32_t chain, bool compute) {
    const ds_body *body = x->body;
    uint32_t first = body->chains[chain].need;
    for (uint32_t i = unit->pred; i < unit->pred + unit->n_preds; i++) {
        uint32_t pred = body->preds.at[i];
        if (compute && is_waited_for(x, pred, body->slots.at[unit->slot])) continue;
        if (pred & DS_EXT) {
            add_need(x, DS_NEED_EXT, pred & ~DS_EXT);
            continue;
        }
        bool somewhere = body->units.at[pred].n_slots > 0;
        uint32_t on = somewhere ? stream_of(body, pred) : DS_NONE;
        if (somewhere && x->last_on[on] == chain) continue;
        uint32_t need = somewhere ? x->need_on[on] : DS_NONE;
        if (need == DS_NONE || need < first) {
            if (somewhere) x->need_on[on] = x->needs.n;
            need = add_need(x, DS_NEED_CHAIN, body->chain_of[pred]);
            x->needs.at[need].less_ps = pred;
        } else if (x->needs.at[need].less_ps < pred) {
            x->needs.at[need].at = body->chain_of[pred];
            x->needs.at[need].less_ps = pred;
        }
    }
}

static void finish_chains(finder *x) {
    ds_body *body = x->body;
    for (uint32_t r = 0; r < body->n_chains; r++) {
        ds_chain *chain = &body->chains[r];
        chain->ps = body->after_ps[chain->last] + body->units.at[chain->last].ps;
    }
    body->chains[body->n_chains].need = x->needs.n;
    for (uint32_t i = 0; i < x->needs.n; i++) {
        ds_need *need = &x->needs.at[i];
        if (need->kind != DS_NEED_CHAIN) continue;
        size_t unit = (size_t)need->less_ps;
        need->less_ps = body->chains[need->at].ps - body->after_ps[unit] - body->units.at[unit].ps;
    }
}

static void add_unit(finder *x, uint32_t u) {
    ds_body *body = x->body;
    const ds_unit_task *unit = &body->units.at[u];
    const uint32_t *slots = &body->slots.at[unit->slot];
    bool compute = is_compute(body, u);
    uint32_t chain = compute ? x->chain_on[slots[0]] : DS_NONE;
    body->next[u] = DS_NONE;
    body->after_ps[u] = 0;
    if (chain != DS_NONE && is_known(x, unit, slots[0])) {
        uint32_t before = body->chains[chain].last;
        body->next[before] = u;
        body->after_ps[u] = body->after_ps[before] + body->units.at[before].ps;
        body->chains[chain].last = u;
    } else {
        chain = body->n_chains++;
        body->chains[chain] = (ds_chain){.first = u,
                                         .last = u,
                                         .need = x->needs.n,
                                         .slot = unit->slot,
                                         .n_slots = unit->n_slots,
                                         .transfer = unit->transfer};
        if (!need_streams(x, unit, chain)) body->heads[body->n_heads++] = chain;
        need_values(x, unit, chain, compute);
    }
    if (compute) note_waits(x, unit, slots[0], chain);
    for (uint32_t i = 0; i < unit->n_slots; i++) x->chain_on[slots[i]] = compute ? chain : DS_NONE;
    body->chain_of[u] = chain;
}

/* Ends the unit before, or when, another compute unit starts, in any case? */
static bool precedes(const finder *x, uint32_t u, uint32_t other) {
    const ds_body *body = x->body;
    uint32_t stream = stream_of(body, other);
    if (is_compute(body, u)) return stream_of(body, u) == stream && u < other;
    return x->waited_by[u] == stream && x->waited_in[u] <= body->chain_of[other];
}

/* The user that ends last in any case; DS_NONE: none is known. */
static uint32_t last_user(const finder *x, const ds_free *f) {
    const uint32_t *users = &x->body->users.at[f->first];
    if (!f->n) return DS_NONE;
    uint32_t last = users[0];
    for (uint32_t k = 1; k < f->n; k++)
        if (is_compute(x->body, users[k]) && (!is_compute(x->body, last) || users[k] > last))
            last = users[k];
    for (uint32_t k = 0; k < f->n; k++)
        if (users[k] != last && !(is_compute(x->body, last) && precedes(x, users[k], last)))
            return DS_NONE;
    return last;
}

/* The op that takes the buffer can do so in any case. */
static bool is_taken(const finder *x, const ds_free *f) {
    if (f->taker == DS_NONE || !is_compute(x->body, f->taker)) return false;
    for (uint32_t k = f->first; k < f->first + f->n; k++) {
        uint32_t user = x->body->users.at[k];
        if (user != f->taker && !precedes(x, user, f->taker)) return false;
    }
    return true;
}

static void find_leavers(finder *x) {
    ds_body *body = x->body;
    for (uint32_t i = 0, end; i < body->frees.n; i = end) {
        const ds_free *f = &body->frees.at[i];
        bool taken = is_taken(x, f), takes = f->taker != DS_NONE;
        for (end = i + 1; end < body->frees.n && takes && body->frees.at[end].taker != DS_NONE &&
                          body->frees.at[end].value == f->value;
             end++)
            taken = taken && is_taken(x, &body->frees.at[end]);
        for (uint32_t k = i; k < end; k++) {
            const ds_free *of = &body->frees.at[k];
            uint32_t last = takes ? DS_NONE : last_user(x, of);
            body->leave[k] = (ds_leave){taken ? of->taker : last, taken};
        }
    }
}

static void list_changes(ds_body *body) {
    uint32_t *first = body->first_change, n_allocs = body->allocs.n;
    for (uint32_t i = 0; i < n_allocs; i++) first[body->allocs.at[i].cls + 2]++;
    for (uint32_t i = 0; i < body->frees.n; i++) first[body->frees.at[i].cls + 2]++;
    for (uint32_t c = 2; c < body->n_classes + 2; c++) first[c] += first[c - 1];
    for (uint32_t i = 0; i < n_allocs; i++) body->changes[first[body->allocs.at[i].cls + 1]++] = i;
    for (uint32_t i = 0; i < body->frees.n; i++)
        body->changes[first[body->frees.at[i].cls + 1]++] = n_allocs + i;
}

/* Chain r's classes count it, then list it. A transfer may have a class twice, and comes once. */
static void put_visitor(ds_body *body, uint32_t r, bool list, uint32_t *seen, uint32_t *end) {
    const ds_chain *chain = &body->chains[r];
    uint32_t mark = 1 + 2 * r + list;
    for (uint32_t i = chain->slot; i < chain->slot + chain->n_slots; i++) {
        uint32_t c = body->stream_cls.at[body->slots.at[i]];
        if (seen[c] == mark) continue;
        seen[c] = mark;
        if (list) body->visitors[end[c]] = r;
        end[c]++;
    }
}

/* By class, in order. */
static void list_visitors(ds_body *body) {
    uint32_t n = 0, n_classes = body->n_classes;
    uint32_t *seen = ds_xcalloc((size_t)n_classes * 2 + 1, sizeof *seen), *end = seen + n_classes;
    for (uint32_t r = 0; r < body->n_chains; r++) put_visitor(body, r, false, seen, end);
    for (uint32_t c = 0; c < n_classes; c++) {
        body->first_visitor[c] = n;
        n += end[c];
        end[c] = body->first_visitor[c];
    }
    body->first_visitor[n_classes] = n;
    for (uint32_t r = 0; r < body->n_chains; r++) put_visitor(body, r, true, seen, end);
    free(seen);
}

static void alloc_chains(ds_body *body) {
    size_t n = body->units.n, n_classes = body->n_classes, n_frees = body->frees.n;
    size_t n_changes = body->allocs.n + n_frees, n_slots = body->slots.n;
    size_t n_words = 3 * n + 2 * n_slots + body->stream_cls.n + n_changes + 2 * n_classes + 3;
    body->after_ps = ds_xcalloc(1, n * sizeof *body->after_ps + (n + 1) * sizeof *body->chains +
                                       n_frees * sizeof *body->leave + n_words * sizeof(uint32_t));
    body->chains = (ds_chain *)(body->after_ps + n);
    body->leave = (ds_leave *)(body->chains + n + 1);
    body->chain_of = (uint32_t *)(body->leave + n_frees);
    body->next = body->chain_of + n;
    body->heads = body->next + n;
    body->changes = body->heads + n;
    body->first_change = body->changes + n_changes;
    body->visitors = body->first_change + n_classes + 2;
    body->first_visitor = body->visitors + n_slots;
    body->follow = body->first_visitor + n_classes + 1;
    body->first_on = body->follow + n_slots;
}

void ds_compose__chains(ds_body *body) {
    if (body->chains) return;
    uint32_t n = body->units.n, n_streams = body->stream_cls.n, n_exts = body->exts.n;
    alloc_chains(body);
    size_t n_room = 4 * (size_t)n_streams + 3 * (size_t)n + n_exts;
    uint32_t *room = ds_xmalloc((n_room + 1) * sizeof *room);
    for (size_t i = 0; i < n_room; i++) room[i] = DS_NONE;
    finder x = {.body = body, .chain_on = room};
    x.slot_on = x.chain_on + n_streams;
    x.last_on = x.slot_on + n_streams;
    x.waited_by = x.last_on + n_streams;
    x.waited_in = x.waited_by + n;
    x.followed = x.waited_in + n;
    x.need_on = x.followed + n;
    x.ext_waited = x.need_on + n_streams;
    for (uint32_t i = 0; i < n_streams; i++) body->first_on[i] = DS_NONE;
    for (uint32_t u = 0; u < n; u++) add_unit(&x, u);
    finish_chains(&x);
    body->needs = x.needs.at;
    find_leavers(&x);
    list_changes(body);
    list_visitors(body);
    free(room);
}
