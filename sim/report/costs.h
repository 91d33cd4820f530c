/* Where costs come from, for the first lines of reports.
 *
 *       costs        profile H100-Bridge (default for H100-SXM5-80GB): Megatron-Bridge; …
 *       framework    megatron (default of the profile)
 */
#ifndef DS_REPORT_COSTS_H
#define DS_REPORT_COSTS_H

#include "ir/base/json.h"
#include "sim/plan/plan.h"

/* "profile NAME (default for KIND): software; mean error …", or the peaks that are assumed. */
void ds_report_cost_source(const ds_profiles *profiles, const ds_cost_source *source, ds_buf *out);
/* A line of a report for each source. */
void ds_report_cost_lines(const ds_profiles *profiles, const ds_cost_source *sources, uint32_t n,
                          ds_buf *out);
/* The member "costs" of a JSON object. */
void ds_report_costs_json(const ds_profiles *profiles, const ds_cost_source *sources, uint32_t n,
                          ds_json *json);
/* The lines of a scenario whose devices the topology declares, and of the framework that the
 * scenario did not name: for sweeps, plans and searches. Nothing without devices. */
void ds_report_scenario_costs(const ds_binding *binding, const ds_profiles *profiles, ds_buf *out);

#endif
