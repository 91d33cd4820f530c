/* The rules of search/tag/README.md once more, naively, in code that shares nothing with the room:
 * samples are followed one by one, resources are compared task by task, and memory is added up
 * again after every end. Both agree on random deployments. */
#include "tests/support/generate/random_tag.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 500, TASKS = 6000, GPUS = RANDOM_TAG_GPUS, BATCH = RANDOM_TAG_BATCH };
enum { COMPUTE, TRANSFER, COLLECTIVE };
enum { NONE = -1 };

typedef struct tensor {
    int gpu, maker, last_reader; /* the last reader's place in the order of ends; NONE: no reader */
    int64_t bytes;
} tensor;

typedef struct task {
    int type, op, gpu, from, n_in;
    bool is_replica;
    bool member[GPUS];
    int in[GPUS];
    int64_t us, start, end, rank;
    int ended; /* place in the order of ends; NONE: not yet */
} task;

static task tasks[TASKS];
static tensor tensors[2 * TASKS];
static int n_tasks, n_tensors;
static const random_tag *input;
static int n_gpus, machine_of[GPUS], n_samples, held_by_server[RANDOM_TAG_OPS];
/* The tensor with samples lo … hi - 1 of an operation's result on a GPU. */
static int copy_of[RANDOM_TAG_OPS][GPUS][BATCH + 1][BATCH + 1];
/* The tensor of the replica, or of the reduction, on a GPU that has a sample. */
static int source_of[RANDOM_TAG_OPS][GPUS][BATCH];

static bool has_quirk(uint32_t quirk) {
    return (input->problem.quirks & quirk) != 0;
}

static int64_t speed(int from, int to) {
    const ds_tag_cluster *c = &input->problem.cluster;
    return c->mb_per_s[machine_of[from] * (int)c->n_machines + machine_of[to]];
}

/* ---- durations ---- */

static double profiled_us(int op, int gpu, int64_t samples) {
    const ds_tag_graph *g = &input->problem.graph;
    const double *us =
        g->op[op].us + input->problem.cluster.machine[machine_of[gpu]].kind * g->n_points;
    int64_t best = INT64_MAX;
    double found = us[0];
    /* Of all pairs the nearest: the greater distance first, then the smaller, then sizes. */
    for (uint32_t i = 0; i < g->n_points; i++)
        for (uint32_t j = i + 1; j < g->n_points; j++) {
            int64_t a = llabs(g->batch[i] - samples), b = llabs(g->batch[j] - samples);
            int64_t key = ((a > b ? a : b) * 1000 + (a < b ? a : b)) * 1000 + i + j;
            if (key >= best) continue;
            best = key;
            found = us[i] + (us[j] - us[i]) * (double)(samples - g->batch[i]) /
                                (double)(g->batch[j] - g->batch[i]);
        }
    return found < 0 ? 0 : found;
}

static int64_t whole_us(double us) {
    return has_quirk(DS_TAG_TRUNCATE) ? (int64_t)us : (int64_t)floor(us + 0.5);
}

static int64_t collective_us(int64_t bytes, int64_t least) {
    double kib = has_quirk(DS_TAG_TRUNCATE) ? (double)(bytes / 1024) : (double)bytes / 1024;
    double low = 0.043420241077615454 * kib + 368.2013618677043;
    double high = 0.27766802543921265 * kib + 211.91926070037152;
    return whole_us((low > high ? low : high) * (2810.0 / (double)least));
}

/* ---- expansion ---- */

static int new_task(int type, int op, int gpu, int64_t us) {
    cr_assert_lt(n_tasks, TASKS);
    tasks[n_tasks] =
        (task){.type = type, .op = op, .gpu = gpu, .us = us, .start = -1, .ended = NONE};
    return n_tasks++;
}

static int new_tensor(int maker, int gpu, int64_t bytes) {
    tensors[n_tensors] = (tensor){gpu, maker, NONE, bytes};
    return n_tensors++;
}

