/* The range of every number of the database that a run reads.
 *
 * What lies inside keeps all arithmetic on costs finite and, but for sums and products that are
 * checked where they are made, within int64. The limits leave some orders of magnitude to what any
 * hardware has: a time of 10^18 ps is 11.6 days, 10^18 B/s are 300,000 times the memory bandwidth
 * of an H100. A tiny efficiency is no measurement: 10^-9 of a peak. */
#include "sim/cost/profiles_internal.h"

#include <string.h>

#define MOST      1e18 /* ps, bytes, bytes/s, FLOP/s, elements */
#define MOST_WORK 1e30 /* FLOP or bytes where a curve ends */
#define LEAST     1e-9 /* of what is above 0 */

static const ds_cost_range ranges[] = {
    {"device", "memory_bytes", 0, MOST, true, false},
    {"device", "memory_bytes_per_s", 0, MOST, true, false},
    {"device_peak", "flop_per_s", 1, MOST, true, false},
    {"device_memory", "bytes", 0, 0x1p48, true, false}, /* some thousands are added up */
    {"device_clock", "power_mw", 1, 1e9, true, false},
    {"device_clock", "sustained", LEAST, 1, false, false},
    {"device_clock", "busy", LEAST, 1, false, false},
    {"part_error", "bias", -5, 5, false, false},
    {"part_error", "error", 0, 5, false, false},
    {"profile", "issue_ps", 0, MOST, true, false},
    {"profile", "interference", 0, 1000, false, true},
    {"profile", "ratio_p05", LEAST, 1, false, true},
    {"profile", "ratio_p95", 1, 1 / LEAST, false, true},
    {"profile", "compute_factor", 0.01, 100, false, true},
    {"profile", "communication_factor", 0.01, 100, false, true},
    {"profile", "host_factor", 0.01, 100, false, true},
    {"profile", "is_default", 0, 1, true, false},
    {"profile", "is_generic", 0, 1, true, false},
    {"profile", "steps", 0, 1e9, true, false},
    {"profile", "step_error", 0, 1e9, false, true},
    {"op_profile", "batch", 0, MOST, true, false},
    {"op_profile", "m", 0, MOST, true, false},
    {"op_profile", "n", 0, MOST, true, false},
    {"op_profile", "k", 0, MOST, true, false},
    {"op_profile", "heads", 0, MOST, true, false},
    {"op_profile", "kv_heads", 0, MOST, true, false},
    {"op_profile", "seq_q", 0, MOST, true, false},
    {"op_profile", "seq_kv", 0, MOST, true, false},
    {"op_profile", "head_dim", 0, MOST, true, false},
    {"op_profile", "causal", 0, 1, true, false},
    {"op_profile", "tokens", 0, MOST, true, false},
    {"op_profile", "width", 0, MOST, true, false},
    {"op_profile", "time_ps", 1, MOST, true, false},
    {"efficiency_fit", "reference_per_s", 1, MOST, true, false},
    {"efficiency_fit", "e_max", LEAST, 1 / LEAST, false, false},
    {"efficiency_fit", "w_half", 0, MOST_WORK, false, false},
    {"efficiency_fit", "w_min", LEAST, MOST_WORK, false, false},
    {"efficiency_fit", "w_max", LEAST, MOST_WORK, false, false},
    {"efficiency_fit", "floor_ps", 0, MOST, true, true},
    {"efficiency_fit", "row_ps", 0, MOST, true, true},
    {"gemm_fit", "processors", 1, 1e9, true, false},
    {"gemm_fit", "flop_per_s", 1, MOST, true, false},
    {"gemm_fit", "bytes_per_s", 1, MOST, true, false},
    {"gemm_fit", "e_max", LEAST, 1 / LEAST, false, false},
    {"gemm_fit", "tail", 0, 1, false, false},
    {"gemm_fit", "prologue", 0, MOST, false, false},
    {"gemm_fit", "port", 0, 1 / LEAST, false, false},
    {"gemm_fit", "e_memory", LEAST, 1e200, false, false}, /* of rows that memory never holds up */
    {"gemm_fit", "overlap", 0, 1, false, false},
    {"gemm_fit", "launch_us", 0, MOST / 1e6, false, false},
    {"gemm_fit", "resident", 0, 1024, true, true},
    {"gemm_fit", "lone", 0, 1 / LEAST, false, true},
    {"gemm_fit", "cut_us", 0, MOST / 1e6, false, true},
    {"gemm_fit", "sag", 0, 1 / LEAST, false, true},
    {"gemm_fit", "sag_us", 0, MOST / 1e6, false, true},
    {"gemm_fit", "convert_us", 0, MOST / 1e6, false, true},
    {"gemm_fit", "convert_gb_per_s", LEAST, MOST / 1e9, false, true},
    {"gemm_fit", "w_min", LEAST, MOST_WORK, false, false},
    {"gemm_fit", "w_max", LEAST, MOST_WORK, false, false},
    {"attention_fit", "dim_least", 1, 1e9, true, false},
    {"attention_fit", "dim_most", 1, 1e9, true, false},
    {"attention_fit", "is_default", 0, 1, true, false},
    {"attention_fit", "processors", 1, 1e9, true, false},
    {"attention_fit", "flop_per_s", 1, MOST, true, false},
    {"attention_fit", "bytes_per_s", 1, MOST, true, false},
    {"attention_fit", "block_rows", 1, 1e9, true, false},
    {"attention_fit", "head_step", 1, 1e9, true, false},
    {"attention_fit", "skips_window", 0, 1, true, false},
    {"attention_fit", "e_max", LEAST, 1 / LEAST, false, false},
    {"attention_fit", "score", 0, MOST, false, false},
    {"attention_fit", "prologue", 0, MOST, false, false},
    {"attention_fit", "tail", 0, 1, false, false},
    {"attention_fit", "e_memory", LEAST, 1e200, false, false},
    {"attention_fit", "overlap", 0, 1, false, false},
    {"attention_fit", "launch_us", 0, MOST / 1e6, false, false},
    {"attention_fit", "token_ns", 0, MOST / 1e3, false, false},
    {"attention_fit", "w_min", LEAST, MOST_WORK, false, false},
    {"attention_fit", "w_max", LEAST, MOST_WORK, false, false},
    {"collective_profile", "group_size", 2, 1e9, true, false},
    {"collective_profile", "size_bytes", 1, MOST, true, false},
    {"collective_profile", "time_ps", 1, MOST, true, false},
    {"collective_fit", "group_size", 2, 1e9, true, false},
    {"collective_fit", "capacity_bytes_per_s", 1, MOST, true, false},
    {"collective_fit", "alpha_ps", 0, MOST, true, false},
    {"collective_fit", "launch_ps", 0, MOST, true, false},
    {"collective_fit", "step_ps", 0, MOST, true, false},
    {"collective_fit", "e_max", 1e-6, 1, false, false},
    {"collective_fit", "s_half", 0, MOST, false, false},
    {"collective_fit", "holds_compute", 0, 1, true, false},
    {"collective_protocol", "link_bytes_per_s", 1, MOST, true, false},
    {"collective_protocol", "launch_ps", 0, MOST, true, false},
    {"collective_protocol", "step_ps", 0, MOST, true, false},
    {"collective_protocol", "copy_bytes_per_s", 0, MOST, true, false},
    {"collective_protocol", "e", 1e-6, 1, false, false},
    {"collective_protocol", "least_bytes", 0, MOST, true, false},
    {"collective_protocol", "most_bytes", 0, MOST, true, false},
    {"collective_protocol", "least_group", 0, MOST, true, false},
    {"collective_protocol", "most_group", 0, MOST, true, false},
    {"collective_protocol", "link_least_bytes_per_s", 0, MOST, true, true},
    {"collective_protocol", "link_most_bytes_per_s", 0, MOST, true, true},
    {"collective_protocol", "nodes_least", 0, MOST, true, false},
    {"collective_protocol", "nodes_most", 0, MOST, true, false},
    {"collective_protocol", "group_least", 0, MOST, true, false},
    {"collective_protocol", "group_most", 0, MOST, true, false},
    {"collective_protocol", "size_least", 0, MOST, true, false},
    {"collective_protocol", "size_most", 0, MOST, true, false},
    /* of any fit */
    {"", "ratio_p05", LEAST, 1 / LEAST, false, true},
    {"", "ratio_p95", LEAST, 1 / LEAST, false, true},
    {"", "p90_error", 0, 1 / LEAST, false, true},
};

const ds_cost_range *ds_cost__range(const char *table, const char *column) {
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (strcmp(ranges[i].column, column) == 0 &&
            (!*ranges[i].table || strcmp(ranges[i].table, table) == 0))
            return &ranges[i];
    return NULL;
}

bool ds_cost__is_in(const ds_cost_range *range, double value) {
    return value >= range->least && value <= range->most; /* NaN is not */
}
