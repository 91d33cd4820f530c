/* Regions: for with carried and kept values, and rank-local regions. */
#include "ir/verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- for ---- */

static ds_expr index_of(ds_checker *ck, const ds_op *loop) {
    return ds_expr_index(&ck->unit->exprs, loop->index);
}

static const ds_type *at_turn(ds_checker *ck, const ds_op *loop, const ds_type *carry,
                              ds_expr turn) {
    return ds_type_subst(&ck->unit->exprs, &ck->unit->arena, carry, loop->index, turn);
}

const ds_type *ds_verify__carry_next(ds_checker *ck, const ds_op *loop, const ds_type *carry) {
    ds_exprs *exprs = &ck->unit->exprs;
    ds_expr next = ds_expr_fold(exprs, DS_EXPR_ADD, index_of(ck, loop), ds_expr_int(exprs, 1));
    return at_turn(ck, loop, carry, next);
}

const ds_type *ds_verify__carry_at(ds_checker *ck, const ds_op *loop, const ds_type *carry,
                                   ds_expr turn) {
    return at_turn(ck, loop, carry, turn);
}

/* Is what a carry starts with, or what is yielded for it, a family as the carry is one? */
static bool is_such_family(ds_walker *w, const ds_use *use, const ds_value_info *family,
                           const ds_value_info *carry) {
    ds_checker *ck = w->ck;
    uint32_t n = family ? family->n_binders : 0;
    if (ds_verify__same_binders(ck, NULL, family ? family->binders : NULL, n, carry->binders,
                                carry->n_binders) != DS_NO)
        return true;
    const char *found = n ? ds_arena_printf(&ck->diags->arena, "a family over %s",
                                            ds_verify__binders_text(ck, family))
                          : "one value";
    ds_verify__error(ck, DS_ERR_TYPE, use->loc, NULL,
                     carry->n_binders ? "the carry %%%s is a family over %s, and %s is %s"
                                      : "the carry %%%s is one value%s, and %s is %s",
                     carry->name, carry->n_binders ? ds_verify__binders_text(ck, carry) : "",
                     ds_verify__value_text(w, use->value), found);
    return false;
}

/* Defines the carry inside the body: at the first turn its written type must be the initial value's
 * type. */
static void define_carry(ds_walker *w, const ds_op *loop, uint32_t i) {
    ds_checker *ck = w->ck;
    ds_value_info *carry = ds_value_at(w->func, loop->args[i]);
    const ds_value_info *family;
    const ds_type *init = ds_verify__read(w, &loop->in[i], &family);
    if (family && !carry->n_binders) {
        carry->binders = family->binders;
        carry->n_binders = family->n_binders;
    }
    if (init && !is_such_family(w, &loop->in[i], family, carry)) {
        w->defined[loop->args[i].i] = DS_WRONG;
        return;
    }
    if (init && family)
        init = ds_verify__rename(ck, init, family->binders, carry->binders, carry->n_binders);
    if (!carry->type_written || !init) {
        ds_verify__set_type(w, loop->args[i], init, carry->loc, "it", "starts as");
        return;
    }
    bool ok = ds_verify__check_type(ck, w->func, carry->type,
                                    ds_verify__value_text(w, loop->args[i]), carry->loc);
    w->defined[loop->args[i].i] = ok ? DS_DEFINED : DS_WRONG;
    if (!ok) return;
    const ds_type *first = ds_verify__seen(ck, w->func, at_turn(ck, loop, carry->type, loop->lo));
    if (ds_verify__same_type(ck, w->func, NULL, first, init) == DS_NO) {
        ds_verify__error(
            ck, DS_ERR_TYPE, carry->loc, NULL,
            "the carry %%%s is %s at %s = %s, but starts with %s, which is %s", carry->name,
            ds_verify__type_text(ck, first), loop->index, ds_verify__expr_text(ck, loop->lo),
            ds_verify__value_text(w, loop->in[i].value), ds_verify__type_text(ck, init));
    }
}

