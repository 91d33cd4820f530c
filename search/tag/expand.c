/* From a deployment to tasks on GPUs and links.
 *
 * Operations are expanded in order, and the order of creation decides all ties of the simulation.
 * For each replica: the tasks that bring its operands, parent by parent, and the replica itself.
 * After all replicas of a gradient: the tasks that add the gradient up.
 *
 * A result lies in copies: (GPU, samples lo … hi - 1, tensor). The first copies, `sources`, are the
 * replicas' own, or what a reduction left. A reader on a GPU obtains samples [lo, hi) so:
 *
 *   1. a copy on the GPU with exactly these samples;
 *   2. else pieces: from lo on, each piece from the nearest source that has the next sample (same
 *      GPU, then same machine, then first), as far as the source goes; cut at the source where the
 *      piece is a part of the source; moved if the source is elsewhere; joined if there are several.
 *
 * Cuts, joins and sums are computations of 0 us on a GPU: they wait for the GPU. Every tensor made
 * on the way is a copy that later readers find. */
#include "search/tag/internal.h"

#include <assert.h>

typedef struct copy {
    uint32_t gpu, tensor;
    int64_t lo, hi;
} copy;

typedef struct result {
    DS_VEC(copy) copies;
    uint32_t n_sources;
    uint32_t server; /* the only GPU with the sum of a gradient, or DS_TAG_NONE */
} result;

typedef struct expansion {
    ds_tag_tasks *t;
    const ds_tag_graph *graph;
    const ds_tag_place *place;
    int64_t batch;
    uint32_t *owner;
    result *results; /* [operation] */
} expansion;

/* ---- tasks and tensors ---- */

static void create(expansion *x, ds_tag_task task, const uint32_t *in, uint32_t n) {
    ds_tag_tasks *t = x->t;
    task.first_in = t->in.n;
    task.n_in = n;
    task.first_out = t->tensor.n;
    for (uint32_t i = 0; i < n; i++) {
        DS_PUSH(t->arena, &t->in, in[i]);
        t->tensor.at[in[i]].n_readers++;
    }
    DS_PUSH(t->arena, &t->task, task);
}

/* A tensor of the task that was created last. */
static uint32_t make_tensor(expansion *x, uint32_t gpu, int64_t bytes) {
    ds_tag_tasks *t = x->t;
    uint32_t maker = t->task.n - 1;
    ds_tag_tensor tensor = {.gpu = gpu, .maker = maker, .bytes = bytes};
    DS_PUSH(t->arena, &t->tensor, tensor);
    t->task.at[maker].n_out++;
    return t->tensor.n - 1;
}

static int64_t bytes_of(const expansion *x, uint32_t op, int64_t samples) {
    const ds_tag_op *o = &x->graph->op[op];
    return o->result == DS_TAG_SAMPLES ? o->result_bytes * samples / x->batch : o->result_bytes;
}

static void add_copy(expansion *x, uint32_t op, copy c) {
    DS_PUSH(x->t->arena, &x->results[op].copies, c);
}

/* A cut, a join or a sum. */
static uint32_t rearrange(expansion *x, uint32_t op, uint32_t gpu, const uint32_t *in, uint32_t n) {
    create(x, (ds_tag_task){.kind = DS_TAG_COMPUTE, .op = op, .gpu = gpu}, in, n);
    return x->t->task.n - 1;
}

static uint32_t move(expansion *x, uint32_t op, uint32_t tensor, uint32_t to) {
    uint32_t from = x->t->tensor.at[tensor].gpu;
    int64_t bytes = x->t->tensor.at[tensor].bytes;
    ds_tag_task task = {.kind = DS_TAG_TRANSFER, .op = op, .from = from, .gpu = to};
    task.us = ds_tag_transfer_us(bytes, ds_tag__mb_per_s(x->t, from, to), x->t->problem->quirks);
    create(x, task, &tensor, 1);
    return make_tensor(x, to, bytes);
}

/* ---- operands ---- */

static const copy *find_copy(const result *r, uint32_t gpu, int64_t lo, int64_t hi) {
    for (uint32_t i = 0; i < r->copies.n; i++) {
        const copy *c = &r->copies.at[i];
        if (c->gpu == gpu && c->lo == lo && c->hi == hi) return c;
    }
    return NULL;
}

static uint32_t cut(expansion *x, uint32_t op, copy source, int64_t lo, int64_t hi) {
    const copy *found = find_copy(&x->results[op], source.gpu, lo, hi);
    if (found) return found->tensor;
    rearrange(x, op, source.gpu, &source.tensor, 1);
    uint32_t tensor = make_tensor(x, source.gpu, bytes_of(x, op, hi - lo));
    add_copy(x, op, (copy){source.gpu, tensor, lo, hi});
    return tensor;
}

