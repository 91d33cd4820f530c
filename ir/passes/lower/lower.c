/* lower: the scenario's model as one function @step in a module of its own.
 *
 * Calls are inlined, loops stay loops, weights become arguments, the loss of `train` is added. The
 * module needs no imports: params have their bound values, and topologies and meshes are copied.
 * The module's scenario turns off everything that is applied, so that the text means the same:
 * `loss = none`, and no microbatches, since @step is one microbatch. */
#include "ir/passes/lower/internal.h"

#include "ir/core/rec.h"
#include "ir/exec/exec.h"
#include "ir/passes/internal.h"
#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

static ds_expr plain(void *context, ds_expr e) {
    return ds_clone_expr(context, e);
}

/* ---- inputs ---- */

static ds_binder micro_binder(ds_lowering *l) {
    ds_exprs *exprs = &l->c.unit->exprs;
    return (ds_binder){.name = l->micro_index,
                       .lo = ds_expr_int(exprs, 0),
                       .hi = ds_expr_int(exprs, l->step->strategy.microbatches)};
}

/* An argument of the model; if microbatches are a loop, an argument with a batch is a family. */
static void add_input(ds_lowering *l, ds_lower_frame *frame, ds_value value) {
    const ds_value_info *info = ds_value_at(frame->func, value);
    uint32_t n = info->n_binders;
    bool micro = l->micro_index && ds_type_is_over(info->type, 0, "dp");
    ds_binder *binders = DS_NEW_N(ds_lower__arena(l), ds_binder, n + 2);
    ds_lower_loop *scopes = DS_NEW_N(ds_lower__arena(l), ds_lower_loop, n + 1);
    const char **open = DS_NEW_N(ds_lower__arena(l), const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        binders[i].lo = ds_lower__expr(l, frame, info->binders[i].lo);
        binders[i].hi = ds_lower__expr(l, frame, info->binders[i].hi);
        binders[i].name = open[i] = ds_clone_index_name(&l->c, info->binders[i].name, open, i);
        scopes[i] = (ds_lower_loop){.old = ds_clone_text(&l->c, info->binders[i].name),
                                    .name = open[i],
                                    .by = ds_expr_index(&l->c.unit->exprs, open[i]),
                                    .frame_up = frame->loops};
        frame->loops = &scopes[i];
    }
    if (micro) { /* before the others: a read of %x{t} becomes one of %x{m, t} */
        memmove(binders + 1, binders, n++ * sizeof *binders);
        binders[0] = micro_binder(l);
    }
    ds_type *type = ds_lower__type(l, frame, info->type);
    frame->loops = NULL;
    ds_attr *attrs;
    uint32_t n_attrs;
    ds_lower__attrs(l, frame, info->attrs, info->n_attrs, "", &attrs, &n_attrs);
    ds_value arg = ds_build_arg(&l->b, info->name, type, binders, n, attrs, n_attrs);
    ds_value_at(l->b.func, arg)->loc = ds_clone_loc(&l->c, info->loc);
    ds_expr at = micro ? ds_expr_index(&l->c.unit->exprs, l->micro_index) : DS_NO_EXPR;
    frame->values[value.i].use =
        micro ? ds_use_at(ds_lower__arena(l), arg, &at, 1) : ds_use_of(arg);
}

/* ---- the loss ---- */

static ds_status check_loss(ds_lowering *l, const ds_use *result, ds_error *err) {
    const ds_type *type = ds_use_type(l->c.unit, l->b.func, result);
    bool family = !result->n_index && ds_value_at(l->b.func, result->value)->n_binders;
    if (type && type->rank == 0 && ds_dtype_is_float(type->dtype) && !family) return DS_OK;
    ds_buf text = {0};
    if (type) ds_type_print(&l->c.unit->exprs, type, &text);
    ds_error_set(err, DS_ERR_UNSUPPORTED, l->model->loc,
                 "training needs a scalar loss: the first result of @%s is %s; say "
                 "'loss = mse' or 'loss = cross_entropy' in train, or return the loss first",
                 l->model->name, text.n ? text.text : "unknown");
    ds_buf_deinit(&text);
    return DS_ERR_UNSUPPORTED;
}

