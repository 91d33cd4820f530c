/* The data of a page say what the run says: a reader of the tree, written anew here, finds every task
 * of every stream at its picosecond; the critical path, memory, programs and traffic agree too. */
#include "ir/lang/lang.h"
#include "sim/report/analysis.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const scenarios[] = {
    "scenarios/distir-mlp.dir",   "scenarios/pipeline-2x4.dir",  "scenarios/gpt3-layer-tp8.dir",
    "scenarios/mixed-box-dp.dir", "scenarios/two-jobs.dir",      "scenarios/offload.dir",
    "scenarios/tour.dir",         "scenarios/out-of-memory.dir",
};

static json_t *page_of(const ds_result *result, uint32_t most_bytes) {
    ds_buf text = {0};
    ds_json json;
    ds_json_init(&json, &text, 0);
    ds_report_page(result, "a run", most_bytes, &json);
    json_error_t err;
    json_t *page = json_loads(text.text, JSON_REJECT_DUPLICATES, &err);
    cr_assert(page, "line %d: %s", err.line, err.text);
    ds_buf_deinit(&text);
    return page;
}

static int64_t at(json_t *list, size_t i) {
    return json_integer_value(json_array_get(list, i));
}

static json_t *member(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    cr_assert(value, "%s", key);
    return value;
}

/* ---- spans ---- */

typedef struct span {
    int64_t start, end;
    const char *name;
    json_t *leaf;
} span;

typedef struct spans {
    json_t *names, *leaves, *nodes;
    DS_VEC(span) at;
} spans;

static int64_t read_node(spans *s, int64_t node, int64_t start) {
    json_t *edges = json_array_get(s->nodes, (size_t)node);
    for (size_t i = 0; i < json_array_size(edges); i += 3) {
        int64_t child = at(edges, i + 1);
        start += at(edges, i);
        if (child >= 0) {
            start = read_node(s, child, start);
            continue;
        }
        json_t *leaf = json_array_get(s->leaves, (size_t)(-1 - child));
        const char *name = json_string_value(json_array_get(s->names, (size_t)at(edges, i + 2)));
        DS_HPUSH(&s->at, ((span){start, start + at(leaf, 1), name, leaf}));
        start += at(leaf, 1);
    }
    return start;
}

static spans read_tree(json_t *page, int64_t root) {
    json_t *tree = member(page, "tree");
    spans s = {member(tree, "names"), member(tree, "leaves"), member(tree, "nodes"), {0}};
    read_node(&s, root, 0);
    return s;
}

/* All tasks of the stream that take time, in order. */
static void check_stream(const ds_result *r, const ds_stream *stream, const spans *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < stream->n; i++) {
        uint32_t task = r->plan->stream_tasks[stream->first + i];
        if (r->run.start_ps[task] == r->run.end_ps[task]) continue;
        cr_assert_lt(n, s->at.n);
        cr_assert_eq(s->at.at[n].start, r->run.start_ps[task]);
        cr_assert_eq(s->at.at[n].end, r->run.end_ps[task]);
        cr_assert_str_eq(s->at.at[n].name, ds_plan_inst_name(r->plan, r->plan->task_inst[task]));
        n++;
    }
    cr_assert_eq(n, s->at.n);
}

static void check_timeline(const ds_result *r, json_t *page) {
    json_t *timeline = member(page, "timeline"), *cls, *stream;
    size_t i, k;
    cr_assert_eq(json_array_size(timeline), r->plan->n_classes);
    cr_assert_eq(json_integer_value(member(json_array_get(timeline, 0), "cls")), r->critical);
    json_array_foreach(timeline, i, cls) {
        uint32_t next = 0, number = (uint32_t)json_integer_value(member(cls, "cls"));
        json_array_foreach(member(cls, "streams"), k, stream) {
            while (r->plan->streams[next].cls != number) next++;
            spans s = read_tree(page, json_integer_value(member(stream, "root")));
            check_stream(r, &r->plan->streams[next++], &s);
            free(s.at.at);
        }
    }
}

static void check_path(const ds_result *r, json_t *page) {
    ds_critical_path path;
    ds_critical_path_find(r, &path);
    spans s = read_tree(page, json_integer_value(member(page, "path")));
    cr_assert_eq(s.at.n, path.n);
    for (uint32_t i = 0; i < path.n; i++) {
        cr_assert_eq(s.at.at[i].start, path.at[i].start_ps);
        cr_assert_eq(s.at.at[i].end, path.at[i].end_ps);
        cr_assert_eq(at(s.at.at[i].leaf, 2), path.at[i].kind);
        cr_assert_eq(at(s.at.at[i].leaf, 3), path.at[i].waited_for);
    }
    if (path.n) cr_assert_eq(s.at.at[path.n - 1].end, r->run.step_ps);
    free(s.at.at);
    ds_critical_path_deinit(&path);
}

