/* From a candidate to its outcome.
 *
 * An evaluator belongs to one worker. Profiles are loaded once, the program is parsed and verified
 * once a worker, and the memory of one candidate is freed before the next candidate begins.
 * Searches know evaluators by this interface alone, so that one evaluator may replace another. */
#ifndef DS_SEARCH_SPACE_EVAL_H
#define DS_SEARCH_SPACE_EVAL_H

#include "ir/lang/lang.h"
#include "search/space/space.h"
#include "sim/run/run.h"

/* X(NAME, text): the fate of a candidate. */
#define DS_VERDICT_MAP(X)                                                                          \
    X(OK, "ok")                                                                                    \
    X(EXCLUDED, "excluded")         /* simulated, and a `where` of the sweep does not hold */      \
    X(DOES_NOT_FIT, "does_not_fit") /* simulated, and some device lacks memory */                  \
    X(ILLEGAL, "illegal")           /* the verifier or a pass refuses */                           \
    X(FAILED, "failed")             /* a missing cost, an unreachable device, a limit … */

typedef enum ds_verdict {
#define DS_X(name, text) DS_VERDICT_##name,
    DS_VERDICT_MAP(DS_X)
#undef DS_X
        DS_VERDICT_COUNT
} ds_verdict;
const char *ds_verdict_text(ds_verdict verdict);
ds_verdict ds_verdict_of(ds_status status);

/* Whether an outcome was compared with a second simulation (search/driver/check.h). */
typedef enum ds_checked {
    DS_CHECKED_NOT,
    DS_CHECKED_FOLDED,   /* every class of devices was simulated */
    DS_CHECKED_UNFOLDED, /* every device was simulated */
    DS_CHECKED_BEYOND    /* drawn, but too large, or its file cannot be loaded any more */
} ds_checked;

typedef struct ds_outcome {
    ds_verdict verdict;
    ds_buf reason;      /* one line; empty if ok */
    uint64_t hash;      /* of what was run: modules, params, scenario, profiles */
    ds_metrics metrics; /* sizes; the rest is 0 unless simulated (ok, excluded, does_not_fit) */
    bool unsimulated;   /* does not fit, by a lower bound (search/driver/reject.h) */
    bool unfolded;      /* simulated with every device by itself */
    bool too_large;     /* not simulated: beyond a limit */
    bool is_wrong;      /* another simulation has other figures; the reason says which */
    ds_checked checked;
    bool stopped; /* the time limit passed before the candidate was done: the outcome is void */
} ds_outcome;
void ds_outcome_deinit(ds_outcome *outcome);
/* Fills an outcome of zeros, except the hash and prices, from a whole simulation. */
void ds_outcome_of(const ds_result *result, ds_outcome *out);
bool ds_outcome_is_simulated(const ds_outcome *outcome);

typedef struct ds_eval ds_eval;
struct ds_eval {
    /* Fills the outcome, whatever happens, and reuses the reason's buffer. */
    void (*run)(ds_eval *eval, const ds_candidate *candidate, ds_outcome *outcome);
    void (*free)(ds_eval *eval);
};

/* The source of all candidates. Everything here must outlive the evaluators, and is only read. */
typedef struct ds_eval_source {
    const char *path;
    const char *text; /* of a file from stdin; NULL: read `path` */
    size_t text_n;
    ds_load_options load;
    const char *job; /* the one job to run of a scenario with `jobs`; NULL: all */
    const ds_space *space;
    const ds_profiles *profiles;
    uint64_t content;    /* ds_eval_content */
    const ds_stop *stop; /* ends a candidate in its course; NULL: never */
} ds_eval_source;

/* A hash of the modules of a unit, of the profiles and of the version of the semantics: everything
 * in a row's hash but params and scenario. */
uint64_t ds_eval_content(const ds_unit *unit, const ds_profiles *profiles);
/* A hash of what `distsim run` runs under a binding: content, params and scenario. */
uint64_t ds_eval_hash(const ds_binding *binding, uint64_t content);

/* Gives each candidate the result of `distsim run --set …`, simulated or composed (search/compose);
 * costs are fitted where the scenario names none. Errors: those of loading and
 * verifying. */
ds_status ds_eval_new_simulation(const ds_eval_source *source, ds_eval **out, ds_error *err);

/* Simulates a candidate as `distsim run --unfold` does, with nothing that other candidates have
 * left: no templates, no programs, no costs of collectives. Steps that would unfold into more than
 * `most_unfolded` tasks are folded. Errors: as above. */
ds_status ds_eval_new_alone(const ds_eval_source *source, uint32_t most_unfolded, ds_eval **out,
                            ds_error *err);

/* Of an evaluator that simulates: all that is known of the candidate before. OK if it can be bound.
 */
void ds_eval_describe(ds_eval *eval, const ds_candidate *candidate, ds_outcome *outcome);
/* Loads and verifies the source's unit; each worker has a unit of its own. */
ds_status ds_eval_load(const ds_eval_source *source, ds_unit **out, ds_error *err);

/* The options of a run of the scenario within a sweep. */
ds_status ds_eval_options(const ds_binding *binding, ds_sim_options *options, ds_error *err);

#endif
