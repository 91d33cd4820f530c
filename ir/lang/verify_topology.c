/* Device graphs, as far as the text alone tells: names, paths, units. What needs numbers is checked
 * where the graph is built (sim/topo); only counting devices and mesh sizes are here, because
 * shapes depend on them. */
#include "ir/lang/verify_internal.h"

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

/* With numbers; no index is in reach of a link's attributes. */
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

#define MAX_NESTING 64 /* levels; a cluster has about five */

typedef struct nest_search {
    const ds_topology *target;
    ds_map visited;
    ds_buf chain;
    bool told; /* the cycle has an earlier topology, where it is reported */
} nest_search;

/* Looks for the target below `at`; the chain is the way to it. Every topology is visited once. */
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
    if (nests(&s, topology, MAX_NESTING) && !s.told)
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

/* ---- counting ---- */

typedef struct counter {
    ds_env env;
    ds_map done; /* topology → devices; OPEN while counting */
    uint32_t depth;
    ds_error *err;
} counter;

#define OPEN UINT64_MAX

static ds_status count_topology(counter *c, const ds_topology *topology, ds_loc loc, int64_t *out);

static ds_status count_node(counter *c, const ds_topology *topology, const ds_node_decl *node,
                            int64_t *out) {
    int64_t count = 1, inside = 1;
    *out = 0;
    if (DS_HAS_EXPR(node->count))
        DS_TRY(ds_expr_eval_int(&c->env, node->count, node->loc, &count, c->err));
    if (count < 0)
        return ds_error_set(c->err, DS_ERR_VALUE, node->loc, "the count of '%s' is %lld, below 0",
                            node->name, (long long)count);
    if (node->kind == DS_NODE_INSTANCE) {
        const ds_topology *inner = ds_find_topology(topology->module, node->type_name);
        if (!inner)
            return ds_error_set(c->err, DS_ERR_NAME, node->loc, "unknown topology @%s",
                                node->type_name);
        DS_TRY(count_topology(c, inner, node->loc, &inside));
    } else if (node->kind != DS_NODE_DEVICE) {
        return DS_OK;
    }
    if (!ds_mul_i64(count, inside, out))
        return ds_error_set(c->err, DS_ERR_OVERFLOW, node->loc,
                            "%lld times %lld devices in '%s' are beyond 64 bits", (long long)count,
                            (long long)inside, node->name);
    return DS_OK;
}

static ds_status count_topology(counter *c, const ds_topology *topology, ds_loc loc, int64_t *out) {
    const uint64_t *known = ds_map_find(&c->done, DS_KEY(topology));
    if (known && *known == OPEN)
        return ds_error_set(c->err, DS_ERR_NAME, loc, "topology @%s contains itself",
                            topology->name);
    if (known) {
        *out = (int64_t)*known;
        return DS_OK;
    }
    if (c->depth == MAX_NESTING)
        return ds_error_set(c->err, DS_ERR_LIMIT, loc, "topologies nest more than %d deep at @%s",
                            MAX_NESTING, topology->name);
    c->depth++;
    ds_map_put(&c->done, DS_KEY(topology), OPEN);
    int64_t sum = 0;
    for (uint32_t i = 0; i < topology->nodes.n; i++) {
        int64_t n;
        DS_TRY(count_node(c, topology, &topology->nodes.at[i], &n));
        if (!ds_add_i64(sum, n, &sum))
            return ds_error_set(c->err, DS_ERR_OVERFLOW, topology->loc,
                                "the devices of @%s are beyond 64 bits", topology->name);
    }
    c->depth--;
    ds_map_put(&c->done, DS_KEY(topology), (uint64_t)sum);
    *out = sum;
    return DS_OK;
}

ds_status ds_topology_count_devices(const ds_binding *binding, const ds_topology *topology,
                                    int64_t *n, ds_error *err) {
    counter c = {.env = ds_binding_env(binding, NULL), .err = err};
    ds_map_init(&c.done);
    ds_status status = count_topology(&c, topology, topology->loc, n);
    ds_map_deinit(&c.done);
    return status;
}

/* ---- meshes ---- */

ds_status ds_mesh_axis_sizes(const ds_binding *binding, const ds_mesh *mesh, int64_t *sizes,
                             ds_error *err) {
    ds_env env = ds_binding_env(binding, NULL);
    int64_t product = 1;
    for (uint32_t i = 0; i < mesh->n_axes; i++) {
        const ds_mesh_axis *axis = &mesh->axes[i];
        DS_TRY(ds_expr_eval_int(&env, axis->size, axis->loc, &sizes[i], err));
        if (sizes[i] < 1)
            return ds_error_set(err, DS_ERR_VALUE, axis->loc,
                                "axis %s of mesh @%s has size %lld; an axis has at least 1 device",
                                axis->name, mesh->name, (long long)sizes[i]);
        if (!ds_mul_i64(product, sizes[i], &product))
            return ds_error_set(err, DS_ERR_OVERFLOW, axis->loc,
                                "the axes of mesh @%s multiply to more than 64 bits hold",
                                mesh->name);
    }
    return DS_OK;
}

#define MAX_MESH_CHAIN 64

static ds_status count_mesh(const ds_binding *binding, const ds_mesh *mesh, uint32_t depth,
                            int64_t *n, ds_error *err) {
    if (mesh->kind == DS_MESH_PICK) {
        ds_env env = ds_binding_env(binding, NULL);
        int64_t lo, hi;
        DS_TRY(ds_expr_eval_int(&env, mesh->pick_lo, mesh->loc, &lo, err));
        DS_TRY(ds_expr_eval_int(&env, mesh->pick_hi, mesh->loc, &hi, err));
        if (lo < 0 || lo >= hi)
            return ds_error_set(err, DS_ERR_VALUE, mesh->loc,
                                "pick %lld..%lld takes no devices: the range must begin at 0 or "
                                "above and end beyond its begin",
                                (long long)lo, (long long)hi);
        *n = hi - lo;
        return DS_OK;
    }
    if (mesh->kind == DS_MESH_ON) {
        const ds_topology *topology = ds_find_topology(mesh->module, mesh->base);
        if (topology) return ds_topology_count_devices(binding, topology, n, err);
        return ds_error_set(err, DS_ERR_NAME, mesh->loc, "unknown topology @%s", mesh->base);
    }
    const ds_mesh *base = ds_find_mesh(mesh->module, mesh->base);
    if (!base) return ds_error_set(err, DS_ERR_NAME, mesh->loc, "unknown mesh @%s", mesh->base);
    if (!depth)
        return ds_error_set(err, DS_ERR_LIMIT, mesh->loc,
                            "mesh @%s is a view of a view of … more than %d deep", mesh->name,
                            MAX_MESH_CHAIN);
    return count_mesh(binding, base, depth - 1, n, err);
}

ds_status ds_mesh_count_devices(const ds_binding *binding, const ds_mesh *mesh, int64_t *n,
                                ds_error *err) {
    return count_mesh(binding, mesh, MAX_MESH_CHAIN, n, err);
}
