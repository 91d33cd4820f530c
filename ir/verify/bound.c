/* The walk with numbers: the params' values decide the questions that symbols left open.
 *
 * A function is checked once for each set of meshes and index in its calls, from a work list: first
 * every function without such parameters, then the functions that these call. Loops whose body depends on
 * the index are walked turn by turn, up to a limit; other loops once. Types are inferred again,
 * with numbers, and compared with the types that ds_verify recorded. */
#include "ir/verify/bound_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- state ---- */

static void whole_mesh(ds_bound_walk *w, const ds_place *place, ds_bound_mesh *out) {
    const ds_func *func = w->at->func;
    ds_resolved to;
    *out = (ds_bound_mesh){0};
    if (!ds_verify__resolve(func, place, &to)) return;
    if (to.kind == DS_PLACE_NONE) {
        *out = w->at->here;
    } else if (to.kind == DS_PLACE_DEVICE) {
        out->known = true;
    } else if (to.mesh) {
        *out = (ds_bound_mesh){.known = true, .mesh = to.mesh};
    } else {
        for (uint32_t i = 0; i < func->n_mesh_params; i++)
            if (func->mesh_params[i] == to.param) *out = w->at->meshes[i];
    }
}

/* Evaluates the place's coordinates; reports a coordinate out of range. */
static bool bind_place(ds_bound_walk *w, const ds_place *place, ds_loc loc, ds_bound_mesh *out) {
    if (place->loc.line) loc = place->loc;
    whole_mesh(w, place, out);
    for (uint32_t i = 0; i < place->n_coords; i++) {
        ds_error err = {0};
        int64_t at, size;
        if (ds_expr_eval_int(&w->env, place->coords[i].at, loc, &at, &err) != DS_OK) {
            ds_verify__pass_on(w->ck, &err);
            return false;
        }
        const char *axis = place->coords[i].axis;
        if (at < 0 || (ds_verify__size_on(&w->meshes, out, axis, &size) && at >= size)) {
            ds_verify__error(
                w->ck, DS_ERR_VALUE, loc, NULL,
                "@%s has no coordinate %s = %lld: that axis goes from 0 to %lld", place->name, axis,
                (long long)at,
                (long long)(ds_verify__size_on(&w->meshes, out, axis, &size) ? size - 1 : 0));
            return false;
        }
        if (out->n_fixed == DS_MAX_FIXED) return false;
        out->axis[out->n_fixed] = axis;
        out->at[out->n_fixed++] = at;
    }
    return true;
}

bool ds_bound__axis_size(void *context, const ds_place *on, const char *axis, int64_t *size) {
    ds_bound_walk *w = context;
    ds_bound_mesh mesh;
    whole_mesh(w, on, &mesh);
    return ds_verify__is_fixed(on, axis) ? (*size = 1, true)
                                         : ds_verify__size_on(&w->meshes, &mesh, axis, size);
}

/* ---- reports ---- */

/* " (at l = 3, k = 0)" inside loops. */
const char *ds_bound__turn_note(ds_bound_walk *w) {
    ds_buf buf = {0};
    for (const ds_index *i = w->env.indices; i; i = i->up)
        ds_buf_printf(&buf, "%s%s = %lld", buf.n ? ", " : " (at ", i->name, (long long)i->value);
    if (!buf.n) return "";
    ds_buf_putc(&buf, ')');
    const char *text = ds_arena_strdup(&w->ck->diags->arena, buf.text);
    ds_buf_deinit(&buf);
    return text;
}

static void pass_on(ds_bound_walk *w, const ds_error *err) {
    ds_verify__error(w->ck, err->code, ds_error_loc(err), NULL, "%s%s", err->message,
                     ds_bound__turn_note(w));
}

static const char *numbers_text(ds_bound_walk *w, const ds_type *type) {
    return ds_verify__type_text(w->ck, ds_verify__numbers(w->ck, &w->env, type));
}

bool ds_bound__eval(ds_bound_walk *w, ds_expr e, ds_loc loc, int64_t *out) {
    ds_error err = {0};
    if (ds_expr_eval_int(&w->env, e, loc, out, &err) == DS_OK) return true;
    pass_on(w, &err);
    return false;
}

/* ---- types and reads ---- */

