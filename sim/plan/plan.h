/* From a bound module to tasks: what runs where, in which order, after what, for how long.
 *
 * Three steps, each a file, each independent of how large the unrolled program is in the text:
 *   walk.c       follows the program once, in issue order, and writes down *instances*: which op,
 *                which value instances it reads and makes. An op is lowered (lower.c: placement,
 *                local shapes, work, cost) once per distinct call context into a *record*; its
 *                instances share the record.
 *   classes.c    groups devices, and links that transfers share (traffic.c), that provably behave
 *                alike (colour refinement over the records).
 *   expand.c     stamps one *task* per instance and class, with streams, dependences and
 *                rendezvous.
 * Then
 *   flows.c      makes one flow per meeting of classes and phase, over classes of links;
 *   stepwise.c   one flow per message.
 * Nothing below the class level exists in the task graph: 4,096 equal devices cost what one costs.
 *
 * Memory: everything lives in the plan and ends with ds_plan_free. */
#ifndef DS_PLAN_PLAN_H
#define DS_PLAN_PLAN_H

#include "ir/core/ir.h"
#include "ir/ops/ops.h"
#include "sim/cost/cost.h"
#include "sim/net/net.h"
#include "sim/topo/topo.h"

#define DS_NONE UINT32_MAX

/* Where a value lives: an ordered list of devices, seen through named axes (row-major, outermost
 * first). Interned: equal placements have equal ids. */
typedef struct ds_placement {
    const char **axes;
    int64_t *sizes;
    uint32_t n_axes;
    uint32_t *devices;
    uint32_t n_devices;
    uint32_t *by_device;                                     /* positions, ascending by device */
    uint32_t *ascending;                                     /* devices */
    enum { DS_ALIKE_UNKNOWN, DS_ALIKE, DS_NOT_ALIKE } alike; /* its devices, in kind and profile */
    int64_t replica; /* of a schematic plan: the coordinate on dp that it is about */
} ds_placement;

typedef enum ds_record_kind {
    DS_REC_INPUT,   /* present from time 0; no task */
    DS_REC_COMPUTE, /* one task on each device of its placement */
    DS_REC_COMM,    /* a rendezvous inside each group of devices */
    DS_REC_HALF     /* one rank's side of a per-rank send, recv or collective, matched later */
} ds_record_kind;

/* What occupies memory and why, for reports. */
#define DS_CATEGORY_MAP(X)                                                                         \
    X(WEIGHT, "weight")                                                                            \
    X(GRADIENT, "gradient")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(ACTIVATION, "activation")                                                                    \
    X(INPUT, "input")                                                                              \
    X(BUFFER, "buffer")
typedef enum ds_category {
#define DS_X(name, text) DS_CAT_##name,
    DS_CATEGORY_MAP(DS_X)
#undef DS_X
        DS_CATEGORY_COUNT
} ds_category;
const char *ds_category_name(ds_category category);

/* One way in which an op runs: one local shape and device setting. */
typedef struct ds_variant {
    int64_t ps;             /* COMPUTE: duration on this variant's devices */
    ds_work work;           /* COMPUTE */
    ds_cost cost;           /* COMPUTE: where `ps` comes from */
    int64_t *out_bytes;     /* per result: local bytes, 0 where the result does not live here */
    int64_t scratch_bytes;  /* COMPUTE: ds_op_scratch */
    uint32_t parts;         /* COMPUTE: bit i: operand i is smaller than operand 0 */
    int32_t extra_launches; /* COMPUTE: of ds_cost_query */
    int32_t calls;          /* COMPUTE: small kernels that the host issues beside */
    bool passes;            /* COMPUTE: of ds_cost_query */
    int64_t n_used;         /* COMPUTE: n_devices of ds_cost_query */
} ds_variant;

struct ds_coll_request;                   /* sim/coll/coll.h */
typedef struct ds_congruent ds_congruent; /* congruent.c */
struct ds_phase_time;

