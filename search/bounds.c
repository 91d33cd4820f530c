/* The formulas of bounds.h.
 *
 * Sums are kept by the share of the work, since regions that differ in other knobs ask for the same
 * ones. Doubles are good for 15 digits; a billionth is taken off before a time is rounded down. */
#include "search/bounds.h"

#include <string.h>

/* Durations are rounded up to picoseconds, and sums of doubles err by far less than that. */
static int64_t round_down(double seconds) {
    double ps = seconds * 1e12 * (1 - 1e-9);
    return ps >= 9e18 ? INT64_MAX : ps > 1 ? (int64_t)ps - 1 : 0;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* One operation at 1/share of its work. */
static double seconds_of(const ds_bound_table *t, const ds_bound_op *op, double share) {
    ds_work work = op->work;
    double compute, memory;
    work.flop = (int64_t)((double)work.flop / share);
    work.bytes_read = (int64_t)((double)work.bytes_read / share);
    ds_cost_sides(t->profiles, t->kind, t->profile, op->op, &work, &compute, &memory);
    return larger(0, larger(compute, memory));
}

static double sum(const ds_bound_table *t, const ds_bound_op *ops, uint32_t n, double share,
                  bool attention) {
    double total = 0;
    for (uint32_t i = 0; i < n; i++)
        if (attention || ops[i].work.kind != DS_WORK_ATTENTION)
            total += (double)ops[i].n * seconds_of(t, &ops[i], share);
    return total;
}

/* The region with numbers in the place of what is not known. */
typedef struct known {
    double replicas, stages, microbatches;
    bool all; /* degrees and microbatches are known */
} known;

static known fill_in(const ds_bound_region *r) {
    const int64_t degrees[] = {r->dp, r->tp, r->cp};
    double free = (double)r->table->n_devices;
    known k = {.replicas = 1,
               .stages = r->pp ? (double)r->pp : 1,
               .microbatches = r->microbatches ? (double)r->microbatches : 1,
               .all = r->pp && r->microbatches};
    bool some = false;
    for (int i = 0; i < 3; i++) {
        k.replicas *= degrees[i] ? (double)degrees[i] : 1;
        some = some || !degrees[i];
    }
    if (!some && r->pp) return k;
    k.all = false;
    free /= k.stages * k.replicas;
    /* All that is free goes where the bound is least: more of D, at which efficiency falls, is no
     * less than more of pp. */
    if (free < 1) free = 1;
    if (r->pp)
        k.replicas *= free;
    else
        k.stages *= free;
    return k;
}

/* What the gradients of a device, on the average over stages, take to leave it. */
static double reduction_seconds(const ds_bound_region *r) {
    const ds_bound_table *t = r->table;
    if (!r->pp || r->dp * r->cp < 2 || !r->tp || r->zero < 0 || r->experts ||
        !t->egress_bytes_per_s)
        return 0;
    double n = (double)(r->dp * r->cp), share = (n - 1) / n;
    double gradients = (double)t->gradient_bytes, weights = (double)t->weight_bytes;
    double bytes =
        r->zero ? share * (gradients + weights) : (t->reduces ? 1 : 2) * share * gradients;
    if (gradients <= 0) return 0;
    return bytes / ((double)r->tp * (double)r->pp) / (double)t->egress_bytes_per_s;
}

static double reduce_bound(const ds_bound_region *r, double turn, bool attention) {
    const ds_bound_table *t = r->table;
    double before = 0, reduction = reduction_seconds(r);
    if (reduction <= 0) return 0;
    if (r->in_order && r->zero < 2)
        before = r->microbatches > 1 ? (double)(r->microbatches - 1) * turn
                                     : sum(t, t->forward.at, t->forward.n,
                                           (double)(r->dp * r->tp * r->cp), attention);
    return before / (double)r->pp + reduction;
}

/* Collectives over tp: each of the other degrees has its part of the batch or of the stages. */
static double tp_seconds(const ds_bound_region *r) {
    const ds_bound_table *t = r->table;
    if (!t->egress_bytes_per_s) return 0;
    double parts = (double)t->n_devices;
    if (r->dp && r->cp && r->pp) parts = (double)r->dp * (double)r->cp * (double)r->pp;
    return (double)t->sent_bytes / parts / (double)t->egress_bytes_per_s;
}

int64_t ds_bound_step_ps(const ds_bound_region *r) {
    const ds_bound_table *t = r->table;
    if (!t) return 0;
    known k = fill_in(r);
    bool attention = r->cp == 1; /* a ring cuts it into pieces of other shapes */
    double m = k.microbatches;
    double turn = sum(t, t->products.at, t->products.n, k.replicas * m, attention);
    double work = m * turn;
    if (r->tp == 1 && r->cp == 1) work += sum(t, t->memory.at, t->memory.n, k.replicas, true);
    double bound = work / k.stages;
    if (k.all) {
        double chain = sum(t, t->chain.at, t->chain.n, k.replicas * m, attention);
        bound = larger(larger(bound, chain), reduce_bound(r, turn, attention));
    }
    return round_down(larger(bound, tp_seconds(r) + reduction_seconds(r)));
}

static int64_t saved_bytes(const ds_bound_region *r) {
    if (!r->saves || !r->dp || !r->tp || !r->cp || !r->pp || !r->microbatches) return 0;
    int64_t parts = r->dp * r->tp * r->cp * r->pp;
    return r->table->saved_bytes / (r->at_once ? parts : parts * r->microbatches);
}

int64_t ds_bound_peak_bytes(const ds_bound_region *r) {
    const ds_bound_table *t = r->table;
    if (!t) return 0;
    int64_t all = t->n_devices, replicas = (r->dp ? r->dp : 1) * (r->cp ? r->cp : 1);
    if (r->dp && r->tp && r->cp && r->pp) all = r->dp * r->tp * r->cp * r->pp;
    int64_t shards = r->tp && r->pp ? r->tp * r->pp : all / replicas;
    if (shards < 1) shards = 1;
    if (r->experts) shards = all;
    int64_t weights = t->weight_bytes / (r->zero == 3 || r->zero < 0 ? all : shards);
    return weights + t->state_bytes / (r->zero ? all : shards) + saved_bytes(r);
}
