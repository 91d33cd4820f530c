/* Turns of a cluster, held against the names of its parts: a turn by units takes u[i] to u[i + 1]
 * and leaves all other steps of a path, so the first link of a circle is the one whose ends are
 * called the same but for u[0]. Shifts that are no exchange of equal parts are no turn. */
#include "sim/topo/turn.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_on(sim_case *c, const char *more) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"topologies/rail-fat-tree.dir\" as t\n"
             "mesh @m = [dp = 1024] on @t.cluster\n"
             "func @f(%%x: f32[8] on @m) {\n  %%y = relu(%%x) {cost = 1 us}\n  return\n}\n"
             "scenario { program = @f }\n%s",
             more);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

/* Of devices first … first + n the turn by `shift`, around. */
static ds_turn *turn_by(ds_topo *topo, uint32_t first, uint32_t n, uint32_t shift) {
    uint32_t *from = calloc(n, sizeof *from), *to = calloc(n, sizeof *to);
    for (uint32_t i = 0; i < n; i++) {
        from[i] = first + i;
        to[i] = first + (i + shift) % n;
    }
    ds_turn *turn = ds_turn_new(topo, from, to, n);
    free(from);
    free(to);
    return turn;
}

/* "u[3].leaf[0]": 3, and the rest; UINT32_MAX without a unit. */
static uint32_t unit_of(const char *path, const char **rest) {
    unsigned unit;
    int n = 0;
    *rest = path;
    if (sscanf(path, "u[%u]%n", &unit, &n) != 1) return UINT32_MAX;
    *rest = path + n;
    return unit;
}

static void expect_brought(const ds_topo *topo, uint32_t vertex, uint32_t first, uint32_t steps) {
    const char *rest, *first_rest;
    uint32_t unit = unit_of(ds_topo_vertex_path(topo, vertex), &rest);
    uint32_t to = unit_of(ds_topo_vertex_path(topo, first), &first_rest);
    cr_expect_str_eq(rest, first_rest);
    cr_expect_eq(to, unit == UINT32_MAX ? unit : unit - steps);
}

Test(turn, units) {
    sim_case c;
    run_on(&c, "");
    ds_topo *topo = c.result->plan->topo;
    ds_turn *turn = turn_by(topo, 0, 1024, 256);
    cr_assert_not_null(turn);
    cr_expect_eq(ds_turn_order(turn), 4);
    for (uint32_t d = 0; d < 1024; d++) {
        ds_turned at = ds_turn_device(turn, d);
        cr_expect(at.moves && at.first == d % 256 && at.steps == d / 256);
    }
    uint32_t n = ds_topo_n_links(topo), *images = calloc(n, sizeof *images);
    for (uint32_t l = 0; l < n; l++) {
        ds_turned at = ds_turn_link(turn, l);
        const ds_topo_link *link = ds_topo_link_at(topo, l),
                           *first = ds_topo_link_at(topo, at.first);
        expect_brought(topo, link->from, first->from, at.steps);
        expect_brought(topo, link->to, first->to, at.steps);
        cr_expect_eq(link->bytes_per_s, first->bytes_per_s);
        cr_expect_eq(link->latency_ps, first->latency_ps);
        cr_expect(at.moves); /* every link of the cluster has an end in a unit */
        images[at.first]++;
    }
    for (uint32_t l = 0; l < n; l++) cr_expect(images[l] == 0 || images[l] == 4);
    free(images);
    ds_turn_free(turn);
    sim_free(&c);
}

Test(turn, nodes_of_a_unit) {
    sim_case c;
    run_on(&c, "degrade u[2].n[0].nic[0] -- u[2].leaf[0] bandwidth = 0.5\n");
    ds_topo *topo = c.result->plan->topo;
    ds_turn *turn = turn_by(topo, 256, 256, 8);
    cr_assert_not_null(turn);
    cr_expect_eq(ds_turn_order(turn), 32);
    ds_turned at = ds_turn_device(turn, 256 + 8 * 5 + 3);
    cr_expect(at.moves && at.first == 256 + 3 && at.steps == 5);
    cr_expect_not(ds_turn_device(turn, 0).moves);
    ds_turn_free(turn);
    cr_expect_null(turn_by(topo, 512, 256, 8), "one of the nodes is another");
    cr_expect_null(turn_by(topo, 0, 1024, 256), "one of the units is another");
    sim_free(&c);
}

Test(turn, what_is_none) {
    sim_case c;
    run_on(&c, "");
    ds_topo *topo = c.result->plan->topo;
    cr_expect_null(turn_by(topo, 0, 1024, 1), "GPUs of a node have NICs of their own");
    cr_expect_null(turn_by(topo, 0, 1024, 8), "nodes come into the next unit");
    cr_expect_null(turn_by(topo, 0, 1024, 128), "units are torn apart");
    cr_expect_null(turn_by(topo, 0, 384, 128), "units are torn apart");
    cr_expect_null(turn_by(topo, 0, 16, 0), "nothing moves");
    sim_free(&c);
}
