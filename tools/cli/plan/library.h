/* Machines and models by name: the lines of library.def. */
#ifndef DS_TOOLS_CLI_PLAN_LIBRARY_H
#define DS_TOOLS_CLI_PLAN_LIBRARY_H

#include "ir/base/str.h"
#include "sim/cost/cost.h"

typedef struct cli_machine {
    const char *name; /* scenarios/machines/NAME.dir, topology @cluster, param nodes */
    const char *gpu;  /* the catalogue's name */
    const char *what;
    int64_t gpus; /* of a node */
} cli_machine;

typedef struct cli_library_model {
    const char *name, *file, *function, *with;
    int64_t seq; /* 0: the file's own */
} cli_library_model;

/* The line of that name; NULL: none. */
const cli_library_model *cli_library_find_model(const char *name);
/* The machine of that name, else the first machine whose GPU has the name or alias `name`. Errors:
 * DS_ERR_NAME with the machines there are. */
ds_status cli_library_find_machine(const char *name, const ds_profiles *profiles,
                                   const cli_machine **out, ds_error *err);
/* A name of a model like this one; NULL: none is near. */
const char *cli_library_suggest(const char *name);
void cli_library_put_models(ds_buf *out);
void cli_library_put_machines(ds_buf *out);

#endif
