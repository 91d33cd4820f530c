/* Device graphs, without numbers: names, paths, units. Numbers are checked when the graph is built
 * (sim/topo), except counts of devices and mesh sizes, on which shapes depend. */
#include "ir/core/devices.h"
#include "ir/verify/internal.h"

#include "ir/base/units.h"

#include <string.h>

/* ---- nodes ---- */

static const ds_node_decl *find_node(const ds_topology *topology, const char *name) {
    for (uint32_t i = 0; i < topology->nodes.n; i++)
        if (topology->nodes.at[i].name == name) return &topology->nodes.at[i];
    return NULL;
}

static void check_node(ds_checker *ck, const ds_topology *topology, uint32_t index) {
    const ds_node_decl *node = &topology->nodes.at[index];
    const ds_node_decl *first = find_node(topology, node->name);
    if (first != node)
        ds_verify__error(ck, DS_ERR_NAME, node->loc, NULL,
                         "topology @%s has two nodes named '%s'; the first is on line %u",
                         topology->name, node->name, first->loc.line);
    if (node->kind == DS_NODE_INSTANCE && !ds_find_topology(topology->module, node->type_name))
        ds_verify__unknown(ck, topology->module, DS_ITEM_TOPOLOGY, node->loc, node->type_name);
}

/* ---- paths ---- */

static void unknown_node(ds_checker *ck, const ds_topology *topology, const char *name,
                         ds_loc loc) {
    ds_names names = {0};
    for (uint32_t i = 0; i < topology->nodes.n; i++)
        DS_PUSH(&ck->diags->arena, &names.all, topology->nodes.at[i].name);
    ds_verify__error(ck, DS_ERR_NAME, loc, ds_verify__hint(ck, "", name, names.all.at, names.all.n),
                     "topology @%s has no node '%s'", topology->name, name);
}

const ds_node_decl *ds_verify__path(ds_checker *ck, const ds_topology *topology,
                                    const ds_step *steps, uint32_t n, ds_loc loc) {
    const ds_node_decl *node = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (node && node->kind != DS_NODE_INSTANCE) {
            ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                             "'%s' has nothing inside: it is no nested "
                             "topology, so '.%s' leads nowhere",
                             node->name, steps[i].name);
            return NULL;
        }
        if (node) topology = ds_find_topology(topology->module, node->type_name);
        if (!topology) return NULL; /* reported at the node */
        node = find_node(topology, steps[i].name);
        if (!node) {
            unknown_node(ck, topology, steps[i].name, loc);
            return NULL;
        }
        bool indexed = DS_HAS_EXPR(steps[i].index);
        if (DS_HAS_EXPR(node->count) && !indexed) {
            ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                             "there are several '%s' in @%s: say which one, as in '%s[0]'",
                             node->name, topology->name, node->name);
            return NULL;
        }
        if (!DS_HAS_EXPR(node->count) && indexed) {
            ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                             "'%s' of @%s is a single node: write it without '[...]'", node->name,
                             topology->name);
            return NULL;
        }
    }
    return node;
}

/* ---- links ---- */

static void check_end(ds_checker *ck, const ds_topology *topology, const ds_link_decl *link,
                      const ds_step *steps, uint32_t n) {
    const ds_node_decl *node = ds_verify__path(ck, topology, steps, n, link->loc);
    if (node && node->kind == DS_NODE_INSTANCE)
        ds_verify__error(ck, DS_ERR_NAME, link->loc, NULL,
                         "a link ends at a device, switch, nic or host; '%s' is a whole @%s: name "
                         "one of the nodes inside it",
                         node->name, node->type_name);
}

static void check_unit(ds_checker *ck, ds_loc loc, ds_quantity q, char dimension, const char *what,
                       const char *example) {
    if (!DS_HAS_EXPR(q.value)) return;
    if (q.unit == DS_UNIT_NONE) {
        ds_verify__error(ck, DS_ERR_VALUE, loc, NULL, "a link's %s needs a unit, as in %s", what,
                         example);
    } else if (ds_unit_dimension(q.unit) != dimension) {
        ds_verify__error(ck, DS_ERR_VALUE, loc, NULL,
                         "a link's %s cannot be given in '%s'; write it as in %s", what,
                         ds_unit_text(q.unit), example);
    }
}

static const char *const link_attrs[] = {"efficiency", "cap"};

static void check_link_attr(ds_checker *ck, const ds_attr *attr) {
    if (strcmp(attr->name, "cap") == 0) {
        bool number = attr->kind == DS_ATTR_EXPR || attr->kind == DS_ATTR_QUANTITY;
        ds_unit_id unit = attr->kind == DS_ATTR_QUANTITY ? attr->unit : DS_UNIT_NONE;
        ds_expr value = number ? attr->expr : ds_expr_int(&ck->unit->exprs, 0);
        check_unit(ck, attr->loc, (ds_quantity){value, unit}, 'R', "cap", "'cap = 12 GB/s'");
    } else if (strcmp(attr->name, "efficiency") != 0) {
        ds_verify__error(ck, DS_ERR_NAME, attr->loc,
                         ds_verify__hint(ck, "", attr->name, link_attrs, 2),
                         "a link has no attribute '%s'; it takes efficiency and cap", attr->name);
    } else if (attr->kind != DS_ATTR_EXPR) {
        ds_verify__error(ck, DS_ERR_TYPE, attr->loc, NULL,
                         "a link's efficiency is a part of its bandwidth, a number above 0 and at "
                         "most 1, as in 'efficiency = 0.92'");
    }
}

