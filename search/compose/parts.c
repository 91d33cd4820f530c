/* The sibling's instances as parts: items (calls of a chunk's function for a microbatch), the sends
 * behind them, and the tail; each with its units, their streams, and what they wait for. */
#include "search/compose/internal.h"

#include <stdlib.h>
#include <string.h>

bool ds_compose__unknown(ds_sibling *s, const char *why) {
    if (!s->why) s->why = why;
    return false;
}

/* ---- which part an instance is in ---- */

/* The call's name, "F3", "B3", "W3" → kind · chunks + chunk; without chunks 0. */
static uint32_t group_of(const ds_scope *call, uint32_t n_chunks) {
    static const char kinds[] = "FBW";
    if (!n_chunks) return 0;
    const char *name = ds_op_attr_str(call->op, call->func->module->unit, "name");
    const char *kind = name && *name ? strchr(kinds, *name) : NULL;
    if (!kind) return DS_NONE;
    unsigned long chunk = strtoul(name + 1, NULL, 10);
    return chunk < n_chunks ? (uint32_t)(kind - kinds) * n_chunks + (uint32_t)chunk : DS_NONE;
}

/* Which microbatch a call under the root is for; NO_MICROBATCH: it is no item. Where there is only
 * one the text does not say so. */
static int64_t microbatch_of(const ds_sibling *s, const ds_scope *call, uint32_t n_chunks) {
    if (!call->op || call->op->code != DS_OP_CALL) return DS_NO_MICROBATCH;
    bool alone = n_chunks && s->m == 1 && group_of(call, n_chunks) != DS_NONE;
    return alone ? 0 : call->microbatch;
}

/* The call under the root that an instance is in; NULL: it stands by itself, or in a loop. */
static const ds_scope *call_of(const ds_sibling *s, const ds_inst *inst, uint32_t n_chunks) {
    const ds_plan *plan = s->plan;
    const ds_scope *at = &plan->scopes.at[inst->scope];
    if (at->up == DS_NONE) return NULL;
    while (plan->scopes.at[at->up].up != DS_NONE) at = &plan->scopes.at[at->up];
    return microbatch_of(s, at, n_chunks) != DS_NO_MICROBATCH ? at : NULL;
}

ds_part *ds_compose__add_part(ds_sibling *s) {
    if (s->n_parts == s->cap_parts)
        s->parts = ds_vec_grow_heap(s->parts, &s->cap_parts, sizeof *s->parts);
    ds_part *part = &s->parts[s->n_parts++];
    *part = (ds_part){.post = -1};
    return part;
}

ds_body *ds_compose__add_body(ds_sibling *s) {
    ds_body *body = ds_xcalloc(1, sizeof *body);
    DS_HPUSH(&s->bodies, body);
    return body;
}

uint32_t ds_compose__class_place(const ds_part *part, uint32_t cls) {
    uint32_t k = 0;
    while (k < part->classes.n && part->classes.at[k] != cls) k++;
    return k;
}

/* The part of what an op by itself reads; NONE: it is no op of `code`, or reads more. */
static uint32_t maker_of(const ds_sibling *s, uint32_t inst, ds_opcode code) {
    const ds_plan *plan = s->plan;
    const ds_inst *i = &plan->insts.at[inst];
    const ds_record *r = plan->records.at[i->record];
    if (!r->op || r->op->code != code || ds_plan_n_operands(plan, inst) != 1) return DS_NONE;
    uint32_t maker = plan->values.at[plan->operands.at[i->first_operand]].inst;
    return s->owner[maker];
}

/* A send by itself, or a part cut for one, of what an item has made: the item's part. */
static uint32_t sender_of(const ds_sibling *s, uint32_t inst, ds_opcode code) {
    uint32_t owner = maker_of(s, inst, code);
    return owner < s->n_groups * DS_SIBLING ? owner : DS_NONE;
}

/* Does the op gather what came in parts, for the item that is called next? */
static bool is_gather(const ds_sibling *s, uint32_t inst) {
    uint32_t owner = maker_of(s, inst, DS_OP_ALL_GATHER);
    return owner != DS_NONE && s->parts[owner].post >= 0;
}

