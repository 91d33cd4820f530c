#include "tests/support/generate/spaces.h"

#include "ir/base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t pick(ds_rng *rng, uint64_t n) {
    return ds_rng_below(rng, n);
}

static void put_model(ds_rng *rng, bool gpt, int64_t batch, ds_buf *out) {
    static const int layers[] = {2, 3, 4, 6};
    int n = layers[pick(rng, 4)];
    ds_buf_printf(out, "dir 1\nparam dp = 1, tp = 1, pp = 1, mb = 1, batch = %lld\n",
                  (long long)batch);
    if (!gpt) {
        ds_buf_printf(
            out, "import \"models/mlp.dir\" as m with layers = %d, width = %d, batch = batch\n",
            n + 2, 512 << pick(rng, 4));
        return;
    }
    const char *dropout = pick(rng, 2) ? "0.1" : "0.0"; /* one after another: arguments are not */
    int vocab = 1024 << pick(rng, 3), seq = 64 << pick(rng, 3), hidden = 64 << pick(rng, 4);
    ds_buf_printf(out,
                  "import \"models/gpt.dir\" as m with layers = %d, hidden = %d, heads = 8, "
                  "seq = %d, vocab = %d, batch = batch, dropout = %s\n",
                  n, hidden, seq, vocab, dropout);
}

static void put_topology(ds_rng *rng, const char *name, int n, ds_buf *out) {
    static const char *const kinds[] = {"A100-SXM4-80GB", "V100-SXM2-16GB", "H100-SXM5-80GB"};
    static const int rates[] = {3, 25, 100, 300, 450};
    int delay = (int)pick(rng, 4), rate = rates[pick(rng, 5)];
    ds_buf_printf(out,
                  "topology @%s { device gpu[%d] : \"%s\"\n  switch s\n  host h\n"
                  "  link gpu[i] -- s : %d GB/s, %d us for i in 0..%d\n"
                  "  link gpu[i] -- h : 10 GB/s, 50 us for i in 0..%d }\n",
                  name, n, kinds[pick(rng, 3)], rate, delay, n, n);
}

static void put_sweep(ds_rng *rng, bool gpt, int64_t batch, bool memory, ds_buf *out) {
    char degrees[400], several[80];
    static const char *const tps[] = {"powers_of_two(1, world / dp)", "[1, 2, 4]"};
    const char *whole = pick(rng, 3) ? "\n  where dp * tp * pp == world" : "";
    snprintf(degrees, sizeof degrees,
             "dp in powers_of_two(1, world), tp in %s where dp * tp <= world\n"
             "  pp in powers_of_two(1, world / (dp * tp))%s",
             tps[pick(rng, 2)], whole);
    snprintf(several, sizeof several, "batch in [%lld, %lld]", (long long)batch,
             (long long)batch * 2);
    const char *all[] = {degrees,
                         "mb in powers_of_two(1, 16)",
                         "zero in [0, 1, 2, 3]",
                         gpt ? "recompute in [none, selective, full]" : "recompute in [none, full]",
                         "schedule in [\"1f1b\", gpipe, \"eager-1f1b\", interleaved, "
                         "\"breadth-first\", \"zb-h1\"]\n  where pp > 1 or schedule == \"1f1b\"",
                         gpt ? "sp in [false, true]\n  where tp > 1 or sp == 0"
                             : "optimizer in [sgd, adam]",
                         several,
                         "on in [@a, @b]",
                         "order in [\"pp dp cp tp\", \"tp dp cp pp\", \"dp tp cp pp\"]",
                         "late_reduce in [false, true]",
                         "offload in [none, activations, \"optimizer\", weights]",
                         "p2p in [overlapped, blocking]"};
    enum { N = sizeof all / sizeof *all };
    bool taken[N] = {true, true};
    for (int i = 0; i < 3; i++) taken[2 + pick(rng, N - 2)] = true;
    ds_buf_put(out, "sweep {\n");
    for (int left = N; left > 0;) {
        uint64_t i = pick(rng, N);
        if (!all[i]) continue;
        if (taken[i]) ds_buf_printf(out, "  %s\n", all[i]);
        all[i] = NULL;
        left--;
    }
    ds_buf_printf(out, "  where batch / dp >= mb\n  minimize %s subject to fits }\n",
                  memory ? "peak_memory" : "step_time");
}

static void make(uint64_t seed, ds_buf *out) {
    ds_rng rng = {seed * 1000003 + 17};
    bool gpt = pick(&rng, 2);
    int64_t batch = gpt ? 16 << pick(&rng, 3) : 256 << pick(&rng, 5);
    put_model(&rng, gpt, batch, out);
    put_topology(&rng, "a", 4 << pick(&rng, 3), out);
    put_topology(&rng, "b", 4 << pick(&rng, 3), out);
    const char *dtype = pick(&rng, 2) ? ", dtype = f16" : "";
    const char *optimizer = pick(&rng, 2) ? "adam" : "sgd";
    ds_buf_printf(out,
                  "scenario { model = @m.%s, on = @a, train { loss = %s, optimizer = %s%s }\n"
                  "  strategy { dp = dp, tp = tp, pp = pp, microbatches = mb } }\n",
                  gpt ? "gpt" : "mlp", gpt ? "none" : "mse", optimizer, dtype);
    put_sweep(&rng, gpt, batch, seed % 5 == 4, out);
}

/* ---- wide ones ---- */

