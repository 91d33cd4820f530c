/* The primitives where every message is written down. */
#include "sim/coll/messages.h"

#include "sim/coll/internal.h"

#include <stdlib.h>
#include <string.h>

#define NONE         UINT32_MAX
#define MOST_RECORDS (UINT32_C(1) << 26)

struct ds_messages {
    DS_VEC(ds_message) list;
    DS_VEC(ds_message_edge) edges;
    DS_VEC(ds_message_edge) touched; /* this phase's (message, member) */
    uint32_t *ready;                 /* per member: what its messages of this phase wait for */
    uint32_t n_phases;
    /* per phase and member: `ready` behind it, of the chunk before and of this one */
    DS_VEC(uint32_t) before;
    DS_VEC(uint32_t) behind;
    bool too_many;
};

static uint32_t add_message(ds_coll_builder *b, ds_message message) {
    struct ds_messages *m = b->messages;
    if (m->list.n >= MOST_RECORDS) {
        m->too_many = true;
        return 0;
    }
    message.after = NONE;
    DS_HPUSH(&m->list, message);
    return m->list.n - 1;
}

static void wait_for(ds_coll_builder *b, uint32_t message, uint32_t other) {
    struct ds_messages *m = b->messages;
    if (other == NONE) return;
    if (m->too_many || m->edges.n >= MOST_RECORDS) {
        m->too_many = true;
        return;
    }
    DS_HPUSH(&m->edges, ((ds_message_edge){other, message}));
    m->list.at[message].n_waits++;
}

static void touch(ds_coll_builder *b, uint32_t message, uint32_t member) {
    DS_HPUSH(&b->messages->touched, ((ds_message_edge){message, member}));
}

static ds_status new_message(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes,
                             uint32_t *out) {
    ds_message message = {.bytes = bytes};
    DS_TRY(ds_coll__route(b, from, to, &message.route));
    *out = add_message(b, message);
    if (b->messages->too_many)
        return ds_error_set(b->err, DS_ERR_LIMIT, b->request->loc,
                            "a collective of %u members is more than %u messages", b->request->n,
                            MOST_RECORDS);
    return DS_OK;
}

/* Sender and receiver have both come to this phase: nothing is sent to one who is not there. */
static void meet(ds_coll_builder *b, uint32_t message, uint32_t from, uint32_t to) {
    const uint32_t *ready = b->messages->ready;
    wait_for(b, message, ready[from]);
    if (ready[to] != ready[from]) wait_for(b, message, ready[to]);
}

ds_status ds_coll__post_message(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes) {
    uint32_t message;
    DS_TRY(new_message(b, from, to, bytes, &message));
    meet(b, message, from, to);
    touch(b, message, from);
    touch(b, message, to);
    return DS_OK;
}

ds_status ds_coll__ring_messages(ds_coll_builder *b, const ds_team *team, bool reduce,
                                 bool gather) {
    uint32_t n = team->n, steps = (n - 1) * (reduce + gather), first = 0;
    for (uint32_t s = 0; s < steps; s++) {
        uint32_t begins = b->messages->list.n;
        /* member i passes on the shard that set out s hops before it: from the member after the
         * shard's owner (sums), or from the owner */
        uint32_t back = reduce && s < n - 1 ? s + 1 : reduce ? s - (n - 1) : s;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t message, next = i + 1 < n ? i + 1 : 0, before = i ? i - 1 : n - 1;
            int64_t bytes = team->shard[(i + n - back % n) % n];
            DS_TRY(new_message(b, team->member[i], team->member[next], bytes, &message));
            if (s)
                wait_for(b, message, first + before);
            else
                meet(b, message, team->member[i], team->member[next]);
            if (s) b->messages->list.at[message].after = first + i;
            if (s + 1 < steps) continue;
            touch(b, message, team->member[i]);
            touch(b, message, team->member[next]);
        }
        first = begins;
    }
    return DS_OK;
}

uint32_t ds_coll__join_messages(ds_coll_builder *b, const uint32_t *others, uint32_t n) {
    if (!n) return NONE;
    uint32_t join = add_message(b, (ds_message){0});
    for (uint32_t i = 0; i < n; i++) wait_for(b, join, others[i]);
    return join;
}

