/* Shared by the files of ir/temporal: affine forms, boxes, edges. Not a public header. */
#ifndef DS_TEMPORAL_INTERNAL_H
#define DS_TEMPORAL_INTERNAL_H

#include "ir/temporal/temporal.h"

#define DS_TEMPORAL__POINTS (1 << 20) /* searched at most, for a cycle or an order */
#define DS_TEMPORAL__COUNT  4096      /* counted at most, where boxes do not suffice */

/* lo <= p < hi in every dim; dims that are not in use have 0 and 1. */
typedef struct ds_temporal__box {
    int64_t lo[DS_TEMPORAL_DIMS], hi[DS_TEMPORAL_DIMS];
} ds_temporal__box;

typedef struct ds_temporal__boxes { /* disjoint */
    ds_temporal__box *at;
    uint32_t n, cap;
} ds_temporal__boxes;

/* c + sum of k[d]*p_d */
typedef struct ds_temporal__form {
    int64_t c, k[DS_TEMPORAL_DIMS];
} ds_temporal__form;

typedef struct ds_temporal__span { /* lo <= x <= hi */
    int64_t lo, hi;
} ds_temporal__span;

/* ---- expr.c ---- */

/* Is e affine? */
bool ds_temporal__form_of(const ds_temporal_expr *e, ds_temporal__form *out);
/* Bounds of e + plus over a box; exact where e is affine or a minimum or maximum of affine forms of
 * one dim. */
ds_temporal__span ds_temporal__span_of(const ds_temporal_expr *e, const ds_temporal__form *plus,
                                       const ds_temporal__box *box);
/* A bit a dim that e mentions. */
uint32_t ds_temporal__mentions(const ds_temporal_expr *e);

/* ---- box.c ---- */

ds_temporal__box ds_temporal__domain(const ds_temporal_program *program, uint32_t statement);
bool ds_temporal__box_empty(const ds_temporal__box *box);
int64_t ds_temporal__box_points(const ds_temporal__box *box); /* saturates at INT64_MAX */
/* The next point of the box in lexicographic order; false after the last. */
bool ds_temporal__box_next(const ds_temporal__box *box, int64_t *point);
bool ds_temporal__box_meet(const ds_temporal__box *a, const ds_temporal__box *b,
                           ds_temporal__box *out);
/* out += a - b, in disjoint boxes. */
void ds_temporal__box_minus(const ds_temporal__box *a, const ds_temporal__box *b, ds_arena *arena,
                            ds_temporal__boxes *out);
/* out += a - all of b. */
void ds_temporal__boxes_minus(const ds_temporal__box *a, const ds_temporal__boxes *b,
                              ds_arena *arena, ds_temporal__boxes *out);
bool ds_temporal__boxes_equal(const ds_temporal__boxes *a, const ds_temporal__boxes *b,
                              ds_arena *arena);
/* a becomes both: boxes that differ in one dim at most, where one ends as the other begins. */
bool ds_temporal__box_join(ds_temporal__box *a, const ds_temporal__box *b);
/* Joins boxes that share a face. */
void ds_temporal__boxes_join(ds_temporal__boxes *boxes);
/* out += the points of the box where `when` holds (NULL: all). False if the set is no union of
 * boxes and too large to count; *out is then the whole box. */
bool ds_temporal__where(const ds_temporal_expr *when, const ds_temporal__box *box, ds_arena *arena,
                        ds_temporal__boxes *out);

/* ---- need.c ---- */

/* [n]: the points of every statement that run. *exact: none too many. */
ds_temporal__boxes *ds_temporal__need(const ds_temporal_program *program, ds_arena *arena,
                                      bool *exact);

/* ---- walk.c: programs point by point ---- */

typedef struct ds_temporal__points {
    const ds_temporal_program *program;
    int64_t *base; /* [n + 1]: number of the statement's first point */
} ds_temporal__points;

/* Numbers all points; false if there are more than `most`. */
bool ds_temporal__points_init(const ds_temporal_program *program, ds_arena *arena, int64_t most,
                              ds_temporal__points *out);
int64_t ds_temporal__point_number(const ds_temporal__points *points, uint32_t statement,
                                  const int64_t *point);
void ds_temporal__point_at(const ds_temporal__points *points, int64_t number, uint32_t *statement,
                           int64_t *point);
