/* Exchanges of twins are automorphisms: on random clusters, degraded or not, and on the ready-made
 * topologies, for random lists of vertices, the permutation that carries their canonical place back
 * to them maps vertices to vertices of their kind and links to links with the same figures between
 * the images of their ends, each once. And parts that are equal are found to be. */
#include "ir/base/rng.h"
#include "sim/coll/coll.h"
#include "sim/topo/symmetry.h"
#include "tests/support/generate/random_program.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t draw(uint64_t seed, uint64_t *n, uint32_t below) {
    return (uint32_t)(ds_rng_at(seed, 11, (*n)++, 0) % below);
}

static void check_permutation(const ds_topo *topo, ds_symmetry *s, uint64_t seed) {
    uint32_t n = ds_topo_n_vertices(topo), n_links = ds_topo_n_links(topo);
    bool *hit = calloc(n > n_links ? n : n_links, sizeof *hit);
    for (uint32_t v = 0; v < n; v++) {
        uint32_t image = ds_symmetry_carry_vertex(s, v);
        cr_assert_lt(image, n);
        cr_assert_not(hit[image], "seed %llu: two vertices go to %s", (unsigned long long)seed,
                      ds_topo_vertex_path(topo, image));
        hit[image] = true;
        cr_assert_eq(ds_topo_vertex_kind(topo, v), ds_topo_vertex_kind(topo, image));
        cr_assert_eq(ds_topo_reduces(topo, v), ds_topo_reduces(topo, image));
    }
    memset(hit, 0, n_links * sizeof *hit);
    for (uint32_t l = 0; l < n_links; l++) {
        uint32_t image = ds_symmetry_carry_link(s, l);
        const ds_topo_link *a = ds_topo_link_at(topo, l), *b = ds_topo_link_at(topo, image);
        cr_assert_not(hit[image]);
        hit[image] = true;
        cr_assert_eq(b->from, ds_symmetry_carry_vertex(s, a->from));
        cr_assert_eq(b->to, ds_symmetry_carry_vertex(s, a->to));
        cr_assert_eq(a->bytes_per_s, b->bytes_per_s, "seed %llu: %s -> %s",
                     (unsigned long long)seed, ds_topo_vertex_path(topo, a->from),
                     ds_topo_vertex_path(topo, a->to));
        cr_assert_eq(a->latency_ps, b->latency_ps);
        cr_assert_eq(a->cap_bytes_per_s, b->cap_bytes_per_s);
    }
    free(hit);
}

/* Random lists; returns how many are moved. */
static uint32_t check_topo(ds_topo *topo, uint64_t seed, uint32_t tries) {
    ds_symmetry *s = ds_topo_symmetry(topo);
    uint32_t moved = 0, list[24], place[24];
    uint64_t draws = 0;
    for (uint32_t t = 0; t < tries; t++) {
        uint32_t n = 1 + draw(seed, &draws, t % 2 ? 24 : 4);
        for (uint32_t i = 0; i < n; i++) list[i] = draw(seed, &draws, ds_topo_n_vertices(topo));
        ds_symmetry_canonical(s, list, n, place);
        for (uint32_t i = 0; i < n; i++)
            cr_assert_eq(ds_symmetry_carry_vertex(s, place[i]), list[i]);
        check_permutation(topo, s, seed);
        moved += memcmp(list, place, n * sizeof *list) != 0;
        /* the place of a place is itself */
        memcpy(list, place, sizeof list);
        ds_symmetry_canonical(s, list, n, place);
        cr_assert_arr_eq(list, place, n * sizeof *list);
    }
    return moved;
}

/* What each group was found to take is what it takes where it is. */
static void check_costs(const ds_plan *plan) {
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        for (uint32_t g = 0; g < r->n_groups; g++) {
            const ds_group *group = &r->groups[g];
            ds_coll_choice choice;
            ds_arena arena;
            if (!group->request) continue;
            ds_arena_init(&arena);
            cr_assert_eq(
                ds_coll_choose(plan->topo, group->request, &group->terms, &arena, &choice, NULL),
                DS_OK);
            cr_assert_eq(choice.ps, group->ps);
            cr_assert_str_eq(choice.algorithm, group->algorithm);
            cr_assert_eq(choice.n_phases, group->n_phases);
            ds_arena_deinit(&arena);
        }
    }
}

