/* From declarations to the tree of templates.
 *
 * A template is built once, its instances' templates first (depth first, so that recursion shows as
 * a template that is met while being built). Then its link loops run and every end is resolved to a
 * local vertex; ends inside an instance make that vertex a port of each template on the way down.
 * When all is known the root is laid out flat: links, devices and paths as arrays. */
#include "ir/strategy/scenario.h"
#include "ir/strategy/what_if.h"
#include "sim/topo/symmetry.h"
#include "sim/topo/tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    ds_topo *topo;
    const ds_binding *binding;
    ds_what_if what_if;
    uint32_t meant;     /* bit i: a link of what_if.links[i] was seen */
    ds_map template_of; /* ds_topology → template */
    ds_error *err;
} builder;

/* ---- nodes ---- */

static ds_status eval_count(builder *b, const ds_node_decl *decl, uint32_t *count) {
    *count = 1;
    if (!DS_HAS_EXPR(decl->count)) return DS_OK;
    ds_env env = ds_binding_env(b->binding, NULL);
    int64_t value;
    DS_TRY(ds_expr_eval_int(&env, decl->count, decl->loc, &value, b->err));
    if (value < 0) {
        return ds_error_set(b->err, DS_ERR_VALUE, decl->loc, "`%s` has a negative count: %lld",
                            decl->name, (long long)value);
    }
    if (value > DS_TOPO_MAX_SIZE) {
        return ds_error_set(b->err, DS_ERR_LIMIT, decl->loc,
                            "`%s` has a count of %lld; a topology has at most %u vertices",
                            decl->name, (long long)value, DS_TOPO_MAX_SIZE);
    }
    *count = (uint32_t)value;
    return DS_OK;
}

static ds_status build_template(builder *b, const ds_topology *decl, ds_loc used_at,
                                uint32_t nesting, ds_topo_template **out);

static ds_status find_child(builder *b, const ds_topology *parent, const ds_node_decl *decl,
                            uint32_t nesting, ds_topo_template **out) {
    const ds_topology *child = ds_find_topology(parent->module, decl->type_name);
    if (child) return build_template(b, child, decl->loc, nesting + 1, out);
    DS_VEC(const char *) names = {0};
    for (uint32_t i = 0; i < parent->module->topologies.n; i++) {
        DS_HPUSH(&names, parent->module->topologies.at[i]->name);
    }
    const char *near = ds_suggest(decl->type_name, names.at, names.n);
    ds_error_set(b->err, DS_ERR_NAME, decl->loc, "no topology @%s%s%s%s", decl->type_name,
                 near ? "; did you mean @" : "", near ? near : "", near ? "?" : "");
    free(names.at);
    return DS_ERR_NAME;
}

/* Counts and number ranges; template links are not known yet, so first_link comes later. */
static ds_status add_node(builder *b, ds_topo_template *t, uint32_t index, uint32_t nesting) {
    const ds_node_decl *decl = &t->decl->nodes.at[index];
    ds_topo_node *node = &t->nodes[index];
    node->decl = decl;
    ds_env env = ds_binding_env(b->binding, NULL);
    DS_TRY(ds_topo_node_attrs(&env, node, b->err));
    if (ds_map_find(&t->node_of_name, DS_KEY(decl->name))) {
        return ds_error_set(b->err, DS_ERR_NAME, decl->loc, "`%s` is declared twice in @%s",
                            decl->name, t->decl->name);
    }
    ds_map_put(&t->node_of_name, DS_KEY(decl->name), index);
    DS_TRY(eval_count(b, decl, &node->count));
    if (decl->kind == DS_NODE_INSTANCE) DS_TRY(find_child(b, t->decl, decl, nesting, &node->child));

    ds_topo_template *child = node->child;
    uint64_t vertices = (uint64_t)node->count * (child ? child->n_vertices : 1) + t->n_vertices;
    if (vertices > DS_TOPO_MAX_SIZE) {
        return ds_error_set(b->err, DS_ERR_LIMIT, decl->loc,
                            "@%s has %llu vertices or more; at most %u are supported",
                            t->decl->name, (unsigned long long)vertices, DS_TOPO_MAX_SIZE);
    }
    node->first_vertex = t->n_vertices;
    node->first_device = t->n_devices;
    t->n_vertices = (uint32_t)vertices;
    if (child) {
        t->n_devices += node->count * child->n_devices;
        if (t->depth < child->depth + 1) t->depth = child->depth + 1;
    } else if (decl->kind == DS_NODE_DEVICE) {
        t->n_devices += node->count;
    }
    return DS_OK;
}

