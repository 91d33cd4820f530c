/* Buffers, then events, then the peak.
 *
 * `root` maps each value instance to the first one of its buffer: itself, or its operand's root
 * where the op reuses the buffer. Buffers are laid out as one slot per (root, class of its record).
 */
#include "sim/mem/mem.h"

#include "ir/base/map.h"
#include "ir/base/units.h"
#include "sim/mem/allocator.h"
#include "sim/mem/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct memory {
    const ds_plan *plan;
    const ds_run *run;
    uint32_t *root;      /* per value */
    uint32_t *last_read; /* per value: the last instance that reads it; DS_NONE: nobody */
    uint64_t *first;     /* per value: its slots; valid for roots */
    uint32_t *only;      /* per value: the class that its record runs on, if that is one */
    int64_t *free_ps;    /* per slot; INT64_MAX: lives to the end */
    bool *tiled;         /* per value: its buffer comes in tiles (tiles.c) */
    bool any_tiled;
    ds_mem_places places;
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

/* Most records of large programs run on one class. */
static inline uint32_t pos_of(const ds_record *r, uint32_t cls) {
    return r->n_classes && r->classes[0] == cls ? 0 : ds_record_class_pos(r, cls);
}

static int64_t bytes_on(const ds_plan *plan, uint32_t value, uint32_t cls) {
    uint32_t pos = pos_of(maker(plan, value), cls);
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
    if (m->only[root] == cls) return &m->free_ps[m->first[root]];
    if (m->only[root] != DS_NONE) return NULL;
    uint32_t pos = pos_of(maker(m->plan, root), cls);
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
    if (v->alias == DS_NONE || (m->tiled[v->alias] && !m->tiled[value])) return false;
    if (v->is_state || (v->is_host && m->tiled[value])) return true;
    return m->last_read[v->alias] == v->inst && same_bytes(m->plan, value, v->alias) &&
           is_idle(m, m->root[v->alias], v->inst);
}

/* Does the value stay in tiles when the op writes a part, in place or into a copy? */
static bool is_tiled(const memory *m, const ds_record *r, uint32_t value) {
    if (r->op && r->op->code == DS_OP_PUT) {
        const ds_inst *inst = &m->plan->insts.at[m->plan->values.at[value].inst];
        uint32_t whole = m->plan->operands.at[inst->first_operand];
        return whole != DS_NONE && m->tiled[whole];
    }
    return ds_mem__is_tiled(r->op);
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
            m->tiled[v] = is_tiled(m, r, v);
            m->any_tiled = m->any_tiled || m->tiled[v];
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

/* Where values live; how many slots they may need. */
static uint64_t find_classes(memory *m) {
    uint64_t slots = 0;
    for (uint32_t v = 0; v < m->plan->values.n; v++) {
        const ds_record *r = maker(m->plan, v);
        m->only[v] = r->n_classes == 1 ? r->classes[0] : DS_NONE;
        slots += r->n_classes;
    }
    return slots;
}

/* ---- masks ---- */

/* The last two executions of the dropouts that share a mask: forward (or again) and backward. */
typedef struct mask {
    uint32_t from, to; /* instances; from DS_NONE: only one so far */
} mask;

typedef DS_VEC(mask) masks;

static void find_masks(const ds_plan *plan, masks *out) {
    ds_map index;
    ds_map_init(&index);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        uint64_t key = plan->records.at[plan->insts.at[i].record]->mask;
        uint32_t scope = plan->insts.at[i].scope;
        if (key) key = ds_hash_mix(key, (uint64_t)plan->scopes.at[scope].microbatch);
        uint64_t *found = key ? ds_map_find(&index, key) : NULL;
        if (!key) continue;
        if (found) {
            mask *m = &out->at[*found];
            *m = (mask){m->to, i};
        } else {
            ds_map_put(&index, key, out->n);
            DS_HPUSH(out, ((mask){DS_NONE, i}));
        }
    }
    ds_map_deinit(&index);
}

