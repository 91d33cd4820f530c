/* Ranks, their arguments and results, and the scenario that runs them. */
#include "ir/passes/project/internal.h"

#include "ir/core/rec.h"
#include "ir/exec/exec.h"
#include "ir/passes/passes.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FAMILY (INT64_C(1) << 17) /* the most elements of a family that become arguments */

/* ---- arguments ---- */

/* An argument, or one element of a family of which a rank has only some. */
typedef struct argument {
    const ds_value_info *info;
    const char *name;  /* in the rank's body */
    const char *input; /* the name from which exec draws numbers */
    const ds_binder *binders;
    uint32_t n_binders; /* of binders that remain */
    ds_value value;
} argument;

static bool is_one_of(const char *name, const char *const *names, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static bool is_whole(const ds_pj_box *box) {
    for (uint32_t d = 0; d < box->rank; d++)
        if (box->full[d].i != box->size[d].i) return false;
    return true;
}

static ds_expr item(const ds_attr *attr, uint32_t i) {
    return attr && attr->kind == DS_ATTR_LIST && i < attr->n_items ? attr->items[i].expr
                                                                   : DS_NO_EXPR;
}

/* {of = whole, at = box}; an argument that is itself a box of a larger tensor keeps that tensor. */
static void add_box(ds_projector *p, ds_op *op, const ds_pj_box *box) {
    const ds_attr *of = ds_attr_find(op->attrs, op->n_attrs, "of");
    const ds_attr *at = ds_attr_find(op->attrs, op->n_attrs, "at");
    ds_expr whole[DS_MAX_RANK], lo[DS_MAX_RANK];
    if (is_whole(box)) return;
    for (uint32_t d = 0; d < box->rank; d++) {
        ds_expr n = item(of, d), first = item(at, d);
        whole[d] = DS_HAS_EXPR(n) ? n : box->full[d];
        lo[d] =
            DS_HAS_EXPR(first) ? ds_project__fold(p, DS_EXPR_ADD, first, box->lo[d]) : box->lo[d];
    }
    ds_build_attr_exprs(&p->b, op, "of", whole, box->rank);
    ds_build_attr_exprs(&p->b, op, "at", lo, box->rank);
}

/* Writes the range of integers that the whole look-up table allows, because a rank may see only a
 * part of the table. */
static ds_status add_range(ds_projector *p, const ds_pj_frame *f, ds_op *op, const argument *a,
                           ds_error *err) {
    int64_t below = 0;
    if (ds_dtype_is_float(a->info->type->dtype) || ds_attr_find(op->attrs, op->n_attrs, "range"))
        return DS_OK;
    DS_TRY(ds_exec_input_range(p->source, f->scope.func, a->value, &below, err));
    if (below > 0) ds_build_attr_int(&p->b, op, "range", below);
    return DS_OK;
}

static ds_status check_partial(const ds_type *type, const ds_exec_place *place, const char *name,
                               ds_loc loc, ds_error *err) {
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (ds_exec_axis_size(place, type->partials[i].axis) > 1)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                                "%%%s is an input that is partial over %s: a rank's argument is a "
                                "box of an input, not a term of it",
                                name, type->partials[i].axis);
    return DS_OK;
}

static ds_status add_argument(ds_projector *p, const ds_pj_frame *f, const argument *a,
                              ds_pj_slot *slot, ds_error *err) {
    const ds_value_info *info = a->info;
    const ds_exec_place *place;
    uint32_t at;
    ds_pj_box box;
    DS_TRY(ds_project__position(p, f, info->type, info->loc, &place, &at, err));
    *slot = (ds_pj_slot){0};
    if (at == UINT32_MAX) return DS_OK;
    DS_TRY(check_partial(info->type, place, info->name, info->loc, err));
    DS_TRY(ds_project__box(p, f, info->type, (ds_pj_member){place, at}, info->loc, &box, err));
    ds_op attrs = {.n_attrs = info->n_attrs}; /* an argument has attributes as an op does */
    DS_TRY(ds_project__attrs(p, f, info->attrs, info->n_attrs, &attrs.attrs, err));
    ds_build_attr_text(&p->b, &attrs, "input", a->input);
    add_box(p, &attrs, &box);
    DS_TRY(add_range(p, f, &attrs, a, err));
    ds_value value = ds_build_arg(&p->b, a->name, ds_project__type_of_box(p, &box), a->binders,
                                  a->n_binders, attrs.attrs, attrs.n_attrs);
    slot->kind = a->n_binders ? DS_PJ_FAMILY : DS_PJ_ONE;
    slot->use = ds_use_of(value);
    return DS_OK;
}

