/* Reading the table of `nvidia-smi topo -m` out of whatever stands around it.
 *
 *             GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
 *     GPU0     X      NV12    PXB     48-63,176-191   3               N/A
 *     GPU1    NV12     X      PXB     48-63,176-191   3               N/A
 *     NIC0    PXB     PXB      X
 *
 * Cells are separated by tabs, or by blanks once somebody has pasted them; the header may be
 * underlined (terminal escapes). The columns at the right may be empty, so they only count where
 * a row has as many as the header. */
#include "ir/import/smi_internal.h"

#include "ir/base/str.h"
#include "ir/import/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *at;
    size_t n;
    uint32_t col; /* bytes, from 1 */
} word;

typedef struct line {
    const char *at, *end;
    uint32_t number;
    DS_VEC(word) words; /* heap, reused */
} line;

typedef struct reader {
    ds_arena *arena;
    const char *at, *end; /* the rest of the text */
    line line;
    uint32_t n_right;   /* columns behind the devices' */
    uint32_t cpu, numa; /* which of them say the affinities; UINT32_MAX: none */
    ds_error *err;
} reader;

/* ---- lines and words ---- */

/* "\033[4m" and the like; returns its length, 0 if there is none. */
static size_t escape_length(const char *at, const char *end) {
    if (end - at < 2 || at[0] != '\033' || at[1] != '[') return 0;
    const char *c = at + 2;
    while (c < end && (*c < '@' || *c > '~')) c++;
    return (size_t)(c - at) + (c < end);
}

