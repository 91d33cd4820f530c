/* The scenario: known keys, values of the right kind, and an entry that can be run. */
#include "ir/base/units.h"
#include "ir/core/devices.h"
#include "ir/strategy/jitter.h"
#include "ir/strategy/tokens.h"
#include "ir/verify/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- values ---- */

static bool is_number(const ds_checker *ck, const ds_attr *attr) {
    return attr->kind == DS_ATTR_EXPR &&
           ds_expr_at(&ck->unit->exprs, attr->expr)->kind != DS_EXPR_STR;
}

/* The text of a word or of a string literal; NULL for anything else (a param may hold a text). */
static const char *literal_text(const ds_checker *ck, const ds_attr *attr) {
    if (attr->kind == DS_ATTR_WORD) return attr->word;
    if (attr->kind != DS_ATTR_EXPR) return NULL;
    const ds_expr_node *node = ds_expr_at(&ck->unit->exprs, attr->expr);
    return node->kind == DS_EXPR_STR ? node->name : NULL;
}

static bool may_be_text(const ds_checker *ck, const ds_attr *attr) {
    if (attr->kind == DS_ATTR_WORD) return true;
    if (attr->kind != DS_ATTR_EXPR) return false;
    ds_expr_kind kind = ds_expr_at(&ck->unit->exprs, attr->expr)->kind;
    return kind == DS_EXPR_STR || kind == DS_EXPR_PARAM;
}

/* A param or a comparison; the values of the params tell which. */
static bool may_be_bool(const ds_checker *ck, const ds_attr *attr) {
    if (attr->kind != DS_ATTR_EXPR) return false;
    ds_expr_kind kind = ds_expr_at(&ck->unit->exprs, attr->expr)->kind;
    return kind != DS_EXPR_INT && kind != DS_EXPR_REAL && kind != DS_EXPR_STR;
}

/* How the value that is given would be written, or NULL: on = @box for on = box, zero = 3 for
 * zero = "3", optimizer = adam for optimizer = @adam, sp = true for sp = True. */
static const char *rewritten(ds_checker *ck, const ds_knob *knob, const ds_attr *attr) {
    static const char *const yes[] = {"true", "yes", "1", "on"}, *const no[] = {"false", "no",
                                                                                "off"};
    ds_arena *arena = &ck->diags->arena;
    const char *text = literal_text(ck, attr), *dot = text ? strrchr(text, '.') : NULL;
    bool names =
        knob->kind == DS_KNOB_ENTRY || knob->kind == DS_KNOB_MESH || knob->kind == DS_KNOB_PLACE;
    if (names && dot && strcmp(dot, ".dir") == 0)
        return ds_arena_printf(arena, "import \"%s\", then name its declaration: %s = @NAME", text,
                               knob->name);
    if (names && text) return ds_arena_printf(arena, "write %s = @%s", knob->name, text);
    if (attr->kind == DS_ATTR_PLACE && ds_knob_is_of_text(knob))
        return ds_arena_printf(arena, "write %s = %s", knob->name, attr->place.name);
    if (knob->kind == DS_KNOB_BOOL) {
        int64_t i;
        bool one = attr->kind == DS_ATTR_EXPR && ds_expr_is_int(&ck->unit->exprs, attr->expr, &i);
        if (one && (i == 0 || i == 1)) text = i ? "1" : "no";
        for (size_t k = 0; text && k < sizeof yes / sizeof *yes; k++)
            if (strcasecmp(text, yes[k]) == 0)
                return ds_arena_printf(arena, "write %s = true", knob->name);
        for (size_t k = 0; text && k < sizeof no / sizeof *no; k++)
            if (strcasecmp(text, no[k]) == 0)
                return ds_arena_printf(arena, "write %s = false", knob->name);
    }
    if (knob->kind == DS_KNOB_INT && text && *text && !text[strspn(text, "0123456789")])
        return ds_arena_printf(arena, "write %s = %s", knob->name, text);
    if (ds_knob_choices(knob) && knob->kind != DS_KNOB_INTS)
        return ds_arena_printf(arena, "choose one of %s", ds_knob_choices(knob));
    return NULL;
}

