/* The names that conditions of a lesson know, and their values of a run. */
#include "ir/strategy/scenario.h"
#include "sim/coll/coll.h"
#include "sim/run/montecarlo.h"
#include "tools/cli/lesson/lesson.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    lesson_values *out;
    ds_unit *unit;
} maker;

static void add(maker *m, const char *name, ds_num value) {
    name = ds_intern(&m->unit->strings, name);
    for (uint32_t i = 0; i < m->out->names.n; i++)
        if (m->out->names.at[i] == name) return;
    DS_PUSH(&m->unit->arena, &m->out->names, name);
    DS_PUSH(&m->unit->arena, &m->out->all, ((ds_named){name, value}));
}

static void add_real(maker *m, const char *name, double value) {
    add(m, name, (ds_num){.kind = DS_NUM_REAL, .r = value});
}

static void add_int(maker *m, const char *name, int64_t value) {
    add(m, name, (ds_num){.kind = DS_NUM_INT, .i = value});
}

/* A knob's value as text: an integer, a real, true or false, or a word. */
static ds_num read_value(maker *m, const char *text) {
    char *end;
    ds_num value = {.kind = DS_NUM_INT, .i = strtoll(text, &end, 10)};
    bool flag;
    if (*text && !*end) return value;
    value = (ds_num){.kind = DS_NUM_REAL, .r = strtod(text, &end)};
    if (*text && !*end) return value;
    if (ds_num_parse_bool(text, &flag)) return ds_num_bool(flag);
    size_t quoted = *text == '"';
    return (ds_num){.kind = DS_NUM_STR,
                    .s = ds_intern_n(&m->unit->strings, text + quoted, strlen(text) - 2 * quoted)};
}

/* The scenario's value of a knob, where it says one that is a number or a text. */
static bool stated_value(const ds_binding *binding, const ds_knob *knob, ds_num *out) {
    const ds_attr *attr = ds_scenario_find(binding->unit, knob->section, knob->name);
    ds_env env = ds_binding_env(binding, NULL);
    return attr && ds_knob_value(knob, &env, attr, out);
}

static void add_knobs(maker *m, const ds_result *r) {
    const ds_model_step *step = r->step;
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        bool strategy = strcmp(knobs[i].section, "strategy") == 0;
        if (!knobs[i].bytes || (!strategy && strcmp(knobs[i].section, "train") != 0)) continue;
        ds_num value;
        if (stated_value(r->source, &knobs[i], &value)) {
            add(m, knobs[i].name, value);
            continue;
        }
        ds_buf text = {0};
        ds_buf_put(&text, "");
        ds_knob_print(&knobs[i],
                      strategy ? (const void *)&step->strategy : (const void *)&step->train, &text);
        add(m, knobs[i].name, read_value(m, text.text));
        ds_buf_deinit(&text);
    }
}

/* Degrees and prices are a sweep's. */
static void add_metrics(maker *m, const ds_metrics *metrics) {
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        ds_metric_id id = (ds_metric_id)i;
        const ds_metric *metric = ds_metric_at(id);
        const char *name = metric->sweep ? metric->sweep : metric->json;
        if (!name || metric->known || metric->kind == DS_METRIC_IS_PRICE ||
            !ds_metric_is_known(metrics, id))
            continue;
        size_t n = strlen(name),
               tail = metric->kind == DS_METRIC_IS_PS && n > 3 && strcmp(name + n - 3, "_ps") == 0
                          ? 3
                          : 0;
        const char *bare = ds_intern_n(&m->unit->strings, name, n - tail);
        if (metric->kind == DS_METRIC_IS_FLAG)
            add(m, bare, ds_num_bool(ds_metric_measure(metrics, id) > 0));
        else if (metric->kind == DS_METRIC_IS_BYTES || metric->kind == DS_METRIC_IS_COUNT)
            add_int(m, bare, (int64_t)ds_metric_measure(metrics, id));
        else
            add_real(m, bare, ds_metric_measure(metrics, id));
    }
}

static void add_memory(maker *m, const ds_result *r) {
    const ds_mem_class *fullest = &r->mem.classes[r->fullest];
    for (int k = 0; k < ds_mem_n_categories(r->mem.mode); k++) {
        ds_buf name = {0};
        ds_buf_printf(&name, "%s_memory", ds_mem_category_name(k));
        add_int(m, name.text, fullest->peak_by_category[k]);
        ds_buf_deinit(&name);
    }
}

