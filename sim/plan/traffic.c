/* Which links transfers share, and what each group puts on them.
 *
 * The tasks of one stream never run together, so transfers that have a stream of a common device in
 * common never load a link at one time. Each group is put down as the *user* (stream, lowest
 * member) of the links of its phases; a link of two users is shared. All others are loaded by one
 * transfer at a time, and only say how fast that is alone.
 *
 * What a phase takes of its links in proportion, its *pattern*, does not depend on how many bytes
 * it moves, unless the program gives uneven shards: a byte that does not divide is not told from
 * the others. So equal members stay equal, and groups of all sizes share patterns. Two things are
 * rounded off for the same reason, that devices which differ in nothing that matters stay alike:
 *   - A phase that flows for less than 1 ns loads no link; it delays nobody by more than that.
 *   - A tree loads links of equal capacity and latency alike, by their mean. The two trees of an
 *     all_reduce are there to load all members alike; what is left are the ends of the trees. */
#include "sim/plan/internal.h"

#include "sim/coll/coll.h"
#include "sim/coll/reshard.h"

#include <stdlib.h>
#include <string.h>

typedef ds_load_shape shape;
typedef ds_load_phase shape_phase;

/* What the phases of a group take; of shared links alone. */
typedef struct pattern {
    ds_share_flow *phases;
    ds_u128 *alone_q20; /* per phase: level with all its links to itself */
    uint32_t n;
    bool shares; /* any of them */
} pattern;

/* The request with a size that divides as its shards are meant to. */
static ds_coll_request divisible(const ds_coll_request *q) {
    ds_coll_request even = *q;
    if (!q->shard_bytes && q->bytes) even.bytes = (int64_t)q->n << 20;
    return even;
}

/* What a group does, wherever its members are, and whatever its bytes. Groups of one record follow
 * each other and have one algorithm, by its address. */
static uint64_t doing_of(ds_builder *b, const ds_group *g) {
    const ds_coll_request *q = g->request;
    ds_sharing *s = &b->sharing;
    if (s->algorithm != g->algorithm) {
        s->algorithm = g->algorithm;
        s->algorithm_hash = ds_hash_bytes(g->algorithm, strlen(g->algorithm));
    }
    uint64_t key = ds_hash_mix(s->algorithm_hash, (uint64_t)q->op << 1 | (q->bytes == 0));
    key = ds_hash_mix(key, (uint64_t)q->root << 1 | q->single_route);
    key = ds_hash_mix(ds_hash_mix(key, (uint64_t)q->chunks), (uint64_t)q->shift);
    key = ds_hash_mix(ds_hash_mix(key, g->period), ds_exchange_hash(q->exchange));
    return ds_hash_mix(key, g->terms.efficiency_q32);
}

static uint64_t members_of(ds_group *g) {
    uint64_t hash = g->n_devices;
    for (uint32_t i = 0; i < g->n_devices && !g->members; i++)
        hash = ds_hash_mix(hash, g->devices[i]);
    if (!g->members) g->members = hash | 1;
    return g->members;
}

/* Equal for groups that do the same with the same members, whatever their bytes, but of a reshard;
 * 0: there may be none like it. */
static uint64_t kind_of(ds_builder *b, ds_group *g) {
    const ds_reshard *reshard = g->request->reshard;
    if (g->request->shard_bytes) return 0;
    if (!g->kind) g->kind = ds_hash_mix(doing_of(b, g), members_of(g)) | 1;
    return reshard ? ds_hash_mix(g->kind, reshard->hash) | 1 : g->kind;
}

/* The same for groups that do the same at one canonical place. */
static uint64_t kind_in_place(ds_builder *b, ds_group *g) {
    const ds_coll_request *q = g->request;
    if (!g->congruent) return kind_of(b, g);
    if (q->shard_bytes) return 0;
    return ds_hash_mix(doing_of(b, g), ds_plan__place_hash(g->congruent)) | 1;
}

/* ---- shapes ---- */

