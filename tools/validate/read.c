/* Reading a row of measurements. A cell says something or is blank: what cannot be read, or is
 * what no run has, is remembered with its column (val_row.unread), and the row is refused. */
#include "tools/validate/row.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MLP "distir_mlp"

/* Sizes and degrees beyond these belong to no machine; products of them fit. */
#define MAX_SIZE    1e9
#define MAX_DEGREE  32767
#define MAX_SECONDS 1e9
/* No step is shorter, and no run's MFU is less. */
#define MIN_SECONDS 1e-6
#define MIN_MFU_PCT 1e-3

typedef struct reader {
    const ds_csv *csv;
    uint32_t index;
    val_row *row;
} reader;

/* ---- cells ---- */

static const char *text_of(const reader *in, const char *column) {
    uint32_t at = ds_csv_find(in->csv, column);
    return at == DS_CSV_NO_COLUMN ? "" : in->csv->rows.at[in->index].cells[at];
}

/* The first cell that is wrong counts. */
static void complain(const reader *in, const char *column, const char *what) {
    if (*in->row->unread) return;
    snprintf(in->row->unread, sizeof in->row->unread, "%s = '%.40s' %s", column,
             text_of(in, column), what);
}

/* Decimal, with blanks around it and nothing else; false: it is none. */
static bool is_number(const char *text, double *value) {
    char *end;
    text += strspn(text, " \t");
    if (text[strspn(text, "0123456789+-.eE \t")]) return false; /* hexadecimal, nan, inf, words */
    *value = strtod(text, &end);
    return end != text && !end[strspn(end, " \t")];
}

static bool is_blank(const char *text) {
    return !text[strspn(text, " \t")];
}

static double real_of(const reader *in, const char *column, double most) {
    const char *text = text_of(in, column);
    double value = 0;
    if (is_blank(text)) return 0;
    if (!is_number(text, &value))
        complain(in, column, "is no number");
    else if (!(value >= 0 && value <= most))
        complain(in, column, "is out of range");
    else
        return value;
    return 0;
}

static int64_t whole_of(const reader *in, const char *column, double least, double most,
                        int64_t blank) {
    const char *text = text_of(in, column);
    double value = 0;
    char what[64];
    if (is_blank(text)) return blank;
    if (!is_number(text, &value)) {
        complain(in, column, "is no number");
    } else if (!(value >= least && value <= most)) {
        snprintf(what, sizeof what, "is not between %.0f and %.0f", least, most);
        complain(in, column, what);
    } else if (value != floor(value)) {
        complain(in, column, "is no whole number");
    } else {
        return (int64_t)value;
    }
    return blank;
}

static bool is_one_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strcasecmp(text, *words) == 0) return true;
    return false;
}

/* One of the words that scenario.c knows the meaning of, or blank. */
static const char *word_of(const reader *in, const char *column, const char *const *words) {
    const char *text = text_of(in, column);
    if (is_blank(text)) return "";
    if (!is_one_of(text, words)) complain(in, column, "is no word that is known there");
    return text;
}

/* Schedules by the tables' and the frameworks' names (torch/distributed/pipelining/schedules.py). */
static const char *generator_of(const char *schedule) {
    static const char *const names[][2] = {{"1f1b", "1f1b"},
                                           {"1f1b (DeepSpeed)", "1f1b"},
                                           {"1f1b (DeepSpeed PipelineEngine)", "1f1b"},
                                           {"GPipe", "gpipe"},
                                           {"interleaved", "interleaved"},
                                           {"interleaved-1f1b", "interleaved"},
                                           {"interleaved 1f1b", "interleaved"},
                                           {"Interleaved1F1B", "interleaved"},
                                           {"LoopedBFS", "breadth-first"},
                                           {"ZBVZeroBubble", "zb-v"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(schedule, names[i][0]) == 0) return names[i][1];
    return NULL;
}

static const char *schedule_of(const reader *in) {
    const char *text = text_of(in, "schedule");
    in->row->generator = generator_of(text);
    if (!is_blank(text) && !in->row->generator && strcasecmp(text, "FSDP") != 0)
        complain(in, "schedule", "is no word that is known there");
    return is_blank(text) ? "" : text;
}

/* "bf16 (fp32 grad accum)", "fp8 rowwise": a dtype, and words that say how the dtype is used. */
static const char *precision_of(const reader *in) {
    static const char *const dtypes[] = {"fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", NULL};
    static const char *const words[] = {
        "amp",     "cs",         "mx",        "grad",     "accum",    "linear", "layers", "row",
        "rowwise", "tensorwise", "blockwise", "inferred", "gradient", "all",    "reduce", NULL};
    const char *text = text_of(in, "precision");
    bool narrows = false, known = true;
    for (const char *at = text; *at;) {
        char word[16];
        size_t n = strcspn(at, " \t()_-,;+");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), at);
        bool dtype = n && is_one_of(word, dtypes);
        narrows |= dtype;
        known &= !n || dtype || is_one_of(word, words);
        at += n + (at[n] != 0);
    }
    if (is_blank(text)) return "";
    if (!narrows || !known) complain(in, "precision", "is no word that is known there");
    return text;
}

