/* Candidates by simulation.
 *
 * A worker keeps a unit of its own, parsed and verified once. For a candidate the worker swaps the
 * unit's arena for an empty arena, writes the candidate's knobs into the scenario and binds params;
 * the rest is a run like any other. Then arena and scenario are restored. Names and expressions
 * that a candidate interns stay, and are the same few for all candidates. */
#include "search/space/eval.h"

#include "ir/base/map.h"
#include "ir/base/units.h"
#include "ir/strategy/tokens.h"
#include "ir/verify/verify.h"
#include "search/compose/compose.h"

#include <stdlib.h>
#include <string.h>

/* To be raised whenever the same program comes to another time or memory. */
#define SEMANTICS_VERSION 2

const char *ds_verdict_text(ds_verdict verdict) {
    static const char *const texts[] = {
#define DS_X(name, text) text,
        DS_VERDICT_MAP(DS_X)
#undef DS_X
    };
    return texts[verdict];
}

ds_verdict ds_verdict_of(ds_status status) {
    switch (status) {
    case DS_OK:
        return DS_VERDICT_OK;
    case DS_ERR_MEMORY:
        return DS_VERDICT_DOES_NOT_FIT;
    case DS_ERR_SYNTAX:
    case DS_ERR_NAME:
    case DS_ERR_TYPE:
    case DS_ERR_SHAPE:
    case DS_ERR_SHARDING:
    case DS_ERR_VALUE:
    case DS_ERR_UNSUPPORTED:
        return DS_VERDICT_ILLEGAL;
    default:
        return DS_VERDICT_FAILED;
    }
}

void ds_outcome_deinit(ds_outcome *outcome) {
    ds_buf_deinit(&outcome->reason);
    *outcome = (ds_outcome){0};
}

bool ds_outcome_is_simulated(const ds_outcome *outcome) {
    return outcome->verdict <= DS_VERDICT_DOES_NOT_FIT && !outcome->unsimulated;
}

/* ---- hashes ---- */

static uint64_t mix_text(uint64_t hash, const char *text) {
    return ds_hash_mix(hash, ds_hash_bytes(text, strlen(text)));
}

static uint64_t mix_num(uint64_t hash, const ds_num *num) {
    hash = ds_hash_mix(hash, (uint64_t)num->kind);
    if (num->kind == DS_NUM_STR) return mix_text(hash, num->s);
    if (num->kind == DS_NUM_INT) return ds_hash_mix(hash, (uint64_t)num->i);
    return ds_hash_mix(hash, ds_hash_bytes(&num->r, sizeof num->r));
}

static uint64_t mix_attr(uint64_t hash, const ds_binding *binding, const ds_attr *attr);

/* Unordered entries give the same hash in any written order. */
static uint64_t mix_attrs(uint64_t hash, const ds_binding *binding, const ds_attr *attrs,
                          uint32_t n, bool ordered) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t one = ordered ? i : 0;
        if (attrs[i].name) one = mix_text(one, attrs[i].name);
        sum += mix_attr(one, binding, &attrs[i]);
    }
    return ds_hash_mix(hash, sum);
}

static uint64_t mix_attr(uint64_t hash, const ds_binding *binding, const ds_attr *attr) {
    ds_env env = ds_binding_env(binding, NULL);
    ds_num num;
    ds_buf text = {0};
    switch (attr->kind) {
    case DS_ATTR_EXPR:
    case DS_ATTR_QUANTITY:
        if (ds_expr_eval(&env, attr->expr, attr->loc, &num, NULL) == DS_OK)
            hash = mix_num(hash, &num);
        if (attr->kind == DS_ATTR_QUANTITY) hash = mix_text(hash, ds_unit_text(attr->unit));
        break;
    case DS_ATTR_BOOL:
        hash = ds_hash_mix(hash, attr->flag);
        break;
    case DS_ATTR_WORD: /* the hash of the text of the same letters */
        hash = mix_text(ds_hash_mix(hash, DS_NUM_STR), attr->word);
        break;
    case DS_ATTR_PLACE:
        ds_place_print(&binding->unit->exprs, &attr->place, &text);
        hash = mix_text(hash, text.text);
        break;
    case DS_ATTR_LIST:
    case DS_ATTR_BLOCK:
        break;
    }
    ds_buf_deinit(&text);
    return mix_attrs(hash, binding, attr->items, attr->n_items, attr->kind == DS_ATTR_LIST);
}

uint64_t ds_eval_content(const ds_unit *unit, const ds_profiles *profiles) {
    uint64_t hash = ds_hash_mix(SEMANTICS_VERSION, ds_profiles_hash(profiles));
    for (uint32_t m = 0; m < unit->modules.n; m++) {
        ds_buf text = {0};
        ds_print_module_content(unit->modules.at[m], &text);
        hash = mix_text(hash, text.text);
        ds_buf_deinit(&text);
    }
    return hash;
}

