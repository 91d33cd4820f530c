/* Which steps are made from templates, and the templates.
 *
 * A model qualifies if its function has one loop over layers, 0 … N, and N is a param that nothing
 * else depends on: then a model of fewer layers is made by another value of it (shorten.h). A
 * strategy qualifies if it treats all chunks alike, as the lines of the knobs say
 * (ir/strategy/knobs.def). What the passes see of the rest is the template's key: the params that
 * functions mention and the scenario's entries by value, but for those whose lines call them a
 * size. */
#include "search/compose/fold.h"

#include "ir/lang/mentions.h"
#include "ir/passes/snapshot.h"
#include "ir/strategy/scenario.h"
#include "search/compose/shorten.h"

#include <stdlib.h>
#include <string.h>

/* What is kept at most; then all of it is thrown away: bytes of templates (of a transformer one
 * takes about 1 MB), skeletons (of 4,096 devices about 0.2 MB), skeletons for which one graph has
 * found routes, units in timings of items (about 100 bytes each, weighed and accounted). */
#define MOST_BYTES ((size_t)96 << 20)
enum { MOST_SKELETONS = 256, MOST_ROUTED = 128, MOST_TIMED = 1 << 19 };

/* ---- the strategy ---- */

static bool knows(const ds_fold_step *step, ds_way way) {
    return !ds_knobs_unknown(step->binding, step->train, step->strategy, way);
}

/* The schedule that a template has: the order in which a stage runs items does not matter to what
 * these are, but that B is split from W does, and that the last microbatch comes first. */
static const char *form_of(const char *schedule) {
    if (strncmp(schedule, "zb-", 3) == 0 || strcmp(schedule, "gpipe") == 0) return schedule;
    return "1f1b";
}

/* Layers of each chunk, as `stage` cuts them. */
static bool cut(ds_fold_step *step, int64_t n) {
    const ds_strategy *s = step->strategy;
    int64_t sum = 0;
    free(step->turns);
    step->turns = ds_xcalloc(step->n_chunks, sizeof *step->turns);
    if (s->n_stage_layers && s->n_stage_layers != step->n_chunks) return false;
    for (uint32_t c = 0; c < step->n_chunks; c++) {
        step->turns[c] = s->n_stage_layers ? s->stage_layers[c]
                                           : ds_strategy_chunk_turns(s, n, step->n_chunks, c);
        if (step->turns[c] < 1) return false;
        sum += step->turns[c];
    }
    return sum == n;
}

/* Turns of the template's chunks; 0: chunks in the middle of three sorts. */
static uint32_t cut_template(const ds_fold_step *step, int64_t *turns) {
    uint32_t n = step->n_chunks;
    if (n < DS_FEW) {
        for (uint32_t c = 0; c < n; c++) turns[c] = ds_template__few(step->turns[c]);
        return n;
    }
    turns[0] = ds_template__few(step->turns[0]);
    turns[DS_SECOND] = turns[DS_THIRD] = ds_template__few(step->turns[1]);
    turns[DS_FEW - 1] = ds_template__few(step->turns[n - 1]);
    for (uint32_t c = 2; c + 1 < n; c++) {
        int64_t own = ds_template__few(step->turns[c]);
        if (own == turns[DS_SECOND] || own == turns[DS_THIRD]) continue;
        if (turns[DS_SECOND] != turns[DS_THIRD]) return 0;
        turns[DS_THIRD] = own;
    }
    return DS_FEW;
}

/* ---- keys ---- */

static uint64_t mix_num(uint64_t hash, const ds_num *num) {
    hash = ds_hash_mix(hash, (uint64_t)num->kind);
    if (num->kind == DS_NUM_STR) return ds_hash_mix(hash, ds_hash_bytes(num->s, strlen(num->s)));
    return ds_hash_mix(hash, num->kind == DS_NUM_INT ? (uint64_t)num->i
                                                     : ds_hash_bytes(&num->r, sizeof num->r));
}

typedef struct mixed {
    uint64_t hash;
    const ds_binding *binding;
    const ds_shorter *less;
} mixed;

static void mix_leaf(void *context, const ds_expr_node *leaf) {
    mixed *m = context;
    if (leaf->kind != DS_EXPR_PARAM) return;
    const ds_module *module = m->binding->unit->modules.at[(uint64_t)leaf->i >> 32];
    uint32_t index = (uint32_t)leaf->i;
    if (m->less && ds_shorter_has(m->less, module, index)) return;
    m->hash = mix_num(m->hash, &m->binding->params[module->id][index]);
}

