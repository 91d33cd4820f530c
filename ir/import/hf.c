/* Hugging Face config.json files as scenarios over the model library.
 *
 * A family is a line of a table: which file and function of scenarios/models it is, and which key
 * of the config gives which param. What a config may turn on and that file has not is refused where
 * it changes shapes or work (attention windows shorter than the sequence, other activations, biases
 * elsewhere), and noted in a comment where it does not (scaled rotary angles).
 *
 * Key names and defaults: the configuration classes of Hugging Face transformers
 * (src/transformers/models/FAMILY/configuration_FAMILY.py, versions 4.3x to 4.4x). */
#include "ir/import/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define MAX_SIZE    ((int64_t)1 << 31)
#define DEFAULT_SEQ 4096 /* where the config allows longer sequences */
#define BATCH       8

/* ---- families ---- */

typedef enum size_id {
    LAYERS,
    HIDDEN,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    FFN,
    VOCAB,
    EXPERTS,
    TOP,
    POSITIONS,
    N_SIZES
} size_id;

typedef enum fallback { MUST, AS_HEADS, HIDDEN_OVER_HEADS, FOUR_HIDDEN, NUMBER } fallback;

typedef struct size_key {
    size_id id;
    const char *key;
    const char *param; /* of the library's file; NULL: only checked */
    fallback otherwise;
    int64_t number; /* NUMBER: what an absent key means */
} size_key;

static const size_key gpt2_keys[] = {
    {LAYERS, "n_layer", "layers", MUST, 0}, {HIDDEN, "n_embd", "hidden", MUST, 0},
    {HEADS, "n_head", "heads", MUST, 0},    {VOCAB, "vocab_size", "vocab", MUST, 0},
    {FFN, "n_inner", NULL, FOUR_HIDDEN, 0}, {POSITIONS, "n_positions", NULL, NUMBER, 1024},
    {N_SIZES, NULL, NULL, MUST, 0},
};

/* head_dim is derived in the library's file, and set only where the config says something else. */
#define LLAMA_KEYS                                                                                 \
    {LAYERS, "num_hidden_layers", "layers", MUST, 0}, {HIDDEN, "hidden_size", "hidden", MUST, 0},  \
        {HEADS, "num_attention_heads", "heads", MUST, 0},                                          \
        {KV_HEADS, "num_key_value_heads", "kv_heads", AS_HEADS, 0},                                \
        {HEAD_DIM, "head_dim", NULL, HIDDEN_OVER_HEADS, 0},                                        \
        {FFN, "intermediate_size", "ffn", MUST, 0}, {VOCAB, "vocab_size", "vocab", MUST, 0}, {     \
        POSITIONS, "max_position_embeddings", NULL, NUMBER, DEFAULT_SEQ                            \
    }

static const size_key llama_keys[] = {LLAMA_KEYS, {N_SIZES, NULL, NULL, MUST, 0}};
static const size_key mixtral_keys[] = {
    LLAMA_KEYS,
    {EXPERTS, "num_local_experts", "experts", NUMBER, 8},
    {TOP, "num_experts_per_tok", "top", NUMBER, 2},
    {N_SIZES, NULL, NULL, MUST, 0},
};

typedef struct family {
    const char *model_type;
    const char *file, *function;  /* of scenarios/ */
    const char *tied_file, *tied; /* where the head shares the embedding's table; NULL: refused */
    bool ties;                    /* what an absent tie_word_embeddings means */
    bool is_llama;                /* RMSNorm, rotary, SwiGLU */
    bool qkv_bias, qk_norm;
    const size_key *keys;
} family;

static const family families[] = {
    {"gpt2", NULL, NULL, "models/gpt.dir", "gpt", true, false, false, false, gpt2_keys},
    {"llama", "models/llama.dir", "llama", "models/qwen.dir", "llama_tied", false, true, false,
     false, llama_keys},
    {"mistral", "models/llama.dir", "llama", "models/qwen.dir", "llama_tied", false, true, false,
     false, llama_keys},
    {"qwen2", "models/qwen.dir", "qwen2", "models/qwen.dir", "qwen2_tied", false, true, true, false,
     llama_keys},
    {"qwen3", "models/qwen.dir", "qwen3", "models/qwen.dir", "qwen3_tied", false, true, false, true,
     llama_keys},
    {"mixtral", "models/mixtral.dir", "mixtral", NULL, NULL, false, true, false, false,
     mixtral_keys},
};
#define N_FAMILIES (sizeof families / sizeof *families)

