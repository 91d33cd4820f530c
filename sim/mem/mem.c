/* Buffers, then events, then the peak.
 *
 * `root` maps each value instance to the first one of its buffer: itself, or its operand's root
 * where the op reuses the buffer. Buffers are laid out as one slot per (root, class of its record).
 */
#include "sim/mem/mem.h"

#include "ir/base/map.h"
#include "ir/base/units.h"

#include <stdlib.h>
#include <string.h>

typedef struct memory {
    const ds_plan *plan;
    const ds_run *run;
    uint32_t *root;      /* per value */
    uint32_t *last_read; /* per value: the last instance that reads it; DS_NONE: nobody */
    uint64_t *first;     /* per value: its slots; valid for roots */
    int64_t *free_ps;    /* per slot; INT64_MAX: lives to the end */
} memory;

static const ds_record *maker(const ds_plan *plan, uint32_t value) {
    return plan->records.at[plan->insts.at[plan->values.at[value].inst].record];
}

static int64_t bytes_of(const ds_plan *plan, uint32_t value, uint32_t pos) {
    const ds_record *r = maker(plan, value);
    return r->variants[r->class_variant[pos]].out_bytes[plan->values.at[value].result];
}

static void find_last_reads(memory *m) {
    for (uint32_t v = 0; v < m->plan->values.n; v++) m->last_read[v] = DS_NONE;
    for (uint32_t i = 0; i < m->plan->insts.n; i++) {
        uint32_t first = m->plan->insts.at[i].first_operand, n = ds_plan_n_reads(m->plan, i);
        for (uint32_t k = 0; k < n; k++) m->last_read[m->plan->operands.at[first + k]] = i;
    }
}

static int64_t bytes_on(const ds_plan *plan, uint32_t value, uint32_t cls) {
    uint32_t pos = ds_record_class_pos(maker(plan, value), cls);
    return pos == DS_NONE ? 0 : bytes_of(plan, value, pos);
}

/* Are the bytes of `a` those of `b` wherever the op that makes `a` runs? */
static bool has_bytes_of(const ds_plan *plan, uint32_t a, uint32_t b) {
    const ds_record *r = maker(plan, a);
    for (uint32_t pos = 0; pos < r->n_classes; pos++)
        if (bytes_of(plan, a, pos) != bytes_on(plan, b, r->classes[pos])) return false;
    return true;
}

/* A received value lives on fewer devices than its send runs on, so both sides are asked. */
static bool same_bytes(const ds_plan *plan, uint32_t a, uint32_t b) {
    return has_bytes_of(plan, a, b) && has_bytes_of(plan, b, a);
}

static int64_t *slot_of(const memory *m, uint32_t root, uint32_t cls) {
    uint32_t pos = ds_record_class_pos(maker(m->plan, root), cls);
    return pos == DS_NONE ? NULL : &m->free_ps[m->first[root] + pos];
}

/* Has everybody who used the operand's buffer so far let go of it when the op starts? Inputs and
 * outputs are used to the end. */
static bool is_idle(const memory *m, uint32_t root, uint32_t inst) {
    const ds_record *r = m->plan->records.at[m->plan->insts.at[inst].record];
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        const int64_t *busy = slot_of(m, root, r->classes[pos]);
        if (busy && *busy > m->run->start_ps[m->plan->insts.at[inst].first_task + pos])
            return false;
    }
    return true;
}

/* May `value` take the buffer of the operand it aliases? Nobody may read the operand later in the
 * program, nor still be reading it on another stream. */
static bool reuses(const memory *m, uint32_t value) {
    const ds_vinst *v = &m->plan->values.at[value];
    if (v->alias == DS_NONE) return false;
    if (v->is_state) return true;
    return m->last_read[v->alias] == v->inst && same_bytes(m->plan, value, v->alias) &&
           is_idle(m, m->root[v->alias], v->inst);
}

static void keep_until(memory *m, uint32_t value, uint32_t cls, int64_t end_ps) {
    int64_t *slot = slot_of(m, m->root[value], cls);
    if (slot && end_ps > *slot) *slot = end_ps;
}

/* Follows the program: each instance gives its results buffers, then keeps what it reads and makes
 * until it ends. free_ps of a buffer is at any time the last end among its users so far. */
static void find_lifetimes(memory *m) {
    const ds_plan *plan = m->plan;
    uint64_t slots = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *r = plan->records.at[inst->record];
        uint32_t n = ds_plan_n_reads(plan, i);
        for (uint32_t v = inst->first_value; v < inst->first_value + r->n_out; v++) {
            m->root[v] = reuses(m, v) ? m->root[plan->values.at[v].alias] : v;
            m->first[v] = slots;
            if (m->root[v] == v) slots += r->n_classes;
        }
        for (uint32_t pos = 0; pos < r->n_classes; pos++) {
            bool input = r->kind == DS_REC_INPUT;
            int64_t end = input ? INT64_MAX : m->run->end_ps[inst->first_task + pos];
            for (uint32_t k = 0; k < n; k++)
                keep_until(m, plan->operands.at[inst->first_operand + k], r->classes[pos], end);
            for (uint32_t k = 0; k < r->n_out; k++)
                keep_until(m, inst->first_value + k, r->classes[pos],
                           plan->values.at[inst->first_value + k].is_output ? INT64_MAX : end);
        }
    }
}