/* Values of the params that functions mention; but for those in `less`. */
static uint64_t mix_funcs(uint64_t hash, const ds_binding *binding, const ds_shorter *less) {
    mixed m = {hash, binding, less};
    for (uint32_t i = 0; i < binding->unit->modules.n; i++) {
        const ds_module *module = binding->unit->modules.at[i];
        for (uint32_t f = 0; f < module->funcs.n; f++)
            ds_mentions_func(module->funcs.at[f], mix_leaf, &m);
    }
    return m.hash;
}

/* … that topologies, meshes and `degrade` mention. */
static uint64_t mix_devices(uint64_t hash, const ds_binding *binding) {
    mixed m = {.hash = hash, .binding = binding};
    for (uint32_t i = 0; i < binding->unit->modules.n; i++)
        ds_mentions_devices(binding->unit->modules.at[i], mix_leaf, &m);
    return m.hash;
}

static uint64_t mix_text(uint64_t hash, const char *text) {
    return ds_hash_mix(hash, ds_hash_bytes(text, strlen(text)));
}

static bool is_one_of(const char *const *names, const char *name) {
    while (names && *names && strcmp(*names, name) != 0) names++;
    return names && *names;
}

/* What a key leaves out: entries of at least that size, and those that no pass up to `behind` reads
 * (DS_PASS_COUNT: none of these). */
typedef struct left_out {
    ds_knob_size size;
    ds_pass_id behind;
} left_out;

static bool leaves_out(const left_out *out, const char *section, const char *name) {
    const ds_knob *knob = name ? ds_scenario_knob(section, name) : NULL;
    return knob && (knob->size >= out->size || ds_knob_is_late(knob, out->behind));
}

static uint64_t mix_attrs(uint64_t hash, const ds_binding *binding, const ds_attr *attrs,
                          uint32_t n, const char *section, const left_out *out) {
    ds_env env = ds_binding_env(binding, NULL);
    for (uint32_t i = 0; i < n; i++) {
        const ds_attr *attr = &attrs[i];
        if (leaves_out(out, section, attr->name)) continue;
        if (attr->name) hash = mix_text(hash, attr->name);
        hash = ds_hash_mix(ds_hash_mix(hash, attr->kind), (uint64_t)attr->unit << 1 | attr->flag);
        ds_num num;
        if ((attr->kind == DS_ATTR_EXPR || attr->kind == DS_ATTR_QUANTITY) &&
            ds_expr_eval(&env, attr->expr, attr->loc, &num, NULL) == DS_OK)
            hash = mix_num(hash, &num);
        if (attr->kind == DS_ATTR_WORD) hash = mix_text(hash, attr->word);
        if (attr->kind == DS_ATTR_PLACE) hash = mix_text(hash, attr->place.name);
        hash = mix_attrs(ds_hash_mix(hash, attr->n_items), binding, attr->items, attr->n_items,
                         attr->name ? attr->name : section, out);
    }
    return hash;
}

static uint64_t mix_scenario(uint64_t hash, const ds_binding *binding, const left_out *out) {
    const ds_scenario *scenario = ds_unit_scenario(binding->unit);
    return mix_attrs(hash, binding, scenario->entries, scenario->n_entries, "", out);
}

/* What a scenario says besides its model and strategy: where costs are from, how the network is
 * simulated, what is degraded. All that is kept is true for that alone. */
static uint64_t mix_setting(uint64_t hash, const ds_fold_step *step) {
    static const char *const of_templates[] = {"strategy", "train", "model", "on", NULL};
    static const left_out labels = {DS_SIZE_LABEL, DS_PASS_COUNT};
    const ds_scenario *scenario = ds_unit_scenario(step->binding->unit);
    for (uint32_t i = 0; i < scenario->n_entries; i++)
        if (!is_one_of(of_templates, scenario->entries[i].name))
            hash = mix_attrs(hash, step->binding, &scenario->entries[i], 1, "", &labels);
    return ds_hash_mix(hash, step->options->cost_mode);
}

/* Where axes lie in the mesh does not matter, but some groups go over two of them, in their order
 * in the mesh: the loss is summed over dp and tp. With cp and ep there are more. */