static ds_infer infer_context(ds_bound_walk *w, const ds_op *op) {
    return (ds_infer){.unit = w->ck->unit,
                      .func = w->at->func,
                      .op = op,
                      .env = &w->env,
                      .axis_size = ds_bound__axis_size,
                      .context = w,
                      .manual_axes = w->manual,
                      .n_manual = w->n_manual,
                      .may_be_empty = w->may_be_empty};
}

/* Was this report made before, for another value of the same type? A signature often writes one
 * type many times. */
static bool said_before(ds_bound_walk *w, const char *message, const char *name) {
    size_t n = strlen(name);
    if (strncmp(message, name, n) != 0) n = 0;
    uint64_t hash = ds_hash_bytes(message + n, strlen(message + n));
    if (ds_map_find(&w->said, hash)) return true;
    ds_map_put(&w->said, hash, 1);
    return false;
}

bool ds_bound__check_type(ds_bound_walk *w, const ds_type *type, const char *name, ds_loc loc) {
    if (!type) return true;
    type = ds_verify__seen(w->ck, w->at->func, type);
    ds_bound_mesh mesh;
    if (!bind_place(w, &type->on, loc, &mesh)) return false;
    ds_infer infer = infer_context(w, NULL);
    ds_error err = {0};
    if (ds_op_check_type(&infer, type, name, loc, &err) == DS_OK) return true;
    if (!said_before(w, err.message, name)) pass_on(w, &err);
    return false;
}

const char *ds_bound__value_text(ds_bound_walk *w, ds_value value) {
    return ds_verify__name_text(&w->ck->unit->arena, '%', ds_value_at(w->at->func, value)->name);
}

/* Evaluates lo..hi of a binder, with the outer binders in scope. */
bool ds_bound__binder_range(ds_bound_walk *w, const ds_binder *binder, int64_t *lo, int64_t *hi) {
    if (!ds_bound__eval(w, binder->lo, binder->loc, lo) ||
        !ds_bound__eval(w, binder->hi, binder->loc, hi))
        return false;
    if (*lo <= *hi) return true;
    ds_verify__error(w->ck, DS_ERR_VALUE, binder->loc, NULL,
                     "the range of '%s' is %lld..%lld: it ends before it begins", binder->name,
                     (long long)*lo, (long long)*hi);
    return false;
}

/* Inside of the loop that keeps a family, the family ends before the turn. */
static int64_t kept_so_far(const ds_bound_walk *w, const ds_value_info *info, int64_t hi) {
    for (uint32_t i = 0; i < w->open_loops.n; i++) {
        if (w->open_loops.at[i] != info->def || info->is_arg) continue;
        for (const ds_index *at = w->env.indices; at; at = at->up)
            if (at->name == info->def->index) return at->value < hi ? at->value : hi;
    }
    return hi;
}

static bool check_index(ds_bound_walk *w, const ds_use *use, uint32_t i, const ds_value_info *info,
                        int64_t *first) {
    const ds_binder *binder = &info->binders[i];
    bool range = ds_use_is_range(use, i);
    ds_index *indices = NULL; /* the family's own indices: a bound sees only binders to its left */
    int64_t lo = 0, hi = 0, at, end;
    if (!ds_bound__eval(w, use->index[i], use->loc, &at)) return false;
    end = at + (at < INT64_MAX);
    if (range && !ds_bound__eval(w, use->index_hi[i], use->loc, &end)) return false;
    ds_index own[8];
    for (uint32_t k = 0; k < i && k < 8; k++) {
        own[k] = (ds_index){info->binders[k].name, first[k], indices};
        indices = &own[k];
    }
    ds_env outer = w->env;
    if (indices) {
        own[0].up = outer.indices;
        w->env.indices = indices;
    }
    bool ok = ds_bound__binder_range(w, binder, &lo, &hi);
    w->env = outer;
    int64_t hi_all = hi;
    if (ok && i == 0) hi = kept_so_far(w, info, hi);
    first[i] = at;
    if (!ok || (at >= lo && end <= hi && at <= end)) return ok;
    const char *text = ds_verify__expr_text(w->ck, use->index[i]);
    if (hi <= lo)
        ds_verify__error(w->ck, DS_ERR_VALUE, use->loc, NULL,
                         "%%%s{%s} reads index %lld, but the family has no value%s%s", info->name,
                         text, (long long)at, hi_all > lo ? " yet" : "", ds_bound__turn_note(w));
    else if (range)
        ds_verify__error(
            w->ck, DS_ERR_VALUE, use->loc, NULL,
            "%%%s{%s:%s} reads %lld to %lld, but the family has indices %lld to %lld%s", info->name,
            text, ds_verify__expr_text(w->ck, use->index_hi[i]), (long long)at, (long long)end - 1,
            (long long)lo, (long long)hi - 1, ds_bound__turn_note(w));
    else
        ds_verify__error(w->ck, DS_ERR_VALUE, use->loc, NULL,
                         "%%%s{%s} reads index %lld, but the family has indices %lld to %lld%s",
                         info->name, text, (long long)at, (long long)lo, (long long)hi - 1,
                         ds_bound__turn_note(w));
    return false;
}

