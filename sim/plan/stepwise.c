/* `network = stepwise`: every transfer message by message.
 *
 * The messages of a group (sim/coll/messages.h) become flows of their own over the links of their
 * routes, all of which are shared here. They are made once for all activities of the group, since
 * those run one after another: one stream has them all. Devices are not folded. */
#include "sim/coll/messages.h"
#include "sim/plan/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    ds_builder *b;
    ds_plan *plan;
    ds_map first_step; /* group → its first message, and how many << 32 */
    ds_link_places places;
    DS_VEC(ds_plan_step) steps;
    DS_VEC(ds_flow) flows;
    DS_VEC(uint32_t) succ;
} maker;

static ds_status add_step(maker *m, const ds_group *g, const ds_message_graph *graph, uint32_t i,
                          uint32_t first, ds_error *err) {
    const ds_message *message = &graph->messages[i];
    ds_plan_step step = {.flow = DS_NONE, .n_waits = message->n_waits, .next = DS_NONE};
    step.after = message->after == DS_NONE ? DS_NONE : first + message->after;
    ds_message_load load;
    ds_status status =
        ds_message_flow(m->plan->topo, message, &g->terms, &m->places, &m->plan->arena, &load, err);
    if (status != DS_OK && err && !err->loc.line) ds_error_move(err, g->request->loc);
    DS_TRY(status);
    step.wait_ps = load.wait_ps;
    if (load.loads) {
        step.flow = m->flows.n;
        DS_HPUSH(&m->flows, load.flow);
    }
    step.first = m->succ.n;
    step.n = graph->first[i + 1] - graph->first[i];
    for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
        DS_HPUSH(&m->succ, first + graph->edges[e]);
    if (step.after != DS_NONE) m->steps.at[step.after].next = m->steps.n;
    DS_HPUSH(&m->steps, step);
    return DS_OK;
}

static ds_status add_group(maker *m, const ds_group *g, ds_error *err) {
    if (!g->request || ds_map_find(&m->first_step, DS_KEY(g))) return DS_OK;
    ds_arena scratch;
    ds_message_graph graph;
    ds_arena_init(&scratch);
    uint32_t first = m->steps.n;
    ds_status status =
        ds_coll_messages(m->plan->topo, g->request, g->algorithm, &scratch, &graph, err);
    for (uint32_t i = 0; i < graph.n_messages && status == DS_OK; i++)
        status = add_step(m, g, &graph, i, first, err);
    ds_arena_deinit(&scratch);
    ds_map_put(&m->first_step, DS_KEY(g), (uint64_t)(m->steps.n - first) << 32 | first);
    if (status == DS_OK && m->steps.n > DS_PLAN_MOST_STEPS)
        return ds_error_set(err, DS_ERR_LIMIT, g->request->loc,
                            "the program's transfers are more than %u messages: `network = fluid` "
                            "takes their phases instead",
                            DS_PLAN_MOST_STEPS);
    return status;
}

ds_status ds_plan__stepwise(ds_builder *b, ds_error *err) {
    ds_plan *plan = b->plan;
    maker m = {.b = b, .plan = plan};
    ds_status status = DS_OK;
    for (uint32_t a = 0; a < plan->n_activities && status == DS_OK; a++) {
        ds_activity *activity = &plan->activities[a];
        status = add_group(&m, activity->group, err);
        const uint64_t *steps = ds_map_find(&m.first_step, DS_KEY(activity->group));
        if (!steps) continue;
        activity->first_step = (uint32_t)*steps;
        activity->n_steps = (uint32_t)(*steps >> 32);
    }
    plan->link_capacity_q20 = ds_xcalloc(m.places.links.n, sizeof *plan->link_capacity_q20);
    for (uint32_t l = 0; l < m.places.links.n; l++)
        plan->link_capacity_q20[l] =
            (ds_u128)ds_topo_link_at(plan->topo, m.places.links.at[l])->bytes_per_s << DS_RATE_BITS;
    plan->n_links = m.places.links.n;
    plan->flows = m.flows.at;
    plan->n_flows = m.flows.n;
    plan->steps = m.steps.at;
    plan->n_steps = m.steps.n;
    plan->step_succ = m.succ.at;
    ds_map_deinit(&m.first_step);
    ds_link_places_deinit(&m.places);
    return status;
}
