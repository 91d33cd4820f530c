/* The result as one JSON object. Integers (ps, bytes) stay exact; scripts depend on these names. */
#include "ir/core/rec.h"
#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"
#include "sim/report/costs.h"
#include "sim/report/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS       5
#define MAX_NAMED_CLASSES 64 /* with more, the object would be mostly names */

static void put_times(ds_json *json, const ds_account *a) {
    ds_json_key_int(json, "compute_ps", a->compute_ps);
    ds_json_key_int(json, "exposed_comm_ps", a->exposed_comm_ps);
    ds_json_key_int(json, "hidden_comm_ps", a->hidden_comm_ps);
    ds_json_key_int(json, "idle_ps", a->idle_ps);
}

/* Shares of compute time, and of transfer time, by where the durations come from. */
static void put_origins(ds_json *json, const ds_account *a) {
    double whole = 0;
    for (int o = 0; o < DS_COST_ORIGIN_COUNT; o++) whole += (double)a->origin_ps[o];
    ds_json_key(json, "cost_origin");
    ds_json_begin_object(json);
    for (int o = 0; o < DS_COST_ORIGIN_COUNT; o++)
        ds_json_key_double(json, ds_cost_origin_name((ds_cost_origin)o),
                           ds_ratio((double)a->origin_ps[o], whole));
    ds_json_end_object(json);
    ds_json_key_double(json, "cost_extrapolated", ds_ratio((double)a->extrapolated_ps, whole));
    ds_json_key_double(json, "cost_fitted", ds_ratio((double)a->fitted_ps, whole));
    whole = 0;
    for (int o = 0; o < DS_COMM_ORIGIN_COUNT; o++) whole += (double)a->comm_origin_ps[o];
    ds_json_key(json, "comm_origin");
    ds_json_begin_object(json);
    for (int o = 0; o < DS_COMM_ORIGIN_COUNT; o++)
        ds_json_key_double(json, ds_comm_origin_name((ds_comm_origin)o),
                           ds_ratio((double)a->comm_origin_ps[o], whole));
    ds_json_end_object(json);
    ds_json_key_double(json, "comm_extrapolated", ds_ratio((double)a->comm_extrapolated_ps, whole));
}

static void put_bound(ds_json *json, const char *key, int64_t ps, bool is_known) {
    ds_json_key(json, key);
    if (is_known)
        ds_json_int(json, ps);
    else
        ds_json_null(json);
}

/* Nine in ten, null where no residual is known; as certain as the fits' residuals are known. */
static void put_uncertainty(ds_json *json, const ds_result *r) {
    ds_uncertainty u = ds_result_uncertainty(r);
    ds_json_key(json, "step_time_interval_ps");
    ds_json_begin_object(json);
    put_bound(json, "low", u.low_ps, u.covered_ps > 0);
    put_bound(json, "high", u.high_ps, u.covered_ps > 0);
    ds_json_key_int(json, "covered", u.covered_ps);
    ds_json_key_int(json, "unknown", u.unknown_ps);
    ds_json_end_object(json);
}

static void put_capacity(ds_json *json, int64_t bytes) {
    ds_json_key(json, "memory_capacity_bytes");
    if (bytes)
        ds_json_int(json, bytes);
    else
        ds_json_null(json); /* not known */
}

static void put_path(ds_json *json, const char *key, const ds_result *r, uint32_t inst) {
    ds_buf path = {0};
    ds_report__op_path(r, inst, &path);
    ds_json_key_string(json, key, path.text);
    ds_buf_deinit(&path);
}

/* Where costs come from, and the framework of a model. */
static void put_costs(ds_json *json, const ds_result *r) {
    uint32_t n;
    ds_cost_source *sources = ds_report__cost_sources(r, &n);
    const char *framework = NULL;
    bool bound = false;
    ds_report_costs_json(r->plan->profiles, sources, n, json);
    for (uint32_t k = 0; k < n; k++) bound = bound || ds_result_is_bound(r, sources[k].kind);
    ds_json_key_bool(json, "is_bound", bound);
    if (ds_scenario_text(r->source, "", "framework", &framework, NULL) == DS_OK && framework) {
        ds_json_key_string(json, "framework", framework);
        ds_json_key_bool(json, "framework_is_default", r->source->unit->assumes_framework);
    }
    free(sources);
}

