/* Grading an answer: load, compare what the lesson fixes, simulate, execute, ask the entries.
 *
 * The entries of `check` are asked in their order. The first that speaks against the answer gives
 * the verdict's text; later conditions are still shown, but nothing is executed any more. */
#include "ir/base/file.h"
#include "ir/exec/exec.h"
#include "ir/prove/check.h"
#include "ir/strategy/jitter.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/sweep.h"
#include "ir/verify/verify.h"
#include "sim/run/montecarlo.h"
#include "tools/cli/lesson/lesson.h"

#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */

/* A program, and what became of it. */
typedef struct run {
    cli_source source;
    ds_result *result;
    lesson_values values;
} run;

static void close_run(run *r) {
    ds_result_free(r->result);
    cli_close(&r->source);
}

static void put_error(const ds_unit *unit, const ds_error *err, ds_buf *out) {
    if (unit)
        ds_error_print(unit, err, out);
    else
        ds_buf_printf(out, "error: %s\n", err->message);
}

static ds_status edit(const lesson_change *change, ds_buf *text, ds_error *err) {
    for (uint32_t i = 0; change && i < change->edits.n; i++) {
        const lesson_edit *e = &change->edits.at[i];
        const char *at = strstr(text->text, e->old);
        if (!at)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "there is no `%s` to change",
                                e->old);
        ds_buf fresh = {0};
        ds_buf_put_n(&fresh, text->text, (size_t)(at - text->text));
        ds_buf_put(&fresh, e->fresh);
        ds_buf_put(&fresh, at + strlen(e->old));
        ds_buf_deinit(text);
        *text = fresh;
    }
    return DS_OK;
}

/* Reads the file of an answer with its change and more settings, verifies and binds it; what is
 * wrong goes to `report`. */
static bool open_answer(const cli_options *options, lesson_answer answer, const lesson_change *more,
                        cli_source *out, ds_buf *report) {
    DS_VEC(ds_setting) settings = {0};
    const lesson_change *changes[] = {answer.change, more};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; changes[k] && i < changes[k]->settings.n; i++)
            DS_HPUSH(&settings, changes[k]->settings.at[i]);
    ds_load_options how = cli_load_options(options);
    how.settings = settings.at;
    how.n_settings = settings.n;
    *out = (cli_source){0};
    ds_diags_init(&out->diags);
    ds_buf text = {0};
    ds_error err;
    ds_buf_put(&text, "");
    ds_status status = ds_file_read(answer.path, DS_NOWHERE, DS_LOAD_MAX_BYTES, &text, &err);
    if (status == DS_OK) status = edit(answer.change, &text, &err);
    if (status == DS_OK)
        status = ds_load_text(answer.path, text.text, text.n, &how, &out->unit, &err);
    if (status == DS_OK && ds_verify(out->unit, &out->diags) == DS_OK) {
        status = ds_bind(out->unit, settings.at, settings.n, &out->binding, &err);
        if (status == DS_OK) ds_verify_bound(out->unit, &out->binding, &out->diags);
    }
    if (status != DS_OK) put_error(out->unit, &err, report);
    for (uint32_t i = 0; i < out->diags.all.n; i++)
        if (out->diags.all.at[i].severity == DS_SEV_ERROR)
            ds_diag_print(out->unit, &out->diags.all.at[i], report);
    free(settings.at);
    ds_buf_deinit(&text);
    return status == DS_OK && !out->diags.n_errors;
}

static ds_status simulate(const cli_options *options, const ds_binding *binding, ds_result **out,
                          ds_error *err) {
    const ds_profiles *profiles;
    ds_sim_options how = {0};
    ds_jitter jitter;
    DS_TRY(cli_load_profiles(options, &profiles, err));
    DS_TRY(ds_sim_options_read(binding, &how, err));
    DS_TRY(ds_jitter_read(binding, &jitter, err));
    how.unfold = jitter.is_given;
    DS_TRY(ds_simulate(binding, profiles, &how, out, err));
    return jitter.is_given ? ds_jitter_runs(*out, &jitter, 1, err) : DS_OK;
}

static bool run_source(const cli_options *options, run *r, ds_buf *report) {
    ds_error err;
    if (simulate(options, &r->source.binding, &r->result, &err) != DS_OK) {
        put_error(r->source.unit, &err, report);
        return false;
    }
    lesson_values_read(r->result, r->source.unit, &r->values);
    return true;
}