static void fill_flags(builder *b, ds_topo_template *t) {
    t->flags = ds_arena_alloc(&b->topo->arena, t->n_vertices);
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const ds_topo_node *node = &t->nodes[i];
        uint8_t own =
            (uint8_t)((uint32_t)node->decl->kind | (node->forwards ? DS_TOPO_FORWARDS : 0u) |
                      (node->reduces ? DS_TOPO_REDUCES : 0u));
        for (uint32_t e = 0; e < node->count; e++) {
            uint8_t *at = t->flags + ds_topo_vertex_base(node, e);
            if (!node->child) {
                *at = own;
                continue;
            }
            for (uint32_t v = 0; v < node->child->n_vertices; v++) {
                at[v] = (uint8_t)(node->child->flags[v] & ~DS_TOPO_PORT);
            }
        }
    }
}

/* ---- paths ---- */

static void suggest_node(const ds_topo_template *t, const char *name, ds_loc loc, ds_error *err) {
    const char **names = ds_xcalloc(t->n_nodes + 1, sizeof *names);
    for (uint32_t i = 0; i < t->n_nodes; i++) names[i] = t->nodes[i].decl->name;
    const char *near = ds_suggest(name, names, t->n_nodes);
    free(names);
    ds_error_set(err, DS_ERR_NAME, loc, "@%s has no node `%s`%s%s%s", t->decl->name, name,
                 near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

/* One step of a path: the node and the element that it names. */
static ds_status resolve_step(const ds_topo_template *t, const ds_env *env, const ds_step *step,
                              ds_loc loc, const ds_topo_node **out, uint32_t *element,
                              ds_error *err) {
    const uint64_t *index = ds_map_find(&t->node_of_name, DS_KEY(step->name));
    if (!index) {
        suggest_node(t, step->name, loc, err);
        return DS_ERR_NAME;
    }
    const ds_topo_node *node = *out = &t->nodes[*index];
    bool indexed = DS_HAS_EXPR(node->decl->count);
    if (indexed != DS_HAS_EXPR(step->index)) {
        if (!indexed) {
            return ds_error_set(err, DS_ERR_NAME, loc,
                                "`%s` of @%s takes no index: it is a single node", step->name,
                                t->decl->name);
        }
        return ds_error_set(err, DS_ERR_NAME, loc,
                            "`%s` of @%s needs an index: there are %u of them", step->name,
                            t->decl->name, node->count);
    }
    *element = 0;
    if (!indexed) return DS_OK;
    int64_t at;
    DS_TRY(ds_expr_eval_int(env, step->index, loc, &at, err));
    if (at < 0 || at >= node->count) {
        return ds_error_set(err, DS_ERR_VALUE, loc,
                            "index out of range: %s[%lld] of @%s has only %s[0..%u)", step->name,
                            (long long)at, t->decl->name, step->name, node->count);
    }
    *element = (uint32_t)at;
    return DS_OK;
}

/* Walks a whole path; *inside is the template that the last step names an instance of, or NULL for
 * a vertex. `vertex` is the vertex, or the instance's first one. */
ds_status ds_topo_resolve_path(const ds_topo_template *t, const ds_env *env, ds_topo_path path,
                               uint32_t *vertex, const ds_topo_template **inside, ds_error *err) {
    *vertex = 0;
    *inside = t;
    for (uint32_t i = 0; i < path.n; i++) {
        if (!*inside) {
            return ds_error_set(err, DS_ERR_NAME, path.loc,
                                "`%s` is a single node: it has no `%s` inside",
                                path.steps[i - 1].name, path.steps[i].name);
        }
        const ds_topo_node *node;
        uint32_t element;
        DS_TRY(resolve_step(*inside, env, &path.steps[i], path.loc, &node, &element, err));
        *vertex += ds_topo_vertex_base(node, element);
        *inside = node->child;
    }
    return DS_OK;
}

/* ---- links ---- */

/* " (i = 3, j = 0)" for messages about one turn of a loop. */
static const char *loop_note(const ds_index *indices, char *text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    for (; indices && n + 40 < size; indices = indices->up) {
        int wrote = snprintf(text + n, size - n, "%s%.20s = %lld", n ? ", " : " (", indices->name,
                             (long long)indices->value);
        if (wrote < 0) break;
        n += (size_t)wrote;
    }
    if (n && n + 1 < size) memcpy(text + n, ")", 2);
    return text;
}

static ds_status resolve_end(builder *b, const ds_topo_template *t, const ds_env *env,
                             const ds_link_decl *link, bool second, uint32_t *vertex) {
    const ds_step *steps = second ? link->b : link->a;
    uint32_t n = second ? link->n_b : link->n_a;
    const ds_topo_template *inside;
    DS_TRY(
        ds_topo_resolve_path(t, env, (ds_topo_path){steps, n, link->loc}, vertex, &inside, b->err));
    if (!inside) return DS_OK;
    return ds_error_set(b->err, DS_ERR_NAME, link->loc,
                        "a link ends at a device, switch, nic or host; `%s` is a whole @%s: name "
                        "one of its nodes, as in `%s.%s`",
                        n ? steps[n - 1].name : "", inside->decl->name, n ? steps[n - 1].name : "",
                        inside->n_nodes ? inside->nodes[0].decl->name : "…");
}

/* A link end deep inside instances is a port of every template on its way. */
static void mark_port(const ds_topo_template *t, uint32_t vertex) {
    ds_topo_spot spot = ds_topo_locate(t, vertex);
    while (spot.node->child) {
        t = spot.node->child;
        t->flags[spot.inner] |= DS_TOPO_PORT;
        spot = ds_topo_locate(t, spot.inner);
    }
}

static ds_status push_link(builder *b, ds_topo_template *t, const ds_link_decl *decl,
                           ds_topo_link link) {
    if (t->own.n == DS_TOPO_MAX_SIZE) {
        return ds_error_set(b->err, DS_ERR_LIMIT, decl->loc,
                            "@%s has more than %u directed links of its own", t->decl->name,
                            DS_TOPO_MAX_SIZE);
    }
    DS_HPUSH(&t->own, link);
    return DS_OK;
}

static int64_t at_least_1(int64_t rate, int64_t ppb) {
    int64_t changed = ds_what_if_times(rate, ppb);
    return changed || !rate ? changed : 1;
}

/* What the scenario's `what_if` says of the link. */
static void change_link(builder *b, const ds_link_decl *decl, ds_topo_link *link) {
    const char *from = decl->a[decl->n_a - 1].name, *to = decl->b[decl->n_b - 1].name;
    link->latency_ps = ds_what_if_times(link->latency_ps, b->what_if.ppb[DS_RESOURCE_LATENCY]);
    for (uint32_t i = 0; i < b->what_if.n_links; i++) {
        const ds_link_what_if *change = &b->what_if.links[i];
        if (!ds_what_if_means(change, from, to)) continue;
        b->meant |= UINT32_C(1) << i;
        link->known_bytes_per_s = link->whole_bytes_per_s;
        link->bytes_per_s = at_least_1(link->bytes_per_s, change->ppb);
        link->cap_bytes_per_s = at_least_1(link->cap_bytes_per_s, change->ppb);
    }
}

/* One turn of a link's loops. */
static ds_status add_link(builder *b, ds_topo_template *t, const ds_link_decl *decl,
                          const ds_index *indices) {
    ds_env env = ds_binding_env(b->binding, indices);
    if (DS_HAS_EXPR(decl->where)) {
        int64_t wanted;
        DS_TRY(ds_expr_eval_int(&env, decl->where, decl->loc, &wanted, b->err));
        if (!wanted) return DS_OK;
    }
    char note[200];
    ds_topo_link link = {0};
    DS_TRY(resolve_end(b, t, &env, decl, false, &link.from));
    DS_TRY(resolve_end(b, t, &env, decl, true, &link.to));
    if (link.from == link.to) {
        return ds_error_set(b->err, DS_ERR_VALUE, decl->loc, "a link from `%s` to itself%s",
                            decl->a[decl->n_a - 1].name, loop_note(indices, note, sizeof note));
    }
    DS_TRY(ds_quantity_eval(&env, decl->bandwidth, 'R', 1.0, decl->loc, &link.bytes_per_s, b->err));
    if (link.bytes_per_s <= 0) {
        return ds_error_set(b->err, DS_ERR_VALUE, decl->loc,
                            "a link's bandwidth must be at least 1 B/s, not %lld B/s%s",
                            (long long)link.bytes_per_s, loop_note(indices, note, sizeof note));
    }
    if (DS_HAS_EXPR(decl->latency.value)) {
        DS_TRY(
            ds_quantity_eval(&env, decl->latency, 'T', 1e12, decl->loc, &link.latency_ps, b->err));
        if (link.latency_ps < 0) {
            return ds_error_set(b->err, DS_ERR_VALUE, decl->loc,
                                "a link's latency is negative: %lld ps%s",
                                (long long)link.latency_ps, loop_note(indices, note, sizeof note));
        }
    }
    DS_TRY(ds_topo_link_attrs(&env, decl, &link, b->err));
    link.whole_bytes_per_s = link.bytes_per_s;
    change_link(b, decl, &link);
    mark_port(t, link.from);
    mark_port(t, link.to);
    DS_TRY(push_link(b, t, decl, link));
    if (!decl->duplex) return DS_OK;
    ds_topo_link back = link;
    back.from = link.to;
    back.to = link.from;
    return push_link(b, t, decl, back);
}

static ds_status run_loops(builder *b, ds_topo_template *t, const ds_link_decl *decl,
                           uint32_t level, const ds_index *indices, int64_t *turns) {
    if (level == decl->n_loops) return add_link(b, t, decl, indices);
    const ds_binder *loop = &decl->loops[level];
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, b->err));
    DS_TRY(ds_expr_eval_int(&env, loop->hi, loop->loc, &hi, b->err));
    int64_t n = 0;
    bool beyond = hi > lo && (__builtin_sub_overflow(hi, lo, &n) || n > DS_TOPO_MAX_LOOPS - *turns);
    if (beyond)
        return ds_error_set(b->err, DS_ERR_LIMIT, loop->loc,
                            "the link loops of @%s take more than %" PRId64 " turns", t->decl->name,
                            DS_TOPO_MAX_LOOPS);
    *turns += n;
    for (int64_t i = lo; i < hi; i++) {
        ds_index index = {loop->name, i, indices};
        DS_TRY(run_loops(b, t, decl, level + 1, &index, turns));
    }
    return DS_OK;
}

