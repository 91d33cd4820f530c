#include "sim/engine/repeat.h"

#include "ir/base/units.h"
#include "sim/engine/engine.h"

#include <stdlib.h>
#include <string.h>

static void set_next(ds_gates *g, uint32_t next) {
    g->next = next;
    g->task = next < g->plan->n_gates ? g->plan->gates[next].task : DS_NONE;
}

ds_gates ds_gates_new(const ds_plan *plan) {
    ds_gates g = {.plan = plan, .refused = DS_NONE, .held_ps = DS_NEVER_PS};
    if (plan->n_gates) {
        g.turn_ps = ds_xcalloc(plan->repeats.n, sizeof *g.turn_ps);
        g.bound_ps = ds_xcalloc(plan->n_classes, sizeof *g.bound_ps);
        for (uint32_t c = 0; c < plan->n_classes; c++) g.bound_ps[c] = -1;
        if (plan->n_pauses) g.refused = 0; /* hosts that wait for transfers are not looked at */
    }
    set_next(&g, 0);
    return g;
}

void ds_gates_deinit(ds_gates *g) {
    free(g->bound_ps);
    free(g->held.at);
}

void ds_gates_keep(ds_gates *g, uint32_t id, int64_t now_ps) {
    if (now_ps < g->held_ps) g->held_ps = now_ps;
    DS_HPUSH(&g->held, id);
}

/* Do the hosts stand to the devices after a turn as they stood before, or not matter? */
static bool hosts_repeat(const ds_gates *g, const ds_repeat *r, int64_t begin_ps, int64_t turn_ps) {
    for (uint32_t c = 0; c < g->plan->n_classes; c++) {
        if (r->issue_ps[c] == turn_ps) continue;
        if (r->issue_ps[c] > turn_ps || g->bound_ps[c] > begin_ps) return false;
    }
    return true;
}

static void pass(ds_gates *g, const ds_gate *gate, int64_t *now_ps) {
    const ds_repeat *r = &g->plan->repeats.at[gate->repeat];
    int64_t *turn_ps = &g->turn_ps[gate->repeat], begin_ps = *turn_ps;
    if (!gate->ends) {
        *turn_ps = *now_ps;
        return;
    }
    *turn_ps = *now_ps - begin_ps;
    if (!hosts_repeat(g, r, begin_ps, *turn_ps)) g->refused = gate->repeat;
    *now_ps = ds_ps_narrow((ds_i128)*turn_ps * (r->times - 1) + *now_ps);
}

bool ds_gates_open(ds_gates *g, uint32_t n_done, int64_t *now_ps) {
    if (n_done < g->task) return false;
    if (g->held_ps < *now_ps && g->refused == DS_NONE) g->refused = g->plan->gates[g->next].repeat;
    while (n_done >= g->task && g->refused == DS_NONE && *now_ps != DS_NEVER_PS) {
        pass(g, &g->plan->gates[g->next], now_ps);
        set_next(g, g->next + 1);
    }
    g->n_taking = g->held.n;
    g->held_ps = DS_NEVER_PS;
    return true;
}

bool ds_gates_take(ds_gates *g, uint32_t *id) {
    if (g->refused != DS_NONE) return false;
    if (g->taken < g->n_taking) {
        *id = g->held.at[g->taken++];
        return true;
    }
    uint32_t left = g->held.n - g->n_taking; /* behind the next gate */
    if (left) memmove(g->held.at, g->held.at + g->n_taking, left * sizeof *g->held.at);
    g->held.n = left;
    g->n_taking = g->taken = 0;
    return false;
}

int64_t ds_run_end_ps(const ds_run *run, const ds_plan *plan, uint32_t from, uint32_t task) {
    int64_t end_ps = run->end_ps[from];
    if (!plan->repeat_of) return end_ps;
    uint32_t inst = plan->task_inst[task];
    for (uint32_t i = plan->repeat_of[plan->task_inst[from]]; i != DS_NONE;
         i = plan->repeats.at[i].up) {
        const ds_repeat *r = &plan->repeats.at[i];
        if (inst >= r->first && inst < r->end) break;
        end_ps += (r->times - 1) * run->turn_ps[i];
    }
    return end_ps;
}
