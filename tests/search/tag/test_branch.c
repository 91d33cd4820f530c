/* Branch and bound against enumeration; certificates, true ones and tampered ones. */
#include "search/tag/branch.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_tag.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 6 };

typedef struct instance {
    random_tag r;
    ds_arena arena;
    ds_tag_branching what;
    ds_tag_action best[MOST_GROUPS];
    ds_tag_branched out;
    ds_buf certificate;
} instance;

static void open_instance(instance *x, uint64_t seed, uint32_t n_groups) {
    ds_tag_action *actions;
    memset(x, 0, sizeof *x);
    random_tag_instance(&x->r, seed, n_groups);
    x->what = (ds_tag_branching){.problem = &x->r.problem, .n_steps = UINT64_MAX};
    cr_assert_eq(ds_tag_check(&x->r.problem, NULL), DS_OK);
    cr_assert_eq(ds_tag_actions(&x->r.problem, &x->arena, &actions, &x->what.n_actions, NULL),
                 DS_OK);
    cr_assert_eq(x->what.n_actions, 21);
    x->what.actions = actions;
    for (uint32_t g = 0; g < n_groups; g++) x->best[g] = actions[0];
}

static void prove(instance *x, uint64_t n_steps) {
    x->what.n_steps = n_steps;
    x->certificate.n = 0;
    ds_tag_prove(&x->what, x->best, &x->certificate, &x->out);
}

static void close_instance(instance *x) {
    ds_buf_deinit(&x->certificate);
    ds_arena_deinit(&x->arena);
}

static int64_t makespan_of(const instance *x, const ds_tag_action *action) {
    ds_arena arena = {0};
    ds_tag_outcome out;
    cr_assert_eq(ds_tag_simulate(&x->r.problem, action, &arena, &out, NULL), DS_OK);
    ds_arena_deinit(&arena);
    return out.fits ? out.makespan_us : INT64_MAX;
}

static int64_t enumerate(const instance *x, uint32_t n_groups) {
    uint32_t digit[MOST_GROUPS] = {0};
    ds_tag_action chosen[MOST_GROUPS];
    int64_t least = INT64_MAX;
    for (uint32_t g = 0; g < n_groups;) {
        for (g = 0; g < n_groups; g++) chosen[g] = x->what.actions[digit[g]];
        int64_t us = makespan_of(x, chosen);
        if (us < least) least = us;
        for (g = 0; g < n_groups && ++digit[g] == x->what.n_actions; g++) digit[g] = 0;
    }
    return least;
}

static ds_status certify(const instance *x, const char *text, ds_tag_branched *out, ds_error *err) {
    ds_tag_branching what = x->what;
    what.n_steps = 0;
    return ds_tag_certify(&what, text, 1, out, err);
}

static void expect_right(const instance *x) {
    ds_tag_branched certified;
    ds_error err = {0};
    cr_expect_eq(certify(x, x->certificate.text, &certified, &err), DS_OK, "%s", err.message);
    cr_expect_eq(certified.us, x->out.us);
    cr_expect_eq(certified.lower_us, x->out.lower_us);
}

/* Two groups, 441 deployments; of three groups, 9,261, one instance. */
Test(tag_branch, proves_the_optimum) {
    static instance x;
    uint64_t n = FEW_CASES ? 3 : 20;
    for (uint64_t seed = 0; seed <= n; seed++) {
        uint32_t n_groups = seed < n ? 2 : 3;
        open_instance(&x, seed, n_groups);
        prove(&x, UINT64_MAX);
        int64_t least = enumerate(&x, n_groups);
        cr_expect_eq(x.out.us, least, "instance %" PRIu64, seed);
        cr_expect_eq(x.out.lower_us, least, "instance %" PRIu64, seed);
        cr_expect_eq(makespan_of(&x, x.best), least);
        expect_right(&x);
        close_instance(&x);
    }
}

/* Whenever the steps end, the bound is no greater than the optimum, and its certificate is right. */
Test(tag_branch, bounds_of_any_number_of_steps) {
    static instance x;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 2 : 6); seed++) {
        int64_t before = 0;
        open_instance(&x, seed, 4);
        prove(&x, UINT64_MAX);
        int64_t least = x.out.us;
        for (uint64_t n = 0; n < 2000; n = 3 * n + 1) {
            for (uint32_t g = 0; g < 4; g++) x.best[g] = x.what.actions[20];
            prove(&x, n);
            cr_expect_leq(x.out.lower_us, least);
            cr_expect_geq(x.out.us, least);
            cr_expect_geq(x.out.lower_us, before);
            expect_right(&x);
            before = x.out.lower_us;
        }
        close_instance(&x);
    }
}

/* ---- certificates ---- */

/* DISTSIM_TAG_INSTANCES=200 takes as many. */
Test(tag_branch, certificates_of_four_groups) {
    static instance x;
    const char *wanted = getenv("DISTSIM_TAG_INSTANCES");
    uint64_t n = wanted ? strtoull(wanted, NULL, 10) : FEW_CASES ? 4 : 14;
    for (uint64_t seed = 0; seed < n; seed++) {
        open_instance(&x, seed, 4);
        prove(&x, UINT64_MAX);
        cr_expect_eq(x.out.lower_us, x.out.us);
        expect_right(&x);
        close_instance(&x);
    }
}

