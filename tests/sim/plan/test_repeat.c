/* Turns that do the same are simulated once, and change nothing: random nests of loops, with
 * communication beside compute, carries of all sorts, hosts that are late, and the programs of recs
 * give with and without repeats the same picoseconds, bytes, accounts and reports; and where turns
 * overlap or differ, no repeat is believed. */
#include "ir/base/file.h"
#include "ir/base/rng.h"
#include "sim/report/analysis.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_rec.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random nests of loops ---- */

typedef struct writer {
    ds_rng rng;
    ds_buf *out;
    int n_names, depth; /* values; loops around */
    bool calm;          /* no communication that waits for nothing, no carry of a carry */
    int visible[64], n_visible;
} writer;

static uint32_t draw(writer *w, uint32_t n) {
    return (uint32_t)(ds_rng_next(&w->rng) % n);
}

static int any_of(writer *w) {
    return w->visible[draw(w, (uint32_t)w->n_visible)];
}

static int add_value(writer *w) {
    return w->visible[w->n_visible++] = w->n_names++;
}

static void indent(const writer *w) {
    ds_buf_printf(w->out, "%*s", 2 * w->depth + 2, "");
}

#define TYPE "f32[4, 16] on @m"

static void write_op(writer *w) {
    static const char *const streams[] = {"", ", stream = \"a\"", ", stream = \"b\""};
    int a = any_of(w), b = w->calm ? w->visible[w->n_visible - 1] : any_of(w);
    indent(w);
    switch (draw(w, 8)) {
    case 0: /* a weight of the turn */
        if (w->depth) {
            ds_buf_printf(w->out, "%%v%d = mul(%%v%d, %%w{i%d}) {cost = %u ns}\n", w->n_names, a,
                          w->depth, 100 + draw(w, 900));
            break;
        }
        ds_buf_printf(w->out, "%%v%d = neg(%%v%d)\n", w->n_names, a);
        break;
    case 1:
        if (w->calm) {
            ds_buf_printf(w->out, "%%v%d = tanh(%%v%d)\n", w->n_names, a);
            break;
        }
        ds_buf_printf(w->out, "%%v%d = all_gather(%%h) over tp dim 0 {cost = %u ns%s}\n",
                      w->n_names, 100 + draw(w, 3000), streams[draw(w, 3)]);
        break;
    case 2: /* a part of what the host issues late */
        ds_buf_printf(w->out, "%%v%d = relu(%%v%d)\n", w->n_names, a);
        break;
    case 3:
        ds_buf_printf(w->out, "%%v%d = put(%%v%d, %%p) {dim = 0, at = %s}\n", w->n_names, a,
                      w->depth ? "min(3, i1)" : "1");
        break;
    case 4: /* an all_reduce that waits for compute */
        ds_buf_printf(w->out, "%%q%d = matmul(%%v%d, %%ua)\n", w->n_names, a);
        indent(w);
        ds_buf_printf(w->out, "%%r%d = matmul(%%q%d, %%ub)\n", w->n_names, w->n_names);
        indent(w);
        ds_buf_printf(w->out, "%%v%d = all_reduce(%%r%d) over tp\n", w->n_names, w->n_names);
        break;
    default:
        ds_buf_printf(w->out, "%%v%d = add(%%v%d, %%v%d) {cost = %u ns}\n", w->n_names, a, b,
                      50 + draw(w, 2000));
        break;
    }
    add_value(w);
}

static void write_block(writer *w, int ops);

