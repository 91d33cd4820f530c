/* A problem of two kinds of machines: `each` fast devices and as many that take `factor` times as long; times
 * are lines through the samples. */
#ifndef DS_TESTS_MIXED_TWO_KINDS_H
#define DS_TESTS_MIXED_TWO_KINDS_H

#include "search/mixed/mixed.h"

enum { LAYERS = 6 };

static inline ds_mixed_problem two_kinds(uint32_t each, double factor) {
    static const uint32_t devices[] = {0, 1, 2, 3, 4, 5, 6, 7};
    ds_mixed_problem p = {.n_kinds = 2,
                          .n_devices = 2 * each,
                          .layers = LAYERS,
                          .batch = 4 * each,
                          .sample_units = 100,
                          .layer_params = 1e6,
                          .ends_params = 2e6,
                          .width = 64,
                          .edge_bytes = 1e6,
                          .cuts = true};
    for (uint32_t k = 0; k < 2; k++) {
        ds_mixed_kind *kind = &p.kinds[k];
        *kind = (ds_mixed_kind){.name = k ? "slow" : "fast",
                                .n_devices = each,
                                .per_machine = each,
                                .devices = devices + k * each,
                                .capacity_bytes = 1e9,
                                .usd_per_hour = k ? 1 : 3,
                                .watts = k ? 100 : 400};
        for (uint32_t z = 0; z < 2; z++)
            for (uint32_t i = 0; i < DS_MIXED_SPANS; i++)
                kind->sync_s_per_byte[z][i] = (i ? 1e-9 : 1e-10) * (z ? 1.1 : 1);
        for (uint32_t t = 0; 1u << t <= each; t++) {
            ds_mixed_piece *piece = &kind->pieces[t];
            *piece = (ds_mixed_piece){.known = true,
                                      .layer_bytes = 2e7,
                                      .ends_bytes = 4e7,
                                      .layer_sample_bytes = 1e6,
                                      .ends_sample_bytes = 1e6};
            for (uint32_t i = 0; i < DS_MIXED_SAMPLES; i++) {
                piece->layer_s[i] = (k ? factor : 1) * 1e-3 * (1 << i) / (1 << t);
                piece->ends_s[i] = piece->layer_s[i] / 2;
            }
        }
    }
    p.mixed_sync_s_per_byte[0] = p.mixed_sync_s_per_byte[1] = 1e-9;
    return p;
}

#endif