static void wrong_kind(ds_checker *ck, const ds_knob *knob, const ds_attr *attr,
                       const char *needed) {
    ds_verify__error(ck, DS_ERR_TYPE, attr->loc, rewritten(ck, knob, attr), "'%s' must be %s (%s)",
                     knob->name, needed, knob->doc);
}

/* The choice "every:K" allows every text that begins with "every:". */
static bool is_choice(const char *choice, const char *text) {
    const char *colon = strchr(choice, ':');
    return colon ? strncmp(text, choice, (size_t)(colon + 1 - choice)) == 0
                 : strcmp(text, choice) == 0;
}

static void check_choice(ds_checker *ck, const ds_knob *knob, const ds_attr *attr,
                         const char *text) {
    ds_names names = {0};
    ds_buf list = {0};
    for (const char *at = ds_knob_choices(knob); *at;) {
        size_t n = strcspn(at, " ");
        const char *choice = ds_arena_strndup(&ck->diags->arena, at, n);
        DS_PUSH(&ck->diags->arena, &names.all, choice);
        ds_buf_printf(&list, "%s%s", list.n ? ", " : "", choice);
        if (is_choice(choice, text)) {
            ds_buf_deinit(&list);
            return;
        }
        at += n + (at[n] == ' ');
    }
    const char *hint =
        knob->kind == DS_KNOB_INT ? NULL : ds_verify__hint(ck, "", text, names.all.at, names.all.n);
    ds_verify__error(ck, DS_ERR_VALUE, attr->loc, hint, "'%s' cannot be %s; it is one of %s",
                     knob->name, text, list.text);
    ds_buf_deinit(&list);
}

/* The param that holds a number where the knob needs a text; NULL if the param holds a text.
 * Follows params to their initial value, since only a text, or a param of a text, gives a text. */
static const ds_param *number_named(const ds_checker *ck, const ds_attr *attr) {
    enum { MAX_DEPTH = 100 };
    const ds_param *first = NULL;
    if (attr->kind != DS_ATTR_EXPR) return NULL;
    const ds_expr_node *node = ds_expr_at(&ck->unit->exprs, attr->expr);
    for (int depth = 0; node->kind == DS_EXPR_PARAM && depth < MAX_DEPTH; depth++) {
        const ds_module *module = ck->unit->modules.at[(uint64_t)node->i >> 32];
        const ds_param *param = &module->params.at[(uint32_t)node->i];
        if (!first) first = param;
        if (!DS_HAS_EXPR(param->init)) return NULL;
        node = ds_expr_at(&ck->unit->exprs, param->init);
    }
    return node->kind == DS_EXPR_STR ? NULL : first;
}

static bool check_any_text(ds_checker *ck, const ds_knob *knob, const ds_attr *attr) {
    if (!may_be_text(ck, attr)) {
        wrong_kind(ck, knob, attr, "a word or a \"text\"");
        return false;
    }
    const ds_param *number = number_named(ck, attr);
    if (!number) return true;
    ds_verify__error(ck, DS_ERR_TYPE, attr->loc, NULL,
                     "'%s' must be a text, and '%s' is the param of line %u, a number; the word is "
                     "written \"%s\"",
                     knob->name, number->name, number->loc.line, number->name);
    return false;
}

static void check_text(ds_checker *ck, const ds_knob *knob, const ds_attr *attr) {
    if (!check_any_text(ck, knob, attr)) return;
    const char *text = literal_text(ck, attr);
    if (text && ds_knob_choices(knob)) check_choice(ck, knob, attr, text);
}

