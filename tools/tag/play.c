#include "tools/tag/play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* params: beside batch = 48. BERT large: Devlin et al. 2018. TAG's Transformer has 10 positions. */
static const struct {
    const char *name, *file, *params;
} models_of[PLAY_MODELS] = {
    {"inception_v3", "inception_v3", ""},
    {"resnet101", "resnet101", ""},
    {"vgg19", "vgg19", ""},
    {"transformer", "transformer", ", seq = 10, target_seq = 10"},
    {"bert_base", "bert", ", seq = 128"},
    {"bert_large", "bert", ", seq = 128, layers = 24, hidden = 1024, heads = 16"},
};

const char *play_model_name(uint32_t model) {
    return models_of[model].name;
}

ds_status play_models_open(play_models *models, ds_error *err) {
    const char *path = getenv("DISTSIM_PROFILES");
    *models = (play_models){0};
    DS_TRY(ds_profiles_load(path ? path : DS_BUILD_PROFILES, &models->profiles, err));
    for (uint32_t i = 0; i < PLAY_MODELS; i++) {
        char text[600];
        snprintf(
            text, sizeof text,
            "dir 1\nparam batch = 48\nimport \"models/%s.dir\" as m with batch = batch%s\n"
            "import \"topologies/mixed-box.dir\" as t\nscenario { model = @m.%s, on = @t.mixed, "
            "train { optimizer = adam }, profile = ideal }\n",
            models_of[i].file, models_of[i].params, models_of[i].file);
        ds_pase_source source = {.path = "scenarios/prior.dir", .text = text, .n = strlen(text)};
        DS_TRY(ds_tag_model_read(&source, models->profiles, &models->at[i], err));
        ds_tag_model_gather(models->at[i], 40);
    }
    return DS_OK;
}

void play_models_close(play_models *models) {
    for (uint32_t i = 0; i < PLAY_MODELS; i++)
        if (models->at[i]) ds_tag_model_free(models->at[i]);
    ds_profiles_free(models->profiles);
}

/* ---- clusters ---- */

/* False: a machine of a kind that is left out, or not the wanted number of GPUs. */
static bool draw_machines(const ds_tag_cluster *all, uint32_t without, bool is_test, ds_rng *rng,
                          play_game *g) {
    static const uint32_t sizes[] = {2, 3, 4, 6, 8};
    uint32_t n_gpus = 0;
    g->problem.cluster.n_machines = 2 + (uint32_t)ds_rng_below(rng, PLAY_MACHINES - 1);
    for (uint32_t m = 0; m < g->problem.cluster.n_machines; m++) {
        g->machine[m] = all->machine[ds_rng_below(rng, all->n_machines)];
        g->machine[m].n_gpus = sizes[ds_rng_below(rng, sizeof sizes / sizeof *sizes)];
        n_gpus += g->machine[m].n_gpus;
        if (g->machine[m].kind == without) return false;
    }
    return is_test ? n_gpus == 8 : n_gpus <= 16;
}

bool play_has(const play_game *g, const play_left *left) {
    bool has = g->model == left->model;
    for (uint32_t m = 0; m < g->problem.cluster.n_machines; m++)
        has |= g->machine[m].kind == left->kind;
    return has;
}

void play_game_draw(const play_models *models, const play_left *left, uint64_t seed,
                    uint32_t number, bool is_test, play_game *g) {
    ds_rng rng = {ds_rng_at(seed, is_test ? number / PLAY_MODELS : number, is_test, 0)};
    g->model = number % PLAY_MODELS;
    if (!is_test && left->model < PLAY_MODELS) {
        uint32_t others = number % (PLAY_MODELS - 1);
        g->model = others + (others >= left->model);
    }
    g->problem = models->at[g->model]->problem;
    const ds_tag_cluster all = g->problem.cluster;
    do {
        g->problem.cluster.n_machines = 0;
    } while (!draw_machines(&all, is_test ? UINT32_MAX : left->kind, is_test, &rng, g));
    uint32_t n = g->problem.cluster.n_machines, rack[PLAY_MACHINES];
    for (uint32_t m = 0; m < n; m++) rack[m] = (uint32_t)ds_rng_below(&rng, 2);
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++) {
            int64_t inside = ds_rng_below(&rng, 2) ? 8000 : 20000;
            g->mb_per_s[a * n + b] = a == b ? inside : rack[a] == rack[b] ? 5000 : 2810;
        }
    g->problem.cluster.machine = g->machine;
    g->problem.cluster.mb_per_s = g->mb_per_s;
    g->problem.quirks = DS_TAG_RELEASED & ~(uint32_t)DS_TAG_COLLECTIVE_CHAIN;
}

ds_status play_tree(const play_game *game, const ds_tag_prior *prior, ds_tag_tree **out,
                    ds_error *err) {
    ds_tag_tree_options options = {
        .problem = &game->problem, .n_leaves = 1, .n_workers = 1, .prior = prior};
    return ds_tag_tree_new(&options, out, err);
}
