/* Folding changes nothing: on at least 150 of 220 random programs, meshes and topologies, some
 * symmetric, some with a few odd links or devices, one class per device and classes by refinement
 * give the same picoseconds for every device and op, and the same bytes. The memory of each device
 * is checked besides against a walk of its own over the unfolded trace. The same holds on 300
 * clusters of templates with up to 512 devices, half of them degraded somewhere, on 1,024 GPUs of
 * which one is slow, and where units repeat around a circle, or almost. How large a folded run is
 * depends on what differs, not on how often it is there. */
#include "sim/coll/coll.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_program.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Does an instance before `inst` that reads a value of this buffer end after `start` on the class?
 */
static bool busy_after(const ds_result *r, uint32_t cls, const uint32_t *buffer, uint32_t root,
                       uint32_t inst, int64_t start) {
    const ds_plan *plan = r->plan;
    for (uint32_t i = 0; i < inst; i++) {
        const ds_inst *other = &plan->insts.at[i];
        uint32_t pos = ds_record_class_pos(plan->records.at[other->record], cls);
        if (pos == DS_NONE || other->first_task == DS_NONE) continue;
        if (r->run.end_ps[other->first_task + pos] <= start) continue;
        for (uint32_t k = 0; k < ds_plan_n_operands(plan, i); k++)
            if (buffer[plan->operands.at[other->first_operand + k]] == root) return true;
    }
    return false;
}

/* Peak of one device, from the unfolded tasks alone: at every start, sum what is alive. O(n²). */
static int64_t peak_by_hand(const ds_result *r, uint32_t cls) {
    const ds_plan *plan = r->plan;
    uint32_t n = plan->values.n;
    int64_t *from = calloc(n, sizeof *from), *to = calloc(n, sizeof *to);
    int64_t *bytes = calloc(n, sizeof *bytes);
    uint32_t *last = calloc(n, sizeof *last), *buffer = calloc(n, sizeof *buffer);
    for (uint32_t i = 0; i < plan->insts.n; i++)
        for (uint32_t k = 0; k < ds_plan_n_operands(plan, i); k++)
            last[plan->operands.at[plan->insts.at[i].first_operand + k]] = i;
    for (uint32_t v = 0; v < n; v++) {
        const ds_inst *inst = &plan->insts.at[plan->values.at[v].inst];
        const ds_record *rec = plan->records.at[inst->record];
        uint32_t pos = ds_record_class_pos(rec, cls), alias = plan->values.at[v].alias;
        buffer[v] = v;
        if (pos == DS_NONE) continue;
        bool input = rec->kind == DS_REC_INPUT;
        bytes[v] = rec->variants[rec->class_variant[pos]].out_bytes[plan->values.at[v].result];
        from[v] = input ? 0 : r->run.start_ps[inst->first_task + pos];
        to[v] = input || plan->values.at[v].is_output ? INT64_MAX
                                                      : r->run.end_ps[inst->first_task + pos];
        if (alias == DS_NONE || last[alias] != plan->values.at[v].inst) continue;
        uint32_t root = buffer[alias];
        bool from_input =
            plan->records.at[plan->insts.at[plan->values.at[root].inst].record]->kind ==
            DS_REC_INPUT;
        if (from_input || plan->values.at[alias].is_output || bytes[alias] != bytes[v]) continue;
        if (busy_after(r, cls, buffer, root, plan->values.at[v].inst, from[v])) continue;
        buffer[v] = root;
    }
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        uint32_t pos = ds_record_class_pos(plan->records.at[inst->record], cls);
        if (pos == DS_NONE || inst->first_task == DS_NONE) continue;
        int64_t end = r->run.end_ps[inst->first_task + pos];
        for (uint32_t k = 0; k < ds_plan_n_operands(plan, i); k++) {
            uint32_t v = plan->operands.at[inst->first_operand + k];
            if (end > to[v]) to[v] = end;
        }
    }
    for (uint32_t v = 0; v < n; v++)
        if (to[v] > to[buffer[v]]) to[buffer[v]] = to[v];
    int64_t peak = 0;
    for (uint32_t at = 0; at < n; at++) {
        int64_t sum = 0;
        for (uint32_t v = 0; v < n; v++)
            if (buffer[v] == v && from[v] <= from[at] && from[at] < to[v]) sum += bytes[v];
        if (sum > peak) peak = sum;
    }
    free(from);
    free(to);
    free(bytes);
    free(last);
    free(buffer);
    return peak;
}

