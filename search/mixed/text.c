/* A plan as devices, as the text of a mesh and a strategy, and in words. */
#include "search/mixed/mixed.h"

#include <inttypes.h>
#include <stdlib.h>

uint32_t ds_mixed_used(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t kind) {
    uint32_t n = 0, all = 0, pipeline = 0;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        const ds_mixed_stage *stage = &plan->stages[s];
        pipeline += stage->tp;
        all += (uint32_t)stage->dp * stage->tp;
        if (!plan->side_by_side && stage->kind == kind) n += (uint32_t)stage->dp * stage->tp;
    }
    for (uint32_t g = 0; g < plan->n_groups; g++)
        if (plan->groups[g].kind == kind) n += plan->groups[g].replicas * pipeline;
    for (uint32_t i = 0; i < problem->n_kinds && plan->in_order; i++) {
        uint32_t part = problem->kinds[plan->order[i]].n_devices;
        if (part > all) part = all;
        all -= part;
        if (plan->order[i] == kind) return part;
    }
    return n;
}

static uint32_t take(const ds_mixed_kind *kind, uint32_t *taken, uint32_t n, uint32_t *out) {
    for (uint32_t i = 0; i < n; i++) out[i] = kind->devices[(*taken)++];
    return n;
}

uint32_t ds_mixed_devices(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                          uint32_t *out) {
    uint32_t taken[DS_MIXED_KINDS] = {0}, n = 0;
    for (uint32_t i = 0; i < problem->n_kinds && (plan->in_order || plan->side_by_side); i++) {
        if (!plan->in_order && i >= plan->n_groups) break;
        uint32_t kind = plan->in_order ? plan->order[i] : plan->groups[i].kind;
        n += take(&problem->kinds[kind], &taken[kind], ds_mixed_used(problem, plan, kind), out + n);
    }
    for (uint32_t s = 0; s < plan->n_stages && !plan->in_order && !plan->side_by_side; s++) {
        const ds_mixed_stage *stage = &plan->stages[s];
        n += take(&problem->kinds[stage->kind], &taken[stage->kind],
                  (uint32_t)stage->dp * stage->tp, out + n);
    }
    return n;
}

static uint32_t replicas(const ds_mixed_plan *plan) {
    uint32_t n = 0;
    for (uint32_t g = 0; g < plan->n_groups; g++) n += plan->groups[g].replicas;
    return n;
}

/* "[dp = 3, pp = 2]": a model's mesh has the axes of its strategy. */
static void put_axes(const ds_mixed_plan *plan, uint32_t n, ds_buf *out) {
    if (!plan->side_by_side) {
        ds_buf_printf(out, "[dp = %" PRIu32 "]", n);
        return;
    }
    ds_buf_printf(out, "[dp = %" PRIu32, replicas(plan));
    if (plan->n_stages > 1) ds_buf_printf(out, ", pp = %d", plan->n_stages);
    if (plan->stages[0].tp > 1) ds_buf_printf(out, ", tp = %d", plan->stages[0].tp);
    ds_buf_put(out, "]");
}

/* The used devices first, then all others; devices in their own order need no list. */
void ds_mixed_put_mesh(const ds_mixed_problem *problem, const ds_mixed_plan *plan, const char *on,
                       ds_buf *out) {
    uint32_t *devices = calloc(problem->n_devices + 1, sizeof *devices);
    bool *used = calloc(problem->n_devices + 1, sizeof *used);
    uint32_t n = ds_mixed_devices(problem, plan, devices), all = n, moved = 0;
    for (uint32_t i = 0; i < n; i++) used[devices[i]] = true;
    for (uint32_t i = 0; i < problem->n_devices; i++)
        if (!used[i]) devices[all++] = i;
    for (uint32_t i = 0; i < n; i++) moved += devices[i] != devices[0] + i;
    uint32_t first = moved ? 0 : devices[0];
    ds_buf_printf(out, "mesh @all = [dp = %" PRIu32 "] on %s", problem->n_devices, on);
    for (uint32_t i = 0; moved && i < all; i++)
        ds_buf_printf(out, "%s%" PRIu32, i ? ", " : " order (", devices[i]);
    ds_buf_printf(out, "%s\nmesh @plan = pick %" PRIu32 "..%" PRIu32 " of @all ", moved ? ")" : "",
                  first, first + n);
    put_axes(plan, n, out);
    ds_buf_put(out, "\n");
    free(devices);
    free(used);
}

static void put_list(const ds_mixed_plan *plan, const char *key, int what, ds_buf *out) {
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        const ds_mixed_stage *stage = &plan->stages[s];
        int value = what == 0 ? stage->dp : what == 1 ? stage->tp : stage->layers;
        if (s)
            ds_buf_printf(out, ", %d", value);
        else
            ds_buf_printf(out, "%s = [%d", key, value);
    }
    ds_buf_put(out, "], ");
}

/* A group's samples are dealt out evenly; its first replicas get one more. */
static void put_shares(const ds_mixed_plan *plan, ds_buf *out) {
    bool equal = true, begun = false;
    for (uint32_t g = 0; g < plan->n_groups; g++)
        equal = equal && plan->groups[g].share * plan->groups[0].replicas ==
                             plan->groups[0].share * plan->groups[g].replicas;
    if (equal && plan->groups[0].share % plan->groups[0].replicas == 0) return;
    for (uint32_t g = 0; g < plan->n_groups; g++)
        for (int64_t i = 0, n = plan->groups[g].replicas; i < n; i++, begun = true)
            ds_buf_printf(out, "%s%" PRId64, begun ? ", " : "dp_shares = [",
                          plan->groups[g].share / n + (i < plan->groups[g].share % n));
    ds_buf_put(out, "], ");
}

