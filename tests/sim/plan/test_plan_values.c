/* Families, ranges, views and local regions in a run, with durations given by hand. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)
#define S  INT64_C(1024) /* bytes of f32[16, 16] */

static const char HEAD[] = "dir 1\n"
                           "param n = 3\n"
                           "topology @t {\n"
                           "  device d[2] : \"A100-SXM4-80GB\"\n"
                           "  link d[0] -- d[1] : 10 GB/s, 1 us\n"
                           "}\n"
                           "mesh @m = [cp = 2] on @t\n";

static void run(sim_case *c, const char *funcs) {
    char text[4096];
    snprintf(text, sizeof text, "%s%sscenario { program = @f }\n", HEAD, funcs);
    sim_run_text(c, text, NULL, false);
}

static int64_t step(const char *funcs) {
    sim_case c;
    run(&c, funcs);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    int64_t ps = c.result->run.step_ps;
    sim_free(&c);
    return ps;
}

/* What a loop of a loop keeps, read in reverse: 3 · 2 turns of 1 us and as many of 2 us. */
#define NESTED                                                                                     \
    "  %%all = for i in 0..n {\n"                                                                  \
    "    %%row = for k in 0..2 {\n"                                                                \
    "      %%a = relu(%%x) {cost = 1 us}\n"                                                        \
    "      yield keep %%a\n"                                                                       \
    "    }\n"                                                                                      \
    "    yield keep %%row\n"                                                                       \
    "  }\n"                                                                                        \
    "  %%rev = for i in 0..n {\n"                                                                  \
    "    %%back = for k in 0..2 {\n"                                                               \
    "      %%b = neg(%%all{n - 1 - i, 1 - k}) {cost = 2 us}\n"                                     \
    "      yield keep %%b\n"                                                                       \
    "    }\n"                                                                                      \
    "    yield keep %%back\n"                                                                      \
    "  }\n"

Test(plan_values, families_of_families) {
    char text[2048];
    sim_case c;
    snprintf(text, sizeof text,
             "func @f(%%x: f32[16, 16] on @m) -> {i: 0..n, k: 0..2} f32[16, 16] on @m {\n" NESTED
             "  return %%rev\n}\n");
    run(&c, text);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(c.result->run.step_ps, 6 * US + 12 * US);
    /* the b that is made first reads the a that is made last, {n-1, 1} */
    const ds_plan *plan = c.result->plan;
    uint32_t first_b = 6; /* tasks in issue order: six a, six b */
    uint32_t operand = plan->operands.at[plan->insts.at[plan->task_inst[first_b]].first_operand];
    cr_expect_eq(plan->values.at[operand].inst, plan->task_inst[5]);
    sim_free(&c);
}

/* A family passed to a function and one that it returns. */
Test(plan_values, families_through_calls) {
    cr_expect_eq(step("func @g(%h{i: 0..n}: f32[16, 16] on @m) -> {i: 0..n} f32[16, 16] on @m {\n"
                      "  %r = for i in 0..n {\n"
                      "    %b = relu(%h{n - 1 - i}) {cost = 2 us}\n    yield keep %b\n  }\n"
                      "  return %r\n}\n"
                      "func @f(%x: f32[16, 16] on @m) -> f32[16, 16] on @m {\n"
                      "  %k = for i in 0..n {\n"
                      "    %a = neg(%x) {cost = 1 us}\n    yield keep %a\n  }\n"
                      "  %q = call @g(%k)\n"
                      "  %o = add(%q{0}, %q{2}) {cost = 5 us}\n"
                      "  return %o\n}\n"),
                 3 * US + 6 * US + 5 * US);
}

