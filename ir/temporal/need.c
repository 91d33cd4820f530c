/* The points that run: a set of boxes a statement, guessed, trimmed and checked (temporal.h). */
#include "ir/temporal/internal.h"

#define WIDEN_AFTER 3u   /* a set that grew this often grows to the end of its dim */
#define GIVE_UP     40u  /* … and this often, to its domain */
#define BOXES       128u /* of a statement, before the set is its domain */
#define TRIMS       16u

typedef struct maker {
    const ds_temporal_program *program;
    ds_arena *arena;
    bool exact;
    ds_temporal__boxes **where;  /* [n][n_reads]: where the read holds */
    ds_temporal__boxes *set;     /* [n] */
    ds_temporal__boxes *pending; /* [n] */
    uint32_t *grown;             /* [n]: how often */
    ds_temporal__box *last;      /* [n]: what the set grew by last, as one box */
} maker;

/* ---- the points that a read meets from a box ---- */

/* Does e move by at most one when its dim moves by one? */
static bool is_gentle(const ds_temporal_expr *e) {
    ds_temporal__form form;
    if (ds_temporal__form_of(e, &form)) {
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
            if (form.k[d] < -1 || form.k[d] > 1) return false;
        return true;
    }
    return (e->kind == DS_TEMPORAL_MIN || e->kind == DS_TEMPORAL_MAX) && is_gentle(e->a) &&
           is_gentle(e->b);
}

static uint32_t moving(const ds_temporal_expr *e, const ds_temporal__box *box) {
    uint32_t dims = ds_temporal__mentions(e);
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
        if (box->hi[d] - box->lo[d] <= 1) dims &= ~(1u << d);
    return dims;
}

/* Is the union of [at, end) over the box one range, from the least `at` to the greatest `end`? */
static bool is_one_range(const ds_temporal_index *index, const ds_temporal__box *box) {
    if (!is_gentle(index->at)) return false;
    if (!index->end) return true;
    if (!is_gentle(index->end)) return false;
    if (!moving(index->at, box) || !moving(index->end, box)) return true;
    ds_temporal_expr size = {.kind = DS_TEMPORAL_SUB, .a = index->end, .b = index->at};
    ds_temporal__form zero = {0};
    return ds_temporal__span_of(&size, &zero, box).lo >= 1;
}

static bool image(maker *m, const ds_temporal_read *read, const ds_temporal__box *box,
                  ds_temporal__box *out) {
    uint32_t dims = m->program->statements[read->source].dims, taken = 0;
    ds_temporal__box domain = ds_temporal__domain(m->program, read->source), all = domain;
    ds_temporal__form zero = {0};
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        if (!(dims >> d & 1)) continue;
        const ds_temporal_index *index = &read->index[d];
        uint32_t moves = moving(index->at, box) | (index->end ? moving(index->end, box) : 0);
        /* Two dims that move together leave a diagonal, and a bend a gap. */
        if ((moves & taken) || (moves && !is_one_range(index, box))) m->exact = false;
        taken |= moves;
        all.lo[d] = ds_temporal__span_of(index->at, &zero, box).lo;
        all.hi[d] = index->end ? ds_temporal__span_of(index->end, &zero, box).hi
                               : ds_temporal__span_of(index->at, &zero, box).hi + 1;
    }
    return ds_temporal__box_meet(&all, &domain, out);
}

/* to[q] += the points of q that s reads from a box. */
static void send(maker *m, uint32_t s, const ds_temporal__box *box, ds_temporal__boxes *to) {
    const ds_temporal_statement *reader = &m->program->statements[s];
    for (uint32_t r = 0; r < reader->n_reads; r++) {
        const ds_temporal__boxes *where = &m->where[s][r];
        uint32_t q = reader->reads[r].source;
        if (reader->reads[r].order) continue;
        for (uint32_t i = 0; i < where->n; i++) {
            ds_temporal__box part, met;
            if (!ds_temporal__box_meet(box, &where->at[i], &part)) continue;
            if (image(m, &reader->reads[r], &part, &met))
                ds_temporal__boxes_minus(&met, &to[q], m->arena, &to[q]);
        }
    }
}

/* ---- the guess ---- */

static ds_temporal__box hull(const ds_temporal__boxes *boxes) {
    ds_temporal__box all = boxes->at[0];
    for (uint32_t i = 1; i < boxes->n; i++)
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
            if (boxes->at[i].lo[d] < all.lo[d]) all.lo[d] = boxes->at[i].lo[d];
            if (boxes->at[i].hi[d] > all.hi[d]) all.hi[d] = boxes->at[i].hi[d];
        }
    return all;
}

static ds_temporal__boxes less_set(maker *m, const ds_temporal__boxes *boxes, uint32_t s) {
    ds_temporal__boxes rest = {0};
    for (uint32_t i = 0; i < boxes->n; i++) {
        ds_temporal__boxes part = {0};
        ds_temporal__boxes_minus(&boxes->at[i], &m->set[s], m->arena, &part);
        for (uint32_t j = 0; j < part.n; j++)
            ds_temporal__boxes_minus(&part.at[j], &rest, m->arena, &rest);
    }
    return rest;
}

/* What the set of s grows by: the pending boxes, continued to the end of the dims along which the
 * set has been growing. */
