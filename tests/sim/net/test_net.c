/* Flows in time: random arrivals on random links. What is moved is what was asked for, counted in
 * integers from the rates; ends are those of a simulation of its own in long double; the order of
 * starts at one instant, and activities that load no common link, change nothing. */
#include "ir/base/rng.h"
#include "sim/coll/coll.h"
#include "sim/net/net.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LINKS 12
#define MAX_FLOWS 40

typedef struct problem {
    uint32_t n_links, n_flows;
    ds_u128 capacity_q20[MAX_LINKS];
    ds_flow flows[MAX_FLOWS];
    ds_link_use uses[MAX_FLOWS][MAX_LINKS];
    int64_t start_ps[MAX_FLOWS];
} problem;

static uint64_t draw(uint64_t seed, uint64_t *at, uint64_t n) {
    return ds_rng_at(seed, 13, (*at)++, 0) % n;
}

static void random_problem(uint64_t seed, problem *p) {
    uint64_t at = 0;
    *p = (problem){.n_links = 1 + (uint32_t)draw(seed, &at, MAX_LINKS),
                   .n_flows = 1 + (uint32_t)draw(seed, &at, MAX_FLOWS)};
    for (uint32_t l = 0; l < p->n_links; l++)
        p->capacity_q20[l] = (ds_u128)(1000000000 + draw(seed, &at, 100000000000)) << DS_RATE_BITS;
    for (uint32_t f = 0; f < p->n_flows; f++) {
        ds_flow *flow = &p->flows[f];
        flow->share = (ds_share_flow){
            .uses = p->uses[f], .weight = 1 + (uint32_t)draw(seed, &at, 4), .cap_q20 = DS_NO_CAP};
        uint32_t first = (uint32_t)draw(seed, &at, p->n_links),
                 n = 1 + (uint32_t)draw(seed, &at, 3);
        for (uint32_t k = 0; k < n && k < p->n_links; k++)
            p->uses[f][flow->share.n_uses++] =
                (ds_link_use){(first + k) % p->n_links, UINT64_C(1) << (31 + draw(seed, &at, 2))};
        uint64_t bytes = 1 + draw(seed, &at, 1000000);
        flow->work = ((ds_u128)bytes << 32) * DS_WORK_PER_BYTE_Q32;
        flow->alone_q20 = DS_NO_CAP;
        for (uint32_t k = 0; k < flow->share.n_uses; k++) {
            ds_u128 level = (p->capacity_q20[p->uses[f][k].link] << 32) /
                            ((ds_u128)p->uses[f][k].use_q32 * flow->share.weight);
            if (level < flow->alone_q20) flow->alone_q20 = level;
        }
        ds_u128 rate = flow->alone_q20 * flow->share.weight;
        flow->alone_ps = (int64_t)((flow->work + rate / 2) / rate);
        p->start_ps[f] = (int64_t)draw(seed, &at, 4) * 5000000; /* several at one instant */
    }
}

/* Runs all of it. end_ps per flow; moved: Σ rate · time. `backwards`: starts of one instant in the
 * other order. */
static void simulate(const problem *p, bool backwards, int64_t *end_ps, ds_u128 *moved,
                     ds_u128 *last_rate) {
    ds_net *net = ds_net_new(p->capacity_q20, p->n_links, p->flows, p->n_flows, p->n_flows);
    bool active[MAX_FLOWS] = {false}, started[MAX_FLOWS] = {false};
    int64_t now = 0;
    uint32_t n_ended = 0;
    for (uint32_t f = 0; f < p->n_flows; f++) moved[f] = last_rate[f] = 0;
    while (n_ended < p->n_flows) {
        for (uint32_t i = 0; i < p->n_flows; i++) {
            uint32_t f = backwards ? p->n_flows - 1 - i : i;
            if (started[f] || p->start_ps[f] != now) continue;
            ds_net_flow(net, f, f, f, now);
            started[f] = active[f] = true;
        }
        int64_t next = ds_net_next_ps(net, now);
        bool ends = next != INT64_MAX;
        for (uint32_t f = 0; f < p->n_flows; f++)
            if (!started[f] && p->start_ps[f] < next) {
                next = p->start_ps[f];
                ends = false;
            }
        for (uint32_t f = 0; f < p->n_flows && next > now; f++) {
            if (!active[f]) continue;
            last_rate[f] = ds_net_rate_q20(net, f);
            moved[f] += last_rate[f] * (uint64_t)(next - now);
        }
        now = next;
        if (!ends) continue;
        uint32_t f = ds_net_pop(net);
        active[f] = false;
        end_ps[f] = now;
        n_ended++;
    }
    cr_expect_eq(ds_net_n_active(net), 0);
    ds_net_free(net);
}