static bool own_item(ds_sibling *s, const ds_scope *call, uint32_t n_chunks, uint32_t inst) {
    uint32_t group = group_of(call, n_chunks), turn = 0;
    int64_t mb = microbatch_of(s, call, n_chunks);
    if (group == DS_NONE || mb < 0 || mb >= s->n_turns)
        return ds_compose__unknown(s, "a call that is no item of the schedule");
    ds_part *parts = &s->parts[group * DS_SIBLING];
    while (turn < DS_SIBLING && parts[turn].callee && parts[turn].mb != mb) turn++;
    if (turn == DS_SIBLING) return ds_compose__unknown(s, "an item that comes twice");
    if (parts[turn].callee && parts[turn].end_inst != inst)
        return ds_compose__unknown(s, "an item in several pieces");
    if (!parts[turn].callee) parts[turn].first_inst = inst;
    parts[turn].callee = call->op->callee;
    parts[turn].mb = (uint8_t)mb;
    parts[turn].end_inst = inst + 1;
    s->owner[inst] = group * DS_SIBLING + turn;
    return true;
}

static bool own_post(ds_sibling *s, uint32_t sender, uint32_t inst) {
    s->owner[inst] = s->n_parts;
    ds_part *part = ds_compose__add_part(s);
    part->group = s->parts[sender].group;
    part->mb = s->parts[sender].mb;
    part->turn = s->parts[sender].turn;
    part->first_inst = inst;
    part->end_inst = inst + 1;
    if (!s->n_posts[sender]) s->first_post[sender] = s->n_parts - 1;
    part->post = (int32_t)s->n_posts[sender]++;
    if (s->first_post[sender] + (uint32_t)part->post != s->n_parts - 1)
        return ds_compose__unknown(s, "sends of an item that do not stand together");
    return true;
}

static bool find_owners(ds_sibling *s, uint32_t n_chunks) {
    const ds_plan *plan = s->plan;
    uint32_t tail_first = DS_NONE, tail_end = 0, gathers = 0;
    for (uint32_t g = 0; g < s->n_groups; g++)
        for (uint8_t turn = 0; turn < DS_SIBLING; turn++) {
            ds_part *part = ds_compose__add_part(s);
            part->group = g;
            part->turn = turn;
        }
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *r = plan->records.at[inst->record];
        s->owner[i] = DS_NONE;
        if (r->kind == DS_REC_INPUT) continue;
        const ds_scope *call = call_of(s, inst, n_chunks);
        uint32_t sender = call ? DS_NONE : sender_of(s, i, DS_OP_SEND);
        uint32_t cutter = call ? DS_NONE : sender_of(s, i, DS_OP_RESHARD);
        if (call) {
            if (tail_first != DS_NONE)
                return ds_compose__unknown(s, "ops between the microbatches");
            for (; gathers; gathers--)
                if (!own_item(s, call, n_chunks, i - gathers)) return false;
            if (!own_item(s, call, n_chunks, i)) return false;
        } else if (!call && is_gather(s, i)) {
            gathers++;
        } else if (cutter != DS_NONE) {
            s->owner[i] = cutter;
            s->parts[cutter].end_inst = i + 1;
        } else if (sender != DS_NONE) {
            if (!own_post(s, sender, i)) return false;
        } else {
            if (tail_first == DS_NONE) tail_first = i;
            tail_end = i + 1;
        }
    }
    for (uint32_t i = tail_first; i < tail_end; i++)
        if (s->owner[i] == DS_NONE) s->owner[i] = s->n_parts;
    ds_part *tail = ds_compose__add_part(s);
    tail->tail = true;
    if (tail_first == DS_NONE) return true;
    tail->first_inst = tail_first;
    tail->end_inst = tail_end;
    return true;
}

