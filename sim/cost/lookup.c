/* The cost of one op: measured row, interpolation, roofline.
 *
 * Only + − × ÷ on doubles and 128-bit integers, so that every machine gives the same picoseconds; a
 * double becomes a time in ds_ps_from_seconds alone. */
#include "ir/base/units.h"
#include "sim/cost/profiles_internal.h"

#include <inttypes.h>
#include <string.h>

typedef struct query {
    const ds_profiles *p;
    const ds_device_kind *kind;
    uint32_t profile;        /* whose rows and fits count; 0 if it belongs to another kind */
    const ds_profile *named; /* that names it: itself, or one with it as its base */
    ds_kernel_stack kernels;
    const char *op;
    const char *class; /* how rows and fits call this kind of work */
    const ds_work *work;
    double launches;
    bool passes;
    const char *kernel;
    ds_loc loc;
    ds_buf *explain; /* may be NULL */
    ds_error *err;
} query;

static bool has(const query *q, ds_term term) {
    return ds_profiles_has(q->p, term);
}

static const char *class_of(ds_work_kind kind) {
    switch (kind) {
    case DS_WORK_GEMM:
        return "gemm";
    case DS_WORK_CONV:
        return "conv";
    case DS_WORK_ATTENTION:
        return "attention";
    case DS_WORK_RECURRENT:
        return "recurrent";
    case DS_WORK_MEMORY:
        return "memory";
    case DS_WORK_NONE:
        break;
    }
    return "none";
}

/* On hardware whose peaks for both are equal, bf16 and f16 differ in the meaning of their bits and
 * not in time. The other one, or `dtype` itself. */
static ds_dtype stand_in(const ds_device_kind *kind, ds_dtype dtype) {
    if (kind->peak_flop_per_s[DS_BF16] != kind->peak_flop_per_s[DS_F16]) return dtype;
    if (dtype == DS_BF16) return DS_F16;
    return dtype == DS_F16 ? DS_BF16 : dtype;
}

/* ---- explanation ---- */

static void explain_work(const query *q) {
    const ds_work *w = q->work;
    ds_buf *out = q->explain;
    const ds_profile *profile = &q->p->profiles.at[q->profile];
    ds_buf_printf(out, "%s %s on %s, profile %s\n", q->op, ds_dtype_name(w->dtype), q->kind->name,
                  profile->name);
    if (*profile->software) ds_buf_printf(out, "  software: %s\n", profile->software);
    ds_buf_put(out, "  work: ");
    switch (w->kind) {
    case DS_WORK_GEMM:
    case DS_WORK_CONV:
    case DS_WORK_RECURRENT:
        ds_buf_printf(out, "%s batch=%" PRId64 " m=%" PRId64 " n=%" PRId64 " k=%" PRId64 ", ",
                      q->class, w->batch, w->m, w->n, w->k);
        break;
    case DS_WORK_ATTENTION:
        ds_buf_printf(out,
                      "attention batch=%" PRId64 " heads=%" PRId64 "/%" PRId64 " seq=%" PRId64
                      "x%" PRId64 " head_dim=%" PRId64 "%s, ",
                      w->batch, w->heads, w->kv_heads, w->seq_q, w->seq_kv, w->head_dim,
                      w->causal ? " causal" : "");
        break;
    case DS_WORK_MEMORY:
        ds_buf_printf(out, "memory tokens=%" PRId64 " width=%" PRId64 ", ", w->tokens, w->width);
        break;
    case DS_WORK_NONE:
        break;
    }
    ds_buf_printf(out, "%" PRId64 " FLOP, %" PRId64 " bytes read, %" PRId64 " bytes written\n",
                  w->flop, w->bytes_read, w->bytes_written);
    if (q->launches > 1) ds_buf_printf(out, "  launched as %.0f kernels\n", q->launches);
    if (q->launches < 1) ds_buf_put(out, "  part of the kernel of another operation\n");
}

