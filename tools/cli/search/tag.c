/* The tree search over deployments of a scenario, under distsim's semantics or TAG's. */
#include "tools/cli/search/tag.h"

#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/lang/lang.h"
#include "search/driver/rows.h"
#include "search/methods/bound.h"
#include "search/tag/branch.h"
#include "search/tag/plan.h"
#include "search/tag/weights.h"
#include "tools/cli/search/simulate.h"

#include <stdlib.h>
#include <string.h>

static void put_plan(const ds_tag_plan *plan, ds_buf *out) {
    ds_json j;
    ds_json_init(&j, out, 0);
    ds_json_begin_object(&j);
    ds_json_key_string(&j, "method", "tag");
    ds_json_key_string(&j, "semantics", "distsim");
    ds_tag_plan_put_json(plan, &j);
    ds_json_end_object(&j);
    ds_buf_putc(out, '\n');
}

static ds_status write_plan_page(const cli_search_tag *o, const char *file, const ds_tag_plan *plan,
                                 ds_error *err) {
    ds_buf json = {0};
    put_plan(plan, &json);
    ds_status status = cli_search_write_page(o->common, o->html, file, &json, err);
    ds_buf_deinit(&json);
    return status;
}

static ds_status search_distsim(const cli_search_tag *o, const ds_pase_source *source,
                                const ds_profiles *profiles, ds_tag_plan **plan, ds_error *err) {
    ds_tag_plan_options options = {.n_groups = o->n_groups,
                                   .n_playouts = o->n_playouts,
                                   .seed = o->seed,
                                   .n_workers = o->n_workers,
                                   .n_whole = o->n_whole};
    return ds_tag_plan_new(source, profiles, &options, plan, err);
}

/* ---- TAG's semantics ---- */

/* A group without an action has all GPUs, each with a sample at least. */
static ds_status check_problem(const ds_tag_model *m, ds_error *err) {
    uint32_t n_gpus = ds_tag_n_gpus(&m->problem.cluster);
    if (m->has_groups)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
            "--semantics tag begins from no groups: leave those of the strategy out");
    if (m->problem.batch >= n_gpus) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "a batch of %lld for %u GPUs: --semantics tag begins with all GPUs, and "
                        "takes a batch of a sample for each of them at least",
                        (long long)m->problem.batch, n_gpus);
}

/* The problem in groups, with all of TAG's quirks. */
static ds_status read_problem(const ds_pase_source *source, const ds_profiles *profiles,
                              uint32_t n_groups, ds_tag_model **out, ds_error *err) {
    DS_TRY(ds_tag_model_read(source, profiles, out, err));
    ds_status status = check_problem(*out, err);
    if (status) {
        ds_tag_model_free(*out);
        return status;
    }
    ds_tag_model_gather(*out, n_groups);
    (*out)->problem.quirks = DS_TAG_RELEASED;
    return DS_OK;
}

/* The result of the search, and the two figures that the report compares the result with. */
typedef struct tag_found {
    ds_tag_tree_result tree;
    int64_t lower_us;
    int64_t uniform_us; /* the best of one action for all groups; INT64_MAX: none fits */
} tag_found;

static int64_t best_uniform(const ds_tag_model *m, const ds_tag_action *actions, uint32_t n) {
    uint32_t n_groups = m->problem.graph.n_groups;
    int64_t least = INT64_MAX;
    for (uint32_t a = 0; a < n; a++) {
        ds_arena arena;
        ds_tag_outcome o;
        ds_arena_init(&arena);
        ds_tag_action *action = DS_NEW_N(&arena, ds_tag_action, n_groups + 1);
        for (uint32_t g = 0; g < n_groups; g++) action[g] = actions[a];
        bool runs = ds_tag_simulate(&m->problem, action, &arena, &o, NULL) == DS_OK && o.fits;
        if (runs && o.makespan_us < least) least = o.makespan_us;
        ds_arena_deinit(&arena);
    }
    return least;
}

/* INT64_MAX: none, so null. */
static void put_us(const char *key, int64_t us, ds_json *j) {
    ds_json_key(j, key);
    if (us < INT64_MAX)
        ds_json_int(j, us);
    else
        ds_json_null(j);
}

static bool is_found(const tag_found *f) {
    return f->tree.best && f->tree.best_us < INT64_MAX;
}

static void put_tag(const cli_search_tag *o, const ds_tag_model *m, const tag_found *f,
                    ds_buf *out) {
    const ds_tag_tree_result *r = &f->tree;
    ds_json j;
    ds_json_init(&j, out, 0);
    ds_json_begin_object(&j);
    ds_json_key_string(&j, "method", "tag");
    ds_json_key_string(&j, "semantics", "tag");
    ds_json_key_int(&j, "groups", m->problem.graph.n_groups);
    ds_json_key_int(&j, "actions", r->n_actions);
    ds_json_key_int(&j, "playouts", (int64_t)r->n_playouts);
    if (o->prior) ds_json_key_string(&j, "prior", o->prior);
    ds_json_key_int(&j, "base_us", r->base_us);
    if (f->uniform_us < INT64_MAX) ds_json_key_int(&j, "best_uniform_us", f->uniform_us);
    put_us("found_us", r->best_us, &j);
    put_us("lower_bound_us", f->lower_us, &j);
    if (is_found(f)) ds_tag_put_runs(m, r->best, &j);
    ds_json_end_object(&j);
    ds_buf_putc(out, '\n');
}

