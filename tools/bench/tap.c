/* Search that does not grow with depth (search/tap), beside the programme on the whole graph, and
 * beside methods that know nothing of the structure: plain enumeration, which adds up each strategy
 * by itself; one that shares the sums of beginnings; the same with what is left costs at least as a
 * bound; and an integer programme as Alpa states it (Zheng et al., OSDI 2022,
 * section 4.2: one binary variable a configuration, one variable a pair of configurations of an
 * edge), solved by COIN-OR's cbc if that is installed. Prints Markdown tables: CPU seconds of one
 * thread, the best of a few runs, search alone (reading and hashing of the graph apart). All costs
 * are compared. Arguments: seconds after which a method is given up (10). */
#define _GNU_SOURCE
#include "search/tap/tap.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "search/pase/costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check(ds_status status, const ds_error *err) {
    if (status) fail(err->message);
}

/* ---- models ---- */

typedef struct opened {
    ds_unit *unit;
    ds_binding binding;
    ds_model_step *step;
    ds_pase_graph *graph;
} opened;

static void open_model(const char *file, const char *func, const char *settings, opened *o) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_load_options options = {.include_dirs = include, .n_include_dirs = 1};
    ds_error err = {0};
    ds_diags diags;
    char text[1024];
    ds_diags_init(&diags);
    int n = snprintf(text, sizeof text,
                     "dir 1\nimport \"models/%s.dir\" as m with %s\n"
                     "import \"topologies/dgx-a100.dir\"\n"
                     "scenario { model = @m.%s, on = @dgx_a100, train { optimizer = sgd%s } }\n",
                     file, settings, func, strcmp(func, "mlp") == 0 ? ", loss = mse" : "");
    check(ds_load_text("tap.dir", text, (size_t)n, &options, &o->unit, &err), &err);
    if (ds_verify(o->unit, &diags) != DS_OK) fail("the model does not verify");
    check(ds_bind(o->unit, NULL, 0, &o->binding, &err), &err);
    if (ds_verify_bound(o->unit, &o->binding, &diags) != DS_OK) fail("the model does not verify");
    check(ds_model_step_new(&o->binding, &o->step, &err), &err);
    check(ds_pase_graph_read(o->step, &o->graph, &err), &err);
    ds_diags_deinit(&diags);
}

static void close_model(opened *o) {
    ds_pase_graph_free(o->graph);
    ds_model_step_free(o->step);
    ds_unit_free(o->unit);
}

/* ---- folded and unfolded ---- */

typedef struct times {
    double fold_s, tap_s, pase_s, cost;
} times;

static void time_tap(const ds_pase_graph *graph, ds_pase_model *model, int runs, times *t) {
    ds_pase_options options = {.max_table_bytes = 16e9};
    ds_error err = {0};
    t->fold_s = t->tap_s = INFINITY;
    double begin = seconds();
    for (int i = 0; i < runs && (i < 9 || seconds() < begin + 0.3); i++) {
        ds_tap_fold *fold;
        ds_pase_result *r;
        double start = seconds();
        check(ds_tap_fold_new(graph, model, &fold, &err), &err);
        double folded = seconds();
        check(ds_tap_search(fold, model, &options, &r, &err), &err);
        double end = seconds();
        t->fold_s = fmin(t->fold_s, folded - start);
        t->tap_s = fmin(t->tap_s, end - folded);
        t->cost = r->node_cost + r->edge_cost;
        ds_pase_result_free(r);
        ds_tap_fold_free(fold);
    }
}

static void time_pase(const ds_pase_graph *graph, ds_pase_model *model, times *t) {
    ds_pase_options options = {.max_table_bytes = 16e9};
    ds_error err = {0};
    t->pase_s = INFINITY;
    double begin = seconds();
    for (int i = 0; i < 99 && (i < 3 || seconds() < begin + 0.3); i++) {
        ds_pase_result *r;
        double start = seconds();
        check(ds_pase_search(graph, model, &options, &r, &err), &err);
        t->pase_s = fmin(t->pase_s, seconds() - start);
        if (r->node_cost + r->edge_cost != t->cost) fail("folded and unfolded differ");
        ds_pase_result_free(r);
        if (t->pase_s > 5) break;
    }
}

