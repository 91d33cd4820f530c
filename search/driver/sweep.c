/* The driver: method → ring of candidates → workers → rows in order.
 *
 * Two rounds of candidates are under way at most, so that workers find work while the first of them
 * is written; a method that learns gets its results round by round (search/methods/method.h). */
#include "search/driver/sweep.h"

#include "search/driver/pool.h"
#include "search/driver/reject.h"
#include "search/driver/remote_internal.h"
#include "search/driver/sweep_file_internal.h"
#include "search/methods/anneal.h"
#include "search/methods/beam.h"
#include "search/methods/bound.h"
#include "sim/cost/table_db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIN_SLOTS = 2 * DS_ROUND, PENDING_MAX = 1 << 16, DEFAULT_DRAWS = 1000 };

typedef struct slot {
    ds_candidate candidate;
    ds_outcome outcome;
} slot;

typedef struct driver {
    const ds_sweep_options *options;
    ds_sweep_result *result;
    ds_arena arena;
    ds_space *space;
    ds_eval_source source;
    ds_rows rows;
    ds_method *method;
    ds_eval **evals;
    uint32_t n_workers;
    ds_pool *pool;
    ds_remote *remote; /* of rank 0 of several; else NULL */
    slot *slots;
    uint32_t n_slots;
    ds_sweep_file file;
    ds_stop stop; /* set when candidates begin, once the rows that were there are read */
    int64_t start_ns;
    uint64_t max_rows, submitted;
    bool ended;
    ds_check check;
    uint64_t n_simulated, n_drawn; /* rows; also of the file that is resumed */
    slot spare;                    /* the row that is checked if none is drawn */
    bool has_spare;
} driver;

static double seconds_since(int64_t start_ns) {
    return (double)(ds_clock_ns() - start_ns) * 1e-9;
}

/* ---- candidates ---- */

static bool in_shard(const driver *d, uint64_t number) {
    return !d->options->n_shards || number % d->options->n_shards == d->options->shard;
}

static ds_status next_candidate(driver *d, ds_candidate *candidate, bool *found, ds_error *err) {
    do DS_TRY(d->method->next(d->method, candidate, found, err));
    while (*found && !in_shard(d, candidate->number));
    return DS_OK;
}

/* Time or rejections end the sweep: what follows is neither asked for nor evaluated. */
static void stop(driver *d, ds_sweep_end why) {
    d->ended = true;
    d->result->complete = false;
    d->result->end = why;
}

static const char *method_name(const ds_sweep_options *options) {
    return options->method ? options->method : "grid";
}

static ds_status unknown_method(const char *name, ds_error *err) {
    static const char *const names[] = {"grid",   "random", "bound", "beam",
                                        "anneal", "mcmc",   "pase",  "tap"};
    enum { N_NAMES = sizeof names / sizeof *names };
    const char *near = ds_suggest(name, names, N_NAMES);
    return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE, "unknown method '%s'; %s%s%s", name,
                        near ? "did you mean '" : "",
                        near ? near
                             : "there are grid, random, bound, beam, anneal, mcmc, pase, and tap",
                        near ? "'?" : "");
}

static ds_status make_method(driver *d, ds_error *err) {
    const char *name = method_name(d->options);
    uint64_t seed = d->options->seed;
    d->max_rows = d->options->max_rows;
    if (strcmp(name, "grid") == 0) {
        d->method = ds_grid_new(d->space);
    } else if (strcmp(name, "random") == 0) {
        if (!d->max_rows) d->max_rows = DEFAULT_DRAWS;
        d->method = ds_random_new(d->space, seed, d->max_rows);
    } else if (strcmp(name, "bound") == 0) {
        DS_TRY(ds_bound_new(&d->source, d->space, &d->method, err));
    } else if (strcmp(name, "beam") == 0) {
        DS_TRY(ds_beam_new(&d->source, d->space, seed, d->options->width, &d->method, err));
    } else if (strcmp(name, "anneal") == 0 || strcmp(name, "mcmc") == 0) {
        if (!d->max_rows) d->max_rows = DEFAULT_DRAWS;
        d->method = ds_anneal_new(d->space, seed, *name == 'm', d->max_rows);
    } else {
        return unknown_method(name, err);
    }
    if (d->method->tell && d->options->n_shards)
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "--method %s learns from all candidates and has no shards", name);
    if (d->options->certificate && strcmp(name, "bound") != 0)
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "--certificate needs --method bound: %s proves nothing", name);
    return DS_OK;
}

