/* What a search needs of TAG: actions, the baseline, the worth of a deployment. */
#include "search/tag/tag.h"

#include <math.h>

enum { MOST_MACHINES = 16 };

static uint32_t n_bits(uint64_t set) {
    uint32_t n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

ds_status ds_tag_actions(const ds_tag_problem *problem, ds_arena *arena, ds_tag_action **out,
                         uint32_t *n_out, ds_error *err) {
    uint32_t n_machines = problem->cluster.n_machines, n = 0;
    if (n_machines > MOST_MACHINES)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%u machines have 2^%u - 1 sets: at most %d machines are possible",
                            n_machines, n_machines, MOST_MACHINES);
    ds_tag_action *actions = DS_NEW_N(arena, ds_tag_action, 3u << n_machines);
    for (uint64_t machines = 1; machines >> n_machines == 0; machines++) {
        uint64_t gpus = ds_tag_gpus_of(&problem->cluster, machines);
        uint32_t n_gpus = n_bits(gpus);
        for (ds_tag_way way = DS_TAG_PS; way <= DS_TAG_SPLIT; way++) {
            if (n_gpus == 1 && way != DS_TAG_PS) continue;
            if (way != DS_TAG_SPLIT && problem->batch % n_gpus != 0) continue;
            actions[n++] = (ds_tag_action){gpus, way, NULL};
        }
    }
    *out = actions;
    *n_out = n;
    return DS_OK;
}

ds_status ds_tag_baseline(const ds_tag_problem *problem, ds_arena *arena, ds_tag_action *out,
                          ds_tag_outcome *outcome, ds_error *err) {
    uint64_t gpus = ds_tag_gpus_of(&problem->cluster, UINT64_MAX);
    uint32_t n_groups = problem->graph.n_groups;
    ds_tag_action *action = DS_NEW_N(arena, ds_tag_action, n_groups);
    for (uint32_t way = DS_TAG_ALL_REDUCE; way <= DS_TAG_SPLIT; way++) {
        *out = (ds_tag_action){gpus, (ds_tag_way)way, NULL};
        for (uint32_t g = 0; g < n_groups; g++) action[g] = *out;
        DS_TRY(ds_tag_simulate(problem, action, arena, outcome, err));
        if (outcome->fits) break;
    }
    return DS_OK;
}

double ds_tag_value(int64_t base_us, const ds_tag_outcome *outcome) {
    if (!outcome->fits) return -1;
    if (outcome->makespan_us == 0) return 0;
    double v = (double)base_us / (double)outcome->makespan_us - 1;
    return v > 1 ? sqrt(sqrt(v)) : v;
}

double ds_tag_exploration(uint32_t n_actions) {
    return sqrt(n_actions / 10.0);
}
