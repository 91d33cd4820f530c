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
    int64_t tile; /* points whose memory is taken together; 0: all are there at once */
    int64_t host; /* points on their way that the device holds at most; 0: all are on the device */
    int64_t window;  /* of the minor dim with a tile: points from a write on back (on ahead, if
                             negative) that are still read; 0: all */
    bool twice;      /* the minor dim's ring holds each point twice: a window is one slice */
    bool once;       /* it holds each point once: a window is two slices, one after the other */
    bool functional; /* each turn of `turn_dim` makes a new tensor (rec_copy.c) */
    uint32_t turn_dim;
    bool copied; /* for the turn at `turn`, in the loop of this depth, from `old` */
    uint32_t depth;
    ds_temporal_place turn;
    ds_use old;
    bool one;        /* one slot in all */
    bool many;       /* some reader reads ranges of several dims at once */
    uint32_t ranges; /* a set: of these dims ranges are read */
    int64_t block;   /* attention reads so many points of the minor dim at once; 0: none does */
    bool mixed;      /* … and others read ranges of any length */
    uint32_t varies; /* a set: dims of `point` whose size depends on a dim of the rec */
    const ds_type *point; /* of one point; of sizes that vary the largest */
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
/* The reads of a use: by a turn or by a chunk (first index), of turns or of chunks (second). */
typedef struct ds_lower_reads {
    const ds_temporal_read *at[2][2];
} ds_lower_reads;

/* A prompt in chunks (rec_prompt.c): its turns do not run one by one, `size` of them are one point
 * of the dim `dim` of the program. */
typedef struct ds_lower_chunks {
    bool on;
    uint32_t turn, dim;     /* dims of the program: of turns, of chunks */
    int64_t lo, end;        /* the prompt: turns lo … end - 1 */
    int64_t size, n;        /* turns of a chunk; chunks */
    uint32_t *of_statement; /* [n_whole]: its statement over chunks; UINT32_MAX: turns alone */
    uint32_t *of;           /* [program.n - n_whole]: the statement that this one is chunks of */
    bool *joint;          /* [n_whole]: chunks and turns are in one store, for readers of ranges */
    int64_t *back;        /* [n_whole]: points before its own that a turn reads of it in a chunk */
    ds_map back_of;       /* ds_use * of a range → the same of this read */
    ds_expr chunk, first; /* of the run that is written, and its first turn */
    ds_lower_loop *at;    /* … the loop that stands for the turns: by `first` */
    ds_map marks;         /* value of the copy + 1 → ds_lower_mark * */
} ds_lower_chunks;

/* Attention in tiles (rec_tile.c). By statement of the whole program; `in` is NULL without tiles. */
typedef struct ds_lower_tiles {
    int64_t points; /* of a tile */
    uint32_t *in;   /* 1 + the dim of the ranges: an attention in tiles, and what makes its keys and
                       values of a store */
    bool *left_out; /* … and nothing else reads: no op is written */
    ds_use *store;  /* of a stack that has run: what it reads */
} ds_lower_tiles;

/* A value of the copy that a chunk makes. The dim `axis` counts the chunk's turns; of a range, the
 * points that the chunk's last turn reads, and each turn before reads one less. */
typedef struct ds_lower_mark {
    uint32_t axis;
    bool range;
    int64_t window; /* of a range: points that a turn reads at most; INT64_MAX: all so far */
} ds_lower_mark;

/* A value of the copy of which dim `axis` has as many places at every turn: `begin` to `end` - 1 of
 * `size` count (rec_static.c). */
typedef struct ds_lower_padded {
    uint32_t axis;
    ds_expr begin, end, size;
    bool freed; /* the other places may lie in tiles that are freed */
} ds_lower_padded;