/* The certificate with its n-th line that contains `word` replaced by printf's; NULL: left out. */
static char *replace(const char *text, const char *word, uint32_t n, const char *line) {
    ds_buf out = {0};
    ds_buf_put(&out, "");
    for (const char *at = text, *end; *at; at = end) {
        end = strchr(at, '\n') + 1;
        const char *found = strstr(at, word);
        bool is_it = found && found < end && n-- == 0;
        if (is_it && line) ds_buf_put(&out, line);
        if (!is_it) ds_buf_put_n(&out, at, (size_t)(end - at));
    }
    return out.text;
}

static void refuse(const instance *x, char *text, const char *why) {
    ds_tag_branched out;
    ds_error err = {0};
    cr_expect_neq(strcmp(text, x->certificate.text), 0, "%s: nothing was changed", why);
    cr_expect_eq(certify(x, text, &out, &err), DS_ERR_DATA, "%s", why);
    cr_expect(strstr(err.message, why), "'%s', not '%s'", err.message, why);
    free(text);
}

static const char *line_of(const char *text, const char *word, char *out) {
    const char *at = strstr(text, word), *begin = at;
    cr_assert_not_null(at, "%s", word);
    while (begin > text && begin[-1] != '\n') begin--;
    size_t n = (size_t)(strchr(at, '\n') + 1 - begin);
    memcpy(out, begin, n);
    out[n] = '\0';
    return out;
}

/* The line with `by` added to its last number. */
static const char *add(const char *text, const char *word, long long by, char *line) {
    line_of(text, word, line);
    char *last = strrchr(line, '\t') + 1;
    sprintf(last, "%lld\n", strtoll(last, NULL, 10) + by);
    return line;
}

Test(tag_branch, tampered_certificates_are_refused) {
    static instance x;
    char line[200], other[260], *text;
    open_instance(&x, 3, 4);
    prove(&x, UINT64_MAX);
    expect_right(&x);
    const char *t = x.certificate.text;
    refuse(&x, replace(t, "lower", 0, add(t, "lower", 1, line)), "less than the lower bound");
    refuse(&x, replace(t, "lower", 0, "lower\t-\n"), "less than the lower bound");
    refuse(&x, replace(t, "bound", 0, add(t, "bound", 1000000, line)), "deployments is less");
    refuse(&x, replace(t, "bound", 0, add(t, "bound", -1000000, line)), "with a number");
    refuse(&x, replace(t, "run", 0, add(t, "run", 1, line)), "takes another time");
    refuse(&x, replace(t, "run", 0, "0\trun\t-1\n"), "with a number");
    refuse(&x, replace(t, "run", 0, NULL), "no line yet");
    refuse(&x, replace(t, "\t", 2, "0\trun\t1\n"), "less than the lower bound");
    refuse(&x, replace(t, "\t", 2, "0\tbranch\t4\n"), "a group without an action");
    refuse(&x, replace(t, "\t", 2, "20\trun\t1\n"), "the first node");
    snprintf(other, sizeof other, "%s", line_of(t, "branch", line));
    refuse(&x, replace(t, "branch", 1, other), "a group without an action");
    refuse(&x, replace(t, "end", 0, NULL), "the end");
    refuse(&x, replace(t, "end", 0, "end\nend\n"), "the end");
    refuse(&x, replace(t, "incumbent", 0, "incumbent\t1\t0\t0\t0\t0\n"), "another time");
    refuse(&x, replace(t, "incumbent", 0, "incumbent\t1\t0\t0\t0\n"), "the incumbent");
    refuse(&x, replace(t, "incumbent", 0, "incumbent\t1\t0\t0\t0\t21\n"), "the incumbent");
    /* the deployment of all groups on the first machine, under the best time */
    snprintf(other, sizeof other, "incumbent\t%" PRId64 "\t0\t0\t0\t0\n", x.out.us);
    refuse(&x, replace(t, "incumbent", 0, other), "another time");
    text = replace(t, "incumbent", 0, "incumbent\t-\n"); /* true, and says less */
    ds_tag_branched out;
    cr_expect_eq(certify(&x, text, &out, NULL), DS_OK);
    cr_expect_eq(out.lower_us, x.out.us);
    free(text);
    close_instance(&x);
}

/* The tree's first playouts have no deployment that fits, and few do. */
Test(tag_branch, improvement_finds_memory) {
    static instance x;
    ds_tag_branched found;
    open_instance(&x, 31, 4);
    cr_assert_eq(makespan_of(&x, x.best), INT64_MAX);
    x.what.n_steps = 20000;
    ds_tag_improve(&x.what, x.best, &found);
    prove(&x, UINT64_MAX);
    cr_expect_eq(found.us, x.out.us);
    cr_expect_lt(found.us, INT64_MAX);
    close_instance(&x);
}

/* Memory for nothing. */
Test(tag_branch, no_deployment_fits) {
    static instance x;
    open_instance(&x, 1, 2);
    for (uint32_t m = 0; m < 3; m++) x.r.machine[m].memory_bytes = 0;
    prove(&x, UINT64_MAX);
    cr_expect_eq(x.out.us, INT64_MAX);
    cr_expect_eq(x.out.lower_us, INT64_MAX);
    cr_expect(strncmp(x.certificate.text, "incumbent\t-\nlower\t-\n0\tbranch\t", 29) == 0);
    expect_right(&x);
    close_instance(&x);
}
