/* The SPMD partitioner: a model function with hints becomes a program with explicit splits and
 * communication, in one walk in program order, backward ops like all others.
 *
 * Each op is given layouts for its operands (choose.c), the operands are moved there
 * (move.c), the op table says what comes out. Sums over devices stay unsummed as long as only
 * additions and changes of shape read them, so that the three input gradients of q, k and v are
 * added first and reduced once. What Megatron's authors placed by hand (two all_reduces forward and
 * two backward a layer; with sequence parallelism pairs of all_gather and reduce_scatter) follows
 * from where the weights lie.
 *
 * Loops are kept (walk.c). A function that is called is walked at its first call, with
 * arguments as they lie there; later calls move theirs to that.
 *
 * What was moved is not moved again in the same block, but not from the forward to the backward
 * pass: what is kept for the backward is the value before it was gathered. */
#include "ir/passes/shard/internal.h"

#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

static ds_status make_func(ds_sharder *s, const ds_func *from, const ds_type *const *args,
                           ds_func **out, ds_error *err);

static ds_func *made_func(const ds_sharder *s, const ds_func *from) {
    for (uint32_t i = 0; i < s->funcs.n; i++)
        if (s->funcs.at[i].from == from) return s->funcs.at[i].to;
    return NULL;
}

static ds_status call_args(ds_sharder *s, const ds_op *old, const ds_func *callee, ds_use *in,
                           const ds_type **types, ds_error *err) {
    for (uint32_t i = 0; i < old->n_in; i++) {
        DS_TRY(ds_shard__read(s, &old->in[i], &in[i], err));
        in[i] = ds_shard__whole_weight(s, in[i]);
        const ds_value_info *info = ds_value_at(s->f.b.func, in[i].value);
        bool family = info->n_binders && !in[i].n_index;
        types[i] = ds_shard__type_of(s, &in[i]);
        if (!callee) continue;
        ds_layout to = ds_shard__layout(s, ds_value_at(callee, callee->args[i])->type);
        ds_layout now = ds_shard__layout(s, types[i]);
        bool summed = (to.sum & ~now.sum) || (to.max & ~now.max); /* a sum cannot be a term again */
        if (summed || (family && !ds_shard__same_layout(&now, &to)))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, old->loc,
                                "%s%%%s is split otherwise than at the first call of @%s",
                                family ? "the family " : "", info->name, callee->name);
        if (!family) DS_TRY(ds_shard__move(s, in[i], &to, &in[i], err));
    }
    return DS_OK;
}

ds_status ds_shard__call(ds_sharder *s, const ds_op *old, ds_error *err) {
    ds_use *in = DS_NEW_N(&s->unit->arena, ds_use, old->n_in + 1);
    const ds_type **types = DS_NEW_N(&s->unit->arena, const ds_type *, old->n_in + 1);
    ds_func *callee = made_func(s, old->callee);
    DS_TRY(ds_shard__flush(s, err));
    DS_TRY(call_args(s, old, callee, in, types, err));
    if (!callee) DS_TRY(make_func(s, old->callee, types, &callee, err));
    ds_op *op = ds_build_op(&s->f.b, DS_OP_CALL);
    op->loc = old->loc;
    op->attrs = old->attrs;
    op->n_attrs = old->n_attrs;
    op->callee = callee;
    op->callee_name = callee->name;
    for (uint32_t i = 0; i < old->n_in; i++) ds_build_in(&s->f.b, op, in[i]);
    for (uint32_t i = 0; i < old->n_out; i++) {
        ds_value out = ds_build_out(&s->f.b, op, ds_value_at(s->f.from, old->out[i])->name,
                                    callee->results[i]);
        ds_value_info *info = ds_value_at(s->f.b.func, out);
        info->binders = callee->result_binders[i];
        info->n_binders = callee->n_result_binders[i];
        ds_shard__define(s, old->out[i], out);
    }
    return ds_shard__put(s, op, &(ds_shard_value){0}, err);
}

/* ---- functions ---- */

