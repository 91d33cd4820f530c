/* An all_reduce across mesh slices, simulated: a group for each position, times by closed form, in
 * the place of its operands, folded as unfolded. And what pipelines use it for: the gradient of a
 * table that first and last stage hold, and of two copies of the weights. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* 10 GB/s and 1 us a hop: 2 us a route. */
#define STAR                                                                                       \
    "dir 1\nparam p = 2, d = 4\n"                                                                  \
    "topology @star {\n  device d[p * d] : \"A100-SXM4-80GB\"\n  switch s\n"                       \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..p * d\n}\n"                                      \
    "mesh @m = [pp = p, dp = d] on @star\n"
#define RUN    "scenario { program = @f }\n"
#define HOP_PS INT64_C(2000000)

/* 80,000,000 bytes on each device, 8 ms at 10 GB/s. */
#define LOCAL    INT64_C(80000000)
#define BYTES_PS INT64_C(8000000000)

static void simulate(sim_case *c, const char *text, const char *settings, bool unfold) {
    sim_run_text(c, text, settings, unfold);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

static int64_t step_ps(const char *text, const char *settings) {
    sim_case c;
    simulate(&c, text, settings, false);
    int64_t ps = c.result->run.step_ps;
    sim_free(&c);
    return ps;
}

/* ---- time ---- */

#define TWO(type)                                                                                  \
    "func @f(%a: f32[" type " on @m{pp=0}, %b: f32[" type " on @m{pp=1}) {\n"                      \
    "  %x, %y = all_reduce(%a, %b) across {algorithm = \"ring\"}\n  return\n}\n" RUN

/* 2 (n - 1) steps and 2 (n - 1)/n of the local bytes through every port, whatever the shards are
 * of.
 */
Test(across, a_ring_for_each_position) {
    int64_t want = 2 * HOP_PS + BYTES_PS;
    cr_expect_eq(step_ps(STAR TWO("20000000]"), NULL), want);
    cr_expect_eq(step_ps(STAR TWO("20000000] partial(dp)"), NULL), want);
    cr_expect_eq(step_ps(STAR TWO("80000000@dp]"), NULL), want);
    cr_expect_eq(step_ps(STAR TWO("20000000]"), "d=1"), want);
    cr_expect_eq(step_ps(STAR TWO("20000000]"), "d=16"), want);
}

Test(across, more_slices) {
    int64_t got =
        step_ps(STAR "func @f(%a: f32[20000000] on @m{pp=0}, %b: f32[20000000] on @m{pp=1}, "
                     "%c: f32[20000000] on @m{pp=2}, %e: f32[20000000] on @m{pp=3}) {\n"
                     "  %x, %y, %z, %w = all_reduce(%a, %b, %c, %e) across {algorithm = \"ring\"}\n"
                     "  return\n}\n" RUN,
                "p=4");
    cr_expect_eq(got, 6 * HOP_PS + BYTES_PS * 6 / 4, "%" PRId64, got);
}

/* Position i of the mesh's slices are devices i, i + 4 and i + 8. */
Test(across, who_meets) {
    sim_case c;
    simulate(&c,
             STAR "func @f(%a: f32[8] on @m{pp=0}, %b: f32[8] on @m{pp=1}, %c: f32[8] on @m{pp=2}) "
                  "{\n  %x, %y, %z = all_reduce(%c, %a, %b) across\n  return\n}\n" RUN,
             "p=3", true); /* folded, one group stands for its images */
    const ds_plan *plan = c.result->plan;
    const ds_record *r = plan->records.at[plan->insts.at[plan->insts.n - 1].record];
    cr_assert_eq(r->kind, DS_REC_COMM);
    cr_assert_eq(r->n_groups, 4u);
    for (uint32_t g = 0; g < 4; g++) {
        cr_assert_eq(r->groups[g].n_devices, 3u);
        for (uint32_t k = 0; k < 3; k++)
            cr_expect_eq(r->groups[g].devices[k], (k + 2) % 3 * 4 + g, "group %u", g);
    }
    sim_free(&c);
}

/* Two slices behind a switch each, one link between them: all four pairs send over it at once. */
Test(across, groups_share_links) {
    int64_t got =
        step_ps("dir 1\ntopology @t {\n  device d[8] : \"A100-SXM4-80GB\"\n  switch s[2]\n"
                "  link d[i] -- s[i / 4] : 10 GB/s, 1 us for i in 0..8\n"
                "  link s[0] -- s[1] : 10 GB/s, 1 us\n}\n"
                "mesh @m = [pp = 2, dp = 4] on @t\n" TWO("20000000]"),
                NULL);
    cr_expect_eq(got, 2 * INT64_C(3000000) + 4 * BYTES_PS, "%" PRId64, got);
}

/* ---- memory ---- */

#define SCALED                                                                                     \
    "func @f(%a: f32[20000000] on @m{pp=0}, %b: f32[20000000] on @m{pp=1}) -> (f32[20000000] on "  \
    "@m{pp=0}, f32[20000000] on @m{pp=1}) {\n"                                                     \
    "  %s = scale(%a) {factor = 2.0}\n  %t = scale(%b) {factor = 2.0}\n"
#define SUM "  %x, %y = all_reduce(%s, %t) across\n"

static void expect_peaks(const char *text, int64_t first, int64_t second) {
    sim_case c;
    simulate(&c, text, NULL, false);
    const ds_plan *plan = c.result->plan;
    cr_assert_eq(plan->n_classes, 2u);
    cr_expect_eq(c.result->mem.classes[plan->class_of[0]].peak_bytes, first, "first: %" PRId64,
                 c.result->mem.classes[plan->class_of[0]].peak_bytes);
    cr_expect_eq(c.result->mem.classes[plan->class_of[4]].peak_bytes, second, "second: %" PRId64,
                 c.result->mem.classes[plan->class_of[4]].peak_bytes);
    sim_free(&c);
}

/* The input, and one buffer for operand and result; but not where an operand is read again, and
 * never in the place of an input. Sent and added it took one more on each side. */
Test(across, in_the_place_of_the_operands) {
    expect_peaks(STAR SCALED SUM "  return %x, %y\n}\n" RUN, 2 * LOCAL, 2 * LOCAL);
    expect_peaks(STAR SCALED SUM "  %z = add(%x, %s)\n  return %z, %y\n}\n" RUN, 3 * LOCAL,
                 2 * LOCAL);
    expect_peaks(STAR "func @f(%a: f32[20000000] on @m{pp=0}, %b: f32[20000000] on @m{pp=1}) -> "
                      "(f32[20000000] on @m{pp=0}, f32[20000000] on @m{pp=1}) {\n"
                      "  %x, %y = all_reduce(%a, %b) across\n  return %x, %y\n}\n" RUN,
                 2 * LOCAL, 2 * LOCAL);
    expect_peaks(STAR SCALED "  %u = send(%s) to @m{pp=1}\n  %v = send(%t) to @m{pp=0}\n"
                             "  %x = add(%s, %v)\n  %y = add(%t, %u)\n  return %x, %y\n}\n" RUN,
                 3 * LOCAL, 3 * LOCAL);
}

/* ---- folding ---- */

/* 3 slices of dp x tp devices with work between sums, sums over axes beside sums across. */
#define FOLD                                                                                       \
    "dir 1\nparam d = 4, t = 2, odd = 1\n"                                                         \
    "topology @t {\n  device d[3 * d * t] : \"A100-SXM4-80GB\"\n  switch s[3]\n  switch spine\n"   \
    "  link d[i] -- s[i / (d * t)] : 10 GB/s, 1 us for i in 0..3 * d * t - 1\n"                    \
    "  link d[3 * d * t - 1] -- s[2] : 10 / odd * 1 GB/s, 1 us\n"                                  \
    "  link s[i] -- spine : 20 GB/s, 2 us for i in 0..3\n}\n"                                      \
    "mesh @m = [pp = 3, dp = d, tp = t] on @t\n"                                                   \
    "func @f(%a: f32[512@dp, 256] partial(tp) on @m{pp=0}, %b: f32[512@dp, 256] partial(tp) on "   \
    "@m{pp=1}, %c: f32[512@dp, 256] partial(tp) on @m{pp=2}, %w: f32[256, 256] on @m{pp=2}) -> "   \
    "(f32[512@dp, 256] on @m{pp=0}, f32[512@dp, 256] on @m{pp=1}, f32[512@dp, 256] on "            \
    "@m{pp=2}) {\n"                                                                                \
    "  %p, %q, %r = all_reduce(%a, %b, %c) across\n"                                               \
    "  %x = all_reduce(%p) over tp\n  %y = all_reduce(%q) over tp\n"                               \
    "  %z = all_reduce(%r) over tp\n  %v = matmul(%z, %w)\n"                                       \
    "  %k, %l = all_reduce(%x, %y) across\n  %n, %o = all_reduce(%l, %v) across\n"                 \
    "  return %k, %n, %o\n}\n" RUN

static void expect_folded(const char *settings, uint32_t n_classes) {
    sim_case f, u;
    simulate(&f, FOLD, settings, false);
    simulate(&u, FOLD, settings, true);
    const ds_plan *a = f.result->plan, *b = u.result->plan;
    cr_expect_eq(a->n_classes, n_classes, "%s: %u classes", settings, a->n_classes);
    cr_expect_eq(f.result->run.step_ps, u.result->run.step_ps, "%s", settings);
    for (uint32_t k = 0; k < b->n_classes; k++) {
        uint32_t cls = a->class_of[b->classes[k].device];
        cr_expect_eq(f.result->mem.classes[cls].peak_bytes, u.result->mem.classes[k].peak_bytes);
        cr_expect_eq(f.result->mem.classes[cls].peak_ps, u.result->mem.classes[k].peak_ps);
    }
    for (uint32_t i = 0; i < b->insts.n; i++) {
        const ds_record *ra = a->records.at[a->insts.at[i].record];
        const ds_record *rb = b->records.at[b->insts.at[i].record];
        if (rb->kind == DS_REC_INPUT) continue;
        for (uint32_t pos = 0; pos < rb->n_classes; pos++) {
            uint32_t cls = a->class_of[b->classes[rb->classes[pos]].device];
            uint32_t x = a->insts.at[i].first_task + ds_record_class_pos(ra, cls);
            uint32_t y = b->insts.at[i].first_task + pos;
            cr_expect_eq(f.result->run.start_ps[x], u.result->run.start_ps[y]);
            cr_expect_eq(f.result->run.end_ps[x], u.result->run.end_ps[y]);
        }
    }
    sim_free(&f);
    sim_free(&u);
}

/* A class a slice; one slow link makes its device's group, and who meets these, classes apart. */
Test(across, folded_as_unfolded) {
    expect_folded("d=4 t=2", 3);
    expect_folded("d=1 t=2", 3);
    expect_folded("d=8 t=4", 3);
    sim_case c;
    simulate(&c, FOLD, "d=4 t=2 odd=2", false);
    uint32_t n = c.result->plan->n_classes;
    sim_free(&c);
    cr_expect_gt(n, 3u);
    expect_folded("d=4 t=2 odd=2", n);
}

Test(across, tasks_do_not_depend_on_the_size_of_slices) {
    sim_case few, many;
    simulate(&few, STAR SCALED SUM "  return %x, %y\n}\n" RUN, "d=2", false);
    simulate(&many, STAR SCALED SUM "  return %x, %y\n}\n" RUN, "d=256", false);
    cr_expect_eq(few.result->plan->n_tasks, many.result->plan->n_tasks);
    cr_expect_eq(few.result->plan->n_activities, many.result->plan->n_activities);
    cr_expect_eq(few.result->run.step_ps, many.result->run.step_ps);
    sim_free(&few);
    sim_free(&many);
}

/* ---- pipelines ---- */

/* GPT whose table is nearly all of it: V h = 65536 · 64 numbers in f32, 16 MiB. */
#define TABLE INT64_C(16777216)
#define MODEL(strategy)                                                                            \
    "dir 1\nimport \"models/gpt.dir\" as g with layers = 4, hidden = 64, heads = 2, seq = 8, "     \
    "vocab = 65536, batch = 8, dropout = 0.0\n"                                                    \
    "topology @star {\n  device d[8] : \"A100-SXM4-80GB\"\n  switch s\n"                           \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..8\n}\n"                                          \
    "scenario {\n  model = @g.gpt\n  on = @star\n  train { optimizer = adam }\n"                   \
    "  strategy { pp = 2, microbatches = 4, " strategy " }\n}\n"