static void put_kinds(ds_json *json, const ds_result *r) {
    uint32_t n;
    ds_kind_total *kinds = ds_kind_totals(r, &n);
    ds_json_key(json, "per_kind");
    ds_json_begin_array(json);
    for (uint32_t k = 0; k < n; k++) {
        double device_s = (double)r->run.step_ps * 1e-12 * kinds[k].n_devices;
        ds_json_begin_object(json);
        ds_json_key_string(json, "kind", ds_profiles_kind(r->plan->profiles, kinds[k].kind)->name);
        ds_json_key_int(json, "n_devices", kinds[k].n_devices);
        ds_json_key_double(json, "flop_per_s_per_device", ds_ratio(kinds[k].flop, device_s));
        ds_json_key_double(json, "mfu", ds_ratio(kinds[k].peak_s, device_s));
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    free(kinds);
}

static void put_categories(ds_json *json, const char *key, const ds_result *r,
                           const int64_t *bytes) {
    ds_json_key(json, key);
    ds_json_begin_object(json);
    for (int k = 0; k < ds_mem_n_categories(r->mem.mode); k++)
        ds_json_key_int(json, ds_mem_category_name(k), bytes[k]);
    ds_json_end_object(json);
}

/* A caching allocator: what buffers hold at most, what is reserved for them at the peak, and the
 * share of that which nothing uses then. */
static void put_allocator(ds_json *json, const ds_result *r, const ds_mem_class *mem) {
    if (r->mem.mode != DS_MEM_ALLOCATOR) return;
    int64_t reserved = mem->peak_bytes - ds_mem_beside(mem->peak_by_category);
    ds_json_key_int(json, "allocated_peak_bytes", mem->allocated_bytes);
    ds_json_key_int(json, "reserved_peak_bytes", reserved);
    ds_json_key_double(json, "fragmentation",
                       ds_ratio((double)mem->peak_by_category[DS_MEM_UNUSED], (double)reserved));
}

static void put_class(ds_json *json, const ds_result *r, uint32_t c) {
    const ds_class *cls = &r->plan->classes[c];
    const ds_mem_class *mem = &r->mem.classes[c];
    ds_json_begin_object(json);
    ds_json_key_string(json, "device", ds_report__device(r->plan, c));
    ds_json_key_int(json, "n_devices", cls->n_devices);
    ds_json_key_string(json, "kind", ds_report__kind(r->plan, c));
    ds_json_key_string(json, "profile", ds_profile_name(r->plan->profiles, cls->profile));
    put_times(json, &r->accounts[c]);
    ds_json_key_int(json, "end_ps", r->accounts[c].end_ps);
    ds_json_key_int(json, "tasks", r->accounts[c].n_tasks);
    ds_json_key_double(json, "flop", r->accounts[c].flop);
    put_origins(json, &r->accounts[c]);
    ds_json_key_int(json, "peak_memory_bytes", mem->peak_bytes);
    ds_json_key_int(json, "peak_memory_at_ps", mem->peak_ps);
    put_capacity(json, ds_profiles_kind(r->plan->profiles, cls->kind)->memory_bytes);
    put_categories(json, "peak_by_category", r, mem->peak_by_category);
    put_categories(json, "most_by_category", r, mem->most_by_category);
    put_categories(json, "input_by_category", r, mem->input_by_category);
    put_allocator(json, r, mem);
    ds_json_key_bytes(json, "host_peak_bytes", ds_mem_host_peak(mem));
    if (r->plan->n_classes <= MAX_NAMED_CLASSES) ds_report__put_live(json, r, c);
    ds_json_end_object(json);
}

/* What is kept in the memory of hosts, by all their devices together. */
static void put_hosts(ds_json *json, const ds_result *r) {
    ds_json_key(json, "hosts");
    ds_json_begin_array(json);
    for (uint32_t h = 0; h < r->n_hosts; h++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "host", ds_topo_vertex_path(r->plan->topo, r->hosts[h].vertex));
        ds_json_key_int(json, "n_devices", r->hosts[h].n_devices);
        ds_json_key_int(json, "peak_bytes", r->hosts[h].peak_bytes);
        ds_json_key_int(json, "peak_at_ps", r->hosts[h].peak_ps);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

/* The largest tensors at the peak of the fullest device. */
static void put_tensors(ds_json *json, const ds_result *r) {
    uint32_t n;
    ds_mem_live *live = ds_mem_live_at_peak(&r->mem, r->fullest, &n);
    ds_json_key(json, "largest_at_peak");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n && i < MAX_TENSORS; i++) {
        ds_buf path = {0};
        ds_report__value_path(r->plan, live[i].value, &path);
        ds_json_begin_object(json);
        ds_json_key_string(json, "path", path.text);
        ds_json_key_int(json, "bytes", live[i].bytes);
        ds_json_key_string(json, "category",
                           ds_mem_category_name((int)ds_mem_category(r->plan, live[i].value)));
        ds_json_end_object(json);
        ds_buf_deinit(&path);
    }
    ds_json_end_array(json);
    free(live);
}

/* What is missing, and the first allocation that found no room. */
static void put_overflow(ds_json *json, const ds_result *r) {
    const ds_mem_class *mem = &r->mem.classes[r->fullest];
    ds_json_key_int(json, "missing_bytes", r->metrics.peak_bytes - r->metrics.capacity_bytes);
    if (mem->over_event == DS_NONE) return;
    const ds_mem_event *e = &mem->events[mem->over_event];
    ds_buf path = {0};
    ds_report__value_path(r->plan, e->value, &path);
    ds_json_key(json, "first_without_room");
    ds_json_begin_object(json);
    ds_json_key_string(json, "path", path.text);
    ds_json_key_int(json, "bytes", e->delta_bytes);
    ds_json_key_int(json, "at_ps", e->time_ps);
    ds_json_end_object(json);
    ds_buf_deinit(&path);
}

static void put_ops(ds_json *json, const ds_result *r) {
    uint32_t n;
    ds_op_total *ops = ds_report__ops(r, r->critical, &n);
    ds_json_key(json, "ops");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "op", ops[i].record->label);
        put_path(json, "path", r, ops[i].inst);
        ds_json_key_int(json, "count", ops[i].n);
        ds_json_key_int(json, "total_ps", ops[i].ps);
        if (!ops[i].group) ds_json_key_double(json, "flop", ops[i].flop);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    free(ops);
}