static void print_tag(const cli_search_tag *o, const ds_tag_model *m, const tag_found *f,
                      ds_buf *out) {
    const ds_tag_graph *g = &m->problem.graph;
    const ds_tag_tree_result *r = &f->tree;
    ds_buf_printf(out,
                  "%u operations in %u base groups, gathered to %u groups; %u actions, %llu "
                  "playouts in rounds of up to %d, TAG's semantics%s%s\n\n",
                  g->n_ops, m->n_base, g->n_groups, r->n_actions, (unsigned long long)r->n_playouts,
                  DS_TAG_ROUND, o->prior ? ", prior " : "", o->prior ? o->prior : "");
    ds_buf_printf(out, "  all devices               %12lld us\n", (long long)r->base_us);
    if (f->uniform_us < INT64_MAX)
        ds_buf_printf(out, "  one action for all groups %12lld us\n", (long long)f->uniform_us);
    if (!is_found(f)) {
        ds_buf_put(out, f->lower_us == INT64_MAX ? "  no deployment fits\n"
                                                 : "  no deployment that fits was found\n");
        return;
    }
    ds_buf_printf(out, "  found                     %12lld us", (long long)r->best_us);
    if (f->uniform_us < INT64_MAX)
        ds_buf_printf(out, "  %.2fx the best action for all groups",
                      (double)f->uniform_us / (double)r->best_us);
    ds_buf_printf(out, "\n  lower bound               %12lld us, a gap of %.1f %%\n\n",
                  (long long)f->lower_us, 100 * (1 - (double)f->lower_us / (double)r->best_us));
    ds_tag_print_runs(m, r->best, out);
}

static ds_status write_certificate(const cli_search_tag *o, const ds_pase_source *source,
                                   uint32_t n_groups, const ds_buf *lines, ds_error *err) {
    ds_buf text = {0}, settings = {0};
    if (!o->certificate) return DS_OK;
    ds_rows_put_settings(source->settings, source->n_settings, &settings);
    ds_buf_put(&text, "distsim certificate 1\nsource\t");
    ds_certificate_put_cell(source->path, &text);
    ds_buf_put(&text, "\nsettings\t");
    ds_certificate_put_cell(settings.text ? settings.text : "", &text);
    ds_buf_printf(&text, "\nobjective\t" CLI_TAG_OBJECTIVE "\ngroups\t%u\n%s", n_groups,
                  lines->text);
    ds_status status = cli_write(o->common, o->certificate, text.text, text.n, err);
    ds_buf_deinit(&settings);
    ds_buf_deinit(&text);
    return status;
}

/* Two steps for each playout, from the tree's best; then as many to prove a bound. */
static ds_status improve_tree(const cli_search_tag *o, ds_tag_model *m, tag_found *f,
                              ds_buf *certificate, ds_error *err) {
    ds_tag_tree_result *r = &f->tree;
    ds_tag_action *actions, *best = DS_NEW_N(&m->arena, ds_tag_action, m->n_base + 1);
    ds_tag_branching what = {.problem = &m->problem, .n_steps = 2 * o->n_playouts, .seed = o->seed};
    ds_tag_branched found;
    DS_TRY(ds_tag_actions(&m->problem, &m->arena, &actions, &what.n_actions, err));
    what.actions = actions;
    memcpy(best, r->best, m->problem.graph.n_groups * sizeof *best);
    ds_tag_improve(&what, best, &found);
    ds_tag_prove(&what, best, certificate, &found);
    r->best = best;
    r->best_us = found.us;
    f->lower_us = found.lower_us;
    f->uniform_us = best_uniform(m, actions, what.n_actions);
    return DS_OK;
}

static ds_status search_tree(const cli_search_tag *o, const ds_pase_source *source, ds_tag_model *m,
                             const ds_tag_prior *prior, ds_buf *out, bool *fits, ds_error *err) {
    ds_tag_tree *tree;
    ds_buf lines = {0};
    ds_tag_tree_options options = {.problem = &m->problem,
                                   .n_leaves = DS_TAG_ROUND,
                                   .n_workers = o->n_workers,
                                   .seed = o->seed,
                                   .prior = prior};
    DS_TRY(ds_tag_tree_new(&options, &tree, err));
    ds_status status = ds_tag_tree_run(tree, o->n_playouts, err);
    tag_found found = {.tree = ds_tag_tree_result_of(tree)};
    if (!status) status = improve_tree(o, m, &found, &lines, err);
    if (!status) status = write_certificate(o, source, m->problem.graph.n_groups, &lines, err);
    if (!status && o->json) put_tag(o, m, &found, out);
    if (!status && !o->json) print_tag(o, m, &found, out);
    *fits = !status && is_found(&found);
    ds_buf_deinit(&lines);
    ds_tag_tree_free(tree);
    return status;
}