/* One group of a communication: who takes part, in ring order, and what it costs alone. */
typedef struct ds_group {
    const uint32_t *devices;
    uint32_t n_devices;
    uint32_t n_images; /* so many more groups, which are not listed, do the same elsewhere */
    uint32_t period;   /* member i + period is to the group what member i is (turn.c); 0: none */
    int64_t ps;
    int64_t bytes; /* nccl-tests size: the largest buffer of one member */
    const char *algorithm;
    uint64_t key;           /* hash of the devices: which communicator, which stream */
    uint64_t members, kind; /* traffic.c: hash of the devices in their order, and of what is done;
                               0: not asked for yet */
    /* What `ps` was computed from, for reports; NULL where the program states the cost. */
    const struct ds_coll_request *request;
    const ds_congruent *congruent; /* groups that are images of each other have one; NULL: none is
                                      looked for */
    ds_coll_cost terms;
    const struct ds_phase_time *times; /* of its phases alone */
    uint32_t n_phases;
    uint32_t n_flows; /* n_phases, or 0 if no phase loads a link that others may load (traffic.c) */
    const ds_flow *flows; /* `uses` as numbered by ds_sharing */
    /* Which links its phases load, once that has been looked at (traffic.c); else NULL. */
    const struct ds_load_shape *shape;
    const uint32_t *links;
} ds_group;

/* An op in one context: everything that its instances share. */
typedef struct ds_record {
    ds_record_kind kind;
    const struct ds_record_site *site; /* what it was made for */
    const ds_op *op;                   /* NULL: an input */
    const struct ds_record *like;      /* does what this one, which came before, does on the same
                                          devices, and shares its lists (alike.c); NULL: none */
    const ds_func *func;               /* whose values `op` refers to */
    const char *label;                 /* mnemonic, or "input" */
    ds_category category;              /* of its results, where nothing else says more (ds_vinst) */
    const uint32_t *devices;           /* members, ascending; variant_of[i] belongs to devices[i] */
    uint32_t n_devices;
    uint32_t *variant_of;
    ds_variant *variants;
    uint32_t n_variants;
    uint32_t n_out;
    ds_group *groups; /* COMM: a partition of the members; HALF: the one group */
    uint32_t n_groups;
    uint32_t *group_of;      /* COMM: per member */
    uint64_t stream;         /* {stream = "x"}: hash of the name, or DS_STREAM_COMPUTE; else 0 */
    uint64_t mask;           /* dropout: hash of what names its mask (key, turn); else 0 */
    uint64_t match_key;      /* HALF: hash of (source, destination, tag), or of the group */
    bool is_recv;            /* HALF */
    bool beside;             /* COMM: readers wait for its operands alone (passes/overlap/ep.c) */
    struct ds_record *sorts; /* of a schematic plan, where parts are unequal: what it is on each of
                                the `others`; NULL: the same */
    const char *terms;       /* HALF: what both ends must agree on, as text */
    /* Filled by classes.c: the classes of `devices`, ascending, each with its variant and stream.
     */
    uint32_t *classes;
    uint32_t *class_member; /* its representative's place in `devices` */
    uint32_t *class_variant;
    uint32_t *class_stream;
    uint32_t n_classes;
    /* COMM: which classes meet. Groups whose members are of the same classes are one meeting. */
    uint32_t *class_meeting;
    uint32_t *meeting_group; /* a group that stands for the meeting */
    uint32_t n_meetings;
} ds_record;

/* {stream = "compute"}: in line with compute. Other names have odd hashes. */
#define DS_STREAM_COMPUTE UINT64_C(2)

#define DS_NO_MICROBATCH INT64_MIN

/* Where an instance stands: a path of loop iterations and calls. */
typedef struct ds_scope {
    uint32_t up;         /* DS_NONE at the top */
    const ds_op *op;     /* FOR or CALL; NULL for a rank body or the entry */
    const ds_func *func; /* whose body `op` is in */
    int64_t index;       /* FOR: the iteration */
    int64_t microbatch;  /* of the call around it that says so; DS_NO_MICROBATCH: none does */
} ds_scope;

/* One execution of one record. Operands and results are value instances; an operand of the text
 * that is a range of a family is several. */
