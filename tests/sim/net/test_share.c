/* Max-min fair sharing against allocations known in closed form, and against a solver of its own on
 * random flow sets: bottleneck peeling in long double, with every quantity computed afresh in every
 * round. */
#include "ir/base/rng.h"
#include "sim/net/share.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define MAX_LINKS 40
#define MAX_FLOWS 80
#define ONE       (UINT64_C(1) << 32)

typedef struct problem {
    uint32_t n_links, n_flows;
    ds_u128 capacity_q20[MAX_LINKS];
    ds_share_flow flows[MAX_FLOWS];
    ds_link_use uses[MAX_FLOWS][MAX_LINKS];
} problem;

static uint32_t add_link(problem *p, int64_t bytes_per_s) {
    p->capacity_q20[p->n_links] = (ds_u128)bytes_per_s << DS_RATE_BITS;
    return p->n_links++;
}

static uint32_t add_flow(problem *p, uint32_t weight) {
    p->flows[p->n_flows] =
        (ds_share_flow){.uses = p->uses[p->n_flows], .weight = weight, .cap_q20 = DS_NO_CAP};
    return p->n_flows++;
}

static void use(problem *p, uint32_t flow, uint32_t link, uint64_t use_q32) {
    p->uses[flow][p->flows[flow].n_uses++] = (ds_link_use){link, use_q32};
}

static ds_share *start_all(const problem *p) {
    ds_share *s = ds_share_new(p->capacity_q20, p->n_links, p->flows, p->n_flows);
    for (uint32_t f = 0; f < p->n_flows; f++) ds_share_start(s, f);
    const uint32_t *changed;
    ds_share_settle(s, &changed);
    return s;
}

static double rate(const ds_share *s, const problem *p, uint32_t flow) {
    return (double)ds_share_level_q20(s, flow) * p->flows[flow].weight * 0x1p-20;
}

/* To 1e-12 of a capacity. */
static void expect_rate(const ds_share *s, const problem *p, uint32_t flow, double expected,
                        double capacity, const char *what) {
    double got = rate(s, p, flow);
    cr_expect(fabs(got - expected) <= 1e-12 * capacity, "%s: flow %u has %.17g, not %.17g", what,
              flow, got, expected);
}

/* ---- closed forms ---- */

#define GB          1e9
#define LINK(p, gb) add_link((p), (int64_t)((gb)*1e9))

/* N senders with links of their own into one: C / N each, in both directions of time. */
Test(share, n_to_one_and_one_to_n) {
    for (int to_one = 0; to_one < 2; to_one++) {
        problem p = {0};
        uint32_t common = LINK(&p, 12);
        for (uint32_t i = 0; i < 7; i++) {
            uint32_t own = LINK(&p, 10), f = add_flow(&p, 1);
            use(&p, f, to_one ? own : common, ONE);
            use(&p, f, to_one ? common : own, ONE);
        }
        ds_share *s = start_all(&p);
        for (uint32_t f = 0; f < 7; f++) expect_rate(s, &p, f, 12 * GB / 7, 12 * GB, "N to 1");
        ds_share_free(s);
    }
}

/* A sender that cannot take its part leaves it to the others: 12 = 1 + 5.5 + 5.5. */
Test(share, what_one_cannot_take_others_get) {
    problem p = {0};
    uint32_t common = LINK(&p, 12);
    double own[] = {1, 10, 10};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t f = add_flow(&p, 1);
        use(&p, f, LINK(&p, own[i]), ONE);
        use(&p, f, common, ONE);
    }
    ds_share *s = start_all(&p);
    expect_rate(s, &p, 0, 1 * GB, 12 * GB, "slow");
    expect_rate(s, &p, 1, 5.5 * GB, 12 * GB, "rest");
    expect_rate(s, &p, 2, 5.5 * GB, 12 * GB, "rest");
    ds_share_free(s);
}

/* The same with a cap in the place of the slow link. */
Test(share, a_cap_is_a_link_of_ones_own) {
    problem p = {0};
    uint32_t common = LINK(&p, 12);
    for (uint32_t i = 0; i < 3; i++) use(&p, add_flow(&p, 1), common, ONE);
    p.flows[0].cap_q20 = (ds_u128)1000000000 << DS_RATE_BITS;
    uint32_t lone = add_flow(&p, 3); /* without links: its cap */
    p.flows[lone].cap_q20 = (ds_u128)2000000000 << DS_RATE_BITS;
    ds_share *s = start_all(&p);
    expect_rate(s, &p, 0, 1 * GB, 12 * GB, "capped");
    expect_rate(s, &p, 1, 5.5 * GB, 12 * GB, "rest");
    expect_rate(s, &p, lone, 6 * GB, 12 * GB, "without links");
    ds_share_free(s);
}