static void check_reference(ds_checker *ck, const ds_module *module, const ds_knob *knob,
                            const ds_attr *attr) {
    if (attr->kind != DS_ATTR_PLACE || attr->place.kind != DS_PLACE_MESH || attr->place.n_coords) {
        wrong_kind(ck, knob, attr, "a name, as in '@name'");
        return;
    }
    const char *name = attr->place.name;
    if (knob->kind == DS_KNOB_ENTRY) {
        bool rank_program = strcmp(knob->name, "program") == 0 && ds_find_program(module, name);
        if (!rank_program && !ds_find_func(module, name))
            ds_verify__unknown(ck, module, DS_ITEM_FUNC, attr->loc, name);
    } else if (knob->kind == DS_KNOB_MESH) {
        if (!ds_find_mesh(module, name))
            ds_verify__unknown(ck, module, DS_ITEM_MESH, attr->loc, name);
    } else if (knob->kind == DS_KNOB_SCHEDULE) {
        if (!ds_find_schedule(module, name))
            ds_verify__unknown(ck, module, DS_ITEM_SCHEDULE, attr->loc, name);
    } else if (!ds_find_topology(module, name) && !ds_find_mesh(module, name)) {
        ds_verify__unknown(ck, module, DS_ITEM_TOPOLOGY, attr->loc, name);
    }
}

static bool is_on_off(const ds_attr *attr) {
    return attr->kind == DS_ATTR_WORD &&
           (strcmp(attr->word, "on") == 0 || strcmp(attr->word, "off") == 0);
}

static void check_quantity(ds_checker *ck, const ds_knob *knob, const ds_attr *attr) {
    if (is_number(ck, attr)) return;
    if (attr->kind != DS_ATTR_QUANTITY)
        wrong_kind(ck, knob, attr, "a number with a unit");
    else if (ds_unit_dimension(attr->unit) != knob->dimension)
        ds_verify__error(ck, DS_ERR_VALUE, attr->loc, NULL, "'%s' cannot be given in '%s' (%s)",
                         knob->name, ds_unit_text(attr->unit), knob->doc);
}

static void check_integers(ds_checker *ck, const ds_knob *knob, const ds_attr *attr) {
    bool ok = attr->kind == DS_ATTR_LIST && attr->n_items;
    for (uint32_t i = 0; ok && i < attr->n_items; i++) ok = is_number(ck, &attr->items[i]);
    const char *or_word = knob->choices ? knob->choices : "";
    if (!ok)
        wrong_kind(ck, knob, attr,
                   ds_arena_printf(&ck->diags->arena, "a list of integers, as in [2, 3]%s%s",
                                   *or_word ? ", or " : "", or_word));
}

static void check_random(ds_checker *ck, const ds_attr *attr) {
    ds_random random;
    ds_error err = {0};
    if (ds_random_read(NULL, attr, &random, &err) != DS_OK) ds_verify__pass_on(ck, &err);
}

static uint32_t check_section(ds_checker *ck, const ds_module *module, const char *section,
                              const ds_attr *entries, uint32_t n);

static void check_jobs(ds_checker *ck, const ds_module *module, const ds_attr *jobs);

