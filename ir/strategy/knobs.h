/* Knobs: the keys of a scenario, a line each in knobs.def, and what is made of the lines. */
#ifndef DS_STRATEGY_KNOBS_H
#define DS_STRATEGY_KNOBS_H

#include "ir/base/diag.h"
#include "ir/core/ir.h"
#include "ir/strategy/strategy.h"

typedef enum ds_knob_kind {
    DS_KNOB_INT,      /* an integer expression, at least `min` */
    DS_KNOB_INTS,     /* a list of integers, or one of `choices` */
    DS_KNOB_REAL,     /* a number, at least `min` */
    DS_KNOB_BOOL,     /* true or false, on or off */
    DS_KNOB_TEXT,     /* a word or a string; one of `choices` unless that is NULL */
    DS_KNOB_DTYPE,    /* a word, of `choices` */
    DS_KNOB_AXES,     /* a text that names pp, dp, cp and tp once each */
    DS_KNOB_TEXTS,    /* a text, of `choices` unless that is NULL, or a list of any texts */
    DS_KNOB_FLAGS,    /* one of `choices` or a list of choices; the first choice is nothing */
    DS_KNOB_ENTRY,    /* @f: a function, or a per-rank program */
    DS_KNOB_MESH,     /* @m */
    DS_KNOB_PLACE,    /* @box or @m: a topology or a mesh */
    DS_KNOB_SCHEDULE, /* a text ("1f1b", "file:PATH") or @s */
    DS_KNOB_QUANTITY, /* a number with a unit of `dimension` (T, B, R, F; 'N': none) */
    DS_KNOB_RANDOM,   /* a distribution: lognormal(sigma = 0.05) (ir/strategy/jitter.h) */
    DS_KNOB_SECTION   /* a block of further knobs, or `off` */
} ds_knob_kind;

/* The passes, in their order (ir/passes/passes.h). */
typedef enum ds_pass_id {
    DS_PASS_LOWER,
    DS_PASS_STAGE,
    DS_PASS_GRAD,
    DS_PASS_OPTIMIZER,
    DS_PASS_RECOMPUTE,
    DS_PASS_SHARD,
    DS_PASS_OFFLOAD,
    DS_PASS_PIPELINE,
    DS_PASS_OVERLAP,
    DS_PASS_PROJECT,
    DS_PASS_COUNT
} ds_pass_id;

/* How far another value of a knob leaves programs alike; each includes those before it. */
typedef enum ds_knob_size {
    DS_SIZE_NONE,    /* structure: passes make another program */
    DS_SIZE_SAMPLES, /* as many samples or replicas more, where the batch is a param */
    DS_SIZE_STEP,    /* as many stages, chunks, layers or microbatches more; their order */
    DS_SIZE_MESH,    /* where the axes of the mesh lie */
    DS_SIZE_LABEL    /* no result depends on the knob */
} ds_knob_size;

/* The ways in which search/compose makes a step of smaller ones. */
typedef enum ds_way {
    DS_WAY_SIBLING,  /* of the step of four microbatches */
    DS_WAY_TEMPLATE, /* of a step of few layers and chunks, without devices */
    DS_WAY_EXACT,    /* of the step itself, without devices */
    DS_WAY_FEWER,    /* of the step with fewer virtual stages, without devices */
    DS_N_WAYS
} ds_way;

typedef enum ds_knob_bounds {
    DS_BOUNDS_NONE, /* a scenario that says the knob has no bounds */
    DS_BOUNDS_HOLD, /* bounds hold for every value */
    DS_BOUNDS_READ  /* bounds follow the value */
} ds_knob_bounds;

typedef struct ds_knob ds_knob;
typedef ds_status ds_knob_reader(const ds_binding *binding, const ds_knob *knob, void *record,
                                 ds_error *err);

struct ds_knob {
    const char *section; /* "" for the scenario itself, else "train", "strategy", … */
    const char *name;
    ds_knob_kind kind;
    int64_t min;
    char dimension;
    const char *choices; /* "mse cross_entropy none", or NULL; "every:K": all that begin so */
    /* of `train` and `strategy` alone: the field of the section's record */
    size_t offset, bytes; /* bytes = 0: none */
    ds_pass_id first;     /* that reads it */
    const char *initial;  /* the default, as text */
    ds_knob_reader *read; /* NULL: as the kind is read */
    /* a line that leaves these out denies (knobs.def) */
    ds_knob_size size;
    const char *ways[DS_N_WAYS]; /* values in words; "*": all; NULL: the default */
    const char *unknown;         /* why no way knows another value; NULL: by name */
    const char *needs;   /* without which the knob does nothing (knobs.def); NULL: nothing */
    const char *without; /* what the knob does without its needs; NULL: nothing */
    ds_knob_bounds bounds;
    const char *unbounded; /* why a scenario has no bounds; NULL: by name */
    const char *doc;       /* one sentence */
};

/* The whole table, grouped by section. */
const ds_knob *ds_scenario_knobs(uint32_t *n);
/* One line of it; NULL if there is none. */
const ds_knob *ds_scenario_knob(const char *section, const char *name);

/* The knob's choices in words, those of dtypes included; NULL: any value of the kind. */
const char *ds_knob_choices(const ds_knob *knob);
/* Is a value of the knob that is neither a list nor a name a text? */
bool ds_knob_is_of_text(const ds_knob *knob);
/* Writes a value into the knob's field of its record (a ds_train or ds_strategy): "3", "true",
 * "bf16", "25 MB", the name of a knob that has been read; "" as knobs.def says. Kinds with fields
 * that no text says have "" alone. */
void ds_knob_set(const ds_knob *knob, void *record, const char *text);
/* Appends the field's value, as a scenario would write it; "[...]" for a list or a block. */
void ds_knob_print(const ds_knob *knob, const void *record, ds_buf *out);
/* Every knob of the section, in the order of the table: what the scenario says, else the default.
 * Errors: evaluation, values out of range. O(knobs). */
ds_status ds_knobs_read(const ds_binding *binding, const char *section, void *record,
                        ds_error *err);

/* The first knob whose value the way does not know; NULL: the way knows all of them. A key without
 * a field has another value than its default if the scenario says the key. O(knobs). */
const ds_knob *ds_knobs_unknown(const ds_binding *binding, const ds_train *train,
                                const ds_strategy *strategy, ds_way way);

/* A warning for each knob that the scenario says, with another value than the default, and whose
 * needs are not met, at the place of its value. `varying` (may be NULL) tells which knobs have
 * several values, in a sweep: such a warning holds for all these values, and knobs that vary have
 * warnings too. A program that is no model has no warnings. O(knobs + size of the model). */
typedef struct ds_knobs_varying {
    bool (*varies)(void *context, const ds_knob *knob, ds_loc *loc); /* by the dimension at `loc` */
    void *context;
} ds_knobs_varying;
void ds_knobs_warn(const ds_binding *binding, const ds_knobs_varying *varying, ds_diags *out);

/* An attribute's value as one number or text, as conditions and bounds of a sweep compare values:
 * on, off, true and false of a BOOL are 1 and 0. False: the attribute is a place, a quantity or a
 * list, or cannot be evaluated. `env` may be NULL for an attribute that is no expression. */
bool ds_knob_value(const ds_knob *knob, const ds_env *env, const ds_attr *attr, ds_num *out);

#endif