/* Counts an event, or writes it. */
static void put_event(ds_mem_class *c, bool host, ds_mem_event event, bool fill) {
    ds_mem_event *events = host ? c->host_events : c->events;
    uint32_t *n = host ? &c->n_host_events : &c->n_events;
    if (fill) events[*n] = event;
    ++*n;
}

/* Counts the mask's allocations and frees on every class, or writes them: a byte an element. */
static void add_mask(const memory *m, const mask *k, ds_mem *out, bool fill) {
    const ds_inst *from = &m->plan->insts.at[k->from], *to = &m->plan->insts.at[k->to];
    const ds_record *r = m->plan->records.at[from->record];
    const ds_record *last = m->plan->records.at[to->record];
    uint32_t bits = ds_dtype_bits(ds_value_at(r->func, r->op->out[0])->type->dtype);
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t end = ds_record_class_pos(last, r->classes[pos]);
        int64_t bytes = bytes_of(m->plan, from->first_value, pos);
        if (bits >= 8)
            bytes /= bits / 8;
        else if (!ds_mul_i64(bytes, 8 / bits, &bytes))
            bytes = INT64_MAX; /* beside the op's result: refused with the peak */
        if (end == DS_NONE || bytes == 0) continue;
        int64_t start_ps = m->run->start_ps[from->first_task + pos];
        int64_t end_ps = m->run->end_ps[to->first_task + end];
        if (start_ps == end_ps) continue;
        ds_mem_class *c = &out->classes[r->classes[pos]];
        uint32_t value = from->first_value | DS_MEM_MASK;
        if (fill) {
            c->events[c->n_events] = (ds_mem_event){start_ps, bytes, value};
            c->events[c->n_events + 1] = (ds_mem_event){end_ps, -bytes, value};
        }
        c->n_events += 2;
    }
}

/* A narrow copy is made with the value and ends with its last reader. */
static void add_copy(const memory *m, const ds_plan_copy *copy, ds_mem *out, bool fill) {
    const ds_plan *plan = m->plan;
    const ds_inst *from = &plan->insts.at[plan->values.at[copy->value].inst];
    const ds_inst *to = &plan->insts.at[copy->until];
    const ds_record *r = maker(plan, copy->value), *last = plan->records.at[to->record];
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t end = ds_record_class_pos(last, r->classes[pos]);
        int64_t bytes = ds_plan_copy_bytes(copy, bytes_of(plan, copy->value, pos));
        if (end == DS_NONE || bytes == 0) continue;
        int64_t start_ps = m->run->start_ps[from->first_task + pos];
        int64_t end_ps = m->run->end_ps[to->first_task + end];
        if (start_ps == end_ps) continue;
        ds_mem_class *c = &out->classes[r->classes[pos]];
        uint32_t value = copy->value | DS_MEM_COPY;
        put_event(c, false, (ds_mem_event){start_ps, bytes, value}, fill);
        put_event(c, false, (ds_mem_event){end_ps, -bytes, value}, fill);
    }
}

static int event_order(const void *a, const void *b) {
    const ds_mem_event *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps < y->time_ps ? -1 : 1;
    if ((x->delta_bytes > 0) != (y->delta_bytes > 0)) return x->delta_bytes > 0 ? 1 : -1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Few events by comparison; many by their times, byte by byte from the lowest (they come almost in
 * order and by value, so little is left to compare: those of one time). O(events). */
static void sort_events(ds_mem_event *events, uint32_t n) {
    enum { FEW = 512, DIGIT = 11, DIGITS = 1 << DIGIT };
    if (n < FEW) {
        if (n) qsort(events, n, sizeof *events, event_order);
        return;
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) most |= (uint64_t)events[i].time_ps;
    ds_mem_event *from = events, *to = ds_xcalloc(n, sizeof *to), *room = to;
    for (uint32_t shift = 0; shift < 64 && most >> shift; shift += DIGIT) {
        uint32_t at[DIGITS + 1] = {0};
        for (uint32_t i = 0; i < n; i++) at[((uint64_t)from[i].time_ps >> shift) % DIGITS + 1]++;
        for (uint32_t d = 0; d < DIGITS; d++) at[d + 1] += at[d];
        for (uint32_t i = 0; i < n; i++)
            to[at[((uint64_t)from[i].time_ps >> shift) % DIGITS]++] = from[i];
        ds_mem_event *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && from[end].time_ps == from[i].time_ps; end++) {
        }
        if (end > i + 1) qsort(from + i, end - i, sizeof *from, event_order);
    }
    if (from != events) memcpy(events, from, n * sizeof *events);
    free(room);
}