static ds_status search_tag(const cli_search_tag *o, const ds_pase_source *source,
                            const ds_profiles *profiles, ds_buf *out, bool *fits, ds_error *err) {
    ds_tag_model *model;
    ds_tag_prior *prior = NULL;
    if (o->prior) DS_TRY(ds_tag_weights_read(o->prior, &prior, err));
    ds_status status = read_problem(source, profiles, o->n_groups, &model, err);
    if (!status) {
        status = search_tree(o, source, model, prior, out, fits, err);
        ds_tag_model_free(model);
    }
    ds_tag_prior_free(prior);
    return status;
}

/* ---- both ---- */

static ds_status search(const cli_search_tag *o, const ds_pase_source *source,
                        const ds_profiles *profiles, ds_buf *out, bool *fits, ds_error *err) {
    ds_tag_plan *plan;
    ds_buf text = {0};
    if (strcmp(o->semantics, "tag") == 0) return search_tag(o, source, profiles, out, fits, err);
    DS_TRY(search_distsim(o, source, profiles, &plan, err));
    *fits = !plan->best.status && plan->best.fits;
    if (o->json)
        put_plan(plan, out);
    else
        ds_tag_plan_print(plan, out);
    ds_status status = o->output ? ds_tag_whole_text(plan->whole, plan->choice, &text, err) : DS_OK;
    if (!status && o->output) status = cli_search_drop_unused(o->common, source->path, &text, err);
    if (!status && o->output) status = cli_write(o->common, o->output, text.text, text.n, err);
    if (!status && o->html) status = write_plan_page(o, source->path, plan, err);
    ds_buf_deinit(&text);
    ds_tag_plan_free(plan);
    return status;
}

/* The text of FILE, which `text` owns. */
static ds_status open_source(const cli_options *common, const char *file, ds_buf *text,
                             ds_pase_source *out, ds_error *err) {
    DS_TRY(ds_file_read(file, DS_NOWHERE, DS_LOAD_MAX_BYTES, text, err));
    *out = (ds_pase_source){.path = file,
                            .text = text->text,
                            .n = text->n,
                            .load = cli_load_options(common),
                            .settings = common->settings.at,
                            .n_settings = common->settings.n};
    return DS_OK;
}

ds_status cli_search_tag_run(const cli_search_tag *o, const char *file, ds_buf *out, bool *fits,
                             ds_error *err) {
    const ds_profiles *profiles;
    ds_pase_source source;
    ds_buf text = {0};
    DS_TRY(cli_load_profiles(o->common, &profiles, err));
    ds_status status = open_source(o->common, file, &text, &source, err);
    if (!status) status = search(o, &source, profiles, out, fits, err);
    ds_buf_deinit(&text);
    return status;
}

/* ---- certificates ---- */

static ds_status certify(const ds_pase_source *source, const ds_profiles *profiles,
                         const char *lines, uint32_t n_groups, ds_tag_branched *out,
                         ds_error *err) {
    ds_tag_model *model;
    ds_tag_action *actions;
    DS_TRY(read_problem(source, profiles, n_groups, &model, err));
    ds_tag_branching what = {.problem = &model->problem};
    ds_status status =
        ds_tag_actions(&model->problem, &model->arena, &actions, &what.n_actions, err);
    what.actions = actions;
    if (!status) status = ds_tag_certify(&what, lines, CLI_TAG_FIRST_LINE, out, err);
    ds_tag_model_free(model);
    return status;
}

ds_status cli_search_tag_certify(cli_options *common, const char *file, const char *certificate,
                                 ds_tag_branched *out, ds_error *err) {
    static const char groups[] = "\ngroups\t";
    const ds_profiles *profiles;
    ds_pase_source source;
    ds_buf text = {0};
    const char *at = strstr(certificate, groups);
    char *end = NULL;
    unsigned long n_groups = at ? strtoul(at + strlen(groups), &end, 10) : 0;
    if (n_groups < 1 || n_groups > CLI_TAG_MOST_GROUPS || *end != '\n')
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "certificate, line %d: the number of groups should stand here",
                            CLI_TAG_FIRST_LINE - 1);
    DS_TRY(cli_load_profiles(common, &profiles, err));
    ds_status status = open_source(common, file, &text, &source, err);
    if (!status) status = certify(&source, profiles, end + 1, (uint32_t)n_groups, out, err);
    ds_buf_deinit(&text);
    return status;
}
