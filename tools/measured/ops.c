/* Products, attention, memory bound operations, launches. */
#include "tools/measured/internal.h"

#include <stdlib.h>
#include <string.h>

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- products ---- */

/* AITER and cuBLASLt are given narrow operands; a framework's layer makes its own of 16 bits. */
static bool converts(const char *kernel) {
    return !begins(kernel, "aiter") && !begins(kernel, "cublas");
}

ds_status measured_read_gemm(const measured_reader *r, measured_row *row) {
    ds_dtype dtype;
    int64_t bmnk[4] = {1};
    DS_TRY(measured_dtype(r, row->dtype, &dtype, &row->format));
    DS_TRY(measured_int(r, "m", 1, &bmnk[1]));
    DS_TRY(measured_int(r, "n", 1, &bmnk[2]));
    DS_TRY(measured_int(r, "k", 1, &bmnk[3]));
    DS_TRY(measured_real(r, "time_us", &row->us));
    measured_part_product(row, dtype, bmnk);
    if (converts(row->kernel)) measured_part_converts(row);
    return DS_OK;
}

/* ---- attention ---- */

typedef struct heads {
    int64_t batch, heads, kv_heads, d, e, seq_q, seq_kv;
    int64_t window; /* 0: none */
    bool causal, backward, unfused;
} heads;

/* Pairs of a query and a key that are multiplied, doubled, of one head and sample: the queries are
 * the last of the keys, and a causal square counts half. */
static int64_t pairs_doubled(const heads *h) {
    int64_t s = h->seq_q, t = h->seq_kv, w = h->window;
    if (!h->causal) return TIMES(2, s, t);
    if (!w || w >= t) return TIMES(s, 2 * t - s);
    /* A query sees at most w keys; the first ones of a sequence see fewer. */
    int64_t before = t - s;
    int64_t growing = before < w ? w - before : 0;
    return TIMES(2, s - growing, w) + TIMES(growing, before + w);
}

static void add_attention(measured_row *row, ds_dtype dtype, const heads *h) {
    ds_work *w = measured_part_add(row, h->backward ? "attention_grad" : "attention",
                                   DS_WORK_ATTENTION, dtype);
    int64_t q = TIMES(h->batch, h->heads, h->seq_q), k = TIMES(h->batch, h->kv_heads, h->seq_kv);
    int64_t size = (int64_t)ds_dtype_bits(dtype) / 8, out = size < 2 ? 2 : size;
    w->batch = h->batch;
    w->heads = h->heads;
    w->kv_heads = h->kv_heads;
    w->seq_q = h->seq_q;
    w->seq_kv = h->seq_kv;
    w->head_dim = h->d;
    w->value_dim = h->e;
    w->causal = h->causal;
    w->window = h->window < h->seq_kv ? h->window : 0;
    int64_t products = h->backward ? 3 * h->d + 2 * h->e : h->d + h->e;
    w->flop = TIMES(h->batch, h->heads, pairs_doubled(h), products);
    if (h->backward) {
        w->bytes_read = TIMES(q, h->d + 2 * h->e, size) + TIMES(k, h->d + h->e, size);
        w->bytes_written = TIMES(q, h->d, out) + TIMES(k, h->d + h->e, out);
    } else {
        w->bytes_read = TIMES(q, h->d, size) + TIMES(k, h->d + h->e, size);
        w->bytes_written = TIMES(q, h->e, out);
    }
    /* Scores and probabilities go to memory and back. */
    if (!h->unfused) return;
    w->bytes_read += TIMES(2, q, h->seq_kv, size);
    w->bytes_written += TIMES(2, q, h->seq_kv, size);
}

static ds_status read_heads(const measured_reader *r, heads *h) {
    int64_t causal;
    DS_TRY(measured_int(r, "batch", 1, &h->batch));
    DS_TRY(measured_int(r, "heads", 1, &h->heads));
    DS_TRY(measured_int(r, "kv_heads", 1, &h->kv_heads));
    DS_TRY(measured_int(r, "head_dim", 1, &h->d));
    DS_TRY(measured_int(r, "head_dim_v", 1, &h->e));
    DS_TRY(measured_int(r, "seq_q", 1, &h->seq_q));
    DS_TRY(measured_int(r, "seq_kv", 1, &h->seq_kv));
    DS_TRY(measured_int(r, "causal", 0, &causal));
    if (*measured_cell(r, "window")) DS_TRY(measured_int(r, "window", 1, &h->window));
    if (causal > 1)
        return ds_csv_error(r->csv, r->record, r->err, "causal = '%s': it must be 0 or 1",
                            measured_cell(r, "causal"));
    h->causal = causal == 1;
    if (h->heads % h->kv_heads)
        return ds_csv_error(r->csv, r->record, r->err,
                            "%lld heads do not divide into %lld kv_heads", (long long)h->heads,
                            (long long)h->kv_heads);
    if (h->causal && h->seq_q > h->seq_kv)
        return ds_csv_error(r->csv, r->record, r->err,
                            "causal, with seq_q = %lld above seq_kv = %lld", (long long)h->seq_q,
                            (long long)h->seq_kv);
    return DS_OK;
}

