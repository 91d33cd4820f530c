/* Parts that repeat around a circle: of the parts that a turn takes to each other one is planned.
 *
 * Shifting all devices of a mesh along one of its axes may be a turn of the topology
 * (sim/topo/turn.h). If the program says the same on both sides, devices, groups and links that the
 * turn takes to each other behave alike, so records list the groups of one part, and say how many
 * more are images of each. A group that the turn takes to itself, such as the ring along that axis,
 * has a *period*: its (i + period)-th member is the i-th one's image.
 *
 * That a record repeats is looked at, never assumed: every group's image has to be a group, with
 * its members in order. If anything of the program does not repeat, the plan is made again without
 * the turn (b->unturned). */
#include "sim/plan/comm.h"

#include <stdlib.h>
#include <string.h>

void ds_plan__turn_deinit(ds_builder *b) {
    ds_turn_free(b->turn.turn);
    for (uint32_t i = 0; i < b->turn.places.n; i++) ds_turn_free(b->turn.places.at[i]);
    free(b->turn.places.at);
    free(b->turn.first);
    free(b->turn.image);
    free(b->turn.at);
}

ds_status ds_plan__refuse_turn(ds_builder *b) {
    b->turn.refused = true;
    return DS_ERR_UNSUPPORTED;
}

/* Takes each device of a mesh to the device `shift` further along an axis; `inner` devices follow each
 * other with one coordinate. */
static ds_turn *turn_along(ds_builder *b, const ds_placement *p, uint32_t size, uint32_t inner,
                           uint32_t shift) {
    for (uint32_t i = 0; i < p->n_devices; i++) {
        uint32_t at = i / inner % size, to = at + shift < size ? at + shift : at + shift - size;
        b->turn.at[i] = p->devices[i + to * inner - at * inner];
    }
    return ds_turn_new(b->plan->topo, p->devices, b->turn.at, p->n_devices);
}

/* The shortest shift along an axis that is a turn. */
static ds_turn *shortest_along(ds_builder *b, const ds_placement *p, uint32_t axis) {
    uint32_t size = (uint32_t)p->sizes[axis], inner = 1;
    for (uint32_t a = axis + 1; a < p->n_axes; a++) inner *= (uint32_t)p->sizes[a];
    for (uint32_t shift = 1; shift <= size / 2; shift++) {
        ds_turn *turn = size % shift ? NULL : turn_along(b, p, size, inner, shift);
        if (turn) return turn;
    }
    return NULL;
}

static uint32_t *devices_list(const ds_builder *b) {
    return ds_xcalloc((size_t)b->plan->n_devices + 1, sizeof(uint32_t));
}

static void know_images(ds_builder *b, const ds_placement *p) {
    ds_plan_turn *t = &b->turn;
    t->order = ds_turn_order(t->turn);
    t->first = devices_list(b);
    t->image = devices_list(b);
    memset(t->image, 0xff, b->plan->n_devices * sizeof *t->image); /* DS_NONE */
    for (uint32_t d = 0; d < b->plan->n_devices; d++) t->first[d] = d;
    for (uint32_t i = 0; i < p->n_devices; i++) {
        uint32_t device = p->devices[i];
        t->first[device] = ds_turn_device(t->turn, device).first;
        t->image[device] = t->at[i];
    }
    memset(t->at, 0, b->plan->n_devices * sizeof *t->at);
}

void ds_plan__find_turn(ds_builder *b, const ds_placement *p) {
    const ds_plan_options *o = b->options;
    bool apart = o->unfold || o->unfold_up_to || o->stepwise || o->n_jobs || b->program;
    if (apart || b->unturned || b->turn.turn || b->plan->records.n) return;
    bool *seen = ds_xcalloc(p->n_axes, sizeof *seen);
    if (!b->turn.at) b->turn.at = devices_list(b);
    while (!b->turn.turn) { /* longest axes first; the stages of pp never repeat */
        uint32_t best = DS_NONE;
        for (uint32_t a = 0; a < p->n_axes; a++)
            if (!seen[a] && strcmp(p->axes[a], "pp") != 0 &&
                (best == DS_NONE || p->sizes[a] > p->sizes[best]))
                best = a;
        if (best == DS_NONE) break;
        seen[best] = true;
        b->turn.turn = shortest_along(b, p, best);
    }
    free(seen);
    if (b->turn.turn) know_images(b, p);
}

