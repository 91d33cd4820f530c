/* Topologies for tests, built from a text or a file under the repository root. */
#ifndef DS_TESTS_TOPO_TEXT_H
#define DS_TESTS_TOPO_TEXT_H

#include "sim/topo/topo.h"

typedef struct topo_text {
    ds_unit *unit;
    ds_binding binding;
    ds_topo *topo; /* of the last topology in the text */
} topo_text;

/* Parses, binds and builds; "dir 1" is put in front. `out` is to be freed either way. */
ds_status topo_text_try(const char *text, topo_text *out, ds_error *err);
/* The same for what must succeed: prints the error and fails the test. */
topo_text topo_text_build(const char *text);
/* From a file, e.g. "scenarios/topologies/torus.dir", with one setting "x=2" or NULL. */
topo_text topo_text_load(const char *path, const ds_setting *settings, uint32_t n_settings);
void topo_text_free(topo_text *t);

/* The vertex or device at a printed path; aborts if there is none. */
uint32_t topo_text_vertex(const topo_text *t, const char *path);
/* Route by printed paths; NULL on error. */
const ds_route *topo_text_route(const topo_text *t, const char *from, const char *to);

#endif