/* Own links first, then those of the instances in order. */
static ds_status number_links(builder *b, ds_topo_template *t) {
    uint64_t n = t->n_own = t->own.n;
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        ds_topo_node *node = &t->nodes[i];
        node->first_link = (uint32_t)n;
        if (node->child) n += (uint64_t)node->count * node->child->n_links;
        if (n > DS_TOPO_MAX_SIZE) {
            return ds_error_set(b->err, DS_ERR_LIMIT, node->decl->loc,
                                "@%s has %llu directed links or more; at most %u are supported",
                                t->decl->name, (unsigned long long)n, DS_TOPO_MAX_SIZE);
        }
    }
    t->n_links = (uint32_t)n;
    return DS_OK;
}

/* Counting sort of own links by one end. */
static void index_links(ds_arena *arena, const ds_topo_template *t, bool by_to, uint32_t **start,
                        uint32_t **links) {
    uint32_t *at = *start = DS_NEW_N(arena, uint32_t, t->n_vertices + 2);
    *links = DS_NEW_N(arena, uint32_t, t->n_own + 1);
    for (uint32_t i = 0; i < t->n_own; i++) {
        const ds_topo_link *link = &t->own.at[i];
        if (link->bytes_per_s) at[(by_to ? link->to : link->from) + 2]++;
    }
    for (uint32_t v = 0; v < t->n_vertices; v++) at[v + 2] += at[v + 1];
    for (uint32_t i = 0; i < t->n_own; i++) {
        const ds_topo_link *link = &t->own.at[i];
        if (link->bytes_per_s) (*links)[at[(by_to ? link->to : link->from) + 1]++] = i;
    }
}