/* Sets the bytes on links of equal capacity and latency to their mean. */
static void level_out(const ds_topo *topo, const ds_turn *turn, ds_phase *phase) {
    typedef struct sum {
        ds_u128 bytes_q32;
        uint32_t n;
    } sum;
    sum *sums = ds_xcalloc(phase->n_loads, sizeof *sums);
    uint32_t *of = ds_xcalloc(phase->n_loads, sizeof *of);
    ds_map kinds;
    ds_map_init(&kinds);
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, phase->loads[i].link);
        uint64_t key = ds_hash_mix((uint64_t)link->bytes_per_s, (uint64_t)link->latency_ps);
        const uint64_t *found = ds_map_find(&kinds, key);
        of[i] = found ? (uint32_t)*found : kinds.n;
        if (!found) ds_map_put(&kinds, key, of[i]);
        uint32_t n = phase->loads[i].turned ? ds_turn_order(turn) : 1;
        sums[of[i]].bytes_q32 += phase->loads[i].bytes_q32 * n;
        sums[of[i]].n += n;
    }
    for (uint32_t i = 0; i < phase->n_loads; i++)
        phase->loads[i].bytes_q32 = sums[of[i]].bytes_q32 / sums[of[i]].n;
    ds_map_deinit(&kinds);
    free(sums);
    free(of);
}

/* A load, brought to the first of the links that stand for each other. */
typedef struct brought {
    ds_load load;
    bool moves;
} brought;

static int by_load(const void *a, const void *b) {
    const ds_load *x = &((const brought *)a)->load, *y = &((const brought *)b)->load;
    if (x->link != y->link) return x->link < y->link ? -1 : 1;
    return x->bytes_q32 < y->bytes_q32 ? -1 : x->bytes_q32 > y->bytes_q32;
}

/* Keeps the first of the links that the group's turn takes to each other, if it loads all of them
 * alike. */
static ds_status keep_first(ds_builder *b, const ds_turn *turn, ds_phase *phase) {
    uint32_t order = ds_turn_order(turn), kept = 0;
    brought *all = ds_xcalloc(phase->n_loads, sizeof *all);
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        const ds_load *load = &phase->loads[i];
        all[i].load = *load;
        if (load->turned) continue;
        ds_turned at = ds_turn_link(turn, load->link);
        all[i].load.link = at.first;
        all[i].moves = at.moves;
    }
    if (phase->n_loads) qsort(all, phase->n_loads, sizeof *all, by_load);
    bool alike = true;
    for (uint32_t i = 0; i < phase->n_loads && alike; kept++) {
        uint32_t n = all[i].moves ? order : 1;
        alike = n <= phase->n_loads - i && by_load(&all[i], &all[i + n - 1]) == 0;
        phase->loads[kept] = all[i].load;
        i += n;
    }
    phase->n_loads = kept;
    free(all);
    return alike ? DS_OK : ds_plan__refuse_turn(b);
}

static ds_status add_phase(ds_builder *b, const ds_group *g, ds_phase *phase, shape *s) {
    const ds_turn *turn = ds_plan__place_turn(g);
    uint64_t efficiency_q32 = g->terms.efficiency_q32;
    shape_phase *out = &s->phases[s->n++];
    *out = (shape_phase){.first = s->n_links, .weight = (uint32_t)phase->weight};
    out->alone_q20 = ds_phase_level_alone_q20(b->plan->topo, phase, efficiency_q32);
    if (strcmp(g->algorithm, "tree") == 0) level_out(b->plan->topo, turn, phase);
    if (turn) DS_TRY(keep_first(b, turn, phase));
    out->n = phase->n_loads;
    ds_u128 most = ds_phase_most_bytes_q32(phase);
    for (uint32_t i = 0; i < phase->n_loads; i++, s->n_links++) {
        s->links[s->n_links] = phase->loads[i].link;
        s->uses_q32[s->n_links] = ds_link_use_q32(phase->loads[i].bytes_q32, most, efficiency_q32);
    }
    return DS_OK;
}

