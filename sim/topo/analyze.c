/* Connectivity, bisection bandwidth and minimum cuts, with igraph.
 *
 * igraph is not thread-safe (its error handler and its stack of things to clean up are shared), so
 * every use is inside one mutex, with an error handler that returns codes instead of aborting. */
#include "ir/base/units.h"
#include "sim/topo/min_cut.h"
#include "sim/topo/tree.h"

#include <igraph.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t igraph_mutex = PTHREAD_MUTEX_INITIALIZER;

static igraph_error_handler_t *enter_igraph(void) {
    pthread_mutex_lock(&igraph_mutex);
    return igraph_set_error_handler(igraph_error_handler_ignore);
}

static void leave_igraph(igraph_error_handler_t *previous) {
    igraph_set_error_handler(previous);
    pthread_mutex_unlock(&igraph_mutex);
}

static ds_status igraph_failed(const ds_topo *topo, igraph_error_t code, ds_error *err) {
    if (code == IGRAPH_ENOMEM) ds_out_of_memory(0);
    return ds_error_set(err, DS_ERR_INTERNAL, topo->decl->loc, "igraph failed on @%s: %s",
                        topo->decl->name, igraph_strerror(code));
}

static bool forwards(const ds_topo *topo, uint32_t vertex) {
    return topo->root->flags[vertex] & DS_TOPO_FORWARDS;
}

/* ---- connectivity ---- */

/* Strongly connected components of the vertices that forward (others become components of their
 * own). component: [n_vertices]. */
static igraph_error_t find_components(const ds_topo *topo, uint32_t *component) {
    igraph_vector_int_t edges, membership;
    igraph_t graph;
    igraph_error_t code = igraph_vector_int_init(&edges, 0);
    if (code) return code;
    code = igraph_vector_int_reserve(&edges, 2 * (igraph_integer_t)topo->root->n_links);
    for (uint32_t i = 0; !code && i < topo->root->n_links; i++) {
        const ds_topo_link *link = &topo->links[i];
        if (!link->bytes_per_s || !forwards(topo, link->from) || !forwards(topo, link->to))
            continue;
        igraph_vector_int_push_back(&edges, link->from); /* reserved above */
        igraph_vector_int_push_back(&edges, link->to);
    }
    if (!code) code = igraph_create(&graph, &edges, topo->root->n_vertices, IGRAPH_DIRECTED);
    igraph_vector_int_destroy(&edges);
    if (code) return code;
    code = igraph_vector_int_init(&membership, 0);
    if (!code) {
        code = igraph_connected_components(&graph, &membership, NULL, NULL, IGRAPH_STRONG);
        for (uint32_t v = 0; !code && v < topo->root->n_vertices; v++) {
            component[v] = (uint32_t)VECTOR(membership)[v];
        }
        igraph_vector_int_destroy(&membership);
    }
    igraph_destroy(&graph);
    return code;
}

/* Does one component touch every device in both directions? Then any two devices are connected. */
static bool one_fabric(const ds_topo *topo, const uint32_t *component) {
    uint32_t n_vertices = topo->root->n_vertices, fabric = UINT32_MAX;
    for (uint32_t v = 0; v < n_vertices && fabric == UINT32_MAX; v++) {
        if (forwards(topo, v)) fabric = component[v];
    }
    if (fabric == UINT32_MAX) return false;
    uint8_t *touched = ds_xcalloc(n_vertices, 1); /* 1: leads in, 2: is led to */
    for (uint32_t v = 0; v < n_vertices; v++) {
        if (forwards(topo, v) && component[v] == fabric) touched[v] = 3;
    }
    for (uint32_t i = 0; i < topo->root->n_links; i++) {
        const ds_topo_link *link = &topo->links[i];
        if (!link->bytes_per_s) continue;
        if (forwards(topo, link->to) && component[link->to] == fabric) touched[link->from] |= 1;
        if (forwards(topo, link->from) && component[link->from] == fabric) touched[link->to] |= 2;
    }
    bool all = true;
    for (uint32_t d = 0; d < topo->root->n_devices; d++)
        all &= touched[topo->device_vertex[d]] == 3;
    free(touched);
    return all;
}

