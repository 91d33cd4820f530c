/* Writes overrides: an attribute block for `ops`, a mesh for each way to factor the devices. */
#include "search/pase/apply.h"

#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

#define MOST_VIEW_AXES 4u

typedef struct writer {
    ds_unit *unit;
    ds_module *root;
    const ds_pase_graph *graph;
    const ds_pase_splits *strategy;
    const ds_pase_nesting *nesting; /* NULL: as they come */
    int64_t devices;
    const char *base; /* the mesh of all devices, or of the first of them */
    uint32_t *like;   /* per node: the one whose split it takes; UINT32_MAX: not known yet */
    DS_VEC(ds_attr) overrides;
    ds_pase_applied *out;
} writer;

static const char *intern(writer *w, const char *text) {
    return ds_intern(&w->unit->strings, text);
}

/* ---- declarations ---- */

static void add_item(writer *w, ds_item_kind kind, uint32_t index) {
    DS_PUSH(&w->unit->arena, &w->root->items, ((ds_item){kind, index}));
}

static void declare_axis(writer *w, const char *name) {
    for (uint32_t i = 0; i < w->root->axes.n; i++)
        if (w->root->axes.at[i].name == name) return;
    DS_PUSH(&w->unit->arena, &w->root->axes, ((ds_axis_decl){.name = name}));
    add_item(w, DS_ITEM_AXIS, w->root->axes.n - 1);
}

static bool has_mesh(const writer *w, const char *name) {
    for (uint32_t i = 0; i < w->root->meshes.n; i++)
        if (w->root->meshes.at[i]->name == name) return true;
    return false;
}

static ds_mesh *declare_mesh(writer *w, const char *name, ds_mesh_kind kind, const char *base,
                             const char *const *axes, const int64_t *sizes, uint32_t n) {
    ds_mesh *mesh = DS_NEW(&w->unit->arena, ds_mesh);
    *mesh = (ds_mesh){.name = name, .module = w->root, .kind = kind, .base = base, .n_axes = n};
    mesh->axes = DS_NEW_N(&w->unit->arena, ds_mesh_axis, n);
    for (uint32_t i = 0; i < n; i++)
        mesh->axes[i] =
            (ds_mesh_axis){.name = axes[i], .size = ds_expr_int(&w->unit->exprs, sizes[i])};
    DS_PUSH(&w->unit->arena, &w->root->meshes, mesh);
    add_item(w, DS_ITEM_MESH, w->root->meshes.n - 1);
    w->out->meshes++;
    return mesh;
}

/* ---- one operation ---- */

/* Splits as a program can have them. */
static uint32_t legal_splits(writer *w, uint32_t v, uint32_t *axes, int64_t *parts) {
    const ds_pase_node *node = &w->graph->nodes.at[v];
    const uint16_t *split = w->strategy[v].of;
    ds_pase_nesting nesting = w->nesting ? w->nesting[v] : ds_pase_nested(node, split);
    uint32_t n = 0;
    int64_t left = w->devices;
    bool reduced = false;
    for (uint32_t i = 0; i < nesting.n; i++) {
        uint32_t a = nesting.axis[i];
        bool fits = n < MOST_VIEW_AXES && node->rule_size[a] % split[a] == 0 &&
                    left % split[a] == 0 && node->axis_name[a][0] != '-';
        reduced |= !fits;
        if (!fits) continue;
        axes[n] = a;
        parts[n++] = split[a];
        left /= split[a];
    }
    w->out->n_reduced += reduced;
    return n;
}

/* Axis i of a view; that of all devices is the strategy's own. */
static const char *axis_of(writer *w, int64_t parts, uint32_t i) {
    char axis[8] = {'s', (char)('0' + i), 0};
    return intern(w, parts == w->devices ? "dp" : axis);
}

/* @s4x2 of [s0 = 4, s1 = 2]: the splits, then what is left of the devices. So what is split 4 ways
 * and kept twice lies on the mesh of what is split 4 x 2 ways. */
static const char *view_of(writer *w, const int64_t *parts, uint32_t n) {
    const char *axes[MOST_VIEW_AXES + 1];
    int64_t sizes[MOST_VIEW_AXES + 1], left = w->devices;
    ds_buf name = {0};
    uint32_t n_axes = n;
    for (uint32_t i = 0; i < n; i++) left /= sizes[i] = parts[i];
    if (left > 1 || n == 0) sizes[n_axes++] = left;
    if (n_axes == 1) {
        ds_buf_deinit(&name);
        return w->base;
    }
    for (uint32_t i = 0; i < n_axes; i++) {
        axes[i] = axis_of(w, sizes[i], i);
        declare_axis(w, axes[i]);
        ds_buf_printf(&name, "%s%lld", i ? "x" : "s", (long long)sizes[i]);
    }
    const char *interned = intern(w, name.text);
    ds_buf_deinit(&name);
    if (!has_mesh(w, interned))
        declare_mesh(w, interned, DS_MESH_VIEW, w->base, axes, sizes, n_axes);
    return interned;
}

