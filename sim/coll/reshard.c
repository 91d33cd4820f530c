/* Resharding as an algorithm: pieces to messages, chains and gathers (reshard.h has the formulas).
 *
 * An *item* is a piece that needs no sum any more. Broadcasts have a place in time: their order is
 * that of reshard_order.c, the resources being the links that a broadcast loads at least half as
 * long as its slowest one. A phase is then what happens between two instants at which broadcasts
 * begin or end, so that phases in a row move what the schedule moves. Message by message, each hop
 * of a broadcast waits for those before it on the links that it needs most. */
#include "sim/coll/reshard.h"

#include "ir/base/units.h"
#include "sim/coll/internal.h"
#include "sim/coll/messages.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

typedef struct item {
    int64_t bytes;
    const uint32_t *senders, *receivers;
    uint32_t n_senders, n_receivers;
} item;

typedef DS_VEC(item) item_list;

void ds_reshard_finish(ds_reshard *r, ds_arena *arena) {
    uint64_t h = ds_hash_mix(r->n_pieces, r->n_steps), n_slots = 0;
    for (uint32_t i = 0; i < r->n_pieces; i++) {
        const ds_reshard_piece *p = &r->pieces[i];
        h = ds_hash_mix(h, (uint64_t)p->bytes);
        h = ds_hash_mix(h, ds_hash_bytes(p->senders, p->n_senders * p->n_terms * sizeof(uint32_t)));
        h = ds_hash_mix(ds_hash_mix(h, p->n_terms),
                        ds_hash_bytes(p->receivers, p->n_receivers * sizeof(uint32_t)));
        n_slots += p->n_terms;
    }
    for (uint32_t i = 0; i < r->n_steps; i++) {
        const ds_reshard_step *s = &r->steps[i];
        size_t n = (size_t)s->n_groups * s->group_size;
        h = ds_hash_mix(ds_hash_mix(h, s->op), ds_hash_bytes(s->members, n * sizeof(uint32_t)));
        h = ds_hash_mix(h, ds_hash_bytes(s->bytes, s->n_groups * sizeof *s->bytes));
        if (s->shard_bytes) h = ds_hash_mix(h, ds_hash_bytes(s->shard_bytes, n * sizeof(int64_t)));
    }
    r->hash = ds_hash_mix(h, r->balance) | 1;
    r->slots = DS_NEW_N(arena, ds_reshard_slot, n_slots);
    r->has_slots = DS_NEW(arena, bool);
}

/* ---- where members are ---- */

/* Islands by number, and what every member and island has sent so far. */
typedef struct senders {
    uint32_t *island; /* per member */
    uint32_t *rank;   /* per member: how many of its island come before it */
    uint32_t n_islands;
    int64_t *member_bytes, *island_bytes;
    uint32_t *n_out, *n_in; /* messages */
    bool balanced;
} senders;

static senders find_islands(ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    senders s = {.balanced = q->reshard->balance != DS_BALANCE_NONE};
    s.island = DS_NEW_N(b->arena, uint32_t, q->n);
    s.rank = DS_NEW_N(b->arena, uint32_t, q->n);
    s.member_bytes = DS_NEW_N(b->arena, int64_t, q->n);
    s.island_bytes = DS_NEW_N(b->arena, int64_t, q->n);
    s.n_out = DS_NEW_N(b->arena, uint32_t, q->n);
    s.n_in = DS_NEW_N(b->arena, uint32_t, q->n);
    uint32_t *count = DS_NEW_N(b->arena, uint32_t, q->n);
    ds_map index;
    ds_map_init(&index);
    for (uint32_t i = 0; i < q->n; i++) {
        uint64_t key = (uint64_t)ds_topo_island(b->topo, q->devices[i]) + 1;
        const uint64_t *found = ds_map_find(&index, key);
        s.island[i] = found ? (uint32_t)*found : index.n;
        if (!found) ds_map_put(&index, key, index.n);
        s.rank[i] = count[s.island[i]]++;
    }
    s.n_islands = index.n;
    ds_map_deinit(&index);
    return s;
}

