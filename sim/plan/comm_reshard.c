/* Reshard: any sharding on any mesh to any other.
 *
 * Inside one placement it may be one collective, and is simulated as that; or several, or no
 * communication at all. Anything else is pieces (sim/coll/reshard.h): every device holds a *tile*,
 * a box of the value; what a tile of the source and one of the destination have in common goes from
 * those that hold it to those that lack it. Two kinds of axes are more dims of the box, along which
 * each device holds one place: partials that the result keeps, and inside one placement the axes of
 * a local region around the op. Partials that the result lacks number the terms of a tile.
 *
 * Devices that exchange nothing, not even by way of others, need not meet: each connected set of
 * senders and receivers is a group of its own, all of those that hold a piece among its members,
 * whoever sends it in the end. Only those that may choose between senders in several islands, and
 * who shares these islands with them, belong together, for the choice is made once for all. Devices
 * of the result that get nothing are alone in theirs, which takes no time. Members are in order of
 * the source's positions, then of the destination's; this order is the group's key, so that what
 * goes the other way has another stream. */
#include "ir/base/units.h"
#include "sim/coll/reshard.h"
#include "sim/plan/comm.h"

#include <stdlib.h>
#include <string.h>

#define MOST_KEPT 16
#define MOST_DIMS (DS_MAX_RANK + MOST_KEPT)

/* A box, and who holds it: places in the union of all devices; of a source, term after term. */
typedef struct tile {
    int64_t lo[MOST_DIMS], size[MOST_DIMS];
    uint32_t *holders;
    uint32_t n_holders, n_terms;
} tile;

typedef struct tiles {
    DS_VEC(tile) list;
    uint32_t *of; /* per position: its tile */
} tiles;

typedef struct mover {
    ds_builder *b;
    const ds_site *site;
    const ds_placement *from, *to;
    ds_dtype dtype;
    uint32_t rank, n_dims;       /* tensor dims, then kept axes */
    const char *kept[MOST_KEPT]; /* axes */
    uint32_t n_kept;
    const char **summed; /* axes */
    uint32_t n_summed;
    uint32_t *members; /* devices of the source, then those of the result alone */
    uint32_t n_members;
    uint32_t *member_of_to; /* per position of the result */
    uint32_t *up;           /* per member: towards the one that stands for its group */
    DS_VEC(ds_reshard_piece) pieces;
    ds_relayout sequence;
    ds_reshard_step *steps; /* of the sequence, in members */
    ds_reshard_balance balance;
} mover;

/* ---- members ---- */

static void find_members(mover *m) {
    ds_arena *arena = &m->b->plan->arena;
    m->members = DS_NEW_N(arena, uint32_t, m->from->n_devices + m->to->n_devices);
    m->member_of_to = DS_NEW_N(arena, uint32_t, m->to->n_devices);
    for (uint32_t i = 0; i < m->from->n_devices; i++) m->members[i] = m->from->devices[i];
    m->n_members = m->from->n_devices;
    for (uint32_t i = 0; i < m->to->n_devices; i++) {
        uint32_t pos = ds_plan__position(m->from, m->to->devices[i]);
        m->member_of_to[i] = pos == DS_NONE ? m->n_members : pos;
        if (pos == DS_NONE) m->members[m->n_members++] = m->to->devices[i];
    }
    m->up = DS_NEW_N(arena, uint32_t, m->n_members);
    for (uint32_t i = 0; i < m->n_members; i++) m->up[i] = i;
}

/* The lowest member that a member is connected with. */
static uint32_t top_of(mover *m, uint32_t i) {
    while (m->up[i] != i) i = m->up[i] = m->up[m->up[i]];
    return i;
}

static void connect(mover *m, uint32_t i, uint32_t k) {
    uint32_t a = top_of(m, i), z = top_of(m, k);
    if (a < z) m->up[z] = a;
    if (z < a) m->up[a] = z;
}

/* ---- tiles ---- */

static bool is_partial(const ds_type *type, const char *axis) {
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (type->partials[i].axis == axis) return true;
    return false;
}

