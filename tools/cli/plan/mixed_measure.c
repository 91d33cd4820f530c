/* distsim plan on mixed clusters: what the estimates are made of. Each number is a simulation of a
 * model of one or two layers on a few devices of a kind; differences tell layers from ends,
 * and a second microbatch tells forward and backward from the optimizer. */
#include "tools/cli/plan/mixed.h"

#include "ir/lang/lang.h"
#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "search/space/eval.h"
#include "sim/topo/topo.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */

static const char *on(const cli_plan *plan) {
    return ds_arena_printf(plan->arena, "@%s%s", plan->cluster ? "" : "box.", plan->on_name);
}

void cli_mixed_put_program(const cli_mixed *mixed, const cli_plan *plan, const ds_mixed_plan *p,
                           ds_buf *out) {
    char batch[24];
    snprintf(batch, sizeof batch, "%" PRId64, plan->batch);
    ds_buf_put(out, "dir 1\n\n");
    cli_plan_put_imports(plan, batch, out);
    ds_mixed_put_mesh(&mixed->problem, p, on(plan), out);
    ds_buf_printf(out,
                  "\nscenario {\n  name = \"%s\"\n  model = @model.%s\n  on = %s\n  mesh = @plan\n"
                  "%s  framework = none\n  memory = allocator\n"
                  "  train { %soptimizer = %s, dtype = %s }\n  strategy { ",
                  plan->model_func, plan->model_func, on(plan), plan->keys.n ? plan->keys.text : "",
                  plan->has_loss ? "" : "loss = mse, ", plan->optimizer, plan->dtype);
    ds_mixed_put_strategy(&mixed->problem, p, out);
    ds_buf_put(out, " }\n}\n");
}

/* The first device of a stage does as much as the others. */
static void take_busy(const cli_mixed *mixed, const ds_mixed_plan *plan, const ds_result *result,
                      cli_mixed_run *out) {
    uint32_t *devices = calloc(mixed->problem.n_devices, sizeof *devices), at = 0;
    ds_mixed_devices(&mixed->problem, plan, devices);
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        uint32_t cls = result->plan->class_of[devices[at]];
        const ds_account *account = &result->accounts[cls];
        if (cls != DS_NONE)
            out->busy_s[s] = (double)(account->compute_ps + account->exposed_comm_ps) * 1e-12;
        at += (uint32_t)plan->stages[s].dp * plan->stages[s].tp;
    }
    free(devices);
}

static ds_status run_unit(const cli_mixed *mixed, ds_plan_ground *ground, ds_unit *unit,
                          const ds_mixed_plan *plan, cli_mixed_run *out, ds_error *err) {
    ds_binding binding;
    ds_sim_options options;
    ds_result *result;
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(unit, &diags);
    for (uint32_t i = diags.all.n; i-- > 0 && status != DS_OK;)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_error_set(err, status, diags.all.at[i].loc, "%s", diags.all.at[i].message);
    ds_diags_deinit(&diags);
    DS_TRY(status);
    DS_TRY(ds_bind(unit, NULL, 0, &binding, err));
    DS_TRY(ds_eval_options(&binding, &options, err));
    options.ground = ground;
    if (!plan) {
        ds_model_counts n;
        DS_TRY(ds_model_count(&binding, ds_scenario_model(unit), &n, err));
        out->parameters = n.parameters;
    }
    DS_TRY(ds_simulate(&binding, mixed->profiles, &options, &result, err));
    out->step_ps = result->metrics.step_ps;
    out->hidden_ps = result->metrics.hidden_comm_ps;
    out->comm_ps = result->metrics.exposed_comm_ps + out->hidden_ps;
    out->peak_bytes = result->metrics.peak_bytes;
    out->capacity_bytes = result->metrics.capacity_bytes;
    out->fits = result->metrics.fits;
    if (plan && !plan->side_by_side) take_busy(mixed, plan, result, out);
    ds_result_free(result);
    return DS_OK;
}

