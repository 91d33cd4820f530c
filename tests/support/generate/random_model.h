/* Random small models with their strategies, as records: so that a failing one can be made smaller.
 *
 * A model takes ids or numbers to [batch, seq, hidden], passes them through parts (plain, loops,
 * functions that are called, loops of calls, loops in loops) of blocks (products, attention,
 * experts, norms, …), and ends in a loss. Weights and values carry hints: none, those that the
 * field would write, or any. */
#ifndef DS_TEST_RANDOM_MODEL_H
#define DS_TEST_RANDOM_MODEL_H

#include "tests/support/plan.h"

typedef enum block_kind {
    BLOCK_ACTIVATION, /* the simplest: what others shrink to */
    BLOCK_LINEAR,
    BLOCK_FFN,
    BLOCK_NORM,
    BLOCK_ATTENTION,
    BLOCK_MOE,
    BLOCK_DROPOUT,
    BLOCK_SCALE,
    BLOCK_GATE, /* a product or sum with a weight of lower rank */
    BLOCK_SOFTMAX,
    BLOCK_MIX,    /* a product over positions */
    BLOCK_HALVES, /* split and concat */
    BLOCK_SHIFT,  /* slice and pad along the sequence */
    BLOCK_POOL,   /* mean or maximum over the sequence, added again */
    BLOCK_TIED,   /* through the table and back */
    BLOCK_LSTM,
    BLOCK_EINSUM, /* three operands */
    BLOCK_FLAT,   /* batch and sequence as one dim */
    BLOCK_KINDS
} block_kind;

/* Hints: 0 none, 1 those of Megatron, else the seed of random ones. */
typedef struct random_block {
    uint8_t kind;
    uint8_t variant; /* bits: residual, bias, causal, …: what they say depends on the kind */
    uint32_t weights, values;
} random_block;

typedef enum part_form {
    PART_PLAIN,
    PART_LOOP,
    PART_SHARED, /* a loop over blocks whose weights are declared outside */
    PART_NEST,
    PART_CALL, /* called `turns` times, with other weights each time */
    PART_LOOP_CALL,
    PART_FORMS
} part_form;

#define MAX_PARTS  3u
#define MAX_BLOCKS 3u

typedef struct random_part {
    uint8_t form, turns, n;
    uint32_t values; /* hints of the carry or argument */
    random_block blocks[MAX_BLOCKS];
} random_part;

typedef enum model_size {
    SIZE_BATCH,
    SIZE_SEQ,
    SIZE_HIDDEN,
    SIZE_HEADS, /* of keys; there are `group` times as many of queries */
    SIZE_GROUP,
    SIZE_HEAD_DIM,
    SIZE_FFN,
    SIZE_VOCAB,
    SIZE_EXPERTS,
    SIZE_TOP,
    SIZE_CHUNKS, /* of a sequence; 1 if they do not divide it */
    SIZE_COUNT
} model_size;

typedef enum model_loss {
    LOSS_SQUARES, /* mean of the squares */
    LOSS_MSE,
    LOSS_TRAIN, /* train { loss = mse } */
    LOSS_CROSS_ENTROPY,
    LOSS_TIED, /* the table is the head too */
    LOSS_KINDS
} model_loss;

typedef struct random_model {
    uint64_t seed;
    int size[SIZE_COUNT];
    uint8_t n_parts, loss;
    bool ids;       /* the input is looked up in a table, else numbers */
    bool extra;     /* a second result */
    bool half;      /* train { dtype = bf16 }: casts, master weights */
    uint32_t hints; /* of inputs, table and head */
    random_part parts[MAX_PARTS];
    test_plan plan;
} random_model;

/* The same seed gives the same model. */
random_model random_model_of(uint64_t seed);
void random_model_print(const random_model *m, ds_buf *out);
uint32_t random_model_blocks(const random_model *m);

/* Does the property fail for it? */
typedef bool (*model_fails)(void *context, const random_model *m);
/* A model that fails and of which no single part, block, hint, knob or size can be made simpler
 * without it ceasing to fail. `m` fails. Returns how many were tried. */
uint32_t random_model_shrink(random_model *m, model_fails fails, void *context);

#endif
