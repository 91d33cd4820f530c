#ifndef DS_COMPOSE_INTERNAL_H
#define DS_COMPOSE_INTERNAL_H

#include "ir/base/map.h"
#include "search/compose/compose.h"
#include "sim/run/spans.h"

/* Items of a group that differ: those of the first microbatch, of the second (whose sums come from
 * the first), of one in the middle (whose sums come from one of its text), of the last. A step of
 * fewer microbatches has no more than these. */
enum { DS_SIBLING = 4, DS_MIDDLE = 2 };

/* Another part, as seen from one of microbatch k. */
typedef enum ds_when {
    DS_SAME, /* of the same microbatch */
    DS_PREV, /* `turn` before it, 1 or 2, in the order of its kind */
    DS_AT, /* the sibling's `turn` of the group; from the tail, where DS_MIDDLE is each of 2 … m -
              2, and from anywhere in a whole step */
} ds_when;

typedef struct ds_source {
    uint8_t kind;       /* F, B, W; 0 without a pipeline */
    uint8_t when, turn; /* 0 of DS_SAME */
    bool is_relative;   /* chunk: counted from the part's own; else below 0 from the last one on */
    int32_t chunk;
    int32_t post; /* which of the item's sends; -1: the item */
} ds_source;

/* One event of the timeline: a compute task, or a transfer with all its members. */
typedef struct ds_unit_task {
    int64_t ps;
    uint32_t transfer;      /* into the part's transfers; DS_NONE: compute */
    uint32_t cls;           /* of compute; into the part's classes, as all of them here */
    uint32_t inst;          /* in the plan that the parts were read from */
    uint32_t slot, n_slots; /* body->slots[slot …): its streams, as places in part->streams */
    uint32_t pred, n_preds; /* body->preds[pred …): a unit of the part, or EXT + an external one */
    uint8_t dtype;          /* of a product: ds_work */
    bool each; /* of the tail: there for each of the microbatches 2 … m - 2, one after another */
    int64_t flop; /* of a product; else 0 */
} ds_unit_task;
#define DS_EXT 0x80000000u

typedef struct ds_external {
    ds_source source;
    uint32_t unit; /* of the source's part */
} ds_external;

typedef struct ds_alloc {
    uint32_t unit, cls;
    int64_t bytes;
} ds_alloc;

/* At the latest end among users. Or, if all others have ended when the user `taker` starts, then:
 * its result takes the buffer. That is so on all classes of a value, or on none. */
typedef struct ds_free {
    uint32_t cls, first, n; /* body->users[first …) */
    int64_t bytes;
    uint32_t taker; /* unit; DS_NONE: nobody takes it */
    uint32_t value; /* frees of one value stand together */
} ds_free;

/* Must hold, or the sibling's buffers are not those of the step. */
typedef struct ds_before {
    bool local;
    ds_source source; /* not local: of this part … */
    uint32_t unit;    /* … the unit has ended … */
    uint32_t until;   /* … when this unit starts, or (n_units + i) when frees[i] happens */
} ds_before;

/* Level of memory on one class, relative to what was there before the part: after each instant. */
typedef struct ds_curve {
    uint32_t n;
    int64_t *at_ps; /* ascending */
    int64_t *level;
    int64_t *most; /* of each block of 32 */
} ds_curve;

/* Of one class in one timing: when it computes, and when it communicates. */
typedef struct ds_busy {
    uint32_t n_compute, n_comm;
    ds_span *compute, *comm;
    int64_t start_ps, end_ps; /* its first task starts, its last one ends */
    int64_t compute_ps, exposed_ps;
} ds_busy;

/* How a part went, given the state of its streams and inputs: relative to the executions' base. */
typedef struct ds_timing {
    uint64_t hash;
    struct ds_timing *next;
    const struct ds_body *body;
    ds_arena *arena;      /* of a timeline, whose own it is; NULL: on the heap, kept by its body */
    int64_t *key;         /* [n_streams + n_exts]; NULL: not to be found again */
    int64_t *start, *end; /* per chain */
    int64_t *free_ps;     /* per stream */
    int64_t all_end;
    int64_t flows_from, flows_to; /* of an opaque part: its transfers load links only then */
    bool held;                    /* a sibling's use of buffers is known to hold */
    uint32_t n_uses;              /* executions that went so; of a timeline's own */
    /* per class, of those that others have, too (ds_compose__shares); made when asked for */
    ds_curve *curves;
    uint32_t n_curves;
    ds_busy *busy;
    uint32_t n_busy;
} ds_timing;

