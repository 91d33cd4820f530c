/* The scenario's `train` and `strategy` blocks as numbers, with the defaults of knobs.def. */
#include "ir/strategy/strategy.h"

#include "ir/base/units.h"
#include "ir/core/devices.h"
#include "ir/strategy/internal.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- train ---- */

bool ds_scenario_trains(const ds_unit *unit) {
    const ds_attr *train = ds_scenario_find(unit, "", "train");
    if (!train) return false;
    return train->kind != DS_ATTR_WORD || strcmp(train->word, "off") != 0;
}

/* The scenario's own dtype, which is that of a model without training. */
static ds_status read_plain_dtype(const ds_binding *binding, ds_train *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, "", "dtype");
    const char *text = NULL;
    if (!attr) return DS_OK;
    if (out->on)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "the scenario trains: its dtype is a key of `train`, and this one is "
                            "that of models that do not train");
    DS_TRY(ds_scenario_text(binding, "", "dtype", &text, err));
    if (ds_dtype_parse(text, &out->dtype)) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, attr->loc, "dtype = %s is no dtype", text);
}

ds_status ds_train_read(const ds_binding *binding, ds_train *out, ds_error *err) {
    *out = (ds_train){.on = ds_scenario_trains(binding->unit)};
    DS_TRY(ds_knobs_read(binding, "train", out, err));
    DS_TRY(read_plain_dtype(binding, out, err));
    ds_presets_fill(binding, "train", out);
    return DS_OK;
}

/* "all", or names of products, one or a list. */
ds_status ds_knobs__read_lora_targets(const ds_binding *binding, const ds_knob *knob, void *record,
                                      ds_error *err) {
    ds_train *out = record;
    uint32_t n = ds_scenario_text_count(binding->unit, "train", knob->name);
    out->lora_names = DS_NEW_N(&binding->unit->arena, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const char *item;
        DS_TRY(ds_scenario_text_at(binding, "train", knob->name, i, &item, err));
        if (n > 1 || strcmp(item, "all") != 0) out->lora_names[out->n_lora_names++] = item;
    }
    out->lora_targets = out->n_lora_names ? DS_LORA_TARGETS_NAMES : DS_LORA_TARGETS_ALL;
    return DS_OK;
}

/* "512:0.8": tokens and a share; "512": a share of 1. */
static bool read_length(const char *text, ds_length *out) {
    char *end;
    errno = 0;
    long long tokens = strtoll(text, &end, 10);
    *out = (ds_length){tokens, 1};
    if (errno || end == text || tokens < 1 || tokens > INT64_C(1) << 40) return false;
    if (!*end) return true;
    const char *share = end + 1;
    out->share = *end == ':' ? strtod(share, &end) : 0;
    return end > share && !*end && out->share > 0 && out->share < 1e12;
}

ds_status ds_knobs__read_lengths(const ds_binding *binding, const ds_knob *knob, void *record,
                                 ds_error *err) {
    ds_train *out = record;
    uint32_t n = ds_scenario_text_count(binding->unit, "train", knob->name);
    ds_length *all = DS_NEW_N(&binding->unit->arena, ds_length, n + 1);
    const ds_attr *attr = ds_scenario_find(binding->unit, "train", knob->name);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *item;
        DS_TRY(ds_scenario_text_at(binding, "train", knob->name, i, &item, err));
        if (n == 1 && strcmp(item, "none") == 0) return DS_OK;
        if (!read_length(item, &all[i]))
            return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                                "train: lengths has \"%s\"; a length is \"512\", or \"512:0.8\" "
                                "with its share of the documents",
                                item);
        sum += all[i].share;
    }
    for (uint32_t i = 0; i < n; i++) all[i].share /= sum;
    out->documents = all;
    out->n_documents = n;
    out->lengths = n ? DS_LENGTHS_LIST : DS_LENGTHS_NONE;
    return DS_OK;
}

/* ---- strategy ---- */

