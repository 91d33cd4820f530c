/* Checks a certificate against its sweep. Regions come in the order of the odometer, so one walk
 * over the candidates meets one region after the other: each candidate must begin with the values
 * of the present region or of the next region, and no region is met again. */
#include "search/driver/certify.h"

#include "ir/strategy/strategy.h"
#include "search/driver/rows.h"
#include "search/methods/bound.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 64 };

typedef struct checker {
    ds_arena arena;
    char *at;                                 /* the next line of the certificate */
    uint64_t line;                            /* number of the line read last */
    uint32_t n_cells;                         /* of that line */
    char *cells[MAX_CELLS], *best[MAX_CELLS]; /* that line's text; the incumbent's values */
    ds_eval_source source;
    ds_space *space, *other; /* for the walk; for the bounds */
    ds_bounds *bounds;
    ds_eval *eval;
    ds_outcome outcome;
    ds_candidate candidate, met_last; /* met_last begins with the values of the line */
    uint32_t n_dims;
    double seconds, bytes;          /* the best bounds of the line's region */
    bool fits, legal, of_time, met; /* `met`: the incumbent is one of the runs */
    int64_t value;                  /* the incumbent's */
    uint64_t hash;
    ds_certified *out;
    ds_error *err;
} checker;

static ds_status demand(checker *c, bool holds, const char *what) {
    if (holds) return DS_OK;
    return ds_error_set(c->err, DS_ERR_DATA, DS_NOWHERE, "certificate, line %" PRIu64 ": %s",
                        c->line, what);
}

/* ---- text ---- */

static bool next_line(checker *c) {
    char *end = c->at ? strchr(c->at, '\n') : NULL;
    c->line++;
    c->n_cells = 0;
    if (!end) return false;
    *end = '\0';
    for (char *cell = c->at; cell && c->n_cells < MAX_CELLS;) {
        char *tab = strchr(cell, '\t');
        if (tab) *tab = '\0';
        ds_certificate_read_cell(cell);
        c->cells[c->n_cells++] = cell;
        cell = tab ? tab + 1 : NULL;
    }
    c->at = end + 1;
    return true;
}

static bool is_field(checker *c, const char *name, uint32_t n_cells) {
    return next_line(c) && c->n_cells == n_cells && strcmp(c->cells[0], name) == 0;
}

static bool read_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

static ds_status read_head(checker *c) {
    uint32_t n;
    const ds_objective *objective = ds_space_objectives(c->space, &n);
    c->of_time = objective->what == DS_METRIC_step_time;
    ds_metric_id what =
        objective->what == DS_METRIC_memory ? DS_METRIC_peak_bytes : objective->what;
    bool known = c->of_time || what == DS_METRIC_peak_bytes;
    DS_TRY(demand(c, n == 1 && !objective->maximize && known,
                  "there are no certificates for the sweep's objective"));
    bool ours = is_field(c, "distsim certificate 1", 1) && is_field(c, "source", 2) &&
                is_field(c, "settings", 2);
    DS_TRY(demand(c, ours, "this is no certificate"));
    bool same = is_field(c, "content", 2) && strtoull(c->cells[1], NULL, 16) == c->source.content;
    DS_TRY(demand(c, same, "program or profiles have changed since"));
    same = is_field(c, "objective", 2) && strcmp(c->cells[1], ds_metric_at(what)->sweep) == 0;
    DS_TRY(demand(c, same, "the sweep has another objective"));
    bool best = next_line(c) && c->n_cells > 2 && strcmp(c->cells[0], "incumbent") == 0;
    DS_TRY(demand(c, best, "the incumbent should stand here"));
    c->value = INT64_MAX;
    if (strcmp(c->cells[1], "-") == 0) return DS_OK;
    DS_TRY(demand(c, c->n_cells == 3 + c->n_dims && read_number(c->cells[1], &c->value),
                  "an incumbent has a value, a hash, and a value for each dimension"));
    c->hash = strtoull(c->cells[2], NULL, 16);
    memcpy(c->best, c->cells + 3, c->n_dims * sizeof *c->best);
    return DS_OK;
}

/* ---- bounds, once more ---- */

/* `in`: the earliest start of a stage's first item; `out`: the time left after its last output. */
static double time_bound(const ds_bound_region *r) {
    double best = (double)ds_bound_computation_ps(r) / (double)r->pp, in = 0, out = 0, home = 0;
    for (int64_t s = 0; s < r->pp && ds_bound_is_placed(r); s++) {
        ds_bound_stage stage;
        ds_bound_stage_of(r, s, &stage);
        if (s == 0) home = stage.end_s * 1e12;
        double last = in + (double)(stage.items_ps - stage.early_ps + stage.there_ps);
        double back = out + (double)stage.back_ps + home;
        double reduced = last - (double)stage.last_ps + stage.reduce_s * 1e12;
        if (r->chunks == 1 && r->zero <= 1) best = fmax(best, reduced);
        double end = fmax(fmax(last, (double)stage.chain_ps), stage.reload_s * 1e12);
        best = fmax(best, fmax(end + stage.end_s * 1e12, last - (double)stage.late_ps + back));
        double sent = in + (double)(stage.sent_ps + stage.return_ps);
        best = fmax(best, fmax(stage.shards_s * 1e12, sent + back));
        in += (double)stage.forward_ps;
        out += (double)stage.backward_ps;
    }
    return best * 1e-12;
}