/* Makes each element an argument, over the binders from `level` on. */
static ds_status spread(ds_projector *p, ds_pj_frame *f, argument a, uint32_t level,
                        ds_pj_slot *slot, ds_error *err) {
    const ds_value_info *info = a.info;
    ds_arena *arena = &p->unit->arena;
    if (level == info->n_binders) {
        a.input = ds_arena_printf(arena, "%s}", a.input);
        return add_argument(p, f, &a, slot, err);
    }
    const ds_binder *binder = &info->binders[level];
    const ds_pj_index *indices = f->indices;
    int64_t lo, hi;
    DS_TRY(ds_project__int(p, f, binder->lo, binder->loc, &lo, err));
    DS_TRY(ds_project__int(p, f, binder->hi, binder->loc, &hi, err));
    *slot = (ds_pj_slot){.kind = DS_PJ_MANY, .lo = lo, .n = hi > lo ? hi - lo : 0};
    if (slot->n > MAX_FAMILY)
        return ds_error_set(
            err, DS_ERR_LIMIT, binder->loc,
            "a family of %lld arguments; a rank takes at most %lld arguments of one family",
            (long long)slot->n, (long long)MAX_FAMILY);
    slot->items = DS_NEW_N(arena, ds_pj_slot, slot->n);
    ds_status status = DS_OK;
    for (int64_t i = lo; i < hi && status == DS_OK; i++) {
        ds_pj_index index = {binder->name, ds_project__number(p, i), false, indices};
        argument one = a;
        f->indices = &index;
        one.name = ds_arena_printf(arena, "%s_%lld", a.name, (long long)i);
        one.input = ds_arena_printf(arena, "%s%c%lld", a.input, level ? ',' : '{', (long long)i);
        status = spread(p, f, one, level + 1, &slot->items[i - lo], err);
    }
    f->indices = indices;
    return status;
}

/* Makes an argument of a family whose elements this rank all has. */
static ds_status whole_family(ds_projector *p, ds_pj_frame *f, argument a, ds_pj_slot *slot,
                              ds_error *err) {
    const ds_value_info *info = a.info;
    ds_arena *arena = &p->unit->arena;
    ds_binder *binders = DS_NEW_N(arena, ds_binder, info->n_binders);
    ds_pj_index *index = DS_NEW_N(arena, ds_pj_index, info->n_binders);
    ds_status status = DS_OK;
    uint32_t n = 0;
    for (; n < info->n_binders && status == DS_OK; n++) {
        const ds_binder *from = &info->binders[n];
        status = ds_project__expr(p, f, from->lo, from->loc, &binders[n].lo, err);
        if (status == DS_OK)
            status = ds_project__expr(p, f, from->hi, from->loc, &binders[n].hi, err);
        binders[n].name = ds_clone_index_name(&p->clone, from->name, p->open.at, p->open.n);
        index[n] = (ds_pj_index){from->name, ds_expr_index(&p->unit->exprs, binders[n].name), false,
                                 f->indices};
        DS_HPUSH(&p->open, binders[n].name);
        f->indices = &index[n];
    }
    a.binders = binders;
    a.n_binders = info->n_binders;
    if (status == DS_OK) status = add_argument(p, f, &a, slot, err);
    p->open.n -= n;
    f->indices = NULL;
    return status;
}

