/* Follows the program once in issue order and writes down its instances.
 *
 * A frame is one function activation: a slot per SSA value, holding the value instance it has now
 * (a loop body overwrites its slots each iteration), or a family of them. Views and collectives
 * over one device leave no instance: their results are their operands. `after` is a view that is
 * there only once others are: whatever reads it depends on the others too, without reading them. */
#include "sim/plan/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct family {
    uint32_t *at; /* value instances, row-major over the binders */
    int64_t lo[4], n[4];
    uint32_t n_dims;
} family;

typedef struct slot {
    uint32_t value; /* DS_NONE: not set, or a family */
    const family *fam;
} slot;

typedef struct frame {
    const ds_context *ctx;
    slot *slots;
    uint32_t scope;
    uint32_t rank_device;
    uint32_t depth;
} frame;

#define MAX_CALL_DEPTH 64

static ds_status block(ds_builder *b, frame *f, const ds_block *body, const ds_index *indices,
                       slot *out, uint32_t n_out, ds_error *err);

/* ---- instances ---- */

static uint32_t limit(const ds_builder *b) {
    return b->options->max_instances ? b->options->max_instances : DS_PLAN_MAX_INSTANCES;
}

static ds_status too_large(const ds_builder *b, ds_loc loc, ds_error *err) {
    return ds_error_set(err, DS_ERR_LIMIT, loc,
                        "the unrolled program has more than %u op instances, inputs or loop turns; "
                        "--max-instances sets another limit",
                        limit(b));
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
        ds_vinst v = {.inst = id, .result = (uint16_t)i, .alias = DS_NONE};
        DS_HPUSH(&plan->values, v);
    }
    return id;
}

static ds_status add_scope(ds_builder *b, uint32_t up, const ds_op *op, const ds_func *func,
                           int64_t index, uint32_t *out, ds_error *err) {
    *out = b->plan->scopes.n;
    if (*out >= limit(b)) return too_large(b, op ? op->loc : func->loc, err);
    DS_HPUSH(&b->plan->scopes, ((ds_scope){up, op, func, index}));
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
    return DS_OK;
}

/* ---- views that wait ---- */

/* In a slot or family, this bit says that the number is not a value instance but what `after` gave:
 * one of b->joins. */
#define JOIN 0x80000000u

static const ds_join *join_of(const ds_builder *b, uint32_t value) {
    return value != DS_NONE && (value & JOIN) ? &b->joins.at[value & ~JOIN] : NULL;
}

static uint32_t instance_of(const ds_builder *b, uint32_t value) {
    const ds_join *join = join_of(b, value);
    return join ? join->value : value;
}

static uint32_t n_waits_of(const ds_builder *b, const uint32_t *operands, uint32_t n) {
    uint32_t waits = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ds_join *join = join_of(b, operands[i]);
        if (join) waits += join->n_waits;
    }
    return waits;
}

/* operands[0] once the others are there, and what any of them waits for. */
static uint32_t add_join(ds_builder *b, const uint32_t *operands, uint32_t n) {
    ds_join fresh = {.value = instance_of(b, operands[0])};
    fresh.waits = DS_NEW_N(&b->plan->arena, uint32_t, n_waits_of(b, operands, n) + n);
    for (uint32_t i = 0; i < n; i++) {
        const ds_join *join = join_of(b, operands[i]);
        for (uint32_t k = 0; join && k < join->n_waits; k++)
            fresh.waits[fresh.n_waits++] = join->waits[k];
        if (i) fresh.waits[fresh.n_waits++] = instance_of(b, operands[i]);
    }
    DS_PUSH(&b->plan->arena, &b->joins, fresh);
    return (b->joins.n - 1) | JOIN;
}

/* An instance's operands, then what they wait for. */
static void push_operands(ds_builder *b, const uint32_t *operands, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) DS_HPUSH(&b->plan->operands, instance_of(b, operands[i]));
    for (uint32_t i = 0; i < n; i++) {
        const ds_join *join = join_of(b, operands[i]);
        for (uint32_t k = 0; join && k < join->n_waits; k++)
            DS_HPUSH(&b->plan->operands, join->waits[k]);
    }
}

/* ---- families ---- */

