/* The time of communication between layouts, and the links that it loads. Internal to search/tag.
 *
 * A place is a set of GPUs with shares of the batch; a tensor lies in a place in one of three ways. */
#ifndef DS_SEARCH_TAG_PRICE_H
#define DS_SEARCH_TAG_PRICE_H

#include "search/tag/model.h"

#include <pthread.h>

#define DS_TAG_NOWHERE UINT32_MAX

typedef enum ds_tag_lie {
    DS_TAG_LIE_SAMPLES, /* each GPU has its samples */
    DS_TAG_LIE_WHOLE,   /* each GPU has all of it */
    DS_TAG_LIE_COLUMNS, /* each GPU has a part of every sample */
    DS_TAG_N_LIES
} ds_tag_lie;

/* A layout is lie + DS_TAG_N_LIES · place. */
typedef uint32_t ds_tag_layout;

typedef struct ds_tag_site {
    uint32_t n, gpu[DS_TAG_MAX_GPUS];
    int64_t lo[DS_TAG_MAX_GPUS + 1]; /* samples of GPU i: lo[i] … lo[i + 1] - 1 */
} ds_tag_site;

enum { DS_TAG_N_SIZES = 3 };

/* Alone, at some sizes of the whole tensor; linear between. */
typedef struct ds_tag_price {
    double us[DS_TAG_N_SIZES];
    float *use; /* [shared links]: part of the link's capacity while nothing else loads the link */
    bool is_free;
} ds_tag_price;

typedef struct ds_tag_prices {
    const ds_tag_model *model;
    const ds_tag_site *site;
    uint32_t n_sites, n_links;
    uint32_t *number; /* [link of the topology]: links out of the devices of a machine are one, and
                         links into them, as full as the fullest; others are themselves */
    ds_tag_price **move;   /* [layout][layout], made when asked for */
    ds_tag_price **reduce; /* [site] */
    ds_arena arena;
    pthread_mutex_t lock; /* routes and lists are for one thread at a time */
} ds_tag_prices;

void ds_tag__prices_init(ds_tag_prices *prices, const ds_tag_model *model, const ds_tag_site *site,
                         uint32_t n_sites);
void ds_tag__prices_deinit(ds_tag_prices *prices);

/* A tensor gets from one layout into another. Errors: those of routes and of collectives. */
ds_status ds_tag__price_move(ds_tag_prices *prices, ds_tag_layout from, ds_tag_layout to,
                             const ds_tag_price **out, ds_error *err);
/* Terms on all GPUs of a site are summed on all of them. */
ds_status ds_tag__price_reduce(ds_tag_prices *prices, uint32_t site, const ds_tag_price **out,
                               ds_error *err);
double ds_tag__price_us(const ds_tag_price *price, double bytes);

#endif
