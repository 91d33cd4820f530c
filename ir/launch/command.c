/* Commands that launch a training: found in a script, and written. */
#include "ir/launch/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

ds_status ds_launch__value(ds_error *err, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    ds_error_vset(err, DS_ERR_VALUE, DS_NOWHERE, format, ap);
    va_end(ap);
    return DS_ERR_VALUE;
}

ds_status ds_launch__check_world(const ds_launch *launch, ds_error *err) {
    if (!launch->world)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "the number of devices is not said: give --nodes N");
    if (launch->world > 0 && launch->world <= INT32_MAX) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                        "%" PRId64 " devices; at most 2^31 - 1 are supported", launch->world);
}

ds_status ds_launch__lacks(const ds_launch *launch, ds_error *err, const char *knob,
                           const char *format, ...) {
    va_list ap;
    char why[200];
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "%s has no '%s': %s",
                        ds_launch_framework_title(launch->framework), knob, why);
}

/* ---- the way in ---- */

/* The value of `--nnodes 4`, `--nproc_per_node=8` among a launcher's words; 0: not there. */
static int64_t launcher_number(const ds_command *command, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++) {
        const char *word = command->words[i].text;
        size_t k = 0;
        while (name[k] && (word[k] == name[k] || (word[k] == '_' && name[k] == '-'))) k++;
        if (name[k] || (word[k] && word[k] != '=')) continue;
        const char *value = word[k] ? word + k + 1 : i + 1 < n ? command->words[i + 1].text : "";
        long number = strtol(value, NULL, 10);
        return number > 0 && number < 1 << 24 ? number : 0;
    }
    return 0;
}

/* The index behind the Python script; 0: no script. */
static uint32_t behind_script(const ds_command *command) {
    for (uint32_t i = 0; i < command->n; i++) {
        const char *word = command->words[i].text, *dot = strrchr(word, '.');
        if (word[0] != '-' && dot && strncmp(dot, ".py", 3) == 0 &&
            (!dot[3] || dot[3] == DS_UNKNOWN_END))
            return i + 1;
    }
    return 0;
}

/* Is the word the argument, --x or --x=…; of a configuration --section.field? */
static bool is_arg(const ds_arg_table *table, const char *word, const char *name) {
    if (table->is_config) {
        if (word[0] != '-' || word[1] != '-') return false;
        word += 2;
    }
    while (*name && (*word == *name || (*word == '-' && *name == '_' && table->is_config))) {
        word++;
        name++;
    }
    return !*name && (!*word || *word == '=');
}

/* Does a command have two arguments of the table? A script may print the command, too. */
static bool is_launch(const ds_arg_table *table, const ds_command *command) {
    const char *name = command->words[0].text;
    uint32_t found = 0;
    if (strcmp(name, "echo") == 0 || strcmp(name, "printf") == 0) return false;
    for (uint32_t i = 0; i < command->n; i++)
        for (uint32_t id = 0; id < table->n_args; id++)
            found += is_arg(table, command->words[i].text, table->args[id].name);
    return found >= 2;
}

/* `-m torchtitan.train` stands in place of a script. */
static uint32_t behind_module(const ds_command *command) {
    for (uint32_t i = 0; i + 1 < command->n; i++)
        if (strcmp(command->words[i].text, "-m") == 0 &&
            !strstr(command->words[i + 1].text, "torch.distributed"))
            return i + 2;
    return 0;
}

ds_status ds_launch__find_command(ds_args *args, const char *text, size_t n, const ds_command **out,
                                  uint32_t *first, ds_error *err) {
    ds_script script;
    DS_TRY(ds_launch__script(args->launch->arena, text, n, &script, err));
    *out = NULL;
    for (uint32_t i = 0; i < script.commands.n; i++) {
        const ds_command *command = &script.commands.at[i];
        if (!is_launch(args->table, command)) continue;
        if (*out)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                "two commands launch a training, in lines %" PRIu32 " and %" PRIu32,
                                (*out)->line, command->line);
        *out = command;
    }
    if (!*out)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "no command here has arguments of %s (%s …)", args->table->title,
                            args->table->args[0].name);
    *first = behind_script(*out);
    if (!*first) *first = behind_module(*out);
    int64_t nodes = launcher_number(*out, *first, "--nnodes"),
            node = launcher_number(*out, *first, "--nproc-per-node");
    args->launch->node = node;
    args->launch->world = nodes && node ? nodes * node : node;
    return DS_OK;
}

/* ---- the way out ---- */

enum { WIDTH = 96 };

void ds_launch__put_word(ds_buf *out, size_t *column, const char *name, const char *value) {
    size_t n = strlen(name) + (*value ? 1 + strlen(value) : 0) + 1;
    if (*column + n + 2 > WIDTH) {
        ds_buf_put(out, " \\\n   ");
        *column = 3;
    }
    ds_buf_printf(out, " %s%s%s", name, *value ? " " : "", value);
    *column += n;
}

void ds_launch__put_torchrun(const ds_launch *launch, ds_buf *out) {
    int64_t node = launch->node && launch->node < launch->world ? launch->node : launch->world;
    ds_buf_printf(out, "torchrun --nnodes %" PRId64 " --nproc-per-node %" PRId64,
                  (launch->world + node - 1) / node, node);
}
