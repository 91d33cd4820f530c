/* The module: everything a .dir file says, as data.
 *
 * A ds_unit owns one root file and all it imports: one string table, one expression table, one
 * arena. Every pointer below lives as long as the unit. Parsing fills in everything but value types
 * and cross references (callee, mesh, topology …); ir/verify/verify.h fills in those.
 *
 * Names are interned (equal iff same pointer) and stored without their sigil. Comments and blank
 * lines are kept beside the item they precede, so printing loses nothing. */
#ifndef DS_CORE_IR_H
#define DS_CORE_IR_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/stop.h"
#include "ir/base/str.h"
#include "ir/core/expr.h"
#include "ir/core/type.h"

typedef struct ds_unit ds_unit;
typedef struct ds_module ds_module;
typedef struct ds_func ds_func;
typedef struct ds_op ds_op;
typedef struct ds_block ds_block;

/* What stands before an item (comment lines without "//", blank line above) and after it. A comment
 * inside an item counts as before it. */
typedef struct ds_trivia {
    const char **comments; /* each the text after "//"; "" for a blank line between them, " " for a
                              comment without text */
    uint32_t n_comments;
    bool blank_before;
    const char *trailing; /* comment on the item's last line, or NULL */
    const char *opening;  /* comment after the brace that opens the item's block, or NULL */
} ds_trivia;

/* ---- attributes: op attributes, scenario entries, topology options ---- */

typedef enum ds_attr_kind {
    DS_ATTR_EXPR,     /* expr: number, string or param expression */
    DS_ATTR_BOOL,     /* flag */
    DS_ATTR_WORD,     /* name: a bare word that is neither a param nor an index, e.g. relu, none */
    DS_ATTR_QUANTITY, /* expr with unit: 3 us, 300 GB/s */
    DS_ATTR_PLACE,    /* place: @name, @mesh{pp=1}, @box.gpu[0] */
    DS_ATTR_LIST,     /* items (their names are NULL): [1, 1] */
    DS_ATTR_BLOCK     /* items: { a = 1, "layer[*].fc1" = on @v [n: x, k: y] }; with a word:
                         lognormal(sigma = 0.05) */
} ds_attr_kind;

/* X(name, text, dimension letter, scale): T seconds·scale, B bytes, R bytes per second, F FLOP/s.
 * GB is 10^9 bytes, GiB 2^30; Gb/s is 10^9 bits per second: never mixed. */
#define DS_UNIT_MAP(X)                                                                             \
    X(PS, "ps", 'T', 1e-12)                                                                        \
    X(NS, "ns", 'T', 1e-9)                                                                         \
    X(US, "us", 'T', 1e-6)                                                                         \
    X(MS, "ms", 'T', 1e-3)                                                                         \
    X(S, "s", 'T', 1.0)                                                                            \
    X(BYTE, "B", 'B', 1.0)                                                                         \
    X(KB, "KB", 'B', 1e3)                                                                          \
    X(MB, "MB", 'B', 1e6)                                                                          \
    X(GB, "GB", 'B', 1e9)                                                                          \
    X(TB, "TB", 'B', 1e12)                                                                         \
    X(KIB, "KiB", 'B', 1024.0)                                                                     \
    X(MIB, "MiB", 'B', 1048576.0)                                                                  \
    X(GIB, "GiB", 'B', 1073741824.0)                                                               \
    X(TIB, "TiB", 'B', 1099511627776.0)                                                            \
    X(BPS, "B/s", 'R', 1.0)                                                                        \
    X(KBPS, "KB/s", 'R', 1e3)                                                                      \
    X(MBPS, "MB/s", 'R', 1e6)                                                                      \
    X(GBPS, "GB/s", 'R', 1e9)                                                                      \
    X(TBPS, "TB/s", 'R', 1e12)                                                                     \
    X(MIBPS, "MiB/s", 'R', 1048576.0)                                                              \
    X(GIBPS, "GiB/s", 'R', 1073741824.0)                                                           \
    X(TIBPS, "TiB/s", 'R', 1099511627776.0)                                                        \
    X(KBITPS, "Kb/s", 'R', 1e3 / 8)                                                                \
    X(MBITPS, "Mb/s", 'R', 1e6 / 8)                                                                \
    X(GBITPS, "Gb/s", 'R', 1e9 / 8)                                                                \
    X(TBITPS, "Tb/s", 'R', 1e12 / 8)                                                               \
    X(GFLOPS, "GFLOP/s", 'F', 1e9)                                                                 \
    X(TFLOPS, "TFLOP/s", 'F', 1e12)

