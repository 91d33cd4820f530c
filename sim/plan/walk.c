/* Follows the program once in issue order and writes down its instances.
 *
 * A frame is one function activation: a slot per SSA value, holding the value instance it has now
 * (a loop body overwrites its slots each iteration), or a family of them (values.c). Views and
 * collectives over one device leave no instance: their results are their operands. `after` is a
 * view that is there only once others are: whatever reads it depends on the others too, without
 * reading them. */
#include "sim/plan/walk.h"

#include <stdlib.h>
#include <string.h>

typedef ds_frame frame;

#define MAX_CALL_DEPTH 64

/* ---- instances ---- */

uint32_t ds_plan__limit(const ds_builder *b) {
    return b->options->max_instances ? b->options->max_instances : DS_PLAN_MAX_INSTANCES;
}

ds_status ds_plan__too_large(const ds_builder *b, ds_loc loc, ds_error *err) {
    return ds_error_set(err, DS_ERR_LIMIT, loc,
                        "the unrolled program has more than %u op instances, inputs or loop turns; "
                        "--max-instances sets another limit",
                        ds_plan__limit(b));
}

static uint32_t add_inst(ds_builder *b, uint32_t record, uint32_t scope, uint32_t n_out) {
    ds_plan *plan = b->plan;
    uint32_t id = plan->insts.n;
    ds_inst inst = {.record = record,
                    .scope = scope,
                    .first_operand = plan->operands.n,
                    .first_value = plan->values.n,
                    .first_task = DS_NONE};
    DS_HPUSH(&plan->insts, inst);
    for (uint32_t i = 0; i < n_out; i++) {
        ds_vinst v = {.inst = id,
                      .result = (uint16_t)i,
                      .category = (uint8_t)plan->records.at[record]->category,
                      .alias = DS_NONE};
        DS_HPUSH(&plan->values, v);
    }
    return id;
}

static ds_status add_scope(ds_builder *b, uint32_t up, const ds_op *op, const ds_func *func,
                           int64_t index, uint32_t *out, ds_error *err) {
    *out = b->plan->scopes.n;
    if (*out >= ds_plan__limit(b)) return ds_plan__too_large(b, op ? op->loc : func->loc, err);
    int64_t microbatch = up == DS_NONE ? DS_NO_MICROBATCH : b->plan->scopes.at[up].microbatch;
    const ds_attr *attr = op ? ds_attr_find(op->attrs, op->n_attrs, "microbatch") : NULL;
    ds_env env = ds_binding_env(b->binding, NULL);
    if (attr) DS_TRY(ds_expr_eval_int(&env, attr->expr, attr->loc, &microbatch, err));
    DS_HPUSH(&b->plan->scopes, ((ds_scope){up, op, func, index, microbatch}));
    return DS_OK;
}

static ds_status add_input(ds_builder *b, frame *f, const ds_value_info *value,
                           const ds_index *indices, ds_category otherwise, uint32_t *out,
                           ds_error *err) {
    ds_category category;
    uint32_t record;
    DS_TRY(ds_plan__category(b, value->attrs, value->n_attrs, otherwise, &category, err));
    DS_TRY(ds_plan__input_record(b, f->ctx, value, indices, category, &record, err));
    uint32_t inst = add_inst(b, record, f->scope, 1);
    *out = b->plan->insts.at[inst].first_value;
    b->plan->values.at[*out].name = value->name;
    b->plan->values.at[*out].is_host = value->type->host;
    return DS_OK;
}

/* ---- table ops ---- */

enum { FEW = 16 }; /* operands and results that need no heap */

static ds_status record_of(ds_builder *b, const frame *f, const ds_op *op, const ds_index *indices,
                           uint32_t *record, ds_error *err) {
    if (ds_plan__cached(b, f->ctx, op, record)) return DS_OK;
    ds_typed few_types[FEW];
    ds_index few_frames[FEW];
    uint32_t n_frames = 0, n_types = op->n_in + op->n_out;
    for (uint32_t i = 0; i < op->n_in; i++) n_frames += op->in[i].n_index;
    ds_typed *types = n_types <= FEW ? few_types : ds_xcalloc(n_types, sizeof *types);
    ds_index *frames = n_frames <= FEW ? few_frames : ds_xcalloc(n_frames, sizeof *frames);
    ds_index *room = frames;
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++) {
        status = ds_plan__operand_type(b, f->ctx->func, &op->in[i], indices, room, &types[i], err);
        room += op->in[i].n_index;
    }
    for (uint32_t i = 0; i < op->n_out; i++)
        types[op->n_in + i] = (ds_typed){ds_value_at(f->ctx->func, op->out[i])->type, indices};
    ds_site site = {.ctx = f->ctx,
                    .op = op,
                    .indices = indices,
                    .in = types,
                    .out = types + op->n_in,
                    .region = f->region,
                    .rank_device = f->rank_device,
                    .at_host = ds_plan__at_host(b, op)};
    if (status == DS_OK) status = ds_plan__record(b, &site, record, err);
    if (types != few_types) free(types);
    if (frames != few_frames) free(frames);
    return status;
}