static void check_value(ds_checker *ck, const ds_module *module, const ds_knob *knob,
                        const ds_attr *attr) {
    switch (knob->kind) {
    case DS_KNOB_INT:
        if (!is_number(ck, attr)) wrong_kind(ck, knob, attr, "an integer");
        break;
    case DS_KNOB_INTS:
        if (knob->choices && may_be_text(ck, attr))
            check_text(ck, knob, attr);
        else
            check_integers(ck, knob, attr);
        break;
    case DS_KNOB_REAL:
        if (!is_number(ck, attr)) wrong_kind(ck, knob, attr, "a number");
        break;
    case DS_KNOB_BOOL:
        if (attr->kind != DS_ATTR_BOOL && !is_on_off(attr) && !may_be_bool(ck, attr))
            wrong_kind(ck, knob, attr, "true or false");
        break;
    case DS_KNOB_TEXT:
    case DS_KNOB_DTYPE:
    case DS_KNOB_AXES:
        check_text(ck, knob, attr);
        break;
    case DS_KNOB_TEXTS:
    case DS_KNOB_FLAGS:
        for (uint32_t i = 0; attr->kind == DS_ATTR_LIST && i < attr->n_items; i++)
            check_any_text(ck, knob, &attr->items[i]);
        if (attr->kind != DS_ATTR_LIST) check_text(ck, knob, attr);
        break;
    case DS_KNOB_SCHEDULE:
        if (attr->kind == DS_ATTR_PLACE) {
            check_reference(ck, module, knob, attr);
        } else {
            check_text(ck, knob, attr);
        }
        break;
    case DS_KNOB_ENTRY:
    case DS_KNOB_MESH:
    case DS_KNOB_PLACE:
        check_reference(ck, module, knob, attr);
        break;
    case DS_KNOB_QUANTITY:
        check_quantity(ck, knob, attr);
        break;
    case DS_KNOB_RANDOM:
        check_random(ck, attr);
        break;
    case DS_KNOB_SECTION:
        if (strcmp(knob->name, "group") == 0)
            wrong_kind(ck, knob, attr, "a named block, as in 'group \"stem\" { ... }'");
        else if (attr->word && attr->kind == DS_ATTR_BLOCK)
            wrong_kind(ck, knob, attr, "a block '{ ... }'");
        else if (attr->kind == DS_ATTR_BLOCK && strcmp(knob->name, "jobs") == 0) {
            check_jobs(ck, module, attr);
        } else if (attr->kind == DS_ATTR_BLOCK) {
            check_section(ck, module, knob->name, attr->items, attr->n_items);
        } else if (!is_on_off(attr) || strcmp(knob->name, "train") != 0) {
            wrong_kind(ck, knob, attr, "a block '{ ... }'");
        }
        break;
    }
}

void ds_verify__knob_value(ds_checker *ck, const ds_module *module, const ds_knob *knob,
                           const ds_attr *attr) {
    check_value(ck, module, knob, attr);
}

static void unknown_key(ds_checker *ck, const char *section, const ds_attr *attr) {
    uint32_t n;
    const ds_knob *all = ds_scenario_knobs(&n);
    ds_names names = {0};
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(all[i].section, section) == 0)
            DS_PUSH(&ck->diags->arena, &names.all, all[i].name);
    const char *hint = NULL;
    if (attr->quoted_name && strcmp(section, "strategy") == 0)
        hint = "patterns of ops belong into 'ops { ... }'";
    else if (strcmp(section, "ops") == 0)
        hint = "patterns of ops need quotes";
    /* `dp = 4` beside the strategy block instead of inside it */
    for (uint32_t i = 0; i < n && !hint; i++)
        if (strcmp(all[i].name, attr->name) == 0 && strcmp(all[i].section, section) != 0)
            hint = *all[i].section
                       ? ds_arena_printf(&ck->diags->arena, "'%s' belongs into '%s { ... }'",
                                         attr->name, all[i].section)
                       : ds_arena_printf(&ck->diags->arena, "'%s' belongs beside '%s', not into it",
                                         attr->name, section);
    if (!hint) hint = ds_word_fix(attr->name);
    if (!hint) hint = ds_verify__hint(ck, "", attr->name, names.all.at, names.all.n);
    if (*section) {
        ds_verify__error(ck, DS_ERR_NAME, attr->loc, hint, "unknown key '%s' in '%s'", attr->name,
                         section);
    } else {
        ds_verify__error(ck, DS_ERR_NAME, attr->loc, hint, "unknown key '%s' in the scenario",
                         attr->name);
    }
}

/* A job has the scenario's own keys and the keys for its start. */
static const ds_knob *knob_of(const char *section, const char *name) {
    bool common = strcmp(section, "jobs") == 0 && ds_scenario_is_job_key(name);
    return ds_scenario_knob(common ? "" : section, name);
}

