/* Sends against SimGrid's max-min fluid network: the same links, routes, sizes and starts; ends
 * within 0.1 %. Built only where libsimgrid is installed (Debian: libsimgrid-dev, 3.32).
 *
 * SimGrid's model is CM02 without its TCP terms: network/TCP-gamma:0, network/crosstraffic:0. It
 * shares links in proportion to 1 / route latency, so in the first test all routes of a platform
 * have the same latency, and in the second our flows have that weight.
 *
 * A platform is a random tree of switches, each direction of each link with a bandwidth of its own,
 * so each route is the only one. SimGrid runs once a process: all platforms are parts of one that
 * no link joins. What starts a transfer is compute, which only we simulate; SimGrid's senders sleep
 * until then. Starts are drawn in ns, so that no two coincide: where two waits ended at one
 * instant, SimGrid 3.32 was seen to let 651 MB/s through a link of 639. */
#include "ir/base/rng.h"
#include "sim/net/net.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xbt/config.h>

#define PLATFORMS 50
#define MAX_HOSTS 10
#define MAX_FLOWS 24

typedef struct flow {
    uint32_t platform, source, target; /* hosts */
    int64_t elements;                  /* f32 */
    int64_t start_ps, end_ps;          /* ours */
    int64_t wait_ps;
    double simgrid_s;
} flow;

typedef struct platform {
    uint32_t n_hosts, n_switches, n_flows;
    uint32_t parent[8];     /* of switches */
    uint32_t at[MAX_HOSTS]; /* switch of a host */
    uint32_t weight[MAX_HOSTS];
    flow flows[MAX_FLOWS];
} platform;

static uint64_t draw(uint64_t seed, uint64_t *at, uint64_t n) {
    return ds_rng_at(seed, 17, (*at)++, 0) % n;
}

/* ---- our side ---- */

/* Latency is on the way out of a host alone, 840 us / weight: equal for all, or by host. */
static void put_topology(platform *p, uint64_t seed, uint64_t *at, ds_buf *text) {
    ds_buf_put(text, "dir 1\ntopology @t {\n");
    ds_buf_printf(text, "  device d[%u] : \"A100-SXM4-80GB\"\n  switch s[%u]\n", p->n_hosts,
                  p->n_switches);
    for (uint32_t i = 1; i < p->n_switches; i++)
        for (int up = 0; up < 2; up++)
            ds_buf_printf(text, "  link s[%u] -> s[%u] : %llu MB/s, 0 us\n", up ? i : p->parent[i],
                          up ? p->parent[i] : i, (unsigned long long)(500 + draw(seed, at, 20000)));
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        ds_buf_printf(text, "  link d[%u] -> s[%u] : %llu MB/s, %u us\n", h, p->at[h],
                      (unsigned long long)(500 + draw(seed, at, 20000)), 840 / p->weight[h]);
        ds_buf_printf(text, "  link s[%u] -> d[%u] : %llu MB/s, 0 us\n", p->at[h], h,
                      (unsigned long long)(500 + draw(seed, at, 20000)));
    }
    ds_buf_put(text, "}\n");
}

static void random_platform(uint64_t seed, bool weighted, platform *p, ds_buf *text) {
    uint64_t at = 0;
    *p = (platform){.n_hosts = 3 + (uint32_t)draw(seed, &at, MAX_HOSTS - 2),
                    .n_switches = 1 + (uint32_t)draw(seed, &at, 6)};
    for (uint32_t i = 1; i < p->n_switches; i++) p->parent[i] = (uint32_t)draw(seed, &at, i);
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        p->at[h] = (uint32_t)draw(seed, &at, p->n_switches);
        p->weight[h] = weighted ? 1 + (uint32_t)draw(seed, &at, 8) : 1;
    }
    put_topology(p, seed, &at, text);
    uint32_t wanted = 2 + (uint32_t)draw(seed, &at, MAX_FLOWS - 2);
    for (uint32_t i = 0; i < wanted; i++) {
        flow f = {.source = (uint32_t)draw(seed, &at, p->n_hosts),
                  .target = (uint32_t)draw(seed, &at, p->n_hosts),
                  .elements = (int64_t)(100000 + draw(seed, &at, 5000000))};
        bool again = f.source == f.target; /* one flow a pair: a pair is a stream */
        for (uint32_t k = 0; k < p->n_flows; k++)
            again |= p->flows[k].source == f.source && p->flows[k].target == f.target;
        if (!again) p->flows[p->n_flows++] = f;
    }
    ds_buf_put(text, "func @f(");
    for (uint32_t i = 0; i < p->n_flows; i++)
        ds_buf_printf(text, "%s%%x%u: f32[%lld] on @t.d[%u]", i ? ", " : "", i,
                      (long long)p->flows[i].elements, p->flows[i].source);
    ds_buf_put(text, ") {\n");
    for (uint32_t i = 0; i < p->n_flows; i++)
        ds_buf_printf(text, "  %%h%u = relu(%%x%u) {cost = %llu ns}\n", i, i,
                      (unsigned long long)(1 + draw(seed, &at, 2000000)));
    for (uint32_t i = 0; i < p->n_flows; i++)
        ds_buf_printf(text, "  %%y%u = send(%%h%u) to @t.d[%u]\n", i, i, p->flows[i].target);
    ds_buf_put(text, "  return\n}\nscenario { program = @f }\n");
}

