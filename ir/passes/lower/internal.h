/* Shared by the files of the lower pass; not a public header.
 *
 *   lower.c  the step: arguments, loss, scenario, verification
 *   walk.c   the model's body: calls inlined, loops kept or unrolled, ops copied
 *   scan.c   a first walk, which copies nothing: names of weights, ops that overrides match
 *   batch.c  microbatches: the batch divided
 *   lora.c   adapters beside products; frozen weights
 *   documents.c  documents of several lengths in a sequence
 *   rec*.c   a rec becomes loops; README.md has a line for each file */
#ifndef DS_PASSES_LOWER_INTERNAL_H
#define DS_PASSES_LOWER_INTERNAL_H

#include "ir/passes/build/build.h"
#include "ir/passes/build/clone.h"
#include "ir/passes/build/path.h"
#include "ir/passes/passes.h"

/* Larger models are refused: a function that calls another twice doubles the ops at every level. */
#define DS_LOWER_MAX_OPS   (UINT32_C(1) << 20)
#define DS_LOWER_MAX_DEPTH 256u
/* The most loops around an op. A family that passes make has a binder a loop, and passes hold 2
 * DS_MAX_RANK binders in place; 4 binders are left for loops that passes add. */
#define DS_LOWER_MAX_LOOPS (2u * DS_MAX_RANK - 4u)

/* An open loop of the source; `up` lists all open loops, across calls, from the inside out. */
typedef struct ds_lower_loop {
    const ds_op *op;
    const char *old; /* the index in the source, interned in the copy */
    const char *name;
    ds_expr by;     /* replaces the index */
    bool unrolled;  /* by is a number, as is turn */
    bool shared;    /* weights inside are the same at every turn: a dim of a rec */
    ds_expr lo, hi; /* if kept */
    int64_t turn;
    const struct ds_lower_loop *up;
    const struct ds_lower_loop *frame_up; /* of the same function */
} ds_lower_loop;

/* The copy of a value of the source. A result of an unrolled loop that keeps values is one use a
 * turn. */
typedef struct ds_lower_value {
    ds_use use;
    const ds_use *turns;
    int64_t lo, n_turns;
} ds_lower_value;

/* Prefixes of names. All four have calls, "block."; each adds turns of loops in its own way. */
typedef struct ds_lower_where {
    const char *calls;  /* the calls alone: of weights */
    const char *values; /* with turns of unrolled loops: "l3." */
    const char *path;   /* of op paths: "l[3]." */
    const char *key;    /* of dropout masks, where every loop is a part: "l." */
} ds_lower_where;

typedef struct ds_lower_frame {
    const ds_func *func;
    ds_lower_value *values; /* per value of func */
    ds_lower_where where;
    const ds_lower_loop *loops; /* of this function, from the inside out */
} ds_lower_frame;

typedef struct ds_lowering {
    const ds_binding *source;
    const ds_func *model;
    ds_model_step *step;
    ds_cloner c;
    ds_builder b;
    const ds_lower_loop *loops;
    ds_map weight_names;      /* interned in the copy */
    ds_map unrolled;          /* source loops with an override for a single turn */
    int64_t packed_seq, span; /* tokens of a sequence, and of the documents in it; 0: none yet */
    uint32_t n_ops, depth;
    DS_VEC(const char *) products; /* names of products of an activation and a weight */
    bool *adapted;                 /* by name of train.lora_targets: a product has it */
    bool narrow;                   /* train.dtype replaces f32 */
    const char *micro_index;       /* of the loop over microbatches around the model, or NULL */
    ds_op *micro_loop;
    struct ds_lower_rec *rec; /* the rec that is being written; NULL: none */
    const ds_op *unstored;    /* the first rec without a value for the strategy's rec_stores */
    bool stored;              /* another rec has one */
} ds_lowering;

/* scan.c. Errors: DS_ERR_NAME for an override without an op, DS_ERR_LIMIT. */
ds_status ds_lower__scan(ds_lowering *l, ds_error *err);

/* A comment at the top of the step's module, in the arena. */
void ds_lower__note(ds_lowering *l, const char *text);

/* walk.c. Copies the model's body; the caller has set frame->values of the arguments. *end is the
 * return, NULL if the body has none. */
ds_status ds_lower__body(ds_lowering *l, ds_lower_frame *frame, const ds_op **end, ds_error *err);
ds_status ds_lower__use(ds_lowering *l, const ds_lower_frame *frame, const ds_use *use, ds_use *out,
                        ds_error *err);
ds_expr ds_lower__expr(ds_lowering *l, const ds_lower_frame *frame, ds_expr e);
/* The type as written, with train.dtype for f32. */
ds_type *ds_lower__type(ds_lowering *l, const ds_lower_frame *frame, const ds_type *type);
ds_type *ds_lower__type_as_is(ds_lowering *l, const ds_lower_frame *frame, const ds_type *type);
/* Gives a value without hints the hints of the type that the source writes for the value. */
void ds_lower__hint(ds_lowering *l, const ds_lower_frame *frame, const ds_use *use,
                    const ds_type *type);
void ds_lower__attrs(ds_lowering *l, const ds_lower_frame *frame, const ds_attr *attrs, uint32_t n,
                     const char *without, ds_attr **out, uint32_t *n_out);
/* Casts a use to a dtype, if the use has another dtype. */
ds_status ds_lower__cast(ds_lowering *l, ds_use *use, ds_dtype dtype, ds_error *err);

/* documents.c: says how long the documents are in which attention stays. Errors: DS_ERR_UNSUPPORTED,
 * DS_ERR_LIMIT. O(documents of a step, once). */
