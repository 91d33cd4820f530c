/* Messages are a letter and its data, in the machine's own form (the ranks of a job run the same
 * program on the same kind of machine; a greeting of another size is refused):
 *
 *   H greeting   workers, outcome size, identity; or E, and the text of an error
 *   J job        its number, the candidate
 *   R result     the job's number, the outcome
 *   S stop       no more jobs
 *   B bye        all jobs that were begun are done */
#include "search/driver/remote_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct peer {
    uint32_t workers, window, given;
    bool gone;
} peer;

struct ds_remote {
    ds_ranks *ranks;
    uint32_t n_dims, n; /* n ranks, this one included */
    peer *peers;
    ds_buf in, out;
};

/* ---- packing ---- */

static void put_bytes(ds_buf *out, const void *data, size_t n) {
    ds_buf_put_n(out, data, n);
}

typedef struct reader {
    char *at, *end;
} reader;

static void take_bytes(reader *r, void *data, size_t n) {
    if ((size_t)(r->end - r->at) < n) { /* no message of this file */
        memset(data, 0, n);
        r->at = r->end;
        return;
    }
    memcpy(data, r->at, n);
    r->at += n;
}

static void begin_message(ds_buf *out, char kind, uint64_t job) {
    out->n = 0;
    ds_buf_putc(out, kind);
    put_bytes(out, &job, sizeof job);
}

static uint64_t open_message(const ds_buf *in, reader *r) {
    uint64_t job;
    *r = (reader){in->text + 1, in->text + in->n};
    take_bytes(r, &job, sizeof job);
    return job;
}

static void put_candidate(ds_buf *out, const ds_candidate *c, uint32_t n_dims) {
    put_bytes(out, &c->number, sizeof c->number);
    for (uint32_t i = 0; i < n_dims; i++) {
        put_bytes(out, &c->at[i], sizeof c->at[i]);
        if (c->at[i].value.kind == DS_NUM_STR)
            put_bytes(out, c->at[i].value.s, strlen(c->at[i].value.s) + 1);
    }
}

/* Texts stay in the message; the candidate points there. */
static void take_candidate(reader *r, ds_candidate *c, uint32_t n_dims) {
    take_bytes(r, &c->number, sizeof c->number);
    for (uint32_t i = 0; i < n_dims; i++) {
        take_bytes(r, &c->at[i], sizeof c->at[i]);
        if (c->at[i].value.kind != DS_NUM_STR) continue;
        c->at[i].value.s = r->at;
        r->at += strlen(r->at) + 1;
    }
}

static void put_outcome(ds_buf *out, const ds_outcome *outcome) {
    ds_outcome plain = *outcome;
    plain.reason = (ds_buf){0};
    put_bytes(out, &plain, sizeof plain);
    if (outcome->reason.text) put_bytes(out, outcome->reason.text, outcome->reason.n);
}

static void take_outcome(reader *r, ds_outcome *outcome) {
    ds_buf reason = outcome->reason;
    take_bytes(r, outcome, sizeof *outcome);
    reason.n = 0;
    ds_buf_put_n(&reason, r->at, (size_t)(r->end - r->at));
    outcome->reason = reason;
}

/* Jobs that a rank has at a time; assumed: enough work while messages go there and back. */
static uint32_t window(uint32_t n_workers) {
    return 4 * n_workers + 4;
}

/* ---- rank 0 ---- */

static ds_status hear(ds_remote *remote, uint32_t from, const char *identity, ds_error *err) {
    reader r;
    uint64_t workers = open_message(&remote->in, &r);
    if (*remote->in.text == 'E')
        return ds_error_set(err, (ds_status)workers, DS_NOWHERE, "rank %" PRIu32 ": %s", from,
                            r.at);
    uint64_t size;
    take_bytes(&r, &size, sizeof size);
    if (size != sizeof(ds_outcome) || strcmp(r.at, identity) != 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "rank %" PRIu32 " reads another sweep, or has another version of "
                            "distsim or of its profiles",
                            from);
    peer *p = &remote->peers[from];
    p->workers = (uint32_t)workers;
    p->window = window(p->workers);
    return DS_OK;
}

ds_remote *ds_remote_new(ds_ranks *ranks) {
    ds_remote *remote = ds_xcalloc(1, sizeof *remote);
    *remote = (ds_remote){.ranks = ranks, .n = ds_ranks_count(ranks)};
    remote->peers = ds_xcalloc(remote->n, sizeof *remote->peers);
    return remote;
}

ds_status ds_remote_hear(ds_remote *remote, const char *identity, uint32_t n_dims, ds_error *err) {
    ds_status status = DS_OK;
    remote->n_dims = n_dims;
    for (uint32_t heard = 1, from; heard < remote->n;) {
        if (!ds_ranks_receive(remote->ranks, &from, &remote->in)) {
            ds_pool_nap(NULL);
            continue;
        }
        heard++;
        ds_status one = hear(remote, from, identity, status == DS_OK ? err : NULL);
        if (status == DS_OK) status = one;
    }
    return status;
}

uint32_t ds_remote_workers(const ds_remote *remote) {
    uint32_t sum = 0;
    for (uint32_t i = 1; i < remote->n; i++) sum += remote->peers[i].workers;
    return sum;
}

static bool take_in(ds_remote *remote, ds_pool *pool, const ds_remote_slots *slots) {
    uint32_t from;
    reader r;
    if (!ds_ranks_receive(remote->ranks, &from, &remote->in)) return false;
    uint64_t job = open_message(&remote->in, &r);
    if (*remote->in.text == 'B') {
        remote->peers[from].gone = true;
        return true;
    }
    if (*remote->in.text != 'R' || !pool) return true; /* the sweep has ended without this job */
    remote->peers[from].given--;
    uint32_t slot = ds_pool_slot(pool, job);
    take_outcome(&r, slots->outcome(slots->context, slot));
    ds_pool_finish(pool, job);
    return true;
}