void ds_topo_index_links(ds_arena *arena, ds_topo_template *t) {
    index_links(arena, t, false, &t->out_start, &t->out_links);
    index_links(arena, t, true, &t->in_start, &t->in_links);
}

static ds_status add_links(builder *b, ds_topo_template *t) {
    int64_t turns = 0;
    for (uint32_t i = 0; i < t->decl->links.n; i++) {
        DS_TRY(run_loops(b, t, &t->decl->links.at[i], 0, NULL, &turns));
    }
    DS_TRY(number_links(b, t));
    ds_topo_index_links(&b->topo->arena, t);
    return DS_OK;
}

/* ---- templates ---- */

static ds_status build_template(builder *b, const ds_topology *decl, ds_loc used_at,
                                uint32_t nesting, ds_topo_template **out) {
    const uint64_t *known = ds_map_find(&b->template_of, DS_KEY(decl));
    if (known) {
        *out = (ds_topo_template *)(uintptr_t)*known;
        if ((*out)->done) return DS_OK;
        return ds_error_set(b->err, DS_ERR_NAME, used_at, "topology @%s contains itself",
                            decl->name);
    }
    if (nesting > DS_TOPO_MAX_DEPTH) {
        return ds_error_set(b->err, DS_ERR_LIMIT, used_at, "topologies nest more than %d deep",
                            DS_TOPO_MAX_DEPTH);
    }
    ds_topo_template *t = *out = DS_NEW(&b->topo->arena, ds_topo_template);
    DS_PUSH(&b->topo->arena, &b->topo->templates, t);
    ds_map_put(&b->template_of, DS_KEY(decl), DS_KEY(t));
    t->decl = decl;
    t->depth = 1;
    t->n_nodes = decl->nodes.n;
    t->nodes = DS_NEW_N(&b->topo->arena, ds_topo_node, t->n_nodes + 1);
    for (uint32_t i = 0; i < t->n_nodes; i++) DS_TRY(add_node(b, t, i, nesting));
    if (t->n_vertices == 0) {
        return ds_error_set(b->err, DS_ERR_VALUE, decl->loc, "topology @%s has no nodes",
                            decl->name);
    }
    fill_flags(b, t);
    DS_TRY(add_links(b, t));
    t->done = true;
    return DS_OK;
}