/* ---- memory, programs ---- */

static void check_memory(const ds_result *r, json_t *page) {
    json_t *curve;
    size_t i, k, p;
    json_array_foreach(member(page, "memory"), i, curve) {
        uint32_t cls = (uint32_t)json_integer_value(member(curve, "cls"));
        int64_t most = 0;
        json_t *point, *bytes;
        json_array_foreach(member(curve, "points"), k, point) {
            int64_t sum = 0;
            json_array_foreach(point, p, bytes) sum += p ? json_integer_value(bytes) : 0;
            if (sum > most) most = sum;
        }
        cr_assert_eq(most, r->mem.classes[cls].peak_bytes);
    }
}

static void check_last_program(const ds_result *r, json_t *page) {
    json_t *programs = member(page, "programs"), *passes = member(programs, "passes"), *line;
    json_t *last = json_array_get(passes, json_array_size(passes) - 1);
    ds_buf text = {0}, want = {0};
    size_t i;
    json_array_foreach(json_array_get(last, 1), i, line) {
        ds_buf_put(&text, json_string_value(json_array_get(member(programs, "lines"),
                                                           (size_t)json_integer_value(line))));
        ds_buf_putc(&text, '\n');
    }
    ds_print_module((r->step ? r->step->unit : r->source->unit)->modules.at[0], &want);
    cr_assert_str_eq(text.text, want.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(&want);
}

Test(page, says_what_the_run_says) {
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        sim_case c;
        sim_run_file(&c, scenarios[i], NULL, false);
        json_t *page = page_of(c.result, 3000000);
        check_timeline(c.result, page);
        check_path(c.result, page);
        check_memory(c.result, page);
        check_last_program(c.result, page);
        json_decref(page);
        sim_free(&c);
    }
}

/* Without room for single operations the calls are drawn, each at its time, and the page says so. */
Test(page, says_what_it_leaves_out) {
    sim_case c;
    sim_run_file(&c, "scenarios/pipeline-2x4.dir", NULL, false);
    json_t *page = page_of(c.result, 2000), *line;
    size_t i, n = 0;
    json_array_foreach(member(page, "dropped"), i, line) n +=
        strstr(json_string_value(line), "Single operations of") != NULL;
    cr_assert_eq(n, c.result->plan->n_classes);
    spans s = read_tree(page, json_integer_value(member(page, "path")));
    cr_assert_eq(s.at.at[s.at.n - 1].end, c.result->run.step_ps);
    free(s.at.at);
    json_decref(page);
    sim_free(&c);
}

/* Equal bodies are stored once: the tree of 32 layers is hardly larger than that of 4. */
Test(page, stores_equal_bodies_once) {
    size_t size[2], leaves[2];
    for (int i = 0; i < 2; i++) {
        sim_case c;
        sim_run_file(&c, "scenarios/tour.dir", i ? "layers=32" : "layers=4", false);
        json_t *page = page_of(c.result, 3000000);
        json_t *tree = member(page, "tree");
        spans s = read_tree(
            page,
            json_integer_value(member(
                json_array_get(member(json_array_get(member(page, "timeline"), 0), "streams"), 0),
                "root")));
        leaves[i] = s.at.n;
        size[i] = json_array_size(member(tree, "nodes"));
        free(s.at.at);
        json_decref(page);
        sim_free(&c);
    }
    cr_assert_gt(leaves[1], 6 * leaves[0]);
    cr_assert_lt(size[1], 2 * size[0]);
}

/* ---- traffic ---- */

/* A ring of n moves 2 (n - 1) / n of the bytes from each member to the next (nccl-tests,
 * PERFORMANCE.md), and nothing to the others. */
Test(page, ring_sends_to_its_neighbours) {
    sim_case c;
    sim_run_file(&c, "scenarios/distir-mlp.dir", NULL, false);
    json_t *page = page_of(c.result, 3000000), *op, *cell;
    double bytes = 0;
    size_t i;
    json_array_foreach(member(member(page, "run"), "collectives"), i, op) {
        cr_assert_str_eq(json_string_value(member(op, "algorithm")), "ring");
        bytes += (double)json_integer_value(member(op, "bytes"));
    }
    json_t *cells = member(member(page, "matrix"), "cells");
    cr_assert_eq(json_array_size(cells), 4);
    json_array_foreach(cells, i, cell)
        cr_assert_float_eq(json_number_value(json_array_get(cell, 2)), 1.5 * bytes, 1e-6 * bytes);
    json_decref(page);
    sim_free(&c);
}