typedef struct config {
    const json_t *json;
    const family *family;
    int64_t size[N_SIZES]; /* 0: the family has none */
    bool tied;
    double rope_base, dropout;
    const char *dtype;
    ds_buf notes; /* comment lines */
    ds_import_param params[2];
} config;
enum { SEQ, BATCH_PARAM };

/* ---- reading keys ---- */

/* null counts as absent, as in transformers. */
static const json_t *find_key(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static const char *kind_of(const json_t *value) {
    static const char *const names[] = {"an object", "a list", "a string", "an integer",
                                        "a real",    "true",   "false",    "null"};
    return names[json_typeof(value)];
}

static ds_status wrong_type(const char *key, const char *wanted, const json_t *value,
                            ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "'%s' must be %s, and is %s", key, wanted,
                        kind_of(value));
}

static ds_status read_size(const config *c, const size_key *key, int64_t *out, ds_error *err) {
    const json_t *value = find_key(c->json, key->key);
    if (!value) {
        switch (key->otherwise) {
        case MUST:
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the key '%s' is missing", key->key);
        case AS_HEADS:
            *out = c->size[HEADS];
            return DS_OK;
        case HIDDEN_OVER_HEADS:
            *out = c->size[HIDDEN] / c->size[HEADS];
            return DS_OK;
        case FOUR_HIDDEN:
            *out = 4 * c->size[HIDDEN];
            return DS_OK;
        case NUMBER:
            *out = key->number;
            return DS_OK;
        }
    }
    if (!json_is_integer(value)) return wrong_type(key->key, "an integer", value, err);
    *out = json_integer_value(value);
    if (*out < 1 || *out > MAX_SIZE)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "'%s' is %" PRId64 "; it must be between 1 and %" PRId64, key->key,
                            *out, MAX_SIZE);
    return DS_OK;
}

static ds_status read_real(const json_t *object, const char *key, double least, double *out,
                           ds_error *err) {
    const json_t *value = find_key(object, key);
    if (!value) return DS_OK;
    if (!json_is_number(value)) return wrong_type(key, "a number", value, err);
    *out = json_number_value(value);
    if (!(*out >= least) || *out > 1e300)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "'%s' is %g", key, *out);
    return DS_OK;
}

static ds_status read_bool(const config *c, const char *key, bool *out, ds_error *err) {
    const json_t *value = find_key(c->json, key);
    if (!value) return DS_OK;
    if (!json_is_boolean(value)) return wrong_type(key, "true or false", value, err);
    *out = json_is_true(value);
    return DS_OK;
}

static ds_status read_text(const config *c, const char *key, const char **out, ds_error *err) {
    const json_t *value = find_key(c->json, key);
    if (!value) return DS_OK;
    if (!json_is_string(value)) return wrong_type(key, "a string", value, err);
    *out = json_string_value(value);
    return DS_OK;
}

/* ---- what the library's files can be ---- */

static ds_status find_family(config *c, ds_error *err) {
    const char *type = NULL, *known[N_FAMILIES];
    DS_TRY(read_text(c, "model_type", &type, err));
    if (!type) return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the key 'model_type' is missing");
    for (size_t i = 0; i < N_FAMILIES; i++) {
        known[i] = families[i].model_type;
        if (strcmp(type, known[i]) == 0) c->family = &families[i];
    }
    if (c->family) return DS_OK;
    const char *near = ds_suggest(type, known, N_FAMILIES);
    ds_buf list = {0};
    for (size_t i = 0; i < N_FAMILIES; i++) ds_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                 "model_type '%.40s' is not among those that distsim imports: %s%s%s%s", type,
                 list.text, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    ds_buf_deinit(&list);
    return DS_ERR_UNSUPPORTED;
}

static ds_status refuse(const char *key, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "'%s': %s", key, why);
}

static ds_status must_be_false(const config *c, const char *key, const char *why, ds_error *err) {
    bool on = false;
    DS_TRY(read_bool(c, key, &on, err));
    return on ? refuse(key, why, err) : DS_OK;
}

