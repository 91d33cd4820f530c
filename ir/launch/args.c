/* Arguments by their table: what is said, what is refused, values with their lines; and back. */
#include "ir/launch/internal.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_args__init(ds_args *args, const ds_arg_table *table, ds_launch *launch) {
    *args = (ds_args){.table = table, .launch = launch};
    args->said = DS_NEW_N(launch->arena, ds_arg_said, table->n_args);
    ds_buf_put(&args->refused, "");
}

void ds_args__deinit(ds_args *args) {
    ds_buf_deinit(&args->refused);
}

/* Text of a file, fit for a message: unknown parts without their marks, controls as '?'. */
static const char *shown(ds_arena *arena, const char *text) {
    char *copy = ds_arena_strndup(arena, text, strnlen(text, 60)), *to = copy;
    for (const char *c = copy; *c; c++)
        if (*c != DS_UNKNOWN && *c != DS_UNKNOWN_END)
            *to++ = (unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f ? '?' : *c;
    *to = 0;
    return copy;
}

void ds_args__refuse(ds_args *args, const char *name, const char *format, ...) {
    va_list ap;
    char why[300];
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    if (args->n_refused++ < 12)
        ds_buf_printf(&args->refused, "%s'%s' (%s)", args->refused.n ? ", " : "",
                      shown(args->launch->arena, name), why);
}

ds_status ds_args__check(const ds_args *args, ds_error *err) {
    if (!args->n_refused) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "arguments that change a step and are not simulated: %s%s",
                        args->refused.text, args->n_refused > 12 ? ", …" : "");
}

/* ---- saying ---- */

static void ignore(ds_args *args, const char *name) {
    ds_buf *out = &args->launch->ignored;
    if (args->is_log) return; /* a log has hundreds, each with its default */
    ds_buf_printf(out, "%s%s", out->n ? ", " : "", shown(args->launch->arena, name));
}

/* Does the value fit one of the patterns with | between? */
static bool fits(const char *patterns, const char *value) {
    char one[64];
    for (const char *at = patterns; *at;) {
        size_t n = strcspn(at, "|"), kept = n < sizeof one - 1 ? n : sizeof one - 1;
        memcpy(one, at, kept);
        one[kept] = 0;
        if (fnmatch(one, value, 0) == 0) return true;
        at += n + (at[n] == '|');
    }
    return false;
}

/* A value in a log that an argument has which nobody said. */
static bool is_off(const char *value) {
    return fits("False|None|0|0.0|[[]]|", value) || !*value;
}

static bool find_arg(const ds_arg_table *table, const char *name, uint32_t *id) {
    for (*id = 0; *id < table->n_args; ++*id)
        if (strcmp(table->args[*id].name, name) == 0) return true;
    return false;
}

static const ds_arg_class *find_class(const ds_arg_table *table, const char *name) {
    for (uint32_t i = 0; i < table->n_classes; i++)
        if (fnmatch(table->classes[i].pattern, name, 0) == 0) return &table->classes[i];
    return NULL;
}

bool ds_launch__knows(const ds_arg_table *table, const char *name) {
    uint32_t id;
    return find_arg(table, name, &id) || find_class(table, name);
}

