/* The summary for a terminal: answers to a student's first questions, in the order of asking. */
#include "ir/base/units.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "sim/report/costs.h"
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 24
#define MAX_OPS   8

/* ---- head ---- */

static void put_cluster(const ds_result *r, const ds_kind_total *kinds, uint32_t n, ds_buf *out) {
    const ds_plan *plan = r->plan;
    uint32_t used = 0;
    ds_buf_put(out, "  cluster      ");
    for (uint32_t k = 0; k < n; k++) {
        used += kinds[k].n_devices;
        ds_buf_printf(out, "%s%u x %s", k ? ", " : "", kinds[k].n_devices,
                      ds_profiles_kind(plan->profiles, kinds[k].kind)->name);
    }
    ds_buf_printf(out, " on @%s", ds_topo_name(plan->topo));
    if (used < plan->n_devices) ds_buf_printf(out, ", %u idle", plan->n_devices - used);
    ds_buf_putc(out, '\n');
}

/* The strategy and the passes that made the step of a model. */
static void put_passes(const ds_result *r, ds_buf *out) {
    if (!r->step) return;
    ds_buf_put(out, "  strategy     ");
    ds_report__strategy(r->step, out);
    ds_buf_put(out, r->step->train.on ? "\n  passes      " : "; forward alone\n  passes      ");
    for (uint32_t i = 0; i < DS_PASS_COUNT; i++)
        if (r->step->done >> i & 1) ds_buf_printf(out, " %s", ds_pass_name((ds_pass_id)i));
    ds_buf_putc(out, '\n');
}

/* The settings that come from the framework, not from the scenario. */
static void put_framework(const ds_result *r, ds_buf *out) {
    ds_buf settings = {0};
    const char *name = "";
    bool assumed = r->source->unit->assumes_framework;
    bool any =
        r->step && ds_preset_print(r->source, &r->step->train, &r->step->strategy, &settings);
    if (r->step && (any || assumed) &&
        ds_scenario_text(r->source, "", "framework", &name, NULL) == DS_OK)
        ds_buf_printf(out, "  framework    %s%s%s%s\n", name,
                      assumed ? " (default of the profile)" : "", any ? ": " : "",
                      any ? settings.text : "");
    ds_buf_deinit(&settings);
}

/* Of each kind where its costs come from. */
static void put_costs(const ds_result *r, ds_buf *out) {
    uint32_t n;
    ds_cost_source *sources = ds_report__cost_sources(r, &n);
    ds_report_cost_lines(r->plan->profiles, sources, n, out);
    free(sources);
}

static void put_size(const ds_result *r, ds_buf *out) {
    ds_buf_printf(out, "  simulated    %lld op instance%s", (long long)r->metrics.op_instances,
                  r->metrics.op_instances == 1 ? "" : "s");
    if (r->metrics.op_instances != r->plan->n_tasks)
        ds_buf_printf(out, " as %u task%s: %u device class%s", r->plan->n_tasks,
                      r->plan->n_tasks == 1 ? "" : "s", r->plan->n_classes,
                      r->plan->n_classes == 1 ? "" : "es");
    ds_buf_putc(out, '\n');
}

static void put_kind(const ds_result *r, const ds_kind_total *k, ds_buf *out) {
    const ds_profiles *profiles = r->plan->profiles;
    double device_s = (double)r->run.step_ps * 1e-12 * k->n_devices;
    ds_buf_printf(out, "  %s: %s a device, ", ds_profiles_kind(profiles, k->kind)->name,
                  ds_report__rate(ds_ratio(k->flop, device_s), "FLOP/s").s);
    bool bound = ds_result_is_bound(r, k->kind);
    if (k->peak_is_known)
        ds_buf_printf(out, "MFU %s%s", bound ? "at most " : "",
                      ds_report__percent(ds_ratio(k->peak_s, device_s)).s);
    else
        ds_buf_put(out, "peak not known");
    if (bound)
        ds_buf_printf(out, ": data sheet's peaks, %s\n",
                      k->profile ? "a profile of links alone" : "no profile");
    else if (k->profile)
        ds_buf_printf(out, "; profile %s\n", ds_profile_name(profiles, k->profile));
    else
        ds_buf_put(out, "; no profile\n");
}

