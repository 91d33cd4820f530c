/* Which knobs do nothing, and which values the ways of search/compose know.
 *
 * A line's `needs` is a list of words, each a choice of alternatives between |: a knob of the
 * section that has another value than its default, or one value, or a fact of the model (@tp,
 * training, rec). A knob is idle if some word of knobs alone has no alternative that holds. Warnings
 * look at facts too. */
#include "ir/core/rec.h"
#include "ir/strategy/internal.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/tokens.h"

#include <string.h>

/* ---- words ---- */

bool ds_knobs__next_word(const char **at, const char **word, size_t *n) {
    *word = *at + strspn(*at, " ");
    *n = strcspn(*word, " ");
    *at = *word + *n;
    return *n > 0;
}

bool ds_knobs__is_word(const char *word, size_t n, const char *text) {
    return strlen(text) == n && memcmp(word, text, n) == 0;
}

bool ds_knobs__has_word(const char *words, const char *text) {
    const char *word;
    for (size_t n; ds_knobs__next_word(&words, &word, &n);)
        if (ds_knobs__is_word(word, n, text)) return true;
    return false;
}

/* ---- needs ---- */

/* As the field of a record prints, so that "25 MB" and "25000000 B" are the same. */
static bool is_default(const ds_knob *knob, const void *record) {
    union {
        ds_train train;
        ds_strategy strategy;
    } other;
    ds_buf is = {0}, initially = {0};
    memcpy(&other, record,
           strcmp(knob->section, "train") == 0 ? sizeof other.train : sizeof other.strategy);
    ds_knob_print(knob, record, &is);
    ds_knob_set(knob, &other, knob->initial);
    if (knob->kind == DS_KNOB_AXES)
        ds_buf_put(&initially, knob->initial);
    else
        ds_knob_print(knob, &other, &initially);
    bool same = strcmp(is.text, initially.text) == 0;
    ds_buf_deinit(&is);
    ds_buf_deinit(&initially);
    return same;
}

/* "zero=3": the knob, and what follows the equals sign (NULL: nothing); "@tp": no knob. */
typedef struct alternative {
    const ds_knob *knob;
    const char *value;
    size_t value_n;
    const char *fact;
    size_t fact_n;
} alternative;

static bool next_alternative(const char *section, const char **at, const char *end,
                             alternative *out) {
    if (*at >= end) return false;
    const char *word = *at;
    size_t n = 0, name_n = 0;
    while (word + n < end && word[n] != '|') n++;
    while (name_n < n && word[name_n] != '=') name_n++;
    *at = word + n + (word + n < end);
    *out = (alternative){.fact = word, .fact_n = n};
    uint32_t n_knobs;
    const ds_knob *knobs = ds_scenario_knobs(&n_knobs);
    for (uint32_t i = 0; i < n_knobs && !out->knob; i++)
        if (strcmp(knobs[i].section, section) == 0 &&
            ds_knobs__is_word(word, name_n, knobs[i].name))
            out->knob = &knobs[i];
    if (out->knob && name_n < n) {
        out->value = word + name_n + 1;
        out->value_n = n - name_n - 1;
    }
    return true;
}

static bool knob_holds(const alternative *a, const void *record) {
    if (!a->value) return !is_default(a->knob, record);
    ds_buf text = {0};
    ds_knob_print(a->knob, record, &text);
    bool same = ds_knobs__is_word(a->value, a->value_n, text.text);
    ds_buf_deinit(&text);
    return same;
}

/* ---- which values are known ---- */

/* Has no alternative of knobs a hope? One with a fact may hold. */
static bool word_fails(const char *section, const char *word, size_t n, const void *record) {
    const char *at = word;
    alternative a;
    while (next_alternative(section, &at, word + n, &a))
        if (!a.knob || knob_holds(&a, record)) return false;
    return true;
}

/* Does the knob do nothing, since what it belongs to is not there? */
static bool is_idle(const ds_knob *knob, const void *record) {
    const char *words = knob->needs, *word;
    for (size_t n; words && !knob->without && ds_knobs__next_word(&words, &word, &n);)
        if (word_fails(knob->section, word, n, record)) return true;
    return false;
}

