/* The inside of a space: the values of params and names, and the recipes that make values from
 * others. search/bound walks regions of a space with a frame of its own. */
#ifndef DS_SEARCH_SPACE_FRAME_H
#define DS_SEARCH_SPACE_FRAME_H

#include "search/space/space.h"

#include "ir/base/map.h"

/* When a value is known: level 0 from the start, level k once the first k dimensions are set, the
 * level after the last dimension only after simulation. */
typedef uint32_t ds_level;

typedef struct ds_space_dim {
    const ds_sweep_entry *entry;
    ds_sweep_target target;
} ds_space_dim;

/* How the value of a param, or of a name in `named`, follows from others. */
typedef enum ds_recipe_kind {
    DS_RECIPE_PARAM, /* `expr` into params[module][index] */
    DS_RECIPE_EXPR,  /* `expr`, of a knob, into named[index] */
    DS_RECIPE_COPY,  /* params[module][param] into named[index] */
    DS_RECIPE_WORLD, /* devices of the topology into named[index] */
    DS_RECIPE_PRICE  /* price times world into named[index] */
} ds_recipe_kind;

typedef struct ds_recipe {
    ds_recipe_kind kind;
    ds_level level;
    uint32_t module, param, index;
    ds_expr expr;
    ds_loc loc;
} ds_recipe;

typedef struct ds_condition {
    const ds_sweep_entry *entry;
    ds_level level;
} ds_condition;

/* The current values: one set for the odometer, others for ds_space_judge and for bounds. */
typedef struct ds_frame {
    ds_num **params; /* [module id][param index] */
    ds_named *named;
    bool lenient;          /* a recipe of a level above 0 may have no value … */
    DS_VEC(uint32_t) gone; /* … recipes without a value, and recipes that need such a value */
} ds_frame;

/* A dimension's values, evaluated for the digits before. */
typedef struct ds_digit {
    uint64_t n;
    uint64_t at;
    int64_t first, step;      /* RANGE; first of POWERS */
    DS_VEC(int64_t) divisors; /* of `of` */
    int64_t of;
} ds_digit;

struct ds_space {
    ds_arena arena;
    ds_unit *unit;
    const ds_binding *base;
    const ds_setting *settings;
    uint32_t n_settings;
    const ds_sweep *sweep;
    DS_VEC(ds_space_dim) dims;
    DS_VEC(ds_recipe) recipes; /* in order of evaluation */
    DS_VEC(ds_condition) conditions;
    DS_VEC(const char *) names; /* of frame.named */
    DS_VEC(ds_level) name_levels;
    DS_VEC(ds_objective) objectives;
    ds_map param_levels;                               /* module << 32 | param → level + 1 */
    uint32_t world, price, simulated[DS_METRIC_COUNT]; /* places in `names`; UINT32_MAX: unused */
    const ds_sweep_entry *price_entry;
    ds_frame walk, judge, region;
    /* the odometer */
    ds_digit *digits;
    ds_choice *current; /* the digits' values */
    uint32_t depth;     /* of params made from params, during ds_space_level */
    bool started, ended;
    uint64_t most_rejected, rejected; /* values in a row: the limit (0: none), and so far */
    uint32_t polls;                   /* values since the time was last checked */
    bool doubtful;                    /* some condition or param could not be evaluated somewhere */
};

/* ---- names.c: names in expressions ---- */

/* The level at which an expression can be evaluated; adds recipes for the expression's names. */
ds_status ds_space_level(ds_space *space, ds_expr e, ds_loc loc, ds_level *level, ds_error *err);
/* Likewise for a name; *place is its place in `names`. */
ds_status ds_space_name(ds_space *space, const char *name, ds_loc loc, uint32_t *place,
                        ds_error *err);
/* Runs the recipes of one level. */
ds_status ds_space_cook(ds_space *space, ds_frame *frame, ds_level level, ds_error *err);
/* Sets a dimension and runs the recipes of its level. */
ds_status ds_space_set(ds_space *space, ds_frame *frame, uint32_t dim, ds_num value, uint32_t item,
                       ds_error *err);
/* An error if what the expression looks at has no value for those of the dimensions (a param that
 * divides by zero): that of the first such recipe. O(1) where there is none. */
ds_status ds_space_known(const ds_space *space, const ds_frame *frame, ds_expr e, ds_error *err);
/* Is the status an error of evaluation that other values may not have? */
static inline bool ds_space_is_of_values(ds_status status) {
    return status == DS_ERR_VALUE || status == DS_ERR_OVERFLOW;
}
ds_env ds_space_env(const ds_space *space, const ds_frame *frame);

#endif
