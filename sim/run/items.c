/* The items of a pipelined step: which call of the step a scope belongs to.
 *
 * The pass pipeline makes a call for every item of the schedule, `{name = "F3", microbatch = 5}`
 * (ir/passes/pipeline/emit.c). A printed or handwritten program may have such calls, too. */
#include "sim/run/run.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The outermost call around a scope; DS_NONE: no call. */
static uint32_t outer_call(const ds_plan *plan, uint32_t scope) {
    uint32_t call = DS_NONE;
    for (uint32_t s = scope; s != DS_NONE; s = plan->scopes.at[s].up)
        if (plan->scopes.at[s].op && plan->scopes.at[s].op->code == DS_OP_CALL) call = s;
    return call;
}

bool ds_item_call_of(const ds_result *r, uint32_t scope, ds_item_call *out) {
    if (r->step && r->step->strategy.pp < 2) return false;
    uint32_t call = outer_call(r->plan, scope);
    if (call == DS_NONE) return false;
    const ds_scope *s = &r->plan->scopes.at[call];
    if (!r->step && s->microbatch == DS_NO_MICROBATCH) return false;
    const ds_attr *attr = ds_attr_find(s->op->attrs, s->op->n_attrs, "name");
    const char *name = ds_attr_text(&s->func->module->unit->exprs, attr);
    if (!name || !strchr("FBWR", *name) || !isdigit((unsigned char)name[1])) return false;
    *out = (ds_item_call){*name, strtoll(name + 1, NULL, 10), s->microbatch};
    if (s->microbatch == DS_NO_MICROBATCH) out->microbatch = 0; /* the only microbatch */
    return true;
}