static ds_status arguments(ds_projector *p, ds_pj_frame *f, ds_error *err) {
    const ds_func *func = f->scope.func;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        ds_pj_slot *slot = &f->slots[func->args[i].i];
        const char *input = ds_attr_text(&p->source->unit->exprs,
                                         ds_attr_find(info->attrs, info->n_attrs, "input"));
        argument a = {.info = info,
                      .name = info->name,
                      .input = input ? input : info->name,
                      .value = func->args[i]};
        if (!info->n_binders)
            DS_TRY(add_argument(p, f, &a, slot, err));
        else if (ds_place_mentions(&p->source->unit->exprs, &info->type->on, NULL))
            DS_TRY(spread(p, f, a, 0, slot, err));
        else
            DS_TRY(whole_family(p, f, a, slot, err));
    }
    return DS_OK;
}

/* ---- results ---- */

typedef struct returns {
    ds_projector *p;
    ds_pj_frame *f;
    const ds_op *op; /* the source's return */
    uint32_t result; /* the number of the source's result */
    DS_VEC(ds_use) uses;
    DS_VEC(const char *) names; /* of the rank's results, as exec names results */
} returns;

/* The name that exec gives a result: with its indices; a second result of the same name is
 * name_2. */
static const char *result_name(returns *r, const char *name, const ds_use *uses, uint32_t i,
                               const ds_pj_frame *f) {
    ds_arena *arena = &r->p->unit->arena;
    const ds_use *use = &uses[i];
    uint32_t same = 1;
    for (uint32_t k = 0; k < use->n_index; k++) {
        int64_t at = -1;
        ds_expr e = use->index[k];
        if (f)
            (void)ds_project__int(r->p, f, e, use->loc, &at, NULL);
        else
            (void)ds_expr_is_int(&r->p->unit->exprs, e, &at);
        name = ds_arena_printf(arena, "%s%c%lld", name, k ? ',' : '{', (long long)at);
    }
    if (use->n_index) name = ds_arena_printf(arena, "%s}", name);
    for (uint32_t k = 0; k < i; k++) same += uses[k].value.i == use->value.i && !use->n_index;
    return same > 1 ? ds_arena_printf(arena, "%s_%u", name, same) : name;
}

/* Does no earlier device of the place hold the same part? */
static bool is_first(const ds_type *type, const ds_exec_place *place, uint32_t position) {
    for (uint32_t a = 0; a < place->n_axes; a++) {
        bool own = false;
        for (uint32_t d = 0; d < type->rank; d++)
            for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
                own = own || type->dims[d].splits[s].axis == place->axes[a];
        for (uint32_t k = 0; k < type->n_partials; k++)
            own = own || type->partials[k].axis == place->axes[a];
        if (!own && ds_exec_coordinate(place, a, position)) return false;
    }
    return true;
}

static ds_status note_output(returns *r, const char *name, const char *rank_name, ds_error *err) {
    ds_projector *p = r->p;
    const ds_use *use = &r->op->in[r->result];
    const ds_type *type = ds_project__use_type(p, r->f, use);
    const ds_exec_place *place;
    uint32_t at;
    ds_pj_box box;
    if (!p->outputs) return DS_OK;
    DS_TRY(ds_project__position(p, r->f, type, use->loc, &place, &at, err));
    if (at == UINT32_MAX) return DS_OK;
    DS_TRY(ds_project__box(p, r->f, type, (ds_pj_member){place, at}, use->loc, &box, err));
    ds_project_output out = {
        .name = name,
        .rank_name = ds_arena_printf(&p->unit->arena, "rank%lld.%s", (long long)p->rank, rank_name),
        .rank = p->rank,
        .n_dims = box.rank,
        .first = is_first(type, place, at),
        .partial = type->n_partials > 0,
        .max = type->n_partials && type->partials[0].reduction == DS_RED_MAX};
    for (uint32_t d = 0; d < box.rank; d++) {
        DS_TRY(ds_project__literal(p, box.lo[d], use->loc, &out.lo[d], err));
        DS_TRY(ds_project__literal(p, box.size[d], use->loc, &out.dims[d], err));
        DS_TRY(ds_project__literal(p, box.full[d], use->loc, &out.full[d], err));
    }
    DS_PUSH(&p->unit->arena, p->outputs, out);
    return DS_OK;
}

