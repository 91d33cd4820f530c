/* Device classes by colour refinement.
 *
 * Two devices may share a class if nothing that the simulation looks at tells them apart: hardware
 * kind and profile; which records they take part in, with which duration and result bytes; which of
 * these share a stream; and, for every rendezvous, its duration, the multiset of classes that they
 * meet there, and the multiset of (class, use) of the shared links that it loads. Two shared links
 * are alike if their capacities are equal and so are the multisets of (class of rendezvous, phase,
 * use) of what loads them. The last conditions refer to each other, so colours are refined until
 * their number stays (an equitable partition); then every member of a class sees the same sequence
 * of starts and ends, every link of a class the same rates, and one stands for all.
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

static uint64_t hash_u128(uint64_t h, ds_u128 value) {
    return ds_hash_mix(ds_hash_mix(h, (uint64_t)(value >> 64)), (uint64_t)value);
}

/* What a rendezvous does, whoever takes part: how long alone, and in phases over shared links. */
static uint64_t hash_group(const ds_group *g) {
    uint64_t h = (uint64_t)g->ps;
    for (uint32_t i = 0; i < g->n_flows; i++) {
        const ds_flow *f = &g->flows[i];
        h = ds_hash_mix(ds_hash_mix(h, (uint64_t)f->wait_ps), (uint64_t)f->alone_ps);
        h = hash_u128(hash_u128(ds_hash_mix(h, f->share.weight), f->work), f->alone_q20);
    }
    return h;
}

/* The same of all groups, found once: those of record i from of[first[i]] on. Heap. */
typedef struct group_hashes {
    uint32_t *first;
    uint64_t *of;
} group_hashes;

static bool meets(const ds_record *r) {
    return r->kind == DS_REC_COMM && !r->like;
}

static group_hashes hash_groups(const ds_plan *plan) {
    uint32_t n = 0;
    group_hashes all = {.first = ds_xcalloc((size_t)plan->records.n + 1, sizeof *all.first)};
    for (uint32_t i = 0; i < plan->records.n; i++) {
        all.first[i] = n;
        if (meets(plan->records.at[i])) n += plan->records.at[i]->n_groups;
    }
    all.of = ds_xcalloc((size_t)n + 1, sizeof *all.of);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        for (uint32_t g = 0; meets(r) && g < r->n_groups; g++)
            all.of[all.first[i] + g] = hash_group(&r->groups[g]);
    }
    return all;
}

static bool is_pair(const ds_record *r) {
    return r->op && r->op->code == DS_OP_SEND;
}

/* The streams of each device, which are few, and the first record on each. */
typedef struct leader {
    uint64_t key;
    uint32_t record, next; /* next: the device's, DS_NONE */
} leader;

typedef struct leaders {
    uint32_t *first; /* per device: in `all`, DS_NONE */
    DS_VEC(leader) all;
} leaders;

/* The first record of the device whose task goes to the same stream: communicators have other keys
 * on other devices, but which records share one must be alike. */
static uint32_t stream_leader(leaders *known, const ds_record *r, uint32_t member,
                              uint32_t record) {
    uint64_t key = ds_plan__stream_key(r, member);
    uint32_t *first = &known->first[r->devices[member]];
    for (uint32_t i = *first; i != DS_NONE; i = known->all.at[i].next)
        if (known->all.at[i].key == key) return known->all.at[i].record;
    DS_HPUSH(&known->all, ((leader){key, record, *first}));
    *first = known->all.n - 1;
    return record;
}

/* Records that run alike on all devices of a placement share its list of devices: what they are is
 * summed up first, and then told to each device. */
typedef struct whole {
    const ds_record *record; /* one of them */
    uint64_t hash;
} whole;

typedef DS_VEC(whole) wholes;

static bool runs_alike(const ds_record *r) {
    return r->kind != DS_REC_COMM && r->kind != DS_REC_HALF && r->n_variants == 1;
}

static void add_to_whole(wholes *all, ds_map *index, const ds_record *r, uint64_t hash) {
    const uint64_t *found = ds_map_find(index, DS_KEY(r->devices));
    if (!found) {
        ds_map_put(index, DS_KEY(r->devices), all->n);
        DS_HPUSH(all, ((whole){r, hash}));
        return;
    }
    all->at[*found].hash = ds_hash_mix(all->at[*found].hash, hash);
}

static void colour_wholes(const wholes *all, uint64_t *colour, bool *used) {
    for (uint32_t i = 0; i < all->n; i++)
        for (uint32_t k = 0; k < all->at[i].record->n_devices; k++) {
            uint32_t device = all->at[i].record->devices[k];
            colour[device] = ds_hash_mix(colour[device], all->at[i].hash);
            used[device] = true;
        }
}