static void write_loop(writer *w) {
    int n_carries = 1 + (int)draw(w, 3), turns = 2 + (int)draw(w, 7), carry[3], yields[3];
    int outer = w->n_visible, first = w->n_names;
    indent(w);
    for (int i = 0; i < n_carries; i++) ds_buf_printf(w->out, "%s%%v%d", i ? ", " : "", first + i);
    ds_buf_printf(w->out, " = for i%d in 0..%d carry (", w->depth + 1, turns);
    w->n_names += n_carries;
    for (int i = 0; i < n_carries; i++) {
        carry[i] = any_of(w);
        ds_buf_printf(w->out, "%s%%v%d: " TYPE " = %%v%d", i ? ", " : "", w->n_names + i, carry[i]);
    }
    ds_buf_put(w->out, ") {\n");
    int inside = w->n_names;
    for (int i = 0; i < n_carries; i++) add_value(w);
    w->depth++;
    write_block(w, 1 + (int)draw(w, 5));
    indent(w);
    ds_buf_put(w->out, "yield ");
    for (int i = 0; i < n_carries; i++) {
        /* what the turn made, what it was given, in another order, or what stands outside */
        yields[i] = draw(w, 4) ? w->visible[w->n_visible - 1 - (int)draw(w, 2)] : any_of(w);
        if (w->calm && yields[i] >= inside && yields[i] < inside + n_carries)
            yields[i] = w->visible[w->n_visible - 1];
        if (!w->calm && !draw(w, 8)) yields[i] = inside + (int)draw(w, (uint32_t)n_carries);
        ds_buf_printf(w->out, "%s%%v%d", i ? ", " : "", yields[i]);
    }
    w->depth--;
    ds_buf_putc(w->out, '\n');
    indent(w);
    ds_buf_put(w->out, "} : ");
    for (int i = 0; i < n_carries; i++) ds_buf_printf(w->out, "%s" TYPE, i ? ", " : "");
    ds_buf_putc(w->out, '\n');
    w->n_visible = outer;
    for (int i = 0; i < n_carries; i++) w->visible[w->n_visible++] = first + i;
}

static void write_block(writer *w, int ops) {
    for (int i = 0; i < ops; i++) {
        bool loop = w->depth < 3 && w->n_visible < 40 && draw(w, w->depth ? 4 : 2) == 0;
        if (loop)
            write_loop(w);
        else
            write_op(w);
    }
}

/* Two devices of one kind, or of two; of four cases one has hosts that are late. */
static void random_loops(uint64_t seed, ds_buf *out) {
    writer w = {.rng = {seed}, .out = out};
    w.calm = seed % 2;
    bool late = draw(&w, 4) == 0, mixed = draw(&w, 4) == 0;
    ds_buf_printf(out,
                  "dir 1\ntopology @box {\n  device a : \"%s\"\n  device b : \"%s\"\n"
                  "  link a -- b : 100 GB/s, 1 us\n}\nmesh @m = [tp = 2] on @box\n"
                  "func @f(%%v0: " TYPE ", %%h: f32[4@tp, 16] on @m, %%p: f32[1, 16] on @m, "
                  "%%ua: f32[16, 16@tp] on @m, %%ub: f32[16@tp, 16] on @m, %%w{i: 0..9}: " TYPE
                  ") -> " TYPE " {\n",
                  "H100-SXM5-80GB", mixed ? "A100-SXM4-80GB" : "H100-SXM5-80GB");
    w.n_names = 0;
    add_value(&w);
    write_block(&w, 3 + (int)draw(&w, 5));
    write_loop(&w);
    ds_buf_printf(out, "  return %%v%d\n}\nscenario { program = @f, mesh = @m%s }\n", any_of(&w),
                  late ? ", profile = generic" : "");
}

/* ---- equal ---- */

static void same_account(const ds_account *a, const ds_account *b, const char *text) {
    cr_assert_eq(a->compute_ps, b->compute_ps, "%s", text);
    cr_assert_eq(a->exposed_comm_ps, b->exposed_comm_ps, "%s", text);
    cr_assert_eq(a->hidden_comm_ps, b->hidden_comm_ps, "%s", text);
    cr_assert_eq(a->idle_ps, b->idle_ps, "%s", text);
    cr_assert_eq(a->end_ps, b->end_ps, "%s", text);
    cr_assert_eq(a->n_tasks, b->n_tasks, "%s", text);
    cr_assert(memcmp(a->flop_of, b->flop_of, sizeof a->flop_of) == 0);
    cr_assert(memcmp(a->product_flop_of, b->product_flop_of, sizeof a->product_flop_of) == 0);
    cr_assert(memcmp(a->origin_ps, b->origin_ps, sizeof a->origin_ps) == 0);
    cr_assert(memcmp(a->comm_origin_ps, b->comm_origin_ps, sizeof a->comm_origin_ps) == 0);
    cr_assert_eq(a->fitted_ps, b->fitted_ps);
    cr_assert_eq(a->extrapolated_ps, b->extrapolated_ps);
}

