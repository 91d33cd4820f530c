/* Algorithms against their closed forms, phases and messages: on one switch, on nodes with NICs, on
 * a DGX-1, in switches that reduce. Phases and messages are built from the same primitives, so each
 * is held to the formula and not to the other alone. */
#include "ir/base/units.h"
#include "sim/coll/messages.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB (INT64_C(1) << 30)

/* 10 GB/s and 1 us a hop. */
#define STAR                                                                                       \
    "topology @star {\n  device d[16] : \"A100-SXM4-80GB\"\n  switch s {reduce = true}\n"          \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..16\n}\n"

/* 300 GB/s inside a node, 24 GB/s between, as in issue and design; NICs on rails. */
#define NODES(n)                                                                                   \
    "param nodes = " n "\n"                                                                        \
    "topology @node {\n  device d[8] : \"A100-SXM4-80GB\"\n  switch s\n  nic nic[8]\n"             \
    "  link d[i] -- s : 300 GB/s, 250 ns for i in 0..8\n"                                          \
    "  link d[i] -- nic[i] : 24 GB/s, 1 us for i in 0..8\n}\n"                                     \
    "topology @pod {\n  node n[nodes] : @node\n  switch net\n"                                     \
    "  link n[i].nic[j] -- net : 24 GB/s, 1 us for i in 0..nodes, j in 0..8\n}\n"

static uint32_t everybody[1024];

static void number(void) {
    for (uint32_t i = 0; i < 1024; i++) everybody[i] = i;
}

static int64_t time_of(const topo_text *t, ds_coll_request request, ds_coll_choice *out) {
    ds_coll_cost terms = {.efficiency_q32 = UINT64_C(1) << 32};
    ds_arena arena;
    ds_error err = {0};
    ds_coll_choice choice = {0};
    request.devices = everybody;
    ds_arena_init(&arena);
    ds_status status = ds_coll_choose(t->topo, &request, &terms, &arena, &choice, &err);
    cr_expect_eq(status, DS_OK, "%s", err.message);
    ds_arena_deinit(&arena);
    if (out) *out = choice;
    return choice.ps;
}

static void expect(const topo_text *t, ds_opcode op, const char *algorithm, uint32_t n,
                   int64_t bytes, double seconds) {
    ds_coll_request request = {.op = op, .algorithm = algorithm, .n = n, .bytes = bytes};
    request.shift = 1;
    double got = (double)time_of(t, request, NULL);
    cr_expect(got > seconds * 1e12 - 500 && got < seconds * 1e12 + 500,
              "%s by %s over %u: %.0f, not %.0f", ds_op_name(op), algorithm, n, got,
              seconds * 1e12);
}

#define A 2e-6
#define S 16e7
#define B 10e9

Test(coll_algorithms, closed_forms_on_a_star) {
    number();
    topo_text t = topo_text_build(STAR);
    const int64_t bytes = 160000000;
    for (uint32_t n = 2; n <= 16; n *= 2) {
        double share = S / B * (n - 1) / n, log = n == 2 ? 1 : n == 4 ? 2 : n == 8 ? 3 : 4;
        expect(&t, DS_OP_ALL_REDUCE, "halving_doubling", n, bytes, 2 * log * A + 2 * share);
        expect(&t, DS_OP_ALL_GATHER, "halving_doubling", n, bytes, log * A + share);
        expect(&t, DS_OP_REDUCE_SCATTER, "halving_doubling", n, bytes, log * A + share);
        expect(&t, DS_OP_ALL_REDUCE, "direct", n, bytes, 2 * A + 2 * share);
        expect(&t, DS_OP_GATHER, "tree", n, bytes, log * A + share);
        expect(&t, DS_OP_SCATTER, "tree", n, bytes, log * A + share);
        expect(&t, DS_OP_BROADCAST, "direct", n, bytes, A + (n - 1) * S / B);
        expect(&t, DS_OP_ALL_REDUCE, "switch", n, bytes, A + S / B);
        expect(&t, DS_OP_ALL_GATHER, "switch", n, bytes, A + S / B);
        expect(&t, DS_OP_BROADCAST, "switch", n, bytes, A + S / B);
        expect(&t, DS_OP_REDUCE, "switch", n, bytes, A + S / B);
        expect(&t, DS_OP_PERMUTE, "direct", n, bytes, A + S / B);
    }
    /* 6 = 4 + 2: two members give all to others first, and get all in the end */
    expect(&t, DS_OP_ALL_REDUCE, "halving_doubling", 6, bytes,
           6 * A + 2 * S / B * 3 / 4 + 2 * S / B);
    topo_text_free(&t);
}

