/* distsim plan: the plan as a command or file of a framework (ir/launch). */
#include "ir/launch/launch.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "tools/cli/plan/plan.h"

#include <string.h>

/* The text with four blanks before each line. */
static void put_indented(const ds_buf *text, ds_buf *out) {
    for (const char *line = text->text; *line;) {
        size_t n = strcspn(line, "\n");
        ds_buf_put(out, "    ");
        ds_buf_put_n(out, line, n);
        ds_buf_putc(out, '\n');
        line += n + (line[n] == '\n');
    }
}

static void put_framework(const cli_plan *plan, const ds_binding *binding,
                          ds_launch_framework framework, ds_buf *out) {
    ds_arena arena;
    ds_launch launch;
    ds_buf text = {0};
    ds_error err = {0};
    ds_arena_init(&arena);
    ds_launch_init(&launch, framework, &arena);
    ds_status status = ds_launch_of_scenario(&launch, binding, &err);
    launch.node = plan->node;
    if (status == DS_OK) status = ds_launch_write(&launch, &text, &err);
    ds_buf_printf(out, "  %s\n", ds_launch_framework_version(framework));
    if (status == DS_OK)
        put_indented(&text, out);
    else
        ds_buf_printf(out, "    no command: %s\n", err.message);
    ds_launch_deinit(&launch);
    ds_buf_deinit(&text);
    ds_arena_deinit(&arena);
}

void cli_plan_put_launch(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out) {
    ds_buf text = {0};
    ds_unit *unit = NULL;
    ds_error err = {0};
    ds_diags diags;
    ds_binding binding;
    ds_launch_framework framework;
    if (!ds_launch_framework_by_name(plan->framework->word, &framework)) return;
    cli_plan_put_scenario(plan, row, &text);
    ds_diags_init(&diags);
    ds_status status = cli_plan_fix(plan, "plan", &text, &err);
    if (status == DS_OK) status = ds_load_text("plan", text.text, text.n, &plan->load, &unit, &err);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, &err);
    if (status == DS_OK) {
        ds_buf_put(out, "\nHow to launch it (data and learning rates are yours)\n");
        put_framework(plan, &binding, framework, out);
    }
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
}
