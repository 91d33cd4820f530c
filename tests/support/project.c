#include "tests/support/project.h"

#include "ir/exec/exec.h"
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "ir/passes/project/project.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETTINGS 16

/* ---- a text, loaded ---- */

typedef struct loaded {
    ds_unit *unit;
    ds_binding binding;
    ds_model_step *step; /* of a model */
    ds_status status;
    ds_error err;
} loaded;

static void check(loaded *l, const ds_setting *settings, uint32_t n) {
    ds_diags diags;
    ds_diags_init(&diags);
    l->status = ds_verify(l->unit, &diags);
    if (l->status == DS_OK) l->status = ds_bind(l->unit, settings, n, &l->binding, &l->err);
    if (l->status == DS_OK) l->status = ds_verify_bound(l->unit, &l->binding, &diags);
    for (uint32_t i = 0; i < diags.all.n; i++)
        if (diags.all.at[i].severity == DS_SEV_ERROR) {
            ds_error_set(&l->err, diags.all.at[i].code, diags.all.at[i].loc, "%s",
                         diags.all.at[i].message);
            break;
        }
    ds_diags_deinit(&diags);
}

static uint32_t split(char *text, ds_setting *list) {
    uint32_t n = 0;
    for (char *word = strtok(text, " "); word && n < MAX_SETTINGS; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        list[n++] = (ds_setting){word, equals + 1};
    }
    return n;
}

/* `file` NULL: the text. A model is made a program. */
static void load(loaded *l, const char *file, const char *text, const char *settings) {
    char copy[512], path[1024];
    ds_setting list[MAX_SETTINGS];
    *l = (loaded){0};
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    snprintf(path, sizeof path, "%s/%s", DS_SOURCE_DIR, file ? file : "scenarios/test.dir");
    uint32_t n = split(copy, list);
    l->status = file ? ds_load_file(path, NULL, &l->unit, &l->err)
                     : ds_load_text(path, text, strlen(text), NULL, &l->unit, &l->err);
    if (l->status == DS_OK) check(l, list, n);
    if (l->status != DS_OK || !ds_scenario_model(l->unit)) return;
    l->status = ds_model_step_new(&l->binding, &l->step, &l->err);
    if (l->status == DS_OK)
        l->status = ds_model_step_run_to(l->step, DS_PASS_OVERLAP, NULL, NULL, &l->err);
}

static void unload(loaded *l) {
    ds_model_step_free(l->step);
    ds_unit_free(l->unit);
}

static const ds_binding *program_of(const loaded *l) {
    return l->step ? &l->step->binding : &l->binding;
}

/* ---- verdicts ---- */

DS_PRINTF(2, 3) static void wrong(projection *p, const char *format, ...) {
    va_list args;
    if (p->verdict != PROJECTION_SAME) return;
    p->verdict = PROJECTION_WRONG;
    va_start(args, format);
    vsnprintf(p->what, sizeof p->what, format, args);
    va_end(args);
}

static const ds_exec_tensor *find(const ds_exec_tensor *list, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

/* ---- numbers ---- */

/* Copies or adds a rank's part into the whole; `difference`: the largest one from what is there. */
static double put(double *whole, const ds_project_output *o, const double *part, bool add) {
    int64_t at[DS_MAX_RANK] = {0}, n = 1;
    double difference = 0;
    for (uint32_t d = 0; d < o->n_dims; d++) n *= o->dims[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t index = 0;
        for (uint32_t d = 0; d < o->n_dims; d++) index = index * o->full[d] + o->lo[d] + at[d];
        if (!add)
            difference = fmax(difference, fabs(whole[index] - part[i]));
        else if (o->max)
            whole[index] = fmax(whole[index], part[i]);
        else
            whole[index] += part[i];
        for (uint32_t d = o->n_dims; d-- > 0;) {
            if (++at[d] < o->dims[d]) break;
            at[d] = 0;
        }
    }
    return difference;
}

/* One result of the program against the parts that ranks return. */
static void compare_result(projection *p, const ds_exec_tensor *want, const ds_exec_result *ranks,
                           const ds_project_outputs *outputs) {
    double *whole = calloc((size_t)want->n + 1, sizeof *whole), most = 0, difference = 0;
    uint32_t parts = 0;
    for (uint32_t i = 0; i < outputs->n; i++) {
        const ds_project_output *o = &outputs->at[i];
        if (strcmp(o->name, want->name) != 0) continue;
        if (o->max && !parts)
            for (int64_t k = 0; k < want->n; k++) whole[k] = -INFINITY;
        const ds_exec_tensor *part = ds_exec_output(ranks, o->rank_name);
        if (!part) {
            wrong(p, "no result %s", o->rank_name);
            continue;
        }
        parts++;
        if (o->first) put(whole, o, part->at, true);
        if (!o->partial) difference = fmax(difference, put(want->at, o, part->at, false));
    }
    if (!parts) wrong(p, "no rank returns %s", want->name);
    for (int64_t k = 0; k < want->n; k++) {
        most = fmax(most, fabs(want->at[k]));
        difference = fmax(difference, fabs(whole[k] - want->at[k]));
    }
    if (!(difference <= DS_EXEC_BOUND * most) && difference > 1e-15)
        wrong(p, "%s differs by %g of %g", want->name, difference, most);
    free(whole);
    p->compared++;
}

static void compare_inputs(projection *p, const ds_exec_result *mesh, const ds_exec_result *ranks) {
    if (mesh->inputs.n != ranks->inputs.n)
        wrong(p, "%u inputs, and %u of the ranks", mesh->inputs.n, ranks->inputs.n);
    for (uint32_t i = 0; i < mesh->inputs.n; i++) {
        const ds_exec_tensor *a = &mesh->inputs.at[i];
        const ds_exec_tensor *b = find(ranks->inputs.at, ranks->inputs.n, a->name);
        if (!b || a->n != b->n || memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at) != 0)
            wrong(p, "the input %s is another one for the ranks", a->name);
    }
}

