/* A template's parts with more turns, and its tail with more chunks and microbatches.
 *
 * Four turns of a loop stand for L: turn 0, turn 1, L - 3 times turn 2, turn 3. What a unit of
 * turn 2 refers to (what it waits for, whose buffer it frees) is told by its twin in turn 1: if
 * that refers to the turn before, as one does to the other, so does every turn (k → k + d); if to
 * the turn after, then the loops run against each other, as the backward pass does against the
 * forward one (k → L - 1 - k + d). Twins that differ otherwise are refused, and so is what stands
 * outside of loops and refers to a turn in the middle: it would have to refer to all of them.
 *
 * In the tail, runs of units of the two middle chunks stand one behind the other; in their place
 * come those of all middle chunks, in the same order. A unit that is there for each microbatch
 * comes as often as it has to. */
#include "search/compose/template.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
    ds_template *t;
    const ds_part *from;
    const ds_outline *shape;
    ds_body *out;
    const int64_t *turns; /* per column */
    uint32_t *base;       /* per column and unit of the template: where it goes, in a loop that of
                             its first turn … only the loop's first unit counts */
    uint32_t n_columns;   /* 1: an item or a send; the tail: chunks of the larger step */
    uint32_t label,
        column;          /* of the unit that is being written: the template's chunk, the real one */
    uint32_t unit, turn; /* … which it is, and in which turn it comes */
    uint32_t twin;       /* the same one turn before; DS_NONE: its turn is one of the template's */
    uint32_t *new_free;  /* per free of the template: where it went last */
    uint32_t next;       /* while places are counted */
    ds_map exts;
    bool fine;
} writer;

static bool refuse(writer *w, const char *why) {
    w->fine = false;
    return ds_template__unknown(w->t, why);
}

/* ---- where things go ---- */

static uint32_t start_of_turn(const ds_loop *loop, uint32_t turn) {
    return turn ? loop->len[0] + (turn - 1) * loop->len[1] : 0;
}

static uint32_t units_of(const ds_loop *loop, int64_t turns) {
    uint32_t sum = 0;
    if (turns == loop->n_turns)
        for (uint32_t k = 0; k < loop->n_turns; k++) sum += loop->len[k];
    else
        sum = start_of_turn(loop, (uint32_t)turns - 1) + loop->len[DS_FEW - 1];
    return sum;
}

/* The turn of a loop of `turns` that the unit in hand means by one of the template's, given what
 * its twin means. */
static uint32_t turn_meant(writer *w, const ds_loop *loop, uint32_t turn, uint32_t twins,
                           int64_t turns) {
    int64_t at = turn;
    if (turns == loop->n_turns) return turn;
    if (w->shape->at[w->unit].loop == DS_NONE && (turn == 1 || turn == 2))
        refuse(w, "ops that read what all layers make");
    if (w->twin == DS_NONE || turn == twins)
        at = turn < 2 ? turn : turns - (DS_FEW - (int64_t)turn);
    else if (turn == twins + 1)
        at = (int64_t)w->turn + turn - DS_THIRD;
    else if (turn + 1 == twins)
        at = turns - 1 - w->turn + (int64_t)turn - 1;
    else
        refuse(w, "layers that differ");
    if (at < 0 || at >= turns) refuse(w, "layers that refer beyond the first or the last");
    return at < 0 ? 0 : (uint32_t)at;
}

static uint32_t place_in_turn(writer *w, const ds_loop *loop, const ds_where *where, uint32_t turn,
                              int64_t turns) {
    bool same = turns == loop->n_turns;
    uint32_t len = same                ? loop->len[turn]
                   : turn == 0         ? loop->len[0]
                   : turn == turns - 1 ? loop->len[DS_FEW - 1]
                                       : loop->len[1];
    if (where->at >= len) refuse(w, "layers of different lengths");
    uint32_t start = 0;
    for (uint32_t k = 0; same && k < turn; k++) start += loop->len[k];
    return (same ? start : start_of_turn(loop, turn)) + where->at;
}

/* In the tail: whose is a class of the template, seen from the unit in hand? */
static uint32_t column_of(writer *w, uint32_t cls) {
    uint32_t label = w->t->label_of[w->from->classes.at[cls]];
    if (label == w->label) return w->column;
    if (w->t->n_chunks < DS_FEW || label == 0) return label;
    if (label != DS_FEW - 1) refuse(w, "stages whose updates depend on each other");
    return w->n_columns - 1;
}