bool lesson_is_legal(const cli_options *options, lesson_answer answer, ds_buf *report) {
    run r = {.result = NULL};
    bool legal =
        open_answer(options, answer, NULL, &r.source, report) && run_source(options, &r, report);
    close_run(&r);
    return legal;
}

/* ---- what the lesson fixes ---- */

typedef struct part {
    const char *name, *text;
} part;

typedef struct parts {
    ds_arena *arena;
    DS_VEC(part) all;
} parts;

static void keep_part(void *context, const char *name, const char *text) {
    parts *p = context;
    part kept = {ds_arena_strdup(p->arena, name), ds_arena_strdup(p->arena, text)};
    DS_PUSH(p->arena, &p->all, kept);
}

/* An open "strategy" opens "strategy.zero". */
static bool is_open(const lesson *l, const char *name) {
    for (uint32_t i = 0; i < l->open.n; i++) {
        size_t n = strlen(l->open.at[i]);
        if (strncmp(l->open.at[i], name, n) == 0 && (!name[n] || name[n] == '.')) return true;
    }
    return false;
}

/* New functions and params are parts of an open function. */
static bool may_be_new(const lesson *l, const char *name) {
    bool func = false;
    for (uint32_t i = 0; i < l->open.n; i++) func = func || strncmp(l->open.at[i], "func ", 5) == 0;
    return func && (strncmp(name, "func ", 5) == 0 || strncmp(name, "param ", 6) == 0);
}

/* Of equal names the k-th. */
static const part *find_part(const parts *p, const parts *other, uint32_t at) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < at; i++)
        k += strcmp(other->all.at[i].name, other->all.at[at].name) == 0;
    for (uint32_t i = 0; i < p->all.n; i++)
        if (strcmp(p->all.at[i].name, other->all.at[at].name) == 0 && k-- == 0)
            return &p->all.at[i];
    return NULL;
}

static void put_part(const part *p, ds_buf *out) {
    if (strchr(p->text, '\n'))
        ds_buf_printf(out, "another %s", p->name);
    else
        ds_buf_printf(out, "%s = %s", p->name, p->text);
}

/* Names the first part that is not the lesson's; false: there is none. */
static bool put_difference(const lesson *l, const parts *fixed, const parts *own, ds_buf *out) {
    for (uint32_t i = 0; i < own->all.n; i++) {
        const part *mine = &own->all.at[i], *theirs = find_part(fixed, own, i);
        if (is_open(l, mine->name) || (!theirs && may_be_new(l, mine->name))) continue;
        if (theirs && strcmp(mine->text, theirs->text) == 0) continue;
        ds_buf_put(out, "your file has ");
        if (theirs)
            put_part(mine, out);
        else
            ds_buf_put(out, mine->name);
        if (!theirs)
            ds_buf_put(out, ", and start.dir has no such thing");
        else if (strchr(theirs->text, '\n'))
            ds_buf_put(out, " than start.dir");
        else
            ds_buf_printf(out, ", and start.dir %s", theirs->text);
        return true;
    }
    for (uint32_t i = 0; i < fixed->all.n; i++) {
        if (is_open(l, fixed->all.at[i].name) || find_part(own, fixed, i)) continue;
        ds_buf_printf(out, "your file lacks %s of start.dir", fixed->all.at[i].name);
        return true;
    }
    return false;
}

static bool differs(lesson *l, const cli_options *options, const ds_unit *unit, ds_buf *out) {
    cli_source start;
    bool any = true;
    parts fixed = {.arena = &l->arena}, own = {.arena = &l->arena};
    if (open_answer(options, (lesson_answer){lesson_file(l, "start.dir"), NULL}, NULL, &start,
                    out)) {
        ds_print_parts(start.unit, keep_part, &fixed);
        ds_print_parts(unit, keep_part, &own);
        any = put_difference(l, &fixed, &own, out);
    }
    cli_close(&start);
    return any;
}

/* ---- execution ---- */

/* What an `equal` says: "passes layers=2", or "definition.dir rows=8 w.new m.new". */
typedef struct comparison {
    const char *what;             /* passes, or a file */
    lesson_change settings;       /* words with '=' */
    DS_VEC(const char *) results; /* the others: results that must be equal; none: all */
} comparison;

