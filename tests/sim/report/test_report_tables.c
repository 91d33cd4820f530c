/* JSON and CSV say what the result says, to the picosecond: against a timeline worked out by hand,
 * a closed form, and the result itself for every scenario. */
#include "ir/base/csv.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

/* a: 0 to 3 us on d[0]; the send takes 1 us + 1000 B / 1 GB/s = 2 us; c: 5 to 10 us on d[1]. */
static const char by_hand[] = "dir 1\n"
                              "topology @pair {\n"
                              "  device d[2] : \"A100-SXM4-80GB\"\n"
                              "  link d[0] -- d[1] : 1 GB/s, 1 us\n"
                              "}\n"
                              "func @main(%x: f32[250] on @pair.d[0]) -> f32[250] on @pair.d[1] {\n"
                              "  %a = relu(%x) {cost = 3 us}\n"
                              "  %b = send(%a) to @pair.d[1]\n"
                              "  %c = relu(%b) {cost = 5 us}\n"
                              "  return %c\n"
                              "}\n"
                              "scenario { program = @main }\n";

static const char *const scenarios[] = {
    "scenarios/distir-mlp.dir",   "scenarios/pipeline-2x4.dir",  "scenarios/gpt3-layer-tp8.dir",
    "scenarios/mixed-box-dp.dir", "scenarios/out-of-memory.dir",
};
#define N_SCENARIOS (sizeof scenarios / sizeof *scenarios)

static json_t *json_of(const ds_result *result) {
    ds_buf text = {0};
    ds_report_json(result, &text);
    json_error_t err;
    json_t *json = json_loads(text.text, JSON_REJECT_DUPLICATES, &err);
    cr_assert(json, "line %d: %s", err.line, err.text);
    ds_buf_deinit(&text);
    return json;
}

static int64_t int_at(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s is no integer", key);
    return json_integer_value(value);
}