static void put_throughput(const ds_result *r, ds_buf *out) {
    ds_buf_put(out, "  throughput   ");
    ds_buf_printf(out, r->metrics.throughput_per_s < 1000 ? "%.4g" : "%.0f",
                  r->metrics.throughput_per_s);
    const char *what = r->counts_samples ? "samples" : "steps";
    if (r->n_jobs)
        ds_buf_printf(out, " %s/s (all jobs)\n", what);
    else if (r->counts_samples)
        ds_buf_printf(out, " samples/s (batch %lld)\n", (long long)r->plan->samples);
    else
        ds_buf_put(out, " steps/s\n");
}

/* Where the cache grows: a few of the first turns. */
static void put_cache(const ds_token_times *t, ds_buf *out) {
    enum { SHOWN = 6 };
    ds_buf_printf(out, "  cache        %s a device at the end", ds_report__bytes(t->cache_bytes).s);
    if (t->n_cache)
        ds_buf_printf(out, ", in %u step%s: at %s =", t->n_cache, t->n_cache == 1 ? "" : "s",
                      t->dim);
    for (uint32_t i = 0; i < t->n_cache && i < SHOWN; i++)
        ds_buf_printf(out, "%s %lld", i ? "," : "", (long long)t->cache[i].turn);
    ds_buf_put(out, t->n_cache > SHOWN ? ", …\n" : "\n");
}

/* The dim that counts tokens: ir/strategy/tokens.h. */
static void put_tokens(const ds_result *r, ds_buf *out) {
    const ds_token_times *t = r->tokens;
    if (!t) return;
    ds_buf_printf(out, "  first token  %s (end of %s = %lld)\n", ds_report__ps(t->first_ps).s,
                  t->dim, (long long)t->prompt - 1);
    if (t->n)
        ds_buf_printf(
            out, "  each token   %s in the mean of %u, the last %s; %.4g tokens/s (batch %lld)\n",
            ds_report__ps((int64_t)(t->mean_ps + 0.5)).s, t->n, ds_report__ps(t->ps[t->n - 1]).s,
            t->per_s, (long long)t->batch);
    put_cache(t, out);
}

/* Work on rows of experts' buffers that no token uses: MFU does not count it. */
static void put_padding(const ds_result *r, ds_buf *out) {
    if (r->padding_flop <= 0) return;
    ds_buf_printf(out, "  padding      %s of a step's products are on rows that no token uses\n",
                  ds_report__percent(r->padding_flop / (r->model_flop + r->padding_flop)).s);
}

static bool has_profile(const ds_plan *plan) {
    for (uint32_t c = 0; c < plan->n_classes; c++)
        if (plan->profile_of[c]) return true;
    return false;
}

/* "35.1 .. 37.2 ms for nine in ten", where fits with known residuals have a part; else, where a
 * profile has no residuals, the share of the step without an interval. */
static void put_uncertainty(const ds_result *r, ds_buf *out) {
    ds_uncertainty u = ds_result_uncertainty(r);
    if (!u.covered_ps && u.unknown_ps && has_profile(r->plan))
        ds_buf_printf(
            out,
            "  no interval: %s of the step by the catalogue, links alone, or fits without "
            "residuals\n",
            ds_report__percent(ds_ratio((double)u.unknown_ps, (double)r->run.step_ps)).s);
    if (!u.covered_ps) return;
    ds_buf_printf(out, "  90 %% within   %s .. %s, by the %s", ds_report__ps(u.low_ps).s,
                  ds_report__ps(u.high_ps).s,
                  u.by_parts ? "errors of generic profiles on other clusters"
                             : "residuals of the fits");
    if (u.unknown_ps)
        ds_buf_printf(out, "; %s of the step has no measured error",
                      ds_report__percent(ds_ratio((double)u.unknown_ps, (double)r->run.step_ps)).s);
    ds_buf_putc(out, '\n');
}

