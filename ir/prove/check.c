/* Executes a step after every pass and compares neighbours. */
#include "ir/prove/check.h"

#include "ir/exec/exec.h"
#include "ir/ops/ops.h"
#include "ir/passes/project/project.h"
#include "ir/prove/lora.h"
#include "ir/strategy/scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_MARGIN 1e-6 /* assumed: far above the roundings of sums of small programs */

typedef struct checker {
    const ds_binding *source;
    const ds_step_check_options *options;
    ds_step_check *out;
    ds_exec_result *before; /* results of the last program */
    const char **names;     /* present names of these results, which shard and overlap rename */
    double mean_loss;       /* over microbatches; NAN: one batch, or unknown */
    const ds_exec_tensor *inputs; /* of the next run, in place of generated ones */
    uint32_t n_inputs;
    bool keep; /* the next run keeps its inputs */
} checker;

const char *ds_check_kind_name(ds_check_kind kind) {
    static const char *const names[] = {"result", "gradient", "weight", "state"};
    return names[kind];
}

/* ---- comparison ---- */

static bool ends_with(const char *name, size_t n, const char *end) {
    size_t m = strlen(end);
    return n >= m && memcmp(name + n - m, end, m) == 0;
}

/* The endings of names that passes give the results of weight w: w.grad, w.new, w.m.new
 * (passes.h). */
typedef struct ending {
    const char *text;
    ds_check_kind kind;
} ending;

static const ending endings[] = {{".grad", DS_CHECK_GRADIENT}, {".m.new", DS_CHECK_STATE},
                                 {".v.new", DS_CHECK_STATE},   {".master.new", DS_CHECK_STATE},
                                 {".new", DS_CHECK_WEIGHT},    {"", DS_CHECK_RESULT}};

/* The first ending of the name; all names end with "". */
static const ending *ending_of(const char *name) {
    size_t n = strcspn(name, "{");
    const ending *end = endings;
    while (!ends_with(name, n, end->text)) end++;
    return end;
}

static bool same_shape(const ds_exec_tensor *a, const ds_exec_tensor *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

static ds_step_check_row compare_tensors(const ds_exec_tensor *a, const ds_exec_tensor *b) {
    ds_step_check_row row = {.name = a->name, .kind = ending_of(a->name)->kind, .equal = true};
    if (!same_shape(a, b)) {
        row.max_difference = INFINITY;
        row.equal = false;
        return row;
    }
    for (int64_t i = 0; i < a->n; i++) {
        double size = fabs(a->at[i]), difference = fabs(a->at[i] - b->at[i]);
        if (!(difference <= row.max_difference)) row.max_difference = difference; /* NaN stays */
        if (size > row.max_a) row.max_a = size;
    }
    row.equal = row.max_difference <= DS_EXEC_BOUND * row.max_a;
    return row;
}

static bool wanted(const checker *c, ds_pass_id pass) {
    return !c->options->passes || c->options->passes >> pass & 1;
}

static void add_row(checker *c, ds_pass_id pass, ds_step_check_row row) {
    row.pass = pass;
    row.name = ds_arena_strdup(&c->out->arena, row.name);
    DS_PUSH(&c->out->arena, &c->out->rows, row);
}

static double relative(const ds_step_check_row *row) {
    if (!(row->max_difference > 0)) return isnan(row->max_difference) ? INFINITY : 0;
    return row->max_a > 0 ? row->max_difference / row->max_a : INFINITY;
}

/* A tensor that is zero but for roundings has no digits to compare (DS_EXEC_FLOOR). */
static void forgive_roundings(ds_step_check_row *rows, uint32_t n) {
    double largest = 0;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].max_a > largest) largest = rows[i].max_a;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].max_difference <= DS_EXEC_FLOOR * largest) rows[i].equal = true;
}

/* Compares results by number, because passes may rename results. Results that only one program has
 * are additions of the pass. */
static void compare_results(checker *c, ds_pass_id pass, const ds_exec_result *a, uint32_t skip,
                            const ds_exec_result *b) {
    uint32_t n = a->outputs.n < b->outputs.n ? a->outputs.n : b->outputs.n;
    uint32_t first = c->out->rows.n;
    if (!wanted(c, pass)) return;
    c->out->compared = true;
    for (uint32_t i = skip; i < n; i++)
        add_row(c, pass, compare_tensors(&a->outputs.at[i], &b->outputs.at[i]));
    if (n > skip) forgive_roundings(c->out->rows.at + first, n - skip);
}

