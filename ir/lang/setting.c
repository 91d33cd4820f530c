/* Settings of the command line that are no param's:
 *
 *     strategy.zero, train.dtype, jitter.runs    a key of a section of the scenario
 *     scenario.memory, scenario.strategy.zero    the same from the scenario's top
 *     zero, dtype, memory                        the first of strategy, train, the scenario with it
 *     jobs.first.strategy.dp, jobs.first.steps   a key of one job
 *     --vary, --where, --minimize, --maximize    a line of the sweep
 *
 * With --job the keys that a job has are those of this job. */
#include "ir/lang/lang.h"

#include "ir/lang/parse.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/sweep.h"

#include <stdlib.h>
#include <string.h>

/* Where a setting goes. */
typedef struct address {
    const char *job;     /* NULL: no job */
    const char *section; /* "" for the scenario, or the job, itself */
    const char *key;
} address;

/* ---- messages ---- */

typedef DS_VEC(const char *) names;

static ds_status fail(const ds_setting *setting, ds_error *err, const char *what,
                      const names *known, const char *wrong) {
    const char *near = ds_suggest(wrong, known->at, known->n);
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "--set %s=%s: %s%s%s%s", setting->path,
                        setting->text, what, near ? "; did you mean '" : "", near ? near : "",
                        near ? "'?" : "");
}

static ds_status unknown_key(ds_unit *unit, const ds_setting *setting, const address *to,
                             ds_error *err) {
    names known = {0};
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(knobs[i].section, to->section) == 0)
            DS_PUSH(&unit->arena, &known, knobs[i].name);
    const char *of = *to->section ? to->section : to->job ? "jobs" : "scenario";
    return fail(setting, err,
                ds_arena_printf(&unit->arena, "unknown key '%s' in '%s'", to->key, of), &known,
                to->key);
}

static void list_jobs(ds_unit *unit, names *out) {
    for (uint32_t i = 0; i < ds_scenario_n_jobs(unit); i++)
        DS_PUSH(&unit->arena, out, ds_scenario_job(unit, i)->name);
}

static ds_status unknown_job(ds_unit *unit, const ds_setting *setting, const char *job,
                             ds_error *err) {
    names known = {0};
    list_jobs(unit, &known);
    ds_buf text = {0};
    ds_buf_printf(&text, known.n ? "there is no job '%s'" : "no job '%s': the scenario has no jobs",
                  job);
    ds_status status = fail(setting, err, text.text, &known, job);
    ds_buf_deinit(&text);
    return status;
}

static ds_status which_job(ds_unit *unit, const ds_setting *setting, ds_error *err) {
    names known = {0};
    list_jobs(unit, &known);
    const char *job = known.n ? known.at[0] : "NAME";
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                        "--set %s=%s: each job has this key for itself: --set jobs.%s.%s=%s, or "
                        "--job %s",
                        setting->path, setting->text, job, setting->path, setting->text, job);
}

/* A key without its section, where no param has the name: --set zero=3, as --vary (sweep.md). */
static bool find_bare(const ds_unit *unit, const char *path, address *out) {
    const ds_knob *knob = ds_scenario_bare_knob(unit, path);
    *out = (address){.section = knob ? knob->section : "", .key = path};
    return knob != NULL;
}

/* Neither a param nor a key has the name. ds_bind says so, except where a key has the nearest name. */
static ds_status unknown_name(ds_unit *unit, const ds_setting *setting, ds_error *err) {
    static const char *const sections[] = {"strategy", "train", ""};
    const ds_module *module = unit->modules.at[0];
    names known = {0};
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < module->params.n; i++)
        DS_PUSH(&unit->arena, &known, module->params.at[i].name);
    for (uint32_t i = 0; i < n; i++)
        for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
            if (strcmp(knobs[i].section, sections[s]) == 0)
                DS_PUSH(&unit->arena, &known, knobs[i].name);
    const char *near = ds_suggest(setting->path, known.at, known.n);
    if (!near || !ds_scenario_bare_knob(unit, near)) return DS_OK;
    return fail(setting, err,
                ds_arena_printf(&unit->arena, "there is no param or key '%s'", setting->path),
                &known, setting->path);
}

