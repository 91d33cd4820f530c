/* Any bytes through the importers, Hugging Face and ONNX: no crash, no leak, no hang; and what they
 * write parses, verifies and is canonical. A first byte of '{' is a config, all else a model. */
#include "ir/import/import.h"
#include "tests/fuzz/support.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool is_hf = size && data[0] == '{';
    ds_import_options hf = {.source = "fuzz.json",
                            .on_file = "topologies/dgx-a100.dir",
                            .on_name = "dgx_a100",
                            .path = DS_SOURCE_DIR "/scenarios/fuzz.dir"};
    ds_import_options onnx = {.source = "fuzz.onnx"};
    ds_buf text = {0};
    ds_error err;
    ds_status status = is_hf ? ds_import_hf((const char *)data, size, &hf, &text, &err)
                             : ds_import_onnx((const char *)data, size, &onnx, &text, &err);
    if (status == DS_OK) fuzz_check_program(&text, is_hf);
    ds_buf_deinit(&text);
    return 0;
}