#define MAX_BINDERS 8

/* The type of a use; NULL if the use reads outside its family or the type is unknown. */
const ds_type *ds_bound__read_use(ds_bound_walk *w, const ds_use *use) {
    const ds_value_info *info = ds_value_at(w->at->func, use->value);
    int64_t first[MAX_BINDERS] = {0};
    if (w->wrong[use->value.i]) return NULL;
    for (uint32_t i = 0; i < use->n_index && i < MAX_BINDERS; i++)
        if (!check_index(w, use, i, info, first)) return NULL;
    return ds_verify__element(w->ck, w->at->func, use);
}

static bool binder_mentioned(const ds_exprs *exprs, const ds_value_info *info, uint32_t i) {
    for (uint32_t k = i + 1; k < info->n_binders; k++)
        if (ds_expr_mentions(exprs, info->binders[k].lo, info->binders[i].name) ||
            ds_expr_mentions(exprs, info->binders[k].hi, info->binders[i].name))
            return true;
    return ds_type_mentions(exprs, info->type, info->binders[i].name);
}

uint64_t ds_bound__end_turns(bool all, uint64_t turns) {
    enum { ENDS = 4, MANY = 64 };
    return all ? UINT64_MAX : turns > MANY ? 1 : ENDS;
}

int64_t ds_bound__next_turn(int64_t i, int64_t lo, int64_t hi, uint64_t ends) {
    uint64_t done = (uint64_t)i - (uint64_t)lo + 1, left = (uint64_t)hi - (uint64_t)i - 1;
    return done < ends || left <= ends ? i + 1 : hi - (int64_t)ends;
}

/* Checks the element type at every index of a family. */
void ds_bound__check_family(ds_bound_walk *w, const ds_value_info *info, uint32_t i, uint64_t turns,
                            const char *name) {
    if (i == info->n_binders) {
        ds_bound__check_type(w, info->type, name, info->loc);
        return;
    }
    int64_t lo, hi;
    if (!ds_bound__binder_range(w, &info->binders[i], &lo, &hi)) return;
    bool mentioned = binder_mentioned(&w->ck->unit->exprs, info, i);
    uint64_t n = (uint64_t)hi - (uint64_t)lo;
    bool all = n <= w->ck->max_turns / turns;
    uint64_t ends = ds_bound__end_turns(all, turns);
    for (int64_t at = lo; at < hi; at = mentioned ? ds_bound__next_turn(at, lo, hi, ends) : hi) {
        const ds_index *up = w->env.indices;
        ds_index index = {info->binders[i].name, at, up};
        w->env.indices = &index;
        uint64_t inner = mentioned && all ? turns * n : turns;
        ds_bound__check_family(w, info, i + 1, inner ? inner : 1, name);
        w->env.indices = up;
    }
}

bool ds_bound__compare_types(ds_bound_walk *w, const ds_type *recorded, const ds_type *found,
                             ds_loc loc, const char *name, const char *who, const char *verb) {
    recorded = ds_verify__seen(w->ck, w->at->func, recorded);
    if (!recorded || !found ||
        ds_verify__same_type(w->ck, w->at->func, &w->env, recorded, found) != DS_NO)
        return true;
    ds_verify__error(w->ck, DS_ERR_SHAPE, loc, NULL, "%s is %s = %s, but %s %s %s = %s%s", name,
                     ds_verify__type_text(w->ck, recorded), numbers_text(w, recorded), who, verb,
                     ds_verify__type_text(w->ck, found), numbers_text(w, found),
                     ds_bound__turn_note(w));
    return false;
}

