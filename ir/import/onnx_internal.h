/* The ONNX importer from inside: the state of a translation, and how nodes read and write it.
 *
 * A name of the graph stands for one of these, or for several at once:
 *   a value      of the function that is being built
 *   known items  integers that do not depend on the inputs' elements: a shape, an axis. They may be
 *                expressions over params. Nodes that only compute shapes leave nothing else behind.
 *   a known real one number, as the 2 in x / 2
 *   a tensor     an initializer; it becomes a weight when a node first reads it as a value */
#ifndef DS_IMPORT_ONNX_INTERNAL_H
#define DS_IMPORT_ONNX_INTERNAL_H

#include "ir/import/internal.h"
#include "ir/passes/build/build.h"

typedef struct Onnx__ModelProto Onnx__ModelProto;
typedef struct Onnx__GraphProto Onnx__GraphProto;
typedef struct Onnx__NodeProto Onnx__NodeProto;
typedef struct Onnx__TensorProto Onnx__TensorProto;
typedef struct Onnx__AttributeProto Onnx__AttributeProto;

/* Guarded unpacking (onnx_read.c); free with ds_onnx__free. */
ds_status ds_onnx__read(const uint8_t *bytes, size_t n, Onnx__ModelProto **out, ds_error *err);
void ds_onnx__free(Onnx__ModelProto *model);

/* ---- what names stand for ---- */

#define DS_ONNX_MAX_ITEMS 4096u /* of a known tensor */

/* How much of x/2 (1 + erf(x/√2)) a name is (onnx_gelu.c). */
typedef enum ds_onnx_gelu {
    DS_GELU_NOT,
    DS_GELU_ERF,      /* erf(x/√2) */
    DS_GELU_ONE_PLUS, /* factor · (1 + erf(x/√2)) */
    DS_GELU_PRODUCT   /* factor · x · (1 + erf(x/√2)) */
} ds_onnx_gelu;

typedef struct ds_onnx_name {
    const char *name; /* as the graph has it, interned */
    bool is_defined, is_needed;
    bool has_value;
    ds_value value;
    const Onnx__TensorProto *tensor;
    bool has_items; /* items[0 .. n): a tensor of these dims, row-major */
    ds_expr *items;
    uint32_t n;
    ds_expr dims[DS_MAX_RANK];
    uint32_t rank;
    bool has_real;
    double real;
    ds_dtype dtype; /* of known items and of a real */
    bool is_scaled; /* a value that is `factor` times the value `of` */
    ds_onnx_gelu gelu;
    ds_value of; /* x */
    double factor;
} ds_onnx_name;

typedef struct ds_onnx {
    ds_builder b;
    ds_unit *unit;
    ds_exprs *exprs;
    const Onnx__GraphProto *graph;
    int64_t opset;
    DS_VEC(ds_import_param) params;
    ds_module *module;
    ds_map ids;                  /* interned name → index */
    DS_VEC(ds_onnx_name) names;  /* heap; grows only before nodes are translated */
    const Onnx__NodeProto *node; /* the one being translated */
    ds_onnx_name **in;           /* its inputs; NULL where one is left out */
    uint32_t n_in;
    uint32_t first_value; /* values from here on are the node's */
    bool said_batch_norm; /* a comment on the first one is enough */
    const char *note;     /* a comment for the next op, or NULL */
} ds_onnx;

/* The entry of a name, made if it is new: only while the graph is read. */
ds_onnx_name *ds_onnx__name(ds_onnx *g, const char *name);

/* ---- attributes of the node (onnx_attr.c) ---- */

int64_t ds_onnx__int(const ds_onnx *g, const char *name, int64_t otherwise);
double ds_onnx__float(const ds_onnx *g, const char *name, double otherwise);
/* Is the string attribute `name` (if it is absent, `otherwise`) equal to `text`? */
bool ds_onnx__is(const ds_onnx *g, const char *name, const char *otherwise, const char *text);
/* The items of an ints attribute; false if it is absent. */
bool ds_onnx__attr_ints(const ds_onnx *g, const char *name, const int64_t **items, uint32_t *n);
const Onnx__AttributeProto *ds_onnx__attr(const ds_onnx *g, const char *name);

/* ---- operands (onnx_value.c) ---- */

/* Input i, or NULL if the node has none there. */
ds_onnx_name *ds_onnx__in(const ds_onnx *g, uint32_t i);
/* Input i as a value of the function: an initializer becomes a weight, what is known a constant or
 * an argument. DS_ERR_DATA if there is none. */
