/* Modules of a layer that run again, found by what ops read, whatever the model calls them.
 *
 *   core_attn       attention, as `selective`
 *   layernorm       results of a layer's norms of the residual stream
 *   mla_up_proj     latent attention's products out of the narrow vectors, to q, k and v
 *   moe_act         what experts do between their two products
 *   mlp             a gated or plain block of two products around an activation
 *   shared_experts  the same, of the tokens that are also routed to experts
 *   moe             from the router to the combined results, shared experts included
 *   selective_op    all of a layer but attention and every second product, which are kept
 *
 * Sources: Megatron-LM core/transformer/transformer_config.py (recompute_modules),
 * transformer_layer.py, mlp.py, moe/moe_layer.py, moe/experts.py, multi_latent_attention.py;
 * torchtitan models/llama3/infra/parallelize.py (_apply_ac_to_transformer_block: the save list has
 * mm and attention, and meta[mm_count_key] % 2 == 0 runs again). mlp, shared_experts and moe run
 * again as a whole, the others as far as results are needed. */
#include "ir/passes/build/path.h"
#include "ir/passes/recompute/internal.h"

#include <stdlib.h>
#include <string.h>

#define NO_OP UINT32_MAX

typedef struct modules {
    ds_again *a;
    uint32_t group; /* the last one so far */
    bool *mark;     /* per op: of the walk in hand */
} modules;

static const ds_op *op_of(const modules *m, uint32_t i) {
    return m->a->ops.at[i].op;
}

/* The forward op of the same turn that makes operand k; NO_OP: none does. */
static uint32_t maker_of(const modules *m, uint32_t i, uint32_t k) {
    const ds_again_op *reader = &m->a->ops.at[i];
    const ds_use *use = &reader->op->in[k];
    if (use->n_index) return NO_OP;
    const ds_again_op *def = ds_again__def(m->a, use->value);
    if (!def || !def->forward || def->home != reader->home) return NO_OP;
    return (uint32_t)(def - m->a->ops.at);
}

static bool is_code(const modules *m, uint32_t i, ds_opcode code) {
    return i != NO_OP && op_of(m, i)->code == code;
}

static bool is_norm(const modules *m, uint32_t i) {
    return is_code(m, i, DS_OP_RMS_NORM) || is_code(m, i, DS_OP_LAYER_NORM);
}

/* A product of activations with a weight. */
static bool is_layer_product(const modules *m, uint32_t i) {
    if (!is_code(m, i, DS_OP_EINSUM) && !is_code(m, i, DS_OP_MATMUL)) return false;
    return op_of(m, i)->n_in == 2 && ds_again__is_weight(m->a, op_of(m, i)->in[1].value);
}

static bool is_activation(const modules *m, uint32_t i) {
    return is_code(m, i, DS_OP_SILU) || is_code(m, i, DS_OP_GELU) || is_code(m, i, DS_OP_RELU) ||
           is_code(m, i, DS_OP_SQUARED_RELU);
}

static bool is_elementwise(const modules *m, uint32_t i) {
    const ds_op_desc *desc = ds_op_desc_of(op_of(m, i)->code);
    return desc && strcmp(desc->family, "elementwise") == 0;
}

/* The same elements, in another shape or a part of them. */
static bool is_layout(const modules *m, uint32_t i) {
    const ds_op_desc *desc = ds_op_desc_of(op_of(m, i)->code);
    return desc && (strcmp(desc->family, "layout") == 0 || op_of(m, i)->code == DS_OP_CAST);
}

/* The op that makes operand k, through views. */
static uint32_t origin_of(const modules *m, uint32_t i, uint32_t k) {
    uint32_t at = maker_of(m, i, k);
    while (at != NO_OP && is_layout(m, at)) at = maker_of(m, at, 0);
    return at;
}

static void choose(modules *m, uint32_t i, uint32_t group) {
    ds_again_op *info = &m->a->ops.at[i];
    if (info->chosen && info->group) return;
    info->chosen = true;
    info->group = group;
    for (uint32_t k = 0; k < info->op->n_out; k++) m->a->again[info->op->out[k].i] = true;
}

/* ---- what lies between products ---- */

/* Marks the elementwise ops and views above operand 0 of a product, and, where asked for, the
 * products above these. Is there an activation among them, and nothing else above? */
