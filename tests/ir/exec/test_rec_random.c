/* Random recs by definition against a naive recursion (tests/support/generate/random_rec.h). */
#include "tests/support/exec.h"
#include "tests/support/generate/random_rec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void compare(const exec_case *c, const random_rec *p) {
    for (uint32_t i = 0; i < c->result->outputs.n; i++) {
        const ds_exec_tensor *t = &c->result->outputs.at[i];
        double want = random_rec_value(p, t->name);
        cr_assert(fabs(t->at[0] - want) <= 1e-9 * (1 + fabs(want)), "%s is %.17g, not %.17g in\n%s",
                  t->name, t->at[0], want, random_rec_text(p));
    }
}

static void run(exec_case *c, random_rec *p) {
    ds_exec_options options = {
        .seed = 1, .inputs = random_rec_inputs(p), .n_inputs = RANDOM_REC_INPUTS};
    exec_text(c, random_rec_text(p), NULL, &options);
}

#define N_PROGRAMS 10000

Test(exec_rec_random, equals_the_recursion) {
    int fine = 0, cycles = 0;
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed++) {
        random_rec *p = random_rec_new(seed);
        bool ok = random_rec_evaluate(p), cycle = !ok && random_rec_has_cycle(p);
        exec_case c;
        run(&c, p);
        cr_assert_eq(c.status == DS_OK, ok, "seed %llu: the recursion says %s, exec %s\n%s",
                     (unsigned long long)seed,
                     ok      ? "ok"
                     : cycle ? "cycle"
                             : "outside",
                     c.status == DS_OK ? "ok" : c.err.message, random_rec_text(p));
        if (ok)
            compare(&c, p);
        else
            cr_assert(strstr(c.err.message, "depends on itself") || strstr(c.err.message, "reads"),
                      "%s", c.err.message);
        fine += ok;
        cycles += cycle;
        exec_free(&c);
        random_rec_free(p);
    }
    printf("%d fine, %d with a cycle, %d with an index outside\n", fine, cycles,
           N_PROGRAMS - fine - cycles);
    cr_expect(fine > N_PROGRAMS / 3 && cycles > N_PROGRAMS / 20 &&
              N_PROGRAMS - fine - cycles > N_PROGRAMS / 20);
}
