/* From a row of measurements to a scenario text. */
#include "tools/cli/row.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- reading ---- */

static const char *text_of(const ds_csv *csv, uint32_t index, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    return at == DS_CSV_NO_COLUMN ? "" : csv->rows.at[index].cells[at];
}

/* The whole cell as a number, else `otherwise`. */
static double number_of(const ds_csv *csv, uint32_t index, const char *column, double otherwise) {
    const char *text = text_of(csv, index, column);
    char *end;
    double value = strtod(text, &end);
    return end == text || *end || !(fabs(value) < 1e15) ? otherwise : value;
}

/* Sizes and degrees that no machine has count as not stated, so that their products fit. */
#define MAX_SIZE   1000000000
#define MAX_DEGREE 32767

static int64_t count_of(const ds_csv *csv, uint32_t index, const char *column, int64_t most,
                        int64_t otherwise) {
    double value = number_of(csv, index, column, -1);
    return value >= 0 && value <= (double)most ? (int64_t)value : otherwise;
}

void cli_row_read(const ds_csv *csv, uint32_t index, cli_row *out) {
#define TEXT(column)   text_of(csv, index, column)
#define SIZE(column)   count_of(csv, index, column, MAX_SIZE, 0)
#define DEGREE(column) count_of(csv, index, column, MAX_DEGREE, 0)
    *out = (cli_row){
        .line = csv->rows.at[index].line,
        .ref = TEXT("source_ref"),
        .model = TEXT("model"),
        .gpu = TEXT("gpu"),
        .schedule = TEXT("schedule"),
        .recompute = TEXT("recompute"),
        .precision = TEXT("precision"),
        .split = TEXT("split"),
        .memory = TEXT("mem_gb"),
        .notes = TEXT("notes"),
        .params_b = number_of(csv, index, "params_b", 0),
        .layers = SIZE("layers"),
        .hidden = SIZE("hidden"),
        .heads = SIZE("heads"),
        .ffn = SIZE("ffn"),
        .vocab = SIZE("vocab"),
        .seq = SIZE("seq"),
        .gpus = SIZE("gpus"),
        .gpus_per_node = DEGREE("gpus_per_node"),
        .dp = DEGREE("dp"),
        .tp = DEGREE("tp"),
        .pp = DEGREE("pp"),
        .cp = DEGREE("cp"),
        .ep = DEGREE("ep"),
        .vpp = DEGREE("vpp"),
        .mbs = DEGREE("mbs"),
        .gbs = SIZE("gbs"),
        .zero = count_of(csv, index, "zero_stage", 3, -1),
        .sp = count_of(csv, index, "seq_parallel", 1, -1),
        .memory_gb = number_of(csv, index, "mem_gb", 0),
    };
#undef TEXT
#undef SIZE
#undef DEGREE
}

/* ---- what is missing ---- */

static double params_of(const cli_row *r, int64_t layers) {
    double h = (double)r->hidden;
    return (double)layers * (12 * h * h + 13 * h) + (double)(r->vocab + r->seq + 2) * h;
}

/* Is `value` what is printed as `printed`, whose last digit is worth 1, 0.1, …? */
static bool prints_as(double value, double printed) {
    double unit = 1;
    while (unit > 1e-4 && fabs(printed / unit - round(printed / unit)) > 1e-6) unit /= 10;
    return fabs(value - printed) <= unit / 2;
}

static int64_t layers_of(const cli_row *r) {
    double per_layer = params_of(r, 1) - params_of(r, 0);
    double guess = (r->params_b * 1e9 - params_of(r, 0)) / per_layer;
    if (guess > MAX_DEGREE) return 0;
    int64_t near = (int64_t)guess, found = 0;
    for (int64_t l = near > 0 ? near : 1; l <= near + 1; l++) {
        if (!prints_as(params_of(r, l) * 1e-9, r->params_b)) continue;
        if (l % (r->pp * r->vpp)) continue; /* the label was made with another formula */
        if (found) return 0;
        found = l;
    }
    return found;
}

static void fill_in(cli_row *r) {
    if (r->gpus == 1 && !r->dp && !r->tp && !r->pp) r->dp = r->tp = r->pp = 1;
    if (!r->cp) r->cp = 1;
    if (!r->ep) r->ep = 1;
    if (!r->vpp) r->vpp = 1;
    if (!r->ffn) r->ffn = 4 * r->hidden;
    if (!r->gpus_per_node) r->gpus_per_node = r->gpus;
    bool sized = r->params_b > 0 && r->hidden && r->vocab && r->pp;
    if (!r->layers && sized) r->layers = layers_of(r);
}

