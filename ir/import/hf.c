/* Hugging Face config.json files as scenarios over the model library.
 *
 * hf.def says which key is which size, and which keys the library is unable to say; models.def
 * which file and function a model is. What a config may turn on and that function has not is
 * refused where it changes shapes or work, and noted in a comment where it does not. */
#include "ir/import/internal.h"
#include "ir/import/model.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define MAX_SIZE    ((int64_t)1 << 31)
#define DEFAULT_SEQ 4096 /* where the config allows longer sequences */
#define BATCH       8
#define TOKENS      "tokens { dim = t, prompt = prompt, batch = batch }"

/* ---- the lines of hf.def ---- */

typedef enum fallback {
    MUST,
    AS_HEADS,
    HIDDEN_OVER_HEADS,
    FOUR_HIDDEN,
    NUMBER,
    TIMES_EXPERT_FFN
} fallback;

typedef struct size_key {
    const char *types;
    ds_model_size size;
    const char *key;
    fallback otherwise;
    int64_t number; /* NUMBER: what an absent key means */
} size_key;

static const size_key size_keys[] = {
#define SIZE(types, size, key, otherwise, number) {types, DS_MODEL_##size, key, otherwise, number},
#include "ir/import/hf.def"
};

static const struct {
    const char *types, *key, *word, *others;
} words[] = {
#define WORD(...) {__VA_ARGS__},
#include "ir/import/hf.def"
};

static const struct {
    const char *types, *key, *param;
    int64_t otherwise;
} extras[] = {
#define EXTRA(...) {__VA_ARGS__},
#include "ir/import/hf.def"
};

static const struct {
    const char *types, *key;
    size_t field;
    double otherwise;
} real_keys[] = {
#define REAL(types, key, field, otherwise) {types, key, offsetof(ds_model, field), otherwise},
#include "ir/import/hf.def"
};

typedef enum rule_kind { OFF, ON, ONE, NONE, NOTED } rule_kind;

static const struct {
    const char *types;
    rule_kind kind;
    const char *key, *sentence;
} rules[] = {
#define RULE(...) {__VA_ARGS__},
#include "ir/import/hf.def"
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

typedef struct config {
    const json_t *json, *whole; /* the text part of the whole */
    const char *type;           /* model_type */
    ds_model model;
    const char *keys[DS_MODEL_N_SIZES]; /* of the sizes */
    const char *dtype;
    ds_buf with;  /* of the model */
    ds_buf notes; /* comment lines */
    ds_import_param params[3];
} config;
enum { SEQ, BATCH_PARAM, PROMPT }; /* PROMPT: of a decoding form */

static bool is_of(const config *c, const char *types) {
    return strcmp(types, "*") == 0 || ds_import__is_word_of(c->type, types);
}

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

static ds_status read_integer(const json_t *value, const char *key, int64_t least, int64_t *out,
                              ds_error *err) {
    if (!json_is_integer(value)) return wrong_type(key, "an integer", value, err);
    *out = json_integer_value(value);
    if (*out < least || *out > MAX_SIZE)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "'%s' is %" PRId64 "; it must be between %" PRId64 " and %" PRId64, key,
                            *out, least, MAX_SIZE);
    return DS_OK;
}

/* What a size is whose key is missing. */
static ds_status fall_back(const config *c, const size_key *key, int64_t *out, ds_error *err) {
    const int64_t *size = c->model.size;
    switch (key->otherwise) {
    case MUST:
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the key '%s' is missing", key->key);
    case AS_HEADS:
        *out = size[DS_MODEL_HEADS];
        break;
    case HIDDEN_OVER_HEADS:
        *out = size[DS_MODEL_HIDDEN] / size[DS_MODEL_HEADS];
        break;
    case FOUR_HIDDEN:
        *out = 4 * size[DS_MODEL_HIDDEN];
        break;
    case NUMBER:
        *out = key->number;
        break;
    case TIMES_EXPERT_FFN:
        *out = 0;
        break;
    }
    return DS_OK;
}