static bool is_known(const ds_knob *knob, const void *record, ds_way way) {
    const char *values = knob->ways[way];
    if (values && *values == '*') return true;
    if (is_idle(knob, record)) return true;
    if (!values) return is_default(knob, record);
    ds_buf text = {0};
    ds_knob_print(knob, record, &text);
    bool known = ds_knobs__has_word(values, text.text);
    ds_buf_deinit(&text);
    return known;
}

const ds_knob *ds_knobs_unknown(const ds_binding *binding, const ds_train *train,
                                const ds_strategy *strategy, ds_way way) {
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        const ds_knob *knob = &knobs[i];
        const void *record = strcmp(knob->section, "train") == 0 ? (const void *)train : strategy;
        bool known = knob->bytes ? is_known(knob, record, way)
                                 : knob->ways[way] ||
                                       !ds_scenario_find(binding->unit, knob->section, knob->name);
        if (!known) return knob;
    }
    return NULL;
}

/* ---- facts of the model ---- */

/* Axes that some dim of the model is marked with; `seen` has the functions that were visited. */
typedef struct marks {
    DS_VEC(const char *) axes; /* interned */
    ds_map seen;
    ds_arena arena;
} marks;

static void mark(marks *m, const ds_type *type) {
    for (uint32_t d = 0; type && d < type->rank; d++)
        for (uint32_t i = 0; i < type->dims[d].n_splits; i++) {
            const char *axis = type->dims[d].splits[i].axis;
            if (ds_map_find(&m->seen, DS_KEY(axis))) continue;
            ds_map_put(&m->seen, DS_KEY(axis), 1);
            DS_PUSH(&m->arena, &m->axes, axis);
        }
}

static void mark_func(marks *m, const ds_func *func);

static void mark_calls(marks *m, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) mark_calls(m, op->body);
        if (op->code == DS_OP_CALL && op->callee) mark_func(m, op->callee);
    }
}

static void mark_func(marks *m, const ds_func *func) {
    if (ds_map_find(&m->seen, DS_KEY(func))) return;
    ds_map_put(&m->seen, DS_KEY(func), 1);
    for (uint32_t i = 0; i < func->values.n; i++) mark(m, func->values.at[i].type);
    for (uint32_t i = 0; i < func->n_results; i++) mark(m, func->results[i]);
    mark_calls(m, &func->body);
}

/* ---- warnings ---- */

typedef struct warner {
    const ds_binding *binding;
    const ds_knobs_varying *varying;
    const ds_func *model;
    const ds_train *train;
    const ds_strategy *strategy;
    marks marks;
    ds_diags *out;
} warner;

static bool varies(const warner *w, const ds_knob *knob, ds_loc *loc) {
    ds_loc unused;
    return w->varying && w->varying->varies(w->varying->context, knob, loc ? loc : &unused);
}

static const void *record_of(const warner *w, const ds_knob *knob) {
    return strcmp(knob->section, "train") == 0 ? (const void *)w->train : w->strategy;
}

static bool fact_holds(const warner *w, const alternative *a) {
    if (ds_knobs__is_word(a->fact, a->fact_n, "rec")) return ds_rec_in(w->model, true) != NULL;
    if (*a->fact != '@') return w->train->on;
    if (ds_strategy_places(w->strategy)) return true;
    for (uint32_t i = 0; i < w->marks.axes.n; i++)
        if (ds_knobs__is_word(a->fact + 1, a->fact_n - 1, w->marks.axes.at[i])) return true;
    return false;
}