typedef struct ds_inst {
    uint32_t record;
    uint32_t scope;
    uint32_t first_operand; /* into plan->operands; ends where the next instance begins */
    uint32_t n_reads;       /* of the operands; the others are only waited for (`after`) */
    uint32_t first_value;   /* results are first_value … + n_out */
    uint32_t first_task;    /* tasks of its classes, in record->classes order; DS_NONE: no task */
} ds_inst;

/* A value instance: the buffer made by result `result` of instance `inst`. */
typedef struct ds_vinst {
    uint32_t inst;
    uint16_t result;
    uint8_t category; /* ds_category */
    bool is_output;   /* lives to the end */
    bool is_state;    /* overwrites `alias` whoever reads that: an optimizer's result */
    bool is_host;     /* in the memory of the devices' hosts */
    bool is_inside;   /* of a kernel: the value never has a buffer (saves.c) */
    uint32_t alias;   /* the value whose buffer it takes, or may take if it has no later reader;
                         DS_NONE: none */
    const char *name;
} ds_vinst;

/* Bytes that a kernel keeps beside a value, from the value's making to an op of the backward pass:
 * `bits` of each `of_bits`. A copy in fewer bits for products (saves.c), or what PyTorch's eager
 * mode keeps besides (saves_eager.c). */
typedef struct ds_plan_copy {
    uint32_t value;
    uint32_t until; /* instance */
    uint8_t bits, of_bits;
} ds_plan_copy;

/* A rendezvous of tasks, one per member class. */
typedef struct ds_activity {
    int64_t ps; /* while no other activity loads its links */
    const ds_group *group;
    uint32_t first_member; /* into plan->members */
    uint32_t n_members;
    uint32_t first_flow; /* into plan->flows; its phases, in order */
    uint32_t n_flows;    /* 0: it shares no link, and takes `ps` */
    bool orphan;         /* a member is missing for good: never starts */
    uint32_t first_step; /* into plan->steps: its messages, where the network is stepwise */
    uint32_t n_steps;
} ds_activity;

/* A message of a transfer (sim/coll/messages.h). */
typedef struct ds_plan_step {
    int64_t wait_ps;      /* latency, once what it waits for has ended */
    uint32_t flow;        /* into plan->flows; DS_NONE: it loads no link */
    uint32_t n_waits;     /* messages that must have ended before */
    uint32_t after, next; /* its neighbours in a pipeline over the same edge; DS_NONE: none */
    uint32_t first, n;    /* plan->step_succ[first … first + n) wait for it */
} ds_plan_step;

#define DS_PLAN_MOST_STEPS 30000000u

typedef struct ds_class {
    uint32_t device; /* representative: the lowest device */
    uint32_t n_devices;
    uint32_t kind; /* hardware catalogue */
    uint32_t profile;
    int64_t issue_ps;
    bool host_waits;   /* for what other stages send */
    uint64_t slow_q32; /* 2^32 · how many times as long compute takes beside a transfer */
} ds_class;

typedef struct ds_stream {
    uint32_t cls;
    uint64_t key;   /* 0: compute */
    uint32_t first; /* tasks in issue order: plan->stream_tasks[first … first + n) */
    uint32_t n;
} ds_stream;

/* The host of a class issues nothing more until a transfer has ended. */
typedef struct ds_pause {
    uint32_t task;    /* of the transfer, on the class */
    uint32_t before;  /* the pause before; DS_NONE */
    int64_t issue_ps; /* from the end of the pause before to its own begin, as task_issue_ps */
} ds_pause;

/* Turns of a loop that do the same (repeat.c). The instances of one turn stand for `times` turns, one
 * after the other; the turns before and after them have instances of their own. */
typedef struct ds_repeat {
    uint32_t first, end; /* instances */
    uint32_t up;         /* the repeat around it; DS_NONE */
    const ds_op *around; /* the op in whose body the loop stands; NULL: none */
    int64_t times;
    int64_t *issue_ps; /* per class: what its host issues in a turn */
} ds_repeat;

/* Before `task` all that was issued before it has ended, and nothing else has begun: there a repeat
 * begins or ends. In order of tasks. */