/* `group "stem" { … }`; returns the number of unknown keys. */
static uint32_t check_labelled(ds_checker *ck, const ds_module *module, const char *section,
                               const ds_attr *attr) {
    if (strcmp(section, "strategy") == 0 && strcmp(attr->word, "group") == 0) {
        const ds_attr *ops = ds_attr_find(attr->items, attr->n_items, "ops");
        for (uint32_t i = 0; ops && i < ops->n_items; i++)
            ds_verify__pattern(ck, literal_text(ck, &ops->items[i]), ops->items[i].loc);
        return check_section(ck, module, "group", attr->items, attr->n_items);
    }
    ds_verify__error(ck, DS_ERR_NAME, attr->loc, NULL,
                     "'%s \"%s\"': only a group of operations in 'strategy' has a name, as in "
                     "'group \"stem\" { ... }'",
                     attr->word, attr->name);
    return 1;
}

/* Checks a section; returns the number of unknown keys. */
static uint32_t check_section(ds_checker *ck, const ds_module *module, const char *section,
                              const ds_attr *entries, uint32_t n) {
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].labelled) {
            unknown += check_labelled(ck, module, section, &entries[i]);
            continue;
        }
        if (entries[i].quoted_name && strcmp(section, "ops") == 0) {
            ds_verify__override(ck, module, &entries[i]);
            continue;
        }
        const ds_knob *knob = knob_of(section, entries[i].name);
        if (!knob || entries[i].quoted_name) {
            unknown_key(ck, section, &entries[i]);
            unknown++;
            continue;
        }
        check_value(ck, module, knob, &entries[i]);
    }
    return unknown;
}

/* ---- the entry ---- */

static void refuse_weights(ds_checker *ck, const ds_func *entry, const ds_func *func,
                           const ds_block *block, ds_map *visited) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) refuse_weights(ck, entry, func, op->body, visited);
        if (op->code == DS_OP_WEIGHT && op->n_out)
            ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                             "weight %%%s in @%s%s%s: a program takes its weights as arguments; "
                             "functions with weights are run by 'model ='",
                             ds_value_at(func, op->out[0])->name, func->name,
                             func == entry ? ", which the scenario runs as a program"
                                           : ", which is called by the program @",
                             func == entry ? "" : entry->name);
        if (op->code != DS_OP_CALL || !op->callee || ds_map_find(visited, DS_KEY(op->callee)))
            continue;
        ds_map_put(visited, DS_KEY(op->callee), 1);
        refuse_weights(ck, entry, op->callee, &op->callee->body, visited);
    }
}

/* Checks the entry of a scenario, or of the job of that name. */
static void check_entry(ds_checker *ck, const ds_module *module, const ds_attr *entries, uint32_t n,
                        const char *job, ds_loc loc, bool has_unknown) {
    const ds_attr *program = ds_attr_find(entries, n, "program");
    const ds_attr *model = ds_attr_find(entries, n, "model");
    if (program && model) {
        ds_verify__error(ck, DS_ERR_NAME, program->loc, NULL,
                         "a %s has a 'model' or a 'program', not both", job ? "job" : "scenario");
        return;
    }
    const ds_attr *entry = program ? program : model;
    if (!entry && has_unknown) return; /* an unknown key may be a misspelt entry */
    if (!entry) {
        ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                         "%s%s%s says nothing to run: add 'model = @f' or 'program = @f'",
                         job ? "job '" : "the scenario", job ? job : "", job ? "'" : "");
        return;
    }
    if (entry->kind != DS_ATTR_PLACE) return;
    const ds_func *func = ds_find_func(module, entry->place.name);
    if (!func) return;
    if (ds_func_open(func))
        ds_verify__error(ck, DS_ERR_TYPE, entry->loc, NULL,
                         "@%s has %s, so it can only be called; run a function that calls it",
                         func->name, ds_func_open(func));
    if (!program) return;
    ds_map visited;
    ds_map_init(&visited);
    ds_map_put(&visited, DS_KEY(func), 1);
    refuse_weights(ck, func, func, &func->body, &visited);
    ds_map_deinit(&visited);
}

