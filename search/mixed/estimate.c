/* The time and memory of a plan, estimated from pieces.
 *
 *     step ≈ Σ_s (F_s + 2 send_s) + (m - 1) max_s max(F_s, send_s) + Σ_s shown_s + max_s update_s
 *
 * F_s: forward and backward of a microbatch; send_s: a microbatch's activations to the next stage;
 * shown_s: the gradients' sum in the last backward pass, of which a part is hidden where sums run beside
 * compute. Stage s of 1F1B
 * keeps the activations of min(m, S - s) microbatches, eager 1F1B of min(m, 2 (S - s) - 1). */
#include "search/mixed/mixed.h"
#include "sim/run/shares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BISECTIONS = 40 };

/* Adam in 16 bits: an f32 master copy and two f32 moments, which ZeRO 1 shares out. */
static const double state_bytes = 12;
/* assumed: a forward pass is a third of forward and backward; recomputation adds one. */
static const double again = 4.0 / 3;
/* assumed: of a backward pass, two thirds of F, half hides the sums of gradients. */
static const double hides = 1.0 / 3;

static uint32_t log2_of(uint32_t n) {
    uint32_t i = 0;
    while (n >> (i + 1)) i++;
    return i;
}

/* Between two measured sizes a line, beyond the last the last line. */
static double between(const double *v, double samples) {
    uint32_t i = 0;
    while (i + 2 < DS_MIXED_SAMPLES && samples > (double)(2u << i)) i++;
    double low = (double)(1u << i), part = (samples - low) / low;
    return v[i] + part * (v[i + 1] - v[i]);
}

static const ds_mixed_piece *piece_of(const ds_mixed_problem *problem, uint32_t kind, uint32_t tp) {
    return &problem->kinds[kind].pieces[log2_of(tp)];
}

double ds_mixed_stage_s(const ds_mixed_problem *problem, const ds_mixed_stage *stage,
                        double samples, bool last, bool recompute) {
    const ds_mixed_piece *piece = piece_of(problem, stage->kind, stage->tp);
    double time = stage->layers * between(piece->layer_s, samples) * (recompute ? again : 1);
    return time + (last ? between(piece->ends_s, samples) : 0);
}

/* ---- the stages that a plan's kind of devices sees ---- */

/* One pipeline: stages with kinds and widths, and samples of a replica in a microbatch. */
typedef struct line {
    uint32_t n;
    ds_mixed_stage stages[DS_MIXED_STAGES];
    double samples[DS_MIXED_STAGES];
    uint32_t sync_dp; /* replicas that sum gradients; 0: each stage's own */
} line;

static double widest_share(const ds_mixed_group *group) {
    return (double)((group->share + group->replicas - 1) / group->replicas);
}

/* Line g of a plan; side by side there is one a group. */
static void take_line(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t g,
                      line *out) {
    double microbatch = (double)problem->batch / (double)plan->microbatches;
    out->n = plan->n_stages;
    out->sync_dp = 0;
    memcpy(out->stages, plan->stages, plan->n_stages * sizeof *plan->stages);
    for (uint32_t s = 0; s < out->n; s++) {
        if (plan->side_by_side) {
            out->stages[s].kind = plan->groups[g].kind;
            out->stages[s].dp = plan->groups[g].replicas;
        }
        out->samples[s] =
            plan->side_by_side ? widest_share(&plan->groups[g]) : microbatch / plan->stages[s].dp;
    }
    for (uint32_t i = 0; plan->side_by_side && i < plan->n_groups; i++)
        out->sync_dp += plan->groups[i].replicas;
}

static uint32_t n_lines(const ds_mixed_plan *plan) {
    return plan->side_by_side ? plan->n_groups : 1;
}

/* ---- memory ---- */

static double in_flight(const ds_mixed_plan *plan, uint32_t s) {
    double most = plan->n_stages - s;
    if (plan->eager) most = 2 * most - 1;
    return most < (double)plan->microbatches ? most : (double)plan->microbatches;
}

