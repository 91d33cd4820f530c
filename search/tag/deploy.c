/* A deployment becomes tasks in program order, and a run of in-order streams.
 *
 * A task is what a machine computes without a break, or one communication. Operations of one machine
 * join the machine's last task as long as nothing else waits for that task's end alone. Streams take
 * their tasks in the order of creation: one stream a machine, one for each pair of layouts, and one
 * for reductions of each site. */
#include "search/tag/deploy.h"

#include "search/tag/price.h"
#include "sim/run/shares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { MOST_MACHINES = 16 };

struct ds_tag_fast {
    const ds_tag_model *model;
    ds_arena arena;
    ds_tag_action *action; /* [n_actions] */
    uint32_t *site_of;     /* [action] */
    ds_tag_site *site;
    uint32_t n_actions, n_sites, n_machines, base;
    uint32_t *first_gpu;  /* [machine] */
    uint32_t *machine_of; /* [GPU] */
    double base_us;
    float *us;           /* [action][machine][operation] */
    uint32_t *last_read; /* [operation]: the last operation that reads it; itself if none does */
    bool *leaves;        /* [operation]: another group reads it */
    ds_tag_prices *prices;
};

/* ---- actions ---- */

/* Samples by time: lines through one sample and an even share. */
static void share_by_time(const ds_tag_fast *f, const ds_tag_site *s, int64_t *parts) {
    const ds_tag_problem *p = &f->model->problem;
    double fixed[DS_TAG_MAX_GPUS] = {0}, each[DS_TAG_MAX_GPUS];
    int64_t even = p->batch / s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t kind = p->cluster.machine[f->machine_of[s->gpu[i]]].kind;
        double us = 0;
        for (uint32_t op = 0; op < p->graph.n_ops; op++)
            if (p->graph.op[op].result != DS_TAG_WHOLE)
                us += ds_tag_op_us(&p->graph, op, kind, even > 0 ? even : 1);
        each[i] = us / (double)(even > 0 ? even : 1) + 1e-9;
    }
    ds_shares_choose(fixed, each, s->n, p->batch, parts);
}

static bool add_action(ds_tag_fast *f, uint64_t gpus, ds_tag_way way, bool by_time) {
    ds_tag_site *s = &f->site[f->n_sites];
    ds_tag_action *a = &f->action[f->n_actions];
    int64_t batch = f->model->problem.batch, *parts = DS_NEW_N(&f->arena, int64_t, DS_TAG_MAX_GPUS);
    *s = (ds_tag_site){0};
    for (uint32_t g = 0; g < DS_TAG_MAX_GPUS; g++)
        if (gpus >> g & 1) s->gpu[s->n++] = g;
    bool is_even = batch % s->n == 0;
    if (way == DS_TAG_ALL_REDUCE && (s->n > batch || (!by_time && !is_even))) return false;
    for (uint32_t i = 0; i < s->n; i++) parts[i] = batch / s->n + (i < batch % s->n);
    if (by_time) share_by_time(f, s, parts);
    for (uint32_t i = 0; i < s->n; i++) s->lo[i + 1] = s->lo[i] + parts[i];
    *a = (ds_tag_action){gpus, way, by_time ? parts : NULL};
    uint32_t site = 0;
    while (memcmp(&f->site[site], s, sizeof *s) != 0) site++;
    if (site == f->n_sites) f->n_sites++;
    f->site_of[f->n_actions++] = site;
    return true;
}

static bool is_mixed(const ds_tag_cluster *c, uint64_t machines) {
    uint32_t kind = c->machine[__builtin_ctzll(machines)].kind;
    for (uint32_t m = 0; m < c->n_machines; m++)
        if ((machines >> m & 1) && c->machine[m].kind != kind) return true;
    return false;
}

static uint64_t first_half(uint64_t gpus) {
    uint64_t half = gpus;
    while (2 * __builtin_popcountll(half) > __builtin_popcountll(gpus))
        half &= ~(UINT64_C(1) << (63 - __builtin_clzll(half)));
    return half;
}

