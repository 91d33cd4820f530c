/* LoRA: low-rank adapters beside products with frozen weights (Hu et al., arXiv:2106.09685).
 *
 *     %q = einsum(%x, %w)                                        // frozen
 *     %q.lora_a = einsum(%x, %w.lora_a)                          // to `rank`
 *     %q.lora_b = einsum(%q.lora_a, %w.lora_b)                   // from `rank`
 *     %q.scaled = scale(%q.lora_b) {factor = alpha / rank}
 *     %q.lora = add(%q, %q.scaled)
 *
 * This is x (W + alpha / rank A B). A dim of the weight is summed over (c), of the result alone (k),
 * or of both operands and the result, as experts are (g): A has the dims g, c and rank, B the dims
 * g, rank and k, in the order of the weight. Frameworks scale the result (peft/tuners/lora/layer.py,
 * torchtune/modules/peft/lora.py, megatron/bridge/peft/lora_layers.py).
 *
 * Splits. A takes the splits of c, B those of k. Beside a product whose columns are split A is split
 * over the same axis by rank, as in Megatron's ParallelLinearAdapter; beside one whose rows are
 * split B is whole. (Megatron splits this B too, and gathers its result.) */
#include "ir/passes/lower/internal.h"

#include "ir/strategy/scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 3 * DS_MAX_RANK };

/* ---- names of products ---- */

/* What frameworks call the products of the model library. */
static const struct {
    const char *theirs, *ours; /* words with blanks around */
} aliases[] = {
    {"q_proj", " q "},
    {"k_proj", " k "},
    {"v_proj", " v "},
    {"o_proj", " proj "},
    {"output_proj", " proj "},
    {"gate_proj", " gate "},
    {"up_proj", " up fc1 "},
    {"down_proj", " down fc2 "},
    {"linear_qkv", " qkv q k v "},
    {"linear_proj", " proj "},
    {"linear_fc1", " gate up fc1 "},
    {"linear_fc2", " down fc2 "},
};

static bool is_named(const char *target, const char *name) {
    const char *last = strrchr(name, '.');
    if (strcmp(target, name) == 0 || (last && strcmp(target, last + 1) == 0)) return true;
    char word[64];
    snprintf(word, sizeof word, " %s ", last ? last + 1 : name);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].theirs, target) == 0 && strstr(aliases[i].ours, word)) return true;
    return false;
}

static bool is_target(ds_lowering *l, const char *name) {
    const ds_train *train = &l->step->train;
    bool found = train->lora_targets == DS_LORA_TARGETS_ALL && l->loops;
    if (!l->adapted) l->adapted = DS_NEW_N(ds_lower__arena(l), bool, train->n_lora_names + 1);
    for (uint32_t i = 0; i < train->n_lora_names; i++)
        if (is_named(train->lora_names[i], name)) found = l->adapted[i] = true;
    return found;
}

/* ---- rules ---- */

/* Labels of the weight, of the other operand and of the result; "..." is one label. */
typedef struct rule {
    const char *weight[MOST_LABELS], *x[MOST_LABELS], *out[MOST_LABELS];
    uint32_t n_weight, n_x, n_out;
} rule;

static bool has(const char *const *labels, uint32_t n, const char *label) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(labels[i], label) == 0) return true;
    return false;
}

/* Labels up to the end of the text or one of `stops`; false: a product of labels, or too many. */
static bool read_labels(ds_lowering *l, const char **at, const char *stops, const char **labels,
                        uint32_t *n) {
    *n = 0;
    for (*at += strspn(*at, " "); **at && !strchr(stops, **at); *at += strspn(*at, " ")) {
        size_t length = strcspn(*at, " ,-");
        if (**at == '(' || !length || *n == MOST_LABELS) return false;
        labels[(*n)++] = ds_arena_strndup(ds_lower__arena(l), *at, length);
        *at += length;
    }
    return true;
}

/* "b s h, h n d -> b s n d"; `first`: the weight is operand 0. */
static bool read_rule(ds_lowering *l, const char *text, bool first, rule *out) {
    const char *at = text;
    bool ok = first ? read_labels(l, &at, ",", out->weight, &out->n_weight)
                    : read_labels(l, &at, ",", out->x, &out->n_x);
    if (!ok || *at++ != ',') return false;
    ok = first ? read_labels(l, &at, "-", out->x, &out->n_x)
               : read_labels(l, &at, "-", out->weight, &out->n_weight);
    if (!ok || *at++ != '-' || *at++ != '>') return false;
    return read_labels(l, &at, "", out->out, &out->n_out);
}

