/* How long a phase takes with the links to itself. */
#include "sim/net/net.h"

/* bytes_q32 / (bytes_per_s · 2^32) seconds in ps, rounded to nearest; UINT64_MAX if it is too long.
 * The quotient is taken in whole seconds and a rest, so 128 bits are enough. */
static uint64_t flow_ps(ds_u128 bytes_q32, ds_u128 bytes_per_s_q32) {
    ds_u128 capacity = bytes_per_s_q32 ? bytes_per_s_q32 : 1;
    ds_u128 whole = bytes_q32 / capacity, rest = bytes_q32 % capacity;
    if (whole > INT64_MAX / DS_PS_PER_S) return UINT64_MAX;
    while (rest >> 86) { /* 2^86 · 10^12 < 2^126; only beyond 2^54 B/s */
        rest >>= 1;
        capacity >>= 1;
    }
    return (uint64_t)(whole * DS_PS_PER_S + (rest * DS_PS_PER_S + capacity / 2) / capacity);
}

int64_t ds_load_ps(const ds_topo *topo, const ds_load *load, uint64_t efficiency_q32) {
    ds_u128 capacity = (ds_u128)ds_topo_link_at(topo, load->link)->bytes_per_s * efficiency_q32;
    uint64_t ps = flow_ps(load->bytes_q32, capacity);
    return ps < DS_NEVER_PS ? (int64_t)ps : DS_NEVER_PS;
}

ds_u128 ds_phase_most_bytes_q32(const ds_phase *phase) {
    ds_u128 most = 0;
    for (uint32_t i = 0; i < phase->n_loads; i++)
        if (phase->loads[i].bytes_q32 > most) most = phase->loads[i].bytes_q32;
    return most;
}

int64_t ds_phase_cap(const ds_topo *topo, const ds_phase *phase) {
    int64_t least = 0;
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        int64_t cap = ds_topo_link_at(topo, phase->loads[i].link)->cap_bytes_per_s;
        if (cap && (!least || cap < least)) least = cap;
    }
    return least;
}

ds_status ds_phase_alone_ps(const ds_topo *topo, const ds_phase *phase, uint64_t efficiency_q32,
                            int64_t *ps, ds_error *err) {
    uint64_t slowest = 0;
    ds_u128 all_q32 = 0;
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        all_q32 |= phase->loads[i].bytes_q32;
        uint64_t this_ps = (uint64_t)ds_load_ps(topo, &phase->loads[i], efficiency_q32);
        if (this_ps > slowest) slowest = this_ps;
    }
    if (all_q32 >> 95) /* its work, and its uses of links, have 128 bits */
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a transfer puts more than 2^63 bytes on one link");
    int64_t cap = ds_phase_cap(topo, phase);
    if (cap) {
        ds_u128 most = (ds_u128)cap * (uint64_t)phase->weight << 32;
        uint64_t this_ps = flow_ps(ds_phase_most_bytes_q32(phase), most);
        if (this_ps > slowest) slowest = this_ps;
    }
    int64_t wait;
    if (!ds_mul_i64(phase->steps, phase->alpha_ps, &wait) || slowest >= DS_NEVER_PS ||
        !ds_add_i64(wait, phase->more_ps, &wait) || !ds_add_i64(wait, (int64_t)slowest, ps) ||
        *ps == DS_NEVER_PS)
        return ds_error_set(
            err, DS_ERR_OVERFLOW, DS_NOWHERE,
            "a transfer takes longer than 106 days, the range of int64 picoseconds");
    return DS_OK;
}

const ds_load *ds_phase_slowest(const ds_topo *topo, const ds_phase *phase) {
    const ds_load *slowest = NULL;
    double longest = 0;
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, phase->loads[i].link);
        double seconds = (double)phase->loads[i].bytes_q32 / (double)link->bytes_per_s;
        if (slowest && seconds <= longest) continue;
        longest = seconds;
        slowest = &phase->loads[i];
    }
    return slowest;
}

#define MOST_USE_Q32 (UINT64_C(1) << 56)

uint64_t ds_link_use_q32(ds_u128 bytes_q32, ds_u128 most_q32, uint64_t efficiency_q32) {
    ds_u128 part = ((bytes_q32 << DS_USE_BITS) + most_q32 / 2) / most_q32;
    ds_u128 use = ((part << 32) + efficiency_q32 / 2) / efficiency_q32;
    return use < MOST_USE_Q32 ? (uint64_t)use : MOST_USE_Q32;
}

ds_u128 ds_phase_level_alone_q20(const ds_topo *topo, const ds_phase *phase,
                                 uint64_t efficiency_q32) {
    ds_u128 least = DS_NO_CAP, most = ds_phase_most_bytes_q32(phase);
    int64_t cap = ds_phase_cap(topo, phase);
    if (cap) least = (ds_u128)cap << DS_RATE_BITS;
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        uint64_t use = ds_link_use_q32(phase->loads[i].bytes_q32, most, efficiency_q32);
        if (!use) continue;
        ds_u128 capacity = (ds_u128)ds_topo_link_at(topo, phase->loads[i].link)->bytes_per_s;
        capacity <<= DS_RATE_BITS + DS_USE_BITS;
        ds_u128 level = capacity / ((ds_u128)use * (uint64_t)phase->weight);
        if (level < least) least = level;
    }
    return least;
}
