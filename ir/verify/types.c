/* The walk through a function that finds every value's type.
 *
 * One pass in program order: operands are read (with indices substituted), the op table infers the
 * results, a written type must agree with the inferred type. A wrong value is left without a type,
 * and its readers are silent, so that each cause is reported once. */
#include "ir/verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

const char *ds_verify__name_text(ds_arena *arena, char sigil, const char *name) {
    size_t n = strlen(name);
    char *text = ds_arena_alloc(arena, n + 2);
    text[0] = sigil;
    memcpy(text + 1, name, n);
    return text;
}

const char *ds_verify__value_text(ds_walker *w, ds_value value) {
    return ds_verify__name_text(&w->ck->diags->arena, '%', ds_value_at(w->func, value)->name);
}

const char *ds_verify__binders_text(ds_checker *ck, const ds_value_info *info) {
    ds_buf buf = {0};
    for (uint32_t i = 0; i < info->n_binders; i++) {
        ds_buf_printf(&buf, "%s%s in ", i ? ", " : "", info->binders[i].name);
        ds_expr_print(&ck->unit->exprs, info->binders[i].lo, &buf);
        ds_buf_put(&buf, "..");
        ds_expr_print(&ck->unit->exprs, info->binders[i].hi, &buf);
    }
    const char *text = ds_arena_strdup(&ck->diags->arena, buf.text);
    ds_buf_deinit(&buf);
    return text;
}

/* Substitutes the indices for the binders, all at once: an index may mention another binder's
 * name. */
static const ds_type *put_indices(ds_checker *ck, const ds_value_info *info, const ds_use *use) {
    ds_exprs *exprs = &ck->unit->exprs;
    const ds_type *type = info->type;
    for (uint32_t i = 0; i < use->n_index && use->n_index > 1; i++) {
        const char hidden[] = {'\1', (char)('0' + i % 64), '\0'};
        ds_expr by = ds_expr_index(exprs, ds_intern(&ck->unit->strings, hidden));
        type = ds_type_subst(exprs, &ck->unit->arena, type, info->binders[i].name, by);
    }
    for (uint32_t i = 0; i < use->n_index; i++) {
        const char hidden[] = {'\1', (char)('0' + i % 64), '\0'};
        const char *name =
            use->n_index > 1 ? ds_intern(&ck->unit->strings, hidden) : info->binders[0].name;
        type = ds_type_subst(exprs, &ck->unit->arena, type, name, use->index[i]);
    }
    return type;
}

static uint32_t count_ranges(const ds_use *use) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < use->n_index; i++) n += ds_use_is_range(use, i);
    return n;
}

/* The type of %k{0:t+1}: one more leading dim for every range. */
static const ds_type *stack(ds_checker *ck, const ds_type *type, const ds_use *use) {
    uint32_t n = count_ranges(use);
    ds_type *stacked = DS_NEW(&ck->unit->arena, ds_type);
    *stacked = *type;
    stacked->rank = type->rank + n;
    stacked->dims = DS_NEW_N(&ck->unit->arena, ds_dim, stacked->rank);
    for (uint32_t i = 0, d = 0; i < use->n_index; i++)
        if (ds_use_is_range(use, i))
            stacked->dims[d++].size =
                ds_expr_fold(&ck->unit->exprs, DS_EXPR_SUB, use->index_hi[i], use->index[i]);
    if (type->rank) memcpy(stacked->dims + n, type->dims, type->rank * sizeof *type->dims);
    return stacked;
}

const ds_type *ds_verify__element(ds_checker *ck, const ds_func *func, const ds_use *use) {
    const ds_value_info *info = ds_value_at(func, use->value);
    if (!info->type || !use->n_index) return ds_verify__seen(ck, func, info->type);
    const ds_type *type = ds_verify__seen(ck, func, put_indices(ck, info, use));
    return count_ranges(use) ? stack(ck, type, use) : type;
}

