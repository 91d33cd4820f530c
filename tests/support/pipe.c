#include "tests/support/pipe.h"

#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "ir/prove/check.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const pipe_model pipe_mlp = {"mlp", "layers = 4, width = 4, batch = 8", "loss = mse, "};
const pipe_model pipe_gpt = {"gpt", "layers = 4, hidden = 8, heads = 2, seq = 4, vocab = 12, batch = 8", ""};
const pipe_model pipe_llama = {"llama", "layers = 4, hidden = 8, heads = 4, kv_heads = 2, ffn = 8, seq = 4, vocab = 12, batch = 8", ""};
const pipe_model pipe_t5 = {"t5", "layers = 2, hidden = 8, heads = 2, head_dim = 4, ffn = 8, buckets = 4, seq = 4, target_seq = 4, vocab = 12, batch = 8, head_scale = 0.25", ""};
const pipe_model pipe_mixtral = {"mixtral", "layers = 4, hidden = 8, heads = 4, kv_heads = 2, ffn = 8, experts = 4, chunks = 2, seq = 8, vocab = 12, batch = 8", ""};
const pipe_model pipe_alexnet = {"alexnet", "image = 63, width = 2, c1 = 2, c2 = 2, c3 = 2, c4 = 2, c5 = 2, hidden = 8, classes = 6, batch = 8", ""};
/* clang-format on */

const char *pipe_schedule(uint32_t i) {
    const ds_schedule_form *form = ds_schedule_form_at(i);
    return form ? form->name : NULL;
}

/* ---- texts ---- */

void pipe_text(const pipe_case *c, ds_buf *out) {
    ds_buf_printf(out, "dir 1\nimport \"models/%s.dir\" as g with %s\n", c->model->name,
                  c->model->with);
    ds_buf_put(out, "topology @box {\n  device gpu[16] : \"A100-SXM4-80GB\"\n  switch sw\n"
                    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n}\n");
    ds_buf_printf(out, "%sscenario {\n  model = @g.%s\n  on = @box\n", c->items ? c->items : "",
                  c->model->name);
    ds_buf_printf(out, "  train { %s%s }\n  strategy { %s }\n}\n", c->model->train,
                  c->train ? c->train : "optimizer = adam", c->strategy);
}

char *pipe_settings(const pipe_case *c) {
    ds_buf out = {0};
    char words[128];
    if (!c->set) return NULL;
    snprintf(words, sizeof words, "%s", c->set);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        ds_buf_printf(&out, "%sg.%s", out.n ? " " : "", word);
    return out.text;
}

/* ---- loading ---- */

typedef struct loaded {
    ds_unit *unit;
    ds_binding binding;
    ds_status status;
    ds_error err;
} loaded;

static uint32_t split(char *text, ds_setting *list, uint32_t most) {
    uint32_t n = 0;
    for (char *word = strtok(text, " "); word && n < most; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        list[n++] = (ds_setting){word, equals + 1};
    }
    return n;
}

static void load(const pipe_case *c, loaded *l) {
    ds_buf text = {0};
    ds_diags diags;
    ds_setting list[8];
    char *settings = pipe_settings(c);
    uint32_t n = settings ? split(settings, list, 8) : 0;
    *l = (loaded){0};
    pipe_text(c, &text);
    ds_diags_init(&diags);
    l->status = ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text.text, text.n, NULL, &l->unit,
                             &l->err);
    if (l->status == DS_OK) l->status = ds_verify(l->unit, &diags);
    if (l->status == DS_OK) l->status = ds_bind(l->unit, list, n, &l->binding, &l->err);
    if (l->status == DS_OK) l->status = ds_verify_bound(l->unit, &l->binding, &diags);
    for (uint32_t i = 0; i < diags.all.n; i++)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_error_set(&l->err, diags.all.at[i].code, diags.all.at[i].loc, "%s",
                         diags.all.at[i].message);
    ds_diags_deinit(&diags);
    ds_buf_deinit(&text);
    free(settings);
}

/* ---- proofs ---- */

static void name_case(const pipe_case *c, char *out, size_t n) {
    snprintf(out, n, "%s, %s%s%s", c->model->name, c->strategy, c->set ? ", " : "",
             c->set ? c->set : "");
}

static uint32_t devices_of(const loaded *l) {
    ds_strategy s;
    cr_assert_eq(ds_strategy_read(&l->binding, &s, NULL), DS_OK);
    int64_t n = 0;
    for (int64_t i = 0; i < s.pp && s.stage_dp; i++) n += s.stage_dp[i] * s.stage_tp[i];
    return (uint32_t)(s.stage_dp ? n : s.pp * s.dp * s.cp * s.tp);
}

static bool is_staged(const loaded *l) {
    ds_strategy s;
    cr_assert_eq(ds_strategy_read(&l->binding, &s, NULL), DS_OK);
    return s.pp > 1;
}

/* `split`: the pass that splits the step, pipeline or shard. */
static void expect_rows(const ds_step_check *check, ds_pass_id split, const char *name) {
    uint32_t compared[DS_PASS_COUNT] = {0}, zeros = 0;
    for (uint32_t i = 0; i < check->rows.n; i++) {
        const ds_step_check_row *row = &check->rows.at[i];
        compared[row->pass]++;
        zeros += row->pass == split && row->max_a == 0;
    }
    cr_expect(compared[split] > 1, "%s: nothing is compared", name);
    cr_expect(compared[DS_PASS_PROJECT] > 1, "%s: ranks are not compared: %s", name,
              check->skipped ? check->skipped : "?");
    cr_expect(zeros * 4 < compared[split], "%s: %u of %u results are zeros", name, zeros,
              compared[split]);
}

void pipe_expect_equal(const pipe_case *c) {
    char name[512];
    loaded l;
    ds_step_check check;
    ds_step_check_options options = {.seed = 1};
    ds_error err = {0};
    name_case(c, name, sizeof name);
    load(c, &l);
    cr_assert_eq(l.status, DS_OK, "%s: %s", name, l.err.message);
    ds_status status = ds_model_step_check(&l.binding, &options, &check, &err);
    cr_expect_eq(status, DS_OK, "%s: %s: %s", name, ds_status_name(status), err.message);
    if (status == DS_OK) {
        cr_expect(check.equal, "%s: after %s %s differs by %g of %g", name,
                  ds_pass_name(check.worst->pass), check.worst->name, check.worst->max_difference,
                  check.worst->max_a);
        cr_expect_eq(check.n_devices, devices_of(&l), "%s: ran on %u devices", name,
                     check.n_devices);
        expect_rows(&check, is_staged(&l) ? DS_PASS_PIPELINE : DS_PASS_SHARD, name);
    }
    ds_step_check_deinit(&check);
    ds_unit_free(l.unit);
}

static ds_status make(loaded *l) {
    ds_model_step *step = NULL;
    if (l->status != DS_OK) return l->status;
    ds_status status = ds_model_step_new(&l->binding, &step, &l->err);
    if (status == DS_OK) status = ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, &l->err);
    ds_model_step_free(step);
    return status;
}

void pipe_expect_refused(const pipe_case *c, const char *const *parts) {
    char name[512];
    loaded l;
    name_case(c, name, sizeof name);
    load(c, &l);
    ds_status status = make(&l);
    cr_expect(status != DS_OK && ds_status_exit_code(status) == 1, "%s: %s: %s", name,
              ds_status_name(status), l.err.message);
    for (; *parts; parts++)
        cr_expect(strstr(l.err.message, *parts), "%s: no \"%s\" in: %s", name, *parts,
                  l.err.message);
    ds_unit_free(l.unit);
}