/* Renames the model's own loss to %loss, if no other value has that name. */
static void name_loss(ds_lowering *l, const ds_use *result) {
    ds_value_info *info = ds_value_at(l->b.func, result->value);
    const char *name = ds_clone_text(&l->c, "loss");
    if (info->is_arg || !info->def || result->n_index || info->name == name ||
        ds_map_find(&l->b.names, DS_KEY(name)))
        return;
    ds_op *op = info->def;
    if (op->code >= DS_OP_FIRST_TABLE_OP && op->out[0].i == result->value.i &&
        !ds_attr_find(op->attrs, op->n_attrs, "name"))
        ds_build_attr_text(&l->b, op, "name", info->name);
    info->name = ds_build_name(&l->b, "loss");
}

/* Is a later dim split over an axis of `first`? Dim 0 cannot then be split as `first`. */
static bool axis_is_taken(const ds_type *type, const ds_dim *first) {
    for (uint32_t d = 1; d < type->rank; d++)
        for (uint32_t s = 0; s < first->n_splits; s++)
            if (ds_type_is_over(type, d, first->splits[s].axis)) return true;
    return false;
}

/* A result without splits on dim 0 takes the splits of the first input over @dp with as many
 * samples. */
static void hint_samples(ds_lowering *l, ds_type *type) {
    const ds_func *func = l->b.func;
    if (!type->rank || type->dims[0].n_splits) return;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_type *input = ds_value_at(func, func->args[i])->type;
        if (!ds_type_is_over(input, 0, "dp") || axis_is_taken(type, &input->dims[0]) ||
            ds_expr_equal(&l->c.unit->exprs, input->dims[0].size, type->dims[0].size) != DS_YES)
            continue;
        type->dims[0] = input->dims[0];
        return;
    }
}

static ds_type *target_type(ds_lowering *l, const ds_type *of) {
    ds_type *type = ds_type_copy(ds_lower__arena(l), of);
    hint_samples(l, type);
    type->partials = NULL;
    type->n_partials = 0;
    if (l->step->train.loss == DS_LOSS_MSE) return type;
    type->dtype = DS_I32;
    type->rank--;
    return type;
}

/* %loss = mse(%result, %target). */
static ds_status add_loss(ds_lowering *l, ds_use *result, ds_error *err) {
    bool mse = l->step->train.loss == DS_LOSS_MSE;
    const ds_type *of = ds_use_type(l->c.unit, l->b.func, result);
    if (!of || !ds_dtype_is_float(of->dtype) || (!mse && !of->rank) ||
        (!result->n_index && ds_value_at(l->b.func, result->value)->n_binders))
        return ds_error_set(err, DS_ERR_TYPE, l->model->loc,
                            "loss = %s: the first result of @%s must be a float tensor%s",
                            mse ? "mse" : "cross_entropy", l->model->name,
                            mse ? "" : " whose last dim is the classes");
    ds_type *type = target_type(l, of);
    ds_value target = ds_build_arg(&l->b, "target", type, NULL, 0, NULL, 0);
    ds_use uses[2] = {*result, ds_use_of(target)};
    for (uint32_t i = 0; i < 2 && l->narrow; i++)
        if ((mse || i == 0) && ds_dtype_bits(of->dtype) < 32)
            DS_TRY(ds_lower__cast(l, &uses[i], DS_F32, err));
    ds_op *op = ds_build_op(&l->b, mse ? DS_OP_MSE : DS_OP_CROSS_ENTROPY);
    ds_build_in(&l->b, op, uses[0]);
    ds_build_in(&l->b, op, uses[1]);
    ds_value loss = ds_build_out(&l->b, op, "loss", NULL);
    DS_TRY(ds_build_put(&l->b, op, err));
    *result = ds_use_of(loss);
    return DS_OK;
}

/* ---- the function ---- */

static ds_status read_results(ds_lowering *l, const ds_lower_frame *frame, const ds_op *end,
                              ds_use *results, ds_error *err) {
    for (uint32_t i = 0; end && i < end->n_in; i++) {
        DS_TRY(ds_lower__use(l, frame, &end->in[i], &results[i], err));
        ds_lower__hint(l, frame, &results[i], l->model->results[i]);
    }
    return DS_OK;
}