static bool check_index_count(ds_walker *w, const ds_use *use, const ds_value_info *info,
                              bool family_is_fine) {
    if (use->n_index == info->n_binders) return true;
    if (!info->n_binders) {
        ds_verify__error(w->ck, DS_ERR_TYPE, use->loc, NULL,
                         "%%%s is one value, not a family: it takes no '{...}'", info->name);
        return false;
    }
    if (use->n_index) {
        ds_verify__error(w->ck, DS_ERR_TYPE, use->loc, NULL,
                         "%%%s is a family over %s: it takes %u ind%s, not %u", info->name,
                         ds_verify__binders_text(w->ck, info), info->n_binders,
                         info->n_binders == 1 ? "ex" : "ices", use->n_index);
        return false;
    }
    if (family_is_fine) return true;
    ds_verify__error(w->ck, DS_ERR_TYPE, use->loc, NULL,
                     "%%%s is a family over %s: read one of its values, as in %%%s{%s}", info->name,
                     ds_verify__binders_text(w->ck, info), info->name, info->binders[0].name);
    return false;
}

static bool check_ranges(ds_walker *w, const ds_use *use, const ds_value_info *info) {
    uint32_t n = count_ranges(use);
    if (!n || !info->type) return true;
    if (info->type->rank + n > DS_MAX_RANK) {
        ds_verify__error(w->ck, DS_ERR_LIMIT, use->loc, NULL,
                         "stacking %%%s makes %u dims; a tensor has at most %u", info->name,
                         info->type->rank + n, DS_MAX_RANK);
        return false;
    }
    for (uint32_t i = 0; i < use->n_index; i++) {
        if (!ds_use_is_range(use, i) ||
            !ds_type_mentions(&w->ck->unit->exprs, info->type, info->binders[i].name))
            continue;
        ds_verify__error(w->ck, DS_ERR_SHAPE, use->loc, NULL,
                         "a range of %%%s cannot be stacked: its values differ, each is %s",
                         info->name, ds_verify__type_text(w->ck, info->type));
        return false;
    }
    return true;
}

const ds_type *ds_verify__read(ds_walker *w, const ds_use *use, const ds_value_info **family) {
    ds_value_info *info = ds_value_at(w->func, use->value);
    if (family) *family = NULL;
    if (!w->defined[use->value.i]) {
        bool own = info->def && info->def->code == DS_OP_FOR;
        ds_verify__error(w->ck, DS_ERR_NAME, use->loc,
                         own ? "the loop reads the family that it keeps: write the family's type "
                               "after the loop's '}'"
                             : NULL,
                         "%%%s is used where it is not defined (yet)", info->name);
        return NULL;
    }
    info->n_uses++;
    if (!info->type || w->defined[use->value.i] == DS_WRONG) return NULL;
    if (!check_index_count(w, use, info, family != NULL)) return NULL;
    if (!check_ranges(w, use, info)) return NULL;
    if (info->n_binders && !use->n_index) *family = info;
    return ds_verify__element(w->ck, w->func, use);
}

/* ---- results ---- */

/* Gives a written type without `on` the found type's place. */
static void take_place(ds_walker *w, ds_value_info *info, const ds_type *found) {
    if (info->type->on.kind != DS_PLACE_NONE || found->on.kind == DS_PLACE_NONE) return;
    ds_type *type = DS_NEW(&w->ck->unit->arena, ds_type);
    *type = *info->type;
    type->on = found->on;
    info->type = type;
}

void ds_verify__set_type(ds_walker *w, ds_value value, const ds_type *found, ds_loc loc,
                         const char *who, const char *verb) {
    ds_checker *ck = w->ck;
    ds_value_info *info = ds_value_at(w->func, value);
    w->defined[value.i] = DS_DEFINED;
    if (!info->type_written) {
        info->type = found ? ds_type_copy(&ck->unit->arena, found) : NULL;
        return;
    }
    const char *name = ds_verify__value_text(w, value);
    if (!ds_verify__check_type(ck, w->func, info->type, name, info->loc)) {
        w->defined[value.i] = DS_WRONG;
        return;
    }
    if (!found) return;
    const ds_type *seen = ds_verify__seen(ck, w->func, info->type);
    if (ds_verify__same_type(ck, w->func, NULL, seen, found) == DS_NO) {
        ds_verify__error(ck, DS_ERR_TYPE, loc, NULL, "%s is written as %s, but %s %s %s", name,
                         ds_verify__type_text(ck, info->type), who, verb,
                         ds_verify__type_text(ck, found));
        return;
    }
    take_place(w, info, found);
}

