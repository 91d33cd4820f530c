/* distsim plan: the space that is worth exploring under a framework, as the text of a sweep. */
#include "tools/cli/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds of the space; assumed: nobody runs plans beyond, and sweeps would not end. */
enum {
    MAX_SEQUENCES = 8,     /* of a microbatch */
    MAX_MICROBATCHES = 64, /* of models without sequences */
    MAX_STAGES = 64,
    MAX_CHUNKS = 8,    /* of a stage … */
    MAX_SIMULATED = 4, /* … where every candidate is simulated */
    CP_TOKENS = 8192   /* a device's part of a sequence is at least as long */
};

/* ---- frameworks ---- */

#define TP     CLI_HAS_TP
#define PP     CLI_HAS_PP
#define CP     CLI_HAS_CP
#define EP     CLI_HAS_EP
#define UNEVEN CLI_HAS_UNEVEN
#define KEEPS  CLI_HAS_KEEPS
static const cli_framework frameworks[] = {
#define FRAMEWORK(word, title, parallel, zero, where, schedules, recompute, says)                  \
    {#word, title, parallel, zero, where, schedules, recompute, says},
#include "tools/cli/plan/frameworks.def"
};
#undef TP
#undef PP
#undef CP
#undef EP
#undef UNEVEN
#undef KEEPS

static const char words[] =
#define FRAMEWORK(word, ...) "|" #word
#include "tools/cli/plan/frameworks.def"
    ;
const char *cli_plan_framework_words(void) {
    return words + 1;
}

const cli_framework *cli_plan_framework(const char *word) {
    for (size_t i = 0; word && i < sizeof frameworks / sizeof *frameworks; i++)
        if (strcmp(frameworks[i].word, word) == 0) return &frameworks[i];
    return &frameworks[0];
}

/* ---- the scenario ---- */

static bool has(const cli_plan *plan, cli_parallel what) {
    return (plan->framework->parallel & what) != 0;
}

static void put_scenario_head(const cli_plan *plan, bool sp, ds_buf *out) {
    char batch[24];
    snprintf(batch, sizeof batch, "%" PRId64, plan->batch);
    ds_buf_put(out, "dir 1\n\n");
    cli_plan_put_imports(plan, batch, out);
    ds_buf_printf(out,
                  "\nscenario {\n  name = \"%s\"\n  model = @model.%s\n  on = @box.%s\n"
                  "%s  framework = %s\n  memory = allocator\n"
                  "  train { %soptimizer = %s, dtype = %s }\n  strategy { %s",
                  plan->model_func, plan->model_func, plan->on_name,
                  plan->keys.n ? plan->keys.text : "", plan->framework->word,
                  plan->has_loss ? "" : "loss = mse, ", plan->optimizer, plan->dtype,
                  plan->framework->says);
    if (sp && plan->seq && has(plan, CLI_HAS_TP)) ds_buf_put(out, "sp = true, ");
}

/* ---- the space ---- */

/* Parts are equal: heads, or groups of heads that share keys, and rows of the table of words. */
static void put_tp(const cli_plan *plan, ds_buf *out) {
    if (!has(plan, CLI_HAS_TP)) return;
    ds_buf_printf(out, "  tp in powers_of_two(1, %" PRIu32 ")\n", plan->node);
    const int64_t whole[] = {plan->kv_heads ? plan->kv_heads : plan->heads, plan->vocab};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (whole[i]) ds_buf_printf(out, "  where %" PRId64 " %% tp == 0\n", whole[i]);
}

static bool has_stages(const cli_plan *plan) {
    return has(plan, CLI_HAS_PP) && plan->layers > 1;
}

static void put_pp(const cli_plan *plan, ds_buf *out) {
    if (!has_stages(plan)) return;
    int64_t most = plan->layers < MAX_STAGES ? plan->layers : MAX_STAGES;
    /* --set may fix pp */
    ds_buf_printf(
        out, "  pp in divisors(world / tp)\n  where pp <= %" PRId64 " and world / tp %% pp == 0\n",
        most);
    if (!has(plan, CLI_HAS_UNEVEN))
        ds_buf_printf(out, "  where %" PRId64 " / pp * pp == %" PRId64 "\n", plan->layers,
                      plan->layers);
}

static bool is_fixed(const cli_plan *plan, const char *path) {
    for (uint32_t i = 0; i < plan->n_fixed; i++)
        if (strcmp(plan->fixed[i].path, path) == 0) return true;
    return false;
}

static void put_replicas(const cli_plan *plan, ds_buf *out) {
    char rest[48] = "world";
    if (has(plan, CLI_HAS_TP)) strcat(rest, " / tp");
    if (has_stages(plan)) strcat(rest, " / pp");
    bool may_split = plan->seq >= 2 * CP_TOKENS && plan->experts <= 1;
    if (has(plan, CLI_HAS_CP) && (may_split || is_fixed(plan, "strategy.cp"))) {
        ds_buf_printf(out, "  cp in powers_of_two(1, %" PRId64 ")\n",
                      may_split ? plan->seq / CP_TOKENS : 1);
        ds_buf_printf(out, "  where %s / cp * cp == %s\n", rest, rest);
        strcat(rest, " / cp");
    }
    ds_buf_printf(out, "  dp in [%s]\n  where batch / dp * dp == batch and batch >= dp\n", rest);
    if (has(plan, CLI_HAS_EP) && plan->experts > 1)
        ds_buf_printf(out,
                      "  ep in powers_of_two(1, %" PRId64 ")\n  where dp / ep * ep == dp and "
                      "%" PRId64 " / ep * ep == %" PRId64 "\n",
                      plan->experts, plan->experts, plan->experts);
}

/* Chunks of a stage: as many layers each, or one less in the first and the last, beside embedding
 * and head. */
static void put_schedules(const cli_plan *plan, ds_buf *out) {
    if (!has_stages(plan)) return;
    ds_buf_printf(out,
                  "  schedule in [%s]\n"
                  "  where pp > 1 or schedule == \"1f1b\"\n"
                  "  where schedule == \"1f1b\" or microbatches / pp * pp == microbatches\n"
                  "  virtual_stages in 1..%d\n"
                  "  where (virtual_stages > 1) == (schedule == \"interleaved\")\n"
                  "  where virtual_stages == 1 or %" PRId64 " %% (pp * virtual_stages) == 0",
                  plan->least_memory ? "\"1f1b\"" : plan->framework->schedules,
                  (plan->experts > 1 && !plan->has_one_loop ? MAX_SIMULATED : MAX_CHUNKS) + 1,
                  plan->layers);
    if (has(plan, CLI_HAS_UNEVEN))
        ds_buf_printf(out,
                      " or %" PRId64 " %% (pp * virtual_stages) == 0 and pp * virtual_stages <= "
                      "%" PRId64,
                      plan->layers + 2, (plan->layers + 2) / 2);
    ds_buf_put(out, "\n");
}

/* "3, 2, 0" → "3": what needs least memory comes first; recomputation comes last. */
static void put_zero(const cli_plan *plan, ds_buf *out) {
    const char *all = plan->framework->zero;
    int first = (int)strcspn(all, ",");
    if (plan->least_memory || (plan->experts > 1 && has(plan, CLI_HAS_PP)))
        ds_buf_printf(out, "  zero in [%.*s]\n", first, all);
    else
        ds_buf_printf(out, "  zero in [%s]\n", all);
    ds_buf_printf(out, "  where dp > 1 or zero == %.*s\n", first, all);
    if (plan->least_memory && has(plan, CLI_HAS_KEEPS)) return;
    if (has(plan, CLI_HAS_KEEPS))
        ds_buf_put(out, "  reshard_after_forward in [layers, never]\n"
                        "  where (zero == 3 and dp > 1) or reshard_after_forward == \"layers\"\n");
    if (has_stages(plan)) ds_buf_printf(out, "  where %s\n", plan->framework->where);
}

/* `selective` is about attention. */
static void put_recompute(const cli_plan *plan, ds_buf *out) {
    const char *all = plan->framework->recompute, *last = strrchr(all, ' ') + 1;
    if (plan->least_memory)
        ds_buf_printf(out, "  recompute in [%s]\n", last);
    else if (plan->heads)
        ds_buf_printf(out, "  recompute in [%s]\n", all);
    else
        ds_buf_put(out, "  recompute in [none, full]\n");
}

void cli_plan_put_sweep(const cli_plan *plan, ds_buf *out) {
    put_scenario_head(plan, true, out);
    ds_buf_put(out, "recompute = none }\n}\n\nsweep {\n");
    put_tp(plan, out);
    put_pp(plan, out);
    put_replicas(plan, out);
    if (plan->splits) ds_buf_printf(out, "  where %s\n", plan->splits);
    ds_buf_put(out, "  microbatches in divisors(batch / dp)\n");
    if (has_stages(plan)) ds_buf_put(out, "  where microbatches >= pp\n");
    if (plan->seq)
        ds_buf_printf(out, "  where batch / dp / microbatches <= %d\n",
                      plan->least_memory ? 1 : MAX_SEQUENCES);
    else if (has_stages(plan))
        ds_buf_printf(out, "  where microbatches <= max(%d, pp)\n", MAX_MICROBATCHES);
    else
        ds_buf_printf(out, "  where microbatches <= %d\n", MAX_MICROBATCHES);
    put_schedules(plan, out);
    put_zero(plan, out);
    put_recompute(plan, out);
    bool timed = strcmp(plan->objective, "throughput") == 0; /* the same with a given batch */
    bool most = !timed && ds_metric_at(ds_metric_by_name(plan->objective))->more;
    ds_buf_printf(out, "  %s %s\n  subject to fits\n  memory_first = on\n}\n",
                  most ? "maximize" : "minimize", timed ? "step_time" : plan->objective);
}

const char *cli_plan_text(const ds_sweep_row *row, const char *column) {
    return ds_sweep_cell(row, column);
}

int64_t cli_plan_int(const ds_sweep_row *row, const char *column) {
    const char *text = ds_sweep_cell(row, column);
    return text ? strtoll(text, NULL, 10) : 1;
}

void cli_plan_put_scenario(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out) {
    static const struct {
        const char *name, *quote;
    } knobs[] = {{"dp", ""},         {"tp", ""},
                 {"pp", ""},         {"cp", ""},
                 {"ep", ""},         {"microbatches", ""},
                 {"schedule", "\""}, {"virtual_stages", ""},
                 {"zero", ""},       {"reshard_after_forward", ""},
                 {"recompute", ""}};
    put_scenario_head(plan, cli_plan_int(row, "tp") > 1, out);
    const char *comma = "";
    bool staged = cli_plan_int(row, "pp") > 1, chunked = cli_plan_int(row, "virtual_stages") > 1;
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        const char *name = knobs[i].name, *value = cli_plan_text(row, name);
        if (!value || (strcmp(name, "schedule") == 0 && !staged) ||
            (strcmp(name, "virtual_stages") == 0 && !chunked))
            continue; /* a knob that would do nothing is left out */
        ds_buf_printf(out, "%s%s = %s%s%s", comma, name, knobs[i].quote, value, knobs[i].quote);
        comma = ", ";
    }
    ds_buf_put(out, " }\n}\n");
}
