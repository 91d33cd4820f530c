/* The parts of a whole step: bodies of its template, each where its chunk's stage is.
 *
 * What the stages' communication takes, and who shares links with whom, says a skeleton: the plan
 * of each kind of communication on each stage, once. It is kept, too: steps that differ in layers,
 * microbatches or recomputation have the same one. */
#include "search/compose/fold.h"

#include <stdlib.h>
#include <string.h>

typedef struct assembler {
    ds_fold *fold;
    const ds_fold_step *step;
    ds_template *t;
    ds_sibling *s;
    const ds_plan *plan; /* the skeleton */
    DS_VEC(ds_plan_meet) meets;
    uint64_t key;           /* of the skeleton */
    uint32_t n_chunks;      /* of an exact template: stages, and so in all that follows */
    uint32_t *meet_of;      /* per chunk and kind: place in meets, DS_NONE: not the chunk's */
    uint32_t *cls, *stream; /* per chunk: of its stage, and of compute there */
    uint32_t n_stages;
} assembler;

static uint32_t stage_of(const assembler *a, uint32_t chunk) {
    return a->t->exact ? chunk : a->step->items->rank_of[chunk];
}

static uint32_t chunk_label(const assembler *a, uint32_t chunk) {
    if (a->t->exact) return chunk;
    return ds_template__chunk(a->t, chunk, a->step->n_chunks, a->step->turns);
}

/* ---- the skeleton ---- */

/* The chunk that a kind's end means, seen from a chunk whose label is the other end's. */
static uint32_t other_chunk(const assembler *a, uint32_t chunk, uint32_t label, uint32_t other) {
    if (a->t->exact) return other;
    if (a->t->n_chunks == DS_FEW && other == 0) return label <= 1 ? chunk - label : 0;
    if (a->t->n_chunks == DS_FEW && other == DS_FEW - 1 && label < DS_THIRD)
        return a->step->n_chunks - 1;
    return chunk + other - label;
}

static uint64_t signature(const ds_template *t, const ds_kind *kind) {
    const ds_op *op = kind->op;
    uint64_t hash = ds_hash_mix(ds_hash_mix(op->code, (uint64_t)kind->bytes), kind->stream);
    for (uint32_t i = 0; i < op->n_over; i++)
        hash = ds_hash_mix(hash, ds_hash_bytes(op->over[i], strlen(op->over[i])));
    static const char *const texts[] = {"algorithm", "route"};
    for (size_t i = 0; i < 2; i++) {
        const char *text =
            ds_attr_text(&t->words->exprs, ds_attr_find(op->attrs, op->n_attrs, texts[i]));
        hash = ds_hash_mix(hash, text ? ds_hash_bytes(text, strlen(text)) : 0);
    }
    return hash;
}

typedef struct named {
    uint64_t hash;
    uint32_t meet;
} named;

static int by_hash(const void *a, const void *b) {
    const named *x = a, *y = b;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* In an order that does not depend on the program's, so that skeletons are found again. */
static void sort_meets(assembler *a, named *names, size_t n_of) {
    uint32_t n = a->meets.n, *place_of = ds_xcalloc((size_t)n + 1, sizeof *place_of);
    ds_plan_meet *sorted = ds_xcalloc((size_t)n + 1, sizeof *sorted);
    if (n) qsort(names, n, sizeof *names, by_hash);
    for (uint32_t i = 0; i < n; i++) {
        sorted[i] = a->meets.at[names[i].meet];
        place_of[names[i].meet] = i;
        a->key = ds_hash_mix(a->key, names[i].hash);
    }
    for (size_t i = 0; i < n_of; i++)
        if (a->meet_of[i] != DS_NONE) a->meet_of[i] = place_of[a->meet_of[i]];
    free(a->meets.at);
    a->meets.at = sorted;
    a->meets.cap = n + 1;
    free(place_of);
}

static void find_meets(assembler *a) {
    const ds_template *t = a->t;
    uint32_t n = a->n_chunks, n_kinds = t->kinds.n;
    ds_map seen;
    ds_map_init(&seen);
    a->meet_of = ds_xcalloc((size_t)n * n_kinds + 1, sizeof *a->meet_of);
    DS_VEC(named) names = {0};
    uint64_t *signatures = ds_xcalloc(n_kinds + 1, sizeof *signatures);
    for (uint32_t k = 0; k < n_kinds; k++) signatures[k] = signature(t, &t->kinds.at[k]);
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t k = 0; k < n_kinds; k++) {
            const ds_kind *kind = &t->kinds.at[k];
            uint32_t label = chunk_label(a, c), *of = &a->meet_of[c * n_kinds + k];
            *of = DS_NONE;
            if (kind->from != label) continue;
            uint32_t to = kind->to == label ? c : other_chunk(a, c, label, kind->to);
            ds_plan_meet meet = {kind->op, kind->bytes, kind->stream, stage_of(a, c),
                                 stage_of(a, to)};
            uint64_t hash = ds_hash_mix(signatures[k], (uint64_t)meet.from << 32 | meet.to);
            const uint64_t *found = ds_map_find(&seen, hash);
            *of = found ? (uint32_t)*found : a->meets.n;
            if (found) continue;
            ds_map_put(&seen, hash, *of);
            DS_HPUSH(&names, ((named){hash, *of}));
            DS_HPUSH(&a->meets, meet);
        }
    sort_meets(a, names.at, (size_t)n * n_kinds);
    free(names.at);
    free(signatures);
    ds_map_deinit(&seen);
}