static void alias_results(const frame *f, const ds_op *op, const uint32_t *operands) {
    for (uint32_t i = 0; i < op->n_out; i++)
        f->slots[op->out[i].i] = (ds_slot){.value = operands[i < op->n_in ? i : 0]};
}

static const ds_record *maker(const ds_plan *plan, uint32_t value) {
    return plan->records.at[plan->insts.at[plan->values.at[value].inst].record];
}

static bool are_as_large(const ds_record *a, uint32_t result_of_a, const ds_record *r,
                         uint32_t result) {
    for (uint32_t i = 0; i < r->n_devices; i++) {
        uint32_t k = ds_plan__member(a, r->devices[i]);
        if (k == DS_NONE || a->variants[a->variant_of[k]].out_bytes[result_of_a] !=
                                r->variants[r->variant_of[i]].out_bytes[result])
            return false;
    }
    return true;
}

/* Other replicas of a schematic plan must find the same. */
static void check_sorts(const ds_builder *b, const ds_record *a, uint32_t result_of_a,
                        const ds_record *r, uint32_t result, bool same) {
    const ds_plan_schematic *s = b->options->schematic;
    if (!s || (!a->sorts && !r->sorts)) return;
    for (uint32_t i = 0; i < s->n_others; i++)
        if (are_as_large(a->sorts ? &a->sorts[i] : a, result_of_a, r->sorts ? &r->sorts[i] : r,
                         result) != same)
            b->plan->sorts_differ = true;
}

/* A new state goes back to where it came from. ZeRO updates a part of a weight and gathers the
 * whole: that takes the place of what the part was cut from. What was reloaded from the host, to be
 * updated, is offloaded to where it lay. The value whose buffer that is, if it has as many bytes as
 * the result; else DS_NONE. */
static uint32_t home_of(const ds_builder *b, const ds_op *op, const ds_record *r, uint32_t result,
                        uint32_t operand) {
    const ds_plan *plan = b->plan;
    const ds_vinst *v = &plan->values.at[operand];
    if (!v->is_state) return DS_NONE;
    uint32_t home = v->alias;
    while (plan->values.at[home].is_state) home = plan->values.at[home].alias;
    if (op->code == DS_OP_OFFLOAD) {
        const ds_record *reload = maker(plan, home);
        if (!reload->op || reload->op->code != DS_OP_RELOAD) return DS_NONE;
        home = plan->operands.at[plan->insts.at[plan->values.at[home].inst].first_operand];
    }
    const ds_record *owner = maker(plan, home);
    uint32_t made = plan->values.at[home].result;
    bool same = are_as_large(owner, made, r, result);
    check_sorts(b, owner, made, r, result, same);
    return same ? home : DS_NONE;
}

/* Does the op also read the buffer by another operand, by one that is a part of it or by one that
 * another result is made of? The result would overwrite what is still to be read. */
static bool reads_twice(const ds_builder *b, const ds_op *op, const ds_record *r, uint32_t operand,
                        const uint32_t *operands) {
    uint32_t taken = ds_plan__instance(b, operands[operand]);
    uint32_t parts = r->kind == DS_REC_COMPUTE ? 0 : UINT32_MAX;
    for (uint32_t v = 0; v < r->n_variants && parts != UINT32_MAX; v++)
        parts |= r->variants[v].parts;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (i != operand && ds_plan__instance(b, operands[i]) == taken &&
            (parts == UINT32_MAX || (i < 32 && parts >> i & 1)))
            return true;
    return false;
}

