/* The op table: what every operation of the language means for types, work and cost.
 *
 * One line of ops.def per op. The core of a line is its factor rule (as in Shardy): every dim of
 * every operand and result is an ordered product of factors; a factor is parallel unless the rule
 * says otherwise. Shape inference, FLOPs, legal shardings and resulting partials derive from it;
 * what does not fit is written as a hook in the op's family file. */
#ifndef DS_OPS_OPS_H
#define DS_OPS_OPS_H

#include "ir/core/ir.h"

/* ---- the table ---- */

/* Op codes: DS_OP_FOR … (ir/core/ir.h) then DS_OP_MATMUL, DS_OP_ALL_REDUCE … in table order. */
enum {
    ds_op_before_first_ = DS_OP_FIRST_TABLE_OP - 1,
#define OP(ID, ...) DS_OP_##ID,
#include "ir/ops/ops.def"
    DS_OP_COUNT
};

typedef enum ds_op_flag {
    DS_OPF_VIEW = 1 << 0,       /* result shares operand 0's bytes; no work */
    DS_OPF_COLLECTIVE = 1 << 1, /* communicates; handled by sim/coll */
    DS_OPF_LINEAR = 1 << 2,     /* linear in all operands jointly: partials pass (add, transpose) */
    DS_OPF_MULTILINEAR =
        1 << 3,                /* linear in each operand alone: one may be partial (mul, matmul) */
    DS_OPF_OPTIMIZER = 1 << 4, /* updates state: its results are always in place */
    DS_OPF_BACKWARD = 1 << 5,  /* a derivative of another op; not counted as model FLOPs forward */
    DS_OPF_LINEAR_FIRST =
        1 << 6,           /* linear in operand 0 for fixed others: it alone may be partial */
    DS_OPF_HOST = 1 << 7, /* moves a value between a device's memory and its host's */
    DS_OPF_LAZY = 1 << 8  /* linear, and `shard` lets partial sums pass through unsummed */
} ds_op_flag;

/* A tensor's concrete local shape on one device. */
typedef struct ds_shape {
    ds_dtype dtype;
    uint32_t rank;
    int64_t dims[DS_MAX_RANK];
} ds_shape;

/* Elements and bytes (rounded up to whole bytes); DS_ERR_OVERFLOW beyond int64. */
ds_status ds_shape_elements(const ds_shape *shape, int64_t *out, ds_error *err);
ds_status ds_shape_bytes(const ds_shape *shape, int64_t *out, ds_error *err);

/* How the cost model looks an op up. */
typedef enum ds_work_kind {
    DS_WORK_NONE,      /* views: no time */
    DS_WORK_GEMM,      /* batch × (m×k · k×n) */
    DS_WORK_CONV,      /* as an implicit GEMM: m = N·P·Q, n = K, k = C·R·S */
    DS_WORK_ATTENTION, /* fused attention */
    DS_WORK_RECURRENT, /* lstm: m = batch, n = 4·hidden, k = input + hidden, batch = steps;
                          ssd_scan: batch, m = steps, n = heads·dims, k = state */
    DS_WORK_MEMORY     /* elementwise, normalisation, reduction, gather, optimizer: bytes bound */
} ds_work_kind;

typedef struct ds_work {
    ds_work_kind kind;
    ds_dtype dtype;          /* of the arithmetic */
    int64_t flop;            /* multiply-add = 2 */
    int64_t bytes_read;      /* each operand once */
    int64_t bytes_written;   /* each result once */
    int64_t bytes_converted; /* moved beforehand, by conversions to `dtype` of a product */
    /* How the scales of a narrow product go: "tensor" one each, "block" one for 128 elements, "mxfp4",
     * "nvfp4" one for 32, for 16; NULL, or one that a profile lacks: the profile's first of the dtype. */
    const char *format;
    int64_t batch, m, n, k; /* GEMM, CONV, RECURRENT */
    bool grouped; /* GEMM: with `batch`, of a layer of experts that is priced as a whole */
    int64_t heads, kv_heads, seq_q, seq_kv, head_dim; /* ATTENTION, with `batch` */
    bool causal;
    int64_t value_dim;  /* ATTENTION: of values; head_dim is of queries and keys */
    int64_t window;     /* ATTENTION: keys before it that a query sees; 0: all */
    bool stores_scores; /* ATTENTION: not fused, scores go through memory */
    int64_t tokens;     /* MEMORY: product of all dims but the last of operand 0; width: the last */
    int64_t width;
} ds_work;

/* What inference is given. `in[i]` is operand i's type with its index substituted; `out[i]` is to
 * be set, in `unit->arena`, one per result. With env == NULL checks are symbolic and what cannot be
 * decided passes; with env they are decided on the bound numbers. */
