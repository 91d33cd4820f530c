/* Stamps tasks: one per instance and class, on streams, with dependences and rendezvous.
 *
 * A dependence between two tasks of one stream is implied by its order and left out, so a chain of
 * compute tasks has none. */
#include "sim/plan/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct edge {
    uint32_t from, to;
} edge;

typedef struct half {
    uint64_t key;
    uint32_t side; /* 0 sender, 1 receiver; or the member's place in the group */
    uint32_t task;
} half;

typedef struct expander {
    ds_builder *b;
    ds_plan *plan;
    ds_map stream_index; /* (class, key) → stream */
    DS_VEC(ds_stream) streams;
    DS_VEC(edge) edges;
    DS_VEC(half) halves;
    DS_VEC(ds_activity) activities;
    DS_VEC(uint32_t) members;
    int64_t *issued;         /* per class, since its pause */
    uint32_t *pause;         /* per class: the last one; DS_NONE */
    DS_VEC(uint32_t) past;   /* per stream: the last pause that its tasks wait for; DS_NONE */
    DS_VEC(ds_pause) pauses; /* of all classes */
    bool *awaited;           /* per task */
    uint32_t repeat;         /* that the instance in hand is in; DS_NONE */
    uint32_t n_repeats;      /* so far */
} expander;

uint32_t ds_record_class_pos(const ds_record *r, uint32_t cls) {
    uint32_t lo = 0, hi = r->n_classes;
    if (hi && r->classes[0] == cls) return 0;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (r->classes[mid] < cls)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->n_classes && r->classes[lo] == cls ? lo : DS_NONE;
}

const ds_variant *ds_plan_task_variant(const ds_plan *plan, uint32_t task) {
    const ds_record *r = ds_plan_task_record(plan, task);
    return &r->variants[r->class_variant[task - plan->insts.at[plan->task_inst[task]].first_task]];
}

static uint32_t stream_id(expander *x, uint32_t cls, uint64_t key) {
    uint64_t hash = ds_hash_mix(cls, key);
    for (;; hash++) {
        uint64_t *found = ds_map_find(&x->stream_index, hash);
        if (!found) break;
        if (x->streams.at[*found].cls == cls && x->streams.at[*found].key == key)
            return (uint32_t)*found;
    }
    uint32_t id = x->streams.n;
    DS_HPUSH(&x->streams, ((ds_stream){.cls = cls, .key = key}));
    DS_HPUSH(&x->past, DS_NONE);
    ds_map_put(&x->stream_index, hash, id);
    return id;
}

uint64_t ds_plan__stream_key(const ds_record *r, uint32_t member) {
    if (r->stream) return r->stream == DS_STREAM_COMPUTE ? 0 : r->stream;
    if (r->kind != DS_REC_COMM && r->kind != DS_REC_HALF) return 0;
    const ds_group *g = &r->groups[r->kind == DS_REC_COMM ? r->group_of[member] : 0];
    return g->terms.holds_compute ? 0 : g->key; /* the profile saw no compute beside it */
}

/* The stream of a record on one of its classes: that of the class's representative. */
static uint32_t stream_of(expander *x, ds_record *r, uint32_t pos) {
    if (r->class_stream[pos] == DS_NONE)
        r->class_stream[pos] =
            stream_id(x, r->classes[pos], ds_plan__stream_key(r, r->class_member[pos]));
    return r->class_stream[pos];
}

/* Does the instance run beside another microbatch? The first has none to its forward pass. */
static bool has_partner(const ds_plan *plan, uint32_t inst) {
    return plan->scopes.at[plan->insts.at[inst].scope].microbatch > 0;
}

/* ---- the host ---- */

static int64_t issued_ps(const expander *x, uint32_t inst, uint32_t cls) {
    const ds_plan *plan = x->plan;
    bool first = x->pause[cls] == DS_NONE && plan->n_jobs;
    int64_t start_ps = first ? plan->jobs[ds_plan_job_of(plan, inst)].start_ps : 0;
    return ds_ps_narrow((ds_i128)x->issued[cls] * plan->classes[cls].issue_ps + start_ps);
}

