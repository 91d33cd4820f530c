/* Which algorithm a collective has, its phases, and what they take. */
#include "sim/coll/coll.h"

#include "ir/base/units.h"
#include "ir/ops/ops.h"
#include "sim/coll/internal.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of collectives, and what a line of ir/ops/algorithms.def says of them. */
typedef enum kind {
    ALL_REDUCE,
    ALL_GATHER,
    ALL_TO_ALL,
    BROADCAST,
    GATHER,
    MOVE,
    RESHARD,
    N_KINDS
} kind;
typedef enum cell { NO, VIA, HAS, BEST } cell;

typedef struct entry {
    const char *name;
    ds_status (*build)(ds_coll_builder *b);
    cell cells[N_KINDS];
} entry;

static const entry algorithms[] = {
#define X(function, name, ...) {name, ds_coll__##function##_algorithm, {__VA_ARGS__}},
    DS_ALGORITHMS(X)
#undef X
};
#define N_ALGORITHMS (sizeof algorithms / sizeof *algorithms)
#define FASTEST      "fastest"

static kind kind_of(ds_opcode code) {
    switch (code) {
    case DS_OP_ALL_REDUCE:
        return ALL_REDUCE;
    case DS_OP_ALL_GATHER:
    case DS_OP_REDUCE_SCATTER:
        return ALL_GATHER;
    case DS_OP_ALL_TO_ALL:
        return ALL_TO_ALL;
    case DS_OP_BROADCAST:
    case DS_OP_REDUCE:
        return BROADCAST;
    case DS_OP_GATHER:
    case DS_OP_SCATTER:
        return GATHER;
    case DS_OP_RESHARD:
        return RESHARD;
    default:
        return MOVE;
    }
}

ds_status ds_coll__build(ds_coll_builder *b, const char *name) {
    for (size_t i = 0; i < N_ALGORITHMS; i++)
        if (strcmp(algorithms[i].name, name) == 0 &&
            algorithms[i].cells[kind_of(b->request->op)] >= HAS)
            return algorithms[i].build(b);
    if (b->request->op == DS_OP_RESHARD)
        return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc,
                            "reshard has \"%s\" where it is one collective inside one mesh alone; "
                            "here it has send_recv, send_recv_gather and broadcast",
                            name);
    return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc, "%s has no algorithm \"%s\"",
                        ds_op_name(b->request->op), name);
}

const char *ds_coll_algorithm(uint32_t i) {
    return i < N_ALGORITHMS ? algorithms[i].name : NULL;
}

void ds_coll__deinit(ds_coll_builder *b) {
    if (b->place) ds_topo_give_numbers(b->topo);
    ds_map_deinit(&b->slot);
    free(b->loads.at);
    free(b->hops.at);
    free(b->parts.at);
}

ds_status ds_coll__too_long(const ds_coll_request *q, ds_error *err) {
    return ds_error_set(err, DS_ERR_OVERFLOW, q->loc,
                        "%s of %lld bytes over %u takes longer than 106 days, the range of int64 "
                        "picoseconds",
                        ds_op_name(q->op), (long long)q->bytes, q->n);
}

/* ---- chunks ---- */

static int64_t step_ps(const ds_coll_builder *b) {
    return b->terms ? b->terms->step_ps : 0;
}

/* What a phase waits; DS_NEVER_PS beyond. Fewer than 2^33 steps: 2^98 at most. */
static int64_t wait_of(const ds_coll_builder *b, const ds_phase *phase) {
    ds_i128 alpha_ps = (ds_i128)phase->alpha_ps + step_ps(b);
    return ds_ps_narrow(phase->steps * alpha_ps + phase->more_ps);
}

/* What `times` slots take in which the phases first … last work on different chunks: the longest
 * wait and the slowest link of what a chunk has in them. */
static int64_t slots_ps(ds_coll_builder *b, const ds_phase *chunk, uint32_t first, uint32_t last,
                        int64_t times) {
    int64_t wait_ps = 0, flow_ps = 0, ps;
    for (uint32_t p = first; p <= last; p++) {
        ds_coll__add_loads(b, &chunk[p]);
        ps = wait_of(b, &chunk[p]);
        if (ps > wait_ps) wait_ps = ps;
    }
    for (uint32_t i = 0; i < b->loads.n; i++) {
        ps = ds_load_ps(b->topo, &b->loads.at[i], b->terms->efficiency_q32);
        if (ps > flow_ps) flow_ps = ps;
    }
    ds_coll__clear_loads(b);
    return ds_ps_narrow(((ds_i128)wait_ps + flow_ps) * times);
}

