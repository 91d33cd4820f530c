/* Which link holds a collective up. */
#include "sim/coll/coll.h"

ds_status ds_coll_slowest_link(ds_topo *topo, const ds_coll_request *request, int64_t *bytes_per_s,
                               ds_error *err) {
    const char *algorithm = request->algorithm;
    uint32_t n;
    if (!algorithm) algorithm = ds_coll_candidates(request->op, &n)[0];
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_phase *phases;
    ds_status status = ds_coll_phases(topo, request, algorithm, &scratch, &phases, &n, err);
    double longest = -1;
    *bytes_per_s = 0;
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        const ds_load *load = ds_phase_slowest(topo, &phases[i]);
        if (!load) continue;
        int64_t capacity = ds_topo_link_at(topo, load->link)->bytes_per_s;
        double seconds = (double)load->bytes_q32 / (double)capacity;
        if (seconds <= longest) continue;
        longest = seconds;
        *bytes_per_s = capacity;
    }
    ds_arena_deinit(&scratch);
    return status;
}
