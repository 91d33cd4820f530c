/* Regions `rec` by definition: no schedule, no order but that of need.
 *
 * First every point of every equation is checked for indices out of range and for cycles
 * (ir/core/rec.h). Then the values that the yield reads are wanted. The last wanted equation either
 * has all that it reads, and is computed once, or what is missing is wanted before it. Values are
 * remembered to the end of the region, as families in the frame's slots, so that operands are read
 * there as anywhere. */
#include "ir/core/rec.h"
#include "ir/exec/machine_internal.h"

#include <stdlib.h>
#include <string.h>

/* An equation at a point of its dims. */
typedef struct wanted {
    const ds_op *op;
    int64_t at[DS_MAX_REC_DIMS];
} wanted;

typedef struct ds_exec_rec {
    const ds_op *op;
    const ds_op **equation_of; /* by value; NULL: not of the body */
    DS_VEC(wanted) stack;
    ds_index point[DS_MAX_REC_DIMS]; /* of the equation that is computed; all its dims */
    uint32_t n_point;
} ds_exec_rec;

/* ---- the point ---- */

static void set_point(ds_exec_open *open, const ds_binder *dims, uint32_t n, const int64_t *at) {
    ds_exec_rec *rec = open->rec;
    open->indices = open->up->indices;
    rec->n_point = n;
    for (uint32_t i = 0; i < n; i++) {
        rec->point[i] = (ds_index){dims[i].name, at[i], open->indices};
        open->indices = &rec->point[i];
    }
}

/* The slot of a value at a point; NULL: no family reaches there yet. */
static ds_exec_slot *slot_at(ds_exec_slot *slot, const int64_t *at, uint32_t n) {
    for (uint32_t i = 0; i < n && slot; i++) {
        int64_t k = slot->family ? at[i] - slot->family->lo : -1;
        slot = slot->family && k >= 0 && k < slot->family->n ? &slot->family->items[k] : NULL;
    }
    return slot;
}

static bool is_computed(const ds_exec_open *open, const ds_op *op, const int64_t *at) {
    uint32_t n = ds_value_at(open->frame->scope.func, op->out[0])->n_binders;
    const ds_exec_slot *slot = slot_at(&open->frame->slots[op->out[0].i], at, n);
    return slot && slot->value;
}

/* Families of dims i and on, down to the slot at the point. */
static ds_status make_slot(ds_exec_thread *thread, const ds_binder *dims, uint32_t n,
                           const int64_t *at, ds_exec_slot **slot, ds_error *err) {
    ds_env env = ds_binding_env(thread->run->binding, NULL);
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo, hi;
        DS_TRY(ds_expr_eval_int(&env, dims[i].lo, dims[i].loc, &lo, err));
        DS_TRY(ds_expr_eval_int(&env, dims[i].hi, dims[i].loc, &hi, err));
        if (!(*slot)->family)
            DS_TRY(ds_exec__family_new(lo, hi - lo, dims[i].loc, &(*slot)->family, err));
        if (!at) return DS_OK;
        *slot = &(*slot)->family->items[at[i] - lo];
    }
    return DS_OK;
}

ds_status ds_exec__define(ds_exec_thread *thread, ds_exec_open *open, ds_value value,
                          ds_exec_slot content, ds_error *err) {
    const ds_value_info *info = ds_value_at(open->frame->scope.func, value);
    ds_exec_slot *slot = &open->frame->slots[value.i];
    int64_t at[DS_MAX_REC_DIMS] = {0};
    ds_status status = DS_OK;
    for (uint32_t i = 0; open->rec && i < open->rec->n_point; i++)
        at[i] = open->rec->point[i].value;
    if (open->rec && info->in_rec)
        status = make_slot(thread, info->binders, info->n_binders, at, &slot, err);
    if (status == DS_OK)
        ds_exec__slot_set(slot, content);
    else
        ds_exec__slot_drop(&content);
    return status;
}

/* ---- wanting ---- */

static ds_status want_read(void *context, const ds_rec_read *read, ds_error *err) {
    ds_exec_open *open = context;
    ds_exec_rec *rec = open->rec;
    const ds_op *op = rec->equation_of[read->use->value.i];
    (void)err;
    if (!op) return DS_OK;
    for (uint32_t i = 0; i < read->n; i++)
        if (read->lo[i] >= read->hi[i]) return DS_OK;
    wanted next = {.op = op};
    memcpy(next.at, read->lo, read->n * sizeof *next.at);
    for (uint32_t i = read->n;;) {
        if (!is_computed(open, op, next.at)) DS_HPUSH(&rec->stack, next);
        for (i = read->n; i > 0 && ++next.at[i - 1] == read->hi[i - 1]; i--)
            next.at[i - 1] = read->lo[i - 1];
        if (i == 0) return DS_OK;
    }
}

