/* Where costs come from, for the first lines of reports: the profile of each device kind, its software,
 * and how far its predictions were from measured steps; the framework that a scenario did not name. */
#include "sim/report/costs.h"

#include "ir/core/devices.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "sim/plan/plan.h"
#include "sim/report/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one kind ---- */

/* "; 1.7 % mean error on 3 measured steps that no fit saw" */
static void put_error(const ds_profiles *profiles, uint32_t profile, ds_buf *out) {
    ds_profile_steps steps = ds_profile_measured_steps(profiles, profile);
    if (!steps.n) {
        ds_buf_put(out, "; no whole step was measured");
        return;
    }
    ds_buf_printf(out, "; %.1f %% mean error on %" PRId64 " measured step%s%s", 100 * steps.error,
                  steps.n, steps.n == 1 ? "" : "s", steps.fitted ? ", fitted" : " that no fit saw");
}

static void put_profile(const ds_profiles *profiles, const ds_cost_source *s, ds_buf *out) {
    ds_buf_printf(out, "profile %s", ds_profile_name(profiles, s->profile));
    if (s->is_default)
        ds_buf_printf(out, " (default for %s)", ds_profiles_kind(profiles, s->kind)->name);
    ds_buf_printf(out, ": %s", ds_profile_software(profiles, s->profile));
    put_error(profiles, s->profile, out);
    if (!ds_profile_has_compute(profiles, s->profile))
        ds_buf_put(out, "; operations at the data sheet's peaks, a lower bound of their time");
}

static bool is_measured(const ds_profiles *profiles, uint32_t kind) {
    for (uint32_t p = 1; p < ds_profiles_n_profiles(profiles); p++)
        if (ds_profile_kind(profiles, p) == kind &&
            (!ds_profile_is_generic(profiles, p) || ds_profile_has_compute(profiles, p)))
            return true;
    return false;
}

static void put_peaks(const ds_profiles *profiles, const ds_cost_source *s, ds_buf *out) {
    const char *name = ds_profiles_kind(profiles, s->kind)->name;
    if (!is_measured(profiles, s->kind))
        ds_buf_printf(out, "nothing is measured of %s; assumed: ", name);
    ds_buf_printf(out, "the data sheet's peaks of %s, links at full rate; times are lower bounds",
                  is_measured(profiles, s->kind) ? name : "compute and memory");
}

void ds_report_cost_source(const ds_profiles *profiles, const ds_cost_source *source, ds_buf *out) {
    if (source->profile)
        put_profile(profiles, source, out);
    else
        put_peaks(profiles, source, out);
}

void ds_report_cost_lines(const ds_profiles *profiles, const ds_cost_source *sources, uint32_t n,
                          ds_buf *out) {
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_put(out, i ? "               " : "  costs        ");
        ds_report_cost_source(profiles, &sources[i], out);
        ds_buf_putc(out, '\n');
    }
}

/* ---- JSON ---- */

void ds_report_costs_json(const ds_profiles *profiles, const ds_cost_source *sources, uint32_t n,
                          ds_json *json) {
    ds_json_key(json, "costs");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) {
        const ds_cost_source *s = &sources[i];
        ds_profile_steps steps = ds_profile_measured_steps(profiles, s->profile);
        ds_buf text = {0};
        ds_report_cost_source(profiles, s, &text);
        ds_json_begin_object(json);
        ds_json_key_string(json, "kind", ds_profiles_kind(profiles, s->kind)->name);
        ds_json_key_string(json, "profile", ds_profile_name(profiles, s->profile));
        ds_json_key_bool(json, "default", s->is_default);
        ds_json_key_bool(json, "measured", is_measured(profiles, s->kind));
        ds_json_key_string(json, "software", ds_profile_software(profiles, s->profile));
        ds_json_key_int(json, "steps", steps.n);
        ds_json_key(json, "step_error");
        if (steps.n)
            ds_json_double(json, steps.error);
        else
            ds_json_null(json);
        ds_json_key_bool(json, "fitted", steps.n && steps.fitted);
        ds_json_key_string(json, "text", text.text);
        ds_json_end_object(json);
        ds_buf_deinit(&text);
    }
    ds_json_end_array(json);
}

/* ---- of a run ---- */

ds_cost_source *ds_report__cost_sources(const ds_result *r, uint32_t *n) {
    ds_kind_total *kinds = ds_kind_totals(r, n);
    ds_cost_source *sources = ds_xcalloc(*n, sizeof *sources);
    ds_error unsaid;
    for (uint32_t k = 0; k < *n; k++) {
        if (ds_plan_profile_of(r->source, r->plan->profiles, kinds[k].kind, &sources[k], &unsaid) !=
            DS_OK)
            sources[k] = (ds_cost_source){.kind = kinds[k].kind};
        sources[k].profile = kinds[k].profile;
    }
    free(kinds);
    return sources;
}

/* ---- of a scenario whose candidates are run in its place ---- */

static bool has_kind(const ds_cost_source *sources, uint32_t n, uint32_t kind) {
    for (uint32_t i = 0; i < n; i++)
        if (sources[i].kind == kind) return true;
    return false;
}

/* Kinds of the devices that the scenario's topology declares; 0: it has none, or they are not known
 * or more than `most`. */
static uint32_t read_sources(const ds_binding *binding, const ds_profiles *profiles,
                             ds_cost_source *sources, uint32_t most) {
    const char *types[64];
    ds_error unsaid;
    uint32_t n = 0, n_types = 0;
    const ds_topology *topology = ds_scenario_devices(binding->unit);
    if (topology) n_types = ds_topology_device_types(topology, types, 64);
    for (uint32_t i = 0; i < n_types && n < most; i++) {
        ds_cost_source s;
        if (ds_profiles_find_kind(profiles, types[i], DS_NOWHERE, &s.kind, &unsaid) != DS_OK ||
            has_kind(sources, n, s.kind) ||
            ds_plan_profile_of(binding, profiles, s.kind, &s, &unsaid) != DS_OK)
            continue;
        sources[n++] = s;
    }
    return n;
}

void ds_report_scenario_costs(const ds_binding *binding, const ds_profiles *profiles, ds_buf *out) {
    ds_cost_source sources[8];
    const char *name = NULL;
    uint32_t n = read_sources(binding, profiles, sources, 8);
    ds_report_cost_lines(profiles, sources, n, out);
    if (binding->unit->assumes_framework &&
        ds_scenario_text(binding, "", "framework", &name, NULL) == DS_OK && name)
        ds_buf_printf(out, "  framework    %s (default of the profile)\n", name);
}