void ds_verify__scenario(ds_checker *ck, const ds_module *module) {
    if (!module->scenarios.n) return;
    const ds_scenario *scenario = &module->scenarios.at[0];
    uint32_t unknown = check_section(ck, module, "", scenario->entries, scenario->n_entries);
    if (!ds_attr_find(scenario->entries, scenario->n_entries, "jobs"))
        check_entry(ck, module, scenario->entries, scenario->n_entries, NULL, scenario->loc,
                    unknown > 0);
}

/* ---- jobs ---- */

static void check_job(ds_checker *ck, const ds_module *module, const ds_attr *job) {
    if (job->kind != DS_ATTR_BLOCK) {
        ds_verify__error(ck, DS_ERR_TYPE, job->loc, NULL,
                         "job '%s' must be a block '{ ... }' with its model or program", job->name);
        return;
    }
    uint32_t unknown = check_section(ck, module, "jobs", job->items, job->n_items);
    check_entry(ck, module, job->items, job->n_items, job->name, job->loc, unknown > 0);
}

/* Refuses a key beside `jobs` that each job sets for itself. */
static void check_jobs(ds_checker *ck, const ds_module *module, const ds_attr *jobs) {
    const ds_scenario *scenario = &module->scenarios.at[0];
    for (uint32_t i = 0; i < scenario->n_entries; i++)
        if (ds_scenario_is_job_key(scenario->entries[i].name))
            ds_verify__error(ck, DS_ERR_NAME, scenario->entries[i].loc, NULL,
                             "'%s' beside 'jobs': each job says its own",
                             scenario->entries[i].name);
    if (!jobs->n_items)
        ds_verify__error(ck, DS_ERR_VALUE, jobs->loc, NULL,
                         "'jobs' is empty: a job is a name and a block, as in "
                         "'train { model = @f }'");
    for (uint32_t i = 0; i < jobs->n_items; i++) check_job(ck, module, &jobs->items[i]);
}

/* ---- with numbers ---- */

static void check_number(ds_checker *ck, const ds_knob *knob) {
    ds_error err = {0};
    int64_t i = 0;
    double r = 0;
    const char *text = NULL;
    ds_status status = DS_OK;
    const ds_attr *attr = ds_scenario_find(ck->unit, knob->section, knob->name);
    if (!attr) return;
    if (knob->kind == DS_KNOB_QUANTITY && knob->dimension == 'T') {
        status = ds_scenario_ps(ck->binding, knob->section, knob->name, &i, &err);
    } else if (knob->kind == DS_KNOB_INT || knob->kind == DS_KNOB_QUANTITY) {
        status = ds_scenario_int(ck->binding, knob->section, knob->name, &i, &err);
    } else if (knob->kind == DS_KNOB_INTS && attr->kind == DS_ATTR_LIST) {
        for (uint32_t k = 0; k < attr->n_items && status == DS_OK; k++)
            status = ds_scenario_int_at(ck->binding, knob->section, knob->name, k, &i, &err);
    } else if (knob->kind == DS_KNOB_RANDOM) {
        ds_env env = ds_binding_env(ck->binding, NULL);
        ds_random random;
        status = ds_random_read(&env, attr, &random, &err);
    } else if (knob->kind == DS_KNOB_BOOL) {
        bool flag;
        status = ds_scenario_bool(ck->binding, knob->section, knob->name, &flag, &err);
    } else if (knob->kind == DS_KNOB_REAL) {
        status = ds_scenario_real(ck->binding, knob->section, knob->name, &r, &err);
    } else if (ds_knob_is_of_text(knob) && attr->kind != DS_ATTR_LIST &&
               attr->kind != DS_ATTR_PLACE) {
        status = ds_scenario_text(ck->binding, knob->section, knob->name, &text, &err);
    }
    if (status != DS_OK) {
        ds_verify__pass_on(ck, &err);
    } else if (knob->choices && knob->kind == DS_KNOB_INT) {
        check_choice(ck, knob, attr, ds_arena_printf(&ck->diags->arena, "%lld", (long long)i));
    } else if (ds_knob_choices(knob) && text) {
        check_choice(ck, knob, attr, text);
    }
}