static ds_status new_family(ds_builder *b, const ds_binder *binders, uint32_t n,
                            const ds_index *indices, family **out, ds_error *err) {
    family *fam = DS_NEW(&b->plan->arena, family);
    if (n > 4)
        return ds_error_set(err, DS_ERR_LIMIT, binders[0].loc, "a family has at most 4 indices");
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t total = 1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t hi;
        DS_TRY(ds_expr_eval_int(&env, binders[i].lo, binders[i].loc, &fam->lo[i], err));
        DS_TRY(ds_expr_eval_int(&env, binders[i].hi, binders[i].loc, &hi, err));
        fam->n[i] = hi > fam->lo[i] ? hi - fam->lo[i] : 0;
        if (fam->n[i] && total > limit(b) / fam->n[i]) return too_large(b, binders[i].loc, err);
        total *= fam->n[i];
    }
    fam->n_dims = n;
    fam->at = DS_NEW_N(&b->plan->arena, uint32_t, total);
    for (int64_t i = 0; i < total; i++) fam->at[i] = DS_NONE;
    *out = fam;
    return DS_OK;
}

static int64_t family_size(const family *fam) {
    int64_t total = 1;
    for (uint32_t i = 0; i < fam->n_dims; i++) total *= fam->n[i];
    return total;
}

static ds_status family_at(ds_builder *b, const frame *f, const ds_use *use, const ds_value_info *v,
                           const ds_index *indices, int64_t *index, uint32_t *out, ds_error *err) {
    const family *fam = f->slots[use->value.i].fam;
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t at = 0;
    for (uint32_t i = 0; i < use->n_index; i++) {
        if (use->index_hi && DS_HAS_EXPR(use->index_hi[i]))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                                "range reads like %%%s{a:b} are not simulated in this version",
                                v->name);
        DS_TRY(ds_expr_eval_int(&env, use->index[i], use->loc, &index[i], err));
        if (index[i] < fam->lo[i] || index[i] >= fam->lo[i] + fam->n[i])
            return ds_error_set(err, DS_ERR_VALUE, use->loc,
                                "%%%s{%lld} is outside the family's range %lld..%lld", v->name,
                                (long long)index[i], (long long)fam->lo[i],
                                (long long)(fam->lo[i] + fam->n[i]));
        at = at * fam->n[i] + (index[i] - fam->lo[i]);
    }
    *out = fam->at[at];
    return DS_OK;
}

/* ---- reading operands ---- */

static ds_status read_value(ds_builder *b, const frame *f, const ds_use *use,
                            const ds_index *indices, uint32_t *out, ds_error *err) {
    const ds_value_info *v = ds_value_at(f->ctx->func, use->value);
    const slot *s = &f->slots[use->value.i];
    if (s->fam) {
        int64_t index[4];
        if (!use->n_index)
            return ds_error_set(err, DS_ERR_TYPE, use->loc, "%%%s is a family: say which element",
                                v->name);
        DS_TRY(family_at(b, f, use, v, indices, index, out, err));
    } else {
        *out = s->value;
    }
    if (*out == DS_NONE)
        return ds_error_set(err, DS_ERR_NAME, use->loc, "%%%s is read before it is set", v->name);
    return DS_OK;
}

/* The operand's type with its family indices in scope. `frames` has room for them. */
static ds_status typed_operand(ds_builder *b, const frame *f, const ds_use *use,
                               const ds_index *indices, ds_index *frames, ds_typed *out,
                               ds_error *err) {
    const ds_value_info *v = ds_value_at(f->ctx->func, use->value);
    out->type = v->type;
    out->indices = indices;
    if (!f->slots[use->value.i].fam || !use->n_index) return DS_OK;
    int64_t index[4];
    uint32_t ignored;
    DS_TRY(family_at(b, f, use, v, indices, index, &ignored, err));
    for (uint32_t i = 0; i < use->n_index; i++) {
        frames[i] = (ds_index){v->binders[i].name, index[i], out->indices};
        out->indices = &frames[i];
    }
    return DS_OK;
}