static const char decodes[] = "decoding of single tokens, which no step of training has";

static ds_status unknown_direction(const measured_reader *r, const measured_row *row) {
    return ds_csv_error(r->csv, r->record, r->err,
                        "direction = '%s': none of fwd, bwd, fwd+bwd, decode", row->direction);
}

ds_status measured_read_attention(const measured_reader *r, measured_row *row) {
    ds_dtype dtype;
    heads h = {.unfused = strstr(row->kernel, "unfused") != NULL};
    DS_TRY(measured_dtype(r, row->dtype, &dtype, &row->format));
    DS_TRY(read_heads(r, &h));
    DS_TRY(measured_real(r, "time_us", &row->us));
    /* Scales a block: kernels of their own, as attention_fits.csv calls them. */
    if (strcmp(row->format, "mxfp8") == 0)
        row->kernel = ds_arena_printf(r->arena, "%s:mxfp8", row->kernel);
    bool both = strcmp(row->direction, "fwd+bwd") == 0, back = strcmp(row->direction, "bwd") == 0;
    if (strcmp(row->direction, "decode") == 0) {
        row->refused = decodes;
        return DS_OK;
    }
    if (!both && !back && strcmp(row->direction, "fwd") != 0) return unknown_direction(r, row);
    if (!back) add_attention(row, dtype, &h);
    h.backward = true;
    if (both || back) add_attention(row, dtype, &h);
    return DS_OK;
}

/* ---- latent attention ---- */

typedef struct latent {
    int64_t nope, rope, kv_lora;
    heads h;
} latent;

/* DeepSeek-V3's sizes, of which the tables have only its own (arXiv:2412.19437, section 4.2). */
enum { V3_HIDDEN = 7168, V3_Q_LORA = 1536 };

/* Projections, norms and rotation around the attention itself. Source: deepseek-ai/DeepSeek-V3
 * inference/model.py, class MLA. */
static void add_projections(measured_row *row, ds_dtype dtype, const latent *l, bool after) {
    const heads *h = &l->h;
    int64_t tokens = TIMES(h->batch, h->seq_q), wide = l->nope + l->rope;
    if (after) {
        measured_part_product(row, dtype, (int64_t[]){1, tokens, V3_HIDDEN, TIMES(h->heads, h->e)});
        measured_part_converts(row);
        return;
    }
    int64_t q = TIMES(2, tokens, V3_Q_LORA), kv = TIMES(2, tokens, l->kv_lora);
    int64_t turned = TIMES(2, tokens, h->heads + 1, l->rope);
    measured_part_product(row, dtype,
                          (int64_t[]){1, tokens, V3_Q_LORA + l->kv_lora + l->rope, V3_HIDDEN});
    measured_part_converts(row);
    measured_part_bytes(row, "rms_norm", DS_BF16, (int64_t[]){q, q},
                        (int64_t[]){tokens, V3_Q_LORA});
    measured_part_bytes(row, "rms_norm", DS_BF16, (int64_t[]){kv, kv},
                        (int64_t[]){tokens, l->kv_lora});
    measured_part_product(row, dtype, (int64_t[]){1, tokens, TIMES(h->heads, wide), V3_Q_LORA});
    measured_part_converts(row);
    measured_part_product(row, dtype,
                          (int64_t[]){1, tokens, TIMES(h->heads, l->nope + h->e), l->kv_lora});
    measured_part_converts(row);
    measured_part_bytes(row, "rotary", DS_BF16, (int64_t[]){turned, turned},
                        (int64_t[]){TIMES(tokens, h->heads + 1), l->rope});
}

