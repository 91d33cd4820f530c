/* Turns, from where they take devices.
 *
 * The paths of a device and its image part at one element; these elements follow each other on a
 * circle. Once all circles are known the turn is held against every device again: an element that
 * moves for one device and stays for another is found so. */
#include "sim/topo/turn.h"

#include "sim/topo/symmetry.h"
#include "sim/topo/tree.h"

#include <stdlib.h>

/* The links that were asked for last: n members that send to each other ask for each n times. */
#define RECENT_LOG2 14
typedef struct recent_link {
    uint32_t link_1; /* 1 more than its number; 0: none yet */
    ds_turned at;
} recent_link;

struct ds_turn {
    const ds_topo *topo;
    ds_symmetry *symmetry;
    ds_map slot_of;                   /* element → place in `circles` */
    DS_VEC(ds_symmetry_step) circles; /* elements, circle after circle, from the lowest on */
    uint32_t order;
    recent_link *recent; /* 2^RECENT_LOG2, by hash */
};

/* ---- circles ---- */

/* Who follows whom. */
typedef struct links {
    ds_map next; /* element → place in `steps` of the one that it goes to */
    DS_VEC(ds_symmetry_step) steps;
    DS_VEC(uint32_t) first; /* elements, in order of discovery */
} links;

/* Notes where the paths part; false if this is no step of a turn. */
static bool note_step(const ds_turn *t, links *l, uint32_t from, uint32_t to) {
    ds_symmetry_step a[DS_TOPO_MAX_DEPTH], b[DS_TOPO_MAX_DEPTH];
    uint32_t n = ds_symmetry_path(t->symmetry, from, a), i = 0;
    if (n != ds_symmetry_path(t->symmetry, to, b)) return false;
    while (i < n && a[i].element == b[i].element) i++;
    if (i == n || a[i].set != b[i].set || from - a[i].first_vertex != to - b[i].first_vertex)
        return false;
    const uint64_t *known = ds_map_find(&l->next, a[i].element);
    if (known) return l->steps.at[*known].element == b[i].element;
    ds_map_put(&l->next, a[i].element, l->steps.n);
    DS_HPUSH(&l->steps, b[i]);
    DS_HPUSH(&l->first, a[i].element);
    return true;
}

/* The circle through an element, from its lowest on; false if it does not close as the others do.
 */
static bool close_circle(ds_turn *t, const links *l, uint32_t element) {
    uint32_t begin = t->circles.n, n = 0, lowest = 0;
    for (uint32_t at = element; n == 0 || at != element; n++) {
        const uint64_t *next = ds_map_find(&l->next, at);
        if (!next || (t->order && n == t->order)) return false;
        const ds_symmetry_step *step = &l->steps.at[*next];
        DS_HPUSH(&t->circles, *step);
        if (step->element < t->circles.at[begin + lowest].element) lowest = n;
        at = step->element;
        if (n > l->steps.n) return false;
    }
    if (!t->order) t->order = n;
    ds_symmetry_step *circle = ds_xcalloc(n, sizeof *circle);
    for (uint32_t k = 0; k < n; k++) circle[k] = t->circles.at[begin + (lowest + k) % n];
    for (uint32_t k = 0; k < n; k++) {
        t->circles.at[begin + k] = circle[k];
        ds_map_put(&t->slot_of, circle[k].element, begin + k);
    }
    free(circle);
    return n == t->order;
}

/* ---- where it takes things ---- */

/* The step of a vertex's path that moves, and its place on its circle; NULL: the vertex stays. */
static const ds_symmetry_step *find_moving(const ds_turn *t, uint32_t vertex, uint32_t *slot) {
    ds_symmetry_step steps[DS_TOPO_MAX_DEPTH];
    uint32_t n = ds_symmetry_path(t->symmetry, vertex, steps);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t *found = ds_map_find(&t->slot_of, steps[i].element);
        if (!found) continue;
        *slot = (uint32_t)*found;
        return &t->circles.at[*slot];
    }
    return NULL;
}