/* Links by their start, over the whole graph: out[start[v] .. start[v + 1]) are ends. */
static void flat_ends(const ds_topo *topo, uint32_t *start, uint32_t *out) {
    uint32_t n_links = topo->root->n_links, n_vertices = topo->root->n_vertices;
    for (uint32_t i = 0; i < n_links; i++)
        if (topo->links[i].bytes_per_s) start[topo->links[i].from + 2]++;
    for (uint32_t v = 0; v < n_vertices; v++) start[v + 2] += start[v + 1];
    for (uint32_t i = 0; i < n_links; i++) {
        if (!topo->links[i].bytes_per_s) continue;
        out[start[topo->links[i].from + 1]++] = topo->links[i].to;
    }
}

/* The first device, in order, that device `a` cannot reach; UINT32_MAX if it reaches all. */
static uint32_t first_unreached(const ds_topo *topo, uint32_t a, const uint32_t *start,
                                const uint32_t *out, uint32_t *seen, uint32_t *queue) {
    uint32_t source = topo->device_vertex[a], mark = a + 1, n = 0;
    queue[n++] = source;
    seen[source] = mark;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t v = queue[at];
        if (v != source && !forwards(topo, v)) continue;
        for (uint32_t i = start[v]; i < start[v + 1]; i++) {
            if (seen[out[i]] == mark) continue;
            seen[out[i]] = mark;
            queue[n++] = out[i];
        }
    }
    for (uint32_t b = 0; b < topo->root->n_devices; b++) {
        if (seen[topo->device_vertex[b]] != mark) return b;
    }
    return UINT32_MAX;
}

/* Device by device; needed only where the fabric is not one component, or there is none. */
static bool all_reach_all(const ds_topo *topo, uint32_t *a, uint32_t *b) {
    uint32_t n_vertices = topo->root->n_vertices;
    uint32_t *start = ds_xcalloc(n_vertices + 2, sizeof *start);
    uint32_t *out = ds_xcalloc(topo->root->n_links + 1, sizeof *out);
    uint32_t *seen = ds_xcalloc(n_vertices, sizeof *seen);
    uint32_t *queue = ds_xcalloc(n_vertices, sizeof *queue);
    flat_ends(topo, start, out);
    *b = UINT32_MAX;
    for (*a = 0; *a < topo->root->n_devices; ++*a) {
        *b = first_unreached(topo, *a, start, out, seen, queue);
        if (*b != UINT32_MAX) break;
    }
    free(start);
    free(out);
    free(seen);
    free(queue);
    return *b == UINT32_MAX;
}

ds_status ds_topo_connected(ds_topo *topo, bool *connected, uint32_t *a, uint32_t *b,
                            ds_error *err) {
    *a = *b = 0;
    uint32_t *component = ds_xcalloc(topo->root->n_vertices, sizeof *component);
    igraph_error_handler_t *previous = enter_igraph();
    igraph_error_t code = find_components(topo, component);
    leave_igraph(previous);
    if (!code) *connected = one_fabric(topo, component) || all_reach_all(topo, a, b);
    free(component);
    return code ? igraph_failed(topo, code, err) : DS_OK;
}

/* ---- bisection ---- */

/* Vertices of the flow problem: the halves' devices shrink to one vertex each. A device in the
 * source half needs no traffic through it, for what comes out may as well start there; the
 * same holds at the other end. So whether devices forward makes no difference here. */
enum { SOURCE, SINK, FIRST_OTHER };

typedef struct pipe {
    uint32_t from, to;
    int64_t bytes_per_s;
} pipe;