Test(symmetry, exchanges_are_automorphisms) {
    uint32_t moved = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        ds_buf text = {0};
        random_cluster(seed, &text);
        sim_case c;
        sim_run_text(&c, text.text, NULL, true);
        if (c.status == DS_OK) {
            moved += check_topo(c.result->plan->topo, seed, 6) > 0;
            check_costs(c.result->plan);
        }
        sim_free(&c);
        ds_buf_deinit(&text);
    }
    cr_expect_geq(moved, 40, "%u", moved);
}

static void run_on(sim_case *c, const char *file, const char *topology, uint32_t n,
                   const char *more) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"topologies/%s.dir\" as t\nmesh @m = [dp = %u] on @t.%s\n"
             "func @f(%%x: f32[8] on @m) {\n  %%y = relu(%%x) {cost = 1 us}\n  return\n}\n"
             "scenario { program = @f }\n%s",
             file, n, topology, more);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s: %s", file, c->err.message);
}

Test(symmetry, ready_made_machines) {
    static const struct {
        const char *file, *topology;
        uint32_t n;
    } all[] = {{"dgx-a100", "dgx_a100", 8}, {"dgx1-v100", "dgx1", 8},
               {"pod-128x8", "pod", 1024},  {"fat-tree", "fat_tree", 16},
               {"pcie-4xv100", "box", 4},   {"rail-fat-tree", "cluster", 1024}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sim_case c;
        run_on(&c, all[i].file, all[i].topology, all[i].n, "");
        check_topo(c.result->plan->topo, i, 8);
        sim_free(&c);
    }
}

static bool alike(const sim_case *c, const char *a, const char *b) {
    ds_topo *topo = c->result->plan->topo;
    return ds_symmetry_are_alike(ds_topo_symmetry(topo), ds_topo_find_vertex(topo, a),
                                 ds_topo_find_vertex(topo, b));
}

Test(symmetry, equal_parts_are_found) {
    sim_case c;
    run_on(&c, "rail-fat-tree", "cluster", 1024, "");
    cr_expect(alike(&c, "u[0].n[0].gpu[3]", "u[3].n[31].gpu[3]"));
    cr_expect(alike(&c, "u[0].leaf[3]", "u[2].leaf[3]"));
    cr_expect(alike(&c, "spine[8]", "spine[15]"));
    cr_expect_not(alike(&c, "spine[7]", "spine[8]")); /* another rail: not by exchanging two */
    cr_expect_not(alike(&c, "u[0].n[0].gpu[3]", "u[0].n[0].gpu[4]"));
    sim_free(&c);
    run_on(&c, "rail-fat-tree", "cluster", 1024,
           "degrade u[1].n[2].nic[4] -- u[1].leaf[4] bandwidth = 0.5\n"
           "degrade u[2].leaf[0] -> spine[3] latency = 2\n"
           "degrade u[3].n[5].gpu[0] -- u[3].n[5].nvswitch bandwidth = 0.9\n");
    cr_expect_not(alike(&c, "u[0].n[0].gpu[3]", "u[1].n[0].gpu[3]")); /* the unit is another */
    cr_expect_not(alike(&c, "u[0].n[0].gpu[3]", "u[2].n[0].gpu[3]"));
    cr_expect_not(alike(&c, "u[0].n[0].gpu[3]", "u[3].n[0].gpu[3]"));
    cr_expect(alike(&c, "u[1].n[0].gpu[3]", "u[1].n[31].gpu[3]"));
    cr_expect_not(alike(&c, "u[1].n[0].gpu[3]", "u[1].n[2].gpu[3]"));
    cr_expect_not(alike(&c, "u[3].n[0].gpu[1]", "u[3].n[5].gpu[1]"));
    cr_expect_not(alike(&c, "spine[3]", "spine[4]"));
    cr_expect(alike(&c, "spine[4]", "spine[5]"));
    sim_free(&c);
}
