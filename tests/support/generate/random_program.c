#include "tests/support/generate/random_program.h"

#include "ir/base/rng.h"

#include <string.h>

typedef struct shape {
    uint64_t seed, draws;
} shape;

static uint32_t draw(shape *s, uint32_t n) {
    return (uint32_t)(ds_rng_at(s->seed, 7, s->draws++, 0) % n);
}

static void topology(shape *s, uint32_t nodes, uint32_t per_node, ds_buf *out) {
    uint32_t odd = draw(s, 3); /* 0: symmetric, 1: one slow link, 2: one other device */
    uint32_t at = draw(s, nodes * per_node);
    ds_buf_put(out, "dir 1\ntopology @t {\n");
    for (uint32_t i = 0; i < nodes * per_node; i++)
        ds_buf_printf(out, "  device d%u : \"%s\"\n", i,
                      odd == 2 && i == at ? "V100-SXM2-32GB" : "A100-SXM4-80GB");
    ds_buf_printf(out, "  switch leaf[%u], spine[%u]\n", nodes, 1 + draw(s, 2));
    for (uint32_t i = 0; i < nodes * per_node; i++)
        ds_buf_printf(out, "  link d%u -- leaf[%u] : %u GB/s, 1 us\n", i, i / per_node,
                      odd == 1 && i == at ? 7 : 20);
    bool two = strstr(out->text, "spine[2]") != NULL;
    for (uint32_t i = 0; i < nodes; i++)
        for (uint32_t k = 0; k < (two ? 2u : 1u); k++)
            ds_buf_printf(out, "  link leaf[%u] -- spine[%u] : 10 GB/s, 2 us\n", i, k);
    ds_buf_put(out, "}\n");
}

/* The same devices under axes of its own, some of them swapped: groups along y are those along tp
 * for some devices and cross them for others, which then have one communication stream more. */
static void other_mesh(shape *s, uint32_t n, uint32_t tp, ds_buf *out) {
    uint32_t order[512];
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t swaps = draw(s, 3); swaps > 0; swaps--) {
        uint32_t i = draw(s, n), k = draw(s, n), device = order[k];
        order[k] = order[i];
        order[i] = device;
    }
    ds_buf_printf(out, "axis x\naxis y\nmesh @o = [x = %u, y = %u] on @t order (", n / tp, tp);
    for (uint32_t i = 0; i < n; i++) ds_buf_printf(out, "%s%u", i ? ", " : "", order[i]);
    ds_buf_put(out, ")\n");
}

/* Two stages of a tensor-parallel block, data parallel, with a send between the stages. */
static void program(shape *s, uint32_t pp, uint32_t dp, uint32_t tp, ds_buf *out) {
    ds_buf_printf(out, "param layers = %u, b = %u, w = %u\n", 1 + draw(s, 3),
                  dp * (1 + draw(s, 4)) * 8, tp * (1 + draw(s, 4)) * 16);
    ds_buf_printf(out, "mesh @m = [pp = %u, dp = %u, tp = %u] on @t\n", pp, dp, tp);
    other_mesh(s, pp * dp * tp, tp, out);
    ds_buf_put(out, "func @main(");
    for (uint32_t p = 0; p < pp; p++)
        ds_buf_printf(out, "%s%%u%u: f32[w, w@tp] on @m{pp=%u}, %%v%u: f32[w@tp, w] on @m{pp=%u}",
                      p ? ", " : "", p, p, p, p);
    ds_buf_put(out, ", %x0: f32[b@dp, w] on @m{pp=0}, %side: f32[1000000] on @o) {\n");
    ds_buf_printf(out, "  %%side1 = permute(%%side) over %s\n  %%side2 = permute(%%side) over %s\n",
                  draw(s, 4) ? "y" : "x", draw(s, 2) ? "x" : "y");
    for (uint32_t p = 0; p < pp; p++) {
        ds_buf_printf(out, "  %%h%u, %%k%u = for l in 0..layers carry (%%c%u = %%x%u) {\n", p, p, p,
                      p);
        ds_buf_printf(out, "    %%z = matmul(%%c%u, %%u%u)\n    %%a = relu(%%z)\n", p, p);
        if (draw(s, 2)) /* a second reader of z: relu may not take its buffer the first time */
            ds_buf_put(out, "    %e = relu(%z)\n    %o = add(%e, %a)\n");
        ds_buf_printf(out, "    %%y = matmul(%%a, %%v%u)\n    %%r = all_reduce(%%y) over tp\n", p);
        if (draw(s, 2))
            ds_buf_put(out, "    %g = all_gather(%a) over tp dim 1\n    %q = relu(%g)\n");
        ds_buf_put(out, "    yield %r keep %a\n  }\n");
        ds_buf_printf(out, "  %%dw%u = einsum(%%x%u, %%h%u) {rule = \"b k, b n -> k n\"}\n", p, p,
                      p);
        if (draw(s, 2))
            ds_buf_printf(out, "  %%s%u = all_reduce(%%dw%u) over dp\n", p, p);
        else
            ds_buf_printf(out, "  %%s%u = reduce_scatter(%%dw%u) over dp dim 0\n", p, p);
        ds_buf_printf(out, "  %%x%u = send(%%h%u) to @m{pp=%u}\n", p + 1, p, (p + 1) % pp);
    }
    ds_buf_put(out, "  return\n}\nscenario { program = @main }\n");
}