/* ---- checks ---- */

static ds_status note_check(driver *d, const ds_candidate *candidate, const ds_outcome *row,
                            ds_error *err) {
    if (row->is_wrong) return ds_check_fail(&d->source, candidate, row, err);
    d->result->checked += row->checked == DS_CHECKED_FOLDED || row->checked == DS_CHECKED_UNFOLDED;
    d->result->unfolded += row->checked == DS_CHECKED_UNFOLDED;
    d->result->beyond += row->checked == DS_CHECKED_BEYOND;
    return DS_OK;
}

/* Of a judged row: it may be the one that is checked if none is drawn. */
static void note_row(driver *d, const ds_candidate *candidate, const ds_outcome *row) {
    slot *spare = &d->spare;
    if (!ds_outcome_is_simulated(row)) return;
    d->n_simulated++;
    d->n_drawn += ds_check_draws(&d->check, row) && row->checked != DS_CHECKED_BEYOND;
    if (d->has_spare && !ds_check_prefers(row, &spare->outcome)) return;
    if (!d->has_spare) spare->candidate = ds_candidate_new(d->space, &d->arena);
    d->has_spare = true;
    spare->candidate.number = candidate->number;
    memcpy(spare->candidate.at, candidate->at, ds_space_n_dims(d->space) * sizeof *candidate->at);
    ds_buf reason = spare->outcome.reason;
    spare->outcome = *row;
    reason.n = 0;
    /* conditions have judged the row, but not what it is compared with */
    ds_buf_put(&reason, row->verdict == DS_VERDICT_DOES_NOT_FIT ? row->reason.text : "");
    spare->outcome.reason = reason;
    if (row->verdict == DS_VERDICT_EXCLUDED) spare->outcome.verdict = DS_VERDICT_OK;
}

/* Once all rows are there: at least one of them is checked. */
static ds_status check_spare(driver *d, ds_error *err) {
    slot *spare = &d->spare;
    bool late = d->result->end == DS_SWEEP_END_TIME;
    if (d->check.every == DS_CHECK_NONE || d->n_drawn || !d->has_spare || late) return DS_OK;
    ds_check_row(&d->check, &d->source, &spare->candidate, d->n_simulated, &spare->outcome);
    if (spare->outcome.stopped) return DS_OK; /* --time */
    return note_check(d, &spare->candidate, &spare->outcome, err);
}

/* ---- rows ---- */

/* A condition that cannot be evaluated for this candidate: its row says so. */
static void fail_outcome(ds_outcome *outcome, const ds_error *why) {
    outcome->verdict = DS_VERDICT_FAILED;
    outcome->reason.n = 0;
    ds_buf_put(&outcome->reason, why->message);
}

/* Judges an outcome, counts it, and offers it to the best; the same for a row that was read. */
static ds_status settle(driver *d, const ds_candidate *candidate, ds_outcome *outcome,
                        ds_error *err) {
    const char *failed = NULL;
    bool subject = true;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_error why;
    bool admitted = ds_space_admits(d->space, candidate, &why) == DS_OK;
    if (!admitted) fail_outcome(outcome, &why);
    bool judged = !ds_outcome_is_simulated(outcome) ||
                  ds_space_judge(d->space, candidate, &outcome->metrics, &scratch, &failed,
                                 &subject, &why) == DS_OK;
    if (!judged && outcome->verdict == DS_VERDICT_OK) fail_outcome(outcome, &why);
    if (failed && outcome->verdict == DS_VERDICT_OK) {
        outcome->verdict = DS_VERDICT_EXCLUDED;
        ds_buf_printf(&outcome->reason, "where %s", failed);
    }
    ds_arena_deinit(&scratch);
    double price = outcome->metrics.cost_per_hour;
    if (price < 0)
        return ds_error_set(err, DS_ERR_VALUE, ds_space_sweep(d->space)->loc,
                            "the price comes to %g an hour: it cannot be negative", price);
    note_row(d, candidate, outcome);
    bool accepted = outcome->verdict == DS_VERDICT_OK && subject;
    if (accepted) ds_best_add(&d->result->best, d->space, candidate, outcome);
    if (d->method->tell) d->method->tell(d->method, candidate, outcome, accepted);
    d->result->n[outcome->verdict]++;
    d->result->rows++;
    return DS_OK;
}

