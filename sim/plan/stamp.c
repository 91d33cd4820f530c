/* Calls that repeat: a pipeline calls one function for every microbatch.
 *
 * What a call leaves in the plan depends on its function and context, and on its operands only in
 * which value instances stand where. So the second call of a context follows the body once more
 * with *symbols* as operands, apart from the plan, and keeps the instances that this gives: a
 * stamp. That call and all later ones copy the stamp with their own operands in the place of
 * symbols.
 *
 * Symbols 0 … n_leaves are the values that the arguments consist of, families element by element;
 * those behind them are the values made inside, in their order. Functions that call others, wait
 * (`after`) or look at ranks are followed each time. */
#include "sim/plan/walk.h"

#include <stdlib.h>
#include <string.h>

typedef struct stamp {
    bool usable;
    ds_slot *args;    /* of symbols: which shape the operands have */
    ds_slot *results; /* of symbols */
    uint32_t n_leaves;
    const ds_op **ops; /* per instance: its op where operands say more of its results, or NULL */
    /* As in the plan; instances, values and operands are symbols, scope 0 is the call's. */
    DS_VEC(ds_inst) insts;
    DS_VEC(ds_vinst) values; /* those made inside */
    DS_VEC(uint32_t) operands;
    DS_VEC(ds_scope) scopes;
    uint32_t *leaf; /* this call's values, by symbol */
} stamp;

/* ---- making one ---- */

static bool is_plain(const ds_block *body) {
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        if (op->code == DS_OP_CALL || op->code == DS_OP_LOCAL || op->code == DS_OP_AFTER)
            return false;
        if (op->code == DS_OP_FOR && !is_plain(op->body)) return false;
    }
    return true;
}

/* The shape of a slot, with symbols for its values. */
static ds_slot symbols(ds_builder *b, const ds_slot *of, uint32_t *n) {
    if (!of->family) return (ds_slot){.value = of->value == DS_NONE ? DS_NONE : (*n)++};
    ds_family *family = DS_NEW(&b->plan->arena, ds_family);
    *family = (ds_family){of->family->lo, of->family->n,
                          DS_NEW_N(&b->plan->arena, ds_slot, of->family->n)};
    for (int64_t i = 0; i < family->n; i++) family->at[i] = symbols(b, &of->family->at[i], n);
    return (ds_slot){.value = DS_NONE, .family = family};
}

/* Follows the body on symbols. The plan's lists are put aside meanwhile. */
static ds_status follow(ds_builder *b, const ds_context *ctx, stamp *s) {
    ds_plan *plan = b->plan, aside = *plan;
    const ds_func *func = ctx->func;
    memset(&plan->insts, 0, sizeof plan->insts);
    memset(&plan->values, 0, sizeof plan->values);
    memset(&plan->operands, 0, sizeof plan->operands);
    memset(&plan->scopes, 0, sizeof plan->scopes);
    ds_vinst symbol = {.alias = DS_NONE};
    for (uint32_t i = 0; i < s->n_leaves; i++) DS_HPUSH(&plan->values, symbol);
    ds_scope call = {.up = DS_NONE, .func = func, .microbatch = DS_NO_MICROBATCH};
    DS_HPUSH(&plan->scopes, call);
    ds_frame f = {.ctx = ctx, .rank_device = DS_NONE};
    f.slots = ds_xmalloc((func->values.n + 1) * sizeof *f.slots);
    for (uint32_t i = 0; i < func->values.n; i++) f.slots[i] = DS_EMPTY_SLOT;
    for (uint32_t i = 0; i < func->n_args; i++) f.slots[func->args[i].i] = s->args[i];
    b->on_symbols = true;
    ds_status status = ds_plan__block(b, &f, &func->body, ds_plan__indices(ctx), s->results,
                                      func->n_results, NULL);
    b->on_symbols = false;
    memcpy(&s->insts, &plan->insts, sizeof s->insts);
    memcpy(&s->values, &plan->values, sizeof s->values);
    memcpy(&s->operands, &plan->operands, sizeof s->operands);
    memcpy(&s->scopes, &plan->scopes, sizeof s->scopes);
    memcpy(&plan->insts, &aside.insts, sizeof plan->insts);
    memcpy(&plan->values, &aside.values, sizeof plan->values);
    memcpy(&plan->operands, &aside.operands, sizeof plan->operands);
    memcpy(&plan->scopes, &aside.scopes, sizeof plan->scopes);
    free(f.slots);
    return status;
}

