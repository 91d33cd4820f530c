/* Which buffers parts take and free: sim/mem/mem.c's rules, once for the sibling.
 *
 * A buffer is freed by the part that is the last one to use it, at the latest end among its users
 * there; that the users elsewhere have ended by then, and that an op which takes its operand's
 * buffer finds it idle, is checked for every execution (ds_before). What hosts keep is left out. */
#include "search/compose/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct use {
    uint32_t inst, next;
    bool takes; /* it takes the buffer: all users before have ended when it starts */
} use;

typedef struct analysis {
    ds_sibling *s;
    const ds_plan *plan;
    uint32_t *root, *last_read; /* per value */
    uint32_t *first, *last;     /* per root: its uses, in order of the program */
    bool *stays;                /* per root: an output */
    uint32_t *taker;            /* per root: instance that takes it if nobody uses it any more */
    DS_VEC(use) uses;
} analysis;

static const ds_record *record_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record];
}

static int64_t bytes_of(const ds_plan *plan, uint32_t value, uint32_t pos) {
    const ds_record *r = record_of(plan, plan->values.at[value].inst);
    return r->variants[r->class_variant[pos]].out_bytes[plan->values.at[value].result];
}

static bool has_bytes_of(const ds_plan *plan, uint32_t a, uint32_t b) {
    const ds_record *r = record_of(plan, plan->values.at[a].inst);
    const ds_record *other = record_of(plan, plan->values.at[b].inst);
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t at = ds_record_class_pos(other, r->classes[pos]);
        if (bytes_of(plan, a, pos) != (at == DS_NONE ? 0 : bytes_of(plan, b, at))) return false;
    }
    return true;
}

static uint32_t task_on(const ds_plan *plan, uint32_t inst, uint32_t cls) {
    uint32_t pos = ds_record_class_pos(record_of(plan, inst), cls);
    return pos == DS_NONE ? DS_NONE : plan->insts.at[inst].first_task + pos;
}

static void add_use(analysis *x, uint32_t root, uint32_t inst, bool takes) {
    uint32_t last = x->last[root];
    if (last != DS_NONE && x->uses.at[last].inst == inst) {
        x->uses.at[last].takes |= takes;
        return;
    }
    if (last == DS_NONE)
        x->first[root] = x->uses.n;
    else
        x->uses.at[last].next = x->uses.n;
    x->last[root] = x->uses.n;
    DS_HPUSH(&x->uses, ((use){inst, DS_NONE, takes}));
}

/* ---- who takes whose buffer ---- */

static uint32_t unit_of(const analysis *x, uint32_t task) {
    return x->s->unit_of[task];
}

static bool must_end(analysis *x, ds_part *part, uint32_t user, uint32_t task, uint32_t until) {
    uint32_t owner = x->s->owner[user];
    ds_before check = {
        .local = &x->s->parts[owner] == part, .unit = unit_of(x, task), .until = until};
    if (!check.local) {
        if (!ds_compose__source(x->s, part, owner, &check.source)) return false;
    }
    DS_HPUSH(&part->body->checks, check);
    return true;
}

/* Does `inst`, or somebody who uses the buffer later, follow the use on its stream, in the whole
 * step as in the sibling? Those end later, too. inst DS_NONE: nobody takes the buffer. */
static bool is_superseded(const analysis *x, uint32_t use_at, uint32_t cls, uint32_t inst) {
    const ds_plan *plan = x->plan;
    uint32_t user = x->uses.at[use_at].inst, owner = x->s->owner[user];
    uint32_t own = plan->task_stream[task_on(plan, user, cls)];
    if (inst != DS_NONE && plan->task_stream[task_on(plan, inst, cls)] == own &&
        ds_compose__in_order(x->s, owner, x->s->owner[inst]))
        return true;
    for (uint32_t u = x->uses.at[use_at].next; u != DS_NONE; u = x->uses.at[u].next) {
        uint32_t task = task_on(plan, x->uses.at[u].inst, cls);
        if (task != DS_NONE && plan->task_stream[task] == own &&
            ds_compose__in_order(x->s, owner, x->s->owner[x->uses.at[u].inst]))
            return true;
    }
    return false;
}

/* The use of a class from which on uses matter. */
static uint32_t first_that_matters(const analysis *x, uint32_t root, uint32_t cls) {
    uint32_t first = x->first[root];
    for (uint32_t u = first; u != DS_NONE; u = x->uses.at[u].next)
        if (x->uses.at[u].takes && task_on(x->plan, x->uses.at[u].inst, cls) != DS_NONE) first = u;
    return first;
}

