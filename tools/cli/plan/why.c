/* distsim plan: why a plan is the best. The plan's step is simulated once more, for the critical
 * path; the rows have the results of other plans. */
#include "tools/cli/plan/plan.h"

#include "ir/base/csv.h"
#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/analysis.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 16 };

/* ---- the plan's own step ---- */

typedef struct step {
    ds_unit *unit;
    ds_binding binding;
    ds_result *result;
} step;

static ds_status simulate_row(const cli_plan *plan, const ds_sweep_row *row,
                              const ds_profiles *profiles, step *s, ds_error *err) {
    ds_buf text = {0};
    ds_diags diags;
    ds_sim_options options;
    *s = (step){0};
    cli_plan_put_scenario(plan, row, &text);
    ds_status status = cli_plan_fix(plan, "plan", &text, err);
    if (status == DS_OK)
        status = ds_load_text("plan", text.text, text.n, &plan->load, &s->unit, err);
    ds_buf_deinit(&text);
    DS_TRY(status);
    ds_diags_init(&diags);
    status = ds_verify(s->unit, &diags);
    ds_diags_deinit(&diags);
    if (status != DS_OK)
        return ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE, "the plan's program is not legal");
    DS_TRY(ds_bind(s->unit, NULL, 0, &s->binding, err));
    DS_TRY(ds_eval_options(&s->binding, &options, err));
    return ds_simulate(&s->binding, profiles, &options, &s->result, err);
}