/* Calls visit at every point of the result's dims. */
static ds_status each_point(ds_exec_thread *thread, ds_exec_open *open, uint32_t result,
                            ds_status (*visit)(ds_exec_thread *thread, ds_exec_open *open,
                                               uint32_t result, const int64_t *at, ds_error *err),
                            ds_error *err) {
    const ds_op *op = open->rec->op;
    const ds_value_info *info = ds_value_at(open->frame->scope.func, op->out[result]);
    ds_env env = ds_binding_env(thread->run->binding, NULL);
    int64_t lo[DS_MAX_REC_DIMS], hi[DS_MAX_REC_DIMS], at[DS_MAX_REC_DIMS];
    uint32_t n = info->n_binders;
    for (uint32_t i = 0; i < n; i++) {
        DS_TRY(ds_expr_eval_int(&env, info->binders[i].lo, op->loc, &lo[i], err));
        DS_TRY(ds_expr_eval_int(&env, info->binders[i].hi, op->loc, &hi[i], err));
        if (lo[i] >= hi[i]) return DS_OK;
        at[i] = lo[i];
    }
    for (uint32_t i = n;;) {
        set_point(open, info->binders, n, at);
        DS_TRY(visit(thread, open, result, at, err));
        for (i = n; i > 0 && ++at[i - 1] == hi[i - 1]; i--) at[i - 1] = lo[i - 1];
        if (i == 0) return DS_OK;
    }
}

static const ds_use *yielded(const ds_exec_open *open, uint32_t result) {
    const ds_block *body = open->rec->op->body;
    return &body->ops[body->n_ops - 1]->in[result];
}

static ds_status want_result(ds_exec_thread *thread, ds_exec_open *open, uint32_t result,
                             const int64_t *at, ds_error *err) {
    (void)at;
    ds_op one = {.code = DS_OP_YIELD, .in = (ds_use *)yielded(open, result), .n_in = 1};
    ds_env env = ds_binding_env(thread->run->binding, open->indices);
    return ds_rec_reads(open->frame->scope.func, &one, &env, want_read, open, err);
}

ds_status ds_exec__open_rec(ds_exec_thread *thread, ds_exec_open *open, ds_error *err) {
    const ds_op *op = open->op;
    const ds_func *func = open->frame->scope.func;
    ds_env env = ds_binding_env(thread->run->binding, open->indices);
    bool complete;
    DS_TRY(ds_rec_check(func, op, &env, 64 * DS_EXEC_MAX_STEPS, &complete, err));
    if (!complete)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                            "the rec reads more than %lld values; exec is for small programs",
                            (long long)(64 * DS_EXEC_MAX_STEPS));
    ds_exec_rec *rec = open->rec = ds_xcalloc(1, sizeof *rec);
    rec->op = op;
    rec->equation_of = ds_xcalloc(func->values.n + 1, sizeof *rec->equation_of);
    for (uint32_t i = 0; i < op->body->n_ops; i++)
        for (uint32_t k = 0; k < op->body->ops[i]->n_out; k++) {
            ds_value value = op->body->ops[i]->out[k];
            const ds_value_info *info = ds_value_at(func, value);
            ds_exec_slot *slot = &open->frame->slots[value.i];
            rec->equation_of[value.i] = op->body->ops[i];
            ds_exec__slot_drop(slot); /* of the turn before, where the rec is in a loop */
            DS_TRY(make_slot(thread, info->binders, info->n_binders, NULL, &slot, err));
        }
    for (uint32_t k = op->n_out; k-- > 0;) DS_TRY(each_point(thread, open, k, want_result, err));
    return DS_OK;
}

/* ---- computing ---- */

static ds_status take_case(ds_exec_thread *thread, ds_exec_open *open, const ds_op *op,
                           ds_error *err) {
    ds_env env = ds_binding_env(thread->run->binding, open->indices);
    const ds_exec_value *waits = NULL;
    ds_exec_slot slot;
    uint32_t i = 0;
    for (; i < op->n_conds; i++) {
        int64_t holds;
        DS_TRY(ds_expr_eval_int(&env, op->conds[i], op->in[i].loc, &holds, err));
        if (holds) break;
    }
    DS_TRY(ds_exec__read(thread, open, &op->in[i], &slot, &waits, err));
    return ds_exec__define(thread, open, op->out[0], slot, err);
}

