/* Which algorithm a collective has, its phases, and what they take. */
#include "sim/coll/coll.h"

#include "ir/base/units.h"
#include "ir/ops/ops.h"
#include "sim/coll/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *name;
    ds_status (*build)(ds_coll_builder *b);
    uint32_t ops;        /* that have it */
    uint32_t candidates; /* of these, where it competes if the program names none */
} entry;

/* Sets of collectives. */
#define COLLECTIVES(X)                                                                             \
    X(ALL_REDUCE)                                                                                  \
    X(ALL_GATHER)                                                                                  \
    X(REDUCE_SCATTER)                                                                              \
    X(ALL_TO_ALL)                                                                                  \
    X(BROADCAST) X(SCATTER) X(GATHER) X(REDUCE) X(SEND) X(PERMUTE) X(OFFLOAD) X(RELOAD) X(RESHARD)
enum {
#define X(op) INDEX_##op,
    COLLECTIVES(X)
#undef X
};
#define HAS(op) (1u << INDEX_##op)
#define SUMS    (HAS(ALL_REDUCE) | HAS(REDUCE_SCATTER))
#define LEVELS  (SUMS | HAS(ALL_GATHER))
#define ROOTED  (HAS(BROADCAST) | HAS(REDUCE))
#define STARS   (HAS(GATHER) | HAS(SCATTER))
#define MOVES   (HAS(SEND) | HAS(PERMUTE) | HAS(ALL_TO_ALL) | HAS(OFFLOAD) | HAS(RELOAD))

/* Of equal times the first wins. What competes is what NCCL chooses from; the others are slower
 * there for reasons that bytes and latencies do not show, or are not in it. */
static const entry algorithms[] = {
    {"ring", ds_coll__ring_algorithm, LEVELS | ROOTED, LEVELS | ROOTED},
    {"tree", ds_coll__tree_algorithm, HAS(ALL_REDUCE) | ROOTED | STARS, HAS(ALL_REDUCE) | ROOTED},
    {"direct", ds_coll__direct_algorithm, LEVELS | ROOTED | STARS | MOVES, STARS | MOVES},
    {"switch", ds_coll__switch_algorithm, LEVELS | ROOTED, LEVELS | ROOTED},
    {"halving_doubling", ds_coll__halving_algorithm, LEVELS, 0},
    {"hierarchical", ds_coll__hierarchical_algorithm, LEVELS, 0},
    {"pxn", ds_coll__pxn_algorithm, HAS(ALL_TO_ALL), HAS(ALL_TO_ALL)},
    {"collectives", ds_coll__collectives_algorithm, HAS(RESHARD), HAS(RESHARD)},
    {"send_recv", ds_coll__send_recv_algorithm, HAS(RESHARD), HAS(RESHARD)},
    {"send_recv_gather", ds_coll__send_recv_gather_algorithm, HAS(RESHARD), HAS(RESHARD)},
    {"broadcast", ds_coll__broadcast_algorithm, HAS(RESHARD), HAS(RESHARD)},
};
#define N_ALGORITHMS (sizeof algorithms / sizeof *algorithms)
#define FASTEST      "fastest"

static bool is_in(ds_opcode code, uint32_t set) {
    switch (code) {
#define X(op)                                                                                      \
    case DS_OP_##op:                                                                               \
        return set & HAS(op);
        COLLECTIVES(X)
#undef X
    default:
        return false;
    }
}

ds_status ds_coll__build(ds_coll_builder *b, const char *name) {
    for (size_t i = 0; i < N_ALGORITHMS; i++)
        if (strcmp(algorithms[i].name, name) == 0 && is_in(b->request->op, algorithms[i].ops))
            return algorithms[i].build(b);
    return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc, "%s has no algorithm \"%s\"",
                        ds_op_name(b->request->op), name);
}

const char *ds_coll_algorithm(uint32_t i) {
    return i < N_ALGORITHMS ? algorithms[i].name : NULL;
}

void ds_coll__deinit(ds_coll_builder *b) {
    ds_map_deinit(&b->slot);
    free(b->loads.at);
}

/* ---- chunks ---- */

/* Adds the loads of `from` to the sums of a slot. */
static void add_loads(ds_coll_builder *b, const ds_phase *from) {
    for (uint32_t i = 0; i < from->n_loads; i++) {
        const ds_load *load = &from->loads[i];
        uint64_t *slot = ds_map_find(&b->slot, load->link);
        if (slot) {
            b->loads.at[*slot].bytes_q32 += load->bytes_q32;
            continue;
        }
        ds_map_put(&b->slot, load->link, b->loads.n);
        DS_HPUSH(&b->loads, *load);
    }
}

/* `times` slots in which the phases first … last work on different chunks, as one phase. */
static void add_slots(ds_coll_builder *b, const ds_phase *phases, uint32_t first, uint32_t last,
                      int64_t times) {
    int64_t chunks = b->request->chunks, steps = 0, alpha_ps = 0, weight = 1;
    for (uint32_t p = first; p <= last; p++) {
        add_loads(b, &phases[p]);
        if (phases[p].weight > weight) weight = phases[p].weight;
        if (phases[p].steps * phases[p].alpha_ps < steps * alpha_ps) continue;
        steps = phases[p].steps;
        alpha_ps = phases[p].alpha_ps;
    }
    for (uint32_t i = 0; i < b->loads.n; i++) {
        ds_u128 *bytes = &b->loads.at[i].bytes_q32;
        *bytes = *bytes / (uint64_t)chunks * (uint64_t)times;
    }
    b->alpha_ps = alpha_ps;
    ds_coll__end_phase(b, steps * times, weight);
}