/* Max-min rates by peeling, as in test_share.c, of those that have bytes left. */
static void peel(const problem *p, const long double *left, const bool *on, long double *rate) {
    bool done[MAX_FLOWS];
    for (uint32_t f = 0; f < p->n_flows; f++) {
        done[f] = !on[f] || left[f] <= 0;
        rate[f] = 0;
    }
    for (;;) {
        long double offer[MAX_LINKS], least = INFINITY;
        for (uint32_t l = 0; l < p->n_links; l++) {
            long double spare = (long double)p->capacity_q20[l] * 0x1p-20L, sum = 0;
            for (uint32_t f = 0; f < p->n_flows; f++)
                for (uint32_t k = 0; k < p->flows[f].share.n_uses; k++) {
                    if (p->uses[f][k].link != l) continue;
                    long double use = (long double)p->uses[f][k].use_q32 * 0x1p-32L;
                    spare -= rate[f] * use;
                    if (!done[f]) sum += use * p->flows[f].share.weight;
                }
            offer[l] = sum > 0 ? spare / sum : INFINITY;
            if (offer[l] < least) least = offer[l];
        }
        if (isinf(least)) return;
        bool full[MAX_LINKS];
        for (uint32_t l = 0; l < p->n_links; l++) full[l] = offer[l] <= least * (1 + 1e-15L);
        for (uint32_t f = 0; f < p->n_flows; f++)
            for (uint32_t k = 0; k < p->flows[f].share.n_uses && !done[f]; k++)
                if (full[p->uses[f][k].link]) {
                    done[f] = true;
                    rate[f] = least * p->flows[f].share.weight;
                }
    }
}

static void by_hand(const problem *p, long double *end_s) {
    long double left[MAX_FLOWS], rate[MAX_FLOWS], now = 0;
    bool on[MAX_FLOWS] = {false};
    for (uint32_t f = 0; f < p->n_flows; f++)
        left[f] = (long double)p->flows[f].work * 0x1p-20L * 1e-12L;
    for (;;) {
        long double next = INFINITY;
        for (uint32_t f = 0; f < p->n_flows; f++) {
            on[f] = on[f] || (long double)p->start_ps[f] * 1e-12L <= now + 1e-15L;
            if (!on[f] && (long double)p->start_ps[f] * 1e-12L < next)
                next = (long double)p->start_ps[f] * 1e-12L;
        }
        peel(p, left, on, rate);
        for (uint32_t f = 0; f < p->n_flows; f++)
            if (rate[f] > 0 && now + left[f] / rate[f] < next) next = now + left[f] / rate[f];
        if (isinf(next)) return;
        for (uint32_t f = 0; f < p->n_flows; f++) {
            if (!on[f] || left[f] <= 0) continue;
            left[f] -= rate[f] * (next - now);
            if (left[f] > 1e-7L) continue; /* bytes */
            left[f] = 0;
            end_s[f] = next;
        }
        now = next;
    }
}

Test(net, bytes_are_conserved_and_ends_are_right) {
    problem *p = malloc(sizeof *p);
    for (uint64_t seed = 0; seed < 300; seed++) {
        int64_t end_ps[MAX_FLOWS], other_ps[MAX_FLOWS];
        ds_u128 moved[MAX_FLOWS], rate[MAX_FLOWS];
        long double end_s[MAX_FLOWS];
        random_problem(seed, p);
        simulate(p, true, other_ps, moved, rate);
        simulate(p, false, end_ps, moved, rate);
        by_hand(p, end_s);
        for (uint32_t f = 0; f < p->n_flows; f++) {
            ds_u128 work = p->flows[f].work;
            cr_assert(moved[f] + rate[f] >= work && moved[f] < work + rate[f],
                      "seed %llu, flow %u: moved is off by more than the last ps",
                      (unsigned long long)seed, f);
            cr_assert_eq(end_ps[f], other_ps[f], "seed %llu, flow %u: %lld and %lld",
                         (unsigned long long)seed, f, (long long)end_ps[f], (long long)other_ps[f]);
            /* A ps for each round of rounding up before it. */
            cr_assert(fabsl(end_s[f] * 1e12L - (long double)end_ps[f]) <= 100,
                      "seed %llu, flow %u: %lld ps, by hand %.3Lf", (unsigned long long)seed, f,
                      (long long)end_ps[f], end_s[f] * 1e12L);
        }
    }
    free(p);
}