static ds_status unknown_arg(const ds_args *args, const char *name, uint32_t line, ds_error *err) {
    const ds_arg_table *table = args->table;
    const char **names = DS_NEW_N(args->launch->arena, const char *, table->n_args + 1);
    for (uint32_t i = 0; i < table->n_args; i++) names[i] = table->args[i].name;
    const char *near = ds_suggest(name, names, table->n_args);
    return ds_error_set(err, DS_ERR_NAME, (ds_loc){.line = line, .col = 1, .len = 1},
                        "'%s' is no argument of %s that distsim knows%s%s%s",
                        shown(args->launch->arena, name), table->title,
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

ds_status ds_args__say(ds_args *args, const char *name, const char *value, uint32_t line,
                       ds_error *err) {
    uint32_t id;
    if (find_arg(args->table, name, &id)) {
        args->said[id] = (ds_arg_said){value, line};
        return DS_OK;
    }
    const ds_arg_class *class = find_class(args->table, name);
    if (!class && args->is_log && is_off(value)) return DS_OK;
    if (!class && args->is_log) {
        ds_args__refuse(args, name, "unknown, and its value is %s",
                        shown(args->launch->arena, value));
        return DS_OK;
    }
    if (!class) return unknown_arg(args, name, line, err);
    bool is_fine =
        !class->why || (class->fine && fits(class->fine, value)) || (args->is_log && is_off(value));
    if (is_fine)
        ignore(args, name);
    else
        ds_args__refuse(args, name, "%s", class->why);
    return DS_OK;
}

/* Is the word the name of an argument, and no negative number? */
static bool is_name(const char *word) {
    return word[0] == '-' && word[1] == '-' && word[2];
}

/* --parallelism.tensor-parallel-degree is parallelism.tensor_parallel_degree. */
static const char *config_name(ds_arena *arena, const char *word) {
    char *name = ds_arena_strdup(arena, word + 2);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    return name;
}

ds_status ds_args__say_words(ds_args *args, const ds_word *words, uint32_t n, ds_error *err) {
    ds_arena *arena = args->launch->arena;
    for (uint32_t i = 0; i < n;) {
        const char *word = words[i].text, *equals = strchr(word, '='), *value = "";
        uint32_t line = words[i++].line;
        if (!is_name(word)) {
            if (ds_launch__is_unknown(word)) {
                ignore(args, word);
                continue;
            }
            return ds_error_set(err, DS_ERR_DATA, (ds_loc){.line = line, .col = 1, .len = 1},
                                "'%s' belongs to no argument", shown(arena, word));
        }
        if (equals) {
            value = equals + 1;
            word = ds_arena_strndup(arena, word, (size_t)(equals - word));
        }
        if (args->table->is_config) word = config_name(arena, word);
        for (; i < n && !is_name(words[i].text); i++)
            value = *value ? ds_arena_printf(arena, "%s %s", value, words[i].text) : words[i].text;
        DS_TRY(ds_args__say(args, word, value, line, err));
    }
    return DS_OK;
}

/* ---- values ---- */

ds_status ds_args__wrong(const ds_args *args, uint32_t id, ds_error *err, const char *format, ...) {
    va_list ap;
    char what[300];
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    uint32_t line = args->said[id].line;
    return ds_error_set(err, DS_ERR_DATA,
                        line ? (ds_loc){.line = line, .col = 1, .len = 1} : DS_NOWHERE, "'%s' %s",
                        args->table->args[id].name, what);
}

bool ds_args__has(const ds_args *args, uint32_t id) {
    const char *text = args->said[id].text;
    return text && !fits("False|false|None", text);
}

const char *ds_args__text(const ds_args *args, uint32_t id) {
    const char *text = args->said[id].text;
    return text && strcmp(text, "None") != 0 ? text : args->table->args[id].initial;
}

static ds_status check_known(const ds_args *args, uint32_t id, const char *text, ds_error *err) {
    if (!ds_launch__is_unknown(text)) return DS_OK;
    return ds_args__wrong(args, id, err, "is %s, which is known only when the script runs",
                          shown(args->launch->arena, text));
}

ds_status ds_args__int(const ds_args *args, uint32_t id, int64_t *out, ds_error *err) {
    const char *text = ds_args__text(args, id);
    char *end;
    *out = 0;
    if (!text) return DS_OK;
    DS_TRY(check_known(args, id, text, err));
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > INT64_C(1) << 31)
        return ds_args__wrong(args, id, err, "is '%s'; an integer from 0 to 2^31 is needed",
                              shown(args->launch->arena, text));
    *out = value;
    return DS_OK;
}

ds_status ds_args__real(const ds_args *args, uint32_t id, double *out, ds_error *err) {
    const char *text = ds_args__text(args, id);
    char *end;
    *out = 0;
    if (!text) return DS_OK;
    DS_TRY(check_known(args, id, text, err));
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return ds_args__wrong(args, id, err, "is '%s'; a number is needed",
                              shown(args->launch->arena, text));
    *out = value;
    return DS_OK;
}

static ds_status fill_one(ds_args *args, uint32_t id, ds_error *err) {
    const ds_arg *arg = &args->table->args[id];
    void *field = arg->field == DS_NO_FIELD ? NULL : (char *)args->launch + arg->field;
    unsigned *features = &args->launch->model.features;
    bool has = ds_args__has(args, id);
    if (has && arg->kind == DS_ARG_ON) *features |= arg->feature;
    if (has && arg->kind == DS_ARG_OFF) *features &= ~arg->feature;
    if (!field) return DS_OK;
    switch (arg->kind) {
    case DS_ARG_INT:
        return ds_args__int(args, id, field, err);
    case DS_ARG_REAL:
        return ds_args__real(args, id, field, err);
    case DS_ARG_TEXT: {
        const char *text = ds_args__text(args, id);
        if (text) DS_TRY(check_known(args, id, text, err));
        *(const char **)field = text;
        return DS_OK;
    }
    case DS_ARG_ON:
        *(bool *)field = has;
        return DS_OK;
    case DS_ARG_OFF:
        *(bool *)field = !has;
    }
    return DS_OK;
}

ds_status ds_args__fill(ds_args *args, ds_error *err) {
    for (uint32_t id = 0; id < args->table->n_args; id++) /* OFF takes from what is on at first */
        if (args->table->args[id].kind == DS_ARG_OFF)
            args->launch->model.features |= args->table->args[id].feature;
    for (uint32_t id = 0; id < args->table->n_args; id++) DS_TRY(fill_one(args, id, err));
    return DS_OK;
}

/* ---- the way out ---- */

void ds_args_out__init(ds_args_out *out, const ds_arg_table *table, const ds_launch *launch,
                       ds_arena *arena) {
    *out = (ds_args_out){table, launch, arena, DS_NEW_N(arena, const char *, table->n_args),
                         DS_NEW_N(arena, bool, table->n_args)};
}

void ds_args_out__set(ds_args_out *out, uint32_t id, const char *text) {
    out->text[id] = text;
    out->is_set[id] = true;
}

void ds_args_out__set_int(ds_args_out *out, uint32_t id, int64_t value) {
    ds_args_out__set(out, id, ds_arena_printf(out->arena, "%" PRId64, value));
}

const char *ds_launch__real(ds_arena *arena, double value) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (fabs(value) < 1e15 && value == floor(value)) snprintf(text, sizeof text, "%.0f", value);
    return ds_arena_strdup(arena, text);
}