uint64_t ds_eval_hash(const ds_binding *binding, uint64_t content) {
    uint64_t hash = content;
    for (uint32_t m = 0; m < binding->unit->modules.n; m++)
        for (uint32_t i = 0; i < binding->unit->modules.at[m]->params.n; i++)
            hash = mix_num(hash, &binding->params[m][i]);
    const ds_scenario *scenario = ds_unit_scenario(binding->unit);
    return mix_attrs(hash, binding, scenario->entries, scenario->n_entries, false);
}

/* ---- simulation ---- */

typedef struct simulation {
    ds_eval eval;
    const ds_eval_source *source;
    ds_unit *unit;
    ds_plan_ground *ground; /* what candidates have in common; NULL: nothing */
    ds_composer *composer;  /* the same */
    uint32_t most_unfolded; /* tasks of a step that is unfolded */
} simulation;

ds_status ds_eval_options(const ds_binding *binding, ds_sim_options *options, ds_error *err) {
    *options = (ds_sim_options){.cost_mode = DS_COST_FITTED, .trust_passes = true};
    return ds_sim_options_read(binding, options, err);
}

/* One line of printable text. */
static void put_reason(const char *message, ds_buf *out) {
    for (const char *at = message; *at; at++)
        ds_buf_putc(out, (unsigned char)*at < ' ' ? ' ' : *at);
}

static void read_sizes(const ds_binding *binding, ds_metrics *m) {
    const struct {
        const char *section, *name;
        int64_t *value;
    } knobs[] = {{"strategy", "dp", &m->dp},
                 {"strategy", "tp", &m->tp},
                 {"strategy", "pp", &m->pp},
                 {"strategy", "microbatches", &m->microbatches},
                 {"", "batch", &m->samples}};
    int64_t cp = 1;
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        *knobs[i].value = i < 4;
        if (ds_scenario_int(binding, knobs[i].section, knobs[i].name, knobs[i].value, NULL) !=
            DS_OK)
            *knobs[i].value = 0;
    }
    if (ds_scenario_int(binding, "strategy", "cp", &cp, NULL) != DS_OK) cp = 0;
    m->devices = 1;
    const int64_t degrees[] = {m->dp, m->tp, m->pp, cp};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (!ds_mul_i64(m->devices, degrees[i], &m->devices)) m->devices = 0;
}

/* The degrees are the scenario's, which were read before. */
static void take_metrics(const ds_metrics *found, const char *fullest, ds_outcome *out) {
    ds_metrics m = *found;
    m.dp = out->metrics.dp;
    m.tp = out->metrics.tp;
    m.pp = out->metrics.pp;
    m.microbatches = out->metrics.microbatches;
    out->metrics = m;
    if (m.fits) return;
    out->verdict = DS_VERDICT_DOES_NOT_FIT;
    ds_buf_printf(&out->reason, "%lld bytes are missing on %s",
                  (long long)(m.peak_bytes - m.capacity_bytes), fullest);
}

static void take_result(const ds_result *r, ds_outcome *out) {
    const ds_plan *plan = r->plan;
    take_metrics(&r->metrics, ds_topo_device_path(plan->topo, plan->classes[r->fullest].device),
                 out);
    out->unfolded = plan->unfolded;
}

void ds_outcome_of(const ds_result *result, ds_outcome *out) {
    read_sizes(result->source, &out->metrics);
    take_result(result, out);
}

/* Composes the outcome, equal to the simulated one, from a few microbatches (search/compose). False:
 * the candidate must be simulated. */
static bool compose(ds_composer *composer, const ds_binding *binding, const ds_sim_options *options,
                    ds_outcome *out) {
    const char *why;
    ds_composed composed;
    ds_error unsaid; /* the simulation reports errors */
    if (ds_composer_run(composer, binding, options, &composed, &why, &unsaid) != DS_OK || why)
        return false;
    take_metrics(&composed.metrics, composed.fullest_path, out);
    ds_composed_deinit(&composed);
    return true;
}

static ds_status verify(const ds_binding *binding, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify_bound(binding->unit, binding, &diags);
    for (uint32_t i = 0; i < diags.all.n && status != DS_OK; i++) {
        const ds_diag *diag = &diags.all.at[i];
        if (diag->severity != DS_SEV_ERROR) continue;
        ds_error_set(err, status, diag->loc, "%s", diag->message);
        break;
    }
    ds_diags_deinit(&diags);
    return status;
}

static uint64_t hash_choices(const ds_eval_source *source, const ds_candidate *candidate) {
    uint64_t hash = source->content;
    for (uint32_t i = 0; i < ds_space_n_dims(source->space); i++)
        hash = ds_hash_mix(mix_num(hash, &candidate->at[i].value), candidate->at[i].item);
    return hash;
}