/* Who sends this to `receiver`: one in its island if there is one, then one in the island, then the
 * device, that has sent least. */
static uint32_t choose_sender(const senders *s, const item *it, uint32_t receiver) {
    uint32_t best = it->senders[0];
    for (uint32_t k = 1; k < it->n_senders && s->balanced; k++) {
        uint32_t one = it->senders[k];
        bool near = s->island[one] == s->island[receiver];
        bool best_near = s->island[best] == s->island[receiver];
        int64_t more = s->island_bytes[s->island[best]] - s->island_bytes[s->island[one]];
        if (near == best_near && more == 0) more = s->member_bytes[best] - s->member_bytes[one];
        if (near != best_near ? near : more > 0) best = one;
    }
    return best;
}

static ds_status send_one(ds_coll_builder *b, senders *s, const item *it, uint32_t receiver,
                          int64_t bytes) {
    if (!bytes) return DS_OK;
    uint32_t from = choose_sender(s, it, receiver);
    int64_t *out = &s->member_bytes[from], *past = &s->island_bytes[s->island[from]];
    bool fits = ds_add_i64(*out, bytes, out);
    if (s->island[from] != s->island[receiver]) fits = fits && ds_add_i64(*past, bytes, past);
    if (!fits) return ds_coll__too_large(b);
    s->n_out[from]++;
    s->n_in[receiver]++;
    return ds_coll__post(b, from, receiver, bytes);
}

/* Messages that a device sends or receives at one time, at most. */
static int64_t most_messages(const ds_coll_builder *b, const senders *s) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < b->request->n; i++) {
        if (s->n_out[i] > most) most = s->n_out[i];
        if (s->n_in[i] > most) most = s->n_in[i];
    }
    return most;
}

/* ---- sums ---- */

/* Reduce-scatter among the k-th holders of all terms, for all k, of all pieces: a phase. */
static ds_status sum_terms(ds_coll_builder *b) {
    const ds_reshard *r = b->request->reshard;
    uint32_t most = 1;
    for (uint32_t i = 0; i < r->n_pieces; i++) {
        const ds_reshard_piece *p = &r->pieces[i];
        if (p->n_terms < 2) continue;
        if (p->n_terms > most) most = p->n_terms;
        int64_t *shard = DS_NEW_N(b->arena, int64_t, p->n_terms);
        for (uint32_t t = 0; t < p->n_terms; t++) shard[t] = ds_coll__part(p->bytes, t, p->n_terms);
        for (uint32_t k = 0; k < p->n_senders; k++) {
            uint32_t *team = DS_NEW_N(b->arena, uint32_t, p->n_terms);
            for (uint32_t t = 0; t < p->n_terms; t++) team[t] = p->senders[t * p->n_senders + k];
            DS_TRY(ds_coll__ring(b, &(ds_team){team, p->n_terms, shard}, true, false));
        }
    }
    if (most > 1) ds_coll__end_phase(b, most - 1, 1);
    return DS_OK;
}

static bool holds(const uint32_t *list, uint32_t n, uint32_t member) {
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == member) return true;
    return false;
}

/* Part t of the sum, which those that held term t have now. */
static item part_of(ds_coll_builder *b, const ds_reshard_piece *p, uint32_t t) {
    item it = {.bytes = ds_coll__part(p->bytes, t, p->n_terms),
               .senders = p->senders + (size_t)t * p->n_senders,
               .n_senders = p->n_senders,
               .receivers = p->receivers,
               .n_receivers = p->n_receivers};
    if (p->n_terms == 1) return it;
    uint32_t *lack = DS_NEW_N(b->arena, uint32_t, p->n_receivers);
    it.receivers = lack;
    it.n_receivers = 0;
    for (uint32_t i = 0; i < p->n_receivers; i++)
        if (!holds(it.senders, it.n_senders, p->receivers[i]))
            lack[it.n_receivers++] = p->receivers[i];
    return it;
}

