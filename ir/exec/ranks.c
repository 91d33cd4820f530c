/* Per-rank programs: messages matched first in, first out for each (source, destination, tag), and
 * collectives matched in order for each group.
 *
 * Nothing here stops a rank: a send is put down, the result of a receive or collective stays
 * pending, and a rank waits when it reads one. So ranks block each other through data only, as
 * streams do; what is left when no rank can go on is a deadlock. */
#include "ir/exec/machine_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct message {
    int64_t from, to, tag;
    const ds_op *op;
    ds_tensor sent; /* of a send that no one has received yet */
    ds_dtype dtype;
    ds_exec_value *received; /* of a receive that waits; NULL: a send */
    bool done;
} message;

typedef struct gathering {
    int64_t *ranks; /* in the order of whoever came first */
    uint32_t n, n_here;
    const ds_op **ops;   /* a rank; NULL: not here yet */
    ds_tensor *in;       /* rank × operand */
    ds_exec_value **out; /* rank × result */
    bool done;
} gathering;

struct ds_exec_meetings {
    DS_VEC(message) messages;
    DS_VEC(gathering) gatherings;
};

ds_exec_meetings *ds_exec__meetings_new(void) {
    return ds_xcalloc(1, sizeof(ds_exec_meetings));
}

static void gathering_deinit(gathering *g) {
    for (uint32_t r = 0; r < g->n; r++) {
        if (!g->ops[r]) continue;
        for (uint32_t i = 0; i < g->ops[r]->n_in; i++)
            ds_tensor_drop(&g->in[r * g->ops[r]->n_in + i]);
        for (uint32_t i = 0; i < g->ops[r]->n_out; i++)
            ds_exec__value_drop(g->out[r * g->ops[r]->n_out + i]);
    }
    free(g->ranks);
    free(g->ops);
    free(g->in);
    free(g->out);
}

void ds_exec__meetings_free(ds_exec_meetings *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->messages.n; i++) {
        ds_tensor_drop(&m->messages.at[i].sent);
        ds_exec__value_drop(m->messages.at[i].received);
    }
    for (uint32_t i = 0; i < m->gatherings.n; i++) gathering_deinit(&m->gatherings.at[i]);
    free(m->messages.at);
    free(m->gatherings.at);
    free(m);
}

/* A result has come. `op` is of this thread, whose path messages begin with. */
static ds_status arrive(ds_exec_thread *thread, ds_exec_value *value, const ds_op *op,
                        ds_error *err) {
    value->pending = false;
    return ds_exec__finish(thread, thread->top, op, value, err);
}

/* ---- messages ---- */

static ds_status deliver(ds_exec_thread *thread, const ds_tensor *sent, ds_dtype dtype,
                         ds_exec_value *received, const ds_op *op, ds_error *err) {
    ds_exec_part *part = &received->parts[0];
    char a[DS_DIMS_TEXT], b[DS_DIMS_TEXT];
    if (!ds_tensor_same_shape(sent, &part->t) || dtype != received->dtype)
        return ds_error_set(
            err, DS_ERR_SHAPE, op->loc, "a %s of %s is sent to where a %s of %s is received",
            ds_dtype_name(dtype), ds_dims_text(sent->rank, sent->dims, a),
            ds_dtype_name(received->dtype), ds_dims_text(part->t.rank, part->t.dims, b));
    part->t = ds_tensor_share(sent);
    return arrive(thread, received, op, err);
}

static message *find_message(ds_exec_meetings *m, int64_t from, int64_t to, int64_t tag,
                             bool receives) {
    for (uint32_t i = 0; i < m->messages.n; i++) {
        message *at = &m->messages.at[i];
        if (!at->done && at->from == from && at->to == to && at->tag == tag &&
            (at->received != NULL) == receives)
            return at;
    }
    return NULL;
}

static ds_status send_or_receive(ds_exec_thread *thread, const ds_op *op, ds_exec_value *const *in,
                                 ds_exec_value **out, ds_error *err) {
    ds_exec_meetings *m = thread->meetings;
    ds_env env = ds_binding_env(thread->run->binding, thread->top->indices);
    bool receives = op->code == DS_OP_RECV;
    int64_t peer, tag = 0;
    DS_TRY(ds_expr_eval_int(&env, receives ? op->from_rank : op->to_rank, op->loc, &peer, err));
    if (DS_HAS_EXPR(op->tag)) DS_TRY(ds_expr_eval_int(&env, op->tag, op->loc, &tag, err));
    int64_t from = receives ? peer : thread->rank, to = receives ? thread->rank : peer;
    message *other = find_message(m, from, to, tag, !receives);
    if (other) {
        other->done = true;
        if (!receives)
            return deliver(thread, &in[0]->parts[0].t, in[0]->dtype, other->received, op, err);
        ds_status status = deliver(thread, &other->sent, other->dtype, out[0], op, err);
        ds_tensor_drop(&other->sent);
        return status;
    }
    message fresh = {.from = from, .to = to, .tag = tag, .op = op};
    if (receives) {
        out[0]->pending = true;
        fresh.received = ds_exec__value_share(out[0]);
    } else {
        fresh.sent = ds_tensor_share(&in[0]->parts[0].t);
        fresh.dtype = in[0]->dtype;
    }
    DS_HPUSH(&m->messages, fresh);
    return DS_OK;
}