ds_status cli_mixed_run_text(const cli_mixed *mixed, ds_plan_ground *ground, const ds_buf *text,
                             const ds_mixed_plan *plan, cli_mixed_run *out, ds_error *err) {
    ds_unit *unit = NULL;
    *out = (cli_mixed_run){0};
    ds_status status = ds_load_text("plan", text->text, text->n, &mixed->plan->load, &unit, err);
    if (status == DS_OK) status = run_unit(mixed, ground, unit, plan, out, err);
    ds_unit_free(unit);
    return status;
}

/* ---- plans, on workers ---- */

/* Worker i of n takes texts i, i + n, …: a result never depends on which worker made it. */
typedef struct worker {
    const cli_mixed *mixed;
    uint32_t first, step, n;
    const ds_buf *texts;
    const ds_mixed_plan *plans;
    cli_mixed_run *runs;
    ds_error *errors;
    pthread_t thread;
    bool started;
} worker;

static void *work(void *context) {
    worker *w = context;
    for (uint32_t i = w->first; i < w->n; i += w->step)
        if (cli_mixed_run_text(w->mixed, w->mixed->grounds[w->first], &w->texts[i], &w->plans[i],
                               &w->runs[i], &w->errors[i]) != DS_OK)
            w->runs[i] = (cli_mixed_run){0};
    return NULL;
}

static void work_all(const worker *all) {
    const cli_mixed *mixed = all->mixed;
    const uint32_t n = all->n;
    worker workers[CLI_MIXED_WORKERS];
    for (uint32_t i = 0; i < mixed->n_workers; i++) {
        workers[i] = *all;
        workers[i].first = i;
        workers[i].started =
            i && i < n && pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    for (uint32_t i = 0; i < mixed->n_workers; i++)
        if (!workers[i].started) work(&workers[i]);
    for (uint32_t i = 0; i < mixed->n_workers; i++)
        if (workers[i].started) pthread_join(workers[i].thread, NULL);
}

ds_status cli_mixed_simulate(void *context, ds_mixed_plan *plans, uint32_t n, ds_error *err) {
    cli_mixed *mixed = context;
    ds_buf *texts = calloc(n, sizeof *texts);
    cli_mixed_run *runs = calloc(n, sizeof *runs);
    ds_error *errors = calloc(n, sizeof *errors);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        cli_mixed_put_program(mixed, mixed->plan, &plans[i], &texts[i]);
        status = cli_plan_fix(mixed->plan, "plan", &texts[i], err);
    }
    const worker all = {.mixed = mixed,
                        .step = mixed->n_workers,
                        .n = n,
                        .texts = texts,
                        .plans = plans,
                        .runs = runs,
                        .errors = errors};
    if (status == DS_OK) work_all(&all);
    for (uint32_t i = 0; i < n; i++) {
        plans[i].fits = runs[i].fits;
        plans[i].step_ps = runs[i].step_ps;
        plans[i].peak_bytes = runs[i].peak_bytes;
        memcpy(plans[i].busy_s, runs[i].busy_s, sizeof runs[i].busy_s);
        if (errors[i].code && !mixed->first.code) mixed->first = errors[i];
        ds_buf_deinit(&texts[i]);
    }
    free(texts);
    free(runs);
    free(errors);
    return status;
}

/* ---- kinds ---- */