static void explain_row(const query *q, const char *what, const ds_op_row *row) {
    ds_buf_printf(q->explain, "  %s: ", what);
    ds_print_ps(row->ps, q->explain);
    ds_buf_printf(q->explain, " at %s=%" PRId64 " in %s",
                  q->work->kind == DS_WORK_MEMORY      ? "tokens"
                  : q->work->kind == DS_WORK_ATTENTION ? "batch"
                                                       : "m",
                  row->key.x, ds_dtype_name(row->key.dtype));
    if (row->n > 1) ds_buf_printf(q->explain, ", median of %u", row->n);
    ds_buf_printf(q->explain, " [%s]\n", row->source);
}

static void explain_total(const query *q, const ds_cost *cost) {
    ds_buf_put(q->explain, "  time: ");
    ds_print_ps(cost->ps, q->explain);
    ds_buf_printf(q->explain, " (%" PRId64 " ps), %s%s\n", cost->ps,
                  ds_cost_origin_name(cost->origin),
                  cost->extrapolated ? ", outside the fitted range" : "");
}

/* ---- measured rows ---- */

/* attention_grad does more than attention of the same shape: its rows go by its own name. */
static bool is_backward(const char *op) {
    const ds_op_desc *desc = ds_op_desc_of(ds_op_by_name(op));
    return desc && (desc->flags & DS_OPF_BACKWARD);
}

static ds_op_key key_of(const query *q, ds_dtype dtype) {
    const ds_work *w = q->work;
    const char *op = is_backward(q->op) ? q->op : q->class;
    ds_op_key key = {.profile = q->profile, .op = op, .dtype = dtype};
    switch (w->kind) {
    case DS_WORK_ATTENTION: {
        const int64_t fixed[] = {w->heads,  w->kv_heads, w->seq_q,
                                 w->seq_kv, w->head_dim, w->causal};
        memcpy(key.fixed, fixed, sizeof fixed);
        key.x = w->batch;
        break;
    }
    case DS_WORK_MEMORY:
        key.op = q->op;
        key.fixed[0] = w->width;
        key.x = w->tokens;
        break;
    default:
        key.fixed[0] = w->batch;
        key.fixed[1] = w->n;
        key.fixed[2] = w->k;
        key.x = w->m;
        break;
    }
    return key;
}

