/* A turn of the model's loop is a chunk: two products with a relu between them, whose result is
 * what a microbatch keeps from F to W. The time of an item is that of one of its ops, in F of the
 * last one, else of the first one: so that result is there from the start of F to the end of W. */
#include "tests/support/pipe_time.h"

#include "ir/base/str.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void write_model(const char *schedule, int64_t stages, int64_t microbatches,
                        const char *more, ds_buf *out) {
    ds_buf_printf(out, "dir 1\nparam chunks = 1, batch = %" PRId64 "\n", microbatches);
    ds_buf_put(out, "func @model(%x: f32[batch@dp, 1]) -> f32[batch@dp, 1] {\n"
                    "  %y = for l in 0..chunks carry (%h = %x) {\n"
                    "    weight %v : f32[1, 1]\n    weight %w : f32[1, 1]\n"
                    "    %z = matmul(%h, %v)\n    %a = relu(%z)\n    %b = matmul(%a, %w)\n"
                    "    yield %b\n  }\n  return %y\n}\n");
    ds_buf_printf(out,
                  "topology @box {\n  device gpu[%" PRId64 "] : \"A100-SXM4-80GB\"\n  switch sw\n"
                  "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..%" PRId64 "\n}\n",
                  stages, stages);
    ds_buf_printf(out,
                  "scenario {\n  model = @model\n  on = @box\n"
                  "  train { loss = mse, optimizer = none }\n  strategy { pp = %" PRId64
                  ", microbatches = %" PRId64 ", schedule = \"%s\"",
                  stages, microbatches, schedule);
    ds_buf_printf(out, "%s }\n}\n", more);
}

/* How many chunks the schedule has, whose layers the model is then given. */
static int64_t count_chunks(const char *schedule, int64_t stages, int64_t microbatches, int64_t v) {
    ds_unit *unit = ds_unit_new();
    ds_schedule_options options = {
        .name = schedule, .stages = stages, .microbatches = microbatches, .virtual_stages = v};
    const ds_schedule *made;
    ds_error err = {0};
    cr_assert_eq(ds_schedule_make(unit, &options, &made, &err), DS_OK, "%s", err.message);
    int64_t chunks = made->chunks;
    ds_unit_free(unit);
    return chunks;
}

static void open_model(pipe_program *p, const ds_buf *text, const char *set) {
    ds_error err = {0};
    *p = (pipe_program){0};
    step_make(&p->c, text->text, set, DS_PASS_PIPELINE);
    cr_assert_eq(p->c.status, DS_OK, "%s: %s", text->text, p->c.err.message);
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &p->profiles, &err), DS_OK, "%s", err.message);
}

void pipe_open(pipe_program *p, const char *schedule, int64_t stages, int64_t microbatches,
               int64_t v) {
    ds_buf text = {0}, set = {0}, more = {0};
    ds_buf_put(&more, "");
    if (v) ds_buf_printf(&more, ", virtual_stages = %" PRId64, v);
    write_model(schedule, stages, microbatches, more.text, &text);
    ds_buf_printf(&set, "chunks=%" PRId64, count_chunks(schedule, stages, microbatches, v));
    open_model(p, &text, set.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(&set);
    ds_buf_deinit(&more);
}

void pipe_open_uneven(pipe_program *p, const char *p2p, int64_t microbatches) {
    ds_buf text = {0}, more = {0};
    ds_buf_printf(&more, ", stage_layers = [2, 1], p2p = %s", p2p);
    write_model("1f1b", 2, microbatches, more.text, &text);
    open_model(p, &text, "chunks=3");
    ds_buf_deinit(&text);
    ds_buf_deinit(&more);
}

static void forget_result(pipe_program *p) {
    if (!p->result) return;
    ds_stages_deinit(&p->stages);
    ds_result_free(p->result);
    p->result = NULL;
}

void pipe_close(pipe_program *p) {
    forget_result(p);
    ds_profiles_free(p->profiles);
    step_free(&p->c);
}

/* ---- costs ---- */

static void set_cost(ds_unit *unit, ds_op *op, int64_t ps) {
    ds_attr cost = {.name = ds_intern(&unit->strings, "cost"),
                    .kind = DS_ATTR_QUANTITY,
                    .expr = ds_expr_int(&unit->exprs, ps),
                    .unit = DS_UNIT_PS};
    uint32_t n = 0;
    ds_attr *attrs = DS_NEW_N(&unit->arena, ds_attr, op->n_attrs + 1);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].name != cost.name) attrs[n++] = op->attrs[i];
    attrs[n++] = cost;
    op->attrs = attrs;
    op->n_attrs = n;
}

