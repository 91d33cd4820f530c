/* Which stage of a pipeline has how many turns of the model's loops. */
#include "ir/strategy/internal.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/strategy.h"

#include <string.h>

ds_loc ds_strategy_knob(const ds_unit *unit, const char *name) {
    const ds_attr *attr = ds_scenario_find(unit, "strategy", name);
    if (!attr) attr = ds_scenario_find(unit, "strategy", "pp");
    return attr ? attr->loc : DS_NOWHERE;
}

int64_t ds_strategy_chunk_turns(const ds_strategy *s, int64_t turns, int64_t chunks, int64_t c) {
    int64_t first = s->first_stage_less, last = s->last_stage_less, all = turns + first + last;
    int64_t rest = all % chunks, middle = first || last ? 0 : (chunks - rest) / 2;
    int64_t even = all / chunks + (c >= middle && c < middle + rest);
    return even - (c == 0 ? first : 0) - (c + 1 == chunks ? last : 0);
}

static ds_status as_told(const ds_unit *unit, const ds_strategy *s, int64_t n, uint32_t chunks,
                         int64_t *turns, ds_error *err) {
    ds_loc loc = ds_strategy_knob(unit, "stage_layers");
    int64_t sum = 0;
    bool fits = true;
    if (s->n_stage_layers != chunks)
        return ds_error_set(err, DS_ERR_VALUE, loc,
                            "stage_layers has %u numbers, but the pipeline has %u chunks: one "
                            "number each",
                            s->n_stage_layers, chunks);
    for (uint32_t c = 0; c < chunks; c++) {
        turns[c] = s->stage_layers[c];
        fits = fits && !__builtin_add_overflow(sum, turns[c], &sum);
    }
    if (!fits)
        return ds_error_set(err, DS_ERR_VALUE, loc,
                            "the numbers of stage_layers make more than 2^63, but @step has %lld "
                            "turns of loops",
                            (long long)n);
    if (sum == n) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, loc,
                        "the numbers of stage_layers make %lld, but @step has %lld turns of "
                        "loops%s",
                        (long long)sum, (long long)n,
                        n ? "" : "; a model without loops is cut by its FLOPs");
}

ds_status ds_strategy_share_turns(const ds_unit *unit, const ds_strategy *s, int64_t n,
                                  uint32_t chunks, int64_t *turns, ds_error *err) {
    if (s->n_stage_layers) return as_told(unit, s, n, chunks, turns, err);
    if (n < chunks)
        return ds_error_set(err, DS_ERR_VALUE, ds_strategy_knob(unit, "balance"),
                            "%lld turns of loops are too few for the pipeline's %lld chunks; say "
                            "balance = flops to cut between other operations too, or which chunks "
                            "have none by stage_layers = [...]",
                            (long long)n, (long long)chunks);
    for (uint32_t c = 0; c < chunks; c++) {
        turns[c] = ds_strategy_chunk_turns(s, n, chunks, c);
        if (turns[c] >= 0) continue;
        return ds_error_set(err, DS_ERR_VALUE,
                            ds_strategy_knob(unit, c ? "last_stage_less" : "first_stage_less"),
                            "%s counts as %lld turns, more than a chunk has: %lld turns over "
                            "%lld chunks",
                            c ? "the loss" : "the embedding",
                            (long long)(c ? s->last_stage_less : s->first_stage_less), (long long)n,
                            (long long)chunks);
    }
    return DS_OK;
}

/* Without training stages take turns in the order of the program's text. */
ds_status ds_strategy__check_turns(const ds_binding *binding, const ds_strategy *s, ds_error *err) {
    const struct {
        const char *knob;
        bool wrong;
        const char *why;
    } rules[] = {
        {"virtual_stages", s->virtual_stages > 1,
         "without training each stage has one run of layers: leave virtual_stages out"},
        {"schedule", strcmp(s->schedule, "1f1b") != 0 && strcmp(s->schedule, "gpipe") != 0,
         "schedules order forward and backward passes, and without training there is no backward "
         "pass: leave `schedule` out"},
        {"balance", s->balance != DS_BALANCE_LAYERS && !s->n_stage_layers,
         "without training a pipeline is cut by layers: balance = layers, or stage_layers"},
        {"stage_dp", s->stage_dp != NULL,
         "without training all stages are equally wide: leave stage_dp and stage_tp out"},
        {"offload", s->offload != 0,
         "without training the stages of a pipeline keep their weights: leave `offload` out"},
        {s->ops ? "ops" : "pp", ds_strategy_places(s),
         "without training single operations lie where their stage is: leave `ops` and groups out"},
        {"microbatches", s->microbatches > 1,
         "without training a pipeline runs one microbatch: microbatches = 1"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong)
            return ds_error_set(err, DS_ERR_UNSUPPORTED,
                                ds_strategy_knob(binding->unit, rules[i].knob), "%s", rules[i].why);
    return DS_OK;
}