/* A unit of the same part, which the twin has `twins` for. */
static uint32_t own_unit(writer *w, uint32_t unit, uint32_t twins) {
    const ds_where *where = &w->shape->at[unit];
    const ds_body *body = w->from->body;
    uint32_t column = 0;
    if (w->n_columns > 1) column = column_of(w, body->units.at[unit].cls);
    const uint32_t *base = w->base + (size_t)column * body->units.n;
    if (where->loop == DS_NONE) {
        if (twins != DS_NONE && twins != unit) refuse(w, "layers that differ");
        bool later = body->units.at[unit].each && unit != w->unit;
        return base[unit] + (later             ? ds_compose__n_each(&w->t->s) - 1
                             : unit == w->unit ? w->turn
                                               : 0);
    }
    const ds_loop *loop = &w->shape->loops.at[where->loop];
    uint32_t twin_turn = where->turn;
    if (twins != DS_NONE) {
        const ds_where *other = &w->shape->at[twins];
        if (other->loop != where->loop || other->at != where->at) refuse(w, "layers that differ");
        twin_turn = other->turn;
    }
    uint32_t turn = turn_meant(w, loop, where->turn, twin_turn, w->turns[column]);
    return base[loop->first] + place_in_turn(w, loop, where, turn, w->turns[column]);
}

/* Where a unit of another part goes. */
static uint32_t foreign_unit(writer *w, uint32_t part, uint32_t unit, uint32_t twins,
                             int64_t turns) {
    const ds_outline *shape = &w->t->shapes[part];
    if (!shape->at) return unit; /* as it was */
    const ds_where *where = &shape->at[unit];
    uint32_t at = unit;
    for (uint32_t l = 0; l < shape->loops.n; l++) {
        const ds_loop *loop = &shape->loops.at[l];
        uint32_t n = units_of(loop, loop->n_turns);
        if (where->loop == DS_NONE && loop->first < unit) at += units_of(loop, turns) - n;
        if (where->loop == DS_NONE || where->loop <= l) continue;
        at += units_of(loop, turns) - n;
    }
    uint32_t twin_turn = where->turn;
    if (twins != DS_NONE) {
        const ds_where *other = &shape->at[twins];
        if (other->loop != where->loop || other->at != where->at ||
            (where->loop == DS_NONE && twins != unit))
            refuse(w, "layers that differ");
        twin_turn = other->turn;
    }
    if (where->loop == DS_NONE) return at;
    const ds_loop *loop = &shape->loops.at[where->loop];
    uint32_t before = where->at; /* in the template: units of the loop before this one */
    for (uint32_t k = 0; k < where->turn; k++) before += loop->len[k];
    uint32_t turn = turn_meant(w, loop, where->turn, twin_turn, turns);
    return at - before + place_in_turn(w, loop, where, turn, turns);
}

/* ---- sources ---- */

/* Chunks as the larger step counts them: of an item from its own on, of the tail as they are. */
static ds_source source_meant(writer *w, const ds_source *from, int64_t *turns) {
    ds_source source = *from;
    int32_t own = (int32_t)(w->n_columns > 1 ? w->label : w->from->group % w->t->s.n_chunks);
    int32_t by = from->chunk - own, last = (int32_t)w->t->n_chunks - 1;
    bool far = last == DS_FEW - 1 && (by > 1 || by < -1);
    if (w->n_columns > 1) {
        int32_t real = (int32_t)w->column + by;
        if (far) real = from->chunk == 0 ? 0 : (int32_t)w->n_columns - 1;
        source.chunk = real;
        if (real < 0 || real >= (int32_t)w->n_columns) refuse(w, "a chunk beyond the last");
        if (w->fine) *turns = w->turns[real];
    } else {
        source.is_relative = !far;
        source.chunk = !far ? by : from->chunk == 0 ? 0 : -1;
        *turns = by == 0 ? w->turns[0] : -1;
    }
    if (far && from->chunk != 0 && from->chunk != last) refuse(w, "chunks that refer to others");
    return source;
}