/* Of the lines for the size the first whose key is there, else the first. */
static const size_key *find_size_key(const config *c, ds_model_size size) {
    const size_key *first = NULL;
    for (size_t i = 0; i < COUNT(size_keys); i++) {
        const size_key *key = &size_keys[i];
        if (key->size != size || !is_of(c, key->types)) continue;
        if (find_key(c->json, key->key)) return key;
        if (!first) first = key;
    }
    return first;
}

static ds_status read_size(config *c, ds_model_size size, ds_error *err) {
    const size_key *key = find_size_key(c, size);
    int64_t *out = &c->model.size[size];
    const json_t *value = key ? find_key(c->json, key->key) : NULL;
    if (!key) return DS_OK;
    if (*key->key) c->keys[size] = key->key;
    if (!value) return fall_back(c, key, out, err);
    bool may_lack = key->otherwise == TIMES_EXPERT_FFN ||
                    (key->otherwise == NUMBER && key->number == 0) || size == DS_MODEL_DENSE;
    DS_TRY(read_integer(value, key->key, may_lack ? 0 : 1, out, err));
    if (key->otherwise == TIMES_EXPERT_FFN) *out *= c->model.size[DS_MODEL_EXPERT_FFN];
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

/* The text part of a model that sees images too; its model_type is llama4_text for llama4. */
static ds_status find_text_config(config *c, ds_error *err) {
    const json_t *inner = find_key(c->json, "text_config");
    if (!inner) return DS_OK;
    if (!json_is_object(inner)) return wrong_type("text_config", "an object", inner, err);
    ds_buf_put(&c->notes, "// The text part: images are left out.\n");
    c->json = inner;
    return DS_OK;
}

static ds_status find_type(config *c, ds_arena *arena, ds_error *err) {
    const char *const *known;
    uint32_t n = ds_model_types(arena, &known);
    DS_TRY(read_text(c, "model_type", &c->type, err));
    if (!c->type)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the key 'model_type' is missing");
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(c->type, known[i]) == 0) return find_text_config(c, err);
    const char *near = ds_suggest(c->type, known, n);
    ds_buf list = {0};
    for (uint32_t i = 0; i < n; i++) ds_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                 "model_type '%.40s' is not among those that distsim imports: %s%s%s%s", c->type,
                 list.text, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    ds_buf_deinit(&list);
    return DS_ERR_UNSUPPORTED;
}

static ds_status refuse(const char *key, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "'%s': %s", key, why);
}

static ds_status check_words(const config *c, ds_error *err) {
    for (size_t i = 0; i < COUNT(words); i++) {
        const char *word = words[i].word;
        if (!is_of(c, words[i].types)) continue;
        DS_TRY(read_text(c, words[i].key, &word, err));
        if (strcmp(word, words[i].word) != 0 && !ds_import__is_word_of(word, words[i].others))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                "'%s' is '%.40s'; the model library has %s there", words[i].key,
                                word, words[i].word);
    }
    return DS_OK;
}

/* Is the key's value the one that the library has? */
static ds_status check_rule(config *c, rule_kind kind, const char *key, bool *fine, ds_error *err) {
    const json_t *value = find_key(c->json, key);
    bool on = kind == ON;
    *fine = true;
    switch (kind) {
    case OFF:
    case ON:
        DS_TRY(read_bool(c, key, &on, err));
        *fine = on == (kind == ON);
        break;
    case ONE:
        if (!json_is_number(value)) return wrong_type(key, "a number", value, err);
        *fine = json_number_value(value) == 1;
        break;
    case NONE:
        *fine = json_is_array(value) && json_array_size(value) == 0;
        break;
    case NOTED:
        break;
    }
    return DS_OK;
}

static ds_status check_rules(config *c, ds_error *err) {
    for (size_t i = 0; i < COUNT(rules); i++) {
        bool fine;
        if (!find_key(c->json, rules[i].key) || !is_of(c, rules[i].types)) continue;
        DS_TRY(check_rule(c, rules[i].kind, rules[i].key, &fine, err));
        if (!fine) return refuse(rules[i].key, rules[i].sentence, err);
        if (rules[i].kind == NOTED) ds_buf_printf(&c->notes, "// %s\n", rules[i].sentence);
    }
    return DS_OK;
}