static void read_equal(lesson *l, const lesson_entry *entry, comparison *out) {
    size_t n = strcspn(entry->head, " ");
    *out = (comparison){.what = ds_arena_strndup(&l->arena, entry->head, n)};
    for (const char *at = entry->head + n; *(at += strspn(at, " ")); at += n) {
        n = strcspn(at, " ");
        size_t path = strcspn(at, "= ");
        const char *name = ds_arena_strndup(&l->arena, at, path);
        if (path >= n)
            DS_PUSH(&l->arena, &out->results, name);
        else
            DS_PUSH(&l->arena, &out->settings.settings,
                    ((ds_setting){name, ds_arena_strndup(&l->arena, at + path + 1, n - path - 1)}));
    }
}

static ds_status check_passes(const ds_binding *binding, bool *equal, ds_error *err) {
    ds_step_check check = {0};
    ds_status status =
        ds_model_step_check(binding, &(ds_step_check_options){.seed = 0}, &check, err);
    *equal = check.equal;
    ds_step_check_deinit(&check);
    return status;
}

/* Is it one of the results, or of their families: "w.new" or "w.new{3}"? */
static bool counts(const comparison *c, const char *name) {
    for (uint32_t i = 0; i < c->results.n; i++) {
        size_t n = strlen(c->results.at[i]);
        if (strncmp(name, c->results.at[i], n) == 0 && (!name[n] || name[n] == '{')) return true;
    }
    return !c->results.n;
}

/* Keeps the results that count. */
static void drop_others(const comparison *c, ds_exec_result *r) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->outputs.n; i++) {
        ds_exec_tensor t = r->outputs.at[i];
        if (counts(c, t.name))
            r->outputs.at[kept++] = t;
        else
            free(t.at);
    }
    r->outputs.n = kept;
}

static ds_status check_programs(const comparison *c, const ds_binding *mine,
                                const ds_binding *theirs, bool *equal, ds_error *err) {
    ds_exec_options how = {0};
    ds_exec_result *x = NULL, *y = NULL;
    ds_exec_comparison result;
    ds_status status = ds_exec_run(mine, &how, &x, err);
    if (status == DS_OK) status = ds_exec_run(theirs, &how, &y, err);
    if (status == DS_OK) {
        drop_others(c, x);
        drop_others(c, y);
        ds_exec_compare(y, x, DS_EXEC_BOUND, &result);
        *equal = result.equal && y->outputs.n;
        ds_exec_comparison_deinit(&result);
    }
    ds_exec_result_free(x);
    ds_exec_result_free(y);
    return status;
}

/* Is the answer, executed, equal? What prevents it from running is in `report`. */
static void execute(lesson *l, const cli_options *options, const lesson_entry *entry,
                    lesson_answer answer, bool *equal, ds_buf *report) {
    comparison c;
    cli_source mine = {0}, other = {0};
    ds_error why;
    *equal = false;
    read_equal(l, entry, &c);
    bool passes = strcmp(c.what, "passes") == 0;
    ds_status status = DS_OK;
    if (open_answer(options, answer, &c.settings, &mine, report)) {
        if (passes)
            status = check_passes(&mine.binding, equal, &why);
        else if (open_answer(options, (lesson_answer){lesson_file(l, c.what), NULL}, &c.settings,
                             &other, report))
            status = check_programs(&c, &mine.binding, &other.binding, equal, &why);
        if (status != DS_OK) put_error(mine.unit, &why, report);
    }
    cli_close(&mine);
    if (!passes) cli_close(&other);
}

/* ---- conditions ---- */

static ds_status parse_condition(run *r, const char *place, const char *text, ds_sweep_entry *out,
                                 ds_error *err) {
    ds_parse_names names = {r->values.names.at, r->values.names.n};
    if (ds_parse_condition(r->source.unit->modules.at[0], names, place, text, out, err) == DS_OK)
        return DS_OK;
    ds_error why = *err;
    return ds_error_set(err, DS_ERR_SYNTAX, DS_NOWHERE, "%s: %s: '%s'", place, why.message, text);
}

