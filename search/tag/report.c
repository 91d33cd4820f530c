/* Reports about a deployment that was found. */
#include "search/tag/plan.h"

#include "ir/base/units.h"

#include <stdlib.h>
#include <string.h>

/* "v100 x 4, gtx x 8": the GPUs of an action, by machine. */
static void print_devices(const ds_tag_model *model, const ds_tag_action *action, ds_buf *out) {
    const ds_tag_cluster *c = &model->problem.cluster;
    const char *comma = "";
    for (uint32_t m = 0; m < c->n_machines; m++) {
        uint64_t here = ds_tag_gpus_of(c, UINT64_C(1) << m) & action->gpus;
        const char *path = model->machine[m], *end = strchr(path, '.');
        if (!here) continue;
        ds_buf_printf(out, "%s%.*s x %d", comma, end ? (int)(end - path) : (int)strlen(path), path,
                      __builtin_popcountll(here));
        comma = ", ";
    }
}

/* Shares of the first GPU of each machine. */
static void print_way(const ds_tag_model *model, const ds_tag_action *a, ds_buf *out) {
    const ds_tag_cluster *c = &model->problem.cluster;
    ds_buf_put(out, ds_tag_way_word(a->way));
    if (!a->share) return;
    ds_buf_put(out, ", shares");
    for (uint32_t m = 0, i = 0; m < c->n_machines; m++) {
        uint64_t here = ds_tag_gpus_of(c, UINT64_C(1) << m) & a->gpus;
        if (here) ds_buf_printf(out, " %lld", (long long)a->share[i]);
        i += (uint32_t)__builtin_popcountll(here);
    }
}

/* The end of the run of base groups of one action that begins with `first`. */
static uint32_t end_of_run(const ds_tag_model *m, const ds_tag_action *action, uint32_t first) {
    const ds_tag_action *a = &action[m->group_of[first]], *z;
    uint32_t end = first + 1;
    for (; end < m->n_base; end++) {
        z = &action[m->group_of[end]];
        if (z->gpus != a->gpus || z->way != a->way || z->share != a->share) break;
    }
    return end;
}

/* [group]; to be freed. */
static ds_tag_action *actions_of(const ds_tag_plan *p) {
    uint32_t n = p->model->problem.graph.n_groups;
    ds_tag_action *action = ds_xcalloc(n, sizeof *action);
    for (uint32_t g = 0; g < n; g++) action[g] = p->choices->action[p->choice[g]];
    return action;
}

static const char *const keys[DS_TAG_N_BASELINES] = {"data_parallel", "shares", "best_subset"};

static const char *name_of(const ds_tag_plan *p, uint32_t baseline) {
    static const char *const names[DS_TAG_N_BASELINES] = {"all devices with all_reduce",
                                                          "all devices, shares by time",
                                                          "the best set of machines alone"};
    const ds_tag_cluster *c = &p->model->problem.cluster;
    bool is_all = ds_tag_gpus_of(c, (UINT64_C(1) << c->n_machines) - 1) == p->choices->action->gpus;
    if (baseline == DS_TAG_ALL && !is_all) return "the widest set with all_reduce";
    return names[baseline];
}

/* How many times as fast as the fastest baseline that fits; 0: there is none. */
static double speed_of(const ds_tag_plan *p, const ds_tag_simulated *r) {
    ds_tag_baseline_id rival = ds_tag_plan_rival(p);
    bool is_known = rival != DS_TAG_N_BASELINES && !r->status && r->step_ps;
    return is_known ? (double)p->baseline[rival].step_ps / (double)r->step_ps : 0;
}

static void print_time(const char *what, const ds_tag_plan *p, const ds_tag_simulated *r,
                       ds_buf *out) {
    double speed = speed_of(p, r);
    ds_buf_printf(out, "  %-34s ", what);
    if (r->status || !r->step_ps) { /* refused, or not to be had of this batch */
        ds_buf_put(out, "none\n");
        return;
    }
    ds_print_ps(r->step_ps, out);
    if (speed > 0) ds_buf_printf(out, "  %.2fx", speed);
    ds_buf_printf(out, "%s\n", r->fits ? "" : ", does not fit");
}

void ds_tag_print_runs(const ds_tag_model *m, const ds_tag_action *action, ds_buf *out) {
    for (uint32_t b = 0, end; b < m->n_base; b = end) {
        const ds_tag_action *a = &action[m->group_of[b]];
        end = end_of_run(m, action, b);
        ds_buf_printf(out, "  %4u  ", end - b);
        print_devices(m, a, out);
        ds_buf_put(out, "  ");
        print_way(m, a, out);
        ds_buf_printf(out, "  %s", m->base[b].name);
        if (end - b > 1) ds_buf_printf(out, " … %s", m->base[end - 1].name);
        ds_buf_putc(out, '\n');
    }
}