/* Index of the first row that is not before `key`. */
static uint32_t lower_bound(const ds_profiles *p, const ds_op_key *key) {
    uint32_t low = 0, high = p->ops.n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ds_op_key_compare(&p->ops.at[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* t0 + (t1 − t0)(x − x0)/(x1 − x0), rounded up, exact in 128 bits. */
static int64_t interpolate(const ds_op_row *r0, const ds_op_row *r1, int64_t x) {
    int64_t x0 = r0->key.x, x1 = r1->key.x;
    ds_i128 weighted = (ds_i128)r0->ps * (x1 - x) + (ds_i128)r1->ps * (x - x0);
    return (int64_t)((weighted + (x1 - x0) - 1) / (x1 - x0));
}

/* True if rows of this dtype give the time. */
static bool measured(const query *q, ds_dtype dtype, ds_cost *out) {
    ds_op_key key = key_of(q, dtype);
    uint32_t at = lower_bound(q->p, &key);
    const ds_op_row *rows = q->p->ops.at;
    if (at < q->p->ops.n && ds_op_key_compare(&rows[at].key, &key) == 0) {
        *out = (ds_cost){.ps = rows[at].ps, .origin = DS_COST_EXACT};
        if (q->explain) explain_row(q, "measured", &rows[at]);
        return true;
    }
    if (at == 0 || at == q->p->ops.n) return false;
    const ds_op_row *below = &rows[at - 1], *above = &rows[at];
    if (ds_op_key_compare_fixed(&below->key, &key) != 0 ||
        ds_op_key_compare_fixed(&above->key, &key) != 0)
        return false;
    if (above->key.x - below->key.x > below->key.x) return false; /* more than 2× apart */
    *out = (ds_cost){.ps = interpolate(below, above, key.x), .origin = DS_COST_INTERPOLATED};
    if (q->explain) {
        explain_row(q, "between", below);
        explain_row(q, "and", above);
    }
    return true;
}

/* ---- roofline ---- */

/* How well a curve of these kernels fits the query: best of all the query's own kernels, then curves of
 * any kernels, then PyTorch's own kernels where the query's are not known. */
static int nearness(const query *q, ds_kernel_stack kernels) {
    if (kernels == q->kernels) return 3;
    if (kernels == DS_KERNELS_OPS) return 2;
    return q->kernels == DS_KERNELS_OPS && kernels == DS_KERNELS_EAGER;
}

static const ds_fit *fit_of(const query *q, const char *op, int32_t dtype, bool flop) {
    if (!has(q, DS_TERM_CURVES)) return NULL;
    const ds_profile *of = &q->p->profiles.at[q->profile];
    const ds_fit *best = NULL;
    int least = 0;
    for (uint32_t i = of->first_fit; q->profile && i < of->end_fit; i++) {
        const ds_fit *f = &q->p->fits.at[i];
        if (f->profile != q->profile || f->flop != flop || f->dtype != dtype ||
            nearness(q, f->kernels) <= least || strcmp(f->op, op) != 0)
            continue;
        best = f;
        least = nearness(q, f->kernels);
    }
    return best;
}

static bool is_unaligned(const ds_work *w) {
    int64_t size = (int64_t)ds_dtype_bits(w->dtype) / 8, vector = size > 0 ? 16 / size : 0;
    return w->kind == DS_WORK_GEMM && vector >= 8 &&
           (w->m % vector || w->n % vector || w->k % vector);
}

/* Tensor cores take whole vectors of 16 bytes: a product with a dim that is no multiple of them
 * runs on other kernels; and memory is read in lines of 128 bytes, which dims of their multiples
 * fill (NVIDIA, Matrix Multiplication Background User's Guide, section "Requirements to use Tensor
 * Cores"). A single product whose dims lack that has a curve of its own, where the profile has one;
 * of batches of small ones only what concerns the vectors counts. */
static const char *grid_of(const ds_work *w) {
    int64_t size = (int64_t)ds_dtype_bits(w->dtype) / 8, vector = size > 0 ? 16 / size : 0;
    if (w->kind != DS_WORK_GEMM || vector < 8) return NULL;
    if (is_unaligned(w)) return "gemm_unaligned";
    int64_t line = 8 * vector;
    bool ragged = w->m % line || w->n % line || w->k % line;
    return ragged && w->batch == 1 ? "gemm_ragged" : NULL;
}

/* A score costs one exponential, whatever the head's dims, and 2(d + e) FLOPs: heads narrower than
 * 128 are bound by exponentials (Shah et al. 2024, arXiv:2407.08608, section 3.2) and have a curve
 * of their own, where the profile has one. */
static const char *narrow_heads(const query *q) {
    if (q->work->kind != DS_WORK_ATTENTION || q->work->head_dim >= 128) return NULL;
    return is_backward(q->op) ? "attention_grad_narrow" : "attention_narrow";
}

/* Each copy of a token is sent by an instruction or two of its own: below some size the number of copies
 * counts and not their bytes (DeepEP, Hybrid-EP_Implementation.md: among 36 ranks of a rack copies of
 * 7 KB take longer than copies of 14 KB). Copies of less than 4 KB have a curve of
 * their own, where the profile has one. */
static const char *narrow_copies(const query *q) {
    const ds_work *w = q->work;
    ds_i128 bits = (ds_i128)w->width * ds_dtype_bits(w->dtype);
    if (w->kind != DS_WORK_MEMORY || bits >= 8 * 4096) return NULL;
    if (strcmp(q->op, "dispatch") == 0) return "dispatch_narrow";
    return strcmp(q->op, "combine") == 0 ? "combine_narrow" : NULL;
}

static const char *special_of(const query *q) {
    if (q->work->kind == DS_WORK_GEMM) return grid_of(q->work);
    return q->work->kind == DS_WORK_MEMORY ? narrow_copies(q) : narrow_heads(q);
}

/* The most special fit: of the mnemonic before the class, of the dtype before any. */
static const ds_fit *best_fit(const query *q, bool flop) {
    const char *special = special_of(q);
    /* Libraries have tensor-core kernels without whole vectors for one product, not for batches. */
    bool batch = q->work->batch > 1 && is_unaligned(q->work);
    const char *names[] = {batch ? "gemm_unaligned_batch" : q->op, special ? special : q->op, q->op,
                           q->class};
    if (q->work->kind == DS_WORK_ATTENTION && !has(q, DS_TERM_ATTENTION))
        names[0] = names[1] = names[2] = names[3] = class_of(DS_WORK_GEMM);
    for (int i = q->passes ? 3 : batch ? 0 : 1; i < 4; i++) {
        const ds_fit *f = fit_of(q, names[i], (int32_t)q->work->dtype, flop);
        if (!f) f = fit_of(q, names[i], (int32_t)stand_in(q->kind, q->work->dtype), flop);
        if (!f) f = fit_of(q, names[i], DS_ANY_DTYPE, flop);
        if (f) return f;
    }
    return NULL;
}

/* The fit of the dtype and format, else the first one of the dtype. */
static const ds_gemm_fit *gemm_for(const query *q, ds_dtype dtype, bool grouped) {
    const ds_gemm_fit *first = NULL;
    for (uint32_t i = 0; i < q->p->gemms.n; i++) {
        const ds_gemm_fit *f = &q->p->gemms.at[i];
        if (f->profile != q->profile || f->dtype != dtype || f->grouped != grouped) continue;
        if (!q->work->format || strcmp(f->format, q->work->format) == 0) return f;
        if (!first) first = f;
    }
    return first;
}

/* The products of the dtype by tiles and waves; NULL if the profile has no such fit, or an
 * efficiency curve for just these. */
static const ds_gemm_fit *gemm_of(const query *q, bool grouped) {
    if (q->work->kind != DS_WORK_GEMM || !q->profile) return NULL;
    if (!has(q, DS_TERM_TILES) || !has(q, DS_TERM_CURVES)) return NULL;
    const ds_fit *curve = best_fit(q, true);
    if (curve && strcmp(curve->op, q->class) != 0) return NULL;
    ds_dtype dtype = q->work->dtype, other = stand_in(q->kind, dtype);
    const ds_gemm_fit *f = NULL;
    if (grouped) f = gemm_for(q, dtype, true);
    if (!f) f = gemm_for(q, dtype, false);
    return f || other == dtype ? f : gemm_for(q, other, false);
}

/* How much of the word names the kernel: all of a kernel's name that the word is or begins with
 * ("cudnn" of "cudnn:det"); 0: another kernel. */
static size_t named(const char *kernel, const char *word) {
    size_t n = strlen(kernel);
    if (strncmp(kernel, word, n) != 0) return 0;
    bool whole = !((word[n] >= 'a' && word[n] <= 'z') || (word[n] >= '0' && word[n] <= '9'));
    return whole ? n : 0;
}

static bool is_listed(const ds_buf *list, const char *kernel) {
    size_t n = strlen(kernel);
    for (const char *at = list->n ? list->text : NULL; at; at = strchr(at, ',')) {
        at += at != list->text ? 2 : 0;
        if (strncmp(at, kernel, n) == 0 && (!at[n] || at[n] == ',')) return true;
    }
    return false;
}

bool ds_profile_has_attention(const ds_profiles *p, uint32_t profile, const char *kernel,
                              ds_buf *known) {
    for (uint32_t i = 0; i < p->attentions.n; i++) {
        const ds_attention_fit *f = &p->attentions.at[i];
        if (f->profile == profile && strcmp(f->kernel, kernel) == 0) return true;
    }
    for (uint32_t i = 0; i < p->attentions.n; i++) {
        const ds_attention_fit *f = &p->attentions.at[i];
        if (f->profile == profile && !is_listed(known, f->kernel))
            ds_buf_printf(known, "%s%s", known->n ? ", " : "", f->kernel);
    }
    return false;
}

static bool is_fit_for(const query *q, const ds_attention_fit *f, ds_dtype dtype) {
    int64_t dim = q->work->head_dim;
    return f->profile == q->profile && f->dtype == dtype && f->backward == is_backward(q->op) &&
           f->dim_least <= dim && dim <= f->dim_most;
}

/* Whose attention a stack runs. PyTorch's scaled_dot_product_attention takes FlashAttention-2 before
 * cuDNN (ATen native/transformers/cuda/sdp_utils.cpp, priority_order; cuDNN first in 2.5.0 alone,
 * taken back in 2.5.1); Transformer Engine prefers cuDNN's on Hopper and Blackwell
 * (transformer_engine/pytorch/attention, get_attention_backend). */
static const char *stack_kernel(ds_kernel_stack stack) {
    if (stack == DS_KERNELS_OPS) return NULL;
    return stack == DS_KERNELS_FUSED ? "cudnn" : "fa2";
}

/* The fit of the kernel that is named, else of the default one, by blocks and waves; NULL if the
 * profile has none. */
static const ds_attention_fit *attention_of(const query *q) {
    if (q->work->kind != DS_WORK_ATTENTION || q->work->stores_scores || !q->profile) return NULL;
    if (!has(q, DS_TERM_ATTENTION) || !has(q, DS_TERM_CURVES)) return NULL;
    const char *word = q->kernel ? q->kernel : stack_kernel(q->kernels);
    ds_dtype dtypes[] = {q->work->dtype, stand_in(q->kind, q->work->dtype)};
    for (int d = 0; d < 2; d++) {
        const ds_attention_fit *best = NULL;
        size_t most = 0;
        for (uint32_t i = 0; i < q->p->attentions.n; i++) {
            const ds_attention_fit *f = &q->p->attentions.at[i];
            if (!is_fit_for(q, f, dtypes[d])) continue;
            size_t n = word ? named(f->kernel, word) : 0;
            if (n <= most && (most || !f->is_default)) continue;
            most = n;
            best = f;
        }
        if (best) return best;
    }
    return NULL;
}

/* One side of the roofline. */
typedef struct bound {
    double seconds; /* negative: not known */
    bool fitted;
    bool extrapolated;
    ds_cost_spread spread;
} bound;

static void explain_rate(const query *q, const char *what, const ds_fit *f, double rate,
                         double efficiency, bool extrapolated) {
    const char *unit = strcmp(what, "compute") == 0 ? "FLOP/s" : "B/s";
    ds_buf_printf(q->explain, "  %s: ", what);
    ds_print_rate(rate, unit, q->explain);
    if (f) {
        ds_buf_printf(q->explain, " x efficiency %.4g = %.4g w/(w + %.4g)%s", efficiency, f->e_max,
                      q->launches * f->w_half,
                      extrapolated ? ", w clamped to the fitted range" : "");
        if (f->floor_ps) {
            ds_buf_put(q->explain, ", at least ");
            ds_print_ps((int64_t)q->launches * f->floor_ps, q->explain);
        }
        if (f->row_ps) {
            ds_buf_put(q->explain, ", at least ");
            ds_print_ps(f->row_ps, q->explain);
            ds_buf_put(q->explain, " a token");
        }
        if (f->kernels) ds_buf_printf(q->explain, ", %s kernels", ds_kernel_stack_name(f->kernels));
        ds_buf_printf(q->explain, "; %s [%s]\n", f->basis, f->source);
    } else {
        ds_buf_printf(q->explain, " (catalogue, no fit) [%s]\n", q->kind->source);
    }
}

static bound bound_of(const query *q, const char *what, const ds_fit *f, double peak, double work) {
    bound none = {.seconds = -1};
    if (!f && !(peak > 0)) return none;
    double rate = f ? f->reference_per_s : peak, efficiency = 1;
    bound b = {.fitted = f != NULL, .spread = f ? f->spread : (ds_cost_spread){0}};
    if (f) {
        double w = work < f->w_min ? f->w_min : work > f->w_max ? f->w_max : work;
        efficiency = f->e_max * w / (w + q->launches * f->w_half);
        b.extrapolated = work < f->w_min || work > f->w_max;
    }
    b.seconds = work / (rate * efficiency);
    bool launches = f && has(q, DS_TERM_LAUNCH);
    double least_ps = launches ? q->launches * (double)f->floor_ps : 0;
    double rows_ps =
        f && q->work->kind == DS_WORK_MEMORY ? (double)f->row_ps * (double)q->work->tokens : 0;
    if (rows_ps > least_ps) least_ps = rows_ps;
    if (b.seconds < least_ps / (double)DS_PS_PER_S) b.seconds = least_ps / (double)DS_PS_PER_S;
    if (q->explain) explain_rate(q, what, f, rate, efficiency, b.extrapolated);
    return b;
}

static ds_status no_cost(const query *q, const char *missing) {
    return ds_error_set(q->err, DS_ERR_COST, q->loc,
                        "no cost for %s in %s on %s: the catalogue has no %s and profile %s no fit",
                        q->op, ds_dtype_name(q->work->dtype), q->kind->name, missing,
                        q->p->profiles.at[q->profile].name);
}

static ds_attention_shape attention_shape(const query *q) {
    const ds_work *w = q->work;
    return (ds_attention_shape){.batch = w->batch,
                                .heads = w->heads,
                                .kv_heads = w->kv_heads,
                                .seq_q = w->seq_q,
                                .seq_kv = w->seq_kv,
                                .head_dim = w->head_dim,
                                .value_dim = w->value_dim ? w->value_dim : w->head_dim,
                                .window = w->window,
                                .causal = w->causal,
                                .backward = is_backward(q->op),
                                .bytes = (double)w->bytes_read + (double)w->bytes_written};
}

static void sides(const query *q, bound *flop, bound *traffic) {
    const ds_work *w = q->work;
    double peak = q->kind->peak_flop_per_s[w->dtype];
    double bandwidth = (double)q->kind->memory_bytes_per_s;
    double bytes = (double)w->bytes_read + (double)w->bytes_written;
    *flop = *traffic = (bound){.seconds = -1};
    const ds_gemm_fit *gemm = gemm_of(q, w->grouped);
    if (gemm) {
        flop->seconds = ds_gemm_least_compute(&gemm->model, (double)w->flop);
        traffic->seconds = ds_gemm_least_memory(&gemm->model, bytes);
        return;
    }
    const ds_attention_fit *attention = attention_of(q);
    if (attention) {
        ds_attention_shape shape = attention_shape(q);
        traffic->seconds = attention->model.launch_s +
                           bytes / (attention->model.bytes_per_s * attention->model.e_memory);
        shape.bytes = 0;
        flop->seconds = ds_attention_seconds(&attention->model, &shape, NULL);
        return;
    }
    if (w->flop > 0) *flop = bound_of(q, "compute", best_fit(q, true), peak, (double)w->flop);
    if (bytes > 0) *traffic = bound_of(q, "memory", best_fit(q, false), bandwidth, bytes);
}

/* Of a byte of scale, the part of one element. */
static double scale_bytes(const char *format) {
    if (strcmp(format, "nvfp4") == 0) return 1.0 / 16;
    return strcmp(format, "mxfp4") == 0 ? 1.0 / 32 : 0;
}

/* A product of fewer than 16 bits sums up to results of 16. */
static ds_gemm_shape shape_of(const ds_work *w, const char *format) {
    double bytes = ds_dtype_bits(w->dtype) / 8.0 + scale_bytes(format);
    return (ds_gemm_shape){w->batch, w->m, w->n, w->k, bytes, bytes < 2 ? 2 : bytes};
}

static ds_status tiled(const query *q, const ds_gemm_fit *f, ds_cost *out) {
    const ds_work *w = q->work;
    ds_gemm_shape shape = shape_of(w, f->format);
    ds_gemm_choice choice;
    ds_gemm_model model = f->model;
    if (!has(q, DS_TERM_LAUNCH)) model.launch_s = 0;
    double seconds = ds_gemm_seconds(&model, &shape, &choice), flop = (double)w->flop;
    *out = (ds_cost){.origin = DS_COST_ROOFLINE,
                     .fitted = true,
                     .extrapolated = flop < f->w_min || flop > f->w_max,
                     .spread = f->spread,
                     .sagged_ppb = choice.sag > 1 ? (int64_t)(1e9 / choice.sag) : 0};
    if (q->explain)
        ds_buf_printf(q->explain,
                      "  tiles: %" PRId64 " x %" PRId64 ", k in %" PRId64
                      ", %.4g waves over %" PRId64 " processors, %s; %s [%s]\n",
                      choice.tile_m, choice.tile_n, choice.cuts, choice.waves, f->model.processors,
                      choice.memory_bound ? "held up by memory" : "by compute", f->basis,
                      f->source);
    return ds_ps_from_seconds(seconds, &out->ps, q->err);
}

static ds_status blocked(const query *q, const ds_attention_fit *f, ds_cost *out) {
    ds_attention_shape shape = attention_shape(q);
    ds_attention_choice choice;
    ds_attention_model model = f->model;
    if (!has(q, DS_TERM_LAUNCH)) model.launch_s = 0;
    double seconds = ds_attention_seconds(&model, &shape, &choice), flop = (double)q->work->flop;
    *out = (ds_cost){.origin = DS_COST_ROOFLINE,
                     .fitted = true,
                     .extrapolated = flop < f->w_min || flop > f->w_max,
                     .spread = f->spread};
    if (q->explain)
        ds_buf_printf(
            q->explain,
            "  blocks: kernel %s, %.4g of %" PRId64
            " rows, %.4g keys a block (at most %.4g), over %" PRId64 " processors, %s; %s [%s]\n",
            f->kernel, choice.blocks, f->model.block_rows, choice.mean_keys, choice.most_keys,
            f->model.processors, choice.memory_bound ? "held up by memory" : "by compute", f->basis,
            f->source);
    return ds_ps_from_seconds(seconds, &out->ps, q->err);
}

static ds_status roofline(const query *q, ds_cost *out) {
    const ds_work *w = q->work;
    const ds_gemm_fit *gemm = gemm_of(q, w->grouped);
    if (gemm) return tiled(q, gemm, out);
    const ds_attention_fit *attention = attention_of(q);
    if (attention) return blocked(q, attention, out);
    bool memory = w->kind == DS_WORK_MEMORY;
    double bytes = (double)w->bytes_read + (double)w->bytes_written;
    bound flop, traffic;
    sides(q, &flop, &traffic);
    if (!memory && w->flop > 0 && flop.seconds < 0) return no_cost(q, "peak");
    if (memory && bytes > 0 && traffic.seconds < 0) return no_cost(q, "memory bandwidth");
    bound larger = flop.seconds > traffic.seconds ? flop : traffic;
    *out = (ds_cost){.origin = DS_COST_ROOFLINE,
                     .fitted = larger.fitted,
                     .extrapolated = larger.extrapolated,
                     .spread = larger.spread};
    return ds_ps_from_seconds(larger.seconds < 0 ? 0 : larger.seconds, &out->ps, q->err);
}

static query query_of(const ds_cost_query *of) {
    uint32_t profile = of->profile;
    if (profile && of->profiles->profiles.at[profile].kind != of->kind) profile = 0;
    return (query){.p = of->profiles,
                   .kind = &of->profiles->kinds.at[of->kind],
                   .profile = ds_cost__base(of->profiles, profile),
                   .named = &of->profiles->profiles.at[profile],
                   .kernels = of->kernels,
                   .op = of->op,
                   .class = class_of(of->work->kind),
                   .work = of->work,
                   .launches = 1.0 + of->extra_launches,
                   .passes = of->passes,
                   .kernel = of->kernel,
                   .loc = of->loc};
}

void ds_cost_sides(const ds_cost_query *of, double *compute_s, double *memory_s) {
    *compute_s = *memory_s = -1;
    if (of->work->kind == DS_WORK_NONE) return;
    query q = query_of(of);
    bound flop, traffic;
    sides(&q, &flop, &traffic);
    double factor = ds_cost__op_factor(of);
    *compute_s = flop.seconds * factor;
    *memory_s = traffic.seconds * factor;
}

/* As fitted together with the products that follow. */
static ds_status fitted_conversions(const query *q, const ds_gemm_fit *f, ds_cost *out) {
    double bytes = (double)q->work->bytes_converted;
    bool launches = has(q, DS_TERM_LAUNCH);
    if (q->explain) {
        ds_buf_put(q->explain, "  memory: ");
        ds_print_rate(f->convert_bytes_per_s, "B/s", q->explain);
        ds_buf_printf(q->explain, " after %.4g us; %s [%s]\n", f->convert_s * 1e6, f->basis,
                      f->source);
    }
    return ds_ps_from_seconds((launches ? f->convert_s : 0) + bytes / f->convert_bytes_per_s,
                              &out->ps, q->err);
}

/* Conversions of a product's operands are kernels before it, bound by their bytes. */
static ds_status add_conversions(const query *q, ds_cost *out) {
    ds_work work = {.kind = DS_WORK_MEMORY,
                    .dtype = q->work->dtype,
                    .bytes_read = q->work->bytes_converted,
                    .tokens = q->work->m,
                    .width = q->work->k};
    query cast = *q;
    ds_cost more;
    cast.op = "convert";
    cast.class = class_of(work.kind);
    cast.work = &work;
    cast.launches = 1;
    cast.passes = false;
    if (q->explain)
        ds_buf_printf(q->explain, "  and operands converted, %" PRId64 " bytes moved:\n",
                      work.bytes_read);
    const ds_gemm_fit *gemm = gemm_of(q, false);
    if (gemm && gemm->convert_bytes_per_s > 0)
        DS_TRY(fitted_conversions(q, gemm, &more));
    else
        DS_TRY(roofline(&cast, &more));
    if (!ds_add_i64(out->ps, more.ps, &out->ps))
        return ds_error_set(q->err, DS_ERR_OVERFLOW, q->loc, "%s: a time beyond 2^63 ps", q->op);
    return DS_OK;
}

ds_status ds_cost_op(const ds_cost_query *of, ds_cost_mode mode, ds_cost *out, ds_buf *explain,
                     ds_error *err) {
    const ds_work *work = of->work;
    query q = query_of(of);
    q.explain = explain;
    q.err = err;
    *out = (ds_cost){.origin = DS_COST_ROOFLINE};
    if (explain) explain_work(&q);
    if (work->kind != DS_WORK_NONE) {
        ds_dtype other = stand_in(q.kind, work->dtype);
        bool found =
            q.profile && mode == DS_COST_MEASURED && !work->window &&
            (measured(&q, work->dtype, out) || (other != work->dtype && measured(&q, other, out)));
        if (!found) DS_TRY(roofline(&q, out));
        if (work->bytes_converted) DS_TRY(add_conversions(&q, out));
        DS_TRY(ds_cost__scale(q.named, ds_cost__op_factor(of), &out->ps, explain, err));
    }
    if (explain) explain_total(&q, out);
    return DS_OK;
}