typedef struct ds_infer {
    ds_unit *unit;
    const ds_func *func;
    const ds_op *op;
    const ds_type *const *in;
    ds_type **out;
    const ds_env *env;
    /* Size of a mesh axis on a place, where it is known (else false): for divisibility. May be
     * NULL. */
    bool (*axis_size)(void *context, const ds_place *on, const char *axis, int64_t *size);
    void *context;
    /* The axes of the enclosing `local` regions, interned: types are shard types there, and a
     * collective over such an axis takes and gives local values. */
    const char *const *manual_axes;
    uint32_t n_manual;
    bool may_be_empty; /* dims of size 0 are fine: of an empty range or slice */
} ds_infer;

/* What hooks work on; see ir/ops/internal.h. */
struct ds_rule_args;
struct ds_match;
typedef struct ds_rule ds_rule;

typedef struct ds_op_desc {
    const char *name;        /* as written */
    const char *family;      /* "linear", "elementwise", "collective", … one file each */
    uint32_t min_in, max_in; /* UINT32_MAX: any number */
    uint32_t min_out, max_out;
    const char *rule;   /* factor rule, or NULL where a hook makes it or infers without one */
    const char *dtypes; /* "T, T -> T": one item a value, the last one repeats. T U V: variables;
                           I: any integer; F, G: any float, variables too; _: any; or a dtype */
    const char *range;  /* "1 < experts": what numbers an operand holds; see ops.def */
    int32_t flop_per_point; /* FLOPs per point of the rule's full iteration space */
    uint32_t flags;
    const char *inplace; /* "0, -": one item a result, the last one repeats: the operand whose
                            buffer the result may take, `-` none, `k` or `k+1` counted from the
                            result's own number; NULL: none. ops.def has the convention */
    const char *attrs;   /* "axis:int=-1 causal:bool=false rule:str! op:str{sum,max}=sum" */
    const char *eval;    /* which function of ir/exec runs it; NULL: communication */
    const char *vjp;     /* which function of ir/passes/grad makes its gradient; NULL: none does */
    ds_opcode backward;  /* an op that the gradient is made by; DS_OP_INVALID: none */
    const char *saves;   /* "x y", "b for a; a for b": what the gradient reads; see ops.def */
    const char *form;    /* as in the manual, names of operands and results; NULL: "%y = f(%x)" */
    const char *doc;     /* one sentence for the manual */
    /* The rule where it depends on ranks or attributes; overrides `rule`, which then only documents
     * the common case. */
    ds_status (*rule_of)(const struct ds_rule_args *args, ds_rule *out, ds_error *err);
    /* Sizes of factors that no operand dim alone determines (conv2d's output, topk's k). */
    ds_status (*sizes)(struct ds_match *match, ds_error *err);
    ds_status (*infer)(const ds_infer *ctx, ds_error *err); /* NULL: the generic rule */
    ds_status (*work)(const ds_op *op, const ds_env *env, const ds_shape *in, const ds_shape *out,
                      ds_work *work, ds_error *err); /* NULL: generic */
    ds_status (*scratch)(const ds_op *op, const ds_type *const *types, const ds_shape *in,
                         const ds_shape *out, int64_t *bytes, ds_error *err); /* NULL: none */
} ds_op_desc;

/* The line of an op; NULL for structural codes. O(1). */
const ds_op_desc *ds_op_desc_of(ds_opcode code);
/* The code of a mnemonic ("matmul"), DS_OP_INVALID if none. */
ds_opcode ds_op_by_name(const char *name);
/* The mnemonic of any code, structural ones included. */
const char *ds_op_name(ds_opcode code);

/* Result types of a table op from its operands: arity, attributes, dtypes, shapes, shardings,
 * partials, placements. For a result whose written type says more than inference can know (recv,
 * reshard, cast targets), `ctx->out[i]` comes in set to the written type. */
ds_status ds_op_infer(const ds_infer *ctx, ds_error *err);

/* Work of one device for local (shard) shapes. O(rank). */
ds_status ds_op_work(const ds_op *op, const ds_env *env, const ds_shape *in, const ds_shape *out,
                     ds_work *work, ds_error *err);

/* Bytes that the op's reference implementation allocates on one device beside operands and results
 * while it runs, for operands of these types and local shapes (scratch.c has the formulas and their
 * sources); 0 where none is known. DS_ERR_OVERFLOW. O(rank). */
ds_status ds_op_scratch(const ds_op *op, const ds_type *const *types, const ds_shape *in,
                        const ds_shape *out, int64_t *bytes, ds_error *err);

/* The operand whose buffer the result may take, as the line's `inplace` has it; UINT32_MAX: none.
 * An optimizer's result always takes that buffer; of other ops, if nothing reads the operand later.
 * `desc` may be NULL. */
uint32_t ds_op_inplace(const ds_op_desc *desc, uint32_t result);

