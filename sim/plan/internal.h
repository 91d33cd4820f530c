/* Shared by the files of sim/plan; not a public header. */
#ifndef DS_PLAN_INTERNAL_H
#define DS_PLAN_INTERNAL_H

#include "ir/base/map.h"
#include "ir/ops/kernels.h"
#include "sim/plan/plan.h"
#include "sim/topo/turn.h"

/* A function in the context of a call: its mesh parameters bound to placements, its index parameter
 * to a number. */
typedef struct ds_context {
    const ds_func *func;
    uint32_t *mesh_args;    /* placement ids, one per mesh parameter */
    uint32_t default_place; /* where values without `on` live */
    ds_index index;         /* the index parameter; without a name: none */
    uint64_t hash;
    const struct ds_context *next; /* of the same hash */
} ds_context;

/* What `after` gives: a value for those who also wait for others. */
typedef struct ds_join {
    uint32_t value;
    uint32_t *waits; /* value instances */
    uint32_t n_waits;
} ds_join;

/* What is said (alike.c), as words. */
typedef struct ds_plan_words {
    DS_VEC(uint64_t) list;
    bool unlike; /* something is not put into words: it is like nothing else */
} ds_plan_words;

/* Of ops that say the same, the record of the first one. */
typedef struct ds_alike {
    uint64_t *words;
    uint32_t n, id;
    const ds_record *record; /* NULL: not made yet; or these words are no op's */
} ds_alike;

/* What there is to know of a type. */
typedef struct ds_plan_type {
    uint32_t id;         /* equal for types that say the same */
    bool unlike;         /* the id says nothing */
    bool varies, uneven; /* with loop indices; its parts */
} ds_plan_type;

/* The links that transfers of different streams may load at one time. Heap. */
typedef struct ds_sharing {
    uint32_t *links; /* of the topology, in order of discovery */
    uint32_t n;
    uint32_t *place;       /* per link of the topology: in `links`; DS_NONE: not shared */
    uint64_t *colour;      /* per place: equal for links that classes.c found alike */
    bool *stays;           /* per place: no image of the link is another one (turn.c) */
    ds_map patterns;       /* traffic.c: what groups of the same kind and members use */
    ds_map shapes;         /* what congruent ones use, at their canonical place */
    ds_map carried;        /* the links of that place, for the members in hand */
    const char *algorithm; /* the last one, and its hash */
    uint64_t algorithm_hash;
} ds_sharing;

/* The turn under which the program repeats (turn.c). Heap. */
typedef struct ds_plan_turn {
    ds_turn *turn;            /* NULL: none */
    uint32_t order;           /* of the turn */
    uint32_t *first;          /* per device: the one that stands for it */
    uint32_t *image, *at;     /* per device: where it goes, DS_NONE: not on a circle; scratch */
    bool refused;             /* something of the program does not repeat */
    DS_VEC(ds_turn *) places; /* turns of groups (congruent.c) */
} ds_plan_turn;