static void report(driver *d) {
    if (!d->options->progress) return;
    const ds_best *best = &d->result->best;
    ds_sweep_progress p = {.rows = d->result->rows,
                           .here = d->result->here,
                           .seconds = seconds_since(d->start_ns),
                           .share = d->method->progress(d->method),
                           .best_ps = best->top.n ? best->top.at[0].metrics.step_ps : 0};
    d->options->progress(d->options->progress_context, &p);
}

static ds_status emit(driver *d, slot *s, ds_error *err) {
    DS_TRY(note_check(d, &s->candidate, &s->outcome, err));
    DS_TRY(settle(d, &s->candidate, &s->outcome, err));
    ds_rows_put(&d->rows, &s->candidate, &s->outcome, &d->file.pending);
    d->result->here++;
    bool idle = d->submitted == d->result->here || !ds_pool_is_done(d->pool);
    if (idle || d->file.pending.n > PENDING_MAX) DS_TRY(ds_sweep_file_flush(&d->file, err));
    report(d);
    return DS_OK;
}

/* ---- resuming ---- */

static ds_status not_ours(const driver *d, const ds_csv_stream *record, const char *why,
                          ds_error *err) {
    return ds_sweep_file_refuse(&d->file, record->line, why, err);
}

static bool is_text_of(const ds_csv_stream *record, const ds_buf *text) {
    return record->raw.n == text->n && memcmp(record->raw.text, text->text, text->n) == 0;
}

static ds_status take_header(driver *d, const ds_csv_stream *record, ds_error *err) {
    ds_buf header = {0};
    ds_rows_put_header(&d->rows, &header);
    bool same = is_text_of(record, &header);
    ds_buf_deinit(&header);
    if (same) return DS_OK;
    bool spreadsheet = record->n && strcmp(record->cells[record->n - 1], DS_ROWS_SPREADSHEET) == 0;
    if (spreadsheet != d->rows.spreadsheet)
        return not_ours(
            d, record,
            spreadsheet ? "the table was written with --spreadsheet: give --spreadsheet"
                        : "the table was written without --spreadsheet, or is no table of a sweep",
            err);
    return not_ours(d, record, "the columns are not this sweep's", err);
}

/* Refuses a row of another sweep, file or settings. */
static ds_status check_names(const driver *d, const ds_csv_stream *record, ds_error *err) {
    const ds_rows *r = &d->rows;
    const char *source = record->cells[r->source], *settings = record->cells[r->settings];
    if (strcmp(record->cells[r->sweep], r->sweep_id) != 0)
        return not_ours(d, record,
                        "another sweep made this row: its program, settings, profiles or method "
                        "differ",
                        err);
    if (r->spreadsheet) {
        source = ds_rows_plain(source);
        settings = ds_rows_plain(settings);
    }
    if (strcmp(source, r->source_text) != 0 || strcmp(settings, r->settings_text) != 0)
        return not_ours(d, record, "the row names another file or other settings", err);
    return DS_OK;
}

/* Refuses a row out of order, and a row that differs by a byte from the row of this sweep. */
static ds_status check_row(driver *d, const ds_csv_stream *record, slot *s, ds_outcome *outcome,
                           ds_error *err) {
    bool found = false;
    uint64_t candidate;
    if (record->n != d->rows.columns.n ||
        !ds_rows_read(&d->rows, record->cells, outcome, &candidate))
        return not_ours(d, record, "this is no row of a sweep", err);
    DS_TRY(check_names(d, record, err));
    DS_TRY(next_candidate(d, &s->candidate, &found, err));
    if (!found || s->candidate.number != candidate)
        return not_ours(d, record, "the row is of another shard, or out of order", err);
    if (outcome->verdict == DS_VERDICT_EXCLUDED) { /* the conditions are asked again */
        outcome->verdict = DS_VERDICT_OK;
        outcome->reason.n = 0;
        ds_buf_put(&outcome->reason, "");
    }
    DS_TRY(settle(d, &s->candidate, outcome, err));
    ds_buf text = {0};
    ds_rows_put(&d->rows, &s->candidate, outcome, &text);
    bool same = is_text_of(record, &text);
    ds_buf_deinit(&text);
    return same ? DS_OK
                : not_ours(d, record, "the row differs from the row that this sweep writes", err);
}