static void list_ports(ds_topo *topo) {
    for (uint32_t i = 0; i < topo->templates.n; i++) {
        ds_topo_template *t = topo->templates.at[i];
        for (uint32_t v = 0; v < t->n_vertices; v++) t->n_ports += !!(t->flags[v] & DS_TOPO_PORT);
        t->ports = DS_NEW_N(&topo->arena, uint32_t, t->n_ports + 1);
        t->n_ports = 0;
        for (uint32_t v = 0; v < t->n_vertices; v++) {
            if (t->flags[v] & DS_TOPO_PORT) t->ports[t->n_ports++] = v;
        }
    }
}

/* ---- the flat layout ---- */

typedef struct layout {
    ds_topo *topo;
    uint32_t vertex, device; /* next */
} layout;

static void lay_out(layout *l, const ds_topo_template *t, uint32_t link_base) {
    ds_topo *topo = l->topo;
    uint32_t vertex_base = l->vertex;
    for (uint32_t i = 0; i < t->n_own; i++) {
        ds_topo_link link = t->own.at[i];
        link.from += vertex_base;
        link.to += vertex_base;
        topo->links[link_base + i] = link;
    }
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const ds_topo_node *node = &t->nodes[i];
        for (uint32_t e = 0; e < node->count; e++) {
            if (node->child) {
                lay_out(l, node->child, link_base + ds_topo_link_base(node, e));
                continue;
            }
            if (node->decl->kind == DS_NODE_DEVICE) {
                topo->device_type[l->device] = node->decl->type_name;
                topo->clock_ppb[l->device] = node->clock_ppb;
                topo->power_mw[l->device] = node->power_mw;
                topo->device_vertex[l->device++] = l->vertex;
            }
            l->vertex++;
        }
    }
}