static ds_status make_shape(ds_builder *b, const ds_group *g, shape *s, ds_error *err) {
    ds_coll_request even = divisible(g->request);
    ds_arena scratch, *arena = &b->plan->arena;
    ds_arena_init(&scratch);
    ds_phase *phases;
    uint32_t n, n_links = 0;
    ds_status status = ds_plan__phases_in_place(b, g, &even, &scratch, &phases, &n, err);
    if (status == DS_OK) {
        for (uint32_t p = 0; p < n; p++) n_links += phases[p].n_loads;
        s->phases = DS_NEW_N(arena, shape_phase, n);
        s->links = DS_NEW_N(arena, uint32_t, n_links);
        s->uses_q32 = DS_NEW_N(arena, uint64_t, n_links);
        for (uint32_t p = 0; p < n && status == DS_OK; p++) status = add_phase(b, g, &phases[p], s);
        s->links_hash = ds_hash_bytes(s->links, n_links * sizeof *s->links);
    }
    ds_arena_deinit(&scratch);
    return status;
}

/* What a group loads at its canonical place. */
static ds_status find_shape(ds_builder *b, ds_group *g, const shape **out, ds_error *err) {
    uint64_t key = kind_in_place(b, g);
    const uint64_t *found = key ? ds_map_find(&b->sharing.shapes, key) : NULL;
    if (found) {
        *out = (const shape *)(uintptr_t)*found;
        return DS_OK;
    }
    shape *s = DS_NEW(&b->plan->arena, shape);
    ds_plan_ground *ground = key ? b->options->ground : NULL;
    uint64_t kept = ground ? ds_hash_mix(key, ds_plan__graph(b)) : 0;
    if (!ground || !ds_ground__find_shape(ground, kept, &b->plan->arena, s)) {
        DS_TRY(make_shape(b, g, s, err));
        if (ground) ds_ground__keep_shape(ground, kept, s);
    }
    if (key) ds_map_put(&b->sharing.shapes, key, DS_KEY(s));
    *out = s;
    return DS_OK;
}

/* Where its links are for this group. A gather has those of the sum over the same ring, and other
 * plans have had the same group, too. */
static const uint32_t *find_links(ds_builder *b, ds_group *g, const shape *s) {
    ds_plan_ground *ground = b->options->ground;
    uint64_t key = ds_hash_mix(s->links_hash, members_of(g));
    key = ds_hash_mix(key, g->congruent ? ds_plan__place_hash(g->congruent) : 0) | 1;
    if (ground) key = ds_hash_mix(key, ds_plan__graph(b));
    const uint32_t *known = ground ? ds_ground__links(ground, key) : NULL;
    const uint64_t *found = ground ? NULL : ds_map_find(&b->sharing.carried, key);
    if (found) known = (const uint32_t *)(uintptr_t)*found;
    if (known) return known;
    ds_arena *arena = ground ? ds_ground__arena(ground) : &b->plan->arena;
    uint32_t *links = DS_NEW_N(arena, uint32_t, s->n_links + 1);
    ds_plan__carry_links(b, g, s->links, s->n_links, links);
    if (ground)
        ds_ground__keep_links(ground, key, links);
    else
        ds_map_put(&b->sharing.carried, key, DS_KEY(links));
    return links;
}

/* The shape of a group, and where its links are. */
static ds_status look_at(ds_builder *b, ds_group *g, ds_error *err) {
    if (g->shape) return DS_OK;
    const shape *s;
    DS_TRY(find_shape(b, g, &s, err));
    g->links = find_links(b, g, s);
    g->shape = s;
    return DS_OK;
}

/* ---- which links are shared ---- */

typedef struct finder {
    ds_builder *b;
    uint64_t *user; /* per link of the topology: 0 none yet */
    DS_VEC(uint32_t) shared;
    ds_map seen; /* groups that load the same links for the same user */
} finder;

