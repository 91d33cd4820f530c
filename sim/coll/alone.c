/* How long the messages of a phase take with the network to themselves, by closed forms.
 *
 * A phase has parts that run side by side: messages that wait for nothing (posts), rings, trees. Of
 * a hop, a is its latency (the route's and the profile's for a step), and its flow f lies between
 * what it takes with its links to itself and what it takes when all hops of the phase that use them
 * always share them; the upper bound on time takes the latter, the lower one the former. L is the
 * most that any link of the phase needs for all its bytes.
 *
 *   posts  L cannot begin before the first message reaches the link: with messages by falling
 *          latency, max over k of (a_k + bytes of 1 … k on a link / its capacity); no more than
 *          max a + L.
 *   ring   A message sets out when the one before it on its hop has ended and its data have come
 *          in. So the last one ends after the longest path through hops and steps: it stays on a
 *          hop (f/s more) or goes on to the next (a + f/s of that one), s messages in all:
 *              T = max over runs of at most s hops in a row, and over the flows f* in the run:
 *                  f* + (sum over the run of s·a + f − f*) / s.
 *          For equal hops that is s·a + f; for one slow hop, its a + f while the others hide behind
 *          it; for hops where latency counts, the sum of s hops on the way around.
 *          Shards of unequal sizes count as their mean, and bound nothing.
 *   tree   The first bytes go along the longest path up and then the longest down; then the rest
 *          follows at the pace of the slowest link: sum of a on the paths + L, and in c chunks
 *          (sum of f on the paths − the largest f)/c more, until all chunks are under way. */
#include "ir/base/units.h"
#include "sim/coll/internal.h"

#include <stdlib.h>

#define NONE UINT32_MAX
/* What so many bytes take at such a capacity: the last that was divided. Most hops of a phase are
 * like the one before. */
typedef struct quotient {
    ds_u128 bytes_q32;
    int64_t bytes_per_s, ps;
} quotient;

/* What `bytes_q32` take on the link, caps apart. */
static int64_t link_ps(const ds_coll_builder *b, uint32_t link, ds_u128 bytes_q32, quotient *last) {
    int64_t bytes_per_s = ds_topo_link_at(b->topo, link)->bytes_per_s;
    if (last->bytes_q32 == bytes_q32 && last->bytes_per_s == bytes_per_s) return last->ps;
    ds_load load = {.link = link, .bytes_q32 = bytes_q32};
    int64_t ps = ds_load_ps(b->topo, &load, b->terms->efficiency_q32);
    *last = (quotient){bytes_q32, bytes_per_s, ps};
    return last->ps;
}

static const ds_load *find_load(const ds_coll_builder *b, const ds_hop *hop, uint32_t link) {
    return ds_coll__find_load(b, hop->turned ? ds_turn_link(b->turn, link).first : link);
}

/* A hop's flow when it shares its links with all others of the phase, or has them to itself. A link
 * with no fewer bytes a second for no more bytes than the slowest so far is no slower. */
static int64_t hop_ps(const ds_coll_builder *b, const ds_hop *hop, bool shared, quotient *last) {
    int64_t most = 0, slow_bytes_per_s = 0;
    ds_u128 slow_bytes_q32 = 0;
    for (uint32_t i = 0; hop->bytes && i < hop->route->n_links; i++) {
        uint32_t link = hop->route->links[i];
        const ds_topo_link *at = ds_topo_link_at(b->topo, link);
        ds_u128 bytes_q32 = (ds_u128)hop->bytes * hop->route->share_q32[i];
        const ds_load *load = shared ? find_load(b, hop, link) : NULL;
        if (load) bytes_q32 = load->bytes_q32;
        int64_t ps = 0;
        if (!most || bytes_q32 > slow_bytes_q32 || at->bytes_per_s < slow_bytes_per_s)
            ps = link_ps(b, link, bytes_q32, last);
        if (ps > most) {
            slow_bytes_q32 = bytes_q32;
            slow_bytes_per_s = at->bytes_per_s;
            most = ps;
        }
        if (!at->cap_bytes_per_s) continue;
        ds_i128 capped = (ds_i128)hop->bytes * DS_PS_PER_S / at->cap_bytes_per_s;
        if (capped > most) most = ds_ps_narrow(capped);
    }
    return most;
}