/* The element of the same circle so many steps before. */
static const ds_symmetry_step *steps_before(const ds_turn *t, uint32_t slot, uint32_t steps) {
    uint32_t at = slot % t->order, begin = slot - at;
    return &t->circles.at[begin + (at + t->order - steps % t->order) % t->order];
}

static uint32_t vertex_before(const ds_turn *t, uint32_t vertex, uint32_t steps) {
    uint32_t slot;
    const ds_symmetry_step *at = find_moving(t, vertex, &slot);
    return at ? vertex - at->first_vertex + steps_before(t, slot, steps)->first_vertex : vertex;
}

static bool takes(const ds_turn *t, uint32_t from, uint32_t to) {
    uint32_t slot;
    return find_moving(t, from, &slot) && vertex_before(t, from, t->order - 1) == to;
}

ds_turned ds_turn_device(const ds_turn *t, uint32_t device) {
    uint32_t vertex = ds_topo_device_vertex(t->topo, device), slot;
    const ds_symmetry_step *at = find_moving(t, vertex, &slot);
    if (!at) return (ds_turned){.first = device};
    uint32_t steps = slot % t->order, size = at->node->child ? at->node->child->n_devices : 1;
    uint32_t first = device - (at->index - steps_before(t, slot, steps)->index) * size;
    return (ds_turned){first, steps, true};
}

static ds_turned find_link(const ds_turn *t, uint32_t link) {
    const ds_topo_link *ends = ds_topo_link_at(t->topo, link);
    uint32_t slot;
    const ds_symmetry_step *at = find_moving(t, ends->from, &slot);
    if (!at) at = find_moving(t, ends->to, &slot);
    if (!at) return (ds_turned){.first = link};
    uint32_t steps = slot % t->order, size = at->node->child ? at->node->child->n_links : 0;
    if (link >= at->first_link && link - at->first_link < size) /* inside what moves */
        return (ds_turned){link - at->first_link + steps_before(t, slot, steps)->first_link, steps,
                           true};
    uint32_t first = ds_symmetry_link_between(
        t->symmetry, link, vertex_before(t, ends->from, steps), vertex_before(t, ends->to, steps));
    return (ds_turned){first, steps, true};
}

ds_turned ds_turn_link(const ds_turn *t, uint32_t link) {
    uint32_t slot = link * UINT32_C(2654435769) >> (32 - RECENT_LOG2); /* 2^32 / golden ratio */
    recent_link *recent = &t->recent[slot];
    if (recent->link_1 != link + 1) *recent = (recent_link){link + 1, find_link(t, link)};
    return recent->at;
}

/* ---- making one ---- */

static bool make(ds_turn *t, links *l, const uint32_t *from, const uint32_t *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!note_step(t, l, ds_topo_device_vertex(t->topo, from[i]),
                       ds_topo_device_vertex(t->topo, to[i])))
            return false;
    for (uint32_t i = 0; i < l->first.n; i++)
        if (!ds_map_find(&t->slot_of, l->first.at[i]) && !close_circle(t, l, l->first.at[i]))
            return false;
    for (uint32_t i = 0; i < n; i++)
        if (!takes(t, ds_topo_device_vertex(t->topo, from[i]),
                   ds_topo_device_vertex(t->topo, to[i])))
            return false;
    return t->order > 1;
}

ds_turn *ds_turn_new(ds_topo *topo, const uint32_t *from, const uint32_t *to, uint32_t n) {
    ds_turn *t = ds_xcalloc(1, sizeof *t);
    links l = {0};
    t->topo = topo;
    t->symmetry = ds_topo_symmetry(topo);
    bool made = make(t, &l, from, to, n);
    ds_map_deinit(&l.next);
    free(l.steps.at);
    free(l.first.at);
    if (made) t->recent = ds_xcalloc((size_t)1 << RECENT_LOG2, sizeof *t->recent);
    if (made) return t;
    ds_turn_free(t);
    return NULL;
}

void ds_turn_free(ds_turn *t) {
    if (!t) return;
    ds_map_deinit(&t->slot_of);
    free(t->circles.at);
    free(t->recent);
    free(t);
}

uint32_t ds_turn_order(const ds_turn *t) {
    return t->order;
}