typedef struct ds_lower_rec {
    ds_lowering *l;
    const ds_lower_parts *parts; /* NULL: the rec is whole */
    ds_lower_frame *frame;
    const ds_op *op;
    ds_temporal_program program;
    ds_temporal_schedule schedule;
    /* Statements are the body's equations, then one a yielded use: n_whole. Then those over
     * chunks. */
    ds_temporal_program whole; /* without chunks */
    uint32_t n_whole;
    ds_lower_chunks chunks;
    ds_lower_tiles tiles;
    const ds_op **op_of;          /* [program.n]; NULL: a yield */
    const ds_use *const *yielded; /* [program.n]: of a yield */
    const ds_use *const **uses;   /* [n_whole]: of a statement's reads */
    uint32_t n_values;            /* of the function */
    bool has_stored;              /* a value has a store as `rec_stores` says */
    uint32_t *statement_of;       /* by value of the function; UINT32_MAX: outside */
    ds_map read_of;               /* ds_use * → ds_lower_reads * */
    ds_lower_store *stores; /* [2 n_values]: of equations, of the rec's results; then of chunks */
    ds_map stored;          /* ds_temporal_read * → 1: some run reads the store */
    ds_lower_here *here;    /* [program.n] */
    ds_lower_join *joins;   /* [program.n] */
    const ds_temporal_node **kept_by; /* [results]: the loop that keeps the result; NULL: a store */
    ds_use *local; /* [2 n_values]: of turns, of chunks: in the copy, where here is valid */
    const ds_temporal_node *running;      /* the run whose operands are being read */
    ds_expr variable[DS_LOWER_REC_DEPTH]; /* of open loops */
    const char *names[DS_LOWER_REC_DEPTH];
    int64_t first[DS_LOWER_REC_DEPTH]; /* a turn of each */
    uint32_t depth;
    ds_map weights; /* name in the copy → value + 1: weights of calls */
    ds_map padded;  /* value of the copy + 1 → ds_lower_padded * */
} ds_lower_rec;

/* rec_stage.c: cuts the rec for a pipeline. Errors: DS_ERR_UNSUPPORTED for a read that lies on no
 * one stage; DS_ERR_VALUE at the knob. O(equations x parts x points of the dim). */
ds_status ds_lower__rec_cut(ds_lowering *l, const ds_lower_frame *frame, const ds_op *op,
                            ds_lower_parts *parts, ds_error *err);
/* The points of a dim where the statement may run: of a part those of the part; of turns all, in
 * chunks or not. A statement beyond the last one stands for a result, which has all points. */
const ds_temporal_range *ds_lower__rec_range(const ds_lower_rec *rec, uint32_t statement,
                                             uint32_t dim);
/* rec.c: the dims that weights state, a bit a dim. */
uint32_t ds_lower__rec_weight_dims(const ds_lower_rec *rec);

/* rec_program.c: statements and reads of the rec. Errors: DS_ERR_UNSUPPORTED. */
ds_status ds_lower__rec_program(ds_lower_rec *rec, ds_error *err);
/* The step's comments on the schedule, and its text (ds_model_step.orders). */
void ds_lower__rec_note_order(const ds_lower_rec *rec);
/* The read of a use by turns or chunks, of turns or chunks; NULL: there is none. */
const ds_temporal_read *ds_lower__rec_read(const ds_lower_rec *rec, const ds_use *use,
                                           bool by_chunk, bool of_chunk);
void ds_lower__rec_put_read(ds_lower_rec *rec, const ds_use *use, const bool chunks[2],
                            const ds_temporal_read *read);

/* The statement whose values the store has; UINT32_MAX: a result. */
uint32_t ds_lower__store_source(const ds_lower_rec *rec, const ds_lower_store *store);

/* rec_prompt.c: the prompt's turns as chunks, where the strategy says so. `rec->schedule` is that of
 * the whole program, and is to be made again. Errors: DS_ERR_UNSUPPORTED, DS_ERR_VALUE. */
