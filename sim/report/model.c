/* A scenario with a `model`: passes make the step, and that is simulated like any program.
 *
 * What `train` and `strategy` say is the passes' to read. Errors of passes are about the step's own
 * unit, a copy: the copy's files are named as the source's, so an error's place is the source's. */
#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"
#include "sim/report/internal.h"

#include <string.h>

/* ---- the step ---- */

static ds_status make_step(const ds_binding *source, bool brief, bool trusted, ds_model_step **out,
                           ds_error *err) {
    *out = NULL;
    DS_TRY(ds_model_step_new(source, out, err));
    (*out)->brief = brief;
    (*out)->trusted = trusted;
    ds_status status = ds_model_step_run_to(*out, DS_PASS_OVERLAP, NULL, NULL, err);
    if (status == DS_OK) return DS_OK;
    ds_model_step_place_error(source->unit, err);
    ds_model_step_free(*out);
    *out = NULL;
    return status;
}

/* What is wrong is said by the passes as they are proved: verified one by one. */
ds_status ds_report__make_step(const ds_binding *source, bool trusted, ds_model_step **out,
                               ds_error *err) {
    ds_error unsaid;
    if (make_step(source, true, trusted, out, &unsaid) == DS_OK) return DS_OK;
    return make_step(source, false, false, out, err);
}

/* ---- what is known of the model ---- */

ds_status ds_report__samples(const ds_binding *source, int64_t *out, ds_error *err) {
    const ds_func *model = ds_scenario_model(source->unit);
    ds_env env = ds_binding_env(source, NULL);
    for (uint32_t i = 0; i < model->n_args && *out == 0; i++) {
        const ds_value_info *arg = ds_value_at(model, model->args[i]);
        if (ds_type_is_over(arg->type, 0, "dp"))
            DS_TRY(ds_expr_eval_int(&env, arg->type->dims[0].size, arg->loc, out, err));
    }
    return DS_OK;
}

ds_status ds_report__model_flop(const ds_binding *source, bool trains, double *out, double *padding,
                                ds_error *err) {
    ds_model_counts counts;
    DS_TRY(ds_model_count(source, ds_scenario_model(source->unit), &counts, err));
    *out = (trains ? 3.0 : 1.0) * (double)(counts.matmul_flop - counts.padding_flop);
    *padding = (trains ? 3.0 : 1.0) * (double)counts.padding_flop;
    return DS_OK;
}

/* ---- the strategy as text ---- */

static const char *const kept_kinds[] = {"activations", "optimizer", "weights"};

/* ", tp 8:4": what each stage has, at most 8 of them. */
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

/* ", batch 3:1", at most 8 of the replicas' parts. */
static void put_shares(const ds_strategy *s, ds_buf *out) {
    for (int64_t i = 0; s->dp_shares && i < s->dp && i < 8; i++)
        ds_buf_printf(out, "%s%lld", i ? ":" : ", batch ", (long long)s->dp_shares[i]);
    if (s->dp_shares && s->dp > 8) ds_buf_put(out, ":...");
    if (s->dp_shares_by_time) ds_buf_put(out, s->dp_shares ? " by time" : ", equal parts by time");
}

void ds_report__recompute(const ds_strategy *s, ds_buf *out) {
    static const char *const words[] = {"none", "selective", "full"};
    if (s->recompute == DS_RECOMPUTE_EVERY)
        ds_buf_printf(out, "every:%lld", (long long)s->recompute_every);
    else if (s->recompute == DS_RECOMPUTE_OPS)
        ds_buf_printf(out, "%u op%s", s->n_recompute_ops, s->n_recompute_ops == 1 ? "" : "s");
    else
        ds_buf_put(out, words[s->recompute]);
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

/* Where chunks differ in the turns that they have. */
static void put_layers(const ds_model_step *step, ds_buf *out) {
    const int64_t *turns = step->cut.chunk_turns;
    uint32_t n = step->schedule.n_chunks, c = 1;
    while (turns && c < n && turns[c] == turns[0]) c++;
    if (!turns || c >= n) return;
    ds_buf_put(out, ", layers ");
    ds_report__layers(&step->schedule, turns, out);
}

static void put_pipeline(const ds_model_step *step, ds_buf *out) {
    static const char *const p2ps[] = {"overlapped", "batched", "blocking"};
    const ds_strategy *s = &step->strategy;
    if (s->pp < 2) return;
    int64_t v = ds_report__virtual_stages(step);
    ds_buf_printf(out, ", schedule %s", s->schedule);
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
    const ds_strategy *s = &step->strategy;
    put_degrees(s, out);
    put_shares(s, out);
    if (s->sp) ds_buf_put(out, ", sequence parallel");
    if (s->zero) ds_buf_printf(out, ", zero %lld", (long long)s->zero);
    if (s->tp_overlap) ds_buf_printf(out, ", tp overlap %s", overlaps[s->tp_overlap]);
    if (s->zero && s->zero_group < s->dp)
        ds_buf_printf(out, " in groups of %lld", (long long)s->zero_group);
    if (s->recompute != DS_RECOMPUTE_NONE) {
        ds_buf_put(out, ", recompute ");
        ds_report__recompute(s, out);
    }
    const char *kept[3];
    uint32_t n = ds_report__offloaded(s, kept);
    for (uint32_t i = 0; i < n; i++) ds_buf_printf(out, "%s%s", i ? " + " : ", offload ", kept[i]);
    if (s->microbatches > 1) ds_buf_printf(out, ", %lld microbatches", (long long)s->microbatches);
    put_pipeline(step, out);
}