static void bench_depths(const char *file, const char *func, const char *size, int64_t devices,
                         const ds_profiles *profiles) {
    static const int layers[] = {4, 12, 24, 48, 96};
    double first = 0;
    printf("\n%s, %lld devices, costs %s\n\n", file, (long long)devices,
           profiles ? "distsim's" : "PaSE's");
    printf("| layers | operations | searched | folding | TAP | whole graph | ratio | growth |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char settings[256];
        opened o = {0};
        ds_pase_model *model;
        ds_tap_fold *fold;
        ds_error err = {0};
        times t;
        snprintf(settings, sizeof settings, "layers = %d, %s", layers[i], size);
        open_model(file, func, settings, &o);
        if (profiles)
            check(ds_pase_costs_new(&o.binding, o.step, profiles, devices, 1, &model, &err), &err);
        else
            model = ds_pase_formulas_new(devices, 1, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
        check(ds_tap_fold_new(o.graph, model, &fold, &err), &err);
        time_tap(o.graph, model, 99, &t);
        time_pase(o.graph, model, &t);
        if (i == 0) first = t.tap_s;
        printf("| %d | %u | %u | %.4f | %.4f | %.4f | %.1f | %.2f |\n", layers[i], o.graph->nodes.n,
               fold->n_unique, t.fold_s, t.tap_s, t.pase_s, t.pase_s / t.tap_s, t.tap_s / first);
        fflush(stdout);
        ds_tap_fold_free(fold);
        model->free(model);
        close_model(&o);
    }
}

/* ---- without structure ---- */

typedef struct blind {
    const ds_pase_graph *graph;
    ds_arena arena;
    ds_pase_configs *sets;
    double **node, **edge;
    double *rest; /* per node: what it, those behind it and their edges to before cost at least */
    uint32_t *at;
    bool bounded;
    double least, stop_s;
    uint64_t visits;
    bool gave_up;
} blind;

static void blind_init(blind *b, const ds_pase_graph *graph, ds_pase_model *model) {
    ds_error err = {0};
    uint32_t n = graph->nodes.n;
    *b = (blind){.graph = graph};
    ds_arena_init(&b->arena);
    b->sets = DS_NEW_N(&b->arena, ds_pase_configs, n);
    b->node = DS_NEW_N(&b->arena, double *, n);
    b->edge = DS_NEW_N(&b->arena, double *, graph->edges.n + 1);
    b->rest = DS_NEW_N(&b->arena, double, n + 1);
    b->at = DS_NEW_N(&b->arena, uint32_t, n);
    for (uint32_t v = 0; v < n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        check(ds_pase_enumerate(node, &model->limits, &b->arena, &b->sets[v], &err), &err);
        b->node[v] = DS_NEW_N(&b->arena, double, b->sets[v].n);
        check(model->node(model, node, &b->sets[v], b->node[v], &err), &err);
        double least = INFINITY;
        for (uint32_t c = 0; c < b->sets[v].n; c++) least = fmin(least, b->node[v][c]);
        b->rest[v] = least;
    }
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        const ds_pase_configs *from = &b->sets[edge->from], *to = &b->sets[edge->to];
        if (!ds_pase_counts(model, edge)) continue;
        b->edge[e] = DS_NEW_N(&b->arena, double, (size_t)from->n * to->n);
        check(model->edge(model, edge, from, to, b->edge[e], &err), &err);
    }
    for (uint32_t v = n; v-- > 0;) b->rest[v] += b->rest[v + 1]; /* edges cost 0 at least */
}

/* The node's cost and those of its edges to nodes before it. */
static double step_cost(const blind *b, uint32_t v, uint32_t *edge) {
    double cost = b->node[v][b->at[v]];
    uint32_t e = *edge;
    for (; e < b->graph->edges.n && b->graph->edges.at[e].to == v; e++) {
        const ds_pase_edge *at = &b->graph->edges.at[e];
        if (b->edge[e]) cost += b->edge[e][b->at[at->from] * b->sets[v].n + b->at[v]];
    }
    return cost;
}

static void walk(blind *b, uint32_t v, uint32_t edge, double cost) {
    if ((++b->visits & 0xffff) == 0 && seconds() > b->stop_s) b->gave_up = true;
    if (b->gave_up || (b->bounded && cost + b->rest[v] >= b->least)) return;
    if (v == b->graph->nodes.n) {
        b->least = fmin(b->least, cost);
        return;
    }
    uint32_t next = edge;
    while (next < b->graph->edges.n && b->graph->edges.at[next].to == v) next++;
    for (b->at[v] = 0; b->at[v] < b->sets[v].n && !b->gave_up; b->at[v]++)
        walk(b, v + 1, next, cost + step_cost(b, v, &edge));
}

