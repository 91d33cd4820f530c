/* Folding changes nothing: on at least 150 of 220 random programs, meshes and topologies, some
 * symmetric, some with a few odd links or devices, one class per device and classes by refinement
 * give the same picoseconds for every device and op, and the same bytes. The memory of each device
 * is checked besides against a walk of its own over the unfolded trace. */
#include "tests/support/random_program.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdlib.h>

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