/* The nearest source that has sample `at`. */
static copy nearest_source(const expansion *x, uint32_t op, uint32_t gpu, int64_t at) {
    const result *r = &x->results[op];
    const uint32_t *machine_of = x->t->machine_of;
    uint32_t best = DS_TAG_NONE, best_distance = 3;
    for (uint32_t i = 0; i < r->n_sources; i++) {
        const copy *c = &r->copies.at[i];
        if (at < c->lo || at >= c->hi) continue;
        uint32_t distance = c->gpu == gpu ? 0 : machine_of[c->gpu] == machine_of[gpu] ? 1 : 2;
        if (distance >= best_distance) continue;
        best = i;
        best_distance = distance;
    }
    assert(best != DS_TAG_NONE);
    return r->copies.at[best];
}

static uint32_t obtain(expansion *x, uint32_t op, uint32_t gpu, int64_t lo, int64_t hi) {
    const result *r = &x->results[op];
    const copy *found = find_copy(r, gpu, lo, hi);
    if (found) return found->tensor;
    uint32_t piece[DS_TAG_MAX_GPUS], n = 0;
    for (int64_t at = lo, end; at < hi; at = end) {
        copy source = nearest_source(x, op, gpu, at);
        end = source.hi < hi ? source.hi : hi;
        found = find_copy(r, gpu, at, end);
        if (found) {
            piece[n++] = found->tensor;
            continue;
        }
        uint32_t tensor = cut(x, op, source, at, end);
        if (source.gpu != gpu) {
            tensor = move(x, op, tensor, gpu);
            add_copy(x, op, (copy){gpu, tensor, at, end});
        }
        piece[n++] = tensor;
    }
    if (n == 1) return piece[0];
    rearrange(x, op, gpu, piece, n);
    uint32_t tensor = make_tensor(x, gpu, bytes_of(x, op, hi - lo));
    add_copy(x, op, (copy){gpu, tensor, lo, hi});
    return tensor;
}

/* ---- reductions ---- */

int64_t ds_tag__slowest_mb_per_s(const ds_tag_tasks *tasks, const ds_tag_place *place) {
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < place->n; i++)
        for (uint32_t j = 0; j < place->n; j++) {
            int64_t speed = ds_tag__mb_per_s(tasks, place->gpu[i], place->gpu[j]);
            if (i != j && speed < least) least = speed;
        }
    return least;
}

static void reduce_together(expansion *x, uint32_t op, const ds_tag_place *place,
                            const uint32_t *part) {
    ds_tag_task task = {.kind = DS_TAG_COLLECTIVE, .op = op, .from = DS_TAG_NONE};
    int64_t bytes = x->graph->op[op].result_bytes;
    task.gpu = DS_TAG_NONE;
    int64_t speed = ds_tag__slowest_mb_per_s(x->t, place);
    task.us = ds_tag_collective_us(bytes, speed, x->t->problem->quirks);
    create(x, task, part, place->n);
    for (uint32_t i = 0; i < place->n; i++) {
        uint32_t tensor = make_tensor(x, place->gpu[i], bytes);
        add_copy(x, op, (copy){place->gpu[i], tensor, 0, x->batch});
    }
}

/* Push, sum, pull. The server of operation i is GPU i mod n of the set. */
static void reduce_at_server(expansion *x, uint32_t op, const ds_tag_place *place,
                             const uint32_t *part) {
    uint32_t at = op % place->n, server = place->gpu[at], in[DS_TAG_MAX_GPUS];
    for (uint32_t i = 0; i < place->n; i++)
        in[i] = i == at ? part[i] : move(x, op, part[i], server);
    rearrange(x, op, server, in, place->n);
    uint32_t sum = make_tensor(x, server, x->graph->op[op].result_bytes);
    if (!(x->t->problem->quirks & DS_TAG_PS_SUMS)) {
        x->results[op].server = server;
        add_copy(x, op, (copy){server, sum, 0, x->batch});
        return;
    }
    for (uint32_t i = 0; i < place->n; i++) {
        uint32_t tensor = i == at ? sum : move(x, op, sum, place->gpu[i]);
        add_copy(x, op, (copy){place->gpu[i], tensor, 0, x->batch});
    }
}

/* ---- operations ---- */

