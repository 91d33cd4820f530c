/* distsim plan: from the space to rows.
 *
 *     bounds hold       one sweep by branch and bound
 *     no near bounds    a sweep of the candidates that need least memory, one for each split of the
 *     (two loops)       devices; then a sweep of the other knobs for the best of these splits
 *     nothing fits      the first of these again on twice the nodes, and so on */
#include "ir/base/file.h"
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "search/bound/bounds.h"
#include "sim/plan/plan.h"
#include "tools/cli/plan/plan.h"
#include "tools/cli/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_EVALS = 1000,
    BEST_SPLITS = 3,   /* assumed: the best plan has one of the best splits with least memory */
    MOST_NODES = 16384 /* beyond, no answer would help */
};

/* ---- files that import model and topology ---- */

/* Imports are looked for in the file's folder and those above it. */
static bool is_below_here(cli_plan *plan, const char *file) {
    const char *slash = strrchr(file, '/');
    if (strcmp(file, "-") == 0 || !slash) return true;
    char *folder =
        ds_file_real_path(ds_arena_printf(plan->arena, "%.*s/", (int)(slash - file), file));
    char *here = ds_file_real_path(".");
    bool below = folder && here && strncmp(folder, here, strlen(here)) == 0;
    free(folder);
    free(here);
    return below;
}

static const char *absolute(ds_arena *arena, const char *path) {
    char *real = ds_file_real_path(path);
    const char *kept = real ? ds_arena_strdup(arena, real) : path;
    free(real);
    return kept;
}

void cli_plan_see_from(cli_plan *plan, const char *file) {
    if (is_below_here(plan, file)) return;
    plan->model.path = absolute(plan->arena, plan->model.path);
    plan->box.path = absolute(plan->arena, plan->box.path);
}

/* ---- a sweep ---- */

static ds_status open_sweep(const cli_plan *plan, cli_search *s, ds_error *err) {
    ds_diags diags;
    cli_plan seen = *plan;
    cli_plan_see_from(&seen, s->program);
    cli_plan_put_sweep(&seen, &s->text);
    DS_TRY(cli_plan_fix(plan, s->program, &s->text, err));
    DS_TRY(ds_load_text(s->program, s->text.text, s->text.n, &plan->load, &s->unit, err));
    DS_TRY(cli_check_imports(s->common, s->unit, err));
    ds_diags_init(&diags);
    ds_status status = ds_verify(s->unit, &diags);
    for (uint32_t i = 0; i < diags.all.n && status != DS_OK; i++)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_error_set(err, status, diags.all.at[i].loc, "%s", diags.all.at[i].message);
    ds_diags_deinit(&diags);
    DS_TRY(status);
    return ds_bind(s->unit, NULL, 0, &s->binding, err);
}

static void close_sweep(cli_search *s) {
    ds_sweep_result_deinit(&s->result);
    ds_unit_free(s->unit);
    ds_buf_deinit(&s->text);
    s->result = (ds_sweep_result){0};
    s->unit = NULL;
    s->n_candidates = 0;
}

void cli_plan_search_deinit(cli_search *s) {
    close_sweep(s);
    if (s->own_rows) unlink(s->sweep.path);
}

static ds_status count_candidates(cli_search *s, ds_error *err) {
    ds_space *space;
    ds_arena arena;
    bool found = true;
    DS_TRY(ds_space_new(&s->binding, NULL, 0, &space, err));
    ds_arena_init(&arena);
    ds_candidate candidate = ds_candidate_new(space, &arena);
    ds_status status = DS_OK;
    while (found && status == DS_OK) {
        status = ds_space_next(space, &candidate, &found, err);
        if (status == DS_OK && found) s->n_candidates++;
    }
    ds_space_free(space);
    ds_arena_deinit(&arena);
    return status;
}

/* Bounds of the step's time and of memory are near for models with one loop over their layers. */
static bool has_near_bounds(const cli_plan *plan) {
    static const char *const objectives[] = {"step_time", "throughput", "memory", "peak_memory"};
    if (plan->experts > 1 && !plan->has_one_loop) return false;
    for (size_t i = 0; i < sizeof objectives / sizeof *objectives; i++)
        if (strcmp(plan->objective, objectives[i]) == 0) return true;
    return false;
}

/* Fixed keys that bounds do not follow leave the plan to other methods. */
static ds_status find_unbounded(const cli_plan *plan, cli_search *s, ds_error *err) {
    ds_space *space;
    DS_TRY(open_sweep(plan, s, err));
    DS_TRY(ds_space_new(&s->binding, NULL, 0, &space, err));
    s->unbounded = ds_bounds_refusal(space, plan->arena);
    ds_space_free(space);
    close_sweep(s);
    return DS_OK;
}

static bool has_bounds(const cli_plan *plan, const cli_search *s) {
    return !s->unbounded && has_near_bounds(plan);
}

static void choose_method(cli_search *s) {
    ds_sweep_options *options = &s->sweep;
    if (s->method) return;
    if (!options->max_rows) options->max_rows = DEFAULT_EVALS;
    options->method = s->n_candidates <= options->max_rows ? "grid" : "random";
}

/* A profile that no candidate can use is an error before the search. A machine by name has one kind
 * of device; a topology of one's own may have several. */