static ds_status read_types(cli_mixed *mixed, const ds_topology *topology,
                            const ds_binding *binding, ds_error *err) {
    ds_mixed_problem *problem = &mixed->problem;
    ds_arena *arena = mixed->plan->arena;
    ds_topo *topo;
    DS_TRY(ds_topo_build(binding, topology, &topo, err));
    problem->n_devices = ds_topo_n_devices(topo);
    ds_status status = DS_OK;
    uint32_t *islands[DS_MIXED_KINDS], in_island = 0;
    for (uint32_t d = 0; d < problem->n_devices && status == DS_OK; d++) {
        const char *type = ds_topo_device_type(topo, d);
        uint32_t k = 0, island = ds_topo_island(topo, d);
        while (k < problem->n_kinds && strcmp(problem->kinds[k].name, type) != 0) k++;
        if (k == DS_MIXED_KINDS) {
            status = ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                                  "@%s has more than %d kinds of devices: %s is one more",
                                  topology->name, DS_MIXED_KINDS, type);
            break;
        }
        ds_mixed_kind *kind = &problem->kinds[k];
        if (k == problem->n_kinds) {
            problem->n_kinds++;
            kind->name = ds_arena_strdup(arena, type);
            kind->devices = DS_NEW_N(arena, uint32_t, problem->n_devices);
            islands[k] = DS_NEW_N(arena, uint32_t, problem->n_devices);
        }
        uint32_t before = 0;
        for (uint32_t i = kind->n_devices; i-- > 0 && islands[k][i] == island;) before++;
        in_island = before + 1;
        /* --cluster A100:4x2 leaves all but two GPUs of a machine alone */
        if (mixed->plan->n_parts && in_island > mixed->plan->parts[k].gpus) continue;
        ((uint32_t *)kind->devices)[kind->n_devices] = d;
        islands[k][kind->n_devices++] = island;
        if (in_island > kind->per_machine) kind->per_machine = in_island;
    }
    ds_topo_free(topo);
    return status;
}

static ds_status read_topology(cli_mixed *mixed, ds_error *err) {
    const cli_plan *plan = mixed->plan;
    ds_buf text = {0};
    ds_unit *unit = NULL;
    ds_binding binding;
    ds_diags diags;
    ds_buf_put(&text, "dir 1\n\n");
    cli_plan_put_imports(plan, NULL, &text);
    ds_status status = ds_load_text("plan", text.text, text.n, &plan->load, &unit, err);
    ds_diags_init(&diags);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    ds_diags_deinit(&diags);
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, err);
    if (status == DS_OK) {
        const ds_module *root = unit->modules.at[0];
        const ds_module *box = plan->cluster ? root : root->imports.at[0].module;
        for (uint32_t i = 0; i < box->topologies.n; i++)
            if (strcmp(box->topologies.at[i]->name, plan->on_name) == 0)
                status = read_types(mixed, box->topologies.at[i], &binding, err);
    }
    ds_unit_free(unit);
    ds_buf_deinit(&text);
    return status;
}

/* ---- prices ---- */

static const struct {
    const char *gpu;
    double usd_per_hour, watts;
} prices[] = {
#define PRICE(gpu, usd_per_hour, watts) {gpu, usd_per_hour, watts},
#include "tools/cli/plan/prices.def"
};

/* "A100=3.67,V100=2.86" into the numbers of the kinds, by any name of the catalogue. */
static ds_status read_by_kind(cli_mixed *mixed, const char *option, const char *text, size_t at,
                              ds_error *err) {
    while (text && *text) {
        size_t n = strcspn(text, ","), name = strcspn(text, "=");
        uint32_t kind, found = UINT32_MAX;
        char *end = NULL;
        double value = name < n ? strtod(text + name + 1, &end) : -1;
        const char *word = ds_arena_strndup(mixed->plan->arena, text, name < n ? name : n);
        if (!end || end != text + n || !(value >= 0) || !(value < 1e9))
            return ds_error_set(
                err, DS_ERR_USAGE, DS_NOWHERE,
                "--%s %.*s: write GPU=NUMBER,GPU=NUMBER, numbers from 0 to below 1e9", option,
                (int)n, text);
        if (ds_profiles_find_kind(mixed->profiles, word, DS_NOWHERE, &kind, NULL) == DS_OK)
            word = ds_profiles_kind(mixed->profiles, kind)->name;
        for (uint32_t k = 0; k < mixed->problem.n_kinds; k++)
            if (strcmp(mixed->problem.kinds[k].name, word) == 0) found = k;
        if (found == UINT32_MAX)
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE, "--%s: the cluster has no '%s'",
                                option, word);
        memcpy((char *)&mixed->problem.kinds[found] + at, &value, sizeof value);
        text += n + (text[n] == ',');
    }
    return DS_OK;
}

