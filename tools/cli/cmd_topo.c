/* distsim topo FILE [@name]: what a topology consists of, routes, bisection bandwidth, drawings and
 * exports. */
#include "ir/base/json.h"
#include "ir/base/units.h"
#include "sim/topo/topo.h"
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *file, *name; /* name: without '@'; NULL: the obvious one */
    const char *from, *to;   /* --route */
    const char *dot, *graphml, *simgrid;
    bool bisection, json;
} arguments;

static void read_route(void *place, char *from, struct argp_state *state) {
    arguments *args = place;
    if (state->next >= state->argc) argp_error(state, "--route needs two nodes, A and B");
    args->from = from;
    args->to = state->argv[state->next++]; /* argp allows an option to take what follows */
}

static void read_word(void *arguments_, char *word, struct argp_state *state) {
    arguments *args = arguments_;
    if (!args->file) {
        args->file = cli_input(&args->common, word);
    } else if (!args->name && word[0] == '@') {
        args->name = word + 1;
    } else {
        argp_error(state, "unexpected argument '%s' (a topology's name starts with @)", word);
    }
}

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    int n = is_stdout(args->dot) + is_stdout(args->graphml) + is_stdout(args->simgrid) + args->json;
    if (n > 1)
        argp_error(state, "only one of --dot -, --graphml -, --simgrid - and --json can go to "
                          "stdout");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_READ, 0, "route", 0, "A B",
     .help = "The route from A to B, as in --route n[0].gpu[0] n[1].gpu[3]", .read = read_route},
    {CLI_FLAG, AT(bisection), "bisection", 0, NULL,
     .help = "Bandwidth from the first half of the devices to the second (max-flow)"},
    {CLI_OUTPUT, AT(dot), "dot", 0, "FILE", .help = "Write the graph for Graphviz (- is stdout)"},
    {CLI_OUTPUT, AT(graphml), "graphml", 0, "FILE",
     .help = "Write the graph as GraphML (- is stdout); `distsim import graphml` reads it"},
    {CLI_OUTPUT, AT(simgrid), "simgrid", 0, "FILE",
     .help = "Write a SimGrid platform with the same links and routes (- is stdout)"},
    CLI_JSON(AT(json), "Print one JSON object"),
    CLI_DEGRADE("A change to try: as after the word in the file, such as \"sw -- nic bandwidth = 0\"; "
                "repeatable"),
    {0}};

const cli_verb cli_verb_topo = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_WRITES,
    .word = read_word,
    .check = check_usage,
    .args_doc = "FILE [@TOPOLOGY]",
    .doc =
        "Show a device graph: its devices and links, whether all devices reach each other, "
        "routes, bisection bandwidth. Without @TOPOLOGY, the one of FILE that no other contains."};

/* ---- which topology ---- */

static bool is_part(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->topologies.n; i++) {
        const ds_topology *t = module->topologies.at[i];
        for (uint32_t j = 0; j < t->nodes.n; j++) {
            const ds_node_decl *node = &t->nodes.at[j];
            if (node->kind == DS_NODE_INSTANCE && strcmp(node->type_name, name) == 0) return true;
        }
    }
    return false;
}

static ds_status named_topology(const ds_module *module, const char *name, const ds_topology **out,
                                ds_error *err) {
    ds_strtab *strings = &module->unit->strings;
    *out = ds_find_topology(module, ds_intern(strings, name));
    if (*out) return DS_OK;
    DS_VEC(const char *) names = {0};
    for (uint32_t i = 0; i < module->topologies.n; i++) {
        DS_HPUSH(&names, module->topologies.at[i]->name);
    }
    const char *near = ds_suggest(name, names.at, names.n);
    ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "%s has no topology @%s%s%s%s", module->path, name,
                 near ? "; did you mean @" : "", near ? near : "", near ? "?" : "");
    free(names.at);
    return DS_ERR_NAME;
}

static ds_status obvious_topology(const ds_module *module, const ds_topology **out, ds_error *err) {
    *out = NULL;
    for (uint32_t i = 0; i < module->topologies.n; i++) {
        const ds_topology *t = module->topologies.at[i];
        if (is_part(module, t->name)) continue;
        if (*out) {
            return ds_error_set(err, DS_ERR_NAME, t->loc,
                                "%s has several topologies, @%s and @%s among them: name one",
                                module->path, (*out)->name, t->name);
        }
        *out = t;
    }
    if (*out) return DS_OK;
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "%s has no topology", module->path);
}

