/* Any bytes as launch arguments: no crash, no leak, no hang; and a scenario that they become parses,
 * verifies and is canonical. The first byte chooses the framework: 't' torchtitan, '{' DeepSpeed (with
 * a small model beside), all else Megatron-LM. */
#include "ir/import/import.h"
#include "tests/fuzz/support.h"

#include <string.h>

static const char model[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, \"hidden_size\": 64, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 128, "
    "\"vocab_size\": 512, \"max_position_embeddings\": 128}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ds_import_options options = {.source = "fuzz",
                                 .on_file = "machines/dgx-h100.dir",
                                 .on_name = "cluster",
                                 .path = DS_SOURCE_DIR "/scenarios/fuzz.dir"};
    ds_importer *import = size && data[0] == 't'   ? ds_import_torchtitan
                          : size && data[0] == '{' ? ds_import_deepspeed
                                                   : ds_import_megatron;
    ds_buf text = {0};
    ds_error err;
    if (import == ds_import_torchtitan) {
        data++;
        size--;
    }
    if (import == ds_import_deepspeed) {
        options.nodes = 2;
        options.model = model;
        options.model_n = strlen(model);
    }
    if (import((const char *)data, size, &options, &text, &err) == DS_OK)
        fuzz_check_program(&text, true);
    ds_buf_deinit(&text);
    return 0;
}