static ds_status find_missing(const cli_row *r, ds_error *err) {
    const struct {
        const char *name;
        int64_t value;
    } needed[] = {{"layers", r->layers}, {"hidden", r->hidden}, {"heads", r->heads},
                  {"vocab", r->vocab},   {"seq", r->seq},       {"dp", r->dp},
                  {"tp", r->tp},         {"pp", r->pp},         {"mbs", r->mbs},
                  {"gbs", r->gbs},       {"gpus", r->gpus},     {"zero_stage", r->zero + 1}};
    ds_buf list = {0};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].value <= 0) ds_buf_printf(&list, "%s%s", list.n ? ", " : "", needed[i].name);
    if (!*r->recompute) ds_buf_printf(&list, "%srecompute", list.n ? ", " : "");
    if (!*r->precision) ds_buf_printf(&list, "%sprecision", list.n ? ", " : "");
    ds_status status =
        list.n ? ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "not stated: %s", list.text) : DS_OK;
    ds_buf_deinit(&list);
    return status;
}

static ds_status find_contradictions(const cli_row *r, ds_error *err) {
    if (r->dp * r->tp * r->pp * r->cp != r->gpus)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "dp %" PRId64 ", tp %" PRId64 ", pp %" PRId64 ", cp %" PRId64
                            " are not %" PRId64 " GPUs",
                            r->dp, r->tp, r->pp, r->cp, r->gpus);
    if (r->gbs % (r->mbs * r->dp))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "a batch of %" PRId64 " is no multiple of mbs %" PRId64
                            " times dp %" PRId64,
                            r->gbs, r->mbs, r->dp);
    if (r->hidden % r->heads || r->heads % r->tp)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%" PRId64 " heads do not divide hidden %" PRId64 ", or tp %" PRId64
                            " them",
                            r->heads, r->hidden, r->tp);
    if (r->gpus % r->gpus_per_node)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%" PRId64 " GPUs are no nodes of %" PRId64, r->gpus, r->gpus_per_node);
    return DS_OK;
}

ds_status cli_row_complete(cli_row *row, ds_error *err) {
    if (strncasecmp(row->model, "gpt", 3) != 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "no GPT: %s", row->model);
    fill_in(row);
    DS_TRY(find_missing(row, err));
    if (row->ffn != 4 * row->hidden)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "ffn is not 4 hidden");
    if (row->ep != 1 || row->cp != 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "ep or cp above 1");
    return find_contradictions(row, err);
}

/* ---- the scenario ---- */

int64_t cli_row_stage_layers(const cli_row *row, int64_t stage) {
    int64_t pp = row->pp, layers = row->layers;
    if (layers % pp == 0) return layers / pp;
    if ((layers + 2) % pp == 0) {
        int64_t each = (layers + 2) / pp;
        return stage == 0 || stage == pp - 1 ? each - 1 : each;
    }
    int64_t each = (layers + pp - 1) / pp, left = layers - each * stage;
    return left < 0 ? 0 : left < each ? left : each;
}

int64_t cli_row_memory_microbatches(const cli_row *row) {
    int64_t most = row->vpp > 1 ? 2 * row->pp : row->pp;
    return most < 3 ? 3 : most;
}

