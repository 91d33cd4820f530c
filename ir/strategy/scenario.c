/* The entries of a scenario: found, put, read as values. */
#include "ir/strategy/scenario.h"

#include "ir/base/units.h"
#include "ir/core/rec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Of a mesh of a mesh; beyond, or in a circle, a mesh has no topology here. Assumed: nobody needs
 * more. */
#define MAX_VIEWS 64

const ds_scenario *ds_unit_scenario(const ds_unit *unit) {
    const ds_module *root = unit->modules.n ? unit->modules.at[0] : NULL;
    return root && root->scenarios.n ? &root->scenarios.at[0] : NULL;
}

static const ds_attr *find_entry(const ds_attr *attrs, uint32_t n, const char *name, bool quoted) {
    for (uint32_t i = 0; i < n; i++)
        if (attrs[i].name && attrs[i].quoted_name == quoted && strcmp(attrs[i].name, name) == 0)
            return &attrs[i];
    return NULL;
}

static const ds_attr *find_bare(const ds_attr *attrs, uint32_t n, const char *name) {
    return find_entry(attrs, n, name, false);
}

const ds_attr *ds_scenario_find(const ds_unit *unit, const char *section, const char *name) {
    const ds_scenario *scenario = ds_unit_scenario(unit);
    if (!scenario) return NULL;
    if (!*section) return find_bare(scenario->entries, scenario->n_entries, name);
    const ds_attr *block = find_bare(scenario->entries, scenario->n_entries, section);
    return block && block->kind == DS_ATTR_BLOCK ? find_bare(block->items, block->n_items, name)
                                                 : NULL;
}

/* A copy of `attrs` in which `entry` stands for the one of its name, or last. */
static void put_entry(ds_arena *arena, ds_attr **attrs, uint32_t *n, const ds_attr *entry) {
    const ds_attr *old = find_entry(*attrs, *n, entry->name, entry->quoted_name);
    uint32_t at = old ? (uint32_t)(old - *attrs) : *n;
    ds_attr *fresh = DS_NEW_N(arena, ds_attr, *n + 1);
    if (*n) memcpy(fresh, *attrs, *n * sizeof *fresh);
    fresh[at] = *entry;
    *attrs = fresh;
    if (!old) ++*n;
}

void ds_scenario_set(ds_unit *unit, const char *section, const char *name, ds_attr entry) {
    const ds_attr *old = ds_scenario_find(unit, section, name);
    entry.loc = old ? old->loc : unit->modules.at[0]->scenarios.at[0].loc;
    ds_scenario_say(unit, &section, *section ? 1 : 0, name, entry);
}

/* The block of that name among `attrs`; a new one if there is none. */
static ds_attr block_among(ds_unit *unit, const ds_attr *attrs, uint32_t n, const char *name) {
    const ds_attr *block = find_bare(attrs, n, name);
    ds_attr fresh = {.kind = DS_ATTR_BLOCK, .loc = ds_unit_scenario(unit)->loc};
    if (block && block->kind == DS_ATTR_BLOCK) fresh = *block;
    fresh.name = ds_intern(&unit->strings, name);
    return fresh;
}

void ds_scenario_say(ds_unit *unit, const char *const *blocks, uint32_t n, const char *name,
                     ds_attr entry) {
    enum { MOST = 3 };
    ds_scenario *scenario = &unit->modules.at[0]->scenarios.at[0];
    ds_attr path[MOST] = {0};
    assert(n <= MOST);
    for (uint32_t i = 0; i < n; i++)
        path[i] = i ? block_among(unit, path[i - 1].items, path[i - 1].n_items, blocks[i])
                    : block_among(unit, scenario->entries, scenario->n_entries, blocks[i]);
    entry.name = ds_intern(&unit->strings, name);
    for (uint32_t i = n; i-- > 0;) {
        put_entry(&unit->arena, &path[i].items, &path[i].n_items, &entry);
        entry = path[i];
    }
    put_entry(&unit->arena, &scenario->entries, &scenario->n_entries, &entry);
}

void ds_scenario_restore(ds_unit *unit, const ds_scenario *old) {
    unit->modules.at[0]->scenarios.at[0] = *old;
}