typedef struct ds_gate {
    uint32_t task, repeat;
    bool ends;
} ds_gate;

/* One of several programs that share the cluster. */
typedef struct ds_plan_job {
    const char *name;
    ds_loc loc;
    const ds_binding *binding; /* of the unit that holds its program */
    const ds_scenario
        *scenario;    /* stands for that unit's while the job is planned; NULL: its own */
    int64_t start_ps; /* its hosts issue nothing before */
    int64_t steps;    /* how often its program runs; what an optimizer updates goes into the next */
    uint32_t first_inst; /* set by ds_plan_build: its instances begin here, and its records */
    uint32_t first_record;
} ds_plan_job;

typedef struct ds_plan {
    ds_arena arena;
    const ds_binding *binding;
    const ds_profiles *profiles;
    ds_topo *topo; /* owned, unless borrowed; NULL: schematic */
    bool borrows_topo;
    DS_VEC(ds_placement *) placements;
    DS_VEC(ds_record *) records;
    /* Large arrays are on the heap, one block each. */
    DS_VEC(ds_inst) insts;
    DS_VEC(ds_vinst) values;
    DS_VEC(uint32_t) operands;
    DS_VEC(ds_scope) scopes;
    DS_VEC(ds_plan_copy) copies;
    DS_VEC(ds_repeat) repeats; /* by their first instances, outer before inner */
    uint32_t *repeat_of;       /* per instance: the innermost; DS_NONE. NULL without repeats */
    ds_gate *gates;
    uint32_t n_gates;
    int64_t overhead_ps; /* after the last task: the step's fixed cost, which no task stands for */
    /* per device */
    uint32_t n_devices;
    uint32_t *kind_of;
    uint32_t *profile_of;
    uint32_t *rank_of;       /* per-rank programs: the device's rank, DS_NONE without; else NULL */
    uint32_t *class_of;      /* DS_NONE: the program does not use the device */
    const ds_plan_job *jobs; /* in order of their instances; NULL without */
    uint32_t n_jobs;
    uint32_t *job_of;  /* per device, DS_NONE: of none; NULL without jobs */
    uint32_t *host_of; /* vertex of its host, DS_NONE: none; NULL: nothing is offloaded */
    ds_class *classes;
    uint32_t n_classes;
    /* tasks, structure of arrays */
    uint32_t n_tasks;
    uint32_t *task_inst;
    uint32_t *task_class;
    uint32_t *task_stream;
    uint32_t *task_activity; /* DS_NONE: compute */
    int64_t *task_ps;        /* compute duration; 0 for communication */
    int64_t *task_issue_ps;  /* earliest start, after the pause: when the host has issued it */
    uint32_t *task_pause;    /* the host's last pause before it; DS_NONE; NULL: no host pauses */
    ds_pause *pauses;
    uint32_t n_pauses;
    uint32_t *task_n_pred; /* dependences on other streams */
    uint32_t *succ_first;  /* n_tasks + 1 */
    uint32_t *succ;
    ds_activity *activities;
    uint32_t n_activities;
    uint32_t *members;
    /* what activities share (flows.c): a flow for each meeting and phase */
    ds_flow *flows;
    uint32_t n_flows;
    ds_plan_step *steps; /* stepwise; else NULL */
    uint32_t n_steps;
    uint32_t *step_succ;
    ds_link_use *link_uses;     /* of all flows, in order */
    ds_u128 *link_capacity_q20; /* per class of shared links */
    uint32_t n_links;
    ds_stream *streams;
    uint32_t n_streams;
    uint32_t *stream_tasks;
    bool per_rank;
    ds_cost_mode cost_mode;
    ds_kernel_stack stack;        /* of the framework: what stays in memory */
    ds_kernel_stack loss, norms;  /* of the loss and of RMSNorm: what stays in memory */
    ds_kernel_stack kernels;      /* what is launched: `stack`, or ops without the term `kernels` */
    const char *attention_kernel; /* a word of ds_cost_query.kernel; NULL: that of the stack */
    bool cuda_graphs;             /* the host issues nothing */
    bool host_waits;              /* for what other stages send, with generic profiles */
    int64_t samples;              /* per step, for throughput; 0: not stated */
    const char *title;
    bool unfolded;     /* every device is a class of its own */
    bool sorts_differ; /* schematic: the others differ not only in sizes */
} ds_plan;