/* Do only ops of the same part use the buffer on other streams, as what copies it to a host does?
 * Then it depends on when they end who has it. */
static bool is_contended(const analysis *x, uint32_t root, uint32_t inst) {
    const ds_record *r = record_of(x->plan, inst);
    bool any = false;
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t u = first_that_matters(x, root, r->classes[pos]);
        for (; u != DS_NONE; u = x->uses.at[u].next) {
            uint32_t user = task_on(x->plan, x->uses.at[u].inst, r->classes[pos]);
            if (user == DS_NONE || is_superseded(x, u, r->classes[pos], inst)) continue;
            if (x->s->owner[x->uses.at[u].inst] != x->s->owner[inst]) return false;
            any = true;
        }
    }
    return any;
}

/* The op takes the buffer: those who used it on other streams must be done. */
static bool must_be_idle(analysis *x, uint32_t root, uint32_t inst) {
    const ds_record *r = record_of(x->plan, inst);
    ds_part *part = &x->s->parts[x->s->owner[inst]];
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t task = x->plan->insts.at[inst].first_task + pos;
        uint32_t u = first_that_matters(x, root, r->classes[pos]);
        for (; u != DS_NONE; u = x->uses.at[u].next) {
            uint32_t user = task_on(x->plan, x->uses.at[u].inst, r->classes[pos]);
            if (user == DS_NONE || is_superseded(x, u, r->classes[pos], inst)) continue;
            if (!must_end(x, part, x->uses.at[u].inst, user, unit_of(x, task))) return false;
        }
    }
    return true;
}

static bool may_reuse(const analysis *x, uint32_t value) {
    const ds_vinst *v = &x->plan->values.at[value];
    if (v->alias == DS_NONE) return false;
    if (v->is_state) return true;
    uint32_t root = x->root[v->alias];
    return x->last_read[v->alias] == v->inst && has_bytes_of(x->plan, value, v->alias) &&
           has_bytes_of(x->plan, v->alias, value) && !x->stays[root] &&
           record_of(x->plan, x->plan->values.at[root].inst)->kind != DS_REC_INPUT;
}

static bool find_roots(analysis *x) {
    const ds_plan *plan = x->plan;
    for (uint32_t v = 0; v < plan->values.n; v++)
        x->last_read[v] = x->first[v] = x->last[v] = x->taker[v] = DS_NONE;
    for (uint32_t i = 0; i < plan->insts.n; i++)
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i); k++)
            x->last_read[plan->operands.at[plan->insts.at[i].first_operand + k]] = i;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *r = record_of(plan, i);
        for (uint32_t v = inst->first_value; v < inst->first_value + r->n_out; v++) {
            bool reuses = may_reuse(x, v);
            if (reuses && !plan->values.at[v].is_state &&
                is_contended(x, x->root[plan->values.at[v].alias], i)) {
                x->taker[x->root[plan->values.at[v].alias]] = i;
                reuses = false;
            }
            x->root[v] = reuses ? x->root[plan->values.at[v].alias] : v;
            if (reuses && !plan->values.at[v].is_state && !must_be_idle(x, x->root[v], i))
                return false;
        }
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i); k++)
            add_use(x, x->root[plan->operands.at[inst->first_operand + k]], i, false);
        for (uint32_t v = inst->first_value; v < inst->first_value + r->n_out; v++) {
            add_use(x, x->root[v], i, x->root[v] != v);
            if (plan->values.at[v].is_output) x->stays[x->root[v]] = true;
        }
    }
    return true;
}

/* ---- events ---- */

static bool free_there(analysis *x, ds_part *part, uint32_t root, uint32_t cls, int64_t bytes) {
    ds_body *body = part->body;
    uint32_t own = (uint32_t)(part - x->s->parts), n = body->frees.n;
    uint32_t taker = x->taker[root];
    ds_free event = {.cls = ds_compose__class_place(part, cls),
                     .first = body->users.n,
                     .bytes = bytes,
                     .taker = taker == DS_NONE ? DS_NONE : unit_of(x, task_on(x->plan, taker, cls)),
                     .value = root};
    uint32_t u = first_that_matters(x, root, cls);
    for (; u != DS_NONE; u = x->uses.at[u].next) {
        uint32_t inst = x->uses.at[u].inst, task = task_on(x->plan, inst, cls);
        if (task == DS_NONE) continue;
        if (x->s->owner[inst] == own) {
            DS_HPUSH(&body->users, unit_of(x, task));
            event.n++;
        } else if (!is_superseded(x, u, cls, DS_NONE) &&
                   !must_end(x, part, inst, task, body->units.n + n)) {
            return false;
        }
    }
    DS_HPUSH(&body->frees, event);
    return true;
}