static int by_ends(const void *a, const void *b) {
    const pipe *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* The pipes of the flow problem, parallel ones collapsed. False if a sum leaves int64. */
static bool collect_pipes(const ds_topo *topo, pipe **out, uint32_t *n_out) {
    uint32_t half = topo->root->n_devices / 2;
    uint32_t *role = ds_xcalloc(topo->root->n_vertices, sizeof *role);
    for (uint32_t v = 0; v < topo->root->n_vertices; v++) role[v] = FIRST_OTHER + v;
    for (uint32_t d = 0; d < topo->root->n_devices; d++) {
        role[topo->device_vertex[d]] = d < half ? SOURCE : SINK;
    }
    pipe *pipes = *out = ds_xcalloc(topo->root->n_links + 1, sizeof *pipes);
    uint32_t n = 0;
    for (uint32_t i = 0; i < topo->root->n_links; i++) {
        const ds_topo_link *link = &topo->links[i];
        pipe p = {role[link->from], role[link->to], link->bytes_per_s};
        bool blocked = !p.bytes_per_s || (p.from >= FIRST_OTHER && !forwards(topo, link->from)) ||
                       (p.to >= FIRST_OTHER && !forwards(topo, link->to));
        if (blocked || p.from == p.to || p.from == SINK || p.to == SOURCE) continue;
        pipes[n++] = p;
    }
    free(role);
    qsort(pipes, n, sizeof *pipes, by_ends);
    bool fits = true;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept && by_ends(&pipes[kept - 1], &pipes[i]) == 0) {
            fits &= !__builtin_add_overflow(pipes[kept - 1].bytes_per_s, pipes[i].bytes_per_s,
                                            &pipes[kept - 1].bytes_per_s);
        } else {
            pipes[kept++] = pipes[i];
        }
    }
    *n_out = kept;
    return fits;
}

/* igraph computes in doubles: with capacities in units of their greatest common divisor, all sums
 * are exact integers below 2^53. False if they would not be. */
static bool choose_unit(const pipe *pipes, uint32_t n, int64_t *unit) {
    *unit = 0;
    for (uint32_t i = 0; i < n; i++) *unit = ds_common_divisor(*unit, pipes[i].bytes_per_s);
    int64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(total, pipes[i].bytes_per_s / *unit, &total)) return false;
    }
    return total <= INT64_C(1) << 53;
}

static igraph_error_t max_flow(const ds_topo *topo, const pipe *pipes, uint32_t n, int64_t unit,
                               igraph_real_t *value) {
    igraph_vector_int_t edges;
    igraph_vector_t capacity;
    igraph_t graph;
    igraph_error_t code = igraph_vector_int_init(&edges, 2 * (igraph_integer_t)n);
    if (code) return code;
    code = igraph_vector_init(&capacity, n);
    if (code) {
        igraph_vector_int_destroy(&edges);
        return code;
    }
    for (uint32_t i = 0; i < n; i++) {
        VECTOR(edges)[2 * i] = pipes[i].from;
        VECTOR(edges)[2 * i + 1] = pipes[i].to;
        VECTOR(capacity)[i] = (igraph_real_t)(pipes[i].bytes_per_s / unit);
    }
    code = igraph_create(&graph, &edges, (igraph_integer_t)topo->root->n_vertices + FIRST_OTHER,
                         IGRAPH_DIRECTED);
    if (!code) {
        code = igraph_maxflow_value(&graph, value, SOURCE, SINK, &capacity, NULL);
        igraph_destroy(&graph);
    }
    igraph_vector_destroy(&capacity);
    igraph_vector_int_destroy(&edges);
    return code;
}

ds_status ds_topo_bisection(ds_topo *topo, int64_t *bytes_per_s, ds_error *err) {
    *bytes_per_s = 0;
    if (topo->root->n_devices < 2) {
        return ds_error_set(err, DS_ERR_VALUE, topo->decl->loc,
                            "@%s has %u device: there is nothing to bisect", topo->decl->name,
                            topo->root->n_devices);
    }
    pipe *pipes;
    uint32_t n;
    int64_t unit = 1;
    bool fits = collect_pipes(topo, &pipes, &n) && (n == 0 || choose_unit(pipes, n, &unit));
    igraph_real_t value = 0;
    igraph_error_t code = IGRAPH_SUCCESS;
    if (fits && n > 0) {
        igraph_error_handler_t *previous = enter_igraph();
        code = max_flow(topo, pipes, n, unit, &value);
        leave_igraph(previous);
    }
    free(pipes);
    if (code) return igraph_failed(topo, code, err);
    if (fits) fits = !__builtin_mul_overflow((int64_t)value, unit, bytes_per_s);
    if (fits) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, topo->decl->loc,
                        "the bandwidths of @%s do not add up within 2^53 units", topo->decl->name);
}

/* ---- minimum cuts ---- */

