/* Configurations of a node: an odometer over the divisors of its axes. */
#include "search/pase/pase.h"

#include <string.h>

typedef struct odometer {
    uint16_t *values[DS_PASE_MAX_AXES];
    uint32_t n[DS_PASE_MAX_AXES], at[DS_PASE_MAX_AXES];
} odometer;

static void divisors_of(const ds_pase_node *node, uint32_t a, const ds_pase_limits *limits,
                        ds_arena *arena, odometer *o) {
    int64_t size = node->size[a], cutoff = limits->cutoff > 1 ? limits->cutoff : 1;
    uint16_t *list = DS_NEW_N(arena, uint16_t, limits->devices + 1);
    uint32_t n = 0;
    bool whole = (node->whole >> a) & 1;
    for (int64_t e = 1; !whole && e <= limits->devices && size / e >= cutoff; e++) {
        bool divides = size % e == 0 && (!limits->by_rule || node->rule_size[a] % e == 0);
        if (divides) list[n++] = (uint16_t)e;
    }
    if (n == 0) list[n++] = 1;
    o->values[a] = list;
    o->n[a] = n;
}

/* Of each group of a reshape: complete splits, perhaps one that is not, then none. */
static bool is_contiguous(const ds_pase_node *node, const uint16_t *split) {
    bool ended = false;
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (a == 0 || node->group[a] != node->group[a - 1]) ended = false;
        if (ended && split[a] != 1) return false;
        if (split[a] != node->size[a]) ended = true;
    }
    return true;
}

static bool is_on_mesh(const ds_pase_node *node, const int64_t *mesh, const uint16_t *split) {
    int64_t dp = mesh[0], tp = mesh[1], data = 1;
    bool taken = false; /* tp */
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (split[a] == 1) continue;
        if ((node->data >> a) & 1) {
            data = split[a];
            continue;
        }
        if (split[a] != tp || taken) return false;
        taken = true;
    }
    return data == 1 || data == dp || (!taken && (data == tp || data == dp * tp));
}

static bool is_legal(const ds_pase_node *node, const ds_pase_limits *limits,
                     const uint16_t *split) {
    int64_t product = 1;
    for (uint32_t a = 0; a < node->n_axes; a++) {
        product *= split[a];
        if (product > limits->devices) return false;
    }
    if (limits->divides && limits->devices % product != 0) return false;
    if (limits->mesh[0] > 0 && !is_on_mesh(node, limits->mesh, split)) return false;
    return node->kind != DS_PASE_RESHAPE || is_contiguous(node, split);
}

/* Skips at once what only grows: the axes behind `a` start at 1 again. */
static bool advance(odometer *o, uint32_t n_axes, uint32_t a) {
    for (uint32_t i = a + 1; i < n_axes; i++) o->at[i] = 0;
    for (uint32_t i = a + 1; i-- > 0;) {
        if (++o->at[i] < o->n[i]) return true;
        o->at[i] = 0;
    }
    return false;
}

/* The first axis at which the product exceeds p; the last one if it never does. */
static uint32_t exceeds_at(const ds_pase_limits *limits, const uint16_t *split, uint32_t n_axes) {
    int64_t product = 1;
    for (uint32_t a = 0; a < n_axes; a++) {
        product *= split[a];
        if (product > limits->devices) return a;
    }
    return n_axes - 1;
}

ds_status ds_pase_enumerate(const ds_pase_node *node, const ds_pase_limits *limits, ds_arena *arena,
                            ds_pase_configs *out, ds_error *err) {
    if (limits->devices < 1 || limits->devices > DS_PASE_MAX_DEVICES)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a search is for 1 to %d devices, not %lld", DS_PASE_MAX_DEVICES,
                            (long long)limits->devices);
    odometer o = {0};
    DS_VEC(uint16_t) all = {0};
    uint16_t split[DS_PASE_MAX_AXES] = {1, 1, 1, 1, 1, 1, 1, 1};
    *out = (ds_pase_configs){.n_axes = node->n_axes};
    for (uint32_t a = 0; a < node->n_axes; a++) divisors_of(node, a, limits, arena, &o);
    if (node->n_axes == 0) { /* a scalar */
        out->n = 1;
        out->split = DS_NEW(arena, uint16_t);
        return DS_OK;
    }
    bool more = true;
    while (more) {
        for (uint32_t a = 0; a < node->n_axes; a++) split[a] = o.values[a][o.at[a]];
        if (is_legal(node, limits, split)) {
            for (uint32_t a = 0; a < node->n_axes; a++) DS_PUSH(arena, &all, split[a]);
            out->n++;
        }
        more = advance(&o, node->n_axes, exceeds_at(limits, split, node->n_axes));
    }
    out->split = all.at;
    return DS_OK;
}

uint32_t ds_pase_config_number(const ds_pase_configs *set, const ds_pase_splits *split) {
    for (uint32_t c = 0; c < set->n; c++)
        if (memcmp(ds_pase_config(set, c), split->of, set->n_axes * sizeof *split->of) == 0)
            return c;
    return UINT32_MAX;
}