static void add_actions(ds_tag_fast *f) {
    const ds_tag_cluster *c = &f->model->problem.cluster;
    uint32_t most = 6 * (1u << c->n_machines);
    uint64_t all = (UINT64_C(1) << c->n_machines) - 1;
    f->action = DS_NEW_N(&f->arena, ds_tag_action, most);
    f->site_of = DS_NEW_N(&f->arena, uint32_t, most);
    f->site = DS_NEW_N(&f->arena, ds_tag_site, most);
    for (uint64_t machines = all; machines > 0; machines--) {
        uint64_t gpus = ds_tag_gpus_of(c, machines);
        bool is_one = (machines & (machines - 1)) == 0;
        bool is_even = add_action(f, gpus, DS_TAG_ALL_REDUCE, false);
        if (is_mixed(c, machines) || !is_even) add_action(f, gpus, DS_TAG_ALL_REDUCE, true);
        if (!is_one || c->machine[__builtin_ctzll(machines)].n_gpus == 1) continue;
        add_action(f, gpus, DS_TAG_COLUMNS, false);
        if (c->machine[__builtin_ctzll(machines)].n_gpus % 4 == 0) /* what four do not divide */
            add_action(f, first_half(gpus), DS_TAG_COLUMNS, false);
        add_action(f, gpus, DS_TAG_DUPLICATE, false);
        add_action(f, gpus & -gpus, DS_TAG_ALL_REDUCE, false);
    }
}

const ds_tag_action *ds_tag_fast_actions(const ds_tag_fast *fast, uint32_t *n) {
    *n = fast->n_actions;
    return fast->action;
}

uint32_t ds_tag_fast_number(const ds_tag_fast *f, const ds_tag_action *action) {
    uint32_t i = 0;
    while (i < f->n_actions &&
           (f->action[i].gpus != action->gpus || f->action[i].way != action->way ||
            f->action[i].share != action->share))
        i++;
    return i < f->n_actions ? i : f->base;
}

/* ---- durations ---- */

/* Does tensor parallelism split the operation? */
bool ds_tag_fast_columns(const ds_tag_fast *f, uint32_t base, uint32_t action) {
    const ds_tag_base *b = &f->model->base[base];
    uint32_t n = f->site[f->site_of[action]].n;
    return f->action[action].way == DS_TAG_COLUMNS && b->column && b->n_columns % n == 0;
}

static bool has_columns(const ds_tag_fast *f, uint32_t op, uint32_t action) {
    return ds_tag_fast_columns(f, f->model->base_of[op], action);
}

static double op_us(const ds_tag_fast *f, uint32_t op, uint32_t action, uint32_t machine) {
    const ds_tag_problem *p = &f->model->problem;
    const ds_tag_site *s = &f->site[f->site_of[action]];
    uint32_t kind = p->cluster.machine[machine].kind;
    int64_t most = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (f->machine_of[s->gpu[i]] == machine && s->lo[i + 1] - s->lo[i] > most)
            most = s->lo[i + 1] - s->lo[i];
    if (most == 0) return 0;
    if (has_columns(f, op, action)) return ds_tag_op_us(&p->graph, op, kind, p->batch) / s->n;
    bool is_whole = f->action[action].way == DS_TAG_DUPLICATE;
    return ds_tag_op_us(&p->graph, op, kind, is_whole ? p->batch : most);
}

static void find_durations(ds_tag_fast *f) {
    uint32_t n_ops = f->model->problem.graph.n_ops;
    f->us = DS_NEW_N(&f->arena, float, (size_t)f->n_actions * f->n_machines * n_ops);
    for (uint32_t a = 0; a < f->n_actions; a++)
        for (uint32_t m = 0; m < f->n_machines; m++)
            for (uint32_t op = 0; op < n_ops; op++)
                f->us[((size_t)a * f->n_machines + m) * n_ops + op] = (float)op_us(f, op, a, m);
}

/* ---- tasks ---- */

