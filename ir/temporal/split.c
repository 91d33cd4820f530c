/* Statements cut where their conditions change, for programs that have no nest otherwise: each part
 * becomes a statement, so that parts of one statement may stand in different loops. In one dim,
 * parts that recur run in one direction.
 *
 * A read of a statement of several parts becomes one read a part, where the read meets the part:
 *
 *     s reads q{at:end}  becomes, for the part q' with the points lo .. hi-1 of the dim,
 *     s reads q'{max(at, lo):min(end, hi)}  where  at < hi and end > lo
 *
 * (of a point e: e where lo <= e < hi). Conditions of such reads cut no loop, but parts may be cut
 * at them in turn: a read that the statement has, the part may lack. */
#include "ir/temporal/internal.h"

#include <string.h>

#define MOST_PARTS 512u

typedef struct part {
    uint32_t origin; /* statement of the program that is split */
    ds_temporal__box box;
    const bool *active; /* of the origin's reads */
} part;

typedef struct parts {
    part *at;
    uint32_t n, cap;
} parts;

typedef struct splitter {
    const ds_temporal_program *program;
    const ds_temporal__parts *before; /* the program is itself made of parts; NULL: it is not */
    ds_arena *arena;
    parts parts;
} splitter;

static ds_temporal__box domain_of(const splitter *s, uint32_t statement) {
    if (s->before) return s->before->domain[statement];
    return ds_temporal__domain(s->program, statement);
}

/* ---- parts ---- */

static bool cut(splitter *s, parts *all, uint32_t statement, uint32_t read) {
    const ds_temporal_statement *of = &s->program->statements[statement];
    ds_temporal__box domain = domain_of(s, statement);
    ds_temporal__boxes where = {0};
    if (!ds_temporal__where(of->reads[read].when, &domain, s->arena, &where)) return false;
    parts next = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        ds_temporal__boxes rest = {0};
        part one = all->at[i];
        bool *active = DS_NEW_N(s->arena, bool, of->n_reads + 1);
        memcpy(active, one.active, of->n_reads * sizeof *active);
        active[read] = true;
        ds_temporal__boxes_minus(&one.box, &where, s->arena, &rest);
        ds_temporal__boxes_join(&rest);
        for (uint32_t j = 0; j < rest.n; j++) {
            one.box = rest.at[j];
            DS_PUSH(s->arena, &next, one);
        }
        one.active = active;
        for (uint32_t j = 0; j < where.n; j++)
            if (ds_temporal__box_meet(&all->at[i].box, &where.at[j], &one.box))
                DS_PUSH(s->arena, &next, one);
    }
    *all = next;
    return all->n <= MOST_PARTS;
}

static bool add_parts(splitter *s, uint32_t statement) {
    const ds_temporal_statement *of = &s->program->statements[statement];
    bool *active = DS_NEW_N(s->arena, bool, of->n_reads + 1);
    for (uint32_t r = 0; r < of->n_reads; r++) active[r] = !of->reads[r].when;
    parts all = {0};
    part whole = {statement, domain_of(s, statement), active};
    DS_PUSH(s->arena, &all, whole);
    for (uint32_t r = 0; r < of->n_reads; r++)
        if (of->reads[r].when && !cut(s, &all, statement, r)) return false;
    for (uint32_t i = 0; i < all.n; i++) DS_PUSH(s->arena, &s->parts, all.at[i]);
    return s->parts.n <= MOST_PARTS;
}

/* ---- reads ---- */

static const ds_temporal_expr *op(const splitter *s, ds_temporal_kind kind,
                                  const ds_temporal_expr *a, const ds_temporal_expr *b) {
    return ds_temporal_op(s->arena, kind, a, b);
}

static const ds_temporal_expr *both(const splitter *s, const ds_temporal_expr *a,
                                    const ds_temporal_expr *b) {
    return a ? op(s, DS_TEMPORAL_AND, a, b) : b;
}