static ds_status take_record(void *context, const ds_csv_stream *record, uint64_t number,
                             ds_error *err) {
    driver *d = context;
    if (number == 1) return take_header(d, record, err);
    ds_outcome outcome = {0};
    ds_status status = check_row(d, record, &d->slots[0], &outcome, err);
    ds_outcome_deinit(&outcome);
    return status;
}

/* No output is the sweep's file or another output. */
static ds_status check_apart(const driver *d, ds_error *err) {
    const ds_sweep_options *o = d->options;
    const char *const paths[] = {d->source.text ? NULL : d->source.path, o->path, o->db,
                                 o->certificate};
    static const char *const names[] = {"the sweep's own file", "-o", "--db", "--certificate"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            if (paths[i] && paths[k] && ds_output_same(paths[i], paths[k]))
                return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                    "%s %s and %s are the same file: name another file", names[i],
                                    paths[i], names[k]);
    return DS_OK;
}

/* With `resume` a database of the same sweep's rows is replaced. */
static ds_status check_db(const driver *d, ds_error *err) {
    const ds_sweep_options *o = d->options;
    char *target = NULL;
    if (!o->db) return DS_OK;
    bool exists = ds_output_is_regular(o->db, &target);
    free(target);
    if (!exists || o->overwrite)
        return ds_output_check(o->db, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, err);
    if (o->resume && ds_table_db_holds(o->db, "rows", "sweep", d->rows.sweep_id)) return DS_OK;
    return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE, "--db %s exists%s", o->db,
                        o->resume ? " and does not hold this sweep's rows alone: --overwrite "
                                    "replaces the database"
                                  : ": --overwrite replaces the database and the rows of -o");
}

static unsigned output_flags(const ds_sweep_options *o) {
    return o->overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
}

static ds_status open_file(driver *d, ds_error *err) {
    const ds_sweep_options *o = d->options;
    bool any;
    if (strcmp(o->path, "-") == 0 && (o->resume || o->db))
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "--resume and --db need a file: say -o out.csv");
    DS_TRY(check_apart(d, err));
    if (o->db) /* the database is made of the rows in the file */
        DS_TRY(ds_output_check(o->path, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, err));
    DS_TRY(check_db(d, err));
    if (o->certificate) DS_TRY(ds_output_check(o->certificate, output_flags(o), err));
    DS_TRY(ds_sweep_file_open(&d->file, o->path, o->resume, o->overwrite, err));
    DS_TRY(ds_sweep_file_replay(&d->file, take_record, d, &any, err));
    if (!any) ds_rows_put_header(&d->rows, &d->file.pending);
    return ds_sweep_file_flush(&d->file, err);
}

/* ---- the loop ---- */

static void work(void *context, uint32_t worker, uint32_t index) {
    driver *d = context;
    slot *s = &d->slots[index];
    d->evals[worker]->run(d->evals[worker], &s->candidate, &s->outcome);
}

static bool has_all_rows(const driver *d) {
    uint64_t rows = d->result->rows - d->result->here + d->submitted;
    return d->max_rows && rows >= d->max_rows;
}

/* Does it differ from the candidate submitted before in its last dimension alone? Then the two are
 * likely to be put together from one template (search/compose). */
static bool goes_with_last(const driver *d) {
    uint32_t n = ds_space_n_dims(d->space);
    if (!d->submitted || n < 2) return false;
    const ds_candidate *last = &d->slots[(d->submitted - 1) % d->n_slots].candidate;
    const ds_candidate *own = &d->slots[d->submitted % d->n_slots].candidate;
    for (uint32_t i = 0; i + 1 < n; i++)
        if (!ds_choice_same(d->space, i, &last->at[i], &own->at[i])) return false;
    return true;
}