static int64_t part_bytes(int op, int samples) {
    const ds_tag_op *o = &input->op[op];
    return o->result == DS_TAG_SAMPLES ? o->result_bytes * samples / n_samples : o->result_bytes;
}

static int send(int op, int what, int to) {
    double us = (double)tensors[what].bytes / (double)speed(tensors[what].gpu, to);
    int t = new_task(TRANSFER, op, to, whole_us(us) + 12);
    tasks[t].from = tensors[what].gpu;
    tasks[t].in[tasks[t].n_in++] = what;
    return new_tensor(t, to, tensors[what].bytes);
}

static void set_source(int op, int gpu, int lo, int hi, int what) {
    copy_of[op][gpu][lo][hi] = what;
    for (int s = lo; s < hi; s++) source_of[op][gpu][s] = what;
}

static int cut(int op, int gpu, int lo, int hi) {
    if (copy_of[op][gpu][lo][hi] == NONE) {
        int t = new_task(COMPUTE, op, gpu, 0);
        tasks[t].in[tasks[t].n_in++] = source_of[op][gpu][lo];
        copy_of[op][gpu][lo][hi] = new_tensor(t, gpu, part_bytes(op, hi - lo));
    }
    return copy_of[op][gpu][lo][hi];
}

/* Where a reader on `gpu` takes a sample from. */
static int giver_of(int op, int gpu, int sample) {
    if (source_of[op][gpu][sample] != NONE) return gpu;
    for (int g = 0; g < n_gpus; g++)
        if (machine_of[g] == machine_of[gpu] && source_of[op][g][sample] != NONE) return g;
    for (int g = 0; g < n_gpus; g++)
        if (source_of[op][g][sample] != NONE) return g;
    cr_assert_fail("no GPU has sample %d of operation %d", sample, op);
    return NONE;
}

static int bring(int op, int gpu, int lo, int hi) {
    int giver[BATCH], piece[GPUS], n = 0;
    if (copy_of[op][gpu][lo][hi] != NONE) return copy_of[op][gpu][lo][hi];
    for (int s = lo; s < hi; s++) giver[s] = giver_of(op, gpu, s);
    for (int s = lo, end; s < hi; s = end) {
        for (end = s + 1; end < hi && giver[end] == giver[s];) end++;
        if (copy_of[op][gpu][s][end] == NONE) {
            int part = cut(op, giver[s], s, end);
            if (giver[s] != gpu) copy_of[op][gpu][s][end] = send(op, part, gpu);
        }
        piece[n++] = copy_of[op][gpu][s][end];
    }
    if (n > 1) {
        int t = new_task(COMPUTE, op, gpu, 0);
        for (int i = 0; i < n; i++) tasks[t].in[tasks[t].n_in++] = piece[i];
        copy_of[op][gpu][lo][hi] = new_tensor(t, gpu, part_bytes(op, hi - lo));
    }
    return copy_of[op][gpu][lo][hi];
}

static void all_reduce(int op, const int *gpu, const int *part, int n) {
    int64_t least = INT64_MAX, bytes = input->op[op].result_bytes;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j && speed(gpu[i], gpu[j]) < least) least = speed(gpu[i], gpu[j]);
    int t = new_task(COLLECTIVE, op, NONE, collective_us(bytes, least));
    for (int i = 0; i < n; i++) {
        tasks[t].member[gpu[i]] = true;
        tasks[t].in[tasks[t].n_in++] = part[i];
        set_source(op, gpu[i], 0, n_samples, new_tensor(t, gpu[i], bytes));
    }
}