static void flatten(ds_topo *topo) {
    const ds_topo_template *root = topo->root;
    topo->links = DS_NEW_N(&topo->arena, ds_topo_link, root->n_links + 1);
    topo->device_vertex = DS_NEW_N(&topo->arena, uint32_t, root->n_devices + 1);
    topo->device_type = DS_NEW_N(&topo->arena, const char *, root->n_devices + 1);
    topo->clock_ppb = DS_NEW_N(&topo->arena, int64_t, root->n_devices + 1);
    topo->power_mw = DS_NEW_N(&topo->arena, int64_t, root->n_devices + 1);
    layout l = {.topo = topo};
    lay_out(&l, root, 0);
}

static bool is_before(const ds_topo *topo, uint32_t template, uint32_t link, const char *from,
                      const char *to) {
    for (uint32_t t = 0; t <= template; t++) {
        const ds_topology *decl = topo->templates.at[t]->decl;
        for (uint32_t i = 0; i < (t == template ? link : decl->links.n); i++) {
            const ds_link_decl *l = &decl->links.at[i];
            const char *a = l->a[l->n_a - 1].name, *b = l->b[l->n_b - 1].name;
            if ((a == from && b == to) || (a == to && b == from)) return true;
        }
    }
    return false;
}

void ds_topo_link_names(const ds_topo *topo, ds_buf *out) {
    for (uint32_t t = 0; t < topo->templates.n; t++) {
        const ds_topology *decl = topo->templates.at[t]->decl;
        for (uint32_t i = 0; i < decl->links.n; i++) {
            const ds_link_decl *l = &decl->links.at[i];
            const char *a = l->a[l->n_a - 1].name, *b = l->b[l->n_b - 1].name;
            if (is_before(topo, t, i, a, b)) continue;
            ds_buf_printf(out, "%s%s--%s", out->n ? "," : "", a, b);
        }
    }
}

static ds_status every_link_meant(const builder *b) {
    uint32_t i = 0;
    while (i < b->what_if.n_links && b->meant >> i & 1) i++;
    if (i == b->what_if.n_links) return DS_OK;
    ds_buf known = {0};
    ds_topo_link_names(b->topo, &known);
    ds_status status =
        ds_error_set(b->err, DS_ERR_NAME, ds_scenario_find(b->binding->unit, "", "what_if")->loc,
                     "what_if: '%s' means no link of @%s, which has %s", b->what_if.links[i].text,
                     b->topo->decl->name, known.n ? known.text : "none");
    ds_buf_deinit(&known);
    return status;
}