static uint32_t unit_meant(writer *w, const ds_source *from, uint32_t unit, uint32_t twins,
                           ds_source *source) {
    int64_t turns = 0;
    uint32_t part = ds_template__source_part(&w->t->s, w->from, from);
    *source = source_meant(w, from, &turns);
    if (turns < 0) { /* of a chunk that may have another number of turns */
        if (w->t->shapes[part].loops.n) refuse(w, "chunks that read what others keep");
        turns = 1;
    }
    return w->fine ? foreign_unit(w, part, unit, twins, turns) : 0;
}

static uint32_t put_external(writer *w, const ds_external *ext, uint32_t twins) {
    ds_external out;
    out.unit = unit_meant(w, &ext->source, ext->unit, twins, &out.source);
    const ds_source *s = &out.source;
    uint64_t key = (uint64_t)out.unit << 32 | (uint32_t)s->chunk;
    key = ds_hash_mix(key, (uint64_t)s->kind << 32 | (uint64_t)s->when << 24 |
                               (uint64_t)s->turn << 16 | s->is_relative);
    key = ds_hash_mix(key, (uint64_t)(int64_t)s->post);
    const uint64_t *found = ds_map_find(&w->exts, key);
    if (found) return (uint32_t)*found;
    ds_map_put(&w->exts, key, w->out->exts.n);
    DS_HPUSH(&w->out->exts, out);
    return w->out->exts.n - 1;
}

/* ---- a unit ---- */

static void put_preds(writer *w, ds_unit_task *unit) {
    const ds_body *body = w->from->body;
    const ds_unit_task *old = &body->units.at[w->unit];
    const ds_unit_task *twin = w->twin == DS_NONE ? NULL : &body->units.at[w->twin];
    unit->pred = w->out->preds.n;
    if (twin && twin->n_preds != old->n_preds) {
        refuse(w, "layers that differ");
        return;
    }
    for (uint32_t i = 0; i < old->n_preds && w->fine; i++) {
        uint32_t pred = body->preds.at[old->pred + i], other = pred, at;
        if (twin) other = body->preds.at[twin->pred + i];
        if ((pred ^ other) & DS_EXT) {
            refuse(w, "layers that differ");
        } else if (pred & DS_EXT) {
            const ds_external *ext = &body->exts.at[pred & ~DS_EXT];
            const ds_external *twins = &body->exts.at[other & ~DS_EXT];
            if (memcmp(&ext->source, &twins->source, sizeof ext->source) != 0)
                refuse(w, "layers that differ");
            at = DS_EXT | put_external(w, ext, twin ? twins->unit : DS_NONE);
            DS_HPUSH(&w->out->preds, at);
        } else {
            at = own_unit(w, pred, twin ? other : DS_NONE);
            DS_HPUSH(&w->out->preds, at);
        }
    }
    unit->n_preds = w->out->preds.n - unit->pred;
}

/* The i-th of what belongs to the unit, and to its twin. */
static uint32_t count_belongings(writer *w, const ds_belongings *all) {
    uint32_t n = all->first[w->unit + 1] - all->first[w->unit];
    if (w->twin != DS_NONE && all->first[w->twin + 1] - all->first[w->twin] != n)
        refuse(w, "layers that differ");
    return w->fine ? n : 0;
}

static uint32_t of_unit(const writer *w, const ds_belongings *all, uint32_t i) {
    return all->list[all->first[w->unit] + i];
}

static uint32_t of_twin(const writer *w, const ds_belongings *all, uint32_t i) {
    return all->list[all->first[w->twin == DS_NONE ? w->unit : w->twin] + i];
}

static void put_allocs(writer *w, uint32_t at) {
    const ds_body *body = w->from->body;
    const ds_belongings *all = &w->shape->allocs;
    uint32_t n = count_belongings(w, all);
    for (uint32_t i = 0; i < n; i++) {
        ds_alloc alloc = body->allocs.at[of_unit(w, all, i)];
        const ds_alloc *twin = &body->allocs.at[of_twin(w, all, i)];
        if (twin->bytes != alloc.bytes || twin->cls != alloc.cls) refuse(w, "layers that differ");
        alloc.unit = at;
        DS_HPUSH(&w->out->allocs, alloc);
    }
}

