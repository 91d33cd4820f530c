/* Certificates through certify: true ones, and edited ones. The first byte chooses the sweep and
 * its objective, the others edit the certificate. A true one is right; an edited one may be so. */
#include "tests/fuzz/support.h"

#include <stdio.h>

static const char program[] = "dir 1\n"
                              "param width = 64, dp = 1, z = 0\n"
                              "func @mlp(%%x: f32[8@dp, width]) -> f32[8@dp, width] {\n"
                              "  %%y = for l in 0..2 carry (%%h: f32[8@dp, width] = %%x) {\n"
                              "    weight %%w : f32[width, width]\n"
                              "    %%z = matmul(%%h, %%w) : f32[8@dp, width]\n"
                              "    yield %%z\n"
                              "  } : f32[8@dp, width]\n"
                              "  return %%y\n"
                              "}\n"
                              "topology @box {\n"
                              "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                              "  switch sw\n"
                              "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..2\n"
                              "}\n"
                              "scenario {\n"
                              "  model = @mlp\n"
                              "  on = @box\n"
                              "  train { loss = mse, optimizer = adam }\n"
                              "  strategy { dp = dp, zero = z }\n"
                              "}\n"
                              "sweep {\n"
                              "  dp in [%s]\n"
                              "  width in [%s]\n"
                              "  z in 0..%d\n"
                              "  minimize %s\n"
                              "}\n";

/* Regions of all kinds: run, rejected, bound, lacks_memory. */
static const struct {
    const char *dps, *widths, *objective;
    int zero;
} sweeps[] = {{"1", "64, 32768, 120000", "step_time", 1},
              {"1, 2", "64, 32768", "step_time", 1},
              {"2", "64", "peak_memory", 2},
              {"1, 2", "64, 120000", "peak_memory", 1}};

typedef struct made {
    const char *file;
    ds_buf certificate;
} made;

static const made *certificate_of(uint32_t i) {
    static made all[FUZZ_COUNT(sweeps)];
    made *m = &all[i];
    char name[16];
    ds_buf text = {0};
    if (m->file) return m;
    ds_buf_printf(&text, program, sweeps[i].dps, sweeps[i].widths, sweeps[i].zero,
                  sweeps[i].objective);
    snprintf(name, sizeof name, "sweep%u.dir", i);
    m->file = fuzz_write(name, text.text, text.n);
    ds_buf_deinit(&text);
    const char *const words[] = {m->file,
                                 "-q",
                                 "-t1",
                                 "--certificate",
                                 fuzz_path("made"),
                                 "--method=bound",
                                 "--database",
                                 fuzz_profiles(),
                                 NULL};
    remove(fuzz_path("made"));
    if (fuzz_verb(cmd_sweep, words) != 0) fuzz_fail("no certificate", m->file);
    fuzz_read(fuzz_path("made"), &m->certificate);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0};
    uint8_t how = fuzz_byte(&bytes);
    const made *m = certificate_of(how % FUZZ_COUNT(sweeps));
    bool untouched = !bytes.n;
    ds_buf_put_n(&text, m->certificate.text, m->certificate.n);
    fuzz_edit(&bytes, "\t", &text);
    const char *const words[] = {fuzz_write("certificate", text.text, text.n),
                                 "--database",
                                 fuzz_profiles(),
                                 how & 64 ? "--file" : NULL,
                                 m->file,
                                 NULL};
    int exit_code = fuzz_verb(cmd_certify, words);
    if (untouched && exit_code != 0) fuzz_fail("a true certificate is refused", text.text);
    ds_buf_deinit(&text);
    return 0;
}
