/* The net under a sweep: some rows are simulated once more, and must come out the same.
 *
 * A sweep puts steps together from what other candidates have left (search/compose); a check simulates
 * the step by itself, device by device, as `distsim run --unfold` does; a step beyond a limit of
 * tasks is simulated with its classes of devices folded. Which rows are checked follows from the rows alone: the same for any number of threads, ranks and shards.
 *
 * A row is drawn by its hash: one in `every`. If a sweep draws none, one row is checked all the
 * same, the one that ds_check_prefers. No clock decides anything: a simulated row of a sweep takes
 * 1 ms at least, a task of an unfolded step 0.55 us, so 64 tasks are about 3 % of a row, and checks
 * that nobody has asked for unfold no more for each of the sweep's rows.
 */
#ifndef DS_SEARCH_CHECK_H
#define DS_SEARCH_CHECK_H

#include "search/space/eval.h"

#define DS_CHECK_NONE UINT64_MAX

typedef struct ds_check {
    uint64_t every;    /* a row in so many; DS_CHECK_NONE: none */
    bool is_asked_for; /* else a check is cheap */
} ds_check;

/* `every` as ds_sweep_options has it: 0 is the default, DS_CHECK_NONE no check. */
ds_check ds_check_of(uint64_t every);
/* Is the row one in `every`? No row that a bound has rejected is: the row has no figures. */
bool ds_check_draws(const ds_check *check, const ds_outcome *row);
/* Of two rows, is the first the better one to check? A row may be judged already. */
bool ds_check_prefers(const ds_outcome *a, const ds_outcome *b);

/* Simulates the candidate alone, and sets row->checked. Where a figure differs, sets row->is_wrong
 * and makes the differences the row's reason. If time runs out, the row is `stopped`. `n_rows` are
 * the simulated rows that the check is made for. O(tasks). */
void ds_check_row(const ds_check *check, const ds_eval_source *source,
                  const ds_candidate *candidate, uint64_t n_rows, ds_outcome *row);

/* An evaluator that checks the outcomes of another, which it owns from then on. */
ds_eval *ds_eval_new_checked(const ds_check *check, const ds_eval_source *source, ds_eval *eval);

/* What is wrong with a row, and how to see it: DS_ERR_INTERNAL. */
ds_status ds_check_fail(const ds_eval_source *source, const ds_candidate *candidate,
                        const ds_outcome *row, ds_error *err);

#endif