void ds_mixed_put_strategy(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                           ds_buf *out) {
    bool tp = false, dp = plan->side_by_side && replicas(plan) > 1;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        tp = tp || plan->stages[s].tp > 1;
        dp = dp || (!plan->side_by_side && plan->stages[s].dp > 1);
    }
    if (plan->side_by_side) {
        ds_buf_printf(out, "dp = %" PRIu32 ", ", replicas(plan));
        if (plan->n_stages > 1)
            ds_buf_printf(out, "pp = %d, order = \"dp pp cp tp\", ", plan->n_stages);
        if (tp) ds_buf_printf(out, "tp = %d, ", plan->stages[0].tp);
        put_shares(plan, out);
    } else {
        put_list(plan, "stage_dp", 0, out);
        put_list(plan, "stage_tp", 1, out);
    }
    if (plan->n_stages > 1) {
        put_list(plan, "stage_layers", 2, out);
        ds_buf_printf(out, "schedule = \"%s1f1b\", ", plan->eager ? "eager-" : "");
    }
    if (tp && problem->sample_units > 1) ds_buf_put(out, "sp = true, ");
    if (dp) ds_buf_printf(out, "zero = %d, ", plan->zero);
    ds_buf_printf(out, "microbatches = %" PRId64 ", recompute = %s", plan->microbatches,
                  plan->recompute ? "full" : "none");
}

static void put_width(const char *kind, uint32_t dp, uint32_t tp, ds_buf *out) {
    ds_buf_printf(out, "%" PRIu32 " x %s", dp * tp, kind);
    if (tp > 1) ds_buf_printf(out, " (dp %" PRIu32 ", tp %" PRIu32 ")", dp, tp);
}

static void put_groups(const ds_mixed_problem *problem, const ds_mixed_plan *plan, ds_buf *out) {
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const ds_mixed_group *group = &plan->groups[g];
        ds_buf_printf(out, "%s%d replica%s on %" PRIu32 " x %s", g ? " + " : "", group->replicas,
                      group->replicas == 1 ? "" : "s", ds_mixed_used(problem, plan, group->kind),
                      problem->kinds[group->kind].name);
        if (plan->n_groups > 1)
            ds_buf_printf(out, ": %" PRId64 " of a microbatch's samples", group->share);
    }
    if (plan->stages[0].tp > 1) ds_buf_printf(out, ", tp %d", plan->stages[0].tp);
    for (uint32_t s = 0; plan->n_stages > 1 && s < plan->n_stages; s++)
        ds_buf_printf(out, "%s%d", s ? "+" : ", layers ", plan->stages[s].layers);
}

/* "stages in the order of 32 x A100, 96 x V100: " */
static void put_order(const ds_mixed_problem *problem, const ds_mixed_plan *plan, ds_buf *out) {
    for (uint32_t i = 0; i < problem->n_kinds; i++)
        ds_buf_printf(out, "%s%" PRIu32 " x %s", i ? ", " : "over ",
                      ds_mixed_used(problem, plan, plan->order[i]),
                      problem->kinds[plan->order[i]].name);
    ds_buf_printf(out, " in order: pp %d, dp %d, tp %d", plan->n_stages, plan->stages[0].dp,
                  plan->stages[0].tp);
    for (uint32_t s = 0; s < plan->n_stages; s++)
        ds_buf_printf(out, "%s%d", s ? "+" : ", layers ", plan->stages[s].layers);
}

static void put_stages(const ds_mixed_problem *problem, const ds_mixed_plan *plan, ds_buf *out) {
    for (uint32_t s = 0; s < plan->n_stages;) {
        const ds_mixed_stage *first = &plan->stages[s];
        uint32_t n = 0;
        while (s + n < plan->n_stages && first[n].kind == first->kind && first[n].dp == first->dp &&
               first[n].tp == first->tp)
            n++;
        ds_buf_printf(out, "%s", s ? " -> " : "");
        if (n > 1) ds_buf_printf(out, "%" PRIu32 " stages of ", n);
        put_width(problem->kinds[first->kind].name, first->dp, first->tp, out);
        for (uint32_t i = 0; i < n; i++)
            ds_buf_printf(out, "%s%d", i ? "+" : ": layers ", first[i].layers);
        s += n;
    }
}

void ds_mixed_put_words(const ds_mixed_problem *problem, const ds_mixed_plan *plan, ds_buf *out) {
    if (plan->side_by_side)
        put_groups(problem, plan, out);
    else if (plan->in_order)
        put_order(problem, plan, out);
    else
        put_stages(problem, plan, out);
    ds_buf_printf(out, "; %" PRId64 " microbatch%s%s%s%s", plan->microbatches,
                  plan->microbatches == 1 ? "" : "es",
                  plan->n_stages > 1 && plan->eager ? ", eager" : "", plan->zero ? ", zero 1" : "",
                  plan->recompute ? ", recompute" : "");
}
