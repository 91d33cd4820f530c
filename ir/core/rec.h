/* Regions `rec` as data: which values an equation reads at a point, and whether every read can be.
 *
 * An equation with the dims {t, l} stands for one op at each point (t, l). A rec is well-founded if
 * every index lies in its range wherever its equation reads it, and no value depends on itself.
 * Both are found here by looking at every point, one by one: the definition, which knows nothing
 * of schedules. */
#ifndef DS_CORE_REC_H
#define DS_CORE_REC_H

#include "ir/core/ir.h"

#define DS_MAX_REC_DIMS 8 /* as many as a family's indices, which the verifier evaluates */

/* The dims of an op of a rec's body: the binders of its results (set by the verifier). */
static inline const ds_binder *ds_rec_dims(const ds_func *func, const ds_op *op, uint32_t *n) {
    const ds_value_info *info = op->n_out ? ds_value_at(func, op->out[0]) : NULL;
    *n = info ? info->n_binders : 0;
    return info ? info->binders : NULL;
}

/* The first rec in the function or in one that the function calls; NULL: none. `calls` is false:
 * in the function itself. Wants callees (ds_verify). O(ops). */
const ds_op *ds_rec_in(const ds_func *func, bool calls);

/* DS_ERR_UNSUPPORTED at the first loop, of the function or of one that it calls, whose body reads
 * the family that the loop keeps. `who` names in the message what cannot take such a loop. */
ds_status ds_rec_refuse_own_reads(const ds_func *func, const char *who, ds_error *err);

/* What one use reads at a point: the box lo[i] .. hi[i] (exclusive) of the value's indices. */
typedef struct ds_rec_read {
    const ds_use *use;
    const ds_index *at; /* the indices in scope, innermost first */
    uint32_t n;         /* indices; 0: a value without any */
    int64_t lo[DS_MAX_REC_DIMS], hi[DS_MAX_REC_DIMS];
} ds_rec_read;

typedef ds_status ds_rec_visit(void *context, const ds_rec_read *read, ds_error *err);

/* Visits what an op reads at the point that env->indices holds: of a case the branch that is taken,
 * of a loop or a region everything that its body reads at any turn. Errors: of evaluation, of the
 * visitor. O(uses x turns). */
ds_status ds_rec_reads(const ds_func *func, const ds_op *op, const ds_env *env, ds_rec_visit *visit,
                       void *context, ds_error *err);

/* Checks every point of every equation: indices in their ranges, and no value that depends on
 * itself. env->indices are those around the rec. `budget` is how many reads may be looked at; where
 * it does not suffice, *complete becomes false and nothing is refused that was not seen.
 * Errors: DS_ERR_VALUE with the place of the use.
 * Cost: O(points x uses + values read). */
ds_status ds_rec_check(const ds_func *func, const ds_op *rec, const ds_env *env, int64_t budget,
                       bool *complete, ds_error *err);

#endif
