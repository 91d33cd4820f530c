/* Shared by the files of the partitioner; not a public header.
 *
 *   shard.c      the pass: functions, calls between them, the scenario
 *   walk.c       the walk: ops with hints become ops with layouts and communication; loops
 *   mesh.c       the strategy's mesh, and the model's logical axes on this mesh
 *   stage.c      stages of several widths: a mesh for each, reshards between stages
 *   narrow.c     removal of these meshes' axes of size 1
 *   layout.c     layouts of values: from types and back, sizes
 *   move.c       from one layout to another: the collectives, and their costs
 *   choose.c     which factor of an op takes which axis
 *   override.c   the strategy's overrides of single ops
 *   attention.c  attention over a split sequence: ring, all_to_all
 *   total.c      the sum of operands of several layouts, for the norm of all gradients
 *   loss.c       the loss of logits whose vocabulary is split
 *   grad.c       where gradients are final, how they are reduced, how ZeRO splits states
 *
 * A model's hints name *logical* axes: dp, cp, tp, ep. A mesh has *physical* axes. The two differ
 * where experts or shard groups are made of replicas: with ep = 2 and dp = 4 the mesh has dp = 2
 * and ep = 2, and the model's dp is (dp, ep). */
#ifndef DS_PASSES_SHARD_INTERNAL_H
#define DS_PASSES_SHARD_INTERNAL_H

#include "ir/passes/build/copy.h"
#include "ir/passes/build/path.h"
#include "ir/passes/passes.h"
#include "ir/strategy/group.h"

#define DS_SHARD_AXES 8u /* of one mesh */

typedef struct ds_shard_axis {
    const char *name; /* interned */
    int64_t size;     /* > 1, but for the only axis of a mesh of one device */
} ds_shard_axis;

/* A mesh on which values live: the strategy's, or a view that an override names. */
typedef struct ds_shard_mesh {
    const char *name; /* interned, without '@' */
    ds_shard_axis axes[DS_SHARD_AXES];
    uint32_t n_axes;
    const int64_t *shares; /* unequal parts of a batch, one a coordinate of axis `shared`, without a
                              common divisor; NULL: equal parts */
    int64_t shares_sum;
    uint8_t shared;
    bool apart; /* a view whose devices are not those of the strategy's mesh, in this order */
} ds_shard_mesh;

/* A value brought to the mesh of another stage. */
typedef struct ds_shard_import {
    ds_value old, made;
    uint8_t mesh;
} ds_shard_import;

/* An old value and the new use to which it returns after the current op. */
typedef struct ds_shard_stand_in {
    ds_value old;
    ds_use use;
} ds_shard_stand_in;

/* The layout of a value on its mesh. Axes are numbers of the mesh's axes. */
typedef struct ds_layout {
    uint8_t mesh;
    uint8_t rank;
    uint8_t n[DS_MAX_RANK];                   /* axes of a dim */
    uint8_t axis[DS_MAX_RANK][DS_SHARD_AXES]; /* major → minor */
    uint8_t sum, max;                         /* bits: partial over these axes */
    uint8_t shares; /* bits of dims in the shares of the mesh (other dims evenly, or by ZeRO) */
    /* 1 + the device of a mesh of one axis on which alone the value is, a parameter server; 0: the
     * value is on all devices. */
    uint16_t server;
} ds_layout;

/* ---- logical axes ---- */

typedef enum ds_logical { DS_L_DP, DS_L_CP, DS_L_TP, DS_L_EP, DS_L_COUNT } ds_logical;

/* A logical axis is an ordered list of physical ones; empty: its degree is 1. */
typedef struct ds_logical_axis {
    uint8_t axis[DS_SHARD_AXES];
    uint32_t n;
} ds_logical_axis;

/* ---- facts about a value of the new function ---- */

typedef struct ds_shard_value {
    uint8_t seq;     /* bit d: dim d is a sequence dim (its hint says cp) */
    uint32_t weight; /* 1 + index among step->weights: the weight itself or a cast or view of it */
    ds_layout home;  /* of a weight: the layout of its hint, without ZeRO's splits */
    uint32_t twin;   /* 1 + the same value in the layout that the backward pass reads; 0: none */
    bool keep_both;  /* a loop keeps value and twin, not the twin alone */
} ds_shard_value;

