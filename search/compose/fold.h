/* Steps put together from templates; not a public header. */
#ifndef DS_COMPOSE_FOLD_H
#define DS_COMPOSE_FOLD_H

#include "search/compose/programs.h"
#include "search/compose/template.h"

/* The schedule of the whole step: its items rank by rank. */
typedef struct ds_items {
    ds_order *at;
    uint32_t n;
    uint32_t *rank_of; /* per group */
    uint32_t n_chunks; /* 0: no pipeline */
} ds_items;

/* What a composer keeps from step to step. */
typedef struct ds_fold {
    ds_map templates; /* key → ds_template */
    DS_VEC(ds_template *) all;
    ds_map skeletons; /* key → ds_plan */
    DS_VEC(ds_plan *) plans;
    ds_programs programs;     /* that templates are read from */
    ds_model_step *topo_step; /* whose unit `topo` refers to */
    ds_topo *topo;            /* NULL: not made yet */
    uint64_t topo_key;
    uint32_t kind, profile; /* of all devices */
    bool unequal;           /* they are not of one kind */
    bool holds;             /* their profile holds compute: templates' collectives have streams */
    size_t template_bytes;
    uint32_t routed; /* plans that there were when the graph was made */
    uint64_t timed;  /* units in the templates' timings */
} ds_fold;

void ds_fold_deinit(ds_fold *fold);
/* Items of so many units have been timed: forgets timings when there are too many of them. */
void ds_fold_note_timed(ds_fold *fold, uint64_t units);

/* What one step asks for. */
typedef struct ds_fold_step {
    const ds_binding *binding;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    const ds_train *train;
    const ds_strategy *strategy;
    const ds_items *items;
    uint32_t n_chunks; /* at least 1 */
    int64_t *turns;    /* per chunk; heap */
} ds_fold_step;

/* Can it be put together from a template? Finds (or makes) it. *out is NULL if not. Errors: those
 * of the passes, which the step itself would have. */
ds_status ds_fold_template(ds_fold *fold, ds_fold_step *step, ds_template **out, ds_error *err);
/* One of the step itself, with all its chunks, turns and microbatches, but without its devices: for
 * steps of few microbatches that treat chunks in ways of their own. *out is NULL if it is not known
 * (*why). Errors: as above. */
ds_status ds_fold_exact(ds_fold *fold, ds_fold_step *step, ds_template **out, const char **why,
                        ds_error *err);
/* The step's parts, on its own devices; false if not (s->why). Errors: those of the plan. */
ds_status ds_fold_assemble(ds_fold *fold, const ds_fold_step *step, ds_template *t, ds_sibling *out,
                           ds_error *err);

#endif