static double percent(int64_t part, int64_t whole) {
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* ---- links ---- */

/* The op's axes, as ds_cause.what names axes. */
static void put_axes(const ds_op *op, ds_buf *out) {
    for (uint32_t i = 0; i < op->n_over; i++) ds_buf_printf(out, "%s%s", i ? "," : "", op->over[i]);
    if (op->n_over) return;
    bool pair = op->code == DS_OP_SEND || op->code == DS_OP_RECV;
    ds_buf_put(out, pair ? "send" : ds_op_name(op->code));
}

/* The group of the longest transfer over these axes on the path; NULL: no such transfer. */
static const ds_group *longest_group(const ds_result *r, const ds_critical_path *path,
                                     const char *axes) {
    const ds_group *found = NULL;
    int64_t most = 0;
    for (uint32_t i = 0; i < path->n; i++) {
        const ds_segment *s = &path->at[i];
        uint32_t activity = r->plan->task_activity[s->task];
        int64_t ps = s->end_ps - s->start_ps;
        if (s->kind != DS_TIME_COMM || activity == DS_NONE || ps <= most) continue;
        ds_buf name = {0};
        put_axes(ds_plan_task_record(r->plan, s->task)->op, &name);
        bool same = strcmp(name.text, axes) == 0;
        ds_buf_deinit(&name);
        if (!same) continue;
        most = ps;
        found = r->plan->activities[activity].group;
    }
    return found;
}

/* The slowest link on the routes around the group. */
static const ds_topo_link *slowest_link(const ds_result *r, const ds_group *group) {
    const ds_topo_link *slowest = NULL;
    for (uint32_t i = 0; i < group->n_devices; i++) {
        const ds_route *route;
        uint32_t to = group->devices[(i + 1) % group->n_devices];
        if (group->devices[i] == to ||
            ds_topo_route(r->plan->topo, group->devices[i], to, &route, NULL) != DS_OK)
            continue;
        for (uint32_t k = 0; k < route->n_links; k++) {
            const ds_topo_link *link = ds_topo_link_at(r->plan->topo, route->links[k]);
            if (!slowest || link->bytes_per_s < slowest->bytes_per_s) slowest = link;
        }
    }
    return slowest;
}

static void put_link(const ds_result *r, const ds_critical_path *path, const char *axes,
                     ds_buf *out) {
    const ds_group *group = longest_group(r, path, axes);
    const ds_topo_link *link = group ? slowest_link(r, group) : NULL;
    if (!link) return;
    ds_buf rate = {0};
    ds_print_rate((double)link->bytes_per_s, "B/s", &rate);
    ds_buf_printf(out, "%" PRIu32 " devices, slowest link %s -> %s, %s", group->n_devices,
                  ds_topo_vertex_path(r->plan->topo, link->from),
                  ds_topo_vertex_path(r->plan->topo, link->to), rate.text);
    ds_buf_deinit(&rate);
}

/* ---- time ---- */

/* The cause that a step waits for most. */
typedef struct wait {
    ds_time_kind kind;
    const char *what; /* of communication: its axes */
    ds_buf link;      /* and its slowest link */
} wait;

/* The critical path by cause, all compute as one cause. */
static void put_time(const ds_result *r, ds_buf *out, wait *most, ds_arena *arena) {
    ds_critical_path path;
    ds_causes causes;
    ds_critical_path_find(r, &path);
    ds_causes_of_path(r, &path, &causes);
    int64_t step_ps = r->run.step_ps, most_ps = path.total_ps[DS_TIME_COMPUTE];
    *most = (wait){.kind = DS_TIME_COMPUTE};
    ds_buf_printf(out, "  critical path   compute %.1f %%", percent(most_ps, step_ps));
    for (uint32_t i = 0; i < causes.rows.n; i++) {
        const ds_cause *cause = &causes.rows.at[i];
        if (cause->kind == DS_TIME_COMPUTE) continue;
        if (percent(cause->ps, step_ps) < 0.05) continue; /* would be 0.0 % */
        ds_buf link = {0};
        ds_buf_put(&link, "");
        if (cause->kind == DS_TIME_COMM) put_link(r, &path, cause->what, &link);
        ds_buf_printf(out, "\n                  %s%s%s%s %.1f %%%s%s",
                      ds_time_kind_name(cause->kind), *cause->what ? " (" : "", cause->what,
                      *cause->what ? ")" : "", percent(cause->ps, step_ps), link.n ? ": " : "",
                      link.text);
        if (cause->ps > most_ps) {
            ds_buf old = most->link;
            *most = (wait){cause->kind, ds_arena_strdup(arena, cause->what), link};
            most_ps = cause->ps;
            link = old;
        }
        ds_buf_deinit(&link);
    }
    ds_buf_putc(out, '\n');
    ds_causes_deinit(&causes);
    ds_critical_path_deinit(&path);
}

/* The share of a pipeline's time that is fill and drain, stages being equal: (p-1)/(v·m+p-1).
 * Source: Narayanan et al. 2021, arXiv:2104.04473, sections 2.2.1 and 2.2.2. */
static double pipeline_share(const ds_sweep_row *row) {
    double p = (double)cli_plan_int(row, "pp"), m = (double)cli_plan_int(row, "microbatches");
    double v = (double)cli_plan_int(row, "virtual_stages");
    return (p - 1) / (v * m + p - 1);
}

static void put_devices(const ds_result *r, const ds_sweep_row *row, ds_buf *out) {
    int64_t whole = 0, parts[3] = {0};
    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        int64_t n = r->plan->classes[i].n_devices;
        whole += n * (r->run.step_ps / 1000); /* nanoseconds: 10^6 devices do not overflow */
        parts[0] += n * (r->accounts[i].compute_ps / 1000);
        parts[1] += n * (r->accounts[i].exposed_comm_ps / 1000);
        parts[2] += n * (r->accounts[i].idle_ps / 1000);
    }
    ds_buf_printf(
        out,
        "  all devices     compute %.1f %%, communication that nothing hides %.1f %%, idle "
        "%.1f %%",
        percent(parts[0], whole), percent(parts[1], whole), percent(parts[2], whole));
    if (cli_plan_int(row, "pp") > 1)
        ds_buf_printf(out, " (the pipeline alone, with equal stages: %.1f %%)",
                      100 * pipeline_share(row));
    ds_buf_putc(out, '\n');
}

static void put_memory(const ds_result *r, ds_buf *out) {
    ds_buf peak = {0}, capacity = {0};
    ds_print_bytes(r->metrics.peak_bytes, &peak);
    ds_print_bytes(r->metrics.capacity_bytes, &capacity);
    ds_buf_printf(out, "  memory          %s of %s on %s:", peak.text,
                  r->metrics.capacity_bytes ? capacity.text : "an unknown capacity",
                  ds_topo_device_path(r->plan->topo, r->plan->classes[r->fullest].device));
    const int64_t *bytes = r->mem.classes[r->fullest].peak_by_category;
    const char *comma = "";
    for (int k = 0; k < ds_mem_n_categories(r->mem.mode); k++) {
        if (100 * bytes[k] < r->metrics.peak_bytes) continue;
        ds_buf_printf(out, "%s %s %.0f %%", comma, ds_mem_category_name(k),
                      percent(bytes[k], r->metrics.peak_bytes));
        comma = ",";
    }
    ds_buf_putc(out, '\n');
    ds_buf_deinit(&peak);
    ds_buf_deinit(&capacity);
}