/* Gives the results their names of the program before, because shard renames results that it
 * reduces. */
static void keep_names(const ds_exec_result *before, ds_exec_result *after) {
    for (uint32_t i = 0; i < after->outputs.n && before->outputs.n == after->outputs.n; i++)
        after->outputs.at[i].name = ds_arena_strdup(&after->arena, before->outputs.at[i].name);
}

/* ---- execution ---- */

static ds_status execute(checker *c, const ds_binding *binding, const char *what,
                         ds_exec_result **out, ds_error *err) {
    ds_exec_options options = {.seed = c->out->seed,
                               .max_bytes = c->options->max_bytes,
                               .keep_inputs = c->keep,
                               .inputs = c->inputs,
                               .n_inputs = c->n_inputs};
    ds_status status = ds_exec_run(binding, &options, out, err);
    if (status != DS_OK) {
        ds_error cause = err ? *err : (ds_error){0};
        return ds_error_set(err, status, ds_error_loc(&cause), "%s: %s", what, cause.message);
    }
    if ((*out)->margin < c->out->margin) c->out->margin = (*out)->margin;
    c->out->n_devices = (*out)->n_devices;
    return DS_OK;
}

/* Compares the model with the lowered step, except result 0 if lower has replaced it by the
 * loss. With adapters the model has their merged weights. */
static ds_status check_lower(checker *c, const ds_model_step *step, ds_error *err) {
    ds_exec_result *model = NULL;
    bool adapters = step->train.on && step->train.lora_rank > 0;
    c->keep = adapters;
    DS_TRY(execute(c, &step->binding, "after lower", &c->before, err));
    c->keep = false;
    if (step->strategy.microbatches > 1 || !wanted(c, DS_PASS_LOWER)) return DS_OK;
    if (step->train.n_documents) {
        c->out->skipped = "the model has one document a sequence, the step has packed documents";
        return DS_OK;
    }
    int64_t microbatches = 1; /* without training the lowered step already has a loop over
                                 microbatches */
    DS_TRY(ds_scenario_int(c->source, "strategy", "microbatches", &microbatches, err));
    if (microbatches > 1) {
        c->out->skipped = "the model runs on the whole batch, the step on microbatches";
        return DS_OK;
    }
    if (adapters) c->inputs = ds_prove__merged(step, c->before, &c->out->arena, &c->n_inputs);
    ds_status status = execute(c, c->source, "the model", &model, err);
    c->n_inputs = 0;
    if (status != DS_OK) return status;
    bool own_loss = step->train.on && step->train.loss != DS_LOSS_NONE;
    compare_results(c, DS_PASS_LOWER, model, own_loss, c->before);
    ds_exec_result_free(model);
    return DS_OK;
}

static bool has_dropout(const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_DROPOUT || (op->body && has_dropout(op->body))) return true;
    }
    return false;
}

static bool is_weight(const ds_model_step *step, ds_value value) {
    for (uint32_t i = 0; i < step->weights.n; i++)
        if (step->weights.at[i].arg.i == value.i) return true;
    return false;
}

/* Runs the step of one microbatch on the inputs that the whole step has as %x{i}. exec draws an
 * input from its name, so the arguments have these names during the run. */
static ds_status run_microbatch(checker *c, const ds_model_step *step, int64_t i,
                                ds_exec_result **out, ds_error *err) {
    const ds_func *func = step->func;
    const char **names = ds_xcalloc(func->n_args + 1, sizeof *names);
    for (uint32_t k = 0; k < func->n_args; k++) {
        ds_value_info *info = ds_value_at(func, func->args[k]);
        names[k] = info->name;
        if (!is_weight(step, func->args[k])) /* of a family %x{i,t}, as %x{i},{t} */
            info->name = ds_arena_printf(&c->out->arena, "%s{%lld}%s", info->name, (long long)i,
                                         info->n_binders ? "," : "");
    }
    ds_status status = execute(c, &step->binding, "after lower", out, err);
    for (uint32_t k = 0; k < func->n_args; k++) ds_value_at(func, func->args[k])->name = names[k];
    free(names);
    return status;
}

static ds_status mean_loss(checker *c, const ds_model_step *step, ds_error *err) {
    int64_t m = step->strategy.microbatches;
    c->mean_loss = NAN;
    if (m == 1 || !step->train.on) return DS_OK;
    if (has_dropout(&step->func->body)) { /* masks differ by microbatch */
        c->out->skipped =
            "with dropout the loss over microbatches is not compared with the model's";
        return DS_OK;
    }
    double sum = 0;
    for (int64_t i = 0; i < m; i++) {
        ds_exec_result *one = NULL;
        DS_TRY(run_microbatch(c, step, i, &one, err));
        sum += one->outputs.at[0].at[0];
        ds_exec_result_free(one);
    }
    c->mean_loss = sum / (double)m;
    return DS_OK;
}

