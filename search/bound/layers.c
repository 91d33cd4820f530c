/* From the instances of the small step to runs, and the longest paths through the runs. */
#include "ir/base/units.h"
#include "search/bound/runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which run an instance is in ---- */

typedef struct reader {
    const ds_plan *plan;
    const ds_bound_sibling *sibling;
    bool cut;            /* the model's loop has three turns now */
    ds_bound_run *at;    /* per instance */
    int64_t *start, *in; /* per instance: longest path to its end from the run's first start, and
                            from the output of the run before; −1: no such path */
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

/* Finds the run of each instance. False: the instances of a microbatch do not come run by run. */
static bool find_runs(reader *r) {
    const ds_plan *plan = r->plan;
    const ds_op *loops[MICROBATCHES][2] = {{NULL}};
    const uint8_t begin = r->cut ? PRE_F : BETWEEN;
    uint8_t at[MICROBATCHES] = {begin, begin};
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_scope *call, *loop = loop_of(plan, inst->scope, &call);
        r->at[i].run = NO_RUN;
        if (plan->records.at[inst->record]->kind == DS_REC_INPUT) continue;
        if (!r->cut) loop = NULL;
        if (loop && (loop->index < 0 || loop->index >= TURNS)) return false;
        r->at[i].middle = !call && loop && loop->index == MIDDLE;
        r->at[i].outside = !call && !loop;
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
        r->at[i].run = at[m] = run;
        r->at[i].microbatch = (uint8_t)m;
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

/* Several microbatches scale the loss, one alone does not. The first microbatch represents both
 * cases, so its scaling does not count. */
static bool is_scaling(const reader *r, uint32_t inst, const ds_record *record) {
    return r->at[inst].run == BETWEEN && r->at[inst].microbatch == 0 && record->op &&
           record->op->code == DS_OP_SCALE;
}

/* Are the record's groups the replicas, which the usual order of axes numbers one by one? */
static bool is_of_replicas(const ds_bound_sibling *s, const ds_record *record) {
    bool whole = record->n_groups == s->ep;
    for (uint32_t i = 0; i < record->n_groups && whole; i++) {
        const ds_group *group = &record->groups[i];
        whole = group->n_devices == s->tp * s->cp && group->request;
        for (uint32_t k = 0; s->ep > 1 && whole && k < group->n_devices; k++)
            whole = group->devices[k] / s->tp == group->devices[0] / s->tp;
    }
    return whole;
}

/* The time of a transfer between all devices of a replica; any other transfer counts 0. */
static int64_t transfer_ps(const reader *r, const ds_record *record) {
    const ds_bound_sibling *s = r->sibling;
    const ds_group *group = &record->groups[0];
    bool whole = is_of_replicas(s, record);
    return whole && s->transfer_ps ? s->transfer_ps(s->context, record->op->code, group->bytes) : 0;
}

/* The instance's time alone, on the fastest devices. */
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

/* Is the instance in run `run` of the microbatch of `of`? */
static bool is_in(const reader *r, uint32_t inst, const uint32_t of, uint32_t run) {
    return r->at[inst].run == run && r->at[inst].microbatch == r->at[of].microbatch;
}

/* The longest paths to the ends of all instances. `last`: the last computation of each run. */
static void find_paths(reader *r, uint32_t last[MICROBATCHES][N_RUNS]) {
    memset(last, 0xff, sizeof(uint32_t[MICROBATCHES][N_RUNS]));
    for (uint32_t i = 0; i < r->plan->insts.n; i++) {
        uint32_t run = r->at[i].run;
        r->start[i] = r->in[i] = -1;
        if (run == NO_RUN) continue;
        uint32_t *before = &last[r->at[i].microbatch][run];
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
        if (r->start[i] >= 0) r->start[i] = ds_ps_sum(r->start[i], ps);
        if (r->in[i] >= 0) r->in[i] = ds_ps_sum(r->in[i], ps);
        if (compute) *before = i;
    }
}

/* One run of one microbatch. Of several outputs that the next run needs, the first counts. */
static ds_bound_path read_path(const reader *r, uint32_t m, uint32_t run, uint32_t last) {
    ds_bound_path path = {.out_ps = INT64_MAX, .through_ps = INT64_MAX};
    const ds_plan *plan = r->plan;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        if (r->at[i].microbatch != m) continue;
        if (r->at[i].run == run && is_compute(r, i))
            path.compute_ps = ds_ps_sum(path.compute_ps, duration(r, i));
        if (r->at[i].run != run + 1) continue;
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
        if ((!r->at[i].middle && !r->at[i].outside) || !is_compute(r, i)) continue;
        ds_bound_part *part = r->at[i].middle ? turn : pre;
        part->update_ps[1] = ds_ps_sum(part->update_ps[1], duration(r, i));
        if (op && strcmp(ds_op_desc_of(op->code)->family, "optimizer") == 0)
            part->update_ps[0] = ds_ps_sum(part->update_ps[0], duration(r, i));
    }
}

/* ---- together ---- */

static bool open_reader(reader *r, const ds_plan *plan, const ds_bound_sibling *sibling, bool cut) {
    size_t n = plan->insts.n + (size_t)1;
    *r = (reader){.plan = plan,
                  .sibling = sibling,
                  .cut = cut,
                  .at = ds_xcalloc(n, sizeof *r->at),
                  .start = ds_xcalloc(n, sizeof *r->start),
                  .in = ds_xcalloc(n, sizeof *r->in)};
    return find_runs(r);
}

static void close_reader(reader *r) {
    free(r->at);
    free(r->start);
    free(r->in);
}

static bool read_plan(const ds_plan *plan, const ds_bound_sibling *sibling, ds_bound_layers *out) {
    reader r;
    bool ok = open_reader(&r, plan, sibling, out->turns > 0);
    ds_bound_buffers *buffers = ok ? ds_bound_buffers_new(plan, r.at) : NULL;
    if (ok) read_paths(&r, out);
    ok = ok && ds_bound_buffers_read(buffers, 1, out);
    ds_bound_buffers_free(buffers);
    close_reader(&r);
    return ok;
}

/* The plan for microbatches of `samples` on all replicas; NULL: no such plan. */
static ds_plan *plan_of(ds_bound_small *small, int64_t samples, const ds_profiles *profiles,
                        ds_plan_ground *ground) {
    const ds_plan_options options = {.cost_mode = DS_COST_FITTED, .ground = ground};
    char text[24];
    const ds_setting size = {small->microbatch, text};
    ds_plan *plan;
    snprintf(text, sizeof text, "%" PRId64, samples);
    if (small->microbatch && ds_bind(small->unit, &size, 1, &small->binding, NULL) != DS_OK)
        return NULL;
    return ds_plan_build(&small->binding, profiles, &options, &plan, NULL) == DS_OK ? plan : NULL;
}

/* The buffers for all sizes; NULL: all sizes do not follow from one and two samples. */
static ds_bound_buffers *make_buffers(ds_bound_small *small, const ds_profiles *profiles,
                                      ds_plan_ground *ground, const ds_bound_sibling *sibling) {
    ds_plan *one = plan_of(small, sibling->ep, profiles, ground);
    ds_plan *two = one ? plan_of(small, 2 * sibling->ep, profiles, ground) : NULL;
    ds_bound_buffers *buffers = NULL;
    if (two) {
        reader r;
        if (open_reader(&r, one, sibling, small->known.turns > 0))
            buffers = ds_bound_buffers_new(one, r.at);
        close_reader(&r);
    }
    if (buffers && !ds_bound_buffers_grow(buffers, two)) {
        ds_bound_buffers_free(buffers);
        buffers = NULL;
    }
    ds_plan_free(one);
    ds_plan_free(two);
    return buffers;
}

/* The buffers for all sizes, which need no plan any more; NULL: each size needs a plan. */
static const ds_bound_buffers *buffers_of(ds_bound_small *small, const ds_profiles *profiles,
                                          ds_plan_ground *ground, const ds_bound_sibling *sibling) {
    if (!sibling->bytes || !small->microbatch || !small->grows_evenly) return NULL;
    if (!small->buffers) small->buffers = make_buffers(small, profiles, ground, sibling);
    small->grows_evenly = small->buffers != NULL;
    return small->buffers;
}

bool ds_bound_layers_make(ds_bound_small *small, const ds_profiles *profiles,
                          ds_plan_ground *ground, const ds_bound_sibling *sibling,
                          ds_bound_layers *out) {
    int64_t parts = sibling->parts;
    *out = small->known;
    if (small->microbatch && (parts < 1 || small->batch % parts != 0)) return false;
    int64_t samples = small->microbatch ? small->batch / parts : 1;
    const ds_bound_buffers *buffers = buffers_of(small, profiles, ground, sibling);
    if (buffers) return ds_bound_buffers_read(buffers, samples, out);
    ds_plan *plan = plan_of(small, samples * sibling->ep, profiles, ground);
    bool ok = plan && read_plan(plan, sibling, out);
    ds_plan_free(plan);
    return ok;
}
