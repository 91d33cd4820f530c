/* Twins by signature.
 *
 * An element's signature is the sum of hashes over links that do not belong to all elements of its
 * array alike: links with an end inside it that are declared further up (the inner end counted from
 * the element's first vertex, the other end as it stands, or from there too if it is inside), and
 * links inside that say something else than the template does. Elements with one signature are
 * twins: an exchange maps each such link to one with the same figures. Since the other end stands
 * still, two elements with a link between them are no twins; they may be interchangeable, but that
 * is not looked for.
 *
 * Elements are numbered from 0, depth first, an instance before what is in it. */
#include "sim/topo/symmetry.h"

#include "sim/topo/tree.h"

#include <stdlib.h>

/* With more elements (40 bytes each) nothing is exchanged: every place is canonical. Templates that
 * nest 64 deep may have as many elements a vertex. */
#define MOST_ELEMENTS (UINT32_C(1) << 25)

/* How elements of a template are numbered, from its first child on. */
typedef struct plan_of {
    const ds_topo_template *t;
    struct plan_of **inside; /* per node; NULL: plain vertices */
    uint32_t *first;         /* per node: its element 0 */
    uint32_t n_elements;
} plan_of;

struct ds_symmetry {
    ds_arena arena;
    const ds_topo *topo;
    ds_map plans; /* template → plan_of */
    const plan_of *root;
    uint64_t *signature; /* per element; freed once twins are known */
    /* Twins stand together in `members`, each set in ascending order. */
    uint32_t *set;     /* per element: where its set begins in `members` */
    uint32_t *rank;    /* per element: its place in the set */
    uint32_t *members; /* elements */
    uint32_t *index;   /* per element: which of its array it is */
    /* The permutation in hand. What is not of this turn is not set. */
    uint32_t turn;
    uint32_t *moved;    /* per element: the turn in which it got a place */
    uint32_t *place;    /* per element: its rank there */
    uint32_t *taken_at; /* per set, at its begin: the turn of `taken` */
    uint32_t *taken;    /* per set, at its begin: how many places are taken */
    uint32_t *holder;   /* per place in `members`: the element that took it */
    uint32_t *image_at; /* per vertex: the turn of `image` */
    uint32_t *image;    /* per vertex: where the permutation takes it */
    /* links by their start, then end, figures, number */
    uint32_t *start, *links;
};

/* ---- numbering ---- */

static plan_of *plan_template(ds_symmetry *s, const ds_topo_template *t) {
    const uint64_t *known = ds_map_find(&s->plans, DS_KEY(t));
    if (known) return (plan_of *)(uintptr_t)*known;
    plan_of *p = DS_NEW(&s->arena, plan_of);
    p->t = t;
    p->inside = DS_NEW_N(&s->arena, plan_of *, t->n_nodes);
    p->first = DS_NEW_N(&s->arena, uint32_t, t->n_nodes);
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const ds_topo_node *node = &t->nodes[k];
        if (node->child) p->inside[k] = plan_template(s, node->child);
        p->first[k] = p->n_elements;
        p->n_elements += node->count * (1 + (node->child ? p->inside[k]->n_elements : 0));
    }
    ds_map_put(&s->plans, DS_KEY(t), DS_KEY(p));
    return p;
}

/* Numbers of a node's elements are this far apart. */
static uint32_t stride(const plan_of *p, uint32_t node) {
    return 1 + (p->inside[node] ? p->inside[node]->n_elements : 0);
}

/* One step down: which element of a template holds a vertex. */
typedef struct step_down {
    uint32_t node, number; /* number: of the element, from the template's first */
    ds_topo_spot spot;
} step_down;

static step_down go_down(const plan_of *p, uint32_t vertex) {
    ds_topo_spot spot = ds_topo_locate(p->t, vertex);
    uint32_t node = (uint32_t)(spot.node - p->t->nodes);
    return (step_down){node, p->first[node] + spot.element * stride(p, node), spot};
}

/* ---- signatures ---- */

static uint64_t figures(const ds_topo_link *link) {
    uint64_t h = ds_hash_mix((uint64_t)link->bytes_per_s, (uint64_t)link->latency_ps);
    h = ds_hash_mix(h, (uint64_t)link->cap_bytes_per_s);
    return ds_hash_mix(h, (uint64_t)link->whole_bytes_per_s);
}

/* A link with its one end at `at`, for all elements that hold this end, from the template's level
 * on. `other`: the other end, in the template's numbers. */