/* Phases in c chunks: in slot s phase p works on chunk s − p, all at once; the slots in which all
 * phases work are one. */
static void pipeline(ds_coll_builder *b) {
    int64_t chunks = b->request->chunks;
    uint32_t n = b->phases.n;
    if (chunks < 2 || n < 2) return;
    const ds_phase *phases = b->phases.at;
    b->phases.at = NULL;
    b->phases.n = b->phases.cap = 0;
    for (int64_t s = 0; s < n + chunks - 1; s++) {
        int64_t first = s < chunks ? 0 : s - chunks + 1, last = s < n ? s : n - 1;
        bool full = first == 0 && last == n - 1;
        int64_t times = full ? chunks - n + 1 : 1;
        add_slots(b, phases, (uint32_t)first, (uint32_t)last, times);
        s += times - 1;
    }
}

ds_status ds_coll_phases(ds_topo *topo, const ds_coll_request *request, const char *name,
                         ds_arena *arena, ds_phase **phases, uint32_t *n_phases, ds_error *err) {
    ds_coll_builder b = {.topo = topo, .request = request, .arena = arena, .err = err};
    bool moves = request->n > 1 || ds_op_desc_of(request->op)->flags & DS_OPF_HOST;
    ds_status status = moves ? ds_coll__build(&b, name) : DS_OK;
    if (status == DS_OK && request->op != DS_OP_RESHARD) pipeline(&b); /* its chains are cut */
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
    if (!ds_add_i64(phase->alpha_ps, terms->step_ps, &phase->alpha_ps)) phase->alpha_ps = INT64_MAX;
    ds_status status = ds_phase_alone_ps(topo, phase, terms->efficiency_q32, &all_ps, err);
    if (status != DS_OK) {
        if (err) err->loc = request->loc;
        return status;
    }
    if (!ds_add_i64(*total, all_ps, total))
        return ds_error_set(err, DS_ERR_OVERFLOW, request->loc,
                            "a collective takes longer than int64 picoseconds hold");
    out->wait_ps = phase->steps * phase->alpha_ps;
    out->flow_ps = all_ps - out->wait_ps;
    out->most_q32 = ds_phase_most_bytes_q32(phase);
    return DS_OK;
}

static ds_status choose_this(ds_topo *topo, const ds_coll_request *request,
                             const ds_coll_cost *terms, const char *algorithm, ds_arena *arena,
                             ds_coll_choice *out, ds_error *err) {
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_phase *phases;
    *out = (ds_coll_choice){.algorithm = algorithm, .ps = terms->launch_ps};
    ds_status status =
        ds_coll_phases(topo, request, algorithm, &scratch, &phases, &out->n_phases, err);
    if (status == DS_OK) out->phases = DS_NEW_N(arena, ds_phase_time, out->n_phases);
    for (uint32_t i = 0; i < out->n_phases && status == DS_OK; i++)
        status = phase_time(topo, request, &phases[i], terms, &out->phases[i], &out->ps, err);
    ds_arena_deinit(&scratch);
    return status;
}

/* Can it be done so? What only some groups have (levels, a switch) is passed over in a choice. */
static bool is_passed_over(ds_status status) {
    return status == DS_ERR_UNSUPPORTED || status == DS_ERR_UNREACHABLE;
}

uint32_t ds_coll_candidates(const ds_coll_request *request, const char **names) {
    uint32_t n = 0;
    bool all = request->algorithm && strcmp(request->algorithm, FASTEST) == 0;
    if (request->algorithm && !all) {
        names[n++] = request->algorithm;
        return n;
    }
    for (size_t i = 0; i < N_ALGORITHMS; i++)
        if (is_in(request->op, all ? algorithms[i].ops : algorithms[i].candidates))
            names[n++] = algorithms[i].name;
    return n;
}

ds_status ds_coll_choose(ds_topo *topo, const ds_coll_request *request, const ds_coll_cost *terms,
                         ds_arena *arena, ds_coll_choice *out, ds_error *err) {
    const char *names[DS_COLL_MOST_ALGORITHMS];
    uint32_t n = ds_coll_candidates(request, names);
    bool found = false;
    ds_status first = DS_OK;
    for (uint32_t i = 0; i < n; i++) {
        ds_coll_choice this_one;
        ds_error refusal = {0};
        ds_status status = choose_this(topo, request, terms, names[i], arena, &this_one, &refusal);
        if (status != DS_OK && first == DS_OK) {
            first = status;
            if (err) *err = refusal;
        }
        if (status != DS_OK && !is_passed_over(status)) return status;
        if (status != DS_OK) continue;
        if (!found || this_one.ps < out->ps) *out = this_one;
        found = true;
    }
    return found ? DS_OK : first;
}
