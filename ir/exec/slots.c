/* What SSA values are now, and reading them: a value, an element of a family, a stacked range. */
#include "ir/core/rec.h"
#include "ir/exec/machine_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FAMILY (INT64_C(1) << 24) /* its slots take 256 MiB, beside the tensors */

/* ---- slots ---- */

ds_status ds_exec__family_new(int64_t lo, int64_t n, ds_loc loc, ds_exec_family **out,
                              ds_error *err) {
    if (n < 0) n = 0;
    if (n > MAX_FAMILY)
        return ds_error_set(err, DS_ERR_LIMIT, loc, "a family of %lld values; at most %lld",
                            (long long)n, (long long)MAX_FAMILY);
    ds_exec_family *family = ds_xcalloc(1, sizeof *family + (size_t)n * sizeof *family->items);
    family->owners = 1;
    family->lo = lo;
    family->n = n;
    *out = family;
    return DS_OK;
}

ds_exec_slot ds_exec__slot_share(ds_exec_slot slot) {
    if (slot.value) slot.value->owners++;
    if (slot.family) slot.family->owners++;
    return slot;
}

void ds_exec__slot_drop(ds_exec_slot *slot) {
    ds_exec_family *family = slot->family;
    ds_exec__value_drop(slot->value);
    *slot = (ds_exec_slot){0};
    if (!family || --family->owners) return;
    for (int64_t i = 0; i < family->n; i++) ds_exec__slot_drop(&family->items[i]);
    free(family);
}

void ds_exec__slot_set(ds_exec_slot *to, ds_exec_slot slot) {
    ds_exec__slot_drop(to);
    *to = slot;
}

/* ---- reading ---- */

static ds_status unset(const ds_value_info *info, const ds_use *use, ds_error *err) {
    return ds_error_set(err, DS_ERR_NAME, use->loc, "%%%s is read before it is set", info->name);
}

#define MAX_INDICES DS_MAX_REC_DIMS

/* What a use reads: the box lo .. hi (exclusive) of the family's indices, and the elements in it,
 * in order. */
typedef struct stack {
    const ds_value_info *info; /* the family */
    const ds_use *use;
    int64_t lo[MAX_INDICES], hi[MAX_INDICES];
    bool empty;                  /* a range holds nothing */
    DS_VEC(ds_exec_value *) all; /* heap; not owned */
    uint32_t n_ranges;
    int64_t counts[MAX_INDICES]; /* of the ranges */
} stack;

static ds_status find_box(const ds_env *env, stack *out, ds_error *err) {
    const ds_use *use = out->use;
    if (use->n_index > MAX_INDICES)
        return ds_error_set(err, DS_ERR_LIMIT, use->loc, "%%%s has %u indices; at most %d",
                            out->info->name, use->n_index, MAX_INDICES);
    for (uint32_t i = 0; i < use->n_index; i++) {
        DS_TRY(ds_expr_eval_int(env, use->index[i], use->loc, &out->lo[i], err));
        out->hi[i] = out->lo[i] + 1;
        if (!ds_use_is_range(use, i)) continue;
        DS_TRY(ds_expr_eval_int(env, use->index_hi[i], use->loc, &out->hi[i], err));
        if (out->hi[i] < out->lo[i])
            return ds_error_set(err, DS_ERR_VALUE, use->loc,
                                "%%%s{%lld:%lld} ends before it begins", out->info->name,
                                (long long)out->lo[i], (long long)out->hi[i]);
        out->counts[out->n_ranges++] = out->hi[i] - out->lo[i];
        out->empty = out->empty || out->hi[i] == out->lo[i];
    }
    return DS_OK;
}

static ds_status collect_elements(ds_exec_slot from, uint32_t level, stack *out, ds_error *err) {
    const ds_value_info *info = out->info;
    if (level == out->use->n_index) {
        if (!from.value) return unset(info, out->use, err);
        DS_HPUSH(&out->all, from.value);
        return DS_OK;
    }
    int64_t lo = out->lo[level], hi = out->hi[level];
    if (!from.family) return unset(info, out->use, err);
    if (lo < from.family->lo || hi > from.family->lo + from.family->n)
        return ds_error_set(err, DS_ERR_VALUE, out->use->loc,
                            "%%%s{%lld:%lld} is outside the family's range %lld..%lld", info->name,
                            (long long)lo, (long long)hi, (long long)from.family->lo,
                            (long long)(from.family->lo + from.family->n));
    for (int64_t i = lo; i < hi; i++)
        DS_TRY(collect_elements(from.family->items[i - from.family->lo], level + 1, out, err));
    return DS_OK;
}

