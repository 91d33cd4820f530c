/* distsim search FILE: the best split of every operation of the scenario's model. */
#include "ir/base/stop.h"
#include "ir/strategy/scenario.h"
#include "search/pase/costs.h"
#include "search/pase/report.h"
#include "search/tap/tap.h"
#include "tools/cli/search/simulate.h"
#include "tools/cli/search/tag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *file, *method, *cost_model, *order, *output, *html;
    int64_t devices, cutoff, dp, tp; /* dp and tp: of --mesh */
    double tflops, gb_per_s;         /* of a second; 0: PaSE's */
    ds_pase_options options;
    cli_search_tag tag;
    bool json, simulate, alike, meshes;
} arguments;

/* "2x4" */
static void read_mesh(void *place, char *arg, struct argp_state *state) {
    arguments *args = place;
    char *end;
    errno = 0;
    args->dp = strtoll(arg, &end, 10);
    if (end != arg && *end == 'x') args->tp = strtoll(end + 1, &end, 10);
    bool whole = *end == 0 && errno == 0;
    if (!whole || args->dp < 1 || args->tp < 1 || args->dp > DS_PASE_MAX_DEVICES ||
        args->tp > DS_PASE_MAX_DEVICES)
        argp_error(state, "--mesh takes two numbers like 1x8, not '%s'", arg);
}

static void check_tag(const arguments *args, struct argp_state *state) {
    bool is_tag = args->tag.semantics && strcmp(args->tag.semantics, "tag") == 0;
    if (args->devices || args->cost_model || args->cutoff || args->order || args->simulate ||
        args->alike || args->meshes || args->tp || args->tflops > 0 || args->gb_per_s > 0)
        argp_error(state,
                   "--method tag takes --playouts, --groups, --simulations, --seed, "
                   "--semantics, --prior, --certificate, --threads, -o, --html and --json alone");
    if (args->tag.prior && !is_tag)
        argp_error(state, "--prior is for --semantics tag: networks read TAG's simulation");
    if ((args->output || args->html) && is_tag)
        argp_error(state,
                   "-o and --html are for --semantics distsim: a strategy has no meaning by TAG's "
                   "rules");
    if (args->tag.certificate && !is_tag)
        argp_error(state, "--certificate is for --semantics tag: distsim's simulation has no lower "
                          "bound of unfinished deployments");
    if (args->tag.n_whole != UINT32_MAX && is_tag)
        argp_error(state, "--simulations is for --semantics distsim: TAG's rules simulate every "
                          "leaf, and nothing whole");
    for (uint32_t i = 0; i < args->common.settings.n; i++)
        if (strcmp(args->common.settings.at[i].path, "strategy.dp") == 0)
            argp_error(state,
                       "--method tag chooses the strategy itself: leave --set strategy.dp out");
    if (args->file && strcmp(args->file, "-") == 0)
        argp_error(state, "--method tag reads FILE several times: it cannot be stdin");
}