/* Steps one after the other, over all phases. */
static int64_t steps_of(const topo_text *t, ds_opcode op, const char *algorithm, uint32_t n) {
    ds_coll_request request = {.op = op, .devices = everybody, .n = n, .bytes = 1600, .shift = 1};
    ds_arena arena;
    ds_error err = {0};
    ds_phase *phases;
    uint32_t n_phases;
    int64_t steps = 0;
    ds_arena_init(&arena);
    ds_status status =
        ds_coll_phases(t->topo, &request, algorithm, &arena, &phases, &n_phases, &err);
    cr_expect_eq(status, DS_OK, "%s", err.message);
    for (uint32_t p = 0; p < n_phases; p++) steps += phases[p].steps;
    ds_arena_deinit(&arena);
    return steps;
}

/* A latency a step: n - 1 around a ring, log n by halves and doubles, of 6 = 4 + 2 members one more
 * before and after; one for what goes straight, two if it is summed and comes back. */
Test(coll_algorithms, steps) {
    static const struct {
        ds_opcode op;
        const char *algorithm;
        uint32_t n;
        int64_t steps;
    } cases[] = {{DS_OP_ALL_REDUCE, "ring", 5, 8},
                 {DS_OP_ALL_GATHER, "ring", 5, 4},
                 {DS_OP_REDUCE_SCATTER, "ring", 5, 4},
                 {DS_OP_ALL_REDUCE, "halving_doubling", 8, 6},
                 {DS_OP_ALL_REDUCE, "halving_doubling", 6, 6},
                 {DS_OP_ALL_GATHER, "halving_doubling", 8, 3},
                 {DS_OP_ALL_GATHER, "halving_doubling", 6, 4},
                 {DS_OP_REDUCE_SCATTER, "halving_doubling", 6, 4},
                 {DS_OP_ALL_REDUCE, "direct", 5, 2},
                 {DS_OP_ALL_GATHER, "direct", 5, 1},
                 {DS_OP_BROADCAST, "direct", 5, 1},
                 {DS_OP_ALL_TO_ALL, "direct", 5, 1},
                 {DS_OP_PERMUTE, "direct", 5, 1},
                 {DS_OP_ALL_REDUCE, "switch", 5, 1}};
    number();
    topo_text t = topo_text_build(STAR);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t steps = steps_of(&t, cases[i].op, cases[i].algorithm, cases[i].n);
        cr_expect_eq(steps, cases[i].steps, "%s by %s over %u: %d", ds_op_name(cases[i].op),
                     cases[i].algorithm, cases[i].n, (int)steps);
    }
    topo_text_free(&t);
}

/* Shards of n + 1, 1 and 1 bytes around three members, 100 ps a byte: the last message is the large
 * shard on its second hop, which begins when the first has ended. Bytes that differ by more than
 * whole bytes demand do not lie side by side on both hops, be they few. */
Test(coll_algorithms, an_uneven_shard_takes_its_time_on_every_hop) {
    number();
    topo_text t = topo_text_build(STAR);
    for (int64_t more = 2; more <= 128; more *= 2) {
        const int64_t shards[] = {1 + more, 1, 1};
        ds_coll_request request = {.op = DS_OP_ALL_GATHER,
                                   .algorithm = "ring",
                                   .n = 3,
                                   .bytes = 3 + more,
                                   .shard_bytes = shards};
        int64_t ps = time_of(&t, request, NULL);
        cr_expect_eq(ps, 2 * (2000000 + 100 * (1 + more)), "%d more: %lld ps", (int)more,
                     (long long)ps);
    }
    topo_text_free(&t);
}