static void check_next(ds_walker *w, const ds_op *loop, const ds_op *yield, uint32_t i) {
    ds_checker *ck = w->ck;
    const ds_value_info *family;
    const ds_type *found = ds_verify__read(w, &yield->in[i], &family);
    const ds_value_info *carry = ds_value_at(w->func, loop->args[i]);
    if (!found || !carry->type) return;
    if (!is_such_family(w, &yield->in[i], family, carry)) {
        w->defined[loop->args[i].i] = DS_WRONG;
        return;
    }
    if (family)
        found = ds_verify__rename(ck, found, family->binders, carry->binders, carry->n_binders);
    const ds_type *next =
        ds_verify__seen(ck, w->func, ds_verify__carry_next(ck, loop, carry->type));
    if (ds_verify__same_type(ck, w->func, NULL, next, found) != DS_NO) return;
    bool moves = ds_type_mentions(&ck->unit->exprs, carry->type, loop->index);
    ds_verify__error(ck, DS_ERR_TYPE, yield->in[i].loc, NULL,
                     "the loop yields %s, which is %s, but carries %%%s, which must be %s%s",
                     ds_verify__value_text(w, yield->in[i].value), ds_verify__type_text(ck, found),
                     carry->name, ds_verify__type_text(ck, next),
                     moves ? " at the next turn" : " at every turn");
    w->defined[loop->args[i].i] = DS_WRONG; /* the loop's result is then wrong, too */
}

/* A kept value becomes a family over the loop's range; a family that is kept gains a binder. */
static void set_kept(ds_walker *w, const ds_op *loop, const ds_use *use, ds_value result) {
    ds_checker *ck = w->ck;
    const ds_value_info *inner;
    const ds_type *type = ds_verify__read(w, use, &inner);
    ds_value_info *info = ds_value_at(w->func, result);
    uint32_t n = 1 + (inner ? inner->n_binders : 0);
    ds_binder *binders = DS_NEW_N(&ck->unit->arena, ds_binder, n);
    binders[0] = (ds_binder){loop->index, loop->lo, loop->hi, loop->loc};
    if (inner) memcpy(binders + 1, inner->binders, inner->n_binders * sizeof *binders);
    if (!info->n_binders || !info->type_written) {
        info->binders = binders;
        info->n_binders = n;
    } else if (ds_verify__same_binders(ck, NULL, info->binders, info->n_binders, binders, n) ==
               DS_NO) {
        ds_verify__error(ck, DS_ERR_TYPE, info->loc, NULL,
                         "%%%s is written over another range than the loop that keeps it",
                         info->name);
        type = NULL;
    }
    if (type) type = ds_verify__rename(ck, type, binders, info->binders, n);
    ds_verify__set_type(w, result, type, info->loc, "each kept value", "is");
}

static void check_yield(ds_walker *w, const ds_op *loop, const ds_op *yield) {
    uint32_t n_kept = yield->n_keep, n_carried = yield->n_in - n_kept;
    if (n_carried != loop->n_args) {
        ds_verify__error(w->ck, DS_ERR_TYPE, yield->loc, NULL,
                         "the loop carries %u value%s and yields %u", loop->n_args,
                         loop->n_args == 1 ? "" : "s", n_carried);
        return;
    }
    for (uint32_t i = 0; i < n_carried; i++) check_next(w, loop, yield, i);
    if (loop->n_out != n_carried + n_kept) {
        ds_verify__error(
            w->ck, DS_ERR_TYPE, loop->loc, NULL,
            "the loop gives %u value%s (%u carried, %u kept), but %u name%s on its left",
            n_carried + n_kept, n_carried + n_kept == 1 ? "" : "s", n_carried, n_kept, loop->n_out,
            loop->n_out == 1 ? " is" : "s are");
        return;
    }
    for (uint32_t i = 0; i < n_kept; i++)
        set_kept(w, loop, &yield->in[n_carried + i], loop->out[n_carried + i]);
}

static void check_loop_index(ds_walker *w, const ds_op *loop) {
    ds_verify__index_name(w->ck, w->func->module, loop->index, loop->loc);
    for (const ds_index_scope *at = w->indices; at; at = at->up)
        if (at->name == loop->index) {
            ds_verify__error(w->ck, DS_ERR_NAME, loop->loc, NULL,
                             "the index '%s' is already that of an enclosing loop", loop->index);
            return;
        }
}