static const char *const axes[] = {"pp", "dp", "cp", "tp"};
enum { N_AXES = 4, MAX_LESS = 1 << 16 };

/* The position of the word among `words`; n if it is none of them. */
static uint32_t word_index(const char *text, const char *const *words, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return i;
    return n;
}

static ds_loc loc_of(const ds_binding *binding, const char *name) {
    const ds_attr *attr = ds_scenario_find(binding->unit, "strategy", name);
    return attr ? attr->loc : DS_NOWHERE;
}

ds_loc ds_knobs__loc(const ds_binding *binding, const ds_knob *knob) {
    const ds_attr *attr = ds_scenario_find(binding->unit, knob->section, knob->name);
    return attr ? attr->loc : DS_NOWHERE;
}

/* What the strategy says; else the size that the scenario's mesh gives the axis; else 1. */
ds_status ds_knobs__read_degree(const ds_binding *binding, const ds_knob *knob, void *record,
                                ds_error *err) {
    const ds_mesh *mesh = ds_scenario_mesh(binding->unit);
    int64_t *out = (int64_t *)((char *)record + knob->offset);
    *out = 1;
    if (mesh && !ds_scenario_find(binding->unit, "strategy", knob->name)) {
        int64_t *sizes = DS_NEW_N(&binding->unit->arena, int64_t, mesh->n_axes + 1);
        DS_TRY(ds_mesh_axis_sizes(binding, mesh, sizes, err));
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (strcmp(mesh->axes[a].name, knob->name) == 0) *out = sizes[a];
    }
    return ds_scenario_int(binding, "strategy", knob->name, out, err);
}

/* "dp, pp cp tp": every axis once. */
ds_status ds_knobs__read_order(const ds_binding *binding, const ds_knob *knob, void *record,
                               ds_error *err) {
    ds_strategy *out = record;
    const char *text = knob->initial, *at;
    DS_TRY(ds_scenario_text(binding, "strategy", "order", &text, err));
    uint32_t n = 0, seen = 0;
    for (at = text + strspn(text, " ,"); *at && n < N_AXES; at += strspn(at, " ,")) {
        size_t length = strcspn(at, " ,");
        const char *name = ds_intern_n(&binding->unit->strings, at, length);
        uint32_t axis = word_index(name, axes, N_AXES);
        if (axis < N_AXES) seen |= 1u << axis;
        out->order[n++] = name;
        at += length;
    }
    if (n == N_AXES && seen == (1u << N_AXES) - 1 && !*at) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, "order"),
                        "strategy: order = \"%s\" must name each of pp, dp, cp and tp once", text);
}

/* The bit of a module of a layer; 0: the word is none. */
static uint32_t module_bit(const char *word) {
#define DS_X(name, text, bit)                                                                      \
    if (strcmp(word, text) == 0) return bit;
    DS_RECOMPUTE_MODULE_MAP(DS_X)
#undef DS_X
    return 0;
}

/* Modules and paths of a list; a word alone is a list of one module. */
static ds_status read_recompute_list(const ds_binding *binding, const ds_knob *knob,
                                     ds_strategy *out, ds_error *err) {
    uint32_t n = ds_scenario_text_count(binding->unit, "strategy", knob->name);
    out->recompute_ops = DS_NEW_N(&binding->unit->arena, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const char *item;
        DS_TRY(ds_scenario_text_at(binding, "strategy", knob->name, i, &item, err));
        uint32_t bit = module_bit(item);
        out->recompute_modules |= bit;
        if (!bit) out->recompute_ops[out->n_recompute_ops++] = item;
    }
    out->recompute = n ? DS_RECOMPUTE_OPS : DS_RECOMPUTE_NONE;
    return DS_OK;
}