static bool mark_block(modules *m, uint32_t product, bool products) {
    bool active = false;
    uint32_t from = maker_of(m, product, 0);
    memset(m->mark, 0, m->a->ops.n * sizeof *m->mark);
    if (from != NO_OP) m->mark[from] = true;
    for (uint32_t i = product; i-- > 0;) {
        if (!m->mark[i]) continue;
        if (is_layer_product(m, i)) {
            m->mark[i] = products;
            continue;
        }
        if (!is_elementwise(m, i) && !is_layout(m, i)) return false;
        active = active || is_activation(m, i);
        for (uint32_t k = 0; k < op_of(m, i)->n_in; k++) {
            uint32_t above = maker_of(m, i, k);
            bool weight = ds_again__is_weight(m->a, op_of(m, i)->in[k].value);
            if (above == NO_OP && !weight) return false;
            if (above != NO_OP) m->mark[above] = true;
        }
    }
    return active;
}

static void choose_marked(modules *m, uint32_t group) {
    for (uint32_t i = 0; i < m->a->ops.n; i++)
        if (m->mark[i]) choose(m, i, group);
}

/* Does a dispatch of tokens to experts come before the op, through products and what is between? */
static bool is_of_expert(const modules *m, uint32_t i) {
    while (i != NO_OP && !is_norm(m, i)) {
        if (is_code(m, i, DS_OP_DISPATCH)) return true;
        i = maker_of(m, i, 0);
    }
    return false;
}

/* The first op of the block whose last product this is: the one that reads the block's input. */
static uint32_t first_of(const modules *m) {
    uint32_t i = 0;
    while (!m->mark[i]) i++;
    return i;
}

/* Are the tokens that the op reads also sent to experts? */
static bool is_shared(const modules *m, uint32_t first) {
    uint32_t from = origin_of(m, first, 0);
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        if (!is_code(m, i, DS_OP_DISPATCH)) continue;
        uint32_t to = origin_of(m, i, 0);
        while (to != NO_OP && to != from && !is_norm(m, to)) to = origin_of(m, to, 0);
        if (to == from && to != NO_OP) return true;
    }
    return false;
}

static void choose_blocks(modules *m, uint32_t wanted) {
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        if (!m->a->ops.at[i].forward || !is_layer_product(m, i)) continue;
        bool expert = is_of_expert(m, maker_of(m, i, 0));
        if (expert) {
            if (wanted & DS_RECOMPUTE_MOE_ACT && mark_block(m, i, false)) choose_marked(m, 0);
            continue;
        }
        if (!mark_block(m, i, true)) continue;
        bool shared = is_shared(m, first_of(m));
        uint32_t module =
            shared ? DS_RECOMPUTE_SHARED_EXPERTS | DS_RECOMPUTE_MOE : DS_RECOMPUTE_MLP;
        if (!(wanted & module)) continue;
        m->mark[i] = true;
        choose_marked(m, ++m->group);
    }
}

/* ---- experts ---- */

/* Marks what follows from op `from`, up to and with `last`. */
static void mark_between(modules *m, uint32_t from, uint32_t last) {
    bool *above = ds_xcalloc(m->a->ops.n, sizeof *above);
    memset(m->mark, 0, m->a->ops.n * sizeof *m->mark);
    m->mark[from] = above[last] = true;
    for (uint32_t i = from + 1; i <= last; i++)
        for (uint32_t k = 0; k < op_of(m, i)->n_in && m->a->ops.at[i].forward; k++) {
            uint32_t maker = maker_of(m, i, k);
            m->mark[i] = m->mark[i] || (maker != NO_OP && m->mark[maker]);
        }
    for (uint32_t i = last + 1; i-- > from;)
        for (uint32_t k = 0; k < op_of(m, i)->n_in && above[i]; k++) {
            uint32_t maker = maker_of(m, i, k);
            if (maker != NO_OP) above[maker] = true;
        }
    for (uint32_t i = from; i <= last; i++) m->mark[i] = m->mark[i] && above[i];
    m->mark[from] = false;
    free(above);
}

static bool reads(const modules *m, uint32_t i, uint32_t from) {
    for (uint32_t k = 0; k < op_of(m, i)->n_in; k++)
        if (maker_of(m, i, k) == from) return true;
    return false;
}

/* The op that puts the experts' results together, with the sum of a shared expert's behind it. */
static uint32_t end_of(const modules *m, uint32_t dispatch, bool *mark) {
    uint32_t last = NO_OP;
    const ds_again_loop *home = m->a->ops.at[dispatch].home;
    memset(mark, 0, m->a->ops.n * sizeof *mark);
    mark[dispatch] = true;
    for (uint32_t i = dispatch + 1; i < m->a->ops.n && last == NO_OP; i++) {
        if (m->a->ops.at[i].home != home || !m->a->ops.at[i].forward) continue;
        for (uint32_t k = 0; k < op_of(m, i)->n_in; k++) {
            uint32_t maker = maker_of(m, i, k);
            mark[i] = mark[i] || (maker != NO_OP && mark[maker]);
        }
        if (mark[i] && is_code(m, i, DS_OP_COMBINE)) last = i;
    }
    return last;
}

