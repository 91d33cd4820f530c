/* Degraded devices and links.
 *
 * Every statement names vertices (all of an instance's, where it names one) or the links between
 * two such sets; of several that say the same of a device or link the last holds. What is said is
 * gathered first and applied once, to what the topology says.
 *
 * Links keep their numbers: one that is missing has no bandwidth and is left out of the indices
 * that routes are searched by. Searches are cached per template and serve all its instances, so a
 * link inside an instance makes that instance's template, and those around it, copies of their own
 * (ds_topo_node.own); numbers of vertices, links and ports are the same in the copy. */
#include "ir/verify/degrade.h"
#include "ir/base/units.h"
#include "sim/topo/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE DS_DEGRADE_WHOLE

typedef struct degrader {
    ds_topo *topo;
    const ds_binding *binding;
    const ds_degrade *decl; /* the statement in hand */
    int64_t turns;
    uint32_t *start, *links; /* the topology's links by the vertex where they start */
    ds_map device, link;     /* → place in `found` */
    DS_VEC(ds_topo_degraded) found;
    DS_VEC(ds_topo_template *) changed;
    ds_error *err;
} degrader;

/* ---- gathering ---- */

/* Vertices first … end - 1, and the path for messages. */
typedef struct span {
    uint32_t first, end;
    const ds_step *steps;
    uint32_t n_steps;
} span;

static ds_status find_span(degrader *g, const ds_env *env, const ds_step *steps, uint32_t n,
                           span *out) {
    const ds_topo_template *inside;
    ds_topo_path path = {steps, n, g->decl->loc};
    DS_TRY(ds_topo_resolve_path(g->topo->root, env, path, &out->first, &inside, g->err));
    out->end = out->first + (inside ? inside->n_vertices : 1);
    out->steps = steps;
    out->n_steps = n;
    return DS_OK;
}

static bool holds(const span *s, uint32_t vertex) {
    return vertex >= s->first && vertex < s->end;
}

static ds_topo_degraded *entry_of(degrader *g, bool is_link, uint32_t i) {
    ds_map *map = is_link ? &g->link : &g->device;
    const uint64_t *at = ds_map_find(map, i);
    if (at) return &g->found.at[*at];
    ds_map_put(map, i, g->found.n);
    ds_topo_degraded fresh = {is_link, i, WHOLE, WHOLE, WHOLE, WHOLE};
    DS_HPUSH(&g->found, fresh);
    return &g->found.at[g->found.n - 1];
}

static void set_devices(degrader *g, const span *s, bool compute, int64_t ppb) {
    uint32_t d = ds_topo_first_device(g->topo, s->first);
    for (; d < g->topo->root->n_devices && g->topo->device_vertex[d] < s->end; d++) {
        ds_topo_degraded *entry = entry_of(g, false, d);
        *(compute ? &entry->compute_ppb : &entry->memory_ppb) = ppb;
    }
}

static void set_link(degrader *g, uint32_t link, bool bandwidth, int64_t ppb) {
    ds_topo_degraded *entry = entry_of(g, true, link);
    *(bandwidth ? &entry->bandwidth_ppb : &entry->latency_ppb) = ppb;
}

/* Links from a to b; b NULL: all from a. Returns how many. */
static uint32_t set_between(degrader *g, const span *a, const span *b, bool bandwidth,
                            int64_t ppb) {
    uint32_t n = 0;
    for (uint32_t k = g->start[a->first]; k < g->start[a->end]; k++) {
        if (b && !holds(b, g->topo->links[g->links[k]].to)) continue;
        set_link(g, g->links[k], bandwidth, ppb);
        n++;
    }
    return n;
}

/* Links that end in the span: those of a node are few, but they are found by their other end. */
static uint32_t set_into(degrader *g, const span *s, bool bandwidth, int64_t ppb) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < g->topo->root->n_links; l++) {
        if (!holds(s, g->topo->links[l].to)) continue;
        set_link(g, l, bandwidth, ppb);
        n++;
    }
    return n;
}