static void push_and_pull(int op, const int *gpu, const int *part, int n) {
    int server = gpu[op % n], pushed[GPUS];
    for (int i = 0; i < n; i++) pushed[i] = gpu[i] == server ? part[i] : send(op, part[i], server);
    int t = new_task(COMPUTE, op, server, 0);
    for (int i = 0; i < n; i++) tasks[t].in[tasks[t].n_in++] = pushed[i];
    int sum = new_tensor(t, server, input->op[op].result_bytes);
    set_source(op, server, 0, n_samples, sum);
    if (!has_quirk(DS_TAG_PS_SUMS)) held_by_server[op] = server;
    for (int i = 0; i < n && has_quirk(DS_TAG_PS_SUMS); i++)
        if (gpu[i] != server) set_source(op, gpu[i], 0, n_samples, send(op, sum, gpu[i]));
}

/* The action that a group has. */
static ds_tag_action action_of(uint32_t group) {
    ds_tag_action everywhere = {(UINT64_C(1) << n_gpus) - 1, DS_TAG_ALL_REDUCE, NULL};
    if (input->action[group].gpus) return input->action[group];
    return has_quirk(DS_TAG_FIRST_ACTION) && input->action[0].gpus ? input->action[0] : everywhere;
}

static int gpus_of(ds_tag_action action, int *gpu) {
    int n = 0;
    for (int g = 0; g < n_gpus; g++)
        if (action.gpus & (UINT64_C(1) << g)) gpu[n++] = g;
    return n;
}

/* The GPU of an operation of a group that is split: everything before is placed again. */
static int owner_of(int op) {
    uint32_t group = input->op[op].group;
    int gpu[GPUS], n = gpus_of(action_of(group), gpu), owner[RANDOM_TAG_OPS];
    int64_t total = 0, load[GPUS] = {0};
    int members = 0;
    for (uint32_t i = 0; i < input->problem.graph.n_ops; i++)
        if (input->op[i].group == group) {
            total += input->op[i].param_bytes / 400000;
            members++;
        }
    bool counts = total == 0;
    int64_t most = (int64_t)ceil(1.5 * (double)(counts ? members : total) / n);
    for (int i = 0; i <= op; i++) {
        if (input->op[i].group != group) continue;
        int64_t weight = counts ? 1 : input->op[i].param_bytes / 400000;
        double best = -2;
        int chosen = 0;
        for (int g = 0; g < n; g++) {
            double bytes = 0;
            for (uint32_t k = 0; k < input->op[i].n_parents; k++) {
                uint32_t p = input->parent[i][k];
                if (input->op[p].group == group && owner[p] == g)
                    bytes += (double)input->op[p].result_bytes;
            }
            double score = load[g] + weight <= most ? bytes * (double)(most - load[g]) : -1;
            if (score > best || (score == best && load[g] < load[chosen])) {
                best = score;
                chosen = g;
            }
        }
        owner[i] = chosen;
        load[chosen] += weight;
    }
    return gpu[owner[op]];
}

static int compute(int op, int gpu, int lo, int hi) {
    const ds_tag_op *o = &input->op[op];
    int in[3];
    for (uint32_t k = 0; k < o->n_parents; k++) {
        int p = (int)o->parent[k];
        bool is_cut = input->op[p].result == DS_TAG_SAMPLES;
        in[k] = bring(p, gpu, is_cut ? lo : 0, is_cut ? hi : n_samples);
    }
    int t = new_task(COMPUTE, op, gpu, whole_us(profiled_us(op, gpu, hi - lo)));
    tasks[t].is_replica = true;
    for (uint32_t k = 0; k < o->n_parents; k++) tasks[t].in[tasks[t].n_in++] = in[k];
    return new_tensor(t, gpu, part_bytes(op, hi - lo));
}

