/* Tables of measured collectives beside predictions. The first byte chooses the topology, whether
 * there is a profile, and what is edited: the table, or the topology's links too. */
#include "tests/fuzz/support.h"

static const char table[] = "collective,group_size,size_bytes,time_us,split,devices\n"
                            "all_reduce,4,1048576,70.14,fit,\n"
                            "all_gather,2,2097152,116,held,0 3\n"
                            "reduce_scatter,4,1024,12.5,aux,0-3\n"
                            "all_to_all,4,65536,31,fit,0-1 2-3\n"
                            "broadcast,3,4096,9.5,fit,1-3\n"
                            "reduce,2,8388608,1e3,fit,\n"
                            "send,2,256,5,held,0 2\n"
                            "scatter,4,1000,8,fit,\n"
                            "gather,4,1000,8,fit,\n"
                            "permute,4,1000,8,fit,\n";

static const char *const topologies[] = {
    "dir 1\ntopology @star {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..4\n}\n",
    "dir 1\ntopology @ring {\n  device gpu[4] : \"A100-SXM4-80GB\" {forward = true}\n"
    "  link gpu[i] -- gpu[(i + 1) % 4] : 25 GB/s, 700 ns for i in 0..4\n}\n",
    "dir 1\ntopology @node {\n  device gpu[2] : \"A100-SXM4-80GB\"\n  switch sw\n  nic nic\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..2\n  link sw -- nic : 12.5 GB/s, 2 us\n}\n"
    "topology @two {\n  node node[2] : @node\n  switch leaf\n"
    "  link node[i].nic -- leaf : 12.5 GB/s, 1500 ns for i in 0..2\n}\n"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0}, links = {0};
    uint8_t how = fuzz_byte(&bytes);
    ds_buf_put(&links, topologies[how % 4 % FUZZ_COUNT(topologies)]);
    ds_buf_put(&text, table);
    if (how & 32) {
        fuzz_bytes some = {bytes.at, bytes.n / 2};
        fuzz_edit(&some, " ,;{}[]:\"", &links);
        bytes = (fuzz_bytes){bytes.at + bytes.n / 2, bytes.n - bytes.n / 2};
    }
    bool untouched = !bytes.n && !(how & 32);
    fuzz_edit(&bytes, ",", &text);
    const char *const words[] = {fuzz_write("topology.dir", links.text, links.n),
                                 fuzz_write("table.csv", text.text, text.n),
                                 "--database",
                                 fuzz_profiles(),
                                 how & 64 ? "--profile=A100-SXM4-80GB" : NULL,
                                 NULL};
    int exit_code = fuzz_verb(cmd_collectives, words);
    if (untouched && exit_code != 0) fuzz_fail("the table is refused", text.text);
    ds_buf_deinit(&links);
    ds_buf_deinit(&text);
    return 0;
}
