/* Kernels of a block, in three steps.
 *
 * 1. Each op has a *level*: the most products, communications, loops and calls on a path to the op
 *    inside the block. Of two ops of one level neither waits for such an op that waits for the
 *    other, so one kernel may do both.
 * 2. Ops of one level that are neighbours and stand in one list of the table are joined
 *    (union-find); lists are bits, and a kernel keeps the bits that all of its ops have.
 * 3. Who reads a value decides what goes through memory: a read of a value that the kernel makes or
 *    has read does not, and a write that only the kernel reads does not. */
#include "ir/ops/kernels.h"

#include "ir/ops/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

typedef struct list {
    ds_kernel_stack stack;
    const char *ops;
} list;

typedef struct epilogue {
    ds_kernel_stack stack;
    const char *op, *operands;
} epilogue;

static const ds_kernel_line lines[] = {
#define KERNELS(stack, op, launches, conversions, own, wide, source)                               \
    {DS_KERNELS_##stack, op, launches, conversions, own, wide, source},
#include "ir/ops/kernels.def"
};
static const list fused[] = {
#define FUSED(stack, ops, source) {DS_KERNELS_##stack, ops},
#include "ir/ops/kernels.def"
};
static const list together[] = {
#define TOGETHER(stack, ops, source) {DS_KERNELS_##stack, ops},
#include "ir/ops/kernels.def"
};
static const epilogue epilogues[] = {
#define EPILOGUE(stack, op, operands, source) {DS_KERNELS_##stack, op, operands},
#include "ir/ops/kernels.def"
};

static const ds_kernel_stack converted[] = {
#define CONVERTED(stack, source) DS_KERNELS_##stack,
#include "ir/ops/kernels.def"
};

/* Bytes an element of a narrow product's weight that the stack moves for the weight. */
static int32_t weight_bytes(ds_kernel_stack stack) {
    switch (stack) {
#define WEIGHTS(stack, bytes, source)                                                              \
    case DS_KERNELS_##stack:                                                                       \
        return bytes;
#include "ir/ops/kernels.def"
    default:
        return 0;
    }
}

#define LENGTH(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

const ds_kernel_line *ds_kernel_lines(uint32_t *n) {
    *n = LENGTH(lines);
    return lines;
}

static const char *const words[DS_KERNELS_COUNT] = {"ops", "eager", "compiled", "fused"};

const char *ds_kernel_stack_name(ds_kernel_stack stack) {
    return stack < DS_KERNELS_COUNT ? words[stack] : "?";
}

bool ds_kernel_stack_parse(const char *word, ds_kernel_stack *out) {
    for (int i = 0; i < DS_KERNELS_COUNT; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *out = (ds_kernel_stack)i;
        return true;
    }
    return false;
}

int64_t ds_kernel_issue_percent(ds_kernel_stack stack) {
    switch (stack) {
#define ISSUE(stack, percent, source)                                                              \
    case DS_KERNELS_##stack:                                                                       \
        return percent;
#include "ir/ops/kernels.def"
    default:
        return 100;
    }
}

int32_t ds_kernel_calls(ds_kernel_stack stack, const char *op) {
    static const struct {
        ds_kernel_stack stack;
        const char *op;
        int32_t kernels;
    } calls[] = {
#define CALLS(stack, op, kernels, source) {DS_KERNELS_##stack, op, kernels},
#include "ir/ops/kernels.def"
    };
    for (uint32_t i = 0; i < LENGTH(calls); i++)
        if (calls[i].stack == stack && strcmp(calls[i].op, op) == 0) return calls[i].kernels;
    return 0;
}

bool ds_kernel_host_waits(ds_kernel_stack stack) {
    switch (stack) {
#define WAITS(stack, source)                                                                       \
    case DS_KERNELS_##stack:                                                                       \
        return true;
#include "ir/ops/kernels.def"
    default:
        return false;
    }
}

static bool has_word(const char *among, const char *word) {
    size_t n = strlen(word);
    for (const char *at = among; (at = strstr(at, word)); at += n)
        if ((at == among || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* ---- the ops of a function ---- */

typedef struct node {
    const ds_op *op;
    const char *name; /* in the table */
    ds_kernel_stack stack;
    uint32_t block, level, up; /* up: of union-find */
    uint32_t lists;            /* bits of `fused`; of a root: of the whole kernel */
    bool barrier, joins;       /* joins: memory-bound work that a kernel may have */
    ds_kernel kernel;
} node;

/* A read of what a view, if any, is a view of. */
typedef struct read {
    uint32_t value, node, operand;
} read;

typedef struct finder {
    const ds_func *func;
    ds_kernel_stack stack, loss;
    bool *lost;         /* per value: a loss reads it */
    DS_VEC(node) nodes; /* in order of the text; heap */
    DS_VEC(read) reads; /* by value, once sorted; heap */
    uint32_t *root;     /* per value: the value that it is a view of */
    uint32_t *maker;    /* per value: its node + 1; 0: an argument */
    ds_map launched;    /* name, level, block → how many */
    uint32_t n_blocks;
} finder;

static uint32_t rank_of(const finder *f, const ds_use *use) {
    const ds_type *type = f->func->values.at[use->value.i].type;
    return type ? type->rank : 0;
}

static const char *name_of(const finder *f, const ds_op *op) {
    if (op->code == DS_OP_ADD && rank_of(f, &op->in[1]) < rank_of(f, &op->in[0]))
        return "add_vector";
    if (op->code == DS_OP_MUL && rank_of(f, &op->in[1]) == 0) return "mul_scalar";
    if (op->code == DS_OP_CAST && ds_attr_find(op->attrs, op->n_attrs, "role"))
        return "cast_gradient";
    return ds_op_name(op->code);
}

static bool is_product(const ds_op *op) {
    return op->code == DS_OP_MATMUL || op->code == DS_OP_EINSUM;
}

static uint32_t lists_of(ds_kernel_stack stack, const char *name) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < LENGTH(fused); i++)
        if (fused[i].stack == stack && has_word(fused[i].ops, name)) bits |= UINT32_C(1) << i;
    return bits;
}

bool ds_kernel_is_loss(const ds_op *op) {
    return op->code == DS_OP_CROSS_ENTROPY || op->code == DS_OP_CROSS_ENTROPY_GRAD;
}

static ds_kernel_stack stack_of(const finder *f, const ds_op *op) {
    if (ds_kernel_is_loss(op)) return f->loss;
    if (op->code != DS_OP_CAST) return f->stack;
    uint32_t by = f->maker[f->root[op->in[0].value.i]];
    bool behind = by && f->nodes.at[by - 1].op->code == DS_OP_CROSS_ENTROPY_GRAD;
    return behind || f->lost[op->out[0].i] ? f->loss : f->stack;
}

/* Marks what losses read. */
static void find_losses(finder *f, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_CROSS_ENTROPY) f->lost[op->in[0].value.i] = true;
        if (op->body) find_losses(f, op->body);
    }
}