static void first_colours(const ds_plan *plan, const group_hashes *hashes, uint64_t *colour,
                          bool *used) {
    ds_map index;
    wholes all = {0};
    leaders known = {.first = ds_xmalloc(((size_t)plan->n_devices + 1) * sizeof *known.first)};
    memset(known.first, 0xff, plan->n_devices * sizeof *known.first); /* DS_NONE */
    ds_map_init(&index);
    for (uint32_t d = 0; d < plan->n_devices; d++)
        colour[d] = ds_hash_mix(ds_hash_mix(plan->kind_of[d], plan->profile_of[d]),
                                plan->n_jobs ? plan->job_of[d] : 0);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        if (r->like) continue; /* tells nothing apart that its first does not */
        if (runs_alike(r)) {
            add_to_whole(&all, &index, r, ds_hash_mix(i, variant_hash(r, r->variants)));
            continue;
        }
        for (uint32_t k = 0; k < r->n_devices; k++) {
            uint64_t h = ds_hash_mix(i, variant_hash(r, &r->variants[r->variant_of[k]]));
            if (r->kind == DS_REC_COMM) {
                const ds_group *g = &r->groups[r->group_of[k]];
                h = ds_hash_mix(h, hashes->of[hashes->first[i] + r->group_of[k]]);
                h = ds_hash_mix(h, stream_leader(&known, r, k, i));
                if (is_pair(r)) h = ds_hash_mix(h, role(g, r->devices[k]));
            }
            colour[r->devices[k]] = ds_hash_mix(colour[r->devices[k]], h);
            used[r->devices[k]] = true;
        }
    }
    colour_wholes(&all, colour, used);
    free(all.at);
    ds_map_deinit(&index);
    free(known.first);
    free(known.all.at);
}

/* The colours of devices and of shared links, in one array: links after devices. Those that a turn
 * takes to each other have the colour of the first. */
typedef struct colours {
    uint64_t *now, *next;
    const uint32_t *first; /* per device; NULL: itself */
    const bool *stays;     /* per link */
    uint32_t n_devices, n;
} colours;

static uint32_t first_of(const colours *c, uint32_t device) {
    return c->first ? c->first[device] : device;
}

/* How many of its links a group's use of one stands for. */
static uint64_t n_links(const colours *c, const ds_group *g, uint32_t link) {
    return g->period && !c->stays[link] ? g->n_devices / g->period : 1;
}

/* How many groups of a circle load the link. */
static uint64_t n_groups(const colours *c, const ds_group *g, uint32_t link) {
    return c->stays[link] ? 1 + (uint64_t)g->n_images : 1;
}

/* One rendezvous: what it meets and loads is mixed into the next colour of each of its members, and
 * what it is into that of each link. Sums: the order of members and links does not matter. */
static void refine_group(colours *c, const ds_group *g, uint64_t record, uint64_t hash) {
    uint64_t met = 0;
    uint32_t n = g->period ? g->period : g->n_devices; /* the others are their images */
    for (uint32_t k = 0; k < n; k++) met += ds_hash_mix(record, c->now[first_of(c, g->devices[k])]);
    met *= g->n_devices / n;
    for (uint32_t p = 0; p < g->n_flows; p++) {
        const ds_share_flow *f = &g->flows[p].share;
        uint64_t loads = 0;
        for (uint32_t k = 0; k < f->n_uses; k++)
            loads += ds_hash_mix(c->now[c->n_devices + f->uses[k].link], f->uses[k].use_q32) *
                     n_links(c, g, f->uses[k].link);
        met = ds_hash_mix(met, loads);
    }
    if (g->n_flows) met = ds_hash_mix(met, hash);
    for (uint32_t k = 0; k < n; k++) {
        uint64_t *next = &c->next[first_of(c, g->devices[k])];
        *next = ds_hash_mix(*next, met);
    }
    for (uint32_t p = 0; p < g->n_flows; p++) {
        const ds_share_flow *f = &g->flows[p].share;
        for (uint32_t k = 0; k < f->n_uses; k++)
            c->next[c->n_devices + f->uses[k].link] +=
                ds_hash_mix(ds_hash_mix(met, p), f->uses[k].use_q32) *
                n_groups(c, g, f->uses[k].link);
    }
}

static void refine(const ds_plan *plan, const group_hashes *hashes, colours *c) {
    memcpy(c->next, c->now, c->n * sizeof *c->next);
    for (uint32_t l = c->n_devices; l < c->n; l++) c->next[l] = ds_hash_mix(c->next[l], 0);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        for (uint32_t g = 0; meets(r) && g < r->n_groups; g++)
            refine_group(c, &r->groups[g], i, hashes->of[hashes->first[i] + g]);
    }
    uint64_t *swap = c->now;
    c->now = c->next;
    c->next = swap;
}

static uint32_t count_colours(const colours *c, const bool *used, ds_map *seen) {
    ds_map_clear(seen);
    for (uint32_t i = 0; i < c->n; i++)
        if (i >= c->n_devices || (used[i] && first_of(c, i) == i)) ds_map_put(seen, c->now[i], 0);
    return seen->n;
}