/* Are the four of a group what the whole step has: no item missing, one text for the middle? */
static bool check_groups(ds_sibling *s) {
    for (uint32_t g = 0; g < s->n_groups; g++) {
        const ds_part *p = &s->parts[g * DS_SIBLING];
        const uint32_t *n = &s->n_posts[g * DS_SIBLING];
        uint32_t there = 0;
        for (int k = 0; k < DS_SIBLING; k++) there += p[k].callee != NULL;
        if (!there) continue;
        if (there < s->n_turns) return ds_compose__unknown(s, "a microbatch without an item");
        if (s->n_turns < DS_SIBLING) continue; /* all of them are there */
        if (p[1].callee != p[2].callee || n[0] != n[1] || n[1] != n[2] || n[2] != n[3])
            return ds_compose__unknown(s, "microbatches that differ");
    }
    return true;
}

/* A microbatch's forward passes go up the chunks, its backward ones down again; each chunk's weight
 * gradients follow its backward pass, and nothing says how soon. Sends follow their item. */
bool ds_compose__in_order(const ds_sibling *s, uint32_t a, uint32_t b) {
    enum { F, B, W };
    const ds_part *p = &s->parts[a], *q = &s->parts[b];
    if (a == b || p->tail || q->tail) return a == b || !p->tail;
    if (s->whole) return p->first_inst < q->first_inst;
    if (p->group == q->group) return p->turn == q->turn ? p->post < q->post : p->turn < q->turn;
    if (p->mb != q->mb) return false;
    uint32_t kind = p->group / s->n_chunks, other = q->group / s->n_chunks;
    uint32_t chunk = p->group % s->n_chunks, others = q->group % s->n_chunks;
    if (kind == F) return other != F || chunk < others;
    return kind == B && (other == B ? chunk > others : other == W && chunk >= others);
}

/* A source names a unit by its number in the sibling's part, and numbers are those of a text. The
 * item two before the sibling's middle one is the first of its group; in the whole step most items
 * two before a middle one are middle ones, whose text adds up gradients and has other numbers. */
static bool is_numbered_alike(const ds_sibling *s, const ds_part *from, const ds_part *to) {
    const ds_part *group = &s->parts[to->group * DS_SIBLING];
    return s->n_turns < DS_SIBLING || from->turn != DS_MIDDLE || to->turn > 0 ||
           group[0].callee == group[1].callee;
}

bool ds_compose__source(ds_sibling *s, const ds_part *from, uint32_t owner, ds_source *out) {
    const ds_part *to = &s->parts[owner];
    uint8_t kind = (uint8_t)(to->group / s->n_chunks);
    *out = (ds_source){.kind = kind,
                       .chunk = (int32_t)(to->group % s->n_chunks),
                       .post = to->post,
                       .when = DS_SAME};
    if (to->tail) return ds_compose__unknown(s, "something waits for the tail");
    if (!from->tail && to->mb == from->mb) return true;
    bool alike = kind == from->group / s->n_chunks || /* in one order */
                 (to->mb == to->turn && from->mb == from->turn);
    bool there = from->tail || s->whole;
    out->when = there ? DS_AT : DS_PREV;
    out->turn = there ? to->turn : (uint8_t)(from->turn - to->turn);
    if (!there && !(alike && to->turn < from->turn && out->turn <= 2))
        return ds_compose__unknown(s, "a microbatch that reads another one's values");
    return there || is_numbered_alike(s, from, to) ||
           ds_compose__unknown(s, "a microbatch that reads what the last but one has");
}

/* ---- units ---- */

/* What of the tail reads something of the middle microbatch is there for each of these. */
static bool find_each(ds_sibling *s) {
    const ds_plan *plan = s->plan;
    const ds_part *tail = &s->parts[s->n_parts - 1];
    for (uint32_t i = tail->first_inst; i < tail->end_inst && s->n_turns == DS_SIBLING && !s->whole;
         i++) {
        if (s->owner[i] != s->n_parts - 1) continue;
        const ds_inst *inst = &plan->insts.at[i];
        for (uint32_t k = 0; k < ds_plan_n_operands(plan, i); k++) {
            uint32_t maker = plan->values.at[plan->operands.at[inst->first_operand + k]].inst;
            uint32_t owner = s->owner[maker];
            if (owner == DS_NONE || s->parts[owner].tail || s->parts[owner].turn != DS_MIDDLE)
                continue;
            if (plan->records.at[inst->record]->kind != DS_REC_COMPUTE ||
                plan->records.at[inst->record]->n_out != 1)
                return ds_compose__unknown(s, "a tail that gathers all microbatches");
            s->is_each[i] = true;
        }
        if (i > tail->first_inst && s->is_each[i] && s->is_each[i - 1])
            return ds_compose__unknown(s, "a tail with several sums over microbatches");
    }
    return true;
}

