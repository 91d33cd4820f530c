/* From prefixes of the odometer to regions.
 *
 * Which knobs of the strategy are known? A knob is a dimension, an expression with a level
 * (search/space/names.c), or constant. Which dimensions does the model depend on? On dimensions
 * that are knobs outside of the strategy, and on dimensions from which params follow that a
 * function, or the scenario outside of its strategy, mentions. The values of these dimensions and
 * of the knobs that change a layer are the key under which layers are kept. */
#include "search/bound/bounds.h"

#include "ir/base/map.h"
#include "ir/base/units.h"
#include "ir/lang/mentions.h"
#include "ir/passes/passes.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "search/space/frame.h"

#include <stdlib.h>
#include <string.h>

/* The knobs that have fields, by their place in knobs.def; then keys of the scenario itself. */
enum {
#define KNOB(section, name, ...) KNOB_##section##_##name,
#include "ir/strategy/knobs.def"
    KEY_framework,
    KEY_memory,
    N_KNOBS
};

typedef struct knob {
    const ds_knob *line;
    const ds_attr *attr; /* NULL: the scenario does not set the knob */
    uint32_t dim;        /* UINT32_MAX: the knob is no dimension */
    ds_level level;
} knob;

/* A small step takes some 2 MB for a transformer; the space of gpt3-175b-4096.dir has 132 kinds. */
enum { KEPT_SMALLS = 160 };

typedef struct kept_small {
    uint64_t key; /* the key of layers, without parts */
    ds_bound_small *small;
} kept_small;

struct ds_bounds {
    ds_arena arena;
    const ds_eval_source *source;
    ds_space *space;
    knob knobs[N_KNOBS];
    bool *shapes; /* per dimension: shapes the model, its training or the topology */
    bool *places; /* … the topology */
    bool *marks;  /* shapes or places, while either is found */
    ds_level shaped, placed;
    bool refused;
    ds_map layers;                  /* key → ds_bound_layers, or 0: no layers */
    kept_small smalls[KEPT_SMALLS]; /* open small steps; the next one replaces `oldest` */
    uint32_t oldest;
    ds_map machine_at;                   /* key → index */
    DS_VEC(ds_bound_machine *) machines; /* NULL: a topology without bounds */
    ds_plan_ground *ground;
    ds_candidate candidate;
    ds_choice *set; /* the first n_set dimensions, as the space's frame of regions has them */
    uint32_t n_set;
};

/* ---- dependences on dimensions ---- */

static void mark_expr(ds_bounds *b, ds_expr e, uint32_t depth);

static void mark_param(ds_bounds *b, uint32_t module, uint32_t param, uint32_t depth) {
    const ds_space *s = b->space;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_sweep_target *target = &s->dims.at[i].target;
        if (target->module && target->module->id == module && target->param == param) {
            b->marks[i] = true;
            return;
        }
    }
    for (uint32_t i = 0; i < s->recipes.n; i++) {
        const ds_recipe *recipe = &s->recipes.at[i];
        if (recipe->kind == DS_RECIPE_PARAM && recipe->module == module && recipe->param == param)
            mark_expr(b, recipe->expr, depth + 1);
    }
}

/* Chains are short; a chain beyond MAX_DEPTH counts as depending on every dimension. */
static void mark_expr(ds_bounds *b, ds_expr e, uint32_t depth) {
    enum { MAX_DEPTH = 200 };
    if (!DS_HAS_EXPR(e)) return;
    if (depth > MAX_DEPTH) {
        for (uint32_t i = 0; i < b->space->dims.n; i++) b->marks[i] = true;
        return;
    }
    ds_expr_node node = *ds_expr_at(&b->space->unit->exprs, e);
    if (node.kind == DS_EXPR_PARAM)
        mark_param(b, (uint32_t)((uint64_t)node.i >> 32), (uint32_t)node.i, depth);
    mark_expr(b, node.a, depth + 1);
    mark_expr(b, node.b, depth + 1);
}

static ds_expr param_expr(ds_unit *unit, uint32_t module, uint32_t param) {
    ds_expr_node node = {.kind = DS_EXPR_PARAM,
                         .i = (int64_t)((uint64_t)module << 32 | param),
                         .name = unit->modules.at[module]->params.at[param].name};
    return ds_expr_make(&unit->exprs, node);
}