/* A word, "every:K", or a list of paths and modules. */
ds_status ds_knobs__read_recompute(const ds_binding *binding, const ds_knob *knob, void *record,
                                   ds_error *err) {
    static const char *const words[] = {"none", "selective", "full"};
    ds_strategy *out = record;
    const ds_attr *attr = ds_scenario_find(binding->unit, "strategy", knob->name);
    const char *text = NULL;
    if (!attr) return DS_OK;
    if (attr->kind == DS_ATTR_LIST) return read_recompute_list(binding, knob, out, err);
    DS_TRY(ds_scenario_text(binding, "strategy", knob->name, &text, err));
    out->recompute_modules = module_bit(text);
    if (out->recompute_modules) {
        out->recompute = DS_RECOMPUTE_OPS;
        return DS_OK;
    }
    uint32_t word = word_index(text, words, 3);
    out->recompute = word < 3 ? (ds_recompute)word : DS_RECOMPUTE_EVERY;
    if (word < 3) return DS_OK;
    char *end;
    errno = 0;
    out->recompute_every = strncmp(text, "every:", 6) == 0 ? strtoll(text + 6, &end, 10) : 0;
    if (out->recompute_every > 0 && errno == 0 && *end == '\0') return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                        "strategy: recompute = \"%s\"; it is none, selective, full, \"every:K\" "
                        "with K >= 1 layers, or a list of modules (layernorm, moe_act, …) and "
                        "paths of operations",
                        text);
}

/* ---- recompute_layers ---- */

enum { MOST_LAYERS = 1000000 }; /* products of two such numbers are far from 2^63 */

/* A number from 1: "12". Stops at the first other character. */
static bool read_count(const char **at, int64_t *out) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return errno == 0 && *out > 0 && *out <= MOST_LAYERS;
}

/* "1/2", or a decimal up to 1: "0.25". */
static bool read_share(const char *text, int64_t *n, int64_t *of) {
    const char *at = text;
    char *end;
    if (strchr(text, '/'))
        return read_count(&at, n) && *at++ == '/' && read_count(&at, of) && !*at && *n <= *of;
    double share = strtod(text, &end);
    *of = MOST_LAYERS;
    if (end == text || *end || !(share > 0 && share <= 1)) return false;
    *n = (int64_t)(share * MOST_LAYERS + 0.5);
    return *n > 0;
}

/* "all", "first:N", "one_in:K" or "share:P". */
ds_status ds_knobs__read_recompute_layers(const ds_binding *binding, const ds_knob *knob,
                                          void *record, ds_error *err) {
    static const char *const words[] = {"all", "first:", "one_in:", "share:"};
    ds_strategy *out = record;
    const char *text = "all";
    uint32_t word = 3;
    out->recompute_n = out->recompute_of = 1;
    if (!ds_scenario_find(binding->unit, "strategy", knob->name)) return DS_OK;
    DS_TRY(ds_scenario_text(binding, "strategy", knob->name, &text, err));
    while (word && strncmp(text, words[word], strlen(words[word])) != 0) word--;
    const char *at = text + strlen(words[word]);
    bool known =
        word ? word == DS_RECOMPUTE_LAYERS_SHARE
                   ? read_share(at, &out->recompute_n, &out->recompute_of)
                   : read_count(&at, word == DS_RECOMPUTE_LAYERS_FIRST ? &out->recompute_n
                                                                       : &out->recompute_of) &&
                         !*at
             : strcmp(text, "all") == 0;
    out->recompute_layers = (ds_recompute_layers)word;
    if (known) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, ds_knobs__loc(binding, knob),
                        "strategy: recompute_layers = \"%s\"; it is all, \"first:N\" or "
                        "\"one_in:K\" with numbers of layers from 1, or \"share:P\" with a part "
                        "of the layers such as 1/2 or 0.25",
                        text);
}

bool ds_strategy_runs_again(const ds_strategy *s, int64_t turn) {
    int64_t n = 2 * s->recompute_n, of = s->recompute_of;
    switch (s->recompute_layers) {
    case DS_RECOMPUTE_LAYERS_FIRST:
        return turn < s->recompute_n;
    case DS_RECOMPUTE_LAYERS_ONE_IN:
        return (turn + 1) % of == 0;
    case DS_RECOMPUTE_LAYERS_SHARE: /* rounded half up */
        return ((turn + 1) * n + of) / (2 * of) > (turn * n + of) / (2 * of);
    default:
        return true;
    }
}