static void free_after(ds_part *part, uint32_t unit, uint32_t cls, int64_t bytes) {
    ds_body *body = part->body;
    DS_HPUSH(&body->frees, ((ds_free){.cls = ds_compose__class_place(part, cls),
                                      .first = body->users.n,
                                      .n = 1,
                                      .bytes = bytes,
                                      .taker = DS_NONE}));
    DS_HPUSH(&body->users, unit);
}

/* The part that uses the buffer last on a class; *inst: its last user there. */
static uint32_t last_owner(const analysis *x, uint32_t root, uint32_t cls, uint32_t *inst) {
    uint32_t owner = DS_NONE;
    for (uint32_t u = x->first[root]; u != DS_NONE; u = x->uses.at[u].next) {
        if (task_on(x->plan, x->uses.at[u].inst, cls) == DS_NONE) continue;
        *inst = x->uses.at[u].inst;
        owner = x->s->owner[*inst];
    }
    return owner;
}

/* What an op of the tail frees that is there for each microbatch is freed each time: that is right
 * for what the microbatch has left, and for the sum so far, in whose place a new one comes. */
static bool check_each(analysis *x, uint32_t maker, uint32_t user, uint32_t cls, int64_t bytes) {
    ds_sibling *s = x->s;
    uint32_t task = task_on(x->plan, user, cls);
    if (!s->parts[s->owner[maker]].tail)
        return s->parts[s->owner[maker]].turn == DS_MIDDLE ||
               ds_compose__unknown(s, "sums over microbatches of another kind");
    uint32_t pos = task - x->plan->insts.at[user].first_task;
    return bytes_of(x->plan, x->plan->insts.at[user].first_value, pos) == bytes ||
           ds_compose__unknown(s, "sums over microbatches of another kind");
}

static bool add_buffer(analysis *x, uint32_t root, uint32_t pos) {
    ds_sibling *s = x->s;
    uint32_t maker = x->plan->values.at[root].inst, user = DS_NONE;
    const ds_record *r = record_of(x->plan, maker);
    uint32_t cls = r->classes[pos], last = last_owner(x, root, cls, &user);
    ds_part *owner = &s->parts[s->owner[maker]];
    int64_t bytes = bytes_of(x->plan, root, pos);
    if (!bytes || x->plan->values.at[root].is_host || x->plan->values.at[root].is_inside)
        return true;
    DS_HPUSH(&owner->body->allocs,
             ((ds_alloc){unit_of(x, x->plan->insts.at[maker].first_task + pos),
                         ds_compose__class_place(owner, cls), bytes}));
    if (x->stays[root])
        return !s->is_each[maker] || ds_compose__unknown(s, "sums that are returned");
    if (s->is_each[user] && user != maker && !check_each(x, maker, user, cls, bytes)) return false;
    return free_there(x, &s->parts[last], root, cls, bytes);
}

/* ---- inputs ---- */

/* Inputs are there all the time; those of one microbatch as often as there are microbatches. */
static bool add_inputs(analysis *x) {
    ds_sibling *s = x->s;
    const ds_plan *plan = x->plan;
    s->input_bytes = ds_xcalloc(plan->n_classes, sizeof *s->input_bytes);
    s->each_bytes = ds_xcalloc(plan->n_classes, sizeof *s->each_bytes);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = record_of(plan, i);
        if (r->kind != DS_REC_INPUT) continue;
        uint32_t v = plan->insts.at[i].first_value, seen = 0;
        if (x->first[v] == DS_NONE || x->uses.at[x->first[v]].next == DS_NONE)
            return ds_compose__unknown(s, "an input that nothing reads");
        for (uint32_t u = x->first[v]; u != DS_NONE; u = x->uses.at[u].next) {
            uint32_t owner = s->owner[x->uses.at[u].inst];
            if (owner == DS_NONE) continue;
            seen |= s->parts[owner].tail ? 1u << DS_SIBLING : 1u << s->parts[owner].mb;
        }
        bool each = s->n_turns == DS_SIBLING && seen == 1u << DS_MIDDLE;
        int64_t *bytes = each ? s->each_bytes : s->input_bytes;
        for (uint32_t pos = 0; pos < r->n_classes && !plan->values.at[v].is_host; pos++)
            bytes[r->classes[pos]] += bytes_of(plan, v, pos);
    }
    return true;
}

/* ---- masks ---- */