static void compare_numbers(projection *p, const ds_binding *mesh, const ds_binding *ranks,
                            const ds_project_outputs *outputs) {
    ds_exec_options options = {.seed = 1, .keep_inputs = true};
    ds_exec_result *a = NULL, *b = NULL;
    ds_error err = {0};
    if (ds_exec_run(mesh, &options, &a, &err) != DS_OK)
        wrong(p, "the program itself: %s", err.message);
    else if (ds_exec_run(ranks, &options, &b, &err) != DS_OK)
        wrong(p, "executed: %s", err.message);
    if (a && b) {
        compare_inputs(p, a, b);
        for (uint32_t i = 0; i < a->outputs.n; i++)
            compare_result(p, &a->outputs.at[i], b, outputs);
        if (!a->outputs.n) wrong(p, "nothing to compare");
    }
    ds_exec_result_free(a);
    ds_exec_result_free(b);
}

/* ---- times ---- */

static int64_t step_time(projection *p, const ds_binding *binding, const char *which) {
    ds_profiles *profiles = NULL;
    ds_result *result = NULL;
    ds_sim_options options = {0};
    ds_error err = {0};
    int64_t ps = -1;
    if (ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err) != DS_OK ||
        ds_simulate(binding, profiles, &options, &result, &err) != DS_OK)
        wrong(p, "simulated %s: %s", which, err.message);
    else
        ps = result->run.step_ps;
    ds_result_free(result);
    ds_profiles_free(profiles);
    return ps;
}

/* ---- the whole ---- */

static void compare(projection *p, const ds_binding *mesh, const loaded *ranks,
                    const ds_project_outputs *outputs, bool execute, bool simulate) {
    ds_buf again = {0};
    ds_print_module(ranks->unit->modules.at[0], &again);
    if (strcmp(again.text, p->text) != 0) wrong(p, "its text prints otherwise:\n%s", again.text);
    ds_buf_deinit(&again);
    if (execute) compare_numbers(p, mesh, &ranks->binding, outputs);
    if (!simulate) return;
    p->mesh_ps = step_time(p, mesh, "on its mesh");
    p->ranks_ps = step_time(p, &ranks->binding, "as ranks");
    if (p->mesh_ps != p->ranks_ps)
        wrong(p, "a step takes %lld ps, but %lld ps as ranks", (long long)p->mesh_ps,
              (long long)p->ranks_ps);
}

void projection_of(const ds_binding *program, bool execute, bool simulate, projection *out) {
    ds_unit *unit;
    ds_project_outputs outputs;
    ds_error err = {0};
    loaded ranks;
    *out = (projection){0};
    ds_status status = ds_project_program(program, &unit, &outputs, &err);
    if (status != DS_OK) {
        wrong(out, "line %u: %s", err.loc.line, err.message);
        if (status != DS_ERR_INTERNAL) out->verdict = PROJECTION_REFUSED;
        return;
    }
    ds_buf text = {0};
    ds_print_module(unit->modules.at[0], &text);
    out->text = text.text;
    load(&ranks, NULL, text.text, NULL);
    if (ranks.status != DS_OK)
        wrong(out, "its text is wrong: line %u: %s", ranks.err.loc.line, ranks.err.message);
    else
        compare(out, program, &ranks, &outputs, execute, simulate);
    unload(&ranks);
    ds_unit_free(unit);
}

void projection_free(projection *p) {
    free(p->text);
}

static void expect_same(const char *file, const char *text, const char *settings, bool timed) {
    loaded l;
    projection p;
    load(&l, file, text, settings);
    cr_assert_eq(l.status, DS_OK, "line %u: %s", l.err.loc.line, l.err.message);
    projection_of(program_of(&l), true, timed, &p);
    cr_expect_eq(p.verdict, PROJECTION_SAME, "%s: %s\n%s", settings ? settings : "", p.what,
                 p.text ? p.text : "");
    projection_free(&p);
    unload(&l);
}

void project_expect_same(const char *text, const char *settings, bool timed) {
    expect_same(NULL, text, settings, timed);
}

void project_expect_same_file(const char *file, const char *settings, bool timed) {
    expect_same(file, NULL, settings, timed);
}

void project_expect_refused(const char *text, const char *part) {
    loaded l;
    projection p;
    load(&l, NULL, text, NULL);
    cr_assert_eq(l.status, DS_OK, "line %u: %s", l.err.loc.line, l.err.message);
    projection_of(program_of(&l), false, false, &p);
    cr_expect(p.verdict == PROJECTION_REFUSED && strstr(p.what, part), "%s\n%s", p.what,
              p.text ? p.text : "");
    projection_free(&p);
    unload(&l);
}

char *project_text(const char *text, const char *settings) {
    loaded l;
    projection p;
    load(&l, NULL, text, settings);
    cr_assert_eq(l.status, DS_OK, "line %u: %s", l.err.loc.line, l.err.message);
    projection_of(program_of(&l), false, false, &p);
    cr_assert_eq(p.verdict, PROJECTION_SAME, "%s", p.what);
    unload(&l);
    return p.text;
}