void ds_strategy_put_recompute_layers(const ds_strategy *s, ds_buf *out) {
    static const char *const words[] = {"all", "first:", "one_in:", "share:"};
    long long n = s->recompute_n, of = s->recompute_of;
    ds_buf_put(out, words[s->recompute_layers]);
    if (s->recompute_layers == DS_RECOMPUTE_LAYERS_FIRST) ds_buf_printf(out, "%lld", n);
    if (s->recompute_layers == DS_RECOMPUTE_LAYERS_ONE_IN) ds_buf_printf(out, "%lld", of);
    if (s->recompute_layers != DS_RECOMPUTE_LAYERS_SHARE) return;
    if (of == MOST_LAYERS)
        ds_buf_printf(out, "%g", (double)n / MOST_LAYERS);
    else
        ds_buf_printf(out, "%lld/%lld", n, of);
}

/* One or several of the words; none stands for nothing. */
ds_status ds_knobs__read_offload(const ds_binding *binding, const ds_knob *knob, void *record,
                                 ds_error *err) {
    static const char *const words[] = {"activations", "optimizer", "weights"};
    ds_strategy *out = record;
    uint32_t n = ds_scenario_text_count(binding->unit, "strategy", knob->name);
    for (uint32_t i = 0; i < n; i++) {
        const char *text;
        DS_TRY(ds_scenario_text_at(binding, "strategy", knob->name, i, &text, err));
        uint32_t word = word_index(text, words, 3);
        if (word < 3) out->offload |= 1u << word;
        if (word < 3 || strcmp(text, "none") == 0) continue;
        return ds_error_set(err, DS_ERR_VALUE, ds_knobs__loc(binding, knob),
                            "strategy: offload = %s; it is none, or a list of activations, "
                            "optimizer and weights",
                            text);
    }
    return DS_OK;
}

ds_status ds_knobs__read_stage_layers(const ds_binding *binding, const ds_knob *knob, void *record,
                                      ds_error *err) {
    ds_strategy *out = record;
    uint32_t n = ds_scenario_text_count(binding->unit, "strategy", knob->name);
    if (!n) return DS_OK;
    int64_t *layers = DS_NEW_N(&binding->unit->arena, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++)
        DS_TRY(ds_scenario_int_at(binding, "strategy", knob->name, i, &layers[i], err));
    out->stage_layers = layers;
    out->n_stage_layers = n;
    return DS_OK;
}

/* ---- unequal parts of a batch ---- */

/* dp_shares: a number for each replica, or `time`, which whoever simulates replaces by numbers. */
ds_status ds_knobs__read_shares(const ds_binding *binding, const ds_knob *knob, void *record,
                                ds_error *err) {
    ds_strategy *s = record;
    const ds_attr *attr = ds_scenario_find(binding->unit, "strategy", knob->name);
    s->dp_shares_sum = ds_strategy_replicas(s);
    if (!attr) return DS_OK;
    s->dp_shares_by_time = attr->kind != DS_ATTR_LIST;
    if (s->dp_shares_by_time) return DS_OK;
    uint32_t n = attr->n_items;
    if (n != s->dp_shares_sum)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "dp_shares has %u numbers for %s = %lld replicas", n,
                            s->stage_dp ? "stage_dp" : "dp", (long long)s->dp_shares_sum);
    int64_t *shares = DS_NEW_N(&binding->unit->arena, int64_t, n), divisor = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        DS_TRY(ds_scenario_int_at(binding, "strategy", knob->name, i, &shares[i], err));
        if (shares[i] < 1 || shares[i] > INT32_MAX)
            return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                                "dp_shares: replica %u has %lld; a part is a number from 1 to %d",
                                i, (long long)shares[i], INT32_MAX);
        divisor = ds_common_divisor(shares[i], divisor);
    }
    for (uint32_t i = 0; i < n; i++) sum += shares[i] /= divisor;
    if (sum == n) return DS_OK; /* equal parts */
    s->dp_shares = shares;
    s->dp_shares_sum = sum;
    return DS_OK;
}