/* ---- keys that no line says ---- */

/* Which layers see all keys: the last of each period. */
static ds_status check_layer_types(config *c, ds_error *err) {
    const json_t *list = find_key(c->json, "layer_types");
    int64_t period = c->model.size[DS_MODEL_PERIOD];
    for (size_t i = 0; period && i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        bool full = word && strcmp(word, "full_attention") == 0;
        if (full != ((int64_t)(i + 1) % period == 0))
            return ds_error_set(
                err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                "'layer_types': the model library has full attention in the last of "
                "%" PRId64 " layers, and layer %zu is '%.40s'",
                period, i, word ? word : "");
    }
    return DS_OK;
}

static ds_status read_neox(config *c, ds_error *err) {
    double part = 0.25;
    const int64_t *s = c->model.size;
    DS_TRY(read_real(c->json, "rotary_pct", 0, &part, err));
    int64_t dim = (int64_t)(part * (double)(s[DS_MODEL_HIDDEN] / s[DS_MODEL_HEADS]));
    c->model.size[DS_MODEL_ROPE_DIM] = dim;
    c->keys[DS_MODEL_ROPE_DIM] = "rotary_pct";
    if (dim * s[DS_MODEL_HEADS] < s[DS_MODEL_HIDDEN]) return DS_OK;
    return refuse("rotary_pct", "the model library turns a part of each head there", err);
}

/* One key head, unless each of two norms has a block. */
static ds_status read_falcon(config *c, ds_error *err) {
    bool is_new = false, multi_query = true;
    DS_TRY(read_bool(c, "new_decoder_architecture", &is_new, err));
    DS_TRY(read_bool(c, "multi_query", &multi_query, err));
    if (is_new) {
        c->model.features |= DS_MODEL_TWO_NORMS;
        const json_t *norms = find_key(c->json, "num_ln_in_parallel_attn");
        if (norms && json_integer_value(norms) != 2)
            return refuse("num_ln_in_parallel_attn", "the model library has two there", err);
    } else {
        c->model.size[DS_MODEL_KV_HEADS] = multi_query ? 1 : c->model.size[DS_MODEL_HEADS];
    }
    return DS_OK;
}

static ds_status read_opt(config *c, ds_error *err) {
    const json_t *width = find_key(c->json, "word_embed_proj_dim");
    if (!width || json_integer_value(width) == c->model.size[DS_MODEL_HIDDEN]) return DS_OK;
    return refuse("word_embed_proj_dim", "the model library's embedding is as wide as the model",
                  err);
}

static ds_status read_t5(config *c, ds_error *err) {
    const json_t *layers = find_key(c->json, "num_decoder_layers");
    if (!layers || json_integer_value(layers) == c->model.size[DS_MODEL_LAYERS]) return DS_OK;
    return refuse("num_decoder_layers", "the model library has as many as num_layers", err);
}

/* Patches of an image: seq and their size; as many classes as labels have names. */
static ds_status read_vit(config *c, ds_error *err) {
    static const char *const keys[] = {"image_size", "patch_size", "num_channels"};
    int64_t value[] = {224, 16, 3};
    for (size_t i = 0; i < COUNT(keys); i++) {
        const json_t *at = find_key(c->json, keys[i]);
        if (at) DS_TRY(read_integer(at, keys[i], 1, &value[i], err));
        if (value[i] > 1 << 15) return refuse(keys[i], "more than 32768", err);
    }
    const json_t *labels = find_key(c->json, "id2label");
    int64_t side = value[0] / value[1];
    if (side == 0) return refuse("patch_size", "more than image_size", err);
    if (json_is_object(labels) && json_object_size(labels))
        c->model.size[DS_MODEL_VOCAB] = (int64_t)json_object_size(labels);
    c->model.size[DS_MODEL_POSITIONS] = side * side;
    ds_buf_printf(&c->with, "patch_dim = %" PRId64 ", ", value[1] * value[1] * value[2]);
    return DS_OK;
}

