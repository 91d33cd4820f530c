/* Topologies, meshes, schedules and the scenario as text. */
#include "ir/lang/print_internal.h"

#include <inttypes.h>

/* ---- topology ---- */

static const char *node_word(ds_node_kind kind) {
    switch (kind) {
    case DS_NODE_DEVICE:
        return "device";
    case DS_NODE_SWITCH:
        return "switch";
    case DS_NODE_NIC:
        return "nic";
    case DS_NODE_HOST:
        return "host";
    case DS_NODE_INSTANCE:
        return "node";
    }
    return "?";
}

static void print_node(ds_printer *p, const ds_node_decl *node) {
    ds_printer_put(p, node->name);
    if (DS_HAS_EXPR(node->count)) {
        ds_printer_put(p, "[");
        ds_printer_expr(p, node->count);
        ds_printer_put(p, "]");
    }
    if (node->type_name) {
        ds_printer_put(p, " : ");
        if (node->kind == DS_NODE_INSTANCE)
            ds_buf_printf(p->out, "@%s", node->type_name);
        else
            ds_printer_string(p, node->type_name);
    }
    ds_printer_attrs(p, node->attrs, node->n_attrs);
}

static void print_nodes(ds_printer *p, const ds_topology *topology, uint32_t first) {
    const ds_node_decl *nodes = topology->nodes.at;
    ds_printer_begin(p, &nodes[first].trivia);
    ds_printer_put(p, node_word(nodes[first].kind));
    ds_printer_put(p, " ");
    for (uint32_t k = first; k < topology->nodes.n && nodes[k].group == nodes[first].group; k++) {
        ds_printer_comma(p, k - first);
        print_node(p, &nodes[k]);
    }
    ds_printer_end(p, &nodes[first].trivia);
}

static void print_quantity(ds_printer *p, ds_quantity q) {
    ds_printer_expr(p, q.value);
    ds_printer_put(p, " ");
    ds_printer_put(p, ds_unit_text(q.unit));
}

static void print_loops(ds_printer *p, const ds_binder *loops, uint32_t n, ds_expr where) {
    for (uint32_t k = 0; k < n; k++) {
        ds_buf_printf(p->out, "%s%s in ", k ? ", " : " for ", loops[k].name);
        ds_printer_range(p, loops[k].lo, loops[k].hi);
    }
    if (!DS_HAS_EXPR(where)) return;
    ds_printer_put(p, " where ");
    ds_printer_expr(p, where);
}

static void print_link(ds_printer *p, const ds_link_decl *link) {
    ds_printer_begin(p, &link->trivia);
    ds_printer_put(p, "link ");
    ds_printer_steps(p, link->a, link->n_a);
    ds_printer_put(p, link->duplex ? " -- " : " -> ");
    ds_printer_steps(p, link->b, link->n_b);
    ds_printer_put(p, " : ");
    print_quantity(p, link->bandwidth);
    ds_printer_put(p, ", ");
    print_quantity(p, link->latency);
    ds_printer_attrs(p, link->attrs, link->n_attrs);
    print_loops(p, link->loops, link->n_loops, link->where);
    ds_printer_end(p, &link->trivia);
}

void ds_printer_degrade(ds_printer *p, const ds_degrade *degrade) {
    ds_printer_begin(p, &degrade->trivia);
    ds_printer_put(p, "degrade ");
    ds_printer_steps(p, degrade->a, degrade->n_a);
    if (degrade->n_b) {
        ds_printer_put(p, degrade->duplex ? " -- " : " -> ");
        ds_printer_steps(p, degrade->b, degrade->n_b);
    }
    for (uint32_t k = 0; k < degrade->n_factors; k++) {
        ds_printer_put(p, k ? ", " : " ");
        ds_printer_attr(p, &degrade->factors[k]);
    }
    print_loops(p, degrade->loops, degrade->n_loops, degrade->where);
    ds_printer_end(p, &degrade->trivia);
}

void ds_printer_topology(ds_printer *p, const ds_topology *topology) {
    ds_printer_begin(p, &topology->trivia);
    ds_buf_printf(p->out, "topology @%s", topology->name);
    ds_printer_open(p, &topology->trivia);
    for (uint32_t k = 0; k < topology->items.n; k++) {
        ds_topology_item item = topology->items.at[k];
        if (item.is_link)
            print_link(p, &topology->links.at[item.index]);
        else
            print_nodes(p, topology, item.index);
    }
    ds_printer_close(p, &topology->dangling);
    ds_printer_end(p, &topology->trivia);
}

