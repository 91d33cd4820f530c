/* What the instances of the small step are.
 *
 * In its plan a microbatch is a call, whose instances are in nine runs: before the loop, its turns,
 * what stands between the loops of the forward and the backward pass, the turns backwards, what is
 * left. */
#include "search/bounds_layers.h"

#include "sim/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = DS_BOUND_SMALL_TURNS, MIDDLE = 1, MICROBATCHES = DS_BOUND_SMALL_MICROBATCHES };
/* Runs: PRE_F, three turns, BETWEEN, three turns, PRE_B; then those behind the microbatches. */
enum {
    PRE_F,
    TURN_F,
    BETWEEN = TURN_F + TURNS,
    TURN_B,
    PRE_B = TURN_B + TURNS,
    N_RUNS,
    NO_RUN = 99
};

/* ---- which run an instance is in ---- */

typedef struct reader {
    const ds_plan *plan;
    const ds_bound_sibling *sibling;
    bool cut;            /* the model's loop has three turns now */
    uint8_t *run;        /* per instance; NO_RUN: behind the microbatches, or an input */
    uint8_t *microbatch; /* per instance */
    bool *middle;        /* behind the microbatches: in a loop's middle turn */
    bool *outside;       /* … and in no loop */
    int64_t *start, *in; /* per instance: longest path to its end from the run's first start, and
                            from what the run before has made; −1: there is none */
} reader;

/* The outermost loop under the microbatch's call, and the call. */
static const ds_scope *loop_of(const ds_plan *plan, uint32_t scope, const ds_scope **call) {
    const ds_scope *loop = NULL;
    *call = NULL;
    for (uint32_t at = scope; at != DS_NONE; at = plan->scopes.at[at].up) {
        const ds_scope *s = &plan->scopes.at[at];
        bool calls = s->op && s->op->code == DS_OP_CALL && s->microbatch != DS_NO_MICROBATCH;
        const ds_scope *up = s->up == DS_NONE ? NULL : &plan->scopes.at[s->up];
        if (s->op && s->op->code == DS_OP_FOR) loop = s;
        if (!calls || (up && up->microbatch != DS_NO_MICROBATCH)) continue;
        *call = s;
        return loop;
    }
    return loop;
}

/* Instances of a microbatch come run by run. */
static bool find_runs(reader *r) {
    const ds_plan *plan = r->plan;
    const ds_op *loops[MICROBATCHES][2] = {{NULL}};
    const uint8_t begin = r->cut ? PRE_F : BETWEEN;
    uint8_t at[MICROBATCHES] = {begin, begin};
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_scope *call, *loop = loop_of(plan, inst->scope, &call);
        r->run[i] = NO_RUN;
        if (plan->records.at[inst->record]->kind == DS_REC_INPUT) continue;
        if (!r->cut) loop = NULL;
        if (loop && (loop->index < 0 || loop->index >= TURNS)) return false;
        r->middle[i] = !call && loop && loop->index == MIDDLE;
        r->outside[i] = !call && !loop;
        if (!call) continue;
        if (call->microbatch < 0 || call->microbatch >= MICROBATCHES) return false;
        uint32_t m = (uint32_t)call->microbatch;
        uint8_t run = at[m] < TURN_F ? PRE_F : at[m] < TURN_B ? BETWEEN : PRE_B;
        if (loop) {
            uint32_t which = at[m] < BETWEEN ? 0 : 1;
            if (!loops[m][which]) loops[m][which] = loop->op;
            if (loops[m][which] != loop->op && which == 0) loops[m][which = 1] = loop->op;
            if (loops[m][which] != loop->op) return false;
            run = (uint8_t)((which ? TURN_B : TURN_F) + loop->index);
        }
        if (run < at[m]) return false;
        r->run[i] = at[m] = run;
        r->microbatch[i] = (uint8_t)m;
    }
    return !r->cut || (at[0] >= TURN_B && at[1] >= TURN_B);
}

/* ---- paths ---- */

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The loss of one of several microbatches is scaled; that of one alone, for which the first stands
 * too, is not. */
static bool is_scaling(const reader *r, uint32_t inst, const ds_record *record) {
    return r->run[inst] == BETWEEN && r->microbatch[inst] == 0 && record->op &&
           record->op->code == DS_OP_SCALE;
}

