/* ir/launch from inside: tables of arguments, words of a script, values of arguments. */
#ifndef DS_LAUNCH_INTERNAL_H
#define DS_LAUNCH_INTERNAL_H

#include "ir/launch/launch.h"

/* ---- tables (megatron.def, torchtitan.def, deepspeed.def) ---- */

typedef enum ds_arg_kind {
    DS_ARG_INT,
    DS_ARG_REAL,
    DS_ARG_TEXT,
    DS_ARG_ON, /* a flag: `--swiglu`, `true` */
    DS_ARG_OFF /* a flag that takes something away: `--disable-bias-linear` */
} ds_arg_kind;

#define DS_NO_FIELD ((size_t)-1)

/* One argument that says something about a step. */
typedef struct ds_arg {
    const char *name;
    ds_arg_kind kind;
    const char *initial; /* the value of an argument that is not said; NULL: none */
    size_t field;     /* of ds_launch: an int64_t, double, const char * or bool; or DS_NO_FIELD */
    unsigned feature; /* of the model, that a flag turns on, or an OFF off; 0: none */
    const char *key;  /* in a log; NULL: as the name */
} ds_arg;

/* Arguments that change no step, or that distsim does not model. The first line whose pattern
 * (fnmatch) fits counts. */
typedef struct ds_arg_class {
    const char *pattern;
    const char *fine; /* patterns of values that change nothing, with | between; NULL: all */
    const char *why;  /* of another value; NULL: none is refused */
} ds_arg_class;

typedef struct ds_arg_table {
    const char *title; /* "Megatron-LM" */
    const ds_arg *args;
    uint32_t n_args;
    const ds_arg_class *classes;
    uint32_t n_classes;
    bool is_config; /* names are section.field, and --section.field on a command line */
} ds_arg_table;

extern const ds_arg_table ds_megatron__table, ds_torchtitan__table, ds_deepspeed__table;
/* Has the table a line for the name, of either kind? */
bool ds_launch__knows(const ds_arg_table *table, const char *name);

/* ---- scripts (shell.c, expand.c) ---- */

/* A word after expansion. Between the bytes 1 and 2 stands the text of a part that nobody knows
 * before the script runs: $1, $(date). */
typedef struct ds_word {
    const char *text;
    uint32_t line;
} ds_word;

typedef struct ds_command {
    ds_word *words;
    uint32_t n, line;
} ds_command;

typedef struct ds_script {
    DS_VEC(ds_command) commands;
} ds_script;

#define DS_UNKNOWN     '\1'
#define DS_UNKNOWN_END '\2'

static inline bool ds_launch__is_unknown(const char *text) {
    for (; *text; text++)
        if (*text == DS_UNKNOWN) return true;
    return false;
}

/* The commands that a script would run, with variables, arrays and conditions expanded. Nothing is
 * executed. Errors with the line: DS_ERR_SYNTAX, DS_ERR_UNSUPPORTED (a loop that depends on a
 * command), DS_ERR_LIMIT. */
ds_status ds_launch__script(ds_arena *arena, const char *text, size_t n, ds_script *out,
                            ds_error *err);

/* ---- values of arguments (args.c) ---- */

typedef struct ds_arg_said {
    const char *text; /* NULL: the argument is not said; "" of a flag */
    uint32_t line;
} ds_arg_said;

typedef struct ds_args {
    const ds_arg_table *table;
    ds_launch *launch;
    ds_arg_said *said; /* [table->n_args] */
    ds_buf refused;    /* "'--x' (why), …" */
    uint32_t n_refused;
    bool is_log;
} ds_args;

void ds_args__init(ds_args *args, const ds_arg_table *table, ds_launch *launch);
void ds_args__deinit(ds_args *args);
/* Says one argument. What the table refuses is collected for ds_args__check. Errors: DS_ERR_NAME (no
 * such argument). */
ds_status ds_args__say(ds_args *args, const char *name, const char *value, uint32_t line,
                       ds_error *err);
/* Words `--name value…`, `--name=value`. */
ds_status ds_args__say_words(ds_args *args, const ds_word *words, uint32_t n, ds_error *err);
/* One more reason to refuse, "'--x' (why)". */
void ds_args__refuse(ds_args *args, const char *name, const char *format, ...) DS_PRINTF(3, 4);
/* DS_ERR_UNSUPPORTED with all that was refused. */
ds_status ds_args__check(const ds_args *args, ds_error *err);
/* Fills the fields of the launch that the table names. */
ds_status ds_args__fill(ds_args *args, ds_error *err);