static ds_status keep_axis(mover *m, const char *axis, ds_error *err) {
    int64_t from = ds_plan__axis_size(m->from, axis), to = ds_plan__axis_size(m->to, axis);
    if (from != to)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, m->site->op->loc,
                            "reshard: %lld terms along %s would become %lld; sum them first",
                            (long long)from, axis, (long long)to);
    if (m->n_kept == MOST_KEPT)
        return ds_error_set(err, DS_ERR_LIMIT, m->site->op->loc, "more than %d partial axes",
                            MOST_KEPT);
    m->kept[m->n_kept++] = axis;
    return DS_OK;
}

static ds_status find_axes(mover *m, ds_error *err) {
    const ds_type *in = m->site->in[0].type, *out = m->site->out[0].type;
    m->summed = DS_NEW_N(&m->b->plan->arena, const char *, in->n_partials);
    for (uint32_t i = 0; i < in->n_partials; i++) {
        if (is_partial(out, in->partials[i].axis))
            DS_TRY(keep_axis(m, in->partials[i].axis, err));
        else
            m->summed[m->n_summed++] = in->partials[i].axis;
    }
    for (const ds_region *r = m->site->region; r && m->from == m->to; r = r->up)
        for (uint32_t i = 0; i < r->n; i++) DS_TRY(keep_axis(m, r->own[i].name, err));
    m->rank = in->rank;
    m->n_dims = m->rank + m->n_kept;
    return DS_OK;
}

static uint64_t box_hash(const mover *m, const tile *t) {
    uint64_t h = ds_hash_bytes(t->lo, m->n_dims * sizeof *t->lo);
    return ds_hash_mix(h, ds_hash_bytes(t->size, m->n_dims * sizeof *t->size));
}

static bool same_box(const mover *m, const tile *a, const tile *z) {
    return memcmp(a->lo, z->lo, m->n_dims * sizeof *a->lo) == 0 &&
           memcmp(a->size, z->size, m->n_dims * sizeof *a->size) == 0;
}

/* Which tile of the list is this box; a new one if none is. */
static uint32_t find_tile(const mover *m, tiles *list, ds_map *index, const tile *box) {
    for (uint64_t h = box_hash(m, box);; h++) {
        const uint64_t *found = ds_map_find(index, h);
        if (found && !same_box(m, &list->list.at[*found], box)) continue;
        if (found) return (uint32_t)*found;
        ds_map_put(index, h, list->list.n);
        DS_HPUSH(&list->list, *box);
        return list->list.n - 1;
    }
}

static ds_status box_of(mover *m, ds_typed type, const ds_placement *p, uint32_t pos, tile *box,
                        ds_error *err) {
    ds_local_box local;
    memset(box, 0, sizeof *box);
    ds_plan__enter(m->site->region, p, pos);
    ds_status status = ds_plan__local_box(m->b, type, p, pos, m->site->op->loc, &local, err);
    ds_plan__enter(m->site->region, NULL, 0);
    for (uint32_t d = 0; d < m->rank && status == DS_OK; d++) {
        box->lo[d] = local.lo[d];
        box->size[d] = local.shape.dims[d];
    }
    for (uint32_t k = 0; k < m->n_kept; k++) {
        box->lo[m->rank + k] = ds_plan__coordinate(p, m->kept[k], pos);
        box->size[m->rank + k] = 1;
    }
    return status;
}

/* The number of the term that a position of the source holds. */
static uint32_t term_of(const mover *m, uint32_t pos) {
    int64_t at = 0;
    for (uint32_t i = 0; i < m->n_summed; i++)
        at = at * ds_plan__axis_size(m->from, m->summed[i]) +
             ds_plan__coordinate(m->from, m->summed[i], pos);
    return (uint32_t)at;
}

static uint32_t n_terms_of(const mover *m) {
    int64_t n = 1;
    for (uint32_t i = 0; i < m->n_summed; i++) n *= ds_plan__axis_size(m->from, m->summed[i]);
    return (uint32_t)n;
}