static uint32_t slot_of(const ds_plan *plan, ds_part *part, uint32_t stream, uint32_t *place_of) {
    if (place_of[stream] == DS_NONE) {
        uint32_t cls = plan->streams[stream].cls, at = ds_compose__class_place(part, cls);
        if (at == part->classes.n) DS_HPUSH(&part->classes, cls);
        place_of[stream] = part->streams.n;
        DS_HPUSH(&part->streams, stream);
        DS_HPUSH(&part->body->stream_cls, at);
    }
    return place_of[stream];
}

typedef struct waiter {
    ds_sibling *s;
    ds_part *part;
    ds_map exts; /* (owner, unit) → place in part->exts */
} waiter;

static void add_pred(waiter *w, ds_unit_task *unit, uint32_t pred) {
    for (uint32_t i = unit->pred; i < unit->pred + unit->n_preds; i++)
        if (w->part->body->preds.at[i] == pred) return;
    DS_HPUSH(&w->part->body->preds, pred);
    unit->n_preds++;
}

static bool wait_for(waiter *w, ds_unit_task *unit, uint32_t maker, uint32_t task) {
    uint32_t owner = w->s->owner[maker], from = w->s->unit_of[task];
    if (&w->s->parts[owner] == w->part) {
        if (unit->each || w->s->is_each[maker])
            return ds_compose__unknown(w->s, "a sum over microbatches that waits for others");
        add_pred(w, unit, from);
        return true;
    }
    ds_source source;
    if (!ds_compose__source(w->s, w->part, owner, &source)) return false;
    if (source.when == DS_AT && source.turn == DS_MIDDLE && w->s->n_turns == DS_SIBLING &&
        !w->s->whole)
        return ds_compose__unknown(w->s, "a tail that waits for each microbatch");
    uint64_t key = (uint64_t)owner << 32 | from;
    uint64_t *found = ds_map_find(&w->exts, key);
    uint32_t ext = found ? (uint32_t)*found : w->part->body->exts.n;
    if (!found) {
        ds_map_put(&w->exts, key, ext);
        DS_HPUSH(&w->part->body->exts, ((ds_external){source, from}));
    }
    add_pred(w, unit, DS_EXT | ext);
    return true;
}

/* The task on a class that makes the instance's i-th operand; DS_NONE: no task there does. */
static uint32_t operand_task(const ds_plan *plan, uint32_t inst, uint32_t i, uint32_t cls) {
    uint32_t operand = plan->operands.at[plan->insts.at[inst].first_operand + i];
    const ds_inst *maker = &plan->insts.at[plan->values.at[operand].inst];
    const ds_record *r = plan->records.at[maker->record];
    uint32_t pos = r->kind == DS_REC_INPUT ? DS_NONE : ds_record_class_pos(r, cls);
    return pos == DS_NONE ? DS_NONE : maker->first_task + pos;
}

/* Does the instance, which waits for a task of another microbatch, also wait for a later item on
 * the task's stream? Then the task adds nothing. */
static bool is_covered(const waiter *w, uint32_t inst, uint32_t task) {
    const ds_plan *plan = w->s->plan;
    uint32_t owner = w->s->owner[plan->task_inst[task]], n = ds_plan_n_operands(plan, inst);
    if (w->part->tail || w->s->parts[owner].mb == w->part->mb) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = operand_task(plan, inst, i, plan->task_class[task]);
        if (other == DS_NONE || plan->task_stream[other] != plan->task_stream[task]) continue;
        uint32_t others = w->s->owner[plan->task_inst[other]];
        if (others != owner && ds_compose__in_order(w->s, owner, others)) return true;
    }
    return false;
}