static void same_memory(const ds_mem_class *a, const ds_mem_class *b, const char *text) {
    cr_assert_eq(a->peak_bytes, b->peak_bytes, "%lld, not %lld\n%s", (long long)a->peak_bytes,
                 (long long)b->peak_bytes, text);
    cr_assert_eq(a->peak_ps, b->peak_ps, "%s", text);
    cr_assert_eq(a->allocated_bytes, b->allocated_bytes, "%s", text);
    size_t size = sizeof a->peak_by_category;
    cr_assert(memcmp(a->peak_by_category, b->peak_by_category, size) == 0, "%s", text);
    cr_assert(memcmp(a->most_by_category, b->most_by_category, size) == 0, "%s", text);
    cr_assert(memcmp(a->input_by_category, b->input_by_category, size) == 0, "%s", text);
}

static void same_path(const ds_result *a, const ds_result *b, const char *text) {
    ds_critical_path one, two;
    ds_critical_path_find(a, &one);
    ds_critical_path_find(b, &two);
    int64_t all = 0;
    for (int k = 0; k < DS_TIME_KIND_COUNT; k++) {
        all += one.total_ps[k];
        cr_assert_eq(one.total_ps[k], two.total_ps[k], "%s: %lld, not %lld\n%s",
                     ds_time_kind_name((ds_time_kind)k), (long long)one.total_ps[k],
                     (long long)two.total_ps[k], text);
    }
    cr_assert_eq(all, a->run.step_ps);
    ds_critical_path_deinit(&one);
    ds_critical_path_deinit(&two);
}

static void same_stages(const ds_result *a, const ds_result *b, const char *text) {
    ds_stages one, two;
    ds_stages_find(a, &one);
    ds_stages_find(b, &two);
    cr_assert_eq(one.n, two.n);
    for (uint32_t i = 0; i < one.n; i++) {
        const ds_stage *x = &one.at[i], *y = &two.at[i];
        cr_assert_eq(x->first_ps, y->first_ps, "%s", text);
        cr_assert_eq(x->last_ps, y->last_ps, "%s", text);
        cr_assert_eq(x->bubble_ps, y->bubble_ps, "%s", text);
        cr_assert_eq(x->sent_bytes, y->sent_bytes, "%s", text);
        cr_assert_eq(x->sent_most_bytes, y->sent_most_bytes, "%s", text);
    }
    ds_stages_deinit(&one);
    ds_stages_deinit(&two);
}

/* The summaries say the same but for the line that says how many tasks were simulated. */
static void same_summary(const ds_result *a, const ds_result *b, const char *program) {
    ds_buf text[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        ds_report_summary(i ? b : a, &text[i]);
        char *line = strstr(text[i].text, "  simulated"), *end = line ? strchr(line, '\n') : NULL;
        cr_assert(end != NULL);
        memset(line, '-', 16);
        memmove(line + 16, end, strlen(end) + 1);
    }
    cr_assert_str_eq(text[0].text, text[1].text, "%s\n%s\n%s", program, text[0].text, text[1].text);
    ds_buf_deinit(&text[0]);
    ds_buf_deinit(&text[1]);
}

/* So say the JSONs but for the number of simulated tasks, up to the segments of the critical path,
 * whose times add up to the step. */
static void same_json(const ds_result *a, const ds_result *b, const char *program) {
    ds_buf text[2] = {{0}, {0}};
    int64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        ds_report_json(i ? b : a, &text[i]);
        char *tasks = strstr(text[i].text, "\n  \"tasks\""), *end = strchr(tasks + 1, '\n');
        memmove(tasks, end, strlen(end) + 1);
        char *segments = strstr(text[i].text, "\"segments\"");
        for (char *at = segments, *line; !i && (at = strstr(at, "\"start_ps\":"));) {
            line = at;
            at = strchr(at, '\n');
            *at++ = '\0';
            char *times = strstr(line, "\"times\":");
            int64_t n = times ? strtoll(times + 8, NULL, 10) : 1;
            sum += n * (strtoll(strstr(line, "\"end_ps\":") + 9, NULL, 10) -
                        strtoll(line + 11, NULL, 10));
        }
        *segments = '\0';
    }
    cr_assert_eq(sum, a->run.step_ps, "%lld, not %lld", (long long)sum, (long long)a->run.step_ps);
    cr_assert_str_eq(text[0].text, text[1].text, "%s\n%s\n%s", program, text[0].text, text[1].text);
    ds_buf_deinit(&text[0]);
    ds_buf_deinit(&text[1]);
}

