/* The loaded cost database, as look-ups want it: sorted arrays in one arena. */
#ifndef DS_COST_PROFILES_INTERNAL_H
#define DS_COST_PROFILES_INTERNAL_H

#include "sim/cost/attention.h"
#include "sim/cost/cost.h"
#include "sim/cost/gemm.h"

/* Must equal schema.sql's. */
#define DS_PROFILES_VERSION "13"

typedef struct ds_alias {
    const char *name;  /* as written */
    const char *lower; /* for look-ups and suggestions */
    uint32_t index;    /* of the kind or profile */
} ds_alias;

/* Key of a measured op: everything but `x` must agree, `x` may be interpolated. */
#define DS_OP_KEY_FIXED 6
typedef struct ds_op_key {
    uint32_t profile;
    const char *op; /* "gemm", "conv", "recurrent", "attention", or a mnemonic */
    ds_dtype dtype;
    int64_t fixed[DS_OP_KEY_FIXED]; /* gemm, conv, recurrent: batch n k; attention: heads kv_heads
                                       seq_q seq_kv head_dim causal; memory: width */
    int64_t x;                      /* m; batch; tokens */
} ds_op_key;

typedef struct ds_op_row {
    ds_op_key key;
    int64_t ps; /* median over the duplicates */
    uint32_t n; /* how many there were */
    const char *source;
} ds_op_row;

typedef struct ds_fit {
    uint32_t profile;
    const char *op;
    int32_t dtype; /* ds_dtype, or DS_ANY_DTYPE */
    bool flop;     /* resource: FLOP, else bytes */
    ds_kernel_stack kernels;
    double reference_per_s, e_max, w_half, w_min, w_max;
    int64_t floor_ps; /* no such op takes less */
    int64_t row_ps;   /* nor less than this a token */
    ds_cost_spread spread;
    const char *basis, *source;
} ds_fit;

typedef struct ds_gemm_fit {
    uint32_t profile;
    ds_dtype dtype;
    const char *format; /* of a narrow dtype's scales: "" one a tensor, block, mx, nv */
    bool grouped;       /* of batches of products, as those of experts, alone */
    ds_gemm_model model;
    /* Of operands that are converted before: a fixed time and a rate; 0: not fitted. */
    double convert_s, convert_bytes_per_s;
    double w_min, w_max;
    ds_cost_spread spread;
    const char *basis, *source;
} ds_gemm_fit;
#define DS_ANY_DTYPE (-1)

typedef struct ds_attention_fit {
    uint32_t profile;
    const char *kernel;
    ds_dtype dtype;
    bool backward, is_default;
    int64_t dim_least, dim_most; /* of head_dim */
    ds_attention_model model;
    double w_min, w_max;
    ds_cost_spread spread;
    const char *basis, *source;
} ds_attention_fit;

typedef struct ds_coll_row {
    uint32_t profile;
    const char *collective;
    uint32_t group;
    int64_t bytes;
    int64_t ps;
    uint32_t n;
    const char *source;
} ds_coll_row;

typedef struct ds_coll_fit {
    uint32_t profile;
    const char *collective;
    uint32_t group;
    int64_t capacity_bytes_per_s, alpha_ps, launch_ps, step_ps;
    double e_max, s_half;
    bool holds_compute;
    int64_t n;    /* measurements fitted, or rows of a size each; 0: assumed */
    bool no_link; /* of rows alone: the capacity is the highest rate of any, on links not named */
    ds_cost_spread spread;
    const char *basis, *source;
} ds_coll_fit;

/* What the rows of a fit had, from the least to the most; 0, 0: not stated. */
typedef struct ds_seen {
    int64_t least, most;
} ds_seen;

typedef enum ds_seen_kind {
    DS_SEEN_LINK, /* bytes/s of the slowest link */
    DS_SEEN_NODES,
    DS_SEEN_GROUP,
    DS_SEEN_SIZE,
    DS_SEEN_COUNT
} ds_seen_kind;

typedef struct ds_protocol {
    uint32_t profile;
    const char *collective, *name;
    int64_t link_bytes_per_s, launch_ps, step_ps;
    int64_t copy_bytes_per_s;        /* 0: free */
    int64_t least_bytes, most_bytes; /* sizes that it is used for; 0: without an end */
    int64_t least_group, most_group; /* groups; 0: without an end */
    double e;
    ds_seen seen[DS_SEEN_COUNT];
    ds_cost_spread spread;
    const char *basis, *source;
} ds_protocol;