/* A value that has been moved: `to` is `from` in another layout. Entries last until their block
 * ends. */
typedef struct ds_shard_moved {
    ds_use from;
    ds_layout layout;
    ds_value to;
} ds_shard_moved;

/* A gradient that waits for its bucket. */
typedef struct ds_shard_pending {
    ds_value old;  /* in the old function */
    ds_value grad; /* in the new one, partial */
    ds_layout to;
    double bytes;
    bool scattered;
} ds_shard_pending;

/* ---- overrides and groups ---- */

#define DS_SHARD_BATCH "batch" /* the factors of the batch, whatever a rule calls them */

/* How ops lie: what an override says of each op that its pattern matches, or a group of its ops. */
typedef struct ds_shard_lie {
    const char *who; /* the pattern, or the group's name */
    ds_loc loc;
    uint8_t mesh;
    const ds_attr *factors; /* n: x, k: [y, z] */
    uint32_t n_factors;
    const ds_op_group *group; /* NULL: an override's */
    bool by_batch;            /* all axes of the mesh split the batch */
    bool by_server;           /* gradients are summed on one device */
    bool used;                /* of an override: an op matches */
} ds_shard_lie;

typedef struct ds_shard_group {
    ds_op_group said;
    bool *names_gradient; /* [said.n_ops]: the pattern ends with the name of a backward op */
    uint8_t mesh;
    const char *base; /* the mesh of which the group's is a view with one axis; NULL: it is none */
    ds_shard_lie *lies; /* one for all ops, or one for each device */
    uint32_t n_lies;
    bool used;
} ds_shard_group;

/* exact: the lie is the op's own, not that of the forward op of a backward op. */
typedef struct ds_shard_laid {
    const ds_shard_lie *lie;
    bool exact;
} ds_shard_laid;

/* What overrides and groups say of a function. */
typedef struct ds_shard_places {
    const ds_func *func;
    ds_map by_name; /* path name, interned → op */
    ds_map laid;    /* op → ds_shard_laid */
    ds_map readers; /* name of an argument → the ds_shard_reader that reads it first, in the
                       function or in one that it calls */
    uint8_t *batch; /* by value: bits of dims that are of the batch; NULL: nobody asks */
} ds_shard_places;

typedef struct ds_shard_reader {
    const ds_op *op;
    const ds_shard_lie *lie;
    ds_shard_places *places; /* of the op's function */
    uint32_t operand;
} ds_shard_reader;

/* An old function and its sharded function. */
typedef struct ds_shard_func {
    const ds_func *from;
    ds_func *to;
} ds_shard_func;

/* Results that all functions share. */
typedef struct ds_shard_known {
    ds_map sizes;   /* expression → value */
    ds_map uneven;  /* size and number of parts → sizes of parts, an array that all such dims
                       share */
    ds_map choices; /* choices for ops, kept by ir/ops/memo.h */
} ds_shard_known;

/* A function being made: the one inside has a frame of its own. */
typedef struct ds_shard_frame {
    const ds_func *from;
    ds_builder b;
    bool final;                   /* its weight gradients are final */
    ds_use *to;                   /* old value → new; */
    uint8_t *state;               /* DS_SHARD_NONE, … */
    DS_VEC(ds_shard_value) info;  /* by new value; heap */
    DS_VEC(ds_shard_moved) moved; /* heap, as the two below */
    DS_VEC(ds_shard_pending) pending;
    ds_map weights;   /* old arguments that are weights → number among step->weights */
    ds_map states;    /* old arguments that are states or master copies → their weight's number */
    ds_map gradients; /* old values that are a weight's gradient → 1 + the weight */
    ds_map whole;     /* new arguments that are shared-out weights → the weights gathered, where
                         these stay gathered */
    ds_shard_places *places; /* of `from`; NULL: neither overrides nor groups */
    bool backward;
    const ds_path_loop *loops;           /* open */
    DS_VEC(ds_shard_import) imports;     /* heap */
    DS_VEC(ds_shard_stand_in) stand_ins; /* while an op is walked; heap */
} ds_shard_frame;

