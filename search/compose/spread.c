/* The parts of an exact template on its stages' devices.
 *
 * A template's stage is one device. The stage's own devices are of one or several classes, which do
 * the same and differ in whom they meet and which links they share with others, as the skeleton
 * says: a stage whose replicas do not fill nodes has some at the edges of nodes. So each unit comes
 * once for every class that computes, or for every meeting of these classes; it waits for those
 * units of its class that the template's unit waits for. Buffers are each class's own.
 *
 * Most chunks of a stage do the same, and refer to others in the same way, counted from themselves:
 * the second of such *twins* takes the body of the first. */
#include "search/compose/template.h"

#include <stdlib.h>
#include <string.h>

/* The meetings of a transfer's members. */
typedef struct meetings {
    uint32_t n, *activity;
    uint32_t *of; /* per class that takes part: which */
} meetings;

/* The two stages of a transfer; the same one within a stage, and of compute. */
typedef struct ends {
    uint32_t from, to;
} ends;

/* What the units of a part become. */
typedef struct image {
    uint32_t *unit;            /* per unit, and one more: the first that it becomes */
    const meetings **meetings; /* … and of transfers in which meetings */
    ends *on;
    uint32_t n; /* all of them */
} image;

/* What a unit of the template waits for, and what that has become. */
typedef struct wait {
    ends on;
    uint32_t first;     /* of the part's: */
    const meetings *in; /* of a transfer */
    uint32_t ext;       /* into the body's; DS_NONE: of its own part */
} wait;

typedef struct spreader {
    const ds_spread *stages;
    const ds_sibling *of;
    ds_sibling *s;
    const ds_plan *plan;
    uint32_t *first; /* per stage, and one more: its classes in `cls` */
    uint32_t *cls;
    uint32_t *stage, *rank, *stream; /* per class: its stage, which of that, its compute stream, */
    uint32_t *sort;                  /* the sort of its replicas */
    image *images;                   /* per part */
    ds_map twins;                    /* hash of what a part is → the last such */
    uint32_t *next_twin;             /* per part: the one before it with its hash; DS_NONE */
    /* of the part in hand */
    const ds_part *from;
    const ds_body **bodies; /* per sort of replicas */
    ds_part *out;
    ds_arena arena;         /* of images and meetings */
    ds_map known;           /* hash of kinds → meetings */
    uint32_t *place_of;     /* per stream of the plan: place in out->streams; DS_NONE */
    uint32_t *place_of_cls; /* per class: in out->classes; DS_NONE */
    uint32_t *free_at;      /* per free: the first that it becomes */
    uint32_t *first_ext;    /* per external: the first that it may become … */
    uint32_t *ext_at;       /* … and where these are in the new body; DS_NONE: nowhere */
    uint32_t *seen;         /* per new unit of the part, then per `ext_at`: 1 + who waits for it */
    DS_VEC(wait) waits;     /* of the unit in hand */
} spreader;

/* ---- classes ---- */

static const ds_inst *compute_of(const spreader *x, uint32_t stage) {
    return &x->plan->insts.at[x->stages->n_meets + stage];
}

static void list_classes(spreader *x) {
    uint32_t n = x->stages->n, n_classes = x->plan->n_classes, at = 0;
    x->first = ds_xcalloc((size_t)n + 1, sizeof *x->first);
    x->cls = ds_xcalloc((size_t)n_classes * 5, sizeof *x->cls);
    x->stage = x->cls + n_classes;
    x->rank = x->stage + n_classes;
    x->stream = x->rank + n_classes;
    x->sort = x->stream + n_classes;
    for (uint32_t s = 0; s < n; s++) { /* the tasks of the stages follow each other */
        uint32_t task = compute_of(x, s)->first_task;
        uint32_t end = s + 1 < n ? compute_of(x, s + 1)->first_task : task + n_classes - at;
        for (; task < end; task++) {
            uint32_t c = x->plan->task_class[task];
            x->stage[c] = s;
            x->rank[c] = at - x->first[s];
            x->stream[c] = x->plan->task_stream[task];
            x->sort[c] = (uint32_t)x->plan->task_ps[task];
            x->cls[at++] = c;
        }
        x->first[s + 1] = at;
    }
}

