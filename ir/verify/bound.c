/* The walk with numbers: the params' values decide the questions that symbols left open.
 *
 * A function is checked once for each set of meshes and index in its calls, from a work list: first
 * every function without such parameters, then the functions that these call. Loops whose body depends on
 * the index are walked turn by turn, up to a limit; other loops once. Types are inferred again,
 * with numbers, and compared with the types that ds_verify recorded. */
#include "ir/core/rec.h"
#include "ir/verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- state ---- */

/* A function with its mesh parameters bound. */
typedef struct instance {
    ds_func *func;
    ds_bound_mesh *meshes; /* one per mesh parameter; heap */
    int64_t index;         /* the index parameter's value */
    ds_bound_mesh here;    /* the mesh of values without `on` */
} instance;

typedef struct bound_walk {
    ds_checker *ck;
    ds_mesh_table meshes;
    DS_VEC(instance) work;
    ds_map queued; /* hash of an instance */
    ds_map said;   /* hash of a report about a type, without the value's name */
    const instance *at;
    ds_env env;
    uint64_t turns; /* product of the turns of the loops around */
    const char **manual;
    uint32_t n_manual;
    bool in_rec;    /* dims of size 0 are fine: an empty range */
    uint8_t *wrong; /* per value of the function: reported, so that its readers are silent */
} bound_walk;