/* Notes the elements of a family that is returned whole, over the binders from `level` on. */
static ds_status note_family(returns *r, uint32_t level, const char *name, const char *rank_name,
                             ds_error *err) {
    ds_projector *p = r->p;
    const ds_value_info *info = ds_value_at(r->f->scope.func, r->op->in[r->result].value);
    ds_arena *arena = &p->unit->arena;
    if (level == info->n_binders)
        return note_output(r, ds_arena_printf(arena, "%s}", name),
                           ds_arena_printf(arena, "%s}", rank_name), err);
    const ds_binder *binder = &info->binders[level];
    const ds_pj_index *indices = r->f->indices;
    int64_t lo, hi;
    DS_TRY(ds_project__int(p, r->f, binder->lo, binder->loc, &lo, err));
    DS_TRY(ds_project__int(p, r->f, binder->hi, binder->loc, &hi, err));
    ds_status status = DS_OK;
    if (hi > lo && hi - lo > MAX_FAMILY)
        return ds_error_set(
            err, DS_ERR_LIMIT, binder->loc,
            "a family of %lld results; a rank returns at most %lld results of one family",
            (long long)(hi - lo), (long long)MAX_FAMILY);
    for (int64_t i = lo; i < hi && status == DS_OK; i++) {
        ds_pj_index index = {binder->name, ds_project__number(p, i), false, indices};
        char gap = level ? ',' : '{';
        r->f->indices = &index;
        status =
            note_family(r, level + 1, ds_arena_printf(arena, "%s%c%lld", name, gap, (long long)i),
                        ds_arena_printf(arena, "%s%c%lld", rank_name, gap, (long long)i), err);
    }
    r->f->indices = indices;
    return status;
}

static const char *push_result(returns *r, const ds_use *use) {
    DS_PUSH(&r->p->unit->arena, &r->uses, *use);
    const char *name = ds_value_at(r->p->b.func, use->value)->name;
    return result_name(r, name, r->uses.at, r->uses.n - 1, NULL);
}

/* Adds a slot of a returned use; `name` has the numbers of the first `level` binders. */
static ds_status add_result(returns *r, const ds_pj_slot *slot, uint32_t level, const char *name,
                            ds_error *err) {
    ds_arena *arena = &r->p->unit->arena;
    if (slot->kind == DS_PJ_ABSENT) return DS_OK;
    if (slot->kind == DS_PJ_ONE) {
        if (level) name = ds_arena_printf(arena, "%s}", name);
        return note_output(r, name, push_result(r, &slot->use), err);
    }
    if (slot->kind == DS_PJ_FAMILY && !level)
        return note_family(r, 0, name, push_result(r, &slot->use), err);
    if (slot->kind == DS_PJ_FAMILY) /* a family over the remaining binders */
        return ds_error_set(err, DS_ERR_UNSUPPORTED, r->op->in[r->result].loc,
                            "%%%s is returned, and a rank has it as several families",
                            ds_value_at(r->f->scope.func, r->op->in[r->result].value)->name);
    const ds_value_info *info = ds_value_at(r->f->scope.func, r->op->in[r->result].value);
    const ds_pj_index *indices = r->f->indices;
    ds_status status = DS_OK;
    for (int64_t i = 0; i < slot->n && status == DS_OK; i++) {
        ds_pj_index index = {info->binders[level].name, ds_project__number(r->p, slot->lo + i),
                             false, indices};
        r->f->indices = &index;
        status = add_result(
            r, &slot->items[i], level + 1,
            ds_arena_printf(arena, "%s%c%lld", name, level ? ',' : '{', (long long)(slot->lo + i)),
            err);
    }
    r->f->indices = indices;
    return status;
}