static ds_plan_grid grid_of(assembler *a) {
    const ds_strategy *s = a->step->strategy;
    ds_strtab *strings = &a->t->words->strings;
    ds_plan_grid grid = {0};
    for (uint32_t i = 0; i < 4; i++) {
        const char *name = s->order[i];
        int64_t size = strcmp(name, "pp") == 0   ? s->pp
                       : strcmp(name, "dp") == 0 ? s->dp
                       : strcmp(name, "tp") == 0 ? s->tp
                                                 : s->cp;
        if (size == 1) continue;
        grid.axes[grid.n_axes] = ds_intern(strings, name);
        grid.sizes[grid.n_axes++] = size;
        a->key =
            ds_hash_mix(ds_hash_mix(a->key, ds_hash_bytes(name, strlen(name))), (uint64_t)size);
    }
    grid.replicas = a->t->replicas.at;
    grid.n_replicas = a->t->replicas.n;
    for (uint32_t i = 1; i < grid.n_replicas; i++)
        a->key = ds_hash_mix(a->key, (uint64_t)grid.replicas[i]);
    return grid;
}

static ds_status find_skeleton(assembler *a, ds_error *err) {
    ds_plan_grid grid = grid_of(a);
    find_meets(a);
    const uint64_t *found = ds_map_find(&a->fold->skeletons, a->key);
    if (found) {
        ds_plan *known = (ds_plan *)(uintptr_t)*found;
        known->topo = a->fold->topo; /* which may have been made anew */
        a->plan = known;
        return DS_OK;
    }
    ds_plan *plan;
    ds_plan_options options = {.cost_mode = a->step->options->cost_mode,
                               .ground = a->step->options->ground,
                               .topo = a->fold->topo};
    DS_TRY(ds_plan_skeleton(&a->t->binding, a->step->profiles, &options, &grid,
                            (ds_plan_meets){a->meets.at, a->meets.n}, &plan, err));
    ds_map_put(&a->fold->skeletons, a->key, DS_KEY(plan));
    DS_HPUSH(&a->fold->plans, plan);
    a->plan = plan;
    return DS_OK;
}

static bool find_classes(assembler *a) {
    uint32_t n = a->n_chunks;
    a->n_stages = (uint32_t)a->step->strategy->pp;
    if (a->plan->n_classes != a->n_stages)
        return ds_compose__unknown(a->s, "devices of a stage that differ");
    a->cls = ds_xcalloc((size_t)n * 2, sizeof *a->cls);
    a->stream = a->cls + n;
    for (uint32_t c = 0; c < n; c++) {
        const ds_inst *inst = &a->plan->insts.at[a->meets.n + stage_of(a, c)];
        a->cls[c] = a->plan->task_class[inst->first_task];
        a->stream[c] = a->plan->task_stream[inst->first_task];
    }
    return true;
}

