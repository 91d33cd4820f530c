/* Models as sizes and features, and the families of models.def. */
#include "ir/import/model.h"

#include "ir/import/internal.h"
#include "ir/passes/build/count.h"
#include "ir/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ds_model_family {
    const char *types, *file, *function, *tied_file, *tied_function, *note, *rope_base, *dropout;
    unsigned features;
    bool decodes;
    const char *param[DS_MODEL_N_SIZES];
};

static const ds_model_family families[] = {
#define FAMILY(...) {__VA_ARGS__},
#include "ir/import/models.def"
#undef FAMILY
};
#define N_FAMILIES (sizeof families / sizeof *families)

static const char *const feature_names[] = {"RMS norm",
                                            "rotary positions",
                                            "a gated feed-forward block",
                                            "silu",
                                            "biases",
                                            "biases of q, k and v",
                                            "norms of q and k",
                                            "latent attention",
                                            "attention to both sides",
                                            "relu",
                                            "alibi",
                                            "attention and feed-forward block side by side",
                                            "norms after each block",
                                            "a norm for each of two blocks side by side"};

static const char *const size_names[DS_MODEL_N_SIZES] = {
    [DS_MODEL_LAYERS] = "layers",
    [DS_MODEL_HIDDEN] = "hidden size",
    [DS_MODEL_HEADS] = "heads",
    [DS_MODEL_KV_HEADS] = "key and value heads",
    [DS_MODEL_HEAD_DIM] = "size of a head",
    [DS_MODEL_FFN] = "size of a feed-forward block",
    [DS_MODEL_VOCAB] = "vocabulary",
    [DS_MODEL_POSITIONS] = "positions",
    [DS_MODEL_EXPERTS] = "experts",
    [DS_MODEL_TOP] = "experts a token",
    [DS_MODEL_EXPERT_FFN] = "size of an expert",
    [DS_MODEL_SHARED_FFN] = "size of the shared experts",
    [DS_MODEL_DENSE] = "layers without experts",
    [DS_MODEL_Q_RANK] = "rank of queries",
    [DS_MODEL_KV_RANK] = "rank of keys and values",
    [DS_MODEL_NOPE_DIM] = "dims of a head without positions",
    [DS_MODEL_ROPE_DIM] = "dims of a head with positions",
    [DS_MODEL_V_DIM] = "dims of a head's values",
    [DS_MODEL_MTP] = "layers that predict later tokens",
    [DS_MODEL_WINDOW] = "window of attention",
    [DS_MODEL_PERIOD] = "layers a period",
};

/* ---- sizes of a family ---- */

static const char *param_name(const ds_model_family *family, int size) {
    const char *param = family->param[size];
    if (!param || *param == '=' || *param == '*') return NULL;
    return param + (strchr("?+~", *param) != NULL);
}

/* The number that a file without such a param computes. */
static int64_t derived(const ds_model *model, int size) {
    const int64_t *s = model->size;
    if (size == DS_MODEL_KV_HEADS) return s[DS_MODEL_HEADS];
    if (size == DS_MODEL_HEAD_DIM && s[DS_MODEL_HEADS])
        return s[DS_MODEL_HIDDEN] / s[DS_MODEL_HEADS];
    return size == DS_MODEL_FFN ? 4 * s[DS_MODEL_HIDDEN] : 0;
}

static bool is_derived(const ds_model *model, int size) {
    const int64_t *s = model->size;
    if (s[size] != derived(model, size)) return false;
    return size != DS_MODEL_HEAD_DIM || s[DS_MODEL_HEADS] * s[size] == s[DS_MODEL_HIDDEN];
}

static void fill_derived(const ds_model_family *family, ds_model *model) {
    for (int i = 0; i < DS_MODEL_N_SIZES; i++) {
        const char *param = family->param[i];
        if (param && (*param == '?' || strcmp(param, "=") == 0) && !model->size[i])
            model->size[i] = derived(model, i);
    }
}

static bool size_fits(const ds_model_family *family, const ds_model *model, int size) {
    const char *param = family->param[size];
    int64_t value = model->size[size];
    if (!param) return value == 0 || size == DS_MODEL_POSITIONS;
    if (strcmp(param, "=") == 0) return is_derived(model, size);
    if (*param == '*') return true;
    if (*param == '=') return value == strtoll(param + 1, NULL, 10);
    return *param == '+' || *param == '~' || value > 0;
}

/* ---- the search for a family ---- */

/* A family, its differences from the model, and one of them by name. */
typedef struct candidate {
    const ds_model_family *family;
    ds_model model; /* derived sizes filled in */
    int differences;
    ds_buf first;
} candidate;

