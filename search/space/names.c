/* The names in the expressions of a sweep, and how their values are kept up to date.
 *
 * An expression names dimensions, params, knobs and results. Each name has a level, the
 * number of dimensions that must be set before its value is known, and a recipe that makes the
 * value from values of the same or a lower level. Recipes are collected depth first, so a recipe
 * comes after all recipes that it needs. When a dimension is set, the recipes of its level run in
 * that order. A recipe without a value for the present dimensions (a division by zero) is gone
 * until a dimension changes, and so is every recipe that needs that value. */
#include "search/space/frame.h"

#include "ir/core/devices.h"
#include "ir/lang/mentions.h"

#include <string.h>

/* Params made from params, and topologies nested in topologies: each level is a few calls deep. */
enum { MAX_DEPTH = 1000 };

ds_env ds_space_env(const ds_space *space, const ds_frame *frame) {
    return (ds_env){.exprs = &space->unit->exprs,
                    .params = (const ds_num *const *)frame->params,
                    .named = frame->named,
                    .n_named = space->names.n};
}

static void raise(ds_level *level, ds_level other) {
    if (other > *level) *level = other;
}

static void add_recipe(ds_space *s, ds_recipe recipe) {
    DS_PUSH(&s->arena, &s->recipes, recipe);
}

/* ---- params ---- */

static ds_status param_level(ds_space *s, uint32_t module, uint32_t param, ds_level *level,
                             ds_error *err);

static bool is_set_outside(const ds_space *s, const ds_module *module, uint32_t param) {
    for (uint32_t i = 0; i < s->n_settings; i++) {
        const ds_module *of;
        uint32_t index;
        if (ds_find_param(s->unit, s->settings[i].path, &of, &index) && of == module &&
            index == param)
            return true;
    }
    return false;
}

/* The `with` that gives the param its value; NULL: no `with` does. */
static const ds_attr *find_with(const ds_space *s, const ds_module *module, uint32_t param) {
    for (uint32_t m = 0; m < s->unit->modules.n; m++) {
        const ds_module *importer = s->unit->modules.at[m];
        for (uint32_t i = 0; i < importer->imports.n; i++) {
            const ds_import *import = &importer->imports.at[i];
            for (uint32_t k = 0; import->module && k < import->n_with; k++) {
                const ds_module *of;
                uint32_t index;
                if (ds_find_param_from(import->module, import->with[k].name, &of, &index) &&
                    of == module && index == param)
                    return &import->with[k];
            }
        }
    }
    return NULL;
}

static ds_status derive_param(ds_space *s, const ds_module *module, uint32_t param, ds_level *level,
                              ds_error *err) {
    const ds_param *decl = &module->params.at[param];
    ds_recipe recipe = {.kind = DS_RECIPE_PARAM,
                        .module = module->id,
                        .param = param,
                        .expr = decl->init,
                        .loc = decl->loc};
    if (is_set_outside(s, module, param)) return DS_OK;
    const ds_attr *with = find_with(s, module, param);
    if (with && with->kind != DS_ATTR_EXPR) return DS_OK;
    if (with) {
        recipe.expr = with->expr;
        recipe.loc = with->loc;
    }
    DS_TRY(ds_space_level(s, recipe.expr, recipe.loc, level, err));
    recipe.level = *level;
    if (*level) add_recipe(s, recipe);
    return DS_OK;
}

static ds_status param_level(ds_space *s, uint32_t module, uint32_t param, ds_level *level,
                             ds_error *err) {
    uint64_t key = (uint64_t)module << 32 | param;
    const uint64_t *known = ds_map_find(&s->param_levels, key);
    *level = 0;
    if (known) {
        *level = (ds_level)*known;
        return DS_OK;
    }
    const ds_module *of = s->unit->modules.at[module];
    for (uint32_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i].target.module == of && s->dims.at[i].target.param == param)
            *level = i + 1;
    if (!*level) {
        if (s->depth == MAX_DEPTH)
            return ds_error_set(err, DS_ERR_LIMIT, of->params.at[param].loc,
                                "param '%s' is at the end of a chain of more than %d that are made "
                                "from each other",
                                of->params.at[param].name, MAX_DEPTH);
        s->depth++;
        ds_status status = derive_param(s, of, param, level, err);
        s->depth--;
        DS_TRY(status);
    }
    ds_map_put(&s->param_levels, key, *level);
    return DS_OK;
}

/* ---- world ---- */

/* Visits each topology once, however often other topologies nest that topology. `seen` stops
 * circles, too; counting devices refuses a circle later. */