static bool rule_of(ds_lowering *l, const ds_op *op, bool first, rule *out) {
    if (op->code == DS_OP_MATMUL) return !first && read_rule(l, "... k, k n -> ... n", false, out);
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, "rule");
    const char *text = attr ? ds_attr_text(&l->c.unit->exprs, attr) : NULL;
    return text && read_rule(l, text, first, out);
}

static char kind_of(const rule *r, const char *label) {
    bool x = has(r->x, r->n_x, label), out = has(r->out, r->n_out, label);
    return x && out ? 'g' : x ? 'c' : out ? 'k' : '?';
}

/* A label that the rule does not have. */
static const char *rank_label(const rule *r) {
    static const char *const wanted[] = {"r", "z", "y", "w", "u"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!has(r->weight, r->n_weight, wanted[i]) && !has(r->x, r->n_x, wanted[i]))
            return wanted[i];
    return "rank";
}

/* ---- the adapter ---- */

typedef struct adapter {
    ds_lowering *l;
    const ds_op *op;     /* the product */
    const ds_use *w, *x; /* its operands */
    rule rule;
    char *kinds; /* by dim of the weight */
    const char *rank;
} adapter;

static void put_labels(const char *const *labels, uint32_t n, const char *kinds, const char *which,
                       ds_buf *out) {
    for (uint32_t i = 0; i < n; i++)
        if (!kinds || strchr(which, kinds[i])) ds_buf_printf(out, "%s ", labels[i]);
}

/* The labels of x that the weight does not sum over, and the rank. */
static void put_rest(const adapter *a, ds_buf *out) {
    for (uint32_t i = 0; i < a->rule.n_x; i++)
        if (!has(a->rule.weight, a->rule.n_weight, a->rule.x[i]) ||
            kind_of(&a->rule, a->rule.x[i]) != 'c')
            ds_buf_printf(out, "%s ", a->rule.x[i]);
    ds_buf_printf(out, "%s", a->rank);
}

/* The splits of the first dim of that kind that has some. */
static const ds_dim *split_dim(const adapter *a, const ds_type *w, char kind) {
    for (uint32_t d = 0; d < w->rank; d++)
        if (a->kinds[d] == kind && w->dims[d].n_splits) return &w->dims[d];
    return NULL;
}

static void take_splits(ds_dim *dim, const ds_dim *from) {
    if (!from || dim->n_splits) return;
    dim->splits = from->splits;
    dim->n_splits = from->n_splits;
}

/* A (half 0): g, c, rank. B (half 1): g, rank, k. */
static ds_type *half_type(const adapter *a, int half) {
    ds_lowering *l = a->l;
    const ds_type *w = ds_value_at(l->b.func, a->w->value)->type;
    const ds_dim rank = {.size = ds_expr_int(&l->c.unit->exprs, l->step->train.lora_rank)};
    const ds_dim *rows = split_dim(a, w, 'c'), *columns = split_dim(a, w, 'k');
    ds_type *type = ds_type_copy(ds_lower__arena(l), w);
    uint32_t n = 0;
    type->dims = DS_NEW_N(ds_lower__arena(l), ds_dim, w->rank + 2);
    for (uint32_t d = 0; d < w->rank; d++)
        if (a->kinds[d] == 'g') type->dims[n++] = w->dims[d];
    if (half) type->dims[n++] = rank;
    for (uint32_t d = 0; d < w->rank; d++)
        if (a->kinds[d] == (half ? 'k' : 'c')) type->dims[n++] = w->dims[d];
    if (!half) {
        type->dims[n] = rank;
        if (!rows) take_splits(&type->dims[n], columns);
        n++;
    }
    type->rank = n;
    return type;
}

/* The weight of half an adapter, a family as the product's weight is. */
static ds_use add_half(const adapter *a, int half) {
    ds_lowering *l = a->l;
    const ds_value_info base = *ds_value_at(l->b.func, a->w->value);
    ds_attr *role = DS_NEW(ds_lower__arena(l), ds_attr);
    *role = ds_attr_of_word(l->c.unit, "role", "weight");
    const char *name = ds_arena_join(ds_lower__arena(l), base.name, half ? ".lora_b" : ".lora_a");
    name = ds_clone_text(&l->c, name);
    ds_map_put(&l->weight_names, DS_KEY(name), 1);
    ds_value arg =
        ds_build_arg(&l->b, name, half_type(a, half), base.binders, base.n_binders, role, 1);
    ds_value_at(l->b.func, arg)->loc = base.loc;
    ds_lower__add_weight(l, arg);
    return a->w->n_index ? ds_use_at(ds_lower__arena(l), arg, a->w->index, a->w->n_index)
                         : ds_use_of(arg);
}