static ds_status check_activation(const config *c, const char *key, const char *otherwise,
                                  const char *const *fine, ds_error *err) {
    const char *word = otherwise;
    DS_TRY(read_text(c, key, &word, err));
    for (; *fine; fine++)
        if (strcmp(word, *fine) == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "'%s' is '%.40s'; the model library has %s there", key, word, otherwise);
}

static ds_status check_gpt2(config *c, ds_error *err) {
    static const char *const fine[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
    DS_TRY(check_activation(c, "activation_function", "gelu_new", fine, err));
    if (c->size[FFN] != 4 * c->size[HIDDEN])
        return refuse("n_inner", "the model library has 4 n_embd there", err);
    return read_real(c->json, "resid_pdrop", 0, &c->dropout, err);
}

/* A window as long as the sequence changes nothing; a shorter one saves work that distsim's
 * attention would count. */
static ds_status check_window(const config *c, ds_error *err) {
    bool used = true;
    int64_t window = INT64_MAX;
    const size_key key = {N_SIZES, "sliding_window", NULL, NUMBER, INT64_MAX};
    DS_TRY(read_bool(c, "use_sliding_window", &used, err));
    if (!used || !find_key(c->json, key.key)) return DS_OK;
    if (strncmp(c->family->model_type, "qwen", 4) == 0 && !find_key(c->json, "use_sliding_window"))
        return DS_OK; /* Qwen's is off unless it is turned on */
    DS_TRY(read_size(c, &key, &window, err));
    if (c->params[SEQ].value <= window) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "'sliding_window' is %" PRId64 " and seq %" PRId64
                        ": distsim's attention has no window; try --set seq=%" PRId64,
                        window, c->params[SEQ].value, window);
}

static ds_status check_rope(config *c, ds_error *err) {
    const json_t *nested = find_key(c->json, "rope_parameters"),
                 *scaling = find_key(c->json, "rope_scaling");
    if (nested && !json_is_object(nested))
        return wrong_type("rope_parameters", "an object", nested, err);
    c->rope_base = 10000;
    DS_TRY(read_real(nested, "rope_theta", 1, &c->rope_base, err));
    DS_TRY(read_real(c->json, "rope_theta", 1, &c->rope_base, err));
    if (scaling)
        ds_buf_put(&c->notes, "// rope_scaling is left out: it changes angles, neither shapes nor "
                              "work.\n");
    return DS_OK;
}

static ds_status check_llama(config *c, ds_error *err) {
    static const char *const fine[] = {"silu", "swish", NULL};
    DS_TRY(check_activation(c, "hidden_act", "silu", fine, err));
    DS_TRY(must_be_false(c, "attention_bias",
                         "the model library has no bias in its output "
                         "projection",
                         err));
    DS_TRY(must_be_false(c, "mlp_bias", "the model library has no bias there", err));
    DS_TRY(check_window(c, err));
    DS_TRY(check_rope(c, err));
    if (c->size[HEADS] % c->size[KV_HEADS])
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "'num_key_value_heads' = %" PRId64
                            " does not divide 'num_attention_heads' = %" PRId64,
                            c->size[KV_HEADS], c->size[HEADS]);
    if (c->size[HEAD_DIM] % 2)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "heads of %" PRId64 " elements: rotary positions need pairs",
                            c->size[HEAD_DIM]);
    if (c->size[EXPERTS])
        ds_buf_put(&c->notes,
                   "// Each expert has room for 125 % of an even spread (models/mixtral.dir "
                   "says more); Mixtral itself drops\n// no token.\n");
    if (c->size[EXPERTS] && c->size[TOP] > c->size[EXPERTS])
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "'num_experts_per_tok' = %" PRId64 " of %" PRId64 " experts",
                            c->size[TOP], c->size[EXPERTS]);
    return DS_OK;
}

static ds_status read_dtype(config *c, ds_error *err) {
    static const char *const names[][2] = {
        {"float32", "f32"}, {"float16", "f16"}, {"bfloat16", "bf16"}};
    const char *word = "float32";
    DS_TRY(read_text(c, "torch_dtype", &word, err));
    DS_TRY(read_text(c, "dtype", &word, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(word, names[i][0]) == 0) c->dtype = names[i][1];
    if (c->dtype) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "'torch_dtype' is '%.40s'; float32, float16 and bfloat16 are known", word);
}