static void make_room(ds_mem_class *c) {
    c->events = ds_xcalloc(c->n_events, sizeof *c->events);
    c->host_events = ds_xcalloc(c->n_host_events, sizeof *c->host_events);
    c->n_events = c->n_host_events = 0;
}

static void add_scratch(const ds_plan *plan, const ds_mem_scratch *s, ds_mem *out, bool fill) {
    ds_mem_class *c = &out->classes[s->cls];
    bool host = !ds_mem_part(s->value) && plan->values.at[s->value].is_host; /* tiles */
    put_event(c, host, (ds_mem_event){s->start_ps, s->bytes, s->value}, fill);
    if (s->end_ps == INT64_MAX) return;
    put_event(c, host, (ds_mem_event){s->end_ps, -s->bytes, s->value}, fill);
}

/* Tiles end with their store at the latest. */
static ds_status find_tiles(const memory *m, const ds_mem_options *options, ds_mem_scratches *out,
                            ds_error *err) {
    uint32_t first = out->n;
    if (!m->any_tiled) return DS_OK;
    bool together = options->mode == DS_MEM_ALLOCATOR;
    DS_TRY(ds_mem__tiles(m->plan, m->run, m->root, together, out, err));
    for (uint32_t i = first; i < out->n; i++) {
        ds_mem_scratch *s = &out->at[i];
        const int64_t *end = slot_of(m, m->root[s->value], s->cls);
        if (end && *end < s->end_ps) s->end_ps = *end;
    }
    return DS_OK;
}

static ds_status add_events(memory *m, const ds_mem_options *options, ds_mem *out, ds_error *err) {
    const ds_plan *plan = m->plan;
    masks kept = {0};
    ds_mem_scratches scratch = {0};
    if (options->keep_masks) find_masks(plan, &kept);
    if (options->mode == DS_MEM_ALLOCATOR) {
        ds_mem__scratch(plan, m->run, options->framework, &scratch);
        ds_mem__fsdp(plan, m->run, options->framework, &m->places, &scratch);
    }
    ds_status status = find_tiles(m, options, &scratch, err);
    for (int pass = 0; pass < 2 && status == DS_OK; pass++) { /* count, then fill */
        for (uint32_t v = 0; v < plan->values.n; v++) {
            if (m->root[v] != v || plan->values.at[v].is_inside || m->places.absent[v] ||
                m->tiled[v])
                continue;
            const ds_record *r = maker(plan, v);
            uint32_t task = plan->insts.at[plan->values.at[v].inst].first_task;
            for (uint32_t pos = 0; pos < r->n_classes; pos++) {
                int64_t bytes = bytes_of(plan, v, pos), end = m->free_ps[m->first[v] + pos];
                int64_t start = task == DS_NONE ? 0 : m->run->start_ps[task + pos];
                if (bytes == 0 || start == end) continue;
                ds_mem_class *c = &out->classes[r->classes[pos]];
                bool host = plan->values.at[v].is_host;
                put_event(c, host, (ds_mem_event){start, bytes, v}, pass);
                if (end == INT64_MAX) continue;
                put_event(c, host, (ds_mem_event){end, -bytes, v}, pass);
            }
        }
        for (uint32_t i = 0; i < kept.n; i++)
            if (kept.at[i].from != DS_NONE) add_mask(m, &kept.at[i], out, pass);
        for (uint32_t i = 0; i < plan->copies.n; i++) add_copy(m, &plan->copies.at[i], out, pass);
        for (uint32_t i = 0; i < scratch.n; i++) add_scratch(plan, &scratch.at[i], out, pass);
        for (uint32_t c = 0; c < out->n_classes && !pass; c++) make_room(&out->classes[c]);
    }
    for (uint32_t c = 0; c < out->n_classes; c++)
        sort_events(out->classes[c].host_events, out->classes[c].n_host_events);
    free(kept.at);
    free(scratch.at);
    return status;
}