/* Appends why the alternative does not hold; a list that the scenario does not say is not named. */
static void put_failure(const warner *w, const alternative *a, ds_buf *out) {
    const char *and = out->n ? " and " : "";
    if (!a->knob && *a->fact == '@') {
        ds_buf_printf(out, "%sno dim of @%s is marked %.*s", and, w->model->name, (int)a->fact_n,
                      a->fact);
        return;
    }
    if (!a->knob && ds_knobs__is_word(a->fact, a->fact_n, "rec")) {
        ds_buf_printf(out, "%s@%s has no rec", and, w->model->name);
        return;
    }
    if (!a->knob) {
        ds_buf_printf(out, "%sthe scenario does not train", and);
        return;
    }
    ds_buf value = {0}, pair = {0};
    ds_knob_print(a->knob, record_of(w, a->knob), &value);
    ds_buf_printf(&pair, "%s = %s", a->knob->name, value.text);
    bool said = out->n && strstr(out->text, pair.text);
    if (*value.text && !said) ds_buf_printf(out, "%s%s", and, pair.text);
    ds_buf_deinit(&value);
    ds_buf_deinit(&pair);
}

/* Does the word fail whatever the values of knobs that vary are? Then `why` says the reason. */
static bool is_unmet(const warner *w, const char *section, const char *word, size_t n,
                     ds_buf *why) {
    const char *at = word;
    alternative a;
    why->n = 0;
    while (next_alternative(section, &at, word + n, &a)) {
        bool holds = a.knob ? varies(w, a.knob, NULL) || knob_holds(&a, record_of(w, a.knob))
                            : fact_holds(w, &a);
        if (holds) return false;
        put_failure(w, &a, why);
    }
    return why->n > 0;
}

/* A real in as many digits as people write. */
static void put_value(const ds_knob *knob, const void *record, ds_buf *out) {
    if (knob->kind == DS_KNOB_REAL)
        ds_buf_printf(out, "%.9g", *(const double *)((const char *)record + knob->offset));
    else
        ds_knob_print(knob, record, out);
}

static void check_knob(const warner *w, const ds_knob *knob) {
    const ds_attr *attr = ds_scenario_find(w->binding->unit, knob->section, knob->name);
    const char *words = knob->needs, *word, *does = knob->without ? knob->without : "does nothing";
    ds_loc loc = attr ? attr->loc : DS_NOWHERE;
    ds_buf why = {0}, value = {0};
    if (!words || !knob->bytes) return;
    bool dim = varies(w, knob, &loc);
    if (!dim && (!attr || is_default(knob, record_of(w, knob)))) return;
    put_value(knob, record_of(w, knob), &value);
    for (size_t n; ds_knobs__next_word(&words, &word, &n);) {
        if (!is_unmet(w, knob->section, word, n, &why)) continue;
        if (dim)
            ds_diags_add(w->out, DS_SEV_WARNING, DS_OK, loc, NULL,
                         "'%s' varies, and every value of '%s' %s: %s", knob->name, knob->name,
                         does, why.text);
        else
            ds_diags_add(w->out, DS_SEV_WARNING, DS_OK, loc, NULL, "%s = %s %s: %s", knob->name,
                         value.text, does, why.text);
        break;
    }
    ds_buf_deinit(&value);
    ds_buf_deinit(&why);
}

/* Turns of the loops that stand in no other, which are layers; −1: too many, or not known. */
static int64_t count_layers(const warner *w, const ds_block *block) {
    enum { MOST = 100000 };
    ds_env env = ds_binding_env(w->binding, NULL);
    int64_t all = 0, lo, hi;
    for (uint32_t i = 0; i < block->n_ops && all >= 0; i++) {
        const ds_op *op = block->ops[i];
        int64_t n = 0;
        if (op->code == DS_OP_CALL && op->callee) n = count_layers(w, &op->callee->body);
        if (op->code == DS_OP_FOR)
            n = ds_expr_eval_int(&env, op->lo, op->loc, &lo, NULL) == DS_OK &&
                        ds_expr_eval_int(&env, op->hi, op->loc, &hi, NULL) == DS_OK &&
                        lo >= -MOST && lo <= MOST && hi <= MOST
                    ? (hi > lo ? hi - lo : 0)
                    : -1;
        all = n < 0 || all + n > MOST ? -1 : all + n;
    }
    return all;
}