/* Submits what may be begun now: as many as there are free slots, or a whole round. */
static ds_status fill(driver *d, ds_error *err) {
    uint64_t in_flight = d->submitted - d->result->here;
    uint64_t room = d->method->tell ? (in_flight ? 0 : DS_ROUND) : d->n_slots - in_flight;
    for (; room && !d->ended; room--) {
        slot *s = &d->slots[d->submitted % d->n_slots];
        bool found = false;
        if (has_all_rows(d) || ds_stop_due(&d->stop)) {
            stop(d, has_all_rows(d) ? DS_SWEEP_END_ROWS : DS_SWEEP_END_TIME);
            return DS_OK;
        }
        ds_status status = next_candidate(d, &s->candidate, &found, err);
        if (ds_stop_due(&d->stop)) { /* also after an error of the method */
            stop(d, DS_SWEEP_END_TIME);
            return DS_OK;
        }
        DS_TRY(status);
        if (!found && ds_space_gave_up(d->space)) {
            stop(d, DS_SWEEP_END_REJECTED);
            return DS_OK;
        }
        /* one that learns waits for the results of those that are under way */
        if (!found && d->method->tell && d->submitted > d->result->here) return DS_OK;
        d->result->complete = d->ended = !found;
        if (!found) return DS_OK;
        bool follows = goes_with_last(d);
        d->submitted++;
        ds_pool_submit(d->pool, follows);
    }
    return DS_OK;
}

static ds_candidate *slot_candidate(void *context, uint32_t index) {
    return &((driver *)context)->slots[index].candidate;
}

static ds_outcome *slot_outcome(void *context, uint32_t index) {
    return &((driver *)context)->slots[index].outcome;
}

static ds_remote_slots remote_slots(driver *d) {
    return (ds_remote_slots){d, slot_candidate, slot_outcome};
}

/* The slot of the next candidate in order, once it is done. */
static uint32_t await(driver *d) {
    ds_remote_slots slots = remote_slots(d);
    while (d->remote) {
        bool any = ds_remote_exchange(d->remote, d->pool, &slots);
        if (ds_pool_is_done(d->pool)) break;
        if (!any) ds_pool_nap(d->pool);
    }
    return ds_pool_wait(d->pool);
}

static ds_status loop(driver *d, ds_error *err) {
    ds_status status = fill(d, err);
    while (d->result->here < d->submitted) { /* also after an error: the rows before it stay */
        uint32_t index = await(d);
        if (d->slots[index].outcome.stopped) {
            stop(d, DS_SWEEP_END_TIME);
            return status == DS_OK ? ds_sweep_file_flush(&d->file, err) : status;
        }
        DS_TRY(emit(d, &d->slots[index], status == DS_OK ? err : NULL));
        if (status == DS_OK) status = fill(d, err);
    }
    return status;
}

/* ---- set-up ---- */

static uint32_t default_workers(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 256 ? 256 : (uint32_t)n;
}

/* What is explored, and how a row of it is known: alike on all ranks. */
static ds_status describe(driver *d, const ds_sweep_subject *subject, ds_error *err) {
    DS_TRY(ds_space_new(subject->binding, subject->settings, subject->n_settings, &d->space, err));
    d->source = (ds_eval_source){.path = subject->path,
                                 .text = subject->text,
                                 .text_n = subject->text_n,
                                 .load = subject->load,
                                 .job = subject->job,
                                 .space = d->space,
                                 .profiles = subject->profiles,
                                 .stop = &d->stop};
    d->source.content = ds_eval_content(subject->binding->unit, subject->profiles);
    subject->binding->unit->stop = &d->stop; /* of the space's and the bounds' work */
    ds_buf name = {0};
    ds_buf_printf(&name, "%s %" PRIu64, method_name(d->options), d->options->seed);
    if (d->options->width) ds_buf_printf(&name, " %" PRIu32, d->options->width);
    ds_buf settings = {0};
    ds_rows_put_settings(subject->settings, subject->n_settings, &settings);
    ds_rows_init(&d->rows, d->space, subject->binding, &d->source, settings.text, name.text,
                 d->options->spreadsheet);
    ds_buf_deinit(&settings);
    ds_buf_deinit(&name);
    return DS_OK;
}

static void make_slots(driver *d, uint32_t n) {
    d->n_slots = n;
    d->slots = ds_xcalloc(n, sizeof *d->slots);
    for (uint32_t i = 0; i < n; i++) d->slots[i].candidate = ds_candidate_new(d->space, &d->arena);
}

/* One a rank unless it is told: several ranks may be on one machine. */
static uint32_t workers_wanted(const driver *d) {
    if (d->options->n_workers) return d->options->n_workers;
    return d->options->ranks ? 1 : default_workers();
}

