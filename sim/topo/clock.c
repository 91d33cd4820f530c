/* `sustained_clock`: which part of its boost clock a device keeps under load; `power_cap`: its power
 * limit.
 *
 * A data sheet's peak is the boost clock's; dense products draw so much power that the clock falls
 * until the power limit is kept. What that does to an op is ds_cost_clock's (sim/cost/clock.c);
 * here are the parts that the topology's file says, device by device, and how reports tell them. */
#include "sim/topo/tree.h"

#include <string.h>

int64_t ds_topo_device_clock(const ds_topo *topo, uint32_t device) {
    return topo->clock_ppb[device];
}

int64_t ds_topo_device_power_mw(const ds_topo *topo, uint32_t device) {
    return topo->power_mw[device];
}

bool ds_topo_one_clock(const ds_topo *topo) {
    for (uint32_t d = 1; d < topo->root->n_devices; d++)
        if (topo->clock_ppb[d] != topo->clock_ppb[0] || topo->power_mw[d] != topo->power_mw[0])
            return false;
    return true;
}

static bool are_alike(const ds_topo *topo, uint32_t a, uint32_t b) {
    const char *x = topo->device_type[a], *y = topo->device_type[b];
    return topo->clock_ppb[a] == topo->clock_ppb[b] && topo->power_mw[a] == topo->power_mw[b] &&
           (x == y || (x && y && strcmp(x, y) == 0));
}

/* The first device from `from` on that has a clock or a power cap said and is unlike all before it; how many
 * are like it. UINT32_MAX: none. O(devices · kinds of them), for devices come in runs. */
static uint32_t next_kind(const ds_topo *topo, uint32_t from, uint32_t *n) {
    for (uint32_t d = from; d < topo->root->n_devices; d++) {
        bool said = topo->clock_ppb[d] != DS_TOPO_WHOLE || topo->power_mw[d];
        if (!said || (d && are_alike(topo, d, d - 1))) continue;
        bool first = true;
        for (uint32_t e = 0; e < d && first; e++) first = !are_alike(topo, d, e);
        if (!first) continue;
        *n = 0;
        for (uint32_t e = d; e < topo->root->n_devices; e++) *n += are_alike(topo, d, e);
        return d;
    }
    return UINT32_MAX;
}

static double part_of(const ds_topo *topo, uint32_t device) {
    return (double)topo->clock_ppb[device] / (double)DS_TOPO_WHOLE;
}

static double watts_of(const ds_topo *topo, uint32_t device) {
    return (double)topo->power_mw[device] / 1000;
}

void ds_topo_list_clocks(const ds_topo *topo, const char *title, ds_buf *out) {
    uint32_t n, d = next_kind(topo, 0, &n);
    for (; d != UINT32_MAX; d = next_kind(topo, d + 1, &n), title = "") {
        ds_buf_printf(out, "  %-12s ", title);
        if (topo->power_mw[d]) ds_buf_printf(out, "at most %.9g W", watts_of(topo, d));
        if (topo->power_mw[d] && topo->clock_ppb[d] != DS_TOPO_WHOLE) ds_buf_put(out, ", ");
        if (topo->clock_ppb[d] != DS_TOPO_WHOLE)
            ds_buf_printf(out, "%.9g of the boost clock under load", part_of(topo, d));
        ds_buf_printf(out, ": %u x %s\n", n,
                      topo->device_type[d] ? topo->device_type[d] : "device");
    }
}

void ds_topo_put_clocks(const ds_topo *topo, ds_json *json) {
    uint32_t n, d = next_kind(topo, 0, &n);
    if (d == UINT32_MAX) return;
    ds_json_key(json, "sustained_clock");
    ds_json_begin_array(json);
    for (; d != UINT32_MAX; d = next_kind(topo, d + 1, &n)) {
        ds_json_begin_object(json);
        if (topo->device_type[d]) ds_json_key_string(json, "device_type", topo->device_type[d]);
        ds_json_key_int(json, "devices", n);
        ds_json_key_double(json, "part", part_of(topo, d));
        if (topo->power_mw[d]) ds_json_key_double(json, "power_cap_w", watts_of(topo, d));
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}