static uint32_t activity_of(void *context, uint32_t kind, uint32_t chunk) {
    const assembler *a = context;
    const ds_kind *k = &a->t->kinds.at[kind];
    uint32_t label = chunk_label(a, chunk);
    if (k->from != label) chunk = other_chunk(a, chunk, label, k->from);
    uint32_t meet = a->meet_of[chunk * a->t->kinds.n + kind];
    return a->plan->task_activity[a->plan->insts.at[meet].first_task];
}

static uint32_t compute_stream(void *context, uint32_t chunk) {
    return ((const assembler *)context)->stream[chunk];
}

/* ---- parts ---- */

static ds_body *body_of(assembler *a, uint32_t part, uint32_t chunk) {
    ds_template *t = a->t;
    const ds_outline *shape = &t->shapes[part];
    int64_t turns = a->step->turns[chunk];
    uint64_t key = ds_hash_mix(part, (uint64_t)turns);
    for (uint32_t k = 0; k < shape->kinds.n; k++)
        key = ds_hash_mix(
            key, (uint64_t)a->plan->activities[activity_of(a, shape->kinds.at[k], chunk)].ps);
    const uint64_t *found = ds_map_find(&t->bodies, key);
    if (found) return (ds_body *)(uintptr_t)*found;
    ds_body *body = ds_compose__add_body(&t->s);
    if (!ds_template__stretch(t, part, turns, body)) return NULL;
    for (uint32_t u = 0; u < body->units.n; u++) {
        ds_unit_task *unit = &body->units.at[u];
        if (unit->transfer == DS_NONE) continue;
        unit->ps = a->plan->activities[activity_of(a, shape->kinds.at[unit->transfer], chunk)].ps;
    }
    ds_map_put(&t->bodies, key, DS_KEY(body));
    return body;
}

/* The stream on which a member of a transfer meets the others: by its class. */
static uint32_t stream_of_member(const assembler *a, const ds_activity *activity, uint32_t cls) {
    for (uint32_t i = 0; i < activity->n_members; i++) {
        uint32_t task = a->plan->members[activity->first_member + i];
        if (a->plan->task_class[task] == cls) return a->plan->task_stream[task];
    }
    return DS_NONE;
}

