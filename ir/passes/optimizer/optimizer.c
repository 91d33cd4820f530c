/* The optimizer pass: after the backward pass, one op of the table updates each weight.
 *
 * States are arguments of the step beside the weights (%w.m, %w.v, and %w.master where the weights
 * that ops read are narrower than the master copy), and results (%w.new, %w.m.new, …). Weights that
 * are families over the same range are updated in one loop. Updates are written from the last
 * weight to the first: in the backward pass gradients become ready in that order. */
#include "ir/passes/build/copy.h"
#include "ir/passes/optimizer/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 4 /* weight, m, v, master */

typedef struct updater {
    ds_model_step *step;
    const ds_func *old;
    ds_builder b;
    ds_copy copy;
    const ds_op *end;
    ds_opcode code;
    uint32_t n_states;
    ds_clip clip;
    ds_use (*updated)[MAX_PARTS]; /* by weight: new weight, states, master */
    bool *done;
} updater;

static const char *const state_names[] = {".m", ".v"};

static const char *join_names(updater *u, const char *a, const char *b) {
    return ds_arena_join(&u->step->unit->arena, a, b);
}

static const char *part_name(updater *u, const ds_step_weight *w, uint32_t part) {
    if (part == 0) return w->name;
    return join_names(u, w->name, part <= u->n_states ? state_names[part - 1] : ".master");
}

static uint32_t n_parts(const updater *u, const ds_step_weight *w) {
    return 1 + u->n_states + (w->master.i != UINT32_MAX);
}

/* ---- the scenario's optimizer ---- */

static ds_status choose_op(updater *u, ds_error *err) {
    const ds_train *train = &u->step->train;
    switch (train->optimizer) {
    case DS_OPTIMIZER_SGD:
        u->code = DS_OP_SGD;
        break;
    case DS_OPTIMIZER_MOMENTUM:
        u->code = DS_OP_MOMENTUM, u->n_states = 1;
        break;
    case DS_OPTIMIZER_ADAM:
        u->code = DS_OP_ADAM, u->n_states = 2;
        break;
    case DS_OPTIMIZER_ADAMW:
        u->code = DS_OP_ADAMW, u->n_states = 2;
        break;
    default:
        return ds_error_set(err, DS_ERR_VALUE, u->old->loc,
                            "optimizer: the scenario's train block names none");
    }
    if (!isnan(train->weight_decay) && train->weight_decay != 0 && u->code != DS_OP_ADAMW)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, u->old->loc,
                            "train: weight_decay = %g belongs to adamw; %s has none",
                            train->weight_decay, ds_op_name(u->code));
    if (!(train->clip_norm > 0)) return DS_OK;
    if (u->step->schedule.n_copies > 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, u->old->loc,
                            "train: clip_norm with a schedule that keeps two copies of the "
                            "weights: their gradients' norm would have to be added up over both");
    if (u->step->strategy.stage_dp)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, u->old->loc,
                            "train: clip_norm with stages of several widths: their sums of "
                            "squares have no all_reduce across unlike meshes");
    return DS_OK;
}

static void set_rates(updater *u, ds_op *op) {
    const ds_train *t = &u->step->train;
    bool adam = u->code == DS_OP_ADAM || u->code == DS_OP_ADAMW;
    const struct {
        const char *name;
        double value;
        bool takes;
    } rates[] = {
        {"lr", t->lr, true},       {"momentum", t->momentum, u->code == DS_OP_MOMENTUM},
        {"beta1", t->beta1, adam}, {"beta2", t->beta2, adam},
        {"eps", t->eps, adam},     {"weight_decay", t->weight_decay, u->code == DS_OP_ADAMW},
    };
    for (uint32_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rates[i].takes && !isnan(rates[i].value))
            ds_build_attr_real(&u->b, op, rates[i].name, rates[i].value);
}

/* ---- arguments ---- */

/* %w.m; a chunk's weight also gets {input = "w.m"}, since the model has one state for all
 * chunks. */
static ds_value state_arg(updater *u, const ds_step_weight *w, const char *part, ds_dtype dtype) {
    ds_arena *arena = &u->step->unit->arena;
    const ds_value_info *info = ds_value_at(u->b.func, w->arg);
    ds_type *type = DS_NEW(arena, ds_type);
    *type = *info->type;
    type->dtype = dtype;
    ds_op attrs = {0};
    ds_build_attr(&u->b, &attrs, ds_attr_of_word(u->step->unit, "role", "optimizer"));
    if (w->base != w->name)
        ds_build_attr_text(&u->b, &attrs, "input", join_names(u, w->base, part));
    return ds_build_arg(&u->b, join_names(u, w->name, part), type, info->binders, info->n_binders,
                        attrs.attrs, attrs.n_attrs);
}

/* Adds states, and with mixed precision master copies: ops read weights rounded from wider
 * copies. */