/* Compares only the loss, for grad with microbatches: the lowered step computes one microbatch, the
 * step after grad all. */
static void compare_loss(checker *c, ds_pass_id pass, const ds_exec_result *after) {
    if (isnan(c->mean_loss) || !wanted(c, pass) || !after->outputs.n) return;
    ds_exec_tensor mean = after->outputs.at[0];
    mean.at = &c->mean_loss;
    if (mean.n == 1) add_row(c, pass, compare_tensors(&mean, &after->outputs.at[0]));
}

/* Notes the results' present names for project, before keep_names gives them the names of the first
 * program. */
static void note_names(checker *c, const ds_exec_result *after) {
    c->names = DS_NEW_N(&c->out->arena, const char *, after->outputs.n + 1);
    for (uint32_t i = 0; i < after->outputs.n; i++)
        c->names[i] = ds_arena_strdup(&c->out->arena, after->outputs.at[i].name);
}

static void go_on(checker *c, ds_exec_result *after) {
    ds_exec_result_free(c->before);
    c->before = after;
}

/* ---- the pipeline ---- */

/* Runs the same step whole: no stages, no pieces, no schedule, one device. */
static ds_status run_sequential(checker *c, ds_exec_result **out, ds_error *err) {
    ds_model_step *step = NULL;
    DS_TRY(ds_model_step_new(c->source, &step, err));
    step->train.keep_gradients = true;
    step->strategy.pp = step->strategy.virtual_stages = 1;
    step->strategy.schedule = "1f1b";
    step->strategy.stage_dp = step->strategy.stage_tp = NULL;
    step->strategy.recompute_layers = DS_RECOMPUTE_LAYERS_ALL;
    step->strategy.offload = 0;
    ds_status status = ds_model_step_run_to(step, DS_PASS_OPTIMIZER, NULL, NULL, err);
    if (status == DS_OK) status = execute(c, &step->binding, "the sequential step", out, err);
    if (status != DS_OK) ds_model_step_place_error(c->source->unit, err);
    ds_model_step_free(step);
    return status;
}

/* Is `name` the weight's name, an ending, and possibly a suffix of passes (".whole", "_2")? Returns
 * the ending. */
static const ending *ending_after(const ds_step_weight *weight, const char *name) {
    size_t n = strlen(weight->name);
    if (strncmp(name, weight->name, n) != 0) return NULL;
    for (const ending *end = endings; *end->text; end++) {
        size_t m = strlen(end->text);
        if (strncmp(name + n, end->text, m) == 0 && strchr("{._", name[n + m])) return end;
    }
    return NULL;
}

/* The weight of a result; NULL: none. */
static const ds_step_weight *weight_of(const ds_model_step *step, const char *name,
                                       const ending **end) {
    const ds_step_weight *found = NULL;
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_step_weight *w = &step->weights.at[i];
        const ending *after = ending_after(w, name);
        if (!after || (found && strlen(found->name) > strlen(w->name))) continue;
        found = w;
        *end = after;
    }
    return found;
}

/* Gives result i of a step in chunks or pieces its plain name, "w.c1.grad{3}"; returns its name in the sequential
 * step, "w.grad{3}", where %w is the model's weight of %w.c1. The model's own results keep their
 * positions. */
static const char *name_result(checker *c, const ds_model_step *step, ds_exec_result *after,
                               uint32_t i) {
    const char **name = &after->outputs.at[i].name, *element = *name + strcspn(*name, "{");
    const ending *end = NULL;
    const ds_step_weight *weight = weight_of(step, *name, &end);
    if (i < step->n_model_results && i < c->before->outputs.n) {
        *name = ds_arena_strdup(&after->arena, c->before->outputs.at[i].name);
    } else if (weight) {
        *name = ds_arena_printf(&after->arena, "%s%s%s", weight->name, end->text, element);
        return ds_arena_printf(&after->arena, "%s%s%s", weight->base, end->text, element);
    }
    return *name;
}

static void add_unpaired(checker *c, ds_pass_id pass, const char *name) {
    ds_step_check_row row = {
        .name = name, .kind = ending_of(name)->kind, .max_difference = INFINITY};
    add_row(c, pass, row);
}