static igraph_error_t cut(const igraph_vector_int_t *edges, const igraph_vector_t *capacity,
                          uint32_t n_vertices, bool *is_behind) {
    igraph_vector_int_t behind;
    igraph_t graph;
    igraph_real_t value;
    igraph_error_t code = igraph_vector_int_init(&behind, 0);
    if (code) return code;
    code = igraph_create(&graph, edges, n_vertices, IGRAPH_DIRECTED);
    if (!code) {
        /* The second part is found from the sink, backwards over arcs with room: the least set. */
        code = igraph_maxflow(&graph, &value, NULL, NULL, NULL, &behind, DS_MIN_CUT_SOURCE,
                              DS_MIN_CUT_SINK, capacity, NULL);
        igraph_destroy(&graph);
    }
    for (uint32_t v = 0; v < n_vertices; v++) is_behind[v] = false;
    for (igraph_integer_t i = 0; !code && i < igraph_vector_int_size(&behind); i++)
        is_behind[VECTOR(behind)[i]] = true;
    igraph_vector_int_destroy(&behind);
    return code;
}

static igraph_error_t cut_units(const ds_min_cut_arc *arc, uint32_t n_arcs, const int64_t *units,
                                uint32_t n_vertices, bool *is_behind) {
    igraph_vector_int_t edges;
    igraph_vector_t capacity;
    igraph_error_t code = igraph_vector_int_init(&edges, 2 * (igraph_integer_t)n_arcs);
    if (code) return code;
    code = igraph_vector_init(&capacity, n_arcs);
    if (!code) {
        for (uint32_t i = 0; i < n_arcs; i++) {
            VECTOR(edges)[2 * i] = arc[i].from;
            VECTOR(edges)[2 * i + 1] = arc[i].to;
            VECTOR(capacity)[i] = (igraph_real_t)units[i];
        }
        code = cut(&edges, &capacity, n_vertices, is_behind);
        igraph_vector_destroy(&capacity);
    }
    igraph_vector_int_destroy(&edges);
    return code;
}

/* units[n_arcs] as min_cut.h says; false if the sums are beyond 2^53. */
static bool cut_capacities(const ds_min_cut_arc *arc, uint32_t n_arcs, int64_t *units) {
    ds_i128 into_sink = 0, most = (ds_i128)1 << 53;
    int64_t unit = 0;
    for (uint32_t i = 0; i < n_arcs; i++)
        if (arc[i].to == DS_MIN_CUT_SINK) into_sink += arc[i].capacity;
    for (uint32_t i = 0; i < n_arcs; i++)
        if (arc[i].capacity <= into_sink) unit = ds_common_divisor(unit, arc[i].capacity);
    if (!unit) unit = 1;
    if (into_sink / unit > most || into_sink >= DS_MIN_CUT_NEVER) return false;
    ds_i128 out_of_source = 0;
    for (uint32_t i = 0; i < n_arcs; i++) {
        ds_i128 capacity = arc[i].capacity < into_sink ? arc[i].capacity : into_sink;
        units[i] = (int64_t)(capacity / unit);
        if (arc[i].from == DS_MIN_CUT_SOURCE) out_of_source += units[i];
    }
    return out_of_source <= most;
}

ds_status ds_min_cut(const ds_min_cut_arc *arc, uint32_t n_arcs, uint32_t n_vertices,
                     bool *is_behind, ds_error *err) {
    int64_t *units = ds_xmalloc(((size_t)n_arcs + 1) * sizeof *units);
    bool fits = cut_capacities(arc, n_arcs, units);
    igraph_error_t code = IGRAPH_SUCCESS;
    if (fits) {
        igraph_error_handler_t *previous = enter_igraph();
        code = cut_units(arc, n_arcs, units, n_vertices, is_behind);
        leave_igraph(previous);
    }
    free(units);
    if (code == IGRAPH_ENOMEM) ds_out_of_memory(0);
    if (code)
        return ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE, "igraph failed on a minimum cut: %s",
                            igraph_strerror(code));
    if (fits) return DS_OK;
    return ds_error_set(
        err, DS_ERR_LIMIT, DS_NOWHERE,
        "the capacities of a minimum cut of %u arcs do not add up within 2^53 units", n_arcs);
}
