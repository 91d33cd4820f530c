/* Items whose transfers share links with others that are not there at the time.
 *
 * The reductions of gradients load links that every item's collectives load, but only at the end of
 * the step. Until then an item's transfers take their time alone, and it is timed as a whole, if
 *   - each of its flows takes its time alone if it is alone on its links (groups of one class may
 *     stand in each other's way),
 *   - within all items every such link is loaded by the transfers of one stream only,
 *   - no send loads it,
 *   - it is not the last item of its chunk, if the tail loads it: that may begin before such an
 * item is over. That nobody else has loaded these links while they did is looked at when all times
 * are known. */
#include "search/compose/internal.h"

#include "sim/net/net.h"

#include <stdlib.h>

typedef struct finder {
    ds_sibling *s;
    uint32_t *stream; /* per link: of the items' transfers that load it; DS_NONE: none */
    uint32_t *part;   /* per link: the last part that loads it */
    bool *shared;     /* per link: by several streams, or sends */
    bool *slow;       /* per flow: not its time alone */
} finder;

typedef void visit(finder *x, uint32_t part, uint32_t stream, uint32_t link);

/* Every link that a flow of the part loads, with the stream of the transfer's first member. */
static void each_link(finder *x, uint32_t part, visit *what) {
    const ds_plan *plan = x->s->plan;
    const ds_part *p = &x->s->parts[part];
    for (uint32_t t = 0; t < p->transfers.n; t++) {
        const ds_activity *a = &plan->activities[p->transfers.at[t].activity];
        for (uint32_t f = a->first_flow; f < a->first_flow + a->n_flows; f++)
            for (uint32_t i = 0; i < plan->flows[f].share.n_uses; i++)
                what(x, part, p->streams.at[p->transfers.at[t].stream],
                     plan->flows[f].share.uses[i].link);
    }
}

static void note_send(finder *x, uint32_t part, uint32_t stream, uint32_t link) {
    (void)part;
    (void)stream;
    x->shared[link] = true;
}

/* Within one part two streams meet: it is not timed as a whole, and says nothing of others. */
static void find_meeting(finder *x, uint32_t part, uint32_t stream, uint32_t link) {
    if (x->part[link] == part && x->stream[link] != stream) x->s->parts[part].opaque = false;
    x->part[link] = part;
    x->stream[link] = stream;
}

static void note_stream(finder *x, uint32_t part, uint32_t stream, uint32_t link) {
    if (!x->s->parts[part].opaque) return;
    if (x->stream[link] != DS_NONE && x->stream[link] != stream) x->shared[link] = true;
    x->stream[link] = stream;
}

static void list_link(finder *x, uint32_t part, uint32_t stream, uint32_t link) {
    (void)stream;
    if (x->part[link] == part || !x->s->parts[part].opaque) return;
    x->part[link] = part;
    DS_HPUSH(&x->s->parts[part].links, link);
}

static void avoid_shared(finder *x, uint32_t part, uint32_t stream, uint32_t link) {
    (void)stream;
    if (x->shared[link]) x->s->parts[part].opaque = false;
}

/* Flows that do not take their time alone with all links to themselves. */
static void find_slow(finder *x) {
    const ds_plan *plan = x->s->plan;
    ds_net *net = ds_net_new(plan->link_capacity_q20, plan->n_links, plan->flows, plan->n_flows, 1);
    for (uint32_t f = 0; f < plan->n_flows; f++) {
        if (!plan->flows[f].share.n_uses) continue;
        ds_net_flow(net, 0, 0, f, 0);
        x->slow[f] = ds_net_next_ps(net, 0) != plan->flows[f].alone_ps;
        ds_net_pop(net);
    }
    ds_net_free(net);
}

static void avoid_slow(finder *x, uint32_t part) {
    const ds_plan *plan = x->s->plan;
    ds_part *p = &x->s->parts[part];
    for (uint32_t t = 0; t < p->transfers.n && p->opaque; t++) {
        const ds_activity *a = &plan->activities[p->transfers.at[t].activity];
        for (uint32_t f = a->first_flow; f < a->first_flow + a->n_flows; f++)
            if (x->slow[f]) p->opaque = false;
    }
}