static void compare(const ds_result *f, const ds_result *u, bool walk, uint64_t seed) {
    cr_assert_eq(f->run.step_ps, u->run.step_ps, "seed %llu: %lld folded, %lld unfolded",
                 (unsigned long long)seed, (long long)f->run.step_ps, (long long)u->run.step_ps);
    cr_assert_eq(f->metrics.mfu, u->metrics.mfu, "seed %llu: %.17g folded, %.17g unfolded",
                 (unsigned long long)seed, f->metrics.mfu, u->metrics.mfu);
    cr_assert_eq(f->metrics.bubble_fraction, u->metrics.bubble_fraction, "seed %llu",
                 (unsigned long long)seed);
    cr_assert_eq(f->plan->insts.n, u->plan->insts.n);
    for (uint32_t i = 0; i < u->plan->insts.n; i++) {
        const ds_record *ru = u->plan->records.at[u->plan->insts.at[i].record];
        const ds_record *rf = f->plan->records.at[f->plan->insts.at[i].record];
        if (ru->kind == DS_REC_INPUT) continue;
        for (uint32_t pos = 0; pos < ru->n_classes; pos++) {
            uint32_t device = u->plan->classes[ru->classes[pos]].device;
            uint32_t fpos = ds_record_class_pos(rf, f->plan->class_of[device]);
            uint32_t tu = u->plan->insts.at[i].first_task + pos;
            uint32_t tf = f->plan->insts.at[i].first_task + fpos;
            cr_assert_eq(u->run.start_ps[tu], f->run.start_ps[tf], "seed %llu",
                         (unsigned long long)seed);
            cr_assert_eq(u->run.end_ps[tu], f->run.end_ps[tf]);
        }
    }
    for (uint32_t c = 0; c < u->plan->n_classes; c++) {
        uint32_t device = u->plan->classes[c].device;
        int64_t folded = f->mem.classes[f->plan->class_of[device]].peak_bytes;
        cr_assert_eq(u->mem.classes[c].peak_bytes, folded, "seed %llu", (unsigned long long)seed);
        if (!walk) continue;
        int64_t by_hand = peak_by_hand(u, c);
        cr_assert_eq(by_hand, folded, "seed %llu: peak %lld, by hand %lld",
                     (unsigned long long)seed, (long long)folded, (long long)by_hand);
    }
}

Test(fold, folded_equals_unfolded) {
    uint32_t ran = 0, smaller = 0;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 66 : 220); seed++) {
        ds_buf text = {0};
        random_program(seed, &text);
        sim_case folded, unfolded;
        sim_run_text(&folded, text.text, NULL, false);
        if (folded.status == DS_ERR_SHAPE) { /* sizes that do not divide are refused, not padded */
            sim_free(&folded);
            ds_buf_deinit(&text);
            continue;
        }
        cr_assert_eq(folded.status, DS_OK, "seed %llu: %s\n%s", (unsigned long long)seed,
                     folded.err.message, text.text);
        sim_run_text(&unfolded, text.text, NULL, true);
        cr_assert_eq(unfolded.status, DS_OK);
        compare(folded.result, unfolded.result, true, seed);
        ran++;
        smaller += folded.result->plan->n_tasks < unfolded.result->plan->n_tasks;
        sim_free(&folded);
        sim_free(&unfolded);
        ds_buf_deinit(&text);
    }
    cr_expect_geq(ran, FEW_CASES ? 45 : 150);
    cr_expect_geq(smaller, FEW_CASES ? 15 : 50, "folding folds: %u of %u", smaller, ran);
}

