/* Rows drawn by hash, and simulated alone. */
#include "search/driver/check.h"

#include "ir/base/map.h"
#include "ir/strategy/scenario.h"
#include "search/driver/rows.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A check takes some ten times as long as a row that is put together, so one in 1024 costs 1 %. */
enum { DEFAULT_EVERY = 1024 };

/* Tasks of a step that is unfolded: as many as loading the file takes the time of, and 3 % of a
 * row's time for each row. At most, asked for or not, a second and 400 MB. */
enum { TASKS_ANYWAY = 1 << 14, TASKS_A_ROW = 64, MOST_TASKS = 2000000 };

/* Microbatches of a step whose simulation takes no more than some tenths of a second. */
enum { FEW_MICROBATCHES = 64 };

ds_check ds_check_of(uint64_t every) {
    return (ds_check){every ? every : DEFAULT_EVERY, every != 0};
}

static uint64_t draw(const ds_outcome *row) {
    return ds_hash_mix(row->hash, UINT64_C(0x636865636b)); /* "check" */
}

bool ds_check_draws(const ds_check *check, const ds_outcome *row) {
    return check->every != DS_CHECK_NONE && !row->unsimulated && draw(row) % check->every == 0;
}

bool ds_check_prefers(const ds_outcome *a, const ds_outcome *b) {
    bool few = a->metrics.microbatches <= FEW_MICROBATCHES;
    if (few != (b->metrics.microbatches <= FEW_MICROBATCHES)) return few;
    return draw(a) < draw(b);
}

/* ---- a check ---- */

static uint32_t most_unfolded(const ds_check *check, uint64_t n_rows) {
    uint64_t most = TASKS_ANYWAY + TASKS_A_ROW * n_rows;
    return check->is_asked_for || most > MOST_TASKS ? MOST_TASKS : (uint32_t)most;
}

static void compare(const ds_outcome *again, ds_outcome *row) {
    ds_buf text = {0};
    row->checked = again->unfolded ? DS_CHECKED_UNFOLDED : DS_CHECKED_FOLDED;
    ds_outcome_compare(row, again, &text);
    row->is_wrong = text.n > 0;
    if (row->is_wrong) {
        row->reason.n = 0;
        ds_buf_put(&row->reason, text.text);
    }
    ds_buf_deinit(&text);
}

void ds_check_row(const ds_check *check, const ds_eval_source *source,
                  const ds_candidate *candidate, uint64_t n_rows, ds_outcome *row) {
    ds_eval *alone;
    ds_outcome again = {0};
    ds_error unsaid; /* the file is gone, or another one */
    row->checked = DS_CHECKED_BEYOND;
    if (ds_eval_new_alone(source, most_unfolded(check, n_rows), &alone, &unsaid) != DS_OK) return;
    alone->run(alone, candidate, &again);
    alone->free(alone);
    row->stopped = again.stopped;
    bool beyond = again.too_large && ds_outcome_is_simulated(row);
    if (!again.stopped && !beyond) compare(&again, row);
    ds_outcome_deinit(&again);
}

/* ---- an evaluator ---- */

typedef struct checked {
    ds_eval eval, *behind;
    const ds_check *check;
    const ds_eval_source *source;
} checked;

static void run(ds_eval *eval, const ds_candidate *candidate, ds_outcome *out) {
    checked *c = (checked *)eval;
    c->behind->run(c->behind, candidate, out);
    if (!out->stopped && ds_check_draws(c->check, out))
        ds_check_row(c->check, c->source, candidate, c->check->every, out);
}

static void free_checked(ds_eval *eval) {
    checked *c = (checked *)eval;
    c->behind->free(c->behind);
    free(c);
}

ds_eval *ds_eval_new_checked(const ds_check *check, const ds_eval_source *source, ds_eval *eval) {
    checked *c = ds_xcalloc(1, sizeof *c);
    *c = (checked){{run, free_checked}, eval, check, source};
    return &c->eval;
}

/* ---- a wrong row ---- */

/* The run that has the second values. --set knows no key outside of strategy and train. */
/* A word of a shell's command. */
static void put_word(const char *word, ds_buf *out) {
    bool plain = *word != '\0';
    for (const char *at = word; *at; at++)
        plain = plain && (isalnum((unsigned char)*at) || strchr("_-./:=@%+,", *at));
    if (plain) {
        ds_buf_put(out, word);
        return;
    }
    ds_buf_putc(out, '\'');
    for (const char *at = word; *at; at++) {
        if (*at == '\'') ds_buf_put(out, "'\\'");
        ds_buf_putc(out, *at);
    }
    ds_buf_putc(out, '\'');
}

static void put_command(const ds_eval_source *source, const ds_candidate *candidate,
                        const ds_outcome *row, ds_buf *out) {
    const ds_space *space = source->space;
    const char *with = "` with ";
    ds_arena arena;
    ds_setting *settings;
    uint32_t n;
    ds_arena_init(&arena);
    ds_space_settings(space, candidate, &arena, &settings, &n);
    ds_buf_put(out, "`distsim run ");
    put_word(source->path, out);
    for (uint32_t i = 0; i < source->load.n_include_dirs; i++) {
        ds_buf_put(out, " -I ");
        put_word(source->load.include_dirs[i], out);
    }
    if (source->job) ds_buf_printf(out, " --job %s", source->job);
    if (row->checked == DS_CHECKED_UNFOLDED) ds_buf_put(out, " --unfold");
    if (!ds_scenario_find(ds_space_unit(space), "", "cost")) ds_buf_put(out, " --cost fitted");
    for (uint32_t i = 0; i < n; i++)
        ds_buf_printf(out, " --set '%s=%s'", settings[i].path, settings[i].text);
    for (uint32_t i = 0; i < ds_space_n_dims(space); i++) {
        const ds_knob *knob = ds_space_dim_knob(space, i);
        if (!knob || !*knob->section) continue;
        ds_buf_printf(out, " --set '%s.%s=", knob->section, knob->name);
        ds_space_put_value(space, candidate, i, out);
        ds_buf_putc(out, '\'');
    }
    for (uint32_t i = 0; i < ds_space_n_dims(space); i++) {
        const ds_knob *knob = ds_space_dim_knob(space, i);
        if (!knob || *knob->section) continue;
        ds_buf_printf(out, "%s%s = ", with, knob->name);
        ds_space_put_value(space, candidate, i, out);
        with = ", ";
    }
    if (*with == '`') ds_buf_putc(out, '`');
    ds_arena_deinit(&arena);
}

ds_status ds_check_fail(const ds_eval_source *source, const ds_candidate *candidate,
                        const ds_outcome *row, ds_error *err) {
    ds_buf command = {0};
    put_command(source, candidate, row, &command);
    ds_status status =
        ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE,
                     "candidate %" PRIu64 " is wrong: %s, as %s says. This is a defect of distsim: "
                     "rely on no row of this sweep",
                     candidate->number, row->reason.text, command.text);
    ds_buf_deinit(&command);
    return status;
}
