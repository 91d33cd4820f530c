/* The trace is well-formed: spans of a thread follow each other, every arrow has both ends inside
 * spans and points forward, memory counters end at what outlives the step. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const scenarios[] = {
    "scenarios/distir-mlp.dir",   "scenarios/pipeline-2x4.dir",  "scenarios/gpt3-layer-tp8.dir",
    "scenarios/mixed-box-dp.dir", "scenarios/out-of-memory.dir",
};

static json_t *trace_of(const ds_result *result) {
    ds_buf text = {0};
    ds_report_trace(result, &text);
    json_error_t err;
    json_t *json = json_loads(text.text, JSON_REJECT_DUPLICATES, &err);
    cr_assert(json, "line %d: %s", err.line, err.text);
    ds_buf_deinit(&text);
    return json;
}

/* Microseconds with six decimals are exact in a double up to 2^53 ps, 2.5 hours. */
static int64_t ps_at(json_t *event, const char *key) {
    json_t *value = json_object_get(event, key);
    cr_assert(json_is_number(value), "%s", key);
    return llround(json_number_value(value) * 1e6);
}

static int64_t int_at(json_t *event, const char *key) {
    return json_integer_value(json_object_get(event, key));
}

static bool is(json_t *event, const char *key, const char *text) {
    const char *value = json_string_value(json_object_get(event, key));
    return value && strcmp(value, text) == 0;
}

static const char *phase(json_t *event) {
    return json_string_value(json_object_get(event, "ph"));
}

/* Does a span of the event's thread enclose its time? */
static bool is_enclosed(json_t *events, json_t *event) {
    size_t i;
    json_t *span;
    json_array_foreach(events, i, span) {
        if (!is(span, "ph", "X") || int_at(span, "pid") != int_at(event, "pid") ||
            int_at(span, "tid") != int_at(event, "tid"))
            continue;
        int64_t start = ps_at(span, "ts"), end = start + ps_at(span, "dur");
        if (ps_at(event, "ts") >= start && ps_at(event, "ts") <= end) return true;
    }
    return false;
}

static void check_spans(json_t *events, const ds_result *r, const char *name) {
    enum { MAX_THREADS = 4096 };
    static int64_t last[MAX_THREADS];
    memset(last, 0, sizeof last);
    uint32_t n = 0;
    int64_t end = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        if (!is(event, "ph", "X") || int_at(event, "pid") == 0) continue;
        int64_t thread = int_at(event, "pid") * 64 + int_at(event, "tid");
        cr_assert(thread < MAX_THREADS && int_at(event, "tid") < 64);
        cr_expect(ps_at(event, "ts") >= last[thread], "%s: spans overlap", name);
        last[thread] = ps_at(event, "ts") + ps_at(event, "dur");
        if (last[thread] > end) end = last[thread];
        n++;
    }
    cr_expect_eq(n, r->plan->n_tasks, "%s", name);
    cr_expect_eq(end, r->run.step_ps, "%s", name);
}

/* The track of the critical path: from 0 to the end of the step, without gap or overlap. */
static void check_path(json_t *events, const ds_result *r, const char *name) {
    int64_t at = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        if (!is(event, "ph", "X") || int_at(event, "pid") != 0) continue;
        cr_expect_eq(ps_at(event, "ts"), at, "%s: the critical path has a gap", name);
        at += ps_at(event, "dur");
    }
    cr_expect_eq(at, r->run.step_ps, "%s", name);
}

static uint32_t check_arrows(json_t *events, const char *name) {
    uint32_t n_begun = 0, n_ended = 0;
    int64_t begun_ps = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        if (is(event, "ph", "s")) {
            n_begun++;
            cr_expect_eq(int_at(event, "id"), n_begun, "%s: ids are used once", name);
            begun_ps = ps_at(event, "ts");
        } else if (is(event, "ph", "f")) {
            n_ended++;
            cr_expect_eq(int_at(event, "id"), n_ended, "%s: an end without its start", name);
            cr_expect(ps_at(event, "ts") >= begun_ps, "%s: an arrow into the past", name);
        } else {
            continue;
        }
        cr_expect(is_enclosed(events, event), "%s: an arrow ends in no span", name);
    }
    cr_expect_eq(n_begun, n_ended, "%s", name);
    return n_begun;
}

