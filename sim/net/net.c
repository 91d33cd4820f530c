#include "sim/net/net.h"

#include "ir/base/heap.h"
#include "ir/base/units.h"

#include <stdlib.h>

ds_status ds_phase_alone_ps(const ds_topo *topo, const ds_phase *phase, uint64_t efficiency_q32,
                            int64_t *ps, ds_error *err) {
    /* slowest = max bytes_q32 / capacity, compared as a fraction and divided once at the end */
    ds_u128 bytes = 0, capacity = 1;
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        const ds_load *load = &phase->loads[i];
        ds_u128 c =
            (ds_u128)ds_topo_link_at(topo, load->link)->bytes_per_s * efficiency_q32;
        if (c == 0) c = 1;
        /* bytes < 2^80 and capacities (B/s · 2^32) < 2^80: compare quotients, then remainders */
        ds_u128 q1 = load->bytes_q32 / c, q0 = bytes / capacity;
        if (q1 > q0 || (q1 == q0 && (double)(load->bytes_q32 % c) / (double)c >
                                        (double)(bytes % capacity) / (double)capacity)) {
            bytes = load->bytes_q32;
            capacity = c;
        }
    }
    ds_u128 wait;
    if (__builtin_mul_overflow((ds_u128)phase->steps,
                               (ds_u128)phase->alpha_ps, &wait))
        wait = ~(ds_u128)0;
    /* seconds = bytes_q32 / capacity (both carry 2^32); whole seconds apart keep 128 bits enough */
    ds_u128 whole = bytes / capacity, rest = bytes % capacity;
    ds_u128 flow = 0;
    if (whole <= INT64_MAX / DS_PS_PER_S) {
        while (rest > ((ds_u128)1 << 86)) { /* 2^86 · 10^12 < 2^126 */
            rest >>= 1;
            capacity >>= 1;
        }
        flow = whole * DS_PS_PER_S + (rest * DS_PS_PER_S + capacity / 2) / capacity;
    }
    if (whole > INT64_MAX / DS_PS_PER_S || wait > INT64_MAX || flow > INT64_MAX ||
        wait + flow > INT64_MAX)
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a transfer takes longer than 106 days, the range of int64 picoseconds");
    *ps = (int64_t)(wait + flow);
    return DS_OK;
}

struct ds_net {
    ds_heap ends;
};

ds_net *ds_net_new(void) { return ds_xcalloc(1, sizeof(ds_net)); }

void ds_net_free(ds_net *net) {
    if (!net) return;
    ds_heap_deinit(&net->ends);
    free(net);
}

void ds_net_add(ds_net *net, uint32_t id, int64_t now_ps, int64_t ps) {
    ds_heap_push(&net->ends, now_ps + ps, id);
}

int64_t ds_net_next_ps(const ds_net *net) {
    return net->ends.n ? net->ends.at[0].time_ps : INT64_MAX;
}

uint32_t ds_net_pop(ds_net *net) { return ds_heap_pop(&net->ends); }
