/* From a nest to loops: every loop is cut where the set of statements that run changes. */
#include "ir/temporal/internal.h"

#include <stdlib.h>
#include <string.h>

/* A box of points of a statement (or of its free), and how they are reached by the loops around. */
typedef struct piece {
    uint32_t node;
    ds_temporal__box box;
    const bool *active;
    ds_temporal_place place[DS_TEMPORAL_DIMS];
} piece;

typedef struct pieces {
    piece *at;
    uint32_t n, cap;
} pieces;

typedef struct nodes {
    ds_temporal_node *at;
    uint32_t n, cap;
} nodes;

typedef struct cutter {
    const ds_temporal_program *program;
    ds_arena *arena;
    uint32_t *inside; /* [2n]: number of the last loop that was found to hold the node */
    uint32_t n_loops;
} cutter;

static void emit(cutter *c, const ds_temporal_nest *nest, uint32_t n, const pieces *of,
                 uint32_t depth, nodes *out);

/* ---- pieces ---- */

/* A flag for each read, then one for each cut. */
static uint32_t n_flags(const ds_temporal_statement *s) {
    return s->n_reads + s->n_cuts;
}

/* Cuts pieces by where one more condition holds, that of the flag. */
static void cut_by(cutter *c, pieces *all, uint32_t statement, uint32_t flag) {
    const ds_temporal_statement *s = &c->program->statements[statement];
    ds_temporal__box domain = ds_temporal__domain(c->program, statement);
    ds_temporal__boxes where = {0};
    ds_temporal__where(flag < s->n_reads ? s->reads[flag].when : s->cuts[flag - s->n_reads],
                       &domain, c->arena, &where);
    pieces next = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        ds_temporal__boxes rest = {0};
        piece part = all->at[i];
        bool *active = DS_NEW_N(c->arena, bool, n_flags(s) + 1);
        memcpy(active, all->at[i].active, n_flags(s) * sizeof *active);
        active[flag] = true;
        for (uint32_t j = 0; j < where.n; j++)
            if (ds_temporal__box_meet(&all->at[i].box, &where.at[j], &part.box)) {
                part.active = active;
                DS_PUSH(c->arena, &next, part);
            }
        ds_temporal__boxes_minus(&all->at[i].box, &where, c->arena, &rest);
        ds_temporal__boxes_join(&rest);
        for (uint32_t j = 0; j < rest.n; j++) {
            part = all->at[i];
            part.box = rest.at[j];
            DS_PUSH(c->arena, &next, part);
        }
    }
    *all = next;
}

static void pieces_of(cutter *c, uint32_t statement, const ds_temporal__boxes *need, pieces *out) {
    const ds_temporal_statement *s = &c->program->statements[statement];
    bool *active = DS_NEW_N(c->arena, bool, n_flags(s) + 1);
    for (uint32_t r = 0; r < s->n_reads; r++)
        active[r] = !s->reads[r].when || s->reads[r].joined > 0;
    pieces all = {0};
    for (uint32_t i = 0; i < need->n; i++) {
        piece whole = {.node = statement, .box = need->at[i], .active = active};
        DS_PUSH(c->arena, &all, whole);
    }
    for (uint32_t r = 0; r < s->n_reads; r++)
        if (s->reads[r].when && !s->reads[r].joined) cut_by(c, &all, statement, r);
    for (uint32_t k = 0; k < s->n_cuts; k++) cut_by(c, &all, statement, s->n_reads + k);
    for (uint32_t i = 0; i < all.n; i++) DS_PUSH(c->arena, out, all.at[i]);
    for (uint32_t i = 0; i < need->n && !s->kept && !c->program->unfreed; i++) {
        piece freed = {.node = c->program->n + statement, .box = need->at[i]};
        DS_PUSH(c->arena, out, freed);
    }
}

/* ---- loops ---- */

