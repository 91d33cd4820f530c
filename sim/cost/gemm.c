/* Tiles and waves; the formula is in gemm.h. */
#include "sim/cost/gemm.h"

#include <math.h>
#include <stddef.h>

/* Result rows and columns of a tile. */
static const int64_t tiles[][2] = {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256},
                                   {128, 64},  {64, 128},  {64, 64},   {128, 32}, {32, 128},
                                   {64, 32},   {32, 64},   {16, 128},  {16, 64}};
#define N_TILES (sizeof tiles / sizeof *tiles)

#define MOST_CUTS 16  /* of k, by powers of two */
#define LEAST_K   128 /* that a cut leaves: below, adding up costs more than there is to compute */

#define PARTIAL_BYTES 8.0 /* an f32 partial sum is written and read */

static bool is_positive(double v) {
    return v > 0 && isfinite(v);
}

static bool is_share(double v) {
    return v >= 0 && v <= 1;
}

bool ds_gemm_model_is_valid(const ds_gemm_model *m) {
    return m->processors > 0 && is_positive(m->flop_per_s) && is_positive(m->bytes_per_s) &&
           is_positive(m->e_max) && is_positive(m->e_memory) && is_share(m->tail) &&
           is_share(m->overlap) && m->prologue >= 0 && isfinite(m->prologue) && m->port >= 0 &&
           isfinite(m->port) && m->launch_s >= 0 && isfinite(m->launch_s);
}

/* ceil(a / b) as a double; a, b >= 1. */
static double parts(int64_t a, int64_t b) {
    return (double)((a - 1) / b + 1);
}

static double whole_up(double v) { /* v below 2^53: tiles are counted in doubles */
    double down = v < 9e15 ? (double)(int64_t)v : v;
    return down < v ? down + 1 : down;
}

static double waves_of(const ds_gemm_model *m, double blocks) {
    double share = blocks / (double)m->processors;
    double waves = (1 - m->tail) * share + m->tail * whole_up(share);
    return share <= 1 ? 1 : waves;
}

static double tile_seconds(const ds_gemm_model *m, const ds_gemm_shape *s, const int64_t *tile,
                           double k) {
    double tm = (double)tile[0], tn = (double)tile[1], each = (double)m->processors;
    double compute = 2 * tm * tn * (k + m->prologue) * each / (m->flop_per_s * m->e_max);
    double operands = (tm + tn) * k * s->element_bytes * m->port * each / m->bytes_per_s;
    return compute > operands ? compute : operands;
}

double ds_gemm_seconds(const ds_gemm_model *model, const ds_gemm_shape *s, ds_gemm_choice *choice) {
    double batch = (double)s->batch, m = (double)s->m, n = (double)s->n, k = (double)s->k;
    double plain = s->element_bytes * batch * (m * k + k * n + m * n), best = 0;
    bool any = false;
    for (size_t t = 0; t < N_TILES; t++) {
        double blocks = batch * parts(s->m, tiles[t][0]) * parts(s->n, tiles[t][1]);
        for (int64_t cuts = 1; cuts <= MOST_CUTS; cuts *= 2) {
            if (cuts > 1 && s->k < LEAST_K * cuts) break;
            double waves = waves_of(model, blocks * (double)cuts);
            double compute = waves * tile_seconds(model, s, tiles[t], parts(s->k, cuts));
            double bytes = plain + (cuts > 1 ? PARTIAL_BYTES * batch * m * n * (double)cuts : 0);
            double memory = bytes / (model->bytes_per_s * model->e_memory);
            double seconds = compute > memory ? compute + model->overlap * memory
                                              : memory + model->overlap * compute;
            if (any && !(seconds < best)) continue;
            any = true;
            best = seconds;
            if (choice)
                *choice = (ds_gemm_choice){tiles[t][0], tiles[t][1], cuts, waves, memory > compute};
        }
    }
    return model->launch_s + best;
}

double ds_gemm_least_compute(const ds_gemm_model *model, double flop) {
    return model->launch_s + flop / (model->flop_per_s * model->e_max);
}

double ds_gemm_least_memory(const ds_gemm_model *model, double bytes) {
    return model->launch_s + bytes / (model->bytes_per_s * model->e_memory);
}
