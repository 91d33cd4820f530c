/* The bytes of layers, from the buffers of a small step.
 *
 * Bytes of a type with one dim that grows evenly with the microbatch are a line over the size of a
 * microbatch. So two plans, for one and for two samples, give the bytes of all sizes (small.c
 * finds out whether types are such). Makers and readers of buffers are the same for all sizes. */
#include "search/bound/runs.h"

#include <stdlib.h>
#include <string.h>

typedef struct inst {
    uint32_t first_read, n_reads; /* into reads */
    ds_bound_run at;
    bool is_input;
    bool computes;
    bool sums;  /* adds up gradients */
    bool still; /* takes no time: its operands are gone once its results exist */
} inst;

typedef struct buffer {
    uint32_t maker;
    uint32_t alias; /* the value whose buffer this value may take; DS_NONE: none */
    uint8_t category;
    bool is_state;
    bool is_expert; /* an input that is split over ep */
    int64_t bytes;  /* of the first sample … */
    int64_t more;   /* … and of each further sample */
} buffer;

struct ds_bound_buffers {
    inst *insts;
    buffer *values;
    uint32_t *reads;
    uint32_t n_insts, n_values;
};

/* ---- from a plan ---- */

static bool takes_no_time(const ds_record *record) {
    for (uint32_t i = 0; i < record->n_variants; i++)
        if (record->variants[i].ps) return false;
    return true;
}

static int64_t bytes_of(const ds_plan *plan, uint32_t value) {
    const ds_vinst *v = &plan->values.at[value];
    const ds_record *record = plan->records.at[plan->insts.at[v->inst].record];
    bool held = !v->is_host && !v->is_inside;
    return record->n_variants == 1 && held ? record->variants[0].out_bytes[v->result] : 0;
}

/* Is the value an input that is split over ep? The name of a family's member is "w{2}". */
static bool is_over_ep(const ds_plan *plan, uint32_t value) {
    const ds_vinst *v = &plan->values.at[value];
    const ds_record *record = plan->records.at[plan->insts.at[v->inst].record];
    size_t n = v->name ? strcspn(v->name, "{") : 0;
    if (record->kind != DS_REC_INPUT || !n) return false;
    for (uint32_t i = 0; i < record->func->n_args; i++) {
        const ds_value_info *arg = ds_value_at(record->func, record->func->args[i]);
        if (!arg->type || strncmp(arg->name, v->name, n) != 0 || arg->name[n]) continue;
        for (uint32_t d = 0; d < arg->type->rank; d++)
            if (ds_type_is_over(arg->type, d, "ep")) return true;
    }
    return false;
}

static inst read_inst(const ds_plan *plan, uint32_t i, uint32_t first_read, ds_bound_run at) {
    const ds_inst *from = &plan->insts.at[i];
    const ds_record *record = plan->records.at[from->record];
    return (inst){.first_read = first_read,
                  .n_reads = ds_plan_n_reads(plan, i),
                  .at = at,
                  .is_input = record->kind == DS_REC_INPUT,
                  .computes = record->kind == DS_REC_COMPUTE && from->first_task != DS_NONE,
                  .sums = record->op && record->op->code == DS_OP_ACCUMULATE,
                  .still = takes_no_time(record)};
}

ds_bound_buffers *ds_bound_buffers_new(const ds_plan *plan, const ds_bound_run *runs) {
    ds_bound_buffers *b = ds_xcalloc(1, sizeof *b);
    uint32_t n = 0;
    b->n_insts = plan->insts.n;
    b->n_values = plan->values.n;
    b->insts = ds_xcalloc(b->n_insts + (size_t)1, sizeof *b->insts);
    b->values = ds_xcalloc(b->n_values + (size_t)1, sizeof *b->values);
    b->reads = ds_xcalloc(plan->operands.n + (size_t)1, sizeof *b->reads);
    for (uint32_t i = 0; i < b->n_insts; i++) {
        b->insts[i] = read_inst(plan, i, n, runs[i]);
        for (uint32_t k = 0; k < b->insts[i].n_reads; k++)
            b->reads[n++] = plan->operands.at[plan->insts.at[i].first_operand + k];
    }
    for (uint32_t v = 0; v < b->n_values; v++) {
        const ds_vinst *from = &plan->values.at[v];
        b->values[v] = (buffer){.maker = from->inst,
                                .alias = from->alias,
                                .category = from->category,
                                .is_state = from->is_state,
                                .is_expert = is_over_ep(plan, v),
                                .bytes = bytes_of(plan, v)};
    }
    return b;
}