static uint64_t mix_order(uint64_t hash, const ds_strategy *s) {
    uint32_t place[2] = {0};
    bool many = s->cp > 1 || s->ep > 1;
    for (uint32_t i = 0; i < 4; i++) {
        if (many) hash = mix_text(hash, s->order[i]);
        if (strcmp(s->order[i], "dp") == 0) place[0] = i;
        if (strcmp(s->order[i], "tp") == 0) place[1] = i;
    }
    return ds_hash_mix(hash, s->dp > 1 && s->tp > 1 && place[0] < place[1]);
}

/* Of the template (behind: DS_PASS_COUNT), or of its program behind a pass. Sizes are what is
 * mixed in after the scenario; numbers of samples and replicas are sizes where the batch is
 * shortened. No pass up to `recompute` reads how large a microbatch is, or where axes lie. */
static uint64_t template_key(const ds_fold_step *step, const ds_shorter *less, uint32_t n_chunks,
                             const int64_t *turns, ds_pass_id behind) {
    const ds_strategy *s = step->strategy;
    bool shorter = less->batch.module != NULL, placed = behind != DS_PASS_RECOMPUTE;
    const left_out sizes = {ds_shorter_has_few(less, s) ? DS_SIZE_SAMPLES : DS_SIZE_STEP, behind};
    uint64_t hash = mix_funcs(n_chunks, step->binding, less);
    hash = mix_scenario(hash, step->binding, &sizes);
    for (uint32_t c = 0; c < n_chunks; c++) hash = ds_hash_mix(hash, (uint64_t)turns[c]);
    if (shorter && placed) hash = ds_hash_mix(hash, (uint64_t)(less->samples << 1 | (s->dp > 1)));
    bool many = shorter && s->microbatches > DS_SIBLING;
    hash = ds_hash_mix(hash, many ? DS_SIBLING : (uint64_t)s->microbatches);
    if (s->pp > 1) hash = mix_text(hash, form_of(s->schedule));
    if (placed) hash = mix_order(hash, s);
    hash = ds_hash_mix(hash, step->options->cost_mode);
    return ds_hash_mix(hash, step->options->keep_masks);
}

/* ---- devices ---- */

static void forget(ds_fold *fold);
static void forget_templates(ds_fold *fold);
static void forget_skeletons(ds_fold *fold);
static void forget_routes(ds_fold *fold);

static bool are_of_one_kind(const ds_topo *topo) {
    uint32_t n, n_devices = ds_topo_n_devices(topo);
    ds_topo_degraded_all(topo, &n);
    const char *type = n_devices ? ds_topo_device_type(topo, 0) : NULL;
    for (uint32_t d = 1; d < n_devices && type; d++) {
        const char *other = ds_topo_device_type(topo, d);
        if (!other || (other != type && strcmp(other, type) != 0)) return false;
    }
    return type && n == 0 && ds_topo_one_clock(topo);
}

static void make_room(ds_fold *fold) {
    if (fold->plans.n >= MOST_SKELETONS) forget_skeletons(fold);
    if (fold->plans.n >= fold->routed + MOST_ROUTED) forget_routes(fold);
}

static ds_status know_devices(ds_fold *fold, const ds_fold_step *step, ds_error *err) {
    make_room(fold);
    uint64_t key = mix_setting(mix_devices(1, step->binding), step);
    const ds_topology *on = ds_scenario_topology(step->binding->unit);
    key = on ? ds_hash_mix(key, DS_KEY(on)) : key;
    if (fold->topo_key != key) forget(fold);
    if (fold->topo_step) return DS_OK;
    DS_TRY(ds_model_step_new(step->binding, &fold->topo_step, err));
    const ds_topology *topology = ds_scenario_topology(fold->topo_step->unit);
    fold->unequal = true;
    fold->holds = false;
    fold->topo_key = key;
    if (!topology || ds_scenario_mesh(fold->topo_step->unit)) return DS_OK;
    DS_TRY(ds_topo_build(&fold->topo_step->binding, topology, &fold->topo, err));
    if (!are_of_one_kind(fold->topo)) return DS_OK;
    ds_plan *plan;
    ds_plan_options options = {.topo = fold->topo};
    DS_TRY(ds_plan_skeleton(&fold->topo_step->binding, step->profiles, &options, &(ds_plan_grid){0},
                            (ds_plan_meets){0}, &plan, err));
    fold->unequal = false;
    fold->kind = plan->classes[0].kind;
    fold->profile = plan->classes[0].profile;
    fold->holds = ds_profile_holds_compute(step->profiles, fold->profile);
    ds_plan_free(plan);
    return DS_OK;
}