static int64_t latency_of(const ds_coll_builder *b, const ds_hop *hop) {
    return ds_ps_narrow((ds_i128)hop->route->latency_ps + b->terms->step_ps);
}

/* ---- posts ---- */

typedef struct post {
    int64_t latency_ps;
    uint32_t hop;
} post;

static int later_first(const void *a, const void *b) {
    const post *x = a, *y = b;
    if (x->latency_ps != y->latency_ps) return x->latency_ps > y->latency_ps ? -1 : 1;
    return x->hop < y->hop ? -1 : x->hop > y->hop;
}

static void time_posts(const ds_coll_builder *b, const ds_part *part, int64_t slowest_ps,
                       ds_span *out) {
    post *posts = ds_xcalloc(part->n, sizeof *posts);
    ds_u128 *sum = ds_xcalloc(b->loads.n, sizeof *sum);
    quotient own = {0}, all = {0};
    for (uint32_t i = 0; i < part->n; i++)
        posts[i] = (post){latency_of(b, &b->hops.at[part->first + i]), part->first + i};
    qsort(posts, part->n, sizeof *posts, later_first);
    out->first_ps = DS_NEVER_PS;
    for (uint32_t i = 0; i < part->n; i++) {
        const ds_hop *hop = &b->hops.at[posts[i].hop];
        int64_t longest = hop_ps(b, hop, false, &own);
        for (uint32_t k = 0; hop->bytes && k < hop->route->n_links; k++) {
            const ds_load *load = find_load(b, hop, hop->route->links[k]);
            uint32_t times = hop->turned && !load->turned ? ds_turn_order(b->turn) : 1;
            sum[load - b->loads.at] += (ds_u128)hop->bytes * hop->route->share_q32[k] * times;
            int64_t ps = link_ps(b, hop->route->links[k], sum[load - b->loads.at], &own);
            if (ps > longest) longest = ps;
        }
        int64_t end_ps = ds_ps_narrow((ds_i128)posts[i].latency_ps + longest);
        if (end_ps > out->least_ps) out->least_ps = end_ps;
        int64_t shared_ps = ds_ps_narrow((ds_i128)posts[i].latency_ps + hop_ps(b, hop, true, &all));
        if (shared_ps < out->first_ps) out->first_ps = shared_ps;
    }
    out->most_ps = ds_ps_narrow((ds_i128)(part->n ? posts[0].latency_ps : 0) + slowest_ps);
    free(posts);
    free(sum);
}

/* ---- rings ---- */

typedef struct ring {
    const int64_t *latency, *flow; /* per hop */
    ds_i128 *sums;   /* of s·a + f − f*, over the hops from 0 on, two times around */
    uint32_t *queue; /* ascending sums: where the best run may begin */
    uint32_t n;
    int64_t steps;
} ring;

/* The longest path that stays on hops of flow `pace`. */
static ds_i128 longest_at(const ring *r, int64_t pace) {
    uint32_t rounds = (uint32_t)((r->steps + r->n - 1) / r->n) + 1, end = rounds * r->n;
    r->sums[0] = 0;
    for (uint32_t j = 0; j < end; j++) {
        uint32_t i = j % r->n;
        r->sums[j + 1] = r->sums[j] + (ds_i128)r->latency[i] * r->steps + (r->flow[i] - pace);
    }
    ds_i128 best = 0;
    uint32_t head = 0, tail = 0, pushed = 0; /* beginnings before the last hop of that pace */
    for (uint32_t j = 1; j <= end; j++) {
        if (r->flow[(j - 1) % r->n] == pace)
            for (; pushed < j; pushed++) {
                while (tail > head && r->sums[r->queue[tail - 1]] >= r->sums[pushed]) tail--;
                r->queue[tail++] = pushed;
            }
        while (head < tail && r->queue[head] + r->steps < j) head++;
        if (head < tail && r->sums[j] - r->sums[r->queue[head]] > best)
            best = r->sums[j] - r->sums[r->queue[head]];
    }
    return pace + best / r->steps;
}