/* Which axes, major first; null where members are given otherwise. */
static void put_over(ds_json *json, const ds_op *op) {
    ds_buf text = {0};
    for (uint32_t i = 0; i < op->n_over; i++)
        ds_buf_printf(&text, "%s%s", i ? " " : "", op->over[i]);
    ds_json_key(json, "over");
    if (text.n)
        ds_json_string(json, text.text);
    else
        ds_json_null(json);
    ds_buf_deinit(&text);
}

/* Between which times nine in ten lie; null where no residuals are known. */
static void put_interval(ds_json *json, int64_t ps, const ds_cost_spread *spread) {
    ds_json_key(json, "total_interval_ps");
    if (!(spread->low > 0)) {
        ds_json_null(json);
        return;
    }
    ds_json_begin_object(json);
    ds_json_key_int(json, "low", (int64_t)((double)ps * spread->low));
    double high = (double)ps * spread->high;
    ds_json_key_int(json, "high", high < 9e18 ? (int64_t)high : INT64_MAX);
    ds_json_end_object(json);
}

static void put_collectives(ds_json *json, const ds_result *r) {
    uint32_t n;
    ds_op_total *ops = ds_report__collectives(r, &n);
    ds_json_key(json, "collectives");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "op", ops[i].record->label);
        put_path(json, "path", r, ops[i].inst);
        ds_json_key_string(json, "algorithm", ds_report__algorithm(ops[i].group));
        ds_json_key_int(json, "values", ops[i].record->n_out);
        put_over(json, ops[i].record->op);
        ds_json_key_int(json, "group_size", ops[i].group->n_devices);
        ds_json_key_int(json, "count", ops[i].n);
        ds_json_key_bytes(json, "bytes", ops[i].bytes);
        ds_json_key_int(json, "total_ps", ops[i].ps);
        ds_json_key_double(json, "bus_bytes_per_s",
                           ds_ratio(ops[i].bus_bytes, (double)ops[i].ps * 1e-12));
        ds_json_key_bool(json, "extrapolated", ops[i].group->terms.extrapolated);
        put_interval(json, ops[i].ps, &ops[i].group->terms.spread);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    free(ops);
}

