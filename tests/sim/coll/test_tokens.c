/* Tokens to their experts, counted one by one: every set of experts that a token may have, over all
 * nodes or over every set of as many nodes as a token is limited to, from every device. */
#include "sim/coll/messages.h"
#include "sim/cost/exchange.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* 300 GB/s inside a node, 24 GB/s between. */
static topo_text nodes_of(int nodes, int each) {
    char text[1024];
    snprintf(text, sizeof text,
             "topology @node {\n  device d[%d] : \"A100-SXM4-80GB\"\n  switch s\n  nic nic[%d]\n"
             "  link d[i] -- s : 300 GB/s, 250 ns for i in 0..%d\n"
             "  link d[i] -- nic[i] : 24 GB/s, 1 us for i in 0..%d\n}\n"
             "topology @pod {\n  node n[%d] : @node\n  switch net\n"
             "  link n[i].nic[j] -- net : 24 GB/s, 1 us for i in 0..%d, j in 0..%d\n}\n",
             each, each, each, each, nodes, nodes, each);
    return topo_text_build(text);
}

typedef struct counts {
    double tokens, crossed, forwarded; /* of the tokens of device 0 */
} counts;

typedef struct setting {
    int nodes, each, experts, top, limit;
} setting;

static int ones(unsigned set) {
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* One token of device 0, whose experts are the set's. */
static void send(const setting *s, unsigned set, counts *c) {
    int own = s->experts / (s->nodes * s->each);
    c->tokens++;
    for (int node = 0; node < s->nodes; node++) {
        bool there = false;
        for (int d = 0; d < s->each; d++) {
            int first = (node * s->each + d) * own;
            bool has = (set >> first & ((1u << own) - 1)) != 0;
            there = there || has;
            if (has && d) c->forwarded++; /* from the node's device 0 */
        }
        if (there && node) c->crossed++;
    }
}

static counts count(const setting *s) {
    counts c = {0};
    int each = s->experts / s->nodes, limit = s->limit ? s->limit : s->nodes;
    for (unsigned nodes = 0; nodes < 1u << s->nodes; nodes++) {
        if (ones(nodes) != limit) continue;
        unsigned allowed = 0;
        for (int n = 0; n < s->nodes; n++)
            if (nodes >> n & 1) allowed |= ((1u << each) - 1) << (n * each);
        for (unsigned set = 0; set < 1u << s->experts; set++)
            if (ones(set) == s->top && !(set & ~allowed)) send(s, set, &c);
    }
    return c;
}

/* Devices are alike, and so are both ways of a link: the most loaded link of each kind. */
static void expect(const setting *s) {
    topo_text t = nodes_of(s->nodes, s->each);
    counts c = count(s);
    int64_t tokens = (int64_t)c.tokens * 1000;
    uint32_t devices[32], n = (uint32_t)(s->nodes * s->each);
    for (uint32_t i = 0; i < n; i++) devices[i] = i;
    const ds_exchange x = {.experts = s->experts,
                           .top = s->top,
                           .limit = s->limit,
                           .filled = 0.5 / s->top, /* buffers with twice the room */
                           .bytes = 10};
    ds_coll_request q = {.op = DS_OP_ALL_TO_ALL,
                         .devices = devices,
                         .n = n,
                         .bytes = 2 * tokens * s->top * 10,
                         .exchange = &x};
    ds_arena arena;
    ds_error err = {0};
    ds_phase *phases;
    uint32_t n_phases;
    double nic = 0, inside = 0;
    ds_arena_init(&arena);
    cr_assert_eq(ds_coll_phases(t.topo, &q, "deepep", &arena, &phases, &n_phases, &err), DS_OK,
                 "%s", err.message);
    cr_assert_eq(n_phases, 1);
    for (uint32_t i = 0; i < phases[0].n_loads; i++) {
        const ds_load *load = &phases[0].loads[i];
        double bytes = (double)load->bytes_q32 / 4294967296.0;
        bool fast = ds_topo_link_at(t.topo, load->link)->bytes_per_s > 100000000000;
        double *kind = fast ? &inside : &nic;
        cr_expect(*kind == 0 || fabs(bytes - *kind) < 1, "%.9g and %.9g", bytes, *kind);
        *kind = bytes;
    }
    cr_expect(fabs(nic - c.crossed * 1e4) < 40, "%d x %d, %d of %d: %.9g, not %.9g over the NIC",
              s->nodes, s->each, s->top, s->experts, nic, c.crossed * 1e4);
    cr_expect(fabs(inside - c.forwarded * 1e4) < 40, "%d x %d, %d of %d: %.9g, not %.9g inside",
              s->nodes, s->each, s->top, s->experts, inside, c.forwarded * 1e4);
    ds_arena_deinit(&arena);
    topo_text_free(&t);
}

Test(tokens, a_token_goes_once_to_a_node_and_once_to_a_device) {
    static const setting settings[] = {
        {2, 2, 8, 3, 0},  {2, 4, 8, 2, 0},  {4, 2, 8, 3, 0}, {4, 2, 16, 4, 0}, {2, 2, 16, 8, 0},
        {3, 2, 12, 2, 0}, {1, 4, 8, 3, 0},  {4, 1, 8, 3, 0}, {4, 2, 16, 4, 2}, {4, 2, 8, 2, 1},
        {4, 4, 16, 4, 3}, {3, 2, 12, 3, 2}, {2, 2, 4, 4, 0}, {4, 2, 16, 3, 4}, {4, 2, 16, 3, 7},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        setting s = settings[i];
        if (s.limit > s.nodes) s.limit = s.nodes; /* no limit at all */
        expect(&s);
    }
}

/* DeepSeek-V3 on 8 nodes of 8: 1 - C(224, 8)/C(256, 8) of the tokens reach a node. A token
 * that is limited to 4 of the 8 nodes reaches a node half as often as with 4 nodes in all. */
Test(tokens, shares_of_deepseek_v3) {
    ds_exchange x = {.experts = 256, .top = 8, .filled = 1, .bytes = 1};
    cr_expect_float_eq(7 * ds_exchange_reach(&x, 8, 8), 4.632820500334669, 1e-12);
    x.limit = 4;
    cr_expect_float_eq(7 * ds_exchange_reach(&x, 8, 8), 3.175384558872488, 1e-12);
    ds_sending s;
    ds_sending_of(&x, 64, 8, &s);
    cr_expect_float_eq(s.crossed, 3.175384558872488, 1e-12);
    cr_expect_float_eq(s.wired, s.copies * 56 / 64, 1e-12);
}

/* Without words about tokens, and over nodes of unequal size, the algorithm says what is missing. */
Test(tokens, refused) {
    topo_text t = nodes_of(2, 2);
    uint32_t devices[] = {0, 1, 2};
    ds_exchange x = {.experts = 6, .top = 2, .filled = 0.5, .bytes = 1};
    ds_coll_request q = {.op = DS_OP_ALL_TO_ALL, .devices = devices, .n = 3, .bytes = 600};
    ds_arena arena;
    ds_error err = {0};
    ds_phase *phases;
    uint32_t n;
    ds_arena_init(&arena);
    cr_expect_eq(ds_coll_phases(t.topo, &q, "deepep", &arena, &phases, &n, &err),
                 DS_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(err.message, "`token_bytes`"), "%s", err.message);
    q.exchange = &x;
    cr_expect_eq(ds_coll_phases(t.topo, &q, "deepep", &arena, &phases, &n, &err),
                 DS_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(err.message, "the same number"), "%s", err.message);
    ds_arena_deinit(&arena);
    topo_text_free(&t);
}