/* Is the argument said, and a flag not `false`? */
bool ds_args__has(const ds_args *args, uint32_t id);
/* The value, else the initial value; NULL: none. */
const char *ds_args__text(const ds_args *args, uint32_t id);
/* As ds_args__text; 0 where no value is. Errors: no number. */
ds_status ds_args__int(const ds_args *args, uint32_t id, int64_t *out, ds_error *err);
ds_status ds_args__real(const ds_args *args, uint32_t id, double *out, ds_error *err);
/* DS_ERR_DATA at the argument's line. */
ds_status ds_args__wrong(const ds_args *args, uint32_t id, ds_error *err, const char *format, ...)
    DS_PRINTF(4, 5);

/* ---- the way out ---- */

/* text[id]: the value to write where the value differs from the value of the argument's field; the
 * empty text writes a flag or nothing more; NULL with `has` leaves the argument out. */
typedef struct ds_args_out {
    const ds_arg_table *table;
    const ds_launch *launch;
    ds_arena *arena;
    const char **text; /* [table->n_args] */
    bool *is_set;      /* [table->n_args]: text counts */
} ds_args_out;

void ds_args_out__init(ds_args_out *out, const ds_arg_table *table, const ds_launch *launch,
                       ds_arena *arena);
void ds_args_out__set(ds_args_out *out, uint32_t id, const char *text);
void ds_args_out__set_int(ds_args_out *out, uint32_t id, int64_t value);
/* The value to write; NULL: none. */
const char *ds_args_out__value(const ds_args_out *out, uint32_t id);

/* "10000", "0.1": the shortest text that reads back as the number. */
const char *ds_launch__real(ds_arena *arena, double value);

/* ---- frameworks: reading fills the launch, writing appends the text ---- */

/* The keys of a TOML text, as arguments `section.field`. Errors with their line: DS_ERR_SYNTAX. */
ds_status ds_launch__toml(ds_args *args, const char *text, ds_error *err);

/* DS_ERR_UNSUPPORTED: "torchtitan has no 'knob': why". */
ds_status ds_launch__lacks(const ds_launch *launch, ds_error *err, const char *knob,
                           const char *format, ...) DS_PRINTF(4, 5);
/* DS_ERR_VALUE. */
ds_status ds_launch__value(ds_error *err, const char *format, ...) DS_PRINTF(2, 3);
/* Is the number of devices said, and within what a strategy may have? DS_ERR_DATA, DS_ERR_LIMIT. */
ds_status ds_launch__check_world(const ds_launch *launch, ds_error *err);
/* "torchrun --nnodes N --nproc-per-node M". */
void ds_launch__put_torchrun(const ds_launch *launch, ds_buf *out);
/* The command of a script or command line that has arguments of the table, and devices and nodes as
 * torchrun is told; *first: the index of the first argument. */
ds_status ds_launch__find_command(ds_args *args, const char *text, size_t n, const ds_command **out,
                                  uint32_t *first, ds_error *err);
/* A word more of a command, on a new line where the line is full. */
void ds_launch__put_word(ds_buf *out, size_t *column, const char *name, const char *value);

ds_status ds_torchtitan__read(ds_launch *launch, const ds_launch_given *given, const char *text,
                              size_t n, ds_error *err);
ds_status ds_torchtitan__write(const ds_launch *launch, ds_buf *out, ds_error *err);
ds_status ds_deepspeed__read(ds_launch *launch, const ds_launch_given *given, const char *text,
                             size_t n, ds_error *err);
ds_status ds_deepspeed__write(const ds_launch *launch, ds_buf *out, ds_error *err);
ds_status ds_fsdp__read(ds_launch *launch, const ds_launch_given *given, const char *text, size_t n,
                        ds_error *err);
ds_status ds_fsdp__write(const ds_launch *launch, ds_buf *out, ds_error *err);
ds_status ds_megatron__read(ds_launch *launch, const ds_launch_given *given, const char *text,
                            size_t n, ds_error *err);
ds_status ds_megatron__write(const ds_launch *launch, ds_buf *out, ds_error *err);

#endif