/* A mask is kept from the last but one execution of its dropouts to the last one (mem.c). */
static bool add_mask(analysis *x, uint32_t from, uint32_t to) {
    const ds_record *r = record_of(x->plan, from);
    uint32_t bits = ds_dtype_bits(ds_value_at(r->func, r->op->out[0])->type->dtype);
    ds_part *part = &x->s->parts[x->s->owner[from]], *end = &x->s->parts[x->s->owner[to]];
    if (part->tail || end->tail) return ds_compose__unknown(x->s, "masks in the tail");
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t task = task_on(x->plan, to, r->classes[pos]);
        int64_t bytes = bytes_of(x->plan, x->plan->insts.at[from].first_value, pos);
        bytes = bits < 8 ? bytes * (8 / bits) : bytes / (bits / 8);
        if (task == DS_NONE || !bytes) continue;
        DS_HPUSH(&part->body->allocs,
                 ((ds_alloc){unit_of(x, x->plan->insts.at[from].first_task + pos),
                             ds_compose__class_place(part, r->classes[pos]), bytes}));
        free_after(end, unit_of(x, task), r->classes[pos], bytes);
    }
    return true;
}

/* The narrow copy of a value (sim/plan/saves.c) is made with the value and ends with its last
 * reader (mem.c). */
static bool add_copy(analysis *x, const ds_plan_copy *copy) {
    uint32_t from = x->plan->values.at[copy->value].inst;
    const ds_record *r = record_of(x->plan, from);
    ds_part *part = &x->s->parts[x->s->owner[from]], *end = &x->s->parts[x->s->owner[copy->until]];
    if (part->tail || end->tail) return ds_compose__unknown(x->s, "narrow copies in the tail");
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t task = task_on(x->plan, copy->until, r->classes[pos]);
        int64_t bytes = ds_plan_copy_bytes(copy, bytes_of(x->plan, copy->value, pos));
        if (task == DS_NONE || !bytes) continue;
        DS_HPUSH(&part->body->allocs,
                 ((ds_alloc){unit_of(x, x->plan->insts.at[from].first_task + pos),
                             ds_compose__class_place(part, r->classes[pos]), bytes}));
        free_after(end, unit_of(x, task), r->classes[pos], bytes);
    }
    return true;
}

static bool add_masks(analysis *x) {
    typedef struct mask {
        uint32_t from, to;
    } mask;
    DS_VEC(mask) masks = {0};
    ds_map index;
    ds_map_init(&index);
    for (uint32_t i = 0; i < x->plan->insts.n; i++) {
        uint64_t key = record_of(x->plan, i)->mask;
        if (!key) continue;
        key = ds_hash_mix(key, (uint64_t)x->plan->scopes.at[x->plan->insts.at[i].scope].microbatch);
        uint64_t *found = ds_map_find(&index, key);
        if (found) {
            masks.at[*found] = (mask){masks.at[*found].to, i};
        } else {
            ds_map_put(&index, key, masks.n);
            DS_HPUSH(&masks, ((mask){DS_NONE, i}));
        }
    }
    bool fine = true;
    for (uint32_t i = 0; i < masks.n && fine; i++)
        if (masks.at[i].from != DS_NONE) fine = add_mask(x, masks.at[i].from, masks.at[i].to);
    ds_map_deinit(&index);
    free(masks.at);
    return fine;
}

bool ds_compose__buffers(ds_sibling *s, bool keep_masks) {
    const ds_plan *plan = s->plan;
    analysis x = {.s = s, .plan = plan};
    uint32_t *block = ds_xcalloc((size_t)plan->values.n * 5, sizeof *block);
    x.root = block;
    x.last_read = block + plan->values.n;
    x.first = x.last_read + plan->values.n;
    x.last = x.first + plan->values.n;
    x.taker = x.last + plan->values.n;
    x.stays = ds_xcalloc(plan->values.n, sizeof *x.stays);
    bool fine = find_roots(&x) && add_inputs(&x);
    for (uint32_t v = 0; v < plan->values.n && fine; v++) {
        const ds_record *r = record_of(plan, plan->values.at[v].inst);
        if (x.root[v] != v || r->kind == DS_REC_INPUT) continue;
        for (uint32_t pos = 0; pos < r->n_classes && fine; pos++) fine = add_buffer(&x, v, pos);
    }
    if (fine && keep_masks) fine = add_masks(&x);
    for (uint32_t i = 0; i < plan->copies.n && fine; i++) fine = add_copy(&x, &plan->copies.at[i]);
    free(block);
    free(x.stays);
    free(x.uses.at);
    return fine;
}
