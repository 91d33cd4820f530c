/* Times of tokens: the tasks of each turn of a rec's dim.
 *
 * Turns are scopes of loops by the name of the dim. Instances stand in the order of the text. What
 * stands between a loop that ends with the turn t - 1 and one that begins with t + 1 is the turn t,
 * and no more than one turn stands so (ds_temporal_program.turns); what stands between t - 1 and t
 * belongs to t - 1. A loop that begins again comes after the last turn, and belongs to that. */
#include "ir/strategy/tokens.h"

#include "sim/run/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct turns {
    const ds_result *r;
    ds_tokens of;
    uint32_t n;
    int64_t *of_scope; /* the turn; INT64_MIN: none */
    int64_t *of_inst;  /* the turn */
    bool *again;       /* by instance: in a loop that begins again, or in no turn of its own */
    int64_t *end_ps;   /* by turn */
    bool *works;       /* by turn: more than storing */
} turns;

static ds_status find_scopes(turns *t, ds_error *err) {
    const ds_plan *plan = t->r->plan;
    bool any = false;
    t->of_scope = ds_xcalloc((size_t)plan->scopes.n + 1, sizeof *t->of_scope);
    for (uint32_t i = 0; i < plan->scopes.n; i++) {
        const ds_scope *s = &plan->scopes.at[i];
        int64_t up = s->up == DS_NONE ? INT64_MIN : t->of_scope[s->up];
        bool is_loop = s->op && s->op->code == DS_OP_FOR;
        bool mine = up == INT64_MIN && is_loop && strcmp(s->op->index, t->of.dim) == 0;
        t->of_scope[i] = mine ? s->index : up;
        if (!mine) continue;
        any = true;
        for (uint32_t u = s->up; u != DS_NONE; u = plan->scopes.at[u].up)
            if (plan->scopes.at[u].op && plan->scopes.at[u].op->code == DS_OP_FOR)
                return ds_error_set(err, DS_ERR_UNSUPPORTED, t->of.loc,
                                    "the loops over %s run inside of a loop over %s, so no turn of "
                                    "%s is a token",
                                    t->of.dim, plan->scopes.at[u].op->index, t->of.dim);
    }
    if (any) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, t->of.loc,
                        "the schedule has no loop over %s: no turn is a token", t->of.dim);
}

/* Turns of loops that do not begin again, then what stands between loops. */
static void find_instances(turns *t) {
    const ds_plan *plan = t->r->plan;
    const int64_t none = INT64_MIN;
    int64_t now = t->of.lo - 1, next = t->of.hi;
    uint32_t n = plan->insts.n;
    t->of_inst = ds_xcalloc((size_t)n + 1, sizeof *t->of_inst);
    t->again = ds_xcalloc((size_t)n + 1, sizeof *t->again);
    int64_t *before = ds_xcalloc((size_t)n + 1, sizeof *before); /* the turn of the next loop */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t scope = plan->insts.at[i].scope;
        int64_t turn = scope == DS_NONE ? none : t->of_scope[scope];
        t->again[i] = turn != none && turn < now;
        t->of_inst[i] = turn >= now && turn < t->of.hi ? turn : none;
        if (t->of_inst[i] != none) now = turn;
    }
    for (uint32_t i = n; i-- > 0;) {
        if (t->of_inst[i] != none) next = t->of_inst[i];
        before[i] = next;
    }
    now = t->of.lo - 1;
    for (uint32_t i = 0; i < n; i++) {
        if (t->of_inst[i] != none) {
            now = t->of_inst[i];
            continue;
        }
        int64_t turn = before[i] == t->of.hi ? now + 1 : before[i] - 1;
        t->again[i] = t->again[i] || turn <= now || turn >= t->of.hi;
        if (turn < now) turn = now;
        if (turn >= t->of.hi) turn = t->of.hi - 1;
        t->of_inst[i] = turn < t->of.lo ? t->of.lo : turn;
    }
    free(before);
}

/* Does the op move values that are computed already, and compute none? */
static bool stores(const ds_op *op) {
    return !op || op->code == DS_OP_PUT || op->code == DS_OP_SLICE || op->code == DS_OP_RESHAPE ||
           op->code == DS_OP_ZEROS;
}