static ds_status put_product(const adapter *a, ds_use x, ds_use w, const char *text,
                             const char *suffix, ds_use *out, ds_error *err) {
    ds_builder *b = &a->l->b;
    ds_op *op = ds_build_op(b, text ? DS_OP_EINSUM : DS_OP_MATMUL);
    op->loc = a->op->loc;
    ds_build_in(b, op, x);
    ds_build_in(b, op, w);
    if (text) ds_build_attr_text(b, op, "rule", text);
    const char *name = ds_value_at(b->func, a->op->out[0])->name;
    *out = ds_use_of(ds_build_out(b, op, ds_arena_join(ds_lower__arena(a->l), name, suffix), NULL));
    return ds_build_put(b, op, err);
}

/* The rules "x, g c r -> rest r" and "rest r, g r k -> out". */
static void write_rules(const adapter *a, ds_buf *down, ds_buf *up) {
    const rule *r = &a->rule;
    put_labels(r->x, r->n_x, NULL, NULL, down);
    ds_buf_put(down, ", ");
    put_labels(r->weight, r->n_weight, a->kinds, "g", down);
    put_labels(r->weight, r->n_weight, a->kinds, "c", down);
    ds_buf_printf(down, "%s -> ", a->rank);
    put_rest(a, down);
    put_rest(a, up);
    ds_buf_put(up, ", ");
    put_labels(r->weight, r->n_weight, a->kinds, "g", up);
    ds_buf_printf(up, "%s ", a->rank);
    put_labels(r->weight, r->n_weight, a->kinds, "k", up);
    ds_buf_put(up, "->");
    for (uint32_t i = 0; i < r->n_out; i++) ds_buf_printf(up, " %s", r->out[i]);
}

static ds_status put_halves(const adapter *a, ds_use *out, ds_error *err) {
    bool plain = a->op->code == DS_OP_MATMUL;
    ds_buf down = {0}, up = {0};
    write_rules(a, &down, &up);
    ds_use first = add_half(a, 0), second = add_half(a, 1);
    ds_status status = put_product(a, *a->x, first, plain ? NULL : down.text, ".lora_a", out, err);
    if (status == DS_OK)
        status = put_product(a, *out, second, plain ? NULL : up.text, ".lora_b", out, err);
    ds_buf_deinit(&down);
    ds_buf_deinit(&up);
    return status;
}

/* The product plus alpha / rank times the adapter's result. */
static ds_status put_sum(const adapter *a, ds_use *out, ds_error *err) {
    ds_builder *b = &a->l->b;
    const ds_train *train = &a->l->step->train;
    const ds_value_info made = *ds_value_at(b->func, a->op->out[0]);
    if (!isnan(train->lora_alpha) && train->lora_alpha != (double)train->lora_rank) {
        ds_op *scale = ds_build_op(b, DS_OP_SCALE);
        scale->loc = a->op->loc;
        ds_build_in(b, scale, *out);
        ds_build_attr_real(b, scale, "factor", train->lora_alpha / (double)train->lora_rank);
        const char *name = ds_arena_join(ds_lower__arena(a->l), made.name, ".scaled");
        *out = ds_use_of(ds_build_out(b, scale, name, NULL));
        DS_TRY(ds_build_put(b, scale, err));
    }
    ds_op *sum = ds_build_op(b, DS_OP_ADD);
    sum->loc = a->op->loc;
    ds_build_in(b, sum, ds_use_of(a->op->out[0]));
    ds_build_in(b, sum, *out);
    const char *name = ds_arena_join(ds_lower__arena(a->l), made.name, ".lora");
    *out = ds_use_of(ds_build_out(b, sum, name, made.type_written ? made.type : NULL));
    return ds_build_put(b, sum, err);
}

/* The step's weight that the use reads; NULL: none. */
static ds_step_weight *weight_of(const ds_lowering *l, const ds_use *use) {
    for (uint32_t i = 0; i < l->step->weights.n; i++)
        if (l->step->weights.at[i].arg.i == use->value.i) return &l->step->weights.at[i];
    return NULL;
}

static ds_status refuse(const adapter *a, const char *name, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, a->op->loc, "lora_rank: the product %s %s", name,
                        why);
}

static ds_status find_kinds(adapter *a, const char *name, ds_error *err) {
    const ds_type *type = ds_value_at(a->l->b.func, a->w->value)->type;
    bool first = a->w == &a->op->in[0];
    if (!rule_of(a->l, a->op, first, &a->rule) || a->rule.n_weight != type->rank)
        return refuse(a, name, "has a rule that is more than one label a dim", err);
    a->kinds = ds_arena_calloc(ds_lower__arena(a->l), type->rank + 1, 1);
    for (uint32_t d = 0; d < type->rank; d++) {
        a->kinds[d] = kind_of(&a->rule, a->rule.weight[d]);
        if (a->kinds[d] == '?') return refuse(a, name, "sums a dim of its weight alone", err);
    }
    if (!strchr(a->kinds, 'c') || !strchr(a->kinds, 'k'))
        return refuse(a, name, "is no product of two matrices", err);
    a->rank = rank_label(&a->rule);
    return DS_OK;
}