static void differ(candidate *c, const char *has, const char *what) {
    if (c->differences++ == 0) ds_buf_printf(&c->first, "%s %s", has, what);
}

static void compare(candidate *c, const ds_model *model, const ds_model_family *family,
                    const char *const *keys) {
    c->family = family;
    c->model = *model;
    c->model.family = family;
    fill_derived(family, &c->model);
    if (keys) c->model.features |= family->features;
    unsigned wrong = c->model.features ^ family->features;
    for (unsigned i = 0; i < sizeof feature_names / sizeof *feature_names; i++)
        if (wrong >> i & 1)
            differ(c, family->features >> i & 1 ? "always has" : "lacks", feature_names[i]);
    for (int i = 0; i < DS_MODEL_N_SIZES; i++) {
        if (size_fits(family, &c->model, i)) continue;
        ds_buf what = {0};
        ds_buf_printf(&what, "%s = %" PRId64, keys && keys[i] ? keys[i] : size_names[i],
                      c->model.size[i]);
        differ(c, family->param[i] && *family->param[i] != '=' ? "cannot have" : "lacks",
               what.text);
        ds_buf_deinit(&what);
    }
    if (!(model->tied ? family->tied_function : family->function))
        differ(c, "lacks",
               model->tied ? "a head that shares the embedding's table" : "a head of its own");
}

/* With a type the family's features are the model's. */
static ds_status find(ds_model *model, const char *type, const char *const *keys, ds_error *err) {
    candidate best = {0};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (type && !ds_import__is_word_of(type, families[i].types)) continue;
        candidate c = {0};
        compare(&c, model, &families[i], keys);
        bool better = !best.family || c.differences < best.differences;
        ds_buf_deinit(better ? &best.first : &c.first);
        if (better) best = c;
    }
    ds_status status = DS_OK;
    if (best.differences)
        status =
            ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                         "the model library has no such model: the nearest, @%s of %s, %s",
                         best.family->function ? best.family->function : best.family->tied_function,
                         best.family->file, best.first.text);
    else if (best.family)
        *model = best.model;
    ds_buf_deinit(&best.first);
    return status;
}

ds_status ds_model_find_family(ds_model *model, ds_error *err) {
    return find(model, NULL, NULL, err);
}

ds_status ds_model_find_typed(ds_model *model, const char *model_type,
                              const char *const keys[DS_MODEL_N_SIZES], ds_error *err) {
    return find(model, model_type, keys, err);
}

uint32_t ds_model_types(ds_arena *arena, const char *const **out) {
    DS_VEC(const char *) all = {0};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        char *words = ds_arena_strdup(arena, families[i].types), *rest = NULL;
        for (const char *word = strtok_r(words, " ", &rest); word;
             word = strtok_r(NULL, " ", &rest)) {
            uint32_t k = 0;
            while (k < all.n && strcmp(all.at[k], word) != 0) k++;
            if (k == all.n) DS_PUSH(arena, &all, word);
        }
    }
    *out = all.at;
    return all.n;
}

/* ---- a model with a family ---- */

const char *ds_model_file(const ds_model *model) {
    const ds_model_family *family = model->family;
    return model->tied && family->tied_file ? family->tied_file : family->file;
}

const char *ds_model_function(const ds_model *model) {
    return model->tied ? model->family->tied_function : model->family->function;
}

const char *ds_model_note(const ds_model *model) {
    return model->family->note;
}

ds_status ds_model_check_decodes(const ds_model *model, ds_error *err) {
    ds_buf list = {0};
    if (model->family->decodes) return DS_OK;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const ds_model form = {.family = &families[i], .tied = !families[i].function};
        if (!families[i].decodes) continue;
        ds_buf_printf(&list, "%s@%s", list.n ? ", " : "", ds_model_function(&form));
    }
    ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "@%s of %s has no decoding form; %s have one",
                 ds_model_function(model), ds_model_file(model), list.text);
    ds_buf_deinit(&list);
    return DS_ERR_UNSUPPORTED;
}

/* A real as the language has it: with a point or an exponent. */
static void put_real(const char *param, double x, ds_buf *out) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    ds_buf_printf(out, "%s = %s%s, ", param, text, strpbrk(text, ".e") ? "" : ".0");
}

static bool is_left_out(const ds_model *model, int size, bool is_named) {
    char kind = *model->family->param[size];
    return (kind == '?' && !is_named && is_derived(model, size)) ||
           (kind == '~' && model->size[size] == 0);
}