static uint32_t count_classes(const spreader *x, uint32_t stage) {
    return x->first[stage + 1] - x->first[stage];
}

static const ds_body *body_of(const ds_sibling *s, uint32_t part) {
    return s->parts[part].body;
}

static const ds_sibling *sibling_of(const spreader *x, uint32_t sort) {
    return sort ? &x->stages->t->others[sort - 1] : x->of;
}

/* ---- meets ---- */

static const ds_kind *kind_of(const spreader *x, uint32_t part, uint32_t transfer, uint32_t sort,
                              uint32_t *k) {
    const ds_template *t = x->stages->t;
    const ds_outline *shapes = sort ? t->other_shapes[sort - 1] : t->shapes;
    *k = shapes[part].kind_of[transfer];
    return &t->kinds.at[*k];
}

static ends ends_of(const spreader *x, uint32_t part, const ds_unit_task *unit) {
    uint32_t k;
    const ds_kind *kind = kind_of(x, part, unit->transfer, 0, &k);
    return (ends){kind->from, kind->to};
}

static uint32_t count_members(const spreader *x, const ends *e) {
    return count_classes(x, e->from) + (e->to == e->from ? 0 : count_classes(x, e->to));
}

/* The i-th of the classes that take part. */
static uint32_t member_at(const spreader *x, const ends *e, uint32_t i) {
    uint32_t n = count_classes(x, e->from);
    return i < n ? x->cls[x->first[e->from] + i] : x->cls[x->first[e->to] + i - n];
}

/* The task of a class in a transfer: of what its sort of replicas moves. */
static uint32_t task_of(const spreader *x, uint32_t part, uint32_t transfer, uint32_t cls) {
    uint32_t k, n_kinds = x->stages->t->kinds.n;
    const ds_kind *kind = kind_of(x, part, transfer, x->sort[cls], &k);
    uint32_t inst = x->stages->meet_of[kind->from * n_kinds + k];
    uint32_t task = x->plan->insts.at[inst].first_task;
    while (x->plan->task_class[task] != cls) task++;
    return task;
}

/* Transfers of the same kinds, one for each sort of replicas, have the same meetings. */
static uint64_t hash_kinds(const spreader *x, uint32_t part, uint32_t transfer) {
    uint64_t hash = 0;
    uint32_t k;
    for (uint32_t sort = 0; sort < x->stages->t->replicas.n; sort++) {
        kind_of(x, part, transfer, sort, &k);
        hash = ds_hash_mix(hash, k);
    }
    return hash;
}

/* The meetings of a transfer, in the order of the first class in each. */
static const meetings *meetings_of(spreader *x, uint32_t part, const ds_unit_task *unit) {
    uint64_t hash = hash_kinds(x, part, unit->transfer);
    const uint64_t *found = ds_map_find(&x->known, hash);
    if (found) return (const meetings *)(uintptr_t)*found;
    ends e = ends_of(x, part, unit);
    uint32_t members = count_members(x, &e);
    meetings *m = DS_NEW(&x->arena, meetings);
    m->n = 0;
    m->activity = DS_NEW_N(&x->arena, uint32_t, members);
    m->of = DS_NEW_N(&x->arena, uint32_t, x->plan->n_classes);
    for (uint32_t i = 0; i < members; i++) {
        uint32_t cls = member_at(x, &e, i), k = 0;
        uint32_t activity = x->plan->task_activity[task_of(x, part, unit->transfer, cls)];
        while (k < m->n && m->activity[k] != activity) k++;
        if (k == m->n) m->activity[m->n++] = activity;
        m->of[cls] = k;
    }
    ds_map_put(&x->known, hash, DS_KEY(m));
    return m;
}

/* ---- units ---- */

