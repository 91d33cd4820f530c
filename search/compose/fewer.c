/* Which virtual stages of an exact template are left out, and what has been read of the others. */
#include "search/compose/fewer.h"

#include <stdlib.h>

/* Fewer than these are not worth it. */
enum { FEWEST = 2 };

/* ---- chunks ---- */

static bool looks_back(uint32_t kind) {
    return kind == 0;
}

/* The virtual stages that come more often: a and b. */
uint32_t ds_fewer__first(const ds_fewer *by, uint32_t kind) {
    return looks_back(kind) ? by->first - 1 : by->first - by->reach - 1;
}

uint32_t ds_fewer__second(const ds_fewer *by, uint32_t kind) {
    return looks_back(kind) ? by->last + by->reach + 1 : by->last + 1;
}

/* How often more a chunk of the template comes. */
uint32_t ds_fewer__more(const ds_fewer *by, uint32_t kind, uint32_t chunk) {
    uint32_t v = chunk / by->pp;
    if (v == ds_fewer__first(by, kind)) return by->before;
    return v == ds_fewer__second(by, kind) ? by->after : 0;
}

/* The chunk of the template that stands for one of the step. */
uint32_t ds_fewer__chunk(const ds_fewer *by, uint32_t kind, uint32_t chunk) {
    uint32_t v = chunk / by->pp, a = ds_fewer__first(by, kind), b = ds_fewer__second(by, kind);
    if (v > a) v = v > a + by->before ? v - by->before : a;
    if (v > b) v = v > b + by->after ? v - by->after : b;
    return v * by->pp + chunk % by->pp;
}

/* The chunk of the step that one of the template is, seen from afar: of those that come more often
 * the first is near the beginning, the last near the end. */
uint32_t ds_fewer__from_afar(const ds_fewer *by, uint32_t chunk) {
    uint32_t v = chunk / by->pp;
    if (v >= by->first) chunk += by->before * by->pp;
    return v > by->last ? chunk + by->after * by->pp : chunk;
}

/* The first chunk of the step that a chunk of the template is. */
uint32_t ds_fewer__first_of(const ds_fewer *by, uint32_t kind, uint32_t chunk) {
    uint32_t v = chunk / by->pp, n = 0;
    if (v > ds_fewer__first(by, kind)) n += by->before;
    if (v > ds_fewer__second(by, kind)) n += by->after;
    return chunk + n * by->pp;
}

bool ds_fewer__is_near(const ds_fewer *by, uint32_t a, uint32_t b) {
    return (a < b ? b - a : a - b) <= by->reach * by->pp + 1;
}

/* ---- which are left out ---- */

/* Virtual stages away at which a part may look: with one microbatch, or one turn a chunk, reloads
 * wait for the item before the last one. */
static uint32_t reach_of(uint32_t n_chunks, const int64_t *turns, int64_t microbatches) {
    for (uint32_t c = 0; c < n_chunks; c++)
        if (turns[c] == 1) return 2;
    return microbatches == 1 ? 2 : 1;
}

ds_fewer *ds_fewer_new(uint32_t pp, uint32_t full, const int64_t *turns, int64_t microbatches) {
    uint32_t from = 0, to = full, reach = reach_of(full, turns, microbatches);
    uint32_t edge = reach + 2; /* as many as parts look at, one that comes more often, the end */
    while (from < full && turns[from] == turns[0]) from++;
    while (to > 0 && turns[to - 1] == turns[0]) to--;
    if (from == full) from = full / 2, to = from + 1; /* all are alike */
    uint32_t first = from / pp, last = (to - 1) / pp, all = full / pp;
    if (full % pp || first < edge || all - 1 - last < edge) return NULL;
    uint32_t before = first - edge, after = all - 1 - last - edge;
    if (before + after < FEWEST) return NULL;
    ds_fewer *out = ds_xcalloc(1, sizeof *out);
    *out = (ds_fewer){.pp = pp,
                      .n = full - (before + after) * pp,
                      .full = full,
                      .first = edge,
                      .last = edge + last - first,
                      .before = before,
                      .after = after,
                      .reach = reach,
                      .more_turns = (before + after) * turns[0]};
    out->turns = ds_xcalloc(out->n, sizeof *out->turns);
    for (uint32_t c = 0; c < out->n; c++) out->turns[c] = turns[ds_fewer__from_afar(out, c)];
    return out;
}

