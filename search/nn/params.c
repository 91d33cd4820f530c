/* Parameters: one flat array, Glorot's start, Adam; and the exponential of this room. */
#include "search/nn/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* exp(x) = 2^k exp(r), |r| ≤ ln(2) / 2; the series of exp(r) up to r^14, whose rest is below 2e-18. */
double ds_nn_exp(double x) {
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45; /* ln 2 as a sum */
    x = x < -700 ? -700 : x > 700 ? 700 : x;
    double k = floor(x * 0x1.71547652b82fep+0 + 0.5), r = x - k * ln2_high - k * ln2_low, sum = 1;
    for (int n = 14; n > 0; n--) sum = 1 + sum * r / n;
    return x <= -700 ? 0 : ldexp(sum, (int)k);
}

void ds_nn_params_deinit(ds_nn_params *p) {
    free(p->value);
    free(p->gradient);
    free(p->mean);
    free(p->square);
    *p = (ds_nn_params){0};
}

static float *longer(float *old, uint32_t n, uint32_t cap) {
    float *made = ds_xcalloc(cap, sizeof *made);
    if (n) memcpy(made, old, n * sizeof *made);
    free(old);
    return made;
}

ds_nn_param ds_nn_param_new(ds_nn_params *p, uint32_t rows, uint32_t cols, ds_rng *rng) {
    ds_nn_param made = {p->n, rows, cols};
    uint32_t n = rows * cols;
    if (p->n + n > p->cap) {
        p->cap = 2 * (p->n + n);
        float **arrays[] = {&p->value, &p->gradient, &p->mean, &p->square};
        for (int i = 0; i < 4; i++) *arrays[i] = longer(*arrays[i], p->n, p->cap);
    }
    double most = sqrt(6.0 / (rows + cols));
    for (uint32_t i = 0; i < n; i++)
        p->value[p->n + i] = rng ? (float)(most * (2 * ds_rng_uniform(rng) - 1)) : 0;
    p->n += n;
    return made;
}

void ds_nn_adam(ds_nn_params *p, double rate, double most_norm) {
    double squares = 0, beta1 = 0.9, beta2 = 0.999;
    for (uint32_t i = 0; i < p->n; i++) squares += (double)p->gradient[i] * (double)p->gradient[i];
    double norm = sqrt(squares), scale = norm > most_norm ? most_norm / norm : 1;
    double left1 = 1, left2 = 1; /* 1 - β^steps, without pow: its bits depend on the library */
    p->n_steps++;
    for (uint64_t i = 0; i < p->n_steps && i < 20000; i++) left1 *= beta1, left2 *= beta2;
    for (uint32_t i = 0; i < p->n; i++) {
        double g = (double)p->gradient[i] * scale;
        double m = beta1 * (double)p->mean[i] + (1 - beta1) * g;
        double v = beta2 * (double)p->square[i] + (1 - beta2) * g * g;
        p->mean[i] = (float)m;
        p->square[i] = (float)v;
        p->value[i] -= (float)(rate * (m / (1 - left1)) / (sqrt(v / (1 - left2)) + 1e-8));
        p->gradient[i] = 0;
    }
}