/* The host waits for what the instance reads of another stage, once. */
static void pause_for_operands(expander *x, uint32_t inst, uint32_t cls) {
    ds_plan *plan = x->plan;
    uint32_t first = plan->insts.at[inst].first_operand, n = ds_plan_n_operands(plan, inst);
    for (uint32_t i = 0; i < n; i++) {
        const ds_inst *maker = &plan->insts.at[plan->values.at[plan->operands.at[first + i]].inst];
        const ds_record *r = plan->records.at[maker->record];
        if (!r->op || (r->op->code != DS_OP_SEND && r->op->code != DS_OP_RECV)) continue;
        uint32_t pos = ds_record_class_pos(r, cls);
        if (pos == DS_NONE || x->awaited[maker->first_task + pos]) continue;
        x->awaited[maker->first_task + pos] = true;
        DS_HPUSH(&x->pauses, ((ds_pause){.task = maker->first_task + pos,
                                         .before = x->pause[cls],
                                         .issue_ps = issued_ps(x, inst, cls)}));
        x->pause[cls] = x->pauses.n - 1;
        x->issued[cls] = 0;
    }
}

/* Issues the task, after the pauses of its class that no task of its stream has waited for. */
static void issue(expander *x, uint32_t inst, uint32_t task, uint32_t launches) {
    ds_plan *plan = x->plan;
    uint32_t cls = plan->task_class[task], stream = plan->task_stream[task];
    if (plan->classes[cls].host_waits) pause_for_operands(x, inst, cls);
    x->issued[cls] += launches;
    plan->task_issue_ps[task] = issued_ps(x, inst, cls);
    if (!plan->task_pause) return;
    plan->task_pause[task] = x->pause[cls];
    for (uint32_t p = x->pause[cls]; p != x->past.at[stream]; p = x->pauses.at[p].before) {
        if (plan->task_stream[x->pauses.at[p].task] == stream) continue;
        DS_HPUSH(&x->edges, ((edge){x->pauses.at[p].task, task}));
        plan->task_n_pred[task]++;
    }
    x->past.at[stream] = x->pause[cls];
}

static void add_dependences(expander *x, uint32_t inst, uint32_t task, uint32_t cls) {
    ds_plan *plan = x->plan;
    uint32_t first = plan->insts.at[inst].first_operand;
    uint32_t n = ds_plan_n_operands(plan, inst);
    for (uint32_t i = 0; i < n; i++) {
        const ds_inst *maker = &plan->insts.at[plan->values.at[plan->operands.at[first + i]].inst];
        const ds_record *r = plan->records.at[maker->record];
        if (r->kind == DS_REC_INPUT || (r->beside && has_partner(plan, inst))) continue;
        uint32_t pos = ds_record_class_pos(r, cls);
        if (pos == DS_NONE) continue; /* the value lives elsewhere: a broadcast's operand */
        uint32_t from = maker->first_task + pos;
        if (plan->task_stream[from] == plan->task_stream[task]) continue;
        DS_HPUSH(&x->edges, ((edge){from, task}));
        plan->task_n_pred[task]++;
    }
}

static void add_member(expander *x, ds_activity *a, uint32_t task) {
    DS_HPUSH(&x->members, task);
    x->plan->task_activity[task] = x->activities.n;
    a->n_members++;
}

static void add_meetings(expander *x, const ds_record *r, uint32_t first_task) {
    for (uint32_t m = 0; m < r->n_meetings; m++) {
        const ds_group *g = &r->groups[r->meeting_group[m]];
        ds_activity a = {.ps = g->ps, .group = g, .first_member = x->members.n};
        for (uint32_t pos = 0; pos < r->n_classes; pos++)
            if (r->class_meeting[pos] == m) add_member(x, &a, first_task + pos);
        DS_HPUSH(&x->activities, a);
    }
}

