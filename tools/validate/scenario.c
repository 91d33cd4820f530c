/* From a complete row to the text of a scenario. */
#include "tools/validate/scenario.h"

#include "tools/validate/mixed.h"
#include "tools/validate/recipe.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Turns of the model's loops in the part `i` of n. Where two more would divide, embedding and head
 * count as a layer each, but not where layers behind the others are in the last part. */
static int64_t part_of(int64_t turns, int64_t n, int64_t i, bool ends_count) {
    if (turns % n == 0) return turns / n;
    if (ends_count && (turns + 2) % n == 0) {
        int64_t each = (turns + 2) / n;
        return i == 0 || i == n - 1 ? each - 1 : each;
    }
    int64_t each = (turns + n - 1) / n, left = turns - each * i;
    return left < 0 ? 0 : left < each ? left : each;
}

int64_t val_stage_layers(const val_row *row, int64_t stage) {
    return part_of(row->layers, row->pp, stage, true);
}

static int64_t turns_of(const val_row *r) {
    if (!r->known) return r->layers;
    int64_t each = r->known->layers_a_turn ? r->known->layers_a_turn : 1;
    return r->layers / each + r->known->more_turns;
}

int64_t val_memory_microbatches(const val_row *row) {
    int64_t most = row->vpp > 1 ? 2 * row->pp : row->pp;
    return most < 3 ? 3 : most;
}