static ds_temporal__boxes growth(maker *m, uint32_t s) {
    ds_temporal__boxes fresh = less_set(m, &m->pending[s], s);
    m->pending[s].n = 0;
    if (fresh.n == 0) return fresh;
    ds_temporal__box domain = ds_temporal__domain(m->program, s);
    if (++m->grown[s] > GIVE_UP || m->set[s].n > BOXES) {
        ds_temporal__boxes all = {0};
        DS_PUSH(m->arena, &all, domain);
        return less_set(m, &all, s);
    }
    ds_temporal__box grew = hull(&fresh);
    if (m->grown[s] > WIDEN_AFTER) {
        for (uint32_t i = 0; i < fresh.n; i++)
            for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
                if (grew.lo[d] < m->last[s].lo[d]) fresh.at[i].lo[d] = domain.lo[d];
                if (grew.hi[d] > m->last[s].hi[d]) fresh.at[i].hi[d] = domain.hi[d];
            }
        fresh = less_set(m, &fresh, s);
    }
    m->last[s] = grew;
    return fresh;
}

static bool guess_once(maker *m) {
    for (uint32_t s = m->program->n; s-- > 0;) {
        if (m->pending[s].n == 0) continue;
        ds_temporal__boxes fresh = growth(m, s);
        for (uint32_t i = 0; i < fresh.n; i++) DS_PUSH(m->arena, &m->set[s], fresh.at[i]);
        for (uint32_t i = 0; i < fresh.n; i++) send(m, s, &fresh.at[i], m->pending);
        return true;
    }
    return false;
}

static void push_kept(maker *m, ds_temporal__boxes *to) {
    for (uint32_t s = 0; s < m->program->n; s++) {
        ds_temporal__box domain = ds_temporal__domain(m->program, s);
        if (m->program->statements[s].kept && !ds_temporal__box_empty(&domain))
            DS_PUSH(m->arena, &to[s], domain);
    }
}

/* One application of need to the guess; true if the guess stays. */
static bool trim(maker *m) {
    uint32_t n = m->program->n;
    ds_temporal__boxes *next = DS_NEW_N(m->arena, ds_temporal__boxes, n + 1);
    push_kept(m, next);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t i = 0; i < m->set[s].n; i++) send(m, s, &m->set[s].at[i], next);
    bool stays = true;
    for (uint32_t s = 0; s < n; s++) {
        ds_temporal__boxes_join(&next[s]);
        stays = stays && ds_temporal__boxes_equal(&next[s], &m->set[s], m->arena);
    }
    m->set = next;
    return stays;
}

/* ---- the count, for small programs ---- */

static void boxes_of_points(const ds_temporal__points *points, const uint8_t *needed, uint32_t s,
                            ds_arena *arena, ds_temporal__boxes *out) {
    uint32_t last = 0;
    for (uint32_t d = 0; d < points->program->n_dims; d++)
        if (points->program->statements[s].dims >> d & 1) last = d;
    for (int64_t i = points->base[s]; i < points->base[s + 1]; i++) {
        if (!needed[i]) continue;
        uint32_t statement;
        ds_temporal__box one;
        ds_temporal__point_at(points, i, &statement, one.lo);
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) one.hi[d] = one.lo[d] + 1;
        ds_temporal__box *before = out->n ? &out->at[out->n - 1] : NULL;
        bool follows = before && i > points->base[s] && needed[i - 1] && one.lo[last] > 0 &&
                       before->hi[last] == one.lo[last];
        for (uint32_t d = 0; d < last && follows; d++) follows = before->lo[d] == one.lo[d];
        if (follows)
            before->hi[last]++;
        else
            DS_PUSH(arena, out, one);
    }
    ds_temporal__boxes_join(out);
}

static bool count(maker *m) {
    ds_temporal__points points;
    if (!ds_temporal__points_init(m->program, m->arena, DS_TEMPORAL__COUNT, &points)) return false;
    const uint8_t *needed = ds_temporal__need_points(&points, m->arena);
    for (uint32_t s = 0; s < m->program->n; s++) {
        m->set[s] = (ds_temporal__boxes){0};
        boxes_of_points(&points, needed, s, m->arena, &m->set[s]);
    }
    return true;
}

ds_temporal__boxes *ds_temporal__need(const ds_temporal_program *program, ds_arena *arena,
                                      bool *exact) {
    uint32_t n = program->n;
    maker m = {.program = program, .arena = arena, .exact = true};
    m.where = DS_NEW_N(arena, ds_temporal__boxes *, n + 1);
    m.set = DS_NEW_N(arena, ds_temporal__boxes, n + 1);
    m.pending = DS_NEW_N(arena, ds_temporal__boxes, n + 1);
    m.grown = DS_NEW_N(arena, uint32_t, n + 1);
    m.last = DS_NEW_N(arena, ds_temporal__box, n + 1);
    for (uint32_t s = 0; s < n; s++) {
        const ds_temporal_statement *reader = &program->statements[s];
        ds_temporal__box domain = ds_temporal__domain(program, s);
        m.where[s] = DS_NEW_N(arena, ds_temporal__boxes, reader->n_reads + 1);
        for (uint32_t r = 0; r < reader->n_reads; r++)
            if (!ds_temporal__where(reader->reads[r].when, &domain, arena, &m.where[s][r]))
                m.exact = false;
    }
    bool conditions = m.exact;
    push_kept(&m, m.pending);
    while (guess_once(&m)) {
    }
    bool stays = false;
    for (uint32_t i = 0; i < TRIMS && !stays; i++) {
        m.exact = conditions;
        stays = trim(&m);
    }
    *exact = (stays && m.exact) || count(&m);
    return m.set;
}
