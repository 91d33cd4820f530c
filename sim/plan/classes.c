/* Device classes by colour refinement.
 *
 * Two devices may share a class if nothing that the simulation looks at tells them apart: hardware
 * kind and profile; which records they take part in, with which duration and result bytes; which of
 * these share a stream; and, for every rendezvous, its duration and the multiset of classes that
 * they meet there. The last condition refers to itself, so colours are refined until their number
 * stays (an equitable partition); then every member of a class sees the same sequence of starts and
 * ends, and one stands for all.
 *
 * Colours are 64-bit hashes: two unlike devices share one with probability about N² / 2^65. */
#include "sim/plan/internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t variant_hash(const ds_record *r, const ds_variant *v) {
    uint64_t h = ds_hash_mix((uint64_t)v->ps, (uint64_t)v->work.flop);
    for (uint32_t i = 0; i < r->n_out; i++) h = ds_hash_mix(h, (uint64_t)v->out_bytes[i]);
    return h;
}

/* Role of a device in its group that the group's other data do not show: sender or receiver. */
static uint64_t role(const ds_group *g, uint32_t device) {
    return g->n_devices == 2 ? 1 + (uint64_t)(g->devices[0] == device) : 0;
}

static bool is_pair(const ds_record *r) {
    return r->op && r->op->code == DS_OP_SEND;
}

/* The first record of the device whose task goes to the same stream: communicators have other keys
 * on other devices, but which records share one must be alike. */
static uint64_t stream_leader(ds_map *leaders, const ds_record *r, uint32_t member,
                              uint32_t record) {
    uint64_t key = ds_hash_mix(r->devices[member], ds_plan__stream_key(r, member));
    uint64_t *found = ds_map_find(leaders, key);
    if (found) return *found;
    ds_map_put(leaders, key, record);
    return record;
}

static void first_colours(const ds_plan *plan, uint64_t *colour, bool *used) {
    ds_map leaders;
    ds_map_init(&leaders);
    for (uint32_t d = 0; d < plan->n_devices; d++)
        colour[d] = ds_hash_mix(plan->kind_of[d], plan->profile_of[d]);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        for (uint32_t k = 0; k < r->n_devices; k++) {
            uint64_t h = ds_hash_mix(i, variant_hash(r, &r->variants[r->variant_of[k]]));
            if (r->kind == DS_REC_COMM) {
                const ds_group *g = &r->groups[r->group_of[k]];
                h = ds_hash_mix(h, (uint64_t)g->ps);
                h = ds_hash_mix(h, stream_leader(&leaders, r, k, i));
                if (is_pair(r)) h = ds_hash_mix(h, role(g, r->devices[k]));
            }
            colour[r->devices[k]] = ds_hash_mix(colour[r->devices[k]], h);
            used[r->devices[k]] = true;
        }
    }
    ds_map_deinit(&leaders);
}

static void refine(const ds_plan *plan, const uint64_t *colour, uint64_t *next) {
    memcpy(next, colour, plan->n_devices * sizeof *next);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        if (r->kind != DS_REC_COMM) continue;
        for (uint32_t g = 0; g < r->n_groups; g++) {
            const ds_group *group = &r->groups[g];
            uint64_t met = 0; /* a sum: the order of members does not matter */
            for (uint32_t k = 0; k < group->n_devices; k++)
                met += ds_hash_mix(i, colour[group->devices[k]]);
            for (uint32_t k = 0; k < group->n_devices; k++)
                next[group->devices[k]] = ds_hash_mix(next[group->devices[k]], met);
        }
    }
}

static uint32_t count_colours(const uint64_t *colour, const bool *used, uint32_t n, ds_map *seen) {
    ds_map_clear(seen);
    for (uint32_t d = 0; d < n; d++)
        if (used[d] && !ds_map_find(seen, colour[d])) ds_map_put(seen, colour[d], seen->n);
    return seen->n;
}

