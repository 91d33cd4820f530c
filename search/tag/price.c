/* Prices are asked of sim/coll, once for each pair of layouts and each of a few sizes. A move is a
 * reshard: what a GPU wants and lacks comes in pieces, a piece from one of the GPUs that have it. */
#include "search/tag/price.h"

#include "sim/coll/coll.h"
#include "sim/coll/reshard.h"

#include <stdlib.h>
#include <string.h>

static const int64_t sizes[DS_TAG_N_SIZES] = {1 << 12, 1 << 20, 1 << 28};

/* ---- pieces ---- */

/* A box of the tensor in parts of the whole: rows are samples, columns are columns. */
typedef struct box {
    double row[2], column[2];
} box;

static box box_of(const ds_tag_prices *p, ds_tag_layout layout, uint32_t i) {
    const ds_tag_site *s = &p->site[layout / DS_TAG_N_LIES];
    box b = {{0, 1}, {0, 1}};
    double batch = (double)s->lo[s->n];
    if (layout % DS_TAG_N_LIES == DS_TAG_LIE_SAMPLES) {
        b.row[0] = (double)s->lo[i] / batch;
        b.row[1] = (double)s->lo[i + 1] / batch;
    } else if (layout % DS_TAG_N_LIES == DS_TAG_LIE_COLUMNS) {
        b.column[0] = (double)i / s->n;
        b.column[1] = (double)(i + 1) / s->n;
    }
    return b;
}

static double common(const double a[2], const double b[2]) {
    double lo = a[0] > b[0] ? a[0] : b[0], hi = a[1] < b[1] ? a[1] : b[1];
    return hi - lo > 1e-9 ? hi - lo : 0;
}

static double area(const box *a, const box *b) {
    return common(a->row, b->row) * common(a->column, b->column);
}

typedef struct mover {
    const ds_tag_prices *p;
    ds_arena *arena;
    ds_tag_layout from, to;
    uint32_t device[2 * DS_TAG_MAX_GPUS], n_devices;
    DS_VEC(ds_reshard_piece) pieces;
    double part[2 * DS_TAG_MAX_GPUS * DS_TAG_MAX_GPUS];
} mover;

static uint32_t member(mover *m, uint32_t gpu) {
    uint32_t device = m->p->model->device[gpu], i = 0;
    while (i < m->n_devices && m->device[i] != device) i++;
    if (i == m->n_devices) m->device[m->n_devices++] = device;
    return i;
}

/* The receivers of a sender's box, or of a box that all of `to` want alike. */
static void add_piece(mover *m, const uint32_t *sender, uint32_t n_senders, uint32_t receiver,
                      double part) {
    ds_reshard_piece piece = {.senders = sender, .n_senders = n_senders, .n_terms = 1};
    for (uint32_t i = 0; i < m->pieces.n; i++) { /* the same box for another receiver */
        ds_reshard_piece *x = &m->pieces.at[i];
        bool is_same =
            x->senders == sender && m->part[i] == part && m->to % DS_TAG_N_LIES == DS_TAG_LIE_WHOLE;
        if (!is_same) continue;
        ((uint32_t *)x->receivers)[x->n_receivers++] = receiver;
        return;
    }
    uint32_t *receivers = DS_NEW_N(m->arena, uint32_t, DS_TAG_MAX_GPUS);
    receivers[0] = receiver;
    piece.receivers = receivers;
    piece.n_receivers = 1;
    m->part[m->pieces.n] = part;
    DS_PUSH(m->arena, &m->pieces, piece);
}

static void find_pieces(mover *m) {
    const ds_tag_site *a = &m->p->site[m->from / DS_TAG_N_LIES];
    const ds_tag_site *b = &m->p->site[m->to / DS_TAG_N_LIES];
    bool is_whole = m->from % DS_TAG_N_LIES == DS_TAG_LIE_WHOLE;
    uint32_t *senders = DS_NEW_N(m->arena, uint32_t, a->n);
    for (uint32_t i = 0; i < a->n; i++) senders[i] = member(m, a->gpu[i]);
    for (uint32_t k = 0; k < b->n; k++) {
        uint32_t receiver = member(m, b->gpu[k]), own = 0;
        box want = box_of(m->p, m->to, k), have = {{0, 0}, {0, 0}};
        while (own < a->n && a->gpu[own] != b->gpu[k]) own++;
        if (own < a->n) have = box_of(m->p, m->from, own);
        double lacks = area(&want, &want) - area(&want, &have);
        if (lacks < 1e-9) continue;
        if (is_whole) {
            add_piece(m, senders, a->n, receiver, lacks);
            continue;
        }
        for (uint32_t i = 0; i < a->n; i++) {
            box has = box_of(m->p, m->from, i);
            double part = area(&want, &has);
            if (i != own && part > 0) add_piece(m, &senders[i], 1, receiver, part);
        }
    }
}