static bool is_together(const finder *f, const char *name) {
    for (uint32_t i = 0; i < LENGTH(together); i++)
        if (together[i].stack == f->stack && has_word(together[i].ops, name)) return true;
    return false;
}

static void add_block(finder *f, const ds_block *block);

/* A view with one result stands for its operand, but not `after`, whose result others wait for. */
static bool is_plain_view(const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    return desc && desc->flags & DS_OPF_VIEW && op->code != DS_OP_AFTER && op->n_out == 1 &&
           op->n_in == 1;
}

static void add_op(finder *f, const ds_op *op, uint32_t block, uint32_t *most) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    bool view = desc && desc->flags & DS_OPF_VIEW;
    uint32_t at = f->nodes.n, level = desc ? 0 : *most + 1;
    for (uint32_t i = 0; i < op->n_in; i++) {
        uint32_t value = f->root[op->in[i].value.i], by = f->maker[value];
        const node *maker = by ? &f->nodes.at[by - 1] : NULL;
        if (maker && maker->block == block) {
            uint32_t least = maker->level + maker->barrier;
            level = least > level ? least : level;
        }
        if (!is_plain_view(op)) DS_HPUSH(&f->reads, ((read){value, at, i}));
    }
    node n = {.op = op, .name = name_of(f, op), .block = block, .level = level, .up = at};
    n.stack = stack_of(f, op);
    n.joins = desc && !view && !is_product(op) && !(desc->flags & DS_OPF_COLLECTIVE);
    n.lists = n.joins ? lists_of(n.stack, n.name) : 0;
    n.barrier = !view && !n.lists && !(n.joins && is_together(f, n.name));
    *most = level + n.barrier > *most ? level + n.barrier : *most;
    DS_HPUSH(&f->nodes, n);
    for (uint32_t i = 0; i < op->n_out; i++) f->maker[op->out[i].i] = at + 1;
    if (is_plain_view(op)) f->root[op->out[0].i] = f->root[op->in[0].value.i];
    if (op->body) add_block(f, op->body);
}

