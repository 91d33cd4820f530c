/* Random nested topologies against an exhaustive search over the flat graph.
 *
 * A generator makes templates, prints them as text for the code under test, and lays the same
 * templates out flat by itself. The reference relaxes (latency, hops) over the flat links until
 * nothing changes, then walks every best path one by one and counts the links it uses. A second
 * sample has links degraded, in instances too: slower ones and missing ones. */
#include "ir/base/rng.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 4, MAX_LINKS = 40, MAX_TEMPLATES = 4, MAX_FLAT = 256, MAX_FLAT_LINKS = 4096 };

typedef struct gen_node {
    char name[8];
    int kind;  /* 0 device, 1 forwarding device, 2 switch, 3 switch that blocks, 4 instance */
    int count; /* 0: without index */
    int child;
} gen_node;

typedef struct gen_link {
    int from, to; /* local vertices */
    int latency_ns;
    bool duplex;
} gen_link;

typedef struct gen_template {
    gen_node nodes[MAX_NODES];
    int n_nodes, n_links, size;
    gen_link links[MAX_LINKS];
} gen_template;

typedef struct generator {
    uint64_t seed, n; /* counter-based randomness */
    gen_template templates[MAX_TEMPLATES];
    int n_templates;
} generator;

static int pick(generator *g, int below) {
    return (int)(ds_hash_mix(g->seed, g->n++) % (uint64_t)below);
}

static int elements(const gen_node *node) {
    return node->count ? node->count : 1;
}
static int node_size(const generator *g, const gen_node *node) {
    return elements(node) * (node->kind == 4 ? g->templates[node->child].size : 1);
}

static void make_template(generator *g, int index) {
    static const char letters[] = "dfsbn";
    gen_template *t = &g->templates[index];
    bool root = index == g->n_templates - 1;
    t->n_nodes = 1 + pick(g, MAX_NODES);
    for (int i = 0; i < t->n_nodes; i++) {
        gen_node *node = &t->nodes[i];
        static const int leaf_kinds[] = {0, 0, 1, 2, 2, 2, 3};
        node->kind = leaf_kinds[pick(g, 7)];
        if (i == 0) node->kind = 0; /* at least one device */
        if (index && pick(g, 2)) node->kind = 4;
        if (root && index && i == 0) node->kind = 4;
        node->count = pick(g, 4);
        if (node->kind == 4) node->child = pick(g, index);
        while (node->count > 1 && t->size + node_size(g, node) > (root ? 40 : 14)) node->count--;
        snprintf(node->name, sizeof node->name, "%c%u", letters[node->kind], (unsigned)i & 15u);
        t->size += node_size(g, node);
    }
    t->n_links = t->size < 2 ? 0 : t->size / 2 + pick(g, t->size);
    if (t->n_links > MAX_LINKS) t->n_links = MAX_LINKS;
    for (int i = 0; i < t->n_links; i++) {
        gen_link *link = &t->links[i];
        link->from = pick(g, t->size);
        do link->to = pick(g, t->size);
        while (link->to == link->from);
        link->latency_ns = pick(g, 3);
        link->duplex = pick(g, 3) > 0;
    }
}

static void put_path(const generator *g, int template, int vertex, ds_buf *out) {
    const gen_template *t = &g->templates[template];
    for (int i = 0; i < t->n_nodes; i++) {
        const gen_node *node = &t->nodes[i];
        int size = node_size(g, node);
        if (vertex >= size) {
            vertex -= size;
            continue;
        }
        int each = size / elements(node);
        ds_buf_put(out, node->name);
        if (node->count) ds_buf_printf(out, "[%d]", vertex / each);
        if (node->kind != 4) return;
        ds_buf_putc(out, '.');
        put_path(g, node->child, vertex % each, out);
        return;
    }
}

