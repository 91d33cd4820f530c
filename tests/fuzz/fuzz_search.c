/* Programs through search: PaSE and TAP, their costs and the simulator's, with and without
 * simulation of what is found. The first byte chooses, the others edit the program. */
#include "tests/fuzz/support.h"

static const char *const programs[] = {
    "dir 1\n"
    "param layers = 2, hidden = 8, batch = 4\n"
    "func @mlp(%x: f32[batch@dp, hidden@tp]) -> f32[batch@dp, hidden@tp] {\n"
    "  %y = for l in 0..layers carry (%h: f32[batch@dp, hidden@tp] = %x) {\n"
    "    weight %w : f32[hidden@tp, hidden]\n"
    "    %z = matmul(%h, %w) : f32[batch@dp, hidden@tp]\n"
    "    %a = relu(%z) : f32[batch@dp, hidden@tp]\n"
    "    yield %a\n"
    "  } : f32[batch@dp, hidden@tp]\n"
    "  return %y\n"
    "}\n",
    "dir 1\n"
    "param hidden = 8, batch = 4\n"
    "func @net(%x: f32[batch, hidden]) -> f32[batch, 4] {\n"
    "  weight %w : f32[hidden, 16]\n"
    "  weight %v : f32[16, 4]\n"
    "  %a = matmul(%x, %w) : f32[batch, 16]\n"
    "  %b = gelu(%a) : f32[batch, 16]\n"
    "  %c = matmul(%b, %v) : f32[batch, 4]\n"
    "  %d = softmax(%c) {dim = 1} : f32[batch, 4]\n"
    "  %e = add(%c, %d) : f32[batch, 4]\n"
    "  return %e\n"
    "}\n"};
static const char *const names[] = {"mlp", "net"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0};
    uint8_t how = fuzz_byte(&bytes);
    bool untouched = !bytes.n;
    bool tap = how & 2;
    ds_buf_put(&text, programs[how % 2]);
    ds_buf_printf(&text,
                  "topology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n  switch sw\n"
                  "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..2\n}\n"
                  "scenario {\n  model = @%s\n  on = @box\n"
                  "  train { loss = mse, optimizer = sgd }\n  strategy { dp = 2 }\n}\n",
                  names[how % 2]);
    fuzz_edit(&bytes, " ,;{}[]()=\"@", &text);
    const char *words[16] = {fuzz_write("program.dir", text.text, text.n), "--database",
                             fuzz_profiles(), tap ? "--method=tap" : "--method=pase"};
    uint32_t n = 4;
    if (how & 4) words[n++] = "--cost-model=distsim";
    if (how & 8) words[n++] = "--simulate";
    if (how & 16) words[n++] = "--json";
    if (how & 32) words[n++] = "--alike";
    if (how & 64) words[n++] = "--devices=4";
    if (how & 128) words[n++] = tap ? "--meshes" : "--order=breadth-first";
    int exit_code = fuzz_verb(cmd_search, words);
    if (untouched && how < 4 && exit_code != 0) fuzz_fail("the program is refused", text.text);
    ds_buf_deinit(&text);
    return 0;
}