/* The holders of every tile, in order of positions; those of one term together. */
static void list_holders(mover *m, tiles *list, uint32_t n_devices, bool source) {
    uint32_t n_terms = source ? n_terms_of(m) : 1;
    for (uint32_t pos = 0; pos < n_devices; pos++) list->list.at[list->of[pos]].n_holders++;
    uint32_t *n = ds_xcalloc((size_t)list->list.n * n_terms, sizeof *n);
    for (uint32_t i = 0; i < list->list.n; i++) {
        tile *t = &list->list.at[i];
        t->holders = DS_NEW_N(&m->b->plan->arena, uint32_t, t->n_holders);
        t->n_terms = n_terms;
    }
    for (uint32_t pos = 0; pos < n_devices; pos++) {
        uint32_t i = list->of[pos], term = source ? term_of(m, pos) : 0;
        tile *t = &list->list.at[i];
        uint32_t at = term * (t->n_holders / n_terms) + n[(size_t)i * n_terms + term]++;
        t->holders[at] = source ? pos : m->member_of_to[pos];
    }
    free(n);
}

static ds_status find_tiles(mover *m, bool source, tiles *out, ds_error *err) {
    const ds_placement *p = source ? m->from : m->to;
    out->of = DS_NEW_N(&m->b->plan->arena, uint32_t, p->n_devices);
    ds_map index;
    ds_map_init(&index);
    ds_status status = DS_OK;
    for (uint32_t pos = 0; pos < p->n_devices && status == DS_OK; pos++) {
        tile box;
        status = box_of(m, source ? m->site->in[0] : m->site->out[0], p, pos, &box, err);
        if (status == DS_OK) out->of[pos] = find_tile(m, out, &index, &box);
    }
    ds_map_deinit(&index);
    if (status == DS_OK) list_holders(m, out, p->n_devices, source);
    return status;
}

/* ---- pieces ---- */

/* What two boxes have in common, in bytes; 0: nothing. */
static ds_status common_bytes(const mover *m, const tile *a, const tile *z, int64_t *bytes,
                              ds_error *err) {
    ds_shape shape = {.dtype = m->dtype, .rank = m->rank};
    *bytes = 0;
    for (uint32_t d = 0; d < m->n_dims; d++) {
        int64_t lo = a->lo[d] > z->lo[d] ? a->lo[d] : z->lo[d];
        int64_t end_a = a->lo[d] + a->size[d], end_z = z->lo[d] + z->size[d];
        int64_t size = (end_a < end_z ? end_a : end_z) - lo;
        if (size <= 0) return DS_OK;
        if (d < m->rank) shape.dims[d] = size;
    }
    ds_status status = ds_shape_bytes(&shape, bytes, err);
    if (status != DS_OK) ds_error_move(err, m->site->op->loc);
    return status;
}

static bool holds(const tile *t, uint32_t member) {
    for (uint32_t i = 0; i < t->n_holders; i++)
        if (t->holders[i] == member) return true;
    return false;
}

/* What of `from` goes to those who shall hold `to`. */
static ds_status add_piece(mover *m, const tile *from, const tile *to, ds_error *err) {
    ds_reshard_piece p = {.senders = from->holders,
                          .n_senders = from->n_holders / from->n_terms,
                          .n_terms = from->n_terms};
    DS_TRY(common_bytes(m, from, to, &p.bytes, err));
    if (!p.bytes) return DS_OK;
    uint32_t *lack = DS_NEW_N(&m->b->plan->arena, uint32_t, to->n_holders);
    p.receivers = lack;
    for (uint32_t i = 0; i < to->n_holders; i++)
        if (p.n_terms > 1 || !holds(from, to->holders[i])) lack[p.n_receivers++] = to->holders[i];
    if (!p.n_receivers) return DS_OK;
    DS_HPUSH(&m->pieces, p);
    for (uint32_t i = 0; i < from->n_holders; i++) connect(m, from->holders[0], from->holders[i]);
    for (uint32_t i = 0; i < p.n_receivers; i++) connect(m, from->holders[0], lack[i]);
    return DS_OK;
}