ds_status measured_read_mla(const measured_reader *r, measured_row *row) {
    ds_dtype dtype;
    latent l = {.h = {.causal = true}};
    DS_TRY(measured_dtype(r, row->dtype, &dtype, &row->format));
    DS_TRY(measured_int(r, "batch", 1, &l.h.batch));
    DS_TRY(measured_int(r, "heads", 1, &l.h.heads));
    DS_TRY(measured_int(r, "qk_nope", 1, &l.nope));
    DS_TRY(measured_int(r, "qk_rope", 0, &l.rope));
    DS_TRY(measured_int(r, "v_head", 1, &l.h.e));
    DS_TRY(measured_int(r, "kv_lora", 1, &l.kv_lora));
    DS_TRY(measured_int(r, "seq_q", 1, &l.h.seq_q));
    DS_TRY(measured_int(r, "seq_kv", 1, &l.h.seq_kv));
    DS_TRY(measured_real(r, "time_us", &row->us));
    l.h.kv_heads = l.h.heads;
    l.h.d = l.nope + l.rope;
    if (strcmp(row->direction, "decode") == 0) {
        row->refused = decodes;
        return DS_OK;
    }
    if (strcmp(row->direction, "fwd") != 0) return unknown_direction(r, row);
    if (l.h.seq_q > l.h.seq_kv)
        return ds_csv_error(r->csv, r->record, r->err, "seq_q = %lld is above seq_kv = %lld",
                            (long long)l.h.seq_q, (long long)l.h.seq_kv);
    bool module = begins(row->op, "mla_context_module");
    if (!module && strcmp(row->op, "context_mla") != 0) {
        row->refused = "an operation of latent attention that is not known";
        return DS_OK;
    }
    if (module) add_projections(row, dtype, &l, false);
    add_attention(row, module ? DS_BF16 : dtype, &l.h);
    if (module) add_projections(row, dtype, &l, true);
    /* Norms and rotation of a library. */
    for (uint32_t i = 0; i < row->n_parts; i++) row->parts[i].kernels = DS_KERNELS_FUSED;
    return DS_OK;
}

/* ---- memory ---- */

typedef struct memory_op {
    const char *name;               /* as tables have it, to a bracket or '?' */
    const char *forward, *backward; /* mnemonics; NULL: refused */
    int64_t read, of;               /* the share of the bytes that is read */
} memory_op;

static const memory_op memory_ops[] = {
    {"rms_norm", "rms_norm", "rms_norm_grad", 1, 2},
    {"qk_norm", "rms_norm", "rms_norm_grad", 1, 2},
    {"layer_norm", "layer_norm", "layer_norm_grad", 1, 2},
    {"add+rms_norm", "add_rms_norm", NULL, 1, 2},
    {"silu_mul", "silu_mul", NULL, 2, 3},
    {"rope", "rotary", "rotary", 1, 2},
    {"embedding", "embedding", NULL, 1, 2},
    {"quant_fp8_static", "convert", NULL, 2, 3},
    {"fp8_amax", "amax", NULL, 1, 1},
};

static const memory_op *memory_op_of(const char *name) {
    size_t n = strcspn(name, "(?");
    while (n && name[n - 1] == ' ') n--;
    for (size_t i = 0; i < sizeof memory_ops / sizeof *memory_ops; i++)
        if (strlen(memory_ops[i].name) == n && strncmp(name, memory_ops[i].name, n) == 0)
            return &memory_ops[i];
    return NULL;
}

/* Whose kernels a backend has; those of inference engines are of no training framework. */
static ds_kernel_stack kernels_of(const char *backend) {
    static const struct {
        const char *backend, *kernels;
    } known[] = {{"pytorch", "eager"}, {"torch_compile", "compiled"}, {"cudnn", "fused"}};
    ds_kernel_stack kernels = DS_KERNELS_OPS;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(backend, known[i].backend) == 0)
            ds_kernel_stack_parse(known[i].kernels, &kernels);
    return kernels;
}

ds_status measured_read_memory(const measured_reader *r, measured_row *row) {
    double bytes;
    int64_t rows, cols;
    ds_dtype dtype;
    size_t n = strcspn(row->dtype, "-");
    const char *word = ds_arena_strndup(r->arena, row->dtype, n);
    DS_TRY(measured_dtype(r, word, &dtype, &row->format));
    DS_TRY(measured_int(r, "rows", 1, &rows));
    DS_TRY(measured_int(r, "cols", 1, &cols));
    DS_TRY(measured_real(r, "bytes", &bytes));
    DS_TRY(measured_real(r, "time_us", &row->us));
    const memory_op *op = memory_op_of(row->op);
    bool back = strcmp(row->direction, "bwd") == 0;
    if (!back && strcmp(row->direction, "fwd") != 0) return unknown_direction(r, row);
    const char *mnemonic = !op ? NULL : back ? op->backward : op->forward;
    if (!mnemonic) {
        row->refused = "an operation that is not known";
        return DS_OK;
    }
    if (bytes > 0x1p50) bytes = 0x1p60; /* which is refused */
    int64_t all = (int64_t)bytes, read = back ? all / 3 * 2 : all / op->of * op->read;
    measured_part_bytes(row, mnemonic, dtype, (int64_t[]){read, all - read},
                        (int64_t[]){rows, cols});
    if (row->n_parts) row->parts[row->n_parts - 1].kernels = kernels_of(row->kernel);
    return DS_OK;
}

