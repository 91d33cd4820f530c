/* What `distsim search` prints: rows that name their turns, operations without dims, and JSON that
 * a JSON library reads. */
#include "search/pase/report.h"
#include "sim/cost/cost.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

enum { LAYERS = 7 };

static ds_pase_graph *layers(char path[LAYERS][32]) {
    ds_pase_graph *graph = ds_pase_graph_new();
    for (int l = 0; l < LAYERS; l++) {
        snprintf(path[l], 32, "a[%d].l[%d].z", l / 4, l % 4);
        ds_pase_node node = {.path = path[l],
                             .pattern = "a[*].l[*].z",
                             .times = 1,
                             .n_axes = 1,
                             .size = {64},
                             .axis_name = {"n"}};
        DS_PUSH(&graph->arena, &graph->nodes, node);
    }
    return graph;
}

/* The table of layers that are split as `parts` says has these names, in order. */
static void expect_names(const uint16_t parts[LAYERS], const char *const *names, int n) {
    char path[LAYERS][32];
    ds_pase_graph *graph = layers(path);
    ds_pase_splits strategy[LAYERS] = {{{0}}};
    ds_buf out = {0};
    for (int l = 0; l < LAYERS; l++) strategy[l].of[0] = parts[l];
    ds_pase_print_strategy(graph, strategy, &out);
    const char *line = strchr(out.text, '\n') + 1; /* behind the heading */
    for (int i = 0; i < n; i++) {
        cr_expect_eq(strncmp(line, names[i], strlen(names[i])), 0, "row %d is not '%s':\n%s", i,
                     names[i], out.text);
        line = strchr(line, '\n') + 1;
    }
    cr_expect_eq(*line, 0, "more rows than %d:\n%s", n, out.text);
    ds_buf_deinit(&out);
    ds_pase_graph_free(graph);
}

Test(search_report, rows_name_their_turns) {
    expect_names((uint16_t[]){2, 2, 2, 2, 2, 2, 2}, (const char *[]){"a[*].l[*].z (7) "}, 1);
    /* two rows of one pattern: a[0].l[0,2-3] and a[0].l[1] with all of a[1], which is no product */
    expect_names((uint16_t[]){4, 2, 4, 4, 2, 2, 2},
                 (const char *[]){"a[0].l[0,2-3].z (3) ", "a[0].l[1].z ... (4) "}, 2);
    /* products of the two loops' turns, and one alone */
    expect_names((uint16_t[]){4, 2, 4, 8, 4, 2, 4},
                 (const char *[]){"a[0-1].l[0,2].z (4) ", "a[0-1].l[1].z (2) ", "a[0].l[3].z "}, 3);
}

Test(search_report, an_operation_without_dims) {
    ds_pase_graph *graph = ds_pase_graph_new();
    ds_pase_node node = {.path = "sum", .pattern = "sum", .times = 1};
    ds_pase_splits strategy = {{0}};
    ds_buf out = {0};
    DS_PUSH(&graph->arena, &graph->nodes, node);
    ds_pase_print_strategy(graph, &strategy, &out);
    cr_expect_not_null(strstr(out.text, " - "));
    cr_expect_not_null(strstr(out.text, " a scalar\n"));
    cr_expect_null(strstr(out.text, "null"));
    ds_buf_deinit(&out);
    ds_pase_graph_free(graph);
}

/* ---- JSON ---- */

static json_t *json_of(const char *command) {
    char line[1024];
    snprintf(line, sizeof line, "%s %s --database %s", DS_DISTSIM_BINARY, command,
             DS_BUILD_PROFILES);
    FILE *run = popen(line, "r");
    json_error_t err;
    cr_assert_not_null(run);
    json_t *json = json_loadf(run, 0, &err); /* refuses what follows the value */
    int code = pclose(run);
    cr_assert_not_null(json, "%s: %s (line %d)", command, err.text, err.line);
    cr_expect_eq(code, 0);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

#define FILE_MLP DS_SOURCE_DIR "/scenarios/mlp-training.dir"

Test(search_report, json_with_simulated_steps_and_meshes) {
    static const char *const counts[] = {
        "devices",      "memory_bytes",      "nodes",       "edges",      "most_configs",
        "combinations", "most_combinations", "edge_tables", "table_bytes"};
    json_t *json = json_of("search " FILE_MLP " --cost-model distsim --method tap --meshes --json "
                           "--simulate"),
           *run = json_of("run " FILE_MLP " --cost fitted --json"), *one;
    size_t i;
    for (i = 0; i < sizeof counts / sizeof *counts; i++)
        cr_expect(json_is_integer(json_object_get(json, counts[i])), "%s", counts[i]);
    cr_expect_gt(json_real_value(json_object_get(json, "search_s")), 0);
    cr_expect_str_eq(text_of(json, "method"), "tap");
    cr_expect_eq(json_array_size(json_object_get(json, "meshes")), 4); /* 8 x 1 … 1 x 8 */
    const json_t *simulated = json_object_get(json, "simulated");
    cr_expect_eq(json_array_size(simulated), 6);
    bool any = false;
    json_array_foreach(simulated, i, one) {
        if (strcmp(text_of(one, "strategy"), "data parallel") != 0) continue;
        any = true; /* which the file is by itself */
        cr_expect_eq(json_integer_value(json_object_get(one, "step_time_ps")),
                     json_integer_value(json_object_get(run, "step_time_ps")));
        cr_expect_eq(json_integer_value(json_object_get(one, "peak_memory_bytes")),
                     json_integer_value(json_object_get(run, "peak_memory_bytes")));
    }
    cr_expect(any);
    json_decref(run);
    json_decref(json);
}

/* Copies are composed by products whose number is a whole one. */
Test(search_report, counts_of_composed_copies_are_whole) {
    json_t *json = json_of("search " DS_SOURCE_DIR "/scenarios/gpt2-dp4.dir --method tap --json");
    cr_expect(json_is_integer(json_object_get(json, "combinations")));
    cr_expect(json_is_integer(json_object_get(json, "table_bytes")));
    const json_t *blocks = json_object_get(json, "blocks");
    cr_assert_eq(json_array_size(blocks), 1);
    cr_expect_geq(json_integer_value(json_object_get(json_array_get(blocks, 0), "copies")), 10);
    json_decref(json);
}
