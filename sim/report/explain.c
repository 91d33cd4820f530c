/* How the cost of an op was found: work and look-up of a compute op on each kind of device that
 * runs the op; algorithm, phases and profile terms of a communication. */
#include "ir/base/units.h"
#include "sim/coll/coll.h"
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MEMBERS 8

/* Glob with `*` (any run) and `?` (any one character). */
static bool matches(const char *pattern, const char *text) {
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*pattern == *text || *pattern == '?') {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* Does the pattern match the mnemonic, the path with or without loop indices, or its last part? */
static bool is_meant(const ds_plan *plan, uint32_t inst, const char *pattern, ds_buf *scratch) {
    const ds_record *r = plan->records.at[plan->insts.at[inst].record];
    if (matches(pattern, r->label)) return true;
    scratch->n = 0;
    ds_plan_path(plan, inst, scratch);
    const char *slash = strrchr(scratch->text, '/');
    if (matches(pattern, scratch->text) || (slash && matches(pattern, slash + 1))) return true;
    scratch->n = 0;
    ds_report__short_path(plan, inst, scratch);
    return matches(pattern, scratch->text);
}

static void put_class(const ds_plan *plan, uint32_t cls, ds_buf *out) {
    ds_buf_printf(out, "on %s", ds_report__device(plan, cls));
    if (plan->classes[cls].n_devices > 1)
        ds_buf_printf(out, " (%u alike)", plan->classes[cls].n_devices);
    ds_buf_put(out, ": ");
}

/* ---- compute ---- */

/* The degradation of the device, and the op's time on the degraded device. */
static void put_degraded(const ds_plan *plan, uint32_t device, int64_t ps, ds_buf *out) {
    uint32_t n;
    const ds_topo_degraded *all = ds_topo_degraded_all(plan->topo, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].is_link || all[i].i != device) continue;
        ds_buf_put(out, "  degraded: ");
        ds_topo_print_degraded(plan->topo, &all[i], out);
        ds_buf_printf(out, ": %s (%lld ps)\n", ds_report__ps(ps).s, (long long)ps);
    }
}

/* On the record's class number `pos`. */
static void explain_on(const ds_plan *plan, const ds_record *r, uint32_t pos, ds_buf *out) {
    const ds_class *cls = &plan->classes[r->classes[pos]];
    const ds_variant *v = &r->variants[r->class_variant[pos]];
    put_class(plan, r->classes[pos], out);
    if (v->cost.origin == DS_COST_GIVEN) {
        ds_buf_printf(out, "%s, given in the program\n", ds_report__ps(v->ps).s);
        return;
    }
    ds_cost cost;
    ds_cost_query query = {.profiles = plan->profiles,
                           .kind = cls->kind,
                           .profile = cls->profile,
                           .op = r->label,
                           .work = &v->work,
                           .loc = r->op->loc,
                           .kernels = ds_plan_kernels_of(plan, r->op),
                           .extra_launches = v->extra_launches,
                           .passes = v->passes,
                           .n_devices = v->n_used,
                           .kernel = plan->attention_kernel};
    ds_cost_op(&query, plan->cost_mode, &cost, out, NULL);
    ds_cost_clock(&query, ds_topo_device_clock(plan->topo, cls->device),
                  ds_topo_device_power_mw(plan->topo, cls->device), &cost, out, NULL);
    put_degraded(plan, cls->device, v->ps, out);
    if (v->ps != cost.ps && ds_profiles_rate_ppb(plan->profiles, DS_RESOURCE_COMPUTE) +
                                    ds_profiles_rate_ppb(plan->profiles, DS_RESOURCE_MEMORY) !=
                                2 * DS_WHAT_IF_WHOLE)
        ds_buf_printf(out, "  what if: %s (%lld ps)\n", ds_report__ps(v->ps).s, (long long)v->ps);
}

static void explain_compute(const ds_plan *plan, const ds_record *r, ds_buf *out) {
    for (uint32_t pos = 0; pos < r->n_classes; pos++) explain_on(plan, r, pos, out);
}