/* In 10 chunks a chain of 7 hops takes 7 latencies and 16/10 of its bytes. */
Test(coll_algorithms, chunks_fill_a_chain) {
    number();
    topo_text t = topo_text_build(STAR);
    ds_coll_request request = {
        .op = DS_OP_BROADCAST, .algorithm = "ring", .n = 8, .bytes = 160000000, .chunks = 10};
    cr_expect_eq(time_of(&t, request, NULL), 14000000 + INT64_C(25600000000));
    topo_text_free(&t);
}

/* 1 GiB over 128 x 8: 7/8 S at 300 GB/s in and out, 2 · 127/128 of S/8 at 24 GB/s between: the sum,
 * 17.4 ms. */
Test(coll_algorithms, a_hierarchical_all_reduce_is_the_sum_of_its_phases) {
    number();
    topo_text t = topo_text_build(NODES("128"));
    double in = 7 * 0.5e-6 + (double)GIB * 7 / 8 / 300e9;
    double between = 254 * 4e-6 + (double)GIB * 2 / 8 * 127 / 128 / 24e9;
    expect(&t, DS_OP_ALL_REDUCE, "hierarchical", 1024, GIB, 2 * in + between);
    double flows = 2 * (in - 3.5e-6) + between - 254 * 4e-6;
    cr_expect(flows > 17.35e-3 && flows < 17.45e-3, "%g", flows);
    expect(&t, DS_OP_REDUCE_SCATTER, "hierarchical", 1024, GIB, in + between / 2);
    expect(&t, DS_OP_ALL_GATHER, "hierarchical", 1024, GIB, in + between / 2);
    /* in 4 chunks phases overlap: in a quarter each, 6 slots, of which the bounds are NVLink,
     * network, network, network, network, NVLink */
    ds_coll_request request = {
        .op = DS_OP_ALL_REDUCE, .algorithm = "hierarchical", .n = 1024, .bytes = GIB, .chunks = 4};
    double got = (double)time_of(&t, request, NULL) / 1e12, wanted = (2 * in - 7e-6) / 4 + 7e-6;
    wanted += between - 254 * 4e-6 + 4 * 254 * 4e-6;
    cr_expect(got > wanted - 1e-9 && got < wanted + 1e-9, "%.9g, not %.9g", got, wanted);
    topo_text_free(&t);
}

/* Eight rings, each out of a node by another NIC: a NIC carries an eighth, once each way. */
Test(coll_algorithms, rings_use_all_rails) {
    number();
    topo_text t = topo_text_build(NODES("16"));
    expect(&t, DS_OP_ALL_REDUCE, "ring", 128, GIB, 4e-6 + (double)GIB * 2 * 127 / 128 / 8 / 24e9);
    expect(&t, DS_OP_ALL_GATHER, "ring", 128, GIB, 4e-6 + (double)GIB * 127 / 128 / 8 / 24e9);
    /* a tree between nodes on every rail, chains inside: 3 edges deep between nodes and 7 inside,
     * twice an eighth of the bytes at most over a NIC */
    expect(&t, DS_OP_ALL_REDUCE, "tree", 128, GIB,
           2 * (3 * 4e-6 + 7 * 0.5e-6) + (double)GIB * 2 / 8 / 24e9);
    topo_text_free(&t);
}

/* All_to_all by PXN: 7/8 of the bytes inside, 15/16 between, each NIC for its own rail. */
Test(coll_algorithms, pxn_stays_on_its_rail) {
    number();
    topo_text t = topo_text_build(NODES("16"));
    expect(&t, DS_OP_ALL_TO_ALL, "pxn", 128, GIB,
           0.5e-6 + (double)GIB * 7 / 8 / 300e9 + 4e-6 + (double)GIB * 15 / 16 / 24e9);
    topo_text_free(&t);
}