void ds_verify__set_results(ds_walker *w, const ds_op *op, const ds_type *const *found,
                            const char *who, const char *verb) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_loc loc = ds_value_at(w->func, op->out[i])->loc;
        ds_verify__set_type(w, op->out[i], found ? found[i] : NULL, loc, who, verb);
    }
}

/* ---- ops of the table ---- */

static bool check_over(ds_walker *w, const ds_op *op, const ds_place *on) {
    bool ok = true;
    /* These ops start from one coordinate of the axis, which the op table checks. */
    bool from_one = op->code == DS_OP_BROADCAST || op->code == DS_OP_SCATTER;
    for (uint32_t i = 0; i < op->n_over; i++) {
        const char *axis = op->over[i];
        if (!ds_verify__check_axis(w->ck, w->func->module, axis, op->loc)) {
            ok = false;
            continue;
        }
        for (uint32_t j = 0; j < i; j++)
            if (op->over[j] == axis) {
                ds_verify__error(w->ck, DS_ERR_NAME, op->loc, NULL,
                                 "'over' lists the axis '%s' twice", axis);
                ok = false;
                break;
            }
        if (!on || from_one || !ds_verify__is_fixed(on, axis)) continue;
        ds_verify__error(w->ck, DS_ERR_SHARDING, op->loc, NULL,
                         "%s over '%s': its operand lives on %s, which has one coordinate of '%s' "
                         "only",
                         ds_op_name(op->code), axis, ds_verify__place_text(w->ck, on), axis);
        ok = false;
    }
    return ok;
}

static bool check_clauses(ds_walker *w, const ds_op *op, const ds_place *on) {
    bool ok = check_over(w, op, on);
    for (uint32_t i = 0; i < op->n_to; i++)
        ok = ds_verify__check_place(w->ck, w->func, &op->to[i], op->loc) && ok;
    if (w->program) return ds_verify__rank_op(w->ck, w->program, w->func, op) && ok;
    if (!op->has_group && !DS_HAS_EXPR(op->to_rank) && !DS_HAS_EXPR(op->from_rank) &&
        !DS_HAS_EXPR(op->tag))
        return ok;
    ds_verify__error(w->ck, DS_ERR_TYPE, op->loc, NULL,
                     "ranks, tags and groups belong to the bodies of a per-rank program; in a "
                     "function, %s names axes ('over dp') or places ('to @m{pp=1}')",
                     ds_op_name(op->code));
    return false;
}

/* Without numbers, the size of an axis is known if the mesh writes a literal. */
static bool literal_size(void *context, const ds_place *on, const char *axis, int64_t *size) {
    ds_walker *w = context;
    ds_expr e = ds_verify__axis_size(w->ck, w->func, on, axis);
    return DS_HAS_EXPR(e) && ds_expr_is_int(&w->ck->unit->exprs, e, size);
}