/* ---- communication ---- */

static void put_members(const ds_plan *plan, const ds_group *g, ds_buf *out) {
    for (uint32_t i = 0; i < g->n_devices && i < MAX_MEMBERS; i++)
        ds_buf_printf(out, "%s%s", i ? ", " : "", ds_topo_device_path(plan->topo, g->devices[i]));
    if (g->n_devices > MAX_MEMBERS) ds_buf_printf(out, " and %u more", g->n_devices - MAX_MEMBERS);
}

static void explain_phase(const ds_plan *plan, const ds_group *g, const ds_phase *phase,
                          uint32_t number, ds_buf *out) {
    ds_phase flow = *phase;
    flow.steps = 0;
    int64_t flow_ps = 0;
    (void)ds_phase_alone_ps(plan->topo, &flow, g->terms.efficiency_q32, &flow_ps, NULL);
    ds_buf_printf(out, "  phase %u: %lld step%s of %s", number, (long long)phase->steps,
                  phase->steps == 1 ? "" : "s", ds_report__ps(phase->alpha_ps).s);
    if (g->terms.step_ps)
        ds_buf_printf(out, " (route) + %s (profile)", ds_report__ps(g->terms.step_ps).s);
    int64_t wait_ps = g->times[number - 1].wait_ps; /* with equal hops, the time of the steps */
    if (wait_ps != phase->steps * (phase->alpha_ps + g->terms.step_ps))
        ds_buf_printf(out, ", %s beyond the flow", ds_report__ps(wait_ps).s);
    const ds_load *load = ds_phase_slowest(plan->topo, phase);
    if (load) {
        const ds_topo_link *link = ds_topo_link_at(plan->topo, load->link);
        ds_buf_printf(out, "; then %s over the slowest link, %s to %s, at %s",
                      ds_report__bytes((int64_t)(load->bytes_q32 >> 32)).s,
                      ds_topo_vertex_path(plan->topo, link->from),
                      ds_topo_vertex_path(plan->topo, link->to),
                      ds_report__rate((double)link->bytes_per_s, "B/s").s);
        if (g->terms.efficiency_q32 >> 32 == 0)
            ds_buf_printf(out, " x efficiency %.4g",
                          (double)g->terms.efficiency_q32 / 4294967296.0);
        int64_t cap = ds_phase_cap(plan->topo, phase);
        if (cap)
            ds_buf_printf(out, ", a message at no more than %s",
                          ds_report__rate((double)cap, "B/s").s);
        ds_buf_printf(out, ": %s", ds_report__ps(flow_ps).s);
    }
    ds_buf_putc(out, '\n');
}

static void explain_phases(const ds_plan *plan, const ds_group *g, ds_buf *out) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_phase *phases;
    uint32_t n;
    ds_status status =
        ds_coll_phases(plan->topo, g->request, g->algorithm, &arena, &phases, &n, NULL);
    for (uint32_t i = 0; i < n && status == DS_OK; i++)
        explain_phase(plan, g, &phases[i], i + 1, out);
    ds_arena_deinit(&arena);
}

/* The times of the other algorithms, where the program leaves the choice open. */
static void explain_choice(const ds_plan *plan, const ds_group *g, ds_buf *out) {
    const char *names[DS_COLL_MOST_ALGORITHMS];
    uint32_t n = ds_coll_candidates(g->request, names);
    if (n == 1 && g->request->algorithm) {
        ds_buf_put(out, "  the program names the algorithm\n");
        return;
    }
    ds_arena arena;
    ds_arena_init(&arena);
    bool any = false;
    for (uint32_t i = 0; i < n && n > 1; i++) {
        ds_coll_request asked = *g->request;
        asked.algorithm = names[i];
        ds_coll_choice choice;
        if (ds_coll_choose(plan->topo, &asked, &g->terms, &arena, &choice, NULL) != DS_OK) continue;
        ds_buf_printf(out, "%s%s %s", any ? ", " : "  the fastest of ", choice.algorithm,
                      ds_report__ps(choice.ps).s);
        any = true;
    }
    ds_arena_deinit(&arena);
    if (any) ds_buf_putc(out, '\n');
}