/* Is what is found out about a timing worth keeping? */
static inline bool ds_compose__shares(const ds_timing *t) {
    return !t->arena || t->n_uses > 1;
}
/* `count` zeroed objects with a timing's own lifetime. */
static inline void *ds_compose__room(const ds_timing *t, size_t count, size_t size) {
    return t->arena ? ds_arena_calloc(t->arena, count, size) : ds_xcalloc(count, size);
}

/* Units that follow each other without a gap: each `next` one, from `first` to `last`, in `ps`
 * altogether. */
typedef struct ds_chain {
    uint32_t first, last;
    uint32_t need;          /* body->needs[need … that of the next chain): what it waits for */
    uint32_t slot, n_slots; /* of `first` */
    uint32_t transfer;      /* into the part's transfers; DS_NONE: compute */
    int64_t ps;
} ds_chain;

/* What a chain waits for. */
typedef enum ds_need_kind {
    DS_NEED_ORDER,  /* a chain before it on one of its streams */
    DS_NEED_STREAM, /* a stream of the part, on which it is the first */
    DS_NEED_CHAIN,  /* what a chain is about to make: less_ps before it ends */
    DS_NEED_EXT,    /* an external */
} ds_need_kind;
typedef struct ds_need {
    uint32_t kind, at;
    int64_t less_ps;
} ds_need;

/* When a buffer is freed: as the unit ends, or starts; DS_NONE: not known without times. */
typedef struct ds_leave {
    uint32_t unit, at_start;
} ds_leave;

/* What a part does, wherever: parts of alike chunks have one body. */
typedef struct ds_body {
    DS_VEC(ds_unit_task) units;
    DS_VEC(uint32_t) slots;
    DS_VEC(uint32_t) preds;
    DS_VEC(ds_external) exts;
    DS_VEC(uint32_t) stream_cls; /* per stream of the part: its class there */
    DS_VEC(ds_alloc) allocs;
    DS_VEC(ds_free) frees;
    DS_VEC(uint32_t) users;
    DS_VEC(ds_before) checks;
    uint32_t n_classes;
    ds_map timings; /* of those timed as a whole */
    /* chains.c */
    ds_need *needs;
    int64_t *after_ps; /* per unit: it starts so much later than its chain; owns all that follow */
    ds_chain *chains;  /* and one behind the last */
    uint32_t n_chains;
    uint32_t *chain_of, *next; /* per unit; DS_NONE: the last one of its chain */
    ds_leave *leave;           /* per free */
    uint32_t *follow;   /* per slot of a chain's first unit: the chain behind it on that stream;
                           EXT + place, if it is the last; DS_NONE: as another slot */
    uint32_t *first_on; /* per stream: the first chain on it */
    uint32_t *heads, n_heads; /* chains with no other before them on any stream */
    /* per class: changes[first_change[c] … first_change[c + 1]): allocs, and allocs.n + frees, in
     * the order in which they came last; chains, likewise */
    uint32_t *changes, *first_change;
    uint32_t *visitors, *first_visitor;
} ds_body;

typedef struct ds_transfer {
    uint32_t activity; /* of the plan */
    uint32_t stream;   /* of its first member: place in part->streams */
} ds_transfer;

/* A run of instances of the sibling, and where it takes place. */
typedef struct ds_part {
    uint32_t group;
    uint8_t turn; /* which of its group, in the order of the program */
    uint8_t mb;   /* microbatch of the sibling */
    int32_t post; /* which of its item's sends; -1: an item */
    bool tail;
    bool opaque; /* may be timed as a whole */
    bool flows;  /* … as long as nobody else loads the links of its transfers (links.c) */
    const ds_func *callee;
    uint32_t first_inst, end_inst;
    ds_body *body;
    DS_VEC(uint32_t) streams;
    DS_VEC(uint32_t) classes; /* on which it has units */
    DS_VEC(ds_transfer) transfers;
    DS_VEC(uint32_t) links; /* of an opaque part with flows: shared ones that these load */
} ds_part;