/* One chunk towards the root: up[i], the message of member i. */
static ds_status chunk_up(ds_coll_builder *b, const ds_tree *t, const uint32_t *order,
                          int64_t bytes, uint32_t *up, uint32_t *last) {
    for (uint32_t k = t->n; k-- > 0;) {
        uint32_t i = order[k], p = t->parent[i];
        if (p == t->n) continue;
        DS_TRY(new_message(b, t->member[i], t->member[p], bytes, &up[i]));
        meet(b, up[i], t->member[i], t->member[p]);
        b->messages->list.at[up[i]].after = last[i];
        last[i] = up[i];
    }
    for (uint32_t i = 0; i < t->n; i++) { /* a member passes on what its children gave */
        uint32_t p = t->parent[i];
        if (p != t->n && t->parent[p] != t->n) wait_for(b, up[p], up[i]);
    }
    return DS_OK;
}

/* One chunk from the root, once it is there. */
static ds_status chunk_down(ds_coll_builder *b, const ds_tree *t, const uint32_t *order,
                            int64_t bytes, const uint32_t *up, uint32_t *down, uint32_t *last) {
    for (uint32_t k = 0; k < t->n; k++) {
        uint32_t i = order[k], p = t->parent[i];
        if (p == t->n) continue;
        DS_TRY(new_message(b, t->member[p], t->member[i], bytes, &down[i]));
        meet(b, down[i], t->member[p], t->member[i]);
        if (t->parent[p] != t->n) wait_for(b, down[i], down[p]);
        for (uint32_t c = 0; c < t->n && up && t->parent[p] == t->n; c++)
            if (t->parent[c] == p) wait_for(b, down[i], up[c]);
        b->messages->list.at[down[i]].after = last[i];
        last[i] = down[i];
    }
    return DS_OK;
}

ds_status ds_coll__tree_messages(ds_coll_builder *b, const ds_tree *t) {
    uint32_t *order = ds_coll__top_down(b, t);
    uint32_t *up = DS_NEW_N(b->arena, uint32_t, t->n), *down = DS_NEW_N(b->arena, uint32_t, t->n);
    uint32_t *last_up = DS_NEW_N(b->arena, uint32_t, t->n);
    uint32_t *last_down = DS_NEW_N(b->arena, uint32_t, t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        last_up[i] = NONE;
        last_down[i] = t->gate ? t->gate[i] : NONE;
    }
    uint32_t chunks = b->request->chunks ? (uint32_t)b->request->chunks : DS_MESSAGE_CHUNKS;
    if (chunks > t->bytes) chunks = t->bytes ? (uint32_t)t->bytes : 1;
    if (t->n == 2 && !(t->up && t->down)) chunks = 1; /* nobody passes a chunk on */
    for (uint32_t c = 0; c < chunks; c++) {
        int64_t bytes = ds_coll__part(t->bytes, c, chunks);
        if (t->up) DS_TRY(chunk_up(b, t, order, bytes, up, last_up));
        if (t->down) DS_TRY(chunk_down(b, t, order, bytes, t->up ? up : NULL, down, last_down));
    }
    for (uint32_t i = 0; i < t->n; i++) { /* a pipeline's last chunk ends last */
        if (t->parent[i] == t->n) continue;
        if (t->last) t->last[i] = last_down[i];
        for (int way = 0; way < 2; way++) {
            uint32_t message = way ? last_down[i] : last_up[i];
            if (message == NONE) continue;
            touch(b, message, t->member[i]);
            touch(b, message, t->member[t->parent[i]]);
        }
    }
    return DS_OK;
}

/* A member begins a phase of a chunk once it is through with that phase of the chunk before. */
static void line_up(ds_coll_builder *b) {
    struct ds_messages *m = b->messages;
    uint32_t n = b->request->n;
    if (m->before.n < (m->n_phases + 1) * n) return;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = m->before.at[m->n_phases * n + i], ready = m->ready[i];
        if (other == NONE) continue;
        m->ready[i] = other;
        if (ready == NONE) continue;
        m->ready[i] = add_message(b, (ds_message){0});
        wait_for(b, m->ready[i], ready);
        wait_for(b, m->ready[i], other);
    }
}

/* All of a member's messages of the phase meet in one without bytes. */
void ds_coll__end_messages(ds_coll_builder *b) {
    struct ds_messages *m = b->messages;
    uint32_t *join = DS_NEW_N(b->arena, uint32_t, b->request->n);
    for (uint32_t i = 0; i < b->request->n; i++) join[i] = NONE;
    for (uint32_t i = 0; i < m->touched.n; i++) {
        uint32_t member = m->touched.at[i].to;
        if (join[member] == NONE) {
            join[member] = add_message(b, (ds_message){0});
            wait_for(b, join[member], m->ready[member]);
        }
        wait_for(b, join[member], m->touched.at[i].from);
    }
    for (uint32_t i = 0; i < b->request->n; i++) {
        if (join[i] != NONE) m->ready[i] = join[i];
        DS_HPUSH(&m->behind, m->ready[i]);
    }
    m->touched.n = 0;
    m->n_phases++;
    line_up(b);
}