/* ---- facts ---- */

/* How often each text occurs, in order of first occurrence. */
typedef struct census {
    ds_strtab strings;
    ds_map index;
    DS_VEC(const char *) texts;
    DS_VEC(uint32_t) counts;
} census;

static void count_text(census *c, const char *text) {
    const char *key = ds_intern(&c->strings, text);
    const uint64_t *at = ds_map_find(&c->index, DS_KEY(key));
    if (at) {
        c->counts.at[*at]++;
        return;
    }
    ds_map_put(&c->index, DS_KEY(key), c->texts.n);
    DS_HPUSH(&c->texts, key);
    DS_HPUSH(&c->counts, 1);
}

static void census_deinit(census *c) {
    ds_strtab_deinit(&c->strings);
    ds_map_deinit(&c->index);
    free(c->texts.at);
    free(c->counts.at);
}

/* "n[3].gpu[2]" → "n.gpu": links are counted by what they join. */
static void put_without_indices(ds_buf *out, const char *path) {
    for (; *path; path++) {
        if (*path == '[')
            path = strchr(path, ']');
        else
            ds_buf_putc(out, *path);
    }
}

static void put_link_figures(ds_buf *out, const ds_topo_link *link) {
    if (!link->bytes_per_s) {
        ds_buf_put(out, "missing");
        return;
    }
    ds_print_rate((double)link->bytes_per_s, "B/s", out);
    ds_buf_put(out, ", ");
    ds_print_ps(link->latency_ps, out);
}

static void count_links(const ds_topo *topo, census *c) {
    ds_buf text = {0};
    for (uint32_t i = 0; i < ds_topo_n_links(topo); i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, i);
        bool duplex = ds_topo_is_duplex(topo, i);
        text.n = 0;
        put_without_indices(&text, ds_topo_vertex_path(topo, link->from));
        ds_buf_put(&text, duplex ? " -- " : " -> ");
        put_without_indices(&text, ds_topo_vertex_path(topo, link->to));
        ds_buf_put(&text, " : ");
        put_link_figures(&text, link);
        count_text(c, text.text);
        i += duplex;
    }
    ds_buf_deinit(&text);
}

static void count_kinds(const ds_topo *topo, census *c) {
    for (uint32_t d = 0; d < ds_topo_n_devices(topo); d++)
        count_text(c, ds_topo_device_type(topo, d));
    for (uint32_t v = 0; v < ds_topo_n_vertices(topo); v++) {
        ds_node_kind kind = ds_topo_vertex_kind(topo, v);
        if (kind != DS_NODE_DEVICE) count_text(c, ds_topo_kind_name(kind));
    }
}

typedef struct facts {
    ds_topo *topo;
    census kinds, links;
    bool connected;
    uint32_t a, b;         /* two devices that are not */
    int64_t bisection;     /* bytes/s, if asked for */
    const ds_route *route; /* if asked for */
    uint32_t from, to;     /* its ends */
} facts;

static ds_status find_end(const ds_topo *topo, const char *path, uint32_t *vertex, ds_error *err) {
    *vertex = ds_topo_find_vertex(topo, path);
    if (*vertex != UINT32_MAX) return DS_OK;
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                        "@%s has no node `%s`; nodes are named like `%s`", ds_topo_name(topo), path,
                        ds_topo_device_path(topo, 0));
}

static ds_status gather(const arguments *args, facts *f, ds_error *err) {
    DS_TRY(ds_topo_connected(f->topo, &f->connected, &f->a, &f->b, err));
    if (args->bisection) DS_TRY(ds_topo_bisection(f->topo, &f->bisection, err));
    count_kinds(f->topo, &f->kinds);
    count_links(f->topo, &f->links);
    if (!args->from) return DS_OK;
    DS_TRY(find_end(f->topo, args->from, &f->from, err));
    DS_TRY(find_end(f->topo, args->to, &f->to, err));
    return ds_topo_route_vertices(f->topo, f->from, f->to, &f->route, err);
}

/* What one long transfer alone gets: the least of capacity / share over the links; 0: no links. */
static double route_bytes_per_s(const ds_topo *topo, const ds_route *route) {
    double least = 0;
    for (uint32_t i = 0; i < route->n_links; i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, route->links[i]);
        double rate = (double)link->bytes_per_s * 0x1p32 / (double)route->share_q32[i];
        if (i == 0 || rate < least) least = rate;
    }
    return least;
}

