/* Text to module and back. */
#ifndef DS_LANG_LANG_H
#define DS_LANG_LANG_H

#include "ir/base/diag.h"
#include "ir/base/str.h"
#include "ir/core/ir.h"
#include "ir/strategy/knobs.h"

/* Parses one text into `module` (imports are recorded, not loaded). Stops at the first error.
 * `text` need not be NUL-terminated and may hold any bytes. O(n). */
ds_status ds_parse(ds_module *module, ds_error *err);

/* Adds a `degrade` to a module that was parsed, from its text without that word:
 * "gpu[3] compute = 0.8". It comes after those of the file. */
ds_status ds_parse_what_if(ds_module *module, const char *text, ds_error *err);

/* The value of a key of a block, from the text of a --set: what the block may say behind `KEY =`; a
 * text needs no quotes. The attribute's place is `source`. */
ds_status ds_parse_setting(ds_module *module, const ds_knob *knob, const ds_setting *setting,
                           ds_attr *out, ds_error *err);

/* A condition as that of a sweep's `where`, or any expression, over the module's params and the names:
 * "step_time <= 12 ms". DS_SWEEP_WHERE with `a` and `unit`; ds_sweep_holds evaluates it. `source`
 * names the text in messages. */
typedef struct ds_parse_names {
    const char *const *at;
    uint32_t n;
} ds_parse_names;
ds_status ds_parse_condition(ds_module *module, ds_parse_names names, const char *source,
                             const char *text, ds_sweep_entry *out, ds_error *err);

#define DS_LOAD_MAX_BYTES ((size_t)64 << 20) /* of a file; assumed: no program is longer */

typedef struct ds_load_options {
    const char *const *include_dirs; /* -I */
    uint32_t n_include_dirs;
    /* --set: keys of the scenario that no param has the name of (setting.c) are put into the
     * scenario, and a setting of "--vary", "--where", "--minimize" or "--maximize" into the sweep.
     * ds_bind gets the same settings, for params, and passes over these. */
    const ds_setting *settings;
    uint32_t n_settings;
    const char *job;   /* --job: the job whose keys the settings say; NULL: none */
    bool has_settings; /* the text was printed from a unit that has them: its scenario stays */
} ds_load_options;

/* Puts a key of the scenario into it, as loading with that setting does; any other setting is a
 * param's, and nothing is done. Errors: an unknown key, a value that does not parse. */
ds_status ds_load_say(ds_unit *unit, const ds_setting *setting, ds_error *err);

/* Reads a file and everything it imports into a new unit, unverified. Imports are looked for in the
 * importing file's folder, its parents, -I, $DISTSIM_PATH, the library (library.h). The unit is
 * returned even on error (it holds the sources that the error points to); free it either way. */
ds_status ds_load_file(const char *path, const ds_load_options *options, ds_unit **out,
                       ds_error *err);
/* The same for a text that is already in memory; `path` names it in diagnostics. */
ds_status ds_load_text(const char *path, const char *text, size_t n, const ds_load_options *options,
                       ds_unit **out, ds_error *err);

/* Prints a module canonically: ds_parse of the result gives an equal module, comments included.
 * Value types are printed wherever they are known. */
void ds_print_module(const ds_module *module, ds_buf *out);
/* What a module says to a run, for hashes: as above, without comments, blank lines, paths of
 * imports, the scenario and the sweep. */
void ds_print_module_content(const ds_module *module, ds_buf *out);
/* The sweep alone, likewise. */
void ds_print_sweep_content(const ds_module *module, ds_buf *out);
/* What a unit says, part by part, without comments: calls `each` with the part's name and its text:
 * ("param batch", "64"), ("topology @box", …), ("strategy.zero", "1"), of an import's `with`
 * ("gpt.batch", "64"), and for each imported file ("file gpt.dir", its content). The sweep is no
 * part. */
void ds_print_parts(const ds_unit *unit,
                    void (*each)(void *context, const char *name, const char *text), void *context);
/* One op on one line, without its regions, e.g. for reports: "%y = matmul(%h, %w{l})". */
void ds_print_op_head(const ds_func *func, const ds_op *op, ds_buf *out);

/* "file:line:col: error: message", the source line and a caret line. */
void ds_diag_print(const ds_unit *unit, const ds_diag *diag, ds_buf *out);
void ds_error_print(const ds_unit *unit, const ds_error *err, ds_buf *out);

#endif