void ds_verify__for(ds_walker *w, ds_op *loop) {
    check_loop_index(w, loop);
    if (loop->n_in != loop->n_args) {
        ds_verify__error(w->ck, DS_ERR_TYPE, loop->loc, NULL,
                         "the loop carries %u values and has %u initial ones", loop->n_args,
                         loop->n_in);
        return;
    }
    for (uint32_t i = 0; i < loop->n_args; i++) define_carry(w, loop, i);
    /* The body reads what the turns before have kept. */
    for (uint32_t i = loop->n_args; i < loop->n_out; i++)
        if (ds_value_at(w->func, loop->out[i])->type_written)
            w->defined[loop->out[i].i] = DS_DEFINED;
    ds_index_scope scope = {loop->index, w->indices};
    w->indices = &scope;
    const ds_op *yield = ds_verify__block(w, loop->body, DS_OP_YIELD);
    if (yield) {
        check_yield(w, loop, yield);
    } else if (!ds_verify__has_end(loop->body) && loop->n_args + loop->n_out) {
        ds_verify__error(w->ck, DS_ERR_TYPE, loop->loc, NULL,
                         "the loop carries or keeps values, but its body does not end in 'yield'");
    }
    w->indices = scope.up;
    for (uint32_t i = 0; i < loop->n_out; i++) {
        if (w->defined[loop->out[i].i]) continue;
        const ds_type *carry = i < loop->n_args ? ds_value_at(w->func, loop->args[i])->type : NULL;
        if (!carry || w->defined[loop->args[i].i] == DS_WRONG) {
            w->defined[loop->out[i].i] = DS_WRONG;
            continue;
        }
        ds_value_info *info = ds_value_at(w->func, loop->out[i]);
        if (!info->in_rec) {
            info->binders = ds_value_at(w->func, loop->args[i])->binders;
            info->n_binders = ds_value_at(w->func, loop->args[i])->n_binders;
        }
        carry = ds_verify__seen(w->ck, w->func, at_turn(w->ck, loop, carry, loop->hi));
        ds_verify__set_type(w, loop->out[i], carry, info->loc, "the loop", "ends with");
    }
    ds_verify__leave(w, loop);
}

/* ---- local ---- */

/* The size of an axis as an expression; none if it depends on the caller. */
ds_expr ds_verify__axis_size(ds_checker *ck, const ds_func *func, const ds_place *on,
                             const char *axis) {
    ds_resolved at;
    if (!ds_verify__resolve(func, on, &at) || at.param) return DS_NO_EXPR;
    const ds_mesh *mesh = at.kind == DS_PLACE_NONE ? ds_scenario_mesh(ck->unit) : at.mesh;
    if (at.kind != DS_PLACE_DEVICE && !mesh) return DS_NO_EXPR;
    for (uint32_t i = 0; mesh && i < mesh->n_axes; i++)
        if (mesh->axes[i].name == axis && !ds_verify__is_fixed(on, axis)) return mesh->axes[i].size;
    return ds_expr_int(&ck->unit->exprs, 1);
}

static bool is_listed(const char *axis, const char *const *axes, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (axes[i] == axis) return true;
    return false;
}

const ds_type *ds_verify__shard_type(ds_checker *ck, const ds_func *func, const ds_type *type,
                                     const char *const *axes, uint32_t n_axes) {
    ds_type *shard = ds_type_copy(&ck->unit->arena, type);
    for (uint32_t d = 0; d < shard->rank; d++) {
        ds_dim *dim = &shard->dims[d];
        uint32_t kept = 0;
        for (uint32_t s = 0; s < dim->n_splits; s++) {
            if (!is_listed(dim->splits[s].axis, axes, n_axes)) {
                dim->splits[kept++] = dim->splits[s];
                continue;
            }
            ds_expr size = ds_verify__axis_size(ck, func, &type->on, dim->splits[s].axis);
            if (!DS_HAS_EXPR(size) || dim->splits[s].n_sizes) return NULL;
            dim->size = ds_expr_fold(&ck->unit->exprs, DS_EXPR_DIV, dim->size, size);
        }
        dim->n_splits = kept;
    }
    uint32_t kept = 0;
    for (uint32_t p = 0; p < shard->n_partials; p++)
        if (!is_listed(shard->partials[p].axis, axes, n_axes))
            shard->partials[kept++] = shard->partials[p];
    shard->n_partials = kept;
    return shard;
}

static void define_operand(ds_walker *w, const ds_op *region, uint32_t i, const ds_type *outside) {
    ds_checker *ck = w->ck;
    const ds_value_info *info = ds_value_at(w->func, region->args[i]);
    const ds_type *shard =
        outside ? ds_verify__shard_type(ck, w->func, outside, region->over, region->n_over) : NULL;
    if (outside && !shard && !info->type_written)
        ds_verify__error(ck, DS_ERR_SHARDING, region->in[i].loc, NULL,
                         "the shard of %s (%s) has no known shape: its axes have uneven shards, or "
                         "sizes that only the caller knows",
                         ds_verify__value_text(w, region->in[i].value),
                         ds_verify__type_text(ck, outside));
    ds_verify__set_type(w, region->args[i], shard, info->loc, "its shard", "is");
}