/* Of stages of several widths. */
static void put_widths(ds_json *json, const char *name, const int64_t *widths, int64_t n) {
    if (!widths) return;
    ds_json_key(json, name);
    ds_json_begin_array(json);
    for (int64_t i = 0; i < n; i++) ds_json_int(json, widths[i]);
    ds_json_end_array(json);
}

/* How a rec becomes loops, as a scenario says so. */
static void put_rec(ds_json *json, const ds_strategy *strategy) {
    static const char *const names[] = {"prefill",      "prefill_chunk", "rec_stores", "rec_tile",
                                        "rec_prefetch", "rec_attention", "rec_fuse"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ds_knob *knob = ds_scenario_knob("strategy", names[i]);
        const void *field = (const char *)strategy + knob->offset;
        ds_buf text = {0};
        ds_knob_print(knob, strategy, &text);
        if (knob->kind != DS_KNOB_INT)
            ds_json_key_string(json, names[i], text.text);
        else if (*(const int64_t *)field)
            ds_json_key_int(json, names[i], *(const int64_t *)field);
        ds_buf_deinit(&text);
    }
}

/* What is recomputed and offloaded; of a pipeline its schedule. */
static void put_strategy_words(ds_json *json, const ds_model_step *step) {
    static const char *const balances[] = {"layers", "flops", "time"};
    const char *kept[3];
    uint32_t n = ds_report__offloaded(&step->strategy, kept);
    ds_buf text = {0};
    ds_report__recompute(&step->strategy, &text);
    ds_json_key_string(json, "recompute", text.text);
    ds_buf_deinit(&text);
    ds_json_key(json, "offload");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) ds_json_string(json, kept[i]);
    ds_json_end_array(json);
    if (n && step->strategy.offload_layers)
        ds_json_key_int(json, "offload_layers", step->strategy.offload_layers);
    if (n && step->strategy.offload_fraction < 1)
        ds_json_key_double(json, "offload_fraction", step->strategy.offload_fraction);
    if (step->strategy.pp < 2) return;
    if (step->train.on) {
        ds_json_key_string(json, "schedule", step->strategy.schedule);
        ds_json_key_int(json, "virtual_stages", ds_report__virtual_stages(step));
        ds_json_key_int(json, "weight_copies", step->schedule.n_copies);
    }
    ds_json_key_string(json, "balance", balances[step->strategy.balance]);
    ds_json_key(json, "stage_layers");
    ds_json_begin_array(json);
    int64_t n_chunks = step->train.on ? step->schedule.n_chunks : step->strategy.pp;
    for (int64_t c = 0; step->cut.chunk_turns && c < n_chunks; c++)
        ds_json_int(json, step->cut.chunk_turns[c]);
    ds_json_end_array(json);
    put_widths(json, "stage_dp", step->strategy.stage_dp, step->strategy.pp);
    put_widths(json, "stage_tp", step->strategy.stage_tp, step->strategy.pp);
}