/* The items, after a phase that sums terms where there are any. */
static ds_status find_items(ds_coll_builder *b, item_list *items) {
    const ds_reshard *r = b->request->reshard;
    DS_TRY(sum_terms(b));
    for (uint32_t i = 0; i < r->n_pieces; i++)
        for (uint32_t t = 0; t < r->pieces[i].n_terms; t++) {
            item it = part_of(b, &r->pieces[i], t);
            if (it.bytes && it.n_receivers) DS_PUSH(b->arena, items, it);
        }
    return DS_OK;
}

static int larger_first(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->senders < y->senders ? -1 : x->senders > y->senders;
}

static void sort_items(const ds_coll_builder *b, item_list *items) {
    if (items->n && b->request->reshard->balance != DS_BALANCE_NONE)
        qsort(items->at, items->n, sizeof *items->at, larger_first);
}

/* ---- send_recv ---- */

ds_status ds_coll__send_recv_algorithm(ds_coll_builder *b) {
    item_list items = {0};
    DS_TRY(find_items(b, &items));
    senders s = find_islands(b);
    sort_items(b, &items);
    for (uint32_t i = 0; i < items.n; i++)
        for (uint32_t k = 0; k < items.at[i].n_receivers; k++)
            DS_TRY(send_one(b, &s, &items.at[i], items.at[i].receivers[k], items.at[i].bytes));
    ds_coll__end_phase(b, 1, most_messages(b, &s));
    return DS_OK;
}

/* ---- send_recv_gather ---- */

/* Receivers in one island that get the same pieces. */
typedef struct team {
    const uint32_t *member;
    uint32_t n;
    int64_t *shard;
} team;

typedef DS_VEC(team) team_list;

static team *find_team(ds_coll_builder *b, team_list *teams, const uint32_t *member, uint32_t n) {
    for (uint32_t i = 0; i < teams->n; i++)
        if (teams->at[i].n == n && memcmp(teams->at[i].member, member, n * sizeof *member) == 0)
            return &teams->at[i];
    uint32_t *copy = DS_NEW_N(b->arena, uint32_t, n);
    memcpy(copy, member, n * sizeof *copy);
    DS_PUSH(b->arena, teams, ((team){copy, n, DS_NEW_N(b->arena, int64_t, n)}));
    return &teams->at[teams->n - 1];
}

/* A part of the item to each of its receivers in one island. */
static ds_status spread(ds_coll_builder *b, senders *s, const item *it, uint32_t island,
                        team_list *teams, uint32_t *here) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < it->n_receivers; i++)
        if (s->island[it->receivers[i]] == island) here[n++] = it->receivers[i];
    if (!n) return DS_OK;
    team *t = find_team(b, teams, here, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t bytes = ds_coll__part(it->bytes, i, n);
        t->shard[i] += bytes;
        DS_TRY(send_one(b, s, it, here[i], bytes));
    }
    return DS_OK;
}

ds_status ds_coll__send_recv_gather_algorithm(ds_coll_builder *b) {
    item_list items = {0};
    team_list teams = {0};
    DS_TRY(find_items(b, &items));
    senders s = find_islands(b);
    sort_items(b, &items);
    uint32_t *here = DS_NEW_N(b->arena, uint32_t, b->request->n), most = 1;
    for (uint32_t i = 0; i < items.n; i++)
        for (uint32_t m = 0; m < s.n_islands; m++)
            DS_TRY(spread(b, &s, &items.at[i], m, &teams, here));
    ds_coll__end_phase(b, 1, most_messages(b, &s));
    for (uint32_t i = 0; i < teams.n; i++) {
        team *t = &teams.at[i];
        if (t->n < 2) continue;
        if (t->n > most) most = t->n;
        DS_TRY(ds_coll__ring(b, &(ds_team){t->member, t->n, t->shard}, false, true));
    }
    if (most > 1) ds_coll__end_phase(b, most - 1, 1);
    return DS_OK;
}

