/* Fluid against stepwise: every collective alone, on ready-made topologies and on random graphs.
 *
 * The stepwise run knows nothing of phases: messages between two devices each, started by those
 * that they wait for, share links max-min fairly. On ready-made topologies, from 1 MiB on and in
 * equal chunks, the times differ by less than 1 %; on 50 random asymmetric graphs and at small
 * sizes they are tabulated. */
#include "ir/base/rng.h"
#include "tests/support/cases.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct spec {
    const char *op, *algorithm, *in, *out, *clauses;
    int chunks; /* 0: one; NONE: as fine as can be, which messages do in 256 */
} spec;
#define NONE (-1)

#define SUM     "] on @m partial(dp)"
#define ALL     "] on @m"
#define PART    "@dp] on @m"
#define COLUMNS ", 192@dp] on @m"
#define ROWS    "@dp, 192] on @m"
#define ROOT    "] on @m{dp=0}"

static const spec specs[] = {
    {"all_reduce", "ring", SUM, ALL, "over dp", 0},
    {"all_reduce", "tree", SUM, ALL, "over dp", 64},
    {"all_reduce", "direct", SUM, ALL, "over dp", 0},
    {"all_reduce", "halving_doubling", SUM, ALL, "over dp", 0},
    {"all_reduce", "hierarchical", SUM, ALL, "over dp", 0},
    {"all_reduce", "switch", SUM, ALL, "over dp", 0},
    {"all_gather", "ring", PART, ALL, "over dp dim 0", 0},
    {"all_gather", "direct", PART, ALL, "over dp dim 0", 0},
    {"all_gather", "halving_doubling", PART, ALL, "over dp dim 0", 0},
    {"all_gather", "hierarchical", PART, ALL, "over dp dim 0", 0},
    {"all_gather", "switch", PART, ALL, "over dp dim 0", 0},
    {"reduce_scatter", "ring", SUM, PART, "over dp dim 0", 0},
    {"reduce_scatter", "direct", SUM, PART, "over dp dim 0", 0},
    {"reduce_scatter", "halving_doubling", SUM, PART, "over dp dim 0", 0},
    {"reduce_scatter", "hierarchical", SUM, PART, "over dp dim 0", 0},
    {"all_to_all", "direct", COLUMNS, ROWS, "over dp dim 1 -> 0", 0},
    {"all_to_all", "pxn", COLUMNS, ROWS, "over dp dim 1 -> 0", 0},
    {"broadcast", "ring", ROOT, ALL, "over dp", 64},
    {"broadcast", "tree", ROOT, ALL, "over dp", 64},
    {"broadcast", "direct", ROOT, ALL, "over dp", 0},
    {"gather", "direct", PART, ROOT, "over dp dim 0", 0},
    {"gather", "tree", PART, ROOT, "over dp dim 0", 0},
    {"scatter", "direct", ROOT, PART, "over dp dim 0", 0},
    {"scatter", "tree", ROOT, PART, "over dp dim 0", 0},
    {"permute", "direct", PART, PART, "over dp", 0},
    /* phases in chunks */
    {"all_reduce", "hierarchical", SUM, ALL, "over dp", 4},
    {"all_reduce", "hierarchical", SUM, ALL, "over dp", 32},
    {"all_reduce", "halving_doubling", SUM, ALL, "over dp", 8},
    {"all_to_all", "pxn", COLUMNS, ROWS, "over dp dim 1 -> 0", 8},
};
#define STRIDE  (FEW_CASES ? 19u : 1u)
#define N_SPECS (sizeof specs / sizeof *specs)

/* A group of n devices: the text before the function. */
typedef struct group {
    const char *name;
    int n;
    const char *head;
} group;