typedef struct ds_builder {
    ds_plan *plan;
    ds_unit *unit;
    const ds_binding *binding;
    const ds_profiles *profiles;
    const ds_plan_options *options;
    const ds_module *root;
    const ds_func *entry; /* exactly one of entry and program is set */
    const ds_program *program;
    const ds_topology *topology; /* the one topology of the run; NULL until known */
    uint32_t default_place;      /* of the entry; DS_NONE: none stated */
    uint32_t *profiles_used;     /* profile ids of the scenario */
    uint32_t n_profiles_used;
    bool is_ideal;          /* devices of which none is a profile have none: no defaults */
    bool is_generic;        /* … have the generic profile of their kind */
    ds_map placement_index; /* hash → id */
    ds_map mesh_index;      /* ds_mesh → placement id */
    ds_map slices;          /* hash → slices of placements (place.c) */
    ds_map split;           /* placement, axes → its groups over them */
    ds_map record_index;    /* hash → id */
    ds_map context_of;      /* hash → the contexts that have it */
    DS_VEC(ds_join) joins;
    DS_VEC(uint32_t) reads; /* heap: what the op in hand reads (values.c) */
    ds_map indices_of;      /* op → the indices that its record depends on (lower.c) */
    ds_map alike;           /* hash → ds_alike (alike.c) */
    ds_map types;           /* ds_type → ds_plan_type */
    ds_map sizes, contexts; /* list of sizes, ds_context → number (alike.c) */
    ds_plan_words words;    /* heap: of the op in hand */
    ds_map stamp_of;        /* context → its stamp, or 0: called once so far (stamp.c) */
    DS_VEC(struct stamp *) stamps;
    bool on_symbols;        /* a stamp is being made: operands are no values */
    uint32_t *rank_devices; /* per-rank programs: the device of rank i */
    uint32_t n_rank_devices;
    int64_t n_used; /* devices of the program (uses.c) */
    ds_sharing sharing;
    ds_plan_turn turn;
    bool unturned;      /* plan every part, whether it repeats or not */
    ds_map place_of;    /* list of devices → ds_congruent */
    ds_map congruent;   /* congruent.c: hash of a canonical place → ds_congruent */
    ds_map costs;       /* what is done at one → a ds_group with its cost */
    uint64_t graph;     /* hash of topology and profiles, for plan_options.ground; 0: not known */
    ds_map bodies;      /* alike.c: what a communication does → the first record */
    uint32_t *zeros;    /* one a device: where all are of variant 0 */
    uint32_t *vertices; /* heap: scratch */
    uint32_t n_vertices;
    ds_map kernels, kernels_of; /* kernels.c: op → ds_kernel; functions that have been looked at */
    uint32_t polls;             /* ops since the time was looked at */
    ds_map store_of;            /* store.c: 1 + value → its store at the hosts */
    ds_map host_points;         /* store.c: a store's point → its last transfers */
    uint32_t n_host_points;     /* stores in host_points */
    DS_VEC(uint32_t) holds;     /* heap: what the next computation waits for */
    uint32_t computed;          /* a value of the last computation; DS_NONE: none */
    ds_map repeats_of;          /* repeat.c: loop → whether its turns do the same */
    uint32_t n_repeats;         /* loops whose turns do, followed whole or not */
    uint32_t repeat;            /* the one that is being made, 1 + its place in plan->repeats; 0 */
    uint32_t n_searched;        /* records that were looked at for stores in parts */
    bool in_parts;              /* there is one */
    int64_t repeated;           /* turns that a turn in hand stands for; 0: 1 */
} ds_builder;

static inline const ds_placement *ds_plan__placement(const ds_builder *b, uint32_t id) {
    return b->plan->placements.at[id];
}

/* Most devices of a schematic plan. */
#define DS_SCHEMATIC_DEVICES 16u

/* plan.c */
ds_status ds_plan__find_profiles(ds_builder *b, ds_error *err);
/* The generic profile of the kind; DS_ERR_VALUE: the kind has none. */
ds_status ds_plan__generic_of(const ds_profiles *profiles, uint32_t kind, ds_loc loc,
                              uint32_t *profile, ds_error *err);
void ds_plan__deinit(ds_builder *b);

/* uses.c: finds n_used. O(values of the program). */
ds_status ds_plan__count_used(ds_builder *b, ds_error *err);

/* place.c */
ds_status ds_plan__know_devices(ds_builder *b, ds_loc loc, ds_error *err);
/* The placement with these axes, sizes and devices (in the plan's arena), by its number. */
uint32_t ds_plan__intern(ds_builder *b, ds_placement p);
ds_status ds_plan__use_topology(ds_builder *b, const ds_topology *topology, ds_loc loc,
                                ds_error *err);
ds_status ds_plan__place(ds_builder *b, const ds_context *ctx, const ds_place *place,
                         const ds_index *indices, uint32_t *out, ds_error *err);
ds_status ds_plan__mesh(ds_builder *b, const ds_mesh *mesh, uint32_t *out, ds_error *err);
uint32_t ds_plan__single(ds_builder *b, uint32_t device);
uint32_t ds_plan__devices_in_order(ds_builder *b);
int64_t ds_plan__axis_size(const ds_placement *p, const char *axis); /* 1 if absent */
/* Splits a placement into groups along `axes` (major → minor): lists of devices, all of one size.
 */
void ds_plan__groups(ds_builder *b, const ds_placement *p, const char *const *axes, uint32_t n,
                     uint32_t **devices, uint32_t *n_groups, uint32_t *group_size);