void ds_coll__phase_message(ds_coll_builder *b, const ds_phase *phase) {
    ds_phase *copy = DS_NEW(b->arena, ds_phase);
    *copy = *phase;
    uint32_t message = add_message(b, (ds_message){.phase = copy});
    for (uint32_t i = 0; i < b->request->n; i++) {
        wait_for(b, message, b->messages->ready[i]);
        touch(b, message, i);
    }
    ds_coll__end_messages(b);
}

static void index_messages(ds_coll_builder *b, ds_message_graph *out) {
    struct ds_messages *m = b->messages;
    out->n_messages = m->list.n;
    out->messages = DS_NEW_N(b->arena, ds_message, m->list.n + 1);
    if (m->list.n) memcpy(out->messages, m->list.at, m->list.n * sizeof *out->messages);
    out->first = DS_NEW_N(b->arena, uint32_t, m->list.n + 2);
    out->edges = DS_NEW_N(b->arena, uint32_t, m->edges.n);
    for (uint32_t i = 0; i < m->edges.n; i++) out->first[m->edges.at[i].from + 2]++;
    for (uint32_t i = 0; i < m->list.n; i++) out->first[i + 2] += out->first[i + 1];
    for (uint32_t i = 0; i < m->edges.n; i++)
        out->edges[out->first[m->edges.at[i].from + 1]++] = m->edges.at[i].to;
}

static void forget_messages(ds_coll_builder *b) {
    struct ds_messages *m = b->messages;
    m->list.n = m->edges.n = m->before.n = m->behind.n = 0;
    m->n_phases = 0;
    for (uint32_t i = 0; i < b->request->n; i++) m->ready[i] = NONE;
}

/* All phases for one chunk after the other, each behind the chunk before it. */
static ds_status in_chunks(ds_coll_builder *b, const char *algorithm) {
    struct ds_messages *m = b->messages;
    const ds_coll_request *whole = b->request;
    ds_coll_request part = *whole;
    int64_t *shard = DS_NEW_N(b->arena, int64_t, whole->n);
    uint32_t chunks = (uint32_t)whole->chunks;
    ds_status status = DS_OK;
    forget_messages(b);
    b->request = &part;
    if (whole->shard_bytes) part.shard_bytes = shard;
    for (uint32_t c = 0; c < chunks && status == DS_OK && !m->too_many; c++) {
        part.bytes = ds_coll__part(whole->bytes, c, chunks);
        for (uint32_t i = 0; i < whole->n && whole->shard_bytes; i++)
            shard[i] = ds_coll__part(whole->shard_bytes[i], c, chunks);
        for (uint32_t i = 0; i < whole->n; i++) m->ready[i] = NONE;
        m->n_phases = m->behind.n = 0;
        line_up(b);
        status = ds_coll__build(b, algorithm);
        m->before.n = 0;
        for (uint32_t i = 0; i < m->behind.n; i++) DS_HPUSH(&m->before, m->behind.at[i]);
    }
    b->request = whole;
    return status;
}

ds_status ds_coll_messages(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                           ds_arena *arena, ds_message_graph *out, ds_error *err) {
    struct ds_messages m = {0};
    ds_coll_builder b = {
        .topo = topo, .request = request, .arena = arena, .err = err, .messages = &m};
    *out = (ds_message_graph){0};
    m.ready = DS_NEW_N(arena, uint32_t, request->n);
    for (uint32_t i = 0; i < request->n; i++) m.ready[i] = NONE;
    ds_status status = ds_coll__build(&b, algorithm);
    bool pipelined = m.n_phases > 1 && request->chunks > 1;
    if (status == DS_OK && pipelined &&
        request->op != DS_OP_RESHARD) /* that cuts its chains alone */
        status = in_chunks(&b, algorithm);
    if (status == DS_OK && m.too_many)
        status = ds_error_set(err, DS_ERR_LIMIT, request->loc,
                              "a collective of %u members is more than %u messages", request->n,
                              MOST_RECORDS);
    if (status == DS_OK) index_messages(&b, out);
    free(m.list.at);
    free(m.edges.at);
    free(m.touched.at);
    free(m.before.at);
    free(m.behind.at);
    ds_coll__deinit(&b);
    return status;
}