void random_program(uint64_t seed, ds_buf *text) {
    shape s = {seed, 0};
    uint32_t pp = 1 + draw(&s, 3), dp = 1 + draw(&s, 4), tp = 1 + draw(&s, 4);
    topology(&s, pp * dp, tp, text);
    program(&s, pp, dp, tp, text);
}

/* ---- clusters ---- */

typedef struct cluster {
    uint32_t units, nodes, gpus, nics, spines;
} cluster;

static void declare(const cluster *c, bool cable, ds_buf *out) {
    ds_buf_printf(out,
                  "dir 1\ntopology @node {\n  device gpu[%u] : \"A100-SXM4-80GB\"\n  switch sw\n"
                  "  nic nic[%u]\n  link gpu[i] -- sw : 20 GB/s, 1 us for i in 0..%u\n"
                  "  link gpu[i] -- nic[i %% %u] : 9 GB/s, 1 us for i in 0..%u\n}\n",
                  c->gpus, c->nics, c->gpus, c->nics, c->gpus);
    ds_buf_printf(out,
                  "topology @unit {\n  node n[%u] : @node\n  switch leaf[%u]\n"
                  "  link n[i].nic[r] -- leaf[r] : 10 GB/s, 2 us for i in 0..%u, r in 0..%u\n}\n",
                  c->nodes, c->nics, c->nodes, c->nics);
    ds_buf_printf(out,
                  "topology @t {\n  node u[%u] : @unit\n  switch spine[%u]\n"
                  "  link u[i].leaf[r] -- spine[s] : 6 GB/s, 2 us for i in 0..%u, r in 0..%u, s in "
                  "0..%u\n",
                  c->units, c->spines, c->units, c->nics, c->spines);
    if (cable) /* past the leaf, from one node */
        ds_buf_printf(out, "  link u[%u].n[%u].nic[0] -- spine[%u] : 6 GB/s, 2 us\n", c->units - 1,
                      c->nodes / 2, c->spines - 1);
    ds_buf_put(out, "}\n");
}

static void degrade(shape *s, const cluster *c, ds_buf *out) {
    uint32_t u = draw(s, c->units), n = draw(s, c->nodes), g = draw(s, c->gpus);
    uint32_t r = draw(s, c->nics), p = draw(s, c->spines);
    switch (draw(s, 5)) {
    case 0:
        ds_buf_printf(out, "degrade u[%u].n[%u].gpu[%u] compute = 0.8, memory = 0.8\n", u, n, g);
        break;
    case 1:
        ds_buf_printf(out, "degrade u[%u].n[%u].gpu[%u] -- u[%u].n[%u].sw bandwidth = 0.5\n", u, n,
                      g, u, n);
        break;
    case 2:
        ds_buf_printf(out, "degrade u[%u].leaf[%u] -- spine[%u] bandwidth = 0.3\n", u, r, p);
        break;
    case 3:
        ds_buf_printf(out, "degrade u[%u].n[%u].nic[%u] -- u[%u].leaf[%u] latency = 3\n", u, n, r,
                      u, r);
        break;
    default:
        if (c->spines > 1)
            ds_buf_printf(out, "degrade u[%u].leaf[%u] -- spine[%u] bandwidth = 0\n", u, r, p);
    }
}

/* Coordinates on pp, dp and tp with the product of a cluster's sizes. */
static uint32_t part_of(shape *s, uint32_t *rest, uint32_t most) {
    uint32_t part = 1;
    while (*rest % 2 == 0 && part < most && draw(s, 3)) {
        part *= 2;
        *rest /= 2;
    }
    return part;
}

void random_cluster(uint64_t seed, ds_buf *text) {
    shape s = {seed, 0};
    uint32_t large = seed % 16 == 0; /* 256 or 512 devices */
    cluster c = {.units = large ? 4u : 1u << draw(&s, 3), .gpus = large ? 8u : 1u << draw(&s, 3)};
    c.nodes = large ? 8u << draw(&s, 2) : 1 + draw(&s, 4);
    c.nics = draw(&s, 2) ? c.gpus : 1;
    c.spines = 1 + draw(&s, 3);
    declare(&c, draw(&s, 6) == 0, text);
    if (draw(&s, 2)) degrade(&s, &c, text);
    uint32_t rest = c.units * c.nodes * c.gpus;
    uint32_t tp = part_of(&s, &rest, 8), pp = part_of(&s, &rest, 4);
    program(&s, pp, rest, tp, text);
}