static uint32_t stage_of_place(const spreader *x, uint32_t part, uint32_t place) {
    return x->stages->t->label_of[x->of->parts[part].classes.at[place]];
}

static bool is_on(const spreader *x, uint32_t part, uint32_t unit, uint32_t stage) {
    const ends *on = &x->images[part].on[unit];
    return on->from == stage || on->to == stage;
}

static void make_images(spreader *x) {
    x->images = ds_xcalloc(x->of->n_parts, sizeof *x->images);
    for (uint32_t p = 0; p < x->of->n_parts; p++) {
        const ds_body *body = x->of->parts[p].body;
        image *own = &x->images[p];
        own->unit = DS_NEW_N(&x->arena, uint32_t, body->units.n + 1);
        own->meetings = DS_NEW_N(&x->arena, const meetings *, body->units.n);
        own->on = DS_NEW_N(&x->arena, ends, body->units.n);
        for (uint32_t u = 0; u < body->units.n; u++) {
            const ds_unit_task *unit = &body->units.at[u];
            uint32_t stage = stage_of_place(x, p, unit->cls);
            own->unit[u] = own->n;
            own->on[u] = (ends){stage, stage};
            if (unit->transfer == DS_NONE) {
                own->n += count_classes(x, stage);
            } else {
                own->on[u] = ends_of(x, p, unit);
                own->meetings[u] = meetings_of(x, p, unit);
                own->n += own->meetings[u]->n;
            }
        }
        own->unit[body->units.n] = own->n;
    }
}

/* What a unit is on a class of one of its stages. */
static uint32_t unit_on(const spreader *x, uint32_t part, uint32_t unit, uint32_t cls) {
    const ds_unit_task *u = &x->of->parts[part].body->units.at[unit];
    uint32_t first = x->images[part].unit[unit];
    if (u->transfer == DS_NONE) return first + x->rank[cls];
    return first + x->images[part].meetings[unit]->of[cls];
}

static uint32_t own_part(const spreader *x) {
    return (uint32_t)(x->from - x->of->parts);
}

static uint32_t class_place(spreader *x, uint32_t cls) {
    uint32_t *place = &x->place_of_cls[cls];
    if (*place == DS_NONE) {
        *place = x->out->classes.n;
        DS_HPUSH(&x->out->classes, cls);
    }
    return *place;
}

static uint32_t slot_of(spreader *x, uint32_t stream, uint32_t cls) {
    uint32_t *place = &x->place_of[stream];
    if (*place == DS_NONE) {
        *place = x->out->streams.n;
        DS_HPUSH(&x->out->streams, stream);
        DS_HPUSH(&x->out->body->stream_cls, class_place(x, cls));
    }
    return *place;
}

/* How many units one of the template becomes. */
static uint32_t count_images(const spreader *x, uint32_t part, uint32_t unit) {
    return x->images[part].unit[unit + 1] - x->images[part].unit[unit];
}

static uint32_t part_of(const spreader *x, const ds_external *ext) {
    return ds_template__source_part(x->of, x->from, &ext->source);
}

/* Another part, counted from this one, so that twins say the same. */
static ds_source relative(const spreader *x, const ds_part *part, ds_source source) {
    if (part->tail || source.is_relative) return source;
    source.is_relative = true;
    source.chunk -= (int32_t)(part->group % x->of->n_chunks);
    return source;
}

/* The k-th that an external becomes. */
static uint32_t put_external(spreader *x, uint32_t ext, uint32_t k, uint32_t unit) {
    uint32_t *at = &x->ext_at[x->first_ext[ext] + k];
    if (*at == DS_NONE) {
        *at = x->out->body->exts.n;
        ds_source source = relative(x, x->from, x->from->body->exts.at[ext].source);
        DS_HPUSH(&x->out->body->exts, ((ds_external){source, unit}));
    }
    return *at;
}