static uint64_t most_slots(const ds_plan *plan) {
    uint64_t slots = 0;
    for (uint32_t v = 0; v < plan->values.n; v++) slots += maker(plan, v)->n_classes;
    return slots;
}

static int event_order(const void *a, const void *b) {
    const ds_mem_event *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps < y->time_ps ? -1 : 1;
    if ((x->delta_bytes > 0) != (y->delta_bytes > 0)) return x->delta_bytes > 0 ? 1 : -1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static void add_events(memory *m, ds_mem *out) {
    const ds_plan *plan = m->plan;
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        for (uint32_t v = 0; v < plan->values.n; v++) {
            if (m->root[v] != v) continue;
            const ds_record *r = maker(plan, v);
            uint32_t task = plan->insts.at[plan->values.at[v].inst].first_task;
            for (uint32_t pos = 0; pos < r->n_classes; pos++) {
                int64_t bytes = bytes_of(plan, v, pos), end = m->free_ps[m->first[v] + pos];
                int64_t start = task == DS_NONE ? 0 : m->run->start_ps[task + pos];
                if (bytes == 0 || start == end) continue;
                ds_mem_class *c = &out->classes[r->classes[pos]];
                if (pass) c->events[c->n_events] = (ds_mem_event){start, bytes, v};
                c->n_events++;
                if (end == INT64_MAX) continue;
                if (pass) c->events[c->n_events] = (ds_mem_event){end, -bytes, v};
                c->n_events++;
            }
        }
        for (uint32_t c = 0; c < out->n_classes && !pass; c++) {
            out->classes[c].events =
                ds_xcalloc(out->classes[c].n_events, sizeof *out->classes[c].events);
            out->classes[c].n_events = 0;
        }
    }
}

static ds_status find_peak(const ds_plan *plan, ds_mem_class *c, ds_error *err) {
    if (c->n_events) qsort(c->events, c->n_events, sizeof *c->events, event_order);
    int64_t now = 0, by[DS_CATEGORY_COUNT] = {0};
    for (uint32_t i = 0; i < c->n_events; i++) {
        uint32_t category = plan->values.at[c->events[i].value].category;
        if (!ds_add_i64(now, c->events[i].delta_bytes, &now))
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                                "a device holds more than 2^63 bytes");
        by[category] += c->events[i].delta_bytes;
        if (by[category] > c->most_by_category[category])
            c->most_by_category[category] = by[category];
        if (maker(plan, c->events[i].value)->kind == DS_REC_INPUT)
            c->input_by_category[category] += c->events[i].delta_bytes;
        if (now > c->peak_bytes) {
            c->peak_bytes = now;
            c->peak_ps = c->events[i].time_ps;
            c->peak_event = i;
            memcpy(c->peak_by_category, by, sizeof by);
        }
    }
    return DS_OK;
}

ds_status ds_mem_compute(const ds_plan *plan, const ds_run *run, ds_mem *out, ds_error *err) {
    memory m = {.plan = plan, .run = run};
    m.root = ds_xcalloc(plan->values.n, sizeof *m.root);
    m.last_read = ds_xcalloc(plan->values.n, sizeof *m.last_read);
    m.first = ds_xcalloc(plan->values.n, sizeof *m.first);
    find_last_reads(&m);
    m.free_ps = ds_xcalloc(most_slots(plan), sizeof *m.free_ps);
    find_lifetimes(&m);
    out->n_classes = plan->n_classes;
    out->classes = ds_xcalloc(plan->n_classes, sizeof *out->classes);
    add_events(&m, out);
    ds_status status = DS_OK;
    for (uint32_t c = 0; c < plan->n_classes && status == DS_OK; c++)
        status = find_peak(plan, &out->classes[c], err);
    free(m.root);
    free(m.last_read);
    free(m.first);
    free(m.free_ps);
    return status;
}

void ds_mem_deinit(ds_mem *mem) {
    for (uint32_t c = 0; c < mem->n_classes; c++) free(mem->classes[c].events);
    free(mem->classes);
    *mem = (ds_mem){0};
}

static int by_bytes(const void *a, const void *b) {
    const ds_mem_live *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

ds_mem_live *ds_mem_live_at_peak(const ds_mem *mem, uint32_t cls, uint32_t *n) {
    const ds_mem_class *c = &mem->classes[cls];
    uint32_t n_seen = c->n_events ? c->peak_event + 1 : 0;
    ds_map alive;
    ds_map_init(&alive);
    for (uint32_t i = 0; i < n_seen; i++)
        ds_map_put(&alive, c->events[i].value,
                   c->events[i].delta_bytes > 0 ? (uint64_t)c->events[i].delta_bytes : 0);
    ds_mem_live *live = ds_xcalloc(alive.n, sizeof *live);
    *n = 0;
    for (uint32_t i = 0; i < alive.cap; i++)
        if (alive.used[i] && alive.values[i])
            live[(*n)++] = (ds_mem_live){(uint32_t)alive.keys[i], (int64_t)alive.values[i]};
    if (*n) qsort(live, *n, sizeof *live, by_bytes);
    ds_map_deinit(&alive);
    return live;
}