/* The read of a part: clipped to the part's box, and only where it meets the box. */
static ds_temporal_read read_of_part(const splitter *s, const ds_temporal_read *read,
                                     uint32_t source) {
    const part *from = &s->parts.at[source];
    uint32_t dims = s->program->statements[from->origin].dims;
    ds_temporal__box domain = domain_of(s, from->origin);
    ds_temporal_read made = *read;
    made.source = source;
    made.when = NULL; /* the reader's part says so */
    made.joined = 1;
    for (uint32_t d = 0; d < s->program->n_dims; d++) {
        if (!(dims >> d & 1)) continue;
        if (from->box.lo[d] == domain.lo[d] && from->box.hi[d] == domain.hi[d]) continue;
        const ds_temporal_expr *lo = ds_temporal_const(s->arena, from->box.lo[d]);
        const ds_temporal_expr *hi = ds_temporal_const(s->arena, from->box.hi[d]);
        const ds_temporal_expr *at = read->index[d].at, *end = read->index[d].end;
        const ds_temporal_expr *below = op(s, DS_TEMPORAL_LT, at, hi);
        const ds_temporal_expr *above =
            end ? op(s, DS_TEMPORAL_LT, lo, end) : op(s, DS_TEMPORAL_LE, lo, at);
        made.when = both(s, both(s, made.when, below), above);
        if (!end) continue;
        made.index[d].at = op(s, DS_TEMPORAL_MAX, at, lo);
        made.index[d].end = op(s, DS_TEMPORAL_MIN, end, hi);
    }
    return made;
}

static void add_reads(splitter *s, uint32_t reader, ds_temporal_statement *out) {
    const part *to = &s->parts.at[reader];
    const ds_temporal_statement *of = &s->program->statements[to->origin];
    struct {
        ds_temporal_read *at;
        uint32_t n, cap;
    } reads = {0};
    *out = *of;
    for (uint32_t r = 0; r < of->n_reads; r++)
        for (uint32_t k = 0; k < s->parts.n && to->active[r]; k++)
            if (s->parts.at[k].origin == of->reads[r].source) {
                ds_temporal_read made = read_of_part(s, &of->reads[r], k);
                DS_PUSH(s->arena, &reads, made);
            }
    out->reads = reads.at;
    out->n_reads = reads.n;
}

bool ds_temporal__split(const ds_temporal_program *program, const ds_temporal__parts *before,
                        ds_arena *arena, ds_temporal__parts *out) {
    splitter s = {.program = program, .before = before, .arena = arena};
    for (uint32_t i = 0; i < program->n; i++)
        if (!add_parts(&s, i)) return false;
    uint32_t n = s.parts.n;
    if (n == program->n) return false;
    ds_temporal_statement *statements = DS_NEW_N(arena, ds_temporal_statement, n + 1);
    *out = (ds_temporal__parts){.program = *program,
                                .origin = DS_NEW_N(arena, uint32_t, n + 1),
                                .active = DS_NEW_N(arena, const bool *, n + 1),
                                .domain = DS_NEW_N(arena, ds_temporal__box, n + 1)};
    for (uint32_t i = 0; i < n; i++) {
        const part *at = &s.parts.at[i];
        add_reads(&s, i, &statements[i]);
        out->origin[i] = before ? before->origin[at->origin] : at->origin;
        out->active[i] = before ? before->active[at->origin] : at->active;
        out->domain[i] = at->box;
    }
    out->program.statements = statements;
    out->program.n = n;
    return true;
}

/* ---- back ---- */

void ds_temporal__unite(const ds_temporal__parts *from, ds_temporal_node *nodes, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].kind == DS_TEMPORAL_LOOP) {
            ds_temporal__unite(from, nodes[i].body, nodes[i].n_body);
            continue;
        }
        if (nodes[i].kind == DS_TEMPORAL_RUN) nodes[i].active = from->active[nodes[i].statement];
        nodes[i].statement = from->origin[nodes[i].statement];
    }
}