static void mark(cutter *c, const ds_temporal_nest *nest, uint32_t n, uint32_t loop) {
    for (uint32_t i = 0; i < n; i++) {
        if (nest[i].loop)
            mark(c, nest[i].body, nest[i].n_body, loop);
        else
            c->inside[nest[i].statement + (nest[i].free ? c->program->n : 0)] = loop;
    }
}

/* The variable's range lo <= v < hi of a piece, and p - v. */
static void turns_of(const cutter *c, const ds_temporal_nest *nest, const piece *p, int64_t *lo,
                     int64_t *hi, int64_t *offset) {
    int64_t shift = nest->direction * nest->shift[p->node];
    *offset = -shift;
    if (ds_temporal__dims_of(c->program, p->node) >> nest->dim & 1) {
        *lo = p->box.lo[nest->dim] + shift;
        *hi = p->box.hi[nest->dim] + shift;
    } else {
        *lo = shift;
        *hi = shift + 1;
    }
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Frees alone in a loop are one free of a range. */
static bool free_ranges(nodes *body, uint32_t depth, int64_t lo, int64_t hi) {
    for (uint32_t i = 0; i < body->n; i++)
        if (body->at[i].kind != DS_TEMPORAL_FREE) return false;
    for (uint32_t i = 0; i < body->n; i++)
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
            ds_temporal_place *place = &body->at[i].place[d];
            if (place->loop == depth)
                *place = (ds_temporal_place){DS_TEMPORAL_NO_LOOP, lo + place->offset, hi - lo};
        }
    return true;
}

static bool is_alike(const cutter *c, const piece *a, const piece *b) {
    if (a->node != b->node || memcmp(a->place, b->place, sizeof a->place) != 0) return false;
    if (a->node >= c->program->n) return true;
    size_t n = n_flags(&c->program->statements[a->node]);
    return memcmp(a->active, b->active, n * sizeof *a->active) == 0;
}

/* Pieces that other turns tell apart are one in these turns. */
static void join_pieces(const cutter *c, pieces *now) {
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < now->n; i++)
            for (uint32_t j = i + 1; j < now->n;)
                if (is_alike(c, &now->at[i], &now->at[j]) &&
                    ds_temporal__box_join(&now->at[i].box, &now->at[j].box)) {
                    now->at[j] = now->at[--now->n];
                    again = true;
                } else {
                    j++;
                }
    }
}

/* The turns lo <= v < hi, through all of which the same pieces run; `alone`: one turn, no loop. */
static void emit_part(cutter *c, const ds_temporal_nest *nest, const pieces *of, uint32_t depth,
                      const int64_t turns[2], bool alone, nodes *out) {
    pieces now = {0};
    int64_t lo = turns[0], hi = turns[1];
    for (uint32_t i = 0; i < of->n; i++) {
        int64_t from, to, offset;
        turns_of(c, nest, &of->at[i], &from, &to, &offset);
        if (from > lo || to < hi) continue;
        piece p = of->at[i];
        if (ds_temporal__dims_of(c->program, p.node) >> nest->dim & 1)
            p.place[nest->dim] = alone ? (ds_temporal_place){DS_TEMPORAL_NO_LOOP, lo + offset, 1}
                                       : (ds_temporal_place){depth, offset, 1};
        if (p.place[nest->dim].count > 0) {
            p.box.lo[nest->dim] = lo + offset;
            p.box.hi[nest->dim] = hi + offset;
        }
        DS_PUSH(c->arena, &now, p);
    }
    if (now.n == 0) return;
    join_pieces(c, &now);
    if (alone) {
        emit(c, nest->body, nest->n_body, &now, depth, out);
        return;
    }
    nodes body = {0};
    emit(c, nest->body, nest->n_body, &now, depth + 1, &body);
    if (free_ranges(&body, depth, lo, hi)) {
        for (uint32_t i = 0; i < body.n; i++) DS_PUSH(c->arena, out, body.at[i]);
        return;
    }
    ds_temporal_node loop = {.kind = DS_TEMPORAL_LOOP,
                             .dim = nest->dim,
                             .reverse = nest->direction < 0,
                             .lo = lo,
                             .hi = hi,
                             .body = body.at,
                             .n_body = body.n};
    DS_PUSH(c->arena, out, loop);
}

