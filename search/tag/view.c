/* Numbers of a problem and of a partial deployment, as networks see them. */
#include "search/tag/view.h"

#include <math.h>
#include <string.h>

/* Large numbers in 0 … 1. */
static float squash(double x) {
    return (float)(x / (1 + x));
}

/* ---- what no decision changes ---- */

static void find_times(ds_tag_view *v, ds_arena *arena) {
    const ds_tag_problem *p = v->problem;
    double *us = DS_NEW_N(arena, double, (size_t)v->n_groups * v->n_machines * DS_TAG_N_BATCHES);
    double squares = 0;
    for (uint32_t i = 0; i < p->graph.n_ops; i++) {
        v->group_size[p->graph.op[i].group]++;
        for (uint32_t m = 0; m < v->n_machines; m++)
            for (uint32_t k = 0; k < DS_TAG_N_BATCHES; k++) {
                int64_t samples = p->batch >> k;
                us[((size_t)p->graph.op[i].group * v->n_machines + m) * DS_TAG_N_BATCHES + k] +=
                    ds_tag_op_us(&p->graph, i, p->cluster.machine[m].kind, samples ? samples : 1);
            }
    }
    for (uint32_t g = 0; g < v->n_groups; g++) {
        double mean = 0;
        for (uint32_t m = 0; m < v->n_machines; m++)
            mean += us[((size_t)g * v->n_machines + m) * DS_TAG_N_BATCHES] / v->n_machines;
        squares += mean * mean;
    }
    v->total_us = fmax(sqrt(squares), 1);
    for (size_t i = 0; i < (size_t)v->n_groups * v->n_machines * DS_TAG_N_BATCHES; i++)
        v->group_us[i] = squash(us[i] / v->total_us);
}

static void find_machines(ds_tag_view *v, double most_mb_per_s) {
    const ds_tag_cluster *c = &v->problem->cluster;
    uint32_t n = v->n_machines;
    for (uint32_t m = 0; m < n; m++) {
        const ds_tag_machine *machine = &c->machine[m];
        v->machine[3 * m] = (float)machine->n_gpus / 4;
        v->machine[3 * m + 1] = (float)((double)machine->memory_bytes / (INT64_C(1) << 34));
        v->machine[3 * m + 2] = (float)((double)c->mb_per_s[m * n + m] / most_mb_per_s);
        v->machine_gpus[m] = ds_tag_gpus_of(c, UINT64_C(1) << m);
        for (uint32_t to = 0; to < n; to++) {
            v->links.from[v->links.n] = m;
            v->links.to[v->links.n] = to;
            v->link[v->links.n++] = (float)((double)c->mb_per_s[m * n + to] / most_mb_per_s);
        }
        for (uint32_t g = 0; g < v->n_groups; g++) {
            v->places.from[v->places.n] = m;
            v->places.to[v->places.n++] = g;
        }
    }
}

static void find_tensors(ds_tag_view *v, double most_mb_per_s, ds_arena *arena) {
    const ds_tag_graph *graph = &v->problem->graph;
    size_t n = v->n_groups;
    double *bytes = DS_NEW_N(arena, double, n *n), *params = DS_NEW_N(arena, double, n);
    double scale = 1 / (v->total_us * most_mb_per_s);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const ds_tag_op *op = &graph->op[i];
        params[op->group] += (double)op->param_bytes;
        for (uint32_t k = 0; k < op->n_parents; k++) {
            const ds_tag_op *parent = &graph->op[op->parent[k]];
            bytes[parent->group * n + op->group] += (double)parent->result_bytes;
        }
    }
    for (size_t a = 0; a < n; a++) {
        v->group_bytes[2 * a] = squash(params[a] * scale);
        v->group_bytes[2 * a + 1] = squash(bytes[a * n + a] * scale);
        for (size_t b = 0; b < n; b++) {
            if (a == b || bytes[a * n + b] <= 0) continue;
            v->tensors.from[v->tensors.n] = (uint32_t)a;
            v->tensors.to[v->tensors.n] = (uint32_t)b;
            v->tensor[v->tensors.n++] = squash(bytes[a * n + b] * scale);
        }
    }
}

static ds_tag_edges room_for(ds_arena *arena, size_t n) {
    return (ds_tag_edges){0, DS_NEW_N(arena, uint32_t, n), DS_NEW_N(arena, uint32_t, n)};
}