typedef enum ds_unit_id {
    DS_UNIT_NONE,
#define DS_X(name, text, dimension, scale) DS_UNIT_##name,
    DS_UNIT_MAP(DS_X)
#undef DS_X
} ds_unit_id;

const char *ds_unit_text(ds_unit_id unit);
char ds_unit_dimension(ds_unit_id unit);
double ds_unit_scale(ds_unit_id unit);
bool ds_unit_parse(const char *text, size_t n, ds_unit_id *out);

typedef struct ds_quantity {
    ds_expr value;
    ds_unit_id unit;
} ds_quantity;

/* The quantity in the unit's base (s, B, B/s, FLOP/s) times `per_base`, rounded to the nearest
 * integer: per_base 1e12 turns seconds into picoseconds. The one place where written quantities
 * become integers. Errors: a unit of another dimension, negative, beyond int64. */
ds_status ds_quantity_eval(const ds_env *env, ds_quantity q, char dimension, double per_base,
                           ds_loc loc, int64_t *out, ds_error *err);

typedef struct ds_attr {
    const char *name; /* interned; for a quoted key the text inside the quotes; NULL in a list */
    bool quoted_name;
    ds_attr_kind kind;
    ds_loc loc;
    ds_trivia trivia;
    ds_expr expr;
    ds_unit_id unit;
    bool flag;
    const char *word;
    ds_place place;
    struct ds_attr *items; /* LIST, BLOCK */
    uint32_t n_items;
    bool is_override;   /* `on @v [n: x, k: y]`: kind PLACE, and items named by factor, each a
                           word or a list of words */
    bool labelled;      /* `group "stem" { … }`: kind BLOCK, the word is the key, and the quoted
                           name the label */
    bool multiline;     /* a block written one entry a line prints so */
    ds_trivia dangling; /* comments before a block's closing brace */
} ds_attr;

const ds_attr *ds_attr_find(const ds_attr *attrs, uint32_t n, const char *name);
/* Does the index occur in an attribute's expressions, any if the name is NULL? Items count, too. */
bool ds_attrs_mention(const ds_exprs *exprs, const ds_attr *attrs, uint32_t n,
                      const char *index_name);
/* The bare word or string of an attribute; NULL if it is NULL or something else. */
const char *ds_attr_text(const ds_exprs *exprs, const ds_attr *attr);

/* ---- values and ops ---- */

typedef struct ds_value {
    uint32_t i; /* index into its function's `values` */
} ds_value;

/* The index domain of a family: name in lo..hi (hi exclusive). */
typedef struct ds_binder {
    const char *name;
    ds_expr lo, hi;
    ds_loc loc;
} ds_binder;

typedef struct ds_value_info {
    const char *name; /* without '%' */
    ds_loc loc;
    ds_type *type;      /* element type for a family; NULL until written or inferred */
    bool type_written;  /* the source spelled it out */
    ds_binder *binders; /* n_binders > 0: a family, one value per index vector */
    uint32_t n_binders;
    ds_op *def;     /* the op or region op that defines it; NULL for a function argument */
    bool is_arg;    /* of a function, a for (carry) or a local region */
    bool in_rec;    /* of a rec's body: one value for each point; the binders are its dims, set by
                       the verifier */
    ds_attr *attrs; /* of a function argument: { role = "weight" } */
    uint32_t n_attrs;
    uint32_t n_uses; /* counted by the verifier */
} ds_value_info;

/* A read: %x, %s{l}, %s{layers-1-l}, or the stacked range %k{0:t+1}. */
typedef struct ds_use {
    ds_value value;
    ds_expr *index;    /* n_index = the family's binders, or 0 to name the whole family */
    ds_expr *index_hi; /* NULL, or per index the exclusive end of a range (none: a point) */
    uint32_t n_index;
    bool bare; /* in a rec, %k for the current point: the verifier fills in the indices, which are
                  the dims of %k, and print leaves them out */
    ds_loc loc;
} ds_use;