typedef struct task {
    double us; /* alone */
    uint32_t stream, n_waits;
    const ds_tag_price *price; /* of a communication; NULL: computation */
    bool is_sealed;            /* others wait for its end: nothing joins it */
} task;

typedef struct wait {
    uint32_t task, before; /* before: another wait of the same task; NONE */
} wait;

/* A copy for readers of one turn and pass: the backward pass moves a value again. */
typedef struct moved {
    ds_tag_layout layout;
    uint32_t task, next, block;
    bool is_backward;
} moved;

/* Where an operation's result is. */
typedef struct home {
    ds_tag_layout layout;
    uint32_t task;        /* that brings it: a communication; NONE: the machines' own */
    uint32_t first_moved; /* NONE: no copy elsewhere */
    bool is_waiting;      /* a term that waits for its bucket */
} home;

typedef struct bucket {
    double bytes;
    uint32_t block, site;
    DS_VEC(uint32_t) op;
} bucket;

typedef struct plan {
    const ds_tag_fast *f;
    const uint32_t *choice;
    ds_arena *arena;
    DS_VEC(task) task;
    DS_VEC(wait) waits;
    uint32_t *last_wait; /* parallel to task: its list */
    DS_VEC(uint32_t) first_wait;
    home *home;    /* [operation] */
    uint32_t *own; /* [operation][machine]: the task that computes it; NONE */
    DS_VEC(moved) moved;
    uint32_t last[MOST_MACHINES]; /* the machine's last task */
    DS_VEC(uint64_t) stream_key;
    uint32_t n_streams;
    bucket bucket; /* the one that fills */
    ds_error *err;
} plan;

static uint32_t stream_of(plan *p, uint64_t key) {
    uint32_t i = 0;
    while (i < p->stream_key.n && p->stream_key.at[i] != key) i++;
    if (i == p->stream_key.n) DS_PUSH(p->arena, &p->stream_key, key);
    return p->f->n_machines + i;
}

static uint32_t add_task(plan *p, task t) {
    DS_PUSH(p->arena, &p->task, t);
    DS_PUSH(p->arena, &p->first_wait, NONE);
    return p->task.n - 1;
}

static void add_wait(plan *p, uint32_t waits, uint32_t on) {
    if (on == NONE || on == waits) return;
    for (uint32_t i = p->first_wait.at[waits]; i != NONE; i = p->waits.at[i].before)
        if (p->waits.at[i].task == on) return;
    wait w = {on, p->first_wait.at[waits]};
    p->first_wait.at[waits] = p->waits.n;
    DS_PUSH(p->arena, &p->waits, w);
    p->task.at[on].is_sealed = true;
    p->task.at[waits].n_waits++;
}

static void wait_for_owners(plan *p, uint32_t waits, uint32_t op) {
    const home *h = &p->home[op];
    add_wait(p, waits, h->task);
    for (uint32_t m = 0; h->task == NONE && m < p->f->n_machines; m++)
        add_wait(p, waits, p->own[op * p->f->n_machines + m]);
}

/* ---- communication ---- */

static double bytes_of(const plan *p, uint32_t op) {
    return (double)p->f->model->problem.graph.op[op].result_bytes;
}

static ds_status flush(plan *p) {
    const ds_tag_price *price;
    if (p->bucket.op.n == 0) return DS_OK;
    DS_TRY(ds_tag__price_reduce(p->f->prices, p->bucket.site, &price, p->err));
    uint32_t t = NONE;
    if (!price->is_free)
        t = add_task(p, (task){.us = ds_tag__price_us(price, p->bucket.bytes),
                               .stream = stream_of(p, UINT64_C(1) << 40 | p->bucket.site),
                               .price = price});
    for (uint32_t i = 0; i < p->bucket.op.n; i++) {
        uint32_t op = p->bucket.op.at[i];
        p->home[op].is_waiting = false;
        if (t == NONE) continue;
        wait_for_owners(p, t, op);
        p->home[op].task = t;
    }
    p->bucket.op.n = 0;
    p->bucket.bytes = 0;
    return DS_OK;
}

