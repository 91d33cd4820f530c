/* What the costs of an operation, of a tensor and of a whole model share: costs.c, costs_ops.c,
 * costs_moves.c. */
#ifndef DS_PASE_COSTS_INTERNAL_H
#define DS_PASE_COSTS_INTERNAL_H

#include "search/pase/costs.h"
#include "search/pase/groups.h"
#include "search/pase/internal.h"

/* How a tensor lies under a configuration of one end. */
typedef struct ds_pase_layout {
    uint32_t parts[DS_MAX_RANK], stride[DS_MAX_RANK];
} ds_pase_layout;

/* What devices lack of a tensor that lies as `have`, and where they get it. */
typedef struct ds_pase_move {
    ds_pase_layout want, have; /* without dims that are whole on both sides */
    uint32_t rank;
    double lacking;  /* a share of the tensor, of the device that lacks most */
    uint32_t within; /* the fewest consecutive devices that together have all they want */
    const ds_pase_curve *exchange; /* that brings it; NULL: none lacks anything */
    double sent;                   /* the share of the tensor that is the collective's size */
    double last_bytes, last_us;    /* the same tensor moves alike between many pairs of splits */
} ds_pase_move;

typedef struct ds_pase_costs {
    ds_pase_model base;
    const ds_model_step *step;
    const ds_profiles *profiles;
    ds_topo *topo;
    uint32_t kind, profile;
    ds_pase_groups groups;
    double looks;                   /* at parts of devices, for all ways between layouts */
    uint32_t *seen, now;            /* [devices]: which parts are seen already */
    double batches;                 /* microbatches of a step, each as large as the graph is */
    double updates_us;              /* of all weights, none of them split */
    double exposed;                 /* share of the weights' reductions that counts, */
    double again;                   /* and of what is moved again for backward ops */
    DS_VEC(ds_pase_layout) layouts; /* heap, as the next */
    ds_map known_layouts;           /* hash → layouts */
    DS_VEC(ds_pase_move) moves;
    ds_map known_moves; /* hash of two layouts without dims that are whole in both → moves */
    ds_map known_ways;  /* numbers of two layouts → moves from the first and back, packed */
} ds_pase_costs;

/* ---- costs_ops.c: what one device does. Microseconds are added to *sum. ---- */

/* The op reads and writes a tensor so often, with a few operations an element. */
typedef struct ds_pase_stream {
    const char *op;
    int64_t reads, writes;
} ds_pase_stream;

double ds_pase__bytes_of(const ds_shape *shape);
ds_status ds_pase__op_us(const ds_pase_costs *m, const char *name, const ds_work *work, ds_loc loc,
                         double *sum, ds_error *err);
ds_status ds_pase__memory_us(const ds_pase_costs *m, ds_pase_stream s, const ds_shape *shape,
                             ds_loc loc, double *sum, ds_error *err);
/* What the op's backward ops do, operand by operand: a product with two of its dims exchanged; for
 * all else one op that reads what the op made too, with twice its arithmetic. share[operand]: how
 * many of the turns that the node stands for want its gradient, 0 … 1. *last: of a product, what
 * it does for the second operand, after the first. */
ds_status ds_pase__backward_us(const ds_pase_costs *m, const ds_pase_node *node,
                               const ds_work *work, const double *share, double *sum, double *last,
                               ds_error *err);
/* Casts of what the node makes, and of its gradient back. */
ds_status ds_pase__casts_us(const ds_pase_costs *m, const ds_pase_node *node,
                            const ds_shape *result, bool back, double *sum, ds_error *err);
/* Bytes of a weight and its states; *narrow: beside a master copy, which the optimizer reads in its
 * place. */
double ds_pase__stays_of(const ds_pase_costs *m, const ds_shape *weight, bool *narrow);
ds_status ds_pase__update_us(const ds_pase_costs *m, const ds_shape *weight, ds_loc loc,
                             double *sum, ds_error *err);
ds_status ds_pase__all_updates_us(const ds_pase_costs *m, double *sum, ds_error *err);
/* Of a reduction that ends the backward pass: what is left when all other weights are updated. */
ds_status ds_pase__behind_updates_us(const ds_pase_costs *m, const ds_shape *weight, ds_loc loc,
                                     double *us, ds_error *err);

/* ---- costs_moves.c: where tensors lie, and what it takes to move them ---- */

/* The axes over which a tensor's parts are terms of a sum, or copies. */
ds_pase_group ds_pase__axes_without(const ds_pase_costs *m, const ds_pase_node *node,
                                    const uint16_t *split, const int8_t *axis, uint32_t rank);
ds_pase_layout ds_pase__layout_of(const ds_pase_costs *m, const ds_pase_node *node,
                                  const uint16_t *split, const int8_t *axis, uint32_t rank);
/* Equal layouts have one number: an index into m->layouts. */
uint32_t ds_pase__layout_number(ds_pase_costs *m, const ds_pase_layout *l);
/* The share of a tensor that a device holds. */
double ds_pase__part_share(const ds_pase_layout *l, uint32_t rank);
/* Microseconds for every device to get what it wants of a tensor of so many bytes, and what it had
 * of the tensor's gradient; layouts by number. */
ds_status ds_pase__moves_us(ds_pase_costs *m, uint32_t have, uint32_t want, double bytes,
                            double *forward, double *back, ds_error *err);

#endif