/* ---- addresses ---- */

static bool is_section(const char *text, size_t n, const char **out) {
    uint32_t n_knobs;
    const ds_knob *knobs = ds_scenario_knobs(&n_knobs);
    for (uint32_t i = 0; i < n_knobs; i++) {
        const char *section = knobs[i].section;
        if (strlen(section) != n || memcmp(section, text, n) != 0) continue;
        if (!*section || strcmp(section, "jobs") == 0) continue;
        *out = section;
        return true;
    }
    return false;
}

static bool skip(const char **at, const char *prefix) {
    size_t n = strlen(prefix);
    if (strncmp(*at, prefix, n) != 0) return false;
    *at += n;
    return true;
}

/* False: the setting is a param's. */
static bool find_address(ds_unit *unit, const char *path, address *out) {
    bool top = skip(&path, "scenario."), job = skip(&path, "jobs.");
    const char *dot = strchr(path, '.');
    *out = (address){.section = ""};
    if (job && !dot) return false;
    if (job) {
        out->job = ds_arena_strndup(&unit->arena, path, (size_t)(dot - path));
        path = dot + 1;
        dot = strchr(path, '.');
    }
    bool named = dot && is_section(path, (size_t)(dot - path), &out->section);
    out->key = named ? dot + 1 : path;
    return named || top || job;
}

static bool has_job(ds_unit *unit, const char *name) {
    for (uint32_t i = 0; i < ds_scenario_n_jobs(unit); i++)
        if (strcmp(ds_scenario_job(unit, i)->name, name) == 0) return true;
    return false;
}

/* A key that every job has, of a scenario with jobs, is the chosen job's. */
static ds_status choose_job(ds_unit *unit, const ds_setting *setting, const char *chosen,
                            address *to, ds_error *err) {
    bool own = ds_scenario_is_job_key(*to->section ? to->section : to->key);
    if (to->job && !has_job(unit, to->job)) return unknown_job(unit, setting, to->job, err);
    if (to->job || !own || !ds_scenario_n_jobs(unit)) return DS_OK;
    if (!chosen) return which_job(unit, setting, err);
    if (!has_job(unit, chosen)) return unknown_job(unit, setting, chosen, err);
    to->job = chosen;
    return DS_OK;
}

static const ds_knob *knob_of(const address *to) {
    bool times = to->job && !*to->section && !ds_scenario_is_job_key(to->key);
    return ds_scenario_knob(times ? "jobs" : to->section, to->key);
}

/* ---- what a setting does ---- */

static uint32_t blocks_of(const address *to, const char *blocks[3]) {
    uint32_t n = 0;
    if (to->job) blocks[n++] = "jobs";
    if (to->job) blocks[n++] = to->job;
    if (*to->section) blocks[n++] = to->section;
    return n;
}

static ds_status put_key(ds_unit *unit, const ds_setting *setting, const address *to,
                         const ds_load_options *options, ds_error *err) {
    const ds_knob *knob = knob_of(to);
    const char *blocks[3];
    ds_attr attr;
    if (!knob) return unknown_key(unit, setting, to, err);
    ds_stated said = {.path = ds_intern(&unit->strings, setting->path)};
    bool runs = !to->job || (options->job && strcmp(options->job, to->job) == 0);
    if (runs) said.section = knob->section;
    if (runs) said.key = knob->name;
    if (!options->has_settings) {
        if (!to->job) said.instead_of = ds_scenario_find(unit, to->section, knob->name);
        DS_TRY(ds_parse_setting(unit->modules.at[0], knob, setting, &attr, err));
        ds_scenario_say(unit, blocks, blocks_of(to, blocks), knob->name, attr);
    }
    DS_PUSH(&unit->arena, &unit->said, said);
    return DS_OK;
}