/* A whole layer in K runs again: "every 2nd layer", "selective (every 2nd layer)". */
static const char *recompute_of(const reader *in, const char *const *words) {
    const char *text = text_of(in, "recompute"), *at = text;
    char rest[16] = "";
    if (strncasecmp(text, "selective (", 11) == 0) at += 11;
    if (sscanf(at, "every %5" SCNd64 "%15[a-z )]", &in->row->every, rest) == 2 &&
        strstr(rest, " layer") && in->row->every > 0)
        return text;
    in->row->every = 0;
    return word_of(in, "recompute", words);
}

/* A stage; FSDP shares out weights too, and says so alone or behind the stage: "3 (FSDP)",
 * "3 (HSDP, groups of 8)", "2 (SHARD_GRAD_OP)", "1 (distributed optimizer)". */
static int64_t zero_of(const reader *in) {
    const char *text = text_of(in, "zero_stage");
    char end = 0;
    static const struct {
        const char *text;
        int64_t stage;
    } names[] = {{"FSDP", 3},
                 {"3 (FSDP)", 3},
                 {"3 (FSDP1)", 3},
                 {"3 (FSDP2)", 3},
                 {"2 (FSDP)", 2},
                 {"2 (SHARD_GRAD_OP)", 2},
                 {"2 (FSDP, SHARD_GRAD_OP)", 2},
                 {"1 (distributed optimizer)", 1},
                 {"1 (distributed Adam)", 1},
                 {"0 (DDP)", 0},
                 {"DDP", 0}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(text, names[i].text) == 0) return names[i].stage;
    if (sscanf(text, "3 (HSDP, groups of %5" SCNd64 "%c", &in->row->zero_group, &end) == 2 &&
        end == ')' && in->row->zero_group > 0)
        return 3;
    in->row->zero_group = 0;
    return whole_of(in, "zero_stage", 0, 3, -1);
}

static double seconds_of(const reader *in, const char *column, double unit) {
    double value = real_of(in, column, MAX_SECONDS) * unit;
    double stated;
    if (value >= MIN_SECONDS) return value;
    if (is_number(text_of(in, column), &stated)) complain(in, column, "is out of range");
    return 0;
}

/* "… [26.06.01 NeMo Container; …": 2606. */
static int64_t release_of(const char *ref) {
    const char *at = strchr(ref, '[');
    int year = 0, month = 0;
    if (!at || sscanf(at, "[%2d.%2d", &year, &month) != 2) return 0;
    return 100 * year + month;
}

/* ---- rows ---- */

/* The dims of a public model; those that the row states must be the same. Vocabularies may be
 * padded. */
static void fill_known(const reader *in) {
    val_row *r = in->row;
    const val_known_model *m = r->known = val_known_model_of(r->model);
    if (!m || m->refused) return;
    const struct {
        const char *column;
        int64_t *cell, value;
    } dims[] = {{"layers", &r->layers, m->layers}, {"hidden", &r->hidden, m->hidden},
                {"heads", &r->heads, m->heads},    {"ffn", &r->ffn, m->ffn},
                {"vocab", &r->vocab, m->vocab},    {"kv_heads", &r->kv_heads, m->kv_heads}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        char what[64];
        snprintf(what, sizeof what, "contradicts the model, which has %" PRId64, dims[i].value);
        bool vocab = dims[i].cell == &r->vocab;
        if (*dims[i].cell && *dims[i].cell != dims[i].value && !vocab)
            complain(in, dims[i].column, what);
        if (!*dims[i].cell) *dims[i].cell = dims[i].value;
    }
}