typedef struct marking {
    ds_bounds *b;
    ds_status status;
    ds_error *err;
} marking;

static void mark_leaf(void *context, const ds_expr_node *leaf) {
    marking *m = context;
    uint32_t module = (uint32_t)((uint64_t)leaf->i >> 32), param = (uint32_t)leaf->i;
    ds_level level;
    if (leaf->kind != DS_EXPR_PARAM || m->status != DS_OK) return;
    ds_expr e = param_expr(m->b->space->unit, module, param); /* may move *leaf */
    m->status = ds_space_level(m->b->space, e, DS_NOWHERE, &level, m->err);
    if (m->status == DS_OK) mark_param(m->b, module, param, 0);
}

/* Marks the dimensions from which those params follow that functions mention, or the scenario
 * outside of its strategy. */
static ds_status mark_model(ds_bounds *b, ds_error *err) {
    ds_unit *unit = b->space->unit;
    const ds_scenario *scenario = ds_unit_scenario(unit);
    marking m = {b, DS_OK, err};
    for (uint32_t i = 0; i < unit->modules.n; i++)
        for (uint32_t f = 0; f < unit->modules.at[i]->funcs.n; f++)
            ds_mentions_func(unit->modules.at[i]->funcs.at[f], mark_leaf, &m);
    for (uint32_t i = 0; i < scenario->n_entries; i++)
        if (strcmp(scenario->entries[i].name, "strategy") != 0)
            ds_mentions_attrs(&unit->exprs, &scenario->entries[i], 1, mark_leaf, &m);
    return m.status;
}

/* … that topologies, meshes and `degrade` mention. */
static ds_status mark_devices(ds_bounds *b, ds_error *err) {
    ds_unit *unit = b->space->unit;
    marking m = {b, DS_OK, err};
    for (uint32_t i = 0; i < unit->modules.n; i++)
        ds_mentions_devices(unit->modules.at[i], mark_leaf, &m);
    return m.status;
}

static ds_status find_shapes(ds_bounds *b, ds_error *err) {
    b->marks = b->shapes;
    DS_TRY(mark_model(b, err));
    b->marks = b->places;
    DS_TRY(mark_devices(b, err));
    for (uint32_t i = 0; i < b->space->dims.n; i++) {
        const ds_knob *varied = b->space->dims.at[i].target.knob;
        if (varied && strcmp(varied->section, "strategy") != 0) b->shapes[i] = true;
        if (varied && !*varied->section && strcmp(varied->name, "on") == 0) b->places[i] = true;
        if (b->shapes[i]) b->shaped = i + 1;
        if (b->places[i]) b->placed = i + 1;
    }
    return DS_OK;
}

/* ---- knobs ---- */

static ds_status find_knob(const ds_bounds *b, const ds_knob *line, knob *found, ds_error *err) {
    const ds_space *s = b->space;
    *found = (knob){.line = line,
                    .attr = ds_scenario_find(s->unit, line->section, line->name),
                    .dim = UINT32_MAX};
    if (line->bounds != DS_BOUNDS_READ) return DS_OK;
    for (uint32_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i].target.knob == line) found->dim = i;
    for (uint32_t i = 0; found->attr && i < found->attr->n_items; i++) {
        const ds_attr *item = &found->attr->items[i];
        ds_level level = 0;
        if (item->kind == DS_ATTR_EXPR)
            DS_TRY(ds_space_level(b->space, item->expr, item->loc, &level, err));
        if (level > found->level) found->level = level;
    }
    if (found->dim != UINT32_MAX)
        found->level = found->dim + 1;
    else if (found->attr && found->attr->kind == DS_ATTR_EXPR)
        DS_TRY(ds_space_level(b->space, found->attr->expr, found->attr->loc, &found->level, err));
    return DS_OK;
}

static ds_status find_knobs(ds_bounds *b, ds_error *err) {
    uint32_t n, k = 0;
    const ds_knob *lines = ds_scenario_knobs(&n);
    for (const ds_knob *line = lines; line < lines + n; line++)
        if (line->bytes) DS_TRY(find_knob(b, line, &b->knobs[k++], err));
    DS_TRY(find_knob(b, ds_scenario_knob("", "framework"), &b->knobs[KEY_framework], err));
    return find_knob(b, ds_scenario_knob("", "memory"), &b->knobs[KEY_memory], err);
}