static ds_status record_of(ds_builder *b, const frame *f, const ds_op *op, const ds_index *indices,
                           uint32_t *record, ds_error *err) {
    if (ds_plan__cached(b, f->ctx, op, record)) return DS_OK;
    ds_typed *types = ds_xcalloc(op->n_in + op->n_out, sizeof *types);
    ds_index *frames = ds_xcalloc(op->n_in * 4 + 1, sizeof *frames);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++)
        status = typed_operand(b, f, &op->in[i], indices, &frames[4 * i], &types[i], err);
    for (uint32_t i = 0; i < op->n_out; i++)
        types[op->n_in + i] = (ds_typed){ds_value_at(f->ctx->func, op->out[i])->type, indices};
    ds_site site = {.ctx = f->ctx,
                    .op = op,
                    .indices = indices,
                    .in = types,
                    .out = types + op->n_in,
                    .rank_device = f->rank_device};
    if (status == DS_OK) status = ds_plan__record(b, &site, record, err);
    free(types);
    free(frames);
    return status;
}

static void alias_results(const frame *f, const ds_op *op, const uint32_t *operands) {
    for (uint32_t i = 0; i < op->n_out; i++)
        f->slots[op->out[i].i] = (slot){.value = operands[i < op->n_in ? i : 0]};
}

static ds_status table_op(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                          ds_error *err) {
    uint32_t few[8], *operands = op->n_in <= 8 ? few : ds_xcalloc(op->n_in, sizeof *operands);
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++)
        status = read_value(b, f, &op->in[i], indices, &operands[i], err);
    uint32_t record = 0;
    /* A view that states a cost is a task like any other. */
    bool view =
        desc && (desc->flags & DS_OPF_VIEW) && !ds_attr_find(op->attrs, op->n_attrs, "cost");
    if (status == DS_OK && !view) status = record_of(b, f, op, indices, &record, err);
    if (status == DS_OK && b->plan->insts.n >= limit(b)) status = too_large(b, op->loc, err);
    if (status == DS_OK) {
        const ds_record *r = view ? NULL : b->plan->records.at[record];
        if (view && op->code == DS_OP_AFTER) {
            f->slots[op->out[0].i] = (slot){.value = add_join(b, operands, op->n_in)};
        } else if (view || (r->kind == DS_REC_COMM && !r->n_groups)) {
            alias_results(f, op, operands);
        } else {
            uint32_t inst = add_inst(b, record, f->scope, op->n_out);
            uint32_t first = b->plan->insts.at[inst].first_value;
            push_operands(b, operands, op->n_in);
            for (uint32_t i = 0; i < op->n_out; i++) {
                ds_vinst *v = &b->plan->values.at[first + i];
                v->name = ds_value_at(f->ctx->func, op->out[i])->name;
                if (desc && (desc->flags & DS_OPF_OPTIMIZER)) {
                    v->is_state = true;
                    v->alias = instance_of(b, operands[ds_op_state_operand(op, i)]);
                } else if (r->inplace && i < op->n_in) {
                    v->alias = instance_of(b, operands[i]);
                }
                f->slots[op->out[i].i] = (slot){.value = first + i};
            }
        }
    }
    if (operands != few) free(operands);
    return status;
}

/* ---- structure ---- */

/* A value, or a whole family, to pass on: call arguments, returned and yielded values. */
static ds_status read_slot(ds_builder *b, const frame *f, const ds_use *use,
                           const ds_index *indices, slot *out, ds_error *err) {
    const slot *s = &f->slots[use->value.i];
    if (s->fam && !use->n_index) {
        *out = *s;
        return DS_OK;
    }
    *out = (slot){0};
    return read_value(b, f, use, indices, &out->value, err);
}