ds_status ds_lower__rec_prompt(ds_lower_rec *rec, ds_error *err);
bool ds_lower__rec_is_chunk(const ds_lower_rec *rec, uint32_t statement);
/* The statement of the whole program. */
uint32_t ds_lower__rec_origin(const ds_lower_rec *rec, uint32_t statement);
/* Where the value of a statement is stored, and where it is after the statement has run. */
ds_lower_store *ds_lower__rec_store(const ds_lower_rec *rec, uint32_t statement, ds_value value);
ds_use *ds_lower__rec_local(const ds_lower_rec *rec, uint32_t statement, ds_value value);
/* The result of the rec that a yield is. */
ds_value ds_lower__rec_result(const ds_lower_rec *rec, uint32_t statement);

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

/* rec_chunk.c: values of chunks. Errors: DS_ERR_UNSUPPORTED.
 * Reads a use where turns read chunks or chunks read; *known: done. */
ds_status ds_lower__chunk_use(ds_lower_rec *rec, const ds_use *use, ds_use *out, bool *known,
                              ds_error *err);
/* Puts a chunk's points into a store of turns. */
ds_status ds_lower__chunk_put(ds_lower_rec *rec, ds_lower_store *store, const char *name, ds_use x,
                              const ds_expr *index, ds_error *err);
/* Makes a value one of the chunk's type, with the axis where ds_lower__chunk_axis says. */
ds_status ds_lower__chunk_settle(ds_lower_rec *rec, ds_use *x, const ds_type *type, ds_error *err);
/* Begins a run of a chunk; returns its first turn. */
ds_expr ds_lower__chunk_begin(ds_lower_rec *rec, ds_lower_loop *at, ds_expr chunk);
/* An expression of the source at the chunk's last turn. */
ds_expr ds_lower__chunk_last(ds_lower_rec *rec, ds_expr e);
/* Where the turns lie in a value that is carried: after the first dim. */
uint32_t ds_lower__chunk_axis(const ds_type *point);
/* The type of one turn with a chunk's turns as the dim `axis`. */
ds_type *ds_lower__chunk_type(const ds_lower_rec *rec, const ds_type *point, uint32_t axis);
const ds_lower_mark *ds_lower__mark_of(const ds_lower_rec *rec, ds_use use);
void ds_lower__mark(ds_lower_rec *rec, ds_use use, ds_lower_mark mark);
/* Moves the axis of a marked value; leaves others. */
ds_status ds_lower__chunk_move(ds_lower_rec *rec, ds_use *x, uint32_t axis, ds_error *err);
/* Repeats a value without turns along a new axis. */
ds_status ds_lower__chunk_repeat(ds_lower_rec *rec, ds_use *x, uint32_t axis, ds_error *err);

/* rec_batch.c: the value of a size of the copy. False: no number. */
bool ds_lower__rec_size(const ds_lower_rec *rec, ds_expr size, ds_loc loc, int64_t *out);

/* Is the expression of the source the turn plus a number? */
bool ds_lower__chunk_moves(const ds_lower_rec *rec, ds_expr e);

/* rec.c: puts points into a store's axis. */
ds_status ds_lower__store_put(ds_lower_rec *rec, ds_lower_store *store, const char *name,
                              ds_value part, ds_expr at, ds_error *err);
/* rec_read.c: along a store's axis. Where a point lies: its indices, by place in store->dims, in
 * row-major order. */
ds_expr ds_lower__store_place(const ds_lower_rec *rec, const ds_lower_store *store,
                              const ds_expr *index);
/* `n` points from a point on, along the minor dim; DS_NO_EXPR: the point, without the axis. */
ds_status ds_lower__store_take(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                               const ds_expr *index, ds_expr n, ds_use *out, ds_error *err);
/* The places bounds[0] … bounds[1] - 1; `one`: one place, without the axis. */
ds_status ds_lower__store_slice(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                                const ds_expr *bounds, bool one, ds_use *out, ds_error *err);
/* rec_copy.c: the same from the point `index` on, of a ring that holds each point once: up to the
 * ring's end, then from the row's begin. */