/* Between all devices at once; anything else counts nothing. */
static int64_t transfer_ps(const reader *r, const ds_record *record) {
    const ds_bound_sibling *s = r->sibling;
    const ds_group *group = &record->groups[0];
    bool whole = record->n_groups == 1 && group->n_devices == s->tp * s->cp && group->request;
    return whole && s->transfer_ps ? s->transfer_ps(s->context, record->op->code, group->bytes) : 0;
}

/* Alone, on whichever devices it is fastest. */
static int64_t duration(const reader *r, uint32_t inst) {
    const ds_record *record = r->plan->records.at[r->plan->insts.at[inst].record];
    int64_t ps = INT64_MAX;
    if (r->plan->insts.at[inst].first_task == DS_NONE || is_scaling(r, inst, record)) return 0;
    if (record->kind == DS_REC_COMM) return transfer_ps(r, record);
    for (uint32_t i = 0; i < record->n_variants; i++) ps = least(ps, record->variants[i].ps);
    return ps == INT64_MAX ? 0 : ps;
}

static bool is_compute(const reader *r, uint32_t inst) {
    const ds_inst *i = &r->plan->insts.at[inst];
    return r->plan->records.at[i->record]->kind == DS_REC_COMPUTE && i->first_task != DS_NONE;
}

static uint32_t maker_of(const reader *r, uint32_t inst, uint32_t operand) {
    const ds_inst *i = &r->plan->insts.at[inst];
    return r->plan->values.at[r->plan->operands.at[i->first_operand + operand]].inst;
}

/* Is the instance in the run of that number in the same microbatch as `of`? */
static bool is_in(const reader *r, uint32_t inst, const uint32_t of, uint32_t run) {
    return r->run[inst] == run && r->microbatch[inst] == r->microbatch[of];
}

/* The longest paths to the ends of all instances. `last`: the last computation of each run. */
static void find_paths(reader *r, uint32_t last[MICROBATCHES][N_RUNS]) {
    memset(last, 0xff, sizeof(uint32_t[MICROBATCHES][N_RUNS]));
    for (uint32_t i = 0; i < r->plan->insts.n; i++) {
        uint32_t run = r->run[i];
        r->start[i] = r->in[i] = -1;
        if (run == NO_RUN) continue;
        uint32_t *before = &last[r->microbatch[i]][run];
        bool compute = is_compute(r, i);
        if (compute) r->start[i] = *before == DS_NONE ? 0 : r->start[*before];
        if (compute && *before != DS_NONE) r->in[i] = r->in[*before];
        for (uint32_t k = 0; k < ds_plan_n_operands(r->plan, i); k++) {
            uint32_t maker = maker_of(r, i, k);
            if (is_in(r, maker, i, run)) {
                r->start[i] = most(r->start[i], r->start[maker]);
                r->in[i] = most(r->in[i], r->in[maker]);
            } else if (run && is_in(r, maker, i, run - 1)) {
                r->in[i] = most(r->in[i], 0);
            }
        }
        int64_t ps = duration(r, i);
        if (r->start[i] >= 0) r->start[i] += ps;
        if (r->in[i] >= 0) r->in[i] += ps;
        if (compute) *before = i;
    }
}

/* One run of one microbatch. Of several values that go on, the first one counts. */
static ds_bound_path read_path(const reader *r, uint32_t m, uint32_t run, uint32_t last) {
    ds_bound_path path = {.out_ps = INT64_MAX, .through_ps = INT64_MAX};
    const ds_plan *plan = r->plan;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        if (r->microbatch[i] != m) continue;
        if (r->run[i] == run && is_compute(r, i)) path.compute_ps += duration(r, i);
        if (r->run[i] != run + 1) continue;
        for (uint32_t k = 0; k < ds_plan_n_operands(plan, i); k++) {
            uint32_t maker = maker_of(r, i, k);
            if (!is_in(r, maker, i, run)) continue;
            path.out_ps = least(path.out_ps, most(0, r->start[maker]));
            path.through_ps = least(path.through_ps, most(0, r->in[maker]));
        }
    }
    if (path.out_ps == INT64_MAX) path.out_ps = path.through_ps = 0;
    if (last == DS_NONE) return path;
    path.span_ps = most(0, r->start[last]);
    path.in_ps = most(0, r->in[last]);
    return path;
}