void ds_bound_buffers_free(ds_bound_buffers *b) {
    if (!b) return;
    free(b->insts);
    free(b->values);
    free(b->reads);
    free(b);
}

bool ds_bound_buffers_grow(ds_bound_buffers *b, const ds_plan *two) {
    if (two->insts.n != b->n_insts || two->values.n != b->n_values) return false;
    for (uint32_t i = 0, n = 0; i < b->n_insts; i++) {
        const inst other = read_inst(two, i, n, b->insts[i].at);
        if (other.n_reads != b->insts[i].n_reads || other.computes != b->insts[i].computes ||
            other.still != b->insts[i].still)
            return false;
        n += other.n_reads;
    }
    for (uint32_t v = 0; v < b->n_values; v++) {
        b->values[v].more = bytes_of(two, v) - b->values[v].bytes;
        if (two->values.at[v].alias != b->values[v].alias || b->values[v].more < 0) return false;
    }
    return true;
}

/* ---- bytes ---- */

/* Reads the buffers of microbatches of one size. */
typedef struct reader {
    const ds_bound_buffers *b;
    int64_t *bytes; /* per value */
    uint32_t *root; /* per value: the value that owns the buffer */
    uint32_t *by;   /* per root: bits of its readers */
    uint32_t *last_read;
    int64_t *change; /* per instance */
} reader;

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool is_of(const reader *r, uint32_t i, uint32_t m, uint32_t run) {
    const inst *at = &r->b->insts[i];
    return at->at.run == run && at->at.microbatch == m && at->computes;
}

static bool find_bytes(reader *r, int64_t samples) {
    for (uint32_t v = 0; v < r->b->n_values; v++) {
        const buffer *from = &r->b->values[v];
        int64_t more;
        if (!ds_mul_i64(from->more, samples - 1, &more) ||
            !ds_add_i64(from->bytes, more, &r->bytes[v]))
            return false;
    }
    return true;
}

/* Bits of a value's readers. */
enum {
    BY_PRE_F = 1,
    BY_F = 2, /* the middle turn */
    BY_BETWEEN = 4,
    BY_B = 8,        /* the middle turn backwards */
    BY_B_LATER = 16, /* … of the next layer, whose backward pass comes first */
    BY_PRE_B = 32,
    BY_OTHER_TURN = 64,
    BY_NEXT = 128, /* the other microbatch */
    BY_MIDDLE = 256,
    BY_OUTSIDE = 512,
    BY_REST = 1024
};

static uint32_t bit_of(const inst *at) {
    uint32_t run = at->at.run;
    if (run == NO_RUN) return at->at.middle ? BY_MIDDLE : at->at.outside ? BY_OUTSIDE : BY_REST;
    if (run == PRE_F) return BY_PRE_F;
    if (run == TURN_F + MIDDLE) return BY_F;
    if (run == BETWEEN) return BY_BETWEEN;
    if (run == TURN_B + MIDDLE) return BY_B;
    if (run == PRE_B) return BY_PRE_B;
    return run == TURN_B + MIDDLE - 1 ? BY_B_LATER | BY_OTHER_TURN : BY_OTHER_TURN;
}

