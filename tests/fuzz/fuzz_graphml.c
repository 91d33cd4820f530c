/* GraphML with edits of its elements, attributes and values; what is taken is checked as fuzz_topo
 * does it. The first byte chooses the graph. */
#include "ir/import/import.h"
#include "tests/fuzz/support.h"

static const char small[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n"
    "  <key id=\"name\" for=\"node\" attr.name=\"name\" attr.type=\"string\"/>\n"
    "  <key id=\"kind\" for=\"node\" attr.name=\"kind\" attr.type=\"string\"/>\n"
    "  <key id=\"type\" for=\"node\" attr.name=\"type\" "
    "attr.type=\"string\"><default>T4</default>\n"
    "  </key>\n"
    "  <key id=\"forward\" for=\"node\" attr.name=\"forward\" attr.type=\"boolean\"/>\n"
    "  <key id=\"reduce\" for=\"node\" attr.name=\"reduce\" attr.type=\"boolean\"/>\n"
    "  <key id=\"bw\" for=\"edge\" attr.name=\"bytes_per_s\" attr.type=\"long\"/>\n"
    "  <key id=\"lat\" for=\"edge\" attr.name=\"latency_ps\" attr.type=\"long\"/>\n"
    "  <key id=\"cap\" for=\"edge\" attr.name=\"cap_bytes_per_s\" attr.type=\"long\"/>\n"
    "  <graph id=\"small\" edgedefault=\"directed\">\n"
    "    <node id=\"v0\"><data key=\"name\">a.gpu[0]</data>\n"
    "      <data key=\"kind\">device</data>\n"
    "      <data key=\"forward\">true</data></node>\n"
    "    <node id=\"v1\"><data key=\"name\">a.gpu[1]</data>\n"
    "      <data key=\"kind\">device</data>\n"
    "      <data key=\"type\">A100-SXM4-80GB</data></node>\n"
    "    <node id=\"v2\"><data key=\"name\">a.sw</data><data key=\"kind\">switch</data>\n"
    "      <data key=\"reduce\">true</data></node>\n"
    "    <edge source=\"v0\" target=\"v2\"><data key=\"bw\">25000000000</data>\n"
    "      <data key=\"lat\">700000</data><data key=\"cap\">20000000000</data></edge>\n"
    "    <edge source=\"v2\" target=\"v0\"><data key=\"bw\">25000000000</data>\n"
    "      <data key=\"lat\">700000</data></edge>\n"
    "    <edge source=\"v1\" target=\"v2\" directed=\"false\"><data key=\"bw\">25000000000</data>\n"
    "      <data key=\"lat\">700000</data></edge>\n"
    "  </graph>\n"
    "</graphml>\n";

/* `distsim topo --graphml` of a server. */
static const ds_buf *server(void) {
    static ds_buf text;
    if (!text.n) fuzz_read_lines("tests/fuzz/corpus/topo/pcie-4xv100.graphml", 0, 0, 1000, &text);
    return &text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0}, out = {0};
    ds_error err = {0};
    uint8_t how = fuzz_byte(&bytes);
    bool untouched = !bytes.n;
    ds_import_options options = {.source = how & 2 ? "fuzz" : NULL,
                                 .device = how & 4 ? "A100-SXM4-80GB" : NULL,
                                 .topology = how & 8 ? "other" : NULL};
    if (how & 1)
        ds_buf_put_n(&text, server()->text, server()->n);
    else
        ds_buf_put(&text, small);
    fuzz_edit(&bytes, "<>\"= ", &text);
    ds_status status = ds_import_graphml(text.text, text.n, &options, &out, &err);
    if (status == DS_OK) fuzz_check_topology(&out);
    if (untouched && status != DS_OK) fuzz_fail(err.message, text.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(&out);
    return 0;
}