typedef struct ds_sharder {
    ds_model_step *step;
    ds_shard_known *known;
    ds_unit *unit;
    ds_module *module;
    /* [0]: the strategy's. With stages of several widths the first n_own are, one for each width:
     * all have the same axes, some of size 1, so that a layout means the same on each. */
    DS_VEC(ds_shard_mesh) meshes;
    uint32_t n_own;
    uint8_t here;             /* of the strategy's: on which ops are done now */
    const char *program_mesh; /* all devices */
    uint32_t n_devices;       /* of it */
    uint8_t *mesh_of_chunk;   /* [chunks]; NULL where there is one width */
    ds_map chunk_of_op;       /* old op → chunk; with several widths */
    ds_logical_axis logical[DS_L_COUNT];
    ds_logical_axis zero; /* over which ZeRO shares out states */
    DS_VEC(ds_shard_func) funcs;
    ds_shard_lie *overrides; /* one per entry of strategy.ops */
    uint32_t n_overrides;
    ds_shard_group *groups;
    uint32_t n_groups;
    bool wants_batch;
    bool has_servers;                 /* places of values are written, because of coordinates */
    DS_VEC(ds_shard_places *) places; /* heap */

    ds_shard_frame f; /* the function being made */
} ds_sharder;

enum { DS_SHARD_NONE, DS_SHARD_MADE, DS_SHARD_ZEROS }; /* ZEROS: made where a layout is known */

/* Is the mesh an override's? */
static inline bool ds_shard__is_view(const ds_sharder *s, uint8_t mesh) {
    return mesh >= s->n_own;
}

/* ---- mesh.c ---- */

/* Makes the mesh and declares it; fills meshes, logical, zero. */
ds_status ds_shard__mesh(ds_sharder *s, ds_error *err);
/* Finds or adds the mesh that an override names; its number in *out. */
ds_status ds_shard__view(ds_sharder *s, const ds_place *place, ds_loc loc, uint8_t *out,
                         ds_error *err);
uint32_t ds_shard__n_devices(const ds_sharder *s, uint8_t mesh);
/* The axes of a mesh that a name means; on mesh 0 a logical name may mean several axes. */
ds_status ds_shard__axes_named(const ds_sharder *s, uint8_t mesh, const char *name, ds_loc loc,
                               ds_logical_axis *out, ds_error *err);
/* Physical axes of a hint's axis name. */
ds_status ds_shard__physical(const ds_sharder *s, const char *name, ds_loc loc,
                             ds_logical_axis *out, ds_error *err);

/* Declares a mesh for values of the module; `kind` says what `base` is. */
ds_mesh *ds_shard__new_mesh(ds_sharder *s, const char *name, ds_mesh_kind kind, const char *base);
void ds_shard__set_axes(ds_sharder *s, ds_mesh *mesh, const ds_shard_axis *axes, uint32_t n);
/* A mesh over the first `world` of the devices that the scenario names. Errors: DS_ERR_VALUE if the
 * scenario names no devices, or too few. */
ds_status ds_shard__world(ds_sharder *s, int64_t world, const ds_shard_axis *axes, uint32_t n,
                          ds_mesh **out, ds_error *err);
/* Declares the axes that the module does not declare yet. */
void ds_shard__declare_axes(ds_sharder *s, const ds_shard_axis *axes, uint32_t n);

/* ---- stage.c ---- */

/* Meshes for stages of several widths, the mesh of each chunk, and the chunk of every op. Errors:
 * DS_ERR_UNSUPPORTED for a schedule that runs a chunk on stages of two widths; errors of
 * cutting. */
ds_status ds_shard__stages(ds_sharder *s, ds_error *err);
/* Called before an op of a function's own level is walked: sets `here` to the mesh of the op's
 * chunk, and brings operands from stages of other widths to this mesh, once for all readers.
 * ds_shard__leave restores the old values' uses. O(uses). */
