/* The interpreter's state: what runs, and where it stands. */
#ifndef DS_EXEC_MACHINE_INTERNAL_H
#define DS_EXEC_MACHINE_INTERNAL_H

#include "ir/exec/internal.h"

/* What an SSA value is now: a value, a family, or (both NULL) not set yet. */
typedef struct ds_exec_family ds_exec_family;
typedef struct ds_exec_slot {
    ds_exec_value *value;
    ds_exec_family *family;
} ds_exec_slot;

/* Indices lo .. lo+n-1 of the outermost binder; further binders are families in it. */
struct ds_exec_family {
    uint32_t owners;
    int64_t lo, n;
    ds_exec_slot items[];
};

/* slots.c */
ds_status ds_exec__family_new(int64_t lo, int64_t n, ds_loc loc, ds_exec_family **out,
                              ds_error *err);
ds_exec_slot ds_exec__slot_share(ds_exec_slot slot);
void ds_exec__slot_drop(ds_exec_slot *slot);
/* Gives the old content up and takes `slot` over. */
void ds_exec__slot_set(ds_exec_slot *to, ds_exec_slot slot);

/* One activation of a function. */
typedef struct ds_exec_frame {
    ds_exec_scope scope;
    ds_exec_slot *slots; /* one a value of the function */
    ds_index index;      /* the index parameter, if the function has one */
} ds_exec_frame;

/* An open block: a function's body, a loop's at one turn, a region's. */
typedef struct ds_exec_open {
    struct ds_exec_open *up;
    const ds_op *op; /* FOR, LOCAL or CALL that opened it; NULL: the entry */
    const ds_block *block;
    uint32_t next; /* op to execute */
    ds_exec_frame *frame;
    const ds_index *indices;
    ds_index turn; /* FOR */
    int64_t hi;
    ds_exec_manual manual;
    ds_exec_family **kept; /* FOR: one a kept value */
    ds_exec_slot *results; /* what yield or return gave */
    uint32_t n_results;
    struct ds_exec_rec *rec; /* REC (rec.c) */
} ds_exec_open;

/* A line of execution: the program, or one rank of it. */
typedef struct ds_exec_thread {
    ds_exec_run_state *run;
    ds_exec_open *top;
    int64_t rank; /* -1: not a per-rank program */
    const ds_func *func;
    ds_exec_slot *results; /* when done */
    const ds_op *return_op;
    const ds_exec_value *waits_for;
    const ds_op *waits_at;
    struct ds_exec_meetings *meetings; /* per-rank programs */
} ds_exec_thread;

/* slots.c: what a use reads, with one more owner. *waits becomes the pending value that it needs,
 * if there is one. */
ds_status ds_exec__read(ds_exec_thread *thread, const ds_exec_open *open, const ds_use *use,
                        ds_exec_slot *out, const ds_exec_value **waits, ds_error *err);

/* machine.c */
ds_status ds_exec__thread_start(ds_exec_thread *thread, const ds_func *func,
                                const ds_exec_place *here, ds_error *err);
/* Runs until the end (top is NULL then) or until it needs a value that is pending. */
ds_status ds_exec__thread_run(ds_exec_thread *thread, bool *progress, ds_error *err);
void ds_exec__thread_deinit(ds_exec_thread *thread);
/* func/loop[index]/call/name */
void ds_exec__path(const ds_exec_thread *thread, const ds_exec_open *open, const ds_op *op,
                   bool with_entry, ds_buf *out);
/* The attribute `name`, else the first result's name, else the mnemonic. */
const char *ds_exec__own_name(const ds_exec_thread *thread, const ds_func *func, const ds_op *op);
ds_exec_site ds_exec__site(const ds_exec_thread *thread, const ds_exec_open *open, ds_loc loc);
/* Rounds if that is asked for, and checks replicas. */
ds_status ds_exec__finish(const ds_exec_thread *thread, const ds_exec_open *open, const ds_op *op,
                          ds_exec_value *value, ds_error *err);

/* rec.c */
/* Gives a value its content; takes `content` over. In a rec's body: at the current point. */
ds_status ds_exec__define(ds_exec_thread *thread, ds_exec_open *open, ds_value value,
                          ds_exec_slot content, ds_error *err);
/* Checks the rec that was opened, and wants what it yields. */
ds_status ds_exec__open_rec(ds_exec_thread *thread, ds_exec_open *open, ds_error *err);
/* The next equation to compute, the indices being those of its point; NULL: none yet. *ended: all
 * is computed, and open->results are set. */
ds_status ds_exec__rec_next(ds_exec_thread *thread, ds_exec_open *open, const ds_op **op,
                            bool *ended, ds_error *err);
void ds_exec__close_rec(ds_exec_open *open);
/* The dims and their values at the current point; none outside of a rec's own block. */
const ds_index *ds_exec__point(const ds_exec_open *open, uint32_t *n);
/* "{3,0}", the current point; nothing outside of a rec's own block. */
void ds_exec__point_text(const ds_exec_open *open, ds_buf *out);
/* Adds to a weight's name the indices that a rec around it gives. `called`: what the rec's equation
 * opened on the way to the weight; NULL: the weight is the equation. */
void ds_exec__weight_indices(const ds_exec_thread *thread, const ds_exec_open *open,
                             const ds_op *called, bool *indexed, ds_buf *out);

/* mask.c: fills e->mask_key, the hash of what names the mask of a dropout on the device at
 * `position`. */
ds_status ds_exec__mask_key(const ds_exec_thread *thread, const ds_exec_open *open,
                            const ds_exec_place *place, uint32_t position, ds_eval *e,
                            ds_error *err);

/* ranks.c: what ranks have sent and not received, and collectives that wait for members. */
typedef struct ds_exec_meetings ds_exec_meetings;
ds_exec_meetings *ds_exec__meetings_new(void);
void ds_exec__meetings_free(ds_exec_meetings *meetings);
/* A send, recv or group collective of a rank: results stay pending until all have come. */
ds_status ds_exec__meet(ds_exec_thread *thread, const ds_op *op, ds_exec_value *const *in,
                        ds_exec_value **out, ds_error *err);
/* DS_ERR_DEADLOCK if anything is left, naming ranks and ops. */
ds_status ds_exec__meetings_end(const ds_exec_meetings *meetings, const ds_exec_thread *threads,
                                uint32_t n_threads, ds_error *err);

#endif