static double cost_of(const blind *b) {
    double cost = 0;
    for (uint32_t v = 0; v < b->graph->nodes.n; v++) cost += b->node[v][b->at[v]];
    for (uint32_t e = 0; e < b->graph->edges.n; e++) {
        const ds_pase_edge *at = &b->graph->edges.at[e];
        if (b->edge[e]) cost += b->edge[e][b->at[at->from] * b->sets[at->to].n + b->at[at->to]];
    }
    return cost;
}

static void enumerate(blind *b) {
    uint32_t n = b->graph->nodes.n, v = 0;
    memset(b->at, 0, n * sizeof *b->at);
    while (v < n) {
        if ((++b->visits & 0xffff) == 0 && seconds() > b->stop_s) {
            b->gave_up = true;
            return;
        }
        b->least = fmin(b->least, cost_of(b));
        for (v = 0; v < n && ++b->at[v] == b->sets[v].n; v++) b->at[v] = 0;
    }
}

typedef enum way { PLAIN, SHARED, BOUNDED } way;

static double run_blind(blind *b, way how, double seconds_most) {
    double start = seconds();
    b->bounded = how == BOUNDED;
    b->least = INFINITY;
    b->gave_up = false;
    b->visits = 0;
    b->stop_s = start + seconds_most;
    if (how == PLAIN)
        enumerate(b);
    else
        walk(b, 0, 0, 0);
    return seconds() - start;
}

static void print_blind(blind *b, way how, double seconds_most, const times *t) {
    double took = run_blind(b, how, seconds_most);
    for (int i = 0; i < 8 && took < 0.01; i++) took = fmin(took, run_blind(b, how, seconds_most));
    if (b->gave_up) {
        printf(" given up |");
        return;
    }
    if (fabs(b->least - t->cost) > 1e-9 * t->cost) fail("blind search and TAP differ");
    printf(" %.6f (%.0f x) |", took, took / t->tap_s);
}

/* ---- an integer programme ---- */

/* Costs in units of 10^-6 of the whole, which solvers like better than FLOPs. */
static void write_programme(const blind *b, double unit, FILE *f) {
    const ds_pase_graph *graph = b->graph;
    fprintf(f, "\\ search\nMinimize\n cost:");
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        for (uint32_t c = 0; c < b->sets[v].n; c++)
            fprintf(f, " + %.12g s%u_%u\n", b->node[v][c] / unit, v, c);
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        uint32_t n = b->sets[graph->edges.at[e].from].n, m = b->sets[graph->edges.at[e].to].n;
        for (uint32_t i = 0; b->edge[e] && i < n * m; i++)
            if (b->edge[e][i] != 0)
                fprintf(f, " + %.12g e%u_%u_%u\n", b->edge[e][i] / unit, e, i / m, i % m);
    }
    fprintf(f, "Subject To\n");
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        for (uint32_t c = 0; c < b->sets[v].n; c++) fprintf(f, " + s%u_%u\n", v, c);
        fprintf(f, " = 1\n");
    }
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        uint32_t u = graph->edges.at[e].from, v = graph->edges.at[e].to;
        for (uint32_t i = 0; b->edge[e] && i < b->sets[u].n; i++) {
            for (uint32_t k = 0; k < b->sets[v].n; k++) fprintf(f, " + e%u_%u_%u\n", e, i, k);
            fprintf(f, " - s%u_%u = 0\n", u, i);
        }
        for (uint32_t k = 0; b->edge[e] && k < b->sets[v].n; k++) {
            for (uint32_t i = 0; i < b->sets[u].n; i++) fprintf(f, " + e%u_%u_%u\n", e, i, k);
            fprintf(f, " - s%u_%u = 0\n", v, k);
        }
    }
    fprintf(f, "Binary\n");
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        for (uint32_t c = 0; c < b->sets[v].n; c++) fprintf(f, " s%u_%u\n", v, c);
    fprintf(f, "End\n");
}