static ds_status read_llama4(config *c, ds_error *err) {
    int64_t *s = c->model.size;
    s[DS_MODEL_SHARED_FFN] = s[DS_MODEL_EXPERT_FFN];
    if (s[DS_MODEL_LAYERS] % s[DS_MODEL_PERIOD] == 0) return DS_OK;
    return refuse("interleave_moe_layer_step", "it does not divide the number of layers", err);
}

static ds_status read_gpt_oss(config *c, ds_error *err) {
    if (c->model.size[DS_MODEL_LAYERS] % 2 == 0) return check_layer_types(c, err);
    return refuse("num_hidden_layers", "the model library has an even number there", err);
}

/* The order of layers as models/nemotron.dir says it. */
typedef struct hybrid {
    int64_t runs[3], pairs[3], tail;
    int n;
} hybrid;

/* A turn after so many pairs; false: a fourth kind of run. */
static bool add_turn(hybrid *h, int64_t pairs) {
    if (h->n && h->pairs[h->n - 1] == pairs) return ++h->runs[h->n - 1];
    if (h->n == 3) return false;
    h->pairs[h->n] = pairs;
    h->runs[h->n++] = 1;
    return true;
}

/* "M-M-M*-…": pairs of Mamba and a block (`-` feed-forward, `E` experts), of which some turns have
 * attention between the two. Returns the letters that were understood. */
static size_t read_pattern(const char *pattern, char block, hybrid *h) {
    size_t at = 0;
    for (int64_t pairs = 0; pattern[at] == 'M';) {
        bool turn = pattern[at + 1] == '*';
        if (pattern[at + 1 + turn] != block || (turn && !add_turn(h, pairs))) break;
        at += 2 + turn;
        pairs = turn ? 0 : pairs + 1;
        h->tail = pairs;
    }
    return at;
}

static ds_status read_nemotron(config *c, ds_error *err) {
    static const char key[] = "hybrid_override_pattern";
    static const ds_model_size of_experts[] = {DS_MODEL_EXPERTS, DS_MODEL_TOP, DS_MODEL_EXPERT_FFN,
                                               DS_MODEL_SHARED_FFN};
    const char *pattern = NULL;
    hybrid h = {.pairs = {1, 1, 1}};
    DS_TRY(read_text(c, key, &pattern, err));
    if (!pattern) return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the key '%s' is missing", key);
    bool experts = strchr(pattern, 'E');
    size_t n = read_pattern(pattern, experts ? 'E' : '-', &h);
    if (pattern[n])
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "'%s': the model library has pairs of M and %c, and M*%c after equal "
                            "numbers of pairs, in three runs at most; letter %zu is another",
                            key, experts ? 'E' : '-', experts ? 'E' : '-', n + 1);
    ds_buf_put(&c->with, "repeats = 1, ");
    for (int i = 0; i < 3; i++)
        ds_buf_printf(&c->with, "runs_%d = %" PRId64 ", pairs_%d = %" PRId64 ", ", i + 1, h.runs[i],
                      i + 1, h.pairs[i]);
    ds_buf_printf(&c->with, "tail = %" PRId64 ", ", h.tail);
    for (size_t i = 0; i < COUNT(of_experts); i++)
        if (!experts) c->model.size[of_experts[i]] = 0;
    if (experts) c->model.size[DS_MODEL_FFN] = 0;
    return DS_OK;
}

static ds_status read_extras(config *c, ds_error *err) {
    for (size_t i = 0; i < COUNT(extras); i++) {
        const json_t *value = find_key(c->json, extras[i].key);
        int64_t n = extras[i].otherwise;
        if (!is_of(c, extras[i].types)) continue;
        if (value) DS_TRY(read_integer(value, extras[i].key, 1, &n, err));
        ds_buf_printf(&c->with, "%s = %" PRId64 ", ", extras[i].param, n);
    }
    return DS_OK;
}

