/* Steps that are made again and again, each from where the last one like it began; not a public
 * header.
 *
 * What passes make of a model up to `recompute` is the same for many candidates of a sweep, and up
 * to `shard` for neighbours. Programs are kept there (ir/passes/snapshot.h), and lent: what is read
 * of a step must be read before it is given back.
 *
 * Up to `recompute` sizes are expressions over params, and no pass reads their values. The size of a
 * microbatch is bound late: one program behind `recompute` serves microbatches of all sizes. */
#ifndef DS_COMPOSE_PROGRAMS_H
#define DS_COMPOSE_PROGRAMS_H

#include "ir/passes/snapshot.h"

typedef struct ds_kept_step ds_kept_step;

typedef struct ds_programs {
    DS_VEC(ds_kept_step *) all; /* each behind `recompute`, but the one that has been lent last: */
    ds_kept_step *lent;
    ds_step_mark *recompute, *shard; /* its marks */
    bool is_sharded;                 /* it is kept behind `shard` */
    uint64_t shard_key;              /* of the last program there */
    uint64_t turn;                   /* how many programs were asked for */
} ds_programs;

void ds_programs_deinit(ds_programs *programs);

/* A step that is wanted. Two wishes have a key in common if the program behind `recompute`, or
 * `shard`, is the same for both: all but ds_step_unread is in it, and behind `recompute` all but
 * `samples`. */
typedef struct ds_program_wish {
    uint64_t recompute_key, shard_key;
    int64_t samples; /* of a microbatch, on all replicas; 0: the source alone says how many */
    const ds_binding *source;
    const ds_strategy *strategy; /* of the source */
    /* What is other than the strategy says; called when that has been read. */
    void (*change)(void *context, ds_model_step *step);
    void *context;
} ds_program_wish;

/* The step behind `overlap`, schematic. It is lent, even after an error, until ds_programs_done;
 * *out is NULL after one. Errors: those of the passes. */
ds_status ds_programs_lend(ds_programs *programs, const ds_program_wish *wish, ds_model_step **out,
                           ds_error *err);
void ds_programs_done(ds_programs *programs);

#endif