/* Without the term `waits` each member transfers by itself. */
static void part(expander *x) {
    for (uint32_t i = 0, n = x->activities.n; i < n; i++) {
        ds_activity *a = &x->activities.at[i];
        uint32_t first = a->first_member, end = first + a->n_members;
        a->n_members = 1;
        a->orphan = false;
        for (uint32_t k = first + 1; k < end; k++) {
            ds_activity own = x->activities.at[i];
            own.first_member = k;
            x->plan->task_activity[x->members.at[k]] = x->activities.n;
            DS_HPUSH(&x->activities, own);
        }
    }
}

/* Which side of its rendezvous a half is: sender or receiver, or the rank's place in the group in
 * order of devices (two ranks may list the group differently; check_match refuses that). */
static uint32_t side_of(const ds_record *r) {
    const ds_group *g = &r->groups[0];
    if (!r->op->has_group) return r->is_recv;
    uint32_t lower = 0;
    for (uint32_t k = 0; k < g->n_devices; k++) lower += g->devices[k] < r->devices[0];
    return lower;
}

static void add_tasks(expander *x, uint32_t inst) {
    ds_plan *plan = x->plan;
    ds_record *r = plan->records.at[plan->insts.at[inst].record];
    if (r->kind == DS_REC_INPUT) return;
    uint32_t first = plan->n_tasks;
    plan->insts.at[inst].first_task = first;
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t task = plan->n_tasks++, cls = r->classes[pos];
        plan->task_inst[task] = inst;
        plan->task_class[task] = cls;
        plan->task_stream[task] = stream_of(x, r, pos);
        plan->task_activity[task] = DS_NONE;
        const ds_variant *v = &r->variants[r->class_variant[pos]];
        plan->task_ps[task] = v->ps;
        issue(x, inst, task, (uint32_t)(1 + v->extra_launches + v->calls));
        x->streams.at[plan->task_stream[task]].n++;
        if (r->kind == DS_REC_HALF) DS_HPUSH(&x->halves, ((half){r->match_key, side_of(r), task}));
    }
    for (uint32_t pos = 0; pos < r->n_classes; pos++)
        add_dependences(x, inst, first + pos, r->classes[pos]);
    if (r->kind == DS_REC_COMM) add_meetings(x, r, first);
}

/* ---- matching the halves of per-rank programs ---- */

static int half_order(const void *a, const void *b) {
    const half *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->side != y->side) return x->side < y->side ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* Both ends must mean the same: the same tensor, op and options, the group in the same order. */
static ds_status check_match(expander *x, uint32_t a, uint32_t b, ds_error *err) {
    const ds_record *ra = ds_plan_task_record(x->plan, a), *rb = ds_plan_task_record(x->plan, b);
    if (strcmp(ra->terms, rb->terms) == 0) return DS_OK;
    ds_buf la = {0}, lb = {0};
    ds_plan_task_label(x->plan, a, &la);
    ds_plan_task_label(x->plan, b, &lb);
    ds_status status =
        ds_error_set(err, DS_ERR_DEADLOCK, rb->op->loc,
                     "mismatched communication: %s (%s, %lld bytes) meets %s (%s, %lld bytes)",
                     la.text, ra->terms, (long long)ra->groups[0].bytes, lb.text, rb->terms,
                     (long long)rb->groups[0].bytes);
    ds_buf_deinit(&la);
    ds_buf_deinit(&lb);
    return status;
}

/* The rendezvous takes the cost that a member states, else the predicted one. */
static ds_status agree_on_cost(expander *x, ds_activity *a, uint32_t first, ds_error *err) {
    a->group = &ds_plan_task_record(x->plan, first)->groups[0];
    bool given = false;
    for (uint32_t i = 0; i < a->n_members; i++) {
        const ds_record *r = ds_plan_task_record(x->plan, x->members.at[a->first_member + i]);
        if (!ds_attr_find(r->op->attrs, r->op->n_attrs, "cost")) continue;
        if (given && r->groups[0].ps != a->group->ps)
            return ds_error_set(
                err, DS_ERR_DEADLOCK, r->op->loc,
                "mismatched communication: one end of this %s costs %lld ps, another "
                "%lld ps",
                r->label, (long long)a->group->ps, (long long)r->groups[0].ps);
        a->group = &r->groups[0];
        given = true;
    }
    a->ps = a->group->ps;
    return DS_OK;
}