/* turn.c */

/* A shift along an axis of the first mesh that is a turn, if there is one. O(devices · depth). */
void ds_plan__find_turn(ds_builder *b, const ds_placement *mesh);
void ds_plan__turn_deinit(ds_builder *b);
/* The plan has to be made without the turn; the status says no more. */
ds_status ds_plan__refuse_turn(ds_builder *b);
/* Does the device stand for its images, or for itself? */
bool ds_plan__is_first(const ds_builder *b, uint32_t device);
/* Do all records but communication, which was looked at before, repeat? O(records + devices). */
ds_status ds_plan__turn_holds(ds_builder *b);
/* Where a link is; it stays if there is no turn. */
ds_turned ds_plan__turned_link(const ds_builder *b, uint32_t link);

/* lower.c */

/* The type of one operand or result, with the indices that its expressions may mention. */
typedef struct ds_typed {
    const ds_type *type;
    const ds_index *indices;
} ds_typed;

/* An open `local` region: its axis_index are among the indices in scope, at 0 unless a device is
 * looked at (ds_plan__enter). */
typedef struct ds_region {
    ds_index *own; /* one an axis */
    uint32_t n;
    const struct ds_region *up;
} ds_region;

/* An op about to be lowered: its context, operands, results, and the indices in scope. */
typedef struct ds_site {
    const ds_context *ctx;
    const ds_op *op;
    const ds_index *indices;
    const ds_typed *in;
    const ds_typed *out;
    const ds_region *region; /* innermost; NULL outside of all */
    uint32_t rank_device;    /* per-rank programs: the device of this body; else DS_NONE */
    bool at_host;            /* of a put or slice: a transfer (store.c) */
} ds_site;

/* schematic.c: the record of a communication between devices that each stand for a slice. */
ds_status ds_plan__schematic_comm(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                                  const uint32_t *out_places, ds_record *r, ds_error *err);

/* Is the op an `after` that states a cost: a task that reads its operands and makes nothing, for
 * its result is the first of them? */
bool ds_plan__is_work(const ds_op *op);

/* Looks up the record of an op that depends on no index; false if there is none yet. O(1). */
bool ds_plan__cached(ds_builder *b, const ds_context *ctx, const ds_op *op, uint32_t *out);
/* Do the result types, places or attributes of an op of the function depend on the loop index, any
 * if the name is NULL? Positions in buffers do not count: they change neither bytes nor time. */
bool ds_plan__op_mentions(const ds_builder *b, const ds_op *op, const ds_func *func,
                          const char *name);
/* The record of a table op (or of a call that carries its cost); made once per distinct site. A
 * COMM record without groups moves nothing: its results are its operands. */
ds_status ds_plan__record(ds_builder *b, const ds_site *site, uint32_t *out, ds_error *err);
/* The record of a value that is there from time 0: a program input or a weight. */
ds_status ds_plan__input_record(ds_builder *b, const ds_context *ctx, const ds_value_info *value,
                                const ds_index *indices, ds_category category, uint32_t *out,
                                ds_error *err);
/* {role = "weight"}: the memory category that an attribute list states, else `otherwise`. */
ds_status ds_plan__category(ds_builder *b, const ds_attr *attrs, uint32_t n, ds_category otherwise,
                            ds_category *out, ds_error *err);
/* kernels.c: the stack of the scenario in hand. */
ds_status ds_plan__find_kernels(ds_builder *b, ds_error *err);
void ds_plan__kernels_deinit(ds_builder *b);
/* What the stack launches for the op, and what it launches on that device; NULL: one kernel.
 * O(1), but for the first op of a function O(the function). */
const ds_kernel *ds_plan__kernel(ds_builder *b, const ds_site *site);
const ds_kernel *ds_plan__kernel_on(ds_builder *b, const ds_site *site, uint32_t device);

/* alike.c: what is known of a type. Expected O(1). */
const ds_plan_type *ds_plan__type(ds_builder *b, const ds_type *type);
/* alike.c: where the record of the first op is, or is to be, that says the same as this one; NULL
 * where there can be no other. Valid for good. The op must not depend on loop indices. O(words of
 * the op). */