/* A flow never slowed takes its time alone to the ps, however often others change elsewhere. */
Test(net, alone_is_exact) {
    ds_u128 capacity[] = {(ds_u128)7000000000 << DS_RATE_BITS, (ds_u128)3 << 50};
    ds_link_use first = {0, UINT64_C(1) << 32}, second = {1, UINT64_C(1) << 32};
    ds_flow flows[4] = {0};
    for (int i = 0; i < 4; i++) {
        flows[i].share = (ds_share_flow){
            .uses = i ? &second : &first, .n_uses = 1, .weight = 1, .cap_q20 = DS_NO_CAP};
        flows[i].work = ((ds_u128)1000003 << 32) * DS_WORK_PER_BYTE_Q32;
        flows[i].alone_q20 = capacity[i > 0];
        flows[i].alone_ps = 142857571; /* 1000003 / 7 ns, to the nearest: 142857571.43 */
    }
    ds_net *net = ds_net_new(capacity, 2, flows, 4, 4);
    ds_net_flow(net, 0, 0, 0, 0);
    for (uint32_t i = 1; i < 4; i++) {
        ds_net_next_ps(net, 1000 * (i - 1)); /* before time goes on */
        ds_net_flow(net, i, i, i, 1000 * i);
    }
    cr_expect_eq(ds_net_next_ps(net, 3000), 142857571);
    cr_expect_eq(ds_net_pop(net), 0);
    ds_net_free(net);
}

/* Waits end by time, and of equal times by order. */
Test(net, ends_of_one_time_come_in_order) {
    ds_net *net = ds_net_new(NULL, 0, NULL, 0, 5);
    cr_expect_eq(ds_net_next_ps(net, 0), INT64_MAX);
    ds_net_wait(net, 3, 7, 100);
    ds_net_wait(net, 1, 2, 100);
    ds_net_wait(net, 0, 9, 50);
    ds_net_wait(net, 2, 4, 100);
    uint32_t wanted[] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++) cr_expect_eq(ds_net_pop(net), wanted[i]);
    ds_net_free(net);
}

/* 40 kB over links of 10 GB/s at 0.8, where a message gets no more than 5 (or 20) GB/s: 8 us (or 5)
 * after the 2 us of the route. A direct all_to_all of 4 has 3 messages at a port: their 30 kB are
 * bound by the port, 3.75 us, not by 3 x 5 GB/s. */
static int64_t alone_ps(ds_opcode op, const char *cap) {
    char text[256];
    snprintf(text, sizeof text,
             "topology @t {\n  device d[4] : \"X\"\n  switch s\n"
             "  link d[i] -- s : 10 GB/s, 1 us {efficiency = 0.8%s} for i in 0..4\n}\n",
             cap);
    topo_text t = topo_text_build(text);
    uint32_t devices[] = {0, 1, 2, 3};
    ds_coll_request request = {
        .op = op, .devices = devices, .n = op == DS_OP_SEND ? 2 : 4, .bytes = 40000};
    ds_coll_cost terms = {.efficiency_q32 = UINT64_C(1) << 32};
    ds_arena arena;
    ds_arena_init(&arena);
    ds_coll_choice choice;
    ds_error err;
    cr_assert_eq(ds_coll_choose(t.topo, &request, &terms, &arena, &choice, &err), DS_OK);
    ds_arena_deinit(&arena);
    topo_text_free(&t);
    return choice.ps;
}

Test(net, caps_bound_messages_and_efficiency_links) {
    cr_expect_eq(alone_ps(DS_OP_SEND, ", cap = 5 GB/s"), 10000000);
    cr_expect_eq(alone_ps(DS_OP_SEND, ", cap = 20 GB/s"), 7000000);
    cr_expect_eq(alone_ps(DS_OP_SEND, ""), 7000000);
    cr_expect_eq(alone_ps(DS_OP_ALL_TO_ALL, ", cap = 5 GB/s"), 2000000 + 3750000);
    cr_expect_eq(alone_ps(DS_OP_ALL_TO_ALL, ", cap = 1 GB/s"), 2000000 + 10000000);
}

/* ---- states ---- */