/* Is A split by rank in equal parts? */
static ds_status check_rank(const adapter *a, const char *name, ds_error *err) {
    const ds_type *w = ds_value_at(a->l->b.func, a->w->value)->type;
    int64_t rank = a->l->step->train.lora_rank, tp = a->l->step->strategy.tp;
    if (rank % tp == 0 || split_dim(a, w, 'c')) return DS_OK;
    for (uint32_t d = 0; d < w->rank; d++)
        if (a->kinds[d] == 'k' && ds_type_is_over(w, d, "tp"))
            return ds_error_set(err, DS_ERR_VALUE, a->op->loc,
                                "lora_rank = %lld: the adapter of %s is split by rank, as its "
                                "columns are over tp: tp = %lld must divide the rank",
                                (long long)rank, name, (long long)tp);
    return DS_OK;
}

ds_status ds_lower__adapt(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from,
                          const ds_op *op, ds_use *result, ds_error *err) {
    const ds_train *train = &l->step->train;
    bool product = op->code == DS_OP_MATMUL || op->code == DS_OP_EINSUM;
    if (!train->on || train->lora_rank < 1 || !product || op->n_in != 2) return DS_OK;
    ds_step_weight *first = weight_of(l, &op->in[0]), *second = weight_of(l, &op->in[1]);
    if (!first == !second) return DS_OK;
    const char *name =
        ds_arena_join(ds_lower__arena(l), frame->where.calls, ds_path_op_name(frame->func, from));
    DS_PUSH(ds_lower__arena(l), &l->products, name);
    if (!is_target(l, name)) return DS_OK;
    adapter a = {.l = l, .op = op, .w = &op->in[first ? 0 : 1], .x = &op->in[first ? 1 : 0]};
    ds_step_weight *weight = first ? first : second;
    DS_TRY(find_kinds(&a, name, err));
    if (weight->adapted) return refuse(&a, name, "reads a weight that has an adapter already", err);
    DS_TRY(check_rank(&a, name, err));
    weight->adapted = a.kinds; /* before others are added, which may move the list */
    DS_TRY(put_halves(&a, result, err));
    return put_sum(&a, result, err);
}

/* ---- frozen weights ---- */

static bool is_half(const ds_step_weight *weight) {
    size_t n = strlen(weight->name);
    const char *end = n > 7 ? weight->name + n - 7 : "";
    return strcmp(end, ".lora_a") == 0 || strcmp(end, ".lora_b") == 0;
}

static ds_status no_product(const ds_lowering *l, const char *target, ds_error *err) {
    ds_buf list = {0};
    const char *near = ds_suggest(target, l->products.at, l->products.n);
    if (near) ds_buf_printf(&list, "; did you mean %s?", near);
    for (uint32_t i = 0; i < l->products.n && i < 8 && !near; i++)
        ds_buf_printf(&list, "%s%s", i ? ", " : "; there are ", l->products.at[i]);
    const ds_attr *attr = ds_scenario_find(l->source->unit, "train", "lora_targets");
    ds_error_set(err, DS_ERR_NAME, attr ? attr->loc : DS_NOWHERE,
                 "lora_targets: \"%s\" is no product of an activation and a weight of @%s%s",
                 target, l->model->name, list.n ? list.text : "");
    ds_buf_deinit(&list);
    return DS_ERR_NAME;
}

ds_status ds_lower__freeze(ds_lowering *l, ds_error *err) {
    ds_model_step *step = l->step;
    uint32_t n = step->weights.n, k = 0;
    if (!step->train.on || step->train.lora_rank < 1) return DS_OK;
    for (uint32_t i = 0; i < step->train.n_lora_names; i++)
        if (!l->adapted || !l->adapted[i]) return no_product(l, step->train.lora_names[i], err);
    ds_step_weight *all = DS_NEW_N(ds_lower__arena(l), ds_step_weight, n + 1);
    for (int frozen = 0; frozen < 2; frozen++)
        for (uint32_t i = 0; i < n; i++) {
            if (is_half(&step->weights.at[i]) == frozen) continue;
            all[k] = step->weights.at[i];
            all[k].frozen = frozen;
            all[k].tied = k;
            k++;
        }
    if (n) memcpy(step->weights.at, all, n * sizeof *all);
    if (ds_step_n_trained(step)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, l->model->loc,
                        "lora_rank: @%s has no product with a weight in a loop; lora_targets names "
                        "products outside of loops",
                        l->model->name);
}