static void find_waits(spreader *x, const ds_unit_task *old) {
    const ds_body *body = x->from->body;
    x->waits.n = 0;
    for (uint32_t i = old->pred; i < old->pred + old->n_preds; i++) {
        uint32_t unit = body->preds.at[i], part = own_part(x), ext = DS_NONE;
        if (unit & DS_EXT) {
            ext = unit & ~DS_EXT;
            part = part_of(x, &body->exts.at[ext]);
            unit = body->exts.at[ext].unit;
        }
        const image *of = &x->images[part];
        bool moves = body_of(x->of, part)->units.at[unit].transfer != DS_NONE;
        wait w = {of->on[unit], of->unit[unit], moves ? of->meetings[unit] : NULL, ext};
        DS_HPUSH(&x->waits, w);
    }
}

/* What the unit waits for on one of its classes. A transfer has several, which may wait for one
 * thing; each comes only once. */
static void put_preds(spreader *x, uint32_t cls, ds_unit_task *unit) {
    ds_body *out = x->out->body;
    uint32_t n_units = x->images[own_part(x)].n, stage = x->stage[cls];
    for (uint32_t i = 0; i < x->waits.n; i++) {
        const wait *w = &x->waits.at[i];
        if (w->on.from != stage && w->on.to != stage) continue;
        uint32_t k = w->in ? w->in->of[cls] : x->rank[cls], pred = w->first + k;
        if (unit->transfer != DS_NONE) {
            uint32_t place = w->ext == DS_NONE ? pred : n_units + x->first_ext[w->ext] + k;
            if (x->seen[place] == out->units.n + 1) continue;
            x->seen[place] = out->units.n + 1;
        }
        if (w->ext != DS_NONE) pred = DS_EXT | put_external(x, w->ext, k, pred);
        DS_HPUSH(&out->preds, pred);
        unit->n_preds++;
    }
}

static ds_unit_task new_unit(const spreader *x, const ds_unit_task *old) {
    ds_unit_task unit = *old;
    unit.slot = x->out->body->slots.n;
    unit.pred = x->out->body->preds.n;
    unit.n_slots = unit.n_preds = 0;
    return unit;
}

static void put_compute(spreader *x, uint32_t u, uint32_t cls) {
    ds_body *body = x->out->body;
    const ds_unit_task *old = &x->bodies[x->sort[cls]]->units.at[u];
    ds_unit_task unit = new_unit(x, old);
    uint32_t slot = slot_of(x, x->stream[cls], cls);
    DS_HPUSH(&body->slots, slot);
    unit.n_slots = 1;
    unit.cls = body->stream_cls.at[slot];
    put_preds(x, cls, &unit);
    DS_HPUSH(&body->units, unit);
}

static void put_transfer(spreader *x, const ds_unit_task *old, uint32_t activity) {
    ds_body *body = x->out->body;
    const ds_activity *a = &x->plan->activities[activity];
    ds_unit_task unit = new_unit(x, old);
    for (uint32_t i = 0; i < a->n_members; i++) {
        uint32_t member = x->plan->members[a->first_member + i];
        uint32_t slot = slot_of(x, x->plan->task_stream[member], x->plan->task_class[member]);
        DS_HPUSH(&body->slots, slot);
    }
    unit.n_slots = a->n_members;
    unit.cls = body->stream_cls.at[body->slots.at[unit.slot]];
    unit.ps = a->ps;
    unit.transfer = x->out->transfers.n;
    ds_transfer transfer = {activity, body->slots.at[unit.slot]};
    DS_HPUSH(&x->out->transfers, transfer);
    if (a->n_flows) x->out->flows = true;
    for (uint32_t i = 0; i < a->n_members; i++)
        put_preds(x, x->plan->task_class[x->plan->members[a->first_member + i]], &unit);
    DS_HPUSH(&body->units, unit);
}

static void put_units(spreader *x) {
    const ds_body *body = x->from->body;
    for (uint32_t u = 0; u < body->units.n; u++) {
        const ds_unit_task *unit = &body->units.at[u];
        find_waits(x, unit);
        if (unit->transfer == DS_NONE) {
            uint32_t stage = stage_of_place(x, own_part(x), unit->cls);
            for (uint32_t c = x->first[stage]; c < x->first[stage + 1]; c++)
                put_compute(x, u, x->cls[c]);
            continue;
        }
        const meetings *m = x->images[own_part(x)].meetings[u];
        for (uint32_t i = 0; i < m->n; i++) put_transfer(x, unit, m->activity[i]);
    }
}