static ds_status build(const ds_binding *binding, const ds_topology *topology, bool without_slow,
                       ds_topo **out, ds_error *err) {
    *out = NULL;
    ds_topo *topo = ds_xcalloc(1, sizeof *topo);
    ds_arena_init(&topo->arena);
    pthread_mutex_init(&topo->paths_mutex, NULL);
    topo->decl = topology;
    topo->without_slow = without_slow;
    builder b = {.topo = topo, .binding = binding, .err = err};
    ds_map_init(&b.template_of);
    ds_status status = ds_what_if_read(binding, &b.what_if, err);
    if (!status) status = build_template(&b, topology, topology->loc, 1, &topo->root);
    ds_map_deinit(&b.template_of);
    if (!status) status = every_link_meant(&b);
    if (!status && topo->root->n_devices == 0) {
        status = ds_error_set(err, DS_ERR_VALUE, topology->loc, "topology @%s has no devices",
                              topology->name);
    }
    if (status) {
        ds_topo_free(topo);
        return status;
    }
    list_ports(topo);
    flatten(topo);
    status = ds_topo_degrade(topo, binding, err);
    if (status) {
        ds_topo_free(topo);
        return status;
    }
    *out = topo;
    return DS_OK;
}

ds_status ds_topo_build(const ds_binding *binding, const ds_topology *topology, ds_topo **out,
                        ds_error *err) {
    DS_TRY(build(binding, topology, false, out, err));
    if (!ds_topo_has_slow(*out)) return DS_OK;
    ds_status status = build(binding, topology, true, &(*out)->around, err);
    if (status == DS_OK) return DS_OK;
    ds_topo_free(*out);
    *out = NULL;
    return status;
}

void ds_topo_free(ds_topo *topo) {
    if (!topo) return;
    ds_topo_free(topo->around);
    ds_topo_drop_searches(topo);
    ds_symmetry_free(topo->symmetry);
    for (uint32_t i = 0; i < topo->templates.n; i++) {
        ds_topo_template *t = topo->templates.at[i];
        ds_map_deinit(&t->node_of_name);
        ds_map_deinit(&t->search_of);
        free(t->searches.at);
        free(t->own.at);
    }
    ds_map_deinit(&topo->routes);
    ds_map_deinit(&topo->singles);
    ds_map_deinit(&topo->paths);
    pthread_mutex_destroy(&topo->paths_mutex);
    free(topo->numbers);
    ds_arena_deinit(&topo->arena);
    free(topo);
}

/* ---- look-up ---- */

const char *ds_topo_name(const ds_topo *topo) {
    return topo->decl->name;
}
uint32_t ds_topo_n_devices(const ds_topo *topo) {
    return topo->root->n_devices;
}
uint32_t ds_topo_n_vertices(const ds_topo *topo) {
    return topo->root->n_vertices;
}
uint32_t ds_topo_n_links(const ds_topo *topo) {
    return topo->root->n_links;
}
const ds_topo_link *ds_topo_link_at(const ds_topo *topo, uint32_t link) {
    return &topo->links[link];
}
uint32_t *ds_topo_take_numbers(ds_topo *topo) {
    if (topo->numbers_taken) return NULL;
    if (!topo->numbers)
        topo->numbers = ds_xcalloc((size_t)topo->root->n_links + 1, sizeof *topo->numbers);
    topo->numbers_taken = true;
    return topo->numbers;
}
void ds_topo_give_numbers(ds_topo *topo) {
    topo->numbers_taken = false;
}
const char *ds_topo_device_type(const ds_topo *topo, uint32_t device) {
    return topo->device_type[device];
}
static void put_path(const ds_topo_template *t, uint32_t vertex, ds_buf *out) {
    ds_topo_spot spot = ds_topo_locate(t, vertex);
    ds_buf_put(out, spot.node->decl->name);
    if (DS_HAS_EXPR(spot.node->decl->count)) ds_buf_printf(out, "[%u]", spot.element);
    if (!spot.node->child) return;
    ds_buf_putc(out, '.');
    put_path(spot.node->child, spot.inner, out);
}