/* A term of a gradient waits until its bucket is full, or the turn of the loop ends. */
static ds_status put_in_bucket(plan *p, uint32_t op, uint32_t site) {
    uint32_t block = p->f->model->trait[op].block;
    if (p->bucket.op.n > 0 && (p->bucket.site != site || p->bucket.block != block))
        DS_TRY(flush(p));
    p->bucket.site = site;
    p->bucket.block = block;
    p->bucket.bytes += bytes_of(p, op);
    p->home[op].is_waiting = true;
    DS_PUSH(p->arena, &p->bucket.op, op);
    return p->bucket.bytes >= (double)p->f->model->bucket_bytes ? flush(p) : DS_OK;
}

static bool lies_as(const plan *p, const home *h, ds_tag_layout wanted) {
    if (h->layout == wanted) return true;
    const ds_tag_site *a = &p->f->site[h->layout / DS_TAG_N_LIES];
    const ds_tag_site *b = &p->f->site[wanted / DS_TAG_N_LIES];
    return h->layout % DS_TAG_N_LIES == DS_TAG_LIE_WHOLE && a->n == b->n &&
           memcmp(a->gpu, b->gpu, sizeof a->gpu) == 0; /* a whole tensor has each part */
}

static const moved *find_moved(const plan *p, const home *h, uint32_t reader,
                               ds_tag_layout wanted) {
    const ds_tag_trait *trait = &p->f->model->trait[reader];
    for (uint32_t i = h->first_moved; i != NONE; i = p->moved.at[i].next) {
        const moved *m = &p->moved.at[i];
        if (m->layout == wanted && m->block == trait->block && m->is_backward == trait->is_backward)
            return m;
    }
    return NULL;
}

/* *t: what must have ended beside the reader's own machine; NONE. */
static ds_status obtain(plan *p, uint32_t op, uint32_t reader, ds_tag_layout wanted, uint32_t *t) {
    home *h = &p->home[op];
    const ds_tag_price *price;
    if (h->is_waiting) DS_TRY(flush(p));
    *t = h->task;
    if (lies_as(p, h, wanted)) return DS_OK;
    const moved *known = find_moved(p, h, reader, wanted);
    if (known) {
        *t = known->task;
        return DS_OK;
    }
    DS_TRY(ds_tag__price_move(p->f->prices, h->layout, wanted, &price, p->err));
    if (!price->is_free) {
        uint64_t key = (uint64_t)(h->layout / DS_TAG_N_LIES) << 20 | wanted / DS_TAG_N_LIES;
        *t = add_task(p, (task){.us = ds_tag__price_us(price, bytes_of(p, op)),
                                .stream = stream_of(p, key),
                                .price = price});
        wait_for_owners(p, *t, op);
    }
    const ds_tag_trait *trait = &p->f->model->trait[reader];
    moved made = {wanted, *t, h->first_moved, trait->block, trait->is_backward};
    h->first_moved = p->moved.n;
    DS_PUSH(p->arena, &p->moved, made);
    return DS_OK;
}

/* ---- operations ---- */

/* It reads the product's operand, which is whole, and the gradient, which is split. */
static bool is_gradient_of_matrix(const plan *p, uint32_t op) {
    return p->f->model->problem.graph.op[op].result == DS_TAG_SUM || p->f->model->trait[op].is_term;
}

static ds_tag_lie wanted_lie(const plan *p, uint32_t op, uint32_t parent, bool columns) {
    const ds_tag_op *o = &p->f->model->problem.graph.op[parent];
    const ds_tag_trait *trait = &p->f->model->trait[op];
    ds_tag_way way = p->f->action[p->choice[p->f->model->problem.graph.op[op].group]].way;
    if (o->result != DS_TAG_SAMPLES) return DS_TAG_LIE_WHOLE;
    if (way == DS_TAG_DUPLICATE) return DS_TAG_LIE_WHOLE;
    if (!columns) return DS_TAG_LIE_SAMPLES;
    bool is_product = trait->reads_matrix && !trait->is_backward;
    bool is_operand = o->result == DS_TAG_SAMPLES && is_gradient_of_matrix(p, op) &&
                      !p->f->model->trait[parent].is_backward;
    if (is_product || is_operand || trait->reads_table) return DS_TAG_LIE_WHOLE;
    return DS_TAG_LIE_COLUMNS;
}