/* ---- buffers ---- */

static void put_buffers(spreader *x) {
    const ds_body *body = x->from->body;
    ds_body *out = x->out->body;
    uint32_t part = own_part(x);
    for (uint32_t i = 0; i < body->allocs.n; i++) {
        const ds_alloc *old = &body->allocs.at[i];
        uint32_t stage = stage_of_place(x, part, old->cls);
        for (uint32_t c = x->first[stage]; c < x->first[stage + 1]; c++) {
            ds_alloc alloc = {unit_on(x, part, old->unit, x->cls[c]), class_place(x, x->cls[c]),
                              x->bodies[x->sort[x->cls[c]]]->allocs.at[i].bytes};
            DS_HPUSH(&out->allocs, alloc);
        }
    }
    x->free_at = ds_xcalloc((size_t)body->frees.n + 1, sizeof *x->free_at);
    for (uint32_t i = 0; i < body->frees.n; i++) {
        const ds_free *old = &body->frees.at[i];
        uint32_t stage = stage_of_place(x, part, old->cls);
        x->free_at[i] = out->frees.n;
        for (uint32_t c = x->first[stage]; c < x->first[stage + 1]; c++) {
            ds_free event = *old;
            event.bytes = x->bodies[x->sort[x->cls[c]]]->frees.at[i].bytes;
            event.cls = class_place(x, x->cls[c]);
            event.first = out->users.n;
            for (uint32_t k = 0; k < old->n; k++) {
                uint32_t user = unit_on(x, part, body->users.at[old->first + k], x->cls[c]);
                DS_HPUSH(&out->users, user);
            }
            if (old->taker != DS_NONE) event.taker = unit_on(x, part, old->taker, x->cls[c]);
            DS_HPUSH(&out->frees, event);
        }
    }
}

/* On every class that both have. */
static void put_checks(spreader *x) {
    const ds_body *body = x->from->body;
    uint32_t own = own_part(x), n_units = body->units.n;
    for (uint32_t i = 0; i < body->checks.n; i++) {
        const ds_before *old = &body->checks.at[i];
        uint32_t part = old->local ? own : ds_template__source_part(x->of, x->from, &old->source);
        const ds_free *f = old->until < n_units ? NULL : &body->frees.at[old->until - n_units];
        ends on = x->images[own].on[f ? 0 : old->until];
        if (f) on.from = on.to = stage_of_place(x, own, f->cls);
        uint32_t n = count_members(x, &on);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t c = member_at(x, &on, k);
            if (!is_on(x, part, old->unit, x->stage[c])) continue;
            ds_before check = *old;
            if (!old->local) check.source = relative(x, x->from, old->source);
            check.unit = unit_on(x, part, old->unit, c);
            check.until = f ? x->images[own].n + x->free_at[old->until - n_units] + x->rank[c]
                            : unit_on(x, own, old->until, c);
            DS_HPUSH(&x->out->body->checks, check);
        }
    }
}

/* ---- twins ---- */

static uint64_t hash_part(const spreader *x, uint32_t p) {
    const ds_body *body = body_of(x->of, p);
    uint64_t hash = ds_hash_mix(body->units.n, body->exts.n);
    hash = ds_hash_mix(ds_hash_mix(hash, body->allocs.n), body->frees.n);
    for (uint32_t i = 0; i < x->of->parts[p].classes.n; i++)
        hash = ds_hash_mix(hash, stage_of_place(x, p, i));
    for (uint32_t u = 0; u < body->units.n; u++)
        hash = ds_hash_mix(hash, (uint64_t)body->units.at[u].ps);
    for (uint32_t i = 0; i < body->allocs.n; i++)
        hash = ds_hash_mix(hash, (uint64_t)body->allocs.at[i].bytes);
    return hash;
}

