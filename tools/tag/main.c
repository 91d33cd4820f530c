/* tag-prior train [SEED]       plays, trains both networks, and writes search/tag/weights/KIND.npy
 * tag-prior measure [CLUSTERS] playouts that searches need: uniform, and with the weights
 * tag-prior leave [CLUSTERS]   trains without one model, and without one kind of GPU, and measures
 *                              on what was left out
 *
 * From the repository's root. Deterministic: the same seed writes the same bytes. */
#include "tools/tag/learn.h"

#include "search/tag/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const play_left nothing = {UINT32_MAX, UINT32_MAX};
static const char *const kind_names[] = {"mlp", "gat"};

static ds_status train(const play_models *models, const learn_options *o,
                       ds_tag_prior *out[DS_TAG_N_PRIORS], ds_error *err) {
    learn_report report;
    DS_TRY(learn_priors(models, o, out, &report, err));
    printf(
        "seed %llu, %u games of %u playouts: %u states, data %016llx, entropy of the targets %.4f, "
        "loss of equal probabilities %.4f; %u epochs\n",
        (unsigned long long)o->seed, o->games, o->playouts, report.n_states,
        (unsigned long long)report.data_hash, report.entropy, report.uniform_loss, o->epochs);
    for (uint32_t k = 0; k < DS_TAG_N_PRIORS; k++)
        printf("%s: %u parameters, loss %.4f, %.0f s of CPU\n", kind_names[k],
               ds_tag_prior_params(out[k])->n, report.loss[k], report.cpu_s[k]);
    fflush(stdout);
    return DS_OK;
}

static ds_status train_and_write(const play_models *models, const learn_options *o, ds_error *err) {
    ds_tag_prior *made[DS_TAG_N_PRIORS] = {NULL};
    ds_status status = train(models, o, made, err);
    for (uint32_t k = 0; k < DS_TAG_N_PRIORS; k++) {
        char path[100];
        snprintf(path, sizeof path, "search/tag/weights/%s.npy", kind_names[k]);
        if (status == DS_OK) status = ds_tag_weights_write(made[k], path, err);
        ds_tag_prior_free(made[k]);
    }
    return status;
}

/* The games of n clusters that have what is left out, with each prior; prior[0] is NULL, uniform. */
static ds_status measure(const play_models *models, const play_left *left, uint32_t n_clusters,
                         const ds_tag_prior *const *prior, const char *const *name,
                         uint32_t n_priors, ds_error *err) {
    uint32_t most = n_clusters * PLAY_MODELS, n = 0;
    measured_game *games = ds_xcalloc((size_t)most * n_priors, sizeof *games);
    ds_status status = DS_OK;
    printf("| prior | model | median playouts to the first improvement | to 95 %% of uniform's "
           "best | quartiles |\n"
           "|---|---|---|---|---|\n");
    for (uint32_t k = 0; k < n_priors && status == DS_OK; k++) {
        measured_game *own = games + (size_t)k * most;
        n = 0;
        for (uint32_t i = 0; i < most && status == DS_OK; i++) {
            play_game game;
            play_game_draw(models, left, 0, i, true, &game);
            if (left != &nothing && !play_has(&game, left)) continue;
            bool is_long = left == &nothing && i / PLAY_MODELS % MEASURE_LONG == 0;
            status = measure_game(&game, prior[k], is_long, k ? &games[n] : NULL, &own[n], err);
            n++;
        }
        if (status == DS_OK) measure_print(name[k], own, games, n);
        fflush(stdout);
    }
    free(games);
    return status;
}

static ds_status measure_weights(const play_models *models, uint32_t n, ds_error *err) {
    ds_tag_prior *read[2] = {NULL, NULL};
    const ds_tag_prior *priors[3] = {NULL, NULL, NULL};
    const char *names[3] = {"uniform"};
    uint32_t n_priors = 1;
    for (uint32_t k = 0; k < 2; k++) {
        char path[100];
        snprintf(path, sizeof path, "search/tag/weights/%s.npy", kind_names[k]);
        if (ds_tag_weights_read(path, &read[k], NULL) != DS_OK) continue;
        names[n_priors] = kind_names[k];
        priors[n_priors++] = read[k];
    }
    ds_status status = measure(models, &nothing, n, priors, names, n_priors, err);
    for (uint32_t k = 0; k < 2; k++) ds_tag_prior_free(read[k]);
    return status;
}

/* Without what is left out, on it alone. */
static ds_status leave(const play_models *models, learn_options o, play_left left, uint32_t n,
                       ds_error *err) {
    ds_tag_prior *made[DS_TAG_N_PRIORS] = {NULL};
    const char *const names[] = {"uniform", kind_names[0], kind_names[1]};
    o.left = left;
    ds_status status = train(models, &o, made, err);
    const ds_tag_prior *priors[] = {NULL, made[0], made[1]};
    if (status == DS_OK) status = measure(models, &left, n, priors, names, 3, err);
    for (uint32_t k = 0; k < DS_TAG_N_PRIORS; k++) ds_tag_prior_free(made[k]);
    return status;
}

static ds_status leave_each(const play_models *models, const learn_options *o, uint32_t n,
                            ds_error *err) {
    for (uint32_t m = 0; m < PLAY_MODELS; m++) {
        printf("\nWithout %s:\n", play_model_name(m));
        DS_TRY(leave(models, *o, (play_left){m, UINT32_MAX}, n, err));
    }
    for (uint32_t k = 0; k < models->at[0]->problem.graph.n_kinds; k++) {
        printf("\nWithout %s:\n", models->at[0]->kind[k]);
        DS_TRY(leave(models, *o, (play_left){UINT32_MAX, k}, n, err));
    }
    return DS_OK;
}

static int usage(void) {
    fprintf(stderr, "usage: tag-prior train [SEED] | measure [CLUSTERS] | leave [CLUSTERS]\n");
    return 2;
}

int main(int argc, char **argv) {
    learn_options o = {1, 200, 500, 8, nothing};
    play_models models;
    ds_error err = {0};
    char *end = "";
    uint64_t number = argc == 3 ? strtoull(argv[2], &end, 10) : 0;
    bool trains = argc > 1 && strcmp(argv[1], "train") == 0;
    bool measures = argc > 1 && strcmp(argv[1], "measure") == 0;
    bool leaves = argc > 1 && strcmp(argv[1], "leave") == 0;
    if (argc > 3 || !(trains || measures || leaves) || *end || number > 100000 ||
        (argc == 3 && number == 0))
        return usage();
    ds_status status = play_models_open(&models, &err);
    if (status == DS_OK && trains) {
        if (number) o.seed = number;
        status = train_and_write(&models, &o, &err);
    } else if (status == DS_OK && measures) {
        status = measure_weights(&models, number ? (uint32_t)number : 10, &err);
    } else if (status == DS_OK) {
        o.games = 40; /* a tenth of the work of `train`, for there are nine trainings */
        o.playouts = 300;
        o.epochs = 6;
        status = leave_each(&models, &o, number ? (uint32_t)number : 3, &err);
    }
    play_models_close(&models);
    if (status != DS_OK) fprintf(stderr, "tag-prior: %s\n", err.message);
    return status == DS_OK ? 0 : 1;
}