/* Simulates once more with repeats, and compares. Is any repeat believed? */
static bool check(const sim_case *c, const char *text) {
    ds_sim_options options = {.repeat_turns = 4};
    ds_result *r;
    ds_error err;
    cr_assert_eq(ds_sim_options_read(&c->binding, &options, &err), DS_OK);
    cr_assert_eq(ds_simulate(&c->binding, c->profiles, &options, &r, &err), DS_OK, "%s\n%s",
                 err.message, text);
    const ds_result *u = c->result;
    cr_assert_eq(r->run.step_ps, u->run.step_ps, "%lld, not %lld\n%s", (long long)r->run.step_ps,
                 (long long)u->run.step_ps, text);
    cr_assert_eq(r->plan->n_classes, u->plan->n_classes);
    for (uint32_t i = 0; i < u->plan->n_classes; i++) {
        same_account(&r->accounts[i], &u->accounts[i], text);
        same_memory(&r->mem.classes[i], &u->mem.classes[i], text);
    }
    cr_assert_eq(r->metrics.op_instances, u->metrics.op_instances);
    cr_assert_eq(r->metrics.mfu, u->metrics.mfu);
    cr_assert_eq(r->metrics.bubble_fraction, u->metrics.bubble_fraction);
    cr_assert_eq(!r->tokens, !u->tokens);
    if (r->tokens) {
        cr_assert_eq(r->tokens->n, u->tokens->n);
        cr_assert_eq(r->tokens->first_ps, u->tokens->first_ps);
        cr_assert_eq(r->tokens->cache_bytes, u->tokens->cache_bytes);
        for (uint32_t i = 0; i < r->tokens->n; i++)
            cr_assert_eq(r->tokens->ps[i], u->tokens->ps[i], "token %u\n%s", i, text);
    }
    same_path(r, u, text);
    same_stages(r, u, text);
    same_summary(r, u, text);
    same_json(r, u, text);
    bool repeats = r->plan->n_tasks < u->plan->n_tasks;
    ds_result_free(r);
    return repeats;
}

#define LOOPS (FEW_CASES ? 40u : 120u)

Test(repeat, random_loops) {
    uint32_t n = 0, repeats = 0;
    for (uint64_t seed = 0; n < LOOPS; seed++) {
        ds_buf text = {0};
        sim_case c;
        random_loops(seed, &text);
        sim_run_text(&c, text.text, NULL, false);
        cr_assert_eq(c.status, DS_OK, "seed %llu: %s\n%s", (unsigned long long)seed, c.err.message,
                     text.text);
        repeats += check(&c, text.text);
        n++;
        sim_free(&c);
        ds_buf_deinit(&text);
    }
    cr_expect_geq(repeats, n / 6, "%u of %u", repeats, n);
    cr_expect_leq(repeats, n - n / 6, "%u of %u", repeats, n);
}

/* ---- recs ---- */

#define RECS (FEW_CASES ? 30u : 100u)

Test(repeat, random_recs) {
    static const char *const stores[] = {
        "rings", "whole",      "point", "block, rec_tile = 2",  "paged, rec_tile = 2", "circular",
        "ring",  "functional", "host",  "rings, rec_fuse = off"};
    uint32_t n = 0, repeats = 0;
    for (uint64_t seed = 0; n < RECS; seed++) {
        random_rec *p = random_rec_new(seed);
        ds_buf text = {0};
        sim_case c;
        if (random_rec_evaluate(p)) {
            ds_buf_printf(&text,
                          "%stopology @box {\n  device d : \"A100-SXM4-80GB\"\n  host h\n"
                          "  link d -- h : 32 GB/s, 1 us\n}\n"
                          "scenario { model = @f, on = @box, strategy { rec_stores = %s } }\n",
                          random_rec_text(p), stores[n % (sizeof stores / sizeof *stores)]);
            sim_run_text(&c, text.text, NULL, false);
            if (c.status == DS_OK) repeats += check(&c, text.text);
            n++;
            sim_free(&c);
        }
        ds_buf_deinit(&text);
        random_rec_free(p);
    }
    cr_expect_geq(repeats, 1, "%u of %u", repeats, n);
}

static bool check_file(const char *file, const char *settings) {
    sim_case c;
    char name[256];
    snprintf(name, sizeof name, "%s %s", file, settings ? settings : "");
    sim_run_file(&c, file, settings, false);
    cr_assert_eq(c.status, DS_OK, "%s: %s", name, c.err.message);
    bool repeats = check(&c, name);
    sim_free(&c);
    return repeats;
}

