/* A limit on the sum of bytes, by Lagrangian prices. Internal to search/pase and search/tap. */
#ifndef DS_PASE_PRICE_H
#define DS_PASE_PRICE_H

#include "search/pase/pase.h"

/* The strategy of least cost + price·bytes: choice[nodes], the sum, and its bytes alone. */
typedef struct ds_pase_pricer ds_pase_pricer;
struct ds_pase_pricer {
    ds_status (*solve)(ds_pase_pricer *pricer, double price, uint32_t *choice, double *total,
                       double *bytes, ds_error *err);
};

/* Sets choice[n], and of the result cost, memory_bytes, bound and fits. limit ≤ 0: none. */
ds_status ds_pase__keep_limit(ds_pase_pricer *pricer, double limit, uint32_t n, uint32_t *choice,
                              ds_pase_result *result, ds_error *err);

#endif