static void check_together(void *arguments_, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->html && strcmp(args->html, "-") == 0)
        argp_error(state, "--html writes a file: stdout is for the strategy");
    bool tap = strcmp(args->method, "tap") == 0;
    if (args->meshes && args->tp)
        argp_error(state, "--meshes tries all meshes, --mesh one: only one of the two");
    if ((args->meshes || args->tp) && !tap)
        argp_error(state, "--%s is for --method tap", args->tp ? "mesh" : "meshes");
    if (strcmp(args->method, "tag") == 0) {
        check_tag(args, state);
        return;
    }
    if (!args->cost_model) args->cost_model = "pase";
    if (!args->cutoff) args->cutoff = 1;
    bool pase = strcmp(args->cost_model, "pase") == 0;
    if (args->tag.n_workers > 1 || args->tag.n_playouts || args->tag.n_groups || args->tag.seed ||
        args->tag.n_whole != UINT32_MAX || args->tag.semantics || args->tag.prior ||
        args->tag.certificate)
        argp_error(state, "--threads, --playouts, --groups, --simulations, --seed, --semantics, "
                          "--prior and --certificate are for --method tag");
    if (args->order && tap) argp_error(state, "--order is for --method pase");
    if ((args->tflops > 0 || args->gb_per_s > 0) && !pase)
        argp_error(state,
                   "--%s is for --cost-model pase: distsim's costs are those of the scenario's "
                   "devices and links",
                   args->tflops > 0 ? "tflops" : "bandwidth");
    if (args->file && strcmp(args->file, "-") == 0 && (args->output || args->simulate))
        argp_error(state, "-o and --simulate read FILE again: it cannot be stdin");
    if (args->order && strcmp(args->order, "breadth-first") == 0)
        args->options.order = DS_PASE_BREADTH_FIRST;
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_WORD, AT(method), "method", 0, "pase|tap|tag",
     .help = "How: PaSE's dynamic programme (the default), or TAP's folding: equal blocks are "
             "found, one "
             "of each is searched, and copies are composed. Both are exact; tap's time does not "
             "grow with "
             "depth. tag: a tree search over which devices compute which operations, of unlike "
             "devices too, after the TAG paper; the found deployment is simulated whole",
     .says = "takes pase, tap or tag, not"},
    {CLI_U64, AT(tag.n_playouts), "playouts", 0, "N",
     .help = "tag: leaves of the tree, the last round of up to 16 whole; default: 2000",
     .least = 1},
    {CLI_U32, AT(tag.n_groups), "groups", 0, "N",
     .help = "tag: operations are gathered to at most N groups; default: 40", .least = 1,
     .most = CLI_TAG_MOST_GROUPS},
    {CLI_U64, AT(tag.seed), "seed", 0, "N", .help = "tag: orders equal actions; default: 0"},
    {CLI_U32, AT(tag.n_whole), "simulations", 0, "N",
     .help = "tag: simulations at most that look for improvements of the best deployment, on "
             "top of playouts and baselines; default: 3000",
     .least = 0, .most = 1000000},
    {CLI_WORD, AT(tag.semantics), "semantics", 0, "distsim|tag",
     .help = "tag: whose rules a deployment is simulated by: distsim's own, or TAG's released "
             "simulator's, with a lower bound and without whole simulations",
     .says = "takes distsim or tag, not"},
    {CLI_INPUT, AT(tag.prior), "prior", 0, "FILE",
     .help = "tag, with --semantics tag: weights of a network that guides the tree, as "
             "search/tag/weights/gat.npy; default: none"},
    {CLI_OUTPUT, AT(tag.certificate), "certificate", 0, "FILE",
     .help = "tag, with --semantics tag: write a proof of the lower bound, which `distsim certify` "
             "checks"},
    CLI_WORKERS(AT(tag.n_workers), "tag: threads; the result is the same for any number"),
    {CLI_FLAG, AT(meshes), "meshes", 0, NULL,
     .help = "tap: try each mesh dp x tp of N devices, and split operations along its axes only"},
    {CLI_READ, 0, "mesh", 0, "DPxTP", .help = "tap: as --meshes, with this mesh alone, like 1x8",
     .read = read_mesh},
    {CLI_I64, AT(devices), "devices", 'p', "N",
     .help = "Over how many devices; default: all of the scenario's topology", .least = 1,
     .most = DS_PASE_MAX_DEVICES},
    {CLI_WORD, AT(cost_model), "cost-model", 0, "pase|distsim",
     .help =
         "The cost of a strategy: PaSE's own formulas in FLOPs (the default), or the simulator's "
         "prices on the scenario's devices and links, in microseconds, within their memory",
     .says = "takes pase or distsim, not"},
    {CLI_I64, AT(cutoff), "cutoff", 0, "N",
     .help = "A part of a dim keeps at least N elements; default: 1. PaSE takes 4 for images",
     .least = 1, .most = 1000000},
    {CLI_WORD, AT(order), "order", 0, "generate-seq|breadth-first",
     .help = "pase: in which order operations are eliminated; the first is the default, the second "
             "there "
             "to compare with",
     .says = "takes generate-seq or breadth-first, not"},
    {CLI_REAL, AT(tflops), "tflops", 0, "N",
     .help = "PaSE's costs: TFLOP/s of a device; default: 10",
     .says = "takes a number above 0, not"},
    {CLI_REAL, AT(gb_per_s), "bandwidth", 0, "N",
     .help = "PaSE's costs: GB/s of a link; default: 16", .says = "takes a number above 0, not"},
    {CLI_OUTPUT, AT(output), "output", 'o', "FILE",
     .help = "Write the program with the strategy in its scenario, as overrides of operations. "
             "Imports are "
             "found if FILE is beside the program, or with -I; values of --set are not written, so "
             "give "
             "them again. With distsim's costs it is said if data parallelism simulates faster"},
    {CLI_FLAG, AT(simulate), "simulate", 0, NULL,
     .help = "Simulate the step with it, with the expert's strategy, and with dp and tp as the "
             "model has "
             "them"},
    {CLI_FLAG, AT(alike), "alike", 0, NULL,
     .help = "Split all turns of a loop alike, as a program with loops needs it: the best of such "
             "strategies. -o and --simulate imply it"},
    {CLI_OUTPUT, AT(html), "html", 0, "FILE",
     .help = "Write a page with the strategy too, to be opened in a browser"},
    CLI_JSON(AT(json), "One JSON object instead of tables"),
    {0}};