static ds_status results(ds_projector *p, ds_pj_frame *f, const ds_pj_slot *slots, ds_error *err) {
    const ds_block *body = &f->scope.func->body;
    const ds_op *end = body->n_ops ? body->ops[body->n_ops - 1] : NULL;
    returns r = {.p = p, .f = f, .op = end};
    if (!end || end->code != DS_OP_RETURN) return ds_build_return(&p->b, NULL, 0, err);
    for (r.result = 0; r.result < end->n_in; r.result++) {
        const char *name = ds_value_at(f->scope.func, end->in[r.result].value)->name;
        name = result_name(&r, name, end->in, r.result, f);
        DS_TRY(add_result(&r, &slots[r.result], 0, name, err));
    }
    return ds_build_return(&p->b, r.uses.at, r.uses.n, err);
}

/* ---- ranks ---- */

static ds_status fill_rank(ds_projector *p, const ds_func *func, ds_error *err) {
    ds_pj_frame f = {.scope = {.func = func, .here = p->here},
                     .slots = ds_xcalloc(func->values.n + 1, sizeof *f.slots)};
    ds_pj_slot *returned = DS_NEW_N(&p->unit->arena, ds_pj_slot, func->n_results + 1);
    ds_status status = arguments(p, &f, err);
    if (status == DS_OK) status = ds_project__block(p, &f, &func->body, returned, err);
    if (status == DS_OK) status = results(p, &f, returned, err);
    free(f.slots);
    return status;
}

static ds_status one_rank(ds_projector *p, const ds_func *func, uint32_t rank, ds_func **out,
                          ds_error *err) {
    p->rank = rank;
    p->device = p->world->devices[rank];
    p->open.n = 0;
    p->unroll = DS_NO_EXPR;
    ds_build_func(&p->b, p->clone.module, func->name, false);
    p->b.func->rank = rank;
    ds_status status = fill_rank(p, func, err);
    *out = ds_build_end(&p->b);
    return status;
}

static ds_status all_ranks(ds_projector *p, const ds_func *func, bool used_ones, ds_error *err) {
    ds_arena *arena = &p->unit->arena;
    ds_program *program = DS_NEW(arena, ds_program);
    program->name = ds_clone_text(&p->clone, func->name);
    program->trivia.blank_before = true;
    program->ranks = DS_NEW_N(arena, ds_func *, p->world->n_devices);
    for (uint32_t r = 0; r < p->world->n_devices; r++) {
        ds_func *rank;
        DS_TRY(one_rank(p, func, r, &rank, err));
        if (used_ones && !rank->n_args && rank->body.n_ops <= 1) continue;
        program->ranks[program->n_ranks++] = rank;
    }
    DS_PUSH(arena, &p->clone.module->programs, program);
    return DS_OK;
}

/* ---- the scenario ---- */

static ds_attr place_entry(ds_projector *p, const char *key, const char *name) {
    return (ds_attr){.name = ds_clone_text(&p->clone, key),
                     .kind = DS_ATTR_PLACE,
                     .place = {.kind = DS_PLACE_MESH, .name = name}};
}

static ds_status scenario(ds_projector *p, const ds_func *func, const char *key, const char *world,
                          ds_error *err) {
    static const char *const left_out[] = {"model", "program", "train", "strategy", "on", "mesh"};
    const ds_scenario *from = ds_unit_scenario(p->source->unit);
    uint32_t n = from ? from->n_entries : 0;
    ds_scenario made = {.trivia = {.blank_before = true}};
    made.entries = DS_NEW_N(&p->unit->arena, ds_attr, n + 2);
    made.entries[made.n_entries++] =
        place_entry(p, "program", ds_clone_text(&p->clone, func->name));
    made.entries[made.n_entries++] = place_entry(p, key, world);
    ds_pj_frame f = {.scope = {.func = func}};
    ds_attr *copies = NULL;
    DS_TRY(ds_project__attrs(p, &f, from ? from->entries : NULL, n, &copies, err));
    for (uint32_t i = 0; i < n; i++)
        if (!is_one_of(copies[i].name, left_out, sizeof left_out / sizeof *left_out))
            made.entries[made.n_entries++] = copies[i];
    DS_PUSH(&p->unit->arena, &p->clone.module->scenarios, made);
    return DS_OK;
}