/* A flow alone on a link, begun at since_ps, as it is at 1000 ps. */
static uint64_t state_of(ds_u128 capacity_q20, ds_u128 work, int64_t since_ps, bool fresh) {
    ds_link_use use = {0, UINT64_C(1) << 32};
    ds_flow flow = {.work = work, .alone_q20 = capacity_q20, .alone_ps = INT64_MAX / 2};
    flow.share = (ds_share_flow){.uses = &use, .n_uses = 1, .weight = 1, .cap_q20 = DS_NO_CAP};
    ds_net *net = ds_net_new(&capacity_q20, 1, &flow, 1, 1);
    ds_net_flow(net, 0, 0, 0, since_ps);
    if (!fresh) ds_net_next_ps(net, since_ps);
    uint64_t state = ds_net_state(net, 0, 1000);
    ds_net_free(net);
    return state;
}

/* States tell flows apart that will go on in other ways, in the upper halves of 128 bits too. */
Test(net, states_tell_flows_apart) {
    const ds_u128 rate = (ds_u128)1 << 60, work = (ds_u128)1 << 90, upper = (ds_u128)1 << 64;
    const uint64_t state = state_of(rate, work, 0, false);
    cr_expect_eq(state_of(rate, work, 0, false), state);
    cr_expect_neq(state_of(rate + 1, work, 0, false), state);
    cr_expect_neq(state_of(rate + upper, work, 0, false), state);
    cr_expect_neq(state_of(rate, work + 1, 0, false), state);
    cr_expect_neq(state_of(rate, work + upper, 0, false), state);
    cr_expect_neq(state_of(rate, work, 1, false), state);
    cr_expect_neq(state_of(rate, work, 0, true), state);
}

/* ---- beyond int64 ---- */

/* Two flows of 2^60 bytes share a link of 1 byte a second: both are slower than alone, and neither
 * ever ends. */
Test(net, flows_that_never_end) {
    const ds_u128 capacity_q20 = (ds_u128)1 << DS_RATE_BITS;
    ds_link_use use = {0, UINT64_C(1) << 32};
    ds_flow flows[2] = {0};
    for (int i = 0; i < 2; i++) {
        flows[i].work = ((ds_u128)1 << 92) * DS_WORK_PER_BYTE_Q32;
        flows[i].alone_q20 = capacity_q20;
        flows[i].alone_ps = INT64_MAX;
        flows[i].share =
            (ds_share_flow){.uses = &use, .n_uses = 1, .weight = 1, .cap_q20 = DS_NO_CAP};
    }
    ds_net *net = ds_net_new(&capacity_q20, 1, flows, 2, 2);
    for (uint32_t i = 0; i < 2; i++) ds_net_flow(net, i, i, i, 1000);
    cr_expect_eq(ds_net_next_ps(net, 1000), INT64_MAX);
    cr_expect_eq(ds_net_n_active(net), 2);
    ds_net_free(net);
}

static ds_status phase_alone(ds_phase phase, int64_t *ps) {
    topo_text t = topo_text_build("topology @t {\n  device d[2] : \"X\"\n"
                                  "  link d[0] -- d[1] : 1 GB/s, 1 us\n}\n");
    ds_load load = {.link = 0, .bytes_q32 = (ds_u128)1000 << 32};
    phase.loads = &load;
    phase.n_loads = 1;
    phase.weight = 1;
    ds_error err = {0};
    ds_status status = ds_phase_alone_ps(t.topo, &phase, UINT64_C(1) << 32, ps, &err);
    topo_text_free(&t);
    return status;
}

/* 1000 bytes at 1 GB/s, 1 us, and waits. */
Test(net, a_phase_beyond_int64_is_an_error) {
    int64_t ps;
    const int64_t most = INT64_MAX - 1 - 1000000; /* INT64_MAX is DS_NEVER_PS */
    cr_expect_eq(phase_alone((ds_phase){.steps = 3, .alpha_ps = 7, .more_ps = 2}, &ps), DS_OK);
    cr_expect_eq(ps, 1000000 + 3 * 7 + 2);
    cr_expect_eq(phase_alone((ds_phase){.steps = 1, .alpha_ps = most}, &ps), DS_OK);
    cr_expect_eq(ps, INT64_MAX - 1);
    cr_expect_eq(phase_alone((ds_phase){.steps = 1, .alpha_ps = most + 1}, &ps), DS_ERR_OVERFLOW);
    cr_expect_eq(phase_alone((ds_phase){.steps = 2, .alpha_ps = INT64_MAX / 2 + 1}, &ps),
                 DS_ERR_OVERFLOW);
    cr_expect_eq(phase_alone((ds_phase){.steps = 1, .alpha_ps = 1, .more_ps = INT64_MAX}, &ps),
                 DS_ERR_OVERFLOW);
}
