/* The whole graph as Graphviz (instances are boxes) and as GraphML (flat, integer attributes; what
 * `distsim import graphml` reads). */
#include "ir/base/units.h"
#include "sim/topo/tree.h"

#include <inttypes.h>

const char *ds_topo_kind_name(ds_node_kind kind) {
    static const char *const names[] = {"device", "switch", "nic", "host", "node"};
    return names[kind];
}

static const char *device_type(const ds_topo *topo, uint32_t vertex, uint32_t *next_device) {
    if (ds_topo_vertex_kind(topo, vertex) != DS_NODE_DEVICE) return NULL;
    return topo->device_type[(*next_device)++];
}

/* ---- Graphviz ---- */

static const char *dot_style(ds_node_kind kind) {
    switch (kind) {
    case DS_NODE_DEVICE:
        return "shape=box, style=filled, fillcolor=palegreen";
    case DS_NODE_SWITCH:
        return "shape=hexagon, style=filled, fillcolor=lightblue";
    case DS_NODE_NIC:
        return "shape=ellipse, style=filled, fillcolor=wheat";
    case DS_NODE_HOST:
        return "shape=box, style=\"filled,rounded\", fillcolor=lightgrey";
    case DS_NODE_INSTANCE:
        break;
    }
    return "";
}

static void put_dot_text(ds_buf *out, const char *text) {
    ds_buf_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') ds_buf_putc(out, '\\');
        ds_buf_putc(out, *text);
    }
    ds_buf_putc(out, '"');
}

static void indent(ds_buf *out, uint32_t depth) {
    for (uint32_t i = 0; i < depth; i++) ds_buf_put(out, "  ");
}

static void print_dot_vertex(const ds_topo *topo, uint32_t vertex, uint32_t depth,
                             uint32_t *next_device, ds_buf *out) {
    const char *type = device_type(topo, vertex, next_device);
    indent(out, depth);
    ds_buf_printf(out, "v%" PRIu32 " [label=", vertex);
    put_dot_text(out, ds_topo_vertex_path(topo, vertex));
    if (type) {
        ds_buf_put(out, ", tooltip=");
        put_dot_text(out, type);
    }
    ds_buf_printf(out, ", %s];\n", dot_style(ds_topo_vertex_kind(topo, vertex)));
}

static void print_dot_level(const ds_topo *topo, const ds_topo_template *t, uint32_t base,
                            uint32_t depth, uint32_t *next_device, ds_buf *out) {
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const ds_topo_node *node = &t->nodes[i];
        for (uint32_t e = 0; e < node->count; e++) {
            uint32_t at = base + ds_topo_vertex_base(node, e);
            if (!node->child) {
                print_dot_vertex(topo, at, depth, next_device, out);
                continue;
            }
            indent(out, depth);
            ds_buf_printf(out, "subgraph cluster_%" PRIu32 "_%" PRIu32 " {\n", depth, at);
            indent(out, depth + 1);
            ds_buf_printf(out, "label=\"%s", node->decl->name);
            if (DS_HAS_EXPR(node->decl->count)) ds_buf_printf(out, "[%" PRIu32 "]", e);
            ds_buf_printf(out, " : @%s\";\n", node->child->decl->name);
            print_dot_level(topo, node->child, at, depth + 1, next_device, out);
            indent(out, depth);
            ds_buf_put(out, "}\n");
        }
    }
}

bool ds_topo_is_duplex(const ds_topo *topo, uint32_t link) {
    if (link + 1 >= topo->root->n_links) return false;
    const ds_topo_link *a = &topo->links[link], *b = a + 1;
    return a->from == b->to && a->to == b->from && a->bytes_per_s == b->bytes_per_s &&
           a->latency_ps == b->latency_ps;
}

void ds_topo_print_dot(const ds_topo *topo, ds_buf *out) {
    uint32_t next_device = 0;
    ds_buf_put(out, "digraph ");
    put_dot_text(out, topo->decl->name);
    ds_buf_put(out, " {\n  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", "
                    "fontsize=9];\n");
    print_dot_level(topo, topo->root, 0, 1, &next_device, out);
    for (uint32_t i = 0; i < topo->root->n_links; i++) {
        const ds_topo_link *link = &topo->links[i];
        if (!link->bytes_per_s) continue;
        bool duplex = ds_topo_is_duplex(topo, i);
        ds_buf_printf(out, "  v%" PRIu32 " -> v%" PRIu32 " [label=\"", link->from, link->to);
        ds_print_rate((double)link->bytes_per_s, "B/s", out);
        ds_buf_put(out, "\\n");
        ds_print_ps(link->latency_ps, out);
        ds_buf_put(out, duplex ? "\", dir=both];\n" : "\"];\n");
        i += duplex;
    }
    ds_buf_put(out, "}\n");
}