static void put_template(const generator *g, int template, ds_buf *out) {
    const gen_template *t = &g->templates[template];
    ds_buf_printf(out, "topology @t%d {\n", template);
    for (int i = 0; i < t->n_nodes; i++) {
        const gen_node *node = &t->nodes[i];
        static const char *const words[] = {"device", "device", "switch", "switch", "node"};
        ds_buf_printf(out, "  %s %s", words[node->kind], node->name);
        if (node->count) ds_buf_printf(out, "[%d]", node->count);
        if (node->kind < 2) ds_buf_put(out, " : \"X\"");
        if (node->kind == 1) ds_buf_put(out, " {forward = true}");
        if (node->kind == 3) ds_buf_put(out, " {forward = false}");
        if (node->kind == 4) ds_buf_printf(out, " : @t%d", node->child);
        ds_buf_putc(out, '\n');
    }
    for (int i = 0; i < t->n_links; i++) {
        ds_buf_put(out, "  link ");
        put_path(g, template, t->links[i].from, out);
        ds_buf_put(out, t->links[i].duplex ? " -- " : " -> ");
        put_path(g, template, t->links[i].to, out);
        ds_buf_printf(out, " : 1 GB/s, %d ns\n", t->links[i].latency_ns);
    }
    ds_buf_put(out, "}\n");
}

/* ---- the flat graph, laid out here ---- */

typedef struct flat_link {
    int from, to, latency_ns;
    bool missing;
    int partner; /* link of the code under test */
    bool slow;   /* half of its 1 GB/s is left */
} flat_link;

typedef struct flat {
    int n, n_links;
    bool forwards[MAX_FLAT];
    flat_link links[MAX_FLAT_LINKS];
} flat;

static void lay_out(const generator *g, int template, int base, flat *f) {
    const gen_template *t = &g->templates[template];
    for (int i = 0; i < t->n_links; i++) {
        const gen_link *link = &t->links[i];
        for (int back = 0; back <= link->duplex; back++) {
            cr_assert_lt(f->n_links, MAX_FLAT_LINKS);
            f->links[f->n_links++] = (flat_link){base + (back ? link->to : link->from),
                                                 base + (back ? link->from : link->to),
                                                 link->latency_ns,
                                                 false,
                                                 -1,
                                                 false};
        }
    }
    for (int i = 0; i < t->n_nodes; i++) {
        const gen_node *node = &t->nodes[i];
        for (int e = 0; e < elements(node); e++) {
            if (node->kind == 4) {
                lay_out(g, node->child, base, f);
                base += g->templates[node->child].size;
            } else {
                f->forwards[base++] = node->kind == 1 || node->kind == 2;
            }
        }
    }
}

/* Gives every flat link one link of the code under test with the same ends and latency. */
static void match_links(flat *f, const topo_text *t) {
    cr_assert_eq(ds_topo_n_vertices(t->topo), (uint32_t)f->n);
    cr_assert_eq(ds_topo_n_links(t->topo), (uint32_t)f->n_links);
    for (uint32_t j = 0; j < ds_topo_n_links(t->topo); j++) {
        const ds_topo_link *link = ds_topo_link_at(t->topo, j);
        int found = -1;
        for (int i = 0; i < f->n_links && found < 0; i++) {
            const flat_link *mine = &f->links[i];
            if (mine->partner < 0 && mine->from == (int)link->from && mine->to == (int)link->to &&
                mine->latency_ns * 1000 == link->latency_ps &&
                mine->missing == !link->bytes_per_s) {
                found = i;
            }
        }
        cr_assert_geq(found, 0);
        f->links[found].partner = (int)j;
    }
}

/* ---- reference search ---- */

typedef struct reference {
    const flat *f;
    int source;
    bool avoids;                           /* slow links too */
    int latency[MAX_FLAT], hops[MAX_FLAT]; /* hops -1: not reached */
    long n_paths;
    long through[MAX_FLAT_LINKS]; /* by link of the code under test */
} reference;

static bool passable(const reference *r, int vertex) {
    return vertex == r->source || r->f->forwards[vertex];
}

static bool is_gone(const reference *r, const flat_link *link) {
    return link->missing || (r->avoids && link->slow);
}

static void relax_all(reference *r) {
    for (int v = 0; v < r->f->n; v++) r->hops[v] = -1;
    r->hops[r->source] = r->latency[r->source] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < r->f->n_links; i++) {
            const flat_link *link = &r->f->links[i];
            if (is_gone(r, link) || r->hops[link->from] < 0 || !passable(r, link->from)) continue;
            int latency = r->latency[link->from] + link->latency_ns;
            int hops = r->hops[link->from] + 1;
            bool better = r->hops[link->to] < 0 || latency < r->latency[link->to] ||
                          (latency == r->latency[link->to] && hops < r->hops[link->to]);
            if (!better) continue;
            r->latency[link->to] = latency;
            r->hops[link->to] = hops;
            changed = true;
        }
    }
}

