/* A deployment as a strategy. The action that computes most of the step is the strategy's own mesh.
 * Where there are several actions, each becomes a group, since operations without one lie as their
 * operands and the model's hints have it; operations split by columns become overrides. */
#include "search/tag/whole.h"

#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"

#include <string.h>

typedef struct writer {
    ds_unit *unit;
    const ds_tag_model *model;
    const ds_tag_choices *choices;
    const ds_tag_action *action; /* of the choices */
    const uint32_t *choice;      /* [group] */
    uint32_t n_actions, home;
    DS_VEC(const char *) declared;
} writer;

static const char *intern(writer *w, const char *text) {
    return ds_intern(&w->unit->strings, text);
}

static uint32_t n_devices(const writer *w) {
    return ds_tag_n_gpus(&w->model->problem.cluster);
}

/* ---- meshes ---- */

/* "v100_p100": the machines, by the first part of the paths of their devices. */
static void put_name(const writer *w, const ds_tag_action *a, ds_buf *name) {
    const ds_tag_cluster *c = &w->model->problem.cluster;
    ds_buf_put(name, "on");
    for (uint32_t m = 0; m < c->n_machines; m++) {
        uint64_t here = ds_tag_gpus_of(c, UINT64_C(1) << m) & a->gpus;
        const char *path = w->model->machine[m];
        if (!here) continue;
        ds_buf_putc(name, '_');
        for (; *path && *path != '.'; path++)
            if (*path != '[' && *path != ']') ds_buf_putc(name, *path);
        if ((uint32_t)__builtin_popcountll(here) != c->machine[m].n_gpus)
            ds_buf_printf(name, "_%d", __builtin_popcountll(here));
    }
    if (a->way == DS_TAG_COLUMNS) ds_buf_put(name, "_columns");
}

/* All devices, those of the action first. */
static void put_order(const writer *w, uint64_t gpus, ds_buf *out) {
    uint32_t n = n_devices(w);
    ds_buf_put(out, " order (");
    for (uint32_t turn = 0, put = 0; turn < 2; turn++)
        for (uint32_t g = 0; g < n; g++)
            if ((gpus >> g & 1) != turn)
                ds_buf_printf(out, "%s%u", put++ ? ", " : "", w->model->device[g]);
    ds_buf_putc(out, ')');
}

/* The name of the mesh of an action's devices, which has one axis. */
static const char *mesh_of(writer *w, uint32_t number, bool columns) {
    ds_tag_action a = w->action[number];
    ds_buf text = {0};
    if (!columns) a.way = DS_TAG_ALL_REDUCE;
    put_name(w, &a, &text);
    const char *name = intern(w, text.text);
    ds_buf_deinit(&text);
    return name;
}

static bool declare(writer *w, const char *name) {
    for (uint32_t i = 0; i < w->declared.n; i++)
        if (w->declared.at[i] == name) return false;
    DS_PUSH(&w->unit->arena, &w->declared, name);
    return true;
}

/* Picked of all devices, or of all devices in an order. */
static void put_mesh(writer *w, uint32_t number, bool columns, ds_buf *out) {
    uint64_t gpus = w->action[number].gpus;
    uint32_t n = (uint32_t)__builtin_popcountll(gpus), first = (uint32_t)__builtin_ctzll(gpus);
    const char *name = mesh_of(w, number, columns), *base = intern(w, "every_device");
    bool is_run = gpus >> first == (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1);
    if (!declare(w, name)) return;
    if (!is_run) {
        base = intern(w, ds_arena_join(&w->unit->arena, name, "_first"));
        first = 0;
    }
    if (declare(w, base)) {
        ds_buf_printf(out, "mesh @%s = [dp = %u] on @%s", base, n_devices(w), w->model->topology);
        if (!is_run) put_order(w, gpus, out);
        ds_buf_putc(out, '\n');
    }
    ds_buf_printf(out, "mesh @%s = pick %u..%u of @%s [%s = %u]\n", name, first, first + n, base,
                  columns ? "tp" : "dp", n);
}

/* ---- the strategy ---- */

static uint32_t action_of(const writer *w, uint32_t base) {
    return w->choice[w->model->group_of[base]];
}

static bool is_uniform(const writer *w) {
    for (uint32_t b = 1; b < w->model->n_base; b++)
        if (action_of(w, b) != action_of(w, 0)) return false;
    return w->action[action_of(w, 0)].way == DS_TAG_ALL_REDUCE;
}

/* Of the actions with even shares the one that computes most; the first with even shares. The only
 * action, if there is one. */
static uint32_t find_home(const writer *w) {
    const ds_tag_graph *g = &w->model->problem.graph;
    double most = -1;
    uint32_t home = 0;
    if (is_uniform(w)) return action_of(w, 0);
    for (uint32_t a = 0; a < w->n_actions; a++) {
        double us = 0;
        if (w->action[a].way != DS_TAG_ALL_REDUCE || w->action[a].share) continue;
        for (uint32_t i = 0; i < g->n_ops; i++)
            if (w->choice[g->op[i].group] == a)
                us += ds_tag_op_us(g, i, 0, w->model->problem.batch);
        if (us <= most) continue;
        most = us;
        home = a;
    }
    return home;
}