/* ---- modes ---- */

static const char *const mode_names[] = {"exact", "rounded", "allocator"};

const char *ds_mem_mode_name(ds_mem_mode mode) {
    return mode_names[mode];
}

bool ds_mem_mode_parse(const char *text, ds_mem_mode *out) {
    for (int i = 0; i < 3; i++)
        if (strcmp(text, mode_names[i]) == 0) {
            *out = (ds_mem_mode)i;
            return true;
        }
    return false;
}

const char *ds_mem_category_name(int category) {
    static const char *const more[] = {"context", "communicator", "framework", "workspace",
                                       "unused"};
    return category < DS_CATEGORY_COUNT ? ds_category_name((ds_category)category)
                                        : more[category - DS_CATEGORY_COUNT];
}

const char *ds_mem_part_text(uint32_t value) {
    switch (ds_mem_part(value)) {
    case DS_MEM_MASK:
        return " (mask)";
    case DS_MEM_COPY:
        return " (copy)";
    case DS_MEM_SCRATCH:
    case DS_MEM_SECOND:
    case DS_MEM_THIRD:
        return " (scratch)";
    case DS_MEM_LIBRARY:
        return " (cuBLAS)";
    default:
        return "";
    }
}

int ds_mem_n_categories(ds_mem_mode mode) {
    return mode == DS_MEM_ALLOCATOR ? DS_MEM_CATEGORY_COUNT : DS_CATEGORY_COUNT;
}

static ds_status round_events(ds_mem_class *c, ds_error *err) {
    for (uint32_t i = 0; i < c->n_events; i++) {
        int64_t *delta = &c->events[i].delta_bytes, bytes;
        DS_TRY(ds_alloc_round(*delta > 0 ? *delta : -*delta, &bytes, err));
        *delta = *delta > 0 ? bytes : -bytes;
    }
    return DS_OK;
}

/* The blocks of live buffers: those of values by the value, the others by their part and value. */
typedef struct blocks {
    uint32_t *of_value; /* no block where nothing lives */
    ds_map others;
} blocks;

static void hold(blocks *held, uint32_t value, uint32_t block) {
    if (ds_mem_part(value))
        ds_map_put(&held->others, value, block);
    else
        held->of_value[value] = block;
}

static uint32_t held_block(const blocks *held, uint32_t value) {
    return ds_mem_part(value) ? (uint32_t)*ds_map_find(&held->others, value)
                              : held->of_value[value];
}

/* A gather's scratch is on the gather's stream. */
static ds_alloc_stream stream_of(const memory *m, uint32_t value) {
    uint32_t of = ds_mem_value(value);
    if (!ds_mem_part(value)) return (ds_alloc_stream)m->places.stream[of];
    bool gather = ds_mem__is_weight_gather(m->plan, m->plan->values.at[of].inst);
    return gather ? DS_ALLOC_GATHER : DS_ALLOC_COMPUTE;
}

static ds_status allocate(const memory *m, ds_mem_class *c, ds_allocator *a, blocks *held,
                          ds_error *err) {
    for (uint32_t i = 0; i < c->n_events; i++) {
        ds_mem_event *e = &c->events[i];
        uint32_t block;
        if (e->delta_bytes > 0) {
            DS_TRY(ds_allocator_take(a, stream_of(m, e->value), e->delta_bytes, &block, err));
            hold(held, e->value, block);
            e->delta_bytes = ds_allocator_block_bytes(a, block);
        } else {
            block = held_block(held, e->value);
            e->delta_bytes = -ds_allocator_block_bytes(a, block);
            ds_allocator_give(a, block);
        }
        c->reserved_bytes[i] = ds_allocator_reserved_bytes(a);
    }
    return DS_OK;
}

/* Replays the events through the allocator. What is left of the capacity beside the overheads is
 * the allocator's; if that is nothing, no segment fits and none is kept back for others. */
