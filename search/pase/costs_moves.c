/* Where tensors lie under a configuration, and what it takes to bring them from there to where the
 * next operation wants them. */
#include "search/pase/costs_internal.h"

#include <string.h>

#define MOST_LOOKS 1e9 /* half a minute and more */

/* ---- where parts lie ---- */

/* Device d holds part d / stride % parts of an axis; the first axis is outermost, what is left of
 * the devices innermost. */
static void strides_of(const ds_pase_costs *m, const ds_pase_node *node, const uint16_t *split,
                       uint32_t *stride) {
    uint32_t product = 1;
    for (uint32_t a = 0; a < node->n_axes; a++) product *= split[a];
    uint32_t at = (uint32_t)m->base.limits.devices / product;
    for (uint32_t a = node->n_axes; a-- > 0;) {
        stride[a] = at;
        at *= split[a];
    }
}

static bool has_axis(const int8_t *axis, uint32_t rank, uint32_t a) {
    for (uint32_t d = 0; d < rank; d++)
        if (axis[d] == (int8_t)a) return true;
    return false;
}

ds_pase_group ds_pase__axes_without(const ds_pase_costs *m, const ds_pase_node *node,
                                    const uint16_t *split, const int8_t *axis, uint32_t rank) {
    ds_pase_group group = {0};
    uint32_t stride[DS_PASE_MAX_AXES];
    strides_of(m, node, split, stride);
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (split[a] == 1 || has_axis(axis, rank, a)) continue;
        group.size[group.n_axes] = split[a];
        group.stride[group.n_axes++] = stride[a];
    }
    return group;
}

/* ---- tensors on their way ---- */

ds_pase_layout ds_pase__layout_of(const ds_pase_costs *m, const ds_pase_node *node,
                                  const uint16_t *split, const int8_t *axis, uint32_t rank) {
    ds_pase_layout l = {{0}, {0}};
    uint32_t stride[DS_PASE_MAX_AXES];
    strides_of(m, node, split, stride);
    for (uint32_t d = 0; d < rank; d++) {
        l.parts[d] = axis[d] < 0 ? 1 : split[axis[d]];
        l.stride[d] = l.parts[d] == 1 ? 1 : stride[axis[d]];
    }
    return l;
}

/* Which part of each dim a device has. */
static void parts_at(const ds_pase_layout *l, uint32_t rank, uint32_t device, uint32_t *part) {
    for (uint32_t d = 0; d < rank; d++) part[d] = device / l->stride[d] % l->parts[d];
}

/* The share of the tensor that one device wants and another one has. */
static double common(const ds_pase_layout *want, const uint32_t *wanted, const ds_pase_layout *have,
                     const uint32_t *had, uint32_t rank) {
    double share = 1;
    for (uint32_t d = 0; d < rank; d++) {
        double a = 1.0 / want->parts[d], b = 1.0 / have->parts[d];
        double lo = a * wanted[d], hi = lo + a;
        double from = b * had[d], to = from + b;
        double width = (hi < to ? hi : to) - (lo > from ? lo : from);
        if (width <= 1e-12) return 0;
        share *= width;
    }
    return share;
}

double ds_pase__part_share(const ds_pase_layout *l, uint32_t rank) {
    double share = 1;
    for (uint32_t d = 0; d < rank; d++) share /= l->parts[d];
    return share;
}

/* Do the devices from `first` on, n of them, have all that the device wants? */
static bool covers(ds_pase_costs *m, const ds_pase_move *x, uint32_t device, uint32_t first,
                   uint32_t n) {
    double sum = 0, whole = ds_pase__part_share(&x->want, x->rank);
    uint32_t wanted[DS_MAX_RANK], had[DS_MAX_RANK];
    parts_at(&x->want, x->rank, device, wanted);
    m->now++;
    for (uint32_t e = first; e < first + n; e++) {
        uint32_t number = 0; /* of the part among all, which are p at most */
        parts_at(&x->have, x->rank, e, had);
        for (uint32_t d = 0; d < x->rank; d++) number = number * x->have.parts[d] + had[d];
        if (m->seen[number] == m->now) continue;
        m->seen[number] = m->now;
        sum += common(&x->want, wanted, &x->have, had, x->rank);
    }
    return sum >= whole * (1 - 1e-9);
}

static void find_move(ds_pase_costs *m, ds_pase_move *x) {
    uint32_t p = (uint32_t)m->base.limits.devices, wanted[DS_MAX_RANK], had[DS_MAX_RANK];
    double whole = ds_pase__part_share(&x->want, x->rank);
    for (uint32_t d = 0; d < p; d++) {
        parts_at(&x->want, x->rank, d, wanted);
        parts_at(&x->have, x->rank, d, had);
        double lacks = whole - common(&x->want, wanted, &x->have, had, x->rank);
        if (lacks > x->lacking) x->lacking = lacks;
    }
    if (x->lacking < 1e-12) return;
    for (x->within = 2; x->within < p; x->within++) {
        uint32_t n = x->within;
        if (p % n != 0) continue;
        if (covers(m, x, 0, 0, n) && covers(m, x, p - 1, p - n, n)) break;
    }
}