static void choose_experts(modules *m) {
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        if (!m->a->ops.at[i].forward || !is_code(m, i, DS_OP_DISPATCH)) continue;
        uint32_t last = end_of(m, i, m->mark), from = origin_of(m, i, 0);
        while (from != NO_OP && !is_norm(m, from)) from = origin_of(m, from, 0);
        if (last == NO_OP || from == NO_OP) continue;
        mark_between(m, from, last);
        choose_marked(m, ++m->group);
    }
}

/* ---- attention ---- */

/* A product out of a narrow vector, which a norm makes of another product's result. */
static bool is_up_projection(const modules *m, uint32_t product) {
    uint32_t norm = origin_of(m, product, 0);
    return is_norm(m, norm) && is_layer_product(m, origin_of(m, norm, 0));
}

static void choose_up_projections(modules *m) {
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        if (!m->a->ops.at[i].forward || !is_code(m, i, DS_OP_ATTENTION)) continue;
        bool any = false;
        memset(m->mark, 0, m->a->ops.n * sizeof *m->mark);
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t maker = maker_of(m, i, k);
            if (maker != NO_OP) m->mark[maker] = true;
        }
        for (uint32_t at = i; at-- > 0;) {
            if (!m->mark[at]) continue;
            bool product = is_layer_product(m, at), up = product && is_up_projection(m, at);
            bool on_way = is_layout(m, at) || is_elementwise(m, at) || is_code(m, at, DS_OP_ROTARY);
            any = any || up;
            m->mark[at] = up || (on_way && !product);
            for (uint32_t k = 0; k < op_of(m, at)->n_in && m->mark[at] && !product; k++) {
                uint32_t maker = maker_of(m, at, k);
                if (maker != NO_OP) m->mark[maker] = true;
            }
        }
        if (any) choose_marked(m, 0);
    }
}

/* ---- norms ---- */

/* Is the op's result read by products, or sent to experts, through views? */
static bool feeds_products(const modules *m, uint32_t norm) {
    for (uint32_t i = norm + 1; i < m->a->ops.n; i++) {
        bool product = is_layer_product(m, i) || is_code(m, i, DS_OP_DISPATCH);
        if (product && (reads(m, i, norm) || origin_of(m, i, 0) == norm)) return true;
    }
    return false;
}

static void choose_norms(modules *m) {
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        const ds_again_op *info = &m->a->ops.at[i];
        if (!info->forward || !info->home || !is_norm(m, i)) continue;
        if (!is_layer_product(m, origin_of(m, i, 0)) && feeds_products(m, i)) choose(m, i, 0);
    }
}

/* ---- every second product ---- */

static void choose_most(modules *m) {
    const ds_again_loop *home = NULL;
    uint32_t products = 0;
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        const ds_again_op *info = &m->a->ops.at[i];
        if (!info->forward || !info->home || info->op->code < DS_OP_FIRST_TABLE_OP) continue;
        if (info->home != home) products = 0;
        home = info->home;
        bool kept = info->op->code == DS_OP_ATTENTION;
        if (is_layer_product(m, i)) kept = ++products % 2 == 1;
        if (!kept) choose(m, i, 0);
    }
}

/* A view of what runs again would keep the whole. */
static void choose_views(modules *m) {
    for (uint32_t i = 0; i < m->a->ops.n; i++) {
        if (!m->a->ops.at[i].forward || op_of(m, i)->code < DS_OP_FIRST_TABLE_OP) continue;
        if (!(ds_op_desc_of(op_of(m, i)->code)->flags & DS_OPF_VIEW)) continue;
        uint32_t of = maker_of(m, i, 0);
        if (of != NO_OP && m->a->ops.at[of].chosen) choose(m, i, 0);
    }
}

void ds_again__choose_modules(ds_again *a, uint32_t wanted) {
    modules m = {.a = a, .mark = ds_xcalloc(a->ops.n, sizeof *m.mark)};
    if (wanted & DS_RECOMPUTE_CORE_ATTN) ds_again__choose_attention(a);
    if (wanted & DS_RECOMPUTE_SELECTIVE_OP) choose_most(&m);
    if (wanted & DS_RECOMPUTE_LAYERNORM) choose_norms(&m);
    if (wanted & DS_RECOMPUTE_MLA_UP_PROJ) choose_up_projections(&m);
    if (wanted &
        (DS_RECOMPUTE_MOE_ACT | DS_RECOMPUTE_MLP | DS_RECOMPUTE_SHARED_EXPERTS | DS_RECOMPUTE_MOE))
        choose_blocks(&m, wanted);
    if (wanted & DS_RECOMPUTE_MOE) choose_experts(&m);
    if (wanted) choose_views(&m);
    free(m.mark);
}