/* ---- GraphML ---- */

void ds_topo_put_xml(ds_buf *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&':
            ds_buf_put(out, "&amp;");
            break;
        case '<':
            ds_buf_put(out, "&lt;");
            break;
        case '>':
            ds_buf_put(out, "&gt;");
            break;
        case '"':
            ds_buf_put(out, "&quot;");
            break;
        default: /* XML has no control characters */
            ds_buf_putc(out, (unsigned char)*text < ' ' ? '?' : *text);
        }
    }
}

static void put_xml_data(ds_buf *out, const char *key, const char *text) {
    ds_buf_printf(out, "      <data key=\"%s\">", key);
    ds_topo_put_xml(out, text);
    ds_buf_put(out, "</data>\n");
}

ds_status ds_topo_print_graphml(const ds_topo *topo, ds_buf *out, ds_error *err) {
    (void)err; /* nothing can go wrong in memory */
    ds_buf_put(
        out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n"
             "  <key id=\"name\" for=\"node\" attr.name=\"name\" attr.type=\"string\"/>\n"
             "  <key id=\"kind\" for=\"node\" attr.name=\"kind\" attr.type=\"string\"/>\n"
             "  <key id=\"type\" for=\"node\" attr.name=\"type\" attr.type=\"string\"/>\n"
             "  <key id=\"forward\" for=\"node\" attr.name=\"forward\" attr.type=\"boolean\"/>\n"
             "  <key id=\"reduce\" for=\"node\" attr.name=\"reduce\" attr.type=\"boolean\"/>\n"
             "  <key id=\"bw\" for=\"edge\" attr.name=\"bytes_per_s\" attr.type=\"long\"/>\n"
             "  <key id=\"lat\" for=\"edge\" attr.name=\"latency_ps\" attr.type=\"long\"/>\n"
             "  <key id=\"cap\" for=\"edge\" attr.name=\"cap_bytes_per_s\" attr.type=\"long\"/>\n");
    ds_buf_put(out, "  <graph id=\"");
    ds_topo_put_xml(out, topo->decl->name);
    ds_buf_put(out, "\" edgedefault=\"directed\">\n");
    uint32_t next_device = 0;
    for (uint32_t v = 0; v < topo->root->n_vertices; v++) {
        const char *type = device_type(topo, v, &next_device);
        ds_buf_printf(out, "    <node id=\"v%" PRIu32 "\">\n", v);
        put_xml_data(out, "name", ds_topo_vertex_path(topo, v));
        put_xml_data(out, "kind", ds_topo_kind_name(ds_topo_vertex_kind(topo, v)));
        if (type) put_xml_data(out, "type", type);
        bool forwards = (topo->root->flags[v] & DS_TOPO_FORWARDS) != 0;
        if (forwards != !type) put_xml_data(out, "forward", forwards ? "true" : "false");
        if (topo->root->flags[v] & DS_TOPO_REDUCES) put_xml_data(out, "reduce", "true");
        ds_buf_put(out, "    </node>\n");
    }
    for (uint32_t i = 0; i < topo->root->n_links; i++) {
        const ds_topo_link *link = &topo->links[i];
        if (!link->bytes_per_s) continue;
        ds_buf_printf(out,
                      "    <edge source=\"v%" PRIu32 "\" target=\"v%" PRIu32 "\">\n"
                      "      <data key=\"bw\">%" PRId64 "</data>\n"
                      "      <data key=\"lat\">%" PRId64 "</data>\n",
                      link->from, link->to, link->bytes_per_s, link->latency_ps);
        if (link->cap_bytes_per_s)
            ds_buf_printf(out, "      <data key=\"cap\">%" PRId64 "</data>\n",
                          link->cap_bytes_per_s);
        ds_buf_put(out, "    </edge>\n");
    }
    ds_buf_put(out, "  </graph>\n</graphml>\n");
    return DS_OK;
}