static ds_status read_parents(plan *p, uint32_t op, uint32_t site, bool columns, uint32_t *before) {
    const ds_tag_op *o = &p->f->model->problem.graph.op[op];
    for (uint32_t k = 0; k < o->n_parents; k++) {
        ds_tag_layout wanted =
            site * DS_TAG_N_LIES + (uint32_t)wanted_lie(p, op, o->parent[k], columns);
        DS_TRY(obtain(p, o->parent[k], op, wanted, &before[k]));
    }
    return DS_OK;
}

static void compute(plan *p, uint32_t op, uint32_t action, const uint32_t *before) {
    const ds_tag_fast *f = p->f;
    const ds_tag_op *o = &f->model->problem.graph.op[op];
    uint32_t n_ops = f->model->problem.graph.n_ops;
    uint64_t gpus = f->action[action].gpus;
    for (uint32_t m = 0; m < f->n_machines; m++) {
        if (!(ds_tag_gpus_of(&f->model->problem.cluster, UINT64_C(1) << m) & gpus)) continue;
        double us = f->us[((size_t)action * f->n_machines + m) * n_ops + op];
        uint32_t t = p->last[m];
        bool is_new = t == NONE || p->task.at[t].is_sealed;
        for (uint32_t k = 0; k < o->n_parents; k++) is_new |= before[k] != NONE;
        if (is_new) t = p->last[m] = add_task(p, (task){.stream = m});
        for (uint32_t k = 0; k < o->n_parents; k++) add_wait(p, t, before[k]);
        p->task.at[t].us += us;
        p->own[op * f->n_machines + m] = t;
        if (f->leaves[op] || f->action[action].way == DS_TAG_COLUMNS)
            p->task.at[t].is_sealed = true;
    }
}

static ds_status reduce_now(plan *p, uint32_t op, uint32_t site) {
    const ds_tag_price *price;
    DS_TRY(ds_tag__price_reduce(p->f->prices, site, &price, p->err));
    if (price->is_free) return DS_OK;
    uint32_t t = add_task(p, (task){.us = ds_tag__price_us(price, bytes_of(p, op)),
                                    .stream = stream_of(p, UINT64_C(1) << 40 | site),
                                    .price = price});
    wait_for_owners(p, t, op);
    p->home[op].task = t;
    return DS_OK;
}

static ds_status put_op(plan *p, uint32_t op) {
    const ds_tag_fast *f = p->f;
    const ds_tag_op *o = &f->model->problem.graph.op[op];
    const ds_tag_trait *trait = &f->model->trait[op];
    uint32_t action = p->choice[o->group], site = f->site_of[action];
    bool columns = has_columns(f, op, action);
    uint32_t *before = DS_NEW_N(p->arena, uint32_t, o->n_parents + 1);
    DS_TRY(read_parents(p, op, site, columns, before));
    ds_tag_lie lie = DS_TAG_LIE_WHOLE;
    if (o->result == DS_TAG_SAMPLES && f->action[action].way != DS_TAG_DUPLICATE)
        lie = columns ? DS_TAG_LIE_COLUMNS : DS_TAG_LIE_SAMPLES;
    bool is_term =
        columns && trait->reads_matrix && trait->is_backward && o->result == DS_TAG_SAMPLES;
    if (is_term) lie = DS_TAG_LIE_WHOLE;
    p->home[op] = (home){site * DS_TAG_N_LIES + (uint32_t)lie, NONE, NONE, false};
    if (o->n_parents > 0) compute(p, op, action, before);
    if (is_term) return reduce_now(p, op, site);
    bool is_sum = o->result == DS_TAG_SUM && !columns && f->action[action].way != DS_TAG_DUPLICATE;
    return is_sum && f->site[site].n > 1 ? put_in_bucket(p, op, site) : DS_OK;
}