static int64_t sum_of(json_t *args) {
    int64_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(args, key, value) sum += json_integer_value(value);
    return sum;
}

/* Inputs and outputs that live on the class's device, computed from values alone: aliased outputs
 * (state, in place) share their buffer and count once. */
static void check_memory(json_t *events, const ds_result *r, const char *name) {
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        int64_t end_bytes = 0, peak = 0, last_ps = -1;
        size_t i;
        json_t *event;
        json_array_foreach(events, i, event) {
            if (!is(event, "ph", "C") || int_at(event, "pid") != (int64_t)c + 1) continue;
            if (is(event, "name", "memory by category")) {
                cr_expect_eq(sum_of(json_object_get(event, "args")), end_bytes, "%s", name);
                continue;
            }
            end_bytes = int_at(json_object_get(event, "args"), "bytes");
            if (end_bytes > peak) peak = end_bytes;
            cr_expect(ps_at(event, "ts") > last_ps, "%s: one counter a time", name);
            last_ps = ps_at(event, "ts");
            cr_expect(end_bytes >= 0);
        }
        cr_expect_eq(peak, r->mem.classes[c].peak_bytes, "%s", name);
        int64_t freed = 0, taken = 0;
        for (uint32_t k = 0; k < r->mem.classes[c].n_events; k++) {
            int64_t delta = r->mem.classes[c].events[k].delta_bytes;
            *(delta > 0 ? &taken : &freed) += delta;
        }
        cr_expect_eq(end_bytes, taken + freed, "%s", name);
    }
}

Test(report_trace, is_well_formed_for_every_scenario) {
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        sim_case c;
        sim_run_file(&c, scenarios[i], NULL, false);
        cr_assert_eq(c.status, DS_OK, "%s", scenarios[i]);
        json_t *json = trace_of(c.result), *events = json_object_get(json, "traceEvents");
        check_spans(events, c.result, scenarios[i]);
        check_path(events, c.result, scenarios[i]);
        check_arrows(events, scenarios[i]);
        check_memory(events, c.result, scenarios[i]);
        json_decref(json);
        sim_free(&c);
    }
}

static const char by_hand[] = "dir 1\n"
                              "topology @pair {\n"
                              "  device d[2] : \"A100-SXM4-80GB\"\n"
                              "  link d[0] -- d[1] : 1 GB/s, 1 us\n"
                              "}\n"
                              "func @main(%x: f32[250] on @pair.d[0]) -> f32[250] on @pair.d[1] {\n"
                              "  %a = relu(%x) {cost = 3000001 ps}\n"
                              "  %b = send(%a) to @pair.d[1]\n"
                              "  %c = relu(%b) {cost = 5 us}\n"
                              "  return %c\n"
                              "}\n"
                              "scenario { program = @main }\n";

/* Arrows: a to the send, sender to receiver, the send to c. Memory: d[0] keeps its input, d[1] the
 * output, 250 x 4 bytes each. */
Test(report_trace, of_a_send_by_hand) {
    sim_case c;
    sim_run_text(&c, by_hand, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    json_t *json = trace_of(c.result), *events = json_object_get(json, "traceEvents");
    cr_expect_eq(check_arrows(events, "by hand"), 3);
    int64_t end_bytes[3] = {0};
    uint32_t n_spans = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        if (*phase(event) == 'C' && is(event, "name", "memory"))
            end_bytes[int_at(event, "pid")] = int_at(json_object_get(event, "args"), "bytes");
        if (*phase(event) == 'X' && int_at(event, "pid")) n_spans++;
    }
    cr_expect_eq(n_spans, 4);
    cr_expect_eq(end_bytes[1], 1000);
    cr_expect_eq(end_bytes[2], 1000);
    ds_buf text = {0};
    ds_report_trace(c.result, &text);
    cr_expect(strstr(text.text, "\"ts\":3.000001,\"dur\":2,"), "picoseconds as exact decimals");
    cr_expect(strstr(text.text, "\"name\":\"d[0] (A100-SXM4-80GB)\""));
    ds_buf_deinit(&text);
    json_decref(json);
    sim_free(&c);
}