/* As in sim/mem: an operation that may work in place does so as the operand's last reader. */
static void find_roots(reader *r) {
    const ds_bound_buffers *b = r->b;
    for (uint32_t i = 0; i < b->n_insts; i++)
        for (uint32_t k = 0; k < b->insts[i].n_reads; k++)
            r->last_read[b->reads[b->insts[i].first_read + k]] = i;
    for (uint32_t v = 0; v < b->n_values; v++) {
        const buffer *value = &b->values[v];
        bool shares = value->alias != DS_NONE &&
                      (value->is_state || (r->last_read[value->alias] == value->maker &&
                                           r->bytes[value->alias] == r->bytes[v]));
        r->root[v] = shares ? r->root[value->alias] : v;
    }
}

static void find_readers(reader *r) {
    const ds_bound_buffers *b = r->b;
    for (uint32_t i = 0; i < b->n_insts; i++) {
        const inst *at = &b->insts[i];
        for (uint32_t k = 0; k < at->n_reads; k++) {
            uint32_t root = r->root[b->reads[at->first_read + k]];
            const inst *maker = &b->insts[b->values[root].maker];
            bool made = maker->at.run != NO_RUN;
            bool next = made && at->at.run != NO_RUN && at->at.microbatch != maker->at.microbatch;
            r->by[root] |= next ? BY_NEXT : bit_of(at);
        }
    }
}

/* An input is held from the beginning; its readers tell the part of the model. */
static void count_input(ds_bound_layers *out, const buffer *value, uint32_t by, int64_t bytes) {
    uint8_t category = value->category;
    bool turn = by & (BY_F | BY_B | BY_MIDDLE);
    if (!turn && by & (BY_OTHER_TURN | BY_REST)) return;
    ds_bound_place place = turn                                               ? DS_BOUND_TURN
                           : by & (BY_PRE_F | BY_PRE_B) || !(by & BY_BETWEEN) ? DS_BOUND_PRE
                                                                              : DS_BOUND_POST;
    if (category == DS_CAT_WEIGHT) out->part[place].weight_bytes += bytes;
    if (category == DS_CAT_WEIGHT && place == DS_BOUND_PRE && by & BY_BETWEEN)
        out->tied_bytes += bytes;
    if (category == DS_CAT_OPTIMIZER) out->part[place].state_bytes += bytes;
    if (!value->is_expert) return;
    if (category == DS_CAT_WEIGHT) out->part[place].expert_weight_bytes += bytes;
    if (category == DS_CAT_OPTIMIZER) out->part[place].expert_state_bytes += bytes;
}

/* Does the middle turn keep the value for its backward pass? A value that two layers keep counts
 * for the later layer. */
static bool is_saved(uint32_t run, uint32_t by) {
    return run < BETWEEN && by & BY_B && !(by & BY_B_LATER) &&
           (run == TURN_F + MIDDLE || by & BY_F);
}

/* Counts a value that the first microbatch makes. */
static void count_made(ds_bound_layers *out, uint32_t run, uint32_t by, int64_t bytes) {
    ds_bound_part *part = out->part;
    if (is_saved(run, by)) part[DS_BOUND_TURN].saved_bytes += bytes;
    if (run == PRE_F && by & BY_PRE_B) part[DS_BOUND_PRE].saved_bytes += bytes;
    if (run == TURN_F && by & BY_F) out->carried_bytes += bytes;
    if (!(by & BY_NEXT)) return;
    if (run == TURN_B + MIDDLE) part[DS_BOUND_TURN].gradient_bytes += bytes;
    if (run == PRE_B) part[DS_BOUND_PRE].gradient_bytes += bytes;
    if (run == BETWEEN) part[DS_BOUND_POST].gradient_bytes += bytes;
}

/* The instances, of those that compute in one run of one microbatch, during which the value's
 * buffer certainly exists: *first to *last. Reads by other streams do not count, nor sums of
 * gradients, since a buffer for these may be gone sooner. */