static ds_status start_workers(driver *d, ds_error *err) {
    uint32_t wanted = workers_wanted(d);
    bool memory_first = ds_sweep_is_on(ds_space_sweep(d->space), "memory_first");
    d->evals = ds_xcalloc(wanted, sizeof *d->evals);
    d->check = ds_check_of(d->options->check);
    for (; d->n_workers < wanted; d->n_workers++) {
        ds_eval **eval = &d->evals[d->n_workers];
        DS_TRY((memory_first ? ds_eval_new_memory_first : ds_eval_new_simulation)(&d->source, eval,
                                                                                  err));
        *eval = ds_eval_new_checked(&d->check, &d->source, *eval);
    }
    if (d->options->max_rows) ds_space_give_up_after(d->space, DS_SWEEP_MOST_REJECTED);
    if (d->options->max_seconds > 0) ds_stop_set(&d->stop, d->start_ns, d->options->max_seconds);
    return ds_pool_new(wanted, d->n_slots, work, d, &d->pool, err);
}

static ds_status set_up(driver *d, const ds_sweep_subject *subject, ds_error *err) {
    if (ds_ranks_count(d->options->ranks) > 1) d->remote = ds_remote_new(d->options->ranks);
    DS_TRY(describe(d, subject, err));
    DS_TRY(make_method(d, err));
    ds_best_init(&d->result->best, d->space);
    uint32_t n_slots = MIN_SLOTS;
    if (d->remote) {
        DS_TRY(ds_remote_hear(d->remote, d->rows.sweep_id, ds_space_n_dims(d->space), err));
        uint32_t all = 4 * (ds_remote_workers(d->remote) + workers_wanted(d));
        if (all > n_slots) n_slots = all;
    }
    make_slots(d, n_slots);
    DS_TRY(start_workers(d, err)); /* a sweep that cannot begin replaces nothing */
    return open_file(d, err);
}

/* The part of all ranks but the first: to evaluate what they are given. */
static ds_status serve(driver *d, const ds_sweep_subject *subject, ds_error *err) {
    uint32_t n_workers = workers_wanted(d);
    ds_remote_slots slots = remote_slots(d);
    ds_status status = describe(d, subject, err);
    if (status == DS_OK) {
        make_slots(d, ds_remote_slots_wanted(n_workers));
        status = start_workers(d, err);
    }
    ds_remote_greet(d->options->ranks, n_workers, d->rows.sweep_id, status == DS_OK ? NULL : err);
    ds_remote_serve(d->options->ranks, d->pool, d->n_slots,
                    d->space ? ds_space_n_dims(d->space) : 0, &slots);
    return status;
}

static ds_status tear_down(driver *d, ds_status status, ds_error *err) {
    ds_error late;
    ds_pool_free(d->pool);
    ds_remote_free(d->remote);
    ds_status written = ds_sweep_file_flush(&d->file, &late); /* also after an error */
    ds_status closed = ds_sweep_file_close(&d->file, written == DS_OK ? &late : NULL);
    if (written == DS_OK) written = closed;
    if (status == DS_OK && written != DS_OK) {
        if (err) *err = late;
        status = written;
    }
    for (uint32_t i = 0; i < d->n_workers; i++) d->evals[i]->free(d->evals[i]);
    for (uint32_t i = 0; i < d->n_slots; i++) ds_outcome_deinit(&d->slots[i].outcome);
    ds_outcome_deinit(&d->spare.outcome);
    free(d->slots);
    free(d->evals);
    if (d->method) d->method->free(d->method);
    return status;
}

/* Counts the rows: a row that is lost is an error. */
static ds_status export_rows(const driver *d, uint32_t n, ds_table_db *db, ds_error *err) {
    ds_csv_stream rows;
    bool found = true;
    uint64_t done = 0;
    const char **cells = ds_xcalloc(n, sizeof *cells);
    ds_status status = ds_csv_open(&rows, d->options->path, err);
    for (uint64_t i = 0; status == DS_OK && found; i++) {
        status = ds_csv_next(&rows, &found, err);
        if (status != DS_OK || !found || i == 0 || rows.n != d->rows.columns.n) continue;
        for (uint32_t k = 0; k < n; k++)
            cells[k] = d->rows.spreadsheet ? ds_rows_plain(rows.cells[k]) : rows.cells[k];
        status = ds_table_db_put(db, cells, err);
        done++;
    }
    if (status == DS_OK && done != d->result->rows)
        status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE,
                              "%s has %" PRIu64 " rows, and the sweep %" PRIu64
                              ": the file was changed meanwhile",
                              d->options->path, done, d->result->rows);
    free(cells);
    ds_csv_close(&rows);
    return status;
}

