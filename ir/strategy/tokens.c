/* `tokens`: reading and checking. */
#include "ir/strategy/tokens.h"

#include "ir/base/map.h"
#include "ir/core/rec.h"
#include "ir/strategy/scenario.h"

#include <string.h>

typedef struct finder {
    const char *dim;
    const ds_op *found; /* the first rec with the dim */
    ds_map seen;
    ds_buf others; /* dims of the recs without it: "t, l" */
} finder;

static void find_in(finder *f, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops && !f->found; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t d = 0; op->code == DS_OP_REC && d < op->n_dims; d++) {
            if (strcmp(op->dims[d].name, f->dim) == 0) f->found = op;
            ds_buf_printf(&f->others, "%s%s", f->others.n ? ", " : "", op->dims[d].name);
        }
        if (op->code != DS_OP_REC && op->body) find_in(f, op->body);
        if (op->code != DS_OP_CALL || !op->callee || ds_map_find(&f->seen, DS_KEY(op->callee)))
            continue;
        ds_map_put(&f->seen, DS_KEY(op->callee), 1);
        find_in(f, &op->callee->body);
    }
}

static ds_status find_rec(const ds_func *func, const ds_attr *at, const char *dim,
                          const ds_op **out, ds_error *err) {
    finder f = {.dim = dim};
    ds_map_init(&f.seen);
    find_in(&f, &func->body);
    ds_status status = DS_OK;
    if (!f.found && f.others.n)
        status =
            ds_error_set(err, DS_ERR_NAME, at->loc, "no rec of @%s has the dim '%s'; there are %s",
                         func->name, dim, f.others.text);
    else if (!f.found)
        status =
            ds_error_set(err, DS_ERR_NAME, at->loc,
                         "@%s has no rec, so '%s' is no dim that counts tokens", func->name, dim);
    *out = f.found;
    ds_map_deinit(&f.seen);
    ds_buf_deinit(&f.others);
    return status;
}

static ds_status check_prompt(const ds_tokens *t, const ds_attr *at, ds_error *err) {
    if (t->prompt > t->lo && t->prompt <= t->hi) return DS_OK;
    if (t->hi <= t->lo)
        return ds_error_set(err, DS_ERR_VALUE, at->loc,
                            "'tokens' needs a turn that makes a token: %s has %lld turns", t->dim,
                            (long long)(t->hi - t->lo));
    return ds_error_set(err, DS_ERR_VALUE, at->loc,
                        "prompt = %lld is out of range: %s goes from %lld to %lld, and the turn "
                        "%s = prompt - 1 makes the first token, so prompt = %lld to %lld",
                        (long long)t->prompt, t->dim, (long long)t->lo, (long long)t->hi - 1,
                        t->dim, (long long)t->lo + 1, (long long)t->hi);
}

ds_status ds_tokens_read(const ds_binding *binding, ds_tokens *out, ds_error *err) {
    static const char *const needed[] = {"dim", "prompt", "batch"};
    const ds_unit *unit = binding->unit;
    const ds_attr *block = ds_scenario_find(unit, "", "tokens"), *at[3];
    *out = (ds_tokens){0};
    if (!block || block->kind != DS_ATTR_BLOCK) return DS_OK;
    out->loc = block->loc;
    for (uint32_t i = 0; i < 3; i++) {
        at[i] = ds_scenario_find(unit, "tokens", needed[i]);
        if (!at[i])
            return ds_error_set(err, DS_ERR_VALUE, block->loc,
                                "'tokens' says no '%s': write tokens { dim = t, prompt = P, batch "
                                "= B }",
                                needed[i]);
    }
    if (ds_scenario_n_jobs(unit))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, block->loc,
                            "'tokens' is of one model, and this scenario has jobs");
    const ds_func *func = ds_scenario_model(unit);
    if (!func)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, block->loc,
                            "'tokens' is for a model, or a program, with a rec");
    DS_TRY(ds_scenario_text(binding, "tokens", "dim", &out->dim, err));
    DS_TRY(ds_scenario_int(binding, "tokens", "prompt", &out->prompt, err));
    DS_TRY(ds_scenario_int(binding, "tokens", "batch", &out->batch, err));
    const ds_op *rec;
    DS_TRY(find_rec(func, at[0], out->dim, &rec, err));
    ds_env env = ds_binding_env(binding, NULL);
    for (uint32_t d = 0; d < rec->n_dims; d++) {
        if (strcmp(rec->dims[d].name, out->dim) != 0) continue;
        DS_TRY(ds_expr_eval_int(&env, rec->dims[d].lo, rec->dims[d].loc, &out->lo, err));
        DS_TRY(ds_expr_eval_int(&env, rec->dims[d].hi, rec->dims[d].loc, &out->hi, err));
    }
    out->is_given = true;
    return check_prompt(out, at[1], err);
}
