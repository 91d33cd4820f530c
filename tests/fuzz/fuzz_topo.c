/* Any bytes through the importers of topologies: no crash, no leak, no hang; and what they write
 * parses, verifies, is canonical and builds, and comes back from GraphML with as many vertices and
 * links. A first byte of '<' is XML: GraphML if it says so, else NCCL's; all else is a table. */
#include "ir/import/import.h"
#include "tests/fuzz/support.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    ds_import_options options = {.source = "fuzz", .device = size % 2 ? "A100-SXM4-80GB" : NULL};
    ds_buf text = {0};
    ds_error err = {0};
    ds_status status;
    bool graphml = false;
    for (size_t i = 0; i + 8 <= size && i < 200; i++)
        graphml |= memcmp(bytes + i, "<graphml", 8) == 0;
    if (graphml)
        status = ds_import_graphml(bytes, size, &options, &text, &err);
    else if (size && data[0] == '<')
        status = ds_import_nccl_topo(bytes, size, &options, &text, &err);
    else
        status = ds_import_nvidia_smi(bytes, size, &options, &text, &err);
    if (status == DS_OK) fuzz_check_topology(&text);
    ds_buf_deinit(&text);
    return 0;
}