/* One rendezvous: the k-th entry of every side of one key. */
static ds_status add_match(expander *x, const half *const *sides, const uint32_t *lengths,
                           uint32_t n_sides, uint32_t k, ds_error *err) {
    uint32_t first = DS_NONE;
    ds_activity a = {.first_member = x->members.n};
    for (uint32_t s = 0; s < n_sides; s++) {
        if (k >= lengths[s]) {
            a.orphan = true;
            continue;
        }
        uint32_t task = sides[s][k].task;
        if (first == DS_NONE)
            first = task;
        else
            DS_TRY(check_match(x, first, task, err));
        add_member(x, &a, task);
    }
    DS_TRY(agree_on_cost(x, &a, first, err));
    DS_HPUSH(&x->activities, a);
    return DS_OK;
}

static ds_status match_halves(expander *x, ds_error *err) {
    if (!x->halves.n) return DS_OK;
    qsort(x->halves.at, x->halves.n, sizeof *x->halves.at, half_order);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < x->halves.n && status == DS_OK;) {
        const ds_record *r = ds_plan_task_record(x->plan, x->halves.at[i].task);
        uint32_t n_sides = r->groups[0].n_devices, longest = 0;
        const half **sides = ds_xcalloc(n_sides, sizeof *sides);
        uint32_t *lengths = ds_xcalloc(n_sides, sizeof *lengths);
        uint64_t key = x->halves.at[i].key;
        for (; i < x->halves.n && x->halves.at[i].key == key; i++) {
            uint32_t s = x->halves.at[i].side;
            if (!lengths[s]) sides[s] = &x->halves.at[i];
            if (++lengths[s] > longest) longest = lengths[s];
        }
        for (uint32_t k = 0; k < longest && status == DS_OK; k++)
            status = add_match(x, sides, lengths, n_sides, k, err);
        free(sides);
        free(lengths);
    }
    return status;
}

/* ---- packing ---- */

static void pack_streams(expander *x) {
    ds_plan *plan = x->plan;
    plan->streams = x->streams.at;
    plan->n_streams = x->streams.n;
    plan->stream_tasks = ds_xcalloc(plan->n_tasks, sizeof *plan->stream_tasks);
    uint32_t at = 0;
    for (uint32_t s = 0; s < plan->n_streams; s++) {
        plan->streams[s].first = at;
        at += plan->streams[s].n;
        plan->streams[s].n = 0;
    }
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        ds_stream *s = &plan->streams[plan->task_stream[t]];
        plan->stream_tasks[s->first + s->n++] = t;
    }
}

static void pack_edges(expander *x) {
    ds_plan *plan = x->plan;
    plan->succ_first = ds_xcalloc((size_t)plan->n_tasks + 1, sizeof *plan->succ_first);
    plan->succ = ds_xcalloc(x->edges.n, sizeof *plan->succ);
    for (uint32_t e = 0; e < x->edges.n; e++) plan->succ_first[x->edges.at[e].from + 1]++;
    for (uint32_t t = 0; t < plan->n_tasks; t++) plan->succ_first[t + 1] += plan->succ_first[t];
    uint32_t *fill = ds_xcalloc((size_t)plan->n_tasks + 1, sizeof *fill);
    memcpy(fill, plan->succ_first, (size_t)plan->n_tasks * sizeof *fill);
    for (uint32_t e = 0; e < x->edges.n; e++)
        plan->succ[fill[x->edges.at[e].from]++] = x->edges.at[e].to;
    free(fill);
    free(x->edges.at);
}

