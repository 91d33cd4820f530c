/* What people read: the summary, the derivation of a cost, and what a scenario may ask for. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <string.h>

#define PAIR                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @pair {\n"                                                                           \
    "  device d[2] : \"A100-SXM4-80GB\"\n"                                                         \
    "  link d[0] -- d[1] : 1 GB/s, 1 us\n"                                                         \
    "}\n"

static const char program[] =
    PAIR "mesh @m = [dp = 2] on @pair\n"
         "func @main(%x: f32[1000, 250] on @m) -> f32[1000, 250] on @m {\n"
         "  %h = for l in 0..3 carry (%a = %x) {\n"
         "    %b = relu(%a) {cost = 3 us, name = \"act\"}\n"
         "    yield %b\n"
         "  }\n"
         "  %s = scale(%h) {factor = 0.5}\n"
         "  %y = reshard(%s) : f32[1000, 250] on @m\n"
         "  return %y\n"
         "}\n"
         "scenario { program = @main }\n";

static const char reduce[] = PAIR "mesh @m = [dp = 2] on @pair\n"
                                  "func @main(%x: f32[250] on @m partial(dp)) -> f32[250] on @m {\n"
                                  "  %y = all_reduce(%x) over dp\n"
                                  "  return %y\n"
                                  "}\n"
                                  "scenario { program = @main }\n";

static void expect(const ds_buf *text, const char *part) {
    cr_expect(text->text && strstr(text->text, part), "\"%s\" is not in:\n%s", part, text->text);
}

static uint32_t count(const ds_buf *text, const char *part) {
    uint32_t n = 0;
    for (const char *at = text->text; at && (at = strstr(at, part)); at++) n++;
    return n;
}

Test(report_explain, names_ops_by_mnemonic_name_and_path) {
    sim_case c;
    sim_run_text(&c, program, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    static const char *const patterns[] = {"relu", "re*u",       "act",           "a?t",
                                           "*act", "main/l/act", "main/l[1]/act", "main/*/a*",
                                           "act*", "*"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        ds_buf text = {0};
        cr_expect(ds_report_explain(c.result, patterns[i], &text), "%s", patterns[i]);
        expect(&text, "relu main/l/act\non d[0] (2 alike): 3 us, given in the program\n");
        cr_expect_eq(count(&text, "relu main"), 1, "one derivation for all turns of the loop");
        ds_buf_deinit(&text);
    }
    static const char *const strangers[] = {"", "rel", "elu", "main", "act?", "main/l[3]/act"};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        ds_buf text = {0};
        cr_expect_not(ds_report_explain(c.result, strangers[i], &text), "%s", strangers[i]);
        ds_buf_deinit(&text);
    }
    sim_free(&c);
}