static const char *place_name(const ds_unit *unit, const char *entry) {
    const ds_attr *attr = ds_scenario_find(unit, "", entry);
    return attr && attr->kind == DS_ATTR_PLACE ? attr->place.name : NULL;
}

static ds_func *func_of(const ds_unit *unit, const char *entry) {
    const char *name = place_name(unit, entry);
    return name ? ds_find_func(unit->modules.at[0], name) : NULL;
}

bool ds_scenario_is_program(const ds_unit *unit) {
    const ds_func *func = func_of(unit, "program");
    return ds_scenario_find(unit, "", "program") && !(func && ds_rec_in(func, true));
}

ds_func *ds_scenario_program_func(const ds_unit *unit) {
    return ds_scenario_is_program(unit) ? func_of(unit, "program") : NULL;
}

ds_func *ds_scenario_model(const ds_unit *unit) {
    ds_func *model = func_of(unit, "model");
    return model || ds_scenario_is_program(unit) ? model : func_of(unit, "program");
}

ds_program *ds_scenario_ranks(const ds_unit *unit) {
    const char *name = place_name(unit, "program");
    return name ? ds_find_program(unit->modules.at[0], name) : NULL;
}

ds_mesh *ds_scenario_mesh(const ds_unit *unit) {
    const char *name = place_name(unit, "mesh");
    if (name) return ds_find_mesh(unit->modules.at[0], name);
    bool program = place_name(unit, "program") != NULL;
    return program && unit->modules.at[0]->meshes.n == 1 ? unit->modules.at[0]->meshes.at[0] : NULL;
}

ds_topology *ds_scenario_topology(const ds_unit *unit) {
    const char *name = place_name(unit, "on");
    return name ? ds_find_topology(unit->modules.at[0], name) : NULL;
}

const ds_topology *ds_scenario_devices(const ds_unit *unit) {
    const ds_module *root = unit->modules.at[0];
    const ds_topology *on = ds_scenario_topology(unit);
    const ds_mesh *mesh = on ? NULL : ds_scenario_mesh(unit);
    for (uint32_t i = 0; mesh && mesh->kind != DS_MESH_ON && i < MAX_VIEWS; i++)
        mesh = ds_find_mesh(mesh->module, mesh->base);
    if (mesh && mesh->kind == DS_MESH_ON) on = ds_find_topology(mesh->module, mesh->base);
    return on || root->topologies.n != 1 ? on : root->topologies.at[0];
}

/* "strategy: tp" or "batch", for messages. */
static const char *path_text(const char *section, const char *name, char text[64]) {
    snprintf(text, 64, "%s%s%s", section, *section ? "." : "", name);
    return text;
}

/* Counts of devices, stages, runs and steps have 31 bits, so that products of two fit. */
static bool is_count(const ds_knob *knob) {
    return *knob->section && (knob->kind == DS_KNOB_INT || knob->kind == DS_KNOB_INTS);
}

static ds_status check_range(const char *section, const char *name, double value, ds_loc loc,
                             ds_error *err) {
    const ds_knob *knob = ds_scenario_knob(section, name);
    char path[64];
    if (!knob) return DS_OK;
    if (value < (double)knob->min)
        return ds_error_set(err, DS_ERR_VALUE, loc, "'%s' is %.12g; it must be at least %lld",
                            path_text(section, name, path), value, (long long)knob->min);
    if (is_count(knob) && value > INT32_MAX)
        return ds_error_set(err, DS_ERR_VALUE, loc, "'%s' is %.12g; it must be at most %d",
                            path_text(section, name, path), value, INT32_MAX);
    return DS_OK;
}

static ds_status wrong_kind(const char *section, const char *name, ds_loc loc, const char *needed,
                            ds_error *err) {
    char path[64];
    return ds_error_set(err, DS_ERR_TYPE, loc, "'%s' must be %s", path_text(section, name, path),
                        needed);
}

ds_status ds_scenario_int_of(const ds_binding *binding, const ds_attr *attr, const char *section,
                             const char *name, int64_t *out, ds_error *err) {
    ds_env env = ds_binding_env(binding, NULL);
    if (attr->kind == DS_ATTR_QUANTITY)
        return ds_quantity_eval(&env, (ds_quantity){attr->expr, attr->unit},
                                ds_unit_dimension(attr->unit), 1.0, attr->loc, out, err);
    if (attr->kind != DS_ATTR_EXPR) return wrong_kind(section, name, attr->loc, "an integer", err);
    int64_t value;
    DS_TRY(ds_expr_eval_int(&env, attr->expr, attr->loc, &value, err));
    DS_TRY(check_range(section, name, (double)value, attr->loc, err));
    *out = value;
    return DS_OK;
}