static ds_status add_arg(ds_sharder *s, ds_value old, const ds_type *given, ds_error *err) {
    const ds_value_info *info = ds_value_at(s->f.from, old);
    ds_layout layout;
    ds_shard_value known = {0};
    const uint64_t *weight = ds_map_find(&s->f.weights, old.i);
    const uint64_t *owner = weight ? weight : ds_map_find(&s->f.states, old.i);
    int64_t zero = s->step->strategy.zero;
    s->here = owner ? ds_shard__home_mesh(s, (uint32_t)*owner) : 0;
    DS_TRY(ds_shard__hint(s, info->type, info->name, info->loc, &layout, &known.seq, err));
    bool found = false;
    if (owner) {
        const char *name = s->step->weights.at[*owner].name;
        DS_TRY(ds_shard__home(s, name, true, &layout, &found, err));
        known.weight = weight ? (uint32_t)*weight + 1 : 0;
        known.home = layout;
        if (weight ? ds_shard__gets_parts(s) : zero >= 1)
            layout = ds_shard__zero_layout(s, info->type, &layout);
        if (!weight) ds_shard__update_at(s, (uint32_t)*owner, &layout);
    } else if (given) {
        layout = ds_shard__layout(s, given);
    } else {
        DS_TRY(ds_shard__home(s, info->name, false, &layout, &found, err));
    }
    ds_value made = ds_build_arg(&s->f.b, info->name, ds_shard__type(s, info->type, &layout),
                                 info->binders, info->n_binders, info->attrs, info->n_attrs);
    *ds_shard__value(s, made) = known;
    ds_shard__define(s, old, made);
    return DS_OK;
}

/* The step's results are whole sums; a microbatch's stay terms, which the next one adds to. */
static ds_status results(ds_sharder *s, const ds_op *ret, ds_error *err) {
    ds_use *uses = DS_NEW_N(&s->unit->arena, ds_use, ret->n_in + 1);
    DS_TRY(ds_shard__flush(s, err));
    for (uint32_t i = 0; i < ret->n_in; i++) {
        DS_TRY(ds_shard__read(s, &ret->in[i], &uses[i], err));
        const ds_value_info *info = ds_value_at(s->f.b.func, uses[i].value);
        bool family = info->n_binders && !uses[i].n_index;
        if (s->f.from == s->step->func && !family)
            DS_TRY(ds_shard__resolve(s, uses[i], &uses[i], err));
    }
    return ds_build_return(&s->f.b, uses, ret->n_in, err);
}

static bool axis_size(void *context, const ds_place *on, const char *axis, int64_t *size) {
    const ds_sharder *s = context;
    *size = 1;
    for (uint32_t m = 0; m < s->meshes.n; m++) {
        const ds_shard_mesh *mesh = &s->meshes.at[m];
        if (m ? on->kind != DS_PLACE_MESH || on->name != mesh->name
              : on->kind == DS_PLACE_MESH && on->name != mesh->name)
            continue;
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (mesh->axes[a].name == axis) *size = mesh->axes[a].size;
        return true;
    }
    return false;
}

static ds_status fill_func(ds_sharder *s, const ds_type *const *args, ds_error *err) {
    const ds_op *ret = ds_block_end(&s->f.from->body);
    ds_shard__find_weights(s);
    DS_TRY(ds_shard__places(s, s->f.from, &s->f.places, err));
    for (uint32_t i = 0; i < s->f.from->n_args; i++)
        DS_TRY(add_arg(s, s->f.from->args[i], args ? args[i] : NULL, err));
    DS_TRY(ds_shard__gather_all(s, err));
    ds_shard__find_gradients(s);
    DS_TRY(ds_shard__walk(s, &s->f.from->body, err));
    if (!ret || ret->code != DS_OP_RETURN)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, s->f.from->loc, "@%s has no results",
                            s->f.from->name);
    return results(s, ret, err);
}

static void frame_init(ds_shard_frame *f, const ds_sharder *s, const ds_func *from) {
    *f = (ds_shard_frame){.from = from};
    f->final = from == s->step->func || strcmp(from->name, "last") == 0;
    f->to = ds_xcalloc(from->values.n + 1, sizeof *f->to);
    f->state = ds_xcalloc(from->values.n + 1, 1);
    ds_map_init(&f->weights);
    ds_map_init(&f->states);
    ds_map_init(&f->gradients);
    ds_map_init(&f->whole);
}

