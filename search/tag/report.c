/* Reports about a deployment that was found. */
#include "search/tag/plan.h"

#include "ir/base/units.h"

#include <string.h>

void ds_tag_print_devices(const ds_tag_model *model, const ds_tag_action *action, ds_buf *out) {
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

static uint32_t action_of(const ds_tag_plan *p, uint32_t base) {
    return p->choice[p->model->group_of[base]];
}

static uint32_t end_of_run(const ds_tag_plan *p, uint32_t first) {
    uint32_t end = first + 1;
    while (end < p->model->n_base && action_of(p, end) == action_of(p, first)) end++;
    return end;
}

static void print_time(const char *what, const ds_tag_plan *p, const ds_tag_simulated *r,
                       ds_buf *out) {
    ds_buf_printf(out, "  %-34s ", what);
    if (r->status || !r->step_ps) { /* refused, or not to be had of this batch */
        ds_buf_put(out, "none\n");
        return;
    }
    ds_print_ps(r->step_ps, out);
    if (p->base.step_ps)
        ds_buf_printf(out, "  %.2fx", (double)p->base.step_ps / (double)r->step_ps);
    ds_buf_printf(out, "%s\n", r->fits ? "" : ", does not fit");
}

static void print_runs(const ds_tag_plan *p, ds_buf *out) {
    uint32_t n;
    const ds_tag_action *actions = ds_tag_fast_actions(p->fast, &n);
    for (uint32_t b = 0, end; b < p->model->n_base; b = end) {
        const ds_tag_action *a = &actions[action_of(p, b)];
        end = end_of_run(p, b);
        ds_buf_printf(out, "  %4u  ", end - b);
        ds_tag_print_devices(p->model, a, out);
        ds_buf_put(out, "  ");
        print_way(p->model, a, out);
        ds_buf_printf(out, "  %s", p->model->base[b].name);
        if (end - b > 1) ds_buf_printf(out, " … %s", p->model->base[end - 1].name);
        ds_buf_putc(out, '\n');
    }
}

void ds_tag_plan_print(const ds_tag_plan *p, ds_buf *out) {
    const ds_tag_graph *g = &p->model->problem.graph;
    const ds_tag_cluster *c = &p->model->problem.cluster;
    uint32_t n_actions;
    const ds_tag_action *actions = ds_tag_fast_actions(p->fast, &n_actions);
    ds_buf_printf(out,
                  "%u operations in %u base groups, gathered to %u groups; %u actions, %llu "
                  "playouts, %llu estimates, %llu simulations\n\n",
                  g->n_ops, p->model->n_base, g->n_groups, n_actions,
                  (unsigned long long)p->n_playouts, (unsigned long long)p->n_estimates,
                  (unsigned long long)p->n_simulated);
    bool is_all = ds_tag_gpus_of(c, (UINT64_C(1) << c->n_machines) - 1) == actions[0].gpus;
    print_time(is_all ? "all devices with all_reduce" : "the widest set with all_reduce", p,
               &p->base, out);
    print_time("the best set of machines alone", p, &p->subset, out);
    print_time("found", p, &p->best, out);
    ds_buf_printf(out, "  %-34s ", "estimate of the found deployment");
    ds_print_ps((int64_t)(p->best_estimate_us * 1e6), out);
    ds_buf_printf(out, ", %+.2f %%\n",
                  100 * (p->best_estimate_us / ((double)p->best.step_ps * 1e-6) - 1));
    if (p->check.n > 0)
        ds_buf_printf(out,
                      "  %u lea%s of the tree simulated whole: %u exact, %u within 1 %%, median "
                      "error %.1f %%, worst %.1f %%\n",
                      p->check.n, p->check.n == 1 ? "f" : "ves", p->check.n_exact, p->check.n_near,
                      100 * p->check.median, 100 * p->check.worst);
    ds_buf_put(out, "\n  base groups  devices  way  operations\n");
    print_runs(p, out);
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

static void put_devices(const ds_tag_model *model, const ds_tag_action *action, ds_json *json) {
    ds_buf text = {0};
    ds_tag_print_devices(model, action, &text);
    ds_json_key_string(json, "devices", text.text ? text.text : "");
    ds_json_key_string(json, "way", ds_tag_way_word(action->way));
    ds_buf_deinit(&text);
}

void ds_tag_plan_put_json(const ds_tag_plan *p, ds_json *json) {
    uint32_t n;
    const ds_tag_action *actions = ds_tag_fast_actions(p->fast, &n);
    ds_json_key_int(json, "operations", p->model->problem.graph.n_ops);
    ds_json_key_int(json, "groups", p->model->problem.graph.n_groups);
    ds_json_key_int(json, "actions", n);
    ds_json_key_int(json, "playouts", (int64_t)p->n_playouts);
    ds_json_key_int(json, "estimates", (int64_t)p->n_estimates);
    ds_json_key_int(json, "simulations", (int64_t)p->n_simulated);
    put_simulated("data_parallel", &p->base, json);
    put_simulated("best_subset", &p->subset, json);
    put_simulated("found", &p->best, json);
    ds_json_key_double(json, "estimate_us", p->best_estimate_us);
    ds_json_key(json, "leaves_checked");
    ds_json_begin_object(json);
    ds_json_key_int(json, "n", p->check.n);
    ds_json_key_int(json, "exact", p->check.n_exact);
    ds_json_key_int(json, "within_1_percent", p->check.n_near);
    ds_json_key_double(json, "median_error", p->check.median);
    ds_json_key_double(json, "worst_error", p->check.worst);
    ds_json_end_object(json);
    ds_json_key(json, "deployment");
    ds_json_begin_array(json);
    for (uint32_t b = 0, end; b < p->model->n_base; b = end) {
        end = end_of_run(p, b);
        ds_json_begin_object(json);
        put_devices(p->model, &actions[action_of(p, b)], json);
        ds_json_key(json, "operations");
        ds_json_begin_array(json);
        for (uint32_t i = b; i < end; i++) ds_json_string(json, p->model->base[i].name);
        ds_json_end_array(json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}