static void expand(int op) {
    const ds_tag_op *o = &input->op[op];
    ds_tag_action action = action_of(o->group);
    int gpu[GPUS], part[GPUS], n = gpus_of(action, gpu), server = NONE, lo = 0;
    for (uint32_t k = 0; k < o->n_parents && server == NONE; k++)
        if (o->result == DS_TAG_WHOLE && input->op[o->parent[k]].group == o->group)
            server = held_by_server[o->parent[k]];
    if (server != NONE) {
        int new_weights = compute(op, server, 0, n_samples);
        set_source(op, server, 0, n_samples, new_weights);
        for (int i = 0; i < n; i++)
            if (gpu[i] != server)
                set_source(op, gpu[i], 0, n_samples, send(op, new_weights, gpu[i]));
        return;
    }
    if (action.way == DS_TAG_SPLIT) {
        gpu[0] = owner_of(op);
        n = 1;
    }
    bool is_whole = n == 1 || o->result == DS_TAG_WHOLE || action.way == DS_TAG_DUPLICATE;
    for (int i = 0; i < n; i++) {
        int share = action.share ? (int)action.share[i] : n_samples / n + (i < n_samples % n);
        if (is_whole) {
            part[i] = compute(op, gpu[i], 0, n_samples);
            set_source(op, gpu[i], 0, n_samples, part[i]);
        } else {
            part[i] = compute(op, gpu[i], lo, lo + share);
            if (o->result == DS_TAG_SAMPLES) set_source(op, gpu[i], lo, lo + share, part[i]);
            lo += share;
        }
    }
    if (is_whole || o->result != DS_TAG_SUM) return;
    if (action.way == DS_TAG_PS)
        push_and_pull(op, gpu, part, n);
    else
        all_reduce(op, gpu, part, n);
}

/* ---- time ---- */

static int next_collective(int t) {
    for (int i = t + 1; i < n_tasks; i++)
        if (tasks[i].type == COLLECTIVE) return i;
    return NONE;
}

static int chain[TASKS], rank_before[TASKS]; /* predecessors beside makers; NONE */

static bool is_ready(int t) {
    if (chain[t] != NONE && tasks[chain[t]].ended == NONE) return false;
    if (rank_before[t] != NONE && tasks[rank_before[t]].ended == NONE) return false;
    for (int k = 0; k < tasks[t].n_in; k++)
        if (tasks[tensors[tasks[t].in[k]].maker].ended == NONE) return false;
    return true;
}

static bool links_meet(int a_from, int a_to, int b_from, int b_to) {
    int af = machine_of[a_from], at = machine_of[a_to], bf = machine_of[b_from],
        bt = machine_of[b_to];
    if (has_quirk(DS_TAG_PAIR_LINKS) || af == at || bf == bt) return af == bf && at == bt;
    return af == bf || at == bt;
}

static bool collective_meets(const task *c, const task *other) {
    if (other->type == COMPUTE) return c->member[other->gpu];
    for (int i = 0; i < n_gpus; i++)
        for (int j = 0; j < n_gpus; j++)
            if (i != j && c->member[i] && c->member[j] && links_meet(i, j, other->from, other->gpu))
                return true;
    return false;
}

static bool share_a_resource(const task *a, const task *b) {
    if (a->type == b->type) {
        if (a->type == COMPUTE) return a->gpu == b->gpu;
        return a->type == COLLECTIVE || links_meet(a->from, a->gpu, b->from, b->gpu);
    }
    if (has_quirk(DS_TAG_COLLECTIVE_FREE)) return false;
    if (a->type == COLLECTIVE) return collective_meets(a, b);
    return b->type == COLLECTIVE && collective_meets(b, a);
}

static void set_ranks(void) {
    bool is_changed = true;
    for (int t = 0; t < n_tasks; t++) tasks[t].rank = tasks[t].us + 1;
    for (int round = 0; round <= n_tasks && is_changed; round++) {
        is_changed = false;
        for (int t = n_tasks; t-- > 0;) {
            for (int k = 0; k <= tasks[t].n_in; k++) {
                int before = k == tasks[t].n_in ? chain[t] : tensors[tasks[t].in[k]].maker;
                if (before == NONE || tasks[before].rank > tasks[t].rank + tasks[before].us)
                    continue;
                tasks[before].rank = tasks[t].rank + tasks[before].us + 1;
                is_changed = true;
            }
        }
    }
    for (int t = 0; t < n_tasks; t++) { /* the last of all that go before t */
        for (int b = 0; b < n_tasks; b++) {
            if (b == t || tasks[t].type != COMPUTE || tasks[b].type != COMPUTE ||
                tasks[b].gpu != tasks[t].gpu)
                continue;
            if (tasks[b].rank < tasks[t].rank || (tasks[b].rank == tasks[t].rank && b > t))
                continue;
            int *last = &rank_before[t];
            if (*last == NONE || tasks[b].rank < tasks[*last].rank ||
                (tasks[b].rank == tasks[*last].rank && b > *last))
                *last = b;
        }
    }
}