static ds_status read_config(config *c, const ds_import_options *options, ds_error *err) {
    DS_TRY(find_family(c, err));
    for (const size_key *key = c->family->keys; key->key; key++)
        DS_TRY(read_size(c, key, &c->size[key->id], err));
    if (c->size[HIDDEN] % c->size[HEADS] && !find_key(c->json, "head_dim"))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the hidden size %" PRId64 " is no multiple of %" PRId64 " heads",
                            c->size[HIDDEN], c->size[HEADS]);
    c->tied = c->family->ties;
    DS_TRY(read_bool(c, "tie_word_embeddings", &c->tied, err));
    if (!(c->tied ? c->family->tied : c->family->function))
        return refuse("tie_word_embeddings",
                      c->tied ? "the model library has a head of its own there"
                              : "the model library shares the embedding's table there",
                      err);
    int64_t seq = c->size[POSITIONS] < DEFAULT_SEQ ? c->size[POSITIONS] : DEFAULT_SEQ;
    c->params[SEQ] = (ds_import_param){"seq", seq};
    c->params[BATCH_PARAM] = (ds_import_param){"batch", BATCH};
    DS_TRY(ds_import__set(options, c->params, 2, err));
    if (c->params[SEQ].value > c->size[POSITIONS])
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "seq = %" PRId64 ", and the config has %" PRId64 " positions",
                            c->params[SEQ].value, c->size[POSITIONS]);
    DS_TRY(c->family->is_llama ? check_llama(c, err) : check_gpt2(c, err));
    if (find_key(c->json, "quantization_config"))
        ds_buf_put(&c->notes,
                   "// quantization_config is left out: training is in the dtype below.\n");
    return read_dtype(c, err);
}

/* ---- the number of parameters ---- */

/* Sums of products of sizes, with one flag for all overflows. */
typedef struct total {
    int64_t sum;
    bool over;
} total;

static int64_t times(total *t, int64_t a, int64_t b) {
    int64_t product = 0;
    t->over = __builtin_mul_overflow(a, b, &product) || t->over;
    return product;
}

static void add(total *t, int64_t n) {
    t->over = __builtin_add_overflow(t->sum, n, &t->sum) || t->over;
}

/* A layer: two norms; q, k, v and o; gate, up and down of each expert, and the router. */
static void add_llama_layer(const config *c, total *t) {
    const int64_t *s = c->size;
    int64_t q = times(t, s[HEADS], s[HEAD_DIM]), kv = times(t, s[KV_HEADS], s[HEAD_DIM]);
    add(t, 2 * s[HIDDEN]);
    add(t, times(t, 2 * s[HIDDEN], q));
    add(t, times(t, 2 * s[HIDDEN], kv));
    if (c->family->qkv_bias) add(t, q);
    if (c->family->qkv_bias) add(t, times(t, 2, kv));
    if (c->family->qk_norm) add(t, 2 * s[HEAD_DIM]);
    int64_t experts = s[EXPERTS] ? s[EXPERTS] : 1;
    add(t, times(t, times(t, 3 * s[HIDDEN], s[FFN]), experts));
    add(t, times(t, s[HIDDEN], s[EXPERTS]));
}

/* gpt2: 12 h^2 + 13 h a layer; the position table has as many rows as the config has positions. */
static void add_gpt2_layer(const config *c, total *t) {
    add(t, times(t, times(t, 12, c->size[HIDDEN]), c->size[HIDDEN]));
    add(t, 13 * c->size[HIDDEN]);
}

static ds_status count_parameters(const config *c, int64_t *out, ds_error *err) {
    const int64_t *s = c->size;
    total layer = {0}, all = {0};
    if (c->family->is_llama)
        add_llama_layer(c, &layer);
    else
        add_gpt2_layer(c, &layer);
    all.over = layer.over;
    add(&all, times(&all, layer.sum, s[LAYERS]));
    add(&all, times(&all, c->tied ? s[VOCAB] : 2 * s[VOCAB], s[HIDDEN]));
    add(&all, s[HIDDEN]);
    if (!c->family->is_llama) add(&all, s[HIDDEN]);
    if (!c->family->is_llama) add(&all, times(&all, c->params[SEQ].value, s[HIDDEN]));
    if (all.over)
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a model of more than 2^63 parameters");
    *out = all.sum;
    return DS_OK;
}