static ds_status find_prices(cli_mixed *mixed, ds_error *err) {
    for (uint32_t k = 0; k < mixed->problem.n_kinds; k++)
        for (size_t i = 0; i < sizeof prices / sizeof *prices; i++)
            if (strcmp(prices[i].gpu, mixed->problem.kinds[k].name) == 0) {
                mixed->problem.kinds[k].usd_per_hour = prices[i].usd_per_hour;
                mixed->problem.kinds[k].watts = prices[i].watts;
            }
    DS_TRY(read_by_kind(mixed, "price", mixed->args->prices, offsetof(ds_mixed_kind, usd_per_hour),
                        err));
    return read_by_kind(mixed, "preempt", mixed->args->preempt,
                        offsetof(ds_mixed_kind, failures_per_hour), err);
}

/* ---- pieces ---- */

typedef struct piece {
    uint32_t kind, tp, dp;
    bool all_kinds; /* dp replicas on each kind, beginning with `kind` */
    uint8_t zero;
    int64_t layers, samples, microbatches;
} piece;

static ds_status run_piece(cli_mixed *mixed, const piece *p, cli_mixed_run *run, ds_error *err) {
    cli_plan plan = *mixed->plan;
    ds_mixed_plan one = {.side_by_side = true, .n_stages = 1, .n_groups = 1};
    ds_buf text = {0};
    one.stages[0].tp = (uint16_t)p->tp;
    one.groups[0] = (ds_mixed_group){(uint8_t)p->kind, (uint16_t)p->dp, p->dp * p->samples};
    for (uint32_t k = 0; k < mixed->problem.n_kinds && p->all_kinds; k++)
        if (k != p->kind)
            one.groups[one.n_groups++] =
                (ds_mixed_group){(uint8_t)k, (uint16_t)p->dp, p->dp * p->samples};
    one.microbatches = p->microbatches;
    plan.batch = (int64_t)one.n_groups * p->dp * p->samples * p->microbatches;
    if (mixed->problem.cuts)
        cli_plan_give(&plan.model, "layers", ds_arena_printf(plan.arena, "%" PRId64, p->layers));
    one.zero = p->zero;
    cli_mixed_put_program(mixed, &plan, &one, &text);
    ds_status status = cli_plan_fix(mixed->plan, "plan", &text, err);
    if (status == DS_OK)
        status = cli_mixed_run_text(mixed, mixed->grounds[0], &text, NULL, run, err);
    mixed->n_pieces++;
    ds_buf_deinit(&text);
    return status;
}

static double seconds(const cli_mixed_run *run) {
    return (double)run->step_ps * 1e-12;
}

static double not_negative(double x) {
    return x > 0 ? x : 0;
}

/* One and two layers; a model that is not cut has one "layer" and no ends. */
static ds_status run_both(cli_mixed *mixed, piece p, cli_mixed_run out[2], ds_error *err) {
    p.layers = 1;
    DS_TRY(run_piece(mixed, &p, &out[0], err));
    p.layers = 2;
    if (mixed->problem.cuts) return run_piece(mixed, &p, &out[1], err);
    out[1] = out[0];
    out[1].step_ps *= 2;
    out[1].comm_ps *= 2;
    out[1].peak_bytes *= 2;
    out[1].parameters *= 2;
    return DS_OK;
}

/* A layer's activations are told by many samples, since the peak of one sample may lie in the optimizer, where
 * there are none; its weights, gradients and states by the larger of the two peaks. */