#define MOST_PACES 8

static int64_t longest_path(const ring *r) {
    int64_t paces[MOST_PACES], slowest = 0;
    uint32_t n_paces = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t k = 0;
        if (r->flow[i] > slowest) slowest = r->flow[i];
        while (k < n_paces && paces[k] != r->flow[i]) k++;
        if (k == n_paces && k < MOST_PACES) paces[n_paces++] = r->flow[i];
    }
    ds_i128 longest = longest_at(r, slowest);
    for (uint32_t k = 0; k < n_paces; k++) {
        ds_i128 path = paces[k] == slowest ? 0 : longest_at(r, paces[k]);
        if (path > longest) longest = path;
    }
    return ds_ps_narrow(longest);
}

static int64_t ring_ps(const ds_coll_builder *b, const ds_part *part, bool shared, bool *equal) {
    uint32_t n = part->n * part->times;
    size_t most = ((size_t)part->steps / n + 2) * n + 1;
    int64_t *latency = ds_xcalloc(n, sizeof *latency), *flow = ds_xcalloc(n, sizeof *flow);
    ring r = {
        latency, flow,       ds_xcalloc(most, sizeof *r.sums), ds_xcalloc(most, sizeof *r.queue),
        n,       part->steps};
    quotient last = {0};
    *equal = true;
    for (uint32_t i = 0; i < part->n; i++) {
        const ds_hop *hop = &b->hops.at[part->first + i];
        latency[i] = latency_of(b, hop);
        flow[i] = hop_ps(b, hop, shared, &last);
        *equal = *equal && latency[i] == latency[0] && flow[i] == flow[0];
    }
    for (uint32_t i = part->n; i < n; i++) {
        latency[i] = latency[i - part->n];
        flow[i] = flow[i - part->n];
    }
    int64_t ps =
        *equal ? ds_ps_narrow((ds_i128)latency[0] * part->steps + flow[0]) : longest_path(&r);
    free(latency);
    free(flow);
    free(r.sums);
    free(r.queue);
    return ps;
}

static void time_ring(const ds_coll_builder *b, const ds_part *part, ds_span *out) {
    bool equal;
    out->unsure = part->uneven;
    out->least_ps = ring_ps(b, part, false, &equal);
    out->most_ps = ring_ps(b, part, true, &equal);
    out->first_ps = equal ? out->most_ps : 0; /* who sends over fast hops is through earlier */
}

/* ---- trees ---- */

typedef struct paths {
    int64_t latency, flow, slowest,
        first; /* longest sums; the slowest hop; the first chunk's end */
} paths;

/* Of all hops from the root to one of them. */
typedef struct sums {
    int64_t latency, flow, alone;
} sums;

typedef struct walker {
    const ds_coll_builder *b;
    bool down;
    quotient shared, to_itself;
    paths longest;
} walker;

static sums join(sums a, sums b) {
    return (sums){ds_ps_sum(a.latency, b.latency), ds_ps_sum(a.flow, b.flow),
                  ds_ps_sum(a.alone, b.alone)};
}

static sums hop_sums(walker *w, const ds_hop *hop) {
    int64_t chunks = w->b->request->chunks, own = hop_ps(w->b, hop, true, &w->shared);
    sums s = {latency_of(w->b, hop), own, latency_of(w->b, hop)};
    if (chunks) s.alone = ds_ps_sum(s.alone, hop_ps(w->b, hop, false, &w->to_itself) / chunks);
    if (own > w->longest.slowest) w->longest.slowest = own;
    return s;
}

static void take_longest(walker *w, sums s) {
    if (s.latency > w->longest.latency) w->longest.latency = s.latency;
    if (s.flow > w->longest.flow) w->longest.flow = s.flow;
    if (s.alone > w->longest.first) w->longest.first = s.alone;
}