static ds_env env_of(const run *r) {
    ds_env env = ds_binding_env(&r->source.binding, NULL);
    env.named = r->values.all.at;
    env.n_named = r->values.all.n;
    return env;
}

static void put_value(const run *r, ds_expr e, ds_unit_id unit, ds_buf *out) {
    ds_env env = env_of(r);
    ds_num value;
    ds_error err;
    if (ds_expr_eval(&env, e, DS_NOWHERE, &value, &err) != DS_OK) return;
    double scale = unit == DS_UNIT_NONE ? 1 : ds_unit_scale(unit);
    if (value.kind == DS_NUM_STR)
        ds_buf_put(out, value.s);
    else if (value.kind == DS_NUM_INT && (unit == DS_UNIT_NONE || unit == DS_UNIT_BYTE))
        ds_buf_printf(out, "%lld", (long long)value.i);
    else
        ds_buf_printf(out, "%.5g", (value.kind == DS_NUM_INT ? (double)value.i : value.r) / scale);
    if (unit != DS_UNIT_NONE) ds_buf_printf(out, " %s", ds_unit_text(unit));
}

/* Appends a text of the lesson, "{expression}" and "{expression, unit}" being its value. */
static ds_status put_text(run *r, const lesson_entry *entry, ds_buf *out, ds_error *err) {
    for (const char *at = entry->text; *at; at++) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        if (!end) {
            ds_buf_putc(out, *at);
            continue;
        }
        const char *comma = end;
        while (comma > at && *comma != ',') comma--;
        ds_unit_id unit = DS_UNIT_NONE;
        bool scaled = comma > at && end > comma + 2 &&
                      ds_unit_parse(comma + 2, (size_t)(end - comma - 2), &unit);
        const char *text = ds_arena_strndup(&r->source.unit->arena, at + 1,
                                            (size_t)((scaled ? comma : end) - at - 1));
        ds_sweep_entry condition;
        DS_TRY(parse_condition(r, entry->place, text, &condition, err));
        put_value(r, condition.a, unit, out);
        at = end;
    }
    return DS_OK;
}

/* A line of the report. */
static void put_line(bool yes, const char *what, ds_buf *out) {
    ds_buf_printf(out, "  %-4s %s\n", yes ? "yes" : "no", what);
}

static void put_condition(const run *r, const ds_sweep_entry *condition, const lesson_entry *entry,
                          bool yes, ds_buf *out) {
    const ds_expr_node *node = ds_expr_at(&r->source.unit->exprs, condition->a);
    bool compares = node->kind >= DS_EXPR_EQ && node->kind <= DS_EXPR_GE;
    ds_buf line = {0};
    ds_buf_printf(&line, compares && !entry->show ? "%-32s  is " : "%s",
                  entry->show ? entry->show : entry->head);
    if (compares && !entry->show) put_value(r, node->a, condition->unit, &line);
    put_line(yes, line.text, out);
    ds_buf_deinit(&line);
}

/* One grading. */
typedef struct grading {
    lesson *l;
    const cli_options *options;
    lesson_answer answer;
    run r;
    bool unexecuted; /* the entry that speaks is an `equal`, and the program did not run */
    lesson_grade *out;
    ds_error *err;
} grading;

static void ask_execution(grading *g, const lesson_entry *entry, bool *against) {
    ds_buf why = {0};
    bool equal;
    execute(g->l, g->options, entry, g->answer, &equal, &why);
    put_line(equal, "executed: the same numbers, to 1e-9", &g->out->report);
    if (why.n) ds_buf_put_n(&g->out->report, why.text, why.n);
    g->unexecuted = why.n > 0;
    ds_buf_deinit(&why);
    *against = !equal;
}

static ds_status ask_condition(grading *g, const lesson_entry *entry, bool *against) {
    ds_sweep_entry condition;
    bool holds;
    DS_TRY(parse_condition(&g->r, entry->place, entry->head, &condition, g->err));
    ds_env env = env_of(&g->r);
    DS_TRY(ds_sweep_holds(&env, &condition, &holds, g->err));
    if (entry->kind == LESSON_REQUIRE || (entry->kind == LESSON_LAW && !holds))
        put_condition(&g->r, &condition, entry, holds, &g->out->report);
    *against = holds == (entry->kind == LESSON_WHEN);
    return DS_OK;
}

