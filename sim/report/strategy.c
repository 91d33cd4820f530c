/* Strategies in words: knobs that differ from their defaults, and cuts of pipelines. */
#include "sim/report/internal.h"

#include "ir/strategy/group.h"

#include <string.h>

static const char *const kept_kinds[] = {"activations", "optimizer", "weights"};

/* ", tp 8:4": the widths of stages, at most 8. */
static void put_widths(const ds_strategy *s, const char *name, const int64_t *widths, ds_buf *out) {
    bool alike = true;
    for (int64_t i = 1; i < s->pp; i++) alike = alike && widths[i] == widths[0];
    if (alike && widths[0] == 1) return;
    for (int64_t i = 0; i < (alike ? 1 : s->pp) && i < 8; i++)
        ds_buf_printf(out, "%s%s%s%lld", i ? ":" : ", ", i ? "" : name, i ? "" : " ",
                      (long long)widths[i]);
    if (!alike && s->pp > 8) ds_buf_put(out, ":...");
}

static void put_degrees(const ds_strategy *s, ds_buf *out) {
    const struct {
        const char *name;
        int64_t value;
    } degrees[] = {{"pp", s->pp}, {"dp", s->dp}, {"cp", s->cp}, {"tp", s->tp}, {"ep", s->ep}};
    uint32_t n = 0;
    for (uint32_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (degrees[i].value > 1)
            ds_buf_printf(out, "%s%s %lld", n++ ? ", " : "", degrees[i].name,
                          (long long)degrees[i].value);
    if (!n) ds_buf_put(out, "one device");
    if (!s->stage_dp) return;
    put_widths(s, "dp", s->stage_dp, out);
    put_widths(s, "tp", s->stage_tp, out);
}

/* ", batch 3:1": the parts of replicas, at most 8. */
static void put_shares(const ds_strategy *s, ds_buf *out) {
    int64_t n = ds_strategy_replicas(s);
    for (int64_t i = 0; s->dp_shares && i < n && i < 8; i++)
        ds_buf_printf(out, "%s%lld", i ? ":" : ", batch ", (long long)s->dp_shares[i]);
    if (s->dp_shares && n > 8) ds_buf_put(out, ":...");
    if (s->dp_shares_by_time) ds_buf_put(out, s->dp_shares ? " by time" : ", equal parts by time");
}

/* ", head duplicate, body all_reduce 3:1" */
static void put_groups(const ds_model_step *step, ds_buf *out) {
    const ds_attr *groups = step->strategy.groups;
    for (uint32_t i = 0; groups && i < groups->n_items; i++) {
        ds_op_group g;
        if (ds_group_read(&step->binding, &groups->items[i], &g, NULL) != DS_OK) continue;
        ds_buf_printf(out, ", %s %s", g.name, ds_group_way_word(g.by));
        for (uint32_t k = 0; k < g.n_shares && k < 8; k++)
            ds_buf_printf(out, "%s%lld", k ? ":" : " ", (long long)g.shares[k]);
        if (g.n_shares > 8) ds_buf_put(out, ":...");
        const bool *idle = step->strategy.sfb_idle;
        if (idle && idle[i]) ds_buf_put(out, " (sfb gains nothing)");
    }
}

/* "layernorm + moe_act + 2 ops" */
static void put_recompute_list(const ds_strategy *s, ds_buf *out) {
    const char *gap = "";
#define DS_X(name, word, bit)                                                                      \
    if (s->recompute_modules & bit) {                                                              \
        ds_buf_printf(out, "%s%s", gap, word);                                                     \
        gap = " + ";                                                                               \
    }
    DS_RECOMPUTE_MODULE_MAP(DS_X)
#undef DS_X
    if (!s->recompute_modules || s->n_recompute_ops)
        ds_buf_printf(out, "%s%u op%s", gap, s->n_recompute_ops,
                      s->n_recompute_ops == 1 ? "" : "s");
}

void ds_report__recompute(const ds_strategy *s, ds_buf *out) {
    static const char *const words[] = {"none", "selective", "full"};
    if (s->recompute == DS_RECOMPUTE_EVERY)
        ds_buf_printf(out, "every:%lld", (long long)s->recompute_every);
    else if (s->recompute == DS_RECOMPUTE_OPS)
        put_recompute_list(s, out);
    else
        ds_buf_put(out, words[s->recompute]);
    if (s->recompute == DS_RECOMPUTE_NONE || !s->recompute_layers) return;
    ds_buf_put(out, " (");
    ds_strategy_put_recompute_layers(s, out);
    ds_buf_put(out, ")");
}

uint32_t ds_report__offloaded(const ds_strategy *s, const char *out[3]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < 3; i++)
        if (s->offload >> i & 1) out[n++] = kept_kinds[i];
    return n;
}