static ds_status evaluate(const simulation *s, const ds_candidate *candidate, bool to_the_end,
                          ds_arena *arena, ds_outcome *out, ds_error *err) {
    ds_setting *settings;
    uint32_t n;
    ds_binding binding;
    ds_sim_options options;
    ds_tokens tokens;
    ds_result *result;
    ds_space_set_knobs(s->source->space, candidate, s->unit);
    ds_space_settings(s->source->space, candidate, arena, &settings, &n);
    out->hash = hash_choices(s->source, candidate); /* in case binding fails */
    DS_TRY(ds_bind(s->unit, settings, n, &binding, err));
    out->hash = ds_eval_hash(&binding, s->source->content);
    read_sizes(&binding, &out->metrics);
    if (!to_the_end) return DS_OK;
    DS_TRY(verify(&binding, err));
    DS_TRY(ds_eval_options(&binding, &options, err));
    options.ground = s->ground;
    options.unfold_up_to = s->most_unfolded;
    options.trust_passes = s->composer != NULL;
    DS_TRY(ds_tokens_read(&binding, &tokens, err));
    if (tokens.is_given && !s->most_unfolded) options.repeat_turns = DS_REPEAT_TURNS;
    if (s->composer && compose(s->composer, &binding, &options, out)) return DS_OK;
    DS_TRY(ds_simulate(&binding, s->source->profiles, &options, &result, err));
    take_result(result, out);
    ds_result_free(result);
    return DS_OK;
}

static void run_to(simulation *s, const ds_candidate *candidate, bool to_the_end, ds_outcome *out) {
    ds_buf reason = out->reason;
    reason.n = 0;
    if (reason.text) *reason.text = '\0';
    *out = (ds_outcome){.reason = reason};

    ds_scenario scenario = *ds_unit_scenario(s->unit);
    ds_arena kept = s->unit->arena, own;
    ds_arena_init(&s->unit->arena);
    ds_arena_init(&own);
    ds_error err;
    ds_status status = evaluate(s, candidate, to_the_end, &own, out, &err);
    if (status != DS_OK) {
        out->verdict = ds_verdict_of(status);
        put_reason(err.message, &out->reason);
    }
    out->too_large = status == DS_ERR_LIMIT;
    out->stopped = ds_stop_due(s->unit->stop); /* whatever came out: some errors are passed over */
    ds_scenario_restore(s->unit, &scenario);
    ds_arena_deinit(&own);
    ds_arena_deinit(&s->unit->arena);
    s->unit->arena = kept;
}

static void run_candidate(ds_eval *eval, const ds_candidate *candidate, ds_outcome *out) {
    run_to((simulation *)eval, candidate, true, out);
}

void ds_eval_describe(ds_eval *eval, const ds_candidate *candidate, ds_outcome *out) {
    run_to((simulation *)eval, candidate, false, out);
}

static void free_simulation(ds_eval *eval) {
    simulation *s = (simulation *)eval;
    ds_composer_free(s->composer);
    ds_plan_ground_free(s->ground);
    ds_unit_free(s->unit);
    free(s);
}

ds_status ds_eval_load(const ds_eval_source *source, ds_unit **out, ds_error *err) {
    DS_TRY(source->text
               ? ds_load_text(source->path, source->text, source->text_n, &source->load, out, err)
               : ds_load_file(source->path, &source->load, out, err));
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(*out, &diags);
    ds_diags_deinit(&diags);
    (*out)->stop = source->stop;
    if (status == DS_OK && source->job) DS_TRY(ds_scenario_choose_job(*out, source->job, err));
    if (status != DS_OK || !ds_unit_sweep(*out) || !ds_unit_scenario(*out))
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s changed while it was being read",
                            source->path);
    return DS_OK;
}

static ds_status make(const ds_eval_source *source, simulation **out, ds_error *err) {
    simulation *s = *out = ds_xcalloc(1, sizeof *s);
    s->eval = (ds_eval){run_candidate, free_simulation};
    s->source = source;
    ds_status status = ds_eval_load(source, &s->unit, err);
    if (status == DS_OK && ds_eval_content(s->unit, source->profiles) != source->content)
        status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s changed while it was being read",
                              source->path);
    if (status != DS_OK) free_simulation(&s->eval);
    return status;
}

ds_status ds_eval_new_simulation(const ds_eval_source *source, ds_eval **out, ds_error *err) {
    simulation *s;
    *out = NULL;
    DS_TRY(make(source, &s, err));
    s->ground = ds_plan_ground_new();
    s->composer = ds_composer_new(source->profiles);
    *out = &s->eval;
    return DS_OK;
}

ds_status ds_eval_new_alone(const ds_eval_source *source, uint32_t most_unfolded, ds_eval **out,
                            ds_error *err) {
    simulation *s;
    *out = NULL;
    DS_TRY(make(source, &s, err));
    s->most_unfolded = most_unfolded;
    *out = &s->eval;
    return DS_OK;
}
