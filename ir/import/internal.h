/* What the importers share: the params and the scenario block of the file they write. */
#ifndef DS_IMPORT_INTERNAL_H
#define DS_IMPORT_INTERNAL_H

#include "ir/import/import.h"

typedef struct ds_import_param {
    const char *name;
    int64_t value;
} ds_import_param;

/* Puts the settings into the params. Errors: DS_ERR_NAME for one of no param, DS_ERR_VALUE for what
 * is no integer of at least 1. */
ds_status ds_import__set(const ds_import_options *options, ds_import_param *params, uint32_t n,
                         ds_error *err);
/* "param batch = 8, seq = 4096\n", or nothing. */
void ds_import__put_params(const ds_import_param *params, uint32_t n, ds_buf *out);
/* `import "topologies/…"\n`, or nothing without a topology. */
void ds_import__put_on(const ds_import_options *options, ds_buf *out);
/* One device: the strategy of a file that says nothing of devices. */
#define DS_IMPORT_ALONE "dp = 1, tp = 1, pp = 1, cp = 1, ep = 1"
/* The scenario block after a blank line; without a topology it only names the model. `train` is a
 * whole entry, as "train = off", `strategy` the entries of the block; `batch` the expression of the
 * samples a step, or NULL. */
void ds_import__put_scenario(const ds_import_options *options, const char *title, const char *model,
                             const char *train, const char *strategy, const char *batch,
                             ds_buf *out);
/* Text from a file, made fit for a comment or a message: control characters become '?', at most
 * 80 bytes. */
const char *ds_import__plain(ds_arena *arena, const char *text);
/* Is the word one of a list with spaces between? */
bool ds_import__is_word_of(const char *word, const char *list);

#endif