/* ---- text ---- */

static void put_census(ds_buf *out, const char *title, const census *c) {
    for (uint32_t i = 0; i < c->texts.n; i++) {
        ds_buf_printf(out, "  %-10s %6" PRIu32 "  %s\n", i ? "" : title, c->counts.at[i],
                      c->texts.at[i]);
    }
}

/* The links in order of travel: by distance of their start, found by walking on from the source. */
static void put_route_links(ds_buf *out, const ds_topo *topo, const ds_route *route,
                            uint32_t source) {
    uint8_t *reached = ds_xcalloc(ds_topo_n_vertices(topo), 1);
    uint8_t *printed = ds_xcalloc(route->n_links + 1, 1);
    reached[source] = 1;
    for (uint32_t step = 0; step < route->hops; step++) {
        for (uint32_t i = 0; i < route->n_links; i++) {
            const ds_topo_link *link = ds_topo_link_at(topo, route->links[i]);
            if (printed[i] || reached[link->from] != 1) continue;
            printed[i] = 1;
            if (!reached[link->to]) reached[link->to] = 2; /* from the next step on */
            ds_buf_printf(out, "    %s -> %s : ", ds_topo_vertex_path(topo, link->from),
                          ds_topo_vertex_path(topo, link->to));
            put_link_figures(out, link);
            if (route->share_q32[i] != UINT64_C(1) << 32) {
                ds_buf_printf(out, ", %.4g %% of the bytes",
                              100 * (double)route->share_q32[i] * 0x1p-32);
            }
            ds_buf_putc(out, '\n');
        }
        for (uint32_t v = 0; v < ds_topo_n_vertices(topo); v++) reached[v] = reached[v] != 0;
    }
    free(reached);
    free(printed);
}

static void put_text(const arguments *args, const facts *f, ds_buf *out) {
    const ds_topo *topo = f->topo;
    ds_buf_printf(out,
                  "@%s: %" PRIu32 " devices, %" PRIu32 " vertices, %" PRIu32 " directed links\n",
                  ds_topo_name(topo), ds_topo_n_devices(topo), ds_topo_n_vertices(topo),
                  ds_topo_n_links(topo));
    put_census(out, "vertices", &f->kinds);
    put_census(out, "links", &f->links);
    ds_topo_list_clocks(topo, "clock", out);
    ds_topo_list_degraded(topo, "degraded", out);
    if (f->connected) {
        ds_buf_put(out, "  connected  every device reaches every other\n");
    } else {
        ds_buf_printf(out, "  connected  no: there is no route from %s to %s\n",
                      ds_topo_device_path(topo, f->a), ds_topo_device_path(topo, f->b));
    }
    if (args->bisection) {
        ds_buf_put(out, "  bisection  ");
        ds_print_rate((double)f->bisection, "B/s", out);
        ds_buf_put(out, " from the first half of the devices to the second\n");
    }
    if (!f->route) return;
    ds_buf_printf(out, "  route      %s -> %s: %" PRIu32 " links, ", args->from, args->to,
                  f->route->hops);
    ds_print_ps(f->route->latency_ps, out);
    if (f->route->n_links) {
        ds_buf_put(out, ", ");
        ds_print_rate(route_bytes_per_s(topo, f->route), "B/s", out);
    }
    ds_buf_putc(out, '\n');
    put_route_links(out, topo, f->route, f->from);
}

/* ---- JSON ---- */

static void put_json_census(ds_json *json, const char *key, const census *c) {
    ds_json_key(json, key);
    ds_json_begin_object(json);
    for (uint32_t i = 0; i < c->texts.n; i++)
        ds_json_key_int(json, c->texts.at[i], c->counts.at[i]);
    ds_json_end_object(json);
}

