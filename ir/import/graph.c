/* A device graph as a topology of the language, canonical as `distsim fmt` prints it.
 *
 * Links are written in the order they were made, so that a graph that came from a topology keeps
 * its numbers. A run of links between the same two groups, with the same figures and with indices
 * that go up one by one, becomes one loop:
 *
 *     link gpu[i] -- pci[i / 2] : 31 GB/s, 500 ns for i in 0..8
 *     link cpu[i] -- cpu[j] : 16 GB/s, 500 ns for i in 0..4, j in 0..4 where i < j */
#include "ir/import/graph_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS     100
#define MIN_RUN     3  /* shorter ones read better one by one */
#define MAX_DIVISOR 64 /* of an index in a loop; finding one costs as much a link */

void ds_graph__init(ds_graph *graph, ds_arena *arena) {
    *graph = (ds_graph){.arena = arena};
    ds_strtab_init(&graph->names);
}

void ds_graph__deinit(ds_graph *graph) {
    ds_buf_deinit(&graph->notes);
    ds_map_deinit(&graph->taken);
    ds_strtab_deinit(&graph->names);
}

/* ---- names ---- */

/* Letters, digits and `_`, no digit first, no word of the language. */
static const char *valid_name(ds_arena *arena, const char *name, const char *otherwise) {
    static const char *const reserved[] = {"and",     "or",         "not",  "min",  "max",
                                           "ceildiv", "axis_index", "true", "false"};
    char *valid = ds_arena_printf(arena, "%.60s", name);
    for (char *c = valid; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!letter && (*c < '0' || *c > '9')) *c = '_';
    }
    if (!valid[strspn(valid, "_")]) return otherwise;
    bool prefixed = *valid >= '0' && *valid <= '9';
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        prefixed |= strcmp(valid, reserved[i]) == 0;
    return prefixed ? ds_arena_printf(arena, "n_%s", valid) : valid;
}

/* The name, or name_2, name_3, … */
static const char *fresh_name(ds_graph *graph, const char *name) {
    uint64_t base = DS_KEY(ds_intern(&graph->names, name));
    const uint64_t *next = ds_map_find(&graph->taken, base);
    if (!next) {
        ds_map_put(&graph->taken, base, 2);
        return name;
    }
    for (uint64_t i = *next;; i++) {
        const char *fresh = ds_arena_printf(graph->arena, "%s_%" PRIu64, name, i);
        uint64_t key = DS_KEY(ds_intern(&graph->names, fresh));
        if (ds_map_find(&graph->taken, key)) continue;
        ds_map_put(&graph->taken, base, i + 1);
        ds_map_put(&graph->taken, key, 2);
        return fresh;
    }
}

uint32_t ds_graph__group(ds_graph *graph, const char *name, ds_node_kind kind, const char *type,
                         bool single) {
    ds_graph_group group = {.name = fresh_name(graph, valid_name(graph->arena, name, "n")),
                            .kind = kind,
                            .type = type,
                            .single = single};
    DS_PUSH(graph->arena, &graph->groups, group);
    return graph->groups.n - 1;
}

uint32_t ds_graph__node(ds_graph *graph, uint32_t group) {
    ds_graph_node node = {group, graph->groups.at[group].n++};
    DS_PUSH(graph->arena, &graph->nodes, node);
    return graph->nodes.n - 1;
}

void ds_graph__link(ds_graph *graph, uint32_t from, uint32_t to, int64_t bytes_per_s,
                    int64_t latency_ps, bool duplex) {
    ds_graph_link link = {from, to, bytes_per_s, latency_ps, 0, duplex};
    DS_PUSH(graph->arena, &graph->links, link);
}

/* ---- comments ---- */

static void put_wrapped(ds_buf *out, const char *text) {
    while (*text) {
        size_t width = COLUMNS - strlen("// "), n = strlen(text);
        if (n > width) {
            n = width;
            while (n && text[n] != ' ') n--;
            if (!n) n = width; /* one long word */
        }
        ds_buf_put(out, "// ");
        ds_buf_put_n(out, text, n);
        ds_buf_put(out, "\n");
        text += n;
        text += strspn(text, " ");
    }
}

void ds_graph__note(ds_graph *graph, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t size = n > 0 ? (size_t)n + 1 : 1;
    char *text = ds_arena_alloc(graph->arena, size);
    vsnprintf(text, size, format, again);
    va_end(again);
    put_wrapped(&graph->notes, text);
}

/* ---- figures ---- */

