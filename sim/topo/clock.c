/* `sustained_clock`: which part of its boost clock a device keeps under load.
 *
 * A data sheet's peak is the boost clock's; dense products draw so much power that the clock falls
 * until the power limit is kept. What that does to an op is ds_cost_clock's (sim/cost/degrade.c);
 * here are the parts that the topology's file says, device by device, and how reports tell them. */
#include "sim/topo/tree.h"

#include <string.h>

int64_t ds_topo_device_clock(const ds_topo *topo, uint32_t device) {
    return topo->clock_ppb[device];
}

static bool are_alike(const ds_topo *topo, uint32_t a, uint32_t b) {
    const char *x = topo->device_type[a], *y = topo->device_type[b];
    return topo->clock_ppb[a] == topo->clock_ppb[b] && (x == y || (x && y && strcmp(x, y) == 0));
}

/* The first device from `from` on that is not at its boost clock and unlike all before it; how many
 * are like it. UINT32_MAX: none. O(devices · kinds of them), for devices come in runs. */
static uint32_t next_kind(const ds_topo *topo, uint32_t from, uint32_t *n) {
    for (uint32_t d = from; d < topo->root->n_devices; d++) {
        if (topo->clock_ppb[d] == DS_TOPO_WHOLE || (d && are_alike(topo, d, d - 1))) continue;
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

void ds_topo_list_clocks(const ds_topo *topo, const char *title, ds_buf *out) {
    uint32_t n, d = next_kind(topo, 0, &n);
    for (; d != UINT32_MAX; d = next_kind(topo, d + 1, &n), title = "")
        ds_buf_printf(out, "  %-12s %.9g of the boost clock under load: %u x %s\n", title,
                      part_of(topo, d), n, topo->device_type[d] ? topo->device_type[d] : "device");
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
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}