/* The kind of a value that is not known, or is not one number or word. */
enum { UNKNOWN = 0xff };

static ds_num num_of_attr(const ds_bounds *b, const ds_knob *line, const ds_attr *attr) {
    ds_env env = ds_space_env(b->space, &b->space->region);
    ds_num value;
    if (ds_knob_value(line, &env, attr, &value)) return value;
    return (ds_num){.kind = (ds_num_kind)UNKNOWN};
}

/* A text of knobs.def as a value of the line. */
static ds_num value_of(const ds_knob *line, const char *text) {
    if (line->kind == DS_KNOB_BOOL)
        return (ds_num){.kind = DS_NUM_INT, .i = strcmp(text, "true") == 0};
    if (line->kind == DS_KNOB_INT)
        return (ds_num){.kind = DS_NUM_INT, .i = strtoll(text, NULL, 10)};
    return (ds_num){.kind = DS_NUM_STR, .s = text};
}

/* Does the scenario set the knob, or does the sweep vary it? */
static bool is_said(const ds_bounds *b, uint32_t k) {
    return b->knobs[k].attr || b->knobs[k].dim != UINT32_MAX;
}

/* The value of a knob that the scenario or the sweep says. */
static ds_num said_value(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth) {
    const knob *it = &b->knobs[k];
    if (it->level > depth) return (ds_num){.kind = (ds_num_kind)UNKNOWN};
    if (it->dim == UINT32_MAX) return num_of_attr(b, it->line, it->attr);
    const ds_sweep_entry *entry = b->space->dims.at[it->dim].entry;
    if (entry->domain == DS_DOMAIN_LIST &&
        entry->list.items[prefix[it->dim].item].kind != DS_ATTR_EXPR)
        return num_of_attr(b, it->line, &entry->list.items[prefix[it->dim].item]);
    return prefix[it->dim].value;
}

static bool is_text(const ds_num *value) {
    return value->kind == DS_NUM_STR && value->s;
}

/* What the framework sets where the scenario says nothing. False: the framework is not known. */
static bool find_preset(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth,
                        const ds_preset **out) {
    const ds_knob *line = b->knobs[k].line;
    *out = NULL;
    if (!is_said(b, KEY_framework)) return true;
    ds_num framework = said_value(b, KEY_framework, prefix, depth);
    if (!is_text(&framework)) return false;
    *out = ds_preset_find(framework.s, line->section, line->name);
    return true;
}

/* A knob on which presets' conditions look: the value without such presets; -1: not known. */
static int64_t plain_int(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth) {
    const ds_preset *preset;
    if (!find_preset(b, k, prefix, depth, &preset)) return -1;
    const char *text =
        preset && preset->when == DS_PRESET_ALWAYS ? preset->value : b->knobs[k].line->initial;
    ds_num value =
        is_said(b, k) ? said_value(b, k, prefix, depth) : value_of(b->knobs[k].line, text);
    return value.kind == DS_NUM_INT && value.i >= 0 && value.i <= INT32_MAX ? value.i : -1;
}

/* Does the preset's condition hold: 1 for all candidates of the region, 0 for none, -1 not known.
 * Conditions look at degrees and ZeRO; a stage of ZeRO that is not known may be any. */
static int holds(const ds_bounds *b, const ds_preset *preset, const ds_choice *prefix,
                 uint32_t depth) {
    int64_t zero = plain_int(b, KNOB_strategy_zero, prefix, depth);
    ds_strategy s = {.dp = plain_int(b, KNOB_strategy_dp, prefix, depth),
                     .tp = plain_int(b, KNOB_strategy_tp, prefix, depth),
                     .pp = plain_int(b, KNOB_strategy_pp, prefix, depth),
                     .cp = plain_int(b, KNOB_strategy_cp, prefix, depth)};
    bool any = false, all = true;
    if (preset->when == DS_PRESET_ALWAYS) return 1;
    if (s.dp < 0 || s.tp < 0 || s.pp < 0 || s.cp < 0) return -1;
    for (s.zero = 0; s.zero <= 3; s.zero++) {
        if (zero >= 0 && s.zero != zero) continue;
        bool one = ds_preset_holds(preset, NULL, &s);
        any |= one;
        all &= one;
    }
    return any == all ? any : -1;
}