static ds_status put_results(ds_lowering *l, const ds_lower_frame *frame, const ds_op *end,
                             ds_error *err) {
    const ds_train *train = &l->step->train;
    uint32_t n = end ? end->n_in : 0;
    ds_use *results = DS_NEW_N(ds_lower__arena(l), ds_use, n + 1);
    DS_TRY(read_results(l, frame, end, results, err));
    if (!n)
        return ds_error_set(err, DS_ERR_TYPE, l->model->loc, "@%s has no results: nothing to run",
                            l->model->name);
    if (train->on && train->loss != DS_LOSS_NONE) {
        DS_TRY(add_loss(l, &results[0], err));
    } else if (train->on) {
        DS_TRY(check_loss(l, &results[0], err));
        name_loss(l, &results[0]);
    }
    if (l->micro_loop) {
        DS_TRY(ds_build_yield(&l->b, NULL, 0, results, n, NULL, err));
        for (uint32_t i = 0; i < n; i++) results[i] = ds_use_of(l->micro_loop->out[i]);
    }
    l->step->n_model_results = n;
    return ds_build_return(&l->b, results, n, err);
}

static ds_status build_whole_step(ds_lowering *l, ds_lower_frame *frame, ds_error *err) {
    const ds_op *end;
    for (uint32_t i = 0; i < l->model->n_args; i++) add_input(l, frame, l->model->args[i]);
    if (l->micro_index) {
        ds_binder m = micro_binder(l);
        l->micro_loop = ds_build_for(&l->b, m.name, m.lo, m.hi);
    }
    DS_TRY(ds_lower__body(l, frame, &end, err));
    DS_TRY(ds_lower__rec_check_stores(l, err));
    return put_results(l, frame, end, err);
}

static ds_status build_step(ds_lowering *l, ds_error *err) {
    ds_lower_frame frame = {.func = l->model, .where = {"", "", "", ""}};
    frame.values = ds_xcalloc(l->model->values.n + 1, sizeof *frame.values);
    ds_build_func(&l->b, l->c.module, "step", true);
    ds_status status = build_whole_step(l, &frame, err);
    ds_func *func = ds_build_end(&l->b);
    func->loc = ds_clone_loc(&l->c, l->model->loc);
    func->trivia.blank_before = true;
    free(frame.values);
    l->step->func = func;
    return status;
}

/* ---- the scenario ---- */

/* A pattern that starts with the model's name gets the name of the step instead. */
static const char *pattern(ds_lowering *l, const char *text) {
    size_t n = strlen(l->model->name);
    bool own = strncmp(text, l->model->name, n) == 0 && (text[n] == '.' || text[n] == '/');
    if (!own) return ds_clone_text(&l->c, text);
    return ds_clone_text(&l->c, ds_arena_printf(ds_lower__arena(l), "step%s", text + n));
}

/* The patterns of a group. */
static void own_patterns(ds_lowering *l, ds_attr *group) {
    ds_attr *ops = NULL;
    for (uint32_t i = 0; i < group->n_items; i++)
        if (strcmp(group->items[i].name, "ops") == 0) ops = &group->items[i];
    for (uint32_t i = 0; ops && i < ops->n_items; i++) {
        const char *text = ds_attr_text(&l->c.unit->exprs, &ops->items[i]);
        if (!text) continue;
        ops->items[i].kind = DS_ATTR_EXPR;
        ops->items[i].expr = ds_expr_str(&l->c.unit->exprs, pattern(l, text));
    }
}

/* Turns off the knobs that are applied. */
static void apply_block(ds_lowering *l, ds_attr *block) {
    bool strategy = strcmp(block->name, "strategy") == 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->n_items; i++) {
        ds_attr item = block->items[i];
        if (strategy && !item.quoted_name && strcmp(item.name, "microbatches") == 0) continue;
        if (strategy && strncmp(item.name, "prefill", 7) == 0) continue;
        if (!strategy && strncmp(item.name, "lora_", 5) == 0) continue;
        if (!strategy && strcmp(item.name, "lengths") == 0) continue;
        if (!strategy && strcmp(item.name, "loss") == 0) {
            item = ds_attr_of_word(l->c.unit, "loss", "none");
        }
        for (uint32_t k = 0; strategy && strcmp(item.name, "ops") == 0 && k < item.n_items; k++)
            item.items[k].name = pattern(l, item.items[k].name);
        if (item.labelled) own_patterns(l, &item);
        block->items[kept++] = item;
    }
    block->n_items = kept;
}