static ds_status count_tasks(ds_plan *plan, uint64_t *out, ds_error *err) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = plan->records.at[plan->insts.at[i].record];
        if (r->kind != DS_REC_INPUT) n += r->n_classes;
    }
    if (n > UINT32_MAX / 4)
        return ds_error_set(
            err, DS_ERR_LIMIT, DS_NOWHERE,
            "the plan has %llu tasks, more than %u: fold equal devices, or simulate "
            "fewer layers",
            (unsigned long long)n, UINT32_MAX / 4);
    *out = n;
    plan->task_inst = ds_xcalloc(n, sizeof *plan->task_inst);
    plan->task_class = ds_xcalloc(n, sizeof *plan->task_class);
    plan->task_stream = ds_xcalloc(n, sizeof *plan->task_stream);
    plan->task_activity = ds_xcalloc(n, sizeof *plan->task_activity);
    plan->task_ps = ds_xcalloc(n, sizeof *plan->task_ps);
    plan->task_issue_ps = ds_xcalloc(n, sizeof *plan->task_issue_ps);
    plan->task_n_pred = ds_xcalloc(n, sizeof *plan->task_n_pred);
    bool waits = false;
    for (uint32_t c = 0; c < plan->n_classes; c++) waits |= plan->classes[c].host_waits;
    if (waits) plan->task_pause = ds_xcalloc(n, sizeof *plan->task_pause);
    return DS_OK;
}

/* The host issues the tasks of all turns of a repeat, of which one has instances. */
static void follow_repeats(expander *x, uint32_t inst) {
    ds_plan *plan = x->plan;
    for (; x->repeat != DS_NONE && plan->repeats.at[x->repeat].end == inst;
         x->repeat = plan->repeats.at[x->repeat].up) {
        const ds_repeat *r = &plan->repeats.at[x->repeat];
        for (uint32_t c = 0; c < plan->n_classes; c++) {
            int64_t turn = x->issued[c] - r->issue_ps[c]; /* so far: what was issued before */
            r->issue_ps[c] = ds_ps_narrow((ds_i128)turn * plan->classes[c].issue_ps);
            x->issued[c] = ds_ps_narrow((ds_i128)turn * (r->times - 1) + x->issued[c]);
        }
    }
    for (; x->n_repeats < plan->repeats.n && plan->repeats.at[x->n_repeats].first == inst;
         x->repeat = x->n_repeats++) {
        ds_repeat *r = &plan->repeats.at[x->n_repeats];
        r->issue_ps = DS_NEW_N(&plan->arena, int64_t, plan->n_classes);
        if (plan->n_classes) memcpy(r->issue_ps, x->issued, plan->n_classes * sizeof *x->issued);
    }
}

ds_status ds_plan__expand(ds_builder *b, ds_error *err) {
    ds_plan *plan = b->plan;
    uint64_t n_tasks = 0;
    DS_TRY(count_tasks(plan, &n_tasks, err));
    expander x = {.b = b, .plan = plan, .repeat = DS_NONE};
    x.issued = ds_xcalloc(plan->n_classes, sizeof *x.issued);
    x.pause = ds_xcalloc(plan->n_classes, sizeof *x.pause);
    for (uint32_t c = 0; c < plan->n_classes; c++) x.pause[c] = DS_NONE;
    if (plan->task_pause) x.awaited = ds_xcalloc(n_tasks, sizeof *x.awaited);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        follow_repeats(&x, i);
        add_tasks(&x, i);
    }
    ds_plan__gates(plan);
    ds_status status = match_halves(&x, err);
    if (!ds_profiles_has(b->profiles, DS_TERM_WAITS)) part(&x);
    pack_streams(&x);
    pack_edges(&x);
    plan->activities = x.activities.at;
    plan->n_activities = x.activities.n;
    plan->members = x.members.at;
    free(x.halves.at);
    plan->pauses = x.pauses.at;
    plan->n_pauses = x.pauses.n;
    free(x.issued);
    free(x.pause);
    free(x.past.at);
    free(x.awaited);
    ds_map_deinit(&x.stream_index);
    return status;
}