/* A number is written where it differs from that of an absent argument. */
const char *ds_args_out__value(const ds_args_out *out, uint32_t id) {
    const ds_arg *arg = &out->table->args[id];
    const void *field = arg->field == DS_NO_FIELD ? NULL : (const char *)out->launch + arg->field;
    unsigned features = out->launch->model.features;
    if (out->is_set[id]) return out->text[id];
    if (arg->feature) return !!(features & arg->feature) == (arg->kind == DS_ARG_ON) ? "" : NULL;
    if (!field) return NULL;
    const char *text = NULL;
    switch (arg->kind) {
    case DS_ARG_INT:
        text = ds_arena_printf(out->arena, "%" PRId64, *(const int64_t *)field);
        break;
    case DS_ARG_REAL:
        text = ds_launch__real(out->arena, *(const double *)field);
        break;
    case DS_ARG_TEXT:
        text = *(const char *const *)field;
        break;
    case DS_ARG_ON:
        return *(const bool *)field ? "" : NULL;
    case DS_ARG_OFF:
        return *(const bool *)field ? NULL : "";
    }
    if (!text || (arg->initial && strcmp(text, arg->initial) == 0)) return NULL;
    if (arg->kind == DS_ARG_REAL && arg->initial &&
        strtod(arg->initial, NULL) == *(const double *)field)
        return NULL;
    return !arg->initial && strcmp(text, "0") == 0 ? NULL : text;
}
