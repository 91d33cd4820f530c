/* A short sorted list and a front by pairwise comparison. */
#include "search/driver/best.h"

#include "ir/base/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ds_best_init(ds_best *best, const ds_space *space) {
    *best = (ds_best){0};
    const ds_objective *objectives = ds_space_objectives(space, &best->n_objectives);
    best->objectives = ds_xcalloc(best->n_objectives, sizeof *objectives);
    memcpy(best->objectives, objectives, best->n_objectives * sizeof *objectives);
}

void ds_best_deinit(ds_best *best) {
    for (uint32_t i = 0; i < best->top.n; i++) free(best->top.at[i].values);
    for (uint32_t i = 0; i < best->front.n; i++) free(best->front.at[i].values);
    free(best->top.at);
    free(best->front.at);
    free(best->objectives);
    *best = (ds_best){0};
}

/* < 0: a is better by this objective. */
static int compare(const ds_objective *objective, const ds_measures *a, const ds_measures *b) {
    double x = a->at[objective->what], y = b->at[objective->what];
    int order = (x > y) - (x < y);
    return objective->maximize ? -order : order;
}

static char *values_text(const ds_space *space, const ds_candidate *candidate) {
    ds_buf text = {0};
    ds_buf_put(&text, "");
    for (uint32_t i = 0; i < ds_space_n_dims(space); i++) {
        ds_buf_printf(&text, "%s%s=", i ? " " : "", ds_space_dim_name(space, i));
        ds_space_put_value(space, candidate, i, &text);
    }
    return text.text;
}

static ds_best_row make_row(const ds_space *space, const ds_candidate *c, const ds_outcome *o,
                            const ds_measures *m) {
    return (ds_best_row){c->number, o->hash, *m, o->step_ps, values_text(space, c)};
}

static void add_top(ds_best *best, const ds_space *space, const ds_candidate *c,
                    const ds_outcome *o, const ds_measures *m) {
    uint32_t at = best->top.n;
    while (at && compare(&best->objectives[0], m, &best->top.at[at - 1].measures) < 0) at--;
    if (at >= DS_BEST_KEPT) return;
    ds_best_row row = make_row(space, c, o, m);
    if (best->top.n < DS_BEST_KEPT)
        DS_HPUSH(&best->top, row);
    else
        free(best->top.at[best->top.n - 1].values);
    memmove(best->top.at + at + 1, best->top.at + at,
            (best->top.n - 1 - at) * sizeof *best->top.at);
    best->top.at[at] = row;
}

/* Is a at least as good as b by all objectives? Equal ones count, so the first of equals stays. */
static bool covers(const ds_best *best, const ds_measures *a, const ds_measures *b) {
    for (uint32_t i = 0; i < best->n_objectives; i++)
        if (compare(&best->objectives[i], a, b) > 0) return false;
    return true;
}

static void add_front(ds_best *best, const ds_space *space, const ds_candidate *c,
                      const ds_outcome *o, const ds_measures *m) {
    for (uint32_t i = 0; i < best->front.n; i++)
        if (covers(best, &best->front.at[i].measures, m)) return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < best->front.n; i++) {
        if (covers(best, m, &best->front.at[i].measures))
            free(best->front.at[i].values);
        else
            best->front.at[kept++] = best->front.at[i];
    }
    best->front.n = kept;
    DS_HPUSH(&best->front, make_row(space, c, o, m));
}

void ds_best_add(ds_best *best, const ds_space *space, const ds_candidate *candidate,
                 const ds_outcome *outcome, const ds_measures *measures) {
    add_top(best, space, candidate, outcome, measures);
    if (best->n_objectives > 1) add_front(best, space, candidate, outcome, measures);
}

/* ---- tables ---- */

static void put_row(const ds_best_row *row, bool priced, bool hashes, ds_buf *out) {
    ds_buf step = {0}, rate = {0}, memory = {0};
    ds_print_ps(row->step_ps, &step);
    ds_print_rate(row->measures.at[DS_DERIVED_throughput], "/s", &rate);
    ds_print_bytes((int64_t)row->measures.at[DS_DERIVED_peak_memory], &memory);
    ds_buf_printf(out, "  %12s  %14s  %12s  %5.1f %%", step.text, rate.text, memory.text,
                  100 * row->measures.at[DS_DERIVED_mfu]);
    if (priced) ds_buf_printf(out, "  %12.6g", row->measures.at[DS_DERIVED_cost]);
    if (hashes) ds_buf_printf(out, "  %016" PRIx64, row->hash);
    ds_buf_printf(out, "  %s\n", row->values);
    ds_buf_deinit(&step);
    ds_buf_deinit(&rate);
    ds_buf_deinit(&memory);
}

static void put_table(const char *title, const ds_best_row *rows, uint32_t n, bool hashes,
                      ds_buf *out) {
    bool priced = n && rows[0].measures.at[DS_DERIVED_cost_per_hour] > 0;
    ds_buf_printf(out, "\n%s\n  %12s  %14s  %12s  %7s", title, "step time", "throughput", "memory",
                  "MFU");
    if (priced) ds_buf_printf(out, "  %12s", "cost");
    if (hashes) ds_buf_printf(out, "  %-16s", "hash");
    ds_buf_put(out, "  candidate\n");
    for (uint32_t i = 0; i < n; i++) put_row(&rows[i], priced, hashes, out);
}

void ds_best_print(const ds_best *best, bool hashes, ds_buf *out) {
    if (!best->top.n) {
        ds_buf_put(out, "\nno candidate fits and holds the conditions\n");
        return;
    }
    ds_buf title = {0};
    ds_buf_printf(&title, "best by %s %s", best->objectives[0].maximize ? "greatest" : "least",
                  ds_derived_name(best->objectives[0].what));
    put_table(title.text, best->top.at, best->top.n, hashes, out);
    title.n = 0;
    ds_buf_put(&title, "Pareto front:");
    for (uint32_t i = 0; i < best->n_objectives; i++)
        ds_buf_printf(&title, "%s %s %s", i ? "," : "",
                      best->objectives[i].maximize ? "greatest" : "least",
                      ds_derived_name(best->objectives[i].what));
    if (best->front.n) put_table(title.text, best->front.at, best->front.n, hashes, out);
    ds_buf_deinit(&title);
}