/* ---- collectives ---- */

static uint32_t index_of(const gathering *g, int64_t rank) {
    uint32_t i = 0;
    while (i < g->n && g->ranks[i] != rank) i++;
    return i;
}

static bool same_set(const gathering *g, const int64_t *ranks, uint32_t n) {
    bool same = g->n == n;
    for (uint32_t i = 0; i < n && same; i++) same = index_of(g, ranks[i]) < g->n;
    return same;
}

static ds_status join_gathering(ds_exec_thread *thread, const ds_op *op, const int64_t *ranks,
                                uint32_t n, gathering **out, ds_error *err) {
    ds_exec_meetings *m = thread->meetings;
    for (uint32_t i = 0; i < m->gatherings.n; i++) {
        gathering *g = &m->gatherings.at[i];
        if (g->done || !same_set(g, ranks, n) || g->ops[index_of(g, thread->rank)]) continue;
        *out = g;
        if (memcmp(g->ranks, ranks, n * sizeof *ranks) != 0)
            return ds_error_set(err, DS_ERR_VALUE, op->loc,
                                "rank %lld lists the group of this %s in another order",
                                (long long)thread->rank, ds_op_name(op->code));
        return DS_OK;
    }
    gathering fresh = {.n = n, .ranks = ds_xcalloc(n, sizeof *ranks)};
    memcpy(fresh.ranks, ranks, n * sizeof *ranks);
    fresh.ops = ds_xcalloc(n, sizeof *fresh.ops);
    fresh.in = ds_xcalloc((size_t)n * op->n_in, sizeof *fresh.in);
    fresh.out = ds_xcalloc((size_t)n * op->n_out + 1, sizeof *fresh.out);
    DS_HPUSH(&m->gatherings, fresh);
    *out = &m->gatherings.at[m->gatherings.n - 1];
    return DS_OK;
}

/* All members are here: one group for every operand. */
static ds_status take_place(ds_exec_thread *thread, gathering *g, const ds_op *op, ds_error *err) {
    ds_exec_site site = ds_exec__site(thread, thread->top, op->loc);
    ds_exec_group group = {.n_in = g->n,
                           .n_out = g->n,
                           .in = ds_xcalloc(g->n, sizeof *group.in),
                           .out = ds_xcalloc(g->n, sizeof *group.out)};
    ds_status status = DS_OK;
    g->done = true;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++) {
        for (uint32_t r = 0; r < g->n; r++) {
            group.in[r] = &g->in[r * op->n_in + i];
            group.out[r] = &g->out[r * op->n_out + i]->parts[0].t;
        }
        status = ds_exec__group_clauses(&site, op, &group, err);
        if (status == DS_OK) status = ds_exec__group(&thread->run->memory, &group, op->loc, err);
        for (uint32_t r = 0; r < g->n && status == DS_OK; r++)
            status = arrive(thread, g->out[r * op->n_out + i], op, err);
    }
    free(group.in);
    free(group.out);
    return status;
}

static ds_status gather(ds_exec_thread *thread, const ds_op *op, const int64_t *ranks,
                        ds_exec_value *const *in, ds_exec_value **out, ds_error *err) {
    gathering *g;
    DS_TRY(join_gathering(thread, op, ranks, op->n_group, &g, err));
    uint32_t me = index_of(g, thread->rank);
    for (uint32_t r = 0; r < g->n; r++) {
        const ds_op *other = g->ops[r];
        if (!other ||
            (other->code == op->code && other->n_in == op->n_in && other->n_out == op->n_out))
            continue;
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "rank %lld calls %s of %u where rank %lld calls %s of %u in the same "
                            "group",
                            (long long)thread->rank, ds_op_name(op->code), op->n_in,
                            (long long)g->ranks[r], ds_op_name(other->code), other->n_in);
    }
    g->ops[me] = op;
    for (uint32_t i = 0; i < op->n_in; i++)
        g->in[me * op->n_in + i] = ds_tensor_share(&in[i]->parts[0].t);
    for (uint32_t i = 0; i < op->n_out; i++) {
        out[i]->pending = true;
        g->out[me * op->n_out + i] = ds_exec__value_share(out[i]);
    }
    return ++g->n_here == g->n ? take_place(thread, g, op, err) : DS_OK;
}