static void table_op(ds_walker *w, const ds_op *op) {
    ds_checker *ck = w->ck;
    const ds_type **in = ds_xcalloc(op->n_in + 1, sizeof(ds_type *));
    ds_type **out = ds_xcalloc(op->n_out + 1, sizeof(ds_type *));
    bool known = true;
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = ds_verify__read(w, &op->in[i], NULL);
        known = known && in[i];
    }
    known = check_clauses(w, op, op->n_in && in[0] ? &in[0]->on : NULL) && known;
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_value_info *info = ds_value_at(w->func, op->out[i]);
        if (!info->type_written) continue;
        out[i] = ds_verify__seen(ck, w->func, info->type);
        known = ds_verify__check_type(ck, w->func, info->type, ds_verify__value_text(w, op->out[i]),
                                      info->loc) &&
                known;
    }
    ds_infer infer = {.unit = ck->unit,
                      .func = w->func,
                      .op = op,
                      .in = in,
                      .out = out,
                      .axis_size = literal_size,
                      .context = w,
                      .manual_axes = w->manual,
                      .n_manual = w->n_manual};
    ds_error err = {0};
    if (known && ds_op_infer(&infer, &err) != DS_OK) {
        ds_verify__pass_on(ck, &err);
        known = false;
    }
    if (known) {
        ds_verify__set_results(w, op, (const ds_type *const *)out, ds_op_name(op->code), "gives");
    } else {
        for (uint32_t i = 0; i < op->n_out; i++) w->defined[op->out[i].i] = DS_WRONG;
    }
    free(in);
    free(out);
}

static void weight(ds_walker *w, const ds_op *op) {
    if (op->n_out != 1) return;
    if (w->program)
        ds_verify__error(w->ck, DS_ERR_TYPE, op->loc, NULL,
                         "weight %%%s in a rank's body: a program takes its weights as arguments",
                         ds_value_at(w->func, op->out[0])->name);
    const ds_value_info *info = ds_value_at(w->func, op->out[0]);
    if (!info->type_written)
        ds_verify__error(w->ck, DS_ERR_TYPE, op->loc, NULL,
                         "weight %%%s needs a type, as in 'weight %%%s : f32[width, width]'",
                         info->name, info->name);
    ds_verify__set_results(w, op, NULL, "", "");
}

/* ---- models ---- */

static bool communicates(const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    return op->code == DS_OP_LOCAL || (desc && (desc->flags & (DS_OPF_COLLECTIVE | DS_OPF_HOST)));
}

static void refuse_in_model(ds_walker *w, const ds_op *op) {
    ds_verify__error(w->ck, DS_ERR_TYPE, op->loc, NULL,
                     op->code == DS_OP_LOCAL
                         ? "a '%s' region in @%s, which is part of a model: a model has the "
                           "computation alone; the shard pass makes the work of each device"
                         : "'%s' in @%s, which is part of a model: a model has the computation "
                           "alone; the shard pass makes the communication",
                     ds_op_name(op->code), w->func->name);
    for (uint32_t i = 0; i < op->n_out; i++) w->defined[op->out[i].i] = DS_WRONG;
}

/* ---- blocks ---- */

static bool is_end(ds_opcode code) {
    return code == DS_OP_YIELD || code == DS_OP_RETURN;
}

bool ds_verify__has_end(const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        if (is_end(block->ops[i]->code)) return true;
    return false;
}

static void check_end(ds_walker *w, const ds_op *op, bool last, ds_opcode end) {
    const char *name = ds_op_name(op->code);
    if (end != DS_OP_INVALID && op->code != end) {
        ds_verify__error(w->ck, DS_ERR_TYPE, op->loc, NULL,
                         op->code == DS_OP_RETURN
                             ? "'%s' inside a loop or a local region: these end in 'yield'"
                             : "'%s' in a function's body: a function ends in 'return'",
                         name);
    } else if (!last) {
        ds_verify__error(w->ck, DS_ERR_TYPE, op->loc, NULL,
                         "'%s' must be the last op of its block: a later op never runs", name);
    }
}

static void undefine(ds_walker *w, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        for (uint32_t k = 0; k < block->ops[i]->n_out; k++) w->defined[block->ops[i]->out[k].i] = 0;
}

void ds_verify__leave(ds_walker *w, const ds_op *region) {
    undefine(w, region->body);
    for (uint32_t i = 0; i < region->n_args; i++) w->defined[region->args[i].i] = 0;
}