/* ---- templates ---- */

static void free_template(ds_template *t) {
    for (uint32_t i = 0; t->others && i + 1 < t->replicas.n; i++) {
        ds_template__outlines_free(t->other_shapes[i], t->others[i].n_parts);
        ds_compose__parts_deinit(&t->others[i]);
    }
    free(t->others);
    free(t->other_shapes);
    free(t->replicas.at);
    ds_template__shape_deinit(t);
    ds_compose__parts_deinit(&t->s);
    ds_map_deinit(&t->bodies);
    ds_plan_free(t->plan);
    ds_unit_free(t->words);
    ds_fewer_free(t->fewer);
    free(t);
}

static void forget_plans(ds_fold *fold) {
    for (uint32_t i = 0; i < fold->plans.n; i++) ds_plan_free(fold->plans.at[i]);
    fold->plans.n = fold->routed = 0;
    ds_map_clear(&fold->skeletons);
}

/* Skeletons go with templates: a skeleton has the binding and the names of the template that the
 * skeleton was made for. */
static void forget_templates(ds_fold *fold) {
    forget_plans(fold);
    for (uint32_t i = 0; i < fold->all.n; i++) free_template(fold->all.at[i]);
    fold->all.n = 0;
    fold->template_bytes = 0;
    ds_map_clear(&fold->templates);
}

static void forget_routes(ds_fold *fold) {
    ds_topo_free(fold->topo);
    ds_model_step_free(fold->topo_step);
    fold->topo = NULL;
    fold->topo_step = NULL;
    fold->routed = fold->plans.n;
}

static void forget_skeletons(ds_fold *fold) {
    forget_plans(fold);
    forget_routes(fold);
}

static void forget(ds_fold *fold) {
    forget_templates(fold);
    forget_skeletons(fold);
    ds_programs_deinit(&fold->programs);
}

void ds_fold_deinit(ds_fold *fold) {
    forget(fold);
    free(fold->plans.at);
    free(fold->all.at);
    ds_map_deinit(&fold->skeletons);
    ds_map_deinit(&fold->templates);
}

void ds_fold_note_timed(ds_fold *fold, uint64_t units) {
    fold->timed += units;
    if (fold->timed < MOST_TIMED) return;
    for (uint32_t i = 0; i < fold->all.n; i++) ds_compose__timings_deinit(&fold->all.at[i]->s);
    fold->timed = 0;
}

/* What a template's step is, other than its candidate's. */
typedef struct small_step {
    const ds_template *t;
    const ds_shorter *less;
} small_step;

static void make_small(void *context, ds_model_step *step) {
    const small_step *small = context;
    uint32_t n = small->t->n_chunks;
    ds_strategy *s = &step->strategy;
    if (ds_shorter_has_few(small->less, s)) s->dp = s->zero_group = small->less->replicas;
    if (s->microbatches > DS_SIBLING) s->microbatches = DS_SIBLING;
    if (s->pp == 1) return;
    int64_t *turns = DS_NEW_N(&step->unit->arena, int64_t, n);
    memcpy(turns, small->t->turns, n * sizeof *turns);
    s->pp = n;
    s->virtual_stages = 1;
    s->schedule = form_of(s->schedule);
    s->stage_layers = turns;
    s->n_stage_layers = n;
}

static ds_status make_step(ds_fold *fold, ds_template *t, const ds_fold_step *step,
                           const ds_shorter *less, ds_error *err) {
    int64_t n = 0;
    for (uint32_t c = 0; c < t->n_chunks; c++) n += t->turns[c];
    ds_binding binding = ds_shorter_binding(step->binding, step->strategy, less, n);
    small_step small = {t, less};
    ds_program_wish wish = {
        .recompute_key = template_key(step, less, t->n_chunks, t->turns, DS_PASS_RECOMPUTE),
        .shard_key = template_key(step, less, t->n_chunks, t->turns, DS_PASS_SHARD),
        .samples = less->samples * less->replicas,
        .source = &binding,
        .strategy = step->strategy,
        .change = make_small,
        .context = &small};
    ds_status status = ds_programs_lend(&fold->programs, &wish, &t->step, err);
    ds_shorter_binding_free(&binding);
    return status;
}

