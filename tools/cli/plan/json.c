/* distsim plan --json: the plan as one object. Results have the names of `run --json`. */
#include "tools/cli/plan/plan.h"

#include <string.h>

/* The line of the report that begins with the label, without it; "" if there is none. */
static void put_line_after(ds_json *json, const char *key, const char *report, const char *label) {
    const char *at = strstr(report, label);
    if (at) at += strlen(label);
    if (at) at += strspn(at, " ");
    ds_buf line = {0};
    ds_buf_put_n(&line, at ? at : "", at ? strcspn(at, "\n") : 0);
    ds_json_key_string(json, key, line.text);
    ds_buf_deinit(&line);
}

static void put_lines(ds_json *json, const char *key, const char *text) {
    ds_json_key(json, key);
    ds_json_begin_array(json);
    while (*text) {
        size_t n = strcspn(text, "\n");
        ds_buf line = {0};
        ds_buf_put_n(&line, text, n);
        if (n) ds_json_string(json, line.text);
        ds_buf_deinit(&line);
        text += n + (text[n] == '\n');
    }
    ds_json_end_array(json);
}

void cli_plan_put_json(const cli_plan *plan, const cli_search *s, const cli_plan_texts *texts,
                       ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    ds_json_key_string(&json, "model", plan->source);
    ds_json_key_string(&json, "function", plan->model_func);
    ds_json_key_int(&json, "parameters", plan->parameters);
    ds_json_key_string(&json, "topology", plan->on_name);
    ds_json_key_string(&json, "device", plan->device);
    ds_json_key_int(&json, "devices_of_topology", plan->world);
    ds_json_key_int(&json, "devices_of_node", plan->node);
    ds_json_key_int(&json, "batch", plan->batch);
    if (plan->seq) ds_json_key_int(&json, "seq", plan->seq);
    ds_json_key_string(&json, "framework", plan->framework->word);
    ds_json_key_string(&json, "dtype", plan->dtype);
    ds_json_key_string(&json, "optimizer", plan->optimizer);
    ds_json_key_int(&json, "space", (int64_t)s->n_candidates);
    ds_json_key_string(&json, "method", s->sweep.method);
    ds_sweep_put_json(&s->result, &json);
    if (s->result.best.top.n) {
        put_line_after(&json, "what_binds", texts->why, "what binds");
        put_lines(&json, "why", texts->why);
        put_lines(&json, "launch", texts->launch);
        ds_json_key_string(&json, "scenario", texts->scenario);
    }
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}
