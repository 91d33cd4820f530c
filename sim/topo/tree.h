/* The tree of templates behind a ds_topo; seen by sim/topo only.
 *
 * A template is one `topology` evaluated under one binding. It has nodes (declarations, each a run
 * of `count` equal elements: vertices, or instances of another template) and links of its own,
 * which may end anywhere below it. Everything below a template is numbered locally, from 0, in
 * order of declaration and depth first; an instance's numbers are its template's plus a base. So a
 * vertex of the whole graph is (instance base + local vertex), a link (instance base + local link),
 * and the root's local numbers are the global ones. A template's own links come before its
 * children's. */
#ifndef DS_TOPO_TREE_H
#define DS_TOPO_TREE_H

#include <pthread.h>

#include "ir/base/map.h"
#include "sim/topo/topo.h"

/* Beyond these a topology is refused: indices stay in 32 bits and recursion shallow. */
#define DS_TOPO_MAX_SIZE  (UINT32_C(1) << 24) /* vertices, or directed links */
#define DS_TOPO_MAX_LOOPS (INT64_C(1) << 25)  /* evaluations of link loops in one template */
#define DS_TOPO_MAX_DEPTH 64                  /* nested templates */

typedef struct ds_topo_template ds_topo_template;
typedef struct ds_topo_search ds_topo_search;

/* `device gpu[8]`, `switch s`, `node n[128] : @dgx`. */
typedef struct ds_topo_node {
    const ds_node_decl *decl;
    uint32_t count;
    ds_topo_template *child; /* of an instance, else NULL */
    ds_topo_template **own;  /* [count], where elements are not alike: each one's (degrade.c) */
    uint32_t first_vertex, first_device, first_link; /* local numbers of element 0 */
    bool forwards, reduces;
    int64_t clock_ppb; /* of a device: the sustained part of its boost clock, in 10^-9 */
    int64_t power_mw;  /* of a device: its power cap; 0: not said */
} ds_topo_node;

/* What a vertex is, in one byte. */
enum {
    DS_TOPO_KIND_MASK = 7, /* a ds_node_kind */
    DS_TOPO_FORWARDS = 8,  /* traffic may pass through */
    DS_TOPO_REDUCES = 32,  /* a switch that adds up and multiplies what passes */
    DS_TOPO_PORT = 16      /* a link of a template further up ends here; kept per template */
};

struct ds_topo_template {
    const ds_topology *decl;
    ds_topo_node *nodes;
    uint32_t n_nodes;
    ds_map node_of_name; /* interned name → index into nodes */
    uint32_t n_vertices, n_devices, n_links,
        n_own;       /* n_own of the n_links are the template's own */
    uint32_t depth;  /* 1: no instances inside */
    bool done;       /* false while being built: finds recursion */
    uint8_t *flags;  /* [n_vertices] */
    uint32_t *ports; /* vertices with DS_TOPO_PORT, ascending */
    uint32_t n_ports;
    DS_VEC(ds_topo_link) own; /* heap; ends are local vertices */
    /* own links by their ends: out_links[out_start[v] .. out_start[v + 1]) */
    uint32_t *out_start, *out_links, *in_start, *in_links;
    DS_VEC(ds_topo_search *) searches; /* route.c's cache, and its index by source vertex */
    ds_map search_of;
};