static ds_status topology_level(ds_space *s, const ds_topology *topology, ds_map *seen,
                                ds_level *level, ds_error *err) {
    if (!topology || ds_map_find(seen, DS_KEY(topology))) return DS_OK;
    ds_map_put(seen, DS_KEY(topology), 1);
    if (seen->n > MAX_DEPTH)
        return ds_error_set(err, DS_ERR_LIMIT, topology->loc,
                            "more than %d topologies are nested in each other", MAX_DEPTH);
    for (uint32_t i = 0; i < topology->nodes.n; i++) {
        const ds_node_decl *node = &topology->nodes.at[i];
        ds_level of = 0;
        if (DS_HAS_EXPR(node->count)) DS_TRY(ds_space_level(s, node->count, node->loc, &of, err));
        raise(level, of);
        if (node->kind == DS_NODE_INSTANCE)
            DS_TRY(topology_level(s, ds_find_topology(topology->module, node->type_name), seen,
                                  level, err));
    }
    return DS_OK;
}

static uint32_t on_dim(const ds_space *s) {
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_knob *knob = s->dims.at[i].target.knob;
        if (knob && !*knob->section && strcmp(knob->name, "on") == 0) return i;
    }
    return UINT32_MAX;
}

static ds_status find_world_level(ds_space *s, ds_loc loc, ds_map *seen, ds_level *level,
                                  ds_error *err) {
    uint32_t on = on_dim(s);
    if (on == UINT32_MAX) {
        const ds_topology *topology = ds_scenario_topology(s->unit);
        if (!topology && !ds_scenario_mesh(s->unit))
            return ds_error_set(err, DS_ERR_VALUE, loc,
                                "'world' is the number of devices of the topology that the "
                                "scenario runs on, and it names none: say on = @topology");
        return topology_level(s, topology, seen, level, err);
    }
    *level = on + 1;
    const ds_attr *list = &s->dims.at[on].entry->list;
    for (uint32_t i = 0; i < list->n_items; i++) {
        const char *name = list->items[i].place.name;
        const ds_topology *topology = ds_find_topology(s->unit->modules.at[0], name);
        DS_TRY(topology_level(s, topology, seen, level, err));
    }
    return DS_OK;
}

static ds_status world_level(ds_space *s, ds_loc loc, ds_level *level, ds_error *err) {
    ds_map seen;
    ds_map_init(&seen);
    ds_status status = find_world_level(s, loc, &seen, level, err);
    ds_map_deinit(&seen);
    return status;
}

/* `named` holds the name of the topology where `on` varies. */
static ds_status count_world(const ds_space *s, const ds_frame *frame, int64_t *out,
                             ds_error *err) {
    ds_binding binding = {s->unit, frame->params};
    const ds_topology *topology = ds_scenario_topology(s->unit);
    uint32_t on = on_dim(s);
    const char *name = NULL;
    for (uint32_t i = 0; on != UINT32_MAX && i < s->names.n; i++)
        if (s->names.at[i] == s->dims.at[on].target.bare) name = frame->named[i].value.s;
    if (name) topology = ds_find_topology(s->unit->modules.at[0], name);
    if (topology) return ds_topology_count_devices(&binding, topology, out, err);
    const ds_mesh *mesh =
        name ? ds_find_mesh(s->unit->modules.at[0], name) : ds_scenario_mesh(s->unit);
    if (mesh) return ds_mesh_count_devices(&binding, mesh, out, err);
    return ds_error_set(err, DS_ERR_VALUE, s->sweep->loc, "'world' has no value");
}

/* ---- names ---- */

static uint32_t add_name(ds_space *s, const char *name, ds_level level, ds_num value) {
    DS_PUSH(&s->arena, &s->names, name);
    DS_PUSH(&s->arena, &s->name_levels, level);
    ds_frame *frames[] = {&s->walk, &s->judge, &s->region};
    for (int f = 0; f < 3; f++) {
        ds_named *fresh = DS_NEW_N(&s->arena, ds_named, s->names.n);
        if (s->names.n > 1) memcpy(fresh, frames[f]->named, (s->names.n - 1) * sizeof *fresh);
        fresh[s->names.n - 1] = (ds_named){name, value};
        frames[f]->named = fresh;
    }
    return s->names.n - 1;
}

static ds_status no_value(const char *name, const char *why, ds_loc loc, ds_error *err) {
    return ds_error_set(err, DS_ERR_VALUE, loc, "'%s' has no value in a sweep: %s", name, why);
}

