/* The planner of rows that state no layout (tools/validate/mfu.h): the search over clusters of several kinds,
 * as in `distsim plan`, with f16, Adam, generic profiles and all layers recomputed. */
#include "tools/cli/plan/mixed.h"
#include "tools/cli/validate.h"

#include <inttypes.h>

enum { RUNS = 12, AGAIN = 3 };

/* Of the best plans the fastest on another network. */
static ds_status run_again(const cli_mixed *mixed, const char *topology, double *seconds,
                           ds_error *err) {
    cli_plan plan = *mixed->plan;
    cli_mixed other = *mixed;
    ds_mixed_plan plans[AGAIN];
    uint32_t n = mixed->result.n_plans < AGAIN ? mixed->result.n_plans : AGAIN;
    int64_t least = 0;
    other.plan = &plan;
    plan.cluster_text = topology;
    for (uint32_t i = 0; i < n; i++) plans[i] = mixed->result.plans[i];
    DS_TRY(cli_mixed_simulate(&other, plans, n, err));
    for (uint32_t i = 0; i < n; i++)
        if (plans[i].step_ps > 0 && (!least || plans[i].step_ps < least)) least = plans[i].step_ps;
    *seconds = (double)least * 1e-12;
    return DS_OK;
}

static ds_status search(cli_mixed *mixed, val_plan_request *request, ds_error *err) {
    DS_TRY(cli_mixed_measure(mixed, err));
    mixed->problem.recomputes = true;
    const ds_mixed_options options = {
        .max_runs = RUNS, .simulate = cli_mixed_simulate, .context = mixed};
    DS_TRY(ds_mixed_search(&mixed->problem, &options, &mixed->result, err));
    if (!mixed->result.n_plans)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the planner finds no plan that fits");
    for (int i = 0; i < VAL_NETWORKS; i++)
        DS_TRY(run_again(mixed, request->topologies[i], &request->seconds[i], err));
    return DS_OK;
}

ds_status validate_plan(const val_job *job, val_plan_request *request, ds_error *err) {
    static const char *const names[] = {"layers", "hidden", "heads", "kv_heads", "ffn", "vocab"};
    enum { N = sizeof names / sizeof *names };
    const val_row *r = request->row;
    const int64_t values[N] = {r->layers, r->hidden, r->heads, r->kv_heads, r->ffn, r->vocab};
    ds_arena arena;
    ds_arena_init(&arena);
    ds_setting settings[N];
    for (int i = 0; i < N; i++)
        settings[i] = (ds_setting){names[i], ds_arena_printf(&arena, "%" PRId64, values[i])};
    cli_plan plan = {.arena = &arena,
                     .source = "llama-2-7b",
                     .cluster = r->cluster,
                     .cluster_text = request->topologies[0],
                     .on_name = "cluster",
                     .batch = r->gbs,
                     .seq = r->seq,
                     .objective = "step_time",
                     .dtype = "f16",
                     .optimizer = "adam",
                     .framework = cli_plan_framework(NULL),
                     .load = job->load};
    const cli_mixed_arguments none = {0};
    cli_mixed mixed = {.plan = &plan, .args = &none, .profiles = job->profiles, .n_workers = 1};
    ds_buf_put(&plan.keys, "  profile = generic\n");
    mixed.grounds[0] = ds_plan_ground_new();
    ds_status status = DS_OK;
    if (cli_plan_find_model(&plan, NULL, 0) || cli_plan_look(&plan, settings, N))
        status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "the planner cannot read its model");
    if (status == DS_OK) status = search(&mixed, request, err);
    ds_mixed_result_deinit(&mixed.result);
    ds_plan_ground_free(mixed.grounds[0]);
    ds_buf_deinit(&plan.keys);
    ds_arena_deinit(&arena);
    return status;
}