static void put_frees(writer *w) {
    const ds_body *body = w->from->body;
    const ds_belongings *all = &w->shape->frees;
    uint32_t n = count_belongings(w, all);
    for (uint32_t i = 0; i < n && w->fine; i++) {
        uint32_t own = of_unit(w, all, i);
        ds_free out = body->frees.at[own];
        const ds_free *old = &body->frees.at[own], *twin = &body->frees.at[of_twin(w, all, i)];
        if (twin->n != old->n || twin->bytes != old->bytes || twin->cls != old->cls) {
            refuse(w, "layers that differ");
            return;
        }
        out.first = w->out->users.n;
        for (uint32_t k = 0; k < old->n; k++) {
            uint32_t twins = w->twin == DS_NONE ? DS_NONE : body->users.at[twin->first + k];
            uint32_t user = own_unit(w, body->users.at[old->first + k], twins);
            DS_HPUSH(&w->out->users, user);
        }
        if ((old->taker == DS_NONE) != (twin->taker == DS_NONE)) refuse(w, "layers that differ");
        if (old->taker != DS_NONE)
            out.taker = own_unit(w, old->taker, w->twin == DS_NONE ? DS_NONE : twin->taker);
        out.value = w->out->frees.n; /* templates have one class a chunk */
        w->new_free[own] = w->out->frees.n;
        DS_HPUSH(&w->out->frees, out);
    }
}

/* Until a free is until DS_EXT + which, as long as it is not known how many units there are. */
static void put_checks(writer *w, uint32_t at) {
    const ds_body *body = w->from->body;
    const ds_belongings *all = &w->shape->checks;
    uint32_t n = count_belongings(w, all), n_units = body->units.n;
    for (uint32_t i = 0; i < n && w->fine; i++) {
        const ds_before *old = &body->checks.at[of_unit(w, all, i)];
        const ds_before *twin = &body->checks.at[of_twin(w, all, i)];
        uint32_t twins = w->twin == DS_NONE ? DS_NONE : twin->unit;
        ds_before out = {.local = old->local};
        if (twin->local != old->local || (twin->until < n_units) != (old->until < n_units))
            refuse(w, "layers that differ");
        else if (old->local)
            out.unit = own_unit(w, old->unit, twins);
        else
            out.unit = unit_meant(w, &old->source, old->unit, twins, &out.source);
        out.until = old->until < n_units ? at : DS_EXT | w->new_free[old->until - n_units];
        DS_HPUSH(&w->out->checks, out);
    }
}

static bool same_work(const writer *w, const ds_unit_task *a, const ds_unit_task *b) {
    const ds_body *body = w->from->body;
    if (a->ps != b->ps || a->flop != b->flop || a->cls != b->cls || a->n_slots != b->n_slots ||
        (a->transfer == DS_NONE) != (b->transfer == DS_NONE))
        return false;
    if (a->transfer != DS_NONE && w->shape->kind_of[a->transfer] != w->shape->kind_of[b->transfer])
        return false;
    return memcmp(&body->slots.at[a->slot], &body->slots.at[b->slot],
                  a->n_slots * sizeof *body->slots.at) == 0;
}

/* Everything of a unit but its slots and its transfer. */
static ds_unit_task *put_unit(writer *w) {
    const ds_body *body = w->from->body;
    uint32_t at = w->out->units.n;
    ds_unit_task unit = body->units.at[w->unit];
    if (w->twin != DS_NONE && !same_work(w, &body->units.at[w->twin], &unit))
        refuse(w, "layers that differ");
    put_preds(w, &unit);
    put_allocs(w, at);
    put_frees(w);
    put_checks(w, at);
    DS_HPUSH(&w->out->units, unit);
    return &w->out->units.at[at];
}

static void end_writing(writer *w) {
    for (uint32_t i = 0; i < w->out->checks.n; i++) {
        uint32_t *until = &w->out->checks.at[i].until;
        if (*until & DS_EXT) *until = w->out->units.n + (*until & ~DS_EXT);
    }
    free(w->base);
    free(w->new_free);
    ds_map_deinit(&w->exts);
}

typedef void put_fn(writer *w, void *context);