void ds_bound__set_wrong(ds_bound_walk *w, const ds_value *values, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) w->wrong[values[i].i] = 1;
}

/* ---- ops ---- */

void ds_bound__check_results(ds_bound_walk *w, const ds_op *op, ds_type **found) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_value_info *info = ds_value_at(w->at->func, op->out[i]);
        const char *name = ds_bound__value_text(w, op->out[i]);
        if ((found && !ds_bound__compare_types(w, info->type, found[i], info->loc, name,
                                               ds_op_name(op->code), "gives")) ||
            !ds_bound__check_type(w, info->type, name, info->loc))
            ds_bound__set_wrong(w, &op->out[i], 1);
    }
}

static void table_op(ds_bound_walk *w, const ds_op *op) {
    const ds_type **in = ds_xcalloc(op->n_in + 1, sizeof *in);
    ds_type **out = ds_xcalloc(op->n_out + 1, sizeof *out);
    bool known = true;
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = ds_bound__read_use(w, &op->in[i]);
        known = known && in[i];
    }
    for (uint32_t i = 0; i < op->n_to; i++) {
        ds_bound_mesh mesh;
        known = bind_place(w, &op->to[i], op->loc, &mesh) && known;
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_value_info *info = ds_value_at(w->at->func, op->out[i]);
        if (info->type_written) out[i] = ds_verify__seen(w->ck, w->at->func, info->type);
        known = known && info->type;
    }
    ds_infer infer = infer_context(w, op);
    infer.in = in;
    infer.out = out;
    ds_error err = {0};
    bool inferred = known && ds_op_infer(&infer, &err) == DS_OK;
    if (known && !inferred) pass_on(w, &err);
    if (inferred) ds_bound__check_results(w, op, out);
    if (!inferred) ds_bound__set_wrong(w, op->out, op->n_out);
    free(in);
    free(out);
}

/* ---- calls ---- */

/* Adds an instance to the work list; owns `meshes`. */
static void enqueue(ds_bound_walk *w, ds_func *func, ds_bound_mesh *meshes, int64_t index,
                    ds_bound_mesh here) {
    uint64_t hash = ds_hash_mix(ds_verify__hash_mesh(DS_KEY(func), &here), (uint64_t)index);
    for (uint32_t i = 0; i < func->n_mesh_params; i++)
        hash = ds_verify__hash_mesh(hash, &meshes[i]);
    if (ds_map_find(&w->queued, hash)) {
        free(meshes);
        return;
    }
    ds_map_put(&w->queued, hash, 1);
    ds_bound_instance next = {func, meshes, index, func->n_mesh_params == 1 ? meshes[0] : here};
    DS_HPUSH(&w->work, next);
}

static bool check_call_arg(ds_bound_walk *w, const ds_op *op, uint32_t i) {
    ds_checker *ck = w->ck;
    const ds_func *func = w->at->func;
    const ds_value_info *param = ds_value_at(op->callee, op->callee->args[i]);
    const ds_value_info *given = ds_value_at(func, op->in[i].value);
    const ds_type *found = ds_bound__read_use(w, &op->in[i]);
    bool family = !op->in[i].n_index && given->n_binders;
    const ds_binder *binders = family ? given->binders : NULL;
    uint32_t n = family ? given->n_binders : 0;
    const ds_type *need = ds_verify__callee_type(ck, func, op, param->type);
    if (!found || !need) return false;
    const ds_binder *own = ds_verify__callee_binders(ck, op, param->binders, param->n_binders);
    if (ds_verify__same_binders(ck, &w->env, own, param->n_binders, binders, n) == DS_NO) {
        ds_verify__error(ck, DS_ERR_SHAPE, op->in[i].loc, NULL,
                         "argument %u (%%%s) of @%s is a family over another range than %s%s",
                         i + 1, param->name, op->callee_name,
                         ds_bound__value_text(w, op->in[i].value), ds_bound__turn_note(w));
        return false;
    }
    need = ds_verify__rename(ck, need, param->binders, binders, n);
    const ds_type *plain = ds_verify__without_ones(ck, func, found);
    if (ds_verify__same_tensor(ck, &w->env, need, plain) != DS_NO &&
        ds_verify__same_place(ck, func, &w->env, &need->on, &found->on) != DS_NO)
        return true;
    ds_verify__error(ck, DS_ERR_SHAPE, op->in[i].loc, NULL,
                     "argument %u (%%%s) of @%s must be %s = %s, but %s is %s = %s%s", i + 1,
                     param->name, op->callee_name, ds_verify__type_text(ck, need),
                     numbers_text(w, need), ds_bound__value_text(w, op->in[i].value),
                     ds_verify__type_text(ck, found), numbers_text(w, found),
                     ds_bound__turn_note(w));
    return false;
}