ds_status ds_shard__enter(ds_sharder *s, const ds_op *op, ds_error *err);
void ds_shard__leave(ds_sharder *s);
/* The mesh of the weight's chunk. */
uint8_t ds_shard__home_mesh(const ds_sharder *s, uint32_t weight);

/* ---- narrow.c ---- */

/* Removes splits and sums over axes of size 1, and collectives over such axes alone, from the new
 * functions. O(ops). */
void ds_shard__narrow(ds_sharder *s);

/* ---- layout.c ---- */

/* The layout that a hint asks for on mesh 0. Errors: sizes that do not divide. */
ds_status ds_shard__hint(const ds_sharder *s, const ds_type *type, const char *who, ds_loc loc,
                         ds_layout *out, uint8_t *seq, ds_error *err);
ds_layout ds_shard__layout(const ds_sharder *s, const ds_type *type);
/* The type with dtype and dims of `like`, and splits and place of the layout. */
ds_type *ds_shard__type(const ds_sharder *s, const ds_type *like, const ds_layout *layout);
ds_layout ds_shard__whole(const ds_sharder *s, uint32_t rank); /* replicated, on mesh `here` */
bool ds_shard__same_layout(const ds_layout *a, const ds_layout *b);
/* Does the axis split batches by the shares of the mesh? */
bool ds_shard__has_shares(const ds_sharder *s, uint8_t mesh, uint32_t axis);
/* The dim that the axis splits, or -1. */
int ds_shard__dim_of(const ds_layout *layout, uint32_t axis);
/* Does the type write out sizes of unequal parts? */
bool ds_shard__is_cut_unequally(const ds_type *type);
static inline int64_t ds_shard__axis_size(const ds_sharder *s, uint8_t mesh, uint32_t axis) {
    return s->meshes.at[mesh].axes[axis].size;
}
/* The product of the axes on a dim. */
int64_t ds_shard__parts(const ds_sharder *s, const ds_layout *layout, uint32_t dim);
/* A dim's size, or 0 where it depends on a loop's index. */
int64_t ds_shard__size(const ds_sharder *s, ds_expr size);
/* Bytes of the whole tensor, and of one device's part. */
double ds_shard__bytes(const ds_sharder *s, const ds_type *type);
double ds_shard__local_bytes(const ds_sharder *s, const ds_type *type, const ds_layout *layout);

/* ---- move.c ---- */

/* Bytes that one device sends to get from `from` to `to`. */
double ds_shard__move_cost(const ds_sharder *s, const ds_type *type, const ds_layout *from,
                           const ds_layout *to);
/* Emits the collectives; *out is the moved use. A move that the block has made before is used
 * again. */
ds_status ds_shard__move(ds_sharder *s, ds_use use, const ds_layout *to, ds_use *out,
                         ds_error *err);
/* The backward pass reads `twin` in place of `from`: the same value in the forward op's layout.
 * This saves an all_to_all, and keeping either value takes the same memory. With `both` the
 * backward pass reads `from` too, and `twin` only in ops that ask for the twin. */
void ds_shard__remember(ds_sharder *s, ds_use from, ds_value twin, bool both);
/* The use's sum, if a move has made it already; else the use. */
ds_use ds_shard__resolved(ds_sharder *s, ds_use use);
/* The layout without partial axes in which sums usually lie (sequence parallel or replicated). */
ds_layout ds_shard__resolve_layout(const ds_sharder *s, const ds_layout *from, uint8_t seq,
                                   const ds_type *type);

/* ---- choose.c ---- */

typedef struct ds_shard_choice {
    ds_layout in[DS_MAX_OPERANDS];
    ds_layout out[DS_MAX_OPERANDS]; /* splits of the results; inference adds partial sums */
    uint8_t seq[DS_MAX_OPERANDS];   /* sequence dims of the results */
    bool forced;                    /* by an override */
} ds_shard_choice;

/* Chooses layouts for an op's operands. `op` is the old op, `in` the new operands, `out` the old
 * results' hints. Operands beyond DS_MAX_OPERANDS follow the last. */
ds_status ds_shard__choose(ds_sharder *s, const ds_op *op, const ds_use *in,
                           ds_shard_choice *choice, ds_error *err);