static void free_lists(stamp *s) {
    free(s->insts.at);
    free(s->values.at);
    free(s->operands.at);
    free(s->scopes.at);
    free(s->leaf);
    free(s->ops);
}

static stamp *make(ds_builder *b, const ds_context *ctx, const ds_slot *args) {
    ds_arena *arena = &b->plan->arena;
    const ds_func *func = ctx->func;
    stamp *s = DS_NEW(arena, stamp);
    s->args = DS_NEW_N(arena, ds_slot, func->n_args);
    s->results = DS_NEW_N(arena, ds_slot, func->n_results);
    for (uint32_t i = 0; i < func->n_results; i++) s->results[i] = DS_EMPTY_SLOT;
    for (uint32_t i = 0; i < func->n_args; i++) s->args[i] = symbols(b, &args[i], &s->n_leaves);
    DS_HPUSH(&b->stamps, s);
    s->usable = follow(b, ctx, s) == DS_OK;
    s->leaf = ds_xcalloc(s->n_leaves, sizeof *s->leaf);
    s->ops = ds_xcalloc(s->insts.n, sizeof *s->ops);
    for (uint32_t i = 0; i < s->insts.n; i++) {
        const ds_record *r = b->plan->records.at[s->insts.at[i].record];
        bool ranges = false;
        for (uint32_t k = 0; r->op && k < r->op->n_in; k++)
            ranges = ranges || ds_plan__has_range(&r->op->in[k]);
        if (!ranges && ds_plan__inherits(r->op, r)) s->ops[i] = r->op;
    }
    return s;
}

void ds_plan__stamps_deinit(ds_builder *b) {
    for (uint32_t i = 0; i < b->stamps.n; i++) free_lists(b->stamps.at[i]);
    free(b->stamps.at);
    ds_map_deinit(&b->stamp_of);
}

/* The context's stamp; NULL: this is its first call, or none can be made. */
static stamp *find_stamp(ds_builder *b, const ds_context *ctx, const ds_slot *args) {
    const uint64_t *found = ds_map_find(&b->stamp_of, DS_KEY(ctx));
    if (!found) { /* most functions are called once */
        ds_map_put(&b->stamp_of, DS_KEY(ctx), 0);
        return NULL;
    }
    if (*found) return (stamp *)(uintptr_t)*found;
    if (!is_plain(&ctx->func->body)) return NULL;
    stamp *s = make(b, ctx, args);
    ds_map_put(&b->stamp_of, DS_KEY(ctx), DS_KEY(s));
    return s;
}

/* ---- using it ---- */

/* Puts the values of a slot in the places of the symbols; false if it has another shape. */
static bool match(const ds_slot *symbol, const ds_slot *actual, uint32_t *leaf) {
    if (!symbol->family) {
        if (actual->family || (symbol->value == DS_NONE) != (actual->value == DS_NONE))
            return false;
        if (symbol->value != DS_NONE) leaf[symbol->value] = actual->value;
        return true;
    }
    const ds_family *a = symbol->family, *z = actual->family;
    if (!z || a->lo != z->lo || a->n != z->n) return false;
    for (int64_t i = 0; i < a->n; i++)
        if (!match(&a->at[i], &z->at[i], leaf)) return false;
    return true;
}

static uint32_t value_of(const stamp *s, uint32_t symbol, uint32_t first) {
    return symbol < s->n_leaves ? s->leaf[symbol] : first + (symbol - s->n_leaves);
}