/* The same phases for one chunk. */
static ds_status phases_of_chunk(ds_coll_builder *b, const char *name, ds_phase **out) {
    const ds_coll_request *whole = b->request;
    ds_coll_request part = *whole;
    int64_t *shard = DS_NEW_N(b->arena, int64_t, whole->n);
    part.bytes = whole->bytes / whole->chunks;
    for (uint32_t i = 0; i < whole->n && whole->shard_bytes; i++)
        shard[i] = whole->shard_bytes[i] / whole->chunks;
    if (whole->shard_bytes) part.shard_bytes = shard;
    b->request = &part;
    b->phases.at = NULL;
    b->phases.n = b->phases.cap = 0;
    ds_status status = ds_coll__build(b, name);
    b->request = whole;
    *out = b->phases.at;
    return status;
}

/* Phases in c chunks: in slot s phase p works on chunk s − p, all at once. */
static int64_t all_slots_ps(ds_coll_builder *b, const ds_phase *chunk, uint32_t n) {
    int64_t chunks = b->request->chunks, sum_ps = 0;
    for (int64_t s = 0; s < n + chunks - 1; s++) {
        int64_t first = s < chunks ? 0 : s - chunks + 1, last = s < n ? s : n - 1;
        bool full = first == 0 && last == n - 1; /* these slots are all alike */
        int64_t times = full ? chunks - n + 1 : 1;
        sum_ps = ds_ps_sum(sum_ps, slots_ps(b, chunk, (uint32_t)first, (uint32_t)last, times));
        s += times - 1;
    }
    return sum_ps;
}

/* All phases as one, of as much wait as slots take beyond the flow of all bytes. */
static ds_status pipeline(ds_coll_builder *b, const char *name) {
    uint32_t n = b->phases.n;
    if (b->request->chunks < 2 || n < 2) return DS_OK;
    ds_phase *phases = b->phases.at, *chunk;
    int64_t steps = 0, alpha_ps = 0, weight = 1, ps = 0, flow_ps;
    if (b->terms) {
        DS_TRY(phases_of_chunk(b, name, &chunk));
        ps = all_slots_ps(b, chunk, n);
    }
    for (uint32_t p = 0; p < n; p++) {
        ds_coll__add_loads(b, &phases[p]);
        if (phases[p].weight > weight) weight = phases[p].weight;
        if (phases[p].alpha_ps > alpha_ps) alpha_ps = phases[p].alpha_ps;
        steps += phases[p].steps;
    }
    const ds_coll_cost *terms = b->terms;
    b->phases.at = NULL;
    b->phases.n = b->phases.cap = 0;
    b->alpha_ps = alpha_ps;
    b->terms = NULL; /* timed already */
    ds_coll__end_phase(b, steps, weight);
    b->terms = terms;
    if (!terms) return DS_OK;
    ds_phase *all = &b->phases.at[0], flow = *all;
    flow.steps = 0;
    DS_TRY(ds_phase_alone_ps(b->topo, &flow, terms->efficiency_q32, &flow_ps, b->err));
    int64_t wait_ps = wait_of(b, all);
    if (ps == DS_NEVER_PS || wait_ps == DS_NEVER_PS) return ds_coll__too_long(b->request, b->err);
    all->more_ps = ps > flow_ps ? ps - flow_ps - wait_ps : -wait_ps;
    b->uneven = true; /* phases overlap further than slots say */
    b->least_ps = b->most_ps = ps > flow_ps ? ps : flow_ps;
    b->n_messages *= (uint64_t)b->request->chunks / 2 + 1;
    return DS_OK;
}

/* With terms: the phases' times alone, too. */
static ds_status make_phases(ds_coll_builder *b, const char *name) {
    const ds_coll_request *q = b->request;
    bool moves = q->n > 1 || ds_op_desc_of(q->op)->flags & DS_OPF_HOST;
    const ds_coll_cost *terms = b->terms;
    if (!moves) return DS_OK;
    if (q->op == DS_OP_RESHARD) b->terms = NULL; /* no bounds: bytes and senders are uneven */
    DS_TRY(ds_coll__build(b, name));
    if (q->op != DS_OP_RESHARD) return pipeline(b, name);
    b->terms = terms;
    b->unsure = true;
    return DS_OK;
}