/* The dim that the source splits into most parts. */
static uint32_t finest_dim(const mover *m, const tiles *source) {
    uint32_t best = 0;
    int64_t most = 0;
    for (uint32_t d = 0; d < m->n_dims; d++) {
        const tile *first = &source->list.at[0];
        int64_t end = 0, size = first->size[d] ? first->size[d] : 1;
        for (uint32_t i = 0; i < source->list.n; i++)
            if (source->list.at[i].lo[d] + source->list.at[i].size[d] > end)
                end = source->list.at[i].lo[d] + source->list.at[i].size[d];
        if (end / size <= most) continue;
        most = end / size;
        best = d;
    }
    return best;
}

typedef struct place_in_dim {
    int64_t lo, end;
    uint32_t tile;
} place_in_dim;

static int by_place(const void *a, const void *b) {
    const place_in_dim *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->tile < y->tile ? -1 : x->tile > y->tile;
}

/* All pairs of tiles with something in common. Along one dim the tiles of the source are intervals
 * that are equal or apart, so those that meet a tile of the result are next to each other. */
static ds_status find_pieces(mover *m, const tiles *source, const tiles *result, ds_error *err) {
    uint32_t d = finest_dim(m, source), n = source->list.n;
    place_in_dim *sorted = ds_xcalloc(n, sizeof *sorted);
    for (uint32_t i = 0; i < n; i++) {
        const tile *t = &source->list.at[i];
        sorted[i] = m->n_dims ? (place_in_dim){t->lo[d], t->lo[d] + t->size[d], i}
                              : (place_in_dim){0, 1, i};
    }
    qsort(sorted, n, sizeof *sorted, by_place);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < result->list.n && status == DS_OK; i++) {
        const tile *t = &result->list.at[i];
        int64_t lo = m->n_dims ? t->lo[d] : 0, end = m->n_dims ? lo + t->size[d] : 1;
        uint32_t first = 0, last = n;
        while (first < last) {
            uint32_t mid = (first + last) / 2;
            if (sorted[mid].end <= lo)
                first = mid + 1;
            else
                last = mid;
        }
        for (uint32_t k = first; k < n && sorted[k].lo < end && status == DS_OK; k++)
            status = add_piece(m, &source->list.at[sorted[k].tile], t, err);
    }
    free(sorted);
    return status;
}

/* Do holders of the piece sit in several islands? */
static bool has_choice(const mover *m, const ds_reshard_piece *p) {
    ds_topo *topo = m->b->plan->topo;
    for (uint32_t i = 1; i < p->n_senders; i++)
        if (ds_topo_island(topo, m->members[p->senders[i]]) !=
            ds_topo_island(topo, m->members[p->senders[0]]))
            return true;
    return false;
}

/* Senders in an island that some may choose or not are one group. */
static void connect_choices(mover *m) {
    ds_map first; /* island → a sender in it; only of those that may be chosen */
    ds_map_init(&first);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < m->pieces.n; i++) {
            const ds_reshard_piece *p = &m->pieces.at[i];
            if (pass == 0 && !has_choice(m, p)) continue;
            for (uint32_t k = 0; k < p->n_senders * p->n_terms; k++) {
                uint64_t key = ds_topo_island(m->b->plan->topo, m->members[p->senders[k]]) + 1u;
                const uint64_t *found = ds_map_find(&first, key);
                if (found) connect(m, (uint32_t)*found, p->senders[k]);
                if (!found && pass == 0) ds_map_put(&first, key, p->senders[k]);
            }
        }
    ds_map_deinit(&first);
}

/* ---- sequences of collectives ---- */