static void put_head(const ds_result *r, ds_buf *out) {
    const ds_plan *plan = r->plan;
    const char *path = r->source->unit->modules.at[0]->path;
    uint32_t n;
    ds_kind_total *kinds = ds_kind_totals(r, &n);
    if (plan->title) ds_buf_printf(out, "%s\n", plan->title);
    ds_buf_printf(out, "%s%s%s\n\n", plan->title ? "(" : "", path, plan->title ? ")" : "");
    put_cluster(r, kinds, n, out);
    ds_topo_list_clocks(plan->topo, "clock", out);
    ds_topo_list_degraded(plan->topo, "degraded", out);
    put_passes(r, out);
    put_costs(r, out);
    put_framework(r, out);
    put_size(r, out);
    bool bound = false;
    for (uint32_t k = 0; k < n; k++) bound = bound || ds_result_is_bound(r, kinds[k].kind);
    ds_buf_printf(out, "  %s    %s%s%s\n", r->n_jobs ? "makespan " : "step time",
                  ds_report__ps(r->run.step_ps).s, r->n_jobs ? " (until all jobs have ended)" : "",
                  bound ? ", a lower bound" : "");
    put_uncertainty(r, out);
    put_throughput(r, out);
    put_tokens(r, out);
    for (uint32_t k = 0; k < n; k++) put_kind(r, &kinds[k], out);
    put_padding(r, out);
    free(kinds);
}

/* ---- time ---- */

static void put_bar(const char *what, int64_t ps, int64_t whole, ds_buf *out) {
    double share = ds_ratio((double)ps, (double)whole);
    int length = (int)(share * BAR_WIDTH + 0.5);
    if (ps > 0 && length == 0) length = 1;
    ds_buf_printf(out, "  %-22s%10s %9s%s", what, ds_report__ps(ps).s, ds_report__percent(share).s,
                  length ? "  " : "");
    for (int i = 0; i < length; i++) ds_buf_putc(out, '#');
    ds_buf_putc(out, '\n');
}

static void put_time(const ds_result *r, ds_buf *out) {
    const ds_account *a = &r->accounts[r->critical];
    ds_buf_printf(out, "\nTime of %s, the last to end", ds_report__device(r->plan, r->critical));
    ds_report__alike(r->plan, r->critical, out);
    ds_buf_putc(out, '\n');
    put_bar("compute", a->compute_ps, r->run.step_ps, out);
    put_bar("exposed communication", a->exposed_comm_ps, r->run.step_ps, out);
    put_bar("idle", a->idle_ps, r->run.step_ps, out);
    if (r->plan->overhead_ps)
        put_bar("  iteration overhead", r->plan->overhead_ps, r->run.step_ps, out);
    ds_buf_printf(out, "  %-22s%10s  (under compute)\n", "hidden communication",
                  ds_report__ps(a->hidden_comm_ps).s);
    ds_buf_printf(out, "  %-22s%20s  (bubble)\n", "idle, all devices",
                  ds_report__percent(r->metrics.bubble_fraction).s);
}

/* " (fitted curves)": the source of the roofline's rates. */
static void put_roofline(const ds_account *a, ds_buf *out) {
    int64_t bare_ps = a->origin_ps[DS_COST_ROOFLINE] - a->fitted_ps;
    double whole = (double)a->origin_ps[DS_COST_ROOFLINE];
    if (!bare_ps)
        ds_buf_put(out, " (fitted curves)");
    else if (!a->fitted_ps)
        ds_buf_put(out, " (catalogue peaks)");
    else
        ds_buf_printf(out, " (fitted curves %s, catalogue peaks %s)",
                      ds_report__percent((double)a->fitted_ps / whole).s,
                      ds_report__percent((double)bare_ps / whole).s);
}

static void put_compute_origins(const ds_account *a, ds_buf *out) {
    double whole = 0;
    for (int o = 0; o < DS_COST_ORIGIN_COUNT; o++) whole += (double)a->origin_ps[o];
    if (!(whole > 0)) return;
    ds_buf_put(out, "  compute        ");
    for (int o = 0, n = 0; o < DS_COST_ORIGIN_COUNT; o++) {
        if (!a->origin_ps[o]) continue;
        ds_buf_printf(out, "%s%s %s", n++ ? ", " : "", ds_cost_origin_name((ds_cost_origin)o),
                      ds_report__percent((double)a->origin_ps[o] / whole).s);
        if (o == DS_COST_ROOFLINE) put_roofline(a, out);
    }
    if (a->extrapolated_ps)
        ds_buf_printf(out, "; extrapolated %s",
                      ds_report__percent((double)a->extrapolated_ps / whole).s);
    ds_buf_putc(out, '\n');
}