static ds_num knob_value(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth) {
    const ds_knob *line = b->knobs[k].line;
    const ds_num unknown = {.kind = (ds_num_kind)UNKNOWN};
    const ds_preset *preset;
    if (is_said(b, k)) return said_value(b, k, prefix, depth);
    if (!find_preset(b, k, prefix, depth, &preset)) return unknown;
    int sets = preset ? holds(b, preset, prefix, depth) : 0;
    if (sets < 0) return unknown;
    return value_of(line, sets ? preset->value : line->initial);
}

static int64_t knob_int(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth,
                        int64_t unknown) {
    ds_num value = knob_value(b, k, prefix, depth);
    bool counts = value.kind == DS_NUM_INT && value.i >= 0 && value.i <= INT32_MAX;
    return counts ? value.i : unknown; /* passes refuse larger values (ir/strategy/scenario.c) */
}

static const char *knob_text(const ds_bounds *b, uint32_t k, const ds_choice *prefix,
                             uint32_t depth) {
    ds_num value = knob_value(b, k, prefix, depth);
    return is_text(&value) ? value.s : "";
}

/* Bits of everything that may be offloaded; *surely if exactly these are. */
static uint32_t offload_bits(const ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                             bool *surely) {
    static const char *const words[] = {"activations", "optimizer", "weights"};
    const knob *it = &b->knobs[KNOB_strategy_offload];
    const ds_attr *attr = it->attr, *items = attr;
    uint32_t bits = 0, all = DS_OFFLOAD_ACTIVATIONS | DS_OFFLOAD_OPTIMIZER | DS_OFFLOAD_WEIGHTS;
    *surely = false;
    if (!is_said(b, KNOB_strategy_offload)) return 0;
    if (it->level > depth) return all;
    if (it->dim != UINT32_MAX) {
        const ds_sweep_entry *entry = b->space->dims.at[it->dim].entry;
        items = attr = &entry->list.items[prefix[it->dim].item];
    }
    uint32_t n = 1;
    if (attr->kind == DS_ATTR_LIST) {
        items = attr->items;
        n = attr->n_items;
    }
    for (uint32_t i = 0; i < n; i++) {
        ds_num value = num_of_attr(b, it->line, &items[i]);
        if (value.kind != DS_NUM_STR) return all;
        for (uint32_t k = 0; k < 3; k++)
            if (strcmp(value.s, words[k]) == 0) bits |= 1u << k;
    }
    *surely = true;
    return bits;
}

/* ---- layers and machines ---- */

static void fill_candidate(ds_bounds *b, const ds_choice *prefix, uint32_t depth) {
    const ds_space *s = b->space;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_sweep_target *target = &s->dims.at[i].target;
        ds_choice *choice = &b->candidate.at[i];
        *choice = (ds_choice){.value = {.kind = DS_NUM_INT, .i = 1}};
        if (i < depth && b->shapes[i])
            *choice = prefix[i];
        else if (target->module)
            choice->value = s->base->params[target->module->id][target->param];
    }
}

static uint64_t hash_choice(uint64_t hash, const ds_choice *choice) {
    const ds_num *v = &choice->value;
    hash = ds_hash_mix(hash, choice->item);
    if (v->kind == DS_NUM_INT) return ds_hash_mix(hash, (uint64_t)v->i);
    return ds_hash_mix(hash, v->kind == DS_NUM_REAL ? ds_hash_bytes(&v->r, sizeof v->r)
                                                    : ds_hash_bytes(v->s, strlen(v->s)));
}

/* With these kinds of recomputation a small step shows the work of each layer. */
static bool is_by_layer(const char *recompute) {
    static const char *const kinds[] = {"none", "selective", "full"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(recompute, kinds[i]) == 0) return true;
    return false;
}