/* A file with entries put at the head of its scenario, and of the scenario's strategy. */
static bool check_with(const char *file, const char *settings, const char *entries,
                       const char *knobs) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", DS_SOURCE_DIR, file);
    ds_buf file_text = {0};
    cr_assert_eq(ds_file_read(path, DS_NOWHERE, 1 << 20, &file_text, NULL), DS_OK);
    char *text = file_text.text, *scenario = strstr(text, "\nscenario {"),
         *strategy = strstr(scenario, "strategy {");
    char *head = scenario + strlen("\nscenario {");
    ds_buf out = {0};
    ds_buf_printf(&out, "%.*s\n  %s", (int)(head - text), text, entries);
    if (strategy)
        ds_buf_printf(&out, "%.*sstrategy { %s, %s", (int)(strategy - head), head, knobs,
                      strategy + strlen("strategy {"));
    else
        ds_buf_printf(&out, "\n  strategy { %s }%s", knobs, head);
    ds_buf_deinit(&file_text);
    sim_case c;
    sim_run_text(&c, out.text, settings, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, out.text);
    bool repeats = check(&c, out.text);
    sim_free(&c);
    ds_buf_deinit(&out);
    return repeats;
}

/* Layers of a token are one chain of work, whatever devices share it. */
Test(repeat, decode) {
    cr_expect(check_file("scenarios/temporal/decode.dir", "T=20 layers=12"));
    cr_expect(check_file("scenarios/temporal/window.dir", "T=20 layers=12"));
    cr_expect(check_file("tests/data/rec/llama.dir", "T=9 L=10"));
    cr_expect(check_file("tests/data/rec/llama.dir", "T=9 L=10 tp=2"));
    cr_expect(check_file("tests/data/rec/llama.dir", "T=3 L=10 tp=2 dp=2"));
    cr_expect(check_file("scenarios/decode-llama-70b.dir", "model.layers=9 seq=20 prompt=7"));
    check_file("tests/data/rec/llama.dir",
               "T=5 L=18 pp=2 tp=2"); /* no token waits for one before */
    check_file("scenarios/temporal/n-step.dir", NULL);
    check_file("scenarios/temporal/rnn.dir", NULL);
}

/* Turns write tiles of their own. */
Test(repeat, stores) {
    static const char *const stores[] = {"rings",
                                         "whole",
                                         "point",
                                         "block, rec_tile = 3",
                                         "paged, rec_tile = 4",
                                         "functional",

                                         "rings, rec_fuse = off",
                                         "rings, prefill = vector"};
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        char knobs[128];
        snprintf(knobs, sizeof knobs, "rec_stores = %s", stores[i]);
        const char *tokens = "tokens { dim = t, prompt = 2, batch = 1 }";
        bool own = i >= 2 && i <= 4;
        cr_expect_neq(check_with("tests/data/rec/llama.dir", "T=9 L=10", tokens, knobs), own, "%s",
                      knobs);
        cr_expect_neq(
            check_with("scenarios/temporal/window.dir", "T=20 layers=12 P=2", tokens, knobs), own,
            "%s", knobs);
    }
}

/* Of two stages: layers of the prompt's tokens run side by side and are followed one by one, layers
 * of decoded tokens repeat. */
Test(repeat, stages) {
    static const char settings[] = "model.layers=20 seq=24 prompt=7 tp=2";
    cr_expect(check_with("scenarios/decode-llama-70b.dir", settings, "", "pp = 2"));
}

#define LOOP_HEAD                                                                                  \
    "dir 1\ntopology @box {\n  device d : \"A100-SXM4-80GB\"\n}\n"                                 \
    "func @f(%x: f32[16], %w{i: 0..30}: f32[16]) -> f32[16] {\n"
#define LOOP_TAIL(settings) "  return %y\n}\nscenario { program = @f, on = @box" settings " }\n"

static bool check_text(const char *text, uint32_t *n_tasks) {
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
    bool repeats = check(&c, text);
    if (n_tasks) *n_tasks = c.result->plan->n_tasks;
    sim_free(&c);
    return repeats;
}

/* The device is behind its host when the loop begins, catches up, and then waits for the host: turns
 * take unequal time. A device that waits from the first turn on, and one that never does, repeat. */