static void frame_deinit(ds_shard_frame *f) {
    ds_map_deinit(&f->weights);
    ds_map_deinit(&f->states);
    ds_map_deinit(&f->gradients);
    ds_map_deinit(&f->whole);
    free(f->to);
    free(f->state);
    free(f->info.at);
    free(f->moved.at);
    free(f->pending.at);
    free(f->imports.at);
    free(f->stand_ins.at);
}

static ds_status make_func(ds_sharder *s, const ds_func *from, const ds_type *const *args,
                           ds_func **out, ds_error *err) {
    const ds_shard_frame outer = s->f;
    const uint8_t here = s->here;
    frame_init(&s->f, s, from);
    ds_build_func(&s->f.b, s->module, from->name, false);
    ds_build_reserve(&s->f.b, from->values.n + from->values.n / 4);
    s->f.b.axis_size = axis_size;
    s->f.b.context = s;
    ds_status status = fill_func(s, args, err);
    *out = ds_build_end(&s->f.b);
    frame_deinit(&s->f);
    s->f = outer;
    s->here = here;
    if (status == DS_OK) DS_PUSH(&s->unit->arena, &s->funcs, ((ds_shard_func){from, *out}));
    return status;
}

/* ---- the scenario ---- */

static bool is_entry(const ds_attr *attr, const char *name) {
    return strcmp(attr->name, name) == 0;
}

/* model, on, train and strategy have been carried out: now it is a program on a mesh. */
static void become_program(ds_sharder *s) {
    ds_scenario *scenario = &s->module->scenarios.at[0];
    ds_attr *entries = DS_NEW_N(&s->unit->arena, ds_attr, scenario->n_entries + 1);
    uint32_t n = 0;
    ds_attr mesh = {.name = ds_intern(&s->unit->strings, "mesh"),
                    .kind = DS_ATTR_PLACE,
                    .place = {.kind = DS_PLACE_MESH, .name = s->program_mesh}};
    for (uint32_t i = 0; i < scenario->n_entries; i++) {
        ds_attr entry = scenario->entries[i];
        if (is_entry(&entry, "on") || is_entry(&entry, "train") || is_entry(&entry, "strategy") ||
            is_entry(&entry, "mesh"))
            continue;
        bool model = is_entry(&entry, "model");
        if (model) entry.name = ds_intern(&s->unit->strings, "program");
        entries[n++] = entry;
        if (model) entries[n++] = mesh;
    }
    scenario->entries = entries;
    scenario->n_entries = n;
}

static ds_status check_shares(const ds_sharder *s, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(s->unit, "strategy", "dp_shares");
    if (!s->step->strategy.dp_shares_by_time || s->step->strategy.dp == 1) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, attr ? attr->loc : DS_NOWHERE,
                        "dp_shares = time takes the parts that simulate fastest, and a pass does "
                        "not simulate: they must be found before the passes run, and are then "
                        "numbers");
}

static ds_status shard(ds_sharder *s, ds_error *err) {
    ds_func *func;
    DS_TRY(check_shares(s, err));
    DS_TRY(ds_shard__mesh(s, err));
    DS_TRY(ds_shard__overrides(s, err)); /* from now on the number of meshes is known */
    DS_TRY(ds_shard__groups(s, err));
    s->step->has_views = s->meshes.n > s->n_own;
    DS_TRY(make_func(s, s->step->func, NULL, &func, err));
    DS_TRY(ds_shard__overrides_used(s, err));
    if (s->mesh_of_chunk) ds_shard__narrow(s);
    for (uint32_t i = 0; i < s->funcs.n; i++) ds_model_step_set_func(s->step, s->funcs.at[i].to);
    s->step->func = func;
    become_program(s);
    return DS_OK;
}

ds_status ds_pass_shard(ds_model_step *step, ds_error *err) {
    ds_shard_known known;
    ds_sharder s = {
        .step = step, .known = &known, .unit = step->unit, .module = step->unit->modules.at[0]};
    ds_map_init(&known.sizes);
    ds_map_init(&known.uneven);
    ds_map_init(&known.choices);
    ds_map_init(&s.chunk_of_op);
    ds_status status = shard(&s, err);
    ds_shard__places_deinit(&s);
    ds_map_deinit(&s.chunk_of_op);
    ds_map_deinit(&known.sizes);
    ds_map_deinit(&known.uneven);
    ds_map_deinit(&known.choices);
    return status;
}