static void add_scenario(ds_lowering *l) {
    const ds_module *root = l->source->unit->modules.at[0];
    const ds_scenario *from = ds_unit_scenario(l->source->unit);
    ds_scenario scenario = {.loc = ds_clone_loc(&l->c, from->loc), .trivia.blank_before = true};
    scenario.entries = DS_NEW_N(ds_lower__arena(l), ds_attr, from->n_entries + 1);
    for (uint32_t i = 0; i < from->n_entries; i++) {
        if (strcmp(from->entries[i].name, "tokens") == 0) continue; /* the step has no rec */
        ds_attr *entry = &scenario.entries[scenario.n_entries++];
        ds_clone_attr(&l->c, root, &from->entries[i], plain, &l->c, entry);
        if (strcmp(entry->name, "program") == 0) entry->name = ds_clone_text(&l->c, "model");
        if (strcmp(entry->name, "model") == 0) entry->place.name = l->step->func->name;
        if (entry->kind == DS_ATTR_BLOCK) apply_block(l, entry);
    }
    DS_PUSH(ds_lower__arena(l), &l->c.module->scenarios, scenario);
}

static const int64_t *copy_widths(ds_lowering *l, const int64_t *widths) {
    size_t n = (size_t)l->step->strategy.pp;
    if (!widths) return NULL;
    return memcpy(DS_NEW_N(ds_lower__arena(l), int64_t, n), widths, n * sizeof *widths);
}

/* Interns the strategy's texts in the step, because the source owns them. */
static void keep_strategy(ds_lowering *l) {
    ds_strategy *s = &l->step->strategy;
    for (uint32_t i = 0; i < 4; i++) s->order[i] = ds_clone_text(&l->c, s->order[i]);
    s->schedule = ds_clone_text(&l->c, s->schedule);
    const char **again = DS_NEW_N(ds_lower__arena(l), const char *, s->n_recompute_ops + 1);
    for (uint32_t i = 0; i < s->n_recompute_ops; i++) again[i] = pattern(l, s->recompute_ops[i]);
    s->recompute_ops = again;
    int64_t *layers = DS_NEW_N(ds_lower__arena(l), int64_t, s->n_stage_layers + 1);
    if (s->n_stage_layers) memcpy(layers, s->stage_layers, s->n_stage_layers * sizeof *layers);
    s->stage_layers = layers;
    s->stage_dp = copy_widths(l, s->stage_dp);
    s->stage_tp = copy_widths(l, s->stage_tp);
    if (s->ops) s->ops = ds_scenario_find(l->c.unit, "strategy", "ops");
    if (s->groups) s->groups = ds_strategy_groups(l->c.unit);
    if (l->micro_loop) s->microbatches = 1;
}

void ds_lower__note(ds_lowering *l, const char *text) {
    ds_trivia *trivia = &l->c.module->trivia;
    const char **comments = DS_NEW_N(ds_lower__arena(l), const char *, trivia->n_comments + 1);
    for (uint32_t i = 0; i < trivia->n_comments; i++) comments[i] = trivia->comments[i];
    comments[trivia->n_comments++] = text;
    trivia->comments = comments;
}

static void note_microbatches(ds_lowering *l) {
    if (l->step->strategy.microbatches == 1) return;
    ds_lower__note(l, ds_arena_printf(ds_lower__arena(l), " @step is one of %lld microbatches.",
                                      (long long)l->step->strategy.microbatches));
}

/* ---- the pass ---- */

static ds_status find_model(const ds_binding *source, const ds_func **out, ds_error *err) {
    const ds_scenario *scenario = ds_unit_scenario(source->unit);
    *out = ds_scenario_model(source->unit);
    if (!scenario)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "there is no scenario that says `model = @f`: nothing to make a step "
                            "of");
    if (ds_scenario_n_jobs(source->unit))
        return ds_error_set(err, DS_ERR_VALUE, scenario->loc,
                            "the scenario has jobs: say which one (--job %s)",
                            ds_scenario_job(source->unit, 0)->name);
    if (!*out)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, scenario->loc,
                            "the scenario runs a program as it stands; passes make a step of a "
                            "model (`model = @f`)");
    if (ds_func_open(*out))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, (*out)->loc,
                            "@%s has %s: a model says nothing about places", (*out)->name,
                            ds_func_open(*out));
    return ds_rec_refuse_own_reads(*out, "a model", err);
}