/* Whose buffer a result takes. With a range among the operands nothing is reused. */
static void set_alias(const ds_builder *b, const ds_op *op, const ds_record *r, uint32_t result,
                      const uint32_t *operands, ds_vinst *v) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    uint32_t operand = ds_op_inplace(desc, result);
    if (operand < op->n_in) {
        v->is_state = (desc->flags & DS_OPF_OPTIMIZER) != 0;
        if (v->is_state || !reads_twice(b, op, r, operand, operands))
            v->alias = ds_plan__instance(b, operands[operand]);
    } else if ((op->code == DS_OP_ALL_GATHER || op->code == DS_OP_OFFLOAD) &&
               r->kind == DS_REC_COMM && result < op->n_in) {
        v->alias = home_of(b, op, r, result, ds_plan__instance(b, operands[result]));
        v->is_state = v->alias != DS_NONE;
    }
}

/* What is moved stays what it is, unless the op says otherwise; but a gathered weight is a buffer,
 * since it is held for as long as it is read. */
static void set_category(const ds_builder *b, const ds_op *op, const ds_record *r, uint32_t result,
                         const uint32_t *operands, ds_vinst *v) {
    if (r->kind != DS_REC_COMM || result >= op->n_in) return;
    if (ds_attr_find(op->attrs, op->n_attrs, "role")) return;
    v->category = b->plan->values.at[ds_plan__instance(b, operands[result])].category;
    if (v->category == DS_CAT_WEIGHT && !v->is_state) v->category = DS_CAT_BUFFER;
}

bool ds_plan__inherits(const ds_op *op, const ds_record *r) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    return r->kind == DS_REC_COMM || (desc && desc->inplace);
}

void ds_plan__inherit(const ds_builder *b, const ds_op *op, const ds_record *r, uint32_t result,
                      const uint32_t *operands, ds_vinst *v) {
    set_alias(b, op, r, result, operands, v);
    set_category(b, op, r, result, operands, v);
}

static ds_status add_results(ds_builder *b, frame *f, const ds_op *op, uint32_t record, bool ranges,
                             ds_error *err) {
    const ds_record *r = b->plan->records.at[record];
    if (b->plan->insts.n >= ds_plan__limit(b)) return ds_plan__too_large(b, op->loc, err);
    uint32_t inst = add_inst(b, record, f->scope, op->n_out);
    uint32_t first = b->plan->insts.at[inst].first_value;
    b->plan->insts.at[inst].n_reads = b->reads.n;
    ds_plan__push_operands(b, b->reads.at, b->reads.n);
    ds_plan__wait_at_host(b, op, r, first);
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_vinst *v = &b->plan->values.at[first + i];
        const ds_value_info *info = ds_value_at(f->ctx->func, op->out[i]);
        v->name = info->name;
        v->is_host = v->is_host || info->type->host;
        if (!ranges && !b->on_symbols) ds_plan__inherit(b, op, r, i, b->reads.at, v);
        f->slots[op->out[i].i] = (ds_slot){.value = first + i};
    }
    if (op->code != DS_OP_ZEROS || !ds_attr_find(op->attrs, op->n_attrs, "host")) return DS_OK;
    return ds_plan__store_at_host(b, op, first, err);
}

/* The result of an `after` with a cost is its first operand, once the task has ended. */
static void wait_for_work(ds_builder *b, ds_slot *slot) {
    const uint32_t operand_and_task[] = {b->reads.at[0], slot->value};
    slot->value = ds_plan__join(b, operand_and_task, 2);
}

static ds_status table_op(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                          ds_error *err) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    bool ranges = false;
    b->reads.n = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        ranges = ranges || ds_plan__has_range(&op->in[i]);
        DS_TRY(ds_plan__read_operand(b, f->ctx->func, f->slots, &op->in[i], indices, err));
    }
    bool view = desc && (desc->flags & DS_OPF_VIEW) && !ds_plan__at_host(b, op);
    bool given = ds_attr_find(op->attrs, op->n_attrs, "cost") != NULL;
    if (view && !given && op->code == DS_OP_AFTER && !ds_plan__has_range(&op->in[0])) {
        f->slots[op->out[0].i] = (ds_slot){.value = ds_plan__join(b, b->reads.at, b->reads.n)};
        return DS_OK;
    }
    /* A view that states a cost is a task like any other, and so is one that stacks a range. */
    if (view && !given && !ranges) {
        alias_results(f, op, b->reads.at);
        return DS_OK;
    }
    uint32_t record;
    DS_TRY(record_of(b, f, op, indices, &record, err));
    const ds_record *r = b->plan->records.at[record];
    if (r->kind != DS_REC_COMM || r->n_groups) {
        DS_TRY(ds_plan__point_at_host(b, f->ctx->func, op, indices, err));
        DS_TRY(add_results(b, f, op, record, ranges, err));
        if (ds_plan__is_work(op)) wait_for_work(b, &f->slots[op->out[0].i]);
        return DS_OK;
    }
    if (ranges)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "%s of a range that moves nothing: stack the range first, with concat",
                            ds_op_name(op->code));
    alias_results(f, op, b->reads.at);
    return DS_OK;
}