/* ---- broadcast ---- */

/* From the sender through all receivers: those of its own island, then the other islands in order.
 * It enters an island at the receiver with the sender's rank in its own, so that senders with NICs
 * of their own use different ones on the other side. */
static ds_tree chain_of(ds_coll_builder *b, const senders *s, const item *it, uint32_t sender) {
    uint32_t n = it->n_receivers + 1, at = 1;
    uint32_t *member = DS_NEW_N(b->arena, uint32_t, n), *parent = DS_NEW_N(b->arena, uint32_t, n);
    uint32_t *here = DS_NEW_N(b->arena, uint32_t, it->n_receivers);
    member[0] = sender;
    for (uint32_t m = 0; m < s->n_islands; m++) {
        uint32_t island = (s->island[sender] + m) % s->n_islands, count = 0;
        for (uint32_t i = 0; i < it->n_receivers; i++)
            if (s->island[it->receivers[i]] == island) here[count++] = it->receivers[i];
        for (uint32_t i = 0; i < count; i++) member[at++] = here[(i + s->rank[sender]) % count];
    }
    for (uint32_t i = 0; i < n; i++) parent[i] = i ? i - 1 : n;
    return (ds_tree){.member = member,
                     .parent = parent,
                     .n = n,
                     .depth = n - 1,
                     .bytes = it->bytes,
                     .down = true};
}

static int64_t load_ps(const ds_coll_builder *b, const ds_load *load) {
    ds_u128 bytes = load->bytes_q32 >> 20; /* 2^-12 bytes: with 10^12 ps, less than 2^116 */
    uint64_t capacity = (uint64_t)ds_topo_link_at(b->topo, load->link)->bytes_per_s;
    ds_u128 ps = (bytes * DS_PS_PER_S / (capacity ? capacity : 1)) >> 12;
    return ps < ((ds_u128)1 << 40) << 16 ? (int64_t)ps : INT64_C(1) << 56;
}

/* How long the chain's slowest link carries it, and the links that take at least half of that. */
static ds_status option_from(ds_coll_builder *b, const senders *s, const item *it, uint32_t sender,
                             ds_map *resource, ds_reshard_option *out) {
    ds_coll_builder probe = {
        .topo = b->topo, .request = b->request, .arena = b->arena, .err = b->err};
    ds_tree chain = chain_of(b, s, it, sender);
    ds_status status = ds_coll__tree(&probe, &chain);
    *out = (ds_reshard_option){0};
    for (uint32_t i = 0; i < probe.loads.n; i++) {
        int64_t ps = load_ps(b, &probe.loads.at[i]);
        if (ps > out->ps) out->ps = ps;
    }
    uint32_t *tight = DS_NEW_N(b->arena, uint32_t, probe.loads.n);
    for (uint32_t i = 0; i < probe.loads.n; i++) {
        const ds_load *load = &probe.loads.at[i];
        if (load_ps(b, load) < out->ps / 2) continue;
        uint64_t key = load->link + UINT64_C(1), *found = ds_map_find(resource, key);
        tight[out->n_resources++] = found ? (uint32_t)*found : resource->n;
        if (!found) ds_map_put(resource, key, resource->n);
    }
    out->resources = tight;
    if (!out->ps) out->ps = 1; /* it takes place somewhere in time */
    ds_coll__deinit(&probe);
    return status;
}

static bool same_option(const ds_reshard_option *a, const ds_reshard_option *b) {
    return a->ps == b->ps && a->n_resources == b->n_resources &&
           memcmp(a->resources, b->resources, a->n_resources * sizeof *a->resources) == 0;
}

