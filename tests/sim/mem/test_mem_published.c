/* Memory a device as Korthikanti et al. publish it (arXiv:2205.05198, figures 1 and 7;
 * tests/data/memory_megatron_seqsel.csv), by simulation of scenarios/models/megatron.dir: every row
 * within 5 %, and what is not read off a figure within 0.1 %.
 *
 * The figures count the layers of the first stage alone, so what the embedding and the head hold
 * must not count here: memory grows by as much for each layer of a stage, and twice the difference
 * between the model and one with half its layers is what its layers hold. Gradients are f32: 2 + 4
 * + 12 = 18 bytes a parameter.
 *
 * A stage of 1F1B holds no more microbatches than there are stages, of interleaved 1F1B fewer than
 * two times as many; so 2 p microbatches (p without virtual stages) hold what all of them would.
 * The 1T model has 64 stages of 2 layers. Here it has 16 of the same 2 layers: parameters,
 * gradients and states of a stage are the same, and the first stage holds 16 microbatches in the
 * place of 64, so its activations count 4 times (64 stages take a minute and 10 GB;
 * sim/mem/MEASURED.md has them). */
#include "ir/base/csv.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 16
#define GIB        1073741824.0

typedef struct model {
    const char *name;
    int layers, hidden, heads;
} model;
static const model models[] = {
    {"megatron-22B", 48, 6144, 64}, {"gpt3-175B", 96, 12288, 96}, {"megatron-1T", 128, 25600, 160}};

typedef struct mode {
    const char *name, *strategy;
} mode;
static const mode modes[] = {{"none", "recompute = none"},
                             {"seq", "sp = on"},
                             {"sel", "recompute = selective"},
                             {"seqsel", "sp = on, recompute = selective"},
                             {"full", "recompute = full"}};
#define N_MODES ((int)(sizeof modes / sizeof *modes))

typedef struct layout {
    int tp, pp, vpp, mbs, microbatches;
} layout;

/* Bytes of a device. */
typedef struct held {
    double state, activations;
} held;

static void put_scenario(const model *m, int layers, const layout *l, const mode *how,
                         ds_buf *out) {
    ds_buf_printf(
        out,
        "dir 1\nimport \"models/megatron.dir\" as megatron with layers = %d, hidden = %d, "
        "heads = %d, seq = 2048, vocab = 51200, batch = %d\n",
        layers, m->hidden, m->heads, l->mbs * l->microbatches);
    ds_buf_printf(out,
                  "topology @node {\n  device gpu[%d] : \"A100-SXM4-80GB\"\n  switch s\n  nic nic\n"
                  "  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..%d\n  link s -- nic : 200 GB/s, "
                  "1 us\n}\n",
                  l->tp, l->tp);
    ds_buf_printf(out,
                  "topology @pod {\n  node n[%d] : @node\n  switch s\n"
                  "  link n[i].nic -- s : 200 GB/s, 1 us for i in 0..%d\n}\n",
                  l->pp, l->pp);
    ds_buf_printf(out,
                  "scenario { model = @megatron.gpt, on = @pod, train { optimizer = adam, dtype = "
                  "f16, grad_dtype = f32 }, strategy { tp = %d, pp = %d, microbatches = %d, %s",
                  l->tp, l->pp, l->microbatches, how->strategy);
    if (l->vpp > 1) ds_buf_printf(out, ", schedule = \"interleaved\", virtual_stages = %d", l->vpp);
    ds_buf_put(out, " } }\n");
}

static held run(const model *m, int layers, const layout *l, const mode *how) {
    ds_buf text = {0};
    sim_case c;
    ds_mem mem = {0};
    put_scenario(m, layers, l, how, &text);
    sim_run_text(&c, text.text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text.text);
    ds_mem_options options = {.keep_masks = true};
    cr_assert_eq(ds_mem_compute(c.result->plan, &c.result->run, &options, &mem, NULL), DS_OK);
    const ds_mem_class *first = &mem.classes[c.result->plan->class_of[0]];
    const int64_t *most = first->most_by_category;
    held h = {(double)(most[DS_CAT_WEIGHT] + most[DS_CAT_GRADIENT] + most[DS_CAT_OPTIMIZER]),
              (double)most[DS_CAT_ACTIVATION]};
    ds_mem_deinit(&mem);
    sim_free(&c);
    ds_buf_deinit(&text);
    return h;
}

/* What the layers of the first stage hold, in GiB. */
static held layers_alone(const model *m, layout l, const mode *how) {
    int stages = l.pp > MAX_STAGES ? MAX_STAGES : l.pp, part = l.pp / stages;
    int layers = m->layers / part;
    l.pp = stages;
    l.microbatches = stages == 1 ? 1 : l.vpp > 1 ? 2 * stages : stages;
    held whole = run(m, layers, &l, how), half = run(m, layers / 2, &l, how);
    return (held){2 * (whole.state - half.state) / GIB,
                  2 * (whole.activations - half.activations) / GIB * part};
}

static const char *cell(const ds_csv *csv, uint32_t i, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    cr_assert_neq(at, DS_CSV_NO_COLUMN, "%s", column);
    return csv->rows.at[i].cells[at];
}

static int number(const ds_csv *csv, uint32_t i, const char *column) {
    return atoi(cell(csv, i, column));
}

static void check_row(const ds_csv *csv, uint32_t i, const held *of, int how) {
    const char *quantity = cell(csv, i, "quantity");
    bool figure = strcmp(cell(csv, i, "unit"), "%") == 0; /* read off figure 7 */
    double published = strtod(cell(csv, i, "value"), NULL), simulated = of[how].activations;
    if (figure)
        simulated *= 100 / of[0].activations;
    else if (strcmp(quantity, "activations") != 0)
        simulated = of[how].state;
    double error = simulated / published - 1;
    printf("%-13s %-7s %-14.14s %9.4f %9.4f %+.2f %%\n", cell(csv, i, "model"), modes[how].name,
           figure ? "percent" : quantity, published, simulated, 100 * error);
    cr_expect_leq(fabs(error), figure ? 0.05 : 0.001, "%s %s %s", cell(csv, i, "model"),
                  modes[how].name, quantity);
}

/* All rows of a model; how many there were. */
static uint32_t check_model(const model *m) {
    ds_csv csv;
    ds_error err;
    held of[N_MODES];
    bool made = false;
    uint32_t n = 0;
    cr_assert_eq(ds_csv_read(DS_TEST_DIR "/data/memory_megatron_seqsel.csv", &csv, &err), DS_OK,
                 "%s", err.message);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        if (strcmp(cell(&csv, i, "model"), m->name) != 0) continue;
        layout l = {.tp = number(&csv, i, "tp"),
                    .pp = number(&csv, i, "pp"),
                    .vpp = number(&csv, i, "vpp"),
                    .mbs = number(&csv, i, "mbs")};
        for (int k = 0; k < N_MODES && !made; k++) of[k] = layers_alone(m, l, &modes[k]);
        made = true;
        int how = 0;
        while (how < N_MODES && strcmp(modes[how].name, cell(&csv, i, "mode")) != 0) how++;
        cr_assert_lt(how, N_MODES, "%s", cell(&csv, i, "mode"));
        check_row(&csv, i, of, how);
        n++;
    }
    ds_csv_deinit(&csv);
    return n;
}

Test(mem_published, megatron_22b) {
    cr_expect_eq(check_model(&models[0]), 9);
}

Test(mem_published, gpt3_175b_interleaved) {
    cr_expect_eq(check_model(&models[1]), 9);
}

Test(mem_published, megatron_1t) {
    cr_expect_eq(check_model(&models[2]), 9);
}
