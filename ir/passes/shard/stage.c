/* Stages of several widths (stage_dp, stage_tp): the mesh of each op.
 *
 * Every stage has its own mesh, one device range after another. Among equally wide stages, `shard`
 * uses the first stage's mesh for all, and `pipeline` places each chunk on its stage. All these
 * meshes have the axes dp and tp in the strategy's order, also axes of size 1: a value that is
 * split over dp in 1 part is split over dp in 4 on the next stage, so the splits of the model's
 * hints pass through a stage that splits nothing (narrow.c removes the axes of size 1 at the end).
 *
 * An op runs on the mesh of its chunk, as `pipeline` would cut the step (ds_pipe_chunks). An
 * operand from a stage of another width comes by one reshard before the op: sums are made on the
 * old stage, and the operand keeps its layout. Nothing else crosses, so all reshards between stages
 * are ops of the function's own level, never of a loop's body. A constant is made again on each
 * stage. What lies on the devices of a group or an override stays there, whatever the stage is. */
#include "ir/passes/pipeline/chunks.h"
#include "ir/passes/shard/internal.h"

#include "ir/passes/internal.h"

#include <string.h>

/* ---- meshes ---- */

static void set_logical(ds_sharder *s, ds_shard_mesh *mesh, uint32_t stage) {
    const ds_strategy *st = &s->step->strategy;
    for (uint32_t i = 0; i < 4; i++) {
        bool dp = strcmp(st->order[i], "dp") == 0;
        if (!dp && strcmp(st->order[i], "tp") != 0) continue;
        uint8_t axis = (uint8_t)mesh->n_axes++;
        mesh->axes[axis] = (ds_shard_axis){ds_intern(&s->unit->strings, st->order[i]),
                                           (dp ? st->stage_dp : st->stage_tp)[stage]};
        s->logical[dp ? DS_L_DP : DS_L_TP] = (ds_logical_axis){.axis = {axis}, .n = 1};
        if (dp) mesh->shared = axis;
    }
    mesh->shares = st->dp_shares;
    mesh->shares_sum = st->dp_shares_sum;
    s->wants_batch = st->dp_shares != NULL;
    s->zero = s->logical[DS_L_DP];
}

/* Makes the mesh of each stage; `own` gets the number in `meshes` of the first mesh of that
 * width. */
static ds_status make_meshes(ds_sharder *s, uint8_t *own, ds_error *err) {
    ds_model_step *step = s->step;
    const ds_strategy *st = &step->strategy;
    const ds_shard_axis devices = {ds_intern(&s->unit->strings, "device"), 0};
    ds_shard_axis all = devices;
    uint32_t n = (uint32_t)st->pp;
    ds_mesh *world;
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) all.size += st->stage_dp[i] * st->stage_tp[i];
    ds_shard__declare_axes(s, &all, 1);
    DS_TRY(ds_shard__world(s, all.size, &all, 1, &world, err));
    s->program_mesh = world->name;
    step->stage_mesh = DS_NEW_N(&s->unit->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = 0;
        ds_shard_mesh mesh = {0};
        set_logical(s, &mesh, i);
        ds_shard__declare_axes(s, mesh.axes, mesh.n_axes);
        ds_mesh *made = ds_shard__new_mesh(s, ds_arena_printf(&s->unit->arena, "s%u", i),
                                           DS_MESH_PICK, world->name);
        ds_shard__set_axes(s, made, mesh.axes, mesh.n_axes);
        made->pick_lo = ds_expr_int(&s->unit->exprs, at);
        made->pick_hi = ds_expr_int(&s->unit->exprs, at += st->stage_dp[i] * st->stage_tp[i]);
        step->stage_mesh[i] = mesh.name = made->name;
        while (!ds_strategy_same_width(st, first, i)) first++;
        own[i] = first < i ? own[first] : (uint8_t)s->meshes.n;
        if (first < i) continue;
        if (s->meshes.n == UINT8_MAX)
            return ds_error_set(err, DS_ERR_LIMIT, ds_step__knob(step, "stage_dp"),
                                "stages of more than %d different widths", UINT8_MAX);
        DS_PUSH(&s->unit->arena, &s->meshes, mesh);
    }
    s->n_own = s->meshes.n;
    return DS_OK;
}

/* Finds the mesh of each chunk. With two copies of the weights a chunk is on two stages, which
 * share one text and so must be equally wide. */
static ds_status place_chunks(ds_sharder *s, const uint8_t *own, ds_error *err) {
    const ds_schedule_index *index = &s->step->schedule;
    s->mesh_of_chunk = DS_NEW_N(&s->unit->arena, uint8_t, index->n_chunks);
    for (uint32_t c = 0; c < index->n_chunks; c++) {
        uint32_t stage = index->stage[c];
        s->mesh_of_chunk[c] = own[stage];
        for (uint32_t k = 1; k < index->n_copies; k++) {
            uint32_t other = index->stage[k * index->n_chunks + c];
            if (own[other] == own[stage]) continue;
            return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(s->step, "schedule"),
                                "the schedule %s runs chunk %u on stage %u and on stage %u, which "
                                "are not equally wide: such stages need the same stage_dp and "
                                "stage_tp",
                                s->step->strategy.schedule, c, stage, other);
        }
    }
    return DS_OK;
}

ds_status ds_shard__stages(ds_sharder *s, ds_error *err) {
    if (!s->step->schedule.schedule)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "shard: stages of several widths are cut first: stage runs before");
    uint8_t *own = DS_NEW_N(&s->unit->arena, uint8_t, (uint32_t)s->step->strategy.pp);
    DS_TRY(ds_pipe_chunks(s->step, &s->chunk_of_op, err));
    DS_TRY(make_meshes(s, own, err));
    return place_chunks(s, own, err);
}