bool ds_plan__is_first(const ds_builder *b, uint32_t device) {
    return !b->turn.turn || b->turn.first[device] == device;
}

/* ---- groups ---- */

/* Is the group's image a group, member by member? *period: of a group that is its own image. */
static bool has_image(const ds_plan_turn *t, const ds_comm_shape *c, uint32_t g, uint32_t *period) {
    uint32_t n = c->group_size, to = 0, ahead = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t device = c->devices[(size_t)g * n + i];
        uint32_t image = t->image[device], at = image == DS_NONE ? DS_NONE : t->at[image];
        if (at >= c->n_groups * n || c->devices[at] != image) return false;
        if (!i) {
            to = at / n;
            ahead = at % n;
        }
        if (at / n != to || at % n != (i + ahead) % n) return false;
    }
    *period = to == g ? ahead : 0;
    return to == g ? n == ahead * t->order : !ahead;
}

static bool all_first(const ds_plan_turn *t, const uint32_t *devices, uint32_t n) {
    uint32_t k = 0;
    while (k < n && t->first[devices[k]] == devices[k]) k++;
    return k == n;
}

ds_status ds_plan__turn_groups(ds_builder *b, ds_comm_shape *c) {
    ds_plan_turn *t = &b->turn;
    uint32_t n = c->group_size, kept = 0, period;
    for (uint32_t i = 0; i < c->n_groups * n; i++) t->at[c->devices[i]] = i;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        if (!has_image(t, c, g, &period)) return ds_plan__refuse_turn(b);
        if (g && period != c->period) return ds_plan__refuse_turn(b);
        c->period = period;
    }
    if (c->period) return DS_OK;
    uint32_t *devices = DS_NEW_N(&b->plan->arena, uint32_t, (size_t)c->n_groups / t->order * n);
    for (uint32_t g = 0; g < c->n_groups; g++) {
        const uint32_t *of = c->devices + (size_t)g * n;
        if (t->first[of[0]] != of[0]) continue;
        if (!all_first(t, of, n)) return ds_plan__refuse_turn(b);
        memcpy(devices + (size_t)kept++ * n, of, n * sizeof *of);
    }
    c->devices = devices;
    c->n_groups = kept;
    c->n_images = t->order - 1;
    return DS_OK;
}

/* ---- the rest of the program ---- */

/* Is the image of every device of the record one of its devices? */
static bool repeats(const ds_plan_turn *t, const ds_record *r) {
    if (r->n_variants != 1) return false;
    for (uint32_t i = 0; i < r->n_devices; i++)
        if (t->image[r->devices[i]] == DS_NONE ||
            ds_plan__member(r, t->image[r->devices[i]]) == DS_NONE)
            return false;
    return true;
}

ds_status ds_plan__turn_holds(ds_builder *b) {
    ds_map known;
    bool holds = true;
    ds_map_init(&known);
    for (uint32_t i = 0; b->turn.turn && i < b->plan->records.n && holds; i++) {
        const ds_record *r = b->plan->records.at[i];
        if (r->kind == DS_REC_COMM) continue;
        bool seen = r->n_variants == 1 && ds_map_find(&known, DS_KEY(r->devices));
        holds = seen || repeats(&b->turn, r);
        ds_map_put(&known, DS_KEY(r->devices), 1);
    }
    ds_map_deinit(&known);
    return holds ? DS_OK : ds_plan__refuse_turn(b);
}

/* ---- links ---- */

ds_turned ds_plan__turned_link(const ds_builder *b, uint32_t link) {
    return b->turn.turn ? ds_turn_link(b->turn.turn, link) : (ds_turned){.first = link};
}
