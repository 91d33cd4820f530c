/* Host memory in time and bytes: transfers over the link to the nearest host, what a device keeps
 * there, and what is left on the device.
 *
 * An MLP of L layers on one device. A layer has two square weights of W bytes (16 bits) and keeps
 * three values of S bytes: its input, a product, what gelu makes of it. */
#include "ir/base/units.h"
#include "sim/coll/coll.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000000) /* picoseconds */
#define L  INT64_C(8)
#define W  (INT64_C(2048) * 2048 * 2)
#define S  (INT64_C(16384) * 2048 * 2)

static const char mlp[] = "dir 1\n"
                          "param layers = 8, width = 2048, batch = 16384, k = 1, speed = 2000\n"
                          "topology @box {\n  device gpu : \"A100-SXM4-80GB\"\n  host cpu\n"
                          "  link gpu -- cpu : speed GB/s, 1 us\n}\n"
                          "func @mlp(%%x: f16[batch, width]) -> f16[batch, width] {\n"
                          "  %%y = for l in 0..layers carry (%%h: f16[batch, width] = %%x) {\n"
                          "    weight %%u : f16[width, width]\n"
                          "    weight %%v : f16[width, width]\n"
                          "    %%a = matmul(%%h, %%u)\n"
                          "    %%b = gelu(%%a)\n"
                          "    %%c = matmul(%%b, %%v)\n"
                          "    yield %%c\n"
                          "  }\n"
                          "  return %%y\n"
                          "}\n"
                          "scenario {\n  model = @mlp\n  on = @box\n"
                          "  train { loss = mse, optimizer = adam }\n"
                          "  strategy { offload = %s, prefetch = k }\n}\n";

static void simulate(sim_case *c, const char *offload, int prefetch, int speed) {
    char text[2048], settings[64];
    snprintf(text, sizeof text, mlp, offload);
    snprintf(settings, sizeof settings, "k=%d speed=%d", prefetch, speed);
    sim_run_text(c, text, settings, false);
    cr_assert_eq(c->status, DS_OK, "%s: %s", offload, c->err.message);
}

typedef struct moved {
    int64_t n, bytes, ps; /* ps: while the link is the transfer's alone */
} moved;

static moved moved_by(const sim_case *c, ds_opcode code) {
    const ds_plan *plan = c->result->plan;
    moved all = {0};
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        const ds_record *r = ds_plan_task_record(plan, t);
        if (!r->op || r->op->code != code) continue;
        all.n++;
        all.bytes += plan->activities[plan->task_activity[t]].group->bytes;
        all.ps += plan->activities[plan->task_activity[t]].group->ps;
    }
    return all;
}

/* A transfer takes the latency, and its bytes at the link's speed. */
static void expect_moved(const sim_case *c, ds_opcode code, int64_t n, int64_t bytes, int speed) {
    moved all = moved_by(c, code);
    int64_t ps = n * US + bytes * 1000 / speed; /* GB/s: 1000 / speed ps a byte */
    cr_expect_eq(all.n, n, "%s: %lld", ds_op_name(code), (long long)all.n);
    cr_expect_eq(all.bytes, bytes, "%s: %lld bytes", ds_op_name(code), (long long)all.bytes);
    cr_expect(all.ps >= ps && all.ps <= ps + n, "%s: %lld ps, not %lld", ds_op_name(code),
              (long long)all.ps, (long long)ps);
}

static int64_t most(const sim_case *c, int category) {
    return c->result->mem.classes[0].most_by_category[category];
}

/* ---- what is moved, and what stays ---- */

Test(offload, activations) {
    sim_case none;
    simulate(&none, "none", 1, 2000);
    /* at the end of the forward pass: three values of each layer, and the last result; the loss */
    cr_expect_eq(most(&none, DS_CAT_ACTIVATION), (3 * L + 1) * S + 2);
    cr_expect_eq(ds_mem_host_peak(&none.result->mem.classes[0]), 0);
    cr_expect_eq(none.result->n_hosts, 0);
    for (int k = 0; k <= 3; k++) {
        sim_case c;
        simulate(&c, "activations", k, 2000);
        expect_moved(&c, DS_OP_OFFLOAD, 3 * L, 3 * L * S, 2000);
        expect_moved(&c, DS_OP_RELOAD, 3 * L, 3 * L * S, 2000);
        /* k + 1 turns of three values, and three that a turn of the backward pass works with */
        cr_expect_eq(most(&c, DS_CAT_ACTIVATION), 3 * (k + 2) * S + 2, "prefetch %d: %g S", k,
                     (double)most(&c, DS_CAT_ACTIVATION) / (double)S);
        cr_expect_eq(ds_mem_host_peak(&c.result->mem.classes[0]), 3 * L * S);
        /* At both peaks: the last result is there (S); of what is offloaded the device has 3 k + 5
         * values, and beside its input a copy of it. Without offloading the
         * peak comes when one gradient has been made, else when all turns but k + 1 have made
         * theirs. */
        int64_t drop = none.result->metrics.peak_bytes - c.result->metrics.peak_bytes;
        cr_expect_eq(drop, (3 * L + 1) * S - (3 * k + 5 + 1) * S + W - (L - 1 - k) * 2 * W,
                     "prefetch %d: %lld", k, (long long)drop);
        cr_expect_eq(c.result->run.step_ps, none.result->run.step_ps, "a fast link is hidden");
        sim_free(&c);
    }
    sim_free(&none);
}

