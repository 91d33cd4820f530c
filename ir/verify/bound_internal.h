/* The walk with numbers: shared by bound.c and bound_region.c; not a public header. */
#ifndef DS_VERIFY_BOUND_INTERNAL_H
#define DS_VERIFY_BOUND_INTERNAL_H

#include "ir/verify/internal.h"

/* A function with its mesh parameters bound. */
typedef struct ds_bound_instance {
    ds_func *func;
    ds_bound_mesh *meshes; /* one per mesh parameter; heap */
    int64_t index;         /* the index parameter's value */
    ds_bound_mesh here;    /* the mesh of values without `on` */
} ds_bound_instance;

typedef struct ds_bound_walk {
    ds_checker *ck;
    ds_mesh_table meshes;
    DS_VEC(ds_bound_instance) work;
    ds_map queued; /* hash of an instance */
    ds_map said;   /* hash of a report about a type, without the value's name */
    const ds_bound_instance *at;
    ds_env env;
    uint64_t turns; /* product of the turns of the loops around */
    const char **manual;
    uint32_t n_manual;
    bool may_be_empty; /* dims of size 0 are fine: in a body, but for weights */
    DS_VEC(const ds_op *) open_loops;
    uint64_t later;   /* bit i: loop i of the open ones is beyond the first turn that is checked */
    ds_map mentioned; /* op → bit i: the op depends on the index of loop i */
    uint8_t *wrong;   /* per value of the function: reported, so that its readers are silent */
} ds_bound_walk;

/* ---- bound.c ---- */

/* Evaluates an integer; reports where that fails. */
bool ds_bound__eval(ds_bound_walk *w, ds_expr e, ds_loc loc, int64_t *out);
/* " (at l = 3, k = 0)" inside loops. */
const char *ds_bound__turn_note(ds_bound_walk *w);
const char *ds_bound__value_text(ds_bound_walk *w, ds_value value);
bool ds_bound__check_type(ds_bound_walk *w, const ds_type *type, const char *name, ds_loc loc);
bool ds_bound__binder_range(ds_bound_walk *w, const ds_binder *binder, int64_t *lo, int64_t *hi);
/* Checks the element type at every index of a family, over binders i and on. */
void ds_bound__check_family(ds_bound_walk *w, const ds_value_info *info, uint32_t i, uint64_t turns,
                            const char *name);
/* The type of a use; NULL if the use reads outside its family or the type is unknown. */
const ds_type *ds_bound__read_use(ds_bound_walk *w, const ds_use *use);
/* How many turns are checked at each end of a loop: all of a few turns; of many the first and the last
 * few, and one each where the loop stands in so many turns of loops around it. */
uint64_t ds_bound__end_turns(bool all, uint64_t turns);
/* The turn to check after turn i. */
int64_t ds_bound__next_turn(int64_t i, int64_t lo, int64_t hi, uint64_t ends);
bool ds_bound__compare_types(ds_bound_walk *w, const ds_type *recorded, const ds_type *found,
                             ds_loc loc, const char *name, const char *who, const char *verb);
void ds_bound__set_wrong(ds_bound_walk *w, const ds_value *values, uint32_t n);
void ds_bound__check_results(ds_bound_walk *w, const ds_op *op, ds_type **found);
bool ds_bound__axis_size(void *context, const ds_place *on, const char *axis, int64_t *size);
void ds_bound__walk_block(ds_bound_walk *w, const ds_block *block);
/* One op; the types made for the op are freed after the op, because a loop may have many turns. */
void ds_bound__walk_in_arena(ds_bound_walk *w, const ds_op *op);

/* ---- bound_region.c ---- */

void ds_bound__for_loop(ds_bound_walk *w, const ds_op *loop);
void ds_bound__local_region(ds_bound_walk *w, const ds_op *region);
void ds_bound__rec_region(ds_bound_walk *w, const ds_op *rec);
void ds_bound__case_op(ds_bound_walk *w, const ds_op *op);

#endif
