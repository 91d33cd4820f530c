/* `distsim profile import` of all formats, and a database built of what it wrote.
 *
 * The first byte chooses the format and whether the folder has a profile already, the others edit
 * the file (0x80: they are the file). What must hold: what import takes, build takes. */
#include "tests/fuzz/support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ops[] = "class,op,dtype,batch,m,n,k,heads,kv_heads,seq_q,seq_kv,head_dim,causal,"
                          "tokens,width,time_us\n"
                          "gemm,gemm,bf16,1,512,1024,2048,,,,,,,,,31.5\n"
                          "attention,attention,f16,2,,,,32,8,4096,4096,128,1,,,800\n"
                          "memory,gelu,f32,,,,,,,,,,,8192,16384,50.5\n";
static const char collectives[] = "collective,group_size,size_bytes,time_ms\n"
                                  "all_reduce,8,1048576,0.07014\n"
                                  "permute,2,4096,0.009\n";

/* A file of each format, and where its cells end. */
static struct {
    const char *format, *path, *separators;
    ds_buf text;
} forms[] = {{"csv", NULL, ",", {0}},
             {"csv", NULL, ",", {0}},
             {"nccl", "tests/data/profile/all_reduce.log", " ", {0}},
             {"kineto", "tests/data/profile/trace.json", " ,:{}[]", {0}},
             {"kineto", "tests/data/profile/trace_flash.json", " ,:{}[]", {0}},
             {"nsys", "tests/data/profile/kernels.csv", ",", {0}}};

static void read_forms(void) {
    if (forms[0].text.n) return;
    ds_buf_put(&forms[0].text, ops);
    ds_buf_put(&forms[1].text, collectives);
    for (uint32_t i = 2; i < FUZZ_COUNT(forms); i++)
        fuzz_read_lines(forms[i].path, 0, 0, 1000, &forms[i].text);
}

static const char profile_csv[] = "name,device,issue_us,software,source\n"
                                  "mine,A100-SXM4-80GB,3.5,test,seen\n";
static const char sources_csv[] = "key,title,place,revision,licence\nseen,t,p,,MIT\n";
static const char old_csv[] = "collective,group_size,size_bytes,time_us,source\n"
                              "all_reduce,4,1024,5,seen\n";
static const char *const files[] = {"profile.csv", "sources.csv", "ops.csv", "collectives.csv"};

/* The folder of a profile is the process's own: as it was before each input. */
static void reset(bool has_profile) {
    for (uint32_t i = 0; i < FUZZ_COUNT(files); i++) unlink(fuzz_path(files[i]));
    if (!has_profile) return;
    fuzz_write("profile.csv", profile_csv, sizeof profile_csv - 1);
    fuzz_write("sources.csv", sources_csv, sizeof sources_csv - 1);
    fuzz_write("collectives.csv", old_csv, sizeof old_csv - 1);
}

/* `show` and `fit` of the folder's files need not work, but they end. */
static void use(const char *folder) {
    const char *const fit[] = {"fit", folder, NULL};
    fuzz_verb(cmd_profile, fit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0}, shapes = {0};
    read_forms();
    uint8_t how = fuzz_byte(&bytes);
    uint32_t i = how % 8 % FUZZ_COUNT(forms);
    reset(how & 8);
    ds_buf_put_n(&text, forms[i].text.text, forms[i].text.n);
    fuzz_read_lines("tests/data/profile/kernel_shapes.csv", 0, 0, 100, &shapes);
    bool untouched = !bytes.n && !(how & 128);
    if (how & 128) {
        text.n = 0;
        if (bytes.n) ds_buf_put_n(&text, (const char *)bytes.at, bytes.n);
    } else {
        fuzz_edit(&bytes, forms[i].separators, how & 16 && i == 5 ? &shapes : &text);
    }
    char *folder = strdup(fuzz_path("profile.csv"));
    *strrchr(folder, '/') = '\0';
    const char *const words[] = {"import",
                                 fuzz_write("input", text.text, text.n),
                                 "-o",
                                 folder,
                                 "--format",
                                 forms[i].format,
                                 "--database",
                                 fuzz_profiles(),
                                 "--device=A100-SXM4-80GB",
                                 "--shapes",
                                 fuzz_write("shapes.csv", shapes.text, shapes.n),
                                 how & 32 ? "--group=4" : NULL,
                                 NULL};
    int exit_code = fuzz_verb(cmd_profile, words);
    if (untouched && exit_code != 0) fuzz_fail("the file is refused", text.text);
    if (exit_code == 0) use(folder);
    free(folder);
    ds_buf_deinit(&text);
    ds_buf_deinit(&shapes);
    return 0;
}