static size_t blank_length(const char *at, const char *end) {
    if (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\0') return 1;
    return escape_length(at, end);
}

static void split_line(line *l) {
    l->words.n = 0;
    for (const char *c = l->at; c < l->end;) {
        size_t blank = blank_length(c, l->end);
        if (blank) {
            c += blank;
            continue;
        }
        word w = {.at = c, .col = (uint32_t)(c - l->at) + 1};
        while (c < l->end && !blank_length(c, l->end)) c++;
        w.n = (size_t)(c - w.at);
        DS_HPUSH(&l->words, w);
    }
}

static bool next_line(reader *r) {
    if (r->at == r->end) return false;
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    r->line.at = r->at;
    r->line.end = newline ? newline : r->end;
    r->at = newline ? newline + 1 : r->end;
    r->line.number++;
    split_line(&r->line);
    return true;
}

static bool is(const word *w, const char *text) {
    return w->n == strlen(text) && memcmp(w->at, text, w->n) == 0;
}

static const char *text_of(reader *r, const word *w) {
    return ds_import__plain(r->arena, ds_arena_strndup(r->arena, w->at, w->n));
}

static ds_loc loc_of(uint32_t line_number, uint32_t col) {
    return (ds_loc){.line = line_number, .col = col, .len = 1};
}

const char *ds_smi__level_name(smi_level level) {
    static const char *const names[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS", "NV#"};
    return names[level];
}

ds_status ds_smi__error(const smi_table *table, uint32_t i, uint32_t j, ds_error *err,
                        const char *format, ...) {
    va_list args;
    va_start(args, format);
    ds_error_vset(err, DS_ERR_DATA, loc_of(table->devices[i].line, smi_at(table, i, j)->col),
                  format, args);
    va_end(args);
    return DS_ERR_DATA;
}

/* ---- header ---- */

static bool starts_header(const line *l) {
    return l->words.n >= 2 && is(&l->words.at[0], "GPU0") && !is(&l->words.at[1], "X");
}

/* "CPU Affinity", "NUMA Affinity", "GPU NUMA ID": where they stand among the right columns. */
static void read_right_columns(reader *r, uint32_t at) {
    const line *l = &r->line;
    r->cpu = r->numa = UINT32_MAX;
    for (; at < l->words.n; r->n_right++) {
        bool cpu = is(&l->words.at[at], "CPU"), numa = is(&l->words.at[at], "NUMA");
        uint32_t n = cpu || numa ? 2 : is(&l->words.at[at], "GPU") ? 3 : 1;
        if (cpu) r->cpu = r->n_right;
        if (numa) r->numa = r->n_right;
        at += n;
    }
}

static ds_status read_header(reader *r, smi_table *table) {
    const line *l = &r->line;
    uint32_t n = 0;
    while (n < l->words.n && !is(&l->words.at[n], "CPU") && !is(&l->words.at[n], "NUMA") &&
           !is(&l->words.at[n], "GPU"))
        n++;
    if (n > SMI_MAX_DEVICES)
        return ds_error_set(r->err, DS_ERR_LIMIT, loc_of(l->number, 1),
                            "the table has %" PRIu32 " devices; at most %d are read", n,
                            SMI_MAX_DEVICES);
    table->n = n;
    table->devices = DS_NEW_N(r->arena, smi_device, n);
    table->cells = DS_NEW_N(r->arena, smi_cell, (size_t)n * n);
    for (uint32_t i = 0; i < n; i++) {
        const char *label = text_of(r, &l->words.at[i]);
        bool gpu = strncmp(label, "GPU", 3) == 0 && label[3] >= '0' && label[3] <= '9';
        table->devices[i] = (smi_device){.label = label, .name = label, .is_gpu = gpu};
        table->n_gpus += gpu;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(table->devices[k].label, label) == 0)
                return ds_error_set(r->err, DS_ERR_DATA, loc_of(l->number, l->words.at[i].col),
                                    "the header has '%s' twice", label);
    }
    read_right_columns(r, n);
    return DS_OK;
}

/* ---- rows ---- */

static bool read_cell(const word *w, smi_cell *cell) {
    cell->col = w->col;
    for (smi_level level = SMI_SELF; level < SMI_NVLINK; level++)
        if (is(w, ds_smi__level_name(level))) {
            cell->level = level;
            return true;
        }
    cell->level = SMI_SYS;
    if (is(w, "SOC")) return true;
    cell->level = SMI_NVLINK;
    if (w->n < 3 || w->n > 6 || w->at[0] != 'N' || w->at[1] != 'V') return false;
    for (size_t i = 2; i < w->n; i++) {
        if (w->at[i] < '0' || w->at[i] > '9') return false;
        cell->nvlinks = cell->nvlinks * 10 + (uint32_t)(w->at[i] - '0');
    }
    return cell->nvlinks > 0;
}

/* The NUMA node if the row says it, else the CPUs; "N/A" says nothing. */
static void read_affinity(reader *r, smi_device *device, uint32_t at) {
    const line *l = &r->line;
    if (l->words.n != at + r->n_right) return;
    uint32_t columns[] = {r->numa, r->cpu};
    for (size_t i = 0; i < 2 && !device->affinity; i++)
        if (columns[i] != UINT32_MAX && !is(&l->words.at[at + columns[i]], "N/A"))
            device->affinity = text_of(r, &l->words.at[at + columns[i]]);
}

static ds_status read_row(reader *r, smi_table *table, uint32_t i) {
    const line *l = &r->line;
    smi_device *device = &table->devices[i];
    device->line = l->number;
    if (!is(&l->words.at[0], device->label))
        return ds_error_set(r->err, DS_ERR_DATA, loc_of(l->number, l->words.at[0].col),
                            "the row of %s is expected here, and this is '%s'", device->label,
                            text_of(r, &l->words.at[0]));
    if (l->words.n < table->n + 1)
        return ds_error_set(r->err, DS_ERR_DATA, loc_of(l->number, 1),
                            "the row of %s has %" PRIu32 " cells, the header %" PRIu32 " devices",
                            device->label, l->words.n - 1, table->n);
    for (uint32_t j = 0; j < table->n; j++) {
        const word *w = &l->words.at[j + 1];
        smi_cell *cell = &table->cells[(size_t)i * table->n + j];
        if (!read_cell(w, cell))
            return ds_error_set(r->err, DS_ERR_DATA, loc_of(l->number, w->col),
                                "'%s' is none of X, PIX, PXB, PHB, NODE, SYS, NV1, NV2, ...",
                                text_of(r, w));
        if ((cell->level == SMI_SELF) != (i == j))
            return ds_smi__error(table, i, j, r->err,
                                 "X stands for a device itself, here are %s and %s", device->label,
                                 table->devices[j].label);
    }
    if (device->is_gpu) read_affinity(r, device, table->n + 1);
    return DS_OK;
}

static ds_status read_rows(reader *r, smi_table *table) {
    for (uint32_t i = 0; i < table->n;) {
        if (!next_line(r))
            return ds_error_set(r->err, DS_ERR_DATA, loc_of(r->line.number, 1),
                                "the text ends before the row of %s", table->devices[i].label);
        if (r->line.words.n) DS_TRY(read_row(r, table, i++));
    }
    return DS_OK;
}

static ds_status check_symmetry(reader *r, const smi_table *table) {
    for (uint32_t i = 0; i < table->n; i++)
        for (uint32_t j = 0; j < i; j++) {
            const smi_cell *a = smi_at(table, i, j), *b = smi_at(table, j, i);
            if (a->level != b->level || a->nvlinks != b->nvlinks)
                return ds_smi__error(
                    table, i, j, r->err, "%s to %s is not what line %" PRIu32 " has for %s to %s",
                    table->devices[i].label, table->devices[j].label, table->devices[j].line,
                    table->devices[j].label, table->devices[i].label);
            bool gpus = table->devices[i].is_gpu && table->devices[j].is_gpu;
            if (a->level == SMI_NVLINK && !gpus)
                return ds_smi__error(table, i, j, r->err, "NVLinks join GPUs, and %s is none",
                                     table->devices[table->devices[i].is_gpu ? j : i].label);
        }
    return DS_OK;
}

/* "NIC0: mlx5_0" */
static void read_legend(reader *r, smi_table *table) {
    while (next_line(r)) {
        const line *l = &r->line;
        if (l->words.n != 2 || l->words.at[0].at[l->words.at[0].n - 1] != ':') continue;
        word label = l->words.at[0];
        label.n--;
        for (uint32_t i = 0; i < table->n; i++)
            if (!table->devices[i].is_gpu && is(&label, table->devices[i].label))
                table->devices[i].name = text_of(r, &l->words.at[1]);
    }
}

static ds_status read_table(reader *r, smi_table *table) {
    while (next_line(r)) {
        if (!starts_header(&r->line)) continue;
        DS_TRY(read_header(r, table));
        DS_TRY(read_rows(r, table));
        DS_TRY(check_symmetry(r, table));
        read_legend(r, table);
        return DS_OK;
    }
    return ds_error_set(r->err, DS_ERR_DATA, loc_of(r->line.number ? r->line.number : 1, 1),
                        "there is no table in this text: `nvidia-smi topo -m` begins with a line "
                        "of devices, GPU0 GPU1 ...");
}

ds_status ds_smi__read(ds_arena *arena, const char *text, size_t n, smi_table *table,
                       ds_error *err) {
    reader r = {.arena = arena, .at = text, .end = text + n, .err = err};
    *table = (smi_table){0};
    ds_status status = read_table(&r, table);
    free(r.line.words.at);
    return status;
}