/* ---- structure ---- */

/* A value, or a whole family, to pass on: call arguments, returned and yielded values. */
static ds_status read_slot(ds_builder *b, const frame *f, const ds_use *use,
                           const ds_index *indices, ds_slot *out, ds_error *err) {
    return ds_plan__read_slot(b, f->ctx->func, f->slots, use, indices, out, err);
}

static ds_turn_mark mark(const ds_builder *b) {
    return (ds_turn_mark){b->plan->insts.n, b->plan->values.n};
}

static ds_status loop(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                      ds_error *err) {
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, op->lo, op->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, op->hi, op->loc, &hi, err));
    if (hi > lo && (uint64_t)hi - (uint64_t)lo > ds_plan__limit(b))
        return ds_plan__too_large(b, op->loc, err);
    uint32_t n_kept = op->n_out - op->n_args;
    ds_slot *carried = DS_NEW_N(&b->plan->arena, ds_slot, op->n_args + n_kept);
    ds_family **kept = DS_NEW_N(&b->plan->arena, ds_family *, n_kept);
    for (uint32_t i = 0; i < n_kept; i++) {
        DS_TRY(ds_plan__family(b, lo, hi > lo ? hi - lo : 0, op->loc, &kept[i], err));
        /* The body may read what the turns before have kept. */
        f->slots[op->out[op->n_args + i].i] = (ds_slot){.value = DS_NONE, .family = kept[i]};
    }
    for (uint32_t i = 0; i < op->n_args; i++)
        DS_TRY(read_slot(b, f, &op->in[i], indices, &carried[i], err));
    uint32_t outer = f->scope;
    bool repeats = ds_plan__may_repeat(b, f, op, hi > lo ? hi - lo : 0);
    ds_slot *before = repeats ? DS_NEW_N(&b->plan->arena, ds_slot, op->n_args) : NULL;
    ds_turn_mark first = {0}, second = {0};
    uint32_t repeat = 0;
    for (int64_t l = lo; l < hi; l++) {
        for (uint32_t i = 0; i < op->n_args; i++) f->slots[op->args[i].i] = carried[i];
        ds_index here = {op->index, l, indices};
        if (repeats && l == lo) first = mark(b);
        if (repeats && l == lo + 1) {
            second = mark(b);
            repeat = ds_plan__begin_repeat(b, outer, hi - lo - 2);
            if (op->n_args) memcpy(before, carried, op->n_args * sizeof *before);
        }
        DS_TRY(add_scope(b, outer, op, f->ctx->func, l, &f->scope, err));
        DS_TRY(ds_plan__block(b, f, op->body, &here, carried, op->n_args + n_kept, err));
        for (uint32_t i = 0; i < n_kept; i++) kept[i]->at[l - lo] = carried[op->n_args + i];
        if (!repeats || l != lo + 1) continue;
        repeats = ds_plan__leave_alike(b, first, before, second, carried, op->n_args);
        ds_plan__end_repeat(b, repeat, repeats);
        if (repeats)
            l = hi - 2; /* the last turn, as the others, has instances of its own */
        else
            ds_plan__never_repeats(b, op);
    }
    f->scope = outer;
    for (uint32_t i = 0; i < op->n_args; i++) f->slots[op->out[i].i] = carried[i];
    for (uint32_t i = 0; i < n_kept; i++)
        f->slots[op->out[op->n_args + i].i] = (ds_slot){.value = DS_NONE, .family = kept[i]};
    return DS_OK;
}

/* The region's axis_index are indices like those of loops; what depends on them is lowered for each
 * device with that device's coordinates (ds_plan__enter). */