void ds_verify__op(ds_walker *w, ds_op *op) {
    if (op->code < DS_OP_FIRST_TABLE_OP) ds_verify__op_attrs(w->ck, NULL, op);
    if (w->func->is_model && communicates(op)) {
        refuse_in_model(w, op);
        return;
    }
    switch (op->code) {
    case DS_OP_FOR:
        ds_verify__for(w, op);
        break;
    case DS_OP_LOCAL:
        ds_verify__local(w, op);
        break;
    case DS_OP_CALL:
        ds_verify__call(w, op);
        break;
    case DS_OP_REC:
        ds_verify__rec(w, op);
        break;
    case DS_OP_WEIGHT:
        weight(w, op);
        break;
    default:
        table_op(w, op);
        break;
    }
}

const ds_op *ds_verify__block(ds_walker *w, const ds_block *block, ds_opcode end) {
    const ds_op *found = NULL;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (!is_end(op->code)) {
            ds_verify__op(w, op);
            continue;
        }
        ds_verify__op_attrs(w->ck, NULL, op);
        check_end(w, op, i + 1 == block->n_ops, end);
        if (op->code == end && i + 1 == block->n_ops) found = op;
    }
    return found;
}

/* ---- functions ---- */

static void check_params(ds_checker *ck, const ds_func *func) {
    if (func->is_model && ds_func_open(func))
        ds_verify__error(ck, DS_ERR_TYPE, func->loc, NULL,
                         "@%s is part of a model and has %s: the strategy says where a model runs",
                         func->name, ds_func_open(func));
    if (func->index_param) ds_verify__index_name(ck, func->module, func->index_param, func->loc);
    for (uint32_t i = 0; i < func->n_mesh_params; i++) {
        const char *name = func->mesh_params[i];
        for (uint32_t j = 0; j < i; j++)
            if (func->mesh_params[j] == name)
                ds_verify__error(ck, DS_ERR_NAME, func->loc, NULL,
                                 "@%s has two mesh parameters named @%s", func->name, name);
        const ds_mesh *mesh = ds_find_mesh(func->module, name);
        if (mesh)
            ds_verify__error(ck, DS_ERR_NAME, func->loc, NULL,
                             "the mesh parameter @%s of @%s hides the mesh of that name (line %u)",
                             name, func->name, mesh->loc.line);
    }
}

void ds_verify__binders(ds_checker *ck, const ds_func *func, const ds_binder *binders, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        ds_verify__index_name(ck, func->module, binders[i].name, binders[i].loc);
        for (uint32_t j = 0; j < i; j++)
            if (binders[j].name == binders[i].name)
                ds_verify__error(ck, DS_ERR_NAME, binders[i].loc, NULL,
                                 "the index '%s' is listed twice", binders[i].name);
    }
}

static void check_signature(ds_walker *w) {
    ds_func *func = w->func;
    ds_map names;
    ds_map_init(&names);
    check_params(w->ck, func);
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        ds_verify__binders(w->ck, func, info->binders, info->n_binders);
        ds_verify__set_type(w, func->args[i], NULL, info->loc, "", "");
        ds_verify__arg_attrs(w->ck, info);
        if (ds_map_find(&names, DS_KEY(info->name)))
            ds_verify__error(w->ck, DS_ERR_NAME, info->loc, NULL,
                             "@%s has two arguments named %%%s", func->name, info->name);
        ds_map_put(&names, DS_KEY(info->name), 1);
    }
    ds_map_deinit(&names);
    for (uint32_t i = 0; i < func->n_results; i++) {
        const char *what =
            ds_arena_printf(&w->ck->diags->arena, "result %u of @%s", i + 1, func->name);
        w->wrong_results[i] =
            !ds_verify__check_type(w->ck, func, func->results[i], what, func->loc);
        if (func->result_binders)
            ds_verify__binders(w->ck, func, func->result_binders[i], func->n_result_binders[i]);
    }
}

