/* The run in Chrome's trace event format, which ui.perfetto.dev opens.
 *
 * A process is a device class, a thread a stream: the compute stream first. Where the program's
 * outermost ops are calls, a thread above the compute stream shows the calls: in a pipeline the
 * schedule's items, "F3.5" for the forward pass of chunk 3 and microbatch 5. Spans ("X") are tasks;
 * a counter ("C") is a class's memory. Arrows ("s" to "f") lead from a compute task to a transfer
 * that waits for the task, from a transfer to a task that waits for the transfer, and from a sender
 * to its receiver. Process 0 is the critical path: at each time the task that the step waits for.
 * Times are microseconds, written as decimals of the exact picoseconds.
 *
 * Source: "Trace Event Format", Google, 2016. An arrow end belongs to the span that encloses its
 * time on its thread, so both ends lie at the start of their spans; viewers draw them from the end
 * of the first to the start of the second. */
#include "sim/report/internal.h"

#include <stdlib.h>

#define PS_DIGITS 6 /* a microsecond is 10^6 ps */

typedef struct writer {
    const ds_result *result;
    const ds_plan *plan;
    ds_json json;
    uint32_t *thread; /* per stream: its number in its process, the compute stream 0 */
    int64_t n_arrows;
} writer;

/* Processes: the critical path, then the classes. */
#define PATH_PROCESS 0
static int64_t process(uint32_t cls) {
    return (int64_t)cls + 1;
}

static void begin_event(writer *w, const char *phase, int64_t pid) {
    ds_buf_putc(w->json.out, '\n'); /* an event a line: people read such files, too */
    ds_json_begin_object(&w->json);
    ds_json_key_string(&w->json, "ph", phase);
    ds_json_key_int(&w->json, "pid", pid);
}

static void number_threads(writer *w) {
    const ds_plan *plan = w->plan;
    uint32_t *next = ds_xcalloc(plan->n_classes, sizeof *next);
    w->thread = ds_xcalloc(plan->n_streams, sizeof *w->thread);
    for (uint32_t s = 0; s < plan->n_streams; s++)
        w->thread[s] = plan->streams[s].key ? ++next[plan->streams[s].cls] : 0;
    free(next);
}

/* {"ph": "M"}: names of processes and threads, and their order on the screen. */
static void metadata(writer *w, int64_t pid, int64_t thread, const char *what, const char *name,
                     int64_t order) {
    begin_event(w, "M", pid);
    if (thread >= 0) ds_json_key_int(&w->json, "tid", thread);
    ds_json_key_string(&w->json, "name", what);
    ds_json_key(&w->json, "args");
    ds_json_begin_object(&w->json);
    if (name)
        ds_json_key_string(&w->json, "name", name);
    else
        ds_json_key_int(&w->json, "sort_index", order);
    ds_json_end_object(&w->json);
    ds_json_end_object(&w->json);
}

static void names(writer *w) {
    const ds_plan *plan = w->plan;
    ds_stages stages;
    ds_stages_find(w->result, &stages);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        ds_buf name = {0};
        uint32_t stage = stages.of_device[plan->classes[c].device];
        if (plan->n_jobs)
            ds_buf_printf(&name, "%s: ", plan->jobs[plan->job_of[plan->classes[c].device]].name);
        if (!stages.by_class && stage != DS_NONE) ds_buf_printf(&name, "stage %u: ", stage);
        ds_buf_put(&name, ds_report__device(plan, c));
        if (plan->classes[c].n_devices > 1)
            ds_buf_printf(&name, " \xc3\x97%u", plan->classes[c].n_devices); /* U+00D7, times */
        ds_buf_printf(&name, " (%s)", ds_report__kind(plan, c));
        metadata(w, process(c), -1, "process_name", name.text, 0);
        metadata(w, process(c), -1, "process_sort_index", NULL, c);
        ds_buf_deinit(&name);
    }
    ds_stages_deinit(&stages);
    char **streams = ds_report__stream_names(plan);
    for (uint32_t s = 0; s < plan->n_streams; s++) {
        metadata(w, process(plan->streams[s].cls), w->thread[s], "thread_name", streams[s], 0);
        metadata(w, process(plan->streams[s].cls), w->thread[s], "thread_sort_index", NULL,
                 w->thread[s]);
    }
    ds_report__free_names(streams, plan->n_streams);
}