static ds_status region(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                        ds_error *err) {
    ds_slot *results = DS_NEW_N(&b->plan->arena, ds_slot, op->n_out);
    ds_index *own = DS_NEW_N(&b->plan->arena, ds_index, op->n_over);
    ds_region here = {.own = own, .n = op->n_over, .up = f->region};
    for (uint32_t i = 0; i < op->n_over; i++) {
        own[i] = (ds_index){op->over[i], 0, indices};
        indices = &own[i];
    }
    for (uint32_t i = 0; i < op->n_args; i++)
        DS_TRY(read_slot(b, f, &op->in[i], indices, &f->slots[op->args[i].i], err));
    f->region = &here;
    ds_status status = ds_plan__block(b, f, op->body, indices, results, op->n_out, err);
    f->region = here.up;
    DS_TRY(status);
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = results[i];
    return DS_OK;
}

static const ds_context *context_of(ds_builder *b, const ds_func *func, const uint32_t *mesh_args,
                                    int64_t index, uint32_t default_place) {
    uint64_t hash = ds_hash_mix(ds_hash_mix(DS_KEY(func), default_place), (uint64_t)index);
    for (uint32_t i = 0; i < func->n_mesh_params; i++) hash = ds_hash_mix(hash, mesh_args[i]);
    const uint64_t *found = ds_map_find(&b->context_of, hash);
    const ds_context *c = found ? (const ds_context *)(uintptr_t)*found : NULL;
    for (; c; c = c->next)
        if (c->func == func && c->default_place == default_place && c->index.value == index &&
            (!func->n_mesh_params ||
             memcmp(c->mesh_args, mesh_args, func->n_mesh_params * sizeof *mesh_args) == 0))
            return c;
    ds_context *fresh = DS_NEW(&b->plan->arena, ds_context);
    *fresh = (ds_context){.func = func, .default_place = default_place, .hash = hash};
    fresh->index = (ds_index){func->index_param, index, NULL};
    fresh->mesh_args = DS_NEW_N(&b->plan->arena, uint32_t, func->n_mesh_params);
    for (uint32_t i = 0; i < func->n_mesh_params; i++) fresh->mesh_args[i] = mesh_args[i];
    fresh->next = found ? (const ds_context *)(uintptr_t)*found : NULL;
    ds_map_put(&b->context_of, hash, DS_KEY(fresh));
    return fresh;
}

/* A parameter's role is that of what is passed, where that has none of its own: the sums that one
 * microbatch hands to the next are gradients. */
static void give_role(ds_builder *b, const ds_slot *s, ds_category category) {
    for (int64_t i = 0; s->family && i < s->family->n; i++)
        give_role(b, &s->family->at[i], category);
    if (s->value == DS_NONE) return;
    ds_vinst *v = &b->plan->values.at[ds_plan__instance(b, s->value)];
    if (v->category == DS_CAT_ACTIVATION) v->category = (uint8_t)category;
}

static ds_status pass_argument(ds_builder *b, const frame *f, const ds_op *op, uint32_t i,
                               const ds_index *indices, ds_slot *slot, ds_error *err) {
    const ds_func *func = op->callee;
    const ds_value_info *arg = ds_value_at(func, func->args[i]);
    ds_category category;
    DS_TRY(read_slot(b, f, &op->in[i], indices, slot, err));
    DS_TRY(ds_plan__category(b, arg->attrs, arg->n_attrs, DS_CAT_ACTIVATION, &category, err));
    if (category != DS_CAT_ACTIVATION) give_role(b, slot, category);
    return DS_OK;
}

static ds_status call_body(ds_builder *b, frame *inner, const ds_slot *args, ds_slot *results,
                           uint32_t n_results, ds_error *err) {
    const ds_func *func = inner->ctx->func;
    inner->slots = ds_xmalloc((func->values.n + 1) * sizeof *inner->slots);
    for (uint32_t i = 0; i < func->values.n; i++) inner->slots[i] = DS_EMPTY_SLOT;
    for (uint32_t i = 0; i < func->n_args; i++) inner->slots[func->args[i].i] = args[i];
    ds_status status = ds_plan__block(b, inner, &func->body, ds_plan__indices(inner->ctx), results,
                                      n_results, err);
    free(inner->slots);
    return status;
}