static void put_path(const ds_exprs *exprs, const span *s, const ds_env *env, ds_buf *out) {
    for (uint32_t i = 0; i < s->n_steps; i++) {
        ds_buf_printf(out, "%s%s", i ? "." : "", s->steps[i].name);
        int64_t at;
        if (!DS_HAS_EXPR(s->steps[i].index)) continue;
        if (ds_expr_eval_int(env, s->steps[i].index, DS_NOWHERE, &at, NULL) == DS_OK) {
            ds_buf_printf(out, "[%" PRId64 "]", at);
        } else {
            ds_buf_putc(out, '[');
            ds_expr_print(exprs, s->steps[i].index, out);
            ds_buf_putc(out, ']');
        }
    }
}

static ds_status no_link(degrader *g, const ds_env *env, const span *a, const span *b) {
    const ds_exprs *exprs = &g->binding->unit->exprs;
    ds_buf text = {0};
    ds_buf_put(&text, "no link ");
    ds_buf_put(&text, !b ? "ends at " : g->decl->duplex ? "between " : "from ");
    put_path(exprs, a, env, &text);
    if (b) {
        ds_buf_put(&text, g->decl->duplex ? " and " : " to ");
        put_path(exprs, b, env, &text);
    }
    ds_status status =
        ds_error_set(g->err, DS_ERR_NAME, g->decl->loc, "%s in @%s: there is nothing to degrade",
                     text.text, g->topo->decl->name);
    ds_buf_deinit(&text);
    return status;
}

static ds_status apply_factor(degrader *g, const ds_env *env, const span *a, const span *b,
                              const ds_attr *factor) {
    int64_t ppb;
    DS_TRY(ds_degrade_factor(env, factor, &ppb, g->err));
    bool compute = strcmp(factor->name, "compute") == 0;
    if (compute || strcmp(factor->name, "memory") == 0) {
        set_devices(g, a, compute, ppb);
        return DS_OK;
    }
    bool bandwidth = strcmp(factor->name, "bandwidth") == 0;
    uint32_t n = set_between(g, a, b, bandwidth, ppb);
    if (b && g->decl->duplex) n += set_between(g, b, a, bandwidth, ppb);
    if (!b) n += set_into(g, a, bandwidth, ppb);
    return n ? DS_OK : no_link(g, env, a, b);
}

/* One turn of the statement's loops. */
static ds_status gather_turn(degrader *g, const ds_index *indices) {
    ds_env env = ds_binding_env(g->binding, indices);
    if (DS_HAS_EXPR(g->decl->where)) {
        int64_t wanted;
        DS_TRY(ds_expr_eval_int(&env, g->decl->where, g->decl->loc, &wanted, g->err));
        if (!wanted) return DS_OK;
    }
    span a, b;
    DS_TRY(find_span(g, &env, g->decl->a, g->decl->n_a, &a));
    if (g->decl->n_b) DS_TRY(find_span(g, &env, g->decl->b, g->decl->n_b, &b));
    for (uint32_t i = 0; i < g->decl->n_factors; i++)
        DS_TRY(apply_factor(g, &env, &a, g->decl->n_b ? &b : NULL, &g->decl->factors[i]));
    return DS_OK;
}

static ds_status gather(degrader *g, uint32_t level, const ds_index *indices) {
    if (level == g->decl->n_loops) return gather_turn(g, indices);
    const ds_binder *loop = &g->decl->loops[level];
    ds_env env = ds_binding_env(g->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, g->err));
    DS_TRY(ds_expr_eval_int(&env, loop->hi, loop->loc, &hi, g->err));
    int64_t n = 0;
    bool beyond =
        hi > lo && (__builtin_sub_overflow(hi, lo, &n) || n > DS_TOPO_MAX_LOOPS - g->turns);
    if (beyond)
        return ds_error_set(g->err, DS_ERR_LIMIT, loop->loc,
                            "the loops of `degrade` take more than %" PRId64 " turns",
                            DS_TOPO_MAX_LOOPS);
    g->turns += n;
    for (int64_t i = lo; i < hi; i++) {
        ds_index index = {loop->name, i, indices};
        DS_TRY(gather(g, level + 1, &index));
    }
    return DS_OK;
}

