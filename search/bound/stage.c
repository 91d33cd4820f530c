/* The work and the memory of each stage, from which the bounds are computed. */
#include "search/bound/bounds.h"

#include "ir/strategy/strategy.h"

static double larger(double a, double b) {
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- turns ---- */

bool ds_bound_is_placed(const ds_bound_region *r) {
    if (r->pp == 1) return true;
    return r->form != DS_BOUND_ANY && r->even && r->layers->turns >= r->pp * r->chunks;
}

/* Turns that are left over go to the chunks in the middle (ir/passes/stage/cut.c). */
static int64_t turns_of(const ds_bound_region *r, int64_t chunk) {
    int64_t n = r->layers->turns, chunks = r->pp * r->chunks;
    int64_t rest = n % chunks, middle = (chunks - rest) / 2;
    return n / chunks + (chunk >= middle && chunk < middle + rest);
}

/* The turns of all chunks of the stage. */
static int64_t stage_turns(const ds_bound_region *r, int64_t stage) {
    int64_t n = 0;
    for (int64_t c = stage; c < r->pp * r->chunks; c += r->pp) n += turns_of(r, c);
    return n;
}

/* The stage's sum of `each`: an amount before the loop, in each turn, after the loop. */
static int64_t of_stage(const ds_bound_region *r, int64_t stage, const int64_t each[3]) {
    int64_t sum = each[DS_BOUND_TURN] * stage_turns(r, stage);
    if (stage == 0) sum += each[DS_BOUND_PRE];
    return stage == r->pp - 1 ? sum + each[DS_BOUND_POST] : sum;
}

/* ---- between stages ---- */

/* ds_bound_mesh_sends for the bytes that go from stage to stage; NULL: not known. */
static const int64_t *find_sends(const ds_bound_region *r) {
    const ds_bound_mesh mesh = {r->dp, r->tp, r->pp, r->cp, r->order};
    int64_t bytes = r->layers->carried_bytes;
    if (!r->machine || !r->order || r->pp == 1) return NULL;
    return ds_bound_mesh_sends(r->machine, &mesh, r->parts ? bytes / r->tp : bytes);
}

static void read_sends(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    const int64_t *there = find_sends(r), *back = there ? there + r->pp : NULL;
    int64_t all = r->microbatches * r->chunks, both = 0;
    if (!there) return;
    double most = (double)there[r->pp - 1] + (double)back[r->pp - 1];
    if (most * (double)(all + 1) >= 0x1p60) return; /* beyond int64: no bound */
    out->there_ps = there[stage];
    out->back_ps = back[stage];
    if (stage > 0) {
        int64_t once = there[stage] - there[stage - 1];
        out->sent_ps = there[stage - 1] + all * once;
        both += once + back[stage] - back[stage - 1];
    }
    if (stage < r->pp - 1) both += there[stage + 1] - there[stage] + back[stage + 1] - back[stage];
    /* all sends and receives of the stage but the first of each kind */
    if (r->blocking) out->items_ps += (all - 1) * both;
    if (r->batched) out->shards_s = larger(out->shards_s, (double)((all - 1) * both) * 1e-12);
}

/* The small step has one gradient of a weight that is read before and after the loop: POST makes
 * the gradient, PRE completes the gradient. */
static int64_t tied_bytes(const ds_bound_region *r) {
    return least(r->layers->tied_bytes, r->layers->part[DS_BOUND_POST].gradient_bytes);
}

/* The first and the last stage have a gradient each of a weight that both read. At least one of the
 * two gradients travels to the other stage. */
static double tie_s(const ds_bound_region *r) {
    const ds_bound_mesh mesh = {r->dp, r->tp, r->pp, r->cp, r->order};
    if (!r->machine || !r->order || r->pp == 1 || r->zero != 0) return 0;
    return (double)ds_bound_mesh_across_ps(r->machine, &mesh, tied_bytes(r)) * 1e-12;
}

/* ---- time ---- */

int64_t ds_bound_delay(const ds_bound_region *r, int64_t stage) {
    if (r->form == DS_BOUND_ZB_H1) return stage;
    return r->form == DS_BOUND_ZB_H2 ? 2 * stage : -1;
}

static bool is_split(const ds_bound_region *r) {
    return r->form == DS_BOUND_ZB_H1 || r->form == DS_BOUND_ZB_H2;
}

/* Do later microbatches add up whole gradients? ZeRO 2 and 3 add up parts. */
static int adds_up(const ds_bound_region *r) {
    return r->microbatches > 1 && (r->zero == 0 || r->zero == 1);
}

/* A part's backward pass. With several stages PRE is left out: a weight that is also read after the
 * loop then has two gradients, which are added up elsewhere. */
static ds_bound_path backward_of(const ds_bound_region *r, int place, int k) {
    ds_bound_path path = r->layers->part[place].backward[k];
    if (place == DS_BOUND_PRE && r->pp > 1) return (ds_bound_path){0};
    if (is_split(r)) path.span_ps = path.in_ps = path.out_ps = path.compute_ps;
    return path;
}

/* The time of all microbatches in a part. */
static int64_t all_ps(const ds_bound_region *r, int place) {
    int64_t first = backward_of(r, place, 0).span_ps;
    int64_t next = backward_of(r, place, adds_up(r)).span_ps;
    return r->microbatches * (r->layers->part[place].forward.span_ps + next) + first - next;
}

int64_t ds_bound_computation_ps(const ds_bound_region *r) {
    int64_t sum = 0;
    for (int i = 0; i < DS_BOUND_PLACES; i++) {
        const ds_bound_part *p = &r->layers->part[i];
        int64_t first = backward_of(r, i, 0).compute_ps;
        int64_t next = backward_of(r, i, adds_up(r)).compute_ps;
        int64_t all = r->microbatches * (p->forward.compute_ps + next) + first - next;
        sum += i == DS_BOUND_TURN ? all * r->layers->turns : all;
    }
    return sum;
}

/* n turns one after the other, from the input of the first to the output of the last. */
static int64_t passage_ps(const ds_bound_path *p, int64_t n) {
    return n == 1 ? p->through_ps : p->in_ps + (n - 2) * p->span_ps + p->out_ps;
}

static void read_items(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    int64_t all[DS_BOUND_PLACES], last[DS_BOUND_PLACES];
    for (int i = 0; i < DS_BOUND_PLACES; i++) {
        all[i] = all_ps(r, i);
        last[i] = backward_of(r, i, adds_up(r)).span_ps;
    }
    out->items_ps = of_stage(r, stage, all);
    out->last_ps = of_stage(r, stage, last);
}

/* ---- hosts ---- */

/* The transfers of a turn from and to its host. */
typedef struct hosted {
    double weights_s, saved_s, sent_s;
} hosted;

static hosted find_hosted(const ds_bound_region *r) {
    const ds_bound_part *turn = &r->layers->part[DS_BOUND_TURN];
    hosted out = {0};
    if (!r->offloads || !r->offload || !r->machine) return out;
    double from_s = ds_bound_machine_host_per_byte(r->machine, true);
    double to_s = ds_bound_machine_host_per_byte(r->machine, false);
    if (r->offload & DS_OFFLOAD_WEIGHTS)
        out.weights_s = from_s * (double)turn->weight_bytes /
                        (double)(r->zero == 3 || r->zero < 0 ? r->dp * r->cp : 1);
    if (!(r->offload & DS_OFFLOAD_ACTIVATIONS)) return out;
    out.saved_s = from_s * (double)turn->saved_bytes;
    out.sent_s = to_s * (double)turn->saved_bytes;
    return out;
}

/* A turn's reload begins with the turn that is `prefetch` turns earlier, so all reloads but those
 * of the first turns fall within the item. A turn begins after the offload of the turn before these
 * (ir/passes/overlap/overlap.c, overlap/host.c). The last turn's activations may stay. */
static int64_t at_least_ps(int64_t path_ps, int64_t turns, double each_s, double but_one_s) {
    double wait_s = turns > 0 ? (double)turns * each_s + (double)(turns - 1) * but_one_s : 0;
    int64_t wait_ps = (int64_t)(wait_s * 1e12 * (1 - 1e-9));
    return path_ps > wait_ps ? path_ps : wait_ps;
}

/* ---- from stage to stage ---- */

/* Items of a chunk from input to output, forwards and backwards. */
typedef struct passage {
    int64_t forward_ps, backward_ps;
} passage;

/* Where gradients of weights are apart, the path of input gradients is unknown: 0 backwards. */
static passage passage_of(const ds_bound_region *r, int64_t chunk) {
    const ds_bound_part *p = r->layers->part;
    const ds_bound_path *f = &p[DS_BOUND_TURN].forward;
    const ds_bound_path b = backward_of(r, DS_BOUND_TURN, 0);
    int64_t n = turns_of(r, chunk);
    passage out = {passage_ps(f, n), passage_ps(&b, n)};
    if (chunk == 0) {
        out.forward_ps = p[DS_BOUND_PRE].forward.span_ps + (n - 1) * f->span_ps + f->out_ps;
        out.backward_ps = b.in_ps + (n - 1) * b.span_ps + backward_of(r, DS_BOUND_PRE, 0).span_ps;
    }
    if (r->prefetch >= 0) {
        hosted h = find_hosted(r);
        int64_t late = n - r->prefetch;
        out.forward_ps = at_least_ps(out.forward_ps, late, h.weights_s, 0);
        out.forward_ps = at_least_ps(out.forward_ps, late - 1, h.sent_s, 0);
        out.backward_ps = at_least_ps(out.backward_ps, late, h.weights_s, h.saved_s);
    }
    if (is_split(r)) out.backward_ps = 0;
    return out;
}

static void read_passage(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    const ds_bound_path *f = &r->layers->part[DS_BOUND_TURN].forward;
    const ds_bound_path b = backward_of(r, DS_BOUND_TURN, 0);
    passage through = passage_of(r, stage);
    out->forward_ps = through.forward_ps;
    out->backward_ps = through.backward_ps;
    if (stage > 0) {
        out->early_ps = f->span_ps - f->in_ps;
        out->late_ps = b.span_ps - b.out_ps;
    }
    if (is_split(r)) out->late_ps = out->items_ps;
    bool turns_back = stage == r->pp - 1 && !is_split(r);
    int64_t behind = turns_back ? backward_of(r, DS_BOUND_POST, 0).through_ps : 0;
    out->return_ps = out->forward_ps + behind + out->backward_ps;
}

/* Sends of one item through all chunks and back. The send from the last stage to the first, from
 * chunk to chunk, is known for two stages only. */
static int64_t ways_ps(const ds_bound_region *r) {
    const int64_t *there = find_sends(r), *back = there ? there + r->pp : NULL;
    if (!there) return 0;
    int64_t once = there[r->pp - 1] + back[r->pp - 1];
    return r->chunks * once + (r->pp == 2 ? (r->chunks - 1) * once : 0);
}

/* One microbatch is the last on chunk 0 forwards, after m − 1 others; one microbatch is the first
 * on chunk 0 backwards, before m − 1 others. */
static int64_t chain_ps(const ds_bound_region *r) {
    const ds_bound_part *p = r->layers->part;
    int64_t n = turns_of(r, 0), sum = ways_ps(r) + backward_of(r, DS_BOUND_POST, 0).through_ps;
    int64_t forward = p[DS_BOUND_PRE].forward.span_ps + n * p[DS_BOUND_TURN].forward.span_ps;
    int64_t backward = n * backward_of(r, DS_BOUND_TURN, 0).span_ps;
    if (is_split(r)) return 0;
    for (int64_t c = 0; c < r->pp * r->chunks; c++) {
        passage through = passage_of(r, c);
        sum += through.forward_ps + through.backward_ps;
    }
    return sum + (r->microbatches - 1) * (forward > backward ? forward : backward);
}

/* ---- traffic over dp ---- */

static double seconds_of(const ds_bound_region *r, ds_opcode op, int64_t bytes) {
    const ds_bound_mesh mesh = {r->dp, r->tp, r->pp, r->cp, r->order};
    int64_t size = 1; /* powers of two, so that the mesh keeps few answers */
    while (size < bytes) size *= 2;
    bool alone = r->cp > 1 && !r->layers->reads_parts; /* replicas over cp all do the same */
    if (!r->machine || !r->order || r->dp * r->cp < 2 || !bytes || alone) return 0;
    return (double)bytes * ds_bound_mesh_per_byte(r->machine, &mesh, op, size);
}

/* Bytes of a turn's weights that ZeRO shards over dp for certain. */
static int64_t shared_bytes(const ds_bound_region *r) {
    int64_t bytes = 0;
    if (r->cp > 1) return 0;
    for (uint32_t i = 0; i < r->layers->n_weights; i++) {
        const ds_bound_weight *w = &r->layers->weights[i];
        bool shared = false;
        for (uint32_t d = 0; d < w->n_dims; d++)
            shared = shared || w->dims[d] % r->dp == 0 ||
                     (r->uneven && r->ep == 1 && w->dims[d] > r->dp);
        if (shared) bytes += w->bytes;
    }
    return bytes;
}

/* Traffic after the items of stage 0 for gradients of PRE, which are complete in the last item;
 * PRE's own backward pass may hide part of the traffic. */
static double first_s(const ds_bound_region *r, int64_t gradients) {
    double reduce = seconds_of(r, DS_OP_ALL_REDUCE, gradients), scatter = reduce;
    int64_t meanwhile = backward_of(r, DS_BOUND_PRE, adds_up(r)).span_ps;
    if (is_split(r)) return 0;
    if (r->zero > 0) scatter = seconds_of(r, DS_OP_REDUCE_SCATTER, gradients);
    return tie_s(r) + (scatter < reduce ? scatter : reduce) - (double)meanwhile * 1e-12;
}

static int64_t more_than(int64_t a, int64_t b) {
    return a > b ? a - b : 0;
}

static void read_traffic(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    const ds_bound_part *p = r->layers->part;
    int64_t tied = tied_bytes(r), here = r->pp > 1 ? tied : 0; /* one at each end */
    const int64_t each[] = {least(p[0].gradient_bytes + tied, p[0].weight_bytes),
                            least(p[1].gradient_bytes, p[1].weight_bytes),
                            least(p[2].gradient_bytes - tied + here, p[2].weight_bytes + here)};
    /* gradients of experts, which fewer replicas add up, are left out */
    const int64_t dense[] = {more_than(each[0], p[0].expert_weight_bytes),
                             more_than(each[1], p[1].expert_weight_bytes),
                             more_than(each[2], p[2].expert_weight_bytes)};
    int64_t gradients = of_stage(r, stage, dense), n = stage_turns(r, stage);
    int64_t shared = r->zero > 0 ? n * shared_bytes(r) : 0;
    double m = (double)r->microbatches, gather = seconds_of(r, DS_OP_ALL_GATHER, shared);
    int several = r->microbatches > 1;
    int64_t update = n * p[DS_BOUND_TURN].update_ps[several];
    if (r->pp == 1) update += p[DS_BOUND_PRE].update_ps[several];
    out->end_s = (double)update * 1e-12 / (double)(r->zero ? r->dp * r->cp : 1);
    if (r->zero < 0) return;
    out->reduce_s = seconds_of(r, DS_OP_ALL_REDUCE, gradients);
    if (r->zero > 0) {
        double scatter = seconds_of(r, DS_OP_REDUCE_SCATTER, gradients);
        if (scatter < out->reduce_s) out->reduce_s = scatter;
    }
    double gathers = r->keeps_weights ? 1 : 2 * m, scatters = r->no_sync ? 1 : m;
    if (r->zero == 2) out->shards_s = scatters * out->reduce_s;
    if (r->zero == 3)
        out->shards_s = gathers * gather + scatters * seconds_of(r, DS_OP_REDUCE_SCATTER, shared);
    if (r->zero == 3) return;
    if (gather > out->end_s) out->end_s = gather;
    if (stage == 0 && first_s(r, dense[0]) > out->end_s) out->end_s = first_s(r, dense[0]);
    /* Late reductions of one chunk begin with the gradients of the first turn, whose backward pass
     * is the last. Chunks run backwards from the last to the first, so reductions of several chunks
     * may begin sooner; but not with zero = 1, where the first gathering waits for the first
     * update, and comes before the second reduction. */
    int64_t meanwhile = p[DS_BOUND_TURN].backward[adds_up(r)].span_ps;
    if (stage == 0) meanwhile += p[DS_BOUND_PRE].backward[adds_up(r)].span_ps;
    double late = gather + out->reduce_s - (double)meanwhile * 1e-12;
    bool known =
        r->late && r->layers->turns > 0 && !is_split(r) && (r->chunks == 1 || r->zero == 1);
    if (known && late > out->end_s) out->end_s = late;
}

/* Each way has a stream of its own. */
static void read_host(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    const ds_bound_part *turn = &r->layers->part[DS_BOUND_TURN];
    double n = (double)stage_turns(r, stage), m = (double)r->microbatches;
    hosted h = find_hosted(r);
    double there = m * (n - 1) * h.sent_s, back = m * (2 * n * h.weights_s + (n - 1) * h.saved_s);
    if (!r->offloads || !r->offload || !r->machine) return;
    out->reload_s = back;
    if (r->offload & DS_OFFLOAD_OPTIMIZER) {
        double states = n * (double)turn->state_bytes / (double)(r->zero ? r->dp * r->cp : 1);
        double reload = states * ds_bound_machine_host_per_byte(r->machine, true);
        there += states * ds_bound_machine_host_per_byte(r->machine, false);
        back += reload;
        /* reloaded when the backward pass has ended (ir/passes/overlap/host.c) */
        if (reload > out->end_s) out->end_s = reload;
    }
    if (there > out->shards_s) out->shards_s = there;
    if (back > out->shards_s) out->shards_s = back;
}

/* ---- memory ---- */

/* of_stage where the turns of each stage are known, else the average over all stages. */
static int64_t of_some(const ds_bound_region *r, int64_t stage, const int64_t each[3]) {
    if (ds_bound_is_placed(r)) return of_stage(r, stage, each);
    return (each[0] + each[1] * r->layers->turns + each[2]) / r->pp;
}

/* The stage's part of bytes that replicas share; experts are shared by the replicas of these experts. */
static int64_t of_sharers(const ds_bound_region *r, int64_t stage, bool shared,
                          const int64_t each[3], const int64_t experts[3]) {
    int64_t replicas = shared ? r->dp * r->cp : 1;
    const int64_t others[] = {each[0] - experts[0], each[1] - experts[1], each[2] - experts[2]};
    return of_some(r, stage, others) / replicas +
           of_some(r, stage, experts) / (shared ? replicas / r->ep : 1);
}

/* Are with zero = 1 all gradients of a stage whole at once? Each chunk reduces its gradients in its
 * last backward item, so there is an item after each chunk's first and before any chunk's last. */
static bool stays_whole(const ds_bound_region *r) {
    if (r->late || is_split(r)) return true;
    return r->chunks == 1 ? r->microbatches > 2
                          : r->form == DS_BOUND_DEPTH_FIRST && r->microbatches > r->pp;
}

static void read_bytes(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    const ds_bound_part *p = r->layers->part;
    int64_t replicas = r->dp * r->cp, whole = r->pp == 1;
    int64_t tied = whole || !ds_bound_is_placed(r) ? 0 : tied_bytes(r);
    const int64_t weights[] = {p[0].weight_bytes, p[1].weight_bytes, p[2].weight_bytes + tied};
    const int64_t states[] = {whole * p[0].state_bytes, p[1].state_bytes, whole * p[2].state_bytes};
    const int64_t expert_weights[] = {p[0].expert_weight_bytes, p[1].expert_weight_bytes,
                                      p[2].expert_weight_bytes};
    const int64_t expert_states[] = {whole * p[0].expert_state_bytes, p[1].expert_state_bytes,
                                     whole * p[2].expert_state_bytes};
    const int64_t sums[] = {p[0].gradient_bytes + tied, p[1].gradient_bytes, p[2].gradient_bytes};
    out->held_bytes = r->process_bytes;
    if (!(r->offload & DS_OFFLOAD_WEIGHTS))
        out->held_bytes +=
            of_sharers(r, stage, r->zero == 3 || r->zero < 0, weights, expert_weights);
    if (!(r->offload & DS_OFFLOAD_OPTIMIZER))
        out->held_bytes += of_sharers(r, stage, r->zero != 0, states, expert_states);
    if (!ds_bound_is_placed(r)) return;
    int64_t n = turns_of(r, stage), most = n;
    for (int64_t c = stage; c < r->pp * r->chunks; c += r->pp) {
        n = least(n, turns_of(r, c));
        if (turns_of(r, c) > most) most = turns_of(r, c);
    }
    if (!(r->offload & DS_OFFLOAD_ACTIVATIONS)) out->saved_bytes = n * p[1].saved_bytes;
    if (stage == 0 && r->chunks == 1) out->saved_bytes += p[DS_BOUND_PRE].saved_bytes;
    if (!(r->offload & DS_OFFLOAD_ACTIVATIONS) && !is_split(r) && r->chunks == 1) {
        out->work_bytes = p[DS_BOUND_TURN].work_bytes;
        if (stage == r->pp - 1 && p[DS_BOUND_POST].work_bytes > out->work_bytes)
            out->work_bytes = p[DS_BOUND_POST].work_bytes;
    }
    int64_t gone = r->chunks == 1 ? sums[0] + sums[1] : most * sums[1] + sums[0] + sums[2];
    if (r->zero == 0) out->summed_bytes = of_stage(r, stage, sums);
    if (r->zero == 1 && r->late && of_stage(r, stage, sums) > gone)
        out->summed_bytes = of_stage(r, stage, sums) - gone;
    bool scatters = r->zero == 1 && !stays_whole(r), splits = r->zero > 1 || r->zero < 0;
    int64_t all = of_stage(r, stage, sums), rest = r->chunks == 1 ? all - sums[1] - sums[2] : 0;
    out->gradient_bytes = all / (splits || scatters ? replicas : 1);
    if (scatters && rest > out->gradient_bytes) out->gradient_bytes = rest;
}

void ds_bound_stage_bytes(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    *out = (ds_bound_stage){0};
    read_bytes(r, stage, out);
}

void ds_bound_stage_of(const ds_bound_region *r, int64_t stage, ds_bound_stage *out) {
    *out = (ds_bound_stage){0};
    if (ds_bound_is_placed(r)) {
        read_items(r, stage, out);
        read_passage(r, stage, out);
        read_traffic(r, stage, out);
        read_host(r, stage, out);
        read_sends(r, stage, out);
        if (stage == 0) out->chain_ps = chain_ps(r);
    }
    read_bytes(r, stage, out);
}
