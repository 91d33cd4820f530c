/* scenarios/pipeline-2x4.dir against a timeline worked out by hand.
 *
 * Device times are rooflines at catalogue peaks: max(FLOP / peak, bytes / bandwidth), rounded up.
 * With b = 1024 rows and w = 1024 columns in fp32 on a V100-PCIE-16GB (14.13 TFLOP/s, 897 GB/s):
 *   matmul and its two gradients: 2·b·w·w FLOP            → M = 2^31 / 14.13e12 s
 *   relu: reads and writes b·w·4 bytes                    → R = 2 · 4 MiB / 897e9 s
 *   relu_grad, mse_grad, accumulate: reads two, writes one → T = 3 · 4 MiB / 897e9 s
 *   send over gpu → plx → gpu: S = 1000 ns + 4 MiB / (77/8 GB/s)
 * The recurrences below are the pipeline's, not the simulator's: each line is one op, max() only
 * where a device waits for the other. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static int64_t ceil_ps(double seconds) {
    return (int64_t)ceil(seconds * 1e12 - 1e-6);
}
static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t end_of(const sim_case *c, const char *device, const char *name) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, "/%s", name);
    uint32_t task = sim_task(c, device, suffix);
    cr_assert_neq(task, UINT32_MAX);
    return c->result->run.end_ps[task];
}

static void expect_end(const sim_case *c, const char *device, const char *format, int m,
                       int64_t expected) {
    char name[32];
    snprintf(name, sizeof name, format, m);
    int64_t got = end_of(c, device, name);
    cr_expect_eq(got, expected, "%s on %s ends at %lld ps, by hand at %lld ps", name, device,
                 (long long)got, (long long)expected);
}

Test(pipeline, equals_the_timeline_worked_out_by_hand) {
    sim_case c;
    sim_run_file(&c, "scenarios/pipeline-2x4.dir", NULL, false);
    cr_assert_eq(c.status, DS_OK);
    const double tensor = 1024.0 * 1024.0 * 4.0;
    const int64_t M = ceil_ps(2147483648.0 / 14.13e12);
    const int64_t R = ceil_ps(2 * tensor / 897e9), T = ceil_ps(3 * tensor / 897e9);
    const int64_t S = 1000000 + (int64_t)llround(tensor / 9.625e9 * 1e12);
    int64_t a[4], sent[4], dy[4], back[4];
    int64_t g0 = 0, wire = 0;
    for (int m = 0; m < 4; m++) { /* forward on gpu 0, sends 0 → 1 one after another */
        a[m] = g0 + M + R;
        g0 = a[m];
        sent[m] = wire = later(a[m], wire) + S;
        expect_end(&c, "gpu[0]", "a%d", m, a[m]);
        expect_end(&c, "gpu[1]", "b%d", m, sent[m]);
    }
    int64_t g1 = 0;
    for (int m = 0; m < 4; m++) {
        g1 = later(g1, sent[m]) + M;
        expect_end(&c, "gpu[1]", "y%d", m, g1);
    }
    wire = 0;
    for (int m = 0; m < 4; m++) { /* backward on gpu 1: dy, db, (send), dw1, accumulate */
        dy[m] = g1 + T;
        g1 = dy[m] + M;
        back[m] = wire = later(g1, wire) + S;
        g1 += M;
        if (m) g1 += T;
        expect_end(&c, "gpu[0]", "da%d", m, back[m]);
        expect_end(&c, "gpu[1]", m ? "g1_%d" : "dw1_%d", m, g1);
    }
    for (int m = 0; m < 4; m++) { /* backward on gpu 0: dz, dw0, accumulate */
        g0 = later(g0, back[m]) + T + M;
        if (m) g0 += T;
        expect_end(&c, "gpu[0]", m ? "g0_%d" : "dw0_%d", m, g0);
    }
    cr_expect_eq(c.result->run.step_ps, later(g0, g1));
    sim_free(&c);
}