ds_status ds_onnx__use(ds_onnx *g, uint32_t i, ds_use *out, ds_error *err);
const ds_type *ds_onnx__type(ds_onnx *g, const ds_use *use);
/* Rank and dtype of input i, whatever it stands for. */
ds_status ds_onnx__shape(ds_onnx *g, uint32_t i, ds_dtype *dtype, const ds_expr **dims,
                         uint32_t *rank, ds_error *err);
/* Input i as known integers of rank 0 or 1. */
ds_status ds_onnx__items(ds_onnx *g, uint32_t i, const ds_expr **items, uint32_t *n, ds_error *err);
/* The same as numbers. */
ds_status ds_onnx__numbers(ds_onnx *g, uint32_t i, const int64_t **items, uint32_t *n,
                           ds_error *err);
/* An axis in 0 .. rank − 1; negative ones count from the end. */
ds_status ds_onnx__axis(const ds_onnx *g, int64_t axis, uint32_t rank, uint32_t *out,
                        ds_error *err);
/* The axes of an attribute, or of input i where newer opsets have them; n = 0: none are given. */
ds_status ds_onnx__axes(ds_onnx *g, uint32_t i, uint32_t rank, uint32_t axes[DS_MAX_RANK],
                        uint32_t *n, ds_error *err);
/* Elements of an initializer or attribute as integers or as one real: what is known of it. */
ds_status ds_onnx__learn(ds_onnx *g, ds_onnx_name *name, const Onnx__TensorProto *tensor,
                         ds_error *err);
bool ds_onnx__dtype(int32_t data_type, ds_dtype *out);

/* ---- results ---- */

/* Does the node have an output i, and does anybody read it? */
bool ds_onnx__wants(ds_onnx *g, uint32_t i);
/* An op of the table with these operands, not yet put. */
ds_op *ds_onnx__op(ds_onnx *g, ds_opcode code, const ds_use *in, uint32_t n);
/* Puts it with one result. */
ds_status ds_onnx__put(ds_onnx *g, ds_op *op, ds_use *out, ds_error *err);
/* Output 0, a value, is `factor` times x: remembered for gelu. */
void ds_onnx__out_scaled(ds_onnx *g, ds_use x, double factor);
/* The node's output i is this value, these integers, another name's meaning. */
void ds_onnx__out(ds_onnx *g, uint32_t i, ds_use value);
void ds_onnx__out_items(ds_onnx *g, uint32_t i, const ds_expr *items, uint32_t n, uint32_t rank);
void ds_onnx__out_same(ds_onnx *g, uint32_t i, const ds_onnx_name *as);
/* op put, and its one result the node's output 0. */
ds_status ds_onnx__finish(ds_onnx *g, ds_op *op, ds_error *err);
/* x under another shape: x itself where it has that shape. */
ds_status ds_onnx__reshape(ds_onnx *g, ds_use x, const ds_expr *dims, uint32_t rank, ds_use *out,
                           ds_error *err);
ds_status ds_onnx__transpose(ds_onnx *g, ds_use x, const uint32_t *perm, uint32_t n, ds_use *out,
                             ds_error *err);

/* DS_ERR_UNSUPPORTED: "…", to which the driver adds node and op. */
ds_status ds_onnx__refuse(ds_error *err, const char *format, ...) DS_PRINTF(2, 3);

/* A weight of this type named after input i: what the layouts of both sides leave in common. */
ds_status ds_onnx__weight(ds_onnx *g, uint32_t i, ds_dtype dtype, const ds_expr *dims,
                          uint32_t rank, ds_use *out, ds_error *err);

/* ---- gelu in pieces (onnx_gelu.c) ---- */

ds_status ds_onnx__erf(ds_onnx *g, ds_error *err);
/* For a name that is a piece of it and is read as anything else. */
ds_status ds_onnx__refuse_erf(ds_error *err);
/* A sum or product of inputs 0 and 1, of which one is a piece of gelu; *done: it was one. */
ds_status ds_onnx__gelu_piece(ds_onnx *g, bool is_product, bool *done, ds_error *err);

/* ---- translations ---- */

typedef ds_status (*ds_onnx_translate)(ds_onnx *g, ds_error *err);

typedef struct ds_onnx_rule {
    const char *op_type;
    ds_onnx_translate translate;
    uint32_t min_in, max_in, max_out;
} ds_onnx_rule;

/* Rules by file, each ended by one without op_type. */
extern const ds_onnx_rule ds_onnx__math_rules[];   /* onnx_math.c */
extern const ds_onnx_rule ds_onnx__nn_rules[];     /* onnx_nn.c */
extern const ds_onnx_rule ds_onnx__layout_rules[]; /* onnx_layout.c */

#endif