/* What the task waits for on other streams of its class (expand.c has the same rule). */
static bool add_preds(waiter *w, ds_unit_task *unit, uint32_t task) {
    const ds_plan *plan = w->s->plan;
    uint32_t inst = unit->inst, n = ds_plan_n_operands(plan, inst);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = operand_task(plan, inst, i, plan->task_class[task]);
        if (from == DS_NONE || plan->task_stream[from] == plan->task_stream[task]) continue;
        if (is_covered(w, inst, from)) continue;
        if (!wait_for(w, unit, plan->task_inst[from], from)) return false;
    }
    return true;
}

static bool is_product(ds_work_kind kind) {
    return kind == DS_WORK_GEMM || kind == DS_WORK_CONV || kind == DS_WORK_ATTENTION ||
           kind == DS_WORK_RECURRENT;
}

static void set_work(const ds_plan *plan, uint32_t task, ds_unit_task *unit) {
    const ds_work *work = &ds_plan_task_variant(plan, task)->work;
    unit->ps = plan->task_ps[task];
    if (!is_product(work->kind)) return;
    unit->flop = work->flop;
    unit->dtype = (uint8_t)work->dtype;
}

static bool add_unit(waiter *w, uint32_t inst, const uint32_t *tasks, uint32_t n, uint32_t activity,
                     uint32_t *place_of) {
    const ds_plan *plan = w->s->plan;
    ds_part *part = w->part;
    ds_body *body = part->body;
    ds_unit_task unit = {.transfer = DS_NONE,
                         .each = w->s->is_each[inst],
                         .inst = inst,
                         .slot = body->slots.n,
                         .n_slots = n,
                         .pred = body->preds.n};
    if (activity == DS_NONE && plan->streams[plan->task_stream[tasks[0]]].key)
        return ds_compose__unknown(w->s, "compute on a stream of its own");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = slot_of(plan, part, plan->task_stream[tasks[i]], place_of);
        DS_HPUSH(&body->slots, slot);
        w->s->unit_of[tasks[i]] = body->units.n;
    }
    unit.cls = body->stream_cls.at[body->slots.at[unit.slot]];
    if (activity == DS_NONE) {
        set_work(plan, tasks[0], &unit);
    } else {
        unit.ps = plan->activities[activity].ps;
        unit.transfer = part->transfers.n;
        DS_HPUSH(&part->transfers, ((ds_transfer){activity, body->slots.at[unit.slot]}));
        if (plan->activities[activity].n_flows) part->flows = true;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!add_preds(w, &unit, tasks[i])) return false;
    DS_HPUSH(&body->units, unit);
    return true;
}

/* The units of an instance: one for each class that computes, one for each meeting. */
static bool add_inst(waiter *w, uint32_t inst, uint32_t *place_of) {
    const ds_plan *plan = w->s->plan;
    const ds_record *r = plan->records.at[plan->insts.at[inst].record];
    uint32_t first = plan->insts.at[inst].first_task;
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t task = first + pos, activity = plan->task_activity[task];
        if (activity == DS_NONE) {
            if (!add_unit(w, inst, &task, 1, activity, place_of)) return false;
            continue;
        }
        const ds_activity *a = &plan->activities[activity];
        if (a->orphan || a->n_steps) return ds_compose__unknown(w->s, "messages");
        if (plan->members[a->first_member] != task) continue;
        if (!add_unit(w, inst, &plan->members[a->first_member], a->n_members, activity, place_of))
            return false;
    }
    return true;
}

static bool add_units(ds_sibling *s, ds_part *part, uint32_t *place_of) {
    waiter w = {.s = s, .part = part};
    uint32_t own = (uint32_t)(part - s->parts);
    part->opaque = !part->tail && part->post < 0;
    bool fine = true;
    for (uint32_t i = part->first_inst; i < part->end_inst && fine; i++)
        if (s->owner[i] == own) fine = add_inst(&w, i, place_of);
    for (uint32_t i = 0; i < part->streams.n; i++) place_of[part->streams.at[i]] = DS_NONE;
    part->body->n_classes = part->classes.n;
    ds_map_deinit(&w.exts);
    return fine;
}