static ds_slot result_of(ds_builder *b, const stamp *s, const ds_slot *symbol, uint32_t first) {
    if (!symbol->family) {
        bool set = symbol->value != DS_NONE;
        return (ds_slot){.value = set ? value_of(s, symbol->value, first) : DS_NONE};
    }
    ds_family *family = DS_NEW(&b->plan->arena, ds_family);
    *family = (ds_family){symbol->family->lo, symbol->family->n,
                          DS_NEW_N(&b->plan->arena, ds_slot, symbol->family->n)};
    for (int64_t i = 0; i < family->n; i++)
        family->at[i] = result_of(b, s, &symbol->family->at[i], first);
    return (ds_slot){.value = DS_NONE, .family = family};
}

/* Room for n more at the end of a list of the plan. */
#define RESERVE(v, more)                                                                           \
    while ((v)->cap - (v)->n < (more))                                                             \
    (v)->at = ds_vec_grow_heap((v)->at, &(v)->cap, sizeof *(v)->at)

static uint32_t add_scopes(ds_plan *plan, const stamp *s, uint32_t call) {
    uint32_t before = plan->scopes.n - 1; /* scope 1 of the stamp is the next one */
    RESERVE(&plan->scopes, s->scopes.n);
    for (uint32_t i = 1; i < s->scopes.n; i++) {
        ds_scope scope = s->scopes.at[i];
        scope.up = scope.up ? before + scope.up : call;
        if (scope.microbatch == DS_NO_MICROBATCH)
            scope.microbatch = plan->scopes.at[scope.up].microbatch;
        plan->scopes.at[plan->scopes.n++] = scope;
    }
    return before;
}

static void read_operands(ds_builder *b, const stamp *s, uint32_t inst, uint32_t first) {
    const ds_inst *from = &s->insts.at[inst];
    b->reads.n = 0;
    for (uint32_t k = 0; k < from->n_reads; k++)
        DS_HPUSH(&b->reads, value_of(s, s->operands.at[from->first_operand + k], first));
}

static void add_insts(ds_builder *b, const stamp *s, uint32_t call) {
    ds_plan *plan = b->plan;
    uint32_t first_inst = plan->insts.n, first = plan->values.n;
    uint32_t before = add_scopes(plan, s, call);
    RESERVE(&plan->insts, s->insts.n);
    RESERVE(&plan->values, s->values.n);
    for (uint32_t v = s->n_leaves; v < s->values.n; v++) {
        ds_vinst *value = &plan->values.at[plan->values.n++];
        *value = s->values.at[v];
        value->inst += first_inst;
    }
    for (uint32_t i = 0; i < s->insts.n; i++) {
        ds_inst *inst = &plan->insts.at[plan->insts.n++];
        *inst = s->insts.at[i];
        inst->scope = inst->scope ? before + inst->scope : call;
        inst->first_operand = plan->operands.n;
        inst->first_value = first + (inst->first_value - s->n_leaves);
        read_operands(b, s, i, first);
        ds_plan__push_operands(b, b->reads.at, b->reads.n);
        const ds_record *r = plan->records.at[inst->record];
        for (uint32_t k = 0; k < r->n_out && s->ops[i]; k++)
            ds_plan__inherit(b, s->ops[i], r, k, b->reads.at,
                             &plan->values.at[inst->first_value + k]);
    }
}

bool ds_plan__stamp(ds_builder *b, const ds_context *ctx, const ds_slot *args, uint32_t scope,
                    ds_slot *results) {
    const ds_plan *plan = b->plan;
    uint32_t limit = ds_plan__limit(b);
    if (b->on_symbols) return false;
    stamp *s = find_stamp(b, ctx, args);
    if (!s || !s->usable) return false;
    if (plan->insts.n + s->insts.n > limit || plan->scopes.n + s->scopes.n > limit) return false;
    for (uint32_t i = 0; i < ctx->func->n_args; i++)
        if (!match(&s->args[i], &args[i], s->leaf)) return false;
    uint32_t first = plan->values.n;
    add_insts(b, s, scope);
    for (uint32_t i = 0; i < ctx->func->n_results; i++)
        results[i] = result_of(b, s, &s->results[i], first);
    return true;
}