/* Bytes a second each way (cost_profiles/catalogue/links.csv), of NVLink 2 … 5. */
static int64_t nvlink_gb_per_s(const char *gpu) {
    static const struct {
        const char *prefix;
        int64_t gb_per_s;
    } links[] = {{"P100", 80},  {"V100", 150}, {"A100", 300}, {"H100", 450},
                 {"H200", 450}, {"B200", 900}, {"B300", 900}, {"GB", 900}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (strncasecmp(gpu, links[i].prefix, strlen(links[i].prefix)) == 0)
            return links[i].gb_per_s;
    return 150;
}

static void put_topology(const cli_row *r, ds_buf *out) {
    int64_t each = r->gpus_per_node;
    ds_buf_printf(out, "topology @node {\n  device gpu[%" PRId64 "] : ", each);
    ds_buf_put_quoted(out, r->gpu);
    ds_buf_printf(out,
                  "\n  switch nvswitch\n  nic nic[%" PRId64
                  "]\n  link gpu[i] -- nvswitch : %" PRId64 " GB/s, 1 us for i in 0..%" PRId64
                  "\n  link gpu[i] -- nic[i] : 31 GB/s, 1 us for "
                  "i in 0..%" PRId64 "\n}\n\n",
                  each, nvlink_gb_per_s(r->gpu), each, each);
    ds_buf_printf(out,
                  "topology @cluster {\n  node n[%" PRId64 "] : @node\n  switch fabric\n"
                  "  link n[i].nic[j] -- fabric : 25 GB/s, 1 us for i in 0..%" PRId64
                  ", j in 0..%" PRId64 "\n}\n\n",
                  r->gpus / each, r->gpus / each, each);
}

static void put_stage_layers(const cli_row *r, ds_buf *out) {
    if (r->pp == 1 || r->layers % (r->pp * r->vpp) == 0) return;
    ds_buf_put(out, ", stage_layers = [");
    for (int64_t i = 0; i < r->pp; i++)
        ds_buf_printf(out, "%s%" PRId64, i ? ", " : "", cli_row_stage_layers(r, i));
    ds_buf_put(out, "]");
}

static void put_strategy(const cli_row *r, int64_t microbatches, ds_buf *out) {
    ds_buf_printf(out,
                  "  strategy { dp = %" PRId64 ", tp = %" PRId64 ", pp = %" PRId64
                  ", microbatches = %" PRId64 ", zero = %" PRId64,
                  r->dp, r->tp, r->pp, microbatches, r->zero);
    if (r->zero == 1) ds_buf_put(out, ", zero_uneven = true");
    if (r->sp > 0) ds_buf_put(out, ", sp = true");
    if (r->vpp > 1)
        ds_buf_printf(out, ", schedule = \"interleaved\", virtual_stages = %" PRId64, r->vpp);
    if (strncasecmp(r->recompute, "full", 4) == 0) ds_buf_put(out, ", recompute = full");
    if (strncasecmp(r->recompute, "sel", 3) == 0) ds_buf_put(out, ", recompute = selective");
    put_stage_layers(r, out);
    ds_buf_put(out, " }\n");
}

/* "fp16", "bf16 (fp32 grad accum)", "fp32". */
static void put_train(const cli_row *r, ds_buf *out) {
    bool single = strncasecmp(r->precision, "fp32", 4) == 0;
    bool wide = strstr(r->precision, "fp32 grad") != NULL;
    const char *dtype = strncasecmp(r->precision, "bf16", 4) == 0 ? "bf16" : "f16";
    ds_buf_put(out, "  train { optimizer = adam");
    if (!single) ds_buf_printf(out, ", dtype = %s", dtype);
    if (!single && wide) ds_buf_put(out, ", grad_dtype = f32");
    ds_buf_put(out, " }\n");
}

void cli_row_scenario(const cli_row *row, int64_t max_microbatches, ds_buf *out) {
    int64_t microbatches = row->gbs / (row->mbs * row->dp), pad = 128 * row->tp;
    if (max_microbatches > 0 && microbatches > max_microbatches) microbatches = max_microbatches;
    ds_buf_put(out, "dir 1\n\n");
    ds_buf_printf(out, "// line %" PRIu32 ", %s\n", row->line, row->ref);
    ds_buf_printf(out,
                  "import \"models/megatron.dir\" as megatron with layers = %" PRId64
                  ", hidden = %" PRId64 ", heads = %" PRId64 ", seq = %" PRId64 ", vocab = %" PRId64
                  ", batch = %" PRId64 "\n\n",
                  row->layers, row->hidden, row->heads, row->seq,
                  (row->vocab + pad - 1) / pad * pad, row->mbs * row->dp * microbatches);
    put_topology(row, out);
    ds_buf_put(out, "scenario {\n  model = @megatron.gpt\n  on = @cluster\n  memory = allocator\n"
                    "  masks = kept\n");
    if (strstr(row->schedule, "DeepSpeed")) ds_buf_put(out, "  framework = deepspeed\n");
    put_train(row, out);
    put_strategy(row, microbatches, out);
    ds_buf_put(out, "}\n");
}
