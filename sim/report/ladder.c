/* A step on other machines: terms left out or statements added one after the other, and the step's
 * sensitivity to each resource.
 *
 * The derivative by a resource comes from the critical path: each segment of the unchanged run is as
 * much longer or shorter as its task is by the costs of the changed run. That is the change of the
 * step as long as the path stays the same, since then the step is the sum of these segments. Time
 * by which others made a segment longer (on shared links, or compute beside a transfer) changes in
 * proportion to the segment's bytes or compute. */
#include "ir/base/units.h"
#include "sim/coll/coll.h"
#include "sim/report/internal.h"

/* ---- sensitivity ---- */

static int64_t cost_of(const ds_plan *plan, uint32_t task) {
    uint32_t activity = plan->task_activity[task];
    return activity == DS_NONE ? plan->task_ps[task] : plan->activities[activity].ps;
}

/* The bytes of a transfer alone; the rest of its time no other transfer makes longer. */
static int64_t flow_of(const ds_plan *plan, uint32_t task) {
    uint32_t activity = plan->task_activity[task];
    const ds_group *g = activity == DS_NONE ? NULL : plan->activities[activity].group;
    int64_t flow_ps = 0;
    if (!g) return plan->task_ps[task];
    for (uint32_t p = 0; p < g->n_phases; p++) flow_ps += g->times[p].flow_ps;
    return flow_ps;
}

static int64_t change_of(const ds_segment *s, const ds_plan *base, const ds_plan *changed) {
    if (s->kind == DS_TIME_HOST)
        return changed->task_issue_ps[s->task] - base->task_issue_ps[s->task];
    if (s->kind != DS_TIME_COMPUTE && s->kind != DS_TIME_COMM) return 0;
    int64_t more = cost_of(changed, s->task) - cost_of(base, s->task);
    int64_t before = flow_of(base, s->task), after = flow_of(changed, s->task);
    int64_t shared_ps = s->end_ps - s->start_ps - cost_of(base, s->task);
    return before ? more + (int64_t)((ds_i128)(after - before) * shared_ps / before) : more;
}

static bool same_path(const ds_critical_path *a, const ds_critical_path *b) {
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->at[i].kind != b->at[i].kind || a->at[i].task != b->at[i].task) return false;
    return true;
}

/* Did something else make a segment longer than its task is alone? */
static bool is_shared(const ds_critical_path *path, const ds_plan *plan) {
    for (uint32_t i = 0; i < path->n; i++) {
        const ds_segment *s = &path->at[i];
        bool runs = s->kind == DS_TIME_COMPUTE || s->kind == DS_TIME_COMM;
        if (runs && s->end_ps - s->start_ps != cost_of(plan, s->task)) return true;
    }
    return false;
}

ds_sensitivity ds_sensitivity_of(const ds_result *base, const ds_result *changed,
                                 const char *resource) {
    ds_sensitivity row = {.resource = resource, .run_ps = changed->run.step_ps - base->run.step_ps};
    ds_critical_path path, other;
    ds_critical_path_find(base, &path);
    ds_critical_path_find(changed, &other);
    bool alike = base->plan->n_tasks == changed->plan->n_tasks &&
                 base->plan->n_classes == changed->plan->n_classes;
    bool shared = is_shared(&path, base->plan) || is_shared(&other, changed->plan);
    row.path = !alike || !same_path(&path, &other) ? DS_PATH_OTHER
               : shared                            ? DS_PATH_SHARED
                                                   : DS_PATH_SAME;
    for (uint32_t i = 0; i < path.n && alike; i++)
        row.path_ps += change_of(&path.at[i], base->plan, changed->plan);
    if (!alike) row.path_ps = row.run_ps;
    ds_critical_path_deinit(&path);
    ds_critical_path_deinit(&other);
    return row;
}

static const char *const path_words[] = {
    [DS_PATH_SAME] = "the same", [DS_PATH_SHARED] = "shared", [DS_PATH_OTHER] = "another"};

void ds_report_sensitivity(const ds_sensitivity *rows, uint32_t n, int64_t step_ps, ds_buf *out) {
    ds_buf_printf(out, "Step %s, with 1 %% more of\n", ds_report__ps(step_ps).s);
    ds_buf_printf(out, "  %-28s %12s %12s %10s  %s\n", "", "simulated", "by the path", "of step",
                  "critical path");
    for (uint32_t i = 0; i < n; i++)
        ds_buf_printf(out, "  %-28s %12s %12s %+8.3f %%  %s\n", rows[i].resource,
                      ds_report__signed(rows[i].run_ps, ds_report__ps).s,
                      ds_report__signed(rows[i].path_ps, ds_report__ps).s,
                      100 * ds_ratio((double)rows[i].run_ps, (double)step_ps),
                      path_words[rows[i].path]);
}

void ds_report_sensitivity_json(const ds_sensitivity *rows, uint32_t n, int64_t step_ps,
                                ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    ds_json_key_int(&json, "step_time_ps", step_ps);
    ds_json_key(&json, "one_percent_more");
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < n; i++) {
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "resource", rows[i].resource);
        ds_json_key_int(&json, "simulated_ps", rows[i].run_ps);
        ds_json_key_int(&json, "by_path_ps", rows[i].path_ps);
        ds_json_key_string(&json, "critical_path", path_words[rows[i].path]);
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}

/* ---- one change after the other ---- */

static void put_rung(const char *change, int64_t before, int64_t after, ds_buf *out) {
    ds_buf_printf(out, "  %-28s %11s %11s %12s", change, ds_report__ps(before).s,
                  ds_report__ps(after).s, ds_report__signed(after - before, ds_report__ps).s);
}

void ds_report_ladder(const ds_rung *rungs, uint32_t n, bool without, ds_buf *out) {
    int64_t first = rungs[0].step_ps, last = rungs[n - 1].step_ps;
    ds_buf_printf(out, "%-30s %11s %11s %12s  %s\n", without ? "Without" : "What if", "before",
                  "after", "difference", "of step");
    for (uint32_t i = 1; i <= n; i++) {
        bool sum = i == n;
        put_rung(sum ? "in all" : rungs[i].change, sum ? first : rungs[i - 1].step_ps,
                 sum ? last : rungs[i].step_ps, out);
        int64_t difference = sum ? last - first : rungs[i].step_ps - rungs[i - 1].step_ps;
        ds_buf_printf(out, " %+7.2f %%\n", 100 * ds_ratio((double)difference, (double)first));
    }
    if (without) ds_buf_printf(out, "  %-28s %11s %11s\n", "the rest", "", ds_report__ps(last).s);
}

void ds_report_ladder_json(const ds_rung *rungs, uint32_t n, bool without, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    ds_json_key_int(&json, "step_time_ps", rungs[0].step_ps);
    ds_json_key(&json, without ? "without" : "what_if");
    ds_json_begin_array(&json);
    for (uint32_t i = 1; i < n; i++) {
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "change", rungs[i].change);
        ds_json_key_int(&json, "before_ps", rungs[i - 1].step_ps);
        ds_json_key_int(&json, "after_ps", rungs[i].step_ps);
        ds_json_key_int(&json, "difference_ps", rungs[i].step_ps - rungs[i - 1].step_ps);
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_json_key_int(&json, "remaining_ps", rungs[n - 1].step_ps);
    ds_json_key_int(&json, "difference_ps", rungs[n - 1].step_ps - rungs[0].step_ps);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}
