/* Steps that go back to where they were; which knobs are read late. */
#include "ir/passes/snapshot.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- marks ---- */

/* A unit is its arena, and tables on the heap that refer to what is in there. */
struct ds_step_mark {
    ds_model_step *step, then;
    ds_unit unit; /* its fields that are neither arenas nor tables */
    ds_arena_state memory;
    uint32_t n_exprs;
    DS_VEC(ds_map_entry) inferred;
};

ds_step_mark *ds_step_mark_new(ds_model_step *step) {
    ds_step_mark *mark = ds_xcalloc(1, sizeof *mark);
    const ds_unit *unit = step->unit;
    mark->step = step;
    mark->then = *step;
    mark->unit = *unit;
    mark->n_exprs = unit->exprs.nodes.n;
    ds_arena_keep(&unit->arena, &mark->memory);
    uint32_t at = 0;
    for (const ds_map_entry *e; (e = ds_map_next(&unit->inferred, &at));)
        DS_HPUSH(&mark->inferred, *e);
    return mark;
}

void ds_step_mark_return(const ds_step_mark *mark) {
    ds_unit *unit = mark->then.unit;
    *mark->step = mark->then;
    ds_arena_go_back(&unit->arena, &mark->memory);
    ds_exprs_cut(&unit->exprs, mark->n_exprs);
    memcpy(&unit->modules, &mark->unit.modules, sizeof unit->modules);
    ds_map_clear(&unit->inferred);
    for (uint32_t i = 0; i < mark->inferred.n; i++)
        ds_map_put(&unit->inferred, mark->inferred.at[i].key, mark->inferred.at[i].value);
}

void ds_step_mark_free(ds_step_mark *mark) {
    if (!mark) return;
    ds_arena_state_deinit(&mark->memory);
    free(mark->inferred.at);
    free(mark);
}

size_t ds_step_mark_bytes(const ds_step_mark *mark) {
    return sizeof *mark + mark->memory.n + mark->inferred.cap * sizeof *mark->inferred.at;
}

/* ---- what is read late ---- */

/* X(knob in the text, field of ds_strategy, the first pass that reads it). Knobs that are not here
 * may be read by any pass. `lower` checks all of them (ds_strategy_check) and puts the strategy's
 * text into its module, from which `shard` takes it away. */
#define LATE_MAP(X)                                                                                \
    X("dp", dp, SHARD)                                                                             \
    X("tp", tp, SHARD)                                                                             \
    X("order", order, SHARD)                                                                       \
    X("sp", sp, SHARD)                                                                             \
    X("cp_type", cp_type, SHARD)                                                                   \
    X("zero", zero, SHARD)                                                                         \
    X("zero_group", zero_group, SHARD)                                                             \
    X("zero_uneven", zero_uneven, SHARD)                                                           \
    X("late_reduce", late_reduce, SHARD)                                                           \
    X("bucket_size", bucket_bytes, SHARD)                                                          \
    X("offload", offload, OFFLOAD)                                                                 \
    X("p2p", p2p, PIPELINE)                                                                        \
    X("scatter_gather", scatter_gather, PIPELINE)                                                  \
    X("prefetch", prefetch, OVERLAP)                                                               \
    X("tp_overlap", tp_overlap, OVERLAP)

typedef struct late_knob {
    size_t offset, size; /* of the field */
    ds_pass_id first;
} late_knob;

static const late_knob late_knobs[] = {
#define DS_X(name, field, pass)                                                                    \
    {offsetof(ds_strategy, field), sizeof(((ds_strategy *)0)->field), DS_PASS_##pass},
    LATE_MAP(DS_X)
#undef DS_X
};

#define N_LATE (sizeof late_knobs / sizeof *late_knobs)

const char *const *ds_step_unread(ds_pass_id pass) {
    static const char *const names[] = {
#define DS_X(name, field, pass) name,
        LATE_MAP(DS_X)
#undef DS_X
            NULL};
    /* in the order of passes, so that those read later are the end of all */
    uint32_t i = 0;
    while (i < N_LATE && late_knobs[i].first <= pass) i++;
    return names + i;
}

/* Texts belong to the unit. */
void ds_step_adopt(ds_model_step *step, const ds_strategy *from, ds_pass_id pass) {
    ds_strategy now = *from, *to = &step->strategy;
    for (uint32_t i = 0; i < 4; i++) now.order[i] = ds_intern(&step->unit->strings, from->order[i]);
    for (uint32_t i = 0; i < N_LATE; i++)
        if (late_knobs[i].first > pass)
            memcpy((char *)to + late_knobs[i].offset, (const char *)&now + late_knobs[i].offset,
                   late_knobs[i].size);
}