static ds_status call(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                      ds_error *err) {
    /* A call that states its cost is one opaque task: lessons and puzzles need it. */
    if (ds_attr_find(op->attrs, op->n_attrs, "cost")) return table_op(b, f, op, indices, err);
    const ds_func *func = op->callee;
    if (f->depth == MAX_CALL_DEPTH)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "calls nest deeper than %d",
                            MAX_CALL_DEPTH);
    uint32_t mesh_args[16], default_place = f->ctx->default_place;
    int64_t index = 0;
    ds_env env = ds_binding_env(b->binding, indices);
    if (op->n_mesh_args > 16)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "a function takes at most 16 meshes");
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        DS_TRY(ds_plan__place(b, f->ctx, &op->mesh_args[i], indices, &mesh_args[i], err));
    if (op->n_mesh_args) default_place = mesh_args[0];
    if (func->index_param) DS_TRY(ds_expr_eval_int(&env, op->index_arg, op->loc, &index, err));
    frame inner = {.ctx = context_of(b, func, mesh_args, index, default_place),
                   .rank_device = f->rank_device,
                   .depth = f->depth + 1};
    DS_TRY(add_scope(b, f->scope, op, f->ctx->func, 0, &inner.scope, err));
    ds_slot *args = ds_xcalloc(op->n_in + op->n_out, sizeof *args), *results = args + op->n_in;
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++)
        status = pass_argument(b, f, op, i, indices, &args[i], err);
    bool stamps = f->rank_device == DS_NONE && op->n_in == func->n_args &&
                  op->n_out == func->n_results && status == DS_OK;
    if (!stamps || !ds_plan__stamp(b, inner.ctx, args, inner.scope, results))
        if (status == DS_OK) status = call_body(b, &inner, args, results, op->n_out, err);
    for (uint32_t i = 0; i < op->n_out && status == DS_OK; i++) f->slots[op->out[i].i] = results[i];
    free(args);
    return status;
}

ds_status ds_plan__block(ds_builder *b, frame *f, const ds_block *body, const ds_index *indices,
                         ds_slot *out, uint32_t n_out, ds_error *err) {
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        DS_TRY(ds_stop_check_often(b->unit->stop, &b->polls, err));
        switch (op->code) {
        case DS_OP_FOR:
            DS_TRY(loop(b, f, op, indices, err));
            break;
        case DS_OP_CALL:
            DS_TRY(call(b, f, op, indices, err));
            break;
        case DS_OP_LOCAL:
            DS_TRY(region(b, f, op, indices, err));
            break;
        case DS_OP_YIELD:
        case DS_OP_RETURN:
            for (uint32_t k = 0; k < op->n_in && k < n_out; k++)
                DS_TRY(read_slot(b, f, &op->in[k], indices, &out[k], err));
            break;
        default:
            DS_TRY(table_op(b, f, op, indices, err));
            break;
        }
    }
    return DS_OK;
}

/* ---- the entry ---- */

static void mark_output(ds_builder *b, const ds_slot *s) {
    for (int64_t i = 0; s->family && i < s->family->n; i++) mark_output(b, &s->family->at[i]);
    if (s->value != DS_NONE) b->plan->values.at[ds_plan__instance(b, s->value)].is_output = true;
}

/* The elements of an input family whose first `level` binders have the values `indices`. */
typedef struct element {
    uint32_t level;
    const ds_index *indices;
    /* "w", then "w{3" or "w{3,1": what the element is called in reports, without the closing brace;
     * NULL: there are no reports (schematic plans). */
    const char *name;
} element;

static ds_status input_family(ds_builder *b, frame *f, const ds_value_info *v, element at,
                              ds_slot *out, ds_error *err) {
    if (at.level == v->n_binders) {
        *out = DS_EMPTY_SLOT;
        if (b->plan->insts.n >= ds_plan__limit(b)) return ds_plan__too_large(b, v->loc, err);
        DS_TRY(add_input(b, f, v, at.indices, DS_CAT_INPUT, &out->value, err));
        if (at.name)
            b->plan->values.at[out->value].name = ds_arena_printf(&b->plan->arena, "%s}", at.name);
        return DS_OK;
    }
    const ds_binder *binder = &v->binders[at.level];
    ds_env env = ds_binding_env(b->binding, at.indices);
    ds_family *family;
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, binder->lo, binder->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, binder->hi, binder->loc, &hi, err));
    if (hi > lo && (uint64_t)hi - (uint64_t)lo > ds_plan__limit(b))
        return ds_plan__too_large(b, binder->loc, err);
    DS_TRY(ds_plan__family(b, lo, hi > lo ? hi - lo : 0, binder->loc, &family, err));
    for (int64_t i = 0; i < family->n; i++) {
        ds_index here = {binder->name, lo + i, at.indices};
        element next = {at.level + 1, &here, NULL};
        if (at.name)
            next.name = ds_arena_printf(&b->plan->arena, "%s%c%lld", at.name, at.level ? ',' : '{',
                                        (long long)(lo + i));
        DS_TRY(input_family(b, f, v, next, &family->at[i], err));
    }
    *out = (ds_slot){.value = DS_NONE, .family = family};
    return DS_OK;
}