static void put_json_route(ds_json *json, const facts *f) {
    ds_json_key(json, "route");
    ds_json_begin_object(json);
    ds_json_key_string(json, "from", ds_topo_vertex_path(f->topo, f->from));
    ds_json_key_string(json, "to", ds_topo_vertex_path(f->topo, f->to));
    ds_json_key_int(json, "latency_ps", f->route->latency_ps);
    ds_json_key_int(json, "hops", f->route->hops);
    ds_json_key_double(json, "bytes_per_s", route_bytes_per_s(f->topo, f->route));
    ds_json_key(json, "links");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < f->route->n_links; i++) {
        const ds_topo_link *link = ds_topo_link_at(f->topo, f->route->links[i]);
        ds_json_begin_object(json);
        ds_json_key_string(json, "from", ds_topo_vertex_path(f->topo, link->from));
        ds_json_key_string(json, "to", ds_topo_vertex_path(f->topo, link->to));
        ds_json_key_int(json, "bytes_per_s", link->bytes_per_s);
        ds_json_key_int(json, "latency_ps", link->latency_ps);
        ds_json_key_double(json, "share", (double)f->route->share_q32[i] * 0x1p-32);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    ds_json_end_object(json);
}

static void put_json(const arguments *args, const facts *f, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "topology", ds_topo_name(f->topo));
    ds_json_key_int(&json, "devices", ds_topo_n_devices(f->topo));
    ds_json_key_int(&json, "vertices", ds_topo_n_vertices(f->topo));
    ds_json_key_int(&json, "links", ds_topo_n_links(f->topo));
    put_json_census(&json, "vertex_kinds", &f->kinds);
    put_json_census(&json, "link_kinds", &f->links);
    ds_topo_put_clocks(f->topo, &json);
    ds_topo_put_degraded(f->topo, &json);
    ds_json_key_bool(&json, "connected", f->connected);
    if (!f->connected) {
        ds_json_key(&json, "unreachable");
        ds_json_begin_array(&json);
        ds_json_string(&json, ds_topo_device_path(f->topo, f->a));
        ds_json_string(&json, ds_topo_device_path(f->topo, f->b));
        ds_json_end_array(&json);
    }
    if (args->bisection) ds_json_key_int(&json, "bisection_bytes_per_s", f->bisection);
    if (f->route) put_json_route(&json, f);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}

/* ---- main ---- */

static ds_status write_graphs(const arguments *args, ds_topo *topo, ds_error *err) {
    ds_status status = DS_OK;
    ds_buf text = {0};
    if (args->dot) {
        ds_topo_print_dot(topo, &text);
        status = cli_write(&args->common, args->dot, text.text, text.n, err);
    }
    if (status == DS_OK && args->graphml) {
        text.n = 0;
        status = ds_topo_print_graphml(topo, &text, err);
        if (status == DS_OK)
            status = cli_write(&args->common, args->graphml, text.text, text.n, err);
    }
    if (status == DS_OK && args->simgrid) {
        text.n = 0;
        status = ds_topo_print_simgrid(topo, &text, err);
        if (status == DS_OK)
            status = cli_write(&args->common, args->simgrid, text.text, text.n, err);
    }
    ds_buf_deinit(&text);
    return status;
}

static ds_status show(const arguments *args, const cli_source *source, ds_error *err) {
    const ds_module *module = source->unit->modules.at[0];
    const ds_topology *topology;
    if (args->name) {
        DS_TRY(named_topology(module, args->name, &topology, err));
    } else {
        DS_TRY(obvious_topology(module, &topology, err));
    }
    facts f = {0};
    DS_TRY(ds_topo_build(&source->binding, topology, &f.topo, err));
    ds_strtab_init(&f.kinds.strings);
    ds_strtab_init(&f.links.strings);
    ds_status status = gather(args, &f, err);
    if (status == DS_OK) status = write_graphs(args, f.topo, err);
    bool quiet = is_stdout(args->dot) || is_stdout(args->graphml) || is_stdout(args->simgrid);
    if (status == DS_OK && !quiet) {
        ds_buf text = {0};
        if (args->json) {
            put_json(args, &f, &text);
        } else {
            put_text(args, &f, &text);
        }
        status = cli_print(text.text, text.n, err);
        ds_buf_deinit(&text);
    }
    census_deinit(&f.kinds);
    census_deinit(&f.links);
    ds_topo_free(f.topo);
    return status;
}

int cmd_topo(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_topo, argc, argv, &args);
    cli_source source;
    ds_error err;
    ds_status status = cli_open(args.file, &args.common, &source);
    int exit_code = ds_status_exit_code(status);
    if (status == DS_OK && show(&args, &source, &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    cli_close(&source);
    cli_options_deinit(&args.common);
    return exit_code;
}