uint8_t ds_shard__home_mesh(const ds_sharder *s, uint32_t weight) {
    return s->mesh_of_chunk ? s->mesh_of_chunk[s->step->weights.at[weight].chunk] : 0;
}

/* ---- values between stages ---- */

/* The same splits on another mesh, except splits that would not divide a dim. */
static ds_layout carry_over(const ds_sharder *s, const ds_type *type, const ds_layout *from,
                            uint8_t mesh) {
    ds_layout to = *from;
    to.mesh = mesh;
    for (uint32_t d = 0; d < to.rank; d++) {
        int64_t size = ds_shard__size(s, type->dims[d].size);
        if (to.shares >> d & 1) continue; /* all stages have the shares */
        while (to.n[d] && size % ds_shard__parts(s, &to, d)) to.n[d]--;
    }
    return to;
}

/* The op that makes the value, if it has no operands; else NULL. */
static const ds_op *constant(const ds_sharder *s, ds_value made) {
    const ds_op *op = ds_value_at(s->f.b.func, made)->def;
    return op && op->code >= DS_OP_FIRST_TABLE_OP && !op->n_in && op->n_out == 1 ? op : NULL;
}

static ds_status cross(ds_sharder *s, ds_value from, ds_value *out, ds_error *err) {
    const ds_use use = ds_use_of(from);
    const ds_type *type = ds_shard__type_of(s, &use);
    const ds_op *made = constant(s, from);
    const ds_shard_value like = {.seq = ds_shard__value(s, from)->seq};
    ds_layout now = ds_shard__layout(s, type), to = carry_over(s, type, &now, s->here);
    ds_op *op = ds_build_op(&s->f.b, made ? made->code : DS_OP_RESHARD);
    if (made) {
        op->loc = made->loc;
        op->attrs = made->attrs;
        op->n_attrs = made->n_attrs;
    } else {
        ds_build_in(&s->f.b, op, use);
    }
    const char *name = ds_value_at(s->f.b.func, from)->name;
    name = ds_arena_printf(&s->unit->arena, "%s.%s", name, s->meshes.at[s->here].name);
    ds_build_out(&s->f.b, op, name, ds_shard__type(s, type, &to));
    DS_TRY(ds_shard__put(s, op, &like, err));
    *out = op->out[0];
    return DS_OK;
}

static ds_status import(ds_sharder *s, ds_value old, ds_use use, ds_value *out, ds_error *err) {
    for (uint32_t i = 0; i < s->f.imports.n; i++) {
        const ds_shard_import *known = &s->f.imports.at[i];
        *out = known->made;
        if (known->old.i == old.i && known->mesh == s->here) return DS_OK;
    }
    const ds_value_info *info = ds_value_at(s->f.b.func, use.value);
    if (info->n_binders)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(s->step, "stage_dp"),
                            "%%%s is a family, one value a turn, and read on a stage of another "
                            "width: give both stages the same dp and tp, or cut elsewhere "
                            "(stage_layers)",
                            info->name);
    DS_TRY(ds_shard__resolve(s, use, &use, err));
    DS_TRY(cross(s, use.value, out, err));
    DS_HPUSH(&s->f.imports, ((ds_shard_import){old, *out, s->here}));
    return DS_OK;
}

typedef struct reader {
    ds_sharder *s;
    ds_status status;
    ds_error *err;
} reader;

/* Brings an operand to mesh `here`. Values that the op's own body makes do not exist yet and are
 * skipped. */
static void read_value(void *context, const ds_use *old) {
    reader *r = context;
    ds_sharder *s = r->s;
    ds_use use;
    ds_value made = DS_NO_VALUE;
    if (r->status != DS_OK || s->f.state[old->value.i] != DS_SHARD_MADE) return;
    const ds_use whole = ds_use_of(old->value);
    r->status = ds_shard__read(s, &whole, &use, r->err);
    if (r->status != DS_OK) return;
    const ds_type *type = ds_shard__type_of(s, &use);
    uint8_t mesh = ds_shard__layout(s, type).mesh;
    if (mesh == s->here || ds_shard__is_view(s, mesh)) return;
    r->status = import(s, old->value, use, &made, r->err);
    if (r->status != DS_OK) return;
    DS_HPUSH(&s->f.stand_ins, ((ds_shard_stand_in){old->value, s->f.to[old->value.i]}));
    s->f.to[old->value.i] = ds_use_of(made);
}

ds_status ds_shard__enter(ds_sharder *s, const ds_op *op, ds_error *err) {
    reader r = {.s = s, .err = err};
    const uint64_t *chunk = ds_map_find(&s->chunk_of_op, DS_KEY(op));
    if (op->code == DS_OP_CALL || op->code == DS_OP_RETURN) return DS_OK;
    s->here = chunk ? s->mesh_of_chunk[*chunk] : 0;
    bool exact;
    const ds_shard_lie *lie = ds_shard__lie(s, op, &exact);
    if (lie && ds_shard__is_view(s, lie->mesh)) return DS_OK; /* the op brings its operands there */
    ds_pipe_uses(op, read_value, &r);
    return r.status;
}

void ds_shard__leave(ds_sharder *s) {
    while (s->f.stand_ins.n) {
        const ds_shard_stand_in *last = &s->f.stand_ins.at[--s->f.stand_ins.n];
        s->f.to[last->old.i] = last->use;
    }
}