/* @F3, @B3_first, @BW3_last (B and W in one, of a schedule that has W elsewhere), @W3_next. */
static int64_t time_of(const pipe_program *p, const char *name, const ds_schedule_durations *t) {
    if (*name == 'F') return t->f;
    if (*name == 'W') return t->w;
    return t->b + (name[1] == 'W' || !p->splits ? t->w : 0);
}

/* All ops but sends cost nothing; *first and *last become the first and the last one. */
static void set_free(const pipe_program *p, const ds_block *block, ds_op **first, ds_op **last) {
    ds_unit *unit = p->c.step->unit;
    for (uint32_t i = 0; i + 1 < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (op->body) set_free(p, op->body, first, last);
        if (op->body || op->code == DS_OP_CALL) continue;
        set_cost(unit, op, op->code == DS_OP_SEND ? p->send_ps : 0);
        if (!*first) *first = op;
        *last = op;
    }
}

static void set_costs(pipe_program *p, const ds_schedule_durations *times) {
    ds_unit *unit = p->c.step->unit;
    const ds_module *module = unit->modules.at[0];
    for (uint32_t i = 0; i < module->funcs.n; i++)
        p->splits = p->splits || *module->funcs.at[i]->name == 'W';
    for (uint32_t i = 0; i < module->funcs.n; i++) {
        const ds_func *func = module->funcs.at[i];
        ds_op *first = NULL, *last = NULL;
        set_free(p, &func->body, &first, &last);
        if (func == p->c.step->func) continue;
        cr_assert(first && strchr("FBW", *func->name), "@%s is no item", func->name);
        set_cost(unit, *func->name == 'F' ? last : first, time_of(p, func->name, times));
    }
}

void pipe_simulate(pipe_program *p, ds_schedule_durations times) {
    ds_sim_options options = {0};
    ds_error err = {0};
    set_costs(p, &times);
    forget_result(p);
    ds_status status = ds_simulate(&p->c.step->binding, p->profiles, &options, &p->result, &err);
    cr_assert_eq(status, DS_OK, "simulated: %s", err.message);
    ds_stages_find(p->result, &p->stages);
}

/* ---- memory ---- */

/* %z, %z.c2, whose buffers relu takes over. */
static bool is_kept(const char *name) {
    if (strncmp(name, "z.c", 3) == 0) return !strchr(name + 3, '.');
    return strcmp(name, "z") == 0;
}

uint32_t pipe_in_flight(const pipe_program *p, uint32_t stage) {
    const ds_plan *plan = p->result->plan;
    uint32_t device = p->stages.at[stage].device, most = 0, now = 0;
    for (uint32_t c = 0; c < p->result->mem.n_classes; c++) {
        const ds_mem_class *mem = &p->result->mem.classes[c];
        if (plan->classes[c].device != device) continue;
        for (uint32_t i = 0; i < mem->n_events; i++) {
            if (!is_kept(plan->values.at[ds_mem_value(mem->events[i].value)].name)) continue;
            now += mem->events[i].delta_bytes > 0 ? 1u : -1u;
            if (now > most) most = now;
        }
    }
    cr_expect_eq(now, 0, "%u of what F makes are kept for ever", now);
    return most;
}
