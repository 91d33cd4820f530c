/* Shared by rec_program.c, rec_store.c and rec.c: a rec on its way to loops. */
#ifndef DS_PASSES_LOWER_REC_INTERNAL_H
#define DS_PASSES_LOWER_REC_INTERNAL_H

#include "ir/core/rec.h"
#include "ir/passes/lower/internal.h"
#include "ir/temporal/temporal.h"

#define DS_LOWER_REC_DEPTH (2u * DS_TEMPORAL_DIMS)

/* What is stored of one value for turns to come: a tensor whose dim `axis` counts points. The place
 * of point p is that of p's dims in row-major order, `dims` from major to minor; a dim with fewer
 * slots than points is a ring. With one slot in all, the value itself is what loops carry. */
typedef struct ds_lower_store {
    bool wanted;
    uint32_t axis;
    uint32_t n_dims, dims[DS_TEMPORAL_DIMS];
    int64_t slots[DS_TEMPORAL_DIMS]; /* by place in `dims` */
    bool ring[DS_TEMPORAL_DIMS];     /* likewise */
    int64_t tile;         /* points whose memory is taken together; 0: all are there at once */
    int64_t window;       /* of the minor dim with a tile: points from a write on back (on ahead, if
                             negative) that are still read; 0: all */
    bool twice;           /* the minor dim's ring holds each point twice: a window is one slice */
    bool one;             /* one slot in all */
    bool ranges;          /* some reader reads a range of the minor dim */
    const ds_type *point; /* of one point */
    bool open;            /* `now` is there */
    ds_use now;           /* what is stored where ops are being written */
} ds_lower_store;

/* `%x = case t == 0: %a, else: %u{t - 1}`, where loops carry %u alone: %a is what the loop over t
 * begins with, and the case needs no turn of its own. */
typedef struct ds_lower_join {
    bool joined;
    uint32_t dim;
    int64_t first;      /* the dim's first point in the loop's direction */
    const ds_use *init; /* %a */
    const ds_use *next; /* %u{t - 1} */
} ds_lower_join;

/* The value of a statement where it was last written: for readers at the same point. */
typedef struct ds_lower_here {
    bool valid;
    uint32_t depth; /* open loops around it */
    ds_temporal_place place[DS_TEMPORAL_DIMS];
} ds_lower_here;

/* A rec over the stages of a pipeline: the equations over one dim, once for each part of it. */
typedef struct ds_lower_parts {
    uint32_t dim, n;
    ds_temporal_range *ranges; /* [n] */
    const ds_op *rec;          /* with an equation for each part */
    ds_lower_frame frame;      /* its values */
    ds_map of;                 /* equation → part + 1 */
} ds_lower_parts;

typedef struct ds_lower_rec {
    ds_lowering *l;
    const ds_lower_parts *parts; /* NULL: the rec is whole */
    ds_lower_frame *frame;
    const ds_op *op;
    ds_temporal_program program;
    ds_temporal_schedule schedule;
    /* Statements are the body's equations, then one a yielded use. */
    const ds_op **op_of;          /* [program.n]; NULL: a yield */
    const ds_use *const *yielded; /* [program.n]: of a yield */
    uint32_t *statement_of;       /* by value of the function; UINT32_MAX: outside */
    ds_map read_of;               /* ds_use * → ds_temporal_read * */
    ds_lower_store *stores;       /* by value of the function: of equations, of the rec's results */
    ds_map stored;                /* ds_temporal_read * → 1: some run reads the store */
    ds_lower_here *here;          /* [program.n] */
    ds_lower_join *joins;         /* [program.n] */
    const ds_temporal_node **kept_by; /* [results]: the loop that keeps the result; NULL: a store */
    ds_use *local; /* by value of the function: in the copy, where here is valid */
    const ds_temporal_node *running;      /* the run whose operands are being read */
    ds_expr variable[DS_LOWER_REC_DEPTH]; /* of open loops */
    const char *names[DS_LOWER_REC_DEPTH];
    int64_t first[DS_LOWER_REC_DEPTH]; /* a turn of each */
    uint32_t depth;
    ds_map weights; /* name in the copy → value + 1: weights of calls */
} ds_lower_rec;

/* rec_stage.c: cuts the rec for a pipeline. Errors: DS_ERR_UNSUPPORTED for a read that lies on no
 * one stage; DS_ERR_VALUE at the knob. O(equations x parts x points of the dim). */
ds_status ds_lower__rec_cut(ds_lowering *l, const ds_lower_frame *frame, const ds_op *op,
                            ds_lower_parts *parts, ds_error *err);
/* The points of a dim where the statement may run: of a part those of the part. A statement beyond
 * the last one stands for a result, which has all points. */
const ds_temporal_range *ds_lower__rec_range(const ds_lower_rec *rec, uint32_t statement,
                                             uint32_t dim);
/* rec.c: the dims that weights state, a bit a dim. */
uint32_t ds_lower__rec_weight_dims(const ds_lower_rec *rec);

/* rec_program.c: statements and reads of the rec. Errors: DS_ERR_UNSUPPORTED. */
ds_status ds_lower__rec_program(ds_lower_rec *rec, ds_error *err);

/* The loops around a statement in the nest, from the outermost, and its place in the nest's
 * text. */
typedef struct ds_lower_path {
    const ds_temporal_nest *loops[DS_TEMPORAL_DIMS];
    uint32_t n, at;
} ds_lower_path;
/* [program.n]; without a nest of whole statements, without loops. */
ds_lower_path *ds_lower__rec_paths(const ds_lower_rec *rec);

/* rec_join.c: cases that are what a loop begins with. True: there are some, and the schedule is to
 * be made again. */
bool ds_lower__rec_joins(ds_lower_rec *rec);
/* Is the run of a case in a loop that begins with the case's first branch (`starts`), or goes
 * on? */
bool ds_lower__rec_in_join(const ds_lower_rec *rec, const ds_temporal_node *run,
                           const ds_temporal_node *loop, uint32_t depth, bool *starts);
/* The run at the first point of its join. */
ds_temporal_node ds_lower__rec_first(const ds_lower_rec *rec, const ds_temporal_node *run);

/* rec_store.c: which values are stored, and how. Errors: DS_ERR_UNSUPPORTED. */
ds_status ds_lower__rec_stores(ds_lower_rec *rec, ds_error *err);
/* Is the read of a running statement answered by what its source last made? */
bool ds_lower__rec_is_here(const ds_lower_rec *rec, const ds_temporal_node *run,
                           const ds_temporal_read *read);

#endif