/* ---- mesh ---- */

static void print_axes(ds_printer *p, const ds_mesh *mesh) {
    ds_printer_put(p, "[");
    for (uint32_t k = 0; k < mesh->n_axes; k++) {
        ds_printer_comma(p, k);
        ds_buf_printf(p->out, "%s = ", mesh->axes[k].name);
        ds_printer_expr(p, mesh->axes[k].size);
    }
    ds_printer_put(p, "]");
}

static void print_order(ds_printer *p, const ds_mesh *mesh) {
    for (uint32_t k = 0; k < mesh->n_order; k++) {
        ds_printer_put(p, k ? ", " : " order (");
        ds_printer_expr(p, mesh->order[k]);
    }
    if (mesh->n_order) ds_printer_put(p, ")");
}

void ds_printer_mesh(ds_printer *p, const ds_mesh *mesh) {
    ds_printer_begin(p, &mesh->trivia);
    ds_buf_printf(p->out, "mesh @%s = ", mesh->name);
    switch (mesh->kind) {
    case DS_MESH_ON:
        print_axes(p, mesh);
        ds_buf_printf(p->out, " on @%s", mesh->base);
        print_order(p, mesh);
        break;
    case DS_MESH_VIEW:
        ds_buf_printf(p->out, "view @%s ", mesh->base);
        print_axes(p, mesh);
        break;
    case DS_MESH_PICK:
        ds_printer_put(p, "pick ");
        ds_printer_range(p, mesh->pick_lo, mesh->pick_hi);
        ds_buf_printf(p->out, " of @%s ", mesh->base);
        print_axes(p, mesh);
        break;
    }
    ds_printer_end(p, &mesh->trivia);
}

/* ---- schedule ---- */

static void print_schedule_rank(ds_printer *p, const ds_schedule_rank *rank) {
    ds_printer_begin(p, &rank->trivia);
    ds_buf_printf(p->out, "rank %" PRId64 ":", rank->rank);
    const char *separator = " ";
    for (uint32_t k = 0; k < rank->n_items; k++) {
        const ds_schedule_item *item = &rank->items[k];
        ds_buf_printf(p->out, "%s%c%" PRId64 ".%" PRId64, separator, item->kind, item->chunk,
                      item->microbatch);
        separator = item->with_next ? "&" : " ";
    }
    ds_printer_end(p, &rank->trivia);
}

static void print_placement(ds_printer *p, const ds_schedule *schedule) {
    if (!schedule->n_place) return;
    ds_printer_indent(p);
    ds_printer_put(p, "place");
    for (uint32_t k = 0; k < schedule->n_place; k++)
        ds_buf_printf(p->out, " %" PRId64 "->%" PRId64, schedule->place_chunk[k],
                      schedule->place_stage[k]);
    ds_printer_put(p, "\n");
}

void ds_printer_schedule(ds_printer *p, const ds_schedule *schedule) {
    ds_printer_begin(p, &schedule->trivia);
    ds_buf_printf(p->out, "schedule @%s", schedule->name);
    ds_printer_open(p, &schedule->trivia);
    if (schedule->chunks) {
        ds_printer_indent(p);
        ds_buf_printf(p->out, "chunks %" PRId64 "\n", schedule->chunks);
    }
    print_placement(p, schedule);
    for (uint32_t k = 0; k < schedule->n_ranks; k++) print_schedule_rank(p, &schedule->ranks[k]);
    ds_printer_close(p, &schedule->dangling);
    ds_printer_end(p, &schedule->trivia);
}

/* ---- scenario ---- */

void ds_printer_scenario(ds_printer *p, const ds_scenario *scenario) {
    ds_printer_begin(p, &scenario->trivia);
    ds_printer_put(p, "scenario");
    ds_printer_open(p, &scenario->trivia);
    ds_printer_entries(p, scenario->entries, scenario->n_entries);
    ds_printer_close(p, &scenario->dangling);
    ds_printer_end(p, &scenario->trivia);
}
