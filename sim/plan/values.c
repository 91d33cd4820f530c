/* Slots: values, families, and values that wait for others (`after`).
 *
 * A family is a tree with a level an index, so that what a loop keeps may be a family itself, and a
 * level's range may depend on the indices above it. */
#include "sim/plan/values.h"

#include <stdlib.h>
#include <string.h>

/* ---- views that wait ---- */

static const ds_join *join_of(const ds_builder *b, uint32_t value) {
    return value != DS_NONE && (value & DS_JOIN) ? &b->joins.at[value & ~DS_JOIN] : NULL;
}

uint32_t ds_plan__instance(const ds_builder *b, uint32_t value) {
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

uint32_t ds_plan__join(ds_builder *b, const uint32_t *operands, uint32_t n) {
    ds_join fresh = {.value = ds_plan__instance(b, operands[0])};
    fresh.waits = DS_NEW_N(&b->plan->arena, uint32_t, n_waits_of(b, operands, n) + n);
    for (uint32_t i = 0; i < n; i++) {
        const ds_join *join = join_of(b, operands[i]);
        for (uint32_t k = 0; join && k < join->n_waits; k++)
            fresh.waits[fresh.n_waits++] = join->waits[k];
        if (i) fresh.waits[fresh.n_waits++] = ds_plan__instance(b, operands[i]);
    }
    DS_PUSH(&b->plan->arena, &b->joins, fresh);
    return (b->joins.n - 1) | DS_JOIN;
}

void ds_plan__push_operands(ds_builder *b, const uint32_t *operands, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        DS_HPUSH(&b->plan->operands, ds_plan__instance(b, operands[i]));
    for (uint32_t i = 0; i < n; i++) {
        const ds_join *join = join_of(b, operands[i]);
        for (uint32_t k = 0; join && k < join->n_waits; k++)
            DS_HPUSH(&b->plan->operands, join->waits[k]);
    }
}

/* ---- families ---- */

ds_status ds_plan__family(ds_builder *b, int64_t lo, int64_t n, ds_loc loc, ds_family **out,
                          ds_error *err) {
    if (n < 0) n = 0;
    if (n > ds_plan__limit(b)) return ds_plan__too_large(b, loc, err);
    ds_family *family = DS_NEW(&b->plan->arena, ds_family);
    *family = (ds_family){.lo = lo, .n = n, .at = DS_NEW_N(&b->plan->arena, ds_slot, n)};
    for (int64_t i = 0; i < n; i++) family->at[i] = DS_EMPTY_SLOT;
    *out = family;
    return DS_OK;
}

static ds_status unset(const ds_value_info *v, const ds_use *use, ds_error *err) {
    return ds_error_set(err, DS_ERR_NAME, use->loc, "%%%s is read before it is set", v->name);
}

typedef struct range {
    int64_t lo, hi;
} range;

/* The range of a use's index at one level, inside the family. */
static ds_status level_range(const ds_env *env, const ds_use *use, const ds_value_info *v,
                             const ds_family *family, uint32_t level, range *at, ds_error *err) {
    DS_TRY(ds_expr_eval_int(env, use->index[level], use->loc, &at->lo, err));
    if (at->lo == INT64_MAX)
        return ds_error_set(err, DS_ERR_VALUE, use->loc, "%%%s: an index beyond 2^63", v->name);
    at->hi = at->lo + 1;
    if (ds_use_is_range(use, level))
        DS_TRY(ds_expr_eval_int(env, use->index_hi[level], use->loc, &at->hi, err));
    if (at->lo >= family->lo && at->hi <= family->lo + family->n && at->lo <= at->hi) return DS_OK;
    ds_buf text = {0};
    ds_buf_printf(&text, "%lld", (long long)at->lo);
    if (ds_use_is_range(use, level)) ds_buf_printf(&text, ":%lld", (long long)at->hi);
    ds_status status = ds_error_set(
        err, DS_ERR_VALUE, use->loc, "%%%s{%s} is outside the family's range %lld..%lld", v->name,
        text.text, (long long)family->lo, (long long)(family->lo + family->n));
    ds_buf_deinit(&text);
    return status;
}

static ds_status collect_elements(ds_builder *b, const ds_env *env, const ds_use *use,
                                  const ds_value_info *v, ds_slot from, uint32_t level,
                                  ds_error *err) {
    if (level == use->n_index) {
        if (from.value == DS_NONE) return unset(v, use, err);
        DS_HPUSH(&b->reads, from.value);
        return DS_OK;
    }
    if (!from.family) return unset(v, use, err);
    range at;
    DS_TRY(level_range(env, use, v, from.family, level, &at, err));
    for (int64_t i = at.lo; i < at.hi; i++)
        DS_TRY(
            collect_elements(b, env, use, v, from.family->at[i - from.family->lo], level + 1, err));
    return DS_OK;
}

/* ---- reading ---- */

ds_status ds_plan__read_operand(ds_builder *b, const ds_func *func, const ds_slot *slots,
                                const ds_use *use, const ds_index *indices, ds_error *err) {
    const ds_value_info *v = ds_value_at(func, use->value);
    ds_slot slot = slots[use->value.i];
    if (slot.family && !use->n_index)
        return ds_error_set(err, DS_ERR_TYPE, use->loc, "%%%s is a family: say which element",
                            v->name);
    ds_env env = ds_binding_env(b->binding, indices);
    return collect_elements(b, &env, use, v, slot, 0, err);
}

ds_status ds_plan__read_slot(ds_builder *b, const ds_func *func, const ds_slot *slots,
                             const ds_use *use, const ds_index *indices, ds_slot *out,
                             ds_error *err) {
    const ds_value_info *v = ds_value_at(func, use->value);
    ds_env env = ds_binding_env(b->binding, indices);
    *out = slots[use->value.i];
    if (ds_plan__has_range(use))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                            "the range of %%%s can be read by an op, but not passed on as a value: "
                            "stack it first, with concat",
                            v->name);
    for (uint32_t i = 0; i < use->n_index; i++) {
        range at;
        if (!out->family) return unset(v, use, err);
        DS_TRY(level_range(&env, use, v, out->family, i, &at, err));
        *out = out->family->at[at.lo - out->family->lo];
    }
    return out->value == DS_NONE && !out->family ? unset(v, use, err) : DS_OK;
}