static void whole_mesh(bound_walk *w, const ds_place *place, ds_bound_mesh *out) {
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
static bool bind_place(bound_walk *w, const ds_place *place, ds_loc loc, ds_bound_mesh *out) {
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

static bool axis_size(void *context, const ds_place *on, const char *axis, int64_t *size) {
    bound_walk *w = context;
    ds_bound_mesh mesh;
    whole_mesh(w, on, &mesh);
    return ds_verify__is_fixed(on, axis) ? (*size = 1, true)
                                         : ds_verify__size_on(&w->meshes, &mesh, axis, size);
}

/* ---- reports ---- */

/* " (at l = 3, k = 0)" inside loops. */
static const char *turn_note(bound_walk *w) {
    ds_buf buf = {0};
    for (const ds_index *i = w->env.indices; i; i = i->up)
        ds_buf_printf(&buf, "%s%s = %lld", buf.n ? ", " : " (at ", i->name, (long long)i->value);
    if (!buf.n) return "";
    ds_buf_putc(&buf, ')');
    const char *text = ds_arena_strdup(&w->ck->diags->arena, buf.text);
    ds_buf_deinit(&buf);
    return text;
}

static void pass_on(bound_walk *w, const ds_error *err) {
    ds_verify__error(w->ck, err->code, ds_error_loc(err), NULL, "%s%s", err->message, turn_note(w));
}

static const char *numbers_text(bound_walk *w, const ds_type *type) {
    return ds_verify__type_text(w->ck, ds_verify__numbers(w->ck, &w->env, type));
}

static bool eval(bound_walk *w, ds_expr e, ds_loc loc, int64_t *out) {
    ds_error err = {0};
    if (ds_expr_eval_int(&w->env, e, loc, out, &err) == DS_OK) return true;
    pass_on(w, &err);
    return false;
}

/* ---- types and reads ---- */

static ds_infer infer_context(bound_walk *w, const ds_op *op) {
    return (ds_infer){.unit = w->ck->unit,
                      .func = w->at->func,
                      .op = op,
                      .env = &w->env,
                      .axis_size = axis_size,
                      .context = w,
                      .manual_axes = w->manual,
                      .n_manual = w->n_manual,
                      .may_be_empty = w->in_rec};
}

/* Was this report made before, for another value of the same type? A signature often writes one
 * type many times. */
static bool said_before(bound_walk *w, const char *message, const char *name) {
    size_t n = strlen(name);
    if (strncmp(message, name, n) != 0) n = 0;
    uint64_t hash = ds_hash_bytes(message + n, strlen(message + n));
    if (ds_map_find(&w->said, hash)) return true;
    ds_map_put(&w->said, hash, 1);
    return false;
}

static bool check_type(bound_walk *w, const ds_type *type, const char *name, ds_loc loc) {
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

static const char *value_text(bound_walk *w, ds_value value) {
    return ds_verify__name_text(&w->ck->unit->arena, '%', ds_value_at(w->at->func, value)->name);
}

/* Evaluates lo..hi of a binder, with the outer binders in scope. */
static bool binder_range(bound_walk *w, const ds_binder *binder, int64_t *lo, int64_t *hi) {
    if (!eval(w, binder->lo, binder->loc, lo) || !eval(w, binder->hi, binder->loc, hi))
        return false;
    if (*lo <= *hi) return true;
    ds_verify__error(w->ck, DS_ERR_VALUE, binder->loc, NULL,
                     "the range of '%s' is %lld..%lld: it ends before it begins", binder->name,
                     (long long)*lo, (long long)*hi);
    return false;
}

static bool check_index(bound_walk *w, const ds_use *use, uint32_t i, const ds_value_info *info,
                        int64_t *first) {
    const ds_binder *binder = &info->binders[i];
    bool range = ds_use_is_range(use, i);
    ds_index *indices = NULL; /* the family's own indices: a bound sees only binders to its left */
    int64_t lo, hi, at, end;
    if (!eval(w, use->index[i], use->loc, &at)) return false;
    end = at + (at < INT64_MAX);
    if (range && !eval(w, use->index_hi[i], use->loc, &end)) return false;
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
    bool ok = binder_range(w, binder, &lo, &hi);
    w->env = outer;
    first[i] = at;
    if (!ok || (at >= lo && end <= hi && at <= end)) return ok;
    const char *text = ds_verify__expr_text(w->ck, use->index[i]);
    if (range)
        ds_verify__error(
            w->ck, DS_ERR_VALUE, use->loc, NULL,
            "%%%s{%s:%s} reads %lld to %lld, but the family has indices %lld to %lld%s", info->name,
            text, ds_verify__expr_text(w->ck, use->index_hi[i]), (long long)at, (long long)end - 1,
            (long long)lo, (long long)hi - 1, turn_note(w));
    else
        ds_verify__error(w->ck, DS_ERR_VALUE, use->loc, NULL,
                         "%%%s{%s} reads index %lld, but the family has indices %lld to %lld%s",
                         info->name, text, (long long)at, (long long)lo, (long long)hi - 1,
                         turn_note(w));
    return false;
}

#define MAX_BINDERS 8

/* The type of a use; NULL if the use reads outside its family or the type is unknown. */
static const ds_type *read_use(bound_walk *w, const ds_use *use) {
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

/* The turns to check: all of a few turns; the first and the last few of many. */
#define END_TURNS 4
static int64_t next_turn(int64_t i, int64_t lo, int64_t hi, bool all) {
    uint64_t done = (uint64_t)i - (uint64_t)lo + 1, left = (uint64_t)hi - (uint64_t)i - 1;
    return all || done < END_TURNS || left <= END_TURNS ? i + 1 : hi - END_TURNS;
}

/* Checks the element type at every index of a family. */
static void check_family(bound_walk *w, const ds_value_info *info, uint32_t i, uint64_t turns,
                         const char *name) {
    if (i == info->n_binders) {
        check_type(w, info->type, name, info->loc);
        return;
    }
    int64_t lo, hi;
    if (!binder_range(w, &info->binders[i], &lo, &hi)) return;
    bool mentioned = binder_mentioned(&w->ck->unit->exprs, info, i);
    uint64_t n = (uint64_t)hi - (uint64_t)lo;
    bool all = n <= DS_VERIFY_MAX_TURNS / turns;
    for (int64_t at = lo; at < hi; at = mentioned ? next_turn(at, lo, hi, all) : hi) {
        const ds_index *up = w->env.indices;
        ds_index index = {info->binders[i].name, at, up};
        w->env.indices = &index;
        uint64_t inner = mentioned && all ? turns * n : turns;
        check_family(w, info, i + 1, inner ? inner : 1, name);
        w->env.indices = up;
    }
}

static bool compare_types(bound_walk *w, const ds_type *recorded, const ds_type *found, ds_loc loc,
                          const char *name, const char *who, const char *verb) {
    recorded = ds_verify__seen(w->ck, w->at->func, recorded);
    if (!recorded || !found ||
        ds_verify__same_type(w->ck, w->at->func, &w->env, recorded, found) != DS_NO)
        return true;
    ds_verify__error(w->ck, DS_ERR_SHAPE, loc, NULL, "%s is %s = %s, but %s %s %s = %s%s", name,
                     ds_verify__type_text(w->ck, recorded), numbers_text(w, recorded), who, verb,
                     ds_verify__type_text(w->ck, found), numbers_text(w, found), turn_note(w));
    return false;
}

static void set_wrong(bound_walk *w, const ds_value *values, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) w->wrong[values[i].i] = 1;
}

/* ---- ops ---- */

static void walk_block(bound_walk *w, const ds_block *block);
static void walk_in_arena(bound_walk *w, const ds_op *op);

static void check_results(bound_walk *w, const ds_op *op, ds_type **found) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_value_info *info = ds_value_at(w->at->func, op->out[i]);
        const char *name = value_text(w, op->out[i]);
        if ((found && !compare_types(w, info->type, found[i], info->loc, name, ds_op_name(op->code),
                                     "gives")) ||
            !check_type(w, info->type, name, info->loc))
            set_wrong(w, &op->out[i], 1);
    }
}

static void table_op(bound_walk *w, const ds_op *op) {
    const ds_type **in = ds_xcalloc(op->n_in + 1, sizeof *in);
    ds_type **out = ds_xcalloc(op->n_out + 1, sizeof *out);
    bool known = true;
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = read_use(w, &op->in[i]);
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
    if (inferred) check_results(w, op, out);
    if (!inferred) set_wrong(w, op->out, op->n_out);
    free(in);
    free(out);
}

/* ---- calls ---- */

/* Adds an instance to the work list; owns `meshes`. */
static void enqueue(bound_walk *w, ds_func *func, ds_bound_mesh *meshes, int64_t index,
                    ds_bound_mesh here) {
    uint64_t hash = ds_hash_mix(ds_verify__hash_mesh(DS_KEY(func), &here), (uint64_t)index);
    for (uint32_t i = 0; i < func->n_mesh_params; i++)
        hash = ds_verify__hash_mesh(hash, &meshes[i]);
    if (ds_map_find(&w->queued, hash)) {
        free(meshes);
        return;
    }
    ds_map_put(&w->queued, hash, 1);
    instance next = {func, meshes, index, func->n_mesh_params == 1 ? meshes[0] : here};
    DS_HPUSH(&w->work, next);
}

static bool check_call_arg(bound_walk *w, const ds_op *op, uint32_t i) {
    ds_checker *ck = w->ck;
    const ds_func *func = w->at->func;
    const ds_value_info *param = ds_value_at(op->callee, op->callee->args[i]);
    const ds_value_info *given = ds_value_at(func, op->in[i].value);
    const ds_type *found = read_use(w, &op->in[i]);
    bool family = !op->in[i].n_index && given->n_binders;
    const ds_binder *binders = family ? given->binders : NULL;
    uint32_t n = family ? given->n_binders : 0;
    const ds_type *need = ds_verify__callee_type(ck, func, op, param->type);
    if (!found || !need) return false;
    const ds_binder *own = ds_verify__callee_binders(ck, op, param->binders, param->n_binders);
    if (ds_verify__same_binders(ck, &w->env, own, param->n_binders, binders, n) == DS_NO) {
        ds_verify__error(ck, DS_ERR_SHAPE, op->in[i].loc, NULL,
                         "argument %u (%%%s) of @%s is a family over another range than %s%s",
                         i + 1, param->name, op->callee_name, value_text(w, op->in[i].value),
                         turn_note(w));
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
                     numbers_text(w, need), value_text(w, op->in[i].value),
                     ds_verify__type_text(ck, found), numbers_text(w, found), turn_note(w));
    return false;
}

static void call(bound_walk *w, const ds_op *op) {
    if (!op->callee || op->n_in != op->callee->n_args ||
        op->n_mesh_args != op->callee->n_mesh_params ||
        DS_HAS_EXPR(op->index_arg) != (op->callee->index_param != NULL))
        return;
    bool args = true;
    for (uint32_t i = 0; i < op->n_in; i++) args = check_call_arg(w, op, i) && args;
    ds_bound_mesh *meshes = ds_xcalloc(op->n_mesh_args + 1, sizeof *meshes);
    int64_t index = 0;
    bool ok = !op->callee->index_param || eval(w, op->index_arg, op->loc, &index);
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        ok = bind_place(w, &op->mesh_args[i], op->loc, &meshes[i]) && ok;
    if (ok) {
        enqueue(w, op->callee, meshes, index, w->at->here);
    } else {
        free(meshes);
    }
    if (args) check_results(w, op, NULL);
    if (!args) set_wrong(w, op->out, op->n_out);
}

/* ---- loops and regions ---- */

static const ds_op *yield_of(const ds_op *region) {
    const ds_block *body = region->body;
    return body->n_ops ? body->ops[body->n_ops - 1] : NULL;
}

static void check_carries(bound_walk *w, const ds_op *loop) {
    const ds_op *yield = yield_of(loop);
    for (uint32_t i = 0; i < loop->n_args; i++) {
        const ds_value_info *carry = ds_value_at(w->at->func, loop->args[i]);
        if (!carry->type || !yield || i >= yield->n_in) continue;
        const ds_type *next = ds_verify__carry_next(w->ck, loop, carry->type);
        const char *what = ds_arena_printf(&w->ck->unit->arena, "the next %%%s", carry->name);
        const ds_type *found = read_use(w, &yield->in[i]);
        bool same =
            found && compare_types(w, next, found, yield->in[i].loc, what, "the loop", "yields");
        if (!same && i < loop->n_out) set_wrong(w, &loop->out[i], 1);
    }
}

static void turn(bound_walk *w, const ds_op *loop, int64_t at) {
    const ds_index *up = w->env.indices;
    ds_index index = {loop->index, at, up};
    w->env.indices = &index;
    for (uint32_t i = 0; i < loop->n_args; i++) {
        const ds_value_info *carry = ds_value_at(w->at->func, loop->args[i]);
        check_type(w, carry->type, value_text(w, loop->args[i]), carry->loc);
    }
    walk_block(w, loop->body);
    check_carries(w, loop);
    w->env.indices = up;
}

/* At most this many ops are checked for one loop nest, whatever the number of turns. */
#define MAX_OP_CHECKS (UINT64_C(1) << 18)

static void check_start(bound_walk *w, const ds_op *loop) {
    for (uint32_t i = 0; i < loop->n_args; i++) {
        const ds_value_info *carry = ds_value_at(w->at->func, loop->args[i]);
        const ds_type *init = read_use(w, &loop->in[i]);
        if (!init) set_wrong(w, &loop->args[i], 1);
        if (!carry->type || !init) continue;
        compare_types(w, ds_verify__carry_at(w->ck, loop, carry->type, loop->lo), init, carry->loc,
                      ds_arena_printf(&w->ck->unit->arena, "the first %%%s", carry->name), "it",
                      "starts with");
    }
}

static void for_loop(bound_walk *w, const ds_op *loop) {
    int64_t lo, hi;
    check_start(w, loop);
    if (!eval(w, loop->lo, loop->loc, &lo) || !eval(w, loop->hi, loop->loc, &hi)) return;
    if (lo > hi) {
        ds_verify__error(w->ck, DS_ERR_VALUE, loop->loc, NULL,
                         "the loop runs over %s in %lld..%lld, which ends before it begins%s",
                         loop->index, (long long)lo, (long long)hi, turn_note(w));
        return;
    }
    ds_dependence info = {0};
    ds_verify__depends(w->ck, w->at->func, loop->body, loop->index, &info);
    uint64_t n = (uint64_t)hi - (uint64_t)lo, before = w->turns;
    bool all = n <= DS_VERIFY_MAX_TURNS / before && n <= MAX_OP_CHECKS / (info.ops + 1) / before;
    if (info.mentions && n) w->turns = before * (all ? n : 1);
    for (int64_t at = lo; at < hi; at = info.mentions ? next_turn(at, lo, hi, all) : hi)
        turn(w, loop, at);
    w->turns = before;
    for (uint32_t i = 0; i < loop->n_args && i < loop->n_out; i++) {
        const ds_value_info *info_out = ds_value_at(w->at->func, loop->out[i]);
        if (w->wrong[loop->out[i].i]) continue;
        check_type(w, info_out->type, value_text(w, loop->out[i]), info_out->loc);
    }
}

/* Walks the body with the coordinates own[] as axis_index. */
static void local_body(bound_walk *w, const ds_op *region, const ds_index *own) {
    const ds_index *up = w->env.indices;
    if (region->n_over) w->env.indices = &own[region->n_over - 1];
    walk_block(w, region->body);
    const ds_op *yield = yield_of(region);
    for (uint32_t i = 0; yield && i < yield->n_in && i < region->n_out; i++) {
        const ds_type *shard = ds_verify__shard_type(w->ck, w->at->func, region->result_types[i],
                                                     region->over, region->n_over);
        compare_types(w, shard, read_use(w, &yield->in[i]), yield->in[i].loc,
                      "a shard of the result", "the region", "yields");
    }
    w->env.indices = up;
}

/* Are there several coordinates? Then sets own[] to the last. */
static bool go_to_last(bound_walk *w, const ds_op *region, ds_index *own) {
    const ds_place nowhere = {0};
    const ds_place *on =
        region->n_in ? &ds_value_at(w->at->func, region->in[0].value)->type->on : &nowhere;
    bool many = false;
    for (uint32_t i = 0; i < region->n_over; i++) {
        int64_t size = 1;
        if (axis_size(w, on, region->over[i], &size)) own[i].value = size - 1;
        many = many || size > 1;
    }
    return many;
}

/* Walks a local region. axis_index has a value inside; the first and the last coordinates are
 * checked for all. */
static void local_region(bound_walk *w, const ds_op *region) {
    ds_index *own = ds_xcalloc(region->n_over + 1, sizeof *own);
    uint64_t before = w->turns;
    w->manual = ds_xrealloc(w->manual, (w->n_manual + region->n_over + 1) * sizeof *w->manual);
    for (uint32_t i = 0; i < region->n_in; i++) {
        const ds_type *outside = read_use(w, &region->in[i]);
        if (outside) check_type(w, outside, value_text(w, region->in[i].value), region->in[i].loc);
    }
    for (uint32_t i = 0; i < region->n_over; i++) {
        own[i] = (ds_index){region->over[i], 0, i ? &own[i - 1] : w->env.indices};
        w->manual[w->n_manual++] = region->over[i];
    }
    bool both = before <= DS_VERIFY_MAX_TURNS / 2; /* regions may be nested */
    if (both) w->turns = 2 * before;
    local_body(w, region, own);
    if (both && go_to_last(w, region, own)) local_body(w, region, own);
    w->turns = before;
    w->n_manual -= region->n_over;
    free(own);
    check_results(w, region, NULL);
}

/* The branch that is taken at the point has the case's type there. */
static void case_op(bound_walk *w, const ds_op *op) {
    const ds_value_info *info = ds_value_at(w->at->func, op->out[0]);
    int64_t holds = 0;
    uint32_t i = 0;
    for (; i < op->n_conds && !holds; i += !holds)
        if (!eval(w, op->conds[i], op->loc, &holds)) return;
    const char *name = value_text(w, op->out[0]);
    if (!compare_types(w, info->type, read_use(w, &op->in[i]), op->in[i].loc, name, "its branch",
                       "is") ||
        !check_type(w, info->type, name, info->loc))
        set_wrong(w, op->out, 1);
}

/* Walks an equation at its points, over dims i and on: all values of a dim that the equation
 * mentions, up to a limit the first and the last ones of many; one value of another dim. */
static void at_points(bound_walk *w, const ds_op *op, uint32_t i) {
    uint32_t n_dims;
    const ds_binder *dims = ds_rec_dims(w->at->func, op, &n_dims);
    if (i == n_dims) {
        walk_in_arena(w, op);
        return;
    }
    int64_t lo, hi;
    if (!eval(w, dims[i].lo, dims[i].loc, &lo) || !eval(w, dims[i].hi, dims[i].loc, &hi)) return;
    const ds_block alone = {.ops = (ds_op *[]){(ds_op *)op}, .n_ops = 1};
    ds_dependence info = {0};
    ds_verify__depends(w->ck, w->at->func, &alone, dims[i].name, &info);
    uint64_t n = hi > lo ? (uint64_t)hi - (uint64_t)lo : 0, before = w->turns;
    bool all = n <= DS_VERIFY_MAX_TURNS / before && n <= MAX_OP_CHECKS / (info.ops + 1) / before;
    if (info.mentions && n) w->turns = before * (all ? n : 1);
    for (int64_t at = lo; at < hi; at = info.mentions ? next_turn(at, lo, hi, all) : hi) {
        const ds_index *up = w->env.indices;
        ds_index index = {dims[i].name, at, up};
        w->env.indices = &index;
        at_points(w, op, i + 1);
        w->env.indices = up;
    }
    w->turns = before;
}

/* How many reads of a rec are followed for its bounds and cycles; beyond, the schedule and exec
 * find the rest. Some 50 ms. */
#define MAX_REC_READS (INT64_C(1) << 19)

static void rec_region(bound_walk *w, const ds_op *rec) {
    bool complete, before = w->in_rec;
    ds_error err = {0};
    uint32_t errors = w->ck->diags->n_errors;
    for (uint32_t d = 0; d < rec->n_dims; d++) {
        int64_t lo, hi;
        binder_range(w, &rec->dims[d], &lo, &hi);
    }
    if (w->ck->diags->n_errors == errors &&
        ds_rec_check(w->at->func, rec, &w->env, MAX_REC_READS, &complete, &err) != DS_OK)
        ds_verify__pass_on(w->ck, &err);
    w->in_rec = true;
    for (uint32_t i = 0; i < rec->body->n_ops && w->ck->diags->n_errors == errors; i++)
        if (rec->body->ops[i]->n_out) at_points(w, rec->body->ops[i], 0);
    w->in_rec = before;
    if (w->ck->diags->n_errors > errors) set_wrong(w, rec->out, rec->n_out);
}

static void return_op(bound_walk *w, const ds_op *op) {
    const ds_func *func = w->at->func;
    for (uint32_t i = 0; i < op->n_in && i < func->n_results; i++) {
        const ds_type *found = read_use(w, &op->in[i]);
        const ds_value_info *info = ds_value_at(func, op->in[i].value);
        const ds_binder *binders = func->result_binders ? func->result_binders[i] : NULL;
        uint32_t n = func->result_binders ? func->n_result_binders[i] : 0;
        if (found && n && n == info->n_binders)
            found = ds_verify__rename(w->ck, found, info->binders, binders, n);
        if (found && !n)
            compare_types(
                w, func->results[i], found, op->in[i].loc,
                ds_arena_printf(&w->ck->unit->arena, "result %u of @%s", i + 1, func->name),
                "the returned value", "is");
    }
}

static void walk_op(bound_walk *w, const ds_op *op) {
    if (op->code < DS_OP_FIRST_TABLE_OP) ds_verify__op_attrs(w->ck, &w->env, op);
    switch (op->code) {
    case DS_OP_FOR:
        for_loop(w, op);
        break;
    case DS_OP_LOCAL:
        local_region(w, op);
        break;
    case DS_OP_CALL:
        call(w, op);
        break;
    case DS_OP_REC:
        rec_region(w, op);
        break;
    case DS_OP_CASE:
        case_op(w, op);
        break;
    case DS_OP_WEIGHT:
        check_results(w, op, NULL);
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
static void walk_in_arena(bound_walk *w, const ds_op *op) {
    ds_arena around = w->ck->unit->arena;
    ds_arena_init(&w->ck->unit->arena);
    walk_op(w, op);
    ds_arena_deinit(&w->ck->unit->arena);
    w->ck->unit->arena = around;
}

static void walk_block(bound_walk *w, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) walk_in_arena(w, block->ops[i]);
}

/* ---- functions ---- */

static void check_instance(bound_walk *w, const instance *at) {
    w->at = at;
    const ds_func *func = at->func;
    const ds_index index = {func->index_param, at->index, NULL};
    w->env = ds_binding_env(w->ck->binding, func->index_param ? &index : NULL);
    w->turns = 1;
    uint32_t errors = w->ck->diags->n_errors;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        if (info->type) check_family(w, info, 0, 1, value_text(w, func->args[i]));
    }
    for (uint32_t i = 0; i < func->n_results; i++) {
        const char *name =
            ds_arena_printf(&w->ck->unit->arena, "result %u of @%s", i + 1, func->name);
        ds_value_info result = {.name = name, .loc = func->loc, .type = func->results[i]};
        if (func->result_binders) {
            result.binders = func->result_binders[i];
            result.n_binders = func->n_result_binders[i];
        }
        check_family(w, &result, 0, 1, name);
    }
    if (w->ck->diags->n_errors > errors) return; /* the body would repeat the errors */
    w->wrong = ds_xcalloc(func->values.n + 1, 1);
    walk_block(w, &func->body);
    free(w->wrong);
}

void ds_verify__bound(ds_checker *ck) {
    bound_walk w = {.ck = ck};
    ds_map_init(&w.queued);
    ds_map_init(&w.said);
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
        instance at = w.work.at[i]; /* the list grows underneath */
        check_instance(&w, &at);
        free(at.meshes);
    }
    ds_verify__scenario_bound(ck);
    ds_verify__degrade_numbers(ck);
    free(w.work.at);
    free(w.manual);
    ds_verify__meshes_deinit(&w.meshes);
    ds_map_deinit(&w.said);
    ds_map_deinit(&w.queued);
}