static ds_status read_special(config *c, ds_error *err) {
    static const struct {
        const char *types;
        ds_status (*read)(config *, ds_error *);
    } all[] = {{"gpt_neox", read_neox},
               {"falcon", read_falcon},
               {"opt", read_opt},
               {"t5", read_t5},
               {"vit", read_vit},
               {"llama4 llama4_text", read_llama4},
               {"gpt_oss", read_gpt_oss},
               {"nemotron_h", read_nemotron},
               {"gemma2 gemma3_text", check_layer_types},
               {"*", read_extras}};
    for (size_t i = 0; i < COUNT(all); i++)
        if (is_of(c, all[i].types)) DS_TRY(all[i].read(c, err));
    c->model.with = c->with.text;
    return DS_OK;
}

/* Qwen's window is off unless it is turned on. */
static ds_status read_window(config *c, ds_error *err) {
    bool used = strncmp(c->type, "qwen", 4) != 0;
    DS_TRY(read_bool(c, "use_sliding_window", &used, err));
    if (!used) c->model.size[DS_MODEL_WINDOW] = 0;
    return DS_OK;
}

static ds_status read_reals(config *c, ds_error *err) {
    const json_t *nested = find_key(c->json, "rope_parameters");
    if (nested && !json_is_object(nested))
        return wrong_type("rope_parameters", "an object", nested, err);
    for (size_t i = COUNT(real_keys); i-- > 0;) { /* lines of one type come before those of all */
        double *out = (double *)((char *)&c->model + real_keys[i].field);
        if (!is_of(c, real_keys[i].types)) continue;
        *out = real_keys[i].otherwise;
        double least = out == &c->model.rope_base ? 1 : 0;
        DS_TRY(read_real(nested, real_keys[i].key, least, out, err));
        DS_TRY(read_real(c->json, real_keys[i].key, least, out, err));
    }
    return DS_OK;
}

/* A window that the family lacks is no window to a sequence that is no longer. */
static ds_status find_family(config *c, ds_error *err) {
    ds_model without = c->model;
    without.size[DS_MODEL_WINDOW] = 0;
    int64_t window = c->model.size[DS_MODEL_WINDOW], seq = c->params[SEQ].value;
    ds_status status = ds_model_find_typed(&c->model, c->type, c->keys, err);
    if (status == DS_OK || !window) return status;
    DS_TRY(ds_model_find_typed(&without, c->type, c->keys, err));
    if (seq > window)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "'sliding_window' is %" PRId64 " and seq %" PRId64
                            ": the model library has no window there; try --set seq=%" PRId64,
                            window, seq, window);
    c->model = without;
    return DS_OK;
}

static ds_status divides(const char *part, int64_t a, const char *whole, int64_t b, ds_error *err) {
    if (!a || b % a == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "%s = %" PRId64 " does not divide %s = %" PRId64, part, a, whole, b);
}

static ds_status check_sizes(const config *c, ds_error *err) {
    const int64_t *s = c->model.size;
    int64_t turned = s[DS_MODEL_ROPE_DIM] ? s[DS_MODEL_ROPE_DIM] : s[DS_MODEL_HEAD_DIM];
    DS_TRY(divides("'num_key_value_heads'", s[DS_MODEL_KV_HEADS], "'num_attention_heads'",
                   s[DS_MODEL_HEADS], err));
    if (!find_key(c->json, "head_dim") && !(c->model.features & DS_MODEL_LATENT))
        DS_TRY(divides("the number of heads", s[DS_MODEL_HEADS], "the hidden size",
                       s[DS_MODEL_HIDDEN], err));
    if ((c->model.features & DS_MODEL_ROTARY) && turned % 2)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "heads of %" PRId64 " elements: rotary positions need pairs", turned);
    if (s[DS_MODEL_TOP] > s[DS_MODEL_EXPERTS])
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%" PRId64 " of %" PRId64 " experts a token", s[DS_MODEL_TOP],
                            s[DS_MODEL_EXPERTS]);
    return DS_OK;
}

