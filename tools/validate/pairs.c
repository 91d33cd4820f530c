/* Pairs of published steps that differ in one setting. */
#include "tools/validate/pairs.h"

#include "tools/validate/stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What the scenario of a row says, beside the model and the batch. */
typedef struct settings {
    char kernels[16], overlap[16], recompute[32];
    int bits; /* of the layers' products */
    int64_t sp, cp;
} settings;

static bool mentions(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

static int bits_of(const char *precision) {
    if (mentions(precision, "fp4")) return 4;
    if (mentions(precision, "fp8")) return 8;
    return strncasecmp(precision, "fp32", 4) == 0 ? 32 : 16;
}

static settings settings_of(const val_prediction *p, bool zero_shot) {
    settings of = {.bits = bits_of(p->row.precision), .sp = p->row.sp > 0, .cp = p->row.cp};
    val_testbed testbed;
    ds_error err;
    snprintf(of.recompute, sizeof of.recompute, "%.31s", p->row.recompute);
    if (val_testbed_for(&p->row, zero_shot, &testbed, &err) != DS_OK) return of;
    const char *overlap = of.bits == 8 ? testbed.narrow_tp_overlap : testbed.tp_overlap;
    if (testbed.kernels) snprintf(of.kernels, sizeof of.kernels, "%s", testbed.kernels);
    if (overlap && p->row.tp > 1) snprintf(of.overlap, sizeof of.overlap, "%s", overlap);
    return of;
}

/* How much work there is to run again: none, modules or ops, all. */
static int again(const char *recompute) {
    if (strncasecmp(recompute, "full", 4) == 0) return 2;
    return *recompute && strncasecmp(recompute, "none", 4) != 0;
}

/* Stacks of kernels, the slowest first. */
static int stack_rank(const char *kernels) {
    static const char *const order[] = {"eager", "compiled", "fused"};
    for (int i = 0; i < 3; i++)
        if (strcmp(kernels, order[i]) == 0) return i;
    return 0;
}

static int sign(int64_t value) {
    return value > 0 ? 1 : value < 0 ? -1 : 0;
}

/* Positive: b has the setting and a lacks it; negative: the other way round; 0: they are alike. */
static int by_bits(const settings *a, const settings *b) {
    return sign(a->bits - b->bits);
}
static int by_kernels(const settings *a, const settings *b) {
    return sign(stack_rank(b->kernels) - stack_rank(a->kernels));
}
static int by_overlap(const settings *a, const settings *b) {
    return sign((*b->overlap != 0) - (*a->overlap != 0));
}
static int by_recompute(const settings *a, const settings *b) {
    return sign(again(a->recompute) - again(b->recompute));
}
static int by_sp(const settings *a, const settings *b) {
    return sign(b->sp - a->sp);
}
static int by_cp(const settings *a, const settings *b) {
    return sign(b->cp - a->cp);
}

static const struct {
    const char *name;
    int (*order)(const settings *a, const settings *b);
} changes[] = {
    {"narrow products", by_bits},      {"kernels", by_kernels},      {"tp overlap", by_overlap},
    {"less recomputed", by_recompute}, {"sequence parallel", by_sp}, {"context parallel", by_cp},
};
#define N_CHANGES (sizeof changes / sizeof *changes)

/* One model on one cluster with one layout and one release; with cp the length and dp follow. */
static bool are_alike(const val_prediction *a, const val_prediction *b, bool any_cp) {
    const val_row *r = &a->row, *s = &b->row;
    bool same = !strcmp(a->set, b->set) && !strcmp(r->model, s->model) && !strcmp(r->gpu, s->gpu) &&
                r->layers == s->layers && r->hidden == s->hidden && r->heads == s->heads &&
                r->gpus == s->gpus && r->tp == s->tp && r->pp == s->pp && r->ep == s->ep &&
                a->vpp == b->vpp && r->zero == s->zero && r->release == s->release;
    if (any_cp) return same && r->gbs * r->seq == s->gbs * s->seq;
    return same && r->dp == s->dp && r->seq == s->seq && r->gbs == s->gbs && a->mbs == b->mbs;
}

/* The only change between the two; N_CHANGES: none, or several. Sequence parallelism came with
 * selective recomputation (arXiv 2205.05198), and counts as a part of that. */
static size_t change_of(const settings *a, const settings *b, int *order) {
    size_t found = N_CHANGES;
    for (size_t i = 0; i < N_CHANGES; i++) {
        int way = changes[i].order(a, b);
        if (!way || (found < N_CHANGES && changes[i].order == by_sp &&
                     changes[found].order == by_recompute && way == *order))
            continue;
        if (found < N_CHANGES) return N_CHANGES;
        found = i;
        *order = way;
    }
    return found;
}

static double gain(double from, double to) {
    return 100 * (from / to - 1);
}

typedef DS_VEC(val_pair) pairs;

static void compare(const val_prediction *a, const val_prediction *b, bool zero_shot, pairs *out) {
    settings own = settings_of(a, zero_shot), other = settings_of(b, zero_shot);
    int order = 0;
    size_t change = change_of(&own, &other, &order);
    if (change == N_CHANGES || !are_alike(a, b, changes[change].order == by_cp)) return;
    val_pair pair = {order > 0 ? a : b, order > 0 ? b : a, changes[change].name, 0, 0, false};
    pair.measured = gain(pair.from->row.seconds, pair.to->row.seconds);
    pair.predicted = gain(pair.from->seconds, pair.to->seconds);
    pair.is_within = fabs(pair.predicted - pair.measured) <= fabs(pair.measured) / 3;
    DS_HPUSH(out, pair);
}

uint32_t val_pairs_of(const val_prediction *rows, uint32_t n, bool zero_shot, val_pair **out) {
    pairs found = {0};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++)
            if (!rows[i].refused && !rows[k].refused && !rows[i].ran_out && !rows[k].ran_out)
                compare(&rows[i], &rows[k], zero_shot, &found);
    *out = found.at;
    return found.n;
}