static void read_mlp(const reader *in) {
    val_row *r = in->row;
    r->source_id = MLP;
    r->model = "MLP";
    r->gpus = r->dp = whole_of(in, "world_size", 1, MAX_DEGREE, 0);
    r->tp = r->pp = 1;
    r->layers = whole_of(in, "num_layers", 1, MAX_SIZE, 0);
    r->hidden = whole_of(in, "hidden_dim", 1, MAX_SIZE, 0);
    r->gbs = whole_of(in, "batch_size", 1, MAX_SIZE, 0);
    r->seconds = seconds_of(in, "measured_ms", 1e-3);
}

void val_row_read(const ds_csv *csv, uint32_t index, val_row *out) {
    static const char *const recomputes[] = {"none",
                                             "full",
                                             "full (Remat=True)",
                                             "full (inferred)",
                                             "selective",
                                             "selective(attention)",
                                             "selective (attention)",
                                             "selective-op",
                                             NULL};
    const reader in = {csv, index, out};
#define TEXT(column)   text_of(&in, column)
#define SIZE(column)   whole_of(&in, column, 1, MAX_SIZE, 0)
#define DEGREE(column) whole_of(&in, column, 1, MAX_DEGREE, 0)
    *out = (val_row){
        .line = csv->rows.at[index].line,
        .source_id = TEXT("source_id"),
        .ref = TEXT("source_ref"),
        .model = TEXT("model"),
        .gpu = TEXT("gpu"),
        .split = TEXT("split"),
        .memory = TEXT("mem_gb"),
        .memory_kind = TEXT("mem_kind"),
        .notes = TEXT("notes"),
        .intra_link = TEXT("intra_link"),
        .inter_link = TEXT("inter_link"),
        .name = TEXT("case"),
        .stated = TEXT("layout_stated"),
        .cluster_id = TEXT("cluster_id"),
        .cluster = TEXT("cluster"),
        .stage_devices = TEXT("stage_devices"),
        .stage_layers = TEXT("stage_layers"),
        .outcome = TEXT("outcome"),
        .quality = TEXT("row_quality"),
    };
    out->schedule = schedule_of(&in);
    out->recompute = recompute_of(&in, recomputes);
    out->precision = precision_of(&in);
    out->params_b = real_of(&in, "params_b", MAX_SIZE);
    if (*out->cluster_id) out->mfu_pct = real_of(&in, "mfu_pct", 100);
    if (out->mfu_pct > 0 && out->mfu_pct < MIN_MFU_PCT) complain(&in, "mfu_pct", "is out of range");
    out->layers = SIZE("layers");
    out->hidden = SIZE("hidden");
    out->heads = SIZE("heads");
    out->kv_heads = SIZE("kv_heads");
    out->ffn = SIZE("ffn");
    out->vocab = SIZE("vocab");
    out->seq = SIZE("seq");
    out->gpus = SIZE("gpus");
    out->gpus_per_node = DEGREE("gpus_per_node");
    out->dp = DEGREE("dp");
    out->tp = DEGREE("tp");
    out->pp = DEGREE("pp");
    out->cp = DEGREE("cp");
    out->ep = DEGREE("ep");
    out->vpp = DEGREE("vpp");
    out->mbs = DEGREE("mbs");
    out->gbs = SIZE("gbs");
    out->zero = zero_of(&in);
    out->sp = whole_of(&in, "seq_parallel", 0, 1, -1);
    if (!is_number(out->memory, &out->memory_gb)) out->memory_gb = 0; /* "OOM" */
    out->seconds = seconds_of(&in, "iter_time_s", 1);
    if (!(out->seconds > 0)) out->seconds = seconds_of(&in, "iter_time_derived_s", 1);
    out->flawed = strstr(TEXT("tflops_per_gpu"), "[^gpt-oss-note]") != NULL;
    out->release = release_of(out->ref);
    fill_known(&in);
    if (ds_csv_find(csv, "world_size") != DS_CSV_NO_COLUMN) read_mlp(&in);
#undef TEXT
#undef SIZE
#undef DEGREE
}

bool val_row_reserved(const val_row *row) {
    return strstr(row->memory_kind, "reserved") && strstr(row->memory_kind, "GiB");
}

bool val_row_is_mlp(const val_row *row) {
    return strcmp(row->source_id, MLP) == 0;
}
