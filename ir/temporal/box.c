/* Sets of points as disjoint boxes. */
#include "ir/temporal/internal.h"

ds_temporal__box ds_temporal__domain(const ds_temporal_program *program, uint32_t statement) {
    const ds_temporal_statement *s = &program->statements[statement];
    const ds_temporal_range *ranges = s->ranges ? s->ranges : program->dims;
    ds_temporal__box box;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        bool has = (s->dims >> d & 1) != 0;
        box.lo[d] = has ? ranges[d].lo : 0;
        box.hi[d] = has ? ranges[d].hi : 1;
    }
    return box;
}

bool ds_temporal__box_empty(const ds_temporal__box *box) {
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
        if (box->lo[d] >= box->hi[d]) return true;
    return false;
}

int64_t ds_temporal__box_points(const ds_temporal__box *box) {
    if (ds_temporal__box_empty(box)) return 0;
    int64_t points = 1;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
        if (__builtin_mul_overflow(points, box->hi[d] - box->lo[d], &points)) return INT64_MAX;
    return points;
}

bool ds_temporal__box_next(const ds_temporal__box *box, int64_t *point) {
    for (uint32_t d = DS_TEMPORAL_DIMS; d-- > 0;) {
        if (++point[d] < box->hi[d]) return true;
        point[d] = box->lo[d];
    }
    return false;
}

bool ds_temporal__box_meet(const ds_temporal__box *a, const ds_temporal__box *b,
                           ds_temporal__box *out) {
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        int64_t lo = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        int64_t hi = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
        if (lo >= hi) return false;
        out->lo[d] = lo;
        out->hi[d] = hi;
    }
    return true;
}

void ds_temporal__box_minus(const ds_temporal__box *a, const ds_temporal__box *b, ds_arena *arena,
                            ds_temporal__boxes *out) {
    ds_temporal__box common, rest = *a;
    if (ds_temporal__box_empty(a)) return;
    if (!ds_temporal__box_meet(a, b, &common)) {
        DS_PUSH(arena, out, *a);
        return;
    }
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        ds_temporal__box side = rest;
        if (rest.lo[d] < common.lo[d]) {
            side.hi[d] = common.lo[d];
            DS_PUSH(arena, out, side);
        }
        side = rest;
        if (common.hi[d] < rest.hi[d]) {
            side.lo[d] = common.hi[d];
            DS_PUSH(arena, out, side);
        }
        rest.lo[d] = common.lo[d];
        rest.hi[d] = common.hi[d];
    }
}

void ds_temporal__boxes_minus(const ds_temporal__box *a, const ds_temporal__boxes *b,
                              ds_arena *arena, ds_temporal__boxes *out) {
    ds_temporal__boxes left = {0};
    if (!ds_temporal__box_empty(a)) DS_PUSH(arena, &left, *a);
    for (uint32_t i = 0; i < b->n && left.n > 0; i++) {
        ds_temporal__box common;
        bool meets = false;
        for (uint32_t j = 0; j < left.n && !meets; j++)
            meets = ds_temporal__box_meet(&left.at[j], &b->at[i], &common);
        if (!meets) continue;
        ds_temporal__boxes next = {0};
        for (uint32_t j = 0; j < left.n; j++)
            ds_temporal__box_minus(&left.at[j], &b->at[i], arena, &next);
        left = next;
    }
    for (uint32_t j = 0; j < left.n; j++) DS_PUSH(arena, out, left.at[j]);
}

static bool contains(const ds_temporal__boxes *a, const ds_temporal__boxes *b, ds_arena *arena) {
    for (uint32_t i = 0; i < b->n; i++) {
        ds_temporal__boxes rest = {0};
        ds_temporal__boxes_minus(&b->at[i], a, arena, &rest);
        if (rest.n > 0) return false;
    }
    return true;
}

bool ds_temporal__boxes_equal(const ds_temporal__boxes *a, const ds_temporal__boxes *b,
                              ds_arena *arena) {
    return contains(a, b, arena) && contains(b, a, arena);
}

bool ds_temporal__box_join(ds_temporal__box *a, const ds_temporal__box *b) {
    uint32_t other = DS_TEMPORAL_DIMS;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        if (a->lo[d] == b->lo[d] && a->hi[d] == b->hi[d]) continue;
        if (other < DS_TEMPORAL_DIMS) return false;
        other = d;
    }
    if (other == DS_TEMPORAL_DIMS) return true;
    if (a->hi[other] == b->lo[other])
        a->hi[other] = b->hi[other];
    else if (b->hi[other] == a->lo[other])
        a->lo[other] = b->lo[other];
    else
        return false;
    return true;
}

void ds_temporal__boxes_join(ds_temporal__boxes *boxes) {
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < boxes->n; i++)
            for (uint32_t j = i + 1; j < boxes->n;)
                if (ds_temporal__box_join(&boxes->at[i], &boxes->at[j])) {
                    boxes->at[j] = boxes->at[--boxes->n];
                    again = true;
                } else {
                    j++;
                }
    }
}

/* ---- conditions ---- */