/* ---- stages of several widths ---- */

static ds_status read_list(const ds_binding *binding, const char *name, uint32_t n, int64_t *out,
                           ds_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        out[i] = 1;
        if (!ds_scenario_find(binding->unit, "strategy", name)) continue;
        DS_TRY(ds_scenario_int_at(binding, "strategy", name, i, &out[i], err));
        if (out[i] >= 1 && out[i] <= INT32_MAX) continue;
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, name),
                            "strategy: %s: stage %u has %lld; each stage needs at least 1", name, i,
                            (long long)out[i]);
    }
    return DS_OK;
}

/* Both lists have a number for each stage, and say all that there is to say about width. */
static ds_status check_widths(const ds_binding *binding, const ds_strategy *s, uint32_t n_dp,
                              uint32_t n_tp, ds_error *err) {
    static const char *const others[] = {"dp", "tp"};
    const char *name = n_dp ? "stage_dp" : "stage_tp";
    if (n_dp && n_tp && n_dp != n_tp)
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, "stage_tp"),
                            "stage_dp has %u stages, stage_tp has %u", n_dp, n_tp);
    for (uint32_t i = 0; i < 2; i++) {
        int64_t degree = i ? s->tp : s->dp;
        if (!ds_scenario_find(binding->unit, "strategy", others[i]) || degree == 1) continue;
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, others[i]),
                            "%s = %lld beside %s, which says how wide each stage is: leave it out",
                            others[i], (long long)degree, name);
    }
    if (ds_scenario_find(binding->unit, "strategy", "pp") && s->pp != (n_dp ? n_dp : n_tp))
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, name),
                            "%s has %u stages, and pp = %lld", name, n_dp ? n_dp : n_tp,
                            (long long)s->pp);
    return DS_OK;
}

/* Devices of all stages; no more than are counted. */
static ds_status check_sum(const ds_binding *binding, const int64_t *dp, const int64_t *tp,
                           uint32_t n, const char *name, ds_error *err) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += dp[i] * tp[i]; /* at most 2^62 more than 2^31 */
        if (sum <= INT32_MAX) continue;
        return ds_error_set(err, DS_ERR_LIMIT, loc_of(binding, name),
                            "strategy: stage %u has %lld * %lld devices: with it all stages have "
                            "more than 2^31",
                            i, (long long)dp[i], (long long)tp[i]);
    }
    return DS_OK;
}

/* stage_dp, stage_tp. A list that is left out is all 1; lists that are all alike are dp and tp. */
ds_status ds_knobs__read_widths(const ds_binding *binding, const ds_knob *knob, void *record,
                                ds_error *err) {
    ds_strategy *s = record;
    (void)knob;
    uint32_t n_dp = ds_scenario_text_count(binding->unit, "strategy", "stage_dp");
    uint32_t n_tp = ds_scenario_text_count(binding->unit, "strategy", "stage_tp");
    uint32_t n = n_dp ? n_dp : n_tp;
    bool alike = true;
    if (!n) return DS_OK;
    DS_TRY(check_widths(binding, s, n_dp, n_tp, err));
    int64_t *dp = DS_NEW_N(&binding->unit->arena, int64_t, n);
    int64_t *tp = DS_NEW_N(&binding->unit->arena, int64_t, n);
    DS_TRY(read_list(binding, "stage_dp", n, dp, err));
    DS_TRY(read_list(binding, "stage_tp", n, tp, err));
    DS_TRY(check_sum(binding, dp, tp, n, n_dp ? "stage_dp" : "stage_tp", err));
    for (uint32_t i = 1; i < n; i++) alike = alike && dp[i] == dp[0] && tp[i] == tp[0];
    s->pp = n;
    s->dp = alike ? dp[0] : 1;
    s->tp = alike ? tp[0] : 1;
    s->stage_dp = alike ? NULL : dp;
    s->stage_tp = alike ? NULL : tp;
    return DS_OK;
}

