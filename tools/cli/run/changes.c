/* A scenario simulated again and again, each time with one setting more. */
#include "tools/cli/run/changes.h"

#include "ir/strategy/scenario.h"
#include "sim/report/analysis.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* runs of a table */

void cli_close_side(cli_side *side) {
    ds_result_free(side->result);
    cli_close(&side->source);
}

typedef struct runs {
    const cli_changes *of;
    ds_arena arena;
    cli_side base;
    const char *key;             /* "what_if" */
    DS_VEC(const char *) said;   /* by the scenario */
    DS_VEC(const char *) wanted; /* one after the other */
} runs;

/* The items that the scenario says under the key: what is asked for comes on top of them. */
static ds_status read_said(runs *r, ds_error *err) {
    const ds_binding *binding = &r->base.source.binding;
    if (!ds_scenario_find(binding->unit, "", r->key)) return DS_OK;
    uint32_t n = ds_scenario_text_count(binding->unit, "", r->key);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = NULL;
        DS_TRY(ds_scenario_text_at(binding, "", r->key, i, &text, err));
        if (strcmp(text, "none") != 0) DS_PUSH(&r->arena, &r->said, text);
    }
    return DS_OK;
}

static void put_item(const char *text, ds_buf *list) {
    ds_buf_printf(list, "%s\"%s\"", list->n ? ", " : "", text);
}

/* The program with the first n of what is wanted, and one more (NULL: none). */
static int simulate(runs *r, uint32_t n, const char *more, cli_side *out) {
    ds_buf list = {0};
    for (uint32_t i = 0; i < r->said.n; i++) put_item(r->said.at[i], &list);
    for (uint32_t i = 0; i < n; i++) put_item(r->wanted.at[i], &list);
    if (more) put_item(more, &list);
    cli_options options = *r->of->options;
    options.settings.at = NULL;
    options.settings.n = options.settings.cap = 0;
    for (uint32_t i = 0; i < r->of->options->settings.n; i++)
        DS_HPUSH(&options.settings, r->of->options->settings.at[i]);
    ds_setting setting = {.path = ds_arena_printf(&r->arena, "scenario.%s", r->key),
                          .text = ds_arena_printf(&r->arena, "[%s]", list.text)};
    DS_HPUSH(&options.settings, setting);
    *out = (cli_side){.result = NULL};
    int exit_code = r->of->simulate(r->of->context, &options, out);
    free(options.settings.at);
    ds_buf_deinit(&list);
    return exit_code;
}

/* ---- one change after the other ---- */

static void split(runs *r, const char *text) {
    for (; *text; text += strcspn(text, ","), text += *text == ',')
        DS_PUSH(&r->arena, &r->wanted, ds_arena_strndup(&r->arena, text, strcspn(text, ",")));
}

static int climb(runs *r, ds_buf *table, ds_buf *json) {
    ds_rung rungs[MOST + 1] = {{"", r->base.result->run.step_ps}};
    uint32_t n = 1;
    for (; n <= r->wanted.n; n++) {
        cli_side side;
        int exit_code = simulate(r, n, NULL, &side);
        if (!exit_code) rungs[n] = (ds_rung){r->wanted.at[n - 1], side.result->run.step_ps};
        cli_close_side(&side);
        if (exit_code) return exit_code;
    }
    ds_report_ladder(rungs, n, r->of->ladder != NULL, table);
    ds_report_ladder_json(rungs, n, r->of->ladder != NULL, json);
    return 0;
}

/* ---- sensitivity ---- */

static void list_resources(runs *r) {
    static const ds_resource own[] = {DS_RESOURCE_COMPUTE, DS_RESOURCE_MEMORY};
    for (uint32_t i = 0; i < 2; i++) DS_PUSH(&r->arena, &r->wanted, ds_resource_name(own[i]));
    ds_buf links = {0};
    ds_topo_link_names(r->base.result->plan->topo, &links);
    const char *at = links.n ? links.text : "";
    if (strchr(at, ',')) DS_PUSH(&r->arena, &r->wanted, "link"); /* two kinds may bind together */
    for (size_t n; *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        DS_PUSH(&r->arena, &r->wanted, ds_arena_printf(&r->arena, "link %.*s", (int)n, at));
    }
    ds_buf_deinit(&links);
    DS_PUSH(&r->arena, &r->wanted, ds_resource_name(DS_RESOURCE_LATENCY));
    DS_PUSH(&r->arena, &r->wanted, ds_resource_name(DS_RESOURCE_HOST));
}

/* A profile's terms say of links that change which part of a time is latency. So the neighbour of a
 * link that is 1 % faster is the link times 1: the same times alone, and that latency beside others. */
static int compare(runs *r, const char *name, bool is_link, ds_sensitivity *row) {
    cli_side same = {.result = NULL}, more = {.result = NULL};
    int exit_code = 0;
    if (is_link) exit_code = simulate(r, 0, ds_arena_printf(&r->arena, "%s * 1", name), &same);
    if (!exit_code)
        exit_code = simulate(r, 0, ds_arena_printf(&r->arena, "%s * 1.01", name), &more);
    if (!exit_code)
        *row = ds_sensitivity_of(is_link ? same.result : r->base.result, more.result, name);
    cli_close_side(&same);
    cli_close_side(&more);
    return exit_code;
}

static int derive(runs *r, ds_buf *table, ds_buf *json) {
    ds_sensitivity rows[MOST];
    int exit_code = 0;
    uint32_t n = 0;
    for (; n < r->wanted.n && !exit_code; n++) {
        const char *name = r->wanted.at[n];
        exit_code = compare(r, name, strncmp(name, "link", 4) == 0, &rows[n]);
    }
    if (exit_code) return exit_code;
    ds_report_sensitivity(rows, n, r->base.result->run.step_ps, table);
    ds_report_sensitivity_json(rows, n, r->base.result->run.step_ps, json);
    return 0;
}

int cli_run_changes(const cli_changes *changes, ds_buf *table, ds_buf *json) {
    runs r = {.of = changes, .key = changes->ladder ? "without" : "what_if"};
    ds_error err;
    ds_arena_init(&r.arena);
    cli_options options = *changes->options;
    int exit_code = changes->simulate(changes->context, &options, &r.base);
    if (!exit_code && read_said(&r, &err) != DS_OK) exit_code = cli_fail(r.base.source.unit, &err);
    if (!exit_code && changes->ladder) split(&r, changes->ladder);
    if (!exit_code && changes->sensitivity) list_resources(&r);
    for (uint32_t i = 0; i < changes->what_ifs.n && !exit_code; i++)
        DS_PUSH(&r.arena, &r.wanted, changes->what_ifs.at[i]);
    if (!exit_code && r.wanted.n > MOST) {
        fprintf(stderr, "distsim run: %u changes; a table has at most %d\n", r.wanted.n, MOST);
        exit_code = 2;
    }
    if (!exit_code)
        exit_code = changes->sensitivity ? derive(&r, table, json) : climb(&r, table, json);
    if (!exit_code && !r.base.result->metrics.fits) exit_code = ds_status_exit_code(DS_ERR_MEMORY);
    cli_close_side(&r.base);
    ds_arena_deinit(&r.arena);
    return exit_code;
}