bool ds_compose__parts(ds_sibling *s, const ds_plan *plan, int64_t m, uint32_t n_chunks) {
    s->plan = plan;
    s->m = m;
    s->n_turns = m < DS_SIBLING ? (uint32_t)m : DS_SIBLING;
    s->n_chunks = n_chunks ? n_chunks : 1;
    if (plan->per_rank || plan->n_jobs || plan->n_steps)
        return ds_compose__unknown(s, "ranks, jobs or messages");
    for (uint32_t c = 0; c < plan->n_classes; c++)
        if (plan->classes[c].issue_ps || plan->classes[c].slow_q32 != UINT64_C(1) << 32)
            return ds_compose__unknown(s, "hosts that issue tasks, transfers that slow compute");
    s->n_groups = n_chunks ? 3 * n_chunks : 1;
    s->owner = ds_xcalloc(plan->insts.n, sizeof *s->owner);
    s->is_each = ds_xcalloc(plan->insts.n, sizeof *s->is_each);
    s->unit_of = ds_xcalloc(plan->n_tasks, sizeof *s->unit_of);
    s->first_post = ds_xcalloc((size_t)s->n_groups * DS_SIBLING, sizeof *s->first_post);
    s->n_posts = ds_xcalloc((size_t)s->n_groups * DS_SIBLING, sizeof *s->n_posts);
    if (!find_owners(s, n_chunks) || !check_groups(s) || !find_each(s)) return false;
    for (uint32_t i = 0; i < s->n_parts; i++) s->parts[i].body = ds_compose__add_body(s);
    uint32_t *place_of = ds_xcalloc(plan->n_streams, sizeof *place_of);
    for (uint32_t i = 0; i < plan->n_streams; i++) place_of[i] = DS_NONE;
    bool fine = true; /* in order of the program, so that units are known before they are read */
    for (uint32_t i = 0; i < plan->insts.n && fine; i++) {
        uint32_t owner = s->owner[i];
        if (owner != DS_NONE && s->parts[owner].first_inst == i)
            fine = add_units(s, &s->parts[owner], place_of);
    }
    free(place_of);
    return fine;
}

void ds_compose__timing_free(ds_timing *t) {
    for (uint32_t k = 0; k < t->n_curves; k++) free(t->curves[k].at_ps);
    for (uint32_t k = 0; k < t->n_busy; k++) free(t->busy[k].compute);
    free(t->curves);
    free(t->busy);
    free(t->start);
    free(t);
}

static void free_timings(ds_map *timings) {
    uint32_t at = 0;
    for (const ds_map_entry *e; (e = ds_map_next(timings, &at));) {
        ds_timing *t = (ds_timing *)(uintptr_t)e->value;
        for (ds_timing *next; t; t = next) {
            next = t->next;
            ds_compose__timing_free(t);
        }
    }
    ds_map_deinit(timings);
}

void ds_compose__timings_deinit(ds_sibling *s) {
    for (uint32_t i = 0; i < s->bodies.n; i++) free_timings(&s->bodies.at[i]->timings);
}

static void free_body(ds_body *body) {
    free(body->units.at);
    free(body->slots.at);
    free(body->preds.at);
    free(body->exts.at);
    free(body->stream_cls.at);
    free(body->allocs.at);
    free(body->frees.at);
    free(body->users.at);
    free(body->checks.at);
    free(body->needs);
    free(body->after_ps);
    free(body);
}

void ds_compose__reading_deinit(ds_sibling *s) {
    free(s->owner);
    free(s->unit_of);
    free(s->is_each);
    s->owner = s->unit_of = NULL;
    s->is_each = NULL;
}

void ds_compose__parts_deinit(ds_sibling *s) {
    ds_compose__timings_deinit(s);
    for (uint32_t i = 0; i < s->bodies.n; i++) free_body(s->bodies.at[i]);
    free(s->bodies.at);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        ds_part *p = &s->parts[i];
        free(p->streams.at);
        free(p->classes.at);
        free(p->transfers.at);
        free(p->links.at);
    }
    free(s->parts);
    free(s->first_post);
    free(s->n_posts);
    ds_compose__reading_deinit(s);
    free(s->input_bytes);
    free(s->each_bytes);
}
