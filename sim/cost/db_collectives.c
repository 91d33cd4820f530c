/* The columns of collectives.csv, collective_fits.csv and collective_protocols.csv. */
#include "sim/cost/tables_internal.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const column collective_columns[] = {
    {"collective", "collective", CELL_KEY, false, 0},
    {"group_size", "group_size", CELL_INT, false, 0},
    {"size_bytes", "size_bytes", CELL_INT, false, 0},
    {"time_us", "time_ps", CELL_SCALED, false, 1000000},
    {"source", "source", CELL_SOURCE, false, 0},
};
const table ds_cost__collectives = {"collectives.csv",  "collective_profile",      true,
                                    collective_columns, COUNT(collective_columns), NULL};

static const column collective_fit_columns[] = {
    {"collective", "collective", CELL_KEY, false, 0},
    {"group_size", "group_size", CELL_INT, false, 0},
    {"capacity_gb_per_s", "capacity_bytes_per_s", CELL_SCALED, false, 1000000000},
    {"alpha_us", "alpha_ps", CELL_SCALED, false, 1000000},
    {"launch_us", "launch_ps", CELL_SCALED, false, 1000000},
    {"step_us", "step_ps", CELL_SCALED, false, 1000000},
    {"e_max", "e_max", CELL_REAL, false, 0},
    {"s_half", "s_half", CELL_REAL, false, 0},
    {"holds_compute", "holds_compute", CELL_BOOL, false, 0},
    {"n", "n", CELL_INT, false, 0},
    {"median_error", "median_error", CELL_REAL, true, 0},
    {"p90_error", "p90_error", CELL_REAL, true, 0},
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
const table ds_cost__collective_fits = {"collective_fits.csv",
                                        "collective_fit",
                                        true,
                                        collective_fit_columns,
                                        COUNT(collective_fit_columns),
                                        NULL};

static const column protocol_columns[] = {
    {"collective", "collective", CELL_KEY, false, 0},
    {"link_gb_per_s", "link_bytes_per_s", CELL_SCALED, false, 1000000000},
    {"protocol", "protocol", CELL_KEY, false, 0},
    {"launch_us", "launch_ps", CELL_SCALED, false, 1000000},
    {"step_us", "step_ps", CELL_SCALED, false, 1000000},
    {"copy_gb_per_s", "copy_bytes_per_s", CELL_SCALED, false, 1000000000},
    {"e", "e", CELL_REAL, false, 0},
    {"least_bytes", "least_bytes", CELL_INT, false, 0},
    {"most_bytes", "most_bytes", CELL_INT, false, 0},
    {"least_group", "least_group", CELL_INT, true, 0},
    {"most_group", "most_group", CELL_INT, true, 0},
    {"group_least", "group_least", CELL_INT, true, 0},
    {"group_most", "group_most", CELL_INT, true, 0},
    {"nodes_least", "nodes_least", CELL_INT, true, 0},
    {"nodes_most", "nodes_most", CELL_INT, true, 0},
    {"size_least", "size_least", CELL_INT, true, 0},
    {"size_most", "size_most", CELL_INT, true, 0},
    {"link_least_gb_per_s", "link_least_bytes_per_s", CELL_SCALED, true, 1000000000},
    {"link_most_gb_per_s", "link_most_bytes_per_s", CELL_SCALED, true, 1000000000},
    {"n", "n", CELL_INT, false, 0},
    {"median_error", "median_error", CELL_REAL, true, 0},
    {"p90_error", "p90_error", CELL_REAL, true, 0},
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
const table ds_cost__protocols = {"collective_protocols.csv", "collective_protocol",   true,
                                  protocol_columns,           COUNT(protocol_columns), NULL};
