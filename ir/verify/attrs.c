/* Attributes of for, local, call, weight and function arguments, which are not in the op table. A
 * region has a name, a weight also a role; a call takes an op's common attributes, since a call
 * that states its cost is simulated as one op. */
#include "ir/verify/internal.h"

static void check_attrs(ds_checker *ck, const ds_env *env, const ds_attr *attrs, uint32_t n,
                        const char *const *specs, uint32_t n_specs, const char *who) {
    ds_infer ctx = {.unit = ck->unit, .env = env};
    for (uint32_t i = 0; i < n; i++) {
        ds_error err = {0};
        if (ds_op_check_attr(&ctx, &attrs[i], specs, n_specs, who, &err) != DS_OK)
            ds_verify__pass_on(ck, &err);
    }
}

void ds_verify__op_attrs(ds_checker *ck, const ds_env *env, const ds_op *op) {
    const char *const region[] = {"name:str"};
    const char *const weight[] = {"name:str", ds_op_role_attr, ds_op_input_attrs};
    const char *const call[] = {ds_op_common_attrs, "microbatch:int", "weights:ints"};
    const char *who = ds_op_name(op->code);
    if (op->code == DS_OP_CALL)
        check_attrs(ck, env, op->attrs, op->n_attrs, call, 3, who);
    else if (op->code == DS_OP_WEIGHT)
        check_attrs(ck, env, op->attrs, op->n_attrs, weight, 3, who);
    else
        check_attrs(ck, env, op->attrs, op->n_attrs, region, 1, who);
}

void ds_verify__arg_attrs(ds_checker *ck, const ds_value_info *arg) {
    const char *const specs[] = {ds_op_role_attr, ds_op_input_attrs};
    const char *who = ds_arena_printf(&ck->diags->arena, "the argument %%%s", arg->name);
    check_attrs(ck, NULL, arg->attrs, arg->n_attrs, specs, 2, who);
}