void ds_model_put_import(const ds_model *model, const char *alias, const char *const *at,
                         ds_buf *out) {
    const ds_model_family *family = model->family;
    const char *file = ds_model_file(model);
    ds_buf_printf(out, "import \"%.*s%s.dir\" as %s with ", (int)strlen(file) - 4, file,
                  model->decodes ? "_decode" : "", alias);
    for (int i = 0; i < DS_MODEL_N_SIZES; i++) {
        const char *param = param_name(family, i);
        if (!param || is_left_out(model, i, at && at[i])) continue;
        if (at && at[i])
            ds_buf_printf(out, "%s = %s, ", param, at[i]);
        else
            ds_buf_printf(out, "%s = %" PRId64 ", ", param, model->size[i]);
    }
    if (model->with) ds_buf_put(out, model->with);
    if (family->rope_base) put_real(family->rope_base, model->rope_base, out);
    if (family->dropout && !model->decodes) put_real(family->dropout, model->dropout, out);
    ds_buf_printf(out, "seq = seq, %sbatch = batch\n", model->decodes ? "prompt = prompt, " : "");
}

/* ---- the way back ---- */

static const ds_num *find_param(const ds_binding *binding, const ds_module *module,
                                const char *name) {
    for (uint32_t i = 0; i < module->params.n; i++)
        if (strcmp(module->params.at[i].name, name) == 0) return &binding->params[module->id][i];
    return NULL;
}

static bool is_file(const char *path, const char *file) {
    size_t n = strlen(path), tail = strlen(file);
    if (n < tail || strcmp(path + n - tail, file) != 0) return false;
    return n == tail || path[n - tail - 1] == '/';
}

static void read_real(const ds_binding *binding, const ds_module *module, const char *param,
                      double *out) {
    const ds_num *x = param ? find_param(binding, module, param) : NULL;
    if (x) *out = x->kind == DS_NUM_INT ? (double)x->i : x->r;
}

static bool read_sizes(const ds_binding *binding, const ds_module *module, ds_model *out) {
    for (int i = 0; i < DS_MODEL_N_SIZES; i++) {
        const char *param = out->family->param[i], *name = param_name(out->family, i);
        const ds_num *x = name ? find_param(binding, module, name) : NULL;
        if (name && (!x || x->kind != DS_NUM_INT)) return false;
        if (x) out->size[i] = x->i;
        if (!name && param && *param == '=' && param[1])
            out->size[i] = strtoll(param + 1, NULL, 10);
    }
    fill_derived(out->family, out);
    return true;
}

bool ds_model_of_function(const ds_binding *binding, const ds_func *func, ds_model *out) {
    for (size_t i = 0; i < N_FAMILIES; i++) {
        for (int tied = 0; tied < 2; tied++) {
            *out =
                (ds_model){.family = &families[i], .tied = tied, .features = families[i].features};
            const char *name = ds_model_function(out);
            if (name && strcmp(name, func->name) == 0 &&
                is_file(func->module->path, ds_model_file(out))) {
                read_real(binding, func->module, families[i].rope_base, &out->rope_base);
                read_real(binding, func->module, families[i].dropout, &out->dropout);
                return read_sizes(binding, func->module, out);
            }
        }
    }
    return false;
}

/* ---- parameters ---- */

static ds_status count(ds_unit *unit, const char *function, int64_t *out, ds_error *err) {
    ds_binding binding;
    ds_model_counts counts = {0};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(unit, &diags);
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, err);
    if (status == DS_OK) status = ds_verify_bound(unit, &binding, &diags);
    if (status != DS_OK && diags.all.n)
        ds_error_set(err, status, DS_NOWHERE, "%s", diags.all.at[0].message);
    if (status == DS_OK)
        status =
            ds_model_count(&binding, ds_find_func(unit->modules.at[0], function), &counts, err);
    ds_diags_deinit(&diags);
    *out = counts.parameters;
    return status;
}

ds_status ds_model_parameters(const ds_model *model, int64_t seq, const char *path,
                              const ds_load_options *load, int64_t *out, ds_error *err) {
    ds_buf text = {0}, function = {0};
    ds_unit *unit;
    ds_buf_printf(&text, "dir 1\nparam seq = %" PRId64 ", batch = 1\n", seq);
    ds_model_put_import(model, "m", NULL, &text);
    ds_buf_printf(&function, "m.%s", ds_model_function(model));
    ds_status status = ds_load_text(path, text.text, text.n, load, &unit, err);
    if (status == DS_OK) status = count(unit, function.text, out, err);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
    ds_buf_deinit(&function);
    return status;
}