static void sign_end(ds_symmetry *s, const plan_of *p, uint32_t first_element, uint32_t vertex_base,
                     uint32_t at, uint32_t other, uint64_t link) {
    uint64_t stands = ds_hash_mix(link, vertex_base + other);
    bool inside = true; /* is the other end in the same element? */
    while (p) {
        step_down down = go_down(p, at);
        uint32_t element = first_element + down.number;
        uint32_t base = at - down.spot.inner;
        uint32_t size = down.spot.node->child ? down.spot.node->child->n_vertices : 1;
        inside = inside && other >= base && other - base < size;
        uint64_t seen = inside ? ds_hash_mix(link ^ 1, other - base) : stands;
        s->signature[element] += ds_hash_mix(seen, down.spot.inner);
        at = down.spot.inner;
        if (inside) other -= base;
        first_element = element + 1;
        p = p->inside[down.node];
    }
}

/* An instance at these first numbers; `up`: the elements around it, innermost first. */
typedef struct around {
    uint32_t element, first_link;
    const struct around *up;
} around;

static void sign_instance(ds_symmetry *s, const plan_of *p, uint32_t first_element,
                          uint32_t vertex_base, uint32_t link_base, const around *up) {
    const ds_topo_template *t = p->t;
    for (uint32_t i = 0; i < t->n_own; i++) {
        const ds_topo_link *said = &t->own.at[i], *link = &s->topo->links[link_base + i];
        uint64_t has = figures(link);
        sign_end(s, p, first_element, vertex_base, said->from, said->to, ds_hash_mix(has, 2));
        sign_end(s, p, first_element, vertex_base, said->to, said->from, ds_hash_mix(has, 4));
        if (has == figures(said)) continue;
        for (const around *a = up; a; a = a->up)
            s->signature[a->element] += ds_hash_mix(has, link_base + i - a->first_link);
    }
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const ds_topo_node *node = &t->nodes[k];
        for (uint32_t e = 0; e < node->count; e++) {
            uint32_t element = first_element + p->first[k] + e * stride(p, k);
            s->index[element] = e;
            if (!node->child) continue;
            around here = {element, link_base + ds_topo_link_base(node, e), up};
            sign_instance(s, p->inside[k], element + 1, vertex_base + ds_topo_vertex_base(node, e),
                          here.first_link, &here);
        }
    }
}

/* ---- sets of twins ---- */

typedef struct signed_element {
    uint64_t signature;
    uint32_t element;
} signed_element;

static int by_signature(const void *a, const void *b) {
    const signed_element *x = a, *y = b;
    if (x->signature != y->signature) return x->signature < y->signature ? -1 : 1;
    return (x->element > y->element) - (x->element < y->element);
}

static void add_sets(ds_symmetry *s, signed_element *list, uint32_t n, uint32_t *at) {
    bool sorted = true;
    for (uint32_t i = 1; i < n && sorted; i++) sorted = by_signature(&list[i - 1], &list[i]) < 0;
    if (!sorted) qsort(list, n, sizeof *list, by_signature);
    uint32_t begin = *at;
    for (uint32_t i = 0; i < n; i++, ++*at) {
        if (i && list[i].signature != list[i - 1].signature) begin = *at;
        s->set[list[i].element] = begin;
        s->rank[list[i].element] = *at - begin;
        s->members[*at] = list[i].element;
    }
}

static void find_sets(ds_symmetry *s, const plan_of *p, uint32_t first_element,
                      signed_element *scratch, uint32_t *at) {
    for (uint32_t k = 0; k < p->t->n_nodes; k++) {
        uint32_t n = p->t->nodes[k].count, first = first_element + p->first[k];
        for (uint32_t e = 0; e < n; e++) {
            uint32_t element = first + e * stride(p, k);
            scratch[e] = (signed_element){s->signature[element], element};
        }
        add_sets(s, scratch, n, at);
        for (uint32_t e = 0; e < n && p->inside[k]; e++)
            find_sets(s, p->inside[k], first + e * stride(p, k) + 1, scratch, at);
    }
}

/* ---- links by their ends ---- */

static int compare_links(const ds_topo_link *x, const ds_topo_link *y) {
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->bytes_per_s != y->bytes_per_s) return x->bytes_per_s < y->bytes_per_s ? -1 : 1;
    if (x->latency_ps != y->latency_ps) return x->latency_ps < y->latency_ps ? -1 : 1;
    if (x->cap_bytes_per_s == y->cap_bytes_per_s) return 0;
    return x->cap_bytes_per_s < y->cap_bytes_per_s ? -1 : 1;
}