static ds_status allocate_events(const memory *m, ds_mem_class *c, int64_t capacity,
                                 int64_t overhead, bool expandable, ds_error *err) {
    int64_t room = capacity > overhead ? capacity - overhead : capacity ? 1 : 0;
    ds_allocator *a = ds_allocator_new(room, expandable);
    blocks held = {.of_value = ds_xmalloc(m->plan->values.n * sizeof *held.of_value)};
    ds_map_init(&held.others);
    c->reserved_bytes = ds_xcalloc(c->n_events, sizeof *c->reserved_bytes);
    ds_status status = allocate(m, c, a, &held, err);
    ds_map_deinit(&held.others);
    free(held.of_value);
    ds_allocator_free(a);
    return status;
}

/* ---- the peak ---- */

typedef struct level {
    int64_t total, live; /* all that is used; buffers alone */
    int64_t by[DS_MEM_CATEGORY_COUNT];
} level;

static ds_status holds_too_much(ds_error *err) {
    return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "a device holds more than 2^63 bytes");
}

static ds_status apply(const ds_plan *plan, ds_mem_class *c, uint32_t event, level *now,
                       ds_error *err) {
    const ds_mem_event *e = &c->events[event];
    uint32_t category = ds_mem_category(plan, e->value);
    int64_t overhead = ds_mem_beside(now->by);
    bool fine = ds_add_i64(now->live, e->delta_bytes, &now->live);
    int64_t used = c->reserved_bytes ? c->reserved_bytes[event] : now->live;
    if (!fine || !ds_add_i64(overhead, used, &now->total)) return holds_too_much(err);
    now->by[category] += e->delta_bytes;
    now->by[DS_MEM_UNUSED] = used - now->live;
    const uint32_t changed[] = {category, DS_MEM_UNUSED};
    for (int i = 0; i < 2; i++)
        if (now->by[changed[i]] > c->most_by_category[changed[i]])
            c->most_by_category[changed[i]] = now->by[changed[i]];
    if (ds_mem_part(e->value) == DS_MEM_LIBRARY ||
        maker(plan, ds_mem_value(e->value))->kind == DS_REC_INPUT)
        c->input_by_category[category] += e->delta_bytes;
    return DS_OK;
}

static void note_peak(ds_mem_class *c, const level *now, uint32_t event) {
    c->peak_bytes = now->total;
    c->peak_ps = c->n_events ? c->events[event].time_ps : 0;
}

/* The first moment at which buffers hold most. A reservation grows later too: for a buffer that no
 * free block has room for, among few others. */
static void note_most(ds_mem_class *c, const level *now, uint32_t event) {
    c->allocated_bytes = now->live;
    c->most_event = event;
    memcpy(c->peak_by_category, now->by, sizeof now->by);
}

static ds_status find_peak(const ds_plan *plan, ds_mem_class *c, int64_t capacity, level now,
                           ds_error *err) {
    note_peak(c, &now, 0);
    note_most(c, &now, 0);
    memcpy(c->most_by_category, now.by, sizeof now.by);
    memcpy(c->input_by_category, now.by, sizeof now.by);
    c->over_event = DS_NONE;
    for (uint32_t i = 0; i < c->n_events; i++) {
        DS_TRY(apply(plan, c, i, &now, err));
        if (now.live > c->allocated_bytes) note_most(c, &now, i);
        if (now.total > c->peak_bytes) note_peak(c, &now, i);
        if (capacity && now.total > capacity && c->over_event == DS_NONE) c->over_event = i;
    }
    if (c->reserved_bytes)
        c->peak_by_category[DS_MEM_UNUSED] =
            c->peak_bytes - ds_mem_beside(c->peak_by_category) - c->allocated_bytes;
    return DS_OK;
}

/* Per class: bytes that no tensor holds. */
typedef struct beside {
    int64_t *context, *communicator, *framework;
} beside;