/* An override; the caller adds which factor takes which axis. */
static ds_attr *add_override(writer *w, const char *pattern, const char *view, uint32_t n) {
    ds_attr attr = {.name = intern(w, pattern),
                    .quoted_name = true,
                    .kind = DS_ATTR_PLACE,
                    .is_override = true};
    attr.place = (ds_place){.kind = DS_PLACE_MESH, .name = view};
    attr.items = DS_NEW_N(&w->unit->arena, ds_attr, n + 1);
    DS_PUSH(&w->unit->arena, &w->overrides, attr);
    return &w->overrides.at[w->overrides.n - 1];
}

static void add_factor(writer *w, ds_attr *override, const char *factor, const char *axis) {
    override->items[override->n_items++] =
        (ds_attr){.name = intern(w, factor), .kind = DS_ATTR_WORD, .word = axis};
}

/* `node` as the one that it is like is split. */
static void override_op(writer *w, const ds_pase_node *node, uint32_t like) {
    uint32_t axes[DS_PASE_MAX_AXES];
    int64_t parts[DS_PASE_MAX_AXES];
    uint32_t n = legal_splits(w, like, axes, parts);
    ds_attr *override = add_override(w, node->pattern, view_of(w, parts, n), n);
    for (uint32_t i = 0; i < n; i++)
        add_factor(w, override, node->axis_name[axes[i]], axis_of(w, parts[i], i));
}

static bool is_overridden(const writer *w, const char *pattern) {
    for (uint32_t i = 0; i < w->overrides.n; i++)
        if (strcmp(w->overrides.at[i].name, pattern) == 0) return true;
    return false;
}

/* What is part of a node lies as the node's result. */
static void override_fused(writer *w, const ds_pase_fused *fused) {
    uint32_t v = w->like[fused->node], axes[DS_PASE_MAX_AXES], reduced = w->out->n_reduced;
    int64_t parts[DS_PASE_MAX_AXES];
    if (is_overridden(w, fused->pattern)) return;
    uint32_t n = legal_splits(w, v, axes, parts);
    w->out->n_reduced = reduced; /* told once, by the node */
    ds_attr *override = add_override(w, fused->pattern, view_of(w, parts, n), fused->rank);
    for (uint32_t d = 0; d < fused->rank; d++)
        for (uint32_t i = 0; i < n; i++)
            if (fused->axis[d] == (int8_t)axes[i])
                add_factor(w, override, fused->factor[d], axis_of(w, parts[i], i));
}

/* ---- turns of a loop ---- */

static bool same_split(const writer *w, uint32_t a, uint32_t b) {
    size_t n = w->graph->nodes.at[a].n_axes;
    return memcmp(w->strategy[a].of, w->strategy[b].of, n * sizeof *w->strategy[a].of) == 0;
}

/* The node of the pattern whose split most of its nodes have. */
static uint32_t most_frequent(writer *w, uint32_t first) {
    const char *pattern = w->graph->nodes.at[first].pattern;
    DS_VEC(uint32_t) alike = {0};
    for (uint32_t v = first; v < w->graph->nodes.n; v++) {
        if (strcmp(w->graph->nodes.at[v].pattern, pattern) != 0) continue;
        DS_HPUSH(&alike, v);
    }
    uint32_t best = first, best_n = 0;
    for (uint32_t i = 0; i < alike.n; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < alike.n; k++) n += same_split(w, alike.at[i], alike.at[k]);
        if (n > best_n) {
            best_n = n;
            best = alike.at[i];
        }
    }
    w->out->n_varied += best_n < alike.n;
    for (uint32_t i = 0; i < alike.n; i++) w->like[alike.at[i]] = best;
    free(alike.at);
    return best;
}

/* ---- the scenario ---- */

static ds_attr integer(writer *w, int64_t value) {
    return (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&w->unit->exprs, value)};
}

static int n_parts(const char *pattern) {
    int n = 1;
    for (; *pattern; pattern++) n += *pattern == '.';
    return n;
}

/* The first override that matches an op holds, and "y" matches "a.y" too: longer ones first, else
 * in the order of the program. */
static void sort_overrides(writer *w) {
    ds_attr *at = w->overrides.at;
    for (uint32_t i = 1; i < w->overrides.n; i++) {
        ds_attr one = at[i];
        uint32_t k = i;
        for (; k > 0 && n_parts(at[k - 1].name) < n_parts(one.name); k--) at[k] = at[k - 1];
        at[k] = one;
    }
}

void ds_pase_keep_knobs(const ds_unit *unit, ds_attr *strategy) {
    static const char *const kept[DS_PASE_KEPT_KNOBS] = {"bucket_size", "microbatches"};
    for (size_t i = 0; i < DS_PASE_KEPT_KNOBS; i++) {
        const ds_attr *knob = ds_scenario_find(unit, "strategy", kept[i]);
        if (knob) strategy->items[strategy->n_items++] = *knob;
    }
}

