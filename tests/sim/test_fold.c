/* Folding changes nothing: on at least 150 of 220 random programs, meshes and topologies, some
 * symmetric, some with a few odd links or devices, one class per device and classes by refinement
 * give the same picoseconds for every device and op, and the same bytes. The memory of each device
 * is checked besides against a walk of its own over the unfolded trace. */
#include "tests/support/sim.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    uint64_t seed, draws;
} shape;

static uint32_t draw(shape *s, uint32_t n) {
    return (uint32_t)(ds_rng_at(s->seed, 7, s->draws++, 0) % n);
}

static void topology(shape *s, uint32_t nodes, uint32_t per_node, ds_buf *out) {
    uint32_t odd = draw(s, 3); /* 0: symmetric, 1: one slow link, 2: one other device */
    uint32_t at = draw(s, nodes * per_node);
    ds_buf_put(out, "dir 1\ntopology @t {\n");
    for (uint32_t i = 0; i < nodes * per_node; i++)
        ds_buf_printf(out, "  device d%u : \"%s\"\n", i,
                      odd == 2 && i == at ? "V100-SXM2-32GB" : "A100-SXM4-80GB");
    ds_buf_printf(out, "  switch leaf[%u], spine[%u]\n", nodes, 1 + draw(s, 2));
    for (uint32_t i = 0; i < nodes * per_node; i++)
        ds_buf_printf(out, "  link d%u -- leaf[%u] : %u GB/s, 1 us\n", i, i / per_node,
                      odd == 1 && i == at ? 7 : 20);
    bool two = strstr(out->text, "spine[2]") != NULL;
    for (uint32_t i = 0; i < nodes; i++)
        for (uint32_t k = 0; k < (two ? 2u : 1u); k++)
            ds_buf_printf(out, "  link leaf[%u] -- spine[%u] : 10 GB/s, 2 us\n", i, k);
    ds_buf_put(out, "}\n");
}

/* The same devices under axes of its own, some of them swapped: groups along y are those along tp
 * for some devices and cross them for others, which then have one communication stream more. */
static void other_mesh(shape *s, uint32_t n, uint32_t tp, ds_buf *out) {
    uint32_t order[64];
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t swaps = draw(s, 3); swaps > 0; swaps--) {
        uint32_t i = draw(s, n), k = draw(s, n), device = order[k];
        order[k] = order[i];
        order[i] = device;
    }
    ds_buf_printf(out, "axis x\naxis y\nmesh @o = [x = %u, y = %u] on @t order (", n / tp, tp);
    for (uint32_t i = 0; i < n; i++) ds_buf_printf(out, "%s%u", i ? ", " : "", order[i]);
    ds_buf_put(out, ")\n");
}

/* Two stages of a tensor-parallel block, data parallel, with a send between the stages. */
static void program(shape *s, uint32_t pp, uint32_t dp, uint32_t tp, ds_buf *out) {
    ds_buf_printf(out, "param layers = %u, b = %u, w = %u\n", 1 + draw(s, 3),
                  dp * (1 + draw(s, 4)) * 8, tp * (1 + draw(s, 4)) * 16);
    ds_buf_printf(out, "mesh @m = [pp = %u, dp = %u, tp = %u] on @t\n", pp, dp, tp);
    other_mesh(s, pp * dp * tp, tp, out);
    ds_buf_put(out, "func @main(");
    for (uint32_t p = 0; p < pp; p++)
        ds_buf_printf(out, "%s%%u%u: f32[w, w@tp] on @m{pp=%u}, %%v%u: f32[w@tp, w] on @m{pp=%u}",
                      p ? ", " : "", p, p, p, p);
    ds_buf_put(out, ", %x0: f32[b@dp, w] on @m{pp=0}, %side: f32[1000000] on @o) {\n");
    ds_buf_printf(out, "  %%side1 = permute(%%side) over %s\n  %%side2 = permute(%%side) over %s\n",
                  draw(s, 4) ? "y" : "x", draw(s, 2) ? "x" : "y");
    for (uint32_t p = 0; p < pp; p++) {
        ds_buf_printf(out, "  %%h%u, %%k%u = for l in 0..layers carry (%%c%u = %%x%u) {\n", p, p, p,
                      p);
        ds_buf_printf(out, "    %%z = matmul(%%c%u, %%u%u)\n    %%a = relu(%%z)\n", p, p);
        if (draw(s, 2)) /* a second reader of z: relu may not take its buffer the first time */
            ds_buf_put(out, "    %e = relu(%z)\n    %o = add(%e, %a)\n");
        ds_buf_printf(out, "    %%y = matmul(%%a, %%v%u)\n    %%r = all_reduce(%%y) over tp\n", p);
        if (draw(s, 2))
            ds_buf_put(out, "    %g = all_gather(%a) over tp dim 1\n    %q = relu(%g)\n");
        ds_buf_put(out, "    yield %r keep %a\n  }\n");
        ds_buf_printf(out, "  %%dw%u = einsum(%%x%u, %%h%u) {rule = \"b k, b n -> k n\"}\n", p, p,
                      p);
        if (draw(s, 2))
            ds_buf_printf(out, "  %%s%u = all_reduce(%%dw%u) over dp\n", p, p);
        else
            ds_buf_printf(out, "  %%s%u = reduce_scatter(%%dw%u) over dp dim 0\n", p, p);
        ds_buf_printf(out, "  %%x%u = send(%%h%u) to @m{pp=%u}\n", p + 1, p, (p + 1) % pp);
    }
    ds_buf_put(out, "  return\n}\nscenario { program = @main }\n");
}

static void generate(uint64_t seed, ds_buf *text) {
    shape s = {seed, 0};
    uint32_t pp = 1 + draw(&s, 3), dp = 1 + draw(&s, 4), tp = 1 + draw(&s, 4);
    topology(&s, pp * dp, tp, text);
    program(&s, pp, dp, tp, text);
}

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

static void compare(const ds_result *f, const ds_result *u, uint64_t seed) {
    cr_assert_eq(f->run.step_ps, u->run.step_ps, "seed %llu: %lld folded, %lld unfolded",
                 (unsigned long long)seed, (long long)f->run.step_ps, (long long)u->run.step_ps);
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
        int64_t by_hand = peak_by_hand(u, c);
        cr_assert_eq(by_hand, folded, "seed %llu: peak %lld, by hand %lld",
                     (unsigned long long)seed, (long long)folded, (long long)by_hand);
    }
}

Test(fold, folded_equals_unfolded) {
    uint32_t ran = 0, smaller = 0;
    for (uint64_t seed = 0; seed < 220; seed++) {
        ds_buf text = {0};
        generate(seed, &text);
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
        compare(folded.result, unfolded.result, seed);
        ran++;
        smaller += folded.result->plan->n_tasks < unfolded.result->plan->n_tasks;
        sim_free(&folded);
        sim_free(&unfolded);
        ds_buf_deinit(&text);
    }
    cr_expect_geq(ran, 150);
    cr_expect_geq(smaller, 50, "folding folds: %u of %u", smaller, ran);
}