/* The step's time for S of about `bytes`; 0 if the group has no such algorithm. */
static double seconds(const group *g, const spec *s, int64_t bytes, const char *network) {
    char text[4096], chunks[32] = "";
    if (s->chunks != NONE)
        snprintf(chunks, sizeof chunks, ", chunks = %d", s->chunks ? s->chunks : 1);
    int64_t unit = 192 * (int64_t)g->n, size = (bytes + unit - 1) / unit * unit;
    if (strcmp(s->op, "all_to_all") == 0) size = size / 192 * g->n; /* rows of 192 bytes in all */
    if (strcmp(s->op, "permute") == 0) size *= g->n;
    snprintf(text, sizeof text,
             "dir 1\n%s\nfunc @f(%%x: i8[%lld%s) -> i8[%lld%s {\n  %%y = %s(%%x) %s {algorithm = "
             "\"%s\"%s}\n  return %%y\n}\nscenario { program = @f, network = %s }\n",
             g->head, (long long)size, s->in, (long long)size, s->out, s->op, s->clauses,
             s->algorithm, chunks, network);
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    double got = c.status == DS_OK ? (double)c.result->run.step_ps / 1e12 : 0;
    if (c.status != DS_OK)
        cr_expect_eq(c.status, DS_ERR_UNSUPPORTED, "%s %s: %s", s->op, s->algorithm, c.err.message);
    sim_free(&c);
    return got;
}

static double difference(const group *g, const spec *s, int64_t bytes) {
    double fluid = seconds(g, s, bytes, "fluid");
    if (fluid <= 0) return NAN;
    double stepwise = seconds(g, s, bytes, "stepwise");
    return (fluid - stepwise) / stepwise;
}

#define TOPO(file) "import \"scenarios/topologies/" file ".dir\" as t"
#define MESH(top)  "\nmesh @m = [dp = n] on @t." top
#define POD        TOPO("pod-128x8") "\nmesh @all = [pp = 128, tp = 8] on @t.pod\n"
#define TWO        TOPO("dgx-h100-x2") "\nmesh @all = [dp = 16] on @t.two order "

static const group groups[] = {
    {"DGX A100", 8, TOPO("dgx-a100") "\nmesh @m = [dp = 8] on @t.dgx_a100"},
    {"6 of a DGX A100", 6,
     TOPO("dgx-a100") "\nmesh @a = [dp = 8] on @t.dgx_a100\nmesh @m = pick 0..6 of @a [dp = 6]"},
    {"DGX H100", 8, TOPO("dgx-h100") "\nmesh @m = [dp = 8] on @t.dgx_h100"},
    {"DGX-1", 8, TOPO("dgx1-v100") "\nmesh @m = [dp = 8] on @t.dgx1"},
    {"3 of a DGX-1", 3,
     TOPO("dgx1-v100") "\nmesh @a = [dp = 8] on @t.dgx1\nmesh @m = pick 2..5 of @a [dp = 3]"},
    {"DGX-2", 16, TOPO("dgx2") "\nmesh @m = [dp = 16] on @t.dgx2"},
    {"PCIe box", 4, TOPO("pcie-4xv100") "\nmesh @m = [dp = 4] on @t.box"},
    {"fat tree", 16, TOPO("fat-tree") "\nmesh @m = [dp = 16] on @t.fat_tree"},
    {"6 of a fat tree", 6,
     TOPO("fat-tree") "\nmesh @a = [dp = 16] on @t.fat_tree\nmesh @m = pick 1..7 of @a [dp = 6]"},
    {"three kinds", 16, TOPO("mixed-box") "\nmesh @m = [dp = 16] on @t.mixed"},
    {"torus 4 x 2", 8, TOPO("torus") " with x = 4, y = 2, z = 1\nmesh @m = [dp = 8] on @t.torus"},
    {"torus 4 x 4", 16, TOPO("torus") " with x = 4, y = 4, z = 1\nmesh @m = [dp = 16] on @t.torus"},
    {"2 x p3.16xlarge", 16, TOPO("p3-16xlarge-x2") "\nmesh @m = [dp = 16] on @t.p3x2"},
    {"2 x DGX H100", 16,
     TWO "(0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15)\nmesh @m = pick 0..16 of @all [dp = 16]"},
    {"4 of each of 2 DGX H100", 8,
     TWO "(0,1,2,3,8,9,10,11,4,5,6,7,12,13,14,15)\nmesh @m = pick 0..8 of @all [dp = 8]"},
    {"5 and 3 of 2 DGX H100", 8,
     TWO "(0,1,2,3,4,8,9,10,11,5,6,7,12,13,14,15)\nmesh @m = pick 0..8 of @all [dp = 8]"},
    {"2 x 8 of a pod", 16, POD "mesh @m = pick 0..16 of @all [dp = 16]"},
    {"4 x 8 of a pod", 32, POD "mesh @m = pick 0..32 of @all [dp = 32]"},
    {"4 x p6-b200", 32, TOPO("p6-b200-x4") "\nmesh @m = [dp = 32] on @t.four"},
    {"a rail of 4 p6-b200", 4,
     TOPO("p6-b200-x4") "\nmesh @a = [dp = 32] on @t.four order "
                        "(0,8,16,24,1,2,3,4,5,6,7,9,10,11,12,13,14,15,17,18,19,20,21,22,23,25,26,"
                        "27,28,29,30,31)\nmesh @m = pick 0..4 of @a [dp = 4]"},
    {"2 x 2 A100 on one NIC", 4, TOPO("pairs-a100-x2") "\nmesh @m = [dp = 4] on @t.two"},
    {"2 x 8 P100 on PCIe", 16,
     TOPO("pcie-8xp100-x4") "\nmesh @a = [dp = 32] on @t.four\nmesh @m = pick 0..16 of @a [dp = "
                            "16]"},
};
#define N_GROUPS (sizeof groups / sizeof *groups)