static void span_args(writer *w, uint32_t task, const char *path) {
    const ds_group *group = ds_report__group(w->plan, task);
    ds_item_call item;
    ds_json_key(&w->json, "args");
    ds_json_begin_object(&w->json);
    ds_json_key_string(&w->json, "path", path);
    if (ds_item_call_of(w->result, w->plan->insts.at[w->plan->task_inst[task]].scope, &item)) {
        ds_buf name = {0};
        ds_report__put_item(&item, &name);
        ds_json_key_string(&w->json, "item", name.text);
        ds_buf_deinit(&name);
    }
    if (group) {
        ds_json_key_string(&w->json, "algorithm", ds_report__algorithm(group));
        ds_json_key_int(&w->json, "group_size", group->n_devices);
        ds_json_key_int(&w->json, "bytes", group->bytes);
    } else {
        const ds_variant *v = ds_plan_task_variant(w->plan, task);
        ds_json_key_string(&w->json, "origin", ds_cost_origin_name(v->cost.origin));
        ds_json_key_int(&w->json, "flop", v->work.flop);
        ds_json_key_int(&w->json, "bytes_read", v->work.bytes_read);
        ds_json_key_int(&w->json, "bytes_written", v->work.bytes_written);
    }
    ds_json_end_object(&w->json);
}

static void span(writer *w, uint32_t task, const char *path) {
    const ds_run *run = &w->result->run;
    begin_event(w, "X", process(w->plan->task_class[task]));
    ds_json_key_int(&w->json, "tid", w->thread[w->plan->task_stream[task]]);
    ds_json_key_string(&w->json, "name", ds_plan_task_record(w->plan, task)->label);
    ds_json_key_string(&w->json, "cat",
                       w->plan->task_activity[task] == DS_NONE ? "compute" : "communication");
    ds_json_key_decimal(&w->json, "ts", run->start_ps[task], PS_DIGITS);
    ds_json_key_decimal(&w->json, "dur", run->end_ps[task] - run->start_ps[task], PS_DIGITS);
    span_args(w, task, path);
    ds_json_end_object(&w->json);
}

/* ---- the outermost calls ---- */

/* A call on a class, from the start of its first compute task to the end of its last. A compute
 * stream runs its tasks in the order of the program, so tasks of two calls never mix. */
typedef struct call_span {
    uint32_t cls, scope;
    int64_t start, end;
} call_span;
typedef DS_VEC(call_span) call_spans;

/* By scope: the outermost call around the scope, or DS_NONE. Outer scopes come before inner. */
static uint32_t *outer_calls(const ds_plan *plan) {
    uint32_t *outer = ds_xcalloc(plan->scopes.n, sizeof *outer);
    for (uint32_t i = 0; i < plan->scopes.n; i++) {
        const ds_scope *s = &plan->scopes.at[i];
        outer[i] = s->up == DS_NONE ? DS_NONE : outer[s->up];
        if (outer[i] == DS_NONE && s->op && s->op->code == DS_OP_CALL) outer[i] = i;
    }
    return outer;
}

static void find_calls(const writer *w, call_spans *out) {
    const ds_plan *plan = w->plan;
    uint32_t *outer = outer_calls(plan);
    uint32_t *last = ds_xcalloc(plan->n_classes, sizeof *last); /* by class: span + 1 */
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        uint32_t cls = plan->task_class[t], scope = outer[plan->insts.at[plan->task_inst[t]].scope];
        int64_t start = w->result->run.start_ps[t], end = w->result->run.end_ps[t];
        if (scope == DS_NONE || plan->task_activity[t] != DS_NONE || start == end ||
            plan->streams[plan->task_stream[t]].key)
            continue;
        if (!last[cls] || out->at[last[cls] - 1].scope != scope) {
            DS_HPUSH(out, ((call_span){cls, scope, start, end}));
            last[cls] = out->n;
        }
        out->at[last[cls] - 1].end = end;
    }
    free(last);
    free(outer);
}

/* Colours of chrome://tracing (catapult's color_scheme.html); ui.perfetto.dev goes by the name. */
static const char *colour_of(char kind) {
    return kind == 'F' ? "rail_response" : kind == 'W' ? "rail_load" : "rail_idle";
}

static void call_name(const writer *w, const ds_scope *scope, const ds_item_call *item,
                      ds_buf *out) {
    if (item)
        ds_report__put_item(item, out);
    else if (w->result->step && scope->microbatch != DS_NO_MICROBATCH)
        ds_buf_printf(out, "microbatch %lld", (long long)scope->microbatch);
    else
        ds_buf_put(out, scope->op->callee_name);
}