static bool same_words(const uint32_t *a, const uint32_t *b, uint32_t n) {
    return !n || memcmp(a, b, n * sizeof *a) == 0;
}

/* The same units, but for which instances these are. */
static bool same_units(const ds_body *a, const ds_body *b) {
    for (uint32_t u = 0; u < a->units.n; u++) {
        const ds_unit_task *x = &a->units.at[u], *y = &b->units.at[u];
        if (x->ps != y->ps || x->transfer != y->transfer || x->cls != y->cls ||
            x->slot != y->slot || x->n_slots != y->n_slots || x->pred != y->pred ||
            x->n_preds != y->n_preds || x->dtype != y->dtype || x->each != y->each ||
            x->flop != y->flop)
            return false;
    }
    return true;
}

/* The same buffers, but for which values these are. */
static bool same_buffers(const ds_body *a, const ds_body *b) {
    for (uint32_t i = 0; i < a->allocs.n; i++) {
        const ds_alloc *x = &a->allocs.at[i], *y = &b->allocs.at[i];
        if (x->unit != y->unit || x->cls != y->cls || x->bytes != y->bytes) return false;
    }
    for (uint32_t i = 0; i < a->frees.n; i++) {
        const ds_free *x = &a->frees.at[i], *y = &b->frees.at[i];
        if (x->cls != y->cls || x->first != y->first || x->n != y->n || x->bytes != y->bytes ||
            x->taker != y->taker)
            return false;
        if (i && (x[-1].value == x->value) != (y[-1].value == y->value)) return false;
    }
    return true;
}

static bool same_body(const ds_body *a, const ds_body *b) {
    return a->units.n == b->units.n && a->slots.n == b->slots.n && a->preds.n == b->preds.n &&
           a->exts.n == b->exts.n && a->allocs.n == b->allocs.n && a->frees.n == b->frees.n &&
           a->users.n == b->users.n && a->checks.n == b->checks.n &&
           a->stream_cls.n == b->stream_cls.n && same_units(a, b) && same_buffers(a, b) &&
           same_words(a->slots.at, b->slots.at, a->slots.n) &&
           same_words(a->preds.at, b->preds.at, a->preds.n) &&
           same_words(a->users.at, b->users.at, a->users.n) &&
           same_words(a->stream_cls.at, b->stream_cls.at, a->stream_cls.n);
}

/* Does a unit become the same in both parts, on the same classes, in the same meetings? */
static bool same_image(const spreader *x, uint32_t p, uint32_t q, uint32_t unit) {
    const image *a = &x->images[p], *b = &x->images[q];
    if (a->unit[unit] != b->unit[unit] || a->on[unit].from != b->on[unit].from ||
        a->on[unit].to != b->on[unit].to)
        return false;
    bool moves = body_of(x->of, p)->units.at[unit].transfer != DS_NONE;
    if (moves != (body_of(x->of, q)->units.at[unit].transfer != DS_NONE)) return false;
    return !moves || a->meetings[unit] == b->meetings[unit];
}

static bool same_source(const spreader *x, uint32_t p, uint32_t q, const ds_source *from_p,
                        const ds_source *from_q, uint32_t unit) {
    const ds_part *a = &x->of->parts[p], *b = &x->of->parts[q];
    ds_source s = relative(x, a, *from_p), t = relative(x, b, *from_q);
    if (s.kind != t.kind || s.when != t.when || s.turn != t.turn || s.chunk != t.chunk ||
        s.post != t.post)
        return false;
    return same_image(x, ds_template__source_part(x->of, a, from_p),
                      ds_template__source_part(x->of, b, from_q), unit);
}

