/* project: a sharded program as one body per rank.
 *
 * Every value becomes the box that the rank's device holds, every collective over mesh axes becomes
 * a collective of the rank's group, every send between places becomes a send and a recv. Local
 * regions and calls dissolve; a loop stays, unless the rank's work differs from turn to turn. */
#ifndef DS_PASSES_PROJECT_PROJECT_H
#define DS_PASSES_PROJECT_PROJECT_H

#include "ir/core/ir.h"

/* A rank's result, as a part of the program's result. */
typedef struct ds_project_output {
    const char *name;      /* of the program's result, as exec names results: "loss", "w{3}" */
    const char *rank_name; /* of the rank's result: "rank1.loss" */
    int64_t rank;
    uint32_t n_dims;
    int64_t lo[DS_MAX_RANK], dims[DS_MAX_RANK], full[DS_MAX_RANK]; /* the box, and the whole */
    bool first;   /* no earlier rank holds the same part: first parts make up the whole */
    bool partial; /* a term: of a maximum if `max`, else of a sum */
    bool max;
} ds_project_output;

typedef DS_VEC(ds_project_output) ds_project_outputs;

/* Projects the scenario's program of a verified and bound unit into a new unit, and verifies the
 * new unit. Rank i is the i-th device of the scenario's mesh. Without a mesh, or if the program
 * uses devices outside of the mesh, rank i is the i-th device of the topology. Numbers replace
 * params. `outputs` (may be NULL) is in the new unit's arena. Free *out with ds_unit_free; NULL on
 * error.
 * Errors: DS_ERR_UNSUPPORTED with the place in the source, if ranks cannot express the program
 * (partial inputs, collectives of unequal shards, masks that depend on a device's place);
 * DS_ERR_VALUE, DS_ERR_LIMIT. O(ranks × size of the text), with the loops that must be unrolled. */
ds_status ds_project_program(const ds_binding *source, ds_unit **out, ds_project_outputs *outputs,
                             ds_error *err);

#endif