static void call(writer *w, const call_span *s, uint32_t thread) {
    const ds_scope *scope = &w->plan->scopes.at[s->scope];
    ds_item_call item;
    bool is_item = ds_item_call_of(w->result, s->scope, &item);
    ds_buf name = {0};
    call_name(w, scope, is_item ? &item : NULL, &name);
    begin_event(w, "X", process(s->cls));
    ds_json_key_int(&w->json, "tid", thread);
    ds_json_key_string(&w->json, "name", name.text);
    const char kind[] = {is_item ? item.kind : '\0', '\0'};
    ds_json_key_string(&w->json, "cat", is_item ? kind : "call");
    if (is_item) ds_json_key_string(&w->json, "cname", colour_of(item.kind));
    ds_json_key_decimal(&w->json, "ts", s->start, PS_DIGITS);
    ds_json_key_decimal(&w->json, "dur", s->end - s->start, PS_DIGITS);
    ds_json_key(&w->json, "args");
    ds_json_begin_object(&w->json);
    ds_json_key_string(&w->json, "function", scope->op->callee_name);
    if (is_item) {
        ds_json_key_int(&w->json, "chunk", item.chunk);
        ds_json_key_int(&w->json, "microbatch", item.microbatch);
    }
    ds_json_end_object(&w->json);
    ds_json_end_object(&w->json);
    ds_buf_deinit(&name);
}

static void calls(writer *w) {
    call_spans spans = {0};
    find_calls(w, &spans);
    uint32_t *thread = ds_xcalloc(w->plan->n_classes, sizeof *thread); /* after the streams' */
    bool *named = ds_xcalloc(w->plan->n_classes, sizeof *named);
    for (uint32_t s = 0; s < w->plan->n_streams; s++)
        if (w->thread[s] >= thread[w->plan->streams[s].cls])
            thread[w->plan->streams[s].cls] = w->thread[s] + 1;
    for (uint32_t i = 0; i < spans.n; i++) {
        uint32_t cls = spans.at[i].cls;
        ds_item_call item;
        if (!named[cls]) {
            bool is_item = ds_item_call_of(w->result, spans.at[i].scope, &item);
            metadata(w, process(cls), thread[cls], "thread_name", is_item ? "schedule" : "calls",
                     0);
            metadata(w, process(cls), thread[cls], "thread_sort_index", NULL, -1);
            named[cls] = true;
        }
        call(w, &spans.at[i], thread[cls]);
    }
    free(named);
    free(thread);
    free(spans.at);
}

static void arrow_end(writer *w, const char *phase, uint32_t task, const char *name) {
    begin_event(w, phase, process(w->plan->task_class[task]));
    ds_json_key_int(&w->json, "tid", w->thread[w->plan->task_stream[task]]);
    ds_json_key_int(&w->json, "id", w->n_arrows);
    ds_json_key_string(&w->json, "name", name);
    ds_json_key_string(&w->json, "cat", "flow");
    if (*phase == 'f') ds_json_key_string(&w->json, "bp", "e");
    ds_json_key_decimal(&w->json, "ts", w->result->run.start_ps[task], PS_DIGITS);
    ds_json_end_object(&w->json);
}

static void arrow(writer *w, uint32_t from, uint32_t to, const char *name) {
    w->n_arrows++;
    arrow_end(w, "s", from, name);
    arrow_end(w, "f", to, name);
}

/* Dependences that begin or end in a transfer; plan->succ has all dependences between streams. */
static void dependences(writer *w, uint32_t task) {
    const ds_plan *plan = w->plan;
    bool transfer = plan->task_activity[task] != DS_NONE;
    uint32_t last = DS_NONE;
    for (uint32_t i = plan->succ_first[task]; i < plan->succ_first[task + 1]; i++) {
        uint32_t next = plan->succ[i];
        if (next == last || (!transfer && plan->task_activity[next] == DS_NONE)) continue;
        last = next; /* an op that reads a value twice has one dependence */
        arrow(w, task, next, "data");
    }
}

static void transfers(writer *w) {
    const ds_plan *plan = w->plan;
    for (uint32_t i = 0; i < plan->n_activities; i++) {
        const ds_activity *a = &plan->activities[i];
        uint32_t from = plan->members[a->first_member];
        ds_opcode op = ds_plan_task_record(plan, from)->op->code;
        if (a->n_members != 2 || (op != DS_OP_SEND && op != DS_OP_RECV)) continue;
        uint32_t to = plan->members[a->first_member + 1];
        if (plan->task_class[from] != plan->class_of[a->group->devices[0]]) {
            uint32_t swap = from;
            from = to;
            to = swap;
        }
        arrow(w, from, to, "send");
    }
}

static void begin_counter(writer *w, uint32_t cls, const char *name, int64_t time_ps) {
    begin_event(w, "C", process(cls));
    ds_json_key_string(&w->json, "name", name);
    ds_json_key_decimal(&w->json, "ts", time_ps, PS_DIGITS);
    ds_json_key(&w->json, "args");
    ds_json_begin_object(&w->json);
}

static void end_counter(writer *w) {
    ds_json_end_object(&w->json);
    ds_json_end_object(&w->json);
}