/* The chains below the tree's members, of which `head` says how far they are from the root. */
static void add_chains(walker *w, const ds_part *part, const ds_hop *hops, const sums *head,
                       uint32_t n_heads) {
    uint32_t length = w->b->layout.most, n = part->chained / (length - 1);
    sums *chain = ds_xcalloc(n, sizeof *chain);
    for (uint32_t i = 0; i < part->chained; i++)
        chain[i / (length - 1)] = join(chain[i / (length - 1)], hop_sums(w, &hops[n_heads + i]));
    for (uint32_t i = 0; i < n_heads; i++) {
        uint32_t child = w->down ? hops[i].to : hops[i].from;
        uint32_t parent = w->down ? hops[i].from : hops[i].to;
        take_longest(w, join(head[i], chain[child / length % n]));
        if (hops[i].towards == NONE) take_longest(w, chain[parent / length % n]);
    }
    free(chain);
}

static paths paths_of(const ds_coll_builder *b, const ds_part *part, uint32_t n, bool down) {
    walker w = {.b = b, .down = down};
    uint32_t first = part->first + (down ? n : 0), n_heads = n - part->chained;
    const ds_hop *hops = &b->hops.at[first];
    sums *to = ds_xcalloc(n_heads, sizeof *to);
    for (uint32_t i = 0; i < n_heads; i++) { /* edges nearer to the root come first */
        to[i] = hop_sums(&w, &hops[i]);
        if (hops[i].towards != NONE) to[i] = join(to[i], to[hops[i].towards - first]);
        take_longest(&w, to[i]);
    }
    if (part->chained) add_chains(&w, part, hops, to, n_heads);
    free(to);
    return w.longest;
}

static void time_tree(const ds_coll_builder *b, const ds_part *part, int64_t slowest_ps,
                      ds_span *out) {
    int64_t chunks = b->request->chunks;
    uint32_t half = part->two_ways ? part->n / 2 : part->n;
    paths up = paths_of(b, part, half, false), down = {0};
    if (part->two_ways) down = paths_of(b, part, half, true);
    int64_t slowest = up.slowest > down.slowest ? up.slowest : down.slowest;
    ds_i128 fill = chunks ? ((ds_i128)up.flow + down.flow - slowest) / chunks : 0;
    out->most_ps = ds_ps_narrow((ds_i128)up.latency + down.latency + fill + slowest);
    out->least_ps = ds_ps_narrow((ds_i128)up.first + down.first);
    if (slowest_ps > out->least_ps) out->least_ps = slowest_ps;
    if (!chunks) out->least_ps = out->most_ps; /* cut ever finer: no messages to compare with */
    out->first_ps = out->most_ps;
}

/* ---- a phase ---- */

/* Does every member take part? */
static bool all_take_part(const ds_coll_builder *b) {
    uint32_t n = b->request->n, seen = 0;
    if (b->turn) return true; /* a ring of all */
    bool *has = ds_xcalloc(n, sizeof *has);
    for (uint32_t i = 0; i < b->hops.n; i++)
        for (int end = 0; end < 2; end++) {
            uint32_t member = end ? b->hops.at[i].to : b->hops.at[i].from;
            seen += !has[member];
            has[member] = true;
        }
    free(has);
    return seen == n;
}

ds_span ds_coll__alone(const ds_coll_builder *b, int64_t flow_ps) {
    ds_span all = {.least_ps = flow_ps, .first_ps = DS_NEVER_PS};
    for (uint32_t p = 0; p < b->parts.n; p++) {
        const ds_part *part = &b->parts.at[p];
        ds_span span = {0};
        if (part->kind == DS_PART_RING) {
            time_ring(b, part, &span);
        } else if (part->kind == DS_PART_TREE) {
            time_tree(b, part, flow_ps, &span);
        } else {
            time_posts(b, part, flow_ps, &span);
        }
        all.unsure = all.unsure || span.unsure;
        if (span.least_ps > all.least_ps) all.least_ps = span.least_ps;
        if (span.most_ps > all.most_ps) all.most_ps = span.most_ps;
        if (span.first_ps < all.first_ps) all.first_ps = span.first_ps;
    }
    if (all.first_ps == DS_NEVER_PS || !all_take_part(b)) all.first_ps = 0;
    return all;
}