/* Microbatches (of a chunk) that stage s holds when its k-th backward item begins, k from 0. */
static int64_t in_flight(const ds_bound_region *r, int64_t s, int64_t k) {
    int64_t all = r->microbatches * r->chunks, left = r->pp - s, eager = 2 * left - 1;
    const int64_t aheads[] = {1,   left, eager, all, eager + (r->chunks - 1) * r->pp,
                              all, left, eager};
    int64_t ahead = r->pp > 1 ? aheads[r->form] : 1; /* in ds_bound_form's order */
    return (ahead + k < all ? ahead + k : all) - k;
}

static double memory_bound(const ds_bound_region *r) {
    double peak = 0;
    bool ordered = r->pp > 1 && r->form != DS_BOUND_ANY && r->form != DS_BOUND_BREADTH_FIRST;
    for (int64_t s = 0; r->layers && s < r->pp; s++) {
        ds_bound_stage stage;
        ds_bound_stage_bytes(r, s, &stage);
        int64_t all = r->microbatches * r->chunks, delay = ds_bound_delay(r, s);
        int64_t summed = r->chunks > 1 ? r->chunks * r->pp : delay < 0 ? 1 : delay + 1;
        double saved = (double)stage.saved_bytes, sums = (double)stage.gradient_bytes;
        double work = (double)stage.work_bytes, live = saved * (double)in_flight(r, s, 0) + work;
        live = fmax(live, (double)stage.summed_bytes);
        if (r->microbatches > 1 && delay < 0) live = fmax(live, saved + sums + work);
        bool full = r->chunks == 1 || in_flight(r, s, summed) == in_flight(r, s, 0);
        double then = saved * (double)in_flight(r, s, summed) + sums + work;
        if (r->microbatches > 1 && ordered && summed < all && full) live = fmax(live, then);
        peak = fmax(peak, live + (double)stage.held_bytes);
    }
    return peak;
}

/* Too few turns for the chunks, microbatches not in groups of pp, or no states to offload. */
static bool is_refused(const ds_bound_region *r) {
    int64_t turns = r->layers->all_turns, chunks = r->even && r->named ? r->pp * r->chunks : 0;
    bool groups = r->form == DS_BOUND_DEPTH_FIRST && r->microbatches % r->pp;
    bool states = r->offloads && (r->offload & DS_OFFLOAD_OPTIMIZER) && !r->layers->has_states;
    return (turns && r->pp > 1 && chunks > turns) || groups || states;
}

/* The best bounds of the region of the first `depth` values and of all regions around it. */
static ds_status find_bounds(checker *c, uint32_t depth, bool timed) {
    const ds_choice *at = c->candidate.at;
    c->seconds = c->bytes = 0;
    c->fits = c->legal = true;
    for (uint32_t d = 0; d <= depth; d++) {
        ds_bound_region region;
        DS_TRY((timed ? ds_bounds_region : ds_bounds_memory)(c->bounds, at, d, &region, c->err));
        if (!region.layers) continue;
        if (timed) c->seconds = fmax(c->seconds, time_bound(&region));
        c->bytes = fmax(c->bytes, memory_bound(&region));
        c->fits &= !region.capacity_bytes || c->bytes <= (double)region.capacity_bytes;
        c->legal &= !is_refused(&region);
    }
    return DS_OK;
}

/* ---- regions ---- */

static ds_status check_bound(checker *c, uint32_t depth) {
    int64_t stated = 0;
    DS_TRY(find_bounds(c, depth, strcmp(c->cells[0], "bound") == 0));
    if (strcmp(c->cells[0], "illegal") == 0)
        return demand(c, !c->legal, "some candidates of the region may be legal");
    if (strcmp(c->cells[0], "lacks_memory") == 0)
        return demand(c, !c->fits, "some candidates of the region may fit");
    DS_TRY(demand(c, read_number(c->cells[1], &stated), "a bound is a number"));
    DS_TRY(demand(c, stated >= c->value, "the bound is less than the incumbent's value"));
    return demand(c, (double)stated <= (c->of_time ? c->seconds * 1e12 : c->bytes),
                  "the region's bound is less than that");
}