/* What an element of an empty range would be, by its type. */
static ds_status element_of_none(const ds_exec_site *site, const stack *s, ds_exec_value **out,
                                 ds_error *err) {
    ds_index own[MAX_INDICES];
    ds_exec_site at = *site;
    for (uint32_t i = 0; i < s->use->n_index; i++) {
        own[i] = (ds_index){s->info->binders[i].name, s->lo[i], at.indices};
        at.indices = &own[i];
    }
    return ds_exec__value_new(&at, s->info->type, NULL, out, err);
}

/* One value of one more leading dim a range, its parts those of the elements one after another. */
static ds_status put_together(const ds_exec_site *site, const stack *s, const ds_exec_value *first,
                              ds_exec_value **out, ds_error *err) {
    ds_exec_value *v = ds_xcalloc(1, sizeof *v);
    *v = *first;
    v->owners = 1;
    v->rank = first->rank + s->n_ranges;
    v->parts = ds_xcalloc(v->place->n_devices, sizeof *v->parts);
    *out = v;
    if (v->rank > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, site->loc, "stacking makes %u dims; at most %d",
                            v->rank, DS_MAX_RANK);
    for (uint32_t p = 0; p < v->place->n_devices; p++) {
        const ds_exec_part *like = &first->parts[p];
        ds_exec_part *part = &v->parts[p];
        part->t.rank = v->rank;
        for (uint32_t d = 0; d < v->rank; d++) {
            bool leading = d < s->n_ranges;
            uint32_t from = leading ? 0 : d - s->n_ranges;
            part->lo[d] = leading ? 0 : like->lo[from];
            part->full[d] = leading ? s->counts[d] : like->full[from];
            part->t.dims[d] = leading ? s->counts[d] : like->t.dims[from];
        }
        DS_TRY(ds_exec__part_new(site, part, err));
        for (uint32_t i = 0; i < s->all.n; i++) {
            const ds_exec_value *each = s->all.at[i];
            if (each->place != v->place || !ds_tensor_same_shape(&each->parts[p].t, &like->t))
                return ds_error_set(err, DS_ERR_SHAPE, site->loc,
                                    "a range cannot be stacked: its values differ in shape or "
                                    "place");
            memcpy(part->t.at + i * like->t.n, each->parts[p].t.at,
                   (size_t)like->t.n * sizeof(double));
        }
    }
    return DS_OK;
}

static ds_status stacked(const ds_exec_site *site, const stack *s, ds_exec_value **out,
                         ds_error *err) {
    ds_exec_value *none = NULL;
    if (!s->all.n) DS_TRY(element_of_none(site, s, &none, err));
    ds_status status = put_together(site, s, none ? none : s->all.at[0], out, err);
    ds_exec__value_drop(none);
    return status;
}

ds_status ds_exec__read(ds_exec_thread *thread, const ds_exec_open *open, const ds_use *use,
                        ds_exec_slot *out, const ds_exec_value **waits, ds_error *err) {
    ds_exec_slot slot = open->frame->slots[use->value.i];
    *out = (ds_exec_slot){0};
    const ds_value_info *info = ds_value_at(open->frame->scope.func, use->value);
    if (!slot.value && !slot.family) return unset(info, use, err);
    if (!use->n_index) {
        *out = ds_exec__slot_share(slot);
        return DS_OK;
    }
    ds_env env = ds_binding_env(thread->run->binding, open->indices);
    stack s = {.info = info, .use = use};
    ds_status status = find_box(&env, &s, err);
    if (status == DS_OK && !s.empty) status = collect_elements(slot, 0, &s, err);
    for (uint32_t i = 0; i < s.all.n && s.n_ranges; i++)
        if (s.all.at[i]->pending) *waits = s.all.at[i];
    if (status == DS_OK && !s.n_ranges)
        out->value = ds_exec__value_share(s.all.at[0]);
    else if (status == DS_OK && !*waits) {
        ds_exec_site site = ds_exec__site(thread, open, use->loc);
        status = stacked(&site, &s, &out->value, err);
    }
    if (status != DS_OK) ds_exec__slot_drop(out);
    free(s.all.at);
    return status;
}