static bool find_life(const reader *r, uint32_t m, uint32_t run, uint32_t v, uint32_t *first,
                      uint32_t *last) {
    uint32_t maker = r->b->values[v].maker;
    const inst *made = &r->b->insts[maker];
    if (made->at.microbatch != m || made->at.run == NO_RUN || !made->computes) return false;
    bool here = made->at.run == run, before = made->at.run + 1u == run;
    bool saved = run == TURN_B + MIDDLE && is_saved(made->at.run, r->by[v]);
    *first = here ? maker : 0;
    *last = here && r->last_read[v] < maker ? maker : r->last_read[v];
    if (here && made->still && ++*first > *last) return false;
    return here || ((before || saved) && r->last_read[v] > 0);
}

/* The peak of bytes that the run makes, receives and has saved, while its instances compute. */
static int64_t most_in(reader *r, uint32_t m, uint32_t run) {
    const ds_bound_buffers *b = r->b;
    int64_t now = 0, peak = 0;
    memset(r->last_read, 0, b->n_values * sizeof *r->last_read);
    memset(r->change, 0, (b->n_insts + (size_t)2) * sizeof *r->change);
    for (uint32_t i = 0; i < b->n_insts; i++) {
        const inst *at = &b->insts[i];
        if (!is_of(r, i, m, run) || at->sums) continue;
        uint32_t last = at->still && i ? i - 1 : i;
        for (uint32_t k = 0; k < at->n_reads; k++)
            r->last_read[r->root[b->reads[at->first_read + k]]] = last;
    }
    for (uint32_t v = 0; v < b->n_values; v++) {
        uint32_t first, last;
        if (r->root[v] != v || !find_life(r, m, run, v, &first, &last)) continue;
        r->change[first] += r->bytes[v];
        r->change[last + 1] -= r->bytes[v];
    }
    for (uint32_t i = 0; i < b->n_insts; i++) {
        now += r->change[i];
        if (is_of(r, i, m, run)) peak = most(peak, now);
    }
    return peak;
}

static void read_work(reader *r, ds_bound_layers *out) {
    int64_t turn = INT64_MAX, post = INT64_MAX;
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        turn = least(turn, most_in(r, m, TURN_B + MIDDLE));
        post = least(post, most_in(r, m, BETWEEN));
    }
    ds_bound_part *part = out->part;
    part[DS_BOUND_TURN].work_bytes = most(0, turn - part[DS_BOUND_TURN].saved_bytes);
    part[DS_BOUND_POST].work_bytes = post;
}

static void read_buffers(reader *r, ds_bound_layers *out) {
    find_roots(r);
    find_readers(r);
    for (uint32_t v = 0; v < r->b->n_values; v++) {
        const buffer *value = &r->b->values[v];
        const inst *maker = &r->b->insts[value->maker];
        out->has_states |= value->category == DS_CAT_OPTIMIZER;
        if (!r->by[v]) continue;
        if (maker->is_input)
            count_input(out, value, r->by[v], r->bytes[v]);
        else if (maker->at.run != NO_RUN && maker->at.microbatch == 0)
            count_made(out, maker->at.run, r->by[v], r->bytes[v]);
    }
    read_work(r, out);
}

/* No device holds 2^60 bytes, so larger steps get no bound. */
static bool sums_fit(const reader *r) {
    double sum = 0;
    for (uint32_t v = 0; v < r->b->n_values; v++) sum += (double)r->bytes[v];
    return sum < 0x1p60;
}

bool ds_bound_buffers_read(const ds_bound_buffers *b, int64_t samples, ds_bound_layers *out) {
    size_t n = b->n_values + (size_t)1;
    reader r = {.b = b,
                .bytes = ds_xcalloc(n, sizeof *r.bytes),
                .root = ds_xcalloc(n, sizeof *r.root),
                .by = ds_xcalloc(n, sizeof *r.by),
                .last_read = ds_xcalloc(n, sizeof *r.last_read),
                .change = ds_xcalloc(b->n_insts + (size_t)2, sizeof *r.change)};
    bool ok = find_bytes(&r, samples) && sums_fit(&r);
    if (ok) read_buffers(&r, out);
    free(r.bytes);
    free(r.root);
    free(r.by);
    free(r.last_read);
    free(r.change);
    return ok;
}