/* Sorts links that start at one vertex; they ascend by number, and mostly are in order. */
static void sort_links(const ds_topo_link *all, uint32_t *links, uint32_t n, uint32_t *scratch) {
    bool sorted = true;
    for (uint32_t i = 1; i < n && sorted; i++)
        sorted = compare_links(&all[links[i - 1]], &all[links[i]]) <= 0;
    if (sorted) return;
    uint32_t half = n / 2; /* merge sort: stable */
    sort_links(all, links, half, scratch);
    sort_links(all, links + half, n - half, scratch);
    for (uint32_t i = 0; i < n; i++) scratch[i] = links[i];
    for (uint32_t i = 0, j = half, k = 0; k < n; k++) {
        bool left = j == n || (i < half && compare_links(&all[scratch[i]], &all[scratch[j]]) <= 0);
        links[k] = scratch[left ? i++ : j++];
    }
}

static void index_links(ds_symmetry *s) {
    const ds_topo *topo = s->topo;
    uint32_t n = topo->root->n_vertices, n_links = topo->root->n_links;
    s->start = ds_xcalloc((size_t)n + 2, sizeof *s->start);
    s->links = ds_xcalloc((size_t)n_links + 1, sizeof *s->links);
    uint32_t *scratch = ds_xcalloc((size_t)n_links + 1, sizeof *scratch);
    for (uint32_t i = 0; i < n_links; i++) s->start[topo->links[i].from + 2]++;
    for (uint32_t v = 0; v < n; v++) s->start[v + 2] += s->start[v + 1];
    for (uint32_t i = 0; i < n_links; i++) s->links[s->start[topo->links[i].from + 1]++] = i;
    for (uint32_t v = 0; v < n; v++)
        sort_links(topo->links, s->links + s->start[v], s->start[v + 1] - s->start[v], scratch);
    free(scratch);
}

ds_symmetry *ds_topo_symmetry(ds_topo *topo) {
    if (topo->symmetry) return topo->symmetry;
    ds_symmetry *s = topo->symmetry = ds_xcalloc(1, sizeof *s);
    ds_arena_init(&s->arena);
    ds_map_init(&s->plans);
    s->topo = topo;
    s->root = plan_template(s, topo->root);
    uint32_t n = s->root->n_elements;
    if (n > MOST_ELEMENTS) s->root = NULL;
    if (!s->root) return s;
    s->signature = ds_xcalloc(n, sizeof *s->signature);
    uint32_t **arrays[] = {&s->set,   &s->rank,     &s->members, &s->index, &s->moved,
                           &s->place, &s->taken_at, &s->taken,   &s->holder};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = ds_xcalloc(n, sizeof **arrays[i]);
    s->image_at = ds_xcalloc(topo->root->n_vertices, sizeof *s->image_at);
    s->image = ds_xcalloc(topo->root->n_vertices, sizeof *s->image);
    sign_instance(s, s->root, 0, 0, 0, NULL);
    signed_element *scratch = ds_xcalloc(n, sizeof *scratch);
    uint32_t at = 0;
    find_sets(s, s->root, 0, scratch, &at);
    free(scratch);
    free(s->signature);
    s->signature = NULL;
    index_links(s);
    return s;
}

void ds_symmetry_free(ds_symmetry *s) {
    if (!s) return;
    uint32_t *arrays[] = {s->set,   s->rank,     s->members, s->index,  s->moved,
                          s->place, s->taken_at, s->taken,   s->holder, s->image_at,
                          s->image, s->start,    s->links};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    ds_map_deinit(&s->plans);
    ds_arena_deinit(&s->arena);
    free(s);
}

uint32_t ds_topo_device_at(const ds_topo *topo, uint32_t vertex) {
    return ds_topo_first_device(topo, vertex);
}

/* ---- to the canonical place and back ---- */

/* The rank that an element goes to, given when it is first met. */
static uint32_t place_of(ds_symmetry *s, uint32_t element) {
    if (s->moved[element] == s->turn) return s->place[element];
    uint32_t set = s->set[element];
    if (s->taken_at[set] != s->turn) {
        s->taken_at[set] = s->turn;
        s->taken[set] = 0;
    }
    uint32_t place = s->taken[set]++;
    s->moved[element] = s->turn;
    s->holder[set + place] = element;
    return s->place[element] = place;
}