enum { MOST_ALGORITHMS = 32 }; /* assumed: of all collectives together; those beyond have no name */

/* What a class of devices sends and how long it takes, by op and by algorithm. */
typedef struct traffic {
    double bytes, of_op[DS_OP_COUNT], time_s[MOST_ALGORITHMS];
    int64_t n_of_op[DS_OP_COUNT];
} traffic;

/* By the bus factors of nccl-tests: what leaves a member of a ring, or the sender of a message. */
static void add_task(const ds_result *r, uint32_t task, traffic *t) {
    const ds_plan *plan = r->plan;
    const ds_group *group = plan->activities[plan->task_activity[task]].group;
    const ds_record *record = ds_plan_task_record(plan, task);
    ds_opcode op = group->request ? group->request->op : record->op->code;
    int64_t times = ds_plan_times(plan, plan->task_inst[task]);
    bool pair = op == DS_OP_SEND || op == DS_OP_RECV;
    bool receives = pair && group->devices[0] != plan->classes[plan->task_class[task]].device;
    double bytes =
        receives ? 0
                 : ds_coll_bus_factor(op, group->n_devices) * (double)group->bytes * (double)times;
    t->bytes += bytes;
    t->of_op[op] += bytes;
    t->n_of_op[op] += times;
    for (uint32_t i = 0; group->algorithm && i < MOST_ALGORITHMS; i++) {
        const char *name = ds_coll_algorithm(i);
        if (!name) break;
        if (strcmp(name, group->algorithm) == 0)
            t->time_s[i] += (double)(times * (r->run.end_ps[task] - r->run.start_ps[task])) * 1e-12;
    }
}

static void add_traffic(maker *m, const ds_result *r) {
    const ds_plan *plan = r->plan;
    traffic *all = ds_xcalloc(plan->n_classes, sizeof *all), *most = all;
    for (uint32_t t = 0; t < plan->n_tasks; t++)
        if (plan->task_activity[t] != DS_NONE) add_task(r, t, &all[plan->task_class[t]]);
    for (uint32_t c = 0; c < plan->n_classes; c++)
        if (all[c].bytes > most->bytes) most = &all[c];
    add_real(m, "bytes_sent", most->bytes);
    ds_buf name = {0};
    for (int op = DS_OP_FIRST_TABLE_OP; op < DS_OP_COUNT; op++) {
        if (!(ds_op_desc_of((ds_opcode)op)->flags & DS_OPF_COLLECTIVE)) continue;
        name.n = 0;
        ds_buf_printf(&name, "%s_bytes", ds_op_name((ds_opcode)op));
        add_real(m, name.text, most->of_op[op]);
        name.n = 0;
        ds_buf_printf(&name, "%s_count", ds_op_name((ds_opcode)op));
        add_int(m, name.text, most->n_of_op[op]);
    }
    for (uint32_t i = 0; i < MOST_ALGORITHMS && ds_coll_algorithm(i); i++) {
        name.n = 0;
        ds_buf_printf(&name, "%s_time", ds_coll_algorithm(i));
        add_real(m, name.text, most->time_s[i]);
    }
    ds_buf_deinit(&name);
    free(all);
}

static double busy_s(const ds_result *r) {
    double sum = 0;
    for (uint32_t c = 0; c < r->plan->n_classes; c++)
        sum += (double)r->accounts[c].compute_ps * 1e-12 * r->plan->classes[c].n_devices;
    return sum;
}

static void add_jitter(maker *m, const ds_monte_carlo *mc) {
    static const int percentiles[] = DS_PERCENTILES;
    add_real(m, "step_mean", (double)mc->mean_ps * 1e-12);
    for (int i = 0; i < DS_N_PERCENTILES; i++) {
        ds_buf name = {0};
        ds_buf_printf(&name, "step_p%d", percentiles[i]);
        add_real(m, name.text, (double)mc->percentile_ps[i] * 1e-12);
        ds_buf_deinit(&name);
    }
}

void lesson_values_read(const ds_result *r, ds_unit *unit, lesson_values *out) {
    maker m = {out, unit};
    *out = (lesson_values){0};
    if (r->step) add_knobs(&m, r);
    add_metrics(&m, &r->metrics);
    add_memory(&m, r);
    add_traffic(&m, r);
    add_real(&m, "busy", busy_s(r));
    if (r->monte_carlo) add_jitter(&m, r->monte_carlo);
}
