/* Reading a row of measurements, and what follows from it. */
#include "tools/validate/row.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- reading ---- */

#define MLP "distir_mlp"

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

/* "… [26.06.01 NeMo Container; …": 2606. */
static int64_t release_of(const char *ref) {
    const char *at = strchr(ref, '[');
    int year = 0, month = 0;
    if (!at || sscanf(at, "[%2d.%2d", &year, &month) != 2) return 0;
    return 100 * year + month;
}

static void fill_known(val_row *r) {
    const val_known_model *m = r->known = val_known_model_of(r->model);
    if (!m || m->refused) return;
    const struct {
        int64_t *cell, value;
    } dims[] = {{&r->layers, m->layers}, {&r->hidden, m->hidden},     {&r->heads, m->heads},
                {&r->ffn, m->ffn},       {&r->kv_heads, m->kv_heads}, {&r->vocab, m->vocab}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        if (!*dims[i].cell) *dims[i].cell = dims[i].value;
}

void val_row_read(const ds_csv *csv, uint32_t index, val_row *out) {
#define TEXT(column)   text_of(csv, index, column)
#define SIZE(column)   count_of(csv, index, column, MAX_SIZE, 0)
#define DEGREE(column) count_of(csv, index, column, MAX_DEGREE, 0)
    *out = (val_row){
        .line = csv->rows.at[index].line,
        .source_id = TEXT("source_id"),
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
        .kv_heads = SIZE("kv_heads"),
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
        .seconds = number_of(csv, index, "iter_time_s", 0),
    };
    if (!(out->seconds > 0)) out->seconds = number_of(csv, index, "iter_time_derived_s", 0);
    out->flawed = strstr(TEXT("tflops_per_gpu"), "[^gpt-oss-note]") != NULL;
    out->release = release_of(out->ref);
    fill_known(out);
    if (ds_csv_find(csv, "world_size") == DS_CSV_NO_COLUMN) return;
    out->source_id = MLP;
    out->model = "MLP";
    out->gpus = out->dp = DEGREE("world_size");
    out->tp = out->pp = 1;
    out->layers = SIZE("num_layers");
    out->hidden = SIZE("hidden_dim");
    out->gbs = SIZE("batch_size");
    out->seconds = number_of(csv, index, "measured_ms", 0) * 1e-3;
#undef TEXT
#undef SIZE
#undef DEGREE
}

bool val_row_is_mlp(const val_row *row) {
    return strcmp(row->source_id, MLP) == 0;
}

/* ---- what is missing ---- */

static double params_of(const val_row *r, int64_t layers) {
    double h = (double)r->hidden;
    return (double)layers * (12 * h * h + 13 * h) + (double)(r->vocab + r->seq + 2) * h;
}

/* Is `value` what is printed as `printed`, whose last digit is worth 1, 0.1, …? */
static bool prints_as(double value, double printed) {
    double unit = 1;
    while (unit > 1e-4 && fabs(printed / unit - round(printed / unit)) > 1e-6) unit /= 10;
    return fabs(value - printed) <= unit / 2;
}

static int64_t layers_of(const val_row *r) {
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

static void fill_in(val_row *r) {
    if (r->gpus == 1 && !r->dp && !r->tp && !r->pp) r->dp = r->tp = r->pp = 1;
    if (!r->cp) r->cp = 1;
    if (!r->ep) r->ep = 1;
    if (!r->vpp) r->vpp = 1;
    if (!r->ffn) r->ffn = 4 * r->hidden;
    if (!r->kv_heads) r->kv_heads = r->heads;
    if (!r->gpus_per_node || r->gpus_per_node > r->gpus) r->gpus_per_node = r->gpus;
    if (!r->gbs) r->gbs = r->mbs * r->dp;
    bool sized = r->params_b > 0 && r->hidden && r->vocab && r->pp;
    if (!r->layers && sized) r->layers = layers_of(r);
}

static ds_status find_missing(const val_row *r, ds_error *err) {
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

static ds_status find_contradictions(const val_row *r, ds_error *err) {
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
    if (r->known && r->ep > r->gpus_per_node)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "ep %" PRId64 " on nodes of %" PRId64
                            ": a token crosses to a node once for all of its experts there, and "
                            "beside another microbatch's compute (DeepEP)",
                            r->ep, r->gpus_per_node);
    if (r->known && r->dp * r->cp % r->ep && r->ep != r->dp * r->cp * r->tp)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "ep %" PRId64 " neither divides dp %" PRId64 " times cp %" PRId64
                            ", nor is it that times tp %" PRId64,
                            r->ep, r->dp, r->cp, r->tp);
    if ((!r->known && r->hidden % r->heads) || r->heads % r->tp)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%" PRId64 " heads do not divide hidden %" PRId64 ", or tp %" PRId64
                            " them",
                            r->heads, r->hidden, r->tp);
    if (r->gpus % r->gpus_per_node)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%" PRId64 " GPUs are no nodes of %" PRId64, r->gpus, r->gpus_per_node);
    return DS_OK;
}

ds_status val_row_complete(val_row *row, ds_error *err) {
    fill_in(row);
    if (row->known && row->known->refused)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "%s", row->known->refused);
    if (row->flawed)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "its source marks the figure as a regression of that container's cuDNN "
                            "(performance-summary.md, gpt-oss-note)");
    if (strstr(row->notes, "LoRA"))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "LoRA: most weights have no gradients");
    DS_TRY(find_missing(row, err));
    if (row->ep != 1 && !row->known)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "ep %" PRId64 ": no dense model",
                            row->ep);
    return find_contradictions(row, err);
}

double val_row_flop(const val_row *r) {
    if (val_row_is_mlp(r))
        return 6.0 * (double)r->gbs * (double)r->layers * (double)r->hidden * (double)r->hidden;
    double h = (double)r->hidden, l = (double)r->layers, s = (double)r->seq;
    if (r->known && !r->known->refused) {
        const val_known_model *m = r->known;
        double token = val_known_active_params(m) + h * (double)r->vocab;
        double seen = m->attention_layers ? (double)m->attention_layers : l;
        double scores = seen * s * (double)(m->heads * m->head_dim);
        return 6 * (double)r->gbs * s * (token + scores);
    }
    double kv = r->kv_heads && r->heads ? (double)r->kv_heads / (double)r->heads : 1;
    double products = r->ffn == 4 * r->hidden ? 2 : 3; /* up and down, or gate, up and down */
    double layer = h * h * (2 + 2 * kv) + products * h * (double)r->ffn;
    double forward = 2 * s * (l * layer + h * (double)r->vocab) + 4 * l * s * s * h;
    double passes = strncasecmp(r->recompute, "full", 4) == 0 ? 4 : 3;
    return passes * (double)r->gbs * forward;
}