static uint64_t key_of(const ds_bounds *b, const ds_choice *prefix, const char *recompute) {
    uint64_t key = ds_hash_bytes(recompute, strlen(recompute));
    for (uint32_t i = 0; i < b->shaped; i++)
        if (b->shapes[i]) key = hash_choice(ds_hash_mix(key, i), &prefix[i]);
    return key;
}

/* The small step under the candidate of fill_candidate. Binding uses an arena of its own, which
 * ends here. */
static ds_bound_small *make_small(ds_bounds *b, const ds_bound_sibling *sibling) {
    ds_unit *unit = b->space->unit;
    ds_scenario scenario = *ds_unit_scenario(unit);
    ds_arena kept = unit->arena, own;
    ds_setting *settings;
    uint32_t n;
    ds_arena_init(&unit->arena);
    ds_arena_init(&own);
    ds_space_set_knobs(b->space, &b->candidate, unit);
    ds_space_settings(b->space, &b->candidate, &own, &settings, &n);
    ds_bound_small *small = ds_bound_small_new(unit, settings, n, sibling);
    ds_scenario_restore(unit, &scenario);
    ds_arena_deinit(&own);
    ds_arena_deinit(&unit->arena);
    unit->arena = kept;
    return small;
}

static ds_bound_small *find_small(const ds_bounds *b, uint64_t key) {
    for (uint32_t i = 0; i < KEPT_SMALLS; i++)
        if (b->smalls[i].small && b->smalls[i].key == key) return b->smalls[i].small;
    return NULL;
}

static void keep_small(ds_bounds *b, uint64_t key, ds_bound_small *small) {
    kept_small *place = &b->smalls[b->oldest++ % KEPT_SMALLS];
    ds_bound_small_free(place->small);
    *place = (kept_small){key, small};
}

/* `key`: of the small step, if the step is open. An open step's batch may be counted in units of
 * several samples (batch = 2 * pairs). Parts that do not divide that batch get a step of their own,
 * so that bounds do not depend on the order of questions. */
static const ds_bound_layers *make_layers(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                                          const ds_bound_sibling *sibling, uint64_t key) {
    ds_bound_layers *layers = DS_NEW(&b->arena, ds_bound_layers);
    ds_bound_small *small = find_small(b, key);
    bool kept = small && small->batch % sibling->parts == 0;
    if (!kept) {
        fill_candidate(b, prefix, depth);
        bool another = small != NULL;
        small = make_small(b, sibling);
        kept = small && small->microbatch && !another;
        if (kept) keep_small(b, key, small);
    }
    bool ok = small && ds_bound_layers_make(small, b->source->profiles, b->ground, sibling, layers);
    if (!kept) ds_bound_small_free(small);
    return ok ? layers : NULL;
}

static const ds_bound_layers *find_layers(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                                          const ds_bound_sibling *sibling, uint64_t group) {
    uint64_t small = ds_hash_mix(key_of(b, prefix, sibling->recompute), (uint64_t)sibling->tp);
    small = ds_hash_mix(ds_hash_mix(small, (uint64_t)sibling->ep), (uint64_t)sibling->cp);
    small = ds_hash_mix(small, ds_hash_bytes(sibling->cp_type, strlen(sibling->cp_type)));
    small = ds_hash_mix(small, ds_hash_bytes(sibling->tp_overlap, strlen(sibling->tp_overlap)));
    small = ds_hash_mix(small, sibling->order ? DS_KEY(sibling->order) : 0);
    small = ds_hash_mix(small, sibling->sp);
    uint64_t key = ds_hash_mix(ds_hash_mix(small, (uint64_t)sibling->parts), group);
    key = ds_hash_mix(key, sibling->bytes);
    const uint64_t *at = ds_map_find(&b->layers, key);
    if (at) return (const ds_bound_layers *)(uintptr_t)*at;
    const ds_bound_layers *layers = make_layers(b, prefix, depth, sibling, small);
    ds_map_put(&b->layers, key, DS_KEY(layers));
    return layers;
}