static bool mentions(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

static bool in_4_bits(const val_row *r) {
    return mentions(r->precision, "fp4");
}

/* ---- the machine ---- */

void val_gpu_name(const char *gpu, char *name, size_t room) {
    size_t n = 0;
    for (; gpu[n] && gpu[n] != ' ' && n + 1 < room; n++) name[n] = gpu[n] == '_' ? '-' : gpu[n];
    name[n] = '\0';
}

static void put_gpu(const char *gpu, ds_buf *out) {
    char name[64];
    val_gpu_name(gpu, name, sizeof name);
    ds_buf_put_quoted(out, name);
}

const char *val_row_gpu(const val_row *row) {
    bool hbm2e = strncmp(row->gpu, "H100", 4) == 0 && strstr(row->notes, "96 GB HBM2e");
    return hbm2e ? "H100-96GB" : row->gpu;
}

/* A power limit that the notes state, as in "500 W, 96 GB HBM2e cards"; 0: none. */
static int power_cap(const val_row *r) {
    for (const char *at = r->notes; (at = strstr(at, " W")); at++) {
        const char *digit = at;
        while (digit > r->notes && digit[-1] >= '0' && digit[-1] <= '9') digit--;
        bool word = (at[2] >= 'a' && at[2] <= 'z') || (at[2] >= 'A' && at[2] <= 'Z');
        if (digit < at && at - digit < 5 && !word) return atoi(digit);
    }
    return 0;
}

/* GPUs on NVLink; NICs at the testbed's rate, shared by neighbours
 * where there are fewer of them than GPUs; one switch without blocking between the nodes. */
static void put_topology(const val_row *r, const val_testbed *t, const char *gpu, bool host,
                         ds_buf *out) {
    int64_t each = r->gpus_per_node, nics = t->nics && t->nics < each ? t->nics : each;
    while (each % nics) nics--;
    ds_buf_printf(out, "topology @node {\n  device gpu[%" PRId64 "] : ", each);
    put_gpu(gpu, out);
    if (power_cap(r)) ds_buf_printf(out, " {power_cap = %d}", power_cap(r));
    if (host)
        ds_buf_printf(
            out, "\n  host cpu\n  link gpu[i] -- cpu : 31 GB/s, 1 us for i in 0..%" PRId64, each);
    ds_buf_printf(out,
                  "\n  switch nvswitch\n  nic nic[%" PRId64
                  "]\n  link gpu[i] -- nvswitch : %" PRId64 " GB/s, 235 ns for i in 0..%" PRId64
                  "\n  link gpu[i] -- nic[i / %" PRId64 "] : %" PRId64
                  " GB/s, 1 us for i in 0..%" PRId64 "\n}\n\n",
                  nics, t->nvlink_gb_per_s, each, each / nics,
                  t->pcie_gb_per_s ? t->pcie_gb_per_s : 31, each);
    ds_buf_printf(out,
                  "topology @cluster {\n  node n[%" PRId64 "] : @node\n  switch fabric\n"
                  "  link n[i].nic[j] -- fabric : %" PRId64 " MB/s, 1 us for i in 0..%" PRId64
                  ", j in 0..%" PRId64 "\n}\n\n",
                  r->gpus / each, t->nic_mb_per_s, r->gpus / each, nics);
}

/* ---- the model ---- */

static const char *model_file(const val_row *r, const val_testbed *t) {
    static const char *const files[VAL_MODELS] = {"megatron", "gpt", "llama", "bert", "transgan"};
    if (!r->known) return files[t->model];
    return r->known->file ? r->known->file : "moe";
}

static const char *model_entry(const val_row *r, const val_testbed *t) {
    static const char *const entries[VAL_MODELS] = {"gpt", "gpt", "llama", "bert", "generator"};
    if (!r->known && t->untied) return "gpt_untied";
    if (!r->known) return entries[t->model];
    if (val_testbed_is_generic(t) && r->known->entry_generic) return r->known->entry_generic;
    return in_4_bits(r) && r->known->entry_4_bits ? r->known->entry_4_bits : r->known->entry;
}

static int64_t padded_vocab(const val_row *r, const val_testbed *t) {
    bool titan = t->framework && strcmp(t->framework, "torchtitan") == 0; /* pads for no tiles */
    int64_t pad = titan ? r->tp : 128 * r->tp;
    if (t->whole_vocab && r->tp == 1) return r->vocab;
    return (r->vocab + pad - 1) / pad * pad;
}

static void put_model(const val_row *r, const val_testbed *t, int64_t microbatches, ds_buf *out) {
    const char *file = model_file(r, t), *with = r->known ? r->known->with : NULL;
    if (r->known && in_4_bits(r) && r->known->with_4_bits) with = r->known->with_4_bits;
    if (t->model == VAL_TRANSGAN) {
        ds_buf_printf(out, "import \"models/%s.dir\" as %s with batch = %" PRId64 "\n\n", file,
                      file, r->mbs * r->dp * microbatches);
        return;
    }
    ds_buf_printf(out,
                  "import \"models/%s.dir\" as %s with hidden = %" PRId64 ", heads = %" PRId64
                  ", seq = %" PRId64 ", vocab = %" PRId64 ", batch = %" PRId64,
                  file, file, r->hidden, r->heads, r->seq, padded_vocab(r, t),
                  r->mbs * r->dp * microbatches);
    if (!r->known || !r->known->attention_layers) /* else its own params say the order of layers */
        ds_buf_printf(out, ", layers = %" PRId64, r->layers);
    if (r->known || t->model == VAL_LLAMA)
        ds_buf_printf(out, ", kv_heads = %" PRId64 ", ffn = %" PRId64, r->kv_heads, r->ffn);
    if (r->known)
        ds_buf_printf(out, ", head_dim = %" PRId64 ", experts = %" PRId64 ", top = %" PRId64 "%s",
                      r->known->head_dim, r->known->experts, r->known->top, with ? with : "");
    if (r->known && r->dp * r->cp % r->ep) /* devices of tp route what they have of a sequence */
        ds_buf_printf(out, ", chunks = %" PRId64, r->cp * r->tp);
    ds_buf_put(out, "\n\n");
}

/* ---- the scenario ---- */

/* torchtitan counts embedding and loss as layers since August 2025; rows do not say the version. */
static void put_stage_layers(const val_row *r, const val_testbed *t, ds_buf *out) {
    int64_t turns = turns_of(r), chunks = r->pp * r->vpp;
    bool ends_count = !r->known || !r->known->more_turns;
    bool told = t->framework && strcmp(t->framework, "torchtitan") == 0;
    if (r->pp == 1 || (turns % chunks == 0 && !told)) return;
    ds_buf_put(out, ", stage_layers = [");
    for (int64_t i = 0; i < chunks; i++)
        ds_buf_printf(out, "%s%" PRId64, i ? ", " : "", part_of(turns, chunks, i, ends_count));
    ds_buf_put(out, "]");
}

static void put_mixed_layers(const val_row *r, const val_mixed *mixed, ds_buf *out) {
    if (r->pp == 1) return;
    ds_buf_put(out, ", stage_layers = [");
    for (int64_t i = 0; i < r->pp; i++)
        ds_buf_printf(out, "%s%" PRId64, i ? ", " : "", mixed->layers[i]);
    ds_buf_put(out, "]");
}

/* Sequence parallelism, and what its communication runs under: no products of 4 bits do. */
static void put_sp(const val_row *r, const val_testbed *t, val_purpose purpose, ds_buf *out) {
    const char *overlap = mentions(r->precision, "fp8")   ? t->narrow_tp_overlap
                          : mentions(r->precision, "fp4") ? NULL
                                                          : t->tp_overlap;
    if (r->sp <= 0 || r->tp == 1) return;
    ds_buf_put(out, ", sp = true");
    if (overlap && purpose == VAL_TIME) ds_buf_printf(out, ", tp_overlap = %s", overlap);
}

/* Constants of a testbed were fitted to steps whose recomputation was not known. */
static bool follows_recipe(const val_testbed *t, val_purpose purpose) {
    return purpose >= VAL_FITS || (purpose == VAL_TIME && t->recipes && val_testbed_is_generic(t));
}

static void put_recompute(const val_row *r, const val_testbed *t, val_purpose purpose,
                          ds_buf *out) {
    const char *modules = follows_recipe(t, purpose) ? val_recipe_modules(r) : NULL;
    if (modules)
        ds_buf_printf(out, ", recompute = [%s]", modules);
    else if (strcasecmp(r->recompute, "selective-op") == 0)
        ds_buf_put(out, ", recompute = selective_op");
    else if (strncasecmp(r->recompute, "full", 4) == 0)
        ds_buf_put(out, ", recompute = full");
    else if (strncasecmp(r->recompute, "sel", 3) == 0)
        ds_buf_put(out, ", recompute = selective");
}

static void put_strategy(const val_row *r, const val_testbed *t, val_purpose purpose,
                         int64_t microbatches, const val_mixed *mixed, ds_buf *out) {
    int64_t zero = t->fsdp && r->zero == 2 ? 3 : r->zero;
    if (t->gathers_ahead && r->zero == 1 && purpose == VAL_TIME) zero = 0;
    ds_buf_printf(out,
                  "  strategy { dp = %" PRId64 ", tp = %" PRId64 ", pp = %" PRId64
                  ", microbatches = %" PRId64 ", zero = %" PRId64,
                  r->dp, r->tp, r->pp, microbatches, zero);
    const char *reshard = t->fsdp && r->zero == 2 ? "never" : t->reshard;
    if (zero == 3 && reshard && r->pp == 1)
        ds_buf_printf(out, ", reshard_after_forward = %s", reshard);
    if (zero == 3 && r->zero_group && r->zero_group < r->dp)
        ds_buf_printf(out, ", zero_group = %" PRId64, r->zero_group);
    if (zero < 2 && r->dp > 1 && (t->late_reduce || t->framework) && purpose == VAL_TIME)
        ds_buf_printf(out, ", late_reduce = %s", t->late_reduce ? "true" : "false");
    if (t->parts && purpose == VAL_TIME && r->pp > 1 && r->tp > 1)
        ds_buf_put(out, ", scatter_gather = true");
    if (r->cp > 1) ds_buf_printf(out, ", cp = %" PRId64, r->cp);
    if (r->ep > 1) ds_buf_printf(out, ", ep = %" PRId64, r->ep);
    if (r->ep > 1 && purpose == VAL_TIME && follows_recipe(t, purpose) && val_recipe_overlaps(r))
        ds_buf_put(out, ", ep_overlap = true");
    if (r->ep > r->gpus_per_node && purpose == VAL_TIME && follows_recipe(t, purpose) &&
        val_recipe_has_deepep(r)) {
        /* DeepSeek-V3 routes a token to 4 of 8 groups of experts, which are neighbours. */
        int64_t nodes = r->ep / r->gpus_per_node;
        ds_buf_printf(out, ", ep_dispatch = deepep, ep_nodes = %" PRId64, (nodes + 1) / 2);
    }
    if (r->zero == 1 && (t->uneven || purpose == VAL_MEMORY))
        ds_buf_put(out, ", zero_uneven = true");
    put_sp(r, t, purpose, out);
    const char *order = r->vpp > 1 && !r->generator ? "interleaved" : r->generator;
    if (r->pp > 1 && order && strcmp(order, "1f1b") != 0)
        ds_buf_printf(out, ", schedule = \"%s\"", order);
    if (r->vpp > 1) ds_buf_printf(out, ", virtual_stages = %" PRId64, r->vpp);
    put_recompute(r, t, purpose, out);
    if (t->p2p && purpose == VAL_TIME && r->pp > 1) ds_buf_printf(out, ", p2p = %s", t->p2p);
    if (t->tied_dtype && r->pp > 1) ds_buf_printf(out, ", tied_dtype = %s", t->tied_dtype);
    if (mixed)
        put_mixed_layers(r, mixed, out);
    else
        put_stage_layers(r, t, out);
    if (purpose == VAL_AT_HOST) ds_buf_put(out, ", offload = activations");
    ds_buf_put(out, " }\n");
}

/* "fp16", "bf16 (fp32 grad accum)", "fp32"; "FP8-CS", "MXFP8", "NVFP4": products in it, and bf16
 * between them. */
static void put_train(const val_row *r, const val_testbed *t, val_purpose purpose, ds_buf *out) {
    const char *narrow = mentions(r->precision, "fp8")   ? "f8e4m3"
                         : mentions(r->precision, "fp4") ? "f4e2m1"
                                                         : NULL;
    bool single = strncasecmp(r->precision, "fp32", 4) == 0;
    bool wide = strstr(r->precision, "fp32 grad") || strstr(r->precision, "all-reduce fp32");
    const char *dtype = narrow || mentions(r->precision, "bf16") ? "bf16" : "f16";
    ds_buf_put(out, "  train { optimizer = adam");
    if (!single) ds_buf_printf(out, ", dtype = %s", dtype);
    const char *sums = wide ? "f32" : strcmp(dtype, "bf16") == 0 ? t->grad_dtype : NULL;
    if (purpose >= VAL_FITS) sums = "bf16"; /* the recipes' grad_reduce_in_fp32 = False */
    if (!single && sums) ds_buf_printf(out, ", grad_dtype = %s", sums);
    if (narrow) ds_buf_printf(out, ", product_dtype = %s", narrow);
    ds_buf_put(out, " }\n");
}

static void put_profiles(const val_mixed *mixed, ds_buf *out) {
    ds_buf_put(out, "  profiles = [");
    for (uint32_t k = 0; k < mixed->n_kinds; k++) {
        if (k) ds_buf_put(out, ", ");
        ds_buf_put_quoted(out, mixed->kind[k]->profile);
    }
    ds_buf_put(out, "]\n  cost = measured\n");
}

void val_scenario(const val_row *r, const val_testbed *t, val_purpose purpose,
                  int64_t max_microbatches, ds_buf *out) {
    int64_t microbatches = r->gbs / (r->mbs * r->dp);
    if (max_microbatches > 0 && microbatches > max_microbatches) microbatches = max_microbatches;
    ds_buf_printf(out, "dir 1\n\n// line %" PRIu32 ", ", r->line);
    for (const char *at = r->ref; *at; at++)
        ds_buf_putc(out, iscntrl((unsigned char)*at) ? ' ' : *at);
    ds_buf_put(out, "\n");
    put_model(r, t, microbatches, out);
    val_mixed mixed, *machine = NULL;
    ds_error unsaid;
    if (val_is_mixed(r) && val_mixed_read(r, &mixed, &unsaid) == DS_OK) machine = &mixed;
    if (machine)
        val_mixed_topology(r, machine, out);
    else
        put_topology(r, t, purpose == VAL_TIME && t->device ? t->device : val_row_gpu(r),
                     purpose == VAL_AT_HOST, out);
    ds_buf_printf(out, "scenario {\n  model = @%s.%s\n  on = @cluster\n", model_file(r, t),
                  model_entry(r, t));
    if (purpose != VAL_TIME) ds_buf_put(out, "  memory = allocator\n  masks = kept\n");
    if (purpose == VAL_MEMORY && strstr(r->schedule, "DeepSpeed"))
        ds_buf_put(out, "  framework = deepspeed\n");
    else if (t->framework)
        ds_buf_printf(out, "  framework = %s\n", t->framework);
    else if (t->fsdp && purpose != VAL_TIME)
        ds_buf_put(out, "  framework = fsdp\n");
    /* Constants of a testbed stand for its kernels, and were fitted with what an operation keeps. */
    bool own = purpose == VAL_TIME && !val_testbed_is_generic(t);
    const char *kernels = purpose >= VAL_FITS ? "fused" : own ? NULL : t->kernels;
    if (kernels) ds_buf_printf(out, "  kernels = %s\n", kernels);
    if (t->loss_kernels) ds_buf_printf(out, "  loss_kernels = %s\n", t->loss_kernels);
    if (t->norm_kernels) ds_buf_printf(out, "  norm_kernels = %s\n", t->norm_kernels);
    if (machine && !val_testbed_is_generic(t))
        put_profiles(machine, out);
    else if (purpose == VAL_TIME && val_testbed_is_generic(t))
        ds_buf_printf(
            out, "  profile = generic\n%s%s%s", t->attention_kernel ? "  attention_kernel = " : "",
            t->attention_kernel ? t->attention_kernel : "", t->attention_kernel ? "\n" : "");
    else if (purpose == VAL_TIME && t->profile)
        ds_buf_printf(out, "  profile = \"%s\"\n", t->profile);
    else /* without a profile the device's default one would count */
        ds_buf_put(out, "  profile = ideal\n");
    if (purpose == VAL_TIME && t->without) ds_buf_printf(out, "  without = [%s]\n", t->without);
    if (t->graphs && purpose == VAL_TIME) ds_buf_put(out, "  cuda_graphs = true\n");
    put_train(r, t, purpose, out);
    put_strategy(r, t, purpose, microbatches, machine, out);
    ds_buf_put(out, "}\n");
}
