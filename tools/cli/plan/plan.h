/* Shared by the files of `distsim plan`. */
#ifndef DS_TOOLS_CLI_PLAN_PLAN_H
#define DS_TOOLS_CLI_PLAN_PLAN_H

#include "search/driver/sweep.h"
#include "tools/cli/cli.h"
#include "tools/cli/plan/library.h"

/* A param and its value as text, for `with`. */
typedef struct cli_given {
    const char *name, *text;
} cli_given;

/* An imported file, and what the import gives its params; in the plan's arena. */
typedef struct cli_imported {
    const char *path; /* as the import says it */
    cli_given given[48];
    uint32_t n_given;
} cli_imported;

/* What a framework has: a line of frameworks.def. */
typedef struct cli_framework {
    const char *word, *title;
    unsigned parallel; /* cli_parallel */
    const char *zero, *where, *schedules, *recompute, *says;
} cli_framework;

typedef enum cli_parallel {
    CLI_HAS_TP = 1,
    CLI_HAS_PP = 2,
    CLI_HAS_CP = 4,
    CLI_HAS_EP = 8,
    CLI_HAS_UNEVEN = 16,
    CLI_HAS_KEEPS = 32
} cli_parallel;

/* A part of --cluster: so many machines, so many GPUs of each. */
typedef struct cli_part {
    const cli_machine *machine;
    int64_t machines, gpus;
} cli_part;

enum { CLI_PARTS = 4, CLI_TYPES = 8 };

/* The model, the machine and the goal of a plan. Texts are in the arena or the caller's. */
typedef struct cli_plan {
    ds_arena *arena;
    const char *source; /* MODEL as it was typed */
    const char *gpu;    /* --gpu: a GPU or a machine; NULL: --on, or the scenario's own topology */
    int64_t nodes;      /* 0: not said */
    const char *cluster_text; /* topologies in place of those of `parts`; NULL: none */
    const char *cluster;      /* --cluster: machines of several kinds; NULL: not said */
    cli_part parts[CLI_PARTS];
    uint32_t n_parts;
    double between_gb_per_s; /* of the link between kinds; 0: no limit */
    cli_imported model, box;
    const char *model_func;                    /* NULL: to be found */
    const char *on_name;                       /* the topology; NULL: to be found */
    const char *objective, *dtype, *optimizer; /* dtype NULL: by the device */
    const cli_framework *framework;
    int64_t batch, seq; /* 0: by default */
    const char *batch_why, *seq_why;
    ds_load_options load;
    ds_buf keys;          /* lines of the scenario that --set scenario.KEY makes */
    ds_setting fixed[16]; /* --set strategy.KEY, train.KEY: for all candidates (fixed.c) */
    uint32_t n_fixed;
    /* found by cli_plan_look */
    uint32_t world, node; /* devices; devices with fast links to the first */
    const char *device;   /* "H100-SXM5-80GB", the first */
    const char *types[CLI_TYPES];
    uint32_t n_types; /* of devices, as far as there is room */
    bool has_loss;
    bool has_one_loop;  /* over its layers (ir/lang/mentions.h) */
    bool least_memory;  /* the space is that of the candidates that need least memory */
    const char *splits; /* a condition on the degrees that are left; NULL: all */
    int64_t parameters; /* -1: too many to be counted */
    int64_t layers, hidden, heads, kv_heads, experts,
        vocab; /* the model's params; 0: no such param */
} cli_plan;

/* Sets a param of an import; of several values the last holds. */
void cli_plan_give(cli_imported *imported, const char *name, const char *text);
/* "FILE@NAME": the name is what follows the last @ without a slash behind it; else *name stays. */
void cli_plan_split_name(ds_arena *arena, const char *arg, const char **file, const char **name);

/* What MODEL is: a config.json of Hugging Face, a .dir file or a name of the library. Fills
 * plan->model and plan->model_func, and plan->box with the scenario's own topology if there is
 * neither --gpu nor --on. `settings` are those of --set; each that is a param of the file itself is
 * used up (its path becomes NULL). Prints errors; returns the exit code. */
