/* Shared by the files of ir/exec; not a public header. */
#ifndef DS_EXEC_INTERNAL_H
#define DS_EXEC_INTERNAL_H

#include "ir/exec/exec.h"
#include "ir/exec/place.h"
#include "ir/exec/tensor.h"
#include "ir/ops/ops.h"

/* ---- values (value.c) ---- */

/* What one device holds: elements lo .. lo + t.dims of a tensor of `full`. */
typedef struct ds_exec_part {
    int64_t lo[DS_MAX_RANK];
    int64_t full[DS_MAX_RANK];
    ds_tensor t;
} ds_exec_part;

/* A value, as its type with numbers says, and its parts. Axes are bits: number in the placement.
 * Along an axis that is neither split, partial nor manual, devices hold the same. */
typedef struct ds_exec_value {
    uint32_t owners;
    const ds_exec_place *place;
    ds_dtype dtype;
    uint32_t rank;
    uint64_t split, sum, max; /* axes that split a dim; partial over them */
    uint64_t manual;          /* axes of the open local regions: each device has its own tensor */
    bool pending;             /* a rank's receive or collective that has not happened yet */
    ds_exec_part *parts;      /* one a position */
} ds_exec_value;

/* Axes of the open local regions, outermost first. */
typedef struct ds_exec_manual {
    const char *const *axes;
    uint32_t n;
} ds_exec_manual;

typedef struct ds_exec_run_state ds_exec_run_state;

/* A type at a site. */
typedef struct ds_exec_site {
    ds_exec_run_state *run;
    const ds_exec_scope *scope;
    const ds_index *indices;
    ds_exec_manual manual;
    ds_loc loc;
} ds_exec_site;

/* The parts' boxes, without elements (t.at is NULL). `place`: NULL: where the type says. */
ds_status ds_exec__value_new(const ds_exec_site *site, const ds_type *type,
                             const ds_exec_place *place, ds_exec_value **out, ds_error *err);
ds_exec_value *ds_exec__value_share(ds_exec_value *value);
void ds_exec__value_drop(ds_exec_value *value); /* NULL is fine */
/* Elements for a part: zeros of its shape. */
ds_status ds_exec__part_new(const ds_exec_site *site, ds_exec_part *part, ds_error *err);
/* Do all devices that the type says hold the same hold the same, to the bit? The error names the
 * value, devices and the first element that differs. */
ds_status ds_exec__check_replicas(const ds_exec_site *site, const ds_exec_value *value,
                                  const char *path, ds_error *err);
/* Do the positions agree on every axis of the set? */
bool ds_exec__same_on(const ds_exec_place *place, uint64_t axes, uint32_t a, uint32_t b);
/* The whole tensor of the parts at positions that agree with `like` on the axes of `fixed`: split
 * dims put together, partial terms added up (or their maximum). */
ds_status ds_exec__assemble(const ds_exec_site *site, const ds_exec_value *value, uint64_t fixed,
                            uint32_t like, ds_tensor *out, ds_error *err);
/* The environment of a device: the axes' coordinates before the indices. `room`: manual.n of them.
 */
ds_env ds_exec__env(const ds_exec_site *site, const ds_exec_place *place, uint32_t position,
                    ds_index *room);

/* ---- ops (eval.c, eval_*.c) ---- */

/* An op on one device. Results have their boxes and zeroed elements. */
typedef struct ds_eval {
    ds_exec_run_state *run;
    const ds_func *func;
    const ds_op *op;
    const ds_env *env;
    const ds_exec_part *const *in;
    const ds_dtype *in_dtype;
    ds_exec_part **out;
    const ds_dtype *out_dtype;
    uint64_t mask_key; /* dropout: hash of what names the mask */
    bool shard_view;   /* inside a local region, or a rank's body: global indices are not known */
} ds_eval;

typedef ds_status ds_eval_function(const ds_eval *e, ds_error *err);

/* What the op's line names by EVAL; NULL for collectives and structure. */
ds_eval_function *ds_exec__evaluator(ds_opcode code);

#define EVAL(f)                      ds_eval_function ds_exec__eval_##f;
#define OP(ID, MNEMONIC, ROOMS, ...) ROOMS
#include "ir/ops/ops.def"