static ds_status loop(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                      ds_error *err) {
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, op->lo, op->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, op->hi, op->loc, &hi, err));
    if (hi > lo && (uint64_t)hi - (uint64_t)lo > limit(b)) return too_large(b, op->loc, err);
    uint32_t n_kept = op->n_out - op->n_args;
    slot *carried = DS_NEW_N(&b->plan->arena, slot, op->n_args + n_kept);
    family **kept = DS_NEW_N(&b->plan->arena, family *, n_kept);
    ds_binder range = {op->index, op->lo, op->hi, op->loc};
    for (uint32_t i = 0; i < n_kept; i++) DS_TRY(new_family(b, &range, 1, indices, &kept[i], err));
    for (uint32_t i = 0; i < op->n_args; i++)
        DS_TRY(read_slot(b, f, &op->in[i], indices, &carried[i], err));
    uint32_t outer = f->scope;
    for (int64_t l = lo; l < hi; l++) {
        for (uint32_t i = 0; i < op->n_args; i++) f->slots[op->args[i].i] = carried[i];
        ds_index here = {op->index, l, indices};
        DS_TRY(add_scope(b, outer, op, f->ctx->func, l, &f->scope, err));
        DS_TRY(block(b, f, op->body, &here, carried, op->n_args + n_kept, err));
        for (uint32_t i = 0; i < n_kept; i++) {
            if (carried[op->n_args + i].fam)
                return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                    "keeping a whole family is not simulated in this version");
            kept[i]->at[l - lo] = carried[op->n_args + i].value;
        }
    }
    f->scope = outer;
    for (uint32_t i = 0; i < op->n_args; i++) f->slots[op->out[i].i] = carried[i];
    for (uint32_t i = 0; i < n_kept; i++)
        f->slots[op->out[op->n_args + i].i] = (slot){.value = DS_NONE, .fam = kept[i]};
    return DS_OK;
}

static ds_status region(ds_builder *b, frame *f, const ds_op *op, const ds_index *indices,
                        ds_error *err) {
    slot *results = DS_NEW_N(&b->plan->arena, slot, op->n_out);
    for (uint32_t i = 0; i < op->n_args; i++)
        DS_TRY(read_slot(b, f, &op->in[i], indices, &f->slots[op->args[i].i], err));
    DS_TRY(block(b, f, op->body, indices, results, op->n_out, err));
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = results[i];
    return DS_OK;
}

static const ds_context *context_of(ds_builder *b, const ds_func *func, const uint32_t *mesh_args,
                                    uint32_t default_place) {
    uint64_t hash = ds_hash_mix(DS_KEY(func), default_place);
    for (uint32_t i = 0; i < func->n_mesh_params; i++) hash = ds_hash_mix(hash, mesh_args[i]);
    for (uint32_t i = 0; i < b->contexts.n; i++) {
        const ds_context *c = b->contexts.at[i];
        if (c->hash == hash && c->func == func && c->default_place == default_place &&
            (!func->n_mesh_params ||
             memcmp(c->mesh_args, mesh_args, func->n_mesh_params * sizeof *mesh_args) == 0))
            return c;
    }
    ds_context *fresh = DS_NEW(&b->plan->arena, ds_context);
    *fresh = (ds_context){.func = func, .default_place = default_place, .hash = hash};
    fresh->mesh_args = DS_NEW_N(&b->plan->arena, uint32_t, func->n_mesh_params);
    for (uint32_t i = 0; i < func->n_mesh_params; i++) fresh->mesh_args[i] = mesh_args[i];
    DS_PUSH(&b->plan->arena, &b->contexts, fresh);
    return fresh;
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
    if (op->n_mesh_args > 16)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "a function takes at most 16 meshes");
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        DS_TRY(ds_plan__place(b, f->ctx, &op->mesh_args[i], indices, &mesh_args[i], err));
    if (op->n_mesh_args) default_place = mesh_args[0];
    frame inner = {.ctx = context_of(b, func, mesh_args, default_place),
                   .rank_device = f->rank_device,
                   .depth = f->depth + 1};
    DS_TRY(add_scope(b, f->scope, op, f->ctx->func, 0, &inner.scope, err));
    inner.slots = ds_xcalloc(func->values.n, sizeof *inner.slots);
    for (uint32_t i = 0; i < func->values.n; i++) inner.slots[i].value = DS_NONE;
    slot *results = ds_xcalloc(op->n_out, sizeof *results);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++)
        status = read_slot(b, f, &op->in[i], indices, &inner.slots[func->args[i].i], err);
    if (status == DS_OK) status = block(b, &inner, &func->body, NULL, results, op->n_out, err);
    for (uint32_t i = 0; i < op->n_out && status == DS_OK; i++) f->slots[op->out[i].i] = results[i];
    free(results);
    free(inner.slots);
    return status;
}