Test(stepwise, collectives_alone_on_ready_made_topologies) {
    static const int64_t sizes[] = {1 << 20, 16 << 20, 64 << 20};
    double worst = 0;
    int n = 0;
    for (size_t r = 0; r < N_GROUPS; r++)
        for (size_t i = r % STRIDE; i < N_SPECS; i += STRIDE)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                const spec *s = &specs[i];
                double d = difference(&groups[r], s, sizes[k]);
                cr_expect(!(fabs(d) >= 0.01), "%s: %s by %s in %d, %lld MiB: %.3f %%",
                          groups[r].name, s->op, s->algorithm, s->chunks,
                          (long long)(sizes[k] >> 20), d * 100);
                worst = fabs(d) > worst ? fabs(d) : worst;
                n += !isnan(d);
            }
    printf("%d collectives of 1, 16 and 64 MiB: at most %.2f %%\n", n, worst * 100);
    cr_expect_geq(n, (int)(1200 / STRIDE));
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

/* Below 1 MiB, and where there are too many messages to time them beforehand. */
static const group small[] = {
    {"DGX A100", 8, TOPO("dgx-a100") "\nmesh @m = [dp = 8] on @t.dgx_a100"},
    {"DGX-1", 8, TOPO("dgx1-v100") "\nmesh @m = [dp = 8] on @t.dgx1"},
    {"torus 4 x 4", 16, TOPO("torus") " with x = 4, y = 4, z = 1\nmesh @m = [dp = 16] on @t.torus"},
    {"2 x DGX H100", 16, TOPO("dgx-h100-x2") "\nmesh @m = [dp = 16] on @t.two"},
};
static const group large[] = {
    {"8 x 8 of a pod", 64, POD "mesh @m = pick 0..64 of @all [dp = 64]"},
    {"12 x 8 of a pod", 96, POD "mesh @m = pick 0..96 of @all [dp = 96]"},
};