/* ---- the run ---- */

typedef struct run {
    const plan *p;
    uint32_t n_streams;
    uint32_t *first, *next;       /* [stream]: the task at its head; [task]: the one behind it */
    uint32_t *follower, *n_first; /* tasks that wait, by the task that they wait for */
    uint32_t *waits;              /* [task] */
    double *left, *rate;          /* [stream]: microseconds alone of the task that runs */
    bool *runs;
    DS_VEC(uint32_t) active;
} run;

static void init_run(run *r, const plan *p) {
    uint32_t n = p->task.n, n_streams = p->f->n_machines + p->stream_key.n;
    ds_arena *a = p->arena;
    *r = (run){.p = p, .n_streams = n_streams};
    r->first = DS_NEW_N(a, uint32_t, n_streams);
    r->next = DS_NEW_N(a, uint32_t, n + 1);
    r->waits = DS_NEW_N(a, uint32_t, n + 1);
    r->n_first = DS_NEW_N(a, uint32_t, n + 2);
    r->follower = DS_NEW_N(a, uint32_t, p->waits.n + 1);
    r->left = DS_NEW_N(a, double, n_streams);
    r->rate = DS_NEW_N(a, double, n_streams);
    r->runs = DS_NEW_N(a, bool, n_streams);
    uint32_t *tail = DS_NEW_N(a, uint32_t, n_streams);
    for (uint32_t s = 0; s < n_streams; s++) r->first[s] = tail[s] = NONE;
    for (uint32_t t = 0; t < n; t++) {
        uint32_t s = p->task.at[t].stream;
        if (tail[s] == NONE)
            r->first[s] = t;
        else
            r->next[tail[s]] = t;
        tail[s] = t;
        r->next[t] = NONE;
        r->waits[t] = p->task.at[t].n_waits;
        for (uint32_t i = p->first_wait.at[t]; i != NONE; i = p->waits.at[i].before)
            r->n_first[p->waits.at[i].task + 2]++;
    }
    for (uint32_t t = 2; t < n + 2; t++) r->n_first[t] += r->n_first[t - 1];
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = p->first_wait.at[t]; i != NONE; i = p->waits.at[i].before)
            r->follower[r->n_first[p->waits.at[i].task + 1]++] = t;
}

/* Max-min over the shared links: all rates rise together, and stop where a link is full. */
static void share_links(run *r) {
    uint32_t n_links = r->p->f->prices->n_links, n_open = 0;
    double level = 0;
    bool open[256];
    for (uint32_t i = 0; i < r->active.n; i++) {
        uint32_t s = r->active.at[i];
        open[i] = r->p->task.at[r->first[s]].price != NULL && i < 256;
        r->rate[s] = open[i] ? 0 : 1;
        n_open += open[i];
    }
    while (n_open > 0) {
        double least = 1 - level;
        uint32_t full = NONE;
        for (uint32_t l = 0; l < n_links; l++) {
            double used = 0, rises = 0;
            for (uint32_t i = 0; i < r->active.n; i++) {
                uint32_t s = r->active.at[i];
                const ds_tag_price *price = r->p->task.at[r->first[s]].price;
                if (!price) continue;
                used += r->rate[s] * (double)price->use[l];
                if (open[i]) rises += (double)price->use[l];
            }
            if (rises > 1e-9 && (1 - used) / rises < least - 1e-12) {
                least = (1 - used) / rises;
                full = l;
            }
        }
        if (least < 0) least = 0;
        level += least;
        for (uint32_t i = 0; i < r->active.n; i++) {
            uint32_t s = r->active.at[i];
            if (!open[i]) continue;
            r->rate[s] += least;
            bool stops = full == NONE || r->p->task.at[r->first[s]].price->use[full] > 1e-9f;
            n_open -= stops;
            open[i] = !stops;
        }
    }
    for (uint32_t i = 0; i < r->active.n; i++)
        if (r->rate[r->active.at[i]] < 1e-3) r->rate[r->active.at[i]] = 1e-3;
}