static ds_bound_machine *make_machine(ds_bounds *b) {
    ds_unit *unit = b->space->unit;
    ds_scenario scenario = *ds_unit_scenario(unit);
    ds_arena kept = unit->arena, own;
    ds_setting *settings;
    uint32_t n;
    ds_binding binding;
    ds_arena_init(&unit->arena);
    ds_arena_init(&own);
    ds_space_set_knobs(b->space, &b->candidate, unit);
    ds_space_settings(b->space, &b->candidate, &own, &settings, &n);
    bool ok = ds_bind(unit, settings, n, &binding, NULL) == DS_OK;
    ds_bound_machine *machine = ok ? ds_bound_machine_new(&binding, b->source->profiles) : NULL;
    ds_scenario_restore(unit, &scenario);
    ds_arena_deinit(&own);
    ds_arena_deinit(&unit->arena);
    unit->arena = kept;
    return machine;
}

static ds_bound_machine *find_machine(ds_bounds *b, const ds_choice *prefix, uint32_t depth) {
    uint64_t key = 0;
    for (uint32_t i = 0; i < b->placed; i++)
        if (b->places[i]) key = hash_choice(ds_hash_mix(key, i), &prefix[i]);
    const uint64_t *at = ds_map_find(&b->machine_at, key);
    if (at) return b->machines.at[*at];
    ds_map_put(&b->machine_at, key, b->machines.n);
    fill_candidate(b, prefix, depth);
    DS_PUSH(&b->arena, &b->machines, make_machine(b));
    return b->machines.at[b->machines.n - 1];
}

/* ---- regions ---- */

/* Sets the space's frame of regions to the prefix, from the first dimension that differs. */
static ds_status set_frame(ds_bounds *b, const ds_choice *prefix, uint32_t depth, ds_error *err) {
    uint32_t same = 0;
    while (same < depth && same < b->n_set &&
           ds_choice_same(b->space, same, &b->set[same], &prefix[same]))
        same++;
    b->n_set = same;
    for (; b->n_set < depth; b->n_set++) {
        const ds_choice *choice = &prefix[b->n_set];
        DS_TRY(
            ds_space_set(b->space, &b->space->region, b->n_set, choice->value, choice->item, err));
        b->set[b->n_set] = *choice;
    }
    return DS_OK;
}

static ds_bound_form form_of(const char *schedule, int64_t pp) {
    static const struct {
        const char *name;
        ds_bound_form form;
    } known[] = {{"1f1b", DS_BOUND_1F1B},
                 {"eager-1f1b", DS_BOUND_EAGER},
                 {"gpipe", DS_BOUND_GPIPE},
                 {"interleaved", DS_BOUND_DEPTH_FIRST},
                 {"breadth-first", DS_BOUND_BREADTH_FIRST},
                 {"zb-h1", DS_BOUND_ZB_H1},
                 {"zb-h2", DS_BOUND_ZB_H2}};
    if (pp == 1) return DS_BOUND_1F1B;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(schedule, known[i].name) == 0) return known[i].form;
    return DS_BOUND_ANY;
}

static bool is_form(const char *schedule) {
    const ds_schedule_form *form;
    for (uint32_t i = 0; (form = ds_schedule_form_at(i)) != NULL; i++)
        if (strcmp(form->name, schedule) == 0) return true;
    return false;
}

/* An interleaved schedule with one chunk a stage is the plain schedule. */
static void read_chunks(const ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                        const char *schedule, ds_bound_region *out) {
    int64_t asked = knob_int(b, KNOB_strategy_virtual_stages, prefix, depth, 0);
    bool known = asked || !is_said(b, KNOB_strategy_virtual_stages);
    out->form = form_of(schedule, out->pp);
    out->chunks = out->pp == 1 ? 1 : ds_schedule_virtual_stages(schedule, asked);
    if (asked == 1 && out->form == DS_BOUND_DEPTH_FIRST) out->form = DS_BOUND_1F1B;
    if (asked == 1 && out->form == DS_BOUND_BREADTH_FIRST) out->form = DS_BOUND_GPIPE;
    if (asked == 1 && out->form != DS_BOUND_ANY) out->chunks = 1;
    if (out->chunks < 1 || !known) out->form = DS_BOUND_ANY;
    out->named = known && out->chunks > 0 && is_form(schedule);
}