/* Paths are made when they are asked for: of a large cluster few are. */
const char *ds_topo_vertex_path(const ds_topo *topo, uint32_t vertex) {
    ds_topo *own = (ds_topo *)(uintptr_t)topo; /* to others it stays the same */
    pthread_mutex_lock(&own->paths_mutex);
    uint64_t *path = ds_map_slot(&own->paths, vertex);
    if (!*path) {
        ds_buf text = {0};
        put_path(topo->root, vertex, &text);
        *path = DS_KEY(ds_arena_strdup(&own->arena, text.text));
        ds_buf_deinit(&text);
    }
    const char *found = (const char *)(uintptr_t)*path;
    pthread_mutex_unlock(&own->paths_mutex);
    return found;
}
const char *ds_topo_device_path(const ds_topo *topo, uint32_t device) {
    return ds_topo_vertex_path(topo, topo->device_vertex[device]);
}
ds_node_kind ds_topo_vertex_kind(const ds_topo *topo, uint32_t vertex) {
    return ds_topo_kind(topo->root->flags[vertex]);
}

/* The first device at or after a vertex; devices are numbered in order of their vertices. */
uint32_t ds_topo_first_device(const ds_topo *topo, uint32_t vertex) {
    uint32_t lo = 0, hi = topo->root->n_devices;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (topo->device_vertex[mid] < vertex) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

ds_status ds_topo_find_device(const ds_topo *topo, const ds_env *env, const ds_step *steps,
                              uint32_t n_steps, ds_loc loc, uint32_t *device, ds_error *err) {
    uint32_t vertex;
    const ds_topo_template *inside;
    ds_topo_path path = {steps, n_steps, loc};
    DS_TRY(ds_topo_resolve_path(topo->root, env, path, &vertex, &inside, err));
    if (inside && inside->n_devices != 1) {
        return ds_error_set(err, DS_ERR_NAME, loc, "@%s%s%s has %u devices: name one of them",
                            n_steps ? inside->decl->name : topo->decl->name, n_steps ? " at " : "",
                            n_steps ? steps[n_steps - 1].name : "", inside->n_devices);
    }
    if (!inside && ds_topo_vertex_kind(topo, vertex) != DS_NODE_DEVICE) {
        return ds_error_set(err, DS_ERR_NAME, loc, "`%s` of @%s is not a device",
                            ds_topo_vertex_path(topo, vertex), topo->decl->name);
    }
    *device = ds_topo_first_device(topo, vertex);
    return DS_OK;
}

/* The node of a template by a name that is not interned. */
static const ds_topo_node *node_named(const ds_topo_template *t, const char *name, size_t n) {
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const char *have = t->nodes[i].decl->name;
        if (strlen(have) == n && memcmp(have, name, n) == 0) return &t->nodes[i];
    }
    return NULL;
}

uint32_t ds_topo_find_vertex(const ds_topo *topo, const char *path) {
    const ds_topo_template *t = topo->root;
    uint32_t vertex = 0;
    for (;;) {
        size_t n = strcspn(path, "[.");
        const ds_topo_node *node = node_named(t, path, n);
        if (!node) return UINT32_MAX;
        path += n;
        uint32_t element = 0;
        if (DS_HAS_EXPR(node->decl->count)) {
            if (path[0] != '[' || path[1] < '0' || path[1] > '9') return UINT32_MAX;
            char *end;
            unsigned long at = strtoul(path + 1, &end, 10);
            if (*end != ']' || at >= node->count) return UINT32_MAX;
            element = (uint32_t)at;
            path = end + 1;
        }
        vertex += ds_topo_vertex_base(node, element);
        if (!node->child) return *path ? UINT32_MAX : vertex;
        if (*path++ != '.') return UINT32_MAX;
        t = node->child;
    }
}