const cli_verb cli_verb_search = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(file),
    .check = check_together,
    .args_doc = "FILE",
    .doc =
        "Find the best strategy for the model of FILE's scenario: into how many parts each "
        "operation's dims are split over N devices, at the least sum of costs of operations and of "
        "tensors between operations that are split differently. The result is exact. Printed are "
        "a line an operation (turns of loops that are split alike share one), the cost, data "
        "parallelism and an expert's strategy (convolutions by batch and fully connected layers by "
        "outputs; else Megatron's) under the same costs, and the sizes of the tables. Exit code 1 "
        "if nothing was found that fits into the devices' memory, or the program cannot run.\v"
        "distsim search scenarios/models/pase/alexnet.dir -p 32 --cutoff 4\n"
        "distsim search scenarios/mlp-training.dir --cost-model distsim --simulate"};

/* ---- the search ---- */

static double seconds_now(void) {
    return (double)ds_clock_ns() * 1e-9;
}

/* A strategy beside the found one. */
typedef struct rivals {
    ds_pase_rival of[2]; /* data parallel, expert */
    ds_pase_splits *expert;
} rivals;
#define N_RIVALS 2u

/* Megatron's with the best number of devices for a layer, up to 8: those of a node. */
static ds_status find_expert(const ds_pase_graph *graph, ds_pase_model *model, rivals *r,
                             ds_error *err) {
    bool images = ds_pase_is_convolutional(graph);
    int64_t best = 1, most = images ? 1 : 8;
    for (int64_t tp = 1; tp <= most && tp <= model->limits.devices; tp *= 2) {
        double one;
        if (model->limits.devices % tp != 0) break;
        ds_pase_expert(graph, &model->limits, tp, r->expert);
        DS_TRY(ds_pase_cost_of(graph, model, r->expert, &one, err));
        if (tp > 1 && one >= r->of[1].cost) continue;
        r->of[1].cost = one;
        best = tp;
    }
    ds_pase_expert(graph, &model->limits, best, r->expert);
    return ds_pase_memory_of(graph, model, r->expert, &r->of[1].memory_bytes, err);
}