static const ds_op *op_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record]->op;
}

static void find_ends(turns *t) {
    const ds_plan *plan = t->r->plan;
    t->n = (uint32_t)(t->of.hi - t->of.lo);
    t->end_ps = ds_xcalloc(t->n, sizeof *t->end_ps);
    t->works = ds_xcalloc(t->n, sizeof *t->works);
    for (uint32_t k = 0; k < plan->n_tasks; k++) {
        uint32_t inst = plan->task_inst[k], turn = (uint32_t)(t->of_inst[inst] - t->of.lo);
        int64_t end_ps = ds_run_end_ps(&t->r->run, plan, k, plan->n_tasks - 1);
        if (end_ps > t->end_ps[turn]) t->end_ps[turn] = end_ps;
        if (!t->again[inst] && !stores(op_of(plan, inst))) t->works[turn] = true;
    }
    for (uint32_t i = 1; i < t->n; i++)
        if (t->end_ps[i] < t->end_ps[i - 1]) t->end_ps[i] = t->end_ps[i - 1];
    while (t->of.lo + t->n > t->of.prompt && !t->works[t->n - 1]) t->n--;
    t->end_ps[t->n - 1] = t->r->run.step_ps;
}

/* ---- the cache ---- */

/* Per value: the value whose buffer a stored value is in; of a store that each turn copies, the
 * first one. Buffers come before what takes them. */
static uint32_t *find_roots(const ds_plan *plan) {
    uint32_t *roots = ds_xcalloc((size_t)plan->values.n + 1, sizeof *roots);
    for (uint32_t v = 0; v < plan->values.n; v++) {
        const ds_vinst *value = &plan->values.at[v];
        const ds_inst *inst = &plan->insts.at[value->inst];
        const ds_op *op = op_of(plan, value->inst);
        uint32_t from = stores(op) && (!op || op->code != DS_OP_ZEROS) ? value->alias : DS_NONE;
        if (op && op->code == DS_OP_CONCAT && inst->n_reads == 1)
            from = plan->operands.at[inst->first_operand];
        roots[v] = from == DS_NONE ? v : roots[from];
    }
    return roots;
}

static int64_t bytes_of(const ds_plan *plan, uint32_t value, uint32_t cls) {
    const ds_vinst *v = &plan->values.at[value];
    const ds_record *record = plan->records.at[plan->insts.at[v->inst].record];
    for (uint32_t k = 0; k < record->n_classes; k++)
        if (record->classes[k] == cls)
            return record->variants[record->class_variant[k]].out_bytes[v->result];
    return 0;
}

static bool is_tiled(const ds_plan *plan, uint32_t value) {
    const ds_op *op = op_of(plan, plan->values.at[value].inst);
    return op && op->code == DS_OP_ZEROS && ds_attr_find(op->attrs, op->n_attrs, "tile");
}

/* The most that stores in tiles hold, and the turns in which they come to hold more. */
static int64_t follow_tiles(const turns *t, const uint32_t *roots, const uint8_t *uses,
                            uint8_t both, ds_token_times *out) {
    const ds_plan *plan = t->r->plan;
    const ds_mem_class *mem = &t->r->mem.classes[t->r->fullest];
    int64_t now = 0, most = 0;
    for (uint32_t e = 0; e < mem->n_events; e++) {
        uint32_t value = ds_mem_value(mem->events[e].value), root = roots[value];
        if (ds_mem_part(mem->events[e].value) || uses[root] != both || !is_tiled(plan, root))
            continue;
        now += mem->events[e].delta_bytes;
        if (now <= most) continue;
        most = now;
        int64_t turn = t->of_inst[plan->values.at[value].inst];
        if (!out->n_cache || out->cache[out->n_cache - 1].turn != turn) {
            if (!out->cache) out->cache = ds_xcalloc((size_t)t->n, sizeof *out->cache);
            if (out->n_cache == t->n) continue;
            out->cache[out->n_cache++].turn = turn;
        }
        out->cache[out->n_cache - 1].bytes = most;
    }
    return most;
}

