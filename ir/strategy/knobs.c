/* The table, and what is read from and into records by its lines. */
#include "ir/strategy/knobs.h"

#include "ir/strategy/internal.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/terms.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

#define DTYPES              "f64 f32 tf32 bf16 f16 f8e4m3 f8e5m2 f4e2m1"
#define DS_X(id, name, doc) " " name
#define TERMS               "none" DS_TERM_MAP(DS_X)
#define SIZE(what)          .size = DS_SIZE_##what
#define ANY                 "*"
#define NONE                NULL
#define WAYS(sibling, template, exact, fewer)                                                      \
    .ways = {[DS_WAY_SIBLING] = sibling,                                                           \
             [DS_WAY_TEMPLATE] = template,                                                         \
             [DS_WAY_EXACT] = exact,                                                               \
             [DS_WAY_FEWER] = fewer}
#define ALIKE WAYS(ANY, ANY, ANY, ANY)
#define READ  .bounds = DS_BOUNDS_READ
#define HOLD  .bounds = DS_BOUNDS_HOLD

static const ds_knob knobs[] = {
#define KEY(in, called, of, ...)                                                                   \
    {.section = in, .name = #called, .kind = DS_KNOB_##of, __VA_ARGS__},
#define KNOB(in, called, of, field, pass, text, ...)                                               \
    {.section = #in,                                                                               \
     .name = #called,                                                                              \
     .kind = DS_KNOB_##of,                                                                         \
     .offset = offsetof(ds_##in, field),                                                           \
     .bytes = sizeof((ds_##in *)0)->field,                                                         \
     .first = DS_PASS_##pass,                                                                      \
     .initial = text,                                                                              \
     __VA_ARGS__},
#include "ir/strategy/knobs.def"
};
#undef DS_X

#define N_KNOBS ((uint32_t)(sizeof knobs / sizeof *knobs))

const ds_knob *ds_scenario_knobs(uint32_t *n) {
    *n = N_KNOBS;
    return knobs;
}

const ds_knob *ds_scenario_knob(const char *section, const char *name) {
    for (uint32_t i = 0; i < N_KNOBS; i++)
        if (strcmp(knobs[i].name, name) == 0 && strcmp(knobs[i].section, section) == 0)
            return &knobs[i];
    return NULL;
}

const char *ds_knob_choices(const ds_knob *knob) {
    return knob->kind == DS_KNOB_DTYPE ? DTYPES : knob->choices;
}

bool ds_knob_is_of_text(const ds_knob *knob) {
    return knob->kind == DS_KNOB_TEXT || knob->kind == DS_KNOB_DTYPE ||
           knob->kind == DS_KNOB_AXES || knob->kind == DS_KNOB_TEXTS ||
           knob->kind == DS_KNOB_FLAGS || knob->kind == DS_KNOB_INTS ||
           knob->kind == DS_KNOB_SCHEDULE;
}

/* ---- words ---- */

/* The place of the text among the words; their number if the text is none of them. */
static uint32_t word_index(const char *words, const char *text) {
    const char *word;
    uint32_t i = 0;
    for (size_t n; ds_knobs__next_word(&words, &word, &n); i++)
        if (ds_knobs__is_word(word, n, text)) break;
    return i;
}

/* ---- fields ---- */

static void set_quantity(int64_t *out, char dimension, const char *text) {
    char *end;
    double value = strtod(text, &end);
    ds_unit_id unit = DS_UNIT_NONE;
    end += strspn(end, " ");
    if (ds_unit_parse(end, strlen(end), &unit)) value *= ds_unit_scale(unit);
    *out = (int64_t)(dimension == 'T' ? value * 1e12 : value);
}

static void set_int(const ds_knob *knob, void *record, const char *text) {
    const ds_knob *other = ds_scenario_knob(knob->section, text);
    int64_t value = strtoll(text, NULL, 10);
    if (other) memcpy(&value, (char *)record + other->offset, sizeof value);
    memcpy((char *)record + knob->offset, &value, sizeof value);
}

void ds_knob_set(const ds_knob *knob, void *record, const char *text) {
    void *field = (char *)record + knob->offset;
    uint32_t word = knob->choices ? word_index(knob->choices, text) : 0;
    switch (knob->kind) {
    case DS_KNOB_INT:
        set_int(knob, record, text);
        break;
    case DS_KNOB_REAL:
        *(double *)field = *text ? strtod(text, NULL) : NAN;
        break;
    case DS_KNOB_BOOL:
        *(bool *)field = strcmp(text, "true") == 0 || strcmp(text, "on") == 0;
        break;
    case DS_KNOB_DTYPE:
        if (!ds_dtype_parse(text, field)) *(ds_dtype *)field = DS_DTYPE_COUNT;
        break;
    case DS_KNOB_TEXT:
    case DS_KNOB_TEXTS:
    case DS_KNOB_FLAGS:
        memcpy(field, &word, sizeof word);
        break;
    case DS_KNOB_AXES: /* no text of the caller's */
        break;
    case DS_KNOB_QUANTITY:
        set_quantity(field, knob->dimension, text);
        break;
    case DS_KNOB_SCHEDULE:
        *(const char **)field = text;
        break;
    default:
        memset(field, 0, knob->bytes);
    }
}

static void print_choice(const ds_knob *knob, uint32_t at, ds_buf *out) {
    const char *words = knob->choices, *word = "";
    size_t n = 0;
    for (uint32_t i = 0; i <= at; i++)
        if (!ds_knobs__next_word(&words, &word, &n)) break;
    ds_buf_put_n(out, n ? word : "[...]", n ? n : 5);
}

/* Bit i is the choice after the first i + 1. */
static void print_flags(const ds_knob *knob, uint32_t bits, ds_buf *out) {
    if (!bits) print_choice(knob, 0, out);
    for (uint32_t i = 0; bits >> i; i++) {
        if (!(bits >> i & 1)) continue;
        if (bits & ((UINT32_C(1) << i) - 1)) ds_buf_putc(out, ' ');
        print_choice(knob, i + 1, out);
    }
}

static void print_texts(const void *field, size_t n, ds_buf *out) {
    for (size_t i = 0; i < n; i++)
        ds_buf_printf(out, "%s%s", i ? " " : "", ((const char *const *)field)[i]);
}

void ds_knob_print(const ds_knob *knob, const void *record, ds_buf *out) {
    const void *field = (const char *)record + knob->offset;
    uint32_t word = 0;
    ds_buf_put(out, "");
    switch (knob->kind) {
    case DS_KNOB_INT:
        ds_buf_put_int(out, *(const int64_t *)field);
        break;
    case DS_KNOB_QUANTITY:
        ds_buf_printf(out, "%lld %s", (long long)*(const int64_t *)field,
                      knob->dimension == 'T' ? "ps" : "B");
        break;
    case DS_KNOB_REAL:
        if (!isnan(*(const double *)field)) ds_buf_printf(out, "%.17g", *(const double *)field);
        break;
    case DS_KNOB_BOOL:
        ds_buf_put(out, *(const bool *)field ? "true" : "false");
        break;
    case DS_KNOB_DTYPE:
        if (*(const ds_dtype *)field != DS_DTYPE_COUNT)
            ds_buf_put(out, ds_dtype_name(*(const ds_dtype *)field));
        break;
    case DS_KNOB_TEXT:
    case DS_KNOB_TEXTS:
        memcpy(&word, field, sizeof word);
        print_choice(knob, word, out);
        break;
    case DS_KNOB_AXES:
        print_texts(field, knob->bytes / sizeof(char *), out);
        break;
    case DS_KNOB_FLAGS:
        memcpy(&word, field, sizeof word);
        print_flags(knob, word, out);
        break;
    case DS_KNOB_SCHEDULE:
        print_texts(field, 1, out);
        break;
    default:
        if (*(void *const *)field) ds_buf_put(out, "[...]");
    }
}

/* ---- readers ---- */

static ds_status read_choice(const ds_binding *binding, const ds_knob *knob, void *field,
                             ds_error *err) {
    const char *text = NULL;
    DS_TRY(ds_scenario_text(binding, knob->section, knob->name, &text, err));
    if (!text) return DS_OK;
    uint32_t word = word_index(knob->choices, text);
    memcpy(field, &word, sizeof word);
    if (ds_knobs__has_word(knob->choices, text)) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, ds_knobs__loc(binding, knob), "%s: %s cannot be %s",
                        knob->section, knob->name, text);
}

static ds_status read_dtype(const ds_binding *binding, const ds_knob *knob, ds_dtype *field,
                            ds_error *err) {
    const char *text = NULL;
    DS_TRY(ds_scenario_text(binding, knob->section, knob->name, &text, err));
    if (!text || ds_dtype_parse(text, field)) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, ds_knobs__loc(binding, knob),
                        "'%s' cannot be %s; it is one of %s", knob->name, text, DTYPES);
}

/* A generator's name, "file:PATH", or "@s". */
static ds_status read_schedule(const ds_binding *binding, const ds_knob *knob, const char **field,
                               ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, knob->section, knob->name);
    if (!attr || attr->kind != DS_ATTR_PLACE)
        return ds_scenario_text(binding, knob->section, knob->name, field, err);
    const char *text = ds_arena_printf(&binding->unit->arena, "@%s", attr->place.name);
    *field = ds_intern(&binding->unit->strings, text);
    return DS_OK;
}

static ds_status read_by_kind(const ds_binding *binding, const ds_knob *knob, void *record,
                              ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, knob->section, knob->name);
    void *field = (char *)record + knob->offset;
    ds_knob_set(knob, record, knob->initial);
    if (!attr) return DS_OK;
    switch (knob->kind) {
    case DS_KNOB_INT:
        return ds_scenario_int(binding, knob->section, knob->name, field, err);
    case DS_KNOB_QUANTITY:
        return knob->dimension == 'T'
                   ? ds_scenario_ps(binding, knob->section, knob->name, field, err)
                   : ds_scenario_int(binding, knob->section, knob->name, field, err);
    case DS_KNOB_REAL:
        return ds_scenario_real(binding, knob->section, knob->name, field, err);
    case DS_KNOB_BOOL:
        return ds_scenario_bool(binding, knob->section, knob->name, field, err);
    case DS_KNOB_TEXT:
        return read_choice(binding, knob, field, err);
    case DS_KNOB_DTYPE:
        return read_dtype(binding, knob, field, err);
    case DS_KNOB_SCHEDULE:
        return read_schedule(binding, knob, field, err);
    default:
        if (attr->kind == DS_ATTR_BLOCK) *(const ds_attr **)field = attr;
        return DS_OK;
    }
}

