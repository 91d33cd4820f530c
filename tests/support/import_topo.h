/* Topologies of other tools for tests: imported, parsed, verified, canonical, built. */
#ifndef DS_TESTS_IMPORT_TOPO_H
#define DS_TESTS_IMPORT_TOPO_H

#include "ir/import/import.h"
#include "tests/support/generate/topo_text.h"

/* Imports a text and builds what came out; appends the written file to `text` if it is not NULL. A
 * failure of any step ends the test. */
topo_text import_topo(ds_importer *importer, const char *input, const ds_import_options *options,
                      ds_buf *text);
/* The same of a file of tests/data/topo. */
topo_text import_topo_file(ds_importer *importer, const char *name,
                           const ds_import_options *options, ds_buf *text);

/* What one long transfer alone gets on a route, in bytes/s: the least of capacity / share. */
double route_rate(const ds_topo *topo, const ds_route *route);
/* By device numbers; an unreachable pair ends the test. */
const ds_route *device_route(ds_topo *topo, uint32_t from, uint32_t to);

#endif