/* Groups and bytes of one step. Members are positions of the source: the same placement. */
static ds_status make_step(mover *m, const ds_relayout_step *from, ds_reshard_step *out,
                           ds_error *err) {
    ds_builder *b = m->b;
    ds_arena *arena = &b->plan->arena;
    uint32_t *devices, place = DS_NONE;
    ds_plan__groups(b, m->from, from->axes, from->n_axes, &devices, &out->n_groups,
                    &out->group_size);
    for (uint32_t i = 0; i < b->plan->placements.n && place == DS_NONE; i++)
        if (b->plan->placements.at[i] == m->from) place = i;
    uint32_t n = out->group_size, *members = DS_NEW_N(arena, uint32_t, (size_t)out->n_groups * n);
    int64_t *in = DS_NEW_N(arena, int64_t, (size_t)out->n_groups * n);
    int64_t *held = DS_NEW_N(arena, int64_t, (size_t)out->n_groups * n);
    int64_t *bytes = DS_NEW_N(arena, int64_t, out->n_groups);
    ds_typed before = {from->from, m->site->in[0].indices};
    ds_typed after = {from->to, m->site->in[0].indices};
    for (uint32_t g = 0; g < out->n_groups; g++) {
        size_t first = (size_t)g * n;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t device = devices[first + i];
            members[first + i] = ds_plan__position(m->from, device);
            connect(m, members[first], members[first + i]);
            DS_TRY(ds_plan__member_bytes(b, m->site, (ds_placed){&before, 1, &place}, device, NULL,
                                         &in[first + i], err));
            DS_TRY(ds_plan__member_bytes(b, m->site, (ds_placed){&after, 1, &place}, device, NULL,
                                         &held[first + i], err));
        }
        DS_TRY(ds_plan__size_of(from->op, m->site->op->loc, in + first, held + first, n, &bytes[g],
                                err));
    }
    out->op = from->op;
    out->members = members;
    out->bytes = bytes;
    out->shard_bytes = ds_plan__shards_in(from->op)    ? in
                       : ds_plan__shards_out(from->op) ? held
                                                       : NULL;
    return DS_OK;
}

static ds_status make_steps(mover *m, ds_error *err) {
    m->steps = DS_NEW_N(&m->b->plan->arena, ds_reshard_step, m->sequence.n_steps);
    for (uint32_t i = 0; i < m->sequence.n_steps; i++)
        DS_TRY(make_step(m, &m->sequence.steps[i], &m->steps[i], err));
    return DS_OK;
}

/* ---- groups ---- */

/* Members of the source and of the result by group, in order. */
typedef struct parts {
    uint32_t *group_of; /* per member; DS_NONE: it takes no part */
    uint32_t *at;       /* per member: its index in the group */
    uint32_t *size;     /* per group */
    uint32_t n;
} parts;

/* A source that sends nothing takes no part; a destination that gets nothing is there for its
 * result. */
static parts find_parts(mover *m) {
    ds_arena *arena = &m->b->plan->arena;
    parts p = {.group_of = DS_NEW_N(arena, uint32_t, m->n_members),
               .at = DS_NEW_N(arena, uint32_t, m->n_members),
               .size = DS_NEW_N(arena, uint32_t, m->n_members)};
    bool *meets = DS_NEW_N(arena, bool, m->n_members);
    uint32_t *of_top = DS_NEW_N(arena, uint32_t, m->n_members);
    for (uint32_t i = 0; i < m->n_members; i++) {
        of_top[i] = DS_NONE;
        meets[i] = meets[i] || top_of(m, i) != i;
        meets[top_of(m, i)] = meets[top_of(m, i)] || top_of(m, i) != i;
    }
    for (uint32_t i = 0; i < m->to->n_devices; i++) meets[m->member_of_to[i]] = true;
    for (uint32_t i = 0; i < m->n_members; i++) {
        uint32_t top = top_of(m, i);
        p.group_of[i] = DS_NONE;
        if (!meets[i]) continue;
        if (of_top[top] == DS_NONE) of_top[top] = p.n++;
        p.group_of[i] = of_top[top];
        p.at[i] = p.size[p.group_of[i]]++;
    }
    return p;
}

static const uint32_t *in_group(mover *m, const parts *p, const uint32_t *members, size_t n) {
    uint32_t *out = DS_NEW_N(&m->b->plan->arena, uint32_t, n);
    for (size_t i = 0; i < n; i++) out[i] = p->at[members[i]];
    return out;
}