static ds_status read_dtype(config *c, ds_error *err) {
    static const char *const names[][2] = {
        {"float32", "f32"}, {"float16", "f16"}, {"bfloat16", "bf16"}};
    const char *word = "float32";
    const config whole = {.json = c->whole};
    DS_TRY(read_text(&whole, "torch_dtype", &word, err));
    DS_TRY(read_text(&whole, "dtype", &word, err));
    DS_TRY(read_text(c, "torch_dtype", &word, err));
    DS_TRY(read_text(c, "dtype", &word, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(word, names[i][0]) == 0) c->dtype = names[i][1];
    if (c->dtype) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "'torch_dtype' is '%.40s'; float32, float16 and bfloat16 are known", word);
}

/* On a machine by name a batch of usual size, of whole samples a device. */
static int64_t default_batch(const ds_import_options *options, int64_t seq) {
    int64_t devices = options->devices, batch = DS_IMPORT_TOKENS / seq;
    if (!devices || options->decode) return BATCH * (devices ? devices : 1);
    return (batch + devices - 1) / devices * devices + (batch ? 0 : devices);
}

static ds_status read_params(config *c, const ds_import_options *options, ds_error *err) {
    int64_t positions = c->model.size[DS_MODEL_POSITIONS];
    c->params[SEQ] = (ds_import_param){"seq", positions < DEFAULT_SEQ ? positions : DEFAULT_SEQ};
    c->params[BATCH_PARAM] = (ds_import_param){"batch", 0};
    c->params[PROMPT] = (ds_import_param){"prompt", 0};
    DS_TRY(ds_import__set(options, c->params, options->decode ? 3 : 2, err));
    if (!c->params[PROMPT].value) c->params[PROMPT].value = (c->params[SEQ].value + 1) / 2;
    if (!c->params[BATCH_PARAM].value)
        c->params[BATCH_PARAM].value = default_batch(options, c->params[SEQ].value);
    if (options->decode && c->params[PROMPT].value >= c->params[SEQ].value)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "no token follows a prompt of all %" PRId64, c->params[SEQ].value);
    if (c->params[SEQ].value > positions)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "seq = %" PRId64 ", and the config has %" PRId64 " positions",
                            c->params[SEQ].value, positions);
    return DS_OK;
}

static ds_status read_config(config *c, const ds_import_options *options, ds_error *err) {
    for (int size = 0; size < DS_MODEL_N_SIZES; size++)
        DS_TRY(read_size(c, (ds_model_size)size, err));
    DS_TRY(read_special(c, err));
    c->model.tied = ds_import__is_word_of(c->type, TIED);
    DS_TRY(read_bool(c, "tie_word_embeddings", &c->model.tied, err));
    DS_TRY(read_params(c, options, err));
    DS_TRY(check_words(c, err));
    DS_TRY(check_rules(c, err));
    DS_TRY(read_window(c, err));
    DS_TRY(read_reals(c, err));
    DS_TRY(find_family(c, err));
    if (options->decode) DS_TRY(ds_model_check_decodes(&c->model, err));
    DS_TRY(check_sizes(c, err));
    if (ds_model_note(&c->model)) ds_buf_printf(&c->notes, "// %s\n", ds_model_note(&c->model));
    return read_dtype(c, err);
}

/* ---- writing ---- */

/* 6738415616 as 6,738,415,616 */
static void put_grouped(int64_t n, ds_buf *out) {
    if (n >= 1000) {
        put_grouped(n / 1000, out);
        ds_buf_printf(out, ",%03" PRId64, n % 1000);
    } else {
        ds_buf_printf(out, "%" PRId64, n);
    }
}

/* On a machine by name the split that needs least memory without splitting a layer: replicas share
 * out weights, gradients and states, a microbatch is one sequence a device, activations are computed
 * again, and the devices of a node share out the experts. */