static bool start(run *r, uint32_t s) {
    uint32_t t = r->first[s];
    if (t == NONE || r->runs[s] || r->waits[t] > 0) return false;
    r->runs[s] = true;
    r->rate[s] = 1;
    r->left[s] = r->p->task.at[t].us;
    DS_PUSH(r->p->arena, &r->active, s);
    return r->p->task.at[t].price != NULL;
}

static bool end(run *r, uint32_t i) {
    uint32_t s = r->active.at[i], t = r->first[s];
    bool changes = r->p->task.at[t].price != NULL;
    r->runs[s] = false;
    r->first[s] = r->next[t];
    r->active.at[i] = r->active.at[--r->active.n];
    for (uint32_t k = r->n_first[t]; k < r->n_first[t + 1]; k++)
        if (--r->waits[r->follower[k]] == 0)
            changes |= start(r, r->p->task.at[r->follower[k]].stream);
    return start(r, s) || changes;
}

static double run_tasks(const plan *p) {
    run r;
    double now = 0;
    init_run(&r, p);
    for (uint32_t s = 0; s < r.n_streams; s++) start(&r, s);
    share_links(&r);
    while (r.active.n > 0) {
        uint32_t first = 0;
        double least = INFINITY;
        for (uint32_t i = 0; i < r.active.n; i++) {
            double us = r.left[r.active.at[i]] / r.rate[r.active.at[i]];
            if (us >= least) continue;
            least = us;
            first = i;
        }
        for (uint32_t i = 0; i < r.active.n; i++)
            r.left[r.active.at[i]] -= least * r.rate[r.active.at[i]];
        now += least;
        if (end(&r, first)) share_links(&r);
    }
    return now;
}

/* ---- memory ---- */

/* A result is there from its operation to its last reader; a weight always. */
static void find_peak(const plan *p, ds_tag_estimate *out) {
    const ds_tag_fast *f = p->f;
    const ds_tag_graph *g = &f->model->problem.graph;
    double held[MOST_MACHINES] = {0}, peak[MOST_MACHINES] = {0};
    double *freed = DS_NEW_N(p->arena, double, (size_t)g->n_ops * f->n_machines);
    for (uint32_t op = 0; op < g->n_ops; op++) {
        uint32_t action = p->choice[g->op[op].group];
        const ds_tag_site *s = &f->site[f->site_of[action]];
        bool is_part =
            g->op[op].result == DS_TAG_SAMPLES && f->action[action].way != DS_TAG_DUPLICATE;
        bool columns = has_columns(f, op, action);
        for (uint32_t i = 0, before = NONE; i < s->n; i++) {
            uint32_t m = f->machine_of[s->gpu[i]];
            if (m == before) continue;
            before = m;
            double share = columns   ? 1.0 / s->n
                           : is_part ? (double)(s->lo[i + 1] - s->lo[i]) / (double)s->lo[s->n]
                                     : 1;
            double bytes = share * (double)g->op[op].result_bytes;
            held[m] += bytes;
            bool stays = g->op[op].n_parents == 0;
            if (!stays) freed[f->last_read[op] * f->n_machines + m] += bytes;
        }
        for (uint32_t m = 0; m < f->n_machines; m++) {
            if (held[m] > peak[m]) peak[m] = held[m];
            held[m] -= freed[op * f->n_machines + m];
        }
    }
    double fullest = -1;
    out->fits = true;
    for (uint32_t m = 0; m < f->n_machines; m++) {
        double part = peak[m] / (double)f->model->problem.cluster.machine[m].memory_bytes;
        if (part > 1) out->fits = false;
        if (part <= fullest) continue;
        fullest = part;
        out->peak_bytes = (int64_t)peak[m];
    }
}