/* Fewer layers than `recompute_layers` needs for the first layer that runs again. Chunks of a
 * pipeline count layers from their own first, so the model as a whole has the most. */
static void check_layers(const warner *w) {
    const ds_attr *attr = ds_scenario_find(w->binding->unit, "strategy", "recompute_layers");
    if (w->varying || !attr || !w->train->on || w->strategy->recompute == DS_RECOMPUTE_NONE) return;
    int64_t n = count_layers(w, &w->model->body), turn = 0;
    while (turn < n && !ds_strategy_runs_again(w->strategy, turn)) turn++;
    if (n < 1 || turn < n) return;
    ds_buf value = {0};
    ds_strategy_put_recompute_layers(w->strategy, &value);
    ds_diags_add(w->out, DS_SEV_WARNING, DS_OK, attr->loc, NULL,
                 "recompute_layers = %s does nothing: @%s has %lld layer%s", value.text,
                 w->model->name, (long long)n, n == 1 ? "" : "s");
    ds_buf_deinit(&value);
}

/* What a rec's knobs say that the scenario has no use for. */
static void check_rec(const warner *w) {
    const ds_attr *stores = ds_scenario_find(w->binding->unit, "strategy", "rec_stores");
    const ds_attr *prefill = ds_scenario_find(w->binding->unit, "strategy", "prefill");
    ds_tokens tokens;
    if (w->varying || !ds_rec_in(w->model, true)) return;
    ds_rec_stores kind = w->strategy->rec_stores;
    if (stores && w->train->on && (kind == DS_REC_FUNCTIONAL || kind == DS_REC_HOST))
        ds_diags_add(w->out, DS_SEV_WARNING, DS_OK, stores->loc, NULL,
                     "rec_stores = %s does nothing: the scenario trains",
                     kind == DS_REC_HOST ? "host" : "functional");
    if (!prefill || w->strategy->prefill != DS_PREFILL_VECTOR ||
        ds_tokens_read(w->binding, &tokens, NULL) != DS_OK || !tokens.is_given)
        return;
    if (tokens.prompt - tokens.lo == 1)
        ds_diags_add(w->out, DS_SEV_WARNING, DS_OK, prefill->loc, NULL,
                     "prefill = vector does nothing: the prompt has one turn");
}

/* Of a scenario, or of the job that has taken its place. */
static void warn_scenario(const ds_binding *binding, const ds_knobs_varying *varying,
                          ds_diags *out) {
    ds_train train = {.on = false};
    ds_strategy strategy = {.recompute = DS_RECOMPUTE_NONE};
    warner w = {.binding = binding,
                .varying = varying,
                .model = ds_scenario_model(binding->unit),
                .train = &train,
                .strategy = &strategy,
                .out = out};
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    if (!w.model || ds_train_read(binding, &train, NULL) != DS_OK ||
        ds_knobs_read(binding, "strategy", &strategy, NULL) != DS_OK)
        return;
    ds_presets_fill(binding, "strategy", &strategy);
    ds_arena_init(&w.marks.arena);
    ds_map_init(&w.marks.seen);
    mark_func(&w.marks, w.model);
    for (uint32_t i = 0; i < n; i++) check_knob(&w, &knobs[i]);
    check_layers(&w);
    check_rec(&w);
    ds_map_deinit(&w.marks.seen);
    ds_arena_deinit(&w.marks.arena);
}

void ds_knobs_warn(const ds_binding *binding, const ds_knobs_varying *varying, ds_diags *out) {
    ds_unit *unit = binding->unit;
    uint32_t n = ds_scenario_n_jobs(unit);
    if (!n) warn_scenario(binding, varying, out);
    for (uint32_t j = 0; j < n; j++) {
        ds_scenario all = *ds_unit_scenario(unit), job = ds_scenario_of_job(unit, j);
        ds_scenario_restore(unit, &job);
        warn_scenario(binding, varying, out);
        ds_scenario_restore(unit, &all);
    }
}