static ds_status ask_all(grading *g) {
    lesson_grade *out = g->out;
    for (uint32_t i = 0; i < g->l->entries.n; i++) {
        const lesson_entry *entry = &g->l->entries.at[i];
        bool against;
        if (entry->kind == LESSON_HINT || (out->said && entry->kind != LESSON_REQUIRE)) continue;
        if (entry->kind == LESSON_EQUAL)
            ask_execution(g, entry, &against);
        else
            DS_TRY(ask_condition(g, entry, &against));
        if (against && !out->said) out->said = entry;
    }
    out->passed = !out->said;
    return DS_OK;
}

/* ---- the verdict ---- */

static ds_status value_of(run *r, const lesson *l, double *out, ds_error *err) {
    ds_sweep_entry what;
    DS_TRY(parse_condition(r, "check: best", l->best, &what, err));
    ds_env env = env_of(r);
    return ds_expr_eval_real(&env, what.a, DS_NOWHERE, out, err);
}

/* Has the answer less of what counts than the solution? */
static ds_status compare(grading *g) {
    run best = {.result = NULL};
    ds_buf wrong = {0};
    double own, theirs;
    ds_status status = DS_OK;
    lesson_answer solution = {lesson_file(g->l, "solution.dir"), NULL};
    if (!open_answer(g->options, solution, NULL, &best.source, &wrong) ||
        !run_source(g->options, &best, &wrong))
        status =
            ds_error_set(g->err, DS_ERR_VALUE, DS_NOWHERE, "%s: %s", solution.path, wrong.text);
    if (status == DS_OK) status = value_of(&g->r, g->l, &own, g->err);
    if (status == DS_OK) status = value_of(&best, g->l, &theirs, g->err);
    if (status == DS_OK) g->out->better = own < theirs * (1 - 1e-9);
    if (status == DS_OK && g->out->better)
        ds_buf_printf(&g->out->report,
                      "\nPassed, and better than the reference: %s is %.6g, there %.6g.\n",
                      g->l->best, own, theirs);
    else if (status == DS_OK)
        ds_buf_put(&g->out->report, "\nPassed.\n");
    close_run(&best);
    ds_buf_deinit(&wrong);
    return status;
}

static ds_status judge(grading *g) {
    lesson_grade *out = g->out;
    DS_TRY(ask_all(g));
    if (out->passed) return compare(g);
    ds_buf_put(&out->report, "\nNot passed. ");
    if (out->said->kind == LESSON_LAW)
        ds_buf_put(&out->report, "The simulator contradicts the lesson. ");
    if (g->unexecuted)
        ds_buf_put(&out->report, "The program cannot be executed: mend the error above.");
    else
        DS_TRY(put_text(&g->r, out->said, &out->report, g->err));
    ds_buf_putc(&out->report, '\n');
    return DS_OK;
}

static void put_other_problem(const lesson *l, const char *difference, ds_buf *out) {
    ds_buf_printf(out,
                  "Not passed. The problem is another one: %s. Open in this lesson:", difference);
    for (uint32_t i = 0; i < l->open.n; i++)
        ds_buf_printf(out, "%s %s", i ? "," : "", l->open.at[i]);
    ds_buf_put(out, ".\n");
}

ds_status lesson_grade_answer(lesson *l, const cli_options *options, lesson_answer answer,
                              lesson_grade *out, ds_error *err) {
    grading g = {.l = l, .options = options, .answer = answer, .out = out, .err = err};
    ds_buf why = {0};
    ds_status status = DS_OK;
    *out = (lesson_grade){.passed = false};
    ds_buf_put(&out->report, "");
    if (!open_answer(options, answer, NULL, &g.r.source, &out->report))
        ds_buf_put(&out->report, "\nNot passed. Mend the errors above.\n");
    else if (differs(l, options, g.r.source.unit, &why))
        put_other_problem(l, why.text, &out->report);
    else if (!run_source(options, &g.r, &out->report))
        ds_buf_put(&out->report, "\nNot passed. The program cannot run: mend the error above.\n");
    else
        status = judge(&g);
    close_run(&g.r);
    ds_buf_deinit(&why);
    return status;
}

void lesson_grade_deinit(lesson_grade *grade) {
    ds_buf_deinit(&grade->report);
}
