/* Programs between passes. What is kept is bounded: those not asked for the longest go. */
#include "search/compose/programs.h"

#include <stdlib.h>
#include <string.h>

/* Of a worker: a transformer's program takes half a megabyte, with 52 chunks ten. */
#define MOST_BYTES ((size_t)64 << 20)

struct ds_kept_step {
    uint64_t recompute_key;
    int64_t samples; /* of the wish that it was made for */
    bool is_open;    /* it can be bound to other microbatches */
    ds_model_step *step;
    uint64_t turn; /* when it was asked for last */
};

static void free_program(ds_kept_step *p) {
    ds_model_step_free(p->step);
    free(p);
}

void ds_programs_deinit(ds_programs *programs) {
    for (uint32_t i = 0; i < programs->all.n; i++) free_program(programs->all.at[i]);
    free(programs->all.at);
    ds_step_mark_free(programs->shard);
    ds_step_mark_free(programs->recompute);
    *programs = (ds_programs){0};
}

/* ---- room ---- */

static size_t bytes_of(const ds_kept_step *p) {
    const ds_unit *unit = p->step->unit;
    return unit->arena.bytes + unit->strings.arena.bytes +
           unit->exprs.nodes.cap * sizeof *unit->exprs.nodes.at;
}

static void make_room(ds_programs *programs) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < programs->all.n; i++) bytes += bytes_of(programs->all.at[i]);
    while (bytes > MOST_BYTES && programs->all.n > 1) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < programs->all.n; i++)
            if (programs->all.at[i]->turn < programs->all.at[oldest]->turn) oldest = i;
        bytes -= bytes_of(programs->all.at[oldest]);
        free_program(programs->all.at[oldest]);
        programs->all.at[oldest] = programs->all.at[--programs->all.n];
    }
}

/* ---- a wish ---- */

static ds_status make(ds_programs *programs, const ds_program_wish *wish, ds_kept_step **out,
                      ds_error *err) {
    ds_model_step *step;
    DS_TRY(ds_model_step_new(wish->source, &step, err));
    step->brief = step->trusted = step->schematic = true;
    if (wish->change) wish->change(wish->context, step);
    ds_status status = ds_model_step_run_to(step, DS_PASS_RECOMPUTE, NULL, NULL, err);
    if (status != DS_OK) {
        ds_model_step_free(step);
        return status;
    }
    *out = ds_xcalloc(1, sizeof **out);
    (*out)->recompute_key = wish->recompute_key;
    (*out)->samples = wish->samples;
    (*out)->is_open = wish->samples && ds_step_samples(step) == wish->samples;
    (*out)->step = step;
    DS_HPUSH(&programs->all, *out);
    return DS_OK;
}

static ds_kept_step *find_step(const ds_programs *programs, const ds_program_wish *wish) {
    for (uint32_t i = 0; i < programs->all.n; i++) {
        ds_kept_step *p = programs->all.at[i];
        if (p->recompute_key == wish->recompute_key && (p->is_open || p->samples == wish->samples))
            return p;
    }
    return NULL;
}

static void adopt(const ds_kept_step *p, const ds_program_wish *wish, ds_pass_id behind) {
    ds_step_adopt(p->step, wish->strategy, behind);
    if (wish->change) wish->change(wish->context, p->step);
}

static void leave_shard(ds_programs *programs) {
    if (programs->is_sharded) ds_step_mark_return(programs->recompute);
    programs->is_sharded = false;
}

/* A mark copies the program, which is worth its time only for wishes like the last one. */
static ds_status shard(ds_programs *programs, const ds_program_wish *wish, ds_error *err) {
    ds_kept_step *p = programs->lent;
    bool again = programs->shard_key == wish->shard_key;
    leave_shard(programs);
    if (p->is_open) DS_TRY(ds_step_bind_samples(p->step, wish->samples, err));
    adopt(p, wish, DS_PASS_RECOMPUTE);
    DS_TRY(ds_model_step_run_to(p->step, DS_PASS_SHARD, NULL, NULL, err));
    programs->shard_key = wish->shard_key;
    if (!again) return DS_OK;
    ds_step_mark_set(&programs->shard, p->step);
    programs->is_sharded = true;
    return DS_OK;
}

ds_status ds_programs_lend(ds_programs *programs, const ds_program_wish *wish, ds_model_step **out,
                           ds_error *err) {
    ds_kept_step *p = find_step(programs, wish);
    *out = NULL;
    if (!p) DS_TRY(make(programs, wish, &p, err));
    if (p != programs->lent) {
        leave_shard(programs);
        ds_step_mark_set(&programs->recompute, p->step);
        programs->lent = p;
    }
    p->turn = ++programs->turn;
    if (!programs->is_sharded || programs->shard_key != wish->shard_key)
        DS_TRY(shard(programs, wish, err));
    adopt(p, wish, DS_PASS_SHARD);
    DS_TRY(ds_model_step_run_to(p->step, DS_PASS_OVERLAP, NULL, NULL, err));
    *out = p->step;
    return DS_OK;
}

void ds_programs_done(ds_programs *programs) {
    if (!programs->lent) return;
    ds_step_mark_return(programs->is_sharded ? programs->shard : programs->recompute);
    make_room(programs);
}