/* All turns of a loop. */
static void put_loop(writer *w, const ds_loop *loop, int64_t turns, put_fn *put, void *context) {
    uint32_t first[DS_FEW + 1] = {loop->first};
    for (uint32_t k = 0; k < loop->n_turns; k++) first[k + 1] = first[k] + loop->len[k];
    bool longer = turns != loop->n_turns;
    if (longer && (loop->n_turns != DS_FEW || loop->len[1] != loop->len[2])) {
        refuse(w, "layers that differ");
        return;
    }
    for (int64_t turn = 0; turn < turns && w->fine; turn++) {
        uint32_t of = (uint32_t)turn;
        if (longer && turn >= DS_THIRD) of = turn == turns - 1 ? DS_FEW - 1 : DS_THIRD;
        w->turn = (uint32_t)turn;
        for (uint32_t i = 0; i < loop->len[of] && w->fine; i++) {
            w->unit = first[of] + i;
            w->twin = longer && of == DS_THIRD ? first[1] + i : DS_NONE;
            put(w, context);
        }
    }
    w->turn = 0;
    w->twin = DS_NONE;
}

/* ---- an item, or a send ---- */

static void put_of_item(writer *w, void *context) {
    (void)context;
    const ds_body *body = w->from->body;
    uint32_t slot = w->out->slots.n;
    ds_unit_task *unit = put_unit(w);
    for (uint32_t i = 0; i < unit->n_slots; i++)
        DS_HPUSH(&w->out->slots, body->slots.at[unit->slot + i]);
    unit->slot = slot;
    if (unit->transfer != DS_NONE && w->shape->own_of)
        unit->transfer = w->shape->own_of[unit->transfer];
}

bool ds_template__stretch(ds_template *t, uint32_t part, int64_t turns, ds_body *out) {
    const ds_part *from = &t->s.parts[part];
    const ds_body *body = from->body;
    writer w = {.t = t,
                .from = from,
                .shape = &t->shapes[part],
                .out = out,
                .turns = &turns,
                .n_columns = 1,
                .twin = DS_NONE,
                .fine = true};
    w.base = ds_xcalloc(body->units.n, sizeof *w.base);
    w.new_free = ds_xcalloc(body->frees.n, sizeof *w.new_free);
    uint32_t at = 0;
    for (uint32_t u = 0; u < body->units.n;) {
        w.base[u] = at;
        uint32_t loop = w.shape->at[u].loop;
        at += loop == DS_NONE ? 1 : units_of(&w.shape->loops.at[loop], turns);
        u += loop == DS_NONE ? 1
                             : units_of(&w.shape->loops.at[loop], w.shape->loops.at[loop].n_turns);
    }
    for (uint32_t i = 0; i < body->stream_cls.n; i++)
        DS_HPUSH(&w.out->stream_cls, body->stream_cls.at[i]);
    w.out->n_classes = body->n_classes;
    for (uint32_t u = 0; u < body->units.n && w.fine;) {
        uint32_t loop = w.shape->at[u].loop;
        w.unit = u;
        if (loop == DS_NONE) {
            put_of_item(&w, NULL);
            u++;
        } else {
            put_loop(&w, &w.shape->loops.at[loop], turns, put_of_item, NULL);
            u += units_of(&w.shape->loops.at[loop], w.shape->loops.at[loop].n_turns);
        }
    }
    end_writing(&w);
    return w.fine;
}

/* ---- microbatches alone ---- */

bool ds_template__each(ds_template *t) {
    ds_part *tail = &t->s.parts[t->s.n_parts - 1];
    const ds_body *body = tail->body;
    int64_t turns = 1;
    uint32_t n_each = ds_compose__n_each(&t->s), at = 0;
    ds_body *out = ds_compose__add_body(&t->s);
    writer w = {.t = t, .from = tail, .out = out, .turns = &turns, .n_columns = 1};
    t->shapes = ds_xcalloc(t->s.n_parts, sizeof *t->shapes);
    ds_outline *shape = &t->shapes[t->s.n_parts - 1];
    ds_template__belongings(body, shape);
    shape->at = ds_xcalloc(body->units.n, sizeof *shape->at);
    w.shape = shape;
    w.twin = DS_NONE;
    w.fine = true;
    w.base = ds_xcalloc(body->units.n, sizeof *w.base);
    w.new_free = ds_xcalloc(body->frees.n, sizeof *w.new_free);
    for (uint32_t u = 0; u < body->units.n; u++) {
        shape->at[u].loop = DS_NONE;
        w.base[u] = at;
        at += body->units.at[u].each ? n_each : 1;
    }
    for (uint32_t i = 0; i < body->stream_cls.n; i++)
        DS_HPUSH(&out->stream_cls, body->stream_cls.at[i]);
    out->n_classes = body->n_classes;
    for (w.unit = 0; w.unit < body->units.n && w.fine; w.unit++)
        for (w.turn = 0; w.turn < (body->units.at[w.unit].each ? n_each : 1); w.turn++)
            put_of_item(&w, NULL);
    end_writing(&w);
    tail->body = out;
    return w.fine;
}