/* The ways of broadcasting an item, those that are alike once; sender[option]. */
static ds_status options_of(ds_coll_builder *b, const senders *s, const item *it, ds_map *resource,
                            ds_reshard_item *out, uint32_t *sender, int64_t most_ps) {
    ds_reshard_option *options = DS_NEW_N(b->arena, ds_reshard_option, it->n_senders);
    out->options = options;
    for (uint32_t k = 0; k < it->n_senders; k++) {
        ds_reshard_option one;
        DS_TRY(option_from(b, s, it, it->senders[k], resource, &one));
        if (one.ps > most_ps) one.ps = most_ps; /* sums stay in range */
        bool known = false;
        for (uint32_t i = 0; i < out->n_options && !known; i++)
            known = same_option(&options[i], &one);
        if (known) continue;
        sender[out->n_options] = it->senders[k];
        options[out->n_options++] = one;
    }
    return DS_OK;
}

/* A broadcast in its place. */
typedef struct cast {
    ds_tree chain;
    const ds_reshard_option *option;
    uint32_t item;
    int64_t start_ps, end_ps;
} cast;

/* resource: link + 1 → number, of the links that broadcasts wait for. */
static ds_status schedule(ds_coll_builder *b, const item_list *items, ds_map *resource,
                          cast **out) {
    const ds_reshard *r = b->request->reshard;
    senders s = find_islands(b);
    ds_reshard_item *tasks = DS_NEW_N(b->arena, ds_reshard_item, items->n);
    uint32_t **from = DS_NEW_N(b->arena, uint32_t *, items->n);
    for (uint32_t i = 0; i < items->n; i++) {
        from[i] = DS_NEW_N(b->arena, uint32_t, items->at[i].n_senders);
        DS_TRY(options_of(b, &s, &items->at[i], resource, &tasks[i], from[i],
                          INT64_MAX / 4 / items->n));
    }
    if (!*r->has_slots) ds_reshard_order(tasks, items->n, resource->n, r->balance, r->slots);
    *r->has_slots = true;
    cast *casts = *out = DS_NEW_N(b->arena, cast, items->n);
    for (uint32_t i = 0; i < items->n; i++) {
        uint32_t k = r->slots[i].option;
        casts[i].chain = chain_of(b, &s, &items->at[i], from[i][k]);
        casts[i].item = i;
        casts[i].option = &tasks[i].options[k];
        casts[i].start_ps = r->slots[i].start_ps;
        casts[i].end_ps = casts[i].start_ps + casts[i].option->ps;
    }
    return DS_OK;
}