/* ---- several steps ---- */

/* The input whose buffer a value takes, or itself. */
static uint32_t home_of_state(const ds_builder *b, uint32_t value) {
    uint32_t home = ds_plan__instance(b, value);
    while (b->plan->values.at[home].is_state) home = b->plan->values.at[home].alias;
    return home;
}

/* What optimizers made of inputs, by input. */
static void find_updates(const ds_builder *b, const ds_slot *s, ds_map *updates) {
    for (int64_t i = 0; s->family && i < s->family->n; i++)
        find_updates(b, &s->family->at[i], updates);
    if (s->value == DS_NONE || !b->plan->values.at[ds_plan__instance(b, s->value)].is_state) return;
    ds_map_put(updates, home_of_state(b, s->value), s->value);
}

/* The argument of the next step. */
static void update(const ds_builder *b, const ds_map *updates, ds_slot *s) {
    for (int64_t i = 0; s->family && i < s->family->n; i++) update(b, updates, &s->family->at[i]);
    if (s->value == DS_NONE) return;
    const uint64_t *value = ds_map_find(updates, home_of_state(b, s->value));
    if (value) s->value = (uint32_t)*value;
}

static void carry(const ds_builder *b, const ds_func *func, const ds_slot *results, ds_slot *args) {
    ds_map updates;
    ds_map_init(&updates);
    for (uint32_t i = 0; i < func->n_results; i++) find_updates(b, &results[i], &updates);
    for (uint32_t i = 0; i < func->n_args; i++) update(b, &updates, &args[i]);
    ds_map_deinit(&updates);
}

static ds_status make_inputs(ds_builder *b, frame *f, ds_slot *args, ds_error *err) {
    const ds_func *func = f->ctx->func;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *v = ds_value_at(func, func->args[i]);
        const char *name = b->options->schematic ? NULL : v->name;
        args[i] = DS_EMPTY_SLOT;
        DS_TRY(v->n_binders ? input_family(b, f, v, (element){.name = name}, &args[i], err)
                            : add_input(b, f, v, NULL, DS_CAT_INPUT, &args[i].value, err));
    }
    return DS_OK;
}

static ds_status run_body(ds_builder *b, const ds_func *func, uint32_t place, uint32_t rank_device,
                          int64_t steps, ds_error *err) {
    frame f = {.ctx = context_of(b, func, NULL, 0, place), .rank_device = rank_device};
    DS_TRY(add_scope(b, DS_NONE, NULL, func, 0, &f.scope, err));
    ds_slot *args = ds_xcalloc(func->n_args, sizeof *args);
    ds_slot *results = ds_xcalloc(func->n_results, sizeof *results);
    ds_status status = make_inputs(b, &f, args, err);
    for (int64_t step = 0; step < steps && status == DS_OK; step++) {
        if (step) carry(b, func, results, args);
        if (step) status = add_scope(b, DS_NONE, NULL, func, step, &f.scope, err);
        for (uint32_t i = 0; i < func->n_results; i++) results[i] = DS_EMPTY_SLOT;
        if (status == DS_OK) status = call_body(b, &f, args, results, func->n_results, err);
    }
    for (uint32_t i = 0; i < func->n_results && status == DS_OK; i++) mark_output(b, &results[i]);
    free(results);
    free(args);
    return status;
}

ds_status ds_plan__walk(ds_builder *b, int64_t steps, ds_error *err) {
    if (!b->program) return run_body(b, b->entry, b->default_place, DS_NONE, steps, err);
    b->plan->per_rank = true;
    for (uint32_t i = 0; i < b->program->n_ranks; i++) {
        const ds_func *func = b->program->ranks[i];
        if (func->rank < 0 || func->rank >= b->n_rank_devices)
            return ds_error_set(err, DS_ERR_VALUE, func->loc,
                                "rank %lld: the cluster has ranks 0 to %u", (long long)func->rank,
                                b->n_rank_devices - 1);
        uint32_t device = b->rank_devices[func->rank];
        DS_TRY(run_body(b, func, ds_plan__single(b, device), device, steps, err));
    }
    return DS_OK;
}