ds_status ds_exec__meet(ds_exec_thread *thread, const ds_op *op, ds_exec_value *const *in,
                        ds_exec_value **out, ds_error *err) {
    if (op->code == DS_OP_SEND || op->code == DS_OP_RECV)
        return send_or_receive(thread, op, in, out, err);
    if (!op->has_group || op->n_in != op->n_out)
        return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                            "in a rank's body %s needs `group (ranks)`", ds_op_name(op->code));
    ds_env env = ds_binding_env(thread->run->binding, thread->top->indices);
    int64_t *ranks = ds_xcalloc(op->n_group, sizeof *ranks);
    ds_status status = DS_OK;
    bool inside = false;
    for (uint32_t i = 0; i < op->n_group && status == DS_OK; i++) {
        status = ds_expr_eval_int(&env, op->group[i], op->loc, &ranks[i], err);
        inside = inside || ranks[i] == thread->rank;
    }
    if (status == DS_OK && !inside)
        status = ds_error_set(err, DS_ERR_VALUE, op->loc, "rank %lld is not in the group",
                              (long long)thread->rank);
    if (status == DS_OK) status = gather(thread, op, ranks, in, out, err);
    free(ranks);
    return status;
}

/* ---- the end ---- */

/* "a message from rank 1, tag 7" or "rank 1 in all_reduce". */
static void what_it_waits_for(const ds_exec_meetings *m, const ds_exec_value *value, ds_buf *out) {
    for (uint32_t i = 0; i < m->messages.n; i++) {
        const message *at = &m->messages.at[i];
        if (at->received == value)
            ds_buf_printf(out, "a message from rank %lld with tag %lld", (long long)at->from,
                          (long long)at->tag);
    }
    for (uint32_t i = 0; i < m->gatherings.n; i++) {
        const gathering *g = &m->gatherings.at[i];
        const ds_op *any = NULL;
        bool mine = false;
        for (uint32_t r = 0; r < g->n && !g->done; r++) {
            if (!g->ops[r]) continue;
            any = g->ops[r];
            for (uint32_t k = 0; k < any->n_out; k++) mine |= g->out[r * any->n_out + k] == value;
        }
        if (!mine) continue;
        const char *gap = "";
        for (uint32_t r = 0; r < g->n; r++) {
            if (g->ops[r]) continue;
            ds_buf_printf(out, "%srank %lld", gap, (long long)g->ranks[r]);
            gap = ", ";
        }
        ds_buf_printf(out, " in %s", ds_op_name(any->code));
    }
}

static void left_over(const ds_exec_meetings *m, ds_buf *out) {
    for (uint32_t i = 0; i < m->messages.n; i++) {
        const message *at = &m->messages.at[i];
        if (!at->done)
            ds_buf_printf(out, "; rank %lld %s rank %lld with tag %lld, which no one %s",
                          (long long)(at->received ? at->to : at->from),
                          at->received ? "receives from" : "sends to",
                          (long long)(at->received ? at->from : at->to), (long long)at->tag,
                          at->received ? "sends" : "receives");
    }
    for (uint32_t i = 0; i < m->gatherings.n; i++) {
        const gathering *g = &m->gatherings.at[i];
        if (g->done) continue;
        ds_buf_put(out, "; a collective has");
        for (uint32_t r = 0; r < g->n; r++)
            ds_buf_printf(out, "%s rank %lld %s", r ? "," : "", (long long)g->ranks[r],
                          g->ops[r] ? "waiting" : "missing");
    }
}

ds_status ds_exec__meetings_end(const ds_exec_meetings *m, const ds_exec_thread *threads,
                                uint32_t n_threads, ds_error *err) {
    ds_buf text = {0};
    ds_loc loc = DS_NOWHERE;
    for (uint32_t i = 0; i < n_threads; i++) {
        const ds_exec_thread *t = &threads[i];
        if (!t->top) continue;
        if (!loc.line) loc = t->waits_at->loc;
        ds_buf_put(&text, text.n ? "; " : "no rank can go on: ");
        ds_exec__path(t, t->top, t->waits_at, true, &text);
        ds_buf_put(&text, " waits for ");
        what_it_waits_for(m, t->waits_for, &text);
    }
    if (!text.n) {
        left_over(m, &text);
        for (uint32_t i = 0; i < m->messages.n && !loc.line; i++)
            if (!m->messages.at[i].done) loc = m->messages.at[i].op->loc;
    }
    const char *what = text.n ? text.text + (text.text[0] == ';' ? 2 : 0) : NULL;
    ds_status status = what ? ds_error_set(err, DS_ERR_DEADLOCK, loc, "%s", what) : DS_OK;
    ds_buf_deinit(&text);
    return status;
}
