/* Sufficient factors: which operations of a backward pass every replica computes whole, from gathered
 * tensors, in place of a reduction of the gradients.
 *
 * M replicas train with the same number of samples. An operation i computes its samples (x_i = 0) or
 * those of all replicas (x_i = 1). Each tensor that a whole operation reads from another one is
 * gathered, and a whole gradient needs no reduction:
 *
 *     min  sum_i ((M - 1) T_i + 1 us) x_i
 *        + sum of the gathered tensors' costs
 *        - sum_g 2 (M - 1) / M · G_g / B · x_g
 *
 * with T_i the time, S_e and G_g the bytes of one replica, and B the bandwidth. The microsecond lets
 * equal choices end in favour of fewer operations. The costs of tensors are:
 *
 *     DS_SFB_SERIAL  M (M - 1) S_e / B for each reader: TAG's, one bottleneck for all transfers
 *     DS_SFB_NICS    (M - 1) S_e / B for all readers: one all-gather, over each replica's NIC
 *
 * All costs of going from 0 to 1 are at least 0, so that the best choice is a minimum cut.
 *
 * Source: Zhang et al., arXiv:2302.06126, section on sufficient factor broadcasting; Xie et al.,
 * "Distributed machine learning via sufficient factor broadcasting", arXiv:1511.08486. TAG solves an
 * integer programme, and counts S_e in elements of the whole batch. */
#ifndef DS_RUN_SFB_H
#define DS_RUN_SFB_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/units.h"

#include <stdbool.h>

#define DS_SFB_MAX_NS    INT64_C(1000000000000000) /* of an operation */
#define DS_SFB_MAX_BYTES (INT64_C(1) << 42)        /* of a tensor, of a gradient */
#define DS_SFB_MAX_SPEED (INT64_C(1) << 32)        /* MB/s */
#define DS_SFB_MAX_M     1024u

typedef enum ds_sfb_gather { DS_SFB_SERIAL, DS_SFB_NICS } ds_sfb_gather;

typedef struct ds_sfb_op {
    int64_t time_ns;        /* T: of one replica's samples */
    int64_t gradient_bytes; /* G: the reduction that a whole operation spares; 0: none */
    bool stays;             /* x = 0: forward, or on other devices */
} ds_sfb_op;

/* A result that depends on the samples. Weights, and all else that every replica has, are not listed;
 * nor are gradients for their updates. */
typedef struct ds_sfb_tensor {
    uint32_t maker;
    uint32_t n_readers;
    const uint32_t *reader; /* none is the maker, none is twice */
    int64_t bytes;          /* S: of one replica */
} ds_sfb_tensor;

typedef struct ds_sfb_problem {
    uint32_t n_replicas; /* M */
    int64_t mb_per_s;    /* B, in 10^6 bytes */
    ds_sfb_gather gather;
    uint32_t n_ops, n_tensors;
    const ds_sfb_op *op;
    const ds_sfb_tensor *tensor;
} ds_sfb_problem;

typedef struct ds_sfb_choice {
    bool *is_whole; /* [n_ops], x, in the arena; of equal choices the least set */
    uint32_t n_whole;
    ds_i128 cost;   /* against x = 0, in ns / (M · B), exact; at most 0 */
    double cost_us; /* the same */
    /* over the network, by all replicas: M (M - 1) S_e gathered, 2 (M - 1) G_g not reduced */
    int64_t gathered_bytes, spared_bytes;
} ds_sfb_choice;

/* The best choice. All costs are whole numbers of ns / (M · B). Errors: VALUE (numbers out of range);
 * LIMIT if the costs are beyond 2^53 times their greatest common divisor: times in whole microseconds
 * have a thousand times the room. One maximum flow. */
ds_status ds_sfb_choose(const ds_sfb_problem *problem, ds_arena *arena, ds_sfb_choice *out,
                        ds_error *err);

#endif