static ds_status check_profile(const cli_plan *plan, const cli_search *s, ds_error *err) {
    ds_cost_source source;
    uint32_t kind;
    const char *name = NULL;
    DS_TRY(ds_profiles_find_kind(s->profiles, plan->device, DS_NOWHERE, &kind, err));
    DS_TRY(ds_plan_profile_of(&s->binding, s->profiles, kind, &source, err));
    if (!plan->gpu || !source.is_default || !ds_scenario_find(s->unit, "", "profile")) return DS_OK;
    DS_TRY(ds_scenario_text(&s->binding, "", "profile", &name, err));
    DS_TRY(ds_profiles_find_profile(s->profiles, name, DS_NOWHERE, &source.profile, err));
    return ds_error_set(
        err, DS_ERR_VALUE, DS_NOWHERE, "profile \"%s\" is measured on %s, and the machine has %s",
        name, ds_profiles_kind(s->profiles, ds_profile_kind(s->profiles, source.profile))->name,
        plan->device);
}

static ds_status run_sweep(const cli_plan *plan, cli_search *s, ds_error *err) {
    DS_TRY(open_sweep(plan, s, err));
    DS_TRY(check_profile(plan, s, err));
    DS_TRY(count_candidates(s, err));
    if (s->keeps && !plan->least_memory)
        DS_TRY(cli_write(s->common, s->program, s->text.text, s->text.n, err));
    ds_sweep_subject subject = {.binding = &s->binding,
                                .path = s->program,
                                .text = s->text.text,
                                .text_n = s->text.n,
                                .load = plan->load,
                                .profiles = s->profiles};
    choose_method(s);
    s->sweep.overwrite = !s->keeps || s->common->overwrite || s->again;
    s->again = true; /* what the file holds by then is ours */
    cli_progress progress = {0};
    cli_progress_begin(&progress, &s->sweep);
    ds_status status = ds_sweep_run(&subject, &s->sweep, &s->result, err);
    cli_progress_end(&progress);
    s->seconds += s->result.seconds;
    s->rows += s->result.rows;
    return status;
}

/* ---- splits ---- */

/* "tp=1 pp=2 dp=64 microbatches=8 …" → "(tp == 1 and pp == 2)": a condition on the degrees. */
static void put_split(const char *values, ds_buf *out) {
    static const char *const degrees[] = {"tp=", "pp=", "cp=", "ep="};
    const char *before = "(";
    for (const char *at = values; *at; at += strcspn(at, " "), at += strspn(at, " "))
        for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
            if (strncmp(at, degrees[i], 3) != 0) continue;
            ds_buf_printf(out, "%s%.2s == %.*s", before, at, (int)strcspn(at + 3, " "), at + 3);
            before = " and ";
        }
    ds_buf_put(out, *before == '(' ? "(1 == 1)" : ")");
}

static ds_status screen(cli_plan *plan, cli_search *s, ds_error *err) {
    plan->least_memory = true;
    ds_status status = run_sweep(plan, s, err);
    plan->least_memory = false;
    if (status != DS_OK || !s->result.best.top.n) return status;
    ds_buf where = {0};
    for (uint32_t i = 0; i < s->result.best.top.n && i < BEST_SPLITS; i++) {
        if (i) ds_buf_put(&where, " or ");
        put_split(s->result.best.top.at[i].values, &where);
    }
    plan->splits = ds_arena_strdup(plan->arena, where.text);
    ds_buf_deinit(&where);
    return DS_OK;
}

/* How many nodes would do: doubled until something fits. 0: nobody knows. */
static ds_status find_nodes(cli_plan *plan, cli_search *s, int64_t *nodes, ds_error *err) {
    cli_plan more = *plan;
    ds_status status = DS_OK;
    more.least_memory = true;
    *nodes = 0;
    s->method = s->sweep.method = has_bounds(plan, s) ? "bound" : NULL;
    while (status == DS_OK && !*nodes && more.nodes && more.nodes < MOST_NODES) {
        if (cli_plan_double(&more)) break;
        close_sweep(s);
        status = run_sweep(&more, s, err);
        if (status == DS_OK && s->result.best.top.n) *nodes = more.nodes;
    }
    return status;
}

/* ---- rows ---- */

/* Rows that nobody wants to keep lie in a file of their own meanwhile. */
static ds_status make_rows(cli_plan *plan, cli_search *s, ds_error *err) {
    if (s->keeps) return DS_OK;
    const char *folder = getenv("TMPDIR");
    char *path =
        ds_arena_printf(plan->arena, "%s/distsim-plan-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot write %s: %s", path,
                            strerror(errno));
    close(fd);
    s->sweep.path = path;
    s->own_rows = true;
    return DS_OK;
}

ds_status cli_plan_search(cli_plan *plan, cli_search *s, ds_error *err) {
    if (!s->method && has_near_bounds(plan)) DS_TRY(find_unbounded(plan, s, err));
    bool screens = !s->method && !has_bounds(plan, s);
    if (!s->method && has_bounds(plan, s)) s->method = s->sweep.method = "bound";
    DS_TRY(make_rows(plan, s, err));
    if (screens) DS_TRY(screen(plan, s, err));
    if (!screens || s->result.best.top.n) {
        close_sweep(s);
        DS_TRY(run_sweep(plan, s, err));
    }
    return DS_OK;
}

ds_status cli_plan_nodes(cli_plan *plan, cli_search *s, int64_t *nodes, ds_error *err) {
    if (s->keeps) { /* rows of other machines are none of the plan's */
        s->keeps = false;
        DS_TRY(make_rows(plan, s, err));
    }
    return find_nodes(plan, s, nodes, err);
}