static int n_put_on, put_on[TASKS];

static void begin_ready(int64_t now) {
    for (int t = 0; t < n_tasks; t++) {
        if (tasks[t].start >= 0 || !is_ready(t)) continue;
        tasks[t].start = now;
        for (int i = 0; i < n_put_on; i++) {
            const task *other = &tasks[put_on[i]];
            if (other->end > tasks[t].start && share_a_resource(other, &tasks[t]))
                tasks[t].start = other->end;
        }
        tasks[t].end = tasks[t].start + tasks[t].us;
        put_on[n_put_on++] = t;
    }
}

/* The number of ends; fewer than tasks: some never start. */
static int run(void) {
    int n_ended = 0;
    n_put_on = 0;
    for (int t = 0; t < n_tasks; t++) {
        bool is_chained = tasks[t].type == COLLECTIVE && has_quirk(DS_TAG_COLLECTIVE_CHAIN);
        chain[t] = is_chained ? next_collective(t) : NONE;
        rank_before[t] = NONE;
    }
    if (input->problem.is_ranked) set_ranks();
    begin_ready(0);
    for (;;) {
        int first = NONE;
        for (int t = 0; t < n_tasks; t++)
            if (tasks[t].start >= 0 && tasks[t].ended == NONE &&
                (first == NONE || tasks[t].end < tasks[first].end))
                first = t;
        if (first == NONE) return n_ended;
        tasks[first].ended = n_ended++;
        begin_ready(tasks[first].end);
    }
}

/* ---- comparison ---- */

static void expect_peaks(const ds_tag_outcome *out, uint64_t seed) {
    int64_t peak[GPUS] = {0};
    bool fits = true;
    for (int t = 0; t < n_tasks; t++)
        for (int k = 0; k < tasks[t].n_in; k++) {
            tensor *x = &tensors[tasks[t].in[k]];
            if (tasks[t].ended > x->last_reader) x->last_reader = tasks[t].ended;
        }
    for (int step = 0; step < n_tasks; step++) {
        int64_t held[GPUS] = {0};
        for (int i = 0; i < n_tensors; i++) {
            const tensor *x = &tensors[i];
            bool is_there = tasks[x->maker].ended <= step;
            if (is_there && (x->last_reader == NONE || x->last_reader > step))
                held[x->gpu] += x->bytes;
        }
        for (int g = 0; g < n_gpus; g++)
            if (held[g] > peak[g]) peak[g] = held[g];
    }
    for (int g = 0; g < n_gpus; g++) {
        cr_expect_eq(out->peak_bytes[g], peak[g], "seed %lu, GPU %d: peak", seed, g);
        fits = fits && peak[g] <= input->machine[machine_of[g]].memory_bytes;
    }
    cr_expect_eq(out->fits, fits, "seed %lu: fits", seed);
}