static bool same_waits(const spreader *x, uint32_t p, uint32_t q) {
    const ds_body *a = body_of(x->of, p), *b = body_of(x->of, q);
    for (uint32_t u = 0; u < a->units.n; u++)
        if (!same_image(x, p, q, u)) return false;
    for (uint32_t i = 0; i < a->exts.n; i++)
        if (a->exts.at[i].unit != b->exts.at[i].unit ||
            !same_source(x, p, q, &a->exts.at[i].source, &b->exts.at[i].source, a->exts.at[i].unit))
            return false;
    for (uint32_t i = 0; i < a->checks.n; i++) {
        const ds_before *c = &a->checks.at[i], *d = &b->checks.at[i];
        if (c->local != d->local || c->unit != d->unit || c->until != d->until) return false;
        if (!c->local && !same_source(x, p, q, &c->source, &d->source, c->unit)) return false;
    }
    return true;
}

static bool are_twins(const spreader *x, uint32_t p, uint32_t q) {
    const ds_part *a = &x->of->parts[p], *b = &x->of->parts[q];
    if (a->tail || b->tail || a->classes.n != b->classes.n || !same_body(a->body, b->body))
        return false;
    for (uint32_t i = 0; i < a->classes.n; i++)
        if (stage_of_place(x, p, i) != stage_of_place(x, q, i)) return false;
    for (uint32_t sort = 1; sort < x->stages->t->replicas.n; sort++)
        if (!same_body(body_of(sibling_of(x, sort), p), body_of(sibling_of(x, sort), q)))
            return false;
    return same_waits(x, p, q);
}

/* A part before this one whose body it may have; DS_NONE. */
static uint32_t find_twin(spreader *x, uint32_t p) {
    uint64_t hash = hash_part(x, p);
    const uint64_t *found = ds_map_find(&x->twins, hash);
    uint32_t first = found ? (uint32_t)*found : DS_NONE, q = first;
    while (q != DS_NONE && !are_twins(x, p, q)) q = x->next_twin[q];
    if (q != DS_NONE) return q;
    x->next_twin[p] = first;
    ds_map_put(&x->twins, hash, p);
    return DS_NONE;
}

#define COPY(to, from)                                                                             \
    do {                                                                                           \
        (to)->n = (to)->cap = (from)->n;                                                           \
        (to)->at = ds_xmalloc((size_t)((from)->n + 1) * sizeof *(to)->at);                         \
        if ((from)->n) memcpy((to)->at, (from)->at, (from)->n * sizeof *(to)->at);                 \
    } while (0)

static void copy_twin(ds_part *out, const ds_part *twin) {
    out->body = twin->body;
    out->flows = twin->flows;
    COPY(&out->streams, &twin->streams);
    COPY(&out->classes, &twin->classes);
    COPY(&out->transfers, &twin->transfers);
}

/* ---- parts ---- */

#define RESERVE(v, most) ((v)->at = ds_xmalloc((size_t)(most) * sizeof *(v)->at), (v)->cap = (most))

/* For as many units, streams and waits as there can be, so that nothing is moved as they grow. */
static void make_room(spreader *x) {
    const ds_body *body = x->from->body;
    const image *own = &x->images[own_part(x)];
    uint32_t n_slots = 0, n_preds = 0, n_exts = 0;
    for (uint32_t u = 0; u < body->units.n; u++) {
        uint32_t members = count_members(x, &own->on[u]);
        n_slots += members;
        n_preds += members * body->units.at[u].n_preds;
    }
    x->first_ext = ds_xcalloc((size_t)body->exts.n + 1, sizeof *x->first_ext);
    for (uint32_t i = 0; i < body->exts.n; i++) {
        x->first_ext[i] = n_exts;
        n_exts += count_images(x, part_of(x, &body->exts.at[i]), body->exts.at[i].unit);
    }
    x->ext_at = ds_xmalloc(((size_t)n_exts + 1) * sizeof *x->ext_at);
    memset(x->ext_at, 0xff, n_exts * sizeof *x->ext_at); /* DS_NONE */
    x->seen = ds_xcalloc((size_t)own->n + n_exts + 1, sizeof *x->seen);
    RESERVE(&x->out->body->units, own->n + 1);
    RESERVE(&x->out->body->slots, n_slots + 1);
    RESERVE(&x->out->body->preds, n_preds + 1);
}