/* Compares every result of the pipeline with the sequential step's result of the same name. Several
 * results may have one partner: a tied weight has a result in each of its chunks, a weight with two
 * copies one a copy. All results of both sides must have a partner. */
static void compare_sequential(checker *c, ds_pass_id pass, const ds_exec_result *sequential,
                               const ds_exec_result *after, const char *const *partners) {
    uint32_t n = sequential->outputs.n, first = c->out->rows.n;
    bool *met = ds_xcalloc(n + 1u, sizeof *met);
    for (uint32_t i = 0; i < after->outputs.n; i++) {
        const ds_exec_tensor *result = &after->outputs.at[i];
        uint32_t k = 0;
        while (k < n && strcmp(sequential->outputs.at[k].name, partners[i]) != 0) k++;
        if (k == n) {
            add_unpaired(c, pass, result->name);
            continue;
        }
        ds_step_check_row row = compare_tensors(&sequential->outputs.at[k], result);
        row.name = result->name;
        add_row(c, pass, row);
        met[k] = true;
    }
    for (uint32_t k = 0; k < n; k++)
        if (!met[k]) add_unpaired(c, pass, sequential->outputs.at[k].name);
    if (c->out->rows.n > first) forgive_roundings(c->out->rows.at + first, c->out->rows.n - first);
    free(met);
}

/* Compares a step in chunks or pieces with the sequential step by name, because results may be on
 * other positions, and more in number. */
static ds_status check_parts(checker *c, const ds_model_step *step, ds_pass_id pass,
                             ds_error *err) {
    ds_exec_result *sequential = NULL, *after = NULL;
    char what[32];
    snprintf(what, sizeof what, "after %s", ds_pass_name(pass));
    if (wanted(c, pass)) DS_TRY(run_sequential(c, &sequential, err));
    ds_status status = execute(c, &step->binding, what, &after, err);
    if (status == DS_OK) {
        const char **partners = DS_NEW_N(&after->arena, const char *, after->outputs.n + 1);
        note_names(c, after);
        for (uint32_t i = 0; i < after->outputs.n; i++)
            partners[i] = name_result(c, step, after, i);
        if (sequential) compare_sequential(c, pass, sequential, after, partners);
        go_on(c, after);
    }
    ds_exec_result_free(sequential);
    return status;
}

static ds_status observe(void *context, const ds_model_step *step, ds_pass_id pass, ds_error *err) {
    checker *c = context;
    if (pass == DS_PASS_LOWER) {
        DS_TRY(check_lower(c, step, err));
        return mean_loss(c, step, err);
    }
    ds_pass_id last = ds_model_step_wants(step, DS_PASS_RECOMPUTE)   ? DS_PASS_RECOMPUTE
                      : ds_model_step_wants(step, DS_PASS_OPTIMIZER) ? DS_PASS_OPTIMIZER
                                                                     : DS_PASS_GRAD;
    bool pieces = pass == last && step->strategy.pp == 1 && ds_step_tells_apart(step);
    if (pass == DS_PASS_PIPELINE || pieces) return check_parts(c, step, pass, err);
    ds_exec_result *after = NULL;
    char what[32];
    snprintf(what, sizeof what, "after %s", ds_pass_name(pass));
    DS_TRY(execute(c, &step->binding, what, &after, err));
    if (pass == DS_PASS_GRAD && step->strategy.microbatches > 1)
        compare_loss(c, pass, after);
    else
        compare_results(c, pass, c->before, 0, after);
    note_names(c, after);
    keep_names(c->before, after);
    go_on(c, after);
    return DS_OK;
}

/* ---- ranks ---- */

/* Puts a rank's part into the whole; terms of a sum or maximum are combined. */
static void put_part(double *whole, const ds_project_output *o, const double *part) {
    int64_t at[DS_MAX_RANK] = {0}, n = 1;
    for (uint32_t d = 0; d < o->n_dims; d++) n *= o->dims[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t index = 0;
        for (uint32_t d = 0; d < o->n_dims; d++) index = index * o->full[d] + o->lo[d] + at[d];
        whole[index] = o->max ? fmax(whole[index], part[i]) : whole[index] + part[i];
        for (uint32_t d = o->n_dims; d-- > 0;) {
            if (++at[d] < o->dims[d]) break;
            at[d] = 0;
        }
    }
}