static void index_links(degrader *g) {
    const ds_topo *topo = g->topo;
    uint32_t n = topo->root->n_vertices, n_links = topo->root->n_links;
    g->start = ds_xcalloc((size_t)n + 2, sizeof *g->start);
    g->links = ds_xcalloc((size_t)n_links + 1, sizeof *g->links);
    for (uint32_t i = 0; i < n_links; i++) g->start[topo->links[i].from + 2]++;
    for (uint32_t v = 0; v < n; v++) g->start[v + 2] += g->start[v + 1];
    for (uint32_t i = 0; i < n_links; i++) g->links[g->start[topo->links[i].from + 1]++] = i;
}

/* ---- applying ---- */

static ds_topo_template *copy_template(degrader *g, const ds_topo_template *from) {
    ds_topo_template *t = DS_NEW(&g->topo->arena, ds_topo_template);
    *t = *from;
    t->node_of_name = (ds_map){0}; /* names are looked up in the template that was declared */
    t->search_of = (ds_map){0};
    t->searches.at = NULL;
    t->searches.n = t->searches.cap = 0;
    t->own.at = NULL;
    t->own.n = t->own.cap = 0;
    for (uint32_t i = 0; i < from->own.n; i++) DS_HPUSH(&t->own, from->own.at[i]);
    t->nodes = DS_NEW_N(&g->topo->arena, ds_topo_node, t->n_nodes + 1);
    memcpy(t->nodes, from->nodes, t->n_nodes * sizeof *t->nodes);
    DS_PUSH(&g->topo->arena, &g->topo->templates, t);
    return t;
}

/* The template of one element, made its own. */
static ds_topo_template *own_template(degrader *g, ds_topo_node *node, uint32_t element) {
    if (!node->own) {
        node->own = DS_NEW_N(&g->topo->arena, ds_topo_template *, node->count);
        for (uint32_t e = 0; e < node->count; e++) node->own[e] = node->child;
    }
    if (node->own[element] == node->child) node->own[element] = copy_template(g, node->child);
    return node->own[element];
}

/* The link in the template that declares it, all on the way there being this instance's own. */
static ds_topo_link *own_link(degrader *g, uint32_t link) {
    ds_topo_template *t = g->topo->root;
    while (link >= t->n_own) {
        uint32_t k = 0;
        while (k + 1 < t->n_nodes && t->nodes[k + 1].first_link <= link) k++;
        while (!t->nodes[k].child) k--; /* plain nodes start where the next instance does */
        ds_topo_node *node = &t->nodes[k];
        uint32_t element = (link - node->first_link) / node->child->n_links;
        link -= ds_topo_link_base(node, element);
        t = own_template(g, node, element);
    }
    if (!g->changed.n || g->changed.at[g->changed.n - 1] != t) DS_HPUSH(&g->changed, t);
    return &t->own.at[link];
}

/* a · ppb / 10^9, to the nearest. */
static int64_t share_of(int64_t a, int64_t ppb) {
    return (int64_t)(((ds_i128)a * ppb + WHOLE / 2) / WHOLE);
}