static void set_strategy(writer *w) {
    ds_unit *unit = w->unit;
    const ds_attr *bucket = ds_scenario_find(unit, "strategy", "bucket_size");
    ds_attr strategy = {.kind = DS_ATTR_BLOCK, .multiline = true};
    int64_t dp = __builtin_popcountll(w->action[w->home].gpus);
    strategy.items = DS_NEW_N(&unit->arena, ds_attr, 3);
    strategy.items[strategy.n_items++] = (ds_attr){
        .name = intern(w, "dp"), .kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, dp)};
    if (bucket) strategy.items[strategy.n_items++] = *bucket;
    if (w->action[w->home].share) /* of a step with one action: the simulator finds better ones */
        strategy.items[strategy.n_items++] = (ds_attr){
            .name = intern(w, "dp_shares"), .kind = DS_ATTR_WORD, .word = intern(w, "time")};
    ds_scenario_set(unit, "", "strategy", strategy);
    ds_attr mesh = {.kind = DS_ATTR_PLACE};
    mesh.place = (ds_place){.kind = DS_PLACE_MESH, .name = mesh_of(w, w->home, false)};
    ds_scenario_set(unit, "", "mesh", mesh);
}

/* A pattern matches all names that it ends. */
static const char *pattern_of(writer *w, uint32_t base) {
    const ds_tag_base *b = &w->model->base[base];
    if (!b->ends_another) return intern(w, b->name);
    const char *model = ds_scenario_model(w->unit)->name;
    return intern(w, ds_arena_printf(&w->unit->arena, "%s.%s", model, b->name));
}

static bool is_override(const writer *w, uint32_t base, uint32_t action) {
    return action_of(w, base) == action && ds_tag_choices_columns(w->choices, base, action);
}

static void put_group(writer *w, uint32_t a, uint32_t number) {
    ds_arena *arena = &w->unit->arena;
    const ds_tag_action *action = &w->action[a];
    ds_buf name = {0};
    ds_buf_printf(&name, "g%u", number);
    ds_op_group group = {.name = intern(w, name.text), .on = mesh_of(w, a, false)};
    ds_buf_deinit(&name);
    group.by = action->way == DS_TAG_DUPLICATE ? DS_GROUP_DUPLICATE : DS_GROUP_ALL_REDUCE;
    group.shares = action->share;
    group.n_shares = action->share ? (uint32_t)__builtin_popcountll(action->gpus) : 0;
    group.ops = DS_NEW_N(arena, const char *, w->model->n_base + 1);
    for (uint32_t b = 0; b < w->model->n_base; b++)
        if (action_of(w, b) == a && !is_override(w, b, a))
            group.ops[group.n_ops++] = pattern_of(w, b);
    if (group.n_ops > 0) ds_group_put(w->unit, &group);
}

static void put_overrides(writer *w) {
    ds_unit *unit = w->unit;
    ds_attr ops = {.kind = DS_ATTR_BLOCK, .multiline = true};
    ops.items = DS_NEW_N(&unit->arena, ds_attr, w->model->n_base + 1);
    for (uint32_t b = 0; b < w->model->n_base; b++) {
        uint32_t a = action_of(w, b);
        if (!is_override(w, b, a)) continue;
        ds_attr *attr = &ops.items[ops.n_items++];
        *attr = (ds_attr){.name = pattern_of(w, b),
                          .quoted_name = true,
                          .kind = DS_ATTR_PLACE,
                          .is_override = true,
                          .n_items = 1};
        attr->place = (ds_place){.kind = DS_PLACE_MESH, .name = mesh_of(w, a, true)};
        attr->items = DS_NEW(&unit->arena, ds_attr);
        *attr->items = (ds_attr){.name = intern(w, w->model->base[b].column),
                                 .kind = DS_ATTR_WORD,
                                 .word = intern(w, "tp")};
    }
    if (ops.n_items > 0) ds_scenario_set(unit, "strategy", "ops", ops);
}

static uint32_t n_used(const writer *w, uint32_t action) {
    uint32_t used = 0;
    for (uint32_t b = 0; b < w->model->n_base; b++) used += action_of(w, b) == action;
    return used;
}

static writer make_writer(ds_unit *unit, const ds_tag_choices *choices, const uint32_t *choice) {
    writer w = {.unit = unit, .model = choices->model, .choices = choices, .choice = choice};
    w.action = choices->action;
    w.n_actions = choices->n;
    if (choice) w.home = find_home(&w);
    return w;
}

void ds_tag_put(ds_unit *unit, const ds_tag_choices *choices, const uint32_t *choice) {
    writer w = make_writer(unit, choices, choice);
    set_strategy(&w);
    put_overrides(&w);
    for (uint32_t a = 0, n = 0; a < w.n_actions; a++) {
        uint32_t used = n_used(&w, a);
        if (used > 0 && (a != w.home || used < w.model->n_base)) put_group(&w, a, n++);
    }
}

static void put_meshes_of(writer *w, uint32_t action, ds_buf *text) {
    bool columns = w->action[action].way == DS_TAG_COLUMNS;
    for (uint32_t c = 0; c <= columns; c++) {
        const char *name = mesh_of(w, action, c);
        put_mesh(w, action, c, text);
        if (w->choice) continue;
        ds_op_group group = {.name = name, .ops = &w->model->base[0].name, .n_ops = 1, .on = name};
        ds_group_put(w->unit, &group);
    }
}

void ds_tag_put_meshes(ds_unit *unit, const ds_tag_choices *choices, const uint32_t *choice,
                       ds_buf *text) {
    writer w = make_writer(unit, choices, choice);
    for (uint32_t a = 0; a < w.n_actions; a++)
        if (!choice || a == w.home || n_used(&w, a)) put_meshes_of(&w, a, text);
}