ds_status ds_scenario_int(const ds_binding *binding, const char *section, const char *name,
                          int64_t *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    return attr ? ds_scenario_int_of(binding, attr, section, name, out, err) : DS_OK;
}

ds_status ds_scenario_int_at(const ds_binding *binding, const char *section, const char *name,
                             uint32_t index, int64_t *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    if (attr->kind == DS_ATTR_LIST) attr = &attr->items[index];
    return ds_scenario_int_of(binding, attr, section, name, out, err);
}

ds_status ds_scenario_ps(const ds_binding *binding, const char *section, const char *name,
                         int64_t *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    if (attr->kind != DS_ATTR_QUANTITY || ds_unit_dimension(attr->unit) != 'T')
        return wrong_kind(section, name, attr->loc, "a time, as in 3 ms", err);
    ds_env env = ds_binding_env(binding, NULL);
    return ds_quantity_eval(&env, (ds_quantity){attr->expr, attr->unit}, 'T', 1e12, attr->loc, out,
                            err);
}

ds_status ds_scenario_real(const ds_binding *binding, const char *section, const char *name,
                           double *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    if (attr->kind != DS_ATTR_EXPR) return wrong_kind(section, name, attr->loc, "a number", err);
    ds_env env = ds_binding_env(binding, NULL);
    double value;
    DS_TRY(ds_expr_eval_real(&env, attr->expr, attr->loc, &value, err));
    DS_TRY(check_range(section, name, value, attr->loc, err));
    *out = value;
    return DS_OK;
}

ds_status ds_scenario_text_of(const ds_binding *binding, const ds_attr *attr, const char *section,
                              const char *name, const char **out, ds_error *err) {
    if (attr->kind == DS_ATTR_WORD) {
        *out = attr->word;
        return DS_OK;
    }
    ds_env env = ds_binding_env(binding, NULL);
    ds_num value = {0};
    if (attr->kind == DS_ATTR_EXPR) DS_TRY(ds_expr_eval(&env, attr->expr, attr->loc, &value, err));
    if (attr->kind != DS_ATTR_EXPR || value.kind != DS_NUM_STR)
        return wrong_kind(section, name, attr->loc, "a text", err);
    *out = value.s;
    return DS_OK;
}

ds_status ds_scenario_text(const ds_binding *binding, const char *section, const char *name,
                           const char **out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    return attr ? ds_scenario_text_of(binding, attr, section, name, out, err) : DS_OK;
}

static bool is_word(const ds_attr *attr, const char *word) {
    return attr->kind == DS_ATTR_WORD && strcmp(attr->word, word) == 0;
}

ds_status ds_scenario_bool(const ds_binding *binding, const char *section, const char *name,
                           bool *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    ds_env env = ds_binding_env(binding, NULL);
    ds_num value = {.kind = DS_NUM_STR};
    if (attr->kind == DS_ATTR_EXPR) DS_TRY(ds_expr_eval(&env, attr->expr, attr->loc, &value, err));
    if (value.kind == DS_NUM_INT && (value.i == 0 || value.i == 1)) {
        *out = value.i;
    } else if (attr->kind == DS_ATTR_BOOL) {
        *out = attr->flag;
    } else if (is_word(attr, "on") || is_word(attr, "off")) {
        *out = is_word(attr, "on");
    } else {
        return wrong_kind(section, name, attr->loc, "true or false", err);
    }
    return DS_OK;
}

uint32_t ds_scenario_text_count(const ds_unit *unit, const char *section, const char *name) {
    const ds_attr *attr = ds_scenario_find(unit, section, name);
    if (!attr) return 0;
    return attr->kind == DS_ATTR_LIST ? attr->n_items : 1;
}

ds_status ds_scenario_text_at(const ds_binding *binding, const char *section, const char *name,
                              uint32_t index, const char **out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    if (attr->kind == DS_ATTR_LIST) attr = &attr->items[index];
    return ds_scenario_text_of(binding, attr, section, name, out, err);
}