/* Fluid minus stepwise, in parts of stepwise: mean of the absolute, least and greatest. */
Test(stepwise, random_graphs_and_small_sizes_are_tabulated) {
    ds_rng rng = {50};
    static char heads[50][2048];
    for (int g = 0; g < 50; g++) random_graph(&rng, heads[g], sizeof heads[g]);
    for (size_t k = 0; k < N_SPECS; k += STRIDE) {
        const spec *s = &specs[k];
        double d[50], e[16];
        char what[96];
        int n = 0, m = 0;
        for (int g = 0; g < 50; g++) {
            double one = difference(&(group){"", 6, heads[g]}, s, 12 << 20);
            if (!isnan(one)) d[n++] = one;
        }
        snprintf(what, sizeof what, "%s %s in %d, 50 graphs, 12 MiB", s->op, s->algorithm,
                 s->chunks);
        if (n) tabulate(what, d, n);
        for (int g = 0; g < n; g++) cr_expect(fabs(d[g]) < 0.01, "%s: %g", what, d[g]);
        for (size_t g = 0; g < sizeof small / sizeof *small; g++)
            for (int64_t bytes = 1 << 10; bytes < 1 << 20; bytes *= 16) {
                double one = difference(&small[g], s, bytes);
                if (!isnan(one)) e[m++] = one;
            }
        snprintf(what, sizeof what, "%s %s in %d, 1 to 256 KiB", s->op, s->algorithm, s->chunks);
        if (m) tabulate(what, e, m);
    }
    static const spec finest[] = {
        {"all_reduce", "tree", SUM, ALL, "over dp", NONE},
        {"broadcast", "ring", ROOT, ALL, "over dp", NONE},
        {"broadcast", "tree", ROOT, ALL, "over dp", NONE},
    };
    for (size_t k = 0; k < sizeof finest / sizeof *finest; k++)
        for (int64_t bytes = 1 << 20; bytes <= 64 << 20; bytes *= 8) {
            double d[4];
            char what[96];
            for (int g = 0; g < 4; g++) d[g] = difference(&small[g], &finest[k], bytes);
            snprintf(what, sizeof what, "%s %s without chunks, %lld MiB", finest[k].op,
                     finest[k].algorithm, (long long)(bytes >> 20));
            tabulate(what, d, 4);
        }
    for (size_t g = 0; g < sizeof large / sizeof *large; g++)
        for (int64_t bytes = 1 << 20; bytes <= 256 << 20; bytes *= 4) {
            double one = difference(&large[g], &specs[0], bytes);
            printf("| %s, all_reduce ring of %lld MiB | %.2f %% |\n", large[g].name,
                   (long long)(bytes >> 20), one * 100);
            cr_expect(fabs(one) < 0.03, "%g", one);
        }
}

/* 1 GiB from each of N ports of 50 GiB/s to all others, a share each: (N−1)/N · 2^30 B / port and
 * one latency, as SimGrid has it for 256 ports too (19.9 ms); one message is 1/N of it. */
Test(stepwise, all_to_all_over_one_switch) {
    static const int ports[] = {16, 64, 256};
    for (size_t i = 0; i < 3; i++)
        for (int stepwise = 0; stepwise < (i < 2 ? 2 : 1); stepwise++) {
            char text[1024];
            snprintf(text, sizeof text,
                     "dir 1\nparam n = %d\ntopology @t {\n  device d[n] : \"A100-SXM4-80GB\"\n"
                     "  switch s\n  link d[i] -- s : 53.6870912 GB/s, 250 ns for i in 0..n\n}\n"
                     "mesh @m = [dp = n] on @t\n"
                     "func @f(%%x: i8[1048576 * n, 1024@dp] on @m) -> i8[1048576 * n@dp, 1024] on "
                     "@m {\n  %%y = all_to_all(%%x) over dp dim 1 -> 0\n  return %%y\n}\n"
                     "scenario { program = @f, network = %s }\n",
                     ports[i], stepwise ? "stepwise" : "fluid");
            sim_case c;
            sim_run_text(&c, text, NULL, false);
            cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
            double seconds = (double)c.result->run.step_ps / 1e12, n = ports[i];
            cr_expect_float_eq(seconds, 500e-9 + 20e-3 * (n - 1) / n, 1e-9, "%g: %.9g", n, seconds);
            sim_free(&c);
        }
}