void ds_tag_plan_print(const ds_tag_plan *p, ds_buf *out) {
    const ds_tag_graph *g = &p->model->problem.graph;
    ds_tag_baseline_id rival = ds_tag_plan_rival(p);
    ds_buf_printf(
        out,
        "%u operations in %u base groups, gathered to %u groups; %u actions, %llu "
        "playouts in rounds of up to %d, %llu simulations of baselines, playouts and changes\n\n",
        g->n_ops, p->model->n_base, g->n_groups, p->choices->n, (unsigned long long)p->n_playouts,
        DS_TAG_ROUND, (unsigned long long)p->n_simulated);
    for (uint32_t i = 0; i < DS_TAG_N_BASELINES; i++)
        print_time(name_of(p, i), p, &p->baseline[i], out);
    print_time("found", p, &p->best, out);
    if (p->best.status || !p->best.fits) ds_buf_put(out, "  no deployment that fits was found\n");
    ds_buf_printf(out, "  %-34s ", "the least computation");
    ds_print_ps((int64_t)(p->least_us * 1e6), out);
    if (!p->best.status && p->best.fits)
        ds_buf_printf(out, ", a gap of %.1f %%",
                      100 * (1 - p->least_us * 1e6 / (double)p->best.step_ps));
    ds_buf_putc(out, '\n');
    if (rival != DS_TAG_N_BASELINES)
        ds_buf_printf(out, "  a factor is against %s, the fastest that fits\n", name_of(p, rival));
    ds_buf_printf(out,
                  "  the text of the found deployment%s takes the same\n\n"
                  "  base groups  devices  way  operations\n",
                  p->n_checked ? ", and of one leaf in 256," : "");
    ds_tag_action *action = actions_of(p);
    ds_tag_print_runs(p->model, action, out);
    free(action);
}

static void put_simulated(const char *key, const ds_tag_simulated *r, ds_json *json) {
    ds_json_key(json, key);
    ds_json_begin_object(json);
    if (!r->status && r->step_ps) {
        ds_json_key_int(json, "step_time_ps", r->step_ps);
        ds_json_key_int(json, "peak_memory_bytes", r->peak_bytes);
        ds_json_key_bool(json, "fits", r->fits);
    }
    ds_json_end_object(json);
}

void ds_tag_put_runs(const ds_tag_model *m, const ds_tag_action *action, ds_json *json) {
    ds_json_key(json, "deployment");
    ds_json_begin_array(json);
    for (uint32_t b = 0, end; b < m->n_base; b = end) {
        const ds_tag_action *a = &action[m->group_of[b]];
        ds_buf devices = {0};
        end = end_of_run(m, action, b);
        print_devices(m, a, &devices);
        ds_json_begin_object(json);
        ds_json_key_string(json, "devices", devices.text ? devices.text : "");
        ds_json_key_string(json, "way", ds_tag_way_word(a->way));
        ds_json_key(json, "operations");
        ds_json_begin_array(json);
        for (uint32_t i = b; i < end; i++) ds_json_string(json, m->base[i].name);
        ds_json_end_array(json);
        ds_json_end_object(json);
        ds_buf_deinit(&devices);
    }
    ds_json_end_array(json);
}

void ds_tag_plan_put_json(const ds_tag_plan *p, ds_json *json) {
    ds_tag_baseline_id rival = ds_tag_plan_rival(p);
    ds_json_key_int(json, "operations", p->model->problem.graph.n_ops);
    ds_json_key_int(json, "groups", p->model->problem.graph.n_groups);
    ds_json_key_int(json, "actions", p->choices->n);
    ds_json_key_int(json, "playouts", (int64_t)p->n_playouts);
    ds_json_key_int(json, "simulations", (int64_t)p->n_simulated);
    ds_json_key_int(json, "leaves_checked", p->n_checked);
    for (uint32_t i = 0; i < DS_TAG_N_BASELINES; i++) put_simulated(keys[i], &p->baseline[i], json);
    put_simulated("found", &p->best, json);
    ds_json_key_int(json, "least_computation_ps", (int64_t)(p->least_us * 1e6));
    if (rival != DS_TAG_N_BASELINES) {
        ds_json_key_string(json, "best_baseline", keys[rival]);
        ds_json_key_double(json, "times_as_fast", speed_of(p, &p->best));
    }
    ds_tag_action *action = actions_of(p);
    ds_tag_put_runs(p->model, action, json);
    free(action);
}