/* A flow over all hops of a chain gets the least of the hops, alone. */
Test(share, a_chain_is_as_fast_as_its_slowest_hop) {
    problem p = {0};
    uint32_t f = add_flow(&p, 1);
    double hops[] = {9, 4, 7, 5};
    for (uint32_t i = 0; i < 4; i++) use(&p, f, LINK(&p, hops[i]), ONE);
    ds_share *s = start_all(&p);
    expect_rate(s, &p, f, 4 * GB, 9 * GB, "chain");
    ds_share_free(s);
}

/* One flow over n links, each with a flow of its own: all get half. With k local flows on link k,
 * the long one gets C/(n + 1) of the fullest, and link k leaves (C - C/(n + 1)) / k to each. */
Test(share, parking_lots) {
    for (int graded = 0; graded < 2; graded++) {
        problem p = {0};
        const uint32_t n = 6;
        uint32_t through = add_flow(&p, 1), local[6][6];
        for (uint32_t k = 1; k <= n; k++) {
            uint32_t link = LINK(&p, 10);
            use(&p, through, link, ONE);
            for (uint32_t i = 0; i < (graded ? k : 1); i++) {
                local[k - 1][i] = add_flow(&p, 1);
                use(&p, local[k - 1][i], link, ONE);
            }
        }
        ds_share *s = start_all(&p);
        double long_one = graded ? 10 * GB / (n + 1) : 5 * GB;
        expect_rate(s, &p, through, long_one, 10 * GB, "through");
        for (uint32_t k = 1; k <= n; k++)
            for (uint32_t i = 0; i < (graded ? k : 1); i++)
                expect_rate(s, &p, local[k - 1][i], (10 * GB - long_one) / (graded ? k : 1),
                            10 * GB, "local");
        ds_share_free(s);
    }
}

/* On a ring of n, flow i goes h hops on from i: every link carries h flows, C/h each. */
Test(share, rings) {
    for (uint32_t h = 1; h <= 5; h++) {
        problem p = {0};
        for (uint32_t i = 0; i < 12; i++) LINK(&p, 10);
        for (uint32_t i = 0; i < 12; i++) {
            uint32_t f = add_flow(&p, 1);
            for (uint32_t k = 0; k < h; k++) use(&p, f, (i + k) % 12, ONE);
        }
        ds_share *s = start_all(&p);
        for (uint32_t f = 0; f < 12; f++) expect_rate(s, &p, f, 10 * GB / h, 10 * GB, "ring");
        ds_share_free(s);
    }
}

/* Two leaves of 4 hosts at 10 under a spine at 12 each way: 4 flows that cross get 3 each; a fifth
 * flow that stays below has what its host's port leaves, 7. */
Test(share, two_level_tree) {
    problem p = {0};
    uint32_t up = LINK(&p, 12), down = LINK(&p, 12), out[4], in[4];
    for (uint32_t i = 0; i < 4; i++) {
        out[i] = LINK(&p, 10);
        in[i] = LINK(&p, 10);
        uint32_t f = add_flow(&p, 1);
        use(&p, f, out[i], ONE);
        use(&p, f, up, ONE);
        use(&p, f, down, ONE);
        use(&p, f, in[i], ONE);
    }
    uint32_t below = add_flow(&p, 1);
    use(&p, below, out[0], ONE);
    use(&p, below, LINK(&p, 10), ONE);
    ds_share *s = start_all(&p);
    for (uint32_t f = 0; f < 4; f++) expect_rate(s, &p, f, 3 * GB, 12 * GB, "across");
    expect_rate(s, &p, below, 7 * GB, 12 * GB, "below");
    ds_share_free(s);
}

/* A weight is a number of messages: 3 beside 1 get 9 and 3 of 12. One that loads the link with a
 * third of its rate has level x for rate x, and takes x/3: with another of use 1, 4/3 x = 12. */
Test(share, weights_and_uses) {
    problem p = {0};
    uint32_t a = LINK(&p, 12), b = LINK(&p, 12);
    uint32_t one = add_flow(&p, 1), three = add_flow(&p, 3);
    use(&p, one, a, ONE);
    use(&p, three, a, ONE);
    uint32_t third = add_flow(&p, 1), whole = add_flow(&p, 1);
    use(&p, third, b, (ONE + 1) / 3);
    use(&p, whole, b, ONE);
    ds_share *s = start_all(&p);
    expect_rate(s, &p, one, 3 * GB, 12 * GB, "weight 1");
    expect_rate(s, &p, three, 9 * GB, 12 * GB, "weight 3");
    double x = 12 * GB / (1 + (double)((ONE + 1) / 3) * 0x1p-32);
    expect_rate(s, &p, third, x, 12 * GB, "use 1/3");
    expect_rate(s, &p, whole, x, 12 * GB, "use 1");
    ds_share_free(s);
}

