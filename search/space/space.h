/* The space of a sweep: the dimensions, their values, and the conditions.
 *
 * Dimensions are the digits of an odometer whose last digit turns fastest, and candidates come in
 * that order. A condition is checked as soon as all of its names are set, so whole branches are
 * skipped. A space stores the current digits alone, whatever the number of candidates.
 *
 * One thread may use a space. Any number of threads may read its candidates while the space
 * lives. */
#ifndef DS_SEARCH_SPACE_SPACE_H
#define DS_SEARCH_SPACE_SPACE_H

#include "ir/strategy/metrics.h"
#include "ir/strategy/sweep.h"

/* The value of one dimension: a number or a text, and the index in the dimension's list of values.
 * A value of another kind (@box, true, 25 MB) is given as its text, and by `item`. */
typedef struct ds_choice {
    ds_num value;
    uint32_t item;
} ds_choice;

typedef struct ds_candidate {
    uint64_t number; /* of the candidate, or of the random draw; from 0 */
    ds_choice *at;   /* per dimension */
} ds_candidate;

typedef struct ds_space ds_space;

/* The space of the unit's sweep. `binding` was made with `settings` and without any candidate;
 * `settings` hold in every candidate but for dimensions. Both must outlive the space. Errors: no
 * sweep, a domain or condition that cannot be evaluated, a name without a value. */
ds_status ds_space_new(const ds_binding *binding, const ds_setting *settings, uint32_t n_settings,
                       ds_space **out, ds_error *err);
void ds_space_free(ds_space *space);

const ds_sweep *ds_space_sweep(const ds_space *space);
const ds_unit *ds_space_unit(const ds_space *space);
uint32_t ds_space_n_dims(const ds_space *space);
/* As written: "dp", "strategy.zero". */
const char *ds_space_dim_name(const ds_space *space, uint32_t dim);
/* The knob that it varies; NULL: a param. */
const ds_knob *ds_space_dim_knob(const ds_space *space, uint32_t dim);
/* The place of the dimension that the knob varies with, by itself or through a param; false: the
 * knob has one value. For ds_knobs_warn, with the space as context. */
bool ds_space_varies(void *space, const ds_knob *knob, ds_loc *loc);
/* Is it a param whose values are texts, also those that look like numbers? */
bool ds_space_dim_is_text(const ds_space *space, uint32_t dim);

/* An uninitialised candidate of the space, in the arena. */
ds_candidate ds_candidate_new(const ds_space *space, ds_arena *arena);

/* The next candidate; *found is false at the end. Errors: those of evaluating domains. Amortised
 * O(domains and conditions that the changed digits touch). */
ds_status ds_space_next(ds_space *space, ds_candidate *candidate, bool *found, ds_error *err);
/* Makes ds_space_next end, and ds_space_gave_up true, once conditions reject so many values in a
 * row. A space does not give up without this call. */
void ds_space_give_up_after(ds_space *space, uint64_t rejected);
bool ds_space_gave_up(const ds_space *space);
/* A random candidate: every digit is drawn from its domain, and all digits again until the
 * conditions hold. Draw k of a seed is always the same. `found` is false after 10^6 attempts.
 * O(attempts). */
ds_status ds_space_draw(ds_space *space, uint64_t seed, uint64_t k, ds_candidate *candidate,
                        bool *found, ds_error *err);

/* ---- for searches without an odometer (these functions overwrite ds_space_next's digits) ---- */

/* Are a and b the same value of the dimension? */
bool ds_choice_same(const ds_space *space, uint32_t dim, const ds_choice *a, const ds_choice *b);
/* Depends on the candidate's values alone, not on the order of evaluation. O(dimensions). */
uint64_t ds_candidate_hash(const ds_space *space, const ds_candidate *candidate);
/* The values that dimension `depth` may take after `prefix`, the values of all earlier dimensions,
 * by the conditions of that level; in order, in the arena. DS_ERR_LIMIT beyond 2^20 values.
 * O(values of the dimension). */
ds_status ds_space_children(ds_space *space, const ds_choice *prefix, uint32_t depth,
                            ds_arena *arena, ds_choice **out, uint32_t *n, ds_error *err);
/* Fills in candidate->at[depth] and later so that all conditions hold, by backtracking. A dimension
 * keeps the value of `prefer` where conditions allow (NULL: no preference), else takes a value that
 * follows from `seed`. `found` is false if no such candidate exists, or after 10^5 values. */
ds_status ds_space_complete(ds_space *space, ds_candidate *candidate, uint32_t depth,
                            const ds_choice *prefer, uint64_t seed, bool *found, ds_error *err);

/* Does the sweep give a price, or ask for a cost? */
bool ds_space_has_price(const ds_space *space);
/* Does the scenario count tokens? */
bool ds_space_has_tokens(const ds_space *space);

/* The candidate whose values print as `values`, one text a dimension; its number is not set.
 * O(values of all dimensions). */
ds_status ds_space_find(ds_space *space, const char *const *values, ds_candidate *candidate,
                        bool *found, ds_error *err);

/* The share of the odometer that ds_space_next has passed, from 0 to 1. */
double ds_space_progress(const ds_space *space);

/* ---- one candidate ---- */

/* The candidate's params as settings, after the settings of the space; texts are in the arena. */
void ds_space_settings(const ds_space *space, const ds_candidate *candidate, ds_arena *arena,
                       ds_setting **out, uint32_t *n);
/* Writes the candidate's knobs into the scenario of `unit`, which is the space's own unit or was
 * parsed from the same text. ds_scenario_restore takes the knobs out again. */
void ds_space_set_knobs(const ds_space *space, const ds_candidate *candidate, ds_unit *unit);
/* Is the value a text that the user wrote and that may hold any character? */
bool ds_space_is_text(const ds_space *space, const ds_candidate *candidate, uint32_t dim);
/* Prints a value: "16", "full", "@box", "25 MB". */
void ds_space_put_value(const ds_space *space, const ds_candidate *candidate, uint32_t dim,
                        ds_buf *out);

/* Can all conditions on knobs be evaluated for a candidate of the walk? The walk lets a condition
 * that cannot (a division by zero) exclude nothing; the error here names that condition. */
ds_status ds_space_admits(ds_space *space, const ds_candidate *candidate, ds_error *err);

/* ---- conditions on a simulated candidate ---- */

/* Sets `world` and the prices. *failed is the text, in the arena, of the first `where` on simulated
 * values that does not hold; NULL if all hold. *subject tells whether all `subject to` hold. */
ds_status ds_space_judge(ds_space *space, const ds_candidate *candidate, ds_metrics *metrics,
                         ds_arena *arena, const char **failed, bool *subject, ds_error *err);

typedef struct ds_objective {
    ds_metric_id what;
    bool maximize;
} ds_objective;
/* The objectives in written order; minimize step_time if the sweep has none. */
const ds_objective *ds_space_objectives(const ds_space *space, uint32_t *n);

#endif