static void set_scenario(writer *w) {
    ds_unit *unit = w->unit;
    ds_attr strategy = {.kind = DS_ATTR_BLOCK, .multiline = true};
    ds_attr ops = {.name = intern(w, "ops"),
                   .kind = DS_ATTR_BLOCK,
                   .items = w->overrides.at,
                   .n_items = w->overrides.n,
                   .multiline = true};
    ds_attr mesh = {.kind = DS_ATTR_PLACE, .place = {.kind = DS_PLACE_MESH, .name = w->base}};
    ds_attr dp = integer(w, w->devices);
    dp.name = intern(w, "dp");
    strategy.items = DS_NEW_N(&unit->arena, ds_attr, 2 + DS_PASE_KEPT_KNOBS);
    strategy.items[strategy.n_items++] = dp;
    ds_pase_keep_knobs(unit, &strategy);
    strategy.items[strategy.n_items++] = ops;
    ds_scenario_set(unit, "", "mesh", mesh);
    ds_scenario_set(unit, "", "strategy", strategy);
}

/* A reshape is named by what it makes, as what is fused. */
static bool has_path(const ds_pase_node *node) {
    bool is_loss = strcmp(node->pattern, "loss") == 0; /* that of `train` */
    return (node->op->loc.file || is_loss) && node->kind != DS_PASE_RESHAPE;
}

/* @all, or the first devices of @every. */
static void declare_base(writer *w, const ds_attr *on) {
    const char *axis = intern(w, "dp"), *every = intern(w, "every_device");
    int64_t all = w->graph->all_devices;
    w->base = intern(w, "all");
    if (has_mesh(w, w->base)) w->base = intern(w, "all_devices");
    if (w->devices >= all) {
        declare_mesh(w, w->base, DS_MESH_ON, on->place.name, &axis, &w->devices, 1);
        return;
    }
    declare_mesh(w, every, DS_MESH_ON, on->place.name, &axis, &all, 1);
    ds_mesh *first = declare_mesh(w, w->base, DS_MESH_PICK, every, &axis, &w->devices, 1);
    first->pick_lo = ds_expr_int(&w->unit->exprs, 0);
    first->pick_hi = ds_expr_int(&w->unit->exprs, w->devices);
}

ds_status ds_pase_check_devices(const ds_unit *unit, ds_error *err) {
    const ds_attr *mesh = ds_scenario_find(unit, "", "mesh");
    if (ds_scenario_n_jobs(unit) > 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "the scenario has jobs: the search takes one, with all devices of a "
                            "topology");
    for (uint32_t m = 0; mesh && m < unit->modules.n; m++)
        for (uint32_t i = 0; i < unit->modules.at[m]->meshes.n; i++) {
            const ds_mesh *one = unit->modules.at[m]->meshes.at[i];
            if (one->name != mesh->place.name || one->kind != DS_MESH_PICK) continue;
            return ds_error_set(err, DS_ERR_UNSUPPORTED, mesh->loc,
                                "@%s is a part of its devices: the search is for all devices of a "
                                "topology, or the first of them; give the model a topology of its "
                                "own",
                                one->name);
        }
    return DS_OK;
}

ds_status ds_pase_apply(ds_unit *unit, const ds_pase_graph *graph, const ds_pase_splits *strategy,
                        int64_t devices, ds_pase_applied *out, ds_error *err) {
    return ds_pase_apply_nested(unit, graph, strategy, NULL, devices, out, err);
}

ds_status ds_pase_apply_nested(ds_unit *unit, const ds_pase_graph *graph,
                               const ds_pase_splits *strategy, const ds_pase_nesting *nesting,
                               int64_t devices, ds_pase_applied *out, ds_error *err) {
    *out = (ds_pase_applied){0};
    writer w = {.unit = unit,
                .root = unit->modules.at[0],
                .graph = graph,
                .strategy = strategy,
                .nesting = nesting,
                .devices = devices,
                .out = out};
    const ds_attr *on = ds_scenario_find(unit, "", "on");
    if (!on)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the scenario does not say `on`: a strategy needs devices");
    DS_TRY(ds_pase_check_devices(unit, err));
    declare_base(&w, on);
    w.like = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *w.like);
    memset(w.like, 0xff, graph->nodes.n * sizeof *w.like);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        if (w.like[v] != UINT32_MAX) continue;
        uint32_t best = most_frequent(&w, v);
        if (has_path(node)) override_op(&w, node, best);
    }
    for (uint32_t i = 0; i < graph->fused.n; i++) override_fused(&w, &graph->fused.at[i]);
    free(w.like);
    out->overrides = w.overrides.n;
    sort_overrides(&w);
    set_scenario(&w);
    return DS_OK;
}
