/* The device graph as a SimGrid platform (DTD 4.1): a zone with full routing.
 *
 * Devices are hosts. Each direction of a link is a link of its own, so that both directions have
 * the whole bandwidth, as here. Every ordered pair of devices has its route written out: SimGrid's
 * own shortest paths count links and know no device that passes nothing on. A SimGrid route is one
 * path; where we share over several equally good ones, it is that of the lowest link ids.
 *
 *     <link id="l0" bandwidth="300000000000Bps" latency="235000ps">
 *       <prop id="from" value="gpu[0]"/> <prop id="to" value="nvswitch"/>
 *     </link>
 *     <route src="gpu[0]" dst="gpu[1]" symmetrical="NO"><link_ctn id="l0"/>…</route> */
#include "sim/topo/tree.h"

#include <inttypes.h>

/* Time and text grow with devices² times links of a route: a quarter of a million routes are some
 * seconds and 40 MB. */
#define MAX_DEVICES 512

static void put_prop(ds_buf *out, const char *id, const char *value) {
    ds_buf_printf(out, "<prop id=\"%s\" value=\"", id);
    ds_topo_put_xml(out, value);
    ds_buf_put(out, "\"/>");
}

static void put_hosts(const ds_topo *topo, ds_buf *out) {
    for (uint32_t d = 0; d < ds_topo_n_devices(topo); d++) {
        ds_buf_put(out, "    <host id=\"");
        ds_topo_put_xml(out, ds_topo_device_path(topo, d));
        ds_buf_put(out, "\" speed=\"1Gf\">");
        put_prop(out, "type", ds_topo_device_type(topo, d));
        ds_buf_put(out, "</host>\n");
    }
}

static void put_links(const ds_topo *topo, ds_buf *out) {
    for (uint32_t l = 0; l < ds_topo_n_links(topo); l++) {
        const ds_topo_link *link = ds_topo_link_at(topo, l);
        if (!link->bytes_per_s) continue;
        ds_buf_printf(out,
                      "    <link id=\"l%" PRIu32 "\" bandwidth=\"%" PRId64
                      "Bps\" latency=\"%" PRId64 "ps\">",
                      l, link->bytes_per_s, link->latency_ps);
        put_prop(out, "from", ds_topo_vertex_path(topo, link->from));
        put_prop(out, "to", ds_topo_vertex_path(topo, link->to));
        ds_buf_put(out, "</link>\n");
    }
}

static uint32_t count_caps(const ds_topo *topo) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < ds_topo_n_links(topo); l++)
        n += ds_topo_link_at(topo, l)->cap_bytes_per_s != 0;
    return n;
}

/* A single path's links, in the order of travel. */
static void put_path(const ds_topo *topo, const ds_route *route, uint32_t from, ds_buf *out) {
    uint32_t at = ds_topo_device_vertex(topo, from);
    for (uint32_t step = 0; step < route->n_links; step++)
        for (uint32_t i = 0; i < route->n_links; i++) {
            const ds_topo_link *link = ds_topo_link_at(topo, route->links[i]);
            if (link->from != at) continue;
            ds_buf_printf(out, "<link_ctn id=\"l%" PRIu32 "\"/>", route->links[i]);
            at = link->to;
            break;
        }
}

static ds_status put_routes(ds_topo *topo, ds_buf *out, uint32_t *n_shared, ds_error *err) {
    for (uint32_t from = 0; from < ds_topo_n_devices(topo); from++)
        for (uint32_t to = 0; to < ds_topo_n_devices(topo); to++) {
            const ds_route *route, *all;
            if (from == to) continue;
            DS_TRY(ds_topo_route_single(topo, from, to, &route, err));
            DS_TRY(ds_topo_route(topo, from, to, &all, err));
            *n_shared += all->n_links > route->n_links;
            ds_buf_put(out, "    <route src=\"");
            ds_topo_put_xml(out, ds_topo_device_path(topo, from));
            ds_buf_put(out, "\" dst=\"");
            ds_topo_put_xml(out, ds_topo_device_path(topo, to));
            ds_buf_put(out, "\" symmetrical=\"NO\">");
            put_path(topo, route, from, out);
            ds_buf_put(out, "</route>\n");
        }
    return DS_OK;
}

ds_status ds_topo_print_simgrid(ds_topo *topo, ds_buf *out, ds_error *err) {
    if (ds_topo_n_devices(topo) > MAX_DEVICES)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "@%s has %" PRIu32 " devices; a SimGrid platform spells out the route "
                            "of every pair, and is written for at most %d",
                            ds_topo_name(topo), ds_topo_n_devices(topo), MAX_DEVICES);
    ds_buf routes = {0};
    uint32_t n_shared = 0;
    ds_buf_put(&routes, "");
    ds_status status = put_routes(topo, &routes, &n_shared, err);
    if (status == DS_OK) {
        ds_buf_put(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                        "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                        "<!-- Written by distsim. Speeds of hosts mean nothing; the same network "
                        "as there needs\n     cfg=network/model:CM02, cfg=network/TCP-gamma:0 and "
                        "cfg=network/crosstraffic:0. -->\n");
        if (n_shared)
            ds_buf_printf(out,
                          "<!-- %" PRIu32 " pairs of devices have several equally good paths, over "
                          "which distsim shares\n     the bytes; here each has one of them. -->\n",
                          n_shared);
        if (count_caps(topo))
            ds_buf_printf(out,
                          "<!-- %" PRIu32 " links cap what one message gets; SimGrid's do not, so "
                          "their caps are left out. -->\n",
                          count_caps(topo));
        ds_buf_put(out, "<platform version=\"4.1\">\n  <zone id=\"");
        ds_topo_put_xml(out, ds_topo_name(topo));
        ds_buf_put(out, "\" routing=\"Full\">\n");
        put_hosts(topo, out);
        put_links(topo, out);
        ds_buf_put(out, routes.text);
        ds_buf_put(out, "  </zone>\n</platform>\n");
    }
    ds_buf_deinit(&routes);
    return status;
}