Test(repeat, hosts) {
    static const char text[] = "%s  %%a = relu(%%x) {cost = %s}\n"
                               "  %%y = for i in 0..30 carry (%%b: f32[16] = %%a) {\n"
                               "    %%c = neg(%%b) {cost = %s}\n"
                               "    %%d = mul(%%c, %%w{i}) {cost = %s}\n"
                               "    yield %%d\n  } : f32[16]\n%s";
    static const struct {
        const char *before, *turn;
        bool repeats;
    } cases[] = {{"1 ns", "1 ns", true},
                 {"1 ns", "50 us", true},
                 {"60 us", "1 ns", false},
                 {"90 us", "1 ns", false},
                 {"60 us", "50 us", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char program[1024];
        snprintf(program, sizeof program, text, LOOP_HEAD, cases[i].before, cases[i].turn,
                 cases[i].turn, LOOP_TAIL(", profile = generic"));
        cr_expect_eq(check_text(program, NULL), cases[i].repeats, "%s", program);
    }
}

/* A carry that hands on what stands outside, beside one that each turn makes; one that hands on what
 * the turn before made is as old as two turns, and no two turns say the same. */
Test(repeat, carries) {
    static const char *const last[] = {"o", "x", "b"};
    for (int i = 0; i < 3; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "%s  %%a = relu(%%x)\n"
                 "  %%y, %%z = for i in 0..30 carry (%%b: f32[16] = %%a, %%o: f32[16] = %%x) {\n"
                 "    %%c = add(%%b, %%o)\n    %%d = mul(%%c, %%w{i})\n"
                 "    yield %%d, %%%s\n  } : f32[16], f32[16]\n%s",
                 LOOP_HEAD, last[i], LOOP_TAIL(""));
        cr_expect_eq(check_text(text, NULL), i < 2, "%s", text);
    }
}

/* What depends on the turn does not repeat: a time, an element that another loop made. */
Test(repeat, turns_that_differ) {
    cr_expect_not(check_text(
        LOOP_HEAD "  %y = for i in 0..9 carry (%b: f32[16] = %x) {\n"
                  "    %c = neg(%b) {cost = i * 1 us}\n    yield %c\n  } : f32[16]\n" LOOP_TAIL(""),
        NULL));
    cr_expect_not(check_text(LOOP_HEAD
                             "  %k = for i in 0..9 {\n    %n = neg(%x)\n    yield keep %n\n  }\n"
                             "  %y = for i in 0..9 carry (%b: f32[16] = %x) {\n"
                             "    %c = mul(%b, %k{i})\n    yield %c\n  } : f32[16]\n" LOOP_TAIL(""),
                             NULL));
}

/* Points go to the host, and come back, one by one: each transfer waits for another one. */
Test(repeat, points_at_the_host) {
    static const char text[] =
        "dir 1\ntopology @box {\n  device d : \"A100-SXM4-80GB\"\n  host h\n"
        "  link d -- h : 32 GB/s, 1 us\n}\n"
        "func @f(%x: f32[1, 65536], %w{i: 0..30}: f32[1, 65536]) -> f32[1, 65536] {\n"
        "  %s0 = zeros {dim = 0, tile = 1, host = 1} : f32[30, 65536]\n"
        "  %y, %s = for i in 0..30 carry (%b: f32[1, 65536] = %x, %k: f32[30, 65536] = %s0) {\n"
        "    %c = mul(%b, %w{i}) {cost = 1 us}\n    %k1 = put(%k, %c) {dim = 0, at = i}\n"
        "    yield %c, %k1\n  } : f32[1, 65536], f32[30, 65536]\n"
        "  %z = for i in 0..30 carry (%b: f32[1, 65536] = %y) {\n"
        "    %c = slice(%s) {dim = 0, lo = i, hi = i + 1}\n    %e = mul(%b, %c)\n"
        "    yield %e\n  } : f32[1, 65536]\n"
        "  return %z\n}\nscenario { program = @f, on = @box }\n";
    cr_expect_not(check_text(text, NULL));
}

/* Loops in loops: 20 x (1 + 20 x 1 + 1) tasks, of which 3 x (1 + 3 + 1) are simulated. */
Test(repeat, nested) {
    uint32_t n;
    cr_expect(check_text(LOOP_HEAD
                         "  %y = for i in 0..20 carry (%b: f32[16] = %x) {\n    %c = neg(%b)\n"
                         "    %d = for k in 0..20 carry (%e: f32[16] = %c) {\n"
                         "      %g = mul(%e, %w{k})\n      yield %g\n    } : f32[16]\n"
                         "    %h = add(%d, %b)\n    yield %h\n  } : f32[16]\n" LOOP_TAIL(""),
                         &n));
    cr_expect_eq(n, 440, "%u", n);
}