typedef struct ds_profile {
    const char *name, *lower;
    uint32_t kind;
    int64_t issue_ps;
    uint64_t slow_q32;
    ds_cost_spread spread;       /* of whole steps */
    uint32_t first_fit, end_fit; /* its efficiency curves lie between */
    const char *software, *source;
    bool is_default, is_generic; /* of its kind */
    bool is_lent;                /* its curves are a relative's */
    const char *base_name;       /* "": none */
    uint32_t base;               /* the profile whose rows and fits count; its own index: none */
    ds_cost_factors factors;
    const char *framework; /* "": none */
    ds_profile_steps steps;
} ds_profile;

struct ds_profiles {
    ds_arena arena;
    uint64_t content; /* a hash of all that was loaded */
    bool uses_defaults;
    bool knows_parts; /* catalogue/intervals.csv has rows */
    ds_part_error parts[DS_PART_COUNT];
    uint32_t without;         /* terms that do not count (ir/strategy/terms.h) */
    const int64_t *rates_ppb; /* by ds_resource; NULL: as they are */
    DS_VEC(ds_device_kind) kinds;
    DS_VEC(ds_alias) kind_names; /* canonical names and aliases */
    DS_VEC(ds_profile) profiles; /* [0] is "ideal" */
    DS_VEC(ds_op_row) ops;       /* sorted by ds_op_key_compare, no duplicates */
    DS_VEC(ds_fit) fits;
    DS_VEC(ds_gemm_fit) gemms;
    DS_VEC(ds_attention_fit) attentions;
    uint32_t n_own_profiles, n_own_gemms, n_own_attentions; /* before loans */
    DS_VEC(ds_coll_row) coll_rows; /* sorted by profile, collective, group, bytes; no duplicates */
    DS_VEC(ds_coll_fit) coll_fits; /* sorted by profile, collective, group */
    DS_VEC(ds_protocol) protocols; /* sorted by profile, collective, link, name */
};

/* db_merge.c: sorts the rows, makes one of duplicates, adds the fits of collectives with rows alone.
 * O(n log n) of the rows. */
void ds_cost__merge(ds_profiles *p);

/* relatives.c: generic profiles of kinds without published operations. O(fits of the lenders). */
void ds_cost__borrow(ds_profiles *p);

/* interval.c: how many times as long as by rows and fits the op takes: by the profile's factor, and
 * in a step (n_devices > 0) of a generic profile by e^(biases of the step and of the op's part). */
double ds_cost__op_factor(const ds_cost_query *q);
/* factors.c: resolves the bases of profiles. DS_ERR_DATA: no such profile of the device, or one that
 * has a base itself. */
ds_status ds_cost__find_bases(ds_profiles *p, ds_error *err);
/* The profile whose rows and fits count for `profile`. */
static inline uint32_t ds_cost__base(const ds_profiles *p, uint32_t profile) {
    return p->profiles.at[profile].base;
}
/* *ps times the factor, rounded up; DS_ERR_OVERFLOW. A line about it goes to `explain` unless that
 * is NULL. */
ds_status ds_cost__scale(const ds_profile *profile, double factor, int64_t *ps, ds_buf *explain,
                         ds_error *err);
/* The same of the terms of a collective: times, and 1/efficiency. */
ds_status ds_cost__scale_collective(const ds_profile *profile, ds_coll_cost *cost, ds_buf *explain,
                                    ds_error *err);
/* exchange.c: the terms of tokens that DeepEP's kernels send, in place of an all_to_all's in *out,
 * where the profile has fits of the kernels. A profile without a fit of the network keeps the
 * all_to_all's share of the network, and forwards as the fits of H100. */
ds_status ds_cost__exchange(const ds_profiles *profiles, uint32_t profile,
                            const ds_coll_demand *asked, ds_coll_cost *out, ds_buf *explain,
                            ds_error *err);

/* Less than that is no use of a link but a latency; to a thousandth in 2^-32. */
#define DS_COST_LEAST_EFFICIENCY 0x1p-22

/* ranges.c: what a number of the database may be. */
typedef struct ds_cost_range {
    const char *table, *column;
    double least, most;
    bool whole;    /* an integer */
    bool optional; /* may be NULL */
} ds_cost_range;
/* NULL: the column holds no number, or none that is read. O(columns of all tables). */
const ds_cost_range *ds_cost__range(const char *table, const char *column);
bool ds_cost__is_in(const ds_cost_range *range, double value);

/* Bytes on the wire of each member and direction, relative to the size, of a ring over n members.
 */
double ds_cost__wire_factor(const char *collective, double n);

/* Total order: profile, op, dtype, fixed, x. */
int ds_op_key_compare(const ds_op_key *a, const ds_op_key *b);
/* The same without x: equal keys are neighbours for interpolation. */
int ds_op_key_compare_fixed(const ds_op_key *a, const ds_op_key *b);

#endif