/* ---- lines of the sweep ---- */

/* Is a value of the target a text that needs no quotes? */
static bool takes_text(ds_unit *unit, const char *name) {
    ds_sweep_target target;
    if (!ds_sweep_find(unit, name, &target)) return false;
    if (target.knob) return ds_knob_is_of_text(target.knob);
    ds_expr init = target.module->params.at[target.param].init;
    return ds_expr_at(&unit->exprs, init)->kind == DS_EXPR_STR;
}

/* The value up to the next comma outside of brackets and quotes. */
static size_t item_length(const char *text) {
    int depth = 0;
    bool quoted = false;
    size_t n = 0;
    for (; text[n] && (text[n] != ',' || depth > 0 || quoted); n++) {
        if (text[n] == '"') quoted = !quoted;
        if (!quoted) depth += (strchr("([", text[n]) != NULL) - (strchr(")]", text[n]) != NULL);
    }
    return n;
}

static bool is_domain(const char *text) {
    static const char *const begins[] = {"[", "divisors(", "powers_of_two("};
    if (text[item_length(text)]) return false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(text, begins[i], strlen(begins[i])) == 0) return true;
    return strstr(text, "..") != NULL;
}

static void put_item(const char *text, size_t n, bool quote, ds_buf *out) {
    while (n && *text == ' ') text++, n--;
    while (n && text[n - 1] == ' ') n--;
    quote = quote && n && !strchr("[\"@", *text);
    ds_buf_printf(out, "%s%.*s%s", quote ? "\"" : "", (int)n, text, quote ? "\"" : "");
}

/* "tp=1,2" as "tp in [1, 2]"; "pp=1..8" as "pp in 1..8". */
static void put_dim(ds_unit *unit, const char *text, ds_buf *out) {
    size_t n = strcspn(text, "=");
    const char *name = ds_arena_strndup(&unit->arena, text, n), *values = text + n + 1;
    bool domain = is_domain(values), quote = !domain && takes_text(unit, name);
    ds_buf_printf(out, "%s in %s", name, domain ? values : "[");
    for (; !domain; ds_buf_put(out, ", ")) {
        n = item_length(values);
        put_item(values, n, quote, out);
        if (!values[n]) break;
        values += n + 1;
    }
    if (!domain) ds_buf_putc(out, ']');
}

static ds_status put_line(ds_unit *unit, const ds_setting *setting, ds_error *err) {
    ds_buf text = {0};
    if (strcmp(setting->path, "--vary") == 0)
        put_dim(unit, setting->text, &text);
    else
        ds_buf_printf(&text, "%s %s", setting->path + 2, setting->text);
    const char *source = ds_arena_printf(&unit->arena, "%s %s", setting->path, setting->text);
    ds_status status = ds_parse_sweep_line(unit->modules.at[0], source, text.text, err);
    ds_buf_deinit(&text);
    return status;
}

static bool is_line(const char *path) {
    static const char *const words[] = {"--vary", "--where", "--minimize", "--maximize"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], path) == 0) return true;
    return false;
}

ds_status ds_lang__say(ds_unit *unit, const ds_setting *setting, const ds_load_options *options,
                       ds_error *err) {
    const ds_module *module;
    uint32_t param;
    address to;
    if (is_line(setting->path)) {
        if (!options->has_settings) DS_TRY(put_line(unit, setting, err));
        ds_stated said = {.path = ds_intern(&unit->strings, setting->path)};
        DS_PUSH(&unit->arena, &unit->said, said);
        return DS_OK;
    }
    if (!ds_unit_scenario(unit) || ds_find_param(unit, setting->path, &module, &param))
        return DS_OK;
    if (!find_address(unit, setting->path, &to) && !find_bare(unit, setting->path, &to))
        return unknown_name(unit, setting, err);
    DS_TRY(choose_job(unit, setting, options->job, &to, err));
    return put_key(unit, setting, &to, options, err);
}