/* Knobs that matter once the rest of the strategy is known. */
static void read_pipeline(const ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                          ds_bound_region *out) {
    const char *schedule = knob_text(b, KNOB_strategy_schedule, prefix, depth);
    const char *order = knob_text(b, KNOB_strategy_order, prefix, depth);
    const char *balance = knob_text(b, KNOB_strategy_balance, prefix, depth);
    read_chunks(b, prefix, depth, schedule, out);
    out->even = strcmp(balance, "layers") == 0 && !is_said(b, KNOB_strategy_stage_layers) &&
                knob_int(b, KNOB_strategy_first_stage_less, prefix, depth, 1) == 0 &&
                knob_int(b, KNOB_strategy_last_stage_less, prefix, depth, 1) == 0;
    out->order = *order ? ds_intern(&b->space->unit->strings, order) : NULL;
    out->late = (out->zero == 0 || out->zero == 1) &&
                knob_int(b, KNOB_strategy_late_reduce, prefix, depth, 0) > 0;
    out->prefetch = knob_int(b, KNOB_strategy_prefetch, prefix, depth, -1);
    const char *reshard = knob_text(b, KNOB_strategy_reshard_after_forward, prefix, depth);
    bool again = strcmp(reshard, "always") == 0 || strcmp(reshard, "layers") == 0 ||
                 strcmp(reshard, "root") == 0;
    out->keeps_weights = !again && !(strcmp(reshard, "default") == 0 && out->pp == 1);
    out->no_sync = knob_int(b, KNOB_strategy_no_sync, prefix, depth, 1) > 0;
    out->uneven = knob_int(b, KNOB_strategy_zero_uneven, prefix, depth, 0) > 0;
    const char *p2p = knob_text(b, KNOB_strategy_p2p, prefix, depth);
    out->blocking = strcmp(p2p, "blocking") == 0;
    out->batched = strcmp(p2p, "batched") == 0;
    out->parts = out->tp > 1 && knob_int(b, KNOB_strategy_scatter_gather, prefix, depth, 1);
}

/* Where the mesh of a region lies. */
typedef struct placed {
    ds_bound_machine *machine;
    const ds_bound_mesh *mesh;
} placed;

static int64_t transfer_ps(void *context, ds_opcode op, int64_t bytes) {
    const placed *p = context;
    return ds_bound_mesh_transfer_ps(p->machine, p->mesh, op, bytes);
}

/* Adds the layers, once every knob that shapes a layer is known; for bytes alone, layers without
 * transfers, which are the same on every mesh. */
static void add_layers(ds_bounds *b, const ds_choice *prefix, uint32_t depth, bool bytes,
                       ds_bound_region *out) {
    const char *recompute = knob_text(b, KNOB_strategy_recompute, prefix, depth);
    int64_t sp = knob_int(b, KNOB_strategy_sp, prefix, depth, -1), parts, world;
    const char *cp_type = knob_text(b, KNOB_strategy_cp_type, prefix, depth);
    const char *overlap =
        out->tp == 1 ? "none" : knob_text(b, KNOB_strategy_tp_overlap, prefix, depth);
    bool known = out->dp && out->tp && out->pp && out->cp && out->microbatches && sp >= 0 &&
                 *cp_type && *overlap && out->ep && is_by_layer(recompute);
    if (!known || !out->machine || !ds_mul_i64(out->dp, out->microbatches, &parts)) return;
    if (out->ep > 1 && (out->dp % out->ep || out->cp > 1)) return;
    if (!ds_mul_i64(out->dp * out->tp, out->pp, &world) || !ds_mul_i64(world, out->cp, &world) ||
        world > INT32_MAX)
        return;
    read_pipeline(b, prefix, depth, out);
    const ds_bound_mesh mesh = {out->dp, out->tp, out->pp, out->cp, out->order};
    placed place = {out->machine, &mesh};
    uint64_t group = out->order && !bytes ? ds_bound_mesh_group(out->machine, &mesh) : 0;
    ds_bound_sibling sibling = {.tp = out->tp,
                                .cp = out->cp,
                                .ep = out->ep,
                                .device = ds_bound_machine_device(out->machine),
                                .sp = sp > 0,
                                .recompute = recompute,
                                .cp_type = cp_type,
                                .tp_overlap = overlap,
                                .order = out->cp > 1 ? out->order : NULL,
                                .parts = parts,
                                .bytes = bytes,
                                .context = &place};
    if (group) sibling.transfer_ps = transfer_ps;
    out->layers = find_layers(b, prefix, depth, &sibling, group);
}