static void emit_loop(cutter *c, const ds_temporal_nest *nest, const pieces *of, uint32_t depth,
                      nodes *out) {
    uint32_t loop = ++c->n_loops, n = 0;
    mark(c, nest->body, nest->n_body, loop);
    pieces mine = {0};
    for (uint32_t i = 0; i < of->n; i++)
        if (c->inside[of->at[i].node] == loop) DS_PUSH(c->arena, &mine, of->at[i]);
    int64_t *cuts = DS_NEW_N(c->arena, int64_t, 2 * mine.n + 1), offset;
    for (uint32_t i = 0; i < mine.n; i++, n += 2)
        turns_of(c, nest, &mine.at[i], &cuts[n], &cuts[n + 1], &offset);
    qsort(cuts, n, sizeof *cuts, by_value);
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < n; i++)
        if (distinct == 0 || cuts[i] != cuts[distinct - 1]) cuts[distinct++] = cuts[i];
    /* Earlier turns may stand elsewhere. */
    bool alone = distinct > 0 && nest->direction > 0 && cuts[0] > c->program->dims[nest->dim].lo;
    for (uint32_t i = 0; i + 1 < distinct; i++) {
        uint32_t k = nest->direction > 0 ? i : distinct - 2 - i;
        bool shown = alone && c->program->turns >> nest->dim & 1;
        alone = cuts[k + 1] - cuts[k] == 1 && !shown;
        emit_part(c, nest, &mine, depth, &cuts[k], alone, out);
    }
}

static void emit_leaf(cutter *c, const ds_temporal_nest *nest, const pieces *of, nodes *out) {
    uint32_t id = nest->statement + (nest->free ? c->program->n : 0);
    for (uint32_t i = 0; i < of->n; i++) {
        if (of->at[i].node != id) continue;
        ds_temporal_node leaf = {.kind = nest->free ? DS_TEMPORAL_FREE : DS_TEMPORAL_RUN,
                                 .statement = nest->statement,
                                 .active = of->at[i].active};
        memcpy(leaf.place, of->at[i].place, sizeof leaf.place);
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
            if (leaf.place[d].count == 0) /* no loop around runs over the dim: all points */
                leaf.place[d] = (ds_temporal_place){DS_TEMPORAL_NO_LOOP, of->at[i].box.lo[d],
                                                    of->at[i].box.hi[d] - of->at[i].box.lo[d]};
        DS_PUSH(c->arena, out, leaf);
    }
}

static void emit(cutter *c, const ds_temporal_nest *nest, uint32_t n, const pieces *of,
                 uint32_t depth, nodes *out) {
    for (uint32_t i = 0; i < n; i++) {
        if (nest[i].loop)
            emit_loop(c, &nest[i], of, depth, out);
        else
            emit_leaf(c, &nest[i], of, out);
    }
}

void ds_temporal__loops_make(const ds_temporal_program *program, const ds_temporal__boxes *need,
                             ds_arena *arena, ds_temporal_schedule *out) {
    cutter c = {.program = program, .arena = arena};
    c.inside = DS_NEW_N(arena, uint32_t, 2 * program->n + 1);
    pieces all = {0};
    for (uint32_t s = 0; s < program->n; s++) {
        pieces_of(&c, s, &need[s], &all);
        for (uint32_t i = 0; i < need[s].n; i++)
            out->runs += ds_temporal__box_points(&need[s].at[i]);
    }
    nodes top = {0};
    emit(&c, out->nest, out->n_nest, &all, 0, &top);
    out->nodes = top.at;
    out->n_nodes = top.n;
}