/* 2 steps of 1 us, 2(n-1)/n x 1000 B = 1000 B over each link at 1 GB/s: 3 us. */
Test(report_explain, derives_a_collective_from_its_phases) {
    sim_case c;
    sim_run_text(&c, reduce, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_buf text = {0};
    cr_assert(ds_report_explain(c.result, "all_reduce", &text));
    expect(&text, "ring over 2 (d[0], d[1]), 1000 bytes: 3 us (3000000 ps)");
    expect(&text, "the fastest of ring 3 us, tree");
    expect(&text, "phase 1: 2 steps of 1 us; then 1000 B over the slowest link, d[0] to d[1], at "
                  "1 GB/s: 1 us");
    ds_buf_deinit(&text);
    sim_free(&c);
}

Test(report_explain, gives_the_sources_of_a_compute_op) {
    sim_case c;
    sim_run_file(&c, "scenarios/gpt3-layer-tp8.dir", NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_buf text = {0};
    cr_assert(ds_report_explain(c.result, "fc1", &text));
    expect(&text, "gemm batch=1 m=2048 n=6144 k=12288");
    expect(&text, "309237645312 FLOP"); /* 2 m n k */
    expect(&text, "SOURCE.md");
    ds_buf_deinit(&text);
    sim_free(&c);
}

/* 3 x 3 us; 1000 x 250 x 4 B read and written at the catalogue's bandwidth: the rest. */
Test(report_summary, says_where_the_time_goes) {
    sim_case c;
    sim_run_text(&c, program, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_buf text = {0};
    ds_report_summary(c.result, &text);
    expect(&text, "2 x A100-SXM4-80GB on @pair\n");
    expect(&text, "8 op instances as 4 tasks: 1 device class\n");
    expect(&text, "Time of d[0], the last to end (2 alike)");
    expect(&text, "        3  relu main/l/act");
    expect(&text, "  compute        roofline ");
    expect(&text, " (catalogue peaks), given ");
    cr_expect_not(strstr(text.text, "DOES NOT FIT"));
    for (const char *line = text.text; *line;) {
        size_t n = strcspn(line, "\n");
        cr_expect(n <= 100, "a line of %zu bytes: %.*s", n, (int)n, line);
        line += n + (line[n] == '\n');
    }
    ds_buf_deinit(&text);
    sim_free(&c);
}

/* 40 weights of 16384^2 x 4 B = 1 GiB each do not fit in 16 GiB. */
Test(report_summary, says_what_does_not_fit_and_why) {
    sim_case c;
    sim_run_file(&c, "scenarios/out-of-memory.dir", NULL, false);
    cr_assert_eq(c.status, DS_OK);
    cr_assert_not(c.result->metrics.fits);
    ds_buf text = {0}, missing = {0};
    ds_report_summary(c.result, &text);
    ds_buf_printf(&missing, "%lld bytes",
                  (long long)(c.result->metrics.peak_bytes - ((int64_t)16 << 30)));
    expect(&text, "DOES NOT FIT: gpu[0] needs 45.12 GiB and has 16 GiB");
    expect(&text, missing.text);
    expect(&text, "4 devices are too small");
    expect(&text, "       1 GiB  weight      forward/w{0}\n");
    ds_buf_deinit(&text);
    ds_buf_deinit(&missing);
    sim_free(&c);
}

static ds_status read_options(const char *scenario, ds_sim_options *options, ds_error *err) {
    ds_buf text = {0};
    ds_buf_printf(&text,
                  "%sfunc @main(%%x: f32[4] on @pair.d[0]) -> f32[4] on @pair.d[0] {\n"
                  "  %%y = relu(%%x)\n"
                  "  return %%y\n"
                  "}\n"
                  "scenario { %s }\n",
                  PAIR, scenario);
    sim_case c;
    sim_run_text(&c, text.text, NULL, false);
    ds_status status =
        c.unit && c.binding.unit ? ds_sim_options_read(&c.binding, options, err) : c.status;
    sim_free(&c);
    ds_buf_deinit(&text);
    return status;
}

Test(report_options, come_from_the_scenario) {
    ds_sim_options options = {0};
    ds_error err;
    cr_expect_eq(read_options("program = @main", &options, &err), DS_OK);
    cr_expect_eq(options.cost_mode, DS_COST_MEASURED);
    cr_expect_eq(read_options("program = @main, cost = fitted", &options, &err), DS_OK);
    cr_expect_eq(options.cost_mode, DS_COST_FITTED);
    cr_expect_eq(options.mem_mode, DS_MEM_EXACT);
    cr_expect_eq(read_options("program = @main, memory = rounded", &options, &err), DS_OK);
    cr_expect_eq(options.mem_mode, DS_MEM_ROUNDED);
    cr_expect_eq(read_options("program = @main, memory = allocator", &options, &err), DS_OK);
    cr_expect_eq(options.mem_mode, DS_MEM_ALLOCATOR);
    cr_expect_not(options.stepwise);
    cr_expect_eq(read_options("program = @main, network = stepwise", &options, &err), DS_OK);
    cr_expect(options.stepwise);
    static const char *const refused[][2] = {
        {"program = @main, strategy { dp = 2 }", "strategy"},
        {"program = @main, train { loss = mse }", "train"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cr_expect_eq(read_options(refused[i][0], &options, &err), DS_ERR_UNSUPPORTED, "%s",
                     refused[i][0]);
        cr_expect(strstr(err.message, refused[i][1]), "%s: %s", refused[i][0], err.message);
    }
}