/* value / 10^digits in full, unless that has more digits than a double holds. */
static bool put_decimal(ds_buf *out, int64_t value, int digits, const char *unit) {
    int64_t scale = 1;
    for (int i = 0; i < digits; i++) scale *= 10;
    if (value < scale || value >= INT64_C(1000000000000000)) return false;
    ds_buf_printf(out, "%" PRId64, value / scale);
    if (value % scale) {
        ds_buf_printf(out, ".%0*" PRId64, digits, value % scale);
        while (out->text[out->n - 1] == '0') out->text[--out->n] = '\0';
    }
    ds_buf_printf(out, " %s", unit);
    return true;
}

void ds_graph__put_rate(ds_buf *out, int64_t bytes_per_s) {
    if (!put_decimal(out, bytes_per_s, 9, "GB/s") && !put_decimal(out, bytes_per_s, 6, "MB/s"))
        ds_buf_printf(out, "%" PRId64 " B/s", bytes_per_s);
}

void ds_graph__put_time(ds_buf *out, int64_t ps) {
    if (!put_decimal(out, ps, 9, "ms") && !put_decimal(out, ps, 6, "us") &&
        !put_decimal(out, ps, 3, "ns"))
        ds_buf_printf(out, "%" PRId64 " ps", ps);
}

/* ---- nodes ---- */

static bool has_index(const ds_graph_group *group) {
    return !group->single || group->n > 1;
}

static void print_group(const ds_graph_group *group, ds_buf *out) {
    static const char *const words[] = {"device", "switch", "nic", "host"};
    if (!group->n) return;
    ds_buf_printf(out, "  %s %s", words[group->kind], group->name);
    if (has_index(group)) ds_buf_printf(out, "[%" PRIu32 "]", group->n);
    if (group->type) {
        ds_buf_put(out, " : ");
        ds_buf_put_quoted(out, group->type);
    }
    if (group->forwards)
        ds_buf_printf(out, " {forward = %s", group->kind == DS_NODE_DEVICE ? "true" : "false");
    if (group->reduces) ds_buf_put(out, group->forwards ? ", reduce = true" : " {reduce = true");
    if (group->forwards || group->reduces) ds_buf_put(out, "}");
    ds_buf_put(out, "\n");
}

/* ---- links ---- */

static ds_graph_node end_of(const ds_graph *graph, uint32_t link, bool second) {
    const ds_graph_link *l = &graph->links.at[link];
    return graph->nodes.at[second ? l->to : l->from];
}

/* Same groups, same figures. */
static bool alike(const ds_graph *graph, uint32_t a, uint32_t b) {
    const ds_graph_link *x = &graph->links.at[a], *y = &graph->links.at[b];
    return x->bytes_per_s == y->bytes_per_s && x->latency_ps == y->latency_ps &&
           x->cap_bytes_per_s == y->cap_bytes_per_s && x->duplex == y->duplex &&
           end_of(graph, a, false).group == end_of(graph, b, false).group &&
           end_of(graph, a, true).group == end_of(graph, b, true).group;
}

/* How a run goes on: its first end is i (or stays), the second follows. */
typedef enum follow { STAYS, MOVES, DIVIDES } follow;
typedef struct run {
    uint32_t n;
    bool first_stays;
    follow second;
    uint32_t divisor;
} run;

/* The second end's index where the first's is a; DIVIDES counts in whole groups of the divisor. */
static int64_t second_at(const run *r, int64_t a0, int64_t b0, int64_t step) {
    switch (r->second) {
    case STAYS:
        return b0;
    case MOVES:
        return b0 + step;
    case DIVIDES:
        return b0 + (a0 + step) / r->divisor - a0 / r->divisor;
    }
    return b0;
}

static uint32_t run_length(const ds_graph *graph, uint32_t at, const run *r) {
    int64_t a0 = end_of(graph, at, false).index, b0 = end_of(graph, at, true).index;
    uint32_t n = 1;
    for (; at + n < graph->links.n && alike(graph, at, at + n); n++) {
        ds_graph_node a = end_of(graph, at + n, false), b = end_of(graph, at + n, true);
        if (a.index != a0 + (r->first_stays ? 0 : n) || b.index != second_at(r, a0, b0, n)) break;
    }
    return n;
}

/* How many links from here on have the second end of this one; at most MAX_DIVISOR. */
static uint32_t fan_in(const ds_graph *graph, uint32_t at) {
    uint32_t n = 1, b = end_of(graph, at, true).index;
    while (n < MAX_DIVISOR && at + n < graph->links.n && alike(graph, at, at + n) &&
           end_of(graph, at + n, true).index == b)
        n++;
    return n;
}

static run best_run(const ds_graph *graph, uint32_t at) {
    run ways[] = {{0, false, STAYS, 0},
                  {0, false, MOVES, 0},
                  {0, true, MOVES, 0},
                  {0, false, DIVIDES, fan_in(graph, at)}};
    run best = {1, true, STAYS, 0};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].second == DIVIDES && ways[i].divisor < 2) continue;
        ways[i].n = run_length(graph, at, &ways[i]);
        if (ways[i].n > best.n) best = ways[i];
    }
    return best;
}