static ds_status finish_class(const memory *m, const ds_mem_options *options, ds_mem *out,
                              uint32_t cls, const beside *more, ds_error *err) {
    const ds_plan *plan = m->plan;
    ds_mem_class *c = &out->classes[cls];
    int64_t capacity = ds_profiles_kind(plan->profiles, plan->classes[cls].kind)->memory_bytes;
    level now = {0};
    sort_events(c->events, c->n_events);
    if (out->mode == DS_MEM_ROUNDED) DS_TRY(round_events(c, err));
    if (out->mode == DS_MEM_ALLOCATOR) {
        now.by[DS_MEM_CONTEXT] = more->context[cls];
        now.by[DS_MEM_COMMUNICATOR] = more->communicator[cls];
        now.by[DS_MEM_FRAMEWORK] = more->framework[cls];
        now.total = ds_mem_beside(now.by);
        if (now.total == DS_MANY_BYTES) return holds_too_much(err);
        bool expandable = options->framework == DS_MEM_TORCHTITAN;
        DS_TRY(allocate_events(m, c, capacity, now.total, expandable, err));
    }
    return find_peak(plan, c, capacity, now, err);
}

ds_status ds_mem_compute(const ds_plan *plan, const ds_run *run, const ds_mem_options *options,
                         ds_mem *out, ds_error *err) {
    memory m = {.plan = plan, .run = run};
    m.root = ds_xcalloc(plan->values.n, sizeof *m.root);
    m.last_read = ds_xcalloc(plan->values.n, sizeof *m.last_read);
    m.first = ds_xcalloc(plan->values.n, sizeof *m.first);
    find_last_reads(&m);
    m.only = ds_xcalloc(plan->values.n, sizeof *m.only);
    m.free_ps = ds_xcalloc(find_classes(&m), sizeof *m.free_ps);
    m.places.stream = ds_xcalloc(plan->values.n, sizeof *m.places.stream);
    m.places.absent = ds_xcalloc(plan->values.n, sizeof *m.places.absent);
    m.tiled = ds_xcalloc(plan->values.n, sizeof *m.tiled);
    find_lifetimes(&m);
    out->mode = options->mode;
    out->n_classes = plan->n_classes;
    out->classes = ds_xcalloc(plan->n_classes, sizeof *out->classes);
    ds_status status = add_events(&m, options, out, err);
    beside more = {ds_xcalloc(plan->n_classes, sizeof *more.context),
                   ds_xcalloc(plan->n_classes, sizeof *more.communicator),
                   ds_xcalloc(plan->n_classes, sizeof *more.framework)};
    if (out->mode == DS_MEM_ALLOCATOR) {
        ds_mem_overheads(plan, more.context, more.communicator);
        ds_mem_framework_bytes(plan, options->framework, more.framework);
    }
    for (uint32_t c = 0; c < plan->n_classes && status == DS_OK; c++)
        status = finish_class(&m, options, out, c, &more, err);
    free(more.context);
    free(more.communicator);
    free(more.framework);
    free(m.root);
    free(m.last_read);
    free(m.first);
    free(m.only);
    free(m.tiled);
    free(m.free_ps);
    free(m.places.stream);
    free(m.places.absent);
    return status;
}

void ds_mem_deinit(ds_mem *mem) {
    for (uint32_t c = 0; c < mem->n_classes; c++) {
        free(mem->classes[c].events);
        free(mem->classes[c].host_events);
        free(mem->classes[c].reserved_bytes);
    }
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
    uint32_t n_seen = c->n_events ? c->most_event + 1 : 0;
    ds_map alive;
    ds_map_init(&alive);
    for (uint32_t i = 0; i < n_seen; i++)
        ds_map_put(&alive, c->events[i].value,
                   c->events[i].delta_bytes > 0 ? (uint64_t)c->events[i].delta_bytes : 0);
    ds_mem_live *live = ds_xcalloc(alive.n, sizeof *live);
    *n = 0;
    uint32_t at = 0;
    for (const ds_map_entry *e; (e = ds_map_next(&alive, &at));)
        if (e->value) live[(*n)++] = (ds_mem_live){(uint32_t)e->key, (int64_t)e->value};
    if (*n) qsort(live, *n, sizeof *live, by_bytes);
    ds_map_deinit(&alive);
    return live;
}
