/* Traces of PyTorch's profiler (Kineto, Chrome's JSON) as measured operations. */
#ifndef DS_IMPORT_KINETO_H
#define DS_IMPORT_KINETO_H

#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdint.h>

typedef struct ds_kineto_counts {
    uint32_t kernels;        /* in the trace */
    uint32_t taken;          /* operators with their kernels, a row each */
    double taken_us, all_us; /* kernel time of those, of all */
    char device[64];         /* the first one's name, as the trace has it; empty: it does not say */
} ds_kineto_counts;

/* The columns of the rows, as in cost_profiles' ops.csv without its source. */
#define DS_KINETO_COLUMNS                                                                          \
    "class,op,dtype,batch,m,n,k,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tokens,width,time_us"

/* Appends one CSV row an operator (category cpu_op) whose shapes were recorded
 * (torch.profiler.profile(record_shapes=True)) and that is known here: mm, addmm, bmm, baddbmm,
 * scaled dot product attention, norms, softmax, activations, add and mul, forward ones. Its time is
 * the sum of the kernels that name its external id, so of those that it launched itself; where
 * several operators have one id, of the one that starts last, the innermost. Fused attention
 * launches in the inner operator (_flash_attention_forward and so on, of [batch, seq, heads, dim]);
 * whether it is causal is read from "Concrete Inputs" where they were recorded, and taken for
 * granted otherwise where lengths are equal.
 * Errors: DS_ERR_IO, DS_ERR_DATA (no JSON, no traceEvents, no kernels), DS_ERR_LIMIT over 1 GiB.
 * O(events log events). Format: pytorch/kineto libkineto/src/output_json.cpp. */
ds_status ds_import_kineto(const char *path, ds_buf *rows, ds_kineto_counts *counts, ds_error *err);

#endif