/* Bytes of a device: fixed for the stage, and for each of its layers. */
static void bytes_of(const ds_mixed_problem *problem, const ds_mixed_plan *plan, const line *l,
                     uint32_t s, double *fixed, double *each) {
    const ds_mixed_stage *stage = &l->stages[s];
    const ds_mixed_piece *piece = piece_of(problem, stage->kind, stage->tp);
    bool end = s == 0 || s + 1 == l->n;
    uint32_t dp = l->sync_dp ? l->sync_dp : stage->dp;
    double saved = plan->zero ? state_bytes * (1 - 1.0 / dp) / stage->tp : 0;
    double kept = in_flight(plan, s) * l->samples[s];
    double layer = kept * piece->layer_sample_bytes;
    *fixed = end ? piece->ends_bytes - saved * problem->ends_params : 0;
    if (s + 1 == l->n) *fixed += l->samples[s] * piece->ends_sample_bytes;
    if (plan->recompute) {
        *fixed += l->samples[s] * piece->layer_sample_bytes;
        layer = kept * problem->edge_bytes / stage->tp;
    }
    *each = piece->layer_bytes - saved * problem->layer_params + layer;
}

/* ---- sums of gradients ---- */

/* Seconds a byte of weights for the sum over dp replicas of tp devices. Beyond a machine the tp parts
 * share the machine's network, so that the sum of all parts counts. */
static double sync_rate(const ds_mixed_kind *kind, const double *rates, uint32_t dp, uint32_t tp) {
    if (dp < 2) return 0;
    if (dp * tp <= kind->per_machine) return rates[0] / tp;
    double machines = (double)dp * tp / kind->per_machine;
    double all = (double)kind->n_devices / kind->per_machine;
    double part = all > 2 ? fmin(fmax(machines - 2, 0) / (all - 2), 1) : 0;
    return rates[1] + part * (rates[2] - rates[1]);
}

static double line_sync_rate(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                             const line *l, uint32_t s) {
    const ds_mixed_stage *stage = &l->stages[s];
    const ds_mixed_kind *kind = &problem->kinds[stage->kind];
    uint32_t dp = l->sync_dp ? l->sync_dp : stage->dp;
    bool scattered = plan->zero && problem->width % dp == 0;
    if (!l->sync_dp || plan->n_groups < 2)
        return sync_rate(kind, kind->sync_s_per_byte[scattered], stage->dp, stage->tp);
    return problem->mixed_sync_s_per_byte[scattered];
}

/* ---- the cut ---- */

/* Seconds of stage s of a line for a microbatch: fixed, and for each layer. The end of the step counts
 * with its part for a microbatch. */
static void seconds_of(const ds_mixed_problem *problem, const ds_mixed_plan *plan, const line *l,
                       uint32_t s, double *fixed, double *each) {
    ds_mixed_stage one = l->stages[s];
    one.layers = 1;
    *each = ds_mixed_stage_s(problem, &one, l->samples[s], false, plan->recompute);
    *fixed = ds_mixed_stage_s(problem, &one, l->samples[s], s + 1 == l->n, plan->recompute) - *each;
    const ds_mixed_piece *piece = piece_of(problem, one.kind, one.tp);
    double rate = 2 * line_sync_rate(problem, plan, l, s), m = (double)plan->microbatches;
    *each += (piece->layer_update_s + rate * problem->layer_params) / m;
    if (s == 0 || s + 1 == l->n) *fixed += (piece->ends_update_s + rate * problem->ends_params) / m;
}

typedef struct cutter {
    uint32_t n;
    double fixed[DS_MIXED_STAGES], each[DS_MIXED_STAGES];
    uint32_t most[DS_MIXED_STAGES]; /* layers that fit into memory */
} cutter;