ds_status ds_coll_phases(ds_topo *topo, const ds_coll_request *request, const char *name,
                         ds_arena *arena, ds_phase **phases, uint32_t *n_phases, ds_error *err) {
    ds_coll_builder b = {.topo = topo, .request = request, .arena = arena, .err = err};
    ds_status status = make_phases(&b, name);
    *phases = b.phases.at;
    *n_phases = b.phases.n;
    ds_coll__deinit(&b);
    return status;
}

/* ---- times and choice ---- */

/* One phase's times; adds them to *total. */
static ds_status phase_time(ds_topo *topo, const ds_coll_request *request, ds_phase *phase,
                            const ds_coll_cost *terms, ds_phase_time *out, int64_t *total,
                            ds_error *err) {
    int64_t all_ps;
    phase->alpha_ps = ds_ps_sum(phase->alpha_ps, terms->step_ps);
    DS_TRY(ds_phase_alone_ps(topo, phase, terms->efficiency_q32, &all_ps, err));
    *total = ds_ps_sum(*total, all_ps);
    if (*total == DS_NEVER_PS) return ds_coll__too_long(request, err);
    out->wait_ps = phase->steps * phase->alpha_ps + phase->more_ps;
    out->flow_ps = all_ps - out->wait_ps;
    out->most_q32 = ds_phase_most_bytes_q32(phase);
    return DS_OK;
}

/* Groups with more messages are timed by closed forms alone; a pipeline in chunks is one that the
 * program asks for. */
#define MOST_REHEARSED           (1 << 14)
#define MOST_REHEARSED_IN_CHUNKS (1 << 16)

static bool is_unsure(const ds_coll_builder *b) {
    if (!b->terms || !b->n_messages) return false;
    if (b->uneven && (b->phases.n > 1 || b->request->chunks > 1)) return true;
    return b->unsure || b->most_ps - b->least_ps > b->least_ps / DS_COLL_CLOSE;
}

/* The time that its messages take. Of too many, an eighth of the way up between the bounds: those
 * of rings through 8 and 12 nodes take 0 to 15 % of it (tests/sim/net/test_stepwise.c). */
static ds_status time_messages(ds_coll_builder *b, const char *algorithm, int64_t *ps) {
    bool in_chunks = b->request->chunks > 1 || b->request->op == DS_OP_RESHARD;
    uint64_t most = in_chunks ? MOST_REHEARSED_IN_CHUNKS : MOST_REHEARSED;
    if (b->n_messages <= most)
        return ds_coll__rehearse(b->topo, b->request, algorithm, b->terms, ps, b->err);
    *ps = b->least_ps + (b->most_ps - b->least_ps) / 8;
    return DS_OK;
}

/* The part of `whole` that belongs to `of` when `sum` does to it. */
static int64_t in_proportion(int64_t whole, int64_t of, int64_t sum) {
    return sum ? (int64_t)((ds_i128)whole * of / sum) : 0;
}

/* The phases take as long as the messages. What these take beyond the flows is waited, by each
 * phase in proportion to its wait so far. Where members are through with phases at different times
 * messages may take less than the flows: these get shorter, in proportion. */
static ds_status fit_to_messages(ds_coll_builder *b, const char *algorithm, ds_coll_choice *out) {
    int64_t ps, flows_ps = 0, waits_ps = 0;
    DS_TRY(time_messages(b, algorithm, &ps));
    for (uint32_t i = 0; i < out->n_phases; i++) {
        flows_ps += out->phases[i].flow_ps;
        waits_ps += out->phases[i].wait_ps;
    }
    int64_t flow_left_ps = ps < flows_ps ? ps : flows_ps, wait_left_ps = ps - flow_left_ps;
    out->ps = ds_ps_sum(out->ps - flows_ps - waits_ps, ps);
    if (out->ps == DS_NEVER_PS) return ds_coll__too_long(b->request, b->err);
    for (uint32_t i = 0; i < out->n_phases; i++) {
        ds_phase_time *t = &out->phases[i];
        bool last = i + 1 == out->n_phases;
        int64_t wait_ps = last ? wait_left_ps : in_proportion(wait_left_ps, t->wait_ps, waits_ps);
        int64_t flow_ps = last ? flow_left_ps : in_proportion(flow_left_ps, t->flow_ps, flows_ps);
        waits_ps -= t->wait_ps;
        flows_ps -= t->flow_ps;
        if (flow_ps < t->flow_ps)
            t->most_q32 = t->most_q32 / (uint64_t)t->flow_ps * (uint64_t)flow_ps;
        t->wait_ps = wait_ps;
        t->flow_ps = flow_ps;
        wait_left_ps -= wait_ps;
        flow_left_ps -= flow_ps;
    }
    return DS_OK;
}