/* ---- the devices of ranks ---- */

/* The scenario's topology; else the topology that the program's values name. */
static const ds_topology *topology_of(const ds_binding *source, const ds_func *func) {
    const ds_topology *topology = ds_scenario_topology(source->unit);
    const ds_mesh *mesh = ds_scenario_mesh(source->unit);
    const ds_module *module = func->module;
    for (uint32_t i = 0; i < func->values.n && !topology && !mesh; i++) {
        const ds_type *type = func->values.at[i].type;
        if (type && type->on.kind == DS_PLACE_DEVICE)
            topology = ds_find_topology(module, type->on.name);
        if (type && type->on.kind == DS_PLACE_MESH) mesh = ds_find_mesh(module, type->on.name);
    }
    while (!topology && mesh) {
        topology = mesh->kind == DS_MESH_ON ? ds_find_topology(mesh->module, mesh->base) : NULL;
        mesh = mesh->kind == DS_MESH_ON ? NULL : ds_find_mesh(mesh->module, mesh->base);
    }
    const ds_module *root = source->unit->modules.at[0];
    if (!topology && root->topologies.n == 1) topology = root->topologies.at[0];
    return topology;
}

/* Finds the ranks' devices, and the place of values without one: the scenario's mesh, else the
 * first device. */
static ds_status find_world(ds_projector *p, const ds_func *func, bool of_mesh, const char **key,
                            const char **name, ds_error *err) {
    const ds_mesh *mesh = of_mesh ? ds_scenario_mesh(p->source->unit) : NULL;
    const ds_topology *topology = mesh ? NULL : topology_of(p->source, func);
    ds_clone_axes(&p->clone);
    ds_clone_degrades(&p->clone);
    *key = mesh ? "mesh" : "on";
    if (mesh) {
        *name = ds_clone_mesh(&p->clone, mesh);
        DS_TRY(ds_exec_place_mesh(&p->places, mesh, &p->world, err));
        p->here = p->world;
        return DS_OK;
    }
    if (!topology)
        return ds_error_set(err, DS_ERR_VALUE, func->loc,
                            "@%s names no devices: say `on = @topology` in the scenario",
                            func->name);
    *name = ds_clone_topology(&p->clone, topology);
    DS_TRY(ds_exec_place_all(&p->places, topology, &p->world, err));
    p->here = ds_exec_place_first(&p->places, topology);
    if (ds_scenario_mesh(p->source->unit))
        return ds_exec_place_mesh(&p->places, ds_scenario_mesh(p->source->unit), &p->here, err);
    return DS_OK;
}

/* ---- the program ---- */

static ds_status project(ds_projector *p, const ds_func *func, bool of_mesh, ds_error *err) {
    const char *key = NULL, *world = NULL;
    DS_TRY(find_world(p, func, of_mesh, &key, &world, err));
    DS_TRY(all_ranks(p, func, !of_mesh, err));
    DS_TRY(scenario(p, func, key, world, err));
    ds_clone_order_items(p->clone.module);
    return DS_OK;
}

/* Projects onto the mesh's or the topology's devices; *outside: the program uses a device outside
 * of them. */