/* Op codes are indices into the op table (ir/ops/ops.h); the structural ones come first. */
typedef enum ds_structural {
    DS_OP_INVALID,
    DS_OP_FOR,    /* %r… = for i in lo..hi carry (%a = %init…) { … yield … keep … } */
    DS_OP_CALL,   /* %r… = call @f<@m{pp=1}, 12>(%x…) */
    DS_OP_LOCAL,  /* %r… = local over (axes) (%x…) -> (types) { … yield … } */
    DS_OP_YIELD,  /* ends a for or local body */
    DS_OP_RETURN, /* ends a function body */
    DS_OP_WEIGHT, /* weight %w : type */
    DS_OP_REC,    /* %r… = rec (t in lo..hi, …) { equations in any order; yield … } */
    DS_OP_CASE,   /* %v = case expr: %a, …, else: %b: in a rec's body alone */
    DS_OP_FIRST_TABLE_OP
} ds_structural;

typedef uint32_t ds_opcode;

struct ds_block {
    ds_op **ops;
    uint32_t n_ops;
    ds_trivia dangling; /* comments before the closing brace */
};

struct ds_op {
    ds_opcode code;
    ds_loc loc;
    ds_trivia trivia;

    ds_use *in;
    uint32_t n_in;
    ds_value *out;
    uint32_t n_out;
    ds_attr *attrs;
    uint32_t n_attrs;

    /* Clauses, in the order in which they print:
     *   over (a, b) | across | group (0, 1)   which devices take part
     *   dim 1 | dim 1 -> 2                     which dim is gathered, scattered; moved to
     *   to P | to (P, Q) | from P              places; in a per-rank program: to 1, from 0
     *   tag 7                                  per-rank send and recv */
    const char **over; /* axis names, major → minor */
    uint32_t n_over;
    bool across;
    ds_expr *group; /* ranks of a per-rank collective */
    uint32_t n_group;
    bool has_group;
    ds_expr dim, dim_to;
    ds_place *to;
    uint32_t n_to;
    ds_expr to_rank, from_rank, tag;

    /* FOR: index, lo, hi; args are the carries inside the body, in[] their initial values. The
     * results are the carries' final values, then one family per kept value.
     * LOCAL: over; args are the operands inside (same names, shard types); result_types written. */
    const char *index;
    ds_expr lo, hi;
    ds_value *args;
    uint32_t n_args;
    ds_block *body;
    ds_type **result_types; /* LOCAL: the types after -> ; else NULL */
    /* YIELD: in[] = yielded values then kept ones; the last n_keep are kept. */
    uint32_t n_keep;
    /* CALL */
    const char *callee_name; /* "stage" or "g.stage" */
    ds_func *callee;         /* set by the verifier */
    ds_place *mesh_args;
    uint32_t n_mesh_args;
    ds_expr index_arg; /* none: the callee has no index parameter */
    /* REC: the dims, in the header's order. An op of a rec's body: the dims that the text states,
     * %k{l} = …, as names alone. All dims of such an op are the binders of its results. */
    ds_binder *dims;
    uint32_t n_dims;
    /* CASE: in[i] is read where conds[i] holds and no condition before it; the last of in[] is
     * `else`. */
    ds_expr *conds;
    uint32_t n_conds;
};

struct ds_func {
    const char *name;
    ds_module *module;
    ds_loc loc;
    ds_trivia trivia;
    const char **mesh_params; /* <mesh @s, mesh @t> */
    uint32_t n_mesh_params;
    const char *index_param; /* <index first>: an integer that a call gives, read like a loop's
                                index; NULL: none */
    ds_value *args;
    uint32_t n_args;
    ds_type **results;
    uint32_t n_results;
    ds_binder **result_binders; /* per result, for families `-> {l: 0..n} T`; NULL: no families */
    uint32_t *n_result_binders;
    ds_block body;
    DS_VEC(ds_value_info) values;
    int64_t rank; /* of a per-rank program's body; else -1 */
    /* Set by the verifier: it holds a weight, or calls (transitively) one that does, or is called
     * from such a function, or the scenario says `model =` of it or of one that calls it. Splits in
     * its written types are hints: its ops see, and give, ds_type_plain of them. */
    bool is_model;
};

/* A distributed program as one body per rank. Rank i runs on the i-th device of the scenario's
 * mesh (or topology, in order of declaration). */
typedef struct ds_program {
    const char *name;
    ds_loc loc;
    ds_trivia trivia;
    ds_func **ranks; /* in written order; func->rank says which */
    uint32_t n_ranks;
    ds_trivia dangling;
} ds_program;

/* ---- declarations ---- */

typedef struct ds_param {
    const char *name;
    ds_loc loc;
    ds_expr init;   /* over params declared earlier */
    uint32_t group; /* params of one `param a = 1, b = 2` statement share a number */
    uint32_t n_uses;
    ds_trivia trivia;
} ds_param;