static void check_result(ds_walker *w, const ds_op *ret, uint32_t i) {
    ds_checker *ck = w->ck;
    ds_func *func = w->func;
    const ds_value_info *family;
    const ds_type *type = ds_verify__read(w, &ret->in[i], &family);
    if (!type || w->wrong_results[i]) return;
    const char *name = ds_verify__value_text(w, ret->in[i].value);
    const ds_binder *binders = func->result_binders ? func->result_binders[i] : NULL;
    uint32_t n_binders = func->result_binders ? func->n_result_binders[i] : 0;
    if (ds_verify__same_binders(ck, NULL, binders, n_binders, family ? family->binders : NULL,
                                family ? family->n_binders : 0) == DS_NO) {
        ds_verify__error(ck, DS_ERR_TYPE, ret->in[i].loc, NULL,
                         family ? "%s is a family over %s; result %u of @%s is declared %s"
                                : "%s is one value%s; result %u of @%s is declared %s",
                         name, family ? ds_verify__binders_text(ck, family) : "", i + 1, func->name,
                         n_binders ? "as a family over another range" : "as one value");
        return;
    }
    if (family) type = ds_verify__rename(ck, type, family->binders, binders, n_binders);
    const ds_type *declared = ds_verify__seen(ck, func, func->results[i]);
    if (ds_verify__same_type(ck, func, NULL, declared, type) == DS_NO)
        ds_verify__error(ck, DS_ERR_TYPE, ret->in[i].loc, NULL, "%s is %s, but @%s declares %s",
                         name, ds_verify__type_text(ck, type), func->name,
                         ds_verify__type_text(ck, func->results[i]));
}

static void check_return(ds_walker *w, const ds_op *ret) {
    ds_func *func = w->func;
    if (!ret && func->rank >= 0 && !func->n_results) return;
    if (!ret) {
        if (!ds_verify__has_end(&func->body))
            ds_verify__error(w->ck, DS_ERR_TYPE, func->loc, NULL, "@%s does not end in 'return'",
                             func->name);
        return;
    }
    if (ret->n_in != func->n_results) {
        ds_verify__error(w->ck, DS_ERR_TYPE, ret->loc, NULL,
                         "@%s declares %u result%s and returns %u", func->name, func->n_results,
                         func->n_results == 1 ? "" : "s", ret->n_in);
        return;
    }
    for (uint32_t i = 0; i < ret->n_in; i++) check_result(w, ret, i);
}

/* ---- unused values ---- */

static void warn_unused_ops(ds_walker *w, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) warn_unused_ops(w, op->body);
        if (!op->n_out) continue;
        bool used = false;
        for (uint32_t k = 0; k < op->n_out; k++) {
            const ds_value_info *info = ds_value_at(w->func, op->out[k]);
            used = used || info->n_uses || info->name[0] == '_';
        }
        if (used) continue;
        const ds_value_info *info = ds_value_at(w->func, op->out[0]);
        ds_verify__warn(w->ck, info->loc, "%s%%%s is never used",
                        op->code == DS_OP_WEIGHT ? "weight " : "", info->name);
    }
}

static void warn_unused(ds_walker *w) {
    for (uint32_t i = 0; i < w->func->n_args; i++) {
        const ds_value_info *info = ds_value_at(w->func, w->func->args[i]);
        if (!info->n_uses && !info->n_attrs && info->name[0] != '_')
            ds_verify__warn(w->ck, info->loc, "argument %%%s of @%s is never used", info->name,
                            w->func->name);
    }
    warn_unused_ops(w, &w->func->body);
}

void ds_verify__func(ds_checker *ck, ds_func *func, const ds_program *program) {
    ds_walker w = {.ck = ck, .func = func, .program = program};
    w.defined = ds_xcalloc(func->values.n + 1, 1);
    w.wrong_results = ds_xcalloc(func->n_results + 1, sizeof *w.wrong_results);
    for (uint32_t i = 0; i < func->values.n; i++) {
        ds_value_info *info = &func->values.at[i];
        info->n_uses = 0;
        if (!info->type_written) info->type = NULL;
    }
    check_signature(&w);
    uint32_t errors = ck->diags->n_errors;
    const ds_op *ret = ds_verify__block(&w, &func->body, DS_OP_RETURN);
    check_return(&w, ret);
    if (func->rank < 0 && ck->diags->n_errors == errors) warn_unused(&w);
    free(w.manual);
    free(w.wrong_results);
    free(w.defined);
}