static ds_status apply_link(degrader *g, const ds_topo_degraded *d) {
    ds_topo_link *flat = &g->topo->links[d->i];
    ds_i128 latency_ps = ((ds_i128)flat->latency_ps * d->latency_ppb + WHOLE - 1) / WHOLE;
    if (latency_ps >= DS_NEVER_PS)
        return ds_error_set(
            g->err, DS_ERR_OVERFLOW, DS_NOWHERE, "the latency from %s to %s is beyond 106 days",
            ds_topo_vertex_path(g->topo, flat->from), ds_topo_vertex_path(g->topo, flat->to));
    bool gone = g->topo->without_slow && d->bandwidth_ppb < WHOLE;
    int64_t rate = gone ? 0 : share_of(flat->bytes_per_s, d->bandwidth_ppb);
    if (!rate && d->bandwidth_ppb && !gone)
        return ds_error_set(g->err, DS_ERR_VALUE, DS_NOWHERE,
                            "degrade: %.9g of the bandwidth from %s to %s, %lld B/s, is less than "
                            "1 B/s",
                            (double)d->bandwidth_ppb / (double)WHOLE,
                            ds_topo_vertex_path(g->topo, flat->from),
                            ds_topo_vertex_path(g->topo, flat->to), (long long)flat->bytes_per_s);
    ds_topo_link *own = own_link(g, d->i);
    flat->bytes_per_s = own->bytes_per_s = rate;
    flat->known_bytes_per_s = own->known_bytes_per_s =
        share_of(flat->known_bytes_per_s, d->bandwidth_ppb);
    flat->latency_ps = own->latency_ps = (int64_t)latency_ps;
    return DS_OK;
}

static void apply_device(degrader *g, const ds_topo_degraded *d) {
    ds_topo *topo = g->topo;
    if (!topo->shares_ppb) {
        topo->shares_ppb = DS_NEW_N(&topo->arena, int64_t, (size_t)2 * topo->root->n_devices);
        for (uint32_t i = 0; i < 2 * topo->root->n_devices; i++) topo->shares_ppb[i] = WHOLE;
    }
    topo->shares_ppb[2 * d->i] = d->compute_ppb;
    topo->shares_ppb[2 * d->i + 1] = d->memory_ppb;
}

static bool is_whole(const ds_topo_degraded *d) {
    return d->compute_ppb == WHOLE && d->memory_ppb == WHOLE && d->bandwidth_ppb == WHOLE &&
           d->latency_ppb == WHOLE;
}

static int by_number(const void *a, const void *b) {
    const ds_topo_degraded *x = a, *y = b;
    if (x->is_link != y->is_link) return x->is_link - y->is_link;
    return (x->i > y->i) - (x->i < y->i);
}

static ds_status apply(degrader *g) {
    if (g->found.n) qsort(g->found.at, g->found.n, sizeof *g->found.at, by_number);
    for (uint32_t i = 0; i < g->found.n; i++) {
        const ds_topo_degraded *d = &g->found.at[i];
        if (is_whole(d)) continue;
        if (d->is_link)
            DS_TRY(apply_link(g, d));
        else
            apply_device(g, d);
        DS_PUSH(&g->topo->arena, &g->topo->degraded, *d);
    }
    for (uint32_t i = 0; i < g->changed.n; i++)
        ds_topo_index_links(&g->topo->arena, g->changed.at[i]);
    return DS_OK;
}

bool ds_topo_has_slow(const ds_topo *topo) {
    for (uint32_t i = 0; i < topo->degraded.n; i++) {
        const ds_topo_degraded *d = &topo->degraded.at[i];
        if (d->is_link && d->bandwidth_ppb && d->bandwidth_ppb < WHOLE) return true;
    }
    return false;
}

ds_status ds_topo_degrade(ds_topo *topo, const ds_binding *binding, ds_error *err) {
    const ds_module *root = binding->unit->modules.at[0];
    const ds_topology *meant = ds_degraded_topology(binding->unit);
    if (!root->degrades.n || (meant && meant != topo->decl)) return DS_OK;
    degrader g = {.topo = topo, .binding = binding, .err = err};
    ds_map_init(&g.device);
    ds_map_init(&g.link);
    index_links(&g);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < root->degrades.n && status == DS_OK; i++) {
        g.decl = &root->degrades.at[i];
        status = gather(&g, 0, NULL);
    }
    if (status == DS_OK) status = apply(&g);
    ds_map_deinit(&g.device);
    ds_map_deinit(&g.link);
    free(g.start);
    free(g.links);
    free(g.found.at);
    free(g.changed.at);
    return status;
}

/* ---- what was degraded ---- */