const ds_record **ds_plan__alike(ds_builder *b, const ds_site *site);
/* alike.c: of communication that does the same on the same devices, whatever it says, one record
 * has the groups. Takes them, if there is one, and is `like` it; or keeps what this one has. */
bool ds_plan__take_body(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                        const uint32_t *out_places, ds_record *record);
void ds_plan__keep_body(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                        const uint32_t *out_places, const ds_record *record);
/* Do all devices of a placement hold equal parts of all operands and results? */
bool ds_plan__is_even(const ds_site *site);
/* Sets record->devices (ascending copy of `devices`) and allocates variant_of. */
void ds_plan__set_devices(ds_builder *b, ds_record *record, const uint32_t *devices, uint32_t n);
/* The place of a device in record->devices, DS_NONE if it is no member. O(log n). */
uint32_t ds_plan__member(const ds_record *record, uint32_t device);

/* shape.c: local shapes */

/* Sets axis_index of all open regions to the coordinates of a position; back to 0 with p NULL. */
void ds_plan__enter(const ds_region *region, const ds_placement *p, uint32_t pos);
ds_status ds_plan__local_shape(ds_builder *b, ds_typed t, const ds_placement *p, uint32_t pos,
                               ds_loc loc, ds_shape *out, ds_error *err);
ds_status ds_plan__local_bytes(ds_builder *b, ds_typed t, const ds_placement *p, uint32_t pos,
                               ds_loc loc, int64_t *out, ds_error *err);
/* The same, and where in the whole the device's part begins: lo[dim]. */
typedef struct ds_local_box {
    int64_t lo[DS_MAX_RANK];
    ds_shape shape;
} ds_local_box;
ds_status ds_plan__local_box(ds_builder *b, ds_typed t, const ds_placement *p, uint32_t pos,
                             ds_loc loc, ds_local_box *out, ds_error *err);
bool ds_plan__is_uneven(const ds_type *type);
/* Devices of a placement with the same key have uneven shards of the same sizes. */
uint64_t ds_plan__part_key(const ds_type *type, const ds_placement *p, uint32_t pos);
/* Coordinate of a position along an axis; 0 if the placement lacks it. O(axes). */
int64_t ds_plan__coordinate(const ds_placement *p, const char *axis, uint32_t pos);
/* Position of a device in a placement, DS_NONE if it is not there. O(log n). */
uint32_t ds_plan__position(const ds_placement *p, uint32_t device);

/* comm.c, comm_half.c */
ds_status ds_plan__comm_record(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                               const uint32_t *out_places, ds_record *record, ds_error *err);
/* Sets plan->host_of, once. */
void ds_plan__find_hosts(ds_builder *b);
/* Offload and reload: each device of the placement with its host. */
ds_status ds_plan__host_record(ds_builder *b, const ds_site *site, uint32_t place,
                               ds_record *record, ds_error *err);
ds_status ds_plan__half_record(ds_builder *b, const ds_site *site, ds_record *record,
                               ds_error *err);
/* What a group does, beside its devices and bytes. */
typedef struct ds_group_work {
    const ds_op *op; /* whose attributes count */
    ds_opcode code;  /* what `op` comes down to */
    const ds_index *indices;
    uint32_t root;
    const int64_t *shard_bytes;       /* of each member; NULL: equal */
    const struct ds_reshard *reshard; /* what a DS_OP_RESHARD moves (sim/coll/reshard.h) */
} ds_group_work;

/* Time alone of one group (op's attributes, profiles of the members), which algorithm, which
 * stream. */
ds_status ds_plan__group_cost(ds_builder *b, const ds_group_work *work, ds_group *group,
                              ds_error *err);

/* congruent.c */

/* Costs a group that has its request (`cost` does it for one), or finds what the same cost on a
 * congruent one. */
typedef ds_status ds_plan__group_coster(ds_builder *b, ds_group *group, ds_error *err);
ds_status ds_plan__cost_once(ds_builder *b, ds_plan__group_coster *cost, ds_group *group,
                             ds_error *err);
/* Is the group congruent to one that has its cost, of the same op and bytes? Then it takes it. */
bool ds_plan__cost_alike(ds_builder *b, const ds_group *first, ds_group *g);
/* Phases of the request at the group's canonical place; and where that place's links are for the
 * group itself. O(its members + n) look-ups. */