/* ---- the other rows ---- */

typedef struct value {
    char *text;
    double best; /* of the objective, negated where more is better; INFINITY: none fits */
} value;

typedef struct knob {
    const char *name;
    uint32_t column;
    value values[MAX_VALUES];
    uint32_t n;
} knob;

typedef struct survey {
    uint32_t n_columns, objective, status;
    double sign, best;
    knob knobs[12];
    uint32_t n_knobs;
    uint64_t n_better;   /* candidates that would be better and do not fit */
    double better;       /* the best objective of these candidates */
    double better_bytes; /* and the memory of that candidate */
} survey;

static uint32_t column_of(const ds_sweep_row *row, const char *name) {
    for (uint32_t i = 0; i < row->n; i++)
        if (strcmp(row->columns[i], name) == 0) return i;
    return UINT32_MAX;
}

static void begin_survey(survey *s, const cli_plan *plan, const ds_sweep_row *row) {
    static const char *const names[] = {"tp",       "pp",
                                        "cp",       "dp",
                                        "ep",       "microbatches",
                                        "schedule", "virtual_stages",
                                        "zero",     "reshard_after_forward",
                                        "recompute"};
    ds_metric_id objective = ds_metric_by_name(plan->objective);
    *s = (survey){.n_columns = row->n,
                  .objective = column_of(row, ds_metric_column(objective)),
                  .status = column_of(row, "status"),
                  .sign = ds_metric_at(objective)->more ? -1 : 1,
                  .better = INFINITY};
    s->best = s->sign * strtod(row->cells[s->objective], NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t at = column_of(row, names[i]);
        if (at != UINT32_MAX) s->knobs[s->n_knobs++] = (knob){.name = names[i], .column = at};
    }
}

static value *value_of(knob *k, const char *text) {
    for (uint32_t i = 0; i < k->n; i++)
        if (strcmp(k->values[i].text, text) == 0) return &k->values[i];
    if (k->n == MAX_VALUES) return NULL;
    k->values[k->n] = (value){strcpy(ds_xmalloc(strlen(text) + 1), text), INFINITY};
    return &k->values[k->n++];
}

static void take_row(survey *s, const char *const *cells, uint32_t memory) {
    const char *status = cells[s->status];
    double at = s->sign * strtod(cells[s->objective], NULL);
    bool simulated = *cells[s->objective]; /* else a bound of memory was enough */
    if (strcmp(status, "does_not_fit") == 0 && simulated && at < s->best) {
        s->n_better++;
        if (at < s->better) s->better_bytes = strtod(cells[memory], NULL);
        if (at < s->better) s->better = at;
    }
    for (uint32_t i = 0; i < s->n_knobs; i++) {
        value *v = value_of(&s->knobs[i], cells[s->knobs[i].column]);
        if (v && strcmp(status, "ok") == 0 && at < v->best) v->best = at;
    }
}

static int by_number(const void *left, const void *right) {
    const value *a = left, *b = right;
    double x = strtod(a->text, NULL), y = strtod(b->text, NULL);
    return (x > y) - (x < y);
}

static ds_status read_rows(survey *s, const char *csv, const ds_sweep_row *row, ds_error *err) {
    uint32_t memory = column_of(row, "peak_memory");
    ds_csv_stream rows;
    bool found = true;
    DS_TRY(ds_csv_open(&rows, csv, err));
    ds_status status = ds_csv_next(&rows, &found, err); /* the columns */
    while (status == DS_OK && found) {
        status = ds_csv_next(&rows, &found, err);
        if (status == DS_OK && found && rows.n == s->n_columns) take_row(s, rows.cells, memory);
    }
    ds_csv_close(&rows);
    for (uint32_t i = 0; i < s->n_knobs; i++)
        if (s->knobs[i].n && strspn(s->knobs[i].values[0].text, "0123456789"))
            qsort(s->knobs[i].values, s->knobs[i].n, sizeof *s->knobs[i].values, by_number);
    return status;
}