/* Two links of three flows each, one of them the same: a third of 11 GB/s leaves 2 units of 2^-20
 * B/s over. Both are full in one round, so all five flows get the same, whichever comes first; one
 * after the other, the second link's own flows would share out what is over and get 1 unit more. */
Test(share, links_that_fill_together_end_together) {
    problem p = {0};
    uint32_t a = LINK(&p, 11), b = LINK(&p, 11);
    uint32_t both = add_flow(&p, 1);
    use(&p, both, a, ONE);
    use(&p, both, b, ONE);
    for (uint32_t i = 0; i < 4; i++) use(&p, add_flow(&p, 1), i < 2 ? a : b, ONE);
    ds_share *s = start_all(&p);
    for (uint32_t f = 0; f < 5; f++)
        cr_expect(ds_share_level_q20(s, f) == ((ds_u128)11000000000 << DS_RATE_BITS) / 3);
    ds_share_free(s);
}

/* ---- against brute force ---- */

static uint64_t draw(uint64_t seed, uint64_t *at, uint64_t n) {
    return ds_rng_at(seed, 11, (*at)++, 0) % n;
}

static void random_problem(uint64_t seed, problem *p) {
    uint64_t at = 0;
    *p = (problem){0};
    uint32_t n_links = 1 + (uint32_t)draw(seed, &at, MAX_LINKS);
    uint32_t n_flows = 1 + (uint32_t)draw(seed, &at, MAX_FLOWS);
    bool round_numbers = draw(seed, &at, 3) == 0; /* many equal levels */
    for (uint32_t l = 0; l < n_links; l++)
        add_link(p, round_numbers ? 10000000000 * (int64_t)(1 + draw(seed, &at, 3))
                                  : (int64_t)(1000000000 + draw(seed, &at, 400000000000)));
    for (uint32_t i = 0; i < n_flows; i++) {
        uint32_t f = add_flow(p, 1 + (draw(seed, &at, 3) ? 0 : (uint32_t)draw(seed, &at, 64)));
        uint32_t n_uses = 1 + (uint32_t)draw(seed, &at, 5);
        for (uint32_t k = 0; k < n_uses; k++) {
            uint32_t link = (uint32_t)draw(seed, &at, n_links);
            bool twice = false;
            for (uint32_t j = 0; j < p->flows[f].n_uses; j++) twice |= p->uses[f][j].link == link;
            if (!twice) use(p, f, link, draw(seed, &at, 2) ? ONE : 1 + draw(seed, &at, 2 * ONE));
        }
        if (draw(seed, &at, 5) == 0)
            p->flows[f].cap_q20 = (ds_u128)(1 + draw(seed, &at, 20000000000)) << DS_RATE_BITS;
    }
}

/* Levels of the flows in B/s by definition: again and again, what each link offers to those on it
 * that have no level yet. `active` may be NULL: all are. */
static void peel(const problem *p, const bool *active, long double *level) {
    bool done[MAX_FLOWS];
    for (uint32_t f = 0; f < p->n_flows; f++) {
        done[f] = active && !active[f];
        level[f] = 0;
    }
    for (;;) {
        long double offer[MAX_LINKS], least = INFINITY;
        for (uint32_t l = 0; l < p->n_links; l++) {
            long double left = (long double)p->capacity_q20[l] * 0x1p-20L, sum = 0;
            for (uint32_t f = 0; f < p->n_flows; f++)
                for (uint32_t k = 0; k < p->flows[f].n_uses; k++) {
                    if (p->uses[f][k].link != l || (active && !active[f])) continue;
                    long double take =
                        (long double)p->uses[f][k].use_q32 * 0x1p-32L * p->flows[f].weight;
                    if (done[f])
                        left -= level[f] * take;
                    else
                        sum += take;
                }
            offer[l] = sum > 0 ? left / sum : INFINITY;
            if (offer[l] < least) least = offer[l];
        }
        for (uint32_t f = 0; f < p->n_flows; f++) {
            long double cap = p->flows[f].cap_q20 == DS_NO_CAP
                                  ? INFINITY
                                  : (long double)p->flows[f].cap_q20 * 0x1p-20L;
            if (!done[f] && cap < least) least = cap;
        }
        if (isinf(least)) return;
        bool now[MAX_FLOWS] = {false};
        for (uint32_t f = 0; f < p->n_flows; f++) {
            if (done[f]) continue;
            if (p->flows[f].cap_q20 != DS_NO_CAP &&
                (long double)p->flows[f].cap_q20 * 0x1p-20L <= least * (1 + 1e-16L))
                now[f] = true;
            for (uint32_t k = 0; k < p->flows[f].n_uses; k++)
                if (offer[p->uses[f][k].link] <= least * (1 + 1e-16L)) now[f] = true;
        }
        for (uint32_t f = 0; f < p->n_flows; f++)
            if (now[f]) {
                done[f] = true;
                level[f] = least;
            }
    }
}