/* Compares one result of the program on its mesh with the whole that the ranks' parts make. */
static void compare_ranks(checker *c, const ds_exec_tensor *before, const ds_exec_result *ranks,
                          const ds_project_outputs *outputs, const char *name) {
    ds_exec_tensor whole = *before;
    bool complete = false;
    whole.at = ds_xcalloc((size_t)before->n + 1, sizeof *whole.at);
    for (uint32_t i = 0; i < outputs->n; i++) {
        const ds_project_output *o = &outputs->at[i];
        if (!o->first || strcmp(o->name, name) != 0) continue;
        const ds_exec_tensor *part = ds_exec_output(ranks, o->rank_name);
        for (int64_t k = 0; o->max && !complete && k < whole.n; k++) whole.at[k] = -INFINITY;
        if (part) put_part(whole.at, o, part->at);
        complete = part != NULL;
    }
    ds_step_check_row row = compare_tensors(before, &whole);
    row.equal = row.equal && complete;
    add_row(c, DS_PASS_PROJECT, row);
    free(whole.at);
}

static ds_status run_ranks(checker *c, ds_unit *unit, const ds_project_outputs *outputs,
                           ds_error *err) {
    ds_binding binding;
    ds_exec_result *ranks = NULL;
    DS_TRY(ds_bind(unit, NULL, 0, &binding, err));
    DS_TRY(execute(c, &binding, "after project", &ranks, err));
    uint32_t first = c->out->rows.n, n = c->before->outputs.n;
    for (uint32_t i = 0; i < n; i++)
        compare_ranks(c, &c->before->outputs.at[i], ranks, outputs, c->names[i]);
    if (n) forgive_roundings(c->out->rows.at + first, n);
    ds_exec_result_free(ranks);
    return DS_OK;
}

/* Compares the program on its mesh with one body per rank. A program that ranks cannot express is
 * skipped, and is no difference. */
static ds_status check_project(checker *c, const ds_model_step *step, ds_error *err) {
    ds_unit *unit = NULL;
    ds_project_outputs outputs = {0};
    ds_error why = {0};
    ds_status status = ds_project_program(&step->binding, &unit, &outputs, &why);
    if (status == DS_ERR_UNSUPPORTED && !c->options->passes) {
        c->out->skipped =
            ds_arena_printf(&c->out->arena, "project is not compared: %s", why.message);
        return DS_OK;
    }
    if (status != DS_OK) {
        if (err) *err = why;
        return status;
    }
    status = run_ranks(c, unit, &outputs, err);
    ds_unit_free(unit);
    return status;
}

/* ---- the check ---- */

static ds_pass_id last_pass(const checker *c) {
    ds_pass_id last = DS_PASS_OVERLAP;
    if (!c->options->passes) return last;
    for (uint32_t i = 0; i <= DS_PASS_OVERLAP; i++)
        if (c->options->passes >> i & 1) last = (ds_pass_id)i;
    return last;
}

static ds_status check_once(checker *c, ds_error *err) {
    ds_model_step *step = NULL;
    ds_step_check *out = c->out;
    out->rows.n = 0;
    c->names = NULL;
    out->equal = true;
    out->margin = INFINITY;
    DS_TRY(ds_model_step_new(c->source, &step, err));
    step->train.keep_gradients = true;
    ds_status status = ds_model_step_run_to(step, last_pass(c), observe, c, err);
    if (status == DS_OK && c->names && wanted(c, DS_PASS_PROJECT))
        status = check_project(c, step, err);
    ds_exec_result_free(c->before);
    c->before = NULL;
    if (status != DS_OK) ds_model_step_place_error(c->source->unit, err);
    ds_model_step_free(step);
    return status;
}

ds_status ds_model_step_check(const ds_binding *binding, const ds_step_check_options *options,
                              ds_step_check *out, ds_error *err) {
    checker c = {.source = binding, .options = options, .out = out};
    *out = (ds_step_check){.seed = options->seed};
    ds_arena_init(&out->arena);
    for (uint32_t i = 0; i < DS_CHECK_MAX_SEEDS; i++) {
        out->seed = options->seed + i;
        DS_TRY(check_once(&c, err));
        if (out->margin >= MIN_MARGIN) break;
    }
    for (uint32_t i = 0; i < out->rows.n; i++) out->equal = out->equal && out->rows.at[i].equal;
    for (uint32_t i = 0; i < out->rows.n; i++)
        if (!out->worst || relative(&out->rows.at[i]) > relative(out->worst))
            out->worst = &out->rows.at[i];
    return DS_OK;
}

void ds_step_check_deinit(ds_step_check *check) {
    ds_arena_deinit(&check->arena);
    *check = (ds_step_check){0};
}