ds_status ds_plan__phases_in_place(ds_builder *b, const ds_group *group,
                                   const struct ds_coll_request *request, ds_arena *arena,
                                   ds_phase **phases, uint32_t *n, ds_error *err);
void ds_plan__carry_links(ds_builder *b, const ds_group *group, const uint32_t *links, uint32_t n,
                          uint32_t *out);
void ds_plan__congruent_deinit(ds_builder *b);
/* The turn of the group's canonical place by its period; NULL without. */
const ds_turn *ds_plan__place_turn(const ds_group *group);

/* traffic.c */

/* A phase that flows for less loads no link. */
#define DS_PLAN_LEAST_PS 1000

/* Finds the shared links, and the phases over them of all groups that meet as a whole. */
ds_status ds_plan__sharing(ds_builder *b, ds_error *err);
/* The phases of one group, if it loads shared links. */
ds_status ds_plan__traffic(ds_builder *b, ds_group *group, ds_error *err);
void ds_plan__sharing_deinit(ds_sharing *sharing);

/* stepwise.c: gives the activities their messages. */
ds_status ds_plan__stepwise(ds_builder *b, ds_error *err);

/* repeat.c: the gates of plan->repeats, in order; `first_task` of all instances is known. */
void ds_plan__gates(ds_plan *plan);

/* walk.c, classes.c, expand.c, flows.c */

/* How many instances (inputs, loop turns) a plan may have, and the refusal of more. */
uint32_t ds_plan__limit(const ds_builder *b);
ds_status ds_plan__too_large(const ds_builder *b, ds_loc loc, ds_error *err);
ds_status ds_plan__walk(ds_builder *b, int64_t steps, ds_error *err);
/* jobs.c: each job's walk, on devices that no other job has; `plan` finds its entry first. */
ds_status ds_plan__jobs(ds_builder *b, ds_status (*plan)(ds_builder *b, int64_t steps, ds_error *),
                        ds_error *err);
void ds_plan__classes(ds_builder *b);
/* The time that its work takes at the level that it has alone. */
void ds_flow_set_alone(ds_flow *flow);
ds_status ds_plan__expand(ds_builder *b, ds_error *err);
/* Gives the activities that share links their flows. */
ds_status ds_plan__flows(ds_builder *b, ds_error *err);
/* Which stream of a member device the record's task goes to: 0 is compute. */
uint64_t ds_plan__stream_key(const ds_record *record, uint32_t member);

/* A hash of a group's canonical place; of the topology and the profiles. */
uint64_t ds_plan__place_hash(const ds_congruent *c);
uint64_t ds_plan__graph(ds_builder *b);

/* What the phases of congruent groups take of the links at their canonical place (traffic.c). */
typedef struct ds_load_phase {
    uint32_t first, n; /* of `links` and `uses_q32` */
    uint32_t weight;
    ds_u128 alone_q20; /* level with all its links to itself */
} ds_load_phase;

typedef struct ds_load_shape {
    ds_load_phase *phases;
    uint32_t n;
    uint32_t *links;
    uint64_t *uses_q32;
    uint32_t n_links;
    uint64_t links_hash;
} ds_load_shape;

/* ground.c: what another plan has left under the key, copied; false if there is nothing. And leaves
 * a copy. */
bool ds_ground__find(const ds_plan_ground *ground, uint64_t key, ds_arena *arena, ds_group *out);
void ds_ground__keep(ds_plan_ground *ground, uint64_t key, const ds_group *group);
/* The links of a shape for one group; NULL: not known. They stay until room is made, which only
 * this does: all is thrown away if it has become too much. */
const uint32_t *ds_ground__links(const ds_plan_ground *ground, uint64_t key);
void ds_ground__make_room(ds_plan_ground *ground);
/* `links` are in its arena. */
void ds_ground__keep_links(ds_plan_ground *ground, uint64_t key, const uint32_t *links);
ds_arena *ds_ground__arena(ds_plan_ground *ground);
bool ds_ground__find_shape(const ds_plan_ground *ground, uint64_t key, ds_arena *arena,
                           ds_load_shape *out);
void ds_ground__keep_shape(ds_plan_ground *ground, uint64_t key, const ds_load_shape *shape);

#endif