static double least_capacity(const problem *p, uint32_t f) {
    double least = INFINITY;
    for (uint32_t k = 0; k < p->flows[f].n_uses; k++)
        least = fmin(least, (double)p->capacity_q20[p->uses[f][k].link] * 0x1p-20);
    return least;
}

static void agree(const ds_share *s, const problem *p, const bool *active, uint64_t seed) {
    long double level[MAX_FLOWS];
    peel(p, active, level);
    for (uint32_t f = 0; f < p->n_flows; f++) {
        double got = rate(s, p, f);
        double off = fabs((double)(level[f] * p->flows[f].weight) - got);
        cr_assert(off <= 1e-12 * least_capacity(p, f), "seed %llu, flow %u: %.17g, not %.17Lg",
                  (unsigned long long)seed, f, got, level[f] * p->flows[f].weight);
    }
    for (uint32_t l = 0; l < p->n_links; l++) { /* exactly: no link carries more than it can */
        ds_u128 load = 0;
        for (uint32_t f = 0; f < p->n_flows; f++)
            for (uint32_t k = 0; k < p->flows[f].n_uses; k++)
                if (p->uses[f][k].link == l)
                    load += ds_share_level_q20(s, f) * p->flows[f].weight * p->uses[f][k].use_q32;
        cr_assert(load <= p->capacity_q20[l] << 32, "seed %llu: link %u is overfull",
                  (unsigned long long)seed, l);
    }
}

Test(share, random_flow_sets_equal_brute_force) {
    problem *p = malloc(sizeof *p);
    for (uint64_t seed = 0; seed < 500; seed++) {
        random_problem(seed, p);
        ds_share *s = start_all(p);
        agree(s, p, NULL, seed);
        ds_share_free(s);
    }
    free(p);
}

/* Starts and stops at random, several at once: each settling gives what a solution from nothing
 * gives, to the bit, and names exactly those whose level is another one. */
Test(share, changes_equal_solutions_from_nothing) {
    problem *p = malloc(sizeof *p);
    for (uint64_t seed = 1000; seed < 1060; seed++) {
        random_problem(seed, p);
        uint64_t at = 100000;
        bool active[MAX_FLOWS] = {false};
        ds_u128 before[MAX_FLOWS] = {0};
        ds_share *s = ds_share_new(p->capacity_q20, p->n_links, p->flows, p->n_flows);
        for (int step = 0; step < 40; step++) {
            for (uint64_t n = 1 + draw(seed, &at, 3); n > 0; n--) {
                uint32_t f = (uint32_t)draw(seed, &at, p->n_flows);
                if (active[f]) {
                    ds_share_stop(s, f);
                    before[f] = 0;
                } else {
                    ds_share_start(s, f);
                }
                active[f] = !active[f];
            }
            const uint32_t *changed;
            uint32_t n_changed = ds_share_settle(s, &changed);
            agree(s, p, active, seed);
            ds_share *fresh = ds_share_new(p->capacity_q20, p->n_links, p->flows, p->n_flows);
            for (uint32_t f = p->n_flows; f-- > 0;)
                if (active[f]) ds_share_start(fresh, f);
            const uint32_t *all;
            ds_share_settle(fresh, &all);
            bool told[MAX_FLOWS] = {false};
            for (uint32_t i = 0; i < n_changed; i++) told[changed[i]] = true;
            for (uint32_t f = 0; f < p->n_flows; f++) {
                ds_u128 now = ds_share_level_q20(s, f);
                cr_assert(now == ds_share_level_q20(fresh, f), "seed %llu, flow %u",
                          (unsigned long long)seed, f);
                cr_assert_eq(told[f], now != before[f], "seed %llu, flow %u",
                             (unsigned long long)seed, f);
                before[f] = now;
            }
            ds_share_free(fresh);
        }
        ds_share_free(s);
    }
    free(p);
}

/* 30 pairs of flows, each pair on a link of its own: one that ends is looked at with its partner.
 */
Test(share, only_the_component_is_solved_again) {
    problem p = {0};
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t link = LINK(&p, 10);
        use(&p, add_flow(&p, 1), link, ONE);
        use(&p, add_flow(&p, 1), link, ONE);
    }
    ds_share *s = start_all(&p);
    const uint32_t *changed;
    ds_share_stop(s, 10);
    cr_expect_eq(ds_share_settle(s, &changed), 1);
    cr_expect_eq(changed[0], 11);
    cr_expect_eq(ds_share_n_solved(s), 1);
    ds_share_start(s, 10);
    cr_expect_eq(ds_share_settle(s, &changed), 2);
    cr_expect_eq(ds_share_n_solved(s), 2);
    ds_share_free(s);
}