static void take_bytes(ds_mixed_piece *to, cli_mixed_run runs[DS_MIXED_SAMPLES][2]) {
    const cli_mixed_run *few = runs[DS_MIXED_SAMPLES - 2], *many = runs[DS_MIXED_SAMPLES - 1];
    const double n = 1 << (DS_MIXED_SAMPLES - 1), half = n / 2;
    double layer = (double)(many[1].peak_bytes - many[0].peak_bytes);
    double one = (double)(runs[0][1].peak_bytes - runs[0][0].peak_bytes);
    double fewer = (double)(few[1].peak_bytes - few[0].peak_bytes);
    double sample = (double)(many[0].peak_bytes - few[0].peak_bytes) / half;
    to->layer_sample_bytes = not_negative(layer - fewer) / half;
    to->layer_bytes = fmax(layer - n * to->layer_sample_bytes, one - to->layer_sample_bytes);
    to->layer_bytes = not_negative(to->layer_bytes);
    to->ends_sample_bytes = not_negative(sample - to->layer_sample_bytes);
    to->ends_bytes = not_negative((double)runs[0][0].peak_bytes - one - to->ends_sample_bytes);
}

static ds_status measure_piece(cli_mixed *mixed, uint32_t k, uint32_t t, ds_error *err) {
    ds_mixed_problem *problem = &mixed->problem;
    ds_mixed_piece *to = &problem->kinds[k].pieces[t];
    piece p = {.kind = k, .tp = 1u << t, .dp = 1, .samples = 1, .microbatches = 1};
    cli_mixed_run runs[DS_MIXED_SAMPLES][2], twice[2];
    const cli_mixed_run *one = runs[0];
    for (uint32_t i = 0; i < DS_MIXED_SAMPLES; i++) {
        p.samples = 1 << i;
        const cli_mixed_run *run = runs[i];
        DS_TRY(run_both(mixed, p, runs[i], err));
        double layer = seconds(&run[1]) - seconds(&run[0]), ends = seconds(&run[0]) - layer;
        if (i == 0) {
            p.microbatches = 2;
            DS_TRY(run_both(mixed, p, twice, err));
            p.microbatches = 1;
            double more = seconds(&twice[1]) - seconds(&twice[0]) - layer;
            to->layer_update_s = not_negative(layer - more);
            to->ends_update_s = not_negative(ends - (seconds(&twice[0]) - seconds(&one[0]) - more));
            problem->kinds[k].capacity_bytes = (double)one[0].capacity_bytes;
            problem->layer_params = (double)(one[1].parameters - one[0].parameters);
            problem->ends_params = (double)one[0].parameters - problem->layer_params;
        }
        to->layer_s[i] = fmax(layer - to->layer_update_s, 1e-9);
        to->ends_s[i] = not_negative(ends - to->ends_update_s);
    }
    take_bytes(to, runs);
    to->known = true;
    return DS_OK;
}

static bool takes_tp(const cli_plan *plan, const ds_mixed_kind *kind, uint32_t tp) {
    int64_t heads = plan->kv_heads ? plan->kv_heads : plan->heads;
    if (tp == 1) return true;
    return heads && heads % tp == 0 && (!plan->vocab || plan->vocab % tp == 0) &&
           kind->per_machine % tp == 0 && (plan->framework->parallel & CLI_HAS_TP);
}

/* What the sum of gradients adds to a layer, a byte of its weights. */
static ds_status measure_sum(cli_mixed *mixed, piece p, uint32_t dp, double *out, ds_error *err) {
    ds_mixed_problem *problem = &mixed->problem;
    cli_mixed_run run[2];
    p.dp = dp;
    DS_TRY(run_both(mixed, p, run, err));
    double sum = (double)(run[1].comm_ps - run[0].comm_ps) * 1e-12;
    *out = not_negative(sum) / (2 * problem->layer_params);
    if (run[1].hidden_ps > 0) problem->kinds[p.kind].hides_sums = true;
    return DS_OK;
}

