/* A published training run, as a row of a table of measurements.
 *
 * Columns (tests/data/e2e/e2e_*.csv; others are passed over, a missing one counts as blank):
 * source_id source_ref model params_b layers hidden heads kv_heads ffn vocab seq gpu gpus
 * gpus_per_node intra_link inter_link dp tp pp cp ep vpp schedule mbs gbs zero_stage seq_parallel
 * recompute precision iter_time_s iter_time_derived_s mem_gb mem_kind split notes case layout_stated
 * mfu_pct cluster_id cluster stage_devices stage_layers outcome row_quality. A blank
 * cell is what the source does not say; a cell that cannot be read, or that no run has (dp = 0,
 * precision = int8), is no blank one: its row is refused, with column and value. zero_stage is 0 to
 * 3, or FSDP, which is 3; "3 (HSDP, groups of 8)" shares weights out in groups. Nothing is
 * guessed: what a run cannot do without, and neither the row nor its testbed
 * (tools/validate/testbed.h) gives, makes it incomplete, with a reason. */
#ifndef DS_VALIDATE_ROW_H
#define DS_VALIDATE_ROW_H

#include "ir/base/csv.h"
#include "ir/base/str.h"
#include "tools/validate/zoo.h"

/* Texts belong to the table and are never NULL; a number that is blank is 0, or -1 where 0 means
 * something. */
typedef struct val_row {
    uint32_t line;
    char unread[160]; /* the first cell that is wrong, and how; "": none */
    const char *source_id, *ref, *model, *gpu, *schedule, *recompute, *precision, *split, *memory;
    const char *memory_kind; /* which figure of memory: "max reserved GiB" (val_row_reserved) */
    const char *notes;
    const char *intra_link, *inter_link; /* labels of a machine, or rates (stack.h) */
    const char *name;                    /* the cell `case`: of a table that names its rows */
    const char *stated;                  /* the cell layout_stated */
    /* Of tables of mixed clusters (mixed.h); blank else. */
    const char *cluster_id, *cluster, *stage_devices, *stage_layers, *outcome, *quality;
    double params_b, mfu_pct;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq;
    int64_t gpus, gpus_per_node, dp, tp, pp, cp, ep, vpp, mbs, gbs;
    int64_t zero;                 /* -1: not stated */
    int64_t zero_group;           /* replicas that share out weights among them; 0: all */
    int64_t every;                /* every so many layers run again; 0: as `recompute` says */
    const char *generator;        /* the word of strategy.schedule; NULL: not stated */
    int64_t sp;                   /* -1: not stated, which counts as off */
    double memory_gb;             /* 0: not stated, or no number (OOM) */
    const val_known_model *known; /* NULL: the row has its dims itself */
    bool no_node_size;            /* gpus_per_node is blank, and filled in */
    bool flawed;                  /* the source marks its figure as a known regression */
    int64_t release; /* of the software, as 2606 of "[26.06.01 NeMo Container"; 0: not stated */
    double seconds;  /* a step: iter_time_s, else iter_time_derived_s; 0: not stated */
} val_row;

/* Whatever the cells hold; what is wrong with them is in `unread`. DistIR's table of an MLP has
 * columns of its own: world_size num_layers batch_size hidden_dim measured_ms. */
void val_row_read(const ds_csv *csv, uint32_t index, val_row *out);
bool val_row_is_mlp(const val_row *row);

/* Fills in what follows from the rest, and says what is missing or contradicts itself:
 *   layers  the only number of layers l of width h, the same for every stage, for which
 *           l (12 h² + 13 h) + (vocab + seq + 2) h is params_b to the digits given
 *   ffn     4 h;  dp, tp, pp, cp, ep, vpp of one GPU, and blank cp, ep, vpp: 1
 * Dims and params_b may differ by 15 % (labels are rounded, and leave out embeddings or not).
 * DS_ERR_UNSUPPORTED for a layout that there is no scenario for, DS_ERR_DATA else. */
ds_status val_row_complete(val_row *row, ds_error *err);
/* DS_ERR_DATA if a cell is wrong. */
ds_status val_row_check_cells(const val_row *row, ds_error *err);
/* DS_ERR_DATA if heads, which are stated, do not part hidden, or kv_heads do not part heads. */
ds_status val_row_check_heads(const val_row *row, ds_error *err);

/* Is the figure of memory what PyTorch's allocator reserved, in GiB, and not the process's? */
bool val_row_reserved(const val_row *row);

/* Is the word in the text, in whatever case? */
bool val_mentions(const char *text, const char *word);

/* Floating-point operations of a step as the field counts them: six times the weights of the
 * products and the attention to both sides, a token; eight times with full recomputation. For
 * baselines; no prediction uses it. */
double val_row_flop(const val_row *row);

#endif