/* ---- estimates ---- */

ds_status ds_tag_fast_estimate(const ds_tag_fast *f, const uint32_t *choice, ds_arena *arena,
                               ds_tag_estimate *out, ds_error *err) {
    uint32_t n_ops = f->model->problem.graph.n_ops;
    plan p = {.f = f, .choice = choice, .arena = arena, .err = err};
    p.home = DS_NEW_N(arena, home, n_ops + 1);
    p.own = DS_NEW_N(arena, uint32_t, (size_t)n_ops * f->n_machines + 1);
    memset(p.own, 0xff, (size_t)n_ops * f->n_machines * sizeof *p.own);
    memset(p.last, 0xff, sizeof p.last);
    *out = (ds_tag_estimate){0};
    for (uint32_t op = 0; op < n_ops; op++) DS_TRY(put_op(&p, op));
    DS_TRY(flush(&p));
    out->us = run_tasks(&p);
    find_peak(&p, out);
    return DS_OK;
}

double ds_tag_fast_value(double base_us, const ds_tag_estimate *e) {
    double v = base_us / e->us - 1;
    return !e->fits ? -1 : v > 1 ? sqrt(sqrt(v)) : v;
}

uint32_t ds_tag_fast_base(const ds_tag_fast *fast, double *us) {
    if (us) *us = fast->base_us;
    return fast->base;
}

/* ---- making ---- */

static void find_reads(ds_tag_fast *f) {
    const ds_tag_graph *g = &f->model->problem.graph;
    f->last_read = DS_NEW_N(&f->arena, uint32_t, g->n_ops + 1);
    f->leaves = DS_NEW_N(&f->arena, bool, g->n_ops + 1);
    for (uint32_t op = 0; op < g->n_ops; op++) {
        f->last_read[op] = op;
        f->leaves[op] = g->op[op].result == DS_TAG_SUM;
        for (uint32_t k = 0; k < g->op[op].n_parents; k++) {
            uint32_t parent = g->op[op].parent[k];
            f->last_read[parent] = op;
            f->leaves[parent] |= g->op[op].group != g->op[parent].group;
        }
    }
}

static ds_status fill(ds_tag_fast *f, ds_error *err) {
    const ds_tag_cluster *c = &f->model->problem.cluster;
    if (c->n_machines > 8)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%u machines: a tree search takes up to 8", c->n_machines);
    f->n_machines = c->n_machines;
    f->machine_of = DS_NEW_N(&f->arena, uint32_t, DS_TAG_MAX_GPUS);
    for (uint32_t m = 0, gpu = 0; m < c->n_machines; m++)
        for (uint32_t i = 0; i < c->machine[m].n_gpus; i++) f->machine_of[gpu++] = m;
    add_actions(f);
    find_durations(f);
    find_reads(f);
    f->prices = DS_NEW(&f->arena, ds_tag_prices);
    ds_tag__prices_init(f->prices, f->model, f->site, f->n_sites);
    ds_arena arena;
    ds_arena_init(&arena);
    ds_tag_estimate e;
    uint32_t *choice = DS_NEW_N(&arena, uint32_t, f->model->problem.graph.n_groups + 1);
    ds_status status = ds_tag_fast_estimate(f, choice, &arena, &e, err);
    f->base_us = e.us;
    ds_arena_deinit(&arena);
    return status;
}

ds_status ds_tag_fast_new(const ds_tag_model *model, ds_tag_fast **out, ds_error *err) {
    ds_tag_fast *f = ds_xcalloc(1, sizeof *f);
    f->model = model;
    ds_arena_init(&f->arena);
    ds_status status = fill(f, err);
    *out = f;
    if (status) {
        ds_tag_fast_free(f);
        *out = NULL;
    }
    return status;
}

void ds_tag_fast_free(ds_tag_fast *fast) {
    if (!fast) return;
    if (fast->prices) ds_tag__prices_deinit(fast->prices);
    ds_arena_deinit(&fast->arena);
    free(fast);
}