/* Does the gradient of operand `of` read operand i, or result r, of the forward op (the line's
 * `saves`)? O(length of the line's names). */
bool ds_op_saves_operand(const ds_op_desc *desc, uint32_t of, uint32_t i);
bool ds_op_saves_result(const ds_op_desc *desc, uint32_t of, uint32_t r);

/* Attribute values with the table's defaults. An attribute absent and without default: `*out` keeps
 * its value. */
ds_status ds_op_attr_int(const ds_op *op, const ds_env *env, const char *name, int64_t *out,
                         ds_error *err);
ds_status ds_op_attr_real(const ds_op *op, const ds_env *env, const char *name, double *out,
                          ds_error *err);
bool ds_op_attr_bool(const ds_op *op, const char *name);
const char *ds_op_attr_str(const ds_op *op, const ds_unit *unit, const char *name);

/* Attribute specs: what every op takes (name, stream, cost, role) and what every communication
 * takes besides (route, chunks; its algorithms are in its line of the table). The syntax is that of
 * ds_op_desc.attrs: `name:type`, for a str perhaps `{its,only,values}`, then `=default`, or `!`
 * where the attribute must be given. Types: int real bool str ints dtype time. */
extern const char ds_op_role_attr[];   /* role alone: what a value is in memory */
extern const char ds_op_input_attrs[]; /* what exec gives an argument or a weight (ir/exec) */
extern const char ds_op_common_attrs[];
extern const char ds_op_collective_attrs[];

/* Is the attribute in one of the specs, of its type, one of its values; is a time 0 or at least 1
 * ps? `who` has it, for messages: "matmul", "the argument %w". `ctx` needs unit and env only;
 * without env, what depends on params passes. Errors: DS_ERR_NAME, DS_ERR_TYPE, DS_ERR_VALUE with
 * what is legal or near. O(length of the specs). */
ds_status ds_op_check_attr(const ds_infer *ctx, const ds_attr *attr, const char *const *specs,
                           uint32_t n_specs, const char *who, ds_error *err);

/* Is the type legal on its own? Each mesh axis is used once; with ctx->env every dim is at least 1,
 * divisible by the axes that split it (where ctx->axis_size knows them), and uneven sizes are one
 * per coordinate and add up. `ctx` needs unit, env, axis_size and context only. `what` names the
 * value in the message. Errors: DS_ERR_SHAPE, DS_ERR_SHARDING. O(rank). */
ds_status ds_op_check_type(const ds_infer *ctx, const ds_type *type, const char *what, ds_loc loc,
                           ds_error *err);

/* ---- factor rules, for inference and for searches over per-op parallelisation ---- */

#define DS_MAX_FACTORS  16
#define DS_MAX_OPERANDS 8

typedef enum ds_factor_kind {
    DS_FACTOR_PAR,
    DS_FACTOR_SUM,
    DS_FACTOR_WINDOW,
    DS_FACTOR_SCAN,
    DS_FACTOR_LOOKUP,
    DS_FACTOR_WHOLE,
    DS_FACTOR_MAX
} ds_factor_kind;

typedef struct ds_rule_dim {
    uint8_t factors[4]; /* outermost first; none: a dim of size 1, written `1` */
    uint8_t n;
    bool any; /* `*`: any size, never split, not part of the iteration space */
} ds_rule_dim;

typedef struct ds_rule_term {
    ds_rule_dim dims[DS_MAX_RANK];
    uint8_t n;
    bool leading; /* starts with `...` */
} ds_rule_term;

#define DS_FACTOR_NAME_MAX 8

/* A value beyond the last term follows the last term (concat, buckets). */
struct ds_rule {
    char names[DS_MAX_FACTORS][DS_FACTOR_NAME_MAX];
    ds_factor_kind kinds[DS_MAX_FACTORS];
    uint32_t n_factors;
    ds_factor_kind leading_kind; /* of the dims that `...` stands for: PAR, or SUM by "...: sum" */
    ds_rule_term in[DS_MAX_OPERANDS], out[DS_MAX_OPERANDS];
    uint32_t n_in, n_out;
};

/* Parses "... k, k n -> ... n; k: sum". Used on the table's rules and on einsum's attribute. A
 * factor that no result has and that is given no kind is a `sum`. Errors: DS_ERR_SYNTAX,
 * DS_ERR_LIMIT. */
ds_status ds_rule_parse(const char *text, ds_loc loc, ds_rule *out, ds_error *err);

/* Writes a rule as ds_rule_parse reads it. */
void ds_rule_print(const ds_rule *rule, ds_buf *out);

/* The rule of this op on these operands, `...` expanded: what a search over shardings enumerates.
 * DS_ERR_UNSUPPORTED for ops without a rule (collectives). */
ds_status ds_op_rule(const ds_infer *ctx, ds_rule *out, ds_error *err);

#endif