/* ---- one size ---- */

typedef struct asked {
    ds_coll_request request;
    ds_coll_choice choice;
    double *load; /* [link of the topology]: bytes */
} asked;

static ds_status ask(ds_tag_prices *p, asked *a, ds_arena *arena, double *us, ds_error *err) {
    ds_topo *topo = p->model->topo;
    ds_coll_links links;
    ds_coll_cost terms;
    ds_phase *phases;
    uint32_t n_phases;
    DS_TRY(ds_coll_links_of(topo, &a->request, &links, err));
    ds_coll_demand demand = {ds_op_name(a->request.op), a->request.n, a->request.bytes, links};
    DS_TRY(ds_cost_collective(p->model->profiles, p->model->profile, &demand, &terms, NULL, err));
    DS_TRY(ds_coll_choose(topo, &a->request, &terms, arena, &a->choice, err));
    *us = (double)a->choice.ps * 1e-6;
    DS_TRY(ds_coll_phases(topo, &a->request, a->choice.algorithm, arena, &phases, &n_phases, err));
    a->load = DS_NEW_N(arena, double, ds_topo_n_links(topo) + 1);
    for (uint32_t i = 0; i < n_phases; i++)
        for (uint32_t l = 0; l < phases[i].n_loads; l++)
            a->load[phases[i].loads[l].link] += (double)phases[i].loads[l].bytes_q32 / 4294967296.0;
    return DS_OK;
}

static void find_use(ds_tag_prices *p, const asked *a, double us, ds_tag_price *price) {
    price->use = DS_NEW_N(&p->arena, float, p->n_links + 1);
    for (uint32_t l = 0; l < ds_topo_n_links(p->model->topo) && us > 0; l++) {
        double rate = (double)ds_topo_link_at(p->model->topo, l)->bytes_per_s * 1e-6;
        double use = a->load[l] / rate / us;
        float *most = &price->use[p->number[l]];
        if (use > (double)*most) *most = (float)(use < 1 ? use : 1);
    }
}

static ds_status move_alone(ds_tag_prices *p, ds_tag_layout from, ds_tag_layout to,
                            ds_tag_price *price, ds_error *err) {
    for (uint32_t i = 0; i < DS_TAG_N_SIZES; i++) {
        ds_arena arena;
        ds_arena_init(&arena);
        mover *m = DS_NEW(&arena, mover);
        m->p = p;
        m->arena = &arena;
        m->from = from;
        m->to = to;
        find_pieces(m);
        ds_reshard reshard = {.balance = DS_BALANCE_SIZE, .n_pieces = m->pieces.n};
        for (uint32_t k = 0; k < m->pieces.n; k++)
            m->pieces.at[k].bytes = (int64_t)(m->part[k] * (double)sizes[i]) + 1;
        reshard.pieces = m->pieces.at;
        ds_reshard_finish(&reshard, &arena);
        asked a = {.request = {.op = DS_OP_RESHARD,
                               .devices = m->device,
                               .n = m->n_devices,
                               .bytes = sizes[i],
                               .reshard = &reshard}};
        price->is_free = m->pieces.n == 0;
        ds_status status = price->is_free ? DS_OK : ask(p, &a, &arena, &price->us[i], err);
        if (!status && !price->is_free && i + 1 == DS_TAG_N_SIZES)
            find_use(p, &a, price->us[i], price);
        ds_arena_deinit(&arena);
        DS_TRY(status);
    }
    return DS_OK;
}