struct ds_topo {
    ds_arena arena;
    const ds_topology *decl;
    DS_VEC(ds_topo_template *) templates;
    ds_topo_template *root;
    ds_topo_link *links;          /* [root->n_links] */
    uint32_t *device_vertex;      /* [n_devices] */
    const char **device_type;     /* [n_devices] */
    int64_t *clock_ppb;           /* [n_devices] */
    int64_t *power_mw;            /* [n_devices] */
    ds_map paths;                 /* vertex → its path, once it was asked for */
    pthread_mutex_t paths_mutex;  /* over `paths`: runs of several threads may fail at once */
    struct ds_symmetry *symmetry; /* symmetry.c; NULL: not asked for yet */
    ds_map routes, singles;       /* from << 32 | to (vertices) → ds_route */
    uint64_t n_labels;            /* in all searches together */
    uint64_t hash;                /* 0: not asked for yet */
    uint32_t *numbers;            /* [n_links]; NULL: not asked for yet */
    bool numbers_taken;
    uint32_t *islands; /* per device, and whether links lead to other devices: island.c, when
                          first asked; NULL before */
    bool *has_peers;
    DS_VEC(uint32_t) reducing; /* switches, then too */
    DS_VEC(ds_topo_degraded) degraded;
    /* The same graph without the links that `degrade` leaves slower; NULL: there are none. */
    ds_topo *around;
    bool without_slow;   /* of `around` itself */
    int64_t *shares_ppb; /* compute, memory of each device; NULL: none is degraded */
};

/* A local vertex or link as (node, element, number inside the element). A link of the template's
 * own has node == NULL. */
typedef struct ds_topo_spot {
    const ds_topo_node *node;
    uint32_t element, inner; /* inner: in the child's numbers; 0 for a plain vertex */
} ds_topo_spot;
static inline ds_topo_spot ds_topo_locate(const ds_topo_template *t, uint32_t vertex) {
    uint32_t lo = 0, hi = t->n_nodes; /* the last node that starts at or before the vertex */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->nodes[mid].first_vertex <= vertex) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    const ds_topo_node *node = &t->nodes[lo];
    uint32_t offset = vertex - node->first_vertex;
    if (!node->child) return (ds_topo_spot){node, offset, 0};
    return (ds_topo_spot){node, offset / node->child->n_vertices, offset % node->child->n_vertices};
}

/* First local vertex, link of one element of a node. */
static inline uint32_t ds_topo_vertex_base(const ds_topo_node *node, uint32_t element) {
    return node->first_vertex + element * (node->child ? node->child->n_vertices : 1);
}
static inline uint32_t ds_topo_link_base(const ds_topo_node *node, uint32_t element) {
    return node->first_link + element * node->child->n_links;
}

/* The template of one element. What is numbered (nodes, ports, vertices) is as in node->child;
 * links may be other. */
static inline ds_topo_template *ds_topo_inside(ds_topo_spot spot) {
    return spot.node->own ? spot.node->own[spot.element] : spot.node->child;
}

static inline ds_node_kind ds_topo_kind(uint8_t flags) {
    return (ds_node_kind)(flags & DS_TOPO_KIND_MASK);
}

/* attrs.c. What the attributes of a node's declaration say; errors with their place. */
ds_status ds_topo_node_attrs(const ds_env *env, ds_topo_node *node, ds_error *err);
/* Applies a link's attributes to its written bandwidth. */
ds_status ds_topo_link_attrs(const ds_env *env, const ds_link_decl *decl, ds_topo_link *link,
                             ds_error *err);

/* Text as XML has it, in attributes too (export.c). */
void ds_topo_put_xml(ds_buf *out, const char *text);

/* build.c: a path to a vertex, or to an instance: then *inside is its template and `vertex` its
 * first one. */
typedef struct ds_topo_path {
    const ds_step *steps;
    uint32_t n;
    ds_loc loc;
} ds_topo_path;

ds_status ds_topo_resolve_path(const ds_topo_template *t, const ds_env *env, ds_topo_path path,
                               uint32_t *vertex, const ds_topo_template **inside, ds_error *err);
/* The first device at or after a vertex. */
uint32_t ds_topo_first_device(const ds_topo *topo, uint32_t vertex);
/* Sorts a template's own links by their ends; missing ones are left out. */
void ds_topo_index_links(ds_arena *arena, ds_topo_template *t);
/* degrade.c: what the root module says, to a topology that is laid out.
 * O(links + turns · links of a node). */
ds_status ds_topo_degrade(ds_topo *topo, const ds_binding *binding, ds_error *err);
/* Is some link slower, and not missing? */
bool ds_topo_has_slow(const ds_topo *topo);

/* Frees what the search cache holds. */
void ds_topo_drop_searches(ds_topo *topo);

#endif