typedef struct ds_sibling {
    const ds_plan *plan; /* whose activities, flows, streams and classes parts refer to */
    int64_t m;           /* microbatches */
    uint32_t n_turns;    /* items of a group that the parts tell apart: the least of m and 4 */
    uint32_t n_chunks;   /* 1 without a pipeline */
    uint32_t n_groups;   /* kinds F, B, W times chunks; 1 without a pipeline */
    ds_part *parts;      /* items: group · DS_SIBLING + turn; then sends; the tail is the last */
    uint32_t n_parts, cap_parts;
    DS_VEC(ds_body *) bodies;       /* all of them; owned */
    bool cautious;                  /* no item with flows is timed as a whole */
    bool followed;                  /* no item is */
    bool uncut;                     /* no period is cut out: set where buffers are freed late */
    bool whole;                     /* it is the step itself, in the order of its schedule */
    uint32_t *first_post, *n_posts; /* per item part */
    int64_t *input_bytes;           /* per class: inputs that are there all the time */
    int64_t *each_bytes;            /* per class: those of one of the microbatches 2 … m - 2 */
    const char *why;                /* NULL, or what is not of the known kind */
    uint64_t timed;                 /* units of items that were timed */
    /* of the plan that parts are read from */
    uint32_t *owner;   /* per instance: part; DS_NONE: an input */
    uint32_t *unit_of; /* per task: unit of its owner */
    bool *is_each;     /* per instance of the tail */
} ds_sibling;

static inline const ds_activity *ds_compose__activity(const ds_sibling *s, const ds_part *part,
                                                      const ds_unit_task *unit) {
    return &s->plan->activities[part->transfers.at[unit->transfer].activity];
}
/* How often the tail has a unit that is there for each microbatch in the middle. */
static inline uint32_t ds_compose__n_each(const ds_sibling *s) {
    return s->m > DS_SIBLING ? (uint32_t)s->m - (DS_SIBLING - 1) : 1;
}

static inline const ds_stop *ds_compose__stop(const ds_sibling *s) {
    return s->plan->binding->unit->stop;
}
#define DS_COMPOSE_OVER "the time limit has passed"
bool ds_compose__unknown(ds_sibling *s, const char *why); /* false, for the caller to return */

/* parts.c: parts, units, what waits for what. n_chunks: 0 without a pipeline. */
bool ds_compose__parts(ds_sibling *s, const ds_plan *plan, int64_t m, uint32_t n_chunks);
/* buffers.c: which buffers parts take and free. */
bool ds_compose__buffers(ds_sibling *s, bool keep_masks);
/* chains.c: the body's chains and leavers, if they are not known yet. */
void ds_compose__chains(ds_body *body);
static inline int64_t ds_compose__start(const ds_body *body, const ds_timing *t, uint32_t unit) {
    return t->start[body->chain_of[unit]] + body->after_ps[unit];
}
static inline int64_t ds_compose__end(const ds_body *body, const ds_timing *t, uint32_t unit) {
    uint32_t chain = body->chain_of[unit];
    if (unit == body->chains[chain].last) return t->end[chain];
    return t->start[chain] + body->after_ps[unit] + body->units.at[unit].ps;
}
/* links.c: which items may be timed as a whole, though their transfers may share links. */
void ds_compose__opaque(ds_sibling *s);
ds_part *ds_compose__add_part(ds_sibling *s);
ds_body *ds_compose__add_body(ds_sibling *s);
/* What is needed only while parts are read from a plan. */
void ds_compose__reading_deinit(ds_sibling *s);
void ds_compose__parts_deinit(ds_sibling *s);
void ds_compose__timings_deinit(ds_sibling *s);
void ds_compose__timing_free(ds_timing *t);
/* The place of a class of the plan among those of the part. */
uint32_t ds_compose__class_place(const ds_part *part, uint32_t cls);
bool ds_compose__source(ds_sibling *s, const ds_part *from, uint32_t owner, ds_source *out);
/* Does part a come before part b wherever one rank has both, in every schedule that the sibling
 * stands for? The sibling's own order says so only of a whole step. O(1). */
