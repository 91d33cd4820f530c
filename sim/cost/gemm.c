/* Tiles and waves; the formula is in gemm.h. */
#include "sim/cost/gemm.h"

#include <math.h>
#include <stddef.h>

/* Result rows and columns of a tile. Only the form with `resident` has tiles of 256 x 256. */
static const int64_t tiles[][2] = {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256},
                                   {128, 64},  {64, 128},  {64, 64},   {128, 32}, {32, 128},
                                   {64, 32},   {32, 64},   {16, 128},  {16, 64},  {256, 256}};
#define N_TILES (sizeof tiles / sizeof *tiles)

/* Numbers of parts of k. Only the form with `resident` cuts k into 3 or 6 parts. */
static const int64_t cuts_of_k[] = {1, 2, 3, 4, 6, 8, 16};
#define N_CUTS (sizeof cuts_of_k / sizeof *cuts_of_k)

/* The least k of a part: adding up shorter parts takes longer than computing them. */
#define LEAST_K          128
#define LEAST_K_RESIDENT 512

#define RESULTS (256.0 * 128) /* that a processor holds at once, of all its tiles */

#define PARTIAL_BYTES 8.0 /* an f32 partial sum is written and read */

static bool is_positive(double v) {
    return v > 0 && isfinite(v);
}

static bool is_share(double v) {
    return v >= 0 && v <= 1;
}

static bool is_least(double v) {
    return v >= 0 && isfinite(v);
}

static bool is_form_valid(const ds_gemm_model *m) {
    bool none = !(m->lone > 0) && !(m->cut_s > 0) && !(m->sag > 0) && !(m->sag_s > 0);
    return m->resident >= 0 && is_least(m->lone) && is_least(m->cut_s) && is_least(m->sag) &&
           is_least(m->sag_s) && (m->resident > 0 || none);
}

bool ds_gemm_model_is_valid(const ds_gemm_model *m) {
    return m->processors > 0 && is_positive(m->flop_per_s) && is_positive(m->bytes_per_s) &&
           is_positive(m->e_max) && is_positive(m->e_memory) && is_share(m->tail) &&
           is_share(m->overlap) && is_least(m->prologue) && is_least(m->port) &&
           is_least(m->launch_s) && is_form_valid(m);
}

/* ceil(a / b) as a double; a, b >= 1. */
static double parts(int64_t a, int64_t b) {
    return (double)((a - 1) / b + 1);
}

static double whole_up(double v) { /* v below 2^53: tiles are counted in doubles */
    double down = v < 9e15 ? (double)(int64_t)v : v;
    return down < v ? down + 1 : down;
}

static double whole_down(double v) {
    return v < 9e15 ? (double)(int64_t)v : v;
}

/* Of a processor that holds several tiles. */
static double waves_of_resident(const ds_gemm_model *m, double blocks, double tile) {
    double processors = (double)m->processors, held = whole_down(RESULTS / tile);
    if (held > (double)m->resident) held = (double)m->resident;
    if (held < 1) held = 1;
    double full = whole_down(blocks / (processors * held));
    double busiest = whole_up((blocks - full * processors * held) / processors);
    double last = busiest > 0 ? held * (busiest + m->lone) / (held + m->lone) : 0;
    if (full < 1) return last;
    return (1 - m->tail) * blocks / processors + m->tail * (full * held + last);
}

static double waves_of(const ds_gemm_model *m, double blocks, const int64_t *tile) {
    if (m->resident) return waves_of_resident(m, blocks, (double)tile[0] * (double)tile[1]);
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

static bool allows(const ds_gemm_model *model, int64_t k, int64_t cuts) {
    if (!model->resident && (cuts & (cuts - 1))) return false;
    return cuts == 1 || k >= cuts * (model->resident ? LEAST_K_RESIDENT : LEAST_K);
}

/* Without launch and sag. */
static double seconds_in(const ds_gemm_model *model, const ds_gemm_shape *s, const int64_t *tile,
                         int64_t cuts, ds_gemm_choice *choice) {
    double batch = (double)s->batch, m = (double)s->m, n = (double)s->n, k = (double)s->k;
    double blocks = batch * parts(s->m, tile[0]) * parts(s->n, tile[1]) * (double)cuts;
    double waves = waves_of(model, blocks, tile);
    double compute = waves * tile_seconds(model, s, tile, parts(s->k, cuts));
    double bytes = batch * (s->element_bytes * (m * k + k * n) + s->result_bytes * m * n);
    if (cuts > 1) bytes += PARTIAL_BYTES * batch * m * n * (double)cuts;
    double memory = bytes / (model->bytes_per_s * model->e_memory);
    *choice = (ds_gemm_choice){tile[0], tile[1], cuts, waves, memory > compute, 1};
    double both =
        compute > memory ? compute + model->overlap * memory : memory + model->overlap * compute;
    return cuts > 1 ? both + model->cut_s : both;
}

double ds_gemm_seconds(const ds_gemm_model *model, const ds_gemm_shape *s, ds_gemm_choice *choice) {
    size_t n_tiles = model->resident ? N_TILES : N_TILES - 1;
    double best = 0;
    bool any = false;
    for (size_t t = 0; t < n_tiles; t++) {
        for (size_t c = 0; c < N_CUTS; c++) {
            ds_gemm_choice how;
            if (!allows(model, s->k, cuts_of_k[c])) continue;
            double seconds = seconds_in(model, s, tiles[t], cuts_of_k[c], &how);
            if (any && !(seconds < best)) continue;
            any = true;
            best = seconds;
            if (choice) *choice = how;
        }
    }
    best += model->launch_s;
    double long_share = best + model->sag_s > 0 ? best / (best + model->sag_s) : 0;
    double sag = 1 + model->sag * long_share;
    if (choice) choice->sag = sag;
    return best * sag;
}

double ds_gemm_least_compute(const ds_gemm_model *model, double flop) {
    return model->launch_s + flop / (model->flop_per_s * model->e_max);
}

double ds_gemm_least_memory(const ds_gemm_model *model, double bytes) {
    return model->launch_s + bytes / (model->bytes_per_s * model->e_memory);
}