/* The server that runs an update alone, or DS_TAG_NONE. */
static uint32_t server_of(const expansion *x, uint32_t op) {
    const ds_tag_op *o = &x->graph->op[op];
    if (o->result != DS_TAG_WHOLE) return DS_TAG_NONE;
    for (uint32_t k = 0; k < o->n_parents; k++)
        if (x->graph->op[o->parent[k]].group == o->group &&
            x->results[o->parent[k]].server != DS_TAG_NONE)
            return x->results[o->parent[k]].server;
    return DS_TAG_NONE;
}

/* One replica; its tensor. */
static uint32_t replicate(expansion *x, uint32_t op, uint32_t gpu, int64_t lo, int64_t hi) {
    const ds_tag_op *o = &x->graph->op[op];
    const ds_tag_cluster *cluster = &x->t->problem->cluster;
    uint32_t *in = DS_NEW_N(x->t->arena, uint32_t, o->n_parents + 1), n = 0;
    for (uint32_t k = 0; k < o->n_parents; k++) {
        const ds_tag_op *parent = &x->graph->op[o->parent[k]];
        bool is_cut = parent->result == DS_TAG_SAMPLES;
        if (x->place[parent->group].n > 0)
            in[n++] = obtain(x, o->parent[k], gpu, is_cut ? lo : 0, is_cut ? hi : x->batch);
    }
    ds_tag_task task = {.kind = DS_TAG_COMPUTE, .is_replica = true, .op = op, .gpu = gpu};
    double us = ds_tag_op_us(x->graph, op, cluster->machine[x->t->machine_of[gpu]].kind, hi - lo);
    task.us = (int64_t)(x->t->problem->quirks & DS_TAG_TRUNCATE ? us : us + 0.5);
    create(x, task, in, n);
    return make_tensor(x, gpu, bytes_of(x, op, hi - lo));
}

static void expand_op(expansion *x, uint32_t op) {
    const ds_tag_op *o = &x->graph->op[op];
    const ds_tag_place *place = &x->place[o->group];
    result *r = &x->results[op];
    uint32_t server = server_of(x, op), part[DS_TAG_MAX_GPUS];
    uint32_t alone = server != DS_TAG_NONE        ? server
                     : place->way == DS_TAG_SPLIT ? x->owner[op]
                                                  : DS_TAG_NONE;
    uint32_t n = alone != DS_TAG_NONE ? 1 : place->n;
    bool is_whole = n == 1 || o->result == DS_TAG_WHOLE || place->way == DS_TAG_DUPLICATE;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t gpu = alone != DS_TAG_NONE ? alone : place->gpu[i];
        int64_t lo = is_whole ? 0 : place->lo[i], hi = is_whole ? x->batch : place->lo[i + 1];
        part[i] = replicate(x, op, gpu, lo, hi);
        if (is_whole || o->result != DS_TAG_SUM) add_copy(x, op, (copy){gpu, part[i], lo, hi});
    }
    if (o->result == DS_TAG_SUM && !is_whole) {
        if (place->way == DS_TAG_PS)
            reduce_at_server(x, op, place, part);
        else
            reduce_together(x, op, place, part);
    }
    if (server != DS_TAG_NONE) /* the new weights are pulled */
        for (uint32_t i = 0; i < place->n; i++)
            if (place->gpu[i] != server) {
                uint32_t tensor = move(x, op, part[0], place->gpu[i]);
                add_copy(x, op, (copy){place->gpu[i], tensor, 0, x->batch});
            }
    r->n_sources = r->copies.n;
}

void ds_tag__expand(ds_tag_tasks *tasks, const ds_tag_place *place) {
    expansion x = {.t = tasks,
                   .graph = &tasks->problem->graph,
                   .place = place,
                   .batch = tasks->problem->batch};
    x.owner = DS_NEW_N(tasks->arena, uint32_t, x.graph->n_ops);
    x.results = DS_NEW_N(tasks->arena, result, x.graph->n_ops);
    tasks->first_task = DS_NEW_N(tasks->arena, uint32_t, x.graph->n_ops + 1);
    for (uint32_t g = 0; g < x.graph->n_groups; g++)
        if (place[g].n > 0 && place[g].way == DS_TAG_SPLIT)
            ds_tag__partition(x.graph, g, &place[g], x.owner);
    for (uint32_t op = 0; op < x.graph->n_ops; op++) {
        tasks->first_task[op] = tasks->task.n;
        x.results[op].server = DS_TAG_NONE;
        if (place[x.graph->op[op].group].n > 0) expand_op(&x, op);
    }
    tasks->first_task[x.graph->n_ops] = tasks->task.n;
}