typedef struct ds_import {
    const char *path;  /* as written */
    const char *alias; /* `as g`, or NULL */
    ds_attr *with;     /* `with layers = 96, …` */
    uint32_t n_with;
    ds_loc loc;
    ds_trivia trivia;
    ds_module *module; /* set by the loader */
} ds_import;

/* `axis NAME`: one more axis name beside pp, dp, cp, tp, ep. */
typedef struct ds_axis_decl {
    const char *name;
    ds_loc loc;
    ds_trivia trivia;
} ds_axis_decl;

typedef enum ds_node_kind {
    DS_NODE_DEVICE,
    DS_NODE_SWITCH,
    DS_NODE_NIC,
    DS_NODE_HOST,
    DS_NODE_INSTANCE /* `node n[128] : @dgx` */
} ds_node_kind;

typedef struct ds_node_decl {
    ds_node_kind kind;
    const char *name;
    ds_expr count;         /* none: one, without index */
    const char *type_name; /* device: catalogue name; instance: topology name; else NULL */
    ds_attr *attrs;        /* { forward = true } */
    uint32_t n_attrs;
    uint32_t group; /* `switch leaf[16], spine[8]` share a number */
    ds_loc loc;
    ds_trivia trivia;
} ds_node_decl;

typedef struct ds_link_decl {
    ds_step *a, *b; /* paths n[i].nic[j] */
    uint32_t n_a, n_b;
    bool duplex; /* `--`; false: `->` */
    ds_quantity bandwidth, latency;
    ds_binder *loops; /* for i in 0..8, j in 0..4 */
    uint32_t n_loops;
    ds_expr where; /* none, or a condition: `… for i in 0..8, j in 0..8 where i < j` */
    ds_attr *attrs;
    uint32_t n_attrs;
    ds_loc loc;
    ds_trivia trivia;
} ds_link_decl;

typedef struct ds_topology_item {
    bool is_link;
    uint32_t index; /* into nodes or links */
} ds_topology_item;

typedef struct ds_topology {
    const char *name;
    ds_module *module;
    ds_loc loc;
    ds_trivia trivia;
    DS_VEC(ds_node_decl) nodes;
    DS_VEC(ds_link_decl) links;
    DS_VEC(ds_topology_item) items; /* both, in written order */
    ds_trivia dangling;
} ds_topology;

typedef struct ds_mesh_axis {
    const char *name;
    ds_expr size;
    ds_loc loc;
} ds_mesh_axis;

/* mesh @m = [pp = 16, tp = 8] on @pod            axes outer → inner over the devices
 * mesh @v = view @m [x = 4, y = 8]                the same devices, other axes
 * mesh @s = pick 0..27 of @m [x = 3, y = 9]       some devices
 * mesh @t = [dp = 4] on @box order (0, 2, 1, 3)   devices in a given order */
typedef enum ds_mesh_kind { DS_MESH_ON, DS_MESH_VIEW, DS_MESH_PICK } ds_mesh_kind;
typedef struct ds_mesh {
    const char *name;
    ds_module *module;
    ds_loc loc;
    ds_trivia trivia;
    ds_mesh_kind kind;
    ds_mesh_axis *axes;
    uint32_t n_axes;
    const char *base; /* topology (ON) or mesh (VIEW, PICK) */
    ds_expr pick_lo, pick_hi;
    ds_expr *order;
    uint32_t n_order;
} ds_mesh;

/* schedule @s { chunks 8; place 0->0 1->1; rank 0: F0.0 F0.1 B7.0 F0.3&B7.1 } */
typedef struct ds_schedule_item {
    char kind; /* F B W R */
    int64_t chunk, microbatch;
    bool with_next; /* `&`: issued together with the following item */
} ds_schedule_item;

typedef struct ds_schedule_rank {
    int64_t rank;
    ds_schedule_item *items;
    uint32_t n_items;
    ds_loc loc;
    ds_trivia trivia;
} ds_schedule_rank;

typedef struct ds_schedule {
    const char *name;
    ds_loc loc;
    ds_trivia trivia;
    int64_t chunks;
    int64_t *place_chunk, *place_stage; /* place c->s, in written order */
    uint32_t n_place;
    ds_schedule_rank *ranks;
    uint32_t n_ranks;
    ds_trivia dangling;
} ds_schedule;