static const char *const degrees[] = {"pp", "dp", "cp", "tp"};
enum { PP, DP, CP, TP, N_DEGREES };

static bool read_degrees(ds_checker *ck, int64_t size[N_DEGREES], int64_t *world) {
    *world = 1;
    for (uint32_t i = 0; i < N_DEGREES; i++) {
        size[i] = 1;
        if (ds_scenario_int(ck->binding, "strategy", degrees[i], &size[i], NULL) != DS_OK ||
            __builtin_mul_overflow(*world, size[i], world))
            return false;
    }
    return true;
}

/* "pp dp cp tp" in any order. */
static void check_order(ds_checker *ck) {
    const ds_attr *attr = ds_scenario_find(ck->unit, "strategy", "order");
    const char *text = NULL;
    if (!attr || ds_scenario_text(ck->binding, "strategy", "order", &text, NULL) != DS_OK) return;
    uint32_t seen = 0, n = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " "), n++) {
        size_t length = strcspn(at, " ");
        for (uint32_t i = 0; i < N_DEGREES; i++)
            if (strlen(degrees[i]) == length && memcmp(at, degrees[i], length) == 0)
                seen |= UINT32_C(1) << i;
        at += length;
    }
    if (n == N_DEGREES && seen == (UINT32_C(1) << N_DEGREES) - 1) return;
    ds_verify__error(ck, DS_ERR_VALUE, attr->loc, NULL,
                     "'order' is \"%s\"; it must list pp, dp, cp and tp once each, from outer to "
                     "inner, as in \"pp dp cp tp\"",
                     text);
}

static const char *divisors_near(ds_checker *ck, int64_t n, int64_t near) {
    ds_buf text = {0};
    ds_put_near_divisors(n, near, &text);
    const char *kept = ds_arena_strdup(&ck->diags->arena, text.text);
    ds_buf_deinit(&text);
    return kept;
}

static void check_zero_group(ds_checker *ck, const int64_t size[N_DEGREES]) {
    int64_t group = 1;
    const ds_attr *attr = ds_scenario_find(ck->unit, "strategy", "zero_group");
    if (!attr || ds_scenario_int(ck->binding, "strategy", "zero_group", &group, NULL) != DS_OK ||
        size[DP] % group == 0)
        return;
    ds_verify__error(ck, DS_ERR_VALUE, attr->loc, NULL,
                     "zero_group = %lld does not divide dp = %lld: groups of neighbouring replicas "
                     "share out the state; zero_group = %s divides dp",
                     (long long)group, (long long)size[DP], divisors_near(ck, size[DP], group));
}

/* Checks ep. With sequence parallelism the devices of tp have tokens of their own, so ep may span
 * tp as a whole. */
static void check_ep(ds_checker *ck, const int64_t size[N_DEGREES]) {
    int64_t ep = 1, groups = size[DP] * size[CP];
    bool sp = false;
    if (ds_scenario_int(ck->binding, "strategy", "ep", &ep, NULL) != DS_OK || groups % ep == 0)
        return;
    if (ds_scenario_bool(ck->binding, "strategy", "sp", &sp, NULL) != DS_OK) return;
    if (sp && ep == groups * size[TP]) return;
    ds_verify__error(ck, DS_ERR_VALUE, ds_scenario_find(ck->unit, "strategy", "ep")->loc, NULL,
                     "ep = %lld does not divide dp * cp = %lld: experts are split over the devices "
                     "of data and context parallelism; ep = %s divides dp * cp",
                     (long long)ep, (long long)groups, divisors_near(ck, groups, ep));
}