/* One more leading dim for every range. */
static ds_status stack(ds_builder *b, const ds_use *use, const int64_t *counts, ds_typed *out,
                       ds_error *err) {
    const ds_type *type = out->type;
    uint32_t n = 0;
    for (uint32_t i = 0; i < use->n_index; i++) n += ds_use_is_range(use, i);
    if (!n) return DS_OK;
    if (type->rank + n > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, use->loc, "stacking makes %u dims; at most %d",
                            type->rank + n, DS_MAX_RANK);
    ds_type *stacked = DS_NEW(&b->plan->arena, ds_type);
    *stacked = *type;
    stacked->rank = type->rank + n;
    stacked->dims = DS_NEW_N(&b->plan->arena, ds_dim, stacked->rank);
    for (uint32_t i = 0, d = 0; i < use->n_index; i++)
        if (ds_use_is_range(use, i))
            stacked->dims[d++].size = ds_expr_int(&b->unit->exprs, counts[i]);
    if (type->rank) memcpy(stacked->dims + n, type->dims, type->rank * sizeof *type->dims);
    out->type = stacked;
    return DS_OK;
}

ds_status ds_plan__operand_type(ds_builder *b, const ds_func *func, const ds_use *use,
                                const ds_index *indices, ds_index *frames, ds_typed *out,
                                ds_error *err) {
    const ds_value_info *v = ds_value_at(func, use->value);
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t counts[DS_MAX_RANK] = {0};
    *out = (ds_typed){v->type, indices};
    for (uint32_t i = 0; i < use->n_index; i++) {
        int64_t at, hi;
        DS_TRY(ds_expr_eval_int(&env, use->index[i], use->loc, &at, err));
        frames[i] = (ds_index){v->binders[i].name, at, out->indices};
        out->indices = &frames[i];
        if (!ds_use_is_range(use, i)) continue;
        DS_TRY(ds_expr_eval_int(&env, use->index_hi[i], use->loc, &hi, err));
        if (i < DS_MAX_RANK) counts[i] = hi - at;
    }
    return stack(b, use, counts, out, err);
}