/* Do closed forms say of one phase that its messages take longer than `most_ps`? By a thousandth at
 * least, which is more than times are rounded by. */
static bool is_slower(const ds_coll_builder *b, int64_t most_ps) {
    if (b->uneven || b->phases.n != 1) return false;
    int64_t least_ps = ds_ps_sum(b->terms->launch_ps, b->least_ps);
    return least_ps - least_ps / 1000 > most_ps;
}

/* out->ps: what is clearly slower need not be rehearsed, and gets DS_NEVER_PS. */
static ds_status choose_this(ds_topo *topo, const ds_coll_request *request,
                             const ds_coll_cost *terms, const char *algorithm, ds_arena *arena,
                             ds_coll_choice *out, ds_error *err) {
    int64_t most_ps = out->ps;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_coll_builder b = {
        .topo = topo, .request = request, .arena = &scratch, .err = err, .terms = terms};
    *out = (ds_coll_choice){.algorithm = algorithm, .ps = terms->launch_ps};
    ds_status status = make_phases(&b, algorithm);
    out->n_phases = b.phases.n;
    if (status == DS_OK) out->phases = DS_NEW_N(arena, ds_phase_time, b.phases.n);
    for (uint32_t i = 0; i < b.phases.n && status == DS_OK; i++)
        status = phase_time(topo, request, &b.phases.at[i], terms, &out->phases[i], &out->ps, err);
    if (status == DS_OK && b.most_ps == DS_NEVER_PS) status = ds_coll__too_long(request, err);
    bool is_timed = status == DS_OK && is_unsure(&b);
    if (is_timed && is_slower(&b, most_ps))
        out->ps = DS_NEVER_PS;
    else if (is_timed)
        status = fit_to_messages(&b, algorithm, out);
    ds_coll__at_request(&b, status);
    ds_coll__deinit(&b);
    ds_arena_deinit(&scratch);
    return status;
}

bool ds_coll__is_passed_over(ds_status status) {
    return status == DS_ERR_UNSUPPORTED || status == DS_ERR_UNREACHABLE;
}

bool ds_coll__says_more(ds_status status, ds_status than) {
    if (status == DS_OK || than == DS_OK) return status != DS_OK;
    return !ds_coll__is_passed_over(status) ||
           (status == DS_ERR_UNREACHABLE && than == DS_ERR_UNSUPPORTED);
}

uint32_t ds_coll_candidates(const ds_coll_request *request, const char **names) {
    uint32_t n = 0;
    bool all = request->algorithm && strcmp(request->algorithm, FASTEST) == 0;
    if (request->algorithm && !all) {
        names[n++] = request->algorithm;
        return n;
    }
    for (size_t i = 0; i < N_ALGORITHMS; i++)
        if (algorithms[i].cells[kind_of(request->op)] >= (all ? HAS : BEST))
            names[n++] = algorithms[i].name;
    return n;
}

ds_status ds_coll_choose(ds_topo *topo, const ds_coll_request *request, const ds_coll_cost *terms,
                         ds_arena *arena, ds_coll_choice *out, ds_error *err) {
    const char *names[DS_COLL_MOST_ALGORITHMS];
    uint32_t n = ds_coll_candidates(request, names);
    bool found = false;
    ds_status why = DS_OK;
    ds_error said = {0};
    for (uint32_t i = n; i-- > 0;) { /* trees, of few messages, come behind rings */
        ds_coll_choice this_one = {.ps = found ? out->ps : DS_NEVER_PS};
        ds_error refusal = {0};
        ds_status status = choose_this(topo, request, terms, names[i], arena, &this_one, &refusal);
        if (status != DS_OK && !ds_coll__says_more(why, status)) {
            why = status;
            said = refusal;
        }
        if (status != DS_OK && !ds_coll__is_passed_over(status)) break;
        if (status != DS_OK) continue;
        if (!found || this_one.ps <= out->ps) *out = this_one; /* of equal ones the first */
        found = true;
    }
    if (found && ds_coll__is_passed_over(why)) why = DS_OK;
    if (why != DS_OK && err) *err = said;
    return why;
}

double ds_coll_bus_factor(ds_opcode op, double n) {
    if (op == DS_OP_ALL_REDUCE) return 2 * (n - 1) / n;
    if (op == DS_OP_ALL_GATHER || op == DS_OP_REDUCE_SCATTER || op == DS_OP_ALL_TO_ALL ||
        op == DS_OP_SCATTER || op == DS_OP_GATHER)
        return (n - 1) / n;
    return 1;
}