static void read_paths(reader *r, ds_bound_layers *out) {
    uint32_t last[MICROBATCHES][N_RUNS];
    find_paths(r, last);
    ds_bound_part *pre = &out->part[DS_BOUND_PRE], *turn = &out->part[DS_BOUND_TURN];
    pre->forward = read_path(r, 0, PRE_F, last[0][PRE_F]);
    turn->forward = read_path(r, 0, TURN_F + MIDDLE, last[0][TURN_F + MIDDLE]);
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        const uint32_t *end = last[m];
        out->part[DS_BOUND_POST].backward[m] = read_path(r, m, BETWEEN, end[BETWEEN]);
        turn->backward[m] = read_path(r, m, TURN_B + MIDDLE, end[TURN_B + MIDDLE]);
        pre->backward[m] = read_path(r, m, PRE_B, end[PRE_B]);
    }
    for (uint32_t i = 0; i < r->plan->insts.n; i++) {
        const ds_op *op = r->plan->records.at[r->plan->insts.at[i].record]->op;
        if ((!r->middle[i] && !r->outside[i]) || !is_compute(r, i)) continue;
        ds_bound_part *part = r->middle[i] ? turn : pre;
        part->update_ps[1] += duration(r, i);
        if (op && strcmp(ds_op_desc_of(op->code)->family, "optimizer") == 0)
            part->update_ps[0] += duration(r, i);
    }
}

/* ---- bytes ---- */

/* Bits of what reads a value. */
enum {
    BY_PRE_F = 1,
    BY_F = 2, /* the middle turn */
    BY_BETWEEN = 4,
    BY_B = 8,        /* the turn backwards in the middle */
    BY_B_LATER = 16, /* … of the layer behind it, which comes before */
    BY_PRE_B = 32,
    BY_OTHER_TURN = 64,
    BY_NEXT = 128, /* the other microbatch */
    BY_MIDDLE = 256,
    BY_OUTSIDE = 512,
    BY_REST = 1024
};

static uint32_t bit_of(const reader *r, uint32_t inst) {
    uint32_t run = r->run[inst];
    if (run == NO_RUN) return r->middle[inst] ? BY_MIDDLE : r->outside[inst] ? BY_OUTSIDE : BY_REST;
    if (run == PRE_F) return BY_PRE_F;
    if (run == TURN_F + MIDDLE) return BY_F;
    if (run == BETWEEN) return BY_BETWEEN;
    if (run == TURN_B + MIDDLE) return BY_B;
    if (run == PRE_B) return BY_PRE_B;
    return run == TURN_B + MIDDLE - 1 ? BY_B_LATER | BY_OTHER_TURN : BY_OTHER_TURN;
}

static int64_t bytes_of(const ds_plan *plan, uint32_t value) {
    const ds_vinst *v = &plan->values.at[value];
    const ds_record *record = plan->records.at[plan->insts.at[v->inst].record];
    return record->n_variants == 1 && !v->is_host ? record->variants[0].out_bytes[v->result] : 0;
}

/* Whose buffer a value is in, as sim/mem has it: an operation that may work in place does if nobody
 * reads the operand later. */
static void find_roots(const ds_plan *plan, uint32_t *root) {
    uint32_t *last_read = ds_xcalloc(plan->values.n + UINT32_C(1), sizeof *last_read);
    for (uint32_t i = 0; i < plan->insts.n; i++)
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i); k++)
            last_read[plan->operands.at[plan->insts.at[i].first_operand + k]] = i;
    for (uint32_t v = 0; v < plan->values.n; v++) {
        const ds_vinst *value = &plan->values.at[v];
        bool shares = value->alias != DS_NONE &&
                      (value->is_state || (last_read[value->alias] == value->inst &&
                                           bytes_of(plan, value->alias) == bytes_of(plan, v)));
        root[v] = shares ? root[value->alias] : v;
    }
    free(last_read);
}

