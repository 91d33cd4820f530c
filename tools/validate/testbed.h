/* What a table of measurements does not repeat in every row: the machine, its framework, and what
 * the source says once for all of its runs.
 *
 * A testbed is a device, a fabric and a framework. Its measured and fitted constants are one
 * profile of cost_profiles/; nothing here or there belongs to a model or a row. */
#ifndef DS_VALIDATE_TESTBED_H
#define DS_VALIDATE_TESTBED_H

#include "tools/validate/row.h"

#include <string.h>

/* Which model of the library a row is, if it is none of tools/validate/zoo.h. */
typedef enum val_model {
    VAL_GPT,       /* models/megatron.dir: GPT with the core of attention written out */
    VAL_GPT_FLASH, /* models/gpt.dir: GPT with fused attention */
    VAL_LLAMA,     /* models/llama.dir */
    VAL_BERT,      /* models/bert.dir */
    VAL_TRANSGAN,  /* models/transgan.dir: its dims are those of the one published model */
    VAL_MODELS
} val_model;

/* The profile of a testbed without measurements: the generic profile of the device. */
#define VAL_GENERIC "generic"

typedef struct val_testbed {
    const char *source;  /* source_id is it, or a member of it: "alpa_e2e" of "alpa" */
    const char *gpu;     /* the cell gpu begins with that word, without case; the longest counts */
    int64_t since;       /* rows of a release from it on (val_row.release); the latest counts */
    const char *set;     /* name in the ledger */
    const char *profile; /* of cost_profiles; NULL: catalogue peaks */
    const char *device;  /* for times: the same chip that the profile is of; NULL: the row's */
    val_model model;
    int64_t nvlink_gb_per_s; /* a GPU, each way */
    int64_t domain;          /* GPUs on it, where the row says no gpus_per_node; 0: not known */
    int64_t pcie_gb_per_s;   /* between a GPU and its NIC; 0: 31, PCIe 4 */
    int64_t nics;            /* a node; 0: one a GPU */
    int64_t nic_mb_per_s;    /* a NIC, each way */
    /* What the source says once, or its framework does where nothing is said; 0, NULL: nothing. */
    int64_t layers, hidden, vocab, heads, seq;
    int64_t zero; /* stage + 1 */
    const char *recompute, *precision;
    const char *framework;    /* the scenario's word; NULL: none, all settings are stated here */
    const char *kernels;      /* the scenario's word; NULL: the framework's */
    const char *loss_kernels; /* the scenario's word; NULL: as kernels */
    const char *norm_kernels; /* the same */
    const char *attention_kernel; /* with a generic profile; NULL: the stack's */
    bool graphs;                  /* the recipes record kernels as CUDA graphs */
    const char *grad_dtype;       /* in which gradients are summed; NULL: the framework's */
    bool narrow;                  /* the profile has products of 8 bits */
    bool sp;                      /* with tp > 1 what lies between its regions is split too */
    /* strategy.tp_overlap with products of 16 and of 8 bits; NULL: none. */
    const char *tp_overlap, *narrow_tp_overlap;
    bool whole_vocab; /* the vocabulary is padded for tp > 1 only */
    bool late_reduce; /* gradients are reduced after the backward pass */
    const char *p2p; /* strategy.p2p of the pipeline; NULL: as distsim does where nothing is said */
    const char *tied_dtype; /* strategy.tied_dtype of pipelines; NULL: the gradients' */
    bool untied;            /* VAL_GPT: the head has a table of its own */
    bool own_dims;          /* the testbed's vocabulary and heads hold, whatever the row says */
    bool parts;  /* stages send each shard of a layer a part, which is gathered on arrival */
    bool uneven; /* ZeRO 1 cuts a flat buffer: parts need not divide */
    const char *reshard; /* of zero = 3: strategy.reshard_after_forward; NULL: as the framework */
    bool fsdp;  /* SHARD_GRAD_OP (zero = 2) too gathers weights in the forward pass, as zero = 3 */
    bool tunes; /* microbatch sizes that rows do not say were chosen for speed */
    bool plans; /* layouts that rows do not say were found by a planner, for speed */
    int64_t
        chunks; /* where the row does not say, stages have as many as is fastest, up to so many */
    /* Gathers of zero = 1 run beside the next forward pass: in time as all-reduces beside the
     * backward pass, which move the same bytes. */
    bool gathers_ahead;
    /* Rows were made by published recipes, whose memory is asked for by itself: the stack's saved
     * tensors, gradients of 16 bits, recomputed modules (recipe.h). */
    bool recipes;
    const char *basis;
    const char *without; /* terms of the cost model that do not count; NULL: none */
} val_testbed;

/* The testbed of a row; NULL if none is known. */
const val_testbed *val_testbed_of(const val_row *row);
/* The name of the set that a row belongs to: its testbed's, else the file's name without folder,
 * "e2e_" and ".csv". */
const char *val_set_of(const val_row *row, const char *file, char *room, size_t n);
/* Does the generic profile of the device's kind stand for the testbed? */
static inline bool val_testbed_is_generic(const val_testbed *testbed) {
    return testbed->profile && strcmp(testbed->profile, VAL_GENERIC) == 0;
}
/* Fills what the row leaves blank. */
void val_testbed_complete(const val_testbed *testbed, val_row *row);

/* Testbeds from Hopper on, which have a table of their own (testbed_recent.c). */
extern const val_testbed val_recent_testbeds[];
extern const size_t val_n_recent_testbeds;

#endif