static void add_block(finder *f, const ds_block *block) {
    uint32_t number = f->n_blocks++, most = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) add_op(f, block->ops[i], number, &most);
}

/* ---- joined ---- */

static uint32_t top(const finder *f, uint32_t i) {
    while (f->nodes.at[i].up != i) i = f->nodes.at[i].up;
    return i;
}

static bool same_kernel(const finder *f, uint32_t a, uint32_t b) {
    return top(f, a) == top(f, b);
}

/* The earlier root stays. */
static void join(finder *f, uint32_t a, uint32_t b) {
    uint32_t first = top(f, a), second = top(f, b);
    node *x = &f->nodes.at[first], *y = &f->nodes.at[second];
    if (first == second || x->block != y->block || x->level != y->level || !(x->lists & y->lists))
        return;
    uint32_t lists = x->lists & y->lists;
    if (first < second)
        y->up = first;
    else
        x->up = second;
    x->lists = y->lists = lists;
}

static int by_value(const void *a, const void *b) {
    const read *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return x->operand < y->operand ? -1 : x->operand > y->operand;
}

static uint32_t end_of_reads(const finder *f, uint32_t first) {
    uint32_t end = first;
    while (end < f->reads.n && f->reads.at[end].value == f->reads.at[first].value) end++;
    return end;
}

/* A family is many values: reads of it have nothing in common. */
static bool is_family(const finder *f, uint32_t value) {
    return f->func->values.at[value].n_binders > 0;
}

static void join_neighbours(finder *f) {
    for (uint32_t first = 0, end; first < f->reads.n; first = end) {
        const read *r = &f->reads.at[first];
        end = end_of_reads(f, first);
        if (is_family(f, r->value)) continue;
        for (uint32_t i = first; i < end; i++) {
            if (!f->nodes.at[f->reads.at[i].node].lists) continue;
            if (f->maker[r->value]) join(f, f->maker[r->value] - 1, f->reads.at[i].node);
            for (uint32_t k = i + 1; k < end; k++)
                join(f, f->reads.at[i].node, f->reads.at[k].node);
        }
    }
}

/* ---- what goes through memory ---- */

static void mark_value(finder *f, uint32_t first, uint32_t end) {
    uint32_t value = f->reads.at[first].value, by = f->maker[value];
    bool inside = by != 0;
    for (uint32_t i = first; i < end; i++) {
        const read *r = &f->reads.at[i];
        node *reader = &f->nodes.at[r->node];
        bool joined = reader->lists != 0, known = joined && by && same_kernel(f, by - 1, r->node);
        inside = inside && known;
        for (uint32_t k = first; joined && k < i && !known; k++)
            known = same_kernel(f, f->reads.at[k].node, r->node);
        if (known && r->operand < 32) reader->kernel.unread |= UINT32_C(1) << r->operand;
    }
    if (!inside) return;
    node *maker = &f->nodes.at[by - 1];
    for (uint32_t i = 0; i < maker->op->n_out && i < 32; i++)
        if (maker->op->out[i].i == value) maker->kernel.unwritten |= UINT32_C(1) << i;
}

static void mark_memory(finder *f) {
    for (uint32_t first = 0, end; first < f->reads.n; first = end) {
        end = end_of_reads(f, first);
        if (!is_family(f, f->reads.at[first].value)) mark_value(f, first, end);
    }
}

/* ---- conversions ---- */

static bool converts(const finder *f, const ds_op *op, uint32_t operand) {
    const ds_attr *which = ds_attr_find(op->attrs, op->n_attrs, "converts");
    const ds_exprs *exprs = &f->func->module->unit->exprs;
    int64_t i;
    if (!which || which->kind != DS_ATTR_EXPR || !is_product(op)) return false;
    return ds_expr_is_int(exprs, which->expr, &i) && i == (int64_t)operand;
}