/* Adapters, and documents of several lengths. */
static void put_train(ds_json *json, const ds_train *train) {
    if (train->on && train->lora_rank) {
        double rank = (double)train->lora_rank;
        ds_json_key(json, "lora");
        ds_json_begin_object(json);
        ds_json_key_int(json, "rank", train->lora_rank);
        ds_json_key_double(json, "alpha", isnan(train->lora_alpha) ? rank : train->lora_alpha);
        ds_json_key(json, "targets");
        ds_json_begin_array(json);
        if (!train->n_lora_names) ds_json_string(json, "all");
        for (uint32_t i = 0; i < train->n_lora_names; i++)
            ds_json_string(json, train->lora_names[i]);
        ds_json_end_array(json);
        ds_json_end_object(json);
    }
    if (!train->on || !train->n_documents) return;
    ds_json_key(json, "lengths");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < train->n_documents; i++) {
        ds_json_begin_object(json);
        ds_json_key_int(json, "tokens", train->documents[i].tokens);
        ds_json_key_double(json, "share", train->documents[i].share);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

/* Groups of operations, with the shares of the run. */
static void put_groups(ds_json *json, const ds_model_step *step) {
    const ds_attr *groups = step->strategy.groups;
    if (!groups) return;
    ds_json_key(json, "groups");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < groups->n_items; i++) {
        ds_op_group g;
        if (ds_group_read(&step->binding, &groups->items[i], &g, NULL) != DS_OK) continue;
        ds_json_begin_object(json);
        ds_json_key_string(json, "name", g.name);
        ds_json_key_string(json, "by", ds_group_way_word(g.by));
        if (g.shares) ds_json_key(json, "shares");
        if (g.shares) ds_json_begin_array(json);
        for (uint32_t k = 0; k < g.n_shares; k++) ds_json_int(json, g.shares[k]);
        if (g.shares) ds_json_end_array(json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

/* What passes made of a model. */
static void put_model(ds_json *json, const ds_result *r) {
    if (!r->step) return;
    const ds_strategy *s = &r->step->strategy;
    const struct {
        const char *name;
        int64_t value;
    } knobs[] = {{"dp", s->dp},    {"tp", s->tp}, {"pp", s->pp},
                 {"cp", s->cp},    {"ep", s->ep}, {"microbatches", s->microbatches},
                 {"zero", s->zero}};
    ds_json_key_string(json, "model", ds_scenario_model(r->source->unit)->name);
    ds_json_key_bool(json, "trains", r->step->train.on);
    put_train(json, &r->step->train);
    ds_json_key(json, "strategy");
    ds_json_begin_object(json);
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        ds_json_key_int(json, knobs[i].name, knobs[i].value);
    ds_json_key_bool(json, "sp", s->sp);
    if (s->dp_shares) {
        ds_json_key(json, "dp_shares");
        ds_json_begin_array(json);
        for (int64_t i = 0; i < ds_strategy_replicas(s); i++) ds_json_int(json, s->dp_shares[i]);
        ds_json_end_array(json);
    }
    put_groups(json, r->step);
    if (ds_rec_in(ds_scenario_model(r->source->unit), true)) put_rec(json, s);
    put_strategy_words(json, r->step);
    ds_json_end_object(json);
    ds_json_key(json, "passes");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < DS_PASS_COUNT; i++)
        if (r->step->done >> i & 1) ds_json_string(json, ds_pass_name((ds_pass_id)i));
    ds_json_end_array(json);
    ds_json_key_double(json, "model_flop", r->model_flop);
    ds_json_key_double(json, "padding_flop", r->padding_flop);
}

/* ---- the object: the results in the order of their table, and after some of them what belongs
 * there */

static void after_step(ds_json *json, const ds_result *r) {
    put_costs(json, r);
    put_uncertainty(json, r);
    if (r->plan->overhead_ps) ds_json_key_int(json, "iteration_overhead_ps", r->plan->overhead_ps);
    if (r->n_jobs) ds_json_key_int(json, "makespan_ps", r->run.step_ps);
}

static void put_tokens(ds_json *json, const ds_token_times *t) {
    if (!t) return;
    ds_json_key(json, "tokens");
    ds_json_begin_object(json);
    ds_json_key_string(json, "dim", t->dim);
    ds_json_key_int(json, "prompt", t->prompt);
    ds_json_key_int(json, "batch", t->batch);
    ds_json_key_int(json, "first_token_ps", t->first_ps);
    ds_json_key_double(json, "mean_token_ps", t->mean_ps);
    ds_json_key_double(json, "tokens_per_s", t->per_s);
    ds_json_key_int(json, "cache_bytes", t->cache_bytes);
    if (t->n_cache) {
        ds_json_key(json, "cache_steps");
        ds_json_begin_array(json);
        for (uint32_t i = 0; i < t->n_cache; i++) {
            ds_json_begin_object(json);
            ds_json_key_int(json, "turn", t->cache[i].turn);
            ds_json_key_int(json, "bytes", t->cache[i].bytes);
            ds_json_end_object(json);
        }
        ds_json_end_array(json);
    }
    ds_json_key(json, "token_ps");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < t->n; i++) ds_json_int(json, t->ps[i]);
    ds_json_end_array(json);
    ds_json_end_object(json);
}

static void after_throughput(ds_json *json, const ds_result *r) {
    ds_json_key_string(json, "throughput_unit", r->counts_samples ? "samples" : "steps");
    put_tokens(json, r->tokens);
}

static void after_tasks(ds_json *json, const ds_result *r) {
    put_model(json, r);
    ds_topo_put_clocks(r->plan->topo, json);
    ds_topo_put_degraded(r->plan->topo, json);
    ds_report__json_runs(r, json);
    ds_report__json_jobs(r, json);
}

static void after_fits(ds_json *json, const ds_result *r) {
    ds_json_key_string(json, "memory_mode", ds_mem_mode_name(r->mem.mode));
    if (!r->metrics.fits) put_overflow(json, r);
    ds_report__put_advice(json, r);
    ds_report__put_faster_cut(json, r);
    ds_json_key_string(json, "fullest_device", ds_report__device(r->plan, r->fullest));
    put_categories(json, "memory", r, r->mem.classes[r->fullest].peak_by_category);
    put_categories(json, "state", r, r->mem.classes[r->fullest].input_by_category);
}

static void after_bubble(ds_json *json, const ds_result *r) {
    ds_json_key_string(json, "critical_device", ds_report__device(r->plan, r->critical));
}

static void put_results(ds_json *json, const ds_result *r) {
    static void (*const after[DS_METRIC_COUNT])(ds_json *, const ds_result *) = {
        [DS_METRIC_step_ps] = after_step,
        [DS_METRIC_throughput_per_s] = after_throughput,
        [DS_METRIC_tasks] = after_tasks,
        [DS_METRIC_fits] = after_fits,
        [DS_METRIC_bubble_fraction] = after_bubble};
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (metric->json && metric->place != DS_AMONG_TOKENS) /* these are in `tokens` */
            ds_metric_put_json(&r->metrics, (ds_metric_id)i, json);
        if (after[i]) after[i](json, r);
    }
}

