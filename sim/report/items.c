/* Paths in a pipelined step: one path for all chunks and microbatches of an op. */
#include "sim/report/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The length of ".c" and a chunk's number; 0: the text begins otherwise. */
static size_t chunk_suffix(const char *text, int64_t n_chunks) {
    if (text[0] != '.' || text[1] != 'c' || !isdigit((unsigned char)text[2])) return 0;
    char *end;
    long long chunk = strtoll(text + 2, &end, 10);
    return chunk < n_chunks && (!*end || strchr("./{ ", *end)) ? (size_t)(end - text) : 0;
}

static void drop_chunks(ds_buf *path, size_t from, int64_t n_chunks) {
    size_t to = from;
    for (size_t i = from; i < path->n;) {
        size_t n = chunk_suffix(path->text + i, n_chunks);
        i += n;
        if (!n) path->text[to++] = path->text[i++];
    }
    path->n = to;
    path->text[to] = '\0';
}

/* Drops the microbatch from a send's name: "last.c0.5.s1" of microbatch 5 becomes "last.c0.s1". */
static void drop_microbatch(ds_buf *path, size_t from) {
    size_t end = path->n;
    while (end > from && isdigit((unsigned char)path->text[end - 1])) end--;
    if (end < from + 2 || path->text[end - 1] != 's' || path->text[end - 2] != '.') return;
    size_t to = end -= 2;
    while (to > from && isdigit((unsigned char)path->text[to - 1])) to--;
    if (to == end || to == from || path->text[to - 1] != '.') return;
    memmove(path->text + to - 1, path->text + end, path->n - end + 1);
    path->n -= end - (to - 1);
}

void ds_report__item_path(const ds_result *r, uint32_t inst, size_t from, ds_buf *path) {
    const ds_record *record = r->plan->records.at[r->plan->insts.at[inst].record];
    char *call = strchr(path->text + from, '/'), *end = call ? strchr(call + 1, '/') : NULL;
    ds_item_call item;
    if (end && ds_item_call_of(r, r->plan->insts.at[inst].scope, &item)) {
        ds_buf rest = {0};
        ds_buf_put(&rest, end);
        path->n = (size_t)(call + 1 - path->text);
        ds_buf_printf(path, "%c%s", item.kind, rest.text);
        ds_buf_deinit(&rest);
    }
    if (record->op && record->op->code == DS_OP_SEND) drop_microbatch(path, from);
    drop_chunks(path, from, r->step->schedule.n_chunks);
}

void ds_report__put_item(const ds_item_call *item, ds_buf *out) {
    ds_buf_printf(out, "%c%lld.%lld", item->kind, (long long)item->chunk,
                  (long long)item->microbatch);
}