int64_t ds_report__virtual_stages(const ds_model_step *step) {
    const ds_schedule_index *schedule = &step->schedule;
    return schedule->n_ranks ? schedule->n_chunks / schedule->n_ranks : 1;
}

/* The turns of chunks, where chunks differ. */
static void put_layers(const ds_model_step *step, ds_buf *out) {
    const int64_t *turns = step->cut.chunk_turns;
    uint32_t n = step->schedule.n_chunks, c = 1;
    while (turns && c < n && turns[c] == turns[0]) c++;
    if (!turns || c >= n) return;
    ds_buf_put(out, ", layers ");
    ds_report__layers(&step->schedule, turns, out);
}

static void put_pipeline(const ds_model_step *step, ds_buf *out) {
    static const char *const p2ps[] = {"overlapped", "batched", "blocking", "paired", "buffered"};
    const ds_strategy *s = &step->strategy;
    if (s->pp < 2) return;
    int64_t v = ds_report__virtual_stages(step);
    if (step->train.on) ds_buf_printf(out, ", schedule %s", s->schedule);
    if (v > 1) ds_buf_printf(out, " with %lld chunks a stage", (long long)v);
    if (step->schedule.n_copies > 1)
        ds_buf_printf(out, " and %u copies of the weights", step->schedule.n_copies);
    if (s->balance == DS_BALANCE_TIME)
        ds_buf_put(out, ", balanced by time");
    else if (s->n_stage_layers)
        ds_buf_put(out, ", cut by hand");
    else if (s->balance == DS_BALANCE_FLOPS)
        ds_buf_put(out, ", balanced by flops");
    put_layers(step, out);
    if (s->p2p != DS_P2P_OVERLAPPED) ds_buf_printf(out, ", p2p %s", p2ps[s->p2p]);
    if (s->scatter_gather) ds_buf_put(out, ", scatter and gather");
}

void ds_report__strategy(const ds_model_step *step, ds_buf *out) {
    static const char *const overlaps[] = {"none", "bulk", "ring", "pipe"};
    static const char *const stores[] = {"rings",    "whole", "point",      "block", "paged",
                                         "circular", "ring",  "functional", "host"};
    const ds_strategy *s = &step->strategy;
    put_degrees(s, out);
    put_shares(s, out);
    put_groups(step, out);
    if (step->train.on && step->train.lora_rank)
        ds_buf_printf(out, ", LoRA of rank %lld", (long long)step->train.lora_rank);
    if (s->sp) ds_buf_put(out, ", sequence parallel");
    if (s->zero) ds_buf_printf(out, ", zero %lld", (long long)s->zero);
    if (s->zero == 3 && s->reshard_after == DS_RESHARD_NEVER)
        ds_buf_put(out, ", weights stay gathered");
    if (s->zero >= 2 && s->no_sync) ds_buf_put(out, ", one scatter a step");
    if (s->tp_overlap) ds_buf_printf(out, ", tp overlap %s", overlaps[s->tp_overlap]);
    if (s->ep_overlap) ds_buf_put(out, ", ep overlap");
    if (s->ep_dispatch == DS_EP_DEEPEP) ds_buf_put(out, ", ep dispatch deepep");
    if (s->prefill == DS_PREFILL_VECTOR) ds_buf_put(out, ", prefill vector");
    if (s->prefill == DS_PREFILL_VECTOR && s->prefill_chunk)
        ds_buf_printf(out, " in chunks of %lld", (long long)s->prefill_chunk);
    if (s->rec_stores) ds_buf_printf(out, ", rec stores %s", stores[s->rec_stores]);
    if (s->rec_tile) ds_buf_printf(out, " of %lld points", (long long)s->rec_tile);
    if (s->rec_attention == DS_REC_TILES) ds_buf_put(out, ", rec attention in tiles");
    if (s->rec_fuse == DS_REC_APART) ds_buf_put(out, ", rec loops apart");
    if (s->rec_shapes == DS_REC_STATIC) ds_buf_put(out, ", rec shapes static");
    if (s->ep_dispatch == DS_EP_DEEPEP && s->ep_nodes)
        ds_buf_printf(out, " to %lld nodes", (long long)s->ep_nodes);
    if (s->zero && s->zero_group < s->dp)
        ds_buf_printf(out, " in groups of %lld", (long long)s->zero_group);
    if (s->recompute != DS_RECOMPUTE_NONE) {
        ds_buf_put(out, ", recompute ");
        ds_report__recompute(s, out);
    }
    const char *kept[3];
    uint32_t n = ds_report__offloaded(s, kept);
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_printf(out, "%s%s", i ? " + " : ", offload ", kept[i]);
        if (strcmp(kept[i], "activations") == 0 && s->offload_layers)
            ds_buf_printf(out, " (of %lld layers)", (long long)s->offload_layers);
        if (strcmp(kept[i], "optimizer") == 0 && s->offload_fraction < 1)
            ds_buf_printf(out, " (%g)", s->offload_fraction);
    }
    if (s->microbatches > 1) ds_buf_printf(out, ", %lld microbatches", (long long)s->microbatches);
    put_pipeline(step, out);
}