/* 6738415616 as 6,738,415,616 */
static void put_grouped(int64_t n, ds_buf *out) {
    if (n >= 1000) {
        put_grouped(n / 1000, out);
        ds_buf_printf(out, ",%03" PRId64, n % 1000);
    } else {
        ds_buf_printf(out, "%" PRId64, n);
    }
}

/* ---- writing ---- */

/* A real as the language has it: with a point or an exponent. */
static void put_real(double x, ds_buf *out) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    ds_buf_printf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void put_import(const config *c, ds_buf *out) {
    ds_buf_printf(out, "import \"%s\" as m with ",
                  c->tied ? c->family->tied_file : c->family->file);
    for (const size_key *key = c->family->keys; key->key; key++)
        if (key->param) ds_buf_printf(out, "%s = %" PRId64 ", ", key->param, c->size[key->id]);
    if (c->family->is_llama) {
        if (c->size[HEAD_DIM] * c->size[HEADS] != c->size[HIDDEN])
            ds_buf_printf(out, "head_dim = %" PRId64 ", ", c->size[HEAD_DIM]);
        ds_buf_put(out, "rope_base = ");
        put_real(c->rope_base, out);
    } else {
        ds_buf_put(out, "dropout = ");
        put_real(c->dropout, out);
    }
    ds_buf_put(out, ", seq = seq, batch = batch\n");
}

static void put_file(const config *c, const ds_import_options *options, int64_t parameters,
                     ds_arena *arena, ds_buf *out) {
    ds_buf_put(out, "dir 1\n\n// Imported");
    if (options->source) ds_buf_printf(out, " from %s", ds_import__plain(arena, options->source));
    ds_buf_printf(out, " (Hugging Face, model_type %s): ", c->family->model_type);
    put_grouped(parameters, out);
    ds_buf_put(out, " parameters.\n");
    if (c->params[SEQ].value < c->size[POSITIONS])
        ds_buf_printf(out, "// The config allows sequences of up to %" PRId64 ".\n",
                      c->size[POSITIONS]);
    if (c->notes.n) ds_buf_put(out, c->notes.text);
    ds_import__put_on(options, out);
    ds_import__put_params(c->params, 2, out);
    put_import(c, out);
    ds_buf function = {0}, train = {0};
    ds_buf_printf(&function, "m.%s", c->tied ? c->family->tied : c->family->function);
    ds_buf_printf(&train, "train { loss = none, optimizer = adamw, dtype = %s", c->dtype);
    ds_buf_put(&train, strcmp(c->dtype, "f32") == 0 ? " }" : ", master_dtype = f32 }");
    const char *name = json_string_value(json_object_get(c->json, "_name_or_path"));
    ds_import__put_scenario(options, name && *name ? ds_import__plain(arena, name) : NULL,
                            function.text, train.text, "batch", out);
    ds_buf_deinit(&function);
    ds_buf_deinit(&train);
}

static ds_status load_json(const char *text, size_t n, json_t **out, ds_error *err) {
    json_error_t at;
    if (n > ds_import_format_by_name("hf")->most_bytes)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "the config has more than 1 MiB");
    errno = 0; /* jansson tells a lack of memory and a wrong text apart by nothing else */
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (!*out && errno == ENOMEM) ds_out_of_memory(0);
    if (!*out)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "line %d, column %d: %s", at.line,
                            at.column, at.text);
    if (json_is_object(*out)) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "a config is an object; this is %s",
                        kind_of(*out));
}

ds_status ds_import_hf(const char *text, size_t n, const ds_import_options *options, ds_buf *out,
                       ds_error *err) {
    json_t *json = NULL;
    int64_t parameters = 0;
    ds_status status = load_json(text, n, &json, err);
    config c = {.json = json, .dropout = 0.1};
    if (status == DS_OK) status = read_config(&c, options, err);
    if (status == DS_OK) status = count_parameters(&c, &parameters, err);
    if (status == DS_OK) {
        ds_arena arena;
        ds_arena_init(&arena);
        put_file(&c, options, parameters, &arena, out);
        ds_arena_deinit(&arena);
    }
    ds_buf_deinit(&c.notes);
    json_decref(json);
    return status;
}