/* Six edge-disjoint directed rings over the NVLinks of a DGX-1, 25 GB/s each (NCCL finds as many):
 * all_reduce at 150 GB/s. In the order 0, 1, … 7 the hop 3 to 4 would go by PCIe and QPI. */
Test(coll_algorithms, a_dgx1_has_six_rings) {
    number();
    topo_text t = topo_text_load("scenarios/topologies/dgx1-v100.dir", NULL, 0);
    expect(&t, DS_OP_ALL_REDUCE, "ring", 8, GIB, 14 * 0.47e-6 + (double)GIB * 14 / 8 / 150e9);
    /* the quad 0 … 3 has links 1 1 2 2 1 2: three directed pairs of rings would need 6 a GPU inside
     */
    ds_coll_choice choice;
    ds_coll_request request = {.op = DS_OP_ALL_REDUCE, .algorithm = "ring", .n = 4, .bytes = GIB};
    double ring = (double)(time_of(&t, request, &choice) - 6 * 470000) / 1e12;
    cr_expect(ring <= (double)GIB * 6 / 4 / 75e9, "%g", ring);
    topo_text_free(&t);
}

/* A leaf adds up its four members' data, so the way to the spine carries them once. */
Test(coll_algorithms, reduction_in_a_tree_of_switches) {
    number();
    topo_text t = topo_text_build(
        "topology @t {\n  device d[16] : \"A100-SXM4-80GB\"\n  switch leaf[4] {reduce = true}\n"
        "  switch spine {reduce = true}\n  link d[i] -- leaf[i / 4] : 10 GB/s, 1 us for i in "
        "0..16\n"
        "  link leaf[i] -- spine : 10 GB/s, 1 us for i in 0..4\n}\n");
    expect(&t, DS_OP_ALL_REDUCE, "switch", 16, 160000000, 4e-6 + S / B);
    /* what is gathered is not added up: 12/16 of it comes down to a leaf, all to its members */
    expect(&t, DS_OP_ALL_GATHER, "switch", 16, 160000000, 4e-6 + S / B);
    topo_text_free(&t);
    t = topo_text_build("topology @t {\n  device d[16] : \"A100-SXM4-80GB\"\n  switch leaf[4]\n"
                        "  switch spine {reduce = true}\n  link d[i] -- leaf[i / 4] : 10 GB/s, 1 "
                        "us for i in 0..16\n"
                        "  link leaf[i] -- spine : 10 GB/s, 1 us for i in 0..4\n}\n");
    expect(&t, DS_OP_ALL_REDUCE, "switch", 16, 160000000, 4e-6 + 4 * S / B);
    topo_text_free(&t);
}

/* What competes without a name, and with "fastest". */
Test(coll_algorithms, choice) {
    number();
    topo_text t = topo_text_build(STAR);
    ds_coll_choice choice;
    ds_coll_request request = {.op = DS_OP_ALL_REDUCE, .n = 16, .bytes = 160000000};
    time_of(&t, request, &choice);
    cr_expect_str_eq(choice.algorithm, "switch");
    topo_text_free(&t);
    t = topo_text_build(NODES("16"));
    request.n = 128;
    request.bytes = 1 << 20;
    time_of(&t, request, &choice);
    cr_expect_str_eq(choice.algorithm, "tree");
    request.n = 8;
    request.bytes = INT64_C(16) << 30;
    time_of(&t, request, &choice);
    cr_expect_str_eq(choice.algorithm, "ring");
    request.algorithm = "fastest";
    request.bytes = 1 << 10;
    request.n = 64;
    time_of(&t, request, &choice);
    cr_expect_str_eq(choice.algorithm, "direct");
    topo_text_free(&t);
}