static const ds_route *route_of(const sim_case *c, const flow *f) {
    const ds_route *route;
    ds_error err;
    cr_assert_eq(ds_topo_route(c->result->plan->topo, f->source, f->target, &route, &err), DS_OK);
    return route;
}

/* ---- SimGrid's side ---- */

/* A platform file: all hosts, then all links, then all routes. */
typedef struct xml {
    ds_buf hosts, links, routes;
} xml;

static void put_platform(xml *x, uint32_t number, const platform *p, const sim_case *c) {
    const ds_topo *topo = c->result->plan->topo;
    for (uint32_t h = 0; h < p->n_hosts; h++)
        ds_buf_printf(&x->hosts, "<host id=\"%u_%u\" speed=\"1Gf\"/>\n", number, h);
    for (uint32_t l = 0; l < ds_topo_n_links(topo); l++) {
        const ds_topo_link *link = ds_topo_link_at(topo, l);
        ds_buf_printf(&x->links, "<link id=\"%u_l%u\" bandwidth=\"%lldBps\" latency=\"%.12fs\"/>\n",
                      number, l, (long long)link->bytes_per_s, (double)link->latency_ps * 1e-12);
    }
    for (uint32_t i = 0; i < p->n_flows; i++) {
        const ds_route *route = route_of(c, &p->flows[i]);
        ds_buf_printf(&x->routes, "<route src=\"%u_%u\" dst=\"%u_%u\" symmetrical=\"NO\">", number,
                      p->flows[i].source, number, p->flows[i].target);
        for (uint32_t k = 0; k < route->n_links; k++)
            ds_buf_printf(&x->routes, "<link_ctn id=\"%u_l%u\"/>", number, route->links[k]);
        ds_buf_put(&x->routes, "</route>\n");
    }
}

#define PORTS 64                      /* of the switch */
static flow *of_actor[PORTS * PORTS]; /* actors are told a number */
static uint32_t n_actors;

static void sender(int argc, char **argv) {
    (void)argc;
    const flow *f = of_actor[atoi(argv[1])];
    sg_actor_sleep_for((double)f->start_ps * 1e-12);
    sg_mailbox_put(sg_mailbox_by_name(argv[1]), argv[1], (long)(f->elements * 4));
}

static void receiver(int argc, char **argv) {
    (void)argc;
    (void)sg_mailbox_get(sg_mailbox_by_name(argv[1]));
    of_actor[atoi(argv[1])]->simgrid_s = simgrid_get_clock();
}

static void add_actors(uint32_t number, flow *f) {
    char name[16], from[32], to[32];
    snprintf(name, sizeof name, "%u", n_actors);
    snprintf(from, sizeof from, "%u_%u", number, f->source);
    snprintf(to, sizeof to, "%u_%u", number, f->target);
    cr_assert(n_actors < sizeof of_actor / sizeof *of_actor);
    of_actor[n_actors++] = f;
    char *args[] = {name, name, NULL};
    sg_actor_create(name, sg_host_by_name(from), sender, 2, args);
    sg_actor_create(name, sg_host_by_name(to), receiver, 2, args);
}

