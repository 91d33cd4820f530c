#include "tools/tag/learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t playouts_of[MEASURE_VALUES] = {50, 800, MEASURE_PLAYOUTS};

/* value[k]: the best after k playouts. */
static ds_status trace(const play_game *game, const ds_tag_prior *prior, uint32_t playouts,
                       double *value, ds_error *err) {
    ds_tag_tree *tree;
    DS_TRY(play_tree(game, prior, &tree, err));
    ds_status status = DS_OK;
    for (uint32_t k = 1; k <= playouts && status == DS_OK; k++) {
        status = ds_tag_tree_run(tree, k, err);
        value[k] = ds_tag_tree_best_of(tree).best_value;
    }
    ds_tag_tree_free(tree);
    return status;
}

ds_status measure_game(const play_game *game, const ds_tag_prior *prior, bool is_long,
                       const measured_game *uniform, measured_game *out, ds_error *err) {
    double value[MEASURE_PLAYOUTS + 1] = {0};
    uint32_t playouts = is_long || !uniform ? MEASURE_PLAYOUTS : MEASURE_CAP;
    DS_TRY(trace(game, prior, playouts, value, err));
    *out = (measured_game){game->model, MEASURE_CAP + 1, MEASURE_CAP + 1, is_long, {0}};
    for (uint32_t i = 0; i < MEASURE_VALUES; i++) out->value[i] = value[playouts_of[i]];
    double goal = 0.95 * (uniform ? uniform : out)->value[MEASURE_VALUES - 1];
    for (uint32_t k = MEASURE_CAP; k > 0; k--) {
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

/* Means of values; those of long games alone where only these have the value. */
static void print_values(const char *name, const measured_game *games, uint32_t n) {
    printf("%s: mean value", name);
    for (uint32_t k = 0; k < MEASURE_VALUES; k++) {
        double sum = 0;
        uint32_t count = 0;
        for (uint32_t i = 0; i < n; i++)
            if (k == 0 || games[i].is_long) sum += games[i].value[k], count++;
        printf("%s %.4f after %u playouts (%u games)", k ? "," : "", count ? sum / count : 0,
               playouts_of[k], count);
    }
    printf("\n");
}

void measure_print(const char *name, const measured_game *games, const measured_game *uniform,
                   uint32_t n) {
    uint32_t less = 0, more = 0;
    for (uint32_t m = 0; m <= PLAY_MODELS; m++) {
        if (m < PLAY_MODELS && quantile(games, n, m, false, 0.5) == 0) continue;
        printf("| %s | %s | %u | %u | %u … %u |\n", name,
               m < PLAY_MODELS ? play_model_name(m) : "all", quantile(games, n, m, true, 0.5),
               quantile(games, n, m, false, 0.5), quantile(games, n, m, false, 0.25),
               quantile(games, n, m, false, 0.75));
    }
    print_values(name, games, n);
    for (uint32_t i = 0; i < n; i++) {
        less += games[i].reach < uniform[i].reach;
        more += games[i].reach > uniform[i].reach;
    }
    printf("%s: sooner than uniform in %u games, later in %u, sign test p = %.2g\n", name, less,
           more, sign_test(less, more));
}
