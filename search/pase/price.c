/* A byte gets a price, which is raised until the strategy fits and then narrowed down (bisection):
 * each price gives a lower bound too, min (cost + price·bytes) - price·limit. */
#include "search/pase/price.h"

#include <stdlib.h>
#include <string.h>

typedef struct search {
    ds_pase_pricer *pricer;
    double limit;
    uint32_t n, *trial, *choice; /* of the last price, and the best so far */
    double bytes;                /* of the last price */
    ds_pase_result *result;
} search;

static bool keeps(const search *x) {
    return x->limit <= 0 || x->bytes <= x->limit;
}

static ds_status try_price(search *x, double price, ds_error *err) {
    ds_pase_result *r = x->result;
    double total;
    DS_TRY(x->pricer->solve(x->pricer, price, x->trial, &total, &x->bytes, err));
    double bound = total - price * x->limit;
    if (price == 0 || bound > r->bound) r->bound = bound;
    bool fits = keeps(x);
    double cost = total - price * x->bytes;
    bool better = price == 0 || (fits && !r->fits) || (fits == r->fits && fits && cost < r->cost) ||
                  (!fits && !r->fits && x->bytes < r->memory_bytes);
    if (!better) return DS_OK;
    memcpy(x->choice, x->trial, x->n * sizeof *x->trial);
    r->cost = cost;
    r->memory_bytes = x->bytes;
    r->fits = fits;
    return DS_OK;
}

static ds_status narrow(search *x, ds_error *err) {
    ds_pase_result *r = x->result;
    double low = 0, high = r->cost / (r->memory_bytes > 0 ? r->memory_bytes : 1);
    for (int i = 0; i < 40 && !r->fits; i++) {
        DS_TRY(try_price(x, high, err));
        if (r->fits) break;
        low = high;
        high *= 4;
    }
    for (int i = 0; i < 12 && r->fits && r->bound < r->cost; i++) {
        double middle = (low + high) / 2;
        DS_TRY(try_price(x, middle, err));
        if (keeps(x))
            high = middle;
        else
            low = middle;
    }
    return DS_OK;
}

ds_status ds_pase__keep_limit(ds_pase_pricer *pricer, double limit, uint32_t n, uint32_t *choice,
                              ds_pase_result *result, ds_error *err) {
    search x = {.pricer = pricer,
                .limit = limit,
                .n = n,
                .trial = ds_xcalloc((size_t)n + 1, sizeof *x.trial),
                .choice = choice,
                .result = result};
    ds_status status = try_price(&x, 0, err);
    if (!status && !result->fits) status = narrow(&x, err);
    free(x.trial);
    return status;
}