/* The layouts of an op that lies so: axes that the lie does not name split no dim. `exact`: a factor
 * that the op lacks is an error (without `exact`, `op` is a backward op of the op that lies so). */
ds_status ds_shard__forced(ds_sharder *s, const ds_op *op, const ds_shard_lie *lie, bool exact,
                           ds_shard_choice *choice, ds_error *err);
/* Does the lie name a factor of this backward op? Other backward ops take their operands'
 * layouts. */
ds_status ds_shard__means(ds_sharder *s, const ds_op *op, const ds_shard_lie *lie, bool *means,
                          ds_error *err);
/* The rule of an op of `from`, by the types in `from`. */
ds_status ds_shard__rule(ds_sharder *s, const ds_op *op, ds_rule *rule, ds_error *err);
/* Do partial sums pass through this op unsummed? */
bool ds_shard__is_lazy(ds_opcode code);

/* ---- override.c ---- */

/* Do hints give way in the backward pass? Sums of gradients have no overrides of their own. If the
 * strategy has overrides or groups, such sums keep the layouts of their terms, not those of the
 * model's hints. */
static inline bool ds_shard__follows(const ds_sharder *s) {
    return s->f.backward && (s->n_overrides || s->n_groups);
}

/* Reads strategy.ops. Errors: meshes that are no views. */
ds_status ds_shard__overrides(ds_sharder *s, ds_error *err);
/* What overrides and groups say of `func`; *out is NULL if there are none. O(ops · patterns), once a
 * function. Errors: an op in two groups. */
ds_status ds_shard__places(ds_sharder *s, const ds_func *func, ds_shard_places **out,
                           ds_error *err);
void ds_shard__places_deinit(ds_sharder *s);
void ds_shard__lay(ds_sharder *s, ds_shard_places *p, const ds_op *op, const ds_shard_lie *lie,
                   bool exact);
/* How an op of `from` lies; NULL: neither an override nor a group says. */
const ds_shard_lie *ds_shard__lie(const ds_sharder *s, const ds_op *op, bool *exact);
/* The argument that the value is, or is a cast of; else the value. */
ds_value ds_shard__arg_of(const ds_func *func, ds_value value);
/* Gives the factors of a backward op's rule the forward op's names for the same dims; a factor
 * without such a dim loses its name. The rule stays if the op is no backward op, or the forward op
 * is not in `from`. */
ds_status ds_shard__rename(ds_sharder *s, const ds_op *op, ds_rule *rule, ds_error *err);
/* The layout in which the first op with a lie reads the argument, if there is such an op. An input
 * of the model lies so for a group alone. */
ds_status ds_shard__home(ds_sharder *s, const char *arg, bool weight, ds_layout *home, bool *found,
                         ds_error *err);
/* Checks that every override matched an op, and that every group has one. */
ds_status ds_shard__overrides_used(const ds_sharder *s, ds_error *err);

/* ---- group.c ---- */

/* Reads the groups of the strategy and makes their lies. Errors: ways that shard lacks, too many
 * devices. */
ds_status ds_shard__groups(ds_sharder *s, ds_error *err);
/* The group of an op of that name; NULL: none. Of the backward pass ops alone that a pattern names
 * by their end ("fc1.dw"). Errors: DS_ERR_VALUE for two groups. */
ds_status ds_shard__group_of(ds_sharder *s, const ds_path_loop *loops, const char *name,
                             bool backward, ds_shard_group **out, ds_error *err);
/* Has each op of the group an owner, a lie of its own? */
bool ds_shard__is_owned(const ds_shard_group *group);
/* Lays the n ops, in program order, on the devices of a group with owners. O(n · devices). */
void ds_shard__share_out(ds_sharder *s, ds_shard_places *p, ds_shard_group *g, const ds_op **ops,
                         uint32_t n);
/* Fills `batch`. O(ops), times the dims of a value at most. */
ds_status ds_shard__find_batch(ds_sharder *s, ds_shard_places *p, ds_error *err);
/* Bits of the rule's factors that are of the batch. */
uint32_t ds_shard__batch_factors(const ds_shard_places *p, const ds_op *op, const ds_rule *rule);