static ds_status find_rivals(const ds_pase_graph *graph, ds_pase_model *model, rivals *r,
                             ds_error *err) {
    r->of[0].name = "data parallel";
    r->of[1].name = "expert";
    r->expert = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *r->expert);
    ds_pase_data_parallel(graph, &model->limits, r->expert);
    DS_TRY(ds_pase_cost_of(graph, model, r->expert, &r->of[0].cost, err));
    DS_TRY(ds_pase_memory_of(graph, model, r->expert, &r->of[0].memory_bytes, err));
    return find_expert(graph, model, r, err);
}

/* What a method found, and how long it took. */
typedef struct found {
    ds_tap_fold *fold;     /* tap; with --meshes the best one's */
    ds_tap_meshes *meshes; /* --meshes; owns fold and result */
    ds_pase_result *result;
    double fold_s, search_s;
} found;

static void found_free(found *f) {
    if (f->meshes) {
        ds_tap_meshes_free(f->meshes);
        return;
    }
    ds_pase_result_free(f->result);
    ds_tap_fold_free(f->fold);
}

static ds_status find_strategy(const arguments *args, const ds_pase_graph *graph,
                               ds_pase_model *model, found *f, ds_error *err) {
    double start = seconds_now();
    if (strcmp(args->method, "pase") == 0) {
        DS_TRY(ds_pase_search(graph, model, &args->options, &f->result, err));
    } else if (args->meshes || args->tp) {
        DS_TRY(ds_tap_search_meshes(graph, model, args->tp, &args->options, &f->meshes, err));
        f->fold = f->meshes->fold;
        f->result = f->meshes->result;
    } else {
        DS_TRY(ds_tap_fold_new(graph, model, &f->fold, err));
        f->fold_s = seconds_now() - start;
        DS_TRY(ds_tap_search(f->fold, model, &args->options, &f->result, err));
    }
    f->search_s = seconds_now() - start - f->fold_s;
    return DS_OK;
}

/* ---- as a program ---- */

static ds_status simulate_rivals(const cli_search_run *run, const found *f, const rivals *r,
                                 const char *text, cli_search_steps *steps, ds_error *err) {
    ds_pase_applied applied;
    ds_buf expert = {0};
    cli_search_simulate(run, "found", text, steps);
    ds_status status = cli_search_text(run, f->result->graph, r->expert, &expert, &applied, err);
    if (status == DS_OK) {
        cli_search_simulate(run, "expert", expert.text, steps);
        cli_search_simulate_meshes(run, 8, steps);
    }
    ds_buf_deinit(&expert);
    return status;
}

/* What costs least is not always what is fastest: what is written is held to data parallelism at
 * least, if there are profiles. False: it cannot run. */
static bool check_found(const arguments *args, const cli_search_run *run, const char *text,
                        const cli_search_steps *steps) {
    if (args->simulate) return cli_search_check(steps, args->output);
    if (!run->profiles) return true;
    cli_search_steps *two = ds_xcalloc(1, sizeof *two);
    cli_search_simulate(run, "found", text, two);
    cli_search_simulate_meshes(run, 1, two);
    bool runs = cli_search_check(two, args->output);
    free(two);
    return runs;
}

/* The strategy as a program: written, simulated, or both. */
static ds_status use(const arguments *args, const ds_profiles *profiles, const found *f,
                     const rivals *r, cli_search_steps *steps, bool *runs, ds_error *err) {
    cli_search_run run = {args->file, &args->common, profiles, args->devices};
    ds_pase_applied applied;
    ds_buf text = {0};
    ds_status status =
        cli_search_text(&run, f->result->graph, f->result->strategy, &text, &applied, err);
    if (!status && applied.n_varied + applied.n_reduced > 0)
        fprintf(stderr,
                "of %u operations %u take the split of most of their turns, and %u lose a split "
                "that a program cannot have\n",
                applied.overrides, applied.n_varied, applied.n_reduced);
    if (!status && args->output)
        status = cli_write(&args->common, args->output, text.text, text.n, err);
    if (!status && args->simulate) status = simulate_rivals(&run, f, r, text.text, steps, err);
    if (!status) *runs = check_found(args, &run, text.text, steps);
    ds_buf_deinit(&text);
    return status;
}

