/* The reference interpreter: a program on real numbers.
 *
 * Every device of the program's places holds its own shard in doubles; collectives move those
 * numbers; partial sums are partial; each device computes from what it holds. So a program that is
 * sharded wrongly gives a wrong number, or an error where a type says "replicated" and devices
 * differ. What a program means does not depend on its mesh: inputs and dropout masks
 * are functions of names and global element indices.
 *
 *     ds_exec_options options = {.seed = 1};
 *     ds_exec_result *a, *b;
 *     ds_exec_run(&sharded, &options, &a, &err);
 *     ds_exec_run(&plain, &options, &b, &err);
 *     ds_exec_comparison c;
 *     ds_exec_compare(b, a, DS_EXEC_BOUND, &c);      // c.equal, c.rows, c.inputs */
#ifndef DS_EXEC_EXEC_H
#define DS_EXEC_EXEC_H

#include "ir/core/ir.h"

/* A whole (global) tensor by name: an input or a result. An element of a family is "w{3}". */
typedef struct ds_exec_tensor {
    const char *name;
    ds_dtype dtype;
    uint32_t rank;
    int64_t dims[DS_MAX_RANK];
    int64_t n;  /* elements */
    double *at; /* row-major; NULL where only name and shape are of interest */
} ds_exec_tensor;

/* Operations and turns that a run executes, on all ranks together: some seconds of small ones. */
#define DS_EXEC_MAX_STEPS         (INT64_C(1) << 20)
#define DS_EXEC_DEFAULT_MAX_BYTES (INT64_C(4) << 30)

typedef struct ds_exec_options {
    uint64_t seed; /* of generated inputs and dropout */
    int64_t step;  /* the training step: dropout masks differ from step to step */
    bool emulate;  /* round every result to its dtype, to nearest even */
    bool keep_inputs;
    int64_t max_bytes; /* of all tensors together; 0: DS_EXEC_DEFAULT_MAX_BYTES */
    /* What to run: NULL: the scenario's program or model; without a scenario the only function
     * without mesh parameters. */
    const ds_func *entry;
    /* Inputs that are not generated, by name ("w3" and "w{3}" are one name), read only. */
    const ds_exec_tensor *inputs;
    uint32_t n_inputs;
} ds_exec_options;

typedef struct ds_exec_result {
    ds_arena arena;                /* owns names; tensors are on the heap */
    DS_VEC(ds_exec_tensor) inputs; /* with elements if options.keep_inputs */
    DS_VEC(ds_exec_tensor) outputs;
    uint32_t n_devices; /* that held a value */
    int64_t peak_bytes; /* of all tensors together */
    /* The smallest difference that decided something: of a top-k choice to the first one left out,
     * of a relu's gradient to 0, relative to the tensor's largest element. Below 1e-6 two correct
     * programs may differ: take another seed. Infinite if nothing was decided. */
    double margin;
} ds_exec_result;

/* Runs a verified and bound program (ds_verify, ds_bind, ds_verify_bound).
 * Errors: DS_ERR_VALUE (replicas that differ, an index outside its table), DS_ERR_SHAPE,
 * DS_ERR_SHARDING, DS_ERR_DEADLOCK (ranks that wait for each other), DS_ERR_LIMIT (max_bytes,
 * steps), DS_ERR_NAME (an input that the program lacks), DS_ERR_UNSUPPORTED. On error *out is NULL.
 * O(work of all devices). */
ds_status ds_exec_run(const ds_binding *binding, const ds_exec_options *options,
                      ds_exec_result **out, ds_error *err);
void ds_exec_result_free(ds_exec_result *result);
/* The result of that name ("g3" and "g{3}" are one name), or NULL. */
const ds_exec_tensor *ds_exec_output(const ds_exec_result *result, const char *name);

/* The value in -1 .. 1 that a generated input has: a function of the seed, the name (braces and
 * commas do not count), and the element's row-major index. Scaled by the input's shape:
 * ds_exec_generated_scale. Integers are drawn from 0 .. range-1. */
double ds_exec_generated(uint64_t seed, const char *name, int64_t element);
/* sqrt(3 / fan): a product with a generated matrix keeps the size of what it multiplies. fan: dim 0
 * of 2 dims, dim 1 of 3, the product of dims 1.. of more; 1 below 2 dims gives scale 1. */
double ds_exec_generated_scale(uint32_t rank, const int64_t *dims);
/* The range that an integer argument of `func` is drawn from by what it indexes, or by its
 * attribute `range`: *below is 0 where neither says anything. O(ops that it reaches). */
ds_status ds_exec_input_range(const ds_binding *binding, const ds_func *func, ds_value value,
                              int64_t *below, ds_error *err);

/* ---- comparison ---- */

/* Two sums of the same terms in other orders differ by roundings. */
#define DS_EXEC_BOUND 1e-9
/* Some five roundings of a double: a result that differs by less than this part of the largest
 * result of the run is equal, however small it is itself. */
#define DS_EXEC_FLOOR 1e-15

typedef struct ds_exec_pair {
    const ds_exec_tensor *a, *b; /* b NULL: nothing to compare with; a NULL likewise */
    bool by_name;                /* else by position */
    bool same_shape;
    double max_a, max_difference; /* max|a|, max|a-b|; infinite where one is not a number */
    int64_t at;                   /* the element of max_difference */
    bool
        equal; /* same shape, and max|a-b| <= bound max|a| or within DS_EXEC_FLOOR of the largest */
} ds_exec_pair;

typedef struct ds_exec_pairs {
    ds_exec_pair *at; /* heap */
    uint32_t n, cap;
} ds_exec_pairs;

typedef struct ds_exec_comparison {
    ds_exec_pairs outputs;
    ds_exec_pairs inputs; /* by name; same_shape and presence count, not values */
    bool equal;           /* all outputs are paired and equal */
    bool same_inputs;
} ds_exec_comparison;

/* Outputs are paired by name, what is left by position if both sides have as many left. The results
 * must outlive the comparison. O(elements + names^2). */
void ds_exec_compare(const ds_exec_result *a, const ds_exec_result *b, double bound,
                     ds_exec_comparison *out);
void ds_exec_comparison_deinit(ds_exec_comparison *comparison);

#endif
