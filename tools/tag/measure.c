#include "tools/tag/learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The last value stands for playouts that were not needed. */
static ds_status trace(const play_game *game, const ds_tag_prior *prior, double enough,
                       double *value, ds_error *err) {
    ds_tag_tree *tree;
    ds_status status = play_tree(game, prior, &tree, err);
    if (status != DS_OK) return status;
    uint32_t k = 1;
    for (; k <= MEASURE_PLAYOUTS && status == DS_OK; k++) {
        status = ds_tag_tree_run(tree, k, err);
        value[k] = ds_tag_tree_best_of(tree).best_value;
        if (k >= 800 && value[k] >= enough) break;
    }
    for (; k < MEASURE_PLAYOUTS; k++) value[k + 1] = value[k];
    ds_tag_tree_free(tree);
    return status;
}

ds_status measure_game(const play_game *game, const ds_tag_prior *prior,
                       const measured_game *uniform, measured_game *out, ds_error *err) {
    double value[MEASURE_PLAYOUTS + 2], goal;
    goal = uniform ? 0.95 * uniform->value[2] : INFINITY;
    DS_TRY(trace(game, prior, goal, value, err));
    if (uniform == NULL) goal = 0.95 * value[MEASURE_PLAYOUTS];
    *out = (measured_game){game->model,
                           MEASURE_PLAYOUTS + 1,
                           MEASURE_PLAYOUTS + 1,
                           {value[50], value[800], value[MEASURE_PLAYOUTS]}};
    for (uint32_t k = MEASURE_PLAYOUTS; k > 0; k--) {
        if (value[k] > 0) out->first = k;
        if (value[k] >= goal) out->reach = k;
    }
    return DS_OK;
}

/* ---- tables ---- */

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The quantile of `first` or `reach` over the games of a model; PLAY_MODELS: of all. */
static uint32_t quantile(const measured_game *games, uint32_t n, uint32_t model, bool of_first,
                         double share) {
    uint32_t *at = ds_xcalloc(n + 1, sizeof *at), k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (model == PLAY_MODELS || games[i].model == model)
            at[k++] = of_first ? games[i].first : games[i].reach;
    qsort(at, k, sizeof *at, by_number);
    uint32_t value = k ? at[(uint32_t)(share * (k - 1) + 0.5)] : 0;
    free(at);
    return value;
}

/* 2 Σ_{i ≤ least} C(n, i) / 2^n: the sign test without ties. */
static double sign_test(uint32_t less, uint32_t more) {
    uint32_t n = less + more, least = less < more ? less : more;
    double term = pow(0.5, n), sum = 0;
    for (uint32_t i = 0; i <= least; i++) {
        sum += term;
        term *= (double)(n - i) / (i + 1);
    }
    return fmin(1, 2 * sum);
}

void measure_print(const char *name, const measured_game *games, const measured_game *uniform,
                   uint32_t n) {
    uint32_t less = 0, more = 0;
    double value[2] = {0};
    for (uint32_t m = 0; m <= PLAY_MODELS; m++) {
        if (m < PLAY_MODELS && quantile(games, n, m, false, 0.5) == 0) continue;
        printf("| %s | %s | %u | %u | %u … %u |\n", name,
               m < PLAY_MODELS ? play_model_name(m) : "all", quantile(games, n, m, true, 0.5),
               quantile(games, n, m, false, 0.5), quantile(games, n, m, false, 0.25),
               quantile(games, n, m, false, 0.75));
    }
    for (uint32_t i = 0; i < n; i++) {
        less += games[i].reach < uniform[i].reach;
        more += games[i].reach > uniform[i].reach;
        for (uint32_t k = 0; k < 2; k++) value[k] += games[i].value[k] / n;
    }
    printf("%s: mean value after 50, 800 playouts %.4f %.4f; sooner than uniform in %u "
           "games, later in %u, sign test p = %.2g\n",
           name, value[0], value[1], less, more, sign_test(less, more));
}