void ds_fewer_free(ds_fewer *fewer) {
    if (!fewer) return;
    free(fewer->turns);
    free(fewer->tail_chunk);
    free(fewer);
}

/* ---- what has been read ---- */

/* The chunk that what has made something in the tail is of. */
static uint32_t chunk_of_maker(const ds_template *t, const uint32_t *chunk, uint32_t maker,
                               uint32_t unit) {
    if (!ds_plan_n_operands(t->plan, maker)) return DS_NONE;
    uint32_t from = t->s.unit_of[t->plan->insts.at[maker].first_task];
    return from < unit ? chunk[from] : DS_NONE;
}

/* The chunk whose items' values a unit of the tail reads; DS_NONE: that does not tell. What copies
 * from and to hosts waits for others. */
static uint32_t chunk_of_reader(const ds_template *t, const uint32_t *chunk, uint32_t unit) {
    const ds_plan *plan = t->plan;
    uint32_t inst = t->s.parts[t->s.n_parts - 1].body->units.at[unit].inst, found = DS_NONE;
    const ds_op *op = plan->records.at[plan->insts.at[inst].record]->op;
    uint32_t first = plan->insts.at[inst].first_operand;
    if (op->code == DS_OP_RELOAD || op->code == DS_OP_OFFLOAD) return DS_NONE;
    for (uint32_t i = 0; i < ds_plan_n_operands(plan, inst); i++) {
        uint32_t maker = plan->values.at[plan->operands.at[first + i]].inst;
        uint32_t owner = t->s.owner[maker];
        if (owner == DS_NONE) continue; /* an input */
        if (!t->s.parts[owner].tail) return t->s.parts[owner].group % t->s.n_chunks;
        uint32_t of = chunk_of_maker(t, chunk, maker, unit);
        if (found == DS_NONE) found = of;
    }
    return found;
}

/* A loop over layers is of one chunk. */
static bool read_tail(ds_template *t) {
    const ds_body *body = t->s.parts[t->s.n_parts - 1].body;
    uint32_t *chunk = ds_xcalloc((size_t)body->units.n + 1, sizeof *chunk);
    t->fewer->tail_chunk = chunk;
    for (uint32_t u = 0; u < body->units.n;) {
        const ds_scope *scope = ds_template__loop_of(t, body->units.at[u].inst), *in = scope;
        uint32_t end = u, found = DS_NONE;
        for (; end < body->units.n; end++) {
            in = ds_template__loop_of(t, body->units.at[end].inst);
            if (!in || !scope || in->op != scope->op || in->up != scope->up) break;
            chunk[end] = DS_NONE;
            uint32_t of = chunk_of_reader(t, chunk, end);
            if (found == DS_NONE) found = of;
            if (of != DS_NONE && of != found)
                return ds_template__unknown(t, "a loop over layers of several chunks");
        }
        if (scope && found == DS_NONE) return ds_template__unknown(t, "a loop of no chunk");
        if (!scope) end = u + 1;
        for (; u < end; u++) chunk[u] = found;
    }
    return true;
}

/* What a stage's families over layers take with all turns of its chunks. */
static bool read_inputs(ds_template *t) {
    const ds_fewer *by = t->fewer;
    int64_t *all = ds_xcalloc((size_t)t->plan->n_classes + 1, sizeof *all);
    bool fine = true;
    ds_template__weigh_families(t, all);
    for (uint32_t c = 0; c < t->plan->n_classes && fine; c++) {
        uint32_t stage = t->label_of[c];
        int64_t turns = 0;
        for (uint32_t k = stage; k < by->n; k += by->pp) turns += by->turns[k];
        fine = stage < by->pp && all[c] % turns == 0;
        if (fine) t->s.input_bytes[c] += all[c] / turns * by->more_turns;
    }
    free(all);
    return fine || ds_template__unknown(t, "layers whose weights differ");
}

bool ds_template__read_fewer(ds_template *t) {
    return read_inputs(t) && (t->fewer->tail_chunk || read_tail(t));
}