static ds_status check_run(checker *c) {
    ds_outcome *outcome = &c->outcome;
    const char *failed = NULL;
    bool subject = true, is_run = strcmp(c->cells[0], "run") == 0;
    int64_t stated = -1;
    c->eval->run(c->eval, &c->candidate, outcome);
    c->out->simulated++;
    bool counts = outcome->verdict == DS_VERDICT_OK &&
                  !ds_space_admits(c->space, &c->candidate, NULL) &&
                  !ds_space_judge(c->space, &c->candidate, &outcome->metrics, &c->arena, &failed,
                                  &subject, NULL);
    counts &= !failed && subject;
    int64_t value = c->of_time ? outcome->metrics.step_ps : outcome->metrics.peak_bytes;
    DS_TRY(demand(c, counts == is_run,
                  counts ? "the candidate counts" : "the candidate does not count"));
    if (!is_run) return DS_OK;
    DS_TRY(demand(c, read_number(c->cells[1], &stated) && stated == value,
                  "the candidate's value is another one"));
    DS_TRY(demand(c, value >= c->value, "the candidate is better than the incumbent"));
    bool best = value == c->value && outcome->hash == c->hash;
    for (uint32_t i = 0; i < c->n_dims; i++)
        best = best && strcmp(c->best[i], c->cells[2 + i]) == 0;
    c->met = c->met || best;
    return DS_OK;
}

static ds_status check_region(checker *c) {
    const char *kind = c->cells[0];
    uint32_t depth = c->n_cells - 2;
    c->out->regions++;
    if (!strcmp(kind, "bound") || !strcmp(kind, "lacks_memory") || !strcmp(kind, "illegal"))
        return check_bound(c, depth);
    DS_TRY(demand(c, !strcmp(kind, "run") || !strcmp(kind, "rejected"),
                  "a region is bound, lacks_memory, illegal, run, or rejected"));
    DS_TRY(demand(c, depth == c->n_dims, "only a single candidate can be run"));
    return check_run(c);
}

static bool begins_so(checker *c) {
    bool same = c->n_cells >= 2 && c->n_cells <= 2 + c->n_dims;
    ds_buf text = {0};
    for (uint32_t i = 0; same && i + 2 < c->n_cells; i++) {
        text.n = 0;
        ds_buf_put(&text, "");
        ds_space_put_value(c->space, &c->candidate, i, &text);
        same = text.text && strcmp(text.text, c->cells[i + 2]) == 0;
    }
    ds_buf_deinit(&text);
    return same;
}

/* Does the candidate, too, begin with the values of the last line? Compared with met_last, which
 * needs no text. */
static bool is_in_region(checker *c) {
    uint32_t depth = c->n_cells - 2, i = 0;
    while (i < depth && ds_choice_same(c->space, i, &c->met_last.at[i], &c->candidate.at[i])) i++;
    return i == depth;
}

static ds_status check_regions(checker *c) {
    bool found = true;
    int64_t n = 0;
    DS_TRY(read_head(c));
    DS_TRY(demand(c, is_field(c, "regions", 2) && read_number(c->cells[1], &n),
                  "the number of regions should stand here"));
    for (;;) {
        DS_TRY(ds_space_next(c->space, &c->candidate, &found, c->err));
        if (!found) break;
        c->out->candidates++;
        if (c->out->regions && is_in_region(c)) continue;
        DS_TRY(demand(c, next_line(c) && begins_so(c),
                      "a candidate is in no region, or in one that stands elsewhere"));
        memcpy(c->met_last.at, c->candidate.at, c->n_dims * sizeof *c->candidate.at);
        DS_TRY(check_region(c));
    }
    DS_TRY(demand(c, c->out->regions == (uint64_t)n, "the number of regions is another one"));
    DS_TRY(demand(c, is_field(c, "end", 1) && !*c->at, "the end should stand here"));
    c->out->value = c->value;
    return demand(c, c->value == INT64_MAX || c->met, "the incumbent is none of the runs");
}

ds_status ds_certify(const char *text, const ds_binding *binding, const ds_setting *settings,
                     uint32_t n_settings, const ds_eval_source *source, ds_certified *out,
                     ds_error *err) {
    checker c = {.source = *source, .out = out, .err = err};
    const char *why;
    *out = (ds_certified){0};
    ds_arena_init(&c.arena);
    c.at = ds_arena_strdup(&c.arena, text);
    ds_status status = ds_space_new(binding, settings, n_settings, &c.space, err);
    if (status == DS_OK) status = ds_space_new(binding, settings, n_settings, &c.other, err);
    c.n_dims = status == DS_OK ? ds_space_n_dims(c.space) : 0;
    if (status == DS_OK)
        status = demand(&c, c.n_dims + 3 <= MAX_CELLS, "the sweep has too many dimensions");
    if (status == DS_OK) c.candidate = ds_candidate_new(c.space, &c.arena);
    if (status == DS_OK) c.met_last = ds_candidate_new(c.space, &c.arena);
    c.source.space = c.space;
    c.source.content = ds_eval_content(binding->unit, source->profiles);
    if (status == DS_OK) status = ds_bounds_new(&c.source, c.other, &c.bounds, &why, err);
    if (status == DS_OK) status = ds_eval_new_simulation(&c.source, &c.eval, err);
    if (status == DS_OK) status = check_regions(&c);
    if (c.eval) c.eval->free(c.eval);
    ds_outcome_deinit(&c.outcome);
    ds_bounds_free(c.bounds);
    ds_space_free(c.other);
    ds_space_free(c.space);
    ds_arena_deinit(&c.arena);
    return status;
}
