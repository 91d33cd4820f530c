/* Texts of random models. What is random in a text is a function of the record alone (hints come
 * from their seeds), so that taking one thing away leaves the others as they are. */
#include "tests/support/generate/random_model.h"

#include "ir/base/arena.h"

#include <stdio.h>
#include <string.h>

/* ---- drawing ---- */

static int below(ds_rng *rng, int n) {
    return (int)ds_rng_below(rng, (uint64_t)n);
}

static bool one_in(ds_rng *rng, int n) {
    return below(rng, n) == 0;
}

static int any(ds_rng *rng, const int *values, int n) {
    return values[below(rng, n)];
}

#define ANY(rng, ...)                                                                              \
    any(rng, (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

/* Every third plan has stages; what their schedule asks for is met more often than not. */
static void draw_stages(ds_rng *rng, int *at) {
    at[KNOB_PP] = ANY(rng, 2, 2, 2, 2, 3, 4);
    at[KNOB_SCHEDULE] = below(rng, 14);
    bool loops = at[KNOB_SCHEDULE] == 3 || at[KNOB_SCHEDULE] == 4 || at[KNOB_SCHEDULE] == 13;
    at[KNOB_VIRTUAL] = loops ? ANY(rng, 2, 2, 2, 3, 4) : 0;
    at[KNOB_BALANCE] = ANY(rng, 0, 1, 1);
    at[KNOB_MICROBATCHES] = ANY(rng, 1, 2, 3, 4, 4, 6) * (one_in(rng, 2) ? 1 : at[KNOB_PP]);
}

static test_plan draw_plan(ds_rng *rng, bool stages) {
    test_plan plan = plan_of_one();
    int *at = plan.at;
    if (stages) at[KNOB_PP] = 2; /* fewer of the others */
    do {
        at[KNOB_DP] = ANY(rng, 1, 1, 2, 2, 3, 4, 6, 8);
        at[KNOB_TP] = ANY(rng, 1, 1, 2, 2, 3, 4, 6);
        at[KNOB_CP] = ANY(rng, 1, 1, 1, 2, 3, 4);
    } while (plan_world(&plan) > 16);
    at[KNOB_SP] = below(rng, 2);
    at[KNOB_CP_TYPE] = below(rng, 3);
    do at[KNOB_EP] = ANY(rng, 1, 1, 1, 2, 3, 4, 6);
    while (at[KNOB_DP] * at[KNOB_CP] % at[KNOB_EP]);
    at[KNOB_ZERO] = below(rng, 4);
    do at[KNOB_SHARDS] = ANY(rng, 1, 1, 1, 2, 3);
    while (at[KNOB_DP] % at[KNOB_SHARDS] || (at[KNOB_SHARDS] > 1 && at[KNOB_EP] > 1));
    at[KNOB_MICROBATCHES] = ANY(rng, 1, 1, 2, 3);
    at[KNOB_ORDER] = below(rng, 3);
    at[KNOB_OPTIMIZER] = below(rng, 5);
    at[KNOB_BUCKET] = ANY(rng, 0, 0, 64, 300, 2000);
    at[KNOB_PREFETCH] = ANY(rng, 1, 0, 2, 3);
    at[KNOB_RECOMPUTE] = ANY(rng, 0, 0, 0, 1, 2);
    if (stages) draw_stages(rng, at);
    return plan;
}

/* Of every third pipeline stages differ. What else is drawn stays as it is without. */
static void draw_widths(uint64_t seed, test_plan *plan) {
    int *at = plan->at;
    if (at[KNOB_PP] == 1 || at[KNOB_DP] * at[KNOB_TP] == 1 || ds_rng_at(seed, 1, 0, 0) % 3) return;
    at[KNOB_CP] = at[KNOB_EP] = at[KNOB_SHARDS] = 1;
    plan->widths = 1 + (int)(ds_rng_at(seed, 2, 0, 0) % (WIDTHS_COUNT - 1));
}

/* Every third model that has replicas gives them unequal parts of the batch. */
static void draw_shares(uint64_t seed, test_plan *plan) {
    if (plan->at[KNOB_DP] == 1 || plan->widths || ds_rng_at(seed, 3, 0, 0) % 3) return;
    plan->at[KNOB_EP] = plan->at[KNOB_SHARDS] = 1;
    plan->uneven = 1 + (int)(ds_rng_at(seed, 4, 0, 0) % 2);
}

/* Mostly a multiple of what it may be split over; now and then any number. */
static int draw_size(ds_rng *rng, int of, int most) {
    if (one_in(rng, 20)) return 1 + below(rng, 9);
    int n = most / of;
    return of * (1 + below(rng, n > 0 ? n : 1));
}

static void draw_sizes(ds_rng *rng, random_model *m) {
    const int *at = m->plan.at;
    int tp = at[KNOB_TP], cp = at[KNOB_CP], heads = at[KNOB_CP_TYPE] == 1 ? tp * cp : tp;
    m->size[SIZE_BATCH] = draw_size(rng, plan_parts(&m->plan) * at[KNOB_MICROBATCHES], 8);
    m->size[SIZE_SEQ] = draw_size(rng, one_in(rng, 2) ? cp : cp * tp, 8);
    m->size[SIZE_HIDDEN] = draw_size(rng, one_in(rng, 2) ? tp : 2 * tp, 8);
    m->size[SIZE_HEADS] = draw_size(rng, heads, 4);
    m->size[SIZE_GROUP] = ANY(rng, 1, 1, 2, 3);
    m->size[SIZE_HEAD_DIM] = ANY(rng, 2, 2, 4);
    m->size[SIZE_FFN] = draw_size(rng, tp, 12);
    m->size[SIZE_VOCAB] = draw_size(rng, tp, 12);
    m->size[SIZE_EXPERTS] = draw_size(rng, at[KNOB_EP], 4);
    m->size[SIZE_TOP] = 1 + below(rng, 2);
    m->size[SIZE_CHUNKS] = one_in(rng, 3) ? 1 : cp;
}

static uint32_t draw_hints(ds_rng *rng, int none, int usual) {
    int i = below(rng, 10);
    if (i < none) return 0;
    if (i < none + usual) return 1;
    return 2 + (uint32_t)below(rng, 1 << 20);
}

static random_block draw_block(ds_rng *rng) {
    random_block b = {.kind = (uint8_t)below(rng, BLOCK_KINDS), .variant = (uint8_t)below(rng, 32)};
    b.weights = draw_hints(rng, 2, 5);
    b.values = draw_hints(rng, 7, 0);
    return b;
}

static bool has_block(const random_model *m, block_kind kind) {
    for (uint32_t p = 0; p < m->n_parts; p++)
        for (uint32_t i = 0; i < m->parts[p].n; i++)
            if (m->parts[p].blocks[i].kind == kind) return true;
    return false;
}

/* Recomputation that most models would refuse is drawn for those that have what it takes. */
static int fitting_recompute(const random_model *m) {
    int recompute = m->plan.at[KNOB_RECOMPUTE];
    bool loops = false;
    for (uint32_t p = 0; p < m->n_parts; p++) loops = loops || m->parts[p].form != PART_PLAIN;
    if (recompute == 1 && !has_block(m, BLOCK_ATTENTION)) recompute = 2;
    return recompute == 2 && !loops ? 0 : recompute;
}

static int count_turns(const random_model *m) {
    int n = 0;
    for (uint32_t p = 0; p < m->n_parts; p++) {
        uint8_t form = m->parts[p].form;
        bool loop = form != PART_PLAIN && form != PART_CALL;
        n += form == PART_NEST ? 2 : loop ? m->parts[p].turns : 0;
    }
    return n;
}

/* Turns of loops shared out to the chunks, any way. */
static void draw_layers(ds_rng *rng, random_model *m) {
    const int *at = m->plan.at;
    int chunks = at[KNOB_PP] * (at[KNOB_VIRTUAL] ? at[KNOB_VIRTUAL] : 1), turns = count_turns(m);
    if (at[KNOB_PP] == 1 || turns < chunks || chunks > MAX_CHUNKS || one_in(rng, 3)) return;
    m->plan.n_layers = chunks;
    for (int i = 0; i < turns; i++) m->plan.layers[below(rng, chunks)]++;
}

random_model random_model_of(uint64_t seed) {
    ds_rng rng = {ds_rng_at(seed, 0, 0, 0)}; /* neighbours are streams of their own */
    random_model m;
    memset(&m, 0, sizeof m); /* records are compared as bytes */
    m.seed = seed;
    m.plan = draw_plan(&rng, seed % 3 == 0);
    draw_widths(seed, &m.plan);
    draw_shares(seed, &m.plan);
    draw_sizes(&rng, &m);
    m.loss = (uint8_t)below(&rng, LOSS_KINDS);
    m.ids = below(&rng, 2);
    m.extra = one_in(&rng, 6);
    m.half = one_in(&rng, 6);
    m.hints = draw_hints(&rng, 0, 8);
    m.n_parts = (uint8_t)(1 + below(&rng, (int)MAX_PARTS));
    for (uint32_t p = 0; p < m.n_parts; p++) {
        random_part *part = &m.parts[p];
        part->form = (uint8_t)below(&rng, PART_FORMS);
        part->turns = (uint8_t)(1 + below(&rng, 3));
        part->n = (uint8_t)(1 + below(&rng, (int)MAX_BLOCKS));
        part->values = draw_hints(&rng, 5, 3);
        for (uint32_t i = 0; i < part->n; i++) part->blocks[i] = draw_block(&rng);
    }
    m.plan.at[KNOB_RECOMPUTE] = fitting_recompute(&m);
    draw_layers(&rng, &m);
    return m;
}

uint32_t random_model_blocks(const random_model *m) {
    uint32_t n = 0;
    for (uint32_t p = 0; p < m->n_parts; p++) n += m->parts[p].n;
    return n;
}

/* ---- writing ---- */

typedef struct writer {
    const random_model *m;
    ds_buf *weights, *body; /* statements; `weights` may be the body itself */
    int indent;
    uint32_t n;     /* names so far */
    uint32_t x;     /* %v<x> is the value that blocks pass on */
    uint32_t drawn; /* hints so far */
    const random_block *block;
    bool tied; /* the table can be read here */
} writer;

/* A type's dims and, one a dim, the hint that the field would give it ("" for none). */
typedef struct shape {
    uint32_t n;
    const char *dims[5], *usual[5];
} shape;

static const shape whole = {3, {"batch", "seq", "hidden"}, {"dp", "cp", ""}};

static uint32_t draw(writer *w, uint32_t hints, uint32_t n) {
    return (uint32_t)(ds_rng_at(hints, w->drawn++, 0, 0) % n);
}

/* Each axis at most once. */
static const char *draw_axis(writer *w, uint32_t hints, uint32_t *used) {
    static const char *const axes[] = {"tp", "tp", "tp", "ep", "dp", "cp"};
    if (draw(w, hints, 2)) return "";
    const char *axis = axes[draw(w, hints, 6)];
    uint32_t bit = 1u << (axis[0] - 'c');
    if (*used & bit) return "";
    *used |= bit;
    return axis;
}

static void put_type(writer *w, ds_buf *out, const shape *s, uint32_t hints, bool inputs) {
    uint32_t used = 0;
    ds_buf_put(out, "f32[");
    for (uint32_t d = 0; d < s->n; d++) {
        const char *axis = hints == 0 ? "" : s->usual[d];
        if (hints > 1 && !(inputs && d == 0)) axis = draw_axis(w, hints, &used);
        if (hints > 1 && inputs && d == 0) used |= 1u << ('d' - 'c');
        ds_buf_printf(out, "%s%s%s%s", d ? ", " : "", s->dims[d], *axis ? "@" : "", axis);
    }
    ds_buf_put(out, "]");
}

static uint32_t weight(writer *w, shape s) {
    uint32_t id = w->n++;
    ds_buf_printf(w->weights, "%*sweight %%w%u : ", w->indent, "", id);
    put_type(w, w->weights, &s, w->block->weights, false);
    ds_buf_put(w->weights, "\n");
    return id;
}

/* "%v7 = " */
static uint32_t begin(writer *w) {
    ds_buf_printf(w->body, "%*s%%v%u = ", w->indent, "", w->n);
    return w->n++;
}

/* One op with the result type of a block, perhaps hinted. */
static uint32_t end_whole(writer *w, uint32_t id) {
    if (w->block->values) {
        ds_buf_put(w->body, " : ");
        put_type(w, w->body, &whole, w->block->values, false);
    }
    ds_buf_put(w->body, "\n");
    return id;
}

static uint32_t unary(writer *w, const char *op, uint32_t x, const char *attrs) {
    uint32_t id = begin(w);
    ds_buf_printf(w->body, "%s(%%v%u)%s\n", op, x, attrs);
    return id;
}

static uint32_t by_weight(writer *w, const char *op, uint32_t x, uint32_t weight_id,
                          const char *attrs) {
    uint32_t id = begin(w);
    ds_buf_printf(w->body, "%s(%%v%u, %%w%u)%s\n", op, x, weight_id, attrs);
    return id;
}

static uint32_t binary(writer *w, const char *op, uint32_t x, uint32_t y) {
    uint32_t id = begin(w);
    ds_buf_printf(w->body, "%s(%%v%u, %%v%u)\n", op, x, y);
    return id;
}

static const char *activation(uint32_t variant) {
    static const char *const names[] = {"tanh",    "relu", "gelu", "silu",
                                        "sigmoid", "tanh", "neg",  "gelu"};
    return names[variant % 8];
}

/* A block's result, added to what went in if the variant's lowest bit says so; always where rows
 * become alike without it (after two such attentions gradients are nothing but roundings). */
static void leave(writer *w, uint32_t y) {
    bool averages = w->block->kind == BLOCK_ATTENTION || w->block->kind == BLOCK_SOFTMAX ||
                    w->block->kind == BLOCK_TIED || w->block->kind == BLOCK_MOE;
    bool residual = averages || (w->block->variant & 1);
    uint32_t id = begin(w);
    if (residual)
        ds_buf_printf(w->body, "add(%%v%u, %%v%u)", w->x, y);
    else
        ds_buf_printf(w->body, "scale(%%v%u) {factor = 0.75}", y);
    w->x = end_whole(w, id);
}

/* ---- blocks ---- */

static void linear(writer *w) {
    uint32_t v = w->block->variant;
    shape columns = {2, {"hidden", "hidden"}, {"", "tp"}},
          rows = {2, {"hidden", "hidden"}, {"tp", ""}};
    uint32_t y = by_weight(w, "matmul", w->x, weight(w, v & 2 ? columns : rows), "");
    shape one = {1, {"hidden"}, {v & 2 ? "tp" : ""}};
    if (v & 4) y = by_weight(w, "bias", y, weight(w, one), "");
    leave(w, y);
}

static void ffn(writer *w) {
    uint32_t v = w->block->variant;
    shape up = {2, {"hidden", "ffn"}, {"", "tp"}}, down = {2, {"ffn", "hidden"}, {"tp", ""}};
    shape one = {1, {"ffn"}, {"tp"}}, last = {1, {"hidden"}, {""}};
    uint32_t y = by_weight(w, "matmul", w->x, weight(w, up), "");
    if (v & 4) y = by_weight(w, "bias", y, weight(w, one), "");
    uint32_t a = unary(w, v & 8 ? "sigmoid" : activation(v >> 2), y, ""); /* bounded: no squares */
    if (v & 8) a = binary(w, "mul", a, by_weight(w, "matmul", w->x, weight(w, up), ""));
    y = by_weight(w, "matmul", a, weight(w, down), "");
    if (v & 4) y = by_weight(w, "bias", y, weight(w, last), "");
    leave(w, y);
}

static void norm(writer *w) {
    shape one = {1, {"hidden"}, {""}};
    uint32_t v = w->block->variant, y;
    if (v & 2) {
        y = by_weight(w, "rms_norm", w->x, weight(w, one), "");
    } else {
        uint32_t scale = weight(w, one), shift = weight(w, one);
        y = begin(w);
        ds_buf_printf(w->body, "layer_norm(%%v%u, %%w%u, %%w%u)\n", w->x, scale, shift);
    }
    leave(w, y);
}

static void attention(writer *w) {
    uint32_t v = w->block->variant, part[3];
    const char *heads[] = {"group * heads", "heads", "heads"};
    for (uint32_t i = 0; i < 3; i++) {
        shape s = {3, {"hidden", heads[i], "head_dim"}, {"", "tp", ""}};
        part[i] =
            by_weight(w, "einsum", w->x, weight(w, s), " {rule = \"b s h, h n d -> b s n d\"}");
        if ((v & 2) && i < 2) part[i] = unary(w, "rotary", part[i], "");
    }
    uint32_t core = begin(w);
    ds_buf_printf(w->body, "attention(%%v%u, %%v%u, %%v%u) {causal = %s}\n", part[0], part[1],
                  part[2], v & 4 ? "true" : "false");
    shape out = {3, {"group * heads", "head_dim", "hidden"}, {"tp", "", ""}};
    leave(w, by_weight(w, "einsum", core, weight(w, out), " {rule = \"b s n d, n d h -> b s h\"}"));
}

static void moe(writer *w) {
    uint32_t v = w->block->variant;
    uint32_t tokens = unary(w, "reshape", w->x, " {shape = [batch, chunks, chunk, hidden]}");
    shape router = {2, {"hidden", "experts"}, {"", ""}};
    uint32_t scores = by_weight(w, "matmul", tokens, weight(w, router), "");
    uint32_t id = w->n;
    w->n += 2;
    ds_buf_printf(w->body, "%*s%%v%u, %%v%u = topk(%%v%u) {k = top}\n", w->indent, "", id, id + 1,
                  scores);
    uint32_t share = unary(w, "softmax", id, ""), sent = begin(w);
    ds_buf_printf(w->body, "dispatch(%%v%u, %%v%u) {experts = experts, capacity = capacity}\n",
                  tokens, id + 1);
    shape up = {3, {"experts", "hidden", "ffn"}, {"ep", "", "tp"}};
    shape down = {3, {"experts", "ffn", "hidden"}, {"ep", "tp", ""}};
    uint32_t y =
        by_weight(w, "einsum", sent, weight(w, up), " {rule = \"b g e c h, e h f -> b g e c f\"}");
    y = unary(w, activation(v >> 1), y, "");
    y = by_weight(w, "einsum", y, weight(w, down), " {rule = \"b g e c f, e f h -> b g e c h\"}");
    uint32_t mixed = begin(w);
    ds_buf_printf(w->body, "combine(%%v%u, %%v%u, %%v%u)\n", y, id + 1, share);
    leave(w, unary(w, "reshape", mixed, " {shape = [batch, seq, hidden]}"));
}

static void gate(writer *w) {
    uint32_t v = w->block->variant;
    shape one = {1, {"hidden"}, {""}}, two = {2, {"seq", "hidden"}, {"", ""}};
    uint32_t id = weight(w, v & 2 ? two : one);
    leave(w, by_weight(w, v & 4 ? "add" : "mul", w->x, id, ""));
}

static void mix(writer *w) {
    shape square = {2, {"seq", "seq"}, {"", ""}};
    uint32_t y = unary(w, "transpose", w->x, " {perm = [0, 2, 1]}");
    y = by_weight(w, "matmul", y, weight(w, square), "");
    leave(w, unary(w, "transpose", y, " {perm = [0, 2, 1]}"));
}

static void halves(writer *w) {
    uint32_t id = w->n, v = w->block->variant;
    int dim = v & 2 ? 1 : 2, size = w->m->size[v & 2 ? SIZE_SEQ : SIZE_HIDDEN];
    if (size < 2) {
        leave(w, unary(w, "tanh", w->x, ""));
        return;
    }
    w->n += 2;
    ds_buf_printf(w->body, "%*s%%v%u, %%v%u = split(%%v%u) {dim = %d, sizes = [1, %d]}\n",
                  w->indent, "", id, id + 1, w->x, dim, size - 1);
    uint32_t left = unary(w, activation(v >> 2), id, ""), y = begin(w);
    ds_buf_printf(w->body, "concat(%%v%u, %%v%u) {dim = %d}\n", id + 1, left, dim);
    leave(w, y);
}

static void shift(writer *w) {
    char attrs[64];
    uint32_t v = w->block->variant;
    int dim = v & 2 ? 2 : 1, size = w->m->size[v & 2 ? SIZE_HIDDEN : SIZE_SEQ];
    int by = size > 1 ? 1 : 0;
    snprintf(attrs, sizeof attrs, " {dim = %d, lo = 0, hi = %d}", dim, size - by);
    uint32_t y = unary(w, "slice", w->x, attrs);
    snprintf(attrs, sizeof attrs, " {dim = %d, lo = %d, hi = 0}", dim, by);
    leave(w, unary(w, "pad", y, attrs));
}

static void pool(writer *w) {
    uint32_t v = w->block->variant;
    uint32_t y = unary(w, v & 2 ? "reduce_max" : "reduce_mean", w->x, " {dims = [1], keep = true}");
    if (v & 4) y = unary(w, "tanh", y, "");
    leave(w, binary(w, v & 4 ? "mul" : "add", w->x, y));
}

static void through_table(writer *w) {
    if (!w->tied) {
        linear(w);
        return;
    }
    uint32_t y = begin(w);
    ds_buf_printf(w->body, "matmul(%%v%u, %%table) {transpose_b = true}\n", w->x);
    y = unary(w, "softmax", y, "");
    uint32_t z = begin(w);
    ds_buf_printf(w->body, "matmul(%%v%u, %%table)\n", y);
    leave(w, z);
}

static void lstm(writer *w) {
    shape s = {2, {"hidden", "4 * hidden"}, {"", ""}};
    uint32_t a = weight(w, s), b = weight(w, s), y = begin(w);
    ds_buf_printf(w->body, "lstm(%%v%u, %%w%u, %%w%u)\n", w->x, a, b);
    leave(w, y);
}

static void einsum(writer *w) {
    shape two = {2, {"hidden", "ffn"}, {"", "tp"}}, down = {2, {"ffn", "hidden"}, {"tp", ""}};
    uint32_t a = weight(w, two), b = weight(w, down), y = begin(w);
    ds_buf_printf(w->body, "einsum(%%v%u, %%w%u, %%w%u) {rule = \"b s h, h f, f k -> b s k\"}\n",
                  w->x, a, b);
    leave(w, y);
}

static void flat(writer *w) {
    shape square = {2, {"hidden", "hidden"}, {"", "tp"}};
    uint32_t y = unary(w, "reshape", w->x, " {shape = [batch * seq, hidden]}");
    y = by_weight(w, "matmul", y, weight(w, square), "");
    leave(w, unary(w, "reshape", y, " {shape = [batch, seq, hidden]}"));
}

static void put_block(writer *w, const random_block *block) {
    uint32_t v = block->variant;
    w->block = block;
    switch ((block_kind)block->kind) {
    case BLOCK_LINEAR:
        linear(w);
        return;
    case BLOCK_FFN:
        ffn(w);
        return;
    case BLOCK_NORM:
        norm(w);
        return;
    case BLOCK_ATTENTION:
        attention(w);
        return;
    case BLOCK_MOE:
        moe(w);
        return;
    case BLOCK_GATE:
        gate(w);
        return;
    case BLOCK_MIX:
        mix(w);
        return;
    case BLOCK_HALVES:
        halves(w);
        return;
    case BLOCK_SHIFT:
        shift(w);
        return;
    case BLOCK_POOL:
        pool(w);
        return;
    case BLOCK_TIED:
        through_table(w);
        return;
    case BLOCK_LSTM:
        lstm(w);
        return;
    case BLOCK_EINSUM:
        einsum(w);
        return;
    case BLOCK_FLAT:
        flat(w);
        return;
    case BLOCK_DROPOUT:
        leave(w, unary(w, "dropout", w->x, " {p = 0.25}"));
        return;
    case BLOCK_SCALE:
        leave(w, unary(w, "scale", w->x, " {factor = -1.5}"));
        return;
    case BLOCK_SOFTMAX:
        leave(w, unary(w, "softmax", w->x, v & 2 ? " {dim = 1}" : ""));
        return;
    default:
        leave(w, unary(w, activation(v >> 1), w->x, ""));
        return;
    }
}

/* ---- parts ---- */

static void put_blocks(writer *w, const random_part *part) {
    for (uint32_t i = 0; i < part->n; i++) put_block(w, &part->blocks[i]);
}

/* Opens a loop whose carry is the value; close_loop makes the loop's result the value. */
static uint32_t open_loop(writer *w, const random_part *part, uint32_t turns) {
    uint32_t result = begin(w), carry = w->n++;
    ds_buf_printf(w->body, "for l%u in 0..%u carry (%%v%u", result, turns, carry);
    if (part->values) {
        ds_buf_put(w->body, ": ");
        put_type(w, w->body, &whole, part->values, true);
    }
    ds_buf_printf(w->body, " = %%v%u) {\n", w->x);
    w->x = carry;
    w->indent += 2;
    return result;
}

static void close_loop(writer *w, uint32_t result) {
    ds_buf_printf(w->body, "%*syield %%v%u\n", w->indent, "", w->x);
    w->indent -= 2;
    ds_buf_printf(w->body, "%*s}\n", w->indent, "");
    w->x = result;
}

static void put_call(writer *w, uint32_t p) {
    uint32_t y = begin(w);
    ds_buf_printf(w->body, "call @part%u(%%v%u)\n", p, w->x);
    w->x = y;
}

static void put_part(writer *w, uint32_t p) {
    const random_part *part = &w->m->parts[p];
    uint32_t outer = 0, inner;
    switch ((part_form)part->form) {
    case PART_LOOP:
        inner = open_loop(w, part, part->turns);
        put_blocks(w, part);
        close_loop(w, inner);
        return;
    case PART_SHARED: { /* statements go to another text, declarations stay before the loop */
        ds_buf loop = {0}, *body = w->body;
        w->weights = body;
        w->body = &loop;
        inner = open_loop(w, part, part->turns);
        w->indent -= 2;
        put_blocks(w, part);
        w->indent += 2;
        close_loop(w, inner);
        ds_buf_put_n(body, loop.text, loop.n);
        ds_buf_deinit(&loop);
        w->body = w->weights = body;
        return;
    }
    case PART_NEST:
        outer = open_loop(w, part, 2);
        inner = open_loop(w, part, part->turns);
        put_blocks(w, part);
        close_loop(w, inner);
        close_loop(w, outer);
        return;
    case PART_CALL:
        for (uint32_t i = 0; i < part->turns; i++) put_call(w, p);
        return;
    case PART_LOOP_CALL:
        inner = open_loop(w, part, part->turns);
        put_call(w, p);
        close_loop(w, inner);
        return;
    default:
        put_blocks(w, part);
        return;
    }
}

/* A part that is called is a function. */
static void put_function(writer *w, uint32_t p) {
    const random_part *part = &w->m->parts[p];
    uint32_t arg = w->n++;
    if (part->form != PART_CALL && part->form != PART_LOOP_CALL) return;
    ds_buf_printf(w->body, "func @part%u(%%v%u: ", p, arg);
    put_type(w, w->body, &whole, part->values, true);
    ds_buf_put(w->body, ") -> f32[batch, seq, hidden] {\n");
    w->x = arg;
    w->indent = 2;
    put_blocks(w, part);
    ds_buf_printf(w->body, "  return %%v%u\n}\n", w->x);
}

/* ---- models ---- */

static void put_params(const random_model *m, ds_buf *out) {
    const int *s = m->size;
    int chunks = s[SIZE_SEQ] % s[SIZE_CHUNKS] ? 1 : s[SIZE_CHUNKS];
    int top = s[SIZE_TOP] < s[SIZE_EXPERTS] ? s[SIZE_TOP] : s[SIZE_EXPERTS];
    ds_buf_printf(out, "param batch = %d, seq = %d, hidden = %d, heads = %d, group = %d\n",
                  s[SIZE_BATCH], s[SIZE_SEQ], s[SIZE_HIDDEN], s[SIZE_HEADS], s[SIZE_GROUP]);
    ds_buf_printf(out, "param head_dim = %d, ffn = %d, vocab = %d, experts = %d, top = %d\n",
                  s[SIZE_HEAD_DIM], s[SIZE_FFN], s[SIZE_VOCAB], s[SIZE_EXPERTS], top);
    ds_buf_printf(
        out, "param chunks = %d, chunk = seq / chunks, capacity = ceildiv(top * chunk, experts)\n",
        chunks);
}

static bool has_labels(const random_model *m) {
    return m->loss == LOSS_CROSS_ENTROPY || m->loss == LOSS_TIED;
}

static bool has_table(const random_model *m) {
    bool table = m->ids || m->loss == LOSS_TIED;
    for (uint32_t p = 0; p < m->n_parts; p++)
        for (uint32_t i = 0; i < m->parts[p].n; i++)
            table =
                table || (m->parts[p].blocks[i].kind == BLOCK_TIED && m->parts[p].form < PART_CALL);
    return table;
}

static void put_arguments(writer *w) {
    const random_model *m = w->m;
    if (m->ids) {
        ds_buf_put(w->body, "%ids: i32[batch@dp, seq@cp]");
    } else {
        ds_buf_put(w->body, "%x: ");
        put_type(w, w->body, &whole, m->hints, true);
    }
    if (has_labels(m)) ds_buf_put(w->body, ", %labels: i32[batch@dp, seq@cp]");
    if (m->loss == LOSS_MSE) ds_buf_put(w->body, ", %target: f32[batch@dp, seq@cp, hidden]");
}

/* The loss, as %v<returned>. */
static uint32_t put_loss(writer *w) {
    const random_model *m = w->m;
    shape head = {2, {"hidden", "vocab"}, {"", "tp"}};
    uint32_t y = w->x;
    if (m->loss == LOSS_TRAIN) return y;
    if (m->loss == LOSS_SQUARES) return unary(w, "reduce_mean", binary(w, "mul", y, y), "");
    if (m->loss == LOSS_CROSS_ENTROPY) y = by_weight(w, "matmul", y, weight(w, head), "");
    if (m->loss == LOSS_TIED) {
        y = begin(w);
        ds_buf_printf(w->body, "matmul(%%v%u, %%table) {transpose_b = true}\n", w->x);
    }
    uint32_t loss = begin(w);
    if (m->loss == LOSS_MSE)
        ds_buf_printf(w->body, "mse(%%v%u, %%target)\n", y);
    else
        ds_buf_printf(w->body, "cross_entropy(%%v%u, %%labels)\n", y);
    return loss;
}

static void put_main(writer *w) {
    const random_model *m = w->m;
    shape table = {2, {"vocab", "hidden"}, {"tp", ""}};
    random_block outside = {.weights = m->hints};
    bool extra = m->extra && m->loss != LOSS_TRAIN;
    ds_buf_put(w->body, "func @model(");
    put_arguments(w);
    ds_buf_printf(w->body, ") -> %s%s {\n",
                  m->loss == LOSS_TRAIN ? "f32[batch, seq, hidden]"
                  : extra               ? "(f32[]"
                                        : "f32[]",
                  extra ? ", f32[batch, seq, hidden])" : "");
    w->indent = 2;
    w->tied = has_table(m);
    w->block = &outside;
    if (w->tied) {
        ds_buf_put(w->body, "  weight %table : ");
        put_type(w, w->body, &table, m->hints, false);
        ds_buf_put(w->body, "\n");
    }
    w->x = begin(w);
    ds_buf_put(w->body, m->ids ? "embedding(%ids, %table)\n" : "scale(%x) {factor = 0.5}\n");
    for (uint32_t p = 0; p < m->n_parts; p++) put_part(w, p);
    w->block = &outside;
    uint32_t value = w->x, loss = put_loss(w);
    ds_buf_printf(w->body, "  return %%v%u", loss);
    if (extra) ds_buf_printf(w->body, ", %%v%u", value);
    ds_buf_put(w->body, "\n}\n");
}

void random_model_print(const random_model *m, ds_buf *out) {
    writer w = {.m = m, .weights = out, .body = out};
    ds_buf_put(out, "dir 1\n");
    put_params(m, out);
    for (uint32_t p = 0; p < m->n_parts; p++) put_function(&w, p);
    put_main(&w);
    const char *train = m->half ? "dtype = bf16, master_dtype = f32" : NULL;
    if (m->loss == LOSS_TRAIN) train = m->half ? "loss = mse, dtype = bf16" : "loss = mse";
    plan_scenario(&m->plan, "model", train, out);
}