ds_tag_view *ds_tag_view_new(const ds_tag_problem *problem, const ds_tag_action *actions,
                             uint32_t n_actions, ds_arena *arena) {
    ds_tag_view *v = DS_NEW(arena, ds_tag_view);
    size_t groups = problem->graph.n_groups, machines = problem->cluster.n_machines;
    int64_t most = 1;
    *v = (ds_tag_view){.problem = problem,
                       .actions = actions,
                       .n_actions = n_actions,
                       .n_groups = (uint32_t)groups,
                       .n_machines = (uint32_t)machines,
                       .group_size = DS_NEW_N(arena, uint32_t, groups),
                       .group_us = DS_NEW_N(arena, float, groups *machines *DS_TAG_N_BATCHES),
                       .group_bytes = DS_NEW_N(arena, float, groups * 2),
                       .machine = DS_NEW_N(arena, float, machines * 3),
                       .machine_gpus = DS_NEW_N(arena, uint64_t, machines),
                       .tensors = room_for(arena, groups * groups),
                       .places = room_for(arena, groups * machines),
                       .links = room_for(arena, machines * machines),
                       .tensor = DS_NEW_N(arena, float, groups *groups),
                       .link = DS_NEW_N(arena, float, machines *machines)};
    for (size_t i = 0; i < machines * machines; i++)
        if (problem->cluster.mb_per_s[i] > most) most = problem->cluster.mb_per_s[i];
    find_times(v, arena);
    find_machines(v, (double)most);
    find_tensors(v, (double)most, arena);
    return v;
}

uint32_t ds_tag_view_n_actions(const ds_tag_view *view) {
    return view->n_actions;
}

/* ---- what a partial deployment changes ---- */

/* Time and idleness of a group's operations, means. */
static void tell_groups(const ds_tag_state *s, ds_arena *arena, float *group) {
    const ds_tag_view *v = s->view;
    double *us = DS_NEW_N(arena, double, 2 * (size_t)v->n_groups);
    for (uint32_t i = 0; i < v->problem->graph.n_ops; i++) {
        uint32_t g = v->problem->graph.op[i].group;
        us[2 * g] += (double)s->outcome->op_us[i];
        us[2 * g + 1] += (double)s->outcome->op_idle_us[i];
    }
    for (uint32_t g = 0; g < v->n_groups; g++)
        for (uint32_t k = 0; k < 2; k++)
            group[(size_t)g * DS_TAG_GROUP_WIDTH + 9 + k] =
                squash(us[2 * g + k] / (fmax(1, v->group_size[g]) * v->total_us));
}

static void number_groups(const ds_tag_state *s, ds_arena *arena, float *group) {
    const ds_tag_view *v = s->view;
    for (uint32_t g = 0; g < v->n_groups; g++) {
        float *to = group + (size_t)g * DS_TAG_GROUP_WIDTH;
        for (uint32_t k = 0; k < DS_TAG_N_BATCHES; k++)
            for (uint32_t m = 0; m < v->n_machines; m++)
                to[k] += v->group_us[((size_t)g * v->n_machines + m) * DS_TAG_N_BATCHES + k] /
                         (float)v->n_machines;
        to[4] = v->group_bytes[2 * g];
        to[5] = v->group_bytes[2 * g + 1];
        if (g < s->depth && (uint32_t)s->action[g].way < DS_TAG_N_WAYS)
            to[6 + s->action[g].way] = 1;
        to[11] = g < s->depth;
        to[12] = g == s->depth;
    }
    tell_groups(s, arena, group);
}

static void number_machines(const ds_tag_state *s, float *machine) {
    const ds_tag_view *v = s->view;
    uint32_t gpu = 0;
    for (uint32_t m = 0; m < v->n_machines; m++) {
        const ds_tag_machine *of = &v->problem->cluster.machine[m];
        float *to = machine + (size_t)m * DS_TAG_MACHINE_WIDTH;
        memcpy(to, v->machine + 3 * (size_t)m, 3 * sizeof *to);
        for (uint32_t i = 0; i < of->n_gpus; i++, gpu++) {
            double share = (double)s->outcome->peak_bytes[gpu] / fmax(1, (double)of->memory_bytes);
            to[3] = fmaxf(to[3], squash(share));
            to[4] += (float)((double)s->outcome->busy_us[gpu] /
                             (fmax(1, (double)s->outcome->makespan_us) * of->n_gpus));
        }
    }
}

static void number_places(const ds_tag_state *s, float *place) {
    const ds_tag_view *v = s->view;
    for (uint32_t i = 0; i < v->places.n; i++) {
        uint32_t m = v->places.from[i], g = v->places.to[i];
        float *to = place + (size_t)i * DS_TAG_PLACE_WIDTH;
        memcpy(to, v->group_us + ((size_t)g * v->n_machines + m) * DS_TAG_N_BATCHES,
               DS_TAG_N_BATCHES * sizeof *to);
        to[4] = g < s->depth && s->action[g].gpus & v->machine_gpus[m];
    }
}

ds_tag_numbers ds_tag__numbers(const ds_tag_state *state, ds_arena *arena) {
    const ds_tag_view *v = state->view;
    ds_tag_numbers n = {.group = DS_NEW_N(arena, float, (size_t)v->n_groups *DS_TAG_GROUP_WIDTH),
                        .machine =
                            DS_NEW_N(arena, float, (size_t)v->n_machines *DS_TAG_MACHINE_WIDTH),
                        .place = DS_NEW_N(arena, float, (size_t)v->places.n *DS_TAG_PLACE_WIDTH)};
    number_groups(state, arena, n.group);
    number_machines(state, n.machine);
    number_places(state, n.place);
    return n;
}