/* Are the links from here on those of all pairs of the group, (0, 1), (0, 2) … (n-2, n-1)? */
static uint32_t all_pairs(const ds_graph *graph, uint32_t at) {
    uint32_t group = end_of(graph, at, false).group, n = graph->groups.at[group].n, k = at;
    if (n < MIN_RUN || end_of(graph, at, true).group != group) return 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++, k++)
            if (k >= graph->links.n || !alike(graph, at, k) || end_of(graph, k, false).index != i ||
                end_of(graph, k, true).index != j)
                return 0;
    return k - at;
}

/* "gpu[i / 2 + 1]": a node whose index is `index` plus `plus`; index NULL: plus alone. */
static void put_end(const ds_graph *graph, ds_graph_node node, const char *index, int64_t plus,
                    ds_buf *out) {
    const ds_graph_group *group = &graph->groups.at[node.group];
    ds_buf_put(out, group->name);
    if (!has_index(group)) return;
    ds_buf_putc(out, '[');
    if (index) ds_buf_put(out, index);
    if (!index)
        ds_buf_printf(out, "%" PRId64, plus);
    else if (plus)
        ds_buf_printf(out, " %c %" PRId64, plus < 0 ? '-' : '+', plus < 0 ? -plus : plus);
    ds_buf_putc(out, ']');
}

static void put_figures(const ds_graph_link *link, ds_buf *out) {
    ds_buf_put(out, " : ");
    ds_graph__put_rate(out, link->bytes_per_s);
    ds_buf_put(out, ", ");
    ds_graph__put_time(out, link->latency_ps);
    if (!link->cap_bytes_per_s) return;
    ds_buf_put(out, " {cap = ");
    ds_graph__put_rate(out, link->cap_bytes_per_s);
    ds_buf_put(out, "}");
}

/* `link A -- B : …`, with the ends' indices as the run has them. */
static void print_run(const ds_graph *graph, uint32_t at, const run *r, ds_buf *out) {
    const ds_graph_link *link = &graph->links.at[at];
    ds_graph_node a = end_of(graph, at, false), b = end_of(graph, at, true);
    int64_t lo = r->first_stays ? b.index : a.index;
    char quotient[32];
    snprintf(quotient, sizeof quotient, "i / %" PRIu32, r->divisor);
    ds_buf_put(out, "  link ");
    put_end(graph, a, r->first_stays ? NULL : "i", r->first_stays ? a.index : 0, out);
    ds_buf_put(out, link->duplex ? " -- " : " -> ");
    if (r->second == STAYS)
        put_end(graph, b, NULL, b.index, out);
    else if (r->second == MOVES)
        put_end(graph, b, "i", b.index - lo, out);
    else
        put_end(graph, b, quotient, b.index - lo / r->divisor, out);
    put_figures(link, out);
    if (r->n > 1) ds_buf_printf(out, " for i in %" PRId64 "..%" PRId64, lo, lo + r->n);
    ds_buf_put(out, "\n");
}

static void print_all_pairs(const ds_graph *graph, uint32_t at, ds_buf *out) {
    const ds_graph_link *link = &graph->links.at[at];
    const ds_graph_group *group = &graph->groups.at[end_of(graph, at, false).group];
    ds_buf_printf(out, "  link %s[i] %s %s[j]", group->name, link->duplex ? "--" : "->",
                  group->name);
    put_figures(link, out);
    ds_buf_printf(out, " for i in 0..%" PRIu32 ", j in 0..%" PRIu32 " where i < j\n", group->n,
                  group->n);
}

static void print_links(const ds_graph *graph, ds_buf *out) {
    for (uint32_t at = 0; at < graph->links.n;) {
        uint32_t pairs = all_pairs(graph, at);
        run r = best_run(graph, at);
        if (pairs > r.n) {
            print_all_pairs(graph, at, out);
            at += pairs;
            continue;
        }
        if (r.n < MIN_RUN) r = (run){1, true, STAYS, 0};
        print_run(graph, at, &r, out);
        at += r.n;
    }
}

void ds_graph__print(const ds_graph *graph, const char *name, ds_buf *out) {
    ds_buf_put(out, "dir 1\n\n");
    if (graph->notes.n) ds_buf_put(out, graph->notes.text);
    ds_buf_printf(out, "topology @%s {\n", valid_name(graph->arena, name, "imported"));
    for (uint32_t i = 0; i < graph->groups.n; i++) print_group(&graph->groups.at[i], out);
    print_links(graph, out);
    ds_buf_put(out, "}\n");
}