int cli_plan_find_model(cli_plan *plan, ds_setting *settings, uint32_t n_settings);
/* plan->box of plan->gpu: a machine's name, or any name of a GPU that some machine has. */
int cli_plan_find_machine(cli_plan *plan, const ds_profiles *profiles);
/* plan->parts of plan->cluster, "A100:4x8,V100:12x8". Prints errors; returns the exit code. */
int cli_plan_find_cluster(cli_plan *plan, const ds_profiles *profiles);
/* The imports and the topology @cluster of plan->parts. */
void cli_plan_put_cluster(const cli_plan *plan, ds_buf *out);
/* The dtype by default, after cli_plan_look: bf16, or f16 on a device without bf16. */
void cli_plan_choose_dtype(cli_plan *plan, const ds_profiles *profiles);

/* Reads model and topology, gives each setting that is left to the file that has the param, and
 * fills in the fields that are to be found. Prints errors; returns the exit code. */
int cli_plan_look(cli_plan *plan, const ds_setting *settings, uint32_t n_settings);
/* The same plan on twice the nodes: a batch by default is found again. */
int cli_plan_double(cli_plan *plan);

/* `--framework` of that name; the first line of frameworks.def is the default. */
const cli_framework *cli_plan_framework(const char *word);
/* "megatron|torchtitan|…" */
const char *cli_plan_framework_words(void);

/* Keeps a setting of a key of `strategy` or `train`; false: the setting is none. *exit_code is set
 * for a key that an option says. */
bool cli_plan_fixes(cli_plan *plan, const ds_setting *setting, int *exit_code);
/* Puts the fixed keys into a program, which `path` names in messages. */
ds_status cli_plan_fix(const cli_plan *plan, const char *path, ds_buf *text, ds_error *err);

/* A program with a scenario, and a sweep over the space worth trying. */
void cli_plan_put_sweep(const cli_plan *plan, ds_buf *out);
/* The same program with the strategy of a row, without sweep. */
void cli_plan_put_scenario(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out);
/* The two imports; `batch`: the param that the model gets. */
void cli_plan_put_imports(const cli_plan *plan, const char *batch, ds_buf *out);
/* A number in a row's cell; 1: no such column. */
int64_t cli_plan_int(const ds_sweep_row *row, const char *column);
const char *cli_plan_text(const ds_sweep_row *row, const char *column);

/* A search: what it is asked, and what it found. Zeros but the first five are a search to begin. */
typedef struct cli_search {
    ds_sweep_options sweep; /* path NULL: rows are not kept */
    const cli_options *common;
    const ds_profiles *profiles;
    const char *program;   /* the sweep's file, or what it is called */
    bool keeps;            /* rows and program */
    const char *method;    /* as asked for; NULL: by the model */
    const char *unbounded; /* why bound cannot search the fixed keys; NULL: bound can */
    bool own_rows, again;
    ds_buf text;
    ds_unit *unit;
    ds_binding binding;
    uint64_t n_candidates, rows;
    double seconds;
    ds_sweep_result result; /* of the last sweep */
} cli_search;

/* Searches the plan's space; the rows are in s->sweep.path. */
ds_status cli_plan_search(cli_plan *plan, cli_search *s, ds_error *err);
/* After a search in which nothing fits: how many nodes would do; 0: unknown. */
ds_status cli_plan_nodes(cli_plan *plan, cli_search *s, int64_t *nodes, ds_error *err);
void cli_plan_search_deinit(cli_search *s);
/* Makes the paths of a plan's imports hold for a file elsewhere. */
void cli_plan_see_from(cli_plan *plan, const char *file);

/* Why the row is the best: where its time and memory go, the resource that binds, and the best
 * result with other values of each knob, from the rows in `csv`. */
ds_status cli_plan_put_why(const cli_plan *plan, const ds_sweep_row *row, const char *csv,
                           const ds_profiles *profiles, ds_buf *out, ds_error *err);
/* The commands that start Megatron-LM and torchtitan with the row's strategy. */
void cli_plan_put_launch(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out);

/* The report's parts of the best row; not NULL. */
typedef struct cli_plan_texts {
    const char *why, *launch, *scenario;
} cli_plan_texts;
/* The plan as one JSON object. */
void cli_plan_put_json(const cli_plan *plan, const cli_search *s, const cli_plan_texts *texts,
                       ds_buf *out);

#endif
