/* Adapters by their definition: the weight W + alpha / rank A B of each product that has one
 * (ir/passes/lower/lora.c), from the numbers that a run of the step has drawn. */
#include "ir/prove/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tensor of half an adapter beside `base`, "w{3}": "w.lora_a{3}". */
static const ds_exec_tensor *half_of(const ds_exec_result *run, const char *base,
                                     const char *half) {
    size_t n = strcspn(base, "{"), m = strlen(half);
    for (uint32_t i = 0; i < run->inputs.n; i++) {
        const char *name = run->inputs.at[i].name;
        if (strncmp(name, base, n) == 0 && strncmp(name + n, half, m) == 0 &&
            strcmp(name + n + m, base + n) == 0)
            return &run->inputs.at[i];
    }
    return NULL;
}

/* The position of an element in half an adapter, whose dims are those of the weight with one of
 * `kinds`, with the rank at dim `rank_at`. */
static int64_t place(const ds_exec_tensor *w, const char *all, const char *kinds, const int64_t *at,
                     int64_t n_rank, int64_t rank) {
    int64_t index = 0;
    bool up = kinds[1] == 'k';
    for (const char *kind = kinds; *kind; kind++) {
        for (uint32_t d = 0; d < w->rank; d++)
            if (all[d] == *kind) index = index * w->dims[d] + at[d];
        if (up && *kind == 'g') index = index * n_rank + rank;
    }
    return up ? index : index * n_rank + rank;
}

static void merge(const ds_exec_tensor *w, const ds_exec_tensor *a, const ds_exec_tensor *b,
                  const char *kinds, double factor, double *out) {
    int64_t at[DS_MAX_RANK] = {0}, n_rank = a->dims[a->rank - 1];
    for (int64_t i = 0; i < w->n; i++) {
        double sum = 0;
        for (int64_t r = 0; r < n_rank; r++)
            sum += a->at[place(w, kinds, "gc", at, n_rank, r)] *
                   b->at[place(w, kinds, "gk", at, n_rank, r)];
        out[i] = w->at[i] + factor * sum;
        for (uint32_t d = w->rank; d-- > 0;) {
            if (++at[d] < w->dims[d]) break;
            at[d] = 0;
        }
    }
}

/* The weight that the input is, or is an element of. */
static const ds_step_weight *weight_of(const ds_model_step *step, const char *name) {
    size_t n = strcspn(name, "{");
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_step_weight *w = &step->weights.at[i];
        if (strlen(w->name) == n && strncmp(w->name, name, n) == 0) return w;
    }
    return NULL;
}

ds_exec_tensor *ds_prove__merged(const ds_model_step *step, const ds_exec_result *run,
                                 ds_arena *arena, uint32_t *n) {
    const ds_train *train = &step->train;
    double factor = isnan(train->lora_alpha) ? 1 : train->lora_alpha / (double)train->lora_rank;
    ds_exec_tensor *out = DS_NEW_N(arena, ds_exec_tensor, run->inputs.n + 1);
    *n = 0;
    for (uint32_t i = 0; i < run->inputs.n; i++) {
        const ds_exec_tensor *w = &run->inputs.at[i];
        const ds_step_weight *weight = weight_of(step, w->name);
        if (!weight || !weight->adapted) continue;
        const ds_exec_tensor *a = half_of(run, w->name, ".lora_a"),
                             *b = half_of(run, w->name, ".lora_b");
        if (!a || !b) continue;
        out[*n] = *w;
        out[*n].at = DS_NEW_N(arena, double, w->n + 1);
        merge(w, a, b, weight->adapted, factor, out[(*n)++].at);
    }
    return out;
}