/* Starts SimGrid with the platform, and frees the text. */
static void load(xml *x) {
    int argc = 5;
    char *argv[] = {"test_simgrid",
                    "--cfg=network/model:CM02",
                    "--cfg=network/TCP-gamma:0",
                    "--cfg=network/crosstraffic:0",
                    "--log=root.thres:error",
                    NULL};
    simgrid_init(&argc, argv);
    char folder[] = "/tmp/distsim-simgrid-XXXXXX", path[64];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/platform.xml", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fprintf(file,
            "<?xml version='1.0'?>\n"
            "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
            "<platform version=\"4.1\">\n<zone id=\"all\" routing=\"Full\">\n%s%s%s"
            "</zone>\n</platform>\n",
            x->hosts.text, x->links.text, x->routes.text);
    fclose(file);
    simgrid_load_platform(path);
    unlink(path);
    rmdir(folder);
    ds_buf_deinit(&x->hosts);
    ds_buf_deinit(&x->links);
    ds_buf_deinit(&x->routes);
}

static void check_ends(const platform *all, const char *what) {
    double worst = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < PLATFORMS; i++)
        for (uint32_t k = 0; k < all[i].n_flows; k++, n++) {
            const flow *f = &all[i].flows[k];
            double ours = (double)f->end_ps * 1e-12, off = fabs(ours / f->simgrid_s - 1);
            cr_expect(off <= 1e-3, "%s, platform %u, flow %u: %.9f s, SimGrid %.9f s", what, i, k,
                      ours, f->simgrid_s);
            if (!(off <= worst)) worst = off;
        }
    cr_log_info("%s: %u flows, at most %.2g off", what, n, worst);
}

/* ---- the tests ---- */

/* Ends by the whole simulator: text, routes, plan, engine. */
static void run_ours(platform *p, sim_case *c) {
    for (uint32_t i = 0; i < p->n_flows; i++) {
        char device[16], name[16];
        snprintf(device, sizeof device, "d[%u]", p->flows[i].target);
        snprintf(name, sizeof name, "/y%u", i);
        uint32_t task = sim_task(c, device, name);
        cr_assert_neq(task, UINT32_MAX);
        p->flows[i].start_ps = c->result->run.start_ps[task];
        p->flows[i].end_ps = c->result->run.end_ps[task];
        p->flows[i].wait_ps = route_of(c, &p->flows[i])->latency_ps;
    }
}

/* Ends with our flows weighted by 1 / latency, from the starts of the simulator: the network alone,
 * since a program's sends all have weight 1. */
static void run_weighted(platform *p, const sim_case *c) {
    const ds_topo *topo = c->result->plan->topo;
    uint32_t n_links = ds_topo_n_links(topo);
    ds_u128 *capacity = ds_xcalloc(n_links, sizeof *capacity);
    for (uint32_t l = 0; l < n_links; l++)
        capacity[l] = (ds_u128)ds_topo_link_at(topo, l)->bytes_per_s << DS_RATE_BITS;
    ds_flow *flows = ds_xcalloc(p->n_flows, sizeof *flows);
    static ds_link_use uses[MAX_FLOWS][16];
    for (uint32_t i = 0; i < p->n_flows; i++) {
        const ds_route *route = route_of(c, &p->flows[i]);
        for (uint32_t k = 0; k < route->n_links; k++)
            uses[i][k] = (ds_link_use){route->links[k], UINT64_C(1) << 32};
        flows[i].share = (ds_share_flow){.uses = uses[i],
                                         .n_uses = route->n_links,
                                         .weight = p->weight[p->flows[i].source],
                                         .cap_q20 = DS_NO_CAP};
        flows[i].work = ((ds_u128)(uint64_t)p->flows[i].elements << 34) * DS_WORK_PER_BYTE_Q32;
    }
    ds_net *net = ds_net_new(capacity, n_links, flows, p->n_flows, p->n_flows);
    bool started[MAX_FLOWS] = {false};
    int64_t now = 0;
    for (;;) {
        int64_t next = ds_net_next_ps(net, now);
        uint32_t starts = UINT32_MAX;
        for (uint32_t i = 0; i < p->n_flows; i++) {
            int64_t at = p->flows[i].start_ps + p->flows[i].wait_ps;
            if (started[i] || at > next || (starts != UINT32_MAX && at == next)) continue;
            next = at;
            starts = i;
        }
        if (next == INT64_MAX) break;
        now = next;
        if (starts != UINT32_MAX) {
            started[starts] = true;
            ds_net_flow(net, starts, starts, starts, now);
        } else {
            p->flows[ds_net_pop(net)].end_ps = now;
        }
    }
    ds_net_free(net);
    free(flows);
    free(capacity);
}