static bool fill_cutter(const ds_mixed_problem *problem, const ds_mixed_plan *plan, cutter *c) {
    line l;
    c->n = plan->n_stages;
    for (uint32_t s = 0; s < c->n; s++) c->fixed[s] = c->each[s] = 0, c->most[s] = problem->layers;
    for (uint32_t g = 0; g < n_lines(plan); g++) {
        take_line(problem, plan, g, &l);
        for (uint32_t s = 0; s < c->n; s++) {
            double fixed, each, room = problem->kinds[l.stages[s].kind].capacity_bytes;
            if (!piece_of(problem, l.stages[s].kind, l.stages[s].tp)->known) return false;
            seconds_of(problem, plan, &l, s, &fixed, &each);
            if (each > c->each[s]) c->each[s] = each;
            if (fixed > c->fixed[s]) c->fixed[s] = fixed;
            bytes_of(problem, plan, &l, s, &fixed, &each);
            double most = each > 0 && room > 0 ? (room - fixed) / each : problem->layers;
            if (most < 1) return false;
            if (most < c->most[s]) c->most[s] = (uint32_t)most;
        }
    }
    return true;
}

static uint32_t layers_within(const cutter *c, uint32_t s, double time) {
    double n = (time - c->fixed[s]) / c->each[s];
    return n < 1 ? 1 : n > c->most[s] ? c->most[s] : (uint32_t)n;
}

static uint32_t sum_within(const cutter *c, double time) {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < c->n; s++) sum += layers_within(c, s, time);
    return sum;
}

bool ds_mixed_fits(const ds_mixed_problem *problem, const ds_mixed_plan *plan) {
    cutter c;
    bool fits = fill_cutter(problem, plan, &c);
    for (uint32_t s = 0; s < plan->n_stages && fits; s++)
        fits = plan->stages[s].layers <= c.most[s];
    return fits;
}

/* Bisection for the least time within which all layers find a stage; what is too much then leaves the
 * busiest stages. */
bool ds_mixed_cut(const ds_mixed_problem *problem, const ds_mixed_plan *simulated,
                  ds_mixed_plan *plan) {
    cutter c;
    if (plan->n_stages > problem->layers || !fill_cutter(problem, plan, &c)) return false;
    for (uint32_t s = 0; s < c.n && simulated; s++) {
        double factor =
            simulated->busy_s[s] / (c.fixed[s] + c.each[s] * simulated->stages[s].layers);
        if (factor > 0) c.fixed[s] *= factor, c.each[s] *= factor;
    }
    double low = 0, high = 0;
    for (uint32_t s = 0; s < c.n; s++)
        high = fmax(high, c.fixed[s] + c.each[s] * (problem->layers + 1));
    if (sum_within(&c, high) < problem->layers) return false;
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = (low + high) / 2;
        if (sum_within(&c, middle) >= problem->layers)
            high = middle;
        else
            low = middle;
    }
    uint32_t sum = 0;
    for (uint32_t s = 0; s < c.n; s++)
        sum += plan->stages[s].layers = (uint16_t)layers_within(&c, s, high);
    while (sum > problem->layers) {
        uint32_t busiest = UINT32_MAX;
        double most = -1;
        for (uint32_t s = 0; s < c.n; s++) {
            double time = c.fixed[s] + c.each[s] * plan->stages[s].layers;
            if (plan->stages[s].layers > 1 && time > most) most = time, busiest = s;
        }
        if (busiest == UINT32_MAX) return false;
        plan->stages[busiest].layers--;
        sum--;
    }
    return true;
}

/* ---- shares ---- */

/* With the layers dealt out evenly: the cut follows the shares. A replica's time is taken as a line
 * from 1 to its even part of twice the samples. */
bool ds_mixed_share(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    uint32_t n = 0;
    for (uint32_t g = 0; g < plan->n_groups; g++) n += plan->groups[g].replicas;
    int64_t microbatch = problem->batch / plan->microbatches;
    if (microbatch < n) return false;
    double *fixed = calloc(2 * n + 1, sizeof *fixed), *each = fixed + n;
    int64_t *parts = calloc(n + 1, sizeof *parts);
    uint32_t at = 0;
    double far = fmax(2, 2 * (double)microbatch / n);
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        ds_mixed_stage whole = plan->stages[0];
        whole.kind = plan->groups[g].kind;
        whole.layers = (uint16_t)problem->layers;
        double t1 = ds_mixed_stage_s(problem, &whole, 1, true, plan->recompute);
        double t2 = ds_mixed_stage_s(problem, &whole, far, true, plan->recompute);
        for (uint32_t i = 0; i < plan->groups[g].replicas; i++, at++) {
            each[at] = fmax((t2 - t1) / (far - 1), 1e-12);
            fixed[at] = t1 - each[at];
        }
    }
    ds_shares_choose(fixed, each, n, microbatch, parts);
    at = 0;
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        plan->groups[g].share = 0;
        for (uint32_t i = 0; i < plan->groups[g].replicas; i++)
            plan->groups[g].share += parts[at++];
    }
    free(fixed);
    free(parts);
    return true;
}