static void put_nodes(ds_rng *rng, int n, ds_buf *out) {
    static const int rates[] = {3, 12, 25};
    int speed = rates[pick(rng, 3)], delay = (int)pick(rng, 3);
    ds_buf_printf(out,
                  "topology @node { device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n  nic n\n"
                  "  host h\n  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..4\n"
                  "  link gpu[i] -- n : 12 GB/s, 1 us for i in 0..4\n"
                  "  link gpu[i] -- h : 10 GB/s, 5 us for i in 0..4 }\n"
                  "topology @a { node n[%d] : @node\n  switch f\n"
                  "  link n[i].n -- f : %d GB/s, %d us for i in 0..%d }\n",
                  n, speed, delay, n);
    if (pick(rng, 4) == 0) ds_buf_put(out, "degrade n[0].gpu[1] compute = 0.7\n");
}

/* In any order but for what later ones look at. */
static void put_wide_sweep(ds_rng *rng, bool gpt, ds_buf *out) {
    const char *all[] = {
        "zero in [0, 1, 2, 3]",
        "zero_uneven in [false, true], zero in [1, 2, 3]",
        gpt ? "recompute in [none, selective, full]" : "recompute in [none, full, \"every:2\"]",
        "schedule in [\"1f1b\", gpipe, \"eager-1f1b\", \"zb-h1\", \"zb-h2\", \"zb-v\", \"v-half\", "
        "\"v-min\"]\n  where pp > 1 or schedule == \"1f1b\"",
        "schedule in [interleaved, \"breadth-first\"], virtual_stages in [1, 2, 3]\n  where pp > 1 "
        "or virtual_stages == 1",
        gpt ? "sp in [false, true]\n  where tp > 1 or sp == 0" : "optimizer in [sgd, adam]",
        "order in [\"pp dp cp tp\", \"tp dp cp pp\", \"dp tp cp pp\"]",
        "late_reduce in [false, true]",
        "bucket_size in [0.1 MB, 1 MB, 25 MB]",
        "offload in [none, activations, \"optimizer\", weights]",
        "p2p in [overlapped, batched, blocking]",
        "scatter_gather in [false, true]",
        gpt ? "cp in [1, 2]" : "clip_norm in [0.0, 1.0]",
        "state_dtype in [f32, bf16]",
        "iteration_overhead in [0 us, 30 us]",
        "masks in [drawn, kept]",
    };
    enum { N = sizeof all / sizeof *all };
    bool taken[N] = {false};
    for (int i = 0; i < 3; i++) taken[pick(rng, N)] = true;
    if (taken[1]) taken[0] = false; /* each names zero, or the schedule */
    if (taken[4]) taken[3] = false;
    ds_buf_put(out, "sweep {\n  dp in powers_of_two(1, 4), tp in [1, 2, 4] where dp * tp <= world\n"
                    "  pp in [1, 2, 3, 4] where dp * tp * pp <= world\n"
                    "  mb in [1, 2, 3, 4, 5, 7, 8, 12, 16, 24]\n  where mb * dp <= 48\n");
    for (int i = 0; i < N; i++)
        if (taken[i]) ds_buf_printf(out, "  %s\n", all[i]);
    ds_buf_put(out, "  minimize step_time }\n");
}

static void make_wide(uint64_t seed, ds_buf *out) {
    ds_rng rng = {seed * 1000003 + 29};
    bool gpt = pick(&rng, 2);
    int layers = 3 + (int)pick(&rng, 10), width = 64 << pick(&rng, 3);
    ds_buf_put(out, "dir 1\nparam dp = 1, tp = 1, pp = 1, mb = 1, batch = dp * mb\n");
    if (gpt)
        ds_buf_printf(out,
                      "import \"models/%s.dir\" as m with layers = %d, hidden = %d, heads = 8, "
                      "seq = 64, vocab = 512, batch = batch\n",
                      pick(&rng, 2) ? "gpt" : "megatron", layers, width);
    else
        ds_buf_printf(
            out, "import \"models/mlp.dir\" as m with layers = %d, width = %d, batch = batch\n",
            layers, width);
    put_nodes(&rng, 2 + (int)pick(&rng, 2), out);
    ds_buf_printf(out,
                  "scenario { model = @m.%s, on = @a, train { loss = %s, optimizer = adam%s }\n"
                  "  strategy { dp = dp, tp = tp, pp = pp, microbatches = mb } }\n",
                  gpt ? "gpt" : "mlp", gpt ? "none" : "mse", pick(&rng, 2) ? ", dtype = f16" : "");
    put_wide_sweep(&rng, gpt, out);
}

static uint64_t count(sweep_case *c, uint64_t most) {
    ds_space *space;
    ds_arena arena;
    uint64_t n = 0;
    bool found = true;
    if (ds_space_new(&c->binding, c->settings, c->n_settings, &space, &c->err) != DS_OK) return 0;
    ds_arena_init(&arena);
    ds_candidate candidate = ds_candidate_new(space, &arena);
    while (n <= most && ds_space_next(space, &candidate, &found, &c->err) == DS_OK && found) n++;
    ds_arena_deinit(&arena);
    ds_space_free(space);
    return n;
}

void random_space(uint64_t seed, uint64_t least, uint64_t most, sweep_case *c) {
    for (uint64_t attempt = 0; attempt < 10000; attempt++) {
        ds_buf text = {0};
        make(seed + attempt * 100000, &text);
        sweep_open_text(c, text.text, NULL);
        uint64_t n = c->status == DS_OK ? count(c, most) : 0;
        if (c->status != DS_OK) printf("%s\n%s\n", c->err.message, text.text);
        ds_buf_deinit(&text);
        if (n >= least && n <= most) return;
        sweep_close(c);
    }
    abort();
}

void random_wide_space(uint64_t seed, sweep_case *c) {
    ds_buf text = {0};
    make_wide(seed, &text);
    sweep_open_text(c, text.text, NULL);
    if (c->status != DS_OK) printf("%s\n%s\n", c->err.message, text.text);
    ds_buf_deinit(&text);
}
