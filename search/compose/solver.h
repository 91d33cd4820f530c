/* The timeline while it is being found; not a public header. */
#ifndef DS_COMPOSE_SOLVER_H
#define DS_COMPOSE_SOLVER_H

#include "ir/base/heap.h"
#include "search/compose/internal.h"
#include "sim/net/net.h"

#define DS_UNKNOWN (-1) /* a time that is not settled yet */

/* A chain of an execution that is followed; of one that is timed as a whole, 0: all of it. */
typedef struct ds_spot {
    uint32_t live, chain; /* live DS_NONE: none */
} ds_spot;

/* An execution on one of its streams. */
typedef struct ds_live_stream {
    uint32_t after, after_place; /* the execution that comes next on it, once made; DS_NONE */
    bool blocked;                /* the one before has not ended there */
} ds_live_stream;

/* An execution between when it is made and when all of it is settled. A chain waits for one thing
 * at a time: while there is something before it on its streams, for that, and then for the first of
 * its needs that is not known. */
typedef struct ds_live {
    uint32_t exec, n_left; /* chains that are not settled */
    uint32_t part, next_spare;
    /* period.c: when the first of its chains started, and what is settled, relative to that */
    int64_t since_ps;
    uint64_t sum_a, sum_b;
    int64_t *start, *end;   /* per chain, not relative to anything; DS_UNKNOWN */
    int64_t *exts;          /* per external: when it is there, or DS_UNKNOWN */
    uint32_t *met;          /* per chain: of its needs on streams, those before are met */
    ds_spot *waiters;       /* per chain: the first that waits for it … */
    ds_spot *next;          /* … and per chain: the next that waits for what it waits for */
    ds_live_stream *places; /* per stream of the part */
} ds_live;

/* The transfer on a stream that shares links, from when it may start on. */
typedef struct ds_flight {
    ds_spot spot;
    uint32_t flow, end_flow; /* the one it is in, or waits for; one behind its last */
    int64_t next_ps;         /* until when it waits; DS_FLOWING */
} ds_flight;
#define DS_FLOWING INT64_MAX

/* The executions of one rank, which follow each other, as far as they have been made. */
typedef struct ds_solver_rank {
    uint32_t made, end; /* executions */
    uint32_t n_open;    /* items that have been made and are not over yet */
    uint32_t past;      /* all executions before have ended by now (period.c) */
} ds_solver_rank;

typedef struct ds_period ds_period;

typedef struct ds_solver {
    ds_sibling *s;
    ds_timeline *t;
    const ds_plan *plan;
    const uint32_t *rank_of;
    ds_solver_rank *ranks;
    uint32_t n_ranks;
    uint32_t first_rank; /* whose settled items periods are counted by: that of the first item */
    bool ahead;          /* items are made shortly before they are run */
    bool complete;       /* all have been made */
    DS_VEC(ds_live *) lives;
    uint32_t *spare;         /* per part: a live that is free; `next_spare` leads to more */
    uint64_t n_lives;        /* that are not free */
    DS_VEC(ds_spot) ready;   /* may be settled */
    DS_VEC(uint32_t) hungry; /* ranks that may want more executions */
    ds_spot *waiting;        /* per execution that has not been made: the first that waits for it */
    bool *is_run;            /* per part: there are executions of it */
    bool *is_last;           /* per execution: a transfer of the tail waits for it */
    ds_spot *last;           /* per stream: the live, and its place, that is last on it */
    ds_flight *flights;      /* per stream */
    int64_t *free_ps;        /* per stream */
    int64_t *key;            /* room for one */
    ds_map timings;          /* of executions that were followed: hash → ds_timing */
    ds_heap heap;            /* streams whose transfers wait; DS_WAKE | ranks */
    ds_net *net;
    int64_t now_ps;
    uint32_t n_items; /* of the first rank, that are settled */
    bool late;
    bool over;      /* the time was */
    uint32_t polls; /* since the time was looked at */
    ds_period *period;
} ds_solver;

static inline ds_part *ds_solver__part(const ds_solver *x, uint32_t exec) {
    return &x->s->parts[x->t->execs[exec].part];
}
static inline uint32_t ds_solver__rank(const ds_solver *x, uint32_t exec) {
    return x->rank_of[ds_solver__part(x, exec)->group];
}

static inline ds_live *ds_solver__live(const ds_solver *x, uint32_t exec) {
    uint32_t live = x->t->execs[exec].live;
    return live == DS_NONE ? NULL : x->lives.at[live];
}

/* timeline.c: what is there by now of all that is to be read by what is under way. */
void ds_solver__read_exts(ds_solver *x);
/* timings.c: the timing of an execution that is over, from `times` relative to its earliest start;
 * executions that went alike share one. */
ds_timing *ds_solver__own_timing(ds_solver *x, const ds_body *body, const int64_t *times);
/* The timing of an opaque body from the state of its streams and reads, relative to the earliest. */
ds_timing *ds_solver__timing_of(ds_solver *x, ds_body *body, const int64_t *key);
/* period.c: passes over periods of the schedule that go as one before has gone. To be asked
 * whenever an item of the first rank has been settled, and nothing is ready. */
void ds_period_skip(ds_solver *x);
/* To be told of each chain that is settled. */
void ds_period_note(ds_live *live, uint32_t chain);
void ds_period_free(ds_period *period);

#endif