static void put_comm_origins(const ds_account *a, ds_buf *out) {
    static const char *const texts[] = {"fitted profile", "links alone", "given"};
    double whole = 0;
    for (int o = 0; o < DS_COMM_ORIGIN_COUNT; o++) whole += (double)a->comm_origin_ps[o];
    if (!(whole > 0)) return;
    ds_buf_put(out, "  communication  ");
    for (int o = 0, n = 0; o < DS_COMM_ORIGIN_COUNT; o++)
        if (a->comm_origin_ps[o])
            ds_buf_printf(out, "%s%s %s", n++ ? ", " : "", texts[o],
                          ds_report__percent((double)a->comm_origin_ps[o] / whole).s);
    if (a->comm_extrapolated_ps)
        ds_buf_printf(out, "; extrapolated %s",
                      ds_report__percent((double)a->comm_extrapolated_ps / whole).s);
    ds_buf_putc(out, '\n');
}

static void put_origins(const ds_result *r, ds_buf *out) {
    ds_buf lines = {0};
    put_compute_origins(&r->accounts[r->critical], &lines);
    put_comm_origins(&r->accounts[r->critical], &lines);
    if (lines.n) ds_buf_printf(out, "\nWhere its durations come from\n%s", lines.text);
    ds_buf_deinit(&lines);
}

/* ---- ops ---- */

static void put_op(const ds_result *r, const ds_op_total *op, ds_buf *out) {
    ds_buf_printf(out, "  %10s %9s %8lld  ", ds_report__ps(op->ps).s,
                  ds_report__percent(ds_ratio((double)op->ps, (double)r->run.step_ps)).s,
                  (long long)op->n);
    ds_report__op_title(r, op->inst, out);
    if (op->group && op->record->n_out > 1) ds_buf_printf(out, " +%u", op->record->n_out - 1);
    double seconds = (double)op->ps * 1e-12;
    if (op->group && seconds > 0) {
        const ds_coll_cost *terms = &op->group->terms;
        ds_buf_printf(out, "  %s, bus %s", ds_report__algorithm(op->group),
                      ds_report__rate(op->bus_bytes / seconds, "B/s").s);
        if (terms->extrapolated)
            ds_buf_printf(out, ", extrapolated (times %.2g .. %.2g)", terms->spread.low,
                          terms->spread.high);
    } else if (seconds > 0 && op->record->variants[0].work.kind == DS_WORK_MEMORY)
        ds_buf_printf(out, "  %s", ds_report__rate(op->memory_bytes / seconds, "B/s").s);
    else if (seconds > 0 && op->flop > 0)
        ds_buf_printf(out, "  %s", ds_report__rate(op->flop / seconds, "FLOP/s").s);
    ds_buf_putc(out, '\n');
}

static void put_ops(const ds_result *r, ds_buf *out) {
    uint32_t n;
    ds_op_total *ops = ds_report__ops(r, r->critical, &n);
    if (n) {
        ds_buf_printf(out, "\nOps of %s by time\n", ds_report__device(r->plan, r->critical));
        ds_buf_printf(out, "  %10s %9s %8s  op\n", "time", "of step", "count");
    }
    for (uint32_t i = 0; i < n && i < MAX_OPS; i++) put_op(r, &ops[i], out);
    if (n > MAX_OPS) ds_buf_printf(out, "  and %u more\n", n - MAX_OPS);
    free(ops);
}

void ds_report_summary(const ds_result *r, ds_buf *out) {
    put_head(r, out);
    ds_report__put_jobs(r, out);
    ds_report__put_runs(r, out);
    put_time(r, out);
    put_origins(r, out);
    put_ops(r, out);
    ds_report__put_critical(r, out);
    ds_report__put_stages(r, out);
    ds_report__memory(r, out);
    if (!r->metrics.fits) ds_report__verdict(r, out);
    ds_report__advice(r, out);
    ds_report__faster_cut(r, out);
}
