/* --pipeline-model-parallel-layout of Megatron-LM: which layers every stage has, chunk by chunk.
 *
 *     "Et*3|(t*4|)*14,t*2mL"      E embedding, t layer, m layer that predicts a later token, L loss;
 *                                 | ends a chunk, * repeats a letter or a group, a comma is nothing
 *
 * Source of the syntax: Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py.
 * Chunk c of pp stages is chunk c / pp of stage c % pp, as in the strategy's stage_layers. */
#include "ir/launch/megatron_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LETTERS = 1 << 16, MOST_NESTED = 8 };

/* Layers of chunk c by default (ir/passes/stage/cut.c): the middle chunks have the rest. */
static int64_t default_layers(const ds_launch *l, int64_t chunks, int64_t c) {
    int64_t n = l->model.size[DS_MODEL_LAYERS] + l->model.size[DS_MODEL_MTP], rest = n % chunks;
    int64_t middle = (chunks - rest) / 2;
    return n / chunks + (c >= middle && c < middle + rest);
}

void ds_launch__put_layout(const ds_launch *l, ds_buf *out) {
    int64_t chunks = l->pp * l->virtual_stages, mtp = l->model.size[DS_MODEL_MTP];
    ds_buf_put(out, "'E"); /* a shell must not read | and * */
    for (int64_t c = 0; c < chunks; c++) {
        bool last = c + 1 == chunks;
        int64_t n = default_layers(l, chunks, c) - (last ? mtp : 0);
        if (c) ds_buf_putc(out, '|');
        if (n > 1)
            ds_buf_printf(out, "t*%" PRId64, n);
        else if (n == 1)
            ds_buf_putc(out, 't');
    }
    for (int64_t i = 0; i < mtp; i++) ds_buf_putc(out, 'm');
    ds_buf_put(out, "L'");
}

/* ---- reading ---- */

static bool expand(const char **at, int depth, ds_buf *out);

/* A letter or a group, as often as * says. */
static bool expand_item(const char **at, int depth, ds_buf *out) {
    ds_buf item = {0};
    long times = 1;
    bool ok = true;
    ds_buf_put(&item, "");
    if (**at == '(') {
        ++*at;
        ok = depth < MOST_NESTED && expand(at, depth + 1, &item) && **at == ')';
    } else {
        ok = strchr("EtmL|", **at) != NULL;
        ds_buf_putc(&item, **at);
    }
    if (ok) ++*at;
    if (ok && **at == '*') {
        char *end;
        times = strtol(*at + 1, &end, 10);
        ok = end != *at + 1 && times >= 1 && times <= MOST_LETTERS;
        *at = end;
    }
    ok = ok && out->n + item.n * (size_t)times <= MOST_LETTERS;
    for (long i = 0; ok && i < times; i++) ds_buf_put(out, item.text);
    ds_buf_deinit(&item);
    return ok;
}

static bool expand(const char **at, int depth, ds_buf *out) {
    while (**at && **at != ')') {
        if (**at == ',' || **at == ' ')
            ++*at;
        else if (!expand_item(at, depth, out))
            return false;
    }
    return depth > 0 || !**at;
}

/* The letters of a chunk, after an E in the first; *n: its layers. False: not a chunk that the
 * strategy can say. */
static bool read_chunk(const ds_launch *l, const char *text, size_t length, bool last, int64_t *n) {
    size_t layers = strspn(text, "t");
    size_t later = strspn(text + layers, "m");
    *n = (int64_t)(layers + later);
    if (layers + later > length) return false;
    if (!last) return !later && layers == length;
    return (int64_t)later == l->model.size[DS_MODEL_MTP] && layers + later + 1 == length &&
           text[length - 1] == 'L';
}

static bool read_chunks(ds_launch *l, const char *text) {
    int64_t chunks = 1, total = 0;
    bool as_by_default = true, ok = true;
    if (*text != 'E') return false;
    text++;
    for (const char *c = text; *c; c++) chunks += *c == '|';
    if (chunks % l->pp) return false;
    int64_t *layers = DS_NEW_N(l->arena, int64_t, chunks);
    for (int64_t c = 0; ok && c < chunks; c++) {
        size_t length = strcspn(text, "|");
        ok = read_chunk(l, text, length, c + 1 == chunks, &layers[c]);
        as_by_default = as_by_default && layers[c] == default_layers(l, chunks, c);
        total += layers[c];
        text += length + (text[length] == '|');
    }
    if (!ok || total != l->model.size[DS_MODEL_LAYERS] + l->model.size[DS_MODEL_MTP]) return false;
    l->virtual_stages = chunks / l->pp;
    l->stage_layers = as_by_default ? NULL : layers;
    l->n_stage_layers = as_by_default ? 0 : (uint32_t)chunks;
    return true;
}

bool ds_launch__read_layout(ds_launch *l, const char *text) {
    ds_buf letters = {0};
    ds_buf_put(&letters, "");
    bool ok = expand(&text, 0, &letters) && read_chunks(l, letters.text);
    ds_buf_deinit(&letters);
    return ok;
}