static double children_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_CHILDREN, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static void print_programme(const blind *b, double seconds_most, const times *t) {
    char folder[] = "/tmp/bench-tap-XXXXXX", path[64], answer[64], command[256], line[256] = "";
    if (!mkdtemp(folder)) fail("no folder in /tmp");
    snprintf(path, sizeof path, "%s/in.lp", folder);
    snprintf(answer, sizeof answer, "%s/out", folder);
    snprintf(command, sizeof command, "cbc %s -sec %.0f -solve -solution %s >/dev/null 2>&1", path,
             seconds_most, answer);
    FILE *f = fopen(path, "w");
    if (!f) fail("cannot write in /tmp");
    double unit = t->cost * 1e-6, value = 0, start = children_seconds();
    write_programme(b, unit, f);
    fclose(f);
    int rc = system(command);
    double took = children_seconds() - start;
    f = fopen(answer, "r");
    bool solved = rc == 0 && f && fgets(line, sizeof line, f) &&
                  sscanf(line, "Optimal - objective value %lf", &value) == 1;
    if (f) fclose(f);
    remove(path);
    remove(answer);
    remove(folder);
    if (!solved) {
        printf(rc == 0 ? " given up |" : " no cbc |");
        return;
    }
    if (fabs(value * unit - t->cost) > 1e-6 * t->cost) fail("integer programme and TAP differ");
    printf(" %.3f (%.0f x) |", took, took / t->tap_s);
}

static void bench_blind(const char *file, const char *func, const char *settings, int64_t devices,
                        double seconds_most) {
    opened o = {0};
    times t;
    blind b;
    open_model(file, func, settings, &o);
    ds_pase_model *model =
        ds_pase_formulas_new(devices, 1, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
    time_tap(o.graph, model, 99, &t);
    blind_init(&b, o.graph, model);
    double digits = 0;
    for (uint32_t v = 0; v < o.graph->nodes.n; v++) digits += log10(b.sets[v].n);
    printf("| %s, %s | %lld | %u | 10^%.1f | %.7f |", file, settings, (long long)devices,
           o.graph->nodes.n, digits, t.tap_s);
    for (way how = PLAIN; how < BOUNDED; how++)
        if (digits < 11)
            print_blind(&b, how, seconds_most, &t);
        else
            printf(" too many |");
    print_blind(&b, BOUNDED, seconds_most, &t);
    print_programme(&b, seconds_most, &t);
    printf("\n");
    fflush(stdout);
    ds_arena_deinit(&b.arena);
    model->free(model);
    close_model(&o);
}

int main(int argc, char **argv) {
    double most = argc > 1 ? strtod(argv[1], NULL) : 10;
    static const char t5[] =
        "hidden = 1024, heads = 16, ffn = 4096, batch = 16, head_scale = 0.03125";
    bench_depths("gpt", "gpt", "vocab = 50304", 8, NULL);
    bench_depths("gpt", "gpt", "vocab = 50304", 16, NULL);
    bench_depths("t5", "t5", t5, 8, NULL);
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    if (argc > 2) {
        check(ds_profiles_load(argv[2], &profiles, &err), &err);
        bench_depths("gpt", "gpt", "vocab = 50304", 8, profiles);
        bench_depths("t5", "t5", t5, 8, profiles);
        ds_profiles_free(profiles);
    }
    printf("\n| model | devices | operations | strategies | TAP | enumeration | sharing sums | "
           "bounded | "
           "cbc |\n|---|---|---|---|---|---|---|---|---|\n");
    for (int l = 4; l <= 10; l += 2) {
        char settings[32];
        snprintf(settings, sizeof settings, "layers = %d", l);
        bench_blind("mlp", "mlp", settings, 4, most);
    }
    bench_blind("mlp", "mlp", "layers = 16", 8, most);
    bench_blind("gpt", "gpt", "layers = 1", 2, most);
    bench_blind("gpt", "gpt", "layers = 4", 2, most);
    bench_blind("gpt", "gpt", "layers = 24", 2, most);
    bench_blind("gpt", "gpt", "layers = 4", 4, most);
    bench_blind("gpt", "gpt", "layers = 24", 4, most);
    bench_blind("gpt", "gpt", "layers = 4", 8, most);
    bench_blind("t5", "t5", "layers = 4, batch = 16", 2, most);
    bench_blind("t5", "t5", "layers = 4, batch = 16", 4, most);
    return 0;
}