static void call(ds_bound_walk *w, const ds_op *op) {
    if (!op->callee || op->n_in != op->callee->n_args ||
        op->n_mesh_args != op->callee->n_mesh_params ||
        DS_HAS_EXPR(op->index_arg) != (op->callee->index_param != NULL))
        return;
    bool args = true;
    for (uint32_t i = 0; i < op->n_in; i++) args = check_call_arg(w, op, i) && args;
    ds_bound_mesh *meshes = ds_xcalloc(op->n_mesh_args + 1, sizeof *meshes);
    int64_t index = 0;
    bool ok = !op->callee->index_param || ds_bound__eval(w, op->index_arg, op->loc, &index);
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        ok = bind_place(w, &op->mesh_args[i], op->loc, &meshes[i]) && ok;
    if (ok) {
        enqueue(w, op->callee, meshes, index, w->at->here);
    } else {
        free(meshes);
    }
    if (args) ds_bound__check_results(w, op, NULL);
    if (!args) ds_bound__set_wrong(w, op->out, op->n_out);
}

static void return_op(ds_bound_walk *w, const ds_op *op) {
    const ds_func *func = w->at->func;
    for (uint32_t i = 0; i < op->n_in && i < func->n_results; i++) {
        const ds_type *found = ds_bound__read_use(w, &op->in[i]);
        const ds_value_info *info = ds_value_at(func, op->in[i].value);
        const ds_binder *binders = func->result_binders ? func->result_binders[i] : NULL;
        uint32_t n = func->result_binders ? func->n_result_binders[i] : 0;
        if (found && n && n == info->n_binders)
            found = ds_verify__rename(w->ck, found, info->binders, binders, n);
        if (found && !n)
            ds_bound__compare_types(
                w, func->results[i], found, op->in[i].loc,
                ds_arena_printf(&w->ck->unit->arena, "result %u of @%s", i + 1, func->name),
                "the returned value", "is");
    }
}

static void walk_op(ds_bound_walk *w, const ds_op *op) {
    if (op->code < DS_OP_FIRST_TABLE_OP) ds_verify__op_attrs(w->ck, &w->env, op);
    switch (op->code) {
    case DS_OP_FOR:
        ds_bound__for_loop(w, op);
        break;
    case DS_OP_LOCAL:
        ds_bound__local_region(w, op);
        break;
    case DS_OP_CALL:
        call(w, op);
        break;
    case DS_OP_REC:
        ds_bound__rec_region(w, op);
        break;
    case DS_OP_CASE:
        ds_bound__case_op(w, op);
        break;
    case DS_OP_WEIGHT:
        w->may_be_empty = false;
        ds_bound__check_results(w, op, NULL);
        w->may_be_empty = true;
        break;
    case DS_OP_RETURN:
        return_op(w, op);
        break;
    case DS_OP_YIELD:
        break;
    default:
        table_op(w, op);
        break;
    }
}

/* Frees the types made for one op after the op, because a loop may have many turns. */
void ds_bound__walk_in_arena(ds_bound_walk *w, const ds_op *op) {
    ds_arena around = w->ck->unit->arena;
    ds_arena_init(&w->ck->unit->arena);
    walk_op(w, op);
    ds_arena_deinit(&w->ck->unit->arena);
    w->ck->unit->arena = around;
}

/* In the element's type, or in the range of a family. */
static bool value_mentions(const ds_bound_walk *w, const ds_value_info *v, const char *index) {
    const ds_exprs *exprs = &w->ck->unit->exprs;
    for (uint32_t i = 0; i < v->n_binders; i++)
        if (ds_expr_mentions(exprs, v->binders[i].lo, index) ||
            ds_expr_mentions(exprs, v->binders[i].hi, index))
            return true;
    return v->type && ds_type_mentions(exprs, v->type, index);
}

