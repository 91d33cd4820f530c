/* The scenario's table of keys, its checks, and its readers. */
#include "ir/strategy/scenario.h"

#include "ir/base/units.h"

#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

#define INT(section, name, min, doc)                                                               \
    { section, name, DS_KNOB_INT, min, 'N', NULL, doc }
#define REAL(section, name, min, doc)                                                              \
    { section, name, DS_KNOB_REAL, min, 'N', NULL, doc }
#define BOOL(section, name, doc)                                                                   \
    { section, name, DS_KNOB_BOOL, 0, 'N', NULL, doc }
#define TEXT(section, name, choices, doc)                                                          \
    { section, name, DS_KNOB_TEXT, 0, 'N', choices, doc }
#define KIND(section, name, kind, doc)                                                             \
    { section, name, DS_KNOB_##kind, 0, 'N', NULL, doc }
#define QUANTITY(section, name, dimension, doc)                                                    \
    { section, name, DS_KNOB_QUANTITY, 0, dimension, NULL, doc }

#define DTYPES "f64 f32 tf32 bf16 f16 f8e4m3 f8e5m2 f4e2m1"

static const ds_knob knobs[] = {
    KIND("", "model", ENTRY, "the model to train: a function whose weights and steps passes make"),
    KIND("", "program", ENTRY,
         "the program to run as it stands: a function, or a program with one body per rank"),
    KIND("", "on", PLACE, "the devices that a model runs on: a topology"),
    KIND("", "mesh", MESH, "the mesh on which values without 'on' live"),
    KIND("", "train", SECTION, "how a model is trained; 'train = off' runs the forward pass alone"),
    KIND("", "strategy", SECTION, "how the work is split over the devices"),
    KIND("", "jobs", SECTION, "several programs on one cluster at a time, each a block"),
    KIND("", "profile", TEXT, "the measured device profile that gives op costs"),
    KIND("", "profiles", TEXTS, "one profile per kind of device, where there are several"),
    KIND("", "name", TEXT, "a short name for reports and file names"),
    KIND("", "title", TEXT, "a title for reports"),
    INT("", "batch", 1, "samples per step, for throughput"),
    TEXT("", "cost", "measured fitted",
         "where op costs come from: profile rows first, or the fitted curves alone"),
    TEXT("", "network", "fluid stepwise",
         "how transfers are simulated: as fluid phases, or message by message"),
    TEXT("", "memory", "exact rounded allocator",
         "what counts as used memory: the live bytes, the same in blocks of 512 bytes, or what a "
         "caching allocator reserves and the process holds beside it"),
    TEXT("", "masks", "drawn kept",
         "dropout's masks: drawn again in the backward pass, or a byte an element kept for it"),
    TEXT("", "framework", "none deepspeed megatron megatron_deepspeed fsdp",
         "whose defaults hold where train and strategy say nothing, and whose own buffers "
         "'memory = allocator' counts"),
    INT("", "seed", 0, "seed of the random factors (jitter, dropout)"),
    KIND("", "jitter", SECTION, "which durations are random; Monte-Carlo runs tell what it does"),

    KIND("jitter", "compute", RANDOM, "the factor of each op on each device"),
    KIND("jitter", "device", RANDOM, "the factor of all compute of a device, drawn once a run"),
    KIND("jitter", "network", RANDOM, "the factor of each transfer"),
    KIND("jitter", "straggler", RANDOM, "one more factor of a device, drawn once a run"),
    INT("jitter", "runs", 1, "how many runs"),

    QUANTITY("jobs", "start", 'T', "when the job's devices are free for it"),
    INT("jobs", "steps", 1, "how many steps the job takes, one after another"),

    TEXT("train", "loss", "mse cross_entropy none", "the loss; 'none' if the model returns it"),
    TEXT("train", "optimizer", "none sgd momentum adam adamw", "the optimizer of every weight"),
    REAL("train", "lr", 0, "learning rate"),
    REAL("train", "momentum", 0, "momentum of sgd with momentum"),
    REAL("train", "beta1", 0, "adam: decay of the first moment"),
    REAL("train", "beta2", 0, "adam: decay of the second moment"),
    REAL("train", "eps", 0, "adam: added to the root of the second moment"),
    REAL("train", "weight_decay", 0, "decay of the weights"),
    TEXT("train", "dtype", DTYPES, "dtype of activations and of the weights that ops read"),
    TEXT("train", "master_dtype", DTYPES, "dtype of the weights that the optimizer keeps"),
    TEXT("train", "grad_dtype", DTYPES, "dtype in which gradients are summed"),
    TEXT("train", "state_dtype", DTYPES, "dtype of the optimizer's moments"),
    TEXT("train", "product_dtype", DTYPES, "dtype of the layers' products with weights"),
    BOOL("train", "keep_gradients", "gradients are results of the step too"),
    REAL("train", "clip_norm", 0, "gradients are scaled such that their norm is at most this"),
    QUANTITY("train", "iteration_overhead", 'T',
             "what a step takes besides its operations: data loading, logging, host work"),

    INT("strategy", "dp", 1, "data-parallel replicas"),
    INT("strategy", "tp", 1, "tensor-parallel shards of a layer"),
    INT("strategy", "pp", 1, "pipeline stages"),
    INT("strategy", "cp", 1, "context-parallel shards of a sequence"),
    INT("strategy", "ep", 1, "expert-parallel groups; divides dp times cp"),
    TEXT("strategy", "cp_type", "ring ulysses all_gather",
         "how attention sees the whole sequence when it is split over cp"),
    BOOL("strategy", "sp", "sequence parallelism: the parts between tp regions are split too"),
    TEXT("strategy", "tp_overlap", "none bulk ring pipe",
         "with sp: what tensor parallelism's gathers and scatters run under"),
    INT("strategy", "microbatches", 1, "microbatches per step and pipeline"),
    KIND("strategy", "schedule", SCHEDULE,
         "order of the pipeline's work: a generator such as \"1f1b\", \"file:PATH\", or a schedule "
         "@s"),
    INT("strategy", "virtual_stages", 1, "chunks of the model per stage"),
    TEXT("strategy", "balance", "layers flops time",
         "what chunks are to have alike: turns of loops, FLOPs of the forward pass, or simulated "
         "time"),
    KIND("strategy", "stage_layers", INTS, "turns of loops in each chunk; overrides balance"),
    {"strategy", "dp_shares", DS_KNOB_INTS, 1, 'N', "time",
     "parts of a batch that each replica gets, as in [3, 1]; 'time': those that simulate fastest"},
    KIND("strategy", "stage_dp", INTS, "replicas of each stage, where they differ"),
    KIND("strategy", "stage_tp", INTS, "shards of a layer in each stage, where they differ"),
    TEXT("strategy", "p2p", "overlapped batched blocking",
         "what stages send each other: beside compute, a send and a receive as one, or in its "
         "order"),
    BOOL("strategy", "scatter_gather",
         "with tp: stages send each other a part of every activation, which is gathered there"),
    {"strategy", "zero", DS_KNOB_INT, 0, 'N', "0 1 2 3",
     "what the replicas share out: 1 optimizer state, 2 gradients too, 3 weights too"},
    INT("strategy", "zero_group", 1,
        "how many neighbouring replicas share out the state; divides dp, by default all of them"),
    BOOL("strategy", "zero_uneven",
         "with zero = 1: dims that the replicas do not divide are shared out in unequal parts"),
    BOOL("strategy", "late_reduce",
         "with zero = 0: gradients are reduced when the last backward pass has ended"),
    INT("strategy", "prefetch", 0, "with zero = 3: how many layers ahead weights are gathered"),
    {"strategy", "recompute", DS_KNOB_TEXTS, 0, 'N', "none selective full every:K",
     "which activations are computed again in the backward pass; a list names operations by path"},
    {"strategy", "offload", DS_KNOB_TEXTS, 0, 'N', "none activations optimizer weights",
     "what is kept in the memory of the hosts until it is needed"},
    QUANTITY("strategy", "bucket_size", 'B', "gradients are reduced in buckets of this many bytes"),
    TEXT("strategy", "order", NULL, "the mesh axes from outer to inner, as in \"pp dp cp tp\""),
    KIND("strategy", "ops", SECTION, "placements and splits of single ops, by path"),
};

#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef KIND
#undef QUANTITY

#define N_KNOBS ((uint32_t)(sizeof knobs / sizeof *knobs))

const ds_knob *ds_scenario_knobs(uint32_t *n) {
    *n = N_KNOBS;
    return knobs;
}

const ds_knob *ds_scenario_knob(const char *section, const char *name) {
    for (uint32_t i = 0; i < N_KNOBS; i++)
        if (strcmp(knobs[i].section, section) == 0 && strcmp(knobs[i].name, name) == 0)
            return &knobs[i];
    return NULL;
}

/* ---- readers ---- */

const ds_scenario *ds_unit_scenario(const ds_unit *unit) {
    const ds_module *root = unit->modules.n ? unit->modules.at[0] : NULL;
    return root && root->scenarios.n ? &root->scenarios.at[0] : NULL;
}

static const ds_attr *find_bare(const ds_attr *attrs, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (attrs[i].name && !attrs[i].quoted_name && strcmp(attrs[i].name, name) == 0)
            return &attrs[i];
    return NULL;
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
    const ds_attr *old = find_bare(*attrs, *n, entry->name);
    uint32_t at = old ? (uint32_t)(old - *attrs) : *n;
    ds_attr *fresh = DS_NEW_N(arena, ds_attr, *n + 1);
    if (*n) memcpy(fresh, *attrs, *n * sizeof *fresh);
    fresh[at] = *entry;
    *attrs = fresh;
    if (!old) ++*n;
}

void ds_scenario_set(ds_unit *unit, const char *section, const char *name, ds_attr entry) {
    ds_scenario *scenario = &unit->modules.at[0]->scenarios.at[0];
    entry.name = ds_intern(&unit->strings, name);
    const ds_attr *old = ds_scenario_find(unit, section, name);
    entry.loc = old ? old->loc : scenario->loc;
    if (*section) {
        const ds_attr *block = find_bare(scenario->entries, scenario->n_entries, section);
        ds_attr fresh = {.kind = DS_ATTR_BLOCK, .loc = scenario->loc};
        if (block && block->kind == DS_ATTR_BLOCK) fresh = *block;
        fresh.name = ds_intern(&unit->strings, section);
        put_entry(&unit->arena, &fresh.items, &fresh.n_items, &entry);
        entry = fresh;
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

ds_func *ds_scenario_program_func(const ds_unit *unit) {
    const char *name = place_name(unit, "program");
    return name ? ds_find_func(unit->modules.at[0], name) : NULL;
}

ds_func *ds_scenario_model(const ds_unit *unit) {
    const char *name = place_name(unit, "model");
    return name ? ds_find_func(unit->modules.at[0], name) : NULL;
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

static ds_status int_of(const ds_binding *binding, const ds_attr *attr, const char *section,
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
    return attr ? int_of(binding, attr, section, name, out, err) : DS_OK;
}

ds_status ds_scenario_int_at(const ds_binding *binding, const char *section, const char *name,
                             uint32_t index, int64_t *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    if (attr->kind == DS_ATTR_LIST) attr = &attr->items[index];
    return int_of(binding, attr, section, name, out, err);
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

static ds_status text_of(const ds_binding *binding, const ds_attr *attr, const char *section,
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
    return attr ? text_of(binding, attr, section, name, out, err) : DS_OK;
}

static bool is_word(const ds_attr *attr, const char *word) {
    return attr->kind == DS_ATTR_WORD && strcmp(attr->word, word) == 0;
}

ds_status ds_scenario_bool(const ds_binding *binding, const char *section, const char *name,
                           bool *out, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, section, name);
    if (!attr) return DS_OK;
    if (attr->kind == DS_ATTR_BOOL) {
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
    return text_of(binding, attr, section, name, out, err);
}