static int64_t cache_bytes(const turns *t, ds_token_times *out) {
    enum { PUT = 1, READ = 2 };
    const ds_plan *plan = t->r->plan;
    uint8_t *uses = ds_xcalloc((size_t)plan->values.n + 1, sizeof *uses);
    uint32_t *roots = find_roots(plan);
    int64_t sum = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_op *op = op_of(plan, i);
        if (t->again[i] || !op) continue;
        for (uint32_t k = 0; k < inst->n_reads; k++) {
            uint32_t value = plan->operands.at[inst->first_operand + k];
            if (value == DS_NONE) continue;
            bool whole = op->code == DS_OP_PUT && k == 0;
            if (whole || op->code != DS_OP_PUT) uses[roots[value]] |= whole ? PUT : READ;
        }
    }
    for (uint32_t v = 0; v < plan->values.n; v++)
        if (uses[v] == (PUT | READ) && !is_tiled(plan, v))
            sum += bytes_of(plan, v, t->r->fullest) * ds_plan_times(plan, plan->values.at[v].inst);
    sum += follow_tiles(t, roots, uses, PUT | READ, out);
    free(roots);
    free(uses);
    return sum;
}

/* ---- the result ---- */

static void set_times(const turns *t, ds_token_times *out) {
    uint32_t first = (uint32_t)(t->of.prompt - t->of.lo) - 1;
    *out = (ds_token_times){.dim = t->of.dim, .prompt = t->of.prompt, .batch = t->of.batch};
    out->first_ps = t->end_ps[first];
    out->n = t->n - 1 - first;
    out->ps = ds_xcalloc((size_t)out->n + 1, sizeof *out->ps);
    for (uint32_t i = 0; i < out->n; i++)
        out->ps[i] = t->end_ps[first + 1 + i] - t->end_ps[first + i];
    int64_t sum = t->end_ps[t->n - 1] - out->first_ps;
    out->mean_ps = ds_ratio((double)sum, (double)out->n);
    if (sum > 0) out->per_s = (double)out->batch / (out->mean_ps * 1e-12);
    out->cache_bytes = cache_bytes(t, out);
}

/* A prompt that fills all turns asks for a token that a rec of tokens alone does not yield. */
static ds_status check_first(const turns *t, ds_error *err) {
    for (uint32_t i = 0; i < t->n; i++)
        if (t->works[i]) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, t->of.loc,
                        "no turn of %s computes anything, so the turn %s = %lld makes no token: no "
                        "result needs one (prompt = %lld, and %s goes from %lld to %lld)",
                        t->of.dim, t->of.dim, (long long)t->of.prompt - 1, (long long)t->of.prompt,
                        t->of.dim, (long long)t->of.lo, (long long)t->of.hi - 1);
}

ds_status ds_run__tokens(ds_result *r, ds_error *err) {
    turns t = {.r = r};
    DS_TRY(ds_tokens_read(r->source, &t.of, err));
    if (!t.of.is_given) return DS_OK;
    if (t.of.hi - t.of.lo > DS_PLAN_MAX_INSTANCES)
        return ds_error_set(err, DS_ERR_LIMIT, t.of.loc, "%s has %lld turns; at most %u", t.of.dim,
                            (long long)(t.of.hi - t.of.lo), DS_PLAN_MAX_INSTANCES);
    ds_status status = find_scopes(&t, err);
    if (status == DS_OK) {
        find_instances(&t);
        find_ends(&t);
        status = check_first(&t, err);
    }
    if (status == DS_OK) {
        r->tokens = ds_xcalloc(1, sizeof *r->tokens);
        set_times(&t, r->tokens);
        r->metrics.first_token_ps = r->tokens->first_ps;
        r->metrics.token_ps = llround(r->tokens->mean_ps);
        r->metrics.tokens_per_s = r->tokens->per_s;
        r->metrics.cache_bytes = r->tokens->cache_bytes;
    }
    free(t.of_scope);
    free(t.of_inst);
    free(t.again);
    free(t.end_ps);
    free(t.works);
    return status;
}