ds_status ds_knobs_read(const ds_binding *binding, const char *section, void *record,
                        ds_error *err) {
    for (uint32_t i = 0; i < N_KNOBS; i++) {
        const ds_knob *knob = &knobs[i];
        if (!knob->bytes || strcmp(knob->section, section) != 0) continue;
        DS_TRY((knob->read ? knob->read : read_by_kind)(binding, knob, record, err));
    }
    return DS_OK;
}

/* ---- values of attributes ---- */

bool ds_knob_value(const ds_knob *knob, const ds_env *env, const ds_attr *attr, ds_num *out) {
    bool on = attr->kind == DS_ATTR_WORD && strcmp(attr->word, "on") == 0;
    bool off = attr->kind == DS_ATTR_WORD && strcmp(attr->word, "off") == 0;
    if (knob->kind == DS_KNOB_BOOL && (on || off)) {
        *out = (ds_num){.kind = DS_NUM_INT, .i = on};
        return true;
    }
    switch (attr->kind) {
    case DS_ATTR_EXPR:
        return ds_expr_eval(env, attr->expr, attr->loc, out, NULL) == DS_OK;
    case DS_ATTR_WORD:
        *out = (ds_num){.kind = DS_NUM_STR, .s = attr->word};
        return true;
    case DS_ATTR_BOOL:
        *out = (ds_num){.kind = DS_NUM_INT, .i = attr->flag};
        return true;
    default:
        return false;
    }
}
