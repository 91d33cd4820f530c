/* GraphML as a topology: nodes with kind, type, forward, reduce and name, edges with bytes_per_s,
 * latency_ps and cap_bytes_per_s, as `distsim topo --graphml` writes them and other tools (igraph,
 * networkx, yEd) can.
 *
 * The topology is flat. A node's name says its group: n[3].gpu[2] becomes one of n_gpu. Devices are
 * numbered in order of declaration, so a group of devices ends where the file goes on with another
 * one. Two edges that follow each other and are each other's reverse are one duplex link. */
#include "ir/base/map.h"
#include "ir/import/graph_internal.h"
#include "ir/import/internal.h"
#include "ir/import/xml_internal.h"

#include <inttypes.h>
#include <string.h>

#define MAX_FIGURE INT64_C(1000000000000000000)

typedef enum key_id { NAME, KIND, TYPE, FORWARD, REDUCE, RATE, LATENCY, CAP, N_KEYS } key_id;
static const struct {
    const char *name, *of;
} known_keys[N_KEYS] = {{"name", "node"},       {"kind", "node"},           {"type", "node"},
                        {"forward", "node"},    {"reduce", "node"},         {"bytes_per_s", "edge"},
                        {"latency_ps", "edge"}, {"cap_bytes_per_s", "edge"}};

/* An edge, in one direction or both. */
typedef struct edge {
    uint32_t from, to;
    int64_t rate, latency, cap;
    bool duplex;
} edge;

typedef struct reader {
    ds_arena *arena;
    const ds_import_options *options;
    ds_graph graph;
    const char *key[N_KEYS];       /* the id in this file; NULL: no such key */
    const char *otherwise[N_KEYS]; /* its default, or NULL */
    ds_strtab ids;                 /* of nodes and of groups, interned */
    ds_map node_of, group_of;
    uint32_t devices; /* the group of the device before; UINT32_MAX: none yet */
    ds_error *err;
} reader;

/* ---- keys and data ---- */

static void read_keys(reader *r, const ds_xml *root) {
    for (const ds_xml *key = root->first; key; key = key->next) {
        const char *id = ds_xml__attr(key, "id"), *name = ds_xml__attr(key, "attr.name"),
                   *of = ds_xml__attr(key, "for");
        if (strcmp(key->name, "key") != 0 || !id) continue;
        for (int k = 0; k < N_KEYS; k++) {
            bool fits = !of || strcmp(of, known_keys[k].of) == 0 || strcmp(of, "all") == 0;
            if (!fits || strcmp(name ? name : id, known_keys[k].name) != 0) continue;
            const ds_xml *otherwise = ds_xml__child(key, "default");
            r->key[k] = id;
            r->otherwise[k] = otherwise ? otherwise->text : NULL;
        }
    }
}

static const char *data(const reader *r, const ds_xml *element, key_id key) {
    for (const ds_xml *child = element->first; child && r->key[key]; child = child->next) {
        const char *id = strcmp(child->name, "data") == 0 ? ds_xml__attr(child, "key") : NULL;
        if (id && strcmp(id, r->key[key]) == 0) return child->text;
    }
    return r->otherwise[key];
}

static const char *plain(const reader *r, const char *text) {
    return ds_import__plain(r->arena, text);
}

static ds_status unsupported(const reader *r, const ds_xml *parent) {
    static const char *const names[] = {"graph", "hyperedge", "port"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ds_xml *child = ds_xml__child(parent, names[i]);
        if (child)
            return ds_xml__error(child, DS_ERR_UNSUPPORTED, r->err,
                                 "<%s> inside a <%.20s> is not imported", names[i], parent->name);
    }
    return DS_OK;
}

/* ---- nodes ---- */

static ds_status read_kind(const reader *r, const ds_xml *node, ds_node_kind *kind) {
    static const char *const names[] = {"device", "switch", "nic", "host"};
    const char *text = data(r, node, KIND);
    for (int i = 0; text && i < 4; i++)
        if (strcmp(text, names[i]) == 0) {
            *kind = (ds_node_kind)i;
            return DS_OK;
        }
    return ds_xml__error(node, DS_ERR_DATA, r->err,
                         "the kind of this node is \"%s\"; it must be device, switch, nic or host",
                         plain(r, text ? text : ""));
}

static ds_status read_flag(const reader *r, const ds_xml *node, key_id key, bool absent,
                           bool *flag) {
    const char *text = data(r, node, key);
    *flag = absent;
    if (!text || !*text) return DS_OK;
    *flag = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (*flag || strcmp(text, "false") == 0 || strcmp(text, "0") == 0) return DS_OK;
    return ds_xml__error(node, DS_ERR_DATA, r->err, "%s is \"%s\"; true or false is needed",
                         known_keys[key].name, plain(r, text));
}

