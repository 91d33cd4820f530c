/* What follows from a row of measurements, what is missing, and what contradicts itself. */
#include "tools/validate/row.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* ---- what is missing ---- */

/* Up and down, or gate, up and down. */
static double mlp_products(const val_row *r) {
    return r->ffn == 4 * r->hidden ? 2 : 3;
}

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

#define MAX_LAYERS 32767

static int64_t layers_of(const val_row *r) {
    double per_layer = params_of(r, 1) - params_of(r, 0);
    double guess = (r->params_b * 1e9 - params_of(r, 0)) / per_layer;
    if (guess > MAX_LAYERS) return 0;
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
    if (!r->gpus_per_node) r->no_node_size = true;
    if (!r->gpus_per_node || r->gpus_per_node > r->gpus) r->gpus_per_node = r->gpus;
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

/* Parameters of a dense row by its dims, with no, one or two embeddings. */
static double dense_params(const val_row *r, int embeddings) {
    double h = (double)r->hidden, kv = (double)r->kv_heads / (double)r->heads;
    double layer = h * h * (2 + 2 * kv) + mlp_products(r) * h * (double)r->ffn;
    return (double)r->layers * layer + embeddings * h * (double)r->vocab;
}

#define MOST_OFF 0.15

static ds_status check_size(const val_row *r, ds_error *err) {
    double stated = r->params_b * 1e9;
    bool dense = !r->known && r->params_b > 0;
    if (!dense || (stated >= (1 - MOST_OFF) * dense_params(r, 0) &&
                   stated <= (1 + MOST_OFF) * dense_params(r, 2)))
        return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "params_b = %g, but %" PRId64 " layers of %" PRId64 " have %.4g",
                        r->params_b, r->layers, r->hidden, dense_params(r, 1) * 1e-9);
}

static ds_status check_schedule(const val_row *r, ds_error *err) {
    bool plain = r->generator && (!strcmp(r->generator, "1f1b") || !strcmp(r->generator, "gpipe"));
    bool interleaved = r->generator && strcmp(r->generator, "interleaved") == 0;
    if ((plain && r->vpp > 1) || (interleaved && r->vpp == 1))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "schedule %s with %" PRId64 " chunk%s a stage", r->schedule, r->vpp,
                            r->vpp > 1 ? "s" : "");
    return DS_OK;
}

static ds_status find_contradictions(const val_row *r, ds_error *err) {
    DS_TRY(check_size(r, err));
    DS_TRY(check_schedule(r, err));
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
    if (r->known && r->dp * r->cp % r->ep && r->ep != r->dp * r->cp * r->tp)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "ep %" PRId64 " neither divides dp %" PRId64 " times cp %" PRId64
                            ", nor is it that times tp %" PRId64,
                            r->ep, r->dp, r->cp, r->tp);
    if (r->known && r->ep > 1 && r->tp > 1 && r->ep != r->dp * r->cp * r->tp)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
            "ep %" PRId64 " of %" PRId64
            " devices of dp, cp and tp: the recipe keeps experts whole on a device "
            "(expert_tensor_parallel_size = 1), and here tp would split the experts",
            r->ep, r->dp * r->cp * r->tp);
    if (r->known && r->ep > r->gpus_per_node && strncasecmp(r->model, "Nemotron", 8) == 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "ep %" PRId64 " on nodes of %" PRId64
                            ": the recipe names two dispatchers of tokens, alltoall and hybridep",
                            r->ep, r->gpus_per_node);
    if (!r->known) DS_TRY(val_row_check_heads(r, err));
    if (r->heads % r->tp)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "heads %" PRId64 " are not divisible by tp %" PRId64, r->heads, r->tp);
    if (r->gpus % r->gpus_per_node)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%" PRId64 " GPUs are no nodes of %" PRId64, r->gpus, r->gpus_per_node);
    return DS_OK;
}

ds_status val_row_check_cells(const val_row *row, ds_error *err) {
    return *row->unread ? ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s", row->unread) : DS_OK;
}

ds_status val_row_check_heads(const val_row *row, ds_error *err) {
    bool whole = row->hidden % row->heads == 0;
    if (whole && (!row->kv_heads || row->heads % row->kv_heads == 0)) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s %" PRId64 " is not divisible by %s %" PRId64,
                        whole ? "heads" : "hidden", whole ? row->heads : row->hidden,
                        whole ? "kv_heads" : "heads", whole ? row->kv_heads : row->heads);
}

ds_status val_row_complete(val_row *row, ds_error *err) {
    DS_TRY(val_row_check_cells(row, err));
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

bool val_mentions(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
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
    double layer = h * h * (2 + 2 * kv) + mlp_products(r) * h * (double)r->ffn;
    double forward = 2 * s * (l * layer + h * (double)r->vocab) + 4 * l * s * s * h;
    double passes = strncasecmp(r->recompute, "full", 4) == 0 ? 4 : 3;
    return passes * (double)r->gbs * forward;
}