static int64_t world_of(const ds_strategy *s) {
    return s->dp * s->cp * s->tp * s->pp;
}

/* The schematic plan: that of the first sort of replicas, which can become those of the others. */
static bool make_plan(const ds_fold *fold, const ds_fold_step *step, ds_template *t) {
    ds_plan_schematic schematic = {.kind = fold->kind,
                                   .profile = fold->profile,
                                   .clock_ppb = ds_topo_device_clock(fold->topo, 0),
                                   .power_mw = ds_topo_device_power_mw(fold->topo, 0),
                                   .n_devices = world_of(step->strategy)};
    ds_plan_options options = {.cost_mode = step->options->cost_mode,
                               .schematic = &schematic,
                               .keeps_products = ds_strategy_keeps_products(step->strategy)};
    ds_error unsaid;
    if (t->replicas.n > 1) {
        schematic.others = t->replicas.at + 1;
        schematic.n_others = t->replicas.n - 1;
    }
    if (ds_plan_build(&t->step->binding, step->profiles, &options, &t->plan, &unsaid) != DS_OK)
        return ds_template__unknown(t, "communication of another kind");
    return !t->plan->sorts_differ || ds_template__unknown(t, "replicas that differ");
}

/* All has been read: what is left of the step are words. */
static ds_status end_step(ds_fold *fold, ds_template *t, ds_status status, ds_error *err) {
    if (status == DS_OK && !t->why) status = ds_template__keep_words(t, err);
    ds_plan_free(t->plan);
    t->plan = NULL;
    t->step = NULL;
    ds_programs_done(&fold->programs);
    return status;
}

/* The parts of the plan, of whichever sort of replicas it is now, in t->s. */
static void read_sort(const ds_fold_step *step, uint32_t n_chunks, ds_template *t,
                      const ds_outline *first, ds_outline **shapes) {
    bool fine = ds_compose__parts(&t->s, t->plan, t->step->strategy.microbatches, n_chunks) &&
                ds_compose__buffers(&t->s, step->options->keep_masks) &&
                (first ? ds_template__other_kinds(t, first, shapes) : ds_template__shape(t));
    if (!fine && !t->why) t->why = t->s.why ? t->s.why : "a step of another kind";
    if (t->exact) t->n_chunks = t->plan->n_classes;
    if (fine && t->fewer) ds_template__read_fewer(t);
    t->s.plan = NULL;
    ds_compose__reading_deinit(&t->s);
}

static void keep_template(ds_fold *fold, uint64_t key, ds_template *t) {
    ds_map_put(&fold->templates, key, DS_KEY(t));
    DS_HPUSH(&fold->all, t);
    fold->template_bytes += ds_template__bytes(t);
}

/* Room is made for a new one, not before: the next step may want the last one, be it ever so large.
 */
static ds_template *new_template(ds_fold *fold) {
    if (fold->template_bytes >= MOST_BYTES) forget_templates(fold);
    return ds_xcalloc(1, sizeof(ds_template));
}

static ds_status fill_template(ds_fold *fold, const ds_fold_step *step, const ds_shorter *less,
                               ds_template *t, ds_error *err) {
    t->few_replicas = ds_shorter_has_few(less, step->strategy);
    ds_status status = make_step(fold, t, step, less, err);
    if (status == DS_OK && make_plan(fold, step, t))
        read_sort(step, step->strategy->pp > 1 ? t->n_chunks : 0, t, NULL, NULL);
    return end_step(fold, t, status, err);
}