static ds_status reduce_alone(ds_tag_prices *p, uint32_t site, ds_tag_price *price, ds_error *err) {
    const ds_tag_site *s = &p->site[site];
    uint32_t device[DS_TAG_MAX_GPUS];
    price->is_free = s->n < 2;
    for (uint32_t i = 0; i < s->n; i++) device[i] = p->model->device[s->gpu[i]];
    for (uint32_t i = 0; i < DS_TAG_N_SIZES && !price->is_free; i++) {
        ds_arena arena;
        ds_arena_init(&arena);
        asked a = {
            .request = {.op = DS_OP_ALL_REDUCE, .devices = device, .n = s->n, .bytes = sizes[i]}};
        ds_status status = ask(p, &a, &arena, &price->us[i], err);
        if (!status && i + 1 == DS_TAG_N_SIZES) find_use(p, &a, price->us[i], price);
        ds_arena_deinit(&arena);
        DS_TRY(status);
    }
    return DS_OK;
}

/* ---- the table ---- */

ds_status ds_tag__price_move(ds_tag_prices *p, ds_tag_layout from, ds_tag_layout to,
                             const ds_tag_price **out, ds_error *err) {
    ds_tag_price **known = &p->move[from * p->n_sites * DS_TAG_N_LIES + to];
    ds_status status = DS_OK;
    pthread_mutex_lock(&p->lock);
    if (!*known) {
        ds_tag_price *made = DS_NEW(&p->arena, ds_tag_price);
        status = move_alone(p, from, to, made, err);
        if (!status) *known = made;
    }
    *out = *known;
    pthread_mutex_unlock(&p->lock);
    return status;
}

ds_status ds_tag__price_reduce(ds_tag_prices *p, uint32_t site, const ds_tag_price **out,
                               ds_error *err) {
    ds_status status = DS_OK;
    pthread_mutex_lock(&p->lock);
    if (!p->reduce[site]) {
        ds_tag_price *made = DS_NEW(&p->arena, ds_tag_price);
        status = reduce_alone(p, site, made, err);
        if (!status) p->reduce[site] = made;
    }
    *out = p->reduce[site];
    pthread_mutex_unlock(&p->lock);
    return status;
}

double ds_tag__price_us(const ds_tag_price *price, double bytes) {
    if (price->is_free || bytes <= 0) return 0;
    if (bytes <= (double)sizes[0]) return price->us[0];
    uint32_t i = 0;
    while (i + 2 < DS_TAG_N_SIZES && bytes > (double)sizes[i + 1]) i++;
    double slope = (price->us[i + 1] - price->us[i]) / (double)(sizes[i + 1] - sizes[i]);
    return price->us[i] + (bytes - (double)sizes[i]) * slope;
}

/* The machine of the device at a vertex. */
static uint32_t machine_at(const ds_tag_model *model, uint32_t vertex) {
    const ds_tag_cluster *c = &model->problem.cluster;
    if (ds_topo_vertex_kind(model->topo, vertex) != DS_NODE_DEVICE) return DS_TAG_NOWHERE;
    uint32_t device = ds_topo_device_at(model->topo, vertex);
    for (uint32_t m = 0, gpu = 0; m < c->n_machines; m++)
        for (uint32_t i = 0; i < c->machine[m].n_gpus; i++, gpu++)
            if (model->device[gpu] == device) return m;
    return DS_TAG_NOWHERE;
}

void ds_tag__prices_init(ds_tag_prices *p, const ds_tag_model *model, const ds_tag_site *site,
                         uint32_t n_sites) {
    uint32_t n_layouts = n_sites * DS_TAG_N_LIES, n = ds_topo_n_links(model->topo);
    *p = (ds_tag_prices){.model = model, .site = site, .n_sites = n_sites};
    ds_arena_init(&p->arena);
    pthread_mutex_init(&p->lock, NULL);
    p->move = ds_arena_calloc(&p->arena, n_layouts * n_layouts + 1, sizeof(ds_tag_price *));
    p->reduce = ds_arena_calloc(&p->arena, n_sites + 1, sizeof(ds_tag_price *));
    p->number = DS_NEW_N(&p->arena, uint32_t, n + 1);
    p->n_links = 2 * model->problem.cluster.n_machines;
    for (uint32_t l = 0; l < n; l++) {
        const ds_topo_link *link = ds_topo_link_at(model->topo, l);
        uint32_t m = machine_at(model, link->from), into = machine_at(model, link->to);
        p->number[l] = m != DS_TAG_NOWHERE      ? 2 * m
                       : into != DS_TAG_NOWHERE ? 2 * into + 1
                                                : p->n_links++;
    }
}

void ds_tag__prices_deinit(ds_tag_prices *p) {
    pthread_mutex_destroy(&p->lock);
    ds_arena_deinit(&p->arena);
}