/* Two counters: the sum, and its categories. A category that never has bytes is left out. */
static void memory(writer *w, uint32_t cls) {
    const ds_mem_class *m = &w->result->mem.classes[cls];
    ds_memory_walk walk;
    ds_report__memory_start(w->result, cls, &walk);
    while (ds_report__memory_next(&walk)) {
        begin_counter(w, cls, "memory", walk.time_ps);
        ds_json_key_int(&w->json, "bytes", walk.bytes);
        end_counter(w);
        begin_counter(w, cls, "memory by category", walk.time_ps);
        for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++)
            if (m->most_by_category[k])
                ds_json_key_int(&w->json, ds_mem_category_name(k), walk.by[k]);
        end_counter(w);
    }
}

/* The bytes that the class keeps in its host's memory. */
static void host_memory(writer *w, uint32_t cls) {
    const ds_mem_class *m = &w->result->mem.classes[cls];
    int64_t kept = 0;
    for (uint32_t i = 0; i < m->n_host_events; i++) {
        kept += m->host_events[i].delta_bytes;
        if (i + 1 < m->n_host_events && m->host_events[i + 1].time_ps == m->host_events[i].time_ps)
            continue;
        begin_counter(w, cls, "host memory", m->host_events[i].time_ps);
        ds_json_key_int(&w->json, "bytes", kept);
        end_counter(w);
    }
}

/* A track of its own: the task that the step waits for at each time, and that task's wait. */
static void critical_path(writer *w) {
    ds_critical_path path;
    ds_critical_path_find(w->result, &path);
    metadata(w, PATH_PROCESS, -1, "process_name", "critical path", 0);
    metadata(w, PATH_PROCESS, -1, "process_sort_index", NULL, -1);
    for (uint32_t i = 0; i < path.n; i++) {
        const ds_segment *s = &path.at[i];
        ds_buf text = {0};
        begin_event(w, "X", PATH_PROCESS);
        ds_json_key_int(&w->json, "tid", 0);
        ds_json_key_string(&w->json, "name",
                           s->kind == DS_TIME_OVERHEAD
                               ? "iteration overhead"
                               : ds_plan_task_record(w->plan, s->task)->label);
        ds_json_key_string(&w->json, "cat", ds_time_kind_name(s->kind));
        ds_json_key_decimal(&w->json, "ts", s->start_ps, PS_DIGITS);
        ds_json_key_decimal(&w->json, "dur", s->end_ps - s->start_ps, PS_DIGITS);
        ds_json_key(&w->json, "args");
        ds_json_begin_object(&w->json);
        ds_plan_path(w->plan, w->plan->task_inst[s->task], &text);
        ds_json_key_string(&w->json, "path", text.text);
        ds_json_key_string(&w->json, "device",
                           ds_report__device(w->plan, w->plan->task_class[s->task]));
        ds_json_key_string(&w->json, "waited_for", ds_wait_name(s->waited_for));
        ds_json_end_object(&w->json);
        ds_json_end_object(&w->json);
        ds_buf_deinit(&text);
    }
    ds_critical_path_deinit(&path);
}

static void events(writer *w) {
    const ds_plan *plan = w->plan;
    ds_buf path = {0};
    uint32_t last = DS_NONE;
    names(w);
    calls(w);
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (plan->task_inst[t] != last) {
            last = plan->task_inst[t];
            path.n = 0;
            ds_plan_path(plan, last, &path);
        }
        span(w, t, path.text);
    }
    for (uint32_t t = 0; t < plan->n_tasks; t++) dependences(w, t);
    transfers(w);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        memory(w, c);
        host_memory(w, c);
    }
    critical_path(w);
    ds_buf_deinit(&path);
}

void ds_report_trace(const ds_result *r, ds_buf *out) {
    writer w = {.result = r, .plan = r->plan};
    ds_json_init(&w.json, out, 0);
    number_threads(&w);
    ds_json_begin_object(&w.json);
    ds_json_key_string(&w.json, "displayTimeUnit", "ns");
    ds_json_key(&w.json, "otherData");
    ds_json_begin_object(&w.json);
    ds_json_key_string(&w.json, "distsim", DS_VERSION);
    ds_json_key_string(&w.json, "file", r->source->unit->modules.at[0]->path);
    ds_json_key_int(&w.json, "step_time_ps", r->run.step_ps);
    ds_json_end_object(&w.json);
    ds_json_key(&w.json, "traceEvents");
    ds_json_begin_array(&w.json);
    events(&w);
    ds_json_end_array(&w.json);
    ds_json_end_object(&w.json);
    ds_buf_putc(out, '\n');
    free(w.thread);
}
