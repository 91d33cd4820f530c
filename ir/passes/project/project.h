/* project: a sharded program as one body per rank (SEMANTICS L7).
 *
 * Every value becomes the box of it that the rank's device holds, every collective over mesh axes
 * one of the rank's group, every send between places a send and a recv. Local regions and calls
 * dissolve; loops stay, unless what a rank does differs from turn to turn. */
#ifndef DS_PASSES_PROJECT_PROJECT_H
#define DS_PASSES_PROJECT_PROJECT_H

#include "ir/core/ir.h"

/* What a rank returns, as a part of what the program returned. */
typedef struct ds_project_output {
    const char *name;      /* of the program's result, as exec calls it: "loss", "w{3}" */
    const char *rank_name; /* of the rank's result: "rank1.loss" */
    int64_t rank;
    uint32_t n_dims;
    int64_t lo[DS_MAX_RANK], dims[DS_MAX_RANK], full[DS_MAX_RANK]; /* the box, in what */
    bool first;   /* no rank before it holds the same: parts that are first make up the whole */
    bool partial; /* a term: of a maximum if `max`, else of a sum */
    bool max;
} ds_project_output;

typedef DS_VEC(ds_project_output) ds_project_outputs;

/* The scenario's program of a verified and bound unit, projected into a unit of its own, which is
 * verified. Rank i is the i-th device of the scenario's mesh, or, where the program is on devices
 * outside of it or there is no mesh, of the topology. Params are put in as numbers. `outputs` (may
 * be NULL) is in the new unit's arena. Free *out with ds_unit_free; NULL on error.
 * Errors: DS_ERR_UNSUPPORTED with the place in the source, where ranks cannot say what the program
 * does (partial inputs, collectives of unequal shards, masks that depend on a device's place);
 * DS_ERR_VALUE, DS_ERR_LIMIT. O(ranks × size of the text), loops unrolled where they have to be. */
ds_status ds_project_program(const ds_binding *source, ds_unit **out, ds_project_outputs *outputs,
                             ds_error *err);

#endif