/* The points of the box with (form over one dim) `kind` 0. */
static void where_one_dim(ds_temporal_kind kind, const ds_temporal__form *form, uint32_t dim,
                          const ds_temporal__box *box, ds_arena *arena, ds_temporal__boxes *out) {
    int64_t k = form->k[dim], c = form->c;
    ds_temporal__box part = *box;
    if (kind == DS_TEMPORAL_LT || kind == DS_TEMPORAL_LE) {
        int64_t rhs = kind == DS_TEMPORAL_LT ? -c - 1 : -c; /* k x <= rhs */
        int64_t q = rhs / k;
        if (k > 0) {
            if (q * k > rhs) q--;
            if (q + 1 < part.hi[dim]) part.hi[dim] = q + 1;
        } else { /* x >= ceil(rhs / k) */
            if (q * k > rhs) q++;
            if (q > part.lo[dim]) part.lo[dim] = q;
        }
        if (!ds_temporal__box_empty(&part)) DS_PUSH(arena, out, part);
        return;
    }
    int64_t x = -c / k;
    bool whole = x * k == -c;
    part.lo[dim] = x;
    part.hi[dim] = x + 1;
    ds_temporal__box common;
    if (kind == DS_TEMPORAL_EQ) {
        if (whole && ds_temporal__box_meet(box, &part, &common)) DS_PUSH(arena, out, common);
    } else if (whole) {
        ds_temporal__box_minus(box, &part, arena, out);
    } else {
        DS_PUSH(arena, out, *box);
    }
}

/* Counts the points of a small box, and joins runs of them. */
static bool where_counted(const ds_temporal_expr *when, const ds_temporal__box *box,
                          ds_arena *arena, ds_temporal__boxes *out) {
    uint32_t mentions = ds_temporal__mentions(when), last = 0;
    ds_temporal__box small = *box;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        if (mentions >> d & 1)
            last = d;
        else
            small.hi[d] = small.lo[d] + 1;
    }
    if (ds_temporal__box_points(&small) > DS_TEMPORAL__COUNT) {
        DS_PUSH(arena, out, *box);
        return false;
    }
    ds_temporal__boxes found = {0};
    int64_t point[DS_TEMPORAL_DIMS];
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) point[d] = small.lo[d];
    do {
        if (!ds_temporal_eval(when, point)) continue;
        ds_temporal__box one = *box;
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
            if (mentions >> d & 1) one.lo[d] = point[d], one.hi[d] = point[d] + 1;
        if (found.n == 0 || point[last] == small.lo[last] ||
            !ds_temporal__box_join(&found.at[found.n - 1], &one))
            DS_PUSH(arena, &found, one);
    } while (ds_temporal__box_next(&small, point));
    ds_temporal__boxes_join(&found);
    for (uint32_t i = 0; i < found.n; i++) DS_PUSH(arena, out, found.at[i]);
    return true;
}

static bool where_compared(const ds_temporal_expr *when, const ds_temporal__box *box,
                           ds_arena *arena, ds_temporal__boxes *out) {
    ds_temporal_expr difference = {.kind = DS_TEMPORAL_SUB, .a = when->a, .b = when->b};
    ds_temporal__form form;
    if (!ds_temporal__form_of(&difference, &form)) return where_counted(when, box, arena, out);
    uint32_t dim = DS_TEMPORAL_DIMS, n = 0;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
        if (form.k[d] != 0) dim = d, n++;
    if (n > 1) return where_counted(when, box, arena, out);
    if (n == 1) {
        where_one_dim(when->kind, &form, dim, box, arena, out);
    } else {
        bool holds = when->kind == DS_TEMPORAL_LT   ? form.c < 0
                     : when->kind == DS_TEMPORAL_LE ? form.c <= 0
                     : when->kind == DS_TEMPORAL_EQ ? form.c == 0
                                                    : form.c != 0;
        if (holds) DS_PUSH(arena, out, *box);
    }
    return true;
}

bool ds_temporal__where(const ds_temporal_expr *when, const ds_temporal__box *box, ds_arena *arena,
                        ds_temporal__boxes *out) {
    if (ds_temporal__box_empty(box)) return true;
    if (!when) {
        DS_PUSH(arena, out, *box);
        return true;
    }
    ds_temporal__boxes a = {0}, found = {0};
    bool known = true;
    switch (when->kind) {
    case DS_TEMPORAL_LT:
    case DS_TEMPORAL_LE:
    case DS_TEMPORAL_EQ:
    case DS_TEMPORAL_NE:
        return where_compared(when, box, arena, out);
    case DS_TEMPORAL_AND:
        known = ds_temporal__where(when->a, box, arena, &a);
        for (uint32_t i = 0; i < a.n && known; i++)
            known = ds_temporal__where(when->b, &a.at[i], arena, &found);
        break;
    case DS_TEMPORAL_OR:
        known = ds_temporal__where(when->a, box, arena, &found);
        ds_temporal__boxes_minus(box, &found, arena, &a);
        for (uint32_t i = 0, n = a.n; i < n && known; i++)
            known = ds_temporal__where(when->b, &a.at[i], arena, &found);
        break;
    case DS_TEMPORAL_NOT:
        known = ds_temporal__where(when->a, box, arena, &a);
        ds_temporal__boxes_minus(box, &a, arena, &found);
        break;
    default:
        return where_counted(when, box, arena, out);
    }
    if (!known) {
        DS_PUSH(arena, out, *box);
        return false;
    }
    for (uint32_t i = 0; i < found.n; i++) DS_PUSH(arena, out, found.at[i]);
    return true;
}