static int in_time(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The instants at which a broadcast begins or ends, ascending. */
static uint32_t instants(ds_coll_builder *b, const cast *casts, uint32_t n, int64_t **out) {
    int64_t *at = *out = DS_NEW_N(b->arena, int64_t, 2 * (size_t)n);
    for (uint32_t i = 0; i < n; i++) {
        at[2 * i] = casts[i].start_ps;
        at[2 * i + 1] = casts[i].end_ps;
    }
    uint32_t kept = 0;
    if (n) qsort(at, 2 * (size_t)n, sizeof *at, in_time);
    for (uint32_t i = 0; i < 2 * n; i++)
        if (!kept || at[kept - 1] != at[i]) at[kept++] = at[i];
    return kept;
}

/* Bytes of a broadcast that are over at `now`. */
static int64_t bytes_by(const cast *c, int64_t now_ps) {
    if (now_ps <= c->start_ps) return 0;
    if (now_ps >= c->end_ps) return c->chain.bytes;
    return (int64_t)((ds_u128)c->chain.bytes * (uint64_t)(now_ps - c->start_ps) /
                     (uint64_t)(c->end_ps - c->start_ps));
}

/* What is moved from one instant to the next. Who begins waits until the first byte is through. */
static ds_status slice(ds_coll_builder *b, const cast *casts, uint32_t n, int64_t from_ps,
                       int64_t to_ps) {
    int64_t steps = 0, alpha_ps = 0;
    for (uint32_t i = 0; i < n; i++) {
        ds_tree part = casts[i].chain;
        part.bytes = bytes_by(&casts[i], to_ps) - bytes_by(&casts[i], from_ps);
        if (!part.bytes) continue;
        b->alpha_ps = 0;
        DS_TRY(ds_coll__tree(b, &part));
        bool shorter = (ds_i128)part.depth * b->alpha_ps < (ds_i128)steps * alpha_ps;
        if (casts[i].start_ps != from_ps || shorter) continue;
        steps = part.depth;
        alpha_ps = b->alpha_ps;
    }
    b->alpha_ps = alpha_ps;
    ds_coll__end_phase(b, steps, 1);
    return DS_OK;
}

/* ---- broadcast, message by message ---- */

/* The resources of the broadcast that the hop into member i of its chain loads, into `found`. */
static ds_status hop_resources(ds_coll_builder *b, const cast *c, uint32_t i, ds_map *resource,
                               uint32_t *found, uint32_t *n) {
    const ds_route *route;
    *n = 0;
    DS_TRY(ds_coll__route(b, c->chain.member[i - 1], c->chain.member[i], &route));
    for (uint32_t k = 0; k < route->n_links; k++) {
        const uint64_t *number = ds_map_find(resource, route->links[k] + UINT64_C(1));
        if (number && holds(c->option->resources, c->option->n_resources, (uint32_t)*number))
            found[(*n)++] = (uint32_t)*number;
    }
    return DS_OK;
}

/* Every hop goes on when the broadcasts before it have left its links; last[resource]: the last
 * message there. */
static ds_status send_cast(ds_coll_builder *b, cast *c, ds_map *resource, uint32_t *last) {
    uint32_t *gate = DS_NEW_N(b->arena, uint32_t, c->chain.n), n;
    uint32_t *found = DS_NEW_N(b->arena, uint32_t, c->option->n_resources);
    uint32_t *before = DS_NEW_N(b->arena, uint32_t, c->option->n_resources);
    for (uint32_t i = 1; i < c->chain.n; i++) {
        uint32_t n_before = 0;
        DS_TRY(hop_resources(b, c, i, resource, found, &n));
        for (uint32_t k = 0; k < n; k++)
            if (last[found[k]] != NONE) before[n_before++] = last[found[k]];
        gate[i] = ds_coll__join_messages(b, before, n_before);
    }
    c->chain.gate = gate;
    c->chain.last = DS_NEW_N(b->arena, uint32_t, c->chain.n);
    DS_TRY(ds_coll__tree(b, &c->chain));
    for (uint32_t i = 1; i < c->chain.n; i++) { /* a later hop of the chain ends later */
        DS_TRY(hop_resources(b, c, i, resource, found, &n));
        for (uint32_t k = 0; k < n; k++) last[found[k]] = c->chain.last[i];
    }
    return DS_OK;
}

static int earlier_first(const void *a, const void *b) {
    const cast *x = a, *y = b;
    if (x->start_ps != y->start_ps) return x->start_ps < y->start_ps ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static ds_status send_all(ds_coll_builder *b, cast *casts, uint32_t n, ds_map *resource) {
    uint32_t *last = DS_NEW_N(b->arena, uint32_t, resource->n);
    for (uint32_t i = 0; i < resource->n; i++) last[i] = NONE;
    if (n) qsort(casts, n, sizeof *casts, earlier_first);
    for (uint32_t i = 0; i < n; i++) DS_TRY(send_cast(b, &casts[i], resource, last));
    ds_coll__end_phase(b, 1, 1);
    return DS_OK;
}

static ds_status broadcast_items(ds_coll_builder *b, const item_list *items, ds_map *resource) {
    cast *casts;
    int64_t *at;
    DS_TRY(schedule(b, items, resource, &casts));
    if (b->messages) return send_all(b, casts, items->n, resource);
    uint64_t n_messages = b->n_messages, chunks = (uint64_t)b->request->chunks;
    uint32_t n = instants(b, casts, items->n, &at);
    for (uint32_t i = 0; i + 1 < n; i++) DS_TRY(slice(b, casts, items->n, at[i], at[i + 1]));
    b->n_messages = n_messages; /* slices have a chain's hops more than once */
    for (uint32_t i = 0; i < items->n; i++)
        b->n_messages += casts[i].chain.depth * (chunks ? chunks : DS_MESSAGE_CHUNKS);
    return DS_OK;
}

ds_status ds_coll__broadcast_algorithm(ds_coll_builder *b) {
    item_list items = {0};
    ds_map resource;
    DS_TRY(find_items(b, &items));
    ds_map_init(&resource);
    ds_status status = broadcast_items(b, &items, &resource);
    ds_map_deinit(&resource);
    return status;
}

/* ---- collectives ---- */

static ds_coll_request request_of(const ds_coll_builder *b, const ds_reshard_step *s, uint32_t g) {
    const ds_coll_request *q = b->request;
    uint32_t *devices = DS_NEW_N(b->arena, uint32_t, s->group_size);
    size_t first = (size_t)g * s->group_size;
    for (uint32_t i = 0; i < s->group_size; i++) devices[i] = q->devices[s->members[first + i]];
    return (ds_coll_request){.op = s->op,
                             .devices = devices,
                             .n = s->group_size,
                             .bytes = s->bytes[g],
                             .shard_bytes = s->shard_bytes ? s->shard_bytes + first : NULL,
                             .single_route = q->single_route,
                             .loc = q->loc};
}

/* The groups of a step do their p-th phases together. */
static ds_status step_phases(ds_coll_builder *b, const ds_reshard_step *s) {
    ds_phase **phases = DS_NEW_N(b->arena, ds_phase *, s->n_groups);
    uint32_t *n = DS_NEW_N(b->arena, uint32_t, s->n_groups), most = 0;
    const char *algorithm = NULL;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        ds_coll_request q = request_of(b, s, g);
        if (!algorithm) {
            ds_coll_cost none = {.efficiency_q32 = UINT64_C(1) << 32};
            ds_coll_choice choice;
            DS_TRY(ds_coll_choose(b->topo, &q, &none, b->arena, &choice, b->err));
            algorithm = choice.algorithm;
        }
        DS_TRY(ds_coll_phases(b->topo, &q, algorithm, b->arena, &phases[g], &n[g], b->err));
        if (n[g] > most) most = n[g];
    }
    for (uint32_t p = 0; p < most; p++) {
        int64_t steps = 0, alpha_ps = 0, weight = 1;
        for (uint32_t g = 0; g < s->n_groups; g++) {
            if (p >= n[g]) continue;
            const ds_phase *one = &phases[g][p];
            ds_coll__add_loads(b, one);
            if (one->weight > weight) weight = one->weight;
            if ((ds_i128)one->steps * one->alpha_ps < (ds_i128)steps * alpha_ps) continue;
            steps = one->steps;
            alpha_ps = one->alpha_ps;
        }
        b->alpha_ps = alpha_ps;
        ds_coll__end_phase(b, steps, weight);
    }
    return DS_OK;
}

ds_status ds_coll__collectives_algorithm(ds_coll_builder *b) {
    const ds_reshard *r = b->request->reshard;
    if (!r->n_steps)
        return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc,
                            "reshard has \"collectives\" inside one mesh alone; here it has "
                            "send_recv, send_recv_gather and broadcast");
    if (b->messages)
        return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc,
                            "message by message, a reshard of %u collectives is not expanded in "
                            "this version: write them as ops of their own, name another algorithm "
                            "(send_recv), or say `network = fluid`",
                            r->n_steps);
    for (uint32_t i = 0; i < r->n_steps; i++) DS_TRY(step_phases(b, &r->steps[i]));
    return DS_OK;
}