static void expect_feedback(const ds_tag_outcome *out, uint64_t seed) {
    int64_t makespan = 0, moved = 0, busy[GPUS] = {0};
    int64_t first[RANDOM_TAG_OPS], last[RANDOM_TAG_OPS] = {0};
    uint32_t n_ops = input->problem.graph.n_ops;
    for (uint32_t op = 0; op < n_ops; op++) first[op] = INT64_MAX;
    for (int t = 0; t < n_tasks; t++) {
        const task *x = &tasks[t];
        if (x->end > makespan) makespan = x->end;
        if (x->type == COMPUTE) busy[x->gpu] += x->us;
        if (x->type == TRANSFER) moved += tensors[x->in[0]].bytes;
        if (!x->is_replica) continue;
        if (x->start < first[x->op]) first[x->op] = x->start;
        if (x->end > last[x->op]) last[x->op] = x->end;
    }
    cr_expect_eq(out->n_tasks, (uint32_t)n_tasks, "seed %lu: tasks", seed);
    cr_expect_eq(out->moved_bytes, moved, "seed %lu: bytes", seed);
    cr_assert_eq(out->makespan_us, makespan, "seed %lu: %ld us and not %ld", seed, out->makespan_us,
                 makespan);
    for (int g = 0; g < n_gpus; g++) {
        double used = makespan ? (double)busy[g] / (double)makespan : 0;
        if (has_quirk(DS_TAG_INTEGER_UTILISATION)) used = floor(used);
        cr_expect_eq(out->busy_us[g], busy[g], "seed %lu, GPU %d: busy", seed, g);
        cr_expect_eq(out->utilisation[g], used, "seed %lu, GPU %d: utilisation", seed, g);
    }
    for (uint32_t op = 0; op < n_ops; op++) {
        int64_t idle = INT64_MAX;
        for (uint32_t c = 0; c < n_ops; c++)
            for (uint32_t k = 0; k < input->op[c].n_parents; k++)
                if (input->parent[c][k] == op) {
                    int64_t gap = first[c] > last[op] ? first[c] - last[op] : 0;
                    if (gap < idle) idle = gap;
                }
        if (idle == INT64_MAX) idle = 0;
        cr_expect_eq(out->op_us[op], last[op] - first[op], "seed %lu: operation %u", seed, op);
        cr_expect_eq(out->op_idle_us[op], idle, "seed %lu: idle after operation %u", seed, op);
    }
}

/* Do both simulators end, with the same outcome? False: both say that tasks never start. */
static bool compare(const random_tag *r, uint64_t seed) {
    ds_arena arena = {0};
    ds_error err;
    ds_tag_outcome out;
    input = r;
    n_tasks = n_tensors = n_gpus = 0;
    n_samples = (int)r->problem.batch;
    for (uint32_t m = 0; m < r->problem.cluster.n_machines; m++)
        for (uint32_t i = 0; i < r->machine[m].n_gpus; i++) machine_of[n_gpus++] = (int)m;
    memset(copy_of, 0xff, sizeof copy_of); /* NONE */
    memset(source_of, 0xff, sizeof source_of);
    memset(held_by_server, 0xff, sizeof held_by_server);
    for (uint32_t op = 0; op < r->problem.graph.n_ops; op++) expand((int)op);
    bool ends = run() == n_tasks;
    cr_assert_eq(ds_tag_check(&r->problem, &err), DS_OK, "seed %lu: %s", seed, err.message);
    ds_status status = ds_tag_simulate(&r->problem, r->action, &arena, &out, &err);
    cr_assert_eq(status, ends ? DS_OK : DS_ERR_DEADLOCK, "seed %lu: %s", seed,
                 status ? err.message : "ends");
    if (ends) {
        expect_feedback(&out, seed);
        expect_peaks(&out, seed);
    }
    ds_arena_deinit(&arena);
    return ends;
}

Test(tag_restated, random_deployments) {
    static random_tag r;
    int n_ended = 0, n_stuck = 0;
    for (uint64_t seed = 0; n_ended < GRAPHS; seed++) {
        random_tag_make(&r, seed, seed % 5 != 0);
        bool ends = compare(&r, seed);
        n_ended += ends;
        n_stuck += !ends;
        cr_assert(ends || seed % 5 == 0, "seed %lu: a training step never ends", seed);
    }
    cr_expect_gt(n_stuck, 10);
}
