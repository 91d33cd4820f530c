/* The space of a sweep: what varies, over which values, under which conditions.
 *
 * Dimensions are the digits of an odometer, the last one turning fastest, and candidates come in
 * its order. A condition is checked as soon as all that it looks at is set, so whole branches are
 * passed over; nothing is stored but the current digits, whatever the number of candidates.
 *
 * A space is of one thread. Its candidates may be read by any number of threads while the space
 * lives. */
#ifndef DS_SEARCH_SPACE_SPACE_H
#define DS_SEARCH_SPACE_SPACE_H

#include "ir/strategy/metrics.h"
#include "ir/strategy/sweep.h"

/* The value of one dimension: a number or a text, and the index in its list of values. A value that
 * is neither (@box, true, 25 MB) is its text here; `item` leads to it. */
typedef struct ds_choice {
    ds_num value;
    uint32_t item;
} ds_choice;

typedef struct ds_candidate {
    uint64_t number; /* of the candidates, or of the random draws; from 0 */
    ds_choice *at;   /* per dimension */
} ds_candidate;

typedef struct ds_space ds_space;

/* The space of the unit's sweep. `binding` is the one without any candidate; `settings` are those
 * that it was made with, which hold in every candidate but for what varies. All must outlive the
 * space. Errors: no sweep, a domain or condition that cannot be evaluated, a name without a value.
 */
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
/* Is it a param whose values are texts, also those that look like numbers? */
bool ds_space_dim_is_text(const ds_space *space, uint32_t dim);

/* An uninitialised candidate of the space, in the arena. */
ds_candidate ds_candidate_new(const ds_space *space, ds_arena *arena);

/* The next candidate; false at the end. Errors are those of the domains' evaluation. Amortised
 * O(domains and conditions that its changed digits touch). */
ds_status ds_space_next(ds_space *space, ds_candidate *candidate, bool *found, ds_error *err);
/* ds_space_next ends, and ds_space_gave_up is true, where conditions reject so many values in a
 * row. Never unless it is called. */
void ds_space_give_up_after(ds_space *space, uint64_t rejected);
bool ds_space_gave_up(const ds_space *space);
/* A random candidate: every digit is drawn from its domain, and all again until the conditions
 * hold. Draw k of a seed is always the same. `found` is false after 10^6 attempts. O(attempts). */
ds_status ds_space_draw(ds_space *space, uint64_t seed, uint64_t k, ds_candidate *candidate,
                        bool *found, ds_error *err);

/* ---- for searches, which walk no odometer (ds_space_next and these share its digits) ---- */

/* Are they the same value of a dimension? */
bool ds_choice_same(const ds_space *space, uint32_t dim, const ds_choice *a, const ds_choice *b);
/* The same for the same values, whatever the order of evaluation. O(dimensions). */
uint64_t ds_candidate_hash(const ds_space *space, const ds_candidate *candidate);
/* The values that dimension `depth` may take after `prefix`, the values of those before it, in
 * order and with the conditions of its level; in the arena. DS_ERR_LIMIT beyond 2^20 values.
 * O(values of the dimension). */
ds_status ds_space_children(ds_space *space, const ds_choice *prefix, uint32_t depth,
                            ds_arena *arena, ds_choice **out, uint32_t *n, ds_error *err);
/* Fills in candidate->at[depth] … so that all conditions hold: where it can a dimension keeps the
 * value of `prefer` (NULL: none is preferred), else it takes one that follows from `seed`. By
 * backtracking; `found` is false if there is no such candidate, or after 10^5 values. */
ds_status ds_space_complete(ds_space *space, ds_candidate *candidate, uint32_t depth,
                            const ds_choice *prefer, uint64_t seed, bool *found, ds_error *err);

/* Does the sweep give a price, or ask for a cost? */
bool ds_space_has_price(const ds_space *space);

/* The candidate whose values print as these, one text a dimension; its number is not found.
 * O(values of all dimensions). */
ds_status ds_space_find(ds_space *space, const char *const *values, ds_candidate *candidate,
                        bool *found, ds_error *err);

/* How far ds_space_next has come, from 0 to 1, by the share of the odometer that it has passed. */
double ds_space_progress(const ds_space *space);

/* ---- one candidate ---- */

/* Its params as settings, after those of the space; texts are in the arena. */
void ds_space_settings(const ds_space *space, const ds_candidate *candidate, ds_arena *arena,
                       ds_setting **out, uint32_t *n);
/* Puts its knobs into the scenario of `unit`, which is the space's own or was parsed from the same
 * text. Undone by ds_scenario_restore. */
void ds_space_set_knobs(const ds_space *space, const ds_candidate *candidate, ds_unit *unit);
/* Is the value a text of the user's, which may hold anything? */
bool ds_space_is_text(const ds_space *space, const ds_candidate *candidate, uint32_t dim);
/* "16", "full", "@box", "25 MB". */
void ds_space_put_value(const ds_space *space, const ds_candidate *candidate, uint32_t dim,
                        ds_buf *out);

/* Can all conditions on knobs be evaluated for a candidate of the walk? One that cannot (it divides
 * by zero) excludes nothing before; the error says which and why. */
ds_status ds_space_admits(ds_space *space, const ds_candidate *candidate, ds_error *err);

/* ---- what conditions say of a simulated candidate ---- */

/* Sets `world` and the prices, and tells whether all `where` that look at simulated values hold;
 * *failed is the text of the first that does not, in the arena. `subject` is likewise for `subject
 * to`. */
ds_status ds_space_judge(ds_space *space, const ds_candidate *candidate, ds_metrics *metrics,
                         ds_arena *arena, const char **failed, bool *subject, ds_error *err);

typedef struct ds_objective {
    ds_metric_id what;
    bool maximize;
} ds_objective;
/* In written order; minimize step_time where the sweep says none. */
const ds_objective *ds_space_objectives(const ds_space *space, uint32_t *n);

#endif