/* Images that share statistics in batch_norm. `groups` is the number in the whole batch; a split
 * batch has some of them on each device. DS_ERR_SHAPE if that is no whole number of them. */
ds_status ds_exec__batch_norm_images(const ds_eval *e, const ds_exec_part *x, int64_t *images,
                                     ds_error *err);

/* Attributes with the table's defaults. */
ds_status ds_eval_int(const ds_eval *e, const char *name, int64_t *value, ds_error *err);
ds_status ds_eval_real(const ds_eval *e, const char *name, double *value, ds_error *err);
/* Item i of a list; a single number stands for all; absent: *value stays. */
ds_status ds_eval_item(const ds_eval *e, const char *name, uint32_t i, int64_t *value,
                       ds_error *err);
/* A dim attribute counted from the end if negative. */
ds_status ds_eval_dim(const ds_eval *e, const char *name, uint32_t rank, uint32_t *dim,
                      ds_error *err);
const char *ds_eval_text(const ds_eval *e, const char *name); /* NULL if absent */
/* What a mean divides by, where the attribute `count` says it: a shard may not know. */
ds_status ds_eval_count(const ds_eval *e, double *count, ds_error *err);
/* An error at the op. */
ds_status ds_eval_fail(const ds_eval *e, ds_error *err, ds_status code, const char *format, ...)
    DS_PRINTF(4, 5);
/* Notes how close a decision was (ds_exec_result.margin). */
void ds_eval_margin(const ds_eval *e, double margin);

/* Rounds to the dtype, to nearest even (emulate.c). */
double ds_exec__round(ds_dtype dtype, double x);

/* ---- communication (comm.c) ---- */

/* One collective of one group: operands in rank order, results in rank order; a rooted one has the
 * root alone on its side unless `root` says which operand counts. */
typedef struct ds_exec_group {
    ds_opcode code;
    bool max;             /* of reductions */
    uint32_t dim, dim_to; /* where the op has them */
    int64_t shift;
    uint32_t root; /* with all members on both sides: whose operand or result counts */
    uint32_t n_in, n_out;
    const ds_tensor **in;
    ds_tensor **out; /* shapes are set, elements are to be */
} ds_exec_group;

ds_status ds_exec__group(ds_exec_memory *memory, const ds_exec_group *g, ds_loc loc, ds_error *err);
/* A collective over axes, across devices, a send or a reshard; results are whole values. */
ds_status ds_exec__comm(const ds_exec_site *site, const ds_op *op, ds_exec_value *const *in,
                        ds_exec_value **out, ds_error *err);
/* dim, dim -> dim, shift and reduction of an op. */
ds_status ds_exec__group_clauses(const ds_exec_site *site, const ds_op *op, ds_exec_group *g,
                                 ds_error *err);

/* ---- inputs (inputs.c) ---- */

/* What an integer input may index, or that a float one must not be negative. */
typedef struct ds_exec_range {
    int64_t below; /* 0: nothing is known */
    bool positive;
} ds_exec_range;

/* `range`: the attribute of the value that says so; or NULL. */
ds_status ds_exec__input_range(ds_exec_run_state *run, const ds_func *func, ds_value value,
                               const ds_attr *range, const ds_index *indices, ds_exec_range *out,
                               ds_error *err);
/* Elements for every part of a value that is the input `name`. Notes it among the result's inputs.
 * `attrs` may say that it is a box of another input: {input = "x", of = [64, 8], at = [16, 0]}. */
ds_status ds_exec__input_fill(const ds_exec_site *site, const char *name, const ds_attr *attrs,
                              uint32_t n_attrs, ds_exec_range range, ds_exec_value *value,
                              ds_error *err);
/* Every input that the options give has been used. */
ds_status ds_exec__inputs_used(const ds_exec_run_state *run, ds_error *err);
/* Names without braces, commas as '_': "w{1,2}" → "w1_2". In the arena. */
const char *ds_exec__plain_name(ds_arena *arena, const char *name);

/* ---- a run ---- */

struct ds_exec_run_state {
    const ds_binding *binding;
    const ds_exec_options *options;
    ds_exec_memory memory;
    ds_exec_places places;
    ds_arena arena;
    ds_exec_result *result;
    ds_map devices_seen;
    bool *given_used; /* one per options->inputs */
    double margin;
    int64_t steps; /* executed so far: ops and turns of all ranks */
};

#endif