#define CLUSTERS (FEW_CASES ? 40u : 300u)

Test(fold, clusters_of_templates) {
    uint32_t smaller = 0, split = 0, largest = 0;
    for (uint64_t seed = 0, ran = 0; ran < CLUSTERS; seed++) {
        ds_buf text = {0};
        random_cluster(seed, &text);
        sim_case folded, unfolded;
        sim_run_text(&folded, text.text, NULL, false);
        if (folded.status == DS_ERR_SHAPE) {
            sim_free(&folded);
            ds_buf_deinit(&text);
            continue;
        }
        cr_assert_eq(folded.status, DS_OK, "seed %llu: %s\n%s", (unsigned long long)seed,
                     folded.err.message, text.text);
        sim_run_text(&unfolded, text.text, NULL, true);
        cr_assert_eq(unfolded.status, DS_OK);
        compare(folded.result, unfolded.result, false, seed);
        const ds_plan *plan = folded.result->plan;
        smaller += plan->n_classes < plan->n_devices;
        split += strstr(text.text, "degrade") && plan->n_classes < plan->n_devices;
        if (plan->n_devices > largest) largest = plan->n_devices;
        ran++;
        sim_free(&folded);
        sim_free(&unfolded);
        ds_buf_deinit(&text);
    }
    cr_expect_geq(largest, FEW_CASES ? 256 : 512);
    cr_expect_geq(smaller, CLUSTERS / 2, "folding folds: %u of %u", smaller, CLUSTERS);
    cr_expect_geq(split, CLUSTERS / 8, "where one differs, too: %u", split);
}

/* ---- circles ---- */

/* Four stages of 8 units or parts of them, on rails. */
#define RAILS                                                                                      \
    "dir 1\nparam units = 8, dp = 8 * units\n"                                                     \
    "import \"topologies/rail-fat-tree.dir\" as p with units = units\n"                            \
    "mesh @m = [pp = 4, dp = dp, tp = 8] on @p.cluster\n"                                          \
    "func @f(%x: f32[12288@dp, 1024] on @m{pp=0}, %w: f32[1024, 4096@tp] on @m{pp=0},\n"           \
    "        %v: f32[4096@tp, 1024] on @m{pp=0}, %t: f32[65536] on @m{pp=0} partial(dp, tp)) {\n"  \
    "  %h = matmul(%x, %w)\n  %y = matmul(%h, %v)\n  %r = all_reduce(%y) over tp\n"                \
    "  %n = send(%r) to @m{pp=1}\n  %g = einsum(%x, %r) {rule = \"b k, b n -> k n\"}\n"            \
    "  %q = all_gather(%x) over dp dim 0\n  %z = relu(%n)\n"                                       \
    "  %l = all_reduce(%t) over (dp, tp) {algorithm = \"tree\"}\n"
#define SUM "  %s = all_reduce(%g) over dp "
#define END "\n  return\n}\nscenario { program = @f }\n"

/* Groups, and those that are listed of them. */
static uint64_t n_groups(const ds_plan *plan, uint64_t *listed) {
    uint64_t n = 0;
    *listed = 0;
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        *listed += r->n_groups;
        for (uint32_t g = 0; g < r->n_groups; g++) n += 1 + r->groups[g].n_images;
    }
    return n;
}

/* Every listed group takes what it takes when none of its parts stands for another. */
static void check_costs(const ds_plan *plan) {
    for (uint32_t i = 0; i < plan->records.n; i++)
        for (uint32_t g = 0; g < plan->records.at[i]->n_groups; g++) {
            const ds_group *group = &plan->records.at[i]->groups[g];
            ds_coll_choice choice;
            ds_arena arena;
            ds_arena_init(&arena);
            cr_assert_eq(
                ds_coll_choose(plan->topo, group->request, &group->terms, &arena, &choice, NULL),
                DS_OK);
            cr_expect_eq(choice.ps, group->ps);
            cr_expect_str_eq(choice.algorithm, group->algorithm);
            ds_arena_deinit(&arena);
        }
}