/* The steps of the sequence as far as this group takes part. */
static void steps_of(mover *m, const parts *p, uint32_t group, ds_reshard *r) {
    ds_arena *arena = &m->b->plan->arena;
    ds_reshard_step *steps = DS_NEW_N(arena, ds_reshard_step, m->sequence.n_steps);
    for (uint32_t i = 0; i < m->sequence.n_steps; i++) {
        const ds_reshard_step *all = &m->steps[i];
        ds_reshard_step *own = &steps[r->n_steps++];
        size_t n = all->group_size, total = n * all->n_groups;
        uint32_t *members = DS_NEW_N(arena, uint32_t, total);
        int64_t *bytes = DS_NEW_N(arena, int64_t, all->n_groups);
        int64_t *shards = all->shard_bytes ? DS_NEW_N(arena, int64_t, total) : NULL;
        *own = (ds_reshard_step){all->op, members, 0, all->group_size, bytes, shards};
        for (uint32_t g = 0; g < all->n_groups; g++) {
            if (p->group_of[all->members[g * n]] != group) continue;
            size_t to = own->n_groups * n;
            for (size_t k = 0; k < n; k++) members[to + k] = p->at[all->members[g * n + k]];
            if (shards) memcpy(shards + to, all->shard_bytes + g * n, n * sizeof *shards);
            bytes[own->n_groups++] = all->bytes[g];
        }
    }
    r->steps = steps;
}

static ds_status make_group(mover *m, const parts *p, uint32_t group, const uint32_t *pieces,
                            uint32_t n_pieces, ds_group *g, ds_error *err) {
    ds_builder *b = m->b;
    ds_arena *arena = &b->plan->arena;
    ds_reshard *r = DS_NEW(arena, ds_reshard);
    ds_reshard_piece *own = DS_NEW_N(arena, ds_reshard_piece, n_pieces);
    for (uint32_t i = 0; i < n_pieces; i++) {
        const ds_reshard_piece *one = &m->pieces.at[pieces[i]];
        own[i] = *one;
        own[i].senders = in_group(m, p, one->senders, (size_t)one->n_senders * one->n_terms);
        own[i].receivers = in_group(m, p, one->receivers, one->n_receivers);
        if (!ds_add_i64(g->bytes, one->bytes, &g->bytes))
            return ds_error_set(err, DS_ERR_OVERFLOW, m->site->op->loc,
                                "reshard moves more than 2^63 bytes");
    }
    *r = (ds_reshard){.pieces = own, .n_pieces = n_pieces, .balance = m->balance};
    if (m->sequence.n_steps) steps_of(m, p, group, r);
    ds_reshard_finish(r, arena);
    const ds_group_work work = {
        .op = m->site->op, .code = DS_OP_RESHARD, .indices = m->site->indices, .reshard = r};
    return ds_plan__group_cost(b, &work, g, err);
}

/* Indices of the pieces, group after group; first[group]. */
static void sort_pieces(mover *m, const parts *p, uint32_t **sorted, uint32_t **first) {
    *sorted = DS_NEW_N(&m->b->plan->arena, uint32_t, m->pieces.n);
    *first = DS_NEW_N(&m->b->plan->arena, uint32_t, p->n + 2);
    for (uint32_t i = 0; i < m->pieces.n; i++)
        (*first)[p->group_of[m->pieces.at[i].senders[0]] + 2]++;
    for (uint32_t g = 0; g < p->n; g++) (*first)[g + 2] += (*first)[g + 1];
    for (uint32_t i = 0; i < m->pieces.n; i++)
        (*sorted)[(*first)[p->group_of[m->pieces.at[i].senders[0]] + 1]++] = i;
}

