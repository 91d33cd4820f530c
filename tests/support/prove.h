/* Is a step, sharded, still the same step? Runs all passes on a model and its strategy, executes
 * what they leave, and holds it to the step before it was sharded; with stages, to the sequential
 * one. */
#ifndef DS_TEST_PROVE_H
#define DS_TEST_PROVE_H

#include "ir/base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum proof_verdict {
    PROOF_EQUAL,     /* loss, gradients, updated weights and states are those of the step */
    PROOF_REFUSED,   /* the strategy was, with a reason */
    PROOF_UNDECIDED, /* no seed had a margin above 1e-6 */
    PROOF_WRONG      /* other numbers, an illegal program, an internal error */
} proof_verdict;

typedef struct proof_options {
    const char *settings; /* "a=1 b=2", or NULL */
    uint64_t seed;        /* the first that is tried */
    /* After every pass: the printed text parses, verifies, prints as itself and executes to the
     * same bits; after lower also the model as it was written. */
    bool texts;
    /* Gradients over microbatches are those of the whole batch: for models whose results are means
     * over samples, without dropout and statistics of a batch. */
    bool whole_batch;
    bool ranks; /* one body per rank too */
} proof_options;

typedef struct proof {
    proof_verdict verdict;
    char what[2400];   /* the reason, the difference */
    uint32_t compared; /* tensors of the sharded step */
    uint32_t zeros;    /* of these, all zero: they prove nothing */
    uint32_t rounded; /* beyond the bound, but no more than a change of all inputs by 1e-13 makes */
    bool ranks;       /* one body per rank was compared */
    uint32_t devices;
    uint32_t communications; /* collectives in the sharded text */
} proof;

/* `text` is a scenario with `model =`; imports are found as from scenarios/. */
void prove(const char *text, const proof_options *options, proof *out);
const char *proof_verdict_name(proof_verdict verdict);

#endif