static void put_strategy(const ds_import_options *options, int64_t experts, ds_buf *out) {
    int64_t devices = options->devices, groups = options->node;
    if (devices < 2) {
        ds_buf_put(out, DS_IMPORT_ALONE);
        return;
    }
    ds_buf_printf(out, "dp = %" PRId64 ", microbatches = batch / %" PRId64 ", zero = 3, ", devices,
                  devices);
    while (experts && groups > 1 && experts % groups) groups--;
    if (experts && groups > 1) ds_buf_printf(out, "ep = %" PRId64 ", ", groups);
    ds_buf_put(out, "recompute = full");
}

/* Of a decoding form: a layer is split over as many devices of a node as its parts allow. */
static void put_decoding(const config *c, const ds_import_options *options, ds_buf *strategy) {
    const int64_t *size = c->model.size;
    int64_t tp = options->node;
    if (options->devices < 2) {
        ds_buf_put(strategy, DS_IMPORT_ALONE);
        return;
    }
    while (size[DS_MODEL_KV_HEADS] % tp || size[DS_MODEL_VOCAB] % tp || options->node % tp) tp--;
    ds_buf_printf(strategy, "tp = %" PRId64 ", dp = %" PRId64, tp, options->devices / tp);
}

static void put_file(const config *c, const ds_import_options *options, int64_t parameters,
                     ds_arena *arena, ds_buf *out) {
    ds_buf_put(out, "dir 1\n\n// Imported");
    if (options->source) ds_buf_printf(out, " from %s", ds_import__plain(arena, options->source));
    ds_buf_printf(out, " (Hugging Face, model_type %s): ", c->type);
    put_grouped(parameters, out);
    ds_buf_put(out, " parameters.\n");
    if (c->keys[DS_MODEL_POSITIONS] && c->params[SEQ].value < c->model.size[DS_MODEL_POSITIONS])
        ds_buf_printf(out, "// The config allows sequences of up to %" PRId64 ".\n",
                      c->model.size[DS_MODEL_POSITIONS]);
    if (c->notes.n) ds_buf_put(out, c->notes.text);
    ds_import__put_on(options, out);
    ds_import__put_params(c->params, options->decode ? 3 : 2, out);
    ds_model_put_import(&c->model, "m", NULL, out);
    ds_buf function = {0}, train = {0}, strategy = {0};
    ds_buf_printf(&function, "m.%s%s", ds_model_function(&c->model),
                  options->decode ? "_decode" : "");
    if (options->decode) {
        ds_buf_printf(&train, "dtype = %s\n  " TOKENS, c->dtype);
        put_decoding(c, options, &strategy);
    } else {
        ds_buf_printf(&train, "train { loss = none, optimizer = adamw, dtype = %s", c->dtype);
        ds_buf_put(&train, strcmp(c->dtype, "f32") == 0 ? " }" : ", master_dtype = f32 }");
        put_strategy(options, c->model.size[DS_MODEL_EXPERTS], &strategy);
    }
    const char *name = json_string_value(json_object_get(c->whole, "_name_or_path"));
    ds_import__put_scenario(options, name && *name ? ds_import__plain(arena, name) : NULL,
                            function.text, train.text, strategy.text, "batch", out);
    ds_buf_deinit(&strategy);
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
    ds_arena arena;
    ds_arena_init(&arena);
    ds_status status = load_json(text, n, &json, err);
    config c = {.json = json, .whole = json};
    if (status == DS_OK) status = find_type(&c, &arena, err);
    if (status == DS_OK) status = read_config(&c, options, err);
    if (status == DS_OK)
        status = ds_model_parameters(&c.model, c.params[SEQ].value,
                                     options->path ? options->path : "imported.dir", options->load,
                                     &parameters, err);
    c.model.decodes = options->decode;
    if (status == DS_OK) put_file(&c, options, parameters, &arena, out);
    ds_buf_deinit(&c.notes);
    ds_buf_deinit(&c.with);
    json_decref(json);
    ds_arena_deinit(&arena);
    return status;
}