/* ---- attention.c, loss.c ---- */

/* Attention, or its gradient, over a split sequence, and the loss of logits with a split
 * vocabulary: *made gets the values of the results, or stays NULL if the op stays one op, with
 * `choice`. Errors: DS_ERR_VALUE for heads that cp_type = ulysses cannot split. */
ds_status ds_shard__attention(ds_sharder *s, const ds_op *old, ds_use *in,
                              const ds_shard_choice *choice, const ds_value **made, ds_error *err);
/* total.c: the whole sum of operands of any layouts. */
ds_status ds_shard__total(ds_sharder *s, const ds_op *old, const ds_use *in, const ds_value **made,
                          ds_error *err);
ds_status ds_shard__loss(ds_sharder *s, const ds_op *old, const ds_use *in,
                         const ds_shard_choice *choice, const ds_value **made, ds_error *err);

/* ---- grad.c ---- */

bool ds_shard__is_weight(const ds_sharder *s, const char *name);
/* In `gradients`: a term of a gradient, not all of it. */
#define DS_SHARD_TERM UINT64_MAX
/* Fills weights and states. O(arguments + weights). */
void ds_shard__find_weights(ds_sharder *s);
/* Finds the values of `from` that are gradients of weights, where ops make them. O(ops). */
void ds_shard__find_gradients(ds_sharder *s);
/* The layout of a weight's states, and with zero = 3 of the weight. */
ds_layout ds_shard__zero_layout(const ds_sharder *s, const ds_type *type, const ds_layout *home);
/* Puts a gradient that has been made into the bucket, unless the gradient stays partial. */
ds_status ds_shard__gradient(ds_sharder *s, ds_value old, ds_value grad, ds_error *err);
/* Is the op a final gradient (optimizer/clip.c)? *out is then the layout that its optimizer
 * reads. */
bool ds_shard__done_layout(const ds_sharder *s, const ds_op *op, ds_layout *out);
/* Where a weight's states are and its update is made, if that is a parameter server: `layout` gets the
 * server. */
void ds_shard__update_at(const ds_sharder *s, uint32_t weight, ds_layout *layout);
/* Reduces all pending gradients. */
ds_status ds_shard__flush(ds_sharder *s, ds_error *err);

/* ---- whole.c ---- */

/* Does the function being made get the weight as its replicas share it out? */
bool ds_shard__gets_parts(const ds_sharder *s);
/* With reshard_after_forward = never: gathers the weights that stay gathered, in the function whose
 * end they outlive not. O(arguments). */
ds_status ds_shard__gather_all(ds_sharder *s, ds_error *err);
/* The use of the gathered weight, where the use is of a weight that stays gathered; else the use. */
ds_use ds_shard__whole_weight(const ds_sharder *s, ds_use use);

/* ---- shard.c ---- */

/* Walks the callee at its first call, with the arguments' layouts at that call; puts the call. */
ds_status ds_shard__call(ds_sharder *s, const ds_op *old, ds_error *err);

/* ---- walk.c ---- */

const ds_type *ds_shard__type_of(const ds_sharder *s, const ds_use *use);
ds_shard_value *ds_shard__value(ds_sharder *s, ds_value value);
/* Puts an op that shard makes itself; its results get the facts of `like`. */
ds_status ds_shard__put(ds_sharder *s, ds_op *op, const ds_shard_value *like, ds_error *err);
/* From now on the old value is `made`. */
void ds_shard__define(ds_sharder *s, ds_value old, ds_value made);
/* The new use of an old use; zeros are made whole. */
ds_status ds_shard__read(ds_sharder *s, const ds_use *old, ds_use *out, ds_error *err);
/* Sums up a value's partial sums, in the layout of ds_shard__resolve_layout. */
ds_status ds_shard__resolve(ds_sharder *s, ds_use use, ds_use *out, ds_error *err);
/* Walks the ops of the block except the last. O(ops), times MAX_WALKS at most for each loop around
 * them. */
ds_status ds_shard__walk(ds_sharder *s, const ds_block *block, ds_error *err);

#endif