/* "n[3].gpu[2]" → "n.gpu"; the writer makes it a name. *indexed: were there any? */
static const char *without_indices(const reader *r, const char *path, bool *indexed) {
    char *text = ds_arena_strdup(r->arena, path), *to = text;
    *indexed = false;
    for (const char *at = path; *at; at++) {
        const char *end = *at == '[' ? strchr(at, ']') : NULL;
        if (end) {
            *indexed = true;
            at = end;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
    return text;
}

/* The group of all nodes like this one; `single`: if it is new, without an index for one node. */
static uint32_t group_for(reader *r, ds_graph_group like, bool single) {
    const char *text = ds_arena_printf(r->arena, "%d%d%d %s\n%s", like.kind, like.forwards,
                                       like.reduces, like.name, like.type ? like.type : "");
    uint64_t key = DS_KEY(ds_intern(&r->ids, text));
    const uint64_t *at = ds_map_find(&r->group_of, key);
    bool device = like.kind == DS_NODE_DEVICE;
    if (at && (!device || *at == r->devices)) return (uint32_t)*at;
    uint32_t group = ds_graph__group(&r->graph, like.name, like.kind, like.type, single);
    r->graph.groups.at[group].forwards = like.forwards;
    r->graph.groups.at[group].reduces = like.reduces;
    ds_map_put(&r->group_of, key, group);
    if (device) r->devices = group;
    return group;
}

static ds_status read_node(reader *r, const ds_xml *node) {
    const char *id = ds_xml__attr(node, "id"), *name = data(r, node, NAME), *type = NULL;
    ds_node_kind kind = DS_NODE_DEVICE;
    bool forwards, reduces, indexed;
    if (!id) return ds_xml__error(node, DS_ERR_DATA, r->err, "<node> has no id");
    if (r->graph.nodes.n == DS_GRAPH_MAX_NODES)
        return ds_xml__error(node, DS_ERR_LIMIT, r->err, "more than %u nodes", DS_GRAPH_MAX_NODES);
    if (r->graph.groups.n == DS_GRAPH_MAX_GROUPS)
        return ds_xml__error(
            node, DS_ERR_LIMIT, r->err,
            "more than %u groups of nodes; names like gpu[0], gpu[1] are one group",
            DS_GRAPH_MAX_GROUPS);
    DS_TRY(unsupported(r, node));
    DS_TRY(read_kind(r, node, &kind));
    bool device = kind == DS_NODE_DEVICE;
    DS_TRY(read_flag(r, node, FORWARD, !device, &forwards));
    DS_TRY(read_flag(r, node, REDUCE, false, &reduces));
    if (reduces && kind != DS_NODE_SWITCH)
        return ds_xml__error(node, DS_ERR_DATA, r->err, "only switches reduce");
    if (device) {
        type = r->options->device ? r->options->device : data(r, node, TYPE);
        if (!type || !*type)
            return ds_xml__error(node, DS_ERR_DATA, r->err,
                                 "this device has no type; --device NAME gives all devices one");
        type = plain(r, type);
    }
    uint64_t key = DS_KEY(ds_intern(&r->ids, id));
    if (ds_map_find(&r->node_of, key))
        return ds_xml__error(node, DS_ERR_DATA, r->err, "a second node with the id \"%s\"",
                             plain(r, id));
    const char *base = without_indices(r, name && *name ? name : id, &indexed);
    ds_graph_group like = {.name = plain(r, base),
                           .kind = kind,
                           .type = type,
                           .forwards = forwards == device,
                           .reduces = reduces};
    uint32_t group = group_for(r, like, !indexed);
    ds_map_put(&r->node_of, key, ds_graph__node(&r->graph, group));
    return DS_OK;
}

/* ---- edges ---- */

static ds_status read_end(reader *r, const ds_xml *element, const char *which, uint32_t *node) {
    const char *id = ds_xml__attr(element, which);
    const uint64_t *at = id ? ds_map_find(&r->node_of, DS_KEY(ds_intern(&r->ids, id))) : NULL;
    if (!at)
        return ds_xml__error(element, DS_ERR_DATA, r->err,
                             "the %s of this edge, \"%s\", is no node", which,
                             plain(r, id ? id : ""));
    *node = (uint32_t)*at;
    return DS_OK;
}

static ds_status read_figure(const reader *r, const ds_xml *element, key_id key, int64_t least,
                             int64_t *out) {
    const char *text = data(r, element, key);
    if (!text)
        return ds_xml__error(element, DS_ERR_DATA, r->err, "this edge has no %s",
                             known_keys[key].name);
    return ds_xml__int_of(element, known_keys[key].name, text, least, MAX_FIGURE, out, r->err);
}

static ds_status read_edge(reader *r, const ds_xml *element, bool directed, edge *e) {
    const char *own = ds_xml__attr(element, "directed");
    DS_TRY(read_end(r, element, "source", &e->from));
    DS_TRY(read_end(r, element, "target", &e->to));
    if (e->from == e->to)
        return ds_xml__error(element, DS_ERR_DATA, r->err, "an edge from a node to itself");
    DS_TRY(read_figure(r, element, RATE, 1, &e->rate));
    DS_TRY(read_figure(r, element, LATENCY, 0, &e->latency));
    e->cap = 0;
    if (data(r, element, CAP)) DS_TRY(read_figure(r, element, CAP, 1, &e->cap));
    e->duplex = own ? strcmp(own, "true") != 0 : !directed;
    return DS_OK;
}

static bool are_reverse(const edge *a, const edge *b) {
    return !a->duplex && !b->duplex && a->from == b->to && a->to == b->from && a->rate == b->rate &&
           a->latency == b->latency && a->cap == b->cap;
}

static void write_edge(reader *r, const edge *e) {
    ds_graph__link(&r->graph, e->from, e->to, e->rate, e->latency, e->duplex);
    r->graph.links.at[r->graph.links.n - 1].cap_bytes_per_s = e->cap;
}

static ds_status read_edges(reader *r, const ds_xml *graph) {
    const char *text = ds_xml__attr(graph, "edgedefault");
    bool directed = !text || strcmp(text, "undirected") != 0, waiting = false;
    edge last = {0};
    for (const ds_xml *child = graph->first; child; child = child->next) {
        edge e;
        if (strcmp(child->name, "edge") != 0) continue;
        if (r->graph.links.n == DS_GRAPH_MAX_LINKS)
            return ds_xml__error(child, DS_ERR_LIMIT, r->err, "more than %u edges",
                                 DS_GRAPH_MAX_LINKS);
        DS_TRY(read_edge(r, child, directed, &e));
        if (waiting && are_reverse(&last, &e)) {
            last.duplex = true;
            write_edge(r, &last);
            waiting = false;
            continue;
        }
        if (waiting) write_edge(r, &last);
        last = e;
        waiting = true;
    }
    if (waiting) write_edge(r, &last);
    return DS_OK;
}

/* ---- main ---- */

static ds_status import_tree(reader *r, const ds_xml *root, ds_buf *out) {
    const ds_import_options *options = r->options;
    const ds_xml *graph = ds_xml__child(root, "graph");
    if (strcmp(root->name, "graphml") != 0 || !graph)
        return ds_xml__error(root, DS_ERR_DATA, r->err,
                             "GraphML is a <graphml> with a <graph> in it, and this is a <%.40s>",
                             plain(r, root->name));
    read_keys(r, root);
    for (const ds_xml *child = graph->first; child; child = child->next)
        if (strcmp(child->name, "node") == 0) DS_TRY(read_node(r, child));
    if (r->devices == UINT32_MAX)
        return ds_xml__error(graph, DS_ERR_DATA, r->err, "there is no device in this graph");
    DS_TRY(read_edges(r, graph));
    if (options->source)
        ds_graph__note(&r->graph, "Imported from %s (GraphML), with its figures.",
                       plain(r, options->source));
    const char *name = options->topology ? options->topology : ds_xml__attr(graph, "id");
    ds_graph__print(&r->graph, name ? name : "imported", out);
    return DS_OK;
}

ds_status ds_import_graphml(const char *text, size_t n, const ds_import_options *options,
                            ds_buf *out, ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    const ds_xml *root;
    reader r = {.arena = &arena, .options = options, .devices = UINT32_MAX, .err = err};
    ds_strtab_init(&r.ids);
    ds_graph__init(&r.graph, &arena);
    ds_status status = ds_import__set(options, NULL, 0, err);
    if (status == DS_OK) status = ds_xml__parse(&arena, text, n, &root, err);
    if (status == DS_OK) status = import_tree(&r, root, out);
    ds_map_deinit(&r.node_of);
    ds_map_deinit(&r.group_of);
    ds_strtab_deinit(&r.ids);
    ds_graph__deinit(&r.graph);
    ds_arena_deinit(&arena);
    return status;
}