/* Reads the yielded value at a point into the result. */
static ds_status take_result(ds_exec_thread *thread, ds_exec_open *open, uint32_t result,
                             const int64_t *at, ds_error *err) {
    const ds_value_info *info = ds_value_at(open->frame->scope.func, open->rec->op->out[result]);
    const ds_exec_value *waits = NULL;
    ds_exec_slot content, *slot = &open->results[result];
    DS_TRY(make_slot(thread, info->binders, info->n_binders, at, &slot, err));
    DS_TRY(ds_exec__read(thread, open, yielded(open, result), &content, &waits, err));
    ds_exec__slot_set(slot, content);
    return DS_OK;
}

ds_status ds_exec__rec_next(ds_exec_thread *thread, ds_exec_open *open, const ds_op **op,
                            bool *ended, ds_error *err) {
    ds_exec_rec *rec = open->rec;
    *op = NULL;
    *ended = rec->stack.n == 0;
    if (*ended) {
        const ds_op *region = rec->op;
        for (uint32_t k = 0; k < region->n_out; k++) {
            const ds_value_info *info = ds_value_at(open->frame->scope.func, region->out[k]);
            ds_exec_slot *slot = &open->results[k];
            DS_TRY(make_slot(thread, info->binders, info->n_binders, NULL, &slot, err));
            DS_TRY(each_point(thread, open, k, take_result, err));
        }
        return DS_OK;
    }
    wanted top = rec->stack.at[rec->stack.n - 1];
    uint32_t n_dims, before = rec->stack.n;
    const ds_func *func = open->frame->scope.func;
    const ds_binder *dims = ds_rec_dims(func, top.op, &n_dims);
    if (is_computed(open, top.op, top.at)) {
        rec->stack.n--;
        return DS_OK;
    }
    set_point(open, dims, n_dims, top.at);
    ds_env env = ds_binding_env(thread->run->binding, open->indices);
    DS_TRY(ds_rec_reads(func, top.op, &env, want_read, open, err));
    if (rec->stack.n > before) return DS_OK;
    rec->stack.n--;
    if (top.op->code == DS_OP_CASE) return take_case(thread, open, top.op, err);
    *op = top.op;
    return DS_OK;
}

void ds_exec__close_rec(ds_exec_open *open) {
    ds_exec_rec *rec = open->rec;
    if (!rec) return;
    const ds_block *body = rec->op->body;
    for (uint32_t i = 0; i < body->n_ops; i++)
        for (uint32_t k = 0; k < body->ops[i]->n_out; k++)
            ds_exec__slot_drop(&open->frame->slots[body->ops[i]->out[k].i]);
    free(rec->stack.at);
    free((void *)rec->equation_of);
    free(rec);
    open->rec = NULL;
}

/* ---- names ---- */

const ds_index *ds_exec__point(const ds_exec_open *open, uint32_t *n) {
    *n = open->rec ? open->rec->n_point : 0;
    return open->rec ? open->rec->point : NULL;
}

void ds_exec__point_text(const ds_exec_open *open, ds_buf *out) {
    for (uint32_t i = 0; open->rec && i < open->rec->n_point; i++)
        ds_buf_printf(out, "%s%lld", i ? "," : "{", (long long)open->rec->point[i].value);
    if (open->rec && open->rec->n_point) ds_buf_putc(out, '}');
}

/* The point's value of a dim. */
static int64_t value_of(const ds_exec_rec *rec, const char *dim) {
    for (uint32_t i = 0; i < rec->n_point; i++)
        if (rec->point[i].name == dim) return rec->point[i].value;
    return 0;
}

/* ",3": an index of a weight's name. */
static void put_index(int64_t value, bool *indexed, ds_buf *out) {
    ds_buf_printf(out, "%c%lld", *indexed ? ',' : '{', (long long)value);
    *indexed = true;
}

void ds_exec__weight_indices(const ds_exec_thread *thread, const ds_exec_open *open,
                             const ds_op *called, bool *indexed, ds_buf *out) {
    const ds_exec_rec *rec = open->rec;
    if (called) { /* inside a call: the dims that the call gives its callee's weights */
        const ds_exprs *exprs = &thread->run->binding->unit->exprs;
        const ds_attr *attr = called->code == DS_OP_CALL
                                  ? ds_attr_find(called->attrs, called->n_attrs, "weights")
                                  : NULL;
        for (uint32_t i = 0; attr && i < attr->n_items; i++)
            put_index(value_of(rec, ds_expr_at(exprs, attr->items[i].expr)->name), indexed, out);
        return;
    }
    for (uint32_t i = 0; i < rec->n_point; i++) put_index(rec->point[i].value, indexed, out);
}