/* The scenario's value of a knob; an integer or bool that is not given has its least value. */
static ds_status knob_name(ds_space *s, const ds_knob *knob, const char *name, ds_loc loc,
                           uint32_t *place, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(s->unit, knob->section, knob->name);
    ds_num value = {.kind = DS_NUM_INT, .i = knob->min};
    if (!attr && knob->kind != DS_KNOB_INT && knob->kind != DS_KNOB_BOOL)
        return no_value(name, "the scenario does not say it, and it does not vary", loc, err);
    if (attr && attr->kind == DS_ATTR_EXPR) {
        ds_recipe recipe = {.kind = DS_RECIPE_EXPR, .expr = attr->expr, .loc = attr->loc};
        DS_TRY(ds_space_level(s, attr->expr, attr->loc, &recipe.level, err));
        recipe.index = *place = add_name(s, name, recipe.level, value);
        add_recipe(s, recipe);
        return DS_OK;
    }
    if (attr && !ds_knob_value(knob, NULL, attr, &value))
        return no_value(name, "what the scenario says is neither a number nor a text", loc, err);
    *place = add_name(s, name, 0, value);
    return DS_OK;
}

static ds_status price_name(ds_space *s, const char *name, ds_loc loc, uint32_t *place,
                            ds_error *err) {
    ds_recipe recipe = {.kind = DS_RECIPE_PRICE, .loc = loc};
    uint32_t world;
    DS_TRY(ds_space_name(s, ds_intern(&s->unit->strings, "world"), loc, &world, err));
    recipe.param = world;
    recipe.level = s->name_levels.at[world];
    if (s->price_entry) {
        ds_level of;
        recipe.expr = s->price_entry->a;
        recipe.loc = s->price_entry->loc;
        DS_TRY(ds_space_level(s, recipe.expr, recipe.loc, &of, err));
        raise(&recipe.level, of);
        if (of > s->dims.n)
            return ds_error_set(err, DS_ERR_VALUE, recipe.loc,
                                "a price cannot look at what is simulated");
    }
    recipe.index = *place = add_name(s, name, recipe.level, (ds_num){.kind = DS_NUM_REAL});
    add_recipe(s, recipe);
    s->price = *place;
    return DS_OK;
}

static ds_status metric_name(ds_space *s, ds_metric_id metric, const char *name, ds_loc loc,
                             uint32_t *place, ds_error *err) {
    if (metric == DS_METRIC_world) {
        ds_recipe recipe = {.kind = DS_RECIPE_WORLD, .loc = loc};
        uint32_t on = on_dim(s), unused;
        if (on != UINT32_MAX)
            DS_TRY(ds_space_name(s, s->dims.at[on].target.bare, loc, &unused, err));
        DS_TRY(world_level(s, loc, &recipe.level, err));
        recipe.index = *place = add_name(s, name, recipe.level, (ds_num){.kind = DS_NUM_INT});
        add_recipe(s, recipe);
        s->world = *place;
        return DS_OK;
    }
    if (ds_metric_at(metric)->place == DS_AMONG_TOKENS && !ds_space_has_tokens(s))
        return ds_error_set(err, DS_ERR_VALUE, loc,
                            "%s is of tokens: the scenario says which dim counts tokens by tokens "
                            "{ dim = t, prompt = P, batch = B }",
                            name);
    if (metric == DS_METRIC_cost_per_hour) return price_name(s, name, loc, place, err);
    *place = add_name(s, name, s->dims.n + 1, (ds_num){.kind = DS_NUM_REAL});
    s->simulated[metric] = *place;
    return DS_OK;
}

/* Dimensions first, then params, results, knobs. */
ds_status ds_space_name(ds_space *s, const char *name, ds_loc loc, uint32_t *place, ds_error *err) {
    for (uint32_t i = 0; i < s->names.n; i++) {
        if (s->names.at[i] != name) continue;
        *place = i;
        return DS_OK;
    }
    for (uint32_t i = 0; i < s->dims.n; i++) {
        if (s->dims.at[i].target.bare != name) continue;
        *place = add_name(s, name, i + 1, (ds_num){.kind = DS_NUM_INT});
        return DS_OK;
    }
    const ds_module *module;
    uint32_t param;
    if (ds_find_param(s->unit, name, &module, &param)) {
        ds_recipe recipe = {
            .kind = DS_RECIPE_COPY, .module = module->id, .param = param, .loc = loc};
        DS_TRY(param_level(s, module->id, param, &recipe.level, err));
        recipe.index = *place = add_name(s, name, recipe.level, (ds_num){.kind = DS_NUM_INT});
        add_recipe(s, recipe);
        return DS_OK;
    }
    ds_metric_id metric = ds_metric_by_name(name);
    if (metric < DS_METRIC_COUNT) return metric_name(s, metric, name, loc, place, err);
    const ds_knob *knob = ds_scenario_knob("strategy", name);
    if (!knob) knob = ds_scenario_knob("train", name);
    if (knob) return knob_name(s, knob, name, loc, place, err);
    return ds_error_set(err, DS_ERR_NAME, loc, "unknown name '%s' in the sweep", name);
}

