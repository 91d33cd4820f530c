/* Which ops of a block depend on an index: the others need one check, not one for each turn. */
#include "ir/verify/internal.h"

typedef struct asker {
    const ds_exprs *exprs;
    const ds_func *func;
} asker;

static bool expr_mentions(const asker *a, ds_expr e, const char *name) {
    return DS_HAS_EXPR(e) && ds_expr_mentions(a->exprs, e, name);
}

/* A bare read in a rec is at the point where the op is: the type alone may depend on the point. */
static bool use_mentions(const asker *a, const ds_use *use, const char *name) {
    const ds_value_info *info = ds_value_at(a->func, use->value);
    if (use->bare) return info->type && ds_type_mentions(a->exprs, info->type, name);
    for (uint32_t i = 0; i < use->n_index; i++)
        if (expr_mentions(a, use->index[i], name) ||
            (use->index_hi && expr_mentions(a, use->index_hi[i], name)))
            return true;
    return false;
}

static bool values_mention(const asker *a, const ds_value *values, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++) {
        const ds_value_info *info = ds_value_at(a->func, values[i]);
        if (info->type && ds_type_mentions(a->exprs, info->type, name)) return true;
    }
    return false;
}

static bool op_mentions(const asker *a, const ds_op *op, const char *name) {
    const ds_expr own[] = {op->dim, op->dim_to, op->to_rank, op->from_rank,
                           op->tag, op->lo,     op->hi,      op->index_arg};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (expr_mentions(a, own[i], name)) return true;
    for (uint32_t i = 0; i < op->n_conds; i++)
        if (expr_mentions(a, op->conds[i], name)) return true;
    for (uint32_t i = 0; i < op->n_group; i++)
        if (expr_mentions(a, op->group[i], name)) return true;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (use_mentions(a, &op->in[i], name)) return true;
    if (ds_attrs_mention(a->exprs, op->attrs, op->n_attrs, name)) return true;
    for (uint32_t i = 0; i < op->n_to; i++)
        if (ds_place_mentions(a->exprs, &op->to[i], name)) return true;
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        if (ds_place_mentions(a->exprs, &op->mesh_args[i], name)) return true;
    return values_mention(a, op->out, op->n_out, name) ||
           values_mention(a, op->args, op->n_args, name);
}

static void look_at(const asker *a, const ds_block *block, const char *name, ds_dependence *out) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        out->ops++;
        out->mentions = out->mentions || op_mentions(a, op, name);
        if (op->body) look_at(a, op->body, name, out);
    }
}

void ds_verify__depends(const ds_checker *ck, const ds_func *func, const ds_block *block,
                        const char *name, ds_dependence *out) {
    const asker a = {&ck->unit->exprs, func};
    look_at(&a, block, name, out);
}