static void convert_weights(finder *f) {
    int32_t each = weight_bytes(f->stack);
    for (uint32_t i = 0; i < f->nodes.n && each; i++) {
        node *n = &f->nodes.at[i];
        for (uint32_t k = 0; k < 2 && n->op->n_in == 2; k++)
            if (converts(f, n->op, k)) {
                n->kernel.weight = 1 - k;
                n->kernel.weight_bytes = each;
            }
    }
}

/* Of the products that convert one value, all but the first of a block. */
static void share_conversions(finder *f) {
    bool shares = false;
    for (uint32_t i = 0; i < LENGTH(converted); i++) shares |= converted[i] == f->stack;
    for (uint32_t i = 0, first = 0; shares && i < f->reads.n; i++) {
        const read *r = &f->reads.at[i];
        if (r->value != f->reads.at[first].value) first = i;
        node *reader = &f->nodes.at[r->node];
        if (!converts(f, reader->op, r->operand)) continue;
        for (uint32_t k = first; k < i; k++) {
            const read *other = &f->reads.at[k];
            const node *before = &f->nodes.at[other->node];
            if (before->block == reader->block && converts(f, before->op, other->operand))
                reader->kernel.is_converted = true;
        }
    }
}

/* ---- ends of products ---- */

/* Is this operand made by a product, and read by this op alone? */
static bool ends_product(const finder *f, uint32_t at, uint32_t operand) {
    const node *n = &f->nodes.at[at];
    if (operand >= n->op->n_in) return false;
    uint32_t value = f->root[n->op->in[operand].value.i], by = f->maker[value];
    if (!by || !is_product(f->nodes.at[by - 1].op) || f->nodes.at[by - 1].block != n->block)
        return false;
    read key = {.value = value};
    uint32_t low = 0, high = f->reads.n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (by_value(&f->reads.at[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->reads.n && end_of_reads(f, low) == low + 1;
}

static void end_products(finder *f, uint32_t at) {
    node *n = &f->nodes.at[at];
    for (uint32_t e = 0; e < LENGTH(epilogues); e++) {
        uint32_t bits = 0;
        bool all = epilogues[e].stack == f->stack && strcmp(epilogues[e].op, n->name) == 0;
        for (const char *c = epilogues[e].operands; *c && all; c++) {
            if (*c == ' ') continue;
            uint32_t operand = (uint32_t)(*c - '0');
            all = ends_product(f, at, operand);
            bits |= UINT32_C(1) << operand;
        }
        if (!all) continue;
        n->kernel = (ds_kernel){.extra_launches = -1, .unread = bits, .epilogue = true};
        n->joins = false;
        n->lists = 0;
        return;
    }
}

/* ---- launches ---- */

static const ds_kernel_line *line_of(const node *n) {
    for (uint32_t i = 0; i < LENGTH(lines) && n->joins; i++)
        if (lines[i].stack == n->stack && strcmp(lines[i].op, n->name) == 0) return &lines[i];
    return NULL;
}

/* Is an op of this name and level in the block launched with others, and not the first of them? */
static bool has_partner(finder *f, const node *n) {
    if (!is_together(f, n->name)) return false;
    uint64_t key =
        ds_hash_mix(ds_hash_mix(ds_hash_bytes(n->name, strlen(n->name)), n->level), n->block);
    uint64_t *before = ds_map_slot(&f->launched, key);
    return (*before)++ > 0;
}

static void count_launches(finder *f, uint32_t at) {
    node *n = &f->nodes.at[at];
    if (n->kernel.epilogue || !n->joins) return;
    n->kernel.line = line_of(n);
    if (n->kernel.line) n->kernel.extra_launches = n->kernel.line->launches - 1;
    if (top(f, at) != at || has_partner(f, n)) n->kernel.extra_launches--;
}

static void keep(const finder *f, ds_arena *arena, ds_map *out) {
    for (uint32_t i = 0; i < f->nodes.n; i++) {
        const ds_kernel *k = &f->nodes.at[i].kernel;
        bool plain = !k->extra_launches && !k->unread && !k->unwritten && !k->is_converted &&
                     !k->weight_bytes;
        if (plain && !k->line) continue;
        ds_kernel *own = DS_NEW(arena, ds_kernel);
        *own = *k;
        ds_map_put(out, DS_KEY(f->nodes.at[i].op), DS_KEY(own));
    }
}

void ds_kernels_find(const ds_func *func, ds_kernel_stack stack, ds_kernel_stack loss,
                     ds_arena *arena, ds_map *out) {
    if (stack == DS_KERNELS_OPS) return;
    finder f = {.func = func, .stack = stack, .loss = loss};
    size_t n = func->values.n + (size_t)1;
    ds_map_init(&f.launched);
    f.root = ds_xcalloc(n, sizeof *f.root);
    f.maker = ds_xcalloc(n, sizeof *f.maker);
    f.lost = ds_xcalloc(n, sizeof *f.lost);
    for (uint32_t v = 0; v < func->values.n; v++) f.root[v] = v;
    find_losses(&f, &func->body);
    add_block(&f, &func->body);
    if (f.reads.n) qsort(f.reads.at, f.reads.n, sizeof *f.reads.at, by_value);
    for (uint32_t i = 0; i < f.nodes.n; i++) end_products(&f, i);
    join_neighbours(&f);
    mark_memory(&f);
    share_conversions(&f);
    convert_weights(&f);
    for (uint32_t i = 0; i < f.nodes.n; i++) count_launches(&f, i);
    keep(&f, arena, out);
    ds_map_deinit(&f.launched);
    free(f.root);
    free(f.maker);
    free(f.lost);
    free(f.nodes.at);
    free(f.reads.at);
}

/* ---- work ---- */

/* Bytes of all kernels of a line. */
static int64_t bytes_of_line(const ds_kernel_line *line, const ds_shape *of, bool *ok) {
    int64_t elements = 0;
    if (ds_shape_elements(of, &elements, NULL) != DS_OK) *ok = false;
    int64_t bits = (int64_t)ds_dtype_bits(of->dtype);
    int64_t each = line->own * bits + line->wide * 32;
    if (bits < 32) each += line->conversions * (bits + 32);
    return ds_ops__mul(ok, elements, each) / 8;
}

/* The sum of the bytes of tensors whose bit is set. */
static int64_t bytes_of(const ds_shape *shapes, uint32_t n, uint32_t bits, bool *ok) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n && i < 32; i++) {
        int64_t bytes = 0;
        if (!(bits >> i & 1)) continue;
        if (ds_shape_bytes(&shapes[i], &bytes, NULL) != DS_OK) *ok = false;
        sum = ds_ops__add(ok, sum, bytes);
    }
    return sum;
}

static int64_t less(int64_t from, int64_t by) {
    return from > by ? from - by : 0;
}

ds_status ds_kernel_work(const ds_kernel *kernel, const ds_op *op, const ds_shape *in,
                         const ds_shape *out, ds_work *work, ds_error *err) {
    bool ok = true;
    if (kernel->is_converted) work->bytes_converted = 0;
    if (kernel->weight_bytes) {
        int64_t elements = 0;
        DS_TRY(ds_shape_elements(&in[kernel->weight], &elements, err));
        work->bytes_converted = ds_ops__add(&ok, work->bytes_converted,
                                            ds_ops__mul(&ok, elements, kernel->weight_bytes));
    }
    if (work->kind != DS_WORK_MEMORY) return ds_ops__overflow(op, ok, err);
    int64_t natural = ds_ops__add(&ok, work->bytes_read, work->bytes_written);
    int64_t unread = bytes_of(in, op->n_in, kernel->unread, &ok);
    int64_t unwritten = bytes_of(out, op->n_out, kernel->unwritten, &ok);
    if (kernel->epilogue) unwritten = unread;
    work->bytes_read = less(work->bytes_read, unread);
    work->bytes_written = less(work->bytes_written, unwritten);
    if (kernel->line && op->n_in) {
        int64_t more = less(bytes_of_line(kernel->line, &in[0], &ok), natural);
        work->bytes_read = ds_ops__add(&ok, work->bytes_read, more);
    }
    return ds_ops__overflow(op, ok, err);
}