/* Where units or nodes repeat around a circle one of them is planned; where one link or device is
 * another, or shifted nodes come to lie in two units, all are. Either way it is the unfolded run.
 */
Test(fold, parts_of_a_circle_are_planned_once) {
    static const struct {
        const char *algorithm, *settings, *more;
        uint32_t order;
    } cases[] = {
        {"ring", "units=8", "", 2},
        {"tree", "units=8", "", 2},
        {"ring", "units=4", "", 32},
        {"halving_doubling", "units=4", "", 32},
        {"direct", "units=8", "", 2},
        {"direct", "units=16", "", 4},
        {"direct", "units=4", "", 32},
        {"ring", "units=2", "", 16},
        {"ring", "units=3 dp=24", "", 1},
        {"ring", "units=8", "degrade u[7].n[3].gpu[2] -- u[7].n[3].nvswitch latency = 2\n", 1},
        {"ring", "units=8", "degrade u[1].leaf[5] -- spine[41] bandwidth = 0.5\n", 1},
        {"ring", "units=8", "degrade u[0].n[31].gpu[7] compute = 0.5\n", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        uint64_t listed, all;
        snprintf(text, sizeof text, "%s%s{algorithm = \"%s\"}%s%s", RAILS, SUM, cases[i].algorithm,
                 END, cases[i].more);
        sim_case folded, unfolded;
        sim_run_text(&folded, text, cases[i].settings, false);
        cr_assert_eq(folded.status, DS_OK, "%s", folded.err.message);
        sim_run_text(&unfolded, text, cases[i].settings, true);
        cr_assert_eq(unfolded.status, DS_OK);
        compare(folded.result, unfolded.result, false, i);
        check_costs(folded.result->plan);
        cr_expect_eq(n_groups(folded.result->plan, &listed), n_groups(unfolded.result->plan, &all));
        uint32_t dp = folded.result->plan->n_devices / 32; /* 8 tp groups a replica and 2 pairs */
        uint64_t want = (dp + 8 * dp) / cases[i].order + 2 * 8 + 1;
        cr_expect_eq(listed, want, "case %zu: %llu groups are listed, not %llu", i,
                     (unsigned long long)listed, (unsigned long long)want);
        sim_free(&folded);
        sim_free(&unfolded);
    }
}

/* Between units all bytes pass one link that no turn moves. */
#define NECK                                                                                       \
    "dir 1\ntopology @unit {\n  device d[8] : \"A100-SXM4-80GB\"\n  switch s\n"                    \
    "  link d[i] -- s : 100 GB/s, 1 us for i in 0..8\n}\n"                                         \
    "topology @t {\n  node u[17] : @unit\n  switch in, out\n"                                      \
    "  link u[i].s -> in : 50 GB/s, 2 us for i in 0..17\n  link in -> out : 200 GB/s, 300 us\n"    \
    "  link out -> u[i].s : 50 GB/s, 2 us for i in 0..17\n}\nmesh @m = [dp = 136] on @t\n"         \
    "func @f(%x: f32[34816] on @m partial(dp)) {\n"                                                \
    "  %y = all_reduce(%x) over dp {algorithm = \"direct\"}\n  return\n}\n"                        \
    "scenario { program = @f }\n"

Test(fold, a_link_that_stays_carries_all_images) {
    uint64_t listed;
    sim_case folded, unfolded;
    sim_run_text(&folded, NECK, NULL, false);
    cr_assert_eq(folded.status, DS_OK, "%s", folded.err.message);
    sim_run_text(&unfolded, NECK, NULL, true);
    cr_assert_eq(unfolded.status, DS_OK);
    compare(folded.result, unfolded.result, false, 0);
    check_costs(folded.result->plan);
    n_groups(folded.result->plan, &listed);
    cr_expect_eq(listed, 1);
    cr_expect_eq(folded.result->plan->records.at[1]->groups[0].period, 8);
    sim_free(&folded);
    sim_free(&unfolded);
}

/* ---- sizes ---- */

#define POD                                                                                        \
    "dir 1\nimport \"topologies/pod-128x8.dir\" as p\n"                                            \
    "mesh @m = [pp = 4, dp = 32, tp = 8] on @p.pod\n"                                              \
    "func @f(%x: f32[4096@dp, 1024] on @m{pp=0}, %w: f32[1024, 4096@tp] on @m{pp=0},\n"            \
    "        %v: f32[4096@tp, 1024] on @m{pp=0}) {\n"                                              \
    "  %h = matmul(%x, %w)\n  %y = matmul(%h, %v)\n  %r = all_reduce(%y) over tp\n"                \
    "  %n = send(%r) to @m{pp=1}\n  %g = einsum(%x, %r) {rule = \"b k, b n -> k n\"}\n"            \
    "  %s = all_reduce(%g) over dp\n  %z = relu(%n)\n  return\n}\n"                                \
    "scenario { program = @f }\n"

Test(fold, one_slow_gpu_in_1024) {
    static const char *const slow[] = {"", "degrade n[77].gpu[5] compute = 0.6\n",
                                       "degrade n[20].gpu[5] compute = 0.6\n",
                                       "degrade n[20].gpu[5] -- n[20].nic[5] bandwidth = 0.5\n"};
    int64_t step_ps[4];
    for (uint64_t i = 0; i < 4; i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s", POD, slow[i]);
        sim_case folded, unfolded;
        sim_run_text(&folded, text, NULL, false);
        cr_assert_eq(folded.status, DS_OK, "%s", folded.err.message);
        sim_run_text(&unfolded, text, NULL, true);
        cr_assert_eq(unfolded.status, DS_OK);
        compare(folded.result, unfolded.result, false, i);
        cr_expect_eq(unfolded.result->plan->n_classes, 512);
        cr_expect_leq(folded.result->plan->n_classes, i ? 64u : 8u);
        step_ps[i] = folded.result->run.step_ps;
        sim_free(&folded);
        sim_free(&unfolded);
    }
    cr_expect_eq(step_ps[1], step_ps[0]); /* not in the program's first two stages */
    cr_expect_gt(step_ps[2], step_ps[0]);
    cr_expect_gt(step_ps[3], step_ps[0]);
}

/* Tasks, events, flows and links do not grow with the number of replicas. */
Test(fold, size_does_not_depend_on_dp) {
    uint32_t tasks = 0, flows = 0, links = 0, activities = 0;
    uint64_t events = 0;
    for (uint32_t dp = 32; dp <= 128; dp *= 2) {
        char settings[64];
        snprintf(settings, sizeof settings, "dp=%u gpt.layers=8 microbatches=4", dp);
        sim_case c;
        sim_run_file(&c, "scenarios/gpt3-175b-65536.dir", settings, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        const ds_plan *plan = c.result->plan;
        cr_expect_eq(plan->n_devices, dp * 64);
        cr_expect_eq(plan->n_classes, 8);
        if (tasks) {
            cr_expect_eq(plan->n_tasks, tasks);
            cr_expect_eq(plan->n_activities, activities);
            cr_expect_leq(plan->n_flows, flows); /* equal messages share a flow */
            cr_expect_eq(plan->n_links, links);
            cr_expect_leq(c.result->run.n_events, events);
        }
        tasks = plan->n_tasks;
        activities = plan->n_activities;
        flows = plan->n_flows;
        links = plan->n_links;
        events = c.result->run.n_events;
        sim_free(&c);
    }
}