/* Streams and classes of the part where it is: told by the units on them. */
static bool find_streams(assembler *a, uint32_t chunk, uint32_t from, ds_part *out) {
    const ds_body *body = out->body;
    const ds_outline *shape = &a->t->shapes[from];
    const ds_part *part = &a->t->s.parts[from];
    uint32_t own = chunk_label(a, chunk);
    for (uint32_t i = 0; i < body->stream_cls.n; i++) DS_HPUSH(&out->streams, DS_NONE);
    for (uint32_t i = 0; i < body->n_classes; i++) {
        uint32_t label = a->t->label_of[part->classes.at[i]];
        uint32_t is = label == own ? chunk : other_chunk(a, chunk, own, label);
        DS_HPUSH(&out->classes, a->cls[is]);
    }
    for (uint32_t k = 0; k < shape->kinds.n; k++) {
        uint32_t id = activity_of(a, shape->kinds.at[k], chunk);
        DS_HPUSH(&out->transfers, ((ds_transfer){id, DS_NONE}));
        if (a->plan->activities[id].n_flows) out->flows = true;
    }
    for (uint32_t u = 0; u < body->units.n; u++) {
        const ds_unit_task *unit = &body->units.at[u];
        ds_transfer *transfer = NULL;
        const ds_activity *activity = NULL;
        if (unit->transfer != DS_NONE) {
            transfer = &out->transfers.at[unit->transfer];
            activity = &a->plan->activities[transfer->activity];
            if (activity->n_members != unit->n_slots)
                return ds_compose__unknown(a->s, "a transfer with other members");
            transfer->stream = body->slots.at[unit->slot];
        }
        for (uint32_t i = 0; i < unit->n_slots; i++) {
            uint32_t slot = body->slots.at[unit->slot + i], is = a->stream[chunk];
            uint32_t cls = out->classes.at[body->stream_cls.at[slot]];
            if (activity) is = stream_of_member(a, activity, cls);
            uint32_t *stream = &out->streams.at[slot];
            if (is == DS_NONE || (*stream != DS_NONE && *stream != is))
                return ds_compose__unknown(a->s, "streams that part");
            *stream = is;
        }
    }
    for (uint32_t i = 0; i < out->streams.n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (out->streams.at[i] == out->streams.at[k])
                return ds_compose__unknown(a->s, "streams that join");
    return true;
}

static bool place(assembler *a, uint32_t from, uint32_t group, uint32_t chunk) {
    ds_part *out = ds_compose__add_part(a->s);
    const ds_part *part = &a->t->s.parts[from];
    *out = (ds_part){.group = group,
                     .turn = part->turn,
                     .mb = part->mb,
                     .post = part->post,
                     .callee = part->callee,
                     .opaque = part->post < 0};
    out->body = body_of(a, from, chunk);
    if (!out->body) return ds_compose__unknown(a->s, a->t->why);
    return find_streams(a, chunk, from, out);
}

static uint32_t template_part(const assembler *a, uint32_t group, uint32_t turn, uint32_t *chunk) {
    uint32_t n = a->s->n_chunks, kind = group / n;
    *chunk = group % n;
    uint32_t label = chunk_label(a, *chunk);
    return (kind * a->t->s.n_chunks + label) * DS_SIBLING + turn;
}

static bool place_all(assembler *a) {
    ds_sibling *s = a->s;
    const ds_sibling *of = &a->t->s;
    uint32_t n_items = s->n_groups * DS_SIBLING, chunk;
    s->first_post = ds_xcalloc(n_items, sizeof *s->first_post);
    s->n_posts = ds_xcalloc(n_items, sizeof *s->n_posts);
    for (uint32_t i = 0; i < n_items; i++) {
        uint32_t from = template_part(a, i / DS_SIBLING, i % DS_SIBLING, &chunk);
        if (!place(a, from, i / DS_SIBLING, chunk)) return false;
    }
    for (uint32_t i = 0; i < n_items; i++) {
        uint32_t from = template_part(a, i / DS_SIBLING, i % DS_SIBLING, &chunk);
        s->first_post[i] = s->n_parts;
        s->n_posts[i] = of->n_posts[from];
        for (uint32_t q = 0; q < of->n_posts[from]; q++)
            if (!place(a, of->first_post[from] + q, i / DS_SIBLING, chunk)) return false;
    }
    return true;
}

static bool place_tail(assembler *a) {
    ds_part *tail = ds_compose__add_part(a->s);
    tail->tail = true;
    tail->body = ds_compose__add_body(a->s);
    ds_stretch to = {.s = a->s,
                     .turns = a->step->turns,
                     .activity = activity_of,
                     .stream = compute_stream,
                     .context = a};
    return ds_template__tail(a->t, &to, tail) || ds_compose__unknown(a->s, a->t->why);
}

static void add_inputs(assembler *a) {
    ds_sibling *s = a->s;
    s->input_bytes = ds_xcalloc(s->plan->n_classes, sizeof *s->input_bytes);
    s->each_bytes = ds_xcalloc(s->plan->n_classes, sizeof *s->each_bytes);
    for (uint32_t c = 0; c < a->step->n_chunks; c++) {
        uint32_t label = chunk_label(a, c);
        s->input_bytes[a->cls[c]] +=
            a->t->once_bytes[label] + a->step->turns[c] * a->t->turn_bytes[label];
        s->each_bytes[a->cls[c]] += a->t->each_bytes[label];
    }
}

ds_status ds_fold_assemble(ds_fold *fold, const ds_fold_step *step, ds_template *t, ds_sibling *out,
                           ds_error *err) {
    assembler a = {.fold = fold,
                   .step = step,
                   .t = t,
                   .s = out,
                   .n_chunks = t->exact ? t->n_chunks : step->n_chunks};
    ds_status status = find_skeleton(&a, err);
    if (status == DS_OK) {
        out->plan = a.plan;
        out->m = step->strategy->microbatches;
        out->n_turns = t->s.n_turns;
        out->n_chunks = step->n_chunks;
        out->n_groups = step->strategy->pp > 1 ? 3 * step->n_chunks : 1;
        out->whole = t->exact;
        ds_spread stages = {t, out, a.plan, a.meet_of, a.meets.n, a.n_chunks};
        if (t->exact)
            ds_template__spread(&stages);
        else if (find_classes(&a) && place_all(&a) && place_tail(&a))
            add_inputs(&a);
    }
    free(a.meets.at);
    free(a.meet_of);
    free(a.cls);
    return status;
}