static void number_classes(ds_plan *plan, const uint64_t *colour, const bool *used, bool unfold,
                           ds_map *seen) {
    plan->class_of = DS_NEW_N(&plan->arena, uint32_t, plan->n_devices);
    plan->classes = DS_NEW_N(&plan->arena, ds_class, plan->n_devices);
    ds_map_clear(seen);
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        plan->class_of[d] = DS_NONE;
        if (!used[d]) continue;
        uint64_t key = unfold ? d : colour[d];
        uint64_t *found = ds_map_find(seen, key);
        uint32_t c = found ? (uint32_t)*found : plan->n_classes;
        if (!found) {
            ds_map_put(seen, key, c);
            plan->classes[plan->n_classes++] =
                (ds_class){.device = d,
                           .kind = plan->kind_of[d],
                           .profile = plan->profile_of[d],
                           .issue_ps = ds_profile_issue_ps(plan->profiles, plan->profile_of[d])};
        }
        plan->class_of[d] = c;
        plan->classes[c].n_devices++;
    }
}

/* The classes of a record's devices; the lowest device of a class stands for it. */
static void class_lists(ds_plan *plan, ds_record *r) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < r->n_devices; k++)
        n += plan->classes[plan->class_of[r->devices[k]]].device == r->devices[k];
    r->classes = DS_NEW_N(&plan->arena, uint32_t, n);
    r->class_member = DS_NEW_N(&plan->arena, uint32_t, n);
    r->class_variant = DS_NEW_N(&plan->arena, uint32_t, n);
    r->class_stream = DS_NEW_N(&plan->arena, uint32_t, n);
    /* Devices ascend and classes are numbered by lowest device, so classes come out ascending. */
    for (uint32_t k = 0; k < r->n_devices; k++) {
        uint32_t c = plan->class_of[r->devices[k]];
        if (plan->classes[c].device != r->devices[k]) continue;
        r->classes[r->n_classes] = c;
        r->class_variant[r->n_classes] = r->variant_of[k];
        r->class_stream[r->n_classes] = DS_NONE;
        r->class_member[r->n_classes] = k;
        r->n_classes++;
    }
}

static void meetings(ds_plan *plan, ds_record *r) {
    r->class_meeting = DS_NEW_N(&plan->arena, uint32_t, r->n_classes);
    r->meeting_group = DS_NEW_N(&plan->arena, uint32_t, r->n_classes);
    for (uint32_t i = 0; i < r->n_classes; i++) r->class_meeting[i] = DS_NONE;
    for (uint32_t i = 0; i < r->n_classes; i++) {
        if (r->class_meeting[i] != DS_NONE) continue;
        uint32_t g = r->group_of[r->class_member[i]], m = r->n_meetings++;
        r->meeting_group[m] = g;
        for (uint32_t k = 0; k < r->groups[g].n_devices; k++) {
            uint32_t c = plan->class_of[r->groups[g].devices[k]];
            r->class_meeting[ds_record_class_pos(r, c)] = m;
        }
    }
}

void ds_plan__classes(ds_builder *b) {
    ds_plan *plan = b->plan;
    uint32_t n = plan->n_devices;
    uint64_t *colour = ds_xcalloc(n, sizeof *colour), *next = ds_xcalloc(n, sizeof *next);
    bool *used = ds_xcalloc(n, sizeof *used);
    ds_map seen;
    ds_map_init(&seen);
    first_colours(plan, colour, used);
    if (!b->options->unfold) {
        uint32_t before = 0, now = count_colours(colour, used, n, &seen);
        while (now != before) {
            refine(plan, colour, next);
            uint64_t *swap = colour;
            colour = next;
            next = swap;
            before = now;
            now = count_colours(colour, used, n, &seen);
        }
    }
    number_classes(plan, colour, used, b->options->unfold, &seen);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        class_lists(plan, plan->records.at[i]);
        if (plan->records.at[i]->kind == DS_REC_COMM) meetings(plan, plan->records.at[i]);
    }
    free(colour);
    free(next);
    free(used);
    ds_map_deinit(&seen);
}