static ds_status read_region(ds_bounds *b, const ds_choice *prefix, uint32_t depth, bool bytes,
                             ds_bound_region *out, ds_error *err) {
    *out = (ds_bound_region){.zero = -1};
    if (b->refused || depth < b->shaped) return DS_OK;
    ds_status status = set_frame(b, prefix, depth, err);
    if (ds_space_is_of_values(status)) return DS_OK; /* a param that divides by zero, say */
    DS_TRY(status);
    out->dp = knob_int(b, KNOB_strategy_dp, prefix, depth, 0);
    out->tp = knob_int(b, KNOB_strategy_tp, prefix, depth, 0);
    out->pp = knob_int(b, KNOB_strategy_pp, prefix, depth, 0);
    out->cp = knob_int(b, KNOB_strategy_cp, prefix, depth, 0);
    out->ep = knob_int(b, KNOB_strategy_ep, prefix, depth, 0);
    out->microbatches = knob_int(b, KNOB_strategy_microbatches, prefix, depth, 0);
    out->zero = knob_int(b, KNOB_strategy_zero, prefix, depth, -1);
    if (is_said(b, KNOB_strategy_zero_group)) out->zero = -1;
    out->offload = offload_bits(b, prefix, depth, &out->offloads);
    out->machine = find_machine(b, prefix, depth);
    if (out->machine) out->capacity_bytes = ds_bound_machine_capacity(out->machine);
    if (out->machine && strcmp(knob_text(b, KEY_memory, prefix, depth), "allocator") == 0)
        out->process_bytes = ds_bound_machine_process(out->machine);
    add_layers(b, prefix, depth, bytes, out);
    return DS_OK;
}

ds_status ds_bounds_region(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err) {
    return read_region(b, prefix, depth, false, out, err);
}

ds_status ds_bounds_memory(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err) {
    return read_region(b, prefix, depth, true, out, err);
}

/* ---- of a space ---- */

ds_status ds_bounds_new(const ds_eval_source *source, ds_space *space, ds_bounds **out,
                        const char **why, ds_error *err) {
    ds_bounds *b = ds_xcalloc(1, sizeof *b);
    ds_arena_init(&b->arena);
    ds_map_init(&b->layers);
    ds_map_init(&b->machine_at);
    b->ground = ds_plan_ground_new();
    b->source = source;
    b->space = space;
    b->shapes = DS_NEW_N(&b->arena, bool, space->dims.n);
    memset(b->shapes, 0, space->dims.n * sizeof *b->shapes);
    b->places = DS_NEW_N(&b->arena, bool, space->dims.n);
    memset(b->places, 0, space->dims.n * sizeof *b->places);
    b->candidate = ds_candidate_new(space, &b->arena);
    b->set = ds_candidate_new(space, &b->arena).at;
    *why = ds_bounds_refusal(space, &b->arena);
    b->refused = *why != NULL;
    ds_status status = b->refused ? DS_OK : find_knobs(b, err);
    if (status == DS_OK && !b->refused) status = find_shapes(b, err);
    if (status == DS_OK) status = ds_space_cook(space, &space->walk, 0, err);
    if (status == DS_OK) status = ds_space_cook(space, &space->judge, 0, err);
    if (status == DS_OK) status = ds_space_cook(space, &space->region, 0, err);
    *out = b;
    if (status == DS_OK) return DS_OK;
    ds_bounds_free(b);
    *out = NULL;
    return status;
}

void ds_bounds_free(ds_bounds *b) {
    if (!b) return;
    for (uint32_t i = 0; i < b->machines.n; i++) ds_bound_machine_free(b->machines.at[i]);
    ds_plan_ground_free(b->ground);
    for (uint32_t i = 0; i < KEPT_SMALLS; i++) ds_bound_small_free(b->smalls[i].small);
    ds_map_deinit(&b->layers);
    ds_map_deinit(&b->machine_at);
    ds_arena_deinit(&b->arena);
    free(b);
}