bool ds_compose__in_order(const ds_sibling *s, uint32_t a, uint32_t b);

/* One execution of a part. Its times are those of the contracted timeline, from which all but one
 * of the periods that repeat are cut out; those of the step are late_ps later. */
typedef struct ds_exec {
    uint32_t part, mb, turn;
    int64_t base_ps, late_ps;
    ds_timing *timing;
    bool opaque;   /* timed as a whole */
    bool is_cut;   /* goes as one of the period that is left has gone: timing is that one's */
    uint32_t live; /* while it is followed (solver.h); DS_NONE */
} ds_exec;

/* A stretch of the contracted timeline that comes so many times more. */
typedef struct ds_cut {
    int64_t from_ps, to_ps;
    int64_t times;
    int64_t *growth_bytes; /* per class: by how much more memory is taken after it than before */
} ds_cut;

typedef struct ds_timeline {
    ds_sibling *s;
    ds_exec *execs; /* items and sends, in the order of their ranks; the tail is the last */
    uint32_t n_execs;
    uint32_t *of_mb, *of_turn; /* per group · m + mb, and + turn: the item */
    DS_VEC(ds_cut) cuts;       /* in order of time */
    int64_t cut_ps;            /* by how much the contracted timeline is shorter */
    int64_t step_ps;
    uint64_t n_timed, n_repeated; /* executions that are cut out */
    ds_arena arena;               /* timings of those followed unit by unit */
} ds_timeline;

typedef struct ds_order {
    uint32_t group, mb;
} ds_order;

/* The executions, rank by rank, and when they happen, in the contracted timeline. */
bool ds_compose__timeline(ds_sibling *s, const ds_order *order, uint32_t n_order,
                          const uint32_t *rank_of, ds_timeline *out);
void ds_compose__timeline_deinit(ds_timeline *t);
/* The execution that a source is of; for DS_AT of the middle the last of them. */
uint32_t ds_compose__exec(const ds_timeline *t, const ds_source *source, const ds_exec *from);

/* An execution on a class: from when to when, and what it does there. */
typedef struct ds_visit {
    int64_t start_ps, end_ps, base_ps;
    const void *of; /* ds_busy or ds_curve */
} ds_visit;

/* visits.c: executions by class, but those that are cut out. */
typedef struct ds_visitor {
    uint32_t exec, k; /* its k-th class */
} ds_visitor;
typedef struct ds_visits {
    ds_visitor *from;
    uint32_t *first; /* per class: from[first[c] … first[c + 1]) */
    ds_visit *at;    /* of the class that has been looked at last; and as much room */
    uint32_t most;
} ds_visits;
void ds_compose__visits_init(const ds_timeline *t, ds_visits *out);
void ds_compose__visits_deinit(ds_visits *visits);
/* What an execution has for its k-th class; false: nothing. */
typedef bool ds_visit_fn(void *context, const ds_exec *e, uint32_t k, ds_visit *out);
/* Looks at all of a class, in their order: visits->at is then in order of start, then end. Returns
 * how many there are. */
uint32_t ds_compose__visits(const ds_timeline *t, const ds_visits *visits, uint32_t cls,
                            ds_visit_fn *look, void *context);
/* By start, then end; fast where nearly sorted. `room` is for n of them. */
void ds_compose__sort(ds_visit *at, uint32_t n, ds_visit *room);

/* links.c: has nobody loaded the links of those while they did? */
bool ds_compose__apart(const ds_timeline *t);
/* weigh.c: peaks per class, of inputs and what the executions hold. */
bool ds_compose__weigh(const ds_timeline *t, const ds_visits *visits, int64_t *peak_bytes);
/* account.c: accounts of the classes, the critical one, the bubble; MFU, if the model needs
 * `model_flop` (0: not known). */
void ds_compose__account(const ds_timeline *t, const ds_visits *visits, double model_flop,
                         ds_composed *out);

#endif