/* What a device or link has left of what its topology says, for the topology of the run:
 *   degrade n[i].gpu[3] compute = 0.8, memory = 0.9 for i in 0..4
 *   degrade n[0].gpu[1] -- n[0].nvswitch bandwidth = 0.5, latency = 2     `->`: that way alone
 * Only the root module's count. */
typedef struct ds_degrade {
    ds_step *a, *b; /* n_b 0: a node; else the links between two */
    uint32_t n_a, n_b;
    bool duplex;
    ds_attr *factors; /* numbers: compute, memory, bandwidth, latency */
    uint32_t n_factors;
    ds_binder *loops;
    uint32_t n_loops;
    ds_expr where;
    ds_loc loc;
    ds_trivia trivia;
} ds_degrade;

typedef struct ds_scenario {
    ds_loc loc;
    ds_trivia trivia;
    ds_attr *entries; /* model = @f, program = @p, train {…}, strategy {…}, profile = "…", … */
    uint32_t n_entries;
    ds_trivia dangling;
} ds_scenario;

/* sweep { dp in divisors(world), tp in [1, 2] where dp * tp == world, minimize step_time }
 *
 * What an entry says is in its `name`, `a`, `b`, `step` and `list`:
 *   DIM                 what varies (`name`: a param, a knob, or either after a dot) and its domain
 *   MINIMIZE, MAXIMIZE  an objective (`name`)
 *   WHERE, SUBJECT      a condition `a`; with a unit it is a comparison whose right side has it
 *   PRICE               of a device and hour: `a`
 *   OPTION              how it is explored: `name` is `on` (or off) */
typedef enum ds_sweep_kind {
    DS_SWEEP_DIM,
    DS_SWEEP_WHERE,
    DS_SWEEP_MINIMIZE,
    DS_SWEEP_MAXIMIZE,
    DS_SWEEP_SUBJECT,
    DS_SWEEP_PRICE,
    DS_SWEEP_OPTION
} ds_sweep_kind;

typedef enum ds_domain_kind {
    DS_DOMAIN_RANGE,    /* a..b, b exclusive, `step` (none: 1) apart */
    DS_DOMAIN_LIST,     /* list.items */
    DS_DOMAIN_DIVISORS, /* of a, ascending */
    DS_DOMAIN_POWERS    /* of two from a to b, both inclusive */
} ds_domain_kind;

typedef struct ds_sweep_entry {
    ds_sweep_kind kind;
    const char *name;
    ds_domain_kind domain;
    ds_expr a, b, step;
    bool closed; /* a range with its end: a..=b */
    ds_attr list;
    ds_unit_id unit;
    bool on;
    ds_loc loc;
    ds_trivia trivia;
} ds_sweep_entry;

typedef struct ds_sweep {
    ds_loc loc;
    ds_trivia trivia;
    ds_sweep_entry *entries; /* in written order */
    uint32_t n_entries;
    ds_trivia dangling;
} ds_sweep;

typedef enum ds_item_kind {
    DS_ITEM_IMPORT,
    DS_ITEM_PARAMS, /* index = first param of the group */
    DS_ITEM_AXIS,
    DS_ITEM_TOPOLOGY,
    DS_ITEM_MESH,
    DS_ITEM_FUNC,
    DS_ITEM_PROGRAM,
    DS_ITEM_SCHEDULE,
    DS_ITEM_SCENARIO,
    DS_ITEM_DEGRADE,
    DS_ITEM_SWEEP
} ds_item_kind;

typedef struct ds_item {
    ds_item_kind kind;
    uint32_t index;
} ds_item;

struct ds_module {
    ds_unit *unit;
    uint32_t id; /* index into unit->modules; also in DS_EXPR_PARAM nodes */
    const char *path;
    const char *text; /* the source, for diagnostics */
    size_t text_n;
    int64_t version;
    ds_trivia trivia; /* before the version line */
    DS_VEC(ds_import) imports;
    DS_VEC(ds_param) params;
    DS_VEC(ds_axis_decl) axes;
    DS_VEC(ds_topology *) topologies;
    DS_VEC(ds_mesh *) meshes;
    DS_VEC(ds_func *) funcs;
    DS_VEC(ds_program *) programs;
    DS_VEC(ds_schedule *) schedules;
    DS_VEC(ds_scenario) scenarios; /* one at most is legal */
    DS_VEC(ds_degrade) degrades;
    DS_VEC(ds_sweep) sweeps; /* likewise */
    DS_VEC(ds_item) items;   /* all of them in written order */
    ds_trivia dangling;      /* comments at the end of the file */
};