static void check_local_result(ds_walker *w, const ds_op *region, const ds_op *yield, uint32_t i) {
    ds_checker *ck = w->ck;
    const ds_type *found = ds_verify__read(w, &yield->in[i], NULL);
    const ds_type *shard =
        ds_verify__shard_type(ck, w->func, region->result_types[i], region->over, region->n_over);
    if (!found || !shard) return;
    if (ds_verify__same_type(ck, w->func, NULL, shard, found) == DS_NO)
        ds_verify__error(
            ck, DS_ERR_TYPE, yield->in[i].loc, NULL,
            "%s is %s; a shard of the declared result %s is %s",
            ds_verify__value_text(w, yield->in[i].value), ds_verify__type_text(ck, found),
            ds_verify__type_text(ck, region->result_types[i]), ds_verify__type_text(ck, shard));
}

static void check_local_yield(ds_walker *w, const ds_op *region, const ds_op *yield) {
    if (!yield) {
        if (!ds_verify__has_end(region->body) && region->n_out)
            ds_verify__error(w->ck, DS_ERR_TYPE, region->loc, NULL,
                             "the local region gives %u value%s, but does not end in 'yield'",
                             region->n_out, region->n_out == 1 ? "" : "s");
        return;
    }
    if (yield->n_in != region->n_out || yield->n_keep) {
        ds_verify__error(w->ck, DS_ERR_TYPE, yield->loc, NULL,
                         yield->n_keep ? "a local region keeps nothing: it gives %u value%s, and "
                                         "'keep' belongs to loops (%u yielded)"
                                       : "the local region gives %u value%s and yields %u",
                         region->n_out, region->n_out == 1 ? "" : "s", yield->n_in);
        return;
    }
    for (uint32_t i = 0; i < yield->n_in; i++) check_local_result(w, region, yield, i);
}

static void push_manual(ds_walker *w, const ds_op *region) {
    w->manual = ds_xrealloc(w->manual, (w->n_manual + region->n_over + 1) * sizeof *w->manual);
    for (uint32_t i = 0; i < region->n_over; i++) w->manual[w->n_manual++] = region->over[i];
}

static void check_region_axes(ds_walker *w, const ds_op *region) {
    for (uint32_t i = 0; i < region->n_over; i++) {
        ds_verify__check_axis(w->ck, w->func->module, region->over[i], region->loc);
        if (is_listed(region->over[i], region->over, i))
            ds_verify__error(w->ck, DS_ERR_NAME, region->loc, NULL,
                             "'over' lists the axis '%s' twice", region->over[i]);
        if (is_listed(region->over[i], w->manual, w->n_manual))
            ds_verify__error(w->ck, DS_ERR_SHARDING, region->loc, NULL,
                             "'%s' is local already: an enclosing region is over it",
                             region->over[i]);
    }
}

/* Walks the body, which sees only the listed operands. */
static void walk_body(ds_walker *w, ds_op *region, const ds_type *const *outside) {
    uint8_t *before = w->defined;
    w->defined = ds_xcalloc(w->func->values.n + 1, 1);
    push_manual(w, region);
    for (uint32_t i = 0; i < region->n_args; i++) define_operand(w, region, i, outside[i]);
    const ds_op *yield = ds_verify__block(w, region->body, DS_OP_YIELD);
    check_local_yield(w, region, yield);
    w->n_manual -= region->n_over;
    free(w->defined);
    w->defined = before;
}

void ds_verify__local(ds_walker *w, ds_op *region) {
    check_region_axes(w, region);
    if (region->n_in != region->n_args) {
        ds_verify__error(w->ck, DS_ERR_TYPE, region->loc, NULL,
                         "the local region has %u operands and %u names for them", region->n_in,
                         region->n_args);
        return;
    }
    bool ok = true;
    for (uint32_t i = 0; i < region->n_out; i++) {
        const char *what =
            ds_arena_printf(&w->ck->diags->arena, "result %u of the local region", i + 1);
        ok =
            ds_verify__check_type(w->ck, w->func, region->result_types[i], what, region->loc) && ok;
    }
    const ds_type **outside = ds_xcalloc(region->n_in + 1, sizeof *outside);
    for (uint32_t i = 0; i < region->n_in; i++)
        outside[i] = ds_verify__read(w, &region->in[i], NULL);
    walk_body(w, region, outside);
    free(outside);
    ds_verify__set_results(w, region, ok ? (const ds_type *const *)region->result_types : NULL,
                           "the region", "declares");
}