/* Elements of a range are read, all of them: what gathers them waits for the last. */
Test(plan_values, ranges_are_read_whole) {
    sim_case c;
    run(&c, "func @f(%x: f32[16, 16] on @m) -> f32[48, 16] on @m {\n"
            "  %k = for i in 0..n {\n"
            "    %p = permute(%x) over cp {cost = 3 us}\n    yield keep %p\n  }\n"
            "  %s = concat(%k{0:n}) : f32[3, 16, 16] on @m\n"
            "  %o = reshape(%s) {shape = [48, 16]}\n"
            "  return %o\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    uint32_t concat = sim_task(&c, NULL, "/s");
    cr_assert_neq(concat, UINT32_MAX);
    cr_expect_eq(c.result->run.start_ps[concat], 9 * US);
    /* three elements read and the stack written, at the memory's bandwidth */
    const ds_work *work = &ds_plan_task_variant(c.result->plan, concat)->work;
    cr_expect_eq(work->bytes_read, 3 * S);
    cr_expect_eq(work->bytes_written, 3 * S);
    cr_expect_eq(c.result->mem.classes[0].peak_bytes, S + 3 * S + 3 * S);
    sim_free(&c);
}

Test(plan_values, stacking_in_a_view_is_a_copy) {
    sim_case c;
    run(&c, "func @f(%x: f32[16, 16] on @m) -> f32[48, 16] on @m {\n"
            "  %k = for i in 0..n {\n    %a = relu(%x)\n    yield keep %a\n  }\n"
            "  %o = reshape(%k{0:n}) {shape = [48, 16]}\n"
            "  return %o\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    uint32_t copy = sim_task(&c, NULL, "/o");
    cr_assert_neq(copy, UINT32_MAX);
    cr_expect_gt(c.result->run.end_ps[copy], c.result->run.start_ps[copy]);
    cr_expect_eq(c.result->mem.classes[0].peak_bytes, S + 3 * S + 3 * S);
    sim_free(&c);
}

/* Cutting a part out of what every device holds takes no time; the part is a view of the whole,
 * which lives as long as the part: 16 KiB of x, then z whole to the end of r. */
Test(plan_values, a_part_is_a_view) {
    sim_case c;
    run(&c, "func @f(%x: f32[16, 16] on @m) -> f32[16@cp, 16] on @m {\n"
            "  %z = relu(%x) {cost = 1 us}\n"
            "  %c = reshard(%z) : f32[16@cp, 16] on @m\n"
            "  %r = transpose(%c) {perm = [0, 1], cost = 1 us}\n"
            "  return %r\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(c.result->run.step_ps, 2 * US);
    cr_expect_eq(c.result->mem.classes[0].peak_bytes, S + S + S / 2);
    sim_free(&c);
}

/* An optimizer's step over a part of a weight, gathered again: the weight stays one buffer. */
Test(plan_values, a_gathered_weight_goes_back_to_its_place) {
    sim_case c;
    run(&c, "func @f(%w{l: 0..n}: f32[16, 16] on @m {role = weight},\n"
            "  %g{l: 0..n}: f32[16@cp, 16] on @m {role = gradient}) ->\n"
            "  {l: 0..n} f32[16, 16] on @m {\n"
            "  %new = for l in 0..n {\n"
            "    %c = reshard(%w{l}) : f32[16@cp, 16] on @m\n"
            "    %p = sgd(%c, %g{l})\n"
            "    %h = all_gather(%p) over cp dim 0\n"
            "    yield keep %h\n  }\n"
            "  return %new\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_mem_class *m = &c.result->mem.classes[0];
    cr_expect_eq(m->peak_bytes, 3 * S + 3 * S / 2);
    cr_expect_eq(m->most_by_category[DS_CAT_WEIGHT], 3 * S);
    sim_free(&c);
}

/* A gathered weight that is no update is a buffer, for as long as it is read. */
Test(plan_values, a_gathered_weight_is_a_buffer) {
    sim_case c;
    run(&c, "func @f(%x: f32[16, 16] on @m, %w: f32[16@cp, 16] on @m {role = weight}) ->\n"
            "  f32[16, 16] on @m {\n"
            "  %h = all_gather(%w) over cp dim 0\n"
            "  %y = matmul(%x, %h)\n"
            "  return %y\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_mem_class *m = &c.result->mem.classes[0];
    cr_expect_eq(m->most_by_category[DS_CAT_WEIGHT], S / 2);
    cr_expect_eq(m->most_by_category[DS_CAT_BUFFER], S);
    sim_free(&c);
}

/* A ring of two: the block travels (3 us) beside the work on it (2 us), the second turn waits for
 * it; positions differ between devices and are evaluated for each of them. */
Test(plan_values, a_ring_in_a_local_region) {
    cr_expect_eq(
        step("func @f(%q: f32[1, 16@cp, 1, 16] on @m, %k: f32[1, 16@cp, 1, 16] on @m) ->\n"
             "  f32[1, 16@cp, 1, 16] on @m {\n"
             "  %o = local over (cp) (%q, %k) -> f32[1, 16@cp, 1, 16] on @m {\n"
             "    %z = attention(%q, %k, %k) {causal = true, q_start = 8 * axis_index(cp),\n"
             "      k_start = 8 * axis_index(cp), cost = 1 us}\n"
             "    %last, %sum = for i in 0..2 carry (%b = %k, %s = %z) {\n"
             "      %next = permute(%b) over cp {cost = 3 us}\n"
             "      %a = attention(%q, %b, %b) {causal = true,\n"
             "        q_start = 8 * axis_index(cp),\n"
             "        k_start = 8 * ((axis_index(cp) + 2 - i) % 2), cost = 2 us}\n"
             "      %t = add(%s, %a) {cost = 1 us}\n"
             "      yield %next, %t\n    }\n"
             "    yield %sum\n  }\n"
             "  return %o\n}\n"),
        7 * US); /* work 1 + 3; the block is there at 3, work from 4 to 7 */
}

Test(plan_values, an_index_outside_is_an_error) {
    sim_case c;
    run(&c, "func @f(%k{l: 0..n}: f32[16, 16] on @m) -> f32[16, 16] on @m {\n"
            "  %a = relu(%k{n}) {cost = 1 us}\n  return %a\n}\n");
    cr_expect_eq(c.status, DS_ERR_VALUE);
    sim_free(&c);
}

/* The loop reads what it has kept, at turn t so many elements: 0 + 1 + 2 are read, 3 are written,
 * and each sum waits for the turns before. */
Test(plan_values, a_loop_reads_the_family_that_it_keeps) {
    sim_case c;
    run(&c, "func @f(%x: f32[16, 16] on @m) -> f32[16, 16] on @m {\n"
            "  %k = for i in 0..n {\n"
            "    %s = reduce_sum(%k{0:i}) {dims = [0]}\n"
            "    %a = add(%s, %x) {cost = 2 us}\n    yield keep %a\n"
            "  } : f32[16, 16] on @m\n"
            "  return %k{n - 1}\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_plan *plan = c.result->plan;
    int64_t read = 0, written = 0, start = -1;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = plan->records.at[plan->insts.at[i].record];
        if (!r->op || r->op->code != DS_OP_REDUCE_SUM) continue;
        read += r->variants[0].work.bytes_read;
        written += r->variants[0].work.bytes_written;
        int64_t at = c.result->run.start_ps[plan->insts.at[i].first_task];
        cr_expect_gt(at, start);
        start = at;
    }
    cr_expect_eq(read, (0 + 1 + 2) * S);
    cr_expect_eq(written, 3 * S);
    cr_expect_geq(start, 4 * US);
    sim_free(&c);
}

/* Empty operands: attention to no key is no work; the result is written. */
Test(plan_values, empty_ranges_cost_what_is_written) {
    sim_case c;
    run(&c, "func @f(%q: f32[2, 1, 4, 8] on @m, %k{t: 0..n}: f32[2, 4, 8] on @m)"
            " -> {t: 0..n} f32[2, 1, 4, 8] on @m {\n"
            "  %o = for t in 0..n {\n    %s = stack(%k{0:t}) {dim = 1}\n"
            "    %a = attention(%q, %s, %s)\n    yield keep %a\n  }\n"
            "  return %o\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_plan *plan = c.result->plan;
    for (uint32_t i = 0, t = 0; i < plan->insts.n; i++) {
        const ds_record *r = plan->records.at[plan->insts.at[i].record];
        if (!r->op || r->op->code != DS_OP_ATTENTION) continue;
        cr_expect_eq(r->variants[0].work.flop, 2 * 2 * 4 * (int64_t)t * (8 + 8));
        t++;
    }
    sim_free(&c);
}

/* Three turns of two layers: `put` and `rotary` differ in a position alone and have one record;
 * `scale` has one for each turn, since its factor tells the turns apart. */
Test(plan_values, a_position_makes_no_record) {
    sim_case c;
    run(&c, "func @f(%x: f32[1, 2, 1, 4], %s: f32[6, 2, 1, 4]) -> f32[6, 2, 1, 4] {\n"
            "  %all = for t in 0..3 carry (%a: f32[6, 2, 1, 4] = %s) {\n"
            "    %b = for l in 0..2 carry (%c: f32[6, 2, 1, 4] = %a) {\n"
            "      %r = rotary(%x) {start = t, cost = 1 us}\n"
            "      %u = scale(%r) {factor = 1.0 * t, cost = 1 us}\n"
            "      %p = put(%c, %u) {dim = 0, at = 3 * l + t, cost = 1 us}\n"
            "      yield %p\n"
            "    } : f32[6, 2, 1, 4]\n"
            "    yield %b\n"
            "  } : f32[6, 2, 1, 4]\n"
            "  return %all\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    uint32_t n[3] = {0};
    const ds_plan *plan = c.result->plan;
    static const ds_opcode codes[] = {DS_OP_ROTARY, DS_OP_SCALE, DS_OP_PUT};
    for (uint32_t i = 0; i < plan->records.n; i++)
        for (int k = 0; k < 3; k++)
            n[k] += plan->records.at[i]->op && plan->records.at[i]->op->code == codes[k];
    cr_expect_eq(n[0], 1, "%u", n[0]);
    cr_expect_eq(n[1], 3, "%u", n[1]);
    cr_expect_eq(n[2], 1, "%u", n[2]);
    cr_expect_eq(c.result->run.step_ps, 18 * US);
    sim_free(&c);
}