/* stage_tp, which is read with stage_dp. */
ds_status ds_knobs__read_elsewhere(const ds_binding *binding, const ds_knob *knob, void *record,
                                   ds_error *err) {
    (void)binding, (void)knob, (void)record, (void)err;
    return DS_OK;
}

/* ---- combinations ---- */

/* The product of the degrees has 31 bits, and so has the product of any of the degrees. */
static ds_status check_world(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    int64_t world;
    if (ds_mul_i64(s->dp, s->tp, &world) && ds_mul_i64(world, s->pp, &world) &&
        ds_mul_i64(world, s->cp, &world) && world <= INT32_MAX)
        return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, loc_of(binding, "dp"),
                        "strategy: pp * dp * cp * tp = %lld * %lld * %lld * %lld devices; at most "
                        "2^31 - 1 are supported",
                        (long long)s->pp, (long long)s->dp, (long long)s->cp, (long long)s->tp);
}

bool ds_strategy_ep_has_tp(const ds_strategy *s) {
    return s->sp && s->tp > 1 && s->ep == s->dp * s->cp * s->tp;
}

static ds_status check_degrees(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    DS_TRY(check_world(binding, s, err));
    int64_t groups = s->dp * s->cp;
    if (groups % s->ep != 0 && !ds_strategy_ep_has_tp(s))
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, "ep"),
                            "ep = %lld does not divide dp * cp = %lld", (long long)s->ep,
                            (long long)groups);
    if (s->dp % s->zero_group != 0)
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, "zero_group"),
                            "zero_group = %lld does not divide dp = %lld", (long long)s->zero_group,
                            (long long)s->dp);
    if (s->zero < 0 || s->zero > 3)
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, "zero"),
                            "zero = %lld; it is one of 0, 1, 2, 3", (long long)s->zero);
    if (s->first_stage_less > MAX_LESS || s->last_stage_less > MAX_LESS)
        return ds_error_set(err, DS_ERR_VALUE,
                            loc_of(binding, s->first_stage_less > MAX_LESS ? "first_stage_less"
                                                                           : "last_stage_less"),
                            "embedding and loss count as %d layers at most", MAX_LESS);
    if (s->prefetch > DS_MAX_PREFETCH)
        return ds_error_set(err, DS_ERR_VALUE, loc_of(binding, "prefetch"),
                            "prefetch = %lld; at most %d layers can be gathered ahead",
                            (long long)s->prefetch, DS_MAX_PREFETCH);
    return DS_OK;
}

static ds_status refuse(const ds_binding *binding, const char *knob, const char *why,
                        ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc_of(binding, knob), "%s", why);
}

static ds_status check_one_stage(const ds_binding *binding, const ds_strategy *strategy,
                                 ds_error *err) {
    bool one = strcmp(strategy->schedule, "1f1b") == 0;
    bool all = strcmp(strategy->schedule, "gpipe") == 0 && strategy->microbatches == 1;
    if (strategy->virtual_stages > 1)
        return refuse(binding, "virtual_stages",
                      "virtual stages are the chunks of a pipeline's stages: they need pp > 1",
                      err);
    if (strategy->n_stage_layers)
        return refuse(binding, "stage_layers",
                      "stage_layers says where a pipeline is cut: it needs pp > 1", err);
    if (one || all) return DS_OK;
    return refuse(binding, "schedule",
                  "schedules order the work of several stages (pp > 1); one stage runs its "
                  "microbatches one after another, as \"1f1b\" does, and with one microbatch "
                  "\"gpipe\" is the same",
                  err);
}