static ds_status attempt(const ds_binding *source, const ds_func *func, bool of_mesh, ds_unit **out,
                         ds_project_outputs *outputs, bool *outside, ds_error *err) {
    ds_projector p = {.source = source, .outputs = outputs};
    ds_clone_init(&p.clone, source);
    p.unit = p.clone.unit;
    ds_exec_places_init(&p.places, source);
    if (outputs) *outputs = (ds_project_outputs){0};
    ds_status status = project(&p, func, of_mesh, err);
    *outside = p.outside;
    ds_exec_places_deinit(&p.places);
    ds_clone_deinit(&p.clone);
    ds_map_deinit(&p.tags);
    ds_map_deinit(&p.seen);
    free(p.open.at);
    if (status != DS_OK) {
        ds_unit_free(p.unit);
        p.unit = NULL;
        if (outputs) *outputs = (ds_project_outputs){0};
    }
    *out = p.unit;
    return status;
}

/* Projects the program, without verifying the result. */
static ds_status ranks_of(const ds_binding *source, ds_unit **out, ds_project_outputs *outputs,
                          ds_error *err) {
    const ds_func *func = ds_scenario_program_func(source->unit);
    bool mesh = ds_scenario_mesh(source->unit) != NULL, outside;
    *out = NULL;
    uint32_t n_jobs = ds_scenario_n_jobs(source->unit);
    const ds_scenario *scenario = ds_unit_scenario(source->unit);
    if (!func && n_jobs)
        return ds_error_set(err, DS_ERR_VALUE, scenario->loc,
                            "the scenario has jobs: say which one (--job %s)",
                            ds_scenario_job(source->unit, 0)->name);
    if (!func)
        return ds_error_set(err, DS_ERR_VALUE, scenario ? scenario->loc : DS_NOWHERE,
                            ds_scenario_ranks(source->unit)
                                ? "the scenario's program is one body per rank already"
                            : ds_scenario_model(source->unit)
                                ? "the scenario has a model: shard makes a program of it first"
                                : "the scenario names no program");
    if (ds_func_open(func))
        return ds_error_set(err, DS_ERR_TYPE, func->loc,
                            "@%s has %s; the entry of a run must have none", func->name,
                            ds_func_open(func));
    DS_TRY(ds_rec_refuse_own_reads(func, "'project'", err));
    ds_status status = attempt(source, func, mesh, out, outputs, &outside, err);
    if (status != DS_OK && mesh && outside)
        status = attempt(source, func, false, out, outputs, &outside, err);
    return status;
}

static ds_status verify(ds_unit *unit, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_binding binding;
    ds_status status = ds_verify(unit, &diags);
    if (status == DS_OK) {
        status = ds_bind(unit, NULL, 0, &binding, err);
        if (status == DS_OK) status = ds_verify_bound(unit, &binding, &diags);
    }
    for (uint32_t i = 0; i < diags.all.n; i++) {
        const ds_diag *diag = &diags.all.at[i];
        if (diag->severity != DS_SEV_ERROR) continue;
        status = ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE, "after project: %s", diag->message);
        break;
    }
    ds_diags_deinit(&diags);
    return status;
}

ds_status ds_project_program(const ds_binding *source, ds_unit **out, ds_project_outputs *outputs,
                             ds_error *err) {
    DS_TRY(ranks_of(source, out, outputs, err));
    ds_status status = verify(*out, err);
    if (status == DS_OK) return DS_OK;
    ds_unit_free(*out);
    *out = NULL;
    if (outputs) *outputs = (ds_project_outputs){0};
    return status;
}

/* ---- the pass ---- */

ds_status ds_pass_project(ds_model_step *step, ds_error *err) {
    ds_unit *unit;
    DS_TRY(ranks_of(&step->binding, &unit, NULL, err)); /* the driver verifies */
    ds_unit_free(step->unit); /* frees the step's weights, values and texts too */
    step->unit = unit;
    step->func = NULL;
    step->weights.n = 0;
    step->strategy.ops = step->strategy.groups = NULL;
    step->strategy.schedule = NULL;
    memset(step->strategy.order, 0, sizeof step->strategy.order);
    return ds_bind(unit, NULL, 0, &step->binding, err);
}