/* About 2 GB of plan. A program beyond it is more likely a slip of the pen than a training step. */
#define DS_PLAN_MAX_INSTANCES 20000000u

/* Costs of collectives and the links that they load, kept from one plan to the next of the same
 * topology and profiles. One thread at a time uses a ground. The ground never changes a plan, and a
 * finished plan does not need the ground. */
typedef struct ds_plan_ground ds_plan_ground;
ds_plan_ground *ds_plan_ground_new(void);
void ds_plan_ground_free(ds_plan_ground *ground);

typedef struct ds_plan_schematic {
    uint32_t kind, profile;
    int64_t replica;       /* coordinate on dp whose unequal parts the devices have */
    int64_t clock_ppb;     /* of all devices (ds_topo_device_clock) */
    int64_t power_mw;      /* the same (ds_topo_device_power_mw) */
    int64_t n_devices;     /* of the program */
    const int64_t *others; /* ds_plan_take_sort is going to ask for these replicas */
    uint32_t n_others;
    bool apart; /* set while one of the others is made: its placements are shared with no other */
} ds_plan_schematic;

typedef struct ds_plan_options {
    uint32_t max_instances; /* 0: DS_PLAN_MAX_INSTANCES */
    bool unfold;            /* every device is a class of its own */
    uint32_t unfold_up_to;  /* the same, if it makes no more tasks than this */
    bool stepwise;          /* transfers message by message; implies unfold */
    ds_cost_mode cost_mode;
    ds_plan_ground *ground; /* NULL: none */
    /* The structure alone: what each device of a mesh slice does is on one device, numbered by the
     * slice's coordinates; collectives and sends are there, with their bytes, but take no time.
     * For strategies' programs on equal devices of this kind (search/compose). */
    const struct ds_plan_schematic *schematic; /* NULL: a plan to be run */
    ds_topo *topo; /* the scenario's, made before; must outlive the plan. NULL: it is made */
    const ds_plan_job *jobs; /* what runs in place of the scenario's program */
    uint32_t n_jobs;         /* 0: the scenario's program */
    /* Of each turn of a layer every second product, from the first one on, is checkpointed: eager
     * mode keeps its result (saves_eager.c). */
    bool keeps_products;
    /* Loops of so many turns or more whose turns do the same are followed for three turns (repeat.c);
     * 0: no loops. Followed whole are the loops in the bodies of `whole` (NULL among them: in none),
     * of the others the first `repeats_from` that are met, and all loops over `whole_dim`. */
    uint32_t repeat_turns, repeats_from;
    const ds_op *const *whole;
    uint32_t n_whole;
    const char *whole_dim; /* NULL: none */
} ds_plan_options;

/* Where the costs of a device kind come from. */
typedef struct ds_cost_source {
    uint32_t kind;
    uint32_t profile; /* 0: the catalogue's peaks */
    bool is_default;  /* the scenario names no profile for the kind */
} ds_cost_source;
/* The last profile of `profile`, else of `profiles`, that is of the kind; else, if one of them is
 * ideal, none; if one is generic, the generic profile of the kind; the default of the kind. Errors:
 * an unknown profile, a kind without a generic profile. */
ds_status ds_plan_profile_of(const ds_binding *binding, const ds_profiles *profiles, uint32_t kind,
                             ds_cost_source *out, ds_error *err);

/* The stack whose curves an op takes: the loss may have one of its own. */
ds_kernel_stack ds_plan_kernels_of(const ds_plan *plan, const ds_op *op);

/* Builds the plan of the unit's scenario, which must say `program`. The unit must be verified and
 * bound. With jobs, their programs run beside each other, each on devices of its own; what they
 * call the cluster must be one topology, and `binding` is what the plan counts as its source.
 * Errors: a scenario without a program, unknown hardware or profile names, unreachable devices,
 * missing costs, a device of two jobs. O(instances + tasks). */