/* Chains, trees and rings as messages: how many there are, and what they carry together. */
Test(coll_algorithms, messages_carry_what_phases_do) {
    number();
    topo_text t = topo_text_build(STAR);
    static const struct {
        ds_opcode op;
        const char *algorithm;
        uint32_t messages; /* with a route, over 8 members, in 4 chunks */
        double bytes;      /* in S */
    } cases[] = {
        {DS_OP_ALL_REDUCE, "ring", 14 * 8, 14},
        {DS_OP_ALL_GATHER, "ring", 7 * 8, 7},
        {DS_OP_ALL_REDUCE, "tree", 2 * 2 * 7 * 4, 14},
        {DS_OP_BROADCAST, "ring", 7 * 4, 7},
        {DS_OP_ALL_TO_ALL, "direct", 56, 7},
        {DS_OP_ALL_REDUCE, "halving_doubling", 6 * 8, 14},
        {DS_OP_GATHER, "tree", 7, 1.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_coll_request request = {
            .op = cases[i].op, .devices = everybody, .n = 8, .bytes = 8 << 20};
        request.chunks =
            cases[i].messages % 4 == 0 &&
                    strcmp(cases[i].algorithm, "ring") * strcmp(cases[i].algorithm, "tree") == 0 &&
                    cases[i].op != DS_OP_GATHER
                ? 4
                : 0;
        ds_arena arena;
        ds_arena_init(&arena);
        ds_message_graph g;
        ds_error err;
        cr_assert_eq(ds_coll_messages(t.topo, &request, cases[i].algorithm, &arena, &g, &err),
                     DS_OK);
        uint32_t n = 0, waits = 0;
        double bytes = 0;
        for (uint32_t m = 0; m < g.n_messages; m++) {
            n += g.messages[m].route != NULL;
            bytes += (double)g.messages[m].bytes;
            waits += g.messages[m].n_waits;
            for (uint32_t e = g.first[m]; e < g.first[m + 1]; e++) cr_expect(g.edges[e] > m);
        }
        cr_expect_eq(n, cases[i].messages, "%zu: %u", i, n);
        cr_expect_float_eq(bytes, cases[i].bytes * (8 << 20), 1, "%zu: %g", i, bytes);
        cr_expect_eq(g.first[g.n_messages], waits);
        ds_arena_deinit(&arena);
    }
    topo_text_free(&t);
}

/* Phases in chunks, message by message: a hierarchical all_reduce over 2 x 8 in c chunks is c times
 * as many messages of 1/c of the bytes, and takes what a pipeline of three stages does on links
 * that no two stages share: (in + between + in)/c, and c − 1 times the slowest of them, the
 * network. */
Test(coll_algorithms, phases_in_chunks_as_messages) {
    number();
    topo_text t = topo_text_build(NODES("2"));
    const int64_t bytes = INT64_C(1) << 28;
    ds_coll_request request = {.op = DS_OP_ALL_REDUCE,
                               .algorithm = "hierarchical",
                               .devices = everybody,
                               .n = 16,
                               .bytes = bytes};
    double in = 7 * 0.5e-6, between = 2 * 4e-6, nvlink = (double)bytes * 7 / 8 / 300e9,
           nic = (double)bytes * 2 / 8 / 2 / 24e9;
    for (int64_t chunks = 1; chunks <= 16; chunks *= 4) {
        ds_arena arena;
        ds_arena_init(&arena);
        ds_message_graph g;
        ds_error err;
        request.chunks = chunks;
        cr_assert_eq(ds_coll_messages(t.topo, &request, "hierarchical", &arena, &g, &err), DS_OK);
        double sum = 0;
        int64_t n = 0;
        for (uint32_t m = 0; m < g.n_messages; m++) {
            n += g.messages[m].route != NULL;
            sum += (double)g.messages[m].bytes;
        }
        cr_expect_eq(n, chunks * (2 * 2 * 8 * 7 + 8 * 2 * 2));
        cr_expect_float_eq(sum, (double)bytes * (2 * 2 * 7 + 2), 1);
        double got = (double)time_of(&t, request, NULL) / 1e12, c = (double)chunks;
        double pace = between + nic / c, one = 2 * (in + nvlink / c) + pace;
        double wanted = one + (c - 1) * pace;
        cr_expect(fabs(got - wanted) < 0.01 * wanted, "%g: %.9g, not %.9g", c, got, wanted);
        ds_arena_deinit(&arena);
    }
    topo_text_free(&t);
}
