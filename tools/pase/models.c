/* The library's models on boxes of 8 A100: found strategies and other strategies. */
#include "tools/pase/contest.h"
#include "tools/pase/tables.h"

#include <inttypes.h>
#include <stdio.h>

/* A percent sign in `with` becomes the number of devices. */
typedef struct entry {
    const char *name, *import, *with, *function, *train;
    int64_t batch; /* of a device */
} entry;

#define SGD  "optimizer = sgd"
#define ADAM "optimizer = adam, dtype = bf16"

static const entry entries[] = {
    {"MLP, 4 x 4096", "mlp", "layers = 4, width = 4096", "mlp", "loss = mse, " SGD, 64},
    {"AlexNet", "alexnet", "classes = 1024", "alexnet", SGD, 32},
    {"AlexNet, bf16", "alexnet", "classes = 1024", "alexnet", ADAM, 32},
    {"VGG-19", "vgg19", "classes = 1024", "vgg19", SGD, 16},
    {"ResNet-50", "resnet50", "bn_groups = %", "resnet50", SGD, 32},
    {"Inception v3", "inception_v3", "bn_groups = %", "inception_v3", SGD, 32},
    {"RNNLM, 10,000 words", "rnnlm", "seq = 32, vocab = 10000", "rnnlm", SGD, 8},
    {"Transformer", "transformer", "vocab = 37888", "transformer", SGD, 8},
    {"Transformer, bf16", "transformer", "vocab = 37888", "transformer", ADAM, 8},
    {"GPT, 4 layers", "gpt", "layers = 4, vocab = 50304", "gpt", SGD, 2},
    {"GPT, 4 layers, bf16", "gpt", "layers = 4, vocab = 50304", "gpt", ADAM, 2},
    {"BERT, 4 layers", "bert", "layers = 4, vocab = 30528", "bert", SGD, 4},
    {"BERT, 4 layers, bf16", "bert", "layers = 4, vocab = 30528", "bert", ADAM, 4},
    {"T5, 4 layers", "t5", "layers = 4", "t5", SGD, 2},
    {"T5, 4 layers, bf16", "t5", "layers = 4", "t5", ADAM, 2},
    {"Llama 7B, 2 layers, bf16", "llama", "layers = 2", "llama", ADAM, 1},
    {"Qwen, 2 layers, bf16", "qwen", "layers = 2", "qwen3", ADAM, 1},
    {"Mixtral, 2 layers, bf16", "mixtral", "layers = 2", "mixtral", ADAM, 1},
};
enum { N_ENTRIES = sizeof entries / sizeof *entries };

static void put_with(const char *with, int64_t devices, ds_buf *out) {
    for (; *with; with++) {
        if (*with == '%')
            ds_buf_printf(out, "%" PRId64, devices);
        else
            ds_buf_putc(out, *with);
    }
}

static void put_scenario(const entry *e, int64_t devices, ds_buf *out) {
    ds_buf_printf(out, "dir 1\nimport \"models/%s.dir\" as m with ", e->import);
    put_with(e->with, devices, out);
    ds_buf_printf(out, ", batch = %" PRId64 "\nimport \"topologies/dgx-a100.dir\"\n",
                  e->batch * devices);
    if (devices > 8)
        ds_buf_printf(out,
                      "topology @pod {\n  node n[%" PRId64 "] : @dgx_a100\n  switch net\n"
                      "  link n[i].nic[j] -- net : 25 GB/s, 1 us for i in 0..%" PRId64
                      ", j in 0..8\n}\n",
                      devices / 8, devices / 8);
    ds_buf_printf(out,
                  "scenario {\n  model = @m.%s\n  on = @%s\n  profile = \"A100-SXM4-80GB\"\n"
                  "  train { %s }\n  strategy { dp = 1 }\n}\n",
                  e->function, devices > 8 ? "pod" : "dgx_a100", e->train);
}

static void put_entry(const ds_pase_entry *e, bool named) {
    if (!e->time.step_ps)
        printf(" - |");
    else if (named)
        printf(" %.3f (%s) |", (double)e->time.step_ps * 1e-9, e->name);
    else
        printf(" %.3f |", (double)e->time.step_ps * 1e-9);
}

static bool is_beaten(const ds_pase_contest *c) {
    const ds_pase_entry *others[] = {&c->data, &c->expert, &c->grid};
    for (int i = 0; i < 3; i++)
        if (others[i]->time.step_ps && others[i]->time.step_ps < c->found.time.step_ps) return true;
    return !c->found.time.fits;
}

static ds_status row(const tables_options *options, const entry *e, bool *beaten, ds_error *err) {
    char path[4096];
    ds_buf text = {0};
    ds_pase_contest c;
    snprintf(path, sizeof path, "%s/scenarios/contest.dir", options->root);
    put_scenario(e, options->devices, &text);
    ds_pase_source source = {.path = path, .text = text.text, .n = text.n};
    ds_status status = ds_pase_contest_run(&source, options->profiles, options->devices, &c, err);
    ds_buf_deinit(&text);
    DS_TRY(status);
    *beaten = is_beaten(&c);
    printf("| %s | %s%.3f%s (%s) |", e->name, *beaten ? "**" : "",
           (double)c.found.time.step_ps * 1e-9, *beaten ? "**" : "", c.found.name);
    put_entry(&c.data, false);
    put_entry(&c.expert, true);
    put_entry(&c.grid, true);
    printf("\n");
    fflush(stdout);
    return DS_OK;
}

int tables_models(const tables_options *options) {
    int failures = 0, n_beaten = 0;
    printf("%" PRId64 " A100, ms a step\n\n"
           "| model | found | data parallel | expert | best dp x tp x pp |\n"
           "|---|---|---|---|---|\n",
           options->devices);
    for (int i = 0; i < N_ENTRIES; i++) {
        ds_error err = {0};
        bool beaten = false;
        if (row(options, &entries[i], &beaten, &err) != DS_OK) {
            fprintf(stderr, "%s: %s\n", entries[i].name, err.message);
            failures++;
        }
        n_beaten += beaten;
    }
    printf("\nbeaten in %d of %d\n", n_beaten, N_ENTRIES);
    return failures;
}
