/* Which link holds a collective up. */
#include "ir/base/units.h"
#include "sim/coll/coll.h"

static ds_status phases_of_first(ds_topo *topo, const ds_coll_request *request, ds_arena *arena,
                                 ds_phase **phases, uint32_t *n, ds_error *err) {
    const char *names[DS_COLL_MOST_ALGORITHMS];
    uint32_t n_names = ds_coll_candidates(request, names);
    ds_error other;
    ds_status status = ds_coll_phases(topo, request, names[0], arena, phases, n, err);
    for (uint32_t i = 1;
         i < n_names && (status == DS_ERR_UNREACHABLE || status == DS_ERR_UNSUPPORTED); i++)
        if (ds_coll_phases(topo, request, names[i], arena, phases, n, &other) == DS_OK)
            return DS_OK;
    return status;
}

ds_status ds_coll_links_of(ds_topo *topo, const ds_coll_request *request, ds_coll_links *out,
                           ds_error *err) {
    uint32_t n = 0;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_phase *phases;
    ds_status status = phases_of_first(topo, request, &scratch, &phases, &n, err);
    double longest = -1, all = 0;
    *out = (ds_coll_links){0};
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        const ds_load *load = ds_phase_slowest(topo, &phases[i]);
        if (!load) continue;
        int64_t capacity = ds_topo_link_at(topo, load->link)->bytes_per_s;
        double seconds = (double)load->bytes_q32 / (double)capacity;
        all += seconds / 4294967296.0;
        if (seconds <= longest) continue;
        longest = seconds;
        out->slowest_bytes_per_s = capacity;
    }
    ds_arena_deinit(&scratch);
    if (status == DS_OK) status = ds_ps_from_seconds(all, &out->flow_ps, err);
    return status;
}
