/* `jitter`: reading and checking. */
#include "ir/strategy/jitter.h"

#include "ir/strategy/scenario.h"

#include <string.h>

typedef struct distribution {
    const char *name;
    char needs;
} distribution;

static const distribution distributions[] = {{NULL, ' '},
#define DS_X(name, text, needs) {text, needs},
                                             DS_RANDOM_MAP(DS_X)
#undef DS_X
};
enum { N_DISTRIBUTIONS = sizeof distributions / sizeof *distributions };

static const char *const sources[] = {"compute", "device", "network", "straggler"};

/* ---- one distribution ---- */

/* A parameter, where it is kept, which distributions have it, and its range. */
typedef struct parameter {
    const char *name;
    double *at;
    char of; /* ' ': all but bernoulli */
    double least, most;
    bool given;
} parameter;

enum { N_PARAMETERS = 6 };

static bool takes(const distribution *d, const parameter *p) {
    return p->of == ' ' ? d->needs != 'b' : d->needs == p->of;
}

static ds_status unknown_distribution(const ds_attr *attr, ds_error *err) {
    const char *names[N_DISTRIBUTIONS];
    ds_buf list = {0};
    for (uint32_t k = 1; k < N_DISTRIBUTIONS; k++) {
        names[k - 1] = distributions[k].name;
        ds_buf_printf(&list, "%s%s", k > 1 ? ", " : "", distributions[k].name);
    }
    const char *near = ds_suggest(attr->word, names, N_DISTRIBUTIONS - 1);
    ds_status status = ds_error_set(
        err, DS_ERR_NAME, attr->loc, "there is no distribution '%s'%s%s%s; there are %s",
        attr->word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", list.text);
    ds_buf_deinit(&list);
    return status;
}

static ds_status read_parameter(const ds_env *env, const distribution *d, parameter *all,
                                const ds_attr *item, ds_error *err) {
    parameter *p = NULL;
    for (uint32_t k = 0; k < N_PARAMETERS && item->name; k++)
        if (strcmp(all[k].name, item->name) == 0 && takes(d, &all[k])) p = &all[k];
    if (!p)
        return ds_error_set(err, DS_ERR_NAME, item->loc, "%s has no parameter '%s'; it takes %s",
                            d->name, item->name,
                            d->needs == 's'   ? "sigma, mean and min"
                            : d->needs == 'k' ? "shape, mean and min"
                            : d->needs == 'b' ? "probability and factor"
                                              : "mean and min");
    if (item->kind != DS_ATTR_EXPR)
        return ds_error_set(err, DS_ERR_TYPE, item->loc, "'%s' of %s must be a number", item->name,
                            d->name);
    p->given = true;
    if (!env) return DS_OK;
    DS_TRY(ds_expr_eval_real(env, item->expr, item->loc, p->at, err));
    if (!(*p->at >= p->least && *p->at <= p->most))
        return ds_error_set(err, DS_ERR_VALUE, item->loc,
                            "%s = %.12g of %s is out of range: from %.6g to %.6g", item->name,
                            *p->at, d->name, p->least, p->most);
    return DS_OK;
}

ds_status ds_random_read(const ds_env *env, const ds_attr *attr, ds_random *out, ds_error *err) {
    *out = (ds_random){.mean = 1};
    if (attr->kind != DS_ATTR_BLOCK || !attr->word)
        return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                            "'%s' must be a distribution, as in 'lognormal(sigma = 0.05)'",
                            attr->name);
    uint32_t kind = 1;
    while (kind < N_DISTRIBUTIONS && strcmp(distributions[kind].name, attr->word) != 0) kind++;
    if (kind == N_DISTRIBUTIONS) return unknown_distribution(attr, err);
    const distribution *d = &distributions[kind];
    out->kind = (ds_random_kind)kind;
    /* GSL's gamma quantile is no good far beyond: gsl_cdf_gamma_Pinv of 2.7.1 does not converge for
     * one probability in 20,000 at 1,000, and for one in seven at 0.1. */
    bool gamma = out->kind == DS_RANDOM_GAMMA;
    double least_shape = gamma ? 0.5 : out->kind == DS_RANDOM_PARETO ? 1.001 : 0.1;
    double most_shape = gamma ? 200 : 1000;
    parameter all[N_PARAMETERS] = {{"sigma", &out->sigma, 's', 0, 10, false},
                                   {"shape", &out->shape, 'k', least_shape, most_shape, false},
                                   {"probability", &out->probability, 'b', 0, 1, false},
                                   {"factor", &out->factor, 'b', 0, 1000, false},
                                   {"mean", &out->mean, ' ', 0.001, 1000, false},
                                   {"min", &out->min, ' ', 0, 1000, false}};
    for (uint32_t i = 0; i < attr->n_items; i++)
        DS_TRY(read_parameter(env, d, all, &attr->items[i], err));
    for (uint32_t k = 0; k < N_PARAMETERS; k++)
        if (all[k].of == d->needs && d->needs != ' ' && !all[k].given)
            return ds_error_set(err, DS_ERR_VALUE, attr->loc, "%s needs its %s", d->name,
                                all[k].name);
    if (env && out->kind != DS_RANDOM_BERNOULLI && out->min > out->mean)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "min = %.12g of %s is above its mean, %.12g", out->min, d->name,
                            out->mean);
    return DS_OK;
}

/* ---- the block ---- */

ds_status ds_jitter_read(const ds_binding *binding, ds_jitter *out, ds_error *err) {
    *out = (ds_jitter){.runs = 100};
    ds_env env = ds_binding_env(binding, NULL);
    const ds_attr *block = ds_scenario_find(binding->unit, "", "jitter");
    out->is_given = block && block->kind == DS_ATTR_BLOCK;
    DS_TRY(ds_scenario_int(binding, "", "seed", &out->seed, err));
    DS_TRY(ds_scenario_int(binding, "jitter", "runs", &out->runs, err));
    if (out->runs > DS_JITTER_MAX_RUNS)
        return ds_error_set(
            err, DS_ERR_LIMIT, ds_scenario_find(binding->unit, "jitter", "runs")->loc,
            "jitter: %lld runs; at most %d", (long long)out->runs, DS_JITTER_MAX_RUNS);
    bool any = false;
    for (uint32_t k = 0; k < DS_JITTER_COUNT; k++) {
        const ds_attr *attr = ds_scenario_find(binding->unit, "jitter", sources[k]);
        if (!attr) continue;
        any = true;
        out->at[k] = attr->loc;
        DS_TRY(ds_random_read(&env, attr, &out->of[k], err));
    }
    if (!out->is_given || any) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, block->loc,
                        "jitter says of nothing how random it is: give it a distribution for "
                        "compute, device, network or straggler, or take the block away");
}