void ds_symmetry_canonical(ds_symmetry *s, const uint32_t *vertices, uint32_t n,
                           uint32_t *canonical) {
    s->turn++;
    for (uint32_t i = 0; i < n && !s->root; i++) canonical[i] = vertices[i];
    for (uint32_t i = 0; i < n && s->root; i++) {
        uint32_t vertex = vertices[i], first_element = 0, to = 0;
        for (const plan_of *p = s->root; p;) {
            step_down down = go_down(p, vertex);
            uint32_t element = first_element + down.number;
            uint32_t twin = s->members[s->set[element] + place_of(s, element)];
            to += ds_topo_vertex_base(down.spot.node, s->index[twin]);
            vertex = down.spot.inner;
            first_element = element + 1;
            p = p->inside[down.node];
        }
        canonical[i] = to;
    }
}

/* The element that the permutation brings to this one's place. The places of those that were not
 * met are filled up: whoever was driven away from such a place leads, from place to place, to one
 * that is free to take it. */
static uint32_t brought_here(const ds_symmetry *s, uint32_t element) {
    uint32_t set = s->set[element];
    uint32_t taken = s->taken_at[set] == s->turn ? s->taken[set] : 0;
    if (s->rank[element] < taken) return s->holder[set + s->rank[element]];
    while (s->moved[element] == s->turn) element = s->members[set + s->place[element]];
    return element;
}

static uint32_t find_image(const ds_symmetry *s, uint32_t vertex) {
    uint32_t first_element = 0, to = 0;
    for (const plan_of *p = s->root; p;) {
        step_down down = go_down(p, vertex);
        uint32_t element = brought_here(s, first_element + down.number);
        to += ds_topo_vertex_base(down.spot.node, s->index[element]);
        vertex = down.spot.inner;
        first_element = element + 1;
        p = p->inside[down.node];
    }
    return to;
}

uint32_t ds_symmetry_carry_vertex(ds_symmetry *s, uint32_t vertex) {
    if (!s->root) return vertex;
    if (s->image_at[vertex] != s->turn) {
        s->image_at[vertex] = s->turn;
        s->image[vertex] = find_image(s, vertex);
    }
    return s->image[vertex];
}

/* The first link from a vertex that is no less than this one, but for where it starts. */
static uint32_t lowest(const ds_symmetry *s, uint32_t from, const ds_topo_link *like) {
    uint32_t lo = s->start[from], hi = s->start[from + 1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (compare_links(&s->topo->links[s->links[mid]], like) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t ds_symmetry_link_between(const ds_symmetry *s, uint32_t link, uint32_t from, uint32_t to) {
    const ds_topo_link *all = s->topo->links, *like = &all[link];
    if (from == like->from && to == like->to) return link;
    ds_topo_link image = *like;
    image.from = from;
    image.to = to;
    uint32_t at = lowest(s, from, &image), end = s->start[from + 1];
    if (at + 1 == end || all[s->links[at + 1]].to != to) return s->links[at];
    uint32_t own = lowest(s, like->from, like);
    while (s->links[own] != link) { /* of parallel ones with equal figures the same in order */
        own++;
        at++;
    }
    return s->links[at];
}

uint32_t ds_symmetry_carry_link(ds_symmetry *s, uint32_t link) {
    const ds_topo_link *canonical = &s->topo->links[link];
    return ds_symmetry_link_between(s, link, ds_symmetry_carry_vertex(s, canonical->from),
                                    ds_symmetry_carry_vertex(s, canonical->to));
}

uint32_t ds_symmetry_path(const ds_symmetry *s, uint32_t vertex, ds_symmetry_step *steps) {
    uint32_t n = 0, first_element = 0, first_vertex = 0, first_link = 0;
    for (const plan_of *p = s->root; p; n++) {
        step_down down = go_down(p, vertex);
        const ds_topo_node *node = down.spot.node;
        uint32_t e = down.spot.element, element = first_element + down.number;
        first_vertex += ds_topo_vertex_base(node, e);
        if (node->child) first_link += ds_topo_link_base(node, e);
        steps[n] = (ds_symmetry_step){element, s->set[element], e, first_vertex, first_link, node};
        vertex = down.spot.inner;
        first_element = element + 1;
        p = p->inside[down.node];
    }
    return n;
}

bool ds_symmetry_are_alike(ds_symmetry *s, uint32_t a, uint32_t b) {
    uint32_t to_a, to_b;
    ds_symmetry_canonical(s, &a, 1, &to_a);
    ds_symmetry_canonical(s, &b, 1, &to_b);
    return to_a == to_b;
}