/* The points that a read meets at p, as a box; false if the read does not hold or is empty. */
bool ds_temporal__read_box(const ds_temporal_program *program, const ds_temporal_read *read,
                           const int64_t *p, ds_temporal__box *out);
/* [points]: 1 where needed. */
uint8_t *ds_temporal__need_points(const ds_temporal__points *points, ds_arena *arena);
/* Orders all points, or names a cycle; the schedule runs and frees needed points one by one. */
ds_status ds_temporal__unroll(const ds_temporal_program *program, ds_arena *arena,
                              ds_temporal_schedule *out, ds_error *err);

/* ---- split.c ---- */

/* A program whose statements are parts of another program's. */
typedef struct ds_temporal__parts {
    ds_temporal_program program;
    uint32_t *origin;         /* [program.n] */
    const bool **active;      /* [program.n]: of the origin's reads */
    ds_temporal__box *domain; /* [program.n] */
} ds_temporal__parts;

/* `before`: the parts that the program's statements are; NULL: they are whole. False: no statement
 * has parts, or all have too many. */
bool ds_temporal__split(const ds_temporal_program *program, const ds_temporal__parts *before,
                        ds_arena *arena, ds_temporal__parts *out);
/* Makes statements of parts again. */
void ds_temporal__unite(const ds_temporal__parts *parts, ds_temporal_node *nodes, uint32_t n);

/* ---- edge.c ---- */

/* `to` waits for `from`. Nodes 0 .. n-1 are statements, n .. 2n-1 their frees. */
typedef struct ds_temporal__edge {
    uint32_t from, to;
    const ds_temporal_read *read; /* NULL: the free of a value after the value */
    ds_temporal__boxes where;     /* in the reader's dims */
} ds_temporal__edge;

typedef struct ds_temporal__edges {
    ds_temporal__edge *at;
    uint32_t n, cap;
} ds_temporal__edges;

typedef struct ds_temporal__graph {
    const ds_temporal_program *program;
    ds_arena *arena;
    ds_temporal__edges edges;        /* of statements, then those to frees */
    const ds_temporal__parts *parts; /* NULL: statements are whole */
    bool *both_ways; /* set where parts of one statement would recur in both directions */
} ds_temporal__graph;

/* All edges; never fails: a condition that is no union of boxes counts as true. */
void ds_temporal__graph_init(const ds_temporal_program *program, const ds_temporal__parts *parts,
                             ds_arena *arena, ds_temporal__graph *out);
uint32_t ds_temporal__dims_of(const ds_temporal_program *program, uint32_t node);
/* W of temporal.h for a loop over `dim`. */
int64_t ds_temporal__lag(const ds_temporal_program *program, const ds_temporal__edge *edge,
                         uint32_t dim, int direction);
/* Keeps of edge->where the points whose lag is exactly `lag`, as far as boxes say so. */
void ds_temporal__narrow(const ds_temporal__graph *graph, ds_temporal__edge *edge, uint32_t dim,
                         int direction, int64_t lag);

/* ---- shift.c ---- */

typedef struct ds_temporal__arc { /* c[to] - c[from] >= lag */
    uint32_t from, to;
    int64_t lag;
} ds_temporal__arc;

typedef struct ds_temporal__arcs {
    ds_temporal__arc *at;
    uint32_t n, cap;
} ds_temporal__arcs;

/* The least c >= 0 of all arcs into c[n]; false if there is none (a positive cycle). O(n *
 * arcs). */
bool ds_temporal__earliest(const ds_temporal__arcs *arcs, uint32_t n, int64_t *c);
/* The c that minimises sum of weight[i] * c[i]; the weights sum to 0, and every node of negative
 * weight reaches one of positive weight. The arcs have no positive cycle. */
void ds_temporal__least(const ds_temporal__arcs *arcs, uint32_t n, const int64_t *weight,
                        ds_arena *arena, int64_t *c);

/* ---- nest.c, loops.c ---- */

/* False: no nest exists. */
bool ds_temporal__nest_make(const ds_temporal__graph *graph, ds_temporal_schedule *out);
/* Cuts a nest into loops over the needed points. */
void ds_temporal__loops_make(const ds_temporal_program *program, const ds_temporal__boxes *need,
                             ds_arena *arena, ds_temporal_schedule *out);

#endif