/* ---- expressions ---- */

static ds_status node_level(ds_space *s, const ds_expr_node *node, ds_loc loc, ds_level *level,
                            ds_error *err) {
    *level = 0;
    if (node->kind == DS_EXPR_PARAM)
        return param_level(s, (uint32_t)(node->i >> 32), (uint32_t)node->i, level, err);
    if (node->kind != DS_EXPR_INDEX) return DS_OK;
    uint32_t place;
    DS_TRY(ds_space_name(s, node->name, loc, &place, err));
    *level = s->name_levels.at[place];
    return DS_OK;
}

/* A stack in place of recursion, since an expression may be deep. O(nodes). */
ds_status ds_space_level(ds_space *s, ds_expr e, ds_loc loc, ds_level *level, ds_error *err) {
    DS_VEC(ds_expr) todo = {0};
    ds_map seen;
    ds_map_init(&seen);
    ds_status status = DS_OK;
    *level = 0;
    ds_arena scratch;
    ds_arena_init(&scratch);
    DS_PUSH(&scratch, &todo, e);
    while (todo.n && status == DS_OK) {
        ds_expr at = todo.at[--todo.n];
        if (!DS_HAS_EXPR(at) || ds_map_find(&seen, at.i)) continue;
        ds_map_put(&seen, at.i, 1);
        ds_expr_node node = *ds_expr_at(&s->unit->exprs, at);
        ds_level of;
        status = node_level(s, &node, loc, &of, err);
        if (status == DS_OK) raise(level, of);
        DS_PUSH(&scratch, &todo, node.a);
        DS_PUSH(&scratch, &todo, node.b);
    }
    ds_arena_deinit(&scratch);
    ds_map_deinit(&seen);
    return status;
}

/* ---- values ---- */

/* An integer sets a real param, too, as with --set. */
static void put_param(const ds_space *s, ds_frame *frame, uint32_t module, uint32_t param,
                      ds_num value) {
    bool widen = s->base->params[module][param].kind == DS_NUM_REAL && value.kind == DS_NUM_INT;
    if (widen) value = (ds_num){.kind = DS_NUM_REAL, .r = (double)value.i};
    frame->params[module][param] = value;
}

static ds_status cook(const ds_space *s, ds_frame *frame, const ds_recipe *recipe, ds_error *err) {
    ds_env env = ds_space_env(s, frame);
    ds_num value = {.kind = DS_NUM_INT};
    double price = 1;
    switch (recipe->kind) {
    case DS_RECIPE_PARAM:
        DS_TRY(ds_expr_eval(&env, recipe->expr, recipe->loc, &value, err));
        put_param(s, frame, recipe->module, recipe->param, value);
        return DS_OK;
    case DS_RECIPE_EXPR:
        DS_TRY(ds_expr_eval(&env, recipe->expr, recipe->loc, &value, err));
        break;
    case DS_RECIPE_COPY:
        value = frame->params[recipe->module][recipe->param];
        break;
    case DS_RECIPE_WORLD:
        DS_TRY(count_world(s, frame, &value.i, err));
        break;
    case DS_RECIPE_PRICE:
        if (DS_HAS_EXPR(recipe->expr))
            DS_TRY(ds_expr_eval_real(&env, recipe->expr, recipe->loc, &price, err));
        value =
            (ds_num){.kind = DS_NUM_REAL, .r = price * (double)frame->named[recipe->param].value.i};
        break;
    }
    frame->named[recipe->index].value = value;
    return DS_OK;
}

/* ---- recipes without a value ---- */

/* Does recipe r make the value that the leaf names? */
static bool makes(const ds_space *s, const ds_recipe *r, const ds_expr_node *leaf) {
    if (leaf->kind == DS_EXPR_PARAM)
        return r->kind == DS_RECIPE_PARAM &&
               (int64_t)((uint64_t)r->module << 32 | r->param) == leaf->i;
    return r->kind != DS_RECIPE_PARAM && s->names.at[r->index] == leaf->name;
}