/* Knobs of the scenario that do nothing. */
static void put_warnings(ds_json *json, const ds_result *r) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_knobs_warn(r->source, NULL, &diags);
    ds_diags_put_json(&diags, json);
    ds_diags_deinit(&diags);
}

void ds_report__put_run(const ds_result *r, bool segments, ds_json *json) {
    ds_json_begin_object(json);
    ds_json_key_string(json, "version", DS_VERSION);
    ds_json_key_string(json, "file", r->source->unit->modules.at[0]->path);
    if (r->plan->title) ds_json_key_string(json, "title", r->plan->title);
    put_warnings(json, r);
    put_results(json, r);
    put_origins(json, &r->accounts[r->critical]);
    ds_report__json_stages(r, json);
    put_kinds(json, r);
    ds_json_key(json, "per_class");
    ds_json_begin_array(json);
    for (uint32_t c = 0; c < r->plan->n_classes; c++) put_class(json, r, c);
    ds_json_end_array(json);
    put_hosts(json, r);
    put_ops(json, r);
    put_collectives(json, r);
    put_tensors(json, r);
    ds_report__json_critical(r, segments, json);
    ds_json_end_object(json);
}

void ds_report_json(const ds_result *r, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_report__put_run(r, true, &json);
    ds_buf_putc(out, '\n');
}