static double number_at(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    cr_assert(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

static const char *text_at(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    cr_assert(json_is_string(value), "%s is no string", key);
    return json_string_value(value);
}

Test(report_json, is_the_timeline_worked_out_by_hand) {
    sim_case c;
    sim_run_text(&c, by_hand, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    json_t *json = json_of(c.result);
    cr_expect_eq(int_at(json, "step_time_ps"), 10000000);
    cr_expect_float_eq(number_at(json, "throughput_per_s"), 1e5, 1e-6);
    cr_expect_eq(int_at(json, "devices"), 2);
    cr_expect_eq(int_at(json, "op_instances"), 4);
    cr_expect_eq(int_at(json, "tasks"), 4);
    cr_expect_str_eq(text_at(json, "critical_device"), "d[1]");
    cr_expect_eq(int_at(json, "compute_ps"), 5000000);
    cr_expect_eq(int_at(json, "exposed_comm_ps"), 2000000);
    cr_expect_eq(int_at(json, "hidden_comm_ps"), 0);
    cr_expect_eq(int_at(json, "idle_ps"), 3000000);
    /* idle: 5 us of d[0] and 3 us of d[1], of 2 times 10 us */
    cr_expect_float_eq(number_at(json, "bubble_fraction"), 0.4, 1e-12);
    cr_expect_float_eq(number_at(json_object_get(json, "cost_origin"), "given"), 1, 0);
    cr_expect_float_eq(number_at(json_object_get(json, "comm_origin"), "links"), 1, 0);
    cr_expect_float_eq(number_at(json, "comm_extrapolated"), 0, 0);
    /* x and a at once on d[0] */
    cr_expect_eq(int_at(json, "peak_memory_bytes"), 2000);
    cr_expect(json_is_true(json_object_get(json, "fits")));
    /* on d[1] relu takes the received buffer, which nobody reads later */
    json_t *receiver = json_array_get(json_object_get(json, "per_class"), 1);
    cr_expect_eq(int_at(receiver, "peak_memory_bytes"), 1000);
    json_t *send = json_array_get(json_object_get(json, "collectives"), 0);
    cr_expect_str_eq(text_at(send, "op"), "send");
    cr_expect_str_eq(text_at(send, "path"), "main/b");
    cr_expect_eq(int_at(send, "bytes"), 1000);
    cr_expect_eq(int_at(send, "total_ps"), 2000000);
    cr_expect_float_eq(number_at(send, "bus_bytes_per_s"), 5e8, 1e-3);
    json_decref(json);
    sim_free(&c);
}

/* 2(n-1)/n S / t with S = 2^30, n = 8, t = 14 x 0.5 us + 2(n-1)/n S / 53.6870912 GB/s = 35,007,000
 * ns */
Test(report_json, bus_bandwidth_is_that_of_nccl_tests) {
    sim_case c;
    sim_run_text(&c,
                 "dir 1\n"
                 "topology @ring {\n"
                 "  device d[8] : \"A100-SXM4-80GB\"\n"
                 "  link d[i] -- d[(i + 1) % 8] : 53.6870912 GB/s, 500 ns for i in 0..8\n"
                 "}\n"
                 "mesh @m = [dp = 8] on @ring\n"
                 "func @main(%x: f32[268435456] on @m partial(dp)) -> f32[268435456] on @m {\n"
                 "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
                 "  return %y\n"
                 "}\n"
                 "scenario { program = @main }\n",
                 NULL, false);
    cr_assert_eq(c.status, DS_OK);
    json_t *json = json_of(c.result);
    cr_expect_eq(int_at(json, "step_time_ps"), 35007000000);
    cr_expect_eq(int_at(json, "exposed_comm_ps"), 35007000000);
    json_t *row = json_array_get(json_object_get(json, "collectives"), 0);
    cr_expect_str_eq(text_at(row, "algorithm"), "ring");
    cr_expect_eq(int_at(row, "group_size"), 8);
    cr_expect_eq(int_at(row, "count"), 1);
    cr_expect_float_eq(number_at(row, "bus_bytes_per_s"), 1.75 * 1073741824 / 0.035007, 1);
    json_decref(json);
    sim_free(&c);
}

static void compare(json_t *json, const ds_result *r, const char *name) {
    const ds_account *a = &r->accounts[r->critical];
    cr_expect_eq(int_at(json, "step_time_ps"), r->run.step_ps, "%s", name);
    cr_expect_eq(int_at(json, "op_instances"), r->metrics.op_instances);
    cr_expect_eq(int_at(json, "peak_memory_bytes"), r->metrics.peak_bytes);
    cr_expect_eq(int_at(json, "compute_ps"), a->compute_ps);
    cr_expect_eq(int_at(json, "compute_ps") + int_at(json, "exposed_comm_ps") +
                     int_at(json, "idle_ps"),
                 r->run.step_ps);
    cr_expect_eq(json_is_true(json_object_get(json, "fits")), r->metrics.fits);
    cr_expect_float_eq(number_at(json, "mfu"), r->metrics.mfu, 0);
    cr_expect_float_eq(number_at(json, "throughput_per_s"), r->metrics.throughput_per_s, 0);
    static const char *const origins[] = {"exact", "interpolated", "roofline", "given"};
    double shares = 0;
    for (int o = 0; o < 4; o++)
        shares += number_at(json_object_get(json, "cost_origin"), origins[o]);
    cr_expect_float_eq(shares, 1, 1e-12);
    static const char *const comm_origins[] = {"profile", "links", "given"};
    shares = 0;
    for (int o = 0; o < 3; o++)
        shares += number_at(json_object_get(json, "comm_origin"), comm_origins[o]);
    bool communicates = a->exposed_comm_ps + a->hidden_comm_ps > 0;
    cr_expect_float_eq(shares, communicates ? 1 : 0, 1e-12, "%s: %g", name, shares);
    int64_t devices = 0, instances = 0;
    size_t i;
    json_t *cls;
    json_array_foreach(json_object_get(json, "per_class"), i, cls) {
        devices += int_at(cls, "n_devices");
        instances += int_at(cls, "n_devices") * int_at(cls, "tasks");
        cr_expect_eq(int_at(cls, "compute_ps") + int_at(cls, "exposed_comm_ps") +
                         int_at(cls, "idle_ps"),
                     r->run.step_ps);
        int64_t bytes = 0;
        const char *category;
        json_t *part;
        json_object_foreach(json_object_get(cls, "peak_by_category"), category, part) bytes +=
            json_integer_value(part);
        cr_expect_eq(bytes, int_at(cls, "peak_memory_bytes"), "%s: categories add up", name);
    }
    cr_expect_eq(devices, int_at(json, "devices"));
    cr_expect_eq(instances, int_at(json, "op_instances"));
}

/* Time on the critical device by op adds up: compute ops to compute_ps (one stream, no overlap). */
static void sums(json_t *json, const char *name) {
    int64_t compute = 0;
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(json, "ops"), i, op) if (json_object_get(op, "flop"))
        compute += int_at(op, "total_ps");
    cr_expect_eq(compute, int_at(json, "compute_ps"), "%s", name);
}

Test(report_json, equals_the_result_folded_or_not) {
    for (size_t i = 0; i < N_SCENARIOS; i++) {
        sim_case folded, unfolded;
        sim_run_file(&folded, scenarios[i], NULL, false);
        sim_run_file(&unfolded, scenarios[i], NULL, true);
        cr_assert(folded.status == DS_OK && unfolded.status == DS_OK, "%s", scenarios[i]);
        json_t *f = json_of(folded.result), *u = json_of(unfolded.result);
        compare(f, folded.result, scenarios[i]);
        compare(u, unfolded.result, scenarios[i]);
        sums(f, scenarios[i]);
        static const char *const same[] = {"step_time_ps", "collectives",       "ops",
                                           "idle_ps",      "peak_memory_bytes", "largest_at_peak"};
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            cr_expect(json_equal(json_object_get(f, same[k]), json_object_get(u, same[k])),
                      "%s: %s depends on folding", scenarios[i], same[k]);
        json_decref(f);
        json_decref(u);
        sim_free(&folded);
        sim_free(&unfolded);
    }
}

Test(report_csv, is_the_timeline_worked_out_by_hand) {
    sim_case c;
    sim_run_text(&c, by_hand, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_buf text = {0};
    ds_report_csv(c.result, &text);
    cr_expect_str_eq(text.text,
                     "device,n_devices,stream,op,path,start_ps,end_ps,flop,bytes_read,"
                     "bytes_written,comm_bytes,algorithm,origin\n"
                     "d[0],1,compute,relu,main/a,0,3000000,250,1000,1000,0,,given\n"
                     "d[0],1,d[0] to d[1],send,main/b,3000000,5000000,0,0,0,1000,direct,\n"
                     "d[1],1,d[0] to d[1],send,main/b,3000000,5000000,0,0,0,1000,direct,\n"
                     "d[1],1,compute,relu,main/c,5000000,10000000,250,1000,1000,0,,given\n");
    ds_buf_deinit(&text);
    sim_free(&c);
}

Test(report_csv, has_a_row_per_task) {
    for (size_t i = 0; i < N_SCENARIOS; i++) {
        sim_case c;
        sim_run_file(&c, scenarios[i], NULL, false);
        cr_assert_eq(c.status, DS_OK);
        ds_buf text = {0};
        ds_report_csv(c.result, &text);
        ds_csv csv;
        ds_error err;
        cr_assert_eq(ds_csv_parse("report", text.text, text.n, &csv, &err), DS_OK, "%s",
                     err.message);
        cr_expect_eq(csv.rows.n, c.result->plan->n_tasks);
        uint32_t end = ds_csv_find(&csv, "end_ps");
        int64_t last = 0;
        for (uint32_t k = 0; k < csv.rows.n; k++) {
            int64_t ps = strtoll(csv.rows.at[k].cells[end], NULL, 10);
            if (ps > last) last = ps;
        }
        cr_expect_eq(last, c.result->run.step_ps);
        ds_csv_deinit(&csv);
        ds_buf_deinit(&text);
        sim_free(&c);
    }
}