static uint64_t user_of(const ds_record *r, const ds_group *g) {
    uint32_t lowest = g->devices[0];
    for (uint32_t i = 1; i < g->n_devices; i++)
        if (g->devices[i] < lowest) lowest = g->devices[i];
    uint64_t stream = r->stream ? r->stream : g->terms.holds_compute ? 0 : g->key;
    return ds_hash_mix(lowest, stream) | 1;
}

static bool seen_before(finder *f, ds_group *g, uint64_t user) {
    uint64_t key = kind_of(f->b, g);
    if (!key) return false;
    key = ds_hash_mix(key, user);
    for (uint32_t i = 0; i < g->n_phases; i++)
        key = ds_hash_mix(key, g->times[i].flow_ps < DS_PLAN_LEAST_PS);
    uint32_t n = f->seen.n;
    ds_map_put(&f->seen, key, 1);
    return f->seen.n == n;
}

/* Images of a group are users of their own. */
static void mark(finder *f, const ds_group *g, const uint32_t *links, uint32_t n, uint64_t user) {
    for (uint32_t i = 0; i < n; i++) {
        ds_turned at = ds_plan__turned_link(f->b, links[i]);
        uint32_t link = at.first, *place = &f->b->sharing.place[link];
        uint64_t by = at.moves && !g->period ? ds_hash_mix(user, at.steps) | 1 : user;
        bool by_images = !at.moves && g->n_images;
        if (!f->user[link]) f->user[link] = by;
        if ((f->user[link] == by && !by_images) || *place != DS_NONE) continue;
        *place = f->shared.n;
        DS_HPUSH(&f->shared, link);
    }
}

static ds_status mark_links(finder *f, const ds_record *r, ds_group *g, ds_error *err) {
    if (!g->request) return DS_OK;
    uint64_t user = user_of(r, g);
    if (seen_before(f, g, user)) return DS_OK;
    DS_TRY(look_at(f->b, g, err));
    for (uint32_t p = 0; p < g->shape->n; p++)
        if (g->times[p].flow_ps >= DS_PLAN_LEAST_PS)
            mark(f, g, g->links + g->shape->phases[p].first, g->shape->phases[p].n, user);
    return DS_OK;
}

static ds_status find_shared(ds_builder *b, ds_error *err) {
    ds_plan *plan = b->plan;
    uint32_t n_links = ds_topo_n_links(plan->topo);
    finder f = {.b = b, .user = ds_xcalloc(n_links, sizeof *f.user)};
    b->sharing.place = ds_xmalloc(((size_t)n_links + 1) * sizeof *b->sharing.place);
    memset(b->sharing.place, 0xff, n_links * sizeof *b->sharing.place); /* DS_NONE */
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        if ((r->kind != DS_REC_COMM && r->kind != DS_REC_HALF) || r->like) continue;
        for (uint32_t g = 0; g < r->n_groups && status == DS_OK; g++)
            status = mark_links(&f, r, &r->groups[g], err);
    }
    b->sharing.links = f.shared.at;
    b->sharing.n = f.shared.n;
    b->sharing.colour = ds_xcalloc(f.shared.n, sizeof *b->sharing.colour);
    b->sharing.stays = ds_xcalloc(f.shared.n, sizeof *b->sharing.stays);
    for (uint32_t l = 0; l < f.shared.n; l++)
        b->sharing.stays[l] = !ds_plan__turned_link(b, f.shared.at[l]).moves;
    ds_map_deinit(&f.seen);
    free(f.user);
    return status;
}

/* ---- patterns ---- */

/* In the list of shared links; DS_NONE: not there. */
static uint32_t find_shared_place(const ds_builder *b, uint32_t link) {
    return b->sharing.place[ds_plan__turned_link(b, link).first];
}