Test(offload, optimizer) {
    sim_case none;
    simulate(&none, "none", 1, 2000);
    for (int k = 0; k <= 3; k++) {
        sim_case c;
        simulate(&c, "optimizer", k, 2000);
        expect_moved(&c, DS_OP_OFFLOAD, 4 * L, 4 * L * W, 2000); /* m and v of two weights */
        expect_moved(&c, DS_OP_RELOAD, 4 * L, 4 * L * W, 2000);
        cr_expect_eq(most(&none, DS_CAT_OPTIMIZER), 4 * L * W);
        cr_expect_eq(most(&c, DS_CAT_OPTIMIZER), (k + 1) * 4 * W, "prefetch %d", k);
        cr_expect_eq(ds_mem_host_peak(&c.result->mem.classes[0]), 4 * L * W,
                     "new states lie where the old ones lay");
        cr_expect_eq(none.result->metrics.peak_bytes - c.result->metrics.peak_bytes, 4 * L * W);
        sim_free(&c);
    }
    sim_free(&none);
}

Test(offload, weights) {
    for (int k = 0; k <= 3; k++) {
        sim_case c;
        simulate(&c, "weights", k, 2000);
        expect_moved(&c, DS_OP_OFFLOAD, 2 * L, 2 * L * W, 2000);
        expect_moved(&c, DS_OP_RELOAD, 6 * L, 6 * L * W, 2000); /* forward, backward, update */
        cr_expect_eq(most(&c, DS_CAT_BUFFER), (k + 1) * 2 * W, "prefetch %d", k);
        cr_expect_eq(most(&c, DS_CAT_WEIGHT), 0);
        cr_expect_eq(ds_mem_host_peak(&c.result->mem.classes[0]), 2 * L * W);
        sim_free(&c);
    }
}

static void simulate_part(sim_case *c, const char *offload) {
    simulate(c, offload, 1, 2000);
}

/* Of L equal layers round(f L) have their states at the host: m and v of two weights each. */
Test(offload, a_fraction_of_the_states) {
    static const struct {
        const char *knobs;
        int64_t layers;
    } cases[] = {{"optimizer, offload_fraction = 1", 8},
                 {"optimizer, offload_fraction = 0.5", 4},
                 {"optimizer, offload_fraction = 0.3", 2},
                 {"optimizer, offload_fraction = 0.95", 8},
                 {"optimizer, offload_fraction = 0.125", 1}};
    sim_case none;
    simulate_part(&none, "none");
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = cases[i].layers;
        sim_case c;
        simulate_part(&c, cases[i].knobs);
        expect_moved(&c, DS_OP_OFFLOAD, 4 * n, 4 * n * W, 2000);
        expect_moved(&c, DS_OP_RELOAD, 4 * n, 4 * n * W, 2000);
        cr_expect_eq(ds_mem_host_peak(&c.result->mem.classes[0]), 4 * n * W, "%s", cases[i].knobs);
        cr_expect_eq(none.result->metrics.peak_bytes - c.result->metrics.peak_bytes, 4 * n * W,
                     "%s", cases[i].knobs);
        sim_free(&c);
    }
    sim_free(&none);
}

/* The first layers' values go to the host; the others' stay. */
Test(offload, activations_of_the_first_layers) {
    for (int64_t n = 1; n <= L; n++) {
        char knobs[64];
        sim_case c;
        snprintf(knobs, sizeof knobs, "activations, offload_layers = %d", (int)n);
        simulate_part(&c, knobs);
        expect_moved(&c, DS_OP_OFFLOAD, 3 * n, 3 * n * S, 2000);
        expect_moved(&c, DS_OP_RELOAD, 3 * n, 3 * n * S, 2000);
        cr_expect_eq(ds_mem_host_peak(&c.result->mem.classes[0]), 3 * n * S, "%s", knobs);
        /* at the end of the forward pass: three values of the other layers, the last result, and
         * what the last layers sent have not sent yet: at most two turns', prefetch is 1 */
        int64_t kept = most(&c, DS_CAT_ACTIVATION) - (3 * (L - n) + 1) * S;
        cr_expect(kept >= 0 && kept <= 9 * S, "%s: %g S", knobs, (double)kept / (double)S);
        sim_free(&c);
    }
}