/* ---- the tail ---- */

/* Units of the template's tail that come together: one, or all of a loop. */
typedef struct block {
    uint32_t first, n, label;
} block;

typedef struct tail {
    const ds_stretch *to;
    ds_part *part;
    ds_map place_of; /* stream of the plan → place in part->streams */
    DS_VEC(block) blocks;
} tail;

static uint32_t label_of(const writer *w, uint32_t unit) {
    const ds_unit_task *u = &w->from->body->units.at[unit];
    return w->t->label_of[w->from->classes.at[u->cls]];
}

/* Sends within the tail connect the first chunk with the last. */
static bool check_label(writer *w, uint32_t unit, uint32_t label) {
    const ds_unit_task *u = &w->from->body->units.at[unit];
    if (u->transfer == DS_NONE || w->t->n_chunks < DS_FEW) return true;
    const ds_kind *kind = &w->t->kinds.at[w->shape->kind_of[u->transfer]];
    bool middle = kind->from % (DS_FEW - 1) || kind->to % (DS_FEW - 1);
    if (kind->from != kind->to) return !middle || refuse(w, "updates that are sent on");
    return label == kind->from || refuse(w, "updates that are sent on");
}

static bool find_blocks(writer *w, tail *x) {
    const ds_body *body = w->from->body;
    for (uint32_t u = 0; u < body->units.n;) {
        uint32_t loop = w->shape->at[u].loop, n = 1, label = label_of(w, u);
        if (loop != DS_NONE)
            n = units_of(&w->shape->loops.at[loop], w->shape->loops.at[loop].n_turns);
        for (uint32_t k = 0; k < n; k++)
            if (!check_label(w, u + k, label)) return false;
        DS_HPUSH(&x->blocks, ((block){u, n, label}));
        u += n;
    }
    return true;
}

static uint32_t place_of_stream(tail *x, ds_body *out, uint32_t stream) {
    const uint64_t *found = ds_map_find(&x->place_of, stream);
    if (found) return (uint32_t)*found;
    const ds_plan *plan = x->to->s->plan;
    uint32_t cls = plan->streams[stream].cls, at = ds_compose__class_place(x->part, cls);
    if (at == x->part->classes.n) DS_HPUSH(&x->part->classes, cls);
    ds_map_put(&x->place_of, stream, x->part->streams.n);
    DS_HPUSH(&x->part->streams, stream);
    DS_HPUSH(&out->stream_cls, at);
    return x->part->streams.n - 1;
}

static void put_of_tail(writer *w, void *context) {
    tail *x = context;
    const ds_plan *plan = x->to->s->plan;
    uint32_t old_allocs = w->out->allocs.n, old_frees = w->out->frees.n;
    uint32_t slot = w->out->slots.n;
    ds_unit_task *unit = put_unit(w);
    unit->slot = slot;
    unit->n_slots = 0;
    if (unit->transfer == DS_NONE) {
        uint32_t at = place_of_stream(x, w->out, x->to->stream(x->to->context, w->column));
        DS_HPUSH(&w->out->slots, at);
        unit->n_slots = 1;
    } else {
        uint32_t kind = w->shape->kind_of[unit->transfer];
        uint32_t id = x->to->activity(x->to->context, kind, w->column);
        const ds_activity *a = &plan->activities[id];
        for (uint32_t i = 0; i < a->n_members; i++) {
            uint32_t stream = plan->task_stream[plan->members[a->first_member + i]];
            uint32_t at = place_of_stream(x, w->out, stream);
            DS_HPUSH(&w->out->slots, at);
        }
        unit->n_slots = a->n_members;
        unit->ps = a->ps;
        unit->transfer = x->part->transfers.n;
        DS_HPUSH(&x->part->transfers, ((ds_transfer){id, w->out->slots.at[slot]}));
        if (a->n_flows) x->part->flows = true;
    }
    /* classes: those of the chunks that the template's classes stand for */
    unit->cls = w->out->stream_cls.at[w->out->slots.at[slot]];
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t n = pass ? w->out->frees.n : w->out->allocs.n;
        for (uint32_t i = pass ? old_frees : old_allocs; i < n; i++) {
            uint32_t *cls = pass ? &w->out->frees.at[i].cls : &w->out->allocs.at[i].cls;
            uint32_t stream = x->to->stream(x->to->context, column_of(w, *cls));
            uint32_t at = place_of_stream(x, w->out, stream); /* may move what is indexed next */
            *cls = w->out->stream_cls.at[at];
        }
    }
}