/* A setting of the command line that is no param's. */
typedef struct ds_stated {
    const char *path;          /* "strategy.zero" */
    const char *section, *key; /* of the scenario that is run; NULL: it has no such key */
    const ds_attr *instead_of; /* the file's entry; NULL: none */
} ds_stated;

struct ds_unit {
    ds_arena arena;
    ds_strtab strings;
    ds_exprs exprs;
    DS_VEC(ds_module *) modules; /* modules.at[0] is the root */
    DS_VEC(ds_stated) said;      /* settings that the scenario has (ds_load_options) */
    bool assumes_framework;      /* the scenario's framework is the one of its devices' stack */
    ds_map inferred;             /* types of ops' results, kept in the arena by ir/ops/memo.c */
    const ds_stop *stop;         /* whatever works on the unit ends then; NULL: never */
};

/* An empty unit on the heap; free with ds_unit_free. */
ds_unit *ds_unit_new(void);
void ds_unit_free(ds_unit *unit);
ds_module *ds_unit_add_module(ds_unit *unit, const char *path, const char *text, size_t n);

/* Name look-up from inside `module`: its own declarations, then those of imports without an alias
 * (and of their imports without an alias, nearest first), then "alias.name". NULL if absent. */
ds_func *ds_find_func(const ds_module *module, const char *name);
ds_topology *ds_find_topology(const ds_module *module, const char *name);
ds_mesh *ds_find_mesh(const ds_module *module, const char *name);
ds_program *ds_find_program(const ds_module *module, const char *name);
ds_schedule *ds_find_schedule(const ds_module *module, const char *name);

/* The parameters in angle brackets: such a function can only be called. NULL: none. */
static inline const char *ds_func_open(const ds_func *func) {
    return func->n_mesh_params ? "mesh parameters"
           : func->index_param ? "an index parameter"
                               : NULL;
}

static inline ds_value_info *ds_value_at(const ds_func *func, ds_value v) {
    return &func->values.at[v.i];
}

/* Is index i of the use a range, %k{0:t+1}? */
static inline bool ds_use_is_range(const ds_use *use, uint32_t i) {
    return use->index_hi && DS_HAS_EXPR(use->index_hi[i]);
}
/* Do they read the same, by the text of their indices? O(indices). */
static inline bool ds_use_same(const ds_use *a, const ds_use *b) {
    if (a->value.i != b->value.i || a->n_index != b->n_index) return false;
    for (uint32_t i = 0; i < a->n_index; i++) {
        ds_expr hi_a = a->index_hi ? a->index_hi[i] : DS_NO_EXPR;
        ds_expr hi_b = b->index_hi ? b->index_hi[i] : DS_NO_EXPR;
        if (a->index[i].i != b->index[i].i || hi_a.i != hi_b.i) return false;
    }
    return true;
}

/* ---- binding: the params' values ---- */

typedef struct ds_binding {
    ds_unit *unit;
    ds_num **params; /* [module id][param index] */
} ds_binding;

/* One `--set path=text`; path is "dp" or, for an import with an alias, "g.layers". */
typedef struct ds_setting {
    const char *path;
    const char *text;
} ds_setting;

/* Evaluates every param of every module: `--set`, then the import's `with`, then the initial value
 * (over params declared before it). A setting's text is an integer, else a real, else a string
 * (quotes around it are dropped); of several for one param the last holds. Its path is looked up
 * from the root as names are (own, imports without an alias if only one has it, "alias.name").
 * Errors: an unknown or ambiguous setting (with a suggestion), a setting of another kind than the
 * initial value (an integer where a real is declared is fine), two imports that set one param
 * differently, evaluation. The arrays are in the unit's arena. O(params). */
ds_status ds_bind(ds_unit *unit, const ds_setting *settings, uint32_t n_settings, ds_binding *out,
                  ds_error *err);

/* The param that a `--set` of that path would set, looked up from the root module; false if there
 * is none, or more than one. */
bool ds_find_param(const ds_unit *unit, const char *path, const ds_module **module,
                   uint32_t *index);
/* The same as a `with` of an import of `from` looks it up. */
bool ds_find_param_from(const ds_module *from, const char *path, const ds_module **module,
                        uint32_t *index);

/* The evaluation environment of a binding, with indices in scope. */
static inline ds_env ds_binding_env(const ds_binding *binding, const ds_index *indices) {
    return (ds_env){.exprs = &binding->unit->exprs,
                    .params = (const ds_num *const *)binding->params,
                    .indices = indices};
}

#endif