/* A power of two of devices, which divides the dims of layers as a rule. */
static uint32_t power_up_to(uint32_t n) {
    uint32_t power = 1;
    while (2 * power <= n) power *= 2;
    return power;
}

/* A kind of one machine sends to a device of each other kind. */
static ds_status measure_sums(cli_mixed *mixed, uint32_t k, uint8_t zero, ds_error *err) {
    ds_mixed_problem *problem = &mixed->problem;
    ds_mixed_kind *kind = &problem->kinds[k];
    double *out = kind->sync_s_per_byte[zero];
    piece p = {.kind = k, .tp = 1, .zero = zero, .samples = 1, .microbatches = 1};
    uint32_t two = 2 * kind->per_machine, all = power_up_to(kind->n_devices);
    if (kind->per_machine > 1) DS_TRY(measure_sum(mixed, p, kind->per_machine, &out[0], err));
    if (kind->n_devices > kind->per_machine) {
        DS_TRY(measure_sum(mixed, p, two < kind->n_devices ? two : kind->n_devices, &out[1], err));
        out[2] = out[1];
        return all > two ? measure_sum(mixed, p, all, &out[2], err) : DS_OK;
    }
    if (problem->n_kinds < 2) return DS_OK;
    p.all_kinds = true;
    DS_TRY(measure_sum(mixed, p, 1, &out[1], err));
    out[2] = out[1];
    return DS_OK;
}

/* As many devices of each kind as the smallest has. */
static ds_status measure_mixed(cli_mixed *mixed, uint8_t zero, ds_error *err) {
    ds_mixed_problem *problem = &mixed->problem;
    piece p = {.tp = 1, .zero = zero, .samples = 1, .microbatches = 1, .all_kinds = true};
    uint32_t least = problem->kinds[0].n_devices;
    for (uint32_t k = 1; k < problem->n_kinds; k++)
        if (problem->kinds[k].n_devices < least) least = problem->kinds[k].n_devices;
    if (problem->n_kinds < 2) return DS_OK;
    return measure_sum(mixed, p, power_up_to(least), &problem->mixed_sync_s_per_byte[zero], err);
}

ds_status cli_mixed_measure(cli_mixed *mixed, ds_error *err) {
    const cli_plan *plan = mixed->plan;
    ds_mixed_problem *problem = &mixed->problem;
    problem->batch = plan->batch;
    problem->sample_units = plan->seq ? plan->seq : 1;
    problem->cuts =
        plan->layers > 1 && plan->has_one_loop && (plan->framework->parallel & CLI_HAS_PP);
    problem->layers = problem->cuts ? (uint32_t)plan->layers : 1;
    problem->edge_bytes = (double)problem->sample_units * (double)plan->hidden *
                          (strcmp(plan->dtype, "f32") == 0 ? 4 : 2);
    problem->width = plan->hidden;
    problem->between_bytes_per_s = plan->between_gb_per_s * 1e9;
    DS_TRY(read_topology(mixed, err));
    DS_TRY(find_prices(mixed, err));
    for (uint32_t k = 0; k < problem->n_kinds; k++)
        for (uint32_t t = 0; t < DS_MIXED_TPS; t++)
            if (takes_tp(plan, &problem->kinds[k], 1u << t)) {
                ds_error refused = {0};
                ds_status status = measure_piece(mixed, k, t, &refused);
                if (status != DS_OK && t == 0) return *err = refused, status;
            }
    for (uint32_t k = 0; k < problem->n_kinds; k++)
        for (uint8_t zero = 0; zero < 2; zero++) DS_TRY(measure_sums(mixed, k, zero, err));
    for (uint8_t zero = 0; zero < 2; zero++) DS_TRY(measure_mixed(mixed, zero, err));
    return DS_OK;
}