static bool hand_out(ds_remote *remote, uint32_t to, ds_pool *pool, const ds_remote_slots *slots) {
    uint64_t job;
    peer *p = &remote->peers[to];
    if (p->given >= p->window || !ds_pool_take(pool, &job)) return false;
    p->given++;
    begin_message(&remote->out, 'J', job);
    put_candidate(&remote->out, slots->candidate(slots->context, ds_pool_slot(pool, job)),
                  remote->n_dims);
    ds_ranks_send(remote->ranks, to, remote->out.text, remote->out.n);
    return true;
}

bool ds_remote_exchange(ds_remote *remote, ds_pool *pool, const ds_remote_slots *slots) {
    bool any = false;
    while (take_in(remote, pool, slots)) any = true;
    for (bool more = true; more;) { /* one job each in turn, to spread few jobs */
        more = false;
        for (uint32_t i = 1; i < remote->n; i++)
            if (hand_out(remote, i, pool, slots)) more = any = true;
    }
    return any;
}

void ds_remote_free(ds_remote *remote) {
    if (!remote) return;
    begin_message(&remote->out, 'S', 0);
    for (uint32_t i = 1; i < remote->n; i++)
        ds_ranks_send(remote->ranks, i, remote->out.text, remote->out.n);
    for (uint32_t i = 1; i < remote->n;) {
        if (remote->peers[i].gone)
            i++;
        else if (!take_in(remote, NULL, NULL))
            ds_pool_nap(NULL);
    }
    ds_buf_deinit(&remote->in);
    ds_buf_deinit(&remote->out);
    free(remote->peers);
    free(remote);
}

/* ---- the other ranks ---- */

uint32_t ds_remote_slots_wanted(uint32_t n_workers) {
    return 8 * window(n_workers);
}

void ds_remote_greet(ds_ranks *ranks, uint32_t n_workers, const char *identity,
                     const ds_error *failed) {
    ds_buf out = {0};
    uint64_t size = sizeof(ds_outcome);
    begin_message(&out, failed ? 'E' : 'H', failed ? (uint64_t)failed->code : n_workers);
    if (!failed) put_bytes(&out, &size, sizeof size);
    const char *text = failed ? failed->message : identity;
    put_bytes(&out, text, strlen(text) + 1);
    ds_ranks_send(ranks, 0, out.text, out.n);
    ds_buf_deinit(&out);
}

typedef struct server {
    ds_ranks *ranks;
    ds_pool *pool;
    uint32_t n_slots, n_dims;
    const ds_remote_slots *slots;
    ds_buf *messages;     /* per slot: the message of its job */
    uint64_t *jobs;       /* per slot: the job's number at rank 0 */
    bool *answered;       /* per slot */
    uint64_t begun, done; /* jobs from `done` to `begun` occupy their slots */
    bool stop;
    ds_buf in, out;
} server;

static bool accept_one(server *s) {
    uint32_t from;
    reader r;
    if (s->pool && s->begun - s->done == s->n_slots) return false;
    if (!ds_ranks_receive(s->ranks, &from, &s->in)) return false;
    if (*s->in.text == 'S') {
        s->stop = true;
        return true;
    }
    uint32_t slot = (uint32_t)(s->begun++ % s->n_slots);
    ds_buf old = s->messages[slot];
    s->messages[slot] = s->in; /* keeps the candidate's texts */
    s->in = old;
    s->jobs[slot] = open_message(&s->messages[slot], &r);
    s->answered[slot] = false;
    take_candidate(&r, s->slots->candidate(s->slots->context, slot), s->n_dims);
    ds_pool_submit(s->pool, false);
    return true;
}

static void answer(server *s, uint32_t slot) {
    begin_message(&s->out, 'R', s->jobs[slot]);
    put_outcome(&s->out, s->slots->outcome(s->slots->context, slot));
    ds_ranks_send(s->ranks, 0, s->out.text, s->out.n);
    s->answered[slot] = true;
}

/* Answers each job that is done at once, also while an older job still runs. */
static bool answer_all(server *s) {
    bool any = false;
    for (uint64_t job = s->done; job < s->begun; job++) {
        uint32_t slot = ds_pool_slot(s->pool, job);
        if (s->answered[slot] || !ds_pool_has(s->pool, job)) continue;
        answer(s, slot);
        any = true;
    }
    /* A job that ends only now has no answer yet, and waits for the next call. */
    for (; s->done < s->begun && s->answered[s->done % s->n_slots]; s->done++)
        ds_pool_wait(s->pool);
    return any;
}

void ds_remote_serve(ds_ranks *ranks, ds_pool *pool, uint32_t n_slots, uint32_t n_dims,
                     const ds_remote_slots *slots) {
    server s = {ranks, pool, n_slots, n_dims, slots, .messages = NULL};
    s.messages = ds_xcalloc(n_slots, sizeof *s.messages);
    s.jobs = ds_xcalloc(n_slots, sizeof *s.jobs);
    s.answered = ds_xcalloc(n_slots, sizeof *s.answered);
    while (!s.stop || s.done < s.begun) {
        bool any = accept_one(&s);
        if (answer_all(&s)) any = true;
        if (!any) ds_pool_nap(pool);
    }
    begin_message(&s.out, 'B', 0);
    ds_ranks_send(ranks, 0, s.out.text, s.out.n);
    for (uint32_t i = 0; i < n_slots; i++) ds_buf_deinit(&s.messages[i]);
    free(s.messages);
    free(s.jobs);
    free(s.answered);
    ds_buf_deinit(&s.in);
    ds_buf_deinit(&s.out);
}