static void put_part(spreader *x, uint32_t p) {
    const ds_part *from = &x->of->parts[p];
    x->from = from;
    x->out = ds_compose__add_part(x->s);
    *x->out = (ds_part){.group = from->group,
                        .turn = from->turn,
                        .mb = from->mb,
                        .post = from->post,
                        .tail = from->tail,
                        .callee = from->callee,
                        .opaque = !from->tail && from->post < 0};
    uint32_t twin = find_twin(x, p);
    if (twin != DS_NONE) {
        copy_twin(x->out, &x->s->parts[twin]);
        return;
    }
    for (uint32_t sort = 0; sort < x->stages->t->replicas.n; sort++)
        x->bodies[sort] = body_of(sibling_of(x, sort), p);
    x->out->body = ds_compose__add_body(x->s);
    make_room(x);
    put_units(x);
    put_buffers(x);
    put_checks(x);
    x->out->body->n_classes = x->out->classes.n;
    for (uint32_t i = 0; i < x->out->streams.n; i++) x->place_of[x->out->streams.at[i]] = DS_NONE;
    for (uint32_t i = 0; i < x->out->classes.n; i++)
        x->place_of_cls[x->out->classes.at[i]] = DS_NONE;
    free(x->free_at);
    free(x->first_ext);
    free(x->ext_at);
    free(x->seen);
}

static void put_inputs(spreader *x) {
    ds_sibling *s = x->s;
    s->input_bytes = ds_xcalloc(x->plan->n_classes, sizeof *s->input_bytes);
    s->each_bytes = ds_xcalloc(x->plan->n_classes, sizeof *s->each_bytes);
    for (uint32_t c = 0; c < x->plan->n_classes; c++)
        for (uint32_t k = 0; k < x->stages->n; k++) {
            if (x->stages->t->label_of[k] != x->stage[c]) continue;
            s->input_bytes[c] = sibling_of(x, x->sort[c])->input_bytes[k];
            s->each_bytes[c] = sibling_of(x, x->sort[c])->each_bytes[k];
        }
}

bool ds_template__spread(const ds_spread *stages) {
    spreader x = {.stages = stages, .of = &stages->t->s, .s = stages->s, .plan = stages->plan};
    size_t n_items = (size_t)x.of->n_groups * DS_SIBLING;
    ds_sibling *s = stages->s;
    s->first_post = ds_xcalloc(n_items, sizeof *s->first_post);
    s->n_posts = ds_xcalloc(n_items, sizeof *s->n_posts);
    memcpy(s->first_post, x.of->first_post, n_items * sizeof *s->first_post);
    memcpy(s->n_posts, x.of->n_posts, n_items * sizeof *s->n_posts);
    ds_arena_init(&x.arena);
    list_classes(&x);
    make_images(&x);
    x.place_of = ds_xmalloc(x.plan->n_streams * sizeof *x.place_of);
    for (uint32_t i = 0; i < x.plan->n_streams; i++) x.place_of[i] = DS_NONE;
    x.place_of_cls = ds_xmalloc(x.plan->n_classes * sizeof *x.place_of_cls);
    for (uint32_t i = 0; i < x.plan->n_classes; i++) x.place_of_cls[i] = DS_NONE;
    x.next_twin = ds_xcalloc(x.of->n_parts, sizeof *x.next_twin);
    x.bodies = ds_xcalloc((size_t)stages->t->replicas.n + 1, sizeof *x.bodies);
    for (uint32_t p = 0; p < x.of->n_parts; p++) put_part(&x, p);
    put_inputs(&x);
    ds_map_deinit(&x.twins);
    free(x.next_twin);
    free(x.bodies);
    ds_map_deinit(&x.known);
    ds_arena_deinit(&x.arena);
    free(x.images);
    free(x.place_of);
    free(x.place_of_cls);
    free(x.waits.at);
    free(x.first);
    free(x.cls);
    return true;
}