/* There from the beginning: whose it is follows from who reads it. */
static void count_input(ds_bound_layers *out, const ds_vinst *v, uint32_t by, int64_t bytes) {
    bool turn = by & (BY_F | BY_B | BY_MIDDLE);
    if (!turn && by & (BY_OTHER_TURN | BY_REST)) return;
    ds_bound_place place = turn                                               ? DS_BOUND_TURN
                           : by & (BY_PRE_F | BY_PRE_B) || !(by & BY_BETWEEN) ? DS_BOUND_PRE
                                                                              : DS_BOUND_POST;
    if (v->category == DS_CAT_WEIGHT) out->part[place].weight_bytes += bytes;
    if (v->category == DS_CAT_WEIGHT && place == DS_BOUND_PRE && by & BY_BETWEEN)
        out->tied_bytes += bytes;
    if (v->category == DS_CAT_OPTIMIZER) out->part[place].state_bytes += bytes;
}

/* Is it kept by the turn in the middle for its backward pass? What two layers keep together counts
 * for the later one. */
static bool is_saved(uint32_t run, uint32_t by) {
    return run < BETWEEN && by & BY_B && !(by & BY_B_LATER) &&
           (run == TURN_F + MIDDLE || by & BY_F);
}

/* Made by the first microbatch. */
static void count_made(const reader *r, ds_bound_layers *out, uint32_t maker, uint32_t by,
                       int64_t bytes) {
    uint32_t run = r->run[maker];
    ds_bound_part *part = out->part;
    if (is_saved(run, by)) part[DS_BOUND_TURN].saved_bytes += bytes;
    if (run == PRE_F && by & BY_PRE_B) part[DS_BOUND_PRE].saved_bytes += bytes;
    if (run == TURN_F && by & BY_F) out->carried_bytes += bytes;
    if (!(by & BY_NEXT)) return;
    if (run == TURN_B + MIDDLE) part[DS_BOUND_TURN].gradient_bytes += bytes;
    if (run == PRE_B) part[DS_BOUND_PRE].gradient_bytes += bytes;
    if (run == BETWEEN) part[DS_BOUND_POST].gradient_bytes += bytes;
}

/* What it reads is gone when what it makes is there, at the same instant. */
static bool takes_no_time(const reader *r, uint32_t inst) {
    const ds_record *record = r->plan->records.at[r->plan->insts.at[inst].record];
    for (uint32_t i = 0; i < record->n_variants; i++)
        if (record->variants[i].ps) return false;
    return true;
}

/* When the value's buffer is certainly there, of instances of one run of one microbatch that
 * compute: from *first to *last. What other streams read may be gone sooner, and so may gradients
 * that are shared out (zero). */
static bool find_life(const reader *r, uint32_t m, uint32_t run, const uint32_t *last_read,
                      const uint32_t *by, uint32_t v, uint32_t *first, uint32_t *last) {
    uint32_t maker = r->plan->values.at[v].inst;
    if (r->microbatch[maker] != m || r->run[maker] == NO_RUN || !is_compute(r, maker)) return false;
    bool here = r->run[maker] == run, before = r->run[maker] + 1u == run;
    bool saved = run == TURN_B + MIDDLE && is_saved(r->run[maker], by[v]);
    *first = here ? maker : 0;
    *last = here && last_read[v] < maker ? maker : last_read[v];
    if (here && takes_no_time(r, maker) && ++*first > *last) return false;
    return here || ((before || saved) && last_read[v] > 0);
}

/* The most that is there while an instance of the run computes, of what the run makes, is handed,
 * and has saved. */
static int64_t most_in(const reader *r, uint32_t m, uint32_t run, const uint32_t *roots,
                       const uint32_t *by) {
    const ds_plan *plan = r->plan;
    uint32_t *last_read = ds_xcalloc(plan->values.n + UINT32_C(1), sizeof *last_read);
    int64_t *change = ds_xcalloc(plan->insts.n + (size_t)2, sizeof *change), now = 0, peak = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_op *op = plan->records.at[plan->insts.at[i].record]->op;
        bool sums = op && op->code == DS_OP_ACCUMULATE;
        if (r->run[i] != run || r->microbatch[i] != m || !is_compute(r, i) || sums) continue;
        uint32_t last = takes_no_time(r, i) && i ? i - 1 : i;
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i); k++)
            last_read[roots[plan->operands.at[plan->insts.at[i].first_operand + k]]] = last;
    }
    for (uint32_t v = 0; v < plan->values.n; v++) {
        uint32_t first, last;
        if (roots[v] != v || !find_life(r, m, run, last_read, by, v, &first, &last)) continue;
        change[first] += bytes_of(plan, v);
        change[last + 1] -= bytes_of(plan, v);
    }
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        now += change[i];
        if (r->run[i] == run && r->microbatch[i] == m && is_compute(r, i)) peak = most(peak, now);
    }
    free(last_read);
    free(change);
    return peak;
}