/* Llama 2 13B: embedding, head and last norm come first, then 19 of 40 layers, to half a layer of
 * 12 P / 2 bytes. */
Test(offload, a_fraction_counts_what_is_in_no_layer) {
    static const char llama[] =
        "dir 1\nimport \"topologies/dgx-a100.dir\"\n"
        "import \"models/llama.dir\" as m with layers = 40, hidden = 5120, heads = 40, "
        "kv_heads = 40, ffn = 13824, batch = 1\n"
        "scenario {\n  model = @m.llama\n  on = @dgx_a100\n"
        "  train { optimizer = adamw, dtype = bf16 }\n"
        "  strategy { offload = optimizer, offload_fraction = 0.5 }\n}\n";
    const int64_t layer = 4 * 5120ll * 5120 + 3 * 5120ll * 13824 + 2 * 5120,
                  rest = 2 * 32000ll * 5120 + 5120, all = 40 * layer + rest;
    sim_case c;
    sim_run_text(&c, llama, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    moved out = moved_by(&c, DS_OP_OFFLOAD);
    cr_expect_eq(out.bytes, 12 * (rest + 19 * layer), "%lld", (long long)out.bytes);
    cr_expect_leq(llabs(out.bytes - 6 * all), 6 * layer);
    sim_free(&c);
}

/* A link that is too slow sets the pace, and memory is bounded all the same. */
Test(offload, a_slow_link_sets_the_pace) {
    sim_case fast;
    simulate(&fast, "activations", 1, 2000);
    for (int k = 0; k <= 2; k++) {
        sim_case c;
        simulate(&c, "activations", k, 16);
        int64_t link_ps = moved_by(&c, DS_OP_OFFLOAD).ps + moved_by(&c, DS_OP_RELOAD).ps;
        cr_expect_geq(c.result->run.step_ps, link_ps);
        if (k) /* one turn's work, of each pass, and the updates are not beside the link */
            cr_expect_leq(c.result->run.step_ps,
                          link_ps + 2 * fast.result->run.step_ps / L + fast.result->run.step_ps / 4,
                          "prefetch %d: %lld, %lld", k, (long long)c.result->run.step_ps,
                          (long long)link_ps);
        cr_expect_leq(most(&c, DS_CAT_ACTIVATION), 3 * (k + 2) * S + 2, "prefetch %d: %g S", k,
                      (double)most(&c, DS_CAT_ACTIVATION) / (double)S);
        sim_free(&c);
    }
    sim_free(&fast);
}

/* Each way between a device and its host has a stream: they run beside each other and compute. */
Test(offload, both_ways_at_once) {
    static const char text[] = "dir 1\n"
                               "topology @box {\n  device gpu : \"A100-SXM4-80GB\"\n  host cpu\n"
                               "  link gpu -- cpu : 10 GB/s, 3 us\n}\n"
                               "func @f(%x: f32[1000], %h: f32[1000] host) -> (f32[1000], "
                               "f32[1000] host, f32[1000] host,\n"
                               "    f32[1000]) {\n"
                               "  %a = offload(%x)\n  %y = reload(%h)\n  %b = offload(%x)\n"
                               "  %z = gelu(%x) {cost = 3 us}\n"
                               "  return %y, %a, %b, %z\n}\n"
                               "scenario { program = @f, on = @box }\n";
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_run *run = &c.result->run;
    int64_t one = 3 * US + 400 * 1000; /* 4,000 bytes at 10 GB/s */
    cr_expect_eq(run->start_ps[sim_task(&c, NULL, "/y")], 0);
    cr_expect_eq(run->start_ps[sim_task(&c, NULL, "/a")], 0);
    cr_expect_eq(run->start_ps[sim_task(&c, NULL, "/z")], 0);
    cr_expect_eq(run->end_ps[sim_task(&c, NULL, "/y")], one);
    cr_expect_eq(run->start_ps[sim_task(&c, NULL, "/b")], one, "one after the other on a stream");
    cr_expect_eq(run->step_ps, 2 * one);
    cr_expect_eq(ds_mem_host_peak(&c.result->mem.classes[0]), 3 * 4000);
    cr_expect_eq(c.result->metrics.peak_bytes, 3 * 4000, "x, y, z");
    sim_free(&c);
}

/* 13,015,864,320 parameters (models/llama.dir): 12 bytes of states each are on the host, whatever
 * is done with the rest; activations where they are asked for. */
Test(offload, what_does_not_fit_fits) {
    const int64_t states = INT64_C(12) * 13015864320;
    sim_case c;
    sim_run_file(&c, "scenarios/offload.dir", NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect(c.result->metrics.fits);
    moved out = moved_by(&c, DS_OP_OFFLOAD), in = moved_by(&c, DS_OP_RELOAD);
    cr_expect_eq(out.bytes, in.bytes);
    cr_assert_eq(c.result->n_hosts, 1);
    cr_expect_eq(c.result->hosts[0].peak_bytes, out.bytes, "all that goes there is there at once");
    int64_t layers = out.bytes - states;
    sim_free(&c);

    sim_run_file(&c, "scenarios/offload.dir", "also=weights", false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect(!c.result->metrics.fits);
    cr_expect_geq(most(&c, DS_CAT_ACTIVATION), layers);
    cr_expect_eq(moved_by(&c, DS_OP_OFFLOAD).bytes, states + states / 6);
    /* forward, backward but for the table of embeddings, and for the update */
    cr_expect_eq(moved_by(&c, DS_OP_RELOAD).bytes - states, 3 * (states / 6) - 2 * 32000 * 5120);
    sim_free(&c);
}

/* ---- hosts ---- */

static const char dgx[] =
    "dir 1\nimport \"topologies/dgx-a100.dir\"\nmesh @m = [dp = 8] on @dgx_a100\n"
    "func @f(%x: f16[80@dp, 1000] on @m) -> f16[80@dp, 1000] on @m host {\n"
    "  %a = offload(%x)\n  return %a\n}\n"
    "scenario { program = @f }\n";

/* Four GPUs a CPU; the way leads through a PCIe switch: 31 GB/s, twice 500 ns. */
Test(offload, every_device_has_its_nearest_host) {
    for (int unfold = 0; unfold <= 1; unfold++) {
        sim_case c;
        sim_run_text(&c, dgx, NULL, unfold);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        const ds_result *r = c.result;
        cr_assert_eq(r->n_hosts, 2);
        for (uint32_t h = 0; h < 2; h++) {
            char name[16];
            snprintf(name, sizeof name, "cpu[%u]", h);
            cr_expect_str_eq(ds_topo_vertex_path(r->plan->topo, r->hosts[h].vertex), name);
            cr_expect_eq(r->hosts[h].n_devices, 4);
            cr_expect_eq(r->hosts[h].peak_bytes, 4 * 10 * 1000 * 2);
        }
        for (uint32_t d = 0; d < 8; d++)
            cr_expect_eq(r->plan->host_of[d], r->hosts[d / 4].vertex, "gpu[%u]", d);
        if (!unfold) {
            const ds_group *g = r->plan->activities[0].group;
            cr_expect_eq(g->ps, US + (20000 * 1000 + 15) / 31, "%lld", (long long)g->ps);
        }
        sim_free(&c);
    }
}

/* Equally near ones: the first declared. A host behind another device is no host. */
Test(offload, ties_and_walls) {
    static const char text[] =
        "dir 1\ntopology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n  host far\n  host near[2]\n"
        "  link gpu[0] -- far : 100 GB/s, 3 us\n"
        "  link gpu[0] -- near[i] : 1 GB/s, 1 us for i in 0..2\n"
        "  link gpu[0] -- gpu[1] : 1 GB/s, 1 us\n}\n"
        "func @f(%x: f32[8] on @box.gpu[0]) -> f32[8] on @box.gpu[0] host {\n"
        "  %a = offload(%x)\n  return %a\n}\n"
        "scenario { program = @f }\n";
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_plan *plan = c.result->plan;
    cr_expect_str_eq(ds_topo_vertex_path(plan->topo, plan->host_of[0]), "near[0]");
    cr_expect_eq(plan->host_of[1], DS_NONE);
    sim_free(&c);
}

static void expect_refusal(const char *links, const char *why) {
    char text[512];
    sim_case c;
    snprintf(text, sizeof text,
             "dir 1\ntopology @box {\n  device gpu : \"A100-SXM4-80GB\"\n  %s\n}\n"
             "func @f(%%x: f32[8] on @box.gpu) -> f32[8] on @box.gpu {\n"
             "  %%a = offload(%%x)\n  %%b = reload(%%a)\n  return %%b\n}\n"
             "scenario { program = @f }\n",
             links);
    sim_run_text(&c, text, NULL, false);
    cr_expect_eq(c.status, DS_ERR_UNREACHABLE, "%s: %s", links, c.err.message);
    cr_expect(strstr(c.err.message, why) != NULL, "%s", c.err.message);
    sim_free(&c);
}

Test(offload, without_a_host_there_is_a_reason) {
    expect_refusal("", "no host can be reached from gpu of topology @box");
    expect_refusal("host cpu", "no host can be reached from gpu");
    expect_refusal("host cpu\n  link cpu -> gpu : 1 GB/s, 1 us", "no host can be reached from gpu");
    expect_refusal("host cpu\n  link gpu -> cpu : 1 GB/s, 1 us", "no route from cpu to gpu");
}