/* ---- launches ---- */

ds_status measured_read_launch(const measured_reader *r, measured_row *row) {
    double event, kernel;
    DS_TRY(measured_real(r, "event_us", &event));
    DS_TRY(measured_real(r, "kernel_us", &kernel));
    row->us = event - kernel;
    if (row->us <= 0) row->refused = "no gap: the kernel took as long as the call";
    return DS_OK;
}

/* ---- exchanges ---- */

/* A mark says that the table's authors took the dtype for granted: "fp32?". */
static bool is_known_dtype(const measured_reader *r, const char *word) {
    ds_error unsaid;
    measured_reader quiet = *r;
    ds_dtype dtype;
    const char *format;
    quiet.err = &unsaid;
    return measured_dtype(&quiet, ds_arena_strndup(r->arena, word, strcspn(word, "?")), &dtype,
                          &format) == DS_OK;
}

ds_status measured_read_collectives(const measured_reader *r, measured_row *row) {
    measured_exchange *x = &row->exchange;
    DS_TRY(measured_int(r, "group_size", 2, &x->group));
    DS_TRY(measured_int(r, "nodes", 1, &x->nodes));
    DS_TRY(measured_int(r, "size_bytes", 1, &x->bytes));
    DS_TRY(measured_real(r, "time_us", &row->us));
    row->op = ds_arena_strdup(r->arena, measured_cell(r, "collective"));
    x->op = strcmp(row->op, "alltoall") == 0 ? "all_to_all" : row->op;
    if (x->group % x->nodes)
        return ds_csv_error(r->csv, r->record, r->err, "a group of %lld over %lld nodes",
                            (long long)x->group, (long long)x->nodes);
    const ds_op_desc *op = ds_op_desc_of(ds_op_by_name(x->op));
    if (!op || !(op->flags & DS_OPF_COLLECTIVE))
        return ds_csv_error(r->csv, r->record, r->err,
                            "collective = '%s': no collective has the name", row->op);
    if (!strstr(row->kernel, "CCL"))
        row->refused = "a kernel of an inference server in place of NCCL or RCCL";
    if (!is_known_dtype(r, row->dtype)) row->refused = "a dtype that is not known";
    return DS_OK;
}

/* DeepEP's tables leave `ep` out: a node has eight devices, four of GB200 and GB300. */
static int64_t node_of(const measured_row *row) {
    return begins(row->device, "GB") ? 4 : 8;
}

ds_status measured_read_dispatch(const measured_reader *r, measured_row *row) {
    measured_exchange *x = &row->exchange;
    ds_dtype dtype;
    DS_TRY(measured_dtype(r, row->dtype, &dtype, &row->format));
    DS_TRY(measured_int(r, "nodes", 1, &x->nodes));
    x->group = x->nodes * node_of(row);
    if (*measured_cell(r, "ep")) DS_TRY(measured_int(r, "ep", 1, &x->group));
    DS_TRY(measured_int(r, "tokens_per_rank", 1, &x->tokens));
    DS_TRY(measured_int(r, "hidden", 1, &x->hidden));
    DS_TRY(measured_int(r, "topk", 1, &x->topk));
    if (*measured_cell(r, "experts")) DS_TRY(measured_int(r, "experts", 1, &x->experts));
    x->blocks = atoi(measured_cell(r, "sms")); /* "24 (best)" */
    if (x->blocks < 0 || x->blocks > 4096) x->blocks = 0;
    x->op = row->op;
    /* Results come back in 16 bits, whatever the dtype of the layer: their times are alike. */
    x->bits = strcmp(row->op, "combine") == 0 ? 16 : (int64_t)ds_dtype_bits(dtype);
    if (!*measured_cell(r, "time_us")) {
        row->refused = "no time was printed";
        return DS_OK;
    }
    DS_TRY(measured_real(r, "time_us", &row->us));
    if (strcmp(row->op, "dispatch") != 0 && strcmp(row->op, "combine") != 0)
        row->refused = "an operation that no step of training has";
    else if (strstr(row->kernel, "low-latency"))
        row->refused = "low-latency kernels are of decoding, which no step of training has";
    return DS_OK;
}