static ds_status write_certificate(const driver *d, ds_error *err) {
    ds_buf text = {0};
    ds_status status =
        ds_bound_certificate(d->method, d->rows.source_text, d->rows.settings_text, &text, err);
    if (status == DS_OK)
        status = ds_output_write(d->options->certificate, output_flags(d->options), text.text,
                                 text.n, err);
    ds_buf_deinit(&text);
    return status;
}

/* Without the apostrophes of a table for spreadsheets, and without the column `spreadsheet`. */
static ds_status write_db(const driver *d, ds_error *err) {
    const ds_rows *rows = &d->rows;
    uint32_t n = rows->columns.n - rows->spreadsheet;
    ds_table_column *columns = ds_xcalloc(n, sizeof *columns);
    for (uint32_t i = 0; i < n; i++)
        columns[i] = (ds_table_column){rows->columns.at[i].name, rows->columns.at[i].is_text};
    ds_table_db *db;
    bool replace = d->options->overwrite || d->options->resume; /* check_db has allowed it */
    ds_status status = ds_table_db_open(d->options->db, replace, "rows", columns, n, &db, err);
    free(columns);
    DS_TRY(status);
    status = export_rows(d, n, db, err);
    ds_status closed = ds_table_db_close(db, status == DS_OK, status == DS_OK ? err : NULL);
    return status == DS_OK ? closed : status;
}

ds_status ds_sweep_run(const ds_sweep_subject *subject, const ds_sweep_options *options,
                       ds_sweep_result *out, ds_error *err) {
    *out = (ds_sweep_result){0};
    driver d = {.options = options, .result = out, .file = {.out = {.fd = -1}}};
    ds_arena_init(&d.arena);
    d.start_ns = ds_clock_ns();
    bool first = ds_ranks_self(options->ranks) == 0;
    ds_status status = first ? set_up(&d, subject, err) : serve(&d, subject, err);
    if (status == DS_OK && first) status = loop(&d, err);
    if (status == DS_OK && first) status = check_spare(&d, err);
    if (out->complete) d.stop.is_set = false; /* what is left to write is written */
    if (status == DS_OK && first && out->complete) status = ds_sweep_file_finish(&d.file, err);
    if (status == DS_OK && first && options->certificate && out->complete)
        status = write_certificate(&d, err);
    status = tear_down(&d, status, err);
    if (status == DS_OK && first && options->db) status = write_db(&d, err);
    subject->binding->unit->stop = NULL;
    out->seconds = seconds_since(d.start_ns);
    ds_rows_deinit(&d.rows);
    ds_space_free(d.space);
    ds_arena_deinit(&d.arena);
    return status;
}

ds_status ds_sweep_count(const ds_sweep_subject *subject, const char *sweep_id, uint64_t *count,
                         ds_error *err) {
    ds_sweep_options grid = {.method = NULL};
    driver d = {.options = &grid};
    bool found = true;
    *count = 0;
    ds_arena_init(&d.arena);
    ds_status status = describe(&d, subject, err);
    if (status == DS_OK && strcmp(d.rows.sweep_id, sweep_id) != 0)
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                              "%s or its profiles have changed since the rows were written, or "
                              "their method was not grid with seed 0: how many there should be is "
                              "not known; --count N says it",
                              subject->path);
    ds_candidate candidate = {0};
    if (status == DS_OK) candidate = ds_candidate_new(d.space, &d.arena);
    while (status == DS_OK && found) {
        status = ds_space_next(d.space, &candidate, &found, err);
        *count += status == DS_OK && found;
    }
    subject->binding->unit->stop = NULL;
    ds_rows_deinit(&d.rows);
    ds_space_free(d.space);
    ds_arena_deinit(&d.arena);
    return status;
}

void ds_sweep_put_json(const ds_sweep_result *r, ds_json *json) {
    ds_json_key_int(json, "candidates", (int64_t)r->rows);
    ds_json_key_bool(json, "complete", r->complete);
    ds_json_key(json, "verdicts");
    ds_json_begin_object(json);
    for (int i = 0; i < DS_VERDICT_COUNT; i++)
        ds_json_key_int(json, ds_verdict_text((ds_verdict)i), (int64_t)r->n[i]);
    ds_json_end_object(json);
    ds_best_put_json(&r->best, json);
}

void ds_sweep_result_deinit(ds_sweep_result *result) {
    ds_best_deinit(&result->best);
}