static void make_args(updater *u) {
    ds_model_step *step = u->step;
    const ds_train *train = &step->train;
    for (uint32_t i = 0; i < u->old->n_args; i++) ds_copy_arg(&u->copy, i);
    for (uint32_t i = 0; i < step->weights.n; i++) {
        ds_step_weight *w = &step->weights.at[i];
        w->arg = u->copy.map[w->arg.i];
        if (w->frozen) continue;
        ds_dtype own = ds_value_at(u->b.func, w->arg)->type->dtype;
        ds_dtype master = train->master_dtype == DS_DTYPE_COUNT ? DS_F32 : train->master_dtype;
        bool mixed = train->dtype != DS_DTYPE_COUNT && ds_dtype_bits(own) < ds_dtype_bits(master);
        ds_dtype state = train->state_dtype != DS_DTYPE_COUNT ? train->state_dtype
                         : mixed                              ? master
                                                              : own;
        w->n_states = u->n_states;
        for (uint32_t k = 0; k < u->n_states; k++)
            w->state[k] = state_arg(u, w, state_names[k], state);
        w->master = mixed ? state_arg(u, w, ".master", master) : DS_NO_VALUE;
    }
}

/* ---- updates ---- */

static const ds_value_info *info_of(const updater *u, const ds_step_weight *w) {
    return ds_value_at(u->b.func, w->arg);
}

bool ds_optimizer__same_range(const ds_model_step *step, const ds_func *func, uint32_t a,
                              uint32_t b) {
    const ds_step_weight *weights = step->weights.at;
    const ds_value_info *x = ds_value_at(func, weights[a].arg);
    const ds_value_info *y = ds_value_at(func, weights[b].arg);
    if (x->n_binders != y->n_binders || weights[a].chunk != weights[b].chunk) return false;
    for (uint32_t i = 0; i < x->n_binders; i++)
        if (x->binders[i].name != y->binders[i].name || x->binders[i].lo.i != y->binders[i].lo.i ||
            x->binders[i].hi.i != y->binders[i].hi.i)
            return false;
    return true;
}

static bool same_range(const updater *u, uint32_t a, uint32_t b) {
    return ds_optimizer__same_range(u->step, u->b.func, a, b);
}

static ds_use element(updater *u, ds_value value, const ds_expr *at, uint32_t n) {
    return n ? ds_use_at(&u->step->unit->arena, value, at, n) : ds_use_of(value);
}

/* op(weight, gradient, states, master) of one element. */
static ds_status update_one(updater *u, uint32_t i, const ds_expr *at, uint32_t n, ds_error *err) {
    const ds_step_weight *w = &u->step->weights.at[i];
    ds_use gradient = u->clip.gradient[i];
    if (n) gradient = ds_use_at(&u->step->unit->arena, gradient.value, at, n);
    if (u->step->train.clip_norm > 0) DS_TRY(ds_clip__scale(&u->clip, i, gradient, &gradient, err));
    ds_op *op = ds_build_op(&u->b, u->code);
    ds_build_in(&u->b, op, element(u, w->arg, at, n));
    ds_build_in(&u->b, op, gradient);
    for (uint32_t k = 0; k < u->n_states; k++)
        ds_build_in(&u->b, op, element(u, w->state[k], at, n));
    if (w->master.i != UINT32_MAX) ds_build_in(&u->b, op, element(u, w->master, at, n));
    ds_build_attr_text(&u->b, op, "name", join_names(u, w->name, ".opt"));
    set_rates(u, op);
    for (uint32_t k = 0; k < n_parts(u, w); k++) {
        const char *name = join_names(u, part_name(u, w, k), n ? ".turn" : ".new");
        const ds_use *from = &op->in[k ? k + 1 : 0];
        const ds_type *type = ds_use_type(u->step->unit, u->b.func, from);
        u->updated[i][k] = ds_use_of(ds_build_out(&u->b, op, name, type));
    }
    return ds_build_put(&u->b, op, err);
}

/* Puts one loop a binder; the innermost loop updates every weight of the range. */
static ds_status update_range(updater *u, uint32_t lead, ds_expr *at, uint32_t depth,
                              ds_error *err) {
    ds_model_step *step = u->step;
    const ds_value_info *info = info_of(u, &step->weights.at[lead]);
    uint32_t n = 0;
    const ds_binder *binder = &info->binders[depth];
    bool leaf = depth + 1 == info->n_binders;
    at[depth] = ds_expr_index(&step->unit->exprs, binder->name);
    ds_op *loop = ds_build_for(&u->b, binder->name, binder->lo, binder->hi);
    if (!leaf) DS_TRY(update_range(u, lead, at, depth + 1, err));
    uint32_t n_kept = 0; /* a pipeline has many chunks, and few weights in each */
    DS_VEC(uint32_t) members = {0};
    for (uint32_t i = lead + 1; i-- > 0;) { /* later weights are done */
        if (!same_range(u, i, lead)) continue;
        DS_PUSH(&step->unit->arena, &members, i);
        n_kept += n_parts(u, &step->weights.at[i]);
    }
    ds_use *kept = DS_NEW_N(&step->unit->arena, ds_use, n_kept + 1);
    const char **names = DS_NEW_N(&step->unit->arena, const char *, n_kept + 1);
    for (uint32_t m = 0; m < members.n; m++) {
        uint32_t i = members.at[m];
        const ds_step_weight *w = &step->weights.at[i];
        if (leaf) DS_TRY(update_one(u, i, at, depth + 1, err));
        for (uint32_t k = 0; k < n_parts(u, w); k++) {
            names[n] = join_names(u, part_name(u, w, k), depth ? ".row" : ".new");
            kept[n++] = u->updated[i][k];
        }
        u->done[i] = true;
    }
    DS_TRY(ds_build_yield(&u->b, NULL, 0, kept, n, names, err));
    n = 0;
    for (uint32_t m = 0; m < members.n; m++)
        for (uint32_t k = 0; k < n_parts(u, &step->weights.at[members.at[m]]); k++)
            u->updated[members.at[m]][k] = ds_use_of(loop->out[n++]);
    return DS_OK;
}