/* ---- reports ---- */

static void print_found(const found *f, ds_pase_model *model, const rivals *r,
                        const cli_search_steps *steps, ds_buf *out) {
    ds_pase_print_strategy(f->result->graph, f->result->strategy, out);
    ds_buf_putc(out, '\n');
    ds_pase_print_summary(f->result, model, r->of, N_RIVALS, out);
    if (f->meshes) ds_tap_print_meshes(f->meshes, model, out);
    if (f->fold) ds_tap_print_fold(f->fold, out);
    if (steps->n) ds_buf_putc(out, '\n');
    cli_search_print_steps(steps, out);
    if (f->fold_s > 0) fprintf(stderr, "folded in %.4f s, ", f->fold_s);
    fprintf(stderr, "searched in %.4f s\n", f->search_s);
}

/* `timed`: with how long the search took, which is another at each try. */
static void put_json(const arguments *args, const found *f, ds_pase_model *model, const rivals *r,
                     const cli_search_steps *steps, bool timed, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 0);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "method", args->method);
    if (timed) ds_json_key_double(&json, "search_s", f->search_s);
    if (timed && f->fold_s > 0) ds_json_key_double(&json, "fold_s", f->fold_s);
    ds_pase_put_json(f->result, model, r->of, N_RIVALS, &json);
    if (f->fold) ds_tap_put_json(f->fold, f->meshes, &json);
    if (steps->n) cli_search_put_steps(steps, &json);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}

static ds_status write_page(const arguments *args, const found *f, ds_pase_model *model,
                            const rivals *r, const cli_search_steps *steps, ds_error *err) {
    ds_buf json = {0};
    if (!args->html) return DS_OK;
    put_json(args, f, model, r, steps, false, &json);
    ds_status status = cli_search_write_page(&args->common, args->html, args->file, &json, err);
    ds_buf_deinit(&json);
    return status;
}

static ds_status search_model(const arguments *args, const ds_profiles *profiles,
                              const ds_pase_graph *graph, ds_pase_model *model, ds_buf *out,
                              bool *fits, ds_error *err) {
    found f = {0};
    rivals r = {0};
    bool runs = true;
    cli_search_steps *steps = ds_xcalloc(1, sizeof *steps);
    ds_status status = find_strategy(args, graph, model, &f, err);
    if (!status) status = find_rivals(graph, model, &r, err);
    if (!status && (args->output || args->simulate))
        status = use(args, profiles, &f, &r, steps, &runs, err);
    if (!status) {
        *fits = f.result->fits && runs;
        if (args->json)
            put_json(args, &f, model, &r, steps, true, out);
        else
            print_found(&f, model, &r, steps, out);
        status = write_page(args, &f, model, &r, steps, err);
    }
    free(steps);
    free(r.expert);
    found_free(&f);
    return status;
}

static ds_status model_of(const arguments *args, const cli_source *source,
                          const ds_model_step *step, const ds_profiles *profiles,
                          ds_pase_model **out, ds_error *err) {
    if (strcmp(args->cost_model, "distsim") == 0)
        return ds_pase_costs_new(&source->binding, step, profiles, args->devices, args->cutoff, out,
                                 err);
    *out = ds_pase_formulas_new(args->devices, args->cutoff,
                                args->tflops > 0 ? args->tflops * 1e12 : DS_PASE_FLOP_PER_S,
                                args->gb_per_s > 0 ? args->gb_per_s * 1e9 : DS_PASE_BYTES_PER_S);
    return DS_OK;
}