/* Is all that differs that some dims become whole? Then the groups that gather them. */
static bool is_gather(const ds_pase_move *x, ds_pase_group *group) {
    *group = (ds_pase_group){0};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (x->want.parts[d] == x->have.parts[d] && x->want.stride[d] == x->have.stride[d])
            continue;
        if (x->want.parts[d] > 1) return false;
        group->size[group->n_axes] = x->have.parts[d];
        group->stride[group->n_axes++] = x->have.stride[d];
    }
    return true;
}

/* The collective that brings what is lacking. */
static ds_status find_exchange(ds_pase_costs *m, ds_pase_move *x, ds_error *err) {
    ds_pase_group group;
    if (is_gather(x, &group)) {
        x->sent = ds_pase__part_share(&x->want, x->rank);
        return ds_pase__group_curve(&m->groups, DS_OP_ALL_GATHER, &group, &x->exchange, err);
    }
    group = (ds_pase_group){.n_axes = 1, .size = {x->within}, .stride = {1}};
    x->sent = x->lacking * x->within / (x->within - 1);
    return ds_pase__group_curve(&m->groups, DS_OP_ALL_TO_ALL, &group, &x->exchange, err);
}

/* Many tensors move alike: each way is looked at once. */
static ds_status find_way(ds_pase_costs *m, const ds_pase_layout *want, const ds_pase_layout *have,
                          uint32_t *way, ds_error *err) {
    ds_pase_move x = {.rank = 0};
    for (uint32_t d = 0; d < DS_MAX_RANK; d++) {
        if (want->parts[d] <= 1 && have->parts[d] <= 1) continue;
        x.want.parts[x.rank] = want->parts[d];
        x.want.stride[x.rank] = want->stride[d];
        x.have.parts[x.rank] = have->parts[d];
        x.have.stride[x.rank++] = have->stride[d];
    }
    uint64_t hash = x.rank;
    for (uint32_t d = 0; d < x.rank; d++) {
        hash = ds_hash_mix(hash, (uint64_t)x.want.parts[d] << 32 | x.want.stride[d]);
        hash = ds_hash_mix(hash, (uint64_t)x.have.parts[d] << 32 | x.have.stride[d]);
    }
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&m->known_moves, hash);
        if (!found) break;
        const ds_pase_move *known = &m->moves.at[*found];
        *way = (uint32_t)*found;
        if (memcmp(&known->want, &x.want, sizeof x.want) == 0 &&
            memcmp(&known->have, &x.have, sizeof x.have) == 0)
            return DS_OK;
    }
    m->looks += (double)m->base.limits.devices;
    if (m->looks > MOST_LOOKS)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "over %lld devices tensors can lie in so many ways that more than %g "
                            "parts would have to be looked at; a larger cutoff or fewer devices "
                            "make fewer",
                            (long long)m->base.limits.devices, MOST_LOOKS);
    find_move(m, &x);
    if (x.lacking >= 1e-12) DS_TRY(find_exchange(m, &x, err));
    *way = m->moves.n;
    ds_map_put(&m->known_moves, hash, m->moves.n);
    DS_HPUSH(&m->moves, x);
    return DS_OK;
}

static double move_us(ds_pase_costs *m, uint32_t way, double bytes) {
    ds_pase_move *x = &m->moves.at[way];
    if (x->last_bytes != bytes) {
        x->last_bytes = bytes;
        x->last_us = ds_pase__curve_us(x->exchange, x->sent * bytes);
    }
    return x->last_us;
}

ds_status ds_pase__moves_us(ds_pase_costs *m, uint32_t have, uint32_t want, double bytes,
                            double *forward, double *back, ds_error *err) {
    *forward = *back = 0;
    if (want == have) return DS_OK;
    uint64_t key = (uint64_t)have << 32 | want;
    const uint64_t *found = ds_map_find(&m->known_ways, key);
    uint64_t ways = found ? *found : 0;
    if (!found) {
        uint32_t there, again;
        const ds_pase_layout from = m->layouts.at[have], to = m->layouts.at[want];
        DS_TRY(find_way(m, &to, &from, &there, err));
        DS_TRY(find_way(m, &from, &to, &again, err));
        ways = (uint64_t)there << 32 | again;
        ds_map_put(&m->known_ways, key, ways);
    }
    *forward = move_us(m, (uint32_t)(ways >> 32), bytes);
    *back = move_us(m, (uint32_t)ways, bytes);
    return DS_OK;
}

uint32_t ds_pase__layout_number(ds_pase_costs *m, const ds_pase_layout *l) {
    uint64_t hash = 0;
    for (uint32_t d = 0; d < DS_MAX_RANK && l->parts[d]; d++)
        hash = ds_hash_mix(hash, (uint64_t)l->parts[d] << 32 | l->stride[d]);
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&m->known_layouts, hash);
        if (!found) break;
        if (memcmp(&m->layouts.at[*found], l, sizeof *l) == 0) return (uint32_t)*found;
    }
    ds_map_put(&m->known_layouts, hash, m->layouts.n);
    DS_HPUSH(&m->layouts, *l);
    return m->layouts.n - 1;
}