ds_status ds_fold_template(ds_fold *fold, ds_fold_step *step, ds_template **out, ds_error *err) {
    ds_shorter less = {0};
    int64_t turns[DS_FEW] = {0};
    *out = NULL;
    if (!knows(step, DS_WAY_TEMPLATE)) return DS_OK;
    const char *loop = ds_shorter_find_layers(step->binding, &less);
    if (!loop || !cut(step, ds_shorter_n_layers(step->binding, &less))) return DS_OK;
    ds_shorter_find_batch(step->binding, step->strategy, &less);
    uint32_t n_chunks = cut_template(step, turns);
    if (!n_chunks) return DS_OK;
    DS_TRY(know_devices(fold, step, err));
    if (fold->unequal || fold->holds) return DS_OK;
    uint64_t key = template_key(step, &less, n_chunks, turns, DS_PASS_COUNT);
    if (ds_profile_is_generic(step->profiles, fold->profile)) /* the slowest of so many devices */
        key = ds_hash_mix(key, (uint64_t)world_of(step->strategy));
    const uint64_t *found = ds_map_find(&fold->templates, key);
    ds_template *t = found ? (ds_template *)(uintptr_t)*found : NULL;
    if (!t) {
        t = new_template(fold);
        t->n_chunks = n_chunks;
        t->loop = loop;
        memcpy(t->turns, turns, sizeof turns);
        ds_status status = fill_template(fold, step, &less, t, err);
        if (status != DS_OK) {
            free_template(t);
            return status;
        }
        keep_template(fold, key, t);
    }
    if (!t->why) *out = t;
    return DS_OK;
}

/* ---- of the step itself ---- */

static uint64_t exact_key(const ds_fold_step *step, ds_pass_id behind) {
    const left_out places = {DS_SIZE_MESH, behind};
    uint64_t hash = mix_funcs(2, step->binding, NULL);
    hash = mix_scenario(hash, step->binding, &places);
    hash = mix_order(hash, step->strategy);
    hash = ds_hash_mix(hash, step->options->cost_mode);
    return ds_hash_mix(hash, step->options->keep_masks);
}

static void add_sort(ds_template *t, int64_t replica) {
    uint32_t at = 0;
    while (at < t->replicas.n && t->replicas.at[at] < replica) at++;
    if (at < t->replicas.n && t->replicas.at[at] == replica) return;
    DS_HPUSH(&t->replicas, replica);
    for (uint32_t i = t->replicas.n - 1; i > at; i--) t->replicas.at[i] = t->replicas.at[i - 1];
    t->replicas.at[at] = replica;
}

static void find_steps(ds_template *t, const ds_split *split) {
    for (uint32_t i = 1; i < split->n_sizes; i++)
        if (split->sizes[i].i != split->sizes[i - 1].i) add_sort(t, i);
}

/* Where unequal parts become smaller: only ZeRO makes such, over dp (ir/passes/shard/grad.c). */
static void find_sorts(ds_template *t) {
    const ds_module *module = t->step->unit->modules.at[0];
    const ds_expr *last = NULL; /* those of one dim are shared by many types */
    add_sort(t, 0);
    for (uint32_t f = 0; f < module->funcs.n && t->step->strategy.zero_uneven; f++)
        for (uint32_t v = 0; v < module->funcs.at[f]->values.n; v++) {
            const ds_type *type = module->funcs.at[f]->values.at[v].type;
            for (uint32_t d = 0; type && d < type->rank; d++) {
                const ds_split *split = type->dims[d].n_splits ? type->dims[d].splits : NULL;
                if (split && split->sizes != last) find_steps(t, split);
                if (split) last = split->sizes;
            }
        }
}

/* Do they consist of the same units? */
static bool is_alike(const ds_sibling *a, const ds_sibling *b) {
    bool alike = a->n_parts == b->n_parts;
    for (uint32_t p = 0; alike && p < a->n_parts; p++) {
        const ds_body *x = a->parts[p].body, *y = b->parts[p].body;
        alike = x->units.n == y->units.n && x->allocs.n == y->allocs.n &&
                x->frees.n == y->frees.n && x->users.n == y->users.n && x->checks.n == y->checks.n;
    }
    return alike;
}

/* Chunks that an exact template is read with. */
static uint32_t n_read(const ds_fold_step *step, const ds_template *t) {
    return t->fewer ? t->fewer->n : step->items->n_chunks;
}

static void read_others(const ds_fold_step *step, ds_template *t) {
    uint32_t n = t->replicas.n - 1;
    ds_sibling first = t->s;
    t->others = ds_xcalloc((size_t)n + 1, sizeof *t->others);
    t->other_shapes = ds_xcalloc((size_t)n + 1, sizeof *t->other_shapes);
    for (uint32_t i = 0; i < n && !t->why; i++) {
        t->s = (ds_sibling){.whole = true};
        ds_plan_take_sort(t->plan, i);
        read_sort(step, n_read(step, t), t, t->shapes, &t->other_shapes[i]);
        t->others[i] = t->s;
        if (!t->why && !is_alike(&first, &t->others[i])) t->why = "replicas that differ";
    }
    t->s = first;
}