/* The open loops on whose index an op without a body depends. */
static uint64_t loops_of(ds_bound_walk *w, const ds_op *op) {
    const uint64_t *found = ds_map_find(&w->mentioned, DS_KEY(op));
    if (found) return *found;
    const ds_block alone = {.ops = (ds_op *[]){(ds_op *)op}, .n_ops = 1};
    uint64_t loops = 0;
    for (uint32_t i = 0; i < w->open_loops.n && i < 64; i++) {
        ds_dependence info = {0};
        const char *index = w->open_loops.at[i]->index;
        ds_verify__depends(w->ck, w->at->func, &alone, index, &info);
        for (uint32_t k = 0; k < op->n_in && !info.mentions; k++)
            info.mentions = value_mentions(w, ds_value_at(w->at->func, op->in[k].value), index);
        if (info.mentions) loops |= UINT64_C(1) << i;
    }
    ds_map_put(&w->mentioned, DS_KEY(op), loops);
    return loops;
}

/* An op is checked once for all turns of a loop on which it does not depend: in the first. */
void ds_bound__walk_block(ds_bound_walk *w, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (!w->later || op->body || !(w->later & ~loops_of(w, op))) ds_bound__walk_in_arena(w, op);
    }
}

/* ---- functions ---- */

static void check_instance(ds_bound_walk *w, const ds_bound_instance *at) {
    w->at = at;
    const ds_func *func = at->func;
    const ds_index index = {func->index_param, at->index, NULL};
    w->env = ds_binding_env(w->ck->binding, func->index_param ? &index : NULL);
    w->turns = 1;
    uint32_t errors = w->ck->diags->n_errors;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        if (info->type)
            ds_bound__check_family(w, info, 0, 1, ds_bound__value_text(w, func->args[i]));
    }
    for (uint32_t i = 0; i < func->n_results; i++) {
        const char *name =
            ds_arena_printf(&w->ck->unit->arena, "result %u of @%s", i + 1, func->name);
        ds_value_info result = {.name = name, .loc = func->loc, .type = func->results[i]};
        if (func->result_binders) {
            result.binders = func->result_binders[i];
            result.n_binders = func->n_result_binders[i];
        }
        ds_bound__check_family(w, &result, 0, 1, name);
    }
    if (w->ck->diags->n_errors > errors) return; /* the body would repeat the errors */
    w->wrong = ds_xcalloc(func->values.n + 1, 1);
    w->may_be_empty = true;
    ds_bound__walk_block(w, &func->body);
    w->may_be_empty = false;
    free(w->wrong);
}

void ds_verify__bound(ds_checker *ck) {
    ds_bound_walk w = {.ck = ck};
    ds_map_init(&w.queued);
    ds_map_init(&w.said);
    ds_map_init(&w.mentioned);
    ds_verify__meshes_init(&w.meshes, ck);
    ds_verify__mesh_declarations(&w.meshes);
    const ds_mesh *mesh = ds_scenario_mesh(ck->unit);
    ds_bound_mesh here = {.known = mesh != NULL, .mesh = mesh};
    for (uint32_t m = 0; m < ck->unit->modules.n; m++) {
        const ds_module *module = ck->unit->modules.at[m];
        for (uint32_t i = 0; i < module->funcs.n; i++)
            if (!ds_func_open(module->funcs.at[i])) enqueue(&w, module->funcs.at[i], NULL, 0, here);
        for (uint32_t i = 0; i < module->programs.n; i++)
            for (uint32_t r = 0; r < module->programs.at[i]->n_ranks; r++)
                enqueue(&w, module->programs.at[i]->ranks[r], NULL, 0,
                        (ds_bound_mesh){.known = true});
    }
    for (uint32_t i = 0; i < w.work.n; i++) {
        ds_bound_instance at = w.work.at[i]; /* the list grows underneath */
        check_instance(&w, &at);
        free(at.meshes);
    }
    ds_verify__scenario_bound(ck);
    ds_verify__degrade_numbers(ck);
    free(w.work.at);
    free(w.open_loops.at);
    free(w.manual);
    ds_verify__meshes_deinit(&w.meshes);
    ds_map_deinit(&w.said);
    ds_map_deinit(&w.mentioned);
    ds_map_deinit(&w.queued);
}
