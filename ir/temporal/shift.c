/* Difference constraints c[to] - c[from] >= lag: the earliest solution, and the solution of least
 * weight. */
#include "ir/temporal/internal.h"

bool ds_temporal__earliest(const ds_temporal__arcs *arcs, uint32_t n, int64_t *c) {
    for (uint32_t i = 0; i < n; i++) c[i] = 0;
    for (uint32_t round = 0; round <= n; round++) {
        bool changed = false;
        for (uint32_t a = 0; a < arcs->n; a++) {
            const ds_temporal__arc *arc = &arcs->at[a];
            if (c[arc->to] >= c[arc->from] + arc->lag) continue;
            c[arc->to] = c[arc->from] + arc->lag;
            changed = true;
        }
        if (!changed) return true;
    }
    return false;
}

/* A flow from nodes with too much to nodes with too little, at greatest length. Arcs have room
 * without end; an arc with flow may be walked back. */
typedef struct flow {
    const ds_temporal__arcs *arcs;
    uint32_t n;
    int64_t *sent;   /* [arcs] */
    int64_t *length; /* [n]: of the longest path from the root */
    uint32_t *by; /* [n]: the step into the node: 2*arc, or 2*arc + 1 backward; UINT32_MAX: root */
    bool *reached;
} flow;

static bool relax(flow *f, uint32_t from, uint32_t to, int64_t lag, uint32_t step) {
    if (!f->reached[from]) return false;
    if (f->reached[to] && f->length[to] >= f->length[from] + lag) return false;
    f->reached[to] = true;
    f->length[to] = f->length[from] + lag;
    f->by[to] = step;
    return true;
}

/* Longest paths from the nodes that are marked as reached; the residual graph has no cycle of
 * positive length. */
static void longest(flow *f) {
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t a = 0; a < f->arcs->n; a++) {
            const ds_temporal__arc *arc = &f->arcs->at[a];
            if (relax(f, arc->from, arc->to, arc->lag, 2 * a)) changed = true;
            if (f->sent[a] > 0 && relax(f, arc->to, arc->from, -arc->lag, 2 * a + 1))
                changed = true;
        }
    }
}

static uint32_t step_back(const flow *f, uint32_t node) {
    const ds_temporal__arc *arc = &f->arcs->at[f->by[node] / 2];
    return f->by[node] % 2 ? arc->to : arc->from;
}

/* Sends as much as fits along the path from `root` to `to`. */
static int64_t augment(flow *f, uint32_t root, uint32_t to, int64_t most) {
    for (uint32_t v = to; v != root; v = step_back(f, v))
        if (f->by[v] % 2 && f->sent[f->by[v] / 2] < most) most = f->sent[f->by[v] / 2];
    for (uint32_t v = to; v != root; v = step_back(f, v))
        f->sent[f->by[v] / 2] += f->by[v] % 2 ? -most : most;
    return most;
}

void ds_temporal__least(const ds_temporal__arcs *arcs, uint32_t n, const int64_t *weight,
                        ds_arena *arena, int64_t *c) {
    flow f = {.arcs = arcs,
              .n = n,
              .sent = DS_NEW_N(arena, int64_t, arcs->n + 1),
              .length = c,
              .by = DS_NEW_N(arena, uint32_t, n + 1),
              .reached = DS_NEW_N(arena, bool, n + 1)};
    int64_t *left = DS_NEW_N(arena, int64_t, n + 1); /* > 0: still wanted, < 0: still to be sent */
    for (uint32_t i = 0; i < n; i++) left[i] = weight[i];
    for (uint32_t root = 0; root < n; root++)
        while (left[root] < 0) {
            for (uint32_t i = 0; i < n; i++) f.reached[i] = i == root, c[i] = 0;
            longest(&f);
            uint32_t to = n;
            for (uint32_t i = 0; i < n && to == n; i++)
                if (f.reached[i] && left[i] > 0) to = i;
            if (to == n) break; /* the caller's promise is broken: the rest stays where it is */
            int64_t sent = augment(&f, root, to, left[to] < -left[root] ? left[to] : -left[root]);
            left[root] += sent;
            left[to] -= sent;
        }
    /* The lengths from a root before all nodes meet every arc, with equality where flow runs. */
    for (uint32_t i = 0; i < n; i++) f.reached[i] = true, c[i] = 0;
    longest(&f);
}