ds_status ds_lower__pack(ds_lowering *l, ds_op *op, ds_error *err);
/* Refuses `lengths` for a model without an attention that packs. */
ds_status ds_lower__check_packed(const ds_lowering *l, ds_error *err);
/* The span of one replica's documents. O(documents). */
double ds_lower__span(const ds_train *train, uint64_t seed, uint64_t replica, int64_t seq,
                      int64_t sequences);

/* lora.c: puts an adapter beside the product `op` that has been made of `from`, if the scenario
 * wants one: *result is the sum. Errors: DS_ERR_UNSUPPORTED. O(weights). */
ds_status ds_lower__adapt(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from,
                          const ds_op *op, ds_use *result, ds_error *err);
/* With adapters: freezes all other weights and puts them behind the adapters'. Errors: DS_ERR_NAME,
 * a target that is no product; DS_ERR_UNSUPPORTED, no adapter. O(weights). */
ds_status ds_lower__freeze(ds_lowering *l, ds_error *err);

/* walk.c: notes a weight of the step. */
void ds_lower__add_weight(ds_lowering *l, ds_value arg);
/* Copies one op; calls are inlined. */
ds_status ds_lower__op(ds_lowering *l, ds_lower_frame *frame, const ds_op *op, ds_error *err);

/* rec.c. Errors: DS_ERR_UNSUPPORTED, DS_ERR_VALUE for a cycle, DS_ERR_LIMIT. */
ds_status ds_lower__rec(ds_lowering *l, ds_lower_frame *frame, const ds_op *op, ds_error *err);
/* rec_store.c, after the body. Of several recs one with a window is enough for `ring`. Errors:
 * DS_ERR_VALUE for stores that no value of a rec has. */
ds_status ds_lower__rec_check_stores(const ds_lowering *l, ds_error *err);
/* Does an equation of the rec make the value? Then ds_lower__rec_use reads the value. */
bool ds_lower__rec_makes(const struct ds_lower_rec *rec, const ds_lower_frame *frame,
                         ds_value value);
ds_status ds_lower__rec_use(struct ds_lower_rec *rec, const ds_use *use, ds_use *out,
                            ds_error *err);
/* Names of the rec's open loops. */
uint32_t ds_lower__rec_loops(const struct ds_lower_rec *rec, const char *const **names);
/* The argument that a weight of a call in the rec became; NULL: none yet. `made` adds one. */
const ds_value *ds_lower__rec_weight(struct ds_lower_rec *rec, const char *name,
                                     const ds_value *made);

/* rec_prompt.c: prefill = vector needs `tokens`, and does not train. Errors: DS_ERR_VALUE,
 * DS_ERR_UNSUPPORTED. */
ds_status ds_lower__check_prefill(const ds_lowering *l, ds_error *err);
/* rec_chunk.c: are ops written for several turns at once? */
bool ds_lower__in_chunk(const struct ds_lower_rec *rec);
/* Is the use of a value from outside at a turn? Then `out`, its copy at the chunk's first turn, becomes
 * that at all of its turns. */
bool ds_lower__chunk_reads(const struct ds_lower_rec *rec, const ds_lower_frame *frame,
                           const ds_use *use);
ds_status ds_lower__chunk_family(struct ds_lower_rec *rec, const ds_use *use, ds_use *out,
                                 ds_error *err);
/* rec_batch.c: copies an op for the turns of a chunk at once. Errors: DS_ERR_UNSUPPORTED, an op that
 * has no such form. */
ds_status ds_lower__batch(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, ds_error *err);
/* rec_static.c: ranges of one size. What results of an op over them become. */
typedef struct ds_lower_pads ds_lower_pads;
/* Writes what an op over padded operands needs before the op; the results' written types get the
 * size. *out: which results are padded; NULL: none. Errors: DS_ERR_UNSUPPORTED, an op without a form. */
ds_status ds_lower__pad_op(ds_lowering *l, ds_op *op, const ds_type **types, uint32_t n,
                           const ds_lower_pads **out, ds_error *err);
void ds_lower__pad_results(ds_lowering *l, const ds_op *op, const ds_lower_pads *pads);
/* Gives a type that was written for the value the value's size. */
void ds_lower__pad_type(const ds_lowering *l, const ds_use *use, ds_type *type);
/* Refuses a padded value. */
ds_status ds_lower__not_padded(const ds_lowering *l, ds_use use, const char *reader, ds_loc loc,
                               ds_error *err);
/* walk.c: adds the results to an op that has its operands and attributes, and writes it. `types`:
 * written ones, or NULL. */
ds_status ds_lower__write(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, ds_op *op,
                          const ds_type *const *types, ds_error *err);
/* The written type of a result; NULL: none. */
const ds_type *ds_lower__written(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from,
                                 uint32_t result);

/* batch.c: replaces the batch by batch / m. Errors: DS_ERR_UNSUPPORTED, DS_ERR_VALUE. */
ds_status ds_lower__divide_batch(ds_lowering *l, ds_error *err);

/* The step that is being made: its memory, its expressions, and types in its function. */
static inline ds_arena *ds_lower__arena(const ds_lowering *l) {
    return &l->c.unit->arena;
}

static inline ds_exprs *ds_lower__exprs(const ds_lowering *l) {
    return &l->c.unit->exprs;
}

static inline ds_expr ds_lower__int(const ds_lowering *l, int64_t value) {
    return ds_expr_int(ds_lower__exprs(l), value);
}

static inline ds_expr ds_lower__fold(const ds_lowering *l, ds_expr_kind kind, ds_expr a,
                                     ds_expr b) {
    return ds_expr_fold(ds_lower__exprs(l), kind, a, b);
}

static inline const ds_type *ds_lower__type_of(const ds_lowering *l, ds_use use) {
    return ds_use_type(l->c.unit, l->b.func, &use);
}

#endif