static void put_block(writer *w, tail *x, const block *b, uint32_t column) {
    const ds_body *body = w->from->body;
    uint32_t loop = w->shape->at[b->first].loop;
    w->label = b->label;
    w->column = column;
    w->unit = b->first;
    if (loop != DS_NONE) {
        put_loop(w, &w->shape->loops.at[loop], w->turns[column], put_of_tail, x);
        return;
    }
    uint32_t n = body->units.at[b->first].each ? ds_compose__n_each(x->to->s) : 1;
    for (uint32_t k = 0; k < n && w->fine; k++) {
        w->turn = k;
        put_of_tail(w, x);
    }
    w->turn = 0;
}

typedef void block_fn(writer *w, tail *x, const block *b, uint32_t column);

static void count_block(writer *w, tail *x, const block *b, uint32_t column) {
    const ds_body *body = w->from->body;
    uint32_t loop = w->shape->at[b->first].loop;
    w->base[(size_t)column * body->units.n + b->first] = w->next;
    if (loop != DS_NONE)
        w->next += units_of(&w->shape->loops.at[loop], w->turns[column]);
    else
        w->next += body->units.at[b->first].each ? ds_compose__n_each(x->to->s) : 1;
}

/* The blocks in order, those of the middle chunks as often as there are such. */
static bool each_block(writer *w, tail *x, block_fn *what) {
    uint32_t n = x->blocks.n, few = w->t->n_chunks;
    const block *all = x->blocks.at;
    for (uint32_t i = 0; i < n && w->fine;) {
        uint32_t label = all[i].label, run = 1;
        if (few < DS_FEW || label % (DS_FEW - 1) == 0) {
            uint32_t column = few < DS_FEW ? label : label ? w->n_columns - 1 : 0;
            what(w, x, &all[i++], column);
            continue;
        }
        while (i + run < n && all[i + run].label == label) run++;
        uint32_t other = 0; /* the same of the other one, where they have as many turns */
        while (i + run + other < n && all[i + run + other].label == DS_FEW - 1 - label) other++;
        bool alike = w->t->turns[DS_SECOND] == w->t->turns[DS_THIRD];
        if (alike && other > run) other = run;
        if (!other || (alike && other != run)) return refuse(w, "updates in another order");
        for (uint32_t k = 1; k + 1 < w->n_columns && w->fine; k++) {
            uint32_t column = label == DS_SECOND ? k : w->n_columns - 1 - k;
            bool first = ds_template__chunk(w->t, column, w->n_columns, w->turns) == label;
            const block *own = first ? all + i : all + i + run;
            for (uint32_t q = 0; q < (first ? run : other) && w->fine; q++)
                what(w, x, &own[q], column);
        }
        i += run + other;
    }
    return w->fine;
}

bool ds_template__tail(ds_template *t, const ds_stretch *to, ds_part *out) {
    const ds_part *from = &t->s.parts[t->s.n_parts - 1];
    const ds_body *body = from->body;
    writer w = {.t = t,
                .from = from,
                .shape = &t->shapes[t->s.n_parts - 1],
                .out = out->body,
                .turns = to->turns,
                .n_columns = to->s->n_chunks,
                .twin = DS_NONE,
                .fine = true};
    tail x = {.to = to, .part = out};
    int64_t old_m = t->s.m;
    t->s.m = to->s->m; /* which ds_compose__n_each looks at */
    w.base = ds_xcalloc((size_t)w.n_columns * body->units.n + 1, sizeof *w.base);
    w.new_free = ds_xcalloc((size_t)body->frees.n + 1, sizeof *w.new_free);
    if (find_blocks(&w, &x) && each_block(&w, &x, count_block)) each_block(&w, &x, put_block);
    out->body->n_classes = out->classes.n;
    t->s.m = old_m;
    end_writing(&w);
    free(x.blocks.at);
    ds_map_deinit(&x.place_of);
    return w.fine;
}