/* A rec whose results do not need the op that indexes by an input leaves that op out: the input
 * keeps the range that the model gives it. */
static ds_status keep_ranges(ds_lowering *l, ds_error *err) {
    const ds_func *func = l->step->func;
    for (uint32_t i = 0; ds_rec_in(l->model, true) && i < l->model->n_args; i++) {
        ds_value_info *info = ds_value_at(func, func->args[i]);
        int64_t below, now;
        if (!info->type || ds_dtype_is_float(info->type->dtype)) continue;
        DS_TRY(ds_exec_input_range(l->source, l->model, l->model->args[i], &below, err));
        DS_TRY(ds_exec_input_range(&l->step->binding, func, func->args[i], &now, err));
        if (below == now || !below) continue;
        ds_op fake = {.attrs = info->attrs, .n_attrs = info->n_attrs};
        ds_build_attr_int(&l->b, &fake, "range", below);
        info->attrs = fake.attrs;
        info->n_attrs = fake.n_attrs;
    }
    return DS_OK;
}

static ds_status lower(ds_lowering *l, ds_error *err) {
    ds_model_step *step = l->step;
    DS_TRY(ds_train_read(l->source, &step->train, err));
    DS_TRY(ds_strategy_read(l->source, &step->strategy, err));
    DS_TRY(ds_strategy_check(l->source, &step->strategy, err));
    DS_TRY(ds_lower__check_prefill(l, err));
    int64_t m = step->strategy.microbatches;
    l->narrow = step->train.dtype != DS_DTYPE_COUNT && step->train.dtype != DS_F32;
    DS_TRY(ds_lower__scan(l, err));
    ds_clone_axes(&l->c);
    ds_clone_degrades(&l->c);
    DS_TRY(ds_lower__divide_batch(l, err));
    if (m > 1 && !step->train.on) l->micro_index = ds_clone_index_name(&l->c, "m", NULL, 0);
    DS_TRY(build_step(l, err));
    DS_TRY(ds_lower__freeze(l, err));
    DS_TRY(ds_lower__check_packed(l, err));
    DS_PUSH(ds_lower__arena(l), &l->c.module->funcs, step->func);
    add_scenario(l);
    keep_strategy(l);
    note_microbatches(l);
    if (l->c.fixed) step->microbatch = NULL;
    ds_clone_order_items(l->c.module);
    DS_TRY(ds_step__verify(step, "lower", m > 1 ? DS_ERR_UNSUPPORTED : DS_ERR_INTERNAL, err));
    return keep_ranges(l, err);
}

void ds_model_step_place_error(const ds_unit *source, ds_error *err) {
    const ds_attr *strategy = ds_scenario_find(source, "", "strategy");
    if (err && !err->loc.line && strategy) ds_error_move(err, strategy->loc);
}

ds_status ds_model_step_new(const ds_binding *source, ds_model_step **out, ds_error *err) {
    ds_lowering l = {.source = source};
    ds_error own = {0};
    *out = NULL;
    DS_TRY(find_model(source, &l.model, err));
    ds_clone_init(&l.c, source);
    l.step = ds_xcalloc(1, sizeof *l.step);
    l.step->unit = l.c.unit;
    ds_status status = lower(&l, &own);
    ds_map_deinit(&l.weight_names);
    ds_map_deinit(&l.unrolled);
    ds_clone_deinit(&l.c);
    if (status == DS_OK) {
        l.step->done = 1u << DS_PASS_LOWER;
        *out = l.step;
        return DS_OK;
    }
    ds_model_step_place_error(source->unit, &own);
    ds_model_step_free(l.step);
    if (err) *err = own;
    return status;
}

void ds_model_step_free(ds_model_step *step) {
    if (!step) return;
    ds_unit_free(step->unit);
    free(step);
}