static void put_knobs(const survey *s, const cli_plan *plan, const ds_sweep_row *row, ds_buf *out) {
    ds_buf_printf(
        out,
        "\nWhat each knob costs: the best %s found with each of its values, against the "
        "plan's (*); none: not legal, or nothing that fits; values without a simulation are "
        "left out\n",
        plan->objective);
    for (uint32_t i = 0; i < s->n_knobs; i++) {
        const knob *k = &s->knobs[i];
        if (k->n < 2) continue;
        ds_buf_printf(out, "  %-13s", k->name);
        for (uint32_t j = 0; j < k->n; j++) {
            const value *v = &k->values[j];
            bool chosen = strcmp(v->text, row->cells[k->column]) == 0;
            ds_buf_printf(out, "  %s%s", v->text, chosen ? " *" : "");
            double change = 100 * (v->best / s->best - 1) * s->sign;
            if (isinf(v->best))
                ds_buf_put(out, " none");
            else if (!chosen && isfinite(change))
                ds_buf_printf(out, " %+.1f %%", change);
            else if (!chosen) /* the plan's is 0, as a bubble may be */
                ds_buf_printf(out, " %.3g", v->best);
            if (j + 1 < k->n) ds_buf_putc(out, ',');
        }
        ds_buf_putc(out, '\n');
    }
}

static void put_too_large(const survey *s, ds_buf *out) {
    ds_buf bytes = {0};
    bool one = s->n_better == 1;
    ds_print_bytes((int64_t)s->better_bytes, &bytes);
    ds_buf_printf(out,
                  "memory: %" PRIu64 " candidate%s would be better and do%s not fit; the best of "
                  "them by %.1f %%, with %s a device",
                  s->n_better, one ? "" : "s", one ? "es" : "", 100 * fabs(s->better / s->best - 1),
                  bytes.text);
    ds_buf_deinit(&bytes);
}

/* assumed: a fifth of the devices' time idle is worth saying before anything but memory. */
static void put_binding(const survey *s, const wait *most, const ds_result *r, ds_buf *out) {
    static const char *const texts[DS_TIME_KIND_COUNT] = {
        [DS_TIME_COMPUTE] = "compute: memory is enough, and links are fast enough",
        [DS_TIME_COMM] = "communication",
        [DS_TIME_HOST] = "the host, which issues operations too slowly",
        [DS_TIME_IDLE] = "waiting",
        [DS_TIME_OVERHEAD] = "the fixed cost of an iteration"};
    ds_buf_put(out, "  what binds      ");
    if (s->n_better) {
        put_too_large(s, out);
    } else if (r->metrics.bubble_fraction > 0.2) {
        ds_buf_put(out, "idle devices: the bubble of the pipeline, or stages that wait");
    } else {
        ds_buf_put(out, texts[most->kind]);
        if (most->link.n) ds_buf_printf(out, " over %s: %s", most->what, most->link.text);
    }
    ds_buf_putc(out, '\n');
}

static void put_all(const cli_plan *plan, const ds_sweep_row *row, const ds_result *r,
                    const survey *rows, ds_buf *out) {
    wait most;
    ds_arena arena;
    ds_arena_init(&arena);
    ds_buf_put(out, "\nWhy plan 1\n");
    put_time(r, out, &most, &arena);
    put_devices(r, row, out);
    put_memory(r, out);
    put_binding(rows, &most, r, out);
    put_knobs(rows, plan, row, out);
    ds_buf_deinit(&most.link);
    ds_arena_deinit(&arena);
}

ds_status cli_plan_put_why(const cli_plan *plan, const ds_sweep_row *row, const char *csv,
                           const ds_profiles *profiles, ds_buf *out, ds_error *err) {
    step s = {0};
    survey all;
    begin_survey(&all, plan, row);
    ds_status status = read_rows(&all, csv, row, err);
    if (status == DS_OK) status = simulate_row(plan, row, profiles, &s, err);
    if (status == DS_OK) {
        put_all(plan, row, s.result, &all, out);
        ds_result_free(s.result);
    }
    ds_unit_free(s.unit);
    for (uint32_t i = 0; i < all.n_knobs; i++)
        for (uint32_t j = 0; j < all.knobs[i].n; j++) free(all.knobs[i].values[j].text);
    return status;
}