static ds_status make_groups(mover *m, ds_record *r, ds_error *err) {
    ds_arena *arena = &m->b->plan->arena;
    parts p = find_parts(m);
    uint32_t *devices = DS_NEW_N(arena, uint32_t, m->n_members), *sorted, *first, n = 0;
    r->n_groups = p.n;
    r->groups = DS_NEW_N(arena, ds_group, p.n);
    for (uint32_t g = 0; g < p.n; g++) {
        r->groups[g].devices = devices + n;
        r->groups[g].n_devices = p.size[g];
        n += p.size[g];
    }
    for (uint32_t i = 0; i < m->n_members; i++)
        if (p.group_of[i] != DS_NONE)
            devices[(r->groups[p.group_of[i]].devices - devices) + p.at[i]] = m->members[i];
    ds_plan__set_devices(m->b, r, devices, n);
    r->group_of = DS_NEW_N(arena, uint32_t, r->n_devices);
    for (uint32_t i = 0; i < m->n_members; i++)
        if (p.group_of[i] != DS_NONE)
            r->group_of[ds_plan__member(r, m->members[i])] = p.group_of[i];
    sort_pieces(m, &p, &sorted, &first);
    for (uint32_t g = 0; g < p.n; g++)
        DS_TRY(
            make_group(m, &p, g, sorted + first[g], first[g + 1] - first[g], &r->groups[g], err));
    return DS_OK;
}

/* ---- the op ---- */

/* Is the word one of the algorithms of a reshard that is not one collective? */
static bool is_own_algorithm(const char *word) {
    static const char *const list[] = {"collectives", "send_recv", "send_recv_gather", "broadcast"};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(word, list[i]) == 0) return true;
    return false;
}

static void read_balance(mover *m) {
    const ds_op *op = m->site->op;
    const char *word =
        ds_attr_text(&m->b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "balance"));
    m->balance = word && strcmp(word, "none") == 0   ? DS_BALANCE_NONE
                 : word && strcmp(word, "size") == 0 ? DS_BALANCE_SIZE
                                                     : DS_BALANCE_ORDER;
}

/* Inside one placement: one collective and nothing cut out, or none at all. `true`: *c says
 * which. An algorithm that only collectives have asks for it too. */
static bool is_one_collective(mover *m, ds_comm_shape *c) {
    ds_builder *b = m->b;
    const ds_op *op = m->site->op;
    const char *named =
        ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "algorithm"));
    if (m->from != m->to) return false;
    ds_plan__relayout(b, m->from, m->site->in[0].type, m->site->out[0].type, &m->sequence);
    if (!m->sequence.found || m->sequence.n_steps > 1) return false;
    c->op = DS_OP_INVALID;
    if (m->sequence.n_steps == 0) return true;
    if (m->sequence.cuts || (named && is_own_algorithm(named))) return false;
    const ds_relayout_step *s = &m->sequence.steps[0];
    c->op = s->op;
    ds_plan__groups(b, m->from, s->axes, s->n_axes, &c->devices, &c->n_groups, &c->group_size);
    return true;
}

static ds_status by_pieces(mover *m, const uint32_t *out_places, ds_comm_shape *c, ds_record *r,
                           ds_error *err) {
    tiles source = {0}, result = {0};
    ds_status status = find_axes(m, err);
    if (status == DS_OK) status = find_tiles(m, true, &source, err);
    if (status == DS_OK) status = find_tiles(m, false, &result, err);
    if (status == DS_OK) status = find_pieces(m, &source, &result, err);
    if (status == DS_OK) connect_choices(m);
    if (status == DS_OK && m->sequence.n_steps) status = make_steps(m, err);
    if (status == DS_OK && !m->pieces.n) {
        c->op = DS_OP_INVALID; /* everybody has it: an alias */
    } else if (status == DS_OK) {
        c->op = DS_OP_RESHARD;
        status = make_groups(m, r, err);
        if (status == DS_OK) status = ds_plan__comm_variants(m->b, m->site, out_places, r, err);
    }
    free(source.list.at);
    free(result.list.at);
    free(m->pieces.at);
    return status;
}

ds_status ds_plan__reshard(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                           const uint32_t *out_places, ds_comm_shape *c, ds_record *r,
                           ds_error *err) {
    mover m = {.b = b,
               .site = site,
               .from = ds_plan__placement(b, in_places[0]),
               .to = ds_plan__placement(b, out_places[0]),
               .dtype = site->in[0].type->dtype};
    if (is_one_collective(&m, c)) return DS_OK;
    read_balance(&m);
    find_members(&m);
    return by_pieces(&m, out_places, c, r, err);
}