/* Behind the last item of a chunk the tail may begin. */
static void avoid_tail(finder *x) {
    ds_sibling *s = x->s;
    uint32_t last = 0; /* kind: B, or W if there are any */
    for (uint32_t g = 0; g < s->n_groups; g++)
        if (s->parts[g * DS_SIBLING].body && s->parts[g * DS_SIBLING].body->units.n)
            last = g / s->n_chunks;
    for (uint32_t i = 0; i < s->plan->n_links; i++) x->shared[i] = false;
    each_link(x, s->n_parts - 1, note_send);
    for (uint32_t c = 0; c < s->n_chunks; c++)
        each_link(x, (last * s->n_chunks + c) * DS_SIBLING + s->n_turns - 1, avoid_shared);
}

void ds_compose__opaque(ds_sibling *s) {
    uint32_t n = s->plan->n_links, n_items = s->n_groups * DS_SIBLING;
    if (!s->plan->n_flows) return;
    finder x = {.s = s,
                .stream = ds_xcalloc(n, sizeof *x.stream),
                .part = ds_xcalloc(n, sizeof *x.part),
                .shared = ds_xcalloc(n, sizeof *x.shared),
                .slow = ds_xcalloc(s->plan->n_flows, sizeof *x.slow)};
    for (uint32_t i = 0; i < n; i++) x.part[i] = DS_NONE;
    find_slow(&x);
    for (uint32_t p = 0; p < n_items; p++) each_link(&x, p, find_meeting);
    for (uint32_t i = 0; i < n; i++) x.stream[i] = DS_NONE;
    for (uint32_t p = 0; p < n_items; p++) each_link(&x, p, note_stream);
    for (uint32_t p = n_items; p + 1 < s->n_parts; p++) each_link(&x, p, note_send);
    for (uint32_t p = 0; p < n_items; p++) each_link(&x, p, avoid_shared);
    for (uint32_t p = 0; p < n_items; p++) avoid_slow(&x, p);
    avoid_tail(&x);
    for (uint32_t i = 0; i < n; i++) x.part[i] = DS_NONE;
    for (uint32_t p = 0; p < n_items; p++) each_link(&x, p, list_link);
    free(x.stream);
    free(x.part);
    free(x.shared);
    free(x.slow);
}

/* ---- afterwards ---- */

/* From when to when executions that were timed as a whole load links, at most. */
static void mark(const ds_timeline *t, const ds_exec *e, int64_t *from, int64_t *to) {
    const ds_part *p = &t->s->parts[e->part];
    int64_t start = e->base_ps + e->timing->flows_from, end = e->base_ps + e->timing->flows_to;
    for (uint32_t i = 0; i < p->links.n; i++) {
        uint32_t link = p->links.at[i];
        if (start < from[link]) from[link] = start;
        if (end > to[link]) to[link] = end;
    }
}

static bool meets(const ds_timeline *t, const ds_exec *e, const int64_t *from, const int64_t *to) {
    const ds_plan *plan = t->s->plan;
    const ds_part *p = &t->s->parts[e->part];
    for (uint32_t u = 0; u < p->body->units.n; u++) {
        if (p->body->units.at[u].transfer == DS_NONE) continue;
        const ds_activity *a = ds_compose__activity(t->s, p, &p->body->units.at[u]);
        for (uint32_t f = a->first_flow; f < a->first_flow + a->n_flows; f++)
            for (uint32_t i = 0; i < plan->flows[f].share.n_uses; i++) {
                uint32_t link = plan->flows[f].share.uses[i].link;
                if (e->base_ps + ds_compose__start(p->body, e->timing, u) < to[link] &&
                    e->base_ps + ds_compose__end(p->body, e->timing, u) > from[link])
                    return true;
            }
    }
    return false;
}

static bool any_in_faith(const ds_sibling *s) {
    for (uint32_t p = 0; p < s->n_parts && !s->cautious; p++)
        if (s->parts[p].opaque && s->parts[p].flows) return true;
    return false;
}

bool ds_compose__apart(const ds_timeline *t) {
    uint32_t n = t->s->plan->n_links;
    if (!any_in_faith(t->s)) return true;
    int64_t *from = ds_xcalloc((size_t)n * 2, sizeof *from), *to = from + n;
    for (uint32_t i = 0; i < n; i++) from[i] = INT64_MAX;
    for (uint32_t i = 0; i < t->n_execs; i++)
        if (!t->execs[i].is_cut && t->execs[i].opaque && t->s->parts[t->execs[i].part].flows)
            mark(t, &t->execs[i], from, to);
    bool apart = true;
    for (uint32_t i = 0; i < t->n_execs && apart; i++)
        if (!t->execs[i].is_cut && !t->execs[i].opaque) apart = !meets(t, &t->execs[i], from, to);
    free(from);
    return apart;
}