static ds_status update_all(updater *u, ds_error *err) {
    for (uint32_t i = ds_step_n_trained(u->step); i-- > 0;) {
        ds_expr at[DS_MAX_RANK * 2];
        if (u->done[i]) continue;
        if (info_of(u, &u->step->weights.at[i])->n_binders)
            DS_TRY(update_range(u, i, at, 0, err));
        else
            DS_TRY(update_one(u, i, NULL, 0, err));
    }
    return DS_OK;
}

/* ---- the step ---- */

static ds_status make_return(updater *u, ds_error *err) {
    ds_model_step *step = u->step;
    uint32_t n = 0, n_weights = ds_step_n_trained(step);
    ds_use *results = DS_NEW_N(&step->unit->arena, ds_use, u->end->n_in + MAX_PARTS * n_weights);
    uint32_t kept = step->n_model_results + (step->train.keep_gradients ? n_weights : 0);
    for (; n < kept; n++) results[n] = ds_copy_use(&u->copy, &u->end->in[n]);
    for (uint32_t i = 0; i < n_weights; i++) {
        ds_step_weight *w = &step->weights.at[i];
        if (!step->train.keep_gradients) w->grad_result = DS_NO_RESULT;
        w->new_result = n;
        results[n++] = u->updated[i][0];
    }
    for (uint32_t k = 1; k < MAX_PARTS; k++)
        for (uint32_t i = 0; i < n_weights; i++)
            if (k < n_parts(u, &step->weights.at[i])) results[n++] = u->updated[i][k];
    return ds_build_return(&u->b, results, n, err);
}

static ds_status write_step(updater *u, ds_error *err) {
    make_args(u);
    DS_TRY(ds_copy_block(&u->copy, &u->old->body, err));
    uint32_t n = ds_step_n_trained(u->step);
    u->clip = (ds_clip){.step = u->step,
                        .b = &u->b,
                        .gradient = DS_NEW_N(&u->step->unit->arena, ds_use, n + 1),
                        .square = DS_NEW_N(&u->step->unit->arena, ds_value, n + 1),
                        .factor = DS_NEW_N(&u->step->unit->arena, ds_use, n + 1)};
    for (uint32_t w = 0; w < n; w++)
        u->clip.gradient[w] =
            ds_copy_use(&u->copy, &u->end->in[u->step->weights.at[w].grad_result]);
    if (u->step->train.clip_norm > 0) DS_TRY(ds_clip__norm(&u->clip, err));
    DS_TRY(update_all(u, err));
    return make_return(u, err);
}

static ds_status check_gradients(const updater *u, ds_error *err) {
    for (uint32_t i = 0, n = ds_step_n_trained(u->step); i < n; i++)
        if (u->step->weights.at[i].grad_result >= u->end->n_in)
            return ds_error_set(err, DS_ERR_VALUE, u->old->loc,
                                "optimizer: there are no gradients: grad runs first");
    return DS_OK;
}

ds_status ds_pass_optimizer(ds_model_step *step, ds_error *err) {
    updater u = {.step = step, .old = step->func, .end = ds_block_end(&step->func->body)};
    DS_TRY(choose_op(&u, err));
    DS_TRY(check_gradients(&u, err));
    u.updated = ds_xcalloc(step->weights.n + 1, sizeof *u.updated);
    u.done = ds_xcalloc(step->weights.n + 1, sizeof *u.done);
    ds_build_func(&u.b, step->func->module, step->func->name, true);
    u.b.func->loc = step->func->loc;
    ds_build_reserve(&u.b, step->func->values.n + 8 * step->weights.n);
    ds_copy_init(&u.copy, &u.b, step->func);
    ds_status status = write_step(&u, err);
    ds_copy_deinit(&u.copy);
    ds_func *func = ds_build_end(&u.b);
    free(u.updated);
    free(u.done);
    if (status == DS_OK) ds_model_step_set_func(step, func);
    return status;
}