static ds_share_flow shared_uses(ds_builder *b, const shape *s, const shape_phase *phase,
                                 const uint32_t *links) {
    uint32_t n = 0, end = phase->first + phase->n;
    for (uint32_t i = phase->first; i < end; i++) n += find_shared_place(b, links[i]) != DS_NONE;
    ds_link_use *uses = DS_NEW_N(&b->plan->arena, ds_link_use, n);
    ds_share_flow flow = {.uses = uses, .weight = phase->weight, .cap_q20 = phase->alone_q20};
    for (uint32_t i = phase->first; i < end; i++) {
        uint32_t place = find_shared_place(b, links[i]);
        if (place != DS_NONE && s->uses_q32[i])
            uses[flow.n_uses++] = (ds_link_use){place, s->uses_q32[i]};
    }
    return flow;
}

static ds_status find_pattern(ds_builder *b, ds_group *g, const pattern **out, ds_error *err) {
    uint64_t key = kind_of(b, g);
    const uint64_t *found = key ? ds_map_find(&b->sharing.patterns, key) : NULL;
    if (found) {
        *out = (const pattern *)(uintptr_t)*found;
        return DS_OK;
    }
    DS_TRY(look_at(b, g, err));
    const shape *s = g->shape;
    const uint32_t *links = g->links;
    pattern *p = DS_NEW(&b->plan->arena, pattern);
    p->n = s->n;
    p->phases = DS_NEW_N(&b->plan->arena, ds_share_flow, p->n);
    p->alone_q20 = DS_NEW_N(&b->plan->arena, ds_u128, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        p->phases[i] = shared_uses(b, s, &s->phases[i], links);
        p->alone_q20[i] = s->phases[i].alone_q20;
        p->shares = p->shares || p->phases[i].n_uses;
    }
    if (key) ds_map_put(&b->sharing.patterns, key, DS_KEY(p));
    *out = p;
    return DS_OK;
}

/* ---- the phases of a group as flows ---- */

ds_status ds_plan__traffic(ds_builder *b, ds_group *g, ds_error *err) {
    const pattern *p;
    bool loads = ds_profiles_has(b->profiles, DS_TERM_BANDWIDTH) &&
                 ds_profiles_has(b->profiles, DS_TERM_WAITS);
    if (!g->request || !loads) return DS_OK;
    DS_TRY(find_pattern(b, g, &p, err));
    if (!p->shares) return DS_OK;
    ds_flow *flows = DS_NEW_N(&b->plan->arena, ds_flow, p->n);
    bool shares = false;
    for (uint32_t i = 0; i < p->n; i++) {
        flows[i] = (ds_flow){.share = p->phases[i],
                             .alone_q20 = p->alone_q20[i],
                             .work = g->times[i].most_q32 * DS_WORK_PER_BYTE_Q32,
                             .wait_ps = g->times[i].wait_ps,
                             .alone_ps = g->times[i].flow_ps};
        if (flows[i].alone_ps < DS_PLAN_LEAST_PS) flows[i].share.n_uses = 0;
        shares = shares || flows[i].share.n_uses;
    }
    flows[0].wait_ps += g->terms.launch_ps;
    if (!shares) return DS_OK;
    g->flows = flows;
    g->n_flows = p->n;
    return DS_OK;
}

ds_status ds_plan__sharing(ds_builder *b, ds_error *err) {
    ds_plan *plan = b->plan;
    DS_TRY(find_shared(b, err));
    if (!b->sharing.n) return DS_OK;
    for (uint32_t i = 0; i < plan->records.n; i++) {
        ds_record *r = plan->records.at[i];
        if (r->kind != DS_REC_COMM || r->like)
            continue; /* halves: those that meet, once it is known */
        for (uint32_t g = 0; g < r->n_groups; g++) DS_TRY(ds_plan__traffic(b, &r->groups[g], err));
    }
    return DS_OK;
}

void ds_plan__sharing_deinit(ds_sharing *sharing) {
    free(sharing->links);
    free(sharing->place);
    free(sharing->colour);
    free(sharing->stays);
    ds_map_deinit(&sharing->patterns);
    ds_map_deinit(&sharing->shapes);
    ds_map_deinit(&sharing->carried);
}