typedef struct search {
    const ds_space *s;
    const ds_frame *frame;
    bool found;
} search;

static void find_gone(void *context, const ds_expr_node *leaf) {
    search *it = context;
    for (uint32_t i = 0; i < it->frame->gone.n && !it->found; i++)
        it->found = makes(it->s, &it->s->recipes.at[it->frame->gone.at[i]], leaf);
}

static bool looks_at_gone(const ds_space *s, const ds_frame *frame, ds_expr e) {
    search it = {s, frame, false};
    if (frame->gone.n) ds_mentions_expr(&s->unit->exprs, e, find_gone, &it);
    return it.found;
}

static bool needs_gone(const ds_space *s, const ds_frame *frame, const ds_recipe *recipe) {
    ds_expr_node leaf = {.kind = DS_EXPR_PARAM};
    search it = {s, frame, false};
    if (!frame->gone.n) return false;
    for (uint32_t m = 0; recipe->kind == DS_RECIPE_WORLD && m < s->unit->modules.n; m++)
        ds_mentions_devices(s->unit->modules.at[m], find_gone, &it);
    if (recipe->kind == DS_RECIPE_COPY)
        leaf.i = (int64_t)((uint64_t)recipe->module << 32 | recipe->param);
    if (recipe->kind == DS_RECIPE_PRICE)
        leaf = (ds_expr_node){.kind = DS_EXPR_INDEX, .name = s->names.at[recipe->param]};
    if (leaf.i || leaf.name) find_gone(&it, &leaf);
    return it.found || looks_at_gone(s, frame, recipe->expr);
}

/* Recipes of this level and of later levels run anew. */
static void forget_gone(const ds_space *s, ds_frame *frame, ds_level level) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < frame->gone.n; i++)
        if (s->recipes.at[frame->gone.at[i]].level < level)
            frame->gone.at[kept++] = frame->gone.at[i];
    frame->gone.n = kept;
}

ds_status ds_space_known(const ds_space *s, const ds_frame *frame, ds_expr e, ds_error *err) {
    if (!looks_at_gone(s, frame, e)) return DS_OK;
    ds_frame same = *frame; /* the first gone recipe runs again, for its error */
    ds_status status = cook(s, &same, &s->recipes.at[frame->gone.at[0]], err);
    return status != DS_OK ? status : DS_ERR_VALUE;
}

ds_status ds_space_cook(ds_space *s, ds_frame *frame, ds_level level, ds_error *err) {
    forget_gone(s, frame, level);
    for (uint32_t i = 0; i < s->recipes.n; i++) {
        const ds_recipe *recipe = &s->recipes.at[i];
        ds_error why = {0};
        if (recipe->level != level) continue;
        ds_status status =
            needs_gone(s, frame, recipe) ? DS_ERR_VALUE : cook(s, frame, recipe, &why);
        if (status == DS_OK) continue;
        if (!frame->lenient || !level || !ds_space_is_of_values(status)) {
            if (err) *err = why;
            return status;
        }
        DS_PUSH(&s->arena, &frame->gone, i);
        s->doubtful = true;
    }
    return DS_OK;
}

static bool takes_bool(const ds_space *s, const ds_sweep_target *target) {
    return target->module && s->base->params[target->module->id][target->param].is_bool;
}

/* A place becomes its name, which `on == "box"` compares and count_world looks up. */
ds_status ds_space_set(ds_space *s, ds_frame *frame, uint32_t dim, ds_num value, uint32_t item,
                       ds_error *err) {
    const ds_space_dim *d = &s->dims.at[dim];
    bool flag;
    if (takes_bool(s, &d->target) && value.kind == DS_NUM_STR && ds_num_parse_bool(value.s, &flag))
        value = ds_num_bool(flag); /* the words on and off */
    if (d->target.module) put_param(s, frame, d->target.module->id, d->target.param, value);
    if (d->entry->domain == DS_DOMAIN_LIST) {
        const ds_attr *attr = &d->entry->list.items[item];
        if (attr->kind == DS_ATTR_PLACE)
            value = (ds_num){.kind = DS_NUM_STR, .s = attr->place.name};
        else if (d->target.knob && attr->kind != DS_ATTR_EXPR)
            ds_knob_value(d->target.knob, NULL, attr, &value);
    }
    for (uint32_t i = 0; i < s->names.n; i++)
        if (s->names.at[i] == d->target.bare) frame->named[i].value = value;
    return ds_space_cook(s, frame, dim + 1, err);
}