/* Without -p all devices. */
static ds_status count_devices(arguments *args, const cli_source *source, ds_error *err) {
    const ds_topology *topology = ds_scenario_topology(source->unit);
    ds_topo *topo = NULL;
    if (args->devices) return DS_OK;
    if (!topology)
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "over how many devices? -p N, or a scenario that says `on`");
    DS_TRY(ds_topo_build(&source->binding, topology, &topo, err));
    args->devices = ds_topo_n_devices(topo);
    ds_topo_free(topo);
    if (args->devices <= DS_PASE_MAX_DEVICES) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, topology->loc,
                        "a search is for up to %d devices, not %lld", DS_PASE_MAX_DEVICES,
                        (long long)args->devices);
}

static ds_status search_graph(arguments *args, const cli_source *source,
                              const ds_profiles *profiles, ds_buf *out, bool *fits, ds_error *err) {
    ds_model_step *step = NULL;
    ds_pase_graph *graph = NULL;
    ds_pase_model *model = NULL;
    DS_TRY(count_devices(args, source, err));
    if (args->tp && args->dp * args->tp != args->devices)
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "--mesh %lldx%lld has %lld places, but there are %lld devices",
                            (long long)args->dp, (long long)args->tp,
                            (long long)(args->dp * args->tp), (long long)args->devices);
    DS_TRY(ds_model_step_new(&source->binding, &step, err));
    ds_status status = ds_pase_graph_read(step, &graph, err);
    if (!status) status = model_of(args, source, step, profiles, &model, err);
    bool alike = args->alike || args->output || args->simulate;
    ds_pase_graph *folded = !status && alike ? ds_pase_graph_fold(graph) : NULL;
    if (!status)
        status = search_model(args, profiles, folded ? folded : graph, model, out, fits, err);
    if (model) model->free(model);
    ds_pase_graph_free(folded);
    ds_pase_graph_free(graph);
    ds_model_step_free(step);
    return status;
}

static ds_status search_deployments(arguments *args, const cli_source *source, ds_buf *out,
                                    bool *fits, ds_error *err) {
    cli_search_tag *tag = &args->tag;
    const ds_profiles *profiles;
    if (!tag->n_playouts) tag->n_playouts = 2000;
    if (!tag->n_groups) tag->n_groups = 40;
    if (tag->n_whole == UINT32_MAX) tag->n_whole = 3000;
    if (!tag->semantics) tag->semantics = "distsim";
    tag->json = args->json;
    tag->output = args->output;
    tag->html = args->html;
    tag->common = &args->common;
    DS_TRY(cli_load_profiles(&args->common, &profiles, err));
    cli_tell_costs(source, profiles, args->json ? NULL : out);
    return cli_search_tag_run(tag, args->file, out, fits, err);
}

/* Profiles are read only if something costs time. */
static ds_status read_and_search(arguments *args, const cli_source *source, ds_buf *out, bool *fits,
                                 ds_error *err) {
    const ds_profiles *profiles = NULL;
    if (strcmp(args->method, "tag") == 0) return search_deployments(args, source, out, fits, err);
    if (args->simulate || strcmp(args->cost_model, "distsim") == 0)
        DS_TRY(cli_load_profiles(&args->common, &profiles, err));
    if (profiles) cli_tell_costs(source, profiles, args->json ? NULL : out);
    ds_status status = search_graph(args, source, profiles, out, fits, err);
    return status;
}

int cmd_search(int argc, char **argv) {
    arguments args = {.method = "pase"};
    args.tag = (cli_search_tag){.n_workers = 1, .n_whole = UINT32_MAX};
    cli_source source;
    ds_buf out = {0};
    ds_error err;
    bool fits = true;
    cli_parse(&cli_verb_search, argc, argv, &args);
    int exit_code = ds_status_exit_code(cli_open(args.file, &args.common, &source));
    if (!exit_code && read_and_search(&args, &source, &out, &fits, &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    if (!exit_code && cli_print(out.text ? out.text : "", out.n, &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    if (!exit_code && !fits) exit_code = ds_status_exit_code(DS_ERR_MEMORY);
    ds_buf_deinit(&out);
    cli_close(&source);
    cli_options_deinit(&args.common);
    return exit_code;
}