/* Every best path, backwards from `vertex`; `trail` holds the links already taken. */
static void walk(reference *r, int vertex, int *trail, int depth) {
    if (vertex == r->source) {
        r->n_paths++;
        for (int i = 0; i < depth; i++) r->through[trail[i]]++;
        return;
    }
    for (int i = 0; i < r->f->n_links; i++) {
        const flat_link *link = &r->f->links[i];
        if (is_gone(r, link) || link->to != vertex || r->hops[link->from] < 0) continue;
        if (!passable(r, link->from)) continue;
        if (r->latency[link->from] + link->latency_ns != r->latency[vertex]) continue;
        if (r->hops[link->from] + 1 != r->hops[vertex]) continue;
        trail[depth] = link->partner;
        walk(r, link->from, trail, depth + 1);
    }
}

typedef struct tally {
    long routes, unreachable, shared, links, around;
} tally;

/* Nanoseconds of a message of 25 MB on the best paths to `to`, each with its share; *slowed: some of
 * their links are slow. */
static double large_time(reference *r, int to, bool *slowed) {
    int trail[MAX_FLAT];
    double longest = 0;
    r->n_paths = 0;
    memset(r->through, 0, sizeof r->through);
    walk(r, to, trail, 0);
    for (int i = 0; i < r->f->n_links; i++) {
        const flat_link *link = &r->f->links[i];
        double share = (double)r->through[link->partner] / (double)r->n_paths;
        double time = 25e6 * share * (link->slow ? 2 : 1); /* 1 GB/s: a byte a ns */
        if (time > longest) longest = time;
        *slowed = *slowed || (share > 0 && link->slow);
    }
    return r->latency[to] + longest;
}

enum { TIE_NS = 4 }; /* a byte of a share, and a ps */

/* The search whose paths the message takes: around slow links if that is faster; NULL: as fast. */
static reference *choose(reference *all, reference *around, int to) {
    bool slowed = false, none = false;
    if (all->hops[to] <= 0) return all;
    double through = large_time(all, to, &slowed);
    if (!slowed || around->hops[to] < 0) return all;
    double by = large_time(around, to, &none);
    return by < through - TIE_NS ? around : by > through + TIE_NS ? all : NULL;
}

static void compare(reference *r, const topo_text *t, int to, const char *text, tally *seen) {
    const ds_route *route = NULL;
    ds_error err = {0};
    ds_status status =
        ds_topo_route_vertices(t->topo, (uint32_t)r->source, (uint32_t)to, &route, &err);
    seen->routes++;
    if (r->hops[to] < 0) {
        seen->unreachable++;
        cr_assert_eq(status, DS_ERR_UNREACHABLE, "%d -> %d in\n%s", r->source, to, text);
        return;
    }
    cr_assert_eq(status, DS_OK, "%d -> %d: %s in\n%s", r->source, to, err.message, text);
    cr_assert_eq(route->latency_ps, r->latency[to] * 1000, "%d -> %d in\n%s", r->source, to, text);
    cr_assert_eq(route->hops, (uint32_t)r->hops[to], "%d -> %d in\n%s", r->source, to, text);
    int trail[MAX_FLAT];
    r->n_paths = 0;
    memset(r->through, 0, sizeof r->through);
    walk(r, to, trail, 0);
    uint32_t used = 0;
    for (int i = 0; i < r->f->n_links; i++) used += r->through[i] > 0;
    cr_assert_eq(route->n_links, used, "%d -> %d in\n%s", r->source, to, text);
    for (uint32_t i = 0; i < used; i++) {
        unsigned long long part = (unsigned long long)r->through[route->links[i]];
        unsigned long long whole = (unsigned long long)r->n_paths;
        unsigned long long share = ((part << 33) + whole) / (2 * whole); /* to nearest */
        cr_assert_eq(route->share_q32[i], share, "%d -> %d link %u: %llu of %llu in\n%s", r->source,
                     to, route->links[i], part, whole, text);
        if (i) cr_assert_lt(route->links[i - 1], route->links[i]);
    }
    seen->shared += r->n_paths > 1;
    seen->links += used;
}

/* One statement, in the text and in the flat graph: the links between the ends of one that there
 * is, or all links of a vertex; the last that is said of a link holds. */