static void number_classes(ds_plan *plan, const colours *of, const bool *used, bool unfold,
                           ds_map *seen) {
    DS_VEC(ds_class) classes = {0};
    plan->class_of = DS_NEW_N(&plan->arena, uint32_t, plan->n_devices);
    ds_map_clear(seen);
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        plan->class_of[d] = DS_NONE;
        if (!used[first_of(of, d)]) continue;
        uint64_t key = unfold ? d : of->now[first_of(of, d)];
        uint64_t *found = ds_map_find(seen, key);
        uint32_t c = found ? (uint32_t)*found : classes.n;
        if (!found) {
            ds_map_put(seen, key, c);
            DS_PUSH(&plan->arena, &classes,
                    ((ds_class){
                        .device = d,
                        .kind = plan->kind_of[d],
                        .profile = plan->profile_of[d],
                        .issue_ps = plan->cuda_graphs
                                        ? 0
                                        : ds_profile_kernels_issue_ps(
                                              plan->profiles, plan->profile_of[d], plan->kernels),
                        .host_waits = plan->host_waits &&
                                      ds_profile_is_generic(plan->profiles, plan->profile_of[d]),
                        .slow_q32 = ds_profile_slow_q32(plan->profiles, plan->profile_of[d])}));
        }
        plan->class_of[d] = c;
        classes.at[c].n_devices++;
    }
    plan->classes = classes.at;
    plan->n_classes = classes.n;
}

/* Records that run alike on the same list of devices have the same classes. */
static bool known_lists(ds_plan *plan, ds_map *known, ds_record *r) {
    uint64_t key = DS_KEY(r->devices), *found = runs_alike(r) ? ds_map_find(known, key) : NULL;
    if (!found && runs_alike(r)) ds_map_put(known, key, DS_KEY(r));
    if (!found) return false;
    const ds_record *first = (const ds_record *)(uintptr_t)*found;
    r->n_classes = first->n_classes;
    r->classes = first->classes;
    r->class_member = first->class_member;
    r->class_variant = first->class_variant; /* all 0 */
    r->class_stream = DS_NEW_N(&plan->arena, uint32_t, r->n_classes);
    for (uint32_t c = 0; c < r->n_classes; c++) r->class_stream[c] = DS_NONE;
    return true;
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
        uint32_t n = r->groups[g].period ? r->groups[g].period : r->groups[g].n_devices;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t c = plan->class_of[r->groups[g].devices[k]];
            r->class_meeting[ds_record_class_pos(r, c)] = m;
        }
    }
}

static void set_classes(ds_plan *plan, ds_map *known, ds_record *r) {
    const ds_record *first = r->like; /* has its own: it came before */
    if (!first) {
        if (!known_lists(plan, known, r)) class_lists(plan, r);
        if (r->kind == DS_REC_COMM) meetings(plan, r);
        return;
    }
    r->classes = first->classes;
    r->n_classes = first->n_classes;
    r->class_member = first->class_member;
    r->class_variant = first->class_variant;
    r->class_stream = first->class_stream;
    r->class_meeting = first->class_meeting;
    r->meeting_group = first->meeting_group;
    r->n_meetings = first->n_meetings;
}

void ds_plan__classes(ds_builder *b) {
    ds_plan *plan = b->plan;
    ds_sharing *sharing = &b->sharing;
    uint32_t n = plan->n_devices;
    colours c = {.n_devices = n, .n = n + sharing->n};
    c.first = b->turn.turn ? b->turn.first : NULL;
    c.stays = sharing->stays;
    c.now = ds_xcalloc(c.n, sizeof *c.now);
    c.next = ds_xcalloc(c.n, sizeof *c.next);
    bool *used = ds_xcalloc(n, sizeof *used);
    ds_map seen;
    ds_map_init(&seen);
    group_hashes hashes = hash_groups(plan);
    first_colours(plan, &hashes, c.now, used);
    for (uint32_t l = 0; l < sharing->n; l++) {
        const ds_topo_link *link = ds_topo_link_at(plan->topo, sharing->links[l]);
        c.now[n + l] = ds_hash_mix((uint64_t)link->bytes_per_s, b->options->unfold ? l : 0);
    }
    if (!b->options->unfold) {
        uint32_t before = 0, now = count_colours(&c, used, &seen);
        while (now != before) {
            refine(plan, &hashes, &c);
            before = now;
            now = count_colours(&c, used, &seen);
        }
    }
    number_classes(plan, &c, used, b->options->unfold, &seen);
    if (sharing->n) memcpy(sharing->colour, c.now + n, sharing->n * sizeof *sharing->colour);
    ds_map_clear(&seen);
    for (uint32_t i = 0; i < plan->records.n; i++) set_classes(plan, &seen, plan->records.at[i]);
    free(hashes.first);
    free(hashes.of);
    free(c.now);
    free(c.next);
    free(used);
    ds_map_deinit(&seen);
}