static void compare(bool weighted, const char *what) {
    platform *all = ds_xcalloc(PLATFORMS, sizeof *all);
    xml x = {0};
    for (uint32_t i = 0; i < PLATFORMS; i++) {
        ds_buf text = {0};
        sim_case c;
        random_platform((weighted ? 1000 : 0) + i, weighted, &all[i], &text);
        sim_run_text(&c, text.text, NULL, false);
        cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text.text);
        run_ours(&all[i], &c);
        if (weighted) run_weighted(&all[i], &c);
        put_platform(&x, i, &all[i], &c);
        sim_free(&c);
        ds_buf_deinit(&text);
    }
    load(&x);
    for (uint32_t i = 0; i < PLATFORMS; i++)
        for (uint32_t k = 0; k < all[i].n_flows; k++) add_actors(i, &all[i].flows[k]);
    simgrid_run();
    check_ends(all, what);
    free(all);
}

Test(simgrid, random_platforms_of_equal_latency) {
    compare(false, "equal latencies");
}

Test(simgrid, random_platforms_with_weights_of_one_over_latency) {
    compare(true, "weights");
}

/* 1 GiB a port, 64 ports of 50 GiB/s and 250 ns: each pair a flow there, one collective here. For
 * 256 ports, where SimGrid takes 19.922 ms, tests/sim/net/test_contention.c has its number. */
static double all_to_all_ours(void) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\n"
             "topology @t {\n  device d[%d] : \"A100-SXM4-80GB\"\n  switch s\n"
             "  link d[i] -- s : 53.6870912 GB/s, 250 ns for i in 0..%d\n}\n"
             "mesh @m = [ep = %d] on @t\n"
             "func @f(%%x: f32[4096, %d@ep] on @m) {\n"
             "  %%a = all_to_all(%%x) over ep dim 1 -> 0\n  return\n}\n"
             "scenario { program = @f }\n",
             PORTS, PORTS, PORTS, 65536 * PORTS);
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    double seconds = (double)c.result->run.step_ps * 1e-12;
    sim_free(&c);
    return seconds;
}

static void put_switch(xml *x) {
    for (int i = 0; i < PORTS; i++) {
        ds_buf_printf(&x->hosts, "<host id=\"0_%d\" speed=\"1Gf\"/>\n", i);
        for (int in = 0; in < 2; in++)
            ds_buf_printf(&x->links,
                          "<link id=\"%c%d\" bandwidth=\"53687091200Bps\" latency=\"250ns\"/>\n",
                          in ? 'i' : 'o', i);
    }
    for (int i = 0; i < PORTS; i++)
        for (int k = 0; k < PORTS; k++)
            if (i != k)
                ds_buf_printf(&x->routes,
                              "<route src=\"0_%d\" dst=\"0_%d\" symmetrical=\"NO\">"
                              "<link_ctn id=\"o%d\"/><link_ctn id=\"i%d\"/></route>\n",
                              i, k, i, k);
}

Test(simgrid, all_to_all_through_a_switch) {
    xml x = {0};
    put_switch(&x);
    load(&x);
    static flow flows[PORTS * PORTS];
    for (uint32_t i = 0; i < PORTS * PORTS; i++) {
        flows[i] = (flow){
            .source = i / PORTS, .target = i % PORTS, .elements = (INT64_C(1) << 30) / PORTS / 4};
        if (flows[i].source != flows[i].target) add_actors(0, &flows[i]);
    }
    simgrid_run();
    double ours = all_to_all_ours(), theirs = simgrid_get_clock();
    cr_expect(fabs(ours / theirs - 1) <= 1e-3, "%.9f s, SimGrid %.9f s", ours, theirs);
    cr_log_info("all_to_all: %.9f s, SimGrid %.9f s", ours, theirs);
}
