/* Fluid against stepwise: every collective alone, on ready-made topologies and on random graphs.
 *
 * The stepwise run knows nothing of phases: messages between two devices each, started by those
 * that they wait for, share links max-min fairly. At 64 MiB, in equal chunks, the times
 * differ by less than 1 %; on 50 random asymmetric graphs and at small sizes they are tabulated. */
#include "ir/base/rng.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct spec {
    const char *op, *algorithm, *in, *out, *clauses;
} spec;

static const spec specs[] = {
    {"all_reduce", "ring", "] on @m partial(dp)", "] on @m", "over dp"},
    {"all_reduce", "tree", "] on @m partial(dp)", "] on @m", "over dp"},
    {"all_reduce", "direct", "] on @m partial(dp)", "] on @m", "over dp"},
    {"all_reduce", "halving_doubling", "] on @m partial(dp)", "] on @m", "over dp"},
    {"all_reduce", "hierarchical", "] on @m partial(dp)", "] on @m", "over dp"},
    {"all_gather", "ring", "@dp] on @m", "] on @m", "over dp dim 0"},
    {"all_gather", "direct", "@dp] on @m", "] on @m", "over dp dim 0"},
    {"all_gather", "halving_doubling", "@dp] on @m", "] on @m", "over dp dim 0"},
    {"all_gather", "hierarchical", "@dp] on @m", "] on @m", "over dp dim 0"},
    {"reduce_scatter", "ring", "] on @m partial(dp)", "@dp] on @m", "over dp dim 0"},
    {"reduce_scatter", "halving_doubling", "] on @m partial(dp)", "@dp] on @m", "over dp dim 0"},
    {"reduce_scatter", "hierarchical", "] on @m partial(dp)", "@dp] on @m", "over dp dim 0"},
    {"all_to_all", "direct", ", 192@dp] on @m", "@dp, 192] on @m", "over dp dim 1 -> 0"},
    {"all_to_all", "pxn", ", 192@dp] on @m", "@dp, 192] on @m", "over dp dim 1 -> 0"},
    {"broadcast", "ring", "] on @m{dp=0}", "] on @m", "over dp"},
    {"broadcast", "tree", "] on @m{dp=0}", "] on @m", "over dp"},
    {"gather", "direct", "@dp] on @m", "] on @m{dp=0}", "over dp dim 0"},
    {"gather", "tree", "@dp] on @m", "] on @m{dp=0}", "over dp dim 0"},
    {"scatter", "direct", "] on @m{dp=0}", "@dp] on @m", "over dp dim 0"},
    {"permute", "direct", "@dp] on @m", "@dp] on @m", "over dp"},
};
#define N_SPECS (sizeof specs / sizeof *specs)

/* Chains and trees in which data flow. */
static bool is_pipeline(const spec *s) {
    bool tree = strcmp(s->algorithm, "tree") == 0 && strcmp(s->op, "gather") != 0;
    return tree || strcmp(s->op, "broadcast") == 0;
}

/* The step's time; 0 if the group has no such algorithm. */
static double seconds(const char *head, const spec *s, int64_t elements, const char *network) {
    char text[4096];
    snprintf(text, sizeof text,
             "dir 1\n%sfunc @f(%%x: i8[%lld%s) -> i8[%lld%s {\n  %%y = %s(%%x) %s {algorithm = "
             "\"%s\"%s}\n  return %%y\n}\nscenario { program = @f, network = %s }\n",
             head, (long long)elements, s->in, (long long)elements, s->out, s->op, s->clauses,
             s->algorithm, is_pipeline(s) ? ", chunks = 64" : "", network);
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    double got = c.status == DS_OK ? (double)c.result->run.step_ps / 1e12 : 0;
    if (c.status != DS_OK)
        cr_expect_eq(c.status, DS_ERR_UNSUPPORTED, "%s %s: %s", s->op, s->algorithm, c.err.message);
    sim_free(&c);
    return got;
}

static double difference(const char *head, const spec *s, int64_t elements) {
    double fluid = seconds(head, s, elements, "fluid");
    if (fluid <= 0) return 0;
    double stepwise = seconds(head, s, elements, "stepwise");
    return (fluid - stepwise) / stepwise;
}