static ds_status block(ds_builder *b, frame *f, const ds_block *body, const ds_index *indices,
                       slot *out, uint32_t n_out, ds_error *err) {
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
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
        case DS_OP_WEIGHT: {
            uint32_t value;
            DS_TRY(add_input(b, f, ds_value_at(f->ctx->func, op->out[0]), indices, DS_CAT_WEIGHT,
                             &value, err));
            f->slots[op->out[0].i] = (slot){.value = value};
            break;
        }
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

static void mark_value(ds_builder *b, uint32_t value) {
    if (value != DS_NONE) b->plan->values.at[instance_of(b, value)].is_output = true;
}

static void mark_output(ds_builder *b, const slot *s) {
    if (!s->fam) mark_value(b, s->value);
    for (int64_t i = 0; s->fam && i < family_size(s->fam); i++) mark_value(b, s->fam->at[i]);
}

/* "w{3}": which element of an input family, for reports. */
static const char *element_name(ds_builder *b, const ds_value_info *v, const ds_index *at) {
    const char *name = v->name;
    for (uint32_t d = 0; d < v->n_binders; d++)
        name = ds_arena_printf(&b->plan->arena, "%s%c%lld", name, d ? ',' : '{',
                               (long long)at[d].value);
    return ds_arena_printf(&b->plan->arena, "%s}", name);
}

static ds_status input_family(ds_builder *b, frame *f, const ds_value_info *v, slot *out,
                              ds_error *err) {
    family *fam;
    DS_TRY(new_family(b, v->binders, v->n_binders, NULL, &fam, err));
    for (int64_t i = 0; i < family_size(fam); i++) {
        ds_index at[4];
        int64_t rest = i;
        for (uint32_t d = fam->n_dims; d-- > 0;) {
            at[d] = (ds_index){v->binders[d].name, fam->lo[d] + rest % fam->n[d], NULL};
            rest /= fam->n[d];
        }
        for (uint32_t d = 0; d + 1 < fam->n_dims; d++) at[d + 1].up = &at[d];
        DS_TRY(add_input(b, f, v, &at[fam->n_dims - 1], DS_CAT_INPUT, &fam->at[i], err));
        b->plan->values.at[fam->at[i]].name = element_name(b, v, at);
    }
    *out = (slot){.value = DS_NONE, .fam = fam};
    return DS_OK;
}

static ds_status run_body(ds_builder *b, const ds_func *func, uint32_t place, uint32_t rank_device,
                          ds_error *err) {
    frame f = {.ctx = context_of(b, func, NULL, place), .rank_device = rank_device};
    DS_TRY(add_scope(b, DS_NONE, NULL, func, 0, &f.scope, err));
    f.slots = ds_xcalloc(func->values.n, sizeof *f.slots);
    slot *results = ds_xcalloc(func->n_results, sizeof *results);
    for (uint32_t i = 0; i < func->values.n; i++) f.slots[i].value = DS_NONE;
    for (uint32_t i = 0; i < func->n_results; i++) results[i].value = DS_NONE;
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < func->n_args && status == DS_OK; i++) {
        const ds_value_info *v = ds_value_at(func, func->args[i]);
        slot *s = &f.slots[func->args[i].i];
        status = v->n_binders ? input_family(b, &f, v, s, err)
                              : add_input(b, &f, v, NULL, DS_CAT_INPUT, &s->value, err);
    }
    if (status == DS_OK) status = block(b, &f, &func->body, NULL, results, func->n_results, err);
    for (uint32_t i = 0; i < func->n_results && status == DS_OK; i++) mark_output(b, &results[i]);
    free(results);
    free(f.slots);
    return status;
}

ds_status ds_plan__walk(ds_builder *b, ds_error *err) {
    if (!b->program) return run_body(b, b->entry, b->default_place, DS_NONE, err);
    b->plan->per_rank = true;
    for (uint32_t i = 0; i < b->program->n_ranks; i++) {
        const ds_func *func = b->program->ranks[i];
        if (func->rank < 0 || func->rank >= b->n_rank_devices)
            return ds_error_set(err, DS_ERR_VALUE, func->loc,
                                "rank %lld: the cluster has ranks 0 to %u", (long long)func->rank,
                                b->n_rank_devices - 1);
        uint32_t device = b->rank_devices[func->rank];
        DS_TRY(run_body(b, func, ds_plan__single(b, device), device, err));
    }
    return DS_OK;
}