ds_status ds_lower__store_window(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                                 const ds_expr *bounds, const ds_expr *index, ds_use *out,
                                 ds_error *err);
/* Reads a use from the store of turns. Errors: DS_ERR_LIMIT. */
ds_status ds_lower__store_read(ds_lower_rec *rec, const ds_use *use, ds_use *out, ds_error *err);
/* The type of a point whose indices, by dim of the header, are these. */
const ds_type *ds_lower__store_type(ds_lower_rec *rec, const ds_lower_store *store, ds_value value,
                                    const ds_expr *index);
/* Cuts points of a store, with `n` dims for ranges at the axis, to that type. */
ds_status ds_lower__store_narrow(ds_lower_rec *rec, const ds_lower_store *store, ds_value value,
                                 const ds_expr *index, uint32_t n, ds_use *x, ds_error *err);
/* … and pads a value to the size of a point. */
ds_status ds_lower__store_widen(ds_lower_rec *rec, const ds_lower_store *store, ds_use *x,
                                ds_error *err);
/* Which index of a use belongs to the dim. */
uint32_t ds_lower__rec_place(const ds_lower_rec *rec, const ds_use *use, uint32_t dim);

/* rec_copy.c: stores that each turn makes anew, as a function of the store before. A new tensor for
 * the run's turn, if the turn has none yet; before a loop inside of a turn that writes stores; at
 * the end of the turns of this depth but `turn` (NULL: of all), to which the tensors before live. */
ds_status ds_lower__rec_copy(ds_lower_rec *rec, ds_lower_store *store, const char *name,
                             const ds_temporal_node *run, ds_error *err);
ds_status ds_lower__rec_copies(ds_lower_rec *rec, const ds_temporal_node *loop, ds_error *err);
ds_status ds_lower__rec_end_turn(ds_lower_rec *rec, const ds_temporal_place *turn, ds_error *err);

/* rec_tile.c. Finds the attentions that run in tiles; which stores are wanted is known. Errors:
 * DS_ERR_UNSUPPORTED. O(n^2) of the statements that read ranges. */
ds_status ds_lower__rec_tiles(ds_lower_rec *rec, ds_error *err);
/* Says in a store whose dims are known how attentions in tiles read ranges of the statement. */
void ds_lower__tile_store(const ds_lower_rec *rec, uint32_t source, ds_lower_store *store);
/* Writes the run of an op in tiles; *done: nothing more is to be written. Errors:
 * DS_ERR_UNSUPPORTED. */
ds_status ds_lower__tile_op(ds_lower_rec *rec, const ds_op *op, bool *done, ds_error *err);

/* rec.c: a name for a loop's index that no open loop has. */
const char *ds_lower__rec_index(const ds_lower_rec *rec, const char *wanted);

/* rec_static.c. With rec_shapes = static: makes the range of dim k of a use, of lo and size, as long
 * as the longest of all turns. False: it is so, or stays as it is. */
bool ds_lower__pad_range(const ds_lower_rec *rec, const ds_lower_store *store, const ds_use *use,
                         uint32_t k, ds_expr *lo, ds_expr *size, ds_lower_padded *out);
/* Refuses a range along the dim whose size differs between turns there. */
ds_status ds_lower__not_moving(const ds_lower_rec *rec, uint32_t dim, ds_expr size,
                               const ds_use *use, ds_error *err);
const ds_lower_padded *ds_lower__padded(const ds_lower_rec *rec, ds_use use);
void ds_lower__mark_padded(ds_lower_rec *rec, ds_use use, uint32_t axis, const ds_lower_padded *as);

/* rec_store.c: which values are stored, and how. Errors: DS_ERR_UNSUPPORTED. */
ds_status ds_lower__rec_stores(ds_lower_rec *rec, ds_error *err);
/* Is the read of a running statement answered by what its source last made? */
bool ds_lower__rec_is_here(const ds_lower_rec *rec, const ds_temporal_node *run,
                           const ds_temporal_read *read);

#endif