static ds_status check_offload(const ds_binding *binding, const ds_strategy *strategy,
                               ds_error *err) {
    const char *optimizer = "none";
    bool train = ds_scenario_trains(binding->unit);
    if (train) DS_TRY(ds_scenario_text(binding, "train", "optimizer", &optimizer, err));
    if (strategy->offload & DS_OFFLOAD_ACTIVATIONS && !train)
        return refuse(binding, "offload",
                      "offload = activations: without training nothing is kept for a backward pass",
                      err);
    if (strategy->offload & DS_OFFLOAD_OPTIMIZER && strcmp(optimizer, "none") == 0)
        return refuse(binding, "offload",
                      "offload = optimizer: without an optimizer there are no states", err);
    if (!(strategy->offload_fraction > 0 && strategy->offload_fraction <= 1))
        return refuse(binding, "offload_fraction",
                      "offload_fraction is a part of the states: more than 0, 1 at most", err);
    if (strategy->offload & (DS_OFFLOAD_ACTIVATIONS | DS_OFFLOAD_WEIGHTS) && strategy->zero == 3 &&
        strategy->reshard_after == DS_RESHARD_NEVER)
        return refuse(
            binding, "offload",
            "weights that stay gathered (reshard_after_forward = never) go with offload = "
            "optimizer alone: layers that wait for hosts gather their own weights",
            err);
    return DS_OK;
}

/* What has no form of unequal parts of a batch. */
static ds_status check_shares(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    if (!s->dp_shares && !s->dp_shares_by_time) return DS_OK;
    for (int64_t i = 1; s->stage_dp && i < s->pp; i++)
        if (s->stage_dp[i] != s->stage_dp[0])
            return refuse(binding, "dp_shares",
                          "dp_shares has a part for each replica, and stages have unlike numbers "
                          "of them (stage_dp): say shares of groups with the stages' operations",
                          err);
    if (s->stage_dp && s->dp_shares_by_time)
        return refuse(binding, "dp_shares",
                      "dp_shares = time is for stages of one width: give numbers beside stage_tp",
                      err);
    if (s->ep > 1)
        return refuse(binding, "ep", "experts are exchanged in equal parts: with dp_shares, ep = 1",
                      err);
    if (s->zero && s->zero_group < s->dp)
        return refuse(binding, "zero_group",
                      "with dp_shares all replicas share the states out: leave zero_group out",
                      err);
    if (s->zero_uneven)
        return refuse(binding, "zero_uneven",
                      "unequal parts of a batch (dp_shares) and of states (zero_uneven) cannot be "
                      "told apart: leave one of them out",
                      err);
    return DS_OK;
}

/* What stages of several widths have no form of yet. */
static ds_status check_widths_alone(const ds_binding *binding, const ds_strategy *s,
                                    ds_error *err) {
    if (!s->stage_dp) return DS_OK;
    if (s->cp > 1)
        return refuse(binding, "cp",
                      "stages of several widths (stage_dp, stage_tp) split no sequences: cp = 1",
                      err);
    if (s->ep > 1)
        return refuse(binding, "ep",
                      "stages of several widths (stage_dp, stage_tp) keep experts whole: ep = 1",
                      err);
    if (ds_scenario_find(binding->unit, "strategy", "zero_group"))
        return refuse(binding, "zero_group",
                      "with stages of several widths each stage shares its states out over all of "
                      "its own replicas: leave zero_group out",
                      err);
    if (strcmp(s->order[0], axes[0]) != 0)
        return refuse(binding, "order",
                      "stages of several widths (stage_dp, stage_tp) take the devices one after "
                      "another: order begins with pp",
                      err);
    if (s->scatter_gather)
        return refuse(binding, "scatter_gather",
                      "between stages of several widths a reshard says which part goes where: "
                      "leave scatter_gather out",
                      err);
    if (s->offload)
        return refuse(binding, "offload", "offload is for stages that are equally wide (dp and tp)",
                      err);
    return DS_OK;
}