static void put_indented(const char *text, ds_buf *out) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        ds_buf_put(out, "  ");
        ds_buf_put_n(out, text, n);
        ds_buf_putc(out, '\n');
        text += n + (text[n] == '\n');
    }
}

/* The profiles' own words, once for each profile in the group. */
static void explain_terms(const ds_plan *plan, const ds_group *g, ds_buf *out) {
    uint32_t last = DS_NONE;
    ds_coll_links links;
    ds_buf text = {0};
    ds_coll_links_of(plan->topo, g->request, &links, NULL);
    for (uint32_t i = 0; i < g->n_devices; i++) {
        uint32_t profile = plan->profile_of[g->devices[i]];
        if (profile == last || profile == 0) continue;
        last = profile;
        ds_coll_cost cost;
        ds_coll_demand demand = {ds_op_name(g->request->op), g->n_devices, g->bytes, links};
        ds_cost_collective(plan->profiles, profile, &demand, &cost, &text, NULL);
    }
    put_indented(text.n ? text.text : "no profile: latency and bandwidth of the links alone", out);
    ds_buf_deinit(&text);
}

static void explain_group(const ds_plan *plan, const ds_record *r, const ds_group *g, ds_buf *out) {
    uint32_t n_groups = r->n_groups * (1 + g->n_images);
    if (n_groups > 1) ds_buf_printf(out, "one of %u groups: ", n_groups);
    ds_buf_printf(out, "%s over %u (", ds_report__algorithm(g), g->n_devices);
    put_members(plan, g, out);
    ds_buf_printf(out, "), %lld bytes: %s (%lld ps)\n", (long long)g->bytes, ds_report__ps(g->ps).s,
                  (long long)g->ps);
    if (!g->request) {
        ds_buf_put(out, "  given in the program\n");
        return;
    }
    explain_choice(plan, g, out);
    explain_terms(plan, g, out);
    explain_phases(plan, g, out);
    ds_buf_printf(out, "  links of topology @%s\n", ds_topo_name(plan->topo));
}

static void explain_comm(const ds_plan *plan, uint32_t inst, ds_buf *out) {
    const ds_record *r = plan->records.at[plan->insts.at[inst].record];
    const ds_group *last = NULL;
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        const ds_group *g = ds_report__group(plan, plan->insts.at[inst].first_task + pos);
        if (g == last) continue; /* classes that meet in one group */
        last = g;
        explain_group(plan, r, g, out);
    }
}

void ds_report__explain_task(const ds_plan *plan, uint32_t task, ds_buf *out) {
    const ds_record *record = ds_plan_task_record(plan, task);
    const ds_group *group = ds_report__group(plan, task);
    if (group)
        explain_group(plan, record, group, out);
    else
        explain_on(plan, record, ds_record_class_pos(record, plan->task_class[task]), out);
}

bool ds_report_explain(const ds_result *r, const char *pattern, ds_buf *out) {
    const ds_plan *plan = r->plan;
    bool *done = ds_xcalloc(plan->records.n, sizeof *done), any = false;
    ds_buf path = {0};
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *record = plan->records.at[plan->insts.at[i].record];
        if (record->kind == DS_REC_INPUT || done[plan->insts.at[i].record]) continue;
        if (!is_meant(plan, i, pattern, &path)) continue;
        done[plan->insts.at[i].record] = true;
        ds_buf_printf(out, "%s%s ", any ? "\n" : "", record->label);
        ds_report__short_path(plan, i, out);
        ds_buf_putc(out, '\n');
        if (record->kind == DS_REC_COMPUTE)
            explain_compute(plan, record, out);
        else
            explain_comm(plan, i, out);
        any = true;
    }
    ds_buf_deinit(&path);
    free(done);
    return any;
}