/* The instance of the only all_reduce across; DS_NONE: there are more, or none. */
static uint32_t the_sum(const ds_plan *plan) {
    uint32_t found = DS_NONE;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = plan->records.at[plan->insts.at[i].record];
        if (!r->op || !r->op->across) continue;
        if (found != DS_NONE) return DS_NONE;
        found = i;
    }
    return found;
}

/* What a class holds at a time, with what begins then. */
static int64_t held(const ds_mem_class *c, int64_t time_ps) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_events && c->events[i].time_ps <= time_ps; i++)
        bytes += c->events[i].delta_bytes;
    return bytes;
}

/* Both devices sum the table: two steps, and all of its bytes through each port (a ring of two).
 * When it begins stage 0 has made its last gradient: what it holds are weights, as many bytes of
 * gradients, twice as many of states, and inputs. Then updates let go of gradients; no second table
 * comes. */
static void expect_tied(const char *schedule) {
    char text[1024];
    sim_case c;
    snprintf(text, sizeof text, MODEL("schedule = %s"), schedule);
    simulate(&c, text, NULL, false);
    const ds_plan *plan = c.result->plan;
    uint32_t inst = the_sum(plan);
    cr_assert_neq(inst, DS_NONE);
    const ds_record *r = plan->records.at[plan->insts.at[inst].record];
    uint32_t cls = plan->class_of[0];
    uint32_t task = plan->insts.at[inst].first_task + ds_record_class_pos(r, cls);
    int64_t start = c.result->run.start_ps[task], end = c.result->run.end_ps[task];
    cr_expect_eq(r->groups[0].n_devices, 2u);
    cr_expect_eq(r->groups[0].bytes, TABLE);
    cr_expect_eq(end - start, 2 * HOP_PS + TABLE * 100, "%" PRId64, end - start);
    const ds_mem_class *mem = &c.result->mem.classes[cls];
    const int64_t *in = mem->input_by_category;
    cr_expect_geq(in[DS_CAT_WEIGHT], TABLE);
    cr_expect_eq(in[DS_CAT_OPTIMIZER], 2 * in[DS_CAT_WEIGHT]);
    cr_expect_eq(held(mem, start), 4 * in[DS_CAT_WEIGHT] + in[DS_CAT_INPUT],
                 "%s: %" PRId64 " too many", schedule,
                 held(mem, start) - 4 * in[DS_CAT_WEIGHT] - in[DS_CAT_INPUT]);
    for (uint32_t i = 0; i < mem->n_events; i++)
        if (mem->events[i].time_ps > start && mem->events[i].time_ps < end)
            cr_expect_leq(held(mem, mem->events[i].time_ps), held(mem, start));
    sim_free(&c);
}

Test(across, a_table_of_first_and_last_stage) {
    expect_tied("\"1f1b\"");
    expect_tied("\"gpipe\"");
    expect_tied("\"interleaved\", virtual_stages = 2");
}

/* In a V both chunks are on stage 0, which adds one gradient to the other. */
Test(across, a_table_of_one_stage) {
    sim_case c;
    simulate(&c, MODEL("schedule = \"zb-v\""), NULL, false);
    cr_expect_eq(the_sum(c.result->plan), DS_NONE);
    sim_free(&c);
}
