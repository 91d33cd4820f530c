/* Pictures of a table: what the gnuplot script says of rows that were written by hand. */
#include "search/plot/internal.h"
#include "search/plot/plot.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER                                                                                     \
    "model_size,world_size,batch_size,dp_degree,hp_degree,pp_degree,num_microbatches,latency,"     \
    "throughput,peak_memory,status\n"
#define GIB "073741824" /* behind a 1: one GiB */

/* A table in a file of its own; free the path. */
static char *table_of(const char *header, const char *rows) {
    char *path = strdup("/tmp/distsim-plot-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    FILE *file = fdopen(fd, "w");
    fputs(header, file);
    fputs(rows, file);
    fclose(file);
    return path;
}

static char *table(const char *rows) {
    return table_of(HEADER, rows);
}

static void script_with(const char *rows, const char *out, ds_plot_axes axes, ds_buf *script) {
    ds_error err;
    char *path = table(rows);
    cr_assert_eq(ds_plot_script(path, out, axes, script, &err), DS_OK, "%s", err.message);
    unlink(path);
    free(path);
}

static void script_of(const char *rows, const char *out, ds_buf *script) {
    script_with(rows, out, DS_PLOT_AXES, script);
}

static void expect(const ds_buf *script, const char *text) {
    cr_expect(strstr(script->text, text) != NULL, "no '%s' in\n%s", text, script->text);
}

/* Two sizes; at 2 data parallelism wins, at 4 a hybrid. One is too large, one was not simulated. */
static const char two_sizes[] = "it's,2,8,2,1,1,1,0.08,100,1" GIB ",ok\n"
                                "it's,2,8,1,2,1,1,0.1,80,1" GIB ",ok\n"
                                "it's,4,8,4,1,1,1,0.05,160,2147483648,does_not_fit\n"
                                "it's,4,8,2,2,1,1,0.05,160,2147483648,ok\n"
                                "it's,4,8,2,2,1,2,0.1,80,1" GIB ",ok\n"
                                "it's,4,8,1,4,1,1,0.1,80,2147483648,excluded\n"
                                "it's,4,8,1,1,4,1,-1,-1,-1,illegal\n";

Test(plot, by_cluster_size) {
    ds_buf s = {0};
    script_of(two_sizes, "a b.svg", &s);
    expect(&s, "set output 'a b-memory.svg'");
    expect(&s, "set title 'it''s: throughput against memory' noenhanced");
    expect(&s, "$front << END\n1 100\n2 160\nEND\n");
    expect(&s, "$ok << END\n1 100\n1 80\n2 160\n1 80\nEND\n");
    expect(&s, "$too_large << END\n2 160\nEND\n");
    expect(&s, "$excluded << END\n2 80\nEND\n");
    /* columns are sizes, rows are 1 x 1, 2 x 1; shares of the best of each size */
    expect(&s, "set xtics ('2' 0, '4' 1)");
    expect(&s, "set ytics ('1 x 1' 0, '2 x 1' 1)");
    expect(&s, "0 0 1.000000 \"100 /s\\ndp 2, 1 mb\"\n0 1 0.800000 \"80 /s\\ndp 1, 1 mb\"\n"
               "1 1 1.000000 \"160 /s\\ndp 2, 1 mb\"\nEND\n");
    expect(&s, "from 0-0.5,0-0.5 to 0+0.5,0+0.5");
    expect(&s, "from 1-0.5,1-0.5 to 1+0.5,1+0.5");
    /* curves: of all, and of one kind alone; linear from the smallest */
    expect(&s, "$all << END\n2 100\n4 160\nEND\n");
    expect(&s, "$data << END\n2 100\nEND\n");
    expect(&s, "$tensor << END\n2 80\nEND\n");
    expect(&s, "$pipeline << END\nEND\n");
    expect(&s, "plot x*50 with lines");
    ds_buf_deinit(&s);
}

/* Two results of which the less is the better, and two of which one is better the larger it is. */
Test(plot, other_axes) {
    ds_buf s = {0};
    script_with(two_sizes, "a.svg",
                (ds_plot_axes){.x = DS_METRIC_step_time, .y = DS_METRIC_peak_bytes}, &s);
    expect(&s, "set title 'it''s: memory against step time' noenhanced");
    expect(&s,
           "set xlabel 'step time (s)'\nset ylabel 'peak memory of the fullest device (GiB)'\n");
    expect(&s, "$ok << END\n0.08 1\n0.1 1\n0.05 2\n0.1 1\nEND\n");
    expect(&s, "$front << END\n0.05 2\n0.08 1\nEND\n");
    expect(&s, "plot x*50 with lines"); /* the other pictures stay */
    s.n = 0;
    script_with(two_sizes, "a.svg",
                (ds_plot_axes){.x = DS_METRIC_throughput_per_s, .y = DS_METRIC_step_time}, &s);
    expect(&s, "set xlabel 'samples a second'\nset ylabel 'step time (s)'\n");
    expect(&s, "$front << END\n160 0.05\nEND\n");
    ds_buf_deinit(&s);
}

Test(plot, names_of_axes) {
    ds_plot_axes axes;
    ds_error err;
    cr_expect_eq(ds_plot_read_axes("mfu,step_time", &axes, &err), DS_OK);
    cr_expect(axes.x == DS_METRIC_mfu && axes.y == DS_METRIC_step_time);
    cr_expect_eq(ds_plot_read_axes("strategy.tp,step_time", &axes, &err), DS_OK);
    cr_expect(axes.x == DS_METRIC_COUNT && strcmp(axes.x_knob, "strategy.tp") == 0);
    static const char *const wrong[] = {"", "mfu", "mfu,", "mfu,a'b", "mfu,bubble,cost"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(ds_plot_read_axes(wrong[i], &axes, &err), DS_ERR_USAGE, "%s", wrong[i]);
    ds_buf s = {0};
    char *path = table(two_sizes);
    axes = (ds_plot_axes){.x = DS_METRIC_cost, .y = DS_METRIC_mfu};
    cr_expect_eq(ds_plot_script(path, "a.svg", axes, &s, &err), DS_ERR_DATA);
    cr_expect(strstr(err.message, "has no column 'cost'"), "%s", err.message);
    unlink(path);
    free(path);
    ds_buf_deinit(&s);
}

/* Values of knobs are side by side, numbers in order, texts as they come. */
static const char knobs[] = "m,8,8,1,1,1,1,0.1,80,3" GIB ",16,1f1b,2147483648,does_not_fit\n"
                            "m,8,8,1,1,1,1,0.2,40,1" GIB ",16,gpipe,2147483648,ok\n"
                            "m,8,8,1,1,1,1,0.1,80,1" GIB ",2,gpipe,2147483648,ok\n"
                            "m,8,8,1,1,1,1,0.05,160,1" GIB ",2,gpipe,2147483648,ok\n";

static void script_of_knobs(const char *axes_text, ds_buf *script) {
    static const char header[] =
        "model_size,world_size,batch_size,dp_degree,hp_degree,pp_degree,num_microbatches,latency,"
        "throughput,peak_memory,mb,strategy.schedule,memory_capacity,status\n";
    ds_error err;
    ds_plot_axes axes;
    char *path = table_of(header, knobs);
    cr_assert_eq(ds_plot_read_axes(axes_text, &axes, &err), DS_OK);
    cr_assert_eq(ds_plot_script(path, "a.svg", axes, script, &err), DS_OK, "%s", err.message);
    unlink(path);
    free(path);
}

Test(plot, knobs_as_axes) {
    ds_buf s = {0};
    script_of_knobs("mb,schedule", &s);
    expect(&s, "set xtics ('2' 0, '16' 1) noenhanced\nset xrange [-0.5:2-0.5]\n");
    expect(&s, "set ytics ('1f1b' 0, 'gpipe' 1) noenhanced\n");
    expect(&s, "$fit << END\n1 1 40 \"40 /s\"\n0 1 160 \"160 /s\"\nEND\n");
    expect(&s, "$others << END\n1 0 80 \"80 /s\"\nEND\n");
    s.n = 0;
    script_of_knobs("mb,peak_memory", &s);
    expect(&s, "set xlabel 'mb' noenhanced\n");
    expect(&s, "$ok << END\n1 1\n0 1\n0 1\nEND\n");
    expect(&s, "set arrow from graph 0,first 2 to graph 1,first 2 nohead");
    s.n = 0;
    script_of_knobs("peak_memory,throughput", &s);
    expect(&s, "set arrow from first 2,graph 0 to first 2,graph 1 nohead");
    ds_buf_deinit(&s);
}

Test(plot, one_cluster_size) {
    ds_buf s = {0};
    script_of("m,4,,4,1,1,1,0.5,0,1" GIB ",ok\n"
              "m,4,,1,2,2,8,0.25,0,1" GIB ",ok\n",
              "p.png", &s);
    expect(&s, "set terminal pngcairo");
    expect(&s, "set ylabel 'steps a second'"); /* no batch: 1 / latency */
    expect(&s, "set xtics ('1' 0, '2' 1)");
    expect(&s, "0 0 0.500000 \"2 /s\\ndp 4, 1 mb\"\n1 1 1.000000 \"4 /s\\ndp 1, 8 mb\"\n");
    expect(&s, "$bars << END\n0 4 0x56B4E9 \"best of all\" \"4 /s\"\n"
               "1 2 0xD55E00 \"data parallel alone\" \"2 /s\"\nEND\n");
    ds_buf_deinit(&s);
}

/* The front is the same whatever the order of rows, and points are dropped, never those of the
 * front: brute force over 50,000 rows. */
Test(plot, many_rows) {
    enum { N = 50000 };
    ds_buf text = {0};
    static double gib[N], rate[N];
    unsigned random = 1;
    for (int i = 0; i < N; i++) {
        random = random * 1103515245u + 12345u;
        gib[i] = 1 + random / 65536u % 500u;
        random = random * 1103515245u + 12345u;
        rate[i] = (1 + random / 65536u % 1000u) * gib[i];
        ds_buf_printf(&text, "m,4,8,4,1,1,1,0.5,%g,%.0f,ok\n", rate[i], gib[i] * (1 << 30));
    }
    char *path = table(text.text);
    ds_plot_rows rows;
    ds_error err;
    cr_assert_eq(ds_plot_rows_read(path, DS_PLOT_AXES, &rows, &err), DS_OK, "%s", err.message);
    cr_expect_eq(rows.simulated, N);
    cr_expect(rows.points.n > 10000 && rows.points.n <= 20000, "%u", rows.points.n);
    uint32_t n = 0;
    for (double at = 1; at <= 500; at++) { /* the best with just so much memory, if less is worse */
        double here = 0, less = 0;
        for (int i = 0; i < N; i++) {
            if (gib[i] < at && rate[i] > less) less = rate[i];
            if (!(gib[i] < at) && !(gib[i] > at) && rate[i] > here) here = rate[i];
        }
        if (!(here > less)) continue;
        cr_assert_lt(n, rows.front.n);
        cr_expect_float_eq(rows.front.at[n].x, at, 1e-9);
        cr_expect_float_eq(rows.front.at[n].y, here, 1e-9);
        n++;
    }
    cr_expect_eq(n, rows.front.n);
    ds_plot_rows_deinit(&rows);
    unlink(path);
    free(path);
    ds_buf_deinit(&text);
}

Test(plot, refused) {
    ds_error err;
    ds_buf s = {0};
    cr_expect_eq(ds_plot_check("grid.pdf", false, &err), DS_ERR_USAGE);
    cr_expect_eq(ds_plot_check("grid", false, &err), DS_ERR_USAGE);
    cr_expect_eq(ds_plot_check("a/.svg", false, &err), DS_ERR_USAGE);
    setenv("PATH", "/nowhere", 1);
    cr_expect_eq(ds_plot_check("grid.svg", false, &err), DS_ERR_UNSUPPORTED);
    char *path = table("m,4,8,1,1,4,1,-1,-1,-1,illegal\n");
    cr_expect_eq(ds_plot_script(path, "a.svg", DS_PLOT_AXES, &s, &err), DS_ERR_DATA);
    cr_expect(strstr(err.message, "nothing to draw"));
    unlink(path);
    free(path);
    cr_expect_eq(ds_plot_script(DS_SOURCE_DIR "/README.md", "a.svg", DS_PLOT_AXES, &s, &err),
                 DS_ERR_DATA);
    cr_expect_eq(ds_plot_script("/nowhere/a.csv", "a.svg", DS_PLOT_AXES, &s, &err), DS_ERR_IO);
    ds_buf_deinit(&s);
}