ds_status ds_plan_build(const ds_binding *binding, const ds_profiles *profiles,
                        const ds_plan_options *options, ds_plan **out, ds_error *err);
void ds_plan_free(ds_plan *plan);

/* Makes a schematic plan that of its i-th other replica, in times and bytes. O(records + tasks). */
void ds_plan_take_sort(ds_plan *plan, uint32_t i);

/* One communication of a skeleton: over axes of a stage, as its op says, or to another stage. */
typedef struct ds_plan_meet {
    const ds_op *op; /* its code, axes and attributes count */
    int64_t bytes;   /* ds_group.bytes */
    uint64_t stream; /* ds_record.stream */
    uint32_t from, to;
} ds_plan_meet;

typedef struct ds_plan_meets {
    const ds_plan_meet *at;
    uint32_t n;
} ds_plan_meets;

/* Stages of one shape: devices 0 … as a mesh with these axes, outer → inner, of which `pp` counts
 * stages. Names belong to the binding's unit. */
typedef struct ds_plan_grid {
    const char *axes[4];
    int64_t sizes[4];
    uint32_t n_axes;
    const int64_t *replicas; /* ascending coordinates on dp, from which on devices are of another
                                sort; the first is 0; NULL: all are alike */
    uint32_t n_replicas;
} ds_plan_grid;

/* The plan of the meetings alone, each once, in their order: instance i is meets[i]; behind them a
 * compute task on each stage, whose duration in ps is the sort of its replicas. Its classes,
 * streams, flows and durations are those that these have in any program of theirs; it has no
 * records any more. The options have a topology; the binding's unit is that of the ops. Errors: as
 * of ds_plan_build. O(devices · meets of a stage). */
ds_status ds_plan_skeleton(const ds_binding *binding, const ds_profiles *profiles,
                           const ds_plan_options *options, const ds_plan_grid *grid,
                           ds_plan_meets meets, ds_plan **out, ds_error *err);

/* Which job an instance belongs to: an index into plan->jobs; 0 without. O(jobs). */
uint32_t ds_plan_job_of(const ds_plan *plan, uint32_t inst);
/* "main/layers[3]/fc1": the path of an instance's op; of a job "train/step/fc1", where it takes
 * several steps "train[2]/step/fc1". */
void ds_plan_path(const ds_plan *plan, uint32_t inst, ds_buf *out);
/* Parts of that path: of a scope "layers[3]", of the op itself "fc1". */
void ds_plan_scope_name(const ds_plan *plan, uint32_t scope, ds_buf *out);
const char *ds_plan_inst_name(const ds_plan *plan, uint32_t inst);
/* The same with the device or rank in front: "gpu[0]: main/…". */
void ds_plan_task_label(const ds_plan *plan, uint32_t task, ds_buf *out);

static inline const ds_record *ds_plan_task_record(const ds_plan *plan, uint32_t task) {
    return plan->records.at[plan->insts.at[plan->task_inst[task]].record];
}
static inline uint32_t ds_plan_n_operands(const ds_plan *plan, uint32_t inst) {
    uint32_t end =
        inst + 1 < plan->insts.n ? plan->insts.at[inst + 1].first_operand : plan->operands.n;
    return end - plan->insts.at[inst].first_operand;
}
static inline uint32_t ds_plan_n_reads(const ds_plan *plan, uint32_t inst) {
    return plan->insts.at[inst].n_reads;
}
/* How many executions an instance stands for. O(nested repeats). */
int64_t ds_plan_times(const ds_plan *plan, uint32_t inst);
/* Bytes of a narrow copy of a value of so many bytes. */
static inline int64_t ds_plan_copy_bytes(const ds_plan_copy *copy, int64_t bytes) {
    return bytes / copy->of_bits * copy->bits;
}
/* Position of a class in record->classes, DS_NONE if it has no part. O(log classes). */
uint32_t ds_record_class_pos(const ds_record *record, uint32_t cls);
const ds_variant *ds_plan_task_variant(const ds_plan *plan, uint32_t task);

#endif