/* An explicit mesh must agree with the degrees that the strategy spells out. */
static void check_mesh_agrees(ds_checker *ck, const int64_t size[N_DEGREES]) {
    const ds_mesh *mesh = ds_scenario_mesh(ck->unit);
    if (!mesh) return;
    int64_t *sizes = DS_NEW_N(&ck->unit->arena, int64_t, mesh->n_axes + 1);
    if (ds_mesh_axis_sizes(ck->binding, mesh, sizes, NULL) != DS_OK) return;
    for (uint32_t i = 0; i < N_DEGREES; i++) {
        const ds_attr *degree = ds_scenario_find(ck->unit, "strategy", degrees[i]);
        int64_t on_mesh = 1;
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (strcmp(mesh->axes[a].name, degrees[i]) == 0) on_mesh = sizes[a];
        if (degree && on_mesh != size[i])
            ds_verify__error(ck, DS_ERR_VALUE, degree->loc, NULL,
                             "the strategy says %s = %lld, but on mesh @%s the axis has size %lld",
                             degrees[i], (long long)size[i], mesh->name, (long long)on_mesh);
    }
}

/* Checks that the devices exist. A strategy may leave devices idle, and takes the first devices in
 * order of declaration. */
static void check_world(ds_checker *ck) {
    const ds_topology *topology = ds_scenario_topology(ck->unit);
    const ds_attr *strategy = ds_scenario_find(ck->unit, "", "strategy");
    int64_t size[N_DEGREES], world, devices;
    if (!ds_scenario_model(ck->unit) || !strategy || !read_degrees(ck, size, &world)) return;
    check_ep(ck, size);
    check_zero_group(ck, size);
    check_mesh_agrees(ck, size);
    if (!topology || ds_topology_count_devices(ck->binding, topology, &devices, NULL) != DS_OK ||
        world <= devices)
        return;
    int64_t rest = size[DP] ? world / size[DP] : 1;
    const char *fix =
        rest <= devices
            ? ds_arena_printf(&ck->diags->arena, "dp = %lld fits", (long long)(devices / rest))
            : ds_arena_printf(&ck->diags->arena, "pp * cp * tp = %lld alone is more: lower one",
                              (long long)rest);
    ds_verify__error(
        ck, DS_ERR_VALUE, strategy->loc, fix,
        "the strategy uses pp * dp * cp * tp = %lld * %lld * %lld * %lld = %lld devices, "
        "and @%s has %lld",
        (long long)size[PP], (long long)size[DP], (long long)size[CP], (long long)size[TP],
        (long long)world, topology->name, (long long)devices);
}

static void check_scenario(ds_checker *ck) {
    uint32_t n;
    const ds_knob *all = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) check_number(ck, &all[i]);
    check_order(ck);
    check_world(ck);
}

/* Numbers below their least are refused with the others. */
static void check_tokens(ds_checker *ck) {
    static const char *const numbers[] = {"prompt", "batch"};
    ds_tokens tokens;
    ds_error err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        int64_t n;
        if (ds_scenario_int(ck->binding, "tokens", numbers[i], &n, NULL) != DS_OK) return;
    }
    if (ds_tokens_read(ck->binding, &tokens, &err) != DS_OK) ds_verify__pass_on(ck, &err);
}

/* Checks each job as a scenario of its own. */
void ds_verify__scenario_bound(ds_checker *ck) {
    uint32_t n = ds_scenario_n_jobs(ck->unit);
    check_tokens(ck);
    if (!n) check_scenario(ck);
    for (uint32_t j = 0; j < n; j++) {
        int64_t start_ps, steps;
        ds_error err = {0};
        if (ds_scenario_job_times(ck->binding, j, &start_ps, &steps, &err) != DS_OK)
            ds_verify__pass_on(ck, &err);
        ds_scenario all = *ds_unit_scenario(ck->unit), job = ds_scenario_of_job(ck->unit, j);
        ds_scenario_restore(ck->unit, &job);
        check_scenario(ck);
        ds_scenario_restore(ck->unit, &all);
    }
}