const ds_topo_degraded *ds_topo_degraded_all(const ds_topo *topo, uint32_t *n) {
    *n = topo->degraded.n;
    return topo->degraded.at;
}

void ds_topo_device_shares(const ds_topo *topo, uint32_t device, int64_t *compute_ppb,
                           int64_t *memory_ppb) {
    *compute_ppb = topo->shares_ppb ? topo->shares_ppb[2 * device] : WHOLE;
    *memory_ppb = topo->shares_ppb ? topo->shares_ppb[2 * device + 1] : WHOLE;
}

static void put_factor(const char *name, int64_t ppb, const char **separator, ds_buf *out) {
    if (ppb == WHOLE) return;
    ds_buf_printf(out, "%s%s %.9g", *separator, name, (double)ppb / (double)WHOLE);
    *separator = ", ";
}

void ds_topo_print_degraded(const ds_topo *topo, const ds_topo_degraded *d, ds_buf *out) {
    const char *separator = " ";
    if (d->is_link) {
        const ds_topo_link *link = &topo->links[d->i];
        ds_buf_printf(out, "%s -> %s", ds_topo_vertex_path(topo, link->from),
                      ds_topo_vertex_path(topo, link->to));
    } else {
        ds_buf_put(out, ds_topo_device_path(topo, d->i));
    }
    if (!d->bandwidth_ppb) {
        ds_buf_put(out, " missing");
        return;
    }
    put_factor("compute", d->compute_ppb, &separator, out);
    put_factor("memory", d->memory_ppb, &separator, out);
    put_factor("bandwidth", d->bandwidth_ppb, &separator, out);
    put_factor("latency", d->latency_ppb, &separator, out);
}

/* The two halves of a `--` are told in one line where they are alike. */
static bool is_pair(const ds_topo *topo, uint32_t at) {
    const ds_topo_degraded *a = &topo->degraded.at[at], *b = a + 1;
    return at + 1 < topo->degraded.n && a->is_link && b->is_link && b->i == a->i + 1 &&
           a->bandwidth_ppb == b->bandwidth_ppb && a->latency_ppb == b->latency_ppb &&
           ds_topo_is_duplex(topo, a->i);
}

void ds_topo_list_degraded(const ds_topo *topo, const char *title, ds_buf *out) {
    enum { MOST = 8 };
    uint32_t n = 0, left_out = 0;
    for (uint32_t i = 0; i < topo->degraded.n; i++, n++) {
        bool pair = is_pair(topo, i);
        left_out += n >= MOST;
        if (n < MOST) {
            ds_buf_printf(out, "  %-12s ", n ? "" : title);
            size_t at = out->n;
            ds_topo_print_degraded(topo, &topo->degraded.at[i], out);
            if (pair) memcpy(strstr(out->text + at, " -> "), " -- ", 4);
            ds_buf_putc(out, '\n');
        }
        i += pair;
    }
    if (left_out) ds_buf_printf(out, "  %-12s and %" PRIu32 " more\n", "", left_out);
}

static void put_share(ds_json *json, const char *key, int64_t ppb) {
    ds_json_key_double(json, key, (double)ppb / (double)WHOLE);
}

void ds_topo_put_degraded(const ds_topo *topo, ds_json *json) {
    if (!topo->degraded.n) return;
    ds_json_key(json, "degraded");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < topo->degraded.n; i++) {
        const ds_topo_degraded *d = &topo->degraded.at[i];
        ds_json_begin_object(json);
        if (d->is_link) {
            const ds_topo_link *link = &topo->links[d->i];
            ds_json_key_string(json, "from", ds_topo_vertex_path(topo, link->from));
            ds_json_key_string(json, "to", ds_topo_vertex_path(topo, link->to));
            put_share(json, "bandwidth", d->bandwidth_ppb);
            put_share(json, "latency", d->latency_ppb);
        } else {
            ds_json_key_string(json, "device", ds_topo_device_path(topo, d->i));
            put_share(json, "compute", d->compute_ppb);
            put_share(json, "memory", d->memory_ppb);
        }
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}