static const struct {
    const char *name, *head;
} ready[] = {
    {"dgx-a100",
     "import \"scenarios/topologies/dgx-a100.dir\" as t\nmesh @m = [dp = 8] on @t.dgx_a100\n"},
    {"dgx1-v100",
     "import \"scenarios/topologies/dgx1-v100.dir\" as t\nmesh @m = [dp = 8] on @t.dgx1\n"},
    {"pod 2 x 8", "import \"scenarios/topologies/pod-128x8.dir\" as t\n"
                  "mesh @a = [pp = 128, tp = 8] on @t.pod\nmesh @m = pick 0..16 of @a [dp = 16]\n"},
    {"torus", "import \"scenarios/topologies/torus.dir\" as t with x = 4, y = 2, z = 1\n"
              "mesh @m = [dp = 8] on @t.torus\n"},
    {"pcie",
     "import \"scenarios/topologies/pcie-4xv100.dir\" as t\nmesh @m = [dp = 4] on @t.box\n"},
};

/* Where a phase says more than it knows: hops of unequal latency all wait as long as the slowest
 * (rings and chains through nodes), and the two trees of an all_reduce do not load all links all
 * the time. The fluid time is never shorter by 1 %. */
static bool is_bound_only(const char *name, const spec *s) {
    bool tree = strcmp(s->algorithm, "tree") == 0;
    return tree || (strncmp(name, "pod", 3) == 0 && strcmp(s->algorithm, "ring") == 0);
}

Test(stepwise, collectives_alone_on_ready_made_topologies, .timeout = 240) {
    for (size_t r = 0; r < sizeof ready / sizeof *ready; r++)
        for (size_t i = 0; i < N_SPECS; i++) {
            const spec *s = &specs[i];
            double d = difference(ready[r].head, s, 64 << 20);
            double most = is_bound_only(ready[r].name, s) ? 0.5 : 0.01;
            cr_expect(d > -0.01 && d < most, "%s: %s by %s: %.3f %%", ready[r].name, s->op,
                      s->algorithm, d * 100);
        }
}

/* Devices on three switches at random bandwidths and latencies, other ones each way. */
static void random_graph(ds_rng *rng, char *head, size_t size) {
    size_t n = (size_t)snprintf(head, size,
                                "topology @t {\n  device d[6] : \"A100-SXM4-80GB\"\n"
                                "  switch s[3]\n");
    for (int i = 0; i < 9; i++) {
        const char *from = i < 6 ? "d" : "s", *to = "s";
        int a = i < 6 ? i : i - 6, b = i < 6 ? i % 3 : (i - 5) % 3;
        for (int way = 0; way < 2; way++)
            n += (size_t)snprintf(head + n, size - n, "  link %s[%d] -> %s[%d] : %d GB/s, %d ns\n",
                                  way ? to : from, way ? b : a, way ? from : to, way ? a : b,
                                  (int)(5 + ds_rng_below(rng, 95)),
                                  (int)(200 + ds_rng_below(rng, 1800)));
    }
    snprintf(head + n, size - n, "}\nmesh @m = [dp = 6] on @t\n");
}

static void tabulate(const char *what, const double *d, int n) {
    double sum = 0, most = 0, least = 0;
    for (int i = 0; i < n; i++) {
        sum += fabs(d[i]);
        most = d[i] > most ? d[i] : most;
        least = d[i] < least ? d[i] : least;
    }
    printf("| %s | %.2f %% | %.2f %% | %.2f %% |\n", what, sum / n * 100, least * 100, most * 100);
}

/* Fluid minus stepwise, in parts of stepwise: mean of the absolute, least and greatest. */
Test(stepwise, random_graphs_and_small_sizes_are_tabulated, .timeout = 240) {
    static const size_t chosen[] = {0, 1, 2, 5, 12, 14};
    ds_rng rng = {50};
    static char heads[50][2048];
    for (int g = 0; g < 50; g++) random_graph(&rng, heads[g], sizeof heads[g]);
    for (size_t k = 0; k < sizeof chosen / sizeof *chosen; k++) {
        const spec *s = &specs[chosen[k]];
        double d[50];
        char what[96];
        for (int g = 0; g < 50; g++) d[g] = difference(heads[g], s, 12 << 20);
        snprintf(what, sizeof what, "50 graphs, 12 MiB | %s %s", s->op, s->algorithm);
        tabulate(what, d, 50);
        for (int g = 0; g < 50; g++) cr_expect(d[g] > -0.25, "%s: %g", what, d[g]);
        for (int64_t bytes = 1 << 10; bytes < 1 << 20; bytes *= 16) {
            int n = 0;
            for (size_t r = 0; r < 2; r++) d[n++] = difference(ready[r].head, s, bytes);
            snprintf(what, sizeof what, "DGX A100 and DGX-1, %lld KiB | %s %s",
                     (long long)(bytes >> 10), s->op, s->algorithm);
            tabulate(what, d, n);
        }
    }
}