static void read_work(const reader *r, const uint32_t *roots, const uint32_t *by,
                      ds_bound_layers *out) {
    int64_t turn = INT64_MAX, post = INT64_MAX;
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        turn = least(turn, most_in(r, m, TURN_B + MIDDLE, roots, by));
        post = least(post, most_in(r, m, BETWEEN, roots, by));
    }
    ds_bound_part *part = out->part;
    part[DS_BOUND_TURN].work_bytes = most(0, turn - part[DS_BOUND_TURN].saved_bytes);
    part[DS_BOUND_POST].work_bytes = post;
}

static void read_bytes(const reader *r, ds_bound_layers *out) {
    const ds_plan *plan = r->plan;
    uint32_t *by = ds_xcalloc(plan->values.n + UINT32_C(1), sizeof *by);
    uint32_t *roots = ds_xcalloc(plan->values.n + UINT32_C(1), sizeof *roots);
    find_roots(plan, roots);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i); k++) {
            uint32_t value = plan->operands.at[plan->insts.at[i].first_operand + k];
            uint32_t root = roots[value], maker = plan->values.at[root].inst;
            bool made = r->run[maker] != NO_RUN;
            bool next = made && r->run[i] != NO_RUN && r->microbatch[i] != r->microbatch[maker];
            by[root] |= next ? BY_NEXT : bit_of(r, i);
        }
    }
    for (uint32_t v = 0; v < plan->values.n; v++) {
        uint32_t maker = plan->values.at[v].inst;
        int64_t size = bytes_of(plan, v);
        out->has_states |= plan->values.at[v].category == DS_CAT_OPTIMIZER;
        if (!by[v]) continue;
        if (plan->records.at[plan->insts.at[maker].record]->kind == DS_REC_INPUT)
            count_input(out, &plan->values.at[v], by[v], size);
        else if (r->run[maker] != NO_RUN && r->microbatch[maker] == 0)
            count_made(r, out, maker, by[v], size);
    }
    read_work(r, roots, by, out);
    free(by);
    free(roots);
}

/* ---- together ---- */

static bool read_plan(const ds_plan *plan, const ds_bound_sibling *sibling, bool cut,
                      ds_bound_layers *out) {
    size_t n = plan->insts.n + (size_t)1;
    reader r = {.plan = plan,
                .sibling = sibling,
                .cut = cut,
                .run = ds_xcalloc(n, 1),
                .microbatch = ds_xcalloc(n, 1),
                .middle = ds_xcalloc(n, sizeof(bool)),
                .outside = ds_xcalloc(n, sizeof(bool)),
                .start = ds_xcalloc(n, sizeof(int64_t)),
                .in = ds_xcalloc(n, sizeof(int64_t))};
    bool ok = find_runs(&r);
    if (ok) read_paths(&r, out);
    if (ok) read_bytes(&r, out);
    free(r.run);
    free(r.microbatch);
    free(r.middle);
    free(r.outside);
    free(r.start);
    free(r.in);
    return ok;
}

/* Bound to the size of a microbatch; as it is if that is settled. False: parts do not divide the
 * batch. */
static bool bind_size(ds_bound_small *small, int64_t parts) {
    char text[24];
    const ds_setting size = {small->microbatch, text};
    if (!small->microbatch) return true;
    if (parts < 1 || small->batch % parts != 0) return false;
    snprintf(text, sizeof text, "%" PRId64, small->batch / parts);
    return ds_bind(small->unit, &size, 1, &small->binding, NULL) == DS_OK;
}

bool ds_bound_layers_make(ds_bound_small *small, const ds_profiles *profiles,
                          ds_plan_ground *ground, const ds_bound_sibling *sibling,
                          ds_bound_layers *out) {
    const ds_plan_options options = {.cost_mode = DS_COST_FITTED, .ground = ground};
    ds_plan *plan;
    *out = small->known;
    if (!bind_size(small, sibling->parts) ||
        ds_plan_build(&small->binding, profiles, &options, &plan, NULL) != DS_OK)
        return false;
    bool ok = read_plan(plan, sibling, out->turns > 0, out);
    ds_plan_free(plan);
    return ok;
}