/* ---- cuts of pipelines ---- */

/* "2+3": the turns of a stage's chunks, of the first copy. */
static void put_stage(const ds_schedule_index *schedule, const int64_t *turns, uint32_t stage,
                      ds_buf *out) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < schedule->n_chunks; c++)
        if (schedule->stage[c] == stage)
            ds_buf_printf(out, "%s%lld", n++ ? "+" : "", (long long)turns[c]);
    if (!n) ds_buf_put(out, "0");
}

static void put_run(const ds_buf *stage, uint32_t n, ds_buf *out) {
    if (out->n) ds_buf_put(out, ", ");
    for (uint32_t i = 0; n < 3 && i < n; i++)
        ds_buf_printf(out, "%s%s", i ? ", " : "", stage->text);
    if (n >= 3) ds_buf_printf(out, "%u x %s", n, stage->text);
}

void ds_report__layers(const ds_schedule_index *schedule, const int64_t *turns, ds_buf *out) {
    ds_buf text = {0}, last = {0}, next = {0};
    uint32_t n = 0;
    for (uint32_t s = 0; s < schedule->n_ranks; s++) {
        next.n = 0;
        put_stage(schedule, turns, s, &next);
        if (n && strcmp(last.text, next.text) != 0) {
            put_run(&last, n, &text);
            n = 0;
        }
        n++;
        last.n = 0;
        ds_buf_put(&last, next.text);
    }
    put_run(&last, n, &text);
    ds_buf_put(out, text.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(&last);
    ds_buf_deinit(&next);
}

void ds_report__faster_cut(const ds_result *r, ds_buf *out) {
    const ds_faster_cut *cut = r->cut;
    if (!cut) return;
    ds_buf_printf(out,
                  "\nStage %u works %s longer on a microbatch than stages do on the average.\n",
                  cut->stage, ds_report__percent(cut->excess).s);
    ds_buf_printf(out, "  balance = time (simulated): %s a step instead of %s%s, layers ",
                  ds_report__ps(cut->step_ps).s, ds_report__ps(r->run.step_ps).s,
                  cut->fits ? "" : ", too much memory");
    ds_report__layers(&r->step->schedule, cut->turns, out);
    ds_buf_putc(out, '\n');
}

void ds_report__put_faster_cut(ds_json *json, const ds_result *r) {
    if (!r->cut) return;
    ds_json_key(json, "faster_cut");
    ds_json_begin_object(json);
    ds_json_key_int(json, "busiest_stage", r->cut->stage);
    ds_json_key_double(json, "excess", r->cut->excess);
    ds_json_key(json, "stage_layers");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < r->cut->n_turns; i++) ds_json_int(json, r->cut->turns[i]);
    ds_json_end_array(json);
    ds_json_key_int(json, "step_time_ps", r->cut->step_ps);
    ds_json_key_bool(json, "fits", r->cut->fits);
    ds_json_end_object(json);
}