static void check_link(ds_checker *ck, const ds_topology *topology, const ds_link_decl *link) {
    for (uint32_t i = 0; i < link->n_loops; i++) {
        ds_verify__index_name(ck, topology->module, link->loops[i].name, link->loops[i].loc);
        for (uint32_t j = 0; j < i; j++)
            if (link->loops[j].name == link->loops[i].name)
                ds_verify__error(ck, DS_ERR_NAME, link->loops[i].loc, NULL,
                                 "the index '%s' is already taken by an outer loop of this link",
                                 link->loops[i].name);
    }
    for (uint32_t i = 0; i < link->n_attrs; i++) check_link_attr(ck, &link->attrs[i]);
    check_end(ck, topology, link, link->a, link->n_a);
    check_end(ck, topology, link, link->b, link->n_b);
    check_unit(ck, link->loc, link->bandwidth, 'R', "bandwidth", "'300 GB/s'");
    check_unit(ck, link->loc, link->latency, 'T', "latency", "'1.5 us'");
}

/* Checks with numbers; a link's attributes can use no index. */
static void check_efficiency(ds_checker *ck, const ds_env *env, const ds_attr *attr) {
    double part;
    ds_error err = {0};
    if (ds_expr_eval_real(env, attr->expr, attr->loc, &part, &err) != DS_OK)
        ds_verify__pass_on(ck, &err);
    else if (!(part > 0 && part <= 1))
        ds_verify__error(ck, DS_ERR_VALUE, attr->loc, NULL,
                         "a link's efficiency is %g: it must be above 0 and at most 1", part);
}

static void check_cap(ds_checker *ck, const ds_env *env, const ds_attr *attr) {
    int64_t bytes_per_s;
    ds_error err = {0};
    ds_quantity cap = {attr->expr, attr->unit};
    if (ds_quantity_eval(env, cap, 'R', 1.0, attr->loc, &bytes_per_s, &err) != DS_OK)
        ds_verify__pass_on(ck, &err);
    else if (bytes_per_s < 1)
        ds_verify__error(ck, DS_ERR_VALUE, attr->loc, NULL,
                         "a link's cap is %lld B/s: it must be at least 1 B/s",
                         (long long)bytes_per_s);
}

void ds_verify__link_numbers(ds_checker *ck, const ds_topology *topology) {
    ds_env env = ds_binding_env(ck->binding, NULL);
    for (uint32_t i = 0; i < topology->links.n; i++) {
        const ds_link_decl *link = &topology->links.at[i];
        for (uint32_t k = 0; k < link->n_attrs; k++) {
            const ds_attr *attr = &link->attrs[k];
            if (attr->kind == DS_ATTR_EXPR && strcmp(attr->name, "efficiency") == 0)
                check_efficiency(ck, &env, attr);
            else if (attr->kind == DS_ATTR_QUANTITY && strcmp(attr->name, "cap") == 0)
                check_cap(ck, &env, attr);
        }
    }
}

/* ---- nesting ---- */

typedef struct nest_search {
    const ds_topology *target;
    ds_map visited;
    ds_buf chain;
    bool told; /* the cycle has an earlier topology, where it is reported */
} nest_search;

/* Looks for the target below `at`; the chain is the way to the target. Every topology is visited
 * once. */
static bool nests(nest_search *s, const ds_topology *at, uint32_t depth) {
    for (uint32_t i = 0; i < at->nodes.n && depth; i++) {
        if (at->nodes.at[i].kind != DS_NODE_INSTANCE) continue;
        const ds_topology *inner = ds_find_topology(at->module, at->nodes.at[i].type_name);
        if (!inner) continue;
        size_t n = s->chain.n;
        ds_buf_printf(&s->chain, " -> @%s", inner->name);
        if (inner == s->target) return true;
        if (!ds_map_find(&s->visited, DS_KEY(inner))) {
            ds_map_put(&s->visited, DS_KEY(inner), 1);
            if (nests(s, inner, depth - 1)) {
                s->told = s->told || inner->loc.line < s->target->loc.line;
                return true;
            }
        }
        s->chain.n = n;
        s->chain.text[n] = '\0';
    }
    return false;
}

static void check_nesting(ds_checker *ck, const ds_topology *topology) {
    nest_search s = {.target = topology};
    ds_map_init(&s.visited);
    ds_buf_printf(&s.chain, "@%s", topology->name);
    if (nests(&s, topology, DS_MAX_TOPOLOGY_NESTING) && !s.told)
        ds_verify__error(ck, DS_ERR_NAME, topology->loc, NULL, "topology @%s contains itself: %s",
                         topology->name, s.chain.text);
    ds_buf_deinit(&s.chain);
    ds_map_deinit(&s.visited);
}

void ds_verify__topology(ds_checker *ck, const ds_topology *topology) {
    for (uint32_t i = 0; i < topology->nodes.n; i++) check_node(ck, topology, i);
    for (uint32_t i = 0; i < topology->links.n; i++)
        check_link(ck, topology, &topology->links.at[i]);
    check_nesting(ck, topology);
}