/* ---- fewer virtual stages ---- */

/* May it be read with fewer virtual stages? Then every chunk has as many turns but for some in the
 * middle, and the model's loop, if nothing else depends on how many layers there are, has them. */
static bool may_leave_out(ds_fold_step *step, ds_shorter *less, const char **loop) {
    if (step->strategy->pp == 1 || !knows(step, DS_WAY_FEWER)) return false;
    *loop = ds_shorter_find_layers(step->binding, less);
    return *loop && cut(step, ds_shorter_n_layers(step->binding, less));
}

static void make_fewer(void *context, ds_model_step *step) {
    const ds_fewer *by = context;
    ds_strategy *s = &step->strategy;
    int64_t *turns = DS_NEW_N(&step->unit->arena, int64_t, by->n);
    memcpy(turns, by->turns, by->n * sizeof *turns);
    s->virtual_stages = by->n / by->pp;
    s->stage_layers = turns;
    s->n_stage_layers = by->n;
}

static ds_status fill_exact(ds_fold *fold, const ds_fold_step *step, const ds_shorter *less,
                            ds_template *t, ds_error *err) {
    ds_fewer *by = t->fewer;
    int64_t n = 0;
    ds_binding binding = {0};
    ds_program_wish wish = {.recompute_key = exact_key(step, DS_PASS_RECOMPUTE) + (by != NULL),
                            .shard_key = exact_key(step, DS_PASS_SHARD) + (by != NULL),
                            .source = step->binding,
                            .strategy = step->strategy};
    if (by) {
        for (uint32_t c = 0; c < by->n; c++) n += by->turns[c];
        binding = ds_shorter_binding(step->binding, step->strategy, less, n);
        wish.source = &binding;
        wish.change = make_fewer;
        wish.context = by;
    }
    ds_status status = ds_programs_lend(&fold->programs, &wish, &t->step, err);
    if (by) ds_shorter_binding_free(&binding);
    if (status != DS_OK) return end_step(fold, t, status, err);
    t->exact = t->s.whole = true;
    find_sorts(t);
    if (make_plan(fold, step, t)) read_sort(step, n_read(step, t), t, NULL, NULL);
    if (!t->why) read_others(step, t);
    if (!t->why && by) ds_template__lengthen(t);
    return end_step(fold, t, DS_OK, err);
}

static ds_status make_exact(ds_fold *fold, ds_fold_step *step, ds_template **out, ds_error *err) {
    ds_shorter less = {0};
    const char *loop = NULL;
    ds_fewer *fewer = may_leave_out(step, &less, &loop)
                          ? ds_fewer_new((uint32_t)step->strategy->pp, step->n_chunks, step->turns,
                                         step->strategy->microbatches)
                          : NULL;
    for (;; fewer = NULL) {
        ds_template *t = new_template(fold);
        t->loop = loop;
        t->fewer = fewer;
        ds_error unsaid; /* the step's own are those of the whole step */
        ds_status status = fill_exact(fold, step, &less, t, fewer ? &unsaid : err);
        if (status == DS_OK && !(fewer && t->why)) {
            *out = t;
            return DS_OK;
        }
        free_template(t);
        if (!fewer) return status; /* what its chunks are may have been the reason */
    }
}

ds_status ds_fold_exact(ds_fold *fold, ds_fold_step *step, ds_template **out, const char **why,
                        ds_error *err) {
    *out = NULL;
    DS_TRY(know_devices(fold, step, err));
    if (fold->holds) return DS_OK;
    *why = fold->unequal ? "devices of several kinds" : NULL;
    if (*why) return DS_OK;
    uint64_t key = exact_key(step, DS_PASS_COUNT);
    const uint64_t *found = ds_map_find(&fold->templates, key);
    ds_template *t = found ? (ds_template *)(uintptr_t)*found : NULL;
    if (!t) {
        DS_TRY(make_exact(fold, step, &t, err));
        keep_template(fold, key, t);
    }
    *why = t->why;
    if (!t->why) *out = t;
    return DS_OK;
}
