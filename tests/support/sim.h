/* Simulates a program given as text or file, for tests. Fails the test on any error. */
#ifndef DS_TEST_SIM_H
#define DS_TEST_SIM_H

#include "ir/core/ir.h"
#include "sim/report/report.h"

typedef struct sim_case {
    ds_unit *unit;
    ds_binding binding;
    ds_profiles *profiles;
    ds_result *result; /* NULL if ds_simulate failed */
    ds_status status;  /* of loading, verifying or simulating: the first failure */
    ds_error err;
} sim_case;

/* `settings` is "a=1 b=2" or NULL. `folder` resolves imports. */
void sim_run_text(sim_case *c, const char *text, const char *settings, bool unfold);
/* With the cost database of this file. */
void sim_run_with(sim_case *c, const char *text, const char *db);
/* `file` is relative to the repository's root. */
void sim_run_file(sim_case *c, const char *file, const char *settings, bool unfold);
void sim_free(sim_case *c);

/* The only task whose path ends in `suffix` on the device (path as ds_topo_device_path prints it;
 * NULL: any). UINT32_MAX and a message if there is none or more than one. */
uint32_t sim_task(const sim_case *c, const char *device, const char *suffix);

#endif