/* ---- time ---- */

/* Bytes a second that the machines of a stage send. A ring's sum sends every byte of weights twice. */
static double send_rate(const ds_mixed_problem *problem, const ds_mixed_stage *stage) {
    const ds_mixed_kind *kind = &problem->kinds[stage->kind];
    double machines = ceil((double)stage->dp * stage->tp / kind->per_machine);
    double s_per_byte = fmax(kind->sync_s_per_byte[0][1], kind->sync_s_per_byte[0][0]);
    return s_per_byte > 0 ? machines * 2 / s_per_byte : HUGE_VAL;
}

static double send_s(const ds_mixed_problem *problem, const line *l, uint32_t s) {
    const ds_mixed_stage *from = &l->stages[s], *to = from + 1;
    if (s + 1 == l->n) return 0;
    double rate = fmin(send_rate(problem, from), send_rate(problem, to));
    if (from->kind != to->kind && problem->between_bytes_per_s > 0)
        rate = fmin(rate, problem->between_bytes_per_s);
    return problem->edge_bytes * l->samples[s] * (l->sync_dp ? 1 : from->dp) / rate;
}

static double line_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan, const line *l) {
    double fill = 0, busiest = 0, end = 0;
    for (uint32_t s = 0; s < l->n; s++) {
        const ds_mixed_stage *stage = &l->stages[s];
        const ds_mixed_piece *piece = piece_of(problem, stage->kind, stage->tp);
        bool is_end = s == 0 || s + 1 == l->n;
        double work =
            ds_mixed_stage_s(problem, stage, l->samples[s], s + 1 == l->n, plan->recompute);
        double send = send_s(problem, l, s);
        double bytes =
            2 * (stage->layers * problem->layer_params + (is_end ? problem->ends_params : 0));
        double sum = bytes * line_sync_rate(problem, plan, l, s);
        double update = stage->layers * piece->layer_update_s + (is_end ? piece->ends_update_s : 0);
        if (plan->zero) update /= l->sync_dp ? l->sync_dp : stage->dp;
        fill += work + 2 * send;
        busiest = fmax(busiest, fmax(work, 2 * send));
        if (problem->kinds[stage->kind].hides_sums)
            sum = fmax(sum - hides * work, sum / (stage->layers + 1));
        fill += sum;
        end = fmax(end, update);
    }
    return fill + (double)(plan->microbatches - 1) * busiest + end;
}

/* The rate of sums within a stage on two kinds is that over all kinds. */
double ds_mixed_sum_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t s) {
    line l;
    take_line(problem, plan, 0, &l);
    double rate = line_sync_rate(problem, plan, &l, s);
    if (plan->in_order) rate = fmax(rate, problem->mixed_sync_s_per_byte[0]);
    bool end = s == 0 || s + 1 == l.n;
    return 2 * rate *
           (plan->stages[s].layers * problem->layer_params + (end ? problem->ends_params : 0));
}

double ds_mixed_send_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t s) {
    line l;
    take_line(problem, plan, 0, &l);
    return send_s(problem, &l, s);
}

void ds_mixed_estimate(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    line l;
    plan->estimate_s = 0;
    for (uint32_t g = 0; g < n_lines(plan); g++) {
        take_line(problem, plan, g, &l);
        plan->estimate_s = fmax(plan->estimate_s, line_s(problem, plan, &l));
    }
}