/* Without sequence parallelism nothing is gathered in front of a product. */
static ds_status check_tp_overlap(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    if (s->tp_overlap == DS_TP_OVERLAP_NONE) return DS_OK;
    if (s->stage_dp)
        return refuse(binding, "tp_overlap",
                      "tp_overlap is for stages that are equally wide (dp and tp)", err);
    if (s->tp == 1)
        return refuse(binding, "tp_overlap",
                      "tp_overlap hides what shards of a layer exchange: it needs tp > 1", err);
    if (s->sp) return DS_OK;
    return refuse(binding, "tp_overlap",
                  "tp_overlap cuts the gathers and scatters around products into chunks, and only "
                  "sequence parallelism has them: it needs sp = true",
                  err);
}

/* Experts over dp and a part of cp, or over tp too, are exchanged axis by axis. */
static ds_status check_dispatch(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    if (s->ep_dispatch == DS_EP_ALL_TO_ALL || s->ep == 1 || s->dp % s->ep == 0) return DS_OK;
    return ds_error_set(
        err, DS_ERR_UNSUPPORTED, loc_of(binding, "ep_dispatch"),
        "ep_dispatch = deepep sends a token in one exchange, and experts over dp and "
        "cp or tp are exchanged over one after the other: ep = %lld must divide "
        "dp = %lld",
        (long long)s->ep, (long long)s->dp);
}

/* Microbatches in flight share the weights that stay gathered. */
static ds_status check_gathered(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    if (s->zero != 3 || s->reshard_after != DS_RESHARD_NEVER || s->pp == 1) return DS_OK;
    if (ds_strategy_gathers_once(s)) return DS_OK;
    return refuse(binding, "reshard_after_forward",
                  "reshard_after_forward = never in a pipeline: several microbatches read the "
                  "gathered weights, and every backward pass would free them: say no_sync = true",
                  err);
}

ds_status ds_strategy_check(const ds_binding *binding, const ds_strategy *strategy, ds_error *err) {
    DS_TRY(check_offload(binding, strategy, err));
    DS_TRY(check_widths_alone(binding, strategy, err));
    DS_TRY(check_shares(binding, strategy, err));
    DS_TRY(check_tp_overlap(binding, strategy, err));
    DS_TRY(check_dispatch(binding, strategy, err));
    DS_TRY(check_gathered(binding, strategy, err));
    if (strategy->pp == 1) return check_one_stage(binding, strategy, err);
    if (ds_scenario_trains(binding->unit)) return DS_OK;
    return ds_strategy__check_turns(binding, strategy, err);
}

static ds_status set_bucket(const ds_binding *binding, ds_strategy *out, ds_error *err) {
    ds_train train;
    if (!ds_scenario_trains(binding->unit)) return DS_OK;
    DS_TRY(ds_train_read(binding, &train, err));
    int64_t bytes = ds_preset_bucket_bytes(binding, &train, out);
    if (bytes) out->bucket_bytes = bytes;
    return DS_OK;
}

ds_status ds_strategy_read(const ds_binding *binding, ds_strategy *out, ds_error *err) {
    *out = (ds_strategy){.recompute = DS_RECOMPUTE_NONE};
    DS_TRY(ds_knobs_read(binding, "strategy", out, err));
    ds_presets_fill(binding, "strategy", out);
    DS_TRY(check_degrees(binding, out, err));
    DS_TRY(set_bucket(binding, out, err));
    bool stays = out->pp > 1 && !(out->offload & (DS_OFFLOAD_ACTIVATIONS | DS_OFFLOAD_WEIGHTS));
    if (out->reshard_after == DS_RESHARD_DEFAULT)
        out->reshard_after = stays ? DS_RESHARD_NEVER : DS_RESHARD_LAYERS;
    if (out->reshard_after == DS_RESHARD_ROOT && out->pp > 1)
        out->reshard_after = DS_RESHARD_LAYERS;
    out->zero_uneven = out->zero_uneven && out->zero; /* passes ask whether parts may be unequal */
    return DS_OK;
}
