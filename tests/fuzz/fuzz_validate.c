/* Tables of published runs through validate: times, memory, and the scenario of a row.
 *
 * The first byte chooses the table and what is asked, the others edit the table: real rows, made
 * small enough that a step is simulated in a moment. */
#include "tests/fuzz/support.h"

#include <string.h>

static const char runs[] =
    "source_id,source_ref,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus,"
    "gpus_per_node,intra_link,inter_link,dp,tp,pp,cp,ep,vpp,schedule,mbs,gbs,zero_stage,"
    "seq_parallel,recompute,precision,iter_time_s,tflops_per_gpu,tflops_kind,mfu_pct,hfu_pct,"
    "tokens_per_s,samples_per_s,mem_gb,mem_kind,iter_time_derived_s,split,notes\n"
    "vtrain_single,m:1,gpt,,2,256,4,,1024,1024,128,A100,2,2,NVLink,IB,1,2,1,1,1,1,1f1b,1,2,,"
    "0,full,bf16,0.05,,,,,,,1.5,peak,,calib,a\n"
    "seqsel,m:2,gpt,,4,256,4,,1024,1024,128,A100,4,2,NVLink,IB,2,1,2,1,1,2,"
    "interleaved,1,8,1,1,selective,fp16,0.07,,,,,,,2,peak,,val,\n"
    "vtrain_single,m:3,gpt,,2,128,4,2,512,512,64,A100,1,1,,,1,1,1,,,,,2,4,3,,none,bf16,"
    ",,,,,,,OOM,,0.02,calib,\"b, c\"\n"
    "megatron_a100,m:4,Mixtral,,2,128,4,2,256,512,64,A100-80GB,2,2,,,2,1,1,1,2,1,1f1b,1,2,,,,bf16,"
    "0.03,,,,,,,,,,held,\n";
static const char mlps[] = "world_size,num_layers,batch_size,hidden_dim,measured_ms,split\n"
                           "1,1,64,64,3.74,calib\n"
                           "2,1,64,64,11.04,val\n";

/* A table of the head and one row, or all. */
static void put_table(const char *all, uint32_t row, ds_buf *out) {
    uint32_t i = 0;
    for (const char *at = all, *end; *at; at = end, i++) {
        end = strchr(at, '\n') + 1;
        if (i == 0 || row == 0 || i == row) ds_buf_put_n(out, at, (size_t)(end - at));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const asked[] = {"--scenario=2", "--ledger", "--scenario=2", "--memory",
                                        "--scenario=3", "--json",   "--scenario=2", "--memory"};
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0};
    uint8_t how = fuzz_byte(&bytes);
    bool untouched = how == 1 && !bytes.n;
    put_table(how & 8 ? mlps : runs, how >= 240 ? 0 : how / 16 % 4 + 1, &text);
    fuzz_edit(&bytes, ",", &text);
    const char *const words[] = {fuzz_write("runs.csv", text.text, text.n),
                                 "-j1",
                                 "-I" DS_SOURCE_DIR "/scenarios",
                                 "--database",
                                 fuzz_profiles(),
                                 asked[how % 8],
                                 NULL};
    int exit_code = fuzz_verb(cmd_validate, words);
    if (untouched && exit_code != 0) fuzz_fail("the table is refused", text.text);
    ds_buf_deinit(&text);
    return 0;
}
