/* Models and topologies through plan, one candidate or three. The first byte chooses the objective,
 * the method and what the others edit, the model or the topology. */
#include "tests/fuzz/support.h"

static const char model[] = "dir 1\n"
                            "param layers = 1, hidden = 64, batch = 2\n"
                            "func @mlp(%x: bf16[batch@dp, hidden]) -> bf16[batch@dp, hidden] {\n"
                            "  %y = for l in 0..layers carry (%h: bf16[batch@dp, hidden] = %x) {\n"
                            "    weight %w : bf16[hidden, hidden]\n"
                            "    %z = matmul(%h, %w) : bf16[batch@dp, hidden]\n"
                            "    yield %z\n"
                            "  } : bf16[batch@dp, hidden]\n"
                            "  return %y\n"
                            "}\n";
static const char topology[] = "dir 1\n"
                               "topology @box {\n"
                               "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                               "  switch sw\n"
                               "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..2\n"
                               "}\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const objectives[] = {"step_time", "throughput", "memory", "mfu"};
    static const char *const methods[] = {"--method=grid",  "--method=random", "--method=beam",
                                          "--method=bound", "--method=anneal", "--method=mcmc",
                                          "--top=1",        "--top=10"};
    fuzz_bytes bytes = {data, size};
    ds_buf program = {0}, links = {0};
    uint8_t how = fuzz_byte(&bytes);
    bool untouched = how == 64 && !bytes.n;
    ds_buf_put(&program, model);
    ds_buf_put(&links, topology);
    fuzz_edit(&bytes, " ,;{}[]()=\"@", how & 32 ? &links : &program);
    const char *const words[] = {fuzz_write("model.dir", program.text, program.n),
                                 "--on",
                                 fuzz_write("box.dir", links.text, links.n),
                                 how & 64 ? "--evals=3" : "--evals=1",
                                 "-t1",
                                 "--objective",
                                 objectives[how % 4],
                                 methods[how / 4 % 8],
                                 "--database",
                                 fuzz_profiles(),
                                 how & 128 ? "--write=-" : NULL,
                                 NULL};
    int exit_code = fuzz_verb(cmd_plan, words);
    if (untouched && exit_code != 0) fuzz_fail("there is no plan", program.text);
    ds_buf_deinit(&program);
    ds_buf_deinit(&links);
    return 0;
}