static void degrade(generator *g, flat *f, const int *whole_ns, ds_buf *text) {
    const flat_link *link = &f->links[pick(g, f->n_links)];
    int root = g->n_templates - 1, a = link->from, b = link->to, form = pick(g, 3);
    int latency = 1 + pick(g, 4); /* 1: missing */
    ds_buf_put(text, "degrade ");
    put_path(g, root, a, text);
    if (form < 2) {
        ds_buf_put(text, form ? " -- " : " -> ");
        put_path(g, root, b, text);
    }
    if (latency == 1)
        ds_buf_put(text, " bandwidth = 0\n");
    else
        ds_buf_printf(text, " latency = %d, bandwidth = 0.5\n", latency);
    for (int i = 0; i < f->n_links; i++) {
        flat_link *l = &f->links[i];
        bool there = l->from == a && l->to == b, back = l->from == b && l->to == a;
        if (!there && !(form == 1 && back) && !(form == 2 && (l->from == a || l->to == a)))
            continue;
        l->missing = latency == 1;
        l->slow = !l->missing;
        if (!l->missing) l->latency_ns = whole_ns[i] * latency;
    }
}

static void one_topology(uint64_t seed, int n_degrades, tally *seen) {
    generator g = {.seed = seed};
    g.n_templates = 1 + pick(&g, MAX_TEMPLATES);
    ds_buf text = {0};
    for (int i = 0; i < g.n_templates; i++) {
        make_template(&g, i);
        put_template(&g, i, &text);
    }
    static flat f; /* large: not on the stack */
    static reference all, around;
    memset(&f, 0, sizeof f);
    f.n = g.templates[g.n_templates - 1].size;
    cr_assert_leq(f.n, MAX_FLAT);
    lay_out(&g, g.n_templates - 1, 0, &f);
    static int whole_ns[MAX_FLAT_LINKS];
    for (int i = 0; i < f.n_links; i++) whole_ns[i] = f.links[i].latency_ns;
    for (int i = 0; i < n_degrades && f.n_links; i++) degrade(&g, &f, whole_ns, &text);
    topo_text t = {0};
    ds_error err = {0};
    ds_status status = topo_text_try(text.text, &t, &err);
    /* a template of instances without any device is the one legal refusal here */
    if (!(status == DS_ERR_VALUE && strstr(err.message, "no devices"))) {
        cr_assert_eq(status, DS_OK, "%s in\n%s", err.message, text.text);
        match_links(&f, &t);
        for (int from = 0; from < f.n; from++) {
            all = (reference){.f = &f, .source = from};
            around = (reference){.f = &f, .source = from, .avoids = true};
            relax_all(&all);
            relax_all(&around);
            for (int to = 0; to < f.n; to++) {
                reference *chosen = choose(&all, &around, to);
                if (chosen) compare(chosen, &t, to, text.text, seen);
                seen->around += chosen == &around;
            }
        }
    }
    topo_text_free(&t);
    ds_buf_deinit(&text);
}

Test(topo_random, nested_routes_equal_exhaustive_search) {
    tally seen = {0};
    for (uint64_t seed = 0; seed < 1000; seed++) one_topology(seed, 0, &seen);
    /* the sample is worth something: many routes, with and without alternatives */
    cr_assert_gt(seen.routes - seen.unreachable, 30000, "%ld of %ld",
                 seen.routes - seen.unreachable, seen.routes);
    cr_assert_gt(seen.shared, 5000, "%ld", seen.shared);
    cr_assert_gt(seen.links, 100000, "%ld", seen.links);
}

/* Searches are shared by the instances of a template; those of an instance with a degraded link are
 * its own. */
Test(topo_random, degraded_routes_equal_exhaustive_search) {
    tally seen = {0};
    for (uint64_t seed = 5000; seed < 5600; seed++) one_topology(seed, 1 + (int)(seed % 4), &seen);
    cr_assert_gt(seen.routes - seen.unreachable, 12000, "%ld of %ld",
                 seen.routes - seen.unreachable, seen.routes);
    cr_assert_gt(seen.unreachable, 5000, "%ld", seen.unreachable);
    cr_assert_gt(seen.shared, 1500, "%ld", seen.shared);
    cr_assert_gt(seen.around, 200, "%ld", seen.around);
}
